"""Discrete Fourier transforms along one axis or several.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from collections.abc import Sequence
from typing import overload

from odyssey.table.protocols import Tape
from odyssey.table.signatures import Array, ArrayOrScalar, Operand, Plain, V

__all__ = [
    "dft",
    "fft",
    "fft2",
    "fftconvolve",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "inverse_real_dft",
    "irfft",
    "irfft2",
    "irfftn",
    "real_dft",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

@overload
def dft(
    x: V,
    /,
    inverse: bool = False,
    axis: int = -1,
    *,
    norm: str = "backward",
    tape: Tape | None = None,
) -> V:
    """Discrete Fourier transform of complex numbers along an axis, or its inverse."""
@overload
def dft(
    x: Plain,
    /,
    inverse: bool = False,
    axis: int = -1,
    *,
    norm: str = "backward",
    tape: Tape | None = None,
) -> Array: ...

@overload
def fft(
    a: V, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Tape | None = None
) -> V:
    """Discrete Fourier transform along an axis: ``sum(a[j] exp(-2 pi i j k / n))`` over ``j``."""
@overload
def fft(
    a: Plain,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def fft2(
    a: V,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = ...,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """``fftn`` along the last two axes."""
@overload
def fft2(
    a: Plain,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = ...,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def fftconvolve(
    a: V,
    v: Operand,
    mode: str = "full",
    axes: int | Sequence[int] | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Convolution along several axes by fast Fourier transforms, for two large arrays."""
@overload
def fftconvolve(
    a: Plain,
    v: V,
    mode: str = "full",
    axes: int | Sequence[int] | None = None,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def fftconvolve(
    a: Plain,
    v: Plain,
    mode: str = "full",
    axes: int | Sequence[int] | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def fftfreq(n: int, d: V, *, tape: Tape | None = None) -> V:
    """Sample frequencies of an ``fft`` of ``n`` samples, in its order."""
@overload
def fftfreq(n: int, d: Plain = 1.0, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def fftn(
    a: V,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Discrete Fourier transform along several axes, by default along all."""
@overload
def fftn(
    a: Plain,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def fftshift(x: V, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None) -> V:
    """Shift frequency 0 from the front to the center of each axis."""
@overload
def fftshift(
    x: Plain, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def hfft(
    a: V, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Tape | None = None
) -> V:
    """Transform of a Hermitian-symmetric signal: a real spectrum."""
@overload
def hfft(
    a: Plain,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def ifft(
    a: V, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Tape | None = None
) -> V:
    """Inverse of ``fft``: ``sum(a[k] exp(2 pi i j k / n)) / n`` for each ``j``."""
@overload
def ifft(
    a: Plain,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def ifft2(
    a: V,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = ...,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """``ifftn`` along the last two axes."""
@overload
def ifft2(
    a: Plain,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = ...,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def ifftn(
    a: V,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Inverse of ``fftn``."""
@overload
def ifftn(
    a: Plain,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def ifftshift(x: V, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None) -> V:
    """Inverse of ``fftshift``; differs from it along axes of odd length."""
@overload
def ifftshift(
    x: Plain, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def ihfft(
    a: V, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Tape | None = None
) -> V:
    """Inverse of ``hfft``: the first half of the signal with a real spectrum."""
@overload
def ihfft(
    a: Plain,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def inverse_real_dft(
    x: V, /, n: int, axis: int = -1, *, norm: str = "backward", tape: Tape | None = None
) -> V:
    """Inverse of ``real_dft``: ``n`` real numbers from half a spectrum."""
@overload
def inverse_real_dft(
    x: Plain, /, n: int, axis: int = -1, *, norm: str = "backward", tape: Tape | None = None
) -> Array: ...

@overload
def irfft(
    a: V, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Tape | None = None
) -> V:
    """Inverse of ``rfft``: real numbers from half a spectrum."""
@overload
def irfft(
    a: Plain,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def irfft2(
    a: V,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = ...,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """``irfftn`` along the last two axes."""
@overload
def irfft2(
    a: Plain,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = ...,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def irfftn(
    a: V,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Inverse of ``rfftn``: real numbers."""
@overload
def irfftn(
    a: Plain,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def real_dft(x: V, /, axis: int = -1, *, norm: str = "backward", tape: Tape | None = None) -> V:
    """First half of the discrete Fourier transform of real numbers."""
@overload
def real_dft(
    x: Plain, /, axis: int = -1, *, norm: str = "backward", tape: Tape | None = None
) -> Array: ...

@overload
def rfft(
    a: V, n: int | None = None, axis: int = -1, norm: str | None = None, *, tape: Tape | None = None
) -> V:
    """Transform ``fft`` of real numbers, without its redundant second half."""
@overload
def rfft(
    a: Plain,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def rfft2(
    a: V,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = ...,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """``rfftn`` along the last two axes."""
@overload
def rfft2(
    a: Plain,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = ...,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def rfftfreq(n: int, d: V, *, tape: Tape | None = None) -> V:
    """Sample frequencies of an ``rfft`` of ``n`` samples."""
@overload
def rfftfreq(n: int, d: Plain = 1.0, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def rfftn(
    a: V,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Transform ``fftn`` of real numbers, without the redundant half of the last axis."""
@overload
def rfftn(
    a: Plain,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
