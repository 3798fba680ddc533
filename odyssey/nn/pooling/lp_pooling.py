"""Power-average (Lp) pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_number
from odyssey.devices.half_dtypes import has_half
from odyssey.errors import SettingError
from odyssey.nn.pooling.average_pooling import avg_pool1d, avg_pool2d, avg_pool3d
from odyssey.nn.pooling.window_plan import window_options
from odyssey.nn.spatial_families import with_spatial_terms
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.elementwise.choice import equal, where
from odyssey.ops.elementwise.elementary import power
from odyssey.ops.structure.shape import astype
from odyssey.spec import Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample


def _lp_pool(who: str, x: Any, p: Any, window: Any, stride: Any, dims: int) -> Any:
    p = check_number(who, "p", p, "(0, inf)")
    sizes, steps, *_ = window_options(who, dims, window, stride, 0)
    pooled = (avg_pool1d, avg_pool2d, avg_pool3d)[dims - 1]
    if has_half(x):  # whose powers end at 65,504
        single = astype(x, np.float32)
        found = _lp_pool(who, single, p, window, stride, dims)
        return astype(found, x.dtype)
    mean = pooled(power(x, p), window=sizes, stride=steps)
    total = mul(mean, float(math.prod(sizes)))
    nothing = equal(total, 0)
    root = power(where(nothing, 1.0, total), 1 / p)
    return where(nothing, 0.0, root)


def _declare_lp_pool(n: int, shape: Shape, example: str) -> Any:
    """Declare Lp pooling over ``n`` spatial axes, with cases for operands of ``shape``."""
    who = f"lp_pool{n}d"

    @composite(
        samples=[
            sample(shape, p=2, window=2),
            sample(shape, p=3.5, window=2, stride=1, low=0.5),
            sample(shape, p=1, window=2, low=0.5),
        ],
        rejects=[
            reject(shape, p=0, window=2, error=SettingError, match="positive"),
            reject(shape, p=2, window=9, match="does not fit"),
        ],
    )
    @with_spatial_terms(who, n, example)
    def lp_pool_nd(x: Any, *, p: float, window: Any, stride: Any = None) -> Any:
        """Lp pooling over the last {axes}: ``sum(x**p)**(1 / p)`` of each window.

        Powers keep their sign, as in PyTorch: pass the absolute value for a norm. The derivative is
        0 where a sum is 0.

        Args:
            x: {Images}, (..., {sizes}).
            p: The power.
            window: The size of the windows, an int, or one for each axis.
            stride: The distance between windows; the window by default.

        Raises:
            ShapeError: If no window fits.
            SettingError: If the power is not positive.
        """
        return _lp_pool(who, x, p, window, stride, n)

    return lp_pool_nd


lp_pool1d = _declare_lp_pool(
    1,
    shape=(2, 5),
    example="""
    >>> lp_pool1d(np.array([3.0, 4.0, 0.0, 0.0]), p=2, window=2)
    array([5., 0.])
    """,
)
lp_pool2d = _declare_lp_pool(
    2,
    shape=(1, 4, 5),
    example="""
    >>> lp_pool2d(np.array([[3.0, 0.0], [0.0, 4.0]]), p=2, window=2)
    array([[5.]])
    """,
)
lp_pool3d = _declare_lp_pool(
    3,
    shape=(1, 2, 3, 2),
    example="""
    >>> lp_pool3d(np.array([[[3.0, 0.0], [0.0, 4.0]]]), p=2, window=(1, 2, 2))
    array([[[5.]]])
    """,
)


publish(globals())
