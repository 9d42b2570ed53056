"""Mapping a function over an axis of its arguments: hidden on the way in, shown
on the way out."""

from __future__ import annotations

from functools import wraps
from operator import index

from .. import _nabla
from ._record import as_tensor, call, tree_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._nabla import Tensor

__all__ = ["vmap"]


def _is_axis(spec: Any) -> bool:
    if spec is None:
        return True
    if isinstance(spec, (bool, _nabla.Tensor)):
        return False
    return hasattr(spec, "__index__")


def _along(
    what: str, spec: Any, tree: Any, use: Callable[[str, Any, Any], Any]
) -> Any:
    """The tree with use(where, axis, part) in place of each part that an axis
    of the specification is for."""
    if _is_axis(spec):
        return use(what, spec, tree)
    if isinstance(spec, dict):
        if not isinstance(tree, dict) or tree.keys() != spec.keys():
            raise ValueError(_mismatch(what, spec, tree))
        return {
            k: _along(f"{what}[{k!r}]", spec[k], tree[k], use) for k in tree
        }
    if isinstance(spec, (list, tuple)):
        if not isinstance(tree, (list, tuple)) or len(tree) != len(spec):
            raise ValueError(_mismatch(what, spec, tree))
        items = [
            _along(f"{what}[{i}]", one, tree[i], use)
            for i, one in enumerate(spec)
        ]
        if hasattr(tree, "_fields"):
            return type(tree)(*items)
        return items if isinstance(tree, list) else tuple(items)
    raise TypeError(
        f"vmap: the axes of {what} are ints, None, or lists, tuples and dicts "
        f"of these, not a {type(spec).__name__}"
    )


def _mismatch(what: str, spec: Any, tree: Any) -> str:
    return f"vmap: {what} is {tree_text(tree)}, its axes are {tree_text(spec)}"


def _per_argument(in_axes: Any, n: int) -> list[Any]:
    if _is_axis(in_axes):
        return [in_axes] * n
    if isinstance(in_axes, dict):
        if n == 1:
            return [in_axes]
        raise TypeError(
            f"vmap: in_axes is a dict, which is for one argument, not {n}"
        )
    if not isinstance(in_axes, (list, tuple)):
        raise TypeError(
            "vmap: in_axes is an int, None, or a list or tuple with an entry "
            f"for each argument, not a {type(in_axes).__name__}"
        )
    if len(in_axes) != n:
        raise ValueError(
            f"vmap: in_axes has {len(in_axes)} entries for {n} arguments"
        )
    return list(in_axes)


class _Lanes:
    """How many lanes a vmap has, as the arguments say."""

    def __init__(self, size: int | None) -> None:
        self.size = None if size is None else index(size)
        self.said = "axis_size"
        if self.size is not None and self.size < 0:
            raise ValueError(f"vmap: axis_size {self.size}")

    def measure(self, what: str, axis: Any, tree: Any) -> None:
        """Notes the size of every leaf along the axis."""
        if axis is None:
            return
        for leaf in _nabla.tree_leaves(tree):
            x = as_tensor("vmap", what, leaf)
            if not -x.ndim <= axis < x.ndim:
                raise _nabla.AxisError(
                    f"vmap: {what} has shape {x.shape}, no axis {axis} to map"
                )
            n = x.shape[axis]
            if self.size is None:
                self.size, self.said = n, what
            if n != self.size:
                raise ValueError(
                    f"vmap: {what} has {n} lanes along axis {axis}, "
                    f"{self.said} {self.size}"
                )

    def get(self) -> int:
        if self.size is None:
            raise ValueError(
                "vmap: no argument is mapped, so axis_size is needed"
            )
        return self.size


class _Spread:
    """How lanes lie on a mesh: mapped axes are split on one of its axes."""

    def __init__(self, name: str | None, mesh: Any, args: Any) -> None:
        self.name = name or ""
        self.mesh = None
        if name is not None:
            leaves = _nabla.tensor_leaves(args)
            self.mesh = _nabla.spmd_mesh(mesh, name, leaves)

    def __call__(self, x: Tensor, axis: int) -> Tensor:
        if self.mesh is None:
            return x
        return _nabla.reshard_dim(x, axis, self.mesh, self.name)


def _shown(y: Any, what: str, axis: Any, lane: int, size: int) -> Tensor:
    x = as_tensor("vmap", what, y)
    if axis is None:
        if _nabla.varies(x, lane):
            raise ValueError(
                f"vmap: {what} differs from lane to lane, so its out_axes "
                "cannot be None"
            )
        return _nabla.show(x, None, lane, size)
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise _nabla.AxisError(
            f"vmap: {what} has shape {x.shape}, no place for an axis {axis}"
        )
    return _nabla.show(x, axis, lane, size)


def _run(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    in_axes: Any,
    axis_size: int | None,
    names: tuple[str | None, str | None],
    spread: _Spread,
) -> tuple[Any, int, int]:
    """What the function returns inside the vmap, its lane and size."""
    specs = _per_argument(in_axes, len(args))
    lanes = _Lanes(axis_size)
    for i, (spec, arg) in enumerate(zip(specs, args, strict=True)):
        _along(f"argument {i}", spec, arg, lanes.measure)
    size = lanes.get()
    lane = _nabla.lane_begin(size, *names)

    def hide(what: str, axis: Any, tree: Any) -> Any:
        if axis is None:
            return tree
        return _nabla.tree_map(
            lambda x: _nabla.hide(
                spread(_nabla.ensure_tensor(x), axis), axis, lane
            ),
            tree,
        )

    try:
        inside = [
            _along(f"argument {i}", spec, arg, hide)
            for i, (spec, arg) in enumerate(zip(specs, args, strict=True))
        ]
        return call("vmap", func, *inside), lane, size
    finally:
        _nabla.lane_end()


def vmap(
    func: Callable[..., Any] | None = None,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
    spmd_axis_name: str | None = None,
    mesh: Any = None,
    axis_name: str | None = None,
) -> Any:
    """The function mapped over an axis of its arguments: what it does to one
    slice, done to all of them.  Collectives inside name the axis by axis_name
    or spmd_axis_name; by the latter the slices also lie along that axis of the
    mesh, or of the one that the arguments lie on.

    >>> nb.vmap(lambda x: nb.sum(x * x))(nb.ones((2, 3)))
    Tensor([3. 3.] : f32[2])
    >>> mesh = nb.DeviceMesh((2,), ("dp",))
    >>> f = nb.vmap(nb.sum, spmd_axis_name="dp", mesh=mesh)
    >>> f(nb.ones((4, 3))).sharding
    sharding<@mesh, [{'dp'}]>
    """
    if func is None:
        return lambda f: vmap(
            *(f, in_axes, out_axes, axis_size, spmd_axis_name, mesh, axis_name)
        )

    @wraps(func)
    def mapped(*args: Any) -> Any:
        if not args:
            raise ValueError("vmap: at least one positional argument is needed")
        names = axis_name, spmd_axis_name
        spread = _Spread(spmd_axis_name, mesh, args)
        out, lane, size = _run(func, args, in_axes, axis_size, names, spread)

        def show(what: str, axis: Any, tree: Any) -> Any:
            def one(y: Any) -> Tensor:
                x = _shown(y, what, axis, lane, size)
                return x if axis is None else spread(x, axis)

            return _nabla.tree_map(one, tree)

        return _along("the result", out_axes, out, show)

    return mapped
