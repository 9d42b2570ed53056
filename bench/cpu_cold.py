"""cpu_cold.py LIBRARY MODEL START RUNS - one process of bench-cpu.

Traces and compiles the training step of a model, then runs it, and prints as
JSON: seconds to trace and compile; seconds from START, a reading of the
monotonic clock, till then, without those that the arguments took; bytes that
are planned; bytes of the process at most, after RUNS runs.
"""

import importlib
import json
import sys
import time
from typing import Any

import cpu_models as models


def arguments(step: models.Step, m: Any) -> list[Any]:
    """The step's, in the library's arrays; NumPy's import counts here."""
    np = importlib.import_module("numpy")
    arrays = step.arrays(np, np.random.default_rng(0))
    x = list(m.tree_map(m.array, arrays))
    m.ready(x)
    return x


def resident() -> int:
    """Bytes at most; the usage that getrusage tells begins with the parent's
    of a process."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) << 10
    return 0


def main() -> None:
    library, model, start, runs = sys.argv[1:]
    m = importlib.import_module(f"cpu_{library}")
    before = time.monotonic()
    step = models.STEPS[model]
    x = arguments(step, m)
    made = time.monotonic()
    run, planned = m.prepare(m.compile(step.make(m), (0, 1, 2)), *x)
    done = time.monotonic()
    for _ in range(int(runs)):
        _, *x[:3] = m.ready(run(*x))
    figures = {
        "compile": done - made,
        "start": done - float(start) - (made - before),
        "planned": planned,
        "rss": resident(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
