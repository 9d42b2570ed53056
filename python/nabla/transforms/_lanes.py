"""Between the lanes of a vmap: sums, means, permutations along an axis that was
given a name."""

from __future__ import annotations

from .. import _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .._nabla import ArrayLike, Tensor

__all__ = ["all_reduce", "axis_index", "pmean", "ppermute"]

_op = _nabla.ops


def _names(axes: Any) -> list[str]:
    return [axes] if isinstance(axes, str) else list(axes)


def all_reduce(
    sharded_tensor: ArrayLike,
    *,
    reduce_op: str = "sum",
    reduce_axes: str | Iterable[str] | None = None,
    mesh: Any = None,
) -> Tensor:
    """The sum, max, min or prod over all lanes of named axes, in each lane.

    >>> nb.vmap(lambda x: nb.all_reduce(x, reduce_axes="i"), axis_name="i")(
    ...     nb.constant([1.0, 2.0])
    ... )
    Tensor([3. 3.] : f32[2])
    """
    if reduce_op not in ("sum", "max", "min", "prod"):
        raise ValueError(
            f"all_reduce: reduce_op is sum, max, min or prod, not {reduce_op!r}"
        )
    if mesh is not None:
        raise NotImplementedError("all_reduce: over a mesh")
    x = _nabla.ensure_tensor(sharded_tensor)
    for name in _names(reduce_axes or ()):
        x = _reduced(x, name, reduce_op)
    return x


def _reduced(x: Tensor, name: str, how: str) -> Tensor:
    if how != "prod":
        return _nabla.lane_reduce(x, name, how)
    one, size = _nabla.lane_find(name)
    y: Tensor = _op["prod"](_nabla.show(x, 0, one, size), 0)
    return y


def pmean(sharded_tensor: ArrayLike, axis_name: Any = None) -> Tensor:
    """The mean over all lanes of named axes, in each lane."""
    x = _nabla.ensure_tensor(sharded_tensor)
    for name in _names(axis_name or ()):
        x = _nabla.lane_reduce(x, name, "mean")
    return x


def ppermute(
    sharded_tensor: ArrayLike,
    permutation: Any = None,
    *,
    perm: Any = None,
    axis_name: str | None = None,
) -> Tensor:
    """Lane dst has what lane src had, for each pair (src, dst); zeros where no
    pair leads to.

    >>> nb.vmap(lambda x: nb.ppermute(x, [(0, 1)]), axis_name="i")(
    ...     nb.constant([5.0, 6.0])
    ... )
    Tensor([0. 5.] : f32[2])
    """
    if (permutation is None) == (perm is None):
        raise ValueError("ppermute: either permutation or perm")
    pairs = [
        (int(src), int(dst))
        for src, dst in (perm if permutation is None else permutation)
    ]
    x = _nabla.ensure_tensor(sharded_tensor)
    if axis_name is not None or _nabla.lane_named(None):
        ends = [i for pair in pairs for i in pair]
        return _nabla.lane_permute(x, axis_name, ends)
    if len({dst for _, dst in pairs}) < len(pairs):
        raise ValueError(f"ppermute: a device is a target twice: {pairs}")
    if any(pair != (0, 0) for pair in pairs):
        raise ValueError(f"ppermute: one device, pairs {pairs}")
    y: Tensor = x if pairs else _op["zeros_like"](x)
    return y


def axis_index(mesh: Any = None, axis_name: str | None = None) -> Tensor:
    """The number of a lane along a named axis.

    >>> nb.vmap(
    ...     lambda x: nb.ops.communication.axis_index(axis_name="i"),
    ...     axis_name="i",
    ... )(nb.ones(3))
    Tensor([0 1 2] : i32[3])
    """
    if mesh is not None:
        raise NotImplementedError("axis_index: of a mesh")
    return _nabla.lane_index(axis_name)
