"""What derivatives of ops of arrays are at ties, of masked elements, and where there is none."""

import numpy as np

from odyssey import ops

INF, NAN = np.inf, np.nan
PAIRS = {"window": (2,), "stride": (2,), "padding": (0,), "dilation": (1,)}
TIED = np.array([[1.0, 1.0, 0.0, NAN]])
ATTENDING = ([[1.0], [2.0]], [[3.0]], [[4.0]], np.array([[True], [False]]))

# As in test_subgradients: op, operands, the gradients of the sum of the result, options.
STATED = {
    "copysign": (ops.copysign, ([0.0, -0.0, 2.0], [1.0, 1.0, -3.0]), ([0, 0, -1], [0, 0, 0])),
    "heaviside": (ops.heaviside, ([0.0, 1.0], [0.5, 2.0]), ([0, 0], [1, 0])),
    "layer_norm of equals": (ops.layer_norm, ([[1.0, 1.0]],), ([[NAN, NAN]],), {"eps": 0.0}),
    "logcumsumexp": (ops.logcumsumexp, ([-INF, -INF, 1.0],), ([0, 0, 1],)),
    "max_pool1d": (
        ops.max_pool1d,
        ([[[1.0, 1.0, 0.0, NAN]]],),
        ([[[0.5, 0.5, 0, 1]]],),
        {"window": 2},
    ),
    "max_pool2d": (
        ops.max_pool2d,
        ([[[[2.0, 2.0], [2.0, 2.0]]]],),
        ([[[[0.25] * 2] * 2]],),
        {"window": 2},
    ),
    "max_pool3d": (
        ops.max_pool3d,
        ([[[[[2.0, 2.0]]]]],),
        ([[[[[0.5, 0.5]]]]],),
        {"window": (1, 1, 2)},
    ),
    "max_pool_pullback": (
        ops.max_pool_pullback,
        ([[2.0, 3.0]], TIED.tolist()),
        ([[1, 1]], [[0, 0, 0, 0]]),
        PAIRS,
    ),
    "max_pool_pushforward": (
        ops.max_pool_pushforward,
        ([[2.0, 3.0, 4.0, 5.0]], TIED.tolist()),
        ([[0.5, 0.5, 0, 1]], [[0, 0, 0, 0]]),
        PAIRS,
    ),
    "median": (ops.median, ([2.0, 1.0, 2.0],), ([0.5, 0, 0.5],)),
    "median of NaN": (ops.median, ([2.0, NAN, 2.0],), ([0, 1, 0],)),
    "quantile": (ops.quantile, ([2.0, 1.0, 2.0],), ([0.5, 0, 0.5],), {"q": 0.5}),
    "percentile": (ops.percentile, ([2.0, 1.0, 2.0],), ([0.5, 0, 0.5],), {"q": 50}),
    "put_along_axis": (
        ops.put_along_axis,
        ([1.0, 2.0], np.array([0, 0]), [5.0, 6.0]),
        ([0, 1], None, [0, 1]),
        {"axis": 0},
    ),
    "recurrent_states": (
        ops.recurrent_states,
        ([[[0.0, 1.0]]], [[[0.0, 0.0]]], [[1.0, 0.0], [0.0, 1.0]]),
        ([[[0, 1]]], [[[0, 1]]], [[0, 0], [0, 0]]),
        {"cell": "relu"},
    ),
    "segment_max": (ops.segment_max, ([2.0, 2.0, 1.0], np.array([0, 0, 1])), ([0.5, 0.5, 1], None)),
    "segment_min": (ops.segment_min, ([2.0, 2.0, 1.0], np.array([0, 0, 1])), ([0.5, 0.5, 1], None)),
    "attention without keys": (
        ops.scaled_dot_product_attention,
        ATTENDING,
        ([[0], [0]], [[0]], [[1]], None),
    ),
    "attention_pullback": (
        ops.attention_pullback,
        ([[1.0], [2.0]], *ATTENDING),
        ([[1], [0]], [[0], [0]], [[0]], [[0]], None),
        {"operand": "v"},
    ),
    "soft_shrink": (ops.soft_shrink, ([-0.5, 0.5, 2.0],), ([0, 0, 1],)),
    "hard_shrink": (ops.hard_shrink, ([-0.5, 0.5, 2.0],), ([0, 0, 1],)),
    "celu": (ops.celu, ([0.0, -0.0, 2.0],), ([1, 1, 1],)),
    "threshold": (ops.threshold, ([1.0, 2.0],), ([0, 1],), {"threshold": 1.0, "value": 7.0}),
    "philox_dropout": (
        ops.philox_dropout,
        ([INF, NAN], np.array([1, 2, 3], np.uint64)),
        ([0, 0], None),
        {"rate": 1.0},
    ),
    "euclidean_norm": (ops.euclidean_norm, ([0.0, 0.0],), ([0, 0],)),
    "svdvals": (ops.svdvals, ([[2.0, 0.0], [0.0, 0.0]],), ([[1, 0], [0, 0]],)),
}
