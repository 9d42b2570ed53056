"""Devices that are there, and devices that are not.

The tests in card/ are for a process that has one: each file of them is run in
a process of its own, on the card of this machine or on the simulated one, whose
memory the CPU cannot touch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from on_card import SIM, SIMULATED, settings

FILES = sorted((Path(__file__).parent / "card").glob("test_*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_on_a_card(file: Path) -> None:
    card = settings()
    if card is None:
        pytest.skip(f"no card, and no simulated one: {SIM}")
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q"]
    made = subprocess.run(
        [*command, "-p", "no:cacheprovider", file],
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
        "nb.reset_peak_memory(); print(nb.memory_stats('cpu'))\n"
        "for f in (nb.synchronize, nb.memory_stats, nb.empty_cache,\n"
        "          nb.reset_peak_memory):\n"
        "  try: f('gpu:1')\n"
        "  except RuntimeError as e: print('refused:', e)\n"
        "with nb.default_device('gpu'): print(nb.ones(2).device)\n",
        **NOWHERE,
    )
    assert "[Device(type=cpu,id=0)]" in said
    assert "{'used': 0, 'most': 0, 'kept': 0, 'all': " in said
    absent = "refused: Device(type=gpu,id=1) is not present: "
    assert said.count(absent) == 4
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
        **SIMULATED | {"NABLA_NVRTC": "none", "NABLA_CACHE_DIR": "/nowhere"},
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


@simulated
def test_arrays_of_cuda_without_elements_are_where_they_were() -> None:
    said = run(
        "class Offer:\n"
        "    def __init__(self, x, **other):\n"
        "        self.x = x\n"
        "        self.__cuda_array_interface__ = (\n"
        "            x.__cuda_array_interface__ | other)\n"
        "def there(offer):\n"
        "    print(nb.asarray(offer, copy=False).device.id, end=' ')\n"
        "for k in (0, 1):\n"
        "    x = nb.zeros((0, 4), device=f'gpu:{k}')\n"
        "    there(Offer(x))\n"
        "    print((x + Offer(x)).device.id, end=' ')\n"
        "    there(Offer(x, stream=None))\n"
        "    with nb.default_device(f'gpu:{k}'):\n"
        "        there(Offer(x, stream=None))\n",
        **SIMULATED | {"NABLA_SIM_CARDS": "2"},
    )
    assert said == "0 0 0 0 1 1 0 1 "
