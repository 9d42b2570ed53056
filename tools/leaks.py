"""Asks the leak sanitizer for the leaks when Python has done its work: as a
pytest plugin, or around a program (leaks.py PROGRAM ARGUMENT...).  Not at the
exit of the process: pytest-xdist's workers end without one, and what CPython
itself leaves behind there would drown the rest."""

import ctypes
import gc
import runpy
import sys
from pathlib import Path


def pytest_sessionfinish() -> None:
    gc.collect()
    ctypes.CDLL(None).__lsan_do_recoverable_leak_check()


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
    pytest_sessionfinish()
