"""Selection by masks and by choice numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import result_type
from odyssey.devices.same_device import place_beside
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.choice import greater_equal, less, logical_and, where
from odyssey.ops.structure.gathering import check_indices, take, take_along_axis
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.ops.structure.shape import as_operand, astype, broadcast_to, expand_dims, reshape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.store import home_of, numbers_of
from odyssey.table.value import NUMBERS, Symbol, Value

_ROWS = np.array([True, False, True])
_MASK = np.array([[True, False, True], [False, True, True]])


def _static_values(who: str, name: str, x: Any) -> Any:
    """Return the values of an operand that determines a shape, and so must be known."""
    if isinstance(x, Symbol):
        raise DTypeError(
            f"{who}: {name} has no values {x.graph.phase}, but the shape of the result depends "
            "on them; pass it as an array"
        )
    return numbers_of(who, x) if isinstance(x, Value) else as_array(who, name, x)


# ------------------------------------------------------------------ masks


@composite(
    samples=[
        sample((2, 3), _MASK, ()),
        sample((2, 3), _ROWS, 2),
        sample((3,), np.array([[True], [False]]), ()),
        sample((), np.array(True), ()),
    ],
    rejects=[
        reject((3,), np.array([True, False]), 0.0, match="do not broadcast"),
        reject((3,), np.array([1, 0, 1]), 0.0, error=DTypeError, match="pass booleans"),
        reject((3,), _ROWS, (2,), match="one number"),
    ],
)
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """Replace elements by a number where a mask holds, as ``torch.masked_fill``.

    Args:
        x: Array.
        mask: Booleans, whose shape broadcasts with that of ``x``.
        value: A number, or a Variable without axes.

    Returns:
        A new array of the dtype of ``x``.

    Raises:
        ShapeError: if the shapes do not broadcast. DTypeError: if the mask is not boolean.

    >>> masked_fill(np.array([1.0, 2.0]), np.array([True, False]), -np.inf)
    array([-inf,   2.])
    """
    x, mask = as_operand("masked_fill", "x", x), as_operand("masked_fill", "mask", mask)
    _check_mask("masked_fill", mask)
    if type(value) not in NUMBERS:
        value = as_operand("masked_fill", "value", value)
        if value.shape:
            raise ShapeError(f"masked_fill: value has shape {value.shape}; pass one number")
    return where(mask, astype(value, x.dtype), x)


def _check_mask(who: str, mask: Any) -> None:
    if mask.dtype.kind != "b":
        raise DTypeError(f"{who}: the mask has dtype {mask.dtype}; pass booleans")


@composite(
    samples=[
        sample((2, 3), _MASK),
        sample((2, 3), _ROWS),
        sample((3,), _MASK),
        sample((), np.array(False)),
    ],
    rejects=[
        reject((3,), np.array([True, False]), match="broadcast"),
        reject((3,), np.array([1, 0, 1]), error=DTypeError, match="pass booleans"),
    ],
)
def masked_select(x: Any, mask: Any) -> Any:
    """Elements where a mask holds, on one axis, as ``torch.masked_select``.

    Args:
        x: Array.
        mask: Booleans, whose shape broadcasts with that of ``x``; static in a graph.

    Raises:
        ShapeError: if the shapes do not broadcast. DTypeError: if the mask is not boolean.

    >>> masked_select(np.array([[1, 2], [3, 4]]), np.array([True, False]))
    array([1, 3])
    """
    x, mask = as_operand("masked_select", "x", x), _static_values("masked_select", "mask", mask)
    _check_mask("masked_select", mask)
    try:
        shape = np.broadcast_shapes(x.shape, mask.shape)
    except ValueError:
        raise ShapeError(
            f"masked_select: shapes do not broadcast, x {x.shape}, mask {mask.shape}"
        ) from None
    if x.shape != shape:
        x = broadcast_to(x, shape)
    return getitem(x, np.broadcast_to(mask, shape))


@composite(
    numpy=[np.compress],
    samples=[
        sample(_ROWS, (4, 3), axis=1),
        sample(np.array([0, 2]), (4, 3), axis=0),
        sample(_ROWS, (2, 2)),
        sample([True, False], (3,)),
    ],
    rejects=[
        reject(_MASK, (2, 3), axis=0, match="on one axis"),
        reject(_ROWS, (2, 3), axis=0, match="out of bounds"),
    ],
)
def compress(condition: Any, a: Any, axis: int | None = None) -> Any:
    """Slices along an axis for which a condition holds.

    Args:
        condition: Booleans for the slices, or for the first of them; static in a graph.
        a: Array.
        axis: The axis; None takes all elements in row-major order.

    Raises:
        ShapeError: if the condition has more axes, or holds beyond the last slice.

    >>> compress([False, True], np.array([[1, 2], [3, 4], [5, 6]]), axis=0)
    array([[3, 4]])
    """
    chosen = _static_values("compress", "condition", condition)
    if chosen.ndim != 1:
        raise ShapeError(f"compress: condition has shape {chosen.shape}; pass it on one axis")
    return take(a, place_beside(np.flatnonzero(chosen), home_of(a)), axis)


@composite(
    numpy=[np.extract],
    samples=[sample(_MASK, (2, 3)), sample(np.array([0, 2, 0]), (4,)), sample(True, ())],
    rejects=[reject(_ROWS, (2,), match="out of bounds")],
)
def extract(condition: Any, arr: Any) -> Any:
    """Elements where a condition holds, both read in row-major order.

    Args:
        condition: Booleans, as many as ``arr`` has elements; static in a graph.
        arr: Array.

    >>> extract(np.array([True, False, True]), np.array([1, 2, 3]))
    array([1, 3])
    """
    return compress(_static_values("extract", "condition", condition).reshape(-1), arr)


# ------------------------------------------------------------------ choice among arrays


@composite(
    numpy=[np.choose],
    samples=[
        sample(np.array([[0, 1], [1, 0]]), [(2, 2), (2,)]),
        sample(np.array([2, 0, 1]), [(3,), (), (3,)]),
        sample(np.array([-1, 3, 4]), [(3,), (2, 3)], mode="wrap"),
        sample(np.array([-1, 3, 4]), [(3,), (2, 3)], mode="clip"),
    ],
    rejects=[
        reject(np.array([2]), [np.ones(1), np.ones(1)], match="out of bounds"),
        reject(np.array([0.5]), [np.ones(1)], error=DTypeError, match="pass integers"),
        reject(np.array([0, 1]), [np.ones(3)], match="broadcast"),
        reject(
            np.array([0]),
            [np.ones(1)],
            mode="loop",
            error=SettingError,
            match="choose 'raise', 'wrap'",
        ),
    ],
)
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    """Elementwise choice from a list of arrays, by an array of their indices.

    Args:
        a: For each element the index of an array among ``choices``.
        choices: Arrays whose shapes broadcast with that of ``a``.
        mode: The treatment of indices out of range: ``"raise"``, ``"wrap"`` or ``"clip"``.

    Raises:
        ShapeError: if shapes do not broadcast, or an index is out of range.
        DTypeError: if the indices are not integers.

    >>> choose(np.array([1, 0]), [np.array([1, 2]), np.array([10, 20])])
    array([10,  2])
    """
    a = as_operand("choose", "a", a)
    check_indices("choose", a)
    if a.dtype.kind == "b":
        a = astype(a, np.intp)
    check_choice("choose", "mode", mode, ("raise", "wrap", "clip"))
    given = list(choices)
    parts = [as_operand("choose", "a choice", part) for part in given]
    shape = _common_shape("choose", a, *parts)
    count = np.arange(len(parts))
    places = _choice_indices(a, len(parts)) if mode == "raise" else take(count, a, mode=mode)
    kinds = [c if type(c) in NUMBERS else p.dtype for c, p in zip(given, parts, strict=True)]
    dtype = result_type(*kinds)
    wide = [broadcast_to(astype(part, dtype), shape) for part in parts]
    row = expand_dims(broadcast_to(places, shape), 0)
    return reshape(take_along_axis(stack(wide), row, 0), shape)


def _choice_indices(a: Any, count: int) -> Any:
    """Validate indices of choices; negative ones do not count from the end."""
    data = numbers_of("choose", a)
    if isinstance(data, Symbol):
        inside = logical_and(greater_equal(a, 0), less(a, count))
        return demanded(a, inside, f"choose: an index is out of bounds for {count} choices")
    if data.size and (data.min() < 0 or data.max() >= count):
        raise ShapeError(
            f"choose: an index is out of bounds for {count} choices; a has numbers from "
            f"{data.min()} to {data.max()}"
        )
    return a


def _common_shape(who: str, *arrays: Any) -> tuple[int, ...]:
    shapes = [part.shape for part in arrays]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        came = ", ".join(map(str, shapes))
        raise ShapeError(f"{who}: shapes do not broadcast: {came}") from None


@composite(
    numpy=[np.select],
    samples=[
        sample([_ROWS, ~_ROWS], [(3,), (3,)]),
        sample([_MASK, _ROWS], [(2, 3), ()], (3,)),
        sample([_ROWS], [(3,)], default=7),
    ],
    rejects=[
        reject([_ROWS], [np.ones(3), np.ones(3)], match="1 conditions for 2 choices"),
        reject([], [], match="at least one"),
        reject([np.array([1, 0])], [np.ones(2)], error=DTypeError, match="pass booleans"),
        reject([_ROWS], [np.ones(2)], match="broadcast"),
    ],
)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Elementwise choice of the first array whose condition holds.

    Args:
        condlist: Arrays of booleans.
        choicelist: As many arrays; all shapes broadcast with each other.
        default: The value where no condition holds.

    Raises:
        ShapeError: if the numbers of choices and conditions differ or are 0, or shapes do not
            broadcast. DTypeError: if a condition is not boolean.

    >>> x = np.array([-1.0, 0.5, 3.0])
    >>> select([x < 0, x < 1], [-x, x * x], default=9)
    array([1.  , 0.25, 9.  ])
    """
    conditions = [as_operand("select", "a condition", c) for c in condlist]
    choices = [c if type(c) in NUMBERS else as_operand("select", "a choice", c) for c in choicelist]
    if len(conditions) != len(choices):
        raise ShapeError(f"select: {len(conditions)} conditions for {len(choices)} choices")
    if not conditions:
        raise ShapeError("select: no conditions came; pass at least one")
    for condition in conditions:
        _check_mask("select", condition)
    out = default if type(default) in NUMBERS else as_operand("select", "default", default)
    with_shape = [v for v in (*conditions, *choices, out) if hasattr(v, "shape")]
    shape = _common_shape("select", *with_shape)
    dtype = result_type(*[v if type(v) in NUMBERS else v.dtype for v in (*choices, out)])
    out = _cast_choice("select", out, dtype)
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        out = where(condition, _cast_choice("select", choice, dtype), out)
    return out if out.shape == shape else broadcast_to(out, shape)


def _cast_choice(who: str, v: Any, dtype: np.dtype[Any]) -> Any:
    """Cast a choice to the common dtype; Python numbers too, which would promote differently."""
    if type(v) not in NUMBERS:
        return astype(v, dtype)
    try:
        return dtype.type(v)
    except OverflowError:
        raise DTypeError(f"{who}: {v} does not fit into the choices' dtype, {dtype}") from None


publish(globals())
