"""Resampling along one axis: sparse weighted sums of its elements."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.checks import check_choice, check_int
from odyssey.errors import SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, mul
from odyssey.ops.elementwise.choice import keep_where
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.shape import astype
from odyssey.spec import Array, Shape, Spec
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.real_operands import real_dtype
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype, normalize_axes

# R. Keys, Cubic Convolution Interpolation, 1981, has -1/2; PyTorch and many others have -3/4.
_CUBIC = -0.75
_MODES = ("nearest", "nearest-exact", "linear", "cubic", "area")

# ------------------------------------------------------------------ indices and weights


def _source_positions(length: int, count: int, step: float, align_corners: bool) -> Array:
    """Return the center of each new element, in the coordinates of the old ones."""
    if align_corners:
        return np.arange(count) * ((length - 1) / (count - 1) if count > 1 else 0.0)
    return (np.arange(count) + 0.5) * step - 0.5


def _nearest_taps(length: int, count: int, step: float, shift: float) -> tuple[Array, Array]:
    found = np.floor((np.arange(count) + shift) * step).astype(np.intp)
    return np.minimum(found, length - 1)[None], np.ones((1, count))


def _linear_taps(length: int, sources: Array) -> tuple[Array, Array]:
    sources = np.maximum(sources, 0)
    left = np.minimum(np.floor(sources).astype(np.intp), length - 1)
    share = sources - left
    return np.stack([left, np.minimum(left + 1, length - 1)]), np.stack([1 - share, share])


def _cubic_taps(length: int, sources: Array) -> tuple[Array, Array]:
    left = np.floor(sources).astype(np.intp)
    t = sources - left
    rest = 1 - t
    # Factored, so that nothing cancels.
    near, beside = (((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1 for d in (t, rest))
    weights = np.stack([_CUBIC * t * rest * rest, near, beside, _CUBIC * rest * t * t])
    return np.clip(left + np.arange(-1, 3)[:, None], 0, length - 1), weights


def _area_taps(length: int, count: int) -> tuple[Array, Array]:
    place = np.arange(count)
    starts, ends = place * length // count, -((place + 1) * -length // count)
    reads = starts + np.arange((ends - starts).max())[:, None]
    return np.minimum(reads, length - 1), (reads < ends) / (ends - starts)


@lru_cache(maxsize=128)
def _taps(
    length: int, count: int, mode: str, step: float, align_corners: bool, back: bool
) -> tuple[Array, Array]:
    """Return indices and weights of the elements that each new one reads, a column for each.

    With ``back`` those of the transpose: the new elements that read each old one. A weight of 0
    means that nothing is read.
    """
    check_choice("sampled", "mode", mode, _MODES)
    for part in (length, count):
        check_int("sampled", "lengths", part, 1)
    if mode == "area":
        places, weights = _area_taps(length, count)
    elif mode in ("nearest", "nearest-exact"):
        shift = 0.5 if mode == "nearest-exact" else 0.0
        places, weights = _nearest_taps(length, count, step, shift)
    else:
        sources = _source_positions(length, count, step, align_corners)
        places, weights = (_cubic_taps if mode == "cubic" else _linear_taps)(length, sources)
    if not back:
        return places, weights
    readers: list[list[tuple[int, float]]] = [[] for _ in range(length)]
    for (_, new), old, weight in zip(
        np.ndindex(places.shape), places.ravel().tolist(), weights.ravel().tolist(), strict=True
    ):
        if weight:
            readers[old].append((new, weight))
    most = max(map(len, readers), default=0)
    places, weights = np.zeros((most, length), np.intp), np.zeros((most, length))
    for old, found in enumerate(readers):
        for k, (new, weight) in enumerate(found):
            places[k, old], weights[k, old] = new, weight
    return places, weights


def nearest_indices(length: int, count: int, mode: str, step: float) -> Array:
    """Return, for each new element, the index of the element that it copies."""
    found: Array = _taps(length, count, mode, step, False, False)[0][0]
    return found


# ------------------------------------------------------------------ on arrays


def _resample(x: Any, axis: int, lengths: tuple[int, int], *options: Any) -> Array:
    places, weights = _taps(*lengths, *options)
    dtype = floating_dtype(x.dtype)
    wide = np.result_type(dtype, np.float32)  # half precision is summed in single
    behind = (1,) * (x.ndim - 1 - axis % x.ndim)
    if len(places) == 1 and (weights == 1).all():
        return np.take(x, places[0], axis).astype(dtype, copy=False)
    out = np.zeros((*x.shape[:axis], places.shape[1], *x.shape[axis:][1:]), wide)
    for where, weight in zip(places, weights.astype(real_dtype(wide)), strict=True):
        part = np.take(x, where, axis)
        nothing = weight == 0
        if nothing.any():  # an element of weight 0 is not read, even if infinite
            part = np.where(nothing.reshape(-1, *behind), 0, part)
        out += part * weight.reshape(-1, *behind)
    return out.astype(dtype, copy=False)


def _compiled_resample(x: Array, axis: int, lengths: tuple[int, int], *options: Any) -> Array:
    from odyssey.kernels.axis_resampling import weighted_gather

    places, weights = _taps(*lengths, *options)
    k = axis % x.ndim
    parts = x.reshape(math.prod(x.shape[:k]), x.shape[k], -1)
    out = weighted_gather(parts, places, weights.astype(x.dtype))
    return out.reshape(*x.shape[:k], places.shape[1], *x.shape[k + 1 :])


def _fits_loop(x: Spec, axis: int, lengths: tuple[int, int], *options: Any) -> bool:
    mode, back = options[0], options[-1]
    if mode.startswith("nearest") and not back:  # which NumPy copies as fast
        return False
    fits = x.ndim > 0 and -x.ndim <= axis < x.ndim
    return (
        x.dtype.char in "fd" and x.size > 0 and fits and x.shape[axis] == lengths[1 if back else 0]
    )


# ------------------------------------------------------------------ the row


def _resample_decomposition(x: Any, axis: int, lengths: tuple[int, int], *options: Any) -> Any:
    places, weights = _taps(*lengths, *options)
    dtype = floating_dtype(np.dtype(x.dtype))
    x = astype(x, dtype)
    behind = (1,) * (len(x.shape) - 1 - axis % len(x.shape))
    total: Any = None
    for where, weight in zip(places, weights.astype(real_dtype(dtype)), strict=True):
        shares = weight.reshape(-1, *behind)
        part = mul(keep_where(take(x, where, axis), shares != 0), shares)
        total = part if total is None else add(total, part)
    return total


def _infer_sampled(x: Spec, axis: int, lengths: tuple[int, int], *options: Any) -> Spec:
    (k,) = normalize_axes("sampled", axis, x.ndim)
    *_, back = options
    old, new = lengths[::-1] if back else lengths
    if x.shape[k] != old:
        raise ShapeError(f"sampled: axis {axis} of x {x.shape} is not of length {old}")
    shape: Shape = (*x.shape[:k], new, *x.shape[k + 1 :])
    return Spec(shape, floating_dtype(x.dtype))


@op(
    linear=True,
    kernel=_resample,
    decomposition=_resample_decomposition,
    kernels=[Kernel("a loop over weights", _compiled_resample, when=_fits_loop)],
    infer=_infer_sampled,
    vjp={
        "x": lambda g, axis, lengths, mode, step, align_corners, back: sampled(
            g, axis, lengths, mode, step, align_corners, not back
        )
    },
    samples=[
        sample((2, 3), axis=-1, lengths=(3, 7), mode="linear", step=3 / 7),
        sample((2, 3), axis=-2, lengths=(2, 5), mode="linear", step=0.4, align_corners=True),
        sample((2, 4, 2), axis=-2, lengths=(4, 3), mode="cubic", step=4 / 3),
        sample((2, 5), axis=-1, lengths=(3, 5), mode="nearest", step=0.6, back=True),
        sample((4,), axis=-1, lengths=(4, 3), mode="area", step=1.0),
        sample((0, 2), axis=-1, lengths=(2, 3), mode="linear", step=1.0),
    ],
    rejects=[
        reject((2, 3), axis=-1, lengths=(4, 3), mode="linear", step=1.0, match="not of length 4"),
        reject((2,), axis=-2, lengths=(2, 3), mode="linear", step=1.0, match="does not fit"),
        reject((2,), axis=-1, lengths=(2, 3), mode="x", step=1.0, error=SettingError, match="mode"),
    ],
)
def sampled(
    x: Any,
    /,
    axis: int,
    lengths: tuple[int, int],
    mode: str,
    step: float,
    align_corners: bool = False,
    back: bool = False,
) -> Any:
    """Elements along an axis between, or beside, those of ``x``; ``interpolate`` is made of it.

    Args:
        x: Any array.
        axis: Along which axis, counted from the last.
        lengths: Of the axis, before and after.
        mode: ``"nearest"``, ``"nearest-exact"``, ``"linear"``, ``"cubic"`` or ``"area"``.
        step: How far it is from one new element to the next among the old ones.
        align_corners: Whether the first and last elements keep their places.
        back: The transpose, from the new length to the old one.
    """
    return _resample(x, axis, lengths, mode, step, align_corners, back)


publish(globals())
