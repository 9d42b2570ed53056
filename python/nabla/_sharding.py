"""Meshes of devices, and how tensors lie on them.

These are plain data.  What they mean the engine says: a spec is checked by it
when it is made and read by it whenever it is used.

>>> mesh = nb.DeviceMesh("pod", (2, 4), ("dp", "tp"))
>>> mesh
@pod = <["dp"=2, "tp"=4]>
>>> spec = nb.ShardingSpec(mesh, nb.P("dp", "tp"))
>>> spec
sharding<@pod, [{'dp'}, {'tp'}]>
>>> nb.compute_local_shape((32, 256), spec, device_id=0)
(16, 64)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial as _partial
from math import prod
from operator import index
from typing import overload

from . import _nabla
from ._devices import Device, at, number, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, ClassVar, Self, TypeAlias

    from ._dtypes import DType

    Entry: TypeAlias = None | str | "_Open" | Sequence["str | _Open"]
    Raw: TypeAlias = "Entry | DimSpec"
    Axes: TypeAlias = str | Iterable[str]

__all__ = [
    "DeviceMesh",
    "DimSpec",
    "P",
    "PartitionSpec",
    "ReshardPlan",
    "ReshardStep",
    "ShardingSpec",
    "compute_global_shape",
    "compute_local_shape",
    "create_replicated_spec",
    "get_num_shards",
    "needs_reshard",
    "parse_sub_axis",
    "reshard_plan",
]

_SUB_AXIS = re.compile(r"([A-Za-z_]\w*):\((\d+)\)(\d+)", re.ASCII)


def parse_sub_axis(name: str) -> tuple[str, int, int] | None:
    """What "x:(2)4" says: of axis x, seen as [2, 4, rest], the middle.  None
    for the name of an axis.

    >>> from nabla.core.sharding import parse_sub_axis
    >>> parse_sub_axis("x:(2)4")
    ('x', 2, 4)
    """
    found = _SUB_AXIS.fullmatch(name)
    return found and (found[1], int(found[2]), int(found[3]))


class DeviceMesh:
    """Devices along named axes, row-major.  The name may be left out.

    Two meshes are equal if they are the same object.  Of a dim that an op must
    have whole the axes go to another dim where they can, and of one of which it
    picks elements each device picks those that it has, unless `spill` is False:
    then it is gathered.  If `mask` is True, what is whole and is added to
    what is pending becomes pending too, which moves nothing.

    `device_refs` says what the devices are; several may be one card.  Where
    nothing is said they are cards if there are enough, under `mpirun` one or
    more a process; else they are simulated on the card that is the default
    device, or on the CPU.

    >>> mesh = nb.DeviceMesh((2, 4), ("dp", "tp"))
    >>> mesh.get_axis_indices(5)
    {'dp': 1, 'tp': 1}
    """

    name: str
    shape: tuple[int, ...]
    axis_names: Sequence[str]
    devices: list[int]
    bandwidth: float
    spill: bool
    mask: bool
    axis_lookup: dict[str, int]
    phys_strides: tuple[int, ...]

    @overload
    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        axis_names: Sequence[str],
        devices: Iterable[int] | None = None,
        device_refs: Iterable[Device | str] | None = None,
        bandwidth: float = 1.0,
        *,
        spill: bool = True,
        mask: bool = False,
    ) -> None: ...

    @overload
    def __init__(
        self,
        shape: Sequence[int],
        axis_names: Sequence[str],
        devices: Iterable[int] | None = None,
        device_refs: Iterable[Device | str] | None = None,
        bandwidth: float = 1.0,
        *,
        spill: bool = True,
        mask: bool = False,
    ) -> None: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        named = "name" in kwargs or (args and isinstance(args[0], str))
        self._set_up(*(args if named else ("mesh", *args)), **kwargs)

    def _set_up(
        self,
        name: str,
        shape: Sequence[int],
        axis_names: Sequence[str],
        devices: Iterable[int] | None = None,
        device_refs: Iterable[Device | str] | None = None,
        bandwidth: float = 1.0,
        *,
        spill: bool = True,
        mask: bool = False,
    ) -> None:
        sizes, names = [index(n) for n in shape], list(axis_names)
        if len(sizes) != len(names):
            raise ValueError(
                f"mesh @{name}: {len(sizes)} sizes for {len(names)} axes"
            )
        count = prod(sizes)
        ids = [*range(count)] if devices is None else [*map(index, devices)]
        refs = None if device_refs is None else [*map(parse, device_refs)]
        for what, found in (("devices", ids), ("device_refs", refs)):
            if found is not None and len(found) != count:
                raise ValueError(
                    f"mesh @{name}: {len(found)} {what} for {count} places"
                )
        on = None
        if refs is not None:
            on = [0 if r.type == "cpu" else number(r) for r in refs]
        self._mesh = _nabla.mesh_new(
            self, name, names, sizes, ids, on, bandwidth, spill, mask
        )
        self.name, self.shape, self.bandwidth = name, tuple(sizes), bandwidth
        self.spill, self.mask = spill, mask
        self.axis_names = names if isinstance(axis_names, list) else (*names,)
        self.devices, self._refs = ids, refs
        self.axis_lookup = {axis: k for k, axis in enumerate(names)}
        self.phys_strides = tuple(
            prod(sizes[k + 1 :]) for k in range(len(sizes))
        )

    @property
    def device_refs(self) -> list[Device]:
        """What the devices are."""
        if self._refs is not None:
            return [*self._refs]
        return [*map(at, _nabla.mesh_places(self))]

    @property
    def is_distributed(self) -> bool:
        """Whether every place is another device."""
        return len({*self.device_refs}) == len(self.device_refs)

    def get_axis_size(self, axis: str) -> int:
        """The number of places along an axis or a part of one."""
        return _nabla.mesh_axis(self, axis)[2]

    def get_coordinate(self, device_id: int, axis: str) -> int:
        """Where a device is along an axis or a part of one."""
        return _nabla.mesh_coordinate(self, device_id, axis)

    def get_devices_on_axis_slice(self, axis: str, coord: int) -> list[int]:
        """The devices at one place of an axis."""
        if not 0 <= coord < self.get_axis_size(axis):
            raise ValueError(f"mesh @{self.name}: {axis!r} has no {coord}")
        at = self.get_coordinate
        return [d for d in self.devices if at(d, axis) == coord]

    def get_axis_indices(self, device_id: int) -> dict[str, int]:
        """Where a device is along every axis."""
        at = self.get_coordinate
        return {axis: at(device_id, axis) for axis in self.axis_names}

    def __repr__(self) -> str:
        return _nabla.mesh_text(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        names, refs = [*self.axis_names], self._refs
        given = (self.name, self.shape, names, self.devices, refs)
        how = {"spill": self.spill, "mask": self.mask}
        return _partial(type(self), **how), (*given, self.bandwidth)


class _Open:
    """P.OPEN, of which there is one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "P.OPEN"

    def __reduce__(self) -> str:
        return "_OPEN"


_OPEN = _Open()


def _listed(axes: Sequence[object]) -> tuple[list[str], bool]:
    """The axes of a dim, and whether P.OPEN ends them."""
    is_open = bool(axes) and axes[-1] is _OPEN
    names = []
    for axis in axes[: len(axes) - is_open]:
        if not isinstance(axis, str) or not axis:
            raise ValueError(f"sharding: {axis!r} is not the name of an axis")
        names.append(axis)
    return names, is_open


def _named(axes: Axes) -> set[str]:
    return {axes} if isinstance(axes, str) else {*axes}


def _quoted(axes: Iterable[str]) -> str:
    return ", ".join(map(repr, axes))


@dataclass(repr=False)
class DimSpec:
    """The mesh axes that split a dim, major to minor; whether more may be
    added; and a priority, 0 the strongest.

    >>> nb.DimSpec(["dp"], is_open=True, priority=1)
    {'dp', ?}p1
    """

    axes: list[str] = field(default_factory=list)
    is_open: bool = False
    priority: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.axes, str):
            raise ValueError(f"sharding: axes is {self.axes!r}, not a list")
        axes, is_open = _listed([*self.axes])
        self.axes, self.is_open = axes, self.is_open or is_open
        if not isinstance(self.priority, int) or self.priority < 0:
            raise ValueError(f"sharding: {self.priority!r} is not a priority")
        if self.priority and not self.axes and not self.is_open:
            raise ValueError(
                "sharding: a dim is closed and empty, it cannot have a priority"
            )

    @classmethod
    def from_raw(cls, raw: Raw) -> DimSpec:
        """None, an axis, several, P.OPEN, or a DimSpec, as it is."""
        if isinstance(raw, DimSpec):
            return raw
        if raw is None:
            return cls()
        if isinstance(raw, str) or raw is _OPEN:
            raw = (raw,)
        if isinstance(raw, (tuple, list)):
            return cls(*_listed(raw))
        raise ValueError(f"sharding: {raw!r} does not say how a dim is split")

    def is_replicated(self) -> bool:
        """Whether no axis splits it."""
        return not self.axes

    def get_total_shards(self, mesh: DeviceMesh) -> int:
        """Into how many blocks it is split."""
        return prod(map(mesh.get_axis_size, self.axes))

    def clone(self) -> DimSpec:
        return DimSpec([*self.axes], self.is_open, self.priority)

    def __repr__(self) -> str:
        axes = [*map(repr, self.axes), *(["?"] if self.is_open else [])]
        order = f"p{self.priority}" if self.priority else ""
        return f"{{{', '.join(axes)}}}{order}"


class PartitionSpec(tuple["Entry", ...]):
    """How the dims of a tensor are split: None, an axis, a tuple of axes, major
    first, or P.OPEN, alone or at the end of a tuple.  Dims at the end may be
    left out.  A reduction over `partial` is pending; `replicated` may never
    split the tensor.

    >>> nb.P("dp", None, ("x", "y"), partial={"tp"})
    P('dp', None, ('x', 'y'), partial={'tp'})
    >>> nb.P("dp") == nb.P(("dp",), None)
    True
    """

    OPEN: ClassVar[_Open] = _OPEN
    partial: frozenset[str]
    replicated: frozenset[str]
    partial_kind: str

    def __new__(
        cls,
        *entries: Entry,
        partial: Axes = (),
        replicated: Axes = (),
        partial_kind: str = "sum",
    ) -> Self:
        self = super().__new__(cls, map(_entry, entries))
        self.partial = frozenset(_named(partial))
        self.replicated = frozenset(_named(replicated))
        self.partial_kind = partial_kind
        used: set[str] = set()
        lists = [DimSpec.from_raw(entry).axes for entry in self]
        sets = [*map(sorted, (self.partial, self.replicated))]
        for axis in sum(lists + sets, []):
            if axis in used:
                raise ValueError(f"sharding: axis {axis!r} is used twice")
            used.add(axis)
        return self

    def _key(self) -> tuple[Any, ...]:
        entries = (*self,)
        while entries and entries[-1] is None:
            entries = entries[:-1]
        kind = self.partial_kind if self.partial else "sum"
        return entries, self.partial, self.replicated, kind

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionSpec):
            return self._key() == other._key()
        plain = not self.partial and not self.replicated
        return plain and super().__eq__(other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        key = self._key()
        return hash(key if key[1] or key[2] else key[0])

    def __repr__(self) -> str:
        said = [*map(repr, self)]
        for name, axes in (
            ("partial", self.partial),
            ("replicated", self.replicated),
        ):
            if axes:
                said.append(f"{name}={{{_quoted(sorted(axes))}}}")
        if self.partial and self.partial_kind != "sum":
            said.append(f"partial_kind={self.partial_kind!r}")
        return f"P({', '.join(said)})"

    def __reduce__(self) -> tuple[Any, ...]:
        more = (self.partial, self.replicated, self.partial_kind)
        return _partition_spec, ((*self,), *more)


P = PartitionSpec


def _partition_spec(
    entries: tuple[Entry, ...], partial: Axes, replicated: Axes, kind: str
) -> PartitionSpec:
    return PartitionSpec(
        *entries, partial=partial, replicated=replicated, partial_kind=kind
    )


def _entry(raw: Entry) -> Entry:
    """An entry of P in its one form."""
    if isinstance(raw, DimSpec):
        raise ValueError("sharding: P takes axes, not a DimSpec")
    dim = DimSpec.from_raw(raw)
    every = (*dim.axes, *((_OPEN,) if dim.is_open else ()))
    return every if len(every) > 1 else every[0] if every else None


@dataclass(repr=False)
class ShardingSpec:
    """How a tensor lies on a mesh: the axes of each dim, those that may never
    split it, and those over which a reduction is still pending.

    >>> mesh = nb.DeviceMesh("m", (2, 2), ("x", "y"))
    >>> nb.ShardingSpec(mesh, [("x", "y"), None])
    sharding<@m, [{'x', 'y'}, {}]>
    """

    mesh: DeviceMesh
    dim_specs: list[DimSpec] = field(default_factory=list)
    replicated_axes: set[str] = field(default_factory=set)
    partial_sum_axes: set[str] = field(default_factory=set)
    partial_kind: str = "sum"

    def __post_init__(self) -> None:
        given = self.dim_specs
        self.replicated_axes = _named(self.replicated_axes)
        self.partial_sum_axes = _named(self.partial_sum_axes)
        if isinstance(given, PartitionSpec):
            self.replicated_axes |= given.replicated
            self.partial_sum_axes |= given.partial
            if given.partial:
                self.partial_kind = given.partial_kind
        elif isinstance(given, str):
            raise ValueError(f"sharding: dim_specs is {given!r}, not a list")
        self.dim_specs = [DimSpec.from_raw(raw) for raw in given]
        _nabla.spec_check(self)

    @staticmethod
    def parse(mesh: DeviceMesh, text: str) -> ShardingSpec:
        """The spec of a text, such as a spec prints, or short.

        >>> mesh = nb.DeviceMesh("m", (2, 2, 2), ("x", "y", "z"))
        >>> nb.ShardingSpec.parse(mesh, "[x, ., y?]Pmax{z}")
        sharding<@m, [{'x'}, {}, {'y', ?}], partial={'z'}:max>
        """
        return _nabla.spec_parse(mesh, text)

    def is_fully_replicated(self) -> bool:
        """Whether no axis splits a dim and nothing is pending."""
        split = any(dim.axes for dim in self.dim_specs)
        return not split and not self.partial_sum_axes

    @property
    def total_shards(self) -> int:
        """Into how many different blocks the tensor is split."""
        return prod(d.get_total_shards(self.mesh) for d in self.dim_specs)

    def clone(self) -> ShardingSpec:
        return ShardingSpec(
            self.mesh,
            [dim.clone() for dim in self.dim_specs],
            {*self.replicated_axes},
            {*self.partial_sum_axes},
            self.partial_kind,
        )

    def ordered_axes(self, axes: Iterable[str]) -> list[str]:
        """Those axes in the order of the mesh, parts of one from the major."""
        return sorted(axes, key=lambda axis: _nabla.mesh_axis(self.mesh, axis))

    def all_partial_axes(self) -> set[str]:
        """The axes over which a reduction is pending."""
        return {*self.partial_sum_axes}

    def effect_signature(self) -> tuple[Any, ...]:
        """All that it says, hashable."""
        dims = tuple(
            ((*d.axes,), d.is_open, d.priority) for d in self.dim_specs
        )
        replicated = frozenset(self.replicated_axes)
        partial = frozenset(self.partial_sum_axes)
        kind = self.partial_kind if partial else "sum"
        return self.mesh, dims, replicated, partial, kind

    def get_implicitly_replicated_axes(self) -> set[str]:
        """The mesh axes that it does not mention."""
        said = sum([dim.axes for dim in self.dim_specs], [])
        said += [*self.replicated_axes, *self.partial_sum_axes]
        used = {axis.partition(":")[0] for axis in said}
        return {*self.mesh.axis_names} - used

    def get_max_priority(self) -> int:
        return max((dim.priority for dim in self.dim_specs), default=0)

    def get_min_priority(self) -> int:
        return min((dim.priority for dim in self.dim_specs), default=0)

    def __repr__(self) -> str:
        text = f"sharding<@{self.mesh.name}, {self.dim_specs!r}"
        for name, axes in (
            ("replicated", self.replicated_axes),
            ("partial", self.partial_sum_axes),
        ):
            if axes:
                text += f", {name}={{{_quoted(self.ordered_axes(axes))}}}"
        if self.partial_sum_axes and self.partial_kind != "sum":
            text += f":{self.partial_kind}"
        return f"{text}>"


def spec_of(
    raw: None | PartitionSpec | Sequence[Raw], mesh: DeviceMesh, rank: int
) -> ShardingSpec:
    """A spec of `rank` dims; the last may be left out of a P, not of a list.
    The extension calls it."""
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"sharding: mesh must be a DeviceMesh, not {mesh!r}")
    if raw is None:
        raw = P()
    if isinstance(raw, str) or not isinstance(raw, (tuple, list)):
        raise ValueError(f"sharding: {raw!r} is not a spec")
    if len(raw) > rank or (
        len(raw) < rank and not isinstance(raw, PartitionSpec)
    ):
        raise ValueError(
            f"sharding: a spec of {len(raw)} dims for a tensor of {rank} dims"
        )
    spec = ShardingSpec(mesh, raw)  # type: ignore[arg-type]
    spec.dim_specs += [DimSpec() for _ in range(rank - len(raw))]
    return spec


def placement(
    raw: None | PartitionSpec | Sequence[Raw] | ShardingSpec,
    mesh: DeviceMesh,
    ranks: tuple[int, int],
    replicated: Axes,
    partial: Axes,
) -> ShardingSpec:
    """The spec that arguments of shard mean for a tensor of so many visible and
    hidden dims: of the visible ones, or if it is longer of all."""
    if isinstance(raw, ShardingSpec):
        if raw.mesh is not mesh:
            raise ValueError(
                f"shard: a spec on @{raw.mesh.name}, the mesh is @{mesh.name}"
            )
        spec = raw
    else:
        visible, hidden = ranks
        more = raw is not None and len(raw) > visible
        spec = spec_of(raw, mesh, visible + (hidden if more else 0))
    if not replicated and not partial:
        return spec
    return ShardingSpec(
        mesh,
        spec.dim_specs,
        spec.replicated_axes | _named(replicated),
        spec.partial_sum_axes | _named(partial),
        spec.partial_kind,
    )


def compute_local_shape(
    global_shape: Sequence[int], sharding: ShardingSpec | None, device_id: int
) -> tuple[int, ...]:
    """The shape of what a device has: block i of k of n elements is
    [floor(i n / k), floor((i + 1) n / k)).  A dim of size 1 is never split.

    >>> mesh = nb.DeviceMesh((4,), ("x",))
    >>> spec = nb.ShardingSpec(mesh, ["x"])
    >>> [nb.compute_local_shape((10,), spec, d) for d in range(4)]
    [(2,), (3,), (2,), (3,)]
    """
    if sharding is None:
        return tuple(global_shape)
    return _nabla.spec_local(sharding, global_shape, device_id)


def compute_global_shape(
    local_shape: Sequence[int],
    sharding: ShardingSpec | None,
    shard_shapes: Sequence[Sequence[int]] | None = None,
) -> tuple[int, ...]:
    """The shape of a tensor from that of its blocks: all of local_shape, or
    those of shard_shapes, in the order of the mesh."""
    if sharding is None:
        return tuple(local_shape)
    count = get_num_shards(sharding)
    shapes = [local_shape] * count if shard_shapes is None else shard_shapes
    return _nabla.spec_global(sharding, [*shapes])


def get_num_shards(sharding: ShardingSpec | None) -> int:
    """How many devices have a block: those of the mesh."""
    return 1 if sharding is None else len(sharding.mesh.devices)


def needs_reshard(a: ShardingSpec | None, b: ShardingSpec | None) -> bool:
    """Whether data must move or be reduced to get from one to the other."""
    if a is None or b is None:
        return a is not b
    return not _nabla.spec_same(a, b)


def create_replicated_spec(mesh: DeviceMesh, rank: int) -> ShardingSpec:
    """Nothing split, nothing pending."""
    return ShardingSpec(mesh, [DimSpec() for _ in range(rank)])


@dataclass(frozen=True)
class ReshardStep:
    """What is done, over which mesh axes, the bytes that a device receives, at
    most, and how the tensor lies afterwards."""

    kind: str
    axes: list[str]
    bytes: int
    spec: ShardingSpec


@dataclass(frozen=True)
class ReshardPlan:
    """The steps from one spec to another.  No plan moves less than `bound`
    bytes; `peak` is the most that a step takes on a device, in and out."""

    steps: list[ReshardStep]
    bytes: int
    bound: int
    peak: int
    seconds: float
    text: str

    @property
    def is_minimal(self) -> bool:
        """Whether it is proved that no plan moves less."""
        return self.bytes == self.bound

    def __str__(self) -> str:
        return self.text


def reshard_plan(
    from_spec: ShardingSpec,
    to_spec: ShardingSpec,
    shape: Sequence[int],
    dtype: DType | None = None,
    *,
    exchange: bool | None = None,
    wide: bool = False,
    idle_axes: bool = False,
) -> ReshardPlan:
    """The plan that runs when a tensor of this shape changes its layout.  It
    may be allowed more than collectives along one mesh axis: to go over several
    axes at once, to use axes of neither spec, to send blocks to blocks directly
    wherever that is cheaper (`exchange=True`) or nowhere (`False`); by itself
    it does where a tensor has more than 1 KiB and collectives would move more
    than 1.25 of the bound.

    >>> from nabla.core.sharding.spmd import reshard_plan
    >>> mesh = nb.DeviceMesh("m", (2, 4), ("dp", "tp"))
    >>> a, b = (nb.ShardingSpec(mesh, [x, None]) for x in ("dp", "tp"))
    >>> print(reshard_plan(a, b, (8, 8)))
    slice tp: dim 0, 0 B
    permute dp,tp: dim 0, 32 B
    all_gather dp: dim 0, 32 B
    total 64 B, bound 64 B: minimal
    """
    steps, moved, bound, peak, seconds, text = _nabla.reshard_plan(
        from_spec,
        to_spec,
        shape,
        dtype,
        bool(exchange),
        wide,
        idle_axes,
        exchange is False,
    )
    made = [ReshardStep(k, a.split(","), n, s) for k, a, n, s in steps]
    return ReshardPlan(made, moved, bound, peak, seconds, text.rstrip())
