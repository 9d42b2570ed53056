"""Steps of GPT-2 124M at B=32, T=1024, in one library: the process of a row of
bench/gpu.py.

bench/gpu_gpt2.py nabla|torch|jax [cpu] prints one line of JSON: the losses of
the first steps, the least milliseconds of a step, what the first call took
beyond that, the most bytes of the card in use.  Every library has the same
parameters and tokens and takes the same step, that of examples/gpt2.py; each
attends in the way that is fastest in it.  NABLA_BENCH_SMALL=1 is for trying."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

Tree = dict[str, Any]
Parts = tuple[Any, Any, Any]  # a step, waiting, bytes: as main calls them
EARLY, TIMED = 3, 5


def settings() -> argparse.Namespace:
    o = argparse.Namespace(
        layers=12, heads=12, width=768, context=1024, vocabulary=50257
    )
    vars(o).update(batch=32, accumulate=1, seed=0, steps=100, warmup=10)
    vars(o).update(rate=6e-4, dtype="bfloat16")
    if os.environ.get("NABLA_BENCH_SMALL"):
        vars(o).update(layers=1, heads=2, width=32, context=16, vocabulary=128)
        vars(o).update(batch=2)
    return o


def parameters(o: argparse.Namespace) -> dict[str, np.ndarray]:
    """Small normal numbers, and ones where gains are."""
    from gpt2 import shapes

    rng = np.random.default_rng(0)
    p = {
        k: 0.02 * rng.standard_normal(n, dtype=np.float32)
        for k, n in shapes(o).items()
    }
    return {k: x + ("ln_" in k and "weight" in k) for k, x in p.items()}


def windows(o: argparse.Namespace) -> np.ndarray:
    """Small numbers come more often, so that something can be learned."""
    x = np.random.default_rng(1).random((o.batch, o.context + 1)) ** 3
    return (o.vocabulary * x).astype(np.int32)


def rate_at(o: argparse.Namespace, t: int) -> float:
    """During the warm-up, which is all of it here."""
    return float(o.rate * (t + 1) / o.warmup)


# Ours.


def of_nabla(o: argparse.Namespace, card: str) -> Parts:
    import gpt2

    import nabla as nb

    with nb.default_device(card):
        p = {k: nb.constant(x) for k, x in parameters(o).items()}
        zero = [{k: nb.zeros_like(x) for k, x in p.items()} for _ in "mv"]
        batch = nb.constant(windows(o)[None])
        nb.realize_all(
            batch, *p.values(), *(x for z in zero for x in z.values())
        )
    state: list[Any] = [p, *zero]
    step = gpt2.make_step(o)

    def call(t: int) -> Any:
        with nb.default_device(card):
            loss, *state[:] = step(*state, batch, nb.constant(t))
        return loss

    return call, nb.synchronize, lambda: nb.memory_stats(card)["most"]


# JAX.


def of_jax(o: argparse.Namespace, card: str) -> Parts:
    import jax
    import jax.numpy as jnp

    by = "cudnn" if jax.default_backend() == "gpu" else None

    def norm(x: Any, p: Tree, name: str) -> Any:
        y = x.astype(jnp.float32)
        y = y - y.mean(-1, keepdims=True)
        y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        return (y * p[name + ".weight"] + p[name + ".bias"]).astype(x.dtype)

    def linear(x: Any, p: Tree, name: str) -> Any:
        w, b = p[name + ".weight"], p[name + ".bias"]
        return x @ w.astype(x.dtype) + b.astype(x.dtype)

    def attention(x: Any, p: Tree, name: str) -> Any:
        b, t, d = x.shape
        qkv = linear(x, p, name + ".c_attn")
        three = (y.reshape(b, t, o.heads, -1) for y in jnp.split(qkv, 3, -1))
        mix = jax.nn.dot_product_attention(
            *three, is_causal=True, implementation=by
        )
        return linear(mix.reshape(b, t, d), p, name + ".c_proj")

    def loss_of(p: Tree, words: Any) -> Any:
        x = p["wte.weight"][words[:, :-1]] + p["wpe.weight"]
        x = x.astype(o.dtype)
        for i in range(o.layers):
            x = x + attention(norm(x, p, f"h.{i}.ln_1"), p, f"h.{i}.attn")
            h = linear(norm(x, p, f"h.{i}.ln_2"), p, f"h.{i}.mlp.c_fc")
            x = x + linear(jax.nn.gelu(h), p, f"h.{i}.mlp.c_proj")
        y = norm(x, p, "ln_f") @ p["wte.weight"].astype(x.dtype).T
        y = y.astype(jnp.float32)
        right = jnp.take_along_axis(y, words[:, 1:, None], -1)[..., 0]
        return (jax.nn.logsumexp(y, -1) - right).mean()

    def adamw(p: Tree, m: Tree, v: Tree, g: Tree, t: Any) -> tuple[Tree, ...]:
        size = jnp.sqrt(sum(jnp.sum(x * x) for x in g.values()))
        a, b = 1 - 0.9 ** (t + 1), 1 - 0.95 ** (t + 1)
        rate, new = o.rate * (t + 1) / o.warmup, {}
        for k in p:
            grad = g[k] / jnp.maximum(size, 1)
            m[k] = 0.9 * m[k] + 0.1 * grad
            v[k] = 0.95 * v[k] + 0.05 * grad * grad
            move = m[k] / a / (jnp.sqrt(v[k] / b) + 1e-8)
            new[k] = p[k] - rate * (move + (0.1 * p[k] if p[k].ndim > 1 else 0))
        return new, m, v

    def step(p: Tree, m: Tree, v: Tree, words: Any, t: Any) -> tuple[Any, ...]:
        loss, g = jax.value_and_grad(loss_of)(p, words)
        return loss, *adamw(p, dict(m), dict(v), g, t)

    p = {k: jnp.asarray(x) for k, x in parameters(o).items()}
    state: list[Any] = [p, *({k: 0 * x for k, x in p.items()} for _ in "mv")]
    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    batch = jnp.asarray(windows(o))
    jax.block_until_ready((state, batch))

    def call(t: int) -> Any:
        loss, *state[:] = jitted(*state, batch, jnp.float32(t))
        return loss

    def most() -> int:
        stats = jax.devices()[0].memory_stats() or {}
        return int(stats.get("peak_bytes_in_use", 0))

    return call, lambda: jax.block_until_ready(state), most


# PyTorch.


def of_torch(o: argparse.Namespace, card: str) -> Parts:
    import torch
    from torch.nn import functional as F

    device = "cuda" if card == "gpu" else "cpu"
    torch.set_float32_matmul_precision("high")
    named = {
        k: torch.nn.Parameter(
            torch.from_numpy(
                x if k[:2] == "wt" or k[:2] == "wp" else x.T.copy()
            )
        )
        for k, x in parameters(o).items()
    }

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = torch.nn.ParameterDict(
                {k.replace(".", "_"): x for k, x in named.items()}
            )

        def norm(self, x: Any, name: str) -> Any:
            w, b = self.p[name + "_weight"], self.p[name + "_bias"]
            return F.layer_norm(x, (o.width,), w, b)

        def linear(self, x: Any, name: str) -> Any:
            return F.linear(x, self.p[name + "_weight"], self.p[name + "_bias"])

        def attention(self, x: Any, name: str) -> Any:
            b, t, d = x.shape
            qkv = self.linear(x, name + "_c_attn")
            q, k, v = (
                y.view(b, t, o.heads, -1).transpose(1, 2)
                for y in qkv.split(d, -1)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y.transpose(1, 2).reshape(b, t, d)
            return self.linear(y, name + "_c_proj")

        def forward(self, words: Any) -> Any:
            x = self.p["wte_weight"][words[:, :-1]] + self.p["wpe_weight"]
            for i in range(o.layers):
                h = self.norm(x, f"h_{i}_ln_1")
                x = x + self.attention(h, f"h_{i}_attn")
                h = self.linear(self.norm(x, f"h_{i}_ln_2"), f"h_{i}_mlp_c_fc")
                h = F.gelu(h, approximate="tanh")
                x = x + self.linear(h, f"h_{i}_mlp_c_proj")
            y = F.linear(self.norm(x, "ln_f"), self.p["wte_weight"])
            return F.cross_entropy(y.flatten(0, 1), words[:, 1:].flatten())

    model = Model().to(device)
    run = torch.compile(model)
    matrices = [x for x in model.parameters() if x.ndim > 1]
    rest = [x for x in model.parameters() if x.ndim < 2]
    optimiser = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": 0.1},
            {"params": rest, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
        fused=device == "cuda",
    )
    batch = torch.from_numpy(windows(o)).long().to(device)

    def call(t: int) -> Any:
        for group in optimiser.param_groups:
            group["lr"] = rate_at(o, t)
        with torch.autocast(device, torch.bfloat16):
            loss = run(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    if device == "cpu":
        return call, lambda: None, lambda: 0
    return call, torch.cuda.synchronize, torch.cuda.max_memory_allocated


def main() -> None:
    library, card = sys.argv[1], (*sys.argv[2:], "gpu")[0]
    o = settings()
    by = {"nabla": of_nabla, "jax": of_jax, "torch": of_torch}[library]
    call, wait, most = by(o, card)
    wait()
    begin = time.perf_counter()
    losses = [call(0).item()]
    first = time.perf_counter() - begin
    losses += [call(t).item() for t in range(1, EARLY)]
    times = []
    for _ in range(2):
        wait()
        begin = time.perf_counter()
        for t in range(TIMED):
            call(EARLY + t)
        wait()
        times.append((time.perf_counter() - begin) / TIMED)
    said = {
        "losses": losses,
        "ms": 1e3 * min(times),
        "cold": first - min(times),
        "peak": most(),
        "tokens": o.batch * o.context,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
