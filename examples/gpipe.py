"""A pipeline after GPipe: every device has one stage of the network, and small
batches walk through them.

At each tick all stages work, each on another small batch, as one vmap whose
lanes lie on the devices; then every device hands its result to the next.  The
first takes a fresh batch, by a where; the last compares its result to what is
wanted, by another.  That is all: the gradient of this program is the pipeline
that runs backward, with the devices handing cotangents to the one before."""

from common.training import compare, descent, say, train

import nabla as nb

STAGES, BATCHES, SIZE, WIDTH, STEPS, RATE = 4, 8, 4, 8, 12, 0.5
TICKS = BATCHES + STAGES - 1
NEXT = [(i, i + 1) for i in range(STAGES - 1)]

Tree = dict[str, nb.Tensor]
mesh = nb.DeviceMesh("pod", (STAGES,), ("stage",))


def stage(p: Tree, x: nb.Tensor) -> nb.Tensor:
    return x + nb.tanh(x @ p["w"] + p["b"])


def pipeline(p: Tree, x: nb.Tensor, y: nb.Tensor) -> nb.Tensor:
    """The loss, over batches x and y."""
    place = nb.arange(STAGES).reshape(STAGES, 1, 1)
    place = place.shard(mesh, nb.P("stage"))
    stages = nb.vmap(stage, spmd_axis_name="stage", mesh=mesh)
    state = nb.zeros((STAGES, *x.shape[1:])).shard(mesh, nb.P("stage"))
    loss = nb.constant(0.0)
    for t in range(TICKS):
        state = nb.where(place == 0, x[min(t, BATCHES - 1)], state)
        state = stages(p, state)
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


a, b = nb.random.split(nb.random.key(0))
x = nb.random.normal(a, (BATCHES, SIZE, WIDTH))
y = nb.sin(2 * x)
p = {
    "w": nb.random.normal(b, (STAGES, WIDTH, WIDTH), std=0.3),
    "b": nb.zeros((STAGES, 1, WIDTH)),
}
split = {k: w.shard(mesh, nb.P("stage")) for k, w in p.items()}
say(f"w {split['w'].sharding}, {split['w'].local_shape} on each device")
say(f"{TICKS} ticks, of which {STAGES - 1} fill and empty the pipeline")
for t in range(TICKS):
    rows = [t - i if 0 <= t - i < BATCHES else "." for i in range(STAGES)]
    say(f"tick {t:2d}  batches in stages  {'  '.join(map(str, rows))}")

step = descent(pipeline, RATE)
moves = nb.explain(step)(split, x, y)
say(moves.table)
assert not any(c.kind == "all_gather" for c in moves.collectives)

# Over the mesh, and on one device.
many = train(step, STEPS, split, x, y)
say(f"trained w {many[1]['w'].sharding}")
compare(many, train(descent(sequential, RATE), STEPS, p, x, y))
