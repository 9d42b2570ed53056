"""gpu.py - the tests of a card: which there are, and how they run at once.

Most of their time goes into compiling kernels, so a long test is shared by
several processes (NABLA_TEST_PART), as many run at a time as the machine has
cores, and what one has compiled the others find on disk.  Of the longest tests
each n-th case is taken (NABLA_TEST_EVERY): every op and every transform comes
by, not every pair of them, for n shares no factor with the number of cases of
an op; NABLA_TEST_ALL=1 takes all.  ONLY="WORD..." runs the tests of which the
name contains one of the words."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import IO, NamedTuple

FOLDER = Path("build/gpu")
LONGEST = 420  # seconds of a process


class Test(NamedTuple):
    name: str  # of the program, or of the file of Python
    parts: int = 1  # processes that share it
    every: int = 1  # n: each n-th case
    seconds: int = 30  # of a part, about: the longest begin first
    settings: dict[str, str] = {}


class Part(NamedTuple):
    test: Test
    number: int

    @property
    def title(self) -> str:
        t = self.test
        return f"{t.name} {self.number + 1}/{t.parts}" * (t.parts > 1) or t.name

    @property
    def command(self) -> list[str]:
        name = self.test.name
        if name.endswith(".py"):
            pytest = ["python", "-m", "pytest", "--tb=short"]
            return [*pytest, f"test/python/{name}"]
        return [name if "/" in name else f"build/test/{name}"]


class Result(NamedTuple):
    test: Test
    passed: int
    failed: int
    seconds: float


# Programs that look for a card by themselves.
OWN = [
    Test("tools/sanitize", 6, 1, 100),
    Test("test_cuda_ops", 8, 4, 10),
    Test("test_cuda_programs", 8, 4, 20),
    Test("test_cuda_forms", 2, 5, 20),
    Test("test_card_loops", seconds=120),
    Test("test_cuda_custom", seconds=55),
    Test("test_shard_card", seconds=90),
    Test("test_cuda_build", seconds=45),
    *(
        Test(f"test_{name}", seconds=35)
        for name in "attention blaslt cuda_same conv_card cuda_graph".split()
    ),
    Test("test_devices", seconds=25),
    Test("test_dnn", seconds=1),
]

# These fill the card: nothing else may run.
FILLING = [Test("test_cuda_card"), Test("test_cuda_bad")]

# Tests of the engine, with the card as their device.
THERE = [
    Test("test_transform", 16, 12, 20),
    Test("test_compile", 8, 5, 15),
    Test("test_dynamic", 8, 5, 20),
    Test("test_laws", 6, 1, 35),
    Test("test_points", 4, 2, 15),
    Test("test_control", 8, 11, 40),
    Test("test_custom_op", 6, 4, 60),
    Test("test_checkpoint", seconds=130),
    Test("test_random", seconds=110),
    *(
        Test(f"test_{name}", seconds=15)
        for name in "turns jacobian reduce pointwise sort conv index view "
        "contract linalg create newton".split()
    ),
]

# Laws of sharding, with all devices of a mesh on the card.
SHARDED = [
    Test("test_shard_ops", 8, 1, 10, {"NABLA_SHARD_CASES": "2"}),
    Test("test_shard_programs", 8, 1, 30, {"NABLA_SHARD_PROGRAMS": "60"}),
    Test("test_shard_cases", seconds=15),
    Test("test_shard_loops", seconds=10),
    Test("test_collective", seconds=60),
]

# Python's, with the card as the default device.
PYTHON = [
    Test("test_ops.py", 8, 11, 70),
    Test("test_dtypes.py", 4, 7, 20),
    Test("test_programs.py", 12, 5, 60),
    Test("test_properties.py", 4, 10, 50),
    Test("test_transforms.py", 6, 1, 65),
    Test("test_control.py", 6, 1, 70),
    Test("test_compile.py", 2, 1, 40),
    Test("test_dynamic.py", seconds=90),
    Test("test_custom.py", seconds=70),
    Test("test_index.py", seconds=30),
    Test("test_random.py", seconds=10),
    Test("test_tensor.py", seconds=10),
    Test("test_tree.py", seconds=5),
]


def further() -> list[Test]:
    """Programs of cards of which nothing is said above."""
    said = {t.name for t in OWN + FILLING}
    found = sorted(Path("build/test").glob("test_cuda_*"))
    return [Test(p.name) for p in found if p.is_file() and p.name not in said]


def all_tests() -> list[Test]:
    """But those that fill the card."""
    gpu = {"NABLA_TEST_DEVICE": "gpu"}
    mesh = {"NABLA_SHARD_CARDS": "1"}
    default = {"NABLA_DEFAULT_DEVICE": "gpu"}
    return [
        *OWN,
        *further(),
        *(t._replace(settings=t.settings | gpu) for t in THERE),
        *(t._replace(settings=t.settings | mesh) for t in SHARDED),
        *(t._replace(settings=t.settings | default) for t in PYTHON),
        Test("test_devices.py", seconds=95),
        Test("test_exchange.py", settings={"JAX_PLATFORMS": ""}, seconds=25),
    ]


def words() -> list[str]:
    return os.environ.get("ONLY", "").split()


def is_asked_for(name: str) -> bool:
    return not words() or any(w in name for w in words())


def words_of_nothing(*others: str) -> list[str]:
    """Those that no test has in its name, nor any of the others."""
    names = [*(t.name for t in FILLING + all_tests()), *others]
    return [w for w in words() if not any(w in name for name in names)]


def parts_of(tests: list[Test]) -> Iterator[Part]:
    """Of those that are asked for, the longest first."""
    asked = [t for t in tests if is_asked_for(t.name)]
    for t in sorted(asked, key=lambda t: -t.seconds):
        for k in range(t.parts):
            yield Part(t, k)


def environment(part: Part) -> dict[str, str]:
    test = part.test
    every = 1 if os.environ.get("NABLA_TEST_ALL") == "1" else test.every
    usual = {
        "NABLA_CACHE_DIR": str((FOLDER / "kernels").resolve()),
        "NABLA_CACHE_MIB": "8192",
        "NABLA_NUM_THREADS": "2",
        "JAX_PLATFORMS": "cpu",  # it would take the memory of the card
        "PYTHONPATH": os.pathsep.join(
            filter(None, ("build/python", os.environ.get("PYTHONPATH")))
        ),
        "NABLA_TEST_EVERY": str(every),
        "NABLA_TEST_PART": f"{part.number}/{test.parts}",
    }
    return os.environ | usual | test.settings


Counted = Callable[[str, bool], tuple[int, int]]


def counted_by_pytest(said: str, ok: bool) -> tuple[int, int]:
    """Its last line: "1 failed, 12 passed, 3 skipped in 4.56s"."""
    closing = said.strip().splitlines()[-1:] or [""]
    passed, failed, errors = (
        sum(map(int, re.findall(rf"(\d+) {word}", closing[0])))
        for word in ("passed", "failed", "error")
    )
    return passed, failed + errors or int(not ok)


def end(process: subprocess.Popen[bytes]) -> None:
    """It and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Runs:
    """Parts under way, and what came of those that have ended."""

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self.lock = Lock()
        self.begun = time.monotonic()
        self.now: dict[str, subprocess.Popen[bytes]] = {}
        self.results: list[Result] = []

    def say(self, *words: object) -> None:
        print(f"{time.monotonic() - self.begun:6.1f} s ", *words, flush=True)

    def begin(self, part: Part, to: IO[str]) -> subprocess.Popen[bytes]:
        """As the first of a group of processes."""
        with self.lock:
            self.say("     begins", part.title)
            self.now[part.title] = subprocess.Popen(
                part.command,
                stdout=to,
                stderr=subprocess.STDOUT,
                env=environment(part),
                start_new_session=True,
            )
            return self.now[part.title]

    def run(self, part: Part) -> None:
        begun = time.monotonic()
        log = FOLDER / f"{Path(part.test.name).name}.{part.number}.log"
        with log.open("w") as to:
            process = self.begin(part, to)
            try:
                status = process.wait(LONGEST)
            except subprocess.TimeoutExpired:
                end(process)
                process.wait()
                status = -1
        self.ended(part, status, log, time.monotonic() - begun)

    def cut_short(self, *_: object) -> None:
        """There is no more time: says what runs, and ends it."""
        self.say("cut short in", ", ".join(sorted(self.now)))
        for process in list(self.now.values()):
            end(process)
        os._exit(1)

    def ended(self, part: Part, status: int, log: Path, took: float) -> None:
        said = log.read_text(errors="replace")
        if part.test.name.endswith(".py"):
            # Status 5: this part has no case.
            passed, failed = counted_by_pytest(said, status in (0, 5))
        else:
            passed, failed = self.counted(said, status in (0, 77))
        with self.lock:
            del self.now[part.title]
            self.results.append(Result(part.test, passed, failed, took))
            if failed:
                print(said[-6000:])
            if status == -1:
                print(f"{part.title} did not end within {LONGEST} s")
            self.say(
                "FAIL " if failed else "ok   ",
                f"{part.title}: {passed} passed, {failed} failed, {took:.1f} s",
            )

    def summary(self) -> None:
        """By test: the seconds of all its parts, and those of the longest."""
        for test in dict.fromkeys(r.test.name for r in self.results):
            of = [r for r in self.results if r.test.name == test]
            print(
                f"{test:24}{sum(r.passed for r in of):7} passed"
                f"{sum(r.failed for r in of):5} failed"
                f"{sum(r.seconds for r in of):8.1f} s"
                f"{max(r.seconds for r in of):8.1f} s at most"
            )
        kernels = sum(1 for _ in (FOLDER / "kernels").glob("*.code"))
        self.say(f"{kernels} kernels in {FOLDER / 'kernels'}")


def run_all(counted: Counted) -> list[Result]:
    """All tests; what a program said is counted by the function."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    runs = Runs(counted)
    signal.signal(signal.SIGTERM, runs.cut_short)
    signal.signal(signal.SIGINT, runs.cut_short)
    for part in parts_of(FILLING):
        runs.run(part)
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        list(pool.map(runs.run, parts_of(all_tests())))
    runs.summary()
    return runs.results
