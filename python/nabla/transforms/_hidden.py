"""Hidden axes by hand.

A tensor as it is stored, its physical shape, has hidden axes first, the newest
vmap's in front, then the visible ones.  Here hidden axes are shown, an ordinary
op does the work, and they are hidden again.  What a vmap made keeps belonging
to it; axes hidden by hand belong to none and are told by their place, counted
from the visible axes."""

from __future__ import annotations

from operator import index

from .. import _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from .._nabla import ArrayLike, Tensor

    Lanes: TypeAlias = list[tuple[int, int]]

_op = _nabla.ops

# Ids of axes hidden by hand: behind those of all vmaps, and in front of them.
BEHIND, BEFORE = _nabla.hand_lanes


def hidden(x: Tensor) -> Lanes:
    """(id, size) of the hidden axes, in physical order."""
    return _nabla.hidden_lanes(x) if x.batch_dims else []


def spread(x: Tensor, lanes: Lanes) -> Tensor:
    """x with these hidden axes too."""
    there = {one for one, _ in hidden(x)}
    for one, size in reversed(lanes):
        if one not in there:
            wide = _op["broadcast_to"](x, (size, *x.shape))
            x = _nabla.hide(wide, 0, one)
    return x


def _exposed(x: ArrayLike) -> tuple[Tensor, list[int | None]]:
    """x with all axes visible; for each that was hidden the id of its vmap,
    None if it has none."""
    y = _nabla.ensure_tensor(x)
    lanes = hidden(y)
    for one, size in reversed(lanes):
        y = _nabla.show(y, 0, one, size)
    return y, [one if 0 < one < BEFORE else None for one, _ in lanes]


def _hide(y: Tensor, owners: Sequence[int | None]) -> Tensor:
    """Hides the first axes of y; each belongs to a vmap or, if None, is by
    hand."""
    ids = []
    for i, owner in enumerate(owners):
        inner = any(o is not None for o in owners[i + 1 :])
        hand = (BEFORE if inner else BEHIND) + len(owners) - 1 - i
        ids.append(hand if owner is None else owner)
    if any(a <= b for a, b in zip(ids, ids[1:], strict=False)):
        raise ValueError(
            "hidden axes of vmaps keep their order, newest first, with none "
            "hidden by hand between them"
        )
    for one in ids:
        y = _nabla.hide(y, 0, one)
    return y


def _place(axis: int, n: int, who: str) -> int:
    axis = index(axis)
    if not -n <= axis < n:
        raise _nabla.AxisError(
            f"{who}: axis {axis} is out of range for {n} axes"
        )
    return axis % n


def _physical(x: Tensor, axis: int, who: str) -> int:
    """Where an axis of a physical function is: those from 0 on count visible
    axes, negative ones from the end of the physical shape."""
    axis, n = index(axis), x.batch_dims
    return _place(axis + n if axis >= 0 else axis, n + x.ndim, who)


def incr_batch_dims(x: ArrayLike) -> Tensor:
    """The first visible axis becomes the last hidden one.

    >>> nb.incr_batch_dims(nb.zeros((2, 3))).shape
    (3,)
    """
    y, owners = _exposed(x)
    _place(0, y.ndim - len(owners), "incr_batch_dims")
    return _hide(y, [*owners, None])


def decr_batch_dims(x: ArrayLike) -> Tensor:
    """The last hidden axis becomes the first visible one."""
    y, owners = _exposed(x)
    if not owners:
        raise ValueError("decr_batch_dims: no axis is hidden")
    return _hide(y, owners[:-1])


def move_axis_to_batch_dims(x: ArrayLike, axis: int) -> Tensor:
    """A visible axis becomes the first of the physical shape, hidden.

    >>> nb.move_axis_to_batch_dims(nb.zeros((2, 3)), 1).global_shape
    (3, 2)
    """
    y, owners = _exposed(x)
    n = len(owners)
    axis = _place(axis, y.ndim - n, "move_axis_to_batch_dims")
    return _hide(_op["moveaxis"](y, n + axis, 0), [None, *owners])


def move_axis_from_batch_dims(
    x: ArrayLike, batch_axis: int = 0, logical_destination: int = 0
) -> Tensor:
    """A hidden axis becomes a visible one."""
    who = "move_axis_from_batch_dims"
    y, owners = _exposed(x)
    n = len(owners)
    if not owners:
        raise ValueError(f"{who}: no axis is hidden")
    batch_axis = _place(batch_axis, n, who)
    to = _place(logical_destination, y.ndim - n + 1, who)
    y = _op["moveaxis"](y, batch_axis, n - 1 + to)
    return _hide(y, owners[:batch_axis] + owners[batch_axis + 1 :])


def unsqueeze_physical(x: ArrayLike, axis: int = 0) -> Tensor:
    """A new axis of size one; by a negative axis it may be a hidden one."""
    x = _nabla.ensure_tensor(x)
    n = x.batch_dims
    at = _place(
        axis + n if axis >= 0 else axis, n + x.ndim + 1, "unsqueeze_physical"
    )
    if at >= n:
        y: Tensor = _op["unsqueeze"](x, at - n)
        return y
    y, owners = _exposed(x)
    owners.insert(at, None)
    return _hide(_op["unsqueeze"](y, at), owners)


def squeeze_physical(x: ArrayLike, axis: int = 0) -> Tensor:
    """Without an axis of size one; by a negative axis it may be hidden."""
    x = _nabla.ensure_tensor(x)
    at = _physical(x, axis, "squeeze_physical")
    if at >= x.batch_dims:
        y: Tensor = _op["squeeze"](x, at - x.batch_dims)
        return y
    y, owners = _exposed(x)
    return _hide(_op["squeeze"](y, at), owners[:at] + owners[at + 1 :])


def _reduce(op: str, x: ArrayLike, axis: Any, keepdims: bool) -> Tensor:
    x = _nabla.ensure_tensor(x)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    at = [_physical(x, a, f"{op}_physical") for a in axes]
    n = x.batch_dims
    if all(a >= n for a in at):
        z: Tensor = _op[op](x, tuple(a - n for a in at), keepdims)
        return z
    y, owners = _exposed(x)
    y = _op[op](y, tuple(at), keepdims)
    kept = [
        None if i in at else owner
        for i, owner in enumerate(owners)
        if keepdims or i not in at
    ]
    return _hide(y, kept)


def reduce_sum_physical(
    x: ArrayLike, axis: Any, keepdims: bool = False
) -> Tensor:
    """Sums along axes; negative ones count over the physical shape."""
    return _reduce("reduce_sum", x, axis, keepdims)


def mean_physical(x: ArrayLike, axis: Any, keepdims: bool = False) -> Tensor:
    """Means along axes; negative ones count over the physical shape."""
    return _reduce("mean", x, axis, keepdims)


def reduce_max_physical(
    x: ArrayLike, axis: Any, keepdims: bool = False
) -> Tensor:
    """Maxima along axes; negative ones count over the physical shape."""
    return _reduce("reduce_max", x, axis, keepdims)


def reduce_min_physical(
    x: ArrayLike, axis: Any, keepdims: bool = False
) -> Tensor:
    """Minima along axes; negative ones count over the physical shape."""
    return _reduce("reduce_min", x, axis, keepdims)


def broadcast_to_physical(x: ArrayLike, shape: Any) -> Tensor:
    """x repeated to a physical shape, as many of whose axes are hidden."""
    y, owners = _exposed(x)
    z: Tensor = _op["broadcast_to"](y, shape)
    if z.ndim > y.ndim:
        owners = [None] * len(owners)
    for i in range(len(owners)):
        if z.shape[i] != y.shape[i]:
            owners[i] = None
    return _hide(z, owners)


def moveaxis_physical(x: ArrayLike, source: Any, destination: Any) -> Tensor:
    """Axes at other places of the physical shape, as many of which stay
    hidden."""
    y, owners = _exposed(x)
    n = len(owners)
    z: Tensor = _op["moveaxis"](y, source, destination)
    if n == 0:
        return z
    # an axis is known again by its number as a size
    sizes = tuple(range(1, y.ndim + 1))
    order = _op["moveaxis"](_op["zeros"](sizes), source, destination).shape
    moved = [owners[size - 1] if size <= n else None for size in order[:n]]
    kept = [owner for owner in moved if owner is not None]
    if kept != sorted(kept, reverse=True):
        moved = [None] * n
    return _hide(z, moved)


def broadcast_batch_dims(x: ArrayLike, batch_shape: Any) -> Tensor:
    """x with hidden axes of these sizes; those that it has are among them."""
    y, owners = _exposed(x)
    n = len(owners)
    z = _op["broadcast_to"](y, (*batch_shape, *y.shape[n:]))
    more = len(batch_shape) - n
    return _hide(z, [*([None] * more), *owners])


def on_all_axes(x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    """f of x with all axes visible, which it keeps, hidden again."""
    y, owners = _exposed(x)
    return _hide(f(y), owners)


def rebatched(x: Tensor, batch_dims: int) -> Tensor:
    """The same physical tensor with another number of hidden axes."""
    y, owners = _exposed(x)
    if not 0 <= batch_dims <= y.ndim:
        raise ValueError(
            f"batch_dims: {batch_dims} of {y.ndim} axes cannot be hidden"
        )
    more = batch_dims - len(owners)
    return _hide(y, [*owners[:batch_dims], *([None] * more)])


def with_batch_dims(tree: Any, delta: int) -> Any:
    """Hides `delta` more axes of every tensor of a tree; returns the tree."""
    for x in _nabla.tensor_leaves(tree):
        x.batch_dims = x.batch_dims + delta
    return tree
