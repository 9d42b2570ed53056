"""Who keeps parameters and the state of the optimizer: all devices, or each a
part (ZeRO).

Training is data parallel in all cases, and the step is the same function; only
where things lie differs.  Data parallel: parameters and state everywhere, an
all-reduce of gradients.  ZeRO-1: the state of Adam is split, so each device
updates its part of a parameter, and the new parts are gathered.  FSDP (ZeRO-3):
parameters are split too and gathered where they are used, since that moves less
than the batch would; their gradients are summed straight into parts, by
reduce-scatter."""

import math

from common.training import compare, say, train

import nabla as nb

WIDTH, BATCH, STEPS, RATE = 16, 256, 60, 0.01

Tree = dict[str, nb.Tensor]
mesh = nb.DeviceMesh("pod", (4,), ("dp",))


def loss_of(p: Tree, x: nb.Tensor, y: nb.Tensor) -> nb.Tensor:
    h = nb.tanh(nb.tanh(x @ p["in"]) @ p["mid"])
    return nb.mean(nb.square(h @ p["out"] - y))


def like(x: nb.Tensor, y: nb.Tensor) -> nb.Tensor:
    """x where y is; nothing on one device."""
    if y.sharding is None:
        return x
    return nb.reshard(x, mesh, y.sharding.dim_specs)


@nb.compile
def step(state: dict, x: nb.Tensor, y: nb.Tensor) -> tuple[nb.Tensor, dict]:
    """One of Adam.  The gradient goes where its moments are, and what is new of
    a parameter back to where that was."""
    p, m, v, t = (state[k] for k in ("p", "m", "v", "t"))
    loss, g = nb.value_and_grad(loss_of)(p, x, y)
    g = nb.tree_map(like, g, m)
    m = nb.tree_map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = nb.tree_map(lambda v, g: 0.99 * v + 0.01 * nb.square(g), v, g)
    a, b = 1 - 0.9**t, 1 - 0.99**t

    def update(p: nb.Tensor, m: nb.Tensor, v: nb.Tensor) -> nb.Tensor:
        return like(p - RATE * m / a / (nb.sqrt(v / b) + 1e-8), p)

    return loss, {"p": nb.tree_map(update, p, m, v), "m": m, "v": v, "t": t + 1}


def held(*trees: Tree) -> int:
    """Bytes on the first device."""
    leaves = [t for tree in trees for t in tree.values()]
    return sum(4 * math.prod(t.local_shape) for t in leaves)


def placed(tree: Tree, spec: nb.P) -> Tree:
    return {k: t.shard(mesh, spec) for k, t in tree.items()}


a, b, c, d = nb.random.split(nb.random.key(0), 4)
x = nb.random.normal(a, (BATCH, WIDTH))
y = nb.sin(x.sum(1, keepdims=True))
p = {
    "in": nb.random.normal(b, (WIDTH, 4 * WIDTH), std=WIDTH**-0.5),
    "mid": nb.random.normal(c, (4 * WIDTH, WIDTH), std=0.2),
    "out": nb.random.normal(d, (WIDTH, 1), std=0.2),
}
zero = nb.tree_map(nb.zeros_like, p)
start = nb.constant(1.0)
one = train(step, STEPS, {"p": p, "m": zero, "v": zero, "t": start}, x, y)

x_split, y_split = (t.shard(mesh, nb.P("dp")) for t in (x, y))
schemes = {
    "data parallel": (nb.P(), nb.P()),
    "ZeRO-1": (nb.P(), nb.P("dp")),
    "FSDP": (nb.P("dp"), nb.P("dp")),
}
for name, (of_p, of_state) in schemes.items():
    say(f"{name}: parameters {of_p}, state {of_state}")
    moments = placed(zero, of_state)
    first = {"p": placed(p, of_p), "m": moments, "v": moments, "t": start}
    moves = nb.explain(step)(first, x_split, y_split)
    say(moves.table)
    scattered = any(c.kind == "reduce_scatter" for c in moves.collectives)
    assert scattered == (name != "data parallel")

    many = train(step, STEPS, first, x_split, y_split)
    new, m, v = (many[1][k] for k in ("p", "m", "v"))
    say(f"on each device: parameters {held(new)} B, state {held(m, v)} B")
    assert new["in"].sharding.dim_specs[0].axes == list(of_p)
    assert m["in"].sharding.dim_specs[0].axes == list(of_state)
    compare(many, one, 1e-4)
