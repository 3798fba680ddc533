"""Sliding windows over the spatial axes of images: options and positions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from odyssey.checks import check_choice, check_int, format_value
from odyssey.errors import SettingError, ShapeError
from odyssey.spec import Shape

__all__ = [
    "Pads",
    "WindowGrid",
    "fits_winograd",
    "prefers_winograd",
    "prefers_winograd_call",
    "image_shape",
    "int_per_axis",
    "window_grid",
    "grid_options",
]

Pads = tuple[tuple[int, int], ...]

_MOST_AXES = 3


class WindowGrid(NamedTuple):
    """Positions of sliding windows on images, with a number for each spatial axis.

    Attributes:
        size: The length of the image, without padding.
        window: The length of a window.
        stride: The distance between windows.
        pads: The zeros before and after the image.
        dilation: The distance between elements of a window.
        counts: The number of windows.
    """

    size: Shape
    window: Shape
    stride: Shape
    pads: Pads
    dilation: Shape
    counts: Shape

    def to_3d(self) -> WindowGrid:
        """Return the grid over three axes; the first ones added have length 1."""
        more = _MOST_AXES - len(self.size)
        if not more:
            return self
        one = (1,) * more
        pads = ((0, 0),) * more + self.pads
        size, window, count = one + self.size, one + self.window, one + self.counts
        return WindowGrid(size, window, one + self.stride, pads, one + self.dilation, count)

    def transposed(self) -> WindowGrid | None:
        """Return the windows on the results that reach each element of the images.

        The results have ``stride - 1`` zeros between them. None if images are padded by more than a
        window.
        """
        pads = []
        for n, k, s, (before, _), d, c in zip(*self, strict=True):
            pads.append((d * (k - 1) - before, n + before - (c - 1) * s - 1))
        if min(map(min, pads)) < 0:
            return None
        one = (1,) * len(self.size)
        return WindowGrid(self.counts, self.window, one, tuple(pads), self.dilation, self.size)


# From so many channels, of images and of results, and so many tiles on Winograd is faster than
# im2col: 0.75 of its time for 64 channels and 784 tiles, 1.02 for 256 and 49.
_MANY_CHANNELS, _MANY_TILES = 32, 128

# So many images are transformed together, and fewer channels and tiles suffice: 0.4 to 1.0 of the
# time of im2col for 64 channels and 32 tiles, 0.4 to 0.9 for 16 channels.
_SEVERAL_IMAGES, _FEWER_CHANNELS, _FEWER_TILES = 8, 16, 32

# Programs compute windows in registers, which is faster for so few pairs of channels, in the
# transpose in the weight up to so many tiles, and for fewer tiles: 0.7 of the time of Winograd for
# 32 channels, 1.3 to 2.4 for 48 and 64; for 64 channels and 32 tiles 0.8, for 64 tiles 1.3.
_FEW_PAIRS, _FEW_PAIRS_TILES, _PROGRAM_TILES = 1024, 2048, 64


def fits_winograd(grid: WindowGrid) -> bool:
    """Return whether windows are 3 by 3, with stride 1, on images padded by up to 2."""
    near = grid.stride == (1, 1, 1) and grid.dilation[1:] == (1, 1)
    flat = grid.size[0] == grid.counts[0] == 1
    narrow = all(0 <= p <= 2 for pair in grid.pads for p in pair)
    return near and flat and narrow and grid.window == (1, 3, 3)


def prefers_winograd(
    grid: WindowGrid, samples: int, in_channels: int, out_channels: int, groups: int
) -> bool:
    """Return whether Winograd tiles of 2 by 2 results are the fastest convolution.

    Args:
        grid: A grid over three axes.
        samples: The number of images.
        in_channels: Channels of the images in a group.
        out_channels: Channels of the result in a group.
        groups: The number of groups.
    """
    fewest = min(in_channels, out_channels)
    if groups != 1 or fewest < min(_FEWER_CHANNELS, _MANY_CHANNELS) or not fits_winograd(grid):
        return False
    tiles, several = _tile_count(grid), samples >= _SEVERAL_IMAGES
    if 2 * tiles > math.prod(grid.counts):  # most of a tile is outside of the result
        return False
    if several:
        return samples * tiles >= _FEWER_TILES
    return fewest >= _MANY_CHANNELS and samples * tiles >= _MANY_TILES


def prefers_winograd_call(
    grid: WindowGrid, samples: int, in_channels: int, out_channels: int, weight_vjp: bool
) -> bool:
    """Return whether Winograd tiles, where they are preferred, are faster than a program's loops.

    Args:
        grid: A grid over three axes.
        samples: The number of images.
        in_channels: Channels of the images.
        out_channels: Channels of the result.
        weight_vjp: Whether the call is the transpose in the weight.
    """
    if min(in_channels, out_channels) < _MANY_CHANNELS:
        return False
    tiles = samples * _tile_count(grid)
    many = in_channels * out_channels > _FEW_PAIRS or (weight_vjp and tiles >= _FEW_PAIRS_TILES)
    return many and tiles >= _PROGRAM_TILES


def _tile_count(grid: WindowGrid) -> int:
    """Return the number of tiles of 2 by 2 results of an image."""
    return math.prod([(n + 1) // 2 for n in grid.counts[1:]])


def int_per_axis(who: str, name: str, value: Any, n: int, low: int = 1) -> Shape:
    """Return an option, one int or an int for each of ``n`` axes, as a tuple.

    >>> int_per_axis("example", "stride", 2, 3)
    (2, 2, 2)
    """
    if type(value) is int and value >= low:
        return (value,) * n
    if not isinstance(value, (tuple, list)):
        return (check_int(who, name, value, low),) * n
    if len(value) != n:
        raise ShapeError(
            f"{who}: {name}={format_value(value)} for {n} spatial axes; pass an int, or a tuple of "
            f"{n}"
        )
    return tuple([check_int(who, name, part, low) for part in value])


def _read_padding(who: str, padding: Any, window: Shape, stride: Shape, dilation: Shape) -> Pads:
    """Return the zeros before and after each axis."""
    n = len(window)
    if type(padding) is int and padding >= 0:
        return ((padding, padding),) * n
    if isinstance(padding, str):
        check_choice(who, "padding", padding, ("same", "valid"))
        if padding == "valid":
            return ((0, 0),) * n
        if set(stride) != {1}:
            raise SettingError(
                f"{who}: padding='same' with stride {stride}; it is defined for stride 1 only, "
                "pass the padding in numbers"
            )
        spans = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
        return tuple([(span // 2, span - span // 2) for span in spans])
    if isinstance(padding, (tuple, list)) and any(isinstance(p, (tuple, list)) for p in padding):
        if len(padding) != n or not all(isinstance(p, (tuple, list)) for p in padding):
            raise ShapeError(
                f"{who}: padding={format_value(padding)} for {n} spatial axes; pass a pair "
                "(before, after) for each"
            )
        pairs = [int_per_axis(who, "padding", p, 2, 0) for p in padding]
        return tuple([(before, after) for before, after in pairs])
    return tuple([(p, p) for p in int_per_axis(who, "padding", padding, n, 0)])


def window_grid(
    who: str,
    size: Shape,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
) -> WindowGrid:
    """Return the grid of windows over images of the spatial ``size``, from options.

    Args:
        who: The name of the op, for messages.
        size: The size of the images, without padding.
        window: An int, or one for each axis; so are ``stride`` and ``dilation``.
        stride: The distance between windows.
        padding: An int for both sides, one for each axis, a pair for each axis, "same" or "valid".
        dilation: The distance between elements of a window.

    Raises:
        ShapeError: If an option does not have the length of ``size``, or no window fits.
        SettingError: If a number is too small, or "same" comes with a stride.
    """
    n = len(size)
    if not 1 <= n <= _MOST_AXES:
        raise ShapeError(
            f"{who}: {n} spatial axes; wanted are 1 to {_MOST_AXES}, after those of samples and "
            "channels"
        )
    window = int_per_axis(who, "window", window, n)
    stride = int_per_axis(who, "stride", stride, n)
    dilation = int_per_axis(who, "dilation", dilation, n)
    pads = _read_padding(who, padding, window, stride, dilation)
    count = []
    for length, k, s, (before, after), d in zip(size, window, stride, pads, dilation, strict=True):
        room = before + length + after - d * (k - 1) - 1
        if room < 0:
            raise ShapeError(
                f"{who}: a window of {k} elements {d} apart spans {d * (k - 1) + 1}, more than the "
                f"{length} of the image with padding {before} and {after}; pad more, or take a "
                "smaller window or dilation"
            )
        count.append(room // s + 1)
    return WindowGrid(size, window, stride, pads, dilation, tuple(count))


def grid_options(grid: WindowGrid) -> tuple[Shape, Pads, Shape]:
    """Return stride, padding and dilation in canonical form."""
    return grid.stride, grid.pads, grid.dilation


def image_shape(who: str, name: str, x: Any) -> Shape:
    """Return the shape of images, (samples, channels, one to three spatial axes)."""
    shape: Shape = getattr(x, "shape", ())
    if not 3 <= len(shape) <= 2 + _MOST_AXES:
        raise ShapeError(
            f"{who}: {name} has shape {shape}; wanted is (samples, channels, then 1 to 3 spatial "
            "axes)"
        )
    return shape
