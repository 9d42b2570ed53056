"""Dtypes as the API tells them: the enumeration, which values have which, and
the whole table of how they combine."""

import pickle
import sys

import numpy as np
import pytest

import nabla as nb

BRIEF = [
    *("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    *("f16", "bf16", "f32", "f64"),
]
DTYPES = dict(zip(BRIEF, nb.DType, strict=True))
SIZES = [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8]


def ones(dtype, shape=(2,)):
    return nb.ones(shape, dtype=dtype)


def test_dtypes_are_an_enumeration():
    assert nb.DType["float32"] is nb.float32 is nb.DType.float32
    assert nb.bool is nb.DType.bool
    assert str(nb.float32) == repr(nb.float32) == "DType.float32"
    assert nb.float32.name == "float32"
    assert [d.itemsize for d in nb.DType] == SIZES
    assert len({*nb.DType}) == len(nb.DType) == 13
    assert pickle.loads(pickle.dumps(nb.int8)) is nb.int8


@pytest.mark.parametrize("d", nb.DType, ids=lambda d: d.name)
def test_dtypes_go_to_numpy_and_back(d):
    assert d.to_numpy().name == d.name
    assert nb.DType.from_numpy(d.to_numpy()) is d
    assert nb.DType.from_numpy(d.to_numpy().type) is d
    for form in (d, d.name, d.to_numpy(), d.to_numpy().type):
        assert nb.zeros(2, dtype=form).dtype is d
    assert nb.zeros(2, dtype=d).numpy().dtype == d.to_numpy()


def test_without_ml_dtypes_bfloat16_does_not_reach_numpy(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="cast first"):
        nb.bfloat16.to_numpy()
    assert str(ones("bfloat16")) == "Tensor([1. 1.] : bf16[2])"


@pytest.mark.parametrize("wrong", ["float31", "", 3, object(), np.dtype("c8")])
def test_what_is_no_dtype_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="dtype"):
        nb.zeros(2, dtype=wrong)


@pytest.mark.parametrize(
    "value, dtype",
    [
        (1.0, "float32"),
        (1, "int64"),
        (True, "bool"),
        ([1, 2.0], "float32"),
        ([True, 2], "int64"),
        ([[True], [False]], "bool"),
        ([], "float32"),
        (np.float64(1), "float32"),
        (np.float32(1), "float32"),
        (np.int16(1), "int16"),
        (np.ones(2), "float64"),
        (np.ones(2, np.float16), "float16"),
        ([np.True_], "bool"),
        ([np.int8(1), np.float64(2)], "float32"),
        (2**63, "uint64"),
        ([2**63], "uint64"),
    ],
    ids=repr,
)
def test_dtypes_of_python_values(value, dtype):
    assert nb.constant(value).dtype.name == dtype
    assert nb.Tensor(value).dtype.name == dtype
    assert nb.asarray(value).dtype.name == dtype


@pytest.mark.parametrize(
    "value, dtype",
    [
        (300, "uint8"),
        (-1, "uint8"),
        (-129, "int8"),
        (128, "int8"),
        (2**63, "int64"),
        (-1, "uint64"),
        (2**64, "uint64"),
        (2**64, None),
        (-(2**63) - 1, None),
    ],
)
def test_an_int_too_large_for_the_dtype_is_an_overflow_error(value, dtype):
    for form in (value, [0, value], [[value]]):
        with pytest.raises(OverflowError):
            nb.constant(form, dtype=dtype)


def test_the_limits_of_integer_dtypes_fit():
    for d in nb.DType:
        if nb.isdtype(d, "integral"):
            ends = [nb.iinfo(d).min, nb.iinfo(d).max]
            assert nb.constant(ends, dtype=d).tolist() == ends
            assert [nb.constant(e, dtype=d).item() for e in ends] == ends


# Rows and columns in the order of BRIEF; "!" is a TypeError.
PROMOTION = """
bool i8  i16 i32 i64 u8  u16 u32 u64 f16 bf16 f32 f64
i8   i8  i16 i32 i64 i16 i32 i64 !   f16 bf16 f32 f64
i16  i16 i16 i32 i64 i16 i32 i64 !   f16 bf16 f32 f64
i32  i32 i32 i32 i64 i32 i32 i64 !   f16 bf16 f32 f64
i64  i64 i64 i64 i64 i64 i64 i64 !   f16 bf16 f32 f64
u8   i16 i16 i32 i64 u8  u16 u32 u64 f16 bf16 f32 f64
u16  i32 i32 i32 i64 u16 u16 u32 u64 f16 bf16 f32 f64
u32  i64 i64 i64 i64 u32 u32 u32 u64 f16 bf16 f32 f64
u64  !   !   !   !   u64 u64 u64 u64 f16 bf16 f32 f64
f16  f16 f16 f16 f16 f16 f16 f16 f16 f16 f32  f32 f64
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64
f32  f32 f32 f32 f32 f32 f32 f32 f32 f32 f32  f32 f64
f64  f64 f64 f64 f64 f64 f64 f64 f64 f64 f64  f64 f64
"""


@pytest.mark.parametrize("row", range(13), ids=BRIEF)
def test_promotion_of_two_tensors(row):
    a = DTYPES[BRIEF[row]]
    cells = PROMOTION.strip().splitlines()[row].split()
    for name, wanted in zip(BRIEF, cells, strict=True):
        b = DTYPES[name]
        if wanted == "!":
            for call in (
                lambda b=b: ones(a) + ones(b),
                lambda b=b: nb.maximum(ones(a), ones(b)),
                lambda b=b: nb.result_type(a, b),
            ):
                with pytest.raises(TypeError, match="cast one side"):
                    call()
            assert not nb.can_cast(a, b)
            continue
        assert nb.result_type(a, b) is DTYPES[wanted]
        assert nb.result_type(ones(a), b.name) is DTYPES[wanted]
        assert nb.maximum(ones(a), ones(b)).dtype is DTYPES[wanted]
        assert nb.can_cast(a, b) == (DTYPES[wanted] is b)


@pytest.mark.parametrize("d", nb.DType, ids=lambda d: d.name)
def test_python_scalars_are_weak(d):
    above = d if nb.isdtype(d, "real floating") else nb.float32
    x = ones(d)
    scalars = [True, 1, 1.0, np.float64(1)]
    kinds = [d, nb.int64 if d is nb.bool else d, above, above]
    for scalar, kind in zip(scalars, kinds, strict=True):
        assert (x == scalar).dtype is nb.bool
        assert nb.result_type(x, scalar) is kind
        assert nb.result_type(scalar, x) is kind
        assert nb.maximum(x, scalar).dtype is kind
        assert nb.maximum(scalar, x).dtype is kind
        if kind is not nb.bool:
            assert (x + scalar).dtype is (scalar + x).dtype is kind


def test_the_default_float_decides_for_weak_floats():
    with nb.default_dtype("float64"):
        assert (nb.arange(2) * 0.5).dtype is nb.float64
        assert (nb.arange(2) / 2).dtype is nb.float64
        assert nb.constant(1.5).dtype is nb.float64
        assert nb.exp(nb.arange(2)).dtype is nb.float64
    assert (nb.arange(2) * 0.5).dtype is nb.float32


def test_other_numpy_scalars_and_tensors_are_strong():
    x = nb.ones(2)
    assert (x * np.float32(2)).dtype is nb.float32
    assert (x * np.sqrt(2.0)).dtype is nb.float32
    assert (nb.ones(2, dtype="float16") * np.float32(2)).dtype is nb.float32
    assert (x.cast("int8") + np.int32(2)).dtype is nb.int32
    assert (x.cast("int8") + nb.constant(3)).dtype is nb.int64
    assert (np.int32(2) + x.cast("int8")).dtype is nb.int32


@pytest.mark.parametrize("d", ["int8", "uint8", "int32", "uint32", "int64"])
def test_a_scalar_that_does_not_fit_is_an_overflow_error(d):
    x, limit = ones(d), nb.iinfo(d)
    assert (x * 0 + limit.max).tolist() == [limit.max] * 2
    for scalar in (limit.max + 1, limit.min - 1, 2**70):
        for call in (
            lambda s=scalar: x + s,
            lambda s=scalar: s - x,
            lambda s=scalar: nb.maximum(x, s),
            lambda s=scalar: x < s,
            lambda s=scalar: nb.full((2,), s, dtype=d),
            lambda s=scalar: nb.full_like(x, s),
            lambda s=scalar: x.new_full((2,), s),
        ):
            with pytest.raises(OverflowError):
                call()


def test_large_ints_meet_floats_and_uint64():
    assert (nb.ones(1) * 2**70).item() == 2.0**70
    assert (ones("uint64", (1,)) * 2**63).item() == 2**63


WIDER = {
    "bool": "int64",
    "int8": "int64",
    "int32": "int64",
    "uint8": "uint64",
    "uint32": "uint64",
    "uint64": "uint64",
    "float16": "float16",
}


def test_results_whose_dtype_is_a_rule():
    for d in ("bool", "int8", "uint32", "int64"):
        x = ones(d, (2, 2))
        for f in (nb.exp, nb.sin, nb.mean, nb.var, nb.sqrt, nb.softmax):
            assert f(x).dtype is nb.float32
        assert (x / x).dtype is nb.float32
    for d, wide in WIDER.items():
        for f in (nb.sum, nb.prod, nb.cumsum):
            assert f(ones(d)).dtype.name == wide
    for f in (nb.argmax, nb.argmin, nb.argsort, nb.count_nonzero):
        assert f(ones("int8")).dtype is nb.int64
    assert nb.sum(ones("int8"), dtype="float64").dtype is nb.float64
    assert nb.prod(ones("int8"), dtype="int8").dtype is nb.int8


def test_integer_division_by_zero_gives_zero():
    x = nb.constant([7, -7])
    assert (x // 0).tolist() == [0, 0]
    assert (x % 0).tolist() == [0, 0]


FIELDS = ("bits", "eps", "max", "min", "smallest_normal")


def test_finfo_and_iinfo():
    for d in ("float16", "float32", "float64"):
        ours, theirs = nb.finfo(d), np.finfo(d)
        for field in FIELDS:
            assert getattr(ours, field) == getattr(theirs, field)
        assert ours.dtype is nb.DType[d]
    assert nb.finfo(nb.bfloat16).eps == 2**-7
    assert nb.finfo(nb.ones(2)).bits == 32
    assert (nb.iinfo("int8").min, nb.iinfo("int8").max) == (-128, 127)
    assert nb.iinfo(nb.uint64).max == 2**64 - 1
    for call in (lambda: nb.finfo("int8"), lambda: nb.iinfo("float32")):
        with pytest.raises(TypeError):
            call()


def test_isdtype():
    assert nb.isdtype(nb.int8, "signed integer")
    assert nb.isdtype("uint8", ("bool", "unsigned integer"))
    assert nb.isdtype(nb.bfloat16, "real floating")
    assert nb.isdtype(nb.float32, nb.float32)
    assert not nb.isdtype(nb.bool, "numeric")
    assert not nb.isdtype(nb.float32, "complex floating")
    with pytest.raises(ValueError):
        nb.isdtype(nb.int8, "odd numbers")
