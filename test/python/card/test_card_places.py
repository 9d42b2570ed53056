"""Where tensors are, how they are read and written, and what is made there."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from both import GPU, compare, values

import nabla as nb


def test_devices() -> None:
    assert nb.devices()[:2] == [nb.CPU(), GPU]
    x = nb.constant([1.0, 2.0])
    assert x.device == nb.CPU()
    for y in (
        nb.to_device(x, "gpu"),
        nb.transfer_to(x, "cuda:0"),
        nb.gpu(x),
        nb.accelerator(x),
        x.cuda(),
        x.to("gpu"),
        x.to(GPU),
        x.to_device("gpu:0"),
    ):
        assert y.device == GPU and y.type == nb.TensorType(
            (2,), "float32", "gpu"
        )
        assert y.tolist() == [1.0, 2.0]
        assert nb.cpu(y).device == y.cpu().device == nb.CPU()
        assert nb.cpu(y).tolist() == [1.0, 2.0]
    y = x.cuda()
    assert y.cuda() is y
    with pytest.raises(RuntimeError, match="not present"):
        x.cuda(250)


def test_made_there() -> None:
    x = nb.constant([[1.0, 2.0]])
    made = [
        (nb.zeros((2, 3), device="gpu"), nb.zeros((2, 3))),
        (
            nb.ones(3, device="gpu", dtype="int32"),
            nb.ones(3, dtype="int32"),
        ),
        (nb.full((2,), 7, device="gpu"), nb.full((2,), 7)),
        (nb.arange(5, device="gpu"), nb.arange(5)),
        (
            nb.arange(0.0, 1.0, 0.25, device="gpu"),
            nb.arange(0.0, 1.0, 0.25),
        ),
        (nb.linspace(0, 1, 5, device="gpu"), nb.linspace(0, 1, 5)),
        (nb.eye(3, device="gpu"), nb.eye(3)),
        (nb.hann_window(8, device="gpu"), nb.hann_window(8)),
        (nb.zeros_like(x, device="gpu"), nb.zeros_like(x)),
        (nb.ones_like(x, device="gpu"), nb.ones_like(x)),
        (nb.full_like(x, 4, device="gpu"), nb.full_like(x, 4)),
        (nb.constant([1, 2], device="gpu"), nb.constant([1, 2])),
        (nb.asarray(np.eye(2), device="gpu"), nb.asarray(np.eye(2))),
        (nb.Tensor(3.5, device="gpu"), nb.Tensor(3.5)),
        (x.cuda().new_zeros(2), x.new_zeros(2)),
        (x.cuda().new_full((2,), 5.0), x.new_full((2,), 5.0)),
        (nb.astype(x, "int64", device="gpu"), nb.astype(x, "int64")),
    ]
    for got, want in made:
        assert got.device == GPU and want.device == nb.CPU()
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    assert "to_device" not in nb.xpr(lambda a: a + nb.ones(2, device="gpu"))(
        x.cuda()[0]
    )


def test_default_device() -> None:
    with nb.default_device("gpu"):
        assert nb.defaults()[1] == GPU
        for x in (
            nb.zeros(2),
            nb.zeros(()),
            nb.constant([1.0]),
            nb.asarray(np.ones(2)),
            nb.uniform((2,)),
            nb.random.key(3),
            nb.constant(2.0),
            nb.zeros_like(nb.ones(2)),
            nb.from_dlpack(np.ones(2)),
        ):
            assert x.device == GPU
        assert nb.zeros(2, device="cpu").device == nb.CPU()
        assert nb.constant([1.0], device="cpu").device == nb.CPU()
        assert nb.constant(nb.ones(2, device="cpu")).device == nb.CPU()
        assert (nb.ones(3) + np.ones(3)).device == GPU
        with nb.default_device("cpu"):
            assert nb.zeros(2).device == nb.CPU()
    assert nb.zeros(2).device == nb.CPU()
    with nb.defaults_like(nb.ones(2, device="gpu")):
        assert nb.zeros(2).device == GPU


def test_operands_are_together() -> None:
    x, y = nb.ones(3), nb.ones(3, device="gpu")
    with pytest.raises(ValueError, match="same device"):
        x + y
    with pytest.raises(ValueError, match="same device"):
        nb.matmul(y, x)
    assert (y * nb.constant(2.0)).tolist() == [2.0, 2.0, 2.0]
    assert (y * 2).device == (3 - y).device == GPU
    assert (y + np.arange(3)).tolist() == [1.0, 2.0, 3.0]
    assert (np.arange(3) + y).device == GPU


def test_derivatives_are_where_their_values_are() -> None:
    def twice(x: nb.Tensor) -> nb.Tensor:
        return x * 2.0

    x = nb.constant([1.0, 2.0, 3.0], device="gpu", requires_grad=True)
    ones = np.ones(3, "float32")
    here, there = nb.constant(ones), nb.constant(ones, device="gpu")
    for f in (
        lambda: nb.vjp(twice, x)[1](here),
        lambda: nb.vjp(twice, here)[1](there),
        lambda: nb.jvp(twice, (x,), (here,)),
        lambda: nb.jvp(twice, (here,), (there,)),
        lambda: nb.linearize(twice, x)[1](here),
        lambda: twice(x).backward(here),
        lambda: nb.backward(twice(x), here),
    ):
        with pytest.raises(ValueError, match="same device"):
            f()
    for given in (there, ones):
        twice(x).backward(given)
        for g in (
            x.grad,
            nb.vjp(twice, x)[1](given)[0],
            nb.jvp(twice, (x,), (given,))[1],
        ):
            assert g is not None and g.device == GPU
            assert g.tolist() == [2.0, 2.0, 2.0]
    nb.backward(twice(x), ones)
    for scale in (3.0, nb.constant(3.0)):
        twice(x).sum().backward(scale)
        assert x.grad is not None and x.grad.device == GPU
        assert x.grad.tolist() == [6.0, 6.0, 6.0]


# Reading.


def test_reading() -> None:
    a = values(3, 4)
    x = nb.constant(a, device="gpu")
    y = x.T
    assert x.tolist() == a.tolist() and y.tolist() == a.T.tolist()
    assert (y.numpy() == a.T).all() and (np.asarray(y) == a.T).all()
    assert (np.array(memoryview(x)) == a).all()
    assert (np.array(memoryview(y)) == a.T).all()
    assert x[1, 2].item() == float(x[1, 2]) == float(a[1, 2])
    assert repr(x) == repr(x.cpu()) and str(y) == str(y.cpu())
    assert bool(x.sum() == x.sum()) and int(nb.ones((), device="gpu")) == 1
    assert format(x[0, 0], ".2f") == format(float(a[0, 0]), ".2f")
    assert [r.tolist() for r in x] == a.tolist()
    assert nb.Tensor.to_numpy_all(x, y)[1].tolist() == a.T.tolist()
    half = x.to("bfloat16")
    assert half.to("float32").tolist() == half.cpu().to("float32").tolist()


def test_what_is_elsewhere_is_not_shared() -> None:
    a = np.ones(3, "f4")
    x = nb.constant(a, device="gpu")
    for moved in (
        lambda: nb.asarray(a, device="gpu", copy=False),
        lambda: nb.asarray(x.cpu(), device=GPU, copy=False),
        lambda: nb.asarray(x, device="cpu", copy=False),
        lambda: nb.from_dlpack(a, device="gpu", copy=False),
        lambda: x.__array__(copy=False),
    ):
        with pytest.raises(ValueError, match="copy is needed"):
            moved()
    assert nb.asarray(x, device="gpu", copy=False).device == GPU
    assert nb.asarray(x, copy=False).device == GPU
    assert nb.asarray(a, device="cpu", copy=False).device == nb.CPU()
    assert nb.asarray(x, device="cpu").tolist() == np.asarray(x).tolist()


def test_copies() -> None:
    x = nb.constant([1.0, 2.0], device="gpu")
    for y in (copy.copy(x), copy.deepcopy(x), x.clone(), x.detach()):
        assert y.device == GPU and y.tolist() == [1.0, 2.0]
    y = pickle.loads(pickle.dumps(x))  # wherever it is read
    assert y.device == nb.CPU() and y.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_files(tmp_path: Path, suffix: str) -> None:
    a = values(3, 2)
    x = nb.constant(a, device="gpu")
    path = tmp_path / f"x.{suffix}"
    nb.save(path, {"x": x, "t": x.T, "c": x.cpu()})
    for device, there in ((None, nb.CPU()), ("gpu", GPU)):
        found = nb.load(path, device=device)
        assert all(t.device == there for t in found.values())
        assert (found["t"].numpy() == a.T).all()
        assert (found["x"].numpy() == a).all()
    with nb.default_device("gpu"):
        assert nb.load(path)["x"].device == GPU


# Indexing.


def test_indexing() -> None:
    a = values(4, 5)
    compare(lambda x: (x[1], x[:, 1:4:2], x[..., None], x[::-1]), a)
    compare(lambda x: (x[[2, 0]], x[np.array([1, 3]), [0, 4]]), a)
    compare(lambda x: (x[x > 0], nb.where(x > 0, x, 0.0)), a)
    compare(lambda x: x.at[[0, 2]].set([9.0] * 5), a)
    compare(lambda x: x.at[1, 2:4].add(np.ones(2, "float32")), a)
    compare(lambda x, i: (x[i], nb.gather(x, i)), a, np.array([3, 1]))
    with pytest.raises(IndexError):
        nb.constant(a, device="gpu")[[7]]

    def assigned(x: nb.Tensor) -> nb.Tensor:
        y = x * 1
        y[0] = np.zeros(5, "float32")
        y[1, 1] = 5
        return y

    compare(assigned, a)


# Random numbers.


def test_random_numbers_are_those_of_the_cpu() -> None:
    for draw in (
        lambda **kw: nb.uniform((3, 5), **kw),
        lambda **kw: nb.gaussian((3, 5), **kw),
        lambda **kw: nb.randint(0, 100, (7,), **kw),
        lambda **kw: nb.randn((4,), **kw),
    ):
        nb.manual_seed(5)
        want = draw().numpy()
        nb.manual_seed(5)
        got = draw(device="gpu")
        assert got.device == GPU
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
        nb.manual_seed(5)
        with nb.default_device("gpu"):
            got = draw()
        assert got.device == GPU
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    key = nb.random.key(9)
    compare(
        lambda k: (
            nb.random.split(k, 3),
            nb.random.fold_in(k, 7),
            nb.random.bernoulli(k, 0.3, (9,)),
            nb.random.permutation(k, 6),
        ),
        key.numpy(),
    )


def test_keys_of_compiled_functions() -> None:
    f = nb.compile(lambda x: x + nb.uniform((3,), device="gpu"))
    x = nb.zeros(3, device="gpu")
    nb.manual_seed(1)
    got = [f(x).numpy() for _ in range(3)]
    nb.manual_seed(1)
    want = [nb.uniform((3,)).numpy() for _ in range(3)]
    np.testing.assert_allclose(got, want, rtol=1e-6)
