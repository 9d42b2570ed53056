"""Recorded programs, to be read."""

from __future__ import annotations

import os
import sys
from functools import wraps

from .. import _nabla
from ._record import as_tensors, call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

    from .._nabla import Tensor

__all__ = [
    "Node",
    "Program",
    "Trace",
    "forward",
    "forward_on_trace",
    "trace",
    "xpr",
]


class Node:
    """A line of a listing.

    op       the name of the op
    inputs   what goes into it: names, numbers ("2.0:f32"), "?" for a tensor
             from outside
    outputs  names of its results, None for those that nobody needs
    types    of these: "f32[8,4]"
    kwargs   its static arguments
    source   where it was called: "model.py:12"
    regions  the programs inside it, by what they are to it: "body"
    """

    __slots__ = (
        "inputs",
        "kwargs",
        "op",
        "outputs",
        "regions",
        "source",
        "types",
    )

    def __init__(self, line: _nabla.GraphLine) -> None:
        self.op, self.inputs, self.outputs, self.types = line[:4]
        self.kwargs, self.source = line[4:6]
        self.regions = {
            name: Program(inside) for name, inside in line[6].items()
        }

    def __repr__(self) -> str:
        results = [
            "_" if name is None else f"{name}: {type}"
            for name, type in zip(self.outputs, self.types, strict=True)
        ]
        return f"<{self.op} {', '.join(results)}>"


class Program:
    """A program inside an op: names of its inputs and outputs, its nodes."""

    __slots__ = ("inputs", "nodes", "outputs")

    def __init__(self, program: _nabla.GraphProgram) -> None:
        self.inputs, self.outputs, lines = program
        self.nodes = [Node(line) for line in lines]


class Trace:
    """What a function recorded.

    inputs   the tensors among its arguments
    outputs  its results
    nodes    the ops between, each after what it needs

    str() is the listing; print() writes it for people.
    """

    def __init__(
        self, inputs: list[Tensor], outputs: list[Tensor], tape: _nabla.Tape
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._tape = tape
        self._graph = _nabla.Graph(inputs, outputs)
        self._nodes: list[Node] | None = None

    @property
    def nodes(self) -> list[Node]:
        """The ops, each after what it needs."""
        if self._nodes is None:
            self._nodes = Program(self._graph.program()).nodes
        return self._nodes

    def __str__(self) -> str:
        return self._graph.text().removesuffix("\n")

    __repr__ = __str__

    def print(
        self, *, sources: bool = False, file: TextIO | None = None
    ) -> None:
        """Writes the listing: on a terminal keywords are bold, names cyan and
        hidden axes grey; with sources, each line says where it was called.

        >>> nb.trace(nb.neg, nb.ones(2)).print()
        fn(
          %a1: f32[2],
        ) {
          %v1: f32[2] = neg(%a1)
          return %v1
        }
        """
        file = sys.stdout if file is None else file
        colours = "NO_COLOR" not in os.environ and file.isatty()
        file.write(self._graph.text(sources, colours))


def trace(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs a function once and shows what it recorded.  Of a tensor: the sum
    of a diagonal, trace(x, offset=0).

    >>> print(nb.trace(nb.sin, nb.ones(2)))
    fn(
      %a1: f32[2],
    ) {
      %v1: f32[2] = sin(%a1)
      return %v1
    }
    """
    if not callable(fn):
        return _nabla.ops["trace"](fn, *args, **kwargs)
    return recorded(fn, *args, **kwargs)


def recorded(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Trace:
    """The trace of a function."""
    leaves, structure = _nabla.tree_flatten((args, kwargs))
    at = [i for i, x in enumerate(leaves) if isinstance(x, _nabla.Tensor)]
    if not at:
        raise ValueError("trace: there is no tensor among the arguments")
    inputs = [leaves[i].realize().detach() for i in at]
    for x in inputs:
        x.is_traced = True
    tape = _nabla.Tape(inputs)
    _nabla.watch(True)
    try:
        for i, x in zip(at, tape.fresh, strict=True):
            leaves[i] = x
        given, named = _nabla.tree_unflatten(structure, leaves)
        value = call("trace", fn, *given, **named)
        outputs, _ = as_tensors("trace", "the result", value)
        tape.close(outputs)
    finally:
        _nabla.watch(False)
        tape.end()
    return Trace(inputs, outputs, tape)


def xpr(fn: Callable[..., Any]) -> Callable[..., str]:
    """A function that says what fn does with its arguments.

    >>> nb.xpr(nb.neg)(nb.ones(2)).splitlines()[3]
    '  %v1: f32[2] = neg(%a1)'
    """

    @wraps(fn)
    def listing(*args: Any, **kwargs: Any) -> str:
        return str(recorded(fn, *args, **kwargs))

    return listing


def forward(
    trace: Trace, tangents: dict[Tensor, Tensor], *, create_graph: bool = True
) -> dict[Tensor, Tensor]:
    """How the outputs of a trace move when its inputs do: tangents by input in,
    tangents by output out.  An input without one does not move."""
    for x in tangents:
        if not any(x is one for one in trace.inputs):
            raise ValueError("forward: a tangent for what is no input")
    moved = trace._tape.push([tangents.get(x) for x in trace.inputs])
    return {
        y: u if create_graph else u.detach()
        for y, u in zip(trace.outputs, moved, strict=True)
        if u is not None
    }


forward_on_trace = forward
