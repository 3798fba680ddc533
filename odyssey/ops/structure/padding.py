"""Padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import check_choice, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.same_device import host_array, place_as
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.rounding import floor, round
from odyssey.ops.reductions.quantiles import median
from odyssey.ops.reductions.reduce import max, mean, min
from odyssey.ops.structure.arrangement import flip
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.indexing import getitem, setitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import as_operand, astype, broadcast_to
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.store import device_numbers, home_of

_SELECTING = ("edge", "reflect", "symmetric", "wrap")
_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": max,
    "minimum": min,
    "mean": mean,
    "median": median,
}
# Options, their defaults, and the modes that use them.
_OPTIONS: tuple[tuple[Any, ...], ...] = (
    ("constant_values", 0, "constant"),
    ("end_values", 0, "linear_ramp"),
    ("stat_length", None, *_STATISTICS),
    ("reflect_type", "even", "reflect", "symmetric"),
)
_MODES = ("constant", "empty", "linear_ramp", *_SELECTING, *_STATISTICS)

Pair = tuple[Any, Any]


@composite(
    numpy=[np.pad],
    samples=[
        sample((2, 3), pad_width=1),
        sample((2, 3), pad_width=((1, 0), (0, 2)), constant_values=3),
        sample((3,), pad_width=(1, 2), mode="edge"),
        sample((3,), pad_width=4, mode="reflect"),
        sample((3,), pad_width=4, mode="symmetric"),
        sample((2, 3), pad_width=((0, 0), (2, 4)), mode="wrap"),
        sample((), pad_width=1),
        sample((0, 2), pad_width=1),
        sample((2, 3), pad_width=((1, 2), (0, 1)), mode="maximum", spread=True),
        sample((4,), pad_width=2, mode="minimum", stat_length=(2, 3), spread=True),
        sample((2, 3), pad_width=1, mode="mean"),
        sample((5,), pad_width=(1, 2), mode="median", stat_length=3, spread=True),
        sample((2, 3), pad_width=((1, 2), (3, 0)), mode="linear_ramp", end_values=1),
        sample((4,), pad_width=9, mode="reflect", reflect_type="odd"),
        sample((3,), pad_width=(7, 8), mode="symmetric", reflect_type="odd"),
    ],
    rejects=[
        reject((3,), pad_width=-1, match="is negative"),
        reject((3,), pad_width=1, mode="ramp", error=SettingError, match="mode='ramp'"),
        reject((0,), pad_width=1, mode="mean", match="no elements"),
        reject((3,), pad_width=1, mode="maximum", stat_length=0, match="at least 1"),
        reject(
            (3,), pad_width=1, mode="reflect", reflect_type="no", error=SettingError, match="odd"
        ),
    ],
)
def pad(
    array: Any,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
) -> Any:
    """Pad an array before and after, along each axis.

    Args:
        array: Array of any shape.
        pad_width: The widths: ``((before, after), ...)`` by axis, one pair for all, or a number.
        mode: ``"constant"``; ``"edge"``, ``"reflect"``, ``"symmetric"`` or ``"wrap"``, which
            repeat elements of the array; ``"maximum"``, ``"minimum"``, ``"mean"`` or ``"median"``
            of those at the edge; ``"linear_ramp"`` from a number to the edge; or ``"empty"``,
            undefined in NumPy and 0 here.
        constant_values: The constants, in the same forms as ``pad_width``.
        end_values: The outer values of ramps, likewise.
        stat_length: Number of elements at the edge for statistics, likewise; None for all.
        reflect_type: ``"odd"`` also reflects the values about the value at the edge.

    Returns:
        A new array of the dtype of ``array``.

    Raises:
        ShapeError: for negative widths. SettingError: for an unknown mode or an unused option.

    >>> pad(np.array([1, 2, 3]), (1, 2), mode="edge")
    array([1, 1, 2, 3, 3, 3])
    """
    array = as_operand("pad", "array", array)
    shape = array.shape
    widths = _widths(pad_width, len(shape))
    check_choice("pad", "mode", mode, _MODES)
    check_choice("pad", "reflect_type", reflect_type, ("even", "odd"))
    _refuse_unused_options(mode, constant_values, end_values, stat_length, reflect_type)
    if mode in ("constant", "empty"):
        return _pad_constant(array, widths, constant_values if mode == "constant" else 0)
    lengths = _before_after_pairs("stat_length", stat_length, len(shape))
    ends = _before_after_pairs("end_values", end_values, len(shape))
    for k, (width, n) in enumerate(zip(widths, shape, strict=True)):
        if not any(width):
            continue
        if not n:
            raise ShapeError(f"pad: array {shape} has no elements along axis {k} for mode {mode!r}")
        if mode in _STATISTICS:
            array = _pad_statistic(array, k, width, lengths[k], _STATISTICS[mode])
        elif mode == "linear_ramp":
            array = _pad_ramp(array, k, width, ends[k])
        elif reflect_type == "odd" and mode in ("reflect", "symmetric") and n > 1:
            array = _pad_odd_reflection(array, k, width, mode)
        else:
            array = getitem(array, (slice(None),) * k + (_padded_indices(n, width, mode),))
    return array if any(map(any, widths)) else getitem(array, ...)


def _pad_constant(array: Any, widths: Any, constants: Any) -> Any:
    """Pad with constants."""
    shape = array.shape
    inside = tuple(slice(b, b + n) for (b, _), n in zip(widths, shape, strict=True))
    if not isinstance(constants, dict):
        constants = as_array("pad", "constant_values", device_numbers(constants))
        if constants.ndim or type(constants) is not np.ndarray:
            constants = place_as("pad", "constant_values", constants, home_of(array))
    if not isinstance(constants, dict) and constants.ndim == 0:
        lengths = [b + n + a for (b, a), n in zip(widths, shape, strict=True)]
        around = np.empty(lengths, array.dtype)
        around[...] = constants[()] if shape else 0  # a scalar has no axis to pad
    else:
        around = np.zeros(shape, array.dtype)
        if shape:
            around = np.pad(around, widths, constant_values=constants)
    return setitem(around, array, inside)


def _edge_slice(array: Any, k: int, length: int, last: bool) -> Any:
    """Return the first or the last elements along an axis."""
    n = array.shape[k]
    part = slice(n - length, n) if last else slice(length)
    return getitem(array, (slice(None),) * k + (part,))


def _join_around(array: Any, k: int, parts: list[Any], width: Pair) -> Any:
    """Concatenate an array with its padding before and after."""
    before, after = (part for part in parts)
    found = [p for p, n in ((before, width[0]), (array, 1), (after, width[1])) if n]
    return concatenate(found, k)


def _pad_statistic(
    array: Any, k: int, width: Pair, lengths: Pair, statistic: Callable[..., Any]
) -> Any:
    parts, n = [], array.shape[k]
    for count, length, last in zip(width, lengths, (False, True), strict=True):
        length = n if length is None else length
        if length < 1:
            raise ShapeError(f"pad: stat_length is {length}; it must be at least 1")
        some = _edge_slice(array, k, length if length < n else n, last)
        one = statistic(some, k, keepdims=True)
        if array.dtype.kind in "iu":
            one = round(one)
        one = astype(one, array.dtype)
        shape = (*array.shape[:k], count, *array.shape[k + 1 :])
        parts.append(broadcast_to(one, shape))
    return _join_around(array, k, parts, width)


def _pad_ramp(array: Any, k: int, width: Pair, ends: Pair) -> Any:
    # In double precision, as in NumPy: a difference of integers may exceed their dtype.
    dtype = np.result_type(array.dtype, np.float64)
    parts = []
    for count, end, last in zip(width, ends, (False, True), strict=True):
        upright = (-1,) + (1,) * (len(array.shape) - k - 1)
        steps = np.arange(count, dtype=dtype).reshape(upright)
        edge = astype(_edge_slice(array, k, 1, last), dtype)
        step = div(sub(edge, end), count or 1)
        ramp = add(mul(steps, step), end)
        if array.dtype.kind in "iu":
            ramp = floor(ramp)
        ramp = astype(ramp, array.dtype)
        parts.append(flip(ramp, k) if last else ramp)
    return _join_around(array, k, parts, width)


def _pad_odd_reflection(array: Any, k: int, width: Pair, mode: str) -> Any:
    """Pad by point reflections at both edges; two reflections add the rise of the array."""
    n = array.shape[k]
    period = 2 * (n - 1 if mode == "reflect" else n)
    places = np.arange(-width[0], n + width[1])
    rounds, rest = np.divmod(places, period)
    back = rest >= n
    # Twice the last element less the reflected one; each round trip adds the rise twice.
    own = np.where(back, (period if mode == "reflect" else period - 1) - rest, rest)
    upright = (-1,) + (1,) * (len(array.shape) - k - 1)
    sign, first, last = (
        v.reshape(upright).astype(array.dtype)
        for v in (np.where(back, -1, 1), -2 * rounds, 2 * (rounds + back))
    )
    out = mul(take(array, own, k), sign)
    for share, at_end in ((first, False), (last, True)):
        out = add(out, mul(_edge_slice(array, k, 1, at_end), share))
    return out


# ------------------------------------------------------------------ widths


def _before_after_pairs(name: str, given: Any, ndim: int) -> list[Pair]:
    """Return ``(before, after)`` values by axis."""
    if isinstance(given, dict):
        return [tuple(np.broadcast_to(given.get(k, 0), 2).tolist()) for k in range(ndim)]
    if given is None:
        return [(None, None)] * ndim
    numbers = host_array(as_array("pad", name, device_numbers(given)))
    if name == "stat_length" and numbers.dtype.kind not in "iu":
        raise DTypeError(f"pad: stat_length {format_value(given)} must hold ints only")
    try:
        return [tuple(pair) for pair in np.broadcast_to(numbers, (ndim, 2)).tolist()]
    except ValueError:
        raise ShapeError(f"pad: {name} {format_value(given)} does not fit {ndim} axes") from None


def _refuse_unused_options(mode: str, *given: Any) -> None:
    """Raise SettingError for an option that the mode does not use, as NumPy does."""
    for value, (name, default, *modes) in zip(given, _OPTIONS, strict=True):
        idle = type(value) is not type(default) or value != default
        if idle and mode not in modes:
            raise SettingError(
                f"pad: {name}={format_value(value)} with mode={mode!r}; it is for "
                f"{' and '.join(modes)}"
            )


def _widths(pad_width: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    if type(pad_width) is int and pad_width >= 0:
        return ((pad_width, pad_width),) * ndim
    try:
        if isinstance(pad_width, dict):
            given = [(0, 0)] * ndim
            for k, width in pad_width.items():
                given[k] = tuple(np.broadcast_to(width, 2).tolist())
            pad_width = given
        widths = np.broadcast_to(np.asarray(pad_width, dtype=None if ndim else np.intp), (ndim, 2))
    except (ValueError, IndexError):
        raise ShapeError(
            f"pad: pad_width {format_value(pad_width)} does not fit {ndim} axes"
        ) from None
    if widths.dtype.kind not in "iu":
        raise DTypeError(f"pad: pad_width {format_value(pad_width)} must hold ints only")
    if (widths < 0).any():
        raise ShapeError(
            f"pad: pad_width {format_value(pad_width)} is negative; cut with an index instead"
        )
    return tuple((int(before), int(after)) for before, after in widths)


def _padded_indices(n: int, width: tuple[int, int], mode: Any) -> Any:
    """Return the indices of the elements of a padded axis of length ``n``."""
    try:
        places = np.pad(np.arange(n), width, mode)
    except ValueError as error:
        raise ShapeError(f"pad: {error}") from None
    return places


publish(globals())
