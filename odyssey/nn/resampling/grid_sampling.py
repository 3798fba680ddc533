"""Grid sampling and affine grids (spatial transformer networks).

M. Jaderberg et al., Spatial Transformer Networks, 2015.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from odyssey.checks import check_choice, check_flag, check_int, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_floating
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.linalg.matrix_products import matmul
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.elementwise.choice import (
    greater_equal,
    isnan,
    less_equal,
    logical_and,
    logical_or,
    where,
)
from odyssey.ops.elementwise.clipping import clip
from odyssey.ops.elementwise.rounding import floor, mod, rint
from odyssey.ops.structure.gathering import take_along_axis
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.shape import astype, matrix_transpose, reshape, shape_of
from odyssey.spec import Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

_MODES = ("bilinear", "nearest")
_PADDINGS = ("zeros", "border", "reflection")

# ------------------------------------------------------------------ positions


def _to_pixels(places: Any, length: int, align_corners: bool) -> Any:
    """Map positions from -1 to 1 to those of elements, counted from 0."""
    if align_corners:
        return mul(add(places, 1), (length - 1) / 2)
    return sub(mul(add(places, 1), length / 2), 0.5)


def _reflect(places: Any, low: float, high: float) -> Any:
    """Reflect positions between two ends."""
    span = high - low
    if span <= 0:
        return mul(places, 0.0)
    there = mod(sub(places, low), 2 * span)
    back = sub(2 * span, there)
    return add(where(less_equal(there, span), there, back), low)


def _pad_positions(places: Any, length: int, padding: str, align_corners: bool) -> Any:
    """Move positions onto elements, as the padding mode says."""
    if padding == "zeros":  # beyond is outside, and infinite positions would give NaN weights
        return clip(places, -2.0, length + 1.0)
    if padding == "reflection":
        ends = (0.0, length - 1.0) if align_corners else (-0.5, length - 0.5)
        places = _reflect(places, *ends)
    return clip(places, 0.0, length - 1.0)


def _axis_neighbours(places: Any, length: int, mode: str) -> list[tuple[Any, Any, Any]]:
    """Return indices, a mask of those inside, and weights or None, of the elements read on an axis.

    Linear weights treat a NaN position as inside, so that the result is NaN; it has no nearest
    element.
    """
    odd = isnan(places)
    found = []
    left = (rint if mode == "nearest" else floor)(places)
    for k in range(1 if mode == "nearest" else 2):
        at = add(left, k)
        inside = logical_and(greater_equal(at, 0), less_equal(at, length - 1))
        # Clipped before the cast, since large numbers do not fit an integer.
        indices = astype(clip(where(odd, 0, at), 0, length - 1), np.intp)
        weights = None
        if mode == "bilinear":
            inside = logical_or(inside, odd)
            share = sub(places, left)
            weights = share if k else sub(1, share)
        found.append((indices, inside, weights))
    return found


# ------------------------------------------------------------------ grid_sample


def _check_grid(x: Any, grid: Any, mode: str, padding_mode: str) -> None:
    shape, places = shape_of(x), shape_of(grid)
    dims = len(shape) - 2
    if dims not in (2, 3):
        raise ShapeError(
            f"grid_sample: x has shape {shape}; wanted are samples, channels, and 2 or 3 spatial "
            "axes"
        )
    if len(places) != len(shape) or places[0] != shape[0] or places[-1] != dims:
        raise ShapeError(
            f"grid_sample: grid {places} for x {shape}; wanted are {shape[0]} samples, {dims} "
            f"spatial axes, and {dims} numbers for each place"
        )
    if 0 in shape[2:]:
        raise ShapeError(
            f"grid_sample: x has shape {shape}; an array without elements cannot be sampled"
        )
    for name, array in (("x", x), ("grid", grid)):
        if not is_floating(array.dtype):
            raise DTypeError(f"grid_sample: {name} of {array.dtype}; pass real floating numbers")
    check_choice("grid_sample", "mode", mode, _MODES)
    check_choice("grid_sample", "padding_mode", padding_mode, _PADDINGS)


# Places inside, between elements, on them, at the border and outside.
_GRID = np.array(
    [[[-0.9, -0.4], [0.1, 0.35], [1.4, 0.2]], [[0.55, -1.7], [-0.3, 0.8], [2.6, -2.3]]]
)[None]
_PLANES = np.array([[[[[0.1, -0.3, 0.4], [1.3, 0.2, -0.6]]]]])


@composite(
    samples=[
        sample((1, 2, 3, 4), _GRID),
        sample((1, 2, 3, 4), _GRID, align_corners=True),
        sample((1, 1, 3, 2), _GRID, padding_mode="border"),
        sample((1, 1, 3, 4), _GRID, padding_mode="reflection"),
        sample((1, 1, 2, 3), _GRID, padding_mode="reflection", align_corners=True),
        sample((1, 2, 3, 2), _GRID, mode="nearest", padding_mode="reflection"),
        sample((1, 2, 2, 3), _GRID, mode="nearest"),
        sample((1, 1, 1, 1), _GRID, padding_mode="reflection", align_corners=True),
        sample((1, 1, 2, 3, 2), _PLANES),
        sample((2, 1, 2, 2), (2, 1, 3, 2), padding_mode="border"),
        sample((0, 1, 2, 2), (0, 3, 1, 2)),
    ],
    rejects=[
        reject((1, 2, 3), (1, 2, 3), match="2 or 3 spatial"),
        reject((1, 2, 3, 4), (2, 3, 3, 2), match="1 samples"),
        reject((1, 2, 3, 4), (1, 3, 3, 3), match="2 numbers for each"),
        reject((1, 2, 0, 4), (1, 3, 3, 2), match="without elements"),
        reject(np.ones((1, 1, 2, 2), int), (1, 3, 3, 2), error=DTypeError, match="floating"),
        reject((1, 1, 2, 2), (1, 1, 1, 2), mode="bicubic", error=SettingError, match="choose"),
        reject((1, 1, 2, 2), (1, 1, 1, 2), padding_mode="wrap", error=SettingError, match="choose"),
        reject(
            (1, 1, 2, 2), (1, 1, 1, 2), align_corners="no", error=DTypeError, match="not a flag"
        ),
    ],
)
def grid_sample(
    x: Any,
    grid: Any,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Any:
    """Images read at places of a grid, from -1 to 1 along each axis, and between them.

    Args:
        x: Images, (samples, channels, height, width), or volumes, with a depth before the height.
        grid: For each element of the result the place that it is read at: (samples, height, width,
            2), with the horizontal number first; of volumes (samples, depth, height, width, 3).
        mode: ``"bilinear"``, by the distances to the elements around; or ``"nearest"``.
        padding_mode: What is outside: ``"zeros"``, the ``"border"``, or the ``"reflection"``.
        align_corners: Whether -1 and 1 mean the first and last elements, instead of the corners of
            the image.

    Returns:
        Images of the height and width of the grid. The derivative in a place between two cells is
        that of the cell to its right; of the nearest element it is 0.

    Raises:
        ShapeError: for other shapes. DTypeError: for other than real floating numbers.
        SettingError: for an unknown mode or padding.

    >>> x = np.array([[[[0.0, 1.0], [2.0, 3.0]]]])
    >>> grid_sample(x, np.array([[[[0.0, 0.0], [0.5, -0.5]]]]))
    array([[[[1.5, 1. ]]]])
    """
    x = x if hasattr(x, "dtype") else as_array("grid_sample", "x", x)
    grid = grid if hasattr(grid, "dtype") else as_array("grid_sample", "grid", grid)
    _check_grid(x, grid, mode, padding_mode)
    check_flag("grid_sample", "align_corners", align_corners)
    samples, channels, *lengths = shape_of(x)
    size = shape_of(grid)[1:-1]
    count = math.prod(size)
    axes = []
    for k, length in enumerate(lengths):
        places = getitem(grid, (..., len(lengths) - 1 - k))
        places = reshape(places, (samples, 1, count))
        places = _to_pixels(places, length, align_corners)
        places = _pad_positions(places, length, padding_mode, align_corners)
        axes.append(_axis_neighbours(places, length, mode))
    flat = reshape(x, (samples, channels, math.prod(lengths)))
    total: Any = None
    for corner in product(*axes):
        part = _corner_term(flat, corner, lengths)
        total = part if total is None else add(total, part)
    return reshape(total, (samples, channels, *size))


def _corner_term(flat: Any, corner: Any, lengths: list[int]) -> Any:
    """Return the contribution of one neighbour of each position; 0 outside."""
    index: Any = 0
    inside: Any = True
    weight: Any = None
    for (indices, fits, own), length in zip(corner, lengths, strict=True):
        index = add(mul(index, length), indices)
        inside = logical_and(inside, fits)
        if own is not None:
            weight = own if weight is None else mul(weight, own)
    found = where(inside, take_along_axis(flat, index, axis=2), 0)
    return found if weight is None else mul(found, weight)


# ------------------------------------------------------------------ affine maps


def _axis_positions(length: int, align_corners: bool) -> Any:
    """The middles of elements, from -1 to 1; of one element 0."""
    if align_corners:
        return np.linspace(-1.0, 1.0, length) if length > 1 else np.zeros(length)
    return (2 * np.arange(length) + 1) / length - 1 if length else np.zeros(0)


def _read_image_size(size: Any) -> Shape:
    if not isinstance(size, (tuple, list)) or len(size) not in (4, 5):
        raise ShapeError(
            f"affine_grid: size={format_value(size)}; pass that of the images, (samples, channels, "
            "height, width), or of volumes"
        )
    return tuple([check_int("affine_grid", "size", n, 0) for n in size])


@composite(
    samples=[
        sample((2, 2, 3), size=(2, 1, 3, 2)),
        sample((1, 2, 3), size=(1, 3, 2, 4), align_corners=True),
        sample((1, 3, 4), size=(1, 1, 2, 1, 3)),
        sample((1, 2, 3), size=(1, 1, 1, 1), align_corners=True),
        sample((0, 2, 3), size=(0, 1, 2, 2)),
    ],
    rejects=[
        reject((1, 2, 3), size=(1, 2, 3), match="pass that of the images"),
        reject((1, 3, 4), size=(1, 1, 2, 2), match=r"wanted is \(1, 2, 3\)"),
        reject((2, 2, 3), size=(1, 1, 2, 2), match=r"wanted is \(1, 2, 3\)"),
        reject(np.ones((1, 2, 3), int), size=(1, 1, 2, 2), error=DTypeError, match="floating"),
    ],
)
def affine_grid(theta: Any, size: Any, *, align_corners: bool = False) -> Any:
    """The places that affine maps give to the elements of images, for ``grid_sample``.

    Args:
        theta: A map for each sample, (samples, 2, 3), of horizontal and vertical numbers from -1 to
            1 and of 1; of volumes (samples, 3, 4).
        size: Of the images: (samples, channels, height, width), of volumes with a depth before.
        align_corners: Whether -1 and 1 mean the first and last elements, instead of the corners of
            the image.

    Returns:
        A grid, (samples, height, width, 2), of volumes (samples, depth, height, width, 3).

    Raises:
        ShapeError: for a size of other than 4 or 5 axes, and maps that do not fit it.
        DTypeError: for maps of other than real floating numbers.

    >>> affine_grid(np.array([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).round(6)
    array([[[[0., 0.],
             [1., 0.]]]])
    """
    theta = theta if hasattr(theta, "dtype") else as_array("affine_grid", "theta", theta)
    check_flag("affine_grid", "align_corners", align_corners)
    samples, _, *lengths = _read_image_size(size)
    dims = len(lengths)
    if shape_of(theta) != (samples, dims, dims + 1):
        raise ShapeError(
            f"affine_grid: theta has shape {shape_of(theta)}; for size={format_value(size)} wanted "
            f"is {(samples, dims, dims + 1)}"
        )
    if not is_floating(theta.dtype):
        raise DTypeError(f"affine_grid: theta of {theta.dtype}; pass real floating numbers")
    spots = np.meshgrid(*[_axis_positions(n, align_corners) for n in lengths], indexing="ij")
    base = np.stack([*reversed(spots), np.ones(lengths)], -1).astype(theta.dtype)
    turned = matmul(base.reshape(-1, dims + 1), matrix_transpose(theta))
    return reshape(turned, (samples, *lengths, dims))


publish(globals())
