"""Tensors on meshes: placing and moving them, looking at how they lie.

>>> mesh = nb.DeviceMesh("pod", (2, 2), ("dp", "tp"))
>>> x = nb.shard(nb.arange(8).reshape(4, 2), mesh, nb.P("dp", "tp"))
>>> x
Tensor([
  shard(0): [[0]
             [2]]
  shard(1): [[1]
             [3]]
  shard(2): [[4]
             [6]]
  shard(3): [[5]
             [7]]
] : i64[4,2](<dp, tp>)(local=[2,1]))
>>> nb.sum(x).item()
28
"""

from __future__ import annotations

from . import _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeAlias

    from ._nabla import ArrayLike, Tensor
    from ._sharding import DeviceMesh, PartitionSpec, Raw, ShardingSpec

    DimSpecs: TypeAlias = None | PartitionSpec | Sequence[Raw] | ShardingSpec
    MeshAxes: TypeAlias = str | Iterable[str]


def _check(kwargs: dict[str, Any]) -> None:
    for name in kwargs:
        if name != "global_shape":
            raise TypeError(f"shard() has no argument {name!r}")


def shard(
    x: ArrayLike,
    mesh: DeviceMesh,
    dim_specs: DimSpecs,
    replicated_axes: MeshAxes | None = None,
    partial_sum_axes: MeshAxes | None = None,
    **kwargs: Any,
) -> Tensor:
    """x laid out over a mesh, wherever it lies now: the same value.  What the
    axes of partial_sum_axes have is a sum that is still to be taken.

    >>> mesh = nb.DeviceMesh((2,), ("dp",))
    >>> y = nb.shard(nb.ones((4, 3)), mesh, nb.P("dp"))
    >>> y.sharding, y.local_shape
    (sharding<@mesh, [{'dp'}, {}]>, (2, 3))
    """
    from ._sharding import placement

    _check(kwargs)
    t = _nabla.ensure_tensor(x)
    given = replicated_axes or (), partial_sum_axes or ()
    spec = placement(dim_specs, mesh, (t.ndim, t.batch_dims), *given)
    return _nabla.reshard(t, spec)


def reshard(*args: Any, **kwargs: Any) -> Tensor:
    """The same as shard: shard(x, mesh, dim_specs, replicated_axes=None,
    partial_sum_axes=None)."""
    return shard(*args, **kwargs)


def visualize_sharding(x: Tensor, format: str = "text") -> str:
    """Which devices have which block of x, by their numbers: as text in a frame
    of lines, or as "svg".

    >>> mesh = nb.DeviceMesh("pod", (2, 2), ("dp", "tp"))
    >>> print(nb.visualize_sharding(nb.ones((8, 4)).shard(mesh, nb.P("dp"))))
    @pod [8@dp, 4]
    ┌─────┐
    │ 0,1 │
    ├─────┤
    │ 2,3 │
    └─────┘
    """
    spec = x.sharding
    if spec is None:
        raise ValueError("visualize_sharding: the tensor lies on no mesh")
    return _nabla.sharding_picture(spec, x.global_shape, format)


# Methods.


def shard_method(
    x: Tensor,
    mesh: DeviceMesh,
    dim_specs: DimSpecs,
    replicated_axes: MeshAxes | None = None,
) -> Tensor:
    """The tensor laid out over a mesh: the same value.

    >>> mesh = nb.DeviceMesh((2,), ("dp",))
    >>> nb.ones(4).shard(mesh, ["dp"]).shards
    [Tensor([1. 1.] : f32[2]), Tensor([1. 1.] : f32[2])]
    """
    return shard(x, mesh, dim_specs, replicated_axes)


def with_sharding_constraint(
    x: Tensor,
    mesh: DeviceMesh,
    dim_specs: DimSpecs,
    replicated_axes: MeshAxes | None = None,
) -> Tensor:
    """Says how the tensor should lie where a solver decides, which is in
    auto_shard and in compiled functions: closed dims exactly, open ones rather
    so. Elsewhere it changes nothing. Returns the tensor."""
    from ._sharding import placement

    ranks = (x.ndim, x.batch_dims)
    spec = placement(dim_specs, mesh, ranks, replicated_axes or (), ())
    x._constraint = spec
    return x


def shards(x: Tensor) -> list[Tensor]:
    """The local values as tensors on no mesh, one for each device, row-major
    (of this process); the tensor itself if it lies on no mesh."""
    return x._shards()


def logical_local_shape(x: Tensor, shard_idx: int = 0) -> tuple[int, ...]:
    """The shape of a shard, without hidden axes."""
    return x.shard_shape(shard_idx)[x.batch_dims :]


METHODS = {
    "shard": shard_method,
    "with_sharding": shard_method,
    "with_sharding_constraint": with_sharding_constraint,
    "logical_local_shape": logical_local_shape,
}

PROPERTIES = {"shards": shards}
