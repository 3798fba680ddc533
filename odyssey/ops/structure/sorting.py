"""Sorting, largest elements, partitions and unique values."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import check_choice, check_flag, check_int, format_value
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.structure.gathering import add_along_axis, take, take_along_axis
from odyssey.ops.structure.shape import as_operand, reshape, squeeze
from odyssey.spec import Spec, spec_of
from odyssey.table.canonical_options import one_axis
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import cumulative_rule, normalize_axes
from odyssey.table.store import numbers_of
from odyssey.table.value import CONSTANT, Symbol, Value, free_id, make_value

_KINDS = ("quicksort", "mergesort", "heapsort", "stable")


def _sort_options(who: str) -> Any:
    """Return a ``prepare`` for NumPy's options, which choose an algorithm: all are stable here."""

    def prepare_sort(axis: Any, kind: Any, order: Any, stable: Any) -> tuple[Any, None, None, None]:
        if kind is not None:
            check_choice(who, "kind", kind, _KINDS)
        if order is not None:
            raise DTypeError(
                f"{who}: order={format_value(order)} names fields, which arrays of numbers lack"
            )
        if stable is not None:
            check_flag(who, "stable", stable)
        return axis, None, None, None

    return prepare_sort


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


def stable_argsort(x: Any, axis: int | None) -> Any:
    """Return a stable ``np.argsort``, in a fifth of NumPy's time.

    NumPy's unstable sort is faster; the order of equal elements is then restored by sorting the
    indices of each run of them.
    """
    x = np.asarray(x)
    plain = x.size >= _MANY and x.dtype.char in "fdilqILQ"
    if not plain or np.isnan(x.min()):  # NaN differs from itself: each is a run of its own
        return np.argsort(x, axis, kind="stable")
    if axis is None:
        x, axis = x.reshape(-1), 0
    if axis % x.ndim != x.ndim - 1:
        return np.moveaxis(stable_argsort(np.moveaxis(x, axis, -1), -1), -1, axis)
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


# Minimum number of elements; below it NumPy's stable sort is as fast.
_MANY = 2000


@op(
    numpy=[np.argsort],
    primitive="gather",
    kernel=lambda x, axis, *rest: stable_argsort(x, axis),
    prepare=_sort_options("argsort"),
    canonical=lambda x, axis, *rest: (one_axis(axis, x.ndim), *rest),
    infer=cumulative_rule("argsort", lambda dtype: np.dtype(np.intp)),
    vmap="along",
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
    """Indices that sort an array along an axis, in stable order; a constant."""
    return np.argsort(x, axis, kind="stable")


def _sort_spec(x: Spec, axis: Any, kind: None, order: None, stable: None) -> Spec:
    if axis is None:
        return Spec((x.size,), x.dtype)
    if not x.ndim:
        raise ShapeError(
            f"sort: x is a number, without the axis {format_value(axis)}; pass axis=None"
        )
    normalize_axes("sort", axis, x.ndim)
    return x


def _sort_with_order(x: Any, axis: int | None, *rest: None) -> tuple[Any, Any] | None:
    """Return the sorted elements and, as residual, their order, both from one sort."""
    if x.dtype.char not in "fd" or not x.ndim:
        return None
    order = stable_argsort(x, axis)
    return np.take_along_axis(x, order, axis), order


def _sort_rule(g: Any, x: Any, x_spec: Spec, axis: int | None, residual: Any = None) -> Any:
    order = argsort(x, axis) if residual is None else residual
    return add_along_axis(g, order, axis=axis, spec=x_spec)


def _sort_forward(t: Any, x: Any, axis: int | None, residual: Any = None) -> Any:
    return take_along_axis(t, argsort(x, axis) if residual is None else residual, axis)


def _decompose_sort(x: Any, axis: int | None, kind: None, order: None, stable: None) -> Any:
    if axis is None:
        x, axis = reshape(x, -1), 0
    return take_along_axis(x, argsort(x, axis), axis)


@op(
    rearranges=True,
    numpy=[np.sort],
    decomposition=_decompose_sort,
    lowering=lambda build, *values: _decompose_sort(*values),
    guess=lambda *given: "called",  # np.sort takes a fifth of the time of an argsort
    prepare=_sort_options("sort"),
    canonical=lambda x, axis, *rest: (one_axis(axis, x.ndim), *rest),
    infer=_sort_spec,
    with_residual=_sort_with_order,
    vjp={"x": _sort_rule},
    jvp={"x": _sort_forward},
    vmap="along",
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
    """Sort in ascending order along ``axis``, NaN last; None flattens first."""
    return np.sort(x, axis)


class Ranked(NamedTuple):
    """Elements and their indices."""

    values: Any
    indices: Any


def _require_real(who: str, x: Any) -> Any:
    x = as_operand(who, "x", x)
    if x.dtype.kind == "c":
        raise DTypeError(f"{who}: x is {x.dtype}; which complex number is larger is not defined")
    return x


# ------------------------------------------------------------------ largest and smallest elements


def _argtopk_spec(x: Spec, k: int, axis: int, largest: bool) -> Spec:
    if x.is_complex:
        raise DTypeError(f"argtopk: x is {x.dtype}; complex numbers have no order")
    (along,) = normalize_axes("argtopk", axis, x.ndim)
    count = _rank_option("argtopk", k, 0, x.shape[along])
    return Spec((*x.shape[:along], count, *x.shape[along + 1 :]), np.dtype(np.intp))


def _argtopk(x: Any, k: int, axis: int, largest: bool) -> Any:
    x = np.asarray(x)
    spec = _argtopk_spec(spec_of(x), k, axis, largest)
    lines = np.moveaxis(x, axis, -1)
    n = lines.shape[-1]
    few = 0 < k <= n // 8 and x.size >= 1000 and x.dtype.kind in "fiu"
    if few and not np.isnan(x.min()):  # NaN is neither above the k-th element nor equal to it
        found = _argtopk_by_partition(lines, k, largest)
    elif largest:
        found = n - 1 - stable_argsort(lines[..., ::-1], -1)[..., ::-1][..., :k]
    else:
        found = stable_argsort(lines, -1)[..., :k]
    assert found.shape[-1] == spec.shape[axis]
    return np.array(np.moveaxis(found, -1, axis), np.intp, order="C")


def _argtopk_by_partition(lines: Any, k: int, largest: bool) -> Any:
    """Select the elements beyond the ``k``-th and the first ones equal to it, then sort those."""
    n = lines.shape[-1]
    at = n - k if largest else k - 1
    last = np.partition(lines, at, -1)[..., at : at + 1]
    beyond, equal = (lines > last if largest else lines < last), lines == last
    wanted = k - np.count_nonzero(beyond, -1)[..., None]
    if (np.count_nonzero(equal, -1)[..., None] > wanted).any():
        equal &= np.cumsum(equal, -1) <= wanted
    found = (beyond | equal).nonzero()[-1].reshape(*lines.shape[:-1], k)
    values = np.take_along_axis(lines, found, -1)
    if largest:
        order = k - 1 - np.argsort(values[..., ::-1], -1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(values, -1, kind="stable")
    return np.take_along_axis(found, order, -1)


@op(
    primitive="gather",
    kernel=_argtopk,
    canonical=lambda x, k, axis, largest: (k, one_axis(axis, x.ndim), largest),
    infer=_argtopk_spec,
    vmap="along",
    samples=[
        sample((2, 5), k=3),
        sample((4, 2), k=2, axis=0, largest=False),
        sample(np.array([2, 3, 3, 1, 3]), k=4),
        sample((2, 3), k=0),
    ],
    rejects=[
        reject((2, 3), k=4, match="k is 4"),
        reject((2, 3), k=1, axis=2, match="does not fit"),
        reject((2, 3), k=1.5, error=DTypeError, match="pass an int"),
    ],
)
def argtopk(x: Any, /, k: int, axis: int = -1, *, largest: bool = True) -> Any:
    """Indices of the ``k`` largest elements along ``axis``, in descending order; a constant."""
    return _argtopk(x, k, axis, largest)


@composite(
    samples=[
        sample((2, 5), k=3, spread=True),
        sample((4, 2), k=2, axis=0, largest=False, spread=True),
        sample((3,), k=3, spread=True),
        sample((2, 3), k=0),
        sample((0, 3), k=2),
    ],
    rejects=[
        reject((2, 3), k=4, match="k is 4"),
        reject((2, 3), k=-1, match="k is -1"),
        reject((2, 3), k=1, axis=2, match="does not fit"),
        reject((2, 3), k=1.5, error=DTypeError, match="pass an int"),
    ],
)
def topk(x: Any, k: int, axis: int = -1, *, largest: bool = True) -> Any:
    """Largest elements along an axis, in descending order, and their indices, as ``torch.topk``.

    Args:
        x: Array of real numbers.
        k: Number of elements of each line.
        axis: The axis.
        largest: True for the largest, False for the smallest in ascending order.

    Returns:
        ``values`` and ``indices``. Equal elements keep their order; NaN counts as largest.

    Raises:
        ShapeError: if ``k`` exceeds the length of a line. DTypeError: for complex numbers.

    >>> topk(np.array([1.0, 3.0, 2.0]), 2).indices
    array([1, 2])
    """
    x = _require_real("topk", x)
    (along,) = normalize_axes("topk", axis, len(x.shape))
    count = _rank_option("topk", k, 0, x.shape[along])
    indices = argtopk(x, count, along, largest=largest)
    return Ranked(take_along_axis(x, indices, along), indices)


def _rank_option(who: str, k: Any, low: int, high: int) -> int:
    try:
        k = operator.index(k)
    except TypeError:
        raise DTypeError(f"{who}: k is {format_value(k)}; pass an int") from None
    if not low <= k <= high:
        raise ShapeError(f"{who}: k is {k}; it must be from {low} to {high}")
    return k


@composite(
    samples=[
        sample((2, 5), k=2, spread=True),
        sample((4, 2), k=4, axis=0, spread=True),
        sample((2, 3), k=1, keepdims=True, spread=True),
        sample((3,), k=2, spread=True),
    ],
    rejects=[
        reject((2, 3), k=0, match="k is 0"),
        reject((2, 3), k=4, match="k is 4"),
        reject((2, 3), k="1", error=DTypeError, match="pass an int"),
    ],
)
def kthvalue(x: Any, k: int, axis: int = -1, *, keepdims: bool = False) -> Any:
    """The ``k``-th smallest element along an axis, and its index, as ``torch.kthvalue``.

    Args:
        x: Array of real numbers.
        k: The rank, counted from 1.
        axis: The axis.
        keepdims: Whether the axis stays, with length 1.

    Returns:
        ``values`` and ``indices``. Equal elements keep their order; NaN counts as largest.

    Raises:
        ShapeError: if ``k`` is out of range. DTypeError: for complex numbers.

    >>> float(kthvalue(np.array([5.0, 3.0, 4.0]), 2).values)
    4.0
    """
    x = _require_real("kthvalue", x)
    (along,) = normalize_axes("kthvalue", axis, len(x.shape))
    place = _rank_option("kthvalue", k, 1, x.shape[along])
    order = argsort(x, along)
    indices = take(order, np.array([place - 1]), along)
    values = take_along_axis(x, indices, along)
    if keepdims:
        return Ranked(values, indices)
    return Ranked(squeeze(values, along), squeeze(indices, along))


# ------------------------------------------------------------------ partitions


def _check_partition(who: str, a: Any, kth: Any, axis: Any, kind: Any, order: Any) -> Any:
    a = as_operand(who, "a", a)
    check_choice(who, "kind", kind, ("introselect",))
    if order is not None:
        raise DTypeError(
            f"{who}: order={format_value(order)} names fields, which arrays of numbers lack"
        )
    if axis is None:
        count = 1
        for n in a.shape:
            count *= n
    else:
        count = a.shape[normalize_axes(who, axis, len(a.shape))[0]]
    for k in np.atleast_1d(kth).tolist():
        if not -count <= check_int(who, "kth", k) < count:
            raise ShapeError(f"{who}: kth={k} for {count} elements; no element has that position")
    return a


_PARTITIONS = (
    sample((2, 5), kth=2, spread=True),
    sample((4, 2), kth=[0, -1], axis=0, spread=True),
    sample((2, 3), kth=3, axis=None, spread=True),
)
_PLACES = (
    sample(np.array([[3, 1, 2], [1, 1, 0]]), kth=1),
    sample(np.array([[3.0, 1.0], [2.0, 1.0]]), kth=0, axis=None),
)
_NO_PARTITIONS = (
    reject((2, 3), kth=3, match="kth=3"),
    reject((2, 3), kth=0, axis=2, match="does not fit"),
    reject((2, 3), kth=0, kind="other", error=SettingError, match="introselect"),
)


@composite(numpy=[np.partition], samples=_PARTITIONS, rejects=_NO_PARTITIONS)
def partition(
    a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None
) -> Any:
    """Partition: elements at ``kth`` are where ``sort`` puts them; here all are sorted.

    Args:
        a: Array.
        kth: The index or indices before which nothing is larger and after which nothing smaller.
        axis: The axis; None flattens first.
        kind: NumPy's name of an algorithm; ignored.
        order: Must be None.

    Raises:
        ShapeError: if an index is out of range.

    >>> partition(np.array([3, 1, 2]), 1)
    array([1, 2, 3])
    """
    return sort(_check_partition("partition", a, kth, axis, kind, order), axis)


@composite(numpy=[np.argpartition], samples=_PLACES, rejects=_NO_PARTITIONS)
def argpartition(
    a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None
) -> Any:
    """Indices of the elements of ``partition``; a constant.

    Args:
        a: Array.
        kth: The index or indices before which nothing is larger and after which nothing smaller.
        axis: The axis; None flattens first.
        kind: NumPy's name of an algorithm; ignored.
        order: Must be None.

    Raises:
        ShapeError: if an index is out of range.

    >>> argpartition(np.array([3, 1, 2]), 1)
    array([1, 2, 0])
    """
    a = _check_partition("argpartition", a, kth, axis, kind, order)
    return argsort(a, axis)


# ------------------------------------------------------------------ unique values

_AGAIN = np.array([2.0, 1.0, 2.0, 3.0, 1.0])


@composite(
    numpy=[np.unique],
    samples=[
        # Constant samples: the shape of the result depends on values, so it cannot be traced.
        sample(_AGAIN, return_index=True, return_inverse=True, return_counts=True),
        sample(np.array([[1, 0], [1, 0], [0, 2]]), axis=0, return_counts=True),
        sample(_AGAIN[:4].reshape(2, 2), axis=-1),
        sample(np.array([np.nan, 1.0, np.nan]), equal_nan=False),
        sample(np.array(2.0)),
        sample(np.zeros((0, 2)), return_counts=True),
    ],
    rejects=[
        reject(np.eye(2), axis=2, match="does not fit"),
        reject(np.eye(2), return_index="yes", error=DTypeError, match="not a flag"),
    ],
)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
) -> Any:
    """Unique values, sorted; or unique slices along an axis.

    Their number depends on the values, so a graph cannot hold this function.

    Args:
        ar: Array.
        return_index: Also return the index of the first occurrence of each value.
        return_inverse: Also return, for each element, the index of its unique value.
        return_counts: Also return the number of occurrences of each value.
        axis: The axis whose slices are compared; None compares elements.
        equal_nan: Whether all NaN are one value.

    Returns:
        The values, whose gradients go to their first occurrences; or a tuple of the values and
        the requested constants, in the order of the options.

    Raises:
        ShapeError: if ``ar`` lacks the axis.

    >>> unique(np.array([2, 1, 2]), return_counts=True)
    (array([1, 2]), array([1, 2]))
    """
    ar = as_operand("unique", "ar", ar)
    if isinstance(ar, Symbol):
        raise DTypeError(
            f"unique: ar has no values {ar.graph.phase}, but the shape of the result depends on "
            "them; call it outside"
        )
    wanted = {
        "return_index": return_index,
        "return_inverse": return_inverse,
        "return_counts": return_counts,
    }
    for name, option in wanted.items():
        check_flag("unique", name, option)
    check_flag("unique", "equal_nan", equal_nan)
    if axis is not None:
        (axis,) = normalize_axes("unique", axis, len(ar.shape))
    data = numbers_of("unique", ar)
    wanted["return_index"] = True
    found = np.unique(data, axis=axis, equal_nan=equal_nan, **wanted)
    values = take(ar, found[1], axis)
    others = found[1:] if return_index else found[2:]
    if not others:
        return values
    if isinstance(ar, Value):
        others = [make_value(type(ar), other, CONSTANT, free_id()) for other in others]
    return values, *others


publish(globals())
