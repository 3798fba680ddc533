"""Half-precision dtypes: float16 of NumPy and bfloat16 of ml_dtypes, and predicates on dtypes.

NumPy does not know bfloat16: its ``kind`` is ``"V"``, as that of structured arrays, and it is no
subtype of ``np.floating``. So code asks these predicates and not ``dtype.kind`` where a dtype may
be bfloat16. ml_dtypes is imported when bfloat16 is first requested by name, never with odyssey.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.spec import is_bfloat16, is_number_dtype

__all__ = [
    "bfloat16",
    "is_bfloat16",
    "is_floating",
    "is_half",
    "is_inexact",
    "is_number_dtype",
    "named_dtype",
]


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
    return np.dtype(ml_dtypes.bfloat16)


def named_dtype(dtype: Any) -> Any:
    """Return the dtype bfloat16 for its name; return all else as it is.

    ``np.dtype("bfloat16")`` raises as long as ml_dtypes is not imported.
    """
    return bfloat16() if isinstance(dtype, str) and dtype == "bfloat16" else dtype


def is_half(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is float16 or bfloat16.

    >>> is_half(np.dtype(np.float16)), is_half(bfloat16()), is_half(np.dtype(np.float32))
    (True, True, False)
    """
    return dtype.char == "e" or is_bfloat16(dtype)


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Return whether numbers of a dtype are floating or complex.

    >>> is_inexact(np.dtype(np.complex64)), is_inexact(bfloat16()), is_inexact(np.dtype("V2"))
    (True, True, False)
    """
    return dtype.kind in "fc" or is_bfloat16(dtype)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Return whether numbers of a dtype are real and floating.

    >>> is_floating(np.dtype(np.float64)), is_floating(bfloat16()), is_floating(np.dtype(int))
    (True, True, False)
    """
    return dtype.kind == "f" or is_bfloat16(dtype)
