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
def step(p: Tree, m: Tree, v: Tree, t: nb.Tensor, x: nb.Tensor, y: nb.Tensor):
    """One of Adam.  The gradient goes where the state is, and what is new of a
    parameter back to where that was."""
    loss, g = nb.value_and_grad(loss_of)(p, x, y)
    a, b = 1 - 0.9**t, 1 - 0.99**t
    for k in p:
        grad = like(g[k], m[k])
        m[k] = 0.9 * m[k] + 0.1 * grad
        v[k] = 0.99 * v[k] + 0.01 * nb.square(grad)
        move = m[k] / a / (nb.sqrt(v[k] / b) + 1e-8)
        p[k] = like(p[k] - RATE * move, p[k])
    return loss, p, m, v


def train(p: Tree, state: Tree, x: nb.Tensor, y: nb.Tensor):
    losses, m, v = [], state, state
    for i in range(STEPS):
        t = nb.constant(1.0 + i)
        loss, p, m, v = step(dict(p), dict(m), dict(v), t, x, y)
        losses.append(loss.item())
    return losses, p, m, v


def say(text: object) -> None:
    """Once for all processes, which have all made the text."""
    if nb.distributed.rank() == 0:
        print(str(text).rstrip())


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
expected, single, _, _ = train(p, zero, x, y)

x_split, y_split = (t.shard(mesh, nb.P("dp")) for t in (x, y))
schemes = {
    "data parallel": (nb.P(), nb.P()),
    "ZeRO-1": (nb.P(), nb.P("dp")),
    "FSDP": (nb.P("dp"), nb.P("dp")),
}
for name, (of_p, of_state) in schemes.items():
    first, state = placed(p, of_p), placed(zero, of_state)
    t = nb.constant(1.0)
    say(f"{name}: parameters {of_p}, state {of_state}")
    moves = nb.explain(step)(
        *(dict(first), dict(state), dict(state), t, x_split, y_split)
    )
    say(moves.table)
    losses, new, m, v = train(first, state, x_split, y_split)
    errors = [abs(new[k] - single[k]).max().item() for k in p]
    errors += [abs(i - j) for i, j in zip(losses, expected, strict=True)]
    say(f"on each device: parameters {held(new)} B, state {held(m, v)} B")
    say(f"loss {losses[-1]:.4f}, from one device {max(errors):.0e}")
    scattered = any(c.kind == "reduce_scatter" for c in moves.collectives)
    assert scattered == (name != "data parallel")
    assert new["in"].sharding.dim_specs[0].axes == list(of_p)
    assert m["in"].sharding.dim_specs[0].axes == list(of_state)
    assert max(errors) < 1e-4 and losses[-1] < losses[0] / 2
