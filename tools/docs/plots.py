"""Plots of elementwise functions and their derivatives, as SVG in the colors of the page."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import odyssey as od
from odyssey.describe.entries import Entry, signature_of
from odyssey.errors import OdysseyError
from odyssey.floating_point_errors import ignore_fp_errors

__all__ = ["Plot", "draw", "plot_of"]

_POINTS = 1201
_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 34

# Operands and options of the call that is plotted, with ``...`` for x; others are 1.
_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "power": ((..., 1.5), {}),
    "power_slope": ((..., 1.5), {}),
    "power_log": ((..., 1.5), {}),
    "clip": ((..., -1.0, 1.0), {}),
    "threshold": ((...,), {"threshold": 0.5, "value": 0.0}),
    "gammainc": ((1.5, ...), {}),
    "gammaincc": ((1.5, ...), {}),
    "betainc": ((2.0, 3.0, ...), {}),
    "zeta": ((2.0, ...), {}),
    "multigammaln": ((...,), {"d": 2}),
    "sine_quotient": ((...,), {"order": 0}),
    "bessel_quotient": ((...,), {"order": 1}),
    "bessel_j_quotient": ((...,), {"order": 1}),
    "digamma_derivative": ((...,), {"order": 1}),
    "polygamma": ((1, ...), {}),
    "exponential_moment": ((...,), {"order": 1}),
    "scaled_erfc_integral": ((...,), {"order": 1}),
}
_RANGES = {
    "exprel": (-5, 5),
    "erfinv": (-1.2, 1.2),
    "erfcinv": (-0.2, 2.2),
    "ndtri": (-0.2, 1.2),
    "gammainc": (0, 8),
    "gammaincc": (0, 8),
    "betainc": (-0.2, 1.2),
    "zeta": (0.2, 4),
    "softplus": (-5, 5),
    "sigmoid": (-5, 5),
    "log_sigmoid": (-5, 5),
    "hard_sigmoid": (-5, 5),
    "hard_swish": (-5, 5),
    "relu6": (-2, 8),
    "sin": (-6.5, 6.5),
    "cos": (-6.5, 6.5),
    "j0": (-10, 10),
    "j1": (-10, 10),
    "y0": (-1, 10),
    "y1": (-1, 10),
}
_REASONS = {
    **dict.fromkeys(("where", "keep_where"), "no plot: it selects by a condition"),
    **dict.fromkeys(
        ("bitwise_and", "bitwise_or", "bitwise_xor", "invert"), "no plot: it takes integers"
    ),
}
# Composites of these packages are tried; rows say by themselves that they are elementwise.
_PACKAGES = ("odyssey.ops.elementwise", "odyssey.nn.activations", "odyssey.special")
_ROOM = 3.0


@dataclass(frozen=True)
class Plot:
    """Values of a function and its derivative over a range.

    Attributes:
        call: The call that is shown, as ``"power(x, 1.5)"``.
        x: Where.
        y: The values.
        slope: The derivative.
        kinks: Where the derivative or the function jumps or is infinite.
    """

    call: str
    x: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]
    slope: np.ndarray[Any, Any]
    kinks: tuple[float, ...]


# ------------------------------------------------------------------ values


def plot_of(entry: Entry) -> Plot | str:
    """Return a plot of an op, or the reason why there is none."""
    if entry.name in _REASONS:
        return _REASONS[entry.name]
    by_element = entry.row.elementwise if entry.row else entry.module.startswith(_PACKAGES)
    if not by_element:
        return "no plot: it does not work element by element"
    parameters = signature_of(entry).parameters.values()
    operands = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if entry.name in _CALLS:
        positional, options = _CALLS[entry.name]
    elif len(operands) in (1, 2):
        positional, options = (..., 1.0)[: len(operands)], {}
    else:
        return f"no plot: it takes {len(operands)} operands"

    def function(x: Any) -> Any:
        return entry.function(*(x if p is ... else p for p in positional), **options)

    if not _is_elementwise(function):
        return "no plot: it does not work element by element"
    low, high = _RANGES.get(entry.name, (-_ROOM, _ROOM))
    x = np.linspace(low, high, _POINTS)
    y, slope = _values(function, x)
    if y is None or not np.isfinite(y).any():
        return "no plot: its results are truth values or integers"
    if slope is None:
        return "no plot: it is not differentiable"
    arguments = ["x" if p is ... else str(p) for p in positional]
    arguments += [f"{name}={value}" for name, value in options.items()]
    call = f"{entry.name}({', '.join(arguments)})"
    return Plot(call, x, y, slope, _kinks(function, x))


@ignore_fp_errors()
def _is_elementwise(function: Callable[[Any], Any]) -> bool:
    """Return whether each element of a result depends on one element."""
    x = np.array([[0.25, -0.75], [1.5, 0.5], [0.75, 2.5]])
    try:
        y = np.asarray(function(x))
        if y.shape != x.shape or y.dtype.kind not in "fiub":
            return False
        alone = [np.asarray(function(np.array([element])))[0] for element in x.ravel()]
    except (OdysseyError, TypeError, ValueError, IndexError):
        return False
    return bool(np.allclose(y.ravel(), alone, equal_nan=True, rtol=1e-9))


@ignore_fp_errors()
def _values(function: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """Return values and derivatives as arrays; None for those that there are not."""
    y = np.asarray(function(x))
    if y.dtype.kind not in "fiu":
        return None, None
    try:
        variable = od.Variable(x, requires_grad=True)
        with od.GradientTape() as tape:
            out = function(variable)
        slope = np.asarray(tape.gradient(out, variable, grad=np.ones_like(y)))
    except (OdysseyError, TypeError, ValueError):
        return y.astype(float), None
    return y.astype(float), slope


def _kinks(function: Callable[[Any], Any], x: Any) -> tuple[float, ...]:
    """Return where the function or its derivative jumps, or is infinite at a finite place.

    Candidates are the multiples of 1/6, between which the ops have no kinks; at each, values a
    little to the left, there, and a little to the right are compared.
    """
    low, high = float(x[0]), float(x[-1])
    candidates = np.unique(np.round(np.arange(math.ceil(low * 6), math.floor(high * 6) + 1)) / 6)
    step = 1e-7
    (left, slope_left), (_, slope_here), (right, slope_right) = (
        _values(function, candidates + shift) for shift in (-step, 0.0, step)
    )
    with np.errstate(all="ignore"):
        jumps = np.abs(right - left) > 1e-3 * (1 + np.abs(left))
        jumps |= np.abs(slope_right - slope_left) > 1e-3 * (1 + np.abs(slope_left))
        infinite = np.isinf(slope_here)
    inside = np.isfinite(right) | np.isfinite(left)
    jumps &= np.isfinite(left) & np.isfinite(right)
    return tuple(float(c) for c in candidates[(jumps | infinite) & inside])


# ------------------------------------------------------------------ drawing


def draw(plot: Plot) -> str:
    """Return the plot as a figure of HTML, with a description for those who do not see it."""
    low, high = _limits(plot)

    def across(x: float) -> float:
        span = plot.x[-1] - plot.x[0]
        return float(_LEFT + (x - plot.x[0]) / span * (_WIDTH - _LEFT - _RIGHT))

    def down(y: float) -> float:
        return float(_HEIGHT - _BOTTOM - (y - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM))

    kinks = ", ".join(f"{kink:.4g}" for kink in plot.kinks)
    label = f"Plot of {plot.call} and its derivative for x from {plot.x[0]:.3g} to {plot.x[-1]:.3g}"
    label += f", with marks at x = {kinks}" if kinks else ""
    parts = [
        f'<svg class="odyssey-plot" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' aria-label="{html.escape(label)}">',
    ]
    for x in _ticks(plot.x[0], plot.x[-1], 7):
        css = "axis" if abs(x) < 1e-9 else "grid"
        parts += [
            f'<line class="{css}" x1="{across(x):.1f}" x2="{across(x):.1f}" y1="{_TOP}"'
            f' y2="{_HEIGHT - _BOTTOM}"/>',
            f'<text x="{across(x):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{x:g}</text>',
        ]
    for y in _ticks(low, high, 6):
        css = "axis" if abs(y) < 1e-9 else "grid"
        parts += [
            f'<line class="{css}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(y):.1f}"'
            f' y2="{down(y):.1f}"/>',
            f'<text x="{_LEFT - 6}" y="{down(y) + 4:.1f}" text-anchor="end">{y:g}</text>',
        ]
    for kink in plot.kinks:
        parts.append(
            f'<line class="kink" x1="{across(kink):.1f}" x2="{across(kink):.1f}" y1="{_TOP}"'
            f' y2="{_HEIGHT - _BOTTOM}"/>'
        )
    for css, values in (("value", plot.y), ("slope", plot.slope)):
        for line in _lines(plot.x, values, low, high, plot.kinks):
            points = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in line)
            parts.append(f'<polyline class="{css}" points="{points}"/>')
    parts.append("</svg>")
    caption = [
        f'<span class="value">{html.escape(plot.call)}</span>',
        '<span class="slope">derivative</span>',
        *(['<span class="kink">kink or pole</span>'] if plot.kinks else []),
    ]
    figure = "".join(parts)
    text = f"<figcaption>{' '.join(caption)}</figcaption>"
    return f'<figure class="odyssey-figure">{figure}{text}</figure>'


def _limits(plot: Plot) -> tuple[float, float]:
    """Return the range of values to show; poles are cut off."""
    values = np.concatenate([plot.y[np.isfinite(plot.y)], plot.slope[np.isfinite(plot.slope)]])
    low, high = np.quantile(values, [0.04, 0.96])
    low, high = min(low, 0.0), max(high, 0.0)
    low, high = max(low, values.min(), -12.0), min(high, values.max(), 12.0)
    if high - low < 1e-9:
        low, high = low - 1.0, high + 1.0
    pad = 0.08 * (high - low)
    return float(low - pad), float(high + pad)


def _ticks(low: float, high: float, count: int) -> Iterator[float]:
    raw = (high - low) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * f for f in (1, 2, 2.5, 5, 10) if size * f >= raw * 0.999)
    for k in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield round(k * step, 10)


def _lines(
    x: Any, y: Any, low: float, high: float, kinks: Sequence[float]
) -> Iterator[list[tuple[float, float]]]:
    """Yield the visible pieces of a curve; a jump begins a new piece."""
    piece: list[tuple[float, float]] = []
    for k in range(len(x)):
        shown = np.isfinite(y[k]) and low <= y[k] <= high
        jumps = bool(piece) and _is_jump(x, y, k, kinks, high - low)
        if piece and (not shown or jumps):
            yield _thinned(piece)
            piece = []
        if shown:
            piece.append((float(x[k]), float(y[k])))
    if piece:
        yield _thinned(piece)


def _is_jump(x: Any, y: Any, k: int, kinks: Sequence[float], span: float) -> bool:
    near = any(x[k - 1] - 1e-9 <= kink <= x[k] + 1e-9 for kink in kinks)
    return bool(near and abs(y[k] - y[k - 1]) > 0.02 * span)


def _thinned(piece: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Drop points on straight lines."""
    if len(piece) < 3:
        return piece
    kept = [piece[0]]
    for k in range(1, len(piece) - 1):
        (x0, y0), (x1, y1), (x2, y2) = kept[-1], piece[k], piece[k + 1]
        expected = y0 + (y2 - y0) * (x1 - x0) / (x2 - x0)
        if abs(expected - y1) > 1e-3 or x2 - x0 > 0.5:
            kept.append(piece[k])
    return [*kept, piece[-1]]
