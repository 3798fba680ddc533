"""Discrete Fourier transforms along one axis or several.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from collections.abc import Sequence
from typing import overload

from odyssey.table.protocols import Tape
from odyssey.table.signatures import (
    Array,
    ArrayOrScalar,
    MultidimensionalTransform,
    Operand,
    Plain,
    Transform,
    TwoDimensionalTransform,
    V,
)

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
fft: Transform
"""Discrete Fourier transform along an axis: ``sum(a[j] exp(-2 pi i j k / n))`` over ``j``."""
fft2: TwoDimensionalTransform
"""``fftn`` along the last two axes."""

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
fftn: MultidimensionalTransform
"""Discrete Fourier transform along several axes, by default along all."""

@overload
def fftshift(x: V, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None) -> V:
    """Shift frequency 0 from the front to the center of each axis."""
@overload
def fftshift(
    x: Plain, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...
hfft: Transform
"""Transform of a Hermitian-symmetric signal: a real spectrum."""
ifft: Transform
"""Inverse of ``fft``: ``sum(a[k] exp(2 pi i j k / n)) / n`` for each ``j``."""
ifft2: TwoDimensionalTransform
"""``ifftn`` along the last two axes."""
ifftn: MultidimensionalTransform
"""Inverse of ``fftn``."""

@overload
def ifftshift(x: V, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None) -> V:
    """Inverse of ``fftshift``; differs from it along axes of odd length."""
@overload
def ifftshift(
    x: Plain, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...
ihfft: Transform
"""Inverse of ``hfft``: the first half of the signal with a real spectrum."""

@overload
def inverse_real_dft(
    x: V, /, n: int, axis: int = -1, *, norm: str = "backward", tape: Tape | None = None
) -> V:
    """Inverse of ``real_dft``: ``n`` real numbers from half a spectrum."""
@overload
def inverse_real_dft(
    x: Plain, /, n: int, axis: int = -1, *, norm: str = "backward", tape: Tape | None = None
) -> Array: ...
irfft: Transform
"""Inverse of ``rfft``: real numbers from half a spectrum."""
irfft2: TwoDimensionalTransform
"""``irfftn`` along the last two axes."""
irfftn: MultidimensionalTransform
"""Inverse of ``rfftn``: real numbers."""

@overload
def real_dft(x: V, /, axis: int = -1, *, norm: str = "backward", tape: Tape | None = None) -> V:
    """First half of the discrete Fourier transform of real numbers."""
@overload
def real_dft(
    x: Plain, /, axis: int = -1, *, norm: str = "backward", tape: Tape | None = None
) -> Array: ...
rfft: Transform
"""Transform ``fft`` of real numbers, without its redundant second half."""
rfft2: TwoDimensionalTransform
"""``rfftn`` along the last two axes."""

@overload
def rfftfreq(n: int, d: V, *, tape: Tape | None = None) -> V:
    """Sample frequencies of an ``rfft`` of ``n`` samples."""
@overload
def rfftfreq(n: int, d: Plain = 1.0, *, tape: Tape | None = None) -> ArrayOrScalar: ...
rfftn: MultidimensionalTransform
"""Transform ``fftn`` of real numbers, without the redundant half of the last axis."""
