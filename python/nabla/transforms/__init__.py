"""Functions to functions: derivatives, maps, loops."""

from . import utils
from ._control import (
    associative_scan,
    cond,
    fori_loop,
    map,
    scan,
    switch,
    while_loop,
)
from ._custom import checkpoint, custom_jvp, custom_vjp, remat
from ._record import stop_gradient
from ._trace import Trace, forward, forward_on_trace, trace, xpr
from .auto_shard import auto_shard
from .compile import (
    CompiledFunction,
    compile,
    explain,
    jit,
    verify,
)
from .grad import backward, grad, hvp, value_and_grad
from .jacfwd import jacfwd
from .jacrev import hessian, jacrev
from .jvp import jvp, linearize
from .shard_map import shard_map
from .vjp import vjp
from .vmap import vmap

__all__ = [
    "CompilationStats",
    "CompiledFunction",
    "Trace",
    "associative_scan",
    "auto_shard",
    "backward",
    "checkpoint",
    "compile",
    "cond",
    "custom_jvp",
    "custom_vjp",
    "explain",
    "fori_loop",
    "forward",
    "forward_on_trace",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "linearize",
    "map",
    "remat",
    "scan",
    "shard_map",
    "stop_gradient",
    "switch",
    "trace",
    "utils",
    "value_and_grad",
    "verify",
    "vjp",
    "vmap",
    "while_loop",
    "xpr",
]


def __getattr__(name: str) -> object:
    if name == "CompilationStats":
        from ._report import CompilationStats

        return CompilationStats
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
