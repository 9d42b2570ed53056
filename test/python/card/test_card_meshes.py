"""Meshes whose devices are cards, here one for all of them."""

import pickle
from typing import Any

import numpy as np
import pytest
from both import GPU, mesh

import nabla as nb


def test_device_refs_say_what_devices_are() -> None:
    m = mesh()
    assert m.device_refs == [GPU] * 4 and not m.is_distributed
    assert pickle.loads(pickle.dumps(m)).device_refs == m.device_refs
    with nb.default_device(GPU):
        assert nb.DeviceMesh((40,), ("x",)).device_refs == [GPU] * 40
    assert nb.DeviceMesh((40,), ("x",)).device_refs == [nb.CPU()] * 40
    with pytest.raises(RuntimeError, match="is not present"):
        nb.DeviceMesh((1,), ("x",), device_refs=[nb.Accelerator(77)])


def test_tensors_of_a_mesh_are_there() -> None:
    plain = np.arange(24.0, dtype=np.float32).reshape(6, 4)
    x = nb.Tensor(plain).shard(mesh(), nb.P("x", None))
    assert x.device == GPU and x.shards[1].device == GPU
    assert (x.numpy() == plain).all()
    assert "shard(3): [[" in repr(x)
    y = x.cpu()
    assert y.device == nb.CPU() and y.sharding is None
    assert (y.numpy() == plain).all()


def test_others_follow_to_a_mesh() -> None:
    plain = nb.arange(24.0).reshape(6, 4)
    x = plain.shard(mesh(), nb.P("x", None))
    y = (x + plain) * plain.to(GPU)
    assert y.device == GPU
    assert (y.numpy() == (2 * plain * plain).numpy()).all()


def test_programs_over_a_mesh_run_there() -> None:
    def loss(w: nb.Tensor, x: nb.Tensor) -> nb.Tensor:
        def turn(c: Any, row: Any) -> Any:
            return nb.tanh(c + row @ w), nb.sum(c)

        c, sums = nb.scan(turn, nb.zeros((2,)), x)
        return nb.sum(c) + nb.sum(sums)

    w, x = nb.uniform((4, 2)), nb.uniform((3, 4))
    m = mesh(2)
    split = w.shard(m, nb.P("x", None)), x.shard(m, nb.P(None, "x"))
    for f in (loss, nb.grad(loss), nb.compile(nb.grad(loss))):
        with nb.default_device(GPU):
            found = f(*split)
        want = f(w, x).numpy()
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-5)
        assert found.device == GPU
