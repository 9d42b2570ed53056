#!/usr/bin/env python3
"""tidy.py - fails on files that do not belong in the repository and on text
with tabs, trailing blanks, foreign line ends or no end at all."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

OUTSIDE = {".git", ".venv", "__pycache__", ".hypothesis"}
MADE = {".o", ".a", ".so", ".pyc", ".whl", ".gz", ".orig", ".rej", ".swp"}
TABBED = {"Makefile"}
LARGEST = 1 << 20


def files(folder: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.is_dir(follow_symlinks=False):
            hidden = entry.name.endswith("_cache") or entry.name in OUTSIDE
            if not hidden and not entry.name.startswith("build"):
                yield from files(Path(entry.path))
        elif entry.name != ".git":
            yield Path(entry.path)


def faults(path: Path) -> Iterator[str]:
    if path.suffix in MADE:
        yield "is made by a tool"
        return
    data = path.read_bytes()
    if len(data) > LARGEST:
        yield f"has {len(data)} bytes, more than {LARGEST}"
    if b"\0" in data:
        return
    if data and (not data.endswith(b"\n") or data.endswith(b"\n\n")):
        yield "does not end in one line end"
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.endswith(b"\r"):
            yield f"{number}: carriage return"
        elif line != line.rstrip():
            yield f"{number}: trailing blanks"
        if b"\t" in line and path.name not in TABBED:
            yield f"{number}: tab"


root = Path(__file__).resolve().parent.parent
found = [f"{p.relative_to(root)}: {f}" for p in files(root) for f in faults(p)]
for fault in found:
    print(fault)
sys.exit(bool(found))
