"""Reading and writing whole slices, and single elements, at indices that are operands.

Each write makes a new array, under the rules of ``placing``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import word
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, mul
from odyssey.ops.structure.gathering import add_taken, take
from odyssey.ops.structure.placing import (
    check_fit,
    check_kind,
    indices_of,
    operand,
    put_along_axis,
)
from odyssey.ops.structure.shape import astype, broadcast_to, reshape
from odyssey.spec import Spec
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import NUMBERS

# ------------------------------------------------------------------ one index for each slice


@composite(
    samples=[
        sample((4, 3), np.array([2, 0, 2]), axis=0),
        sample((2, 3), np.array([], int), axis=-1),
        sample((3,), np.array(1), axis=0),
    ],
    rejects=[reject((4, 3), np.array([[0]]), axis=0, match="on one axis")],
)
def index_select(x: Any, indices: Any, *, axis: int, tape: Any = None) -> Any:
    """The slices at ``indices`` along an axis, as ``torch.index_select``; ``take`` is the same.

    Args:
        x: Array.
        indices: Integers on one axis, or one.
        axis: Along which.
        tape: The tape to record on.

    Raises:
        ShapeError: for indices on more axes, or outside of ``axis``.

    >>> index_select(np.array([[1, 2], [3, 4]]), np.array([1, 1]), axis=0)
    array([[3, 4],
           [3, 4]])
    """
    indices = _line("index_select", indices, tape)
    return take(x, indices, axis, tape=tape)


def _line(who: str, indices: Any, tape: Any) -> Any:
    indices = indices_of(who, indices)
    if len(indices.shape) > 1:
        raise ShapeError(f"{who}: indices of shape {indices.shape}; pass them on one axis")
    return indices if indices.shape else reshape(indices, 1, tape=tape)


def _slices(who: str, x: Any, indices: Any, source: Any, axis: Any, tape: Any) -> Any:
    """The operands of an op that writes slices, and the axis from the front."""
    x, indices = operand(who, "x", x), _line(who, indices, tape)
    (k,) = normalize_axes(who, axis, len(x.shape))
    if type(source) not in NUMBERS:
        source = operand(who, "source", source)
    places = (*x.shape[:k], *indices.shape, *x.shape[k + 1 :])
    check_fit(who, "source", getattr(source, "shape", ()), places)
    return x, indices, source, k, places


_SLICES = (
    sample((4, 3), np.array([2, 0, 2]), (3, 3), axis=0),
    sample((2, 3), np.array([-1, 0]), (2, 2), axis=-1),
    sample((2, 3), np.array([], int), (2, 0), axis=1),
)
_NO_SLICES = (
    reject((4, 3), np.array([[0]]), (1, 3), axis=0, match="on one axis"),
    reject((4, 3), np.array([0, 1]), (3, 3), axis=0, match="must broadcast to theirs"),
    reject((4, 3), np.array([4]), (1, 3), axis=0, match="out of bounds"),
)


@composite(
    samples=[*_SLICES, sample((4, 3), np.array([1, 1]), (2, 3), axis=0, alpha=2)],
    rejects=[
        *_NO_SLICES,
        reject(np.arange(3), np.array([0]), (1,), axis=0, error=DTypeError, match="would lose"),
    ],
)
def index_add(
    x: Any, indices: Any, source: Any, *, axis: int, alpha: Any = 1, tape: Any = None
) -> Any:
    """``x`` plus the slices of ``source`` at ``indices`` along an axis, as ``torch.index_add``.

    Args:
        x: Array.
        indices: Integers on one axis, one for each slice of ``source``.
        source: Array, of the shape of ``x`` but on ``axis``, or what broadcasts to that.
        axis: Along which.
        alpha: What ``source`` is multiplied by.
        tape: The tape to record on.

    Returns:
        A new array of the shape and dtype of ``x``; repeated slices add up, in their order.

    Raises:
        ShapeError: where the shapes do not fit, or for an index that the axis does not have.
        DTypeError: for indices that are not integers.

    >>> index_add(np.zeros(3), np.array([2, 2, 0]), np.array([1.0, 2.0, 4.0]), axis=0)
    array([4., 0., 3.])
    """
    x, indices, source, k, places = _slices("index_add", x, indices, source, axis, tape)
    if not (type(alpha) in NUMBERS and alpha == 1):
        source = mul(source, alpha, tape=tape)
    if type(source) not in NUMBERS:
        check_kind("index_add", "source", np.empty(0, source.dtype), x.dtype)
    part = broadcast_to(astype(source, x.dtype, tape=tape), places, tape=tape)
    spec = Spec(x.shape, x.dtype)
    return add(x, add_taken(part, indices, axis=k, spec=spec, tape=tape), tape=tape)


@composite(samples=[*_SLICES, sample((4, 3), np.array([1]), (), axis=0)], rejects=_NO_SLICES)
def index_copy(x: Any, indices: Any, source: Any, *, axis: int, tape: Any = None) -> Any:
    """A copy of ``x`` with the slices of ``source`` at ``indices``, as ``torch.index_copy``.

    Args:
        x: Array.
        indices: Integers on one axis, one for each slice of ``source``.
        source: Array, of the shape of ``x`` but on ``axis``, or what broadcasts to that: a number,
            as ``torch.index_fill`` has it.
        axis: Along which.
        tape: The tape to record on.

    Returns:
        A new array of the shape and dtype of ``x``; where an index comes twice, the last one
        counts.

    Raises:
        ShapeError: where the shapes do not fit, or for an index that the axis does not have.

    >>> index_copy(np.zeros((2, 2)), np.array([1]), 3.0, axis=1)
    array([[0., 3.],
           [0., 3.]])
    """
    x, indices, source, k, places = _slices("index_copy", x, indices, source, axis, tape)
    upright = (1,) * k + indices.shape + (1,) * (len(x.shape) - k - 1)
    wide = broadcast_to(reshape(indices, upright, tape=tape), places, tape=tape)
    return put_along_axis(x, wide, source, k, tape=tape)


# ------------------------------------------------------------------ among all elements


@composite(
    samples=[
        sample((4, 3), np.array([[0, -1], [5, 0]]), (2, 2)),
        sample((2, 3), np.array([4, -9, 1]), (), mode="wrap"),
        sample((2, 3), np.array([4, -9, 10]), (3,), mode="clip"),
        sample((2,), np.array([], int), (0,)),
    ],
    rejects=[
        reject((2, 3), np.array([6]), (1,), match="out of bounds"),
        reject((2, 3), np.array([0, 1]), (3,), match="must broadcast to theirs"),
        reject(
            (2, 3),
            np.array([0]),
            (1,),
            mode="loop",
            error=SettingError,
            match="choose 'raise', 'wrap'",
        ),
    ],
)
def put(a: Any, ind: Any, v: Any, mode: str = "raise", *, tape: Any = None) -> Any:
    """A copy of ``a`` with ``v`` where ``take`` reads among all elements; NumPy writes in place.

    Args:
        a: Array of any shape.
        ind: Integers that count the elements in row-major order.
        v: The numbers, of a shape that broadcasts to that of ``ind``.
        mode: What becomes of indices that are too large or too small: ``"raise"``, ``"wrap"`` or
            ``"clip"``.
        tape: The tape to record on.

    Returns:
        A new array of the shape and dtype of ``a``; where an index comes twice, the last one
        counts, and alone has the gradient.

    Raises:
        ShapeError: where the shapes do not fit, or for an index that ``a`` does not have.

    >>> put(np.zeros((2, 2)), [0, -1], [1.0, 2.0])
    array([[1., 0.],
           [0., 2.]])
    """
    a, ind = operand("put", "a", a), indices_of("put", ind)
    word("put", "mode", mode, ("raise", "wrap", "clip"))
    if type(v) not in NUMBERS:
        v = operand("put", "v", v)
        check_fit("put", "v", v.shape, ind.shape)
        v = reshape(broadcast_to(v, ind.shape, tape=tape), -1, tape=tape)
    if mode != "raise":
        count = np.arange(Spec(a.shape, a.dtype).size)
        ind = take(count, ind, mode=mode, tape=tape)
    return put_along_axis(a, reshape(ind, -1, tape=tape), v, None, tape=tape)


publish(globals())
