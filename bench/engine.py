"""What the engine costs from Python, beside NumPy, in one run.

Best of several rounds, because machines are noisy; ratios are what counts.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import nabla as nb


def best(f: Callable[[], object], rounds: int, number: int = 1) -> float:
    """Seconds a call, in the fastest of several rounds."""
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(number):
            f()
        least = min(least, (time.perf_counter() - start) / number)
    return least


def import_ms(module: str) -> float:
    """Milliseconds that importing adds to an interpreter that starts."""

    # As installed: with bytecode, which the first run may have to write.
    env = dict(os.environ)
    env.pop("PYTHONDONTWRITEBYTECODE", None)

    def start(code: str) -> float:
        def run() -> None:
            subprocess.run([sys.executable, "-c", code], check=True, env=env)

        return best(run, 15)

    return 1e3 * (start(f"import {module}") - start("pass"))


def line(what: str, ours: float, theirs: float, unit: str, goal: str) -> None:
    """One row: our figure, NumPy's, their ratio and what to reach."""
    print(
        f"{what:<34}{ours:9.3f} {unit:<3} NumPy {theirs:9.3f} {unit:<3}"
        f" ratio {ours / theirs:5.2f}  ({goal})"
    )


def small() -> None:
    """Recording and realising one small op."""
    a = np.ones((32, 32), np.float32)
    x, y = nb.constant(a), nb.constant(a)
    theirs = 1e6 * best(lambda: a + a, 30, 2000)
    record = 1e6 * best(lambda: x + y, 30, 2000)
    both = 1e6 * best(lambda: (x + y).realize(), 30, 2000)
    line("record x + y (32x32 f32)", record, theirs, "us", "at most 1.0 us")
    line("record and realise x + y", both, theirs, "us", "at most 4 us")


def large() -> None:
    """64 MiB operands, and a matrix product."""
    a = np.arange(16 << 20, dtype=np.float32) % 7
    m = a[: 1 << 20].reshape(1024, 1024)
    x, w = nb.constant(a), nb.constant(m)
    line(
        "add, 64 MiB",
        1e3 * best(lambda: (x + x).realize(), 9),
        1e3 * best(lambda: a + a, 9),
        "ms",
        "at most 1.5x",
    )
    line(
        "sum, 64 MiB",
        1e3 * best(lambda: nb.sum(x).realize(), 9),
        1e3 * best(lambda: a.sum(), 9),
        "ms",
        "at most 1.5x",
    )
    line(
        "matmul 1024",
        1e3 * best(lambda: (w @ w).realize(), 15),
        1e3 * best(lambda: m @ m, 15),
        "ms",
        "at most 1.1x",
    )


def main() -> None:
    ours, theirs = import_ms("nabla"), import_ms("numpy")
    line("import", ours, theirs, "ms", f"at most {theirs / 3 + 30:.0f} ms")
    code = "import nabla, sys; print('numpy' in sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    print(f"import nabla imports NumPy: {loaded}  (must be False)")
    small()
    large()


if __name__ == "__main__":
    main()
