"""What fits a convolution and its transposes, and what they give of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import whole
from odyssey.errors import SettingError, ShapeError
from odyssey.linalg.matrix_products import matmul
from odyssey.nn.convolution import im2col
from odyssey.nn.convolution.unfold import fold, unfold
from odyssey.nn.sliding_windows import Slide, has_many_tiles, images, ints, slide_of, spelled
from odyssey.nn.unbatched import or_one
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.elementwise.choice import isfinite
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.arrangement import flip
from odyssey.ops.structure.indexing import add_at
from odyssey.ops.structure.scatter import put_under
from odyssey.ops.structure.shape import matrix_transpose, reshape, transpose
from odyssey.spec import Array, Shape, Spec
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.kernel_selection import are_kernels_compiled
from odyssey.table.samples import reject, sample

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
    way: Any = im2col,
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
    who: str, y: Any, weight: Any, size: Any, *options: Any, way: Any = im2col
) -> Array:
    """The transpose of the convolution in its images."""
    slide, groups, shape = fitting_image(who, y, weight, size, options)
    dtype = common_dtype(y, weight)
    wide = _computed(dtype)
    parts, rows = _over_three(y, wide), _over_three(weight, wide)
    out = way.pull_image(parts, rows, slide.lifted(), groups)
    return _under(shape, out, dtype)


def weight_pulled(who: str, y: Any, x: Any, window: Any, *options: Any, way: Any = im2col) -> Array:
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
        from odyssey.nn.convolution import compiled

        return function(*who, *values, **settings, way=compiled)

    return Kernel("loops over windows", run, when=_in_full_precision)


def _in_full_precision(first: Any, second: Any, *others: Any) -> bool:
    found = {spec.dtype.char for spec in (first, second) if isinstance(spec, Spec)}
    return found in ({"f"}, {"d"})


# A convolution of so few products for each result multiplies zeros rather than summing windows.
_FEW = 64


def convolution_in_ops(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """What a convolution equals."""
    slide, groups = fitting("convolution", x, weight, bias, (stride, padding, dilation, groups))
    height = math.prod(weight.shape[1:])
    rows = reshape(weight, (1, groups, weight.shape[0] // groups, height))
    columns = _columns(x, slide, groups)
    out = reshape(matmul(rows, columns), (x.shape[0], weight.shape[0], *slide.counts))
    return out if bias is None else add(out, over_places(bias, x.ndim - 2))


def convolved_natively(build: Any, x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """The same, unless its kernel takes the fewer products."""
    slide, groups = fitting("convolution", x, weight, bias, options)
    if _in_tiles(slide, x.shape[0], weight.shape, groups, x, weight):
        return NotImplemented
    return convolution_in_ops(x, weight, bias, *options)


def _in_tiles(slide: Slide, samples: int, weight: Shape, groups: int, *operands: Any) -> bool:
    """Whether a kernel computes tiles, of which a program knows nothing."""
    if {operand.dtype.char for operand in operands} not in ({"f"}, {"d"}):
        return False
    part, each = weight[1], weight[0] // groups
    return has_many_tiles(slide.lifted(), samples, part, each, groups) and are_kernels_compiled()


def over_places(bias: Any, n: int) -> Any:
    """A number for each channel in the shape in which it meets images."""
    return reshape(bias, (-1, *(1,) * n))


def _columns(x: Any, slide: Slide, groups: int) -> Any:
    stride, pads, dilation = spelled(slide)
    found = unfold(x, window=slide.window, stride=stride, padding=pads, dilation=dilation)
    height = x.shape[1] // groups * math.prod(slide.window)
    return reshape(found, (x.shape[0], groups, height, math.prod(slide.counts)))


def input_in_ops(
    y: Any, weight: Any, size: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """What its transpose in the images equals."""
    options = (stride, padding, dilation, groups)
    slide, groups, shape = fitting_image("convolution_input", y, weight, size, options)
    height, places = math.prod(weight.shape[1:]), math.prod(slide.counts)
    rows = reshape(weight, (1, groups, weight.shape[0] // groups, height))
    parts = reshape(y, (shape[0], groups, weight.shape[0] // groups, places))
    columns = reshape(matmul(matrix_transpose(rows), parts), (shape[0], groups * height, places))
    stride, pads, dilation = spelled(slide)
    return fold(
        columns,
        size=slide.size,
        window=slide.window,
        stride=stride,
        padding=pads,
        dilation=dilation,
    )


def input_natively(
    build: Any,
    y: Any,
    weight: Any,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
) -> Any:
    """The same, as a convolution with zeros around the results, and between few of them."""
    options = (stride, padding, dilation, groups)
    slide, groups, shape = fitting_image("convolution_input", y, weight, size, options)
    if _in_tiles(slide, shape[0], weight.shape, groups, y, weight):
        return NotImplemented
    few = weight.shape[0] // groups * math.prod(slide.window) <= _FEW
    back = slide.back() if few or set(slide.stride) == {1} else None
    if back is None:
        return input_in_ops(y, weight, size, *options)
    # What is infinite would make NaN of the zeros around and between.
    build.require(isfinite(weight))
    return _turned(_spread(y, slide.stride), weight, back, groups, shape)


def _spread(y: Any, stride: Shape) -> Any:
    """The results with zeros between them, as many as a window goes further."""
    if set(stride) == {1} or not y.size:
        return y
    size = [(n - 1) * s + 1 for n, s in zip(y.shape[2:], stride, strict=True)]
    key = (..., *(slice(None, None, s) for s in stride))
    return add_at(y, key, Spec((*y.shape[:2], *size), y.dtype))


def _turned(y: Any, weight: Any, back: Slide, groups: int, shape: Shape) -> Any:
    """The transpose in the images, as the convolution with the mirrored weight that it is."""
    out, channels, *window = weight.shape
    axes = tuple(range(3, 3 + len(window)))
    parts = flip(reshape(weight, (groups, out // groups, channels, *window)), axes)
    rows = reshape(
        transpose(parts, (0, 2, 1, *axes)), (1, groups, channels, out // groups * math.prod(window))
    )
    return reshape(matmul(rows, _columns(y, back, groups)), shape)


def weight_in_ops(
    y: Any, x: Any, window: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """What its transpose in the weight equals."""
    options = (stride, padding, dilation, groups)
    slide, groups, shape = fitting_weight("convolution_weight", y, x, window, options)
    parts = reshape(y, (x.shape[0], groups, shape[0] // groups, math.prod(slide.counts)))
    columns = matrix_transpose(_columns(x, slide, groups))
    return reshape(sum(matmul(parts, columns), 0), shape)


def weight_natively(build: Any, y: Any, x: Any, window: Any, *options: Any) -> Any:
    """The same, unless its kernel takes the fewer products."""
    slide, groups, shape = fitting_weight("convolution_weight", y, x, window, options)
    if _in_tiles(slide, x.shape[0], shape, groups, y, x):
        return NotImplemented
    return weight_in_ops(y, x, window, *options)


def bias_rule(g: Any) -> Any:
    """The cotangent of its bias."""
    if g.dtype.char == "e" or not g.size:
        return sum(g, (0, *range(2, g.ndim)))
    # A product takes a quarter of the time of a sum over axes that are not side by side.
    images, results, *counts = g.shape
    places = math.prod(counts)
    rows = matmul(reshape(g, (images * results, places)), np.ones(places, g.dtype))
    return sum(reshape(rows, (images, results)), 0)


# ------------------------------------------------------------------ rules


def x_rule(
    g: Any, weight: Any, x_spec: Spec, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """The cotangent of the images of a convolution."""
    return convolution_input(g, weight, x_spec.shape[2:], stride, padding, dilation, groups)


def weight_rule(
    g: Any, x: Any, weight_spec: Spec, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """The cotangent of its weight."""
    return convolution_weight(g, x, weight_spec.shape[2:], stride, padding, dilation, groups)


def _again(x: Any, weight: Any, *options: Any) -> Any:
    """The convolution without a bias, over as many axes as the images have."""
    row = (conv1d, conv2d, conv3d)[x.ndim - 3]
    stride, padding, dilation, groups = options
    return row(x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)


# ------------------------------------------------------------------ rows of convolutions


def _of_axes(n: int) -> dict[str, Any]:
    """What the rows of convolutions over n spatial axes have in common."""
    who = f"conv{n}d"

    def infer(x: Spec, weight: Spec, bias: Spec | None, *options: Any) -> Spec:
        slide, _ = fitting(who, x, weight, bias, options, n)
        return Spec((x.shape[0], weight.shape[0], *slide.counts), common_dtype(x, weight, bias))

    def canonical(x: Spec, weight: Spec, bias: Spec | None, *options: Any) -> tuple[Any, ...]:
        slide, groups = fitting(who, x, weight, bias, options, n)
        return (*spelled(slide), groups)

    return {
        "kernel": lambda x, weight, bias, *options: convolved(who, x, weight, bias, *options, n=n),
        "kernels": [compiled(convolved, who, n=n)],
        "infer": infer,
        "canonical": canonical,
        "decomposition": convolution_in_ops,
        "lowering": convolved_natively,
        "vjp": {"x": x_rule, "weight": weight_rule, "bias": bias_rule},
        "jvp": {
            "x": lambda t, weight, stride, padding, dilation, groups: _again(
                t, weight, stride, padding, dilation, groups
            ),
            "weight": lambda t, x, stride, padding, dilation, groups: _again(
                x, t, stride, padding, dilation, groups
            ),
            "bias": lambda t: over_places(t, n),
        },
        "rejects": _rejects(n),
    }


def _rejects(n: int) -> list[Any]:
    size, window = (5,) * n, (2,) * n
    return [
        reject((3,), (1, 1, 3), None, match=r"x \(3,\) with weight"),
        reject((1, 2, *size), (4, 3, *window), None, match=r"weight.shape\[1\] \* groups"),
        reject((1, 4, *size), (3, 2, *window), None, groups=2, match="do not divide"),
        reject((1, 2, *size), (4, 2, *window), (3,), match=r"bias \(3,\)"),
        reject((1, 2, *size), (4, 2, *window), None, dilation=9, match="spans 10, more than"),
        reject((1, 2, *size), (4, 2, *(0,) * n), None, match="must be at least 1", **_SETTING),
        reject((1, 2, *size), (4, 2, *window), None, stride=0, match="at least 1", **_SETTING),
        reject(
            *((1, 2, *size), (4, 2, *window), None),
            padding="same",
            stride=2,
            match="defined for stride 1 only",
            **_SETTING,
        ),
    ]


_SETTING: dict[str, Any] = {"error": SettingError}


@or_one
@op(
    **_of_axes(1),
    samples=[
        sample((2, 3, 6), (4, 3, 2), (4,)),
        sample((1, 4, 7), (4, 2, 3), None, stride=2, padding=((2, 0),), groups=2),
        sample((0, 2, 4), (1, 2, 4), (1,)),
    ],
)
def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Convolution along one axis; see ``conv2d``.

    Args:
        x: Signals (samples, channels, length).
        weight: Array (out, channels / groups, window).
        bias: A number for each of the ``out`` channels, or None.
        stride: As for ``conv2d``, an int or a tuple of one; so are the others.
        padding: Zeros around each signal.
        dilation: The distance between the elements of a window.
        groups: How many parts the channels are in.

    >>> conv1d(np.arange(4.0).reshape(1, 1, 4), np.array([[[1.0, 10.0]]]))
    array([[[10., 21., 32.]]])
    """
    return convolved("conv1d", x, weight, bias, stride, padding, dilation, groups, n=1)


@or_one
@op(
    **_of_axes(2),
    samples=[
        sample((2, 3, 4, 5), (4, 3, 2, 3), (4,)),
        sample((1, 4, 5, 4), (4, 2, 3, 2), None, padding="same", groups=2),
        sample((2, 2, 6, 5), (2, 1, 2, 2), (2,), stride=(3, 2), dilation=(1, 2), groups=2),
        sample((1, 1, 2, 3), (2, 1, 3, 3), (2,), padding=((1, 0), (0, 2))),
        sample((2, 3, 2, 2), (2, 3, 1, 1), None),
        sample((2, 0, 3, 3), (2, 0, 2, 2), (2,)),
    ],
)
def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Convolution of images: at each place the sum of a window of all channels times a weight.

    As in other libraries of neural networks the weight is not mirrored, so this is what statistics
    call a cross-correlation.

    Args:
        x: Images (samples, channels, height, width), or one without the first axis.
        weight: Array (out, channels / groups, window height, window width).
        bias: A number for each of the ``out`` channels, or None.
        stride: The distance between windows, an int or a pair.
        padding: Zeros around the images: an int; one for each axis; a pair (before, behind) for
            each axis; ``"valid"`` for none; or ``"same"`` for as many as give a result of the size
            of the images, which needs stride 1. Of an odd number the larger half is behind.
        dilation: The distance between the elements of a window, an int or a pair.
        groups: In so many parts the channels are, of the images and of the result, and each part
            of the result depends on its own part of the images.

    Returns:
        Images (samples, out, height, width), of which an axis of ``n`` elements has
        ``(n + padding - dilation * (window - 1) - 1) // stride + 1``.

    Raises:
        ShapeError: where shapes do not fit, or no window fits on an image.
        SettingError: where an option is out of its range.

    >>> image = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> conv2d(image, np.array([[[[1.0, 0.0], [0.0, 1.0]]]]))
    array([[[[ 4.,  6.],
             [10., 12.]]]])
    """
    return convolved("conv2d", x, weight, bias, stride, padding, dilation, groups, n=2)


@or_one
@op(
    **_of_axes(3),
    samples=[
        sample((1, 2, 3, 4, 3), (2, 2, 2, 3, 2), (2,)),
        sample((1, 2, 2, 3, 2), (2, 1, 2, 1, 2), None, stride=(1, 2, 1), padding=1, groups=2),
    ],
)
def conv3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Convolution along three axes; see ``conv2d``.

    Args:
        x: Volumes (samples, channels, depth, height, width).
        weight: Array (out, channels / groups, *window).
        bias: A number for each of the ``out`` channels, or None.
        stride: As for ``conv2d``, an int or a tuple of three; so are the others.
        padding: Zeros around each volume.
        dilation: The distance between the elements of a window.
        groups: How many parts the channels are in.

    >>> conv3d(np.ones((1, 1, 2, 2, 2)), np.ones((1, 1, 2, 2, 2)))
    array([[[[[8.]]]]])
    """
    return convolved("conv3d", x, weight, bias, stride, padding, dilation, groups, n=3)


# ------------------------------------------------------------------ rows of their transposes


def _input_spelled(y: Any, weight: Any, size: Any, *options: Any) -> tuple[Any, ...]:
    slide, groups, _ = fitting_image("convolution_input", y, weight, size, options)
    return (slide.size, *spelled(slide), groups)


def _weight_spelled(y: Any, x: Any, window: Any, *options: Any) -> tuple[Any, ...]:
    slide, groups, _ = fitting_weight("convolution_weight", y, x, window, options)
    return (slide.window, *spelled(slide), groups)


def _input_spec(y: Any, weight: Any, size: Any, *options: Any) -> Spec:
    _, _, shape = fitting_image("convolution_input", y, weight, size, options)
    return Spec(shape, common_dtype(y, weight))


def _weight_spec(y: Any, x: Any, window: Any, *options: Any) -> Spec:
    _, _, shape = fitting_weight("convolution_weight", y, x, window, options)
    return Spec(shape, common_dtype(y, x))


@op(
    kernels=[compiled(image_pulled, "convolution_input")],
    infer=_input_spec,
    decomposition=input_in_ops,
    lowering=input_natively,
    canonical=_input_spelled,
    vjp={
        "y": lambda g, weight, stride, padding, dilation, groups: _again(
            g, weight, stride, padding, dilation, groups
        ),
        "weight": lambda g, y, weight_spec, stride, padding, dilation, groups: convolution_weight(
            y, g, weight_spec.shape[2:], stride, padding, dilation, groups
        ),
    },
    jvp={
        "y": lambda t, weight, size, stride, padding, dilation, groups: convolution_input(
            t, weight, size, stride, padding, dilation, groups
        ),
        "weight": lambda t, y, size, stride, padding, dilation, groups: convolution_input(
            y, t, size, stride, padding, dilation, groups
        ),
    },
    samples=[
        sample((2, 4, 3, 3), (4, 3, 2, 3), size=(4, 5)),
        sample((2, 2, 3), (2, 2, 2), size=(6,), stride=2, padding=((1, 0),)),
        sample((1, 4, 3, 2), (4, 1, 2, 2), size=(3, 2), padding="same", groups=2),
        sample((1, 2, 1, 2, 1), (2, 2, 2, 1, 2), size=2, dilation=1),
        sample((0, 2, 2, 2), (2, 1, 2, 2), size=3),
    ],
    rejects=[
        reject((1, 2, 3), (2, 1, 2, 2), size=4, match="wanted are as many axes"),
        reject((1, 2, 3, 3), (2, 1, 2, 2), size=3, match=r"convolution gives \(1, 2, 2, 2\)"),
        reject((2, 3), (2, 1, 2), size=3, match=r"y has shape \(2, 3\)"),
    ],
)
def convolution_input(
    y: Any,
    weight: Any,
    /,
    size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Cotangent of the images of a convolution, from that of its result and its weight.

    It adds each element of ``y``, times the weight, where the convolution read its window.

    Args:
        y: Of the shape of the result, (samples, out, spatial axes).
        weight: The convolution's, (out, channels / groups, *window).
        size: The spatial size of the images: an int or one for each axis.
        stride: The convolution's; so are the others, see ``conv2d``.
        padding: Zeros that were around the images.
        dilation: The distance between the elements of a window.
        groups: How many parts the channels are in.

    Returns:
        Images (samples, channels, *size).

    >>> convolution_input(np.ones((1, 1, 2)), np.array([[[1.0, 10.0]]]), 3)
    array([[[ 1., 11., 10.]]])
    """
    return image_pulled("convolution_input", y, weight, size, stride, padding, dilation, groups)


@op(
    kernels=[compiled(weight_pulled, "convolution_weight")],
    infer=_weight_spec,
    decomposition=weight_in_ops,
    lowering=weight_natively,
    canonical=_weight_spelled,
    vjp={
        "y": lambda g, x, stride, padding, dilation, groups: _again(
            x, g, stride, padding, dilation, groups
        ),
        "x": lambda g, y, x_spec, stride, padding, dilation, groups: convolution_input(
            y, g, x_spec.shape[2:], stride, padding, dilation, groups
        ),
    },
    jvp={
        "y": lambda t, x, window, stride, padding, dilation, groups: convolution_weight(
            t, x, window, stride, padding, dilation, groups
        ),
        "x": lambda t, y, window, stride, padding, dilation, groups: convolution_weight(
            y, t, window, stride, padding, dilation, groups
        ),
    },
    samples=[
        sample((2, 4, 3, 3), (2, 3, 4, 5), window=(2, 3)),
        sample((2, 2, 3), (2, 2, 6), window=2, stride=2, padding=((1, 0),)),
        sample((1, 4, 3, 2), (1, 2, 3, 2), window=2, padding="same", groups=2),
        sample((1, 2, 1, 2, 1), (1, 2, 2, 2, 2), window=(2, 1, 2)),
        sample((0, 2, 2, 2), (0, 1, 3, 3), window=2),
    ],
    rejects=[
        reject((1, 2, 3), (1, 2, 3, 3), window=2, match="wanted are as many axes"),
        reject((1, 2, 3, 3), (1, 2, 3, 3), window=2, match=r"convolution gives \(1, 2, 2, 2\)"),
        reject((1, 2, 2, 2), (1, 3, 3, 3), window=2, groups=2, match="do not divide"),
    ],
)
def convolution_weight(
    y: Any,
    x: Any,
    /,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Cotangent of the weight of a convolution, from that of its result and its images.

    Args:
        y: Of the shape of the result, (samples, out, spatial axes).
        x: The images, (samples, channels, spatial axes).
        window: The size of a window, an int or one for each axis.
        stride: The convolution's; so are the others, see ``conv2d``.
        padding: Zeros around the images.
        dilation: The distance between the elements of a window.
        groups: How many parts the channels are in.

    Returns:
        An array (out, channels / groups, *window).

    >>> convolution_weight(np.ones((1, 1, 2)), np.array([[[1.0, 2.0, 3.0]]]), 2)
    array([[[3., 5.]]])
    """
    return weight_pulled("convolution_weight", y, x, window, stride, padding, dilation, groups)


publish(globals())
