"""Tensor parallel training after Megatron: every device has a part of each
layer.

Of the two matrices of a layer the first is split by columns and the second by
rows, so that between them, where most numbers are, each device has columns of
its own and needs nobody.  What leaves a layer is a sum over devices, and so is
the gradient of what enters it (of x, which nobody asks for, there is none): one
all-reduce of activations a layer in each direction, and none of weights."""

from common.training import compare, descent, say, train

import nabla as nb

LAYERS, BATCH, WIDTH, STEPS, RATE = 2, 16, 8, 40, 0.1

Layer = tuple[nb.Tensor, nb.Tensor]


def model(layers: list[Layer], x: nb.Tensor) -> nb.Tensor:
    for up, down in layers:
        x = x + nb.gelu(x @ up) @ down
    return x


def loss_of(layers: list[Layer], x: nb.Tensor, y: nb.Tensor) -> nb.Tensor:
    return nb.mean(nb.square(model(layers, x) - y))


step = descent(loss_of, RATE)


def layer(key: nb.Tensor) -> Layer:
    a, b = nb.random.split(key)
    up = nb.random.normal(a, (WIDTH, 4 * WIDTH), std=WIDTH**-0.5)
    return up, nb.random.normal(b, (4 * WIDTH, WIDTH), std=0.1)


keys = nb.random.split(nb.random.key(0), LAYERS + 1)
x = nb.random.normal(keys[LAYERS], (BATCH, WIDTH))
y = nb.sin(2 * x)
layers = [layer(keys[i]) for i in range(LAYERS)]

mesh = nb.DeviceMesh("pod", (4,), ("tp",))
split = [
    (up.shard(mesh, nb.P(None, "tp")), down.shard(mesh, nb.P("tp", None)))
    for up, down in layers
]
up, down = split[0]
say(f"up      {up.sharding}")
say(f"down    {down.sharding}")
say(f"between {nb.gelu(x @ up).sharding}")
say(f"after   {(nb.gelu(x @ up) @ down).sharding}")
say(nb.visualize_sharding(up))
moves = nb.explain(step)(split, x, y)
say(moves.table)
assert [c.kind for c in moves.collectives] == (2 * LAYERS - 1) * ["all_reduce"]

# Over the mesh, and on one device.
many = train(step, STEPS, split, x, y)
compare(many, train(step, STEPS, layers, x, y))
