"""Recording a transformer and its gradient, beside JAX, in one run.

Best of several rounds, because machines are noisy; ratios are what counts.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nabla as nb

LAYERS, BATCH, TOKENS, WIDTH, HEADS = 12, 2, 16, 64, 4


def best(f: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of several calls."""
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        f()
        least = min(least, time.perf_counter() - start)
    return least


def weights() -> list[dict[str, np.ndarray]]:
    """One dict a layer."""
    rng = np.random.default_rng(0)

    def matrix(m: int, n: int) -> np.ndarray:
        return (rng.standard_normal((m, n)) / m**0.5).astype(np.float32)

    return [
        {
            "q": matrix(WIDTH, WIDTH),
            "k": matrix(WIDTH, WIDTH),
            "v": matrix(WIDTH, WIDTH),
            "o": matrix(WIDTH, WIDTH),
            "up": matrix(WIDTH, 4 * WIDTH),
            "down": matrix(4 * WIDTH, WIDTH),
            "scale": np.ones(WIDTH, np.float32),
        }
        for _ in range(LAYERS)
    ]


def loss(params: list[dict[str, Any]], x: Any, np_like: Any) -> Any:
    """The mean square of a stack of blocks, in NumPy's names."""

    def norm(h: Any, scale: Any) -> Any:
        centred = h - h.mean(axis=-1, keepdims=True)
        square = (centred * centred).mean(axis=-1, keepdims=True)
        return centred / np_like.sqrt(square + 1e-5) * scale

    def heads(h: Any) -> Any:
        h = h.reshape(BATCH, TOKENS, HEADS, WIDTH // HEADS)
        return np_like.swapaxes(h, 1, 2)

    for p in params:
        h = norm(x, p["scale"])
        q, k, v = heads(h @ p["q"]), heads(h @ p["k"]), heads(h @ p["v"])
        scores = q @ np_like.swapaxes(k, -1, -2) / (WIDTH // HEADS) ** 0.5
        e = np_like.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = e / e.sum(axis=-1, keepdims=True) @ v
        mixed = np_like.swapaxes(mixed, 1, 2).reshape(BATCH, TOKENS, WIDTH)
        x = x + mixed @ p["o"]
        x = x + np_like.tanh(norm(x, p["scale"]) @ p["up"]) @ p["down"]
    return (x * x).mean()


def main() -> None:
    params = weights()
    x = np.random.default_rng(1).standard_normal((BATCH, TOKENS, WIDTH))
    x = x.astype(np.float32)
    ours = nb.tree_map(nb.constant, params)
    ours_x = nb.constant(x)

    def record() -> object:
        return nb.value_and_grad(lambda p: loss(p, ours_x, nb))(ours)

    def theirs() -> Any:  # a fresh function: JAX remembers traced ones
        return jax.value_and_grad(lambda p: loss(p, x, jnp))

    value, grads = record()  # type: ignore[misc]
    want, want_grads = theirs()(params)
    np.testing.assert_allclose(value.numpy(), want, rtol=1e-4)
    pairs = zip(
        nb.tree_leaves(grads), jax.tree.leaves(want_grads), strict=True
    )
    for a, b in pairs:
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-3, atol=1e-5)
    us = 1e3 * best(record, 20)
    them = 1e3 * best(lambda: jax.make_jaxpr(theirs())(params), 5)
    print(
        f"record value and grad, {LAYERS} blocks  {us:8.2f} ms  "
        f"make_jaxpr {them:8.2f} ms  ratio {us / them:5.3f}  "
        "(at most 0.1, and 30 ms)"
    )


if __name__ == "__main__":
    main()
