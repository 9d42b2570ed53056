"""Compiled functions on a card, beside JAX and PyTorch.

bench/gpu.py [WORD] runs the rows whose names contain the word.  Every library
has the same arrays; that they agree is checked first.  They take turns, each
call given back to back, and a row shows the least time of each, what that is in
TB/s of the memory that has to be read and written or in TFLOP/s, and the ratio
of ours to the best of the others.
"""

import importlib.util
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nabla as nb
from nabla import _nabla

jax: Any = None
torch: Any = None
if importlib.util.find_spec("jax"):
    import jax
    import jax.numpy as jnp
if importlib.util.find_spec("torch"):
    import torch


class Row(NamedTuple):
    name: str
    arrays: list[np.ndarray]
    dtype: str
    ours: Callable[..., Any]
    jax: Callable[..., Any]
    torch: Callable[..., Any]
    bytes: float = 0.0
    flops: float = 0.0


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def chain() -> Row:
    x = [normal(64 << 20) for _ in range(3)]
    return Row(
        "chain 64M f32",
        x,
        "float32",
        lambda x, w, b: nb.tanh(x * w + b) * nb.exp(-x * x),
        lambda x, w, b: jnp.tanh(x * w + b) * jnp.exp(-x * x),
        lambda x, w, b: torch.tanh(x * w + b) * torch.exp(-x * x),
        bytes=4.0 * x[0].nbytes,
    )


def total() -> Row:
    x = normal(64 << 20)
    return Row(
        "sum 64M f32",
        [x],
        "float32",
        nb.sum,
        lambda x: jnp.sum(x),
        lambda x: x.sum(),
        bytes=x.nbytes,
    )


def columns() -> Row:
    x = normal(8192, 8192)
    return Row(
        "sum axis 0, 8192x8192 f32",
        [x],
        "float32",
        lambda x: nb.sum(x, axis=0),
        lambda x: jnp.sum(x, axis=0),
        lambda x: x.sum(0),
        bytes=x.nbytes,
    )


def transpose() -> Row:
    x = normal(8192, 8192)
    return Row(
        "x + x.T, 8192x8192 f32",
        [x],
        "float32",
        lambda x: x + x.T,
        lambda x: x + x.T,
        lambda x: x + x.T,
        bytes=3.0 * x.nbytes,
    )


def softmax() -> Row:
    x = normal(8192, 8192)
    return Row(
        "softmax 8192x8192 f32",
        [x],
        "float32",
        lambda x: nb.softmax(x, axis=-1),
        lambda x: jax.nn.softmax(x, axis=-1),
        lambda x: torch.softmax(x, -1),
        bytes=2.0 * x.nbytes,
    )


def layer_norm() -> Row:
    x, w, b = normal(65536, 1024), normal(1024), normal(1024)

    def ours(x: Any, w: Any, b: Any) -> Any:
        y = x.astype("float32")
        d = y - y.mean(axis=-1, keepdims=True)
        v = (d * d).mean(axis=-1, keepdims=True)
        y = d / nb.sqrt(v + 1e-5)
        return (y * w.astype("float32") + b.astype("float32")).astype(x.dtype)

    def of_jax(x: Any, w: Any, b: Any) -> Any:
        y = x.astype(jnp.float32)
        d = y - y.mean(axis=-1, keepdims=True)
        v = (d * d).mean(axis=-1, keepdims=True)
        y = d / jnp.sqrt(v + 1e-5)
        return (y * w + b).astype(x.dtype)

    return Row(
        "layer norm 65536x1024 bf16",
        [x, w, b],
        "bfloat16",
        ours,
        of_jax,
        lambda x, w, b: torch.nn.functional.layer_norm(x, (1024,), w, b),
        bytes=2.0 * x.size * 2,
    )


def matmul() -> Row:
    x, y = normal(8192, 8192), normal(8192, 8192)
    return Row(
        "matmul 8192 bf16",
        [x, y],
        "bfloat16",
        lambda x, y: x @ y,
        lambda x, y: x @ y,
        lambda x, y: x @ y,
        flops=2.0 * 8192**3,
    )


def linear_gelu() -> Row:
    x, w, b = normal(16384, 768), normal(768, 3072), normal(3072)

    def gelu(x: Any, tanh: Any) -> Any:
        return 0.5 * x * (1 + tanh(0.79788456 * (x + 0.044715 * x * x * x)))

    return Row(
        "linear + gelu 16384x768x3072 bf16",
        [x, w, b],
        "bfloat16",
        lambda x, w, b: gelu(x @ w + b, nb.tanh),
        lambda x, w, b: gelu(x @ w + b, jnp.tanh),
        lambda x, w, b: torch.nn.functional.gelu(x @ w + b, approximate="tanh"),
        flops=2.0 * 16384 * 768 * 3072,
    )


def cross_entropy() -> Row:
    x = normal(16384, 50304)
    t = np.random.default_rng(1).integers(0, 50304, 16384)

    def ours(x: Any, t: Any) -> Any:
        y = x.astype("float32")
        m = y.max(axis=-1, keepdims=True)
        z = nb.log(nb.exp(y - m).sum(axis=-1)) + m[:, 0]
        return (z - nb.take_along_axis(y, t[:, None], axis=-1)[:, 0]).mean()

    def of_jax(x: Any, t: Any) -> Any:
        y = x.astype(jnp.float32)
        z = jax.nn.logsumexp(y, axis=-1)
        return (z - jnp.take_along_axis(y, t[:, None], axis=-1)[:, 0]).mean()

    return Row(
        "cross-entropy 16384x50304 bf16",
        [x, t],
        "bfloat16",
        ours,
        of_jax,
        lambda x, t: torch.nn.functional.cross_entropy(x.float(), t),
        bytes=2.0 * x.size,
    )


def small() -> Row:
    x = normal(64, 64)
    return Row(
        "one small op",
        [x],
        "float32",
        lambda x: x * 2.0,
        lambda x: x * 2.0,
        lambda x: x * 2.0,
    )


ROWS = [
    chain,
    total,
    columns,
    transpose,
    softmax,
    layer_norm,
    matmul,
    linear_gelu,
    cross_entropy,
    small,
]


def least(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Seconds of a call, given back to back for about a tenth of a second."""
    call(), wait()
    begin = time.perf_counter()
    call(), wait()
    n = max(3, min(1000, int(0.1 / (time.perf_counter() - begin + 1e-9))))
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(n):
            call()
        wait()
        times.append((time.perf_counter() - begin) / n)
    return min(times)


def agree(name: str, who: str, a: np.ndarray, b: np.ndarray) -> None:
    worst = float(np.max(np.abs(a - b) / (1 + np.abs(b))))
    if not worst < 0.05:
        print(f"{name}: ours and {who} differ by {worst:.2g}")


def rate(row: Row, seconds: float) -> str:
    if row.bytes:
        return f"{row.bytes / seconds / 1e12:6.2f} TB/s   "
    if row.flops:
        return f"{row.flops / seconds / 1e12:6.0f} TFLOP/s"
    return " " * 14


def given(row: Row, make: Callable[[np.ndarray], Any], cast: Any) -> list[Any]:
    """The arrays of a row, real ones in its dtype."""
    return [
        cast(make(a)) if a.dtype.kind == "f" else make(a) for a in row.arrays
    ]


def of_ours(row: Row) -> tuple[np.ndarray, float, float]:
    """What it gives, seconds, and those of the first call."""
    x = given(
        row,
        lambda a: nb.constant(a, device="gpu"),
        lambda v: v.astype(row.dtype),
    )
    nb.realize_all(*x)
    begin = time.perf_counter()
    f = nb.compile(row.ours)
    y = np.asarray(f(*x).astype("float32"), dtype=np.float64)
    cold = time.perf_counter() - begin
    return y, least(lambda: f(*x), lambda: _nabla.device_wait(1)), cold


def of_torch(row: Row, f: Callable[..., Any]) -> tuple[np.ndarray, float]:
    dtype = getattr(torch, row.dtype)
    x = given(row, lambda a: torch.from_numpy(a).cuda(), lambda v: v.to(dtype))
    y = f(*x).float().cpu().numpy().astype(np.float64)
    return y, least(lambda: f(*x), torch.cuda.synchronize)


def of_jax(row: Row) -> tuple[np.ndarray, float]:
    x = given(row, jnp.asarray, lambda v: v.astype(row.dtype))
    f = jax.jit(row.jax)
    y = np.asarray(f(*x).astype("float32"), dtype=np.float64)
    last: list[Any] = []

    def call() -> None:
        last[:] = [f(*x)]

    return y, least(call, lambda: last[0].block_until_ready())


def run(row: Row) -> None:
    want, ours, cold = of_ours(row)
    others = {}
    if torch is not None:
        others["torch"] = of_torch(row, row.torch)
        others["torch.compile"] = of_torch(row, torch.compile(row.torch))
        torch.cuda.empty_cache()
    if jax is not None:
        others["JAX"] = of_jax(row)
    for who, (y, _) in others.items():
        agree(row.name, who, want, y)
    best = min((t for _, t in others.values()), default=math.nan)
    beside = "  ".join(f"{k} {t * 1e6:.1f}" for k, (_, t) in others.items())
    print(
        f"{row.name:34s} {ours * 1e6:9.1f} us {rate(row, ours)}"
        f" {ours / best:5.2f}  cold {cold:.2f} s  {beside}",
        flush=True,
    )


def main() -> None:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if len(nb.devices()) < 2:
        print("no card here: nothing is measured")
        return
    for make in ROWS:
        row = make()
        if word in row.name:
            run(row)


if __name__ == "__main__":
    main()
