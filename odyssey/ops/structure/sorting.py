"""Sorting along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import flag, shown, word
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.structure.gathering import add_along_axis, take_along_axis
from odyssey.ops.structure.shape import reshape
from odyssey.spec import Spec
from odyssey.table.canonical import one_axis
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes, running

_KINDS = ("quicksort", "mergesort", "heapsort", "stable")


def _one_order(who: str) -> Any:
    """A ``prepare`` for NumPy's options: they choose how to sort, and the order here is one."""

    def prepare(axis: Any, kind: Any, order: Any, stable: Any) -> tuple[Any, None, None, None]:
        if kind is not None:
            word(who, "kind", kind, _KINDS)
        if order is not None:
            raise DTypeError(
                f"{who}: order={shown(order)} names fields, which arrays of numbers lack"
            )
        if stable is not None:
            flag(who, "stable", stable)
        return axis, None, None, None

    return prepare


_AXES = [
    sample((4, 3), spread=True),
    sample((4, 3), axis=0, spread=True),
    sample((2, 3, 2), axis=-2, spread=True),
    sample((2, 3), axis=None, spread=True),
    sample((5,), spread=True),
    sample((0, 3), axis=0),
    sample((2, 0)),
    sample((), axis=None),
]
_UNFIT = [
    reject((2, 3), axis=2, match="does not fit"),
    reject((2, 3), order="f", error=DTypeError, match="names fields"),
]


def stable_order(x: Any, axis: int | None) -> Any:
    """What sorts elements, equal ones in their order: ``np.argsort``, in a fifth of the time.

    NumPy is the faster one where equal elements may change places; here they are put back, by
    sorting the indices of each run of them.
    """
    x = np.asarray(x)
    plain = x.size >= _MANY and x.dtype.char in "fdilqILQ"
    if not plain or np.isnan(x.min()):  # NaN differs from itself, and so is in no run
        return np.argsort(x, axis, kind="stable")
    if axis is None:
        x, axis = x.reshape(-1), 0
    if axis % x.ndim != x.ndim - 1:
        return np.moveaxis(stable_order(np.moveaxis(x, axis, -1), -1), -1, axis)
    order = np.argsort(x, -1)
    ordered = np.take_along_axis(x, order, -1)
    before, after = ordered[..., :-1], ordered[..., 1:]
    starts = np.ones(x.shape, bool)
    np.not_equal(before, after, out=starts[..., 1:])
    if starts.all():
        return order
    runs = np.cumsum(starts, -1) * x.shape[-1]
    order += runs
    order.sort(-1)
    order -= runs
    return order


# From so many elements on; NumPy sorts few in a stable way as fast.
_MANY = 2000


@op(
    numpy=[np.argsort],
    primitive="gather",
    kernel=lambda x, axis, *rest: stable_order(x, axis),
    prepare=_one_order("argsort"),
    canonical=lambda x, axis, *rest: (one_axis(axis, x.ndim), *rest),
    infer=running("argsort", lambda dtype: np.dtype(np.intp)),
    samples=[*_AXES, sample(np.array([2.0, 1.0, 2.0, 1.0])), sample(())],
    rejects=_UNFIT,
)
def argsort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
) -> Any:
    """Where the elements of a sorted array stood; equal ones in their order; a constant."""
    return np.argsort(x, axis, kind="stable")


def _sorted_spec(x: Spec, axis: Any, kind: None, order: None, stable: None) -> Spec:
    if axis is None:
        return Spec((x.size,), x.dtype)
    if not x.ndim:
        raise ShapeError(f"sort: x is a number, without the axis {shown(axis)}; pass axis=None")
    normalize_axes("sort", axis, x.ndim)
    return x


def _sorting(x: Any, axis: int | None, *rest: None) -> tuple[Any, Any] | None:
    """The sorted elements, and their order, which the rules need: both from one sorting."""
    if x.dtype.char not in "fd" or not x.ndim:
        return None
    order = stable_order(x, axis)
    return np.take_along_axis(x, order, axis), order


def _sort_rule(g: Any, x: Any, x_spec: Spec, axis: int | None, residual: Any = None) -> Any:
    order = argsort(x, axis) if residual is None else residual
    return add_along_axis(g, order, axis=axis, spec=x_spec)


def _sort_forward(t: Any, x: Any, axis: int | None, residual: Any = None) -> Any:
    return take_along_axis(t, argsort(x, axis) if residual is None else residual, axis)


def _sort_in_ops(x: Any, axis: int | None, kind: None, order: None, stable: None) -> Any:
    if axis is None:
        x, axis = reshape(x, -1), 0
    return take_along_axis(x, argsort(x, axis), axis)


@op(
    moves=True,
    numpy=[np.sort],
    equals=_sort_in_ops,
    native=lambda build, *values: NotImplemented,  # NumPy sorts in a fifth of an order's time
    prepare=_one_order("sort"),
    canonical=lambda x, axis, *rest: (one_axis(axis, x.ndim), *rest),
    infer=_sorted_spec,
    with_residual=_sorting,
    vjp={"x": _sort_rule},
    jvp={"x": _sort_forward},
    kinks="equal elements keep their order, each with the gradient of the place that it took",
    samples=_AXES,
    rejects=[*_UNFIT, reject((), match="x is a number")],
)
def sort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
) -> Any:
    """The elements in rising order along ``axis``, NaN last; None puts all on one axis first."""
    return np.sort(x, axis)


publish(globals())
