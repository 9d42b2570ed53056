"""Plans from one layout to another, as Python sees them."""

import doctest

import pytest
from nabla.core.sharding.spmd import ReshardPlan, reshard_plan

import nabla as nb
from nabla import DeviceMesh, ShardingSpec, _sharding


@pytest.fixture
def mesh():
    return DeviceMesh("pod", (2, 4), ("dp", "tp"))


def plan(mesh, a, b, shape, **how):
    a, b = (ShardingSpec.parse(mesh, text) for text in (a, b))
    return reshard_plan(a, b, shape, **how)


def test_steps_say_what_they_do(mesh):
    p = plan(mesh, "[dp, .]P{tp}", "[., tp]", (16, 16))
    assert isinstance(p, ReshardPlan)
    assert [s.kind for s in p.steps] == ["reduce_scatter", "all_gather"]
    assert [s.axes for s in p.steps] == [["tp"], ["dp"]]
    assert sum(s.bytes for s in p.steps) == p.bytes
    assert p.steps[-1].spec == ShardingSpec(mesh, [None, "tp"])


def test_a_tensor_that_stays_needs_no_steps(mesh):
    p = plan(mesh, "[dp, .]", "[dp?, .]R{tp}", (16, 16))
    assert (p.steps, p.bytes, p.is_minimal) == ([], 0, True)
    assert str(p) == "total 0 B, bound 0 B: minimal"


def test_more_may_be_allowed(mesh):
    there = "[dp, tp]", "[tp, dp]", (32, 256)
    p = plan(mesh, *there, exchange=False)
    assert (p.bytes, p.bound, p.is_minimal) == (9216, 4096, False)
    p = plan(mesh, *there, exchange=False, wide=True)
    assert (p.bytes, len(p.steps)) == (7680, 3)
    for how in ({}, {"exchange": True}):
        p = plan(mesh, *there, **how)
        assert (p.bytes, len(p.steps), p.is_minimal) == (4096, 1, True)
    cube = DeviceMesh("cube", (2, 2, 2), ("x", "y", "z"))
    assert plan(cube, "[.,.]P{x,y}", "[x,y]", (16, 16)).bytes == 768
    p = plan(cube, "[.,.]P{x,y}", "[x,y]", (16, 16), idle_axes=True)
    assert p.bytes == 640


def test_pending_blocks_go_straight_to_where_they_are_wanted():
    grid = DeviceMesh("grid", (2, 2), ("x", "y"))
    p = plan(grid, "[x, .]P{y}", "[y, .]", (16, 160))
    assert [s.kind for s in p.steps] == ["reduce_exchange"]
    assert (p.bytes, p.is_minimal) == (5120, True)
    p = plan(grid, "[x, .]P{y}", "[y, .]", (16, 16))
    assert (len(p.steps), p.bytes, p.bound) == (3, 768, 512)


def test_bytes_follow_the_dtype(mesh):
    sizes = {nb.DType.float64: 8, nb.DType.float32: 4, nb.DType.bool: 1}
    for dtype, item in sizes.items():
        p = plan(mesh, "[tp]", "[.]", (16,), dtype=dtype)
        assert p.bytes == 12 * item
    assert plan(mesh, "[tp]", "[.]", (16,)).bytes == 48


def test_what_is_wrong_is_said(mesh):
    with pytest.raises(ValueError, match="spec of 1 dims for a tensor of 2"):
        plan(mesh, "[tp]", "[tp]", (8, 8))
    with pytest.raises(ValueError, match="spec of 2 dims for a tensor of 1"):
        plan(mesh, "[tp]", "[tp,.]", (8,))
    other = DeviceMesh("other", (8,), ("x",), devices=range(1, 9))
    with pytest.raises(ValueError, match="@pod and @other have different"):
        reshard_plan(
            ShardingSpec(mesh, ["tp"]), ShardingSpec(other, ["x"]), (8,)
        )


def test_meshes_of_the_same_devices(mesh):
    line = DeviceMesh("line", (8,), ("x",))
    p = reshard_plan(
        ShardingSpec(mesh, [("dp", "tp")]), ShardingSpec(line, ["x"]), (16,)
    )
    assert [s.kind for s in p.steps] == ["exchange"]
    assert p.bytes == 0


def test_examples():
    found = doctest.DocTestFinder().find(
        reshard_plan, "reshard_plan", globs={"nb": nb}
    )
    for example in found:
        assert doctest.DocTestRunner().run(example).failed == 0
    assert reshard_plan is _sharding.reshard_plan
