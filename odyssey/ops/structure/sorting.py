"""Sorting along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import flag, word
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
            raise DTypeError(f"{who}: order={order!r} names fields, which arrays of numbers lack")
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


@op(
    numpy=[np.argsort],
    primitive="gather",
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
        raise ShapeError(f"sort: x is a number, without the axis {axis!r}; pass axis=None")
    normalize_axes("sort", axis, x.ndim)
    return x


def _sort_in_ops(x: Any, axis: int | None, kind: None, order: None, stable: None) -> Any:
    if axis is None:
        x, axis = reshape(x, -1), 0
    return take_along_axis(x, argsort(x, axis), axis)


@op(
    moves=True,
    numpy=[np.sort],
    equals=_sort_in_ops,
    prepare=_one_order("sort"),
    canonical=lambda x, axis, *rest: (one_axis(axis, x.ndim), *rest),
    infer=_sorted_spec,
    vjp={
        "x": lambda g, x, x_spec, axis: add_along_axis(g, argsort(x, axis), axis=axis, spec=x_spec)
    },
    jvp={"x": lambda t, x, axis: take_along_axis(t, argsort(x, axis), axis)},
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
