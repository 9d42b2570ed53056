"""Nabla as bench-cpu sees a library.

Besides NumPy's names: array and numpy convert, compile makes a function fast,
ready waits for results, prepare compiles before the first call and tells how
many bytes will be needed; tree_map, tree_leaves, grad and value_and_grad know
trees.
"""

from collections.abc import Callable
from typing import Any

import nabla as nb

array = nb.constant
random_key = nb.random.key


def __getattr__(name: str) -> Any:
    return getattr(nb, name)


def compile(
    f: Callable[..., Any], donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    return nb.compile(f, donate_argnums=donate, fullgraph=True)


def ready(tree: Any) -> Any:
    nb.realize_all(*nb.tree_leaves(tree))
    return tree


def numpy(x: Any) -> Any:
    return nb.cast(x, nb.float32).numpy()


def grad(f: Callable[..., Any], arguments: Any = 0) -> Callable[..., Any]:
    return nb.grad(f, argnums=arguments)


def bfloat16(x: Any) -> Any:
    return nb.cast(x, nb.bfloat16)


def conv(x: Any, w: Any) -> Any:
    return nb.conv2d(x, w, padding=1)


def uniform(key: Any, n: int) -> Any:
    return nb.random.uniform(key, (n,))


def normal(key: Any, n: int) -> Any:
    return nb.random.normal(key, (n,))


def loop(f: Callable[[Any], Any], x: Any, n: int) -> Any:
    """f applied n times."""
    return nb.scan(lambda c, _: (f(c), None), x, None, length=n)[0]


def prepare(f: Any, *x: Any) -> tuple[Callable[..., Any], int]:
    code = f.lower(*x).compile()
    return code, code.memory().peak
