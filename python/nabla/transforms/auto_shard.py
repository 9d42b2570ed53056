"""Layouts chosen for a whole function."""

from __future__ import annotations

from .. import _nabla
from ._record import as_tensors, call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .._sharding import DeviceMesh

__all__ = ["ShardingPlan", "auto_shard"]


class ShardingPlan:
    """How the arguments of a function, its results and all in between are to
    lie.

    specs        of the arguments: a tuple of what they are, with a
                 ShardingSpec for each tensor
    out_specs    of what the function returns
    cost, bound  what a call moves, in bytes if the mesh has no other costs;
                 nothing could move less than the bound
    memory       bytes on a device when the most is there
    """

    specs: tuple[Any, ...]
    out_specs: Any
    cost: float
    bound: float
    memory: int
    text: str

    __slots__ = (
        "bound",
        "cost",
        "memory",
        "out_specs",
        "specs",
        "text",
        "_fn",
        "_plan",
        "_structure",
        "_trees",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        mesh: DeviceMesh,
        budget: int,
        aliases: list[tuple[int, int]],
    ) -> None:
        tensors, self._structure = as_tensors("auto_shard", "args", args)
        self._fn = fn
        self._trees: list[Any] = []

        def body(leaves: list[Any]) -> list[Any]:
            given = _nabla.tree_unflatten(self._structure, leaves)
            y = call("auto_shard", fn, *given)
            found, structure = as_tensors("auto_shard", "the result", y)
            self._trees[:] = [structure]
            return found

        found = _nabla.auto_plan(body, tensors, mesh, budget, aliases)
        self._plan, ins, outs, self.cost, self.bound, self.memory, text = found
        self.text = text.rstrip()
        self.specs = _nabla.tree_unflatten(self._structure, ins)
        self.out_specs = _nabla.tree_unflatten(self._trees[0], outs)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return (
            f"ShardingPlan(cost={self.cost:g}, bound={self.bound:g}, "
            f"memory={self.memory})"
        )

    def apply(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """fn with its arguments laid out as planned, and, if it is the function
        that the plan is for, all that it computes.  Arguments are of the
        same types."""

        def planned(*args: Any) -> Any:
            leaves, structure = as_tensors("plan", "args", args)
            if structure != self._structure:
                raise ValueError("plan: arguments of another structure")
            if fn is self._fn:
                y = _nabla.auto_follow(self._plan, leaves)
                return _nabla.tree_unflatten(self._trees[0], y)
            specs = _nabla.tree_leaves(self.specs)
            laid = [
                _nabla.reshard(x, s) for x, s in zip(leaves, specs, strict=True)
            ]
            return fn(*_nabla.tree_unflatten(self._structure, laid))

        return planned


def auto_shard(
    fn: Callable[..., Any],
    mesh: DeviceMesh,
    memory_budget: int | None = None,
    *,
    aliases: Iterable[tuple[int, int]] = (),
) -> Callable[..., ShardingPlan]:
    """A function of example arguments that gives the plan for fn: how its
    tensors are to lie over the mesh so that the least is moved and, at any
    time, at most memory_budget bytes are on a device.  ValueError, with what
    would be needed, if nothing fits.

    aliases are pairs of a tensor returned and a tensor given, by their numbers
    among all, that is its new contents: both lie alike.

    >>> mesh = nb.DeviceMesh((4,), ("d",))
    >>> def layer(x, w): return nb.relu(x @ w)
    >>> x, w = nb.ones((8, 16)), nb.ones((16, 32))
    >>> plan = nb.auto_shard(layer, mesh)(x, w)
    >>> plan.cost
    0.0
    >>> y = plan.apply(layer)(x, w)
    >>> y.is_sharded, y.sum().item()
    (True, 4096.0)
    """
    budget = 0 if memory_budget is None else int(memory_budget)
    if memory_budget is not None and budget <= 0:
        raise ValueError(f"auto_shard: a memory budget of {budget} bytes")
    pairs = [(int(a), int(b)) for a, b in aliases]

    def plan(*args: Any) -> ShardingPlan:
        return ShardingPlan(fn, args, mesh, budget, pairs)

    return plan
