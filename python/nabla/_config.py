"""Switches of the process, and its caches."""

from __future__ import annotations

import os
from types import ModuleType

from . import _nabla

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


class Config(ModuleType):
    """Switches, read and set as attributes; where the engine has the choice,
    they say how it is made.

    check          compare compiled code with the reference
    deterministic  the same bits at every run
    num_threads    threads that may be used; None: as many as there are cores
    cache_dir      folder of compiled code; None: the usual one
    """

    check: bool
    deterministic: bool
    num_threads: int | None
    cache_dir: str | None

    def __init__(self, name: str) -> None:
        super().__init__(name, Config.__doc__)
        ask = os.environ.get
        self.__dict__.update(
            check=ask("NABLA_CHECK", "0") not in ("", "0"),
            deterministic=False,
            num_threads=_number(ask("NABLA_NUM_THREADS")),
            cache_dir=ask("NABLA_CACHE_DIR"),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
            return
        if name not in _CHECKS:
            raise AttributeError(f"config has no switch {name!r}")
        if not _CHECKS[name](value):
            raise ValueError(f"config.{name} cannot be {value!r}")
        _TELL.get(name, lambda v: None)(value)
        self.__dict__[name] = value

    def set(self, **switches: Any) -> Switched:
        """A context manager: within it switches have other values.

        >>> with nb.config.set(check=True):
        ...     nb.config.check
        True
        """
        for name in switches:
            if name not in _CHECKS:
                raise AttributeError(f"config has no switch {name!r}")
        return Switched(self, switches)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "check": _is_bool,
    "deterministic": _is_bool,
    "num_threads": lambda v: v is None or (type(v) is int and v > 0),
    "cache_dir": lambda v: v is None or isinstance(v, (str, os.PathLike)),
}


def _set_threads(n: int | None) -> None:
    _nabla.threads(_DEFAULT_THREADS if n is None else n)


def _set_cache_dir(path: str | os.PathLike[str] | None) -> None:
    _nabla.set_cache_dir(None if path is None else os.fspath(path))


_DEFAULT_THREADS = _nabla.threads(None)
_TELL: dict[str, Callable[[Any], None]] = {
    "check": _nabla.set_check,
    "num_threads": _set_threads,
    "cache_dir": _set_cache_dir,
}


class Switched:
    """What Config.set returns."""

    __slots__ = ("_config", "_new", "_old")

    def __init__(self, config: Config, new: dict[str, Any]) -> None:
        self._config, self._new = config, new

    def __enter__(self) -> Config:
        self._old = {name: getattr(self._config, name) for name in self._new}
        for name, value in self._new.items():
            setattr(self._config, name, value)
        return self._config

    def __exit__(self, *error: object) -> None:
        for name, value in self._old.items():
            setattr(self._config, name, value)


config = Config("nabla.config")


def clear_caches() -> None:
    """Drops what can be made again, the programs of compiled functions too;
    live tensors stay valid."""
    _nabla.clear_caches()


def cache_stats() -> dict[str, int]:
    """Of the compiled code of this process, kernels of cards too: how often
    it was found, in memory or on disk, how often it had to be made, and, of the
    CPU's, its bytes in use."""
    here, on_disk, misses, size = _nabla.cache_stats()
    return {"hits": here + on_disk, "misses": misses, "bytes": size}
