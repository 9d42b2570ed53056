"""Compiled functions on a card, beside JAX and PyTorch.

bench/gpu.py [WORD] runs the rows whose names contain the word.  Every library
has the same arrays; that they agree is checked first.  They take turns, each
call given back to back, and a row shows the least time of each, what that is in
TB/s of the memory that has to be read and written or in TFLOP/s, and the ratio
of ours to the best of the others.

bench/gpu.py GPT-2 [LIBRARY...] runs training steps, each library in a process
of its own: nabla, torch, jax or all of them.
"""

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
from gpu_rows import ROWS, SMALL, Row, jax, jnp, torch

import nabla as nb


class Runner(NamedTuple):
    call: Callable[[], Any]  # and what it gives
    wait: Callable[[], Any]
    read: Callable[[Any], np.ndarray]


def least(r: Runner) -> float:
    """Seconds of a call, given back to back for about a tenth of a second; five
    times, or for some seconds."""
    r.call(), r.wait()
    start = begin = time.perf_counter()
    r.call(), r.wait()
    took = time.perf_counter() - begin
    n = max(3 if took < 0.1 else 1, min(1000, int(0.1 / (took + 1e-9))))
    times = [took]
    while len(times) < 6 and time.perf_counter() - start < 3:
        begin = time.perf_counter()
        for _ in range(n):
            r.call()
        r.wait()
        times.append((time.perf_counter() - begin) / n)
    return min(times)


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


def others_of(row: Row) -> dict[str, Callable[[], Runner]]:
    others: dict[str, Callable[[], Runner]] = {}
    f = row.torch
    if torch is not None and f is not None:
        others["torch"] = lambda: of_torch(row, f)
        others["torch.compile"] = lambda: of_torch(row, torch.compile(f))
    if jax is not None:
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


def beside(
    name: str, want: np.ndarray, others: dict[str, Callable[[], Runner]]
) -> dict[str, float]:
    """Seconds of the other libraries.  One that cannot is named."""
    times = {}
    for who, make in others.items():
        try:
            r = make()
            agree(name, who, want, r.read(r.call()))
            times[who] = least(r)
        except Exception as e:  # whatever another library has to say
            print(f"{name}: {who}: {str(e).splitlines()[:1]}")
    return times


def run(name: str, row: Row) -> None:
    r = of_ours(row)
    begin = time.perf_counter()
    want = r.read(r.call())
    cold = time.perf_counter() - begin
    ours = least(r)
    times = beside(name, want, others_of(row))
    if torch is not None:
        torch.cuda.empty_cache()
    best = min(times.values(), default=math.nan)
    said = "  ".join(f"{k} {t * 1e6:.1f}" for k, t in times.items())
    print(
        f"{name:36s} {ours * 1e6:9.1f} us {rate(row, ours)}"
        f" {ours / best:5.2f}  cold {cold:.2f} s  {said}",
        flush=True,
    )


# GPT-2: a process tells its losses, its times and its memory.


def told(library: str, **environment: str) -> dict[str, Any] | None:
    program = Path(__file__).with_name("gpu_gpt2.py")
    made = subprocess.run(
        [sys.executable, program, library],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    if made.returncode:
        return print(f"GPT-2: {library} failed")
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


def show_step(who: str, x: dict[str, Any], more: str = "") -> None:
    print(
        f"{'GPT-2 step, ' + who:36s} {x['ms']:9.2f} ms "
        f"{x['tokens'] / x['ms'] * 1e3:9.0f} tokens/s  "
        f"{x['peak'] / 2**30:6.2f} GiB  cold {x['cold']:.2f} s{more}",
        flush=True,
    )


def gpt2(libraries: list[str]) -> None:
    ours = None
    if "nabla" in libraries:
        with tempfile.TemporaryDirectory() as folder:
            ours = told("nabla", NABLA_CACHE_DIR=folder)
            warm = told("nabla", NABLA_CACHE_DIR=folder)
        if ours and warm:
            show_step("nabla", ours, f"  from disk {warm['cold']:.2f} s")
    for library in libraries:
        x = told(library) if library != "nabla" else None
        if x and ours:
            pair = np.array(ours["losses"]), np.array(x["losses"])
            agree("GPT-2", library, *pair)
        if x:
            show_step(library, x)


def main() -> None:
    word = " ".join(sys.argv[1:])
    if len(nb.devices()) < 2:
        print("no card here: nothing is measured")
        return
    if SMALL:
        print("sizes are small: times mean nothing")
    for name, make in ROWS.items():
        if word in name:
            run(name, make())
    if word.startswith("GPT"):
        there = {"nabla": nb, "torch": torch, "jax": jax}
        gpt2(word.split()[1:] or [k for k, x in there.items() if x])


if __name__ == "__main__":
    main()
