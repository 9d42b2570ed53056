"""Functions with derivatives of their own, and functions that run again where a
derivative needs their inside."""

from __future__ import annotations

from functools import update_wrapper, wraps
from operator import index

from .. import _nabla
from ._record import as_tensor, as_tensors, call, matched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .._nabla import PyTreeDef, Tensor

__all__ = ["checkpoint", "custom_jvp", "custom_vjp", "remat"]

_op = _nabla.ops


class _Split:
    """The tensors of a tree, in a list; and the rest, to put them back into."""

    def __init__(self, tree: Any) -> None:
        self.leaves, self._structure = _nabla.tree_flatten(tree)
        self._at = [
            i for i, x in enumerate(self.leaves) if isinstance(x, _nabla.Tensor)
        ]
        self.tensors: list[Tensor] = [self.leaves[i] for i in self._at]

    def tree(self, tensors: Sequence[Any]) -> Any:
        leaves = self.leaves.copy()
        for i, x in zip(self._at, tensors, strict=True):
            leaves[i] = x
        return _nabla.tree_unflatten(self._structure, leaves)

    def forget(self) -> None:
        """Keeps the rest alone: what outlives a call holds no tensors."""
        for i in self._at:
            self.leaves[i] = None
        self.tensors = []

    def places(self, leaves: Sequence[Any]) -> list[Any]:
        """Those of as many leaves that stand where the tensors do."""
        return [leaves[i] for i in self._at]


class _Custom:
    """A function whose arguments, but for some, are differentiated by rules."""

    def __init__(
        self, fn: Callable[..., Any], nondiff_argnums: Sequence[int] = ()
    ) -> None:
        self._fn = fn
        self._apart = tuple(map(index, nondiff_argnums))
        # Names and docs alone: a transform of a custom function has, by the
        # same means, that one's attributes.
        update_wrapper(self, fn, updated=())  # type: ignore[arg-type]

    def _parts(self, args: tuple[Any, ...]) -> tuple[list[int], list[Any]]:
        """Places of the arguments that are differentiated, and the others."""
        apart = {i % len(args) for i in self._apart} if args else set()
        moving = [i for i in range(len(args)) if i not in apart]
        return moving, [args[i % len(args)] for i in self._apart]


def _zeros_for(x: Tensor, given: Any, who: str) -> Tensor:
    if given is None:
        y: Tensor = _op["zeros_like"](x)
        return y
    return as_tensor(who, "a cotangent", given)


class custom_vjp(_Custom):  # noqa: N801
    """A function with a reverse mode of its own, given by defvjp: fwd(*args) is
    (out, res), bwd(res, ct) a tuple with a cotangent for each argument.
    Arguments of nondiff_argnums come first in a call of bwd.

    >>> clip = nb.custom_vjp(lambda x: x)
    >>> clip.defvjp(lambda x: (x, None), lambda res, ct: (nb.clip(ct, -1, 1),))
    >>> nb.grad(lambda x: 5 * clip(x))(nb.constant(1.0))
    Tensor(1. : f32[])
    """

    _fwd: Callable[..., Any] | None = None
    _bwd: Callable[..., Any]

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Says how to walk back."""
        self._fwd, self._bwd = fwd, bwd

    def __call__(self, *args: Any) -> Any:
        if self._fwd is None:
            raise AttributeError("custom_vjp: defvjp was not called")
        moving, apart = self._parts(args)
        rules = _VjpCall(self, args, moving, apart)
        found = _nabla.custom("vjp", rules.f, rules.fwd, rules.bwd, rules.x)
        rules.x = []
        return _nabla.tree_unflatten(rules.out[0], found)


class _VjpCall:
    """One call: its functions on lists of tensors."""

    def __init__(
        self,
        of: custom_vjp,
        args: tuple[Any, ...],
        moving: list[int],
        apart: list[Any],
    ) -> None:
        self._of, self._moving, self._apart = of, moving, apart
        self._args = [None if i in moving else x for i, x in enumerate(args)]
        self._split = _Split(tuple(args[i] for i in moving))
        self.x = self._split.tensors
        self._split.forget()
        self.out: list[PyTreeDef] = []
        self._res: _Split | None = None
        self._like: list[Tensor] = []

    def _whole(self, x: list[Tensor]) -> list[Any]:
        args = self._args.copy()
        trees = self._split.tree(x)
        for i, tree in zip(self._moving, trees, strict=True):
            args[i] = tree
        return args

    def _results(self, out: Any) -> list[Tensor]:
        leaves, structure = as_tensors("custom_vjp", "the result", out)
        if self.out and structure != self.out[0]:
            raise ValueError(
                f"custom_vjp: the function returns {self.out[0]}, fwd "
                f"{structure}"
            )
        self.out[:] = [structure]
        return leaves

    def f(self, x: list[Tensor]) -> list[Tensor]:
        out = call("custom_vjp", self._of._fn, *self._whole(x))
        return self._results(out)

    def fwd(self, x: list[Tensor]) -> list[Tensor]:
        assert self._of._fwd is not None
        pair = call("custom_vjp", self._of._fwd, *self._whole(x))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                "custom_vjp: fwd returns (out, res), not a "
                f"{type(pair).__name__}"
            )
        out = self._results(pair[0])
        self._res, self._like = _Split(pair[1]), x
        tensors = self._res.tensors
        self._res.forget()
        return out + tensors

    def bwd(self, given: list[Tensor]) -> list[Tensor]:
        """Residuals, then cotangents."""
        assert self._res is not None
        n = len(given) - self.out[0].num_leaves
        res = self._res.tree(given[:n])
        ct = _nabla.tree_unflatten(self.out[0], given[n:])
        back = call("custom_vjp", self._of._bwd, *self._apart, res, ct)
        like, self._like = self._like, []
        trees = self._split.tree(like)
        if not isinstance(back, tuple) or len(back) != len(trees):
            raise ValueError(
                "custom_vjp: bwd returns a tuple with a cotangent for each of "
                f"{len(trees)} arguments, not {_count(back)}"
            )
        found: list[Any] = []
        for one, cotangent in zip(trees, back, strict=True):
            if cotangent is None:
                found += [None] * len(_nabla.tree_leaves(one))
            else:
                found += matched(
                    "custom_vjp", "a result of bwd", one, cotangent
                )
        return [
            _zeros_for(x, c, "custom_vjp")
            for x, c in zip(like, self._split.places(found), strict=True)
        ]


def _count(x: Any) -> str:
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of {len(x)}"
    return f"a {type(x).__name__}"


class custom_jvp(_Custom):  # noqa: N801
    """A function with a forward mode of its own, given by defjvp:
    rule(primals, tangents) is (out, how out moves).  Arguments of
    nondiff_argnums come first in a call of the rule.

    >>> sine = nb.custom_jvp(nb.sin)
    >>> rule = sine.defjvp(lambda x, u: (nb.sin(x[0]), 2 * u[0]))
    >>> nb.grad(sine)(nb.constant(0.0))
    Tensor(2. : f32[])
    """

    _rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Says how results move; returns the rule."""
        self._rule = rule
        return rule

    def __call__(self, *args: Any) -> Any:
        if self._rule is None:
            raise AttributeError("custom_jvp: defjvp was not called")
        moving, apart = self._parts(args)
        split = _Split(tuple(args[i] for i in moving))
        x = split.tensors
        split.forget()
        others = [None if i in moving else a for i, a in enumerate(args)]
        out: list[PyTreeDef] = []
        fn, rule = self._fn, self._rule

        def f(inside: list[Tensor]) -> list[Tensor]:
            whole = others.copy()
            for i, tree in zip(moving, split.tree(inside), strict=True):
                whole[i] = tree
            leaves, structure = as_tensors(
                "custom_jvp", "the result", call("custom_jvp", fn, *whole)
            )
            out[:] = [structure]
            return leaves

        def moved(inside: list[Tensor]) -> list[Tensor]:
            n = len(inside) // 2
            primals, tangents = map(split.tree, (inside[:n], inside[n:]))
            pair = call("custom_jvp", rule, *apart, primals, tangents)
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise TypeError(
                    "custom_jvp: the rule returns (out, tangent_out), not a "
                    f"{type(pair).__name__}"
                )
            y, structure = as_tensors("custom_jvp", "the result", pair[0])
            if structure != out[0]:
                raise ValueError(
                    f"custom_jvp: the function returns {out[0]}, the rule "
                    f"{structure}"
                )
            u = matched("custom_jvp", "tangent_out", pair[0], pair[1])
            return y + [
                _zeros_for(a, b, "custom_jvp")
                for a, b in zip(y, u, strict=True)
            ]

        found = _nabla.custom("jvp", f, moved, None, x)
        return _nabla.tree_unflatten(out[0], found)


def _checked(policy: Any) -> Any:
    if policy is None or callable(policy):
        return policy
    if policy not in ("nothing", "dots", "everything"):
        raise ValueError(
            "checkpoint: policy is nothing, dots, everything or a function, "
            f"not {policy!r}"
        )
    return policy


class Inside:
    """A value inside a checkpointed function, of which a policy says whether it
    is kept: the op that makes it and its static arguments, its shape and dtype,
    and whether it is a contraction, a sum of products of operands."""

    __slots__ = ("contraction", "dtype", "kwargs", "op", "shape")

    def __init__(self, op: str, contraction: bool, x: Tensor) -> None:
        self.op, self.contraction = op, contraction
        self.kwargs = x.op_kwargs
        self.shape, self.dtype = x.shape, x.dtype

    def __repr__(self) -> str:
        return f"<{self.op}: {self.dtype}{list(self.shape)}>"


def _policy(policy: Any) -> Any:
    """As the engine takes it."""
    if policy in (None, "nothing"):
        return None
    if policy == "dots":
        return policy
    return lambda op, contraction, x: policy(Inside(op, contraction, x))


def checkpoint(
    fn: Callable[..., Any] | None = None, *, policy: Any = None
) -> Any:
    """The function, of whose inside nothing is kept for derivatives: it runs
    again then.  A policy says what is kept after all: "nothing", "dots" for the
    results of contractions, "everything", or a function that is asked about
    each value inside and answers with True for one to keep.

    >>> nb.grad(nb.checkpoint(lambda x: nb.sin(nb.sin(x))))(nb.constant(0.0))
    Tensor(1. : f32[])
    """
    policy = _checked(policy)
    if fn is None:
        return lambda f: checkpoint(f, policy=policy)
    if policy == "everything":
        return fn
    save = _policy(policy)

    @wraps(fn)
    def again(*args: Any, **kwargs: Any) -> Any:
        split = _Split((args, kwargs))
        x = split.tensors
        split.forget()
        out: list[PyTreeDef] = []

        def f(inside: list[Tensor]) -> list[Tensor]:
            given, named = split.tree(inside)
            leaves, structure = as_tensors(
                *("checkpoint", "the result"),
                call("checkpoint", fn, *given, **named),
            )
            out[:] = [structure]
            return leaves

        found = _nabla.custom("checkpoint", f, save, None, x)
        return _nabla.tree_unflatten(out[0], found)

    return again


remat = checkpoint
