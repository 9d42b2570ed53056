"""Dtypes: how they combine, what numbers do to them, how elements are cast, in
which dtype sums are made, and what happens at the ends of a range."""

import math
import operator
import threading
from fractions import Fraction

import numpy as np
import pytest
from oracle import (
    DTYPES,
    FLOATS,
    INTEGERS,
    KINDS,
    PROMOTION,
    edges,
    floating,
    kind,
    limits,
    np_dtype,
    same,
    summed,
    wrapped,
)

import nabla as nb


def ones(dtype, shape=2):
    return nb.ones(shape, dtype=dtype)


def full(dtype, value, shape=2):
    return nb.constant(np.full(shape, value, np_dtype(dtype)))


# Two tensors.

PAIRS = sorted(PROMOTION, key=lambda pair: tuple(map(DTYPES.index, pair)))
COMBINED = [pair for pair in PAIRS if PROMOTION[pair]]
CLASHES = [pair for pair in PAIRS if not PROMOTION[pair]]


def test_the_table_is_symmetric_and_only_uint64_clashes():
    for a, b in PAIRS:
        assert PROMOTION[a, b] == PROMOTION[b, a]
    assert len(PAIRS) == len(DTYPES) ** 2
    assert {a for a, _ in CLASHES} == {"uint64", *KINDS["i"]}


@pytest.mark.parametrize(("a", "b"), COMBINED)
def test_two_dtypes_combine_as_the_table_says(a, b):
    x, y, want = ones(a), ones(b, (3, 1)), PROMOTION[a, b]
    assert nb.result_type(x, y).name == want
    assert nb.result_type(nb.DType[a], b).name == want
    for result in (
        x + y,
        x * y,
        nb.maximum(x, y),
        nb.where(True, x, y),
        nb.concatenate([x, ones(b)]),
        nb.stack([x, ones(b)]),
        nb.outer(x, ones(b)),
        nb.matmul(x, ones(b)),
        nb.einsum("i,ji->j", x, ones(b, (3, 2))),
    ):
        assert result.dtype.name == want
        assert result.numpy().dtype == np_dtype(want)


@pytest.mark.parametrize(("a", "b"), COMBINED)
def test_division_and_comparison_of_two_dtypes(a, b):
    x, y = ones(a), ones(b)
    same(x / y, np.ones(2), floating(PROMOTION[a, b]))
    for compare in ("eq", "ne", "lt", "le", "gt", "ge"):
        f = getattr(operator, compare)
        same(f(x, y), [f(1, 1)] * 2, "bool")


@pytest.mark.parametrize(("a", "b"), CLASHES)
def test_uint64_does_not_combine_with_signed_integers(a, b):
    x, y = ones(a), ones(b)
    for f in (
        operator.add,
        operator.truediv,
        operator.lt,
        nb.maximum,
        nb.result_type,
        lambda x, y: nb.concatenate([x, y]),
        lambda x, y: nb.where(True, x, y),
        lambda x, y: nb.result_type(x.dtype, y.dtype),
    ):
        with pytest.raises(TypeError, match=f"{a}.*{b}|{b}.*{a}"):
            f(x, y)


def test_three_dtypes_combine_from_the_left():
    x = [ones("int8"), ones("uint8"), ones("float16")]
    assert nb.concatenate(x).dtype is nb.float16
    assert nb.concatenate(x[:2]).dtype is nb.int16
    assert nb.result_type(*x, ones("bfloat16")).name == "float32"


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_a_dtype_can_be_cast_where_nothing_else_is_needed(a, b):
    assert nb.can_cast(nb.DType[a], b) == (PROMOTION[a, b] == b)
    assert nb.can_cast(ones(a), nb.DType[b]) == (PROMOTION[a, b] == b)


# A tensor and a number.

NUMBERS = {"bool": True, "int": 3, "float": 2.5, "float64": np.float64(2.5)}


def weak(dtype, number, default="float32"):
    """The dtype of a tensor of that dtype with a number."""
    if isinstance(number, float):
        return dtype if dtype in FLOATS else default
    if not isinstance(number, bool) and dtype == "bool":
        return "int64"
    return dtype


ARITHMETIC = {
    "add": (operator.add, nb.add),
    "sub": (operator.sub, nb.sub),
    "mul": (operator.mul, nb.mul),
    "truediv": (operator.truediv, nb.div),
    "floordiv": (operator.floordiv, nb.floor_divide),
    "mod": (operator.mod, nb.mod),
    "pow": (operator.pow, nb.pow),
}
COMPARISON = {
    "eq": (operator.eq, nb.equal),
    "ne": (operator.ne, nb.not_equal),
    "lt": (operator.lt, nb.less),
    "le": (operator.le, nb.less_equal),
    "gt": (operator.gt, nb.greater),
    "ge": (operator.ge, nb.greater_equal),
}
BITS = {
    "and": (operator.and_, nb.bitwise_and),
    "or": (operator.or_, nb.bitwise_or),
    "xor": (operator.xor, nb.bitwise_xor),
}
SHIFTS = {
    "lshift": (operator.lshift, nb.bitwise_left_shift),
    "rshift": (operator.rshift, nb.bitwise_right_shift),
}
NUMBERS_ONLY = ("sub", "floordiv", "mod", "pow")


def takes(name, dtype):
    """Whether an operator takes a dtype at all."""
    if name in BITS:
        return dtype not in FLOATS
    if name in SHIFTS:
        return dtype in INTEGERS
    return not (name in NUMBERS_ONLY and dtype == "bool")


def expected(name, x, number):
    """Dtype and value of `x name number`; x is full of twos or True."""
    common = weak(x.dtype.name, number)
    if not takes(name, common):
        return None
    if name in COMPARISON:
        return "bool"
    return floating(common) if name == "truediv" else common


OPERATORS = ARITHMETIC | COMPARISON | BITS | SHIFTS


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_number_bends_to_the_tensor(name, dtype, number):
    x = full(dtype, 2)
    want = expected(name, x, number)
    as_operator, as_function = OPERATORS[name]
    plain = as_operator
    for f in (as_operator, as_function):
        for left, right in ((x, number), (number, x)):
            if want is None:
                with pytest.raises(TypeError):
                    f(left, right)
                continue
            two = True if dtype == "bool" else 2
            a, b = ((two, number), (number, two))[left is number]
            same(f(left, right), [plain(a, b)] * 2, want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_tensors_and_numbers(dtype):
    x = full(dtype, 1)
    for number in NUMBERS.values():
        want = weak(dtype, number)
        for result in (
            nb.maximum(x, number),
            nb.minimum(number, x),
            nb.where(True, x, number),
            nb.where(False, number, x),
            nb.clip(x, False, number),
            nb.stack([x[0], number]),
            nb.mul(x, number),
        ):
            assert result.dtype.name == want
        assert nb.result_type(x, number).name == want
        assert nb.result_type(number, x).name == want
        assert nb.hypot(x, number).dtype.name == floating(want)


def test_numbers_among_themselves():
    assert nb.add(1, 2).dtype is nb.int64
    assert nb.add(True, True).dtype is nb.bool
    assert nb.add(True, 1).dtype is nb.int64
    assert nb.add(1, 2.5).dtype is nb.float32
    assert nb.exp(1).dtype is nb.float32
    assert nb.result_type(1, 2.5).name == "float32"
    with nb.default_dtype("float64"):
        assert nb.add(1, 2.5).dtype is nb.float64


def test_two_numbers_do_not_add_up_against_a_tensor():
    x = ones("float16")
    assert nb.clip(x, 0, 1.5).dtype is nb.float16
    assert nb.clip(ones("int8"), True, 2).dtype is nb.int8
    assert nb.clip(ones("int8"), 0, 1.5).dtype is nb.float32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", [d for d in DTYPES if d != "float64"])
def test_scalars_of_numpy_are_strong(dtype, other):
    """But float64, which counts as a float of Python."""
    number = np.ones((), np_dtype(other))[()]
    x, want = ones(dtype), PROMOTION[dtype, other]
    if want is None:
        with pytest.raises(TypeError):
            x + number
        with pytest.raises(TypeError):
            number + x
        return
    assert (x + number).dtype.name == want
    assert (number + x).dtype.name == want
    assert nb.add(number, x).dtype.name == want


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_arrays_and_0d_tensors_are_strong(dtype, other):
    want = PROMOTION[dtype, other]
    if want is None:
        return
    x = ones(dtype)
    array = np.ones((), np_dtype(other))
    for y in (nb.constant(1, dtype=other), array):
        assert (x + y).dtype.name == want
        assert (y + x).dtype.name == want


def test_a_constant_of_a_number_is_strong():
    assert (ones("int8") + nb.constant(3)).dtype is nb.int64
    assert (ones("float16") * nb.constant(2.5)).dtype is nb.float32
    assert (ones("bfloat16") * nb.constant(2.5)).dtype is nb.float32
    assert (ones("int8") + nb.constant(True)).dtype is nb.int8


def test_a_number_of_numpy_keeps_a_scaled_float32():
    assert (ones("float32") * np.sqrt(64)).dtype is nb.float32
    assert (np.sqrt(64) * ones("float32")).dtype is nb.float32
    assert (ones("bfloat16") / np.float64(3)).dtype is nb.bfloat16


# Integers that do not fit.


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("beyond", [-1, 1])
def test_an_int_that_does_not_fit_the_tensor(dtype, beyond):
    least, most = map(int, limits(dtype))
    number = least - 1 if beyond < 0 else most + 1
    x = ones(dtype)
    for f in (
        lambda: x + number,
        lambda: number + x,
        lambda: x * number,
        lambda: x < number,
        lambda: number == x,
        lambda: x // number,
        lambda: x & number,
        lambda: nb.maximum(x, number),
        lambda: nb.minimum(number, x),
        lambda: nb.where(True, x, number),
        lambda: nb.clip(x, 0, number),
        lambda: nb.constant(number, dtype=dtype),
        lambda: nb.constant([0, number], dtype=dtype),
        lambda: nb.asarray(number, dtype=dtype),
        lambda: nb.Tensor(number, dtype=dtype),
        lambda: nb.full(2, number, dtype=dtype),
        lambda: nb.full_like(x, number),
        lambda: x.new_full(2, number),
        lambda: nb.pad(x, [(1, 0)] * x.ndim, value=number),
    ):
        with pytest.raises(OverflowError):
            f()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_last_ints_that_fit(dtype):
    for number in map(int, limits(dtype)):
        zero = nb.zeros(2, dtype=dtype)
        same(zero + number, np.full(2, number), dtype)
        same(number | zero, np.full(2, number), dtype)
        same(nb.constant(number, dtype=dtype), np.array(number), dtype)
        same(nb.full(2, number, dtype=dtype), np.full(2, number), dtype)
        padded = nb.pad(zero, [(1, 0)], value=number)
        assert padded.tolist() == [number, 0, 0]


def test_what_is_padded_with_is_exact():
    x = nb.constant([[1, 2]])
    for number in (2**53 + 1, -(2**53) - 1, np.int64(2**62 + 1)):
        y = nb.pad(x, [(1, 0), (0, 1)], value=number)
        assert y.tolist() == [[number] * 3, [1, 2, number]]
    each = nb.vmap(lambda x: nb.pad(x, [(0, 1)], value=2**53 + 1))(x)
    assert each.tolist() == [[1, 2, 2**53 + 1]]
    assert nb.pad(x[0], [(1, 0)], value=2.0).tolist() == [2, 1, 2]
    with pytest.raises(NotImplementedError, match="reflect"):
        nb.pad(x, [(0, 0), (1, 1)], "reflect", 2**60 + 1)


def test_ints_beyond_64_bits():
    for number in (1 << 64, -(1 << 63) - 1, 1 << 200):
        with pytest.raises(OverflowError):
            nb.constant(number)
        with pytest.raises(OverflowError):
            nb.constant([number])
        with pytest.raises(OverflowError):
            ones("bool") + number
    same(ones("float64") * (1 << 70), np.full(2, 2.0**70), "float64")
    same(ones("float32") + (1 << 70), np.full(2, 2.0**70), "float32")
    same(ones("float16") * 100_000, np.full(2, math.inf), "float16")
    with pytest.raises(OverflowError):
        ones("float64") + 10**400


def test_an_argument_beyond_int64_is_named():
    key = nb.random.key(0)
    for f, match in (
        (lambda: nb.arange(2**63, 2**63 + 2, dtype="uint64"), "arange.*start"),
        (lambda: nb.arange(2**63), "arange.*stop"),
        (
            lambda: nb.random.randint(key, 3, 0, 2**64 - 1, dtype="uint64"),
            "randint: high",
        ),
        (lambda: nb.zeros((2, 2**70)), "zeros: shape"),
        (lambda: nb.linspace(0, 10**400, 3), "linspace: stop.*float64"),
    ):
        with pytest.raises(OverflowError, match=match):
            f()


def test_a_float_overflows_to_infinity():
    same(ones("float16") * 1e6, np.full(2, math.inf), "float16")
    same(ones("float32") * -1e300, np.full(2, -math.inf), "float32")


# Values from Python.


def test_dtypes_of_python_values():
    for value, dtype in (
        (True, "bool"),
        (7, "int64"),
        (1.5, "float32"),
        ([], "float32"),
        ([True, False], "bool"),
        ([True, 2], "int64"),
        ([[1, 2], [3, 4.5]], "float32"),
        ([[True], [0.5]], "float32"),
        ((1, 2), "int64"),
        (np.float64(1.5), "float32"),
        (np.int16(3), "int16"),
        (np.float16(1.5), "float16"),
    ):
        assert nb.constant(value).dtype.name == dtype, value
    for dtype in DTYPES:
        a = np.ones(2, np_dtype(dtype))
        assert nb.constant(a).dtype.name == dtype
        assert nb.asarray(a).dtype.name == dtype
        assert nb.constant([1, 0], dtype=dtype).dtype.name == dtype
        assert nb.constant(a, dtype="float16").dtype is nb.float16


def test_dtypes_of_factories():
    for made, dtype in (
        (nb.zeros(2), "float32"),
        (nb.ones(2), "float32"),
        (nb.empty(2), "float32"),
        (nb.eye(2), "float32"),
        (nb.linspace(0, 1, 3), "float32"),
        (nb.hann_window(4), "float32"),
        (nb.full(2, 7), "int64"),
        (nb.full(2, True), "bool"),
        (nb.full(2, 7.5), "float32"),
        (nb.full(2, ones("int8", ())), "int8"),
        (nb.arange(3), "int64"),
        (nb.arange(3.0), "float32"),
        (nb.arange(0, 3, 0.5), "float32"),
        (nb.one_hot(nb.arange(3), 3), "float32"),
        (nb.arange(3, dtype="float64"), "float64"),
        (nb.zeros_like(ones("uint16")), "uint16"),
        (nb.full_like(ones("uint16"), 3), "uint16"),
        (nb.ones_like(ones("uint16"), dtype="bool"), "bool"),
    ):
        assert made.dtype.name == dtype


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_default_dtype_of_a_context(dtype):
    x = ones("int32")
    with nb.default_dtype(dtype):
        for made in (
            nb.constant(1.5),
            nb.constant([1, 2.5]),
            nb.zeros(2),
            nb.full(2, 1.5),
            nb.arange(0.0, 2.0),
            nb.linspace(0, 1, 3),
            nb.eye(2),
            x / x,
            x / 2,
            x * 1.5,
            ones("bool") + 0.5,
            nb.exp(x),
            nb.mean(x),
            nb.var(x),
            nb.softmax(x),
            nb.result_type(x, 1.5),
        ):
            got = made if isinstance(made, nb.DType) else made.dtype
            assert got.name == dtype
        assert (ones("float16") * 1.5).dtype is nb.float16
        assert nb.constant(3).dtype is nb.int64
        assert nb.defaults()[0].name == dtype
    assert nb.zeros(2).dtype is nb.float32
    assert nb.defaults()[0] is nb.float32


def test_default_dtypes_nest_and_end_with_an_error():
    with nb.default_dtype("float64"):
        with nb.default_dtype(nb.float16):
            assert nb.zeros(1).dtype is nb.float16
        assert nb.zeros(1).dtype is nb.float64
        with pytest.raises(KeyError), nb.default_dtype("bfloat16"):
            raise KeyError
        assert nb.zeros(1).dtype is nb.float64
    assert nb.zeros(1).dtype is nb.float32


def test_a_default_dtype_is_not_seen_by_another_thread():
    seen = []
    with nb.default_dtype("float64"):
        thread = threading.Thread(
            target=lambda: seen.append((ones("int8") / 2).dtype)
        )
        thread.start()
        thread.join()
    assert seen == [nb.float32]


@pytest.mark.parametrize("dtype", ["int32", "bool", nb.uint8])
def test_a_default_dtype_is_floating(dtype):
    with pytest.raises(TypeError):
        nb.default_dtype(dtype)


# Casts.


def nearest(value, dtype):
    """A number rounded to a floating dtype, once, to nearest and even."""
    d = np_dtype(dtype)
    if math.isnan(value) or math.isinf(value) or value == 0:
        return d.type(value)
    most = d.type(limits(dtype)[1])
    below = np.nextafter(most, d.type(0))
    step = Fraction(float(most)) - Fraction(float(below))
    if abs(Fraction(value)) >= Fraction(float(most)) + step / 2:
        return d.type(math.copysign(math.inf, value))
    with np.errstate(over="ignore"):
        near = d.type(min(max(float(value), -float(most)), float(most)))
    around = [near, np.nextafter(near, most), np.nextafter(near, -most)]

    def distance(c):
        odd = int(np.array(c).view(f"u{d.itemsize}")) & 1
        return abs(Fraction(float(c)) - Fraction(value)), odd

    return min(around, key=distance)


def cast_one(value, to):
    """To bool: is it not zero.  To an integer: integers modulo, floats towards
    zero and held at the ends, NaN 0.  To a float: rounded once."""
    if to == "bool":
        return value != 0
    if to in FLOATS:
        return nearest(value, to)
    least, most = map(int, limits(to))
    if not isinstance(value, float):
        return wrapped(int(value), np_dtype(to))
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return most if value > 0 else least
    return max(min(int(value), most), least)


MORE = {
    "float64": [
        2.0**24 + 1,
        2.0**53,
        1 + 2.0**-8,
        1 + 2.0**-9 + 2.0**-30,
        1 + 2.0**-11,
        1 + 2.0**-11 + 2.0**-40,
        65519.999,
        65520.0,
        2.0**-25,
        2.0**-25 * 1.001,
        2.0**-133 * 0.75,
        -0.99,
        127.9,
        -128.9,
        255.5,
        2.0**31,
        2.0**63,
        2.0**64,
        -(2.0**63),
        1e300,
    ],
    "float32": [2.0**24 - 1, 1 + 2.0**-8, 65519.0, 65520.0, 2.0**63, -1e30],
    "int64": [
        (1 << 24) + 1,
        (1 << 53) + 1,
        (1 << 62) + (1 << 54) + 1,
        (1 << 62) + (1 << 38),
        (1 << 62) + (1 << 38) + 1,
        257,
        -300,
        65519,
        65520,
        2049,
    ],
    "uint64": [
        (1 << 63) + (1 << 55) + 1,
        (1 << 63) + (1 << 39) + 1,
        (1 << 63) + 1025,
    ],
    "int32": [(1 << 24) + 1, (1 << 30) + (1 << 22) + 1, 70000],
}


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_casts(dtype, to):
    more = np.array(MORE.get(dtype, []), np_dtype(dtype))
    a = np.concatenate([edges(dtype), more])
    values = a.astype("float64") if dtype in FLOATS else a
    want = [cast_one(value, to) for value in values.tolist()]
    want = np.array(want, np_dtype(to))
    for x in (nb.constant(a), nb.constant(np.repeat(a, 3))[::3]):
        compiled = nb.compile(lambda v: nb.cast(v, to))
        for y in (
            nb.cast(x, to),
            x.astype(nb.DType[to]),
            x.to(nb.DType[to]),
            compiled(x),
        ):
            assert y.dtype.name == to
            got = y.numpy()
            assert got.dtype == np_dtype(to)
            np.testing.assert_array_equal(
                got.astype("float64") if to in FLOATS else got,
                want.astype("float64") if to in FLOATS else want,
            )
            if to in FLOATS:
                np.testing.assert_array_equal(
                    np.signbit(got[got == 0]), np.signbit(want[want == 0])
                )


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cast_to_its_own_dtype_changes_nothing(dtype):
    x = nb.constant(edges(dtype))
    for y in (x.cast(dtype), nb.cast(x), nb.cast(x, None)):
        same(y, edges(dtype), dtype, ulps=0, zeros=True)


def test_a_dtype_has_many_names():
    x = ones("int8")
    for name in ("float16", "f16", nb.float16, np.float16, np.dtype("f2")):
        assert x.cast(name).dtype is nb.float16
    assert x.cast(bool).dtype is nb.bool
    assert x.cast(int).dtype is nb.int64
    assert x.cast(float).dtype is nb.float32
    for wrong in ("float17", "complex", np.complex64, 7, object, "U3"):
        with pytest.raises(TypeError):
            x.cast(wrong)


# Division by zero and other ends.


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_by_zero_give_zero(dtype):
    a = edges(dtype)
    x, zero = nb.constant(a), nb.zeros(1, dtype=dtype)
    nothing = np.zeros(a.shape)
    for y in (
        x // zero,
        x % zero,
        x // 0,
        x % 0,
        nb.floor_divide(x, zero),
        nb.mod(x, 0),
        nb.remainder(x, zero),
    ):
        same(y, nothing, dtype)
    same(7 // zero, [0], dtype)
    same(7 % zero, [0], dtype)


@pytest.mark.parametrize("dtype", KINDS["i"])
def test_the_least_integer_has_no_opposite(dtype):
    least, _ = map(int, limits(dtype))
    x, minus = full(dtype, least), full(dtype, -1)
    same(x // minus, np.full(2, least), dtype)
    same(x % minus, np.zeros(2), dtype)
    same(-x, np.full(2, least), dtype)
    same(abs(x), np.full(2, least), dtype)
    same(x * minus, np.full(2, least), dtype)
    same(x - 1, np.full(2, limits(dtype)[1]), dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_quotient_of_integers_by_zero_is_infinite(dtype):
    x = nb.constant(np.array([1, 0], dtype))
    same(x / nb.zeros(2, dtype=dtype), [math.inf, math.nan], "float32")


@pytest.mark.parametrize("dtype", KINDS["i"])
def test_an_integer_to_a_negative_power_is_refused(dtype):
    x = ones(dtype)
    with pytest.raises(ValueError, match="pow"):
        x**-1
    with pytest.raises(ValueError, match="pow"):
        nb.pow(x, -2)
    same(full(dtype, 2) ** full(dtype, -1), [0, 0], dtype)
    same(x ** full(dtype, -1), [1, 1], dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_by_zero_are_infinite_or_nan(dtype):
    x = nb.constant(np.array([1, -1, 0], np_dtype(dtype)))
    same(x / 0, [math.inf, -math.inf, math.nan], dtype)
    same(x // 0, [math.inf, -math.inf, math.nan], dtype)
    same(x % 0, [math.nan] * 3, dtype)


# Sums.


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_sums_of_integers_are_64_bits_wide(dtype):
    a = np.full((4, 100), limits(dtype)[1], np_dtype(dtype))
    x, wide = nb.constant(a), summed(dtype)
    with np.errstate(over="ignore"):
        total = np.sum(a, 1, dtype=wide)
        same(nb.sum(x, 1), total, wide)
        same(x.sum(-1), total, wide)
        same(nb.cumsum(x, 1)[:, -1], total, wide)
        same(nb.prod(x[:, :4], 1), np.prod(a[:, :4], 1, dtype=wide), wide)
        same(
            nb.cumprod(x[:, :4], 1)[:, -1],
            np.prod(a[:, :4], 1, dtype=wide),
            wide,
        )
        same(nb.trace(x), np.sum(a[0, :4], dtype=wide), wide)
        same(nb.compile(lambda x: nb.sum(x, 1))(x), total, wide)
        same(
            nb.compile(lambda x: nb.prod(x[:, :4], 1))(x),
            np.prod(a[:, :4], 1, dtype=wide),
            wide,
        )


def test_sums_in_a_dtype_that_is_asked_for():
    x = full("int8", 100, 4)
    same(nb.sum(x, dtype="int8"), 400 - 512, "int8")
    same(nb.sum(x, dtype="float64"), 400.0, "float64")
    same(nb.sum(x, dtype="int16"), 400, "int16")
    same(nb.prod(x[:2], dtype="float32"), 10000.0, "float32")
    assert nb.sum(full("float16", 1), dtype="float32").dtype is nb.float32


@pytest.mark.parametrize("dtype", KINDS["h"])
def test_halves_are_added_up_in_float32(dtype):
    """In their own dtype the sum of ones would stand still at 2048 and 256."""
    n = 4096
    x = ones(dtype, n)
    for total in (
        nb.sum(x),
        nb.cumsum(x)[-1],
        x @ x,
        nb.vecdot(x, x),
        nb.tensordot(x, x, 1),
        nb.einsum("i,i->", x, x),
        nb.trace(nb.broadcast_to(ones(dtype, ()), (n, n))),
        nb.matmul(x[None], x[:, None])[0, 0],
        nb.conv1d(x.reshape(1, n, 1), x.reshape(n, 1, 1))[0, 0, 0],
        nb.norm(x) * 64,
        nb.sum(x.reshape(64, 64), axis=(0, 1)),
        nb.sum(nb.broadcast_to(x[:1], (n,))),
    ):
        same(total, 4096.0, dtype, ulps=0)
    same(nb.mean(x), 1.0, dtype, ulps=0)
    same(nb.mean(x * 3), 3.0, dtype, ulps=0)
    same(nb.var(x), 0.0, dtype, ulps=0)
    same(nb.logsumexp(nb.zeros(n, dtype=dtype)), math.log(n), dtype, ulps=1)
    same(nb.softmax(x)[0], 1 / n, dtype, ulps=1)
    image = x.reshape(1, 64, 64, 1)
    same(nb.avg_pool2d(image, kernel_size=64)[0, 0, 0, 0], 1, dtype, ulps=0)


@pytest.mark.parametrize("dtype", KINDS["h"])
def test_products_of_halves_are_summed_before_they_are_rounded(dtype):
    """1 + 2^-11 - 1 would be 0 if the first sum were rounded."""
    small = 2.0**-11
    x = nb.constant(np.array([1, small, -1], np_dtype(dtype)))
    one = ones(dtype, 3)
    same(x @ one, small, dtype, ulps=0)
    same(nb.sum(x), small, dtype, ulps=0)
    same(nb.einsum("i,i", x, one), small, dtype, ulps=0)


# Facts about dtypes.


def test_limits_of_dtypes():
    for dtype in FLOATS:
        least, most = map(float, limits(dtype))
        info = nb.finfo(dtype)
        assert (info.min, info.max) == (least, most)
        assert info.bits == 8 * np_dtype(dtype).itemsize
        assert 1 + nb.constant(info.eps, dtype=dtype) > 1
    for dtype in INTEGERS:
        info = nb.iinfo(dtype)
        assert (info.min, info.max) == tuple(map(int, limits(dtype)))
    with pytest.raises(TypeError):
        nb.finfo("int32")
    with pytest.raises(TypeError):
        nb.iinfo("float32")


def test_members_of_the_enumeration():
    for dtype in DTYPES:
        d = nb.DType[dtype]
        assert d is getattr(nb, dtype)
        assert str(d) == f"DType.{dtype}"
        assert d.name == dtype
        assert d.itemsize == np_dtype(dtype).itemsize
        assert d.to_numpy() == np_dtype(dtype)
        assert nb.DType.from_numpy(np_dtype(dtype)) is d
        assert nb.DType.from_numpy(np_dtype(dtype).type) is d
        assert {d: 1}[d] == 1
    assert len(set(nb.DType)) >= len(DTYPES)


def test_kinds_of_dtypes():
    kinds = {
        "b": ("bool",),
        "i": ("signed integer", "integral", "numeric"),
        "u": ("unsigned integer", "integral", "numeric"),
        "h": ("real floating", "numeric"),
        "f": ("real floating", "numeric"),
    }
    names = {name for some in kinds.values() for name in some}
    for dtype in DTYPES:
        for name in names:
            inside = name in kinds[kind(dtype)]
            assert nb.isdtype(nb.DType[dtype], name) == inside
        assert nb.isdtype(nb.DType[dtype], nb.DType[dtype])
        assert nb.isdtype(nb.DType[dtype], ("bool", "numeric"))
        assert not nb.isdtype(nb.DType[dtype], "complex floating")


# Programs.

TWO = (
    "add sub mul floor_divide mod maximum minimum equal less bitwise_and "
    "bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift logical_xor"
).split()
ALONG = "sum prod max min cumsum cumprod argmax argmin sort argsort".split()


def all_at_once(x, y):
    both = nb.stack([x, y, x])
    return {
        **{name: getattr(nb, name)(x, y) for name in TWO},
        **{f"{name} 0": getattr(nb, name)(both, axis=0) for name in ALONG},
        **{f"{name} 1": getattr(nb, name)(both, axis=1) for name in ALONG},
        **{f"to {name}": x.astype(nb.DType[name]) for name in DTYPES},
        **{f"sum of {t}": nb.sum(x, dtype=t) for t in INTEGERS},
        "dot": nb.sum(x * y),
        "matmul": both @ both.T,
    }


@pytest.mark.parametrize("dtype", INTEGERS)
def test_programs_are_exact_at_the_ends_of_a_range(dtype):
    """What ops say one by one on the CPU, all of them say in one program."""
    a = edges(dtype)
    pair = a, np.roll(a, 3)
    want = all_at_once(*(nb.constant(v, device="cpu") for v in pair))
    got = nb.compile(all_at_once)(*map(nb.constant, pair))
    for name, y in want.items():
        same(got[name], y.numpy(), y.dtype.name)
