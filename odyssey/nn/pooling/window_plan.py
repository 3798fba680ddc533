"""Window plans of pooling: options as tuples, and the slices that windows read."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import check_flag, format_value
from odyssey.errors import ShapeError
from odyssey.nn.sliding_windows import int_per_axis
from odyssey.nn.spatial_families import axis_letters
from odyssey.spec import Array, Shape

Key = tuple[Any, ...]

__all__ = [
    "MAX_SLICES",
    "WindowPlan",
    "plan_windows",
    "pooled_shape",
    "shapes_fit",
    "window_options",
]

# In a graph, larger windows are read by a gather, not by a slice for each offset: each slice is a
# kernel of its own there.
MAX_SLICES = 16


def window_options(
    who: str,
    dims: int,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    ceil_mode: Any = False,
) -> tuple[Shape, Shape, Shape, Shape, bool]:
    """Return the options of windows over ``dims`` spatial axes as tuples, one number for each axis.

    Raises:
        ShapeError: If the padding is more than half of a window, which could then have no element,
            or if a tuple has another length.
        SettingError: If a number is too low.
    """
    sizes = int_per_axis(who, "window", window, dims)
    steps = sizes if stride is None else int_per_axis(who, "stride", stride, dims)
    pads = int_per_axis(who, "padding", padding, dims, 0)
    if padding and any(2 * p > n for p, n in zip(pads, sizes, strict=True)):
        raise ShapeError(
            f"{who}: padding={format_value(padding)} for a window of {format_value(window)}; it "
            "may be half of the window at most, so that no window has nothing but padding"
        )
    beyond = ceil_mode if type(ceil_mode) is bool else check_flag(who, "ceil_mode", ceil_mode)
    return sizes, steps, pads, int_per_axis(who, "dilation", dilation, dims), beyond


def spatial_shape(who: str, shape: Shape, dims: int) -> Shape:
    """Return the spatial part of the shape of images, or of signals if ``dims`` is 1."""
    if len(shape) < dims:
        raise ShapeError(f"{who}: x has shape {shape}; wanted is (..., {axis_letters(dims)})")
    return shape[len(shape) - dims :]


class AxisWindows(NamedTuple):
    """The windows over one axis, by their offsets within a window.

    Attributes:
        windows: The number of windows.
        reads: For each offset within a window, the slice of the windows that have an element there,
            and the slice of these elements; padding is left out.
        filled: The number of elements of each window.
        padded: The number of elements and padding of each window, without what is beyond.
    """

    windows: int
    reads: tuple[tuple[slice, slice], ...]
    filled: Array
    padded: Array

    @property
    def full(self) -> bool:
        """True if every window has an element at every offset that is read."""
        return all(windows == slice(0, self.windows) for windows, _ in self.reads)

    def keys(self, behind: int) -> tuple[tuple[Key, Key], ...]:
        """Return ``reads`` as keys of an array that has ``behind`` axes after this one."""
        rest = (slice(None),) * behind
        return tuple([((..., w, *rest), (..., e, *rest)) for w, e in self.reads])


def _axis_windows(
    who: str, length: int, window: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> AxisWindows:
    """Return the windows over an axis of ``length``.

    With ``ceil_mode`` a last window may go beyond the padding, if it begins before its end.
    """
    span = (window - 1) * dilation + 1
    room = length + 2 * padding - span
    if room < 0:
        raise ShapeError(
            f"{who}: a window that spans {span} does not fit an axis of {length} elements with "
            f"padding {padding}; take a smaller one, or more padding"
        )
    count = room // stride + 1
    if ceil_mode and room % stride and count * stride < length + padding:
        count += 1
    reads, filled = [], np.zeros(count, int)
    for k in range(window):
        start = k * dilation - padding  # of what the first window reads at this offset
        first = max(0, -(start // stride))
        end = min(count, (length - 1 - start) // stride + 1)
        if first < end:
            filled[first:end] += 1
            begin = first * stride + start
            elements = slice(begin, begin + (end - first - 1) * stride + 1, stride)
            reads.append((slice(first, end), elements))
    if not filled.all():
        raise ShapeError(
            f"{who}: an axis of {length} elements with padding {padding} has a window of {window} "
            f"elements, {dilation} apart, with nothing but padding; pad less"
        )
    left = (
        length + 2 * padding - np.arange(count) * stride
    )  # elements from the start of a window to the end of the padding
    return AxisWindows(count, tuple(reads), filled, np.minimum(-(-left // dilation), window))


class AxisStep(NamedTuple):
    """The windows over one axis, as a step of a reduction over axis after axis.

    Attributes:
        axis: The axis, a negative number.
        windows: The number of windows.
        length: The length of the axis.
        keys: For each offset within a window, a key of the windows that have an element there, and
            a key of these elements.
        full: True if these are all windows, for each offset.
    """

    axis: int
    windows: int
    length: int
    keys: tuple[tuple[Key, Key], ...]
    full: bool

    def reduced_shape(self, shape: Shape) -> list[int]:
        """Return ``shape`` with this axis of length ``windows``."""
        found = list(shape)
        found[self.axis] = self.windows
        return found

    def expanded_shape(self, shape: Shape) -> list[int]:
        """Return ``shape`` with this axis of length ``length``."""
        found = list(shape)
        found[self.axis] = self.length
        return found


class WindowPlan(NamedTuple):
    """The windows over all spatial axes.

    Attributes:
        out: The number of windows, by axis.
        steps: The windows over each axis, the last axis first.
        keys: Pairs of keys as those of a step, over all axes at once.
        filled: The number of elements of each window, by axis.
        padded: The number of elements and padding of each window, by axis.
        disjoint: True if no element is read twice.
        block_shape: If the windows tile the image: the shape (-1, windows, window, ...), with a
            pair of axes for each spatial axis; else empty.
        block_index_shape: ``block_shape`` with windows of length 1.
    """

    out: Shape
    steps: tuple[AxisStep, ...]
    keys: tuple[tuple[Key, Key], ...]
    filled: tuple[Array, ...]
    padded: tuple[Array, ...]
    disjoint: bool
    block_shape: Shape
    block_index_shape: Shape


@lru_cache(maxsize=256)
def plan_of_sizes(
    who: str,
    sizes: Shape,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool = False,
) -> WindowPlan:
    """Return the plan of windows over spatial axes of the given ``sizes``.

    Raises:
        ShapeError: if no window fits, or if one has nothing but padding.
    """
    numbers = list(zip(sizes, window, stride, padding, dilation, strict=True))
    axes = [_axis_windows(who, *of_axis, ceil_mode) for of_axis in numbers]
    dims = len(axes)
    steps = [
        AxisStep(k - dims, axes[k].windows, sizes[k], axes[k].keys(dims - 1 - k), axes[k].full)
        for k in reversed(range(dims))
    ]
    keys = [
        ((..., *[w for w, _ in place]), (..., *[e for _, e in place]))
        for place in product(*[axis.reads for axis in axes])
    ]
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    disjoint = all(k == 1 or s >= n for k, s, n in zip(window, stride, spans, strict=True))
    out = tuple([axis.windows for axis in axes])
    wide: list[int] = []
    narrow: list[int] = []
    tiles = stride == window and set(dilation) == {1} and not any(padding)
    if tiles and all(n == k * m for n, k, m in zip(sizes, window, out, strict=True)):
        wide, narrow = [-1], [-1]
        for m, k in zip(out, window, strict=True):
            wide += m, k
            narrow += m, 1
    filled = tuple([axis.filled for axis in axes])
    padded = tuple([axis.padded for axis in axes])
    return WindowPlan(
        out, tuple(steps), tuple(keys), filled, padded, disjoint, tuple(wide), tuple(narrow)
    )


def pooled_shape(who: str, shape: Shape, window: Shape, *others: Any) -> Shape:
    """Return the shape that pooling gives for an array of ``shape``."""
    sizes = spatial_shape(who, shape, len(window))
    out = plan_of_sizes(who, sizes, window, *others).out
    return shape[: len(shape) - len(window)] + out


def shapes_fit(pooled: Shape, shape: Shape, *options: Any) -> bool:
    """Return whether pooling an array of ``shape`` gives the shape ``pooled``."""
    try:
        return pooled == pooled_shape("pooling", shape, *options)
    except ShapeError:
        return False


def plan_windows(who: str, x: Any, window: Shape, *others: Any) -> WindowPlan:
    """Return the plan of windows over the last axes of an array."""
    return plan_of_sizes(who, spatial_shape(who, x.shape, len(window)), window, *others)
