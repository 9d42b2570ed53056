"""Kernels of one's own on a card."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both import GPU, compare, mesh, values

import nabla as nb

KERNELS = """#include <nabla/kernel.h>
NB_MAP1(cube, x, x * x * x)
NB_KERNEL(squares)
{
    const nb_view *x = nb_in(a, 0);
    NB_ROWS(a, r)
    {
        const float *row = NB_ROW(float, x, r);
        float sum = 0;
        for (int64_t k = 0; k < nb_row_size(x); k++)
            sum += row[k] * row[k];
        *NB_ROW(float, nb_out(a, 0), r) = sum;
    }
}
NB_KERNEL(refuse) { *a->status = 42; }
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("kernels")
    for suffix in ("c", "cu"):
        (folder / f"all.{suffix}").write_text(KERNELS)
    return folder


def made(folder: Path) -> tuple[Any, Any]:
    class Cube(nb.UnaryOperation):
        name = "cube"

        def kernel(self, x: Any) -> Any:
            return nb.call_custom_kernel("cube", folder, x, x.type)

        def _derivative(self, primal: Any, output: Any) -> Any:
            return 3 * primal * primal

    class Squares(nb.Operation):
        name = "squares"
        signature = "... n -> ..."

        def kernel(self, x: Any) -> Any:
            kind = nb.TensorType(x.shape[:-1], x.dtype)
            return nb.call_custom_kernel("squares", folder, x, kind)

        def vjp_rule(self, primals: Any, cts: Any, outputs: Any) -> Any:
            return 2 * cts[0][..., None] * primals[0]

    return Cube(), Squares()


def test_kernels_of_ones_own(kernels: Path) -> None:
    cube, squares = made(kernels)

    def loss(x: Any) -> Any:
        return nb.sum(nb.sin(squares(cube(x))))

    def turn(c: Any, row: Any) -> Any:
        return c * 0.5 + squares(row), cube(c)

    def loop(x: Any) -> Any:
        return nb.scan(turn, nb.zeros_like(x[0, :, 0]), x)

    a = values(2, 3, 4) * 0.5
    compare(cube, a)
    compare(lambda x: squares(x.T), a)
    for f in (loss, nb.grad(loss), nb.vmap(nb.grad(loss)), loop):
        compare(f, a, tolerance=1e-4)
        compare(nb.compile(f), a, tolerance=1e-4)


def test_kernels_on_a_mesh(kernels: Path) -> None:
    cube, squares = made(kernels)
    a = values(8, 3)
    x = nb.Tensor(a).shard(mesh(), nb.P("x", None))
    y = squares(cube(x))
    assert y.device == GPU
    np.testing.assert_allclose(y.numpy(), (a**6).sum(1), rtol=1e-4)


def test_kernels_that_are_not_for_a_card(kernels: Path) -> None:
    call = nb.call_custom_kernel
    x = nb.ones(3, device="gpu")
    with pytest.raises(FileNotFoundError):
        call("cube", kernels / "none.cu", x, x.type)
    with pytest.raises(ValueError, match="no function for gpu:0"):
        call("cube", kernels / "all.c", x, x.type)
    with pytest.raises(ValueError, match="void absent"):
        call("absent", kernels, x, x.type)
    with pytest.raises(ValueError, match="not Device"):
        call("cube", kernels, x, x.type, device="cpu")
    made = call("cube", kernels, np.ones(3), x.type, device="gpu")
    assert made.device == GPU
    (kernels / "wrong.cu").write_text("NB_KERNEL(wrong) { oops; }")
    with pytest.raises(RuntimeError, match=r"wrong\.cu"):
        call("wrong", kernels / "wrong.cu", x, x.type)
    y = call("refuse", kernels / "all.cu", x, x.type)
    with pytest.raises(RuntimeError, match="refuse.*status 42"):
        y.numpy()
    assert call("cube", kernels, x, x.type).tolist() == [1.0, 1.0, 1.0]
