"""Replacement of NaN and infinities."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import finfo, has_half, is_floating
from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import add, mul
from odyssey.ops.elementwise.choice import equal, isfinite, isnan, keep_where, logical_or, where
from odyssey.ops.elementwise.complex_numbers import imag, real
from odyssey.table.declare import op, publish
from odyssey.table.real_operands import real_options
from odyssey.table.samples import reject, sample, singles


def _replacement_options(copy: Any, nan: Any, posinf: Any, neginf: Any) -> tuple[Any, ...]:
    if not copy:
        raise DTypeError("nan_to_num: copy=False is refused; a result is always a new array")
    (nan,) = real_options("nan_to_num", "nan")(nan)
    ends = (("posinf", posinf), ("neginf", neginf))
    far = [None if v is None else real_options("nan_to_num", name)(v)[0] for name, v in ends]
    return True, nan, *far


def _zero_at_non_finite(g: Any, x: Any) -> Any:
    """Return ``g`` at finite elements and 0 elsewhere; for complex numbers each part by itself."""
    if x.dtype.kind != "c":
        return keep_where(g, isfinite(x))
    along = keep_where(real(g), isfinite(real(x)))
    return add(along, mul(1j, keep_where(imag(g), isfinite(imag(x)))))


def _finite_mask(c: Any, x: Any) -> Any:
    if x.dtype.kind != "c":
        return keep_where(c, isfinite(x))
    return keep_where(c, logical_or(isfinite(real(x)), isfinite(imag(x))))


_WILD = np.array([np.nan, 1.5, np.inf, -np.inf, -2.0])


def _decompose_nan_to_num(x: Any, copy: bool, nan: Any, posinf: Any, neginf: Any) -> Any:
    if x.dtype.kind == "c":
        parts = (_decompose_nan_to_num(part(x), copy, nan, posinf, neginf) for part in (real, imag))
        along, up = parts
        return add(along, mul(1j, up))
    if not is_floating(x.dtype):
        return x
    limits = finfo(x.dtype)
    x = where(equal(x, np.inf), float(limits.max) if posinf is None else posinf, x)
    x = where(equal(x, -np.inf), float(limits.min) if neginf is None else neginf, x)
    return where(isnan(x), nan, x)


def _nan_to_num_scalar(x: Any, copy: bool, nan: Any, posinf: Any, neginf: Any) -> Any:
    if T.kind in "bi":
        return x
    above = T(T.max if posinf is None else posinf)
    below = T(-T.max if neginf is None else neginf)
    number = select(x > T(T.max), above, select(x < T(-T.max), below, x))
    return select(x != x, T(nan), number)


@op(
    elementwise=True,
    selects={"x": _finite_mask},
    numpy=[np.nan_to_num],
    scalar=_nan_to_num_scalar,
    decomposition=_decompose_nan_to_num,
    prepare=_replacement_options,
    vjp={"x": _zero_at_non_finite},
    kinks="0 where a number was put in the place of NaN or infinity",
    samples=[*singles(), sample((2, 3), nan=1.0), sample(_WILD, nan=3.0, posinf=4.0, neginf=-4.0)],
    rejects=[
        reject((3,), copy=False, error=DTypeError, match="always a new array"),
        reject((3,), nan=np.ones(3), error=DTypeError, match="static"),
        reject((3,), posinf="much", error=DTypeError, match="pass a real number"),
    ],
)
def nan_to_num(
    x: Any,
    /,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Any:
    """Elementwise ``x`` with NaN and infinity replaced, by default by 0 and the largest number."""
    if has_half(x) and x.dtype.kind != "f":  # bfloat16 has no NaN to NumPy
        limits = finfo(x.dtype)
        above, below = (
            float(end) if given is None else given
            for end, given in ((limits.max, posinf), (limits.min, neginf))
        )
        return np.nan_to_num(x.astype(np.float32), True, nan, above, below).astype(x.dtype)
    return np.nan_to_num(x, True, nan, posinf, neginf)


publish(globals())
