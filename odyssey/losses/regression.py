"""Losses of numbers: how far predictions are from targets."""

from __future__ import annotations

from typing import Any

from odyssey import ops
from odyssey.checks import number
from odyssey.losses.reducing import alike, floating, reduced, same_shape

__all__ = ["huber", "mean_absolute_error", "mean_squared_error", "smooth_l1"]


def mean_squared_error(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> Any:
    """Mean of the squared differences, ``mean((predictions - targets)**2)``.

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
    predictions, targets = floating(predictions), floating(targets)
    if weights is None and type(reduction) is str and reduction == "mean":
        return ops.squared_error_mean(predictions, targets)
    same_shape("mean_squared_error", predictions, targets)
    losses = ops.square(ops.subtract(predictions, targets))
    return reduced(losses, reduction, weights)


def mean_absolute_error(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> Any:
    """Mean of the absolute differences, ``mean(|predictions - targets|)``.

    The derivative is 0 where both are equal.

    Args:
        predictions: Array or Variable of any shape.
        targets: Array or Variable of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ.

    >>> float(mean_absolute_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])))
    1.0
    """
    d = _difference("mean_absolute_error", predictions, targets)
    return reduced(ops.absolute(d), reduction, weights)


def smooth_l1(
    predictions: Any,
    targets: Any,
    *,
    beta: float = 1.0,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Mean of the absolute differences, rounded off below ``beta``.

    With ``d = predictions - targets``: ``d**2 / (2 beta)`` up to ``|d| = beta``, then
    ``|d| - beta / 2``. Value and slope join there; the second derivative is ``1 / beta`` up to
    and with it.

    Args:
        predictions: Real array or Variable of any shape.
        targets: Array or Variable of the same shape.
        beta: Where the parabola ends, at least 0; with 0 this is the absolute difference.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. OdysseyError: for a negative ``beta``.

    >>> smooth_l1(np.array([0.5, -3.0]), np.zeros(2), reduction="none")
    array([0.125, 2.5  ])
    """
    beta = number("smooth_l1", "beta", beta, "[0, inf)")
    d = _difference("smooth_l1", predictions, targets)
    return reduced(_rounded_off(d, beta), reduction, weights)


def huber(
    predictions: Any,
    targets: Any,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Mean of half the squared differences, made straight beyond ``delta`` (Huber 1964).

    With ``d = predictions - targets``: ``d**2 / 2`` up to ``|d| = delta``, then
    ``delta (|d| - delta / 2)``. Value and slope join there; the second derivative is 1 up to and
    with it.

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
    delta = number("huber", "delta", delta, "(0, inf)")
    d = _difference("huber", predictions, targets)
    return reduced(ops.multiply(delta, _rounded_off(d, delta)), reduction, weights)


def _difference(who: str, predictions: Any, targets: Any) -> Any:
    predictions = floating(predictions)
    targets = alike(targets, predictions)
    same_shape(who, predictions, targets)
    return ops.subtract(predictions, targets)


def _rounded_off(d: Any, width: float) -> Any:
    """``d**2 / (2 width)`` up to ``width``, then ``|d| - width / 2``."""
    size = ops.absolute(d)
    if width == 0:
        return size
    # Choosing before squaring: the square of a large difference would overflow in vain. The
    # parabola gets d itself, not its size, whose second derivative is lost at 0.
    inside = ops.less_equal(size, width)
    near = ops.where(inside, d, 0)
    parabola = ops.multiply(0.5, ops.multiply(near, ops.divide(near, width)))
    return ops.where(inside, parabola, ops.subtract(size, 0.5 * width))
