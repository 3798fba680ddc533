"""Gathering along an axis at indices that are operands, and the adjoint scatter-adds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import check_choice, format_value
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.kernels import scatter
from odyssey.kernels.scatter import has_float_dtype
from odyssey.ops.elementwise.arithmetic import add, maximum, minimum
from odyssey.ops.elementwise.choice import equal, greater_equal, less, logical_and, where
from odyssey.ops.elementwise.rounding import mod
from odyssey.ops.structure import index_lowering
from odyssey.ops.structure.batching import (
    align,
    example_specs,
    flatten_examples,
    shift_axes,
    spread,
)
from odyssey.ops.structure.scatter import normalize_indices, scatter_add_rows, set_shape
from odyssey.ops.structure.shape import astype, broadcast_to, expand_dims, moveaxis, reshape
from odyssey.spec import Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.canonical_options import one_axis
from odyssey.table.declare import Kernel, composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes, spec_option_rule


def _take_options(axis: Any, mode: str, *rest: Any) -> tuple[Any, ...]:
    check_choice("take", "mode", mode, ("raise", "wrap", "clip"))
    return (axis, mode, *rest)


def _take_spec(x: Spec, indices: Any, axis: int | None, mode: str) -> Spec:
    check_indices("take", indices)
    shape = getattr(indices, "shape", ())
    if axis is None:
        return Spec(shape, x.dtype)
    (k,) = normalize_axes("take", axis, x.ndim)
    return Spec((*x.shape[:k], *shape, *x.shape[k + 1 :]), x.dtype)


def check_indices(who: str, indices: Any) -> None:
    """Raise DTypeError if indices are not integers."""
    dtype = indices.dtype if hasattr(indices, "dtype") else np.result_type(indices)
    if dtype.kind not in "biu":
        raise DTypeError(f"{who}: the indices have dtype {dtype}; pass integers")


def _canonical_by_spec(x: Any, indices: Any, axis: Any, *rest: Any) -> tuple[Any, ...]:
    """Return canonical options of an op whose last option is the ``spec`` it writes into."""
    return one_axis(axis, rest[-1].ndim), *rest


_SHUFFLED = np.array([[3, 0], [0, -1]])
_SPEC = Spec((4, 3), np.dtype(np.float64))


def _take_array(x: Any, indices: Any, axis: int | None, mode: str) -> Any:
    check_indices("take", indices)  # NumPy would truncate floats
    if mode == "wrap":  # NumPy wraps by repeated subtraction of the length
        length = np.size(x) if axis is None else np.shape(x)[axis]
        indices = np.remainder(np.asarray(indices, np.intp), length or 1)
    # Early releases of NumPy 2 refuse uint64 indices.
    return np.take(x, np.asarray(indices).astype(np.intp, copy=False), axis, mode=mode)


def _lower_take(build: Any, x: Any, indices: Any, axis: int | None, mode: str) -> Any:
    shape, places, full = index_lowering.take_indices(build, x.shape, indices, axis, mode)
    return broadcast_to(build.gather(reshape(x, shape), places), full)


def _rows_of_examples(indices: Any, lines: int, length: int, mode: str) -> Any:
    """Return mapped indices of ``take`` as rows of all lines of all examples, in one matrix.

    An index out of range becomes one that is out of range there, too.

    Args:
        indices: Indices of each example.
        lines: The number of lines of an example, each of which is read at all indices.
        length: The length of a line.
        mode: The mode of ``take``.

    Returns:
        An array of examples, lines, and indices.
    """
    size, *own = indices.shape
    places = reshape(astype(indices, np.intp), (size, 1, math.prod(own)))
    if mode == "wrap":
        places = mod(places, length or 1)
    elif mode == "clip":
        places = minimum(maximum(places, 0), length - 1)
    else:
        places = where(less(places, 0), add(places, length), places)
    inside = logical_and(greater_equal(places, 0), less(places, length))
    starts = (np.arange(size * lines) * length).reshape(size, lines, 1)
    return where(inside, add(places, starts), size * lines * length)


def _take_batch(batch: Batch, x: Any, indices: Any, axis: int | None, mode: str) -> Any:
    if not batch.mapped[1]:
        if axis is None:
            return take(flatten_examples(x), indices, 1, mode=mode)
        return take(x, indices, shift_axes(axis, len(x.shape) - 1), mode=mode)
    spec, own = example_specs(batch, [x, indices])
    shape = _take_spec(spec, own, axis, mode).shape
    k = 0 if axis is None else axis % spec.ndim
    if not batch.mapped[0]:  # the batch stands where the axes of the indices do
        return moveaxis(take(x, indices, axis, mode=mode), k, 0)
    x = flatten_examples(x) if axis is None else x
    lines, length, tail = math.prod(x.shape[1 : k + 1]), x.shape[k + 1], x.shape[k + 2 :]
    rows = _rows_of_examples(indices, lines, length, mode)
    found = take(reshape(x, (batch.size * lines * length, *tail)), rows, 0)
    return reshape(found, (batch.size, *shape))


@op(
    primitive="gather",
    lowering=_lower_take,
    rearranges=True,
    numpy=[np.take],
    kernel=_take_array,
    prepare=_take_options,
    canonical=lambda x, indices, axis, mode: (one_axis(axis, x.ndim), mode),
    infer=_take_spec,
    vjp={
        "x": lambda g, indices, x_spec, axis, mode: add_taken(
            g, indices, axis=axis, mode=mode, spec=x_spec
        )
    },
    jvp={"x": lambda t, indices, axis, mode: take(t, indices, axis, mode=mode)},
    vmap=_take_batch,
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
    """Elements at integer ``indices`` along ``axis``, by default of the flattened array."""
    return np.take(x, indices, axis, mode=mode)


def _add_taken_loop(x: Any, indices: Any, axis: int | None, mode: str, spec: Spec) -> Any:
    check_indices("add_taken", indices)
    return add_taken_kernel(np.asarray(x), indices, axis, mode, spec, loops=True)


def _add_taken_on_cuda(x: Any, indices: Any, axis: int | None, mode: str, spec: Spec) -> Any:
    from odyssey.kernels import cuda as device
    from odyssey.kernels.cuda_scatter import cuda_scatter_add

    check_indices("add_taken", indices)
    space = device.array_namespace(x)
    k = 0 if axis is None else axis % spec.ndim
    shape = (spec.size,) if axis is None else spec.shape
    if mode == "wrap":
        indices = space.remainder(indices, shape[k] or 1)
    elif mode == "clip":
        indices = space.clip(indices, 0, shape[k] - 1)
    head, length, tail = math.prod(shape[:k]), shape[k], math.prod(shape[k + 1 :])
    full = (*shape[:k], *indices.shape, *shape[k + 1 :])
    x = device.contiguous(space.broadcast_to(x, full)).reshape(head, indices.size, tail)
    return cuda_scatter_add(x, indices, (head, length, tail)).reshape(spec.shape)


def _fits_cuda_scatter(x: Spec, indices: Any, axis: int | None, mode: str, spec: Spec) -> bool:
    return x.dtype.char in "efd" and hasattr(indices, "dtype") and spec.size > 0


def _lower_add_taken(
    build: Any, x: Any, indices: Any, axis: int | None, mode: str, spec: Spec
) -> Any:
    shape, places, full = index_lowering.take_indices(build, spec.shape, indices, axis, mode)
    rows = axis is not None and math.prod(shape[axis % len(shape) + 1 :]) > 1
    return reshape(
        index_lowering.scatter_add(build, broadcast_to(x, full), shape, places, rows), spec.shape
    )


def _add_taken_batch(
    batch: Batch, x: Any, indices: Any, axis: int | None, mode: str, spec: Spec
) -> Any:
    own = example_specs(batch, [x, indices])[1]
    full = _take_spec(spec, own, axis, mode).shape
    k = 0 if axis is None else axis % spec.ndim
    lines = (spec.size,) if axis is None else spec.shape
    wide = Spec((batch.size, *lines), spec.dtype)
    x = align(spread(batch, 0, x), True, len(full))
    if not batch.mapped[1]:
        out = add_taken(x, indices, axis=k + 1, mode=mode, spec=wide)
    else:
        count, tail = math.prod(lines[:k]), lines[k + 1 :]
        rows = _rows_of_examples(indices, count, lines[k], mode)
        x = reshape(broadcast_to(x, (batch.size, *full)), (*rows.shape, *tail))
        tall = Spec((batch.size * count * lines[k], *tail), spec.dtype)
        out = add_taken(x, rows, axis=0, spec=tall)
    whole = (batch.size, *spec.shape)
    return out if out.shape == whole else reshape(out, whole)


@op(
    primitive="scatter",
    lowering=_lower_add_taken,
    rearranges=True,
    kernels=[
        Kernel("numbers and rows added one by one", _add_taken_loop, when=has_float_dtype),
        Kernel("rows added in order of index", _add_taken_on_cuda, "cuda", when=_fits_cuda_scatter),
    ],
    prepare=_take_options,
    canonical=_canonical_by_spec,
    infer=spec_option_rule,
    vjp={"x": lambda g, indices, axis, mode: take(g, indices, axis, mode=mode)},
    jvp={
        "x": lambda t, indices, axis, mode, spec: add_taken(
            t, indices, axis=axis, mode=mode, spec=spec
        )
    },
    vmap=_add_taken_batch,
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
    """Scatter-add ``x`` into zeros at the indices of ``take``: the transpose of ``take``."""
    check_indices("add_taken", indices)
    return add_taken_kernel(x, indices, axis, mode, spec)


def add_taken_kernel(
    x: Any, indices: Any, axis: int | None, mode: str, spec: Spec, loops: bool = False
) -> Any:
    """Kernel of ``add_taken``; with ``loops``, the compiled one."""
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
    if not x.size:  # the axis may be empty
        return np.zeros(spec.shape, x.dtype)
    if loops:
        return _add_slices_in_loops(x, places, (head, length, tail), spec.shape)
    if head != 1:
        places = (np.arange(head)[:, None] * length + normalize_indices(places, length)).reshape(-1)
    elif mode == "raise":
        places = normalize_indices(places, length)
    out = scatter_add_rows(x.reshape(len(places), tail), places, head * length)
    return set_shape(out, spec.shape)


def _add_slices_in_loops(x: Any, places: Any, lengths: tuple[int, int, int], shape: Any) -> Any:
    """Add slices by compiled loops, and return the result in a shape."""
    head, length, tail = lengths
    if head * tail == 1:
        return set_shape(scatter.scatter_add_elements(x, places, length), shape)
    return set_shape(scatter.scatter_add_slices(x, places, head, length, tail), shape)


def scatter_add_at_key(x: Any, key: Sequence[Any], spec: Spec, loops: bool = False) -> Any:
    """Scatter-add ``x`` into zeros at ``key``, an array of integers for each axis."""
    flat: Any = 0
    for places, length in zip(key, spec.shape, strict=True):
        flat = flat * length + normalize_indices(np.asarray(places, np.intp), length)
    if np.shape(x) != flat.shape:
        x = np.broadcast_to(x, flat.shape)
    if loops:
        return _add_slices_in_loops(x, flat.reshape(-1), (1, spec.size, 1), spec.shape)
    out = scatter_add_rows(x.reshape(-1, 1), flat.reshape(-1), spec.size)
    return set_shape(out, spec.shape)


def take_along_axis_spec(
    x: Spec, indices: Spec, axis: int | None, who: str = "take_along_axis"
) -> Spec:
    """Return the spec of what ``take_along_axis`` reads or writes."""
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


def _last_axis_flat_indices(shape: Shape, axis: int | None, indices: Any) -> Any:
    """Return flat indices, for indices along the last of at least two axes; else None."""
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
    places = normalize_indices(indices, shape[-1]).reshape(-1, indices.shape[-1])
    return np.arange(0, len(places) * shape[-1], shape[-1])[:, None] + places


def _take_along_axis(x: Any, indices: Any, axis: int | None) -> Any:
    """Return ``np.take_along_axis``; along the last axis in half the time."""
    flat = _last_axis_flat_indices(np.shape(x), axis, indices)
    if flat is None:
        if isinstance(axis, (tuple, list)):
            raise DTypeError(f"take_along_axis: axis is {format_value(axis)}; pass an int, or None")
        return np.take_along_axis(x, indices, axis)
    return x.reshape(-1).take(flat).reshape(indices.shape)


def _indexes_whole_lines(x: Spec, indices: Any, axis: int | None, spec: Spec | None = None) -> bool:
    """Return whether each line along the last axis has its own indices."""
    whole = x if spec is None else spec
    return (
        has_float_dtype(x)
        and isinstance(indices, Spec)
        and indices.dtype.kind in "iu"
        and np.can_cast(
            indices.dtype, np.intp
        )  # else large unsigned indices would count from the end
        and indices.ndim == whole.ndim
        and axis in (-1, whole.ndim - 1)
        and indices.shape[:-1] == whole.shape[:-1]
        and (spec is None or x.shape == indices.shape)
    )


def _lower_take_along_axis(build: Any, x: Any, indices: Any, axis: int | None) -> Any:
    shape, places, full = index_lowering.take_along_axis_indices(build, x.shape, indices, axis)
    return broadcast_to(build.gather(reshape(x, shape), places), full)


def lines_of_examples(batch: Batch, x: Any, indices: Any, axis: int | None) -> tuple[Any, Any, int]:
    """Return ``x`` and ``indices`` of ``take_along_axis`` with the batch in front, and the axis.

    Without an axis, each example is flat.
    """
    x, indices = spread(batch, 0, x), spread(batch, 1, indices)
    if axis is None:
        return flatten_examples(x), indices, 1
    return x, indices, axis % (len(x.shape) - 1) + 1


def _take_along_axis_batch(batch: Batch, x: Any, indices: Any, axis: int | None) -> Any:
    spec, own = example_specs(batch, [x, indices])
    take_along_axis_spec(spec, own, axis)
    if not batch.mapped[0] and (axis is None or spec.ndim == 1):
        return take(x, indices)  # from one line of elements
    return take_along_axis(*lines_of_examples(batch, x, indices, axis))


@op(
    primitive="gather",
    lowering=_lower_take_along_axis,
    rearranges=True,
    kernels=[
        Kernel(
            "numbers read line by line",
            lambda x, indices, axis: scatter.gather_lines(x, indices),
            when=_indexes_whole_lines,
        )
    ],
    numpy=[np.take_along_axis],
    kernel=_take_along_axis,
    canonical=lambda x, indices, axis: (one_axis(axis, x.ndim),),
    infer=take_along_axis_spec,
    vjp={"x": lambda g, indices, x_spec, axis: add_along_axis(g, indices, axis=axis, spec=x_spec)},
    jvp={"x": lambda t, indices, axis: take_along_axis(t, indices, axis)},
    vmap=_take_along_axis_batch,
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
    """Elements at ``indices`` along ``axis``, each from its own line of the array."""
    return np.take_along_axis(x, indices, axis)


def _lower_add_along_axis(build: Any, x: Any, indices: Any, axis: int | None, spec: Spec) -> Any:
    shape, places, full = index_lowering.take_along_axis_indices(build, spec.shape, indices, axis)
    return reshape(
        index_lowering.scatter_add(build, broadcast_to(x, full), shape, places), spec.shape
    )


def _add_along_axis_batch(batch: Batch, x: Any, indices: Any, axis: int | None, spec: Spec) -> Any:
    full = take_along_axis_spec(spec, example_specs(batch, [x, indices])[1], axis).shape
    x, indices = align(spread(batch, 0, x), True, len(full)), spread(batch, 1, indices)
    lines = (spec.size,) if axis is None else spec.shape
    k = 0 if axis is None else axis % spec.ndim
    wide = Spec((batch.size, *lines), spec.dtype)
    out = add_along_axis(x, indices, axis=k + 1, spec=wide)
    return reshape(out, (batch.size, *spec.shape)) if axis is None else out


@op(
    primitive="scatter",
    lowering=_lower_add_along_axis,
    rearranges=True,
    canonical=_canonical_by_spec,
    infer=spec_option_rule,
    kernels=[
        Kernel(
            "numbers added line by line",
            lambda x, indices, axis, spec: scatter.scatter_add_lines(x, indices, spec.shape),
            when=_indexes_whole_lines,
        )
    ],
    vjp={"x": lambda g, indices, axis: take_along_axis(g, indices, axis)},
    jvp={"x": lambda t, indices, axis, spec: add_along_axis(t, indices, axis=axis, spec=spec)},
    vmap=_add_along_axis_batch,
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
    """Scatter-add ``x`` into zeros at the indices of ``take_along_axis``: its transpose."""
    check_indices("add_along_axis", indices)
    x, indices = np.asarray(x), np.asarray(indices, np.intp)
    if axis is None:
        if indices.ndim != 1:
            raise ShapeError(
                f"add_along_axis: indices of shape {indices.shape} with axis=None; pass one axis"
            )
        return add_taken_kernel(x, indices, None, "raise", spec)
    flat = _last_axis_flat_indices(spec.shape, axis, indices) if x.shape == indices.shape else None
    if flat is not None:
        out = scatter_add_rows(x.reshape(-1, 1), flat.reshape(-1), spec.size)
        return set_shape(out, spec.shape)
    ndim = spec.ndim
    key = [np.arange(n).reshape((-1,) + (1,) * (ndim - 1 - k)) for k, n in enumerate(spec.shape)]
    (k,) = normalize_axes("add_along_axis", axis, ndim)
    key[k] = indices
    return scatter_add_at_key(x, key, spec)


@composite(
    samples=[
        sample(np.array([[2, 0], [-1, 3]]), num_classes=3),
        sample(np.array([1, 0]), num_classes=2, axis=0),
        sample(np.array(1), num_classes=3, dtype=np.float32),
        sample(np.zeros(0, int), num_classes=2),
    ],
    rejects=[reject((2,), num_classes=2, error=DTypeError, match="integers")],
)
def one_hot(indices: Any, num_classes: int, *, dtype: Any = np.float64, axis: int = -1) -> Any:
    """One-hot encoding: ones at the given class indices and zeros elsewhere; a constant.

    Args:
        indices: Integers of any shape; one outside of ``0 ... num_classes - 1`` gives zeros.
        num_classes: Number of classes, the length of the new axis.
        dtype: The dtype of the result.
        axis: Position of the new axis.

    Raises:
        DTypeError: if class indices are not integers.

    >>> one_hot(np.array([2, 0]), 3)
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    if not hasattr(indices, "dtype"):
        indices = as_array("one_hot", "indices", indices)
    check_indices("one_hot", indices)
    narrow = expand_dims(indices, axis)
    (k,) = normalize_axes("one_hot", axis, len(narrow.shape))
    classes = np.arange(num_classes).reshape((-1,) + (1,) * (len(narrow.shape) - 1 - k))
    return astype(equal(narrow, classes), dtype)


publish(globals())
