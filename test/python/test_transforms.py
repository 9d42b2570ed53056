"""Transforms: derivatives, Jacobians, vmap, and how they nest.  JAX answers for
whole programs; what is particular to Nabla has its expected value here."""

import gc
import importlib
import threading
from collections import namedtuple
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest
from programs import JAX, NABLA, PROGRAMS

import nabla as nb
from nabla import _nabla

# XLA spends most of its time on making fast what runs once here.
PLAIN = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}

Pair = namedtuple("Pair", "first second")


def close(got, want, rtol=1e-8, atol=1e-10):
    """Trees of tensors against trees of anything."""
    got, want = nb.tree_leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        assert isinstance(x, nb.Tensor)
        assert x.shape == np.shape(y)
        np.testing.assert_allclose(x.numpy(), y, rtol=rtol, atol=atol)


def f64(*x):
    return nb.constant(np.array(x, dtype=np.float64))


def tensor(x):
    return nb.constant(np.asarray(x))


# Whole programs, against JAX.


def answers_of(fn, args):
    """What JAX says about fn, compiled as one program."""

    def all_of_it(*x):
        every = tuple(range(len(x)))
        grad = jax.grad(fn, every)
        batch = [jnp.stack([a, 0.5 * a]) for a in x]
        return {
            "value": fn(*x),
            "grad": grad(*x),
            "jvp": jax.jvp(fn, x, x)[1],
            "hvp": jax.jvp(grad, x, x)[1],
            "batch": jax.vmap(grad)(*batch),
            "hessian": jax.hessian(fn, len(x) - 1)(*x),
        }

    with jax.enable_x64(True):
        given = [jnp.asarray(a) for a in args]
        compiled = jax.jit(all_of_it).lower(*given).compile(PLAIN)
        return jax.tree.map(np.asarray, compiled(*given))


@cache
def jax_answers(name):
    fn, _ = PROGRAMS[name]
    return answers_of(lambda *x: fn(JAX, *x), programs.arguments(name))


def nabla_side(name):
    """The program, its arguments, and all of their places."""
    fn, _ = PROGRAMS[name]
    args = tuple(tensor(x) for x in programs.arguments(name))
    return lambda *x: fn(NABLA, *x), args, tuple(range(len(args)))


everywhere = pytest.mark.parametrize("name", PROGRAMS)


@everywhere
def test_first_derivatives_are_those_of_jax(name):
    fn, args, every = nabla_side(name)
    want = jax_answers(name)
    value, grads = nb.value_and_grad(fn, every)(*args)
    close(value, want["value"])
    close(grads, want["grad"])
    close(nb.grad(fn, 0)(*args), want["grad"][0])
    y, pullback = nb.vjp(fn, *args)
    close(pullback(nb.ones_like(y)), want["grad"])
    close(pullback(2.0 * nb.ones_like(y)), [2 * g for g in want["grad"]])
    close(nb.jvp(fn, args, args), (want["value"], want["jvp"]))
    _, linear = nb.linearize(fn, *args)
    close(linear(*args), want["jvp"])
    close(nb.jacrev(fn, every)(*args), want["grad"])
    close(nb.jacfwd(fn, every)(*args), want["grad"])
    close(nb.grad(nb.checkpoint(fn), every)(*args), want["grad"])


@everywhere
def test_second_derivatives_are_those_of_jax(name):
    fn, args, every = nabla_side(name)
    want = jax_answers(name)
    last = len(args) - 1
    close(nb.hvp(fn, args, args), want["hvp"], 1e-7, 1e-9)
    back = nb.grad(
        lambda *x: sum(
            nb.sum(g * a)
            for g, a in zip(nb.grad(fn, every)(*x), args, strict=True)
        ),
        every,
    )
    close(back(*args), want["hvp"], 1e-7, 1e-9)
    for outer in (nb.jacfwd, nb.jacrev):
        for inner in (nb.jacfwd, nb.jacrev):
            found = outer(inner(fn, last), last)(*args)
            close(found, want["hessian"], 1e-7, 1e-9)
    close(nb.hessian(fn, last)(*args), want["hessian"], 1e-7, 1e-9)


@everywhere
def test_gradients_of_every_sample_are_those_of_jax(name):
    fn, args, every = nabla_side(name)
    want = jax_answers(name)
    batch = [nb.stack([a, 0.5 * a]) for a in args]
    close(nb.vmap(nb.grad(fn, every))(*batch), want["batch"], 1e-7, 1e-9)
    twice = nb.vmap(nb.vmap(nb.grad(fn, every)), in_axes=1, out_axes=1)
    found = twice(*[nb.stack([b, b], axis=1) for b in batch])
    wide = [np.stack([b, b], axis=1) for b in want["batch"]]
    close(found, wide, 1e-7, 1e-9)
    whole = nb.grad(lambda *x: nb.sum(nb.vmap(fn)(*x)), every)
    close(whole(*batch), want["batch"], 1e-7, 1e-9)
    last = len(args) - 1
    hessians = nb.vmap(nb.hessian(fn, last))(*batch)
    close(hessians[0], want["hessian"], 1e-7, 1e-9)


def test_there_are_enough_programs():
    assert len(PROGRAMS) >= 30


# Nestings.


def words(m):
    """Transforms of a function of a vector, each to a function of a vector."""
    if m is NABLA:
        jvp, vjp, ones = nb.jvp, nb.vjp, nb.ones_like
        rev, fwd, vmap, hess = nb.jacrev, nb.jacfwd, nb.vmap, nb.hessian
        ckpt = nb.checkpoint
    else:
        jvp, vjp, ones = jax.jvp, jax.vjp, jnp.ones_like
        rev, fwd, vmap, hess = jax.jacrev, jax.jacfwd, jax.vmap, jax.hessian
        ckpt = jax.checkpoint

    def mapped(f):
        def over(x):
            rows = x[:, None] * m.array(np.array([1.0, 0.5]))
            return m.sum(vmap(f, in_axes=1)(rows), axis=0)

        return over

    def reverse(f):
        def pulled(x):
            y, back = vjp(f, x)
            return back(ones(y))[0]

        return pulled

    def scanned(f):
        def loop(x):
            rows = m.stack([x, 0.5 * x])
            return m.scan(lambda c, row: (c + f(row), None), f(x), rows)[0]

        return loop

    return {
        "jvp": lambda f: lambda x: jvp(f, (x,), (m.cos(x),))[1],
        "vjp": reverse,
        "vmap": mapped,
        "jacrev": lambda f: lambda x: m.sum(rev(f)(x), axis=0),
        "jacfwd": lambda f: lambda x: m.sum(fwd(f)(x), axis=-1),
        "hessian": lambda f: lambda x: m.sum(hess(f)(x), axis=(0, 1)),
        "checkpoint": ckpt,
        "scan": scanned,
    }


def base(m, x):
    return m.sin(x) * m.sum(x * x) + m.exp(-x[::-1])


NESTINGS = [
    *("jvp vjp", "vjp jvp", "vmap vjp", "vjp vmap", "vmap vmap jvp"),
    *("jacrev vmap", "vmap jacfwd", "jacfwd jacrev vmap", "hessian vmap"),
    *("vmap hessian", "scan vjp", "vjp scan", "vmap scan jvp", "jvp scan vmap"),
    *("checkpoint vjp", "vjp checkpoint", "vmap checkpoint jacrev"),
    *("jvp checkpoint scan", "vjp vjp vjp", "jvp jvp jvp", "jacrev hessian"),
    *("hessian scan", "scan scan", "vmap vjp scan jvp", "jacfwd scan vmap vjp"),
]


@pytest.mark.parametrize("nesting", NESTINGS)
def test_nestings_are_those_of_jax(nesting):
    x = np.array([0.3, -0.7, 1.1])

    def built(m):
        table = words(m)

        def f(x):
            return base(m, x)

        for word in reversed(nesting.split()):
            f = table[word](f)
        return f

    with jax.enable_x64(True):
        given = jnp.asarray(x)
        want = jax.jit(built(JAX)).lower(given).compile(PLAIN)(given)
    close(built(NABLA)(tensor(x)), np.asarray(want), 1e-7, 1e-9)


def test_a_closed_over_value_is_not_the_argument():
    """The confusion of perturbations: d/dx (x * d/dy (x + y))."""
    x = nb.constant(3.0)
    f = nb.grad(lambda x: x * nb.grad(lambda y: x + y)(nb.constant(2.0)))
    assert f(x).item() == 1.0
    g = nb.grad(lambda x: x * nb.grad(lambda y: x * y)(x))
    assert g(x).item() == 6.0
    jvp = nb.jvp(
        lambda x: x * nb.jvp(lambda y: x * y, (x,), (nb.ones_like(x),))[1],
        (x,),
        (nb.constant(1.0),),
    )
    assert jvp[1].item() == 6.0


def test_the_same_tensor_may_be_several_arguments():
    x = nb.constant(3.0)
    f = nb.grad(lambda a, b: a * a * b, (0, 1))
    assert [g.item() for g in f(x, x)] == [18.0, 9.0]
    tied = nb.grad(lambda p: p["a"] * p["b"][0])
    assert tied({"a": x, "b": [x]})["b"][0].item() == 3.0


def test_the_third_derivative():
    f = nb.grad(nb.grad(nb.grad(lambda x: x**5)))
    assert f(nb.constant(2.0)).item() == 240.0


def test_an_argument_that_is_returned_or_ignored():
    x, y = nb.constant([1.0, 2.0]), nb.constant(5.0)
    assert nb.grad(lambda x: x)(x).tolist() == [1.0, 1.0]
    a, b = nb.grad(lambda x, y: nb.sum(x), (0, 1))(x, y)
    assert a.tolist() == [1.0, 1.0] and b.item() == 0.0
    assert nb.grad(lambda x: nb.constant(1.0))(x).tolist() == [0.0, 0.0]
    out, u = nb.jvp(lambda x: nb.ones(2), (x,), (x,))
    assert u.tolist() == [0.0, 0.0]


def test_a_value_can_be_looked_at_under_grad():
    def f(x):
        return nb.sum(x * x) if x.sum() > 0 else nb.sum(x)

    assert nb.grad(f)(nb.constant([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert nb.grad(f)(nb.constant([-1.0, -2.0])).tolist() == [1.0, 1.0]
    printed = nb.grad(lambda x: (str(x * 2), nb.sum(x * x * 2))[1])
    assert printed(nb.constant([1.0])).tolist() == [4.0]


# grad: arguments and results.


def test_gradients_have_the_structure_of_their_argument():
    def f(p, scale=1.0):
        return nb.sum(p["w"] * p["more"][1]) * scale * p["more"][2].first

    p = {
        "w": nb.constant([1.0, 2.0]),
        "name": "layer",
        "more": [
            nb.arange(2),
            nb.constant(3.0),
            Pair(nb.constant(2.0), None),
        ],
    }
    g = nb.grad(f)(p, scale=2.0)
    assert list(g) == ["w", "name", "more"] or set(g) == set(p)
    assert g["w"].tolist() == [12.0, 12.0]
    assert g["name"] is None and g["more"][0] is None
    assert g["more"][1].item() == 12.0
    assert isinstance(g["more"][2], Pair)
    assert g["more"][2].first.item() == 18.0 and g["more"][2].second is None


def test_argnums_select_arguments():
    def f(x, n, y):
        return nb.sum(x * n * y)

    x, n, y = nb.constant([1.0, 2.0]), nb.arange(2), nb.constant(3.0)
    assert nb.grad(f, 2)(x, n, y).item() == 2.0
    assert nb.grad(f, -1)(x, n, y).item() == 2.0
    only = nb.grad(f, (0,))(x, n, y)
    assert isinstance(only, tuple) and only[0].tolist() == [0.0, 3.0]
    a, b, c = nb.grad(f, [0, 1, 2])(x, n, y)
    assert b is None and c.item() == 2.0
    for bad in (3, -4, (0, 3), (1, 1), (0, -3)):
        with pytest.raises(ValueError, match="argument"):
            nb.grad(f, bad)(x, n, y)
    with pytest.raises(TypeError):
        nb.grad(f, "x")(x, n, y)


def test_aux_comes_along():
    def f(x):
        return nb.sum(x * x), {"twice": x * 2, "n": 5}

    x = nb.constant([1.0, 2.0])
    g, aux = nb.grad(f, has_aux=True)(x)
    assert g.tolist() == [2.0, 4.0]
    assert aux["twice"].tolist() == [2.0, 4.0] and aux["n"] == 5
    (value, aux), g = nb.value_and_grad(f, has_aux=True)(x)
    assert value.item() == 5.0 and aux["n"] == 5
    out, pullback, aux = nb.vjp(f, x, has_aux=True)
    assert pullback(nb.constant(1.0))[0].tolist() == [2.0, 4.0]
    out, u, aux = nb.jvp(f, (x,), (x,), has_aux=True)
    assert u.item() == 10.0 and aux["n"] == 5
    jac, aux = nb.jacrev(f, has_aux=True)(x)
    assert jac.tolist() == [2.0, 4.0] and aux["n"] == 5
    hess, aux = nb.hessian(f, has_aux=True)(x)
    assert hess.tolist() == [[2.0, 0.0], [0.0, 2.0]] and aux["n"] == 5
    with pytest.raises(ValueError, match="has_aux"):
        nb.grad(nb.sum, has_aux=True)(x)


def test_what_grad_refuses():
    x = nb.constant([1.0, 2.0])
    for result in ((x, x), {"a": x}, 1.0, None):
        with pytest.raises(TypeError, match="one tensor"):
            nb.grad(lambda x, y=result: y)(x)
    for given in (2.0, {"a": 1}, None, np.ones(2)):
        with pytest.raises(ValueError, match="no tensor"):
            nb.grad(lambda x: nb.sum(nb.ones(2)))(given)
    assert nb.grad(lambda x: nb.sum(x * 1.0))(nb.arange(3)) is None


def test_without_a_graph_gradients_have_no_history():
    x = nb.constant([1.0, 2.0], requires_grad=True)
    g = nb.grad(lambda x: nb.sum(x**3), create_graph=False)(x)
    assert g.real and g.is_leaf and not g.is_traced
    g = nb.grad(lambda x: nb.sum(x**3), create_graph=False, realize=False)(x)
    assert not g.real
    g = nb.grad(lambda x: nb.sum(x**3))(x)
    assert not g.real and g.is_traced
    inner = nb.grad(lambda x: nb.sum(x**3), create_graph=False)
    assert nb.grad(lambda x: nb.sum(inner(x)))(x).tolist() == [0.0, 0.0]


def test_stop_gradient_of_trees():
    x = nb.constant(3.0)

    def f(x):
        kept = nb.stop_gradient({"a": x, "b": (x, 2, None)})
        return kept["a"] * x + kept["b"][0] * kept["b"][1]

    assert nb.grad(f)(x).item() == 3.0
    assert nb.grad(lambda x: x.detach() * x)(x).item() == 3.0
    y, u = nb.jvp(f, (x,), (nb.constant(1.0),))
    assert y.item() == 15.0 and u.item() == 3.0


# vjp, jvp, linearize.


def test_a_pullback_is_used_again_and_takes_trees():
    x, n = nb.constant([1.0, 2.0]), nb.arange(2)
    calls = []

    def f(p, n):
        calls.append(1)
        return {"a": p["x"] * n, "b": (p["x"], n)}

    out, pullback = nb.vjp(f, {"x": x}, n)
    assert out["b"][1].tolist() == [0, 1]
    ct = {"a": nb.ones(2), "b": (nb.ones(2), None)}
    back = pullback(ct)
    assert isinstance(back, tuple) and len(back) == 2
    assert back[0]["x"].tolist() == [1.0, 2.0] and back[1] is None
    ct["a"] = np.array([5.0, 5.0], np.float32)
    assert pullback(ct)[0]["x"].tolist() == [1.0, 6.0]
    assert len(calls) == 1
    for bad in (nb.ones(2), {"a": nb.ones(2)}, [nb.ones(2)] * 3):
        with pytest.raises(ValueError, match="mismatch"):
            pullback(bad)
    with pytest.raises(ValueError, match="shape"):
        pullback({"a": nb.ones(3), "b": (nb.ones(2), None)})
    out, pullback = nb.vjp(lambda x: x, x)
    with pytest.raises(ValueError, match="mismatch"):
        pullback((x, x))
    with pytest.raises(TypeError, match="str"):
        pullback("ones")


def test_a_pullback_is_differentiable():
    def f(x, ct):
        return nb.vjp(nb.sin, x)[1](ct)[0]

    x, ct = nb.constant(0.5), nb.constant(2.0)
    a, b = nb.grad(f, (0, 1))(x, ct)
    assert a.item() == pytest.approx(-2 * np.sin(0.5))
    assert b.item() == pytest.approx(np.cos(0.5))


def test_tangents_fit_their_primals():
    x, n = nb.constant([1.0, 2.0]), nb.arange(2)

    def f(p, n):
        return {"y": p[0] * p[1] * n, "n": n}

    out, u = nb.jvp(f, ([x, x], n), ([nb.ones(2), None], None))
    assert u["y"].tolist() == [0.0, 2.0]
    assert u["n"].tolist() == [0, 0]
    with pytest.raises(TypeError, match="tuples"):
        nb.jvp(nb.sin, x, x)
    with pytest.raises(TypeError, match="tuples"):
        nb.jvp(nb.sin, (x,), [x])
    with pytest.raises(ValueError, match="2 tangents for 1"):
        nb.jvp(nb.sin, (x,), (x, x))
    with pytest.raises(ValueError, match="mismatch"):
        nb.jvp(f, ([x, x], n), ([x], None))
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        nb.jvp(nb.sin, (x,), (nb.ones(3),))
    _, linear = nb.linearize(f, [x, x], n)
    assert linear([x, x], None)["y"].tolist() == [0.0, 8.0]
    with pytest.raises(ValueError, match="1 tangents for 2"):
        linear([x, x])


def test_results_that_are_numbers_or_nothing():
    x = nb.constant(2.0)
    out, pullback = nb.vjp(lambda x: (x * x, 3.0), x)
    assert pullback((1.0, 1.0))[0].item() == 4.0
    with pytest.raises(TypeError, match="str"):
        nb.vjp(lambda x: "text", x)
    with pytest.raises(TypeError, match="str"):
        nb.jvp(lambda x: {"a": "text"}, (x,), (x,))


# Jacobians.


def test_blocks_nest_as_results_of_arguments():
    def f(p, y, *, scale):
        return {"a": p["x"] * y * scale, "b": [nb.sum(p["x"]), p["z"]]}

    x, y, z = nb.ones((2, 3)), nb.constant(2.0), nb.ones(2)
    for jac in (nb.jacrev, nb.jacfwd):
        found = jac(f)({"x": x, "z": z}, y, scale=3.0)
        assert found["a"][0]["x"].shape == (2, 3, 2, 3)
        assert found["a"][0]["z"].shape == (2, 3, 2)
        assert found["a"][1].tolist() == [[3.0] * 3] * 2
        assert found["b"][0][0]["x"].tolist() == [[1.0] * 3] * 2
        assert found["b"][1][0]["z"].tolist() == [[1.0, 0.0], [0.0, 1.0]]
        assert found["b"][1][1].tolist() == [0.0, 0.0]
        only = jac(f, 1)({"x": x, "z": z}, y, scale=3.0)
        assert only["a"].shape == (2, 3)
        for bad in (2, (0, 5)):
            with pytest.raises(ValueError, match="argument"):
                jac(f, bad)({"x": x, "z": z}, y, scale=3.0)


def test_jacobians_in_pieces_are_the_same():
    x = tensor(np.linspace(-1.0, 1.0, 7))

    def f(x):
        return nb.sin(x[:, None] * x)

    whole = nb.jacrev(f)(x).numpy()
    assert whole.shape == (7, 7, 7)
    for chunk in (1, 3, 7, 100):
        for jac in (nb.jacrev, nb.jacfwd):
            close(jac(f, chunk_size=chunk)(x), whole, 1e-12)
    close(nb.vmap(nb.jacfwd(f, chunk_size=2))(nb.stack([x, x]))[1], whole)
    old = nb.transforms.utils.jacobian_budget()
    try:
        nb.transforms.utils.jacobian_budget(1)
        close(nb.jacrev(f)(x), whole, 1e-12)
    finally:
        nb.transforms.utils.jacobian_budget(old)
    with pytest.raises(ValueError, match="chunk_size"):
        nb.jacrev(f, chunk_size=0)


def test_jacobians_of_integers():
    x, n = nb.constant([1.0, 2.0]), nb.arange(2)
    block, none = nb.jacrev(lambda x, n: x * n)(x, n)
    assert block.tolist() == [[0.0, 0.0], [0.0, 1.0]] and none is None
    with pytest.raises(TypeError, match="int64"):
        nb.jacrev(lambda x: nb.argmax(x))(x)


def test_empty_and_scalar_jacobians():
    assert nb.jacrev(lambda x: x * 2)(nb.ones(0)).shape == (0, 0)
    assert nb.jacfwd(lambda x: x * 2)(nb.ones(0)).shape == (0, 0)
    assert nb.hessian(lambda x: x**3)(nb.constant(2.0)).item() == 12.0


def test_the_hessian_of_every_pair_of_arguments():
    found = nb.hessian(lambda x, y: x * x * y)(
        nb.constant(2.0), nb.constant(3.0)
    )
    assert [[h.item() for h in row] for row in found] == [
        [6.0, 4.0],
        [4.0, 0.0],
    ]


# backward.


def leaf(*x):
    return nb.constant(list(x) if x else 3.0, requires_grad=True)


def test_backward_sets_every_grad_it_reaches():
    x, y, other = leaf(1.0, 2.0), leaf(), leaf()
    z = x * y
    z.requires_grad = True
    nb.sum(z * z).backward()
    assert x.grad.tolist() == [18.0, 36.0]
    assert y.grad.item() == 30.0
    assert z.grad.tolist() == [6.0, 12.0]
    assert other.grad is None
    assert x.grad.real and x.grad.is_leaf and not x.grad.requires_grad


def test_gradients_are_replaced_or_added():
    x = leaf(1.0, 2.0)
    loss = nb.sum(x * x)
    loss.backward()
    loss.backward()
    assert x.grad.tolist() == [2.0, 4.0]
    loss.backward(accumulate=True)
    assert x.grad.tolist() == [4.0, 8.0]
    x.grad = None
    loss.backward(accumulate=True)
    assert x.grad.tolist() == [2.0, 4.0]


def test_backward_needs_a_gradient_for_more_than_one_element():
    x = leaf(1.0, 2.0)
    y = x * x
    with pytest.raises(ValueError, match=r"\(2,\)"):
        y.backward()
    with pytest.raises(ValueError, match=r"\(1, 1\)"):
        nb.sum(y).reshape(1, 1).backward()
    assert x.grad is None
    nb.sum(y).reshape(1).backward()
    assert x.grad.tolist() == [2.0, 4.0]
    y.backward(nb.constant([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 40.0]
    y.backward(np.array([1.0, 1.0], np.float32), True)
    assert x.grad.tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match="shape"):
        y.backward(nb.ones(3))


def test_backward_from_a_leaf_gives_the_cotangent():
    x = leaf()
    x.backward()
    assert x.grad.item() == 1.0
    x.backward(nb.constant(5.0))
    assert x.grad.item() == 5.0
    nb.constant(1.0).backward()  # nothing to reach


def test_backward_twice_with_a_graph():
    x = leaf()
    (x * x * x).backward(create_graph=True)
    assert x.grad.item() == 27.0 and x.grad.is_traced
    first = x.grad
    first.backward()
    assert x.grad.item() == 18.0
    assert not x.grad.is_traced


def test_backward_of_a_tree():
    x, y = leaf(1.0, 2.0), leaf()
    out = {"a": x * y, "b": [nb.sum(x), None]}
    ct = {"a": nb.ones(2), "b": [None, None]}
    nb.backward(out, ct)
    assert x.grad.tolist() == [4.0, 4.0] and y.grad.item() == 3.0
    nb.backward([nb.sum(x), y])
    assert x.grad.tolist() == [1.0, 1.0] and y.grad.item() == 1.0
    with pytest.raises(ValueError, match="mismatch"):
        nb.backward(out, {"a": nb.ones(2)})
    with pytest.raises(ValueError, match="needs a gradient"):
        nb.backward(out)


def test_history_survives_being_looked_at():
    x = leaf(1.0, 2.0)
    y = x * x
    assert y.tolist() == [1.0, 4.0]
    z = nb.sum(y * y)
    assert z.item() == 17.0
    z.backward()
    assert x.grad.tolist() == [4.0, 32.0]


def test_detached_and_unmarked_values_are_not_reached():
    x = leaf(1.0, 2.0)
    nb.sum(x.detach() * 3.0 + x).backward()
    assert x.grad.tolist() == [1.0, 1.0]
    y = x * 2
    x.requires_grad = False
    x.grad = None
    nb.sum(y).backward()
    assert x.grad is None


def test_a_lazy_tensor_that_requires_grad_becomes_a_leaf():
    w = nb.ones((2,)) * 3.0
    assert not w.is_leaf
    w.requires_grad_()
    assert w.is_leaf and w.requires_grad
    nb.sum(w * w).backward()
    w -= 0.5 * w.grad
    assert w.tolist() == [0.0, 0.0] and w.requires_grad
    made = nb.randn(3, requires_grad=True)
    assert made.is_leaf


def test_an_update_in_place_keeps_the_leaf():
    w = leaf(1.0, 2.0)
    before = w
    nb.sum(w * w).backward()
    w -= 0.25 * w.grad
    assert w is before and w.is_leaf and w.requires_grad
    assert w.tolist() == [0.5, 1.0] and w.grad.tolist() == [2.0, 4.0]
    nb.sum(w * w).backward()
    assert w.grad.tolist() == [1.0, 2.0]
    w *= 2.0
    w += 1.0
    w /= 2.0
    assert w.tolist() == [1.0, 1.5] and w.is_leaf
    # a handle inside a transform is no such leaf
    g = nb.grad(lambda x: nb.sum(_added(x)))(w)
    assert g.tolist() == [2.0, 2.0] and w.tolist() == [1.0, 1.5]


def _added(x):
    x += x
    return x


def test_assigning_to_a_part_is_differentiated():
    x, v = leaf(1.0, 2.0, 3.0), leaf()
    y = x * 2
    y[1] = v
    nb.sum(y * y).backward()
    assert x.grad.tolist() == [8.0, 0.0, 24.0] and v.grad.item() == 6.0


def test_copies_that_require_grad_have_their_own():
    import copy
    import pickle

    x = leaf(1.0, 2.0)
    nb.sum(x).backward()
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.requires_grad and y.is_leaf
        nb.sum(y * 3.0).backward()
        assert y.grad.tolist() == [3.0, 3.0]
    assert x.grad.tolist() == [1.0, 1.0]


def test_training_does_not_grow():
    rng = np.random.default_rng(0)
    x = nb.constant(rng.normal(size=(8, 3)).astype(np.float32))
    y = nb.constant(rng.normal(size=(8, 1)).astype(np.float32))
    w = nb.constant(rng.normal(size=(3, 1)).astype(np.float32))
    b = nb.zeros(1)
    w.requires_grad = b.requires_grad = True
    live, losses = [], []
    for step in range(1000):
        loss = nb.mean((nb.tanh(x @ w) + b - y) ** 2)
        loss.backward()
        w -= 0.05 * w.grad
        b -= 0.05 * b.grad
        if step % 100 == 99:
            losses.append(loss.item())
            if w.device != nb.CPU():
                nb.clear_caches()  # graphs for addresses that come late
            gc.collect()
            used = nb.memory_stats(w.device)["used"]
            live.append(_nabla.stats() | {"used": used})
    assert losses == sorted(losses, reverse=True)
    assert len({s["nodes_live"] for s in live}) == 1
    assert len({s["allocations_live"] for s in live}) == 1
    assert len({s["bytes_in_use"] for s in live}) == 1
    assert len({s["used"] for s in live}) == 1


def test_functional_training_does_not_grow():
    def loss(p, x):
        return nb.mean((x @ p["w"] + p["b"]) ** 2)

    p = {"w": nb.ones((3, 2)), "b": nb.ones(2)}
    x, step = nb.ones((4, 3)), nb.value_and_grad(loss)
    live = []
    for i in range(1000):
        value, g = step(p, x)
        p = nb.tree_map(lambda a, b: a - 0.01 * b, p, g)
        nb.realize_all(value, *nb.tree_leaves(p))
        if i % 200 == 199:
            gc.collect()
            live.append(_nabla.stats()["nodes_live"])
    assert len(set(live)) == 1


def test_nothing_is_left_behind():
    x = nb.constant([1.0, 2.0, 3.0])
    clip = nb.custom_vjp(lambda x: x)
    clip.defvjp(lambda x: (x, x), lambda res, ct: (ct * res,))

    def everything():
        nb.hessian(lambda x: nb.sum(nb.sin(x)))(x).realize()
        nb.vmap(nb.grad(lambda x: nb.checkpoint(nb.sin)(x)))(x).realize()
        nb.grad(lambda x: nb.sum(clip(x)))(x).realize()
        nb.linearize(nb.sin, x)[1](x).realize()
        str(nb.trace(nb.sin, x))
        y = leaf(1.0)
        nb.sum(y * y).backward()

    seen = []
    for _ in range(4):
        everything()
        gc.collect()
        seen.append(_nabla.stats()["nodes_live"])
    assert seen[1] == seen[2] == seen[3]


# Rules that know where their function was called.


def summed(x):
    return nb.all_reduce(x, reduce_axes="i")


def talking(kind):
    """sin(x_i) sum_j x_j^2, with a rule of its own that sums over lanes."""

    def f(x):
        return nb.sin(x) * summed(x * x)

    def pull(x, ct):
        own = ct * nb.cos(x) * summed(x * x)
        return (own + 2 * x * summed(ct * nb.sin(x)),)

    def push(x, u):
        (x,), (u,) = x, u
        own = u * nb.cos(x) * summed(x * x)
        return f(x), own + 2 * nb.sin(x) * summed(x * u)

    if kind == "plain":
        return f
    own = nb.custom_vjp(f) if kind == "vjp" else nb.custom_jvp(f)
    if kind == "vjp":
        own.defvjp(lambda x: (f(x), x), pull)
    else:
        own.defjvp(push)
    return own


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
@pytest.mark.parametrize("name", ["axis_name", "spmd_axis_name"])
def test_a_rule_finds_the_lanes_of_its_call(kind, name):
    def loss(kind):
        each = nb.vmap(talking(kind), **{name: "i"})
        return lambda x: nb.sin(each(x)).sum()

    x = nb.constant([0.3, -0.7, 1.1])
    for make in (
        nb.grad,
        nb.jacfwd,
        lambda f: nb.grad(lambda x: nb.grad(f)(x)[0]),
        lambda f: nb.compile(nb.grad(f)),
        lambda f: lambda x: nb.vmap(nb.grad(f))(nb.stack([x, 2 * x])),
    ):
        got, want = make(loss(kind))(x), make(loss("plain"))(x)
        nb.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="no open vmap"):
        nb.all_reduce(x, reduce_axes="i")


def closing(kind, w):
    """y w, where what flows to w is ignored."""
    if kind == "plain":
        return lambda y: y * nb.stop_gradient(w)
    if kind == "vjp":
        own = nb.custom_vjp(lambda y: y * w)
        own.defvjp(lambda y: (y * w, None), lambda res, ct: (ct * w,))
    else:
        own = nb.custom_jvp(lambda y: y * w)
        own.defjvp(lambda x, u: (x[0] * w, u[0] * w))
    return own


def loops(kind):
    def step(c, x):
        return closing(kind, nb.cos(c) * 2)(x) + 0.5 * c

    def scanned(c, x):
        return nb.scan(lambda c, t: (step(c, t * x), c), c, nb.arange(1.0, 5))

    def inner(c, x):
        return nb.scan(
            lambda d, t: (step(c, d) + closing(kind, nb.sin(c))(t * x), d),
            c * x,
            nb.arange(3.0),
        )

    return {
        "scan": lambda c, x: scanned(c, x)[0] + scanned(c, x)[1].sum(),
        "scan in scan": lambda c, x: nb.scan(
            lambda c, t: (inner(c, x)[0], None), c, None, length=2
        )[0],
        "cond": lambda c, x: nb.cond(c > 0, step, lambda c, x: c, c, x),
        "while": lambda c, x: nb.while_loop(
            lambda s: s[1] * s[1] < 9,
            lambda s: (step(s[0], x * s[0]), s[1] + 1),
            (c, nb.constant(0)),
        )[0],
        "checkpoint": nb.checkpoint(step),
    }


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
@pytest.mark.parametrize("name", loops("plain"))
def test_a_rule_may_close_over_what_a_loop_computes(kind, name):
    c, x = nb.constant(0.3), nb.constant(0.8)
    own, plain = loops(kind)[name], loops("plain")[name]
    for make in (
        lambda f: f,
        lambda f: nb.grad(f, argnums=(0, 1)),
        lambda f: lambda c, x: nb.jvp(f, (c, x), (x, c)),
        lambda f: nb.compile(nb.grad(f)),
        lambda f: lambda c, x: nb.vmap(nb.grad(f), (0, None))(
            nb.stack([c, x]), x
        ),
    ):
        for got, want in zip(
            nb.tree_leaves(make(own)(c, x)),
            nb.tree_leaves(make(plain)(c, x)),
            strict=True,
        ):
            nb.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_rule_in_a_while_loop_walked_back_may_call_another():
    """What each turn keeps is added to what is recorded as the rule runs."""

    def with_rule(f):
        own = nb.custom_jvp(f)
        own.defjvp(lambda x, u: nb.jvp(f, x, u))
        return own

    def loop(with_rule):
        def body(state):
            i, *c = state
            inner = with_rule(lambda y: nb.sin(y) * nb.exp(y * 0.1))
            outer = with_rule(lambda *c: sum(inner(y * c[0]) for y in c))
            return i + 1, *(nb.cos(y) * outer(*c) for y in c)

        def f(x):
            init = (nb.constant(0), *(x * k for k in range(1, 8)))
            return sum(nb.while_loop(lambda s: s[0] * s[0] < 4, body, init)[1:])

        return f

    x = nb.constant([0.3, 0.4])
    for make in (
        nb.jacrev,
        lambda f: nb.vmap(nb.grad(f)),
        lambda f: nb.jacfwd(nb.jacrev(f)),
        lambda f: nb.vmap(nb.grad(nb.grad(f))),
    ):
        got, want = make(loop(with_rule))(x), make(loop(lambda f: f))(x)
        nb.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


# Exceptions and threads.


def test_an_exception_leaves_no_trace_and_names_the_transforms():
    x = nb.ones((2, 3))

    def boom(x):
        raise KeyError("mine")

    inside = nb.grad(nb.vmap(nb.jacrev(nb.vmap(nb.checkpoint(boom)))))
    for _ in range(200):  # more than can be open
        with pytest.raises(KeyError, match="mine") as raised:
            inside(x)
    said = "\n".join(raised.value.__notes__)
    order = [said.index(w) for w in ("vmap of", "jacrev of", "grad of")]
    assert order == sorted(order) and "boom" in said
    y = nb.ones(3)
    assert y.batch_dims == 0 and not (y * 2).is_traced
    with pytest.raises(ValueError, match="no open vmap"):
        nb.ops.communication.axis_index(axis_name="i")
    assert nb.grad(lambda x: nb.sum(x))(y).tolist() == [1.0] * 3


def test_transforms_in_several_threads():
    failed = []

    def work(k):
        x = tensor(np.linspace(0.1, 1.0, 5) * k)
        for _ in range(20):
            h = nb.hessian(lambda x: nb.sum(nb.sin(x) * x))(x).numpy()
            a = x.numpy()
            want = np.diag(2 * np.cos(a) - a * np.sin(a))
            g = nb.vmap(nb.grad(lambda a: nb.cos(a) * k))(x).numpy()
            ok = np.allclose(h, want) and np.allclose(g, -np.sin(a) * k)
            if not ok:
                failed.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_recorded_programs_do_not_depend_on_the_batch():
    def f(w, x):
        return nb.sum(nb.tanh(x @ w) ** 2)

    def nodes(fn, *args):
        return len(nb.trace(fn, *args).nodes)

    w = nb.ones((3, 3))
    per_sample = nb.vmap(nb.grad(f), in_axes=(None, 0))
    jacobian = nb.jacrev(nb.vmap(f, in_axes=(None, 0)))
    for fn in (per_sample, jacobian):
        sizes = {nodes(fn, w, nb.ones((n, 3))) for n in (2, 7, 40)}
        assert len(sizes) == 1


# vmap.


def test_axes_in_and_out():
    x = tensor(np.arange(24.0).reshape(2, 3, 4))
    y = nb.vmap(lambda a: a * 2, in_axes=1, out_axes=2)(x)
    close(y, np.moveaxis(x.numpy() * 2, 1, 2))
    y = nb.vmap(lambda a: a, in_axes=-1, out_axes=-1)(x)
    close(y, x.numpy())
    y = nb.vmap(nb.vmap(lambda a: a.sum(), in_axes=1), in_axes=0)(x)
    close(y, x.numpy().sum(axis=1))
    decorated = nb.vmap(in_axes=(0, None))(lambda a, b: a + b)
    close(decorated(x, 1.0), x.numpy() + 1)

    @nb.vmap
    def doubled(a):
        """Twice a."""
        return a * 2

    close(doubled(x), x.numpy() * 2)
    assert doubled.__name__ == "doubled" and doubled.__doc__ == "Twice a."


def test_axes_are_prefixes_of_trees():
    x, y = nb.constant([[1.0, 2.0], [3.0, 4.0]]), nb.constant(10.0)

    def f(p, q):
        return {"sum": p["x"] + q[0][0] + q[1], "same": q[1], "none": None}

    given = {"x": x, "more": [x]}, ([x], y)
    g = nb.vmap(
        f,
        in_axes=({"x": 0, "more": 1}, (0, None)),
        out_axes={"sum": 1, "same": None, "none": 0},
    )
    out = g(*given)
    assert out["sum"].tolist() == [[12.0, 16.0], [14.0, 18.0]]
    assert out["same"].item() == 10.0 and out["none"] is None
    one = nb.vmap(lambda p: p["x"] * p["y"], in_axes={"x": 0, "y": None})
    assert one({"x": x, "y": y}).tolist() == [[10.0, 20.0], [30.0, 40.0]]
    pair = nb.vmap(lambda p: Pair(p.second, p.first))(Pair(x, x * 2))
    assert isinstance(pair, Pair) and pair.first.tolist() == (x * 2).tolist()
    listed = nb.vmap(lambda p: p[::-1], in_axes=([0, None],))([x, y])
    assert isinstance(listed, list) and listed[0].tolist() == [10.0, 10.0]


def test_sizes_given_and_found():
    x = nb.ones((3, 2))
    wide = nb.vmap(lambda a: a * 2, in_axes=None, axis_size=4)
    assert wide(x).shape == (4, 3, 2)
    assert nb.vmap(lambda a: a, axis_size=3)(x).shape == (3, 2)
    assert nb.vmap(lambda a: nb.zeros(5))(x).shape == (3, 5)
    assert nb.vmap(lambda a: 1.0)(x).tolist() == [1.0] * 3
    assert nb.vmap(lambda a: nb.sum(a))(nb.ones((0, 2))).shape == (0,)
    assert nb.vmap(lambda a: a, out_axes=1)(nb.ones((0, 2))).shape == (2, 0)


def test_what_vmap_refuses():
    x, y = nb.ones((3, 2)), nb.ones((2, 2))

    def same(*a):
        return a[0]

    def raises(error, match, *args, **options):
        with pytest.raises(error, match=match):
            nb.vmap(options.pop("f", same), **options)(*args)

    raises(ValueError, "2 lanes.*3", x, y)
    raises(ValueError, r"argument 0\['a'\]", {"a": x}, y, in_axes=[{"a": 0}, 0])
    raises(ValueError, "3 lanes.*axis_size 5", x, axis_size=5)
    raises(ValueError, "no axis", nb.constant(1.0))
    raises(ValueError, "no axis", 2.0)
    raises(ValueError, "axis_size", x, in_axes=None)
    raises(nb.AxisError, "no axis 2", x, in_axes=2)
    raises(ValueError, "2 entries for 1", x, in_axes=(0, 0))
    raises(ValueError, "at least one")
    raises(ValueError, "argument 0 is a Tensor", x, in_axes=([0],))
    raises(ValueError, "a list of 1", [x], in_axes=([0, 0],))
    raises(ValueError, "keys", {"a": x}, in_axes={"b": 0})
    raises(TypeError, "dict", x, y, in_axes={"a": 0})
    raises(TypeError, "str", x, in_axes="rows")
    raises(TypeError, "float", x, in_axes=0.5)
    raises(TypeError, "bool", x, in_axes=(True,))
    raises(TypeError, "str", x, out_axes="rows")
    raises(TypeError, "str", x, "text")
    raises(nb.AxisError, "no place", x, out_axes=2)
    raises(ValueError, "differs", x, out_axes=None)
    raises(ValueError, "the result", x, out_axes=(0, 0))
    raises(TypeError, "str", x, f=lambda a: "text")
    raises(ValueError, "axis_size", x, in_axes=None, axis_size=-1)
    raises(ValueError, "lane", x[0], f=lambda a: a if a > 0 else -a)
    with pytest.raises(TypeError):
        nb.vmap(same)(a=x)
    assert nb.ones(2).batch_dims == 0


def test_mapped_axes_are_hidden():
    seen = []

    def look(a, b):
        seen.append((a.shape, a.batch_dims, a.batch_shape, a.global_shape))
        return a + b

    x = nb.ones((2, 3, 4))
    nb.vmap(nb.vmap(look, in_axes=(1, None)), in_axes=(0, None))(x, 1.0)
    # the newest in front
    assert seen == [((3,), 2, (4, 2), (4, 2, 3))]


def test_two_vmaps_may_map_different_operands():
    x, y = tensor(np.arange(6.0).reshape(2, 3)), tensor(np.arange(4.0))
    f = nb.vmap(lambda a: nb.vmap(lambda b: nb.sum(a) * b)(y))
    close(f(x), x.numpy().sum(1)[:, None] * y.numpy())
    g = nb.grad(lambda y: nb.sum(nb.vmap(lambda a: nb.sum(a * y[:3]))(x)))
    close(g(y), np.array([*x.numpy().sum(0), 0.0]))


def test_reductions_over_a_named_axis():
    x = f64(1.0, 2.0, 4.0)
    comm = nb.ops.communication

    def over(f, **kw):
        return nb.vmap(f, axis_name="i", **kw)(x).tolist()

    for op, want in [("sum", 7.0), ("max", 4.0), ("min", 1.0), ("prod", 8.0)]:
        f = nb.vmap(
            lambda a, op=op: nb.all_reduce(a, reduce_op=op, reduce_axes="i"),
            axis_name="i",
        )
        assert f(x).tolist() == [want] * 3
    assert over(lambda a: a - comm.pmean(a, "i"))[2] == pytest.approx(5 / 3)
    assert over(lambda a: comm.axis_index(axis_name="i")) == [0, 1, 2]
    assert comm.axis_index is not None
    index = nb.vmap(lambda a: comm.axis_index(axis_name="i"), axis_name="i")(x)
    assert index.dtype == nb.int32
    shared = nb.vmap(
        lambda a: nb.all_reduce(nb.constant(2.0), reduce_axes="i"),
        axis_name="i",
        out_axes=None,
    )
    assert shared(x).item() == 6.0
    with pytest.raises(ValueError, match="'j'"):
        over(lambda a: nb.all_reduce(a, reduce_axes="j"))
    with pytest.raises(ValueError, match="reduce_op"):
        over(lambda a: nb.all_reduce(a, reduce_op="mean", reduce_axes="i"))
    assert nb.all_reduce(x).tolist() == x.tolist()


def test_permutes_along_a_named_axis():
    x = f64(1.0, 2.0, 4.0)
    ring = [(0, 1), (1, 2), (2, 0)]
    for options in ({"axis_name": "i"}, {"spmd_axis_name": "stage"}):
        moved = nb.vmap(lambda a: nb.ppermute(a, ring), **options)
        assert moved(x).tolist() == [4.0, 1.0, 2.0]
        back = nb.grad(lambda x, f=moved: nb.sum(f(x) * f64(1.0, 10.0, 100.0)))
        assert back(x).tolist() == [10.0, 100.0, 1.0]
    both = nb.vmap(
        lambda a: nb.ppermute(a, perm=[(0, 2)], axis_name="i"),
        axis_name="i",
        spmd_axis_name="stage",
    )
    assert both(x).tolist() == [0.0, 0.0, 1.0]
    for bad in ([(0, 1), (1, 1)], [(0, 5)]):
        with pytest.raises(ValueError):
            nb.vmap(lambda a, p=bad: nb.ppermute(a, p), axis_name="i")(x)
    with pytest.raises(ValueError, match="either"):
        nb.ppermute(x)
    assert nb.ppermute(x, [(0, 0)]).tolist() == x.tolist()
    assert nb.ppermute(x, []).tolist() == [0.0] * 3


def test_named_axes_of_nested_vmaps_against_jax():
    x = np.arange(6.0).reshape(2, 3) ** 2

    def f(m, psum):
        def body(a):
            return m.sin(a - psum(a, "i")) * psum(m.cos(a), ("i", "j"))

        return body

    def nabla_sum(a, names):
        return nb.all_reduce(a, reduce_axes=names)

    mine = nb.vmap(nb.vmap(f(NABLA, nabla_sum), axis_name="j"), axis_name="i")
    with jax.enable_x64(True):
        theirs = jax.vmap(
            jax.vmap(f(JAX, jax.lax.psum), axis_name="j"), axis_name="i"
        )
        want = np.asarray(theirs(jnp.asarray(x)))
        grads = jax.grad(lambda x: jnp.sum(theirs(x) ** 2))(jnp.asarray(x))
    close(mine(tensor(x)), want)
    close(nb.grad(lambda x: nb.sum(mine(x) ** 2))(tensor(x)), grads, 1e-7)


# Hidden axes by hand.


def test_axes_are_hidden_and_shown_by_hand():
    x = tensor(np.arange(24.0).reshape(2, 3, 4))
    y = nb.incr_batch_dims(x)
    assert (y.batch_dims, y.shape, y.global_shape) == (1, (3, 4), (2, 3, 4))
    z = nb.incr_batch_dims(y)
    assert (z.batch_shape, z.shape) == ((2, 3), (4,))
    close(nb.decr_batch_dims(nb.decr_batch_dims(z)), x.numpy())
    w = nb.move_axis_to_batch_dims(x, 2)
    assert (w.batch_shape, w.shape) == ((4,), (2, 3))
    w = nb.move_axis_to_batch_dims(w, -1)
    assert (w.batch_shape, w.shape) == ((3, 4), (2,))
    back = nb.move_axis_from_batch_dims(w, 1, 1)
    assert (back.batch_shape, back.shape) == ((3,), (2, 4))
    close(nb.move_axis_from_batch_dims(back, 0, 1), x.numpy())
    for f in (nb.decr_batch_dims, nb.move_axis_from_batch_dims):
        with pytest.raises(ValueError, match="hidden"):
            f(x)
    with pytest.raises(nb.AxisError):
        nb.move_axis_to_batch_dims(x, 3)
    assert x.incr_batch_dims().batch_dims == 1


def test_hidden_axes_align_from_the_visible_ones():
    x, y = tensor(np.arange(6.0).reshape(2, 3)), tensor(np.arange(2.0))
    a, b = nb.incr_batch_dims(x), nb.incr_batch_dims(y)
    close(nb.decr_batch_dims(a * b), x.numpy() * y.numpy()[:, None])
    c = nb.move_axis_to_batch_dims(x, 0)
    close(nb.decr_batch_dims(a + c), 2 * x.numpy())


def test_physical_axes():
    x = nb.incr_batch_dims(tensor(np.arange(24.0).reshape(2, 3, 4)))
    view = nb.ops.view
    s = nb.reduce_sum_physical(x, 0)
    assert (s.global_shape, s.batch_dims) == ((2, 4), 1)
    s = nb.reduce_sum_physical(x, -3)
    assert (s.global_shape, s.batch_dims) == ((3, 4), 0)
    close(s, np.arange(24.0).reshape(2, 3, 4).sum(0))
    s = nb.mean_physical(x, -1, keepdims=True)
    assert (s.global_shape, s.batch_dims) == ((2, 3, 1), 1)
    s = nb.ops.reduction.reduce_max_physical(x, (-3, -1), keepdims=True)
    assert (s.global_shape, s.batch_dims) == ((1, 3, 1), 1)
    assert nb.unsqueeze_physical(x, 0).global_shape == (2, 1, 3, 4)
    wide = nb.unsqueeze_physical(x, -4)
    assert (wide.global_shape, wide.batch_dims) == ((1, 2, 3, 4), 2)
    assert nb.squeeze_physical(wide, -4).global_shape == (2, 3, 4)
    b = nb.broadcast_to_physical(nb.incr_batch_dims(nb.ones((1, 3))), (5, 3))
    assert (b.global_shape, b.batch_dims) == ((5, 3), 1)
    longer = nb.broadcast_to_physical(x, (7, 2, 3, 4))
    assert (longer.global_shape, longer.batch_dims) == ((7, 2, 3, 4), 1)
    m = view.moveaxis_physical(x, 0, 2)
    assert (m.global_shape, m.batch_dims) == ((3, 4, 2), 1)
    p = view.broadcast_batch_dims(nb.ones(4), (2, 3))
    assert (p.global_shape, p.batch_dims) == ((2, 3, 4), 2)
    assert view.broadcast_batch_dims(p, (2, 3)).global_shape == (2, 3, 4)
    plain = nb.ones((2, 3))
    assert nb.reduce_sum_physical(plain, 1).tolist() == [3.0, 3.0]
    assert view.moveaxis_physical(plain, 0, 1).shape == (3, 2)


def test_hidden_axes_inside_a_vmap():
    x = tensor(np.arange(24.0).reshape(2, 3, 4))

    def f(a):
        b = nb.move_axis_to_batch_dims(a, 1)
        assert (b.batch_shape, b.shape) == ((4, 2), (3,))
        s = nb.reduce_sum_physical(b, -1)
        return nb.move_axis_from_batch_dims(s)

    close(nb.vmap(f)(x), x.numpy().sum(axis=1))
    summed = nb.vmap(lambda a: nb.reduce_sum_physical(a, -3), out_axes=None)
    close(summed(x), x.numpy().sum(axis=0))
    shown = nb.vmap(lambda a: nb.decr_batch_dims(a), out_axes=None)
    close(shown(x), x.numpy())


def test_the_number_of_hidden_axes_can_be_set():
    x = nb.ones((2, 3, 4))
    x.batch_dims = 2
    assert x.shape == (4,) and x.batch_shape == (2, 3)
    x.batch_dims = 1
    assert x.shape == (3, 4)
    nb.with_batch_dims({"x": x}, -1)
    assert x.shape == (2, 3, 4) and x.batch_shape is None
    with pytest.raises(ValueError):
        x.batch_dims = 4


# Custom rules and checkpoints.


def test_custom_vjp_is_used_in_every_mode():
    @nb.custom_vjp
    def f(p, n):
        """Twice."""
        return {"y": p["x"] * n}

    def fwd(p, n):
        return f(p, n), (p["x"], "static", n)

    def bwd(res, ct):
        x, static, n = res
        assert static == "static" and n == 2
        return {"x": ct["y"] * x * 100, "unused": None}, None

    f.defvjp(fwd, bwd)
    x = f64(1.0, 2.0)
    p = {"x": x, "unused": nb.arange(2)}

    def loss(x):
        return nb.sum(f({"x": x, "unused": nb.arange(2)}, 2)["y"])

    assert f.__name__ == "f" and f(p, 2)["y"].tolist() == [2.0, 4.0]
    assert nb.grad(loss)(x).tolist() == [100.0, 200.0]
    assert nb.jvp(loss, (x,), (x,))[1].item() == 500.0
    assert (
        nb.grad(lambda x: nb.sum(nb.grad(loss)(x)))(x).tolist() == [100.0] * 2
    )
    rows = nb.vmap(nb.grad(lambda x: f({"x": x, "unused": 0}, 2)["y"]))(x)
    assert rows.tolist() == [100.0, 200.0]
    x.requires_grad = True
    loss(x).backward()
    assert x.grad.tolist() == [100.0, 200.0]


def test_custom_vjp_with_arguments_apart():
    @nb.custom_vjp
    def plain(k, x):
        return x

    f = nb.custom_vjp(lambda k, x: k(x), nondiff_argnums=(0,))
    f.defvjp(lambda k, x: (k(x), x), lambda k, res, ct: (ct * k(res),))
    x = nb.constant(2.0)
    assert nb.grad(lambda x: f(nb.square, x))(x).item() == 4.0
    with pytest.raises(AttributeError, match="defvjp"):
        plain(1, x)


def test_what_custom_rules_must_return():
    x = nb.constant(2.0)
    f = nb.custom_vjp(lambda x: x * 2)

    def wrong(fwd, bwd, error, match):
        f.defvjp(fwd, bwd)
        with pytest.raises(error, match=match):
            nb.grad(f)(x)

    wrong(lambda x: x, None, TypeError, "out, res")
    wrong(lambda x: ((x, x), x), None, ValueError, "fwd")
    wrong(lambda x: (x, x), lambda res, ct: ct, ValueError, "tuple")
    wrong(lambda x: (x, x), lambda res, ct: (ct, ct), ValueError, "tuple of 2")
    wrong(lambda x: (x, x), lambda res, ct: ({"a": ct},), ValueError, "mism")

    def raising(res, ct):
        raise KeyError("mine")

    wrong(lambda x: (x, x), raising, KeyError, "mine")
    g = nb.custom_jvp(lambda x: x * 2)
    g.defjvp(lambda p, u: p[0])
    with pytest.raises(TypeError, match="tangent_out"):
        nb.grad(g)(x)


def own_pull(bwd, fwd=lambda x, n: (x * n, None)):
    """x * n with a reverse mode of its own."""
    f = nb.custom_vjp(lambda x, n: x * n)
    f.defvjp(fwd, bwd)
    return lambda x, n: nb.sum(f(x, n))


def own_push(rule):
    """2 * x with a forward mode of its own."""
    f = nb.custom_jvp(lambda x: x * 2)
    f.defjvp(rule)
    return f


@pytest.mark.parametrize(
    "mode",
    [
        lambda f, x, n: nb.grad(f, (0, 1))(x, n),
        lambda f, x, n: nb.jvp(f, (x, n), (x, n)),
        lambda f, x, n: nb.vmap(nb.grad(f), (0, None))(nb.stack([x, x]), n),
        lambda f, x, n: nb.compile(nb.grad(f))(x, n),
    ],
)
def test_shapes_of_what_bwd_and_fwd_give_are_checked(mode):
    x, n = nb.ones(3), nb.constant(2.0)
    for bwd, match in (
        (lambda res, ct: (nb.sum(ct), nb.sum(ct)), r"argument 0 .*not .*3"),
        (lambda res, ct: (nb.stack([ct, ct]), None), r"argument 0 .*2, ?3.*3"),
        (lambda res, ct: (ct, ct), r"argument 1 has shape .*3"),
    ):
        with pytest.raises(ValueError, match="custom_vjp.*" + match):
            mode(own_pull(bwd), x, n)
    for fwd in (
        lambda x, n: (nb.sum(x), None),
        lambda x, n: (x[None] * n, None),
        lambda x, n: ([x * n], None),
    ):
        f = own_pull(lambda res, ct: (nb.ones(3), None), fwd)
        with pytest.raises(ValueError, match="custom_vjp.*fwd"):
            mode(f, x, n)


def test_cotangents_are_in_the_dtype_of_their_argument():
    x, n = nb.ones(3, dtype="float16"), nb.constant(2.0)
    for ct in (nb.full(3, 7.0, dtype="float64"), nb.full(3, 7)):
        f = own_pull(lambda res, _, ct=ct: (ct, None))
        g = nb.grad(f)(x, n)
        assert (g.dtype, g.tolist()) == (nb.float16, [7.0] * 3)


@pytest.mark.parametrize(
    "mode",
    [
        lambda f, x: nb.jvp(f, (x,), (x,)),
        lambda f, x: nb.grad(lambda x: nb.sum(f(x)))(x),
    ],
)
def test_what_the_rule_of_a_custom_jvp_gives_is_checked(mode):
    x = nb.ones(3)
    for rule, match in (
        (lambda p, u: (p[0] * 2, nb.sum(u[0])), "tangent of result 0 .*3"),
        (lambda p, u: (nb.sum(p[0]), nb.sum(u[0])), "result 0 has shape"),
        (lambda p, u: ([p[0]], [u[0]]), "the rule list"),
    ):
        with pytest.raises(ValueError, match="custom_jvp.*" + match):
            mode(own_push(rule), x)
    wide = own_push(lambda p, u: (p[0], nb.cast(u[0], "float64")))
    _, u = nb.jvp(wide, (x,), (x,))
    assert u.dtype == nb.float32


def test_custom_jvp_is_used_in_every_mode():
    f = nb.custom_jvp(lambda x, n: x * n)

    @f.defjvp
    def rule(primals, tangents):
        x, n = primals
        return x * n, tangents[0] * x * 100

    x = f64(1.0, 2.0)
    y, u = nb.jvp(lambda x: f(x, 3), (x,), (nb.ones_like(x),))
    assert y.tolist() == [3.0, 6.0] and u.tolist() == [100.0, 200.0]
    assert nb.grad(lambda x: nb.sum(f(x, 3)))(x).tolist() == [100.0, 200.0]
    assert nb.vmap(nb.grad(lambda x: f(x, 3)))(x).tolist() == [100.0, 200.0]
    assert nb.hessian(lambda x: nb.sum(f(x, 3)))(x).tolist() == [
        [100.0, 0.0],
        [0.0, 100.0],
    ]


def test_a_checkpoint_is_called_once_and_differentiated():
    calls = []

    def f(p, *, scale):
        calls.append(1)
        return {"y": nb.sin(nb.sin(p["x"])) * scale * w}

    w = nb.constant(3.0)
    x = f64(1.0, 2.0)
    want = nb.grad(lambda x: nb.sum(f({"x": x}, scale=2.0)["y"]))(x)
    for policy in (None, "nothing", "dots", "everything", lambda node: True):
        calls.clear()
        g = nb.checkpoint(f, policy=policy)
        got = nb.grad(lambda x, g=g: nb.sum(g({"x": x}, scale=2.0)["y"]))(x)
        close(got, want.numpy())
        assert len(calls) == 1

    @nb.checkpoint(policy="nothing")
    def named(x):
        return nb.sin(x)

    assert named.__name__ == "named" and nb.remat is nb.checkpoint
    close(
        nb.hvp(lambda x: nb.sum(named(x)), (x,), (x,))[0],
        -np.sin([1, 2]) * [1, 2],
    )
    # what it closes over is differentiated too
    d = nb.grad(lambda w: nb.checkpoint(lambda x: x * w)(nb.constant(2.0)))(w)
    assert d.item() == 2.0
    with pytest.raises(ValueError, match="policy"):
        nb.checkpoint(f, policy="some")


def test_a_checkpoint_passes_on_what_it_closes_over_to_any_order():
    def outer(wrap):
        def f(x):
            v = nb.sin(x) * x

            def step(c, a):
                h = wrap(lambda y: nb.tanh(y * v) * c)(a + x)
                return h, h * a

            c, ys = nb.scan(step, x, nb.stack([x, v]))
            return nb.sum(wrap(lambda y: nb.exp(y * v) * x)(c)) + nb.sum(ys)

        return f

    x = f64(0.3, 0.7)
    plain, wrapped = outer(lambda f: f), outer(nb.checkpoint)
    for way in (
        nb.grad,
        nb.hessian,
        lambda f: nb.grad(lambda x: nb.sum(nb.grad(f)(x))),
        lambda f: nb.grad(lambda x: nb.sum(nb.jacfwd(f)(x) * x)),
        lambda f: lambda x: nb.vmap(nb.hessian(f))(nb.stack([x, x * x])),
    ):
        close(way(wrapped)(x), way(plain)(x).numpy())


def test_a_policy_is_asked_about_each_value_inside():
    asked = []

    def policy(node):
        asked.append((node.op, node.shape, node.contraction, node.kwargs))
        return node.contraction

    def f(x):
        return nb.sum(nb.tanh(x.reshape(2, 2) @ w), axis=0)

    w = nb.constant(np.eye(2))
    x = f64(1.0, 2.0, 3.0, 4.0)
    d = nb.grad(lambda x: nb.sum(nb.checkpoint(f, policy=policy)(x)))(x)
    close(d, nb.grad(lambda x: nb.sum(f(x)))(x).numpy())
    assert sorted(one[:3] for one in asked) == [
        ("matmul", (2, 2), True),
        ("reduce_sum", (2,), False),
        ("tanh", (2, 2), False),
    ]
    assert next(one[3]["axis"] for one in asked if "sum" in one[0]) == 0

    def wrong(node):
        raise KeyError(node.op)

    with pytest.raises(KeyError):
        nb.checkpoint(f, policy=wrong)(x)
    close(f(x), nb.checkpoint(f)(x).numpy())


# Paths and parts.


def test_transforms_are_functions_and_modules():
    for name in "grad vjp jvp jacrev jacfwd vmap".split():
        module = importlib.import_module(f"nabla.transforms.{name}")
        function = getattr(module, name)
        assert getattr(nb.transforms, name) is function
        assert getattr(nb, name) is function
    from nabla.transforms import utils, vmap

    assert vmap is nb.vmap and utils.std_basis
    assert nb.core.trace is nb.trace
    assert nb.ops.control_flow.scan is nb.scan
    assert nb.ops.communication.ppermute is nb.ppermute
    for name in nb.transforms.__all__:
        assert getattr(nb.transforms, name) is not None


def test_the_parts_of_transforms():
    utils = nb.transforms.utils
    x, y = nb.ones((2, 2)), nb.ones(3)
    sizes, basis = utils.std_basis([x, y])
    assert sizes == [4, 3]
    assert [b.shape for b in basis] == [(7, 2, 2), (7, 3)]
    flat = np.concatenate([b.numpy().reshape(7, -1) for b in basis], axis=1)
    assert (flat == np.eye(7)).all()
    hidden = nb.incr_batch_dims(nb.ones((5, 3)))
    (lifted,) = utils.lift_basis_to_batch_prefix([basis[1]], [hidden])
    assert lifted.global_shape == (5, 7, 3) and lifted.batch_dims == 1
    (again,) = utils.lift_basis_to_batch_prefix([lifted], [hidden])
    assert again.global_shape == (5, 7, 3)
    assert utils.resolve_argnums(None, 2) == (0, 1)
    assert utils.resolve_argnums((-1, 0), 2) == (1, 0)
    assert utils.select_argnums(("a", "b"), (1,)) == ("b",)
    given, f = utils.create_jacobian_helpers(lambda a, b: (a, b), 1, (1, 2))
    assert given == (2,) and f(5) == (1, 5)
    n = nb.arange(3)
    found = utils.collect_grads({x: y}, [x, y, n, "text"])
    assert found[0] is y and found[1].tolist() == [0.0] * 3
    assert found[2:] == [None, None]
    utils.realize_tensors([y + 1])
