"""Forward mode: how results move with arguments."""

from __future__ import annotations

from ._record import Recording, finished

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["jvp", "linearize"]


def jvp(
    fn: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    has_aux: bool = False,
    create_graph: bool = True,
) -> Any:
    """(out, how out moves when the primals move by the tangents), and aux.

    >>> nb.jvp(nb.sin, (nb.constant(0.0),), (nb.constant(2.0),))
    (Tensor(0. : f32[]), Tensor(2. : f32[]))
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise TypeError(
            f"jvp: primals and tangents are tuples, not a "
            f"{type(primals).__name__} and a {type(tangents).__name__}"
        )
    if len(primals) != len(tangents):
        raise ValueError(
            f"jvp: {len(tangents)} tangents for {len(primals)} primals"
        )
    every = range(len(primals))
    record = Recording("jvp", fn, primals, {}, every, has_aux)
    given = record.on_tape("jvp", "the tangents", tangents)
    moved = finished(record.push(given), create_graph)
    return (
        (record.value, moved, record.aux) if has_aux else (record.value, moved)
    )


def linearize(
    fn: Callable[..., Any], *primals: Any
) -> tuple[Any, Callable[..., Any]]:
    """(out, f): f(*tangents) is how out moves, found without calling fn again.

    >>> y, f = nb.linearize(nb.sin, nb.constant(0.0))
    >>> f(nb.constant(2.0))
    Tensor(2. : f32[])
    """
    every = range(len(primals))
    record = Recording("linearize", fn, primals, {}, every, False)

    def linear(*tangents: Any) -> Any:
        if len(tangents) != len(primals):
            raise ValueError(
                f"linearize: {len(tangents)} tangents for {len(primals)} "
                "primals"
            )
        given = record.on_tape("linearize", "the tangents", tangents)
        return record.push(given)

    return record.value, linear
