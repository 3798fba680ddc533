"""Operands of convolutions, and options that mean the same."""

import numpy as np

WHOLE = np.int64
PAIR, ONES = ((1, 1), (1, 1)), (1, WHOLE(1))
SLIDES = [
    [{}, {"stride": 1, "padding": 0}, {"stride": [1, 1], "padding": "valid", "dilation": ONES}],
    [{"padding": p} for p in (1, (1, 1), [1, WHOLE(1)], "same", PAIR, [[1, 1], (1, 1)])],
    [{"padding": p, "stride": (2, 1)} for p in (0, ((0, 0), (0, 0)))],
]
IMAGES, FILTERS = (1, 2, 4, 4), (2, 2, 3, 3)
SPELLINGS = {
    "conv1d": [([(1, 2, 4), (2, 2, 3), None], [{"padding": p} for p in (1, (1,), "same")])],
    "conv2d": [
        *(([IMAGES, FILTERS, None], options) for options in SLIDES),
        ([IMAGES, (2, 1, 3, 3), (2,)], [{"groups": 2}, {"groups": WHOLE(2)}]),
    ],
    "conv3d": [([(1, 2, 4, 4, 4), (2, 2, 3, 3, 3), None], [{}, {"stride": (1, 1, 1)}])],
    "depthwise_conv2d": [([IMAGES, (2, 1, 3, 3), None], options) for options in SLIDES],
    "depthwise_separable_conv2d": [
        ([IMAGES, (2, 1, 3, 3), (1, 2, 1, 1), None], options) for options in SLIDES
    ],
    "convolution_input": [
        ([(1, 2, 2, 2), FILTERS], [{"size": 4}, {"size": (4, 4)}, {"size": [4, 4], "stride": 1}])
    ],
    "convolution_weight": [
        ([(1, 2, 2, 2), IMAGES], [{"window": 3}, {"window": [3, 3], "padding": (0, 0)}])
    ],
    "unfold": [([IMAGES], [{"window": 3, **o} for o in options]) for options in SLIDES],
    "fold": [([(1, 9, 4)], [{"size": [4, 4], "window": 3}, {"size": (4, 4), "window": (3, 3)}])],
}
