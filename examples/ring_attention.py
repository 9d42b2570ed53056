"""Attention over a sequence that no device has all of: blocks of keys and
values go around in a ring.

Queries, keys and values are split along the sequence.  Each device keeps its
queries.  It meets one block of keys and values after the other, its own first,
and hands each on to its neighbour: n - 1 times for n devices.  The softmax is
put together on the way: of the blocks seen so far it has the largest score, the
sum of the weights relative to that, and the mix of values.  A place sees those
before it alone, so blocks are numbered."""

import math

from common.training import say

import nabla as nb

DEVICES, LENGTH, HEADS, WIDTH = 4, 32, 2, 8
RING = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]

mesh = nb.DeviceMesh("pod", (DEVICES,), ("cp",))


def scores(q: nb.Tensor, k: nb.Tensor, i: nb.Tensor, j: nb.Tensor) -> nb.Tensor:
    """Of places i with places j, as heads, i, j."""
    all_of_them = nb.einsum("ihd,jhd->hij", q, k) / math.sqrt(WIDTH)
    return nb.where(i[:, None] >= j, all_of_them, -nb.inf)


def attention(q: nb.Tensor, k: nb.Tensor, v: nb.Tensor) -> nb.Tensor:
    """On one device."""
    place = nb.arange(LENGTH)
    weight = nb.softmax(scores(q, k, place, place))
    return nb.einsum("hij,jhd->ihd", weight, v)


def ring(q: nb.Tensor, k: nb.Tensor, v: nb.Tensor) -> nb.Tensor:
    """What each device does with its blocks."""
    size = q.shape[0]
    here = nb.ops.communication.axis_index(axis_name="cp")
    place = here * size + nb.arange(size)
    top = nb.full((HEADS, size, 1), -nb.inf)
    total, mix = nb.zeros((HEADS, size, 1)), nb.zeros((HEADS, size, WIDTH))
    for hop in range(DEVICES):
        block = (here - hop) % DEVICES
        score = scores(q, k, place, block * size + nb.arange(size))
        above = nb.maximum(top, score.max(-1, keepdims=True))
        above = nb.stop_gradient(above)  # nothing depends on it in the end
        weight, fade = nb.exp(score - above), nb.exp(top - above)
        total = fade * total + weight.sum(-1, keepdims=True)
        mix = fade * mix + nb.einsum("hij,jhd->hid", weight, v)
        top = above
        if hop < DEVICES - 1:
            k, v = (nb.ppermute(t, RING, axis_name="cp") for t in (k, v))
    return (mix / total).swap_axes(0, 1)


spec = nb.P("cp")
context_parallel = nb.shard_map(
    ring, mesh, in_specs=spec, out_specs=spec, axis_names=("cp",)
)


def energy(f):
    """Something to take gradients of."""
    return lambda *qkv: nb.sum(nb.sin(f(*qkv)))


keys = nb.random.split(nb.random.key(0), 3)
qkv = [nb.random.normal(k, (LENGTH, HEADS, WIDTH)) for k in keys]
split = [t.shard(mesh, spec) for t in qkv]
say(f"q, k, v {split[0].sharding}, {split[0].local_shape} on each device")
say(nb.visualize_sharding(split[0].reshape(LENGTH, -1)))
moves = nb.explain(context_parallel)(*split)
say(moves.table)
assert len(moves.collectives) == 2 * (DEVICES - 1)  # of k and of v

out = nb.compile(context_parallel)(*split)
error = abs(out - attention(*qkv)).max().item()
say(f"attention {out.sharding}, from one device {error:.0e}")
assert error < 1e-5

ours = nb.compile(nb.grad(energy(context_parallel), (0, 1, 2)))(*split)
theirs = nb.grad(energy(attention), (0, 1, 2))(*qkv)
for name, g, expected in zip("qkv", ours, theirs, strict=True):
    error = abs(g - expected).max().item()
    say(f"gradient by {name} {g.sharding}, from one device {error:.0e}")
    assert error < 1e-5
