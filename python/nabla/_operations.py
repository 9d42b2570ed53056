"""Operations of one's own: classes that give a kernel and rules, and kernels in
C and CUDA C source."""

from __future__ import annotations

import os
from operator import index

from . import _devices, _nabla
from ._devices import TensorType, default_device, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ._nabla import Tensor

__all__ = [
    "BinaryOperation",
    "CreationOperation",
    "Operation",
    "ReduceOperation",
    "UnaryOperation",
    "call_custom_kernel",
]

_mul = _nabla.ops["mul"]


class Operation:
    """An operation from a kernel, a signature and derivative rules.

    The kernel is written in functions of nabla, or calls C by
    call_custom_kernel; the rules too.  One rule suffices: the other mode is its
    transpose.

    >>> class Product(nb.Operation):
    ...     name = "product"
    ...     signature = "... m k, ... k n -> ... m n"
    ...     def kernel(self, x, y):
    ...         return x @ y
    ...     def vjp_rule(self, primals, cotangents, outputs):
    ...         (x, y), (ct,) = primals, cotangents
    ...         return ct @ y.mT, x.mT @ ct
    >>> x = nb.ones((1, 2))
    >>> nb.grad(lambda x: nb.sum(Product()(x, x.mT)))(x)
    Tensor([[2. 2.]] : f32[1,2])
    """

    name: str
    signature: str | None = None
    linear: Sequence[int] | str = ()
    _cost_multiplier: float = 1.0

    vjp_rule: Callable[..., Any]
    jvp_rule: Callable[..., Any]

    def kernel(self, *values: Any, **kwargs: Any) -> Any:
        """The work, on tensors as one device sees them: hidden axes are
        ordinary leading ones where the signature has "..."; without a
        signature they stay hidden."""
        raise NotImplementedError(f"{type(self).__name__}: kernel")

    def sharding_rule(
        self, input_shapes: Any, output_shapes: Any, **kwargs: Any
    ) -> Any:
        """None: the signature says how it is split."""
        return None

    def compute_cost(
        self,
        input_shapes: Sequence[Sequence[int]],
        output_shapes: Sequence[Sequence[int]],
    ) -> float:
        """How many steps of arithmetic it takes."""
        return self._cost_multiplier * _points(
            self.signature, input_shapes, output_shapes
        )

    def memory_cost(
        self,
        input_shapes: Sequence[Sequence[int]],
        output_shapes: Sequence[Sequence[int]],
        dtype_bytes: int = 4,
    ) -> int:
        """How many bytes its results take."""
        return dtype_bytes * sum(map(_size, output_shapes))

    def __call__(self, *tensors: Any, **kwargs: Any) -> Any:
        return self._apply(list(tensors), kwargs, self.signature)

    def _apply(
        self,
        tensors: list[Any],
        kwargs: dict[str, Any],
        signature: str | None,
        together: bool = False,
    ) -> Any:
        call = _Call(self, kwargs)
        found = _nabla.operation(
            *(_name(self), signature, together, _mask(self.linear)),
            (call.kernel, *call.rules()),
            tensors,
        )
        return found if call.many else found[0]


class UnaryOperation(Operation):
    """An operation on every element of one tensor; instead of rules it may give
    _derivative(primal, output).

    >>> class Cube(nb.UnaryOperation):
    ...     name = "cube"
    ...     def kernel(self, x):
    ...         return x * x * x
    ...     def _derivative(self, primal, output):
    ...         return 3 * primal * primal
    >>> nb.grad(Cube())(nb.constant(2.0))
    Tensor(12. : f32[])
    """

    signature = "... -> ..."
    _derivative: Callable[[Any, Any], Any]

    def __call__(self, x: Any, **kwargs: Any) -> Any:
        return self._apply([x], kwargs, self.signature)


class BinaryOperation(Operation):
    """An operation on the elements of two tensors, which are promoted and
    broadcast first.

    >>> class Hypotenuse(nb.BinaryOperation):
    ...     name = "hypotenuse"
    ...     def kernel(self, x, y):
    ...         return nb.sqrt(x * x + y * y)
    >>> Hypotenuse()(nb.constant([3.0, 5.0]), 4)
    Tensor([5. 6.4031] : f32[2])
    """

    signature = "..., ... -> ..."

    def __call__(self, x: Any, y: Any, **kwargs: Any) -> Any:
        together = self.signature == BinaryOperation.signature
        return self._apply([x, y], kwargs, self.signature, together)


class ReduceOperation(Operation):
    """An operation along axes that go away, or stay as ones.  The kernel and
    the rules get axis counted from the end, and keepdims.

    >>> class SumOfSquares(nb.ReduceOperation):
    ...     name = "sum_of_squares"
    ...     def kernel(self, x, axis, keepdims):
    ...         return nb.sum(x * x, axis, keepdims)
    >>> SumOfSquares()(nb.ones((2, 3)), axis=0)
    Tensor([2. 2. 2.] : f32[3])
    """

    def __call__(
        self,
        x: Any,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        **kwargs: Any,
    ) -> Any:
        x = _nabla.ensure_tensor(x)
        axes = _axes(_name(self), axis, x.ndim)
        own = {**kwargs, "axis": axes, "keepdims": bool(keepdims)}
        if axis is not None and hasattr(axis, "__index__"):
            own["axis"] = axes[0]
        return self._apply([x], own, _reduction(x.ndim, axes, keepdims))


class CreationOperation(Operation):
    """An operation without tensor inputs: its arguments go to the kernel.

    >>> class Ramp(nb.CreationOperation):
    ...     name = "ramp"
    ...     def kernel(self, n):
    ...         return nb.arange(n) * 0.5
    >>> Ramp()(3)
    Tensor([0.  0.5 1. ] : f32[3])
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = _Call(self, kwargs, args)
        found = _nabla.operation(
            *(_name(self), None, False, 0), (call.kernel, None, None), []
        )
        return found if call.many else found[0]


class _Call:
    """One call: the functions of an operation, as the engine calls them."""

    def __init__(
        self, op: Operation, kwargs: dict[str, Any], args: Any = ()
    ) -> None:
        self._op, self._kwargs, self._args = op, kwargs, args
        self.many = False

    def kernel(self, values: list[Tensor]) -> list[Tensor]:
        out = self._op.kernel(*self._args, *values, **self._kwargs)
        self.many = isinstance(out, (list, tuple))
        return [*map(_nabla.ensure_tensor, out if self.many else [out])]

    def rules(self) -> tuple[Any, Any]:
        """vjp and jvp, None where there is none."""
        op = self._op
        if hasattr(op, "vjp_rule") or hasattr(op, "jvp_rule"):
            return (
                self._vjp if hasattr(op, "vjp_rule") else None,
                self._jvp if hasattr(op, "jvp_rule") else None,
            )
        slope = hasattr(op, "_derivative")
        return (self._slope, self._slope) if slope else (None, None)

    def _vjp(self, x: list[Any], ct: list[Any], y: list[Any]) -> list[Any]:
        return self._checked("VJP", self._op.vjp_rule, x, ct, y, len(x))

    def _jvp(self, x: list[Any], u: list[Any], y: list[Any]) -> list[Any]:
        return self._checked("JVP", self._op.jvp_rule, x, u, y, len(y))

    def _slope(self, x: list[Any], u: list[Any], y: list[Any]) -> list[Any]:
        slope: Any = getattr(self._op, "_derivative")  # noqa: B009
        try:
            return [_mul(u[0], slope(x[0], y[0]))]
        except Exception as error:
            raise self._failed("VJP", error) from error

    def _checked(self, mode: str, rule: Any, *given: Any) -> list[Any]:
        *lists, n = given
        try:
            out = rule(*lists, **self._kwargs)
            found = [*out] if isinstance(out, (list, tuple)) else [out]
            if len(found) != n:
                raise ValueError(f"it returns {len(found)} entries, not {n}")
            return [x if x is None else _nabla.ensure_tensor(x) for x in found]
        except Exception as error:
            raise self._failed(mode, error) from error

    def _failed(self, mode: str, error: Exception) -> RuntimeError:
        name = self._op.name
        return RuntimeError(
            f"{mode} rule failed for operation '{name}': {error}"
        )


def _name(op: Operation) -> str:
    name = getattr(op, "name", None)
    if not isinstance(name, str) or not name:
        raise TypeError(
            f"{type(op).__name__}: an operation needs a name, a str"
        )
    return name


def _mask(linear: Sequence[int] | str) -> int:
    """Inputs as bits; -1: all together."""
    if isinstance(linear, str):
        if linear != "all":
            raise ValueError(f'linear is positions or "all", not {linear!r}')
        return -1
    return sum(1 << i for i in {*map(index, linear)})


def _size(shape: Sequence[int]) -> int:
    n = 1
    for size in shape:
        n *= int(size)
    return n


def _dims(term: str) -> list[str]:
    """What an operand's named dims are called: "... (a b) c"."""
    dims: list[str] = []
    for word in term.split():
        if dims and dims[-1][0] == "(" and dims[-1][-1] != ")":
            dims[-1] += word
        elif word != "...":
            dims.append(word)
    return dims


def _points(signature: str | None, inputs: Any, outputs: Any) -> int:
    """Points of a signature: the product of its axes' sizes."""
    if signature is None:
        return max(map(_size, [*inputs, *outputs]), default=1)
    sizes: dict[object, int] = {}
    terms = signature.split(";")[0].replace("->", ",").split(",")
    for at, (term, shape) in enumerate(
        zip(terms, [*inputs, *outputs], strict=True)
    ):
        named = _dims(term)
        lead = len(shape) - len(named)
        for d, size in enumerate(shape):
            name: object = named[d - lead] if d >= lead else d - lead
            own = name in ("1", "?")
            sizes[(at, d) if own else name] = max(int(size), sizes.get(name, 1))
    return _size(list(sizes.values()))


def _axes(name: str, axis: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the end, in order."""
    if axis is None:
        return tuple(range(-rank, 0))
    given = [axis] if hasattr(axis, "__index__") else [*axis]
    axes = []
    for a in map(index, given):
        if not -rank <= a < rank:
            raise _nabla.AxisError(
                f"{name}: axis {a} is out of range for rank {rank}"
            )
        axes.append(a - rank if a >= 0 else a)
    if len({*axes}) != len(axes):
        raise ValueError(f"{name}: an axis is given twice in {axis}")
    return tuple(sorted(axes))


def _reduction(rank: int, axes: tuple[int, ...], keepdims: bool) -> str:
    """The signature of a reduction: rows are what stands before its axes."""
    first = min(axes, default=0)
    before = ["...", *(f"d{-d}" for d in range(first, 0))]
    after = ["..."]
    for d in range(first, 0):
        if d not in axes:
            after.append(f"d{-d}")
        elif keepdims:
            after.append("1")
    return f"{' '.join(before)} -> {' '.join(after)}"


# Kernels


def call_custom_kernel(
    func_name: str,
    kernel_path: Any,
    values: Any,
    out_types: Any,
    device: Any = None,
    **kwargs: Any,
) -> Any:
    """Calls a function of C or CUDA C source on tensors: results of the types
    given.

    kernel_path is a file or folder, or a list of them, of .c files, for values
    on the CPU, and .cu files, for values on a card: they are compiled by $CC
    (cc) and by NVRTC at first use and cached by content; see the header
    nabla/kernel.h for what such a file holds.  Keywords are its attributes,
    numbers or bools, in the order given.  Inside the kernel of an operation the
    rows are those of its signature; elsewhere each operand is one row.  device
    is where the values are, and without values where the results will be.

    >>> x = nb.ones(2)
    >>> nb.call_custom_kernel("no_such", "/no/such.c", x, x.type)
    Traceback (most recent call last):
    FileNotFoundError: no_such: no such file or folder: /no/such.c
    """
    if not isinstance(func_name, str):
        raise TypeError("call_custom_kernel: the name of a function is a str")
    one = isinstance(out_types, TensorType)
    types = [out_types] if one else [*out_types]
    for t in types:
        if not isinstance(t, TensorType):
            raise TypeError(
                f"{func_name}: a result type is a TensorType, not a "
                f"{type(t).__name__}"
            )
    given = [*values] if isinstance(values, (list, tuple)) else [values]
    arguments = (
        func_name,
        [*map(_path, kernel_path)]
        if isinstance(kernel_path, (list, tuple))
        else [_path(kernel_path)],
        given,
        [(t.shape, t.dtype) for t in types],
        [(n, _number(func_name, n, v)) for n, v in kwargs.items()],
    )
    if device is None:
        found = _nabla.kernel_call(*arguments)
    else:
        _check_place(func_name, given, number(device))
        with default_device(device):
            found = _nabla.kernel_call(*arguments)
    return found[0] if one else found


def _check_place(func: str, values: list[Any], device: int) -> None:
    for x in values:
        if (
            isinstance(x, _nabla.Tensor)
            and x.ndim
            and _nabla.device_of(x) != device
        ):
            wanted = _devices.at(device)
            raise ValueError(f"{func}: a value is on {x.device}, not {wanted}")


def _path(path: Any) -> str:
    return os.fsdecode(os.fspath(path))


def _number(func: str, name: str, x: Any) -> int | float:
    if not isinstance(x, _nabla.Tensor):
        if hasattr(x, "dtype") and getattr(x, "ndim", 1) == 0:
            x = x.item()
        if isinstance(x, (int, float)):
            return x
    raise TypeError(
        f"{func}: attribute {name} is a number or a bool, not a "
        f"{type(x).__name__}"
    )
