"""Tuning: contests that decide by which plan a program is computed on this machine.

``od.tune`` takes the works of a program, the dearest first, and lets the whole program with one of
them computed in another way run against the best program so far. Nothing is priced by its parts:
parts that are timed alone have other caches, and are fused with nothing. Each way is checked before
it runs here for the first time. All that is found is stored at once, so a tuning that is
interrupted goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from types import MethodType
from typing import Any, NamedTuple

from odyssey.checks import check_number, format_value
from odyssey.compiler.compiled_function import CompiledFunction
from odyssey.compiler.inspection import function_name
from odyssey.compiler.machine.thread_count import requested_threads
from odyssey.compiler.state_layout import BindingError
from odyssey.compiler.static_arguments import CompiledByValue
from odyssey.compiler.way_checks import check_in_program, check_ways
from odyssey.compiler.ways.alternatives import Choice
from odyssey.compiler.ways.choosing import (
    choose,
    graph_key,
    is_within,
    latest_timing,
    outcome_text,
    version_of,
)
from odyssey.compiler.ways.contest import (
    NO_BOUND,
    ROUNDS,
    Contest,
    contest_of,
    format_ratio,
    hold_contest,
)
from odyssey.compiler.ways.plans import NO_PLAN, Plan
from odyssey.compiler.ways.store import Outcome, Ran, Store, Verdict, default_store
from odyssey.errors import OdysseyError, SettingError
from odyssey.kernels.machine_facts import blas_thread_count
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store
from odyssey.tree import leaves

__all__ = ["TuningReport", "WayTried", "tune"]


class WayTried(NamedTuple):
    """A way of a work that was tried, or left out.

    Attributes:
        work: The work, as text.
        way: Name of the way.
        ratio: Time of the program with this way to the best program then; None if it did not run.
        bound: Upper 97.5 % bound of the ratio.
        note: What became of it: ``taken``, ``slower``, ``no faster``, ``outside of the tolerance``,
            or why it is in quarantine.
    """

    work: str
    way: str
    ratio: float | None
    bound: float | None
    note: str

    def __str__(self) -> str:
        return f"{self.work}: {self.way}: {format_ratio(self.ratio, self.bound)}{self.note}"


class TuningReport(NamedTuple):
    """Result of a tuning, which it shows as text.

    Attributes:
        name: Name of the function.
        plan: The plan at the end; ``od.compile(fn, plan=plan)`` pins it.
        ratio: Time of the program with the plan to that with the guess; 1 for the guess.
        bound: Upper 97.5 % bound of the ratio.
        tried: The ways that were tried, in this order.
        left: Number of ways that are left to try, since the time was over.
        seconds: Seconds that it took.
        is_stored: Whether the result is in the file of measurements.
    """

    name: str
    plan: Plan
    ratio: float
    bound: float
    tried: tuple[WayTried, ...]
    left: int
    seconds: float
    is_stored: bool

    def __repr__(self) -> str:
        """Format the plan, and a line for each way that was tried."""
        times = f"{format_ratio(self.ratio, self.bound)}of the guess" if self.plan else "the guess"
        lines = [f"tune: {self.name}: {times}, {len(self.tried)} ways in {self.seconds:.1f} s"]
        if self.left:
            lines.append(f"  {self.left} ways are left; call it again to go on")
        if not self.is_stored:
            lines.append("  nothing was stored; pin the plan by od.compile(fn, plan=report.plan)")
        chosen = {str(work): name for work, name in self.plan.differences.items()}
        lines += [f"  {work}: {name}" for work, name in chosen.items()]
        others = [one for one in self.tried if chosen.get(one.work) != one.way]
        lines += [f"  not {one}" for one in others]
        return "\n".join(lines)


def tune(step: Any, /, *args: Any, seconds: float = 60.0, **named: Any) -> TuningReport:
    """Find the fastest plan of a compiled function on this machine, and store it.

    Programs run on copies of the states: Variables, gradients and generators stay as they are, and
    a training step trains nothing. Afterwards ``step`` runs by the plan, and so does every function
    with an equal graph, in this process and later ones; other programs with the same works take
    them as an opinion. If the plan is not faster than the guess, the guess stays.

    Interrupt it at any time, by Ctrl-C too: what was measured is stored, and the next call goes on
    from there. Run it while nothing else runs; a busy machine takes longer, and finds less.

    Args:
        step: A function that ``od.compile`` returned, or a method. Its ``tolerance`` holds.
        args: Arguments as in a call: arrays like those of the real calls.
        seconds: Seconds after which no more ways are tried.
        named: Keyword arguments as in a call; one called ``seconds`` must be passed by position.

    Returns:
        A report, which can be printed.

    Raises:
        CompileError: there is no program for such arguments.
        SettingError: ``step`` is not compiled, has a pinned plan, a memory limit or symbolic
            sizes; it is called inside an open tape; or its program refuses the values of the
            arguments.

    >>> import numpy as np
    >>> import odyssey as od
    >>> step = od.compile(lambda x: (x * 2.0).sum())
    >>> report = od.tune(step, np.ones(3), seconds=5)
    >>> report.plan
    Plan({})
    """
    seconds = check_number("tune", "seconds", seconds, "[0, inf)")
    target = _Target.of(step, args, named)
    return _Tuner(target, seconds).run()


class _Target(NamedTuple):
    """A compiled function with the arguments that it is tuned for."""

    step: CompiledFunction
    args: tuple[Any, ...]
    named: dict[str, Any]

    @classmethod
    def of(cls, step: Any, args: tuple[Any, ...], named: dict[str, Any]) -> _Target:
        """Check what a user passed, and compile the program."""
        if isinstance(step, MethodType):
            step, args = step.__func__, (step.__self__, *args)
        if not isinstance(step, CompiledFunction):
            raise SettingError(
                f"tune: {format_value(step)} came, which is not compiled; pass what od.compile "
                "returned"
            )
        if isinstance(step, CompiledByValue):
            values, args, named = step._static.split(args, named)
            step = step._of(values)
        name = function_name(step._fn)
        if store() is not MEMORY or scopes()[0] is not None:
            raise SettingError(
                f"tune: {name} is tuned inside an open tape, no_grad or autocast; leave it first"
            )
        if step._pinned is not None:
            raise SettingError(
                f"tune: {name} has a pinned plan; compile it without plan= to look for another"
            )
        if step._limit is not None or step._budget is not None:
            raise SettingError(
                f"tune: {name} has a memory limit, and other plans may hold more; tune the "
                "function compiled without one, and pin the plan of the report by plan="
            )
        if step._dynamic is not None:
            raise SettingError(
                f"tune: {name} has symbolic sizes; tune the function compiled without dynamic="
            )
        if any(type(leaf).__name__ == "Spec" for leaf in leaves((args, named))):
            raise SettingError(f"tune: a spec came for {name}; pass arrays like those of its calls")
        inner, given = step._with_attributes(args)
        if inner._find_program(given, named)[0] is None:
            step.precompile(*args, **named)
        return cls(step, args, named)


class _Tuner:
    """One tuning."""

    def __init__(self, target: _Target, seconds: float) -> None:
        self._target = target
        self._begin = time.monotonic()
        self._end = self._begin + seconds
        self._rng = Random()
        step = target.step
        self._name = function_name(step._fn)
        self._threads = step._threads or requested_threads()
        self._clock = _clock(self._threads)
        self._tolerance = step._tolerance
        inner, given = step._with_attributes(target.args)
        program = inner._find_program(given, target.named)[0]
        self._graph = graph_key(program.executable.graph)
        self._profile = program_times(step, target)
        self._store: Store | None = default_store(self._threads or 1)
        self._is_stored = self._store is not None
        self._verdicts: list[Verdict] = []  # of this tuning, also if they cannot be stored
        self._tried: list[WayTried] = []
        self._runs: dict[Plan, Any] = {}

    # -------------------------------------------------------------- the whole

    def run(self) -> TuningReport:
        """Try the ways that are left, then the plan against the guess."""
        self._run_guess()
        champion = self._known_plan()
        left = 0
        while True:
            pending = self._pending(champion)
            if not pending:
                break
            work, name = pending[0]
            if not self._has_time():
                left = len(pending)
                break
            champion = self._try(champion, work, name)
            self._forget_all_but(champion)
        plan, final = self._finish(champion)
        seconds = time.monotonic() - self._begin
        if self._is_stored and plan != self._current_plan():
            self._target.step._use_measurements(self._target.args, self._target.named)
        tried = tuple(self._tried)
        return TuningReport(
            self._name, plan, final.ratio, final.bound, tried, left, seconds, self._is_stored
        )

    def _run_guess(self) -> None:
        """Run the guess once; what fails here is no fault of another way."""
        try:
            self._runner(NO_PLAN).block(1)
        except BindingError as error:
            raise SettingError(f"tune: {self._name} cannot run on copies: {error}") from None
        except SettingError:  # the program is one of a card
            raise
        except OdysseyError:
            raise SettingError(
                f"tune: the program of {self._name} refuses the values of these arguments; call it "
                "with them to see why"
            ) from None

    def _current_plan(self) -> Plan:
        step, args, named = self._target
        return step.plan(*args, **named)

    def _known_plan(self) -> Plan:
        """Return the plan by what was measured in this graph before."""
        works = self._works(NO_PLAN)
        rows = [row for row in self._known(works) if row.graph in ("", self._graph)]
        pairs = [(one.work, one.ways) for one in works]
        chosen = choose(pairs, rows, (), self._graph, self._tolerance)
        return Plan({work: choice.way for work, choice in chosen.items()})

    def _pending(self, champion: Plan) -> list[tuple[Choice, str]]:
        """Return the ways that were not tried in this graph, of the dearest works first."""
        works = [one for one in self._works(champion) if len(one.ways) > 1]
        rows: dict[tuple[str, str, str], list[Verdict]] = {}
        for row in self._known(works):
            rows.setdefault((row.work, row.way, row.version), []).append(row)
        found = []
        for one in sorted(works, key=self._price, reverse=True):
            guess, *others = one.ways
            for way in others:
                known = rows.get((str(one.work), way.name, version_of(way, guess)), [])
                checks = [row for row in known if row.reason or row.error is not None]
                is_bad = bool(checks and checks[-1].reason)
                own = latest_timing([row for row in known if row.graph == self._graph], self._graph)
                if own is None and not is_bad:
                    found.append((one, way.name))
        return found

    def _try(self, champion: Plan, choice: Choice, name: str) -> Plan:
        """Check a way, and let it run against the champion; return the champion from then on."""
        work = choice.work
        check = self._checked(choice, name)
        if check.reason:
            return champion
        plan = champion.with_way(work, name)
        try:
            challenger = self._runner(plan)
            contest = self._contest(self._runner(champion), challenger, self._has_time_or_first())
        except MemoryError:
            raise
        except Exception as error:
            reason = f"it raised {type(error).__name__}: {error}"
            self._add(verdicts=[check._replace(reason=reason)])
            self._note(choice, name, None, reason)
            return champion
        base = self._ratio_of(champion, choice)
        way = next(one for one in choice.ways if one.name == name)
        verdict = check._replace(
            graph=self._graph, ratio=base * contest.ratio, bound=min(base * contest.bound, NO_BOUND)
        )
        self._add(
            [
                Ran(
                    *(self._graph, plan.to_json(), champion.to_json()),
                    version_of(way, choice.ways[0]),
                    contest.pairs,
                )
            ],
            [verdict],
        )
        within = is_within(self._tolerance, way.error_bound, verdict)
        won = contest.is_won and within
        lost = "slower" if contest.ratio > 1.05 else "no faster"
        outside = "outside of the tolerance" if contest.is_won else lost
        self._note(choice, name, contest, "taken" if won else outside)
        return self._trimmed(plan) if won else champion

    def _trimmed(self, plan: Plan) -> Plan:
        """Return a plan without the works that were parts of others, and are no longer met."""
        known = {one.work for one in self._works(plan)}
        return Plan({work: name for work, name in plan.differences.items() if work in known})

    def _finish(self, champion: Plan) -> tuple[Plan, Contest]:
        """Let the plan run against the guess; store and return which stays."""
        final = contest_of([])._replace(bound=1.0)
        plan = NO_PLAN
        if len(champion):
            final = self._contest(self._runner(NO_PLAN), self._runner(champion), lambda: True)
            self._add([Ran(self._graph, champion.to_json(), NO_PLAN.to_json(), "", final.pairs)])
            if final.is_won:
                plan = champion
            else:
                final = contest_of([])._replace(bound=1.0)
        works = [(one.work, one.ways) for one in self._works(NO_PLAN)]
        known = {work for work, _ in works}
        works += [(c.work, c.ways) for c in self._works(plan) if c.work not in known]
        text = outcome_text(dict(plan.differences), works)
        outcome = Outcome(self._graph, str(self._tolerance), text, final.ratio, final.bound)
        self._add(outcomes=[outcome])
        return plan, final

    # -------------------------------------------------------------- pieces

    def _checked(self, choice: Choice, name: str) -> Verdict:
        """Return the check of a way on this machine; make it if there is none."""
        way = next(one for one in choice.ways if one.name == name)
        version = version_of(way, choice.ways[0])
        for row in reversed(self._known([choice])):
            same = (row.way, row.version) == (name, version)
            if same and (row.reason or row.error is not None):
                return row._replace(graph="", ratio=None, bound=None)
        names = [one.name for one in choice.ways[1:]]
        made = [
            one if one.reason or one.error is not None else self._check_in_program(choice, one.way)
            for one in check_ways(choice, names)
        ]
        self._add(verdicts=made)
        for one in made:
            if one.reason:
                self._note(choice, one.way, None, one.reason)
        return next(one for one in made if one.way == name)

    def _check_in_program(self, choice: Choice, name: str) -> Verdict:
        step, args, named = self._target
        plans = NO_PLAN, NO_PLAN.with_way(choice.work, name)
        try:
            runs = [step._dry_run(plan, args, named) for plan in plans]
            return check_in_program(choice, name, *runs)
        except MemoryError:
            raise
        except Exception as error:
            way = next(one for one in choice.ways if one.name == name)
            reason = f"it raised {type(error).__name__}: {error}"
            version = version_of(way, choice.ways[0])
            return Verdict(str(choice.work), name, version, reason=reason)

    def _contest(self, champion: Any, challenger: Any, goes_on: Callable[[], bool]) -> Contest:
        resets = champion.reset, challenger.reset

        def reset() -> None:
            for one in resets:
                one()

        return hold_contest(
            champion.block, challenger.block, self._clock, self._rng, reset=reset, goes_on=goes_on
        )

    def _runner(self, plan: Plan) -> Any:
        if plan not in self._runs:
            run = self._target.step._dry_run(plan, self._target.args, self._target.named)
            self._runs[plan] = _Runner(run)
        return self._runs[plan]

    def _forget_all_but(self, champion: Plan) -> None:
        """Release the programs that will not run again: each has copies of the states."""
        self._runs = {plan: run for plan, run in self._runs.items() if plan == champion}

    def _works(self, plan: Plan) -> list[Choice]:
        step, args, named = self._target
        found: list[Choice] = step._works(plan, args, named)
        return found

    def _known(self, works: Sequence[Choice]) -> list[Verdict]:
        keys = {str(one.work) for one in works}
        stored = [] if self._store is None else self._store.verdicts(keys)
        if self._is_stored:
            return stored
        return [*stored, *[row for row in self._verdicts if row.work in keys]]

    def _add(
        self,
        contests: Sequence[Ran] = (),
        verdicts: Sequence[Verdict] = (),
        outcomes: Sequence[Outcome] = (),
    ) -> None:
        self._verdicts += verdicts
        stored = self._store is not None and self._store.add(contests, verdicts, outcomes)
        self._is_stored = self._is_stored and stored

    def _note(self, choice: Choice, name: str, contest: Contest | None, note: str) -> None:
        ratio, bound = (None, None) if contest is None else (contest.ratio, contest.bound)
        self._tried.append(WayTried(str(choice.work), name, ratio, bound, note))

    def _ratio_of(self, champion: Plan, choice: Choice) -> float:
        """Return the ratio to the guess of the champion's way of a work."""
        name = champion.get(choice.work)
        rows = [
            row
            for row in self._known([choice])
            if row.way == name and row.graph == self._graph and row.ratio is not None
        ]
        return rows[-1].ratio or 1.0 if rows else 1.0

    def _has_time(self) -> bool:
        return time.monotonic() < self._end

    def _has_time_or_first(self) -> Callable[[], bool]:
        """Return a function that tells if a contest goes on, some seconds over the time."""
        begin = time.monotonic()
        allowed = max(self._end - begin, 0.0) + 0.5 * ROUNDS
        return lambda: time.monotonic() - begin < allowed

    def _price(self, choice: Choice) -> tuple[float, int]:
        """Return the time of the kernels of a work's row, and the elements of its operands."""
        return self._profile.get(choice.work.row, 0.0), _elements(choice)


class _Runner:
    """Runs of a dry run in blocks, each from the same states."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.reset = run.reset

    def block(self, count: int) -> None:
        """Run so many times; states that a check refuses after some runs are set back."""
        run, done = self._run.run, 0
        try:
            for done in range(count):  # noqa: B007
                run()
            return
        except Exception:
            if not done:
                raise
        for _ in range(count - done):
            self.reset()
            run()


def program_times(step: CompiledFunction, target: _Target) -> dict[str, float]:
    """Return by name of a row the microseconds of the kernels that compute it."""
    found: dict[str, float] = {}
    try:
        profile = step.profile(*target.args, runs=3, **target.named)
    except Exception:  # then works are taken by size
        return found

    def add(kernels: Any) -> None:
        for kernel in kernels:
            for row in {name.strip() for name in kernel.what.split(",")}:
                found[row] = found.get(row, 0.0) + kernel.microseconds
            if kernel.kind == "product":
                found["product"] = found.get("product", 0.0) + kernel.microseconds
            for _, inside in kernel.parts:
                add(inside)

    add(profile.kernels)
    return found


def _elements(choice: Choice) -> int:
    """Return the number of elements of a work's operands."""
    total = 0
    for text in choice.work.specs:
        shape = text.partition("[")[2].rstrip("]").split(",")
        if "[" in text:
            size = 1
            for length in shape:
                size *= int(length) if length.strip().isdecimal() else 1
            total += size
    return total


def _clock(threads: int) -> Callable[[], int]:
    """Return the clock of contests: processor time of one thread, else the wall clock."""
    if threads > 1 or (threads == 0 and blas_thread_count() > 1):
        return time.perf_counter_ns
    return time.thread_time_ns
