"""Convolutions, transposed ones, their gradients by name, and windows as columns."""

from support.pairs import pair

FUNCTIONAL, GRAD = "torch.nn.functional", "torch.nn.grad"


def alike(path, name, *operands, **options):
    """A pair whose options are called alike."""
    return pair(f"{FUNCTIONAL}.{path}", name, *operands, ours=options, theirs=options)


def separable(**options):
    """PyTorch has it in two steps."""

    def theirs(torch, x, depthwise, pointwise, bias):
        functional = torch.nn.functional
        between = functional.conv2d(x, depthwise, groups=x.shape[1], **options)
        return functional.conv2d(between, pointwise, bias)

    return pair(
        *(f"{FUNCTIONAL}.conv2d", "depthwise_separable_conv2d"),
        *((2, 3, 5, 6), (6, 1, 3, 3), (4, 6, 1, 1), (4,)),
        ours=options,
        theirs=theirs,
    )


def depthwise(**options):
    return pair(
        *(f"{FUNCTIONAL}.conv2d", "depthwise_conv2d", (2, 3, 5, 6), (6, 1, 3, 2), (6,)),
        ours=options,
        theirs={**options, "groups": 3},
    )


def slopes(n, size, **options):
    """The gradients of a convolution in its images and in its weight, by name."""
    x, weight, stride = (2, 4, *(size,) * n), (6, 2, *(3,) * n), options.get("stride", 1)
    pads, steps = options.get("padding", 0), options.get("dilation", 1)
    count = (size + 2 * pads - 2 * steps - 1) // stride + 1
    y = (2, 6, *(count,) * n)
    options["groups"] = 2
    return [
        pair(
            *(f"{GRAD}.conv{n}d_input", "convolution_input", y, weight),
            ours={"size": size, **options},
            theirs=lambda torch, y, w: getattr(torch.nn.grad, f"conv{n}d_input")(
                x, w, y, **options
            ),
        ),
        pair(
            *(f"{GRAD}.conv{n}d_weight", "convolution_weight", y, x),
            ours={"window": 3, **options},
            theirs=lambda torch, y, v: getattr(torch.nn.grad, f"conv{n}d_weight")(
                v, weight, y, **options
            ),
        ),
    ]


def lax(x, weight, padding, n=2, **options):
    """JAX's convolution, whose padding may differ on both sides."""
    ours = {"padding": padding, "stride": options["window_strides"]}
    ours["dilation"] = options.get("rhs_dilation", (1,) * n)
    return pair(
        *("jax.lax.conv_general_dilated", f"conv{n}d", x, weight),
        ours=ours | {"groups": options.get("feature_group_count", 1)},
        theirs={"padding": padding if padding == "same" else list(padding), **options},
    )


PAIRS = [
    *[
        alike(f"conv{n}d", f"conv{n}d", (2, *(6, 5, 4)[:n]), (3, 2, *(2,) * n), (3,), stride=2)
        for n in (1, 2, 3)
    ],
    *[
        alike(
            *(f"conv_transpose{n}d", f"conv_transpose{n}d"),
            *((3, *(4, 3, 2)[:n]), (3, 2, *(2,) * n), (2,)),
            padding=1,
        )
        for n in (1, 2, 3)
    ],
    alike("conv1d", "conv1d", (2, 3, 8), (4, 3, 3), (4,)),
    alike("conv1d", "conv1d", (2, 4, 9), (6, 2, 3), stride=2, padding=2, dilation=2, groups=2),
    alike("conv1d", "conv1d", (1, 2, 5), (3, 2, 5), padding="same"),
    alike("conv2d", "conv2d", (2, 3, 6, 5), (4, 3, 3, 2), (4,)),
    alike("conv2d", "conv2d", (2, 4, 7, 7), (6, 2, 3, 3), (6,), stride=2, groups=2),
    alike("conv2d", "conv2d", (1, 2, 5, 6), (3, 2, 5, 3), (3,), padding="same"),
    alike("conv2d", "conv2d", (1, 2, 5, 6), (3, 2, 3, 3), padding="same", dilation=(1, 2)),
    alike("conv2d", "conv2d", (2, 3, 7, 6), (2, 3, 2, 3), stride=(3, 2), padding=(0, 2)),
    alike("conv2d", "conv2d", (2, 8, 3, 3), (4, 8, 1, 1), (4,), stride=2),
    alike("conv3d", "conv3d", (1, 2, 4, 5, 4), (3, 2, 2, 3, 2), (3,), padding=(1, 0, 1)),
    alike("conv3d", "conv3d", (2, 4, 3, 4, 5), (4, 2, 2, 2, 2), stride=(1, 2, 2), groups=2),
    pair(
        *(f"{FUNCTIONAL}.conv2d", "conv2d", (1, 2, 4, 4), (3, 2, 2, 2), (3,)),
        complex=True,
        ours={"padding": 1},
        theirs={"padding": 1},
    ),
    depthwise(),
    depthwise(stride=2, padding=(1, 2), dilation=2),
    separable(padding=1, stride=2),
    separable(padding="same"),
    alike("conv_transpose1d", "conv_transpose1d", (2, 3, 5), (3, 4, 3), (4,)),
    alike(
        *("conv_transpose1d", "conv_transpose1d", (2, 4, 5), (4, 3, 3)),
        **{"stride": 3, "padding": 2, "output_padding": 1, "groups": 2, "dilation": 2},
    ),
    alike("conv_transpose2d", "conv_transpose2d", (2, 3, 4, 3), (3, 2, 3, 2), (2,)),
    alike(
        *("conv_transpose2d", "conv_transpose2d", (2, 4, 3, 3), (4, 3, 3, 2), (6,)),
        **{"stride": (2, 3), "padding": 1, "output_padding": (1, 2), "groups": 2},
    ),
    alike(
        *("conv_transpose2d", "conv_transpose2d", (1, 2, 3, 3), (2, 3, 3, 2), (3,)),
        **{"stride": (1, 2), "padding": (1, 0), "output_padding": (2, 3), "dilation": (3, 4)},
    ),
    alike("conv_transpose3d", "conv_transpose3d", (1, 2, 2, 3, 2), (2, 2, 2, 2, 3), (2,), stride=2),
    *slopes(1, 8, stride=2, padding=1),
    *slopes(2, 6, padding=1, dilation=2),
    *slopes(2, 7, stride=2),
    *slopes(3, 4),
    pair(
        *(f"{FUNCTIONAL}.unfold", "unfold", (2, 3, 5, 6)),
        ours={"window": (2, 3), "stride": 2, "padding": 1, "dilation": (2, 1)},
        theirs={"kernel_size": (2, 3), "stride": 2, "padding": 1, "dilation": (2, 1)},
    ),
    pair(
        *(f"{FUNCTIONAL}.unfold", "unfold", (2, 3, 4, 4)),
        ours={"window": 2},
        theirs={"kernel_size": 2},
    ),
    pair(
        *(f"{FUNCTIONAL}.fold", "fold", (2, 12, 12)),
        ours={"size": (5, 4), "window": 2},
        theirs={"output_size": (5, 4), "kernel_size": 2},
    ),
    pair(
        *(f"{FUNCTIONAL}.fold", "fold", (2, 12, 8)),
        ours={"size": (6, 5), "window": 2, "stride": 2, "padding": (1, 0), "dilation": (1, 2)},
        theirs={
            **{"output_size": (6, 5), "kernel_size": 2, "stride": 2},
            **{"padding": (1, 0), "dilation": (1, 2)},
        },
    ),
    lax((2, 3, 6, 5), (4, 3, 3, 2), ((2, 0), (1, 3)), window_strides=(2, 1)),
    lax(
        *((2, 4, 7, 6), (2, 2, 2, 3), ((0, 1), (2, 0))),
        window_strides=(1, 2),
        rhs_dilation=(2, 1),
        feature_group_count=2,
    ),
    lax((2, 3, 6), (4, 3, 4), "same", n=1, window_strides=(1,)),
]
