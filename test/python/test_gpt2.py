"""The GPT-2 of the examples against the same model in JAX: loss, gradients, a
step of training; and the files of tokens that it reads."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nabla as nb

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
gpt2 = importlib.import_module("gpt2")
Tokens = importlib.import_module("common.tokens").Tokens

Tree = dict[str, Any]


def options(**other: Any) -> argparse.Namespace:
    small = dict(layers=2, heads=2, width=16, context=8, vocabulary=100)
    small |= dict(batch=2, accumulate=1, seed=3, steps=10, warmup=4)
    return argparse.Namespace(
        **small | dict(rate=1e-2, dtype="float32") | other
    )


def windows_of(o: argparse.Namespace) -> np.ndarray:
    shape = o.accumulate, o.batch, o.context + 1
    return np.random.default_rng(0).integers(0, 100, shape, dtype=np.uint16)


def perturbed(o: argparse.Namespace) -> Tree:
    """Parameters none of which is zero or one."""
    rng = np.random.default_rng(1)
    return {
        k: np.asarray(x) + rng.normal(0, 0.1, x.shape).astype(np.float32)
        for k, x in gpt2.init(o).items()
    }


def layer_norm(x: Any, p: Tree, name: str) -> Any:
    y = x.astype(jnp.float32)
    mean, var = y.mean(-1, keepdims=True), y.var(-1, keepdims=True)
    y = (y - mean) / jnp.sqrt(var + 1e-5)
    return (y * p[name + ".weight"] + p[name + ".bias"]).astype(x.dtype)


def dense(x: Any, p: Tree, name: str) -> Any:
    w, b = p[name + ".weight"], p[name + ".bias"]
    return x @ w.astype(x.dtype) + b.astype(x.dtype)


def attend(x: Any, p: Tree, name: str, heads: int) -> Any:
    b, t, d = x.shape
    three = jnp.split(dense(x, p, name + ".c_attn"), 3, -1)
    q, k, v = (y.reshape(b, t, heads, d // heads) for y in three)
    score = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32)
    score = jnp.where(np.tri(t, dtype=bool), score * (heads / d) ** 0.5, -1e9)
    weight = jax.nn.softmax(score).astype(x.dtype)
    mix = jnp.einsum("bhts,bshd->bthd", weight, v).reshape(b, t, d)
    return dense(mix, p, name + ".c_proj")


def loss_in_jax(p: Tree, windows: Any, o: argparse.Namespace) -> Any:
    tokens, x = windows[:, :-1], p["wte.weight"][windows[:, :-1]]
    x = (x + p["wpe.weight"][: tokens.shape[1]]).astype(o.dtype)
    for i in range(o.layers):
        h = layer_norm(x, p, f"h.{i}.ln_1")
        x = x + attend(h, p, f"h.{i}.attn", o.heads)
        h = dense(layer_norm(x, p, f"h.{i}.ln_2"), p, f"h.{i}.mlp.c_fc")
        x = x + dense(jax.nn.gelu(h), p, f"h.{i}.mlp.c_proj")
    score = layer_norm(x, p, "ln_f") @ p["wte.weight"].astype(x.dtype).T
    score = jax.nn.log_softmax(score.astype(jnp.float32))
    right = jnp.take_along_axis(score, windows[:, 1:, None], -1)
    return -right.mean()


def both(o: argparse.Namespace) -> tuple[Any, Any, Tree, np.ndarray]:
    """Loss and gradients, ours and JAX's; and what they are of."""
    p, windows = perturbed(o), windows_of(o)
    ours = nb.compile(lambda p, w: gpt2.slope(p, w, o))(p, windows)

    def mean(p: Tree) -> Any:
        return sum(loss_in_jax(p, w, o) for w in windows) / o.accumulate

    theirs = jax.value_and_grad(mean)(jax.tree.map(jnp.asarray, p))
    return ours, theirs, p, windows


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("dtype, near", [("float32", 1e-5), ("bfloat16", 3e-2)])
def test_loss_and_gradients_are_those_of_jax(
    dtype: str, near: float, accumulate: int
) -> None:
    (loss, g), (want, gradient), *_ = both(
        options(dtype=dtype, accumulate=accumulate)
    )
    assert abs(loss.item() - want.item()) < near * want.item()
    assert g.keys() == gradient.keys()
    for k, y in gradient.items():
        scale = float(jnp.abs(y).max())
        np.testing.assert_allclose(
            g[k], y, rtol=0, atol=near * scale, err_msg=k
        )


def test_a_step_is_adamw_on_clipped_gradients() -> None:
    o, t = options(), 2
    _, (want, g), p, windows = both(o)
    rng = np.random.default_rng(2)
    m = {k: rng.normal(0, 1e-2, x.shape).astype("f") for k, x in p.items()}
    v = {k: np.square(m[k]) + np.float32(1e-4) for k in p}
    given = [{k: nb.constant(x) for k, x in y.items()} for y in (p, m, v)]
    loss, *new = gpt2.make_step(o)(*given, windows, nb.constant(t))
    assert abs(loss.item() - want.item()) < 1e-4
    size = np.sqrt(sum(np.square(x).sum() for x in g.values()))
    assert size > 1, "nothing would be clipped"
    rate = 1e-2 * 3 / 4
    for k in p:
        grad = np.asarray(g[k]) / size
        m[k] = 0.9 * m[k] + 0.1 * grad
        v[k] = 0.95 * v[k] + 0.05 * grad**2
        move = m[k] / (1 - 0.9**3) / (np.sqrt(v[k] / (1 - 0.95**3)) + 1e-8)
        move += 0.1 * p[k] if p[k].ndim > 1 else 0
        expected = p[k] - rate * move, m[k], v[k]
        for x, y in zip(new, expected, strict=True):
            np.testing.assert_allclose(x[k], y, atol=2e-5, err_msg=k)


def test_the_rate_climbs_and_falls() -> None:
    o = options()
    rates = [gpt2.rate_at(nb.constant(float(t)), o).item() for t in range(11)]
    np.testing.assert_allclose(rates[:5], [2.5e-3, 5e-3, 7.5e-3, 1e-2, 1e-2])
    np.testing.assert_allclose(rates[7], (0.1 + 0.9 / 2) * 1e-2, rtol=1e-6)
    np.testing.assert_allclose(rates[10], 1e-3, rtol=1e-5)


@pytest.mark.parametrize("header", [False, True])
def test_windows_of_token_files(tmp_path: Path, header: bool) -> None:
    path = tmp_path / "tokens.bin"
    front = np.array([20240520, 1, 11] + 253 * [0], dtype="<i4").tobytes()
    body = np.arange(11, dtype="<u2").tobytes()
    path.write_bytes(front * header + body)
    tokens = Tokens(path)
    first = tokens.windows(0, (2, 1, 4), 11)
    assert first.tolist() == [[[0, 1, 2, 3]], [[3, 4, 5, 6]]]
    assert tokens.windows(2, (2, 4), 11).tolist() == [
        [6, 7, 8, 9],
        [0, 1, 2, 3],
    ]
    with pytest.raises(ValueError, match="not among 9"):
        tokens.windows(2, (1, 4), 9)
    with pytest.raises(ValueError, match="too short"):
        tokens.windows(0, (1, 12), 11)


def test_bytes_of_a_text_are_tokens(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("abcde")
    assert Tokens(path).windows(1, (1, 3), 128).tolist() == [[99, 100, 101]]
