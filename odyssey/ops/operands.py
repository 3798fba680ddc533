"""What ops of real numbers ask of their operands and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.ops.values import Symbol, Value
from odyssey.spec import Array

__all__ = ["numbers", "real_floating"]


def real_floating(x: Any) -> Array:
    """``x`` as a real floating array; integers get the dtype that NumPy's own functions give.

    Raises:
        TypeError: ``x`` is complex; the op's name is put before the message where it is called.
    """
    x = np.asarray(x)
    if x.dtype.kind == "f":
        return x
    if x.dtype.kind in "biu":
        return x.astype(np.result_type(x.dtype, np.float16))
    raise TypeError("needs real numbers")


def numbers(who: str, *names: str) -> Callable[..., tuple[float, ...]]:
    """A ``prepare`` for an op whose options are real numbers.

    Plain Python floats, so that an option raises no precision.
    """

    def prepare(*options: Any) -> tuple[float, ...]:
        for name, option in zip(names, options, strict=True):
            if isinstance(option, (Value, Symbol)) or np.ndim(option) or np.iscomplexobj(option):
                raise DTypeError(f"{who}: {name} is {option!r}; it is static, pass a real number")
        try:
            return tuple(float(option) for option in options)
        except (TypeError, ValueError) as error:
            raise DTypeError(f"{who}: {', '.join(names)}: {error}; pass a real number") from None

    return prepare
