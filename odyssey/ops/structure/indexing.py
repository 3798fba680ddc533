"""Indexing: functional reading and writing of ``x[key]``, whose results never alias operands.

A key is an option of its op, static in a graph; ``take`` has its indices as an operand.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, as_array, is_array_like
from odyssey.devices.device_versions import check_bounds, device_version, on_host
from odyssey.devices.half_dtypes import can_cast
from odyssey.devices.ownership import copy_if_shared
from odyssey.devices.same_device import host_array, own_copy, place_beside
from odyssey.errors import DTypeError, OutOfRangeError, ShapeError
from odyssey.kernels.scatter import has_float_dtype
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.elementwise.choice import keep_where
from odyssey.ops.structure import index_lowering
from odyssey.ops.structure.batching import align, example_specs, spread
from odyssey.ops.structure.gathering import (
    add_taken,
    add_taken_kernel,
    scatter_add_at_key,
    take,
)
from odyssey.ops.structure.scatter import zeros_of_spec
from odyssey.ops.structure.shape import broadcast_to, moveaxis, reshape
from odyssey.spec import Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.call import general
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.row import Row
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import spec_option_rule
from odyssey.table.store import numbers_of, store
from odyssey.table.value import NUMBERS, Symbol, Traced, Value

_MASK = np.array([[True, False, True], [False, True, True]])
_KEYS = (
    sample((4, 3), key=1),
    sample((4, 3), key=(slice(None, None, -2), slice(0, 2))),
    sample((4, 3), key=(..., np.newaxis, 0)),
    sample((4, 3), key=np.array([0, 2, 2, -1])),
    sample((2, 3), key=_MASK),
    sample((4, 3), key=(np.array([[0], [2]]), np.array([0, 0]))),
    sample((4, 3), key=(slice(1, 1), 0)),
    sample((), key=()),
    sample((3,), key=(np.array([], dtype=np.intp),)),
)

_INDICES = (int, np.integer, np.bool_, type(None), type(...))
_PLACES, _TRUTHS = np.dtype(np.intp), np.dtype(np.bool_)


class UnknownIndexError(DTypeError):
    """Raised for an index whose value is known only at run time."""


class CapturedIndexError(UnknownIndexError):
    """Raised for a position in a Variable that a graph captures: each run reads its value anew."""


def _refuse_captured_position(key: Any) -> None:
    """Raise CapturedIndexError for an integer without axes in a Variable that a graph captures."""
    here = store()
    if not here.traces or here.outer is not None or here.is_own(key):
        return
    if not key.shape and key.dtype.kind in "iu":
        raise CapturedIndexError(
            f"getitem: the index {format_value(key)} is a captured Variable, whose value each run "
            "reads anew; use ops.take or ops.dynamic_slice"
        )


def known_positions(key: Any) -> Any:
    """Return a key with the values of its Variables, which the run depends on from now on."""
    if isinstance(key, (tuple, list)):
        parts = map(known_positions, key)
        return tuple(parts) if isinstance(key, tuple) else list(parts)
    return numbers_of("an index", key) if isinstance(key, Value) else key


def normalize_key(key: Any) -> Any:
    """Replace constant Variables in a key by arrays; raise for anything that cannot index."""
    if type(key) is np.ndarray and (key.dtype is _PLACES or key.dtype is _TRUTHS):
        return key.copy()  # the case below, in a third of the time
    if isinstance(key, tuple):
        return tuple(normalize_key(part) for part in key)
    if isinstance(key, list):
        parts = [normalize_key(part) for part in key]
        parts = [host_array(part) if type(part) in ARRAYS else part for part in parts]
        return np.asarray(parts, dtype=None if key else np.intp)
    if isinstance(key, Symbol):
        instead = "ops.take or ops.dynamic_slice"
        if key.dtype.kind == "b":
            instead = "ops.where, as the shape of the result would depend on it"
        raise UnknownIndexError(
            f"getitem: the index {format_value(key)} has no value {key.graph.phase}; use {instead}"
        )
    if isinstance(key, Value):
        _refuse_captured_position(key)
        key = normalize_key(numbers_of("an index", key))
    if isinstance(key, slice):
        return slice(_slice_bound(key.start), _slice_bound(key.stop), _slice_bound(key.step))
    if isinstance(key, _INDICES):
        return key
    if hasattr(type(key), "__index__") and not is_array_like(key):
        return operator.index(key)
    array = as_array("getitem", "the index", key)
    if not (array.size or isinstance(key, ARRAY_LIKE)):
        return array.astype(np.intp)  # an empty list becomes floats in NumPy: v[range(0)]
    if array.dtype.kind not in "biu":
        raise DTypeError(
            f"getitem: an index array has dtype {array.dtype}; use integers or booleans"
        )
    # A tape keeps the key, and its owner may write to the array later: copy it.
    return own_copy(array)


def _slice_bound(bound: Any) -> Any:
    """Return a bound of a slice as an int: an array could be written to later."""
    owned = hasattr(type(bound), "__index__") and not isinstance(bound, (int, Traced))
    return operator.index(bound) if owned else bound


def _prepare_key(key: Any, *rest: Any) -> tuple[Any, ...]:
    return (normalize_key(key), *rest)


def canonical_key(shape: Shape, key: Any) -> Any:
    """Return the canonical form of a key into an array of ``shape``, for graphs.

    Integers and slice bounds count from the front; ``...`` and trailing full slices are dropped,
    and so is the tuple around a single index.
    """
    parts = key if isinstance(key, tuple) else (key,)
    spelled: list[Any] = []
    read = 0
    for part in parts:
        if part is Ellipsis:
            others = len(shape) - sum(map(_axes_consumed, parts))
            # Between arrays it separates them, though it stands for no axis.
            spelled += [slice(None)] * others or [part] * any(map(_is_array_index, parts))
            read += others
            continue
        width = _axes_consumed(part)
        spelled.append(_canonical_index(part, shape[read]) if width == 1 else part)
        read += width
    if spelled and spelled[-1] is Ellipsis:
        spelled.pop()
    kept = any(part is Ellipsis for part in spelled)  # Python's encoding of None as an end
    while spelled and not kept and _is_full_slice(spelled[-1]):
        spelled.pop()
    return spelled[0] if len(spelled) == 1 else tuple(spelled)


def _is_array_index(part: Any) -> bool:
    return type(part) in ARRAYS or isinstance(part, (bool, np.bool_))


def _is_full_slice(part: Any) -> bool:
    return isinstance(part, slice) and part == slice(None)


def _axes_consumed(part: Any) -> int:
    """Return how many axes of an array one index consumes."""
    if part is None or part is Ellipsis or isinstance(part, (bool, np.bool_)):
        return 0
    return part.ndim if isinstance(part, ARRAYS) and part.dtype.kind == "b" else 1


def _check_range_on_device(key: Any, shape: Shape) -> None:
    parts = key if isinstance(key, tuple) else (key,)
    consumed = [_axes_consumed(part) for part in parts]
    axis = 0
    for part, width in zip(parts, consumed, strict=True):
        if isinstance(part, ARRAYS) and part.dtype.kind in "iu" and axis < len(shape):
            check_bounds(part, axis, shape[axis])
        axis += len(shape) - sum(consumed) if part is Ellipsis else width


@device_version(_check_range_on_device)
def check_range(key: Any, shape: Shape) -> None:
    """Raise IndexError for an index out of range, where it would wrap; NumPy raises by itself."""


def _canonical_index(part: Any, n: int) -> Any:
    """Return the canonical form of an index into one axis of length ``n``."""
    if isinstance(part, slice):
        places = range(n)[part]
        step = places.step if len(places) > 1 else 1
        start, last = (places[0], places[-1]) if places else (0, -1)
        if (start, last, step) == (0, n - 1, 1):
            return slice(None)
        return slice(start, last + 1 if step > 0 else last - 1 if last else None, step)
    if isinstance(part, np.ndarray):
        if part.dtype.kind == "b":
            return part
        found = part.astype(np.intp)
        return np.where(found < 0, found + n, found)
    return operator.index(part) % n


@on_host
def _getitem_spec(spec: Spec, key: Any, who: str) -> Spec:
    """Return the spec of ``x[key]``, by indexing a broadcast view of one element."""
    stand_in = np.broadcast_to(np.zeros((), spec.dtype), spec.shape)
    try:
        return Spec(np.shape(stand_in[_host_key(key)]), spec.dtype)
    except IndexError as error:
        raise OutOfRangeError(
            f"{who}: {error}; x has shape {spec.shape}, the index is {format_value(key)}"
        ) from None


def _host_key(key: Any) -> Any:
    """Return a key with its arrays on the host."""
    if isinstance(key, tuple):
        return tuple(map(_host_key, key))
    return host_array(key) if isinstance(key, ARRAYS) else key


def _lower_getitem(build: Any, x: Any, key: Any) -> Any:
    if _is_basic_key(key):
        return build.slice(x, key)
    if _selects_rows(key) and x.ndim:
        _, places, full = index_lowering.take_indices(build, x.shape, key, 0, "raise")
        return broadcast_to(build.gather(x, places), full)
    places = index_lowering.flat_indices(x.shape, key)
    found = build.gather(reshape(x, (x.size,)), [build.normalize_index(places, x.size)])
    return broadcast_to(found, places.shape)


def _axis_of_only_array(key: Any) -> int | None:
    """Return the axis of the integer array in a key without other indices; None if there are."""
    parts = key if isinstance(key, tuple) else (key,)
    alone = [not _is_array_index(part) and _is_full_slice(part) for part in parts]
    if alone.count(False) != 1 or not _selects_rows(parts[k := alone.index(False)]):
        return None
    return k


def _has_adjacent_arrays(key: Any) -> bool:
    """Return whether NumPy puts the axes of the arrays of a key where they are, not in front."""
    parts = key if isinstance(key, tuple) else (key,)
    at = [k for k, part in enumerate(parts) if not isinstance(part, slice | type(None) | type(...))]
    return at == list(range(at[0], at[-1] + 1))


def _key_behind_batch(key: Any) -> tuple[Any, ...]:
    return (slice(None), *(key if isinstance(key, tuple) else (key,)))


def _key_before_batch(key: Any) -> tuple[Any, ...]:
    parts = key if isinstance(key, tuple) else (key,)
    return (*parts, slice(None)) if any(part is Ellipsis for part in parts) else parts


def _getitem_batch(batch: Batch, x: Any, key: Any) -> Any:
    if _is_basic_key(key):
        return general(_GETITEM, [x], (_key_behind_batch(key),))
    axis = _axis_of_only_array(key)
    if axis is not None:
        rows = key[axis] if isinstance(key, tuple) else key
        return take(x, place_beside(rows, x), axis + 1)
    _getitem_spec(*example_specs(batch, [x], key, "getitem"))
    if _has_adjacent_arrays(key):
        return general(_GETITEM, [x], (_key_behind_batch(key),))
    return moveaxis(getitem(moveaxis(x, 0, -1), _key_before_batch(key)), -1, 0)


def _selects_rows(key: Any) -> bool:
    return type(key) in ARRAYS and key.dtype.kind in "iu"


@op(
    primitive="gather",
    lowering=_lower_getitem,
    linear=True,
    prepare=_prepare_key,
    canonical=lambda x, key: (canonical_key(x.shape, key),),
    infer=lambda x, key: _getitem_spec(x, key, "getitem"),
    vjp={"x": lambda g, x_spec, key: _add_at_read_key(g, key, x_spec)},
    vmap=_getitem_batch,
    samples=_KEYS,
)
def getitem(x: Any, /, key: Any) -> Any:
    """Elements ``x[key]`` for any key that NumPy accepts, as a new array."""
    x = x if hasattr(x, "dtype") else np.asarray(x)
    if type(key) is np.ndarray and key.dtype.kind == "i" and x.ndim:
        return copy_if_shared(x.take(key, 0))  # full rows, in seven eighths of the time
    check_range(key, x.shape)
    return copy_if_shared(x[key])


_GETITEM: Row = getitem.row  # type: ignore[attr-defined]


def _is_basic_key(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        part is None
        or part is Ellipsis
        # A bool is an int to Python, and a mask to NumPy.
        or (isinstance(part, (slice, int, np.integer)) and not isinstance(part, bool))
        for part in parts
    )


def _lower_add_at(build: Any, x: Any, key: Any, spec: Spec) -> Any:
    if _selects_rows(key) and spec.ndim:
        shape, places, full = index_lowering.take_indices(build, spec.shape, key, 0, "raise")
        rows = math.prod(shape[1:]) > 1
        return index_lowering.scatter_add(build, broadcast_to(x, full), shape, places, rows)
    if not _is_basic_key(key):
        numbers = index_lowering.flat_indices(spec.shape, key)
        places = [build.normalize_index(numbers, spec.size)]
        out = index_lowering.scatter_add(
            build, broadcast_to(x, numbers.shape), (spec.size,), places
        )
        return reshape(out, spec.shape)
    part = build.broadcast(x, _getitem_spec(spec, key, "add_at").shape)
    return build.join([(part, key)], spec.shape, x.dtype)


def _add_at_batch(batch: Batch, x: Any, key: Any, spec: Spec) -> Any:
    if _is_basic_key(key):
        parts = key if isinstance(key, tuple) else (key,)
        given = [part for part in parts if part is not Ellipsis]
        slices = sum([isinstance(part, slice) for part in given])
        new = sum([part is None for part in given])
        picked = spec.ndim - (len(given) - slices - new) + new
        wide = Spec((batch.size, *spec.shape), spec.dtype)
        return general(_ADD_AT, [align(x, True, picked)], (_key_behind_batch(key), wide))
    x = align(x, True, _getitem_spec(spec, key, "add_at").ndim)
    axis = _axis_of_only_array(key)
    if axis is not None:
        rows = key[axis] if isinstance(key, tuple) else key
        wide = Spec((batch.size, *spec.shape), spec.dtype)
        return add_taken(x, place_beside(rows, x), axis=axis + 1, spec=wide)
    if _has_adjacent_arrays(key):
        wide = Spec((batch.size, *spec.shape), spec.dtype)
        return general(_ADD_AT, [x], (_key_behind_batch(key), wide))
    wide = Spec((*spec.shape, batch.size), spec.dtype)
    return moveaxis(add_at(moveaxis(x, 0, -1), _key_before_batch(key), wide), -1, 0)


@op(
    primitive="scatter",
    lowering=_lower_add_at,
    linear=True,
    kernels=[
        Kernel(
            "numbers and rows added one by one",
            lambda x, key, spec: _add_at_kernel(x, key, spec, loops=True),
            when=has_float_dtype,
        )
    ],
    prepare=_prepare_key,
    canonical=lambda x, key, spec: (canonical_key(spec.shape, key), spec),
    infer=spec_option_rule,
    vjp={"x": lambda g, key: getitem(g, key)},
    vmap=_add_at_batch,
    samples=[
        sample((3,), key=1, spec=Spec((4, 3), np.dtype(np.float64))),
        sample((4, 3), key=np.array([0, 2, 2, -1]), spec=Spec((4, 3), np.dtype(np.float64))),
    ],
)
def add_at(x: Any, /, key: Any, spec: Spec) -> Any:
    """Scatter-add ``x`` into zeros at ``key``: the transpose of ``getitem``."""
    return _add_at_kernel(x, key, spec)


_ADD_AT: Row = add_at.row  # type: ignore[attr-defined]


def _add_at_read_key(g: Any, key: Any, spec: Spec) -> Any:
    """Call ``add_at`` with a key that was normalized: a second time would copy its arrays."""
    if type(g) is np.ndarray:
        return _ADD_AT.kernel(g, key, spec)
    return add_at(g, key, spec)


def _add_at_kernel(x: Any, key: Any, spec: Spec, loops: bool = False) -> Any:
    x = np.asarray(x)
    if _selects_rows(key):
        return add_taken_kernel(x, key, 0, "raise", spec, loops)
    if _has_unique_indices(key):
        out = np.zeros(spec.shape, x.dtype)
        out[key] = x
        return out
    if _is_integer_array_key(key, spec.ndim):
        return scatter_add_at_key(x, key, spec, loops)
    # Otherwise NumPy says which elements the key selects.
    check_range(key, spec.shape)
    places = np.arange(spec.size).reshape(spec.shape)[key]
    return add_taken_kernel(np.broadcast_to(x, places.shape), places, None, "raise", spec, loops)


def _has_unique_indices(key: Any) -> bool:
    """Return whether no element can be selected twice: slices, and at most one mask."""
    if _is_basic_key(key):
        return True
    parts = key if isinstance(key, tuple) else (key,)
    rest = [part for part in parts if not _is_basic_key(part)]
    return len(rest) == 1 and type(rest[0]) in ARRAYS and rest[0].dtype.kind == "b"


def _is_integer_array_key(key: Any, ndim: int) -> bool:
    """Return whether a key has an integer or an array of integers for each axis."""
    return (
        type(key) is tuple
        and len(key) == ndim
        and all(
            isinstance(part, (int, np.integer)) and part is not True and part is not False
            if type(part) not in ARRAYS
            else part.dtype.kind in "iu"
            for part in key
        )
    )


def _setitem_spec(x: Spec, v: Any, key: Any) -> Spec:
    part = _getitem_spec(x, key, "setitem")
    shape = getattr(v, "shape", ())
    try:
        # As in NumPy, leading axes of length 1 of the value are dropped.
        fits = np.broadcast_shapes(shape, part.shape) == part.shape or (
            set(shape[: len(shape) - part.ndim]) <= {1}
            and np.broadcast_shapes(shape[len(shape) - part.ndim :], part.shape) == part.shape
        )
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"setitem: v {shape} does not broadcast to x[key] {part.shape}")
    return x


def _value_cotangent(g: Any, x_spec: Spec, v_spec: Spec, key: Any) -> Any:
    """Return the cotangent of the value: of repeated indices only the last one was written."""
    part = getitem(g, key)
    if not _is_basic_key(key):
        order = np.arange(part.size).reshape(part.shape)
        last = np.zeros(x_spec.shape, np.intp)
        last[key] = order
        if not (last[key] == order).all():
            part = keep_where(part, last[key] == order)
    # Writing dropped leading axes of length 1 of the value.
    dropped = v_spec.ndim - part.ndim
    return reshape(part, (1,) * dropped + part.shape) if dropped > 0 else part


def _lower_setitem(build: Any, x: Any, v: Any, key: Any) -> Any:
    """Lower to slices around a box and the value in it; else to a scatter.

    A scatter may be written over a state, of which the slices around a box would be copied.
    """
    if type(v) not in NUMBERS and not can_cast(v.dtype, x.dtype):
        return NotImplemented
    picked = _getitem_spec(Spec(x.shape, x.dtype), key, "setitem").shape
    found = _surrounding_slices(x.shape, key) if _is_basic_key(key) and x.ndim else None
    value = build.cast(v, x.dtype)
    while value.ndim > len(picked):  # as in NumPy, leading axes of length 1 are dropped
        value = build.reshape(value, value.shape[1:])
    if found is None:
        numbers = index_lowering.flat_indices(x.shape, key)
        value, line = build.broadcast(value, numbers.shape), reshape(x, (x.size,))
        places = [build.normalize_index(numbers, x.size)]
        return reshape(build.scatter("set", line, value, places), x.shape)
    boxes, inside = found
    if build.writes_state and 2 * math.prod(picked) <= x.size:
        sizes = tuple(box.stop - box.start for box in inside)
        places = [add(build.index(sizes, k), box.start) for k, box in enumerate(inside)]
        value = build.reshape(build.broadcast(value, picked), sizes)
        return build.scatter("set", x, value, places)
    parts = [(build.slice(x, box), box) for box in boxes]
    return build.join([*parts, (build.broadcast(value, picked), key)], x.shape, x.dtype)


def _surrounding_slices(
    shape: tuple[int, ...], key: Any
) -> tuple[list[tuple[Any, ...]], tuple[slice, ...]] | None:
    """Return slices that make up the complement of a box, and its own; None if the key is none."""
    parts = list(key) if isinstance(key, tuple) else [key]
    parts = [part for part in parts if part is not None]
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    dots = parts.index(Ellipsis)
    whole = [slice(None)] * (len(shape) - len(parts) + 1)
    boxes: list[tuple[Any, ...]] = []
    inside: list[slice] = []
    for n, part in zip(shape, [*parts[:dots], *whole, *parts[dots + 1 :]], strict=True):
        places = range(n)[part] if isinstance(part, slice) else range(n)[part : part + 1 or None]
        if len(places) > 1 and places.step != 1:
            return None
        start, stop = (places[0], places[-1] + 1) if places else (0, 0)
        rest = [box for box in (slice(0, start), slice(stop, n)) if box.start < box.stop]
        boxes += [(*inside, box) for box in rest]
        inside.append(slice(start, stop))
    return boxes, tuple(inside)


def _setitem_batch(batch: Batch, x: Any, v: Any, key: Any) -> Any:
    if type(v) not in NUMBERS:
        spec, value = example_specs(batch, [x, v])
        _setitem_spec(spec, value, key)
        picked = _getitem_spec(spec, key, "setitem").ndim
        dropped = max(value.ndim - picked, 0)
        v = reshape(v, (*v.shape[: batch.mapped[1]], *value.shape[dropped:])) if dropped else v
        v = align(v, batch.mapped[1], picked)
    x = spread(batch, 0, x)
    if _is_basic_key(key) or _has_adjacent_arrays(key):
        return general(_SETITEM, [x, v], (_key_behind_batch(key),))
    _getitem_spec(Spec(tuple(x.shape[1:]), x.dtype), key, "setitem")
    if batch.mapped[1]:
        v = moveaxis(v, 0, -1)
    elif type(v) not in NUMBERS:
        v = reshape(v, (*v.shape, 1))
    return moveaxis(setitem(moveaxis(x, 0, -1), v, _key_before_batch(key)), -1, 0)


@op(
    primitive="scatter",
    lowering=_lower_setitem,
    rearranges=True,
    prepare=_prepare_key,
    canonical=lambda x, v, key: (canonical_key(x.shape, key),),
    infer=_setitem_spec,
    vjp={
        "x": lambda g, key: setitem(g, 0, key),
        "v": lambda g, x_spec, v_spec, key: _value_cotangent(g, x_spec, v_spec, key),
    },
    jvp={
        "x": lambda t, key: setitem(t, 0, key),
        "v": lambda t, x_spec, key: setitem(zeros_of_spec(x_spec, t), t, key),
    },
    vmap=_setitem_batch,
    kinks="where the key names a place twice, the last value has the gradient",
    samples=[
        sample((4, 3), (3,), key=1),
        sample((4, 3), (1, 1, 3), key=1),
        sample((4, 3), (), key=(slice(None), 0)),
        sample((4, 3), (2, 3), key=np.array([0, 2])),
        sample((2, 3), (4,), key=_MASK),
        sample((4, 3), (3, 3), key=np.array([0, 2, 0])),
    ],
    rejects=[
        reject((4, 3), (2,), key=1, match="does not broadcast"),
        reject(np.arange(3), (), key=1, error=DTypeError, match="without loss"),
    ],
)
def setitem(x: Any, v: Any, /, key: Any) -> Any:
    """Copy of ``x`` in which ``x[key]`` is ``v``."""
    out = np.array(x)
    if not can_cast(np.result_type(v), out.dtype) and type(v) not in NUMBERS:
        raise DTypeError(
            f"setitem: a value of {np.result_type(v)} cannot be stored in x of {out.dtype} "
            "without loss"
        )
    check_range(key, out.shape)
    out[key] = v
    return out


_SETITEM: Row = setitem.row  # type: ignore[attr-defined]

publish(globals())
