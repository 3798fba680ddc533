"""Convolution over one to three spatial axes.

Three functions are linear in each of their two operands, and each is the derivative of the others:
``conv1d`` to ``conv3d``; ``convolution_input``, the transpose in the images;
``convolution_weight``, the transpose in the weight. So derivatives of all orders are among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import check_int
from odyssey.errors import SettingError, ShapeError
from odyssey.linalg.matrix_products import matmul
from odyssey.nn.convolution import im2col
from odyssey.nn.convolution.batching import batch_images, batch_weight
from odyssey.nn.convolution.unfold import fold, unfold
from odyssey.nn.sliding_windows import (
    WindowGrid,
    grid_options,
    image_shape,
    int_per_axis,
    prefers_winograd,
    prefers_winograd_call,
    window_grid,
)
from odyssey.nn.spatial_families import with_spatial_terms
from odyssey.nn.unbatched import accept_unbatched
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.elementwise.choice import isfinite
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.arrangement import flip
from odyssey.ops.structure.batching import example_specs
from odyssey.ops.structure.indexing import add_at
from odyssey.ops.structure.scatter import set_shape
from odyssey.ops.structure.shape import matrix_transpose, reshape, transpose
from odyssey.spec import Array, Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.kernel_selection import are_kernels_compiled
from odyssey.table.samples import Sample, reject, sample

# ------------------------------------------------------------------ shapes


def conv_grid(
    who: str, x: Any, weight: Any, bias: Any, options: tuple[Any, ...], n: int | None = None
) -> tuple[WindowGrid, int]:
    """Return the window grid and the number of groups of a convolution whose shapes fit."""
    shape, window = _shape_or_empty(x), _shape_or_empty(weight)
    axes = len(shape) - 2 if n is None else n
    if len(shape) != axes + 2 or not 1 <= axes <= 3 or len(window) != len(shape):
        names = ", ".join(("depth", "height", "width")[-n:]) if n else "1 to 3 spatial axes"
        raise ShapeError(
            f"{who}: x {shape} with weight {window}; wanted are x (samples, channels, {names}) and "
            "weight (out, channels / groups, and the window)"
        )
    *rest, groups = options
    groups = _check_groups(who, groups, window[0], shape[1])
    if window[1] * groups != shape[1]:
        raise ShapeError(
            f"{who}: x {shape} has {shape[1]} channels, weight {window} is for {window[1]} in each "
            f"of {groups} groups; weight.shape[1] * groups must be x.shape[1]"
        )
    if bias is not None and _shape_or_empty(bias) != window[:1]:
        raise ShapeError(
            f"{who}: bias {getattr(bias, 'shape', ())} for weight {window}; wanted is "
            f"({window[0]},)"
        )
    return window_grid(who, shape[2:], window[2:], *rest), groups


def _shape_or_empty(x: Any) -> Shape:
    shape: Shape = getattr(x, "shape", ())
    return shape


def _check_groups(who: str, groups: Any, out: int, channels: int) -> int:
    groups = check_int(who, "groups", groups, 1)
    if out % groups or channels % groups:
        raise ShapeError(
            f"{who}: {groups} groups do not divide {channels} channels and {out} of the result; "
            "pass a divisor of both"
        )
    return groups


def common_dtype(*operands: Any) -> np.dtype[Any]:
    """Return the dtype of a product of operands, some of which may be None."""
    return np.result_type(*[operand.dtype for operand in operands if operand is not None])


def input_grid(
    who: str, y: Any, weight: Any, size: Any, options: tuple[Any, ...]
) -> tuple[WindowGrid, int, Shape]:
    """Return grid, groups and shape of the images, for the transpose in the images."""
    shape, window = image_shape(who, "y", y), _shape_or_empty(weight)
    if len(window) != len(shape):
        raise ShapeError(f"{who}: y {shape} with weight {window}; both must have equally many axes")
    groups = check_int(who, "groups", options[-1], 1)
    size = int_per_axis(who, "size", size, len(shape) - 2, 0)
    whole_shape = (shape[0], window[1] * groups, *size)
    grid, groups = conv_grid(who, Spec(whole_shape, y.dtype), weight, None, options)
    _check_cotangent(who, shape, (shape[0], window[0], *grid.counts))
    return grid, groups, whole_shape


def weight_grid(
    who: str, y: Any, x: Any, window: Any, options: tuple[Any, ...]
) -> tuple[WindowGrid, int, Shape]:
    """Return grid, groups and shape of the weight, for the transpose in the weight."""
    shape, size = image_shape(who, "y", y), image_shape(who, "x", x)
    if len(shape) != len(size):
        raise ShapeError(f"{who}: y {shape} with x {size}; both must have equally many axes")
    groups = _check_groups(who, options[-1], shape[1], size[1])
    window = int_per_axis(who, "window", window, len(size) - 2)
    whole_shape = (shape[1], size[1] // groups, *window)
    grid, groups = conv_grid(who, x, Spec(whole_shape, x.dtype), None, options)
    _check_cotangent(who, shape, (size[0], shape[1], *grid.counts))
    return grid, groups, whole_shape


def _check_cotangent(who: str, came: Shape, wanted: Shape) -> None:
    if came != wanted:
        raise ShapeError(
            f"{who}: y has shape {came}; with these options the convolution gives {wanted}"
        )


# ------------------------------------------------------------------ on arrays


def _compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to compute in: half precision, for which products are slow, as single."""
    return np.dtype(np.float32) if dtype.char == "e" else dtype


def _to_5d(x: Any, dtype: np.dtype[Any]) -> Array:
    """Return images or a weight with three spatial axes."""
    x = np.asarray(x, dtype)
    return x.reshape(*x.shape[:2], *(1,) * (5 - x.ndim), *x.shape[2:])


def _with_shape(shape: Shape, out: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array under another shape, without a view, which would be copied later."""
    whole = out if out.base is None else out.base
    if whole.dtype != dtype or whole.size != math.prod(shape) or not whole.flags.owndata:
        return np.array(out.reshape(shape), dtype)
    return set_shape(whole, shape)


def convolve_arrays(
    who: str,
    x: Any,
    weight: Any,
    bias: Any,
    *options: Any,
    n: int | None = None,
    backend: Any = im2col,
) -> Array:
    """Convolve arrays by ``backend``, a module with the convolution and its two transposes."""
    grid, groups = conv_grid(who, x, weight, bias, options, n)
    dtype = common_dtype(x, weight, bias)
    wide = _compute_dtype(dtype)
    bias = None if bias is None else np.asarray(bias, wide)
    images, rows = _to_5d(x, wide), _to_5d(weight, wide)
    out = backend.convolve(images, rows, bias, grid.to_3d(), groups)
    return _with_shape((*out.shape[:2], *grid.counts), out, dtype)


def input_vjp_arrays(
    who: str, y: Any, weight: Any, size: Any, *options: Any, backend: Any = im2col
) -> Array:
    """Return the transpose of the convolution in its images."""
    grid, groups, shape = input_grid(who, y, weight, size, options)
    dtype = common_dtype(y, weight)
    wide = _compute_dtype(dtype)
    parts, rows = _to_5d(y, wide), _to_5d(weight, wide)
    out = backend.conv_input_vjp(parts, rows, grid.to_3d(), groups)
    return _with_shape(shape, out, dtype)


def weight_vjp_arrays(
    who: str, y: Any, x: Any, window: Any, *options: Any, backend: Any = im2col
) -> Array:
    """Return the transpose of the convolution in its weight."""
    grid, groups, shape = weight_grid(who, y, x, window, options)
    dtype = common_dtype(y, x)
    wide = _compute_dtype(dtype)
    parts, images = _to_5d(y, wide), _to_5d(x, wide)
    out = backend.conv_weight_vjp(parts, images, grid.to_3d(), groups)
    return _with_shape(shape, out, dtype)


# ------------------------------------------------------------------ compiled


def compiled_kernel(function: Callable[..., Any], *who: str, **settings: Any) -> Kernel:
    """Return the kernel record that runs one of the functions above with compiled loops."""

    def run(*values: Any) -> Any:
        from odyssey.nn.convolution import compiled

        return function(*who, *values, **settings, backend=compiled)

    return Kernel("loops over windows", run, when=_is_single_or_double)


def _is_single_or_double(first: Any, second: Any, *others: Any) -> bool:
    found = {spec.dtype.char for spec in (first, second) if isinstance(spec, Spec)}
    return found in ({"f"}, {"d"})


# With so few products for each result the transpose runs as a convolution that multiplies zeros,
# instead of summing windows.
_FEW = 64


def conv_decomposition(x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """Convolution in ops: unfolded windows as columns, times the weight."""
    grid, groups = conv_grid("convolution", x, weight, bias, options)
    height = math.prod(weight.shape[1:])
    rows = reshape(weight, (1, groups, weight.shape[0] // groups, height))
    columns = _unfolded_columns(x, grid, groups)
    out = reshape(matmul(rows, columns), (x.shape[0], weight.shape[0], *grid.counts))
    return out if bias is None else add(out, expand_bias(bias, x.ndim - 2))


def lower_conv(build: Any, x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """Lower a convolution to its decomposition."""
    return conv_decomposition(x, weight, bias, *options)


def guess_conv(x: Any, weight: Any, bias: Any, *options: Any) -> str:
    """Return the guessed way of a convolution."""
    grid, groups = conv_grid("convolution", x, weight, bias, options)
    winograd = _runs_winograd(grid, x.shape[0], weight.shape, groups, x, weight)
    return "called" if winograd else "compiled"


def _runs_winograd(
    grid: WindowGrid,
    samples: int,
    weight: Shape,
    groups: int,
    *operands: Any,
    weight_vjp: bool = False,
) -> bool:
    """Return whether a host call computes Winograd tiles, faster than the loops of a program."""
    # Compiled or called, halves are computed in single precision.
    dtypes = {operand.dtype.char.replace("e", "f") for operand in operands}
    if dtypes not in ({"f"}, {"d"}):
        return False
    grid, in_channels, out_channels = grid.to_3d(), weight[1], weight[0] // groups
    return (
        prefers_winograd(grid, samples, in_channels, out_channels, groups)
        and prefers_winograd_call(grid, samples, in_channels, out_channels, weight_vjp)
        and are_kernels_compiled()
    )


def expand_bias(bias: Any, n: int) -> Any:
    """Reshape a bias so that it broadcasts to images with ``n`` spatial axes."""
    return reshape(bias, (-1, *(1,) * n))


def _unfolded_columns(x: Any, grid: WindowGrid, groups: int) -> Any:
    stride, pads, dilation = grid_options(grid)
    found = unfold(x, window=grid.window, stride=stride, padding=pads, dilation=dilation)
    height = x.shape[1] // groups * math.prod(grid.window)
    return reshape(found, (x.shape[0], groups, height, math.prod(grid.counts)))


def input_decomposition(y: Any, weight: Any, size: Any, *options: Any) -> Any:
    """Transpose of the convolution in its images, in ops."""
    grid, groups, shape = input_grid("convolution_input", y, weight, size, options)
    height, places = math.prod(weight.shape[1:]), math.prod(grid.counts)
    rows = reshape(weight, (1, groups, weight.shape[0] // groups, height))
    parts = reshape(y, (shape[0], groups, weight.shape[0] // groups, places))
    columns = reshape(matmul(matrix_transpose(rows), parts), (shape[0], groups * height, places))
    stride, pads, dilation = grid_options(grid)
    return fold(
        columns,
        size=grid.size,
        window=grid.window,
        stride=stride,
        padding=pads,
        dilation=dilation,
    )


def guess_input(y: Any, weight: Any, size: Any, *options: Any) -> str:
    """Return the guessed way of the transpose in the images."""
    grid, groups, shape = input_grid("convolution_input", y, weight, size, options)
    if _runs_winograd(grid, shape[0], weight.shape, groups, y, weight):
        return "called"
    few = weight.shape[0] // groups * math.prod(grid.window) <= _FEW
    dilated = (few or set(grid.stride) == {1}) and grid.transposed() is not None
    return "windows" if dilated else "columns"


def _lower_input_to_windows(build: Any, y: Any, weight: Any, size: Any, *options: Any) -> Any:
    """Lower the transpose in the images to a convolution of the dilated cotangent."""
    grid, groups, shape = input_grid("convolution_input", y, weight, size, options)
    back = grid.transposed()
    if back is None:
        return NotImplemented
    # An infinite weight times the zeros around and between results would be NaN.
    build.add_check(isfinite(weight))
    return _conv_with_flipped_weight(_dilate_cotangent(y, grid.stride), weight, back, groups, shape)


def _dilate_cotangent(y: Any, stride: Shape) -> Any:
    """Return results with zeros between them, ``stride - 1`` along each axis."""
    if set(stride) == {1} or not y.size:
        return y
    size = [(n - 1) * s + 1 for n, s in zip(y.shape[2:], stride, strict=True)]
    key = (..., *(slice(None, None, s) for s in stride))
    return add_at(y, key, Spec((*y.shape[:2], *size), y.dtype))


def _conv_with_flipped_weight(
    y: Any, weight: Any, back: WindowGrid, groups: int, shape: Shape
) -> Any:
    """Transpose in the images, as a convolution with the flipped weight."""
    out, channels, *window = weight.shape
    axes = tuple(range(3, 3 + len(window)))
    parts = flip(reshape(weight, (groups, out // groups, channels, *window)), axes)
    rows = reshape(
        transpose(parts, (0, 2, 1, *axes)), (1, groups, channels, out // groups * math.prod(window))
    )
    return reshape(matmul(rows, _unfolded_columns(y, back, groups)), shape)


def weight_decomposition(y: Any, x: Any, window: Any, *options: Any) -> Any:
    """Transpose of the convolution in its weight, in ops."""
    grid, groups, shape = weight_grid("convolution_weight", y, x, window, options)
    parts = reshape(y, (x.shape[0], groups, shape[0] // groups, math.prod(grid.counts)))
    columns = matrix_transpose(_unfolded_columns(x, grid, groups))
    return reshape(sum(matmul(parts, columns), 0), shape)


def _lower_input_to_columns(build: Any, y: Any, weight: Any, size: Any, *options: Any) -> Any:
    """Lower the transpose in the images to columns, which are folded."""
    return input_decomposition(y, weight, size, *options)


def lower_weight(build: Any, y: Any, x: Any, window: Any, *options: Any) -> Any:
    """Lower the transpose in the weight to its decomposition."""
    return weight_decomposition(y, x, window, *options)


def guess_weight(y: Any, x: Any, window: Any, *options: Any) -> str:
    """Return the guessed way of the transpose in the weight."""
    grid, groups, shape = weight_grid("convolution_weight", y, x, window, options)
    winograd = _runs_winograd(grid, x.shape[0], shape, groups, y, x, weight_vjp=True)
    return "called" if winograd else "compiled"


def bias_rule(g: Any) -> Any:
    """VJP of a convolution in its bias."""
    if g.dtype.char == "e" or not g.size:
        return sum(g, (0, *range(2, g.ndim)))
    # A product takes a quarter of the time of a sum over axes that are not adjacent.
    images, results, *counts = g.shape
    places = math.prod(counts)
    rows = matmul(reshape(g, (images * results, places)), np.ones(places, g.dtype))
    return sum(reshape(rows, (images, results)), 0)


# ------------------------------------------------------------------ rules


def x_rule(
    g: Any, weight: Any, x_spec: Spec, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """VJP of a convolution in its images."""
    return convolution_input(g, weight, x_spec.shape[2:], stride, padding, dilation, groups)


def weight_rule(
    g: Any, x: Any, weight_spec: Spec, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """VJP of a convolution in its weight."""
    return convolution_weight(g, x, weight_spec.shape[2:], stride, padding, dilation, groups)


def batch_with_bias(
    convolve: Callable[..., Any], batch: Batch, x: Any, weight: Any, bias: Any, groups: int
) -> Any:
    """Batch rule of ``convolve(x, weight, groups, bias=None)``."""
    if batch.mapped[1] or (batch.mapped[2] and bias is not None):
        if batch.mapped[0] or batch.mapped[1]:
            out = batch_images(convolve, batch, x, weight, groups)
        else:
            out = convolve(x, weight, groups)
        if bias is None:
            return out
        spatial = (1,) * (weight.ndim - 2 - batch.mapped[1])
        own = bias.shape[:1] if batch.mapped[2] else ()
        return add(out, reshape(bias, (*own, 1, bias.shape[-1], *spatial)))
    return batch_images(
        lambda x, weight, groups: convolve(x, weight, groups, bias), batch, x, weight, groups
    )


def _conv_without_bias(x: Any, weight: Any, *options: Any) -> Any:
    """Convolve without a bias, over as many axes as the images have."""
    row = (conv1d, conv2d, conv3d)[x.ndim - 3]
    stride, padding, dilation, groups = options
    return row(x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)


# ------------------------------------------------------------------ convolutions


_SETTING: dict[str, Any] = {"error": SettingError}


def _conv_rejects(n: int) -> list[Any]:
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


def _declare_conv(n: int, samples: list[Sample], example: str) -> Any:
    """Declare convolution over ``n`` spatial axes."""
    who = f"conv{n}d"

    def infer(x: Spec, weight: Spec, bias: Spec | None, *options: Any) -> Spec:
        grid, _ = conv_grid(who, x, weight, bias, options, n)
        return Spec((x.shape[0], weight.shape[0], *grid.counts), common_dtype(x, weight, bias))

    def canonical(x: Spec, weight: Spec, bias: Spec | None, *options: Any) -> tuple[Any, ...]:
        grid, groups = conv_grid(who, x, weight, bias, options, n)
        return (*grid_options(grid), groups)

    def batch_rule(
        batch: Batch,
        x: Any,
        weight: Any,
        bias: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
    ) -> Any:
        infer(*example_specs(batch, (x, weight, bias)), stride, padding, dilation, groups)

        def conv_in_groups(x: Any, weight: Any, groups: int, bias: Any = None) -> Any:
            return conv_nd(
                x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups
            )

        return batch_with_bias(conv_in_groups, batch, x, weight, bias, groups)

    @accept_unbatched
    @op(
        kernel=lambda x, weight, bias, *options: convolve_arrays(
            who, x, weight, bias, *options, n=n
        ),
        kernels=[compiled_kernel(convolve_arrays, who, n=n)],
        infer=infer,
        vmap=batch_rule,
        canonical=canonical,
        decomposition=conv_decomposition,
        lowering=lower_conv,
        guess=guess_conv,
        vjp={"x": x_rule, "weight": weight_rule, "bias": bias_rule},
        jvp={
            "x": lambda t, weight, stride, padding, dilation, groups: _conv_without_bias(
                t, weight, stride, padding, dilation, groups
            ),
            "weight": lambda t, x, stride, padding, dilation, groups: _conv_without_bias(
                x, t, stride, padding, dilation, groups
            ),
            "bias": lambda t: expand_bias(t, n),
        },
        samples=samples,
        rejects=_conv_rejects(n),
        precision="low",
    )
    @with_spatial_terms(who, n, example)
    def conv_nd(
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
        """Convolution of {images}: at each position, the sum of a window times a weight.

        The weight is not flipped, as in other neural network libraries: this is a
        cross-correlation.

        Args:
            x: {Images} (samples, channels, {sizes}), or one without the first axis.
            weight: Array (out, channels / groups, {window_sizes}).
            bias: A number for each of the ``out`` channels, or None.
            stride: The distance between windows, an int, or one for each axis.
            padding: Zeros around the {images}: an int; one for each axis; a pair (before, after)
                for each axis; ``"valid"`` for none; or ``"same"``, for a result of the size of the
                {images}, which needs stride 1; the larger half of an odd number comes after.
            dilation: The distance between the elements of a window, an int, or one for each axis.
            groups: The number of groups that channels are divided into; each group of the result
                depends on its group of the {images}.

        Returns:
            {Images} (samples, out, {sizes}); an axis of ``n`` elements becomes one of
            ``(n + padding - dilation * (window - 1) - 1) // stride + 1``.

        Raises:
            ShapeError: If shapes do not fit, or no window fits on the {images}.
            SettingError: If an option is out of its range.
        """
        return convolve_arrays(who, x, weight, bias, stride, padding, dilation, groups, n=n)

    return conv_nd


conv1d = _declare_conv(
    1,
    samples=[
        sample((2, 3, 6), (4, 3, 2), (4,)),
        sample((1, 4, 7), (4, 2, 3), None, stride=2, padding=((2, 0),), groups=2),
        sample((0, 2, 4), (1, 2, 4), (1,)),
    ],
    example="""
    >>> conv1d(np.arange(4.0).reshape(1, 1, 4), np.array([[[1.0, 10.0]]]))
    array([[[10., 21., 32.]]])
    """,
)
conv2d = _declare_conv(
    2,
    samples=[
        sample((2, 3, 4, 5), (4, 3, 2, 3), (4,)),
        sample((1, 4, 5, 4), (4, 2, 3, 2), None, padding="same", groups=2),
        sample((2, 2, 6, 5), (2, 1, 2, 2), (2,), stride=(3, 2), dilation=(1, 2), groups=2),
        sample((1, 1, 2, 3), (2, 1, 3, 3), (2,), padding=((1, 0), (0, 2))),
        sample((2, 3, 2, 2), (2, 3, 1, 1), None),
        sample((2, 0, 3, 3), (2, 0, 2, 2), (2,)),
    ],
    example="""
    >>> image = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> conv2d(image, np.array([[[[1.0, 0.0], [0.0, 1.0]]]]))
    array([[[[ 4.,  6.],
             [10., 12.]]]])
    """,
)
conv3d = _declare_conv(
    3,
    samples=[
        sample((1, 2, 3, 4, 3), (2, 2, 2, 3, 2), (2,)),
        sample((1, 2, 2, 3, 2), (2, 1, 2, 1, 2), None, stride=(1, 2, 1), padding=1, groups=2),
    ],
    example="""
    >>> conv3d(np.ones((1, 1, 2, 2, 2)), np.ones((1, 1, 2, 2, 2)))
    array([[[[[8.]]]]])
    """,
)


# ------------------------------------------------------------------ transposes


def _canonical_input_options(y: Any, weight: Any, size: Any, *options: Any) -> tuple[Any, ...]:
    grid, groups, _ = input_grid("convolution_input", y, weight, size, options)
    return (grid.size, *grid_options(grid), groups)


def _canonical_weight_options(y: Any, x: Any, window: Any, *options: Any) -> tuple[Any, ...]:
    grid, groups, _ = weight_grid("convolution_weight", y, x, window, options)
    return (grid.window, *grid_options(grid), groups)


def _infer_input(y: Any, weight: Any, size: Any, *options: Any) -> Spec:
    _, _, shape = input_grid("convolution_input", y, weight, size, options)
    return Spec(shape, common_dtype(y, weight))


def _infer_weight(y: Any, x: Any, window: Any, *options: Any) -> Spec:
    _, _, shape = weight_grid("convolution_weight", y, x, window, options)
    return Spec(shape, common_dtype(y, x))


def _batch_input(
    batch: Batch,
    y: Any,
    weight: Any,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    _infer_input(*example_specs(batch, (y, weight)), size, stride, padding, dilation, groups)
    return batch_images(
        lambda y, weight, groups: convolution_input(
            y, weight, size, stride, padding, dilation, groups
        ),
        *(batch, y, weight, groups),
    )


def _batch_weight(
    batch: Batch,
    y: Any,
    x: Any,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    _infer_weight(*example_specs(batch, (y, x)), window, stride, padding, dilation, groups)
    return batch_weight(
        lambda y, x, groups: convolution_weight(y, x, window, stride, padding, dilation, groups),
        *(batch, y, x, groups),
    )


@op(
    kernels=[compiled_kernel(input_vjp_arrays, "convolution_input")],
    infer=_infer_input,
    vmap=_batch_input,
    decomposition=input_decomposition,
    lowering={"windows": _lower_input_to_windows, "columns": _lower_input_to_columns},
    guess=guess_input,
    canonical=_canonical_input_options,
    vjp={
        "y": lambda g, weight, stride, padding, dilation, groups: _conv_without_bias(
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
        reject((1, 2, 3), (2, 1, 2, 2), size=4, match="both must have equally many axes"),
        reject((1, 2, 3, 3), (2, 1, 2, 2), size=3, match=r"convolution gives \(1, 2, 2, 2\)"),
        reject((2, 3), (2, 1, 2), size=3, match=r"y has shape \(2, 3\)"),
    ],
    precision="low",
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
    """VJP of a convolution in its images, for the cotangent of its result.

    Each element of ``y``, times the weight, is added where the convolution read its window.

    Args:
        y: The cotangent of the result, (samples, out, spatial axes).
        weight: The weight of the convolution, (out, channels / groups, *window).
        size: The spatial size of the images: an int or one for each axis.
        stride: The stride of the convolution, see ``conv2d``; so are the other options.
        padding: Zeros around the images.
        dilation: The distance between the elements of a window.
        groups: The number of groups of channels.

    Returns:
        Images (samples, channels, *size).

    >>> convolution_input(np.ones((1, 1, 2)), np.array([[[1.0, 10.0]]]), 3)
    array([[[ 1., 11., 10.]]])
    """
    return input_vjp_arrays("convolution_input", y, weight, size, stride, padding, dilation, groups)


@op(
    kernels=[compiled_kernel(weight_vjp_arrays, "convolution_weight")],
    infer=_infer_weight,
    vmap=_batch_weight,
    decomposition=weight_decomposition,
    lowering=lower_weight,
    guess=guess_weight,
    canonical=_canonical_weight_options,
    vjp={
        "y": lambda g, x, stride, padding, dilation, groups: _conv_without_bias(
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
        reject((1, 2, 3), (1, 2, 3, 3), window=2, match="both must have equally many axes"),
        reject((1, 2, 3, 3), (1, 2, 3, 3), window=2, match=r"convolution gives \(1, 2, 2, 2\)"),
        reject((1, 2, 2, 2), (1, 3, 3, 3), window=2, groups=2, match="do not divide"),
    ],
    precision="low",
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
    """VJP of a convolution in its weight, for the cotangent of its result.

    Args:
        y: The cotangent of the result, (samples, out, spatial axes).
        x: The images, (samples, channels, spatial axes).
        window: The size of a window, an int or one for each axis.
        stride: The stride of the convolution, see ``conv2d``; so are the other options.
        padding: Zeros around the images.
        dilation: The distance between the elements of a window.
        groups: The number of groups of channels.

    Returns:
        An array (out, channels / groups, *window).

    >>> convolution_weight(np.ones((1, 1, 2)), np.array([[[1.0, 2.0, 3.0]]]), 2)
    array([[[3., 5.]]])
    """
    return weight_vjp_arrays("convolution_weight", y, x, window, stride, padding, dilation, groups)


publish(globals())
