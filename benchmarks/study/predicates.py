"""Predicates of hypotheses: outcomes from intervals, slopes of curves, arithmetic of estimates."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from study.contract import Estimate, Outcome, Verdict

NOTHING = "nothing was measured that decides it"


def exactly(value: float) -> Estimate:
    """Return the estimate of a number that is computed or counted, not sampled."""
    return Estimate(float(value), float(value), float(value), 1)


def at_most(estimate: Estimate, bound: float) -> Outcome:
    """Return whether a quantity is at most a bound: refuted only if its interval is above it."""
    if estimate.high <= bound:
        return "held"
    return "refuted" if estimate.low > bound else "undecided"


def at_least(estimate: Estimate, bound: float) -> Outcome:
    """Return whether a quantity is at least a bound: refuted only if its interval is below it."""
    if estimate.low >= bound:
        return "held"
    return "refuted" if estimate.high < bound else "undecided"


def between(estimate: Estimate, low: float, high: float) -> Outcome:
    """Return whether a quantity lies between two bounds."""
    return all_of([at_least(estimate, low), at_most(estimate, high)])


def all_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Return ``refuted`` if one is, ``held`` if all are, and ``undecided`` of none."""
    found = list(outcomes)
    if "refuted" in found:
        return "refuted"
    return "held" if found and all(o == "held" for o in found) else "undecided"


def largest(estimates: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the entry with the largest median, as a mapping of one."""
    if not estimates:
        return {}
    name = max(estimates, key=lambda n: estimates[n].median)
    return {name: estimates[name]}


def power(points: Sequence[tuple[float, Estimate]]) -> Estimate:
    """Return the exponent of a power law through points, by least squares of their logarithms.

    The interval is that of the lines through the ends of the points' intervals that tilt most.

    Args:
        points: Abscissas with their estimates, all positive, at least two.
    """
    x = np.log([p for p, _ in points])
    x = x - x.mean()

    def slope(values: Sequence[float]) -> float:
        return float(x @ np.log(values) / (x @ x))

    estimates = [e for _, e in points]
    right = [e.high if t > 0 else e.low for t, e in zip(x, estimates, strict=True)]
    left = [e.low if t > 0 else e.high for t, e in zip(x, estimates, strict=True)]
    rounds = min(e.rounds for e in estimates)
    middle = slope([e.median for e in estimates])
    return Estimate(middle, slope(left), slope(right), rounds)


def within(
    numbers: Mapping[str, Estimate], low: float = -math.inf, high: float = math.inf
) -> Verdict:
    """Judge whether all numbers lie within bounds.

    Args:
        numbers: Estimates by name.
        low: The lower bound.
        high: The upper bound.

    Returns:
        ``held`` if the interval of each lies within the bounds, ``refuted`` if that of one lies
        outside as a whole, and else ``undecided``.
    """
    if not numbers:
        return Verdict("undecided", note="nothing was measured")
    outside = [name for name, e in numbers.items() if e.high < low or e.low > high]
    if outside:
        return Verdict("refuted", numbers, note=f"outside: {', '.join(outside)}")
    astride = [name for name, e in numbers.items() if e.low < low or e.high > high]
    if astride:
        return Verdict("undecided", numbers, note=f"the interval has a bound: {', '.join(astride)}")
    return Verdict("held", numbers)


def difference(a: Estimate, b: Estimate) -> Estimate:
    """Return the difference of two estimates, with the widest interval that theirs allow."""
    return Estimate(
        a.median - b.median,
        a.low - b.high,
        a.high - b.low,
        min(a.rounds, b.rounds),
        a.noisy or b.noisy,
    )


def scaled(a: Estimate, factor: float) -> Estimate:
    """Return an estimate in another unit."""
    return Estimate(a.median * factor, a.low * factor, a.high * factor, a.rounds, a.noisy)


def quotient(a: Estimate, b: Estimate) -> Estimate:
    """Return the quotient of two positive estimates, with the widest interval that theirs allow.

    Where the divisor may be 0 or less, the upper end is infinite.
    """
    high = a.high / b.low if b.low > 0 else math.inf
    median = a.median / b.median if b.median > 0 else math.inf
    low = a.low / b.high if b.high > 0 else math.inf
    return Estimate(median, low, high, min(a.rounds, b.rounds), a.noisy or b.noisy)
