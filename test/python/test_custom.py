"""Operations and kernels of one's own: values, derivatives to any order, lanes,
loops, compiled functions, and what is wrong with them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import nabla as nb

HEADER = "#include <nabla/kernel.h>\n"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache of its own for what this file compiles."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("NABLA_CACHE_DIR")
    os.environ["NABLA_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["NABLA_CACHE_DIR"]
    else:
        os.environ["NABLA_CACHE_DIR"] = before


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A folder of sources: the same text for the CPU and for cards."""
    folder = tmp_path_factory.mktemp("kernels")
    maps = (
        HEADER
        + "#include <math.h>\n"
        + textwrap.dedent("""
        NB_MAP1(add_one, x, x + 1)
        NB_MAP1(cube, x, x * x * x)
        NB_MAP2(axpy, x, y, 2 * x + y)
        NB_MAP3(blend, x, y, z, x * y + z)
        """)
    )
    rows = (
        HEADER
        + textwrap.dedent("""
        /* "... n -> ...": the sum of squares of a row */
        NB_KERNEL(squares)
        {
            const nb_view *x = nb_in(a, 0);
            NB_ROWS(a, r) {
                const float *row = NB_ROW(float, x, r);
                float sum = 0;
                for (int64_t k = 0; k < nb_row_size(x); k++)
                    sum += row[k] * row[k];
                *NB_ROW(float, nb_out(a, 0), r) = sum;
            }
        }

        /* "... m k, ... k n -> ... m n" */
        NB_KERNEL(product)
        {
            const nb_view *x = nb_in(a, 0), *y = nb_in(a, 1);
            int64_t m = x->shape[1], k = x->shape[2], n = y->shape[2];
            NB_ROWS(a, r) {
                const float *p = NB_ROW(float, x, r), *q = NB_ROW(float, y, r);
                float *to = NB_ROW(float, nb_out(a, 0), r);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++) {
                        float sum = 0;
                        for (int64_t l = 0; l < k; l++)
                            sum += p[i * k + l] * q[l * n + j];
                        to[i * n + j] = sum;
                    }
            }
        }

        /* one row: scale * x + (flag ? shift : 0), and how long x is */
        NB_KERNEL(scaled)
        {
            const float *x = (const float *)nb_in(a, 0)->data;
            float *y = (float *)nb_out(a, 0)->data;
            int64_t *n = (int64_t *)nb_out(a, 1)->data;
            if (nb_in(a, 0)->shape[0] != 1 || a->end != 1) *a->status = 9;
            *n = nb_row_size(nb_in(a, 0));
            for (int64_t k = 0; k < *n; k++)
                y[k] = (float)(a->attr[0].f * x[k] +
                               (a->attr[2].i ? a->attr[1].i : 0));
        }

        NB_KERNEL(refuse) { *a->status = 42; }
        """)
    )
    for suffix in ("c", "cu"):
        (folder / f"map.{suffix}").write_text(maps)
        (folder / f"rows.{suffix}").write_text(rows)
    return str(folder)


@pytest.fixture
def cpu(monkeypatch):
    """For what is about C and its compiler."""
    monkeypatch.setenv("NABLA_DEFAULT_DEVICE", "cpu")
    with nb.default_device("cpu"):
        yield


@pytest.fixture
def ops(kernels):
    class AddOne(nb.UnaryOperation):
        name = "add_one"

        def kernel(self, x, **kwargs):
            return nb.call_custom_kernel("add_one", kernels, x, x.type)

        def _derivative(self, primal, output):
            return nb.ones_like(primal)

    class Cube(nb.UnaryOperation):
        name = "cube"

        def kernel(self, x):
            return nb.call_custom_kernel("cube", kernels, x, x.type)

        def _derivative(self, primal, output):
            return 3 * primal * primal

    class CubeByVjp(nb.UnaryOperation):
        name = "cube_by_vjp"

        def kernel(self, x):
            return nb.call_custom_kernel("cube", kernels, x, x.type)

        def vjp_rule(self, primals, cotangents, outputs):
            return cotangents[0] * 3 * outputs[0] / primals[0]

    class CubeByJvp(nb.UnaryOperation):
        name = "cube_by_jvp"

        def kernel(self, x):
            return nb.call_custom_kernel("cube", kernels, x, x.type)

        def jvp_rule(self, primals, tangents, outputs):
            return [tangents[0] * 3 * primals[0] * primals[0]]

    class Axpy(nb.BinaryOperation):
        name = "axpy"
        linear = "all"

        def kernel(self, x, y):
            return nb.call_custom_kernel("axpy", kernels, [x, y], x.type)

        def vjp_rule(self, primals, cotangents, outputs):
            return 2 * cotangents[0], cotangents[0]

    class Squares(nb.Operation):
        name = "squares"
        signature = "... n -> ..."

        def kernel(self, x):
            out = nb.TensorType(x.shape[:-1], x.dtype)
            return nb.call_custom_kernel("squares", kernels, x, out)

        def vjp_rule(self, primals, cotangents, outputs):
            return 2 * cotangents[0][..., None] * primals[0]

    class Product(nb.Operation):
        name = "product"
        signature = "... m k, ... k n -> ... m n"

        def kernel(self, x, y):
            lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
            out = nb.TensorType((*lead, x.shape[-2], y.shape[-1]), x.dtype)
            return nb.call_custom_kernel("product", kernels, [x, y], out)

        def vjp_rule(self, primals, cotangents, outputs):
            (x, y), (ct,) = primals, cotangents
            return ct @ y.mT, x.mT @ ct

    class Names:
        pass

    found = Names()
    found.cubes = [Cube(), CubeByVjp(), CubeByJvp()]
    found.add_one, found.axpy = AddOne(), Axpy()
    found.squares, found.product = Squares(), Product()
    return found


def close(x, y, tolerance=1e-5):
    np.testing.assert_allclose(
        np.asarray(x), np.asarray(y), rtol=tolerance, atol=tolerance
    )


V = np.array([0.5, 1.0, 2.0], np.float32)
M = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


# Values


def test_a_kernel_of_c_computes(ops):
    close(ops.add_one(V), V + 1)
    close(ops.add_one(nb.constant(M).T), M.T + 1)
    assert ops.add_one(V).shape == (3,)


@pytest.mark.parametrize(
    "dtype",
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 "
    "float32 float64".split(),
)
def test_a_map_takes_every_numeric_dtype(ops, dtype):
    x = nb.cast(nb.constant([1.0, 2.0, 100.0]), dtype)
    y = ops.add_one(x)
    assert y.dtype == x.dtype
    close(nb.cast(y, "float64"), [2, 3, 101])


def test_sixteen_bits_round_to_nearest_even(ops):
    x = np.linspace(-3e4, 3e4, 4001).astype(np.float16)
    x = np.concatenate([x, np.float16([1e-7, 6e-8, -3e-6, np.inf, -np.inf])])
    got = np.asarray(ops.cubes[0](x))
    with np.errstate(over="ignore", under="ignore"):
        want = (x.astype(np.float32) ** 3).astype(np.float16)
    assert np.array_equal(got, want)


def test_two_operands_promote_and_broadcast(ops):
    close(ops.axpy(M, 1), 2 * M + 1)
    close(ops.axpy(1.5, M), 3 + M)
    close(ops.axpy(V, M), 2 * V + M)
    assert ops.axpy(np.int32([1, 2]), 0.5).dtype == nb.float32


def test_rows_are_what_stands_before_the_named_axes(ops):
    close(ops.squares(M), (M**2).sum(-1))
    x, y = np.random.rand(5, 2, 3), np.random.rand(3, 4)
    x, y = x.astype("f4"), y.astype("f4")
    close(ops.product(x, y), x @ y)
    close(ops.product(nb.constant(y).T, nb.constant(x[0]).T), y.T @ x[0].T)
    assert ops.squares(np.zeros((0, 3), "f4")).shape == (0,)
    close(ops.squares(np.zeros((2, 0), "f4")), [0, 0])


def test_a_large_kernel_is_shared_by_threads(ops):
    x = np.random.rand(3000, 257).astype("f4")
    for n in (1, 2, 3):
        with nb.config.set(num_threads=n):
            close(ops.squares(x), (x**2).sum(-1), 1e-4)
            close(ops.add_one(x), x + 1)


def test_several_results_and_attributes(kernels):
    types = [nb.TensorType((3,), "float32"), nb.TensorType((), "int64")]
    y, n = nb.call_custom_kernel(
        "scaled", kernels, nb.constant(V), types, s=2.0, t=7, on=True
    )
    close(y, 2 * V + 7)
    assert n.item() == 3
    y, n = nb.call_custom_kernel(
        "scaled", [kernels], [V], types, s=np.float32(1), t=np.int8(7), on=False
    )
    close(y, V)


def test_an_operation_may_be_written_in_nabla():
    class Both(nb.Operation):
        name = "both"

        def kernel(self, x, *, scale):
            return x * scale, nb.sum(x)

    y, s = Both()(nb.constant(V), scale=3)
    close(y, 3 * V)
    close(s, V.sum())
    close(
        nb.grad(lambda x: nb.sum(Both()(x, scale=3)[0]))(nb.constant(V)),
        [3, 3, 3],
    )
    assert isinstance(Both()(V, scale=1), list)


def test_reductions_count_axes_from_the_end():
    seen = []

    class Total(nb.ReduceOperation):
        name = "total"

        def kernel(self, x, *, axis, keepdims):
            seen.append((axis, x.shape))
            return nb.sum(x, axis, keepdims)

        def vjp_rule(self, primals, cotangents, outputs, *, axis, keepdims):
            (x,), (ct,) = primals, cotangents
            if not keepdims:
                ct = nb.unsqueeze(ct, axis)
            return ct * nb.ones_like(x)

    op = Total()
    x = np.random.rand(2, 3, 4).astype("f4")
    for axis in (0, 1, -1, (0, 2), None):
        for keep in (False, True):
            want = x.sum(axis, keepdims=keep)
            close(op(x, axis=axis, keepdims=keep), want)
    close(nb.vmap(lambda v: op(v, axis=0))(nb.constant(x)), x.sum(1))
    assert seen[-1] == (-2, (2, 3, 4))
    g = nb.grad(lambda v: nb.sum(op(v, axis=1) ** 2))(nb.constant(x))
    close(g, np.broadcast_to(2 * x.sum(1, keepdims=True), x.shape))
    with pytest.raises(nb.AxisError):
        op(x, axis=3)
    with pytest.raises(ValueError, match="twice"):
        op(x, axis=(0, -3))


def test_creation_takes_no_tensors():
    class Ramp(nb.CreationOperation):
        name = "ramp"

        def kernel(self, n, *, step=1.0):
            return nb.arange(n) * step

    close(Ramp()(3, step=0.5), [0, 0.5, 1])


def test_costs_follow_from_the_signature(ops):
    shapes = [(5, 2, 3), (3, 4)], [(5, 2, 4)]
    assert ops.product.compute_cost(*shapes) == 5 * 2 * 3 * 4
    assert ops.product.memory_cost(*shapes) == 5 * 2 * 4 * 4
    assert ops.add_one.compute_cost([(2, 3)], [(2, 3)]) == 6
    split = failing(signature="... (a b) 1 -> ... a b")
    assert split.compute_cost([(5, 6, 1)], [(5, 2, 3)]) == 5 * 6 * 6
    assert ops.add_one.memory_cost([(2, 3)], [(2, 3)], dtype_bytes=8) == 48


# Derivatives


@pytest.mark.parametrize("which", range(3))
def test_derivatives_of_any_order_from_one_rule(ops, which):
    cube = ops.cubes[which]
    f = lambda x: nb.sum(cube(x))  # noqa: E731
    close(nb.grad(f)(nb.constant(V)), 3 * V**2)
    close(nb.jvp(cube, (nb.constant(V),), (nb.ones(3),))[1], 3 * V**2)
    close(nb.hessian(f)(nb.constant(V)), np.diag(6 * V))
    close(nb.jacfwd(nb.jacrev(f))(nb.constant(V)), np.diag(6 * V))
    close(nb.jacrev(nb.jacfwd(f))(nb.constant(V)), np.diag(6 * V))
    close(nb.jacrev(cube)(nb.constant(V)), np.diag(3 * V**2))
    g2 = lambda x: nb.sum(nb.grad(f)(x))  # noqa: E731
    g3 = lambda x: nb.sum(nb.grad(g2)(x))  # noqa: E731
    close(nb.grad(g3)(nb.constant(V)), [6, 6, 6])


def test_rules_of_several_inputs(ops):
    x, y = np.random.rand(2, 3).astype("f4"), np.random.rand(3, 2).astype("f4")
    f = lambda x, y: nb.sum(ops.product(x, y) ** 2)  # noqa: E731
    g = lambda x, y: nb.sum((x @ y) ** 2)  # noqa: E731
    x, y = nb.constant(x), nb.constant(y)
    for arg in (0, 1):
        close(nb.grad(f, argnums=arg)(x, y), nb.grad(g, argnums=arg)(x, y))
        close(
            nb.hessian(f, argnums=arg)(x, y), nb.hessian(g, argnums=arg)(x, y)
        )
    close(
        nb.jvp(ops.product, (x, y), (x, y))[1],
        nb.jvp(nb.matmul, (x, y), (x, y))[1],
    )


def test_cotangents_are_summed_over_what_was_broadcast(ops):
    x, y = nb.constant(M), nb.constant(V)
    gx, gy = nb.grad(lambda x, y: nb.sum(ops.axpy(x, y)), argnums=(0, 1))(x, y)
    close(gx, np.full((2, 3), 2))
    close(gy, [2, 2, 2])
    b = nb.constant(np.random.rand(4, 2, 3).astype("f4"))
    w = nb.constant(np.random.rand(3, 2).astype("f4"))
    close(
        nb.grad(lambda w: nb.sum(ops.product(b, w)))(w),
        nb.grad(lambda w: nb.sum(b @ w))(w),
        1e-4,
    )


def test_a_linear_operation_is_its_own_tangent():
    class Twice(nb.UnaryOperation):
        name = "twice"
        linear = "all"

        def kernel(self, x):
            return nb.stop_gradient(x * 2)

    x = nb.constant(V)
    close(nb.jvp(Twice(), (x,), (x,))[1], 2 * V)
    with pytest.raises(RuntimeError, match="twice: has no derivative"):
        nb.grad(lambda x: nb.sum(Twice()(x)))(x)


def test_integers_have_no_gradient(kernels):
    class Pick(nb.Operation):
        name = "pick"

        def kernel(self, x, i):
            return nb.take(x, i)

        def vjp_rule(self, primals, cotangents, outputs):
            x, i = primals
            return nb.one_hot(i, 3) * cotangents[0], None

    g = nb.grad(lambda x: Pick()(x, nb.constant(1)) * 5)(nb.constant(V))
    close(g, [0, 5, 0])


def test_backward_walks_through(ops):
    x = nb.Tensor(V, requires_grad=True)
    nb.sum(ops.cubes[1](x)).backward()
    close(x.grad, 3 * V**2)


# Lanes


def test_lanes_are_leading_axes_with_a_signature(ops):
    seen = []

    class Look(nb.UnaryOperation):
        name = "look"

        def kernel(self, x):
            seen.append((x.shape, x.batch_dims))
            return x + 1

    close(nb.vmap(Look())(nb.constant(M)), M + 1)
    assert seen == [((2, 3), 0)]
    close(nb.vmap(nb.vmap(Look()))(nb.constant(M)), M + 1)
    assert seen[-1] == ((2, 3), 0)


def test_lanes_stay_hidden_without_one():
    seen = []

    class Sorted(nb.Operation):
        name = "sorted"

        def kernel(self, x):
            seen.append(x.shape)
            return nb.sort(x)

    close(nb.vmap(Sorted())(nb.constant(-M)), np.sort(-M))
    assert seen == [(3,)]


def test_a_kernel_without_signature_runs_once_a_lane(kernels):
    def f(x):
        types = [x.type, nb.TensorType((), "int64")]
        return nb.call_custom_kernel(
            "scaled", kernels, x, types, s=2.0, t=1, on=True
        )

    y, n = nb.vmap(f)(nb.constant(M))
    close(y, 2 * M + 1)
    close(n, [3, 3])
    y, n = nb.vmap(f, in_axes=1)(nb.constant(M))
    close(y, 2 * M.T + 1)
    close(n, [2, 2, 2])


def test_results_of_sizes_that_a_kernel_is_told_are_of_any_size(kernels):
    def f(x):
        return nb.call_custom_kernel("cube", kernels, x, x.type) + x

    g = nb.compile(f, dynamic_dims={0: {0: "n"}})
    for n in (3, 5, 1, 3):
        close(g(nb.full((n,), 2.0)), np.full(n, 10.0))
    assert g.stats.misses == 3 and "different ops" in g.explain().fixed


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (1, 2)])
def test_vmap_is_a_loop(ops, axes):
    shape = {0: (5, 2, 3), 1: (2, 5, 3), None: (2, 3)}[axes[0]]
    other = {0: (5, 3, 4), 2: (3, 4, 5), None: (3, 4)}[axes[1]]
    x = nb.constant(np.random.rand(*shape).astype("f4"))
    y = nb.constant(np.random.rand(*other).astype("f4"))
    got = nb.vmap(ops.product, in_axes=axes)
    want = nb.vmap(nb.matmul, in_axes=axes)
    close(got(x, y), want(x, y))
    total = lambda f: lambda x, y: nb.sum(f(x, y) ** 2)  # noqa: E731
    for arg in (0, 1):
        close(
            nb.grad(total(got), argnums=arg)(x, y),
            nb.grad(total(want), argnums=arg)(x, y),
            1e-4,
        )


def test_lanes_and_visible_axes_of_different_ranks(ops):
    x = nb.constant(np.random.rand(5, 7, 2, 3).astype("f4"))
    y = nb.constant(np.random.rand(5, 3, 4).astype("f4"))
    close(nb.vmap(ops.product)(x, y), nb.vmap(nb.matmul)(x, y))
    close(
        nb.vmap(nb.vmap(ops.product, in_axes=(0, None)))(x, y),
        nb.vmap(nb.vmap(nb.matmul, in_axes=(0, None)))(x, y),
    )


@pytest.mark.parametrize("which", range(3))
def test_gradients_of_lanes_and_lanes_of_gradients(ops, which):
    cube = ops.cubes[which]
    f = lambda x: nb.sum(cube(x))  # noqa: E731
    close(nb.vmap(nb.grad(f))(nb.constant(M)), 3 * M**2)
    close(nb.grad(lambda x: nb.sum(nb.vmap(cube)(x)))(nb.constant(M)), 3 * M**2)
    close(nb.vmap(nb.hessian(f))(nb.constant(M)), [np.diag(6 * r) for r in M])
    w = nb.constant(2.0)
    shared = lambda w: nb.sum(nb.vmap(lambda v: cube(w * v))(nb.constant(M)))  # noqa: E731
    close(nb.grad(shared)(w), 12 * (M**3).sum())


# Loops, branches, compiled functions


def test_inside_scan(ops):
    def f(x):
        def step(c, v):
            c = ops.add_one(c) * ops.cubes[1](v)
            return c, c

        return nb.scan(step, x, nb.constant(V))

    def want(x):
        def step(c, v):
            c = (c + 1) * v * v * v
            return c, c

        return nb.scan(step, x, nb.constant(V))

    x = nb.constant(0.5)
    for a, b in zip(nb.tree_leaves(f(x)), nb.tree_leaves(want(x)), strict=True):
        close(a, b)
    total = lambda f: lambda x: nb.sum(f(x)[1])  # noqa: E731
    close(nb.grad(total(f))(x), nb.grad(total(want))(x))
    close(
        nb.vmap(nb.grad(total(f)))(nb.constant(V)),
        nb.vmap(nb.grad(total(want)))(nb.constant(V)),
    )


def test_inside_cond_and_checkpoint(ops):
    cube = ops.cubes[2]
    f = lambda x: nb.cond(x > 1, cube, ops.add_one, x)  # noqa: E731
    close(nb.grad(f)(nb.constant(2.0)), 12)
    close(nb.grad(f)(nb.constant(0.5)), 1)
    g = nb.checkpoint(lambda x: nb.sum(cube(cube(x))))
    close(nb.grad(g)(nb.constant(V)), 9 * V**8, 1e-3)


needs_compile = pytest.mark.skipif(
    not hasattr(nb, "compile"), reason="compile is not there yet"
)


@needs_compile
def test_inside_compiled_functions(ops):
    f = lambda x: nb.sum(ops.cubes[0](x) * ops.axpy(x, 1.0))  # noqa: E731
    g = lambda x: nb.sum(x * x * x * (2 * x + 1))  # noqa: E731
    x = nb.constant(V)
    close(nb.compile(f)(x), g(x))
    close(nb.compile(nb.grad(f))(x), nb.grad(g)(x))
    close(nb.compile(nb.hessian(f))(x), nb.hessian(g)(x))
    close(
        nb.compile(nb.vmap(nb.grad(f)))(nb.constant(M)),
        nb.vmap(nb.grad(g))(nb.constant(M)),
        1e-4,
    )
    h = nb.compile(lambda x: ops.squares(x) + ops.squares(x * 2))
    close(h(nb.constant(M)), 5 * (M**2).sum(-1))
    close(h(nb.constant(M + 1)), 5 * ((M + 1) ** 2).sum(-1))


def test_it_is_named_in_listings(ops):
    text = str(nb.xpr(lambda x: ops.cubes[0](x))(nb.constant(V)))
    assert "cube" in text


# What is wrong


def failing(**members):
    base = members.pop("base", nb.UnaryOperation)
    members.setdefault("kernel", lambda self, x: x * 2)
    return type("Failing", (base,), {"name": "failing", **members})()


def test_failing_rules_say_of_what(ops):
    def wrong(self, primals, given, outputs):
        raise KeyError("oops")

    op = failing(vjp_rule=wrong)
    says = "VJP rule failed for operation 'failing': 'oops'"
    with pytest.raises(RuntimeError, match=says) as error:
        nb.grad(lambda x: nb.sum(op(x)))(nb.constant(V))
    assert isinstance(error.value.__cause__, KeyError)
    with pytest.raises(RuntimeError, match="VJP rule failed"):
        nb.jvp(op, (nb.constant(V),), (nb.constant(V),))
    op = failing(jvp_rule=wrong)
    with pytest.raises(
        RuntimeError, match="JVP rule failed for operation 'failing'"
    ):
        nb.jvp(op, (nb.constant(V),), (nb.constant(V),))
    close(op(V), 2 * V)


def test_rules_of_the_wrong_form():
    op = failing(vjp_rule=lambda self, x, ct, y: [ct[0], ct[0]])
    with pytest.raises(RuntimeError, match="2 entries, not 1"):
        nb.grad(lambda x: nb.sum(op(x)))(nb.constant(V))
    op = failing(vjp_rule=lambda self, x, ct, y: nb.ones(7))
    with pytest.raises(
        RuntimeError, match=r"failing.*has shape \(7,\), not \(3,\)"
    ):
        nb.grad(lambda x: nb.sum(op(x)))(nb.constant(V))
    op = failing(vjp_rule=lambda self, x, ct, y: "no")
    with pytest.raises(RuntimeError, match="VJP rule failed"):
        nb.grad(lambda x: nb.sum(op(x)))(nb.constant(V))
    op = failing(vjp_rule=lambda self, x, ct, y: None)
    close(
        nb.grad(lambda x: nb.sum(op(x)) + nb.sum(x))(nb.constant(V)), [1, 1, 1]
    )


def test_without_rules_a_kernel_has_no_derivative(kernels):
    def f(x):
        return nb.sum(nb.call_custom_kernel("add_one", kernels, x, x.type))

    close(f(nb.constant(V)), (V + 1).sum())
    with pytest.raises(RuntimeError, match="add_one: a kernel has no deriv"):
        nb.grad(f)(nb.constant(V))


def test_operations_that_are_not_whole():
    with pytest.raises(NotImplementedError, match="kernel"):
        type("Empty", (nb.UnaryOperation,), {"name": "empty"})()(nb.constant(V))
    with pytest.raises(TypeError, match="needs a name"):
        failing(name=None)(nb.constant(V))
    with pytest.raises(ValueError, match="linear"):
        failing(linear="some")(nb.constant(V))
    with pytest.raises(ValueError, match="linear in inputs"):
        failing(linear=(1,))(nb.constant(V))
    with pytest.raises(ValueError, match="->"):
        failing(signature="... n")(nb.constant(V))
    with pytest.raises(ValueError, match="signature"):
        failing(signature="..., ... -> ...")(nb.constant(V))
    with pytest.raises(TypeError):
        failing()(V, V)
    with pytest.raises(TypeError):
        failing()("text")
    with pytest.raises(ValueError, match=r"shape \(\), not \(3,\)"):
        failing(kernel=lambda self, x: nb.sum(x))(nb.constant(V))
    with pytest.raises(ZeroDivisionError):
        failing(kernel=lambda self, x: 1 / 0)(nb.constant(V))
    with pytest.raises(TypeError):
        failing(kernel=lambda self, x: "text")(nb.constant(V))


def test_shapes_are_checked_by_the_signature(ops):
    with pytest.raises(ValueError, match="size 3 meets axis of size 2"):
        ops.product(M, M)
    with pytest.raises(ValueError, match="rank"):
        ops.squares(nb.constant(1.0))


def test_declared_types_have_to_fit(kernels):
    op = failing(
        kernel=lambda self, x: nb.call_custom_kernel(
            "add_one", kernels, x, nb.TensorType((9,), x.dtype)
        )
    )
    with pytest.raises(ValueError, match=r"\(3,\) is declared as \(9,\)"):
        op(V)


@pytest.mark.usefixtures("cpu")
def test_bad_calls_of_kernels(kernels, tmp_path):
    x = nb.constant(V)
    call = nb.call_custom_kernel
    with pytest.raises(FileNotFoundError, match="nowhere"):
        call("add_one", tmp_path / "nowhere.c", x, x.type)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        call("add_one", [kernels, "nowhere"], x, x.type)
    with pytest.raises(ValueError, match="void absent"):
        call("absent", kernels, x, x.type)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no function for the CPU"):
        call("add_one", tmp_path / "empty", x, x.type)
    (tmp_path / "only.cu").write_text("")
    with pytest.raises(ValueError, match="no function for the CPU"):
        call("add_one", tmp_path / "only.cu", x, x.type)
    with pytest.raises(ValueError, match=r"no \.c or \.cu file"):
        (tmp_path / "k.cpp").write_text("")
        call("add_one", tmp_path / "k.cpp", x, x.type)
    for wrong in ("text", None, [1], x, 1j):
        with pytest.raises(TypeError, match="attribute s"):
            call("add_one", kernels, x, x.type, s=wrong)
    with pytest.raises(OverflowError):
        call("add_one", kernels, x, x.type, s=1 << 70)
    with pytest.raises(ValueError, match="17 attributes"):
        call("add_one", kernels, x, x.type, **{f"a{i}": i for i in range(17)})
    with pytest.raises(TypeError, match="TensorType"):
        call("add_one", kernels, x, [(3,)])
    with pytest.raises(ValueError, match="no result types"):
        call("add_one", kernels, x, [])
    with pytest.raises(ValueError, match="at most 16"):
        call("add_one", kernels, [x] * 16, x.type)
    with pytest.raises(TypeError):
        call("add_one", kernels, "text", x.type)
    with pytest.raises(TypeError):
        call(3, kernels, x, x.type)
    with pytest.raises(ValueError, match="rank 8"):
        y = nb.zeros((1,) * 8)
        call("add_one", kernels, y, y.type)
    with pytest.raises(RuntimeError, match="refuse.*status 42"):
        call("refuse", kernels, x, x.type).realize()
    with pytest.raises(RuntimeError, match="other number of operands"):
        call("axpy", kernels, x, x.type).realize()
    with pytest.raises(RuntimeError, match="dtypes"):
        call("add_one", kernels, x, nb.TensorType((3,), "float64")).realize()


@pytest.mark.usefixtures("cpu")
def test_a_compiler_error_has_file_and_line(tmp_path):
    x = nb.constant(V)
    bad = tmp_path / "bad.c"
    bad.write_text(HEADER + "\nNB_KERNEL(bad)\n{\n    undeclared = 1;\n}\n")
    with pytest.raises(RuntimeError, match=r"bad\.c:5:.*") as error:
        nb.call_custom_kernel("bad", bad, x, x.type)
    assert "undeclared" in str(error.value)
    bad.write_text(HEADER + "NB_MAP1(bad, x, x - 1)\n")
    close(nb.call_custom_kernel("bad", bad, x, x.type), V - 1)


@pytest.mark.usefixtures("cpu")
def test_changed_sources_and_headers_are_compiled_again(tmp_path):
    x = nb.constant(V)
    source, header = tmp_path / "k.c", tmp_path / "by.h"
    (tmp_path / "more").mkdir()
    deep = tmp_path / "more" / "deep.h"
    source.write_text(HEADER + '#include "by.h"\nNB_MAP1(k, x, x + BY)\n')
    header.write_text('#include "more/deep.h"\n#define BY DEEP\n')
    for by in (1, 2, 3, 1):
        deep.write_text(f"#define DEEP {by}\n")
        close(nb.call_custom_kernel("k", source, x, x.type), V + by)
    source.write_text(HEADER + "NB_MAP1(k, x, x * 2)\n")
    close(nb.call_custom_kernel("k", source, x, x.type), V * 2)
    close(nb.call_custom_kernel("k", tmp_path, x, x.type), V * 2)


@pytest.mark.usefixtures("cpu")
def test_a_source_may_begin_with_empty_lines(tmp_path):
    x = nb.constant(V)
    source, header = tmp_path / "k.c", tmp_path / "by.h"
    source.write_text(
        "\n\n" + HEADER + '\n#include "by.h"\nNB_MAP1(k, x, x + BY)\n'
    )
    for by in (1, 2):
        header.write_text(f"\n#define BY {by}\n")
        close(nb.call_custom_kernel("k", source, x, x.type), V + by)


# Processes

PROGRAM = """
import sys
import numpy as np
import nabla as nb
x = nb.constant(np.float32([1, 2]))
y = nb.call_custom_kernel("shared", sys.argv[1], x, x.type)
assert (np.asarray(y) == [8, 9]).all(), y
"""


def processes(n, source, **environment):
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(source)],
            env=os.environ | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(n)
    ]
    for process in running:
        said = process.communicate()[1]
        assert process.returncode == 0, said


@pytest.fixture
def shared(tmp_path):
    source = tmp_path / "shared.c"
    source.write_text(HEADER + "NB_MAP1(shared, x, x + 7)\n")
    return source


@pytest.mark.usefixtures("cpu")
def test_processes_share_the_cache(shared, tmp_path):
    cache = tmp_path / "cache"
    processes(4, shared, NABLA_CACHE_DIR=str(cache))
    (entry,) = cache.glob("*.code")
    assert not [*cache.glob(".tmp*")]
    # what is there needs no compiler, but for its version
    cc, real = tmp_path / "cc", os.environ.get("CC") or "cc"
    cc.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\nexit 1\n'
    )
    cc.chmod(0o755)
    processes(1, shared, NABLA_CACHE_DIR=str(cache), CC=str(cc))
    for damage in (b"", b"rubbish", entry.read_bytes()[:-9]):
        entry.write_bytes(damage)
        processes(2, shared, NABLA_CACHE_DIR=str(cache))
        assert len(entry.read_bytes()) > len(damage)


@pytest.mark.usefixtures("cpu")
def test_without_a_cache_it_still_works(shared, tmp_path):
    closed = tmp_path / "closed"
    closed.write_text("no folder")
    processes(1, shared, NABLA_CACHE_DIR=str(closed))
    processes(1, shared, NABLA_CACHE_MIB="0")


@pytest.mark.usefixtures("cpu")
def test_no_compiler_is_an_error(shared, tmp_path):
    program = PROGRAM.replace(
        "y = nb",
        "import pytest\nwith pytest.raises(RuntimeError, match='CC'): nb",
    ).rpartition("assert")[0]
    cache = str(tmp_path / "none")
    subprocess.run(
        [sys.executable, "-c", program, str(shared)],
        env=os.environ | {"CC": "/no/such/cc", "NABLA_CACHE_DIR": cache},
        check=True,
    )


def test_kernels_on_a_mesh(ops):
    """Rows are split; what a device has of them is what its kernel is given."""
    mesh = nb.DeviceMesh((4,), ("x",))
    a = np.arange(24, dtype=np.float32).reshape(8, 3) / 8
    x = nb.Tensor(a).shard(mesh, nb.P("x", None))
    y = ops.cubes[0](x)
    assert y.sharding.dim_specs[0].axes == ["x"]
    close(y, a**3)
    close(ops.squares(x), (a * a).sum(1))
    grad = nb.grad(lambda x: nb.sum(ops.cubes[0](x)))
    close(nb.compile(grad)(x), 3 * a * a)
