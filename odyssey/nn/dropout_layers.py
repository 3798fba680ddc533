"""Dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_number
from odyssey.devices.arrays import as_array
from odyssey.devices.same_device import place_beside
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.nn.spatial_families import axis_letters, with_spatial_terms
from odyssey.ops.random.generator import check_generator, draw_state
from odyssey.ops.random.philox import drawn_shape, philox_dropout
from odyssey.table.declare import composite, publish
from odyssey.table.samples import Reject, Sample, reject, sample


def _dropout(who: str, x: Any, rate: Any, rng: Any, training: bool, shared: int = 0) -> Any:
    rate = check_number(who, "rate", rate, "[0, 1]")
    x = x if hasattr(x, "dtype") else as_array(who, "x", x)
    if shared and x.ndim != shared + 2:
        raise ShapeError(f"{who}: x has shape {x.shape}; wanted is (N, C, {axis_letters(shared)})")
    count = math.prod(drawn_shape(x.shape, shared))
    check_generator(who, rng)
    if training and rate > 0:
        # At rate 1 nothing is drawn.
        state = draw_state(who, rng, count) if rate < 1 else np.zeros(3, np.uint64)
        return philox_dropout(x, place_beside(state, x), rate=rate, shared=shared)
    return x


_REJECTS = [
    reject((2, 3, 4, 5), rate=1.5, error=SettingError, match="rate=1.5"),
    reject((2, 3, 4, 5), rate="half", error=DTypeError, match="is not a number"),
    reject((2, 3, 4, 5), rng=0, error=DTypeError, match="pass an od.Generator"),
]


@composite(
    samples=[sample((2, 3), training=False), sample((4,), rate=0), sample((2, 3), rate=1)],
    rejects=_REJECTS,
)
def dropout(x: Any, *, rate: float = 0.5, rng: Any = None, training: bool = True) -> Any:
    """Dropout: in training zero numbers at random and scale the others.

    A tape keeps the state of the generator, not a mask.

    Args:
        x: Numbers of any shape.
        rate: The probability of a zero, from 0 to 1; the others are divided by ``1 - rate``, which
            keeps the mean.
        rng: The ``od.Generator`` to draw from; that of the process by default.
        training: If False, the result is ``x``.

    Returns:
        An array of the shape of ``x``. The derivative of a dropped number is 0.

    >>> import odyssey as od
    >>> dropout(np.ones(6), rate=0.5, rng=od.Generator(7))
    array([2., 2., 2., 0., 2., 0.])
    """
    return _dropout("dropout", x, rate, rng, training)


def _declare_channel_dropout(
    n: int, samples: list[Sample], rejects: list[Reject], example: str = ""
) -> Any:
    """Declare dropout of channels with ``n`` spatial axes."""
    who = f"dropout{n}d"

    @composite(samples=samples, rejects=rejects)
    @with_spatial_terms(who, n, example)
    def channel_dropout(
        x: Any, *, rate: float = 0.5, rng: Any = None, training: bool = True
    ) -> Any:
        """Dropout of whole channels of ``x``, of shape (N, C, {letters}).

        Args:
            x: {Images}, whose channels are zeroed or scaled.
            rate: The probability of a zero channel, from 0 to 1.
            rng: The ``od.Generator`` to draw from; that of the process by default.
            training: If False, the result is ``x``.
        """
        return _dropout(who, x, rate, rng, training, n)

    return channel_dropout


dropout1d = _declare_channel_dropout(
    1,
    samples=[sample((2, 3, 2), training=False), sample((2, 3, 2), rate=1)],
    rejects=[reject((2, 3), match=r"wanted is \(N, C, L\)")],
)
dropout2d = _declare_channel_dropout(
    2,
    samples=[sample((2, 3, 2, 2), training=False), sample((2, 3, 1, 2), rate=1)],
    rejects=[*_REJECTS, reject((2, 3, 4), match=r"wanted is \(N, C, H, W\)")],
    example="""
    >>> import odyssey as od
    >>> dropout2d(np.ones((1, 3, 1, 2)), rng=od.Generator(7))[0, :, 0]
    array([[2., 2.],
           [2., 2.],
           [2., 2.]])
    """,
)
dropout3d = _declare_channel_dropout(
    3,
    samples=[sample((2, 3, 1, 2, 2), training=False), sample((2, 2, 1, 1, 2), rate=1)],
    rejects=[reject((2, 3), match=r"wanted is \(N, C, D, H, W\)")],
)

publish(globals())
