"""``autocast``: products in half precision, sums and functions in float32, in a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.checks import check_flag, format_value
from odyssey.devices.half_dtypes import bfloat16, is_half
from odyssey.errors import DTypeError
from odyssey.table.registry import function_of
from odyssey.table.scope import AutocastBlock, autocast_now
from odyssey.table.value import Value

__all__ = ["autocast", "autocast_mode", "widened_half"]

_FLOAT32 = np.dtype(np.float32)
_BOOL = np.dtype(np.bool_)

MODES = ("float16", "bfloat16", "tf32")


def autocast(mode: Any, *, enabled: bool = True) -> AutocastBlock:
    """Compute products in half precision, and sums, losses and functions in float32, in this block.

    Each op has a class, ``precision`` of ``od.op``. Products, convolutions and attention
    (``"low"``) cast float32 operands to the half; exponentials, logarithms, powers, softmax, norms,
    sums, losses and factorizations (``"wide"``) cast halves to float32; other ops compute in the
    dtype of their operands (``"follow"``). Casts are ops: gradients have the dtype of the leaf. The
    block holds for ops on Variables that are called in it, also in compiled functions and ``vmap``,
    and not for ops on arrays alone. A product with a float64, complex or integer operand is left as
    it is. Gradients are computed in the dtypes of the forward run, inside or outside of the block.

    Args:
        mode: ``"float16"`` or ``"bfloat16"``, or such a dtype; ``"tf32"``, which casts nothing and
            changes nothing on the CPU: products of float32 on a CUDA device, those of arrays alone
            and of sweeps too, may round their operands to 10 bits of mantissa in the block; or
            None, to turn an enclosing block off.
        enabled: False for a block that does what ``autocast(None)`` does.

    Returns:
        A context manager, which also serves as a decorator.

    Raises:
        DTypeError: for any other mode, and for ``"bfloat16"`` without ml_dtypes.

    >>> import numpy as np
    >>> import odyssey as od
    >>> w = od.Variable(np.ones((3, 2), np.float32), requires_grad=True)
    >>> with od.GradientTape() as tape, od.autocast("float16"):
    ...     y = np.ones((4, 3), np.float32) @ w
    ...     loss = y.sum()
    >>> y.dtype, loss.dtype, tape.gradient(loss, w).dtype
    (dtype('float16'), dtype('float32'), dtype('float32'))
    """
    name = None if mode is None else _mode_name(mode)
    return _autocast_block(name if check_flag("autocast", "enabled", enabled) else None)


def autocast_mode() -> str | None:
    """Return the mode of the innermost ``autocast`` block here; None without one.

    >>> with autocast("tf32"):
    ...     autocast_mode()
    'tf32'
    """
    scope = autocast_now()
    return None if scope is None else scope.mode


def widened_half(value: Any) -> Any:
    """Return a Variable of half precision in float32 inside of a block that casts; else ``value``.

    For functions that are no op, as losses are, and compute in float32 as a whole.
    """
    scope = autocast_now()
    casts = scope is not None and scope.cast is not None and isinstance(value, Value)
    return value.astype(_FLOAT32) if casts and is_half(value._spec.dtype) else value


def _mode_name(mode: Any) -> str:
    """Return the name of a mode.

    Raises:
        DTypeError: it is none, or its dtype is not installed.
    """
    name = mode
    if not isinstance(mode, str):
        try:
            name = np.dtype(mode).name
        except Exception:  # any error of an object that says it is a dtype
            name = None
    if name not in MODES:
        raise DTypeError(
            f"autocast: mode is {format_value(mode)}; pass 'float16', 'bfloat16' or 'tf32', or "
            "None to turn casts off"
        )
    if name == "bfloat16":
        bfloat16()
    return str(name)


def _autocast_block(name: str | None) -> AutocastBlock:
    if name is None or name == "tf32":
        return AutocastBlock(name, None)
    return AutocastBlock(name, _caster(bfloat16() if name == "bfloat16" else np.dtype(name)))


def _caster(half: np.dtype[Any]) -> Callable[..., Sequence[Any]]:
    """Return a function that casts the operands of a call by the class of its op."""

    def cast_operands(row: Any, operands: Sequence[Any], tape: Any) -> Sequence[Any]:
        if row.precision == "follow":
            return operands
        dtypes = [getattr(operand, "dtype", None) for operand in operands]
        if row.precision == "wide":
            target, casts = _FLOAT32, [_is_half(dtype) for dtype in dtypes]
        elif any(map(_is_list, operands)) or not all(map(_may_narrow, dtypes)):
            return operands
        else:
            target = half
            casts = [d is not None and d not in (half, _BOOL) for d in dtypes]
        if True not in casts:
            return operands
        astype: Any = function_of("astype")
        return [
            astype(operand, target, tape=tape) if casts[k] else operand
            for k, operand in enumerate(operands)
        ]

    return cast_operands


def _is_half(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and is_half(dtype)


def _is_list(operand: Any) -> bool:
    return isinstance(operand, (list, tuple))  # whose numbers become float64


def _may_narrow(dtype: Any) -> bool:
    """Return whether an operand of a product leaves the product in float32 or less."""
    if dtype is None:
        return True
    if not isinstance(dtype, np.dtype):
        return False
    return (dtype.kind == "f" and dtype.itemsize == 4) or dtype == _BOOL or is_half(dtype)


def __dir__() -> list[str]:
    return sorted(__all__)
