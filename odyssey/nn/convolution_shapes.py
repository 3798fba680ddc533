"""What fits a convolution and its transposes, and what they give of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import whole
from odyssey.errors import ShapeError
from odyssey.nn import convolving
from odyssey.nn.sliding import Slide, images, ints, slide_of
from odyssey.ops.structure.scatter import put_under
from odyssey.spec import Array, Shape, Spec
from odyssey.table.declare import Kernel

__all__ = [
    "common_dtype",
    "compiled",
    "convolved",
    "fitting",
    "fitting_image",
    "fitting_weight",
    "image_pulled",
    "weight_pulled",
]

# ------------------------------------------------------------------ shapes


def fitting(
    who: str, x: Any, weight: Any, bias: Any, options: tuple[Any, ...], n: int | None = None
) -> tuple[Slide, int]:
    """Where windows stand, and the number of groups, of a convolution whose shapes fit."""
    shape, window = _shape(x), _shape(weight)
    axes = len(shape) - 2 if n is None else n
    if len(shape) != axes + 2 or not 1 <= axes <= 3 or len(window) != len(shape):
        names = ", ".join(("depth", "height", "width")[-n:]) if n else "1 to 3 spatial axes"
        raise ShapeError(
            f"{who}: x {shape} with weight {window}; wanted are x (samples, channels, {names}) and "
            "weight (out, channels / groups, and the window)"
        )
    *rest, groups = options
    groups = _groups(who, groups, window[0], shape[1])
    if window[1] * groups != shape[1]:
        raise ShapeError(
            f"{who}: x {shape} has {shape[1]} channels, weight {window} is for {window[1]} in each "
            f"of {groups} groups; weight.shape[1] * groups must be x.shape[1]"
        )
    if bias is not None and _shape(bias) != window[:1]:
        raise ShapeError(
            f"{who}: bias {getattr(bias, 'shape', ())} for weight {window}; wanted is "
            f"({window[0]},)"
        )
    return slide_of(who, shape[2:], window[2:], *rest), groups


def _shape(x: Any) -> Shape:
    shape: Shape = getattr(x, "shape", ())
    return shape


def _groups(who: str, groups: Any, out: int, channels: int) -> int:
    groups = whole(who, "groups", groups, 1)
    if out % groups or channels % groups:
        raise ShapeError(
            f"{who}: {groups} groups do not divide {channels} channels and {out} of the result; "
            "pass a divisor of both"
        )
    return groups


def common_dtype(*operands: Any) -> np.dtype[Any]:
    """The dtype of a product of operands, some of which may be None."""
    return np.result_type(*[operand.dtype for operand in operands if operand is not None])


def fitting_image(
    who: str, y: Any, weight: Any, size: Any, options: tuple[Any, ...]
) -> tuple[Slide, int, Shape]:
    """The same for the transpose in the images, and the shape of these."""
    shape, window = images(who, "y", y), _shape(weight)
    if len(window) != len(shape):
        raise ShapeError(f"{who}: y {shape} with weight {window}; wanted are as many axes")
    groups = whole(who, "groups", options[-1], 1)
    size = ints(who, "size", size, len(shape) - 2, 0)
    whole_shape = (shape[0], window[1] * groups, *size)
    slide, groups = fitting(who, Spec(whole_shape, y.dtype), weight, None, options)
    _check_result(who, shape, (shape[0], window[0], *slide.counts))
    return slide, groups, whole_shape


def fitting_weight(
    who: str, y: Any, x: Any, window: Any, options: tuple[Any, ...]
) -> tuple[Slide, int, Shape]:
    """The same for the transpose in the weight, and the shape of this."""
    shape, size = images(who, "y", y), images(who, "x", x)
    if len(shape) != len(size):
        raise ShapeError(f"{who}: y {shape} with x {size}; wanted are as many axes")
    groups = _groups(who, options[-1], shape[1], size[1])
    window = ints(who, "window", window, len(size) - 2)
    whole_shape = (shape[1], size[1] // groups, *window)
    slide, groups = fitting(who, x, Spec(whole_shape, x.dtype), None, options)
    _check_result(who, shape, (size[0], shape[1], *slide.counts))
    return slide, groups, whole_shape


def _check_result(who: str, came: Shape, wanted: Shape) -> None:
    if came != wanted:
        raise ShapeError(
            f"{who}: y has shape {came}; with these options the convolution gives {wanted}"
        )


# ------------------------------------------------------------------ on arrays


def _computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What is computed in: half precision, for which there are no fast products, as single."""
    return np.dtype(np.float32) if dtype.char == "e" else dtype


def _over_three(x: Any, dtype: np.dtype[Any]) -> Array:
    """Images or a weight with three spatial axes."""
    x = np.asarray(x, dtype)
    return x.reshape(*x.shape[:2], *(1,) * (5 - x.ndim), *x.shape[2:])


def _under(shape: Shape, out: Array, dtype: np.dtype[Any]) -> Array:
    """An array that nobody else has under another shape, and no view, which would be copied."""
    whole = out if out.base is None else out.base
    if whole.dtype != dtype or whole.size != math.prod(shape) or not whole.flags.owndata:
        return np.array(out.reshape(shape), dtype)
    return put_under(whole, shape)


def convolved(
    who: str,
    x: Any,
    weight: Any,
    bias: Any,
    *options: Any,
    n: int | None = None,
    way: Any = convolving,
) -> Array:
    """The convolution of arrays, by ``way``, a module with the three products."""
    slide, groups = fitting(who, x, weight, bias, options, n)
    dtype = common_dtype(x, weight, bias)
    wide = _computed(dtype)
    bias = None if bias is None else np.asarray(bias, wide)
    images, rows = _over_three(x, wide), _over_three(weight, wide)
    out = way.convolve(images, rows, bias, slide.lifted(), groups)
    return _under((*out.shape[:2], *slide.counts), out, dtype)


def image_pulled(
    who: str, y: Any, weight: Any, size: Any, *options: Any, way: Any = convolving
) -> Array:
    """The transpose of the convolution in its images."""
    slide, groups, shape = fitting_image(who, y, weight, size, options)
    dtype = common_dtype(y, weight)
    wide = _computed(dtype)
    parts, rows = _over_three(y, wide), _over_three(weight, wide)
    out = way.pull_image(parts, rows, slide.lifted(), groups)
    return _under(shape, out, dtype)


def weight_pulled(
    who: str, y: Any, x: Any, window: Any, *options: Any, way: Any = convolving
) -> Array:
    """The transpose of the convolution in its weight."""
    slide, groups, shape = fitting_weight(who, y, x, window, options)
    dtype = common_dtype(y, x)
    wide = _computed(dtype)
    parts, images = _over_three(y, wide), _over_three(x, wide)
    out = way.pull_weight(parts, images, slide.lifted(), groups)
    return _under(shape, out, dtype)


# ------------------------------------------------------------------ compiled


def compiled(function: Callable[..., Any], *who: str, **settings: Any) -> Kernel:
    """The record of the kernel that runs one of the functions above by compiled loops."""

    def run(*values: Any) -> Any:
        from odyssey.nn import convolving_compiled

        return function(*who, *values, **settings, way=convolving_compiled)

    return Kernel("loops over windows", run, when=_in_full_precision)


def _in_full_precision(first: Any, second: Any, *others: Any) -> bool:
    found = {spec.dtype.char for spec in (first, second) if isinstance(spec, Spec)}
    return found in ({"f"}, {"d"})
