"""Linear algebra: products of vectors and matrices."""

from odyssey.linalg.contraction import contract, einsum
from odyssey.linalg.products import dot, inner, matmul, outer, tensordot, vdot
from odyssey.linalg.vectors import cross, kron

__all__ = [
    "contract",
    "cross",
    "dot",
    "einsum",
    "inner",
    "kron",
    "matmul",
    "outer",
    "tensordot",
    "vdot",
]
