"""Memory of a card that is exchanged with PyTorch and JAX, by DLPack and by
__cuda_array_interface__, without copies and in the order of streams.

It runs where a card and one of them that can use it are; elsewhere it is
skipped.  Streams are kept busy before memory changes hands: who does not wait
for them reads what was there before."""

import gc
import os
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nabla as nb

if len(nb.devices()) < 2 or "NABLA_CUDA_DRIVER" in os.environ:
    pytest.skip("no card", allow_module_level=True)

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
GPU = nb.Accelerator()
N = 1 << 22


def torch() -> Any:
    """PyTorch with a card, or the test is skipped."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch has no card")
    return module


def jax() -> Any:
    module = pytest.importorskip("jax")
    if module.default_backend() not in ("gpu", "cuda"):
        pytest.skip("this JAX has no card")
    return module


def address(x: Any) -> int:
    if hasattr(x, "data_ptr"):
        return int(x.data_ptr())
    if hasattr(x, "unsafe_buffer_pointer"):
        return int(x.unsafe_buffer_pointer())
    return int(x.__cuda_array_interface__["data"][0])


def plain(x: Any) -> Any:
    """The values as NumPy has them; bfloat16 as float32."""
    if hasattr(x, "data_ptr"):
        return x.float().cpu().numpy() if "bfloat" in str(x.dtype) else (
            x.cpu().numpy()
        )
    if isinstance(x, nb.Tensor):
        return (x.to("float32") if x.dtype == nb.bfloat16 else x).numpy()
    a = np.asarray(x)
    return a.astype("float32") if "bfloat" in str(a.dtype) else a


def slow(value: float) -> nb.Tensor:
    """A tensor of one value, which takes long to compute."""

    def turn(i: Any, c: Any) -> Any:
        return nb.sin(c) * 0.5 + c * 0.5

    late = nb.fori_loop(0, 300000, turn, nb.ones(64, device="gpu"))
    return nb.zeros(N, device="gpu") + (nb.sum(late) * 0 + value)


def slow_torch(t: Any, value: float) -> Any:
    x = t.zeros(N, device="cuda")
    t.cuda.synchronize()
    t.cuda._sleep(400_000_000)
    x.fill_(value)
    return x


def slow_jax(j: Any, value: float) -> Any:
    def turn(_: Any, c: Any) -> Any:
        return j.numpy.tanh(c @ c)

    m = j.lax.fori_loop(0, 60, turn, j.numpy.ones((4096, 4096)))
    return j.numpy.zeros(N) + (m[0, 0] * 0 + value)


DTYPES = "bool int8 int16 int32 int64 uint8 float16 bfloat16 float32 float64"
SHAPES = [(), (5,), (3, 4), (0,), (2, 0, 3)]


# PyTorch.


@pytest.mark.parametrize("name", DTYPES.split())
def test_every_dtype_to_torch_and_back(name: str) -> None:
    t = torch()
    for shape in SHAPES:
        n = int(np.prod(shape))
        x = nb.to_device(nb.arange(n).reshape(shape), "gpu")
        x = (x % 2 == 0 if name == "bool" else x.to(name)).realize()
        y = t.from_dlpack(x)
        assert str(y.dtype) == f"torch.{name}" and y.device.type == "cuda"
        assert tuple(y.shape) == shape
        assert plain(y).tolist() == plain(x).tolist()
        z = nb.from_dlpack(y)
        assert z.device == GPU and z.dtype == x.dtype and z.shape == x.shape
        assert plain(z).tolist() == plain(x).tolist()
        if n and name != "bfloat16":
            assert address(x) == address(y) == address(z)


def test_torch_is_read_where_it_is() -> None:
    t = torch()
    x = t.arange(12.0, device="cuda").reshape(3, 4)
    y = nb.from_dlpack(x)
    assert y.device == GPU and address(y) == address(x)
    assert (y * 2).tolist() == (x * 2).cpu().tolist()
    whole = nb.asarray(x, copy=False)
    assert address(whole) == address(x)
    own = nb.from_dlpack(x, copy=True)
    assert address(own) != address(x) and own.tolist() == x.cpu().tolist()
    assert nb.from_dlpack(x, device="cpu").tolist() == x.cpu().tolist()


def test_torch_waits_for_nabla() -> None:
    t = torch()
    for value in (3.0, 4.0):
        y = t.from_dlpack(slow(value))
        assert bool((y + 1 == value + 1).all())
    other = t.cuda.Stream()
    with t.cuda.stream(other):
        y = t.from_dlpack(slow(5.0))
        right = (y == 5.0).all()
    other.synchronize()
    assert bool(right)


def test_nabla_waits_for_torch() -> None:
    t = torch()
    x = nb.from_dlpack(slow_torch(t, 3.0))
    assert bool(nb.all(x == 3.0))
    other = t.cuda.Stream()
    with t.cuda.stream(other):
        x = nb.from_dlpack(slow_torch(t, 4.0))
    assert bool(nb.all(x == 4.0))
    capsule = t.utils.dlpack.to_dlpack(slow_torch(t, 5.0))
    assert bool(nb.all(nb.from_dlpack(capsule) == 5.0))


def test_strided_views_go_to_torch_as_they_lie() -> None:
    t = torch()
    a = np.arange(24.0, dtype="float32").reshape(4, 6)
    x = nb.constant(a, device="gpu")
    for view, right in (
        (x.T, a.T),
        (x[1:3, ::2], a[1:3, ::2]),
        (nb.broadcast_to(x[:1], (4, 6)), np.broadcast_to(a[:1], (4, 6))),
        (x[::-1], a[::-1]),
    ):
        y = t.from_dlpack(view)
        assert plain(y).tolist() == right.tolist()
    assert address(t.from_dlpack(x.T)) == address(x)


def test_strided_views_of_torch() -> None:
    t = torch()
    x = t.arange(24.0, device="cuda").reshape(4, 6)
    for view in (x.T, x[1:3, ::2], x[:1].expand(4, 6), x[2:]):
        y = nb.from_dlpack(view)
        assert y.device == GPU and y.tolist() == view.cpu().tolist()
    with pytest.raises(ValueError, match="not contiguous"):
        nb.from_dlpack(x.T, copy=False)


def test_either_may_go_first() -> None:
    t = torch()
    for _ in range(20):
        x = nb.arange(1000.0, device="gpu").realize()
        y = t.from_dlpack(x)
        del x
        gc.collect()
        others = [nb.full((1000,), 7.0, device="gpu") * 1 for _ in range(8)]
        [o.realize() for o in others]
        assert y.sum().item() == 499500.0
        del y
        x = t.arange(1000.0, device="cuda")
        y = nb.from_dlpack(x)
        del x
        gc.collect()
        torch_others = [t.full((1000,), 7.0, device="cuda") for _ in range(8)]
        assert nb.sum(y).item() == 499500.0
        del y, torch_others


def test_memory_goes_back_when_nobody_has_it() -> None:
    t = torch()
    x = nb.arange(float(N), device="gpu").realize()
    nb.synchronize()
    used = nb.memory_stats("gpu")
    y = t.from_dlpack(x)
    del x
    assert nb.memory_stats("gpu") == used
    y += 0
    del y
    gc.collect()
    assert nb.memory_stats("gpu") != used

    x = t.ones(N, device="cuda")
    there = weakref.ref(x)  # torch may keep it with what it lent
    y = nb.from_dlpack(x)
    before = t.cuda.memory_allocated()
    del x
    gc.collect()
    assert t.cuda.memory_allocated() == before
    del y
    gc.collect()
    assert there() is None and t.cuda.memory_allocated() < before


def test_what_is_let_go_of_late_is_not_used_again_early() -> None:
    t = torch()
    for _ in range(5):
        x = (nb.arange(float(N), device="gpu") * 0 + 3.0).realize()
        y = t.from_dlpack(x)
        del x
        t.cuda._sleep(100_000_000)
        z = y + 1
        del y
        nb.full((N,), 9.0, device="gpu").realize()
        assert bool((z == 4.0).all())


# The interface of arrays of CUDA.


@pytest.mark.parametrize("name", DTYPES.split())
def test_arrays_of_cuda_go_to_torch(name: str) -> None:
    t = torch()
    x = nb.to_device(nb.arange(12).reshape(3, 4), "gpu")
    x = (x % 2 == 0 if name == "bool" else x.to(name)).realize()
    if name == "bfloat16":
        assert not hasattr(x, "__cuda_array_interface__")
        return
    y = t.as_tensor(x, device="cuda")
    assert address(y) == address(x)
    assert plain(y).tolist() == plain(x).tolist()
    y = t.as_tensor(x.T, device="cuda")
    assert plain(y).tolist() == plain(x).T.tolist()


def test_torch_waits_for_arrays_of_cuda() -> None:
    t = torch()
    for value in (3.0, 4.0):
        y = t.as_tensor(slow(value), device="cuda")
        assert bool((y == value).all())


class Offer:
    """An object that has nothing but the interface."""

    def __init__(self, x: Any, **other: Any) -> None:
        self.x = x
        self.__cuda_array_interface__ = x.__cuda_array_interface__ | other


@pytest.mark.parametrize("name", DTYPES.split())
def test_arrays_of_cuda_are_taken(name: str) -> None:
    t = torch()
    if name == "bfloat16":
        pytest.skip("it has no word for that")
    x = t.arange(12, device="cuda").reshape(3, 4)
    x = x % 2 == 0 if name == "bool" else x.to(getattr(t, name))
    y = nb.asarray(Offer(x), copy=False)
    assert y.device == GPU and address(y) == address(x)
    assert plain(y).tolist() == plain(x).tolist()
    z = nb.constant(Offer(x.T), device="gpu")
    assert z.device == GPU and plain(z).tolist() == plain(x).T.tolist()
    with pytest.raises(ValueError, match="not contiguous"):
        nb.asarray(Offer(x.T), copy=False)
    empty = nb.asarray(Offer(x[:0]))
    assert empty.shape == (0, 4)


def test_nabla_waits_for_arrays_of_cuda() -> None:
    t = torch()
    other = t.cuda.Stream()
    with t.cuda.stream(other):
        x = slow_torch(t, 4.0)
    y = nb.asarray(Offer(x, version=3, stream=other.cuda_stream), copy=False)
    assert bool(nb.all(y == 4.0))
    x = slow_torch(t, 5.0)
    y = nb.asarray(Offer(x, version=3, stream=1), copy=False)
    assert bool(nb.all(y == 5.0))
    for stream in (0, "x", -1):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            nb.asarray(Offer(x, stream=stream), copy=False)


def test_offers_that_are_refused() -> None:
    t = torch()
    x = t.arange(4.0, device="cuda")
    here = np.ones(4, dtype="float32")
    at = here.__array_interface__["data"][0]
    for wrong in (
        {"typestr": "<V2"},
        {"data": (at, False)},
        {"data": None},
        {"strides": (3,)},
        {"strides": (4, 4)},
        {"shape": (-1,)},
        {"shape": None},
        {"mask": x},
        {"data": (x.data_ptr() + 2, False)},
    ):
        with pytest.raises((ValueError, TypeError)):
            nb.asarray(Offer(x, **wrong), copy=False)
    assert nb.asarray(Offer(x), copy=False).tolist() == [0, 1, 2, 3]


# JAX.


@pytest.mark.parametrize("name", DTYPES.split())
def test_every_dtype_to_jax_and_back(name: str) -> None:
    j = jax()
    for shape in SHAPES:
        n = int(np.prod(shape))
        x = nb.to_device(nb.arange(n).reshape(shape), "gpu")
        x = (x % 2 == 0 if name == "bool" else x.to(name)).realize()
        with j.enable_x64(True) if hasattr(j, "enable_x64") else (
            j.experimental.enable_x64()
        ):
            y = j.dlpack.from_dlpack(x)
            assert y.shape == shape and str(y.dtype) == name
            assert plain(y).tolist() == plain(x).tolist()
            z = nb.from_dlpack(y)
        assert z.device == GPU and z.dtype == x.dtype and z.shape == x.shape
        assert plain(z).tolist() == plain(x).tolist()
        if n and name != "bfloat16":
            assert address(x) == address(y) == address(z)


def test_jax_waits_for_nabla() -> None:
    j = jax()
    for value in (3.0, 4.0):
        y = j.dlpack.from_dlpack(slow(value))
        assert bool((y == value).all())


def test_nabla_waits_for_jax() -> None:
    j = jax()
    made = j.jit(lambda v: slow_jax(j, v))
    made(1.0).block_until_ready()
    for value in (3.0, 4.0):
        x = nb.from_dlpack(made(value))
        assert bool(nb.all(x == value))


def test_arrays_of_cuda_of_jax() -> None:
    j = jax()
    made = j.jit(lambda v: slow_jax(j, v))
    made(1.0).block_until_ready()
    x = made(3.0).block_until_ready()  # it names no stream to wait for
    y = nb.asarray(SimpleNamespace(
        x=x, __cuda_array_interface__=x.__cuda_array_interface__
    ))
    assert bool(nb.all(y == 3.0))


def test_jax_and_nabla_let_go_in_either_order() -> None:
    j = jax()
    for _ in range(10):
        x = nb.arange(1000.0, device="gpu").realize()
        y = j.dlpack.from_dlpack(x)
        del x
        gc.collect()
        nb.full((1000,), 7.0, device="gpu").realize()
        assert float(y.sum()) == 499500.0
        z = nb.from_dlpack(y)
        del y
        gc.collect()
        assert nb.sum(z).item() == 499500.0


def test_all_three_in_a_row() -> None:
    t, j = torch(), jax()
    x = slow(2.0)
    y = t.from_dlpack(x) * 3
    z = j.dlpack.from_dlpack(y) + 1
    w = nb.from_dlpack(z) * 2
    assert bool(nb.all(w == 14.0))


# What is refused.


def test_capsules_of_other_contexts_are_refused() -> None:
    t = torch()
    import ctypes

    capsule = t.utils.dlpack.to_dlpack(t.arange(4.0))
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    at = get(capsule, b"dltensor") + 8
    ctypes.c_int32.from_address(at).value = 2
    with pytest.raises(ValueError, match="is not memory of gpu:0"):
        nb.from_dlpack(capsule)
    ctypes.c_int32.from_address(at).value = 1
    assert nb.from_dlpack(capsule).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_second_context_of_the_card_is_refused() -> None:
    import ctypes

    driver = ctypes.CDLL("libcuda.so.1")
    nb.ones(2, device="gpu").realize()
    former, own = ctypes.c_void_p(), ctypes.c_void_p()
    memory = ctypes.c_uint64()
    assert driver.cuCtxGetCurrent(ctypes.byref(former)) == 0
    assert driver.cuCtxCreate_v2(ctypes.byref(own), 0, 0) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64)) == 0
    driver.cuCtxSetCurrent(former)
    offer = SimpleNamespace(
        __cuda_array_interface__={
            "version": 3,
            "shape": (4,),
            "typestr": "<f4",
            "data": (memory.value, False),
            "strides": None,
            "stream": None,
        }
    )
    with pytest.raises(ValueError, match="another context"):
        nb.asarray(offer, copy=False)
    assert nb.ones(2, device="gpu").tolist() == [1.0, 1.0]
    driver.cuCtxDestroy_v2(own)
    driver.cuCtxSetCurrent(former)
    assert nb.ones(3, device="gpu").tolist() == [1.0, 1.0, 1.0]
