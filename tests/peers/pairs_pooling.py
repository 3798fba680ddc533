"""Pooling, in PyTorch's words."""

import numpy as np

from support.pairs import pair

F = "torch.nn.functional."


def pooled(name, shape, theirs=None, **ours):
    """Windows, strides and paddings are called alike, but for the window."""
    words = {"window": "kernel_size"}
    options = {words.get(k, k): v for k, v in ours.items()} if theirs is None else theirs
    return pair(F + name, name, shape, ours=ours, theirs=options)


UP, DOWN, THREE = {"upscale_factor": 2}, {"downscale_factor": 2}, {"groups": 3}
UP3 = {"upscale_factor": 3}
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
    *[
        pooled(f"{kind}_pool{dims}d", (2, 2, *(7, 6, 8)[:dims]), ceil_mode=True, **options)
        for kind in ("max", "avg")
        for dims in (1, 2, 3)
        for options in (
            {"window": 2},
            {"window": 3, "stride": 2},
            {"window": 3, "stride": 2, "padding": 1},
            {"window": 2, "stride": 3, "padding": 1},
        )
    ],
    pooled("max_pool2d", (2, 7, 9), window=2, stride=3, dilation=2, ceil_mode=True),
    pooled(
        "avg_pool2d",
        (2, 6, 9),
        window=3,
        stride=2,
        count_include_pad=False,
        ceil_mode=True,
        padding=1,
    ),
    pair(
        F + "adaptive_avg_pool2d",
        "global_avg_pool2d",
        (2, 3, 4, 5),
        theirs=lambda torch, x: torch.nn.functional.adaptive_avg_pool2d(x, 1),
    ),
    *[
        pair(
            f"{F}adaptive_{kind}_pool{dims}d",
            f"adaptive_{kind}_pool{dims}d",
            (2, 2, *(5, 4, 7)[:dims]),
            ours={"size": size},
            theirs={"output_size": size},
        )
        for kind in ("avg", "max")
        for dims, size in ((1, 3), (2, (3, 2)), (2, (None, 7)), (3, (2, 3, 4)))
    ],
    pair(
        F + "adaptive_max_pool2d_with_indices",
        "adaptive_max_pool2d",
        (2, 2, 5, 7),
        ours={"size": 3, "return_indices": True},
        theirs={"output_size": 3},
    ),
    *[
        pair(F + "interpolate", "interpolate", shape, ours=ours, theirs=ours | theirs)
        for shape, ours, theirs in (
            ((2, 3, 4), {"size": 7}, {}),
            ((2, 3, 8, 6), {"size": (3, 9)}, {}),
            ((2, 3, 5, 6), {"size": (8, 4), "mode": "nearest-exact"}, {}),
            ((2, 3, 4), {"size": 7, "mode": "linear"}, {}),
            ((2, 3, 4, 5), {"size": (7, 3), "mode": "bilinear"}, {}),
            ((2, 3, 4, 5), {"size": (7, 3), "mode": "bilinear", "align_corners": True}, {}),
            ((2, 3, 4, 5), {"size": (9, 3), "mode": "bicubic"}, {}),
            ((2, 3, 4, 5), {"size": (9, 3), "mode": "bicubic", "align_corners": True}, {}),
            ((1, 2, 2, 3, 4), {"size": (3, 2, 6), "mode": "trilinear"}, {}),
            ((2, 3, 5, 4), {"size": (2, 3), "mode": "area"}, {}),
        )
    ],
    *[
        pair(
            F + "interpolate",
            "interpolate",
            (2, 3, 5, 4),
            ours={"scale": scale, "mode": mode},
            theirs={"scale_factor": scale, "mode": mode},
        )
        for scale, mode in ((2, "nearest"), ((1.5, 0.5), "bilinear"), (1.7, "bicubic"))
    ],
    *[
        pair(
            F + "grid_sample",
            "grid_sample",
            shape,
            places,
            ours={"mode": mode, "padding_mode": padding, "align_corners": corners},
            theirs={"mode": mode, "padding_mode": padding, "align_corners": corners},
            low=-2.5,
            high=2.5,
        )
        for shape, places in (((2, 3, 5, 4), (2, 6, 7, 2)), ((1, 2, 3, 4, 5), (1, 2, 3, 4, 3)))
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    ],
    *[
        pair(
            F + "affine_grid",
            "affine_grid",
            theta,
            ours=lambda ops, x, s=size, c=corners: ops.affine_grid(x, s, align_corners=c),
            theirs=lambda torch, x, s=size, c=corners: torch.nn.functional.affine_grid(x, s, c),
        )
        for theta, size in (((2, 2, 3), (2, 1, 3, 4)), ((2, 3, 4), (2, 1, 3, 2, 4)))
        for corners in (False, True)
    ],
    pair(F + "pixel_shuffle", "pixel_shuffle", (2, 8, 3, 2), ours=UP, theirs=UP),
    pair(F + "pixel_unshuffle", "pixel_unshuffle", (2, 2, 4, 6), ours=DOWN, theirs=DOWN),
    pair("torch.channel_shuffle", "channel_shuffle", (2, 6, 3), ours=THREE, theirs=THREE),
    pair("torch.pixel_shuffle", "pixel_shuffle", (1, 9, 2, 2), ours=UP3, theirs=UP3),
    *[
        pair(
            f"{F}max_unpool{dims}d",
            f"max_unpool{dims}d",
            (1, *[2] * dims),
            np.arange(0, 4**dims, 2**dims).reshape(1, *[2] * dims),
            ours={"window": 2},
            theirs=lambda torch, x, i, dims=dims: getattr(
                torch.nn.functional, f"max_unpool{dims}d"
            )(x[None], i[None], 2)[0],
        )
        for dims in (1, 2, 3)
    ],
    *[
        pair(
            f"{F}lp_pool{dims}d",
            f"lp_pool{dims}d",
            (1, 2, *(5, 4, 6)[:dims]),
            ours={"p": p, "window": 2},
            theirs={"norm_type": p, "kernel_size": 2},
            low=0.5,
            high=2.0,
        )
        for dims in (1, 2, 3)
        for p in (2, 3.5)
    ],
]
