"""Multidimensional discrete Fourier transforms, with the signatures of NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.fft.primitives import dft, inverse_real_dft, norm_option, real_dft
from odyssey.fft.transform_sizes import Sizes, crop_or_pad, transform_axes, transform_operand
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

_SAMPLES = (
    sample((2, 3)),
    sample((2, 3, 2), axes=(0, -1), norm="ortho"),
    sample((2, 3), s=(3, 2), axes=(0, 1), norm="forward"),
    sample((2, 3), axes=(1,)),
    sample((2, 3), s=(-1, 4), axes=(1, 0)),
    sample((0, 2, 2), axes=(1, 2)),
)
_HALF_SAMPLES = (
    sample((2, 3)),
    sample((2, 2, 3), axes=(0, -1), norm="ortho"),
    sample((2, 3), s=(3, 5), axes=(0, 1), norm="forward"),
    sample((3, 2), axes=(0,)),
    sample((0, 2, 2), axes=(1, 2)),
)
_PLANE_SAMPLES = (sample((2, 3)), sample((3, 2, 2), s=(2, 3), axes=(0, 2), norm="ortho"))

_REJECTS = (
    reject((2, 3), axes=(0, 2), match="does not fit"),
    reject((2, 3), s=(3,), axes=(0, 1), match="a size for each"),
    reject((2, 3), s=(0, 2), axes=(0, 1), match="pass 1 or more"),
    reject((2, 3), s=4, axes=(0, 1), error=DTypeError, match="pass a tuple of ints"),
    reject((2, 3), axes=(0, 1), norm="unit", error=SettingError, match="choose 'backward'"),
)
_HALF_REJECTS = (*_REJECTS, reject((2, 3), axes=(), match="one axis or more"))
_COMPLEX = reject(np.ones((2, 2), complex), error=DTypeError, match="takes real ones")


def _transform_axes(who: str, a: Any, s: Any, axes: Any, norm: Any, inverse: bool) -> Any:
    """Complex transform along several axes, the last one first, as in NumPy."""
    a, norm = transform_operand(who, a), norm_option(who, norm)
    for k, n in reversed(transform_axes(who, a, s, axes)):
        a = dft(crop_or_pad(a, n, k), inverse, k, norm=norm)
    # No axes: the array is returned unchanged.
    return a


def _forward_half_transform(who: str, a: Any, s: Any, axes: Any, norm: Any) -> Any:
    """Real to half-complex transform along several axes."""
    a, norm = transform_operand(who, a), norm_option(who, norm)
    *others, (last, m) = _require_axis(who, transform_axes(who, a, s, axes))
    a = real_dft(crop_or_pad(a, m, last), last, norm=norm)
    for k, n in reversed(others):
        a = dft(crop_or_pad(a, n, k), axis=k, norm=norm)
    return a


def _inverse_half_transform(who: str, a: Any, s: Any, axes: Any, norm: Any) -> Any:
    """Half-complex to real transform along several axes."""
    a, norm = transform_operand(who, a), norm_option(who, norm)
    *others, (last, m) = _require_axis(who, transform_axes(who, a, s, axes, half=True))
    for k, n in others:
        a = dft(crop_or_pad(a, n, k), True, k, norm=norm)
    half = crop_or_pad(a, m // 2 + 1, last)
    return inverse_real_dft(half, m, last, norm=norm)


def _require_axis(who: str, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if not found:
        raise ShapeError(f"{who}: no axis came; a real transform needs one axis or more")
    return found


# ------------------------------------------------------------------ any axes


@composite(numpy=[np.fft.fftn], samples=_SAMPLES, rejects=_REJECTS)
def fftn(
    a: Any, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Any:
    """Discrete Fourier transform along several axes, by default along all.

    Args:
        a: Array, real or complex.
        s: Number of points along each axis: ``a`` is cropped or zero-padded; -1, the default, for
            its length.
        axes: Axes to transform; by default all, or the last ones if only ``s`` is given.
        norm: As in ``fft``, for each axis.

    Returns:
        Complex numbers.

    Raises:
        ShapeError: for axes that ``a`` lacks, a wrong number of sizes, or zero points.

    >>> fftn(np.array([[1.0, 2.0], [3.0, 4.0]])).real
    array([[10., -2.],
           [-4.,  0.]])
    """
    return _transform_axes("fftn", a, s, axes, norm, False)


@composite(numpy=[np.fft.ifftn], samples=_SAMPLES, rejects=_REJECTS)
def ifftn(
    a: Any, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Any:
    """Inverse of ``fftn``.

    Args:
        a: Array, real or complex.
        s: As in ``fftn``.
        axes: As in ``fftn``.
        norm: As in ``ifft``, for each axis.

    Returns:
        Complex numbers.

    Raises:
        ShapeError: for axes that ``a`` lacks, a wrong number of sizes, or zero points.

    >>> ifftn(fftn(np.array([[1.0, 2.0], [3.0, 4.0]]))).real
    array([[1., 2.],
           [3., 4.]])
    """
    return _transform_axes("ifftn", a, s, axes, norm, True)


@composite(numpy=[np.fft.rfftn], samples=_SAMPLES, rejects=[*_HALF_REJECTS, _COMPLEX])
def rfftn(
    a: Any, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Any:
    """Transform ``fftn`` of real numbers, without the redundant half of the last axis.

    Args:
        a: Real array.
        s: As in ``fftn``.
        axes: As in ``fftn``; one or more.
        norm: As in ``fft``, for each axis.

    Returns:
        Complex numbers, ``n // 2 + 1`` along the last axis for ``n`` points.

    Raises:
        ShapeError: for axes that ``a`` lacks, a wrong number of sizes, or zero points.
        DTypeError: for complex numbers.

    >>> rfftn(np.ones((2, 4))).shape
    (2, 3)
    """
    return _forward_half_transform("rfftn", a, s, axes, norm)


@composite(numpy=[np.fft.irfftn], samples=_HALF_SAMPLES, rejects=_HALF_REJECTS)
def irfftn(
    a: Any, s: Sizes = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Any:
    """Inverse of ``rfftn``: real numbers.

    Args:
        a: Array, real or complex.
        s: Number of output points along each axis; needed if the last is odd. By default the
            length of each axis, and ``2 (m - 1)`` for length ``m`` of the last.
        axes: As in ``fftn``; one or more.
        norm: As in ``ifft``, for each axis.

    Returns:
        Real numbers.

    Raises:
        ShapeError: for axes that ``a`` lacks, a wrong number of sizes, or zero points.

    >>> irfftn(rfftn(np.array([[1.0, 2.0], [3.0, 4.0]])))
    array([[1., 2.],
           [3., 4.]])
    """
    return _inverse_half_transform("irfftn", a, s, axes, norm)


# ------------------------------------------------------------------ two axes


@composite(numpy=[np.fft.fft2], samples=_PLANE_SAMPLES, rejects=_REJECTS[:2])
def fft2(a: Any, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """``fftn`` along the last two axes.

    >>> fft2(np.array([[1.0, 2.0], [3.0, 4.0]])).real
    array([[10., -2.],
           [-4.,  0.]])
    """
    return _transform_axes("fft2", a, s, axes, norm, False)


@composite(numpy=[np.fft.ifft2], samples=_PLANE_SAMPLES, rejects=_REJECTS[:2])
def ifft2(a: Any, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """``ifftn`` along the last two axes.

    >>> ifft2(fft2(np.array([[1.0, 2.0], [3.0, 4.0]]))).real
    array([[1., 2.],
           [3., 4.]])
    """
    return _transform_axes("ifft2", a, s, axes, norm, True)


@composite(numpy=[np.fft.rfft2], samples=_PLANE_SAMPLES, rejects=[*_HALF_REJECTS[:2], _COMPLEX])
def rfft2(a: Any, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """``rfftn`` along the last two axes.

    >>> rfft2(np.ones((2, 4))).shape
    (2, 3)
    """
    return _forward_half_transform("rfft2", a, s, axes, norm)


@composite(numpy=[np.fft.irfft2], samples=_PLANE_SAMPLES, rejects=_HALF_REJECTS[:2])
def irfft2(a: Any, s: Sizes = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """``irfftn`` along the last two axes.

    >>> irfft2(rfft2(np.array([[1.0, 2.0], [3.0, 4.0]])))
    array([[1., 2.],
           [3., 4.]])
    """
    return _inverse_half_transform("irfft2", a, s, axes, norm)


publish(globals())
