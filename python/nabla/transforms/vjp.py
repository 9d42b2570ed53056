"""Reverse mode: a function and the way back through it."""

from __future__ import annotations

from ._record import Recording, as_tensor_beside, finished, matched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["vjp"]


def vjp(
    fn: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    create_graph: bool = True,
) -> Any:
    """(out, pullback), or (out, pullback, aux): pullback(ct) gives a tuple
    with what a cotangent of out means for each primal.

    >>> y, pullback = nb.vjp(lambda x: x * x, nb.constant([1.0, 2.0]))
    >>> pullback(nb.ones(2))
    (Tensor([2. 4.] : f32[2]),)
    """
    every = range(len(primals))
    record = Recording("vjp", fn, primals, {}, every, has_aux)

    def pullback(ct: Any) -> tuple[Any, ...]:
        found = matched("vjp", "the cotangent", record.value, ct)
        given = [
            c if c is None else as_tensor_beside("vjp", "the cotangent", c, y)
            for c, y in zip(found, record.results, strict=True)
        ]
        pulled: tuple[Any, ...] = finished(record.pull(given), create_graph)
        return pulled

    if has_aux:
        return record.value, pullback, record.aux
    return record.value, pullback
