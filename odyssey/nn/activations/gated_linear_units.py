"""Gated linear units."""

from __future__ import annotations

from typing import Any

from odyssey.errors import ShapeError
from odyssey.nn.activations.gelu import gelu
from odyssey.nn.activations.smooth import sigmoid, silu
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.structure.shape import shape_of
from odyssey.ops.structure.splitting import split
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

_HALVED: dict[str, Any] = {
    "samples": [sample((2, 6)), sample((4, 3), axis=0), sample((2, 4, 3), axis=-2), sample((0, 2))],
    "rejects": [
        reject((2, 3), match="cannot be halved"),
        reject((2, 4), axis=2, match="does not fit"),
        reject((), match="does not fit"),
    ],
}


def _halves(who: str, x: Any, axis: Any) -> Any:
    shape = shape_of(x)
    (k,) = normalize_axes(who, axis, len(shape))
    if shape[k] % 2:
        raise ShapeError(
            f"{who}: axis {axis} of x {shape} has {shape[k]} elements, which cannot be halved; "
            "its first half holds the values, its second half the gates"
        )
    return split(x, 2, k)


@composite(**_HALVED)
def glu(x: Any, *, axis: int = -1) -> Any:
    """Gated linear unit: the first half of ``x`` times the sigmoid of the second.

    Y. Dauphin et al., Language Modeling with Gated Convolutional Networks, 2017.

    Args:
        x: Both halves, consecutive along ``axis``.
        axis: The axis, which has half its length in the result.

    Raises:
        ShapeError: If the axis does not exist or has odd length.

    >>> glu(np.array([1.0, 2.0, 0.0, 100.0]))
    array([0.5, 2. ])
    """
    a, b = _halves("glu", x, axis)
    return mul(a, sigmoid(b))


@composite(**_HALVED)
def geglu(x: Any, *, axis: int = -1) -> Any:
    """Gated linear unit: the first half of ``x`` times the gelu of the second.

    N. Shazeer, GLU Variants Improve Transformer, 2020. See ``glu``.

    Args:
        x: Both halves, consecutive along ``axis``.
        axis: The axis, which has half its length in the result.

    Raises:
        ShapeError: If the axis does not exist or has odd length.

    >>> geglu(np.array([1.0, 2.0, 0.0, 100.0]))
    array([  0., 200.])
    """
    a, b = _halves("geglu", x, axis)
    return mul(a, gelu(b))


@composite(**_HALVED)
def swiglu(x: Any, *, axis: int = -1) -> Any:
    """Gated linear unit: the first half of ``x`` times the silu, or swish, of the second.

    N. Shazeer, GLU Variants Improve Transformer, 2020. See ``glu``.

    Args:
        x: Both halves, consecutive along ``axis``.
        axis: The axis, which has half its length in the result.

    Raises:
        ShapeError: If the axis does not exist or has odd length.

    >>> swiglu(np.array([1.0, 2.0, 0.0, 100.0]))
    array([  0., 200.])
    """
    a, b = _halves("swiglu", x, axis)
    return mul(a, silu(b))


publish(globals())
