"""More rows of bench/gpu.py: convolutions of ResNet-50 and linear algebra."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gpu_row import Row, jax, jnp, normal, of, torch
from gpu_rows import ROWS

import nabla as nb


def conv(channels: int, side: int, dtype: str, way_back: bool) -> Row:
    """3 x 3 over 64 images, channels last; or its loss with both gradients."""
    n, c, s = of(64, 2), of(channels, 16), of(side, 6)
    x, w = normal(n, s, s, c), normal(3, 3, c, c)
    g = x[::-1].copy()  # not x: squares would add up to more than f16 can hold

    def ours(x: Any, w: Any) -> Any:
        return nb.conv2d(x, w, padding=1)

    def of_jax(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            w,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            precision="highest" if dtype == "float32" else None,
        )

    def of_torch(x: Any, w: Any) -> Any:
        torch.backends.cudnn.allow_tf32 = False
        y = torch.nn.functional.conv2d(
            x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1
        )
        return y.permute(0, 2, 3, 1)

    def back(f: Any, sums: Any, gradients: Any) -> Any:
        def loss(x: Any, w: Any, g: Any) -> Any:
            return sums(f(x, w) * g)

        return gradients(loss)

    def of_torch_back(x: Any, w: Any, g: Any) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = (of_torch(x, w) * g).sum(dtype=torch.float32)
        return y.detach(), *torch.autograd.grad(y, (x, w))

    def both(f: Any) -> Any:
        return lambda *a: (lambda y, d: (y, *d))(*f(*a))

    flops = 2.0 * 9 * n * s * s * c * c
    if not way_back:
        return Row([x, w], dtype, ours, of_jax, of_torch, flops=flops)
    return Row(
        [x, w, g],
        dtype,
        both(
            back(
                ours,
                lambda y: y.astype("float32").sum(),
                lambda f: nb.value_and_grad(f, argnums=(0, 1)),
            )
        ),
        both(
            back(
                of_jax,
                lambda y: y.astype("float32").sum(),
                lambda f: jax.value_and_grad(f, argnums=(0, 1)),
            )
        ),
        of_torch_back,
        flops=3 * flops,
    )


for _c, _s in ((64, 56), (256, 14)):
    for _dtype in ("bfloat16", "float16", "float32"):
        for _back in (False, True):
            _brief = _dtype.replace("float", "f")
            _name = f"conv 64x{_s}x{_s}x{_c} {_brief}"
            ROWS[_name + " and back" * _back] = partial(
                conv, _c, _s, _dtype, _back
            )


# Linear algebra in float32: the libraries call it alike.  Signs of vectors are
# not compared, and eigenvalues lie so far apart that vectors are known.


def definite(*shape: int) -> np.ndarray:
    x = normal(*shape)
    eye = np.eye(shape[-1], dtype=np.float32)
    return x @ x.swapaxes(-1, -2) / shape[-1] + eye


def symmetric(*shape: int) -> np.ndarray:
    q = np.linalg.qr(normal(*shape))[0]
    x = q * np.linspace(1, 2, shape[-1], dtype=np.float32)
    return x @ q.swapaxes(-1, -2)


def algebra(arrays: Callable[[], list[np.ndarray]], f: Any) -> Row:
    return Row(
        arrays(),
        "float32",
        partial(f, nb.linalg),
        lambda *x: f(jnp.linalg, *x),
        lambda *x: f(torch.linalg, *x),
    )


def sizes(f: Any) -> Callable[..., Any]:
    """Absolute values of all results of f."""
    return lambda *x: tuple(abs(y) for y in f(*x))


_large, _middle, _little = of(2048, 24), of(1024, 16), of(64, 6)

for _name, _arrays, _f in (
    (
        "cholesky 2048",
        lambda: [definite(_large, _large)],
        lambda by, x: by.cholesky(x),
    ),
    (
        "cholesky 1024 times 64",
        lambda: [definite(of(1024, 4), _little, _little)],
        lambda by, x: by.cholesky(x),
    ),
    (
        "solve 2048, 64 columns",
        lambda: [definite(_large, _large), normal(_large, of(64, 4))],
        lambda by, x, y: by.solve(x, y),
    ),
    (
        "qr 1024",
        lambda: [normal(_middle, _middle)],
        sizes(lambda by, x: by.qr(x)),
    ),
    (
        "eigh 1024",
        lambda: [symmetric(_middle, _middle)],
        sizes(lambda by, x: by.eigh(x)),
    ),
    (
        "eigh 1024 times 64",
        lambda: [symmetric(of(1024, 4), _little, _little)],
        sizes(lambda by, x: by.eigh(x)),
    ),
    (
        "svd 1024",
        lambda: [normal(_middle, _middle)],
        sizes(lambda by, x: by.svd(x, full_matrices=False)),
    ),
):
    ROWS[_name + " f32"] = partial(algebra, _arrays, _f)
