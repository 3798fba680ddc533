"""Discrete Fourier transforms along several axes, as NumPy has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.fft.primitives import dft, inverse_real_dft, norm_of, real_dft
from odyssey.fft.transform_sizes import Sizes, array, fitted, points
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

_SPACES = (
    sample((2, 3)),
    sample((2, 3, 2), axes=(0, -1), norm="ortho"),
    sample((2, 3), s=(3, 2), axes=(0, 1), norm="forward"),
    sample((2, 3), axes=(1,)),
    sample((2, 3), s=(-1, 4), axes=(1, 0)),
    sample((0, 2, 2), axes=(1, 2)),
)
_HALF_SPACES = (
    sample((2, 3)),
    sample((2, 2, 3), axes=(0, -1), norm="ortho"),
    sample((2, 3), s=(3, 5), axes=(0, 1), norm="forward"),
    sample((3, 2), axes=(0,)),
    sample((0, 2, 2), axes=(1, 2)),
)
_PLANES = (sample((2, 3)), sample((3, 2, 2), s=(2, 3), axes=(0, 2), norm="ortho"))

_NO_SPACES = (
    reject((2, 3), axes=(0, 2), match="does not fit"),
    reject((2, 3), s=(3,), axes=(0, 1), match="a size for each"),
    reject((2, 3), s=(0, 2), axes=(0, 1), match="pass 1 or more"),
    reject((2, 3), s=4, axes=(0, 1), error=DTypeError, match="pass a tuple of ints"),
    reject((2, 3), axes=(0, 1), norm="unit", error=SettingError, match="choose 'backward'"),
)
_NO_HALF_SPACES = (*_NO_SPACES, reject((2, 3), axes=(), match="one axis or more"))
_COMPLEX = reject(np.ones((2, 2), complex), error=DTypeError, match="takes real ones")


def _whole(who: str, a: Any, s: Any, axes: Any, norm: Any, inverse: bool, tape: Any) -> Any:
    """The transform along all axes, the last one first, as NumPy goes."""
    a, norm = array(who, a), norm_of(who, norm)
    for k, n in reversed(points(who, a, s, axes)):
        a = dft(fitted(a, n, k, tape), inverse, k, norm=norm, tape=tape)
    # Without an axis there is nothing to transform.
    return a


def _to_half(who: str, a: Any, s: Any, axes: Any, norm: Any, tape: Any) -> Any:
    a, norm = array(who, a), norm_of(who, norm)
    *others, (last, m) = _with_last(who, points(who, a, s, axes))
    a = real_dft(fitted(a, m, last, tape), last, norm=norm, tape=tape)
    for k, n in reversed(others):
        a = dft(fitted(a, n, k, tape), axis=k, norm=norm, tape=tape)
    return a


def _from_half(who: str, a: Any, s: Any, axes: Any, norm: Any, tape: Any) -> Any:
    a, norm = array(who, a), norm_of(who, norm)
    *others, (last, m) = _with_last(who, points(who, a, s, axes, half=True))
    for k, n in others:
        a = dft(fitted(a, n, k, tape), True, k, norm=norm, tape=tape)
    half = fitted(a, m // 2 + 1, last, tape)
    return inverse_real_dft(half, m, last, norm=norm, tape=tape)


def _with_last(who: str, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if not found:
        raise ShapeError(f"{who}: no axis came; half of a transform needs one axis or more")
    return found


# ------------------------------------------------------------------ along any axes


@composite(numpy=[np.fft.fftn], samples=_SPACES, rejects=_NO_SPACES)
def fftn(
    a: Any,
    s: Sizes = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Any = None,
) -> Any:
    """Discrete Fourier transform along several axes, by default along all.

    Args:
        a: Array, real or complex.
        s: How many points along each of the axes: there ``a`` is cut, or goes on with zeros; -1
            for as many as there are, as by default.
        axes: Along which axes; where only ``s`` is given, along the last ones.
        norm: As in ``fft``, for each axis.
        tape: The tape to record on.

    Returns:
        Complex numbers.

    Raises:
        ShapeError: for axes that ``a`` lacks, sizes that are not one for each, or no point.

    >>> fftn(np.array([[1.0, 2.0], [3.0, 4.0]])).real
    array([[10., -2.],
           [-4.,  0.]])
    """
    return _whole("fftn", a, s, axes, norm, False, tape)


@composite(numpy=[np.fft.ifftn], samples=_SPACES, rejects=_NO_SPACES)
def ifftn(
    a: Any,
    s: Sizes = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Any = None,
) -> Any:
    """Inverse of ``fftn``.

    Args:
        a: Array, real or complex.
        s: As in ``fftn``.
        axes: As in ``fftn``.
        norm: As in ``ifft``, for each axis.
        tape: The tape to record on.

    Returns:
        Complex numbers.

    Raises:
        ShapeError: for axes that ``a`` lacks, sizes that are not one for each, or no point.

    >>> ifftn(fftn(np.array([[1.0, 2.0], [3.0, 4.0]]))).real
    array([[1., 2.],
           [3., 4.]])
    """
    return _whole("ifftn", a, s, axes, norm, True, tape)


@composite(numpy=[np.fft.rfftn], samples=_SPACES, rejects=[*_NO_HALF_SPACES, _COMPLEX])
def rfftn(
    a: Any,
    s: Sizes = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Any = None,
) -> Any:
    """The ``fftn`` of real numbers, of which half along the last of the axes says all.

    Args:
        a: Real array.
        s: As in ``fftn``.
        axes: As in ``fftn``; one or more.
        norm: As in ``fft``, for each axis.
        tape: The tape to record on.

    Returns:
        Complex numbers, ``n // 2 + 1`` along the last of the axes where it has ``n`` points.

    Raises:
        ShapeError: for axes that ``a`` lacks, sizes that are not one for each, or no point.
        DTypeError: for complex numbers.

    >>> rfftn(np.ones((2, 4))).shape
    (2, 3)
    """
    return _to_half("rfftn", a, s, axes, norm, tape)


@composite(numpy=[np.fft.irfftn], samples=_HALF_SPACES, rejects=_NO_HALF_SPACES)
def irfftn(
    a: Any,
    s: Sizes = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Any = None,
) -> Any:
    """Inverse of ``rfftn``: real numbers.

    Args:
        a: Array, real or complex.
        s: How many points come out along each of the axes; pass it where the last has an odd
            number. By default as many as there are, and ``2 (m - 1)`` from ``m`` along the last.
        axes: As in ``fftn``; one or more.
        norm: As in ``ifft``, for each axis.
        tape: The tape to record on.

    Returns:
        Real numbers.

    Raises:
        ShapeError: for axes that ``a`` lacks, sizes that are not one for each, or no point.

    >>> irfftn(rfftn(np.array([[1.0, 2.0], [3.0, 4.0]])))
    array([[1., 2.],
           [3., 4.]])
    """
    return _from_half("irfftn", a, s, axes, norm, tape)


# ------------------------------------------------------------------ along two axes


@composite(numpy=[np.fft.fft2], samples=_PLANES, rejects=_NO_SPACES[:2])
def fft2(
    a: Any,
    s: Sizes = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    tape: Any = None,
) -> Any:
    """``fftn`` along the last two axes.

    >>> fft2(np.array([[1.0, 2.0], [3.0, 4.0]])).real
    array([[10., -2.],
           [-4.,  0.]])
    """
    return _whole("fft2", a, s, axes, norm, False, tape)


@composite(numpy=[np.fft.ifft2], samples=_PLANES, rejects=_NO_SPACES[:2])
def ifft2(
    a: Any,
    s: Sizes = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    tape: Any = None,
) -> Any:
    """``ifftn`` along the last two axes.

    >>> ifft2(fft2(np.array([[1.0, 2.0], [3.0, 4.0]]))).real
    array([[1., 2.],
           [3., 4.]])
    """
    return _whole("ifft2", a, s, axes, norm, True, tape)


@composite(numpy=[np.fft.rfft2], samples=_PLANES, rejects=[*_NO_HALF_SPACES[:2], _COMPLEX])
def rfft2(
    a: Any,
    s: Sizes = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    tape: Any = None,
) -> Any:
    """``rfftn`` along the last two axes.

    >>> rfft2(np.ones((2, 4))).shape
    (2, 3)
    """
    return _to_half("rfft2", a, s, axes, norm, tape)


@composite(numpy=[np.fft.irfft2], samples=_PLANES, rejects=_NO_HALF_SPACES[:2])
def irfft2(
    a: Any,
    s: Sizes = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    tape: Any = None,
) -> Any:
    """``irfftn`` along the last two axes.

    >>> irfft2(rfft2(np.array([[1.0, 2.0], [3.0, 4.0]])))
    array([[1., 2.],
           [3., 4.]])
    """
    return _from_half("irfft2", a, s, axes, norm, tape)


publish(globals())
