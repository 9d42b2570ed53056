"""A mixture of experts, one on each device: tokens travel to their expert.

Tokens come in groups, g, split over the devices.  A gate sends each token to
one of the experts, which has room for a few, c, of each group; the others pass
by.  Sorting tokens into these places is an einsum with zeros and ones, on the
device where they are.  Then the split moves from groups to experts, and back
after them: an all-to-all each time.  That is two calls of reshard; they and the
layouts of the arguments are all there is of many devices here."""

from common.training import compare, descent, say, train

import nabla as nb

GROUPS, TOKENS, WIDTH, EXPERTS, ROOM, STEPS, RATE = 8, 16, 8, 4, 6, 40, 0.5

Tree = dict[str, nb.Tensor]
mesh = nb.DeviceMesh("pod", (4,), ("ep",))


def moe(p: Tree, x: nb.Tensor) -> nb.Tensor:
    many = x.is_sharded
    chance = nb.softmax(x @ p["gate"])
    chosen = nb.one_hot(chance.argmax(-1), EXPERTS)
    place = nb.cumsum(chosen, 1) * chosen - 1  # in the queue of the expert
    to = (place[..., None] == nb.arange(ROOM)).cast(nb.float32)
    weight = to * (chance * chosen)[..., None]

    sent = nb.einsum("gsec,gsd->gecd", to, x)
    if many:
        sent = nb.reshard(sent, mesh, nb.P(None, "ep"))
    h = nb.relu(nb.einsum("gecd,edf->gecf", sent, p["up"]))
    done = nb.einsum("gecf,efd->gecd", h, p["down"])
    if many:
        done = nb.reshard(done, mesh, nb.P("ep"))
    return x + nb.einsum("gsec,gecd->gsd", weight, done)


def loss_of(p: Tree, x: nb.Tensor, y: nb.Tensor) -> nb.Tensor:
    return nb.mean(nb.square(moe(p, x) - y))


step = descent(loss_of, RATE)


a, b, c, d = nb.random.split(nb.random.key(0), 4)
x = nb.random.normal(a, (GROUPS, TOKENS, WIDTH))
y = nb.where(x[..., :1] > 0, x, -x)  # a job for more than one expert
p = {
    "gate": nb.random.normal(b, (WIDTH, EXPERTS)),
    "up": nb.random.normal(c, (EXPERTS, WIDTH, 4 * WIDTH), std=0.3),
    "down": nb.random.normal(d, (EXPERTS, 4 * WIDTH, WIDTH), std=0.1),
}

specs = {"gate": nb.P(), "up": nb.P("ep"), "down": nb.P("ep")}
split = {name: p[name].shard(mesh, specs[name]) for name in p}
x_split, y_split = (t.shard(mesh, nb.P("ep")) for t in (x, y))
for name, t in {"tokens": x_split, **split}.items():
    say(f"{name:7} {t.sharding}")
moves = nb.explain(step)(split, x_split, y_split)
say(moves.table)
assert {c.kind for c in moves.collectives} == {"all_to_all", "all_reduce"}

# Over the mesh, and on one device.
many = train(step, STEPS, split, x_split, y_split)
compare(many, train(step, STEPS, p, x, y))
