"""Orders, quantiles, running folds and segments."""

import numpy as np

from support.pairs import pair

IDS = np.array([0, 2, 0, -1, 2, 9])
AXES = ({}, {"axis": 0}, {"axis": (0, 2), "keepdims": True})
METHODS = ("linear", "lower", "higher", "midpoint", "nearest")

PAIRS = [
    pair("torch.median", "median", (5,)),
    pair("torch.median", "median", (3, 4), ours={"axis": 0}, theirs=lambda t, x: t.median(x, 0)[0]),
    *[pair("jax.numpy.median", "median", (2, 3, 4), ours=o, theirs=o) for o in AXES],
    *[
        pair(
            "torch.quantile",
            "quantile",
            (5, 4),
            ours={"q": 0.3, "axis": 1, "method": m},
            theirs={"q": 0.3, "dim": 1, "interpolation": m},
        )
        for m in METHODS
    ],
    *[
        pair(
            "jax.numpy.quantile",
            "quantile",
            (2, 3, 4),
            ours=o | {"q": [0.1, 0.75]},
            theirs=lambda j, x, o=o: j.numpy.quantile(x, np.array([0.1, 0.75]), **o),
        )
        for o in AXES
    ],
    pair("jax.numpy.percentile", "percentile", (7,), ours={"q": 35.0}, theirs={"q": 35.0}),
    pair("torch.topk", "topk", (3, 5), ours={"k": 2}, theirs={"k": 2}),
    pair(
        "torch.topk",
        "topk",
        (3, 5),
        ours={"k": 2, "axis": 0, "largest": False},
        theirs={"k": 2, "dim": 0, "largest": False},
    ),
    pair("torch.kthvalue", "kthvalue", (3, 5), ours={"k": 2}, theirs={"k": 2}),
    pair("torch.msort", "sort", (5, 3), ours={"axis": 0}),
    pair("torch.nansum", "nansum", (3, 4), ours={"axis": 1}, theirs={"dim": 1}),
    pair("torch.nanmean", "nanmean", (3, 4), ours={"axis": 0}, theirs={"dim": 0}),
    pair("torch.nanmedian", "nanmedian", (7,)),
    pair(
        "torch.nanquantile",
        "nanquantile",
        (3, 7),
        ours={"q": 0.4, "axis": 1},
        theirs={"q": 0.4, "dim": 1},
    ),
    pair("torch.bincount", "bincount", np.array([0, 2, 0]), (3,), values_only=True),
    pair(
        "jax.numpy.bincount",
        "bincount",
        np.array([0, 2, 0]),
        (3,),
        ours={"minlength": 3},
        theirs=lambda j, x, w: j.numpy.bincount(x, w, length=3),
    ),
    pair(
        "torch.histogram",
        "histogram",
        np.linspace(-1, 1, 9),
        ours={"bins": 4},
        theirs=lambda t, x: t.histogram(x, 4),
    ),
    pair(
        "jax.numpy.histogram",
        "histogram",
        np.linspace(-1, 1, 9),
        (9,),
        low=0.5,
        high=2,
        ours=lambda o, x, w: o.histogram(x, 4, weights=w, density=True),
        theirs=lambda j, x, w: j.numpy.histogram(x, 4, weights=w, density=True),
    ),
    pair(
        "torch.histc",
        "histogram",
        np.linspace(-1, 1, 9),
        ours=lambda o, x: o.histogram(x, 4, weights=np.ones(9))[0],
        theirs=lambda t, x: t.histc(x, 4),
    ),
    pair("torch.cummax", "cummax", (3, 4), theirs={"dim": -1}),
    pair("torch.cummin", "cummin", (3, 4), ours={"axis": 0}, theirs={"dim": 0}),
    pair("jax.lax.cummax", "cummax", (6,), ours=lambda o, x: o.cummax(x).values),
    pair("torch.logcumsumexp", "logcumsumexp", (3, 4), theirs={"dim": -1}),
    pair("torch.logcumsumexp", "logcumsumexp", (3, 4), ours={"axis": 0}, theirs={"dim": 0}),
    pair("jax.lax.cumlogsumexp", "logcumsumexp", (5,)),
    pair("torch.cumsum", "cumsum", (3, 4), ours={"axis": 1}, theirs={"dim": 1}),
    pair("torch.cumprod", "cumprod", (3, 4), ours={"axis": 0}, theirs={"dim": 0}),
    pair("torch.prod", "prod", (3, 4)),
    pair("torch.diff", "diff", (3, 5), ours={"n": 2}, theirs={"n": 2}),
    pair("torch.trapezoid", "trapezoid", (3, 5), (5,)),
    pair("torch.var", "var", (3, 4), ours={"axis": 1, "ddof": 1}, theirs={"dim": 1}),
    pair("torch.std", "std", (3, 4), ours={"axis": 0, "ddof": 1}, theirs={"dim": 0}),
    pair("torch.logsumexp", "logsumexp", (3, 4), ours={"axis": 1}, theirs={"dim": 1}),
    pair("torch.amax", "max", (3, 4), ours={"axis": 1}, theirs={"dim": 1}),
    pair("torch.amin", "min", (3, 4), ours={"axis": (0, 1)}, theirs={"dim": (0, 1)}),
    pair("torch.mean", "mean", (3, 4)),
    pair("torch.sum", "sum", (3, 4)),
    *[
        pair(
            f"jax.ops.segment_{name}",
            f"segment_{name}",
            (6, 2),
            IDS,
            ours={"num_segments": 3},
            theirs={"num_segments": 3},
        )
        for name in ("sum", "max", "min")
    ],
]
