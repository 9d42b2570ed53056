"""Compiled functions on a card, beside JAX and PyTorch if they are installed.

bench/gpu.py [--limit SECONDS] [--beside LIBRARIES] [WORD...] runs the rows of
which the name contains one of the words, or all.  Every library has the same
arrays; that they agree is checked first.  They take turns, each with calls
back to back, and a row shows the least time of each, what that is in TB/s of
the memory that has to be read and written or in TFLOP/s, and the ratio of ours
to the best of the others.  Training steps of GPT-2 have a process per library.

--beside torch leaves JAX out, --beside none both.  After the limit nothing is
begun: the rows and libraries that are left are named at the end.  A row that
fails is named, and the exit status is 1.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gpu_row import SMALL, Row, jax, jnp, torch
from gpu_rows_ops import ROWS

import nabla as nb

GPT2 = "GPT-2 124M step"
EARLY = 3  # rows before it


class Runner(NamedTuple):
    call: Callable[[], Any]  # and what it gives
    wait: Callable[[], Any]
    read: Callable[[Any], np.ndarray]


class Turn:
    """Seconds of a call of one of those that take turns."""

    def __init__(self, r: Runner) -> None:
        self.runner = r
        r.call(), r.wait()
        self.least = self.spent = self.took(1)
        few = 3 if self.least < 0.1 else 1
        self.calls = max(few, min(1000, int(0.1 / (self.least + 1e-9))))

    def took(self, calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            self.runner.call()
        self.runner.wait()
        return time.perf_counter() - begin

    def take(self) -> None:
        """Calls back to back for about a tenth of a second."""
        took = self.took(self.calls)
        self.least = min(self.least, took / self.calls)
        self.spent += took


def least(runners: dict[str, Runner]) -> dict[str, float]:
    """The least seconds of a call of each, in turns: a card that is warm has
    lower clocks, and each is to be the first as often as the last."""
    turns = {who: Turn(r) for who, r in runners.items()}
    order = [*turns.values()]
    for _ in range(6):
        for turn in order:
            if turn.spent < 3:
                turn.take()
        order.reverse()
    return {who: turn.least for who, turn in turns.items()}


def again(f: Callable[..., Any], x: list[Any], n: int) -> Callable[[], Any]:
    """Calls of f; its results are the first n arguments of the next."""

    def call() -> Any:
        y = f(*x)
        if n:
            x[:n] = y
        return y

    return call


def flat(y: Any, read: Callable[[Any], np.ndarray]) -> np.ndarray:
    """All numbers of a result."""
    parts = y if isinstance(y, (tuple, list)) else [y]
    return np.concatenate([read(p).astype(np.float64).ravel() for p in parts])


def given(row: Row, make: Callable[[np.ndarray], Any], cast: Any) -> list[Any]:
    """The arrays of a row, real ones in its dtype."""
    return [
        cast(make(a)) if a.dtype.kind == "f" else make(a) for a in row.arrays
    ]


def of_ours(row: Row) -> Runner:
    x = given(
        row,
        lambda a: nb.constant(a, device="gpu"),
        lambda v: v.astype(row.dtype),
    )
    nb.realize_all(*x)
    f = nb.compile(row.ours, donate_argnums=tuple(range(row.carries)))
    return Runner(
        again(f, x, row.carries),
        nb.synchronize,
        lambda y: flat(y, lambda p: np.asarray(p.astype("float32"))),
    )


def of_torch(row: Row, f: Callable[..., Any]) -> Runner:
    dtype = getattr(torch, row.dtype)
    x = given(row, lambda a: torch.from_numpy(a).cuda(), lambda v: v.to(dtype))
    return Runner(
        again(f, x, row.carries),
        torch.cuda.synchronize,
        lambda y: flat(y, lambda p: p.float().cpu().numpy()),
    )


def of_jax(row: Row) -> Runner:
    def swap(x: Any) -> Any:
        return x.swapaxes(1, 2) if row.swaps else x

    x = given(row, lambda a: jnp.array(swap(a)), lambda v: v.astype(row.dtype))
    f = jax.jit(row.jax, donate_argnums=tuple(range(row.carries)))
    last: list[Any] = []
    call = again(f, x, row.carries)

    def keep() -> Any:
        last[:] = [call()]
        return last[0]

    return Runner(
        keep,
        lambda: jax.block_until_ready(last),
        lambda y: flat(y, lambda p: np.asarray(swap(p).astype("float32"))),
    )


def others_of(row: Row, beside: set[str]) -> dict[str, Callable[[], Runner]]:
    others: dict[str, Callable[[], Runner]] = {}
    f = row.torch
    if "torch" in beside and f is not None:
        others["torch"] = lambda: of_torch(row, f)
        others["torch.compile"] = lambda: of_torch(row, torch.compile(f))
    if "jax" in beside:
        others["JAX"] = lambda: of_jax(row)
    return others


def agree(name: str, who: str, a: np.ndarray, b: np.ndarray) -> None:
    worst = float(np.max(np.abs(a - b) / (1 + np.abs(b))))
    if not worst < 0.05:
        print(f"{name}: ours and {who} differ by {worst:.2g}")


def rate(row: Row, seconds: float) -> str:
    if row.bytes:
        return f"{row.bytes / seconds / 1e12:6.2f} TB/s   "
    if row.flops:
        return f"{row.flops / seconds / 1e12:6.0f} TFLOP/s"
    return " " * 14


class Run:
    """What is to be measured, until when, and what was not."""

    def __init__(self, beside: set[str], limit: float) -> None:
        self.beside = beside
        self.end = time.monotonic() + limit
        self.skipped: list[str] = []
        self.failed = False

    def left(self) -> float:
        return self.end - time.monotonic()

    def may(self, what: str) -> bool:
        """Whether there is time for it; if not, it is kept to be named."""
        if self.left() > 0:
            return True
        self.skipped.append(what)
        return False

    def fails(self, what: str, why: object) -> None:
        self.failed = True
        print(f"{what}: failed: {why}", flush=True)

    def others(
        self, name: str, row: Row, want: np.ndarray
    ) -> dict[str, Runner]:
        """The other libraries.  One that cannot is named."""
        made = {}
        for who, make in others_of(row, self.beside).items():
            if not self.may(f"{name} by {who}"):
                continue
            try:
                r = make()
                agree(name, who, want, r.read(r.call()))
                made[who] = r
            except Exception as e:  # whatever another library has to say
                print(f"{name}: {who}: {str(e).splitlines()[:1]}")
        return made

    def row(self, name: str, row: Row) -> None:
        r = of_ours(row)
        begin = time.perf_counter()
        want = r.read(r.call())
        cold = time.perf_counter() - begin
        times = least({"ours": r} | self.others(name, row, want))
        if "torch" in self.beside and torch.cuda.is_available():
            torch.cuda.empty_cache()
        ours = times.pop("ours")
        best = min(times.values(), default=math.inf)
        ratio = f"{ours / best:5.2f}" if times else "     "
        said = "  ".join(f"{k} {t * 1e6:.1f}" for k, t in times.items())
        print(
            f"{name:36s} {ours * 1e6:9.1f} us {rate(row, ours)}"
            f" {ratio}  cold {cold:.2f} s  {said}",
            flush=True,
        )

    def step(self, library: str, **environment: str) -> dict[str, Any] | None:
        """What a process with steps of GPT-2 says: losses, times, memory."""
        what = f"{GPT2} by {library}"
        if not self.may(what):
            return None
        program = Path(__file__).with_name("gpu_gpt2.py")
        try:
            made = subprocess.run(
                [sys.executable, program, library],
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                text=True,
                timeout=None if math.isinf(self.end) else self.left(),
            )
        except subprocess.TimeoutExpired:
            self.skipped.append(what)
            return None
        if made.returncode:
            self.fails(what, f"exit status {made.returncode}")
            return None
        found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
        return found

    def gpt2(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ours = self.step("nabla", NABLA_CACHE_DIR=folder)
            warm = self.step("nabla", NABLA_CACHE_DIR=folder) if ours else None
        if ours:
            disk = f"  from disk {warm['cold']:.2f} s" if warm else ""
            show_step("nabla", ours, disk)
        for library in sorted(self.beside, reverse=True):
            x = self.step(library)
            if x and ours:
                pair = np.array(ours["losses"]), np.array(x["losses"])
                agree(GPT2, library, *pair)
            if x:
                show_step(library, x)


def show_step(who: str, x: dict[str, Any], more: str = "") -> None:
    print(
        f"{GPT2 + ', ' + who:36s} {x['ms']:9.2f} ms "
        f"{x['tokens'] / x['ms'] * 1e3:9.0f} tokens/s  "
        f"{x['peak'] / 2**30:6.2f} GiB  cold {x['cold']:.2f} s{more}",
        flush=True,
    )


def settings() -> argparse.Namespace:
    o = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    o.add_argument("words", nargs="*", metavar="WORD")
    o.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS")
    o.add_argument("--beside", default="torch,jax", metavar="LIBRARIES")
    o.add_argument("--list", action="store_true", help="names of the rows")
    return o.parse_args()


def main() -> int:
    o = settings()
    names = [*ROWS]
    names.insert(EARLY, GPT2)
    names = [n for n in names if any(w in n for w in o.words or [""])]
    if o.list:
        return print(*names, sep="\n") or 0
    if len(nb.devices()) < 2:
        print("no card here: nothing is measured")
        return 0
    if SMALL:
        print("sizes are small: times mean nothing")
    there = {"torch": torch, "jax": jax}
    asked = o.beside.split(",")
    r = Run({k for k in asked if there.get(k) is not None}, o.limit)
    for name in names:
        if not r.may(name):
            continue
        try:
            r.gpt2() if name == GPT2 else r.row(name, ROWS[name]())
        except Exception as e:
            r.fails(name, e)
    for what in r.skipped:
        print(f"skipped, after {o.limit:g} s: {what}")
    return int(r.failed)


if __name__ == "__main__":
    sys.exit(main())
