"""Compiled functions: what is an input and what is part of the program, what
the cache counts, what falls back, what is refused; and that they compute what
the functions themselves do."""

import functools
import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import nabla as nb
from nabla import _nabla
from nabla.transforms.compile import CompiledFunction as FromModule

RNG = np.random.default_rng(0)


def drawn(*shape):
    return nb.constant(RNG.standard_normal(shape).astype("float32"))


def counts(f):
    s = f.stats
    return s.hits, s.misses, s.fallbacks


def same(a, b, tolerance=2e-5):
    nb.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def compiled_as(f, *args, times=2):
    """f compiled gives what f does, the second time by a hit."""
    c = nb.compile(f, fullgraph=True)
    want = f(*args)
    for _ in range(times):
        same(c(*args), want)
    assert counts(c) == (times - 1, 1, 0)
    return c


# Forms.


def test_it_can_be_used_with_and_without_parentheses():
    @nb.compile
    def f(x):
        """Twice."""
        return 2 * x

    @nb.jit(max_cache_size=3)
    def g(x):
        return 3 * x

    x = nb.constant([1.0, 2.0])
    assert f(x).tolist() == [2.0, 4.0] and g(x).tolist() == [3.0, 6.0]
    assert isinstance(f, nb.CompiledFunction) and FromModule is type(g)
    assert f.__name__ == "f" and f.__doc__ == "Twice."
    assert f.__wrapped__(x).tolist() == [2.0, 4.0]
    assert repr(f).startswith("<CompiledFunction ") and nb.jit is nb.compile
    assert nb.CompiledFunction(nb.sin)(x).shape == (2,)
    assert nb.transforms.compile is nb.compile


def test_a_method_is_compiled_too():
    class Scale:
        def __init__(self, by):
            self.by = by

        @nb.compile
        def apply(self, x):
            return x * self.by

    a, b, x = Scale(2.0), Scale(3.0), nb.constant([1.0])
    assert a.apply(x).tolist() == [2.0] and b.apply(x).tolist() == [3.0]
    assert a.apply(x).tolist() == [2.0]
    assert counts(Scale.apply) == (1, 2, 0)


def test_stats_print_as_promised():
    f = nb.compile(lambda x: x + 1)
    assert str(f.stats) == (
        "CompilationStats(hits=0, misses=0, fallbacks=0, hit_rate=0.0%)"
    )
    x = nb.constant([1.0])
    for _ in range(61):
        f(x)
    s = f.stats
    assert str(s) == (
        "CompilationStats(hits=60, misses=1, fallbacks=0, hit_rate=98.4%)"
    )
    assert isinstance(s, nb.CompilationStats) and s.cache_size == 1
    assert s.total_compile_time_ms > 0 and s.total_cached_exec_time_ms > 0
    assert s.hit_rate == pytest.approx(100 * 60 / 61)
    f.clear_cache()
    assert f.stats.cache_size == 0 and counts(f) == (60, 1, 0)
    f(x)
    assert counts(f) == (60, 2, 0)


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (TypeError, {"static_argnums": "x"}),
        (TypeError, {"static_argnums": 1.5}),
        (ValueError, {"static_argnums": 2}),
        (ValueError, {"static_argnums": -3}),
        (TypeError, {"static_argnames": 1}),
        (ValueError, {"static_argnames": "z"}),
        (ValueError, {"donate_argnums": (0, 7)}),
        (ValueError, {"donate_argnums": 0, "static_argnums": 0}),
        (ValueError, {"max_cache_size": 0}),
        (TypeError, {"max_cache_size": "many"}),
        (TypeError, {"dynamic_dims": [0]}),
        (TypeError, {"dynamic_dims": {0: "n"}}),
        (TypeError, {"dynamic_dims": {0: {0: 1}}}),
        (TypeError, {"nonsense": 1}),
    ],
)
def test_bad_options_are_refused_at_once(error, options):
    with pytest.raises(error):
        nb.compile(lambda x, y: x + y, **options)


def test_only_functions_are_compiled():
    with pytest.raises(TypeError, match="not a int"):
        nb.compile(3)
    with pytest.raises(TypeError):
        nb.CompiledFunction()


# The key.


def test_shapes_and_dtypes_make_programs():
    f = nb.compile(lambda x: x * 2)
    for x in (nb.ones(2), nb.ones(3), nb.ones(3, dtype="float64"), nb.ones(2)):
        same(f(x), x * 2)
    assert counts(f) == (1, 3, 0) and f.stats.cache_size == 3


def test_the_structure_is_part_of_the_key():
    f = nb.compile(lambda t: nb.tree_leaves(t)[0] + 1)
    x = nb.ones(2)
    trees = [x, [x], (x,), {"a": x}, {"b": x}, [[x]], {"a": [x, None]}]
    for tree in trees * 2:
        same(f(tree), x + 1)
    assert counts(f) == (len(trees), len(trees), 0)


def test_the_order_of_a_dict_and_of_keywords_does_not_matter():
    f = nb.compile(lambda t, **more: t["a"] - t["b"] * more["c"] / more["d"])
    a, b, c, d = (drawn(3) for _ in range(4))
    want = a - b * c / d
    same(f({"a": a, "b": b}, c=c, d=d), want)
    same(f({"b": b, "a": a}, d=d, c=c), want)
    assert counts(f) == (1, 1, 0)


def test_numbers_are_static_by_value_and_type():
    f = nb.compile(lambda x, n: x * n)
    x = nb.constant([1, 2])
    for n in (2, 3, 2, 2.0, True, 2, -0.0, 0.0, float("nan"), float("nan")):
        got, want = f(x, n), x * n
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())
        assert (np.signbit(got.numpy()) == np.signbit(want.numpy())).all()
    assert counts(f) == (3, 7, 0)


def test_strings_and_objects_are_static():
    @dataclass(frozen=True)
    class Config:
        scale: float

    f = nb.compile(lambda x, how, c: getattr(nb, how)(x) * c.scale)
    x = drawn(4)
    same(f(x, "sin", Config(2.0)), nb.sin(x) * 2.0)
    same(f(x, "sin", Config(2.0)), nb.sin(x) * 2.0)
    same(f(x, "cos", Config(2.0)), nb.cos(x) * 2.0)
    assert counts(f) == (1, 2, 0)


def test_what_cannot_be_hashed_is_refused_with_its_place():
    f = nb.compile(lambda x, options: x)
    with pytest.raises(TypeError, match=r"options\['a'\] is a set.*hashable"):
        f(nb.ones(2), {"a": {1, 2}})
    with pytest.raises(TypeError, match="hashable"):
        nb.compile(lambda x, y: x, static_argnums=1)(nb.ones(2), np.ones(2))
    assert f.stats.cache_size == 0


def test_arrays_of_numpy_are_inputs():
    f = nb.compile(lambda x, y: x @ y)
    for k in range(3):
        x = RNG.standard_normal((2, 3)).astype("float32")
        same(f(x, k * np.ones((3, 2), "float32")), x @ (k * np.ones((3, 2))))
    assert counts(f) == (2, 1, 0)
    same(f(nb.constant(x), nb.ones((3, 2))), x @ np.ones((3, 2)))
    assert counts(f) == (3, 1, 0)  # a tensor and an array are the same


def test_arguments_that_are_named_static():
    def f(x, n, *, mode="a"):
        return x.reshape((n, -1)) * (2 if mode == "a" else 3)

    x = nb.arange(6)
    for options in (
        {"static_argnums": 1, "static_argnames": "mode"},
        {"static_argnames": ("n", "mode")},
        {"static_argnums": (-1,)},
    ):
        c = nb.compile(f, **options)
        assert c(x, 2).shape == (2, 3) and c(x, n=3).shape == (3, 2)
        assert c(x, 2, mode="b").tolist()[1] == [9, 12, 15]
        assert c(x, 2).shape == (2, 3) and counts(c) == (1, 3, 0)


def test_static_tensors_are_part_of_the_program():
    f = nb.compile(lambda x, w: x + w, static_argnums=1)
    x, w, v = nb.ones(2), nb.constant([1.0, 2.0]), nb.constant([5.0, 6.0])
    assert f(x, w).tolist() == [2.0, 3.0] and f(x, v).tolist() == [6.0, 7.0]
    assert f(x, w).tolist() == [2.0, 3.0] and counts(f) == (1, 2, 0)
    w[0] = 10.0  # another value, hence another program
    assert f(x, w).tolist() == [11.0, 3.0] and counts(f) == (1, 3, 0)


@pytest.mark.parametrize("slots", [("m", "v"), ("momentum_buffers",)])
def test_the_step_of_an_optimiser_is_an_input(slots):
    @nb.compile
    def update(w, state):
        step = state["step"] + 1
        return w - 0.1 / step, {**state, "step": step}

    w = drawn(3)
    state = {"step": 0, **{s: {"w": nb.zeros(3)} for s in slots}}
    want = w.numpy()
    for k in range(1, 5):
        w, state = update(w, state)
        want = want - 0.1 / k
        same(w, want)
    assert counts(update) == (3, 1, 0)
    assert state["step"].item() == 4.0 and state["step"].dtype == nb.float32
    update(w, {**state, "step": 7})
    update(w, {**state, "step": 8.0})
    assert counts(update) == (5, 1, 0)
    update(w, {"step": 1, "other": 2})  # no state: numbers are static
    update(w, {"step": 2, "other": 2})
    assert counts(update) == (5, 3, 0)


def test_the_least_recently_used_program_goes():
    f = nb.compile(lambda x: x + 1, max_cache_size=2)
    a, b, c = nb.ones(1), nb.ones(2), nb.ones(3)
    for x in (a, b, a, c, a, b):
        f(x)
    assert counts(f) == (2, 4, 0) and f.stats.cache_size == 2


def test_static_values_may_change_the_cache_while_they_are_compared():
    f = nb.compile(lambda x, k: x + k.n)

    class Nasty:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return 1

        def __eq__(self, other):
            f.clear_cache()
            return self.n == other.n

    x = nb.ones(2)
    for n in (1, 2, 1, 2, 2):
        assert f(x, Nasty(n)).tolist() == [1.0 + n] * 2


def test_comparisons_that_raise_come_out():
    class Angry:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            raise KeyError("no")

    f = nb.compile(lambda x, k: x)
    f(nb.ones(2), Angry())
    with pytest.raises(KeyError):
        f(nb.ones(2), Angry())


# Trees.

Point = namedtuple("Point", "x y")


class Box:
    def __init__(self, inside, label):
        self.inside, self.label = inside, label


nb.register_pytree_node(
    Box, lambda b: ((b.inside,), b.label), lambda aux, kids: Box(kids[0], aux)
)


def test_trees_go_in_and_come_out():
    def f(p, box, more):
        return (
            Point(p.y, p.x * 2),
            Box([box.inside, more["a"][0]], box.label),
            {"b": None, "a": (more["a"][1], "text", 3), "c": []},
        )

    p, box = Point(drawn(2), drawn(3)), Box(drawn(1), "label")
    more = {"a": [drawn(2), drawn(2)]}
    c = nb.compile(f)
    for _ in range(2):
        point, got, rest = c(p, box, more)
        assert type(point) is Point and type(got) is Box
        same(point, Point(p.y, p.x * 2))
        assert got.label == "label"
        same(got.inside, [box.inside, more["a"][0]])
        assert rest["b"] is None and rest["c"] == []
        assert rest["a"][1:] == ("text", 3)
        same(rest["a"][0], more["a"][1])
    assert counts(c) == (1, 1, 0)
    assert c(p, Box(box.inside, "other"), more)[1].label == "other"
    assert counts(c) == (1, 2, 0)


def test_results_without_tensors_and_without_arguments():
    f = nb.compile(lambda x: (x.shape, "a", None))
    assert f(nb.ones((2, 3))) == ((2, 3), "a", None)
    assert f(nb.ones((2, 3))) == ((2, 3), "a", None) and counts(f) == (1, 1, 0)
    g = nb.compile(lambda: nb.arange(3) * 2)
    assert g().tolist() == [0, 2, 4] == g().tolist()
    assert counts(g) == (1, 1, 0)
    assert nb.compile(lambda: None)() is None


def test_results_that_are_arguments_or_come_twice():
    x = drawn(2, 3)
    f = nb.compile(lambda x: (x, x, x.T, x + 1, x.reshape((6,))))
    for _ in range(2):
        a, b, c, d, e = f(x)
        same([a, b, c, d, e], [x, x, x.T, x + 1, x.reshape((6,))])


@pytest.mark.parametrize("n", [3, 5, 40, 1000])
def test_the_first_of_a_row_beside_its_sum(n):
    """The first element is a look at the row, and not the row."""

    def first(x):
        y = x / nb.sqrt(nb.sum(x * x))
        return nb.sum(y * x) + nb.exp(y[0])

    def firsts(x):
        y = nb.exp(x)
        return nb.sum(y, 1) + y[:, 0]

    for dtype in ("float32", "float64"):
        x = RNG.standard_normal((4, n)).astype(dtype)
        y = x[0] / np.sqrt(np.sum(x[0] * x[0]))
        same(
            nb.compile(first)(nb.constant(x[0])),
            np.sum(y * x[0]) + np.exp(y[0]),
        )
        y = np.exp(x)
        same(nb.compile(firsts)(nb.constant(x)), y.sum(1) + y[:, 0])


def test_many_leaves():
    tree = {f"k{i:03}": drawn(i % 5 + 1) for i in range(300)}
    f = nb.compile(lambda t: {k: v * 2 for k, v in t.items()})
    for _ in range(2):
        got = f(tree)
        assert list(got) == sorted(tree)
        same(got, {k: v * 2 for k, v in tree.items()})
    assert counts(f) == (1, 1, 0)


# Values.


def test_a_value_that_is_asked_for_falls_back_with_one_warning():
    def f(x):
        if x.sum() > 0:  # line
            return x * 2
        return x - 1

    c, line = nb.compile(f), f.__code__.co_firstlineno + 1
    x, y = nb.constant([1.0, 2.0]), nb.constant([-1.0, -2.0])
    with pytest.warns(RuntimeWarning, match=rf"test_compile.py:{line} ") as w:
        assert c(x).tolist() == [2.0, 4.0]
    assert len(w) == 1 and w[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert c(y).tolist() == [-2.0, -3.0]
        assert c(x).tolist() == [2.0, 4.0]
    assert counts(c) == (0, 0, 3)
    with pytest.raises(RuntimeError, match="uncompiled"):
        c.ir()
    with pytest.warns(RuntimeWarning):
        c(nb.ones(3))
    assert counts(c) == (0, 0, 4)


ASKING = {
    "bool": lambda x: x * 2 if (x > 0).all() else x,
    "item": lambda x: x * x.sum().item(),
    "float": lambda x: x * float(x[0]),
    "int": lambda x: x[: int(x[0])],
    "numpy": lambda x: nb.constant(x.numpy()) * 2,
    "tolist": lambda x: x + sum(x.tolist()),
    "mask": lambda x: x[x > 1],
    "print": lambda x: x * len(str(x)),
    "nonzero": lambda x: nb.nonzero(x)[0],
    "array": lambda x: x + np.asarray(x),
}


@pytest.mark.parametrize("how", ASKING)
def test_every_way_to_ask_for_a_value(how):
    f, x = ASKING[how], nb.constant([1.0, 2.0, 3.0])
    line = f.__code__.co_firstlineno
    with pytest.raises(RuntimeError) as found:
        nb.compile(f, fullgraph=True)(x)
    text = str(found.value)
    assert f"test_compile.py:{line} asks for the value" in text
    assert "nb.where" in text and "fullgraph" in text
    c = nb.compile(f)
    with pytest.warns(RuntimeWarning, match="runs uncompiled"):
        same(c(x), f(x))
    same(c(x), f(x))
    assert counts(c) == (0, 0, 2)


def test_a_failed_fullgraph_leaves_nothing():
    f = nb.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="fullgraph"):
            f(nb.ones(2))
    assert f.stats.cache_size == 0
    same(nb.sin(nb.ones(2)), np.sin(np.ones(2)))


def test_errors_of_the_function_come_out_as_they_are():
    class Mine(Exception):
        pass

    def f(x):
        raise Mine("here")

    c = nb.compile(f)
    with pytest.raises(Mine, match="here"):
        c(nb.ones(2))
    with pytest.raises(ValueError, match="broadcast|shapes"):
        nb.compile(lambda x: x + nb.ones(3))(nb.ones(2))
    with pytest.raises(TypeError):
        nb.compile(lambda x: x)(nb.ones(2), nb.ones(2))
    assert c.stats.cache_size == 0


def test_realising_does_nothing_inside():
    def f(x):
        y = (x * 2).realize()
        assert not y.real
        z, n = nb.realize_all(y + 1, 3)
        assert n == 3 and not z.real
        return z

    x = drawn(3)
    c = nb.compile(f, fullgraph=True)
    same(c(x), x * 2 + 1)


def test_backward_inside_is_refused():
    def f(x):
        x.requires_grad = True
        y = (x * x).sum()
        y.backward()
        return x.grad

    with pytest.raises(RuntimeError, match="use nabla.grad"):
        nb.compile(f)(nb.ones(2))
    with pytest.raises(RuntimeError, match="use nabla.grad"):
        nb.compile(lambda x: nb.backward(x.sum()))(nb.ones(2))


def test_captured_tensors_are_bound():
    box = [nb.constant([1.0, 2.0]) + 0.0]
    f = nb.compile(lambda x: x + box[0])
    x = nb.zeros(2)
    assert f(x).tolist() == [1.0, 2.0]
    box[0] = nb.constant([5.0, 5.0])
    assert f(x).tolist() == [1.0, 2.0] and counts(f) == (1, 1, 0)
    f.clear_cache()
    assert f(x).tolist() == [5.0, 5.0]


def test_lazy_arguments_are_realised():
    f = nb.compile(lambda x: x + 1)
    x = nb.ones(3) * 2
    assert not x.real
    y = f(x)
    assert x.real and y.real and y.tolist() == [3.0] * 3
    t = nb.constant(np.arange(6.0).reshape(2, 3)).T  # not in rows
    same(f(t), t + 1)


def test_the_generator_goes_on_at_each_call():
    def f(x):
        return x + nb.randn((3,)), nb.uniform((2,))

    nb.manual_seed(3)
    want = [f(nb.zeros(3)) for _ in range(3)]
    c = nb.compile(f, fullgraph=True)
    c(nb.zeros(3))
    nb.manual_seed(3)
    got = [c(nb.zeros(3)) for _ in range(3)]
    same(got, want)
    assert counts(c) == (3, 1, 0)
    key = nb.random.key(1)
    g = nb.compile(lambda key: nb.random.normal(key, (3,)))
    same(g(key), nb.random.normal(key, (3,)))
    same(g(key), g(key))


def test_too_large_for_memory():
    f = nb.compile(lambda x: x + nb.zeros((1 << 40, 1)))
    with pytest.raises(MemoryError):
        f(nb.ones(1 << 4))
    same(nb.compile(nb.sin)(nb.ones(2)), nb.sin(nb.ones(2)))


# Donation.


def test_donated_tensors_are_gone():
    f = nb.compile(lambda w, g: w - 0.5 * g, donate_argnums=0)
    touches = [
        lambda w: w + 1,
        nb.Tensor.numpy,
        nb.Tensor.realize,
        str,
        lambda w: f(w, nb.ones(64)),
        nb.compile(nb.sin),
        lambda w: w[0],
    ]
    for _ in range(3):
        w, g = drawn(64), drawn(64)
        want = w.numpy().copy() - 0.5 * g.numpy()
        same(f(w, g), want)
        for touch in touches:
            with pytest.raises(RuntimeError, match="donated"):
                touch(w)
        assert w.shape == (64,) and w.dtype == nb.float32
        assert g.numpy().shape == (64,)
    assert f.stats.misses == 1


def test_memory_of_donated_arguments_is_taken():
    def f(a, b):
        c = nb.sin(a) @ b  # a is read before the rest is written
        return nb.cos(c) @ c

    n = 64
    c = nb.compile(f, donate_argnums=(0, 1))
    for _ in range(3):
        a, b = drawn(n, n), drawn(n, n)
        want = f(a, b).numpy().copy()
        same(c(a, b), want, 1e-3)
    plan = c.memory()
    assert plan.donated == 4 * n * n
    assert plan.peak == (
        plan.arguments
        + plan.results
        + plan.temporaries
        + plan.constants
        - plan.donated
    )


def test_every_parameter_is_stepped_in_place():
    def loss(p, x):
        for w, b in p:
            x = nb.tanh(x @ w + b)
        return nb.mean(x * x)

    def step(p, m, x):
        g = nb.grad(loss)(p, x)
        m = nb.tree_map(lambda m, g: 0.9 * m + g, m, g)
        return nb.tree_map(lambda p, m: p - 0.1 * m, p, m), m

    n = 128
    state = [(drawn(n, n), drawn(n)) for _ in range(4)]
    moments = [(drawn(n, n), drawn(n)) for _ in range(4)]
    plan = nb.compile(step, donate_argnums=(0, 1))
    plan = plan.lower(state, moments, drawn(64, n)).memory()
    # On a card biases, and matrices of small products, are stepped where their
    # gradients are summed, by threads that do not wait for each other.
    on_card = state[0][0].device != nb.CPU()
    assert plan.donated >= plan.results * (0.98 if on_card else 1)


def test_a_donated_tensor_that_others_hold_keeps_its_data_for_them():
    def f(a, b):
        c = nb.sin(a) @ b
        return nb.cos(c) @ c

    f = nb.compile(f, donate_argnums=(0, 1))
    a, b = drawn(8, 8), drawn(8, 8)
    values = a.numpy().copy(), b.numpy().copy()
    view, lazy = a.detach(), b * 2
    f(a, b)
    same(view, values[0])
    same(lazy, values[1] * 2)
    x = drawn(8, 8)
    want = x.numpy().copy()
    y = nb.compile(lambda x, y: (x, nb.sin(x @ y) @ y), donate_argnums=(0, 1))(
        x, x
    )
    same(y[0], want)
    same(y[1], np.sin(want @ want) @ want, 1e-3)


def test_donation_by_keyword_and_in_trees():
    f = nb.compile(lambda p, x: p["w"] * x, donate_argnums=0)
    p, x = {"w": drawn(3), "n": 3}, drawn(3)
    want = p["w"].numpy() * x.numpy()
    same(f(p=p, x=x), want)
    with pytest.raises(RuntimeError, match="donated"):
        p["w"] + 1
    same(f({"w": np.ones(3, "float32"), "n": 3}, x), x)


def test_donation_when_it_falls_back_and_when_it_is_watched():
    f = nb.compile(lambda x: x * 2 if x.sum() > 0 else x, donate_argnums=0)
    x = nb.constant([1.0])
    with pytest.warns(RuntimeWarning):
        assert f(x).tolist() == [2.0]
    with pytest.raises(RuntimeError, match="donated"):
        x + 1
    g = nb.compile(lambda x: x * x, donate_argnums=0)
    y = nb.constant(3.0)
    assert nb.grad(g)(y).item() == 6.0 and y.item() == 3.0


# Dynamic dims.


def test_dynamic_dims_are_checked():
    f = nb.compile(lambda x, y: x @ y, dynamic_dims={0: {1: "k"}, 1: {0: "k"}})
    for k in (2, 3, 2):
        same(f(nb.ones((2, k)), nb.ones((k, 2))), k * np.ones((2, 2)))
    assert counts(f) == (2, 1, 0)
    with pytest.raises(ValueError, match="'k' is 2 and"):
        f(nb.ones((2, 2)), nb.ones((3, 2)))
    with pytest.raises(ValueError, match="leaf 1"):
        f(nb.ones((2, 2)), 3)
    with pytest.raises(ValueError, match="axis 1"):
        f(nb.ones(2), nb.ones((2, 2)))


# Looking inside.


def test_the_program_can_be_read():
    f = nb.compile(lambda x: nb.sin(x) * 2)
    with pytest.raises(RuntimeError, match="call the function"):
        f.ir()
    x = nb.ones((2, 3))
    f(x)
    assert "sin(" in f.ir() and f.ir("graph") == f.ir()
    assert "step 0" in f.ir("plan")
    with pytest.raises(ValueError, match="no stage"):
        f.ir("nonsense")
    plan = f.memory()
    assert (plan.arguments, plan.results) == (24, 24) and plan.donated == 0
    said = f.explain()
    assert len(said.kernels) == 1 and said.collectives == []
    assert said.peak_bytes == plan.peak and "kernels" in str(said)


def test_explain_says_which_argument_differed():
    f = nb.compile(lambda x, n: x * n)
    f(nb.ones(2), 1)
    f(nb.ones(3), 1)
    f(nb.ones(3), 2)
    said = f.explain().retraces
    assert said[0] == "x: float32(3,) after float32(2,)"
    assert said[1] == "n: 2 after 1"


def test_lowering_runs_nothing():
    f = nb.compile(lambda x, y: nb.exp(x @ y))
    x, y = nb.ones((2, 3)) * 1, nb.ones((3, 4)) * 1
    low = f.lower(x, y=y)
    assert not x.real and counts(f) == (0, 0, 0)
    assert "matmul" in low.ir() and "step" in low.ir("plan")
    cost = low.cost()
    assert cost.flops >= 2 * 2 * 3 * 4 and cost.bytes == 4 * (6 + 12 + 8)
    assert low.memory().results == 32 and low.explain().peak_bytes > 0
    assert low.explain().kernels and not low.explain().uncompiled
    assert low.compile() is f and f.stats.cache_size == 1
    f(x, y=y)
    assert counts(f) == (1, 0, 0)
    with pytest.warns(RuntimeWarning), pytest.raises(RuntimeError):
        nb.compile(lambda x: x if x.sum() > 0 else x).lower(nb.ones(2))


def test_memory_sees_inside_loops():
    def f(x, w):
        def step(c, t):
            return nb.sin(nb.tanh(c @ w) @ w) @ w + t, c.sum()

        return nb.scan(step, x, nb.ones((9, 32, 32)))

    x, one = nb.ones((32, 32)), 32 * 32 * 4
    plan = nb.compile(f).lower(x, x).memory()
    # two places of the carry, and what one turn has besides
    assert plan.temporaries >= 3 * one
    assert plan.peak >= plan.arguments + plan.results + plan.temporaries
    buffers = dict(plan.buffers)
    assert buffers["argument 0 f32[32,32]"] == one
    assert buffers["inside scan"] >= 3 * one
    sizes = [size for _, size in plan.buffers]
    assert sizes == sorted(sizes, reverse=True)
    alone = nb.compile(lambda x: x @ nb.sin(x)).lower(x).memory()
    assert ("sin f32[32,32]", one) in alone.buffers


def made():
    """How often code was asked for, from wherever it came."""
    stats = nb.cache_stats()
    return stats["hits"] + stats["misses"]


def test_lowering_makes_no_code():
    f = nb.compile(lambda x: nb.sin(x) * 0.7182 + nb.cumsum(x))
    x, before = nb.ones(11), made()
    low = f.lower(x)
    low.ir(), low.ir("dead"), low.ir("plan"), low.memory(), low.cost()
    assert low.explain().kernels and made() == before
    low.compile()
    assert made() > before
    same(f(x), np.sin(np.ones(11)) * 0.7182 + np.arange(1, 12), 1e-6)
    assert counts(f) == (1, 0, 0)


def test_explain_of_a_function():
    said = nb.explain(lambda x: nb.exp(x).sum())(nb.ones(8))
    assert said.kernels and said.total_bytes == 0


class Wrong:
    def step(self, x):
        inner = nb.grad(lambda x: (x @ nb.ones((5, 2))).sum())
        return inner(x)


def test_errors_name_the_function_and_its_line():
    def plain(x):
        y = x * 2
        return y.no_such_thing

    for f, name, error, line in (
        (Wrong().step, "Wrong.step", ValueError, 1),
        (plain, f"{plain.__qualname__}", AttributeError, 2),
    ):
        with pytest.raises(error) as raised:
            nb.compile(f)(nb.ones((2, 4)))
        code = f.__code__
        place = f"{code.co_filename}:{code.co_firstlineno + line}"
        assert raised.value.__notes__[-1] == (
            f"inside compile of {name}, at {place}"
        )


# Transforms.


def mlp(p, x):
    for w, b in p[:-1]:
        x = nb.tanh(x @ w + b)
    return x @ p[-1][0] + p[-1][1]


def loss(p, x, y):
    return nb.mean((mlp(p, x) - y) ** 2)


def parameters(*sizes):
    return [
        (drawn(m, n) * (1 / m**0.5), nb.zeros(n))
        for m, n in zip(sizes, sizes[1:], strict=False)
    ]


def train(p, x, y):
    value, grads = nb.value_and_grad(loss)(p, x, y)
    return value, nb.tree_map(lambda w, g: w - 0.1 * g, p, grads)


def test_a_training_step():
    p, x, y = parameters(4, 16, 16, 2), drawn(8, 4), drawn(8, 2)
    step = nb.compile(train, fullgraph=True)
    q = p
    for _ in range(10):
        want, p = train(p, x, y)
        nb.realize_all(want, *nb.tree_leaves(p))
        got, q = step(q, x, y)
        same(got, want)
        same(q, p)
    assert counts(step) == (9, 1, 0)


def test_adam():
    def update(p, state, x, y):
        value, g = nb.value_and_grad(loss)(p, x, y)
        step = state["step"] + 1
        m = nb.tree_map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], g)
        v = nb.tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], g)
        fix = (1 - 0.99**step) ** 0.5 / (1 - 0.9**step)
        p = nb.tree_map(
            lambda p, m, v: p - 0.01 * fix * m / (v**0.5 + 1e-6), p, m, v
        )
        return value, p, {"m": m, "v": v, "step": step}

    x, y, p = drawn(8, 4), drawn(8, 2), parameters(4, 16, 2)
    q = nb.tree_map(lambda x: x + 0.0, p)  # p goes on, q is given away
    nb.realize_all(*nb.tree_leaves(q))
    zeros = nb.tree_map(lambda x: nb.zeros(x.shape), p)
    state = {"m": zeros, "v": zeros, "step": 0}
    mine = {k: nb.tree_map(lambda x: x + 0.0, zeros) for k in ("m", "v")}
    mine["step"] = 0
    c = nb.compile(update, donate_argnums=(0, 1))
    for _ in range(5):
        want, p, state = update(p, state, x, y)
        got, q, mine = c(q, mine, x, y)
        same(got, want, 1e-4)
        same(q, p, 1e-4)
    assert counts(c) == (4, 1, 0)


def block(p, x):
    def norm(x):
        x = x - x.mean(axis=-1, keepdims=True)
        return x * nb.rsqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)

    b, n, d = x.shape
    heads = (b, n, 4, d // 4)
    q, k, v = (
        (norm(x) @ p[name]).reshape(heads).permute((0, 2, 1, 3))
        for name in "qkv"
    )
    a = q @ k.swap_axes(-1, -2) / (d // 4) ** 0.5
    causal = nb.tril(nb.ones((n, n)))
    a = nb.softmax(nb.where(causal > 0, a, -1e9), axis=-1)
    x = x + (a @ v).permute((0, 2, 1, 3)).reshape((b, n, d)) @ p["o"]
    return x + nb.gelu(norm(x) @ p["up"]) @ p["down"]


def test_a_transformer_block_and_its_gradient():
    d = 16
    p = {name: drawn(d, d) * 0.2 for name in "qkvo"}
    p |= {"up": drawn(d, 4 * d) * 0.2, "down": drawn(4 * d, d) * 0.2}
    x = drawn(2, 6, d)
    compiled_as(block, p, x)
    compiled_as(nb.grad(lambda p, x: block(p, x).sum()), p, x)


def test_what_was_recorded_under_another_default_is_not_taken():
    f = nb.compile(lambda i: i * 2.5)
    i = nb.constant(3)
    for _ in range(2):
        with nb.default_dtype("float64"):
            assert f(i).dtype == nb.float64
        assert f(i).dtype == nb.float32
    assert (f.stats.hits, f.stats.misses) == (2, 2)


TOTALS = {
    "counted": lambda n, x: nb.sum(nb.arange(n)),
    "the largest": lambda n, x: nb.max(nb.arange(n)),
    "every": lambda n, x: nb.all(nb.arange(n) < n),
    "a number": lambda n, x: nb.sum(nb.full((n,), 2.0) + 1),
    "one column": lambda n, x: nb.sum(x[:n, 3] * 2),
    "backwards": lambda n, x: nb.sum(x[n - 1 :: -1, 1] * 2),
    "picked": lambda n, x: nb.sum(nb.take(x[0], nb.arange(n) % 3)),
    "columns": lambda n, x: nb.sum(x[:n] * 2, axis=0),
    "a slope": lambda n, x: nb.grad(lambda s: nb.sum(s * x[:n, 1]))(
        nb.sum(x[0])
    ),
}


@pytest.mark.parametrize("n", [65_537, 70_001, 100_000, 200_003])
@pytest.mark.parametrize("case", TOTALS)
def test_long_totals_of_what_is_not_side_by_side(case, n):
    """They are summed in pieces, the last of which is shorter."""
    rows = np.ones((n + 64, 4), np.float32)
    rows[n:] = 1e6  # what nobody asked for
    x = nb.constant(rows)
    want = {
        "counted": n * (n - 1) // 2,
        "the largest": n - 1,
        "every": True,
        "a number": 3 * n,
        "one column": 2 * n,
        "backwards": 2 * n,
        "picked": n,
        "columns": [2 * n] * 4,
        "a slope": n,
    }[case]
    compiled = nb.compile(functools.partial(TOTALS[case], n))
    for y in (compiled(x), TOTALS[case](n, x), TOTALS[case](n, x)):
        assert y.tolist() == want


def test_totals_of_any_size_of_what_is_not_side_by_side():
    f = nb.compile(lambda x: nb.sum(x[:, 0]), dynamic_dims={0: {0: "n"}})
    slope = nb.compile(
        nb.grad(lambda b, x: nb.mean(x + b)), dynamic_dims={1: {0: "n"}}
    )
    for n in (64, 7, 100, 1000, 70_001):
        assert f(nb.ones((n, 3))).item() == n
        assert slope(nb.constant(1.0), nb.ones(n)).item() == pytest.approx(1)


def test_loops_and_branches_inside():
    x = drawn(5, 3)
    compiled_as(
        lambda x: nb.scan(lambda c, r: (c + r, nb.sin(c) * r), x[0] * 0, x), x
    )
    compiled_as(
        lambda x: nb.cond(x.sum() > 0, nb.sin, lambda x: nb.cos(x) * 2, x), x
    )
    compiled_as(
        lambda x: nb.while_loop(
            lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] * 1.5), (0, x)
        ),
        x,
    )
    compiled_as(
        lambda x: nb.fori_loop(0, 3, lambda i, s: s + i * nb.cos(s), x), x
    )
    compiled_as(nb.grad(lambda x: nb.scan(scanned, x[0], x)[0].sum()), x)


def scanned(c, r):
    return nb.tanh(c * r) + c, c


def test_transforms_inside():
    x = drawn(3, 3)
    compiled_as(nb.vmap(lambda r: nb.softmax(r) * r.sum()), x)
    compiled_as(nb.jacrev(lambda x: nb.sin(x) @ x), x)
    compiled_as(nb.hessian(lambda v: (nb.sin(v) * v).sum()), x[0])
    compiled_as(nb.checkpoint(lambda x: nb.exp(nb.sin(x))), x)


def test_it_is_the_function_itself_within_transforms():
    f = lambda x: (nb.sin(x) * x).sum()  # noqa: E731
    c, x = nb.compile(f), drawn(4)
    same(nb.grad(c)(x), nb.grad(f)(x))
    same(
        nb.grad(nb.grad(lambda x: c(x * 2)))(x[0]), nb.grad(nb.grad(f_2))(x[0])
    )
    same(nb.vmap(c)(drawn(3, 4) * 0 + x), nb.vmap(f)(drawn(3, 4) * 0 + x))
    same(nb.jvp(c, (x,), (x,)), nb.jvp(f, (x,), (x,)))
    same(nb.jacfwd(c)(x), nb.jacfwd(f)(x))
    assert counts(c) == (0, 0, 0)
    steps = nb.scan(lambda s, r: (s + c(r * 2), s), nb.constant(0.0), x)
    same(steps, nb.scan(lambda s, r: (s + f(r * 2), s), nb.constant(0.0), x))
    outer = nb.compile(lambda x: c(x * 2) + c(x))
    same(outer(x), f(x * 2) + f(x))
    assert counts(c) == (0, 0, 0) and counts(outer) == (0, 1, 0)
    assert outer.ir().count("sin(") == 2
    branch = nb.cond(nb.constant(True), lambda x: c(x + 1), f, x)
    same(branch, f(x + 1))
    same(c(x), f(x))


def f_2(x):
    return (nb.sin(x * 2) * (x * 2)).sum()


def test_captured_tensors_are_differentiated_within_grad():
    x = drawn(3)

    def outer(w):
        return nb.compile(lambda x: (x * w).sum())(x)

    same(nb.grad(outer)(drawn(3)), x)


def test_gradients_of_compiled_and_compiled_gradients_agree():
    p, x, y = parameters(3, 8, 1), drawn(5, 3), drawn(5, 1)
    want = nb.grad(loss)(p, x, y)
    same(nb.grad(nb.compile(loss))(p, x, y), want)
    same(nb.compile(nb.grad(loss))(p, x, y), want)
    same(nb.compile(nb.grad(nb.compile(loss)))(p, x, y), want)


def test_tensors_that_require_grad_are_compiled():
    w = nb.constant([1.0, 2.0], requires_grad=True)
    f = nb.compile(lambda w: w * 2)
    assert f(w).tolist() == [2.0, 4.0] == f(w).tolist()
    assert counts(f) == (1, 1, 0)


# Threads, memory, caches.


def test_threads_share_a_compiled_function():
    f = nb.compile(lambda x, n: nb.sin(x @ x) * n)
    sizes, failures = (3, 17, 40), []

    def work(seed):
        try:
            for k in range(30):
                x = nb.constant(
                    np.full((sizes[k % 3],) * 2, 0.01 * seed, "float32")
                )
                same(f(x, 2), nb.sin(x @ x) * 2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert sum(counts(f)) == 180 and f.stats.cache_size == 3


def test_it_is_freed_in_a_cycle():
    def make():
        def f(x):
            return x + 1, f.me is None

        c = nb.compile(f)
        f.me = c  # a cycle through the function
        c(nb.ones(2))
        return weakref.ref(c)

    gone = make()
    gc.collect()
    assert gone() is None


def test_nothing_leaks():
    f = nb.compile(lambda t, n: ({"a": t["a"] * n}, "x", t["b"]))
    t = {"a": drawn(4), "b": drawn(5)}
    f(t, 2)
    gc.collect()
    before = _nabla.stats()
    for _ in range(50):
        f(t, 2)
    f(t, 3)
    f.clear_cache()
    f(t, 2)
    gc.collect()
    after = _nabla.stats()
    assert after["nodes_live"] <= before["nodes_live"] + 1
    assert after["allocations_live"] <= before["allocations_live"] + 8


def test_caches_are_cleared_together():
    f, g = nb.compile(lambda x: nb.sin(x) + 0.123), nb.compile(nb.exp)
    x = nb.ones(7)
    y = f(x)
    g(x)
    stats = nb.cache_stats()
    assert stats["hits"] + stats["misses"] >= 2
    assert stats["bytes"] > 0 or x.device != nb.CPU()  # of the CPU's code
    nb.clear_caches()
    assert f.stats.cache_size == g.stats.cache_size == 0
    same(y, np.sin(np.ones(7)) + 0.123)
    same(f(x), y)
    assert counts(f) == (0, 2, 0)


def test_threads_are_set_for_the_engine():
    before = _nabla.threads(None)
    with nb.config.set(num_threads=3):
        assert _nabla.threads(None) == 3
    assert nb.config.num_threads is None or before == nb.config.num_threads
    assert _nabla.threads(None) == before


def test_the_folder_of_the_cache_is_set(tmp_path):
    f = nb.compile(lambda x: nb.sin(x) * 1.0625 - nb.cos(x) * 17.5)
    with nb.config.set(cache_dir=str(tmp_path / "cache")):
        f(nb.ones(3))
    assert any((tmp_path / "cache").rglob("*"))


ALONE = """
import warnings
import numpy as np
import nabla as nb
f = nb.compile(
    lambda x: (nb.sin(x) @ x, nb.scan(lambda c, r: (c + r, c), x[0], x))
)
x = nb.constant(np.arange(9.0, dtype="float32").reshape(3, 3))
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    for _ in range(2):
        nb.testing.assert_allclose(f(x), f.__wrapped__(x), rtol=1e-5)
    g = nb.compile(nb.exp)
    g(x)
    h = nb.compile(nb.sin, donate_argnums=0)
    nb.testing.assert_allclose(h(x + 1), nb.sin(x + 1))
assert [w.category for w in found] == [RuntimeWarning], found
assert "op by op" in str(found[0].message) and found[0].filename == "<string>"
assert "op by op" in str(f.explain())
print(f.stats)
"""


def alone(program, **environment):
    """What a process of its own says."""
    said = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.parametrize("llvm", ["none", "/no/such.so", "broken", "libm.so.6"])
def test_without_a_compiler_ops_run_one_by_one(tmp_path, llvm):
    """On the CPU, whatever other devices there are."""
    if llvm == "broken":
        path = tmp_path / "libLLVM.so"
        path.write_bytes(b"\x7fELF and nothing else")
        llvm = str(path)
    said = alone(
        ALONE,
        NABLA_LLVM=llvm,
        NABLA_CACHE_DIR=str(tmp_path),
        NABLA_DEFAULT_DEVICE="cpu",
    )
    assert "hits=1, misses=1, fallbacks=0" in said


UNCACHED = """
import resource, signal, sys, warnings
import nabla as nb

if sys.argv[-1] == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
x = nb.constant([1.0, 2.0])
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    for f in (lambda x: nb.sin(x) * 3.25, lambda x: nb.cos(x) - 7.5):
        nb.testing.assert_allclose(nb.compile(f)(x), f(x), rtol=1e-5)
assert [w.category for w in found] == [RuntimeWarning], found
assert "in every process" in str(found[0].message), found[0].message
assert found[0].filename == "<string>"
print(found[0].message)
"""


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path):
    assert "/proc/cache" in alone(UNCACHED, NABLA_CACHE_DIR="/proc/cache")
    file = tmp_path / "file"
    file.write_text("no folder")
    assert str(file) in alone(UNCACHED, NABLA_CACHE_DIR=str(file))
    if "libcuda_sim" in os.environ.get("NABLA_NVRTC", ""):
        return  # its compiler writes files, too
    full = UNCACHED.replace("sys.argv[-1]", "'full'")
    assert "too large" in alone(full, NABLA_CACHE_DIR=str(tmp_path / "full"))


def test_what_is_recorded_cannot_leave():
    kept = []

    def leaks(x):
        kept.append(x * 2)
        return x + 1

    x = nb.ones(3)
    nb.compile(leaks)(x)
    nb.scan(lambda c, t: (leaks(c), t), x, nb.ones(2))
    for y in kept:
        for use in (
            lambda y: y.tolist(),
            lambda y: (y + 1).tolist(),
            repr,
            nb.compile(lambda z, y=y: z + y),
            lambda y: nb.scan(lambda c, t, y=y: (c + y, t), x, x)[0].tolist(),
        ):
            with pytest.raises(RuntimeError, match="cannot leave it"):
                use(x if use.__class__ is nb.CompiledFunction else y)
    same(nb.compile(leaks)(x), np.full(3, 2.0))


def test_programs_too_large_for_memory_say_so_before_they_run():
    ran = []

    def note(x):
        ran.append(1)
        return x

    n = 1 << 21
    wide = nb.ones((1, n))

    def inside(x):
        big = nb.sort(nb.broadcast_to(x, (n, n)) * 2.0, axis=0)
        return nb.cos(x) + big.sum()

    def result(x):
        return nb.broadcast_to(x, (n, n)) * 2.0

    for f, what in ((inside, "mul"), (result, "mul")):
        c = nb.compile(f)
        assert c.lower(wide).memory().peak >= 4 * n * n
        with pytest.raises(MemoryError) as raised:
            note(c(wide))
        said = str(raised.value)
        assert f"{what}({n}, {n}) of {4 * n * n} bytes" in said
        assert "needs" in said and "the largest" in said
    assert not ran
    same(nb.compile(lambda x: x + 1)(nb.ones(3)), np.full(3, 2.0))


# Random programs.


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_compiled_are_themselves(seed):
    import jax
    from fuzz_check import case_of, differ, made_up
    from fuzz_ops import NABLA

    case = case_of(made_up(seed), seed)
    given = jax.tree.map(nb.constant, case.args)

    def answer(f):
        found = f(*given)
        return nb.tree_map(lambda x: x.numpy(), found)

    want = answer(lambda *x: case.run(NABLA, *x))
    c = nb.compile(lambda *x: case.run(NABLA, *x), fullgraph=True)
    for _ in range(2):
        assert differ(answer(c), want) is None, case.source
    assert counts(c) == (1, 1, 0)
