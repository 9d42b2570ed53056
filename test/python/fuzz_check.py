"""Random programs, run by Nabla and by JAX and compared; one that they disagree
on is cut down and printed.

    python test/python/fuzz_check.py FIRST [COUNT]

checks the programs of the seeds from FIRST on, COUNT of them; of one alone the
source is printed too.  tools/fuzz runs many."""

import gc
import sys
import time
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from fuzz_ops import JAX, NABLA, RULES
from fuzz_programs import Shape, made_up
from fuzz_writer import text_of, written

import nabla as nb

# XLA spends most of its time on making fast what runs once here.  With these
# options it does not, and is wrong now and then (in the gradient of a hypot):
# where the two libraries disagree it is asked again without.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
CAREFUL = {"xla_cpu_use_fusion_emitters": True}
RTOL = 1e-9
PLAINEST = 31  # the seed of a sine


class Case(NamedTuple):
    """A program that can be called, and arrays for it."""

    source: str
    run: object
    args: list


class Failure(NamedTuple):
    kind: str
    text: str


def case_of(program, seed=0):
    source, params = written(program)
    names = {"np": np}
    exec(compile(source, "<program>", "exec"), names)
    rng = np.random.default_rng(seed)

    def drawn(x):
        some = rng.uniform(-1.0, 1.0, x.shape)
        if x.dtype == bool:
            return np.asarray(some > 0.0)
        return np.asarray(2.0 * some + 2.0 if x.dtype == int else some, x.dtype)

    return Case(source, names["program"], jax.tree.map(drawn, params))


@cache
def has_option(name, value):
    """Whether the compiler of this JAX has it: they come and go."""
    try:
        jax.jit(jnp.sin).lower(1.0).compile({name: value})
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


def there_are(options):
    return {k: v for k, v in options.items() if has_option(k, v)}


def jax_answers(case, flat=True):
    """What JAX says, trees of arrays: in a hurry, then with care, then op by
    op, since its compiler errs at times (seed 3920, where an axis has one
    element).  flat: its functions are no jits of their own in the program,
    which takes a third less time; but loops of no turns are not allowed then.
    """

    def run(*x):
        with jax.disable_jit(flat):
            return case.run(JAX, *x)

    with jax.enable_x64(True):
        given = jax.tree.map(jnp.asarray, case.args)
        staged = jax.jit(run).lower(*given)
    for options in (QUICK, CAREFUL):
        with jax.enable_x64(True):
            found = staged.compile(there_are(options))(*given)
        yield jax.tree.map(np.asarray, found)
    with jax.enable_x64(True):
        found = case.run(JAX, *given)
    yield jax.tree.map(np.asarray, found)


def nabla_answer(case):
    given = jax.tree.map(nb.constant, case.args)
    found = case.run(NABLA, *given)
    nb.realize_all(*nb.tree_leaves(found))
    return nb.tree_map(lambda x: x.numpy(), found)


def nabla_answers(case):
    """The same thrice: a program that comes back may be compiled."""
    return [nabla_answer(case) for _ in range(3)]


def differ(got, want):
    """The first leaf that is not as it should be, as a Failure; or None."""
    got, made = jax.tree_util.tree_flatten_with_path(got)
    want, wanted = jax.tree_util.tree_flatten_with_path(want)
    if made != wanted:
        return Failure("structure", f"got {made}\nwant {wanted}")
    for (path, x), (_, y) in zip(got, want, strict=True):
        where = jax.tree_util.keystr(path) or "the result"
        if x.shape != y.shape or x.dtype != y.dtype:
            text = f"{where}: got {x.dtype}{x.shape}, want {y.dtype}{y.shape}"
            return Failure("shape", text)
        most = RTOL * np.max(np.abs(y), initial=1e-3)
        if not np.allclose(x, y, rtol=RTOL, atol=most):
            text = f"{where}, off by {np.max(np.abs(x - y))}:\n"
            return Failure("value", f"{text}got {x!r}\nwant {y!r}")
    return None


class Unfit(Exception):
    """JAX has no finite answer, or the form gives no program."""


def check(program, seed=0):
    """None, or how Nabla fails."""
    try:
        case = case_of(program, seed)
    except Exception as error:
        raise Unfit(f"not written: {error!r}") from error
    try:
        found = nabla_answers(case)
    except Exception as error:
        return Failure("raise", f"{type(error).__name__}: {error}")
    failure = None
    try:
        for want in jax_answers(case):
            failures = [differ(got, want) for got in found]
            failure = next(filter(None, failures), None)
            if failure is None:
                return None
    except Exception as error:
        raise Unfit(f"JAX: {type(error).__name__}: {error}") from error
    if not all(np.isfinite(y).all() for y in jax.tree.leaves(want)):
        raise Unfit("JAX: not finite")
    return failure


# Cutting down.


def without(items, start, n):
    return items[:start] + items[start + n :]


def cuts(items, least=0):
    """A tuple with a half, a quarter, ... one item left out."""
    n = len(items)
    while n > 0:
        for start in range(0, len(items), n):
            left = without(items, start, n)
            if len(left) >= least:
                yield left
        n //= 2


def smaller_shapes(tree):
    """A tree of shapes with one leaf, with fewer axes, with shorter ones."""
    if isinstance(tree, Shape):
        sizes = tree.sizes
        less = [s for s in cuts(sizes) if s != sizes]
        for i, n in enumerate(sizes):
            less += [(*sizes[:i], k, *sizes[i + 1 :]) for k in range(1, n)]
        yield from (Shape(*s, dtype=tree.dtype) for s in less)
    elif isinstance(tree, dict):
        yield from tree.values()
        for k, v in tree.items():
            yield from ({**tree, k: s} for s in smaller_shapes(v))
    else:
        yield from tree
        for i, v in enumerate(tree):
            for s in smaller_shapes(v):
                yield type(tree)([*tree[:i], s, *tree[i + 1 :]])


def redirected(fn, name, ref):
    """The function with one value for another, wherever it is used."""

    def refs(old):
        return tuple(ref if r[0] == name else r for r in old)

    body = tuple(
        replace(
            node,
            args=refs(node.args),
            fns=tuple(redirected(inner, name, ref) for inner in node.fns),
        )
        for node in fn.body
    )
    return replace(fn, body=body, outs=refs(fn.outs))


def simpler(fn, i):
    """The function with its i-th node left out, or with less in it."""
    before, node, after = fn.body[:i], fn.body[i], fn.body[i + 1 :]
    for arg in node.args:
        left_out = replace(fn, body=(*before, *after))
        yield redirected(left_out, node.name, arg)
    for k, inner in enumerate(node.fns):
        if k == 0:
            yield replace(fn, body=(*before, *inner.body, *after))
        for less in smaller(inner):
            fns = (*node.fns[:k], less, *node.fns[k + 1 :])
            yield replace(fn, body=(*before, replace(node, fns=fns), *after))
    others = []
    if node.op in RULES and (node.op, node.seed) != ("unary", PLAINEST):
        others += [
            replace(node, op="unary", args=(arg,), seed=PLAINEST)
            for arg in node.args
        ]
    if len(node.args) > 1:
        others += [replace(node, args=a) for a in cuts(node.args, 1)]
    for other in others:
        yield replace(fn, body=(*before, other, *after))


def smaller(fn):
    """Functions with a little less in them than this one."""
    yield from (replace(fn, layers=s) for s in cuts(fn.layers))
    yield from (replace(fn, body=s) for s in cuts(fn.body))
    yield from (replace(fn, outs=s) for s in cuts(fn.outs, 1))
    for i in range(len(fn.body)):
        yield from simpler(fn, i)
    if len(fn.params) > 1:
        yield from (replace(fn, params=s) for s in cuts(fn.params, 1))
    for i, (name, tree) in enumerate(fn.params):
        for less in smaller_shapes(tree):
            params = (*fn.params[:i], (name, less), *fn.params[i + 1 :])
            yield replace(fn, params=params)


def shrunk(program, failure, seed=0, seconds=60.0):
    """A small program that fails in the same way, and how it does."""
    end = time.monotonic() + seconds
    seen = set()

    def fails(candidate):
        try:
            source = written(candidate)[0]
            if source in seen:
                return None
            seen.add(source)
            found = check(candidate, seed)
        except Exception:
            return None
        return found if found and found.kind == failure.kind else None

    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for candidate in smaller(program):
            if time.monotonic() > end:
                break
            found = fails(candidate)
            if found:
                program, failure, progress = candidate, found, True
                break
    return program, failure


HEAD = """\
import numpy as np
import nabla as nb
from fuzz_ops import JAX, NABLA  # what the two libraries spell differently

"""


def report(program, failure, seed):
    """The program as source for both libraries, and what they say."""
    case = case_of(program, seed)
    given = f"ARGS = {show(case.args)}"
    tail = (
        f"\n{given}\n"
        "got = program(NABLA, *nb.tree_map(nb.constant, ARGS))\n"
        "# with jax.enable_x64(True):\n"
        "#     want = program(JAX, *jax.tree.map(jnp.asarray, ARGS))\n"
    )
    said = "\n".join("# " + line for line in failure.text.splitlines())
    return f"{HEAD}{case.source}{tail}# {failure.kind}\n{said}\n"


def show(tree):
    if isinstance(tree, np.ndarray):
        return f"np.array({tree.tolist()})"
    return text_of(jax.tree.map(show, tree))


def count(program):
    """Operations of a program."""
    return sum(
        1 + sum(count(inner) for inner in node.fns) for node in program.body
    )


def tried(seed, seconds=60.0):
    """None if the program of a seed passes; what to print if not."""
    program = made_up(seed)
    try:
        failure = check(program, seed)
    except Unfit as error:
        return f"seed {seed}: {error}\n"
    if failure is None:
        return None
    small, said = shrunk(program, failure, seed, seconds)
    head = f"seed {seed}: {failure.kind}, the smallest such program:\n"
    return head + report(small, said, seed)


def main(first, n=1):
    # Tracing makes many objects, few of which are garbage.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    if n == 1:
        print(written(made_up(first))[0])
    for seed in range(first, first + n):
        print(f"seed {seed}", flush=True)
        said = tried(seed)
        print(said or "ok", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
