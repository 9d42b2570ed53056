"""The rule language from Python: templates, rules, refusals."""

import doctest
import random
import warnings

import pytest
from nabla.core import sharding
from nabla.core.sharding import spmd
from nabla.core.sharding.propagation import (
    OpShardingRule,
    OpShardingRuleTemplate,
)

import nabla as nb
from nabla import _rules

parse = OpShardingRuleTemplate.parse


def test_sizes_follow_from_shapes():
    rule = parse("(a b) c -> a (b c)").instantiate([(8, 4)], [(2, 16)])
    assert isinstance(rule, OpShardingRule)
    assert rule.factor_sizes == {"a": 2, "b": 4, "c": 4}
    assert rule.get_contracting_factors() == set()
    assert rule.input_mappings == [{0: ["a", "b"], 1: ["c"]}]
    assert rule.output_mappings == [{0: ["a"], 1: ["b", "c"]}]
    rule = parse("(a b), (b c) -> a c").instantiate([(6,), (8,)], [(3, 4)])
    assert rule.factor_sizes == {"a": 3, "b": 2, "c": 4}
    assert rule.get_contracting_factors() == {"b"}


def test_a_contradiction_names_both_dims():
    with pytest.raises(ValueError, match=r"\(b c\).*size 8.*b is 2.*c is 2"):
        parse("(a b), (b c) -> a c").instantiate([(6,), (8,)], [(3, 2)])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("m k, k n", "at 8"),
        ("a -> b -> c", "at 7"),
        ("(m k, n -> m", "at 0"),
        ("((a b) c) -> a", "at 1"),
        ("a ... b -> a", "at 2"),
        ("m m -> m", "at 2"),
        ("m -> m p", "at 7"),
        ("2m -> m", "at 0"),
        ("(a) -> a", "at 0"),
        ("m -> m ; max{q}", "at 13"),
        ("? -> m", "at 0"),
        ("m -> m; split{m}", "at 8"),
    ],
)
def test_a_wrong_text_is_refused_where_it_is_wrong(text, where):
    with pytest.raises(ValueError, match=f"{where}: "):
        parse(text)


@pytest.mark.parametrize(
    ("text", "shapes", "results", "part"),
    [
        ("m k, k n -> m n", [(2, 3)], None, "2 inputs are written, 1 given"),
        ("m -> m", [(2, 3)], None, "rank 2, not 1"),
        ("m, m -> m", [(2,), (3,)], None, "m is 2 by dim 0 of input 0"),
        ("(a b) -> b; a=2", [(7,)], None, "do not divide"),
        ("(a b) -> (b a)", [(12,)], [(12,)], "no shape tells"),
        ("m -> m; m=4", [(5,)], None, "m=4 is written"),
        ("... m k -> m", [(5,)], None, "-1 dims"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(text, shapes, results, part):
    with pytest.raises(ValueError, match=part):
        parse(text).instantiate(shapes, results)


def test_dots_are_aligned_from_the_right():
    template = parse("... m k, ... k n -> ... m n")
    rule = template.instantiate([(2, 3, 4, 5), (5, 6)])
    assert rule.factor_sizes[".0_0"] == 2
    assert rule.factor_sizes[".0_1"] == 3
    assert rule.get_factor_tensors(".0_1") == [
        ("input", 0, 1),
        ("output", 0, 1),
    ]
    assert rule.get_factor_tensors("k") == [("input", 0, 3), ("input", 1, 0)]
    assert rule.get_contracting_factors() == {"k"}
    assert rule.get_all_factors() == {".0_0", ".0_1", "m", "k", "n"}
    assert rule.to_einsum_notation() == "b0 b1 m k, k n -> b0 b1 m n"
    spelled = parse("... m k, ... k n -> ... m n", [(2, 3, 4, 5), (5, 6)])
    assert spelled.to_einsum_notation() == rule.to_einsum_notation()
    assert template.to_einsum_notation() == "... m k, ... k n -> ... m n"


def test_a_template_is_made_of_mappings():
    template = OpShardingRuleTemplate(
        [{0: ["m"], 1: ["k"]}, {0: ["k"], 1: ["n"]}], [{0: ["m"], 1: ["n"]}]
    )
    assert template == parse("m k, k n -> m n")
    assert template.instantiate([(2, 3), (3, 4)]).factor_sizes["n"] == 4
    gap = OpShardingRuleTemplate([{1: ["a", "b"]}], [{}])
    assert gap.to_einsum_notation() == "1 (a b) ->"
    with pytest.raises(ValueError, match="not a factor"):
        OpShardingRuleTemplate([{0: ["a b"]}], [{}])
    with pytest.raises(ValueError, match="not the number of a dim"):
        OpShardingRuleTemplate([{-1: ["a"]}], [{}])
    with pytest.raises(TypeError):
        OpShardingRuleTemplate([{0: [3]}], [{}])


@pytest.mark.parametrize(
    ("ins", "outs"),
    [
        ([{0: ["m"], 1: ["k"]}, {0: ["k"], 1: ["n"]}], [{0: ["m"], 1: ["n"]}]),
        ([{0: ["a", "b"], 1: []}], [{0: ["b"]}, {0: ["a"]}]),
        ([{}, {0: ["x_1"]}], [{}]),
    ],
)
def test_a_template_has_its_mappings(ins, outs):
    template = OpShardingRuleTemplate(ins, outs)
    assert template.input_mappings == ins
    assert template.output_mappings == outs
    assert OpShardingRuleTemplate(ins, outs) == template


def test_mappings_are_without_attributes_and_dots():
    template = parse("a r, i -> a i ; mask{r}, i=4")
    assert template.output_mappings == [{0: ["a"], 1: ["i"]}]
    assert parse("a -> a ?").output_mappings == [{0: ["a"], 1: []}]
    with pytest.raises(ValueError, match="parse with shapes"):
        parse("... k -> ...").input_mappings  # noqa: B018


def test_kinds_are_told():
    rule = parse("v d, i -> i d; mask{v}").instantiate([(9, 4), (5,)])
    assert rule.factor_kinds == {"v": "mask", "d": "pass", "i": "pass"}
    assert rule.reductions == {"v": "sum"}
    rule = parse("a b -> a; max{b}").instantiate([(2, 3)])
    assert rule.reductions == {"b": "max"}


def test_a_group_of_one_is_warned_of():
    template = parse("(a b) -> a b")
    with pytest.warns(UserWarning, match=r"at 0: \"\(a b\)\".*read as b"):
        rule = template.instantiate([(4,)], [(1, 4)])
    assert rule.input_mappings == [{0: ["b"]}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        template.instantiate([(12,)], [(3, 4)])


def test_reshapes_share_factors():
    def text(a, b):
        return OpShardingRuleTemplate.reshape(a, b).to_einsum_notation()

    assert text((2, 4, 32), (8, 32)) == "i j k -> (i j) k"
    assert text((8, 32), (2, 4, 32)) == "(i j) k -> i j k"
    assert text((8, 4), (2, 16)) == "(i j) k -> i (j k)"
    assert text((1, 8), (8, 1)) == "1 i -> i 1"
    assert text((6, 4), (8, 3)).startswith("(i a) b -> (i c) d; replicate{")
    assert text((0, 3), (3, 0)) == "1 1 -> 1 1"
    with pytest.raises(ValueError, match="24 elements"):
        text((6, 4), (5, 5))


def test_what_prints_parses_to_the_same():
    draw = random.Random(5)
    for _ in range(200):
        names = draw.sample("abcdefgh", 4)
        left = " ".join(names[:2]) + f", ({names[2]} {names[3]})"
        right = draw.choice([" ".join(names), f"{names[0]} 1", "?", ""])
        once = parse(f"{left} -> {right}")
        again = parse(once.to_einsum_notation())
        assert once == again
        assert hash(once) == hash(again)
        assert repr(once) == repr(again)


def test_rules_stand_beside_specs():
    assert spmd.OpShardingRuleTemplate is OpShardingRuleTemplate
    assert sharding.DeviceMesh.__name__ == "DeviceMesh"


def test_examples_are_true():
    assert doctest.testmod(_rules, extraglobs={"nb": nb}).failed == 0
