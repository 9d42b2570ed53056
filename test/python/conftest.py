"""Settings of all Python tests, and what they count.

NABLA_TEST_EVERY=n takes each n-th case of every test function, the first for
certain, and so many examples less of random ones; NABLA_TEST_PART=k/n of these
the k-th of n parts (as test/support/there.h)."""

import os
import time
from collections import Counter

import pytest
from hypothesis import settings

import nabla as nb
from nabla import _nabla

EVERY = int(os.environ.get("NABLA_TEST_EVERY", 1))
PART, PARTS = map(int, os.environ.get("NABLA_TEST_PART", "0/1").split("/"))

# Those are run by test_devices.py, in a process that has a card.
collect_ignore = [] if os.environ.get("NABLA_TEST_CARD") else ["card"]

# The same examples at every run, and no clock: a machine may be busy.
settings.register_profile(
    "nabla",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=max(1, 100 // EVERY),
)
settings.load_profile("nabla")


def pytest_collection_modifyitems(items):
    """Leaves the cases that are taken."""
    seen = Counter()
    taken = []
    for item in items:
        function = getattr(item, "originalname", item.name)
        if seen[item.path, function] % EVERY == 0:
            taken.append(item)
        seen[item.path, function] += 1
    items[:] = taken[PART::PARTS]


def pytest_terminal_summary(terminalreporter):
    """How much of the catalogue was compared with NumPy."""
    ops, dtypes, cases = set(), set(), 0
    for report in terminalreporter.getreports("passed"):
        counted = dict(report.user_properties)
        if report.when == "call" and "cases" in counted:
            ops.add(counted["op"])
            dtypes.add(counted["dtype"])
            cases += counted["cases"]
    if ops:
        terminalreporter.write_line(
            f"{len(ops)} ops, {len(dtypes)} dtypes: "
            f"{cases} cases agree with NumPy"
        )
        # A new op has the laws at once; an oracle is a row in test_ops.py.
        without = sorted(set(_nabla.ops) - ops)
        if without:
            terminalreporter.write_line(f"no oracle for {', '.join(without)}")


@pytest.fixture(autouse=True)
def in_step():
    """Under mpirun every process runs the tests in the same order.  One that
    has failed waits for the others, which fail too where they are in what it
    left, so that the next test begins with all."""
    yield
    if nb.distributed.size() == 1:
        return
    end = time.monotonic() + nb.distributed.timeout()
    while True:
        try:
            return nb.distributed.barrier()
        except RuntimeError:
            if time.monotonic() > end:
                pytest.exit("the processes have lost each other", 1)
