"""Shape rules: the spec of a result from the specs of operands."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, format_value
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.spec import Shape, Spec, is_bfloat16
from odyssey.table.signature import Layout

__all__ = [
    "axis_rule",
    "cumulative_rule",
    "elementwise_rule",
    "floating_dtype",
    "missing_rule",
    "normalize_axes",
    "reduced_axes",
    "reduced_shape",
    "reduction_rule",
    "result_dtype_of",
    "same_spec_rule",
    "spec_option_rule",
]


# ------------------------------------------------------------------ axes


def normalize_axes(who: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """Return ``axis`` (None, an int or a tuple) as sorted, non-negative, distinct ints."""
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    try:
        result = sorted({operator.index(a) % ndim if -ndim <= a < ndim else -1 for a in axes})
    except STUMBLES:
        raise DTypeError(
            f"{who}: axis is {format_value(axis)}; pass an int or a tuple of ints"
        ) from None
    if -1 in result or len(result) != len(axes):
        if not ndim:
            raise ShapeError(
                f"{who}: axis {format_value(axis)} does not fit a number, which has no axes"
            )
        raise ShapeError(
            f"{who}: axis {format_value(axis)} does not fit an array of {ndim} axes; "
            f"axes are distinct ints from {-ndim} to {ndim - 1}"
        )
    return tuple(result)


def reduced_axes(who: str, axis: Any, ndim: int, lone: bool = True) -> tuple[int, ...]:
    """Return the axes of a reduction; see ``normalize_axes``.

    With ``lone``, axis 0 or -1 of a scalar is accepted, as NumPy does for reductions by a ufunc.
    """
    if lone and ndim == 0 and isinstance(axis, (int, np.integer)) and axis in (0, -1):
        return ()
    return normalize_axes(who, axis, ndim)


def reduced_shape(who: str, shape: Shape, axis: Any, keepdims: bool, lone: bool = False) -> Shape:
    """Return the shape of a reduction of ``shape`` over ``axis``; see ``reduced_axes``."""
    axes = reduced_axes(who, axis, len(shape), lone)
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axes)


# ------------------------------------------------------------------ dtypes


def floating_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of floating functions of ``dtype``, as NumPy's ufuncs have it.

    >>> [floating_dtype(np.dtype(kind)) for kind in ("int8", "int64", "complex64")]
    [dtype('float16'), dtype('float64'), dtype('complex64')]
    """
    return dtype if is_bfloat16(dtype) else np.result_type(dtype, np.float16)


def result_dtype_of(function: Callable[..., Any]) -> Callable[[np.dtype[Any]], np.dtype[Any]]:
    """Return a function from the dtype of operands to the dtype of NumPy's result."""
    return lambda dtype: function(np.ones(1, dtype)).dtype


def same_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return ``dtype``."""
    return dtype


Dtype = Callable[[np.dtype[Any]], np.dtype[Any]]

# ------------------------------------------------------------------ rules


def same_spec_rule(x: Spec, *options: Any) -> Spec:
    """Shape rule of an op whose result has the spec of its operand."""
    return x


def spec_option_rule(x: Spec, *others: Any) -> Spec:
    """Shape rule of an op whose last option is a spec: that shape, the dtype of the operand."""
    return Spec(others[-1].shape, x.dtype)


def reduction_rule(who: str, dtype: Dtype = same_dtype, lone: bool = True) -> Callable[..., Spec]:
    """Return the shape rule of a reduction with options ``axis`` and ``keepdims``.

    Args:
        who: The op, for messages.
        dtype: Maps the dtype of the operand to that of the result.
        lone: See ``reduced_axes``.
    """

    def infer(x: Spec, axis: Any, keepdims: bool) -> Spec:
        return Spec(reduced_shape(who, x.shape, axis, keepdims, lone), dtype(x.dtype))

    return infer


def cumulative_rule(who: str, dtype: Dtype) -> Callable[..., Spec]:
    """Return the shape rule of a cumulative op: along an axis, or None to flatten."""

    def infer(x: Spec, axis: int | None, *options: Any) -> Spec:
        if axis is not None:
            reduced_axes(who, axis, x.ndim)
        # A scalar becomes an array of one axis.
        return Spec((x.size,) if axis is None or not x.ndim else x.shape, dtype(x.dtype))

    return infer


def axis_rule(who: str, dtype: Dtype) -> Callable[..., Spec]:
    """Return the shape rule of an op along an axis that keeps the shape."""

    def infer(x: Spec, axis: Any, *options: Any) -> Spec:
        normalize_axes(who, axis, x.ndim)
        return Spec(x.shape, dtype(x.dtype))

    return infer


def elementwise_rule(layout: Layout, reference: Callable[..., Any]) -> Callable[..., Spec]:
    """Return the shape rule of an elementwise op: broadcast shapes, run on ones for the dtype."""
    at_ones = ignore_fp_errors()(reference)  # 1 may be outside of the domain

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
            return Spec(shape, at_ones(*ones, *options).dtype)
        except TypeError as error:
            came = ", ".join(map(str, operands))
            raise DTypeError(f"{layout.name}: {_why(error, ones)}; came {came}") from None

    return infer


def _why(error: TypeError, operands: Sequence[Any]) -> str:
    """Return NumPy's message, or a plainer one for unsupported dtypes."""
    if "not supported for the input types" not in str(error):
        return str(error)
    if np.result_type(*operands).kind == "c":
        return "has no meaning for complex numbers; take the real part or the absolute value first"
    return "takes whole numbers and truth values"


def missing_rule(layout: Layout) -> Callable[..., Spec]:
    """Return a shape rule that raises, for a row without one."""

    def raise_missing(*specs: Any) -> Spec:
        raise OdysseyError(
            f"{layout.name}: cannot be traced, the row has no infer=; declare one in op(...)"
        )

    return raise_missing
