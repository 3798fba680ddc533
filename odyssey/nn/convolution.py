"""Convolution over one to three spatial axes, as neural networks mean it: no kernel is mirrored.

Three functions are linear in each of their two arrays, and each is the derivative of the others:
``conv2d`` and its kin, ``convolution_input``, which is the transpose in the images, and
``convolution_weight``, the transpose in the weight. So derivatives of all orders are among them.
"""

from __future__ import annotations

from typing import Any

from odyssey.errors import SettingError
from odyssey.nn import convolution_in_ops as in_ops
from odyssey.nn.convolution_shapes import (
    common_dtype,
    compiled,
    convolved,
    fitting,
    fitting_image,
    fitting_weight,
    image_pulled,
    weight_pulled,
)
from odyssey.nn.sliding import spelled
from odyssey.nn.unbatched import or_one
from odyssey.spec import Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample

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
        "decomposition": in_ops.convolution_in_ops,
        "lowering": in_ops.convolved_natively,
        "vjp": {"x": x_rule, "weight": weight_rule, "bias": in_ops.bias_rule},
        "jvp": {
            "x": lambda t, weight, stride, padding, dilation, groups: _again(
                t, weight, stride, padding, dilation, groups
            ),
            "weight": lambda t, x, stride, padding, dilation, groups: _again(
                x, t, stride, padding, dilation, groups
            ),
            "bias": lambda t: in_ops.over_places(t, n),
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
    decomposition=in_ops.input_in_ops,
    lowering=in_ops.input_natively,
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
    decomposition=in_ops.weight_in_ops,
    lowering=in_ops.weight_natively,
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
