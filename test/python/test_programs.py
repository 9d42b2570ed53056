"""Random programs against JAX, and what holds of all of them: an exception
inside leaves nothing open, threads do not meet, and the edges (nothing to map,
no axes, the same tensor twice, arguments that are not used or not real) are
those of JAX."""

import gc
import random
import threading

import fuzz_check
import jax
import numpy as np
import pytest
from fuzz_check import Case, case_of, check, differ, made_up, nabla_answer
from fuzz_ops import JAX, NABLA

import nabla as nb
from nabla import _nabla

PROGRAMS = 200


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_are_those_of_jax(seed, record_property):
    said = fuzz_check.tried(seed, seconds=30.0)
    assert said is None, said
    record_property("programs", 1)


def test_programs_are_the_same_at_every_run():
    for seed in range(20):
        assert case_of(made_up(seed)).source == case_of(made_up(seed)).source


def test_there_are_programs_of_every_kind():
    """Up to sixty operations, four transforms deep, all transforms, all ops."""
    programs = [made_up(seed) for seed in range(PROGRAMS)]
    sizes = [fuzz_check.count(p) for p in programs]
    assert min(sizes) >= 5 and 40 < max(sizes) <= 60
    text = "".join(case_of(p).source for p in programs)
    assert {len(p.layers) for p in programs} == {0, 1, 2, 3, 4}
    for name in (
        "grad value_and_grad jvp vjp linearize vmap jacfwd jacrev hessian "
        "checkpoint scan fori until cond einsum take solve softmax where"
    ).split():
        assert f"m.{name}(" in text or f"m.linalg.{name}(" in text, name


def test_a_program_that_fails_is_cut_down(monkeypatch):
    """With a wrong sine; what remains is about a sine."""
    seed = next(s for s in range(99) if "m.sin(" in case_of(made_up(s)).source)
    monkeypatch.setattr(NABLA, "sin", lambda x: nb.sin(x) * 1.5, raising=False)
    while check(made_up(seed), seed) is None:
        seed += 1
    said = fuzz_check.tried(seed)
    source = said[said.index("def program") : said.index("ARGS")]
    assert "m.sin(" in source and source.count("\n") < 12
    assert "got" in said and "want" in said


# Exceptions.


class Boom(Exception):
    pass


class Breaking:
    """NABLA, whose n-th call raises."""

    def __init__(self, n):
        self.left = n

    def __getattr__(self, name):
        found = getattr(NABLA, name)
        if not callable(found):
            return found

        def counted(*args, **options):
            self.left -= 1
            if self.left == 0:
                raise Boom(name)
            return found(*args, **options)

        return counted


def live():
    gc.collect()
    return _nabla.stats()["nodes_live"]


def same(a, b):
    """Trees of arrays, to the last bit."""
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.array_equal(x, y)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def everything_is_closed():
    x = nb.constant([1.0, 2.0])
    assert x.batch_dims == 0 and not (x * 2).is_traced
    assert nb.grad(lambda x: nb.sum(x**3))(x).tolist() == [3.0, 12.0]
    assert nb.vmap(lambda a: a * a)(x).tolist() == [1.0, 4.0]
    with pytest.raises(ValueError, match="no open vmap"):
        nb.ops.communication.axis_index(axis_name="i")


def broken(case, n):
    """Runs a program up to its n-th call; whether it got there."""
    given = jax.tree.map(nb.constant, case.args)
    try:
        case.run(Breaking(n), *given)
    except Boom:
        return True
    return False


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_exceptions_leave_nothing_open(first):
    everything_is_closed()
    raised = 0
    for seed in range(first, first + 15):
        case = case_of(made_up(seed), seed)
        calls = Breaking(0)
        case.run(calls, *jax.tree.map(nb.constant, case.args))
        want = nabla_answer(case)
        level = live()
        r = random.Random(seed)
        for _ in range(8):
            raised += broken(case, r.randint(1, -calls.left))
        assert live() == level, f"seed {seed}"
        everything_is_closed()
        assert same(nabla_answer(case), want), f"seed {seed}"
    assert raised > 100


# Threads.


def test_threads_do_not_meet():
    cases = [case_of(made_up(seed), seed) for seed in range(80)]
    want = [nabla_answer(case) for case in cases]
    failed = []

    def work(k):
        mine = range(k, len(cases), 4)
        for _ in range(3):
            failed.extend(
                i for i in mine if not same(nabla_answer(cases[i]), want[i])
            )

    def guarded(k):
        try:
            work(k)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    everything_is_closed()


# Edges.

EDGES = {}


def edge(*args):
    def note(f):
        EDGES[f.__name__] = f, args
        return f

    return note


ROWS = np.cos(np.arange(6.0)).reshape(2, 3)
NONE = np.zeros((0, 3))


def energy(m, a):
    return m.sum(m.sin(a) * a)


@edge(NONE)
def gradients_of_an_empty_batch(m, x):
    return m.vmap(m.value_and_grad(lambda a: energy(m, a)))(x)


@edge(NONE)
def hessians_of_an_empty_batch(m, x):
    return m.vmap(m.hessian(lambda a: energy(m, a)), out_axes=2)(x)


@edge(NONE)
def gradient_through_an_empty_batch(m, x):
    return m.grad(lambda x: m.sum(m.vmap(lambda a: energy(m, a))(x)))(x)


@edge(NONE, ROWS[0])
def what_an_empty_batch_shares(m, x, w):
    f = m.vmap(lambda a, w: m.sum(a * w), in_axes=(0, None))
    return m.grad(lambda w: m.sum(f(x, w)))(w), m.jacrev(f, argnums=1)(x, w)


@edge(NONE)
def tangents_of_an_empty_batch(m, x):
    return m.jvp(m.vmap(lambda a: energy(m, a)), (x,), (x,))


@edge(ROWS)
def empty_in_one_of_two_maps(m, x):
    inner = m.vmap(lambda a, b: a * m.sum(b), in_axes=(0, None))
    return m.vmap(lambda b: inner(b[:0], b))(x)


@edge(NONE, ROWS[0])
def an_empty_scan(m, xs, start):
    def total(start, xs):
        end, ys = m.scan(lambda c, x: (c * x, c + x), start, xs)
        return m.sum(end * end) + m.sum(ys)

    return m.value_and_grad(total, argnums=(0, 1))(start, xs)


@edge(ROWS)
def a_scan_over_empty_slices(m, x):
    def last(x):
        return m.scan(lambda c, a: (c + m.sum(a), a), m.sum(x), x[:, :0])[0]

    return m.value_and_grad(last)(x)


@edge(np.zeros((2, 0)))
def derivatives_by_nothing(m, x):
    def f(x):
        return m.concatenate([m.sin(x), m.array(np.ones((2, 1)))], axis=1)

    total = m.total(f)
    return m.grad(total)(x), m.jacrev(f)(x), m.jacfwd(f)(x), m.hessian(total)(x)


@edge(np.array(0.7))
def derivatives_of_a_number(m, x):
    def f(x):
        return m.sin(x) * x

    third = m.grad(m.grad(m.grad(f)))(x)
    second = m.jacfwd(m.jacrev(f))(x), m.hessian(f)(x)
    return third, second, m.jvp(f, (x,), (x,))


@edge(np.array(0.7))
def a_number_is_mapped_by_no_axis(m, x):
    f = m.vmap(lambda a, b: a * b, in_axes=(None, 0), out_axes=0)
    return m.jacfwd(lambda x: f(x, m.array(np.arange(3.0))))(x)


@edge(np.array([0.1, 0.2, 0.3]))
def numbers_are_what_remains_of_a_row(m, x):
    return m.vmap(m.vmap(lambda a: m.grad(m.cos)(a)))(x[None])


@edge(ROWS)
def one_tensor_for_two_arguments(m, x):
    def f(a, b):
        return m.sum(m.sin(a) * b * b)

    both = m.grad(f, argnums=(0, 1))(x, x)
    _, back = m.vjp(f, x, x)
    moved = m.jvp(f, (x, x), (x, m.cos(x)))
    mixed = m.vmap(f, in_axes=(0, None))(x, x)
    return both, back(m.sum(x)), moved, mixed


@edge(ROWS)
def one_tensor_in_several_places(m, x):
    p = {"a": x, "b": [x, (x,)]}

    def f(p):
        return m.sum(p["a"] * m.sin(p["b"][0]) + p["b"][1][0] ** 3)

    return m.grad(f)(p), m.hessian(f)({"a": x[0], "b": [x[0], (x[0],)]})


@edge(ROWS)
def one_tensor_closed_over_and_given(m, x):
    def f(y):
        return m.sum(x * y * y) + m.sum(m.vmap(lambda a: m.sum(a * y))(x))

    return m.grad(f)(x), m.jvp(m.grad(f), (x,), (x,)), m.jacrev(f)(x)


@edge(ROWS)
def two_axes_of_one_tensor(m, x):
    square = x @ m.t(x)
    slope = m.grad(lambda a, b: m.sum(a * b * a))
    table = m.vmap(m.vmap(lambda a, b: a * b), (0, None))
    return m.vmap(slope, in_axes=(0, 1))(square, square), table(x, x[0])


@edge(ROWS, ROWS[0])
def arguments_that_are_not_used(m, x, y):
    def f(x, y):
        return m.sum(x * x)

    return (
        m.grad(f, argnums=(0, 1))(x, y),
        m.jacfwd(f, argnums=1)(x, y),
        m.hessian(f, argnums=1)(x, y),
        m.jvp(f, (x, y), (x, y)),
        m.vmap(f, in_axes=(None, 0))(x, y),
        m.vmap(m.grad(f, argnums=1), in_axes=(0, None))(x, y),
    )


@edge(ROWS, np.array([2, 0, 1]), np.array([True, False, True]))
def integers_and_truths(m, x, n, b):
    def f(x, n, b):
        return m.where(b, m.sin(x[n]) * n, x)

    by = m.vmap(f, in_axes=(0, None, None))(x, n, b)
    each = m.vmap(lambda k: m.grad(lambda x: m.sum(m.take(x, k, axis=1)))(x))(n)
    row = x[0]
    slopes = m.vmap(m.grad(lambda a, k: a * a * k), in_axes=(0, 0))(row, n)
    out = m.vmap(lambda k, t: (k + 1, m.where(t, k, -k)))(n, b)
    return by, each, m.jacrev(lambda x: f(x, n, b))(row), slopes, out


@edge(ROWS)
def integers_are_carried(m, x):
    def f(x):
        def step(c, a):
            n, total = c
            return (n + 1, total + n * m.sum(m.sin(a))), n

        return m.scan(step, (0, m.sum(x) * 0.5), x)

    def total(x):
        return f(x)[0][1]

    return f(x), m.grad(total)(x), m.vmap(m.grad(total))(m.stack([x, x * 2]))


@pytest.mark.parametrize("name", EDGES)
def test_edges_are_those_of_jax(name):
    f, args = EDGES[name]
    case = Case("", f, list(args))
    got = nabla_answer(case)
    for want in fuzz_check.jax_answers(case):
        failure = differ(got, want)
        if failure is None:
            return
    pytest.fail(failure.text)


def test_backends_have_the_same_words():
    for word in "calm total fit fori until custom set_at cumsum_back".split():
        assert callable(getattr(NABLA, word)) and callable(getattr(JAX, word))
