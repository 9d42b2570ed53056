"""Two ways of splitting work in one line: x over dp, w over tp, and a mean.

The function is that of one device.  How its arguments lie is enough: each of
four devices has half of x and half of w, makes a quarter of x @ w, and keeps
its part of the sum; one number of four bytes is added up at the end.  It runs
with devices that are threads, and the same under `mpirun -n 2` or `-n 4`."""

from common.training import say

import nabla as nb


def f(x: nb.Tensor, w: nb.Tensor) -> nb.Tensor:
    return nb.mean(nb.relu(x @ w))


mesh = nb.DeviceMesh("pod", (2, 2), ("dp", "tp"))
x = nb.arange(8.0).reshape(4, 2) - 4
w = nb.constant([[1.0, 2.0, -3.0, 0.0], [-1.0, 0.0, 2.0, 1.0]])
x_split = x.shard(mesh, nb.P("dp", None))
w_split = w.shard(mesh, nb.P(None, "tp"))

say(f"x = {x_split}")
say(f"w = {w_split}")

h = nb.relu(x_split @ w_split)
say("relu(x @ w) lies as its operands say, nothing has moved:")
say(nb.visualize_sharding(h))

say("f, each line with how it lies; P:(dp,tp) is a sum that is still to come:")
say(nb.xpr(f)(x_split, w_split))

say("What moves: a number of four bytes, from each device to the others.")
moves = nb.explain(f)(x_split, w_split)
say(moves.table)
assert [c.kind for c in moves.collectives] == ["all_reduce"]
y = f(x_split, w_split)
say(f"f(x, w) = {y.item()}, on one device {f(x, w).item()}")
assert y.item() == f(x, w).item()
