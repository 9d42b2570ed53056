"""Indexing: x[key], x[key] = v and x.at[key] against NumPy, and where Nabla
has rules of its own."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import nabla as nb

shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)


def numbers(shape, start=0):
    """Distinct numbers in a shape."""
    end = start + math.prod(shape)
    return np.arange(start, end, dtype=np.float32).reshape(shape)


def ends(n):
    return st.none() | st.integers(-n - 2, n + 2)


@st.composite
def slices(draw, n):
    step = draw(st.none() | st.integers(-3, 3).filter(bool))
    return slice(draw(ends(n)), draw(ends(n)), step)


@st.composite
def basic_keys(draw, shape):
    """Ints, slices, None and ... for a shape."""
    rank = draw(st.integers(0, len(shape)))
    items = []
    for n in shape[:rank]:
        kinds = [slices(n)]
        if n:
            kinds.append(st.integers(-n, n - 1))
        items.append(draw(st.one_of(kinds)))
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    if draw(st.booleans()):
        items.append(Ellipsis)
    return tuple(items)


@st.composite
def arrays(draw, shape, elements, dtype):
    n = math.prod(shape)
    values = draw(st.lists(elements, min_size=n, max_size=n))
    return np.array(values, dtype=dtype).reshape(shape)


@st.composite
def index_arrays(draw, n, common):
    """Indices of an axis of size n, of a shape that broadcasts to common."""
    dims = common[draw(st.integers(0, len(common))) :]
    dims = tuple(draw(st.sampled_from([1, s, s])) for s in dims)
    if n == 0:
        dims = (0,)
    indices = st.integers(-n, n - 1) if n else st.just(0)
    return draw(arrays(dims, indices, np.int64))


@st.composite
def keys(draw, shape):
    """Any key, of which NumPy takes most."""
    common = draw(st.lists(st.integers(0, 3), max_size=2))
    items, d = [], 0
    for kind in draw(st.lists(st.sampled_from("isnam"), max_size=6)):
        n = shape[d] if d < len(shape) else None
        taken = 1
        if kind == "n":
            items.append(None)
            taken = 0
        elif kind == "m":
            taken = draw(st.integers(0, len(shape) - d))
            mask = arrays(shape[d : d + taken], st.booleans(), bool)
            items.append(draw(mask))
        elif n is None:
            break
        elif kind == "a":
            items.append(draw(index_arrays(n, common)))
        elif kind == "i" and n:
            items.append(draw(st.integers(-n, n - 1)))
        else:
            items.append(draw(slices(n)))
        d += taken
    if draw(st.booleans()):
        items.append(Ellipsis)
    return tuple(items)


def is_rejected(x, key):
    """Whether NumPy itself cannot read this key."""
    try:
        x[key]
    except IndexError:
        return True
    return False


def as_tensors(key):
    return tuple(
        nb.constant(k) if isinstance(k, np.ndarray) else k for k in key
    )


def as_lists(key):
    return tuple(
        k.tolist() if isinstance(k, np.ndarray) and k.size else k for k in key
    )


def same(actual, expected):
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual.numpy(), expected)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_basic_keys_read_as_in_numpy(data):
    shape = data.draw(shapes)
    x, key = numbers(shape), data.draw(basic_keys(shape))
    same(nb.constant(x)[key], x[key])


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_any_key_reads_as_in_numpy(data):
    shape = data.draw(shapes)
    x, key = numbers(shape), data.draw(keys(shape))
    form = data.draw(st.sampled_from([tuple, as_tensors, as_lists]))
    if is_rejected(x, key):
        with pytest.raises(IndexError):
            nb.constant(x)[key]
        return
    same(nb.constant(x)[form(key)], x[key])


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_assignment_writes_as_in_numpy(data):
    shape = data.draw(shapes)
    x, key = numbers(shape), data.draw(keys(shape))
    if is_rejected(x, key):
        return
    picked = x[key].shape
    dims = picked[data.draw(st.integers(0, len(picked))) :]
    dims = tuple(1 if data.draw(st.booleans()) else n for n in dims)
    value = numbers(dims, 100)
    y = nb.constant(x)
    before = y.detach()
    form = data.draw(st.sampled_from([tuple, as_tensors]))
    y[form(key)] = nb.constant(value) if data.draw(st.booleans()) else value
    expected = x.copy()
    expected[key] = value
    same(y, expected)
    same(before, x)


METHODS = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_at_combines_all_values_for_one_place(method, data):
    shape = data.draw(shapes)
    x, key = numbers(shape), data.draw(keys(shape))
    if is_rejected(x, key):
        return
    value = numbers(x[key].shape, -3)
    y = nb.constant(x)
    z = getattr(y.at[as_tensors(key)], method)(value)
    expected = x.copy()
    METHODS[method](expected, key, value)
    same(z, expected)
    same(y, x)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_at_set_keeps_the_last_value_in_row_major_order(data):
    n = data.draw(st.integers(1, 4))
    x = numbers((n, 3))
    rows = data.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=6))
    value = numbers((len(rows), 3), 50)
    expected = x.copy()
    for row, one in zip(rows, value, strict=True):
        expected[row] = one
    same(nb.constant(x).at[nb.constant(rows)].set(value), expected)


# Rules of Nabla's own.


@pytest.fixture
def x():
    return nb.constant(numbers((3, 4)))


@pytest.mark.parametrize(
    "key",
    [3, -4, (0, 4), (0, 0, 0), (slice(None),) * 3, (..., 0, ...), 10**30],
    ids=str,
)
def test_what_is_not_there_is_an_index_error(x, key):
    with pytest.raises(IndexError):
        x[key]
    with pytest.raises(IndexError):
        x[key] = 0.0
    with pytest.raises(IndexError):
        x.at[key].add(1.0)


@pytest.mark.parametrize(
    "key",
    [
        0.5,
        np.float32(1),
        np.float64(1),
        "a",
        b"a",
        {},
        1j,
        [0.5],
        ["a"],
        np.ones(3),
        nb.ones(3),
        (0, 1.0),
        slice(0.5, 2),
        slice(None, None, "a"),
    ],
    ids=str,
)
def test_keys_of_other_types_are_type_errors(x, key):
    with pytest.raises(TypeError):
        x[key]
    with pytest.raises(TypeError):
        x[key] = 0.0


def test_a_step_of_zero_is_a_value_error(x):
    with pytest.raises(ValueError, match="step"):
        x[::0]


@pytest.mark.parametrize("key", [[0, 3], np.array([-4]), ([0], [4])], ids=str)
def test_lists_and_arrays_are_checked_at_the_call(x, key):
    with pytest.raises(IndexError, match="out of range"):
        x[key]
    with pytest.raises(IndexError, match="out of range"):
        x[key] = 0.0


def test_tensors_out_of_range_read_the_nearest_and_write_nothing(x):
    rows = nb.constant([-9, -3, 1, 7])
    same(x[rows], numbers((3, 4))[[0, 0, 1, 2]])
    y = x.at[rows].set(-1.0)
    expected = numbers((3, 4))
    expected[[0, 1]] = -1
    same(y, expected)
    z = x.at[nb.constant([3, 3])].add(1.0)
    same(z, numbers((3, 4)))


def test_keys_may_be_scalars_of_numpy_and_0d_tensors(x):
    a = numbers((3, 4))
    same(x[np.int64(1)], a[1])
    same(x[np.uint8(2), np.array(1)], a[2, 1])
    same(x[nb.constant(-1)], a[-1])
    same(x[nb.constant(1) :], a[1:])
    same(x[True], a[True])
    same(x[np.False_], a[np.False_])
    same(x[None, True, :2], a[None, True, :2])


def test_a_nested_list_is_an_array_and_an_empty_one_picks_nothing(x):
    a = numbers((3, 4))
    same(x[[[0, 1], [2, 0]]], a[[[0, 1], [2, 0]]])
    same(x[(0, 1), (2, 3)], a[(0, 1), (2, 3)])
    same(x[[(0, 1), (2, 0)]], a[np.array([(0, 1), (2, 0)])])
    same(x[[]], a[[]])
    same(x[[True, False, True]], a[[True, False, True]])


def test_slices_clamp_to_any_size(x):
    a = numbers((3, 4))
    for key in (slice(-(10**30), 10**30), slice(10**30, None, -(10**30))):
        same(x[key], a[key])


def test_a_mask_of_another_size_is_an_index_error(x):
    for mask in ([True, False], np.ones((3, 5), bool), nb.zeros(2) == 0):
        with pytest.raises(IndexError):
            x[mask]


def test_index_arrays_that_do_not_broadcast_are_an_index_error(x):
    with pytest.raises(IndexError, match="broadcast"):
        x[[0, 1], [0, 1, 2]]


def test_reads_are_lazy_and_masks_are_not():
    x = nb.arange(4) * 1
    y = x[1:]
    assert not y.real and y.shape == (3,)
    z = x[nb.constant([0, 1])]
    assert not z.real and not x.real
    assert x[x > 1].shape == (2,)


def test_a_number_through_a_mask_stays_lazy():
    x = nb.arange(4) * 1
    mask = x > 1
    x[mask] = 7
    assert not x.real and not mask.real
    assert x.tolist() == [0, 1, 7, 7]


def test_assignment_takes_the_dtype_of_the_tensor():
    x = nb.zeros(3, dtype="int32")
    x[1] = 2.9
    x[2] = nb.constant(5, dtype="int64")
    assert x.dtype is nb.int32
    assert x.tolist() == [0, 2, 5]
    with pytest.raises(OverflowError):
        x[0] = 2**40


def test_assignment_takes_lists_and_broadcasts(x):
    x[:2] = [1, 2, 3, 4]
    assert x.tolist()[:2] == [[1, 2, 3, 4]] * 2
    with pytest.raises(ValueError, match="broadcast"):
        x[:2] = [1, 2, 3]


def test_assignment_rebinds_the_object_and_nothing_else():
    x = nb.zeros(3)
    y, z = x, x[:]
    x[0] = 1.0
    assert y is x and y.tolist() == [1, 0, 0]
    assert z.tolist() == [0, 0, 0]


def test_an_assignment_that_fails_changes_nothing(x):
    with pytest.raises(ValueError):
        x[0] = [1, 2]
    same(x, numbers((3, 4)))


def test_use_buffer_ops_tells_assignment_from_update():
    x = nb.zeros(4)
    y = x.at[1:3].set(1.0)
    assert y.op_kwargs["use_buffer_ops"] is False
    x[1:3] = 1.0
    assert x.op_kwargs["use_buffer_ops"] is True
    z = nb.slice_update(x, 2.0, (0,), (2,))
    assert z.op_kwargs["use_buffer_ops"] is False
    z = nb.ops.view.slice_update_inplace(x, 2.0, (0,), (2,))
    assert z.op_kwargs["use_buffer_ops"] is True
    assert z.tolist() == [2, 2, 1, 0]


def test_at_get_reads(x):
    same(x.at[1:, 2].get(), numbers((3, 4))[1:, 2])


def test_elements_cannot_be_deleted(x):
    with pytest.raises(TypeError):
        del x[0]


@pytest.mark.parametrize("dtype", list(nb.DType), ids=lambda d: d.name)
def test_every_dtype_is_read_and_written(dtype):
    a = np.array([[0, 1, 2], [3, 4, 5]])
    x = nb.constant(a, dtype=dtype)
    expected = nb.constant(a[:, [2, 0]], dtype=dtype)
    assert x[:, [2, 0]].tolist() == expected.tolist()
    x[1, ::2] = 1
    assert x.dtype is dtype
    assert x.tolist()[1] == nb.constant([1, 4, 1], dtype=dtype).tolist()


def test_rank_16_is_read():
    x = nb.arange(2).reshape((1,) * 15 + (2,))
    assert x[(0,) * 15].tolist() == [0, 1]
    assert x[..., 1].shape == (1,) * 15
    with pytest.raises(IndexError, match="rank"):
        x[None]
