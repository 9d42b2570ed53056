#!/usr/bin/env python3
"""docs.py - writes the reference manual to build/docs as Markdown: the chapters
of the public header as they stand, the op catalogue as libnabla tells it, and
the pages of docs/."""

import ctypes
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "docs"


def chapter(header: Path) -> str:
    """A header as a page: its opening comment as prose, the rest as code."""
    opening, rest = header.read_text().split("*/", 1)
    prose = re.sub(r"^ ?(/\*| \*) ?", "", opening, flags=re.M)
    guard = r"^#(ifndef|define) NABLA_\w*H\n"
    linkage = r"^#ifdef __cplusplus\n.*?^#endif\n\n?"
    code = re.sub(f"{guard}|{linkage}", "", rest, flags=re.M | re.S)
    code = code.removesuffix("#endif\n").strip()
    title, _, text = prose.strip().partition(" - ")
    return f"# {title}\n\n{text[:1].upper()}{text[1:]}\n\n```c\n{code}\n```\n"


def catalogue() -> str:
    """Every op: how it is called, the axes it relates, what it means."""
    library = ctypes.CDLL(str(ROOT / "build" / "libnabla.so"))

    def ask(function: str, op: int) -> str:
        call = getattr(library, function)
        call.restype, call.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
        return (call(op) or b"").decode()

    at = library.nb_op_at
    at.restype, at.argtypes = ctypes.c_void_p, [ctypes.c_int]
    page, number = ["# The op catalogue\n"], 0
    while op := at(number):
        name, params = ask("nb_op_name", op), ask("nb_op_params", op)
        page.append(f"## {name}\n\n`{name}({params})`\n")
        if axes := ask("nb_op_signature", op):
            page.append(f"Axes: `{axes}`\n")
        page.append(ask("nb_op_doc", op) + "\n")
        if example := ask("nb_op_example", op):
            page.append(f"```\n{example}\n```\n")
        number += 1
    return "\n".join(page)


shutil.rmtree(OUT, ignore_errors=True)
shutil.copytree(ROOT / "docs", OUT) if (ROOT / "docs").is_dir() else OUT.mkdir()
for header in sorted((ROOT / "include" / "nabla").glob("*.h")):
    (OUT / f"{header.stem}.md").write_text(chapter(header))
(OUT / "catalogue.md").write_text(catalogue())
print(f"docs: {len(list(OUT.rglob('*.md')))} pages in {OUT.relative_to(ROOT)}")
