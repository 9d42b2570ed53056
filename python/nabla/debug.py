"""Looking for what went wrong, and for where time goes.

>>> with nb.debug.check_nans():
...     nb.log(nb.constant([-1.0]))
Traceback (most recent call last):
    ...
FloatingPointError: log: makes NaN of inputs that have none ...
"""

from __future__ import annotations

import os

from . import _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._nabla import ArrayLike

__all__ = ["check_bounds", "check_nans", "print"]

_NANS, _BOUNDS = 1, 2


class _Watch:
    """A context manager; within it, in this thread, ops run one by one as they
    are called, also those of compiled functions, and something is watched."""

    __slots__ = ("_was", "_what")

    def __init__(self, what: int) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._was = _nabla.debug_watch(self._what, True)

    def __exit__(self, *error: object) -> None:
        _nabla.debug_watch(self._what, self._was)


def check_nans() -> _Watch:
    """A context manager: the op that first makes a NaN raises
    FloatingPointError, which names it, the line that called it, and whether it
    was in the forward or the backward pass.

    >>> with nb.debug.check_nans():
    ...     nb.sqrt(nb.constant([4.0]))
    Tensor([2.] : f32[1])
    """
    return _Watch(_NANS)


def check_bounds() -> _Watch:
    """A context manager: an index out of range, which otherwise names the
    nearest element or none, raises IndexError with the line that called.

    >>> with nb.debug.check_bounds():
    ...     nb.gather(nb.arange(4), nb.constant([3, -4]))
    Tensor([3 0] : i64[2])
    """
    return _Watch(_BOUNDS)


def print(fmt: str, /, *tensors: ArrayLike) -> None:
    """Prints a line when the values are computed: at once, or, in a function
    that is being compiled and in the body of a loop, each time that it runs;
    under vmap once for each lane that differs.

    {} stands for the next tensor, {0} for the first; {:.3f} and the like are
    for scalars.

    >>> nb.debug.print("x = {}", nb.constant([1, 2]))
    x = [1 2]
    """
    _nabla.debug_print(fmt, *tensors)


class profile:
    """A context manager: times of kernels, of ops that run by themselves and
    of compiling, and the memory in use, are written to a file that Chrome
    (about:tracing) and Perfetto show.

    >>> with nb.profile("trace.json"):  # doctest: +SKIP
    ...     step(params, batch)
    """

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __enter__(self) -> profile:
        _nabla.profile_start(self._path)
        return self

    def __exit__(self, *error: object) -> None:
        _nabla.profile_stop()
