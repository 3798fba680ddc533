"""Sample frequencies of discrete Fourier transforms, and fftshift."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_int
from odyssey.errors import SettingError
from odyssey.fft.transform_sizes import transform_operand
from odyssey.ops.elementwise.arithmetic import div, mul
from odyssey.ops.structure.arrangement import roll
from odyssey.ops.structure.shape import Axes
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

_SHIFT_SAMPLES = (
    sample((4,)),
    sample((2, 3)),
    sample((2, 3, 3), axes=(0, -1)),
    sample((2, 5), axes=1),
    sample((0, 3), axes=1),
)
_SHIFT_REJECT = reject((2, 3), axes=2, match="does not fit")


def _roll_axes(x: Any, shifts: list[int], axis_indices: tuple[int, ...]) -> Any:
    if not axis_indices:  # np.roll rejects an empty tuple for a scalar
        return roll(x, 0)
    return roll(x, tuple(shifts), axis_indices)


@composite(numpy=[np.fft.fftshift], samples=_SHIFT_SAMPLES, rejects=[_SHIFT_REJECT])
def fftshift(x: Any, axes: Axes = None) -> Any:
    """Shift frequency 0 from the front to the center of each axis.

    Args:
        x: Array of any shape.
        axes: Axes to shift; by default all.

    Raises:
        ShapeError: for an axis that ``x`` lacks.

    >>> fftshift(np.array([0, 1, 2, -2, -1]))
    array([-2, -1,  0,  1,  2])
    """
    x = transform_operand("fftshift", x)
    axis_indices = normalize_axes("fftshift", axes, len(x.shape))
    return _roll_axes(x, [x.shape[k] // 2 for k in axis_indices], axis_indices)


@composite(numpy=[np.fft.ifftshift], samples=_SHIFT_SAMPLES, rejects=[_SHIFT_REJECT])
def ifftshift(x: Any, axes: Axes = None) -> Any:
    """Inverse of ``fftshift``; differs from it along axes of odd length.

    Args:
        x: Array of any shape.
        axes: Axes to shift; by default all.

    Raises:
        ShapeError: for an axis that ``x`` lacks.

    >>> ifftshift(np.array([-2, -1, 0, 1, 2]))
    array([ 0,  1,  2, -2, -1])
    """
    x = transform_operand("ifftshift", x)
    axis_indices = normalize_axes("ifftshift", axes, len(x.shape))
    return _roll_axes(x, [-(x.shape[k] // 2) for k in axis_indices], axis_indices)


_SPACINGS = (sample(5), sample(4, d=0.5), sample(1, d=-2.0))
_NO_SPACING = reject(0, error=SettingError, match="at least 1")


def _scale_frequencies(numbers: Any, n: int, d: Any) -> Any:
    """Return ``numbers / (n * d)``, computed in the order of NumPy."""
    return mul(numbers, div(1.0, mul(n, d)))


@composite(numpy=[np.fft.fftfreq], samples=_SPACINGS, rejects=[_NO_SPACING])
def fftfreq(n: int, d: Any = 1.0) -> Any:
    """Sample frequencies of an ``fft`` of ``n`` samples, in its order.

    Args:
        n: Number of samples, at least 1.
        d: Sample spacing.

    Returns:
        Frequencies in cycles per unit of ``d``: from 0 up, then the negative ones, ascending.

    Raises:
        SettingError: if ``n`` is less than 1.

    >>> fftfreq(5, 0.1)
    array([ 0.,  2.,  4., -4., -2.])
    """
    n = check_int("fftfreq", "n", n, 1)
    first = (n - 1) // 2 + 1
    numbers = np.concatenate([np.arange(first), np.arange(-(n // 2), 0)])
    return _scale_frequencies(numbers, n, d)


@composite(numpy=[np.fft.rfftfreq], samples=_SPACINGS, rejects=[_NO_SPACING])
def rfftfreq(n: int, d: Any = 1.0) -> Any:
    """Sample frequencies of an ``rfft`` of ``n`` samples.

    Args:
        n: Number of samples, at least 1.
        d: Sample spacing.

    Returns:
        ``n // 2 + 1`` frequencies from 0 up, in cycles per unit of ``d``.

    Raises:
        SettingError: if ``n`` is less than 1.

    >>> rfftfreq(5, 0.1)
    array([0., 2., 4.])
    """
    n = check_int("rfftfreq", "n", n, 1)
    return _scale_frequencies(np.arange(n // 2 + 1), n, d)


publish(globals())
