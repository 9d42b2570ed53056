"""Random shapes, axes, keys and dtypes against NumPy.

Most go through the table of test_ops.py, with arguments that hypothesis makes
up; the examples are the same at every run."""

import math
import string

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from oracle import (
    DTYPES,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    PROMOTION,
    kind,
    np_dtype,
    same,
)
from test_ops import TABLE, a, run, s

import nabla as nb
from nabla import _nabla

dtypes = st.sampled_from(DTYPES)
layouts = st.sampled_from(LAYOUTS)
flags = st.booleans()


def shapes(least=0, most=4, smallest=0, largest=4):
    size = st.integers(smallest, largest)
    return st.lists(size, min_size=least, max_size=most).map(tuple)


@st.composite
def axis_of(draw, shape):
    """One axis, counted from either end."""
    return draw(st.integers(-len(shape), len(shape) - 1))


@st.composite
def axes_of(draw, shape):
    """None, one axis, or some of them in any order, from either end."""
    n = len(shape)
    if n == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from([None, ()]))
    some = draw(st.permutations(range(n)))[: draw(st.integers(0, n))]
    some = [k - n if draw(flags) else k for k in some]
    if len(some) == 1 and draw(flags):
        return some[0]
    return draw(st.sampled_from([tuple, list]))(some)


def numbers(draw, shape, dtype="float64"):
    """An array of random numbers with ties among them."""
    seed = draw(st.integers(0, 1 << 30))
    return oracle.sample(np.random.default_rng(seed), shape, dtype)


@st.composite
def arrays(draw, shape=None, dtype="int64", **sizes):
    shape = draw(shapes(**sizes)) if shape is None else shape
    return numbers(draw, shape, dtype)


POOL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.5, -2.0, 3.0]


@st.composite
def special(draw, shape, dtype):
    """Few numbers, many ties; of floats NaN and the infinities too."""
    n = math.prod(shape)
    if dtype not in FLOATS:
        return numbers(draw, shape, dtype)
    some = draw(st.lists(st.sampled_from(POOL), min_size=n, max_size=n))
    return np.array(some, np_dtype(dtype)).reshape(shape)


def agrees(name, dtype, layout, *args, **kwargs):
    if kind(dtype) in TABLE[name].takes:
        run(name, dtype, s(*args, **kwargs), layout)


# Reductions and scans.

REDUCTIONS = (
    "reduce_sum prod reduce_max reduce_min all any count_nonzero mean var std "
    "logsumexp norm vector_norm"
).split()


@given(st.data())
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, data):
    shape, dtype = data.draw(shapes()), data.draw(dtypes)
    axes = data.draw(axes_of(shape))
    layout, keepdims = data.draw(layouts), data.draw(flags)
    x = a(*shape, low=-2, high=2)
    which = range(len(shape)) if axes is None else np.atleast_1d(axes)
    nothing = 0 in [shape[int(k)] for k in which]
    if nothing and name in ("reduce_max", "reduce_min"):
        with pytest.raises(ValueError, match=name):
            getattr(nb, name)(nb.ones(shape, dtype=dtype), axes)
        return
    agrees(name, dtype, layout, x, axis=axes, keepdims=keepdims)


@given(st.data())
@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_nan_is_the_extremum_of_what_it_is_among(name, data):
    shape = data.draw(shapes(1, 3, 1))
    dtype = data.draw(st.sampled_from(FLOATS))
    x = data.draw(special(shape, dtype))
    axis = data.draw(axis_of(shape))
    layout = data.draw(layouts)
    x = oracle.arranged(x, layout)
    f = np.max if name == "reduce_max" else np.min
    got = getattr(nb, name)(oracle.tensor(x, layout), axis)
    same(got, f(x.astype("float64"), axis), dtype, ulps=0)


@given(st.data())
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_extremum_is_found(name, data):
    shape, dtype = data.draw(shapes(1, 3, 1)), data.draw(dtypes)
    layout, keepdims = data.draw(layouts), data.draw(flags)
    x = oracle.arranged(data.draw(special(shape, dtype)), layout)
    axis = data.draw(st.none() | axis_of(shape))
    f = getattr(np, name)
    want = f(x.astype("float64"), axis, keepdims=keepdims)
    got = getattr(nb, name)(oracle.tensor(x, layout), axis, keepdims)
    same(got, want, "int64")


@given(st.data())
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans(name, data):
    shape, dtype = data.draw(shapes(1)), data.draw(dtypes)
    agrees(
        name,
        dtype,
        data.draw(layouts),
        a(*shape, low=-2, high=2),
        data.draw(axis_of(shape)),
        exclusive=data.draw(flags),
        reverse=data.draw(flags),
    )


@given(st.data())
@pytest.mark.parametrize("name", ["softmax", "logsoftmax", "diff"])
def test_functions_along_an_axis(name, data):
    shape, dtype = data.draw(shapes(1, 4, 1)), data.draw(dtypes)
    axis = data.draw(axis_of(shape))
    agrees(name, dtype, data.draw(layouts), a(*shape), axis=axis)


# Broadcasting and promotion.

BINARY = (
    "add sub mul div floor_divide mod maximum minimum hypot equal less "
    "greater_equal logical_and logical_xor bitwise_or copysign atan2"
).split()


@given(
    st.sampled_from(BINARY),
    dtypes,
    layouts,
    mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0),
)
@settings(max_examples=300)
def test_pairs_broadcast(name, dtype, layout, pair):
    agrees(name, dtype, layout, *(a(*shape) for shape in pair.input_shapes))


@given(
    layouts,
    dtypes,
    mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=0),
)
def test_triples_broadcast(layout, dtype, triple):
    args = [a(*shape) for shape in triple.input_shapes]
    agrees("where", dtype, layout, *args)
    agrees("clip", dtype, layout, *args)
    agrees("broadcast_arrays", dtype, layout, *args)


def fits(x, y):
    n = min(len(x), len(y))
    ends = zip(x[len(x) - n :], y[len(y) - n :], strict=True)
    return all(p == q or 1 in (p, q) for p, q in ends)


@given(shapes(1), shapes(1))
def test_shapes_that_do_not_fit_are_named(x, y):
    f = nb.add
    if fits(x, y):
        assert f(nb.ones(x), nb.ones(y)).shape == np.broadcast_shapes(x, y)
        return
    with pytest.raises(ValueError, match="add") as error:
        f(nb.ones(x), nb.ones(y))
    text = str(error.value).replace(" ", "")
    for shape in (x, y):
        assert ",".join(map(str, shape)) in text


@given(st.data())
@settings(max_examples=300)
def test_values_of_two_dtypes(data):
    """Both are cast to the common dtype, then the op computes in it."""
    one, two = data.draw(dtypes), data.draw(dtypes)
    common = PROMOTION[one, two]
    shape = data.draw(shapes(most=2, smallest=1))
    x, y = (numbers(data.draw, shape, d) for d in (one, two))
    f = data.draw(st.sampled_from(["add", "mul", "maximum", "minimum"]))
    tensors = [
        oracle.tensor(v, data.draw(layouts.filter(ordinary))) for v in (x, y)
    ]
    if common is None:
        with pytest.raises(TypeError, match=one):
            getattr(nb, f)(*tensors)
        return
    cast = [oracle.widened(v.astype(np_dtype(common))) for v in (x, y)]
    g = {"mul": "multiply"}.get(f, f)
    same(getattr(nb, f)(*tensors), getattr(np, g)(*cast), common)


def ordinary(layout):
    return layout != "broadcast"


# Views: chains of them, then a sum, so that strides are put to use.


def expand(draw, shape):
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    return lambda x: nb.unsqueeze(x, axis), lambda x: np.expand_dims(x, axis)


def reshape(draw, shape):
    count = math.prod(shape)
    first = draw(st.sampled_from([n for n in (1, 2, 3, 4) if count % n == 0]))
    other = (first, -1) if count else (0, 3)
    return lambda x: nb.reshape(x, other), lambda x: np.reshape(x, other)


def flip(draw, shape):
    axes = draw(axes_of(shape))
    axes = tuple(axes) if isinstance(axes, list) else axes
    return lambda x: nb.flip(x, axes), lambda x: np.flip(x, axes)


def permute(draw, shape):
    order = draw(st.permutations(range(len(shape))))
    return lambda x: nb.permute(x, order), lambda x: np.transpose(x, order)


def part(draw, shape):
    axis = draw(st.integers(0, len(shape) - 1))
    key = (slice(None),) * axis + (draw(st.slices(shape[axis])),)
    return lambda x: x[key], lambda x: x[key]


def pick(draw, shape):
    axis = draw(st.integers(0, len(shape) - 1))
    n = shape[axis]
    at = draw(st.integers(-n, n - 1)) if n else slice(None)
    key = (slice(None),) * axis + (at, None)
    return lambda x: x[key], lambda x: x[key]


def move(draw, shape):
    ends = draw(axis_of(shape)), draw(axis_of(shape))
    return lambda x: nb.moveaxis(x, *ends), lambda x: np.moveaxis(x, *ends)


def stretch(draw, shape):
    more = (draw(st.integers(1, 2)), *shape)
    return (
        lambda x: nb.broadcast_to(x, more),
        lambda x: np.broadcast_to(x, more),
    )


def roll(draw, shape):
    how = draw(st.integers(-5, 5)), draw(axis_of(shape))
    return lambda x: nb.roll(x, *how), lambda x: np.roll(x, *how)


def diagonal(draw, shape):
    k = draw(st.integers(-2, 2))
    return lambda x: nb.diagonal(x, k), lambda x: np.diagonal(x, k, -2, -1)


def join(draw, shape):
    other = (shape[0] * shape[1], *shape[2:])
    return lambda x: nb.flatten(x, 0, 1), lambda x: np.reshape(x, other)


VIEWS = {
    0: [expand, reshape, flip],
    1: [permute, part, part, pick, move, stretch, roll],
    2: [diagonal, join],
}


@st.composite
def view_of(draw, shape):
    """A view of what has this shape, in both libraries."""
    rank = len(shape)
    makers = [f for least, fs in VIEWS.items() for f in fs if rank >= least]
    return draw(st.sampled_from(makers))(draw, shape)


@given(st.data())
@settings(max_examples=400)
def test_chains_of_views(data):
    want = data.draw(arrays(largest=4))
    got = nb.constant(want)
    for _ in range(data.draw(st.integers(1, 7))):
        if want.ndim > 7 or want.size > 4000:
            break
        ours, theirs = data.draw(view_of(want.shape))
        got, want = ours(got), theirs(want)
        assert got.shape == want.shape
        if data.draw(st.integers(0, 5)) == 0:
            got.realize()
    same(got, want, "int64")
    same(got * 2 + got, 3 * want, "int64")
    same(nb.sum(got), np.sum(want), "int64")


# There and back.


@given(st.data())
def test_reshape_and_back(data):
    x = data.draw(arrays())
    flat = nb.constant(x).reshape(-1) if x.size else nb.constant(x)
    same(flat.reshape(x.shape), x, "int64")
    same(nb.flatten(nb.constant(x)), x.reshape(-1), "int64")


@given(st.data())
def test_permute_and_back(data):
    x = data.draw(arrays())
    order = data.draw(st.permutations(range(x.ndim)))
    y = nb.constant(x).permute(order)
    same(y, x.transpose(order), "int64")
    same(y.permute(np.argsort(order).tolist()), x, "int64")


@given(st.data())
def test_flip_and_roll_and_back(data):
    x = data.draw(arrays(least=1))
    axes = data.draw(axes_of(x.shape))
    y = nb.constant(x)
    same(nb.flip(nb.flip(y, axes), axes), x, "int64")
    by, axis = data.draw(st.integers(-9, 9)), data.draw(axis_of(x.shape))
    same(nb.roll(y, by, axis), np.roll(x, by, axis), "int64")
    same(nb.roll(nb.roll(y, by, axis), -by, axis), x, "int64")
    same(nb.roll(nb.roll(y, by), -by), x, "int64")


@given(st.data())
def test_pad_and_back(data):
    x = data.draw(arrays())
    pair = st.tuples(st.integers(0, 3), st.integers(0, 3))
    around = data.draw(st.lists(pair, min_size=x.ndim, max_size=x.ndim))
    y = nb.pad(nb.constant(x), around, value=7)
    same(y, np.pad(x, around, constant_values=7) if x.ndim else x, "int64")
    start = [before for before, _ in around]
    if all(b < n for b, n in zip(start, y.shape, strict=True)):
        same(nb.slice_tensor(y, start, x.shape), x, "int64")


@given(st.data())
def test_split_and_back(data):
    x = data.draw(arrays(least=1, largest=6))
    axis = data.draw(axis_of(x.shape))
    n = x.shape[axis]
    y = nb.constant(x)
    count = data.draw(st.integers(1, 7))
    if n % count == 0:
        parts = nb.split(y, count, axis)
        assert len(parts) == count
        for part, want in zip(parts, np.split(x, count, axis), strict=True):
            same(part, want, "int64")
        same(nb.concatenate(parts, axis), x, "int64")
    else:
        with pytest.raises(ValueError, match="split"):
            nb.split(y, count, axis)
    if n:
        pieces = nb.chunk(y, count, axis)
        sizes = [piece.shape[axis] for piece in pieces]
        assert sizes == [
            n // count + (k < n % count) for k in range(min(count, n))
        ]
        same(nb.concatenate(pieces, axis), x, "int64")
        same(nb.stack(nb.unbind(y, axis), axis), x, "int64")


@given(st.data())
def test_concatenate_and_stack(data):
    shape = data.draw(shapes(1))
    dtype = data.draw(dtypes)
    axis = data.draw(axis_of(shape))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    parts = []
    for size in sizes:
        part = list(shape)
        part[axis] = size
        parts.append(numbers(data.draw, tuple(part), dtype))
    tensors = [
        oracle.tensor(x, data.draw(st.sampled_from(LAYOUTS[:4]))) for x in parts
    ]
    same(nb.concatenate(tensors, axis), np.concatenate(parts, axis), dtype)
    place = data.draw(st.integers(-len(shape) - 1, len(shape)))
    some = [numbers(data.draw, shape, dtype) for _ in sizes]
    same(
        nb.stack([nb.constant(x) for x in some], place),
        np.stack(some, place),
        dtype,
    )


@given(st.data())
def test_repeat_tile_and_triangles(data):
    x = data.draw(arrays(least=1))
    y = oracle.tensor(x, data.draw(st.sampled_from(LAYOUTS[:4])))
    axis, times = data.draw(axis_of(x.shape)), data.draw(st.integers(0, 3))
    same(nb.repeat(y, times, axis), np.repeat(x, times, axis), "int64")
    many = data.draw(st.lists(st.integers(0, 2), max_size=4))
    same(nb.tile(y, many), np.tile(x, many), "int64")
    if x.ndim >= 2:
        k = data.draw(st.integers(-5, 5))
        same(nb.triu(y, k), np.triu(x, k), "int64")
        same(nb.tril(y, k), np.tril(x, k), "int64")
        same(nb.diagonal(y, k), np.diagonal(x, k, -2, -1), "int64")
        same(nb.trace(y, k), np.trace(x, k, -2, -1), "int64")


@given(st.data())
def test_squeeze_and_unsqueeze(data):
    x = data.draw(arrays(largest=2))
    ones = [k for k, size in enumerate(x.shape) if size == 1]
    y = nb.constant(x)
    same(nb.squeeze(y, None), np.squeeze(x), "int64")
    some = tuple(k for k in ones if data.draw(flags))
    same(nb.squeeze(y, some), np.squeeze(x, some), "int64")
    place = data.draw(st.integers(-x.ndim - 1, x.ndim))
    same(nb.squeeze(nb.unsqueeze(y, place), place), x, "int64")
    for k in set(range(x.ndim)) - set(ones):
        with pytest.raises(ValueError, match="squeeze"):
            nb.squeeze(y, k)


@given(shapes(), st.integers(-20, 20))
def test_an_axis_out_of_range(shape, axis):
    x = nb.ones(shape)
    inside = -len(shape) <= axis < len(shape)
    for f in (
        lambda: nb.sum(x, axis),
        lambda: nb.cumsum(x, axis),
        lambda: nb.flip(x, axis),
        lambda: nb.unbind(x, axis),
        lambda: nb.sort(x, axis),
        lambda: nb.softmax(x, axis),
        lambda: nb.concatenate([x, x], axis),
        lambda: nb.moveaxis(x, axis, 0),
        lambda: nb.repeat(x, 2, axis),
        lambda: nb.gather(x, nb.arange(0), axis),
    ):
        if inside:
            f()
            continue
        with pytest.raises(nb.AxisError) as error:
            f()
        assert isinstance(error.value, ValueError)
        assert isinstance(error.value, IndexError)
        assert str(axis) in str(error.value)


def test_sixteen_axes():
    x = np.arange(1 << 8).reshape((1, 2) * 8)
    y = nb.constant(x)
    same(y.sum((0, 3, 15)), x.sum((0, 3, 15)), "int64")
    same(nb.flip(y), np.flip(x), "int64")
    order = list(range(15, -1, -1))
    same(y.permute(order) + y, x.transpose(order) + x, "int64")
    same(nb.cumsum(y, 7), np.cumsum(x, 7), "int64")
    with pytest.raises(ValueError, match="16"):
        nb.unsqueeze(y, 0)


# Contractions.


@given(st.data())
@settings(max_examples=200)
def test_matmul(data):
    m, k, n = (data.draw(st.integers(0, 4)) for _ in range(3))
    lead = data.draw(
        mutually_broadcastable_shapes(num_shapes=2, max_dims=2, min_side=0)
    ).input_shapes
    x = (k,) if data.draw(flags) else (*lead[0], m, k)
    y = (k,) if data.draw(flags) else (*lead[1], k, n)
    dtype, layout = data.draw(dtypes), data.draw(layouts)
    agrees("matmul", dtype, layout, a(*x), a(*y))


@given(shapes(), shapes())
def test_matmul_of_shapes_that_do_not_fit(x, y):
    try:
        want = np.matmul(np.ones(x), np.ones(y)).shape
    except ValueError:
        with pytest.raises(ValueError, match="matmul"):
            nb.matmul(nb.ones(x), nb.ones(y))
    else:
        assert nb.matmul(nb.ones(x), nb.ones(y)).shape == want


@st.composite
def subscripts(draw):
    """Subscripts of up to three operands, and the shapes they ask for."""
    letters = draw(st.permutations(string.ascii_letters))[:5]
    size = {
        c: draw(st.integers(0 if c == letters[0] else 1, 3)) for c in letters
    }
    dots = draw(shapes(most=2, smallest=1, largest=3))
    terms, sizes = [], []
    for _ in range(draw(st.integers(1, 3))):
        term = draw(st.lists(st.sampled_from(letters), max_size=3))
        shape = [size[c] for c in term]
        if draw(st.integers(0, 3)) == 0:
            at = draw(st.integers(0, len(term)))
            own = dots[draw(st.integers(0, len(dots))) :]
            term.insert(at, "...")
            shape[at:at] = own
        terms.append("".join(term))
        sizes.append(tuple(shape))
    text = ",".join(terms)
    used = sorted(set(text) - {",", "."})
    if draw(flags):
        kept = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
        if "..." in text:
            kept.insert(draw(st.integers(0, len(kept))), "...")
        text += "->" + "".join(kept)
    return text, sizes


@given(subscripts(), layouts, dtypes)
@settings(max_examples=400)
def test_einsum(call, layout, dtype):
    text, sizes = call
    agrees("einsum", dtype, layout, text, *(a(*size) for size in sizes))


@given(st.data())
def test_tensordot_over_neighbours(data):
    inner, x, y = (data.draw(shapes(most=2)) for _ in range(3))
    dtype, layout = data.draw(dtypes), data.draw(layouts)
    args = a(*x, *inner), a(*inner, *y)
    agrees("tensordot", dtype, layout, *args, len(inner))


# Sorting and searching.


@given(st.data())
@settings(max_examples=200)
def test_sorting(data):
    shape, dtype = data.draw(shapes(1, 3, 0, 6)), data.draw(dtypes)
    layout, descending = data.draw(layouts), data.draw(flags)
    axis = data.draw(axis_of(shape))
    x = oracle.arranged(data.draw(special(shape, dtype)), layout)
    wide, y = oracle.widened(x), oracle.tensor(x, layout)
    order = oracle.argsort(wide, axis, descending)
    same(nb.argsort(y, axis, descending=descending), order, "int64")
    want = np.take_along_axis(wide, order, axis)
    same(nb.sort(y, axis, descending=descending), want, dtype, ulps=0)
    k = data.draw(st.integers(0, shape[axis]))
    values, places = nb.topk(y, k, axis, largest=descending)
    same(values, np.take(want, range(k), axis), dtype, ulps=0)
    same(places, np.take(order, range(k), axis), "int64")


@given(st.data())
def test_searching_in_a_sorted_row(data):
    dtype = data.draw(dtypes)
    row = data.draw(special((data.draw(st.integers(0, 9)),), dtype))
    values = data.draw(special(data.draw(shapes(most=2)), dtype))
    side = data.draw(st.sampled_from(["left", "right"]))
    wide = oracle.widened(row)
    want = np.searchsorted(np.sort(wide), oracle.widened(values), side)
    v = nb.constant(values)
    same(nb.searchsorted(nb.sort(nb.constant(row)), v, side), want, "int64")
    order = nb.argsort(nb.constant(row))
    got = nb.searchsorted(nb.constant(row), v, side=side, sorter=order)
    same(got, want, "int64")


@given(st.data())
def test_sets_of_values(data):
    shape, dtype = data.draw(shapes(0, 2, 0, 5)), data.draw(dtypes)
    x = data.draw(special(shape, dtype))
    want = oracle.unique_all(oracle.widened(x))
    got = nb.unique_all(nb.constant(x))
    for y, z, d in zip(got, want, (dtype, *["int64"] * 3), strict=True):
        same(y, z, d, ulps=0)
    values, counts = nb.unique_counts(nb.constant(x))
    same(nb.sum(counts), x.size, "int64")
    again = nb.unique_inverse(nb.constant(x))
    picked = nb.gather(again.values, again.inverse_indices)
    same(picked, oracle.widened(x), dtype, ulps=0)
    same(nb.unique_values(nb.constant(x)), want[0], dtype, ulps=0)
    same(values, want[0], dtype, ulps=0)


@given(st.data())
def test_nonzero(data):
    shape, dtype = data.draw(shapes(1, 3)), data.draw(dtypes)
    x = data.draw(special(shape, dtype))
    got = nb.nonzero(nb.constant(x))
    assert isinstance(got, tuple)
    for y, z in zip(got, np.nonzero(oracle.widened(x)), strict=True):
        same(y, z, "int64")
    count = nb.count_nonzero(nb.constant(x))
    same(count, np.count_nonzero(oracle.widened(x)), "int64")


# Indices.


@st.composite
def indices(draw, shape, size):
    """Places along an axis, negative ones too, in some integer dtype."""
    dtype = draw(st.sampled_from(INTEGERS))
    low = 0 if kind(dtype) == "u" else -size
    n = math.prod(shape)
    place = st.integers(low, size - 1)
    some = draw(st.lists(place, min_size=n, max_size=n))
    return np.array(some, dtype).reshape(shape)


@given(st.data())
@settings(max_examples=200)
def test_take_and_scatter(data):
    dtype, layout = data.draw(dtypes), data.draw(st.sampled_from(LAYOUTS[:4]))
    x = numbers(data.draw, data.draw(shapes(1, 3, 1)), dtype)
    axis = data.draw(st.integers(0, x.ndim - 1))
    i = data.draw(indices(data.draw(shapes(most=2)), x.shape[axis]))
    y, j = oracle.tensor(x, layout), oracle.tensor(i, layout)
    want = np.take(x, i.astype("int64"), axis)
    same(nb.take(y, j, axis), want, dtype, ulps=0)
    same(nb.gather(y, j, axis - x.ndim), want, dtype, ulps=0)
    new = numbers(data.draw, want.shape, dtype)
    got = nb.scatter(y, j, oracle.tensor(new, layout), axis)
    same(got, oracle.scatter(x, i, new, axis), dtype, ulps=0)


@given(st.data())
@settings(max_examples=200)
def test_take_along_axis(data):
    dtype, layout = data.draw(dtypes), data.draw(layouts)
    pair = data.draw(
        mutually_broadcastable_shapes(
            num_shapes=2, min_dims=1, max_dims=3, min_side=1
        )
    ).input_shapes
    n = max(map(len, pair))
    one, two = ((1,) * (n - len(shape)) + shape for shape in pair)
    axis = data.draw(st.integers(0, n - 1))
    size = data.draw(st.integers(1, 4))
    one = (*one[:axis], size, *one[axis + 1 :])
    two = (*two[:axis], data.draw(st.integers(0, 4)), *two[axis + 1 :])
    x = oracle.arranged(numbers(data.draw, one, dtype), layout)
    i = oracle.arranged(data.draw(indices(two, size)), layout)
    want = np.take_along_axis(x, i.astype("int64"), axis)
    args = oracle.tensor(x, layout), oracle.tensor(i, layout)
    same(nb.take_along_axis(*args, axis), want, dtype, ulps=0)
    same(nb.take_along_axis(*args, axis - n), want, dtype, ulps=0)


@given(st.data())
def test_repeated_places_combine(data):
    """add, mul, min and max take all that is written to a place."""
    mode = data.draw(st.sampled_from(["add", "mul", "min", "max"]))
    x = data.draw(arrays(least=1, most=2, smallest=1))
    i = data.draw(indices((data.draw(st.integers(0, 6)),), len(x)))
    new = numbers(data.draw, (len(i), *x.shape[1:]), "int64")
    f = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}
    want = x.copy()
    getattr(np, f[mode]).at(want, i.astype("int64"), new)
    place = nb.constant(x).at[nb.constant(i)]
    same(getattr(place, mode)(nb.constant(new)), want, "int64")


@given(st.data())
def test_a_block_is_updated(data):
    x = data.draw(arrays())
    start, size = [], []
    for n in x.shape:
        begin = data.draw(st.integers(0, n))
        start.append(begin)
        size.append(data.draw(st.integers(0, n - begin)))
    new = numbers(data.draw, tuple(size), "int64")
    want = x.copy()
    want[tuple(slice(b, b + n) for b, n in zip(start, size, strict=True))] = new
    got = nb.slice_update(nb.constant(x), nb.constant(new), start, size)
    same(got, want, "int64")
    same(nb.slice_tensor(got, start, size), new, "int64")


# Convolution, against JAX.


@st.composite
def convolution(draw, n):
    """Shapes and settings of a convolution with n spatial axes."""
    groups = draw(st.integers(1, 3))
    inner, outer = (groups * draw(st.integers(1, 2)) for _ in range(2))
    kernel = [draw(st.integers(1, 3)) for _ in range(n)]
    dilation = [draw(st.integers(1, 2)) for _ in range(n)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    around = [draw(st.integers(0, 2)) for _ in range(2 * n)]
    size = [r + draw(st.integers(0, 3)) for r in reach]
    return {
        "x": (draw(st.integers(1, 2)), *size, inner),
        "filter": (*kernel, inner // groups, outer),
        "stride": tuple(draw(st.integers(1, 3)) for _ in range(n)),
        "dilation": tuple(dilation),
        "padding": tuple(around),
        "groups": groups,
    }


@given(st.data())
@settings(max_examples=25)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_convolution_agrees_with_jax(n, data):
    jax = pytest.importorskip("jax")
    how = data.draw(convolution(n))
    x = numbers(data.draw, how.pop("x"), "float32")
    w = numbers(data.draw, how.pop("filter"), "float32")
    pairs = oracle.padding_pairs(how["padding"], n)
    axes = "DHW"[3 - n :]
    want = jax.lax.conv_general_dilated(
        x,
        w,
        how["stride"],
        pairs,
        rhs_dilation=how["dilation"],
        dimension_numbers=(f"N{axes}C", f"{axes}IO", f"N{axes}C"),
        feature_group_count=how["groups"],
    )
    got = getattr(nb, f"conv{n}d")(nb.constant(x), nb.constant(w), **how)
    same(got, np.asarray(want), "float32", ulps=64, scale=32)


@given(st.data())
@settings(max_examples=25)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_transposed_convolution_is_the_adjoint(n, data):
    """The sum of conv(x) * y equals that of x * conv_transpose(y), exactly in
    integers, where the sizes come out right."""
    how = data.draw(convolution(n))
    shape = how.pop("x")
    x = numbers(data.draw, shape, "int64")
    w = numbers(data.draw, how.pop("filter"), "int64")
    z = oracle.conv(x, w, **how)
    y = numbers(data.draw, z.shape, "int64")
    pairs = oracle.padding_pairs(how["padding"], n)
    left = [
        (size + sum(pair) - d * (k - 1) - 1) % s
        for size, pair, d, k, s in zip(
            shape[1:-1],
            pairs,
            how["dilation"],
            w.shape[:n],
            how["stride"],
            strict=True,
        )
    ]
    back = _nabla.ops[f"conv{n}d_transpose"]
    got = back(nb.constant(y), nb.constant(w), output_paddings=left, **how)
    assert got.shape == shape
    assert int(np.sum(got.numpy() * x)) == int(np.sum(y * z))
