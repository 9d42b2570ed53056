"""Tensors on meshes: what programs give there is what they give without, and
how it lies is what the specs say."""

import copy
import doctest
import io
import pickle

import numpy as np
import pytest
from nabla.core.sharding import compute_global_shape
from nabla.core.sharding.propagation import (
    OpShardingRuleTemplate,
    infer_from_rule,
    propagate_sharding,
)

import nabla as nb
from nabla import DeviceMesh, DimSpec, P, ShardingSpec, _placement


def M24():
    return DeviceMesh("pod", (2, 4), ("dp", "tp"))


def values(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def axes(x):
    """Of each dim, hidden ones first."""
    return [dim.axes for dim in x.sharding.dim_specs]


def same(x, expected):
    np.testing.assert_allclose(x.numpy(), expected, rtol=2e-5, atol=2e-5)


# Placing.


@pytest.mark.parametrize(
    "how",
    [
        lambda x, m, s: x.shard(m, s),
        lambda x, m, s: x.with_sharding(m, s),
        lambda x, m, s: nb.shard(x, m, s),
        lambda x, m, s: nb.reshard(x, m, s),
        lambda x, m, s: nb.ops.communication.shard(x, m, s),
        lambda x, m, s: nb.to_device(x, sharding=ShardingSpec(m, s)),
        lambda x, m, s: nb.transfer_to(x, sharding=ShardingSpec(m, s)),
        lambda x, m, s: nb.shard(x.numpy(), m, s),
        lambda x, m, s: nb.shard(x, m, s, global_shape=x.shape),
        lambda x, m, s: nb.shard(x, m, ShardingSpec(m, s)),
    ],
)
def test_a_tensor_that_is_placed_keeps_shape_and_values(how):
    a = values(8, 4)
    x = how(nb.constant(a), M24(), [DimSpec(["dp"]), DimSpec([])])
    assert x.shape == x.global_shape == (8, 4) and x.is_sharded
    assert x.sharding.dim_specs[0].axes == ["dp"]
    assert x.local_shape == x.physical_shape == (4, 4)
    assert x.num_shards == 8 and (x.numpy() == a).all()


def test_forms_of_specs_mean_the_same():
    m, x = M24(), nb.ones((8, 8))
    for spec in (
        P("dp", ("tp",)),
        ["dp", "tp"],
        [DimSpec(["dp"]), "tp"],
        (("dp",), ["tp"]),
    ):
        assert axes(x.shard(m, spec)) == [["dp"], ["tp"]]
    for spec in (P(), None, [None, None], P(None)):
        assert x.shard(m, spec).sharding.is_fully_replicated()


def test_the_spec_of_a_tensor_says_what_was_said():
    m = M24()
    x = nb.ones((8, 8)).shard(
        m, [DimSpec(["tp"], is_open=True, priority=2), None], {"dp"}
    )
    spec = x.sharding
    assert spec.mesh is m and spec.replicated_axes == {"dp"}
    assert spec.dim_specs[0] == DimSpec(["tp"], is_open=True, priority=2)
    spec.dim_specs[0].axes.clear()  # a copy: the tensor lies as before
    assert axes(x)[0] == ["tp"]


def test_plain_tensors_lie_on_no_mesh():
    x = nb.ones((2, 3))
    assert x.sharding is None and not x.is_sharded and x.num_shards == 1
    assert x.local_shape == x.shard_shape() == (2, 3)
    assert [s is x for s in x.shards] == [True] and x.gather() is x


def test_numbers_and_empty_tensors_can_be_placed():
    m = M24()
    assert nb.shard(3.0, m, P()).item() == 3
    x = nb.ones((0, 4)).shard(m, P("dp", "tp"))
    assert x.shape == (0, 4) and x.numpy().shape == (0, 4)
    assert nb.sum(x).item() == 0
    assert axes(nb.ones((1, 8)).shard(m, P("dp", "tp"))) == [[], ["tp"]]


def here(n):
    """Which of n devices this process has: all, if it is the only one."""
    share = n // nb.distributed.size()
    first = share * nb.distributed.rank()
    return range(first, first + share)


# Of blocks of devices that may belong to another process.
alone = pytest.mark.skipif(nb.distributed.size() > 1, reason="sees all blocks")


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 10])
def test_blocks_may_be_uneven(n):
    m = DeviceMesh((4,), ("x",))
    a = values(n, 3)
    x = nb.constant(a).shard(m, P("x"))
    sizes = [x.shard_shape(i) for i in range(4)]
    assert [s.shape for s in x.shards] == [sizes[i] for i in here(4)]
    assert max(s[0] for s in sizes) == -(-n // 4) or n == 1
    assert x.logical_local_shape(3) == x.physical_local_shape(3) == sizes[3]
    if n > 1:
        assert compute_global_shape(None, x.sharding, sizes) == (n, 3)
    same(x, a)
    same(nb.exp(x) * 2, np.exp(a) * 2)
    same(nb.sum(x, axis=0), a.sum(0))


def test_shards_are_the_blocks_in_order_of_the_mesh():
    a = np.arange(32).reshape(8, 4)
    x = nb.constant(a).shard(M24(), P("dp", "tp"))
    for i, block in zip(here(8), x.shards, strict=True):
        row, column = divmod(i, 4)
        assert not block.is_sharded
        wanted = a[4 * row : 4 * row + 4, column : column + 1]
        assert block.tolist() == wanted.tolist()
    y = nb.constant(a).shard(M24(), P(None, ("tp", "dp")))
    for i, block in zip(here(8), y.shards, strict=True):
        k = i % 4 * 2 + i // 4  # tp is the major axis
        assert block.tolist() == a[:, k * 4 // 8 : (k + 1) * 4 // 8].tolist()


def test_resharding_moves_and_keeps_values():
    m, a = M24(), values(8, 8)
    x = nb.constant(a).shard(m, P("dp"))
    for spec in (
        P(None, "tp"),
        P("tp", "dp"),
        P(("dp", "tp")),
        P(None, ("tp", "dp")),
        P(),
        P("tp"),
    ):
        x = x.shard(m, spec)
        assert x.sharding == ShardingSpec(m, [*spec, None, None][:2])
        assert (x.numpy() == a).all()


def test_reshard_from_dp_to_tp():
    a = values(8, 8)
    x = nb.constant(a).shard(M24(), ["dp", None])
    y = nb.reshard(x, x.sharding.mesh, [None, "tp"])
    assert axes(y) == [[], ["tp"]] and (y.numpy() == a).all()


def test_the_same_devices_in_another_mesh():
    a = values(8, 4)
    x = nb.constant(a).shard(M24(), P("dp"))
    line = DeviceMesh("line", (8,), ("x",))
    y = x.shard(line, P("x"))
    assert y.sharding.mesh is line and y.local_shape == (1, 4)
    assert (y.numpy() == a).all()


@alone
def test_a_value_that_is_placed_as_pending_is_the_same_value():
    m, a = M24(), values(4, 4)
    x = nb.shard(a, m, P("dp"), partial_sum_axes={"tp"})
    assert x.sharding.partial_sum_axes == {"tp"}
    same(x, a)
    blocks = sum(s.numpy() for s in x.shards[:4])
    np.testing.assert_allclose(blocks, a[:2], rtol=1e-6)
    same(nb.sin(x), np.sin(a))
    same(x * 2 + x, 3 * a)
    y = x.shard(m, P("dp"))
    assert not y.sharding.partial_sum_axes
    same(y, a)


def test_gather_is_lazy_and_whole():
    m, a = M24(), values(8, 4)
    x = nb.constant(a).shard(m, P("dp", "tp"))
    y = nb.sin(x).gather()
    assert y.sharding.is_fully_replicated() and not y.real
    same(y, np.sin(a))
    assert y.gather() is y
    z = nb.sum(x, axis=0)
    assert z.sharding.partial_sum_axes == {"dp"}
    assert z.gather().sharding.is_fully_replicated()
    same(z.gather(), a.sum(0))


def test_sharding_can_be_set():
    m, a = M24(), values(8, 4)
    x = nb.constant(a)
    x.sharding = ShardingSpec(m, ["dp", None])
    assert axes(x) == [["dp"], []]
    x.sharding = ShardingSpec(m, [None, "tp"])
    assert axes(x) == [[], ["tp"]] and (x.numpy() == a).all()
    x.sharding = None
    assert x.sharding is None and (x.numpy() == a).all()
    w = nb.constant(a, requires_grad=True)
    w.sharding = ShardingSpec(m, ["dp", None])
    assert w.requires_grad
    with pytest.raises(ValueError, match="stays on its mesh"):
        w.sharding = None


def test_a_constraint_is_recorded_and_changes_nothing():
    m, x = M24(), nb.ones((4, 4))
    assert x.with_sharding_constraint(m, P("dp")) is x
    assert not x.is_sharded and x._constraint == ShardingSpec(m, ["dp", None])


# Refusals.

BAD = [
    (ValueError, "1 dims for a tensor of 2", lambda m, x: x.shard(m, ["dp"])),
    (ValueError, "3 dims", lambda m, x: x.shard(m, P("dp", None, None))),
    (ValueError, "used twice", lambda m, x: x.shard(m, P("dp", "dp"))),
    (ValueError, "no axis 'zz'", lambda m, x: x.shard(m, P("zz"))),
    (ValueError, "twice", lambda m, x: x.shard(m, P("dp"), {"dp"})),
    (
        ValueError,
        "twice",
        lambda m, x: nb.shard(x, m, P("dp"), partial_sum_axes={"dp"}),
    ),
    (ValueError, "is not a spec", lambda m, x: x.shard(m, "dp")),
    (ValueError, "how a dim is split", lambda m, x: x.shard(m, ["dp", 3])),
    (TypeError, "must be a DeviceMesh", lambda m, x: x.shard("m", P())),
    (TypeError, "no argument 'foo'", lambda m, x: nb.shard(x, m, P(), foo=1)),
    (
        ValueError,
        "not both",
        lambda m, x: nb.to_device(
            x, "cpu", sharding=ShardingSpec(m, [None] * 2)
        ),
    ),
    (TypeError, "ShardingSpec", lambda m, x: nb.to_device(x, sharding="dp")),
    (TypeError, "Tensor", lambda m, x: nb.to_device(3, sharding=None)),
    (
        ValueError,
        "1 dims",
        lambda m, x: nb.to_device(x, sharding=ShardingSpec(m, ["dp"])),
    ),
    (
        ValueError,
        "different devices",
        lambda m, x: x.shard(m, P()).shard(
            DeviceMesh("big", (16,), ("x",)), P("x")
        ),
    ),
    (
        ValueError,
        "two meshes, @pod and @line",
        lambda m, x: (
            x.shard(m, P()) + x.shard(DeviceMesh("line", (8,), ("x",)), P())
        ),
    ),
    (IndexError, "shard 8 of 8", lambda m, x: x.shard(m, P()).shard_shape(8)),
    (IndexError, "shard -1", lambda m, x: x.shard(m, P()).shard_shape(-1)),
    (ValueError, "no mesh", lambda m, x: nb.visualize_sharding(x)),
    (
        ValueError,
        "no format is called pdf",
        lambda m, x: nb.visualize_sharding(x.shard(m, P()), "pdf"),
    ),
    (
        ValueError,
        "a spec on @other",
        lambda m, x: x.shard(
            m, ShardingSpec(DeviceMesh("other", (2,), ("x",)), ["x", None])
        ),
    ),
    (
        ValueError,
        "no axis",
        lambda m, x: x.with_sharding_constraint(m, P("nope")),
    ),
]


@pytest.mark.parametrize(("kind", "match", "f"), BAD)
def test_what_is_wrong_is_refused_at_the_call(kind, match, f):
    with pytest.raises(kind, match=match):
        f(M24(), nb.ones((8, 4)))


@pytest.mark.parametrize("value", [3, "dp", P("dp")])
def test_only_a_spec_can_be_set(value):
    x = nb.ones((8, 4))
    with pytest.raises(TypeError, match="ShardingSpec"):
        x.sharding = value
    assert x.sharding is None


# Reading.


@pytest.mark.parametrize(
    "spec", [P("dp"), P(None, "tp"), P("tp", "dp"), P(("dp", "tp")), P()]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_whoever_reads_gets_the_whole(spec, dtype, tmp_path):
    a = (values(6, 4) * 4).astype(dtype)
    x = nb.constant(a).shard(M24(), spec)
    equal = np.testing.assert_array_equal
    equal(x.numpy(), a)
    equal(x.to_numpy(), a)
    equal(np.asarray(x), a)
    equal(np.asarray(memoryview(x)), a)
    equal(np.from_dlpack(x), a)
    equal(nb.from_dlpack(x).numpy(), a)
    equal(nb.Tensor.to_numpy_all(x, x)[1], a)
    assert x.tolist() == a.tolist()
    assert [row.tolist() for row in x] == a.tolist()
    assert x[2, 1].item() == a[2, 1] and x[-1].tolist() == a[-1].tolist()
    assert nb.all(x == nb.constant(a)).item()
    nb.save(tmp_path / "x.npz", {"x": x})
    equal(nb.load(tmp_path / "x.npz")["x"].numpy(), a)
    equal(nb.constant(x).numpy(), a)


def test_numbers_are_read():
    x = nb.sum(nb.ones((4, 4)).shard(M24(), P("dp")))
    assert float(x) == x.item() == 16 and int(x) == 16 and bool(x)
    assert f"{x:.2f}" == "16.00" and complex(x) == 16


def test_pickles_forget_the_mesh_and_copies_do_not():
    a = values(4, 4)
    x = nb.constant(a).shard(M24(), P("dp"))
    y = pickle.loads(pickle.dumps(x))
    assert y.sharding is None and (y.numpy() == a).all()
    for z in (copy.copy(x), copy.deepcopy(x), x.clone(), x.detach()):
        assert z is not x and axes(z) == [["dp"], []]
        assert (z.numpy() == a).all()
    lazy = nb.sin(x)
    assert axes(lazy.detach()) == axes(lazy.clone()) == [["dp"], []]


def test_a_buffer_outlives_its_tensor():
    a = values(8, 8)
    view = memoryview(nb.constant(a).shard(M24(), P("dp", "tp")))
    array = np.from_dlpack(nb.constant(a).shard(M24(), P("tp")))
    assert (np.asarray(view) == a).all() and (array == a).all()


# Printing.


@alone
def test_sharded_tensors_print_their_blocks_and_their_layout():
    m = DeviceMesh("pod", (2, 2), ("dp", "tp"))
    x = nb.arange(8).reshape(4, 2).shard(m, P("dp", "tp"))
    assert str(x).splitlines() == [
        "Tensor([",
        "  shard(0): [[0]",
        "             [2]]",
        "  shard(1): [[1]",
        "             [3]]",
        "  shard(2): [[4]",
        "             [6]]",
        "  shard(3): [[5]",
        "             [7]]",
        "] : i64[4,2](<dp, tp>)(local=[2,1]))",
    ]
    assert x.sharding.dim_specs[0].axes == ["dp"]


def test_what_every_device_has_is_printed_once():
    m = M24()
    x = nb.ones(2).shard(m, P())
    assert str(x) == "Tensor([1. 1.] : f32[2](<*>)(local=[2]))"
    y = nb.sum(nb.ones((4, 2)).shard(m, P("dp")), axis=0)
    assert str(y) == "Tensor([4. 4.] : f32[2](<*> | partial={'dp'})(local=[2]))"
    assert y.sharding.partial_sum_axes == {"dp"}


@alone
def test_many_devices_are_summarised():
    x = nb.arange(8).shard(M24(), P(("dp", "tp")))
    assert str(x).splitlines() == [
        "Tensor([",
        "  shard(0): [0]",
        "  shard(1): [1]",
        "  shard(2): [2]",
        "  ...",
        "  shard(5): [5]",
        "  shard(6): [6]",
        "  shard(7): [7]",
        "] : i64[8](<(dp, tp)>)(local=[1]))",
    ]


@alone
def test_printing_inside_vmap_shows_hidden_axes():
    m, seen = DeviceMesh((2,), ("x",)), []
    nb.vmap(lambda a: seen.append(str(a)) or a)(
        nb.arange(4).reshape(2, 2).shard(m, P("x"))
    )
    assert seen[0].splitlines()[-1] == (
        "] : i64[2 | 2](<x | *>)(local=[1 | 2]))"
    )


# Programs.


def test_the_seed_program():
    """T14: x on dp, w on tp; one scalar is reduced at the end."""
    m = M24()
    a, b = values(32, 128), values(128, 256, seed=1)
    x = nb.constant(a).shard(m, P("dp"))
    w = nb.constant(b).shard(m, P(None, "tp"))
    h = nb.relu(x @ w)
    assert axes(x @ w) == axes(h) == [["dp"], ["tp"]]
    y = nb.mean(h)
    assert y.sharding.partial_sum_axes == {"dp", "tp"} and axes(y) == []
    assert float(y) == pytest.approx(np.maximum(a @ b, 0).mean(), rel=1e-5)


def test_column_and_row_parallel_matmul():
    m = M24()
    a, b = values(6, 8), values(8, 12, seed=1)
    x = nb.constant(a)
    column = x.shard(m, P()) @ nb.constant(b).shard(m, P(None, "tp"))
    assert axes(column) == [[], ["tp"]] and not column.sharding.partial_sum_axes
    same(column, a @ b)
    row = x.shard(m, P(None, "tp")) @ nb.constant(b).shard(m, P("tp"))
    assert row.sharding.partial_sum_axes == {"tp"}
    same(row, a @ b)


def mlp(x, w1, b1, w2):
    return nb.gelu(x @ w1 + b1) @ w2


def test_megatron_mlp():
    """Columns, then rows: one pending sum, settled at the end."""
    m = M24()
    x, w1, b1, w2 = values(8, 16), values(16, 32), values(32), values(32, 16)
    wanted = mlp(*map(nb.constant, (x, w1, b1, w2)))
    placed = (
        nb.shard(x, m, P("dp")),
        nb.shard(w1, m, P(None, "tp")),
        nb.shard(b1, m, P("tp")),
        nb.shard(w2, m, P("tp")),
    )
    y = mlp(*placed)
    assert axes(y) == [["dp"], []] and y.sharding.partial_sum_axes == {"tp"}
    same(y, wanted.numpy())
    z = y.shard(m, P("dp"))
    assert not z.sharding.partial_sum_axes
    same(z, wanted.numpy())


def loss(params, x, y):
    hidden = nb.tanh(x @ params["w1"] + params["b1"])
    return nb.mean((hidden @ params["w2"] - y) ** 2)


LAYOUTS = {
    "data parallel": (P("dp"), {"w1": P(), "b1": P(), "w2": P()}),
    "over all": (P(("dp", "tp")), {"w1": P(), "b1": P(), "w2": P()}),
    "tensor parallel": (
        P(),
        {"w1": P(None, "tp"), "b1": P("tp"), "w2": P("tp")},
    ),
    "both": (
        P("dp"),
        {"w1": P(None, "tp"), "b1": P("tp"), "w2": P("tp")},
    ),
    "parameters in blocks": (
        P("dp"),
        {"w1": P("dp", "tp"), "b1": P("dp"), "w2": P("tp", "dp")},
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("compiled", [False, True])
def test_training(name, compiled):
    """Three steps, against the same on one device; parameters stay where they
    are, and a compiled step is compiled once."""
    m = M24()
    data, layout = LAYOUTS[name]
    x, y = values(16, 6), values(16, 4, seed=1)
    params = {"w1": values(6, 8), "b1": values(8), "w2": values(8, 4)}

    def step(params, x, y):
        value, grads = nb.value_and_grad(loss)(params, x, y)
        return value, {k: params[k] - 0.1 * grads[k] for k in params}

    run = nb.compile(step) if compiled else step
    plain = {k: nb.constant(v) for k, v in params.items()}
    placed = {k: nb.shard(v, m, layout[k]) for k, v in params.items()}
    at, to = nb.shard(x, m, data), nb.shard(y, m, data)
    start = {k: v.sharding for k, v in placed.items()}
    for _ in range(3):
        wanted, plain = step(plain, nb.constant(x), nb.constant(y))
        value, placed = run(placed, at, to)
        assert value.item() == pytest.approx(wanted.item(), rel=1e-4)
        for k, v in placed.items():
            assert v.sharding == start[k]
            same(v, plain[k].numpy())
    if compiled:
        assert (run.stats.misses, run.stats.hits) == (1, 2)


def test_gradients_lie_as_their_inputs_do():
    m = M24()
    a, b = values(8, 4), values(4, 8)
    x, w = nb.shard(a, m, P("dp")), nb.shard(b, m, P(None, "tp"))

    def f(x, w):
        return nb.sum(nb.sin(x @ w))

    gx, gw = nb.grad(f, argnums=(0, 1))(x, w)
    assert gx.sharding == x.sharding and gw.sharding == w.sharding
    c = np.cos(a @ b)
    same(gx, c @ b.T)
    same(gw, a.T @ c)
    y, pull = nb.vjp(f, x, w)
    assert [g.sharding for g in pull(nb.ones(()))] == [x.sharding, w.sharding]
    value, tangent = nb.jvp(f, (x, w), (x, nb.zeros_like(w)))
    same(tangent, ((a @ b) * c).sum())


def test_like_functions_copy_the_sharding():
    x = nb.shard(values(8, 4), M24(), P("dp", "tp"))
    for y in (
        nb.zeros_like(x),
        nb.ones_like(x),
        nb.full_like(x, 3),
        nb.empty_like(x),
    ):
        assert y.sharding == x.sharding and y.local_shape == (4, 1)
    same(nb.ones_like(x), np.ones((8, 4)))


@pytest.mark.parametrize("create_graph", [False, True])
def test_backward_sets_gradients_that_lie_as_their_tensors_do(create_graph):
    m = M24()
    a, b, c = values(8, 4), values(4, 8), values(8, 8, seed=2)
    x, y = nb.shard(a, m, P("dp")), nb.shard(c, m, P("dp"))
    w = nb.shard(b, m, P(None, "tp"))
    w.requires_grad = True
    for _ in range(3):
        error = nb.mean((x @ w - y) ** 2)
        error.backward(create_graph=create_graph)
        assert w.grad.sharding == w.sharding
        g = 2 * a.T @ (a @ b - c) / 64
        same(w.grad, g)
        w -= 0.1 * w.grad
        b = b - 0.1 * g
        assert w.is_leaf and w.requires_grad and axes(w) == [[], ["tp"]]
        same(w, b)
        w.grad = None
    nb.mean(x @ w).backward()
    nb.mean(x @ w).backward(accumulate=True)
    assert w.grad.sharding == w.sharding
    same(w.grad, 2 * a.sum(0)[:, None].repeat(8, 1) / 64)


# Ops: on a split dim and beside one, against NumPy.

UNARY = {
    "sin": (nb.sin, np.sin),
    "chain": (lambda x: nb.exp(-(x * x)) + 1, lambda a: np.exp(-(a * a)) + 1),
    "sum 0": (lambda x: nb.sum(x, axis=0), lambda a: a.sum(0)),
    "sum 1": (lambda x: nb.sum(x, axis=1), lambda a: a.sum(1)),
    "sum": (nb.sum, np.sum),
    "max 0": (lambda x: nb.max(x, axis=0), lambda a: a.max(0)),
    "min": (nb.min, np.min),
    "mean": (lambda x: nb.mean(x, axis=-1), lambda a: a.mean(-1)),
    "argmax": (
        lambda x: nb.cast(nb.argmax(x, axis=0), nb.float32),
        lambda a: a.argmax(0),
    ),
    "softmax 0": (
        lambda x: nb.softmax(x, axis=0),
        lambda a: np.exp(a) / np.exp(a).sum(0),
    ),
    "softmax 1": (
        lambda x: nb.softmax(x, axis=1),
        lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True),
    ),
    "cumsum": (lambda x: nb.cumsum(x, axis=0), lambda a: a.cumsum(0)),
    "transpose": (lambda x: x.T, lambda a: a.T),
    "reshape": (
        lambda x: x.reshape(2, 4, 2, 2),
        lambda a: a.reshape(2, 4, 2, 2),
    ),
    "flatten": (lambda x: x.reshape(-1) * 2, lambda a: a.reshape(-1) * 2),
    "slice": (lambda x: x[1:6, ::2], lambda a: a[1:6, ::2]),
    "row": (lambda x: x[3], lambda a: a[3]),
    "flip": (lambda x: nb.flip(x, 0), lambda a: a[::-1]),
    "roll": (lambda x: nb.roll(x, 3, 0), lambda a: np.roll(a, 3, 0)),
    "pad": (
        lambda x: nb.pad(x, ((1, 2), (0, 1))),
        lambda a: np.pad(a, ((1, 2), (0, 1))),
    ),
    "concatenate 0": (
        lambda x: nb.concatenate([x, x * 2], axis=0),
        lambda a: np.concatenate([a, a * 2], 0),
    ),
    "stack": (
        lambda x: nb.stack([x, -x], axis=1),
        lambda a: np.stack([a, -a], 1),
    ),
    "split 0": (
        lambda x: nb.split(x, 2, axis=0)[1],
        lambda a: np.split(a, 2, 0)[1],
    ),
    "split 1": (
        lambda x: nb.split(x, 2, axis=1)[0],
        lambda a: np.split(a, 2, 1)[0],
    ),
    "chunk": (lambda x: nb.chunk(x, 4, axis=0)[2], lambda a: a[4:6]),
    "unbind 0": (lambda x: nb.unbind(x, 0)[5], lambda a: a[5]),
    "unbind 1": (lambda x: nb.unbind(x, 1)[3], lambda a: a[:, 3]),
    "gather 0": (
        lambda x: nb.gather(x, nb.constant([5, 0, 7]), 0),
        lambda a: a[[5, 0, 7]],
    ),
    "gather 1": (
        lambda x: nb.gather(x, nb.constant([3, 0]), 1),
        lambda a: a[:, [3, 0]],
    ),
    "scatter": (
        lambda x: x.at[nb.constant([1, 6])].set(0.0),
        lambda a: np.where(np.isin(np.arange(8), [1, 6])[:, None], 0, a),
    ),
    "where": (
        lambda x: nb.where(x > 0, x, 0.0),
        lambda a: np.where(a > 0, a, 0),
    ),
    "broadcast": (lambda x: x + x[:1], lambda a: a + a[:1]),
    "outer": (lambda x: x @ x.T, lambda a: a @ a.T),
    "sort": (lambda x: nb.sort(x, axis=0), lambda a: np.sort(a, 0)),
    "mask read": (lambda x: x[x > 0], lambda a: a[a > 0]),
    "layers": (
        lambda x: nb.mean(nb.relu(x @ x.T) @ x, axis=0),
        lambda a: (np.maximum(a @ a.T, 0) @ a).mean(0),
    ),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(
    "spec", [P("dp"), P(None, "tp"), P("tp", "dp"), P(("tp", "dp")), P()]
)
def test_ops_give_what_numpy_gives(name, spec):
    f, wanted = UNARY[name]
    a = values(8, 4)
    y = f(nb.shard(a, M24(), spec))
    assert y.is_sharded or name == "mask read"
    same(y, wanted(a))


@pytest.mark.parametrize(
    ("name", "axis"),
    [("sin", 0), ("split 1", 0), ("unbind 1", 0), ("gather 1", 0)],
)
def test_a_dim_that_is_not_touched_stays_split(name, axis):
    y = UNARY[name][0](nb.shard(values(8, 4), M24(), P("dp")))
    assert axes(y)[axis] == ["dp"]


def test_assignment_to_a_sharded_tensor():
    a = values(8, 4)
    x = nb.shard(a, M24(), P("dp"))
    x[2:4] = 5.0
    a[2:4] = 5
    assert x.is_sharded and x.op_kwargs["use_buffer_ops"]
    same(x, a)


def test_a_reshard_says_where_to():
    m = M24()
    x = nb.sin(nb.ones((8, 4))).shard(m, P("dp"))
    x.is_traced = True
    assert x.op_kwargs == {"mesh": m, "spec": ShardingSpec(m, ["dp", None])}


def test_listings_show_layouts():
    m = M24()
    w = nb.shard(values(4, 8), m, P(None, "tp")).realize()
    text = nb.xpr(lambda x: nb.sum(nb.sin(x @ w).shard(m, P("dp"))))(
        nb.shard(values(8, 4), m, P("dp"))
    )
    assert text.splitlines() == [
        "@pod(shape=(2, 4), devices=[0, 1, 2, 3, 4, 5, 6, 7], axes=(dp, tp))",
        "fn(",
        "  %a1: f32[8@dp,4],",
        ") {",
        "  spmd @pod(%a1) {",
        "    %v1: f32[8@dp,8@tp] = matmul(%a1, ?)",
        "    %v2: f32[8@dp,8@tp] = sin(%v1)",
        "  }",
        "  %v3: f32[8@dp,8] = reshard(%v2, mesh=@pod, spec=<dp, *>)",
        "  spmd @pod(%v3) {",
        "    %v4: f32[]{P:dp} = reduce_sum(%v3, keepdims=False)",
        "  }",
        "  return %v4",
        "}",
    ]
    node = nb.trace(lambda x: x.shard(m, P("tp")), w).nodes[0]
    assert node.kwargs == {"mesh": m, "spec": ShardingSpec(m, ["tp", None])}


def test_listings_show_what_runs_on_which_mesh():
    m, line = M24(), DeviceMesh("line", (4,), ("x",))
    a = nb.shard(values(8, 4), m, P(None, "tp"))
    b = nb.shard(values(4), line, P("x"))

    def f(a, b, c):
        total, _ = nb.scan(lambda s, x: (s + x, s), a[0], a)
        return total + c, nb.neg(b), nb.sin(c)

    said = nb.xpr(f)(a, b, nb.ones(4)).splitlines()
    body = said[said.index(") {") + 1 :]
    outer = [x.strip() for x in body if not x.startswith("    ")]
    assert outer == [
        *("spmd @pod(%a1, %a3) {", "}", "spmd @line(%a2) {", "}"),
        *("%v7: f32[4] = sin(%a3)", "return (%v5, %v6, %v7)", "}"),
    ]


@pytest.mark.parametrize("compiled", [False, True])
def test_one_device_prints_for_all(compiled, capfd):
    def f(x):
        nb.debug.print("sum {}", nb.sum(x))
        return x * 2

    f = nb.compile(f) if compiled else f
    same(f(nb.ones((8, 4)).shard(M24(), P("dp"))), np.full((8, 4), 2))
    said = ["sum 32.0"] if nb.distributed.rank() == 0 else []
    assert capfd.readouterr().out.splitlines() == said


# vmap.


def test_hidden_axes_come_first_in_specs():
    m = DeviceMesh((2, 2, 2), ("x", "y", "z"))
    a = values(4, 4, 4)
    seen = []

    def inner(r):
        seen.append(r)
        s = r.shard(m, P("z"))
        seen.append(s)
        t = s.shard(m, P("y", "x", "z"))
        seen.append(t)
        return t * 2

    y = nb.vmap(nb.vmap(inner))(nb.shard(a, m, P("x", "y")))
    assert axes(y) == [["x"], ["y"], ["z"]]
    same(y, a * 2)
    r, s, t = seen
    assert r.batch_dims == 2 and r.local_shape == (2, 2, 4)
    assert r.shape == (4,) and r.global_shape == (4, 4, 4)
    assert axes(r) == [["y"], ["x"], []]  # the newest first
    assert axes(s) == axes(t) == [["y"], ["x"], ["z"]]
    assert t.logical_local_shape() == (2,)


def test_vmap_over_a_split_dim_keeps_its_axis():
    m, a, b = M24(), values(8, 4), values(4, 6)
    x, w = nb.shard(a, m, P("dp")), nb.shard(b, m, P(None, "tp"))
    y = nb.vmap(lambda r: nb.sin(r @ w))(x)
    assert axes(y) == [["dp"], ["tp"]]
    same(y, np.sin(a @ b))
    z = nb.vmap(lambda r: nb.sum(r * r), in_axes=1)(x)
    same(z, (a * a).sum(0))
    g = nb.grad(lambda x: nb.sum(nb.vmap(lambda r: nb.sin(r))(x)))(x)
    assert g.sharding == x.sharding
    same(g, np.cos(a))


# compile.


def test_blocks_of_donated_arguments_are_taken():
    """By results that lie as they do; whoever still has one keeps it."""
    f = nb.compile(lambda w, g: w - 0.5 * g, donate_argnums=0)
    a, b = values(64, 128), values(64, 128, seed=1)
    for held in (False, True):
        w = nb.shard(a, M24(), P("dp", "tp")).realize()
        g = nb.shard(b, M24(), P("dp", "tp"))
        other = nb.sin(w) if held else None
        y = f(w, g)
        same(y, a - 0.5 * b)
        assert axes(y) == [["dp"], ["tp"]]
        with pytest.raises(RuntimeError, match="donated"):
            nb.sin(w)
        if held:
            same(other, np.sin(a))
    plan = f.memory()
    assert plan.donated == 64 * 128 * 4 // 8


def test_random_blocks_are_those_of_the_whole():
    """Drawn in parts on every device, whatever the layout."""
    key = nb.random.key(3)
    whole = nb.random.normal(key, (16, 24)).numpy()
    for spec in (P("dp", None), P(None, "tp"), P(("dp", "tp"), None)):
        x = nb.shard(nb.random.normal(key, (16, 24)), M24(), spec)
        same(x, whole)
        same(x * 2, whole * 2)


def test_the_layout_is_part_of_the_key():
    m, a = M24(), values(8, 4)
    f = nb.compile(lambda x: nb.sin(x) * 2)
    layouts = [P("dp"), P("tp"), P(), P("dp", "tp"), P(None, "dp")]
    for n, spec in enumerate(layouts, 1):
        for k in range(2):
            y = f(nb.shard(a, m, spec))
            assert y.sharding == nb.shard(a, m, spec).sharding
            assert (f.stats.misses, f.stats.hits) == (n, n - 1 + k)
            same(y, np.sin(a) * 2)
    f(nb.constant(a))
    assert f.stats.misses == len(layouts) + 1
    again = DeviceMesh("pod", (2, 4), ("dp", "tp"))  # the same mesh
    f(nb.shard(a, again, P("dp")))
    assert f.stats.misses == len(layouts) + 1
    f(nb.shard(a, DeviceMesh("new", (2, 4), ("dp", "tp")), P("dp")))
    assert f.stats.misses == len(layouts) + 2 and f.stats.fallbacks == 0


def test_compiled_functions_place_and_capture():
    m, a, b = M24(), values(8, 4), values(4, 8)
    w = nb.shard(b, m, P(None, "tp"))
    f = nb.compile(lambda x: (x @ w, nb.sum(x @ w)))
    y, total = f(nb.shard(a, m, P("dp")))
    assert axes(y) == [["dp"], ["tp"]]
    same(y, a @ b)
    same(total, (a @ b).sum())
    y, total = f(nb.constant(a))
    assert axes(y) == [[], ["tp"]]
    same(y, a @ b)
    g = nb.compile(lambda x: nb.sin(x.shard(m, P("tp"))))
    y = g(nb.constant(a))
    assert axes(y) == [["tp"], []] and axes(g(y)) == [["tp"], []]
    same(y, np.sin(a))
    assert g.stats.misses == 2


def test_compiled_for_any_size():
    m = M24()
    f = nb.compile(lambda x: nb.sin(x) * 2, dynamic_dims={0: {0: "n"}})
    for n in (8, 12, 7, 8):
        a = values(n, 4)
        y = f(nb.shard(a, m, P("dp")))
        assert axes(y) == [["dp"], []]
        same(y, np.sin(a) * 2)


def test_donated_tensors_are_gone():
    m, a = M24(), values(8, 4)
    f = nb.compile(lambda x: x + 1, donate_argnums=0)
    x = nb.shard(a, m, P("dp"))
    same(f(x), a + 1)
    with pytest.raises(RuntimeError, match="donated"):
        x.numpy()


def test_control_flow_over_sharded_values():
    m, a = M24(), values(8, 4)
    x = nb.shard(a, m, P("dp"))
    y = nb.fori_loop(0, 3, lambda i, v: nb.sin(v), x)
    same(y, np.sin(np.sin(np.sin(a))))
    z = nb.cond(nb.sum(x) > 1e9, lambda v: v, lambda v: v * 2, x)
    same(z, a * 2)


# Pictures.


def test_pictures_in_text():
    m = M24()
    x = nb.ones((8, 8)).shard(m, P("dp", "tp"))
    assert nb.visualize_sharding(x).splitlines() == [
        "@pod [8@dp, 8@tp]",
        "┌───┬───┬───┬───┐",
        "│ 0 │ 1 │ 2 │ 3 │",
        "├───┼───┼───┼───┤",
        "│ 4 │ 5 │ 6 │ 7 │",
        "└───┴───┴───┴───┘",
    ]
    assert nb.visualize_sharding(nb.ones(8).shard(m, P("tp"))).splitlines()[
        2
    ] == ("│ 0,4 │ 1,5 │ 2,6 │ 3,7 │")
    assert "│ 0-7 │" in nb.visualize_sharding(nb.ones(()).shard(m, P()))
    y = nb.ones((4, 2, 8)).shard(m, P("dp", None, "tp"))
    assert nb.visualize_sharding(y).splitlines()[-1] == (
        "the last two dims, of block 1 of 2 of the others"
    )
    assert "{P:dp}" in nb.visualize_sharding(nb.sum(x, axis=0))


def test_pictures_in_svg_are_well_formed():
    from xml.etree import ElementTree

    x = nb.ones((8, 8)).shard(M24(), P("dp", "tp"))
    root = ElementTree.parse(
        io.StringIO(nb.visualize_sharding(x, format="svg"))
    ).getroot()
    space = "{http://www.w3.org/2000/svg}"
    cells = root.findall(f"{space}rect")
    assert root.tag == f"{space}svg" and len(cells) == 8
    area = sum(float(c.get("width")) * float(c.get("height")) for c in cells)
    assert area == pytest.approx(480 * 480, rel=1e-2)
    said = [t.text for t in root.findall(f"{space}text")]
    assert {*map(str, range(8))} < {*said}


# Rules.


def rule(text, *shapes, out=None):
    return OpShardingRuleTemplate.parse(text).instantiate([*shapes], out)


def test_results_from_rules():
    m = DeviceMesh("m", (2, 2), ("x", "y"))
    matmul = rule("m k, k n -> m n", (4, 8), (8, 16))

    def spec(*dims):
        return ShardingSpec(m, [*dims])

    y, pending = infer_from_rule(matmul, [spec("x", "y"), None], m)
    assert [d.axes for d in y.dim_specs] == [["x"], []] and pending == {"y"}
    assert y.partial_sum_axes == {"y"}
    y, pending = infer_from_rule(matmul, [spec("x", None), spec(None, "y")], m)
    assert [d.axes for d in y.dim_specs] == [["x"], ["y"]] and not pending
    parts = rule("(a b) -> a b", (8,), out=[(2, 4)])
    y, _ = infer_from_rule(parts, [spec(("x", "y"))], m)
    assert [d.axes for d in y.dim_specs] == [["x"], ["y"]]
    total = rule("... k -> ...", (2, 4, 8))
    y, pending = infer_from_rule(total, [spec("x", None, "y")], m)
    assert [d.axes for d in y.dim_specs] == [["x"], []] and pending == {"y"}
    best, _ = infer_from_rule(
        rule("a k -> a; max{k}", (4, 8)), [spec(None, "y")], m
    )
    assert best.partial_kind == "max"


def test_propagation_fills_open_dims_both_ways():
    m = DeviceMesh("m", (2, 2), ("x", "y"))
    turn = rule("a b -> b a", (4, 8))
    x = ShardingSpec(m, ["x", P.OPEN])
    y = ShardingSpec(m, ["y", P.OPEN])
    assert propagate_sharding(turn, [x], [y])
    assert x == ShardingSpec(m, ["x", ("y", P.OPEN)])
    assert y == ShardingSpec(m, ["y", ("x", P.OPEN)])
    assert not propagate_sharding(turn, [x], [y])
    closed = ShardingSpec(m, [None, None])
    assert not propagate_sharding(turn, [ShardingSpec(m, ["x", "y"])], [closed])
    assert closed.is_fully_replicated()
    ins, outs = [None, None], [ShardingSpec(m, ["x", "y"])]
    assert propagate_sharding(
        rule("m k, k n -> m n", (4, 8), (8, 16)), ins, outs
    )
    assert [d.axes for d in ins[0].dim_specs] == [["x"], []]
    assert [d.axes for d in ins[1].dim_specs] == [[], ["y"]]


def test_priorities_wait_for_their_turn():
    m = DeviceMesh("m", (2, 2), ("x", "y"))
    same_dims = rule("a b -> a b", (4, 8))
    x = ShardingSpec(m, [DimSpec(["x"]), DimSpec(["y"], priority=1)])
    y = ShardingSpec(m, [P.OPEN, P.OPEN])
    assert propagate_sharding(same_dims, [x], [y], max_priority=0)
    assert [d.axes for d in y.dim_specs] == [["x"], []]
    assert propagate_sharding(same_dims, [x], [y])
    assert [d.axes for d in y.dim_specs] == [["x"], ["y"]]


@pytest.mark.parametrize(
    ("match", "ins", "outs"),
    [
        ("1 input specs for 2", [None], [None]),
        ("2 output specs for 1", [None, None], [None, None]),
        ("none of the tensors has a spec", [None, None], [None]),
    ],
)
def test_specs_that_do_not_fit_a_rule(match, ins, outs):
    matmul = rule("m k, k n -> m n", (4, 8), (8, 16))
    with pytest.raises(ValueError, match=match):
        propagate_sharding(matmul, ins, outs)


def test_specs_on_another_mesh_are_refused():
    m, q = DeviceMesh("m", (2,), ("x",)), DeviceMesh("q", (2,), ("x",))
    matmul = rule("m k, k n -> m n", (4, 8), (8, 16))
    with pytest.raises(ValueError, match="a spec on @q, the mesh is @m"):
        infer_from_rule(matmul, [ShardingSpec(q, ["x", None]), None], m)
    with pytest.raises(ValueError, match="1 dims"):
        infer_from_rule(matmul, [ShardingSpec(m, ["x"]), None], m)


# The rest.


@alone
def test_examples_are_true():
    failed, tried = doctest.testmod(_placement, extraglobs={"nb": nb})
    assert tried > 3 and not failed


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    """Chains of ops on tensors that are placed at random."""
    rng = np.random.default_rng(seed)
    m = M24()
    specs = [P("dp"), P("tp"), P(None, "tp"), P("dp", "tp"), P(), P("tp", "dp")]

    def place(x):
        return x.shard(m, specs[rng.integers(len(specs))])

    n = int(rng.integers(3, 9))
    a, b = values(n, n, seed=seed), values(n, n, seed=seed + 99)
    plain, placed = [nb.constant(a), nb.constant(b)], []
    placed = [place(x) for x in plain]
    for _ in range(6):
        i, j = (int(k) for k in rng.integers(len(plain), size=2))
        f = [
            lambda x, y: nb.tanh(x @ y),
            lambda x, y: x + nb.sum(y, axis=0),
            lambda x, y: nb.softmax(x * y, axis=0),
            lambda x, y: x.T - y,
            lambda x, y: nb.where(x > y, x, y),
            lambda x, y: nb.concatenate([x[: n // 2], y[n // 2 :]], axis=0),
            lambda x, y: nb.cumsum(x, axis=0) / n + y,
        ][rng.integers(7)]
        plain.append(f(plain[i], plain[j]))
        y = f(placed[i], placed[j])
        placed.append(place(y) if rng.integers(2) else y)
    same(placed[-1], plain[-1].numpy())
    same(placed[len(placed) // 2], plain[len(plain) // 2].numpy())


# Loops and branches.


def line():
    return DeviceMesh("line", (4,), ("x",))


def both_ways(f, *args, mesh=None, spec=("x", None)):
    """f on args and on args laid out by rows."""
    mesh = mesh or line()
    laid = [nb.shard(nb.constant(a), mesh, P(*spec[: a.ndim])) for a in args]
    return f(*laid), f(*(nb.constant(a) for a in args))


ASKED = {
    "bool": lambda x: x if x.sum() > 0 else -x,
    "item": lambda x: x * x.sum().item(),
    "numpy": lambda x: x * nb.constant(x.numpy()),
    "mask": lambda x: x[x > 0.1],
    "text": lambda x: x * len(f"{x.sum():.1f}"),
    "shards": lambda x: x * len(x.shards),
}


@pytest.mark.parametrize("case", ASKED)
def test_values_of_what_is_laid_out_asked_for_while_compiling(case):
    f, a = ASKED[case], values(6)
    x = nb.shard(nb.constant(a), line(), P("x"))
    want = f(x).numpy()
    with pytest.warns(RuntimeWarning, match="runs uncompiled"):
        same(nb.compile(f)(x), want)
    with pytest.raises(RuntimeError, match="fullgraph=True forbids"):
        nb.compile(f, fullgraph=True)(x)
    same(nb.compile(lambda x: x * 2)(x), a * 2)


def test_while_loop_runs_on_blocks():
    def f(x):
        return nb.while_loop(
            lambda x: nb.sum(x * x) > 1.0, lambda x: nb.tanh(x) / 2, x
        )

    y, whole = both_ways(f, values(8, 3))
    assert axes(y) == [["x"], []]
    same(y, whole.numpy())
    rows = nb.explain(f)(
        nb.shard(nb.constant(values(8, 3)), line(), P("x"))
    ).collectives
    # Each turn looks at a number that all devices add up, and moves no more.
    assert [(r.kind, r.op) for r in rows] == [
        ("all_reduce", "greater in while_loop")
    ]


def test_branches_agree_on_a_layout():
    mesh = line()

    def f(x, y):
        return nb.cond(
            x.sum() > 0, lambda a, b: a + 1, lambda a, b: b * 2, x, y
        )

    for sign in 1, -1:
        a, b = sign * np.abs(values(8, 8)), values(8, 8, seed=1)
        x = nb.shard(nb.constant(a), mesh, P("x", None))
        y = nb.shard(nb.constant(b), mesh, P(None, "x"))
        z = f(x, y)
        assert axes(z) == [["x"], []]
        same(z, a + 1 if sign > 0 else b * 2)


def test_slopes_and_lanes_of_loops_lie_as_their_arguments():
    def loop(x):
        return nb.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, nb.sin(s[1])), (0, x)
        )[1]

    def walk(x):
        return nb.scan(lambda c, s: (nb.tanh(c + s), c * s), x[0], x)[1]

    for f, shape in ((loop, (8, 3)), (nb.vmap(walk), (8, 3, 2))):
        g = nb.grad(lambda x, f=f: nb.sum(f(x) ** 2))
        y, whole = both_ways(g, values(*shape), spec=("x", None, None))
        assert axes(y)[0] == ["x"]
        same(y, whole.numpy())
        y, whole = both_ways(
            nb.compile(f), values(*shape), spec=("x", None, None)
        )
        assert axes(y)[0] == ["x"]
        same(y, whole.numpy())
