"""Random programs as Python source.

def program(m, x0, ...) is written for both libraries: m is either.  While it is
written every name stands for a tree of zeros of the right shapes, by which the
rules choose what fits."""

import itertools
import math
import random
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from fuzz_ops import MOST, RULES, SHAPES, Leaf, fitted
from fuzz_programs import packed


class Value(NamedTuple):
    """A tree of zeros in place of what a name will stand for, and for each of
    its leaves the leaves of parameters that it depends on."""

    tree: object
    deps: list


@dataclass
class Type:
    """A function from trees to a tree.  needs: for each leaf of the result the
    leaves of parameters, (index, leaf), and whatever else it depends on; None
    if that is not known.  uses: all that it depends on."""

    params: list
    out: object
    needs: list | None = None
    uses: frozenset = frozenset()


def zeros(*shape):
    return np.broadcast_to(0.0, shape)


def leaves(tree):
    return jax.tree.leaves(tree)


def size(tree):
    return sum(x.size for x in leaves(tree))


def text_of(tree):
    """A tree whose leaves are texts, as text."""
    if isinstance(tree, dict):
        inner = (f"{k!r}: {text_of(v)}" for k, v in tree.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(tree, list):
        return f"[{', '.join(map(text_of, tree))}]"
    if isinstance(tree, tuple):
        return f"({''.join(text_of(x) + ', ' for x in tree).rstrip()})"
    return str(tree)


class Writer:
    """Lines of source, and the names that hold where they are written."""

    def __init__(self):
        self.lines = []
        self.depth = 1

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    # Values.

    def leaf(self, env, ref):
        """What a reference stands for: a Leaf, and what it depends on."""
        name, k = ref if ref[0] in env else (env[None], ref[1])
        value = env[name]
        paths = jax.tree_util.tree_flatten_with_path(value.tree)[0]
        k %= len(paths)
        path, x = paths[k]
        text, x = self.small(name + jax.tree_util.keystr(path), x)
        return Leaf(text, x.shape), value.deps[k]

    def small(self, text, x):
        """Large values are averaged over their first axes."""
        n = 0
        while math.prod(x.shape[n:]) > MOST:
            n += 1
        if n == 0:
            return text, x
        axes = tuple(range(n))
        return f"m.mean({text}, axis={axes})", zeros(*x.shape[n:])

    def evaluated(self, text, env):
        known = {k: v.tree for k, v in env.items() if k is not None}
        known |= {"m": SHAPES, "np": np}
        return zeros(*np.shape(eval(text, known)))

    def fill(self, env, tree, refs):
        """The text of a tree like this one, of what refs stand for."""
        source = itertools.cycle(refs or [(None, 0)])
        deps = set()

        def one(x):
            leaf, more = self.leaf(env, next(source))
            deps.update(more)
            return fitted(leaf, x.shape)

        return text_of(jax.tree.map(one, tree)), frozenset(deps)

    # Nodes.

    def node(self, env, node):
        if node.op in RULES:
            self.plain(env, node)
        else:
            getattr(self, node.op)(env, node, random.Random(node.seed))

    def plain(self, env, node):
        rule, _, operands = RULES[node.op]
        refs = itertools.islice(itertools.cycle(node.args), operands)
        given = [self.leaf(env, ref) for ref in refs]
        text = rule(random.Random(node.seed), *(leaf for leaf, _ in given))
        text, x = self.small(text, self.evaluated(text, env))
        self.line(f"{node.name} = {text}")
        env[node.name] = Value(x, [frozenset().union(*(d for _, d in given))])

    def bind(self, env, node, text, tree, deps):
        self.line(f"{node.name} = {text}")
        env[node.name] = Value(tree, [deps] * len(leaves(tree)))

    def call(self, env, node, r):
        name, made = self.transformed(node.fns[0], env)
        texts, deps = [], made.uses
        for i, tree in enumerate(made.params):
            text, more = self.fill(env, tree, node.args[i:] or node.args)
            texts.append(text)
            deps |= more
        text = f"m.calm({name}({', '.join(texts)}))"
        self.bind(env, node, text, made.out, deps)

    def scan(self, env, node, r):
        body, n = node.fns[0], r.randint(1, 4)
        made = self.function(body, env, carry=1)
        (carry, x), (_, y) = made.params, made.out
        start, deps = self.fill(env, carry, node.args)
        xs = jax.tree.map(lambda a: zeros(n, *a.shape), x)
        along, more = self.fill(env, xs, node.args[1:] or node.args)
        options = ", reverse=True" if r.random() < 0.4 else ""
        text = f"m.scan({body.name}, {start}, {along}{options})"
        ys = jax.tree.map(lambda a: zeros(n, *a.shape), y)
        self.bind(env, node, text, (carry, ys), deps | more | made.uses)

    def fori(self, env, node, r):
        body = node.fns[0]
        made = self.function(body, env, carry=0)
        start, deps = self.fill(env, made.params[0], node.args)
        text = f"m.fori({r.randint(1, 3)}, {body.name}, {start})"
        self.bind(env, node, text, made.out, deps | made.uses)

    def until(self, env, node, r):
        body = node.fns[0]
        made = self.function(body, env, carry=0)
        start, deps = self.fill(env, made.params[0], node.args)
        least = r.choice([0.11, -0.31])
        test = f"lambda x: m.mean(m.tree_leaves(x)[0]) > {least}"
        text = f"m.until({r.randint(1, 4)}, {test}, {body.name}, {start})"
        self.bind(env, node, text, made.out, deps | made.uses)

    def cond(self, env, node, r):
        yes, no = node.fns
        made = self.function(yes, env)
        other = self.function(no, env, like=made)
        given, deps = [], made.uses | other.uses
        for i, tree in enumerate(made.params):
            text, more = self.fill(env, tree, node.args[i:] or node.args)
            given.append(text)
            deps |= more
        x, more = self.leaf(env, node.args[-1])
        test = f"m.mean({x.text}) > {r.choice([0.05, -0.15])}"
        text = f"m.cond({test}, {yes.name}, {no.name}, {', '.join(given)})"
        self.bind(env, node, text, made.out, deps | more)

    # Functions.

    def function(self, fn, env, carry=None, like=None):
        """Writes a definition.  carry=0: the result is like the parameter;
        carry=1: it is a pair, the first like the first parameter."""
        env = dict(env)
        specs = [
            jax.tree.map(lambda s: zeros(*s.sizes), tree)
            for _, tree in fn.params
        ]
        if like:
            specs = like.params
        names = [name for name, _ in fn.params]
        self.line(f"def {fn.name}({', '.join(names)}):")
        self.depth += 1
        for name, tree in zip(names, specs, strict=True):
            marks = [frozenset([(name, k)]) for k in range(len(leaves(tree)))]
            env[name] = Value(tree, marks)
        uses = set()
        env[None] = fn.params[0][0]
        for node in fn.body:
            self.node(env, node)
            uses.update(*env[node.name].deps)
        made = self.result(fn, env, specs, carry, like)
        made.uses = frozenset(uses | made.uses)
        self.depth -= 1
        return made

    def result(self, fn, env, specs, carry, like):
        refs = [ref for ref in fn.outs if ref[0] in env] or [(env[None], 0)]
        found = [self.leaf(env, ref) for ref in refs]
        uses = frozenset().union(*(deps for _, deps in found))
        out = packed(random.Random(fn.seed), [leaf for leaf, _ in found])
        whole = jax.tree.map(lambda a: zeros(*a.shape), out)
        text = text_of(out)
        if carry == 0 or like:
            whole = like.out if like else specs[0]
            text, uses = self.fill(env, whole, refs)
        elif carry == 1:
            first, more = self.fill(env, specs[0], refs)
            text, whole = f"{first}, {text}", (specs[0], whole)
            uses |= more
        self.line(f"return {text}")
        return Type(specs, whole, self.needs(fn, out, found), uses)

    def needs(self, fn, out, found):
        """What each leaf of the result depends on, parameters by index."""
        index = {name: i for i, (name, _) in enumerate(fn.params)}
        needs = {
            leaf: {(index.get(name, name), k) for name, k in deps}
            for leaf, deps in found
        }
        return [needs[leaf] for leaf in leaves(out)]

    def transformed(self, fn, env):
        """Writes a function and the transforms around it: name and Type."""
        made = self.function(fn, env)
        name = fn.name
        for i, layer in enumerate(fn.layers):
            r = random.Random(layer.seed)
            text, new = LAYERS[layer.kind](r, name, made)
            new.uses = made.uses
            made, name = new, f"{fn.name}{'abcdefgh'[i]}"
            self.line(f"{name} = {text}")
        return name, made


def written(program):
    """The source of a program, and the trees of its arguments."""
    w = Writer()
    name, made = w.transformed(program, {})
    names = [f"x{i}" for i in range(len(made.params))]
    w.line(f"return {name}({', '.join(names)})")
    head = f"def program(m, {', '.join(names)}):"
    return "\n".join([head, *w.lines, ""]), made.params


# Transforms: the text around a function, and the type of what comes out.

JACOBIAN = 400  # elements in one, at most


def arguments(n):
    return [f"a{i}" for i in range(n)]


def scalar(name, made):
    """The function, or its total if it gives more than one number."""
    if isinstance(made.out, np.ndarray) and made.out.shape == ():
        return name
    return f"m.total({name})"


def some_argnums(r, made):
    n = len(made.params)
    if r.random() < 0.6:
        k = r.randrange(n)
        return k, made.params[k]
    some = tuple(r.sample(range(n), r.randint(1, n)))
    return some, tuple(made.params[k] for k in some)


def grad(r, name, made):
    at, tree = some_argnums(r, made)
    if r.random() < 0.15:
        text = f"m.grad(m.total_aux({name}), argnums={at}, has_aux=True)"
        return text, Type(made.params, (tree, made.out))
    text = f"m.grad({scalar(name, made)}, argnums={at})"
    return text, Type(made.params, tree)


def value_and_grad(r, name, made):
    at, tree = some_argnums(r, made)
    text = f"m.value_and_grad({scalar(name, made)}, argnums={at})"
    return text, Type(made.params, (zeros(), tree))


def jvp(r, name, made):
    a = arguments(len(made.params))
    given = text_of(tuple(a))
    if r.random() < 0.4:
        u, params = text_of(tuple(f"m.wave({x})" for x in a)), made.params
        head = ", ".join(a)
    else:
        b = [f"u{i}" for i in range(len(a))]
        u, params = text_of(tuple(b)), made.params * 2
        head = ", ".join(a + b)
    if r.random() < 0.25:
        text = f"lambda {head}: m.linearize({name}, {', '.join(a)})[1](*{u})"
        return text, Type(params, made.out)
    text = f"lambda {head}: m.jvp({name}, {given}, {u})"
    return text, Type(params, (made.out, made.out))


def vjp(r, name, made):
    a = ", ".join(arguments(len(made.params)))
    back = tuple(made.params)
    if r.random() < 0.5:
        text = f"lambda {a}, ct: m.vjp({name}, {a})[1](ct)"
        return text, Type([*made.params, made.out], back)
    text = f"lambda {a}: (lambda y, f: (y, f(m.wave(y))))(*m.vjp({name}, {a}))"
    return text, Type(made.params, (made.out, back))


def hvp(r, name, made):
    a = arguments(len(made.params))
    every = tuple(range(len(a)))
    f = f"m.grad({scalar(name, made)}, argnums={every})"
    u = text_of(tuple(f"m.wave({x})" for x in a))
    text = f"lambda {', '.join(a)}: m.jvp({f}, {text_of(tuple(a))}, {u})[1]"
    return text, Type(made.params, tuple(made.params))


def blocks(out, by):
    """The tree of a Jacobian: result of arguments."""
    return jax.tree.map(
        lambda y: jax.tree.map(lambda x: zeros(*y.shape, *x.shape), by), out
    )


def one_argnum(r, made, power):
    """An argument by which derivatives are not too many; or None."""
    some = [
        k
        for k, tree in enumerate(made.params)
        if size(tree) ** power <= JACOBIAN
    ]
    return r.choice(some) if some else None


def jacobian(kind, power):
    def layer(r, name, made):
        at = one_argnum(r, made, power)
        if at is None:
            return grad(r, name, made)
        tree, out = made.params[at], made.out
        if size(out) * size(tree) ** power > JACOBIAN:
            name, out = scalar(name, made), zeros()
        found = out
        for _ in range(power):
            found = blocks(found, tree)
        return f"m.{kind}({name}, argnums={at})", Type(made.params, found)

    return layer


def checkpoint(r, name, made):
    return f"m.checkpoint({name})", Type(made.params, made.out, made.needs)


def some_place(r, ndim):
    """Where an axis could be put."""
    return 0 if r.random() < 0.4 else r.randint(-ndim - 1, ndim)


def maybe_place(r, ndim):
    return None if r.random() < 0.3 else some_place(r, ndim)


def each_its_own(tree, axes):
    """The text of a tree of axes."""
    return text_of(jax.tree.unflatten(jax.tree.structure(tree), map(str, axes)))


def axes_of(r, tree, choose):
    """Axes of the leaves of a tree, as text and one by one.  Some trees have
    one axis, or None, for all."""
    flat = leaves(tree)
    if r.random() < 0.4:
        shared = choose(r, min(x.ndim for x in flat))
        if shared in (None, 0, -1):
            return str(shared), [shared] * len(flat)
    axes = [choose(r, x.ndim) for x in flat]
    return each_its_own(tree, axes), axes


def widened(tree, axes, n):
    """A tree with an axis more in each leaf that has one here."""

    def one(x, axis):
        if axis is None:
            return x
        at = axis if axis >= 0 else axis + x.ndim + 1
        return zeros(*x.shape[:at], n, *x.shape[at:])

    flat, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, map(one, flat, axes))


def vmap(r, name, made):
    n = r.choice([1, 2, 2, 3])
    given = [axes_of(r, tree, maybe_place) for tree in made.params]
    if all(a is None for _, axes in given for a in axes):
        k = r.randrange(len(given))
        given[k] = "0", [0] * len(leaves(made.params[k]))
    mapped = {
        (i, k)
        for i, (_, axes) in enumerate(given)
        for k, a in enumerate(axes)
        if a is not None
    }
    params = [
        widened(tree, axes, n)
        for tree, (_, axes) in zip(made.params, given, strict=True)
    ]
    whole, axes = out_axes(r, made, mapped)
    texts = [text for text, _ in given]
    first = "0" if set(texts) == {"0"} else text_of(tuple(texts))
    text = f"m.vmap({name}, in_axes={first}, out_axes={whole})"
    return text, Type(params, widened(made.out, axes, n))


def out_axes(r, made, mapped):
    """Axes of the results: None where nothing mapped leads to one."""
    text, axes = axes_of(r, made.out, some_place)
    if made.needs is None or all(need & mapped for need in made.needs):
        return text, axes
    axes = [
        None if not need & mapped and r.random() < 0.7 else a
        for need, a in zip(made.needs, axes, strict=True)
    ]
    return each_its_own(made.out, axes), axes


LAYERS = {
    "grad": grad,
    "value_and_grad": value_and_grad,
    "jvp": jvp,
    "vjp": vjp,
    "hvp": hvp,
    "vmap": vmap,
    "jacfwd": jacobian("jacfwd", 1),
    "jacrev": jacobian("jacrev", 1),
    "hessian": jacobian("hessian", 2),
    "checkpoint": checkpoint,
}
