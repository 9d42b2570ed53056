"""The models of bench-cpu, written once for every library.

A model takes a library m, which has NumPy's names and a few more (see
cpu_nabla.py), then arrays.  Parameters are dicts and lists of arrays; they and
the data come from NumPy with a fixed seed, so that all compute the same.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

Tree = Any


def normal(rng: Any, *shape: int, scale: float = 1.0) -> Any:
    """Random numbers around zero, f32."""
    x = rng.standard_normal(shape, dtype="float32")
    return x if scale == 1.0 else x * x.dtype.type(scale)


def chain(m: Any, x: Any, w: Any, b: Any) -> Any:
    return m.tanh(x * w + b) * m.exp(-x * x)


def layer_norm(m: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - m.mean(x, axis=-1, keepdims=True)
    square = m.mean(centred * centred, axis=-1, keepdims=True)
    return centred / m.sqrt(square + 1e-5) * scale + shift


def gelu(m: Any, x: Any) -> Any:
    """The tanh formula, as GPT-2 has it."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + m.tanh(inner))


def linear_gelu(m: Any, x: Any, w: Any, b: Any) -> Any:
    return gelu(m, x @ w + b)


def attention(m: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Causal attention of (..., time, width), by plain ops."""
    scores = q @ m.swapaxes(k, -1, -2) * (1.0 / math.sqrt(q.shape[-1]))
    return m.softmax(m.where(mask, scores, -1e9), axis=-1) @ v


def with_grad(m: Any, f: Callable[..., Any], n: int) -> Callable[..., Any]:
    """The gradients by the first n arguments of sum(f * weight), where the
    weight, an array of the shape of the result, is the last argument."""

    def loss(*x: Any) -> Any:
        return m.sum(f(m, *x[:-1]) * x[-1])

    return m.grad(loss, tuple(range(n)))


def cross_entropy(m: Any, logits: Any, labels: Any) -> Any:
    p = m.log_softmax(logits, axis=-1)
    return -m.mean(m.take_along_axis(p, labels[..., None], axis=-1))


def mlp_init(rng: Any, widths: tuple[int, ...]) -> Tree:
    return [
        {"w": normal(rng, a, b, scale=a**-0.5), "b": normal(rng, b, scale=0.1)}
        for a, b in zip(widths, widths[1:], strict=False)
    ]


def mlp(m: Any, params: Tree, x: Any) -> Any:
    for layer in params[:-1]:
        x = m.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def mlp_loss(m: Any, params: Tree, x: Any, labels: Any) -> Any:
    return cross_entropy(m, mlp(m, params, x), labels)


def square_loss(m: Any, params: Tree, x: Any, y: Any) -> Any:
    return m.mean(m.square(mlp(m, params, x) - y))


def gpt_init(
    rng: Any, layers: int, width: int, tokens: int, words: int
) -> Tree:
    def small(*shape: int) -> Any:
        return normal(rng, *shape, scale=0.02)

    def dense(a: int, b: int) -> Tree:
        return {"w": small(a, b), "b": small(b)}

    def norm() -> Tree:
        return {"scale": 1 + small(width), "shift": small(width)}

    return {
        "words": small(words, width),
        "places": small(tokens, width),
        "blocks": [
            {
                "norm1": norm(),
                "qkv": dense(width, 3 * width),
                "out": dense(width, width),
                "norm2": norm(),
                "up": dense(width, 4 * width),
                "down": dense(4 * width, width),
            }
            for _ in range(layers)
        ],
        "norm": norm(),
    }


def gpt(m: Any, params: Tree, tokens: Any, mask: Any, heads: int) -> Any:
    """Logits; words and places are embedded, words also project back."""

    def dense(p: Tree, x: Any) -> Any:
        return x @ p["w"] + p["b"]

    def norm(p: Tree, x: Any) -> Any:
        return layer_norm(m, x, p["scale"], p["shift"])

    def split(x: Any) -> Any:
        x = m.reshape(x, (batch, time, heads, width // heads))
        return m.swapaxes(x, 1, 2)

    batch, time = tokens.shape
    width = params["places"].shape[1]
    x = params["words"][tokens] + params["places"][:time]
    for p in params["blocks"]:
        qkv = dense(p["qkv"], norm(p["norm1"], x))
        q = split(qkv[..., :width])
        k = split(qkv[..., width : 2 * width])
        v = split(qkv[..., 2 * width :])
        mixed = m.swapaxes(attention(m, q, k, v, mask), 1, 2)
        x = x + dense(p["out"], m.reshape(mixed, (batch, time, width)))
        x = x + dense(p["down"], gelu(m, dense(p["up"], norm(p["norm2"], x))))
    return norm(params["norm"], x) @ m.swapaxes(params["words"], 0, 1)


def gpt_loss(
    m: Any, params: Tree, tokens: Any, labels: Any, mask: Any, heads: int
) -> Any:
    return cross_entropy(m, gpt(m, params, tokens, mask, heads), labels)


def sgd_step(m: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Tree, *data: Any) -> Any:
        value, grads = m.value_and_grad(loss)(params, *data)
        return value, m.tree_map(lambda p, g: p - 0.01 * g, params, grads)

    return step


def adam_step(
    m: Any, loss: Callable[..., Any], decay: float = 0.0
) -> Callable[..., Any]:
    """A step of Adam, with decay AdamW; t counts from one."""
    rate, b1, b2, small = 1e-3, 0.9, 0.999, 1e-8

    def step(params: Tree, mu: Tree, nu: Tree, t: Any, *data: Any) -> Any:
        value, grads = m.value_and_grad(loss)(params, *data)
        mu = m.tree_map(lambda u, g: b1 * u + (1 - b1) * g, mu, grads)
        nu = m.tree_map(lambda u, g: b2 * u + (1 - b2) * g * g, nu, grads)
        fix1 = 1.0 / (1.0 - m.exp(t * math.log(b1)))
        fix2 = 1.0 / (1.0 - m.exp(t * math.log(b2)))

        def update(p: Any, u: Any, s: Any) -> Any:
            move = u * fix1 / (m.sqrt(s * fix2) + small)
            return p - rate * (move + decay * p if decay else move)

        return value, m.tree_map(update, params, mu, nu), mu, nu

    return step


def with_state(np: Any, params: Tree, data: tuple[Any, ...]) -> Any:
    """Parameters, two moments that are zero, the count of steps, data."""

    def zeros(tree: Tree) -> Tree:
        if isinstance(tree, dict):
            return {k: zeros(v) for k, v in tree.items()}
        if isinstance(tree, list):
            return [zeros(v) for v in tree]
        return np.zeros_like(tree)

    return params, zeros(params), zeros(params), np.float32(1.0), *data


class Step(NamedTuple):
    """A step of Adam: its arguments, made by NumPy with a generator, and the
    loss, a function of a library, the parameters and the data."""

    arrays: Callable[[Any, Any], tuple[Any, ...]]
    loss: Callable[..., Any]
    decay: float

    def make(self, m: Any) -> Callable[..., Any]:
        return adam_step(m, lambda *x: self.loss(m, *x), self.decay)


def mlp_step() -> Step:
    """784-512-512-10, batch 128."""

    def arrays(np: Any, rng: Any) -> tuple[Any, ...]:
        params = mlp_init(rng, (784, 512, 512, 10))
        data = normal(rng, 128, 784), rng.integers(0, 10, 128)
        return with_state(np, params, data)

    return Step(arrays, mlp_loss, 0.0)


def gpt_step(
    layers: int, width: int, heads: int, time: int, words: int, batch: int
) -> Step:
    def arrays(np: Any, rng: Any) -> tuple[Any, ...]:
        params = gpt_init(rng, layers, width, time, words)
        text = rng.integers(0, words, (batch, time + 1))
        mask = np.tril(np.ones((time, time), bool))
        data = text[:, :-1].copy(), text[:, 1:].copy(), mask
        return with_state(np, params, data)

    def loss(m: Any, params: Tree, *data: Any) -> Any:
        return gpt_loss(m, params, *data, heads)

    return Step(arrays, loss, 0.1)


STEPS = {
    "mlp": mlp_step(),
    "gpt4": gpt_step(4, 256, 8, 256, 256, 8),
    "gpt2": gpt_step(12, 768, 12, 64, 50257, 4),
}
