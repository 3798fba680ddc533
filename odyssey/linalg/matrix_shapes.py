"""What ops on matrices ask of shapes and dtypes, and the matrices of their samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, LinAlgError, ShapeError
from odyssey.spec import Array, Shape

__all__ = [
    "batch_of",
    "definite",
    "precision",
    "real_part",
    "rectangular",
    "refuse_not_finite",
    "regular",
    "square",
]

# ------------------------------------------------------------------ shapes and dtypes


def precision(who: str, name: str, x: Any) -> np.dtype[Any]:
    """The dtype that NumPy's linear algebra computes with: single or double precision."""
    dtype = getattr(x, "dtype", None) or np.asarray(x).dtype
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    if dtype.char not in "fdFD":
        raise DTypeError(f"{who}: {name} is of {dtype}; wanted are single or double precision")
    return np.dtype(dtype)


def real_part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the sizes of such numbers."""
    return np.empty(0, dtype).real.dtype


def rectangular(who: str, a: Any, name: str = "a") -> np.dtype[Any]:
    """The dtype that NumPy computes with, of matrices of any lengths."""
    shape: Shape = getattr(a, "shape", ())
    if len(shape) < 2:
        raise ShapeError(f"{who}: {name} has shape {shape}; wanted are matrices, (..., m, n)")
    return precision(who, name, a)


def square(who: str, a: Any, name: str = "a") -> np.dtype[Any]:
    """The dtype that NumPy computes with, of square matrices."""
    shape: Shape = getattr(a, "shape", ())
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"{who}: {name} has shape {shape}; wanted are square matrices, (..., n, n)"
        )
    return precision(who, name, a)


def refuse_not_finite(who: str, a: Any) -> None:
    """Raise for matrices that are not finite, of which LAPACK may seek singular vectors for ever.

    NumPy raises the same for those of which it does not.
    """
    if not np.isfinite(a).all():
        raise LinAlgError(
            f"{who}: SVD did not converge, since a has elements that are not finite; look for them "
            "with np.isfinite(a)"
        )


def batch_of(who: str, a: Shape, b: Shape) -> Shape:
    """The axes before the matrices of two operands, broadcast."""
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ShapeError(
            f"{who}: leading axes do not broadcast, a {a} and b {b} before the matrices"
        ) from None


# ------------------------------------------------------------------ of samples


def _is_square(x: Array) -> bool:
    return x.ndim > 1 and x.shape[-1] == x.shape[-2]


def regular(x: Array) -> Array:
    """Square matrices far from singular ones; what is not square stays."""
    return x / 2 + 3 * np.eye(x.shape[-1]) if _is_square(x) else x


def definite(x: Array) -> Array:
    """Hermitian matrices of positive eigenvalues; what is not square stays."""
    if not _is_square(x):
        return x
    found: Array = x @ np.conj(np.swapaxes(x, -1, -2)) / 2 + 2 * np.eye(x.shape[-1])
    return found
