"""Reading and writing parts of an array, functionally: results never alias their operands.

The key of ``getitem`` and ``setitem`` is an option, fixed when a graph is traced; the indices of
``take`` and ``take_along_axis`` are operands, which a traced graph reads anew at each run.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, OutOfRangeError, ShapeError
from odyssey.ops.arithmetic import mul
from odyssey.ops.choice import equal
from odyssey.ops.samples import reject, sample
from odyssey.ops.shape import astype, expand_dims, normalize_axes, reshape
from odyssey.ops.table import composite, op, publish
from odyssey.ops.values import NUMBERS, Symbol, Value
from odyssey.spec import Shape, Spec

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


def plain_key(key: Any) -> Any:
    """Replace the constant Variables in an index by their arrays; refuse what cannot index."""
    if isinstance(key, tuple):
        return tuple(plain_key(part) for part in key)
    if isinstance(key, list):
        return np.asarray([plain_key(part) for part in key], dtype=None if key else np.intp)
    if isinstance(key, Symbol):
        raise DTypeError(f"getitem: the index {key!r} has no value while a graph is traced")
    if isinstance(key, Value):
        key = plain_key(key._data)
    if isinstance(key, slice):
        bounds = (key.start, key.stop, key.step)
        # A Variable is an int here, and none must be kept.
        return slice(*[operator.index(b) if isinstance(b, Value) else b for b in bounds])
    if isinstance(key, np.ndarray):
        if key.dtype.kind not in "biu":
            raise DTypeError(
                f"getitem: an index array has dtype {key.dtype}; use integers or booleans"
            )
        # A tape keeps the index; its owner may write to it meanwhile.
        return key.copy()
    return key


def _prepare(key: Any, *rest: Any) -> tuple[Any, ...]:
    return (plain_key(key), *rest)


def _picked(spec: Spec, key: Any, who: str) -> Spec:
    """The spec of ``x[key]``, found on a stand-in that repeats one element and holds no data."""
    stand_in = np.broadcast_to(np.zeros((), spec.dtype), spec.shape)
    try:
        return Spec(np.shape(stand_in[key]), spec.dtype)
    except IndexError as error:
        raise OutOfRangeError(
            f"{who}: {error}; x has shape {spec.shape}, the index is {key!r}"
        ) from None


@op(
    linear=True,
    prepare=_prepare,
    infer=lambda x, key: _picked(x, key, "getitem"),
    vjp={"x": lambda g, x_spec, key: add_at(g, key, x_spec)},
    samples=_KEYS,
)
def getitem(x: Any, /, key: Any) -> Any:
    """The part ``x[key]`` for any index that NumPy accepts, as a new array."""
    part = x[key] if hasattr(x, "dtype") else np.asarray(x)[key]
    return part.copy() if isinstance(part, np.ndarray) and part.base is not None else part


def _only_slices(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        part is None or part is Ellipsis or isinstance(part, (slice, int, np.integer))
        for part in parts
    )


@op(
    linear=True,
    prepare=_prepare,
    infer=lambda x, key, spec: Spec(spec.shape, x.dtype),
    vjp={"x": lambda g, key: getitem(g, key)},
    samples=[
        sample((3,), key=1, spec=Spec((4, 3), np.dtype(np.float64))),
        sample((4, 3), key=np.array([0, 2, 2, -1]), spec=Spec((4, 3), np.dtype(np.float64))),
    ],
)
def add_at(x: Any, /, key: Any, spec: Spec) -> Any:
    """Zeros of the shape of ``spec`` with ``x`` added at ``key``; repeated places add up."""
    out = np.zeros(spec.shape, np.asarray(x).dtype)
    if _only_slices(key):
        out[key] = x
    else:
        np.add.at(out, key, x)
    return out


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
            part = mul(part, last[key] == order)
    # Writing dropped leading axes of length 1 of the value.
    dropped = v_spec.ndim - part.ndim
    return reshape(part, (1,) * dropped + part.shape) if dropped > 0 else part


@op(
    prepare=_prepare,
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


def zeros(spec: Spec, like: Any) -> Any:
    """Zeros of the shape of ``spec`` and the dtype of ``like``; a plain array."""
    return np.zeros(spec.shape, like.dtype)


# ------------------------------------------------------------------ indices as operands


def _taking(axis: Any, mode: str, *rest: Any) -> tuple[Any, ...]:
    if mode not in ("raise", "wrap", "clip"):
        raise ShapeError(f"take: mode is {mode!r}, not one of raise, wrap, clip")
    return (axis, mode, *rest)


def _taken_spec(x: Spec, indices: Any, axis: int | None, mode: str) -> Spec:
    _check_indices("take", indices)
    shape = getattr(indices, "shape", ())
    if axis is None:
        return Spec(shape, x.dtype)
    (k,) = normalize_axes("take", axis, x.ndim)
    return Spec((*x.shape[:k], *shape, *x.shape[k + 1 :]), x.dtype)


def _check_indices(who: str, indices: Any) -> None:
    dtype = getattr(indices, "dtype", np.result_type(indices))
    if dtype.kind not in "biu":
        raise DTypeError(f"{who}: the indices have dtype {dtype}; pass integers")


_SHUFFLED = np.array([[3, 0], [0, -1]])
_SPEC = Spec((4, 3), np.dtype(np.float64))


@op(
    numpy=[np.take],
    kernel=lambda x, indices, axis, mode: np.take(x, indices, axis, mode=mode),
    prepare=_taking,
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
        reject((4, 3), np.array([0]), mode="loop", match="not one of raise"),
    ],
)
def take(x: Any, indices: Any, /, axis: int | None = None, *, mode: str = "raise") -> Any:
    """The elements at integer ``indices`` along ``axis``, by default among all elements."""
    return np.take(x, indices, axis, mode=mode)


@op(
    prepare=_taking,
    infer=lambda x, indices, axis, mode, spec: Spec(spec.shape, x.dtype),
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
)
def add_taken(
    x: Any, indices: Any, /, *, axis: int | None = None, mode: str = "raise", spec: Spec
) -> Any:
    """Zeros of the shape of ``spec`` with ``x`` added where ``take`` reads; repeats add up."""
    out = np.zeros(spec.shape, np.asarray(x).dtype)
    k = 0 if axis is None else axis % out.ndim
    target = out.reshape(-1) if axis is None else out
    length = target.shape[k]
    if mode != "raise":
        indices = np.remainder(indices, length) if mode == "wrap" else np.clip(indices, 0, length - 1)
    np.add.at(target, (slice(None),) * k + (np.asarray(indices, np.intp),), x)
    return out


def _along(shape: Shape, indices: Any, axis: int | None) -> tuple[Any, ...]:
    """The key that reads ``indices`` along ``axis`` and stays in place on the other axes."""
    if axis is None:
        return (indices,)
    ndim = len(shape)
    key = [np.arange(n).reshape((-1,) + (1,) * (ndim - 1 - k)) for k, n in enumerate(shape)]
    key[axis % ndim] = np.asarray(indices, np.intp)
    return tuple(key)


def _along_spec(x: Spec, indices: Spec, axis: int | None) -> Spec:
    _check_indices("take_along_axis", indices)
    ndim = 1 if axis is None else x.ndim
    if len(indices.shape) != ndim:
        raise ShapeError(
            f"take_along_axis: indices {indices.shape} for x {x.shape}, axis={axis}; "
            f"they must have {ndim} axes too"
        )
    if axis is None:
        return Spec(indices.shape, x.dtype)
    (k,) = normalize_axes("take_along_axis", axis, ndim)
    others = (*x.shape[:k], 1, *x.shape[k + 1 :])
    try:
        return Spec(np.broadcast_shapes(others, indices.shape), x.dtype)
    except ValueError:
        raise ShapeError(
            f"take_along_axis: indices {indices.shape} do not broadcast to x {x.shape} on the "
            f"axes other than {axis}"
        ) from None


_LARGEST = np.array([[2, 0], [1, 1], [0, 0], [2, -1]])


@op(
    numpy=[np.take_along_axis],
    infer=_along_spec,
    vjp={
        "x": lambda g, indices, x_spec, axis: add_along_axis(g, indices, axis=axis, spec=x_spec)
    },
    jvp={"x": lambda t, indices, axis: take_along_axis(t, indices, axis)},
    samples=[
        sample((4, 3), _LARGEST, axis=1),
        sample((4, 3), np.array([[0, 3, 3]]), axis=0),
        sample((4, 3), np.array([[2, 2]]), axis=-1),
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


@op(
    infer=lambda x, indices, axis, spec: Spec(spec.shape, x.dtype),
    vjp={"x": lambda g, indices, axis: take_along_axis(g, indices, axis)},
    jvp={"x": lambda t, indices, axis, spec: add_along_axis(t, indices, axis=axis, spec=spec)},
    samples=[
        sample((4, 2), _LARGEST, axis=1, spec=_SPEC),
        sample((3,), np.array([5, 0, 5]), axis=None, spec=_SPEC),
    ],
)
def add_along_axis(x: Any, indices: Any, /, *, axis: int | None = -1, spec: Spec) -> Any:
    """Zeros of the shape of ``spec`` with ``x`` added where ``take_along_axis`` reads."""
    out = np.zeros(spec.shape, np.asarray(x).dtype)
    target = out.reshape(-1) if axis is None else out
    np.add.at(target, _along(out.shape, indices, axis), x)
    return out


@composite()
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
        DTypeError: for class numbers that are no integers.

    >>> one_hot(np.array([2, 0]), 3)
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    if not hasattr(indices, "dtype"):
        indices = np.asarray(indices)
    _check_indices("one_hot", indices)
    narrow = expand_dims(indices, axis, tape=tape)
    (k,) = normalize_axes("one_hot", axis, len(narrow.shape))
    classes = np.arange(num_classes).reshape((-1,) + (1,) * (len(narrow.shape) - 1 - k))
    return astype(equal(narrow, classes, tape=tape), dtype, tape=tape)


publish(globals())
