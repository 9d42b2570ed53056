"""torch.compile as bench-cpu sees a library."""

from collections.abc import Callable
from typing import Any

import cpu_torch
import torch


def __getattr__(name: str) -> Any:
    return getattr(cpu_torch, name)


def compile(
    f: Callable[..., Any], donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    return torch.compile(f)
