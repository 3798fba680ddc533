"""Interpolation of images."""

from __future__ import annotations

from math import floor
from typing import Any

from odyssey.autocasting import widened_half
from odyssey.checks import check_choice, check_number, format_value
from odyssey.devices.arrays import as_array
from odyssey.errors import SettingError, ShapeError
from odyssey.nn.pooling.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from odyssey.nn.resampling.axis_resampling import nearest_indices, sampled
from odyssey.nn.sliding_windows import int_per_axis
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.shape import shape_of
from odyssey.spec import Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

_AREA_POOLS = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
# The number of spatial axes of each mode; None for any number.
_MODES = {
    "nearest": None,
    "nearest-exact": None,
    "area": None,
    "linear": 1,
    "bilinear": 2,
    "trilinear": 3,
    "bicubic": 2,
}


def _new_lengths(given: Shape, size: Any, scale: Any) -> tuple[Shape, list[float]]:
    """Return the new lengths, and the distance of new elements in units of the old ones."""
    dims = len(given)
    if (size is None) == (scale is None):
        raise SettingError(
            f"interpolate: size={format_value(size)} and scale={format_value(scale)}; pass one of "
            "them"
        )
    if size is not None:
        wanted = int_per_axis("interpolate", "size", size, dims)
        return wanted, [n / m for n, m in zip(given, wanted, strict=True)]
    scales = scale if isinstance(scale, (tuple, list)) else (scale,) * dims
    if len(scales) != dims:
        raise ShapeError(
            f"interpolate: scale={format_value(scale)} for {dims} spatial axes; pass a number, or "
            f"a tuple of {dims}"
        )
    factors = [check_number("interpolate", "scale", s, "(0, inf)") for s in scales]
    wanted = tuple([floor(n * s) for n, s in zip(given, factors, strict=True)])
    if 0 in wanted:
        raise ShapeError(
            f"interpolate: scale={format_value(scale)} leaves nothing of axes of {given}"
        )
    return wanted, [1 / s for s in factors]


def _check_mode(x: Any, mode: str, align_corners: bool) -> Shape:
    """Return the lengths of the spatial axes, if the mode supports so many."""
    check_choice("interpolate", "mode", mode, tuple(_MODES))
    shape = shape_of(x)
    dims = len(shape) - 2
    if not 1 <= dims <= 3 or _MODES[mode] not in (None, dims):
        wanted = "1 to 3" if _MODES[mode] is None else str(_MODES[mode])
        raise ShapeError(
            f"interpolate: x has shape {shape}; wanted for mode={mode!r} are samples, channels, "
            f"and {wanted} spatial axes"
        )
    if align_corners and mode in ("nearest", "nearest-exact", "area"):
        raise SettingError(
            f"interpolate: align_corners=True with mode={mode!r}, which has no corners; drop it"
        )
    if 0 in shape[2:]:
        raise ShapeError(
            f"interpolate: x has shape {shape}; an array without elements cannot be resized"
        )
    return shape[2:]


@composite(
    samples=[
        sample((1, 2, 3), size=6),
        sample((1, 2, 4), size=3, mode="nearest-exact"),
        sample((1, 2, 4), scale=1.5, mode="linear"),
        sample((1, 2, 2, 3), size=(5, 2), mode="bilinear"),
        sample((1, 2, 2, 3), scale=(2, 3), mode="bilinear", align_corners=True),
        sample((1, 1, 3, 4), size=(4, 7), mode="bicubic"),
        sample((1, 1, 3, 4), size=(1, 5), mode="bicubic", align_corners=True),
        sample((1, 1, 2, 3, 2), size=(3, 3, 4), mode="trilinear"),
        sample((1, 1, 4, 3), size=(2, 2), mode="area"),
        sample((0, 2, 2, 3), size=4, mode="bilinear"),
    ],
    rejects=[
        reject((1, 2, 3), error=SettingError, match="pass one of them"),
        reject((1, 2, 3), size=4, scale=2, error=SettingError, match="pass one of them"),
        reject((1, 2, 3), size=4, mode="bilinear", match="2 spatial axes"),
        reject((1, 2, 3), size=4, mode="cubic", error=SettingError, match="choose"),
        reject((1, 2, 3), size=4, align_corners=True, error=SettingError, match="no corners"),
        reject((2, 3), size=4, match="spatial axes"),
        reject((1, 2, 3), scale=0.1, match="leaves nothing"),
        reject((1, 2, 0), size=3, match="without elements"),
        reject((1, 2, 3, 3), size=(3, 3, 3), match="for 2 spatial axes"),
    ],
)
def interpolate(
    x: Any,
    *,
    size: Any = None,
    scale: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Any:
    """Images of another size, each element made of those that lie around its place.

    Args:
        x: Signals, images or volumes, (samples, channels, then 1 to 3 spatial axes).
        size: The new lengths of the spatial axes; a number for all of them.
        scale: Instead of ``size``, how many times as long they become; the fraction is dropped.
        mode: ``"nearest"`` or, by the middle of elements, ``"nearest-exact"``; ``"linear"``,
            ``"bilinear"`` or ``"trilinear"``, by the number of spatial axes; ``"bicubic"`` for
            images; ``"area"``, the mean of what an element covers.
        align_corners: Whether the first and last elements keep their places, instead of the
            corners of the image.

    Returns:
        The same samples and channels; of floating numbers but where elements are copied.

    Raises:
        ShapeError: where the spatial axes are not those of the mode, or have no elements.
        SettingError: for another mode, ``size`` and ``scale`` together, or neither.

    >>> x = np.array([[[0.0, 4.0]]])
    >>> interpolate(x, size=4), interpolate(x, size=4, mode="linear")
    (array([[[0., 0., 4., 4.]]]), array([[[0., 1., 3., 4.]]]))
    """
    x = widened_half(x if hasattr(x, "dtype") else as_array("interpolate", "x", x))
    given = _check_mode(x, mode, align_corners)
    wanted, steps = _new_lengths(given, size, scale)
    if mode == "area":
        return _AREA_POOLS[len(given) - 1](x, size=wanted)
    kind = mode if mode.startswith("nearest") else "cubic" if mode == "bicubic" else "linear"
    copied = x.dtype.kind in "biu" and kind.startswith("nearest")
    for k in reversed(range(len(given))):
        axis, lengths = k - len(given), (given[k], wanted[k])
        if copied:  # integers stay so
            x = take(x, nearest_indices(*lengths, mode, steps[k]), axis)
        else:
            x = sampled(x, axis, lengths, kind, steps[k], align_corners)
    return x


publish(globals())
