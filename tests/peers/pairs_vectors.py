"""Vectors, their norms and distances, in PyTorch's words."""

import math

from support.pairs import pair

F = "torch.nn.functional."
OF = {"size": 3}

PAIRS = [
    pair(F + "normalize", "normalize", (2, 3)),
    pair(
        F + "normalize",
        "normalize",
        (3, 4, 2),
        ours={"p": 3, "axis": -1},
        theirs={"p": 3, "dim": -1},
    ),
    *[
        pair("torch.cdist", "cdist", (2, 3, 4), (2, 5, 4), ours={"p": p}, theirs={"p": p})
        for p in (1.0, 2.0, 3.5, math.inf)
    ],
    *[pair(F + "pdist", "pdist", (5, 3), ours={"p": p}, theirs={"p": p}) for p in (1.0, 2.0, 3.5)],
    pair("torch.pdist", "pdist", (4, 2)),
    pair(F + "bilinear", "bilinear", (2, 3), (2, 4), (5, 3, 4)),
    pair(F + "bilinear", "bilinear", (2, 6, 3), (2, 6, 4), (5, 3, 4), (5,)),
    pair(F + "local_response_norm", "local_response_norm", (2, 5, 3), ours=OF, theirs=OF),
    pair(
        F + "local_response_norm",
        "local_response_norm",
        (1, 4, 2, 2),
        ours={"size": 2, "alpha": 0.5, "beta": 0.5, "k": 2.0},
        theirs={"size": 2, "alpha": 0.5, "beta": 0.5, "k": 2.0},
    ),
]
