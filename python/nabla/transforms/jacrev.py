"""Jacobians and Hessians: one walk, mapped over a basis."""

from __future__ import annotations

from functools import wraps

from .. import _nabla
from ._record import Recording
from .utils import resolve_argnums

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .._nabla import Tensor

__all__ = ["hessian", "jacrev"]


def _check(who: str, results: list[Tensor]) -> None:
    real = _nabla.real_leaves(list(results))
    for i, y in enumerate(results):
        if i not in real:
            raise TypeError(
                f"{who}: result {i} is of {y.dtype.name}, which has no "
                "derivative"
            )


def _blocks(record: Recording, back: bool, chunk: int) -> list[list[Tensor]]:
    """For each result its derivatives by each leaf on tape."""
    tape = record.tape
    if back:
        n = len(record.results)
        return [tape.jacobian(True, k, chunk) for k in range(n)]
    n = len(tape.fresh)
    columns = [tape.jacobian(False, k, chunk) for k in range(n)]
    return [[c[k] for c in columns] for k in range(len(record.results))]


def jacobian(
    who: str,
    back: bool,
    fn: Callable[..., Any],
    argnums: int | Sequence[int] | None,
    has_aux: bool,
    chunk_size: int | None,
) -> Callable[..., Any]:
    """jacrev (back) or jacfwd."""
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"{who}: chunk_size is at least 1, not {chunk_size}")

    @wraps(fn)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        chosen = resolve_argnums(argnums, len(args), who)
        record = Recording(who, fn, args, kwargs, chosen, has_aux)
        _check(who, record.results)
        rows = []
        for blocks in _blocks(record, back, chunk_size or 0):
            trees = record.like_arguments(blocks)
            rows.append(trees[0] if len(trees) == 1 else trees)
        found = record.like_value(rows)
        return (found, record.aux) if has_aux else found

    return transformed


def jacrev(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] | None = None,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """All partial derivatives of a function, by walking back from every
    element of its result.  Blocks have the shape of the result, then that of
    the argument; chunk_size says how many rows are computed at a time.

    >>> nb.jacrev(lambda x: x * x)(nb.constant([1.0, 2.0]))
    Tensor(
      [[2. 0.]
       [0. 4.]] : f32[2,2]
    )
    """
    return jacobian("jacrev", True, fn, argnums, has_aux, chunk_size)


def hessian(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] | None = None,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """All second derivatives of a function: jacfwd of jacrev.

    >>> nb.hessian(lambda x: nb.sum(x**3))(nb.constant([1.0, 2.0]))
    Tensor(
      [[ 6.  0.]
       [ 0. 12.]] : f32[2,2]
    )
    """
    first = jacobian("jacrev", True, fn, argnums, has_aux, None)
    return jacobian("jacfwd", False, first, argnums, has_aux, None)
