"""GPT-2 trained from token files: bfloat16 in the products, float32 in the
weights.

The model is a function of a dict of parameters, which have the names of
GPT-2's own files.  One step of training (the loss of some batches, its
gradient, clipping, AdamW) is one compiled program; parameters and averages stay
where they are in memory.  On a card, with a file of the kind that nanoGPT and
llm.c make:

    python examples/gpt2.py --device gpu --data fineweb.bin --batch 32 \\
        --accumulate 16 --steps 19000 --save 1000 --peak 989

gpt2.c is the same in C and gives the same numbers."""

import argparse
import math
import time
from pathlib import Path

from common.tokens import Tokens

import nabla as nb

DECAY, CLIP, LEAST = 0.1, 1.0, 0.1  # LEAST: of the rate, in the end

Tree = dict[str, nb.Tensor]
TEXT = Path(__file__).parent / "data" / "sonnets.txt"


# The model.

# Of a layer: what each part multiplies or adds to, in widths.
PARTS = {
    "ln_1": (1,),
    "attn.c_attn": (1, 3),
    "attn.c_proj": (1, 1),
    "ln_2": (1,),
    "mlp.c_fc": (1, 4),
    "mlp.c_proj": (4, 1),
}


def shapes(o: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The vocabulary is rounded up, so that products have even sizes."""
    shape = {"wte.weight": (-(-o.vocabulary // 128) * 128, o.width)}
    shape["wpe.weight"] = o.context, o.width
    layers = {
        f"h.{i}.{k}": n for i in range(o.layers) for k, n in PARTS.items()
    }
    for name, widths in (layers | {"ln_f": (1,)}).items():
        shape[name + ".weight"] = tuple(n * o.width for n in widths)
        shape[name + ".bias"] = shape[name + ".weight"][-1:]
    return shape


def init(o: argparse.Namespace) -> Tree:
    """Gains are one, biases zero, matrices normal; those that end in the
    residual stream are smaller the more of them there are."""
    shape = shapes(o)
    keys = nb.random.split(nb.random.key(o.seed), len(shape))
    p = {}
    for key, (name, size) in zip(keys, shape.items(), strict=True):
        if len(size) == 1:
            p[name] = nb.full(size, float(name.endswith("weight")))
        else:
            calm = math.sqrt(2 * o.layers) if "c_proj" in name else 1
            p[name] = nb.random.normal(key, size, std=0.02 / calm)
    return p


def norm(x: nb.Tensor, p: Tree, name: str) -> nb.Tensor:
    y = x.cast(nb.float32)
    y = y - y.mean(-1, keepdims=True)
    y = y * nb.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
    return (y * p[name + ".weight"] + p[name + ".bias"]).cast(x.dtype)


def linear(x: nb.Tensor, p: Tree, name: str) -> nb.Tensor:
    weight, bias = p[name + ".weight"], p[name + ".bias"]
    return x @ weight.cast(x.dtype) + bias.cast(x.dtype)


def attention(x: nb.Tensor, p: Tree, name: str, heads: int) -> nb.Tensor:
    b, t, d = x.shape
    qkv = linear(x, p, name + ".c_attn").reshape(b, t, 3, heads, d // heads)
    q, k, v = nb.unbind(qkv.permute(2, 0, 3, 1, 4))
    score = (q @ k.mT).cast(nb.float32) / math.sqrt(d // heads)
    past = nb.tril(nb.ones((t, t), dtype=nb.bool))
    weight = nb.softmax(nb.where(past, score, -1e9)).cast(x.dtype)
    mix = (weight @ v).swap_axes(1, 2).reshape(b, t, d)
    return linear(mix, p, name + ".c_proj")


def mlp(x: nb.Tensor, p: Tree, name: str) -> nb.Tensor:
    up = nb.gelu(linear(x, p, name + ".c_fc"), "tanh")
    return linear(up, p, name + ".c_proj")


def logits(p: Tree, tokens: nb.Tensor, o: argparse.Namespace) -> nb.Tensor:
    """The embedding is the head too."""
    x = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    x = x.cast(o.dtype)
    for i in range(o.layers):
        x = x + attention(norm(x, p, f"h.{i}.ln_1"), p, f"h.{i}.attn", o.heads)
        x = x + mlp(norm(x, p, f"h.{i}.ln_2"), p, f"h.{i}.mlp")
    return norm(x, p, "ln_f") @ p["wte.weight"].cast(x.dtype).T


def loss_of(p: Tree, windows: nb.Tensor, o: argparse.Namespace) -> nb.Tensor:
    """How surprised the model is by each next token, in nats."""
    score = logits(p, windows[:, :-1], o).cast(nb.float32)
    right = nb.take_along_axis(score, windows[:, 1:, None], -1)
    return nb.mean(nb.logsumexp(score, -1, keepdims=True) - right)


# Training.


def slope(p: Tree, windows: nb.Tensor, o: argparse.Namespace) -> tuple:
    """The loss and its gradient, means over batches taken one by one."""

    def one(batch: nb.Tensor) -> tuple:
        return nb.value_and_grad(lambda p: loss_of(p, batch, o))(p)

    def add(total: tuple, batch: nb.Tensor) -> tuple:
        return nb.tree_map(nb.add, total, one(batch)), ()

    if o.accumulate == 1:
        return one(windows[0])
    nothing = nb.zeros(()), nb.tree_map(nb.zeros_like, p)
    total, _ = nb.scan(add, nothing, windows)
    return nb.tree_map(lambda x: x / o.accumulate, total)


def rate_at(t: nb.Tensor, o: argparse.Namespace) -> nb.Tensor:
    """It climbs during the warm-up, then falls along a cosine."""
    gone = (t - o.warmup) / max(o.steps - o.warmup, 1)
    turn = LEAST + (1 - LEAST) * (0.5 + 0.5 * nb.cos(math.pi * gone))
    climb = (t + 1) / max(o.warmup, 1)
    return o.rate * nb.where(t < o.warmup, climb, turn)


def adamw(p: Tree, m: Tree, v: Tree, g: Tree, t: nb.Tensor, rate: nb.Tensor):
    """On gradients that are clipped together; decay is for matrices."""
    size = nb.sqrt(sum(nb.sum(g[k] * g[k]) for k in p))
    scale = CLIP / nb.maximum(size, CLIP)
    a, b = 1 - 0.9 ** (t + 1), 1 - 0.95 ** (t + 1)
    new: Tree = {}
    for k in p:
        grad = g[k] * scale
        m[k] = 0.9 * m[k] + 0.1 * grad
        v[k] = 0.95 * v[k] + 0.05 * nb.square(grad)
        move = m[k] / a / (nb.sqrt(v[k] / b) + 1e-8)
        if p[k].ndim > 1:
            move = move + DECAY * p[k]
        new[k] = p[k] - rate * move
    return new, m, v


def make_step(o: argparse.Namespace):
    """The new state takes the place of the old one in memory."""

    @nb.compile(donate_argnums=(0, 1, 2))
    def step(
        p: Tree, m: Tree, v: Tree, windows: nb.Tensor, t: nb.Tensor
    ) -> tuple:
        loss, g = slope(p, windows, o)
        t = t.cast(nb.float32)
        return loss, *adamw(p, m, v, g, t, rate_at(t, o))

    return step


# Files.

WHERE = "", "m.", "v."  # parameters and averages, by their names in a file


def save(o: argparse.Namespace, t: int, *state: Tree) -> None:
    path = o.out / f"gpt2-{t}.safetensors"
    pairs = zip(WHERE, state, strict=True)
    named = {a + k: x for a, tree in pairs for k, x in tree.items()}
    nb.save(path, named, {"step": str(t)})
    print("wrote", path, flush=True)


def start(o: argparse.Namespace) -> tuple:
    """What was trained before, or a new model: the step, p, m and v."""
    if not o.resume:
        p = init(o)
        return 0, p, *(nb.tree_map(nb.zeros_like, p) for _ in "mv")
    file = nb.load(o.resume)
    names = shapes(o)
    state = ({k: file[a + k] for k in names} for a in WHERE)
    return int(file.metadata["step"]), *state


# What is seen of it.


def work(o: argparse.Namespace, p: Tree) -> float:
    """Operations a token: six a weight that multiplies, and the attention."""
    weights = sum(x.numel() for x in p.values()) - p["wpe.weight"].numel()
    return 6.0 * weights + 12.0 * o.layers * o.width * o.context


def train(o: argparse.Namespace) -> None:
    first, p, m, v = start(o)
    print(sum(x.numel() for x in p.values()), "parameters")
    tokens, step, each = Tokens(o.data), make_step(o), work(o, p)
    rows, shape = o.accumulate * o.batch, (o.accumulate, o.batch, o.context + 1)
    for t in range(first, o.steps):
        begin = time.perf_counter()
        windows = tokens.windows(t * rows, shape, o.vocabulary)
        loss, p, m, v = step(p, m, v, windows, nb.constant(t))
        seen = f"step {t + 1}/{o.steps}  loss {loss.item():.4f}"
        seconds = time.perf_counter() - begin
        speed = rows * o.context / seconds
        seen += f"  {1e3 * seconds:.1f} ms  {speed:.0f} tokens/s"
        if o.peak:
            seen += f"  mfu {100 * speed * each / (1e12 * o.peak):.1f} %"
        print(seen, flush=True)
        if t + 1 == o.steps or (o.save and (t + 1) % o.save == 0):
            save(o, t + 1, p, m, v)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    numbers = "layers 12 heads 12 width 768 context 1024 vocabulary 50257"
    more = "batch 4 accumulate 1 steps 10 warmup 700 seed 0 save 0"
    words = f"{numbers} {more}".split()
    for name, value in zip(words[::2], words[1::2], strict=True):
        parser.add_argument("--" + name, type=int, default=int(value))
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--peak", type=float, help="of the device, TFLOP/s")
    parser.add_argument("--device", default="cpu", help="cpu or gpu")
    parser.add_argument("--dtype", default="bfloat16", help="of the products")
    parser.add_argument("--data", type=Path, default=TEXT)
    parser.add_argument("--out", type=Path, default=Path("build/gpt2-python"))
    parser.add_argument("--resume", type=Path, help="a file that was written")
    return parser.parse_args()


if __name__ == "__main__":
    o = options()
    nb.zeros(1, device=o.device)  # says what is missing, if anything is
    o.out.mkdir(parents=True, exist_ok=True)
    with nb.default_device(o.device):
        train(o)
