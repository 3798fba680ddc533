"""Concatenation and stacking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import result_type
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.structure.batching import flatten_examples, shift_axes, spread
from odyssey.ops.structure.indexing import add_at, getitem
from odyssey.ops.structure.shape import astype, expand_dims, reshape, shape_of
from odyssey.spec import Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.canonical_options import one_axis
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import NUMBERS, Symbol, Value
from odyssey.tree import leaves, unflatten
from odyssey.tree_objects import no_attributes

# ------------------------------------------------------------------ concatenate


def _concatenate_spec(*specs_and_axis: Any) -> Spec:
    *specs, axis = specs_and_axis
    dtype = result_type(*[spec.dtype for spec in specs])
    if axis is None:
        return Spec((sum(spec.size for spec in specs),), dtype)
    shapes = [spec.shape for spec in specs]
    if not all(shapes):
        raise ShapeError(f"concatenate: shapes {shapes}; arrays need an axis, stack makes one")
    (k,) = normalize_axes("concatenate", axis, len(shapes[0]))
    if len({(len(s), s[:k], s[k + 1 :]) for s in shapes}) > 1:
        raise ShapeError(f"concatenate: shapes {shapes} differ on another axis than {axis}")
    return Spec((*shapes[0][:k], sum(s[k] for s in shapes), *shapes[0][k + 1 :]), dtype)


def _canonical_axis_option(*specs_and_axis: Any) -> tuple[Any]:
    *specs, axis = specs_and_axis
    if axis is None and any(spec.ndim != 1 for spec in specs):
        return (None,)
    return (one_axis(axis, specs[0].ndim),)


def _axis_option(axis: Any) -> tuple[Any]:
    if axis is not None and not isinstance(axis, (int, np.integer)):
        raise DTypeError(f"concatenate: axis is {format_value(axis)}; pass an int or None")
    return (axis,)


def _member_slice(specs: Sequence[Spec], place: int, axis: int | None) -> tuple[slice, ...]:
    """Return the slice of the result that one array occupies."""
    if axis is None:
        k, lengths = 0, [spec.size for spec in specs[: place + 1]]
    else:
        k = axis % specs[0].ndim
        lengths = [spec.shape[k] for spec in specs[: place + 1]]
    end = sum(lengths)
    return (slice(None),) * k + (slice(end - lengths[-1], end),)


def _member_vjp(g: Any, place: int, axis: int | None, arrays_spec: Sequence[Spec]) -> Any:
    slot = _member_slice(arrays_spec, place, axis)
    if type(g) is np.ndarray:  # parsing a user's key would take as long as the rest
        part = g[slot].copy()
        return part.reshape(arrays_spec[place].shape) if axis is None else part
    part = getitem(g, slot)
    return reshape(part, arrays_spec[place].shape) if axis is None else part


def _member_jvp(t: Any, place: int, axis: int | None, arrays_spec: Sequence[Spec]) -> Any:
    out = Spec(_concatenate_spec(*arrays_spec, axis).shape, t.dtype)
    return add_at(
        reshape(t, -1) if axis is None else t, _member_slice(arrays_spec, place, axis), out
    )


def _lower_concatenate(build: Any, *given: Any) -> Any:
    *arrays, axis = given
    specs = [Spec(a.shape, a.dtype) for a in arrays]
    made = _concatenate_spec(*specs, axis)
    parts = [
        (
            build.cast(build.reshape(a, (-1,)) if axis is None else a, made.dtype),
            _member_slice(specs, k, axis),
        )
        for k, a in enumerate(arrays)
    ]
    return build.join(parts, made.shape, made.dtype)


def _concatenate_batch(batch: Batch, *arrays_and_axis: Any) -> Any:
    *arrays, axis = arrays_and_axis
    arrays = [spread(batch, k, x) for k, x in enumerate(arrays)]
    if axis is None:
        return concatenate([flatten_examples(x) for x in arrays], axis=1)
    return concatenate(arrays, axis=shift_axes(axis, len(arrays[0].shape) - 1))


@op(
    variadic="arrays",
    bunches=True,
    rearranges=True,
    prepare=_axis_option,
    canonical=_canonical_axis_option,
    primitive="assemble",
    lowering=_lower_concatenate,
    infer=_concatenate_spec,
    vjp={"arrays": _member_vjp},
    jvp={"arrays": _member_jvp},
    vmap=_concatenate_batch,
    samples=[
        sample((2, 3), (2, 3)),
        sample((2, 3), (1, 3)),
        sample((2, 3), (2, 4), axis=-1),
        sample((2, 3), (4,), axis=None),
        sample((), (2,), axis=None),
        sample((0, 2), (3, 2)),
        sample((2, 1), (2, 3), (2, 0), axis=1),
        sample((2,), (), (3, 1), (0, 2), axis=None),
    ],
    rejects=[
        reject((2, 3), (2, 4), match="differ on another axis"),
        reject((2, 3), (3,), match="differ on another axis"),
        reject((), (3,), match="need an axis"),
        reject((2, 3), (2, 3), axis=2, match="does not fit"),
        reject((2, 3), (2, 3), (2, 4), match="differ on another axis"),
    ],
)
def concatenate(arrays: Any, /, axis: int | None = 0) -> Any:
    """Concatenate arrays along an axis.

    Args:
        arrays: A sequence of arrays that differ in length on ``axis`` only, or separate arguments
            as in ``concatenate(x, y)``. Python numbers take the dtype of the others.
        axis: The axis; None flattens all arrays.

    Returns:
        A new array of the common dtype.

    Raises:
        ShapeError: if the shapes do not fit, or there is no array.

    >>> concatenate([np.array([[1, 2]]), np.array([[3], [4]]).T], axis=1)
    array([[1, 2, 3, 4]])
    """
    return np.concatenate(arrays, axis)


@composite(
    numpy=[np.stack],
    samples=[
        sample([(2, 3), (2, 3)]),
        sample([(3,), (3,)], axis=-1),
        sample([(), ()]),
        sample([(0, 2)], axis=1),
    ],
    rejects=[reject([np.ones(2), np.ones(3)], match="one shape"), reject([], match="one shape")],
)
def stack(arrays: Any, axis: int = 0) -> Any:
    """Stack arrays of one shape along a new axis.

    Args:
        arrays: A sequence of arrays of one shape.
        axis: Position of the new axis in the result.

    Raises:
        ShapeError: if the shapes differ, or there is no array.

    >>> stack([np.array([1, 2]), np.array([3, 4])], axis=-1)
    array([[1, 3],
           [2, 4]])
    """
    parts = [np.asarray(part) if type(part) in NUMBERS else part for part in list(arrays)]
    shapes = {shape_of(part) for part in parts}
    if len(shapes) != 1:
        raise ShapeError(f"stack: needs arrays of one shape, came {sorted(shapes)}")
    if type(axis) is int and axis == 0:  # a new first axis: two ops for all arrays
        joined = concatenate(parts, axis=None)
        return reshape(joined, (len(parts), *shapes.pop()))
    return concatenate([expand_dims(p, axis) for p in parts], axis=axis)


@composite(
    samples=[sample([(2,), (2,)]), sample([[(), 2.0], [3, ()]]), sample([(0,)]), sample([()])],
    rejects=[reject([np.ones(2), np.ones(3)], match="one shape")],
)
def array(arrays: Any) -> Any:
    """Array from nested lists of Variables, arrays and numbers, as ``np.array``.

    Args:
        arrays: Nested lists and tuples of values of one shape.

    Returns:
        A Variable if one is among them, else an array. Python numbers take the dtype of others.

    Raises:
        ShapeError: if shapes differ. DTypeError: if a value is not a number.

    >>> array([[1.0, np.float32(2.0)], [3, 4]])
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    found = list(map(_array_element, leaves(arrays, no_attributes)))
    if all(type(n) in NUMBERS for n in found):  # NumPy chooses the dtype by their values
        dtype = np.asarray(found).dtype
    else:
        dtype = result_type(*[n if type(n) in NUMBERS else n.dtype for n in found])
    return _stack_nested(unflatten(arrays, found, no_attributes), dtype)


def _array_element(leaf: Any) -> Any:
    """Return a leaf of nested lists: a Variable, a weakly typed number, or an array."""
    if isinstance(leaf, (Value, Symbol)):
        return leaf
    found = as_array("array", "an element", leaf)
    return leaf if type(leaf) in NUMBERS else found


def _stack_nested(nest: Any, dtype: Any) -> Any:
    if not isinstance(nest, (list, tuple)):
        return astype(nest, dtype) if hasattr(nest, "dtype") else np.asarray(nest, dtype)
    if not nest:
        return np.zeros(0, dtype)
    return stack([_stack_nested(part, dtype) for part in nest])


def _prepend_axes(parts: Any, ndim: int) -> list[Any]:
    """Prepend axes of length 1 to each array, up to ``ndim`` axes."""
    wide = []
    for part in list(parts):
        shape = shape_of(part)
        missing = (1,) * (ndim - len(shape))
        wide.append(reshape(part, missing + shape) if missing else part)
    return wide


@composite(
    numpy=[np.vstack],
    samples=[sample([(2, 3), (3,)]), sample([(), ()]), sample([(0, 2), (2, 2)])],
    rejects=[reject([np.ones(2), np.ones(3)], match="differ")],
)
def vstack(tup: Any) -> Any:
    """Stack arrays vertically, along the first axis; vectors are rows.

    Args:
        tup: A sequence of arrays.

    >>> vstack([np.array([1, 2]), np.array([[3, 4]])])
    array([[1, 2],
           [3, 4]])
    """
    return concatenate(_prepend_axes(tup, 2), axis=0)


@composite(
    numpy=[np.hstack],
    samples=[sample([(2, 3), (2, 1)]), sample([(3,), (0,)]), sample([(), ()])],
    rejects=[reject([np.ones((2, 2)), np.ones((3, 2))], match="differ")],
)
def hstack(tup: Any) -> Any:
    """Stack arrays horizontally: along the second axis, vectors along their only one.

    Args:
        tup: A sequence of arrays.

    >>> hstack([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    parts = _prepend_axes(tup, 1)
    along = 0 if parts and len(shape_of(parts[0])) == 1 else 1
    return concatenate(parts, axis=along)


# ------------------------------------------------------------------ minimum number of axes


def _shape_at_least_1d(shape: Shape) -> Shape:
    return shape or (1,)


def _shape_at_least_2d(shape: Shape) -> Shape:
    return (1,) * (2 - len(shape)) + shape


def _shape_at_least_3d(shape: Shape) -> Shape:
    return (*_shape_at_least_2d(shape), 1) if len(shape) < 3 else shape


def _reshape_each(arrays: Any, to: Callable[[Shape], Shape]) -> Any:
    wide = tuple(reshape(x, to(shape_of(x))) for x in arrays)
    return wide[0] if len(wide) == 1 else wide


@composite(
    numpy=[np.atleast_1d],
    samples=[sample(()), sample((2, 3)), sample((), (0,))],
)
def atleast_1d(*arrays: Any) -> Any:
    """View with at least one axis.

    Args:
        arrays: One array of any shape, or several.

    Returns:
        An array for one array, a tuple for several.

    >>> atleast_1d(3.0)
    array([3.])
    """
    return _reshape_each(arrays, _shape_at_least_1d)


@composite(
    numpy=[np.atleast_2d],
    samples=[sample(()), sample((3,)), sample((2, 1, 3)), sample((), (0,))],
)
def atleast_2d(*arrays: Any) -> Any:
    """View with at least two axes; vectors become rows.

    Args:
        arrays: One array of any shape, or several.

    Returns:
        An array for one array, a tuple for several.

    >>> atleast_2d(np.array([1, 2]))
    array([[1, 2]])
    """
    return _reshape_each(arrays, _shape_at_least_2d)


@composite(
    numpy=[np.atleast_3d],
    samples=[sample(()), sample((3,)), sample((2, 3)), sample((2, 1, 3, 1)), sample((), (0,))],
)
def atleast_3d(*arrays: Any) -> Any:
    """View with at least three axes; vectors along the second, matrices along the first two.

    Args:
        arrays: One array of any shape, or several.

    Returns:
        An array for one array, a tuple for several.

    >>> atleast_3d(np.ones(4)).shape, atleast_3d(np.ones((2, 3))).shape
    ((1, 4, 1), (2, 3, 1))
    """
    return _reshape_each(arrays, _shape_at_least_3d)


# ------------------------------------------------------------------ appending and stacking


@composite(
    numpy=[np.append],
    samples=[
        sample((2, 3), (2,)),
        sample((2, 3), (1, 3), axis=-2),
        sample((), ()),
        sample((0,), (2,)),
    ],
    rejects=[reject((2, 3), (3,), axis=0, match="differ")],
)
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Append values along an axis.

    Args:
        arr: Array of any shape.
        values: Values, which differ in length on ``axis`` only.
        axis: The axis; by default both are flattened.

    Returns:
        A new array of the common dtype.

    Raises:
        ShapeError: where the shapes do not fit.

    >>> append(np.array([1, 2]), [[3], [4]])
    array([1, 2, 3, 4])
    """
    parts = [np.asarray(part) if type(part) in NUMBERS else part for part in (arr, values)]
    return concatenate(parts, axis=axis)


@composite(
    numpy=[np.column_stack],
    samples=[
        sample([(3,), (3,)]),
        sample([(3, 2), (3,)]),
        sample([(), ()]),
        sample([(0,), (0, 2)]),
    ],
    rejects=[reject([], match="no arrays")],
)
def column_stack(tup: Any) -> Any:
    """Stack vectors as the columns of a matrix; matrices are joined as they are.

    Args:
        tup: A sequence of vectors and matrices.

    Raises:
        ShapeError: if the lengths of columns differ, or there is no array.

    >>> column_stack([np.array([1, 2]), np.array([3, 4])])
    array([[1, 3],
           [2, 4]])
    """
    parts = [
        x if len(shape_of(x)) > 1 else reshape(x, (*_shape_at_least_1d(shape_of(x)), 1))
        for x in list(tup)
    ]
    return concatenate(parts, axis=1)


@composite(
    numpy=[np.dstack],
    samples=[sample([(3,), (3,)]), sample([(2, 3), (2, 3, 2)]), sample([()]), sample([(0,)])],
    rejects=[reject([], match="no arrays")],
)
def dstack(tup: Any) -> Any:
    """Stack arrays along the third axis, which matrices and vectors get.

    Args:
        tup: A sequence of arrays.

    Raises:
        ShapeError: if the shapes differ on another axis, or there is no array.

    >>> dstack([np.array([1, 2]), np.array([3, 4])])
    array([[[1, 3],
            [2, 4]]])
    """
    parts = [reshape(x, _shape_at_least_3d(shape_of(x))) for x in list(tup)]
    return concatenate(parts, axis=2)


publish(globals())
