"""JAX as bench-cpu sees a library: the names of cpu_nabla.py."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

array = jnp.asarray
softmax = jax.nn.softmax
log_softmax = jax.nn.log_softmax
relu = jax.nn.relu
tree_map = jax.tree.map
tree_leaves = jax.tree.leaves
value_and_grad = jax.value_and_grad
ready = jax.block_until_ready


def __getattr__(name: str) -> Any:
    return getattr(jnp, name)


def compile(
    f: Callable[..., Any], donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    return jax.jit(f, donate_argnums=donate)


def numpy(x: Any) -> Any:
    return np.asarray(x.astype(jnp.float32))


def grad(f: Callable[..., Any], arguments: Any = 0) -> Callable[..., Any]:
    return jax.grad(f, arguments)


def bfloat16(x: Any) -> Any:
    return x.astype(jnp.bfloat16)


def conv(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(
        *(x, w, (1, 1), [(1, 1), (1, 1)]),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def random_key(seed: int) -> Any:
    return jax.random.key(seed)


def uniform(key: Any, n: int) -> Any:
    return jax.random.uniform(key, (n,))


def normal(key: Any, n: int) -> Any:
    return jax.random.normal(key, (n,))


def loop(f: Callable[[Any], Any], x: Any, n: int) -> Any:
    return jax.lax.scan(lambda c, _: (f(c), None), x, None, length=n)[0]


def prepare(f: Any, *x: Any) -> tuple[Callable[..., Any], int]:
    code = f.lower(*x).compile()
    m = code.memory_analysis()
    used = m.argument_size_in_bytes + m.output_size_in_bytes
    used += m.temp_size_in_bytes - m.alias_size_in_bytes
    return code, used
