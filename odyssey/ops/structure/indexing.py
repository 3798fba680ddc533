"""Reading and writing parts of an array, functionally: results never alias their operands.

A key is an option of its op, fixed when a graph is traced; ``take`` has its indices as an operand.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.devices.arrays import ARRAY_LIKE, as_array, is_array_like
from odyssey.devices.ownership import copy_if_shared
from odyssey.errors import DTypeError, OutOfRangeError, ShapeError
from odyssey.kernels.scatter import of_floats
from odyssey.ops.elementwise.choice import keep_where
from odyssey.ops.structure import index_lowering
from odyssey.ops.structure.gathering import add_at_key, add_where_taken
from odyssey.ops.structure.scatter import zeros
from odyssey.ops.structure.shape import broadcast_to, reshape
from odyssey.spec import Shape, Spec
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.row import Row
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import spec_option_rule
from odyssey.table.store import numbers_of
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


class NoValueError(DTypeError):
    """An index is known to a run alone."""


def plain_key(key: Any) -> Any:
    """Replace the constant Variables in an index by their arrays; refuse what cannot index."""
    if type(key) is np.ndarray and (key.dtype is _PLACES or key.dtype is _TRUTHS):
        return key.copy()  # as below, in a third of the time
    if isinstance(key, tuple):
        return tuple(plain_key(part) for part in key)
    if isinstance(key, list):
        return np.asarray([plain_key(part) for part in key], dtype=None if key else np.intp)
    if isinstance(key, Symbol):
        raise NoValueError(f"getitem: the index {shown(key)} has no value while a graph is traced")
    key = plain_key(numbers_of("an index", key)) if isinstance(key, Value) else key
    if isinstance(key, slice):
        return slice(_bound(key.start), _bound(key.stop), _bound(key.step))
    if isinstance(key, _INDICES):
        return key
    if hasattr(type(key), "__index__") and not is_array_like(key):
        return operator.index(key)
    array = as_array("getitem", "the index", key)
    if not (array.size or isinstance(key, ARRAY_LIKE)):
        return array.astype(np.intp)  # NumPy makes floats of nothing: v[range(0)]
    if array.dtype.kind not in "biu":
        raise DTypeError(
            f"getitem: an index array has dtype {array.dtype}; use integers or booleans"
        )
    # A tape keeps the index; its owner, who may be another library, may write to it meanwhile.
    return array.copy()


def _bound(bound: Any) -> Any:
    """A bound of a slice as the int that it is: its owner may write to an array."""
    owned = hasattr(type(bound), "__index__") and not isinstance(bound, (int, Traced))
    return operator.index(bound) if owned else bound


def _prepare(key: Any, *rest: Any) -> tuple[Any, ...]:
    return (plain_key(key), *rest)


def spelled_key(shape: Shape, key: Any) -> Any:
    """The one spelling of an index into an array of ``shape``, for graphs.

    Whole numbers and bounds of slices count from the front, ``...`` and what it leaves out behind
    the rest is not written, nor the tuple around a single part.
    """
    parts = key if isinstance(key, tuple) else (key,)
    spelled: list[Any] = []
    read = 0
    for part in parts:
        if part is Ellipsis:
            others = len(shape) - sum(map(_axes_read, parts))
            # Between arrays it tells them apart, though it stands for no axis.
            spelled += [slice(None)] * others or [part] * any(map(_is_array, parts))
            read += others
            continue
        width = _axes_read(part)
        spelled.append(_spelled_part(part, shape[read]) if width == 1 else part)
        read += width
    if spelled and spelled[-1] is Ellipsis:
        spelled.pop()
    kept = any(part is Ellipsis for part in spelled)  # which would take the place of the last
    while spelled and not kept and _reads_all(spelled[-1]):
        spelled.pop()
    return spelled[0] if len(spelled) == 1 else tuple(spelled)


def _is_array(part: Any) -> bool:
    return isinstance(part, (np.ndarray, bool, np.bool_))


def _reads_all(part: Any) -> bool:
    return isinstance(part, slice) and part == slice(None)


def _axes_read(part: Any) -> int:
    """How many axes of an array a part of an index reads."""
    if part is None or part is Ellipsis or isinstance(part, (bool, np.bool_)):
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype.kind == "b" else 1


def _spelled_part(part: Any, n: int) -> Any:
    """A part that reads one axis of length ``n``."""
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


def _picked(spec: Spec, key: Any, who: str) -> Spec:
    """The spec of ``x[key]``, found on a stand-in that repeats one element and holds no data."""
    stand_in = np.broadcast_to(np.zeros((), spec.dtype), spec.shape)
    try:
        return Spec(np.shape(stand_in[key]), spec.dtype)
    except IndexError as error:
        raise OutOfRangeError(
            f"{who}: {error}; x has shape {spec.shape}, the index is {shown(key)}"
        ) from None


def _got_natively(build: Any, x: Any, key: Any) -> Any:
    if _only_slices(key):
        return build.part(x, key)
    if _is_rows(key) and x.ndim:
        _, places, full = index_lowering.taken(build, x.shape, key, 0, "raise")
        return broadcast_to(build.gather(x, places), full)
    places = index_lowering.flat(x.shape, key)
    found = build.gather(reshape(x, (x.size,)), [build.place(places, x.size)])
    return broadcast_to(found, places.shape)


def _is_rows(key: Any) -> bool:
    return type(key) is np.ndarray and key.dtype.kind in "iu"


@op(
    primitive="gather",
    lowering=_got_natively,
    linear=True,
    prepare=_prepare,
    canonical=lambda x, key: (spelled_key(x.shape, key),),
    infer=lambda x, key: _picked(x, key, "getitem"),
    vjp={"x": lambda g, x_spec, key: _added_back(g, key, x_spec)},
    samples=_KEYS,
)
def getitem(x: Any, /, key: Any) -> Any:
    """The part ``x[key]`` for any index that NumPy accepts, as a new array."""
    x = x if hasattr(x, "dtype") else np.asarray(x)
    if type(key) is np.ndarray and key.dtype.kind == "i" and x.ndim:
        return copy_if_shared(x.take(key, 0))  # whole rows, in seven eighths of the time
    return copy_if_shared(x[key])


def _only_slices(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        part is None
        or part is Ellipsis
        # A truth is an int to Python, and a mask to NumPy.
        or (isinstance(part, (slice, int, np.integer)) and not isinstance(part, bool))
        for part in parts
    )


def _added_natively(build: Any, x: Any, key: Any, spec: Spec) -> Any:
    if _is_rows(key) and spec.ndim:
        shape, places, full = index_lowering.taken(build, spec.shape, key, 0, "raise")
        rows = math.prod(shape[1:]) > 1
        return index_lowering.added(build, broadcast_to(x, full), shape, places, rows)
    if not _only_slices(key):
        numbers = index_lowering.flat(spec.shape, key)
        places = [build.place(numbers, spec.size)]
        out = index_lowering.added(build, broadcast_to(x, numbers.shape), (spec.size,), places)
        return reshape(out, spec.shape)
    part = build.broadcast(x, _picked(spec, key, "add_at").shape)
    return build.join([(part, key)], spec.shape, x.dtype)


@op(
    primitive="scatter",
    lowering=_added_natively,
    linear=True,
    kernels=[
        Kernel(
            "numbers and rows added one by one",
            lambda x, key, spec: _added_at(x, key, spec, loops=True),
            when=of_floats,
        )
    ],
    prepare=_prepare,
    canonical=lambda x, key, spec: (spelled_key(spec.shape, key), spec),
    infer=spec_option_rule,
    vjp={"x": lambda g, key: getitem(g, key)},
    samples=[
        sample((3,), key=1, spec=Spec((4, 3), np.dtype(np.float64))),
        sample((4, 3), key=np.array([0, 2, 2, -1]), spec=Spec((4, 3), np.dtype(np.float64))),
    ],
)
def add_at(x: Any, /, key: Any, spec: Spec) -> Any:
    """Zeros of the shape of ``spec`` with ``x`` added at ``key``; repeated places add up."""
    return _added_at(x, key, spec)


_ADD_AT: Row = add_at.row  # type: ignore[attr-defined]


def _added_back(g: Any, key: Any, spec: Spec) -> Any:
    """``add_at`` at a key that ``getitem`` has read: to read it again would copy its arrays."""
    if type(g) is np.ndarray:
        return _ADD_AT.kernel(g, key, spec)
    return add_at(g, key, spec)


def _added_at(x: Any, key: Any, spec: Spec, loops: bool = False) -> Any:
    x = np.asarray(x)
    if type(key) is np.ndarray and key.dtype.kind in "iu":
        return add_where_taken(x, key, 0, "raise", spec, loops)
    if _names_places_once(key):
        out = np.zeros(spec.shape, x.dtype)
        out[key] = x
        return out
    if _is_places(key, spec.ndim):
        return add_at_key(x, key, spec, loops)
    # For all else NumPy tells which places are named.
    places = np.arange(spec.size).reshape(spec.shape)[key]
    return add_where_taken(np.broadcast_to(x, places.shape), places, None, "raise", spec, loops)


def _names_places_once(key: Any) -> bool:
    """Whether no place can be named twice: by slices, and by one mask beside them."""
    if _only_slices(key):
        return True
    parts = key if isinstance(key, tuple) else (key,)
    rest = [part for part in parts if not _only_slices(part)]
    return len(rest) == 1 and type(rest[0]) is np.ndarray and rest[0].dtype.kind == "b"


def _is_places(key: Any, ndim: int) -> bool:
    """Whether a key has an array of integers, or an integer, for each axis."""
    return (
        type(key) is tuple
        and len(key) == ndim
        and all(
            isinstance(part, (int, np.integer)) and part is not True and part is not False
            if type(part) is not np.ndarray
            else part.dtype.kind in "iu"
            for part in key
        )
    )


def _setitem_spec(x: Spec, v: Any, key: Any) -> Spec:
    part = _picked(x, key, "setitem")
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


def _written(g: Any, x_spec: Spec, v_spec: Spec, key: Any) -> Any:
    """What of ``g`` reaches the value: where a key names a place twice, the last one wrote it."""
    part = getitem(g, key)
    if not _only_slices(key):
        order = np.arange(part.size).reshape(part.shape)
        last = np.zeros(x_spec.shape, np.intp)
        last[key] = order
        if not (last[key] == order).all():
            part = keep_where(part, last[key] == order)
    # Writing dropped leading axes of length 1 of the value.
    dropped = v_spec.ndim - part.ndim
    return reshape(part, (1,) * dropped + part.shape) if dropped > 0 else part


def _written_natively(build: Any, x: Any, v: Any, key: Any) -> Any:
    """The parts of ``x`` around a box, and the value in it; else one element after another."""
    if type(v) not in NUMBERS and not np.can_cast(v.dtype, x.dtype, "same_kind"):
        return NotImplemented
    picked = _picked(Spec(x.shape, x.dtype), key, "setitem").shape
    boxes = _around(x.shape, key) if _only_slices(key) and x.ndim else None
    value = build.cast(v, x.dtype)
    while value.ndim > len(picked):  # as in NumPy, leading axes of length 1 are dropped
        value = build.reshape(value, value.shape[1:])
    if boxes is None:
        numbers = index_lowering.flat(x.shape, key)
        value, line = build.broadcast(value, numbers.shape), reshape(x, (x.size,))
        places = [build.place(numbers, x.size)]
        return reshape(build.scatter("set", line, value, places), x.shape)
    parts = [(build.part(x, box), box) for box in boxes]
    return build.join([*parts, (build.broadcast(value, picked), key)], x.shape, x.dtype)


def _around(shape: tuple[int, ...], key: Any) -> list[tuple[Any, ...]] | None:
    """Boxes that make up what a key of slices leaves out; None where that is no box."""
    parts = list(key) if isinstance(key, tuple) else [key]
    parts = [part for part in parts if part is not None]
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    dots = parts.index(Ellipsis)
    whole = [slice(None)] * (len(shape) - len(parts) + 1)
    boxes: list[tuple[Any, ...]] = []
    inside: list[Any] = []
    for n, part in zip(shape, [*parts[:dots], *whole, *parts[dots + 1 :]], strict=True):
        places = range(n)[part] if isinstance(part, slice) else range(n)[part : part + 1 or None]
        if len(places) > 1 and places.step != 1:
            return None
        start, stop = (places[0], places[-1] + 1) if places else (0, 0)
        rest = [box for box in (slice(0, start), slice(stop, n)) if box.start < box.stop]
        boxes += [(*inside, box) for box in rest]
        inside.append(slice(start, stop))
    return boxes


@op(
    primitive="scatter",
    lowering=_written_natively,
    rearranges=True,
    prepare=_prepare,
    canonical=lambda x, v, key: (spelled_key(x.shape, key),),
    infer=_setitem_spec,
    vjp={
        "x": lambda g, key: setitem(g, 0, key),
        "v": lambda g, x_spec, v_spec, key: _written(g, x_spec, v_spec, key),
    },
    jvp={
        "x": lambda t, key: setitem(t, 0, key),
        "v": lambda t, x_spec, key: setitem(zeros(x_spec, t), t, key),
    },
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
        reject(np.arange(3), (), key=1, error=DTypeError, match="would lose"),
    ],
)
def setitem(x: Any, v: Any, /, key: Any) -> Any:
    """A copy of ``x`` in which ``x[key]`` is ``v``."""
    out = np.array(x)
    if not np.can_cast(np.result_type(v), out.dtype, "same_kind") and type(v) not in NUMBERS:
        raise DTypeError(f"setitem: a value of {np.result_type(v)} would lose in x of {out.dtype}")
    out[key] = v
    return out


publish(globals())
