"""Checks of matrix shapes and dtypes, and sample matrices for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, LinAlgError, ShapeError
from odyssey.spec import Array, Shape
from odyssey.table.samples import reject

__all__ = [
    "HALF_MATRIX",
    "NOT_MATRICES",
    "NOT_SQUARE",
    "broadcast_batches",
    "positive_definite",
    "lapack_dtype",
    "real_dtype_of",
    "check_matrices",
    "require_finite",
    "well_conditioned",
    "check_square",
]

# ------------------------------------------------------------------ shapes and dtypes


def lapack_dtype(who: str, name: str, x: Any) -> np.dtype[Any]:
    """Return the dtype that LAPACK computes with; raise unless single or double precision."""
    dtype = getattr(x, "dtype", None) or np.asarray(x).dtype
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    if dtype.char not in "fdFD":
        raise DTypeError(f"{who}: {name} is of {dtype}; wanted are single or double precision")
    return np.dtype(dtype)


def real_dtype_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the real dtype of the same precision."""
    return np.empty(0, dtype).real.dtype


def check_matrices(who: str, a: Any, name: str = "a") -> np.dtype[Any]:
    """Raise ShapeError unless ``a`` is an array of matrices; return its LAPACK dtype."""
    shape: Shape = getattr(a, "shape", ())
    if len(shape) < 2:
        raise ShapeError(f"{who}: {name} has shape {shape}; wanted are matrices, (..., m, n)")
    return lapack_dtype(who, name, a)


def check_square(who: str, a: Any, name: str = "a") -> np.dtype[Any]:
    """Raise ShapeError unless ``a`` is an array of square matrices; return its LAPACK dtype."""
    shape: Shape = getattr(a, "shape", ())
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"{who}: {name} has shape {shape}; wanted are square matrices, (..., n, n)"
        )
    return lapack_dtype(who, name, a)


def require_finite(who: str, a: Any) -> None:
    """Raise LinAlgError if ``a`` is not finite: LAPACK's SVD might not terminate.

    NumPy raises this error where LAPACK does terminate.
    """
    if not np.isfinite(a).all():
        raise LinAlgError(
            f"{who}: SVD did not converge, because a has elements that are not finite; find them "
            "with np.isfinite(a)"
        )


def broadcast_batches(who: str, a: Shape, b: Shape) -> Shape:
    """Broadcast the batch axes of two operands, those before the matrix axes."""
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ShapeError(
            f"{who}: leading axes do not broadcast, a {a} and b {b} before the matrices"
        ) from None


# ------------------------------------------------------------------ sample matrices


def _is_square(x: Array) -> bool:
    return x.ndim > 1 and x.shape[-1] == x.shape[-2]


def well_conditioned(x: Array) -> Array:
    """Make square samples well conditioned; others are returned unchanged."""
    return x / 2 + 3 * np.eye(x.shape[-1]) if _is_square(x) else x


def positive_definite(x: Array) -> Array:
    """Make square samples Hermitian positive definite; others are returned unchanged."""
    if not _is_square(x):
        return x
    out: Array = x @ np.conj(np.swapaxes(x, -1, -2)) / 2 + 2 * np.eye(x.shape[-1])
    return out


HALF_MATRIX = np.eye(2, dtype=np.float16)
NOT_MATRICES = [
    reject((3,), match="wanted are matrices"),
    reject(HALF_MATRIX, error=DTypeError, match="single or double"),
]
NOT_SQUARE = [
    reject((2, 3), match="square matrices"),
    reject((3,), match="square matrices"),
    reject(HALF_MATRIX, error=DTypeError, match="single or double"),
]
