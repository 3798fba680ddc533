"""Functions whose arguments vary in size: which of them do, and the programs for all sizes.

A program is made of trials at three sizes that nothing else is equal to. Sizes that it is not the
program for, such as 1, have programs of their own, as if they had not been declared; so have calls
whose sizes are out of bounds, or differ where one name says that they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from odyssey.compiler.arguments import (
    alias_refusal,
    input_leaves,
    is_flat,
    program_arguments,
    static_values,
    unsupported_argument,
    variable_kinds,
)
from odyssey.compiler.dispatch.cache import CompileLock, make_room
from odyssey.compiler.dispatch.fast_path import CACHE_MISS
from odyssey.compiler.symbolic_shapes.declarations import CallSizes, DynamicAxes, SizeSource
from odyssey.compiler.symbolic_shapes.probe_sizes import PROBE_SIZE, choose_probe_sizes
from odyssey.compiler.symbolic_shapes.templates import TemplateMismatchError
from odyssey.compiler.tracing.attempt import (
    TraceAttempt,
    clear_traceback,
    describe_trace_error,
    try_trace,
)
from odyssey.errors import OdysseyError
from odyssey.spec import Array
from odyssey.table.scope import scopes

if TYPE_CHECKING:
    from odyssey.compiler.symbolic_shapes.sized_program import ProgramTemplate, SizedProgram

__all__ = ["DynamicShapes", "Host"]

# Of how many combinations of arguments it is known what becomes of them.
_MAX_SPECIALIZATIONS = 256
# How many programs one combination may have for what else differs; and how many sizes may have
# programs of their own.
_MAX_PROGRAMS = 8
# After so many sizes that no program is for none is sought any more.
_MAX_FAILED_SIZES = 3
# What sizes may have to be multiples of.
_MAX_STEP = 64
# Why there is no program for a size; whatever else is raised is a fault of ours.
_MISMATCHES = (OdysseyError,)


class _UnknownResultError(OdysseyError):
    """No run for such arguments has been seen; it has the ``standings`` of what a trial returns."""

    def __init__(self, traced: list[Any]) -> None:
        super().__init__("what it returns may be of other kinds")
        self.traced = traced


class _TraceFailedError(OdysseyError):
    """A trial failed, as the run may: what no program is for is not known then."""


class Host(Protocol):
    """A compiled function, as far as it is asked here."""

    _check: bool
    _native: Array
    _threads: int

    def _looked(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]: ...
    def _run_eagerly(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any: ...
    def _fall_back(self, reason: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any: ...
    def _prefer(self, program: Any, result: Any) -> Any: ...
    def _note_compiled(self, program: Any) -> None: ...


class _SizedProgramEntry:
    """The text of a program, and the program when there is a size that it is for.

    Attributes:
        known: The fixed arguments that it is for.
    """

    def __init__(self, known: Any, pattern: ProgramTemplate) -> None:
        self.known = known
        self.pattern = pattern
        self.program: SizedProgram | None = None

    def holds(self) -> bool:
        """Whether what it read of Python is as it was."""
        return self.program is None or _guards_hold(self.program)

    def take_up(
        self,
        compiled: Host,
        trial: TraceAttempt,
        seen: Any,
        bare: bool,
        spots: Sequence[SizeSource],
    ) -> SizedProgram:
        """The program, which knows the sizes of a trial.

        Raises:
            OdysseyError: it is not for them.
        """
        from odyssey.compiler.symbolic_shapes.sized_program import SizedProgram

        if self.program is not None:
            self.program.take_up(trial, seen)
        else:
            own = compiled._native, compiled._threads
            self.program = SizedProgram(self.pattern, trial, seen, bare, spots, *own)
            compiled._note_compiled(self.program)
        return self.program


class Specialization:
    """Programs and traces of one signature whose declared sizes may vary.

    Attributes:
        seen: Of the latest runs the fixed arguments, what they returned, and the ``standings`` of
            what trials for the same return.
        made: Programs.
        why: Why sizes do not vary here; None where they do, or may.
        misfits: Sizes with programs of their own, and why.
        asked: The numbers that are fixed, by path, and why.
        unseen: How often a run had to show what is returned for others.
        making: Whose turn it is to make a program, or to take up a size.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any, list[Any]]] = []
        self.made: list[_SizedProgramEntry] = []
        self.why: str | None = None
        self.misfits: dict[tuple[int, ...], str] = {}
        self.asked: dict[str, str] = {}
        self.unseen = 0
        self.making = CompileLock()


class DynamicShapes:
    """Which sizes of a function's arguments vary.

    Args:
        fn: The function.
        declared: By name of a parameter and axis, a Dim.
    """

    def __init__(self, fn: Callable[..., Any], declared: Any) -> None:
        self._fn = fn
        self._declared = DynamicAxes(fn, declared)
        self._families: dict[Any, Specialization] = {}

    def clear(self) -> None:
        """Forget all programs."""
        self._families.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which begins without programs."""
        return {**vars(self), "_families": {}}

    # -------------------------------------------------------------- calls

    def call(self, compiled: Host, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run a call by a program for all sizes; CACHE_MISS if there is none."""
        found = self._declared.find(args, named)
        if found is None or scopes()[0] is not None:
            return CACHE_MISS
        family = self._family(found.key)
        if family.why is not None:
            return CACHE_MISS
        if not family.seen:
            result = family.making.call_if_free(self._first_call, compiled, family, args, named)
            return compiled._run_eagerly(args, named) if result is CACHE_MISS else result
        known = static_values(args, named)
        sizes = tuple(found.sizes.values())
        fitting = [m for m in family.made if m.known.items() <= known.items() and m.holds()]
        program = next((m.program for m in fitting if m.program and m.program.knows(sizes)), None)
        lacking: _UnknownResultError | _TraceFailedError | None = None
        if program is None and sizes not in family.misfits:
            try:
                given = compiled, family, fitting, found, args, named
                program = family.making.call_if_free(self._taken_up, len(family.made), *given)
                if program is CACHE_MISS:  # another thread makes one
                    return compiled._run_eagerly(args, named)
            except (_UnknownResultError, _TraceFailedError) as error:
                clear_traceback(error)
                lacking = error
            except Exception as error:
                if compiled._check and not isinstance(error, _MISMATCHES):
                    raise
                clear_traceback(error)
                self._note(family, sizes, str(error), fitting)
        if lacking is not None:
            result = compiled._run_eagerly(args, named)  # where it raises, nothing is learnt
            if isinstance(lacking, _UnknownResultError):
                self._see(family, known, result, lacking.traced, input_leaves(args, named))
            else:
                self._note(family, sizes, str(lacking), fitting)
            return result
        if program is None:
            few = list(family.misfits).index(sizes) < _MAX_PROGRAMS
            if few:
                return CACHE_MISS
            return compiled._fall_back(family.misfits[sizes], args, named)
        result = program.call_any(program_arguments(program.places, args, named))
        if result is not CACHE_MISS:
            return compiled._prefer(program, result)
        # A program that fits, and refuses, leaves an error to the function.
        return compiled._run_eagerly(args, named) if _guards_hold(program) else CACHE_MISS

    def _see(
        self, family: Specialization, known: Any, result: Any, traced: list[Any], given: list[Any]
    ) -> None:
        """Remember what a run returned of such arguments."""
        family.unseen += 1
        if family.unseen > _MAX_PROGRAMS:
            family.why = f"numbers that are fixed differed {_MAX_PROGRAMS} times"
        family.seen = [*family.seen[1 - _MAX_PROGRAMS :], (known, result, traced)]
        family.why = family.why or alias_refusal(result, given)

    def _note(
        self,
        family: Specialization,
        sizes: tuple[int, ...],
        why: str,
        fitting: Sequence[_SizedProgramEntry],
    ) -> None:
        """Note that no program for other sizes is for these."""
        family.misfits[sizes] = why
        if not fitting and len(family.misfits) >= _MAX_FAILED_SIZES:
            family.why = why

    def _first_call(
        self, compiled: Host, family: Specialization, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Run the function as if nothing varied, and remember what it returned.

        Returns:
            CACHE_MISS where another thread did so meanwhile.
        """
        if family.seen:
            return CACHE_MISS
        result, case = compiled._looked(args, named)
        if case is not None and case.was_run:
            family.why = case.refusal
            if case.result[0] is not None:
                family.seen = [(*case.result, [])]
        return result

    def _family(self, key: Any) -> Specialization:
        family = self._families.get(key)
        if family is None:
            make_room(self._families, _MAX_SPECIALIZATIONS)
            family = self._families[key] = Specialization()
        return family

    def describe_program(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, str]:
        """Return the program for the sizes of arguments, or None, and a description."""
        found = self._declared.find(args, named)
        family = None if found is None else self._families.get(found.key)
        if found is None or family is None:
            return None, ""
        if family.why is not None:
            return None, f"sizes do not vary here: {family.why}\n"
        names, sizes = ", ".join(found.sizes), tuple(found.sizes.values())
        if sizes in family.misfits:
            return None, f"no program for other {names} is for this: {family.misfits[sizes]}\n"
        for program in [made.program for made in family.made if made.program is not None]:
            if program.knows(sizes):
                return program, f"for all {names}, of which {program.count()} came so far: "
        return None, ""

    def has_program(self, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Whether there is a program for arguments like these, of whatever sizes."""
        found = self._declared.find(args, named)
        family = None if found is None else self._families.get(found.key)
        return family is not None and family.why is None and bool(family.made)

    # -------------------------------------------------------------- programs

    def _taken_up(
        self,
        looked: int,
        compiled: Host,
        family: Specialization,
        fitting: Sequence[_SizedProgramEntry],
        found: CallSizes,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """A program that knows the sizes of these arguments: one that is there, or a new one.

        Returns:
            CACHE_MISS where another thread made one behind those that were looked at.

        Raises:
            OdysseyError: there is none; it is one of ``_NO_PROGRAM``.
        """
        if len(family.made) != looked:
            return CACHE_MISS
        trial = self._tried(family, args, named)
        known = {
            p: k for p, k in static_values(args, named).items() if p not in trial.scalar_inputs
        }
        traced = variable_kinds(trial.result)
        runs = [run for run in family.seen if known.items() <= run[0].items()]
        if not runs or traced not in (variable_kinds(runs[-1][1]), runs[-1][2]):
            raise _UnknownResultError(traced)
        seen = runs[-1][1]
        bare = is_flat(trial.scalar_inputs.values(), args, named)
        spots = [found.spots[name] for name in found.sizes]
        failed: OdysseyError | None = None
        for made in fitting:
            try:
                return made.take_up(compiled, trial, seen, bare, spots)
            except _MISMATCHES as error:
                failed = failed or error
        # Others are planned at sizes that are as this one.
        nears = [dict.fromkeys(found.sizes, PROBE_SIZE), found.sizes]
        for near in nears[bool(fitting) :]:
            if len(family.made) >= _MAX_PROGRAMS:
                raise TemplateMismatchError(
                    f"{_MAX_PROGRAMS} programs were made, and something differs again"
                )
            try:
                made = _SizedProgramEntry(
                    known, self._pattern(compiled, family, found, near, trial, args, named)
                )
                family.made.append(made)
                return made.take_up(compiled, trial, seen, bare, spots)
            except _MISMATCHES as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def _tried(
        self, family: Specialization, args: tuple[Any, ...], named: dict[str, Any]
    ) -> TraceAttempt:
        trial = try_trace(self._fn, args, named, family.asked)
        if trial.error is not None:
            raise _TraceFailedError(describe_trace_error(trial.error))
        why = unsupported_argument(args, named) or trial.effects or trial.graph.eager_reason
        if why is None:
            guards = trial.guards
            why = "nothing is known of what it reads" if guards is None else guards.reason
        if why is not None:
            raise TemplateMismatchError(why)
        return trial

    def _pattern(
        self,
        compiled: Host,
        family: Specialization,
        found: CallSizes,
        near: Mapping[str, int],
        trial: TraceAttempt,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> ProgramTemplate:
        from odyssey.compiler.symbolic_shapes.sized_program import ProgramTemplate

        graph = trial.graph
        specs = [spec for _, spec in graph.inputs] + [s.spec for s in graph.states]
        specs += [spec for one in graph.instructions for spec in one.specs]
        taken = {n for spec in specs for n in spec.shape}
        failed: OdysseyError | None = None
        dims = self._declared.dims
        # What is divided by 4, say, must be a multiple of it at each size.
        common = min((size & -size for size in found.sizes.values()), default=1)
        for step in dict.fromkeys((1, min(common, _MAX_STEP))):
            try:
                sizes = choose_probe_sizes(dims, near, taken, step, near is not found.sizes)
                given = [found.stand_ins(probe, args, named) for probe in sizes]
                trials = [self._tried(family, *one) for one in given]
                return ProgramTemplate(trials, compiled._check)
            except _MISMATCHES as error:
                clear_traceback(error)
                failed = failed or error
        assert failed is not None
        raise failed


def _guards_hold(program: SizedProgram) -> bool:
    return program.guards.holds() or program.guards.refresh()
