"""Programs of more than one process: `mpirun -n 4 python program.py`.

Every process runs the same program; the devices of a mesh are dealt out to
them, and each holds the shards of its own.  Nothing need be called for that.
What all take part in, all must call, reading a value that lies over several of
them for one.  Printing is up to each.

>>> nb.distributed.rank(), nb.distributed.size()
(0, 1)
"""

from __future__ import annotations

from . import _nabla

__all__ = [
    "barrier",
    "finish",
    "init",
    "rank",
    "set_timeout",
    "size",
    "timeout",
]


def init() -> None:
    """Joins the other processes.  A program started by mpirun need not: the
    first use of a mesh does it, or asking for the rank."""
    _nabla.distributed_init()


def rank() -> int:
    """Which process this is: 0 where there is one."""
    return _nabla.distributed_rank()


def size() -> int:
    """How many processes there are."""
    return _nabla.distributed_size()


def barrier() -> None:
    """Waits until all processes are here."""
    _nabla.distributed_barrier()


def finish() -> None:
    """Parts from the others, for good; at exit that is done anyway."""
    _nabla.distributed_finish()


def timeout() -> float:
    """How many seconds a device waits for another before it fails.

    >>> nb.distributed.timeout()
    300.0
    """
    return _nabla.distributed_timeout()


def set_timeout(seconds: float) -> None:
    """Says how long, in place of the environment variable NABLA_TIMEOUT."""
    _nabla.distributed_set_timeout(seconds)
