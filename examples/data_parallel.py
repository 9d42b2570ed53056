"""Data parallel training: every device has all parameters and a part of the
batch.

The step of training is that of one device.  Its gradients are sums over the
batch, and the batch is split, so each device has a part of each sum; asking for
a gradient that lies as its parameter does adds them up: one all-reduce of each,
for which nothing is written here."""

from common.training import compare, say, train

import nabla as nb

BATCH, STEPS, RATE = 62, 40, 0.2  # 62 over 4 devices: 15, 16, 15, 16

Tree = dict[str, nb.Tensor]


def loss_of(p: Tree, x: nb.Tensor, y: nb.Tensor) -> nb.Tensor:
    h = nb.tanh(x @ p["up"] + p["bias"])
    return nb.mean(nb.square(h @ p["down"] - y))


@nb.compile
def step(p: Tree, x: nb.Tensor, y: nb.Tensor) -> tuple[nb.Tensor, Tree]:
    loss, g = nb.value_and_grad(loss_of)(p, x, y)
    return loss, nb.tree_map(lambda w, d: w - RATE * d, p, g)


a, b, c = nb.random.split(nb.random.key(0), 3)
x = nb.random.normal(a, (BATCH, 8))
y = nb.sin(x.sum(1, keepdims=True))
p = {
    "up": nb.random.normal(b, (8, 32), std=0.3),
    "bias": nb.zeros(32),
    "down": nb.random.normal(c, (32, 1), std=0.2),
}

mesh = nb.DeviceMesh("pod", (4,), ("dp",))
x_split, y_split = (t.shard(mesh, nb.P("dp")) for t in (x, y))
everywhere = {name: w.shard(mesh, nb.P()) for name, w in p.items()}
say(nb.visualize_sharding(x_split))
say(f"blocks of x: {[x_split.shard_shape(i) for i in range(4)]}")
moves = nb.explain(step)(everywhere, x_split, y_split)
say(moves.table)
assert {c.kind for c in moves.collectives} == {"all_reduce"}

# Over the mesh, and on one device.
many = train(step, STEPS, everywhere, x_split, y_split)
compare(many, train(step, STEPS, p, x, y))
