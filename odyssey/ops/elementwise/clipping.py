"""Clipping to bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import as_array, refuse_non_array, to_native_order
from odyssey.devices.half_dtypes import is_floating, is_number_dtype
from odyssey.errors import DTypeError, ShapeError
from odyssey.kernels import T, select
from odyssey.ops.elementwise.choice import (
    greater,
    greater_equal,
    keep_where,
    less,
    less_equal,
    where,
)
from odyssey.ops.structure.shape import astype
from odyssey.spec import Spec
from odyssey.table.declare import op, publish, set_op_metadata
from odyssey.table.samples import reject, sample, singles
from odyssey.table.store import MEMORY, numbers_of, store
from odyssey.table.value import NUMBERS, Symbol, Traced, Value, Weak, is_tracked


class _DynamicBoundError(DTypeError):
    """Raised for a bound that has a gradient, or a value known only at run time."""


def _static_bound(name: str, bound: Any) -> Any:
    """Return a static bound as a number or as a copy of an array."""
    moving = isinstance(bound, Value) and (store() is not MEMORY or is_tracked(bound))
    if moving or isinstance(bound, Traced):
        # The value is not read: it may differ from run to run.
        raise _DynamicBoundError(
            f"clip: {name} has a gradient or no value yet, but is static here; use od.ops.clip"
        )
    bound = numbers_of("clip", bound)
    if bound is None or type(bound) in NUMBERS or isinstance(bound, np.generic):
        return bound
    refuse_non_array("clip", name, bound)
    array = to_native_order(np.array(bound))
    if array.dtype.kind == "c" or not is_number_dtype(array.dtype):
        raise DTypeError(
            f"clip: {name} is {format_value(bound)}; pass a real number, or an array of them"
        )
    return array


def _static_bounds(a_min: Any, a_max: Any, min: Any, max: Any) -> tuple[Any, Any, None, None]:
    """Merge NumPy's two names of each bound, ``a_min`` and ``min``, into one."""
    for name, one, other in (("min", a_min, min), ("max", a_max, max)):
        if one is not None and other is not None:
            raise DTypeError(f"clip: both a_{name} and {name} are given; they mean the same")
    lower = _static_bound("a_min", min if a_min is None else a_min)
    upper = _static_bound("a_max", max if a_max is None else a_max)
    return lower, upper, None, None


def _clip_spec(x: Spec, a_min: Any, a_max: Any, min: None, max: None) -> Spec:
    bounds = [bound for bound in (a_min, a_max) if bound is not None]
    try:
        shape = np.broadcast_shapes(x.shape, *map(np.shape, bounds))
    except ValueError:
        raise ShapeError(
            f"clip: shapes do not broadcast, x {x.shape}, a_min {np.shape(a_min)}, "
            f"a_max {np.shape(a_max)}"
        ) from None
    return Spec(shape, np.result_type(x.dtype, *bounds))


def _canonical_bounds(x: Any, a_min: Any, a_max: Any, min: None, max: None) -> tuple[Any, ...]:
    """Return bounds in canonical form, where they are Python numbers.

    Bounds of floating arrays become floats, which changes no value. A bound that no integer of the
    dtype can exceed is dropped, as in NumPy: the dtype may not be able to represent it.
    """
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        a_min = None if type(a_min) is int and a_min <= limits.min else a_min
        a_max = None if type(a_max) is int and a_max >= limits.max else a_max
    integral = not is_floating(x.dtype)
    bounds = (b if integral or type(b) is not int else float(b) for b in (a_min, a_max))
    return (*bounds, None, None)


def _clip_rule(g: Any, x: Any, a_min: Any, a_max: Any) -> Any:
    if a_min is not None:
        g = keep_where(g, greater_equal(x, a_min))
    if a_max is not None:
        g = keep_where(g, less_equal(x, a_max))
    return g


def _decompose_clip(x: Any, a_min: Any, a_max: Any, min: None, max: None) -> Any:
    if a_min is not None:
        x = where(less(x, a_min), a_min, x)
    return x if a_max is None else where(greater(x, a_max), a_max, x)


def _clip_scalar(x: Any, a_min: Any, a_max: Any, min: None, max: None) -> Any:
    # A NaN bound makes the result NaN; the upper bound wins where the bounds cross.
    if a_min is not None:
        x = select((x >= T(a_min)) | (x != x), x, T(a_min))
    if a_max is not None:
        x = select((x <= T(a_max)) | (x != x), x, T(a_max))
    return x


# ------------------------------------------------------------------ bounds that are operands


def _clip_dynamic(
    x: Any,
    /,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    tape: Any = None,
) -> Any:
    """Clip to bounds that are operands; beyond a bound the bound has the gradient."""
    x = x if isinstance(x, (Value, Symbol)) else as_array("clip", "x", x)
    bounds = [
        _bound_operand(n, a if b is None else b)
        for n, a, b in _bounds_by_name(a_min, a_max, min, max)
    ]
    spec = _clip_spec(
        Spec(x.shape, x.dtype), _bound_like(bounds[0]), _bound_like(bounds[1]), None, None
    )
    if "c" in (x.dtype.kind, spec.dtype.kind):
        came = f"x is {x.dtype}, the result {spec.dtype}"
        raise DTypeError(f"clip: {came}; complex numbers have no order, pass real ones")
    lower, upper = _canonical_bounds(spec, bounds[0], bounds[1], None, None)[:2]
    x = x if x.dtype == spec.dtype else astype(x, spec.dtype, tape=tape)
    if lower is not None:
        x = _clip_side(less, greater_equal, x, lower, tape)
    return x if upper is None else _clip_side(greater, less_equal, x, upper, tape)


def _bounds_by_name(a_min: Any, a_max: Any, min: Any, max: Any) -> tuple[tuple[str, Any, Any], ...]:
    return ("a_min", a_min, min), ("a_max", a_max, max)


def _bound_operand(name: str, bound: Any) -> Any:
    if bound is None or type(bound) in NUMBERS or isinstance(bound, (Traced, Value)):
        return bound
    return _static_bound(name, bound)


def _bound_like(bound: Any) -> Any:
    """Return an array, or a Python number, with the shape and dtype of a bound."""
    if isinstance(bound, Weak):
        number_type: Any = bound.__class__
        return number_type(0)
    if isinstance(bound, (Value, Symbol)):
        return np.broadcast_to(np.zeros((), bound.dtype), bound.shape)
    return bound


def _clip_side(beyond: Any, within: Any, x: Any, bound: Any, tape: Any) -> Any:
    dtype = getattr(bound, "dtype", x.dtype) if not isinstance(bound, Weak) else x.dtype
    bound = bound if dtype == x.dtype else astype(bound, x.dtype, tape=tape)
    # Where the comparison is NaN the result is NaN without a gradient, as with static bounds.
    ordered = x
    if is_floating(x.dtype):
        ordered = where(within(x, bound, tape=tape), x, np.nan, tape=tape)
    return where(beyond(x, bound, tape=tape), bound, ordered, tape=tape)


def _with_dynamic_bounds(plain: Any) -> Any:
    """Wrap the op: bounds with a gradient or without a value yet go to ``_clip_dynamic``."""

    def call(*args: Any, **named: Any) -> Any:
        try:
            return plain(*args, **named)
        except _DynamicBoundError:
            pass  # leave the clause, so that a later error does not chain to this one
        return _clip_dynamic(*args, **named)

    plain.row.call = set_op_metadata(call, plain.row)
    return plain.row.call


@_with_dynamic_bounds
@op(
    real=True,
    elementwise=True,
    selects=True,
    numpy=[np.clip],
    prepare=_static_bounds,
    canonical=_canonical_bounds,
    infer=_clip_spec,
    scalar=_clip_scalar,
    decomposition=_decompose_clip,
    vjp={"x": _clip_rule},
    kinks="1 inside and at the bounds, 0 outside, where a bound that has a gradient has 1",
    samples=[
        *singles(a_min=-1.0, a_max=1.5),
        sample((2, 3), a_min=None, a_max=0.5),
        sample((3,), a_min=np.array([[-1.0], [0.25]], np.float16), a_max=1),
    ],
    rejects=[
        reject((2, 3), a_min=np.zeros(4), a_max=None, match="do not broadcast"),
        reject((2, 3), a_min=0, min=0, error=DTypeError, match="both a_min and min"),
        reject((2, 3), a_min="0", a_max=1, error=DTypeError, match="pass a real number"),
    ],
)
def clip(
    x: Any, /, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None
) -> Any:
    """Elementwise ``x``, but ``a_min`` below it and ``a_max`` above it.

    Args:
        x: Array of real numbers.
        a_min: Lower bound, a number or an array; None for no such bound. Where ``x`` is beyond a
            bound that depends on a leaf, the bound has the gradient (the upper if both cross).
        a_max: Upper bound, likewise.
        min: Another name of ``a_min``.
        max: Another name of ``a_max``.

    >>> clip(np.array([-2.0, 0.5, 3.0]), 0.0, np.array([1.0, 1.0, 2.0]))
    array([0. , 0.5, 2. ])
    """
    return np.array(x)[()] if a_min is None and a_max is None else np.clip(x, a_min, a_max)


publish(globals())
