"""What devices and lanes say to each other, from Python: the outcomes that the
manual tables, pipelines, and functions over a mesh, against NumPy and against
the same programs on no mesh."""

import doctest
import sys
import warnings
from collections import namedtuple

import numpy as np
import pytest
from nabla.ops.communication import (
    axis_index,
    broadcast,
    gather_all_axes,
    pbroadcast,
    pmean,
    pscatter,
    pvary,
)

import nabla as nb
from nabla import DeviceMesh, DimSpec, P, ShardingSpec, _collective


def line(axis="tp", n=2):
    return DeviceMesh("line", (n,), (axis,))


def grid(m=2, n=2, axes=("x", "y")):
    return DeviceMesh("grid", (m, n), axes)


def M24():
    return grid(2, 4, ("dp", "tp"))


def values(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def counting(*shape):
    return np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)


def axes(x):
    """Of each dim, hidden ones first."""
    return [dim.axes for dim in x.sharding.dim_specs]


def same(x, expected):
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12, atol=1e-12)


def on(mesh, spec, x):
    return nb.constant(x).shard(mesh, spec)


# Values and layouts.


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_one_axis_is_gathered(axis):
    for mesh, spec in (
        (line(), P("tp", None)),
        (line(), P(None, "tp")),
        (M24(), P("dp", "tp")),
        (M24(), P(("tp", "dp"), None)),
    ):
        x = on(mesh, spec, counting(8, 8))
        want = axes(x)
        want[axis] = []
        y = nb.all_gather(x, axis=axis)
        assert axes(y) == want and y.shape == (8, 8)
        same(y, counting(8, 8))


def test_gathers_of_all_axes_and_of_none():
    x = on(grid(), P("x", "y"), counting(4, 4))
    for y in (gather_all_axes(x), nb.all_gather(x)):
        assert y.sharding.is_fully_replicated()
        same(y, counting(4, 4))
    y = on(M24(), P(("dp", "tp")), counting(8))
    assert axes(nb.all_gather(y, 0, axis_name="tp")) == [["dp"]]
    u = nb.ones(3)
    assert nb.all_gather(u, 0).sharding is None
    assert gather_all_axes(u).sharding is None
    pending = nb.matmul(
        on(line(), P(None, "tp"), counting(2, 4)),
        on(line(), P("tp"), counting(4, 2)),
    )
    assert pending.sharding.partial_sum_axes == {"tp"}
    assert gather_all_axes(pending).sharding.is_fully_replicated()
    same(gather_all_axes(pending), counting(2, 4) @ counting(4, 2))


@pytest.mark.parametrize("in_axes", [0, 1, 2])
def test_gathers_in_vmaps(in_axes):
    mesh, a = line(), counting(4, 4, 4)

    def f(x):
        return nb.all_gather(x.shard(mesh, P(None, "tp")), axis=1)

    y = nb.vmap(f, in_axes=in_axes, out_axes=in_axes)(nb.constant(a))
    assert y.sharding.is_fully_replicated()
    same(y, a)

    def g(x):
        return nb.all_gather(x.shard(mesh, P("tp")), axis=0)

    two = nb.vmap(nb.vmap(g, in_axes=1, out_axes=1), in_axes, in_axes)
    y = two(nb.constant(a))
    assert y.sharding.is_fully_replicated()
    same(y, a)
    placed = on(mesh, P(None, None, "tp"), a)
    y = nb.vmap(lambda x: nb.all_gather(x, axis=1))(placed)
    assert y.sharding.is_fully_replicated()


def test_gathers_by_physical_axis():
    mesh, a = grid(), counting(4, 4)
    seen = []

    def f(x):
        for physical in (0, 1):
            y = nb.all_gather(x, physical_axis=physical)
            seen.append(axes(y))
            same_as = nb.all_gather(x, physical_axis=physical - 2)
            assert axes(same_as) == axes(y) and y.shape == (4,)
        return y

    y = nb.vmap(f)(on(mesh, P("x", "y"), a))
    assert seen == [[[], ["y"]], [["x"], []]]
    same(y, a)
    with pytest.raises(ValueError, match="either axis or physical_axis"):
        nb.all_gather(y, axis=0, physical_axis=1)


def test_resharding_from_one_axis_to_another():
    x = on(M24(), ["dp", None], counting(8, 8))
    mesh = x.sharding.mesh
    y = nb.reshard(x, mesh, [None, "tp"])
    assert axes(y) == [[], ["tp"]]
    same(y, counting(8, 8))
    z = on(mesh, [DimSpec(["dp"]), DimSpec([])], counting(8, 8))
    assert axes(z) == [["dp"], []] and z.shape == (8, 8)


def halves(u):
    return u[: len(u) // 2], u[len(u) // 2 :]


def test_the_sum_of_the_halves():
    mesh, u = line(), values(6)

    def f(u):
        return nb.all_reduce(u.shard(mesh, P("tp")))

    a, b = halves(u)
    r = f(nb.constant(u))
    assert r.shape == (3,) and r.sharding.is_fully_replicated()
    same(r, a + b)
    du = values(6, seed=1)
    y, dy = nb.jvp(f, (nb.constant(u),), (nb.constant(du),))
    same(y, a + b)
    same(dy, du[:3] + du[3:])
    g = nb.grad(lambda u: nb.sum(f(u) ** 2))(nb.constant(u))
    same(g, np.concatenate([2 * (a + b)] * 2))
    many = values(2, 3, 6, seed=2)
    want = many[..., :3] + many[..., 3:]
    same(nb.vmap(nb.vmap(f))(nb.constant(many)), want)
    back = nb.vmap(nb.vmap(nb.grad(lambda u: nb.sum(f(u) ** 2))))
    same(back(nb.constant(many)), np.concatenate([2 * want] * 2, -1))
    same(nb.compile(f)(nb.constant(u)), a + b)


def test_other_reductions():
    mesh, a = line(), counting(4, 2)
    x = on(mesh, P("tp", None), a)
    same(nb.all_reduce(x, reduce_op="prod"), a[:2] * a[2:])
    same(nb.all_reduce(x, reduce_op="max"), a[2:])
    same(nb.all_reduce(x, reduce_op="min"), a[:2])
    whole = on(mesh, P(), a)
    for op in ("max", "min"):
        same(nb.all_reduce(whole, reduce_op=op), a)
    same(nb.all_reduce(whole), 2 * a)
    both = on(M24(), P(("dp", "tp")), counting(16))
    same(nb.all_reduce(both), counting(16).reshape(8, 2).sum(0))
    by = counting(16).reshape(2, 4, 2)
    y = nb.all_reduce(both, reduce_axes="tp")
    assert axes(y) == [["dp"]]
    same(y, by.sum(1).reshape(-1))
    for names in (["dp"], {"dp"}, ("dp",), iter(["dp"])):
        y = nb.all_reduce(both, reduce_axes=names)
        assert axes(y) == [["tp"]]
        same(y, by.sum(0).reshape(-1))
    same(nb.all_reduce(both, reduce_axes=["tp", "dp"]), by.sum((0, 1)))
    assert nb.all_reduce(nb.ones(3)).tolist() == [1.0] * 3
    same(x.all_reduce(), a[:2] + a[2:])


def test_a_pending_sum_is_settled_once():
    mesh = M24()
    p = nb.matmul(
        on(mesh, P(None, "tp"), counting(2, 4)),
        on(mesh, P("tp"), counting(4, 3)),
    )
    assert p.sharding.partial_sum_axes == {"tp"}
    y = nb.all_reduce(p)
    assert not y.sharding.partial_sum_axes
    same(y, counting(2, 4) @ counting(4, 3))
    same(nb.all_reduce(p, reduce_axes="tp"), counting(2, 4) @ counting(4, 3))
    same(nb.all_reduce(p, reduce_axes="dp"), 2 * y.numpy())


def test_a_mesh_to_reduce_over():
    mesh, other = line(), line("dp", 4)
    x = on(mesh, P("tp"), counting(4))
    same(nb.all_reduce(x, reduce_axes="tp", mesh=mesh), [4, 6])
    u = nb.constant(counting(4))
    assert nb.all_reduce(u, mesh=mesh).tolist() == u.tolist()
    y = nb.all_reduce(u, reduce_axes=["tp"], mesh=mesh)
    assert y.tolist() == u.tolist()
    f = nb.vmap(
        lambda x: nb.all_reduce(x, reduce_axes=["tp", "i"], mesh=mesh),
        axis_name="i",
    )
    assert f(u).tolist() == [10.0] * 4
    with pytest.raises(ValueError, match="'dp'"):
        nb.all_reduce(u, reduce_axes="dp", mesh=mesh)
    with pytest.raises(ValueError, match="lies on @line, the mesh is"):
        nb.all_reduce(x, mesh=other)


def test_means_and_places():
    mesh = M24()
    x = on(mesh, P(), counting(3))
    for y in (pmean(x, "dp"), pmean(x), pmean(x, ("dp", "tp"))):
        same(y, counting(3))
    same(pmean(on(mesh, P("dp"), counting(4)), "dp"), [2, 3])
    for name, n in (("dp", 2), ("tp", 4)):
        i = axis_index(mesh, name)
        assert i.tolist() == [*range(n)] and i.dtype == nb.int32
        assert axes(i) == [[name]] and i.local_shape == (1,)


def test_scattered_sums():
    mesh = line("dp", 4)
    y = nb.reduce_scatter(on(mesh, P(), counting(8, 2)), axis=0)
    assert y.shape == (8, 2) and axes(y) == [["dp"], []]
    same(y, 4 * counting(8, 2))
    y = nb.reduce_scatter(on(grid(), P("x"), counting(8)), 0)
    assert y.shape == (4,) and axes(y) == [["x"]]
    same(y, counting(8)[:4] + counting(8)[4:])
    f = nb.vmap(lambda r: nb.reduce_scatter(r, axis=0))
    a = counting(3, 8)
    y = f(on(grid(), P(None, "x"), a))
    assert axes(y) == [[], ["x"]] and y.shape == (3, 4)
    same(y, a[:, :4] + a[:, 4:])
    y = nb.reduce_scatter(
        on(grid(), P(None, ("x", "y")), counting(1, 8)), -1, axis_name="y"
    )
    assert y.tolist() == [[4.0, 6.0, 12.0, 14.0]]


def test_another_axis_is_split():
    mesh, a = line(), counting(4, 2)
    for split, concat in ((1, 0), (-1, -2)):
        y = nb.all_to_all(on(mesh, P("tp", None), a), split, concat)
        assert axes(y) == [[], ["tp"]] and y.shape == a.shape
        same(y, a)
    many = on(mesh, P(None, "tp", None), counting(3, 4, 2))
    f = nb.vmap(lambda x: nb.all_to_all(x, split_axis=1, concat_axis=0))
    assert axes(f(many)) == [[], [], ["tp"]]
    same(f(many), counting(3, 4, 2))

    def loss(u):
        y = nb.all_to_all(u.shard(mesh, P("tp")), split_axis=0, concat_axis=0)
        return nb.sum(y**2)

    same(nb.grad(loss)(nb.constant(counting(8))), 2 * counting(8))
    with pytest.raises(ValueError, match="divisible"):
        nb.all_to_all(on(mesh, P("tp"), counting(3)), 0, 0)


def test_blocks_go_round():
    mesh = line("stage", 4)
    ring = [(i, (i + 1) % 4) for i in range(4)]
    x = on(mesh, P("stage"), counting(8))
    for y in (
        nb.ppermute(x, ring),
        nb.ppermute(x, perm=ring),
        nb.ppermute(x, ring, axis_name="stage"),
        nb.ppermute(x, np.array(ring)),
        x.ppermute(ring),
        nb.compile(lambda x: nb.ppermute(x, ring))(x),
    ):
        assert axes(y) == [["stage"]]
        same(y, np.roll(counting(8), 2))
    g = nb.grad(lambda x: nb.sum(nb.ppermute(x, ring)))(x)
    same(g, np.ones(8))
    assert axes(g) == [["stage"]]
    v = on(mesh, P("stage"), np.array([10.0, 20.0, 30.0, 40.0]))
    same(nb.ppermute(v, ring[:3]), [0, 10, 20, 30])
    _, back = nb.vjp(lambda v: nb.ppermute(v, ring[:3]), v)
    same(back(nb.constant(counting(4)))[0], [2, 3, 4, 0])
    w = on(grid(2, 4, ("a", "b")), P("a", "b"), counting(2, 4))
    same(nb.ppermute(w, ring, axis_name="b"), np.roll(counting(2, 4), 1, 1))
    y = nb.ppermute(w, [(0, 7), (7, 0)])  # devices of the mesh, row-major
    same(y, [[8, 0, 0, 0], [0, 0, 0, 1]])


def test_one_for_all():
    mesh, u = line("dp", 4), values(3)
    y = nb.distributed_broadcast(nb.constant(u), mesh)
    same(y, u)
    assert y.sharding.is_fully_replicated() and y.num_shards == 4
    f = nb.grad(lambda u: nb.sum(nb.distributed_broadcast(u, mesh) ** 2))
    same(f(nb.constant(u)), 8 * u)
    same(nb.compile(f)(nb.constant(u)), 8 * u)
    x = nb.constant(u)
    assert nb.distributed_broadcast(x).sharding is None
    y = broadcast(on(line(), P("tp"), counting(4)), root=1)
    assert y.sharding.is_fully_replicated()
    y = broadcast(x, mesh)
    assert y.sharding.mesh is mesh
    same(y, u)


def test_ops_on_a_dim_that_no_device_needs_whole():
    mesh, a = line("dp", 2), values(4, 6)
    x = on(mesh, P("dp"), a)
    for y, want in (
        (nb.tanh(x) + 1, np.tanh(a) + 1),
        (nb.unbind(x, 1)[2], a[:, 2]),
        (nb.split(x, 3, axis=1)[1], a[:, 2:4]),
        (nb.chunk(x, 2, axis=1)[0], a[:, :3]),
        (nb.gather(x, nb.constant([5, 0]), axis=1), a[:, [5, 0]]),
        (nb.unbind(x, 0)[3], a[3]),
        (nb.split(x, 2, axis=0)[1], a[2:]),
        (nb.gather(x, nb.constant([3, 0]), axis=0), a[[3, 0]]),
    ):
        assert y.is_sharded
        same(y, want)
    assert axes(nb.zeros_like(x)) == [["dp"], []]
    g = nb.grad(lambda x: nb.sum(nb.tanh(x)))(x)
    assert axes(g) == [["dp"], []]


def test_an_mlp_split_both_ways_has_one_sum_pending():
    mesh, a, w, v = line(), values(4, 6), values(6, 8), values(8, 2)
    h = nb.relu(nb.constant(a) @ on(mesh, P(None, "tp"), w))
    assert axes(h) == [[], ["tp"]]
    y = h @ on(mesh, P("tp"), v)
    assert y.sharding.partial_sum_axes == {"tp"}
    same(y, np.maximum(a @ w, 0) @ v)


# vmap over a mesh.


def test_what_is_not_mapped_is_stacked_on_the_axis():
    mesh = line("stage", 2)
    f = nb.vmap(
        lambda a, b: a + 2 * b,
        in_axes=(None, None),
        axis_size=2,
        spmd_axis_name="stage",
        mesh=mesh,
    )
    a, b = nb.constant(counting(3)), nb.constant(10 * counting(3))
    y = f(a, b)
    assert axes(y) == [["stage"], []] and y.local_shape == (1, 3)
    same(y, np.stack([21 * counting(3)] * 2))


def test_lanes_lie_on_the_axis_and_keep_what_splits_them():
    mesh = grid(2, 2, ("a", "b"))
    f = nb.vmap(lambda x: 3 * x, spmd_axis_name="a", mesh=mesh)
    x = on(mesh, P(None, "b"), counting(4, 2))
    assert axes(f(x)) == [["a"], ["b"]]
    without = nb.vmap(lambda x: 3 * x, spmd_axis_name="a")
    assert axes(without(x)) == [["a"], ["b"]]  # the mesh of the argument
    assert without(nb.ones((4, 2))).sharding is None
    tree = nb.vmap(lambda t: {"y": t["x"] * 2}, spmd_axis_name="a")
    assert axes(tree({"n": nb.ones(4), "x": x})["y"]) == [["a"], ["b"]]
    assert axes(nb.vmap(nb.sin)(on(mesh, P("a"), counting(4, 2))))[0] == ["a"]
    moved = nb.vmap(nb.sin, 1, 1, spmd_axis_name="a", mesh=mesh)
    assert axes(moved(nb.ones((3, 4)))) == [[], ["a"]]
    inner = nb.vmap(nb.sin, spmd_axis_name="b", mesh=mesh)
    nested = nb.vmap(inner, spmd_axis_name="a", mesh=mesh)
    y = nested(nb.constant(counting(4, 2, 3)))
    assert axes(y) == [["a"], ["b"], []]
    same(y, np.sin(counting(4, 2, 3)))
    uneven = nb.vmap(nb.sin, spmd_axis_name="a", mesh=mesh)
    same(uneven(nb.constant(counting(5))), np.sin(counting(5)))
    g = nb.grad(lambda x: nb.sum(f(x) ** 2))(x)
    assert axes(g) == [[], ["b"]]
    same(g, 18 * counting(4, 2))
    same(nb.compile(f)(x), 3 * counting(4, 2))


def test_a_result_that_no_lane_differs_in():
    mesh = line("i", 2)
    f = nb.vmap(
        lambda x: (nb.all_reduce(x, reduce_axes="i"), x),
        out_axes=(None, 0),
        spmd_axis_name="i",
        mesh=mesh,
    )
    s, x = f(nb.constant(counting(2, 3)))
    same(s, counting(2, 3).sum(0))
    assert axes(x) == [["i"], []]


def test_specs_inside_cannot_name_the_axis_of_a_vmap():
    mesh = grid(2, 2, ("a", "b"))

    def f(axis):
        return nb.vmap(
            lambda x: x.shard(mesh, P(axis)), spmd_axis_name="a", mesh=mesh
        )

    x = nb.constant(counting(2, 4))
    assert axes(f("b")(x)) == [["a"], ["b"]]
    with pytest.raises(ValueError, match="'a' is that of a vmap or shard_map"):
        f("a")(x)
    bad = nb.vmap(nb.sin, spmd_axis_name="c", mesh=mesh)
    with pytest.raises(ValueError, match="vmap: mesh @grid has no axis 'c'"):
        bad(x)
    with pytest.raises(TypeError, match="DeviceMesh"):
        nb.vmap(nb.sin, spmd_axis_name="a", mesh="grid")(x)


# Of lanes, on a mesh and on none.

LANES = {
    "psum": (lambda x: nb.all_reduce(x, reduce_axes="i"), (2, 4)),
    "pmax": (
        lambda x: nb.all_reduce(x, reduce_op="max", reduce_axes="i"),
        (2, 4),
    ),
    "pprod": (
        lambda x: nb.all_reduce(x, reduce_op="prod", reduce_axes="i"),
        (2, 4),
    ),
    "pmean": (lambda x: pmean(x, "i"), (2, 4)),
    "ring": (lambda x: nb.ppermute(x, [(0, 1), (1, 0)]), (2, 4)),
    "shift": (lambda x: nb.ppermute(x, [(0, 1)], axis_name="i"), (2, 4)),
    "gather": (lambda x: nb.all_gather(x, 0, axis_name="i"), (2, 4)),
    "gather_new": (
        lambda x: nb.all_gather(x, 1, axis_name="i", tiled=False),
        (2, 4),
    ),
    "scatter": (lambda x: nb.reduce_scatter(x, 0, axis_name="i"), (2, 4)),
    "own": (
        lambda x: pscatter(nb.all_reduce(x, reduce_axes="i"), 0, "i"),
        (2, 4),
    ),
    "exchange": (
        lambda x: nb.all_to_all(x, 0, 1, axis_name="i"),
        (2, 4, 3),
    ),
    "exchange_new": (
        lambda x: nb.all_to_all(x, 0, 1, False, axis_name="i"),
        (2, 2, 3),
    ),
    "root": (lambda x: pbroadcast(x, 1, "i"), (2, 4)),
    "index": (lambda x: x * axis_index(axis_name="i"), (2, 4)),
}


def by_hand(name, a):
    """What each of two lanes gets."""
    both = {
        "psum": a.sum(0),
        "pmax": a.max(0),
        "pprod": a.prod(0),
        "pmean": a.mean(0),
        "gather": a.reshape(-1, *a.shape[2:]),
        "gather_new": np.moveaxis(a, 0, 1),
        "root": a[1],
    }
    if name in both:
        return np.stack([both[name]] * 2)
    if name in ("scatter", "own"):
        return a.sum(0).reshape(2, 2)
    if name == "exchange":
        halves = a.reshape(2, 2, 2, 3)  # lane, block, rest
        return np.stack(
            [np.concatenate([*halves[:, k]], axis=1) for k in (0, 1)]
        )
    if name == "exchange_new":
        return np.stack([np.stack([a[0, k], a[1, k]], 1) for k in (0, 1)])
    return {
        "ring": a[::-1],
        "shift": np.stack([0 * a[0], a[0]]),
        "index": a * np.array([[0], [1]]),
    }[name]


@pytest.mark.parametrize("name", LANES)
def test_lanes(name):
    f, shape = LANES[name]
    a = values(*shape)
    plain = nb.vmap(f, axis_name="i")
    laid = nb.vmap(f, spmd_axis_name="i", mesh=line("i", 2))
    x = nb.constant(a)
    same(plain(x), by_hand(name, a))
    same(laid(x), by_hand(name, a))
    assert axes(laid(x))[0] == ["i"]
    ct = nb.constant(values(*plain(x).shape, seed=1))
    u = nb.constant(values(*shape, seed=2))
    pulled = [nb.vjp(g, x)[1](ct)[0] for g in (plain, laid)]
    pushed = [nb.jvp(g, (x,), (u,))[1] for g in (plain, laid)]
    same(pulled[1], pulled[0].numpy())
    same(pushed[1], pushed[0].numpy())
    inner = (pulled[1].numpy() * u.numpy()).sum()
    assert inner == pytest.approx((ct.numpy() * pushed[1].numpy()).sum())
    same(nb.compile(laid)(x), by_hand(name, a))
    many = nb.constant(values(3, *shape, seed=3))
    want = [by_hand(name, b) for b in many.numpy()]
    same(nb.vmap(laid)(many), np.stack(want))


# A pipeline.

S, M, B, D = 4, 8, 2, 3


def layer(w, x):
    return nb.tanh(x @ w)


def pipeline(w, x, mesh):
    """Microbatches x (M, B, D) through stages w (S, D, D); at every tick the
    first stage takes one in, and each passes on what it made."""
    ring = [(i, (i + 1) % S) for i in range(S)]
    step = nb.vmap(layer, spmd_axis_name="stage", mesh=mesh)
    shift = nb.vmap(
        lambda s: nb.ppermute(s, ring, axis_name="stage"),
        spmd_axis_name="stage",
        mesh=mesh,
    )
    mask = nb.reshape(axis_index(mesh, "stage") == 0, (S, 1, 1))
    state = nb.zeros((S, B, D), dtype=nb.float64).shard(mesh, P("stage"))
    out = []
    for tick in range(M + S - 1):
        fresh = x[min(tick, M - 1)]
        state = step(w, nb.where(mask, fresh, state))
        if tick >= S - 1:
            out.append(state[S - 1])
        state = shift(state)
        assert axes(state) == [["stage"], [], []]
    return nb.stack(out)


def sequence(w, x):
    for s in range(S):
        x = layer(w[s], x)
    return x


@pytest.mark.parametrize("compiled", [False, True])
def test_a_pipeline_is_the_sequence_of_its_stages(compiled):
    mesh = line("stage", S)
    w, x = nb.constant(values(S, D, D)), nb.constant(values(M, B, D, seed=1))

    def run(w, x):
        return pipeline(w, x, mesh)

    def grads(f):
        g = nb.grad(lambda w, x: nb.sum(f(w, x) ** 2), (0, 1))
        return nb.compile(g) if compiled and f is run else g

    f = nb.compile(run) if compiled else run
    same(f(w, x), sequence(w, x).numpy())
    w = w.shard(mesh, P("stage"))
    same(f(w, x), sequence(w, x).numpy())
    got, want = grads(run)(w, x), grads(sequence)(w, x)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        same(a, b.numpy())
    assert axes(got[0]) == [["stage"], [], []]


def test_gradients_through_a_ring_and_a_mask():
    mesh = line("stage", 4)
    ring = [(i, (i + 1) % 4) for i in range(4)]
    shift = nb.vmap(
        lambda x: nb.ppermute(x * x, ring), spmd_axis_name="stage", mesh=mesh
    )
    first = nb.constant(np.arange(4).reshape(4, 1, 1) == 0)
    mask = first.shard(mesh, P("stage"))
    a, b = values(4, 2, 3), values(4, 2, 3, seed=1)

    def loss(x, y):
        return nb.sum(nb.where(mask, y, shift(x)) * y)

    dx, dy = nb.grad(loss, (0, 1))(on(mesh, P("stage"), a), nb.constant(b))
    moved = np.where(np.arange(4).reshape(4, 1, 1) == 0, 0, b)
    same(dx, 2 * a * np.roll(moved, -1, 0))
    head = np.arange(4).reshape(4, 1, 1) == 0
    same(dy, np.where(head, 2 * b, np.roll(a * a, 1, 0)))
    assert axes(dx) == [["stage"], [], []]


# shard_map.


def mlp(w, x):
    return nb.tanh(x @ w["a"]) @ w["b"]


def weights():
    return {
        "a": nb.constant(values(4, 8)),
        "b": nb.constant(values(8, 2, seed=1)),
    }


def test_a_function_in_the_global_view():
    mesh, w, x = M24(), weights(), nb.constant(values(4, 4, seed=2))
    specs = ({"a": P(None, "tp"), "b": P("tp", None)}, P("dp"))
    want = mlp(w, x).numpy()
    seen = []

    def body(w, x):
        seen.append((axes(w["a"]), axes(w["b"]), axes(x), x.shape))
        return mlp(w, x)

    f = nb.shard_map(body, mesh, specs, P("dp"))
    y = f(w, x)
    assert seen == [([[], ["tp"]], [["tp"], []], [["dp"], []], (4, 4))]
    assert axes(y) == [["dp"], []] and not y.sharding.partial_sum_axes
    same(y, want)
    free = nb.shard_map(mlp, mesh, in_specs=specs)(w, x)
    assert free.sharding.partial_sum_axes == {"tp"}
    same(free, want)

    def loss(f):
        return lambda w, x: nb.sum(f(w, x) ** 2)

    got, plain = (nb.grad(loss(g), (0, 1))(w, x) for g in (f, mlp))
    for a, b in zip(nb.tree_leaves(got), nb.tree_leaves(plain), strict=True):
        same(a, b.numpy())
    same(nb.compile(f)(w, x), want)
    u = nb.constant(values(4, 4, seed=3))
    pushed = [nb.jvp(lambda x, g=g: g(w, x), (x,), (u,))[1] for g in (f, mlp)]
    same(pushed[0], pushed[1].numpy())
    many = nb.constant(values(3, 4, 4, seed=4))
    mapped = [nb.vmap(g, in_axes=(None, 0))(w, many) for g in (f, mlp)]
    same(mapped[0], mapped[1].numpy())


def test_forms_of_shard_map():
    mesh, a = line("dp", 2), counting(4)
    x = nb.constant(a)

    @nb.shard_map(mesh, in_specs=P("dp"))
    def double(x):
        """Twice."""
        assert axes(x) == [["dp"]]
        return 2 * x

    @nb.shard_map(mesh=mesh, in_specs=P("dp"), out_specs=P())
    def triple(x):
        return 3 * x

    same(double(x), 2 * a)
    assert double.__name__ == "double" and double.__doc__ == "Twice."
    assert triple(x).sharding.is_fully_replicated()
    f = nb.shard_map(lambda x: x, mesh=mesh, in_specs=P("dp"))
    assert axes(f(x)) == [["dp"]]
    from nabla.transforms import shard_map as function
    from nabla.transforms.shard_map import shard_map as inner

    assert nb.shard_map is function is inner


def test_forms_of_specs():
    mesh = line("dp", 2)
    x = nb.constant(counting(4, 2))
    spec = ShardingSpec(mesh, ["dp", None])
    split, free = [["dp"], []], None

    def lies(in_specs, *args):
        seen = []

        def body(*args):
            leaves = nb.tree_leaves(args)
            seen.append([t.sharding and axes(t) for t in leaves])
            return args

        nb.shard_map(body, mesh, in_specs)(*args)
        return seen[0]

    assert lies(P("dp"), x, x) == [split, split]
    assert lies(spec, x, x) == [split, split]
    assert lies((P("dp"), None), x, x) == [split, free]
    assert lies([None, P("dp")], x, x) == [free, split]
    assert lies({0: spec}, x, x) == [split, free]
    assert lies({1: spec, 0: None}, x, x) == [free, split]
    assert lies({1: P("dp")}, x, x) == [free, split]
    assert lies({}, x) == [free] and lies(None, x) == [free]
    assert lies({"a": P("dp"), "b": None}, {"a": x, "b": x}) == [split, free]
    assert lies((P("dp"), None), [x, {"k": x}], x) == [split, split, free]
    assert lies(([P("dp"), {"k": None}], None), [x, {"k": x}], x) == [
        split,
        free,
        free,
    ]
    Pair = namedtuple("Pair", "u v")
    assert lies((Pair(P("dp"), None),), Pair(x, x)) == [split, free]
    assert lies((Pair(P("dp"), None),), Pair(x, None)) == [split]


def test_structures_of_results():
    mesh, x = line("dp", 2), nb.constant(counting(4))
    Pair = namedtuple("Pair", "u v")

    def run(out_specs, body):
        return nb.shard_map(body, mesh, P("dp"), out_specs)(x)

    y = run(P(), lambda x: Pair(x, {"k": x, "n": None, "s": 2}))
    assert isinstance(y, Pair) and y.v["n"] is None and y.v["s"] == 2
    assert axes(y.u) == axes(y.v["k"]) == [[]]
    y = run((P(), None), lambda x: (x, x))
    assert isinstance(y, tuple) and (axes(y[0]), axes(y[1])) == ([[]], [["dp"]])
    y = run({1: P()}, lambda x: [x, x])
    assert isinstance(y, list) and axes(y[1]) == [[]]
    assert axes(run({0: P()}, lambda x: x)) == [[]]
    y = run({"a": P(), "b": None}, lambda x: {"b": x, "a": x})
    assert (axes(y["a"]), axes(y["b"])) == ([[]], [["dp"]])
    f = nb.shard_map(lambda x, *, by: x * by, mesh, P("dp"))
    same(f(x, by=3), 3 * counting(4))
    g = nb.shard_map(lambda x, n: x * n, mesh, P("dp"))
    same(g(x, 3), 3 * counting(4))


def test_specs_that_are_left_out_are_chosen(capsys):
    mesh, w, x = line("d", 4), weights(), nb.constant(values(8, 4, seed=2))
    want = mlp(w, x).numpy()

    def seen(in_specs, out_specs=None, **more):
        f = nb.shard_map(
            mlp, mesh, in_specs, out_specs, auto_sharding=True, **more
        )
        y = f(w, x)
        same(y, want)
        return f, y

    f, y = seen(None)
    assert axes(y) == [["d"], []] and not capsys.readouterr().out
    _, y = seen(None, P(None, None))
    assert y.sharding.is_fully_replicated()
    specs = ({"a": P(None, "d"), "b": None}, None)
    _, y = seen(specs, debug=True)
    plan = capsys.readouterr().out
    assert "(4, 8@d)" in plan and "cost" in plan and "bound" in plan
    got, plain = (
        nb.grad(lambda w, x, g=g: nb.sum(g(w, x) ** 2), (0, 1))(w, x)
        for g in (f, mlp)
    )
    for a, b in zip(nb.tree_leaves(got), nb.tree_leaves(plain), strict=True):
        same(a, b.numpy())
    same(nb.compile(f)(w, x), want)
    u = nb.constant(values(8, 4, seed=3))
    pushed = [nb.jvp(lambda x, g=g: g(w, x), (x,), (u,))[1] for g in (f, mlp)]
    same(pushed[0], pushed[1].numpy())
    many = nb.constant(values(3, 8, 4, seed=4))
    same(
        nb.vmap(f, in_axes=(None, 0))(w, many),
        nb.vmap(mlp, in_axes=(None, 0))(w, many).numpy(),
    )
    g = nb.shard_map(
        lambda x, n, *, by: {"y": x * n + by}, mesh, None, auto_sharding=True
    )
    same(g(x, 3, by=1)["y"], 3 * x.numpy() + 1)
    same(g(2 * x, 5, by=x)["y"], 11 * x.numpy())  # planned anew


# The manual view: x (4, 4) over two devices, blocks (2, 4).

MANUAL = {
    "psum": (P("i"), P(), (2, 4)),
    "pmax": (P("i"), P(), (2, 4)),
    "pmean": (P("i"), P(), (2, 4)),
    "ring": (P("i"), P("i"), (2, 4)),
    "shift": (P("i"), P("i"), (2, 4)),
    "gather": (P("i"), P(), (4, 4)),
    "scatter": (P("i"), P("i"), (1, 4)),
    "own": (P(None, "i"), P("i"), (2, 2)),
    "exchange": (P(None, "i"), P("i"), (2, 4)),
    "root": (P("i"), P(), (2, 4)),
    "index": (P("i"), P("i"), (2, 4)),
}


def blocks(a, spec):
    return np.stack(np.split(a, 2, 0 if spec[0] else 1))


@pytest.mark.parametrize("name", MANUAL)
def test_the_manual_view(name):
    body, a, mesh = LANES[name][0], values(4, 4), line("i", 2)
    into, out, local = MANUAL[name]
    seen = []

    def f(x):
        y = body(x)
        seen.append((x.shape, y.shape))
        return y

    over = nb.shard_map(f, mesh, into, out, axis_names="i")
    x = nb.constant(a)
    y = over(x)
    b = blocks(a, into)
    assert seen[0] == (b.shape[1:], local)
    if name == "exchange":
        each = [np.concatenate([*b[:, k : k + 2]], axis=1) for k in (0, 2)]
    elif name == "own" or name == "scatter":
        each = np.split(b.sum(0), 2)
    elif name == "index":
        each = [0 * b[0], b[1]]
    else:
        each = by_hand(name, b)
    want = np.concatenate([*each]) if out else each[0]
    same(y, want)
    assert axes(y) == [["i"] if out else [], []]
    ct = nb.constant(values(*want.shape, seed=1))
    u = nb.constant(values(4, 4, seed=2))
    pulled = nb.vjp(over, x)[1](ct)[0].numpy()
    pushed = nb.jvp(over, (x,), (u,))[1].numpy()
    assert (pulled * u.numpy()).sum() == pytest.approx(
        (ct.numpy() * pushed).sum()
    )
    eps = 1e-6
    up, down = (over(x + s * eps * u).numpy() for s in (1, -1))
    np.testing.assert_allclose(pushed, (up - down) / (2 * eps), atol=1e-7)
    same(nb.compile(over)(x), want)
    many = nb.stack([x, x])
    same(nb.vmap(over)(many), np.stack([want, want]))


def test_a_training_step_by_hand():
    mesh = line("dp", 4)
    x, y = values(8, 3), values(8, 1, seed=1)
    w = {"w": values(3, 1, seed=2), "b": values(1, seed=3)}

    def loss(w, x, y):
        return nb.mean((x @ w["w"] + w["b"] - y) ** 2)

    def step(w, x, y):
        value, grads = nb.value_and_grad(loss)(w, x, y)
        return pmean(value, "dp"), nb.tree_map(
            lambda v, g: v - 0.1 * pmean(g, "dp"), w, grads
        )

    tensors = nb.tree_map(nb.constant, (w, x, y))
    value, grads = nb.value_and_grad(loss)(*tensors)
    over = nb.shard_map(
        step,
        mesh,
        in_specs=(P(), P("dp"), P("dp")),
        out_specs=P(),
        axis_names=["dp"],
    )
    for f in (over, nb.compile(over)):
        got, new = f(*tensors)
        same(got, value.numpy())
        for k in w:
            same(new[k], w[k] - 0.1 * grads[k].numpy())
            assert new[k].sharding.is_fully_replicated()


def test_a_matmul_by_rows_and_other_axes():
    mesh = grid(2, 2, ("a", "b"))
    x, w = nb.constant(values(4, 4)), nb.constant(values(4, 2, seed=1))
    want = x.numpy() @ w.numpy()

    def rows(x, w):
        return nb.all_reduce(x @ w, reduce_axes="a")

    f = nb.shard_map(rows, mesh, (P(None, "a"), P("a")), P(), axis_names={"a"})
    same(f(x, w), want)
    specs = (P("a"), P(None, "b"))
    f = nb.shard_map(nb.matmul, mesh, specs, P("a", "b"), axis_names={"a"})
    assert axes(f(x, w)) == [["a"], ["b"]]
    same(f(x, w), want)
    both = nb.shard_map(
        lambda x: x - pmean(x, ("a", "b")),
        mesh,
        P(("b", "a")),
        P(("b", "a")),
        axis_names=("a", "b"),
    )
    same(both(x), x.numpy() - x.numpy().mean(0))

    def outer(x):
        inner = nb.shard_map(
            lambda x: x - nb.all_reduce(x, reduce_axes="b"),
            mesh,
            P(None, "b"),
            P(None, "b"),
            axis_names="b",
        )
        return nb.all_reduce(inner(x), reduce_axes="a")

    nested = nb.shard_map(outer, mesh, P("a"), P(), axis_names="a")
    rest = x.numpy()[:, [2, 3, 0, 1]]
    same(nested(x), -(rest[:2] + rest[2:]))


def talk(x):
    return nb.sin(x) * nb.all_reduce(x, reduce_axes="i")


def with_a_rule():
    own = nb.custom_vjp(talk)

    def pull(x, ct):
        here = ct * nb.cos(x) * nb.all_reduce(x, reduce_axes="i")
        return (here + nb.all_reduce(ct * nb.sin(x), reduce_axes="i"),)

    own.defvjp(lambda x: (talk(x), x), pull)
    return own


def looped(x):
    def step(c, a):
        return c + nb.all_reduce(a, reduce_axes="i"), c * a

    return nb.scan(step, nb.zeros(4, dtype=nb.float64), x)[1]


def loop_by_hand(x):
    first = x[0] + x[2]
    return nb.stack([0 * x[0], first * x[1], 0 * x[2], first * x[3]])


def halves_talk(x):
    both = x[:2] + x[2:]
    return nb.sin(x) * nb.concatenate([both, both], 0)


@pytest.mark.parametrize(
    "inside, plain",
    [
        (talk, halves_talk),
        (nb.checkpoint(talk), halves_talk),
        (nb.compile(talk), halves_talk),
        (with_a_rule(), halves_talk),
        (looped, loop_by_hand),
        (
            lambda x: nb.cond(nb.sum(x) > 0, lambda x: 2 * x, lambda x: x, x),
            lambda x: nb.concatenate([2 * x[:2], x[2:]], 0),
        ),
        (
            lambda x: nb.while_loop(
                lambda s: nb.sum(abs(s)) < 50, lambda s: 2 * s, x
            ),
            None,
        ),
    ],
)
def test_programs_inside_the_manual_view(inside, plain):
    mesh = line("i", 2)
    a = np.concatenate([abs(values(2, 4)), -abs(values(2, 4, seed=1))])
    x = nb.constant(a)
    f = nb.shard_map(inside, mesh, P("i"), P("i"), axis_names="i")
    if plain is None:
        halves = [a[:2], a[2:]]
        for k in (0, 1):
            while abs(halves[k]).sum() < 50:
                halves[k] = 2 * halves[k]
        same(f(x), np.concatenate(halves))
        return
    same(f(x), plain(x).numpy())
    got, want = (
        nb.grad(lambda x, g=g: nb.sum(g(x) ** 2))(x) for g in (f, plain)
    )
    same(got, want.numpy())


def test_second_derivatives_in_the_manual_view():
    mesh, x = line("i", 2), nb.constant(values(16))
    f = nb.shard_map(talk, mesh, P("i"), P("i"), axis_names="i")
    got, want = (
        nb.hessian(lambda v, g=g: nb.sum(g(v.reshape(4, 4)) ** 2))(x)
        for g in (f, halves_talk)
    )
    same(got, want.numpy())


def over_i(body, *spec, **more):
    mesh = line("i", 2)
    return nb.shard_map(body, mesh, P(*spec), P(), axis_names="i", **more)


def test_sums_of_what_no_device_differs_in_warn():
    x = nb.constant(counting(4))
    total = over_i(lambda x: nb.all_reduce(x, reduce_axes="i"))
    with pytest.warns(RuntimeWarning, match="counted 2 times") as told:
        same(total(x), 2 * counting(4))
    assert told[0].filename == __file__
    meant = over_i(lambda x: nb.all_reduce(pvary(x, "i"), reduce_axes=["i"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(meant(x), 2 * counting(4))
        same(nb.grad(lambda x: nb.sum(meant(x)))(x), np.full(4, 2.0))
        same(over_i(lambda x: pmean(x, "i"))(x), counting(4))
        by_lanes = nb.vmap(
            lambda x: nb.all_reduce(x, reduce_axes="i"),
            in_axes=None,
            axis_size=2,
            axis_name="i",
            out_axes=None,
        )
        same(by_lanes(x), 2 * counting(4))
        with pytest.raises(RuntimeWarning, match="pvary says"):
            total(x)
    with pytest.raises(ValueError, match="varies, 'i'"):
        over_i(lambda x: pvary(x, "i"))(x)


def test_a_result_of_the_first_device_if_that_will_do():
    x = nb.constant(counting(4))
    with pytest.raises(ValueError, match="varies, 'i'"):
        over_i(identity, "i")(x)
    y = over_i(identity, "i", unsafe=True)(x)
    same(y, counting(2))
    assert y.sharding.is_fully_replicated()


# Misuse: errors at the call, and nothing stays open.


def identity(x):
    return x


def bad_permutations():
    x = on(line("s", 4), P("s"), counting(8))
    y = on(grid(), P(None, "y"), counting(1, 4))
    return [
        (lambda: nb.ppermute(x, [(0, 1), (2, 1)]), "1 is a target twice"),
        (lambda: nb.ppermute(x, [(0, 4)]), "pair \\(0, 4\\) of 4 devices"),
        (lambda: nb.ppermute(x, [(-1, 0)]), "pair \\(-1, 0\\)"),
        (lambda: nb.ppermute(x, [(0, 1)], axis_name="t"), "no axis 't'"),
        (lambda: nb.ppermute(x), "either permutation or perm"),
        (lambda: nb.ppermute(x, [], perm=[]), "either permutation or perm"),
        (lambda: nb.ppermute(x, [(0, 1, 2)]), "unpack"),
        (lambda: nb.ppermute(y, [(0, 1)]), "has the same block"),
        (lambda: nb.ppermute(nb.ones(2), [(0, 1)]), "of 1 devices"),
        (
            lambda: nb.ppermute(on(line("s", 4), P("s"), counting(6)), []),
            "divisible",
        ),
    ]


def bad_collectives():
    mesh = line()
    x, r = on(mesh, P("tp"), counting(4)), on(mesh, P(), counting(3))
    other = DeviceMesh("other", (2,), ("tp",), devices=[4, 5])
    return [
        (lambda: nb.all_reduce(x, reduce_axes="q"), "no axis 'q'"),
        (lambda: nb.all_reduce(x, reduce_axes=["tp", "tp"]), "twice"),
        (lambda: nb.all_reduce(x, reduce_op="mean"), "'mean' is not sum"),
        (lambda: nb.all_reduce(x, reduce_axes=[3]), "3 is not a str"),
        (lambda: nb.all_reduce(nb.ones(2), reduce_axes="tp"), "no open vmap"),
        (lambda: pmean(x, "q"), "pmean: mesh @line has no axis 'q'"),
        (lambda: nb.all_gather(x, 0, axis_name="q"), "no axis 'q'"),
        (lambda: nb.all_gather(x, 1), "out of range"),
        (lambda: nb.reduce_scatter(r, 0), "divisible"),
        (lambda: nb.reduce_scatter(x, 1), "out of range"),
        (lambda: nb.all_to_all(x, 0, 1), "out of range"),
        (lambda: nb.all_to_all(x, 0, 0, tiled=False), "tiled"),
        (lambda: axis_index(mesh, "q"), "mesh @line has no axis 'q'"),
        (lambda: axis_index(mesh), "name of an axis"),
        (lambda: axis_index(axis_name="q"), "no open vmap"),
        (lambda: broadcast(x, root=2), "has no device 2"),
        (lambda: pscatter(x, 0, "tp"), "no open vmap"),
        (lambda: x.shard(other, P("tp")), "mesh"),
        (lambda: nb.distributed_broadcast(x, other), "mesh"),
    ]


def bad_maps():
    mesh, x = grid(2, 2, ("a", "b")), nb.constant(counting(4, 4))
    other = line("a")

    def call(in_specs, out_specs=None, body=identity, x=x, **more):
        return nb.shard_map(body, mesh, in_specs, out_specs, **more)(x)

    def manual(*args, axis_names="a", **more):
        return call(*args, axis_names=axis_names, **more)

    uneven = nb.ones((3, 4))
    return [
        (lambda: call(P("c")), "'c'"),
        (lambda: call(P("a", None, "b")), "3 dims for a tensor of 2 dims"),
        (lambda: call((P(), P())), "tuple of 2 for a tuple of 1"),
        (lambda: call({1: P()}), "entry 1 of 1"),
        (lambda: call(({"k": P()},)), "keys \\['k'\\] for a Tensor"),
        (lambda: call(P(), (P(), P())), "tuple of 2 for a Tensor"),
        (lambda: call(ShardingSpec(other, ["a", None])), "the mesh is @grid"),
        (lambda: manual(P("a"), None), "manual axes need out_specs"),
        (lambda: manual(P("a"), P()), "omits an axis .* varies, 'a'"),
        (lambda: manual(P("a"), (P(),), lambda x: (x,)), "omits an axis"),
        (lambda: manual(P("a"), P("a"), x=uneven), "size 3 is not divisible"),
        (lambda: manual(P("a"), P("a"), axis_names="c"), "no axis 'c'"),
        (lambda: manual(P("a"), P(), axis_names=("a", "a")), "named twice"),
        (lambda: manual(P(("b", "a")), P()), "must come first in a dim"),
        (lambda: manual(P("a", "b", None), P()), "3 dims for a tensor of 2"),
        (lambda: manual(P(partial={"a"}), P()), "can only split dims"),
        (
            lambda: manual(ShardingSpec(other, ["a", None]), P()),
            "a spec on mesh @line, not on @grid",
        ),
        (
            lambda: manual(P("a"), P("a"), lambda x: x.shard(mesh, P("a"))),
            "a spec inside cannot name it",
        ),
        (
            lambda: manual(
                P("a"), P("a"), lambda x: nb.all_reduce(x, reduce_axes="i")
            ),
            "no axis 'i'",
        ),
        (
            lambda: manual(
                P("a"),
                P("a"),
                nb.shard_map(identity, mesh, P(), P(), axis_names="a"),
            ),
            "'a' is that of a vmap or shard_map around",
        ),
        (
            lambda: manual(P("a"), P("a"), auto_sharding=True),
            "auto_sharding has no manual axes",
        ),
    ]


@pytest.mark.parametrize("make", [bad_permutations, bad_collectives, bad_maps])
def test_what_is_refused(make):
    for place, match in make():
        with pytest.raises(ValueError, match=match):
            place()
        with pytest.raises(ValueError, match="no open vmap"):
            axis_index(axis_name="a")


def test_wrong_kinds_of_arguments():
    mesh, x = line(), nb.ones(4)
    for place in (
        lambda: nb.shard_map(identity, "mesh", P())(x),
        lambda: nb.shard_map(identity, in_specs=P()),
        lambda: nb.shard_map(mesh, P("tp")),
        lambda: nb.shard_map(identity, mesh, ("tp",))(x),
        lambda: nb.shard_map(identity, mesh, P("tp"))("text"),
        lambda: nb.distributed_broadcast(x, "mesh"),
        lambda: nb.all_gather(x, 0.5),
        lambda: nb.ppermute(x, [(0.5, 0)]),
        lambda: nb.ppermute(x, [], axis_name=3),
        lambda: nb.all_reduce(x, reduce_axes=3),
    ):
        with pytest.raises(TypeError):
            place()


def test_a_body_that_raises_leaves_nothing_open():
    mesh, x = line(), nb.constant(counting(4))

    def fails(x):
        raise KeyError("own")

    f = nb.shard_map(fails, mesh, P("tp"), P("tp"), axis_names="tp")
    for g in (f, nb.vmap(fails, spmd_axis_name="tp", mesh=mesh)):
        with pytest.raises(KeyError, match="own"):
            g(x)
        assert nb.all_reduce(x.shard(mesh, P("tp"))).tolist() == [4.0, 6.0]
    kept = []
    nb.shard_map(
        lambda x: (kept.append(x), x)[1],
        *(mesh, P("tp"), P("tp")),
        axis_names="tp",
    )(x)
    assert kept[0].shape == (2,)  # what leaked out is still a tensor


def test_names_and_where_they_are():
    com = nb.ops.communication
    for name in "all_gather all_reduce reduce_scatter all_to_all".split():
        assert getattr(nb, name) is getattr(com, name)
    for name in "gather_all_axes pmean axis_index broadcast".split():
        assert hasattr(com, name) and name not in nb.__all__
    assert "shard_map" in nb.__all__


def test_examples():
    transforms = [nb.transforms.shard_map, nb.transforms.vmap]
    homes = [sys.modules[f.__module__] for f in transforms]
    for module in (_collective, *homes):
        failed, tried = doctest.testmod(module, extraglobs={"nb": nb})
        assert tried and not failed
