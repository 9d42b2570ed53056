"""What tests on a card share: values, and functions of them there and here."""

from collections.abc import Callable
from typing import Any

import numpy as np

import nabla as nb

GPU = nb.Accelerator()
RNG = np.random.default_rng(0)


def values(*shape: int, dtype: str = "float32") -> Any:
    return RNG.normal(size=shape).astype(dtype)


def compare(f: Callable[..., Any], *args: Any, tolerance: float = 1e-5) -> None:
    """f on the CPU and on the card, where its results are."""
    want = f(*(nb.constant(a) for a in args))
    got = f(*(nb.constant(a, device="gpu") for a in args))
    want, got = map(nb.tree_leaves, (want, got))
    assert len(want) == len(got)
    for a, b in zip(want, got, strict=True):
        assert b.device == GPU
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(
            b.numpy(), a.numpy(), rtol=tolerance, atol=tolerance
        )


def mesh(n: int = 4) -> nb.DeviceMesh:
    """Of devices that are all the card."""
    return nb.DeviceMesh((n,), ("x",), device_refs=[GPU] * n)
