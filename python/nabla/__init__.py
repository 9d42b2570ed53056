"""Nabla: tensors that differentiate, vectorise, compile and distribute.

>>> import nabla as nb
>>> nb.sum(nb.arange(4) * 0.5)
Tensor(3. : f32[])
"""

from __future__ import annotations

import sys as _sys
from types import ModuleType as _Module

from . import _nabla

_nabla.set_home(__file__.removesuffix("__init__.py"))

from . import (  # noqa: E402
    _array_api,
    _collective,
    _config,
    _devices,
    _dtypes,
    _functions,
    _interop,
    _operations,
    _placement,
    _rules,
    _table,
    _tensor,
    debug,
    distributed,  # noqa: F401
    linalg,  # noqa: F401
    random,
    transforms,
)
from .transforms import _hidden  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__: str = _nabla.version
__array_api_version__ = "2024.12"
__array_namespace_info__ = _array_api.__array_namespace_info__


def _gather() -> dict[str, object]:
    """Everything that can be named, from all over the package."""
    listed, parts = _table.NAMES.split(), set(_table.PARTS.split())
    found: dict[str, object] = {
        n: f for n, f in _nabla.ops.items() if n not in parts
    }
    found |= {n: getattr(_nabla, n) for n in _table.EXTENSION.split()}
    homes = (_interop, _dtypes, _devices, _functions, _config, _operations)
    for home in (*homes, _placement, _collective, debug, transforms, _hidden):
        there = vars(home)
        found |= {n: there[n] for n in listed if n in there}
    found.update(random.STATEFUL)
    found.update({d.name: d for d in _dtypes.DType})
    found.update(e=2.718281828459045, pi=3.141592653589793)
    found.update(inf=float("inf"), nan=float("nan"), newaxis=None)
    for alias, name in _table.ALIASES.items():
        if name in found:
            found[alias] = found[name]
    return found


def _module(path: str, names: dict[str, object], late: str = "") -> None:
    """Makes nabla.<path>, a module of names that are defined elsewhere; those
    that are late are looked up when they are asked for."""
    wanted = late.split()
    if not names and not wanted:
        return
    module = _Module(f"nabla.{path}")

    def find(name: str) -> object:
        if name in wanted:
            return _sharded(name)
        raise AttributeError(f"module 'nabla.{path}' has no attribute {name!r}")

    module.__dict__.update(names, __all__=[*names, *wanted])
    if wanted:
        module.__dict__["__getattr__"] = find
    _enter(path, module)


def _sharded(name: str) -> object:
    """One of the types of sharding, which need dataclasses: heavy."""
    from . import _sharding

    found: object = getattr(_sharding, name)
    return found


def _enter(path: str, module: _Module) -> None:
    outer, _, name = path.rpartition(".")
    home = f"nabla.{outer}" if outer else "nabla"
    setattr(_sys.modules[home], name, module)
    _sys.modules[f"nabla.{path}"] = module


def _modules(found: dict[str, object]) -> None:
    def pick(names: str, more: dict[str, Any]) -> dict[str, object]:
        there: dict[str, object] = {**more, **found}
        return {n: there[n] for n in names.split() if n in there}

    own = {"ensure_tensor": _nabla.ensure_tensor}
    every = " ".join(_table.FAMILIES.values())
    inner = vars(_functions) | vars(_hidden) | vars(_collective)
    _module("ops", pick(every, inner) | own)
    for family, names in _table.FAMILIES.items():
        _module(f"ops.{family}", pick(names, inner))
    traces = "trace Trace forward_on_trace"
    trees = pick(f"{_table.PYTREE} {traces}", vars(transforms))
    _module("core", trees, _table.SHARDING)
    rules = pick(_table.RULES, vars(_rules))
    for path, names in _table.LATE.items():
        has = path in _table.RULES_IN.split()
        _module(path, rules if has else {}, names)
    whole = "tree_flatten_full tree_unflatten_full"
    _module("core.common", pick(f"{_table.PYTREE} {whole}", vars(_nabla)))
    _enter("config", _config.config)


def _methods(found: dict[str, object]) -> None:
    methods: dict[str, object] = {
        n: m for n, m in _nabla.methods.items() if n in found
    }
    methods |= {n: found[n] for n in _table.METHODS.split()}
    for alias, name in _table.ALIASES.items():
        if name in methods:
            methods[alias] = methods[name]
    _tensor.attach(methods)


def __getattr__(name: str) -> object:
    if name == "testing":
        import nabla.testing

        return nabla.testing
    if name == "CompilationStats":  # with it comes dataclasses, which is heavy
        return transforms.CompilationStats
    if name in _LATE:
        return _sharded(name)
    raise AttributeError(f"module 'nabla' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATE])


_LATE = {"testing", "CompilationStats"} | (
    {*_table.SHARDING.split()} & {*_table.NAMES.split()}
)
_found = _gather()
globals().update(_found)
_modules(_found)
_methods(_found)
__all__ = [
    n
    for n in dict.fromkeys([*_table.NAMES.split(), *_found])
    if n in globals() or n in _LATE
]
