"""Rows of bench/gpu.py in the order in which they run: steps and calls that the
host has to keep up with, loops, what memory bounds, products."""

from collections.abc import Callable
from typing import Any

from gpu_row import Row, jax, jnp, labels, normal, of, torch

import nabla as nb

ROWS: dict[str, Callable[[], Row]] = {}


def row(name: str) -> Callable[[Callable[[], Row]], Callable[[], Row]]:
    def add(make: Callable[[], Row]) -> Callable[[], Row]:
        ROWS[name] = make
        return make

    return add


@row("MLP 64x784x256x10 SGD step")
def mlp() -> Row:
    x, t = normal(64, 784), labels(64, 10)
    w = [normal(784, 256) / 28, normal(256), normal(256, 10) / 16, normal(10)]

    def step(grad: Callable[..., Any], *x: Any) -> tuple[Any, ...]:
        return tuple(p - 0.1 * g for p, g in zip(x, grad(*x), strict=False))

    def ours(w: Any, b: Any, v: Any, c: Any, x: Any, t: Any) -> Any:
        y = nb.relu(x @ w + b) @ v + c
        right = nb.take_along_axis(y, t[:, None], axis=-1)[:, 0]
        return (nb.logsumexp(y, axis=-1) - right).mean()

    def of_jax(w: Any, b: Any, v: Any, c: Any, x: Any, t: Any) -> Any:
        y = jax.nn.relu(x @ w + b) @ v + c
        right = jnp.take_along_axis(y, t[:, None], axis=-1)[:, 0]
        return (jax.nn.logsumexp(y, axis=-1) - right).mean()

    def of_torch(w: Any, b: Any, v: Any, c: Any, x: Any, t: Any) -> Any:
        y = torch.relu(x @ w + b) @ v + c
        return torch.nn.functional.cross_entropy(y, t)

    first = 0, 1, 2, 3
    return Row(
        [*w, x, t],
        "float32",
        lambda *x: step(nb.grad(ours, first), *x),
        lambda *x: step(jax.grad(of_jax, first), *x),
        lambda *x: step(torch.func.grad(of_torch, first), *x),
        carries=4,
    )


@row("one small op")
def small() -> Row:
    return Row(
        [normal(64, 64)],
        "float32",
        lambda x: x * 2.0,
        lambda x: x * 2.0,
        lambda x: x * 2.0,
    )


@row("scan of 100000 steps, 64 wide f32")
def scan() -> Row:
    x, w, h = normal(of(100_000, 50), 64), normal(64, 64) / 16, normal(64)

    def ours(x: Any, w: Any, h: Any) -> Any:
        return nb.scan(lambda h, x: (nb.tanh(w @ h + x), ()), h, x)[0]

    def of_jax(x: Any, w: Any, h: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(w @ h + x), ()), h, x)[0]

    return Row([x, w, h], "float32", ours, of_jax, None)


def jax_step(h: Any, w: Any) -> Any:
    """In float32 as ours is, not with fewer bits."""
    return jnp.tanh(jnp.matmul(h, w, precision=jax.lax.Precision.HIGHEST))


@row("scan of 1000 steps, a product of 512x512 f32")
def scan_of_products() -> Row:
    n, m = of(1000, 50), of(512, 16)
    w, h = normal(m, m) / m**0.5, normal(m, m)

    def ours(w: Any, h: Any) -> Any:
        return nb.scan(lambda h, _: (nb.tanh(h @ w), ()), h, None, length=n)[0]

    def of_jax(w: Any, h: Any) -> Any:
        return jax.lax.scan(
            lambda h, _: (jax_step(h, w), ()), h, None, length=n
        )[0]

    return Row([w, h], "float32", ours, of_jax, None, flops=2.0 * n * m**3)


@row("while of 1000 turns, a product of 512x512 f32")
def while_of_products() -> Row:
    n, m = of(1000, 50), of(512, 16)
    w, h = normal(m, m) / m**0.5, normal(m, m)

    def ours(w: Any, h: Any) -> Any:
        first = nb.constant(0), h
        return nb.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, nb.tanh(s[1] @ w)), first
        )[1]

    def of_jax(w: Any, h: Any) -> Any:
        return jax.lax.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, jax_step(s[1], w)), (0, h)
        )[1]

    return Row([w, h], "float32", ours, of_jax, None, flops=2.0 * n * m**3)


@row("chain 64M f32")
def chain() -> Row:
    x = [normal(of(64 << 20, 1 << 12)) for _ in range(3)]
    return Row(
        x,
        "float32",
        lambda x, w, b: nb.tanh(x * w + b) * nb.exp(-x * x),
        lambda x, w, b: jnp.tanh(x * w + b) * jnp.exp(-x * x),
        lambda x, w, b: torch.tanh(x * w + b) * torch.exp(-x * x),
        bytes=4.0 * x[0].nbytes,
    )


@row("sum 64M f32")
def total() -> Row:
    x = normal(of(64 << 20, 1 << 12))
    return Row(
        [x],
        "float32",
        nb.sum,
        lambda x: jnp.sum(x),
        lambda x: x.sum(),
        bytes=x.nbytes,
    )


@row("sum axis 0, 8192x8192 f32")
def columns() -> Row:
    x = normal(of(8192, 64), of(8192, 64))
    return Row(
        [x],
        "float32",
        lambda x: nb.sum(x, axis=0),
        lambda x: jnp.sum(x, axis=0),
        lambda x: x.sum(0),
        bytes=x.nbytes,
    )


@row("x + x.T, 8192x8192 f32")
def transpose() -> Row:
    x = normal(of(8192, 64), of(8192, 64))
    return Row(
        [x],
        "float32",
        lambda x: x + x.T,
        lambda x: x + x.T,
        lambda x: x + x.T,
        bytes=3.0 * x.nbytes,
    )


@row("softmax 8192x8192 f32")
def softmax() -> Row:
    x = normal(of(8192, 64), of(8192, 64))
    return Row(
        [x],
        "float32",
        lambda x: nb.softmax(x, axis=-1),
        lambda x: jax.nn.softmax(x, axis=-1),
        lambda x: torch.softmax(x, -1),
        bytes=2.0 * x.nbytes,
    )


@row("layer norm 65536x1024 bf16")
def layer_norm() -> Row:
    wide = of(1024, 64)
    x, w, b = normal(of(65536, 16), wide), normal(wide), normal(wide)

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
        [x, w, b],
        "bfloat16",
        ours,
        of_jax,
        lambda x, w, b: torch.nn.functional.layer_norm(x, (wide,), w, b),
        bytes=2.0 * x.size * 2,
    )


@row("matmul 8192 bf16")
def matmul() -> Row:
    n = of(8192, 32)
    x, y = normal(n, n), normal(n, n)
    return Row(
        [x, y],
        "bfloat16",
        lambda x, y: x @ y,
        lambda x, y: x @ y,
        lambda x, y: x @ y,
        flops=2.0 * n**3,
    )


@row("linear + gelu 16384x768x3072 bf16")
def linear_gelu() -> Row:
    m, k, n = of(16384, 16), of(768, 32), of(3072, 64)
    x, w, b = normal(m, k), normal(k, n), normal(n)

    def gelu(x: Any, tanh: Any) -> Any:
        return 0.5 * x * (1 + tanh(0.79788456 * (x + 0.044715 * x * x * x)))

    return Row(
        [x, w, b],
        "bfloat16",
        lambda x, w, b: gelu(x @ w + b, nb.tanh),
        lambda x, w, b: gelu(x @ w + b, jnp.tanh),
        lambda x, w, b: torch.nn.functional.gelu(x @ w + b, approximate="tanh"),
        flops=2.0 * m * k * n,
    )


@row("causal attention 16x12x1024x64 bf16")
def attention() -> Row:
    b, h, t, d = of(16, 1), of(12, 2), of(1024, 32), of(64, 16)
    x = [normal(b, h, t, d) for _ in range(3)]

    def ours(q: Any, k: Any, v: Any) -> Any:
        score = (q @ k.mT).astype("float32") / d**0.5
        past = nb.tril(nb.ones((t, t), dtype="bool", device=q.device))
        weight = nb.softmax(nb.where(past, score, -1e9))
        return weight.astype(q.dtype) @ v

    def of_jax(q: Any, k: Any, v: Any) -> Any:
        by = "cudnn" if jax.default_backend() == "gpu" else None
        return jax.nn.dot_product_attention(
            q, k, v, is_causal=True, implementation=by
        )

    def of_torch(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True
        )

    return Row(
        x,
        "bfloat16",
        ours,
        of_jax,
        of_torch,
        flops=2.0 * b * h * t * t * d,  # of the scores half count
        swaps=True,
    )


@row("cross-entropy 16384x50304 bf16")
def cross_entropy() -> Row:
    n, classes = of(16384, 8), of(50304, 320)
    x, t = normal(n, classes), labels(n, classes)

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
        [x, t],
        "bfloat16",
        ours,
        of_jax,
        lambda x, t: torch.nn.functional.cross_entropy(x.float(), t),
        bytes=2.0 * x.size,
    )
