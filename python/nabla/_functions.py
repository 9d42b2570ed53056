"""Functions whose arguments in Python have a form of their own: a device, any
number of tensors, pairs, None.  The work is the engine's."""

from __future__ import annotations

from collections import namedtuple
from operator import index

from . import _devices, _interop, _nabla
from ._dtypes import isdtype

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias, TypeGuard

    from ._devices import Device
    from ._dtypes import DType
    from ._nabla import ArrayLike, Tensor

    Shape: TypeAlias = int | Sequence[int]
    DTypeLike: TypeAlias = DType | str | None
    DeviceLike: TypeAlias = Device | str | None
    Axes: TypeAlias = int | Sequence[int] | None

_op = _nabla.ops


def _made(
    x: Tensor, requires_grad: bool, is_traced: bool = False
) -> Tensor:
    """A new tensor with what its maker asked for besides the data.  One that
    requires grad is a leaf."""
    if requires_grad:
        x = x.detach()
        x.requires_grad = True
    if is_traced:
        x.is_traced = True
    return x


def _there(x: Tensor, device: DeviceLike) -> Tensor:
    """x on a device; None: where it is."""
    if device is None:
        return x
    return _nabla.to_device(x, _devices.number(device))


def _fitting(value: ArrayLike, dtype: DTypeLike) -> ArrayLike:
    """The value of a constant: an int must fit its dtype."""
    if dtype is None or not isinstance(value, int):
        return value
    return _nabla.constant(value, dtype)


def is_tensor(obj: object) -> TypeGuard[Tensor]:
    """Whether obj is a Tensor.

    >>> nb.is_tensor(1.0)
    False
    """
    return isinstance(obj, _nabla.Tensor)


# Creation.


def constant(
    value: Any,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor from a number, nested lists, an array or a tensor.

    >>> nb.constant([[1, 2], [3, 4]])
    Tensor(
      [[1 2]
       [3 4]] : i64[2,2]
    )
    """
    return _nabla.Tensor(
        value, dtype=dtype, device=device, requires_grad=requires_grad
    )


def asarray(
    obj: Any,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """obj as a tensor; with copy=False, sharing its memory or failing.

    >>> nb.asarray((1.0, 2.0))
    Tensor([1. 2.] : f32[2])
    """
    if copy is False:
        return _made(_shared(obj, dtype, device), requires_grad)
    if isinstance(obj, _nabla.Tensor) and copy:
        obj = obj.clone()
    return constant(
        obj, dtype=dtype, device=device, requires_grad=requires_grad
    )


def _shared(obj: Any, dtype: DTypeLike, device: DeviceLike) -> Tensor:
    if isinstance(obj, _nabla.Tensor):
        x = obj.realize()
    elif hasattr(obj, "__dlpack__"):
        x = from_dlpack(obj, copy=False)
    elif hasattr(obj, "__cuda_array_interface__"):
        x = _nabla.import_card_array(obj, False)
    else:
        raise ValueError(
            f"asarray: a copy is needed of a {type(obj).__name__}, "
            "but copy=False"
        )
    wanted = _nabla.as_dtype(dtype) or x.dtype
    if wanted is not x.dtype:
        raise ValueError(
            f"asarray: a copy is needed from {x.dtype.name} to {wanted.name}, "
            "but copy=False"
        )
    if device is not None and _devices.number(device) != _nabla.device_of(x):
        raise ValueError(
            f"asarray: a copy is needed from {x.device} to "
            f"{_devices.resolve(device)}, but copy=False"
        )
    return x


def full(
    shape: Shape,
    value: ArrayLike,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    is_traced: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one value.

    >>> nb.full((2,), 7)
    Tensor([7 7] : i64[2])
    """
    value = _fitting(value, dtype)
    x = _devices.made(device, _op["full"], shape, value, dtype=dtype)
    return _made(x, requires_grad, is_traced)


def zeros(
    shape: Shape,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    is_traced: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros.

    >>> nb.zeros(2)
    Tensor([0. 0.] : f32[2])
    """
    x = _devices.made(device, _op["zeros"], shape, dtype=dtype)
    return _made(x, requires_grad, is_traced)


def ones(
    shape: Shape,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    is_traced: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones.

    >>> nb.ones(2)
    Tensor([1. 1.] : f32[2])
    """
    x = _devices.made(device, _op["ones"], shape, dtype=dtype)
    return _made(x, requires_grad, is_traced)


def empty(
    shape: Shape,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    is_traced: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros, for programs that will fill it.

    >>> nb.empty(2)
    Tensor([0. 0.] : f32[2])
    """
    x = _devices.made(device, _op["empty"], shape, dtype=dtype)
    return _made(x, requires_grad, is_traced)


def zeros_like(
    x: ArrayLike,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros in the shape and dtype of x.

    >>> nb.zeros_like(nb.constant([1, 2]))
    Tensor([0 0] : i64[2])
    """
    x = _there(_nabla.ensure_tensor(x), device)  # of which none is read
    return _made(_op["zeros_like"](x, dtype=dtype), requires_grad)


def ones_like(
    x: ArrayLike,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones in the shape and dtype of x.

    >>> nb.ones_like(nb.constant([1, 2]))
    Tensor([1 1] : i64[2])
    """
    x = _there(_nabla.ensure_tensor(x), device)  # of which none is read
    return _made(_op["ones_like"](x, dtype=dtype), requires_grad)


def empty_like(
    x: ArrayLike,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros in the shape and dtype of x, for programs that will fill it.

    >>> nb.empty_like(nb.constant([1, 2]))
    Tensor([0 0] : i64[2])
    """
    x = _there(_nabla.ensure_tensor(x), device)  # of which none is read
    return _made(_op["empty_like"](x, dtype=dtype), requires_grad)


def full_like(
    x: ArrayLike,
    value: ArrayLike,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """One value in the shape and dtype of x.

    >>> nb.full_like(nb.constant([1, 2]), 3)
    Tensor([3 3] : i64[2])
    """
    x = _there(_nabla.ensure_tensor(x), device)
    value = _fitting(value, dtype or x.dtype)
    y = _op["full_like"](x, value, dtype=dtype)
    return _made(y, requires_grad)


def arange(
    start: Any = 0,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """From start to before stop, step apart; one argument is stop.

    >>> nb.arange(1, 4)
    Tensor([1 2 3] : i64[3])
    """
    if stop is None:
        start, stop = 0, start
    numbers: tuple[Any, ...] = (start, stop, step)
    try:
        op, numbers = _op["arange_int"], tuple(map(index, numbers))
    except TypeError:
        op, numbers = _op["arange_float"], tuple(map(float, numbers))
    x = _devices.made(device, op, *numbers, dtype=dtype)
    return _made(x, requires_grad)


def linspace(
    start: float,
    stop: float,
    num: int,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    endpoint: bool = True,
    requires_grad: bool = False,
) -> Tensor:
    """num numbers evenly apart from start to stop.

    >>> nb.linspace(0, 1, 3)
    Tensor([0.  0.5 1. ] : f32[3])
    """
    x = _devices.made(
        *(device, _op["linspace"], start, stop, num),
        dtype=dtype,
        endpoint=endpoint,
    )
    return _made(x, requires_grad)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    *,
    k: int = 0,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones on diagonal k, zeros elsewhere.

    >>> nb.eye(1, 2)
    Tensor([[1. 0.]] : f32[1,2])
    """
    x = _devices.made(device, _op["eye"], n_rows, n_cols, k=k, dtype=dtype)
    return _made(x, requires_grad)


def hann_window(
    window_length: int,
    *,
    periodic: bool = True,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """The Hann window, one period of it or symmetric.

    >>> nb.hann_window(4)
    Tensor([0.  0.5 1.  0.5] : f32[4])
    """
    x = _devices.made(
        *(device, _op["hann_window"], window_length),
        periodic=periodic,
        dtype=dtype,
    )
    return _made(x, requires_grad)


def from_dlpack(
    array: Any,
    *,
    device: DeviceLike = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor over the memory of any producer of DLPack; a copy where that
    is read-only or not contiguous.

    >>> nb.from_dlpack(nb.ones(2))
    Tensor([1. 1.] : f32[2])
    """
    x = _interop.from_dlpack(array, device=device, copy=copy)
    return _made(x, requires_grad)


def meshgrid(*arrays: ArrayLike, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid, from vectors.

    >>> nb.meshgrid(nb.arange(2), nb.arange(3))[0].shape
    (3, 2)
    """
    grid: list[Tensor] = _op["meshgrid"](arrays, indexing=indexing)
    return grid


def broadcast_arrays(*arrays: ArrayLike) -> list[Tensor]:
    """All of them in the shape that they broadcast to."""
    same: list[Tensor] = _op["broadcast_arrays"](arrays)
    return same


def einsum(subscripts: str, *operands: ArrayLike) -> Tensor:
    """Products summed over the letters that the result does not have.

    >>> nb.einsum("ij,j->i", nb.ones((2, 3)), nb.ones(3))
    Tensor([3. 3.] : f32[2])
    """
    y: Tensor = _op["einsum"](operands, subscripts)
    return y


# Other forms of ops.


def _ints(axes: int | Sequence[int]) -> Sequence[int]:
    return [axes] if isinstance(axes, int) else axes


def tensordot(x: ArrayLike, y: ArrayLike, axes: Any = 2) -> Tensor:
    """Products summed over the last axes of x and the first of y, or over
    pairs of axes: (axes of x, axes of y).

    >>> nb.tensordot(nb.ones((2, 3)), nb.ones((2, 3)), axes=(0, 0)).shape
    (3, 3)
    """
    if not isinstance(axes, int):
        of_x, of_y = map(_ints, axes)
        if len(of_x) != len(of_y):
            raise ValueError(
                f"tensordot: {len(of_x)} axes of x, {len(of_y)} of y"
            )
        axes = [*of_x, *of_y]
    z: Tensor = _op["tensordot"](x, y, axes)
    return z


def clip(
    x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None
) -> Tensor:
    """x held between two bounds; None is no bound.

    >>> nb.clip(nb.arange(5), 1, 3)
    Tensor([1 1 2 3 3] : i64[5])
    """
    if min is None and max is None:
        y: Tensor = _op["positive"](x)
    elif max is None:
        y = _op["maximum"](x, min)
    elif min is None:
        y = _op["minimum"](x, max)
    else:
        y = _op["clip"](x, min, max)
    return y


def minmax(x: ArrayLike) -> dict[str, Tensor]:
    """The least and the greatest element, as a dict.

    >>> nb.minmax(nb.arange(5))["max"]
    Tensor(4 : i64[])
    """
    least, greatest = _op["minmax"](x)
    return {"min": least, "max": greatest}


def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> Tensor:
    """The norm of vectors, along one axis, or of matrices, along two; by
    default, and for "fro", the root of the sum of squares.

    >>> nb.norm(nb.constant([3.0, 4.0]))
    Tensor(5. : f32[])
    """
    y: Tensor = _op["norm"](x, None if ord == "fro" else ord, axis, keepdims)
    return y


def pad(
    x: ArrayLike,
    paddings: Any = None,
    mode: str = "constant",
    value: float = 0.0,
    **kwargs: Any,
) -> Tensor:
    """x with a value around it: one (before, after) for each axis.

    >>> nb.pad(nb.ones(2), [(1, 0)])
    Tensor([0. 1. 1.] : f32[3])
    """
    if paddings is None:
        paddings = kwargs.pop("pad_width", None)
    if kwargs:
        raise TypeError(f"pad got unexpected arguments {sorted(kwargs)}")
    if paddings is None:
        raise ValueError("pad: paddings, a (before, after) for each axis")
    flat = [size for pair in paddings for size in _pair(pair)]
    x = _nabla.ensure_tensor(x)
    if isdtype(x.dtype, "integral") and (whole := _whole(value)) is not None:
        return _padded_exactly(x, flat, mode, whole)
    y: Tensor = _op["pad"](x, flat, mode, value)
    return y


def _whole(value: Any) -> int | None:
    """The value as an int, if it is one."""
    try:
        return index(value)
    except TypeError:
        return None


def _padded_exactly(
    x: Tensor, flat: list[int], mode: str, value: int
) -> Tensor:
    """pad's own value is a float, which does not hold every int: one that
    might not come out as it is is put around x by a choice."""
    fill = _nabla.constant(value, x.dtype)
    if abs(value) < 2**53:
        y: Tensor = _op["pad"](x, flat, mode, value)
        return y
    inside = _op["pad"](_op["ones_like"](x, dtype="bool"), flat, mode)
    y = _op["where"](inside, _op["pad"](x, flat, mode), fill)
    return y


def _pair(pair: Any) -> tuple[int, int]:
    try:
        before, after = pair
    except TypeError:
        raise TypeError("pad: each padding is a pair (before, after)") from None
    return before, after


def rebind(x: ArrayLike, shape: Shape, **kwargs: Any) -> Tensor:
    """x, which must have this shape."""
    y: Tensor = _op["rebind"](x, shape)
    return y


def slice_update(
    x: ArrayLike, update: ArrayLike, start: Any, size: Any
) -> Tensor:
    """x with `update`, broadcast to `size`, in the block at `start`.

    >>> nb.slice_update(nb.zeros(4), 1.0, (1,), (2,))
    Tensor([0. 1. 1. 0.] : f32[4])
    """
    y: Tensor = _op["slice_update"](x, update, start, size)
    return y._set_buffer_ops(False)


def slice_update_inplace(
    x: ArrayLike, update: ArrayLike, start: Any, size: Any
) -> Tensor:
    """slice_update that asks for x's memory to be written."""
    return slice_update(x, update, start, size)._set_buffer_ops(True)


def cast(x: ArrayLike, dtype: DTypeLike = None) -> Tensor:
    """x in another dtype; None: unchanged."""
    y: Tensor = _op["cast"](x, dtype)
    return y


def astype(
    x: Tensor,
    dtype: DType | str,
    *,
    copy: bool = True,
    device: DeviceLike = None,
) -> Tensor:
    """x in another dtype."""
    y: Tensor = _op["cast"](x, dtype)
    return _there(y, device)


def matrix_transpose(x: ArrayLike) -> Tensor:
    """The last two axes in each other's place."""
    y: Tensor = _op["swap_axes"](x, -2, -1)
    return y


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, as a tuple."""
    return tuple(_op["unbind"](x, axis))


def nonzero(x: ArrayLike) -> tuple[Tensor, ...]:
    """Coordinates of the elements that are not zero, a tensor an axis.

    >>> nb.nonzero(nb.constant([0, 5, 7]))
    (Tensor([1 2] : i64[2]),)
    """
    return tuple(_op["nonzero"](x))


def concat(arrays: Sequence[ArrayLike], axis: int | None = 0) -> Tensor:
    """Tensors one after the other along an axis; None: as vectors."""
    if axis is None:
        arrays = [_op["flatten"](x) for x in arrays]
    y: Tensor = _op["concatenate"](list(arrays), 0 if axis is None else axis)
    return y


def diff(
    x: ArrayLike,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tensor:
    """Differences of neighbours along an axis, n times over.

    >>> nb.diff(nb.constant([1, 4, 9]))
    Tensor([3 5] : i64[2])
    """
    parts = [part for part in (prepend, x, append) if part is not None]
    whole = _op["concatenate"](parts, axis) if len(parts) > 1 else x
    y: Tensor = _op["diff"](whole, axis, n)
    return y


def _cumulate(
    op: str,
    x: ArrayLike,
    axis: int | None,
    dtype: DTypeLike,
    include_initial: bool,
) -> Tensor:
    y: Tensor = _op["cast"](x, dtype)
    if axis is None and y.ndim > 1:
        raise ValueError(f"{op}: an axis is needed for rank {y.ndim}")
    axis = -1 if axis is None else axis
    if include_initial:
        around = [(0, 0)] * y.ndim
        around[axis] = (0, 1)
        y = pad(y, around)
    return cast(_op[op](y, axis, exclusive=include_initial), dtype)


def cumulative_sum(
    x: ArrayLike,
    *,
    axis: int | None = None,
    dtype: DTypeLike = None,
    include_initial: bool = False,
) -> Tensor:
    """Sums of the elements up to each, with a 0 before them if asked for."""
    return _cumulate("cumsum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: ArrayLike,
    *,
    axis: int | None = None,
    dtype: DTypeLike = None,
    include_initial: bool = False,
) -> Tensor:
    """Products of the elements up to each, with a 1 before them if asked
    for."""
    return _cumulate("cumprod", x, axis, dtype, include_initial)


# Results with names.

UniqueAll = namedtuple(
    "UniqueAll", ["values", "indices", "inverse_indices", "counts"]
)
UniqueCounts = namedtuple("UniqueCounts", ["values", "counts"])
UniqueInverse = namedtuple("UniqueInverse", ["values", "inverse_indices"])


def unique_all(x: ArrayLike) -> UniqueAll:
    """Values, first indices, inverse and counts of the values in x."""
    return UniqueAll(*_op["unique_all"](x))


def unique_counts(x: ArrayLike) -> UniqueCounts:
    """The values in x, each once, and how often they occur."""
    return UniqueCounts(*_op["unique_counts"](x))


def unique_inverse(x: ArrayLike) -> UniqueInverse:
    """The values in x, each once, and which of them each element is."""
    return UniqueInverse(*_op["unique_inverse"](x))


# Devices.


def to_device(
    x: Tensor, device: DeviceLike = None, *, sharding: Any = None
) -> Tensor:
    """x on another device, or laid out over a mesh as a ShardingSpec says; x
    itself if nothing is asked for."""
    if not isinstance(x, _nabla.Tensor):
        raise TypeError(f"to_device: a Tensor, not {type(x).__name__}")
    if device is not None and sharding is not None:
        raise ValueError("to_device: a device or a sharding, not both")
    if sharding is not None:
        return _nabla.reshard(x, sharding)
    return _there(x, device)


def cpu(x: Tensor) -> Tensor:
    """x on the CPU."""
    return to_device(x, _devices.CPU())


def gpu(x: Tensor) -> Tensor:
    """x on the first accelerator."""
    return to_device(x, _devices.Accelerator())


def accelerator(x: Tensor, device_id: int = 0) -> Tensor:
    """x on an accelerator by its number."""
    return to_device(x, _devices.Accelerator(device_id))


# Trees of tensors.


def traced(tree: Any) -> Any:
    """Marks every tensor of a tree as traced; returns the tree."""
    for x in _nabla.tensor_leaves(tree):
        x.is_traced = True
    return tree


def untraced(tree: Any) -> Any:
    """Takes the mark away again; returns the tree."""
    for x in _nabla.tensor_leaves(tree):
        x.is_traced = False
    return tree
