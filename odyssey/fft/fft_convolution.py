"""Convolution along several axes by Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import word
from odyssey.devices.arrays import as_array
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
        reject((2, 3), (2,), match="as many axes"),
        reject((2, 3), (3, 2), mode="valid", match="along every axis"),
        reject((2, 3), (3, 3), axes=1, match="do not broadcast"),
        reject((0,), (2,), match="an element or more"),
        reject((2,), (2,), mode="whole", error=SettingError, match="choose 'full'"),
    ],
)
def fftconvolve(
    a: Any,
    v: Any,
    mode: str = "full",
    axes: int | Sequence[int] | None = None,
    *,
    tape: Any = None,
) -> Any:
    """Convolution along several axes, by Fourier transforms: for two large arrays.

    Errors are those of the largest sums: small ones may have fewer digits than summed directly.

    Args:
        a: Array, real or complex; whole numbers become floating ones.
        v: Array of as many axes.
        mode: ``"full"`` where they touch, ``"same"`` for the middle of that in the shape of ``a``,
            ``"valid"`` where they lie over each other entirely, and then one is at least as long
            as the other along every axis.
        axes: Along which axes; by default all. Along the others both broadcast.
        tape: The tape to record on.

    Raises:
        ShapeError: for shapes that do not fit.

    >>> fftconvolve(np.array([1.0, 2.0]), np.array([1.0, 0.0, 3.0])).round(12)
    array([1., 2., 3., 6.])
    """
    who = "fftconvolve"
    word(who, "mode", mode, ("full", "same", "valid"))
    a, v = _floating("a", a, tape), _floating("v", v, tape)
    places = _axes(a, v, axes)
    if not places:
        return mul(a, v, tape=tape)
    pairs = [(a.shape[k], v.shape[k]) for k in places]
    if mode == "valid" and not (all(n >= m for n, m in pairs) or all(n <= m for n, m in pairs)):
        raise ShapeError(
            f"{who}: {a.shape} and {v.shape}; where they lie over each other entirely, one is at "
            "least as long as the other along every axis"
        )
    whole = [n + m - 1 for n, m in pairs]
    sizes = [next_fast_length(n) for n in whole]
    either_complex = "c" in (a.dtype.kind, v.dtype.kind)
    there, back = (fftn, ifftn) if either_complex else (rfftn, irfftn)
    spectra = [there(x, sizes, places, tape=tape) for x in (a, v)]
    found = back(mul(*spectra, tape=tape), sizes, places, tape=tape)
    key = [slice(None)] * len(a.shape)
    for k, full, (n, m) in zip(places, whole, pairs, strict=True):
        length = {"full": full, "same": n, "valid": abs(n - m) + 1}[mode]
        first = (full - length) // 2
        key[k] = slice(first, first + length)
    part = getitem(found, tuple(key), tape=tape)
    dtype = np.result_type(a.dtype, v.dtype)  # half precision is transformed in single
    return part if part.dtype == dtype else astype(part, dtype, tape=tape)


def _floating(name: str, x: Any, tape: Any) -> Any:
    x = x if isinstance(x, (Value, Symbol)) else as_array("fftconvolve", name, x)
    return astype(x, np.float64, tape=tape) if x.dtype.kind in "biu" else x


def _axes(a: Any, v: Any, axes: Any) -> tuple[int, ...]:
    """Along which axes to convolve, where the shapes fit."""
    who = "fftconvolve"
    if len(a.shape) != len(v.shape):
        raise ShapeError(f"{who}: {a.shape} and {v.shape}; pass arrays of as many axes")
    places = normalize_axes(who, axes, len(a.shape))
    if not all(x.shape[k] for x in (a, v) for k in places):
        raise ShapeError(f"{who}: {a.shape} and {v.shape}; pass arrays with an element or more")
    for k, (n, m) in enumerate(zip(a.shape, v.shape, strict=True)):
        if k not in places and n != m and 1 not in (n, m):
            raise ShapeError(f"{who}: {a.shape} and {v.shape} do not broadcast along axis {k}")
    return places


publish(globals())
