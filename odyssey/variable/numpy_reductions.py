"""NumPy's reductions on Variables with ``dtype``, ``where`` and ``initial``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, describe_type, format_value
from odyssey.devices.arrays import ARRAYS, as_array
from odyssey.devices.half_dtypes import is_half, is_inexact
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise import arithmetic, choice, complex_numbers
from odyssey.ops.reductions import reduce
from odyssey.ops.reductions.variance import std_from_variance
from odyssey.ops.structure import joining, shape
from odyssey.table.shape_rules import reduced_axes, reduced_shape
from odyssey.table.value import Symbol, Value, Weak

__all__ = ["REDUCTIONS", "reduce_as_numpy"]

# For each reduction: the neutral element for where=, and the op that combines with initial=.
REDUCTIONS: dict[Any, tuple[Any, Callable[..., Any] | None]] = {
    np.sum: (0, arithmetic.add),
    np.prod: (1, arithmetic.multiply),
    np.max: (None, arithmetic.maximum),
    np.min: (None, arithmetic.minimum),
    np.amax: (None, arithmetic.maximum),
    np.amin: (None, arithmetic.minimum),
    np.mean: (0, None),
    np.any: (False, None),
    np.all: (True, None),
    np.var: (None, None),
    np.std: (None, None),
    np.cumsum: (None, None),
    np.cumprod: (None, None),
}


def reduce_as_numpy(who: str, func: Any, op: Callable[..., Any], given: dict[str, Any]) -> Any:
    """A reduction with NumPy's options: ``dtype`` casts, ``where`` masks, ``initial`` is combined.

    Args:
        who: ``func`` as users write it.
        func: NumPy's function.
        op: The op for it.
        given: The arguments that are not at their default, by NumPy's names.
    """
    left_out, join = REDUCTIONS[func]
    x = given.pop("a")
    x = x if hasattr(x, "dtype") else as_array(who, "the operand", x)
    if "out" in given:
        raise DTypeError(f"{who}: out= is refused; a result is always a new array")
    if (dtype := given.pop("dtype", None)) is not None:
        return _reduce_in_dtype(dtype, who, func, op, {**given, "a": x})
    mask, initial = given.pop("where", None), given.pop("initial", None)
    if mask is not None:
        mask = _mask_of(who, mask, x)
    if func in (np.var, np.std) and (mask is not None or "mean" in given):
        return _masked_moment(who, func, x, True if mask is None else mask, **given)
    if is_half(x.dtype) and func is np.mean and mask is not None:
        # As np.mean does, in single: sums of halves stop growing at 2048.
        found = reduce_as_numpy(
            who, func, op, {**given, "a": shape.astype(x, np.float32), "where": mask}
        )
        return shape.astype(found, x.dtype)
    count = None
    if mask is not None:
        neutral = left_out
        if left_out is None and join is not None and initial is not None:
            neutral = initial = _cast_initial(who, initial, x.dtype)
        if neutral is None:
            raise DTypeError(
                f"{who}: where= "
                + ("needs initial= as well" if join else "is not offered; mask the operand")
            )
        x = choice.where(mask, x, neutral)
        if func is np.mean:
            count = _count_selected(mask, x.shape, given.get("axis"), given.get("keepdims", False))
            op = reduce.sum
    if left_out is None and join is not None and initial is not None:
        x = _with_initial(who, x, given.get("axis"), initial)
    result = op(x, given.pop("axis", None), **given)
    if count is not None:
        result = arithmetic.divide(result, shape.astype(count, result.dtype))
    if initial is None or join is None:
        return result
    return join(result, _cast_initial(who, initial, result.dtype))


def _reduce_in_dtype(
    dtype: Any, who: str, func: Any, op: Callable[..., Any], given: dict[str, Any]
) -> Any:
    """Reduce cast numbers to a result of their dtype, as NumPy does: sums would widen otherwise."""
    x = shape.astype(given["a"], dtype)
    dtype = x.dtype
    if func in (np.mean, np.var, np.std) and dtype.kind in "biu":
        what = f"{who}: dtype={dtype} holds no fractions"
        raise DTypeError(f"{what}; pass a floating dtype, or cast the result")
    if func in (np.var, np.std) and dtype.kind != "c" and given["a"].dtype.kind == "c":
        what = f"{who}: dtype={dtype} loses the imaginary parts of {given['a'].dtype}"
        raise DTypeError(f"{what}; pass a complex dtype, or cast the result")
    if given.get("initial") is not None:
        given["initial"] = _cast_initial(who, given["initial"], dtype)
    result = reduce_as_numpy(who, func, op, {**given, "a": x})
    return result if result.dtype == dtype else shape.astype(result, dtype)


def _with_initial(who: str, x: Any, axis: Any, initial: Any) -> Any:
    """Return ``x`` with ``initial`` along each reduced axis that has no elements."""
    for at in reduced_axes(who, axis, len(x.shape)):
        if not x.shape[at]:
            ones = np.ones((*x.shape[:at], 1, *x.shape[at + 1 :]), x.dtype)
            # A product with 1 keeps the sign of a zero, which a sum with 0 does not.
            begun = arithmetic.multiply(ones, _cast_initial(who, initial, x.dtype))
            x = joining.concatenate([x, begun], axis=at)
    return x


def _cast_initial(who: str, initial: Any, dtype: np.dtype[Any]) -> Any:
    """Return ``initial=`` in the dtype of the reduction."""
    if isinstance(initial, (Value, Symbol)):
        if initial.shape:
            raise _not_a_scalar(who, initial)
        if initial.dtype.kind == "c" and dtype.kind != "c":
            raise DTypeError(
                f"{who}: initial={format_value(initial)} is complex in a reduction of {dtype}"
            )
        return initial if initial.dtype == dtype else shape.astype(initial, dtype)
    if is_inexact(dtype) and (type(initial) in (int, float) or isinstance(initial, Weak)):
        return initial  # it takes on the dtype of the fold
    if np.ndim(initial):
        raise _not_a_scalar(who, initial)
    try:
        return np.array(initial, dtype)[()]
    except STUMBLES as error:
        came = f"{who}: initial={format_value(initial)} came for a reduction of {dtype}"
        raise DTypeError(f"{came}: {error}") from None


def _not_a_scalar(who: str, initial: Any) -> ShapeError:
    came = shape.shape_of(initial)
    return ShapeError(f"{who}: initial= has shape {came}; pass one number")


def _mask_of(who: str, mask: Any, x: Any) -> Any:
    """Return the mask that ``where=`` gives; arrays must be boolean, as for NumPy."""
    if isinstance(mask, (Value, Symbol, *ARRAYS)) and mask.dtype.kind != "b":
        came = f"{who}: where= is {describe_type(mask)} of {mask.dtype}"
        raise DTypeError(f"{came}; pass booleans, where=mask != 0 for example")
    mask = mask if isinstance(mask, (Value, Symbol)) else as_array(who, "where", mask)
    given = shape.shape_of(mask)
    try:
        fits = np.broadcast_shapes(given, x.shape) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"{who}: where= has shape {given}, which does not broadcast to {x.shape}")
    return mask


def _count_selected(mask: Any, lengths: Any, axis: Any, keepdims: bool) -> Any:
    """Return the number of elements that a mask selects, perhaps known only to a call."""
    mask = shape.astype(mask, bool)
    return reduce.sum(shape.broadcast_to(mask, lengths), axis, keepdims=keepdims)


def _masked_moment(
    who: str,
    func: Any,
    x: Any,
    mask: Any,
    axis: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    mean: Any = None,
) -> Any:
    """Return ``np.var`` or ``np.std`` of the selected elements, about ``mean`` if given."""
    if ddof and correction is not None:
        raise DTypeError(f"{who}: ddof and correction are two names of one number")
    folded = reduced_shape(who, x.shape, axis, False)
    if x.dtype.kind in "biu":
        x = shape.astype(x, np.float64)
    number = np.empty(0, x.dtype).real.dtype
    mask = shape.astype(mask, bool)
    count = _count_selected(mask, x.shape, axis, True)
    if mean is None:
        total = reduce.sum(choice.where(mask, x, 0), axis, keepdims=True)
        mean = arithmetic.divide(total, shape.astype(count, number))
    away = choice.where(mask, arithmetic.subtract(x, mean), 0)
    square = arithmetic.multiply(away, complex_numbers.conj(away))
    square = complex_numbers.real(square) if x.dtype.kind == "c" else square
    left = arithmetic.subtract(count, ddof if correction is None else correction)
    left = shape.astype(arithmetic.maximum(left, 0), number)
    left = left if keepdims else shape.reshape(left, folded)
    square = arithmetic.divide(reduce.sum(square, axis, keepdims=keepdims), left)
    return square if func is np.var else std_from_variance(square)
