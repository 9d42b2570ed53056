#!/usr/bin/env python3
"""stubs.py PACKAGE OUT - writes the type stubs of the package into OUT, and
links them into PACKAGE, the package of the build, from which they are made:
ops have the arguments that the catalogue declares, functions of Python their
own annotations, and the rest of Tensor is what python/nabla/_nabla.pyi says."""

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

package, out = (Path(arg).absolute() for arg in sys.argv[1:])
sys.dont_write_bytecode = True
sys.path.insert(0, str(package.parent))

import nabla  # noqa: E402
from nabla import _nabla, _table  # noqa: E402
from nabla._dtypes import DType  # noqa: E402

SOURCE = Path(__file__).resolve().parent.parent / "python" / "nabla"

TYPES = {
    "tensor": "ArrayLike",
    "tensors": "Sequence[ArrayLike]",
    "int": "int",
    "bool": "bool",
    "float": "float",
    "axis": "int",
    "axes": "int | Sequence[int]",
    "newaxis": "int",
    "dtype": "DType | str",
    "text": "str",
    "ints": "int | Sequence[int]",
}


# Names in the annotations of the package's functions.
HINTS = (
    "Axes",
    "DTypeLike",
    "DeviceLike",
    "Shape",
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
)


def parameter(text: str) -> str:
    """ "axis:axes=None" -> "axis: int | Sequence[int] | None = None" """
    declared, equals, default = text.partition("=")
    name, _, kind = declared.strip().partition(":")
    if name == "*":
        return name
    hint = TYPES.get(kind.removesuffix("?") or "tensor", "Any")
    if default.strip() == "None" or kind.endswith("?"):
        hint += " | None"
    return f"{name}: {hint} = ..." if equals else f"{name}: {hint}"


def parameters(op: str) -> list[str]:
    text = _nabla.op_info(op)["params"]
    parts = re.split(r",\s*(?![^(]*\))", text) if text else []
    return [parameter(part) for part in parts]


def result(op: str) -> str:
    number = _nabla.op_info(op)["results"]
    if number < 2:
        return "Tensor" if number else "list[Tensor]"
    return f"tuple[{', '.join(['Tensor'] * number)}]"


def of_op(name: str, op: str) -> str:
    return f"def {name}({', '.join(parameters(op))}) -> {result(op)}: ..."


def of_method(name: str, op: str) -> str:
    given = ", ".join(["self", *parameters(op)[1:]])
    return f"def {name}({given}) -> {result(op)}: ..."


def of_function(name: str, function: Any, first: str | None) -> str:
    """A function of Python, whose annotations are texts; `first` is another
    name for its first argument."""
    signature = inspect.signature(function)
    given = [
        p if p.default is p.empty else p.replace(default=...)
        for p in signature.parameters.values()
    ]
    if first:
        given[0] = given[0].replace(name=first, annotation=given[0].empty)
    text = str(signature.replace(parameters=given))
    return f"def {name}{text}: ...".replace("'", "").replace("Ellipsis", "...")


def op_of(function: object) -> str | None:
    """The op that a function or a method of the extension is."""
    for table in (_nabla.ops, _nabla.methods):
        for name, one in table.items():
            if one is function:
                return str(name)
    return None


def method(name: str, found: Any) -> str:
    """A method that is not in the stub by hand, so an op or of Python."""
    if isinstance(found, staticmethod):
        return "@staticmethod\n    " + of_function(name, found.__func__, None)
    if op := op_of(found):
        return of_method(name, op)
    return of_function(name, found, "self")


def extension() -> str:
    """_nabla.pyi with all methods of Tensor."""
    text = (SOURCE / "_nabla.pyi").read_text()
    head, rest = text.split("class Tensor:\n")
    body, tail = re.split(r"^(?=\S)", rest, maxsplit=1, flags=re.M)
    declared = set(re.findall(r"^    (?:def )?(\w+)[(:]", body, flags=re.M))
    more = [
        f"    {method(name, found)}"
        for name, found in sorted(vars(_nabla.Tensor).items())
        if name not in declared and not name.startswith("_")
    ]
    head += f"from ._functions import {', '.join(HINTS)}\n"
    head += "from ._placement import DimSpecs, MeshAxes\n\nclass Tensor:\n"
    return head + body.rstrip() + "\n".join(["", *more, "", tail])


def imported(module: str, name: str, alias: str) -> str:
    return f"from {module} import {name} as {alias}"


def named(name: str) -> str:
    """How the stub of the package says what nabla.<name> is."""
    found = getattr(nabla, name)
    target = _table.ALIASES.get(name, name)
    if target != name and getattr(nabla, target, None) is found:
        return f"{name} = {target}"
    if isinstance(found, DType):
        return f"{name} = DType.{found.name}"
    if isinstance(found, float) or found is None:
        return f"{name}: {'None' if found is None else 'float'}"
    if isinstance(found, ModuleType):
        config = name == "config"
        return imported("._config" if config else ".", name, name)
    if op := op_of(found):
        return of_op(name, op).replace(": bool", ": _bool")
    if name in nabla.random.STATEFUL:
        return imported(".random", f"_{name}", name)
    home = found.__module__.removeprefix("nabla.")
    if home in ("nabla", "_nabla"):
        home = "_nabla"
    return imported(f".{home}", name, name)


def top() -> str:
    names = sorted(nabla.__all__, key=lambda n: n in _table.ALIASES)
    lines = [named(name) for name in names]
    lines.sort(key=lambda line: not line.startswith("from"))
    return "\n".join(
        [
            "from builtins import bool as _bool",
            "from collections.abc import Sequence",
            "from typing import Any",
            "from ._nabla import ArrayLike",
            "from ._array_api import (",
            "    __array_namespace_info__ as __array_namespace_info__,",
            ")",
            *lines,
            "__version__: str",
            "__array_api_version__: str",
            f"__all__ = {nabla.__all__!r}",
            "",
        ]
    )


def module(path: str) -> str:
    """A module of the table: its names, from where they are."""
    lines, there = [], sys.modules[path]
    late = {name: getattr(there, name) for name in vars(there)["__all__"]}
    for name, found in (vars(there) | late).items():
        if name.startswith("__"):
            continue
        if isinstance(found, ModuleType):
            lines.append(f"from . import {name} as {name}")
        elif name in nabla.__all__:
            lines.append(imported("nabla", name, name))
        else:
            home = found.__module__
            lines.append(imported(home, name, name))
    return "\n".join([*lines, ""])


def written(files: dict[str, str]) -> Iterable[Path]:
    for name, text in files.items():
        file = out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        yield file


files = {"__init__.pyi": top(), "_nabla.pyi": extension()}
made = sorted(
    path
    for path in sys.modules
    if path.startswith(("nabla.ops", "nabla.core"))
)
for path in made:
    inner = any(other.startswith(path + ".") for other in made)
    name = path.removeprefix("nabla.").replace(".", "/")
    files[f"{name}/__init__.pyi" if inner else f"{name}.pyi"] = module(path)
for file in written(files):
    link = package / file.relative_to(out)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(file)
