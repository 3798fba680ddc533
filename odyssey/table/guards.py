"""What is done for rows from outside, and for those of real numbers: their results are checked."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from odyssey.devices.arrays import plain_result
from odyssey.devices.ownership import apart
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.table.row import PASS, Row, Rule
from odyssey.table.value import NUMBERS, Symbol, Value

__all__ = ["checking", "forward_in_own_memory", "in_own_memory", "refusing_complex"]


def in_own_memory(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let a kernel of somebody else that returns an operand, or a part of one, return a copy."""
    return lambda *args: apart(plain_result(name, kernel(*args)), args)


def forward_in_own_memory(
    row: Row, forward: Callable[..., Any], real: bool
) -> Callable[..., tuple[Any, Any] | None]:
    """The same for a ``forward``: what it leaves must be its own too."""

    def alone(*args: Any) -> tuple[Any, Any] | None:
        pair = forward(*args)
        if pair is None:
            return None
        out, residual = pair
        if real and out.dtype.kind == "c":
            return None  # the kernel says why it refuses this
        parts = residual if type(residual) is tuple else (residual,)
        known = (np.ndarray, np.generic, *NUMBERS, type(None))
        if not all(isinstance(part, known) for part in parts):
            raise OdysseyError(
                f"op {row.name}: forward left {type(residual).__name__} {residual!r}; the residual "
                "must be an array, a number or a tuple of them"
            )
        own = tuple([apart(part, (*args, out)) for part in parts])
        return apart(out, args), own if type(residual) is tuple else own[0]

    return alone


def checking(row: Row, place: int, rule: Rule | None, forward: bool = False) -> Rule | None:
    """A rule of somebody else, whose result is checked, and copied where it is a saved array.

    Gradients share memory with nothing.

    Args:
        row: The op.
        place: Which of its operands the rule is of.
        rule: As a sweep calls it.
        forward: Whether it is a forward rule.
    """
    if rule is None or rule is PASS:
        return rule
    who = f"{row.name}: the {'forward ' if forward else ''}rule of {row.arrays[place]}"

    def checked(g: Any, kept: Any, specs: Any) -> Any:
        r = rule(g, kept, specs)
        if not isinstance(r, (Value, Symbol)):
            r = plain_result(who, r)
        own = specs[-1 if forward else place] if specs is not None else g
        wide, narrow = (own, r) if forward else (r, own)
        if own is not None and wide.shape != narrow.shape:
            _check_broadcast(who, r.shape, wide.shape, narrow.shape)
        return r.copy() if any(r is value for value in kept or ()) else r

    return checked


def _check_broadcast(who: str, came: Any, wide: Any, narrow: Any) -> None:
    try:
        fits = np.broadcast_shapes(wide, narrow) == wide
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{who} gave something of shape {came} for a value of shape "
            f"{narrow if came == wide else wide}; try od.testing.check_gradients"
        )


def refusing_complex(row: Row, function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a kernel or a shape rule of real numbers raise where complex ones come out."""

    @wraps(function)
    def refusing(*values: Any) -> Any:
        result = function(*values)
        if result.dtype.kind == "c":
            raise DTypeError(
                f"{row.name}: has no meaning for complex numbers, {result.dtype} came; "
                "take the real part or the absolute value first"
            )
        return result

    return refusing
