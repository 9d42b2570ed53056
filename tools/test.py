#!/usr/bin/env python3
"""test.py [PART...] - runs the parts of the test suite, by default all but the
long ones (asan, passes, gpu), and closes with how many checks passed and
failed.  A part goes on after a failure; the exit status tells whether there was
one."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gpu as card_tests

ROOT = Path(__file__).resolve().parent.parent
WORKERS = str(os.cpu_count() or 2)


class Count(NamedTuple):
    passed: int = 0
    failed: int = 0


def total(counts: list[Count]) -> Count:
    return Count(sum(c.passed for c in counts), sum(c.failed for c in counts))


def run(*command: str | Path, **environment: str) -> bool:
    """Runs a command with more environment; says whether it went well."""
    return not subprocess.run(command, env=os.environ | environment).returncode


def step(*command: str | Path, **environment: str) -> Count:
    """A command that is one check."""
    ok = run(*command, **environment)
    print("ok   " if ok else "FAIL ", *command)
    return Count(int(ok), int(not ok))


def output(*command: str) -> str:
    return subprocess.check_output(command, text=True).strip()


# C tests and Python tests, in one build or another.


OWN = re.compile(r"(.*\n)?(\d+) passed, (\d+) failed\s*$")


def counted(said: str, ok: bool) -> Count:
    """What a C test program counted, by cmocka or by itself in its last line;
    one that died is a failure."""
    passed, failed = (
        sum(map(int, re.findall(rf"\[  {word}  \] (?:\w+: )?(\d+) test", said)))
        for word in ("PASSED", "FAILED")
    )
    if own := OWN.search(said):
        passed, failed = int(own[2]), int(own[3])
    return Count(passed, failed or int(not ok))


def recorded(record: dict[str, str]) -> Count:
    """The same of one that Meson ran; shows its last two lines."""
    said = record.get("stdout", "")
    if own := OWN.search(said):
        print(f"{record['name']}: {own[0].strip()}")
    return counted(record.get("stderr", "") + said, record["result"] == "OK")


def c_tests(build: str) -> Count:
    log = ROOT / build / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    run("meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs")
    if not log.exists():
        return Count(0, 1)
    lines = log.read_text().splitlines()
    return total([recorded(json.loads(line)) for line in lines])


def tested(report: Path, ok: bool) -> Count:
    """What pytest has counted."""
    if not report.exists():
        return Count(0, 1)
    suite = next(xml.parse(report).iter("testsuite"))
    tests, skipped, failures, errors = (
        int(suite.get(key, 0))
        for key in ("tests", "skipped", "failures", "errors")
    )
    failed = failures + errors
    return Count(tests - failed - skipped, failed or int(not ok))


def python_tests(build: str, *options: str, **environment: str) -> Count:
    report = ROOT / build / "pytest.xml"
    report.unlink(missing_ok=True)
    ok = run(
        *("python", "-m", "pytest", "-n", WORKERS, f"--junitxml={report}"),
        *options,
        **environment,
    )
    return tested(report, ok)


def simulated_card(what: str) -> dict[str, str]:
    """The environment that has one; where none was built, that is said."""
    sim = ROOT / "build" / "test" / "libcuda_sim.so"
    if not sim.exists():
        print(f"no simulated card here: {what} ran on the CPU only")
        return {}
    return {"NABLA_CUDA_DRIVER": str(sim), "NABLA_NVRTC": str(sim)}


# Programs of several processes.


def mpirun(n: int, *command: str, **environment: str) -> tuple[str, bool]:
    """What n processes said, and whether all went well."""
    usual = {"NABLA_MPI": f"{ROOT}/build/libnabla_mpi.so"}
    usual["NABLA_TIMEOUT"] = "60"
    made = subprocess.run(
        ("timeout", "900", "tools/mpirun", str(n), *command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | usual | environment,
    )
    return made.stdout, made.returncode == 0


# Rank 1 alone does not let its memory be read.
ONE_APART = """
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || export NABLA_SHM=rings
exec build/test/test_mpi
"""


def mpi_test(n: int, way: str) -> Count:
    """The C test; way: how ranks reach each other, see src/comm/shm.h."""
    if way == "one apart":
        said, ok = mpirun(n, "sh", "-c", ONE_APART)
    else:
        said, ok = mpirun(n, "build/test/test_mpi", NABLA_SHM=way)
    found = re.search(r"rank 0 of \d+: (\d+) passed, (\d+) failed", said)
    passed, failed = map(int, found.groups()) if found else (0, 1)
    if not ok:
        print(said)
    reads = "memory of other ranks is read" in said
    print(
        f"test_mpi on {n} processes, {way}{', read in place' * reads}: "
        f"{passed} passed, {failed} failed"
    )
    return Count(passed, failed or int(not ok))


# Tests of sharding are programs of several processes too: every rank looks at
# what its devices have.  Of the long ones a part is run, unless the environment
# says how much.
RANKED = {
    "shard_ops": {"NABLA_SHARD_CASES": "100"},
    "shard_cases": {},
    "shard_programs": {"NABLA_SHARD_PROGRAMS": "500"},
    "reshard_run": {},
    "collective": {},
    "placed": {},
    "propagate": {},
    "explain": {},
    "autoshard": {},
}


def mpi_suite(n: int, name: str, **environment: str) -> Count:
    usual = {k: v for k, v in RANKED[name].items() if k not in os.environ}
    usual["NABLA_SHM"] = "all" if n == 2 else "reads"
    said, ok = mpirun(n, f"build/test/test_{name}", **usual | environment)
    own = re.search(r"^(\d+) passed, (\d+) failed$", said, flags=re.M)
    ranks = re.findall(r"\[  PASSED  \] (\d+) test", said)
    if own:
        passed, failed = map(int, own.groups())
    elif len(ranks) == n:  # of cmocka, which counts in each
        passed, failed = min(map(int, ranks)), 0
    else:
        passed, failed = 0, 1
    failed = failed or int(not ok)
    if failed:
        print(said)
    print(f"test_{name} on {n} processes: {passed} passed, {failed} failed")
    return Count(passed, failed)


# The same in Python; of the second kind are meshes of two devices, which four
# processes cannot share.
PYTHON_RANKED = {
    4: ("ranks", "explain", "sharding", "mesh"),
    2: ("collective", "reshard", "auto_shard"),
}


def mpi_python(n: int) -> Count:
    """Every process reports by itself; a check passes if it does in all."""
    folder = ROOT / "build" / "ranks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files = [
        f"test/python/test_{name}.py"
        for most, names in PYTHON_RANKED.items()
        for name in names
        if n <= most
    ]
    rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
    command = "exec python -m pytest --color=no --tb=short --junitxml="
    said, ok = mpirun(
        n,
        *("sh", "-c", f'{command}{folder}/{rank}.xml "$@"', "sh", *files),
        PYTHONPATH=f"{ROOT}/build/python",
        NABLA_MEETING=str(folder),
    )
    counts = [tested(folder / f"{r}.xml", ok) for r in range(n)]
    count = Count(min(c.passed for c in counts), max(c.failed for c in counts))
    if count.failed:
        print(said)
    print(f"Python on {n} processes: {count.passed} passed", end=", ")
    print(f"{count.failed} failed")
    return count


# Open MPI then does not end a program of which one has died, nor call that a
# failure.
LIVE_ON = {"OMPI_MCA_orte_enable_recovery": "1"}


def mpi_end(how: str, said_of_it: str, **environment: str) -> Count:
    """One of three processes leaves the others in a sum: they say which one, in
    what, and where, and the program ends."""
    said, ok = mpirun(3, "build/test/test_mpi", how, "1", **environment)
    if "memory of other ranks is not read" in said:
        print("left out here: one that", how)
        return Count()
    error = r"all_reduce f32\[100\] at model.py:7: device 1 \(rank 1\) "
    named = [
        bool(re.search(rf"rank {rank}: {error}{said_of_it}", said))
        for rank in (0, 2)
    ]
    right = all(named) and ok == bool(environment)
    print("ok   " if right else f"FAIL {said}", f"one that {how} is named")
    return Count(int(right), int(not right))


SIM = f"{ROOT}/build/test/libcuda_sim.so"
SIMULATED = {"NABLA_CUDA_DRIVER": SIM, "NABLA_NVRTC": SIM, "NABLA_NCCL": SIM}

# Ops over devices of two processes that share a card: few, for that is slow.
SHARED = {
    "NABLA_SHARD_CARDS": "1",
    "NABLA_SHARD_CASES": "1",
    "NABLA_TEST_EVERY": "40",
}


def mpi_cards(way: str, **environment: str) -> Count:
    """Devices of two processes that are simulated cards and talk that way."""
    said, ok = mpirun(
        2, "build/test/test_shard_card", way, **SIMULATED | environment
    )
    own = re.search(r"^(\d+) passed, (\d+) failed$", said, flags=re.M)
    passed, failed = map(int, own.groups()) if own and ok else (0, 1)
    if failed:
        print(said)
    print(f"cards of two processes, by {way}: {passed} passed, {failed} failed")
    return Count(passed, failed)


def mpi() -> Count:
    if not shutil.which("mpirun") or not Path("build/test/test_mpi").exists():
        print("no MPI here: left out")
        return Count()
    ended = "has failed: its process has come to its end"
    ways = ("all", "reads", "rings", "0", "one apart")
    return total(
        [mpi_test(n, way) for n in (2, 4) for way in ways]
        + [mpi_end("exits", ended)]
        + [mpi_end("sleeps", "did not come within 1 s")]
        + [mpi_end("dies", ended, NABLA_SHM="reads", **LIVE_ON)]
        + [mpi_suite(n, name) for name in RANKED for n in (2, 4)]
        + [mpi_suite(2, "collective", NABLA_SHM="0")]
        + [mpi_python(n) for n in (2, 4)]
        + [mpi_cards("mpi"), mpi_cards("nccl", NABLA_SIM_CARDS="4")]
        + [mpi_suite(2, "shard_ops", **SIMULATED | SHARED)]
    )


# Examples.


def briefly(example: Path) -> list[str | Path]:
    """An example with what makes it short."""
    out = Path("build/examples") / f"{example.stem}-{example.suffix[1:]}"
    few = {"gpt": ["--steps", "20"], "gpt2": TINY}.get(example.stem)
    return [example, *few, "--out", out] if few else [example]


TINY = (
    "--layers 1 --heads 2 --width 32 --context 16 --vocabulary 128 --batch 2 "
    "--accumulate 2 --steps 6 --save 3 --rate 1e-2 --warmup 2"
).split()


def learned(*command: str | Path) -> str:
    """What the small GPT said, without its speed and its folder; "" if its loss
    did not fall or a file is missing."""
    folder = Path(command[-1])
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": "build/python"},
    )
    losses = [float(x) for x in re.findall(r"\d  loss (\S+)", made.stdout)]
    files = [folder / "gpt.safetensors", folder / "loss.svg"]
    ok = not made.returncode and all(f.exists() for f in files)
    if not ok or not losses or losses[-1] > losses[0] - 0.5:
        print(made.stdout)
        return ""
    xml.parse(files[1])
    return re.sub(r" +\d+ tokens/s|wrote .*", "", made.stdout)


def spoken(*command: str | Path, **environment: str) -> str:
    """What a program says, quotes as in Python; "" if it fails."""
    made = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": "build/python"} | environment,
    )
    if made.returncode:
        print(made.stdout)
    return "" if made.returncode else made.stdout.replace('"', "'")


def command_of(example: Path) -> list[str]:
    """How it is run."""
    if example.suffix == ".py":
        return ["python", str(example)]
    return [str(Path("build") / example.with_suffix(""))]


def in_processes(example: Path, alone: str) -> Count:
    """An example over a mesh, in two and four processes: they say what the one
    says, but for shards that are elsewhere."""
    if not shutil.which("mpirun") or not Path("build/libnabla_mpi.so").exists():
        print(f"no MPI here: {example} ran in one process only")
        return Count()
    good = 0
    for n in (2, 4):
        said, ok = mpirun(n, *command_of(example), PYTHONPATH="build/python")
        said = said.replace('"', "'")
        same = said == alone or "in another process" in said
        print("ok   " if ok and same else f"FAIL {said}", example, "on", n)
        good += ok and same
    return Count(good, 2 - good)


def told(said: str) -> str:
    """What an example says, without the table of what it moves, which has the
    places in its source."""
    return re.sub(r"^(c\d+ |     |total ).*\n", "", said, flags=re.M)


def over_meshes(examples: list[Path]) -> Count:
    """Each in one process and in several; what C says Python says."""
    counts: list[Count] = []
    said: dict[str, str] = {}
    for example in examples:
        alone = spoken(*command_of(example))
        same = told(alone) == said.setdefault(example.stem, told(alone))
        ok = bool(alone) and same
        print("ok   " if ok else "FAIL ", example)
        counts += [Count(int(ok), int(not ok)), in_processes(example, alone)]
    return total(counts)


def gpt() -> Count:
    """It learns, and what C says Python says."""
    c = learned("build/examples/gpt", *briefly(Path("examples/gpt.c"))[1:])
    python = learned("python", *briefly(Path("examples/gpt.py")))
    ok = [bool(c), bool(python), c == python]
    print("ok   " if all(ok) else "FAIL ", "gpt: C, Python, the same:", *ok)
    return Count(sum(ok), 3 - sum(ok))


def losses(example: Path, *more: str | Path, **environment: str) -> list[float]:
    """Of the steps of a tiny GPT-2; none if it failed."""
    options = [*briefly(example)[1:], *more]
    said = spoken(*command_of(example), *options, **environment)
    return [float(x) for x in re.findall(r"  loss (\S+)", said)]


def close(a: list[float], b: list[float]) -> bool:
    """In bfloat16, where each device has its own order of sums."""
    return len(a) == len(b) > 0 and all(
        abs(x - y) < 5e-3 for x, y in zip(a, b, strict=True)
    )


GPT2 = Path("examples/gpt2.c"), Path("examples/gpt2.py")


def as_tokens(text: bytes) -> bytes:
    """Bytes as tokens of two bytes each, with llm.c's header of 256 words."""
    sign, version = 20240520, 1
    front = struct.pack("<3i", sign, version, len(text)).ljust(1024, b"\0")
    return front + struct.pack(f"<{len(text)}H", *text)


def gpt2_on_card(expected: list[float], **card: str) -> Count:
    ok = [close(losses(x, "--device", "gpu", **card), expected) for x in GPT2]
    print("ok   " if all(ok) else "FAIL ", "gpt2 on a card: C, Python:", *ok)
    return Count(sum(ok), 2 - sum(ok))


def gpt2() -> Count:
    """It learns; C, from tokens as llm.c writes them, Python, from text, and a
    card have the same losses; and so has what goes on from the file that the
    other one wrote."""
    file = Path("build/examples/tokens.bin")
    file.write_bytes(as_tokens(Path("examples/data/sonnets.txt").read_bytes()))
    c, python = losses(GPT2[0], "--data", file), losses(GPT2[1])
    half = "gpt2-3.safetensors"
    again = [
        losses(x, "--resume", str(briefly(y)[-1] / Path(half)))
        for x, y in (GPT2, GPT2[::-1])
    ]
    ok = [bool(c) and c[-1] < c[0] - 0.5, close(c, python)]
    ok += [close(x, c[3:]) for x in again]
    print("ok   " if all(ok) else "FAIL ", "gpt2: learns, same, resumed:", *ok)
    count = Count(sum(ok), len(ok) - sum(ok))
    card = simulated_card("gpt2")
    return total([count, gpt2_on_card(c, **card)]) if card else count


TABLES = "examples/showcase.py", "examples/tensor_parallel.py"


def quoted(page: str, *examples: str) -> Count:
    """The tables of collectives on a page are what examples print."""
    said = "".join(spoken("python", example) for example in examples)
    lines = re.sub(r"\S*/(\w+\.py:\d+)", r"\1", said).splitlines()
    table = re.compile(r"^    (c\d+ .*|     .*|total \d.*)$", re.M)
    missing = {*table.findall(Path(page).read_text())} - {*lines}
    print("FAIL " if missing else "ok   ", "tables of", page, *missing)
    return Count(int(not missing), len(missing))


# Sanitizers.


def complaints(folder: Path) -> Count:
    """Reads what the sanitizers wrote.  Of leaks, those count that have one of
    our functions among their callers: NumPy and JAX have some of their own."""
    found = []
    for log in sorted(folder.iterdir()):
        blocks = log.read_text().strip().split("\n\n")
        leaks = [b for b in blocks if " leak of " in b]
        ours = [b for b in leaks if re.search(r" \.\./(src|python/src)/", b)]
        found += ours if leaks else ["\n\n".join(blocks)]
    for report in found:
        print(report)
    print("FAIL " if found else "ok   ", "sanitizers in Python")
    return Count(int(not found), len(found))


def python_under_asan(build: str) -> Count:
    logs = ROOT / build / "sanitizer-logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    # What libraries opened later keep for each thread, libgomp's for ours, is
    # misread by GCC 12's leak sanitizer if it follows __tls_get_addr.
    options = f"detect_leaks=1:leak_check_at_exit=0:log_path={logs}/log"
    options += ":intercept_tls_get_addr=0"
    preload = [
        output("gcc", f"-print-file-name={library}")
        for library in ("libasan.so", "libstdc++.so")
    ]
    environment = {
        "LD_PRELOAD": " ".join(preload),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": f"{ROOT}/{build}/python",
        "ASAN_OPTIONS": options,
    }
    # Unwinding exactly finds our callers behind CPython's, but is slow.
    exact = {"ASAN_OPTIONS": options + ":fast_unwind_on_malloc=0"}
    return total(
        [python_tests(build, "-p", "tools.leaks", **environment)]
        + [
            step("python", "tools/leaks.py", *example, **environment | exact)
            for example in map(briefly, sorted(Path("examples").glob("*.py")))
        ]
        + [complaints(logs)]
    )


# The parts.


def check() -> Count:
    said = subprocess.run(["tools/check"], stdout=subprocess.PIPE, text=True)
    print(said.stdout, end="")
    closing = re.findall(r"(\d+) passed, (\d+) failed", said.stdout)[-1]
    return Count(*map(int, closing))


def without_passes(*ops: str) -> Count:
    """Compiled code against the reference with each pass of the compiler left
    out in turn, on some ops or on all."""
    names = output("build/test/test_passes", "names").split()
    return total(
        [
            step("build/test/test_compile", *op, NABLA_DISABLE=name)
            for name in names
            for op in [[op] for op in ops] or [[]]
        ]
    )


def with_threads(*numbers: str) -> Count:
    """Whether compiled code computes the same on that many threads."""
    return total(
        [step("build/test/test_compile", NABLA_NUM_THREADS=n) for n in numbers]
    )


def c() -> Count:
    with_real_nvrtc()
    return total(
        [c_tests("build"), with_threads("1", "2"), without_passes("softmax")]
    )


def passes() -> Count:
    return without_passes()


# Python's tests that are run with a card as the default device too, some cases
# of each; more are for a real card (gpu.py).
THERE = ("test_control.py", "test_transforms.py", "test_dtypes.py")


def python_there() -> Count:
    card = simulated_card("Python's tests")
    if not card:
        return Count()
    return python_tests(
        "build",
        *(f"test/python/{name}" for name in THERE),
        PYTHONPATH=f"{ROOT}/build/python",
        NABLA_DEFAULT_DEVICE="gpu",
        NABLA_TEST_EVERY="23",
        NABLA_TEST_PART="5/24",
        **card,
    )


def python() -> Count:
    with_real_nvrtc()
    usual = python_tests("build", PYTHONPATH=f"{ROOT}/build/python")
    return total([usual, python_there()])


# Cards.


def with_real_nvrtc() -> None:
    """Where NVRTC is installed it compiles what the simulated one does: every
    kernel of the suite.  What it took is remembered (test/sim/real.h)."""
    made = subprocess.run(["build/nvrtc"], stdout=subprocess.PIPE, text=True)
    found = made.stdout.strip()
    if made.returncode:
        print(f"kernels are not compiled by the real NVRTC: {found}")
        return
    print(f"kernels of the simulated card are compiled by {found} too")
    checked = ROOT / "build" / "checked"
    checked.mkdir(exist_ok=True)
    os.environ["NABLA_SIM_NVRTC"] = found
    os.environ["NABLA_SIM_CHECKED"] = str(checked)


def gpu() -> Count:
    """Tests of cards, on the card of this machine."""
    answer = spoken("python", "-c", "import nabla as nb; print(nb.devices())")
    if "gpu" not in answer:
        print("no card here: left out (the simulated one is part of c)")
        return Count()
    print("on the card of this machine:", answer.strip())
    if unknown := card_tests.words_of_nothing("gpt2"):
        print("FAIL  no test is called", *unknown)
        return Count(0, len(unknown))
    results = card_tests.run_all(counted)
    counts = [Count(r.passed, r.failed) for r in results]
    if card_tests.is_asked_for("gpt2"):
        counts.append(gpt2_on_card(losses(GPT2[0])))
    return total(counts)


def asan() -> Count:
    build = "build-asan"
    configured = run(
        *("tools/configure", build, "-Dwerror=true", "-Dbuildtype=debug"),
        *("-Doptimization=1", "-Db_sanitize=address,undefined"),
        "-Dc_args=-fno-sanitize-recover=all -fno-omit-frame-pointer",
    )
    if not configured or not run("ninja", "-C", build):
        return Count(0, 1)
    return total([c_tests(build), python_under_asan(build)])


def examples() -> Count:
    found = [*Path("examples").glob("*.c"), *Path("examples").glob("*.py")]
    mesh = re.compile("nb_mesh_new|DeviceMesh")
    split = [x for x in sorted(found) if mesh.search(x.read_text())]
    apart = [*split, *(x for x in found if x.stem in ("gpt", "gpt2"))]
    plain = [x for x in sorted(found) if x not in apart]
    return total(
        [step(*command_of(x), PYTHONPATH="build/python") for x in plain]
        + [over_meshes(split), gpt(), gpt2()]
        + [quoted("README.md", *TABLES)]
        + [
            step("tools/snippets.py", page, PYTHONPATH="build/python")
            for page in [Path("README.md"), *sorted(Path("docs").glob("*.md"))]
        ]
    )


def install() -> Count:
    return step("test/install/run")


PARTS: dict[str, Callable[[], Count]] = {
    part.__name__: part
    for part in (check, c, mpi, python, examples, install)
}
MORE: dict[str, Callable[[], Count]] = {  # when named
    part.__name__: part for part in (asan, passes, gpu)
}


def main(names: list[str]) -> int:
    os.chdir(ROOT)
    all_parts = PARTS | MORE
    for name in set(names) - set(all_parts):
        sys.exit(f"test: no part {name}; there are {', '.join(all_parts)}")
    counts = {}
    for name in names or PARTS:
        print(f"\n== {name}", flush=True)
        counts[name] = all_parts[name]()
    print()
    for name, count in counts.items():
        print(f"{name:10}{count.passed:8} passed{count.failed:6} failed")
    passed, failed = total(list(counts.values()))
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


sys.exit(main(sys.argv[1:]))
