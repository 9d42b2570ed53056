"""Settings of all Python tests, and what they count."""

from hypothesis import settings

from nabla import _nabla

# The same examples at every run, and no clock: a machine may be busy.
settings.register_profile(
    "nabla", derandomize=True, deadline=None, database=None, max_examples=100
)
settings.load_profile("nabla")


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
