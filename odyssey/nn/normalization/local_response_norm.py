"""Local response normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_int, check_number
from odyssey.devices.half_dtypes import is_half
from odyssey.errors import SettingError, ShapeError
from odyssey.nn.pooling.average_pooling import avg_pool1d
from odyssey.nn.shared import as_operand
from odyssey.ops.elementwise.arithmetic import add, div, mul, square
from odyssey.ops.elementwise.elementary import power
from odyssey.ops.structure.padding import pad
from odyssey.ops.structure.shape import astype, moveaxis, shape_of
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample


@composite(
    samples=[
        sample((2, 5, 3), size=3),
        sample((2, 4, 2), size=2, alpha=0.5, beta=0.5, k=2.0),
        sample((1, 3), size=7, alpha=1.0),
        sample((0, 3, 2), size=3),
    ],
    rejects=[
        reject((3,), size=3, match="channels"),
        reject((1, 3), size=0, error=SettingError, match="at least 1"),
    ],
)
def local_response_norm(
    x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """Local response norm: ``x / (k + alpha * m)**beta``, m a mean square over channels.

    A. Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, 2012.

    Args:
        x: Any samples, their channels on axis 1.
        size: The number of channels of the mean; zeros beyond the first and the last.
        alpha: The weight of the mean.
        beta: The power.
        k: The summand.

    Raises:
        ShapeError: If x has no channels.
        SettingError: If the size is below 1.

    >>> local_response_norm(np.array([[3.0, 4.0]]), size=1, alpha=1.0, beta=0.5, k=0.0)
    array([[1., 1.]])
    """
    who = "local_response_norm"
    size = check_int(who, "size", size, 1)
    alpha, beta, k = (
        check_number(who, n, v) for n, v in (("alpha", alpha), ("beta", beta), ("k", k))
    )
    x = as_operand(who, "x", x)
    ndim = len(shape_of(x))
    if ndim < 2:
        raise ShapeError(f"{who}: x has shape {shape_of(x)}; wanted is (samples, channels, ...)")
    if is_half(x.dtype):  # whose squares end at 65,504
        wide = astype(x, np.float32)
        return astype(local_response_norm(wide, size=size, alpha=alpha, beta=beta, k=k), x.dtype)
    squares = moveaxis(square(x), 1, -1)
    widths = [(0, 0)] * (ndim - 1) + [(size // 2, (size - 1) // 2)]
    padded = pad(squares, widths)
    mean = moveaxis(avg_pool1d(padded, window=size, stride=1), -1, 1)
    return div(x, power(add(mul(mean, alpha), k), beta))


publish(globals())
