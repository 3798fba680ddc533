"""Reading along an axis at indices that are operands, so that a traced graph reads them anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import shown, word
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.kernels import scatter
from odyssey.kernels.scatter import of_floats
from odyssey.ops.elementwise.choice import equal
from odyssey.ops.structure import index_lowering
from odyssey.ops.structure.scatter import added_rows, in_range, put_under
from odyssey.ops.structure.shape import astype, broadcast_to, expand_dims, reshape
from odyssey.spec import Shape, Spec
from odyssey.table.canonical_options import one_axis
from odyssey.table.declare import Kernel, composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes, spec_option_rule


def _taking(axis: Any, mode: str, *rest: Any) -> tuple[Any, ...]:
    word("take", "mode", mode, ("raise", "wrap", "clip"))
    return (axis, mode, *rest)


def _taken_spec(x: Spec, indices: Any, axis: int | None, mode: str) -> Spec:
    check_indices("take", indices)
    shape = getattr(indices, "shape", ())
    if axis is None:
        return Spec(shape, x.dtype)
    (k,) = normalize_axes("take", axis, x.ndim)
    return Spec((*x.shape[:k], *shape, *x.shape[k + 1 :]), x.dtype)


def check_indices(who: str, indices: Any) -> None:
    """Refuse as indices what is not made of integers."""
    dtype = indices.dtype if hasattr(indices, "dtype") else np.result_type(indices)
    if dtype.kind not in "biu":
        raise DTypeError(f"{who}: the indices have dtype {dtype}; pass integers")


def _spelled_by_spec(x: Any, indices: Any, axis: Any, *rest: Any) -> tuple[Any, ...]:
    """For what writes into an array of ``spec``, the last option."""
    return one_axis(axis, rest[-1].ndim), *rest


_SHUFFLED = np.array([[3, 0], [0, -1]])
_SPEC = Spec((4, 3), np.dtype(np.float64))


def _take(x: Any, indices: Any, axis: int | None, mode: str) -> Any:
    check_indices("take", indices)  # NumPy would round a float down
    if mode == "wrap":  # NumPy subtracts the length from an index again and again
        length = np.size(x) if axis is None else np.shape(x)[axis]
        indices = np.remainder(np.asarray(indices, np.intp), length or 1)
    # Early releases of NumPy 2 do not take the longest unsigned integers.
    return np.take(x, np.asarray(indices).astype(np.intp, copy=False), axis, mode=mode)


def _taken_natively(build: Any, x: Any, indices: Any, axis: int | None, mode: str) -> Any:
    shape, places, full = index_lowering.taken(build, x.shape, indices, axis, mode)
    return broadcast_to(build.gather(reshape(x, shape), places), full)


@op(
    primitive="gather",
    lowering=_taken_natively,
    rearranges=True,
    numpy=[np.take],
    kernel=_take,
    prepare=_taking,
    canonical=lambda x, indices, axis, mode: (one_axis(axis, x.ndim), mode),
    infer=_taken_spec,
    vjp={
        "x": lambda g, indices, x_spec, axis, mode: add_taken(
            g, indices, axis=axis, mode=mode, spec=x_spec
        )
    },
    jvp={"x": lambda t, indices, axis, mode: take(t, indices, axis, mode=mode)},
    samples=[
        sample((4, 3), _SHUFFLED),
        sample((4, 3), _SHUFFLED, axis=0),
        sample((2, 4, 3), _SHUFFLED, axis=-2),
        sample((4, 3), np.array(2), axis=1),
        sample((4, 3), np.array([-7, 9, 1]), axis=1, mode="wrap"),
        sample((4, 3), np.array([-7, 9, 1]), axis=1, mode="clip"),
        sample((4, 3), np.array([], np.intp), axis=0),
    ],
    rejects=[
        reject((4, 3), np.array([4]), axis=0, match="out of bounds"),
        reject((4, 3), np.array([0.5]), axis=0, error=DTypeError, match="pass integers"),
        reject((4, 3), np.array([0]), axis=2, match="does not fit"),
        reject(
            (4, 3), np.array([0]), mode="loop", error=SettingError, match="choose 'raise', 'wrap'"
        ),
    ],
)
def take(x: Any, indices: Any, /, axis: int | None = None, *, mode: str = "raise") -> Any:
    """The elements at integer ``indices`` along ``axis``, by default among all elements."""
    return np.take(x, indices, axis, mode=mode)


def _add_taken_in_loops(x: Any, indices: Any, axis: int | None, mode: str, spec: Spec) -> Any:
    check_indices("add_taken", indices)
    return add_where_taken(np.asarray(x), indices, axis, mode, spec, loops=True)


def _added_natively(
    build: Any, x: Any, indices: Any, axis: int | None, mode: str, spec: Spec
) -> Any:
    shape, places, full = index_lowering.taken(build, spec.shape, indices, axis, mode)
    rows = axis is not None and math.prod(shape[axis % len(shape) + 1 :]) > 1
    return reshape(
        index_lowering.added(build, broadcast_to(x, full), shape, places, rows), spec.shape
    )


@op(
    primitive="scatter",
    lowering=_added_natively,
    rearranges=True,
    kernels=[Kernel("numbers and rows added one by one", _add_taken_in_loops, when=of_floats)],
    prepare=_taking,
    canonical=_spelled_by_spec,
    infer=spec_option_rule,
    vjp={"x": lambda g, indices, axis, mode: take(g, indices, axis, mode=mode)},
    jvp={
        "x": lambda t, indices, axis, mode, spec: add_taken(
            t, indices, axis=axis, mode=mode, spec=spec
        )
    },
    samples=[
        sample((2, 2), _SHUFFLED, spec=_SPEC),
        sample((2, 2, 3), _SHUFFLED, axis=0, spec=_SPEC),
        sample((4, 3), np.array([-7, 9, 1]), axis=1, mode="wrap", spec=_SPEC),
        sample((4, 3), np.array([-7, 9, 1]), axis=1, mode="clip", spec=_SPEC),
    ],
    rejects=[reject((2,), np.ones(2), spec=_SPEC, error=DTypeError, match="pass integers")],
)
def add_taken(
    x: Any, indices: Any, /, *, axis: int | None = None, mode: str = "raise", spec: Spec
) -> Any:
    """Zeros of the shape of ``spec`` with ``x`` added where ``take`` reads; repeats add up."""
    check_indices("add_taken", indices)
    return add_where_taken(x, indices, axis, mode, spec)


def add_where_taken(
    x: Any, indices: Any, axis: int | None, mode: str, spec: Spec, loops: bool = False
) -> Any:
    """The kernel of ``add_taken``; with ``loops``, that which is compiled."""
    indices = np.asarray(indices, np.intp)
    k = 0 if axis is None else axis % spec.ndim
    shape = (spec.size,) if axis is None else spec.shape
    if mode == "wrap":
        indices = np.remainder(indices, shape[k] or 1)
    elif mode == "clip":
        indices = np.clip(indices, 0, shape[k] - 1)
    head, length, tail = math.prod(shape[:k]), shape[k], math.prod(shape[k + 1 :])
    places = indices.reshape(-1)
    full = (*shape[:k], *indices.shape, *shape[k + 1 :])
    if np.shape(x) != full:
        x = np.broadcast_to(x, full)
    if not x.size:  # which may have been taken from an axis without elements
        return np.zeros(spec.shape, x.dtype)
    if loops:
        return _in_loops(x, places, (head, length, tail), spec.shape)
    if head != 1:
        places = (np.arange(head)[:, None] * length + in_range(places, length)).reshape(-1)
    elif mode == "raise":
        places = in_range(places, length)
    out = added_rows(x.reshape(len(places), tail), places, head * length)
    return put_under(out, spec.shape)


def _in_loops(x: Any, places: Any, lengths: tuple[int, int, int], shape: Any) -> Any:
    """Slices added by compiled loops, under a shape; numbers as slices of one."""
    head, length, tail = lengths
    if head * tail == 1:
        return put_under(scatter.add_numbers(x, places, length), shape)
    return put_under(scatter.add_slices(x, places, head, length, tail), shape)


def add_at_key(x: Any, key: Sequence[Any], spec: Spec, loops: bool = False) -> Any:
    """Zeros with ``x`` added at ``key``, which has an array of integers for each axis."""
    flat: Any = 0
    for places, length in zip(key, spec.shape, strict=True):
        flat = flat * length + in_range(np.asarray(places, np.intp), length)
    if np.shape(x) != flat.shape:
        x = np.broadcast_to(x, flat.shape)
    if loops:
        return _in_loops(x, flat.reshape(-1), (1, spec.size, 1), spec.shape)
    out = added_rows(x.reshape(-1, 1), flat.reshape(-1), spec.size)
    return put_under(out, spec.shape)


def along_spec(x: Spec, indices: Spec, axis: int | None, who: str = "take_along_axis") -> Spec:
    """What indices along an axis read, or write, of an array."""
    check_indices(who, indices)
    ndim = 1 if axis is None else x.ndim
    if len(indices.shape) != ndim:
        raise ShapeError(
            f"{who}: indices {indices.shape} for x {x.shape}, axis={axis}; "
            f"they must have {ndim} axes too"
        )
    if axis is None:
        return Spec(indices.shape, x.dtype)
    (k,) = normalize_axes(who, axis, ndim)
    others = (*x.shape[:k], 1, *x.shape[k + 1 :])
    try:
        return Spec(np.broadcast_shapes(others, indices.shape), x.dtype)
    except ValueError:
        raise ShapeError(
            f"{who}: indices {indices.shape} do not broadcast to x {x.shape} on the "
            f"axes other than {axis}"
        ) from None


_LARGEST = np.array([[2, 0], [1, 1], [0, 0], [2, -1]])


def _flat_places(shape: Shape, axis: int | None, indices: Any) -> Any:
    """Where indices point among all elements, if they do along the last axis of a matrix or more.

    None where they point otherwise.
    """
    lines = shape[:-1]
    if (
        not lines
        or axis not in (-1, len(lines))
        or type(indices) is not np.ndarray
        or indices.shape[:-1] != lines
        or indices.dtype.kind not in "iu"
        or not indices.size
    ):
        return None
    places = in_range(indices, shape[-1]).reshape(-1, indices.shape[-1])
    return np.arange(0, len(places) * shape[-1], shape[-1])[:, None] + places


def _take_along(x: Any, indices: Any, axis: int | None) -> Any:
    """``np.take_along_axis``, in half the time along the last axis of matrices and the like."""
    flat = _flat_places(np.shape(x), axis, indices)
    if flat is None:
        if isinstance(axis, (tuple, list)):
            raise DTypeError(f"take_along_axis: axis is {shown(axis)}; pass an int, or None")
        return np.take_along_axis(x, indices, axis)
    return x.reshape(-1).take(flat).reshape(indices.shape)


def _lines_fit(x: Spec, indices: Any, axis: int | None, spec: Spec | None = None) -> bool:
    """Whether each line, along the last axis, has indices of its own."""
    whole = x if spec is None else spec
    return (
        of_floats(x)
        and isinstance(indices, Spec)
        and indices.dtype.kind in "iu"
        and np.can_cast(indices.dtype, np.intp)  # else large ones would count from the end
        and indices.ndim == whole.ndim
        and axis in (-1, whole.ndim - 1)
        and indices.shape[:-1] == whole.shape[:-1]
        and (spec is None or x.shape == indices.shape)
    )


def _along_natively(build: Any, x: Any, indices: Any, axis: int | None) -> Any:
    shape, places, full = index_lowering.along(build, x.shape, indices, axis)
    return broadcast_to(build.gather(reshape(x, shape), places), full)


@op(
    primitive="gather",
    lowering=_along_natively,
    rearranges=True,
    kernels=[
        Kernel(
            "numbers read line by line",
            lambda x, indices, axis: scatter.take_lines(x, indices),
            when=_lines_fit,
        )
    ],
    numpy=[np.take_along_axis],
    kernel=_take_along,
    canonical=lambda x, indices, axis: (one_axis(axis, x.ndim),),
    infer=along_spec,
    vjp={"x": lambda g, indices, x_spec, axis: add_along_axis(g, indices, axis=axis, spec=x_spec)},
    jvp={"x": lambda t, indices, axis: take_along_axis(t, indices, axis)},
    samples=[
        sample((4, 3), _LARGEST, axis=1),
        sample((4, 3), np.array([[0, 3, 3]]), axis=0),
        sample((4, 3), np.array([[2, 2]]), axis=-1),
        sample((2, 2, 3), np.array([[[2, 0], [1, 1]], [[-1, 2], [0, 0]]]), axis=-1),
        sample((4, 3), np.array([5, 0, 5]), axis=None),
    ],
    rejects=[
        reject((4, 3), np.array([0]), axis=1, match="2 axes too"),
        reject((4, 3), np.array([[3]]), axis=1, match="out of bounds"),
        reject((4, 3), np.zeros((3, 3), int), axis=1, match="do not broadcast"),
    ],
)
def take_along_axis(x: Any, indices: Any, /, axis: int | None = -1) -> Any:
    """The elements at ``indices`` along ``axis``, each from its own line of the array."""
    return np.take_along_axis(x, indices, axis)


def _added_along_natively(build: Any, x: Any, indices: Any, axis: int | None, spec: Spec) -> Any:
    shape, places, full = index_lowering.along(build, spec.shape, indices, axis)
    return reshape(index_lowering.added(build, broadcast_to(x, full), shape, places), spec.shape)


@op(
    primitive="scatter",
    lowering=_added_along_natively,
    rearranges=True,
    canonical=_spelled_by_spec,
    infer=spec_option_rule,
    kernels=[
        Kernel(
            "numbers added line by line",
            lambda x, indices, axis, spec: scatter.add_lines(x, indices, spec.shape),
            when=_lines_fit,
        )
    ],
    vjp={"x": lambda g, indices, axis: take_along_axis(g, indices, axis)},
    jvp={"x": lambda t, indices, axis, spec: add_along_axis(t, indices, axis=axis, spec=spec)},
    samples=[
        sample((4, 2), _LARGEST, axis=1, spec=_SPEC),
        sample((1, 4, 2), _LARGEST[None], axis=-1, spec=Spec((1, 4, 3), _SPEC.dtype)),
        sample((3,), np.array([5, 0, 5]), axis=None, spec=_SPEC),
    ],
    rejects=[
        reject((4, 2), np.ones((4, 2)), axis=1, spec=_SPEC, error=DTypeError, match="pass integers")
    ],
)
def add_along_axis(x: Any, indices: Any, /, *, axis: int | None = -1, spec: Spec) -> Any:
    """Zeros of the shape of ``spec`` with ``x`` added where ``take_along_axis`` reads."""
    check_indices("add_along_axis", indices)
    x, indices = np.asarray(x), np.asarray(indices, np.intp)
    if axis is None:
        if indices.ndim != 1:
            raise ShapeError(
                f"add_along_axis: indices of shape {indices.shape} with axis=None; pass one axis"
            )
        return add_where_taken(x, indices, None, "raise", spec)
    flat = _flat_places(spec.shape, axis, indices) if x.shape == indices.shape else None
    if flat is not None:
        out = added_rows(x.reshape(-1, 1), flat.reshape(-1), spec.size)
        return put_under(out, spec.shape)
    ndim = spec.ndim
    key = [np.arange(n).reshape((-1,) + (1,) * (ndim - 1 - k)) for k, n in enumerate(spec.shape)]
    (k,) = normalize_axes("add_along_axis", axis, ndim)
    key[k] = indices
    return add_at_key(x, key, spec)


@composite(
    samples=[
        sample(np.array([[2, 0], [-1, 3]]), num_classes=3),
        sample(np.array([1, 0]), num_classes=2, axis=0),
        sample(np.array(1), num_classes=3, dtype=np.float32),
        sample(np.zeros(0, int), num_classes=2),
    ],
    rejects=[reject((2,), num_classes=2, error=DTypeError, match="integers")],
)
def one_hot(
    indices: Any, num_classes: int, *, dtype: Any = np.float64, axis: int = -1, tape: Any = None
) -> Any:
    """Ones at the given class numbers and zeros elsewhere; a constant.

    Args:
        indices: Integers of any shape; one outside of ``0 ... num_classes - 1`` gives zeros.
        num_classes: How many classes there are: the length of the new axis.
        dtype: Of the result.
        axis: The place of the new axis.
        tape: The tape to record on.

    Raises:
        DTypeError: for class numbers that are not integers.

    >>> one_hot(np.array([2, 0]), 3)
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    if not hasattr(indices, "dtype"):
        indices = as_array("one_hot", "indices", indices)
    check_indices("one_hot", indices)
    narrow = expand_dims(indices, axis, tape=tape)
    (k,) = normalize_axes("one_hot", axis, len(narrow.shape))
    classes = np.arange(num_classes).reshape((-1,) + (1,) * (len(narrow.shape) - 1 - k))
    return astype(equal(narrow, classes, tape=tape), dtype, tape=tape)


publish(globals())
