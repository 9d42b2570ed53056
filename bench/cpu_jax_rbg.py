"""JAX with the generator of XLA instead of its own, as bench-cpu sees it."""

from typing import Any

import cpu_jax
import jax


def __getattr__(name: str) -> Any:
    return getattr(cpu_jax, name)


def random_key(seed: int) -> Any:
    return jax.random.key(seed, impl="rbg")
