"""Operands of layers, and pullbacks shared by the rules of one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.same_device import namespace_of
from odyssey.ops.structure.shape import astype
from odyssey.spec import Array
from odyssey.table.shape_rules import floating_dtype

__all__ = ["SharedPullback", "as_floating", "as_operand"]


def as_operand(who: str, name: str, x: Any) -> Any:
    """Return an array, Variable or Symbol as it is, and other operands as an array."""
    return x if hasattr(x, "dtype") else as_array(who, name, x)


def as_floating(x: Any) -> Any:
    """Return an operand in a floating dtype: products of integers would wrap round."""
    if x is None:
        return None
    x = x if hasattr(x, "dtype") else np.asarray(x)
    return x if is_inexact(x.dtype) else astype(x, floating_dtype(x.dtype))


class SharedPullback:
    """The cotangents of all operands of a call, computed once for its last cotangent.

    A sweep calls the rules of the operands one after another. The first call computes the
    cotangents of all operands, and each is returned once. The object is a residual, and holds no
    operands, which the tape keeps.
    """

    def __init__(self) -> None:
        self._last: tuple[Array, dict[str, Array]] | None = None

    def cotangent(self, name: str, g: Array, answers: Callable[[], dict[str, Array]]) -> Array:
        """Return the cotangent of one operand.

        Args:
            name: The name of the operand.
            g: The cotangent of the result.
            answers: Computes the cotangents of all operands, by name.
        """
        last, self._last = self._last, None
        # Compared by value, since callbacks such as on_gradient may write to a cotangent. NaN is
        # computed again.
        if (
            last is None
            or name not in last[1]
            or type(last[0]) is not type(g)  # of another device
            or not namespace_of(g).array_equal(last[0], g)
        ):
            last = g.copy(), answers()
        answer = last[1].pop(name)
        self._last = last if last[1] else None
        return answer
