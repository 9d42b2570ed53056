#!/usr/bin/env python3
"""mirror.py PACKAGE LIBRARY... - makes PACKAGE, a folder of the build, one that
imports: links to the files of python/nabla and to the libraries, which are the
extension and what it loads.  Links whose files are gone are removed."""

import sys
from pathlib import Path

source = Path(__file__).resolve().parent.parent / "python" / "nabla"
package, *libraries = (Path(arg).absolute() for arg in sys.argv[1:])

wanted = {package / library.name: library for library in libraries}
for pattern in ("*.py", "*.pyi", "py.typed"):
    for file in source.rglob(pattern):
        wanted[package / file.relative_to(source)] = file

for old in package.rglob("*"):
    if old.is_symlink() and old not in wanted:
        old.unlink()
for link, file in wanted.items():
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists() or not link.samefile(file):
        link.unlink(missing_ok=True)
        link.symlink_to(file)
