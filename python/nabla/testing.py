"""Help for tests: comparing and computing trees of tensors."""

from __future__ import annotations

from . import _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._nabla import Tensor

_op = _nabla.ops


def batch_realize(*objs: Any) -> None:
    """Computes every tensor in these trees, in one go."""
    _nabla.realize_all(*_nabla.tensor_leaves(objs))


def assert_allclose(
    actual: Any,
    expected: Any,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
    realize: bool = True,
) -> None:
    """Fails unless |actual - expected| <= atol + rtol |expected| everywhere.
    Both are trees of one structure whose leaves are tensors, numbers, arrays
    or anything else that speaks DLPack.

    >>> nb.testing.assert_allclose({"a": nb.ones(2)}, {"a": [1.0, 1.0]})
    """
    if realize:
        batch_realize(actual, expected)

    def compare(x: Any, y: Any) -> None:
        _compare(_doubles(x), _doubles(y), rtol, atol, equal_nan)

    try:
        _nabla.tree_map(compare, actual, expected)
    except ValueError as error:
        raise AssertionError(str(error)) from None


def _doubles(x: Any) -> Tensor:
    return _nabla.Tensor(x, dtype="float64")


def _compare(
    x: Tensor, y: Tensor, rtol: float, atol: float, equal_nan: bool
) -> None:
    if x.shape != y.shape and y.ndim:
        raise AssertionError(f"shapes {x.shape} and {y.shape} differ")
    error = _op["abs"](x - y)
    near = error <= atol + rtol * _op["abs"](y)
    close = (x == y) | (near & _op["isfinite"](y))
    if equal_nan:
        close = close | (_op["is_nan"](x) & _op["is_nan"](y))
    if bool(_op["all"](close)):
        return
    wrong = _op["nonzero"](~close)
    first = tuple(int(axis[0]) for axis in wrong)
    y = _op["broadcast_to"](y, x.shape)
    count = wrong[0].shape[0] if wrong else 1
    raise AssertionError(
        f"{count} of {x.num_elements()} elements are not close "
        f"(rtol={rtol}, atol={atol}); the first, at {first}, is "
        f"{x[first].item()}, not {y[first].item()}; the largest error is "
        f"{_op['reduce_max'](error).item()}"
    )
