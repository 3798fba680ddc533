"""Linear algebra: products of vectors and matrices."""

from odyssey.linalg.products import dot, inner, matmul, outer, tensordot, vdot

__all__ = ["dot", "inner", "matmul", "outer", "tensordot", "vdot"]
