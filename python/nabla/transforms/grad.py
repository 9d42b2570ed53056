"""Gradients: of functions, and backward from values."""

from __future__ import annotations

from functools import wraps

from .. import _nabla
from ._record import (
    Recording,
    as_tensor_beside,
    as_tensors,
    finished,
    matched,
)
from .jvp import jvp
from .utils import resolve_argnums

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["backward", "grad", "hvp", "value_and_grad"]


def _transform(
    who: str,
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    create_graph: bool,
    realize: bool,
    has_aux: bool,
    answer: Callable[[Any, Any, Any], Any],
) -> Callable[..., Any]:
    """The function that calls fun and gives answer(value, aux, gradients)."""

    @wraps(fun)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        chosen = resolve_argnums(argnums, len(args), who)
        if not _nabla.tensor_leaves([args[i] for i in chosen]):
            raise ValueError(
                f"{who}: there is no tensor in argument "
                f"{' or '.join(map(str, chosen))}"
            )
        record = Recording(who, fun, args, kwargs, chosen, has_aux)
        if not isinstance(record.value, _nabla.Tensor):
            raise TypeError(
                f"{who}: the function returns one tensor, not a "
                f"{type(record.value).__name__}"
            )
        grads = record.pull(None)
        grads = finished(grads, create_graph, realize)
        single = not isinstance(argnums, (tuple, list))
        return answer(record.value, record.aux, grads[0] if single else grads)

    return transformed


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    create_graph: bool = True,
    realize: bool = True,
    *,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """The gradient of a function by some of its arguments, in their
    structure.  A result that is not a scalar is summed.

    >>> nb.grad(lambda x: x**3)(nb.constant(2.0))
    Tensor(12. : f32[])
    """
    return _transform(
        *("grad", fun, argnums, create_graph, realize, has_aux),
        lambda value, aux, grads: (grads, aux) if has_aux else grads,
    )


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    create_graph: bool = True,
    realize: bool = True,
    *,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """The value of a function, or (value, aux), and its gradient.

    >>> nb.value_and_grad(lambda x: x**3)(nb.constant(2.0))
    (Tensor(8. : f32[]), Tensor(12. : f32[]))
    """
    return _transform(
        *("value_and_grad", fun, argnums, create_graph, realize, has_aux),
        lambda value, aux, grads: (
            ((value, aux), grads) if has_aux else (value, grads)
        ),
    )


def hvp(
    fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The Hessian of a function times a vector, without the Hessian.

    >>> nb.hvp(lambda x: x**3, (nb.constant(2.0),), (nb.constant(1.0),))
    (Tensor(12. : f32[]),)
    """
    every = tuple(range(len(primals)))
    found: tuple[Any, ...] = jvp(grad(fn, every), primals, tangents)[1]
    return found


def backward(
    outputs: Any, cotangents: Any = None, *, create_graph: bool = False
) -> None:
    """Walks back from a tree of values and sets grad on every tensor that they
    were computed from and that requires it.

    >>> x = nb.constant(3.0, requires_grad=True)
    >>> nb.backward({"loss": x * x})
    >>> x.grad
    Tensor(6. : f32[])
    """
    y, _ = as_tensors("backward", "outputs", outputs)
    ct: list[Any] = [None] * len(y)
    if cotangents is not None:
        ct = matched("backward", "cotangents", outputs, cotangents)
    ct = [
        c if c is None else as_tensor_beside("backward", "a cotangent", c, at)
        for c, at in zip(ct, y, strict=True)
    ]
    _nabla.backward_all(y, ct, create_graph)
