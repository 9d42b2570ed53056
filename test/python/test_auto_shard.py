"""Layouts chosen for functions."""

import numpy as np
import pytest

import nabla as nb

MESH = nb.DeviceMesh("m", (4,), ("d",))


def mlp(x, params):
    return nb.relu(x @ params["up"]) @ params["down"]


def given(batch, width, inner):
    rng = np.random.default_rng(0)

    def draw(*shape):
        return nb.asarray(rng.standard_normal(shape, dtype=np.float32))

    return draw(batch, width), {
        "up": draw(width, inner),
        "down": draw(inner, width),
    }


def test_a_plan_of_an_mlp_follows_the_structure_and_computes_the_same():
    x, params = given(8, 32, 64)
    plan = nb.auto_shard(mlp, MESH)(x, params)
    assert set(plan.specs[1]) == {"up", "down"}
    assert isinstance(plan.specs[0], nb.ShardingSpec)
    assert plan.bound <= plan.cost
    assert plan.memory > 0
    assert "matmul" in str(plan)
    assert "cost" in str(plan)
    want = mlp(x, params).numpy()
    y = plan.apply(mlp)(x, params)
    assert nb.core.needs_reshard(y.sharding, plan.out_specs) is False
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-4)
    compiled = nb.compile(plan.apply(mlp))
    np.testing.assert_allclose(
        compiled(x, params).numpy(), want, rtol=1e-4, atol=1e-4
    )


def test_another_function_gets_its_arguments_laid_out():
    x, params = given(8, 32, 64)
    plan = nb.auto_shard(mlp, MESH)(x, params)
    seen = []

    def other(x, params):
        seen.append(params["up"].sharding)
        return x @ params["up"]

    y = plan.apply(other)(x, params)
    assert not nb.core.needs_reshard(seen[0], plan.specs[1]["up"])
    np.testing.assert_allclose(
        y.numpy(), (x @ params["up"]).numpy(), rtol=1e-4, atol=1e-4
    )


def test_a_budget_bounds_memory_and_says_what_is_needed():
    x, params = given(8, 32, 64)
    free = nb.auto_shard(mlp, MESH)(x, params)
    tight = nb.auto_shard(mlp, MESH, memory_budget=10_000)(x, params)
    assert tight.memory <= 10_000
    assert tight.cost >= free.cost
    with pytest.raises(ValueError, match="are needed"):
        nb.auto_shard(mlp, MESH, memory_budget=64)(x, params)
    with pytest.raises(ValueError, match="budget of 0"):
        nb.auto_shard(mlp, MESH, memory_budget=0)


def test_updated_parameters_come_out_as_they_lie():
    def step(x, w):
        return w - 0.1 * (x.T @ (x @ w))

    x, w = nb.ones((64, 8)), nb.ones((8, 8))
    plan = nb.auto_shard(step, MESH, aliases=[(0, 1)])(x, w)
    assert not nb.core.needs_reshard(plan.out_specs, plan.specs[1])
    np.testing.assert_allclose(
        plan.apply(step)(x, w).numpy(), step(x, w).numpy(), rtol=1e-4
    )
    with pytest.raises(ValueError, match="there are 1 results"):
        nb.auto_shard(step, MESH, aliases=[(1, 1)])(x, w)


def test_other_arguments_are_refused():
    x, params = given(8, 32, 64)
    planned = nb.auto_shard(mlp, MESH)(x, params)
    with pytest.raises(ValueError, match="structure"):
        planned.apply(mlp)(x, [params["up"], params["down"]])
    with pytest.raises(ValueError, match="another type"):
        planned.apply(mlp)(nb.ones((4, 32)), params)


# What a function says of its values.


def axes(spec):
    return [dim.axes for dim in spec.dim_specs]


def asking(*dims):
    def f(x, params):
        h = nb.relu(x @ params["up"])
        if dims:
            h = h.with_sharding_constraint(MESH, nb.P(*dims))
        return h @ params["down"]

    return f


@pytest.mark.parametrize("dims", [("d", None), (None, "d"), (None, None)])
def test_a_constraint_fixes_a_value_of_the_plan(dims):
    x, params = given(8, 32, 64)
    free = nb.auto_shard(asking(), MESH)(x, params)
    f = asking(*dims)
    plan = nb.auto_shard(f, MESH)(x, params)
    assert plan.cost >= free.cost
    [row] = [
        r for r in str(plan).splitlines() if r.split()[:1] == ["constrain"]
    ]
    sizes = [
        f"{n}@d" if d else str(n) for n, d in zip((8, 64), dims, strict=True)
    ]
    assert f"({', '.join(sizes)})" in row
    want = mlp(x, params).numpy()
    for run in plan.apply(f), nb.compile(plan.apply(f)):
        y = run(x, params)
        assert axes(y.sharding) == axes(plan.out_specs)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-4)


def test_a_constraint_is_heard_where_a_function_is_compiled():
    x = nb.shard(nb.ones((8, 8)), MESH, nb.P(None, None))

    def f(x):
        y = nb.exp(x)
        assert y.with_sharding_constraint(MESH, nb.P("d", None)) is y
        return nb.cos(y)

    assert axes(f(x).sharding) == [[], []]
    assert axes(nb.compile(f)(x).sharding) == [["d"], []]
    g = nb.grad(lambda x: nb.sum(f(x)))
    np.testing.assert_allclose(
        nb.compile(g)(x).numpy(), g(nb.ones((8, 8))).numpy(), rtol=1e-6
    )


def test_a_constraint_with_a_pending_sum_is_refused():
    x = nb.ones((4, 4))
    with pytest.raises(ValueError, match="a reduction is pending"):
        x._constraint = nb.ShardingSpec(MESH, [None, None], set(), {"d"})
