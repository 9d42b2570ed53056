"""Transforms, compiled functions, loops, and what programs are given."""

import ctypes
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both import GPU, compare, values

import nabla as nb

# Transforms.


def loss(w: nb.Tensor, x: nb.Tensor) -> nb.Tensor:
    return nb.sum(nb.tanh(x @ w) ** 2) / 3 + nb.logsumexp(w)


W, X = values(4, 3), values(5, 4)


def test_derivatives() -> None:
    compare(nb.grad(loss, argnums=(0, 1)), W, X)
    compare(nb.value_and_grad(loss), W, X)
    compare(lambda w, x: nb.jvp(lambda v: loss(v, x), (w,), (w * 2,)), W, X)
    compare(lambda w: nb.jacrev(lambda v: nb.sin(v @ v.T))(w), W)
    compare(lambda w: nb.jacfwd(lambda v: nb.sin(v @ v.T))(w), W)
    compare(lambda v: nb.hessian(lambda u: nb.sum(u**3))(v), values(4))
    compare(nb.grad(nb.checkpoint(loss)), W, X)


def test_ones_that_flow_back_are_no_work() -> None:
    def f(x: nb.Tensor, g: nb.Tensor) -> nb.Tensor:
        return nb.sum((x * g).cast(nb.float32))

    x, g = (nb.constant(W, device="gpu").cast(nb.bfloat16) for _ in "xg")
    assert not nb.explain(nb.grad(f))(x, g).kernels
    compare(nb.compile(nb.grad(f)), W, W)


def test_gradients_go_back_to_where_their_inputs_are() -> None:
    def f(w: nb.Tensor) -> nb.Tensor:
        return nb.sum(w.cuda() * nb.constant(W, device="gpu")).cpu()

    w = nb.constant(W)
    g = nb.grad(f)(w)
    assert g.device == nb.CPU()
    np.testing.assert_allclose(g.numpy(), W, rtol=1e-6)


def test_derivatives_that_are_numbers() -> None:
    x = np.float32(2)
    compare(nb.grad(lambda v: v), x)
    compare(nb.grad(lambda v: nb.sum(v * 0 + 1)), x)
    compare(lambda v: nb.vjp(lambda u: u > 1, v)[1](v > 1), x)
    compare(lambda v: nb.jvp(lambda u: nb.sign(u), (v,), (v,)), x)


def test_backward() -> None:
    w = nb.constant(W, device="gpu", requires_grad=True)
    loss(w, nb.constant(X, device="gpu")).backward()
    assert w.grad is not None and w.grad.device == GPU
    want = nb.grad(loss)(nb.constant(W), nb.constant(X))
    np.testing.assert_allclose(w.grad.numpy(), want.numpy(), rtol=1e-4)
    w -= 0.1 * w.grad
    assert w.device == GPU and w.is_leaf


def test_truths_are_transposed() -> None:
    x = np.random.default_rng(3).integers(0, 2, (65, 130)).astype(bool)
    y = nb.logical_not(nb.constant(x, device="gpu").T)
    np.testing.assert_array_equal(y.numpy(), ~x.T)


def test_long_integers_are_rounded_once() -> None:
    x = [2**62 + 2**54 + 1, -(2**62) - 2**54 - 1, 2**62 + 2**54]
    for dtype in ("int64", "uint64"):
        some = np.array(x).astype(dtype)
        y = nb.constant(some, device="gpu").astype(nb.bfloat16)
        want = nb.constant(some, device="cpu").astype(nb.bfloat16)
        assert y.astype(nb.float64).numpy()[0] == 2.0**62 + 2.0**55
        np.testing.assert_array_equal(
            y.astype(nb.float64).numpy(), want.astype(nb.float64).numpy()
        )


def test_sums_are_as_wide_as_their_dtype() -> None:
    x = np.full((3, 70), 2**31 - 1, np.int32)
    y = nb.sum(nb.constant(x, device="gpu"), 1)
    np.testing.assert_array_equal(y.numpy(), [70 * (2**31 - 1)] * 3)


def test_vmap() -> None:
    compare(nb.vmap(lambda x, w: nb.softmax(x @ w), in_axes=(0, None)), X, W)
    compare(nb.vmap(nb.grad(loss), in_axes=(None, 0)), W, values(3, 5, 4))


def test_compile() -> None:
    f = nb.compile(lambda w, x: nb.relu(x @ w) + nb.ones(3, device=x.device))
    compare(f, W, X)
    compare(f, W, X)
    assert f.stats.misses == 2 and f.stats.hits == 2
    compare(nb.compile(nb.value_and_grad(loss)), W, X)


@pytest.mark.filterwarnings("error")
def test_steps_of_an_optimiser() -> None:
    def update(p: nb.Tensor, s: dict[str, Any]) -> nb.Tensor:
        return p - 0.1 * s["m"] / (s["step"] + 1)

    f = nb.compile(update)
    p = nb.ones(3, device="gpu")
    for k in range(4):
        got = f(p, {"m": p, "v": p, "step": k})
        want = update(nb.ones(3), {"m": nb.ones(3), "step": k})
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    assert (f.stats.misses, f.stats.hits) == (1, 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_of_a_transformer(dtype: str) -> None:
    """Products with a bias, a gelu, its slope, batches and a norm."""

    def loss(w: list[nb.Tensor], x: nb.Tensor) -> nb.Tensor:
        a, b, c, d = (v.cast(dtype) for v in w)
        x = x.cast(dtype)
        q = (x @ a + b).reshape(2, 4, 2, 8).permute(0, 2, 1, 3)
        x = x + (q @ q.mT @ q / 64).permute(0, 2, 1, 3).reshape(2, 4, 16)
        h = nb.gelu(x @ c + d, "tanh") @ c.mT
        h = (x + h).cast("float32")
        return nb.mean(nb.square(h - nb.mean(h, -1, keepdims=True)))

    def step(w: list[nb.Tensor], x: nb.Tensor) -> Any:
        return nb.value_and_grad(lambda w: loss(w, x))(w)

    shapes = (16, 16), (16,), (16, 24), (24,)
    w = [0.3 * values(*s) for s in shapes]
    compare(
        lambda x, *w: nb.compile(step)(list(w), x),
        values(2, 4, 16),
        *w,
        tolerance=1e-4 if dtype == "float32" else 0.1,
    )


def test_loops_and_branches() -> None:
    def running(x: nb.Tensor) -> Any:
        return nb.scan(lambda c, a: (c * 0.5 + a, nb.sin(c)), x[0], x)

    compare(running, X)
    compare(nb.grad(lambda x: nb.sum(running(x)[1])), X)
    compare(nb.compile(running), X)
    compare(
        lambda x: nb.cond(nb.sum(x) > 0, lambda v: v + 1, lambda v: v * 2, x),
        X,
    )
    compare(
        lambda x: nb.while_loop(
            lambda v: nb.sum(v * v) < 100, lambda v: v * 1.5, x
        ),
        X,
    )
    compare(lambda x: nb.fori_loop(0, 4, lambda i, v: v * 0.5 + 1, x), X)


def test_arrays_within_loops() -> None:
    a = np.arange(4, dtype="float32")

    def step(c: nb.Tensor, x: nb.Tensor) -> Any:
        y = x * a + c[[3, 2, 1, 0]]
        return y.at[[0, 1]].set([1.0, 2.0]), nb.ones(2) + y[:2]

    def run(x: nb.Tensor) -> Any:
        with nb.default_device(x.device):
            return nb.scan(step, x[0], x)

    compare(run, X)
    compare(nb.compile(run), X)
    compare(nb.vmap(run), values(2, 5, 4))


# Numbers: kernels are given those that nobody else wants there.


def copies(f: Callable[[], nb.Tensor]) -> int | None:
    """To the simulated card, by f; None where the card is a real one."""
    library = os.environ.get("NABLA_CUDA_DRIVER")
    if not library:
        f().realize()
        return None
    count = ctypes.CDLL(library).nabla_sim_count
    count.restype = ctypes.c_int64
    before: int = count(b"cuMemcpyHtoDAsync_v2")
    f().realize()
    after: int = count(b"cuMemcpyHtoDAsync_v2")
    return after - before


@pytest.mark.parametrize(
    "make",
    [
        lambda: nb.constant(3.0, device=GPU),
        lambda: nb.Tensor(3.0, device=GPU),
        lambda: nb.full((), 3.0, device=GPU),
        lambda: nb.gpu(nb.constant(3.0)),
        lambda: nb.constant(np.float32(3), device=GPU),
        lambda: np.float32(3),
        lambda: np.array(3, "float32"),
        lambda: nb.constant(1.0) * 2 + 1,
        lambda: nb.full((4,), 3.0, device=GPU),
        lambda: 3.0,
    ],
)
def test_a_number_is_not_copied(make: Any) -> None:
    x = nb.constant(X, device=GPU)
    many = [nb.constant(k, device=GPU) for k in (2.0, 4.0, 7.0)]
    for f, want in (
        (lambda: x * make(), X * 3),
        (lambda: make() - x, 3 - X),
        (lambda: (x + make()) * make() - make(), (X + 3) * 3 - 3),
        (lambda: nb.sum(x * make(), axis=0), X.sum(0) * 3),
    ):
        for _ in range(3):
            assert copies(f) in (0, None)
            np.testing.assert_allclose(f().numpy(), want, rtol=1e-5)
            assert f().device == GPU
    got = [(x * k).numpy() for k in many]  # the same program
    for y, k in zip(got, (2, 4, 7), strict=True):
        np.testing.assert_allclose(y, X * np.float32(k))


def test_a_number_on_a_card_has_memory_once_asked_for() -> None:
    x = nb.constant(X, device=GPU)
    s = nb.constant(3.0, device=GPU)
    for _ in range(3):
        y = x * s  # s is held: others will want it, too
        np.testing.assert_allclose(y.numpy(), X * 3)
    assert copies(lambda: x - s) in (0, None)
    assert s.device == GPU and s.item() == 3
    assert s.__cuda_array_interface__["shape"] == ()
    t = nb.constant(5.0, device=GPU)
    assert nb.cpu(t).item() == 5 and (t + t).item() == 10
    a = nb.Tensor(2.0, device=GPU, requires_grad=True)
    nb.sum(x * a).backward()
    np.testing.assert_allclose(a.grad.numpy(), X.sum(), rtol=1e-5)
    assert nb.grad(lambda s: nb.sum(x * s))(s).device == GPU


def test_a_number_that_is_used_in_both_ways() -> None:
    x, s = nb.constant(X, device=GPU), nb.constant(3.0)
    y = x * s + nb.gpu(s)
    np.testing.assert_allclose(y.numpy(), X * 3 + 3, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        (x.at[0].set(nb.gpu(s)) @ nb.gpu(s).broadcast_to((4, 2))).numpy(),
        np.concatenate([0 * X[:1] + 3, X[1:]]) @ np.full((4, 2), 3.0),
        rtol=1e-5,
    )


def test_a_number_whose_other_name_is_held() -> None:
    """A transform of a transform has names of its own for what it is given, and
    here nobody else has one."""
    found = nb.hessian(lambda x, y: x * x * y)(
        nb.constant(2.0, device=GPU), nb.constant(3.0, device=GPU)
    )
    assert [[h.item() for h in row] for row in found] == [[6, 4], [4, 0]]


def test_views_of_a_number_that_are_held() -> None:
    x, m = nb.constant(X, device=GPU), nb.gpu(nb.constant(3.0))
    v, w = m.reshape(1), m.broadcast_to((4,))
    y = x * m + v
    np.testing.assert_allclose(y.numpy(), X * 3 + 3, rtol=1e-5, atol=1e-6)
    assert v.tolist() == [3] and w.tolist() == [3, 3, 3, 3] and m.item() == 3


# A move, inside a body, of what it closes over is made before it runs.


def brings_in_scan(x: Any, c: Any) -> Any:
    def turn(h: Any, a: Any) -> Any:
        return h * nb.to_device(c * 2 + 1, x.device) + a, ()

    return nb.scan(turn, x[0], x)[0]


def brings_in_nested_loops(x: Any, c: Any) -> Any:
    def inner(i: Any, h: Any) -> Any:
        return h * 0.5 + nb.to_device(c, x.device)

    def turn(h: Any, a: Any) -> Any:
        return nb.fori_loop(0, 2, inner, h), ()

    return nb.scan(turn, x[0], x)[0]


def brings_in_while(x: Any, c: Any) -> Any:
    return nb.while_loop(
        lambda h: nb.sum(h) < nb.sum(nb.to_device(c, x.device)) + 50,
        lambda h: nb.abs(h) + nb.to_device(c, x.device) ** 2 + 1,
        x[0],
    )


def brings_in_cond(x: Any, c: Any) -> Any:
    return nb.cond(
        nb.sum(x) > 0,
        lambda h: h + nb.to_device(c, x.device),
        lambda h: h * nb.to_device(c, x.device),
        x[0],
    )


def brings_in_checkpoint(x: Any, c: Any) -> Any:
    return nb.checkpoint(lambda h: h * nb.to_device(c, x.device))(x[0])


@pytest.mark.parametrize(
    "f",
    [
        brings_in_scan,
        brings_in_nested_loops,
        brings_in_while,
        brings_in_cond,
        brings_in_checkpoint,
    ],
)
def test_what_a_body_brings_from_another_device(f: Any) -> None:
    def loss(x: Any, c: Any) -> Any:
        return nb.sum(nb.sin(f(x, c)))

    def lanes(x: Any, c: Any) -> Any:
        return nb.vmap(f, in_axes=(None, 0))(x, nb.stack([c, -c]))

    def slopes(x: Any, c: Any) -> Any:
        return nb.grad(loss, argnums=(0, 1))(x, c)

    x, c = nb.constant(X), nb.constant(values(4))
    for g in (f, lanes, slopes, nb.compile(f)):
        want = nb.tree_leaves(g(x, c))
        for there in ((x.gpu(), c), (x, c.gpu())):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # compile: op by op
                got = nb.tree_leaves(g(*there))
            at = there if g is slopes else [there[0]]
            assert [y.device for y in got] == [y.device for y in at]
            for a, b in zip(want, got, strict=True):
                np.testing.assert_allclose(
                    b.numpy(), a.numpy(), rtol=1e-5, atol=1e-5
                )


def test_what_a_body_brings_moves_once() -> None:
    x, c = nb.constant(X).gpu(), nb.constant(values(4))
    said = str(nb.trace(lambda x: brings_in_scan(x, c), x))
    assert said.count("to_device") == 1
    assert said.index("to_device") < said.index("scan")


def test_what_a_body_cannot_bring_is_told() -> None:
    x, c = nb.constant(X).gpu(), nb.constant(values(4))
    with pytest.raises(ValueError, match="add: .* the same device"):
        nb.scan(lambda h, a: (h + c, ()), x[0], x)
    with pytest.raises(ValueError, match="scan: .* the same device"):
        nb.scan(lambda h, a: (nb.gpu(nb.cpu(h) + c), ()), x[0], x)


def test_rows_of_a_loop_may_begin_anywhere() -> None:
    """Rows of three are not where vectors are; a carry without axes begins
    as a number."""

    @nb.compile(fullgraph=True)
    def run(x: nb.Tensor, p: nb.Tensor) -> Any:
        def step(c: nb.Tensor, a: nb.Tensor) -> Any:
            g = nb.grad(lambda p: nb.sum(a[:2] * p[1:] * p[:1]))(p)
            return c + nb.sum(a), (g, nb.sin(a * p))

        return nb.scan(step, nb.zeros((), device=x.device), x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(run, values(5, 3), values(3))


def test_arrays_go_with_tensors_into_compiled_functions() -> None:
    f = nb.compile(lambda a, x, b: a * x + b)
    a = values(3)
    x = nb.constant(a, device="gpu")
    for k in range(3):
        y = f(a + k, x, np.float32(k))
        assert y.device == GPU
        np.testing.assert_allclose(y.numpy(), (a + k) * a + k, rtol=1e-6)
    assert f(x, x, 1.0).device == GPU
    assert f(a, nb.constant(a), 1.0).device == nb.CPU()
    assert f(a, x, 1.0).device == GPU
    assert f(a, a, 1.0).device == nb.CPU()
    with nb.default_device("gpu"):  # where arrays without tensors go
        assert f(a, a, 1.0).device == GPU
        assert f(a, x, 1.0).device == GPU
    assert f(a, a, 1.0).device == nb.CPU()


def test_listings_say_the_device() -> None:
    f = nb.explain(lambda x: nb.sum(nb.sin(x) * 2))
    there, here = f(nb.ones(4, device="gpu")), f(nb.ones(4))
    assert there.device == "gpu:0" and here.device == "cpu"
    assert "device       gpu:0" in str(there)
    assert "device" not in str(here)
