"""Loops and branches: cond, while_loop, scan, alone and under transforms,
against JAX and against Python's own loops."""

import gc
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nabla as nb
from nabla import _nabla

State = namedtuple("State", "n x")
PLAIN = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def tensor(x):
    return nb.constant(np.asarray(x, dtype=np.float64))


def close(got, want, rtol=1e-9, atol=1e-11):
    got, want = nb.tree_leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        assert x.shape == np.shape(y)
        np.testing.assert_allclose(x.numpy(), y, rtol=rtol, atol=atol)


def jax_says(fn, *args):
    """fn(*args) by JAX, in float64."""
    with jax.enable_x64(True):
        given = [jnp.asarray(np.asarray(a)) for a in args]
        compiled = jax.jit(fn).lower(*given).compile(PLAIN)
        return jax.tree.map(np.asarray, compiled(*given))


def derivatives_agree(mine, theirs, *args):
    """Values, gradients, forward mode, Hessian-vector products and batches of
    a scalar function, written for each library."""
    every = tuple(range(len(args)))

    def ask(grad, jvp, vmap, stack, f):
        def all_of_it(*x):
            g = grad(f, every)
            return (
                f(*x),
                g(*x),
                jvp(f, x, x)[1],
                jvp(g, x, x)[1],
                vmap(f)(*[stack([a, 0.5 * a]) for a in x]),
                vmap(g)(*[stack([a, 0.5 * a]) for a in x]),
            )

        return all_of_it

    want = jax_says(ask(jax.grad, jax.jvp, jax.vmap, jnp.stack, theirs), *args)
    got = ask(nb.grad, nb.jvp, nb.vmap, nb.stack, mine)(*map(tensor, args))
    close(got, want, 1e-8, 1e-10)


# scan.


def test_a_scan_is_the_loop():
    xs = tensor(np.arange(1.0, 6.0))

    def step(c, x):
        return c * 0.5 + x, (c, {"x": x * c})

    for reverse in (False, True):
        carry, ys = nb.scan(step, tensor(1.0), xs, reverse=reverse)
        c, rows = np.float64(1.0), []
        order = range(5)[::-1] if reverse else range(5)
        for i in order:
            rows.append((c, (i + 1) * c))
            c = c * 0.5 + i + 1
        rows = rows[::-1] if reverse else rows
        close(carry, c)
        close(
            ys, (np.array([a for a, _ in rows]), np.array([b for _, b in rows]))
        )


def test_carries_and_slices_are_trees():
    init = {"n": 0, "state": State(tensor([1.0, 2.0]), None)}
    xs = [tensor(np.ones((3, 2))), (nb.arange(3),)]

    def step(carry, x):
        rows, (i,) = x
        state = State(carry["state"].n * rows + i, None)
        return {"n": carry["n"] + 1, "state": state}, [i, None]

    carry, ys = nb.scan(step, init, xs)
    assert carry["n"].item() == 3
    assert isinstance(carry["state"], State) and carry["state"].x is None
    assert carry["state"].n.tolist() == [4.0, 5.0]
    assert ys[0].tolist() == [0, 1, 2] and ys[1] is None


def test_lengths():
    step = lambda c, x: (c + 1, c)  # noqa: E731
    carry, ys = nb.scan(step, 0, None, length=4)
    assert carry.item() == 4 and ys.tolist() == [0, 1, 2, 3]
    carry, ys = nb.scan(step, 0, nb.ones((0, 2)))
    assert carry.item() == 0 and ys.shape == (0,)
    carry, ys = nb.scan(step, 0, None, length=0)
    assert carry.item() == 0 and ys.shape == (0,)
    assert nb.scan(step, 0, nb.ones(3), length=3)[0].item() == 3
    for xs, length in [
        (None, None),
        (None, -1),
        ([], None),
        (nb.ones(3), 4),
        (nb.ones(3), 0),
        ({"a": nb.ones(3), "b": nb.ones(4)}, None),
        (nb.constant(1.0), None),
    ]:
        with pytest.raises(ValueError, match="scan"):
            nb.scan(step, 0, xs, length=length)
    with pytest.raises(ValueError, match=r"xs\['b'\] has length 4"):
        nb.scan(step, 0, {"a": nb.ones(3), "b": nb.ones(4)})


def test_what_a_scan_refuses():
    x = nb.ones(3)
    wrong = [
        (lambda c, x: c, TypeError, "carry, y"),
        (lambda c, x: (c, c, c), TypeError, "carry, y"),
        (lambda c, x: ((c, c), None), ValueError, "mismatch"),
        (lambda c, x: (c.reshape(1), None), ValueError, r"float32\(1,\)"),
        (lambda c, x: (nb.cast(c, "float64"), None), ValueError, "float64"),
        (lambda c, x: (c, "text"), TypeError, "str"),
    ]
    for f, error, match in wrong:
        with pytest.raises(error, match=match):
            nb.scan(f, 0.0, x)
    with pytest.raises(ValueError, match=r"\['a'\]\[1\].*int64.*float32"):
        nb.scan(
            lambda c, x: ({"a": [x, x]}, None),
            {"a": [nb.constant(0.0), nb.constant(0)]},
            x,
        )
    with pytest.raises(TypeError, match="str"):
        nb.scan(lambda c, x: (c, None), "text", x)
    with pytest.raises(RuntimeError, match="while a loop or branch"):
        nb.scan(lambda c, x: (c + x if x > 0 else c, None), 0.0, x)


def test_a_number_in_a_carry_takes_its_dtype():
    carry, _ = nb.scan(lambda c, x: (1, None), tensor(0.5), nb.ones(2))
    assert carry.item() == 1.0 and carry.dtype == nb.float64


def test_scans_under_transforms():
    rng = np.random.default_rng(0)
    xs, w, h = rng.normal(size=(5, 2)), rng.normal(size=(2, 2)), np.ones(2)

    def program(m, scan):
        def loss(xs, w, h):
            def step(carry, x):
                h, total = carry
                h = m.tanh(h @ w + x)
                return (h, total + m.sum(h)), h * x

            (h, total), ys = scan(step, (h, 0.0 * h[0]), xs)
            return total * m.sum(h) + m.sum(ys**2)

        return loss

    derivatives_agree(program(nb, nb.scan), program(jnp, lax.scan), xs, w, h)


def test_nested_and_reversed_scans():
    x, a = np.linspace(0.1, 0.9, 6).reshape(2, 3), np.array(0.7)

    def program(m, scan):
        def loss(x, a):
            def outer(c, row):
                def inner(d, x):
                    return m.sin(d * a + x) + c, d * x

                d, ys = scan(inner, c, row, reverse=True)
                return c * d, m.sum(ys) * d

            c, ys = scan(outer, a, x)
            return c + m.sum(ys)

        return loss

    derivatives_agree(program(nb, nb.scan), program(jnp, lax.scan), x, a)


def test_captured_values_get_gradients_of_every_step():
    w = tensor([2.0, 3.0])
    w.requires_grad = True
    c, _ = nb.scan(lambda c, x: (c * w, None), nb.ones_like(w), None, length=3)
    nb.sum(c).backward()
    assert w.grad.tolist() == [12.0, 27.0]


def test_a_scan_maps_carries_and_slices_separately():
    xs, c = tensor(np.arange(6.0).reshape(3, 2)), tensor([1.0, 10.0])

    def run(c, xs):
        return nb.scan(lambda c, x: (c + x, c * x), c, xs)

    a, ys = nb.vmap(run, in_axes=(0, None))(c, xs[:, 0])
    close(a, c.numpy() + 6.0)
    assert ys.shape == (2, 3)
    b, _ = nb.vmap(run, in_axes=(None, 1))(c[0], xs)
    close(b, 1.0 + xs.numpy().sum(0))
    captured = nb.vmap(
        lambda w: nb.scan(lambda c, x: (c + w * x, None), 0.0 * w, xs[:, 1])[0]
    )
    close(captured(c), c.numpy() * 9.0)


def test_a_long_scan_is_one_small_graph():
    def run(x, n):
        return nb.scan(lambda c, x: (c * 0.999 + x, None), x, None, length=n)[0]

    sizes = {
        len(nb.trace(lambda x, n=n: run_with(x, n), tensor(1.0)).nodes)
        for n in (10, 100_000)
    }
    assert len(sizes) == 1


def run_with(x, n):
    return nb.scan(lambda c, _: (c * 0.999 + 1.0, None), x, None, length=n)[0]


def test_a_long_scan_keeps_only_its_result():
    live, x = [], tensor(1.0)
    for n in (100, 3000):
        y = None
        before = _nabla.stats()["bytes_in_use"]
        y = run_with(x, n).realize()
        live.append(_nabla.stats()["bytes_in_use"] - before)
        assert y.item() == pytest.approx(1000 - 999 * 0.999**n)
    assert live[0] == live[1]


# cond.


def test_a_branch_is_chosen():
    x = tensor([1.0, 2.0])

    def up(p, n):
        return {"y": p[0] * n, "z": (p[0], None)}

    def down(p, n):
        return {"y": -p[0] * n, "z": (p[0] * 0, None)}

    for pred in (True, nb.constant(True), np.bool_(True), nb.constant([3.0])):
        out = nb.cond(pred, up, down, [x], 2)
        assert out["y"].tolist() == [2.0, 4.0] and out["z"][1] is None
    out = nb.cond(x[0] > x[1], up, down, [x], 2)
    assert out["y"].tolist() == [-2.0, -4.0]
    assert nb.cond(False, lambda: 1.0, lambda: nb.constant(2.0)).item() == 2.0


def test_only_the_chosen_branch_runs():
    x = tensor(0.0)
    y = nb.cond(x > 0, lambda x: 1.0 / x, lambda x: x, x)
    assert y.item() == 0.0
    d = nb.grad(lambda x: nb.cond(x > 0, nb.sqrt, lambda x: 2 * x, x))(x)
    assert d.item() == 2.0


def test_what_a_cond_refuses():
    x = nb.ones(2)

    def raises(error, match, pred, f, g):
        with pytest.raises(error, match=match):
            nb.cond(pred, f, g, x)

    same = lambda x: x  # noqa: E731
    raises(ValueError, r"\(2,\)", nb.ones(2) > 0, same, same)
    raises(ValueError, r"float32\(2,\) in one.*float32\(\)", True, same, nb.sum)
    raises(ValueError, "int64", True, same, lambda x: nb.cast(x, "int64"))
    raises(ValueError, "mismatch", True, same, lambda x: (x, x))
    raises(ValueError, "'a'", True, lambda x: {"a": x}, lambda x: {"b": x})
    raises(TypeError, "str", True, lambda x: "text", lambda x: "text")
    raises(TypeError, "str", "yes", same, same)
    # also where both branches run
    with pytest.raises(ValueError, match="in one branch"):
        nb.vmap(lambda a: nb.cond(a > 0, same, lambda a: nb.ones(3), a))(x)


def test_branches_under_transforms():
    def program(m, cond):
        def loss(x, w):
            def yes(x, y):
                return m.sum(x * w) * y

            def no(x, y):
                return m.sum(m.sin(x)) + y * w[0]

            a = cond(m.sum(x) > 1.0, yes, no, x, x[0])
            return a * cond(x[0] < w[1], no, yes, x * w, a)

        return loss

    w = np.array([0.4, 1.3])
    for x in ([0.9, 0.8], [-0.3, 0.2]):
        args = np.array(x), w
        derivatives_agree(program(nb, nb.cond), program(jnp, lax.cond), *args)


def test_a_mapped_predicate_selects():
    x = tensor([-2.0, 3.0, -1.0])
    f = nb.vmap(lambda a: nb.cond(a > 0, lambda a: a * a, lambda a: -a, a))
    assert f(x).tolist() == [2.0, 9.0, 1.0]
    g = nb.vmap(nb.grad(lambda a: nb.cond(a > 0, nb.square, nb.neg, a)))
    assert g(x).tolist() == [-1.0, 6.0, -1.0]
    shared = nb.vmap(
        lambda a: nb.cond(x[0] > 0, lambda: a, lambda: a * captured)
    )
    captured = tensor(10.0)
    assert shared(x).tolist() == [-20.0, 30.0, -10.0]


# while_loop.


def test_a_while_loop_is_the_loop():
    out = nb.while_loop(
        lambda s: s.n < 5,
        lambda s: State(s.n + 1, {"x": s.x["x"] * 2}),
        State(0, {"x": tensor([1.0, 3.0])}),
    )
    assert isinstance(out, State) and out.n.item() == 5
    assert out.x["x"].tolist() == [32.0, 96.0]
    never = nb.while_loop(lambda x: x < 0, lambda x: x + 1, tensor(1.0))
    assert never.item() == 1.0


def test_what_a_while_loop_refuses():
    x = nb.ones(2)

    def raises(error, match, test, body, init=x):
        with pytest.raises(error, match=match):
            nb.while_loop(test, body, init)

    def stop(x):
        return nb.sum(x) < 0

    raises(ValueError, r"\(2,\)", lambda x: x > 0, lambda x: x)
    raises(ValueError, "comes back as", stop, nb.sum)
    raises(ValueError, "int32", stop, lambda x: nb.cast(x, "int32"))
    raises(ValueError, "mismatch", stop, lambda x: [x])
    raises(ValueError, "no tensor", lambda s: True, lambda s: s, ())
    raises(TypeError, "str", stop, lambda x: x, "text")
    raises(TypeError, "str", lambda x: "no", lambda x: x)
    raises(RuntimeError, "recorded", lambda x: bool(nb.sum(x) > 0), lambda x: x)


def newton(a, x0):
    """The square root of a, by as many steps as it takes."""

    def body(x):
        return 0.5 * (x + a / x)

    return nb.while_loop(lambda x: nb.abs(x * x - a) > 1e-12 * a, body, x0)


def test_gradients_through_a_data_dependent_loop():
    for a in (2.0, 50.0, 1e4):
        x, x0 = tensor(a), tensor(1.0)
        close(newton(x, x0), np.sqrt(a))
        implicit = 0.5 / np.sqrt(a)
        close(nb.grad(lambda a: newton(a, x0))(x), implicit, 1e-6)  # noqa: B023
        _, u = nb.jvp(lambda a: newton(a, x0), (x,), (tensor(1.0),))  # noqa: B023
        close(u, implicit, 1e-6)
    many = tensor([2.0, 50.0, 1e4])
    roots = nb.vmap(lambda a: newton(a, tensor(1.0)))
    close(roots(many), np.sqrt(many.numpy()))
    slopes = nb.vmap(nb.grad(lambda a: newton(a, tensor(1.0))))
    close(slopes(many), 0.5 / np.sqrt(many.numpy()), 1e-6)


def test_reverse_mode_of_while_is_that_of_the_unrolled_loop():
    a = tensor([1.1, 1.2])
    b = tensor(0.3)

    def looped(a, b):
        def body(s):
            i, x = s
            return i + 1, nb.sin(x * a) + b * x

        _, x = nb.while_loop(lambda s: s[0] < 4, body, (0, a * b))
        return nb.sum(x)

    def unrolled(a, b):
        x = a * b
        for _ in range(4):
            x = nb.sin(x * a) + b * x
        return nb.sum(x)

    def agree(f, *args):
        want = [x.numpy() for x in nb.tree_leaves(f(unrolled)(*args))]
        close(f(looped)(*args), want)

    agree(lambda h: nb.grad(h, (0, 1)), a, b)
    agree(nb.hessian, a, b)
    agree(lambda h: lambda a, b: nb.hvp(h, (a, b), (a, b)), a, b)
    rows = nb.stack([b, 2 * b])
    agree(lambda h: nb.vmap(nb.grad(h, (0, 1)), in_axes=(None, 0)), a, rows)


def test_each_lane_stops_by_itself():
    limit, start = tensor([10.0, 1e3, 3.0]), tensor([1.0, 2.0, 3.0])

    def f(start, limit):
        return nb.while_loop(
            lambda s: s[0] < limit, lambda s: (s[0] * 2, s[1] + 1), (start, 0)
        )

    x, n = nb.vmap(f)(start, limit)
    assert x.tolist() == [16.0, 1024.0, 3.0] and n.tolist() == [4, 9, 0]
    x, n = nb.vmap(f, in_axes=(None, 0))(tensor(1.0), limit)
    assert n.tolist() == [4, 10, 2]
    g = nb.vmap(nb.grad(lambda a, b: f(a, b)[0]))(start, limit)
    assert g.tolist() == [16.0, 512.0, 1.0]
    _, u = nb.vmap(lambda a, b: nb.jvp(f, (a, b), (a, b)))(start, limit)
    assert u[0].tolist() == [16.0, 1024.0, 3.0]


def test_loops_in_loops():
    def collatz(n):
        def step(s):
            n, count = s
            odd = n % 2 == 1
            n = nb.cond(odd, lambda n: 3 * n + 1, lambda n: n // 2, n)
            return n, count + 1

        return nb.while_loop(lambda s: s[0] > 1, step, (n, 0))[1]

    assert collatz(nb.constant(27)).item() == 111
    n = nb.constant([1, 6, 7, 27])
    assert nb.vmap(collatz)(n).tolist() == [0, 8, 16, 111]
    total, each = nb.scan(lambda c, n: (c + collatz(n), collatz(n)), 0, n)
    assert total.item() == 135 and each.tolist() == [0, 8, 16, 111]


def test_while_under_transforms_against_jax():
    def program(m, while_loop, scan):
        def loss(x, a):
            def body(s):
                i, x = s
                x, _ = scan(lambda c, _: (m.sin(c) * a + 0.1, None), x, None, 2)
                return i + 1, x + 0.5

            _, x = while_loop(lambda s: s[0] < 3, body, (0, x))
            return m.sum(x * x)

        return loss

    mine = program(nb, nb.while_loop, nb.scan)
    x, a = np.array([0.2, 0.9]), np.array(1.3)

    def unrolled(x, a):
        for _ in range(3):
            for _ in range(2):
                x = jnp.sin(x) * a + 0.1
            x = x + 0.5
        return jnp.sum(x * x)

    # JAX has no reverse mode of while
    derivatives_agree(mine, unrolled, x, a)


# State.


def test_an_exception_in_a_body_comes_out_as_it_is():
    class MineError(Exception):
        pass

    def boom(*args):
        raise MineError("here")

    x = nb.ones(3)
    mine = MineError("this one")

    def exactly(*args):
        raise mine

    programs = [
        lambda f: nb.scan(f, 0.0, x),
        lambda f: nb.cond(True, f, f, x),
        lambda f: nb.while_loop(f, lambda s: s, x),
        lambda f: nb.while_loop(lambda s: nb.sum(s) < 0, f, x),
        lambda f: nb.grad(lambda x: nb.scan(f, x[0], x)[0])(x),
        lambda f: nb.vmap(lambda a: nb.cond(a > 0, f, f, a))(x),
        lambda f: nb.scan(lambda c, a: nb.scan(f, c, x), 0.0, x),
    ]
    gc.collect()
    before = _nabla.stats()["nodes_live"]
    for program in programs:
        for _ in range(30):
            with pytest.raises(MineError, match="here"):
                program(boom)
        with pytest.raises(MineError) as raised:
            program(exactly)
        assert raised.value is mine
    assert any("scan" in note for note in mine.__notes__)
    mine.__traceback__ = None
    del raised
    gc.collect()
    assert _nabla.stats()["nodes_live"] <= before + 2
    assert nb.scan(lambda c, a: (c + a, None), 0.0, x)[0].item() == 3.0


def test_control_flow_leaves_nothing_behind():
    x = nb.ones(3)

    def everything():
        nb.grad(lambda x: nb.scan(lambda c, a: (c * a, c), x[0], x)[0])(
            x
        ).realize()
        nb.grad(lambda x: nb.cond(x[0] > 0, nb.sum, nb.max, x))(x).realize()
        nb.grad(
            lambda x: nb.while_loop(lambda s: s < 9, lambda s: s * 2, x[0])
        )(x).realize()

    seen = []
    for _ in range(4):
        everything()
        gc.collect()
        seen.append(_nabla.stats()["nodes_live"])
    assert seen[1] == seen[2] == seen[3]


# Closures: what a body closes over is told apart from the arguments.


def one_step(f, x):
    return nb.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


REGIONS = {
    "cond": lambda f, x: nb.cond(True, f, lambda x: x, x),
    "scan": one_step,
    "while": lambda f, x: nb.while_loop(
        lambda s: s[0] < 1, lambda s: (s[0] + 1, f(s[1])), (0, x)
    )[1],
}
regions = pytest.mark.parametrize("region", REGIONS.values(), ids=REGIONS)


@regions
def test_a_body_closes_over_two_names_of_one_tensor(region):
    x, one = tensor(3.0), tensor(1.0)
    f = nb.grad(lambda p: region(lambda a: a * x * x * p, one))
    assert f(x).item() == 9.0
    twice = nb.grad(
        lambda q: nb.grad(lambda p: region(lambda a: a * q * q * p, one))(x)
    )
    assert twice(x).item() == 6.0


@regions
def test_gradients_stop_inside_a_body(region):
    x = tensor([1.0, 2.0])
    f = nb.grad(lambda x: nb.sum(region(lambda a: nb.stop_gradient(a) * a, x)))
    assert f(x).tolist() == [1.0, 2.0]


@regions
@pytest.mark.parametrize("name", ["cond", "scan"])
def test_jacobians_of_regions_in_regions(region, name):
    x = tensor([0.3, 0.7])

    def f(x):
        return region(
            lambda a: REGIONS[name](lambda b: nb.sin(a * b * x), a), x
        )

    want = np.diag(3 * x.numpy() ** 2 * np.cos(x.numpy() ** 3))
    close(nb.jacfwd(f)(x), want)
    close(nb.jacrev(f)(x), want)
