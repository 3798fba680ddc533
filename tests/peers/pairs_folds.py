"""Folds over axes, running ones, and what is sorted."""

import numpy as np

from support.pairs import pair

X = (2, 3)
MASK = np.array([[True, False, True], [False, False, True]])


def folds(words, *spellings, shape=(2, 3, 4), **more):
    return [
        pair(
            f"torch.{word.partition('=')[2] or word}",
            word.partition("=")[0],
            shape,
            ours=ours,
            theirs=theirs,
            **more,
        )
        for word in words.split()
        for ours, theirs in spellings
    ]


ALL = ({}, {})
ONE = ({"axis": 1}, {"dim": 1})
SEVERAL = ({"axis": (0, -1), "keepdims": True}, {"dim": (0, -1), "keepdim": True})
SEVERAL_LESS_ONE = ({"axis": (0, -1), "keepdims": True, "ddof": 1}, SEVERAL[1])
FOLDS = [
    *folds("sum mean max=amax min=amin", ALL, ONE, SEVERAL),
    *folds("prod", ALL, ({"axis": 1}, {"dim": 1})),
    *folds("logsumexp", ONE, SEVERAL),
    *folds(
        "var std",
        ({"ddof": 1}, {}),
        ({"axis": 1, "ddof": 0}, {"dim": 1, "correction": 0}),
        SEVERAL_LESS_ONE,
    ),
    *[
        pair(
            f"torch.{name}_mean",
            name,
            (3, 4),
            theirs={"dim": 0},
            ours=lambda ops, x, name=name: (getattr(ops, name)(x, 0, ddof=1), ops.mean(x, 0)),
        )
        for name in ("var", "std")
    ],
    *folds("cumsum cumprod", ONE, ({"axis": -1}, {"dim": -1})),
    *folds("argmax argmin", ONE, ALL, values_only=True),
    pair(
        "torch.max", "max", (2, 3), theirs=lambda torch, x: torch.max(x, 1).values, ours={"axis": 1}
    ),
    pair(
        "torch.min", "min", (2, 3), theirs=lambda torch, x: torch.min(x, 1).values, ours={"axis": 1}
    ),
    pair(
        "torch.aminmax",
        "min",
        (2, 3),
        ours=lambda ops, x: (ops.min(x, 1), ops.max(x, 1)),
        theirs={"dim": 1},
    ),
    pair("torch.all", "all", MASK),
    pair("torch.any", "any", MASK),
    pair("torch.diff", "diff", (2, 5), ours={"n": 2}, theirs={"n": 2}),
    pair("torch.trapezoid", "trapezoid", (2, 4), (4,)),
    pair("torch.trapz", "trapezoid", (2, 4), ours={"dx": 0.5}, theirs={"dx": 0.5}),
    pair(
        "torch.gradient",
        "gradient",
        (3, 4),
        ours=lambda ops, x: ops.gradient(x, axis=(0, 1)),
        theirs={"dim": (0, 1)},
    ),
    pair(
        "torch.dist",
        "sqrt",
        X,
        X,
        ours=lambda ops, x, y: ops.sqrt(ops.sum(ops.square(ops.subtract(x, y)))),
    ),
    pair(
        "torch.sort",
        "sort",
        (2, 4),
        ours={"axis": 0},
        theirs=lambda torch, x: torch.sort(x, dim=0).values,
    ),
    pair("torch.argsort", "argsort", (2, 4), theirs={"dim": -1}, values_only=True),
    pair("torch.msort", "sort", (3, 2), ours={"axis": 0}),
    pair(
        "torch.searchsorted", "searchsorted", np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.0, 3.0])
    ),
    pair(
        "torch.bucketize",
        "searchsorted",
        np.array([0.5, 1.0, 3.0]),
        np.array([0.0, 1.0, 2.0]),
        ours=lambda ops, x, edges: ops.searchsorted(edges, x),
    ),
]

PAIRS = [*FOLDS]
