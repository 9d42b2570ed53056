"""What the transforms share: a call of a function with the floating leaves of
its arguments on tape, and trees that have to fit."""

from __future__ import annotations

from .. import _nabla
from .utils import split_aux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from .._nabla import PyTreeDef, Tensor

_op = _nabla.ops


def name_of(fun: object) -> str:
    """What messages call a function."""
    return str(getattr(fun, "__qualname__", type(fun).__name__))


def call(who: str, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fun(...); what it raises says which transform of it was running."""
    try:
        return fun(*args, **kwargs)
    except Exception as error:
        error.add_note(f"inside {who} of {name_of(fun)}")
        raise


def paths(tree: Any) -> list[str]:
    """Where the leaves of a tree are, in the order of its leaves."""

    def walk(x: Any, path: str) -> Iterator[str]:
        if x is None:
            return
        if isinstance(x, dict):
            for key in sorted(x):
                yield from walk(x[key], f"{path}[{key!r}]")
        elif isinstance(x, tuple) and hasattr(x, "_fields"):
            for key in x._fields:
                yield from walk(getattr(x, key), f"{path}.{key}")
        elif isinstance(x, (list, tuple)):
            for i, item in enumerate(x):
                yield from walk(item, f"{path}[{i}]")
        elif _nabla.tree_structure(x) == _LEAF:
            yield path
        else:
            for i in range(len(_nabla.tree_leaves(x))):
                yield f"{path}<{type(x).__name__}>[{i}]"

    return list(walk(tree, ""))


_LEAF = _nabla.tree_structure(0)


def as_tensor(who: str, what: str, x: Any) -> Tensor:
    """x, which may be a number or an array; TypeError for all else."""
    if isinstance(x, _nabla.Tensor):
        return x
    try:
        return _nabla.ensure_tensor(x)
    except TypeError:
        raise TypeError(
            f"{who}: {what} is a {type(x).__name__}, not a tensor"
        ) from None


def as_tensor_beside(who: str, what: str, x: Any, y: Tensor) -> Tensor:
    """The same; what is no tensor yet goes to where y is, as operands do."""
    if isinstance(x, _nabla.Tensor):
        return x
    return _nabla.to_device(as_tensor(who, what, x), _nabla.device_of(y))


def as_tensors(
    who: str, what: str, tree: Any
) -> tuple[list[Tensor], PyTreeDef]:
    """The leaves of a tree as tensors, and its structure."""
    leaves, structure = _nabla.tree_flatten(tree)
    if all(isinstance(x, _nabla.Tensor) for x in leaves):
        return leaves, structure
    where = paths(tree)
    return [
        as_tensor(who, what + where[i], x) for i, x in enumerate(leaves)
    ], structure


def matched(who: str, what: str, like: Any, tree: Any) -> list[Any]:
    """What a tree has in the places of the leaves of another, in order.
    ValueError, with the path, if the structures differ."""
    found: list[Any] = []
    try:
        _nabla.tree_map(lambda _, x: found.append(x), like, tree)
    except ValueError as error:
        text = str(error).removeprefix("tree_map: ")
        raise ValueError(f"{who}: {what}: {text}") from None
    for i, x in enumerate(found):
        if x is not None and _nabla.tree_structure(x) != _LEAF:
            at = paths(like)[i] or "the root"
            raise ValueError(
                f"{who}: {what}: Tree structure mismatch at {at}: one leaf "
                f"against a {type(x).__name__}"
            )
    return found


def type_text(x: Tensor) -> str:
    """f32(2, 3), for messages."""
    return f"{x.dtype.name}{x.shape}"


def tree_text(x: Any) -> str:
    """a tuple of 2, for messages."""
    if isinstance(x, dict):
        return f"a dict with keys {sorted(map(str, x))}"
    if isinstance(x, (list, tuple)):
        return f"a {type(x).__name__} of {len(x)}"
    return f"a {type(x).__name__}"


class Recording:
    """One call of a function with floating leaves of some arguments on tape.

    leaves     of those arguments, as they were given
    value, aux what the function returned
    results    the leaves of the value, as tensors
    """

    __slots__ = (
        "aux",
        "leaves",
        "results",
        "tape",
        "value",
        "_at",
        "_structure",
        "_who",
    )

    def __init__(
        self,
        who: str,
        fun: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        chosen: Sequence[int],
        has_aux: bool,
    ) -> None:
        self._who = who
        self.leaves, self._structure = _nabla.tree_flatten(
            tuple(args[i] for i in chosen)
        )
        self._at = _nabla.real_leaves(self.leaves)
        self.tape = _nabla.Tape([self.leaves[i] for i in self._at])
        try:
            raw = call(who, fun, *self._fresh(args, chosen), **kwargs)
            self.value, self.aux = split_aux(raw, has_aux, who)
            self.results, _ = as_tensors(who, "the result", self.value)
            self.tape.close(self.results)
        finally:
            self.tape.end()

    def _fresh(self, args: Sequence[Any], chosen: Sequence[int]) -> list[Any]:
        """The arguments, with handles of the tape in them."""
        leaves = self.leaves.copy()
        for i, x in zip(self._at, self.tape.fresh, strict=True):
            leaves[i] = x
        whole = list(args)
        trees = _nabla.tree_unflatten(self._structure, leaves)
        for i, tree in zip(chosen, trees, strict=True):
            whole[i] = tree
        return whole

    def like_value(self, leaves: Sequence[Any]) -> Any:
        """A tree like the value."""
        return _nabla.tree_unflatten(_nabla.tree_structure(self.value), leaves)

    def like_arguments(self, found: Sequence[Any]) -> tuple[Any, ...]:
        """Trees like the arguments: one leaf for each that is on tape, None
        in all other places."""
        leaves: list[Any] = [None] * len(self.leaves)
        for i, x in zip(self._at, found, strict=True):
            leaves[i] = x
        trees: tuple[Any, ...] = _nabla.tree_unflatten(self._structure, leaves)
        return trees

    def pull(self, ct: Sequence[Tensor | None] | None) -> tuple[Any, ...]:
        """Cotangents of the results, or ones, back to the arguments."""
        found = self.tape.pull(ct if ct is None else list(ct))
        return self.like_arguments(
            [
                _op["zeros_like"](self.leaves[i]) if g is None else g
                for i, g in zip(self._at, found, strict=True)
            ]
        )

    def push(self, tangents: Sequence[Any]) -> Any:
        """Tangents of all leaves of the arguments on to the results."""
        found = self.tape.push([tangents[i] for i in self._at])
        return self.like_value(
            [
                _op["zeros_like"](y) if u is None else u
                for y, u in zip(self.results, found, strict=True)
            ]
        )

    def on_tape(self, who: str, what: str, trees: Any) -> list[Any]:
        """Leaves of trees like the arguments; None stands for zero."""
        like = _nabla.tree_unflatten(self._structure, self.leaves)
        found = matched(who, what, like, trees)
        for i in self._at:
            if found[i] is not None:
                found[i] = as_tensor_beside(who, what, found[i], self.leaves[i])
        return found


def finished(tree: Any, create_graph: bool, realize: bool = False) -> Any:
    """A tree of results, without history unless a graph is wanted.  Inside a
    function that is being recorded there are no values yet."""
    if create_graph:
        return tree
    tree = stop_gradient(tree)
    if realize and not _nabla.is_recording():
        _nabla.realize_all(*_nabla.tensor_leaves(tree))
    return tree


def stop_gradient(tree: Any) -> Any:
    """The tree itself, through which nothing is differentiated.

    >>> nb.grad(lambda x: x * nb.stop_gradient(x))(nb.constant(3.0))
    Tensor(3. : f32[])
    """
    return _nabla.tree_map(
        lambda x: x.detach() if isinstance(x, _nabla.Tensor) else x, tree
    )
