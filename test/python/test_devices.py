"""Tensors on cards.  What is computed there is what the CPU computes.

The file runs itself again, in a process that has a card: the one of this
machine, else the simulated one, whose memory the CPU cannot touch."""

import copy
import ctypes
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nabla as nb

INSIDE = os.environ.get("NABLA_TEST_CARD")
SIM = Path(__file__).resolve().parents[2] / "build/test/libcuda_sim.so"

if not INSIDE:

    def settings() -> dict[str, str] | None:
        """The environment of a process that has a card."""
        ask = "import nabla as nb; raise SystemExit(len(nb.devices()) < 2)"
        if not subprocess.run([sys.executable, "-c", ask]).returncode:
            return {}
        sim = os.environ.get("NABLA_SIM_LIBRARY") or str(SIM)
        if not Path(sim).exists():
            return None
        names = ("CUDA_DRIVER", "NVRTC", "CUBLASLT")
        return {f"NABLA_{name}": sim for name in names}

    def test_all_of_it_on_a_card() -> None:
        card = settings()
        if card is None:
            pytest.skip(f"no card, and no simulated one: {SIM}")
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q"]
        made = subprocess.run(
            [*command, "-p", "no:cacheprovider", __file__],
            env=os.environ | card | {"NABLA_TEST_CARD": "1"},
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stdout[-6000:] + made.stderr[-2000:]

    def run(code: str, **environment: str) -> str:
        made = subprocess.run(
            [
                sys.executable,
                "-W",
                "always",
                "-c",
                "import nabla as nb\n" + code,
            ],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return made.stdout

    NOWHERE = {"NABLA_CUDA_DRIVER": "/nowhere/libcuda.so"}

    def test_without_a_driver() -> None:
        said = run(
            "print(nb.devices())\n"
            "try: nb.ones(2).cuda()\n"
            "except RuntimeError as e: print('error:', e)\n"
            "nb.synchronize(); nb.empty_cache(); nb.synchronize('cpu')\n"
            "print(nb.memory_stats('cpu'))\n"
            "for f in nb.synchronize, nb.memory_stats, nb.empty_cache:\n"
            "  try: f('gpu:1')\n"
            "  except RuntimeError as e: print('refused:', e)\n"
            "with nb.default_device('gpu'): print(nb.ones(2).device)\n",
            **NOWHERE,
        )
        assert "[Device(type=cpu,id=0)]" in said
        assert "{'used': 0, 'most': 0, 'kept': 0, 'all': 0}" in said
        absent = "refused: Device(type=gpu,id=1) is not present: "
        assert said.count(absent) == 3
        assert "error: Device(type=gpu,id=0) is not present: " in said
        assert said.count("/nowhere/libcuda.so") >= 1
        assert said.count("RuntimeWarning") == 1
        assert said.endswith("Device(type=cpu,id=0)\n")

    def test_import_opens_no_driver() -> None:
        said = run(
            "import numpy as np\n"
            "nb.ones(3).numpy(); nb.constant([1.0]); nb.uniform((2,)).numpy()\n"
            "with open('/proc/self/maps') as f: print('cuda' in f.read())\n",
        )
        assert said == "False\n"

    def test_default_of_the_process_warns_once() -> None:
        said = run(
            "print(nb.zeros(2).device, nb.ones(2).device)\n",
            NABLA_DEFAULT_DEVICE="gpu",
            **NOWHERE,
        )
        assert said.count("RuntimeWarning") == 1
        assert said.endswith("Device(type=cpu,id=0) Device(type=cpu,id=0)\n")

    SIMULATED = {
        "NABLA_CUDA_DRIVER": os.environ.get("NABLA_SIM_LIBRARY") or str(SIM),
        "NABLA_NVRTC": os.environ.get("NABLA_SIM_LIBRARY") or str(SIM),
    }
    simulated = pytest.mark.skipif(
        not Path(SIMULATED["NABLA_NVRTC"]).exists(), reason="no simulated card"
    )

    # Says what goes wrong on the card, and that the CPU computes all the same.
    TRY = """
import numpy as np
def attempt(f):
    try: print("done:", f())
    except Exception as e: print(type(e).__name__ + ":", e)
    print("cpu:", (nb.ones(3) * 2).sum().item())
"""

    @simulated
    def test_an_old_driver() -> None:
        said = run(
            TRY + "attempt(lambda: nb.ones(2).cuda())",
            **SIMULATED | {"NABLA_SIM_VERSION": "11080"},
        )
        assert "RuntimeError: Device(type=gpu,id=0) is not present: " in said
        assert "CUDA 11.8" in said and said.endswith("cpu: 6.0\n")

    @simulated
    def test_without_nvrtc() -> None:
        said = run(
            TRY + "x = nb.ones(2).cuda()\n"
            "attempt(lambda: x.cpu().tolist())\n"
            "attempt(lambda: nb.exp(x).numpy())\n",
            **SIMULATED
            | {"NABLA_NVRTC": "none", "NABLA_CACHE_DIR": "/nowhere"},
        )
        assert said.startswith("done: [1.0, 1.0]\ncpu: 6.0\nRuntimeError: ")
        assert "NVRTC is needed, but NABLA_NVRTC is none" in said
        assert said.endswith("cpu: 6.0\n")

    @simulated
    def test_a_full_card() -> None:
        said = run(
            TRY + "kept = []\n"
            "def fill():\n"
            "    while True:\n"
            "        x = nb.arange(1000000.0, device='gpu') + len(kept)\n"
            "        kept.append(x.realize())\n"
            "attempt(fill)\n"
            "n = len(kept)\n"
            "assert n > 10 and kept[-1][0].item() == n - 1\n"
            "kept.clear()\n"
            "attempt(lambda: nb.arange(9.0, device='gpu').sum().item())\n",
            **SIMULATED | {"NABLA_SIM_MEMORY": str(1 << 26)},
        )
        assert said.startswith("MemoryError: out of memory on GPU 0: ")
        assert "blocks" in said and "; the largest: " in said
        assert said.endswith("cpu: 6.0\ndone: 36.0\ncpu: 6.0\n")

    @simulated
    def test_a_capsule_of_another_device() -> None:
        said = run(
            TRY + "class P:\n"
            "    def __init__(self, d): self.d = d\n"
            "    def __dlpack_device__(self): return self.d\n"
            "    def __dlpack__(self, **how): return 1\n"
            "attempt(lambda: nb.from_dlpack(P((2, 7))))\n"
            "attempt(lambda: nb.from_dlpack(P((10, 0))))\n"
            "import ctypes\n"
            "c = nb.ones(4).__dlpack__()\n"
            "get = ctypes.pythonapi.PyCapsule_GetPointer\n"
            "get.restype = ctypes.c_void_p\n"
            "get.argtypes = [ctypes.py_object, ctypes.c_char_p]\n"
            "at = get(c, b'dltensor') + 8\n"
            "ctypes.c_int32.from_address(at).value = 2\n"
            "attempt(lambda: nb.from_dlpack(c))\n",
            **SIMULATED,
        )
        lines = said.splitlines()
        assert lines[0].startswith("RuntimeError: ") and "(2, 7)" in lines[0]
        assert lines[2].startswith("RuntimeError: ") and "(10, 0)" in lines[2]
        assert lines[4].startswith("ValueError: ")
        assert "is not memory of gpu:0" in lines[4]
        assert lines[1::2] == ["cpu: 6.0"] * 3


if INSIDE:
    GPU = nb.Accelerator()
    RNG = np.random.default_rng(0)

    def values(*shape: int, dtype: str = "float32") -> Any:
        return RNG.normal(size=shape).astype(dtype)

    def compare(
        f: Callable[..., Any], *args: Any, tolerance: float = 1e-5
    ) -> None:
        """f on the CPU and on the card, where its results are."""
        want = f(*(nb.constant(a) for a in args))
        got = f(*(nb.constant(a, device="gpu") for a in args))
        want, got = map(nb.tree_leaves, (want, got))
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            assert b.device == GPU
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(
                b.numpy(), a.numpy(), rtol=tolerance, atol=tolerance
            )

    # Where tensors are.

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
        assert "to_device" not in nb.xpr(
            lambda a: a + nb.ones(2, device="gpu")
        )(x.cuda()[0])

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

    # Transforms.

    def loss(w: nb.Tensor, x: nb.Tensor) -> nb.Tensor:
        return nb.sum(nb.tanh(x @ w) ** 2) / 3 + nb.logsumexp(w)

    W, X = values(4, 3), values(5, 4)

    def test_derivatives() -> None:
        compare(nb.grad(loss, argnums=(0, 1)), W, X)
        compare(nb.value_and_grad(loss), W, X)
        compare(lambda w, x: nb.jvp(lambda v: loss(v, x), (w,), (w * 2,)), W, X)
        compare(lambda w: nb.jacrev(lambda v: nb.sin(v @ v.T))(w), W)
        compare(lambda w: nb.jacfwd(lambda v: nb.sin(v @ v.T))(w), W)
        compare(lambda v: nb.hessian(lambda u: nb.sum(u**3))(v), values(4))
        compare(nb.grad(nb.checkpoint(loss)), W, X)

    def test_gradients_go_back_to_where_their_inputs_are() -> None:
        def f(w: nb.Tensor) -> nb.Tensor:
            return nb.sum(w.cuda() * nb.constant(W, device="gpu")).cpu()

        w = nb.constant(W)
        g = nb.grad(f)(w)
        assert g.device == nb.CPU()
        np.testing.assert_allclose(g.numpy(), W, rtol=1e-6)

    def test_derivatives_that_are_numbers() -> None:
        x = np.float32(2)
        compare(nb.grad(lambda v: v), x)
        compare(nb.grad(lambda v: nb.sum(v * 0 + 1)), x)
        compare(lambda v: nb.vjp(lambda u: u > 1, v)[1](v > 1), x)
        compare(lambda v: nb.jvp(lambda u: nb.sign(u), (v,), (v,)), x)

    def test_backward() -> None:
        w = nb.constant(W, device="gpu", requires_grad=True)
        loss(w, nb.constant(X, device="gpu")).backward()
        assert w.grad is not None and w.grad.device == GPU
        want = nb.grad(loss)(nb.constant(W), nb.constant(X))
        np.testing.assert_allclose(w.grad.numpy(), want.numpy(), rtol=1e-4)
        w -= 0.1 * w.grad
        assert w.device == GPU and w.is_leaf

    def test_truths_are_transposed() -> None:
        x = np.random.default_rng(3).integers(0, 2, (65, 130)).astype(bool)
        y = nb.logical_not(nb.constant(x, device="gpu").T)
        np.testing.assert_array_equal(y.numpy(), ~x.T)

    def test_long_integers_are_rounded_once() -> None:
        x = [2**62 + 2**54 + 1, -(2**62) - 2**54 - 1, 2**62 + 2**54]
        for dtype in ("int64", "uint64"):
            some = np.array(x).astype(dtype)
            y = nb.constant(some, device="gpu").astype(nb.bfloat16)
            want = nb.constant(some, device="cpu").astype(nb.bfloat16)
            assert y.astype(nb.float64).numpy()[0] == 2.0**62 + 2.0**55
            np.testing.assert_array_equal(
                y.astype(nb.float64).numpy(), want.astype(nb.float64).numpy()
            )

    def test_sums_are_as_wide_as_their_dtype() -> None:
        x = np.full((3, 70), 2**31 - 1, np.int32)
        y = nb.sum(nb.constant(x, device="gpu"), 1)
        np.testing.assert_array_equal(y.numpy(), [70 * (2**31 - 1)] * 3)

    def test_vmap() -> None:
        compare(
            nb.vmap(lambda x, w: nb.softmax(x @ w), in_axes=(0, None)), X, W
        )
        compare(nb.vmap(nb.grad(loss), in_axes=(None, 0)), W, values(3, 5, 4))

    def test_compile() -> None:
        f = nb.compile(
            lambda w, x: nb.relu(x @ w) + nb.ones(3, device=x.device)
        )
        compare(f, W, X)
        compare(f, W, X)
        assert f.stats.misses == 2 and f.stats.hits == 2
        compare(nb.compile(nb.value_and_grad(loss)), W, X)

    @pytest.mark.filterwarnings("error")
    def test_steps_of_an_optimiser() -> None:
        def update(p: nb.Tensor, s: dict[str, Any]) -> nb.Tensor:
            return p - 0.1 * s["m"] / (s["step"] + 1)

        f = nb.compile(update)
        p = nb.ones(3, device="gpu")
        for k in range(4):
            got = f(p, {"m": p, "v": p, "step": k})
            want = update(nb.ones(3), {"m": nb.ones(3), "step": k})
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
        assert (f.stats.misses, f.stats.hits) == (1, 3)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_layers_of_a_transformer(dtype: str) -> None:
        """Products with a bias, a gelu, its slope, batches and a norm."""

        def loss(w: list[nb.Tensor], x: nb.Tensor) -> nb.Tensor:
            a, b, c, d = (v.cast(dtype) for v in w)
            x = x.cast(dtype)
            q = (x @ a + b).reshape(2, 4, 2, 8).permute(0, 2, 1, 3)
            x = x + (q @ q.mT @ q / 64).permute(0, 2, 1, 3).reshape(2, 4, 16)
            h = nb.gelu(x @ c + d, "tanh") @ c.mT
            h = (x + h).cast("float32")
            return nb.mean(nb.square(h - nb.mean(h, -1, keepdims=True)))

        def step(w: list[nb.Tensor], x: nb.Tensor) -> Any:
            return nb.value_and_grad(lambda w: loss(w, x))(w)

        shapes = (16, 16), (16,), (16, 24), (24,)
        w = [0.3 * values(*s) for s in shapes]
        compare(
            lambda x, *w: nb.compile(step)(list(w), x),
            values(2, 4, 16),
            *w,
            tolerance=1e-4 if dtype == "float32" else 0.1,
        )

    def test_loops_and_branches() -> None:
        def running(x: nb.Tensor) -> Any:
            return nb.scan(lambda c, a: (c * 0.5 + a, nb.sin(c)), x[0], x)

        compare(running, X)
        compare(nb.grad(lambda x: nb.sum(running(x)[1])), X)
        compare(nb.compile(running), X)
        compare(
            lambda x: nb.cond(
                nb.sum(x) > 0, lambda v: v + 1, lambda v: v * 2, x
            ),
            X,
        )
        compare(
            lambda x: nb.while_loop(
                lambda v: nb.sum(v * v) < 100, lambda v: v * 1.5, x
            ),
            X,
        )
        compare(lambda x: nb.fori_loop(0, 4, lambda i, v: v * 0.5 + 1, x), X)

    def test_arrays_within_loops() -> None:
        a = np.arange(4, dtype="float32")

        def step(c: nb.Tensor, x: nb.Tensor) -> Any:
            y = x * a + c[[3, 2, 1, 0]]
            return y.at[[0, 1]].set([1.0, 2.0]), nb.ones(2) + y[:2]

        def run(x: nb.Tensor) -> Any:
            with nb.default_device(x.device):
                return nb.scan(step, x[0], x)

        compare(run, X)
        compare(nb.compile(run), X)
        compare(nb.vmap(run), values(2, 5, 4))

    # Numbers: kernels are given those that nobody else wants there.

    def copies(f: Callable[[], nb.Tensor]) -> int | None:
        """To the simulated card, by f; None where the card is a real one."""
        library = os.environ.get("NABLA_CUDA_DRIVER")
        if not library:
            f().realize()
            return None
        count = ctypes.CDLL(library).nabla_sim_count
        count.restype = ctypes.c_int64
        before: int = count(b"cuMemcpyHtoDAsync_v2")
        f().realize()
        after: int = count(b"cuMemcpyHtoDAsync_v2")
        return after - before

    @pytest.mark.parametrize(
        "make",
        [
            lambda: nb.constant(3.0, device=GPU),
            lambda: nb.Tensor(3.0, device=GPU),
            lambda: nb.full((), 3.0, device=GPU),
            lambda: nb.gpu(nb.constant(3.0)),
            lambda: nb.constant(np.float32(3), device=GPU),
            lambda: np.float32(3),
            lambda: np.array(3, "float32"),
            lambda: nb.constant(1.0) * 2 + 1,
            lambda: nb.full((4,), 3.0, device=GPU),
            lambda: 3.0,
        ],
    )
    def test_a_number_is_not_copied(make: Any) -> None:
        x = nb.constant(X, device=GPU)
        many = [nb.constant(k, device=GPU) for k in (2.0, 4.0, 7.0)]
        for f, want in (
            (lambda: x * make(), X * 3),
            (lambda: make() - x, 3 - X),
            (lambda: (x + make()) * make() - make(), (X + 3) * 3 - 3),
            (lambda: nb.sum(x * make(), axis=0), X.sum(0) * 3),
        ):
            for _ in range(3):
                assert copies(f) in (0, None)
                np.testing.assert_allclose(f().numpy(), want, rtol=1e-5)
                assert f().device == GPU
        got = [(x * k).numpy() for k in many]  # the same program
        for y, k in zip(got, (2, 4, 7), strict=True):
            np.testing.assert_allclose(y, X * np.float32(k))

    def test_a_number_on_a_card_has_memory_once_asked_for() -> None:
        x = nb.constant(X, device=GPU)
        s = nb.constant(3.0, device=GPU)
        for _ in range(3):
            y = x * s  # s is held: others will want it, too
            np.testing.assert_allclose(y.numpy(), X * 3)
        assert copies(lambda: x - s) in (0, None)
        assert s.device == GPU and s.item() == 3
        assert s.__cuda_array_interface__["shape"] == ()
        t = nb.constant(5.0, device=GPU)
        assert nb.cpu(t).item() == 5 and (t + t).item() == 10
        a = nb.Tensor(2.0, device=GPU, requires_grad=True)
        nb.sum(x * a).backward()
        np.testing.assert_allclose(a.grad.numpy(), X.sum(), rtol=1e-5)
        assert nb.grad(lambda s: nb.sum(x * s))(s).device == GPU

    def test_a_number_that_is_used_in_both_ways() -> None:
        x, s = nb.constant(X, device=GPU), nb.constant(3.0)
        y = x * s + nb.gpu(s)
        np.testing.assert_allclose(y.numpy(), X * 3 + 3, rtol=1e-6)
        np.testing.assert_allclose(
            (x.at[0].set(nb.gpu(s)) @ nb.gpu(s).broadcast_to((4, 2))).numpy(),
            np.concatenate([0 * X[:1] + 3, X[1:]]) @ np.full((4, 2), 3.0),
            rtol=1e-5,
        )

    # A move, inside a body, of what it closes over is made before it runs.

    def brings_in_scan(x: Any, c: Any) -> Any:
        def turn(h: Any, a: Any) -> Any:
            return h * nb.to_device(c * 2 + 1, x.device) + a, ()

        return nb.scan(turn, x[0], x)[0]

    def brings_in_nested_loops(x: Any, c: Any) -> Any:
        def inner(i: Any, h: Any) -> Any:
            return h * 0.5 + nb.to_device(c, x.device)

        def turn(h: Any, a: Any) -> Any:
            return nb.fori_loop(0, 2, inner, h), ()

        return nb.scan(turn, x[0], x)[0]

    def brings_in_while(x: Any, c: Any) -> Any:
        return nb.while_loop(
            lambda h: nb.sum(h) < nb.sum(nb.to_device(c, x.device)) + 50,
            lambda h: nb.abs(h) + nb.to_device(c, x.device) ** 2 + 1,
            x[0],
        )

    def brings_in_cond(x: Any, c: Any) -> Any:
        return nb.cond(
            nb.sum(x) > 0,
            lambda h: h + nb.to_device(c, x.device),
            lambda h: h * nb.to_device(c, x.device),
            x[0],
        )

    def brings_in_checkpoint(x: Any, c: Any) -> Any:
        return nb.checkpoint(lambda h: h * nb.to_device(c, x.device))(x[0])

    @pytest.mark.parametrize(
        "f",
        [
            brings_in_scan,
            brings_in_nested_loops,
            brings_in_while,
            brings_in_cond,
            brings_in_checkpoint,
        ],
    )
    def test_what_a_body_brings_from_another_device(f: Any) -> None:
        def loss(x: Any, c: Any) -> Any:
            return nb.sum(nb.sin(f(x, c)))

        def lanes(x: Any, c: Any) -> Any:
            return nb.vmap(f, in_axes=(None, 0))(x, nb.stack([c, -c]))

        def slopes(x: Any, c: Any) -> Any:
            return nb.grad(loss, argnums=(0, 1))(x, c)

        x, c = nb.constant(X), nb.constant(values(4))
        for g in (f, lanes, slopes, nb.compile(f)):
            want = nb.tree_leaves(g(x, c))
            for there in ((x.gpu(), c), (x, c.gpu())):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # compile: op by op
                    got = nb.tree_leaves(g(*there))
                at = there if g is slopes else [there[0]]
                assert [y.device for y in got] == [y.device for y in at]
                for a, b in zip(want, got, strict=True):
                    np.testing.assert_allclose(
                        b.numpy(), a.numpy(), rtol=1e-5, atol=1e-5
                    )

    def test_what_a_body_brings_moves_once() -> None:
        x, c = nb.constant(X).gpu(), nb.constant(values(4))
        said = str(nb.trace(lambda x: brings_in_scan(x, c), x))
        assert said.count("to_device") == 1
        assert said.index("to_device") < said.index("scan")

    def test_what_a_body_cannot_bring_is_told() -> None:
        x, c = nb.constant(X).gpu(), nb.constant(values(4))
        with pytest.raises(ValueError, match="add: .* the same device"):
            nb.scan(lambda h, a: (h + c, ()), x[0], x)
        with pytest.raises(ValueError, match="scan: .* the same device"):
            nb.scan(lambda h, a: (nb.gpu(nb.cpu(h) + c), ()), x[0], x)

    def test_rows_of_a_loop_may_begin_anywhere() -> None:
        """Rows of three are not where vectors are; a carry without axes begins
        as a number."""

        @nb.compile(fullgraph=True)
        def run(x: nb.Tensor, p: nb.Tensor) -> Any:
            def step(c: nb.Tensor, a: nb.Tensor) -> Any:
                g = nb.grad(lambda p: nb.sum(a[:2] * p[1:] * p[:1]))(p)
                return c + nb.sum(a), (g, nb.sin(a * p))

            return nb.scan(step, nb.zeros((), device=x.device), x)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compare(run, values(5, 3), values(3))

    @pytest.mark.parametrize("n", [1, 7, 2049])
    @pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
    def test_orders(n: int, dtype: str) -> None:
        x = values(3, n) * 5
        x[:, ::7] = np.nan if "f" in dtype else 3
        x[:, 1::5] = -0.0
        x[:, 2::11] = np.inf if "f" in dtype else -4
        x = x.astype(dtype)
        compare(lambda x: nb.argsort(x, axis=1), x)
        compare(lambda x: nb.argsort(x, axis=1, descending=True), x)
        compare(lambda x: nb.argsort(x.T, axis=0), x)
        compare(lambda x: (nb.argmax(x, axis=1), nb.argmin(x, axis=0)), x)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
    def test_placing(dtype: str) -> None:
        x = (values(50, 24) * 5).astype(dtype)
        u = (values(6, 70, 24) * 5).astype(dtype)
        i = RNG.integers(-60, 60, (6, 70))
        for how in ("add", "set", "min", "max"):
            compare(
                lambda x, u, i, how=how: getattr(x.at[i], how)(u), x, u, i
            )
        compare(lambda x, u, i: x.at[i].mul(u // 4), x, u, i)

    def test_gradients_of_picking() -> None:
        x, i = values(50, 24), RNG.integers(0, 50, 3000)
        compare(nb.grad(lambda x, i: (nb.gather(x, i) ** 2).sum()), x, i)

    @pytest.mark.parametrize("shape", [(5000,), (3, 40), (9, 2100, 2)])
    def test_running_totals(shape: tuple[int, ...]) -> None:
        axis = min(1, len(shape) - 1)
        x = RNG.uniform(0.9, 1.1, shape).astype("float32")
        for how in ({}, {"exclusive": True}, {"reverse": True}):
            compare(
                lambda x, how=how: (
                    nb.cumsum(x, axis=axis, **how),
                    nb.cumsum((x * 9).astype("int8"), axis=axis, **how),
                ),
                x,
                tolerance=1e-4,
            )
        compare(lambda x: nb.cumprod(x, axis=axis), x, tolerance=1e-3)
        compare(
            nb.grad(lambda x: nb.cumprod(x, axis=axis).mean()),
            x,
            tolerance=1e-2,
        )

    def near(found: Any, want: Any, a: np.ndarray) -> None:
        """To rounding errors of a factorisation of a."""
        eps = np.finfo(a.dtype).eps * max(a.shape[-2:])
        found = np.asarray(found, np.float64)
        scale = np.abs(np.asarray(want, np.float64)).max(initial=0.0) + 1.0
        assert np.abs(found - want).max(initial=0.0) < 20 * eps * scale

    def wide(*x: nb.Tensor) -> list[np.ndarray]:
        assert all(t.device == GPU for t in x)
        return [t.numpy().astype(np.float64) for t in x]

    SQUARES = [(1, 1), (3, 5, 5), (2, 33, 33), (70, 70)]
    DTYPES = [np.float32, np.float64]

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", SQUARES)
    def test_equations(shape: tuple[int, ...], dtype: Any) -> None:
        rng = np.random.default_rng(3)
        n = shape[-1]
        a = rng.normal(size=shape).astype(dtype) + n * np.eye(n, dtype=dtype)
        b = rng.normal(size=(n, 40)).astype(dtype)
        x, y = (nb.asarray(t, device=GPU) for t in (a, b))
        near(a @ wide(nb.linalg.solve(x, y))[0], b + 0 * a[..., :1], a)
        near(a @ wide(nb.linalg.inv(x))[0], np.eye(n) + 0 * a, a)
        sign, size = wide(*nb.linalg.slogdet(x.mT))
        want = np.linalg.slogdet(a.astype(np.float64))
        near(sign, want[0], a)
        near(size, want[1], a)
        h = a @ a.swapaxes(-1, -2)
        for upper in (False, True):
            t = nb.asarray(h, device=GPU)
            (lower,) = wide(nb.linalg.cholesky(t, upper=upper))
            if upper:
                lower = lower.swapaxes(-1, -2)
            assert (np.triu(lower, 1) == 0).all()
            near(lower @ lower.swapaxes(-1, -2), h, a)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", [*SQUARES, (2, 9, 4), (4, 37), (80, 3)])
    def test_factors(shape: tuple[int, ...], dtype: Any) -> None:
        a = np.random.default_rng(4).normal(size=shape).astype(dtype)
        m, n = shape[-2:]
        x = nb.asarray(a.swapaxes(-1, -2).copy(), device=GPU).mT
        for mode in ("reduced", "complete"):
            q, r = wide(*nb.linalg.qr(x, mode=mode))
            near(q @ r, a, a)
            near(q.swapaxes(-1, -2) @ q, np.eye(q.shape[-1]), a)
            assert (np.tril(r, -1) == 0).all()
        for full in (False, True):
            u, s, v = wide(*nb.linalg.svd(x, full_matrices=full))
            k = min(m, n)
            near((u[..., :k] * s[..., None, :]) @ v[..., :k, :], a, a)
            near(u.swapaxes(-1, -2) @ u, np.eye(u.shape[-1]), a)
            near(v @ v.swapaxes(-1, -2), np.eye(v.shape[-2]), a)
            want = np.linalg.svd(a.astype(np.float64), compute_uv=False)
            near(s, want, a)
        want = np.linalg.pinv(a.astype(np.float64))
        near(wide(nb.linalg.pinv(x))[0] @ a @ want, want, a)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", SQUARES)
    def test_eigenvalues(shape: tuple[int, ...], dtype: Any) -> None:
        a = np.random.default_rng(5).normal(size=shape).astype(dtype)
        a = a + a.swapaxes(-1, -2)
        w, v = wide(*nb.linalg.eigh(nb.asarray(a, device=GPU)))
        near((v * w[..., None, :]) @ v.swapaxes(-1, -2), a, a)
        near(v.swapaxes(-1, -2) @ v, np.eye(shape[-1]), a)
        near(w, np.linalg.eigvalsh(a.astype(np.float64)), a)

    def test_matrices_without_factors() -> None:
        nan = float("nan")
        for bad in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, nan]]):
            x = nb.asarray(bad, device=GPU)
            assert nb.isnan(nb.linalg.cholesky(x)).all().item()
        for part in (*nb.linalg.eigh(x), *nb.linalg.svd(x)):
            assert nb.isnan(part).all().item()
        # The others of the batch are as they would be alone.
        both = nb.stack([x, nb.eye(2, device=GPU)])
        assert nb.linalg.eigvalsh(both).tolist()[1] == [1.0, 1.0]
        zero = nb.zeros((2, 3, 70), device=GPU)
        u, s, v = wide(*nb.linalg.svd(zero, full_matrices=False))
        assert (s == 0).all() and (v @ v.swapaxes(-1, -2) == np.eye(3)).all()
        assert (wide(nb.linalg.pinv(zero))[0] == 0).all()
        assert wide(nb.linalg.det(nb.ones((3, 3), device=GPU)))[0] == 0

    def test_matrices_without_elements() -> None:
        x = nb.zeros((2, 0, 0), device=GPU)
        assert nb.linalg.det(x).tolist() == [1.0, 1.0]
        for f in (nb.linalg.cholesky, nb.linalg.inv, nb.linalg.eigvalsh):
            assert f(x).numpy().size == 0
        q, r = nb.linalg.qr(nb.zeros((3, 0), device=GPU), mode="complete")
        assert (q.numpy() == np.eye(3)).all() and r.shape == (3, 0)
        u, s, v = nb.linalg.svd(nb.zeros((0, 2), device=GPU))
        assert u.shape == (0, 0) and s.shape == (0,)
        assert (np.abs(v.numpy()) == np.eye(2)).all()

    def test_factors_are_the_same_again() -> None:
        a = np.random.default_rng(6).normal(size=(2, 21, 21))
        x = nb.asarray(a, device=GPU)
        linalg = nb.linalg
        for f in (linalg.qr, linalg.eigh, linalg.svd, linalg.slogdet):
            first, again = f(x), f(x + 0.0)
            for p, q in zip(first, again, strict=True):
                assert p.numpy().tobytes() == q.numpy().tobytes()

    def test_arrays_of_numpy_pick() -> None:
        a = values(4, 5)
        some = np.array([True, False, True, False])
        compare(lambda x: (x[some], x[np.array(False)], x[:, [True] * 5]), a)
        compare(lambda x: x.at[some].set(1.0), a)
        compare(lambda x: x.at[some].add(np.ones(5, "float32")), a)
        compare(lambda x: (nb.unique_values(x > 0), *nb.nonzero(x > 0)), a)

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
        after = nb.memory_stats(GPU)
        assert after["used"] < before["used"] + 4096  # programs keep some
        assert after["kept"] >= 1200000
        nb.empty_cache()
        assert nb.memory_stats()["kept"] < after["kept"]
        assert nb.memory_stats("cpu")["all"] == 0
        for ask in (nb.synchronize, nb.memory_stats, nb.empty_cache):
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

    def test_attention_is_that_of_jax() -> None:
        import jax
        import jax.numpy as jnp

        b, t, h, d = 2, 37, 2, 16
        x, w = values(b, t, 3 * h * d), values(b, t, h * d)
        x = np.asarray(jnp.asarray(np.sin(7 * x), jnp.bfloat16), np.float32)

        def ours(x: nb.Tensor, w: nb.Tensor) -> nb.Tensor:
            x = x.cast(nb.bfloat16).reshape(b, t, 3, h, d)
            q, k, v = nb.unbind(x.permute(2, 0, 3, 1, 4))
            past = nb.tril(nb.ones((t, t), dtype=nb.bool))
            score = nb.where(past, q @ k.mT / d**0.5, -1e9)
            y = (nb.softmax(score) @ v).swap_axes(1, 2).reshape(b, t, h * d)
            return nb.sum(y.cast(nb.float32) * w)

        def theirs(x: Any, w: Any) -> Any:
            q, k, v = jnp.moveaxis(x.reshape(b, t, 3, h, d), 2, 0)
            y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            return jnp.sum(y.reshape(b, t, h * d) * w)

        with nb.default_device("gpu"):
            f = nb.compile(nb.grad(ours, argnums=(0, 1)))
            got = f(nb.constant(x), nb.constant(w))
            lowered = f.lower(nb.constant(x), nb.constant(w))
            assert "attention_back" in lowered.ir("attention")
        right = jax.grad(theirs, argnums=(0, 1))(x, w)
        for y, z in zip(got, right, strict=True):
            assert abs(y.numpy() - z).max() < 0.03 * abs(z).max()

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
        del x
        assert ((y * 2).numpy() == a * 2).all()

    def test_offers_that_are_refused() -> None:
        x = nb.constant(values(2, 3), device="gpu")
        at: int = x.__cuda_array_interface__["data"][0]  # type: ignore
        for wrong in (
            {"typestr": "<V2"},
            {"typestr": None},
            {"data": None},
            {"data": (64, False)},
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

    def test_arrays_go_with_tensors_into_compiled_functions() -> None:
        f = nb.compile(lambda a, x, b: a * x + b)
        a = values(3)
        x = nb.constant(a, device="gpu")
        for k in range(3):
            y = f(a + k, x, np.float32(k))
            assert y.device == GPU
            np.testing.assert_allclose(y.numpy(), (a + k) * a + k, rtol=1e-6)
        assert f(x, x, 1.0).device == GPU
        assert f(a, nb.constant(a), 1.0).device == nb.CPU()
        assert f(a, x, 1.0).device == GPU
        assert f(a, a, 1.0).device == nb.CPU()
        with nb.default_device("gpu"):  # where arrays without tensors go
            assert f(a, a, 1.0).device == GPU
            assert f(a, x, 1.0).device == GPU
        assert f(a, a, 1.0).device == nb.CPU()

    def test_listings_say_the_device() -> None:
        f = nb.explain(lambda x: nb.sum(nb.sin(x) * 2))
        there, here = f(nb.ones(4, device="gpu")), f(nb.ones(4))
        assert there.device == "gpu:0" and here.device == "cpu"
        assert "device       gpu:0" in str(there)
        assert "device" not in str(here)

    # Kernels of one's own.

    KERNELS = """#include <nabla/kernel.h>
    NB_MAP1(cube, x, x * x * x)
    NB_KERNEL(squares)
    {
        const nb_view *x = nb_in(a, 0);
        NB_ROWS(a, r)
        {
            const float *row = NB_ROW(float, x, r);
            float sum = 0;
            for (int64_t k = 0; k < nb_row_size(x); k++)
                sum += row[k] * row[k];
            *NB_ROW(float, nb_out(a, 0), r) = sum;
        }
    }
    NB_KERNEL(refuse) { *a->status = 42; }
    """

    @pytest.fixture(scope="module")
    def kernels(tmp_path_factory: Any) -> Path:
        folder: Path = tmp_path_factory.mktemp("kernels")
        for suffix in ("c", "cu"):
            (folder / f"all.{suffix}").write_text(KERNELS)
        return folder

    def made(folder: Path) -> tuple[Any, Any]:
        class Cube(nb.UnaryOperation):
            name = "cube"

            def kernel(self, x: Any) -> Any:
                return nb.call_custom_kernel("cube", folder, x, x.type)

            def _derivative(self, primal: Any, output: Any) -> Any:
                return 3 * primal * primal

        class Squares(nb.Operation):
            name = "squares"
            signature = "... n -> ..."

            def kernel(self, x: Any) -> Any:
                kind = nb.TensorType(x.shape[:-1], x.dtype)
                return nb.call_custom_kernel("squares", folder, x, kind)

            def vjp_rule(self, primals: Any, cts: Any, outputs: Any) -> Any:
                return 2 * cts[0][..., None] * primals[0]

        return Cube(), Squares()

    def test_kernels_of_ones_own(kernels: Path) -> None:
        cube, squares = made(kernels)

        def loss(x: Any) -> Any:
            return nb.sum(nb.sin(squares(cube(x))))

        def turn(c: Any, row: Any) -> Any:
            return c * 0.5 + squares(row), cube(c)

        def loop(x: Any) -> Any:
            return nb.scan(turn, nb.zeros_like(x[0, :, 0]), x)

        a = values(2, 3, 4) * 0.5
        compare(cube, a)
        compare(lambda x: squares(x.T), a)
        for f in (loss, nb.grad(loss), nb.vmap(nb.grad(loss)), loop):
            compare(f, a, tolerance=1e-4)
            compare(nb.compile(f), a, tolerance=1e-4)

    def test_kernels_on_a_mesh(kernels: Path) -> None:
        cube, squares = made(kernels)
        a = values(8, 3)
        x = nb.Tensor(a).shard(mesh(), nb.P("x", None))
        y = squares(cube(x))
        assert y.device == GPU
        np.testing.assert_allclose(y.numpy(), (a**6).sum(1), rtol=1e-4)

    def test_kernels_that_are_not_for_a_card(kernels: Path) -> None:
        call = nb.call_custom_kernel
        x = nb.ones(3, device="gpu")
        with pytest.raises(FileNotFoundError):
            call("cube", kernels / "none.cu", x, x.type)
        with pytest.raises(ValueError, match="no function for gpu:0"):
            call("cube", kernels / "all.c", x, x.type)
        with pytest.raises(ValueError, match="void absent"):
            call("absent", kernels, x, x.type)
        with pytest.raises(ValueError, match="not Device"):
            call("cube", kernels, x, x.type, device="cpu")
        made = call("cube", kernels, np.ones(3), x.type, device="gpu")
        assert made.device == GPU
        (kernels / "wrong.cu").write_text("NB_KERNEL(wrong) { oops; }")
        with pytest.raises(RuntimeError, match=r"wrong\.cu"):
            call("wrong", kernels / "wrong.cu", x, x.type)
        y = call("refuse", kernels / "all.cu", x, x.type)
        with pytest.raises(RuntimeError, match="refuse.*status 42"):
            y.numpy()
        assert call("cube", kernels, x, x.type).tolist() == [1.0, 1.0, 1.0]

    # Meshes whose devices are cards, here one for all of them.

    def mesh(n: int = 4) -> nb.DeviceMesh:
        return nb.DeviceMesh((n,), ("x",), device_refs=[GPU] * n)

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
