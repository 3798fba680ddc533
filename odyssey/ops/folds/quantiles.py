"""Quantiles: numbers below which given shares of the elements lie."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, SettingError
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.folds.order_statistics import (
    KINKS,
    MEAN,
    Between,
    as_lines,
    count_of,
    folded_spec,
    pulled,
    pushed,
    standing_at,
)
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import astype, moveaxis, reshape
from odyssey.quiet import unwarned
from odyssey.spec import Spec
from odyssey.table.canonical import folded
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import folded_axes, reduced_shape
from odyssey.table.store import numbers_of
from odyssey.table.value import Symbol, Value, is_tracked

METHODS = (
    *("linear", "lower", "higher", "midpoint", "nearest", "hazen", "weibull", "inverted_cdf"),
    *("averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf"),
    *("median_unbiased", "normal_unbiased"),
)


# Those that choose an element.
_ELEMENTS = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")


def _dtype(x: Any, method: str) -> np.dtype[Any]:
    """That of a mean; but that of the elements where a quantile is one of them."""
    return x.dtype if x.dtype.kind in "iu" and method in _ELEMENTS else MEAN(x.dtype)


def _spec(who: str, x: Spec, q: Any, axis: Any, method: str, keepdims: bool) -> Spec:
    return Spec(folded_spec(who, x, axis, keepdims, np.shape(q)).shape, _dtype(x, method))


def _options(who: str, most: float) -> Callable[..., tuple[Any, ...]]:
    """A ``prepare``: the quantiles as numbers, in tuples where they are on axes."""

    def prepare(q: Any, axis: Any, method: Any, keepdims: bool) -> tuple[Any, ...]:
        if method not in METHODS:
            raise SettingError(f"{who}: method={shown(method)}; choose one of {', '.join(METHODS)}")
        return _nested(asked(who, q, most).tolist()), axis, method, keepdims

    return prepare


def asked(who: str, q: Any, most: float) -> Any:
    """Which quantiles are asked for, as an array of float64 from 0 to ``most``."""
    if isinstance(q, Symbol) or is_tracked(q):
        raise DTypeError(f"{who}: q is {shown(q)}, but it is static; pass numbers")
    given = numbers_of(who, q) if isinstance(q, Value) else as_array(who, "q", q)
    if given.dtype.kind not in "iuf":
        raise DTypeError(f"{who}: q has dtype {given.dtype}; pass real numbers")
    if not ((given >= 0) & (given <= most)).all():
        raise SettingError(f"{who}: q={shown(q)}; it must lie between 0 and {most:g}")
    return given.astype(np.float64)


def _nested(numbers: Any) -> Any:
    return tuple(map(_nested, numbers)) if isinstance(numbers, list) else numbers


def _quantile_infer(who: str) -> Callable[..., Spec]:
    return lambda x, q, axis, method, keepdims: _spec(who, x, q, axis, method, keepdims)


@lru_cache(maxsize=64)
def _spots(n: int, q: Any, method: str) -> list[Between]:
    """Where quantiles of ``n`` elements lie, as NumPy says of elements that are their places."""
    found = np.quantile(np.arange(n, dtype=np.float64), np.ravel(q), method=method)
    return [Between(int(v), min(int(v) + 1, n - 1), v % 1.0) for v in found.tolist()]


@unwarned("invalid")
def _quantile(
    who: str, of: Any, scale: float, x: Any, q: Any, axis: Any, method: str, keepdims: bool
) -> Any:
    x = np.asarray(x)
    spec = _spec(who, Spec(x.shape, x.dtype), q, axis, method, keepdims)
    if x.dtype.kind == "b":
        x = x.astype(np.int8)
    # NumPy takes numbers in the array's dtype, and counts places in it: halves end at 65504.
    alone = np.ndim(q) == 0 and x.dtype != np.float16
    found = of(x, q if alone else np.array(q), axis, method=method, keepdims=keepdims)
    if x.dtype.kind == "f" and np.isnan(found).any() and np.isinf(x).any():
        # NumPy goes no way from an element to an infinite one, 0 * inf.
        found = _quantile_in_ops(x, _scaled(q, scale), axis, method, keepdims)
    return np.asarray(found).astype(spec.dtype, copy=False)[()]


def _between(low: Any, high: Any, share: float) -> Any:
    """From one number to the next, from the nearer one: at the end it is the end."""
    if share == 0:
        return low
    way = sub(high, low)
    return add(low, mul(way, share)) if share < 0.5 else sub(high, mul(way, 1.0 - share))


def _quantile_in_ops(x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Any:
    line = as_lines(astype(x, _dtype(x, method)), axis)
    spots = _spots(line.shape[-1], q, method)
    places = sorted({place for spot in spots for place in spot[:2]})
    values = dict(zip(places, standing_at(line, places), strict=True))
    parts = [_between(values[spot.low], values[spot.high], spot.share) for spot in spots]
    kept = reduced_shape("quantile", x.shape, axis, keepdims)
    if not parts:
        return np.zeros((*np.shape(q), *kept), line.dtype)
    return reshape(stack(parts), (*np.shape(q), *kept))


def _quantile_rule(scale: float) -> Callable[..., Any]:
    def rule(g: Any, x: Any, x_spec: Spec, q: Any, axis: Any, method: str) -> Any:
        spots = _spots_of(x, q, axis, method, scale)
        kept = reduced_shape("quantile", x_spec.shape, axis, False)
        lines = moveaxis(reshape(g, (len(spots), *kept)), 0, -1)
        return pulled(lines, x, x_spec, axis, spots)

    return rule


def _quantile_forward(scale: float) -> Callable[..., Any]:
    def rule(t: Any, x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Any:
        moved = pushed(t, x, axis, _spots_of(x, q, axis, method, scale))
        kept = reduced_shape("quantile", x.shape, axis, keepdims)
        return reshape(moved, (*np.shape(q), *kept))

    return rule


def _spots_of(x: Any, q: Any, axis: Any, method: str, scale: float) -> list[Between]:
    n = count_of(x.shape, folded_axes("quantile", axis, len(x.shape), lone=False))
    return _spots(n, _scaled(q, scale), method)


def _scaled(q: Any, scale: float) -> Any:
    """Percents as shares."""
    return q if scale == 1 else _nested((np.asarray(q) / scale).tolist())


def _spelled(x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> tuple[Any, ...]:
    return q, *folded(x, axis), method, keepdims


def _row(who: str, scale: float, **more: Any) -> dict[str, Any]:
    """What quantiles and percentiles share."""
    cases = [
        sample((2, 3), q=0.3 * scale, spread=True),
        sample((3, 4), q=(0.0, 0.25 * scale, scale), axis=0, spread=True),
        sample(
            (2, 3, 3), q=[[0.1 * scale], [0.8 * scale]], axis=(0, -1), keepdims=True, spread=True
        ),
        sample((5, 2), q=0.7 * scale, axis=0, method="hazen", spread=True),
        sample((5,), q=0.4 * scale, method="averaged_inverted_cdf", spread=True),
        sample((), q=0.5 * scale),
        sample((0, 3), q=0.5 * scale, axis=1),
    ]
    return {
        "real": True,
        "masks": True,
        "canonical": _spelled,
        "prepare": _options(who, scale),
        "infer": _quantile_infer(who),
        "vjp": {"x": _quantile_rule(scale)},
        "jvp": {"x": _quantile_forward(scale)},
        "kinks": KINKS,
        "samples": cases,
        "rejects": [
            reject((2, 3), q=0.5, axis=2, match="does not fit an array of 2 axes"),
            reject((0, 2), q=0.5, match=f"and so no {who}"),
            reject((2,), q=scale * 1.5, error=SettingError, match="must lie between"),
            reject((2,), q=0.5, method="best", error=SettingError, match="choose one of linear"),
            reject((2,), q=0.5j, error=DTypeError, match="pass real numbers"),
        ],
        **more,
    }


@op(
    kernel=lambda *given: _quantile("quantile", np.quantile, 1.0, *given),
    numpy=[np.quantile],
    equals=_quantile_in_ops,
    **_row("quantile", 1.0),
)
def quantile(
    x: Any, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """The number below which a share ``q`` of the elements lies over ``axis``; NaN if one is.

    Args:
        x: Array of real numbers.
        q: A number from 0 to 1, or several, whose axes come first in the result; static.
        axis: An axis, or several; by default all.
        method: What to take between two elements, one of NumPy's thirteen.
        keepdims: Whether the folded axes stay, with length 1.

    >>> float(quantile(np.array([1.0, 2.0, 4.0]), 0.75))
    3.0
    """
    return np.quantile(x, q, axis, method=method, keepdims=keepdims)


@op(
    kernel=lambda *given: _quantile("percentile", np.percentile, 100.0, *given),
    numpy=[np.percentile],
    equals=lambda x, q, axis, method, keepdims: quantile(
        x, _scaled(q, 100.0), axis, method=method, keepdims=keepdims
    ),
    **_row("percentile", 100.0),
)
def percentile(
    x: Any, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """``quantile`` with ``q`` in percent, from 0 to 100."""
    return np.percentile(x, q, axis, method=method, keepdims=keepdims)


publish(globals())
