"""Windows that slide over the spatial axes of images: their options, and where they stand."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from odyssey.checks import shown, whole, word
from odyssey.errors import SettingError, ShapeError
from odyssey.spec import Shape

__all__ = ["Pads", "Slide", "fits_tiles", "has_many_tiles", "images", "ints", "slide_of", "spelled"]

Pads = tuple[tuple[int, int], ...]

_MOST_AXES = 3


class Slide(NamedTuple):
    """Where windows stand on images, a number for each spatial axis.

    Attributes:
        size: How long the image is, without padding.
        window: How many elements a window has.
        stride: How far it is from one window to the next.
        pads: How many zeros are before and behind the image.
        dilation: How far it is from one element of a window to the next.
        counts: How many windows there are.
    """

    size: Shape
    window: Shape
    stride: Shape
    pads: Pads
    dilation: Shape
    counts: Shape

    def lifted(self) -> Slide:
        """The same over three axes, the first ones of length 1."""
        more = _MOST_AXES - len(self.size)
        if not more:
            return self
        one = (1,) * more
        pads = ((0, 0),) * more + self.pads
        size, window, count = one + self.size, one + self.window, one + self.counts
        return Slide(size, window, one + self.stride, pads, one + self.dilation, count)

    def back(self) -> Slide | None:
        """Where windows stand on results, one for each element of the images.

        That is of the results with ``stride - 1`` zeros between them, in numbers of these; None
        where images are padded by more than a window.
        """
        pads = []
        for n, k, s, (before, _), d, c in zip(*self, strict=True):
            pads.append((d * (k - 1) - before, n + before - (c - 1) * s - 1))
        if min(map(min, pads)) < 0:
            return None
        one = (1,) * len(self.size)
        return Slide(self.counts, self.window, one, tuple(pads), self.dilation, self.size)


# Tiles of 2 by 2 results take less time than windows from so many channels, of images and of the
# result, and so many tiles on: measured 0.75 for 64 channels and 784 tiles, 1.02 for 256 and 49.
_MANY_CHANNELS, _MANY_TILES = 32, 128


def fits_tiles(slide: Slide) -> bool:
    """Whether windows are of 3 by 3 elements, side by side, on images padded by up to 2."""
    near = slide.stride == (1, 1, 1) and slide.dilation[1:] == (1, 1)
    flat = slide.size[0] == slide.counts[0] == 1
    narrow = all(0 <= p <= 2 for pair in slide.pads for p in pair)
    return near and flat and narrow and slide.window == (1, 3, 3)


def has_many_tiles(slide: Slide, samples: int, part: int, each: int, groups: int) -> bool:
    """Whether so many tiles of 2 by 2 results are the fastest way of a convolution.

    Args:
        slide: Over three axes.
        samples: How many images there are.
        part: The channels of the images in a group.
        each: Those of the result.
        groups: How many groups there are.
    """
    if groups != 1 or min(part, each) < _MANY_CHANNELS or not fits_tiles(slide):
        return False
    return samples * math.prod([(n + 1) // 2 for n in slide.counts[1:]]) >= _MANY_TILES


def ints(who: str, name: str, value: Any, n: int, low: int = 1) -> Shape:
    """An option that is one whole number, or one for each of ``n`` axes.

    >>> ints("example", "stride", 2, 3)
    (2, 2, 2)
    """
    if type(value) is int and value >= low:
        return (value,) * n
    if not isinstance(value, (tuple, list)):
        return (whole(who, name, value, low),) * n
    if len(value) != n:
        raise ShapeError(
            f"{who}: {name}={shown(value)} for {n} spatial axes; pass an int, or a tuple of {n}"
        )
    return tuple([whole(who, name, part, low) for part in value])


def _pads(who: str, padding: Any, window: Shape, stride: Shape, dilation: Shape) -> Pads:
    """How many zeros stand before and behind each axis."""
    n = len(window)
    if type(padding) is int and padding >= 0:
        return ((padding, padding),) * n
    if isinstance(padding, str):
        word(who, "padding", padding, ("same", "valid"))
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
                f"{who}: padding={shown(padding)} for {n} spatial axes; pass a pair (before, "
                "after) for each"
            )
        pairs = [ints(who, "padding", p, 2, 0) for p in padding]
        return tuple([(before, after) for before, after in pairs])
    return tuple([(p, p) for p in ints(who, "padding", padding, n, 0)])


def slide_of(
    who: str,
    size: Shape,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
) -> Slide:
    """Read the options of windows over images of some spatial ``size``.

    Args:
        who: The op, for messages.
        size: Of the images, without padding.
        window: An int, or one for each axis; so are ``stride`` and ``dilation``.
        stride: From window to window.
        padding: Likewise, for both sides; or a pair for each axis; or "same" or "valid".
        dilation: From element to element of a window.

    Raises:
        ShapeError: Where an option does not have the length of ``size``, or no window fits.
        SettingError: Where a number is too small, or "same" meets a stride.
    """
    n = len(size)
    if not 1 <= n <= _MOST_AXES:
        raise ShapeError(
            f"{who}: {n} spatial axes; wanted are 1 to {_MOST_AXES}, behind those of samples and "
            "channels"
        )
    window = ints(who, "window", window, n)
    stride = ints(who, "stride", stride, n)
    dilation = ints(who, "dilation", dilation, n)
    pads = _pads(who, padding, window, stride, dilation)
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
    return Slide(size, window, stride, pads, dilation, tuple(count))


def spelled(slide: Slide) -> tuple[Shape, Pads, Shape]:
    """Stride, padding and dilation as a graph writes them."""
    return slide.stride, slide.pads, slide.dilation


def images(who: str, name: str, x: Any) -> Shape:
    """The shape of images, (samples, channels, then one to three spatial axes)."""
    shape: Shape = getattr(x, "shape", ())
    if not 3 <= len(shape) <= 2 + _MOST_AXES:
        raise ShapeError(
            f"{who}: {name} has shape {shape}; wanted is (samples, channels, then 1 to 3 spatial "
            "axes)"
        )
    return shape
