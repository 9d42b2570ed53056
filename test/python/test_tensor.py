"""Tensor: constructors, metadata, methods, operators, protocols, printing."""

import copy
import gc
import inspect
import math
import operator
import pickle
import weakref

import numpy as np
import pytest

import nabla as nb
from nabla import _nabla


def test_constructors_of_tensor():
    assert nb.Tensor([1, 2]).tolist() == [1, 2]
    assert nb.Tensor(nb.ones(2), dtype="int8").dtype is nb.int8
    assert nb.Tensor.constant(1.5).item() == 1.5
    assert nb.Tensor.full((2,), 3).tolist() == [3, 3]
    assert nb.Tensor.zeros(2).tolist() == [0, 0]
    assert nb.Tensor.ones(2, dtype="int8").dtype is nb.int8
    assert nb.Tensor.arange(3).tolist() == [0, 1, 2]
    assert nb.Tensor.uniform((2,)).shape == (2,)
    assert nb.Tensor.gaussian((2,)).shape == (2,)
    assert nb.Tensor.normal((2,)).shape == (2,)
    assert nb.Tensor.from_dlpack(np.ones(2)).dtype is nb.float64
    a, b = nb.Tensor.to_numpy_all(nb.ones(2), nb.zeros(1))
    assert a.tolist() == [1, 1] and b.tolist() == [0]


def test_a_list_of_tensors_is_not_a_tensor():
    with pytest.raises(TypeError, match="stack"):
        nb.constant([nb.ones(2), nb.ones(2)])


def test_ragged_lists_are_value_errors():
    for ragged in ([1, [2]], [[1], [2, 3]], [[], [1]], [[1], 2], [[1], []]):
        with pytest.raises(ValueError):
            nb.constant(ragged)


def test_what_has_no_numbers_is_a_type_error():
    for wrong in ("abc", None, object(), [None], ["a"], {}, 1j, [1j]):
        with pytest.raises(TypeError):
            nb.constant(wrong)


def test_metadata():
    x = nb.zeros((2, 3), dtype="int16")
    assert x.shape == (2, 3) and x.ndim == x.rank == x.dim() == 2
    assert x.size() == (2, 3) and x.size(1) == x.size(-1) == 3
    assert x.numel() == x.num_elements() == 6
    assert x.type == nb.TensorType((2, 3), nb.int16)
    assert x.type != nb.TensorType((2, 3), nb.int8)
    assert hash(x.type) == hash(nb.TensorType([2, 3], "int16"))
    assert x.T.shape == x.mT.shape == (3, 2)
    assert nb.zeros((2, 3, 4)).T.shape == (2, 4, 3)
    v = nb.ones(3)
    assert v.T is v
    with pytest.raises(ValueError):
        v.mT  # noqa: B018
    with pytest.raises(AttributeError):
        x.shape = (3, 2)


SHAPES = """
global_shape physical_global_shape physical_global_shape_ints global_shape_ints
local_shape physical_shape
"""


def test_hidden_axes_and_shards_of_an_ordinary_tensor():
    x = nb.zeros((2, 3))
    assert x.batch_dims == 0 and x.batch_shape is None
    for name in SHAPES.split():
        assert getattr(x, name) == (2, 3)
    assert x.sharding is None and not x.is_sharded and x.num_shards == 1
    assert x.shards == [x] and x.gather() is x
    for method in (
        x.shard_shape,
        x.physical_local_shape,
        x.physical_local_shape_ints,
        x.logical_local_shape,
    ):
        assert method() == method(0) == (2, 3)
    with pytest.raises(IndexError):
        x.shard_shape(1)


def test_requires_grad_marks_as_traced_and_does_not_unmark():
    x = nb.ones(2)
    assert not x.requires_grad and not x.is_traced
    assert x.requires_grad_() is x
    assert x.requires_grad and x.is_traced
    x.requires_grad = False
    assert not x.requires_grad and x.is_traced
    x.is_traced = False
    assert not x.is_traced
    assert x.trace() is x and x.is_traced
    for wrong in ("int32", "bool"):
        with pytest.raises(TypeError, match="floating"):
            nb.ones(2, dtype=wrong).requires_grad = True
        with pytest.raises(TypeError, match="floating"):
            nb.ones(2, dtype=wrong, requires_grad=True)


def test_grad_is_a_tensor_or_none():
    x = nb.ones(2)
    assert x.grad is None
    g = x.grad = nb.zeros(2)
    assert x.grad is g
    x.grad = None
    assert x.grad is None
    with pytest.raises(TypeError):
        x.grad = 1.0


def test_new_tensors_like_one():
    x = nb.zeros(2, dtype="int16")
    assert x.new_zeros((3,)).dtype is nb.int16
    assert x.new_ones(3).tolist() == [1, 1, 1]
    assert x.new_empty(1).tolist() == [0]
    assert x.new_full((2,), 7).tolist() == [7, 7]
    assert x.new_full(1, 7, dtype="float32").dtype is nb.float32


def test_methods_with_signatures_of_their_own():
    x = nb.constant([[1, 5, 2], [3, 4, 0]])
    assert x.sum().item() == 15 and x.sum(0).tolist() == [4, 9, 2]
    assert x.mean(keepdims=True).shape == (1, 1)
    assert x.max().item() == 5 and x.min(axis=1).tolist() == [1, 0]
    assert x.argmax().item() == 1 and x.argmin().item() == 5
    assert x.argmax(1).tolist() == [1, 1]
    assert nb.argmax(x).tolist() == [1, 1]
    assert nb.argmax(x, axis=None).item() == 1
    assert x.argmax(keepdims=True).shape == (1, 1)
    assert x.reshape(3, 2).shape == x.reshape((3, -1)).shape == (3, 2)
    assert x.view(6).shape == x.view([6]).shape == (6,)
    assert x.expand(4, 2, 3).shape == x.expand((4, 2, 3)).shape == (4, 2, 3)
    assert x.permute(1, 0).shape == x.permute([1, 0]).shape == (3, 2)
    assert nb.ones((1, 2, 1)).squeeze().shape == (2,)
    assert nb.ones((1, 2, 1)).squeeze(0).shape == (2, 1)
    assert nb.squeeze(nb.ones((1, 2, 1))).shape == (2, 1)
    assert x.transpose(0, 1).shape == (3, 2)
    assert x.cast("int8").dtype is x.astype(nb.int8).dtype is nb.int8
    assert x.type_as(nb.ones(1)).dtype is nb.float32
    assert x.to(nb.float64).dtype is x.to("float64").dtype is nb.float64
    assert nb.ones(1).gelu(approximate="tanh").shape == (1,)
    with pytest.raises(ValueError):
        nb.squeeze(x)
    with pytest.raises(ValueError):
        x.reshape(-1, -1)


METHODS = """
exp relu softmax cumsum flip unsqueeze flatten split chunk unbind pad clip sort
argsort topk triu tril moveaxis broadcast_to minmax norm logsumexp var std prod
all any roll repeat tile diagonal square zeros_like ones_like full_like isnan
is_nan negative nonzero take one_hot unique_values matrix_transpose add matmul
where cpu conv2d max_pool2d
"""


def test_functions_of_one_tensor_are_methods():
    x = nb.constant([[0.5, 0.25]])
    for name in METHODS.split():
        assert callable(getattr(x, name)), name
    assert x.exp().tolist() == nb.exp(x).tolist()
    assert x.clip(0.3, 1).tolist() == [[0.5, pytest.approx(0.3)]]
    assert x.minmax()["max"].item() == 0.5


def test_methods_tell_their_arguments():
    assert str(inspect.signature(nb.Tensor.softmax)) == "(self, /, axis=-1)"
    assert str(inspect.signature(nb.ones(2).softmax)) == "(axis=-1)"
    assert nb.Tensor.softmax.__doc__.startswith("Exponentials")
    for name, method in vars(nb.Tensor).items():
        if callable(method) and not name.startswith("_"):
            assert inspect.signature(method), name


def test_operators():
    x, y = nb.constant([7, -7]), nb.constant([2, 2])
    wanted = {
        operator.add: [9, -5],
        operator.sub: [5, -9],
        operator.mul: [14, -14],
        operator.truediv: [3.5, -3.5],
        operator.floordiv: [3, -4],
        operator.mod: [1, 1],
        operator.pow: [49, 49],
        operator.and_: [2, 0],
        operator.or_: [7, -5],
        operator.xor: [5, -5],
        operator.lshift: [28, -28],
        operator.rshift: [1, -2],
        operator.matmul: 0,
        operator.eq: [False, False],
        operator.ne: [True, True],
        operator.lt: [False, True],
        operator.le: [False, True],
        operator.gt: [True, False],
        operator.ge: [True, False],
    }
    for op, value in wanted.items():
        assert op(x, y).tolist() == value, op
        if op is not operator.matmul:
            assert op(x, 2).tolist() == value, op
            assert op(x, np.array([2, 2])).tolist() == value, op
            assert op(np.array([7, -7]), y).tolist() == value, op
            assert isinstance(op(np.array([7, -7]), y), nb.Tensor), op
    assert (2**y).tolist() == [4, 4] and (1 - y).tolist() == [-1, -1]
    assert (7 // y).tolist() == [3, 3] and (7 % y).tolist() == [1, 1]
    assert (1 / y).tolist() == [0.5, 0.5] and (1 << y).tolist() == [4, 4]
    assert (6 & y).tolist() == [2, 2] and (y < 3).tolist() == [True, True]
    assert (-x).tolist() == [-7, 7] and abs(x).tolist() == [7, 7]
    assert (+x).tolist() == [7, -7] and (~x).tolist() == [-8, 6]


def test_logic_on_bool_is_logical():
    a, b = nb.constant([True, True, False]), nb.constant([True, False, False])
    assert (a & b).tolist() == [True, False, False]
    assert (a | b).tolist() == [True, True, False]
    assert (a ^ b).tolist() == [False, True, False]
    assert (~a).tolist() == [False, False, True]
    assert (a & True).dtype is nb.bool
    for call in (lambda: nb.ones(1) & nb.ones(1), lambda: ~nb.ones(1)):
        with pytest.raises(TypeError):
            call()


def test_an_int_tensor_to_a_negative_int_is_a_value_error():
    with pytest.raises(ValueError):
        nb.constant([2]) ** -1
    assert (nb.constant([2.0]) ** -1).item() == 0.5


def test_operators_leave_what_they_do_not_know_to_the_other_side():
    class Other:
        def __radd__(self, x):
            return "other"

    assert nb.ones(2) + Other() == "other"
    with pytest.raises(TypeError):
        nb.ones(2) + "a"
    with pytest.raises(TypeError):
        nb.ones(2) + [1, 2]
    assert (nb.ones(2) == None) is False  # noqa: E711
    assert (nb.ones(2) != "a") is True


def test_a_leaf_that_requires_grad_is_updated_in_place():
    w = v = nb.constant([1.0, 2.0], requires_grad=True)
    g = w.grad = nb.ones(2)
    for step in range(3):
        w -= 0.5 * w.grad
        assert w is v and w.grad is g
        assert w.is_leaf and w.requires_grad and w.is_traced
        assert w.op_kwargs == {}
        assert w.tolist() == [0.5 - step / 2, 1.5 - step / 2]
    w *= 2
    w **= 2
    assert w is v and w.tolist() == [1, 1] and w.is_leaf


def test_updates_in_place_are_lazy_and_do_not_grow():
    w = nb.zeros(1000, requires_grad=True)
    assert w.is_leaf
    w += 1
    assert not w.real and w.is_leaf
    w.realize()
    before = nb._nabla.stats()["nodes_live"]
    for _ in range(10):
        w += 1
        w.realize()
    assert nb._nabla.stats()["nodes_live"] <= before + 1
    assert w[0].item() == 11


def test_on_other_tensors_in_place_means_a_new_value():
    x = y = nb.ones(2)
    x += 1
    assert x is not y and y.tolist() == [1, 1] and x.tolist() == [2, 2]
    w = nb.ones(2, requires_grad=True)
    z = u = w * 2
    z += 1
    assert z is not u and u.tolist() == [2, 2]


# Python protocols.


def test_numbers_of_one_element():
    assert bool(nb.constant([[3]])) and not nb.constant(0.0)
    assert float(nb.constant([1.5])) == 1.5 and int(nb.constant(2.9)) == 2
    assert complex(nb.constant(2)) == 2 + 0j
    assert operator.index(nb.constant(3, dtype="uint8")) == 3
    assert range(5)[nb.constant(2)] == 2
    assert nb.constant([[7]]).item() == 7
    assert nb.constant(2**64 - 1, dtype="uint64").item() == 2**64 - 1
    assert type(nb.constant(True).item()) is bool
    many = nb.ones(2)
    for f in (bool, float, int, complex, nb.Tensor.item, operator.index):
        with pytest.raises(TypeError):
            f(many)
    for wrong in (nb.constant(1.0), nb.constant([1]), nb.constant(True)):
        with pytest.raises(TypeError):
            operator.index(wrong)


def test_format():
    assert format(nb.constant(3.14159), ".3f") == "3.142"
    assert f"{nb.constant([[7]]):04d}" == "0007"
    assert f"{nb.constant([1.0, 2.0])}" == "Tensor([1. 2.] : f32[2])"
    with pytest.raises(TypeError):
        format(nb.ones(2), ".3f")


def test_len_and_iteration_run_over_axis_0():
    x = nb.constant([[1, 2], [3, 4], [5, 6]])
    assert len(x) == 3
    assert [row.tolist() for row in x] == x.tolist()
    a, b, c = x
    assert c.tolist() == [5, 6]
    assert list(nb.zeros((0, 2))) == []
    assert 3 in nb.arange(5) and 7 not in nb.arange(5)
    for f in (len, iter):
        with pytest.raises(TypeError):
            f(nb.constant(1))


def test_hash_goes_by_identity():
    x, y = nb.ones(2), nb.ones(2)
    assert len({x, y, x}) == 2 and {x: 1}[x] == 1


def test_copies():
    x = nb.constant([1.0, 2.0], requires_grad=True)
    x.grad = nb.constant([3.0, 4.0])
    y, z = copy.copy(x), copy.deepcopy(x)
    assert y is not x and y.tolist() == [1, 2] and y.requires_grad
    assert y.is_leaf and z.is_leaf and z.requires_grad and y.grad is None
    assert z.grad is not x.grad and z.grad.tolist() == [3, 4]
    y[0] = 9.0
    assert x.tolist() == [1, 2]
    tree = {"a": [x, x]}
    same = copy.deepcopy(tree)
    assert same["a"][0] is same["a"][1] is not x
    lazy = copy.copy(nb.ones(2) * 2)
    assert not lazy.real and lazy.tolist() == [2, 2]


def test_clone_keeps_history_and_detach_does_not():
    x = nb.ones(2, requires_grad=True)
    y = x * 2
    assert y.clone() is not y and y.clone().is_traced
    assert not y.clone().is_leaf
    assert not y.detach().is_traced and y.detach().is_leaf
    assert y.detach().tolist() == [2, 2]


@pytest.mark.parametrize("d", nb.DType, ids=lambda d: d.name)
def test_pickles_keep_values_dtype_and_requires_grad(d):
    for shape in ((), (2, 3), (0, 2)):
        x = nb.maximum(nb.full(shape, 1, dtype=d), nb.zeros(shape, dtype=d))
        y = pickle.loads(pickle.dumps(x))
        assert y.dtype is d and y.shape == shape
        assert y.tolist() == x.tolist() and y.is_leaf
    if nb.isdtype(d, "real floating"):
        w = pickle.loads(pickle.dumps(nb.ones(2, dtype=d, requires_grad=True)))
        assert w.requires_grad and w.is_traced and w.is_leaf


def test_a_broken_pickle_is_a_value_error():
    load = nb._nabla._load
    for args in (
        ("float32", (2,), b"1234", False),
        ("float33", (1,), b"1234", False),
        ("float32", (-1,), b"", False),
        ("float32", (2**62, 2**62), b"", False),
    ):
        with pytest.raises(ValueError):
            load(*args)


class Plain(nb.Tensor):
    pass


class Slotted(nb.Tensor):
    __slots__ = ("kept",)


@pytest.mark.parametrize("kind", [nb.Tensor, Plain, Slotted])
def test_cycles_through_grad_are_collected(kind):
    def own():
        x = kind([1.0])
        x.grad = x
        return [x]

    def each_other():
        x, y = kind([1.0]), kind([2.0])
        x.grad, y.grad = y, x
        return [x, y]

    def after_backward():
        x = kind([1.0], requires_grad=True)
        nb.sum(x * x).backward()
        x.grad.grad = x
        return [x, x.grad]

    def copied():
        x = kind([1.0])
        x.grad = nb.ones(1)
        y = copy.deepcopy(x)
        y.grad.grad = y
        return [y, y.grad]

    every = own, each_other, after_backward, copied
    for make in every:  # programs that are kept have nodes of their own
        make()
    gc.collect()
    before = _nabla.stats()["nodes_live"]
    for make in every:
        gone = [weakref.ref(x) for x in make()]
        gc.collect()
        assert [ref() for ref in gone] == [None] * len(gone)
    assert _nabla.stats()["nodes_live"] == before


def test_what_a_cycle_still_reaches_stays():
    x, y = nb.constant([1.0]), nb.constant([2.0])
    x.grad, y.grad = y, x
    del y
    gc.collect()
    assert x.grad.tolist() == [2.0] and x.grad.grad is x
    x.grad = None
    assert x.tolist() == [1.0] and x.grad is None


def test_tensors_may_be_subclassed_and_weakly_referenced():
    class Mine(nb.Tensor):
        pass

    x = Mine([1.0])
    x.note = "a"
    assert (x + 1).tolist() == [2] and isinstance(x, nb.Tensor)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_is_tensor():
    assert nb.is_tensor(nb.ones(1))
    assert not nb.is_tensor(np.ones(1)) and not nb.is_tensor(1.0)


# Printing.


@pytest.mark.parametrize(
    "value, text",
    [
        (nb.constant([1.0, 2.0, 3.0]), "Tensor([1. 2. 3.] : f32[3])"),
        (nb.constant(14.0), "Tensor(14. : f32[])"),
        (nb.constant(3), "Tensor(3 : i64[])"),
        (nb.constant([True, False]), "Tensor([ True False] : bool[2])"),
        (
            nb.constant([[1, 2], [3, 4]], dtype="uint8"),
            "Tensor(\n  [[1 2]\n   [3 4]] : ui8[2,2]\n)",
        ),
        (nb.ones(2, dtype="bfloat16"), "Tensor([1. 1.] : bf16[2])"),
        (nb.zeros((0,)), "Tensor([] : f32[0])"),
        (nb.arange(9), "Tensor([0 1 2 ... 6 7 8] : i64[9])"),
        (nb.constant([0.123456, 1e-9]), "Tensor([0.1235 0.    ] : f32[2])"),
        (
            nb.constant([math.nan, math.inf, -math.inf]),
            "Tensor([ nan  inf -inf] : f32[3])",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_printing(value, text):
    assert str(value) == repr(value) == text


def test_printing_realises():
    x = nb.ones(2) * 2
    assert not x.real
    str(x)
    assert x.real
