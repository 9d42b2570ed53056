"""Functions compiled for any sizes, beside the same compiled for one."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import nabla as nb


def softmax(x: Any) -> Any:
    return nb.softmax(x, axis=-1)


def loss(w: Any, v: Any, x: Any) -> Any:
    return ((nb.tanh(x @ w) @ v) ** 2).mean()


def busy(f: Callable[..., Any], x: list[Any]) -> float:
    start = time.process_time()
    f(*x)
    return time.process_time() - start


def beside(name: str, fn: Any, leaf: int, *shapes: tuple[int, ...]) -> str:
    """CPU time by that of a program for these sizes alone; what the first call
    of a size takes more than the second."""
    rng = np.random.default_rng(0)
    x = [nb.constant(rng.standard_normal(s).astype("f")) for s in shapes]
    one, any_size = (
        nb.compile(fn),
        nb.compile(fn, dynamic_dims={leaf: {0: "n"}}),
    )
    one(*x), any_size(*x)
    ratios = [busy(any_size, x) / busy(one, x) for _ in range(40)]
    fresh = []
    for n in range(2, 42):
        x[leaf] = nb.constant(np.ones((n, *shapes[leaf][1:]), "f"))
        took = []
        for _ in range(2):
            start = time.perf_counter()
            any_size(*x)
            took.append(time.perf_counter() - start)
        fresh.append(took[0] - took[1])
    assert any_size.stats.misses == 1, any_size.explain().fixed
    ratio, new = statistics.median(ratios), statistics.median(fresh) * 1e6
    return (
        f"{name:<36}any size/one size {ratio:5.2f} (CPU) <= 1.1  "
        f"a new size {new:.0f} us (at most 100 us)"
        + ("  MISSED" if ratio > 1.1 or new > 100 else "")
    )


def main() -> None:
    print(beside("softmax 4096x1024, any rows", softmax, 0, (4096, 1024)))
    print(
        beside(
            "MLP 784-512-10 gradient, any batch",
            nb.grad(loss, argnums=(0, 1)),
            2,
            (784, 512),
            (512, 10),
            (128, 784),
        )
    )
