"""Token files: the numbers of words of a text, two bytes each.

nanoGPT and llm.c make them; those of llm.c have 256 words of four bytes in
front, the first of which is a sign.  A file that is not called .bin is text,
and its bytes are the tokens."""

import math
import mmap
from pathlib import Path

import nabla as nb

SIGN = (20240520).to_bytes(4, "little")
HEADER = 1024  # bytes


class Tokens:
    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if path.suffix != ".bin":
            wide = bytearray(2 * len(raw))
            wide[::2] = raw
            self._all = memoryview(wide).cast("H")
        else:
            begin = HEADER if raw[:4] == SIGN else 0
            end = begin + (len(raw) - begin) // 2 * 2
            self._all = memoryview(raw)[begin:end].cast("H")

    def windows(self, first: int, shape: tuple[int, ...], most: int):
        """As many windows as the shape has, from the first on, in the order of
        the file, over and over.  A window ends with the token that the next one
        begins with: there is something to say after each of its others."""
        *outer, size = shape
        count = (len(self._all) - 1) // (size - 1)
        if count < 1:
            raise ValueError(f"a file of {len(self._all)} tokens is too short")
        rows = []
        for i in range(first, first + math.prod(outer)):
            at = i % count * (size - 1)
            rows.append(self._all[at : at + size])
        taken = b"".join(rows)
        if max(memoryview(taken).cast("H")) >= most:
            raise ValueError(f"a token is not among {most}")
        return nb.constant(memoryview(taken).cast("H", shape))
