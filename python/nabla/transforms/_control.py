"""Loops and branches as ops.  Their functions are called once, on stand-ins
that have a shape and a dtype but no value."""

from __future__ import annotations

import operator

from .. import _nabla
from ._record import as_tensor, as_tensors, call, matched, paths, type_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .._nabla import PyTreeDef, Tensor

    _Body = Callable[[list[Tensor]], list[Tensor]]

__all__ = [
    "associative_scan",
    "cond",
    "fori_loop",
    "map",
    "scan",
    "switch",
    "while_loop",
]


class _Agreed:
    """What has to come back again and again: one structure, shapes, dtypes."""

    def __init__(
        self, who: str, what: str, clash: str = "{} and comes back as {}"
    ) -> None:
        self._who, self._what, self._clash = who, what, clash
        self._where: Any = None
        self._like: list[tuple[str, Any]] = []

    def set(self, tree: Any, leaves: list[Tensor]) -> None:
        structure = _nabla.tree_structure(tree)
        self._where = _nabla.tree_unflatten(structure, paths(tree)), structure
        self._like = [(type_text(x), x.dtype) for x in leaves]

    def take(self, tree: Any) -> list[Tensor]:
        """The leaves of a tree, which is the first or agrees with it."""
        if self._where is None:
            leaves, _ = as_tensors(self._who, self._what, tree)
            self.set(tree, leaves)
            return leaves
        found = matched(self._who, self._what, self._where[0], tree)
        return [self._leaf(i, x) for i, x in enumerate(found)]

    def _leaf(self, i: int, x: Any) -> Tensor:
        wanted, dtype = self._like[i]
        what = self._what + _nabla.tree_leaves(self._where[0])[i]
        if isinstance(x, (bool, int, float)):
            x = _nabla.constant(x, dtype)
        y = as_tensor(self._who, what, x)
        if type_text(y) != wanted:
            raise ValueError(
                f"{self._who}: {what} is "
                + self._clash.format(wanted, type_text(y))
            )
        return y

    def tree(self, leaves: Sequence[Tensor]) -> Any:
        return _nabla.tree_unflatten(self._where[1], leaves)


def _scalar(who: str, what: str, x: Any) -> Tensor:
    y = as_tensor(who, what, x)
    if y.num_elements() != 1:
        raise ValueError(f"{who}: {what} is a scalar, not of shape {y.shape}")
    return y


def _branches(
    who: str, functions: Sequence[Callable[..., Any]], operands: Any
) -> tuple[list[_Body], list[Tensor], _Agreed]:
    """Functions of operands, of which tensors go through the engine and all
    else is as it was given; the tensors; what all of them return."""
    leaves, structure = _nabla.tree_flatten(operands)
    at = [i for i, x in enumerate(leaves) if isinstance(x, _nabla.Tensor)]
    agreed = _Agreed(who, "the result", "{} in one branch and {} in another")

    def side(fn: Callable[..., Any]) -> _Body:
        def body(inside: list[Tensor]) -> list[Tensor]:
            whole = leaves.copy()
            for i, x in zip(at, inside, strict=True):
                whole[i] = x
            given = _nabla.tree_unflatten(structure, whole)
            return agreed.take(call(who, fn, *given))

        return body

    return [side(fn) for fn in functions], [leaves[i] for i in at], agreed


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: Any,
) -> Any:
    """true_fn(*operands) if a scalar is true, false_fn(*operands) if not.

    >>> nb.cond(nb.constant(True), nb.sin, nb.cos, nb.constant(0.0))
    Tensor(0. : f32[])
    """
    test = _scalar("cond", "the predicate", pred)
    sides, given, agreed = _branches("cond", (true_fn, false_fn), operands)
    return agreed.tree(_nabla.cond(test, sides[0], sides[1], given))


def switch(
    index: Any, branches: Sequence[Callable[..., Any]], *operands: Any
) -> Any:
    """branches[index](*operands); an index out of range is moved to the
    nearest.

    >>> nb.switch(nb.constant(1), [nb.sin, nb.cos, nb.exp], nb.constant(0.0))
    Tensor(1. : f32[])
    """
    which = _scalar("switch", "the index", index)
    sides, given, agreed = _branches("switch", branches, operands)
    return agreed.tree(_nabla.switch(which, sides, given))


def while_loop(
    cond_fn: Callable[[Any], Any],
    body_fn: Callable[[Any], Any],
    init_val: Any,
) -> Any:
    """state = body_fn(state), from init_val, while cond_fn(state) is true.

    >>> nb.while_loop(lambda n: n < 100, lambda n: n * 2, 3)
    Tensor(192 : i64[])
    """
    leaves, structure = as_tensors("while_loop", "init_val", init_val)
    if not leaves:
        raise ValueError("while_loop: there is no tensor in init_val")
    agreed = _Agreed("while_loop", "the state")
    agreed.set(init_val, leaves)

    def test(inside: list[Tensor]) -> list[Tensor]:
        state = _nabla.tree_unflatten(structure, inside)
        found = call("while_loop", cond_fn, state)
        return [_scalar("while_loop", "the result of cond_fn", found)]

    def body(inside: list[Tensor]) -> list[Tensor]:
        state = _nabla.tree_unflatten(structure, inside)
        return agreed.take(call("while_loop", body_fn, state))

    return agreed.tree(_nabla.while_loop(test, body, leaves))


def _bound(what: str, x: Any) -> Tensor | int:
    return x if isinstance(x, int) else _scalar("fori_loop", what, x)


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
) -> Any:
    """state = body_fun(i, state), from init_val, for i from lower to before
    upper.

    >>> nb.fori_loop(0, 4, lambda i, total: total + i, 0)
    Tensor(6 : i64[])
    """
    leaves, structure = as_tensors("fori_loop", "init_val", init_val)
    agreed = _Agreed("fori_loop", "the state")
    agreed.set(init_val, leaves)

    def body(inside: list[Tensor]) -> list[Tensor]:
        state = _nabla.tree_unflatten(structure, inside[1:])
        return agreed.take(call("fori_loop", body_fun, inside[0], state))

    ends = _bound("lower", lower), _bound("upper", upper)
    return agreed.tree(_nabla.fori_loop(ends[0], ends[1], body, leaves))


def _length(
    who: str,
    what: str,
    tree: Any,
    leaves: list[Tensor],
    axis: int = 0,
    length: int | None = None,
) -> int | None:
    """The length along an axis of all leaves of a tree, which may be given."""
    for i, x in enumerate(leaves):
        if not -x.ndim <= axis < x.ndim:
            where = what + paths(tree)[i]
            raise _nabla.AxisError(
                f"{who}: {where} is {x.ndim}-d, there is no axis {axis}"
            )
    sizes = [x.shape[axis] for x in leaves]
    wanted = sizes[0] if length is None and sizes else length
    for i, size in enumerate(sizes):
        if size != wanted:
            at = [what + path for path in paths(tree)]
            said = f"{at[0]} has" if length is None else "length is"
            raise ValueError(
                f"{who}: {at[i]} has length {size}, {said} {wanted}"
            )
    return wanted


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """carry, y = f(carry, x) for each slice x of xs along axis 0; the last
    carry, and all ys stacked.

    >>> nb.scan(lambda c, x: (c + x, c * x), 0.0, nb.constant([1.0, 2.0]))
    (Tensor(3. : f32[]), Tensor([0. 2.] : f32[2]))
    """
    start, structure = as_tensors("scan", "init", init)
    along, xs_structure = as_tensors("scan", "xs", xs)
    steps = _length("scan", "xs", xs, along, 0, length)
    if steps is None:
        raise ValueError("scan: without xs a length is needed")
    n = len(start)
    agreed = _Agreed("scan", "the carry")
    agreed.set(init, start)
    outside: list[PyTreeDef] = []

    def body(inside: list[Tensor]) -> list[Tensor]:
        carry = _nabla.tree_unflatten(structure, inside[:n])
        x = _nabla.tree_unflatten(xs_structure, inside[n:])
        pair = call("scan", f, carry, x)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                "scan: the function returns (carry, y), not a "
                f"{type(pair).__name__}"
            )
        ys, ys_structure = as_tensors("scan", "y", pair[1])
        outside[:] = [ys_structure]
        return agreed.take(pair[0]) + ys

    found = _nabla.scan(body, start + along, n, steps, bool(reverse))
    carry = agreed.tree(found[:n])
    return carry, _nabla.tree_unflatten(outside[0], found[n:])


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """f(x) for each slice x of xs along axis 0, one after the other, stacked.
    Where memory allows, vmap does them at once.

    >>> nb.map(lambda x: x * x, nb.constant([1.0, 2.0, 3.0]))
    Tensor([1. 4. 9.] : f32[3])
    """
    along, structure = as_tensors("map", "xs", xs)
    if _length("map", "xs", xs, along) is None:
        raise ValueError("map: there is no tensor in xs")
    outside: list[PyTreeDef] = []

    def body(inside: list[Tensor]) -> list[Tensor]:
        y = call("map", f, _nabla.tree_unflatten(structure, inside))
        ys, ys_structure = as_tensors("map", "the result", y)
        outside[:] = [ys_structure]
        return ys

    found = _nabla.map(body, along)
    return _nabla.tree_unflatten(outside[0], found)


def associative_scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    reverse: bool = False,
    axis: int = 0,
) -> Any:
    """The first element along an axis, the first two combined by fn, the first
    three, and so on; or from the end.  fn is associative, and combines trees
    like elems, with any number of elements along the axis, one by one.

    >>> nb.associative_scan(nb.mul, nb.constant([1.0, 2.0, 3.0, 4.0]))
    Tensor([ 1.  2.  6. 24.] : f32[4])
    """
    leaves, structure = as_tensors("associative_scan", "elems", elems)
    axis, n = operator.index(axis), len(leaves)
    if _length("associative_scan", "elems", elems, leaves, axis) is None:
        raise ValueError("associative_scan: there is no tensor in elems")
    agreed = _Agreed("associative_scan", "what is combined")

    def combine(inside: list[Tensor]) -> list[Tensor]:
        pair = [
            _nabla.tree_unflatten(structure, inside[i:][:n]) for i in (0, n)
        ]
        agreed.set(pair[0], inside[:n])
        return agreed.take(call("associative_scan", fn, *pair))

    found = _nabla.associative_scan(combine, leaves, axis, bool(reverse))
    return _nabla.tree_unflatten(structure, found)
