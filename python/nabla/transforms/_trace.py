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
    from typing import Any

    from .._nabla import Tensor

__all__ = ["Node", "Trace", "forward", "forward_on_trace", "trace", "xpr"]


class Node:
    """A line of a listing: an op, names of what goes into it and comes out,
    its static arguments."""

    __slots__ = ("inputs", "kwargs", "op", "outputs", "source", "type")

    def __init__(self, line: str) -> None:
        name, _, rest = line.strip().partition(": ")
        self.type, _, said = rest.partition(" = ")
        self.op, _, inside = said.removesuffix(")").partition("(")
        self.outputs = [name]
        self.inputs: list[str] = []
        self.kwargs: dict[str, Any] = {}
        self.source = ""
        for part in _parts(inside):
            key, equals, value = part.partition("=")
            if equals:
                self.kwargs[key] = _value(value)
            else:
                self.inputs.append(part)

    def __repr__(self) -> str:
        return f"<{self.op} {self.outputs[0]}: {self.type}>"


def _parts(text: str) -> list[str]:
    """Cut at the commas that are not in brackets or quotes."""
    parts, depth, quoted = [""], 0, False
    for c in text:
        quoted ^= c == '"'
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def _sorted(line: str) -> str:
    """A line with its static arguments by name, without those left out."""
    if not line.startswith("  %v"):
        return line
    head, _, inside = line.removesuffix(")").partition("(")
    parts = _parts(inside)
    named = [part for part in parts if "=" in part]
    operands = [part for part in parts if "=" not in part]
    said = sorted(part for part in named if not part.endswith("=None"))
    return f"{head}({', '.join(operands + said)})"


def _value(text: str) -> Any:
    """A static argument as it prints, read back."""
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("@"):
        return _nabla.as_dtype(text[1:])
    if text.startswith("("):
        return tuple(map(_value, _parts(text[1:-1])))
    if text.startswith('"'):
        return text[1:-1]
    try:
        return int(text)
    except ValueError:
        return float(text)


_WORDS = {"None": None, "True": True, "False": False}


class Trace:
    """What a function recorded.

    inputs   the tensors among its arguments
    outputs  its results
    nodes    the ops between, each after what it needs
    """

    def __init__(
        self, inputs: list[Tensor], outputs: list[Tensor], tape: _nabla.Tape
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._tape = tape
        lines = _nabla.graph_text(inputs, outputs).splitlines()
        self.text = "\n".join(map(_sorted, lines))
        self.nodes = [Node(line) for line in lines if line.startswith("  %v")]

    def __str__(self) -> str:
        return _coloured(self.text)


def _coloured(text: str) -> str:
    """On a terminal: keywords bold, variables cyan, hidden axes grey."""
    if "NO_COLOR" in os.environ or not sys.stdout.isatty():
        return text
    import re

    text = re.sub(r"(?<=\[)[\d,~]+ \|", "\033[90m\\g<0>\033[0m", text)
    text = re.sub(r"%[av]\d+", "\033[36m\\g<0>\033[0m", text)
    return re.sub(r"^(fn|  return)\b", "\033[1m\\g<0>\033[0m", text, flags=re.M)


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
    try:
        for i, x in zip(at, tape.fresh, strict=True):
            leaves[i] = x
        given, named = _nabla.tree_unflatten(structure, leaves)
        value = call("trace", fn, *given, **named)
        outputs, _ = as_tensors("trace", "the result", value)
        tape.close(outputs)
    finally:
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
