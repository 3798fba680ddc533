"""Frequencies that a transform tells of, and their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import whole
from odyssey.errors import SettingError
from odyssey.fft.transform_sizes import array
from odyssey.ops.elementwise.arithmetic import div, mul
from odyssey.ops.structure.arrangement import roll
from odyssey.ops.structure.shape import Axes
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

_ORDERS = (
    sample((4,)),
    sample((2, 3)),
    sample((2, 3, 3), axes=(0, -1)),
    sample((2, 5), axes=1),
    sample((0, 3), axes=1),
)
_NO_ORDER = reject((2, 3), axes=2, match="does not fit")


def _rolled(x: Any, shifts: list[int], places: tuple[int, ...], tape: Any) -> Any:
    if not places:  # which np.roll refuses of a number
        return roll(x, 0, tape=tape)
    return roll(x, tuple(shifts), places, tape=tape)


@composite(numpy=[np.fft.fftshift], samples=_ORDERS, rejects=[_NO_ORDER])
def fftshift(x: Any, axes: Axes = None, *, tape: Any = None) -> Any:
    """The frequency 0 moved from the front to the middle of its axis.

    Args:
        x: Array of any shape.
        axes: Along which axes; by default along all.
        tape: The tape to record on.

    Raises:
        ShapeError: for an axis that ``x`` lacks.

    >>> fftshift(np.array([0, 1, 2, -2, -1]))
    array([-2, -1,  0,  1,  2])
    """
    x = array("fftshift", x)
    places = normalize_axes("fftshift", axes, len(x.shape))
    return _rolled(x, [x.shape[k] // 2 for k in places], places, tape)


@composite(numpy=[np.fft.ifftshift], samples=_ORDERS, rejects=[_NO_ORDER])
def ifftshift(x: Any, axes: Axes = None, *, tape: Any = None) -> Any:
    """Inverse of ``fftshift``, from which it differs along axes of odd length.

    Args:
        x: Array of any shape.
        axes: Along which axes; by default along all.
        tape: The tape to record on.

    Raises:
        ShapeError: for an axis that ``x`` lacks.

    >>> ifftshift(np.array([-2, -1, 0, 1, 2]))
    array([ 0,  1,  2, -2, -1])
    """
    x = array("ifftshift", x)
    places = normalize_axes("ifftshift", axes, len(x.shape))
    return _rolled(x, [-(x.shape[k] // 2) for k in places], places, tape)


_SPACINGS = (sample(5), sample(4, d=0.5), sample(1, d=-2.0))
_NO_SPACING = reject(0, error=SettingError, match="at least 1")


def _spaced(numbers: Any, n: int, d: Any, tape: Any) -> Any:
    """So many periods over ``n`` samples: the same sums as NumPy's, in the same order."""
    return mul(numbers, div(1.0, mul(n, d, tape=tape), tape=tape), tape=tape)


@composite(numpy=[np.fft.fftfreq], samples=_SPACINGS, rejects=[_NO_SPACING])
def fftfreq(n: int, d: Any = 1.0, *, tape: Any = None) -> Any:
    """The frequencies of an ``fft`` of ``n`` samples, in its order.

    Args:
        n: How many samples, 1 or more.
        d: How far apart they are.
        tape: The tape to record on.

    Returns:
        From 0 up, then the negative ones from the lowest up, in periods per unit of ``d``.

    Raises:
        SettingError: for no sample.

    >>> fftfreq(5, 0.1)
    array([ 0.,  2.,  4., -4., -2.])
    """
    n = whole("fftfreq", "n", n, 1)
    first = (n - 1) // 2 + 1
    numbers = np.concatenate([np.arange(first), np.arange(-(n // 2), 0)])
    return _spaced(numbers, n, d, tape)


@composite(numpy=[np.fft.rfftfreq], samples=_SPACINGS, rejects=[_NO_SPACING])
def rfftfreq(n: int, d: Any = 1.0, *, tape: Any = None) -> Any:
    """The frequencies of an ``rfft`` of ``n`` samples.

    Args:
        n: How many samples, 1 or more.
        d: How far apart they are.
        tape: The tape to record on.

    Returns:
        ``n // 2 + 1`` of them, from 0 up, in periods per unit of ``d``.

    Raises:
        SettingError: for no sample.

    >>> rfftfreq(5, 0.1)
    array([0., 2., 4.])
    """
    n = whole("rfftfreq", "n", n, 1)
    return _spaced(np.arange(n // 2 + 1), n, d, tape)


publish(globals())
