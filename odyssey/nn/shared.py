"""What layers have in common; and what the rules of one call have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array
from odyssey.ops.structure.shape import astype
from odyssey.spec import Array
from odyssey.table.shape_rules import floating_dtype

__all__ = ["SharedPullback", "as_floating", "as_operand"]


def as_operand(who: str, name: str, x: Any) -> Any:
    """Return an array, Variable or Symbol as it is, and other operands as an array."""
    return x if hasattr(x, "dtype") else as_array(who, name, x)


def as_floating(x: Any, tape: Any) -> Any:
    """An operand as floating numbers: products of others would be cut, or wrap round."""
    if x is None:
        return None
    x = x if hasattr(x, "dtype") else np.asarray(x)
    return x if x.dtype.kind in "fc" else astype(x, floating_dtype(x.dtype), tape=tape)


class SharedPullback:
    """The answers to the last cotangent of a call whose rules have most of their work in common.

    A sweep asks for the cotangents of the operands one after another. The first question answers
    all of them, and each answer is handed out once. It is left as a residual, and holds none of the
    operands, which are the tape's to keep.
    """

    def __init__(self) -> None:
        self._last: tuple[Array, dict[str, Array]] | None = None

    def cotangent(self, name: str, g: Array, answers: Callable[[], dict[str, Array]]) -> Array:
        """The cotangent of one operand.

        Args:
            name: Of the operand.
            g: The cotangent of the result.
            answers: Makes the cotangents of all operands, by name.
        """
        last, self._last = self._last, None
        # By value: who sees a cotangent, as functions given to on_gradient do, may write to it. NaN
        # is computed anew.
        if last is None or name not in last[1] or not np.array_equal(last[0], g):
            last = g.copy(), answers()
        answer = last[1].pop(name)
        self._last = last if last[1] else None
        return answer
