"""Activation functions, in PyTorch's words."""

from support.pairs import pair

F = "torch.nn.functional."


def activated(name, ours=None, **options):
    return pair(F + name, ours or name, (3, 4), ours=options, theirs=options)


PAIRS = [
    *[
        activated(name)
        for name in (
            *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish"),
            *("softplus", "softsign", "sigmoid", "tanh", "logsigmoid", "hardswish", "hardtanh"),
            *("hardshrink", "softshrink", "tanhshrink"),
        )
    ],
    activated("leaky_relu", negative_slope=0.3),
    activated("elu", alpha=0.7),
    activated("celu", alpha=0.5),
    activated("gelu", approximate="tanh"),
    activated("softplus", beta=2.0),
    activated("hardtanh", min_val=-0.5, max_val=0.25),
    activated("hardshrink", lambd=0.25),
    activated("softshrink", lambd=0.25),
    activated("threshold", threshold=0.1, value=-2.0),
    # Whose slope in torch is a sixth in single precision, in float64 too.
    pair(F + "hardsigmoid", "hard_sigmoid", (3, 4), tolerance=1e-7),
    pair(F + "prelu", "prelu", (2, 3, 4), (3,)),
    pair(F + "prelu", "prelu", (2, 3), (1,)),
    *[
        pair(F + name, name, (3, 4), ours={"axis": axis}, theirs={"dim": axis})
        for name in ("softmax", "log_softmax", "softmin")
        for axis in (0, -1)
    ],
    pair(F + "glu", "glu", (3, 4)),
    pair(F + "glu", "glu", (3, 4, 6), ours={"axis": 1}, theirs={"dim": 1}),
    pair(
        F + "gelu",
        "geglu",
        (3, 8),
        theirs=lambda torch, x: x[:, :4] * torch.nn.functional.gelu(x[:, 4:]),
    ),
    pair(
        F + "silu",
        "swiglu",
        (3, 8),
        theirs=lambda torch, x: x[:, :4] * torch.nn.functional.silu(x[:, 4:]),
    ),
    pair(F + "linear", "linear", (2, 5, 3), (4, 3), (4,)),
]
