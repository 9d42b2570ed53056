"""The rows of bench-cpu: what is computed, of what, and what to reach."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cpu_models as models
import numpy as np

# What exp and tanh cost at the least, in operations of FMA: the cycles that the
# best code we know of at most 2 ulp takes for 16 lanes, in each of which FMA
# would have done 32 operations.
EXP, TANH = 10.7 * 32 / 16, 24.2 * 32 / 16


@dataclass
class Work:
    """A row: what is computed, of what, and what to reach."""

    name: str
    make: Callable[[Any], Callable[..., Any]]  # the function, of a library
    arrays: Callable[[Any], tuple[Any, ...]]  # its arguments, of a generator
    reach: float  # ours by the best peer's
    flops: float = 0.0
    read: float = 0.0  # bytes
    write: float = 0.0
    rate: str = "fma"
    limit: float = 0.0  # ours by the limit; 0: nothing is asked
    most: float = 0.0  # seconds; 0: nothing is asked
    state: int = 0  # arguments that are donated, results 1, 2, ... replace them
    close: float = 1e-4  # error by the largest element
    random: bool = False  # other numbers in each library
    per: int = 0  # shows nanoseconds of so many parts
    peers: tuple[str, ...] = ("jax", "torch", "torch_compile")


def ints(rng: Any, *shape: int) -> Any:
    return rng.integers(0, 10, shape)


def pointwise() -> Iterator[Work]:
    for name, n in ("4M", 4 << 20), ("64M", 64 << 20):
        yield Work(
            f"chain {name}",
            lambda m: lambda *x: models.chain(m, *x),
            lambda rng, n=n: tuple(models.normal(rng, n) for _ in range(3)),
            reach=0.7,
            limit=1.3,
            flops=n * (EXP + TANH),
            read=12.0 * n,
            write=4.0 * n,
        )


def rows_of_1024() -> Iterator[Work]:
    """Softmax and layer norm; backward, the result has a cotangent."""
    m, n = 4096, 1024
    size = 4.0 * m * n

    def softmax(lib: Any, x: Any) -> Any:
        return lib.softmax(x, axis=-1)

    def square(rng: Any) -> Any:
        return models.normal(rng, m, n)

    def vector(rng: Any) -> Any:
        return models.normal(rng, n)

    yield Work(
        "softmax 4096x1024",
        lambda lib: lambda x: softmax(lib, x),
        lambda rng: (square(rng),),
        reach=0.7,
        flops=m * n * EXP,
        read=size,
        write=size,
    )
    yield Work(
        "softmax 4096x1024 backward",
        lambda lib: models.with_grad(lib, softmax, 1),
        lambda rng: (square(rng), square(rng)),
        reach=0.7,
        flops=m * n * EXP,
        read=2 * size,
        write=size,
    )
    yield Work(
        "layer norm 4096x1024",
        lambda lib: lambda *x: models.layer_norm(lib, *x),
        lambda rng: (square(rng), vector(rng), vector(rng)),
        reach=0.7,
        read=size,
        write=size,
    )
    yield Work(
        "layer norm 4096x1024 backward",
        lambda lib: models.with_grad(lib, models.layer_norm, 3),
        lambda rng: (square(rng), vector(rng), vector(rng), square(rng)),
        reach=0.7,
        read=2 * size,
        write=size,
    )


def sums() -> Iterator[Work]:
    for axis in 0, 1, None:
        yield Work(
            f"sum 4096x4096 axis {axis}",
            lambda m, axis=axis: lambda x: m.sum(x, axis=axis),
            lambda rng: (models.normal(rng, 4096, 4096),),
            reach=1.0,
            limit=1.3,
            read=4.0 * 4096 * 4096,
            close=1e-3,
        )


def product(m: int, n: int, k: int, batch: int = 0) -> Work:
    lead = (batch,) if batch else ()
    count = max(batch, 1)
    name = f"{batch} x {m}x{n}x{k}" if batch else f"{m}x{n}x{k}"
    return Work(
        f"matmul {name}",
        lambda lib: lambda x, y: x @ y,
        lambda rng: (
            models.normal(rng, *lead, m, k),
            models.normal(rng, *lead, k, n),
        ),
        reach=1.0,
        limit=1 / 0.85 if min(m, n, k) >= 256 else 0.0,
        flops=2.0 * count * m * n * k,
        read=4.0 * count * (m * k + k * n),
        write=4.0 * count * m * n,
    )


def bf16_product(m: int, n: int, k: int) -> Work:
    def make(lib: Any) -> Any:
        return lambda x, y: lib.bfloat16(x) @ lib.bfloat16(y)

    work = product(m, n, k)
    work.name += " bf16"
    work.make = make
    work.rate = "bf16"
    work.close = 2e-2
    return work


def products() -> Iterator[Work]:
    for n in 64, 128, 256, 512, 1024, 2048, 4096:
        yield product(n, n, n)
    for m in 1, 4, 16, 64:
        yield product(m, 3072, 768)
    yield product(64, 64, 64, 128)
    for n in 256, 1024:
        yield bf16_product(n, n, n)
    yield bf16_product(64, 3072, 768)


def layers() -> Iterator[Work]:
    m, k, n = 512, 768, 3072
    yield Work(
        "linear gelu 512x768x3072 backward",
        lambda lib: models.with_grad(lib, models.linear_gelu, 3),
        lambda rng: (
            models.normal(rng, m, k),
            models.normal(rng, k, n, scale=k**-0.5),
            models.normal(rng, n),
            models.normal(rng, m, n),
        ),
        reach=0.9,
        flops=6.0 * m * k * n,
    )
    size = 4, 12, 512, 64
    scores = 4 * 12 * 512 * 512 / 2

    def heads(rng: Any, count: int) -> tuple[Any, ...]:
        return tuple(models.normal(rng, *size) for _ in range(count))

    mask = np.tril(np.ones((512, 512), bool))
    yield Work(
        "attention 4x12x512x64",
        lambda lib: lambda *x: models.attention(lib, *x),
        lambda rng: (*heads(rng, 3), mask),
        reach=0.7,
        flops=scores * (4 * 64 + EXP),
    )
    yield Work(
        "attention 4x12x512x64 backward",
        lambda lib: models.with_grad(lib, models.attention, 3),
        lambda rng: (*heads(rng, 3), mask, *heads(rng, 1)),
        reach=0.7,
        flops=scores * (12 * 64 + EXP),
    )
    yield Work(
        "conv 3x3 8x56x56x64 backward",
        lambda lib: models.with_grad(lib, lambda m, x, w: m.conv(x, w), 2),
        lambda rng: (
            models.normal(rng, 8, 56, 56, 64),
            models.normal(rng, 3, 3, 64, 64, scale=1 / 24),
            models.normal(rng, 8, 56, 56, 64),
        ),
        reach=1.0,
        flops=4.0 * 8 * 56 * 56 * 9 * 64 * 64,
        close=1e-3,
    )


def adam(
    name: str,
    model: str,
    reach: float,
    parameters: float,
    tokens: float,
    most: float = 0.0,
) -> Work:
    """A step of Adam, which reads four arrays of the parameters' size and
    writes three."""
    step = models.STEPS[model]
    return Work(
        name,
        step.make,
        lambda rng: step.arrays(np, rng),
        reach=reach,
        most=most,
        flops=6.0 * parameters * tokens,
        read=16.0 * parameters,
        write=12.0 * parameters,
        state=3,
        close=2e-3,
    )


def steps() -> Iterator[Work]:
    yield adam("MLP 784-512-512-10 Adam", "mlp", 0.7, 670e3, 128)
    yield Work(
        "MLP 64-64-64-1 SGD",
        lambda lib: models.sgd_step(
            lib, lambda *a: models.square_loss(lib, *a)
        ),
        lambda rng: (
            models.mlp_init(rng, (64, 64, 64, 1)),
            models.normal(rng, 32, 64),
            models.normal(rng, 32, 1),
        ),
        reach=0.3,
        flops=6.0 * 8.5e3 * 32,
        state=1,
    )
    yield adam("GPT 4 layers AdamW", "gpt4", 0.8, 3.2e6, 8 * 256)
    yield adam("GPT-2 124M AdamW", "gpt2", 0.8, 124e6, 4 * 64, 1.25)


def loops() -> Iterator[Work]:
    count = 1_000_000
    yield Work(
        "scan 10^6 steps, ns a step",
        lambda lib: lambda x: lib.loop(lambda c: c * 0.999 + 0.1, x, count),
        lambda rng: (np.float32(0.5),),
        reach=1.0,
        most=3e-9 * count,
        per=count,
        peers=("jax",),
    )


def randoms() -> Iterator[Work]:
    n = 16 << 20
    for name in "uniform", "normal":
        yield Work(
            f"random {name} 16M",
            lambda lib, name=name: lambda key: getattr(lib, name)(key, n),
            lambda rng: (),
            reach=0.5,
            write=4.0 * n,
            close=0.1,
            random=True,
            peers=("jax", "jax_rbg", "torch", "torch_compile"),
        )


def picks() -> Iterator[Work]:
    """What is read or written by index, and running totals; peers: JAX."""
    m, n = 4096, 1024

    def labels(rng: Any) -> Any:
        return rng.integers(0, n, m)

    def lookup(w: Any, i: Any) -> Any:
        return w[i] * 2.0

    yield Work(
        "cross entropy 4096x1024 backward",
        lambda lib: lib.grad(lambda x, i: models.cross_entropy(lib, x, i)),
        lambda rng: (models.normal(rng, m, n), labels(rng)),
        reach=1.0,
        flops=m * n * EXP,
        read=4.0 * m * n,
        write=4.0 * m * n,
        peers=("jax",),
    )
    yield Work(
        "lookup 4096 of 1024x1024",
        lambda lib: lookup,
        lambda rng: (models.normal(rng, n, n), labels(rng)),
        reach=1.0,
        read=4.0 * n * n,
        write=4.0 * m * n,
        peers=("jax",),
    )
    yield Work(
        "lookup 4096 of 1024x1024 backward",
        lambda lib: lib.grad(lambda w, i: lib.sum(lookup(w, i) ** 2)),
        lambda rng: (models.normal(rng, n, n), labels(rng)),
        reach=1.0,
        read=4.0 * n * n,
        write=4.0 * n * n,
        peers=("jax",),
    )
    for axis in 0, 1:
        yield Work(
            f"cumsum 4096x1024 axis {axis}",
            lambda lib, axis=axis: lambda x: lib.cumsum(x, axis=axis),
            lambda rng: (models.normal(rng, m, n),),
            reach=1.0,
            read=4.0 * m * n,
            write=4.0 * m * n,
            peers=("jax",),
        )


def calls() -> Iterator[Work]:
    yield Work(
        "call, 2 arguments",
        lambda lib: lambda x, y: x + y,
        lambda rng: (models.normal(rng, 8), models.normal(rng, 8)),
        reach=1.0,
        most=1e-6,
        peers=("jax", "torch_compile"),
    )
    yield Work(
        "call, dict of 100",
        lambda lib: lambda d: d["t0"] + d["t99"],
        lambda rng: ({f"t{i}": models.normal(rng, 8) for i in range(100)},),
        reach=1.0,
        most=12e-6,
        peers=("jax", "torch_compile"),
    )


def works() -> Iterator[Work]:
    """All rows, in the order of the table."""
    yield from pointwise()
    yield from rows_of_1024()
    yield from sums()
    yield from products()
    yield from layers()
    yield from steps()
    yield from loops()
    yield from randoms()
    yield from picks()
    yield from calls()
