"""Regression losses: squared, absolute, Huber and log-cosh errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_number
from odyssey.errors import SettingError
from odyssey.losses.declare import loss
from odyssey.losses.reduction import float_operand, reduce_losses, require_same_shape, targets_like
from odyssey.table.samples import reject, sample

__all__ = ["huber", "log_cosh", "mean_absolute_error", "mean_squared_error", "smooth_l1"]

_PAIRS = (
    sample((2, 3), (2, 3)),
    sample((2, 3), (2, 3), reduction="none", weights=np.array([0.5, 2.0, 1.0])),
    sample((2, 3), (2, 3), reduction="sum"),
    sample((), ()),
    sample((0, 3), (0, 3), reduction="sum"),
)
_APART = (
    reject((2, 3), (3,), match="differ"),
    reject((2,), (2,), reduction="median", error=SettingError, match="choose 'mean'"),
)


@loss(samples=_PAIRS, rejects=_APART)
def mean_squared_error(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> Any:
    """Mean squared error, ``mean((predictions - targets)**2)``.

    Args:
        predictions: Real array or Variable of any shape.
        targets: Array or Variable of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ.

    >>> float(mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])))
    2.0
    """
    predictions, targets = (
        float_operand("mean_squared_error", predictions),
        float_operand("mean_squared_error", targets),
    )
    if weights is None and type(reduction) is str and reduction == "mean":
        return ops.squared_error_mean(predictions, targets)
    require_same_shape("mean_squared_error", predictions, targets)
    losses = ops.square(ops.subtract(predictions, targets))
    return reduce_losses("mean_squared_error", losses, reduction, weights)


@loss(samples=_PAIRS, rejects=_APART)
def mean_absolute_error(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> Any:
    """Mean absolute error, ``mean(|predictions - targets|)``.

    The derivative is 0 if both are equal.

    Args:
        predictions: Array or Variable of any shape, complex ones too.
        targets: Array or Variable of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ.

    >>> float(mean_absolute_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])))
    1.0
    """
    d = _difference("mean_absolute_error", predictions, targets, real=False)
    return reduce_losses("mean_absolute_error", ops.absolute(d), reduction, weights)


@loss(
    samples=[*_PAIRS, sample((2, 3), (2, 3), beta=0.3), sample((3,), (3,), beta=0)],
    rejects=[*_APART, reject((2,), (2,), beta=-1.0, error=SettingError, match="beta")],
)
def smooth_l1(
    predictions: Any,
    targets: Any,
    *,
    beta: float = 1.0,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Smooth L1 loss: absolute differences, quadratic below ``beta``.

    With ``d = predictions - targets``: ``d**2 / (2 beta)`` up to ``|d| = beta``, then
    ``|d| - beta / 2``. Value and slope are continuous there; the second derivative is ``1 / beta``
    for ``|d| <= beta``.

    Args:
        predictions: Real array or Variable of any shape.
        targets: Array or Variable of the same shape.
        beta: Where the parabola ends, at least 0; with 0 this is the absolute difference.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. SettingError: for a negative ``beta``.

    >>> smooth_l1(np.array([0.5, -3.0]), np.zeros(2), reduction="none")
    array([0.125, 2.5  ])
    """
    beta = check_number("smooth_l1", "beta", beta, "[0, inf)")
    d = _difference("smooth_l1", predictions, targets)
    return reduce_losses("smooth_l1", _quadratic_then_linear(d, beta), reduction, weights)


@loss(
    samples=[*_PAIRS, sample((2, 3), (2, 3), delta=2.5)],
    rejects=[*_APART, reject((2,), (2,), delta=0.0, error=SettingError, match="delta")],
)
def huber(
    predictions: Any,
    targets: Any,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Huber loss: half the squared differences, linear beyond ``delta`` (Huber 1964).

    With ``d = predictions - targets``: ``d**2 / 2`` up to ``|d| = delta``, then
    ``delta (|d| - delta / 2)``. Value and slope are continuous there; the second derivative is 1
    for ``|d| <= delta``.

    Args:
        predictions: Real array or Variable of any shape.
        targets: Array or Variable of the same shape.
        delta: Where the parabola ends, above 0.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. OdysseyError: where ``delta`` is not positive.

    >>> huber(np.array([1.0, -3.0]), np.zeros(2), delta=2.0, reduction="none")
    array([0.5, 4. ])
    """
    delta = check_number("huber", "delta", delta, "(0, inf)")
    d = _difference("huber", predictions, targets)
    return reduce_losses(
        "huber", ops.multiply(delta, _quadratic_then_linear(d, delta)), reduction, weights
    )


@loss(samples=_PAIRS, rejects=_APART)
def log_cosh(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> Any:
    """Log-cosh loss, mean of ``log(cosh(d))``: close to ``d**2 / 2``, then to ``|d| - log 2``.

    With ``d = predictions - targets``; its slope is ``tanh(d)``, and the second derivative
    ``1 / cosh(d)**2``. A regression by it is a maximum likelihood for errors with the density
    ``1 / (pi cosh(d))``, the hyperbolic secant distribution (Saleh and Saleh 2022, "Statistical
    properties of the log-cosh loss function used in machine learning").

    Args:
        predictions: Real array or Variable of any shape.
        targets: Array or Variable of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ.

    >>> log_cosh(np.array([1e-9, 1.0, -1000.0]), np.zeros(3), reduction="none")
    array([5.00000000e-19, 4.33780830e-01, 9.99306853e+02])
    """
    d = _difference("log_cosh", predictions, targets)
    size = ops.absolute(d)
    inside = ops.less_equal(size, 1)
    # log(cosh(d)) is log(1 + 2 sinh(d / 2)**2), which keeps the digits of small d, and
    # |d| + log(1 + exp(-2 |d|)) - log(2), which overflows for none and squares after exp, since
    # 2 |d| might.
    half = ops.sinh(ops.multiply(0.5, ops.where(inside, d, 0)))
    near = ops.log1p(ops.multiply(2, ops.square(half)))
    rest = ops.log1p(ops.square(ops.exp(ops.negative(size))))
    far = ops.add(ops.subtract(size, math.log(2)), rest)
    return reduce_losses("log_cosh", ops.where(inside, near, far), reduction, weights)


def _difference(who: str, predictions: Any, targets: Any, real: bool = True) -> Any:
    predictions = float_operand(who, predictions, real)
    targets = targets_like(who, targets, predictions, real)
    require_same_shape(who, predictions, targets)
    return ops.subtract(predictions, targets)


def _quadratic_then_linear(d: Any, width: float) -> Any:
    """``d**2 / (2 width)`` up to ``width``, then ``|d| - width / 2``."""
    size = ops.absolute(d)
    if width == 0:
        return size
    # Select before squaring: squares of large differences would overflow. The parabola uses d, not
    # |d|, whose second derivative is lost at 0.
    inside = ops.less_equal(size, width)
    near = ops.where(inside, d, 0)
    parabola = ops.multiply(0.5, ops.multiply(near, ops.divide(near, width)))
    return ops.where(inside, parabola, ops.subtract(size, 0.5 * width))
