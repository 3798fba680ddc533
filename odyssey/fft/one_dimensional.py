"""One-dimensional discrete Fourier transforms, with the signatures of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, SettingError
from odyssey.fft.primitives import (
    OPPOSITE_NORM,
    axis_index,
    dft,
    inverse_real_dft,
    norm_option,
    real_dft,
)
from odyssey.fft.transform_sizes import crop_or_pad, point_count, transform_operand
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

_SAMPLES = (
    sample((4,)),
    sample((2, 3), norm="ortho"),
    sample((3, 2), n=5, axis=0),
    sample((2, 4), n=3, norm="forward"),
    sample((0, 2)),
)
_HALF_SAMPLES = (
    sample((3,)),
    sample((2, 3), n=5, norm="ortho"),
    sample((3, 2), n=6, axis=0),
    sample((2, 4), n=3, norm="forward"),
    sample((2, 2), n=1),
)
_REJECTS = (
    reject((2, 3), axis=2, match="does not fit"),
    reject((3,), n=0, match="pass 1 or more"),
    reject((3,), norm="unit", error=SettingError, match="choose 'backward'"),
    reject((3,), n=2.5, error=DTypeError, match="not a whole number"),
)


def _prepare_points(who: str, a: Any, n: Any, axis: Any) -> tuple[Any, int]:
    """Crop or pad to ``n`` points; return the array and the axis."""
    a = transform_operand(who, a)
    k = axis_index(who, axis, len(a.shape))
    return crop_or_pad(a, point_count(who, n, a.shape[k]), k), k


def _prepare_half_spectrum(who: str, a: Any, n: Any, axis: Any) -> tuple[Any, int, int]:
    """Crop or pad half a spectrum; return it, the number of points and the axis."""
    a = transform_operand(who, a)
    k = axis_index(who, axis, len(a.shape))
    n = point_count(who, n, 2 * (a.shape[k] - 1))
    return crop_or_pad(a, n // 2 + 1, k), n, k


# ------------------------------------------------------------------ complex transforms


@composite(numpy=[np.fft.fft], samples=_SAMPLES, rejects=_REJECTS)
def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Discrete Fourier transform along an axis: ``sum(a[j] exp(-2 pi i j k / n))`` over ``j``.

    Args:
        a: Array of one axis or more, real or complex.
        n: Number of points; ``a`` is cropped or zero-padded. By default its length.
        axis: Axis to transform.
        norm: ``"backward"`` (the default, also for None) does not scale, ``"ortho"`` divides by
            ``sqrt(n)``, ``"forward"`` by ``n``.

    Returns:
        ``n`` complex numbers along ``axis``, in the precision of ``a``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or zero points.

    >>> fft(np.array([1.0, 0.0, -1.0, 0.0]))
    array([0.+0.j, 2.+0.j, 0.+0.j, 2.+0.j])
    """
    x, k = _prepare_points("fft", a, n, axis)
    return dft(x, axis=k, norm=norm_option("fft", norm))


@composite(numpy=[np.fft.ifft], samples=_SAMPLES, rejects=_REJECTS)
def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Inverse of ``fft``: ``sum(a[k] exp(2 pi i j k / n)) / n`` for each ``j``.

    Args:
        a: Array of one axis or more, real or complex.
        n: Number of points; ``a`` is cropped or zero-padded. By default its length.
        axis: Axis to transform.
        norm: That of the transform to invert: ``"backward"`` (the default, also for None) divides
            by ``n``, ``"ortho"`` by ``sqrt(n)``, ``"forward"`` does not scale.

    Returns:
        ``n`` complex numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or zero points.

    >>> ifft(fft(np.array([1.0, 2.0, 4.0]))).real
    array([1., 2., 4.])
    """
    x, k = _prepare_points("ifft", a, n, axis)
    return dft(x, True, k, norm=norm_option("ifft", norm))


# ------------------------------------------------------------------ real transforms

_COMPLEX = reject(np.ones(2, complex), error=DTypeError, match="takes real ones")


@composite(numpy=[np.fft.rfft], samples=_SAMPLES, rejects=[*_REJECTS, _COMPLEX])
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Transform ``fft`` of real numbers, without its redundant second half.

    Args:
        a: Real array of one axis or more.
        n: Number of points; ``a`` is cropped or zero-padded. By default its length.
        axis: Axis to transform.
        norm: As in ``fft``.

    Returns:
        ``n // 2 + 1`` complex numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or zero points. DTypeError: for complex numbers.

    >>> rfft(np.array([1.0, 0.0, -1.0, 0.0]))
    array([0.+0.j, 2.+0.j, 0.+0.j])
    """
    x, k = _prepare_points("rfft", a, n, axis)
    return real_dft(x, k, norm=norm_option("rfft", norm))


@composite(
    numpy=[np.fft.irfft], samples=_HALF_SAMPLES, rejects=[*_REJECTS, reject((1,), match="0 po")]
)
def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Inverse of ``rfft``: real numbers from half a spectrum.

    Args:
        a: Array of one axis or more; the imaginary part of the first number, and for even ``n`` of
            the last, is ignored.
        n: Number of output points; needed if it is odd. By default ``2 (m - 1)`` for ``m``
            numbers along ``axis``.
        axis: Axis to transform.
        norm: As in ``ifft``.

    Returns:
        ``n`` real numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or zero points.

    >>> irfft(rfft(np.array([1.0, 2.0, 4.0])), 3)
    array([1., 2., 4.])
    """
    x, n, k = _prepare_half_spectrum("irfft", a, n, axis)
    return inverse_real_dft(x, n, k, norm=norm_option("irfft", norm))


@composite(
    numpy=[np.fft.hfft], samples=_HALF_SAMPLES, rejects=[*_REJECTS, reject((1,), match="0 po")]
)
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Transform of a Hermitian-symmetric signal: a real spectrum.

    Args:
        a: The first half of the signal, an array of one axis or more.
        n: Number of output points; needed if it is odd. By default ``2 (m - 1)`` for ``m``
            numbers along ``axis``.
        axis: Axis to transform.
        norm: As in ``fft``.

    Returns:
        ``n`` real numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or zero points.

    >>> hfft(np.array([1.0, 2.0, 1.0]))
    array([ 6.,  0., -2.,  0.])
    """
    x, n, k = _prepare_half_spectrum("hfft", a, n, axis)
    norm = OPPOSITE_NORM[norm_option("hfft", norm)]
    return inverse_real_dft(conj(x), n, k, norm=norm)


@composite(numpy=[np.fft.ihfft], samples=_SAMPLES, rejects=[*_REJECTS, _COMPLEX])
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Inverse of ``hfft``: the first half of the signal with a real spectrum.

    Args:
        a: The spectrum, a real array of one axis or more.
        n: Number of points; ``a`` is cropped or zero-padded. By default its length.
        axis: Axis to transform.
        norm: As in ``ifft``.

    Returns:
        ``n // 2 + 1`` complex numbers along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or zero points. DTypeError: for complex numbers.

    >>> ihfft(np.array([6.0, 0.0, -2.0, 0.0])).real
    array([1., 2., 1.])
    """
    x, k = _prepare_points("ihfft", a, n, axis)
    norm = OPPOSITE_NORM[norm_option("ihfft", norm)]
    return conj(real_dft(x, k, norm=norm))


publish(globals())
