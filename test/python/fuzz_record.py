"""JAX's answers to the random programs of the test suite, in a file: JAX takes
a hundred times as long as Nabla to give them.

    python test/python/fuzz_record.py [COUNT]

asks JAX again and writes the file.  An answer counts only for the very program
and the arguments that it was given to; without one JAX is asked on the spot."""

import hashlib
import sys
from functools import cache
from pathlib import Path

import fuzz_check
import jax
import numpy as np
from fuzz_check import (
    case_of,
    differ,
    jax_answers,
    made_up,
    nabla_answer,
    nabla_answers,
)

FILE = Path(__file__).parent / "data" / "programs.npz"
PROGRAMS = 200


def digest(*parts):
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else str(part).encode())
    return int.from_bytes(found.digest()[:8], "little")


def of_case(case):
    """What tells a program and its arguments from others."""
    arrays = [x.tobytes() for x in jax.tree.leaves(case.args)]
    return digest(case.source, *arrays)


def of_tree(tree):
    """What tells trees of arrays from others but for their values."""
    leaves, structure = jax.tree.flatten(tree)
    return digest(structure, *((x.dtype, x.shape) for x in leaves))


def flat(tree):
    some = [np.ravel(x) for x in jax.tree.leaves(tree)]
    return np.concatenate([np.zeros(0), *some])


def like(tree, values):
    """Values in place of those of a tree."""
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([x.size for x in leaves])[:-1]
    parts = np.split(values, ends)
    return jax.tree.unflatten(
        structure,
        [
            v.reshape(x.shape).astype(x.dtype)
            for v, x in zip(parts, leaves, strict=True)
        ],
    )


@cache
def recorded():
    """Digests of programs, each with that of the answer and its values."""
    with np.load(FILE) as file:
        programs, trees, sizes, values = (
            file[k] for k in ("programs", "trees", "sizes", "values")
        )
    parts = np.split(values, np.cumsum(sizes)[:-1])
    pairs = zip(trees.tolist(), parts, strict=True)
    return dict(zip(programs.tolist(), pairs, strict=True))


def agrees(case, got):
    """Whether an answer is the recorded one; no if there is none."""
    tree, values = recorded().get(of_case(case), (None, None))
    return tree == of_tree(got) and differ(got, like(got, values)) is None


def tried(seed, seconds=60.0):
    """None if the program of a seed passes; what to print if not."""
    try:
        case = case_of(made_up(seed), seed)
        if all(agrees(case, got) for got in nabla_answers(case)):
            return None
    except Exception:
        pass  # it will raise again, and be cut down
    return fuzz_check.tried(seed, seconds)


def asked(seed):
    """A line of the file: what JAX says, where Nabla says the same."""
    case = case_of(made_up(seed), seed)
    got = nabla_answer(case)
    for want in jax_answers(case):
        if differ(got, want) is None:
            return of_case(case), of_tree(want), flat(want)
    sys.exit(f"the libraries disagree on the program of the seed {seed}")


def main(n=PROGRAMS):
    programs, trees, values = zip(*map(asked, range(n)), strict=True)
    FILE.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        FILE,
        programs=np.array(programs, np.uint64),
        trees=np.array(trees, np.uint64),
        sizes=np.array([v.size for v in values]),
        values=np.concatenate(values),
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
