"""Functions of SciPy, for rows whose numbers no scalar of ours computes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from odyssey.errors import OdysseyError
from odyssey.spec import Array

__all__ = ["by_scipy"]


def by_scipy(name: str, *operands: Any) -> Array:
    """SciPy's ufunc, in the floating dtype that NumPy's own functions would give.

    Raises:
        OdysseyError: SciPy, which is an extra, cannot be imported.
        TypeError: An operand is complex; the op's name is put before the message where it is
            called.
    """
    weak = all(type(v) in (int, float, bool) for v in operands)
    dtype = np.result_type(*operands, np.float64 if weak else np.float16)
    if dtype.kind != "f":
        raise TypeError("needs real numbers")
    try:
        ufunc = getattr(import_module("scipy.special"), name)
    except ImportError as error:
        raise OdysseyError(
            f"{name}: SciPy cannot be imported ({error}), and computes it; everything else works "
            "without it; `pip install odyssey[special]`"
        ) from error
    # In double precision throughout: SciPy's single one errs by more than its last places.
    out = ufunc(*[np.asarray(v).astype(np.float64) for v in operands])
    return np.asarray(out).astype(dtype, copy=False)[()]
