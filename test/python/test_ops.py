"""Every public op of the catalogue against NumPy: each dtype, each layout.

TABLE has a row for each op: what it should compute, the dtypes it takes, the
dtype of its result, and samples of its arguments, in which a(2, 3) stands for
a tensor of the dtype under test.  Every sample runs contiguous, strided,
transposed, reversed and broadcast; samples without axes and without elements
are listed apart.  A dtype that an op does not take must give a TypeError."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import oracle
import pytest
from oracle import DTYPES, LAYOUTS, kind, np_dtype, same

import nabla as nb
from nabla import _nabla

# Arguments.


class Argument(NamedTuple):
    """A tensor of the dtype under test, with numbers from low to high, made
    special by `like`."""

    shape: tuple[int, ...]
    low: float = -4
    high: float = 4
    like: Callable[[np.ndarray], np.ndarray] = np.asarray


def a(*shape, **more):
    return Argument(shape, **more)


def index(*shape, size):
    """Indices into an axis, negative ones too, of int64."""
    rng = oracle.generator("index", str(shape), str(size))
    return np.asarray(rng.integers(-size, size, shape))


class Dtype:
    """Stands for the dtype under test."""


class Sample(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: type[Exception] | None = None


def s(*args, **kwargs):
    return Sample(args, kwargs)


def refused(error, *args, **kwargs):
    """A sample that must raise."""
    return Sample(args, kwargs, error)


# Rows.


@dataclass
class Row:
    """How an op is tested.

    formula  computes the result, or a sequence of them, from arrays: floats
             as float64, with the rule "float" integers too
    samples  run in every layout
    scalar   samples without axes, or why there are none
    empty    samples without elements, or why there are none
    takes    the dtypes, by the letters of oracle.KINDS
    dtype    of the result: same, float, sum or a name; a tuple for several
    call     the function in Python, if it has another name or form
    edges    of numbers: tested at the edges of dtypes too
    ulps     units in the last place by which floats may be wrong
    scale    numbers that these units are of, if larger than the result
    zeros    signs of zeros count
    narrow   the formula wants floats as they are
    check    compares by itself: check(results, *arguments, tolerance=)
    """

    formula: Callable[..., Any] | None
    samples: list[Sample]
    scalar: list[Sample] | str
    empty: list[Sample] | str
    takes: str = "biuhf"
    dtype: str | tuple[str, ...] = "same"
    call: Callable[..., Any] | None = None
    edges: bool = False
    ulps: float = 4
    scale: float = 0
    zeros: bool = False
    narrow: bool = False
    check: Callable[..., None] | None = None


def unary(f, **more):
    plain = {"edges": True}
    return Row(f, [s(a(3, 5))], [s(a())], [s(a(0, 3))], **plain | more)


def smooth(f, **more):
    return unary(f, **{"dtype": "float"} | more)


def step(f, **more):
    """Integers stay as they are."""

    def whole(x):
        return f(x) if x.dtype.kind == "f" else x

    return unary(whole, **{"zeros": True} | more)


def binary(f, **more):
    samples = [s(a(3, 5), a(3, 5)), s(a(3, 1), a(2, 1, 5))]
    scalar = [s(a(), a()), s(a(), a(3)), s(a(3, 2), a())]
    empty = [s(a(0, 3), a(0, 3)), s(a(2, 0), a(1)), s(a(2, 0), a())]
    return Row(f, samples, scalar, empty, **{"edges": True} | more)


def reduction(f, *samples, **more):
    x = a(3, 2, 4, low=-2, high=2)
    general = [
        s(x),
        s(x, 0),
        s(x, axis=-1, keepdims=True),
        s(x, axis=(0, -1)),
        s(x, axis=[1], keepdims=True),
        *samples,
    ]

    def formula(x, axis=None, keepdims=False, **others):
        axis = tuple(range(x.ndim)) if axis is None else axis
        axis = (axis,) if isinstance(axis, int) else tuple(axis)
        return f(x, axis=axis, keepdims=keepdims, **others)

    plain = {
        "scalar": [s(a()), s(a(), keepdims=True)],
        "empty": [s(a(0, 3)), s(a(0, 3), 0), s(a(0, 3), 1)],
        "ulps": 8,
        "scale": 4,
    }
    return Row(formula, general, **plain | more)


def extremum(f, **more):
    nothing = [
        refused(ValueError, a(0, 3)),
        refused(ValueError, a(0, 3), axis=0),
        s(a(0, 3), axis=1),
    ]
    return reduction(f, empty=nothing, ulps=0, **more)


NO_AXIS = [refused(nb.AxisError, a())]


def along(f, *samples, **more):
    """An op along one axis."""
    x = a(3, 2, 4)
    general = [s(x), s(x, 0), s(x, axis=-2), *samples]
    plain = {
        "scalar": NO_AXIS,
        "empty": [s(a(0, 3)), s(a(0, 3), axis=0), s(a(3, 0, 2))],
    }
    return Row(f, general, **plain | more)


def moves(f, *samples, **more):
    """An op that computes nothing."""
    return Row(f, list(samples), **{"zeros": True, "ulps": 0} | more)


NO_MATRIX = "a matrix without elements: test_empty_matrices"


def matrices(f, *samples, **more):
    plain = {
        "takes": "biuf",
        "dtype": "float",
        "ulps": 8,
        "scale": 4,
        "scalar": [refused(ValueError, *[a()] * len(samples[0].args))],
        "empty": NO_MATRIX,
    }
    return Row(f, list(samples), **plain | more)


NO_TENSOR = "it takes no tensor"


def creation(f, *samples, **more):
    plain = {"scalar": NO_TENSOR, "empty": NO_TENSOR}
    return Row(f, list(samples), **plain | more)


# Special matrices and rows.


def well(m):
    """Invertible, and far from not being so."""
    n = m.shape[-1]
    if m.dtype.kind == "b":
        return np.tril(m) | np.eye(n, dtype=bool)
    return np.tril(m) + np.triu(m, 1) // 2 + 9 * np.eye(n, dtype=m.dtype)


def definite(m):
    """Symmetric with a heavy diagonal."""
    if m.dtype.kind == "b":
        return np.zeros_like(m) | np.eye(m.shape[-1], dtype=bool)
    return symmetric(m) + 20 * np.eye(m.shape[-1], dtype=m.dtype)


def symmetric(m):
    return np.maximum(m, np.swapaxes(m, -1, -2))


def ascending(x):
    return np.sort(x, -1)


def mask(*shape):
    return oracle.sample(oracle.generator("mask", str(shape)), shape, "bool")


# Comparison of what is not unique.


def turned(m):
    return np.swapaxes(m, -1, -2)


def near(got, want, tolerance):
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def orthonormal(q, tolerance):
    product = turned(q) @ q
    near(product, np.zeros_like(product) + np.eye(q.shape[-1]), tolerance)


def check_qr(got, x, tolerance, mode="reduced"):
    q, r = got
    m, n = x.shape[-2:]
    inner = m if mode == "complete" else min(m, n)
    assert q.shape == (*x.shape[:-1], inner)
    assert r.shape == (*x.shape[:-2], inner, n)
    near(q @ r, x, tolerance)
    orthonormal(q, tolerance)
    np.testing.assert_array_equal(r, np.triu(r))


def check_eigh(got, x, tolerance):
    values, vectors = got
    near(values, np.linalg.eigvalsh(x), tolerance)
    near(vectors * values[..., None, :], x @ vectors, tolerance)
    orthonormal(vectors, tolerance)


def check_svd(got, x, tolerance, full_matrices=True):
    u, values, vh = got
    m, n = x.shape[-2:]
    k = min(m, n)
    assert u.shape == (*x.shape[:-1], m if full_matrices else k)
    assert vh.shape == (*x.shape[:-2], n if full_matrices else k, n)
    near(values, np.linalg.svd(x, compute_uv=False), tolerance)
    near((u[..., :k] * values[..., None, :]) @ vh[..., :k, :], x, tolerance)
    orthonormal(u, tolerance)
    orthonormal(turned(vh), tolerance)


# NumPy in the form of the API.


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    if x.dtype.kind in "biu":
        return x
    least, most = oracle.limits(x.dtype.name)
    y = np.where(np.isnan(x), nan, x.astype("float64"))
    y = np.where(y == math.inf, most if posinf is None else posinf, y)
    return np.where(y == -math.inf, least if neginf is None else neginf, y)


def mean(x, axis, keepdims):
    count = math.prod(x.shape[k] for k in axis)
    return np.sum(x, axis, keepdims=keepdims) / np.float64(count)


def var(x, axis, keepdims, correction=0.0):
    apart = (x - mean(x, axis, True)) ** 2
    count = math.prod(x.shape[k] for k in axis)
    total = np.sum(apart, axis, keepdims=keepdims)
    return total / np.float64(max(count - correction, 0))


def std(x, axis, keepdims, correction=0.0):
    return np.sqrt(var(x, axis, keepdims, correction))


def norm(x, axis, keepdims, ord=None):
    if len(axis) == 2 and ord is not None:
        return np.linalg.norm(x, ord, axis, keepdims)
    return vector_norm(x, axis, keepdims, 2 if ord is None else ord)


def vector_norm(x, axis, keepdims, ord=2):
    x = np.abs(x)
    if ord == math.inf:
        return np.max(x, axis, keepdims=keepdims, initial=0)
    if ord == -math.inf:
        return np.min(x, axis, keepdims=keepdims)
    if ord == 0:
        return np.sum(x != 0, axis, keepdims=keepdims)
    return np.sum(x**ord, axis, keepdims=keepdims) ** (1 / ord)


def matrix_norm(x, keepdims=False, ord="fro"):
    return np.linalg.norm(x, ord, (-2, -1), keepdims)


def vecdot(x, y, axis=-1):
    x, y = np.broadcast_arrays(x, y)
    x, y = np.moveaxis(x, axis, -1), np.moveaxis(y, axis, -1)
    return (x[..., None, :] @ y[..., :, None])[..., 0, 0]


def trace(x, offset=0):
    return np.sum(np.diagonal(x, offset, -2, -1), -1)


def flatten(x, start_dim=0, end_dim=-1):
    end = end_dim % x.ndim + 1 if x.ndim else 0
    inner = math.prod(x.shape[start_dim:end])
    return x.reshape(*x.shape[:start_dim], inner, *x.shape[end:])


def squeeze(x, axis=0):
    return np.squeeze(x, tuple(axis) if isinstance(axis, list) else axis)


def pad(x, paddings, value=0.0):
    fill = np.asarray(value).astype(x.dtype)
    return np.pad(x, paddings, constant_values=fill) if x.ndim else x


def chunk(x, chunks, axis=0):
    parts = np.array_split(x, chunks, axis)
    return [part for part in parts if part.shape[axis]]


def strided_slice(x, start, size, step):
    for axis, (b, n, d) in enumerate(zip(start, size, step, strict=True)):
        x = np.take(x, b + d * np.arange(n), axis)
    return x


def arange(start, stop, step=1, dtype=None):
    count = max(0, math.ceil((stop - start) / step))
    return start + step * np.arange(count)


def hann_window(window_length, periodic=True, dtype=None):
    if window_length < 2:
        return np.ones(window_length)
    period = window_length if periodic else window_length - 1
    return 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(window_length) / period)


def triangular_solve(a, b, upper=False, transpose=False, unit=False):
    t = np.triu(a) if upper else np.tril(a)
    if unit:
        eye = np.eye(a.shape[-1])
        t = t * (1 - eye) + eye
    return np.linalg.solve(turned(t) if transpose else t, b)


def fold_in(key, data):
    new = [oracle.philox(key, int(d), 0, 1)[:2] for d in data.flat]
    return np.array(new, "uint32").reshape(*data.shape, 2)


KEY = np.array([3, 9], "uint32")
IMAGE = a(2, 5, 4, 4)
VOLUME = a(2, 3, 4, 3, 2)
PAD = {"kernel_size": (2, 3), "stride": (1, 2), "padding": (0, 1, 2, 0)}
MATRIX = a(2, 3, 4)
SQUARE = a(2, 3, 3, like=well)
DEFINITE = a(2, 3, 3, like=definite)

TABLE = {
    "cast": moves(
        lambda x, dtype=None: x,
        s(a(3, 5)),
        s(mask(3, 5), Dtype),
        scalar=[s(a())],
        empty=[s(a(0, 3))],
    ),
    # Functions of numbers.
    "exp": smooth(np.exp),
    "exp2": smooth(np.exp2),
    "expm1": smooth(np.expm1),
    "log": smooth(np.log),
    "log2": smooth(np.log2),
    "log10": smooth(np.log10),
    "log1p": smooth(np.log1p),
    "sqrt": smooth(np.sqrt),
    "rsqrt": smooth(lambda x: 1 / np.sqrt(x)),
    "reciprocal": smooth(lambda x: 1 / x),
    "sin": smooth(np.sin),
    "cos": smooth(np.cos),
    "tan": smooth(np.tan),
    "asin": smooth(np.arcsin),
    "acos": smooth(np.arccos),
    "atan": smooth(np.arctan),
    "sinh": smooth(np.sinh),
    "cosh": smooth(np.cosh),
    "tanh": smooth(np.tanh),
    "asinh": smooth(np.arcsinh),
    "acosh": smooth(np.arccosh),
    "atanh": smooth(np.arctanh),
    "erf": smooth(oracle.erf),
    "sigmoid": smooth(oracle.sigmoid),
    "silu": smooth(oracle.silu),
    "gelu": smooth(oracle.gelu, scale=1),
    "neg": unary(np.negative, takes="iuhf", zeros=True),
    "positive": unary(np.positive, takes="iuhf", zeros=True),
    "square": unary(np.square, takes="iuhf"),
    "abs": unary(np.abs, zeros=True),
    "relu": unary(lambda x: np.maximum(x, 0), takes="iuhf"),
    "sign": unary(np.sign, takes="iuhf"),
    "floor": step(np.floor),
    "ceil": step(np.ceil),
    "trunc": step(np.trunc),
    "round": step(np.rint),
    "clip": Row(
        lambda x, low, high: np.minimum(np.maximum(x, low), high),
        [s(a(3, 5), a(3, 5), a(3, 5)), s(a(3, 5), a(5), a(3, 1))],
        [s(a(), a(), a())],
        [s(a(0, 3), a(3), a())],
        edges=True,
    ),
    "nan_to_num": unary(nan_to_num, narrow=True),
    "add": binary(np.add),
    "sub": binary(np.subtract, takes="iuhf"),
    "mul": binary(np.multiply),
    "div": binary(np.divide, dtype="float"),
    "floor_divide": binary(oracle.floor_divide, takes="iuhf"),
    "mod": binary(oracle.remainder, takes="iuhf", scale=4),
    "pow": binary(oracle.power, takes="iuhf"),
    "maximum": binary(np.maximum),
    "minimum": binary(np.minimum),
    "hypot": binary(np.hypot, dtype="float"),
    "atan2": binary(np.arctan2, dtype="float", zeros=True),
    "logaddexp": binary(np.logaddexp, dtype="float", scale=1),
    "copysign": binary(np.copysign, dtype="float", zeros=True),
    "nextafter": binary(np.nextafter, dtype="float", narrow=True, ulps=0),
    "is_nan": unary(np.isnan, dtype="bool"),
    "is_inf": unary(np.isinf, dtype="bool"),
    "isfinite": unary(np.isfinite, dtype="bool"),
    "signbit": unary(
        lambda x: np.signbit(x) if x.dtype.kind == "f" else x < 0,
        dtype="bool",
    ),
    "equal": binary(np.equal, dtype="bool"),
    "not_equal": binary(np.not_equal, dtype="bool"),
    "less": binary(np.less, dtype="bool"),
    "less_equal": binary(np.less_equal, dtype="bool"),
    "greater": binary(np.greater, dtype="bool"),
    "greater_equal": binary(np.greater_equal, dtype="bool"),
    "logical_and": binary(np.logical_and, dtype="bool"),
    "logical_or": binary(np.logical_or, dtype="bool"),
    "logical_xor": binary(np.logical_xor, dtype="bool"),
    "logical_not": unary(np.logical_not, dtype="bool"),
    "bitwise_and": binary(np.bitwise_and, takes="biu"),
    "bitwise_or": binary(np.bitwise_or, takes="biu"),
    "bitwise_xor": binary(np.bitwise_xor, takes="biu"),
    "bitwise_invert": unary(np.bitwise_not, takes="biu"),
    "bitwise_left_shift": binary(oracle.shift_left, takes="iu"),
    "bitwise_right_shift": binary(oracle.shift_right, takes="iu"),
    "where": Row(
        lambda c, x, y: np.where(c != 0, x, y),
        [
            s(mask(3, 5), a(3, 5), a(3, 5)),
            s(mask(3, 1), a(2, 1, 5), a(5)),
            s(a(3, 5), a(3, 5), a(5)),
        ],
        [s(a(), a(), a()), s(mask(3), a(), a())],
        [s(mask(0, 3), a(3), a())],
        edges=True,
        zeros=True,
        ulps=0,
    ),
    # Reductions and scans.
    "reduce_sum": reduction(np.sum, dtype="sum"),
    "prod": reduction(np.prod, dtype="sum", scale=0),
    "reduce_max": extremum(np.max),
    "reduce_min": extremum(np.min),
    "minmax": Row(
        lambda x: (np.min(x), np.max(x)),
        [s(a(3, 5))],
        [s(a())],
        [refused(ValueError, a(0, 3))],
        dtype=("same", "same"),
    ),
    "all": reduction(np.all, s(a(3, 4, low=1), 1), dtype="bool"),
    "any": reduction(np.any, s(a(3, 4, high=0), 1), dtype="bool"),
    "count_nonzero": reduction(
        lambda x, axis, keepdims: np.sum(x != 0, axis, keepdims=keepdims),
        dtype="int64",
    ),
    "mean": reduction(mean, dtype="float"),
    "var": reduction(var, s(a(3, 4), 1, correction=1), dtype="float", ulps=16),
    "std": reduction(
        std, s(a(3, 4), 1, correction=0.5), dtype="float", ulps=16
    ),
    "norm": reduction(
        norm,
        s(a(3, 4), axis=1, ord=1),
        s(a(3, 4), axis=1, ord=3),
        s(a(3, 4), axis=0, ord=math.inf, keepdims=True),
        s(a(3, 4), axis=0, ord=-math.inf),
        s(a(3, 4), axis=1, ord=0),
        s(a(3, 4), axis=(0, 1), ord=1),
        s(a(3, 4), axis=(1, 0), ord=-math.inf, keepdims=True),
        dtype="float",
        call=lambda x, axis=None, **more: nb.norm(x, axis=axis, **more),
    ),
    "vector_norm": reduction(
        vector_norm,
        s(a(3, 4), ord=1),
        s(a(3, 4), axis=1, ord=3),
        s(a(3, 4), axis=0, ord=math.inf, keepdims=True),
        s(a(3, 4), axis=0, ord=-math.inf),
        s(a(3, 4), axis=1, ord=0),
        dtype="float",
        call=lambda x, axis=None, **more: nb.linalg.vector_norm(
            x, axis=axis, **more
        ),
    ),
    "logsumexp": reduction(oracle.logsumexp, dtype="float"),
    "softmax": along(oracle.softmax, dtype="float", ulps=8, scale=1),
    "logsoftmax": along(oracle.logsoftmax, dtype="float", ulps=8, scale=8),
    "cumsum": along(
        oracle.cumsum,
        s(a(3, 4), 0, exclusive=True),
        s(a(3, 4), exclusive=True, reverse=True),
        s(a(3, 4), 1, False, True),
        dtype="sum",
        ulps=8,
        scale=8,
    ),
    "cumprod": along(
        oracle.cumprod,
        s(a(3, 4), 0, exclusive=True),
        s(a(3, 4), exclusive=True, reverse=True),
        s(a(3, 4), 1, False, True),
        dtype="sum",
        ulps=8,
    ),
    "diff": along(
        lambda x, axis=-1, n=1: np.diff(x, n, axis),
        s(a(3, 5), axis=0, n=2),
        s(a(3, 5), axis=1, n=0),
        call=lambda x, axis=-1, n=1: nb.diff(x, axis=axis, n=n),
        empty=[s(a(0, 3)), s(a(3, 0, 2), axis=0)],
        ulps=8,
        scale=8,
    ),
    # Sorting and searching.
    "argsort": along(
        oracle.argsort, s(a(2, 7), descending=True), dtype="int64"
    ),
    "sort": along(oracle.sort, s(a(2, 7), descending=True), ulps=0),
    "topk": Row(
        oracle.topk,
        [
            s(a(3, 7), 3),
            s(a(3, 7), 2, 0, largest=False),
            s(a(3, 7), 7, axis=-1),
        ],
        [refused(nb.AxisError, a(), 1)],
        [s(a(0, 3), 2), s(a(3, 0), 0)],
        dtype=("same", "int64"),
        ulps=0,
    ),
    "argmax": along(
        lambda x, axis=-1, keepdims=False: np.argmax(
            x, axis, keepdims=keepdims
        ),
        s(a(3, 7), None),
        s(a(3, 7), axis=1, keepdims=True),
        s(a(3, 7), axis=None, keepdims=True),
        dtype="int64",
        scalar=[s(a(), None), *NO_AXIS],
        empty=[
            refused(ValueError, a(0, 3), axis=0),
            refused(ValueError, a(0, 3), axis=None),
            s(a(0, 3)),
        ],
    ),
    "argmin": along(
        lambda x, axis=-1, keepdims=False: np.argmin(
            x, axis, keepdims=keepdims
        ),
        s(a(3, 7), None),
        s(a(3, 7), axis=1, keepdims=True),
        s(a(3, 7), axis=None, keepdims=True),
        dtype="int64",
        scalar=[s(a(), None), *NO_AXIS],
        empty=[
            refused(ValueError, a(0, 3), axis=0),
            refused(ValueError, a(0, 3), axis=None),
            s(a(0, 3)),
        ],
    ),
    "searchsorted": Row(
        lambda x1, x2, side="left": np.searchsorted(x1, x2, side),
        [
            s(a(6, like=ascending), a(2, 3)),
            s(a(6, like=ascending), a(2, 3), side="right"),
        ],
        [s(a(6, like=ascending), a())],
        [s(a(0), a(3)), s(a(6, like=ascending), a(0, 2))],
        dtype="int64",
    ),
    "nonzero": Row(
        np.nonzero,
        [s(a(3, 5, low=-1, high=1)), s(a(7, low=-1, high=1))],
        [refused(ValueError, a())],
        [s(a(0, 3))],
        dtype="int64",
    ),
    "unique_values": Row(
        lambda x: oracle.unique_all(x)[0],
        [s(a(3, 7))],
        [s(a())],
        [s(a(0, 3))],
        ulps=0,
    ),
    "unique_counts": Row(
        lambda x: oracle.unique_all(x)[::3],
        [s(a(3, 7))],
        [s(a())],
        [s(a(0, 3))],
        dtype=("same", "int64"),
        ulps=0,
    ),
    "unique_inverse": Row(
        lambda x: oracle.unique_all(x)[::2],
        [s(a(3, 7))],
        [s(a())],
        [s(a(0, 3))],
        dtype=("same", "int64"),
        ulps=0,
    ),
    "unique_all": Row(
        oracle.unique_all,
        [s(a(3, 7))],
        [s(a())],
        [s(a(0, 3))],
        dtype=("same", "int64", "int64", "int64"),
        ulps=0,
    ),
    # Contractions.
    "matmul": Row(
        np.matmul,
        [
            s(a(3, 4), a(4, 5)),
            s(a(4), a(4)),
            s(a(4), a(2, 4, 3)),
            s(a(2, 3, 4), a(4)),
            s(a(2, 1, 3, 4), a(5, 4, 2)),
        ],
        [refused(ValueError, a(), a(3)), refused(ValueError, a(2, 3), a())],
        [s(a(0, 3), a(3, 2)), s(a(2, 0), a(0, 3)), s(a(0), a(0))],
        ulps=8,
        scale=16,
    ),
    "outer": Row(
        np.outer,
        [s(a(3), a(4))],
        [refused(ValueError, a(), a(3))],
        [s(a(0), a(3))],
    ),
    "vecdot": Row(
        vecdot,
        [s(a(3, 4), a(3, 4)), s(a(3, 4), a(1, 4)), s(a(3, 4), a(3, 1), 0)],
        [refused(ValueError, a(), a())],
        [s(a(0, 3), a(0, 3)), s(a(3, 0), a(3, 0))],
        ulps=8,
        scale=16,
    ),
    "trace": Row(
        trace,
        [s(a(3, 3)), s(a(2, 3, 4), 1), s(a(3, 4), offset=-2), s(a(3, 4), 9)],
        [refused(ValueError, a())],
        [s(a(0, 3)), s(a(0, 3, 3))],
        dtype="sum",
        ulps=8,
        scale=8,
    ),
    "tensordot": Row(
        lambda x, y, axes=2: np.tensordot(x, y, axes),
        [
            s(a(2, 3, 4), a(3, 4, 5)),
            s(a(2, 3), a(4, 5), 0),
            s(a(2, 3, 4), a(4, 5), axes=1),
            s(a(2, 3, 4), a(5, 3, 2), axes=([1, 0], [1, 2])),
        ],
        [s(a(), a(), 0), s(a(), a(3), 0)],
        [s(a(2, 0), a(0, 3), 1), s(a(0, 3), a(3, 2), 1)],
        ulps=8,
        scale=32,
    ),
    "einsum": Row(
        np.einsum,
        [
            s("ij,jk->ik", a(2, 3), a(3, 4)),
            s("bij,bj", a(2, 3, 4), a(2, 4)),
            s("...ii->...i", a(2, 3, 3)),
            s("ij,kj,k->ki", a(2, 3), a(4, 3), a(4)),
            s("ij->", a(2, 3)),
            s("i...,...", a(3, 2), a(2)),
        ],
        [s(",->", a(), a()), s("->", a()), s(",i->i", a(), a(3))],
        [s("ij,jk->ik", a(2, 0), a(0, 3)), s("ij->j", a(0, 3))],
        ulps=8,
        scale=32,
    ),
    # Shapes and parts.
    "permute": moves(
        lambda x, order: np.transpose(x, order),
        s(a(2, 3, 4), (2, 0, 1)),
        s(a(2, 3), order=[-1, 0]),
        scalar=[s(a(), ())],
        empty=[s(a(0, 3), (1, 0))],
    ),
    "broadcast_to": moves(
        np.broadcast_to,
        s(a(3, 1), (2, 3, 4)),
        s(a(3), (2, 3)),
        scalar=[s(a(), ()), s(a(), (2, 3))],
        empty=[s(a(0, 3), (2, 0, 3)), s(a(1, 3), (0, 3))],
    ),
    "reshape": moves(
        np.reshape,
        s(a(2, 3, 4), (4, 6)),
        s(a(2, 3, 4), (2, -1)),
        s(a(2, 3, 4), 24),
        s(a(2, 3, 4), (1, 2, 3, 1, 4)),
        scalar=[s(a(), ()), s(a(), (1, 1)), s(a(1), ())],
        empty=[s(a(0, 3), (3, 0)), s(a(0, 3), (5, -1)), s(a(0, 3), 0)],
    ),
    "flatten": moves(
        flatten,
        s(a(2, 3, 4)),
        s(a(2, 3, 4), 1),
        s(a(2, 3, 4), start_dim=0, end_dim=-2),
        scalar=[s(a())],
        empty=[s(a(0, 3)), s(a(2, 0, 3), 1)],
    ),
    "rebind": moves(
        lambda x, shape: x,
        s(a(2, 3), (2, 3)),
        scalar=[s(a(), ())],
        empty=[s(a(0, 3), (0, 3)), refused(ValueError, a(0, 3), (3, 0))],
    ),
    "unsqueeze": moves(
        np.expand_dims,
        s(a(2, 3), 0),
        s(a(2, 3), 1),
        s(a(2, 3), axis=-1),
        s(a(2, 3), -3),
        scalar=[s(a(), 0), s(a(), -1)],
        empty=[s(a(0, 3), 1)],
    ),
    "squeeze": moves(
        squeeze,
        s(a(1, 3)),
        s(a(2, 1, 3, 1), (1, -1)),
        s(a(2, 1, 3, 1), axis=None),
        s(a(2, 1, 3), [1]),
        scalar=[s(a(), None), *NO_AXIS],
        empty=[s(a(1, 0)), refused(ValueError, a(0, 3), 0)],
    ),
    "swap_axes": moves(
        np.swapaxes,
        s(a(2, 3, 4), 0, 2),
        s(a(2, 3, 4), axis1=-1, axis2=-2),
        scalar=[refused(nb.AxisError, a(), 0, 0)],
        empty=[s(a(0, 3), 0, 1)],
    ),
    "moveaxis": moves(
        np.moveaxis,
        s(a(2, 3, 4), 0, -1),
        s(a(2, 3, 4), (0, 1), (2, 0)),
        s(a(2, 3, 4), source=[-1], destination=[0]),
        scalar=[s(a(), (), ())],
        empty=[s(a(0, 3), 1, 0)],
    ),
    "as_interleaved_complex": moves(
        lambda x: x.reshape(*x.shape[:-2], 2 * x.shape[-2]),
        s(a(3, 4, 2)),
        s(a(4, 2)),
        scalar=[refused(ValueError, a())],
        empty=[s(a(0, 2)), s(a(0, 3, 2))],
    ),
    "view_as_real_interleaved": moves(
        lambda x: x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2),
        s(a(3, 4)),
        scalar=[refused(ValueError, a())],
        empty=[s(a(0, 4)), s(a(3, 0))],
    ),
    "slice": moves(
        strided_slice,
        s(a(5, 6), (1, 5), (2, 3), (2, -2)),
        s(a(5, 6), (0, 0), (5, 0), (1, 1)),
        scalar=[s(a(), (), (), ())],
        empty=[s(a(0, 3), (0, 1), (0, 2), (1, 1))],
        call=_nabla.ops["slice"],
    ),
    "slice_tensor": moves(
        lambda x, start, size: x[oracle.window(x, start, size)],
        s(a(5, 6), (1, 2), (3, 4)),
        s(a(5, 6), (-2, 0), [2, 6]),
        scalar=[s(a(), (), ())],
        empty=[s(a(0, 3), (0, 1), (0, 2)), s(a(5, 6), (1, 2), (0, 4))],
    ),
    "flip": moves(
        np.flip,
        s(a(2, 3, 4)),
        s(a(2, 3, 4), 1),
        s(a(2, 3, 4), axis=(0, -1)),
        scalar=[s(a())],
        empty=[s(a(0, 3)), s(a(0, 3), 1)],
    ),
    "pad": moves(
        pad,
        s(a(2, 3), [(1, 2), (0, 1)]),
        s(a(2, 3), paddings=((0, 0), (3, 0)), value=2.0),
        scalar=[s(a(), [])],
        empty=[s(a(0, 3), [(1, 1), (0, 0)]), s(a(2, 0), [(0, 0), (0, 0)])],
    ),
    "split": moves(
        np.split,
        s(a(4, 6), 2),
        s(a(4, 6), 3, axis=-1),
        scalar=[refused(nb.AxisError, a(), 1)],
        empty=[s(a(0, 4), 2, 1), s(a(0, 3), 2)],
    ),
    "chunk": moves(
        chunk,
        s(a(5, 3), 2),
        s(a(5, 3), 5, axis=1),
        scalar=[refused(nb.AxisError, a(), 1)],
        empty=[s(a(0, 5), 2, 1)],
    ),
    "unbind": moves(
        lambda x, axis=0: list(np.moveaxis(x, axis, 0)),
        s(a(2, 3)),
        s(a(2, 3), -1),
        scalar=NO_AXIS,
        empty=[s(a(0, 3)), s(a(0, 3), 1)],
    ),
    "concatenate": moves(
        np.concatenate,
        s([a(2, 3), a(4, 3)]),
        s((a(2, 3), a(2, 1), a(2, 2)), axis=-1),
        s([a(2, 3)]),
        scalar=[refused(ValueError, [a(), a()])],
        empty=[s([a(0, 3), a(2, 3)]), s([a(0, 3), a(0, 3)], 1)],
    ),
    "stack": moves(
        np.stack,
        s([a(2, 3), a(2, 3)]),
        s((a(2, 3), a(2, 3), a(2, 3)), axis=-1),
        scalar=[s([a(), a()])],
        empty=[s([a(0, 3), a(0, 3)], 1)],
    ),
    "roll": moves(
        np.roll,
        s(a(3, 4), 2),
        s(a(3, 4), -5, 1),
        s(a(3, 4), (1, 2), axis=(0, 1)),
        scalar=[s(a(), 1)],
        empty=[s(a(0, 3), 1), s(a(0, 3), 2, 1)],
    ),
    "repeat": moves(
        np.repeat,
        s(a(2, 3), 2),
        s(a(2, 3), 3, axis=-1),
        s(a(2, 3), 0, 0),
        scalar=[s(a(), 3)],
        empty=[s(a(0, 3), 2), s(a(0, 3), 2, 1)],
    ),
    "tile": moves(
        np.tile,
        s(a(2, 3), 2),
        s(a(2, 3), (2, 1, 3)),
        s(a(2, 3), (0, 1)),
        scalar=[s(a(), (2, 3)), s(a(), ())],
        empty=[s(a(0, 3), (2, 2))],
    ),
    "meshgrid": moves(
        np.meshgrid,
        s(a(2), a(3)),
        s(a(2), a(3), a(4), indexing="ij"),
        s(a(2), a(3), a(4), indexing="xy"),
        s(a(2)),
        scalar=[s(a(), a(2))],
        empty=[s(a(0), a(3))],
    ),
    "broadcast_arrays": moves(
        np.broadcast_arrays,
        s(a(2, 1), a(3), a(4, 1, 1)),
        scalar=[s(a(), a(2)), s(a())],
        empty=[s(a(0, 1), a(3))],
    ),
    "diagonal": moves(
        lambda x, offset=0, axis1=-2, axis2=-1: np.diagonal(
            x, offset, axis1, axis2
        ),
        s(a(3, 4)),
        s(a(2, 3, 4), 1),
        s(a(2, 3, 4), -1, 0, 2),
        s(a(2, 3, 4), offset=7),
        scalar=[refused(nb.AxisError, a())],
        empty=[s(a(0, 3)), s(a(0, 3, 3))],
    ),
    "triu": moves(
        np.triu,
        s(a(3, 4)),
        s(a(2, 3, 3), 1),
        s(a(3, 4), k=-1),
        scalar=[refused(ValueError, a())],
        empty=[s(a(0, 3)), s(a(0, 3, 3))],
        zeros=False,
    ),
    "tril": moves(
        np.tril,
        s(a(3, 4)),
        s(a(2, 3, 3), 1),
        s(a(3, 4), k=-1),
        scalar=[refused(ValueError, a())],
        empty=[s(a(0, 3)), s(a(0, 3, 3))],
        zeros=False,
    ),
    # Creation.
    "eye": creation(
        lambda n, m=None, k=0, dtype=None: np.eye(n, m, k),
        s(3, dtype=Dtype),
        s(2, 4, k=1, dtype=Dtype),
        s(4, 2, k=-3, dtype=Dtype),
        s(0, 2, dtype=Dtype),
    ),
    "iota": creation(
        lambda size, dtype: np.arange(size),
        s(5, dtype=Dtype),
        s(0, dtype=Dtype),
        call=_nabla.ops["iota"],
    ),
    "full": creation(
        lambda shape, value, dtype=None: np.full(shape, value),
        s((2, 3), 7, dtype=Dtype),
        s(3, 2.5, dtype=Dtype),
        s((), True, dtype=Dtype),
        s((0, 3), 1, dtype=Dtype),
        s((2, 3), a(3)),
        s((2, 3), a()),
    ),
    "zeros": creation(
        lambda shape, dtype: np.zeros(shape),
        s((2, 3), dtype=Dtype),
        s((), dtype=Dtype),
        s((0, 3), dtype=Dtype),
        s(4, dtype=Dtype),
    ),
    "ones": creation(
        lambda shape, dtype: np.ones(shape),
        s((2, 3), dtype=Dtype),
        s((), dtype=Dtype),
        s((0, 3), dtype=Dtype),
    ),
    "empty": creation(
        lambda shape, dtype: np.zeros(shape),
        s((2, 3), dtype=Dtype),
        s((), dtype=Dtype),
        s((0, 3), dtype=Dtype),
    ),
    "full_like": moves(
        lambda x, value, dtype=None: np.full(x.shape, value),
        s(a(2, 3), 3),
        s(a(2, 3), a(3)),
        s(mask(2, 3), 1, dtype=Dtype),
        scalar=[s(a(), 1)],
        empty=[s(a(0, 3), 1)],
    ),
    "zeros_like": moves(
        lambda x, dtype=None: np.zeros(x.shape),
        s(a(2, 3)),
        s(mask(2, 3), dtype=Dtype),
        scalar=[s(a())],
        empty=[s(a(0, 3))],
    ),
    "ones_like": moves(
        lambda x, dtype=None: np.ones(x.shape),
        s(a(2, 3)),
        s(mask(2, 3), dtype=Dtype),
        scalar=[s(a())],
        empty=[s(a(0, 3))],
    ),
    "empty_like": moves(
        lambda x, dtype=None: np.zeros(x.shape),
        s(a(2, 3)),
        s(mask(2, 3), dtype=Dtype),
        scalar=[s(a())],
        empty=[s(a(0, 3))],
    ),
    "arange_int": creation(
        arange,
        s(0, 5, dtype=Dtype),
        s(9, 2, -3, dtype=Dtype),
        s(2, 2, dtype=Dtype),
        s(5, 0, dtype=Dtype),
        call=nb.arange,
    ),
    "arange_float": creation(
        arange,
        s(0.5, 3.0, dtype=Dtype),
        s(3.0, 0.5, -0.75, dtype=Dtype),
        s(1.0, 1.0, dtype=Dtype),
        call=nb.arange,
        scale=4,
    ),
    "linspace": creation(
        lambda start, stop, num, dtype, endpoint=True: np.linspace(
            start, stop, num, endpoint
        ),
        s(0.5, 3.0, 6, dtype=Dtype),
        s(3, 0, 4, dtype=Dtype, endpoint=False),
        s(1, 2, 1, dtype=Dtype),
        s(1, 2, 0, dtype=Dtype),
        scale=4,
    ),
    "hann_window": creation(
        hann_window,
        s(6, dtype=Dtype),
        s(5, periodic=False, dtype=Dtype),
        s(1, dtype=Dtype),
        s(0, dtype=Dtype),
        scale=1,
    ),
    "one_hot": moves(
        oracle.one_hot,
        s(np.array([[0, 2], [1, 3]]), 4, dtype=Dtype),
        s(np.array([0, 2, 1]), 3, Dtype, axis=0),
        scalar=[s(np.array(2), 4, dtype=Dtype)],
        empty=[s(np.zeros((0, 2), "int64"), 4, dtype=Dtype)],
    ),
    # Indices.
    "gather": moves(
        lambda x, indices, axis=0: np.take(x, indices, axis),
        s(a(4, 3), index(2, 5, size=4)),
        s(a(4, 3), index(6, size=3), axis=-1),
        s(a(4, 3), index(size=4)),
        scalar=[refused(nb.AxisError, a(), index(2, size=1))],
        empty=[s(a(0, 3), index(2, size=3), 1), s(a(4, 3), index(0, size=4))],
    ),
    "scatter": moves(
        oracle.scatter,
        s(a(4, 3), index(5, size=4), a(5, 3)),
        s(a(4, 3), index(2, 2, size=3), a(4, 2, 2), axis=1),
        s(a(4, 3), index(5, size=4), a(3)),
        s(a(4, 3), index(size=4), a(3)),
        scalar=[refused(nb.AxisError, a(), index(2, size=1), a(2))],
        empty=[s(a(4, 3), index(0, size=4), a(0, 3))],
    ),
    "take_along_axis": moves(
        lambda x, indices, axis=-1: np.take_along_axis(x, indices, axis),
        s(a(3, 4), index(3, 6, size=4)),
        s(a(3, 4), index(2, 4, size=3), axis=0),
        s(a(3, 4), index(1, 2, size=4), axis=1),
        scalar=[refused(nb.AxisError, a(), index(size=1))],
        empty=[
            s(a(0, 3), index(0, 2, size=3)),
            s(a(3, 4), index(3, 0, size=4)),
        ],
    ),
    "slice_update": moves(
        oracle.slice_update,
        s(a(4, 5), a(2, 3), (1, 2), (2, 3)),
        s(a(4, 5), a(3), (-2, 0), (2, 3)),
        s(a(4, 5), a(), (0, 0), (4, 5)),
        scalar=[s(a(), a(), (), ())],
        empty=[s(a(0, 3), a(3), (0, 0), (0, 3))],
    ),
    # Linear algebra.
    "solve": matrices(
        np.linalg.solve,
        s(SQUARE, a(2, 3, 2)),
        s(SQUARE, a(4, 1, 3, 1)),
        scale=1,
    ),
    "inv": matrices(np.linalg.inv, s(SQUARE), scale=0.5),
    "det": matrices(np.linalg.det, s(SQUARE), scale=0),
    "slogdet": matrices(np.linalg.slogdet, s(SQUARE), dtype=("float", "float")),
    "triangular_solve": matrices(
        triangular_solve,
        s(SQUARE, a(2, 3, 2)),
        s(SQUARE, a(2, 3, 2), upper=True),
        s(SQUARE, a(2, 3, 2), transpose=True),
        s(SQUARE, a(2, 3, 2), upper=True, transpose=True, unit=True),
        call=_nabla.ops["triangular_solve"],
        scale=128,
    ),
    "cholesky": matrices(
        lambda x, upper=False: np.linalg.cholesky(x, upper=upper),
        s(DEFINITE),
        s(DEFINITE, upper=True),
    ),
    "qr": matrices(
        None,
        s(MATRIX),
        s(a(2, 4, 3)),
        s(a(2, 4, 3), mode="complete"),
        check=check_qr,
        dtype=("float", "float"),
    ),
    "eigh": matrices(
        None,
        s(a(2, 3, 3, like=symmetric)),
        check=check_eigh,
        dtype=("float", "float"),
    ),
    "eigvalsh": matrices(np.linalg.eigvalsh, s(a(2, 3, 3, like=symmetric))),
    "svd": matrices(
        None,
        s(MATRIX),
        s(a(2, 4, 3), full_matrices=False),
        check=check_svd,
        ulps=32,
        dtype=("float", "float", "float"),
    ),
    "svdvals": matrices(np.linalg.svdvals, s(MATRIX), s(a(2, 4, 3))),
    "pinv": matrices(
        np.linalg.pinv, s(SQUARE), s(SQUARE, rtol=1e-3), scale=0.5
    ),
    "matrix_rank": matrices(
        np.linalg.matrix_rank, s(SQUARE), s(SQUARE, rtol=0.5), dtype="int64"
    ),
    "matrix_power": matrices(
        np.linalg.matrix_power,
        s(a(2, 3, 3), 3),
        s(a(2, 3, 3), 0),
        s(a(2, 3, 3), 1),
        scalar=[refused(ValueError, a(), 2)],
        takes="biuhf",
        dtype="same",
        scale=64,
    ),
    "matrix_norm": matrices(
        matrix_norm,
        s(MATRIX),
        s(MATRIX, keepdims=True),
        s(MATRIX, ord="nuc"),
        *(s(MATRIX, ord=p) for p in (1, -1, 2, -2, math.inf, -math.inf)),
    ),
    "cross": matrices(
        lambda x, y, axis=-1: np.cross(x, y, axis=axis),
        s(a(2, 3), a(2, 3)),
        s(a(3, 2), a(3, 1), 0),
        takes="iuhf",
        dtype="same",
        empty=[s(a(0, 3), a(0, 3))],
    ),
    # Convolution and pooling.
    "conv1d": Row(
        oracle.conv,
        [
            s(a(2, 7, 4), a(3, 4, 2)),
            s(a(2, 7, 4), a(3, 4, 2), stride=2, padding=1, dilation=2),
            s(a(2, 7, 4), a(2, 2, 6), padding=(2, 1), groups=2, bias=a(6)),
        ],
        [refused(ValueError, a(), a())],
        [s(a(0, 7, 4), a(3, 4, 2))],
        takes="iuhf",
        ulps=8,
        scale=64,
    ),
    "conv2d": Row(
        oracle.conv,
        [
            s(IMAGE, a(2, 3, 4, 3)),
            s(IMAGE, a(2, 3, 4, 3), stride=2, dilation=(2, 1), padding=1),
            s(IMAGE, a(2, 3, 2, 6), groups=2, padding=(1, 0, 2, 1)),
            s(IMAGE, a(3, 2, 1, 4), groups=4, padding=(1, 2), bias=a(4)),
        ],
        [refused(ValueError, a(), a())],
        [s(a(0, 5, 4, 4), a(2, 3, 4, 3)), s(a(2, 5, 4, 0), a(2, 3, 0, 3))],
        takes="iuhf",
        ulps=8,
        scale=64,
    ),
    "conv3d": Row(
        oracle.conv,
        [
            s(VOLUME, a(2, 2, 2, 2, 3)),
            s(VOLUME, a(2, 1, 2, 1, 4), groups=2, stride=(1, 2, 1)),
            s(VOLUME, a(1, 2, 2, 2, 1), padding=(1, 0, 2), bias=a(1)),
        ],
        [refused(ValueError, a(), a())],
        [s(a(0, 3, 4, 3, 2), a(2, 2, 2, 2, 3))],
        takes="iuhf",
        ulps=8,
        scale=64,
    ),
    "conv1d_transpose": Row(
        oracle.conv_transpose,
        [
            s(a(2, 4, 4), a(3, 2, 4)),
            s(
                a(2, 4, 4),
                a(3, 3, 4),
                stride=3,
                dilation=2,
                padding=(1, 2),
                output_paddings=2,
                groups=2,
                bias=a(6),
            ),
        ],
        [refused(ValueError, a(), a())],
        [s(a(0, 4, 4), a(3, 2, 4))],
        takes="iuhf",
        ulps=8,
        scale=64,
    ),
    "conv2d_transpose": Row(
        oracle.conv_transpose,
        [
            s(a(2, 3, 2, 4), a(2, 3, 5, 4)),
            s(
                a(2, 3, 2, 4),
                a(2, 3, 1, 4),
                stride=(2, 3),
                padding=(0, 1, 2, 0),
                output_paddings=(1, 2),
                groups=2,
                bias=a(2),
            ),
            s(a(2, 3, 2, 4), a(2, 3, 5, 4), dilation=(3, 2), padding=(1, 2)),
        ],
        [refused(ValueError, a(), a())],
        [s(a(0, 3, 2, 4), a(2, 3, 5, 4))],
        takes="iuhf",
        ulps=8,
        scale=64,
    ),
    "conv3d_transpose": Row(
        oracle.conv_transpose,
        [
            s(a(1, 2, 3, 2, 4), a(2, 1, 2, 3, 4)),
            s(a(1, 2, 3, 2, 4), a(2, 2, 1, 1, 4), stride=2, groups=4),
        ],
        [refused(ValueError, a(), a())],
        [s(a(0, 2, 3, 2, 4), a(2, 1, 2, 3, 4))],
        takes="iuhf",
        ulps=8,
        scale=64,
    ),
    "avg_pool2d": Row(
        oracle.avg_pool,
        [
            s(IMAGE, kernel_size=2),
            s(IMAGE, **PAD),
            s(IMAGE, kernel_size=2, stride=1, dilation=(2, 3)),
        ],
        [refused(ValueError, a(), kernel_size=1)],
        [s(a(0, 5, 4, 4), kernel_size=2)],
        dtype="float",
        ulps=8,
        scale=4,
    ),
    "max_pool2d": Row(
        oracle.max_pool,
        [
            s(IMAGE, kernel_size=2),
            s(IMAGE, **PAD),
            s(IMAGE, kernel_size=2, stride=1, dilation=(2, 3)),
            s(IMAGE, kernel_size=1, padding=1),
        ],
        [refused(ValueError, a(), kernel_size=1)],
        [s(a(0, 5, 4, 4), kernel_size=2)],
        takes="iuhf",
        ulps=0,
    ),
    # Random numbers.
    "random_key": creation(
        lambda seed: np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF]),
        s(7),
        s(-1),
        s(1 << 40),
        dtype="uint32",
    ),
    "random_split": creation(
        lambda key, num=2: oracle.words(key, (num, 2), stream=2),
        s(KEY),
        s(KEY, 5),
        s(KEY, 0),
        dtype="uint32",
    ),
    "random_fold_in": Row(
        fold_in,
        [s(KEY, a(2, 3))],
        [s(KEY, a())],
        [s(KEY, a(0, 3))],
        takes="iu",
        dtype="uint32",
    ),
    "random_key_like": Row(
        lambda key, x: key,
        [s(KEY, a(2, 3))],
        [s(KEY, a())],
        [s(KEY, a(0, 3))],
        dtype="uint32",
        call=_nabla.ops["random_key_like"],
    ),
    "random_uniform": creation(
        oracle.uniform,
        s(KEY, (3, 5), dtype=Dtype),
        s(KEY, (3, 5), -1.5, 2.5, dtype=Dtype),
        s(KEY, (), dtype=Dtype),
        s(KEY, (0, 3), dtype=Dtype),
        takes="hf",
        scale=2,
    ),
    "random_normal": creation(
        oracle.normal,
        s(KEY, (3, 5), dtype=Dtype),
        s(KEY, (3, 5), 1.5, 0.5, dtype=Dtype),
        s(KEY, (), dtype=Dtype),
        s(KEY, (0, 3), dtype=Dtype),
        takes="hf",
        scale=2,
    ),
    "random_truncated_normal": creation(
        oracle.truncated_normal,
        s(KEY, -1.0, 2.0, (3, 5), dtype=Dtype),
        s(KEY, 3.0, math.inf, (3, 5), dtype=Dtype),
        s(KEY, -1.0, 2.0, (), dtype=Dtype),
        s(KEY, -1.0, 2.0, (0, 3), dtype=Dtype),
        takes="hf",
        ulps=64,
        scale=1,
    ),
    "random_bernoulli": Row(
        oracle.bernoulli,
        [
            s(KEY, a(3, 5, low=0, high=1)),
            s(KEY, a(3, 1, low=0, high=1), (3, 5)),
        ],
        [s(KEY, a(low=0, high=1), (3,)), s(KEY, a(low=0, high=1))],
        [s(KEY, a(0, 3))],
        dtype="bool",
    ),
    "random_randint": creation(
        oracle.randint,
        s(KEY, (3, 5), 3, 99, dtype=Dtype),
        s(KEY, (), 0, 2, dtype=Dtype),
        s(KEY, (0, 3), 0, 2, dtype=Dtype),
        takes="iu",
    ),
    "random_categorical": Row(
        oracle.categorical,
        [s(KEY, a(3, 5)), s(KEY, a(3, 5), 0), s(KEY, a(3, 5), 1, (4, 3))],
        [refused(nb.AxisError, KEY, a())],
        [s(KEY, a(0, 3)), refused(ValueError, KEY, a(3, 0))],
        dtype="int64",
    ),
    "random_permutation": moves(
        oracle.permutation,
        s(KEY, a(5, 3)),
        s(KEY, a(3, 5), axis=-1),
        scalar="a number of the dtype means a range: test_random_range",
        empty=[s(KEY, a(0, 3)), s(KEY, a(0, 3), 1)],
    ),
}


# Running.


def function(name):
    """An op as a user finds it; some are found in the engine alone."""
    row = TABLE[name]
    if row.call:
        return row.call
    homes = (nb, nb.linalg)
    return next(
        (getattr(home, name) for home in homes if hasattr(home, name)),
        _nabla.ops[name],
    )


def each(f, args):
    """f at every tensor among the arguments, in lists too."""
    if isinstance(args, dict):
        return {name: each(f, arg) for name, arg in args.items()}
    if isinstance(args, (list, tuple)) and not isinstance(args, Argument):
        return type(args)(each(f, arg) for arg in args)
    return f(args) if isinstance(args, (Argument, np.ndarray)) else args


def filled(sample, rng, dtype, layout):
    """The arguments of a sample as arrays."""

    def fill(arg):
        if isinstance(arg, Argument):
            numbers = oracle.sample(rng, arg.shape, dtype, arg.low, arg.high)
            arg = np.asarray(arg.like(numbers), np_dtype(dtype))
        return oracle.arranged(arg, layout)

    def name(arg):
        return dtype if arg is Dtype else arg

    args = tuple(map(name, sample.args))
    kwargs = {key: name(arg) for key, arg in sample.kwargs.items()}
    return each(fill, args), each(fill, kwargs)


def widened(row, dtype):
    """How the formula sees an array."""
    of_floats = "float" in row.dtype

    def widen(x):
        if of_floats and x.dtype == np_dtype(dtype):
            x = x.astype(np_dtype(oracle.floating(dtype)))
        return x if row.narrow else oracle.widened(x)

    return widen


def listed(results):
    if isinstance(results, dict):
        return list(results.values())
    return list(results) if isinstance(results, (list, tuple)) else [results]


def compare(row, dtype, got, args, kwargs):
    got = listed(got)
    rules = row.dtype if isinstance(row.dtype, tuple) else None
    rules = rules or (row.dtype,) * len(got)
    dtypes = [oracle.result_dtype(rule, dtype) for rule in rules]
    widen = widened(row, dtype)
    args, kwargs = each(widen, args), each(widen, kwargs)
    if row.check:
        assert [x.dtype.name for x in got] == dtypes
        arrays = [x.numpy().astype("float64") for x in got]
        tolerance = row.ulps * oracle.epsilon(dtypes[0]) * row.scale
        row.check(arrays, *args, tolerance=tolerance, **kwargs)
        return
    with np.errstate(all="ignore"):
        want = listed(row.formula(*args, **kwargs))
    assert len(got) == len(want)
    how = {"ulps": row.ulps, "scale": row.scale, "zeros": row.zeros}
    for x, y, d in zip(got, want, dtypes, strict=True):
        same(x, y, d, **how)


def run(name, dtype, sample, layout):
    row = TABLE[name]
    rng = oracle.generator(name, dtype, layout, str(sample.kwargs))
    args, kwargs = filled(sample, rng, dtype, layout)
    f = function(name)

    def call():
        return f(
            *each(lambda x: oracle.tensor(x, layout), args),
            **each(lambda x: oracle.tensor(x, layout), kwargs),
        )

    if kind(dtype) not in row.takes:
        with pytest.raises(TypeError):
            call()
    elif sample.error:
        with pytest.raises(sample.error):
            call()
    else:
        try:
            compare(row, dtype, call(), args, kwargs)
        except Exception as error:
            error.add_note(f"{name} of {dtype}, {layout}: {sample}")
            raise


def at_edges(row, dtype):
    """A sample of all combinations of numbers at the edges of the dtype."""
    numbers = oracle.edges(dtype)
    n = len(row.samples[0].args)
    args = [
        numbers.reshape([-1 if d == k else 1 for d in range(n)])
        for k in range(n)
    ]
    return Sample(tuple(args), {})


def plan(name, dtype):
    """All samples of an op, each with a layout."""
    row = TABLE[name]
    yield from (
        (sample, layout) for sample in row.samples for layout in LAYOUTS
    )
    for apart in (row.scalar, row.empty):
        if not isinstance(apart, str):
            yield from ((sample, "contiguous") for sample in apart)
    if row.edges:
        yield at_edges(row, dtype), "contiguous"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TABLE)
def test_op(name, dtype, record_property):
    cases = list(plan(name, dtype))
    if kind(dtype) not in TABLE[name].takes:
        cases = cases[:1]
    for sample, layout in cases:
        run(name, dtype, sample, layout)
    record_property("op", name)
    record_property("dtype", dtype)
    record_property("cases", len(cases))


# Sizes at which loops change: blocks, tiles, what is left over at the end.


def whole(*shape):
    """Small whole numbers, whose sums are exact in every dtype."""
    return a(*shape, low=-1, high=2, like=np.rint)


def of_lines(*more):
    """Samples of one axis, and of one among three."""
    rows = [s(whole(n), -1, *more) for n in (64, 65, 1023, 1025, 5000)]
    blocks = [s(whole(5, 130, 33), axis, *more) for axis in range(3)]
    return rows + blocks


def of_numbers(n):
    return [s(*[whole(size)] * n) for size in (15, 64, 1023, 1025, 5000)] + [
        s(*[whole(3, 129, 17)] * n)
    ]


LARGE = {
    **dict.fromkeys(
        "reduce_sum reduce_max reduce_min all any count_nonzero mean argmax "
        "argmin cumsum sort argsort softmax logsumexp flip".split(),
        of_lines(),
    ),
    **dict.fromkeys(
        "cast exp sqrt tanh neg abs square floor is_nan logical_not sigmoid "
        "ones_like bitwise_invert nonzero unique_all flatten".split(),
        of_numbers(1),
    ),
    **dict.fromkeys(
        "add sub mul div maximum less equal logical_and bitwise_xor hypot "
        "nextafter".split(),
        of_numbers(2) + [s(whole(65, 1), whole(33)), s(whole(2000), whole())],
    ),
    "where": of_numbers(3),
    "topk": [s(whole(1025), 70), s(whole(5, 130, 3), 65, 1)],
    "searchsorted": [
        s(a(1025, like=ascending), whole(70, 15)),
        s(a(7, like=ascending), whole(1025)),
    ],
    "matmul": [
        s(whole(65, 130), whole(130, 67)),
        s(whole(3, 33, 257), whole(257, 5)),
        s(whole(300), whole(300, 70)),
        s(whole(1, 520), whole(520, 1)),
    ],
    "einsum": [
        s("bij,bkj->ikb", whole(3, 33, 65), whole(3, 17, 65)),
        s("ijk->kj", whole(33, 7, 65)),
    ],
    "permute": [
        s(whole(65, 130), (1, 0)),
        s(whole(17, 33, 9), (2, 0, 1)),
        s(whole(5, 9, 7, 6), (0, 2, 1, 3)),
    ],
    "concatenate": [s([whole(1025), whole(3), whole(64)])],
    "roll": [s(whole(1025), 1000), s(whole(33, 65), (5, -7), (0, 1))],
    "gather": [
        s(whole(1025), index(3000, size=1025)),
        s(whole(33, 65), index(70, size=65), axis=1),
    ],
    "scatter": [
        s(whole(1025), index(3000, size=1025), whole(3000)),
        s(whole(33, 65), index(70, size=65), whole(33, 70), axis=1),
    ],
    "conv2d": [
        s(whole(2, 17, 19, 16), whole(3, 3, 16, 33)),
        s(whole(1, 33, 9, 8), whole(5, 2, 2, 8), groups=4, stride=2),
        s(whole(1, 16, 16, 3), whole(1, 1, 3, 70), padding=1),
    ],
    "conv2d_transpose": [
        s(whole(1, 9, 11, 16), whole(3, 3, 17, 16), stride=2, padding=1),
    ],
    "max_pool2d": [s(whole(2, 33, 35, 17), kernel_size=3, stride=2)],
    "avg_pool2d": [s(whole(2, 33, 35, 17), kernel_size=3, padding=1)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", LARGE)
def test_large(name, layout):
    for dtype in DTYPES:
        if kind(dtype) not in TABLE[name].takes:
            continue
        for sample in LARGE[name]:
            run(name, dtype, sample, layout)


# What the samples leave out.


def test_empty_matrices():
    for dtype in ("float32", "float64"):
        no_size, none = (nb.zeros(z, dtype=dtype) for z in ((0, 0), (0, 3, 3)))
        one = np.ones(())
        same(nb.linalg.det(no_size), one, dtype)
        same(nb.linalg.slogdet(no_size)[0], one, dtype)
        same(nb.linalg.slogdet(no_size)[1], 0 * one, dtype)
        same(nb.linalg.matrix_rank(no_size), 0 * one, "int64")
        same(nb.linalg.matrix_norm(no_size), 0 * one, dtype)
        for f in ("inv", "cholesky", "pinv"):
            g = getattr(nb.linalg, f)
            same(g(no_size), np.zeros((0, 0)), dtype)
            same(g(none), np.zeros((0, 3, 3)), dtype)
        same(nb.linalg.eigvalsh(none), np.zeros((0, 3)), dtype)
        same(nb.linalg.svdvals(no_size), np.zeros(0), dtype)
        b = nb.zeros((0, 2), dtype=dtype)
        same(nb.linalg.solve(no_size, b), np.zeros((0, 2)), dtype)
        for shape in ((0, 3), (3, 0), (2, 0, 0), (0, 2, 3)):
            x = nb.zeros(shape, dtype=dtype)
            for f in ("qr", "svd"):
                got = getattr(nb.linalg, f)(x)
                want = getattr(np.linalg, f)(np.zeros(shape))
                shapes = [y.numpy().shape for y in got]
                assert shapes == [y.shape for y in want], (f, shape)


def test_many_parts():
    x = np.arange(5000)
    parts = nb.unbind(nb.constant(x))
    assert len(parts) == 5000
    assert int(parts[-1]) == 4999
    same(nb.stack(parts), x, "int64")
    same(nb.concatenate([part[None] for part in parts]), x, "int64")
    assert len(nb.split(nb.constant(x), 5000)) == 5000


def test_solve_with_a_vector():
    m = np.array([[2.0, 1.0], [0.0, 4.0]])
    x = nb.linalg.solve(nb.constant(m), nb.constant(np.array([4.0, 8.0])))
    same(x, [1.0, 2.0], "float64")


def test_negative_powers_of_matrices():
    m = np.array([[[2.0, 1.0], [0.0, 4.0]], [[1.0, 0.0], [3.0, -1.0]]])
    for n in (-1, -2, -5):
        got = nb.linalg.matrix_power(nb.constant(m), n)
        same(got, np.linalg.matrix_power(m, n), "float64", scale=32)


def test_matrices_without_a_result_give_nan():
    singular = nb.constant(np.ones((2, 2)))
    assert not np.isfinite(nb.linalg.inv(singular).numpy()).any()
    indefinite = nb.constant(-np.eye(2))
    assert np.isnan(nb.linalg.cholesky(indefinite).numpy()).any()
    same(nb.linalg.det(singular), 0.0, "float64")


@pytest.mark.parametrize("dtype", oracle.INTEGERS)
def test_random_range(dtype):
    f = function("random_permutation")
    got = f(nb.constant(KEY), nb.constant(7, dtype=dtype))
    same(got, oracle.permutation(KEY, 7), "int64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_indices_are_integers_of_any_dtype(dtype):
    x = np.arange(12.0).reshape(4, 3)
    i = np.array([0, 1, 1], np_dtype(dtype))
    new = np.arange(9.0).reshape(3, 3)
    wide = i.astype("int64")
    calls = {
        "gather": (nb.gather, (x, i), np.take(x, wide, 0)),
        "scatter": (nb.scatter, (x, i, new), oracle.scatter(x, wide, new)),
        "along": (nb.take_along_axis, (x, i[None], 0), x[wide, range(3)][None]),
    }
    for f, args, want in calls.values():
        args = [nb.constant(v) if np.ndim(v) else v for v in args]
        if dtype in oracle.INTEGERS:
            same(f(*args), want, "float64")
        else:
            with pytest.raises(TypeError):
                f(*args)
    if dtype in oracle.INTEGERS:
        got = nb.one_hot(nb.constant(i), 3)
        same(got, oracle.one_hot(wide, 3), "float32")
    else:
        with pytest.raises(TypeError):
            nb.one_hot(nb.constant(i), 3)


def test_other_forms():
    """Arguments of ops that have defaults the samples do not change."""
    x = oracle.sample(oracle.generator("forms"), (3, 5), "float64")
    y = nb.constant(x)
    same(
        nb.gelu(y, approximate="tanh"),
        oracle.gelu(x, "tanh"),
        "float64",
        scale=1,
    )
    bad = np.array([math.nan, math.inf, -math.inf, 2.0])
    got = nb.nan_to_num(nb.constant(bad), nan=1, posinf=5, neginf=-5)
    same(got, [1.0, 5.0, -5.0, 2.0], "float64")
    same(nb.clip(y, min=0), np.clip(x, 0, None), "float64")
    same(nb.clip(y, max=1), np.clip(x, None, 1), "float64")
    same(nb.sum(y, 1, dtype="float32"), x.sum(1), "float32", scale=8)
    assert list(nb.minmax(y)) == ["min", "max"]


def test_rows_are_of_ops_that_exist():
    stale = sorted(set(TABLE) - set(_nabla.ops))
    assert not stale, f"rows for ops that do not exist: {', '.join(stale)}"
