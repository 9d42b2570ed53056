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
from fuzz_ops import (
    EXACT,
    MOST,
    RULES,
    SHAPES,
    Leaf,
    as_index,
    as_truth,
    fitted,
    real,
)
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
    if that is not known.  uses: all that it depends on.  fixed: parameters
    behind the others, of integers and truths.  axis: the name of the axis that
    a vmap around it maps, if it has one."""

    params: list
    out: object
    needs: list | None = None
    uses: frozenset = frozenset()
    fixed: list | None = None
    axis: str | None = None


def zeros(*shape, dtype="float64"):
    return np.broadcast_to(np.zeros((), dtype), shape)


def stacked(n, tree):
    """n trees in one."""
    return jax.tree.map(lambda a: zeros(n, *a.shape, dtype=a.dtype), tree)


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
        self.axes = []

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    # Values.

    def leaf(self, env, ref, exact=False):
        """What a reference stands for, made real unless it shall be exact: a
        Leaf, and what it depends on."""
        name, k = ref if ref[0] in env else (env[None], ref[1])
        value = env[name]
        paths = jax.tree_util.tree_flatten_with_path(value.tree)[0]
        k %= len(paths)
        path, x = paths[k]
        text, x = self.small(name + jax.tree_util.keystr(path), x)
        found = Leaf(text, x.shape, str(x.dtype))
        return found if exact else real(found), value.deps[k]

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
            leaf, more = self.leaf(env, next(source), exact=True)
            deps.update(more)
            leaf = Leaf(fitted(leaf, x.shape), x.shape, leaf.dtype)
            if x.dtype == np.int64:
                return as_index(leaf, 4)
            return as_truth(leaf) if x.dtype == bool else real(leaf).text

        return text_of(jax.tree.map(one, tree)), frozenset(deps)

    def fill_all(self, env, trees, refs):
        """The texts of trees, each of references from another one on."""
        texts, deps = [], frozenset()
        for i, tree in enumerate(trees):
            text, more = self.fill(env, tree, refs[i:] or refs)
            texts.append(text)
            deps |= more
        return texts, deps

    # Nodes.

    def node(self, env, node):
        if node.op in RULES:
            self.plain(env, node)
        else:
            getattr(self, node.op)(env, node, random.Random(node.seed))

    def plain(self, env, node):
        rule, _, operands = RULES[node.op]
        refs = itertools.islice(itertools.cycle(node.args), operands)
        given = [self.leaf(env, ref, node.op in EXACT) for ref in refs]
        deps = frozenset().union(*(d for _, d in given))
        options = {}
        if node.op == "lanes":
            options = {"axes": self.axes}
            deps |= {("axis", name) for name, _ in self.axes}
        r = random.Random(node.seed)
        text = rule(r, *(leaf for leaf, _ in given), **options)
        text, x = self.small(text, self.evaluated(text, env))
        self.line(f"{node.name} = {text}")
        env[node.name] = Value(x, [deps])

    def bind(self, env, node, text, tree, deps):
        self.line(f"{node.name} = {text}")
        env[node.name] = Value(tree, [deps] * len(leaves(tree)))

    def blend(self, env, node, r):
        x, deps = self.leaf(env, node.args[0])
        others = []
        for name, _ in node.args[1:]:
            name = name if name in env else env[None]
            tree, more = env[name]
            if is_discrete(tree):
                name = self.leaf(env, (name, 0))[0].text
            others.append(name)
            deps = deps.union(*more)
        text = x.text
        if others:
            rest = f"m.sum_of([{', '.join(others)}])"
            text = f"0.7 * {x.text} + 0.3 * m.sin(0.5 * {rest})"
        self.bind(env, node, text, zeros(*x.shape), deps)

    def call(self, env, node, r):
        name, made = self.transformed(node.fns[0], env)
        given = [*made.params, *made.fixed]
        texts, deps = self.fill_all(env, given, node.args)
        text = f"m.calm({name}({', '.join(texts)}))"
        self.bind(env, node, text, made.out, deps | made.uses)

    def scan(self, env, node, r):
        body, n = node.fns[0], r.randint(1, 4)
        made = self.function(body, env, carry=1)
        (carry, x), (_, y) = made.params, made.out
        texts, deps = self.fill_all(env, [carry, stacked(n, x)], node.args)
        options = ", reverse=True" if r.random() < 0.4 else ""
        text = f"m.scan({body.name}, {', '.join(texts)}{options})"
        out = carry, stacked(n, y)
        self.bind(env, node, text, out, deps | made.uses)

    def map(self, env, node, r):
        body, n = node.fns[0], r.randint(1, 4)
        made = self.function(body, env)
        xs, deps = self.fill(env, stacked(n, made.params[0]), node.args)
        text = f"m.map({body.name}, {xs})"
        self.bind(env, node, text, stacked(n, made.out), deps | made.uses)

    def fori(self, env, node, r):
        body = node.fns[0]
        made = self.function(body, env, carry=0)
        start, deps = self.fill(env, made.params[0], node.args)
        first, n = r.randint(-1, 2), r.randint(0, 3)
        step = f"lambda i, c: {body.name}(c, i)"
        text = f"m.fori_loop({first}, {first + n}, {step}, {start})"
        self.bind(env, node, text, made.out, deps | made.uses)

    def until(self, env, node, r):
        body = node.fns[0]
        made = self.apart(body, env, carry=0)
        start, deps = self.fill(env, made.params[0], node.args)
        least = r.choice([0.11, -0.31])
        test = f"lambda x: m.mean(m.tree_leaves(x)[0]) > {least}"
        text = f"m.until({r.randint(1, 4)}, {test}, {body.name}, {start})"
        self.bind(env, node, text, made.out, deps | made.uses)

    def branches(self, env, node, head):
        """A cond or a switch, by what stands at its head."""
        made = self.apart(node.fns[0], env)
        uses = made.uses
        for other in node.fns[1:]:
            uses |= self.apart(other, env, like=made).uses
        given, deps = self.fill_all(env, made.params, node.args)
        x, more = self.leaf(env, node.args[-1])
        text = f"{head(x)}, {', '.join(given)})"
        self.bind(env, node, text, made.out, deps | more | uses)

    def cond(self, env, node, r):
        yes, no = node.fns
        least = r.choice([0.05, -0.15])
        self.branches(
            *(env, node),
            lambda x: f"m.cond(m.mean({x}) > {least}, {yes.name}, {no.name}",
        )

    def switch(self, env, node, r):
        names = ", ".join(fn.name for fn in node.fns)
        less = r.randint(0, 1)
        self.branches(
            *(env, node),
            lambda x: f"m.switch(m.number(m.mean({x}), 4) - {less}, [{names}]",
        )

    # Functions.

    def function(self, fn, env, carry=None, like=None):
        """Writes a definition.  carry=0: the result is like the parameter;
        carry=1: it is a pair, the first like the first parameter."""
        env = dict(env)
        specs = [
            jax.tree.map(lambda s: zeros(*s.sizes, dtype=s.dtype), tree)
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

    def apart(self, fn, env, **options):
        """A function that not every lane may call, so it must not look at
        others: JAX would send back what another lane took a turn for."""
        around, self.axes = self.axes, []
        made = self.function(fn, env, **options)
        self.axes = around
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
        names = {i: f"{fn.name}_{i}" for i in named_maps(fn.layers)}
        around = self.axes
        self.axes = around + [
            (name, lanes_of(fn.layers[i])) for i, name in names.items()
        ]
        made = self.function(fn, env)
        discrete = [is_discrete(tree) for tree in made.params]
        n = len(discrete) - sum(discrete)
        made.params, made.fixed = made.params[:n], made.params[n:]
        name = fn.name
        own = {p for p, _ in fn.params}
        alone = all(use in own for use, _ in made.uses)
        for i, layer in enumerate(fn.layers):
            kind, made.axis = layer.kind, names.get(i)
            if kind.startswith("custom") and not alone:
                kind = "checkpoint"
            r = random.Random(layer.seed)
            text, new = LAYERS[kind](r, name, made)
            new.uses = made.uses
            if new.fixed is None:
                new.fixed = made.fixed
            made, name = new, f"{fn.name}{'abcdefgh'[i]}"
            self.line(f"{name} = {text}")
        self.axes = around
        return name, made


def is_discrete(tree):
    return any(x.dtype != np.float64 for x in leaves(tree))


def lanes_of(layer):
    """The size of a mapped axis."""
    return random.Random(layer.seed).choice([1, 2, 2, 3])


def named_maps(layers):
    """Which layers map an axis that has a name."""
    return [
        i
        for i, layer in enumerate(layers)
        if layer.kind == "vmap" and layer.seed % 5 < 3
    ]


def written(program):
    """The source of a program, and the trees of its arguments."""
    w = Writer()
    name, made = w.transformed(program, {})
    params = [*made.params, *made.fixed]
    names = [f"x{i}" for i in range(len(params))]
    w.line(f"return {name}({', '.join(names)})")
    head = f"def program(m, {', '.join(names)}):"
    return "\n".join([head, *w.lines, ""]), params


# Transforms: the text around a function, and the type of what comes out.

JACOBIAN = 400  # elements in one, at most


def arguments(made, letter="a"):
    return [f"{letter}{i}" for i in range(len(made.params))]


def closed(name, made):
    """The text of a function of reals alone, and the names of the others."""
    fixed = [f"n{i}" for i in range(len(made.fixed))]
    if not fixed:
        return name, []
    a = ", ".join(arguments(made))
    return f"(lambda {a}: {name}({a}, {', '.join(fixed)}))", fixed


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
    if r.random() < 0.15:
        f = f"m.total_aux({name}), argnums={at}, has_aux=True"
        out = ((zeros(), made.out), tree)
        return f"m.value_and_grad({f})", Type(made.params, out)
    text = f"m.value_and_grad({scalar(name, made)}, argnums={at})"
    return text, Type(made.params, (zeros(), tree))


def jvp(r, name, made):
    f, fixed = closed(name, made)
    a, b = arguments(made), arguments(made, "u")
    if r.random() < 0.4:
        u, params = text_of(tuple(f"m.wave({x})" for x in a)), made.params
        head = ", ".join(a + fixed)
    else:
        u, params = text_of(tuple(b)), made.params * 2
        head = ", ".join(a + b + fixed)
    if r.random() < 0.25:
        text = f"lambda {head}: m.linearize({f}, {', '.join(a)})[1](*{u})"
        return text, Type(params, made.out)
    given = text_of(tuple(a))
    if r.random() < 0.15:
        text = f"m.jvp(m.total_aux({f}), {given}, {u}, has_aux=True)"
        out = zeros(), zeros(), made.out
        return f"lambda {head}: {text}", Type(params, out)
    text = f"lambda {head}: m.jvp({f}, {given}, {u})"
    return text, Type(params, (made.out, made.out))


def vjp(r, name, made):
    f, fixed = closed(name, made)
    a, back = ", ".join(arguments(made)), tuple(made.params)
    if r.random() < 0.5:
        head = ", ".join([a, "ct", *fixed])
        text = f"lambda {head}: m.vjp({f}, {a})[1](ct)"
        return text, Type([*made.params, made.out], back)
    head = ", ".join([a, *fixed])
    if r.random() < 0.3:
        both = f"m.vjp(m.total_aux({f}), {a}, has_aux=True)"
        text = f"lambda {head}: (lambda y, f, z: (z, f(m.cos(y))))(*{both})"
        return text, Type(made.params, (made.out, back))
    both = f"m.vjp({f}, {a})"
    text = f"lambda {head}: (lambda y, f: (y, f(m.wave(y))))(*{both})"
    return text, Type(made.params, (made.out, back))


def hvp(r, name, made):
    f, fixed = closed(name, made)
    f = scalar(f, made)
    a = arguments(made)
    given = text_of(tuple(a))
    u = text_of(tuple(f"m.wave({x})" for x in a))
    head = ", ".join(a + fixed)
    if r.random() < 0.5:
        text = f"lambda {head}: m.hvp({f}, {given}, {u})"
    else:
        f = f"m.grad({f}, argnums={tuple(range(len(a)))})"
        text = f"lambda {head}: m.jvp({f}, {given}, {u})[1]"
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


def two_argnums(r, made, at, rows):
    """An argument and another one, if there is one that is not too large."""
    other = r.randrange(len(made.params))
    by = made.params[at], made.params[other]
    if other == at or rows * size(by) > JACOBIAN:
        return at, made.params[at]
    return (at, other), by


def jacobian(kind, power):
    def layer(r, name, made):
        at = one_argnum(r, made, power)
        if at is None:
            return grad(r, name, made)
        tree, out = made.params[at], made.out
        if size(out) * size(tree) ** power > JACOBIAN:
            name, out = scalar(name, made), zeros()
        by = tree
        if power == 1 and r.random() < 0.3:
            at, by = two_argnums(r, made, at, size(out))
        found = out
        for _ in range(power):
            found = blocks(found, by)
        options = f"argnums={at}"
        if power == 1 and r.random() < 0.2:
            name, options = f"m.with_aux({name})", options + ", has_aux=True"
            found = found, out
        return f"m.{kind}({name}, {options})", Type(made.params, found)

    return layer


def checkpoint(r, name, made):
    policy = r.choice(["", ", policy='dots'", ", policy='nothing'"])
    text = f"m.checkpoint({name}{policy})"
    return text, Type(made.params, made.out, made.needs)


def custom(kind):
    def layer(r, name, made):
        return f"m.with_{kind}({name})", Type(made.params, made.out, made.needs)

    return layer


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
        return zeros(*x.shape[:at], n, *x.shape[at:], dtype=x.dtype)

    flat, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, map(one, flat, axes))


def vmap(r, name, made):
    n = r.choice([1, 2, 2, 3])
    whole = [*made.params, *made.fixed]
    given = [axes_of(r, tree, maybe_place) for tree in whole]
    if all(a is None for _, axes in given for a in axes):
        k = r.randrange(len(given))
        given[k] = "0", [0] * len(leaves(whole[k]))
    mapped = {
        (i, k)
        for i, (_, axes) in enumerate(given)
        for k, a in enumerate(axes)
        if a is not None
    } | {("axis", made.axis)}
    params = [
        widened(tree, axes, n)
        for tree, (_, axes) in zip(whole, given, strict=True)
    ]
    results, axes = out_axes(r, made, mapped)
    texts = [text for text, _ in given]
    first = "0" if set(texts) == {"0"} else text_of(tuple(texts))
    text = f"m.vmap({name}, in_axes={first}, out_axes={results}"
    if made.axis:
        text += f", axis_name={made.axis!r}"
    new = Type(params, widened(made.out, axes, n))
    k = len(made.params)
    new.params, new.fixed = params[:k], params[k:]
    return text + ")", new


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
    "custom_jvp": custom("jvp"),
    "custom_vjp": custom("vjp"),
}
