"""Running folds along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.arrangement import flip
from odyssey.ops.samples import reject, sample
from odyssey.ops.shape import normalize_axes, reshape
from odyssey.ops.table import op, publish
from odyssey.spec import Spec


def _cumsum_spec(x: Spec, axis: int | None) -> Spec:
    dtype = np.add.reduce(np.ones(1, x.dtype)).dtype
    if axis is None:
        return Spec((x.size,), dtype)
    normalize_axes("cumsum", axis, x.ndim)
    return Spec(x.shape, dtype)


def _cumsum_rule(g: Any, x_spec: Spec, axis: int | None) -> Any:
    along = 0 if axis is None else axis
    back = flip(cumsum(flip(g, along), along), along)
    return reshape(back, x_spec.shape) if axis is None else back


@op(
    linear=True,
    numpy=[np.cumsum],
    infer=_cumsum_spec,
    vjp={"x": _cumsum_rule},
    samples=[
        sample((2, 3)),
        sample((2, 3), axis=0),
        sample((2, 3, 2), axis=-2),
        sample(()),
        sample((0, 3), axis=0),
    ],
    rejects=[reject((2, 3), axis=2, match="does not fit an array of 2 axes")],
)
def cumsum(x: Any, /, axis: int | None = None) -> Any:
    """Running sum along ``axis``, by default of all elements in row-major order."""
    return np.cumsum(x, axis)


publish(globals())
