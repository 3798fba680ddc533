"""Shape rules: from the specs of operands to that of a result, for rows to share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.spec import Spec
from odyssey.table.signature import Layout

__all__ = ["by_running", "floating", "refusing"]


def floating(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which a function that has no integers for results computes, as NumPy's do.

    >>> floating(np.dtype(np.int8)), floating(np.dtype(np.int64)), floating(np.dtype(np.complex64))
    (dtype('float16'), dtype('float64'), dtype('complex64'))
    """
    return np.result_type(dtype, np.float16)


def by_running(layout: Layout, reference: Callable[..., Any]) -> Callable[..., Spec]:
    """The rule of an elementwise op: broadcast, and run on ones for the dtype."""

    def infer(*specs: Any) -> Spec:
        operands, options = specs[: len(layout.arrays)], specs[len(layout.arrays) :]
        shapes = [spec.shape for spec in operands if isinstance(spec, Spec)]
        try:
            shape = np.broadcast_shapes(*shapes)
        except (ValueError, RuntimeError):  # the latter for more axes than NumPy broadcasts
            came = ", ".join(
                f"{name} {spec.shape}"
                for name, spec in zip(layout.arrays, operands, strict=True)
                if isinstance(spec, Spec)
            )
            raise ShapeError(
                f"{layout.name}: shapes do not broadcast, {came}; "
                "from the right, sizes must be equal or one of them 1"
            ) from None
        ones = [np.ones((), s.dtype) if isinstance(s, Spec) else s for s in operands]
        try:
            with np.errstate(all="ignore"):  # 1 may be where a function has no value
                return Spec(shape, reference(*ones, *options).dtype)
        except TypeError as error:
            came = ", ".join(map(str, operands))
            raise DTypeError(f"{layout.name}: {error}; came {came}") from None

    return infer


def refusing(layout: Layout) -> Callable[..., Spec]:
    """The rule of a row that has none."""

    def refuse(*specs: Any) -> Spec:
        raise OdysseyError(
            f"{layout.name}: cannot be traced, the row has no infer=; declare one in op(...)"
        )

    return refuse
