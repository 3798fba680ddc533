"""Transposed convolution."""

from __future__ import annotations

from typing import Any

from odyssey.checks import format_value
from odyssey.errors import SettingError, ShapeError
from odyssey.nn.convolution.conv import convolution_input
from odyssey.nn.sliding_windows import int_per_axis, window_grid
from odyssey.nn.spatial_families import with_spatial_terms
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.structure.padding import pad
from odyssey.ops.structure.shape import reshape, shape_of
from odyssey.spec import Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import Reject, Sample, reject, sample


def _conv_transpose(
    n: int, x: Any, weight: Any, bias: Any, options: tuple[Any, Any, Any, Any], output_padding: Any
) -> Any:
    """Transposed convolution over ``n`` axes."""
    who = f"conv_transpose{n}d"
    shape, window = shape_of(x), shape_of(weight)
    if len(shape) == n + 1 == len(window) - 1:  # one image
        one = reshape(x, (1, *shape))
        out = _conv_transpose(n, one, weight, bias, options, output_padding)
        return reshape(out, shape_of(out)[1:])
    if len(shape) != n + 2 or len(window) != n + 2 or shape[1] != window[0]:
        raise ShapeError(
            f"{who}: x {shape} with weight {window}; wanted are x (samples, channels, and {n} "
            "spatial axes) and weight (channels, out / groups, and the window)"
        )
    size, pads, zeros = _output_size(who, shape[2:], window[2:], options, output_padding)
    stride, _, dilation, groups = options
    out = convolution_input(x, weight, size, stride, pads, dilation, groups)
    if any(zeros):
        out = pad(out, ((0, 0), (0, 0), *((0, count) for count in zeros)))
    if bias is None:
        return out
    if shape_of(bias) != (out.shape[1],):
        raise ShapeError(
            f"{who}: bias {shape_of(bias)} for {out.shape[1]} channels; wanted is ({out.shape[1]},)"
        )
    return add(out, reshape(bias, (-1, *(1,) * n)))


def _output_size(
    who: str, count: Shape, window: Shape, options: tuple[Any, Any, Any, Any], more: Any
) -> tuple[Shape, tuple[tuple[int, int], ...], Shape]:
    """Return the size of images on which so many windows stand, and what makes up the rest.

    Returns:
        The size, the padding, and the number of zeros to append on each axis. One more window
        would stand on images with ``output_padding`` of the stride or more; elements beyond are
        those that the padding cuts off, and then zeros.
    """
    stride, padding, dilation, _ = options
    n = len(count)
    steps = int_per_axis(who, "dilation", dilation, n)
    spans = tuple([1 + d * (k - 1) for d, k in zip(steps, window, strict=True)])
    grid = window_grid(who, spans, window, stride, padding, steps)
    more = int_per_axis(who, "output_padding", more, n, 0)
    if any(m >= max(s, d) for m, s, d in zip(more, grid.stride, steps, strict=True)):
        raise SettingError(
            f"{who}: output_padding={format_value(more)} for stride {grid.stride} and dilation "
            f"{steps}; it must be smaller than one of them"
        )
    beyond = [max(m - s + 1, 0) for m, s in zip(more, grid.stride, strict=True)]
    uncut = [min(b, after) for b, (_, after) in zip(beyond, grid.pads, strict=True)]
    zeros = tuple([b - u for b, u in zip(beyond, uncut, strict=True)])
    size = [
        (places - 1) * s + span - before - after + m - z
        for places, s, span, (before, after), m, z in zip(
            count, grid.stride, spans, grid.pads, more, zeros, strict=True
        )
    ]
    pads = tuple([(before, after - u) for (before, after), u in zip(grid.pads, uncut, strict=True)])
    if min(count) < 1 or min(size) < 0:
        raise ShapeError(f"{who}: padding {grid.pads} removes all {count} elements; pad less")
    return tuple(size), pads, zeros


def _declare_conv_transpose(
    n: int, samples: list[Sample], rejects: list[Reject], example: str
) -> Any:
    """Declare transposed convolution over ``n`` spatial axes."""

    @composite(samples=samples, rejects=rejects)
    @with_spatial_terms(f"conv_transpose{n}d", n, example)
    def conv_transpose_nd(
        x: Any,
        weight: Any,
        bias: Any = None,
        /,
        *,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        """Transposed convolution: each element adds the window, times itself, to the result.

        The transpose, not the inverse, of ``conv{n}d`` with the same weight and options.

        Args:
            x: {Images} (samples, channels, {sizes}).
            weight: Array (channels, out / groups, {window_sizes}).
            bias: A number for each channel of the result, or None.
            stride: The distance between the windows of neighbours, an int, or one for each axis.
            padding: The elements cut off: an int; one for each axis; a pair (before, after) for
                each axis; or ``"valid"`` or ``"same"``, as for ``conv{n}d``.
            output_padding: The number of elements after the last window, less than the stride or
                less than the dilation: {images} of several sizes have as many windows.
            dilation: The distance between the elements of a window.
            groups: The number of groups of channels.

        Returns:
            {Images} (samples, out, {sizes}); an axis has
            ``(n - 1) * stride - padding + dilation * (window - 1) + output_padding + 1`` elements.
        """
        options = (stride, padding, dilation, groups)
        return _conv_transpose(n, x, weight, bias, options, output_padding)

    return conv_transpose_nd


conv_transpose1d = _declare_conv_transpose(
    1,
    samples=[
        sample((2, 2, 3), (2, 3, 2), (3,)),
        sample((1, 4, 3), (4, 1, 2), stride=2, padding=((1, 0),), output_padding=1, groups=2),
    ],
    rejects=[
        reject((1, 2, 3), (3, 2, 2), match="and weight"),
        reject((1, 2, 3), (2, 3, 2), (2,), match=r"bias \(2,\) for 3 channels"),
    ],
    example="""
    >>> conv_transpose1d(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0]]]), stride=2)
    array([[[ 1., 10.,  2., 20.]]])
    """,
)
conv_transpose2d = _declare_conv_transpose(
    2,
    samples=[
        sample((1, 2, 2, 3), (2, 2, 2, 3), (2,)),
        sample((2, 2, 3, 2), (2, 1, 3, 2), stride=2, padding=1, output_padding=(1, 0)),
        sample((1, 4, 2, 2), (4, 1, 2, 2), (2,), groups=2, dilation=(1, 2), padding="valid"),
        sample((1, 1, 2, 2), (1, 2, 2, 2), (2,), padding=(1, 0), dilation=3, output_padding=2),
    ],
    rejects=[
        reject((1, 2, 3), (2, 2, 2), match="and weight"),
        reject((1, 2, 3, 3), (2, 3, 2, 2), padding=9, match="removes all"),
        reject((1, 3, 3, 3), (3, 1, 2, 2), groups=2, match="do not divide"),
        reject(
            *((1, 2, 3, 3), (2, 3, 2, 2)),
            stride=2,
            output_padding=2,
            error=SettingError,
            match="must be smaller",
        ),
    ],
    example="""
    >>> conv_transpose2d(np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2)))
    array([[[[1., 2., 1.],
             [2., 4., 2.],
             [1., 2., 1.]]]])
    """,
)
conv_transpose3d = _declare_conv_transpose(
    3,
    samples=[sample((1, 2, 1, 2, 2), (2, 1, 2, 1, 2), (1,), stride=(2, 1, 1))],
    rejects=[reject((1, 2, 3, 3), (2, 2, 2, 2), match="and weight")],
    example="""
    >>> conv_transpose3d(np.ones((1, 1, 1, 1, 2)), np.ones((1, 1, 1, 1, 2)))
    array([[[[[1., 2., 1.]]]]])
    """,
)


publish(globals())
