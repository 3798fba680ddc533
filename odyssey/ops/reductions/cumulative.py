"""Cumulative sums and products, and linear recurrences."""

from __future__ import annotations

import operator
from itertools import accumulate
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.errors import DTypeError, ShapeError
from odyssey.kernels import scan
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.structure.batching import shift_axes, spread
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import reshape
from odyssey.spec import Spec, spec_of
from odyssey.table.batch import Batch
from odyssey.table.canonical_options import one_axis
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import (
    cumulative_rule,
    normalize_axes,
    result_dtype_of,
)

# ------------------------------------------------------------------ linear recurrence


def _axis_option(axis: Any, reverse: bool) -> tuple[int, bool]:
    try:
        return operator.index(axis), reverse
    except TypeError:
        raise DTypeError(f"linear_recurrence: axis is {format_value(axis)}; pass an int") from None


def _recurrence_spec(x: Spec, factors: Spec, axis: int, reverse: bool) -> Spec:
    if x.shape != factors.shape:
        raise ShapeError(
            f"linear_recurrence: x {x.shape} and factors {factors.shape} must have one shape"
        )
    normalize_axes("linear_recurrence", axis, x.ndim)
    return Spec(x.shape, np.result_type(x.dtype, factors.dtype))


def _recurrence(x: Any, factors: Any, axis: int, reverse: bool) -> Any:
    x, factors = np.asarray(x), np.asarray(factors)
    dtype = _recurrence_spec(
        Spec(x.shape, x.dtype), Spec(factors.shape, factors.dtype), axis, False
    )
    out = np.array(x, dtype.dtype)
    if out.ndim == 1 and out.dtype.kind == "f":
        # On Python floats: 80 ns an element; NumPy scalars take 500.
        return np.array(_recurrence_in_python(out.tolist(), factors.tolist(), reverse), out.dtype)
    lines, steps = np.moveaxis(out, axis, 0), np.moveaxis(factors, axis, 0)
    if reverse:
        lines, steps = lines[::-1], steps[:0:-1]
    else:
        steps = steps[1:]
    for k, step in enumerate(steps):
        lines[k + 1] += step * lines[k]
    return out


def _recurrence_loop(x: Any, factors: Any, axis: int, reverse: bool) -> Any:
    _recurrence_spec(spec_of(x), spec_of(factors), axis, reverse)
    return scan.linear_recurrence(x, factors, axis, reverse)


def _recurrence_in_python(x: list[float], factors: list[float], reverse: bool) -> list[float]:
    if not reverse:
        pairs = zip(x[1:], factors[1:], strict=True)
        return (
            list(accumulate(pairs, lambda s, pair: pair[0] + pair[1] * s, initial=x[0])) if x else x
        )
    pairs = zip(x[-2::-1], factors[:0:-1], strict=True)
    found = accumulate(pairs, lambda s, pair: pair[0] + pair[1] * s, initial=x[-1]) if x else x
    return list(found)[::-1]


def _axis_index(ndim: int, axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * (axis % ndim) + (part,)


def _shift(x: Any, axis: int, forward: bool) -> Any:
    """Shift elements by one position along an axis; 0 comes in at the end."""
    ndim = len(x.shape)
    lengths = list(x.shape)
    lengths[axis] = min(1, lengths[axis])
    nothing = np.zeros(lengths, x.dtype)
    if forward:
        return concatenate([nothing, getitem(x, _axis_index(ndim, axis, slice(0, -1)))], axis)
    return concatenate([getitem(x, _axis_index(ndim, axis, slice(1, None))), nothing], axis)


def _factors_vjp(g: Any, factors: Any, out: Any, axis: int, reverse: bool) -> Any:
    back = linear_recurrence(g, factors, axis=axis, reverse=not reverse)
    if reverse:
        return mul(_shift(back, axis, True), out)
    return mul(back, _shift(out, axis, True))


def _factors_jvp(t: Any, factors: Any, out: Any, axis: int, reverse: bool) -> Any:
    moved = _shift(mul(t, out), axis, False) if reverse else mul(t, _shift(out, axis, True))
    return linear_recurrence(moved, factors, axis=axis, reverse=reverse)


def _lower_recurrence(build: Any, x: Any, factors: Any, axis: int, reverse: bool) -> Any:
    made = np.result_type(x.dtype, factors.dtype)
    # A single line is computed in double precision, as in the kernels.
    dtype = np.dtype(np.float64) if x.ndim == 1 and made == np.float32 else made
    x, factors = build.cast(x, dtype), build.cast(factors, dtype)
    turned = _axis_index(x.ndim, axis, slice(None, None, -1))
    if reverse:
        x, factors = build.slice(x, turned), build.slice(factors, turned)
    steps = _axis_index(x.ndim, axis, slice(0, -1) if reverse else slice(1, None))
    steps = build.slice(factors, steps)
    found = build.scan(lambda before, x, f: x + f * before, x, steps, axis=axis)
    return build.cast(build.slice(found, turned) if reverse else found, made)


def _recurrence_batch(batch: Batch, x: Any, factors: Any, axis: int, reverse: bool) -> Any:
    x, factors = spread(batch, 0, x), spread(batch, 1, factors)
    return linear_recurrence(x, factors, axis=shift_axes(axis, len(x.shape) - 1), reverse=reverse)


@op(
    primitive="scan",
    lowering=_lower_recurrence,
    kernel=_recurrence,
    kernels=[Kernel("lines side by side", _recurrence_loop, when=scan.is_recurrence_supported)],
    prepare=_axis_option,
    canonical=lambda x, factors, axis, reverse: (axis % x.ndim, reverse),
    infer=_recurrence_spec,
    vjp={
        "x": lambda g, factors, axis, reverse: linear_recurrence(
            g, factors, axis=axis, reverse=not reverse
        ),
        "factors": _factors_vjp,
    },
    jvp={
        "x": lambda t, factors, axis, reverse: linear_recurrence(
            t, factors, axis=axis, reverse=reverse
        ),
        "factors": _factors_jvp,
    },
    vmap=_recurrence_batch,
    samples=[
        sample((5,), (5,)),
        sample((5,), (5,), reverse=True),
        sample((2, 3), (2, 3), axis=0),
        sample((2, 3, 2), (2, 3, 2), axis=-2, reverse=True),
        sample((1, 2), (1, 2), axis=0),
        sample((0, 2), (0, 2), axis=0),
        sample((0,), (0,), reverse=True),
    ],
    rejects=[
        reject((3,), (2,), match="must have one shape"),
        reject((2, 3), (2, 3), axis=2, match="does not fit"),
        reject((), (), match="does not fit"),
        reject((2, 3), (2, 3), axis=(0, 1), error=DTypeError, match="pass an int"),
    ],
)
def linear_recurrence(x: Any, factors: Any, /, *, axis: int = -1, reverse: bool = False) -> Any:
    """Linear recurrence along an axis: ``out[k] = x[k] + f[k] out[k - 1]``.

    With ``reverse``, its transpose: ``out[k] = x[k] + f[k + 1] out[k + 1]``.
    """
    return _recurrence(x, factors, axis, reverse)


# ------------------------------------------------------------------ cumulative product


def _scan_operand(x: Any, axis: int | None) -> tuple[Any, int]:
    """Return the operand and its axis; all elements on one axis if ``axis`` is None."""
    if axis is None or not x.shape:
        return reshape(x, -1), 0
    return x, axis


def _products_before(x: Any, axis: int) -> Any:
    """Return for each element the product of those before it."""
    if not x.shape[axis]:
        return x
    lengths = list(x.shape)
    lengths[axis] = 1
    parts = [np.ones(lengths, x.dtype), getitem(x, _axis_index(len(x.shape), axis, slice(0, -1)))]
    return cumprod(concatenate(parts, axis), axis)


def _cumprod_rule(g: Any, x: Any, x_spec: Spec, axis: int | None) -> Any:
    # An element is a factor of all products from its own on: no division, so zeros are exact.
    line, k = _scan_operand(x, axis)
    after = linear_recurrence(g, line, axis=k, reverse=True)
    return reshape(mul(_products_before(line, k), after), x_spec.shape)


def _cumprod_forward(t: Any, x: Any, axis: int | None) -> Any:
    line, k = _scan_operand(x, axis)
    return linear_recurrence(mul(reshape(t, line.shape), _products_before(line, k)), line, axis=k)


_CUMPROD_SPEC = cumulative_rule("cumprod", result_dtype_of(np.multiply.reduce))


def _cumprod_loop(x: Any, axis: int | None) -> Any:
    _CUMPROD_SPEC(spec_of(x), axis)
    return scan.running_products(x, axis)


def _lower_cumprod(build: Any, x: Any, axis: int | None) -> Any:
    line, k = _scan_operand(build.cast(x, result_dtype_of(np.multiply.reduce)(x.dtype)), axis)
    return build.scan(lambda before, x: before * x, line, axis=k)


@op(
    primitive="scan",
    lowering=_lower_cumprod,
    kernels=[Kernel("lines side by side", _cumprod_loop, when=scan.is_supported)],
    numpy=[np.cumprod],
    canonical=lambda x, axis: (one_axis(axis, x.ndim),),
    infer=_CUMPROD_SPEC,
    vjp={"x": _cumprod_rule},
    jvp={"x": _cumprod_forward},
    vmap="along",
    kinks="exact where elements are 0",
    samples=[
        sample((2, 3)),
        sample((2, 3), axis=0),
        sample((2, 3, 2), axis=-2),
        sample(()),
        sample((), axis=0),
        sample((0, 3), axis=0),
        sample((1,)),
    ],
    rejects=[reject((2, 3), axis=2, match="does not fit an array of 2 axes")],
    precision="wide",
)
def cumprod(x: Any, /, axis: int | None = None) -> Any:
    """Cumulative product along ``axis``, by default of all elements in row-major order."""
    return np.cumprod(x, axis)


_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")

# ------------------------------------------------------------------ cumulative sum


_SUMS = result_dtype_of(np.add.reduce)
_CUMSUM_SPEC = cumulative_rule("cumsum", _SUMS)
_REVERSE_CUMSUM_SPEC = cumulative_rule("reverse_cumsum", _SUMS)


def _reverse_cumsum(x: Any, axis: int | None) -> Any:
    """Return the cumulative sum along an axis from its end to its start, without a copy."""
    x = np.asarray(x)
    x = x.reshape(-1) if axis is None or not x.ndim else x
    back = (slice(None),) * (axis % x.ndim if axis else 0) + (slice(None, None, -1),)
    out = np.empty(x.shape, _SUMS(x.dtype))
    np.add.accumulate(x[back], axis or 0, out=out[back])
    return out


def _cumsum_loop(x: Any, axis: int | None) -> Any:
    _CUMSUM_SPEC(spec_of(x), axis)
    return scan.running_sums(x, axis)


def _reverse_cumsum_loop(x: Any, axis: int | None) -> Any:
    _REVERSE_CUMSUM_SPEC(spec_of(x), axis)
    return scan.reverse_running_sums(x, axis)


def _cumsum_lowering(back: bool) -> Any:
    def lower_cumsum(build: Any, x: Any, axis: int | None) -> Any:
        x = build.cast(x, _SUMS(x.dtype))
        line, k = (build.reshape(x, (x.size,)), 0) if axis is None or not x.ndim else (x, axis)
        turned = (*(slice(None),) * k, slice(None, None, -1))
        line = build.slice(line, turned) if back else line
        found = build.scan(lambda before, x: before + x, line, axis=k)
        return build.slice(found, turned) if back else found

    return lower_cumsum


def _canonical_axis(x: Any, axis: int | None) -> tuple[Any]:
    return (one_axis(axis, x.ndim),)


_RUNS = [
    sample((2, 3)),
    sample((2, 3), axis=0),
    sample((2, 3, 2), axis=-2),
    sample(()),
    sample((), axis=0),
    sample((0, 3), axis=0),
]


@op(
    primitive="scan",
    lowering=_cumsum_lowering(back=False),
    linear=True,
    kernels=[Kernel("lines side by side", _cumsum_loop, when=scan.is_supported)],
    numpy=[np.cumsum],
    canonical=_canonical_axis,
    infer=_CUMSUM_SPEC,
    vjp={"x": lambda g, x_spec, axis: _reshape_like(reverse_cumsum(g, axis or 0), x_spec)},
    vmap="along",
    samples=_RUNS,
    rejects=[_NO_AXIS],
    precision="wide",
)
def cumsum(x: Any, /, axis: int | None = None) -> Any:
    """Cumulative sum along ``axis``, by default of all elements in row-major order."""
    return np.cumsum(x, axis)


@op(
    primitive="scan",
    lowering=_cumsum_lowering(back=True),
    linear=True,
    kernel=_reverse_cumsum,
    kernels=[Kernel("lines side by side", _reverse_cumsum_loop, when=scan.is_supported)],
    canonical=_canonical_axis,
    infer=_REVERSE_CUMSUM_SPEC,
    vjp={"x": lambda g, x_spec, axis: _reshape_like(cumsum(g, axis or 0), x_spec)},
    vmap="along",
    samples=_RUNS,
    rejects=[_NO_AXIS],
)
def reverse_cumsum(x: Any, /, axis: int | None = None) -> Any:
    """Cumulative sum along ``axis`` from its end to its start, by default of all elements."""
    return _reverse_cumsum(x, axis)


def _reshape_like(x: Any, spec: Spec) -> Any:
    return x if x.shape == spec.shape else reshape(x, spec.shape)


publish(globals())
