"""Where the windows of pooling stand: options as tuples, and the places that they read."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import flag, shown
from odyssey.errors import ShapeError
from odyssey.nn.sliding_windows import ints
from odyssey.spec import Array, Shape

Key = tuple[Any, ...]

__all__ = ["FEW", "Plan", "plan_for", "pooled_shape", "prepared", "shapes_fit"]

# In a graph, windows of more elements are read by the numbers of these, and not place by place:
# each place is a kernel of its own there.
FEW = 16


def prepared(
    who: str,
    dims: int,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    ceil_mode: Any = False,
) -> tuple[Shape, Shape, Shape, Shape, bool]:
    """The options of windows over ``dims`` spatial axes as tuples, one number for each axis.

    Raises:
        ShapeError: for a padding that is longer than half a window, whose maximum could be one of
            nothing, and for a tuple of another length. SettingError: for a number that is too low.
    """
    sizes = ints(who, "window", window, dims)
    steps = sizes if stride is None else ints(who, "stride", stride, dims)
    pads = ints(who, "padding", padding, dims, 0)
    if padding and any(2 * p > n for p, n in zip(pads, sizes, strict=True)):
        raise ShapeError(
            f"{who}: padding={shown(padding)} for a window of {shown(window)}; it may be half of "
            "the window at most, so that no window has nothing but padding"
        )
    beyond = ceil_mode if type(ceil_mode) is bool else flag(who, "ceil_mode", ceil_mode)
    return sizes, steps, pads, ints(who, "dilation", dilation, dims), beyond


def images(who: str, shape: Shape, dims: int) -> Shape:
    """The spatial part of the shape of images, or of signals where ``dims`` is 1."""
    if len(shape) < dims:
        axes = ", ".join("DHW"[3 - dims :]) if dims > 1 else "L"
        raise ShapeError(f"{who}: x has shape {shape}; wanted is (..., {axes})")
    return shape[len(shape) - dims :]


class Places(NamedTuple):
    """The windows over one axis, by the places within a window.

    Attributes:
        windows: How many there are.
        reads: For each place within a window, which windows have an element there, and which
            elements these are; padding is left out.
        filled: How many elements each window has.
        padded: How many places each has that are elements or padding, but not beyond.
    """

    windows: int
    reads: tuple[tuple[slice, slice], ...]
    filled: Array
    padded: Array

    @property
    def full(self) -> bool:
        """Whether every window has an element at every place that is read."""
        return all(windows == slice(0, self.windows) for windows, _ in self.reads)

    def keys(self, behind: int) -> tuple[tuple[Key, Key], ...]:
        """``reads`` as keys of an array that has so many axes behind this one."""
        rest = (slice(None),) * behind
        return tuple([((..., w, *rest), (..., e, *rest)) for w, e in self.reads])


def _places(
    who: str, length: int, window: int, stride: int, padding: int, apart: int, ceil_mode: bool
) -> Places:
    """The windows over an axis of ``length``, whose places are so far ``apart``.

    With ``ceil_mode`` a last one may go beyond the padding, if it begins before.
    """
    span = (window - 1) * apart + 1
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
        start = k * apart - padding  # of what the first window reads at this place
        first = max(0, -(start // stride))
        end = min(count, (length - 1 - start) // stride + 1)
        if first < end:
            filled[first:end] += 1
            begin = first * stride + start
            elements = slice(begin, begin + (end - first - 1) * stride + 1, stride)
            reads.append((slice(first, end), elements))
    if not filled.all():
        raise ShapeError(
            f"{who}: of windows of {window} places, {apart} apart, over an axis of {length} "
            f"elements with padding {padding} one has nothing but padding; take less"
        )
    left = length + 2 * padding - np.arange(count) * stride  # places of a window, and behind it
    return Places(count, tuple(reads), filled, np.minimum(-(-left // apart), window))


class Step(NamedTuple):
    """The windows over one axis, to be folded or spread.

    Attributes:
        axis: Its number, from the last, -1.
        windows: How many there are.
        length: Of the axis.
        keys: For each place within a window, a key of the windows that have an element there, and
            a key of these elements.
        full: Whether these are all windows, for each place.
    """

    axis: int
    windows: int
    length: int
    keys: tuple[tuple[Key, Key], ...]
    full: bool

    def folded(self, shape: Shape) -> list[int]:
        """A shape with as many windows in the place of the elements of this axis."""
        found = list(shape)
        found[self.axis] = self.windows
        return found

    def spread(self, shape: Shape) -> list[int]:
        """The same, backwards."""
        found = list(shape)
        found[self.axis] = self.length
        return found


class Plan(NamedTuple):
    """The windows over all spatial axes.

    Attributes:
        out: How many windows there are, by axis.
        steps: The windows over each axis, the last one first.
        keys: As those of a step, over all axes at once.
        filled: How many elements a window has, by axis: one number for each window.
        padded: Likewise how many places are elements or padding, but not beyond.
        apart: Whether no element is read twice.
        wide: Where windows lie side by side and cover all: a shape with an axis for the windows and
            one for their places, by axis, behind one for all else; else empty.
        narrow: The same with places of length 1.
    """

    out: Shape
    steps: tuple[Step, ...]
    keys: tuple[tuple[Key, Key], ...]
    filled: tuple[Array, ...]
    padded: tuple[Array, ...]
    apart: bool
    wide: Shape
    narrow: Shape


@lru_cache(maxsize=256)
def plan_of(
    who: str,
    sizes: Shape,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool = False,
) -> Plan:
    """The windows over spatial axes of some ``sizes``.

    Raises:
        ShapeError: where none fits, or one has nothing but padding.
    """
    numbers = list(zip(sizes, window, stride, padding, dilation, strict=True))
    axes = [_places(who, *of_axis, ceil_mode) for of_axis in numbers]
    dims = len(axes)
    steps = [
        Step(k - dims, axes[k].windows, sizes[k], axes[k].keys(dims - 1 - k), axes[k].full)
        for k in reversed(range(dims))
    ]
    keys = [
        ((..., *[w for w, _ in place]), (..., *[e for _, e in place]))
        for place in product(*[axis.reads for axis in axes])
    ]
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    apart = all(k == 1 or s >= n for k, s, n in zip(window, stride, spans, strict=True))
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
    return Plan(out, tuple(steps), tuple(keys), filled, padded, apart, tuple(wide), tuple(narrow))


def pooled_shape(who: str, shape: Shape, window: Shape, *others: Any) -> Shape:
    """The shape of what is pooled from ``shape``."""
    sizes = images(who, shape, len(window))
    out = plan_of(who, sizes, window, *others).out
    return shape[: len(shape) - len(window)] + out


def shapes_fit(pooled: Shape, shape: Shape, *options: Any) -> bool:
    """Whether one shape is what is pooled from the other."""
    try:
        return pooled == pooled_shape("pooling", shape, *options)
    except ShapeError:
        return False


def plan_for(who: str, x: Any, window: Shape, *others: Any) -> Plan:
    """The windows over the last axes of an array."""
    return plan_of(who, images(who, x.shape, len(window)), window, *others)
