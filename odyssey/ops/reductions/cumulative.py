"""Running products, and the recurrence that their derivatives are made of."""

from __future__ import annotations

import operator
from itertools import accumulate
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.errors import DTypeError, ShapeError
from odyssey.kernels import scan
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import reshape
from odyssey.spec import Spec, spec_of
from odyssey.table.canonical import one_axis
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import (
    made_by,
    normalize_axes,
    running,
)

# ------------------------------------------------------------------ linear recurrence


def _one_axis(axis: Any, reverse: bool) -> tuple[int, bool]:
    try:
        return operator.index(axis), reverse
    except TypeError:
        raise DTypeError(f"linear_recurrence: axis is {shown(axis)}; pass an int") from None


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
        # On Python's numbers: 80 ns an element, where NumPy's take 500.
        return np.array(_on_numbers(out.tolist(), factors.tolist(), reverse), out.dtype)
    lines, steps = np.moveaxis(out, axis, 0), np.moveaxis(factors, axis, 0)
    if reverse:
        lines, steps = lines[::-1], steps[:0:-1]
    else:
        steps = steps[1:]
    for k, step in enumerate(steps):
        lines[k + 1] += step * lines[k]
    return out


def _recurrence_in_loops(x: Any, factors: Any, axis: int, reverse: bool) -> Any:
    _recurrence_spec(spec_of(x), spec_of(factors), axis, reverse)
    return scan.recurrence(x, factors, axis, reverse)


def _on_numbers(x: list[float], factors: list[float], reverse: bool) -> list[float]:
    if not reverse:
        pairs = zip(x[1:], factors[1:], strict=True)
        return (
            list(accumulate(pairs, lambda s, pair: pair[0] + pair[1] * s, initial=x[0])) if x else x
        )
    pairs = zip(x[-2::-1], factors[:0:-1], strict=True)
    found = accumulate(pairs, lambda s, pair: pair[0] + pair[1] * s, initial=x[-1]) if x else x
    return list(found)[::-1]


def _along(ndim: int, axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * (axis % ndim) + (part,)


def _shifted(x: Any, axis: int, forward: bool) -> Any:
    """Each number in the place of the next, or of the one before; 0 where there is none."""
    ndim = len(x.shape)
    lengths = list(x.shape)
    lengths[axis] = min(1, lengths[axis])
    nothing = np.zeros(lengths, x.dtype)
    if forward:
        return concatenate([nothing, getitem(x, _along(ndim, axis, slice(0, -1)))], axis)
    return concatenate([getitem(x, _along(ndim, axis, slice(1, None))), nothing], axis)


def _pull_factors(g: Any, factors: Any, out: Any, axis: int, reverse: bool) -> Any:
    back = linear_recurrence(g, factors, axis=axis, reverse=not reverse)
    if reverse:
        return mul(_shifted(back, axis, True), out)
    return mul(back, _shifted(out, axis, True))


def _push_factors(t: Any, factors: Any, out: Any, axis: int, reverse: bool) -> Any:
    moved = _shifted(mul(t, out), axis, False) if reverse else mul(t, _shifted(out, axis, True))
    return linear_recurrence(moved, factors, axis=axis, reverse=reverse)


def _recurrence_natively(build: Any, x: Any, factors: Any, axis: int, reverse: bool) -> Any:
    made = np.result_type(x.dtype, factors.dtype)
    # Of one line in double precision, as in the kernels.
    dtype = np.dtype(np.float64) if x.ndim == 1 and made == np.float32 else made
    x, factors = build.cast(x, dtype), build.cast(factors, dtype)
    turned = _along(x.ndim, axis, slice(None, None, -1))
    if reverse:
        x, factors = build.part(x, turned), build.part(factors, turned)
    steps = _along(x.ndim, axis, slice(0, -1) if reverse else slice(1, None))
    steps = build.part(factors, steps)
    found = build.scan(lambda before, x, f: x + f * before, x, steps, axis=axis)
    return build.cast(build.part(found, turned) if reverse else found, made)


@op(
    primitive="scan",
    lowering=_recurrence_natively,
    kernel=_recurrence,
    kernels=[Kernel("lines side by side", _recurrence_in_loops, when=scan.fits_recurrence)],
    prepare=_one_axis,
    canonical=lambda x, factors, axis, reverse: (axis % x.ndim, reverse),
    infer=_recurrence_spec,
    vjp={
        "x": lambda g, factors, axis, reverse: linear_recurrence(
            g, factors, axis=axis, reverse=not reverse
        ),
        "factors": _pull_factors,
    },
    jvp={
        "x": lambda t, factors, axis, reverse: linear_recurrence(
            t, factors, axis=axis, reverse=reverse
        ),
        "factors": _push_factors,
    },
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
    """Each number plus a factor times the result before it: ``out[k] = x[k] + f[k] out[k - 1]``.

    In ``reverse``, the transposed: ``out[k] = x[k] + f[k + 1] out[k + 1]``.
    """
    return _recurrence(x, factors, axis, reverse)


# ------------------------------------------------------------------ running product


def _line(x: Any, axis: int | None) -> tuple[Any, int]:
    """What is multiplied, and along which axis."""
    if axis is None or not x.shape:
        return reshape(x, -1), 0
    return x, axis


def _before(x: Any, axis: int) -> Any:
    """For each element the product of those before it."""
    if not x.shape[axis]:
        return x
    lengths = list(x.shape)
    lengths[axis] = 1
    parts = [np.ones(lengths, x.dtype), getitem(x, _along(len(x.shape), axis, slice(0, -1)))]
    return cumprod(concatenate(parts, axis), axis)


def _cumprod_rule(g: Any, x: Any, x_spec: Spec, axis: int | None) -> Any:
    # An element has a part in all products from its own on: no division, so zeros are exact.
    line, k = _line(x, axis)
    after = linear_recurrence(g, line, axis=k, reverse=True)
    return reshape(mul(_before(line, k), after), x_spec.shape)


def _cumprod_forward(t: Any, x: Any, axis: int | None) -> Any:
    line, k = _line(x, axis)
    return linear_recurrence(mul(reshape(t, line.shape), _before(line, k)), line, axis=k)


_SPEC_OF_PRODUCTS = running("cumprod", made_by(np.multiply.reduce))


def _products_in_loops(x: Any, axis: int | None) -> Any:
    _SPEC_OF_PRODUCTS(spec_of(x), axis)
    return scan.running_products(x, axis)


def _products_natively(build: Any, x: Any, axis: int | None) -> Any:
    line, k = _line(build.cast(x, made_by(np.multiply.reduce)(x.dtype)), axis)
    return build.scan(lambda before, x: before * x, line, axis=k)


@op(
    primitive="scan",
    lowering=_products_natively,
    kernels=[Kernel("lines side by side", _products_in_loops, when=scan.fits)],
    numpy=[np.cumprod],
    canonical=lambda x, axis: (one_axis(axis, x.ndim),),
    infer=_SPEC_OF_PRODUCTS,
    vjp={"x": _cumprod_rule},
    jvp={"x": _cumprod_forward},
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
)
def cumprod(x: Any, /, axis: int | None = None) -> Any:
    """Running product along ``axis``, by default of all elements in row-major order."""
    return np.cumprod(x, axis)


_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")

# ------------------------------------------------------------------ running sum


_SUMS = made_by(np.add.reduce)
_SPEC_OF_SUMS = running("cumsum", _SUMS)
_SPEC_OF_SUMS_BACK = running("reverse_cumsum", _SUMS)


def _sums_back(x: Any, axis: int | None) -> Any:
    """The running sum along an axis from its end to its begin, without a copy."""
    x = np.asarray(x)
    x = x.reshape(-1) if axis is None or not x.ndim else x
    back = (slice(None),) * (axis % x.ndim if axis else 0) + (slice(None, None, -1),)
    out = np.empty(x.shape, _SUMS(x.dtype))
    np.add.accumulate(x[back], axis or 0, out=out[back])
    return out


def _sums_in_loops(x: Any, axis: int | None) -> Any:
    _SPEC_OF_SUMS(spec_of(x), axis)
    return scan.running_sums(x, axis)


def _sums_back_in_loops(x: Any, axis: int | None) -> Any:
    _SPEC_OF_SUMS_BACK(spec_of(x), axis)
    return scan.running_sums_back(x, axis)


def _natively(back: bool) -> Any:
    def native(build: Any, x: Any, axis: int | None) -> Any:
        x = build.cast(x, _SUMS(x.dtype))
        line, k = (build.reshape(x, (x.size,)), 0) if axis is None or not x.ndim else (x, axis)
        turned = (*(slice(None),) * k, slice(None, None, -1))
        line = build.part(line, turned) if back else line
        found = build.scan(lambda before, x: before + x, line, axis=k)
        return build.part(found, turned) if back else found

    return native


def _place(x: Any, axis: int | None) -> tuple[Any]:
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
    lowering=_natively(back=False),
    linear=True,
    kernels=[Kernel("lines side by side", _sums_in_loops, when=scan.fits)],
    numpy=[np.cumsum],
    canonical=_place,
    infer=_SPEC_OF_SUMS,
    vjp={"x": lambda g, x_spec, axis: _as(reverse_cumsum(g, axis or 0), x_spec)},
    samples=_RUNS,
    rejects=[_NO_AXIS],
)
def cumsum(x: Any, /, axis: int | None = None) -> Any:
    """Running sum along ``axis``, by default of all elements in row-major order."""
    return np.cumsum(x, axis)


@op(
    primitive="scan",
    lowering=_natively(back=True),
    linear=True,
    kernel=_sums_back,
    kernels=[Kernel("lines side by side", _sums_back_in_loops, when=scan.fits)],
    canonical=_place,
    infer=_SPEC_OF_SUMS_BACK,
    vjp={"x": lambda g, x_spec, axis: _as(cumsum(g, axis or 0), x_spec)},
    samples=_RUNS,
    rejects=[_NO_AXIS],
)
def reverse_cumsum(x: Any, /, axis: int | None = None) -> Any:
    """Running sum along ``axis`` from its end to its begin, by default of all elements."""
    return _sums_back(x, axis)


def _as(x: Any, spec: Spec) -> Any:
    return x if x.shape == spec.shape else reshape(x, spec.shape)


publish(globals())
