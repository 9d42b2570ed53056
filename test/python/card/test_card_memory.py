"""Memory of a card: what programs take, and what is shared with others."""

from typing import Any

import numpy as np
import pytest
from both import GPU, compare, values

import nabla as nb
from nabla import _nabla


def test_waiting_and_memory() -> None:
    nb.synchronize()
    nb.synchronize("gpu")
    nb.synchronize("cpu")
    before = nb.memory_stats()
    x = (nb.arange(300000.0, device="gpu") + 1).realize()
    during = nb.memory_stats("gpu:0")
    assert during["used"] - before["used"] >= 1200000
    assert during["most"] >= during["used"] and during["all"] > 1 << 30
    del x
    assert nb.memory_stats()["most"] >= during["used"]
    nb.reset_peak_memory()
    assert nb.memory_stats()["most"] < during["used"]
    after = nb.memory_stats(GPU)
    assert after["used"] < before["used"] + 4096  # programs keep some
    assert after["kept"] >= 1200000
    nb.empty_cache()
    assert nb.memory_stats()["kept"] < after["kept"]
    for ask in (
        nb.synchronize,
        nb.memory_stats,
        nb.reset_peak_memory,
        nb.empty_cache,
    ):
        for wrong, error in (
            ("gpu:250", RuntimeError),
            (nb.Accelerator(-1), RuntimeError),
            ("cpu:1", RuntimeError),
            ("tpu", ValueError),
            ("gpu:", ValueError),
            ("gpu:one", ValueError),
            (1, TypeError),
        ):
            with pytest.raises(error, match="device|present"):
                ask(wrong)


def test_sizes_that_change() -> None:
    f = nb.compile(
        lambda x: (nb.softmax(x, axis=0), x.sum(), x @ x.T),
        dynamic_dims={0: {0: "n"}},
    )
    for n in (3, 1, 7, 64, 0, 5):
        compare(f, values(n, 4))
    assert f.stats.misses == 2  # one for each device
    assert f.stats.fallbacks == 0


def test_donated_memory_is_taken() -> None:
    f = nb.compile(lambda x: x * 2 + 1, donate_argnums=(0,))
    x = nb.constant(values(1000), device="gpu") * 1
    want = x.realize().numpy() * 2 + 1
    at = address(x)
    y = f(x)
    assert address(y) == at
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-6)
    with pytest.raises(RuntimeError, match="donated"):
        x.numpy()


def test_what_a_program_needs() -> None:
    def f(x: nb.Tensor) -> nb.Tensor:
        return nb.sum(nb.softmax(x @ x.T))

    c, a = nb.compile(f), nb.constant(values(1000, 8), device="gpu")
    a.realize()
    used = nb.memory_stats()["used"]
    nb.reset_peak_memory("gpu")
    c(a).realize()
    most = nb.memory_stats()["most"]
    plan = c.memory()
    assert plan.arguments == 32000 and plan.results == 4
    assert plan.temporaries >= 4000000  # the product
    assert abs(most - used - plan.temporaries) < 65536
    told = nb.explain(f)(a)
    assert abs(told.peak_bytes - plan.temporaries - 32004) < 4096
    assert told.kernels


# Sharing memory.


def test_dlpack() -> None:
    a = values(3, 4)
    x = nb.constant(a, device="gpu")
    assert x.__dlpack_device__() == (2, 0)
    for stream in (None, 1, 2, -1):
        for version in (None, (1, 0)):
            capsule = x.__dlpack__(stream=stream, max_version=version)
            y = nb.from_dlpack(capsule)
            assert y.device == GPU and (y.numpy() == a).all()
    with pytest.raises(ValueError, match="stream"):
        x.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    assert (np.from_dlpack(x.cpu()) == a).all()
    here = nb.from_dlpack(x.__dlpack__(dl_device=(1, 0)))
    assert here.device == nb.CPU() and (here.numpy() == a).all()
    there = nb.from_dlpack(nb.ones(2).__dlpack__(dl_device=(2, 0)))
    assert there.device == GPU and there.tolist() == [1.0, 1.0]


class Producer:
    """What another library has on the card."""

    def __init__(self, x: nb.Tensor) -> None:
        self.x, self.streams = x, []  # type: ignore[var-annotated]

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: Any = None, **how: Any) -> Any:
        self.streams.append(stream)
        return self.x.__dlpack__(stream=stream)


def address(x: nb.Tensor) -> int:
    data: tuple[int, bool] = x.__cuda_array_interface__["data"]  # type: ignore
    return data[0]


def test_memory_of_others() -> None:
    a = values(3, 4)
    x = nb.constant(a, device="gpu")
    p = Producer(x)
    y = nb.from_dlpack(p)
    assert p.streams == [x.__cuda_array_interface__["stream"]]
    assert y.device == GPU and address(y) == address(x)
    del x, p
    assert ((y * 2).numpy() == a * 2).all()
    z = nb.from_dlpack(Producer(y), copy=True)
    assert address(z) != address(y) and (z.numpy() == a).all()
    t = nb.from_dlpack(Producer(y.T))
    assert t.device == GPU and (t.numpy() == a.T).all()
    with pytest.raises(ValueError, match="not contiguous"):
        nb.from_dlpack(Producer(y.T), copy=False)
    here = nb.from_dlpack(Producer(y), device="cpu")
    assert here.device == nb.CPU() and (here.numpy() == a).all()
    with pytest.raises(ValueError, match="copy=False"):
        nb.from_dlpack(Producer(y), device="cpu", copy=False)


def test_cuda_array_interface() -> None:
    x = nb.constant(values(3, 4), device="gpu")
    seen = x.__cuda_array_interface__
    assert seen["version"] == 3 and seen["typestr"] == "<f4"
    assert seen["shape"] == (3, 4) and seen["strides"] == (16, 4)
    assert seen["data"][0] > 0 and seen["stream"] not in (0, None)
    assert x.T.__cuda_array_interface__["shape"] == (4, 3)
    assert not hasattr(x.cpu(), "__cuda_array_interface__")
    assert not hasattr(x.to("bfloat16"), "__cuda_array_interface__")


class Offer:
    """What has nothing but the interface of arrays of CUDA."""

    def __init__(self, x: nb.Tensor, **other: Any) -> None:
        seen: dict[str, Any] = x.__cuda_array_interface__  # type: ignore
        self.x, self.__cuda_array_interface__ = x, seen | other


def test_arrays_of_cuda_are_taken() -> None:
    a = values(3, 4)
    x = nb.constant(a, device="gpu")
    y = nb.asarray(Offer(x), copy=False)
    assert y.device == GPU and address(y) == address(x)
    own = nb.constant(Offer(x), device="gpu")
    assert own.device == GPU and address(own) != address(x)
    assert nb.constant(Offer(x)).device == nb.CPU()
    more = nb.ones((3, 4), device="gpu") + Offer(x)
    assert (more.numpy() == a + 1).all()
    assert (nb.constant(Offer(x.T)).numpy() == a.T).all()
    with pytest.raises(ValueError, match="not contiguous"):
        nb.asarray(Offer(x.T), copy=False)
    data = x.__cuda_array_interface__["data"]  # type: ignore
    with pytest.raises(ValueError, match="read-only"):
        nb.asarray(Offer(x, data=(data[0], True)), copy=False)
    for stream in (1, 2, None):
        assert nb.asarray(Offer(x, stream=stream)).shape == (3, 4)
    none = nb.asarray(Offer(x, shape=(0, 4), strides=None), copy=False)
    assert none.shape == (0, 4) and none.device == GPU
    nowhere = nb.asarray(Offer(none), copy=False)
    assert nowhere.shape == (0, 4) and nowhere.device == GPU
    del x
    assert ((y * 2).numpy() == a * 2).all()


def test_bools_of_others_are_any_byte_but_0() -> None:
    odd = nb.constant(np.array([[0, 1], [255, 2]], "u1"), device="gpu")
    plain = nb.constant(np.array([[0, 1], [1, 1]], "u1"), device="gpu")

    def by_dlpack(x: nb.Tensor, copy: bool | None = None) -> nb.Tensor:
        return _nabla.import_dlpack(Producer(x), copy, "bool")

    def by_offer(x: nb.Tensor, copy: bool | None = None) -> nb.Tensor:
        return _nabla.import_card_array(Offer(x, typestr="|b1"), copy)

    for taken in (by_dlpack, by_offer):
        for x, copy in ((odd, None), (odd, True), (odd.T, None), (plain, None)):
            y = taken(x, copy)
            assert y.device == GPU and y.dtype == nb.bool
            assert nb.sum(y).item() == 3
            assert (y.numpy().view("u1") == (x.numpy() != 0)).all()
        with pytest.raises(ValueError, match="neither 0 nor 1"):
            taken(odd, False)
        assert address(taken(plain, False)) == address(plain)
        assert address(taken(odd)) != address(odd)
        none = nb.zeros((0, 2), dtype="uint8", device="gpu")
        assert taken(none, False).shape == (0, 2)


def test_offers_that_are_refused() -> None:
    x = nb.constant(values(2, 3), device="gpu")
    at: int = x.__cuda_array_interface__["data"][0]  # type: ignore
    for wrong in (
        {"typestr": "<V2"},
        {"typestr": None},
        {"data": None},
        {"data": (64, False)},
        {"data": (0, False)},
        {"data": (at + 2, False)},
        {"strides": (3,)},
        {"strides": (4,)},
        {"shape": (-1,)},
        {"shape": None},
        {"mask": x},
        {"stream": 0},
    ):
        with pytest.raises(ValueError):
            nb.asarray(Offer(x, **wrong), copy=False)
    assert nb.asarray(Offer(x), copy=False).tolist() == x.tolist()
