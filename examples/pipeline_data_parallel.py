"""A pipeline whose stages are data parallel: mesh axes are used together.

The pipeline is that of gpipe.py, over the axis stage.  Of each small batch
every device takes a part, over the axis dp.  Only layouts say so: batches are
split on dp, parameters on stage, and what follows from both lies on both.  At
each tick a device hands its part to the one of its own row in the next stage;
the gradients of a stage are summed over the devices that share it, once, at the
end."""

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

step = step_of(pipeline)
moves = nb.explain(step)(split, x_split, y_split)
say(moves.table)
assert not any(c.kind == "all_gather" for c in moves.collectives)

losses, trained = train(step, split, x_split, y_split)
say(f"loss {losses[0]:.4f} to {losses[-1]:.4f}")

# The same on one device.
expected, single = train(step_of(sequential), p, x, y)
errors = [abs(trained[k] - single[k]).max().item() for k in p]
errors += [abs(i - j) for i, j in zip(losses, expected, strict=True)]
say(f"largest difference from one device: {max(errors):.0e}")
assert max(errors) < 1e-5 and losses[-1] < losses[0] / 2
