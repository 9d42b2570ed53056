"""A small GPT that learns to write sonnets, one character at a time.

The model is a function of a dict of parameters.  One step of training (a batch
drawn from a key, the loss, its gradient, AdamW) is one function too, compiled
as a whole; so is writing a sample, which is a loop inside the program.
gpt.c is the same in C and gives the same numbers."""

import argparse
import math
import sys
import time
from pathlib import Path

import nabla as nb

LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 4, 128, 4, 64, 16
RATE, WARMUP, DECAY = 4e-3, 20, 0.1

Tree = dict[str, nb.Tensor]
TEXT = Path(__file__).parent / "data" / "sonnets.txt"


# The model.


def init(key: nb.Tensor, letters: int) -> Tree:
    """Gains are one, biases and what is added to the residual stream zero, and
    other matrices normal."""
    shapes = {"embed": (letters, WIDTH), "place": (CONTEXT, WIDTH)}
    for i in range(LAYERS):
        shapes |= {
            f"{i}.norm1": (WIDTH,),
            f"{i}.qkv": (WIDTH, 3 * WIDTH),
            f"{i}.proj": (WIDTH, WIDTH),
            f"{i}.norm2": (WIDTH,),
            f"{i}.up": (WIDTH, 4 * WIDTH),
            f"{i}.bias": (4 * WIDTH,),
            f"{i}.down": (4 * WIDTH, WIDTH),
        }
    shapes |= {"norm": (WIDTH,)}
    params = {}
    keys = nb.random.split(key, len(shapes))
    for k, (name, shape) in zip(keys, shapes.items(), strict=True):
        if name.endswith(("bias", "proj", "down")):
            params[name] = nb.zeros(shape)
        elif len(shape) == 1:
            params[name] = nb.ones(shape)
        else:
            params[name] = nb.random.normal(k, shape, std=WIDTH**-0.5)
    return params


def norm(x: nb.Tensor, gain: nb.Tensor) -> nb.Tensor:
    x = x - x.mean(-1, keepdims=True)
    return x * nb.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def attention(x: nb.Tensor, p: Tree, i: int) -> nb.Tensor:
    b, t, d = x.shape
    heads = (x @ p[f"{i}.qkv"]).reshape(b, t, 3, HEADS, d // HEADS)
    q, k, v = nb.unbind(heads.permute(2, 0, 3, 1, 4))
    score = q @ k.mT / math.sqrt(d // HEADS)
    past = nb.tril(nb.ones((t, t), dtype=nb.bool))
    weight = nb.softmax(nb.where(past, score, -1e9))
    return (weight @ v).swap_axes(1, 2).reshape(b, t, d) @ p[f"{i}.proj"]


def mlp(x: nb.Tensor, p: Tree, i: int) -> nb.Tensor:
    up = x @ p[f"{i}.up"] + p[f"{i}.bias"]
    return nb.gelu(up, "tanh") @ p[f"{i}.down"]


def logits(p: Tree, tokens: nb.Tensor) -> nb.Tensor:
    """The embedding is the head too; a quarter of it, to be unsure at first."""
    x = p["embed"][tokens] + p["place"]
    for i in range(LAYERS):
        x = x + attention(norm(x, p[f"{i}.norm1"]), p, i)
        x = x + mlp(norm(x, p[f"{i}.norm2"]), p, i)
    return norm(x, p["norm"]) @ p["embed"].T / 4


def loss_of(p: Tree, windows: nb.Tensor) -> nb.Tensor:
    """How surprised the model is by each next character, in nats."""
    score = logits(p, windows[:, :-1])
    right = nb.take_along_axis(score, windows[:, 1:, None], -1)
    return nb.mean(nb.logsumexp(score, -1, keepdims=True) - right)


# Training.


def draw(key: nb.Tensor, text: nb.Tensor) -> nb.Tensor:
    start = nb.random.randint(key, (BATCH, 1), 0, len(text) - CONTEXT)
    return text[start + nb.arange(CONTEXT + 1)]


def rate_at(t: nb.Tensor, steps: int) -> nb.Tensor:
    """It climbs during the warm-up and falls to nothing along a cosine."""
    turn = 0.5 + 0.5 * nb.cos(math.pi * t / steps)
    return RATE * nb.minimum((t + 1) / WARMUP, turn)


def adamw(p: Tree, g: Tree, m: Tree, v: Tree, t: nb.Tensor, rate: nb.Tensor):
    """AdamW, on gradients of norm one at most; decay is for matrices."""
    scale = 1 / nb.maximum(nb.sqrt(sum(nb.sum(g[k] * g[k]) for k in p)), 1)
    a, b = 1 - 0.9 ** (t + 1), 1 - 0.99 ** (t + 1)
    new: Tree = {}
    for k in p:
        grad = g[k] * scale
        m[k] = 0.9 * m[k] + 0.1 * grad
        v[k] = 0.99 * v[k] + 0.01 * nb.square(grad)
        move = m[k] / a / (nb.sqrt(v[k] / b) + 1e-8)
        if p[k].ndim > 1:
            move = move + DECAY * p[k]
        new[k] = p[k] - rate * move
    return new, m, v


def train(text: nb.Tensor, letters: int, seed: int, steps: int) -> tuple:
    """The parameters, and the loss of every step.  A whole step is one program;
    the new state takes the place of the old one in memory."""
    key = nb.random.key(seed)
    p = init(key, letters)
    key = nb.random.fold_in(key, len(p))
    print(sum(x.numel() for x in p.values()), "parameters")

    @nb.compile(donate_argnums=(0, 1, 2))
    def step(p: Tree, m: Tree, v: Tree, t: nb.Tensor) -> tuple:
        windows = draw(nb.random.fold_in(key, t), text)
        loss, g = nb.value_and_grad(loss_of)(p, windows)
        t = t.cast(nb.float32)
        return loss, *adamw(p, g, m, v, t, rate_at(t, steps))

    m = nb.tree_map(nb.zeros_like, p)
    v = nb.tree_map(nb.zeros_like, p)
    losses: list[float] = []
    begin = time.perf_counter()
    for t in range(steps):
        loss, p, m, v = step(p, m, v, nb.constant(t))
        losses.append(loss.item())
        show(losses, steps, time.perf_counter() - begin)
    return p, losses


def average(p: Tree, text: nb.Tensor) -> float:
    """The loss over a text, or over as much of a long one as is enough."""
    count = min((len(text) - 1) // CONTEXT, 80)
    start = CONTEXT * nb.arange(count)[:, None]
    return nb.compile(loss_of)(p, text[start + nb.arange(CONTEXT + 1)]).item()


@nb.compile
def write(p: Tree, prompt: nb.Tensor, keys: nb.Tensor) -> nb.Tensor:
    """One character a key, each after the CONTEXT characters before it."""

    def one(window: nb.Tensor, key: nb.Tensor) -> tuple:
        score = logits(p, window[None])[0, -1]
        token = nb.random.categorical(key, score / 0.8).cast(nb.uint8)
        return nb.concatenate([window[1:], token[None]]), token

    return nb.scan(one, prompt, keys)[1]


# What is seen of it.


def show(losses: list[float], steps: int, seconds: float) -> None:
    """A bar on a terminal, now and then a line elsewhere."""
    t = len(losses)
    recent = losses[-20:]
    speed = t * BATCH * CONTEXT / seconds
    line = f"loss {sum(recent) / len(recent):.3f}  {speed:6.0f} tokens/s"
    if sys.stdout.isatty():
        bar = "#" * (30 * t // steps)
        end = "\n" if t == steps else ""
        print(f"\r{t:5}/{steps} [{bar:30}] {line}", end=end, flush=True)
    elif t == 1 or t == steps or t * 10 // steps > (t - 1) * 10 // steps:
        print(f"step {t:5}/{steps}  {line}", flush=True)


def curve(losses: list[float], path: Path) -> None:
    """The loss of every step, as a picture."""
    top, wide = losses[0], len(losses)
    points = "".join(
        f"{600 * t / wide:.1f},{300 - 300 * loss / top:.1f} "
        for t, loss in enumerate(losses)
    )
    path.write_text(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='-9 -9 618 330'>\n"
        "<path d='M0 0V300H600' fill='none' stroke='#999'/>\n"
        f"<text x='9' y='9'>{top:.2f}</text>\n"
        f"<text x='0' y='318'>loss of {wide} steps, from 0</text>\n"
        f"<polyline fill='none' stroke='#06c' points='{points}'/>\n</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/gpt-python"))
    parser.add_argument("--text", type=Path, default=TEXT)
    options = parser.parse_args()
    if options.steps < 1:
        parser.error("--steps: one at least")
    options.out.mkdir(parents=True, exist_ok=True)

    raw = options.text.read_text()
    letters = sorted(set(raw))
    print(f"{len(raw)} characters, {len(letters)} different ones")
    data = nb.constant([letters.index(c) for c in raw], dtype=nb.uint8)
    cut = len(raw) // 10 * 9
    known, held = data[:cut], data[cut:]
    p, losses = train(known, len(letters), options.seed, options.steps)
    print(f"loss on what it read {average(p, known):.3f}, ", end="")
    print(f"on what it did not {average(p, held):.3f}")

    model, picture = options.out / "gpt.safetensors", options.out / "loss.svg"
    nb.save(model, p, {"letters": "".join(letters)})
    curve(losses, picture)
    keys = nb.random.split(nb.random.key(options.seed + 1), 300)
    sample = write(nb.load(model), held[:CONTEXT], keys)
    print("---", "".join(letters[i] for i in sample.tolist()), "---", sep="\n")
    print(f"wrote {model} and {picture}")


if __name__ == "__main__":
    main()
