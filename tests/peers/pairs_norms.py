"""Normalization against PyTorch and JAX."""

import numpy as np

from support.pairs import pair

MEAN, VAR = np.array([0.5, -1.0, 2.0]), np.array([0.5, 2.0, 1.5])
F = "torch.nn.functional."


def running(torch, *arrays):
    return [torch.tensor(a) for a in arrays]


PAIRS = [
    pair(F + "layer_norm", "layer_norm", (2, 3, 4), theirs={"normalized_shape": (4,)}),
    pair(
        F + "layer_norm",
        "layer_norm",
        (2, 3, 4),
        (3, 4),
        (3, 4),
        ours={"axis": (1, 2), "eps": 0.1},
        theirs=lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (3, 4), w, b, 0.1),
    ),
    pair(
        F + "rms_norm",
        "rms_norm",
        (2, 3, 4),
        (4,),
        ours={"eps": 0.1},
        theirs=lambda torch, x, w: torch.nn.functional.rms_norm(x, (4,), w, 0.1),
    ),
    pair(
        F + "batch_norm",
        "batch_norm",
        (4, 3),
        (3,),
        (3,),
        ours=lambda ops, x, w, b: ops.batch_norm(x, None, None, w, b, training=True),
        theirs=lambda torch, x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, True),
    ),
    pair(
        F + "batch_norm",
        "batch_norm",
        (2, 3, 4, 2),
        (3,),
        (3,),
        ours=lambda ops, x, w, b: ops.batch_norm(x, MEAN, VAR, w, b, eps=0.1),
        theirs=lambda torch, x, w, b: torch.nn.functional.batch_norm(
            x, *running(torch, MEAN, VAR), w, b, eps=0.1
        ),
    ),
    pair(F + "group_norm", "group_norm", (2, 6, 4), ours={"groups": 3}, theirs={"num_groups": 3}),
    pair(
        F + "group_norm",
        "group_norm",
        (2, 4, 2, 3),
        (4,),
        (4,),
        ours={"groups": 2, "eps": 0.01},
        theirs=lambda torch, x, w, b: torch.nn.functional.group_norm(x, 2, w, b, 0.01),
    ),
    pair(F + "instance_norm", "instance_norm", (2, 3, 5)),
    pair(
        F + "instance_norm",
        "instance_norm",
        (2, 3, 4, 2),
        (3,),
        (3,),
        theirs=lambda torch, x, w, b: torch.nn.functional.instance_norm(x, weight=w, bias=b),
    ),
    pair("jax.nn.standardize", "layer_norm", (3, 5), theirs={"epsilon": 1e-5}),
]
