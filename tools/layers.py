#!/usr/bin/env python3
"""layers.py - fails when a file under src/ includes from a folder that
src/LAYERS does not allow it, or when a file that stands on the public header
reaches past it, or past what lies beside it.  Files in src/ are included by
their path from there."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = ("include", "python/src", "examples", "bench")


def allowed() -> dict[str, set[str]]:
    """Folder -> folders it may include from, itself among them."""
    layers: dict[str, set[str]] = {}
    for line in (ROOT / "src" / "LAYERS").read_text().splitlines():
        if row := line.partition("#")[0].split():
            layers.setdefault(row[0], set()).update(row)
    return layers


def includes(folder: Path) -> Iterator[tuple[Path, int, Path]]:
    """Every #include "...": file, line, what is included; not the public
    header, which all may see."""
    for file in sorted(folder.rglob("*")):
        if file.suffix not in (".c", ".h", ".def"):
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s*"([^"]*)"', line)
            if found and not found[1].startswith("nabla/"):
                yield file.relative_to(ROOT), number, Path(found[1])


def breaches() -> Iterator[str]:
    layers = allowed()
    for file, line, target in includes(ROOT / "src"):
        folder = file.parent.relative_to("src").as_posix()
        if target.parent.as_posix() not in layers.get(folder, ()):
            yield f"{file}:{line}: {folder} may not include {target}"
    for outside in OUTSIDE:
        for file, line, target in includes(ROOT / outside):
            beside = ".." not in target.parts
            if not beside or not (ROOT / file.parent / target).is_file():
                yield f"{file}:{line}: only nabla/ may be included here"


found = list(breaches())
for breach in found:
    print(breach, file=sys.stderr)
sys.exit(bool(found))
