"""Figures of the study: lines, stacks and bars, each with a table as its text alternative.

An experiment returns pictures, and the report draws them. A picture has one claim, its title. Lines
are named at their ends, in their colour; bands and bars of error are 95 % intervals; hollow markers
are noisy estimates. Colours differ under colour blindness, and dashes and markers in grey print.

Estimates are those of `study.contract`. matplotlib is imported when a picture is drawn.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import itertools
import math
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from study.records import MissingRecords

__all__ = [
    "Bars",
    "Lines",
    "Picture",
    "Stack",
    "draw_svg_and_png",
    "estimate_text",
    "number_text",
    "require_matplotlib",
    "system_label",
    "write_picture",
]

# Name on pictures, colour, dashes, marker. Blue is odyssey's, full if taped and dashed if compiled.
SYSTEMS: dict[str, tuple[str, str, Any, str]] = {
    "numpy": ("NumPy by hand", "#757575", (0, (1, 1.5)), "."),
    "taped": ("odyssey taped", "#0b5fa5", "-", "o"),
    "compiled": ("odyssey compiled", "#0b5fa5", (0, (4, 2)), "D"),
    "torch": ("PyTorch eager", "#c8500a", "-", "^"),
    "torch.compile": ("torch.compile", "#c8500a", (0, (4, 2)), "v"),
    "jax": ("JAX jit", "#8a2be2", (0, (6, 2, 1, 2)), "s"),
    "autograd": ("HIPS autograd", "#1e1e1e", (0, (2, 2)), "x"),
}
# What is no system (a dtype, a rule of the tape) takes these in turn.
OTHERS = (
    ("#0b5fa5", "-", "o"),
    ("#c8500a", (0, (4, 2)), "^"),
    ("#757575", (0, (1, 1.5)), "s"),
    ("#8a2be2", (0, (6, 2, 1, 2)), "D"),
    ("#1e1e1e", (0, (2, 2)), "v"),
    ("#4fa3a5", "-", "P"),
    ("#e0a100", (0, (4, 2)), "X"),
    ("#7a4a21", (0, (1, 1.5)), "d"),
)
# Light and dark in turn, so that neighbours in a stack differ in grey print.
LAYERS = ("#0b5fa5", "#9cc9ec", "#c8500a", "#f5c9a4", "#5b2a55", "#d3b0ce", "#4d4d4d", "#c4c4c4")

SMALL, NORMAL, LARGE = 7, 8, 10
PNG_DPI = 130
_RC = {
    "font.family": ["DejaVu Sans"],
    "svg.fonttype": "none",  # text stays text: a fifth of the size, and it can be searched
    "svg.hashsalt": "odyssey",
    "axes.unicode_minus": True,
    "text.usetex": False,
    "text.parse_math": False,  # a $ or an underscore in a name is itself
}


def system_label(name: str) -> str:
    """Return the name of a system as pictures and tables write it; other names stay."""
    return SYSTEMS[name][0] if name in SYSTEMS else name


# ------------------------------------------------------------------ numbers as text

_PREFIXES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
}


def number_text(value: float, unit: str = "", counted: bool = True) -> str:
    """Return a number with three significant digits, as ``1.23 ms``.

    Args:
        value: The number; NaN and infinities are written so.
        counted: Whether a whole number is written without zeros, as ``12`` instead of ``12.0``.
        unit: ``"s"`` and ``"B"`` get the prefix that fits; ``"%"`` multiplies by 100; any other
            unit is appended.
    """
    scale, suffix = _prefix(float(value), unit)
    whole = counted and suffix == unit and unit not in ("s", "%")
    return f"{_digits(float(value) / scale, whole)} {suffix}".rstrip()


def _prefix(value: float, unit: str) -> tuple[float, str]:
    """Return by what a number is divided, and the unit of the quotient."""
    if unit == "%":
        return 0.01, unit
    if unit not in _PREFIXES or not math.isfinite(value) or value == 0:
        return 1.0, unit
    chosen = _PREFIXES[unit]
    # 999.7 µs would be written 1000 µs: what rounds up takes the next prefix.
    return next((one for one in chosen if abs(value) >= 0.9995 * one[0]), chosen[-1])


def _digits(value: float, whole: bool) -> str:
    """Return a number with three significant digits; a whole one without zeros, if asked for."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    rounded = float(f"{value:.3g}")
    if value == 0 or (whole and value == rounded and value.is_integer() and abs(value) < 1e4):
        text = f"{int(value)}"
    elif 1e-4 <= abs(rounded) < 1e6:
        places = max(0, 2 - math.floor(math.log10(abs(rounded))))
        text = f"{rounded:,.{places}f}" if abs(rounded) >= 1e4 else f"{rounded:.{places}f}"
    else:
        mantissa, _, exponent = f"{rounded:.2e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"10{power}" if mantissa == "1" else f"{mantissa}·10{power}"
    return text.replace("-", "−")


def estimate_text(estimate: Any, unit: str = "") -> str:
    """Return an estimate as ``1.23 ms (1.20 to 1.30)``; a plain number without an interval.

    A star is appended if the estimate is noisy.
    """
    if not hasattr(estimate, "median"):
        return number_text(estimate, unit)
    counted = estimate.low == estimate.high
    text, low, high = (
        number_text(value, unit, counted)
        for value in (estimate.median, estimate.low, estimate.high)
    )
    if not low == text == high:
        text += f" ({low} to {high})"
    return text + " *" * bool(estimate.noisy)


def _table_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """Return foreign text as a cell of a Markdown table that shows it as it is."""
    return re.sub(r"([\\`<>|$\[\]{}&])", r"\\\1", " ".join(str(text).split()))


def _x_text(x: Any) -> str:
    if isinstance(x, str):
        return x
    # A size that was chosen is written in full: 32768 is not 3.28·10⁴.
    in_full = float(x).is_integer() and abs(x) < 1e7 and x not in (1e5, 1e6)
    return f"{int(x)}".replace("-", "−") if in_full else number_text(x)


# ------------------------------------------------------------------ pictures


@dataclasses.dataclass(frozen=True)
class Picture(ABC):
    """A figure of the report.

    Args:
        name: Its file, without an ending: letters, digits, ``-`` and ``_``.
        title: The claim that it shows, filled from records.
    """

    name: str
    title: str

    def __post_init__(self) -> None:
        if not self.name or not all(c.isalnum() or c in "-_" for c in self.name):
            raise ValueError(
                f"a picture's name is its file, of letters, digits, - and _; it is {self.name!r}"
            )

    def draw(self, note: str = "") -> Any:
        """Return the matplotlib Figure, with ``note`` as a small line below."""
        with _settings():
            figure = self._figure()
            _add_title(figure, self.title)
            missing = self._missing()
            if missing:
                note = f"{note} No values: {', '.join(missing)}.".strip()
            if note:
                _add_note(figure, note)
            figure.draw_without_rendering()  # settles the layout once, for both formats
        return figure

    @abstractmethod
    def table(self) -> str:
        """Return the text alternative: a Markdown table of medians with intervals."""

    @abstractmethod
    def _figure(self) -> Any: ...

    def _missing(self) -> list[str]:
        return []


@dataclasses.dataclass(frozen=True)
class Lines(Picture):
    """Lines over a quantity; on the right, if asked for, as ratios to one of them.

    Args:
        name: See `Picture`.
        title: See `Picture`.
        x_label: What is varied, with its unit.
        y_label: What is measured, with its unit.
        series: For each system its points, ``(x, estimate)``.
        ratio_to: The base of the ratios; None for the left half alone.
        ratios: For each system its points, ``(x, estimate of the ratio)``. A ratio is estimated
            from neighbours in one round, so that it does not follow from ``series``:
            `Records.ratio` has it, and `Lines.from_records` fills in both.
        log_x: Whether the axis may be logarithmic, which it is for a range over a decade.
        log_y: The same for the other axis.
        unit: ``"s"`` or ``"B"`` writes the numbers of axis and table with prefixes.
    """

    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[Any, Any]]]
    ratio_to: str | None = None
    log_x: bool = True
    log_y: bool = True
    ratios: Mapping[str, Sequence[tuple[Any, Any]]] | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.ratio_to is None) != (self.ratios is None):
            raise ValueError(
                f"picture {self.name}: ratio_to and ratios come together; ratios are estimated "
                f"from neighbours in one round, as Lines.from_records does"
            )

    @classmethod
    def from_records(
        cls,
        records: Any,
        *,
        name: str,
        title: str,
        x: str,
        metric: str,
        systems: Sequence[str],
        x_label: str,
        y_label: str,
        ratio_to: str | None = None,
        **options: Any,
    ) -> Lines:
        """Return the lines of a metric over the key ``x`` of the configs, one for each system.

        A system without a value at some ``x`` has no point there, and one with none is named below.

        Args:
            records: Those of one experiment, restricted by `where` to one value of other keys.
            name: See `Picture`.
            title: See `Picture`.
            x: Key of the configs.
            metric: Key of the metrics.
            systems: Systems, in the order of the table.
            x_label: See `Lines`.
            y_label: See `Lines`.
            ratio_to: See `Lines`.
            **options: Further arguments of `Lines`.
        """
        series: dict[str, list[tuple[Any, Any]]] = {system: [] for system in systems}
        ratios: dict[str, list[tuple[Any, Any]]] = {s: [] for s in systems if s != ratio_to}
        for value in records.axis(x):
            for system in systems:
                estimate = _estimate_or_none(records.estimate, system, metric, **{x: value})
                if estimate is not None:
                    series[system].append((value, estimate))
                if ratio_to is not None and system != ratio_to:
                    ratio = _estimate_or_none(records.ratio, system, ratio_to, metric, **{x: value})
                    if ratio is not None:
                        ratios[system].append((value, ratio))
        both = {} if ratio_to is None else {"ratio_to": ratio_to, "ratios": ratios}
        return cls(name, title, x_label, y_label, series, **both, **options)

    def table(self) -> str:
        """Return medians with intervals, a row for each x, and a second table of the ratios."""
        text = _lines_table(self.x_label, self.series, self.unit)
        if self.ratios is not None and self.ratio_to is not None:
            text += f"\n\nRatio to {system_label(self.ratio_to)}:\n\n"
            text += _lines_table(self.x_label, self.ratios, "")
        return text

    def _missing(self) -> list[str]:
        return [system_label(s) for s, points in self.series.items() if not _finite(points)]

    def _figure(self) -> Any:
        from matplotlib.figure import Figure

        height = _height_of_labels(map(system_label, self.series), 3.6)
        if self.ratios is None:
            figure = Figure(figsize=(7.2, height), layout="constrained")
            self._panel(figure.subplots(), self.series, self.y_label, self.unit)
            return figure
        figure = Figure(figsize=(10.5, height), layout="constrained")
        left, right = figure.subplots(1, 2)
        self._panel(left, self.series, self.y_label, self.unit)
        base = system_label(str(self.ratio_to))
        self._panel(right, self.ratios, f"ratio to {base}", "")
        colour = _styles([*self.series, str(self.ratio_to)])[str(self.ratio_to)][0]
        right.axhline(1, color=colour, lw=1, zorder=1)
        return figure

    def _panel(self, axes: Any, series: Mapping[str, Any], y_label: str, unit: str) -> None:
        every = [x for points in series.values() for x, _ in points]
        names = (
            list(dict.fromkeys(map(str, every))) if any(isinstance(x, str) for x in every) else []
        )
        where = (lambda x: names.index(str(x))) if names else float
        medians, ends = [], []
        styles = _styles(self.series)
        for system in self.series:
            points = [(where(x), e) for x, e in _finite(series.get(system, ()))]
            if not points:
                continue
            points.sort(key=lambda point: point[0])
            colour, dashes, marker = styles[system]
            x, mid, low, high = _columns(points)
            medians += mid
            hollow = [e.noisy for _, e in points]
            _draw_line(axes, x, mid, low, high, hollow, colour, dashes, marker)
            ends.append((x[-1], mid[-1], system_label(system), colour))
        if not medians:
            _say_no_values(axes)
        else:
            if names:
                axes.set_xticks(range(len(names)), [_wrapped(n, 14) for n in names])
                axes.margins(x=0.08)
            else:
                _scale(axes, "x", sorted({where(x) for x in every}), self.log_x, at_values=True)
            _scale(axes, "y", medians, self.log_y, unit)
            _name_ends(axes, ends)
        axes.set_xlabel(self.x_label, fontsize=NORMAL)
        axes.set_ylabel(_wrapped(y_label, 34), fontsize=NORMAL)
        _plain(axes)


@dataclasses.dataclass(frozen=True)
class Stack(Picture):
    """Areas on top of each other, such as bytes by owner over time, and a predicted line.

    Args:
        name: See `Picture`.
        title: See `Picture`.
        x_label: See `Lines`.
        y_label: See `Lines`.
        x: Numbers in ascending order, such as numbers of nodes.
        layers: For each owner a value at each x, from the bottom to the top.
        line: A label, and its value at each x; None for none.
        unit: See `Lines`.
    """

    x_label: str
    y_label: str
    x: Sequence[float]
    layers: Mapping[str, Sequence[float]]
    line: tuple[str, Sequence[float]] | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = {**self.layers, **({self.line[0]: self.line[1]} if self.line else {})}
        for owner, values in rows.items():
            if len(values) != len(self.x):
                raise ValueError(
                    f"picture {self.name}: {owner!r} has {len(values)} values, and x has "
                    f"{len(self.x)}"
                )

    def table(self) -> str:
        """Return the values at the peak, at the ends and at some places in between."""
        totals = [sum(v[i] for v in self.layers.values()) for i in range(len(self.x))]
        count = len(self.x)
        rows = {round(k * (count - 1) / 8) for k in range(9)} if count > 12 else set(range(count))
        if totals:
            rows.add(max(range(count), key=totals.__getitem__))  # the peak
        head = [self.x_label, *map(system_label, self.layers), "sum"]
        head += [self.line[0]] if self.line else []
        lines = []
        for i in sorted(rows):
            cells = [*(v[i] for v in self.layers.values()), totals[i]]
            cells += [self.line[1][i]] if self.line else []
            lines.append([_x_text(self.x[i]), *(number_text(c, self.unit) for c in cells)])
        return _table_text(head, lines)

    def _figure(self) -> Any:
        from matplotlib.figure import Figure

        height = _height_of_labels(map(system_label, self.layers), 3.6)
        figure = Figure(figsize=(7.2, height), layout="constrained")
        axes = figure.subplots()
        columns = self._columns()
        x = [float(self.x[i]) for i in columns]
        if len(x) == 1:  # one column is drawn as a block
            x, columns = [x[0], x[0] + 1.0], columns * 2
        base = [0.0] * len(x)
        ends, labels = [], []
        for number, (owner, values) in enumerate(self.layers.items()):
            top = [b + float(values[i]) for b, i in zip(base, columns, strict=True)]
            colour = LAYERS[number % len(LAYERS)]
            axes.fill_between(x, base, top, facecolor=colour, edgecolor="white", lw=0.4)
            labels.append((owner, base, top, colour))
            base = top
        line = [float(self.line[1][i]) for i in columns] if self.line else []
        if self.line and x:
            axes.plot(x, line, color="black", lw=1.3, ls=(0, (3, 2)))
            ends.append((x[-1], line[-1], self.line[0], "black"))
        peak = max([*base, *line], default=0.0)
        if x and peak > 0:
            axes.set_xlim(x[0], x[-1])
            axes.set_ylim(0, 1.06 * peak)
            _scale(axes, "y", [0.0, peak], False, self.unit)
            for owner, low, high, colour in labels:
                _name_area(axes, x, low, high, system_label(owner), colour, ends)
            _name_ends(axes, ends)
        else:
            _say_no_values(axes)
        axes.set_xlabel(self.x_label, fontsize=NORMAL)
        axes.set_ylabel(self.y_label, fontsize=NORMAL)
        _plain(axes)
        return figure

    def _columns(self, most: int = 120) -> list[int]:
        """Return the indices that are drawn: of each block of neighbours the one with the peak."""
        count = len(self.x)
        totals = [sum(v[i] for v in self.layers.values()) for i in range(count)]
        edges = [round(k * count / most) for k in range(most + 1)]
        blocks = [range(a, b) for a, b in itertools.pairwise(edges) if b > a]
        chosen = {0, count - 1, *(max(block, key=totals.__getitem__) for block in blocks)}
        return sorted(chosen) if count else []


@dataclasses.dataclass(frozen=True)
class Bars(Picture):
    """Groups of horizontal bars; points on a logarithmic axis if they differ by a factor over 50.

    Args:
        name: See `Picture`.
        title: See `Picture`.
        y_label: What is measured, with its unit.
        groups: For each group its systems' estimates. A system that a group lacks, and others have,
            is named there with a dash.
        unit: See `Lines`.
    """

    y_label: str
    groups: Mapping[str, Mapping[str, Any]]
    unit: str = ""

    def table(self) -> str:
        """Return medians with intervals, a row for each group."""
        systems = self._systems()
        head = ["", *map(system_label, systems)]
        rows = [
            [str(group), *(estimate_text(of[s], self.unit) if s in of else "–" for s in systems)]
            for group, of in self.groups.items()
        ]
        return _table_text(head, rows)

    def _systems(self) -> list[str]:
        return list(dict.fromkeys(s for of in self.groups.values() for s in of))

    def _figure(self) -> Any:
        from matplotlib.figure import Figure

        systems = self._systems()
        styles = _styles(systems)
        rows = sum(max(1, len(systems)) + 0.8 for _ in self.groups)
        figure = Figure(figsize=(7.2, min(30.0, max(1.6, 0.9 + 0.19 * rows))), layout="constrained")
        axes = figure.subplots()
        values = [e.median for of in self.groups.values() for e in of.values() if _is_finite(e)]
        positive = [v for v in values if v > 0]
        log = bool(values) and len(positive) == len(values) and max(values) > 50 * min(values)
        y, ticks, labels = 0.0, [], []
        texts = []
        for group, of in self.groups.items():
            start = y
            for system in systems:
                colour, _, marker = styles[system]
                estimate = of.get(system)
                end = self._bar(axes, y, estimate, log, colour, marker)
                text = system_label(system)
                value = "–" if estimate is None else number_text(estimate.median, self.unit)
                texts.append((end, y, f"{text}  {value}", colour))
                y += 1
            ticks.append((start + y - 1) / 2)
            labels.append(_wrapped(group, 26))
            y += 0.8
        axes.set_ylim(max(y - 0.8, 1.0), -0.8)
        if values:
            _scale(axes, "x", values, log, self.unit, decade=50)
            if not log:
                high = max(
                    0.0,
                    *(e.high for g in self.groups.values() for e in g.values() if _is_finite(e)),
                )
                low = min(
                    0.0, *(e.low for g in self.groups.values() for e in g.values() if _is_finite(e))
                )
                pad = 0.02 * ((high - low) or 1.0)
                axes.set_xlim(low - pad * (low < 0), high + pad)
        else:
            _say_no_values(axes)
        left, right = axes.get_xlim()
        for end, place, text, colour in texts:
            at = left if end is None else min(max(end, left), right)
            axes.annotate(
                text,
                (at, place),
                xytext=(5, 0),
                textcoords="offset points",
                color=colour,
                fontsize=SMALL,
                va="center",
                annotation_clip=False,
            )
        axes.set_yticks(ticks, labels)
        axes.set_xlabel(_wrapped(self.y_label, 70), fontsize=NORMAL)
        _plain(axes, "x")
        axes.tick_params(axis="y", length=0)
        return figure

    def _bar(self, axes: Any, y: float, estimate: Any, log: bool, colour: str, marker: str) -> Any:
        """Draw a bar or a point; return the place where its text begins, None for the axis."""
        if estimate is None or not _is_finite(estimate):
            return None
        mid, low, high = _clipped(estimate, log)
        if log:
            axes.plot(
                [mid],
                [y],
                ls="",
                marker=marker,
                ms=5,
                color=colour,
                mfc="white" if estimate.noisy else colour,
            )
        else:
            axes.barh(
                [y],
                [mid],
                height=0.8,
                edgecolor=colour,
                lw=1,
                facecolor="white" if estimate.noisy else _tint(colour),
                linestyle="--" if estimate.noisy else "-",
            )
        if high > low:
            axes.plot([low, high], [y, y], color=colour, lw=1.2, solid_capstyle="butt")
        return high if high > 0 else 0.0


# ------------------------------------------------------------------ parts of pictures


def _say_no_values(axes: Any) -> None:
    axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color="0.4")
    axes.set(xticks=[], yticks=[])


def _lines_table(x_label: str, series: Mapping[str, Any], unit: str) -> str:
    """Return a table with a row for each x and a column for each system."""
    points = {system: {_x_text(x): e for x, e in of} for system, of in series.items()}
    every = dict.fromkeys(x for of in series.values() for x, _ in of)
    if not any(isinstance(x, str) for x in every):
        every = dict.fromkeys(sorted(every))
    rows = []
    for x in dict.fromkeys(map(_x_text, every)):
        cells = [estimate_text(of[x], unit) if x in of else "–" for of in points.values()]
        rows.append([x, *cells])
    return _table_text([x_label, *map(system_label, series)], rows)


def _estimate_or_none(estimate: Any, *args: Any, **config: Any) -> Any:
    """Return an estimate, or None where records have no sample for it."""
    try:
        return estimate(*args, **config)
    except MissingRecords:
        return None


def _is_finite(estimate: Any) -> bool:
    return estimate is not None and math.isfinite(estimate.median)


def _finite(points: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(x, e) for x, e in points if _is_finite(e)]


def _clipped(estimate: Any, log: bool = False) -> tuple[float, float, float]:
    """Return median, low and high; ends that are not finite, or not drawable, are the median."""
    mid = float(estimate.median)
    low, high = float(estimate.low), float(estimate.high)
    low = low if math.isfinite(low) and not (log and low <= 0) else mid
    high = high if math.isfinite(high) else mid
    return mid, low, high


def _columns(points: Sequence[tuple[float, Any]]) -> tuple[list[float], ...]:
    rows = [(x, *_clipped(e)) for x, e in points]
    return tuple([row[k] for row in rows] for k in range(4))


def _styles(names: Iterable[str]) -> dict[str, tuple[str, Any, str]]:
    """Return colour, dashes and marker by name; what is no system takes colours of no system."""
    names = list(names)
    styles = {name: SYSTEMS[name][1:] for name in names if name in SYSTEMS}
    used = {colour for colour, _, _ in styles.values()}
    free = [style for style in OTHERS if style[0] not in used] or list(OTHERS)
    others = (name for name in names if name not in SYSTEMS)
    return styles | {name: free[k % len(free)] for k, name in enumerate(others)}


def _draw_line(axes: Any, x: Any, mid: Any, low: Any, high: Any, hollow: Any, colour: str,
               dashes: Any, marker: str) -> None:  # fmt: skip
    axes.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
    axes.plot(x, mid, ls=dashes, color=colour, lw=1.6, zorder=3)
    if len(x) == 1 or len(x) < 12:
        axes.vlines(x, low, high, color=colour, lw=0.8, zorder=3)
    for filled in (True, False):
        chosen = [i for i, noisy in enumerate(hollow) if bool(noisy) is not filled]
        if chosen:
            axes.plot(
                [x[i] for i in chosen], [mid[i] for i in chosen], ls="", marker=marker,
                ms=4 if filled else 5, color=colour, mfc=colour if filled else "white", zorder=4,
            )  # fmt: skip


def _scale(axes: Any, which: str, values: Sequence[float], log: bool, unit: str = "",
           decade: float = 10.0, at_values: bool = False) -> None:  # fmt: skip
    """Choose a linear or logarithmic axis, and its ticks; none of them are minor ones."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    axis = getattr(axes, f"{which}axis")
    positive = [v for v in values if v > 0]
    least, most = (min(positive), max(positive)) if positive else (1.0, 1.0)
    log = log and most > (decade if len(positive) == len(values) else 1.0) * least
    if not log:
        integers = at_values and all(float(v).is_integer() for v in values)
        axis.set_major_locator(MaxNLocator(5, integer=integers))
        if at_values and len(values) == 1:
            axis.set_major_locator(FixedLocator(list(values)))
    else:
        ticks = _log_ticks(sorted(positive), at_values)
        pad = max(1.15, min(10.0, (most / least) ** 0.04))  # in factors: limits may not overflow
        top = most * pad if most < 1e308 / pad else most
        if len(positive) == len(values):
            getattr(axes, f"set_{which}scale")("log")
            limits = least / pad or least, top
        else:  # zeros and negative numbers stand on the linear middle of the axis
            getattr(axes, f"set_{which}scale")("symlog", linthresh=least)
            limits = min(-least / 2, 1.15 * min(values)), top
            ticks = ticks[len(ticks) > 3 :]  # the least would touch the zero
            ticks = [*(-t for t in ticks if t <= -min(values)), 0.0, *ticks]
        getattr(axes, f"set_{which}lim")(*limits)
        axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    common = _prefix(max(map(abs, values)), unit)

    def tick_text(value: float, _: int) -> str:
        scale, suffix = _prefix(value, unit) if log else common  # a linear axis has one prefix
        text = f"{_x_text(value / scale)} {suffix}".rstrip()
        return re.sub(r"(\.\d*?)0+(?=\D|$)", r"\1", text).replace(". ", " ").rstrip(".")

    axis.set_major_formatter(FuncFormatter(tick_text))


def _log_ticks(values: Sequence[float], at_values: bool) -> list[float]:
    """Return the values themselves if they are few and far apart, or else powers of ten."""
    if at_values and len(values) <= 7:
        gaps = [math.log(b / a) for a, b in itertools.pairwise(values)]
        if not gaps or min(gaps) > math.log(values[-1] / values[0]) / 12:
            return list(values)
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    stride = max(1, math.ceil((last - first) / 7))
    ticks = [10.0**k for k in range(first, last + 1, stride) if -307 < k < 308]
    inside = [t for t in ticks if min(values) <= t <= max(values)]
    if len(inside) < 2:  # between one and two decades: 1, 2 and 5
        ticks = [m * 10.0**k for k in range(first, last + 1) for m in (1, 2, 5)]
    return ticks


def _plain(axes: Any, grid: str = "y") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="0.92")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=NORMAL)


def spread_apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return ascending places at least ``gap`` apart, as near to the given ones as possible.

    The sum of squared shifts is the least (isotonic regression of ``place - index * gap`` by
    pooling of neighbours), within ``low`` and ``high`` if they fit there.
    """
    pools: list[list[float]] = []  # mean and size
    for index, place in enumerate(places):
        pools.append([place - index * gap, 1])
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            mean, size = pools.pop()
            total = pools[-1][1] + size
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * size) / total, total]
    flat = [mean for mean, size in pools for _ in range(int(size))]
    top = high - (len(flat) - 1) * gap
    if top < low:  # they do not fit: as many below as above
        low = top = (low + top) / 2
    return [min(max(v, low), top) + index * gap for index, v in enumerate(flat)]


def _height_of_labels(labels: Iterable[str], least: float) -> float:
    """Return the height in inches of a figure with these labels at its right edge."""
    lines = [_wrapped(label, 24).count("\n") + 1 for label in labels]
    return min(40.0, max(least, 0.9 + 1.2 * NORMAL / 72 * len(lines) * max(lines, default=1)))


def _name_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write names beside the right edge, with a thin line to the end that each belongs to."""
    axes.get_xlim(), axes.get_ylim()  # settles limits that follow from data
    to_axes = axes.transData + axes.transAxes.inverted()
    anchored = [
        (*map(float, to_axes.transform((x, y))), text, colour) for x, y, text, colour in ends
    ]
    anchored = sorted((a for a in anchored if math.isfinite(a[1])), key=lambda a: a[1])
    wrapped = [_wrapped(text, 24) for _, _, text, _ in anchored]
    height = 72 * (axes.figure.get_size_inches()[1] - 0.9)  # points of the axes, roughly
    tallest = max((text.count("\n") + 1 for text in wrapped), default=1)
    gap = 1.2 * NORMAL * tallest / height
    places = spread_apart([y for _, y, _, _ in anchored], gap, 0.0, 1.0)
    for (x, y, _, colour), text, place in zip(anchored, wrapped, places, strict=True):
        y = min(max(y, 0.0), 1.0)
        # Not clipped: outside of the axes nothing is drawn unless it is asked for.
        axes.plot(
            [x, 1.02, 1.035], [y, place, place], transform=axes.transAxes, color=colour,
            lw=0.6, alpha=0.7, clip_on=False, zorder=2,
        )  # fmt: skip
        axes.annotate(
            text, (1.045, place), xycoords="axes fraction", color=colour, fontsize=NORMAL,
            va="center", ha="left", linespacing=1.0, annotation_clip=False,
        )  # fmt: skip


def _name_area(axes: Any, x: Any, low: Any, high: Any, text: str, colour: str, ends: Any) -> None:
    """Write a layer's name inside of it where it is thick enough, or else at its end."""
    span = axes.get_ylim()[1]
    room = [
        (min(high[i : i + width]) - max(low[i : i + width])) / span
        for width in [max(1, len(x) // 5)]
        for i in range(max(1, len(x) - width))
    ]
    width = max(1, len(x) // 5)
    place = max(range(len(room)), key=room.__getitem__)
    fits = len(text) * 0.012 < 0.24
    if room[place] > 0.07 and len(x) > 4 and fits:
        window = slice(place, place + width)
        middle = (min(high[window]) + max(low[window])) / 2
        ink = "white" if _luminance(colour) < 0.4 else "black"
        where = (x[place] + x[min(place + width, len(x) - 1)]) / 2
        axes.text(where, middle, text, color=ink, fontsize=NORMAL, ha="center", va="center")
    else:
        ink = colour if _luminance(colour) < 0.4 else "0.3"
        ends.append((x[-1], (low[-1] + high[-1]) / 2, text, ink))


def _luminance(colour: str) -> float:
    """Return the relative luminance of a hex colour, 0 to 1 (sRGB, IEC 61966-2-1)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _tint(colour: str) -> str:
    """Return a colour mixed with white, so that an interval is seen on a bar of it."""
    return "#" + "".join(f"{int(0.4 * int(colour[i : i + 2], 16) + 153):02x}" for i in (1, 3, 5))


def _wrapped(text: Any, width: int) -> str:
    return "\n".join(textwrap.wrap(str(text), width)) or ""


def _heighten(figure: Any, inches: float) -> None:
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + inches)


def _add_title(figure: Any, title: str) -> None:
    text = _wrapped(title, int(figure.get_size_inches()[0] * 13))
    _heighten(figure, 0.16 * text.count("\n"))
    figure.suptitle(text, x=0.005, ha="left", fontsize=LARGE)


def _add_note(figure: Any, note: str) -> None:
    text = _wrapped(note, int(figure.get_size_inches()[0] * 19))
    _heighten(figure, 0.13 * (text.count("\n") + 1))
    figure.supxlabel(text, x=0.005, ha="left", fontsize=SMALL, color="0.4")


@contextmanager
def _settings() -> Any:
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # no matplotlibrc of the user: equal files on all machines
        matplotlib.rcParams.update(_RC)
        yield


def require_matplotlib() -> None:
    """Raise ImportError with what to install if there is no matplotlib."""
    try:
        importlib.import_module("matplotlib")
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise  # it is there, but broken
        raise ImportError(
            "matplotlib draws the figures of the report and is not installed; install it with: "
            "pip install matplotlib"
        ) from None


def draw_svg_and_png(picture: Picture, note: str = "") -> tuple[bytes, bytes]:
    """Return a picture as SVG, and as PNG at 130 dpi.

    Equal pictures give equal bytes with one version of matplotlib: the files have no date.
    """
    figure = picture.draw(note)
    svg, png = io.BytesIO(), io.BytesIO()
    with _settings():
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def write_picture(picture: Picture, folder: str | Path, note: str = "") -> list[Path]:
    """Write a picture as ``NAME.svg`` and ``NAME.png``, and return the paths."""
    paths = [Path(folder) / f"{picture.name}.{ending}" for ending in ("svg", "png")]
    for path, data in zip(paths, draw_svg_and_png(picture, note), strict=True):
        path.write_bytes(data)
    return paths
