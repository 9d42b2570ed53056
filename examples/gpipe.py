"""A pipeline after GPipe: every device has one stage of the network, and small
batches walk through them.

At each tick all stages work, each on another small batch, as one vmap whose
lanes lie on the devices; then every device hands its result to the next.  The
first takes a fresh batch, by a where; the last compares its result to what is
wanted, by another.  That is all: the gradient of this program is the pipeline
that runs backward, with the devices handing cotangents to the one before."""

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


def step_of(loss_of):
    """A step of training."""

    @nb.compile
    def step(p: Tree, x: nb.Tensor, y: nb.Tensor) -> tuple[nb.Tensor, Tree]:
        loss, g = nb.value_and_grad(loss_of)(p, x, y)
        return loss, nb.tree_map(lambda w, d: w - RATE * d, p, g)

    return step


def train(step, p: Tree, x: nb.Tensor, y: nb.Tensor) -> tuple:
    losses = []
    for _ in range(STEPS):
        loss, p = step(p, x, y)
        losses.append(loss.item())
    return losses, p


def say(text: object) -> None:
    """Once for all processes, which have all made the text."""
    if nb.distributed.rank() == 0:
        print(str(text).rstrip())


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

step = step_of(pipeline)
moves = nb.explain(step)(split, x, y)
say(moves.table)
assert not any(c.kind == "all_gather" for c in moves.collectives)

losses, trained = train(step, split, x, y)
say(f"loss {losses[0]:.4f} to {losses[-1]:.4f}")
say(f"trained w {trained['w'].sharding}")

# The same on one device.
expected, single = train(step_of(sequential), p, x, y)
errors = [abs(trained[k] - single[k]).max().item() for k in p]
errors += [abs(i - j) for i, j in zip(losses, expected, strict=True)]
say(f"largest difference from one device: {max(errors):.0e}")
assert max(errors) < 1e-5 and losses[-1] < losses[0] / 2
