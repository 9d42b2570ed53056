"""Ops with kernels of their own: orders, places, totals, matrices."""

from typing import Any

import numpy as np
import pytest
from both import GPU, RNG, compare, values

import nabla as nb


@pytest.mark.parametrize("n", [1, 7, 2049])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_orders(n: int, dtype: str) -> None:
    x = values(3, n) * 5
    x[:, ::7] = np.nan if "f" in dtype else 3
    x[:, 1::5] = -0.0
    x[:, 2::11] = np.inf if "f" in dtype else -4
    x = x.astype(dtype)
    compare(lambda x: nb.argsort(x, axis=1), x)
    compare(lambda x: nb.argsort(x, axis=1, descending=True), x)
    compare(lambda x: nb.argsort(x.T, axis=0), x)
    compare(lambda x: (nb.argmax(x, axis=1), nb.argmin(x, axis=0)), x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_placing(dtype: str) -> None:
    x = (values(50, 24) * 5).astype(dtype)
    u = (values(6, 70, 24) * 5).astype(dtype)
    i = RNG.integers(-60, 60, (6, 70))
    for how in ("add", "set", "min", "max"):
        compare(lambda x, u, i, how=how: getattr(x.at[i], how)(u), x, u, i)
    compare(lambda x, u, i: x.at[i].mul(u // 4), x, u, i)


def test_gradients_of_picking() -> None:
    x, i = values(50, 24), RNG.integers(0, 50, 3000)
    compare(nb.grad(lambda x, i: (nb.gather(x, i) ** 2).sum()), x, i)


@pytest.mark.parametrize("shape", [(5000,), (3, 40), (9, 2100, 2)])
def test_running_totals(shape: tuple[int, ...]) -> None:
    axis = min(1, len(shape) - 1)
    x = RNG.uniform(0.9, 1.1, shape).astype("float32")
    for how in ({}, {"exclusive": True}, {"reverse": True}):
        compare(
            lambda x, how=how: (
                nb.cumsum(x, axis=axis, **how),
                nb.cumsum((x * 9).astype("int8"), axis=axis, **how),
            ),
            x,
            tolerance=1e-4,
        )
    compare(lambda x: nb.cumprod(x, axis=axis), x, tolerance=1e-3)
    compare(
        nb.grad(lambda x: nb.cumprod(x, axis=axis).mean()),
        x,
        tolerance=1e-2,
    )


def near(found: Any, want: Any, a: np.ndarray) -> None:
    """To rounding errors of a factorisation of a."""
    eps = np.finfo(a.dtype).eps * max(a.shape[-2:])
    found = np.asarray(found, np.float64)
    scale = np.abs(np.asarray(want, np.float64)).max(initial=0.0) + 1.0
    assert np.abs(found - want).max(initial=0.0) < 20 * eps * scale


def wide(*x: nb.Tensor) -> list[np.ndarray]:
    assert all(t.device == GPU for t in x)
    return [t.numpy().astype(np.float64) for t in x]


SQUARES = [(1, 1), (3, 5, 5), (2, 33, 33), (70, 70)]
DTYPES = [np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARES)
def test_equations(shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(3)
    n = shape[-1]
    a = rng.normal(size=shape).astype(dtype) + n * np.eye(n, dtype=dtype)
    b = rng.normal(size=(n, 40)).astype(dtype)
    x, y = (nb.asarray(t, device=GPU) for t in (a, b))
    near(a @ wide(nb.linalg.solve(x, y))[0], b + 0 * a[..., :1], a)
    near(a @ wide(nb.linalg.inv(x))[0], np.eye(n) + 0 * a, a)
    sign, size = wide(*nb.linalg.slogdet(x.mT))
    want = np.linalg.slogdet(a.astype(np.float64))
    near(sign, want[0], a)
    near(size, want[1], a)
    h = a @ a.swapaxes(-1, -2)
    for upper in (False, True):
        t = nb.asarray(h, device=GPU)
        (lower,) = wide(nb.linalg.cholesky(t, upper=upper))
        if upper:
            lower = lower.swapaxes(-1, -2)
        assert (np.triu(lower, 1) == 0).all()
        near(lower @ lower.swapaxes(-1, -2), h, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SQUARES, (2, 9, 4), (4, 37), (80, 3)])
def test_factors(shape: tuple[int, ...], dtype: Any) -> None:
    a = np.random.default_rng(4).normal(size=shape).astype(dtype)
    m, n = shape[-2:]
    x = nb.asarray(a.swapaxes(-1, -2).copy(), device=GPU).mT
    for mode in ("reduced", "complete"):
        q, r = wide(*nb.linalg.qr(x, mode=mode))
        near(q @ r, a, a)
        near(q.swapaxes(-1, -2) @ q, np.eye(q.shape[-1]), a)
        assert (np.tril(r, -1) == 0).all()
    for full in (False, True):
        u, s, v = wide(*nb.linalg.svd(x, full_matrices=full))
        k = min(m, n)
        near((u[..., :k] * s[..., None, :]) @ v[..., :k, :], a, a)
        near(u.swapaxes(-1, -2) @ u, np.eye(u.shape[-1]), a)
        near(v @ v.swapaxes(-1, -2), np.eye(v.shape[-2]), a)
        want = np.linalg.svd(a.astype(np.float64), compute_uv=False)
        near(s, want, a)
    want = np.linalg.pinv(a.astype(np.float64))
    near(wide(nb.linalg.pinv(x))[0] @ a @ want, want, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARES)
def test_eigenvalues(shape: tuple[int, ...], dtype: Any) -> None:
    a = np.random.default_rng(5).normal(size=shape).astype(dtype)
    a = a + a.swapaxes(-1, -2)
    w, v = wide(*nb.linalg.eigh(nb.asarray(a, device=GPU)))
    near((v * w[..., None, :]) @ v.swapaxes(-1, -2), a, a)
    near(v.swapaxes(-1, -2) @ v, np.eye(shape[-1]), a)
    near(w, np.linalg.eigvalsh(a.astype(np.float64)), a)


def test_matrices_without_factors() -> None:
    nan = float("nan")
    for bad in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, nan]]):
        x = nb.asarray(bad, device=GPU)
        assert nb.isnan(nb.linalg.cholesky(x)).all().item()
    for part in (*nb.linalg.eigh(x), *nb.linalg.svd(x)):
        assert nb.isnan(part).all().item()
    # The others of the batch are as they would be alone.
    both = nb.stack([x, nb.eye(2, device=GPU)])
    assert nb.linalg.eigvalsh(both).tolist()[1] == [1.0, 1.0]
    zero = nb.zeros((2, 3, 70), device=GPU)
    u, s, v = wide(*nb.linalg.svd(zero, full_matrices=False))
    assert (s == 0).all() and (v @ v.swapaxes(-1, -2) == np.eye(3)).all()
    assert (wide(nb.linalg.pinv(zero))[0] == 0).all()
    assert wide(nb.linalg.det(nb.ones((3, 3), device=GPU)))[0] == 0


def test_matrices_without_elements() -> None:
    x = nb.zeros((2, 0, 0), device=GPU)
    assert nb.linalg.det(x).tolist() == [1.0, 1.0]
    for f in (nb.linalg.cholesky, nb.linalg.inv, nb.linalg.eigvalsh):
        assert f(x).numpy().size == 0
    q, r = nb.linalg.qr(nb.zeros((3, 0), device=GPU), mode="complete")
    assert (q.numpy() == np.eye(3)).all() and r.shape == (3, 0)
    u, s, v = nb.linalg.svd(nb.zeros((0, 2), device=GPU))
    assert u.shape == (0, 0) and s.shape == (0,)
    assert (np.abs(v.numpy()) == np.eye(2)).all()


def test_factors_are_the_same_again() -> None:
    a = np.random.default_rng(6).normal(size=(2, 21, 21))
    x = nb.asarray(a, device=GPU)
    linalg = nb.linalg
    for f in (linalg.qr, linalg.eigh, linalg.svd, linalg.slogdet):
        first, again = f(x), f(x + 0.0)
        for p, q in zip(first, again, strict=True):
            assert p.numpy().tobytes() == q.numpy().tobytes()


def test_arrays_of_numpy_pick() -> None:
    a = values(4, 5)
    some = np.array([True, False, True, False])
    compare(lambda x: (x[some], x[np.array(False)], x[:, [True] * 5]), a)
    compare(lambda x: x.at[some].set(1.0), a)
    compare(lambda x: x.at[some].add(np.ones(5, "float32")), a)
    compare(lambda x: (nb.unique_values(x > 0), *nb.nonzero(x > 0)), a)


def test_attention_is_that_of_jax() -> None:
    import jax
    import jax.numpy as jnp

    b, t, h, d = 2, 37, 2, 16
    x, w = values(b, t, 3 * h * d), values(b, t, h * d)
    x = np.asarray(jnp.asarray(np.sin(7 * x), jnp.bfloat16), np.float32)

    def ours(x: nb.Tensor, w: nb.Tensor) -> nb.Tensor:
        x = x.cast(nb.bfloat16).reshape(b, t, 3, h, d)
        q, k, v = nb.unbind(x.permute(2, 0, 3, 1, 4))
        past = nb.tril(nb.ones((t, t), dtype=nb.bool))
        score = nb.where(past, q @ k.mT / d**0.5, -1e9)
        y = (nb.softmax(score) @ v).swap_axes(1, 2).reshape(b, t, h * d)
        return nb.sum(y.cast(nb.float32) * w)

    def theirs(x: Any, w: Any) -> Any:
        q, k, v = jnp.moveaxis(x.reshape(b, t, 3, h, d), 2, 0)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return jnp.sum(y.reshape(b, t, h * d) * w)

    with nb.default_device("gpu"):
        f = nb.compile(nb.grad(ours, argnums=(0, 1)))
        got = f(nb.constant(x), nb.constant(w))
        lowered = f.lower(nb.constant(x), nb.constant(w))
        assert "attention_back" in lowered.ir("attention")
    right = jax.grad(theirs, argnums=(0, 1))(x, w)
    for y, z in zip(got, right, strict=True):
        assert abs(y.numpy() - z).max() < 0.03 * abs(z).max()
