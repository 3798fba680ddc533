"""Specs: shape and dtype without data, interned, so that equal specs are one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.errors import DTypeError

__all__ = [
    "HALF_LISTENERS",
    "HALVES",
    "INEXACT",
    "Array",
    "Shape",
    "Spec",
    "fits_kind",
    "admit_half",
    "bfloat16",
    "intern",
    "is_bfloat16",
    "is_number_dtype",
    "named_dtype",
    "native_form",
    "spec_of",
]

Shape = tuple[int, ...]
Array = np.ndarray[Any, np.dtype[Any]]

# Comparing shapes and dtypes costs ~280 ns an op, comparing interned specs ~10. The table is
# emptied when full, so a spec may exist twice: identity proves equality, never inequality.
_INTERNED: dict[tuple[Shape, np.dtype[Any]], Spec] = {}
_LIMIT = 4096


def bfloat16() -> np.dtype[Any]:
    """Return the dtype bfloat16.

    Raises:
        DTypeError: ml_dtypes is not installed.

    >>> bfloat16()
    dtype(bfloat16)
    """
    try:
        import ml_dtypes
    except ImportError:
        raise DTypeError(
            'bfloat16 is a dtype of the package ml_dtypes; pip install "odyssey[half]"'
        ) from None
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def named_dtype(dtype: Any) -> Any:
    """Return the dtype bfloat16 for its name; return all else as it is.

    ``np.dtype("bfloat16")`` raises as long as ml_dtypes is not imported.
    """
    return bfloat16() if isinstance(dtype, str) and dtype == "bfloat16" else dtype


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is bfloat16 of ml_dtypes, whose kind is that of structured arrays."""
    return dtype.kind == "V" and dtype.type.__module__ == "ml_dtypes" and dtype.name == "bfloat16"


def native_form(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype of numbers in native byte order: the object that NumPy itself uses."""
    return dtype if is_bfloat16(dtype) else np.dtype(dtype.char)


def is_number_dtype(dtype: np.dtype[Any]) -> bool:
    """Return whether odyssey computes with numbers of a dtype."""
    # NumPy numbers the dtypes of other packages from 256 on: some, of 8 bits, have kind "f".
    return (dtype.kind in "biufc" and dtype.num < 256) or is_bfloat16(dtype)


HALVES: set[np.dtype[Any]] = set()
"""The half-precision dtypes that have arrived in this process."""

INEXACT = set(map(np.dtype, "efdgFDG"))
"""Dtypes of floating and complex numbers; a look-up here is faster than reading a kind."""

HALF_LISTENERS: list[Callable[[np.dtype[Any]], None]] = []
"""Called with each half-precision dtype before its first use: code for halves is installed then,
so that programs without halves are as fast as if there was none."""


def admit_half(dtype: np.dtype[Any]) -> None:
    """Install what handles a dtype, if it is a half and the first of its kind."""
    if dtype in HALVES or not (dtype.char == "e" or is_bfloat16(dtype)):
        return
    dtype = native_form(dtype)
    for tell in HALF_LISTENERS:  # idempotent: another thread may do the same
        tell(dtype)
    INEXACT.add(dtype)
    HALVES.add(dtype)


class Spec:
    """The type of an array: its ``shape`` and ``dtype``.

    Args:
        shape: Lengths of the axes.
        dtype: A dtype of numbers, or what ``np.dtype`` makes one of.

    Raises:
        DTypeError: the dtype is none, or not one of numbers.
        SettingError: a length is negative or no integer.

    >>> import numpy as np
    >>> Spec((2, 3), np.float32)
    float32[2, 3]
    """

    __slots__ = ("dtype", "is_complex", "shape")

    shape: Shape
    dtype: np.dtype[Any]
    is_complex: bool

    def __init__(self, shape: Shape, dtype: Any) -> None:
        if not isinstance(dtype, np.dtype):  # of a user: the library has dtypes and checked shapes
            shape, dtype = _checked(shape, dtype)
        self.shape = shape
        self.dtype = dtype
        self.is_complex = dtype.kind == "c"

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Spec):
            return NotImplemented
        return self.shape == other.shape and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def _checked(shape: Any, dtype: Any) -> tuple[Shape, np.dtype[Any]]:
    """Return a shape and a dtype that a user gave; raise if they are none."""
    from odyssey.checks import check_int, format_value

    try:
        known = np.dtype(named_dtype(dtype))
    except DTypeError:
        raise
    except Exception:  # such as RecursionError, of a list that contains itself
        known = None
    if dtype is None or known is None or not is_number_dtype(known):
        raise DTypeError(f"Spec: dtype={format_value(dtype)}; pass a dtype of numbers")
    lengths = shape if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(check_int("Spec", "shape", n, 0) for n in lengths), native_form(known)


def intern(shape: Shape, dtype: np.dtype[Any]) -> Spec:
    """Return the spec of ``shape`` and ``dtype``, the same object for the same pair.

    Raises:
        DTypeError: for what is not of numbers, such as objects.
    """
    key = (shape, dtype)
    spec = _INTERNED.get(key)
    if spec is None:
        if not is_number_dtype(dtype):
            raise DTypeError(f"an array of dtype {dtype} came; pass numbers")
        admit_half(dtype)
        if len(_INTERNED) >= _LIMIT:
            _INTERNED.clear()
        # Where arrays are taken in, they are brought to the byte order of this machine. By its
        # letter NumPy finds its own dtype, the one of results: a sweep compares by identity.
        spec = _INTERNED.setdefault(key, Spec(shape, native_form(dtype)))
    return spec


def spec_of(array: Any) -> Spec:
    """Return the spec of anything with a ``shape`` and a ``dtype``.

    >>> spec_of(np.zeros((2, 3)))
    float64[2, 3]
    """
    return _INTERNED.get((array.shape, array.dtype)) or intern(array.shape, array.dtype)


def fits_kind(dtype: np.dtype[Any], own: np.dtype[Any]) -> bool:
    """Whether numbers of ``dtype`` can be a derivative of a value of dtype ``own``.

    Complex ones of a real value cannot: their imaginary part would be lost.

    >>> fits_kind(np.dtype(int), np.dtype(float)), fits_kind(np.dtype(complex), np.dtype(float))
    (True, False)
    """
    return dtype.kind in ("biufc" if own.kind == "c" else "biuf") or is_bfloat16(dtype)


def __dir__() -> list[str]:
    return sorted(__all__)
