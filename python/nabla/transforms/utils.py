"""Parts of the transforms, for those who write their own: which arguments are
meant, results with something beside them, bases of Jacobians."""

from __future__ import annotations

from operator import index

from .. import _nabla
from ._hidden import hidden, spread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from .._nabla import Tensor

    Argnums: TypeAlias = int | Sequence[int] | None

__all__ = [
    "collect_grads",
    "create_jacobian_helpers",
    "jacobian_budget",
    "lift_basis_to_batch_prefix",
    "realize_tensors",
    "resolve_argnums",
    "select_argnums",
    "split_aux",
    "std_basis",
]

_op = _nabla.ops


def split_aux(raw: Any, has_aux: bool, name: str = "has_aux") -> Any:
    """(output, aux) of a function that returns such a pair, else (raw, None).

    >>> nb.transforms.utils.split_aux((1, "more"), True)
    (1, 'more')
    """
    if not has_aux:
        return raw, None
    if not isinstance(raw, tuple) or len(raw) != 2:
        raise ValueError(
            f"{name}: with has_aux the function returns (output, aux), not a "
            f"{type(raw).__name__}"
        )
    return raw


def resolve_argnums(
    argnums: Argnums, n_args: int, name: str = "argnums"
) -> tuple[int, ...]:
    """The places of arguments that are meant, from 0; None: all.

    >>> nb.transforms.utils.resolve_argnums(-1, 3)
    (2,)
    """
    if argnums is None:
        return tuple(range(n_args))
    many = isinstance(argnums, (tuple, list))
    chosen = tuple(map(index, argnums if many else (argnums,)))  # type: ignore
    for i in chosen:
        if not -n_args <= i < n_args:
            raise ValueError(
                f"{name}: no argument {i}: {n_args} positional arguments were "
                "given"
            )
    chosen = tuple(i % n_args for i in chosen)
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{name}: an argument is listed twice: {argnums}")
    return chosen


def select_argnums(grads: Sequence[Any], argnums: Argnums) -> Any:
    """Those of all gradients that are meant: one for an int, else a tuple.

    >>> nb.transforms.utils.select_argnums(("a", "b"), 1)
    'b'
    """
    chosen = tuple(grads[i] for i in resolve_argnums(argnums, len(grads)))
    single = argnums is not None and not isinstance(argnums, (tuple, list))
    return chosen[0] if single else chosen


def collect_grads(
    grads: dict[Tensor, Tensor],
    input_leaves: Sequence[Any],
    *,
    skip_non_diff: bool = True,
) -> list[Tensor | None]:
    """A gradient for each leaf: the one found, zeros where none was, None for
    what has none (numbers and other objects; integer tensors)."""
    real = set(_nabla.real_leaves(list(input_leaves)))

    def of(i: int, leaf: Any) -> Tensor | None:
        if not isinstance(leaf, _nabla.Tensor):
            return None
        if skip_non_diff and i not in real:
            return None
        found = grads.get(leaf)
        zeros: Callable[..., Tensor] = _op["zeros_like"]
        return zeros(leaf) if found is None else found

    return [of(i, leaf) for i, leaf in enumerate(input_leaves)]


def realize_tensors(tensors: Any) -> None:
    """Computes every tensor of a tree, in one go."""
    _nabla.realize_all(*_nabla.tensor_leaves(tensors))


def create_jacobian_helpers(
    fn: Callable[..., Any], argnums: Argnums, args: Sequence[Any]
) -> tuple[tuple[Any, ...], Callable[..., Any]]:
    """The arguments that are meant, and fn as a function of them alone."""
    chosen = resolve_argnums(argnums, len(args))

    def partial(*given: Any) -> Any:
        whole = list(args)
        for i, arg in zip(chosen, given, strict=True):
            whole[i] = arg
        return fn(*whole)

    return tuple(args[i] for i in chosen), partial


def std_basis(
    flat_tensors: Sequence[Tensor],
) -> tuple[list[int], list[Tensor]]:
    """Element counts, and for each tensor its part of the basis of all of them
    together: one-hot tensors of shape (total, *shape).

    >>> nb.transforms.utils.std_basis([nb.zeros(1), nb.zeros(())])[1][1]
    Tensor([0. 1.] : f32[2])
    """
    sizes = [x.num_elements() for x in flat_tensors]
    total, before = sum(sizes), 0
    basis = []
    for x, size in zip(flat_tensors, sizes, strict=True):
        rows = _op["eye"](total, size, k=-before, dtype=x.dtype)
        basis.append(_op["reshape"](rows, (total, *x.shape)))
        before += size
    return sizes, basis


def lift_basis_to_batch_prefix(
    basis: Sequence[Tensor], references: Sequence[Tensor]
) -> list[Tensor]:
    """Each tensor with the hidden axes of its reference too."""
    if len(basis) != len(references):
        raise ValueError(
            f"{len(basis)} tensors of a basis for {len(references)} references"
        )
    return [
        spread(b, hidden(x)) for b, x in zip(basis, references, strict=True)
    ]


def jacobian_budget(bytes: int | None = None) -> int:
    """About how many bytes a Jacobian may need at a time before it is taken in
    pieces; sets it, if given.

    >>> nb.transforms.utils.jacobian_budget()
    1073741824
    """
    return _nabla.jacobian_budget(bytes)
