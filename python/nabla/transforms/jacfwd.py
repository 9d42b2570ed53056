"""Jacobians by forward mode."""

from __future__ import annotations

from .jacrev import jacobian

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["jacfwd"]


def jacfwd(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] | None = None,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """All partial derivatives of a function, by moving every element of its
    arguments.  Blocks are those of jacrev.

    >>> nb.jacfwd(lambda x: x * x)(nb.constant([1.0, 2.0]))
    Tensor(
      [[2. 0.]
       [0. 4.]] : f32[2,2]
    )
    """
    return jacobian("jacfwd", False, fn, argnums, has_aux, chunk_size)
