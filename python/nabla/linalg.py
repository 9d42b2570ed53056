"""Linear algebra on the matrices of the last two axes."""

from __future__ import annotations

from collections import namedtuple

from . import _nabla
from ._functions import matrix_transpose, norm, tensordot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._functions import DTypeLike
    from ._nabla import ArrayLike, Tensor

_op = _nabla.ops

cholesky = _op["cholesky"]
svdvals = _op["svdvals"]
eigvalsh = _op["eigvalsh"]
solve = _op["solve"]
inv = _op["inv"]
pinv = _op["pinv"]
det = _op["det"]
vector_norm = _op["vector_norm"]
matrix_power = _op["matrix_power"]
matrix_rank = _op["matrix_rank"]
cross = _op["cross"]
diagonal = _op["diagonal"]
outer = _op["outer"]
matmul = _op["matmul"]
vecdot = _op["vecdot"]

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

QRResult = namedtuple("QRResult", ["Q", "R"])
SVDResult = namedtuple("SVDResult", ["U", "S", "Vh"])
EighResult = namedtuple("EighResult", ["eigenvalues", "eigenvectors"])
SlogdetResult = namedtuple("SlogdetResult", ["sign", "logabsdet"])


def qr(x: ArrayLike, *, mode: str = "reduced") -> QRResult:
    """Q with orthonormal columns and upper triangular R, x = Q R."""
    return QRResult(*_op["qr"](x, mode=mode))


def svd(x: ArrayLike, *, full_matrices: bool = True) -> SVDResult:
    """U, falling S and Vh with x = U diag(S) Vh."""
    return SVDResult(*_op["svd"](x, full_matrices=full_matrices))


def eigh(x: ArrayLike) -> EighResult:
    """Rising eigenvalues and eigenvectors of a symmetric matrix."""
    return EighResult(*_op["eigh"](x))


def slogdet(x: ArrayLike) -> SlogdetResult:
    """The sign of the determinant and the log of its absolute value."""
    return SlogdetResult(*_op["slogdet"](x))


def matrix_norm(
    x: ArrayLike, *, keepdims: bool = False, ord: float | str | None = "fro"
) -> Tensor:
    """The norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    if not isinstance(ord, str):
        ord = "fro" if ord is None else f"{ord:g}"
    y: Tensor = _op["matrix_norm"](x, keepdims=keepdims, ord=ord)
    return y


def trace(x: ArrayLike, *, offset: int = 0, dtype: DTypeLike = None) -> Tensor:
    """The sum of a diagonal."""
    y: Tensor = _op["cast"](_op["trace"](_op["cast"](x, dtype), offset), dtype)
    return y
