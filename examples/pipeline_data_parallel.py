"""A pipeline whose stages are data parallel: mesh axes are used together.

The pipeline is that of gpipe.py, over the axis stage.  Of each small batch
every device takes a part, over the axis dp.  Only layouts say so: batches are
split on dp, parameters on stage, and what follows from both lies on both.  At
each tick a device hands its part to the one of its own row in the next stage;
the gradients of a stage are summed over the devices that share it, once, at the
end."""

from common.training import compare, descent, say, train

import nabla as nb

STAGES, DP, BATCHES, SIZE, WIDTH, STEPS, RATE = 2, 2, 4, 6, 8, 12, 0.5
TICKS = BATCHES + STAGES - 1
NEXT = [(i, i + 1) for i in range(STAGES - 1)]

Tree = dict[str, nb.Tensor]
mesh = nb.DeviceMesh("pod", (STAGES, DP), ("stage", "dp"))


def stage(p: Tree, x: nb.Tensor) -> nb.Tensor:
    return x + nb.tanh(x @ p["up"]) @ p["down"]


stages = nb.vmap(stage, spmd_axis_name="stage", mesh=mesh)
place = nb.arange(STAGES).reshape(STAGES, 1, 1).shard(mesh, nb.P("stage"))


def start(x: nb.Tensor) -> nb.Tensor:
    """Nothing in any stage."""
    return nb.zeros((STAGES, *x.shape[1:])).shard(mesh, nb.P("stage", "dp"))


def tick(p: Tree, x: nb.Tensor, state: nb.Tensor) -> nb.Tensor:
    """All stages, the first on x and the others on what they were handed."""
    return stages(p, nb.where(place == 0, x, state))


def pipeline(p: Tree, x: nb.Tensor, y: nb.Tensor) -> nb.Tensor:
    """The loss, over batches x and y."""
    state, loss = start(x), nb.constant(0.0)
    for t in range(TICKS):
        state = tick(p, x[min(t, BATCHES - 1)], state)
        if t >= STAGES - 1:
            miss = nb.square(state - y[t - STAGES + 1])
            loss = loss + nb.where(place == STAGES - 1, miss, 0.0).sum()
        state = nb.ppermute(state, NEXT, axis_name="stage")
    return loss / y.numel()


def sequential(p: Tree, x: nb.Tensor, y: nb.Tensor) -> nb.Tensor:
    """The same, one stage after the other."""
    for i in range(STAGES):
        x = stage({k: w[i] for k, w in p.items()}, x)
    return nb.mean(nb.square(x - y))


a, b, c = nb.random.split(nb.random.key(0), 3)
x = nb.random.normal(a, (BATCHES, SIZE, WIDTH))
y = nb.sin(2 * x)
p = {
    "up": nb.random.normal(b, (STAGES, WIDTH, 2 * WIDTH), std=0.3),
    "down": nb.random.normal(c, (STAGES, 2 * WIDTH, WIDTH), std=0.3),
}
split = {k: w.shard(mesh, nb.P("stage")) for k, w in p.items()}
x_split, y_split = (t.shard(mesh, nb.P(None, "dp")) for t in (x, y))
state = tick(split, x_split[0], start(x))
say(f"batches {x_split.sharding}")
say(f"w       {split['up'].sharding}")
say(f"state   {state.sharding}, {state.local_shape} on each device")
say(nb.visualize_sharding(state.reshape(STAGES, -1)))
assert [d.axes for d in state.sharding.dim_specs] == [["stage"], ["dp"], []]

step = descent(pipeline, RATE)
moves = nb.explain(step)(split, x_split, y_split)
say(moves.table)
assert not any(c.kind == "all_gather" for c in moves.collectives)

# Over the mesh, and on one device.
many = train(step, STEPS, split, x_split, y_split)
say(f"trained up {many[1]['up'].sharding}")
compare(many, train(descent(sequential, RATE), STEPS, p, x, y))
