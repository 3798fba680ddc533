"""The cases of `everyday.py`, their bars, and the inputs that both peers get."""

from typing import Any

import numpy as np

CASES = {
    "value_and_grad": 1.15,
    "take_rows": 1.0,
    "take_elements": 1.0,
    "index_rows": 1.0,
    "index_pairs": 1.0,
    "index_mask": 1.0,
    "index_slices": 1.0,
    "along_axis": 1.0,
    "gelu": 1.5,
    "sigmoid": 1.5,
    "prod": 1.5,
    "prod_all": 1.5,
    "cumsum": 1.5,
    "jacobian": 1.5,
    "hessian": 1.5,
}
"""By case the largest ratio of odyssey to its base that the project accepts."""

BASES = {"value_and_grad": ("odyssey", "tape")}
"""Peer and case that a case is held against, where that is not the same case in PyTorch."""


def everyday_inputs() -> dict[str, Any]:
    """Arrays by name."""
    rng = np.random.RandomState(0)  # NumPy promises its stream for ever
    matrix = rng.standard_normal((1000, 100))
    return {
        "matrix": matrix,
        "vector": rng.standard_normal(10_000),
        "positive": 1 + 0.1 * rng.standard_normal((1000, 100)),
        "rows": rng.randint(0, 1000, 4096),
        "columns": rng.randint(0, 100, 4096),
        "elements": rng.randint(0, 10_000, 20_000),
        "along": rng.randint(0, 100, (1000, 20)),
        "mask": matrix > 0,
        "square": rng.standard_normal((64, 64)) / 8,
        "point": rng.standard_normal(64),
        "short": rng.standard_normal(32),
        "x": rng.standard_normal((8, 2)),
        "y": rng.standard_normal((8, 1)),
        "w1": rng.standard_normal((2, 16)),
        "b1": np.zeros(16),
        "w2": rng.standard_normal((16, 1)),
        "b2": np.zeros(1),
    }
