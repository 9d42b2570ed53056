"""What a row of bench/gpu.py is: a workload, for every library.

A row has arrays, which every library is given in its own form, real ones in the
dtype of the row, and a function of them in each library.  Of some functions the
first results are the first arguments of the next call: those are steps.  JAX
and PyTorch may be missing, and are where they have no card, unless
NABLA_BENCH_SMALL=1, which makes sizes so small that a simulated card takes
them and times mean nothing."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

SMALL = bool(os.environ.get("NABLA_BENCH_SMALL"))

jax: Any = None
jnp: Any = None
torch: Any = None
if importlib.util.find_spec("jax"):
    # Three quarters of the card are not JAX's for as long as the others run.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax.numpy

    jnp = jax.numpy
    if not SMALL and jax.default_backend() != "gpu":
        jax = None
if importlib.util.find_spec("torch"):
    import torch

    if not SMALL and not torch.cuda.is_available():
        torch = None


def of(large: int, small: int) -> int:
    return small if SMALL else large


class Row(NamedTuple):
    arrays: list[np.ndarray]
    dtype: str
    ours: Callable[..., Any]
    jax: Callable[..., Any]
    torch: Callable[..., Any] | None
    bytes: float = 0.0
    flops: float = 0.0
    carries: int = 0  # arguments that are results of the call before
    swaps: bool = False  # JAX has axes 1 and 2 the other way round


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def labels(count: int, classes: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, classes, count)
