"""Pooling, in PyTorch's words."""

from support.pairs import pair

F = "torch.nn.functional."


def pooled(name, shape, theirs=None, **ours):
    """Windows, strides and paddings are called alike, but for the window."""
    words = {"window": "kernel_size"}
    options = {words.get(k, k): v for k, v in ours.items()} if theirs is None else theirs
    return pair(F + name, name, shape, ours=ours, theirs=options)


PAIRS = [
    pooled("max_pool1d", (2, 3, 7), window=2),
    pooled("max_pool1d", (2, 3, 7), window=3, stride=1, padding=1, dilation=2),
    pooled("max_pool2d", (2, 3, 8, 6), window=2),
    pooled("max_pool2d", (2, 3, 7, 5), window=(3, 2), stride=(2, 1), padding=(1, 0)),
    pooled("max_pool2d", (3, 7, 8), window=3, stride=2, padding=1, dilation=(1, 2)),
    pooled("max_pool3d", (1, 2, 4, 6, 4), window=2),
    pooled("max_pool3d", (1, 2, 4, 5, 4), window=(2, 3, 2), stride=1, padding=(0, 1, 1)),
    *[
        pair(
            f"{F}max_pool{dims}d_with_indices",
            f"max_pool{dims}d",
            (2, 2, *(5, 4, 6)[:dims]),
            ours={"window": 2, "stride": 1, "padding": 1, "return_indices": True},
            theirs={"kernel_size": 2, "stride": 1, "padding": 1},
        )
        for dims in (1, 2, 3)
    ],
    pooled("avg_pool1d", (2, 3, 7), window=3, stride=2, padding=1),
    pooled("avg_pool1d", (2, 3, 7), window=2, count_include_pad=False, padding=1),
    pooled("avg_pool2d", (2, 3, 8, 6), window=2),
    pooled("avg_pool2d", (2, 3, 7, 5), window=(3, 2), stride=(2, 1), padding=(1, 0)),
    pooled("avg_pool2d", (3, 7, 8), window=3, stride=2, padding=1, count_include_pad=False),
    pooled("avg_pool3d", (1, 2, 4, 6, 4), window=2),
    pooled("avg_pool3d", (1, 2, 4, 5, 4), window=2, stride=1, padding=1, count_include_pad=False),
    pair(
        F + "adaptive_avg_pool2d",
        "global_avg_pool2d",
        (2, 3, 4, 5),
        theirs=lambda torch, x: torch.nn.functional.adaptive_avg_pool2d(x, 1),
    ),
]
