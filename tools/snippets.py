#!/usr/bin/env python3
"""snippets.py PAGE - runs the C and Python programs on a Markdown page: each
must build against the public header and end well."""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path("build/snippets")


def run_c(text: str, name: str) -> None:
    program = str(FOLDER / name)
    Path(program + ".c").write_text(text)
    warnings = ["-Wall", "-Wextra", "-Werror"]
    library = ["-Iinclude", "-Lbuild", "-lnabla", "-lm", "-Wl,-rpath,build"]
    subprocess.run(
        ["cc", "-std=c17", *warnings, program + ".c", "-o", program, *library],
        check=True,
    )
    subprocess.run([program], check=True)


FOLDER.mkdir(exist_ok=True)
page = Path(sys.argv[1])
fence = re.compile(r"^```(c|python)\n(.*?)^```", re.M | re.S)
programs = fence.findall(page.read_text())
for number, (language, text) in enumerate(programs):
    if language == "c":
        run_c(text, f"{page.stem}-{number}")
    else:
        subprocess.run([sys.executable, "-c", text], check=True)
