"""What the examples over many devices share: text that is printed once, steps
of training, and the comparison with one device."""

import nabla as nb


def say(text: object) -> None:
    """Once for all processes, which have all made the text."""
    if nb.distributed.rank() == 0:
        print(str(text).rstrip())


def descent(loss_of, rate: float):
    """A compiled step of training: it takes parameters, of any structure, and a
    batch, and gives the loss and new parameters.  data_parallel.py has it
    written out."""

    @nb.compile
    def step(p, x: nb.Tensor, y: nb.Tensor) -> tuple:
        loss, g = nb.value_and_grad(loss_of)(p, x, y)
        return loss, nb.tree_map(lambda w, d: w - rate * d, p, g)

    return step


def train(step, steps: int, p, x: nb.Tensor, y: nb.Tensor) -> tuple:
    """The losses, and what has become of the parameters p."""
    losses = []
    for _ in range(steps):
        loss, p = step(p, x, y)
        losses.append(loss.item())
    return losses, p


def compare(many: tuple, one: tuple, most: float = 1e-5) -> None:
    """What train gave on many devices, and on one: the same, but for rounding;
    and something was learned."""
    losses = many[0]
    for third in range(4):
        i = third * (len(losses) - 1) // 3
        say(f"step {i:2d}  loss {losses[i]:.4f}")
    pairs = zip(*map(nb.tree_leaves, (many, one)), strict=True)
    error = max(nb.max(abs(nb.asarray(a) - b)).item() for a, b in pairs)
    say(f"largest difference from one device: {error:.0e}")
    assert error < most and losses[-1] < losses[0] / 2
