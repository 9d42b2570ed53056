"""What programs over many devices say to themselves."""

import numpy as np
import pytest

import nabla as nb


@pytest.fixture
def mesh():
    return nb.DeviceMesh("pod", (2, 4), ("dp", "tp"))


def laid(mesh, shape, *spec):
    values = np.random.default_rng(0).standard_normal(shape)
    return nb.shard(nb.constant(values.astype("float32")), mesh, nb.P(*spec))


def hidden(x, w):
    return nb.relu(x @ w)


def test_the_worked_example(mesh):
    x = laid(mesh, (32, 128), "dp", "tp")
    w = laid(mesh, (128, 256), None, "tp")
    said = nb.explain(hidden)(x, w)
    [row] = said.collectives
    assert (row.kind, row.axes, row.bytes) == ("all_gather", ("tp",), 6144)
    assert row.reason == "tp goes to n (6144), not to k (36864)"
    assert row.op == "matmul" and row.of == "input 0"
    assert row.source.split(":")[0].endswith("test_explain.py")
    assert row.before == "f32[32@dp, 128@tp]"
    assert row.after == "f32[32@dp, 128]"
    assert row.bound == 6144 and said.total_bytes == 6144
    assert "all_gather" in str(said) and "6144 B" in str(said)


def test_a_sum_that_is_needed_whole(mesh):
    x = laid(mesh, (32, 128), "dp", "tp")
    w = laid(mesh, (128, 256), "tp", None)
    [row] = nb.explain(hidden)(x, w).collectives
    assert (row.kind, row.bytes) == ("all_reduce", 24576)
    assert row.reason == (
        "k split on tp leaves a sum pending over tp; relu needs the whole value"
    )
    assert row.cheaper == 12288
    assert row.alternative == "reduce_scatter possible if n is split on tp"


def test_two_axes_one_small_sum_at_the_end(mesh):
    x = laid(mesh, (32, 128), "dp", None)
    w = laid(mesh, (128, 256), None, "tp")
    said = nb.explain(lambda x, w: nb.sum(hidden(x, w)))(x, w)
    assert {row.kind for row in said.collectives} == {"all_reduce"}
    assert all(row.reading for row in said.collectives)
    assert all(row.bytes <= 28 for row in said.collectives)


def test_nothing_is_said_on_one_device():
    said = nb.explain(hidden)(nb.ones((4, 4)), nb.ones((4, 4)))
    assert said.collectives == [] and said.total_bytes == 0
    assert said.kernels


def test_a_compiled_function_explains_itself(mesh):
    f = nb.compile(hidden)
    x = laid(mesh, (32, 128), "dp", "tp")
    w = laid(mesh, (128, 256), None, "tp")
    f(x, w)
    assert f.explain().total_bytes == 6144
    assert f.lower(x, w).explain().collectives == f.explain().collectives


def test_a_budget(mesh):
    x = laid(mesh, (32, 128), "dp", "tp")
    w = laid(mesh, (128, 256), None, "tp")
    assert nb.compile(hidden, max_collective_bytes=6144)(x, w).shape == (
        32,
        256,
    )
    for most in (0, 6143):
        f = nb.compile(hidden, max_collective_bytes=most)
        with pytest.raises(
            ValueError,
            match=rf"6144 bytes are communicated, max_collective_bytes is "
            rf"{most}; the most by c0 all_gather tp.*test_explain.py:\d+: tp "
            r"goes to n",
        ):
            f(x, w)
        assert nb.explain(f)(x, w).total_bytes == 6144
    with pytest.raises(ValueError, match="below zero"):
        nb.compile(hidden, max_collective_bytes=-1)
    with pytest.raises(TypeError):
        nb.compile(hidden, max_collective_bytes="much")


def test_a_budget_of_nothing_takes_what_stays_where_it_is(mesh):
    x = laid(mesh, (32, 128), "dp", None)
    w = laid(mesh, (128, 256), None, "tp")
    y = nb.compile(hidden, max_collective_bytes=0)(x, w)
    np.testing.assert_allclose(
        y.numpy(), np.maximum(x.numpy() @ w.numpy(), 0), rtol=1e-4, atol=1e-4
    )


def test_verify(mesh):
    x = laid(mesh, (32, 128), "dp", "tp")
    w = laid(mesh, (128, 256), "tp", None)

    def loss(p):
        return nb.mean(hidden(p["x"], p["w"]) ** 2)

    tree = {"x": x, "w": w}
    said = nb.verify(loss)(tree)
    assert said.compared > 4 and said.error < 1e-4
    said = nb.verify(nb.grad(loss))(tree)
    assert said.compared > 8 and said.error < 1e-4
    with pytest.raises(ValueError, match="tolerance"):
        nb.verify(loss, tolerance=-1.0)


def test_verify_names_what_exceeds_the_tolerance(mesh):
    x = laid(mesh, (64, 4096), "dp", "tp")
    w = laid(mesh, (4096, 8), "tp", None)
    with pytest.raises(RuntimeError, match=r"verify: matmul at .*:\d+ has "):
        nb.verify(lambda x, w: x @ w, tolerance=1e-12)(x, w)
