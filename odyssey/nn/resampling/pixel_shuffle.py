"""Pixel shuffle and channel shuffle."""

from __future__ import annotations

from typing import Any

from odyssey.errors import SettingError, ShapeError
from odyssey.nn.pooling.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from odyssey.nn.sliding_windows import int_per_axis
from odyssey.ops.structure.shape import reshape, shape_of, transpose
from odyssey.spec import Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ interpolation

_AREAS = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
# How many spatial axes each is for; those for any number have none.
_MODES = {
    "nearest": None,
    "nearest-exact": None,
    "area": None,
    "linear": 1,
    "bilinear": 2,
    "trilinear": 3,
    "bicubic": 2,
}


def _channels_and_size(who: str, x: Any, least: int = 3) -> Shape:
    shape = shape_of(x)
    if len(shape) < least:
        raise ShapeError(f"{who}: x has shape {shape}; wanted is (..., channels, height, width)")
    return shape


@composite(
    samples=[
        sample((2, 8, 2, 3), upscale_factor=2),
        sample((9, 1, 2), upscale_factor=3),
        sample((0, 4, 2, 2), upscale_factor=2),
        sample((1, 2, 2, 2), upscale_factor=1),
    ],
    rejects=[
        reject((1, 6, 2, 2), upscale_factor=2, match="6 channels"),
        reject((4, 2), upscale_factor=2, match="channels, height, width"),
        reject((1, 4, 2, 2), upscale_factor=0, error=SettingError, match="at least 1"),
    ],
)
def pixel_shuffle(x: Any, *, upscale_factor: int) -> Any:
    """Pixel shuffle: rearrange (..., C r², H, W) to (..., C, H r, W r).

    W. Shi et al., Real-Time Single Image and Video Super-Resolution, 2016.

    Args:
        x: Images.
        upscale_factor: How many times as high and as wide they become, r.

    Raises:
        ShapeError: where the number of channels is not a multiple of r².

    >>> pixel_shuffle(np.arange(4.0).reshape(4, 1, 1), upscale_factor=2)
    array([[[0., 1.],
            [2., 3.]]])
    """
    *head, channels, height, width = _channels_and_size("pixel_shuffle", x)
    (r,) = int_per_axis("pixel_shuffle", "upscale_factor", upscale_factor, 1)
    if channels % (r * r):
        raise ShapeError(
            f"pixel_shuffle: x has {channels} channels, not a multiple of {r * r}, "
            f"the square of upscale_factor={r}"
        )
    n, kept = len(head), channels // (r * r)
    parts = reshape(x, (*head, kept, r, r, height, width))
    turned = transpose(parts, (*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    return reshape(turned, (*head, kept, height * r, width * r))


@composite(
    samples=[
        sample((2, 2, 4, 6), downscale_factor=2),
        sample((1, 3, 6), downscale_factor=3),
        sample((0, 1, 2, 2), downscale_factor=2),
        sample((1, 2, 2, 2), downscale_factor=1),
    ],
    rejects=[
        reject((1, 1, 3, 2), downscale_factor=2, match="multiples of 2"),
        reject((4, 2), downscale_factor=2, match="channels, height, width"),
        reject((1, 4, 2, 2), downscale_factor=0, error=SettingError, match="at least 1"),
    ],
)
def pixel_unshuffle(x: Any, *, downscale_factor: int) -> Any:
    """Pixel unshuffle: rearrange (..., C, H r, W r) to (..., C r², H, W).

    Undoes ``pixel_shuffle``.

    Args:
        x: Images.
        downscale_factor: What part of their height and width they keep, r.

    Raises:
        ShapeError: where height or width is not a multiple of r.

    >>> pixel_unshuffle(np.array([[[0.0, 1.0], [2.0, 3.0]]]), downscale_factor=2).ravel()
    array([0., 1., 2., 3.])
    """
    *head, channels, height, width = _channels_and_size("pixel_unshuffle", x)
    (r,) = int_per_axis("pixel_unshuffle", "downscale_factor", downscale_factor, 1)
    if height % r or width % r:
        raise ShapeError(
            f"pixel_unshuffle: images of {height} by {width}, not multiples of {r}, "
            "the downscale_factor"
        )
    n = len(head)
    parts = reshape(x, (*head, channels, height // r, r, width // r, r))
    turned = transpose(parts, (*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return reshape(turned, (*head, channels * r * r, height // r, width // r))


@composite(
    samples=[sample((2, 6, 2), groups=3), sample((1, 4), groups=2), sample((0, 4, 1), groups=4)],
    rejects=[
        reject((1, 5, 2), groups=2, match="5 channels"),
        reject((4,), groups=2, match="samples, channels"),
        reject((1, 4), groups=0, error=SettingError, match="at least 1"),
    ],
)
def channel_shuffle(x: Any, *, groups: int) -> Any:
    """Channel shuffle: the first channel of each group, then the second of each, and so on.

    X. Zhang et al., ShuffleNet, 2018.

    Args:
        x: Any samples, their channels on axis 1.
        groups: How many groups the channels form.

    Raises:
        ShapeError: where the number of channels is not a multiple of ``groups``.

    >>> channel_shuffle(np.arange(6).reshape(1, 6), groups=2)
    array([[0, 3, 1, 4, 2, 5]])
    """
    shape = shape_of(x)
    (count,) = int_per_axis("channel_shuffle", "groups", groups, 1)
    if len(shape) < 2:
        raise ShapeError(
            f"channel_shuffle: x has shape {shape}; wanted is (samples, channels, ...)"
        )
    if shape[1] % count:
        raise ShapeError(
            f"channel_shuffle: x has {shape[1]} channels, not a multiple of {count} groups"
        )
    parts = reshape(x, (shape[0], count, shape[1] // count, *shape[2:]))
    turned = transpose(parts, (0, 2, 1, *range(3, len(shape) + 1)))
    return reshape(turned, shape)


publish(globals())
