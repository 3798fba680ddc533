"""Convolution by fast Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import check_choice
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import result_type
from odyssey.errors import SettingError, ShapeError
from odyssey.fft.multidimensional import fftn, ifftn, irfftn, rfftn
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.reductions.convolution import next_fast_length
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.shape import astype
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import Symbol, Value


@composite(
    samples=[
        sample((4,), (3,)),
        sample((3, 4), (2, 2), mode="same"),
        sample((2, 2), (3, 4), mode="valid"),
        sample((2, 4), (1, 3), axes=(1,), mode="valid"),
        sample((2, 2, 3), (2, 2, 2), axes=(0, -1)),
        sample((), ()),
    ],
    rejects=[
        reject((2, 3), (2,), match="equally many axes"),
        reject((2, 3), (3, 2), mode="valid", match="along every axis"),
        reject((2, 3), (3, 3), axes=1, match="do not broadcast"),
        reject((0,), (2,), match="at least one element"),
        reject((2,), (2,), mode="whole", error=SettingError, match="choose 'full'"),
    ],
)
def fftconvolve(a: Any, v: Any, mode: str = "full", axes: int | Sequence[int] | None = None) -> Any:
    """Convolution along several axes by fast Fourier transforms, for two large arrays.

    Rounding errors scale with the largest results: small results may have fewer correct digits than
    by direct summation.

    Args:
        a: Array, real or complex; integers become floating point.
        v: Array with the same number of axes.
        mode: ``"full"`` for every overlap, ``"same"`` for its center in the shape of ``a``,
            ``"valid"`` for complete overlap, which needs one array to be at least as long as the
            other along every axis.
        axes: Axes to convolve along; by default all. The other axes broadcast.

    Raises:
        ShapeError: if shapes do not fit.

    >>> fftconvolve(np.array([1.0, 2.0]), np.array([1.0, 0.0, 3.0])).round(12)
    array([1., 2., 3., 6.])
    """
    who = "fftconvolve"
    check_choice(who, "mode", mode, ("full", "same", "valid"))
    a, v = _convolution_operand("a", a), _convolution_operand("v", v)
    axis_indices = _convolution_axes(a, v, axes)
    if not axis_indices:
        return mul(a, v)
    pairs = [(a.shape[k], v.shape[k]) for k in axis_indices]
    if mode == "valid" and not (all(n >= m for n, m in pairs) or all(n <= m for n, m in pairs)):
        raise ShapeError(
            f"{who}: {a.shape} and {v.shape}; mode 'valid' needs one array to be at "
            "least as long as the other along every axis"
        )
    full_sizes = [n + m - 1 for n, m in pairs]
    sizes = [next_fast_length(n) for n in full_sizes]
    either_complex = "c" in (a.dtype.kind, v.dtype.kind)
    forward, inverse = (fftn, ifftn) if either_complex else (rfftn, irfftn)
    spectra = [forward(x, sizes, axis_indices) for x in (a, v)]
    full_result = inverse(mul(*spectra), sizes, axis_indices)
    key = [slice(None)] * len(a.shape)
    for k, full, (n, m) in zip(axis_indices, full_sizes, pairs, strict=True):
        length = {"full": full, "same": n, "valid": abs(n - m) + 1}[mode]
        first = (full - length) // 2
        key[k] = slice(first, first + length)
    out = getitem(full_result, tuple(key))
    dtype = result_type(a.dtype, v.dtype)  # half precision is transformed in single
    return out if out.dtype == dtype else astype(out, dtype)


def _convolution_operand(name: str, x: Any) -> Any:
    """Convert an operand to a floating-point array."""
    x = x if isinstance(x, (Value, Symbol)) else as_array("fftconvolve", name, x)
    return astype(x, np.float64) if x.dtype.kind in "biu" else x


def _convolution_axes(a: Any, v: Any, axes: Any) -> tuple[int, ...]:
    """Return the axes to convolve along; raise ShapeError if the shapes do not fit."""
    who = "fftconvolve"
    if len(a.shape) != len(v.shape):
        raise ShapeError(f"{who}: {a.shape} and {v.shape}; pass arrays with equally many axes")
    axis_indices = normalize_axes(who, axes, len(a.shape))
    if not all(x.shape[k] for x in (a, v) for k in axis_indices):
        raise ShapeError(f"{who}: {a.shape} and {v.shape}; pass arrays with at least one element")
    for k, (n, m) in enumerate(zip(a.shape, v.shape, strict=True)):
        if k not in axis_indices and n != m and 1 not in (n, m):
            raise ShapeError(f"{who}: {a.shape} and {v.shape} do not broadcast along axis {k}")
    return axis_indices


publish(globals())
