"""The Python package: arguments, devices, functions with forms of their own,
laziness, random numbers, configuration, names.  What ops compute is tested
elsewhere."""

import asyncio
import contextvars
import doctest
import importlib
import inspect
import os
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import nabla as nb

# Rules that hold everywhere.


def test_array_likes_are_taken_and_lists_are_not():
    x = nb.ones(2)
    for other in (x, np.ones(2, np.float32), np.float32(1), 1, 1.0, True):
        assert nb.add(x, other).tolist() == [2, 2]
    for wrong in ([1, 2], (1, 2), "a", None, object(), 1j, {}):
        with pytest.raises(TypeError):
            nb.add(x, wrong)
    assert nb.ops.ensure_tensor(x) is x
    assert nb.ops.ensure_tensor(2).dtype is nb.int64
    assert nb.ops.ensure_tensor(np.int8(2)).dtype is nb.int8
    with pytest.raises(TypeError):
        nb.ops.ensure_tensor([1])


@pytest.mark.parametrize("shape", [3, (3,), [3], np.array([3]), (np.int64(3),)])
def test_a_shape_is_an_int_or_a_sequence_of_ints(shape):
    assert nb.zeros(shape).shape == (3,)


@pytest.mark.parametrize(
    "shape, error",
    [
        (-1, ValueError),
        ((2, -1), ValueError),
        ((1,) * 17, ValueError),
        ((2**40, 2**40), (ValueError, OverflowError, MemoryError)),
        (1.5, TypeError),
        ("a", TypeError),
        (None, TypeError),
        (10**30, OverflowError),
    ],
    ids=str,
)
def test_bad_shapes_fail_at_the_call(shape, error):
    with pytest.raises(error):
        nb.zeros(shape)


def test_sizes_of_zero_and_rank_zero_are_legal():
    assert nb.zeros(()).tolist() == 0
    assert nb.zeros((0, 3)).shape == (0, 3)
    assert (nb.zeros((0, 3)) + 1).tolist() == []
    assert nb.sum(nb.zeros((0, 3)), axis=0).tolist() == [0, 0, 0]


def test_an_axis_error_is_a_value_error_and_an_index_error():
    x = nb.ones((2, 3))
    assert issubclass(nb.AxisError, ValueError)
    assert issubclass(nb.AxisError, IndexError)
    for call in (
        lambda: nb.sum(x, axis=2),
        lambda: nb.softmax(x, axis=-3),
        lambda: nb.unsqueeze(x, axis=4),
        lambda: nb.swap_axes(x, 0, 5),
        lambda: nb.concatenate([x, x], axis=2),
        lambda: x.size(7),
    ):
        with pytest.raises(nb.AxisError, match="out of range"):
            call()


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"add.*\(2, 3\).*\(4,\)"):
        nb.ones((2, 3)) + nb.ones(4)


def test_arguments_bind_as_python_binds_them():
    x = nb.ones((2, 3))
    assert nb.sum(x, 1).shape == nb.sum(x=x, axis=1).shape == (2,)
    for call in (
        lambda: nb.exp(),
        lambda: nb.exp(x, x),
        lambda: nb.exp(y=x),
        lambda: nb.sum(x, 1, axis=1),
        lambda: nb.zeros(2, nb.float32),
        lambda: nb.avg_pool2d(x, 2),
        lambda: x.exp(1),
    ):
        with pytest.raises(TypeError):
            call()


def test_bad_input_fails_at_the_call_not_at_realisation():
    with pytest.raises(ValueError):
        nb.matmul(nb.ones((2, 3)), nb.ones((2, 3)))


# Devices and defaults.


def test_the_number_of_a_device_is_an_int():
    for kind in (nb.Accelerator, nb.CPU):
        for wrong in ("x", 1.5, None):
            with pytest.raises(TypeError, match=f"{kind.__name__}.*an int"):
                kind(wrong)


def test_devices_compare_hash_and_print():
    assert str(nb.CPU()) == "Device(type=cpu,id=0)"
    assert str(nb.Accelerator()) == "Device(type=gpu,id=0)"
    assert nb.CPU() == nb.CPU(0) != nb.Accelerator(0) != nb.Accelerator(1)
    assert len({nb.CPU(), nb.CPU(0), nb.Accelerator(1)}) == 2
    assert (nb.Accelerator(1).type, nb.Accelerator(1).id) == ("gpu", 1)
    assert nb.devices() == [nb.CPU()]
    assert nb.ones(2).device == nb.CPU()


def test_unknown_devices_are_value_errors_and_absent_ones_runtime_errors():
    x = nb.ones(2)
    for wrong in ("tpu", "gpu:x", "cpu:", "", "cuda:-1"):
        with pytest.raises(ValueError, match="device"):
            nb.zeros(2, device=wrong)
    for absent in ("gpu", "gpu:0", "cuda", "cuda:1", nb.Accelerator()):
        for call in (
            lambda d=absent: nb.zeros(2, device=d),
            lambda d=absent: nb.constant(1, device=d),
            lambda d=absent: nb.Tensor(1, device=d),
            lambda d=absent: nb.to_device(x, d),
            lambda d=absent: x.to(d),
        ):
            with pytest.raises(RuntimeError, match="not present"):
                call()
    for call in (x.cuda, x.gpu, lambda: nb.accelerator(x, 1)):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(TypeError):
        nb.zeros(2, device=3)


def test_moving_to_where_it_is_changes_nothing():
    x = nb.ones(2)
    assert nb.to_device(x) is x
    for y in (x.cpu(), nb.cpu(x), x.to("cpu"), x.to(nb.CPU())):
        assert y.device == nb.CPU() and y.tolist() == [1, 1]
    assert nb.transfer_to is nb.to_device
    with pytest.raises(TypeError):
        nb.to_device(1.0, "cpu")
    with pytest.raises(ValueError):
        nb.to_device(x, "cpu", sharding=object())
    with pytest.raises(TypeError):
        nb.to_device(x, sharding=object())


def test_a_default_device_that_is_absent_warns_once():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with nb.default_device("gpu"):
            assert nb.zeros(2).device == nb.CPU()
            assert nb.defaults()[1] == nb.CPU()
    assert [w.category for w in seen] == [RuntimeWarning]
    with pytest.raises(ValueError):
        nb.default_device("tpu")


def test_defaults():
    assert nb.defaults() == (nb.float32, nb.CPU())
    assert nb.defaults("int8", "cpu") == (nb.int8, nb.CPU())
    with nb.default_dtype(nb.float16):
        assert nb.defaults()[0] is nb.float16
        assert nb.zeros(1).dtype is nb.float16
        with nb.default_dtype("float64"):
            assert nb.ones(1).dtype is nb.float64
        assert nb.eye(1).dtype is nb.float16
        assert nb.constant([0.5]).dtype is nb.float16
        assert nb.arange(2).dtype is nb.int64
    with nb.defaults_like(nb.ones(1, dtype="float64")):
        assert nb.linspace(0, 1, 2).dtype is nb.float64
    with nb.defaults_like(nb.TensorType((), "bfloat16")):
        assert nb.hann_window(2).dtype is nb.bfloat16
    assert nb.zeros(1).dtype is nb.float32
    for wrong in (
        lambda: nb.default_dtype("int32"),
        lambda: nb.default_dtype(None),
        lambda: nb.defaults_like(1),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_a_default_ends_with_an_exception():
    with pytest.raises(ZeroDivisionError), nb.default_dtype("float64"):
        raise ZeroDivisionError
    assert nb.defaults()[0] is nb.float32


def test_defaults_belong_to_a_context():
    seen = []
    with nb.default_dtype("float64"):
        thread = threading.Thread(
            target=lambda: seen.append(nb.zeros(1).dtype)
        )
        thread.start()
        thread.join()
        inside = contextvars.copy_context()
    assert seen == [nb.float32]
    assert inside.run(lambda: nb.zeros(1).dtype) is nb.float64

    async def task(dtype):
        with nb.default_dtype(dtype):
            await asyncio.sleep(0)
            return nb.zeros(1).dtype

    async def both():
        return await asyncio.gather(task("float16"), task("float64"))

    assert asyncio.run(both()) == [nb.float16, nb.float64]


# Creation.


def test_creation():
    assert nb.full((2,), 7).dtype is nb.int64
    assert nb.full((2,), 7.5).dtype is nb.float32
    assert nb.full((2,), True).dtype is nb.bool
    assert nb.full((), 7, dtype="int8").item() == 7
    assert nb.empty((2,)).tolist() == [0, 0]
    assert nb.zeros_like(nb.ones((2, 1), dtype="int8")).type == nb.TensorType(
        (2, 1), "int8"
    )
    assert nb.full_like(nb.ones(2), 3).dtype is nb.float32
    assert nb.ones_like(nb.ones(2), dtype="bool").dtype is nb.bool
    assert nb.empty_like(nb.ones(2)).tolist() == [0, 0]
    assert nb.eye(2, 3, k=1).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert nb.linspace(0, 1, 5, endpoint=False)[1].item() == pytest.approx(0.2)
    assert nb.linspace(0, 1, 1).tolist() == [0]
    assert nb.hann_window(4, periodic=False).shape == (4,)
    xs, ys = nb.meshgrid(nb.arange(2), nb.arange(3), indexing="ij")
    assert xs.shape == ys.shape == (2, 3)
    with pytest.raises(ValueError):
        nb.meshgrid(nb.arange(2), indexing="yx")


@pytest.mark.parametrize(
    "args",
    [(5,), (2, 5), (5, 2, -1), (0, 9, 3), (3, 3), (1.5,), (0, 1, 0.25), (5, 0)],
    ids=str,
)
def test_arange_is_that_of_numpy(args):
    x, wanted = nb.arange(*args), np.arange(*args)
    np.testing.assert_allclose(x.numpy(), wanted)
    assert x.dtype is (nb.int64 if wanted.dtype.kind == "i" else nb.float32)


def test_arange_of_step_0_is_a_value_error():
    for step in (0, 0.0):
        with pytest.raises(ValueError, match="step"):
            nb.arange(0, 1, step)


def test_every_factory_takes_requires_grad():
    made = [
        nb.constant(1.0, requires_grad=True),
        nb.asarray([1.0], requires_grad=True),
        nb.from_dlpack(np.ones(2), requires_grad=True),
        nb.full((2,), 1.0, requires_grad=True),
        nb.zeros(2, requires_grad=True),
        nb.ones(2, requires_grad=True),
        nb.empty(2, requires_grad=True),
        nb.zeros_like(nb.ones(2), requires_grad=True),
        nb.ones_like(nb.ones(2), requires_grad=True),
        nb.full_like(nb.ones(2), 1.0, requires_grad=True),
        nb.empty_like(nb.ones(2), requires_grad=True),
        nb.arange(0.0, 2.0, requires_grad=True),
        nb.linspace(0, 1, 2, requires_grad=True),
        nb.eye(2, requires_grad=True),
        nb.hann_window(2, requires_grad=True),
        nb.uniform((2,), requires_grad=True),
        nb.gaussian((2,), requires_grad=True),
        nb.rand((2,), requires_grad=True),
        nb.randn((2,), requires_grad=True),
    ]
    for x in made:
        assert x.requires_grad and x.is_traced and x.is_leaf
    assert nb.zeros(2, is_traced=True).is_traced


def test_a_constant_of_a_tensor_that_requires_grad_is_a_leaf_of_its_own():
    x = nb.ones(2, requires_grad=True)
    y = nb.constant(x * 2, requires_grad=True)
    assert y.is_leaf and y.requires_grad and y.tolist() == [2, 2]


def test_asarray_and_copies():
    x = nb.ones(2)
    assert nb.asarray(x, copy=False) is x
    a = np.ones(3, np.float32)
    shared, copied = nb.asarray(a, copy=False), nb.asarray(a, copy=True)
    a[0] = 5
    assert copied.tolist() == [1, 1, 1] and shared.tolist() == [5, 1, 1]
    assert nb.asarray(a, dtype="int8").dtype is nb.int8
    for call in (
        lambda: nb.asarray([1, 2], copy=False),
        lambda: nb.asarray(1.0, copy=False),
        lambda: nb.asarray(a, dtype="int8", copy=False),
        lambda: nb.asarray(x, dtype="int8", copy=False),
    ):
        with pytest.raises(ValueError, match="copy"):
            call()


def test_what_is_realised_at_once():
    assert nb.constant([1.0]).real and nb.asarray(1).real
    assert nb.from_dlpack(np.ones(2)).real
    assert nb.Tensor(nb.ones(2) * 2).real


# Forms of functions.


def test_clip_takes_bounds_or_none():
    x = nb.arange(5)
    assert nb.clip(x, 1, 3).tolist() == [1, 1, 2, 3, 3]
    assert nb.clip(x, 2).tolist() == [2, 2, 2, 3, 4]
    assert nb.clip(x, max=2).tolist() == [0, 1, 2, 2, 2]
    assert nb.clip(x).tolist() == [0, 1, 2, 3, 4]


def test_pad_takes_pairs():
    x = nb.ones((1, 2))
    wanted = [[0, 0, 0], [1, 1, 0]]
    assert nb.pad(x, [(1, 0), (0, 1)]).tolist() == wanted
    assert nb.pad(x, pad_width=((1, 0), (0, 1))).tolist() == wanted
    assert nb.pad(x, [(0, 0), (1, 0)], value=9).tolist() == [[9, 1, 1]]
    for error, call in (
        (ValueError, lambda: nb.pad(x)),
        (ValueError, lambda: nb.pad(x, [(1, 1)])),
        (ValueError, lambda: nb.pad(x, [(1, 1, 1), (0, 0)])),
        (TypeError, lambda: nb.pad(x, [1, 1])),
        (TypeError, lambda: nb.pad(x, [(1, 1), (1, 1)], pads=3)),
        (ValueError, lambda: nb.pad(x, [(-1, 0), (0, 0)])),
        (NotImplementedError, lambda: nb.pad(x, [(1, 0), (0, 0)], "edge")),
    ):
        with pytest.raises(error):
            call()


def test_functions_of_several_results():
    x = nb.arange(7)
    assert [p.shape[0] for p in nb.chunk(x, 3)] == [3, 2, 2]
    assert [p.shape[0] for p in nb.chunk(nb.arange(2), 4)] == [1, 1]
    assert type(nb.split(nb.arange(4), 2)) is list
    assert type(nb.unbind(nb.ones((2, 3)))) is list
    assert type(nb.unstack(nb.ones((2, 3)), axis=1)) is tuple
    assert type(nb.nonzero(x)) is tuple
    with pytest.raises(ValueError):
        nb.split(x, 2)
    assert {k: v.item() for k, v in nb.minmax(x).items()} == {
        "min": 0,
        "max": 6,
    }
    values, indices = nb.topk(x, 2)
    assert values.tolist() == indices.tolist() == [6, 5]
    found = nb.unique_all(nb.constant([3, 1, 3]))
    assert found.values.tolist() == [1, 3] and found.counts.tolist() == [1, 2]
    assert found.indices.tolist() == [1, 0]
    assert found.inverse_indices.tolist() == [1, 0, 1]
    assert nb.unique_counts(x)._fields == ("values", "counts")
    assert nb.unique_inverse(x)._fields == ("values", "inverse_indices")
    q, r = nb.linalg.qr(nb.eye(2))
    assert nb.linalg.qr(nb.eye(2)).R.shape == (2, 2)
    assert nb.linalg.svd(nb.eye(2)).S.tolist() == [1, 1]
    assert nb.linalg.eigh(nb.eye(2)).eigenvalues.tolist() == [1, 1]
    assert nb.linalg.slogdet(nb.eye(2)).logabsdet.item() == 0


def test_functions_of_any_number_of_tensors():
    assert nb.einsum("i,i", nb.arange(3), nb.arange(3)).item() == 5
    a, b = nb.broadcast_arrays(nb.ones((2, 1)), nb.ones(3))
    assert a.shape == b.shape == (2, 3)
    for f in (nb.concatenate, nb.stack):
        with pytest.raises(ValueError):
            f([])
        with pytest.raises(TypeError):
            f(nb.ones((2, 2)))
    assert nb.concat([nb.ones((2, 1)), nb.ones(3)], axis=None).shape == (5,)


def test_the_array_api_spellings():
    x = nb.constant([[1, 2], [3, 4]])
    assert nb.cumulative_sum(nb.arange(4)).tolist() == [0, 1, 3, 6]
    assert nb.cumulative_sum(
        x, axis=1, include_initial=True
    ).tolist() == [[0, 1, 3], [0, 3, 7]]
    assert nb.cumulative_prod(
        x, axis=0, include_initial=True, dtype="float32"
    ).tolist() == [[1, 1], [1, 2], [3, 8]]
    with pytest.raises(ValueError, match="axis"):
        nb.cumulative_sum(x)
    assert nb.diff(nb.constant([1, 4]), prepend=nb.constant([0])).tolist() == [
        1,
        3,
    ]
    assert nb.matrix_transpose(x).tolist() == [[1, 3], [2, 4]]
    assert nb.astype(x, "float32").dtype is nb.float32
    assert nb.permute_dims(x, (1, 0)).tolist() == [[1, 3], [2, 4]]
    assert nb.expand_dims(x, axis=0).shape == (1, 2, 2)
    assert nb.linalg.matrix_norm(nb.eye(2), ord=2).item() == 1
    assert nb.linalg.matrix_norm(nb.eye(2), ord=nb.inf).item() == 1
    assert nb.linalg.matrix_norm(nb.eye(2)).item() == pytest.approx(2**0.5)
    assert nb.linalg.trace(x).item() == nb.trace(x).item() == 5
    assert nb.norm(nb.constant([3.0, 4.0])).item() == 5
    assert nb.norm(nb.eye(2), "fro").item() == pytest.approx(2**0.5)


def test_tensordot_takes_a_number_or_pairs_of_axes():
    x, y = nb.ones((2, 3, 4)), nb.ones((3, 4, 5))
    assert nb.tensordot(x, y).shape == (2, 5)
    assert nb.tensordot(x, y, axes=((1, 2), (0, 1))).shape == (2, 5)
    assert nb.tensordot(x, y, axes=(2, 1)).shape == (2, 3, 3, 5)
    assert nb.tensordot(x, y, axes=0).shape == (2, 3, 4, 3, 4, 5)
    assert nb.tensordot(x, y, axes=((), ())).shape == (2, 3, 4, 3, 4, 5)
    for wrong in (((0, 1), (0,)), (0, 1, 2), 4, -1):
        with pytest.raises(ValueError):
            nb.tensordot(x, y, axes=wrong)


def test_rebind_asserts_a_shape():
    x = nb.ones((2, 3))
    assert nb.rebind(x, (2, 3), message="text").tolist() == x.tolist()
    with pytest.raises(ValueError):
        nb.rebind(x, (3, 2))


def test_gather_without_indices_is_the_method():
    x = nb.arange(4)
    assert nb.gather(x).tolist() == [0, 1, 2, 3]
    assert nb.gather(x, nb.constant([1, 1])).tolist() == [1, 1]
    assert nb.take is nb.gather


# Laziness.


def test_ops_are_lazy_with_metadata_at_hand():
    x = nb.ones((2, 3))
    y = nb.exp(x) @ x.T
    assert not y.real and not y.is_realized and y.shape == (2, 2)
    assert not y.is_leaf
    assert y.realize() is y and y.real


@pytest.mark.parametrize(
    "ask",
    [
        nb.Tensor.realize,
        nb.Tensor.numpy,
        nb.Tensor.to_numpy,
        nb.Tensor.tolist,
        nb.Tensor.item,
        str,
        bool,
        float,
        int,
        np.asarray,
        nb.realize_all,
        pickle.dumps,
        nb.Tensor.__dlpack__,
        memoryview,
        nb.testing.batch_realize,
    ],
)
def test_what_realises(ask):
    x = nb.ones((1,)) * 2
    assert not x.real
    ask(x)
    assert x.real


def test_realize_all_computes_its_arguments_and_returns_them():
    x, y = nb.ones(2) * 2, nb.ones(2) * 3
    z = y * 2
    assert nb.realize_all(x, 5, y) == (x, 5, y)
    assert x.real and y.real and not z.real


def test_realising_runs_only_what_is_needed():
    x = nb.ones(2) * 2
    y, z = nb.exp(x), nb.log(x)
    y.realize()
    assert not z.real


def test_a_realised_tensor_forgets_how_it_was_made_unless_traced():
    x = nb.ones(2) * 2
    assert not x.is_leaf
    x.realize()
    assert x.is_leaf and x.op_kwargs == {}
    w = nb.ones(2, requires_grad=True)
    y = nb.sum(w * 2, axis=0, keepdims=True)
    y.realize()
    assert y.is_traced and not y.requires_grad and not y.is_leaf
    assert y.op_kwargs["keepdims"] is True


def test_plain_loops_do_not_grow():
    x = nb.ones(8)
    for _ in range(5):
        x = (x * 1.5).realize()
    before = nb._nabla.stats()["nodes_live"]
    for _ in range(50):
        x = (x * 0.5 + 1).realize()
    assert nb._nabla.stats()["nodes_live"] <= before


def test_op_kwargs_are_values_of_python():
    x = nb.ones((2, 3))
    assert nb.sum(x, axis=(0, 1)).op_kwargs == {
        "axis": (0, 1),
        "keepdims": False,
        "dtype": None,
    }
    assert nb.cumsum(x, axis=-1, reverse=True).op_kwargs == {
        "axis": 1,
        "exclusive": False,
        "reverse": True,
    }
    assert nb.cast(x, "int8").op_kwargs == {"dtype": nb.int8}
    assert nb.reshape(x * 2, (3, 2)).op_kwargs == {"shape": (3, 2)}
    assert nb.reshape(x * 2, (6,)).op_kwargs == {"shape": (6,)}
    assert nb.constant([1]).op_kwargs == {}


def test_ops_remember_the_line_that_called_them():
    here = inspect.currentframe().f_lineno
    x = nb.constant([1.0]) * 2
    y = nb.clip(x, 0)  # by way of the package's own code
    z = x.reshape(1, 1)
    for made, line in ((x, here + 1), (y, here + 2), (z, here + 3)):
        assert made._source == f"{__file__}:{line}"


# Random numbers.


def test_the_generator_of_the_process():
    nb.manual_seed(7)
    a, b = nb.uniform((4,)), nb.uniform((4,))
    nb.manual_seed(7)
    assert nb.rand((4,)).tolist() == a.tolist() != b.tolist()
    assert a.tolist() == a.tolist()
    assert nb.normal is nb.gaussian
    assert nb.randint(0, 10, (3,)).dtype is nb.int64
    assert nb.randint(0, 3, 2, dtype="int8").dtype is nb.int8
    assert nb.randn((2,), "float64").dtype is nb.float64
    assert nb.uniform().shape == nb.gaussian().shape == ()
    x = nb.uniform((1000,), 2.0, 3.0)
    assert x.min().item() >= 2 and x.max().item() < 3


def test_explicit_keys():
    r = nb.random
    key = r.key(3)
    assert key.dtype is nb.uint32 and key.shape == (2,)
    a, b = r.split(key)
    assert r.split(key, 5).shape == (5, 2)
    assert r.fold_in(key, 1).tolist() != r.fold_in(key, 2).tolist()
    draws = {
        "uniform": r.uniform(a, (2, 3), -1.0, 1.0, "float64"),
        "normal": r.normal(a, (2, 3), 1.0, 2.0),
        "truncated_normal": r.truncated_normal(a, -1.0, 1.0, (2, 3)),
        "bernoulli": r.bernoulli(a, 0.5, (2, 3)),
        "randint": r.randint(a, (2, 3), 0, 5),
        "categorical": r.categorical(a, nb.zeros((2, 3, 4))),
        "permutation": r.permutation(a, nb.ones((2, 3))),
    }
    assert {d.shape for d in draws.values()} == {(2, 3)}
    assert draws["bernoulli"].dtype is nb.bool
    assert draws["randint"].dtype is nb.int64
    assert r.uniform(a).shape == r.normal(b).shape == r.bernoulli(b).shape == ()
    assert sorted(r.permutation(a, 5).tolist()) == [0, 1, 2, 3, 4]
    assert r.uniform(a, (3,)).tolist() == r.uniform(a, (3,)).tolist()
    assert r.uniform(a, (3,)).tolist() != r.uniform(b, (3,)).tolist()


# Trees, caches, configuration.


def test_trees_of_tensors():
    tree = {"a": nb.ones(1), "b": [nb.ones(2), 3]}
    assert nb.traced(tree) is tree
    assert all(x.is_traced for x in nb.tensor_leaves(tree))
    nb.untraced(tree)
    assert not any(x.is_traced for x in nb.tensor_leaves(tree))


def test_caches():
    x = nb.ones(1000).realize() + 1
    x.realize()
    nb.clear_caches()
    nb._clear_caches()
    assert x[0].item() == 2
    assert set(nb.cache_stats()) == {"hits", "misses", "bytes"}


def test_config():
    import nabla.config

    assert nabla.config is nb.config
    before = nb.config.check
    with nb.config.set(check=not before, num_threads=2) as inside:
        assert inside is nb.config
        assert nb.config.check is not before and nb.config.num_threads == 2
    assert nb.config.check is before
    nb.config.deterministic = True
    assert nb.config.deterministic
    nb.config.deterministic = False
    for error, wrong in (
        (AttributeError, lambda: nb.config.set(speed=9)),
        (AttributeError, lambda: setattr(nb.config, "speed", 9)),
        (ValueError, lambda: setattr(nb.config, "check", 9)),
        (ValueError, lambda: setattr(nb.config, "num_threads", 0)),
    ):
        with pytest.raises(error):
            wrong()


def run(code, **environment):
    """What a fresh interpreter says."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_environment():
    code = (
        "import nabla as nb; c = nb.config;"
        "print(c.check, c.num_threads, c.cache_dir, nb.defaults()[1])"
    )
    three = {"NABLA_CHECK": "1", "NABLA_NUM_THREADS": "3"}
    said = run(code, NABLA_CACHE_DIR="d", **three)
    assert said.stdout == "True 3 d Device(type=cpu,id=0)\n"
    said = run(code, NABLA_DEFAULT_DEVICE="gpu")
    assert "RuntimeWarning" in said.stderr and "cpu" in said.stdout


def test_importing_is_light():
    code = (
        "import sys; before = set(sys.modules); import nabla;"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before};"
        "print(sorted(new))"
    )
    new = set(eval(run(code).stdout))
    assert not new & {
        "numpy", "typing", "dataclasses", "re", "inspect", "ast", "json",
        "logging", "pathlib", "contextlib",
    }  # fmt: skip


def test_without_numpy_all_but_arrays_works():
    code = (
        "import sys; sys.modules['numpy'] = None; import pickle, nabla as nb;"
        "x = nb.constant([[1, 2], [3, 4]]); x[0] = [7, 8];"
        "y = pickle.loads(pickle.dumps(x @ x));"
        "print(y, y[y > 40].tolist(), nb.uniform((2,)).shape, nb.finfo('f32'));"
        "nb.testing.assert_allclose(x, [[7, 8], [3, 4]])\n"
        "try: x.numpy()\n"
        "except ImportError: print('no NumPy')"
    )
    said = run(code).stdout
    assert "[[73 88]" in said and "[73, 88, 33" not in said
    assert said.endswith("no NumPy\n")


def test_assert_allclose_compares_trees_of_anything():
    close = nb.testing.assert_allclose
    x = nb.constant([1.0, 2.0])
    close({"a": x, "b": [x + 1e-7]}, {"a": [1.0, 2.0], "b": [np.array([1, 2])]})
    close(x, x.numpy())
    close(nb.constant([nb.nan, nb.inf]), [nb.nan, nb.inf], equal_nan=True)
    for actual, expected in (
        (x, [1.0, 2.1]),
        (x, [1.0, 2.0, 3.0]),
        ([x], [x, x]),
        ([x, x], [x]),
        ({"a": x}, {"b": x}),
        (nb.constant(nb.nan), nb.nan),
        (x, [1.0, nb.inf]),
    ):
        with pytest.raises(AssertionError):
            close(actual, expected)
    close(x, [1.05, 2.05], atol=0.1)
    with pytest.raises(AssertionError, match=r"at \(1,\), is 2.0, not 3.0"):
        close(x, [1.0, 3.0])


# Names.

PATHS = """
nabla.random nabla.linalg nabla.config nabla.testing nabla.ops nabla.ops.unary
nabla.ops.binary nabla.ops.comparison nabla.ops.creation nabla.ops.reduction
nabla.ops.multi_output nabla.ops.convolution nabla.ops.pooling nabla.ops.view
nabla.ops.communication nabla.core nabla.core.common
"""


@pytest.mark.parametrize("path", PATHS.split())
def test_module_paths(path):
    module = importlib.import_module(path)
    outer, _, name = path.rpartition(".")
    assert getattr(importlib.import_module(outer), name) is module
    for name in getattr(module, "__all__", ()):
        assert hasattr(module, name)


def test_module_paths_share_their_functions():
    from nabla.core.common import tree_map
    from nabla.ops import exp
    from nabla.ops.creation import zeros
    from nabla.ops.unary import relu

    assert relu is nb.relu and zeros is nb.zeros
    assert exp is nb.exp and tree_map is nb.tree_map


ENGINE = """
defaults default_device default_dtype defaults_like manual_seed devices DType
CPU Accelerator TensorType AxisError Tensor realize_all is_tensor clear_caches
_clear_caches cache_stats constant asarray from_dlpack full zeros ones empty
arange linspace eye meshgrid uniform gaussian normal randn rand randint
hann_window triu tril zeros_like ones_like full_like empty_like relu sigmoid
tanh exp neg abs log sqrt softmax logsoftmax acos atanh cos erf floor is_inf
is_nan log1p rsqrt silu sin trunc gelu round cast add mul sub div matmul mod pow
outer equal not_equal greater greater_equal less less_equal logical_and
logical_or logical_xor logical_not where reduce_sum reduce_max reduce_min mean
argmax argmin cumsum cumprod sum max min minmax unsqueeze squeeze swap_axes
transpose flip moveaxis broadcast_to reshape flatten rebind pad
as_interleaved_complex view_as_real_interleaved gather take scatter slice_tensor
slice_update concatenate stack permute split chunk unbind conv1d conv2d conv3d
conv2d_transpose avg_pool2d max_pool2d to_device transfer_to cpu gpu accelerator
PyTreeDef register_pytree_node tensor_leaves traced untraced tree_flatten
tree_leaves tree_map tree_structure tree_unflatten save load random linalg
config testing ops core e inf nan newaxis pi acosh asin asinh atan atan2 tan
sinh cosh ceil clip copysign expm1 exp2 log2 log10 logaddexp hypot sign signbit
square reciprocal maximum minimum floor_divide nextafter isfinite isinf isnan
positive nan_to_num bitwise_and bitwise_or bitwise_xor bitwise_invert
bitwise_left_shift bitwise_right_shift subtract multiply divide negative
remainder concat permute_dims matrix_transpose expand_dims swapaxes unstack
cumulative_sum cumulative_prod astype power log_softmax prod all any var std
count_nonzero logsumexp norm einsum tensordot vecdot trace roll repeat tile
diagonal diff broadcast_arrays take_along_axis one_hot sort argsort topk
searchsorted nonzero unique_all unique_counts unique_inverse unique_values finfo
iinfo isdtype result_type can_cast bool int8 int16 int32 int64 uint8 uint16
uint32 uint64 float16 bfloat16 float32 float64
"""


def test_the_names_of_the_engine_are_exported():
    assert set(ENGINE.split()) <= set(nb.__all__)
    for name in nb.__all__:
        assert hasattr(nb, name), name
    assert len(set(nb.__all__)) == len(nb.__all__)


def test_parts_of_ops_are_not_exported():
    for name in ("iota", "arange_int", "random_key", "cholesky", "alias"):
        assert not hasattr(nb, name)
        assert not hasattr(nb.Tensor, name)


LINALG = """
cholesky qr svd svdvals eigh eigvalsh solve inv pinv det slogdet norm
vector_norm matrix_norm matrix_power matrix_rank cross diagonal trace outer
matmul matrix_transpose tensordot vecdot
"""
RANDOM = """
key split fold_in uniform normal truncated_normal bernoulli randint categorical
permutation
"""


def test_the_names_of_linalg_and_random_are_there():
    assert set(LINALG.split()) == set(nb.linalg.__all__)
    assert set(RANDOM.split()) == set(nb.random.__all__)


def test_the_array_namespace():
    assert nb.__array_api_version__ == "2024.12"
    assert nb.ones(1).__array_namespace__() is nb
    with pytest.raises(ValueError):
        nb.ones(1).__array_namespace__(api_version="1999.01")
    info = nb.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"]
    assert info.default_device() == nb.CPU()
    assert info.default_dtypes()["real floating"] is nb.float32
    assert set(info.dtypes(kind="unsigned integer")) == {
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    }
    assert info.devices() == [nb.CPU()]


def test_functions_are_pickled_by_name():
    more = [nb.linalg.cholesky, nb.random.uniform, nb.ops.unary.exp]
    for thing in [*(getattr(nb, n) for n in nb.__all__), *more]:
        if inspect.isroutine(thing) or inspect.isclass(thing):
            assert pickle.loads(pickle.dumps(thing)) is thing


def test_every_function_has_a_docstring_and_a_signature():
    for name in nb.__all__:
        thing = getattr(nb, name)
        if inspect.isroutine(thing):
            assert thing.__doc__, name
            assert inspect.signature(thing), name


def test_the_examples_in_docstrings_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    things = [nb, nb.config.set, nb.testing.assert_allclose, nb.random]
    things += [getattr(nb, n) for n in nb.__all__]
    names = {"nb": nb, "nabla": nb, "numpy": np, "DType": nb.DType}
    for thing in things:
        if inspect.isroutine(thing) or inspect.isclass(thing) or thing is nb:
            for test in finder.find(thing, "example", globs=dict(names)):
                runner.run(test)
    assert runner.tries > 50 and runner.failures == 0


PROGRAM = """
import nabla as nb
from nabla import Tensor
from nabla.ops.unary import exp


def loss(w: Tensor, x: Tensor) -> Tensor:
    y = nb.tanh(x @ w + 1.0)
    z: Tensor = nb.sum(y * y, axis=0, keepdims=True).reshape(-1).exp()
    return z.mean() + exp(y).max()


w = nb.zeros((3, 2), dtype=nb.float32, requires_grad=True)
w -= 0.1 * w
a, b = nb.random.split(nb.random.key(0))
values, indices = nb.topk(nb.random.uniform(a, (2,)).sort(), 1)
parts: list[Tensor] = nb.split(w.at[0].set(1.0), 3)
with nb.default_dtype(nb.float64), nb.config.set(check=True):
    n: int = nb.uniform((2,)).numel()
"""


def test_a_typed_program_is_clean_under_mypy(tmp_path):
    pytest.importorskip("mypy")
    package = Path(nb.__file__).parent
    if not (package / "__init__.pyi").exists():
        pytest.skip("a build without stubs")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import nabla as nb\nnb.exp(nb.ones(2), 3).spin()\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir"]
    command += [str(tmp_path / "cache"), str(program), str(wrong)]
    said = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(package.parent)},
        capture_output=True,
        text=True,
    ).stdout
    assert "wrong.py" in said and "program.py" not in said, said
