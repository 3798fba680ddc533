"""Depthwise and depthwise separable convolution."""

from __future__ import annotations

from typing import Any

from odyssey.errors import ShapeError
from odyssey.nn.convolution import im2col
from odyssey.nn.convolution.conv import (
    batch_with_bias,
    bias_rule,
    common_dtype,
    compiled_kernel,
    conv2d,
    conv_grid,
    convolution_input,
    convolution_weight,
    convolve_arrays,
    expand_bias,
)
from odyssey.nn.sliding_windows import grid_options, image_shape
from odyssey.nn.unbatched import accept_unbatched
from odyssey.ops.structure.batching import example_specs
from odyssey.ops.structure.shape import shape_of
from odyssey.spec import Array, Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ depthwise


def _channel_count(who: str, x: Any) -> int:
    shape: Shape = image_shape(who, "x", x)
    return max(shape[1], 1)


def _infer_depthwise(x: Spec, weight: Spec, bias: Spec | None, *options: Any) -> Spec:
    options = (*options, _channel_count("depthwise_conv2d", x))
    grid, _ = conv_grid("depthwise_conv2d", x, weight, bias, options, 2)
    return Spec((x.shape[0], weight.shape[0], *grid.counts), common_dtype(x, weight, bias))


def _canonical_depthwise_options(
    x: Spec, weight: Spec, bias: Spec | None, *options: Any
) -> tuple[Any, ...]:
    options = (*options, _channel_count("depthwise_conv2d", x))
    grid, _ = conv_grid("depthwise_conv2d", x, weight, bias, options, 2)
    return grid_options(grid)


def _depthwise(x: Any, weight: Any, bias: Any, *options: Any, backend: Any = im2col) -> Array:
    options = (*options, _channel_count("depthwise_conv2d", x))
    return convolve_arrays("depthwise_conv2d", x, weight, bias, *options, n=2, backend=backend)


def _depthwise_decomposition(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    groups = _channel_count("depthwise_conv2d", x)
    return conv2d(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _batch_depthwise(
    batch: Batch, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    _infer_depthwise(*example_specs(batch, (x, weight, bias)), stride, padding, dilation)

    def conv_in_groups(x: Any, weight: Any, groups: int, bias: Any = None) -> Any:
        return depthwise_conv2d(x, weight, bias, stride=stride, padding=padding, dilation=dilation)

    return batch_with_bias(conv_in_groups, batch, x, weight, bias, 1)


def _depthwise_x_rule(
    g: Any, weight: Any, x_spec: Spec, stride: Any, padding: Any, dilation: Any
) -> Any:
    groups = _channel_count("depthwise_conv2d", x_spec)
    return convolution_input(g, weight, x_spec.shape[2:], stride, padding, dilation, groups)


def _depthwise_weight_rule(
    g: Any, x: Any, weight_spec: Spec, stride: Any, padding: Any, dilation: Any
) -> Any:
    groups = _channel_count("depthwise_conv2d", x)
    return convolution_weight(g, x, weight_spec.shape[2:], stride, padding, dilation, groups)


@accept_unbatched
@op(
    kernel=_depthwise,
    kernels=[compiled_kernel(_depthwise)],
    decomposition=_depthwise_decomposition,
    infer=_infer_depthwise,
    vmap=_batch_depthwise,
    canonical=_canonical_depthwise_options,
    vjp={"x": _depthwise_x_rule, "weight": _depthwise_weight_rule, "bias": bias_rule},
    jvp={
        "x": lambda t, weight, stride, padding, dilation: depthwise_conv2d(
            t, weight, stride=stride, padding=padding, dilation=dilation
        ),
        "weight": lambda t, x, stride, padding, dilation: depthwise_conv2d(
            x, t, stride=stride, padding=padding, dilation=dilation
        ),
        "bias": lambda t: expand_bias(t, 2),
    },
    samples=[
        sample((2, 3, 4, 5), (3, 1, 2, 3), (3,)),
        sample((1, 2, 5, 4), (4, 1, 3, 2), None, stride=2, padding="valid"),
        sample((1, 2, 3, 3), (2, 1, 3, 3), (2,), padding=((1, 1), (2, 0))),
        sample((0, 2, 3, 3), (2, 1, 2, 2), None),
    ],
    rejects=[
        reject((1, 3, 4, 4), (3, 2, 2, 2), None, match=r"weight.shape\[1\] \* groups"),
        reject((1, 3, 4, 4), (4, 1, 2, 2), None, match="do not divide"),
        reject((1, 3, 4, 4, 4), (3, 1, 2, 2), None, match="with weight"),
        reject((1, 3, 2, 2), (3, 1, 3, 3), None, match="spans 3, more than the 2"),
    ],
    precision="low",
)
def depthwise_conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> Any:
    """Depthwise convolution: ``conv2d`` with a group for each channel.

    Args:
        x: Images (samples, channels, height, width).
        weight: Array (channels * multiplier, 1, window height, window width): ``multiplier``
            windows for each channel, those of the first channel first.
        bias: A number for each channel of the result, or None.
        stride: As for ``conv2d``; so are the others.
        padding: Zeros around the images.
        dilation: The distance between the elements of a window.

    Returns:
        Images (samples, channels * multiplier, height, width).

    >>> x = np.array([[[[1.0, 2.0]], [[3.0, 4.0]]]])
    >>> depthwise_conv2d(x, np.array([1.0, 10.0]).reshape(2, 1, 1, 1))
    array([[[[ 1.,  2.]],
    <BLANKLINE>
            [[30., 40.]]]])
    """
    return _depthwise(x, weight, bias, stride, padding, dilation)


# ------------------------------------------------------------------ depthwise separable


def _check_separable_weights(x: Any, depthwise: Any, pointwise: Any) -> None:
    """Raise ShapeError unless the two weights fit each other."""
    who, shape, ends = "depthwise_separable_conv2d", shape_of(depthwise), shape_of(pointwise)
    if len(shape) != 4 or len(ends) != 4 or ends[1] != shape[0] or ends[2:] != (1, 1):
        raise ShapeError(
            f"{who}: depthwise {shape} with pointwise {ends}; wanted are (channels * multiplier, "
            "1, height, width) and (out, channels * multiplier, 1, 1)"
        )


def _infer_separable(
    x: Spec, depthwise: Spec, pointwise: Spec, bias: Spec | None, *options: Any
) -> Spec:
    _check_separable_weights(x, depthwise, pointwise)
    between = _infer_depthwise(x, depthwise, None, *options)
    dtype = common_dtype(x, depthwise, pointwise, bias)
    conv_grid("depthwise_separable_conv2d", between, pointwise, bias, (1, 0, 1, 1), 2)
    return Spec((x.shape[0], pointwise.shape[0], *between.shape[2:]), dtype)


def _separable(
    x: Any, depthwise: Any, pointwise: Any, bias: Any, *options: Any, backend: Any = im2col
) -> tuple[Array, Array]:
    """Return the result, and the images between the two steps as residual."""
    _check_separable_weights(x, depthwise, pointwise)
    between = _depthwise(x, depthwise, None, *options, backend=backend)
    who = "depthwise_separable_conv2d"
    return convolve_arrays(who, between, pointwise, bias, 1, 0, 1, 1, n=2, backend=backend), between


def _separable_decomposition(
    x: Any,
    depthwise: Any,
    pointwise: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
) -> Any:
    between = depthwise_conv2d(x, depthwise, stride=stride, padding=padding, dilation=dilation)
    return conv2d(between, pointwise, bias)


def _intermediate_cotangent(g: Any, pointwise: Any) -> Any:
    """Return the cotangent of the images between the two steps."""
    return convolution_input(g, pointwise, g.shape[2:], 1, 0, 1, 1)


def _pointwise_rule(
    g: Any,
    x: Any,
    depthwise: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    residual: Any = None,
) -> Any:
    between = residual
    if between is None:
        between = depthwise_conv2d(x, depthwise, stride=stride, padding=padding, dilation=dilation)
    return convolution_weight(g, between, (1, 1), 1, 0, 1, 1)


_SEPARABLE = compiled_kernel(_separable)


@accept_unbatched
@op(
    kernel=lambda *values: _separable(*values)[0],
    kernels=[
        _SEPARABLE._replace(
            run=lambda *values: _SEPARABLE.run(*values)[0], with_residual=_SEPARABLE.run
        )
    ],
    with_residual=_separable,
    decomposition=_separable_decomposition,
    infer=_infer_separable,
    canonical=lambda x, depthwise, pointwise, bias, *options: _canonical_depthwise_options(
        x, depthwise, None, *options
    ),
    vjp={
        "x": lambda g, depthwise, pointwise, x_spec, stride, padding, dilation: _depthwise_x_rule(
            _intermediate_cotangent(g, pointwise), depthwise, x_spec, stride, padding, dilation
        ),
        "depthwise": lambda g, x, pointwise, depthwise_spec, stride, padding, dilation: (
            _depthwise_weight_rule(
                _intermediate_cotangent(g, pointwise), x, depthwise_spec, stride, padding, dilation
            )
        ),
        "pointwise": _pointwise_rule,
        "bias": bias_rule,
    },
    jvp={
        "x": lambda t, depthwise, pointwise, stride, padding, dilation: _separable_decomposition(
            t, depthwise, pointwise, None, stride, padding, dilation
        ),
        "depthwise": lambda t, x, pointwise, stride, padding, dilation: _separable_decomposition(
            x, t, pointwise, None, stride, padding, dilation
        ),
        "pointwise": lambda t, x, depthwise, stride, padding, dilation: _separable_decomposition(
            x, depthwise, t, None, stride, padding, dilation
        ),
        "bias": lambda t: expand_bias(t, 2),
    },
    samples=[
        sample((2, 2, 4, 3), (2, 1, 2, 2), (3, 2, 1, 1), (3,)),
        sample((1, 2, 5, 4), (4, 1, 3, 2), (2, 4, 1, 1), None, stride=2, padding=1),
        sample((1, 2, 3, 3), (2, 1, 2, 2), (1, 2, 1, 1), (1,), padding="same", dilation=(1, 2)),
    ],
    rejects=[
        reject((1, 2, 3, 3), (2, 1, 2, 2), (1, 3, 1, 1), None, match="with pointwise"),
        reject((1, 2, 3, 3), (2, 1, 2, 2), (1, 2, 2, 1), None, match="with pointwise"),
        reject((1, 3, 3, 3), (2, 1, 2, 2), (1, 2, 1, 1), None, match="do not divide"),
        reject((1, 2, 3, 3), (2, 1, 2, 2), (1, 2, 1, 1), (2,), match=r"bias \(2,\)"),
    ],
    precision="low",
)
def depthwise_separable_conv2d(
    x: Any,
    depthwise: Any,
    pointwise: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> Any:
    """Depthwise separable convolution: a depthwise, then a pointwise (1x1) convolution.

    Args:
        x: Images (samples, channels, height, width).
        depthwise: The weight of ``depthwise_conv2d``, (channels * multiplier, 1, window height,
            window width).
        pointwise: The weight of the second step, (out, channels * multiplier, 1, 1).
        bias: A number for each of the ``out`` channels, or None.
        stride: The stride of the first step, as for ``conv2d``; so are the other options.
        padding: Zeros around the images.
        dilation: The distance between the elements of a window.

    Returns:
        Images (samples, out, height, width).

    >>> x = np.ones((1, 2, 2, 2))
    >>> depthwise_separable_conv2d(x, np.ones((2, 1, 2, 2)), np.ones((1, 2, 1, 1)))
    array([[[[8.]]]])
    """
    return _separable(x, depthwise, pointwise, bias, stride, padding, dilation)[0]


publish(globals())
