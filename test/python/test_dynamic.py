"""dynamic_dims: one program for all sizes, against NumPy and the ops one by
one."""

import numpy as np
import pytest

import nabla as nb

SIZES = [7, 1, 0, 2, 3, 5, 16, 17, 64, 100, 1000, 5000]
rng = np.random.default_rng(0)


def attention(q, k, v):
    s = q @ nb.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    n = s.shape[-1]
    mask = nb.tril(nb.ones((n, n))) > 0
    return nb.softmax(nb.where(mask, s, -1e9), axis=-1) @ v


def layer_norm(x):
    d = x - x.mean(axis=-1, keepdims=True)
    return d / nb.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5)


def perceptron(x, w, v):
    h = nb.tanh(x @ w)
    return nb.softmax(h @ v, axis=-1), (h * h).mean()


def rnn(x, w):
    return nb.scan(lambda c, a: (nb.tanh(c @ w + a), c), x[0], x)


# name: (function, shapes of arguments, sizes to leave out)
PROGRAMS = {
    "perceptron": (perceptron, [("n", 5), (5, 9), (9, 4)], {0}),
    "softmax of rows": (lambda x: nb.softmax(x, axis=-1), [(3, "n")], {0}),
    "softmax of columns": (lambda x: nb.softmax(x, axis=0), [("n", 6)], {0}),
    "layer norm": (layer_norm, [(4, "n")], {0}),
    "sums": (lambda x: (x.sum(), x.sum(axis=0), x.sum(1)), [("n", 6)], set()),
    "gradient": (
        nb.grad(lambda x, w: ((x @ w) ** 2).mean(), argnums=(0, 1)),
        [("n", 5), (5, 2)],
        {0},
    ),
    "hessian": (
        nb.hessian(lambda w, x: nb.log(nb.exp(x @ w).sum())),
        [(3,), ("n", 3)],
        {0},
    ),
    "transpose": (lambda x: (x.T * 2).reshape(-1), [("n", 6)], set()),
    "concatenate": (
        lambda x, y: nb.concatenate([x, y, x], axis=0) * 2,
        [("n", 3), (4, 3)],
        set(),
    ),
    "differences": (lambda x: x[1:] - x[:-1], [("n", 3)], {0}),
    "cumsum": (lambda x: nb.cumsum(x, axis=0), [("n", 3)], set()),
    "arange": (
        lambda x: x * nb.arange(x.shape[0], dtype="float32")[:, None],
        [("n", 3)],
        set(),
    ),
    "times its size": (lambda x: x * x.shape[0], [("n", 3)], set()),
    "outer": (lambda x: (x[:, None] * x).reshape(-1), [("n",)], {5000}),
    "std": (lambda x: x.std(axis=0), [("n", 3)], {0}),
    "flip": (lambda x: nb.flip(x, axis=0) * 2, [("n", 3)], set()),
    "roll": (lambda x: nb.roll(x, 2, axis=0), [("n", 3)], {0}),
    "pad": (lambda x: nb.pad(x, ((1, 2), (0, 1))), [("n", 3)], set()),
    "argmax": (lambda x: nb.argmax(x, axis=0), [("n", 3)], {0}),
    "groups": (lambda x: x.reshape(-1, 2, 3).sum(1), [("n", 6)], {0}),
    "slice backward": (
        nb.grad(lambda x: (x[1:] ** 2).sum()),
        [("n", 3)],
        {0},
    ),
    "cumsum backward": (
        nb.grad(lambda x: nb.cumsum(x, axis=-1).mean()),
        [(3, "n")],
        {0},
    ),
    "lookup backward": (
        nb.grad(lambda w, x: (w[nb.cast(nb.abs(x), "int32") % 5]).mean()),
        [(5, 4), ("n",)],
        {0},
    ),
    "cross entropy backward": (
        nb.grad(lambda x: -nb.log(nb.softmax(x, axis=-1))[:, 0].mean()),
        [("n", 9)],
        {0},
    ),
    "sort": (lambda x: nb.sort(x, axis=0), [("n", 3)], set()),
    "a constant": (lambda x: x[nb.constant([0, 0])], [("n", 3)], {0}),
    "vmap": (nb.vmap(lambda x: nb.exp(x).sum()), [("n", 6)], set()),
    "scan over it": (
        lambda x: nb.scan(lambda c, a: (c * 0.5 + a, c), nb.zeros(3), x),
        [("n", 3)],
        {0},
    ),
    "scan beside it": (rnn, [(5, "n", 3), (3, 3)], set()),
    "looks at its size": (
        lambda x: x * 2 if x.shape[0] < 50 else x * 3,
        [("n", 3)],
        set(),
    ),
}


def draw(shape, **size):
    return nb.constant(
        rng.standard_normal([size.get(n, n) for n in shape]).astype(np.float32)
    )


def dims(shapes):
    return {
        i: {a: n for a, n in enumerate(s) if isinstance(n, str)}
        for i, s in enumerate(shapes)
    }


def same(got, want):
    got, want = nb.tree_leaves(got), nb.tree_leaves(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(
            a.numpy(), b.numpy(), rtol=2e-5, atol=2e-5, strict=True
        )


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_sizes(name):
    fn, shapes, out = PROGRAMS[name]
    f = nb.compile(fn, dynamic_dims=dims(shapes))
    sizes = [n for n in SIZES if n not in out]
    for n in sizes:
        x = [draw(s, n=n) for s in shapes]
        same(f(*x), fn(*x))
    assert f.explain().fixed == ""
    assert (f.stats.hits, f.stats.misses) == (len(sizes) - 1, 1)
    assert f.stats.cache_size == 1


@pytest.mark.parametrize("grad", [False, True])
def test_two_sizes(grad):
    fn = attention
    if grad:
        fn = nb.grad(lambda q, k, v: attention(q, k, v).sum(), (0, 1, 2))
    shapes = [("b", 2, "t", 8)] * 3
    f = nb.compile(fn, dynamic_dims=dims(shapes))
    for b in (2, 1, 3):
        for t in (5, 1, 2, 16, 33, 130):
            x = [draw(s, b=b, t=t) for s in shapes]
            same(f(*x), fn(*x))
    assert f.stats.misses == 1 and f.explain().fixed == ""


@pytest.mark.parametrize(
    "f", [nb.diagonal, nb.linalg.svdvals, lambda x: x[: min(x.shape)] * 2]
)
def test_which_of_two_sizes_is_larger(f):
    g = nb.compile(f, dynamic_dims={0: {0: "n", 1: "m"}})
    for n, m in ((1, 1), (5, 2), (2, 5), (3, 3), (9, 2), (4, 30), (30, 4)):
        x = nb.reshape(nb.arange(float(n * m)), (n, m))
        got, want = g(x), f(x)
        assert got.shape == want.shape
        np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-4)


def test_trees_donation_and_statics():
    def step(state, batch, rate):
        def loss(w):
            return ((batch["x"] @ w["w"] + w["b"] - batch["y"]) ** 2).mean()

        g = nb.grad(loss)(state)
        return {k: state[k] - rate * g[k] for k in state}

    f = nb.compile(
        step, dynamic_dims={2: {0: "n"}, 3: {0: "n"}}, donate_argnums=0
    )
    w = {"w": draw((3, 1)), "b": draw((1,))}
    want = {k: nb.constant(x.numpy()) for k, x in w.items()}
    for n in (4, 9, 1, 4):
        batch = {"x": draw((n, 3)), "y": draw((n, 1))}
        want = step(want, batch, 0.1)
        w = f(w, batch, 0.1)
        same(w, want)
    assert (f.stats.hits, f.stats.misses) == (3, 1)
    f(w, batch, 0.2)
    assert f.stats.misses == 2


def test_what_depends_on_sizes_otherwise_is_said():
    def unrolled(x):
        for _ in range(x.shape[0] % 5):
            x = nb.sin(x)
        return x

    f = nb.compile(unrolled, dynamic_dims={0: {0: "n"}})
    for n in (1, 2, 3, 2):
        same(f(x := draw((n, 2))), unrolled(x))
    assert (f.stats.hits, f.stats.misses) == (1, 3)
    assert "different ops" in f.explain().fixed
    assert "sizes fixed" in str(f.explain())


def test_remainders_of_sizes_fix_them():
    def parity(x):
        return x * 2 if x.shape[0] % 2 else x * 3

    f = nb.compile(parity, dynamic_dims={0: {0: "n"}})
    for n in (5, 6, 7, 8):
        same(f(x := draw((n, 2))), parity(x))
    assert f.explain().fixed


def test_results_that_are_no_tensors_fix_the_size():
    f = nb.compile(lambda x: (x * 2, x.shape[0]), dynamic_dims={0: {0: "n"}})
    for n in (3, 4, 3):
        y, size = f(nb.ones(n))
        assert y.tolist() == [2.0] * n and size == n
    assert "part of the program" in f.explain().fixed
    assert (f.stats.hits, f.stats.misses) == (1, 2)


def test_errors_at_a_size_are_raised_there():
    f = nb.compile(
        lambda x: x[:, 2:5] + nb.ones((4, 3)), dynamic_dims={0: {1: "n"}}
    )
    same(f(nb.ones((4, 9))), nb.full((4, 3), 2.0))
    same(f(nb.ones((4, 5))), nb.full((4, 3), 2.0))
    with pytest.raises(ValueError):
        f(nb.ones((4, 4)))
    same(f(nb.ones((4, 6))), nb.full((4, 3), 2.0))


def test_random_numbers_of_any_count():
    f = nb.compile(
        lambda x: x + nb.uniform(x.shape),
        dynamic_dims={0: {0: "n"}},
    )
    for n in (3, 8, 100):
        y = f(nb.zeros(n)).numpy()
        assert y.shape == (n,) and y.min() >= 0 and y.max() < 1
    assert f.stats.misses == 1 and not f.explain().fixed


def test_the_program_of_the_last_size_is_shown():
    f = nb.compile(lambda x: nb.exp(x).sum(), dynamic_dims={0: {0: "n"}})
    f(nb.ones(10))
    assert f.memory().arguments == 40 and "f32[10]" in f.ir()
    f(nb.ones(20))
    assert f.memory().arguments == 80 and "f32[20]" in f.ir()
