"""What the tests of ops share: dtypes and how they combine, tensors in every
layout, samples, comparison, and plain formulas for what NumPy does not have.

Formulas are written for clarity and compute in float64, or in the integer
dtype itself; tensors go in and come out by way of NumPy arrays."""

import math
import zlib
from itertools import product

import ml_dtypes
import numpy as np

import nabla as nb

# Dtypes.

KINDS = {
    "b": ("bool",),
    "i": ("int8", "int16", "int32", "int64"),
    "u": ("uint8", "uint16", "uint32", "uint64"),
    "h": ("float16", "bfloat16"),
    "f": ("float32", "float64"),
}
DTYPES = sum(KINDS.values(), ())
INTEGERS = KINDS["i"] + KINDS["u"]
FLOATS = KINDS["h"] + KINDS["f"]

# The promotion of two tensors, section 2 of the API: the dtype of the row with
# that of the column; two dashes are a TypeError.
_PROMOTION = """
     b1  i8  i16 i32 i64 u8  u16 u32 u64 f16 b16 f32 f64
b1   b1  i8  i16 i32 i64 u8  u16 u32 u64 f16 b16 f32 f64
i8   i8  i8  i16 i32 i64 i16 i32 i64 --  f16 b16 f32 f64
i16  i16 i16 i16 i32 i64 i16 i32 i64 --  f16 b16 f32 f64
i32  i32 i32 i32 i32 i64 i32 i32 i64 --  f16 b16 f32 f64
i64  i64 i64 i64 i64 i64 i64 i64 i64 --  f16 b16 f32 f64
u8   u8  i16 i16 i32 i64 u8  u16 u32 u64 f16 b16 f32 f64
u16  u16 i32 i32 i32 i64 u16 u16 u32 u64 f16 b16 f32 f64
u32  u32 i64 i64 i64 i64 u32 u32 u32 u64 f16 b16 f32 f64
u64  u64 --  --  --  --  u64 u64 u64 u64 f16 b16 f32 f64
f16  f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f32 f32 f64
b16  b16 b16 b16 b16 b16 b16 b16 b16 b16 f32 b16 f32 f64
f32  f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f64  f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
"""


def _read_promotion():
    rows = [line.split() for line in _PROMOTION.split("\n") if line]
    name = dict(zip(rows[0], DTYPES, strict=True)) | {"--": None}
    return {
        (name[row[0]], name[column]): name[result]
        for row in rows[1:]
        for column, result in zip(rows[0], row[1:], strict=True)
    }


PROMOTION = _read_promotion()


def kind(dtype):
    """Its letter in KINDS."""
    return next(k for k, names in KINDS.items() if dtype in names)


def np_dtype(dtype):
    """The dtype of NumPy with this name; bfloat16 is that of ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def limits(dtype):
    """The least and the greatest finite number."""
    d = np_dtype(dtype)
    if dtype == "bool":
        return False, True
    info = ml_dtypes.finfo(d) if dtype in FLOATS else np.iinfo(d)
    return info.min, info.max


def epsilon(dtype):
    return float(ml_dtypes.finfo(np_dtype(dtype)).eps)


def smallest(dtype):
    """The least number above zero."""
    return float(ml_dtypes.finfo(np_dtype(dtype)).smallest_subnormal)


def floating(dtype):
    """The dtype of functions like exp: integers give the default float."""
    return dtype if dtype in FLOATS else "float32"


def summed(dtype):
    """The dtype of sums: bool and integers become 64 bits wide."""
    if dtype in FLOATS:
        return dtype
    return "uint64" if kind(dtype) == "u" else "int64"


RESULTS = {
    "same": lambda dtype: dtype,
    "float": floating,
    "sum": summed,
}


def result_dtype(rule, dtype):
    """The dtype of a result by its rule, which may be a dtype itself."""
    return RESULTS[rule](dtype) if rule in RESULTS else rule


# Tensors.

LAYOUTS = ("contiguous", "strided", "transposed", "reversed", "broadcast")


def arranged(a, layout):
    """The array as the layout can show it: a broadcast one repeats its first
    slice."""
    if layout == "broadcast" and a.ndim and a.size:
        return np.ascontiguousarray(np.broadcast_to(a[:1], a.shape))
    return a


def tensor(a, layout="contiguous"):
    """A tensor that equals the array, whose elements lie in memory as the
    layout says: apart, the other way round, or one for many."""
    if a.ndim == 0:
        return nb.constant(np.stack([np.ones_like(a), a]))[1]
    if layout == "strided":
        apart = np.repeat(np.roll(a, 1), 2, -1)
        apart[..., 1::2] = a
        return nb.constant(apart)[..., 1::2]
    if layout == "transposed":
        back = nb.constant(np.ascontiguousarray(a.T))
        return back.permute(range(a.ndim)[::-1])
    if layout == "reversed":
        back = nb.constant(np.ascontiguousarray(np.flip(a)))
        return back[(slice(None, None, -1),) * a.ndim]
    if layout == "broadcast" and a.size:
        return nb.broadcast_to(nb.constant(a[:1].copy()), a.shape)
    return nb.constant(a)


# Samples.


def generator(*names):
    """Random numbers that depend on the names alone."""
    return np.random.default_rng(zlib.crc32(" ".join(names).encode()))


def sample(rng, shape, dtype, low=-4, high=4):
    """Numbers of the dtype from low to high, whole ones if it is an integer;
    zeros and ties are among them."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        a = np.round(rng.uniform(low, high, shape), 3)
        return np.asarray(a).astype(np_dtype(dtype))
    low = math.ceil(max(low, 0) if kind(dtype) == "u" else low)
    a = rng.integers(low, math.floor(high) + 1, shape)
    return np.asarray(a).astype(dtype)


def edges(dtype):
    """Numbers at which functions tend to be wrong."""
    least, most = limits(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTEGERS:
        some = {least, least + 1, 0, 1, 2, 7, most - 1, most}
        if least < 0:
            some |= {-7, -2, -1}
        return np.array(sorted(some), dtype)
    inf, tiny = math.inf, smallest(dtype)
    some = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, float(most), tiny, inf]
    some = [s * x for x in some for s in (1, -1)] + [math.nan]
    return np.array(some).astype(np_dtype(dtype))


def widened(a):
    """Floats as float64, in which formulas compute; integers as they are."""
    if a.dtype.kind in "biu":
        return a
    return a.astype("float64")


# Comparison.


def same(got, want, dtype, *, ulps=4.0, scale=0.0, zeros=False):
    """Asserts that a tensor has the dtype, and the shape and values of an
    array: integers exactly, floats within some units in the last place of the
    value, or of `scale` if that is larger.  zeros: signs of zeros count."""
    assert nb.is_tensor(got), f"{got!r} is not a tensor"
    assert got.dtype.name == dtype, f"{got.dtype.name} instead of {dtype}"
    assert got.shape == np.shape(want), (
        f"shape {got.shape} instead of {np.shape(want)}"
    )
    with np.errstate(all="ignore"):
        want = np.asarray(want).astype(np_dtype(dtype))
    have = got.numpy()
    assert have.dtype == np_dtype(dtype), f"data of {have.dtype}"
    if dtype not in FLOATS:
        np.testing.assert_array_equal(have, want)
        return
    have, want = have.astype("float64"), want.astype("float64")
    finite = np.isfinite(want)
    np.testing.assert_array_equal(have[~finite], want[~finite])
    size = np.maximum(np.abs(want[finite]), scale)
    bound = ulps * (epsilon(dtype) * size + smallest(dtype))
    wrong = ~(np.abs(have[finite] - want[finite]) <= bound)
    assert not wrong.any(), (
        f"{have[finite][wrong]} instead of {want[finite][wrong]}"
    )
    if zeros:
        both = (have == 0) & (want == 0)
        np.testing.assert_array_equal(
            np.signbit(have[both]), np.signbit(want[both]), "signs of zeros"
        )


# Formulas.

erf = np.vectorize(math.erf, otypes=["float64"])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gated(x, gate):
    """x times a gate that closes on the far left, where the product tends to
    zero."""
    return np.where(x == -math.inf, -0.0, x * gate)


def silu(x):
    return gated(x, sigmoid(x))


def gelu(x, approximate="none"):
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return gated(x, 0.5 * (1 + np.tanh(inner)))
    return gated(x, 0.5 * (1 + erf(x / math.sqrt(2))))


def wrapped(value, dtype):
    """A Python int in an integer dtype: modulo 2 to the bits."""
    bits = 8 * dtype.itemsize
    value %= 1 << bits
    negative = dtype.kind == "i" and value >> (bits - 1)
    return value - (1 << bits) if negative else value


def by_integers(f):
    """A function of two of Python's integers, element by element."""

    def each(x, y):
        x, y = np.broadcast_arrays(x, y)
        out = np.empty(x.shape, x.dtype)
        for at in np.ndindex(x.shape):
            out[at] = wrapped(f(int(x[at]), int(y[at])), x.dtype)
        return out

    return each


def _integer_power(x, y):
    """Negative powers give 0, but for 1 and -1."""
    if y >= 0:
        return pow(x, y, 1 << 64)
    return x ** (y % 2) if abs(x) == 1 else 0


integer_power = by_integers(_integer_power)
integer_quotient = by_integers(lambda x, y: x // y if y else 0)
integer_remainder = by_integers(lambda x, y: x % y if y else 0)


def power(x, y):
    return np.power(x, y) if x.dtype.kind == "f" else integer_power(x, y)


def floor_divide(x, y):
    if x.dtype.kind == "f":
        return np.floor_divide(x, y)
    return integer_quotient(x, y)


def remainder(x, y):
    return np.mod(x, y) if x.dtype.kind == "f" else integer_remainder(x, y)


def shift_left(x, y):
    """As if integers had no end; a shift that is negative counts as one beyond
    the width."""
    bits = 8 * x.dtype.itemsize
    return by_integers(lambda a, n: a << (n if 0 <= n < bits else bits))(x, y)


def shift_right(x, y):
    bits = 8 * x.dtype.itemsize
    return by_integers(lambda a, n: a >> (n if 0 <= n < bits else bits))(x, y)


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis, keepdims=True, initial=-math.inf))
    return e / np.sum(e, axis, keepdims=True)


def logsumexp(x, axis=None, keepdims=False):
    axis = tuple(range(x.ndim)) if axis is None else axis
    top = np.max(x, axis, keepdims=True, initial=-math.inf)
    top = np.where(np.isfinite(top), top, 0)
    y = np.log(np.sum(np.exp(x - top), axis, keepdims=True)) + top
    return y if keepdims else np.squeeze(y, axis)


def logsoftmax(x, axis=-1):
    return x - logsumexp(x, (axis,), True)


def scan(f, unit):
    """cumsum or cumprod with the flags of the API."""

    def scanned(x, axis=-1, exclusive=False, reverse=False):
        y = x.astype(np_dtype(summed(x.dtype.name)))
        y = np.flip(y, axis) if reverse else y
        y = f(y, axis)
        if exclusive and y.size:
            first = np.full_like(np.take(y, range(1), axis), unit)
            rest = np.take(y, range(y.shape[axis] - 1), axis)
            y = np.concatenate([first, rest], axis)
        return np.flip(y, axis) if reverse else y

    return scanned


cumsum = scan(lambda x, axis: np.cumsum(x, axis, x.dtype), 0)
cumprod = scan(lambda x, axis: np.cumprod(x, axis, x.dtype), 1)


def argsort(x, axis=-1, descending=False, stable=True):
    """Stable, NaN behind all numbers; descending: the largest first, equals
    still in their order."""
    if not descending:
        return np.argsort(x, axis, stable=True)
    turned = np.argsort(np.flip(x, axis), axis, stable=True)
    return np.flip(x.shape[axis] - 1 - turned, axis)


def sort(x, axis=-1, descending=False, stable=True):
    return np.take_along_axis(x, argsort(x, axis, descending), axis)


def topk(x, k, axis=-1, largest=True):
    order = np.take(argsort(x, axis, largest), range(k), axis)
    return np.take_along_axis(x, order, axis), order


def unique_all(x):
    values, first, inverse, counts = np.unique(
        x,
        return_index=True,
        return_inverse=True,
        return_counts=True,
        equal_nan=False,
    )
    return values, first, inverse.reshape(x.shape), counts


def scatter(x, indices, updates, axis=0):
    y = np.moveaxis(x.copy(), axis, 0)
    shape = x.shape[:axis] + indices.shape + x.shape[axis + 1 :]
    new = np.moveaxis(
        np.broadcast_to(updates, shape),
        range(axis, axis + indices.ndim),
        range(indices.ndim),
    )
    for at in np.ndindex(indices.shape):
        y[indices[at]] = new[at]
    return np.moveaxis(y, 0, axis)


def window(x, start, size):
    """The block of x that slice_tensor and slice_update mean."""
    begin = [s % n if n else 0 for s, n in zip(start, x.shape, strict=True)]
    return tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))


def slice_update(x, update, start, size):
    y = x.copy()
    y[window(x, start, size)] = update
    return y


def one_hot(indices, num_classes, dtype=None, axis=-1):
    hot = np.asarray(indices)[..., None] == np.arange(num_classes)
    return np.moveaxis(hot, -1, axis)


# Convolution and pooling: a window runs over an image that is padded.


def per_axis(value, n):
    return (value,) * n if isinstance(value, int) else tuple(value)


def padding_pairs(padding, n):
    """(before, after) for each of n spatial axes."""
    values = per_axis(padding, n)
    if n == 1 and len(values) == 2:
        return [values]
    if len(values) == n:
        return [(p, p) for p in values]
    return list(zip(values[::2], values[1::2], strict=True))


def taps(x, kernel, stride, dilation, padding, fill):
    """For each tap of a window, its place and what it sees from all places
    where the window stands."""
    n = x.ndim - 2
    stride, dilation = per_axis(stride, n), per_axis(dilation, n)
    around = [(0, 0), *padding_pairs(padding, n), (0, 0)]
    x = np.pad(x, around, constant_values=fill)
    count = [
        (size - d * (k - 1) - 1) // s + 1
        for size, d, k, s in zip(
            x.shape[1:-1], dilation, kernel, stride, strict=True
        )
    ]
    for tap in product(*map(range, kernel)):
        seen = [
            slice(t * d, t * d + (c - 1) * s + 1, s)
            for t, d, c, s in zip(tap, dilation, count, stride, strict=True)
        ]
        yield tap, x[(slice(None), *seen)]


def conv(x, filter, *, stride=1, dilation=1, padding=0, groups=1, bias=None):
    kernel = filter.shape[:-2]
    parts = []
    for g, part in enumerate(np.split(x, groups, -1)):
        w = np.split(filter, groups, -1)[g]
        parts.append(
            sum(
                np.tensordot(seen, w[tap], 1)
                for tap, seen in taps(
                    part, kernel, stride, dilation, padding, 0
                )
            )
        )
    y = np.concatenate(parts, -1).astype(x.dtype)
    return y if bias is None else y + bias


def conv_transpose(
    x,
    filter,
    *,
    stride=1,
    dilation=1,
    padding=0,
    output_paddings=0,
    groups=1,
    bias=None,
):
    n = x.ndim - 2
    stride, dilation = per_axis(stride, n), per_axis(dilation, n)
    more = per_axis(output_paddings, n)
    pairs = padding_pairs(padding, n)
    kernel = filter.shape[:n]
    out = filter.shape[-2] * groups
    whole = [
        (size - 1) * s + d * (k - 1) + 1 + m
        for size, s, d, k, m in zip(
            x.shape[1:-1], stride, dilation, kernel, more, strict=True
        )
    ]
    y = np.zeros((x.shape[0], *whole, out), x.dtype)
    for tap in product(*map(range, kernel)):
        place = [
            slice(t * d, t * d + (size - 1) * s + 1, s)
            for t, d, s, size in zip(
                tap, dilation, stride, x.shape[1:-1], strict=True
            )
        ]
        ws = np.split(filter[tap], groups, -1)
        xs = np.split(x, groups, -1)
        y[(slice(None), *place)] += np.concatenate(
            [part @ w.T for part, w in zip(xs, ws, strict=True)], -1
        ).astype(x.dtype)
    inner = [
        slice(before, size - after)
        for (before, after), size in zip(pairs, whole, strict=True)
    ]
    y = y[(slice(None), *inner)]
    return y if bias is None else y + bias


def max_pool(x, *, kernel_size, stride=None, padding=0, dilation=1):
    least = -math.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    kernel = per_axis(kernel_size, 2)
    seen = taps(x, kernel, stride or kernel, dilation, padding, least)
    return np.max([part for _, part in seen], 0)


def avg_pool(x, *, kernel_size, stride=None, padding=0, dilation=1):
    kernel = per_axis(kernel_size, 2)
    seen = taps(x, kernel, stride or kernel, dilation, padding, 0)
    return np.mean([part for _, part in seen], 0)


# Random numbers: Philox 4x32-10.  The counter is the index of a block of four
# words, the number of the stream, and 0 for what is drawn, 1 for what is
# folded in.


def philox(key, block, stream=0, purpose=0):
    k = [int(word) for word in key]
    c = [block & 0xFFFFFFFF, block >> 32 & 0xFFFFFFFF, stream, purpose]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            (b >> 32) ^ c[1] ^ k[0],
            b & 0xFFFFFFFF,
            (a >> 32) ^ c[3] ^ k[1],
            a & 0xFFFFFFFF,
        ]
        k = [
            (k[0] + 0x9E3779B9) & 0xFFFFFFFF,
            (k[1] + 0xBB67AE85) & 0xFFFFFFFF,
        ]
    return c


def words(key, shape, bits=32, stream=0):
    """Random words of 32 or 64 bits, as Python's integers."""
    n = math.prod(shape)
    small = [w for b in range(n) for w in philox(key, b, stream)]
    if bits == 64:
        pairs = zip(small[::2], small[1::2], strict=True)
        small = [hi << 32 | lo for hi, lo in pairs]
    return np.array(small[:n], object).reshape(shape)


def shrunk(w, bits):
    """Words without their last bits, as floats."""
    return np.asarray(w // (1 << bits), "float64")


def open_unit(key, shape, wide, stream=0):
    """In (0, 1): the middles of 2^52 equal parts, or of 2^32."""
    if wide:
        return (shrunk(words(key, shape, 64, stream), 12) + 0.5) * 2.0**-52
    return (shrunk(words(key, shape, 32, stream), 0) + 0.5) * 2.0**-32


def uniform(key, shape=(), low=0.0, high=1.0, dtype="float32"):
    d = np_dtype(dtype)
    low, high = d.type(low), d.type(high)
    wide = dtype == "float64"
    if wide:
        unit = shrunk(words(key, shape, 64), 11) * 2.0**-53
    else:
        unit = shrunk(words(key, shape, 32), 8) * 2.0**-24
    y = (float(low) + unit * (float(high) - float(low))).astype(d)
    return np.where(y < high, y, np.nextafter(high, low))


def normal(key, shape=(), mean=0.0, std=1.0, dtype="float32"):
    wide = dtype == "float64"
    far = open_unit(key, shape, wide)
    angle = open_unit(key, shape, wide, stream=1)
    z = np.sqrt(-2 * np.log(far)) * np.cos(2 * math.pi * angle)
    return mean + std * z


def truncated_normal(key, lower, upper, shape=(), dtype="float32"):
    """By bisection, in the half of the distribution where its digits are."""

    def below(z):
        return math.erfc(-z / math.sqrt(2)) / 2

    turned = lower + upper > 0
    low, high = (-upper, -lower) if turned else (lower, upper)

    def quantile(u):
        p = below(low) + u * (below(high) - below(low))
        left, right = max(low, -40.0), min(high, 40.0)
        for _ in range(200):
            middle = (left + right) / 2
            left, right = (
                (middle, right) if below(middle) < p else (left, middle)
            )
        return -left if turned else left

    u = open_unit(key, shape, wide=True)
    return np.vectorize(quantile, otypes=["float64"])(u)


def bernoulli(key, p=0.5, shape=None):
    shape = np.shape(p) if shape is None else shape
    return shrunk(words(key, shape), 0) < np.asarray(p) * 2.0**32


def randint(key, shape, low, high, dtype="int64"):
    w = words(key, shape, 64) * (high - low) // (1 << 64)
    return np.asarray(w + low, dtype)


def categorical(key, logits, axis=-1, shape=None):
    axis %= logits.ndim
    full = list(logits.shape)
    if shape is not None:
        axis += len(shape) + 1 - logits.ndim
        full = [*shape[:axis], logits.shape[axis - len(shape) - 1]]
        full += shape[axis:]
    noise = -np.log(-np.log(open_unit(key, tuple(full), wide=True)))
    return np.argmax(logits + noise, axis)


def permutation(key, x, axis=0):
    n = x if isinstance(x, int) else x.shape[axis]
    order = np.argsort(words(key, (n,), 64), stable=True)
    return order if isinstance(x, int) else np.take(x, order, axis)
