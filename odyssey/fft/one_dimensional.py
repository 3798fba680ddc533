"""Discrete Fourier transforms of any number of points along an axis, as NumPy has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, SettingError
from odyssey.fft.primitives import OPPOSITE, dft, inverse_real_dft, norm_of, place, real_dft
from odyssey.fft.transform_sizes import array, count, fitted
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

_LINES = (
    sample((4,)),
    sample((2, 3), norm="ortho"),
    sample((3, 2), n=5, axis=0),
    sample((2, 4), n=3, norm="forward"),
    sample((0, 2)),
)
_HALVES = (
    sample((3,)),
    sample((2, 3), n=5, norm="ortho"),
    sample((3, 2), n=6, axis=0),
    sample((2, 4), n=3, norm="forward"),
    sample((2, 2), n=1),
)
_NO_LINES = (
    reject((2, 3), axis=2, match="does not fit"),
    reject((3,), n=0, match="pass 1 or more"),
    reject((3,), norm="unit", error=SettingError, match="choose 'backward'"),
    reject((3,), n=2.5, error=DTypeError, match="not a whole number"),
)


def _line(who: str, a: Any, n: Any, axis: Any, tape: Any) -> tuple[Any, int]:
    """The points to transform, and along which axis they are."""
    a = array(who, a)
    k = place(who, axis, len(a.shape))
    return fitted(a, count(who, n, a.shape[k]), k, tape), k


def _half(who: str, a: Any, n: Any, axis: Any, tape: Any) -> tuple[Any, int, int]:
    """Half of a transform, of how many points, and along which axis."""
    a = array(who, a)
    k = place(who, axis, len(a.shape))
    n = count(who, n, 2 * (a.shape[k] - 1))
    return fitted(a, n // 2 + 1, k, tape), n, k


# ------------------------------------------------------------------ of complex numbers


@composite(numpy=[np.fft.fft], samples=_LINES, rejects=_NO_LINES)
def fft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Any = None
) -> Any:
    """Discrete Fourier transform along an axis: ``sum(a[j] exp(-2 pi i j k / n))`` over ``j``.

    Args:
        a: Array of one axis or more, real or complex.
        n: How many points; ``a`` is cut there, or goes on with zeros. By default all.
        axis: Along which axis.
        norm: ``"backward"`` (the default, as is None) leaves the sums as they are, ``"ortho"``
            divides them by the root of ``n``, ``"forward"`` by ``n``.
        tape: The tape to record on.

    Returns:
        ``n`` complex numbers along ``axis``, of single precision for single precision.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or no point.

    >>> fft(np.array([1.0, 0.0, -1.0, 0.0]))
    array([0.+0.j, 2.+0.j, 0.+0.j, 2.+0.j])
    """
    x, k = _line("fft", a, n, axis, tape)
    return dft(x, axis=k, norm=norm_of("fft", norm), tape=tape)


@composite(numpy=[np.fft.ifft], samples=_LINES, rejects=_NO_LINES)
def ifft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Any = None
) -> Any:
    """Inverse of ``fft``: ``sum(a[k] exp(2 pi i j k / n)) / n`` for each ``j``.

    Args:
        a: Array of one axis or more, real or complex.
        n: How many points; ``a`` is cut there, or goes on with zeros. By default all.
        axis: Along which axis.
        norm: That of the transform to invert: ``"backward"`` (the default, as is None) divides by
            ``n``, ``"ortho"`` by its root, ``"forward"`` not at all.
        tape: The tape to record on.

    Returns:
        ``n`` complex numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or no point.

    >>> ifft(fft(np.array([1.0, 2.0, 4.0]))).real
    array([1., 2., 4.])
    """
    x, k = _line("ifft", a, n, axis, tape)
    return dft(x, True, k, norm=norm_of("ifft", norm), tape=tape)


# ------------------------------------------------------------------ of real numbers

_COMPLEX = reject(np.ones(2, complex), error=DTypeError, match="takes real ones")


@composite(numpy=[np.fft.rfft], samples=_LINES, rejects=[*_NO_LINES, _COMPLEX])
def rfft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Any = None
) -> Any:
    """First half of the ``fft`` of real numbers; the rest is its conjugate, in reverse.

    Args:
        a: Real array of one axis or more.
        n: How many points; ``a`` is cut there, or goes on with zeros. By default all.
        axis: Along which axis.
        norm: As in ``fft``.
        tape: The tape to record on.

    Returns:
        ``n // 2 + 1`` complex numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or no point. DTypeError: for complex numbers.

    >>> rfft(np.array([1.0, 0.0, -1.0, 0.0]))
    array([0.+0.j, 2.+0.j, 0.+0.j])
    """
    x, k = _line("rfft", a, n, axis, tape)
    return real_dft(x, k, norm=norm_of("rfft", norm), tape=tape)


@composite(numpy=[np.fft.irfft], samples=_HALVES, rejects=[*_NO_LINES, reject((1,), match="0 po")])
def irfft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Any = None
) -> Any:
    """Inverse of ``rfft``: real numbers from half of their transform.

    Args:
        a: Array of one axis or more; imaginary parts are not read where the transform of real
            numbers has none: of the first, and for even ``n`` of the last.
        n: How many points come out; pass it where it is odd. By default ``2 (m - 1)`` for ``m``
            numbers along ``axis``.
        axis: Along which axis.
        norm: As in ``ifft``.
        tape: The tape to record on.

    Returns:
        ``n`` real numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or no point.

    >>> irfft(rfft(np.array([1.0, 2.0, 4.0])), 3)
    array([1., 2., 4.])
    """
    x, n, k = _half("irfft", a, n, axis, tape)
    return inverse_real_dft(x, n, k, norm=norm_of("irfft", norm), tape=tape)


@composite(numpy=[np.fft.hfft], samples=_HALVES, rejects=[*_NO_LINES, reject((1,), match="0 po")])
def hfft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Any = None
) -> Any:
    """Transform of a signal whose second half is the conjugate of the first: a real spectrum.

    Args:
        a: The first half of the signal, an array of one axis or more.
        n: How many points come out; pass it where it is odd. By default ``2 (m - 1)`` for ``m``
            numbers along ``axis``.
        axis: Along which axis.
        norm: As in ``fft``.
        tape: The tape to record on.

    Returns:
        ``n`` real numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or no point.

    >>> hfft(np.array([1.0, 2.0, 1.0]))
    array([ 6.,  0., -2.,  0.])
    """
    x, n, k = _half("hfft", a, n, axis, tape)
    norm = OPPOSITE[norm_of("hfft", norm)]
    return inverse_real_dft(conj(x, tape=tape), n, k, norm=norm, tape=tape)


@composite(numpy=[np.fft.ihfft], samples=_LINES, rejects=[*_NO_LINES, _COMPLEX])
def ihfft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Any = None
) -> Any:
    """Inverse of ``hfft``: the first half of the signal that has a real spectrum.

    Args:
        a: The spectrum, a real array of one axis or more.
        n: How many points of it; ``a`` is cut there, or goes on with zeros. By default all.
        axis: Along which axis.
        norm: As in ``ifft``.
        tape: The tape to record on.

    Returns:
        ``n // 2 + 1`` complex numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or no point. DTypeError: for complex numbers.

    >>> ihfft(np.array([6.0, 0.0, -2.0, 0.0])).real
    array([1., 2., 1.])
    """
    x, k = _line("ihfft", a, n, axis, tape)
    norm = OPPOSITE[norm_of("ihfft", norm)]
    return conj(real_dft(x, k, norm=norm, tape=tape), tape=tape)


publish(globals())
