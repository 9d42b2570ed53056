"""Loops and branches as ops.  Their functions are called once, on stand-ins
that have a shape and a dtype but no value."""

from __future__ import annotations

from .. import _nabla
from ._record import as_tensor, as_tensors, call, matched, paths, type_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .._nabla import PyTreeDef, Tensor

__all__ = ["cond", "scan", "while_loop"]


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
    leaves, structure = _nabla.tree_flatten(operands)
    at = [i for i, x in enumerate(leaves) if isinstance(x, _nabla.Tensor)]
    clash = "{} in one branch and {} in the other"
    agreed = _Agreed("cond", "the result", clash)

    def side(fn: Callable[..., Any]) -> Callable[..., list[Tensor]]:
        def body(inside: list[Tensor]) -> list[Tensor]:
            whole = leaves.copy()
            for i, x in zip(at, inside, strict=True):
                whole[i] = x
            given = _nabla.tree_unflatten(structure, whole)
            return agreed.take(call("cond", fn, *given))

        return body

    test = as_tensor("cond", "the predicate", pred)
    if test.num_elements() != 1:
        raise ValueError(
            f"cond: the predicate is a scalar, not of shape {test.shape}"
        )
    given = [leaves[i] for i in at]
    return agreed.tree(_nabla.cond(test, side(true_fn), side(false_fn), given))


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
        found = as_tensor("while_loop", "the result of cond_fn", found)
        if found.num_elements() != 1:
            raise ValueError(
                "while_loop: cond_fn gives a scalar, not a tensor of shape "
                f"{found.shape}"
            )
        return [found]

    def body(inside: list[Tensor]) -> list[Tensor]:
        state = _nabla.tree_unflatten(structure, inside)
        return agreed.take(call("while_loop", body_fn, state))

    return agreed.tree(_nabla.while_loop(test, body, leaves))


def _length(xs: Any, leaves: list[Tensor], length: int | None) -> int:
    """How many steps a scan over xs has."""
    said = "length is"
    for i, x in enumerate(leaves):
        where = f"xs{paths(xs)[i]}"
        if x.ndim == 0:
            raise ValueError(f"scan: {where} is 0-d, there is no axis to scan")
        if length is None:
            length, said = x.shape[0], f"{where} has"
        if x.shape[0] != length:
            raise ValueError(
                f"scan: {where} has length {x.shape[0]}, {said} {length}"
            )
    if length is None:
        raise ValueError("scan: without xs a length is needed")
    if length < 0:
        raise ValueError(f"scan: length {length}")
    return length


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
    steps = _length(xs, along, length)
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

    found = _nabla.scan(body, start, along, steps, bool(reverse))
    carry = agreed.tree(found[:n])
    return carry, _nabla.tree_unflatten(outside[0], found[n:])
