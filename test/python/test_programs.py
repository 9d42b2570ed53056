"""Random programs against JAX, and what holds of all of them: an exception
inside leaves nothing open, threads do not meet, and the edges (nothing to map,
no axes, the same tensor twice, arguments that are not used or not real) are
those of JAX."""

import gc
import random
import threading

import fuzz_check
import fuzz_record
import jax
import numpy as np
import pytest
from fuzz_check import Case, case_of, check, differ, made_up, nabla_answer
from fuzz_ops import JAX, NABLA
from fuzz_record import PROGRAMS

import nabla as nb
from nabla import _nabla


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_are_those_of_jax(seed, record_property):
    said = fuzz_record.tried(seed, seconds=30.0)
    assert said is None, said
    record_property("programs", 1)


def test_every_program_has_its_answer_on_file():
    cases = [case_of(made_up(seed), seed) for seed in range(PROGRAMS)]
    missing = [
        seed
        for seed, case in enumerate(cases)
        if fuzz_record.of_case(case) not in fuzz_record.recorded()
    ]
    assert not missing, "python test/python/fuzz_record.py asks JAX again"
    assert fuzz_record.FILE.stat().st_size < 300_000


@pytest.mark.parametrize("seed", range(7, PROGRAMS, 24))
def test_answers_on_file_are_those_of_jax(seed):
    case = case_of(made_up(seed), seed)
    assert any(
        fuzz_record.agrees(case, want) for want in fuzz_check.jax_answers(case)
    )


def test_options_that_this_jax_has_not_are_left_out():
    """Any has those of LLVM."""
    said = {k: v for k, v in fuzz_check.QUICK.items() if "llvm" in k}
    found = fuzz_check.there_are(said | {"xla_no_such_option": True})
    assert said and found == said


def test_a_wrong_answer_is_noticed_by_the_file():
    """Shapes, structure and values count, and so does the program."""
    case = case_of(made_up(7), 7)
    got = nabla_answer(case)
    assert fuzz_record.agrees(case, got)
    for wrong in (
        jax.tree.map(lambda x: x + 1e-6, got),
        jax.tree.map(lambda x: x[None], got),
        [got],
    ):
        assert not fuzz_record.agrees(case, wrong)
    assert not fuzz_record.agrees(case._replace(source=""), got)


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
        "grad value_and_grad jvp vjp linearize vmap jacfwd jacrev hessian hvp "
        "checkpoint with_jvp with_vjp scan fori_loop until map cond switch "
        "associative_scan psum pmean ppermute axis_index einsum take solve "
        "softmax where custom gated stop_gradient number truth real"
    ).split():
        assert f"m.{name}(" in text or f"m.linalg.{name}(" in text, name
    for option in ("has_aux=True", "axis_name=", "argnums=(", "(None, "):
        assert option in text, option


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


# Laws.


class Reals:
    """A program as a function of its real arguments alone, in a list."""

    def __init__(self, seed):
        case = case_of(made_up(seed), seed)
        self.run = case.run
        flat, self.structure = jax.tree.flatten(case.args)
        self.flat = [nb.constant(x) for x in flat]
        self.at = [i for i, x in enumerate(flat) if x.dtype == np.float64]
        self.x = [self.flat[i] for i in self.at]

    def __call__(self, *x):
        flat = self.flat.copy()
        for i, v in zip(self.at, x, strict=True):
            flat[i] = v
        return self.run(NABLA, *jax.tree.unflatten(self.structure, flat))


def some_like(tree, seed):
    rng = np.random.default_rng(seed)
    return nb.tree_map(
        lambda x: nb.constant(np.asarray(rng.uniform(-1.0, 1.0, x.shape))), tree
    )


def arrays(tree):
    return nb.tree_map(lambda x: x.numpy(), tree)


def stacked(a, b):
    return nb.tree_map(lambda p, q: nb.stack([p, q]), a, b)


def a_batch_is_a_loop(f, x):
    y = some_like(x, 1)
    whole = nb.vmap(f)(*stacked(x, y))
    return whole, stacked(f(*x), f(*y))


def what_is_not_mapped_is_shared(f, x):
    first, *rest = x
    y = some_like(first, 2)
    axes = (0, *(None for _ in rest))
    whole = nb.vmap(f, in_axes=axes)(nb.stack([first, y]), *rest)
    return whole, stacked(f(*x), f(y, *rest))


def a_pullback_is_a_push_transposed(f, x):
    u = some_like(x, 3)
    y, uy = nb.jvp(f, tuple(x), tuple(u))
    ct = some_like(y, 4)
    cx = nb.vjp(f, *x)[1](ct)

    def dot(a, b):
        pairs = zip(nb.tree_leaves(a), nb.tree_leaves(b), strict=True)
        return sum(nb.sum(p * q) for p, q in pairs)

    # Beside the sum of what cancels.
    size = 1.0 + sum(nb.sum(nb.abs(c)) for c in nb.tree_leaves(cx))
    return dot(ct, uy) / size, dot(cx, u) / size


def to_linearize_is_to_push(f, x):
    u = some_like(x, 5)
    return nb.linearize(f, *x)[1](*u), nb.jvp(f, tuple(x), tuple(u))[1]


def cotangents_come_in_batches(f, x):
    y, back = nb.vjp(f, *x)
    a, b = some_like(y, 6), some_like(y, 7)
    return nb.vmap(back)(stacked(a, b)), stacked(back(a), back(b))


def to_run_again_changes_nothing(f, x):
    every = tuple(range(len(x)))

    def slope(f):
        return nb.grad(NABLA.total(f), argnums=every)(*x)

    return slope(nb.checkpoint(f)), slope(f)


LAWS = [
    a_batch_is_a_loop,
    what_is_not_mapped_is_shared,
    a_pullback_is_a_push_transposed,
    to_linearize_is_to_push,
    cotangents_come_in_batches,
    to_run_again_changes_nothing,
]


@pytest.mark.parametrize("first", range(PROGRAMS, PROGRAMS + 60, 15))
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_hold_of_random_programs(law, first):
    for seed in range(first, first + 15):
        f = Reals(seed)
        got, want = map(arrays, law(f, f.x))
        failure = differ(got, want)
        assert failure is None, f"seed {seed}: {failure.text}"


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
    """Trees of arrays, but for rounding: what comes back is compiled, and sums
    in another order than ops one by one."""
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.shape(x) == np.shape(y)
        and np.allclose(x, y, rtol=1e-9, atol=1e-12, equal_nan=True)
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


def raising(*args):
    raise Boom


def own_rule(fwd, bwd):
    f = nb.custom_vjp(nb.sin)
    f.defvjp(fwd, bwd)
    return f


def own_push(rule):
    f = nb.custom_jvp(nb.sin)
    f.defjvp(rule)
    return f


def pulled_twice(x):
    """A pullback that was used, and is held when the exception comes."""
    _, back = nb.vjp(lambda x: nb.sum(nb.sin(x)), x)
    return nb.vmap(lambda a: raising(back(nb.sum(a))))(x)


BREAKS = {
    "grad": lambda x: nb.grad(raising)(x),
    "grad of grad": lambda x: nb.grad(nb.grad(raising))(x),
    "vmap of grad": lambda x: nb.vmap(nb.grad(raising))(x),
    "jvp of vmap": lambda x: nb.jvp(nb.vmap(raising), (x,), (x,)),
    "linearize": lambda x: nb.linearize(raising, x),
    "hessian": lambda x: nb.hessian(lambda x: raising(x * x))(x),
    "jacrev in jacfwd": lambda x: nb.jacfwd(nb.jacrev(raising))(x),
    "hvp": lambda x: nb.hvp(raising, (x,), (x,)),
    "checkpoint": lambda x: nb.grad(nb.checkpoint(raising))(x),
    "scan": lambda x: nb.grad(lambda x: nb.scan(raising, x[0], x)[0])(x),
    "map": lambda x: nb.vmap(lambda x: nb.map(raising, x))(x[None]),
    "fori_loop": lambda x: nb.grad(nb.fori_loop, 3)(0, 2, raising, x),
    "the test of a while_loop": lambda x: nb.while_loop(raising, nb.sin, x),
    "the body of a while_loop": lambda x: nb.while_loop(
        lambda x: x[0] > 0, raising, x
    ),
    "a branch": lambda x: nb.grad(
        lambda x: nb.cond(x[0] > 0, lambda x: nb.sum(nb.sin(x)), raising, x)
    )(x),
    "a switch": lambda x: nb.switch(1, [nb.sin, nb.cos, raising], x),
    "associative_scan": lambda x: nb.associative_scan(raising, x),
    "fwd": lambda x: nb.grad(lambda x: nb.sum(own_rule(raising, raising)(x)))(
        x
    ),
    "bwd": lambda x: nb.vmap(
        nb.grad(own_rule(lambda x: (nb.sin(x), x), raising))
    )(x),
    "the rule of a custom_jvp": lambda x: nb.jvp(own_push(raising), (x,), (x,)),
    "the same, transposed": lambda x: nb.vmap(nb.grad(own_push(raising)))(x),
    "a pullback": pulled_twice,
}


def cause_of(where, x):
    """What is at the bottom of the exception that comes out."""
    try:
        BREAKS[where](x)
    except Exception as error:
        while error.__cause__ or error.__context__:
            error = error.__cause__ or error.__context__
        return error.with_traceback(None)


@pytest.mark.parametrize("where", BREAKS)
def test_an_exception_anywhere_leaves_nothing_open(where):
    x = nb.constant([0.3, 0.6])
    level = live()
    for _ in range(3):
        assert isinstance(cause_of(where, x), Boom)
    assert live() == level
    everything_is_closed()


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


def test_threads_that_fail_do_not_meet():
    """Exceptions in some threads, results in the others."""
    case = case_of(made_up(7), 7)
    want, failed = nabla_answer(case), []

    def fail():
        for _ in range(20):
            for name in ("vmap of grad", "scan", "a branch", "bwd"):
                try:
                    BREAKS[name](nb.constant([0.3, 0.6]))
                    failed.append(name)
                except Exception:
                    pass

    def succeed():
        for _ in range(40):
            if not same(nabla_answer(case), want):
                failed.append("a result")

    threads = [threading.Thread(target=f) for f in (fail, succeed) * 2]
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


@edge(ROWS, ROWS[0], np.array(0.4))
def operands_that_are_mapped_and_not(m, x, y, z):
    """Of other ranks, in either order, mapped over other axes."""

    def f(a, b, c):
        d = a * b + c - b / (2.0 + c)
        return m.where(d > 0.1, d, a), m.sum(b @ m.t(d * b[:, None])), b * z

    square = m.t(x) @ x
    first = m.vmap(f, in_axes=(0, None, None))(x, y, square)
    other = m.vmap(f, in_axes=(None, 1, 0), out_axes=(0, 0, 1))(y, x.T, x)
    inner = m.vmap(lambda a, b: a[:, None] * b, in_axes=(0, None))
    outer = m.vmap(lambda a, b: inner(a[None], b) + b, in_axes=(None, 0))
    both = m.grad(lambda x, y: m.sum(outer(y, x) * z), argnums=(0, 1))
    return first, other, outer(y, x), both(x, y)


@edge(ROWS, ROWS[0], np.array(0.4))
def what_functions_close_over(m, x, y, z):
    """Mapped values, differentiated ones and both, at any depth."""

    def row(a):
        def slope(w):
            def inner(u):
                return m.sum(m.sin(a * u) * y * w) * z

            return m.sum(m.grad(inner)(w) * a)

        return m.value_and_grad(slope)(y * a)

    def through(z, y):
        def step(c, a):
            c = m.checkpoint(lambda c: m.sin(c * z) + a * y)(c)
            return c, m.cond(m.sum(a) > 0.0, lambda: c * z, lambda: a * y)

        return m.sum(m.scan(step, y, x)[1])

    return m.vmap(row)(x), m.grad(through, argnums=(0, 1))(z, y)


@edge(ROWS)
def a_rule_around_a_map_of_another(m, x):
    inner = m.vmap(m.with_vjp(m.sin), out_axes=1)
    outer = m.with_jvp(inner)
    return outer(x), m.jvp(outer, (x,), (x,)), m.grad(m.total(outer))(x)


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
    for want in fuzz_check.jax_answers(case, flat=False):
        failure = differ(got, want)
        if failure is None:
            return
    pytest.fail(failure.text)


def test_backends_have_the_same_words():
    words = "calm total fit until custom gated psum set_at cumsum_back"
    for word in words.split():
        assert callable(getattr(NABLA, word)) and callable(getattr(JAX, word))
