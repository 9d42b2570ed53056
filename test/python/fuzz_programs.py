"""Random programs: their form, and how they come about.

A program is a function of trees with transforms around it.  Its body is a list
of nodes, each an operation, a loop, a branch, or the call of another function,
which sees the values around it and has transforms of its own.  Nodes name their
operands and keep a seed for all else; axes, shapes and the like are chosen when
the program is written out (fuzz_writer.py), to fit.  A reference to a node that
is not there means the first argument.  So any part can be taken away and a
program is left."""

import itertools
import math
import random
from dataclasses import dataclass, field, replace

from fuzz_ops import RULES


@dataclass(frozen=True)
class Layer:
    """A transform, and the seed of its options."""

    kind: str
    seed: int


@dataclass(frozen=True)
class Node:
    """name = op(args), where args name values and say which of their leaves."""

    name: str
    op: str
    args: tuple[tuple[str, int], ...]
    seed: int
    fns: tuple["Function", ...] = ()


@dataclass(frozen=True)
class Function:
    """params are pairs (name, tree of Shape), the last of them may be discrete;
    layers go from inside out."""

    name: str
    params: tuple
    body: tuple[Node, ...]
    outs: tuple[tuple[str, int], ...]
    seed: int
    layers: tuple[Layer, ...] = ()


class Shape:
    """A leaf of a tree of shapes: of reals, or of integers or truths."""

    def __init__(self, *sizes, dtype="float64"):
        self.sizes = sizes
        self.dtype = dtype

    def __repr__(self):
        return f"Shape{self.sizes}"


def packed(r, items):
    """Some trees in one."""
    kind = r.choice(["tuple", "list", "dict", "nested"])
    if len(items) == 1 and r.random() < 0.6:
        return items[0]
    if kind == "nested" and len(items) > 1:
        cut = r.randint(1, len(items) - 1)
        items = [packed(r, items[:cut]), packed(r, items[cut:])]
    if kind == "dict":
        return dict(zip("abcdefgh", items, strict=False))
    return items if kind == "list" else tuple(items)


# Making them up.

# Transforms, and the order of the derivatives that they take.
ORDER = {
    "grad": 1,
    "value_and_grad": 1,
    "jvp": 1,
    "vjp": 1,
    "hvp": 2,
    "vmap": 0,
    "jacfwd": 1,
    "jacrev": 1,
    "hessian": 2,
    "checkpoint": 0,
    "custom_jvp": 0,
    "custom_vjp": 0,
}


LOOPS = ["scan", "fori", "until", "map", "cond", "switch"]


@dataclass
class Maker:
    """Draws a program; left counts what may still be drawn."""

    r: random.Random
    names: itertools.count = field(default_factory=itertools.count)
    used: set = field(default_factory=set)

    def name(self, letter):
        return f"{letter}{next(self.names)}"

    def shape(self):
        r = self.r
        rank = r.choice([0, 1, 1, 2, 2, 2, 3])
        sizes = [r.choice([1, 2, 2, 3, 3, 4]) for _ in range(rank)]
        while math.prod(sizes) > 12:
            sizes.pop()
        return Shape(*sizes)

    def tree(self, most=3, discrete=0.0):
        n = self.r.choice([1, 1, 1, 2, most])
        some = [self.shape() for _ in range(n)]
        if self.r.random() < discrete:
            some.append(self.discrete())
        return packed(self.r, some)

    def discrete(self):
        """Of integers or truths."""
        dtype = self.r.choice(["int64", "int64", "bool"])
        return Shape(*self.shape().sizes, dtype=dtype)

    def refs(self, seen, n):
        """Names of values, more often late ones and such as have no use."""
        r, found = self.r, []
        for _ in range(n):
            idle = [name for name in seen[-8:] if name not in self.used]
            some = seen[-4:] if r.random() < 0.6 else seen
            if idle and r.random() < 0.5:
                some = idle
            found.append((r.choice(some), r.randrange(8)))
            self.used.add(found[-1][0])
        return tuple(found)

    def layers(self, depth, order):
        """Transforms to a depth, with derivatives up to an order."""
        some = []
        for _ in range(depth):
            kind = self.r.choice([*ORDER, "vmap", "vmap", "vmap"])
            if ORDER[kind] > order:
                kind = self.r.choice(["vmap", "vmap", "checkpoint"])
            order -= ORDER[kind]
            some.append(Layer(kind, self.r.getrandbits(32)))
        return tuple(some), order

    def function(self, n, seen, depth, order, params=None, nest=0):
        """A function of n nodes that sees some names."""
        r = self.r
        if params is None:
            k = r.choice([1, 1, 2, 2, 3])
            params = [(self.name("p"), self.tree()) for _ in range(k)]
            if r.random() < 0.25:
                params.append((self.name("n"), self.discrete()))
        around = len(seen)
        seen = seen + [name for name, _ in params]
        blended = n > 1 and r.random() < 0.85
        n -= blended
        body = []
        while n > 0:
            node, used = self.node(n, seen, depth, order, nest)
            body.append(node)
            seen = [*seen, node.name]
            n -= used
        if blended:
            own = [name for name, _ in params]
            body.append(self.blend(seen[around:], own))
            seen = [*seen, body[-1].name]
        outs = self.refs(seen, r.choice([0, 0, 1, 2]))
        last = ((seen[-1], 0),)
        seed = r.getrandbits(32)
        return Function(
            self.name("f"), tuple(params), tuple(body), last + outs, seed
        )

    def blend(self, seen, own):
        """The last value, all parameters and what had no use before: so that
        most derivatives are not zero."""
        idle = [name for name in seen[:-1] if name not in {*own, *self.used}]
        self.used.update(seen)
        args = tuple((name, 0) for name in (seen[-1], *own, *idle))
        return Node(self.name("v"), "blend", args, 0)

    def node(self, n, seen, depth, order, nest):
        r = self.r
        if n < 3 or nest > 2 or r.random() < 0.8:
            rules = list(RULES)
            weights = [RULES[k][1] for k in rules]
            op = r.choices(rules, weights)[0]
            return Node(
                self.name("v"),
                op,
                self.refs(seen, RULES[op][2]),
                r.getrandbits(32),
            ), 1
        op = r.choice(["call"] * 5 + LOOPS)
        inner = r.randint(1, min(n - 1, 10))
        if op == "call":
            fns = (self.called(inner, seen, depth, order, nest),)
        else:
            fns = self.bodies(op, inner, seen, depth, order, nest)
        node = Node(
            self.name("t"), op, self.refs(seen, 3), r.getrandbits(32), fns
        )
        return node, inner + 1

    def called(self, n, seen, depth, order, nest):
        k = self.r.choice([0, 1, 1, 2, 2, 3]) if depth else 0
        k = min(k, depth)
        layers, order = self.layers(k, order)
        if any(layer.kind.startswith("custom") for layer in layers):
            seen = []  # rules do not see what is around them
        fn = self.function(n, seen, depth - k, order, nest=nest + 1)
        return replace(fn, layers=layers)

    def bodies(self, op, n, seen, depth, order, nest):
        """The functions of a loop, or of a branch, one for each way."""
        k = {"scan": 2, "cond": self.r.randint(1, 2)}.get(op, 1)
        ways = {"cond": 2, "switch": 3}.get(op, 1)
        params = [(self.name("p"), self.tree(2, 0.2)) for _ in range(k)]
        if op == "fori":
            params.append((self.name("n"), Shape(dtype="int64")))
        return tuple(
            self.function((n + i) // ways, seen, depth, order, params, nest + 1)
            for i in range(ways)
        )


MOST_NODES = {0: 60, 1: 60, 2: 40, 3: 24, 4: 14}  # by order of derivatives


def made_up(seed):
    """The program of a seed."""
    r = random.Random(seed)
    maker = Maker(r)
    depth = r.choice([0, 1, 1, 2, 2, 3, 3, 4, 4])
    order = r.choice([1, 2, 2, 3, 4])
    n = round(5 * (MOST_NODES[order] / 5) ** r.random())
    layers, left = maker.layers(depth, order)
    fn = maker.function(n, [], 4 - depth, left)
    return replace(fn, layers=layers)
