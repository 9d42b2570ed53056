"""A function on a mesh: its arguments are laid out as specs say, and so are its
results; along manual axes it sees what one device has."""

from __future__ import annotations

from functools import wraps

from .. import _nabla
from .._placement import shard
from ._record import as_tensor, call, tree_text
from .auto_shard import auto_shard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from .._nabla import Tensor
    from .._placement import MeshAxes
    from .._sharding import DeviceMesh

    Place: TypeAlias = Callable[[Tensor, Any], Tensor]

__all__ = ["shard_map"]


def _is_spec(spec: Any) -> bool:
    from .._sharding import PartitionSpec, ShardingSpec

    return spec is None or isinstance(spec, (PartitionSpec, ShardingSpec))


def _is_numbered(specs: Any) -> bool:
    """Whether it is a dict by index; one that says nothing says None."""
    return isinstance(specs, dict) and all(type(k) is int for k in specs)


def _listed(what: str, specs: dict[int, Any], n: int) -> list[Any]:
    for k in specs:
        if not 0 <= k < n:
            raise ValueError(f"shard_map: {what} has an entry {k} of {n}")
    return [specs.get(k) for k in range(n)]


def _mismatch(what: str, specs: Any, tree: Any) -> ValueError:
    return ValueError(
        f"shard_map: {what} is {tree_text(specs)} for {tree_text(tree)}: "
        "specs are one for all, or have the structure of what they are for"
    )


def _placed(what: str, specs: Any, tree: Any, place: Place) -> Any:
    """The tree with each tensor placed as the spec that stands for it says."""
    if _is_spec(specs):
        return _nabla.tree_map(lambda x: _leaf(what, specs, x, place), tree)
    if isinstance(specs, dict):
        if not isinstance(tree, dict) or tree.keys() != specs.keys():
            raise _mismatch(what, specs, tree)
        return {
            k: _placed(f"{what}[{k!r}]", specs[k], tree[k], place) for k in tree
        }
    if isinstance(specs, (list, tuple)):
        if not isinstance(tree, (list, tuple)) or len(tree) != len(specs):
            raise _mismatch(what, specs, tree)
        items = [
            _placed(f"{what}[{i}]", one, tree[i], place)
            for i, one in enumerate(specs)
        ]
        if hasattr(tree, "_fields"):
            return type(tree)(*items)
        return items if isinstance(tree, list) else tuple(items)
    raise TypeError(
        f"shard_map: {what} is a {type(specs).__name__}; specs are P, "
        "ShardingSpec or None, or lists, tuples and dicts of these"
    )


def _leaf(what: str, spec: Any, x: Any, place: Place) -> Any:
    """Numbers are the same for all, whatever a spec for all says."""
    if isinstance(x, (bool, int, float, complex)):
        return x
    return place(as_tensor("shard_map", what, x), spec)


def _arguments(
    specs: Any, args: tuple[Any, ...], place: Place
) -> tuple[Any, ...]:
    if _is_numbered(specs):
        specs = _listed("in_specs", specs, len(args))
    elif isinstance(specs, dict) and len(args) == 1:
        specs = [specs]
    placed: tuple[Any, ...] = _placed("in_specs", specs, args, place)
    return placed


def _results(specs: Any, out: Any, place: Place) -> Any:
    if not _is_numbered(specs) or isinstance(out, dict):
        return _placed("out_specs", specs, out, place)
    if isinstance(out, (list, tuple)):
        listed = _listed("out_specs", specs, len(out))
        return _placed("out_specs", listed, out, place)
    return _placed("out_specs", _listed("out_specs", specs, 1)[0], out, place)


class _Map:
    """The mesh, the specs and the manual axes of a shard_map."""

    def __init__(
        self,
        mesh: DeviceMesh,
        in_specs: Any,
        out_specs: Any,
        manual: MeshAxes,
        unsafe: bool,
    ) -> None:
        self.mesh, self.in_specs, self.out_specs = mesh, in_specs, out_specs
        self.manual = [manual] if isinstance(manual, str) else [*manual]
        self.unsafe = unsafe
        self.planned = self.debug = False
        if self.manual and out_specs is None:
            raise ValueError("shard_map: manual axes need out_specs")

    def plan(self, debug: bool) -> None:
        """What specs leave out is chosen."""
        if self.manual:
            raise ValueError("shard_map: auto_sharding has no manual axes")
        self.planned, self.debug = True, debug

    def lay(self, x: Tensor, spec: Any) -> Tensor:
        return x if spec is None else shard(x, self.mesh, spec)

    def run(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.manual:
            return self.run_manual(fn, args, kwargs)
        inside = _arguments(self.in_specs, args, self.lay)
        if self.planned:
            out = self.run_planned(fn, inside, kwargs)
        else:
            out = call("shard_map", fn, *inside, **kwargs)
        return _results(self.out_specs, out, self.lay)

    def run_planned(
        self, fn: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """The plan is about tensors; all else is as it was given."""
        leaves, structure = _nabla.tree_flatten(args)
        at = [i for i, x in enumerate(leaves) if isinstance(x, _nabla.Tensor)]

        def body(*tensors: Tensor) -> Any:
            given = leaves.copy()
            for i, x in zip(at, tensors, strict=True):
                given[i] = x
            inside = _nabla.tree_unflatten(structure, given)
            return call("shard_map", fn, *inside, **kwargs)

        tensors = [leaves[i] for i in at]
        plan = auto_shard(body, self.mesh)(*tensors)
        if self.debug:
            print(plan)
        return plan.apply(body)(*tensors)

    def run_manual(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        mesh = self.mesh
        region = _nabla.manual_begin(mesh, self.manual, self.unsafe)
        try:
            inside = _arguments(
                self.in_specs,
                args,
                lambda x, spec: _nabla.manual_in(region, x, mesh, spec),
            )
            out = call("shard_map", fn, *inside, **kwargs)
        finally:
            _nabla.manual_end(region)
        return _results(
            self.out_specs,
            out,
            lambda y, spec: _nabla.manual_out(region, y, mesh, spec),
        )


def shard_map(
    fn: Callable[..., Any] | DeviceMesh | None = None,
    mesh: DeviceMesh | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    auto_sharding: bool = False,
    debug: bool = False,
    *,
    axis_names: MeshAxes | None = None,
    unsafe: bool = False,
) -> Any:
    """The function with its arguments, and if out_specs are given its results,
    laid out over a mesh.  Specs are one P for all, a tuple of them with an
    entry for each argument, which may be a tree, or a dict by index.

    With auto_sharding, what the specs leave None is chosen so that the least is
    moved, at each call; debug prints the choice.

    Along axis_names it sees blocks, and values that differ from device to
    device, which talk by collectives that name these axes.  A result must not
    differ along such an axis that its spec leaves out, unless it is `unsafe`:
    then it is that of the first device.

    >>> mesh = nb.DeviceMesh((2,), ("dp",))
    >>> f = nb.shard_map(nb.sum, mesh, in_specs=nb.P("dp"))
    >>> f(nb.arange(4)).item()
    6
    >>> @nb.shard_map(mesh, in_specs=nb.P("dp"), out_specs=nb.P("dp"),
    ...               axis_names="dp")
    ... def centred(x):
    ...     return x - nb.mean(x)
    >>> centred(nb.arange(4.0)).tolist()
    [-0.5, 0.5, -0.5, 0.5]
    """
    from .._sharding import DeviceMesh

    if isinstance(fn, DeviceMesh):
        if mesh is not None:
            raise TypeError(
                "shard_map: after a mesh come keywords, in_specs and out_specs"
            )
        fn, mesh = None, fn
    if fn is None:
        return lambda f: shard_map(
            *(f, mesh, in_specs, out_specs, auto_sharding, debug),
            axis_names=axis_names,
            unsafe=unsafe,
        )
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"shard_map: mesh must be a DeviceMesh, not {mesh!r}")
    how = _Map(mesh, in_specs, out_specs, axis_names or (), unsafe)
    if auto_sharding:
        how.plan(debug)

    @wraps(fn)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return how.run(fn, args, kwargs)

    return mapped
