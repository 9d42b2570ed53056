"""Collectives: what devices along mesh axes, and lanes along the named axis of
a vmap, say to each other.

If a vmap or shard_map of that name is open, every lane has a value of its own
and a collective is algebra over lanes.  Else the name is an axis of the mesh
that the tensor lies on, and what meets are its blocks.

>>> mesh = nb.DeviceMesh((2,), ("dp",))
>>> nb.all_reduce(nb.arange(4).shard(mesh, nb.P("dp"))).tolist()
[2, 4]
"""

from __future__ import annotations

from operator import index

from . import _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._nabla import ArrayLike, Tensor
    from ._placement import MeshAxes
    from ._sharding import DeviceMesh


def _reduced(
    x: Tensor, axes: MeshAxes | None, mesh: DeviceMesh
) -> MeshAxes | None:
    """The axes to reduce over if that is the mesh: one device, where x lies on
    none, has nobody along the axes of it."""
    spec = x.sharding
    if spec is not None and spec.mesh is not mesh:
        raise ValueError(
            f"all_reduce: the tensor lies on @{spec.mesh.name}, "
            f"the mesh is @{mesh.name}"
        )
    if spec is not None or axes is None:
        return axes
    names = [axes] if isinstance(axes, str) else [*axes]
    lanes = [name for name in names if _nabla.lane_named(name)]
    for name in names:
        if name not in lanes:
            mesh.get_axis_size(name)  # which must be there
    return lanes


def all_gather(
    sharded_tensor: ArrayLike,
    axis: int | None = None,
    *,
    physical_axis: int | None = None,
    axis_name: str | None = None,
    tiled: bool = True,
) -> Tensor:
    """The same value with an axis, or every one, whole on each device, or not
    split on one mesh axis.  Named by a vmap: the values of all lanes one behind
    the other, or if not tiled along a new axis.

    >>> mesh = nb.DeviceMesh((2, 2), ("x", "y"))
    >>> y = nb.ones((4, 4)).shard(mesh, nb.P("x", "y"))
    >>> nb.all_gather(y, axis=0).sharding
    sharding<@mesh, [{}, {'y'}]>
    """
    x = _nabla.ensure_tensor(sharded_tensor)
    if physical_axis is None:
        at = None if axis is None else index(axis)
        return _nabla.all_gather(x, at, axis_name, tiled)
    if axis is not None:
        raise ValueError("all_gather: either axis or physical_axis")
    from .transforms._hidden import on_all_axes

    at = index(physical_axis)
    return on_all_axes(x, lambda y: _nabla.all_gather(y, at, axis_name, tiled))


def gather_all_axes(sharded_tensor: ArrayLike) -> Tensor:
    """The same value, all of it on each device."""
    return _nabla.gather_all_axes(_nabla.ensure_tensor(sharded_tensor))


def all_reduce(
    sharded_tensor: ArrayLike,
    *,
    reduce_op: str = "sum",
    reduce_axes: MeshAxes | None = None,
    mesh: DeviceMesh | None = None,
) -> Tensor:
    """The sum, max, min or prod of what all have along axes, for each of them:
    those named, else those that a reduction is pending on, else of all
    devices.

    >>> nb.vmap(lambda x: nb.all_reduce(x, reduce_axes="i"), axis_name="i")(
    ...     nb.constant([1.0, 2.0])
    ... )
    Tensor([3. 3.] : f32[2])
    """
    x = _nabla.ensure_tensor(sharded_tensor)
    if mesh is not None:
        reduce_axes = _reduced(x, reduce_axes, mesh)
    return _nabla.all_reduce(x, reduce_op, reduce_axes)


def pmean(
    sharded_tensor: ArrayLike, axis_name: MeshAxes | None = None
) -> Tensor:
    """The mean of what all have along axes, for each of them."""
    return _nabla.pmean(_nabla.ensure_tensor(sharded_tensor), axis_name)


def pvary(x: ArrayLike, axis_name: MeshAxes) -> Tensor:
    """x as a value that may differ along axes: what is added up over them then
    counts it once for each, and does not warn that it does.

    >>> mesh = nb.DeviceMesh((2,), ("dp",))
    >>> def count(x):
    ...     one = nb.ops.communication.pvary(nb.ones(()), "dp")
    ...     return nb.all_reduce(one, reduce_axes="dp")
    >>> nb.shard_map(count, mesh, nb.P("dp"), nb.P(), axis_names="dp")(
    ...     nb.ones(2)
    ... ).item()
    2.0
    """
    return _nabla.pvary(_nabla.ensure_tensor(x), axis_name)


def reduce_scatter(
    sharded_tensor: ArrayLike,
    axis: int,
    *,
    axis_name: str | None = None,
) -> Tensor:
    """The sum, of which each gets its block along the axis: over the mesh axes
    that split it, else over all devices; or over the one that is named.

    >>> mesh = nb.DeviceMesh((2,), ("dp",))
    >>> y = nb.reduce_scatter(nb.arange(4).shard(mesh, nb.P()), axis=0)
    >>> y.tolist(), y.sharding
    ([0, 2, 4, 6], sharding<@mesh, [{'dp'}]>)
    """
    x = _nabla.ensure_tensor(sharded_tensor)
    return _nabla.reduce_scatter(x, index(axis), axis_name)


def pscatter(x: ArrayLike, axis: int, axis_name: str) -> Tensor:
    """Of a value that no lane differs in, each lane its block."""
    return _nabla.pscatter(_nabla.ensure_tensor(x), index(axis), axis_name)


def all_to_all(
    sharded_tensor: ArrayLike,
    split_axis: int,
    concat_axis: int,
    tiled: bool = True,
    *,
    axis_name: str | None = None,
) -> Tensor:
    """The same value; what split concat_axis splits split_axis.  Of lanes: each
    its block along split_axis of all values, along concat_axis.

    >>> mesh = nb.DeviceMesh((2,), ("tp",))
    >>> x = nb.ones((4, 2)).shard(mesh, nb.P("tp"))
    >>> nb.all_to_all(x, split_axis=1, concat_axis=0).sharding
    sharding<@mesh, [{}, {'tp'}]>
    """
    x = _nabla.ensure_tensor(sharded_tensor)
    split, concat = index(split_axis), index(concat_axis)
    return _nabla.all_to_all(x, split, concat, axis_name, tiled)


def ppermute(
    sharded_tensor: ArrayLike,
    permutation: Iterable[Sequence[int]] | None = None,
    *,
    perm: Iterable[Sequence[int]] | None = None,
    axis_name: str | None = None,
) -> Tensor:
    """dst has what src had, for each pair (src, dst); zeros where no pair leads
    to.  Lanes of the innermost vmap that has a name, else devices of the mesh;
    or those along an axis.

    >>> nb.vmap(lambda x: nb.ppermute(x, [(0, 1)]), axis_name="i")(
    ...     nb.constant([5.0, 6.0])
    ... )
    Tensor([0. 5.] : f32[2])
    """
    given = perm if permutation is None else permutation
    if given is None or (permutation is not None and perm is not None):
        raise ValueError("ppermute: either permutation or perm")
    ends = [index(i) for src, dst in given for i in (src, dst)]
    x = _nabla.ensure_tensor(sharded_tensor)
    return _nabla.ppermute(x, ends, axis_name)


def pbroadcast(x: ArrayLike, root: int, axis_name: str) -> Tensor:
    """The value that one lane has, for all."""
    return _nabla.pbroadcast(_nabla.ensure_tensor(x), root, axis_name)


def distributed_broadcast(
    x: ArrayLike, mesh: DeviceMesh | None = None
) -> Tensor:
    """x, all of it on each device, every one of which counts to derivatives.

    >>> mesh = nb.DeviceMesh((4,), ("dp",))
    >>> f = lambda u: nb.sum(nb.distributed_broadcast(u, mesh) ** 2)
    >>> nb.grad(f)(nb.constant([1.0, 2.0])).tolist()
    [8.0, 16.0]
    """
    return _nabla.distributed_broadcast(_nabla.ensure_tensor(x), mesh)


def broadcast(
    x: ArrayLike, mesh: DeviceMesh | None = None, root: int = 0
) -> Tensor:
    """x, all of it on each device of a mesh."""
    return _nabla.broadcast(_nabla.ensure_tensor(x), mesh, root)


def axis_index(
    mesh: DeviceMesh | None = None, axis_name: str | None = None
) -> Tensor:
    """Where one is along an axis: in a vmap of that name the number of the
    lane, else a vector over the axis of the mesh, split on it.

    >>> nb.vmap(
    ...     lambda x: nb.ops.communication.axis_index(axis_name="i"),
    ...     axis_name="i",
    ... )(nb.ones(3))
    Tensor([0 1 2] : i32[3])
    """
    return _nabla.axis_index(mesh, axis_name)
