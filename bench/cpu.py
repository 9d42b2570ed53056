"""Compiled functions beside JAX, and PyTorch where it is installed.

bench/cpu.py [WORD] runs the rows whose names contain the word.  The libraries
compute the same functions (cpu_models.py) of the same arrays in one process,
and take turns; that they agree is checked first.  A row shows the median of
our times, the least of them, those of the others, the ratio of ours to the best
of them (and of the CPU time of all threads, which tells more where other
programs run) and to the limit: what the arithmetic takes at the rate of FMA or
the memory traffic at that of a stream, measured in this run.
"""

import importlib
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cpu_sizes
import numpy as np
from cpu_rows import Work, works

HOME = Path(__file__).resolve().parent
THREADS = int(os.environ.get("NABLA_NUM_THREADS", 0)) or len(
    os.sched_getaffinity(0)
)
SECONDS = 480.0  # of all rows, about


class Limits:
    """Asks the process that measures the machine."""

    def __init__(self) -> None:
        path = HOME.parent / "build" / "bench" / "cpu_limits"
        self.process = subprocess.Popen(
            [str(path), str(THREADS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.best: dict[str, float] = {}

    def ask(self, question: str) -> float:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def rate(self, name: str) -> float:
        """Operations a second; the best so far, others may be at work now."""
        self.best[name] = max(self.ask(name), self.best.get(name, 0.0))
        return self.best[name]

    def seconds(self, work: Work) -> float:
        """The least that a row can take; 0 if that is not known."""
        rate = self.rate(work.rate) if work.flops else 0.0
        least = work.flops / rate if rate else 0.0
        if work.read or work.write:
            traffic = f"stream {work.read:.0f} {work.write:.0f}"
            least = max(least, self.ask(traffic))
        return least


class Side:
    """A row in one library: calling it runs the function once."""

    def __init__(self, library: str, work: Work, arrays: Any) -> None:
        self.name = library
        self.m = importlib.import_module(f"cpu_{library}")
        self.x = list(self.m.tree_map(self.m.array, arrays))
        if work.random:
            self.x = [self.m.random_key(0)]
        self.state = work.state
        donated = tuple(range(work.state))
        self.f = self.m.compile(work.make(self.m), donated)
        self.times: list[float] = []
        self.work: list[float] = []

    def __call__(self) -> Any:
        y = self.m.ready(self.f(*self.x))
        if self.state:
            self.x[: self.state] = y[1 : 1 + self.state]
        return y

    def first(self) -> list[Any]:
        """What is compared: all results, but for a step of Adam not the
        parameters, which move by the sign of gradients that may be nothing."""
        y = self()
        if self.state > 1:
            y = (y[0], *y[2:])
        return [self.m.numpy(a) for a in self.m.tree_leaves(y)]

    def clock(self, number: int) -> float:
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(number):
            self()
        took = (time.perf_counter() - start) / number
        self.times.append(took)
        self.work.append((time.process_time() - busy) / number)
        return took

    def busy(self) -> float:
        """CPU seconds of a call; the mean, because the kernel counts the time
        of a thread that is running late."""
        return sum(self.work) / len(self.work)

    def forget(self) -> None:
        self.times.clear()
        self.work.clear()


def check(work: Work, ours: list[Any], theirs: list[Any], peer: str) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if work.random:
            a, b = (np.array([x.mean(), x.std(), x.max()]) for x in (a, b))
        assert a.shape == b.shape, f"{work.name}: shape beside {peer}"
        scale = max(float(np.abs(b).max(initial=0)), 1e-30)
        error = float(np.abs(a - b).max(initial=0)) / scale
        assert error <= work.close, f"{work.name}: {error:.1e} beside {peer}"


def measure(sides: list[Side], seconds: float) -> None:
    """Times of all sides in turns, each turn long enough for the clock."""
    number = {}
    for s in sides:
        once = min(s.clock(1) for _ in range(2))
        number[s.name] = max(1, math.ceil(1e-3 / once))
        s.forget()
    start = time.perf_counter()
    turns = 0
    while turns < 3 or (turns < 40 and time.perf_counter() - start < seconds):
        for s in sides if turns % 2 else sides[::-1]:
            s.clock(number[s.name])
        turns += 1


def unit(work: Work, seconds: float) -> str:
    if work.per:
        return f"{seconds / work.per * 1e9:.2f} ns"
    if seconds < 1e-4:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.3f} ms"


def run(work: Work, limits: Limits, seconds: float) -> str:
    arrays = work.arrays(np.random.default_rng(0))
    us = Side("nabla", work, arrays)
    peers = [
        Side(p, work, arrays)
        for p in work.peers
        if importlib.util.find_spec(p.split("_")[0])
    ]
    mine = us.first()
    for p in peers:
        check(work, mine, p.first(), p.name)
    del mine
    measure([us, *peers], seconds)
    median = {s.name: statistics.median(s.times) for s in (us, *peers)}
    ours, best = median["nabla"], min(median[p.name] for p in peers)
    busy = us.busy() / min(p.busy() for p in peers)
    limit = limits.seconds(work)
    text = f"{work.name:<34}{unit(work, ours):>12}"
    text += f" (least {unit(work, min(us.times))})"
    text += "".join(f" {p.name} {unit(work, median[p.name])}" for p in peers)
    text += f"  ours/peer {ours / best:5.2f} (CPU {busy:.2f})"
    text += f" <= {work.reach:g}"
    if limit:
        busy = us.busy() / THREADS / limit
        text += f"  ours/limit {ours / limit:5.2f} (CPU {busy:.2f})"
    if work.limit:
        text += f" <= {work.limit:g}"
    if work.most:
        text += f"  (at most {unit(work, work.most)})"
    slow = work.limit and ours > work.limit * limit
    slow = slow or (work.most and ours > work.most)
    return text + ("  MISSED" if slow or ours > work.reach * best else "")


def cold(library: str, model: str, runs: int, cache: str) -> dict[str, float]:
    """Figures of a process that compiles a model's step."""
    env = dict(os.environ, NABLA_CACHE_DIR=cache)
    env["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    words = [library, model, repr(time.monotonic()), str(runs)]
    told = subprocess.run(
        [sys.executable, str(HOME / "cpu_cold.py"), *words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    figures: dict[str, float] = json.loads(told.stdout)
    return figures


def compiling(model: str, title: str, reach: float) -> None:
    """Tracing and compiling, with nothing and with code on the disk; bytes."""
    runs = 2 if model == "gpt2" else 0
    with tempfile.TemporaryDirectory() as cache:
        ours = cold("nabla", model, runs, cache)
        warm = cold("nabla", model, 0, cache)
    theirs = cold("jax", model, runs, "")
    first, second = ours["compile"], theirs["compile"]
    late = first > reach or first > 0.2 * second
    print(
        f"{'compile ' + title:<34}{first:10.3f} s  jax {second:.3f} s  "
        f"ours/peer {first / second:5.2f} <= 0.2  (at most {reach} s)"
        + ("  MISSED" if late else "")
    )
    begun = warm["start"]
    print(
        f"{'start, compile ' + title + ', warm':<34}{begun:10.3f} s  "
        f"of which compile {warm['compile']:.3f} s  (at most 0.25 s)"
        + ("  MISSED" if begun > 0.25 else "")
    )
    if runs:
        plan, rss = (
            f"{ours[k] / 1e6:.0f} MB jax {theirs[k] / 1e6:.0f} MB"
            for k in ("planned", "rss")
        )
        print(
            f"{'memory ' + title:<34}planned {plan}  resident {rss}  "
            f"ours/peer {ours['planned'] / theirs['planned']:5.2f} <= 1"
            + ("  MISSED" if ours["planned"] > theirs["planned"] else "")
        )


def main() -> None:
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    limits = Limits()
    fma, bf16 = limits.rate("fma") / 1e9, limits.rate("bf16") / 1e9
    copied = 2 * (64 << 20) / limits.ask(f"stream {64 << 20} {64 << 20}") / 1e9
    print(
        f"{THREADS} threads: FMA {fma:.0f} Gflop/s, bf16 {bf16:.0f} Gflop/s, "
        f"copy of 64 MiB {copied:.0f} GB/s"
    )
    chosen = [w for w in works() if only in w.name]
    start = time.monotonic()
    for k, work in enumerate(chosen):
        left = max(0.0, SECONDS - (time.monotonic() - start))
        try:
            line = run(work, limits, min(3.0, left / (len(chosen) - k)))
        except Exception as error:  # one row must not cost the others
            line = f"{work.name:<34}FAILED: {error!r:.200}"
        print(line, flush=True)
    if only in "any size":
        cpu_sizes.main()
    for model, title, reach in (
        ("mlp", "MLP Adam step", 0.15),
        ("gpt2", "GPT-2 AdamW step", 1.5),
    ):
        if only in f"compile start memory {title}, warm":
            compiling(model, title, reach)


if __name__ == "__main__":
    main()
