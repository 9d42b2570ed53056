"""Functions to functions: derivatives, maps, loops."""

from . import utils
from ._control import cond, scan, while_loop
from ._custom import checkpoint, custom_jvp, custom_vjp, remat
from ._record import stop_gradient
from ._trace import Trace, forward, forward_on_trace, trace, xpr
from .grad import backward, grad, hvp, value_and_grad
from .jacfwd import jacfwd
from .jacrev import hessian, jacrev
from .jvp import jvp, linearize
from .vjp import vjp
from .vmap import vmap

__all__ = [
    "Trace",
    "backward",
    "checkpoint",
    "cond",
    "custom_jvp",
    "custom_vjp",
    "forward",
    "forward_on_trace",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "remat",
    "scan",
    "stop_gradient",
    "trace",
    "utils",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
    "xpr",
]
