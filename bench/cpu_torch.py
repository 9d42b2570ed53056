"""PyTorch as bench-cpu sees a library: the names of cpu_nabla.py.

Without compile; cpu_torch_compile.py adds it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

tree_map = pytree.tree_map


def __getattr__(name: str) -> Any:
    return getattr(torch, name)


def tree_leaves(tree: Any) -> list[Any]:
    """By the order of keys, as the others have it."""
    if isinstance(tree, dict):
        tree = [tree[k] for k in sorted(tree)]
    if isinstance(tree, list | tuple):
        return [leaf for x in tree for leaf in tree_leaves(x)]
    return [tree]


def array(x: Any) -> Any:
    return torch.from_numpy(x) if x.ndim else torch.tensor(x.item())


def compile(
    f: Callable[..., Any], donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    return f


def ready(tree: Any) -> Any:
    return tree


def numpy(x: Any) -> Any:
    return x.detach().float().numpy()


def softmax(x: Any, axis: int) -> Any:
    return torch.softmax(x, dim=axis)


def log_softmax(x: Any, axis: int) -> Any:
    return torch.log_softmax(x, dim=axis)


def take_along_axis(x: Any, i: Any, axis: int) -> Any:
    return torch.take_along_dim(x, i, dim=axis)


def grad(f: Callable[..., Any], arguments: Any = 0) -> Callable[..., Any]:
    return torch.func.grad(f, arguments)


def value_and_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    def both(*x: Any) -> Any:
        grads, value = torch.func.grad_and_value(f)(*x)
        return value, grads

    return both


def bfloat16(x: Any) -> Any:
    return x.to(torch.bfloat16)


def conv(x: Any, w: Any) -> Any:
    y = torch.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1)
    return y.permute(0, 2, 3, 1)


def random_key(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


def uniform(key: Any, n: int) -> Any:
    return torch.rand(n, generator=key)


def normal(key: Any, n: int) -> Any:
    return torch.randn(n, generator=key)
