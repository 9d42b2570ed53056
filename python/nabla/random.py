"""Random numbers from explicit keys, and from the generator of the process.

A key is a uint32[2] tensor.  What is drawn is a function of the key: use each
key once, and make new ones from it with split and fold_in.

>>> a, b = nb.random.split(nb.random.key(42))
>>> nb.random.randint(a, (3,), 0, 10).shape
(3,)
"""

from __future__ import annotations

from . import _devices, _functions, _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._functions import DeviceLike, DTypeLike, Shape
    from ._nabla import ArrayLike, Tensor

_op = _nabla.ops

__all__ = [
    "bernoulli",
    "categorical",
    "fold_in",
    "key",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]


def key(seed: int) -> Tensor:
    """The key of a seed."""
    x: Tensor = _op["random_key"](seed)
    return x


def split(key: ArrayLike, num: int = 2) -> Tensor:
    """num keys made from one, of shape (num, 2)."""
    x: Tensor = _op["random_split"](key, num)
    return x


def fold_in(key: ArrayLike, data: ArrayLike) -> Tensor:
    """A key made from a key and an integer, say the number of a step."""
    x: Tensor = _op["random_fold_in"](key, data)
    return x


def uniform(
    key: ArrayLike,
    shape: Shape = (),
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike = None,
) -> Tensor:
    """Numbers evenly from low to below high."""
    x: Tensor = _op["random_uniform"](key, shape, low, high, dtype)
    return x


def normal(
    key: ArrayLike,
    shape: Shape = (),
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DTypeLike = None,
) -> Tensor:
    """Numbers from a normal distribution."""
    x: Tensor = _op["random_normal"](key, shape, mean, std, dtype)
    return x


def truncated_normal(
    key: ArrayLike,
    lower: float,
    upper: float,
    shape: Shape = (),
    dtype: DTypeLike = None,
) -> Tensor:
    """Numbers from the standard normal distribution between two bounds."""
    x: Tensor = _op["random_truncated_normal"](key, lower, upper, shape, dtype)
    return x


def bernoulli(
    key: ArrayLike, p: ArrayLike = 0.5, shape: Shape | None = None
) -> Tensor:
    """True with probability p, whose shape it has if none is given."""
    x: Tensor = _op["random_bernoulli"](key, p, shape)
    return x


def randint(
    key: ArrayLike,
    shape: Shape,
    low: int,
    high: int,
    dtype: DTypeLike = "int64",
) -> Tensor:
    """Integers from low to below high."""
    x: Tensor = _op["random_randint"](key, shape, low, high, dtype)
    return x


def categorical(
    key: ArrayLike,
    logits: ArrayLike,
    axis: int = -1,
    shape: Shape | None = None,
) -> Tensor:
    """Indices along an axis, with the probabilities that logits say."""
    x: Tensor = _op["random_categorical"](key, logits, axis, shape)
    return x


def permutation(key: ArrayLike, x: ArrayLike, axis: int = 0) -> Tensor:
    """x, or the integers below x, in another order."""
    y: Tensor = _op["random_permutation"](key, x, axis)
    return y


# At top level: each takes the next key of the process when it is called, on the
# device where the numbers are to be.


def _drawn(
    device: DeviceLike, draw: Callable[..., Tensor], *args: Any
) -> Tensor:
    return _devices.made(device, lambda: draw(_nabla.next_key(), *args))


def _uniform(
    shape: Shape = (),
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers evenly from low to below high.

    >>> nb.uniform((2, 3)).shape
    (2, 3)
    """
    x = _drawn(device, uniform, shape, low, high, dtype)
    return _functions._made(x, requires_grad)


def _gaussian(
    shape: Shape = (),
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from a normal distribution.

    >>> nb.gaussian((2, 3)).shape
    (2, 3)
    """
    x = _drawn(device, normal, shape, mean, std, dtype)
    return _functions._made(x, requires_grad)


def _rand(
    shape: Shape,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers evenly from 0 to below 1.

    >>> nb.rand(2).shape
    (2,)
    """
    return _uniform(
        shape, dtype=dtype, device=device, requires_grad=requires_grad
    )


def _randn(
    shape: Shape,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from the standard normal distribution.

    >>> nb.randn(2).shape
    (2,)
    """
    return _gaussian(
        shape, dtype=dtype, device=device, requires_grad=requires_grad
    )


def _randint(
    low: int,
    high: int,
    shape: Shape,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers from low to below high.

    >>> nb.randint(0, 10, (2,)).dtype
    DType.int64
    """
    x = _drawn(device, randint, shape, low, high, dtype or "int64")
    return _functions._made(x, requires_grad)


STATEFUL = {
    "uniform": _uniform,
    "gaussian": _gaussian,
    "rand": _rand,
    "randn": _randn,
    "randint": _randint,
}
for _name, _function in STATEFUL.items():
    _function.__name__ = _function.__qualname__ = _name
    _function.__module__ = "nabla"
