#!/usr/bin/env python3
"""symbols.py LIBRARY - fails unless the library exports exactly what the public
header declares NB_API."""

import re
import subprocess
import sys


def output(*command: str) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout


def declared() -> set[str]:
    """The names behind NB_API in the preprocessed header."""
    text = output("gcc", "-E", "-P", "-Iinclude", "include/nabla/nabla.h")
    text = re.sub(r"\s+", " ", text)
    mark = r'__attribute__\(\(visibility\("default"\)\)\)'
    names = set()
    for declaration in re.findall(mark + "([^;{]*)", text):
        plain = re.sub(r"__attribute__ ?\(\(.*?\)\)\)?", "", declaration)
        name = re.search(r"(\w+) ?(?:\(|\[|$)", plain.strip())
        names.add(name[1] if name else declaration)
    return names


def exported(library: str) -> set[str]:
    return {
        line.split()[-1].split("@")[0]
        for line in output("nm", "-D", "--defined-only", library).splitlines()
    }


there, promised = exported(sys.argv[1]), declared()
for name in sorted(there - promised):
    print(f"{name}: exported, but not declared NB_API in nabla/nabla.h")
for name in sorted(promised - there):
    print(f"{name}: declared NB_API in nabla/nabla.h, but not exported")
print(f"{len(promised)} declared, {len(there)} exported")
sys.exit(there != promised)
