"""Rules: which dims of an op's operands and results are split together.

>>> from nabla.core.sharding.propagation import OpShardingRuleTemplate
>>> template = OpShardingRuleTemplate.parse("m k, k n -> m n")
>>> rule = template.instantiate([(4, 8), (8, 16)])
>>> rule.factor_sizes
{'m': 4, 'k': 8, 'n': 16}
>>> rule.get_contracting_factors()
{'k'}
"""

from __future__ import annotations

from . import _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeAlias

    from ._sharding import DeviceMesh, ShardingSpec

    _Mapping: TypeAlias = Mapping[int, Sequence[str]]
    _Shapes: TypeAlias = Sequence[Sequence[int]]


def _dims(mapping: _Mapping) -> list[list[str]]:
    """The factors of each dim; one that is not named has none."""
    rank = max(mapping, default=-1) + 1
    if min(mapping, default=0) < 0:
        raise ValueError(f"rule: {min(mapping)} is not the number of a dim")
    return [list(mapping.get(d, ())) for d in range(rank)]


def _mappings(side: str) -> list[dict[int, list[str]]]:
    """Of each tensor the factors of its dims, from a text in its one form."""
    import re

    if "..." in side:
        raise ValueError("rule: dots are any number of dims: parse with shapes")
    found: list[dict[int, list[str]]] = []
    for tensor in side.split(","):
        dims = re.findall(r"\([^)]*\)|\S+", tensor)
        names = [re.findall(r"[A-Za-z]\w*", dim) for dim in dims]
        found.append(dict(enumerate(names)))
    return found


def _shapes(shapes: _Shapes) -> list[tuple[int, ...]]:
    return [tuple(s) for s in shapes]


class OpShardingRuleTemplate:
    """A rule for shapes of any size: for each tensor, which factors its dims
    are made of, major to minor.

    >>> OpShardingRuleTemplate([{0: ["a"], 1: ["b"]}], [{0: ["a", "b"]}])
    OpShardingRuleTemplate('a b -> (a b)')
    """

    __slots__ = ("_text",)

    def __init__(
        self,
        input_mappings: Sequence[_Mapping],
        output_mappings: Sequence[_Mapping],
    ) -> None:
        self._text = _nabla.rule_map(
            [_dims(m) for m in input_mappings],
            [_dims(m) for m in output_mappings],
        )

    @classmethod
    def _of(cls, text: str) -> OpShardingRuleTemplate:
        self = cls.__new__(cls)
        self._text = text
        return self

    @classmethod
    def parse(
        cls, equation: str, input_shapes: _Shapes | None = None
    ) -> OpShardingRuleTemplate:
        """The template that a text says; with shapes, its dots are spelled
        out.

        >>> OpShardingRuleTemplate.parse("... k -> ...", [(2, 3, 4)])
        OpShardingRuleTemplate('b0 b1 k -> b0 b1')
        """
        text = _nabla.rule_parse(equation)
        if input_shapes is None or "..." not in text:
            return cls._of(text)
        return cls._of(cls._of(text).instantiate(input_shapes)._text)

    @classmethod
    def reshape(
        cls, from_shape: Sequence[int], to_shape: Sequence[int]
    ) -> OpShardingRuleTemplate:
        """The template of a reshape.

        >>> OpShardingRuleTemplate.reshape((8, 4), (2, 16))
        OpShardingRuleTemplate('(i j) k -> i (j k)')
        """
        return cls._of(_nabla.rule_reshape(from_shape, to_shape))

    def instantiate(
        self, input_shapes: _Shapes, output_shapes: _Shapes | None = None
    ) -> OpShardingRule:
        """The rule on these shapes; those of results follow where they are not
        given."""
        out = None if output_shapes is None else _shapes(output_shapes)
        given = self._text, _shapes(input_shapes), out
        return OpShardingRule(_nabla.rule_instantiate(*given), given)

    @property
    def input_mappings(self) -> list[dict[int, list[str]]]:
        """Of each operand {dim: [factor, ...]}, none for one that is never
        split.

        >>> OpShardingRuleTemplate.parse("(a b) 1 -> a b").input_mappings
        [{0: ['a', 'b'], 1: []}]
        """
        return _mappings(self._text.partition("->")[0])

    @property
    def output_mappings(self) -> list[dict[int, list[str]]]:
        """The same of each result."""
        return _mappings(self._text.partition("->")[2].partition(";")[0])

    def to_einsum_notation(self) -> str:
        """The text, which parses to the same template."""
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OpShardingRuleTemplate):
            return NotImplemented
        return self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"OpShardingRuleTemplate({self._text!r})"


class OpShardingRule:
    """A template on shapes: factors have sizes and kinds.  Names of dims behind
    dots are ".0_0", ".0_1" and so on, of a ? "?0"."""

    __slots__ = (
        "_given",
        "_text",
        "factor_kinds",
        "factor_sizes",
        "input_mappings",
        "output_mappings",
        "reductions",
    )

    def __init__(
        self, parts: _nabla.RuleParts, given: _nabla.RuleGiven
    ) -> None:
        self._given = given
        self._text, self.input_mappings, self.output_mappings = parts[:3]
        self.factor_sizes = {n: s for n, s, _, _ in parts[3] if s >= 0}
        self.factor_kinds = {n: kind for n, _, kind, _ in parts[3]}
        self.reductions = {n: how for n, _, _, how in parts[3] if how}
        if parts[4]:
            import warnings

            warnings.warn(parts[4], stacklevel=3)

    def get_all_factors(self) -> set[str]:
        """The names of all factors."""
        return set(self.factor_kinds)

    def get_factor_tensors(self, name: str) -> list[tuple[str, int, int]]:
        """Where a factor is: ("input" or "output", which one, its dim)."""
        sides = ("input", self.input_mappings), ("output", self.output_mappings)
        return [
            (side, t, d)
            for side, mappings in sides
            for t, mapping in enumerate(mappings)
            for d, names in mapping.items()
            if name in names
        ]

    def get_contracting_factors(self) -> set[str]:
        """Factors that leave a reduction pending where they are split."""
        return set(self.reductions)

    def to_einsum_notation(self) -> str:
        """The text of a template for tensors of these ranks."""
        return self._text

    def __repr__(self) -> str:
        return f"OpShardingRule({self._text!r}, {self.factor_sizes})"


def _mesh_of(specs: Sequence[ShardingSpec | None]) -> DeviceMesh:
    for spec in specs:
        if spec is not None:
            return spec.mesh
    raise ValueError("propagate_sharding: none of the tensors has a spec")


def _counted(
    rule: OpShardingRule,
    input_specs: Sequence[ShardingSpec | None],
    output_specs: Sequence[ShardingSpec | None] | None = None,
) -> list[ShardingSpec | None]:
    """All specs, if there are as many as the rule has tensors."""
    sides = [("input", input_specs, rule.input_mappings)]
    if output_specs is not None:
        sides.append(("output", output_specs, rule.output_mappings))
    for side, specs, mappings in sides:
        if len(specs) != len(mappings):
            raise ValueError(
                f"rule: {len(specs)} {side} specs for {len(mappings)} tensors"
            )
    return [*input_specs, *(output_specs or ())]


def infer_from_rule(
    rule: OpShardingRule,
    input_specs: Sequence[ShardingSpec | None],
    mesh: DeviceMesh,
) -> tuple[Any, set[str]]:
    """How the result lies if operands lie so, and the axes over which it is
    still to be reduced.  Of a rule with several results: a list of specs.

    >>> from nabla.core.sharding.propagation import infer_from_rule
    >>> mesh = nb.DeviceMesh("m", (2, 2), ("x", "y"))
    >>> template = OpShardingRuleTemplate.parse("m k, k n -> m n")
    >>> rule = template.instantiate([(4, 8), (8, 16)])
    >>> a = nb.ShardingSpec(mesh, ["x", "y"])
    >>> infer_from_rule(rule, [a, None], mesh)
    (sharding<@m, [{'x'}, {}], partial={'y'}>, {'y'})
    """
    specs = _counted(rule, input_specs)
    found = _nabla.rule_resolve(rule._given, mesh, specs)
    pending = {*found[0].partial_sum_axes} if found else set()
    return (found[0] if len(found) == 1 else found), pending


def propagate_sharding(
    rule: OpShardingRule,
    input_specs: Sequence[ShardingSpec | None],
    output_specs: Sequence[ShardingSpec | None],
    *,
    max_priority: int | None = None,
) -> bool:
    """Gives open dims the axes of dims that run along with them, in the specs
    themselves, both ways; whether anything changed.  None says nothing, and
    becomes a spec if it is in a list.  Dims of a priority beyond max_priority
    wait.

    >>> from nabla.core.sharding.propagation import propagate_sharding
    >>> mesh = nb.DeviceMesh("m", (2, 2), ("x", "y"))
    >>> rule = OpShardingRuleTemplate.parse("a b -> b a").instantiate([(4, 8)])
    >>> x = nb.ShardingSpec(mesh, ["x", nb.P.OPEN])
    >>> y = nb.ShardingSpec(mesh, ["y", nb.P.OPEN])
    >>> propagate_sharding(rule, [x], [y]), x, y
    (True, sharding<@m, [{'x'}, {'y', ?}]>, sharding<@m, [{'y'}, {'x', ?}]>)
    """
    specs = _counted(rule, input_specs, output_specs)
    upto = -1 if max_priority is None else max_priority
    found = _nabla.rule_propagate(rule._given, _mesh_of(specs), specs, upto)
    if found is None:
        return False
    first = len(input_specs)
    for side, now in (
        (input_specs, found[:first]),
        (output_specs, found[first:]),
    ):
        for t, (old, new) in enumerate(zip(side, now, strict=True)):
            if old is not None:
                old.dim_specs = new.dim_specs
            elif isinstance(side, list):
                side[t] = new
    return True
