"""Meshes and specs: what they hold, what they refuse, how they print."""

import copy
import dataclasses
import doctest
import gc
import itertools
import math
import pickle
import random

import pytest
from nabla.core.sharding import (
    compute_global_shape,
    needs_reshard,
    parse_sub_axis,
    spmd,
)

import nabla as nb
from nabla import (
    DeviceMesh,
    DimSpec,
    P,
    ShardingSpec,
    _nabla,
    _sharding,
    compute_local_shape,
)


def M24():
    return DeviceMesh("pod", (2, 4), ("dp", "tp"))


def mesh(**axes):
    return DeviceMesh("m", tuple(axes.values()), tuple(axes))


def refuses(match, f, *args, **kwargs):
    with pytest.raises(ValueError, match=match):
        f(*args, **kwargs)


# Meshes.


def test_what_a_mesh_holds():
    m = M24()
    assert (m.name, m.shape, m.axis_names) == ("pod", (2, 4), ("dp", "tp"))
    assert m.devices == list(range(8)) and m.bandwidth == 1.0
    assert m.axis_lookup == {"dp": 0, "tp": 1} and m.phys_strides == (4, 1)
    assert len(m.device_refs) == 8 and not m.is_distributed
    assert repr(m) == str(m) == '@pod = <["dp"=2, "tp"=4]>'
    assert repr(DeviceMesh("pp", (4,), ["stage"])) == '@pp = <["stage"=4]>'


def test_the_name_may_be_left_out():
    for m in (
        DeviceMesh((2, 4), ("dp", "tp")),
        DeviceMesh(shape=(2, 4), axis_names=("dp", "tp")),
        DeviceMesh((2, 4), axis_names=("dp", "tp"), bandwidth=2.0),
        DeviceMesh((2, 4), ("dp", "tp"), range(8)),
    ):
        assert m.name == "mesh" and m.shape == (2, 4)
        assert [*m.axis_names] == ["dp", "tp"]
    assert DeviceMesh(name="n", shape=[2], axis_names=["x"]).axis_names == ["x"]


def test_where_devices_are():
    m = M24()
    assert m.get_axis_size("tp") == 4 and m.get_axis_size("tp:(1)2") == 2
    assert m.get_coordinate(5, "dp") == 1 and m.get_coordinate(5, "tp") == 1
    assert m.get_axis_indices(6) == {"dp": 1, "tp": 2}
    assert m.get_devices_on_axis_slice("dp", 1) == [4, 5, 6, 7]
    assert m.get_devices_on_axis_slice("tp:(1)2", 1) == [2, 3, 6, 7]
    x = mesh(x=8)
    parts = {"x:(1)2": 1, "x:(2)2": 1, "x:(4)2": 0, "x:(2)4": 2}
    assert {a: x.get_coordinate(6, a) for a in parts} == parts


def test_devices_in_another_order():
    m = DeviceMesh("m", (2, 2), ("x", "y"), devices=[7, 5, 3, 1])
    assert repr(m) == '@m = <["x"=2, "y"=2], device_ids=[7, 5, 3, 1]>'
    assert m.get_axis_indices(5) == {"x": 0, "y": 1}
    spec = ShardingSpec(m, ["y"])
    starts = [compute_local_shape((3,), spec, d) for d in m.devices]
    assert starts == [(1,), (2,), (1,), (2,)]


def test_device_refs():
    m = DeviceMesh("m", (2,), ("x",), device_refs=[nb.CPU(0), nb.CPU(1)])
    assert m.is_distributed and m.device_refs[1] == nb.CPU(1)
    refuses(
        "1 device_refs for 2", DeviceMesh, (2,), ("x",), None, [nb.CPU()]
    )
    m = DeviceMesh("m", (2,), ("x",), device_refs=["cpu", "cpu:1"])
    assert m.device_refs == [nb.CPU(0), nb.CPU(1)]
    assert pickle.loads(pickle.dumps(m)).device_refs == m.device_refs
    refuses("unknown device", DeviceMesh, (1,), ("x",), None, ["moon"])
    with pytest.raises(TypeError, match="a Device or a string, not int"):
        DeviceMesh((1,), ("x",), None, [3])


@pytest.mark.parametrize(
    "match, args",
    [
        ("2 sizes for 1 axes", ("m", (2, 2), ("x",))),
        ("3 devices for 2 places", ("m", (2,), ("x",), [0, 1, 2])),
        ("device 1 twice", ("m", (2,), ("x",), [1, 1])),
        ("device -1", ("m", (2,), ("x",), [0, -1])),
        ("axis 'x' twice", ("m", (2, 2), ("x", "x"))),
        ("size 0", ("m", (0,), ("x",))),
        ("size -2", ("m", (-2, -2), ("x", "y"))),
        ("'a b' is not a name", ("m", (2,), ("a b",))),
        ("'2' is not a name", ("2", (2,), ("x",))),
        ("axis 3 is not a str", ("m", (2,), (3,))),
        ("more than 65535 devices", ("m", (300, 300), ("x", "y"))),
        ("9 axes", ("m", (1,) * 9, tuple("abcdefghi"))),
        ("bandwidth", ("m", (2,), ("x",), None, None, 0.0)),
        ("small ints", ("m", (1,), ("x",), [1 << 40])),
        ("null", ("m", (1,), ("x\0",))),
    ],
)
def test_meshes_that_are_refused(match, args):
    refuses(match, DeviceMesh, *args)


def test_unknown_axes_and_devices():
    m = M24()
    refuses("no axis 'x'", m.get_axis_size, "x")
    refuses("no axis 'x'", m.get_coordinate, 0, "x")
    refuses("no axis 'x'", m.get_devices_on_axis_slice, "x", 0)
    refuses("no device 8", m.get_coordinate, 8, "dp")
    refuses("no device 8", m.get_axis_indices, 8)
    refuses("'dp' has no 2", m.get_devices_on_axis_slice, "dp", 2)
    refuses("no part of axis 'tp'", m.get_axis_size, "tp:(3)2")


def test_meshes_are_equal_if_they_are_the_same():
    a, b = M24(), M24()
    assert a == a and a != b and len({a, b}) == 2
    assert copy.copy(a) is a and copy.deepcopy(a) is a
    c = pickle.loads(pickle.dumps(a))
    assert c != a and repr(c) == repr(a) and c.devices == a.devices


def test_sub_axes():
    assert parse_sub_axis("x:(2)4") == ("x", 2, 4)
    for name in ("x", "x:", "x:(2)", "x:2", "x:(a)2", "x:(2)4 ", "", "2:(1)2"):
        assert parse_sub_axis(name) is None


# Dims.


def test_dim_specs():
    d = DimSpec(("dp", "tp"))
    assert d.axes == ["dp", "tp"] and dataclasses.is_dataclass(d)
    assert d == DimSpec(["dp", "tp"]) != DimSpec(["tp", "dp"])
    assert d.get_total_shards(M24()) == 8 and not d.is_replicated()
    assert DimSpec().is_replicated() and DimSpec().get_total_shards(M24()) == 1
    c = d.clone()
    c.axes.append("x")
    assert d.axes == ["dp", "tp"] and DimSpec().axes is not DimSpec().axes


@pytest.mark.parametrize(
    "dim, text",
    [
        (DimSpec(), "{}"),
        (DimSpec(is_open=True), "{?}"),
        (DimSpec(["dp"], True, 1), "{'dp', ?}p1"),
        (DimSpec(["x", "y:(1)2"]), "{'x', 'y:(1)2'}"),
        (DimSpec.from_raw(None), "{}"),
        (DimSpec.from_raw("x"), "{'x'}"),
        (DimSpec.from_raw(("x", "y")), "{'x', 'y'}"),
        (DimSpec.from_raw(["x"]), "{'x'}"),
        (DimSpec.from_raw(()), "{}"),
        (DimSpec.from_raw(P.OPEN), "{?}"),
        (DimSpec.from_raw(("x", P.OPEN)), "{'x', ?}"),
        (DimSpec.from_raw(DimSpec(["x"], priority=2)), "{'x'}p2"),
    ],
)
def test_dims_print(dim, text):
    assert repr(dim) == text


def test_dims_that_are_refused():
    refuses("closed and empty", DimSpec, priority=1)
    refuses("not a priority", DimSpec, ["x"], False, -1)
    refuses("not a priority", DimSpec, ["x"], False, "1")
    refuses("not a list", DimSpec, "dp")
    refuses("not the name", DimSpec, [1])
    refuses("not the name", DimSpec, [""])
    for raw in (1, 2.0, {"x"}, (("x", "y"),), ("x", None), (P.OPEN, "x"), ""):
        refuses("sharding: ", DimSpec.from_raw, raw)


# P.


def test_partition_specs():
    assert P("x") == P("x", None) == P(("x",), None)
    assert P((), None) == P(None, None) == P() and P("x") != P(None, "x")
    assert hash(P("x")) == hash(P("x", None)) and len(P("x", None)) == 2
    assert isinstance(P("x"), tuple) and P("x", ("y", "z"))[1] == ("y", "z")
    assert P("x", None) == ("x", None) and P("x") != ("y",) and P("x") != 3
    assert P(("x", P.OPEN)) != P("x") and P((P.OPEN,)) == P(P.OPEN)
    assert P(partial="t") == P(partial={"t"}) != P()
    assert P(partial={"t"}, partial_kind="max") != P(partial={"t"})
    assert P(partial_kind="max") == P() and P(replicated={"t"}) != P()
    assert nb.PartitionSpec is P


def test_partition_specs_print_and_travel():
    p = P("x", None, ("y", P.OPEN), partial={"u", "t"}, replicated={"w"})
    assert repr(p) == (
        "P('x', None, ('y', P.OPEN), partial={'t', 'u'}, replicated={'w'})"
    )
    for q in (pickle.loads(pickle.dumps(p)), copy.deepcopy(p), copy.copy(p)):
        assert q == p and q[2][1] is P.OPEN and q.partial == {"t", "u"}
    assert repr(P(partial="t", partial_kind="max")) == (
        "P(partial={'t'}, partial_kind='max')"
    )


def test_partition_specs_that_are_refused():
    refuses("'x' is used twice", P, "x", "x")
    refuses("'x' is used twice", P, ("x", "x"))
    refuses("'x' is used twice", P, "x", partial={"x"})
    refuses("'x' is used twice", P, partial={"x"}, replicated={"x"})
    refuses("not the name", P, (("x", "y"),))
    refuses("not the name", P, "")
    refuses("does not say", P, 3)
    refuses("not a DimSpec", P, DimSpec(["x"]))
    m = mesh(x=2, y=2)
    for p, match in ((P("x", None, None), "3 dims"), (P("nope"), "'nope'")):
        refuses(match, _nabla.spec_settle, p, m, 2)
    refuses("1 dims for a tensor of 2", _nabla.spec_settle, ["x"], m, 2)
    refuses("not a spec", _nabla.spec_settle, "x", m, 2)


# Specs.


def test_specs():
    m = M24()
    s = ShardingSpec(m, ["dp", None, ("tp",)])
    assert s.mesh is m and s.dim_specs[2] == DimSpec(["tp"])
    assert s.total_shards == 8 and not s.is_fully_replicated()
    assert s == ShardingSpec(m, [DimSpec(["dp"]), DimSpec(), "tp"])
    assert s != ShardingSpec(M24(), s.dim_specs) and dataclasses.is_dataclass(s)
    assert ShardingSpec(m).dim_specs == []
    assert ShardingSpec(m, [None]).is_fully_replicated()
    assert not ShardingSpec(m, [None], set(), {"dp"}).is_fully_replicated()
    assert nb.get_num_shards(s) == 8 and nb.get_num_shards(None) == 1
    assert spmd.create_replicated_spec(m, 2) == ShardingSpec(m, [None, None])


def test_specs_of_partition_specs():
    m = mesh(x=2, y=2, t=2)
    p = P("x", None, partial={"t"}, replicated={"y"}, partial_kind="max")
    s = ShardingSpec(m, p)
    assert s.partial_sum_axes == {"t"} and s.replicated_axes == {"y"}
    assert s.partial_kind == "max" and len(s.dim_specs) == 2
    same = _nabla.spec_settle(P("x"), m, 2)
    assert same == ShardingSpec(m, ["x", None]) and same.mesh is m
    assert _nabla.spec_settle(None, m, 2) == ShardingSpec(m, [None, None])


def test_what_specs_say_of_themselves():
    m = mesh(x=4, y=2, z=2, t=2)
    s = ShardingSpec(
        m, [DimSpec(["x:(1)2"], priority=3), DimSpec([], True)], "z", ["t"]
    )
    assert s.get_max_priority() == 3 and s.get_min_priority() == 0
    assert ShardingSpec(m).get_max_priority() == 0
    assert s.ordered_axes({"t", "x:(2)2", "z", "x:(1)2"}) == [
        "x:(1)2", "x:(2)2", "z", "t",
    ]  # fmt: skip
    assert s.get_implicitly_replicated_axes() == {"y"}
    assert s.all_partial_axes() == {"t"}
    assert s.all_partial_axes() is not s.partial_sum_axes
    c = s.clone()
    assert c == s and c.mesh is m
    assert hash(c.effect_signature()) == hash(s.effect_signature())
    c.dim_specs[0].axes.append("y")
    assert c != s and c.effect_signature() != s.effect_signature()


def test_specs_print():
    m = DeviceMesh("m", (4, 2, 2, 2, 2), ("x", "y", "z", "t", "u"))
    s = ShardingSpec(
        m, [("x:(1)2", "y"), DimSpec([], True, 1)], {"z"}, {"u", "t"}, "max"
    )
    text = (
        "sharding<@m, [{'x:(1)2', 'y'}, {?}p1], replicated={'z'}, "
        "partial={'t', 'u'}:max>"
    )
    assert repr(s) == text and ShardingSpec.parse(m, text) == s
    assert repr(ShardingSpec(m, ["x", None])) == "sharding<@m, [{'x'}, {}]>"
    long = (
        'sharding<@m, [{"x":(1)2,"y"}, {?}p1], replicated={"z"}, '
        'partial={"t","u"}:max>'
    )
    assert ShardingSpec.parse(m, long) == s
    assert ShardingSpec.parse(m, "[(x:(1)2 y), ?p1]Pmax{t u}R{z}") == s
    refuses(r"position 4: axis 'x' is used", ShardingSpec.parse, m, "[x, x]")


@pytest.mark.parametrize(
    "match, args",
    [
        ("'x' is used twice", (["x", "x"],)),
        ("'x' is used twice", (["x", None], set(), {"x"})),
        ("'x' is used twice", (["x", None], {"x"})),
        ("'y' is used twice", ([], {"y"}, {"y"})),
        ("no axis 'nope'", (["nope"],)),
        ("no axis 'nope'", ([], set(), {"nope"})),
        ("'x' is used twice", (["x:(1)4", "x:(2)6"],)),
        ("not parts of one cut", (["x:(1)2", "x:(3)2"],)),
        ("'x' is used twice", (["x", "x:(1)2"],)),
        ("no part of axis 'x'", (["x:(5)2"],)),
        ("'one' is used twice", (["one", "one"],)),
        ("no kind of reduction: 'median'", ([], set(), {"x"}, "median")),
        ("not a list", ("xy",)),
        ("does not say", ([3],)),
        ("axis 3 is not a str", ([], {3})),
        ("33 dims", ([None] * 33,)),
        ("priority 256", ([DimSpec(["x"], priority=256)],)),
    ],
)
def test_specs_that_are_refused(match, args):
    refuses(match, ShardingSpec, mesh(x=12, y=2, one=1), *args)


def test_a_spec_needs_a_mesh():
    with pytest.raises(TypeError, match="DeviceMesh"):
        ShardingSpec("m", [None])
    with pytest.raises(TypeError, match="DeviceMesh"):
        _nabla.spec_settle(P(), None, 1)


def test_a_spec_that_was_changed_is_checked_when_it_is_used():
    s = ShardingSpec(mesh(x=2), ["x", None])
    s.dim_specs[1].axes.append("x")
    refuses("'x' is used twice", compute_local_shape, (4, 4), s, 0)
    s.dim_specs[1].axes[:] = [None]
    refuses("axis None is not a str", compute_local_shape, (4, 4), s, 0)


def test_there_and_back():
    m = mesh(x=4, y=2, one=1)
    s = ShardingSpec(m, [("x:(2)2", "x:(1)2"), DimSpec(["y"], True, 2), "one"])
    back = _nabla.spec_settle(s, None, -1)
    assert back.mesh is m and back.dim_specs[:2] == s.dim_specs[:2]
    assert back.dim_specs[2].axes == []  # an axis of size one says nothing
    merged = _nabla.spec_settle(P(("x:(1)2", "x:(2)2")), m, 1)
    assert merged.dim_specs == [DimSpec(["x"])]
    twin = mesh(x=4, y=2, one=1)
    assert _nabla.spec_settle(s, None, 3).mesh is m is not twin
    assert _nabla.spec_settle(P("x"), twin, 1).mesh is twin
    refuses("3 dims for a tensor of 2", _nabla.spec_settle, s, None, 2)


def test_copies_of_specs():
    s = ShardingSpec(M24(), ["dp"], set(), {"tp"})
    assert copy.deepcopy(s) == s and copy.deepcopy(s).mesh is s.mesh
    assert repr(pickle.loads(pickle.dumps(s))) == repr(s)
    t = dataclasses.replace(s, partial_sum_axes=set())
    assert t.partial_sum_axes == set() and t.dim_specs == s.dim_specs


# Blocks.


def test_local_shapes():
    m = M24()
    x, w = ShardingSpec(m, P("dp", None)), ShardingSpec(m, P(None, "tp"))
    for d in range(8):
        assert compute_local_shape((32, 128), x, d) == (16, 128)
        assert compute_local_shape((128, 256), w, d) == (128, 64)
    s = ShardingSpec(mesh(x=2, y=4, z=2), ["x", ("z", "y")])
    assert {compute_local_shape((4, 8), s, d) for d in range(16)} == {(2, 1)}
    assert compute_local_shape((3, 4), None, 0) == (3, 4)
    assert compute_local_shape((1, 8), w, 3) == (1, 2)
    assert compute_local_shape((1, 8), x, 7) == (1, 8)  # never split
    refuses("2 dims for a tensor of 1", compute_local_shape, (4,), x, 0)
    refuses("no device 8", compute_local_shape, (4, 4), x, 8)
    refuses("size -4", compute_local_shape, (-4, 4), x, 0)


def test_blocks_are_floors():
    line = ShardingSpec(mesh(x=4), ["x"])
    grid = mesh(x=3, y=2)
    fine, coarse = ShardingSpec(grid, [("x", "y")]), ShardingSpec(grid, ["x"])

    def sizes(n, spec):
        places = range(nb.get_num_shards(spec))
        return [compute_local_shape((n,), spec, d)[0] for d in places]

    assert sizes(10, line) == [2, 3, 2, 3] and sizes(3, line) == [0, 1, 1, 1]
    assert sizes(8, coarse) == [2, 2, 3, 3, 3, 3]
    assert sizes(8, fine) == [1, 1, 2, 1, 1, 2]
    for n in range(2, 30):
        pairs = zip(*[iter(sizes(n, fine))] * 2, strict=True)
        assert [sum(pair) for pair in pairs] == sizes(n, coarse)[::2]


def test_global_shapes():
    rng = random.Random(0)
    m = mesh(x=3, y=2, z=2)
    for _ in range(100):
        axes = rng.sample(["x", "y", "z"], 3)
        cut = sorted(rng.choices(range(4), k=2))
        dims = [axes[: cut[0]], axes[cut[0] : cut[1]], axes[cut[1] :]]
        s = ShardingSpec(m, dims)
        shape = tuple(rng.randrange(2, 20) for _ in range(3))
        blocks = [compute_local_shape(shape, s, d) for d in range(12)]
        assert compute_global_shape(blocks[0], s, blocks) == shape
        even = tuple(5 * d.get_total_shards(m) for d in s.dim_specs)
        assert compute_global_shape((5, 5, 5), s) == even
        copies = 12 // s.total_shards
        assert sum(map(math.prod, blocks)) == copies * math.prod(shape)
    line = ShardingSpec(mesh(x=2), ["x"])
    assert compute_global_shape((3,), None) == (3,)
    refuses("1 blocks for 2", compute_global_shape, (1,), line, [(1,)])
    refuses("2 dims", compute_global_shape, (1, 2), line)
    refuses("position 0", compute_global_shape, (3,), line, [(3,), (1,)])


def test_needs_reshard():
    m = mesh(x=2, y=2)
    forms = [None, "x", "y", ("x", "y"), ("y", "x")]
    specs = [ShardingSpec(m, [form]) for form in forms]
    specs += [ShardingSpec(m, [None], set(), {"x"}, k) for k in ("sum", "max")]
    for (i, a), (k, b) in itertools.product(enumerate(specs), repeat=2):
        assert needs_reshard(a, b) == (i != k)
    same = ShardingSpec(m, [DimSpec(["x"], True, 1)], {"y"})
    assert not needs_reshard(specs[1], same)
    assert not needs_reshard(ShardingSpec(mesh(x=2, y=2), ["x"]), specs[1])
    assert needs_reshard(specs[0], None) and not needs_reshard(None, None)


# The package.


def test_paths():
    import nabla.core
    import nabla.core.sharding.spec as spec
    from nabla.core import sharding

    assert sharding.spec is spec and spec.DeviceMesh is DeviceMesh
    assert sharding.spmd.create_replicated_spec is not None
    assert nabla.core.P is P and "ShardingSpec" in nabla.core.__all__
    for name in sharding.__all__:
        assert getattr(sharding, name) is getattr(_sharding, name)
    for module in (nb, nabla.core, sharding):
        assert not hasattr(module, "nothing")


def test_examples_in_the_documentation():
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner()
    tests = finder.find(_sharding, globs={"nb": nb})
    assert sum(len(t.examples) for t in tests) >= 12
    assert not sum(runner.run(t).failed for t in tests)


def test_nothing_leaks():
    m = M24()

    def once():
        s = ShardingSpec(m, [("dp", "tp:(1)2"), None], set(), {"tp:(2)2"})
        _nabla.spec_settle(s, None, 2)
        compute_global_shape((1, 2), s)
        repr(s)
        for bad in (["dp", "dp"], [3], ["nope"]):
            with pytest.raises(ValueError):
                ShardingSpec(m, bad)

    def objects():
        gc.collect()
        return len(gc.get_objects())

    for _ in range(5):
        once()
    before = objects()
    for _ in range(50):
        once()
    assert objects() - before < 20


def test_rules_of_a_mesh():
    plain = DeviceMesh("rules", (4,), ("tp",))
    ruled = DeviceMesh("rules", (4,), ("tp",), spill=False, mask=True)
    assert (plain.spill, plain.mask) == (True, False)
    x, order = nb.arange(0, 128).reshape((8, 16)), ("tp", None)
    for mesh, found in ((plain, order), (ruled, (None, None))):
        y = nb.argsort(nb.shard(x, mesh, nb.P(None, "tp")), axis=1)
        assert y.sharding == ShardingSpec(mesh, found)
    a = nb.shard(nb.ones((8, 4)), ruled, nb.P(None, "tp")).sum(axis=1)
    b = a + nb.shard(nb.ones((8,)), ruled, nb.P(None))
    assert b.sharding.partial_sum_axes == {"tp"}
    assert b.tolist() == [5.0] * 8
    again = pickle.loads(pickle.dumps(ruled))
    assert (again.spill, again.mask) == (False, True)
