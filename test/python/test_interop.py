"""Data from and for others: NumPy, JAX, buffers, DLPack capsules good and bad,
files.  Capsules are made by hand where no library would make them."""

import contextlib
import ctypes
import gc
import os
import pathlib
import resource
import struct
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import nabla as nb
from nabla import _nabla

PLAIN = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
ALL = [*PLAIN, "bfloat16"]
SHAPES = [(), (3,), (2, 3), (0,), (2, 0, 3), (1,) * 16]


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def array(name, shape=(2, 3)):
    n = int(np.prod(shape))
    return (np.arange(n) % 5).reshape(shape).astype(numpy_dtype(name))


def same(x, y):
    x, y = np.asarray(x), np.asarray(y)
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    assert x.tobytes() == y.tobytes()


def address(x):
    return np.asarray(x).__array_interface__["data"][0]


# NumPy.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ALL)
def test_an_array_comes_back(name, shape):
    a = array(name, shape)
    x = nb.constant(a)
    assert (x.shape, x.dtype.name) == (shape, name)
    same(x.numpy(), a)
    same(x.to_numpy(), a)
    same(np.array(x), a)
    same(np.asarray(x), a)


def test_numpy_is_fresh_and_writable():
    x = nb.constant([1.0, 2.0])
    a = x.numpy()
    a[0] = 7
    assert x.tolist() == [1.0, 2.0]
    assert x.numpy() is not a


def test_views_come_out_in_order():
    a = np.arange(24.0).reshape(2, 3, 4)
    x = nb.constant(a)
    same(nb.permute(x, (2, 0, 1)).numpy(), a.transpose(2, 0, 1))
    same(nb.flip(x, 1).numpy(), a[:, ::-1])
    same(np.asarray(nb.flip(x, (0, 2))), a[::-1, :, ::-1])
    same(np.asarray(x[:, 1:, ::2]), a[:, 1:, ::2])
    same(nb.broadcast_to(x, (2, 2, 3, 4)).numpy(), np.stack([a, a]))


def test_array_shares_memory_that_cannot_be_written_to():
    x = nb.constant([1.0, 2.0])
    a = np.asarray(x)
    assert not a.flags.writeable
    assert address(a) == address(x)
    kept = a.copy()
    del x
    gc.collect()
    nb.constant([5.0, 6.0]).realize()
    same(a, kept)


def test_array_takes_dtype_and_copy():
    x = nb.constant([1.0, 2.0])
    same(np.asarray(x, dtype=np.int16), np.array([1, 2], np.int16))
    same(x.__array__(np.float64), np.array([1.0, 2.0]))
    assert x.__array__(copy=True).flags.writeable
    assert address(x.__array__(copy=False)) == address(x)
    with pytest.raises(ValueError, match="copy is needed for dtype"):
        x.__array__(np.float64, copy=False)
    with pytest.raises(ValueError, match="copy is needed"):
        nb.cast(x, "bfloat16").__array__(copy=False)


def test_bfloat16_needs_ml_dtypes(monkeypatch):
    x = nb.ones(2, dtype="bfloat16")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="cast first"):
        x.numpy()


def test_all_are_computed_in_one_go():
    x = nb.ones(3) * 2
    y = x + 1
    before = _nabla.stats()["steps_run"]
    a, b = nb.Tensor.to_numpy_all(x, y)
    steps = _nabla.stats()["steps_run"] - before
    same(a, np.full(3, 2, np.float32))
    same(b, np.full(3, 3, np.float32))
    x.numpy()
    y.numpy()
    assert _nabla.stats()["steps_run"] == before + steps


def test_arrays_of_other_orders_and_types():
    same(
        nb.constant(np.arange(3, dtype=">i4")).numpy(), np.arange(3, dtype="i4")
    )
    same(nb.constant(np.asfortranarray(array("float32"))), array("float32"))
    same(nb.constant(np.float32(2.5)), np.array(2.5, np.float32))
    same(
        nb.constant(ml_dtypes.bfloat16(2.5)), np.array(2.5, ml_dtypes.bfloat16)
    )
    strided = array("bfloat16", (4, 6))[::-2, 1::2]
    same(nb.constant(strided), strided)
    for bad in (
        np.longdouble(1),
        np.zeros(2, complex),
        np.array(["a"]),
        np.array([object()]),
        np.zeros(2, ml_dtypes.float8_e5m2),
        np.zeros(2, "M8[s]"),
    ):
        with pytest.raises(TypeError):
            nb.constant(bad)


# Buffers.


@pytest.mark.parametrize("name", PLAIN)
def test_a_buffer_says_what_it_holds(name):
    x = nb.constant(array(name))
    view = memoryview(x)
    assert view.readonly and view.shape == (2, 3)
    assert view.itemsize == x.dtype.itemsize
    same(view, array(name))


def test_buffers_of_views_have_strides_or_are_copies():
    x = nb.constant(np.arange(6.0).reshape(2, 3))
    assert memoryview(x.T).strides == (8, 24)
    assert memoryview(x.T).f_contiguous
    assert memoryview(nb.flip(x, 1)).strides == (24, -8)
    assert bytes(x.T) == np.arange(6.0).reshape(2, 3).T.tobytes()
    assert memoryview(nb.constant(3.0)).shape == ()
    assert bytes(nb.zeros((0, 2))) == b""


def buffer(x, flags):
    """A Py_buffer of x, as (len, itemsize, ndim, shape, strides, bytes)."""

    class Buffer(ctypes.Structure):
        _fields_ = [
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.py_object),
            ("len", ctypes.c_ssize_t),
            ("itemsize", ctypes.c_ssize_t),
            ("readonly", ctypes.c_int),
            ("ndim", ctypes.c_int),
            ("format", ctypes.c_char_p),
            ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
            ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
            ("suboffsets", ctypes.c_void_p),
            ("internal", ctypes.c_void_p),
        ]

    b = Buffer()
    get, release = (
        getattr(ctypes.pythonapi, f)
        for f in ("PyObject_GetBuffer", "PyBuffer_Release")
    )
    get.argtypes = [ctypes.py_object, ctypes.POINTER(Buffer), ctypes.c_int]
    release.argtypes, release.restype = [ctypes.POINTER(Buffer)], None
    get(x, b, flags)
    found = (
        bool(b.shape) and b.shape[: b.ndim],
        bool(b.strides) and b.strides[: b.ndim],
        b.format,
        ctypes.string_at(b.buf, b.len),
    )
    release(b)
    return found


def test_each_request_gets_what_it_asks_for():
    simple, writable, fmt, nd = 0, 1, 4, 8
    strides, rows, columns, either = 0x18, 0x38, 0x58, 0x98
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    x, t, f = nb.constant(a), nb.constant(a).T, nb.flip(nb.constant(a), 1)
    assert buffer(x, simple) == (False, False, None, a.tobytes())
    assert buffer(t, simple)[3] == a.T.tobytes()
    assert buffer(t, nd)[:2] == ([3, 2], False)
    assert buffer(t, nd)[3] == a.T.tobytes()
    assert buffer(t, strides | fmt) == ([3, 2], [4, 12], b"i", a.tobytes())
    assert buffer(t, rows)[1] == [8, 4]
    assert buffer(t, columns)[1] == [4, 12]
    assert buffer(t, either)[1] == [4, 12]
    assert buffer(f, either)[1] == [12, 4]
    assert buffer(x, either)[1] == [12, 4]
    for bad in (x, f):
        with pytest.raises(BufferError, match="column-major"):
            buffer(bad, columns)
    with pytest.raises(BufferError, match="read-only"):
        buffer(x, writable)
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(nb.ones(2, dtype="bfloat16"))


def test_a_buffer_outlives_an_assignment():
    w = nb.constant([1.0, 2.0])
    w.requires_grad = True
    view = memoryview(w)
    w -= nb.constant([1.0, 1.0])
    assert view.tolist() == [1.0, 2.0]
    assert w.tolist() == [0.0, 1.0]


# DLPack with libraries.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PLAIN)
def test_numpy_both_ways(name, shape):
    a = array(name, shape)
    x = nb.from_dlpack(a)
    assert x.dtype.name == name and x.real
    same(x.numpy(), a)
    back = np.from_dlpack(nb.constant(a))
    same(back, a)
    assert not back.flags.writeable


# JAX has no 64-bit types unless it is told to.
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("name", [n for n in ALL if "64" not in n])
def test_jax_both_ways(name, shape):
    a = array(name, shape)
    same(nb.from_dlpack(jnp.asarray(a)).numpy(), a)
    same(jnp.from_dlpack(nb.constant(a)), a)
    same(nb.asarray(jnp.asarray(a)).numpy(), a)


def test_jax_arrays_are_operands():
    same(nb.add(jnp.ones(2), nb.ones(2)), np.full(2, 2, np.float32))
    same(
        nb.ones(2, dtype="bfloat16") * jnp.ones(2, jnp.bfloat16),
        np.ones(2, ml_dtypes.bfloat16),
    )
    with jax.enable_x64(True):
        same(nb.from_dlpack(jnp.arange(3)).numpy(), np.arange(3))


def test_memory_is_shared_where_it_can_be():
    a = array("float32")
    x = nb.from_dlpack(a)
    assert address(x) == address(a)
    assert address(nb.from_dlpack(a, copy=False)) == address(a)
    assert address(nb.from_dlpack(a, copy=True)) != address(a)
    b = array("bfloat16")
    assert address(nb.from_dlpack(b).__array__().view("u2")) != address(b)
    b[0, 0] = 3
    y = nb.from_dlpack(b, copy=False)
    same(y.numpy(), b)
    assert address(np.from_dlpack(x)) == address(a)


def test_a_tensor_is_itself():
    x = nb.ones(2)
    assert nb.from_dlpack(x) is x
    assert nb.Tensor.from_dlpack(x) is x


def test_what_cannot_be_shared_is_copied():
    a = array("int32", (4, 6))
    fixed = array("int32")
    fixed.flags.writeable = False
    odd = np.frombuffer(b"\0" + array("int32").tobytes(), "u1")[1:].view("i4")
    for bad, why in [
        (a.T, "not contiguous"),
        (a[::2, ::-3], "not contiguous"),
        (np.broadcast_to(a[0], (3, 6)).copy()[:, :1].T[:, ::2], "contiguous"),
        (fixed, "read-only"),
        (np.lib.stride_tricks.as_strided(a, (2, 2), (0, 4)), "contiguous"),
    ]:
        x = nb.from_dlpack(bad)
        same(x.numpy(), bad)
        assert address(x) != address(bad)
        with pytest.raises(ValueError, match=why):
            nb.from_dlpack(bad, copy=False)
    same(nb.asarray(odd).numpy(), array("int32").ravel())


ODD = [0, 1, 255, 2]


def odd_bools():
    """Bools of NumPy whose bytes are not 0 and 1 alone."""
    return np.array(ODD, "u1").view(bool)


@pytest.mark.parametrize(
    "taken",
    [
        nb.constant,
        nb.asarray,
        nb.from_dlpack,
        lambda a: nb.from_dlpack(a, copy=True),
        lambda a: nb.from_dlpack(np.repeat(a, 2)[::2]),
        lambda a: nb.from_dlpack(a.reshape(2, 2).T).T.reshape(4),
        nb.ops.ensure_tensor,
    ],
)
def test_any_byte_but_0_is_one_true_bool(taken):
    a = odd_bools()
    x = taken(a)
    assert x.numpy().view("u1").tolist() == [0, 1, 1, 1]
    assert nb.sum(x).item() == 3
    assert nb.cast(x, "int32").tolist() == [0, 1, 1, 1]
    assert (x == nb.constant([False, True, True, True])).tolist() == [True] * 4
    assert nb.logical_xor(x, nb.ones(4, dtype="bool")).tolist() == [
        *(True, False, False, False)
    ]
    assert a.view("u1").tolist() == ODD


def test_odd_bools_are_not_shared():
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        nb.from_dlpack(odd_bools(), copy=False)
    with pytest.raises(ValueError, match="copy"):
        nb.asarray(odd_bools(), copy=False)
    a = np.array([False, True])
    assert address(nb.from_dlpack(a, copy=False)) == address(a)


def test_gaps_of_no_meaning_do_not_matter():
    a = np.zeros((3, 8))[:, None, :][:1]  # a stride along an axis of one
    assert address(nb.from_dlpack(a, copy=False)) == address(a)
    same(
        nb.from_dlpack(np.zeros((4, 0, 2))[::2], copy=False).numpy(),
        np.zeros((2, 0, 2)),
    )


def test_a_lazy_tensor_over_shared_memory_keeps_it():
    x = nb.from_dlpack(np.arange(4.0)) + 1
    gc.collect()
    junk = [np.full(4, 9.0) for _ in range(100)]
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    del junk


def test_devices_are_named():
    assert nb.ones(2).__dlpack_device__() == (1, 0)
    a = array("float32")
    same(nb.from_dlpack(a, device="cpu").numpy(), a)
    with pytest.raises(RuntimeError, match="not present"):
        nb.from_dlpack(a, device="gpu:200")
    with pytest.raises(ValueError, match="unknown device"):
        nb.from_dlpack(a, device="moon")


def test_asarray_shares_or_fails():
    a = array("float32")
    assert address(nb.asarray(a, copy=False)) == address(a)
    assert address(nb.asarray(a)) != address(a)
    for bad in (a.T, [1.0, 2.0], 3.0):
        with pytest.raises(ValueError, match="copy"):
            nb.asarray(bad, copy=False)
    with pytest.raises(ValueError, match="copy"):
        nb.asarray(a, dtype="int32", copy=False)


# DLPack by hand.

HEAD = [
    ("data", ctypes.c_void_p),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("ndim", ctypes.c_int32),
    ("code", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("byte_offset", ctypes.c_uint64),
]
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DLTensor(ctypes.Structure):
    _fields_ = HEAD


class Plain(ctypes.Structure):
    _fields_ = [
        ("t", DLTensor),
        ("manager", ctypes.c_void_p),
        ("deleter", Deleter),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("t", DLTensor),
    ]


api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, Destructor]
api.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
api.PyCapsule_GetName.restype = ctypes.c_char_p
api.PyCapsule_GetName.argtypes = [ctypes.py_object]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Producer:
    """Memory of six float32 by hand; everything about it can be wrong.  It
    counts how often it is deleted, by whom it ever is."""

    def __init__(self, versioned=False, name=None, deleter=True, **wrong):
        self.deleted = 0
        self.data = (ctypes.c_float * 6)(*range(6))
        self.shape = (ctypes.c_int64 * 2)(2, 3)
        self.strides = (ctypes.c_int64 * 2)(3, 1)
        self.managed = (Versioned if versioned else Plain)()
        self.right = b"dltensor_versioned" if versioned else b"dltensor"
        self.name = self.right if name is None else name
        if deleter:
            self.managed.deleter = self.deleter = Deleter(self.delete)
        if versioned:
            self.managed.major = wrong.pop("major", 1)
            self.managed.flags = wrong.pop("flags", 0)
        t = self.managed.t
        t.data = ctypes.addressof(self.data)
        t.device_type, t.ndim = 1, 2
        t.code, t.bits, t.lanes = 2, 32, 1
        t.shape = ctypes.cast(self.shape, type(t.shape))
        t.strides = ctypes.cast(self.strides, type(t.strides))
        for field, value in wrong.items():
            setattr(t, field, value)
        self.destructor = Destructor(self.destroy)

    def delete(self, managed):
        assert managed == ctypes.addressof(self.managed)
        self.deleted += 1

    def destroy(self, capsule):
        if api.PyCapsule_IsValid(capsule, self.right):
            self.delete(ctypes.addressof(self.managed))

    def capsule(self):
        return api.PyCapsule_New(
            ctypes.addressof(self.managed), self.name, self.destructor
        )

    def __dlpack__(self, **how):
        return self.capsule()

    def __dlpack_device__(self):
        return self.managed.t.device_type, self.managed.t.device_id


SIX = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("versioned", [False, True])
def test_shared_memory_is_deleted_once_by_the_last_tensor(versioned):
    p = Producer(versioned)
    x = nb.from_dlpack(p)
    assert address(x) == ctypes.addressof(p.data)
    y = nb.reshape(x, (6,))[1:]
    y.realize()
    view = memoryview(y)
    del x, y
    gc.collect()
    assert p.deleted == 0
    assert view.tolist() == [1, 2, 3, 4, 5]
    view.release()
    assert p.deleted == 1


@pytest.mark.parametrize("versioned", [False, True])
def test_a_copy_deletes_at_once(versioned):
    p = Producer(versioned)
    x = nb.from_dlpack(p, copy=True)
    assert p.deleted == 1
    p.data[0] = 9
    same(x, SIX)
    del x
    assert p.deleted == 1


@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_is_consumed_once(versioned):
    p = Producer(versioned)
    capsule = p.capsule()
    x = nb.from_dlpack(capsule)
    assert api.PyCapsule_GetName(capsule) == b"used_" + p.right
    with pytest.raises(ValueError, match="consumed already"):
        nb.from_dlpack(capsule)
    del capsule
    assert p.deleted == 0
    same(x, SIX)
    del x
    assert p.deleted == 1


def test_nobody_may_want_to_know():
    for copy in (False, True):
        p = Producer(deleter=False)
        same(nb.from_dlpack(p, copy=copy), SIX)


def test_strides_and_offsets_are_followed():
    p = Producer()
    p.shape[:], p.strides[:] = (3, 2), (1, 3)
    same(nb.from_dlpack(p), SIX.T)
    p = Producer()
    p.strides[:] = (0, 1)
    same(nb.from_dlpack(p), np.broadcast_to(SIX[0], (2, 3)))
    p = Producer(byte_offset=4, ndim=1)
    x = nb.from_dlpack(p)
    assert x.tolist() == [1, 4]
    p = Producer(byte_offset=20)
    p.strides[:] = (-3, -1)
    same(nb.from_dlpack(p), SIX[::-1, ::-1])
    p = Producer(strides=None)
    same(nb.from_dlpack(p, copy=False), SIX)
    p = Producer(ndim=0, shape=None, strides=None)
    assert nb.from_dlpack(p, copy=False).item() == 0
    p = Producer(data=None)
    p.shape[0] = 0
    assert nb.from_dlpack(p, copy=False).shape == (0, 3)


def test_memory_out_of_line_is_copied():
    p = Producer(byte_offset=2, ndim=1)
    p.strides[0] = 1
    with pytest.raises(ValueError, match="not aligned"):
        nb.from_dlpack(p, copy=False)
    x = nb.from_dlpack(p)
    words = struct.pack("6f", *range(6))
    assert x.tolist() == [
        struct.unpack_from("f", words, at)[0] for at in (2, 6)
    ]


def test_read_only_memory_is_copied():
    p = Producer(True, flags=1)
    x = nb.from_dlpack(p)
    assert p.deleted == 1 and address(x) != ctypes.addressof(p.data)
    with pytest.raises(ValueError, match="read-only"):
        nb.from_dlpack(Producer(True, flags=1), copy=False)


BAD = [
    ({"name": b"dl"}, ValueError, "named dl is not one of DLPack"),
    ({"name": b"used_dltensor"}, ValueError, "consumed already"),
    ({"name": b"used_dltensor_versioned"}, ValueError, "consumed already"),
    ({"device_type": 2, "device_id": 200}, RuntimeError, r"device \(2, 200\)"),
    ({"device_type": 99, "device_id": 7}, RuntimeError, r"device \(99, 7\)"),
    ({"code": 5, "bits": 64}, TypeError, "code 5, 64 bits"),
    ({"code": 3}, TypeError, "code 3"),
    ({"code": 200}, TypeError, "code 200"),
    ({"bits": 4, "code": 0}, TypeError, "4 bits"),
    ({"bits": 128}, TypeError, "128 bits"),
    ({"bits": 0}, TypeError, "0 bits"),
    ({"lanes": 4}, TypeError, "4 lanes"),
    ({"lanes": 0}, TypeError, "0 lanes"),
    ({"ndim": 17}, ValueError, "rank 17"),
    ({"ndim": -1}, ValueError, "rank -1"),
    ({"ndim": 2**31 - 1}, ValueError, "rank"),
    ({"shape": None}, ValueError, "without a shape"),
    ({"data": None}, ValueError, "no data"),
]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("wrong, error, why", BAD)
def test_a_bad_capsule_is_left_as_it_was(wrong, error, why, direct):
    class Holder:
        def __dlpack__(self, **how):
            return capsules[0]

    p = Producer(**wrong)
    capsules = [p.capsule()]
    with pytest.raises(error, match=why):
        nb.from_dlpack(capsules[0] if direct else Holder())
    assert api.PyCapsule_GetName(capsules[0]) == p.name
    assert p.deleted == 0
    capsules.clear()
    assert p.deleted == (p.name == p.right)


def test_negative_and_huge_sizes_are_refused():
    for sizes, error in [
        ((-1, 3), ValueError),
        ((2**62, 2**62), OverflowError),
    ]:
        for copy in (None, True):
            p = Producer(strides=None)
            p.shape[:] = sizes
            capsule = p.capsule()
            with pytest.raises(error):
                nb.from_dlpack(capsule, copy=copy)
            assert p.deleted == 0
            del capsule
            assert p.deleted == 1


def test_of_an_unknown_version_only_the_deleter_is_used():
    p = Producer(True, major=2, device_type=99, ndim=-5)
    capsule = p.capsule()
    with pytest.raises(BufferError, match="version 2.0 of DLPack"):
        nb.from_dlpack(capsule)
    del capsule
    assert p.deleted == 1


def test_a_capsule_without_a_name_is_refused():
    p = Producer()
    p.name = None
    with pytest.raises(ValueError, match="named nothing"):
        nb.from_dlpack(p.capsule())


def test_a_device_is_asked_for_before_the_data():
    class Far:
        def __dlpack_device__(self):
            return (2, 201)

        def __dlpack__(self, **how):
            raise AssertionError("asked for data")

    with pytest.raises(RuntimeError, match=r"\(2, 201\)"):
        nb.from_dlpack(Far())


class Old(Producer):
    """From before versions: takes a stream alone."""

    def __dlpack__(self, stream=None):
        return self.capsule()


def test_old_producers_are_understood():
    same(nb.from_dlpack(Old()), SIX)
    same(nb.from_dlpack(Old(), copy=False), SIX)


def test_producers_are_told_what_is_wanted():
    asked = []

    class Asked(Producer):
        def __dlpack__(self, **how):
            asked.append(how)
            return self.capsule()

    nb.from_dlpack(Asked())
    nb.from_dlpack(Asked(), copy=False)
    assert asked[0]["max_version"][0] == 1 and "copy" not in asked[0]
    assert asked[1]["copy"] is False


def test_producers_that_fail_are_heard():
    class Fails(Producer):
        def __dlpack__(self, **how):
            raise KeyError("gone")

    class Wrong(Producer):
        def __dlpack__(self, **how):
            return 5

    class Odd(Producer):
        def __dlpack_device__(self):
            return "cpu"

    with pytest.raises(KeyError, match="gone"):
        nb.from_dlpack(Fails())
    with pytest.raises(TypeError, match="not a capsule"):
        nb.from_dlpack(Wrong())
    with pytest.raises(TypeError, match="two ints"):
        nb.from_dlpack(Odd())
    for bad in (5, "x", object(), [1.0]):
        with pytest.raises(TypeError, match="no __dlpack__"):
            nb.from_dlpack(bad)


def test_a_deleter_may_run_in_any_thread():
    producers = [Producer(i % 2 == 0) for i in range(40)]
    tensors = [nb.from_dlpack(p) * 2 for p in producers]

    def work(mine):
        for x in mine:
            x.realize()

    threads = [
        threading.Thread(target=work, args=(tensors[i::4],)) for i in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [p.deleted for p in producers] == [1] * 40
    for x in tensors:
        same(x, 2 * SIX)


def test_an_exception_survives_a_deleter():
    p = Producer()

    def fails():
        x = nb.from_dlpack(p)
        raise KeyError(x.shape)

    with pytest.raises(KeyError):
        fails()
    gc.collect()
    assert p.deleted == 1


# Export.


def opened(capsule):
    name = api.PyCapsule_GetName(capsule)
    cls = Versioned if name == b"dltensor_versioned" else Plain
    return cls.from_address(api.PyCapsule_GetPointer(capsule, name))


@pytest.mark.parametrize("name", ALL)
def test_a_capsule_says_what_it_holds(name):
    x = nb.constant(array(name))
    codes = {"b": 6, "i": 0, "u": 1, "f": 2}
    code = 4 if name == "bfloat16" else codes[name[0]]
    for how, kind in [({}, Plain), ({"max_version": (1, 0)}, Versioned)]:
        capsule = x.__dlpack__(**how)
        m = opened(capsule)
        assert isinstance(m, kind)
        t = m.t
        assert (t.code, t.bits, t.lanes) == (code, 8 * x.dtype.itemsize, 1)
        assert (t.device_type, t.device_id, t.ndim) == (1, 0, 2)
        assert t.shape[:2] == [2, 3] and t.strides[:2] == [3, 1]
        assert t.byte_offset == 0
    assert (m.major, m.flags) == (1, 1)


def test_versions_are_agreed_on():
    x = nb.ones(2)
    for most, kind in [
        (None, Plain),
        ((0, 8), Plain),
        ((1, 0), Versioned),
        ((9, 9), Versioned),
    ]:
        capsule = x.__dlpack__(max_version=most)
        assert isinstance(opened(capsule), kind)
    for bad in (1, "ab", (1,), ("a", "b"), (1, 2, 3)):
        with pytest.raises(TypeError, match="two ints"):
            x.__dlpack__(max_version=bad)


def test_a_copy_is_said_to_be_one_and_may_be_written_to():
    x = nb.constant([1.0, 2.0])
    capsule = x.__dlpack__(max_version=(1, 0), copy=True)
    assert opened(capsule).flags == 2
    assert opened(capsule).t.data != address(x)
    a = np.from_dlpack(x, copy=True)
    a[0] = 5
    assert x.tolist() == [1.0, 2.0]
    capsule = x.__dlpack__(max_version=(1, 0), copy=False)
    assert opened(capsule).t.data == address(x)


def test_views_are_exported_as_they_lie():
    a = np.arange(6.0).reshape(2, 3)
    x = nb.constant(a)
    capsule = x.T.__dlpack__()
    assert opened(capsule).t.strides[:2] == [1, 3]
    same(np.from_dlpack(x.T), a.T)
    same(np.from_dlpack(x[:, ::2]), a[:, ::2])
    same(np.from_dlpack(nb.flip(x, 1)), a[:, ::-1])
    same(np.from_dlpack(nb.broadcast_to(x, (2, 2, 3))), np.stack([a, a]))
    capsule = nb.flip(x, 1).__dlpack__()
    assert opened(capsule).t.strides[:2] == [3, 1]


def test_exports_that_cannot_be_are_refused():
    x = nb.ones(2)
    with pytest.raises(BufferError, match="no stream"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"\(2, 200\)"):
        x.__dlpack__(dl_device=(2, 200))
    with pytest.raises(TypeError, match="two ints"):
        x.__dlpack__(dl_device="cpu")
    with pytest.raises(TypeError):
        x.__dlpack__(None)
    x.__dlpack__(dl_device=(1, 0))


def test_an_export_keeps_the_memory():
    a = np.from_dlpack(nb.ones(1000) * 3)
    gc.collect()
    junk = [nb.full(1000, 7.0).realize() for _ in range(10)]
    assert (a == 3).all()
    del junk


def test_what_went_out_comes_back():
    x = nb.constant(array("int16"))
    for how in ({}, {"max_version": (1, 0)}):
        same(nb.from_dlpack(x.__dlpack__(**how)), array("int16"))


# Leaks.


def growth(work):
    """Objects that 200 times `work` leaves behind."""
    gc.collect()
    before, blocks = _nabla.stats(), sys.getallocatedblocks()
    for _ in range(200):
        work()
    gc.collect()
    after = _nabla.stats()
    del before["steps_run"], after["steps_run"]
    assert after == before
    return sys.getallocatedblocks() - blocks


def settled(work):
    """The same once caches have filled, here or in other libraries."""
    for _ in range(20):
        work()
    return min(growth(work) for _ in range(3))


def test_nothing_is_left_behind():
    a, x = array("float32"), nb.constant(array("float32"))
    names = {"a": x, "b": [x, x]}

    def refused(call):
        with pytest.raises((ValueError, TypeError, BufferError, RuntimeError)):
            call()

    for work in [
        lambda: nb.from_dlpack(a),
        lambda: nb.from_dlpack(a.T) + 1,
        lambda: nb.from_dlpack(a, copy=True),
        lambda: nb.from_dlpack(x.__dlpack__()),
        lambda: x.__dlpack__(max_version=(1, 0), copy=True),
        lambda: np.from_dlpack(x.T),
        lambda: (x + 1).numpy(),
        lambda: np.asarray(x + 1),
        lambda: bytes(x.T),
        lambda: x.__array__(np.float64),
        lambda: nb.constant(array("bfloat16")).numpy(),
        lambda: nb.add(jnp.ones(2), x[0, 0]),
        lambda: refused(lambda: nb.from_dlpack(a.T, copy=False)),
        lambda: refused(lambda: nb.from_dlpack(np.zeros(2, complex))),
        lambda: refused(lambda: x.__dlpack__(stream=3)),
        lambda: refused(lambda: nb.save("x.nothing", names)),
        lambda: refused(lambda: nb.save("x.npy", names)),
        lambda: nb.manual_seed(3),
        lambda: nb.uniform((3,)).numpy(),
    ]:
        assert settled(work) < 50


def test_copies_are_freed():
    a = np.zeros((1024, 1024)).T
    x = nb.zeros((1024, 1024), dtype="float64").realize()
    nb.from_dlpack(a)
    x.__dlpack__(copy=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(40):
        nb.from_dlpack(a)
        x.__dlpack__(copy=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400 * 1024  # of 80 times 8 MiB; sanitizers hold some


def test_the_end_of_the_process_is_quiet():
    code = """if 1:
        import numpy as np, nabla as nb
        a = np.arange(6.0)
        x = nb.from_dlpack(a)
        y = np.from_dlpack(nb.ones(3))
        z = memoryview(nb.ones(3))
        lazy = nb.from_dlpack(np.arange(3.0)) + 1
        nb.kept = [x, lazy, nb.ones(2).__dlpack__()]
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


# Files.

SUFFIXES = [".safetensors", ".npz"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_tree_comes_back_by_dotted_names(tmp_path, suffix):
    path = tmp_path / ("x" + suffix)
    tree = {
        "w": nb.ones((2, 3)).T * 2,
        "layers": [
            {"b": nb.arange(3)},
            (nb.constant(True), None, np.float32(2.5)),
        ],
        7: 4,
        "empty": {},
    }
    nb.save(path, tree)
    found = nb.load(path)
    assert isinstance(found, dict)
    assert sorted(found) == [
        "7",
        "layers.0.b",
        "layers.1.0",
        "layers.1.2",
        "w",
    ]
    same(found["w"], np.full((3, 2), 2, np.float32))
    same(found["layers.0.b"], np.arange(3))
    same(found["layers.1.0"], np.array(True))
    same(found["7"], np.array(4))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(), (2, 3), (2, 0)])
def test_every_dtype_comes_back_from_files(tmp_path, name, shape):
    a = array(name, shape)
    for suffix in SUFFIXES[: 1 if name == "bfloat16" else 2]:
        path = str(tmp_path / ("x" + suffix))
        nb.save(path, {"x": nb.constant(a)})
        same(nb.load(path)["x"].numpy(), a)


def test_one_tensor_in_a_npy_file(tmp_path):
    path = tmp_path / "x.npy"
    nb.save(path, nb.arange(3))
    same(np.load(path), np.arange(3))
    x = nb.load(path)
    assert nb.is_tensor(x)
    same(x, np.arange(3))
    nb.save(path, {"a": nb.arange(2)})
    same(nb.load(path), np.arange(2))
    with pytest.raises(ValueError, match="npy"):
        nb.save(path, [nb.arange(2), nb.arange(3)])


def test_others_read_what_is_saved_and_write_what_is_loaded(tmp_path):
    tree = {"a": array("float32"), "b": array("int64", ())}
    nb.save(tmp_path / "x.npz", tree)
    for name, a in np.load(tmp_path / "x.npz").items():
        same(a, tree[name])
    nb.save(tmp_path / "x.safetensors", tree)
    for name, a in safetensors.numpy.load_file(
        tmp_path / "x.safetensors"
    ).items():
        same(a, tree[name])
    np.savez_compressed(tmp_path / "y.npz", **tree)
    safetensors.numpy.save_file(tree, tmp_path / "y.safetensors", {"k": "v"})
    for suffix, notes in [(".safetensors", {"k": "v"}), (".npz", {})]:
        found = nb.load(tmp_path / ("y" + suffix))
        for name, a in tree.items():
            same(found[name], a)
        assert found.metadata == notes


def test_what_was_loaded_is_a_tree_like_the_dict_that_was_saved(tmp_path):
    saved = {"w": nb.ones(2), "b": nb.zeros(2)}
    nb.save(tmp_path / "x.safetensors", saved, {"step": "3"})
    found = nb.load(tmp_path / "x.safetensors")
    assert nb.tree_structure(found) == nb.tree_structure(saved)
    added = nb.tree_map(lambda x, y: x + 2 * y, saved, found)
    assert added["w"].tolist() == [3, 3]
    slope = nb.grad(lambda p: nb.sum(p["w"] * p["b"]))(found)
    assert slope["b"].tolist() == [1, 1]


def test_metadata_comes_back(tmp_path):
    path = tmp_path / "x.safetensors"
    nb.save(path, {"x": nb.ones(1)}, {"step": "3", "é": "ü"})
    assert nb.load(path).metadata == {"step": "3", "é": "ü"}
    nb.save(path, {"x": nb.ones(1)})
    assert nb.load(path).metadata == {}
    with pytest.raises(ValueError, match="metadata"):
        nb.save(tmp_path / "x.npz", {"x": nb.ones(1)}, {"step": "3"})
    with pytest.raises(TypeError, match="metadata.*'step' is 3"):
        nb.save(path, {"x": nb.ones(1)}, {"step": 3})
    with pytest.raises(TypeError, match="metadata.*3 is 'step'"):
        nb.save(path, {"x": nb.ones(1)}, {3: "step"})


@pytest.mark.parametrize("tree", [nb.ones(1), {"x": nb.ones(1)}])
def test_suffixes_that_name_no_format(tmp_path, tree):
    for name in ("x.pt", "x"):
        with pytest.raises(ValueError, match=f"{name}: .*suffix.*safetensors"):
            nb.save(tmp_path / name, tree)


def test_paths_of_every_kind(tmp_path):
    for path in (
        tmp_path / "ä.npy",
        os.fspath(tmp_path / "b.npy"),
        os.fsencode(tmp_path / "c.npy"),
    ):
        nb.save(path, nb.ones(1))
        assert nb.load(path).tolist() == [1.0]
    assert pathlib.Path(tmp_path / "ä.npy").exists()
    with pytest.raises(ValueError, match="null"):
        nb.load("x\0.npy")
    with pytest.raises(TypeError):
        nb.load(3)


def test_files_that_cannot_be_are_refused(tmp_path):
    x = {"x": nb.ones(2)}
    with pytest.raises(FileNotFoundError, match="missing"):
        nb.load(tmp_path / "missing.npz")
    for bad in ("x.txt", "x", "x.NPZ"):
        with pytest.raises(ValueError, match="suffix"):
            nb.load(tmp_path / bad)
        with pytest.raises(ValueError, match="suffix"):
            nb.save(tmp_path / bad, x)
    with pytest.raises(FileNotFoundError):
        nb.save(tmp_path / "none" / "x.npz", x)
    with pytest.raises(ValueError, match="by name"):
        nb.save(tmp_path / "x.npz", nb.ones(2))
    with pytest.raises(TypeError, match="bfloat16"):
        nb.save(tmp_path / "x.npz", {"x": nb.ones(2, dtype="bfloat16")})
    with pytest.raises(ValueError, match="named"):
        nb.save(tmp_path / "x.npz", {"a": {"b": 1}, "a.b": 2})
    with pytest.raises(ValueError, match="NUL"):
        nb.save(tmp_path / "x.npz", {"a\0b": 1})
    with pytest.raises(TypeError, match="not a str or an int"):
        nb.save(tmp_path / "x.npz", {1.5: 1})
    with pytest.raises(TypeError):
        nb.save(tmp_path / "x.npz", {"a": "text"})
    with pytest.raises(RuntimeError, match="not present"):
        nb.load(tmp_path / "x.npz", device="gpu:200")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".npy"])
def test_a_damaged_file_is_an_error_and_no_more(tmp_path, suffix):
    path = tmp_path / ("x" + suffix)
    nb.save(path, {"x": nb.arange(20)})
    whole = path.read_bytes()
    for n in range(0, len(whole), 7):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError):
            nb.load(path)
    for n in range(0, len(whole), 5):
        path.write_bytes(whole[:n] + b"\xff" + whole[n + 1 :])
        with contextlib.suppress(ValueError, TypeError):
            nb.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.npz"
    nb.save(path, {"x": nb.arange(3)})
    with pytest.raises(TypeError):
        nb.save(path, {"x": nb.ones(2, dtype="bfloat16")})
    same(nb.load(path)["x"], np.arange(3))
    assert os.listdir(tmp_path) == ["x.npz"]


def test_loaded_tensors_share_one_block_and_free_it(tmp_path):
    path = tmp_path / "x.safetensors"
    nb.save(path, {"a": nb.ones(1000), "b": nb.zeros(1000)})
    gc.collect()
    before = _nabla.stats()["bytes_in_use"]
    found = nb.load(path)
    a = found["a"]
    del found
    assert a.tolist() == [1.0] * 1000
    assert _nabla.stats()["bytes_in_use"] > before
    del a
    assert _nabla.stats()["bytes_in_use"] == before
