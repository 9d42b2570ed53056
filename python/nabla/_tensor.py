"""Methods and properties of Tensor that Python adds to the type of the
extension: forms of arguments that differ from the functions', and what only
Python programs see."""

from __future__ import annotations

from . import _devices, _functions, _nabla, _placement, random
from ._devices import Accelerator, Device, TensorType
from ._nabla import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

    from ._dtypes import DType
    from ._functions import Axes, DeviceLike, DTypeLike, Shape
    from ._nabla import ArrayLike

_op = _nabla.ops


class At:
    """x.at: places of a tensor, chosen by x.at[key]."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __getitem__(self, key: Any) -> Place:
        return Place(self._x, key)


class Place:
    """x.at[key]: what x would be with other values there.

    >>> nb.zeros(3).at[1].set(5)
    Tensor([0. 5. 0.] : f32[3])
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x: Tensor, key: Any) -> None:
        self._x, self._key = x, key

    def get(self) -> Tensor:
        return self._x[self._key]

    def set(self, v: Any) -> Tensor:
        return _nabla._place(self._x, self._key, v, "set")

    def add(self, v: Any) -> Tensor:
        return _nabla._place(self._x, self._key, v, "add")

    def mul(self, v: Any) -> Tensor:
        return _nabla._place(self._x, self._key, v, "mul")

    def min(self, v: Any) -> Tensor:
        return _nabla._place(self._x, self._key, v, "min")

    def max(self, v: Any) -> Tensor:
        return _nabla._place(self._x, self._key, v, "max")


def _one(args: tuple[Any, ...]) -> Any:
    """f(2, 3) and f((2, 3)) mean the same."""
    if len(args) == 1 and hasattr(args[0], "__iter__"):
        return args[0]
    return args


def iterate(x: Tensor) -> Iterator[Tensor]:
    if x.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return (x[i] for i in range(x.shape[0]))


def array_namespace(x: Tensor, *, api_version: str | None = None) -> ModuleType:
    import nabla

    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"array API version {api_version} is not known")
    return nabla


# Looks.


def transposed(x: Tensor) -> Tensor:
    """The last two axes swapped; x itself if it has fewer."""
    return x if x.ndim < 2 else _functions.matrix_transpose(x)


def matrix_transposed(x: Tensor) -> Tensor:
    """The last two axes swapped."""
    if x.ndim < 2:
        raise ValueError(f"mT: rank {x.ndim}, at least 2 is needed")
    return _functions.matrix_transpose(x)


def tensor_type(x: Tensor) -> TensorType:
    """Shape, dtype and device."""
    return TensorType(x.shape, x.dtype, x.device)


def device(x: Tensor) -> Device:
    """Where the data is."""
    return _devices.at(_nabla.device_of(x))


def size(x: Tensor, dim: int | None = None) -> Any:
    """The shape, or the size of one axis."""
    if dim is None:
        return x.shape
    if not -x.ndim <= dim < x.ndim:
        raise _nabla.AxisError(
            f"size: axis {dim} is out of range for rank {x.ndim}"
        )
    return x.shape[dim]


def dim(x: Tensor) -> int:
    """The number of axes."""
    return x.ndim


# Forms of ops.


def argmax(
    x: Tensor, axis: int | None = None, keepdims: bool = False
) -> Tensor:
    """Where the greatest element is; None: in the flattened tensor."""
    y: Tensor = _op["argmax"](x, axis, keepdims)
    return y


def argmin(
    x: Tensor, axis: int | None = None, keepdims: bool = False
) -> Tensor:
    """Where the least element is; None: in the flattened tensor."""
    y: Tensor = _op["argmin"](x, axis, keepdims)
    return y


def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The elements in another shape; one size may be -1."""
    y: Tensor = _op["reshape"](x, _one(shape))
    return y


def expand(x: Tensor, *shape: Any) -> Tensor:
    """x repeated to a shape that it broadcasts to."""
    y: Tensor = _op["broadcast_to"](x, _one(shape))
    return y


def permute(x: Tensor, *order: Any) -> Tensor:
    """The axes in another order."""
    y: Tensor = _op["permute"](x, _one(order))
    return y


def squeeze(x: Tensor, axis: Axes = None) -> Tensor:
    """Without these axes of size one; None: without all of them."""
    y: Tensor = _op["squeeze"](x, axis)
    return y


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """x in the dtype of another tensor."""
    return _functions.cast(x, other.dtype)


def gather(
    x: Tensor, indices: ArrayLike | None = None, axis: int = 0
) -> Tensor:
    """x whole on every device; with indices: the slices they name."""
    if indices is None:
        return x._gathered()
    y: Tensor = _op["gather"](x, indices, axis)
    return y


# Flags, devices, values.


def requires_grad_(x: Tensor, value: bool = True) -> Tensor:
    """Sets requires_grad; returns the tensor."""
    x.requires_grad = value
    return x


def trace(x: Tensor) -> Tensor:
    """Marks the tensor as traced; returns it."""
    x.is_traced = True
    return x


def cuda(x: Tensor, device: int = 0) -> Tensor:
    """The tensor on an accelerator."""
    return _functions.to_device(x, Accelerator(device))


def to(x: Tensor, target: DType | Device | str) -> Tensor:
    """The tensor in a dtype, or on a device.

    >>> nb.ones(2).to(nb.int32)
    Tensor([1 1] : i32[2])
    """
    if isinstance(target, Device):
        return _functions.to_device(x, target)
    if isinstance(target, str) and target.partition(":")[0] in DEVICES:
        return _functions.to_device(x, target)
    return _functions.cast(x, target)


DEVICES = ("cpu", "gpu", "cuda")


def to_device(x: Tensor, device: DeviceLike, *, stream: Any = None) -> Tensor:
    """The tensor on another device."""
    return _functions.to_device(x, device)


def new_zeros(
    x: Tensor,
    shape: Shape,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """Zeros in the dtype and on the device of x."""
    return _functions.zeros(
        shape, dtype=dtype or x.dtype, device=device or x.device
    )


def new_ones(
    x: Tensor,
    shape: Shape,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """Ones in the dtype and on the device of x."""
    return _functions.ones(
        shape, dtype=dtype or x.dtype, device=device or x.device
    )


def new_full(
    x: Tensor,
    shape: Shape,
    fill_value: ArrayLike,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """One value in the dtype and on the device of x."""
    return _functions.full(
        shape, fill_value, dtype=dtype or x.dtype, device=device or x.device
    )


def to_numpy_all(*tensors: Tensor) -> tuple[Any, ...]:
    """The values of all of them, computed in one go."""
    _nabla.realize_all(*tensors)
    return tuple(x.numpy() for x in tensors)


PROPERTIES = {
    "device": device,
    "type": tensor_type,
    "T": transposed,
    "mT": matrix_transposed,
    "at": At,
}

METHODS = {
    "__iter__": iterate,
    "__array_namespace__": array_namespace,
    "size": size,
    "dim": dim,
    "numel": Tensor.num_elements,
    "argmax": argmax,
    "argmin": argmin,
    "reshape": reshape,
    "view": reshape,
    "expand": expand,
    "permute": permute,
    "squeeze": squeeze,
    "type_as": type_as,
    "gather": gather,
    "requires_grad_": requires_grad_,
    "trace": trace,
    "cuda": cuda,
    "to": to,
    "to_device": to_device,
    "new_zeros": new_zeros,
    "new_ones": new_ones,
    "new_empty": new_zeros,
    "new_full": new_full,
}

STATIC: dict[str, Any] = {
    "constant": _functions.constant,
    "full": _functions.full,
    "zeros": _functions.zeros,
    "ones": _functions.ones,
    "arange": _functions.arange,
    "uniform": random.STATEFUL["uniform"],
    "gaussian": random.STATEFUL["gaussian"],
    "normal": random.STATEFUL["gaussian"],
    "from_dlpack": _functions.from_dlpack,
    "to_numpy_all": to_numpy_all,
}


def attach(functions: dict[str, Any]) -> None:
    """Puts on Tensor the functions that are also methods, then what is its
    own."""
    for name, function in functions.items():
        setattr(Tensor, name, function)
    for name, method in (METHODS | _placement.METHODS).items():
        setattr(Tensor, name, method)
    for name, get in (PROPERTIES | _placement.PROPERTIES).items():
        setattr(Tensor, name, property(get, doc=get.__doc__))
    for name, make in STATIC.items():
        setattr(Tensor, name, staticmethod(make))
    # NumPy leaves operators between an array and a tensor to the tensor.
    Tensor.__array_priority__ = 1000
