"""Element types: the enumeration DType and what can be asked of its members."""

from __future__ import annotations

import enum

from . import _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._nabla import Tensor

_SIZES = {code: size for _, code, size in _nabla.dtypes()}

# Types that NumPy itself does not have.
_FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


class DType(enum.Enum):
    """The type of the elements of a tensor; the value is the engine's code.

    >>> DType["float32"].itemsize
    4
    """

    bool = 1
    int8 = 2
    int16 = 3
    int32 = 4
    int64 = 5
    uint8 = 6
    uint16 = 7
    uint32 = 8
    uint64 = 9
    float16 = 10
    bfloat16 = 11
    float32 = 12
    float64 = 13

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _SIZES[self.value]

    def to_numpy(self) -> Any:
        """The dtype of NumPy; bfloat16 is that of ml_dtypes."""
        import numpy

        if self.name not in _FOREIGN:
            return numpy.dtype(self.name)
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(
                f"NumPy has no {self.name} without the package ml_dtypes: "
                "cast first"
            ) from None
        return numpy.dtype(getattr(ml_dtypes, self.name))

    @classmethod
    def from_numpy(cls, dtype: Any) -> DType:
        """The member for a dtype of NumPy, or one of its scalar types."""
        found = _nabla.as_dtype(dtype)
        if found is None:
            raise TypeError("not a dtype: None")
        return found

    def __repr__(self) -> str:
        return f"DType.{self.name}"

    __str__ = __repr__


_nabla.set_dtypes(list(DType))

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float", "bfloat"),
    "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "bfloat", "complex"),
}


def _dtype_of(x: Any) -> DType:
    found = x if isinstance(x, DType) else getattr(x, "dtype", x)
    return DType.from_numpy(found)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, "bool", "signed integer",
    "unsigned integer", "integral", "real floating", "complex floating",
    "numeric", or a tuple of these."""
    d = DType.from_numpy(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(d, one) for one in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return d.name.rstrip("0123456789") in _KINDS[kind]
    if isinstance(kind, str) and " " in kind:
        raise ValueError(f"isdtype: no kind of dtypes is called {kind!r}")
    return d is DType.from_numpy(kind)


# Bits of the fraction and the largest exponent.
_FLOATS = {
    "float16": (10, 15),
    "bfloat16": (7, 127),
    "float32": (23, 127),
    "float64": (52, 1023),
}


class finfo:  # noqa: N801
    """Limits of a floating dtype."""

    __slots__ = ("bits", "dtype", "eps", "max", "min", "smallest_normal")

    def __init__(self, type: DType | str | Tensor) -> None:
        d = _dtype_of(type)
        if d.name not in _FLOATS:
            raise TypeError(f"finfo: {d.name} is not a floating dtype")
        fraction, exponent = _FLOATS[d.name]
        self.dtype = d
        self.bits = 8 * d.itemsize
        self.eps = 2.0**-fraction
        self.max = (2 - self.eps) * 2.0**exponent
        self.min = -self.max
        self.smallest_normal = 2.0 ** (1 - exponent)

    def __repr__(self) -> str:
        return (
            f"finfo({self.dtype}, min={self.min}, max={self.max}, "
            f"eps={self.eps}, smallest_normal={self.smallest_normal})"
        )


class iinfo:  # noqa: N801
    """Limits of an integer dtype."""

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, type: DType | str | Tensor) -> None:
        d = _dtype_of(type)
        if not isdtype(d, "integral"):
            raise TypeError(f"iinfo: {d.name} is not an integer dtype")
        signed = d.name[0] == "i"
        self.dtype = d
        self.bits = 8 * d.itemsize
        self.max = 2 ** (self.bits - signed) - 1
        self.min = -self.max - 1 if signed else 0

    def __repr__(self) -> str:
        return f"iinfo({self.dtype}, min={self.min}, max={self.max})"
