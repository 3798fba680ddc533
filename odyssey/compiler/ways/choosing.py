"""Choice of a plan: of each work the fastest way that is known and exact enough.

Called when a program is compiled, and by ``tuning``. Ways of different works do not constrain one
another, so a plan is a choice for each work alone. Nothing is measured here. A way other than the
guess is taken if

* it was checked on this machine, is not in quarantine, and is within the tolerance;
* it beat the guess: the bound of its ratio is below ``WINS_BELOW``, in the program of this graph,
  or, where that was not timed, in the latest other program with the work;
* the tuning of this graph for this tolerance did not end without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from odyssey.checks import check_number, format_value
from odyssey.compiler.ways.alternatives import version_by_name
from odyssey.compiler.ways.contest import WINS_BELOW
from odyssey.compiler.ways.store import Outcome, Store, Verdict
from odyssey.errors import SettingError

__all__ = [
    "BITS",
    "MeasuredWay",
    "check_tolerance",
    "choose",
    "choose_from",
    "graph_key",
    "is_stale",
    "is_within",
    "latest_timing",
    "outcome_text",
    "quarantined",
    "version_of",
]

BITS = "bits"
"""The tolerance of ways whose results equal those of the guess to the bit."""

# Error of a way at tolerance 0, as a multiple of that of the guess.
_MOST_ERRORS = 4.0


class MeasuredWay(NamedTuple):
    """The way of a work in a plan, and the measurement that it rests on.

    Attributes:
        way: Its name.
        ratio: Time of the program to that with the guess.
        bound: Upper 97.5 % bound of the ratio.
        is_own: Whether it was measured in the program of this graph, and not of another.
    """

    way: str
    ratio: float
    bound: float
    is_own: bool

    def __str__(self) -> str:
        where = "" if self.is_own else ", in another program"
        return f"measured x{self.ratio:.2f} (<{self.bound:.2f}){where}"


def check_tolerance(who: str, value: Any) -> str | float:
    """Return a tolerance: ``"bits"``, or a number from 0 on.

    Raises:
        DTypeError: it is neither text nor a number.
        SettingError: it is another text, negative or not finite.
    """
    if isinstance(value, str):
        if value != BITS:
            raise SettingError(
                f'{who}: tolerance={format_value(value)}; it must be "bits", or a number from 0 on'
            )
        return BITS
    return check_number(who, "tolerance", value, "[0, inf)")


def graph_key(graph: Any) -> str:
    """Return a hash of the text of a graph, equal in every process."""
    text = re.sub(r"0x[0-9a-fA-F]+", "", str(graph))  # addresses in the text of an option
    return sha256(text.encode()).hexdigest()[:24]


def version_of(way: Any, guess: Any) -> str:
    """Return the version that a verdict on a way belongs to: those of the way and of the guess.

    Ratios and errors are compared with the guess, so another guess makes them void.
    """
    return f"{way.version}/{guess.name}/{guess.version}"


def is_stale(work: str, way: str, version: str) -> bool:
    """Return whether a verdict is on other code than that of now, and so will not be used again.

    Args:
        work: Text of a work.
        way: Name of a way of it.
        version: What ``version_of`` returned.
    """
    own, guess, guess_version = [*version.split("/"), "", ""][:3]
    pairs = (way, own), (guess, guess_version)
    return any(version_by_name(work.partition("(")[0], name) != known for name, known in pairs)


def is_within(tolerance: str | float, error_bound: float | None, verdict: Verdict) -> bool:
    """Return whether a way may be used.

    Args:
        tolerance: What ``check_tolerance`` returned.
        error_bound: The bound that the way declares, relative to the largest element; None if it is
            as exact as the reference.
        verdict: The latest check of the way on this machine.
    """
    if verdict.reason or verdict.error is None or verdict.guess_error is None:
        return False
    if verdict.equal:
        return True
    if tolerance == BITS:
        return False
    if verdict.error <= _MOST_ERRORS * verdict.guess_error:
        return True
    return max(verdict.error, error_bound or 0.0) <= float(tolerance)


def choose(
    works: Sequence[tuple[Any, Sequence[Any]]],
    verdicts: Iterable[Verdict],
    outcomes: Iterable[Outcome] = (),
    graph: str = "",
    tolerance: str | float = 0.0,
) -> dict[Any, MeasuredWay]:
    """Return the works whose way is not the guess, with the way.

    Args:
        works: Works with their ways, the guess first.
        verdicts: Verdicts on these works, the oldest first.
        outcomes: Ends of tunings of the graph, the oldest first.
        graph: Key of the graph.
        tolerance: What ``check_tolerance`` returned.
    """
    by_way: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        by_way.setdefault((verdict.work, verdict.way), []).append(verdict)
    ended = _outcome_plan(outcomes, tolerance)
    found: dict[Any, MeasuredWay] = {}
    for work, ways in works:
        guess, *others = ways
        candidates = []
        for way in others:
            rows = by_way.get((str(work), way.name))
            if rows is None:
                continue
            version = version_of(way, guess)
            known = [row for row in rows if row.version == version]
            checks = [row for row in known if row.error is not None or row.reason]
            if not checks or not is_within(tolerance, way.error_bound, checks[-1]):
                continue
            if ended is not None and ended.get(str(work)) != [way.name, version]:
                continue
            timed = latest_timing(known, graph)
            if timed is not None and timed.bound is not None and timed.bound < WINS_BELOW:
                own = timed.graph == graph
                candidates.append(MeasuredWay(way.name, timed.ratio or 1.0, timed.bound, own))
        if candidates:
            found[work] = min(candidates, key=lambda choice: choice.ratio)
    return found


def choose_from(
    store: Store | None,
    works: Sequence[tuple[Any, Sequence[Any]]],
    graph_key: Callable[[], str],
    tolerance: str | float,
) -> dict[Any, MeasuredWay]:
    """Return ``choose`` of what a store knows; nothing if there is none, or it knows nothing.

    Args:
        store: The store.
        works: Works with their ways, the guess first.
        graph_key: Returns the key of the graph; called if something is known of the works.
        tolerance: What ``check_tolerance`` returned.
    """
    open_works = [(work, ways) for work, ways in works if len(ways) > 1]
    if store is None or not open_works:
        return {}
    verdicts = store.verdicts([str(work) for work, _ in open_works])
    if not verdicts:
        return {}
    graph = graph_key()
    return choose(open_works, verdicts, store.outcomes(graph), graph, tolerance)


def quarantined(
    store: Store | None, works: Sequence[tuple[Any, Sequence[Any]]]
) -> list[tuple[Any, str, str]]:
    """Return the ways of works that are in quarantine: work, way and reason."""
    if store is None:
        return []
    versions = {
        (str(work), way.name, version_of(way, ways[0])): work
        for work, ways in works
        for way in ways[1:]
    }
    reasons: dict[tuple[str, str, str], str] = {}
    for row in store.verdicts([str(work) for work, _ in works]):
        if row.reason or row.error is not None:
            reasons[row.work, row.way, row.version] = row.reason
    return [
        (versions[key], key[1], reason)
        for key, reason in reasons.items()
        if reason and key in versions
    ]


def outcome_text(choices: Mapping[Any, str], works: Sequence[tuple[Any, Sequence[Any]]]) -> str:
    """Return a plan as the text that ``Outcome`` has: ways and versions by work."""
    found = {}
    for work, ways in works:
        if work in choices:
            way = next(one for one in ways if one.name == choices[work])
            found[str(work)] = [way.name, version_of(way, ways[0])]
    return json.dumps(found, sort_keys=True)


def _outcome_plan(outcomes: Iterable[Outcome], tolerance: str | float) -> dict[str, Any] | None:
    """Return the plan of the latest tuning for a tolerance; None if there was none."""
    texts = [one.plan for one in outcomes if one.tolerance == str(tolerance)]
    if not texts:
        return None
    plan: Any = json.loads(texts[-1])
    return plan if isinstance(plan, dict) else None


def latest_timing(verdicts: Sequence[Verdict], graph: str) -> Verdict | None:
    """Return the latest timing in the program of a graph; else in any other."""
    timed = [verdict for verdict in verdicts if verdict.bound is not None]
    own = [verdict for verdict in timed if verdict.graph == graph]
    return next(reversed(own or timed), None)
