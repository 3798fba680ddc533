"""Specializations with symbolic dimensions: the programs for all sizes of a function.

Called by ``compiled_function`` for ``dynamic=``. A program is generated from traces at three probe
sizes. Sizes that the program cannot run, such as 1, have programs of their own, as if they had not
been declared; so have calls whose sizes are out of bounds, or differ although they are declared by
one name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from odyssey.compiler.arguments import (
    input_alias_refusal,
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
from odyssey.compiler.ways.choices import PlanError
from odyssey.errors import OdysseyError
from odyssey.spec import Array
from odyssey.table.scope import scopes

if TYPE_CHECKING:
    from odyssey.compiler.symbolic_shapes.sized_program import ProgramTemplate, SizedProgram
    from odyssey.compiler.ways.plans import Plan

__all__ = ["DynamicShapes", "Host"]

# Largest number of signatures that are kept.
_MAX_SPECIALIZATIONS = 256
# Largest number of programs of one signature, and of sizes with programs of their own.
_MAX_PROGRAMS = 8
# After this many sizes that fit no program, no program for all sizes is tried any more.
_MAX_FAILED_SIZES = 3
# Probe sizes may have to be multiples of a power of two, at most this.
_MAX_STEP = 64
# Errors that mean that a size has no program; any other error is a bug.
_MISMATCHES = (OdysseyError,)


class _UnknownResultError(OdysseyError):
    """No eager run returned such kinds of leaves; ``traced`` has those that the trace returns."""

    def __init__(self, traced: list[Any]) -> None:
        super().__init__("its results may be of other types")
        self.traced = traced


class _TraceFailedError(OdysseyError):
    """A trace failed, as the run may: it is not known whether a program fits."""


class Host(Protocol):
    """The part of a compiled function that this module uses."""

    _check: bool
    _native: Array
    _threads: int

    def _pinned_plan(self) -> Plan: ...
    def _looked(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]: ...
    def _run_eagerly(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any: ...
    def _fall_back(self, reason: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any: ...
    def _prefer(self, program: Any, result: Any) -> Any: ...
    def _note_compiled(self, program: Any) -> None: ...
    def _refuse_copies(self, plan: Any, graph: Any) -> None: ...


class _SizedProgramEntry:
    """The template of a program, and the program once a size was added.

    Attributes:
        static: Static values of the arguments that it is compiled for.
    """

    def __init__(self, static: Any, template: ProgramTemplate) -> None:
        self.static = static
        self.template = template
        self.program: SizedProgram | None = None

    def holds(self) -> bool:
        """Return whether its guards hold."""
        return self.program is None or _guards_hold(self.program)

    def add_size(
        self,
        compiled: Host,
        trial: TraceAttempt,
        result: Any,
        flat: bool,
        sources: Sequence[SizeSource],
    ) -> SizedProgram:
        """Return the program after adding the sizes of a trace.

        Raises:
            OdysseyError: the program cannot run these sizes.
        """
        from odyssey.compiler.symbolic_shapes.sized_program import SizedProgram

        if self.program is not None:
            self.program.add_size(trial, result)
        else:
            own = compiled._native, compiled._threads
            self.program = SizedProgram(self.template, trial, result, flat, sources, *own)
            compiled._note_compiled(self.program)
        return self.program


class Specialization:
    """Programs and traces of one signature whose declared sizes may vary.

    Attributes:
        runs: Static values, result, and ``variable_kinds`` of the traced result of the latest
            eager runs.
        programs: Programs for all sizes.
        refusal: Reason why there is no program for all sizes; None if there is one or may be.
        failed_sizes: Sizes with programs of their own, with the reason.
        fixed_numbers: Scalar arguments that are fixed, by path, with the reason.
        recorded_runs: Number of eager runs that were needed for the kinds of results.
        lock: Lock for creating a program, or adding a size.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[Any, Any, list[Any]]] = []
        self.programs: list[_SizedProgramEntry] = []
        self.refusal: str | None = None
        self.failed_sizes: dict[tuple[int, ...], str] = {}
        self.fixed_numbers: dict[str, str] = {}
        self.recorded_runs = 0
        self.lock = CompileLock()


class DynamicShapes:
    """Symbolic dimensions of a compiled function, and its specializations.

    Args:
        fn: The function.
        declared: A Dim by name of a parameter and axis.
    """

    def __init__(self, fn: Callable[..., Any], declared: Any) -> None:
        self._fn = fn
        self._declared = DynamicAxes(fn, declared)
        self._specializations: dict[Any, Specialization] = {}

    def clear(self) -> None:
        """Drop all programs."""
        self._specializations.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which begins without programs."""
        return {**vars(self), "_specializations": {}}

    # -------------------------------------------------------------- calls

    def call(self, compiled: Host, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run a call by a program for all sizes; CACHE_MISS if there is none."""
        found = self._declared.find(args, named)
        if found is None or scopes()[0] is not None:
            return CACHE_MISS
        specialization = self._specialization(found.key)
        if specialization.refusal is not None:
            return CACHE_MISS
        if not specialization.runs:
            result = specialization.lock.call_if_free(
                self._first_call, compiled, specialization, args, named
            )
            return compiled._run_eagerly(args, named) if result is CACHE_MISS else result
        static = static_values(args, named)
        sizes = tuple(found.sizes.values())
        fitting = [
            m for m in specialization.programs if m.static.items() <= static.items() and m.holds()
        ]
        program = next(
            (m.program for m in fitting if m.program and m.program.has_sizes(sizes)), None
        )
        failure: _UnknownResultError | _TraceFailedError | None = None
        if program is None and sizes not in specialization.failed_sizes:
            try:
                count = len(specialization.programs)
                context = compiled, specialization, fitting, found, args, named
                program = specialization.lock.call_if_free(self._add_size, count, *context)
                if program is CACHE_MISS:  # another thread compiles one
                    return compiled._run_eagerly(args, named)
            except (_UnknownResultError, _TraceFailedError) as error:
                clear_traceback(error)
                failure = error
            except PlanError:
                raise
            except Exception as error:
                if compiled._check and not isinstance(error, _MISMATCHES):
                    raise
                clear_traceback(error)
                self._record_failure(specialization, sizes, str(error), fitting)
        if failure is not None:
            result = compiled._run_eagerly(args, named)  # if it raises, nothing is recorded
            if isinstance(failure, _UnknownResultError):
                inputs = input_leaves(args, named)
                self._record_run(specialization, static, result, failure.traced, inputs)
            else:
                self._record_failure(specialization, sizes, str(failure), fitting)
            return result
        if program is None:
            if list(specialization.failed_sizes).index(sizes) < _MAX_PROGRAMS:
                return CACHE_MISS
            return compiled._fall_back(specialization.failed_sizes[sizes], args, named)
        result = program.call_any(program_arguments(program.places, args, named))
        if result is not CACHE_MISS:
            return compiled._prefer(program, result)
        # If the guards hold and the program still refuses, the eager run raises the error.
        return compiled._run_eagerly(args, named) if _guards_hold(program) else CACHE_MISS

    def _record_run(
        self,
        specialization: Specialization,
        static: Any,
        result: Any,
        traced: list[Any],
        inputs: list[Any],
    ) -> None:
        """Record the result of an eager run."""
        specialization.recorded_runs += 1
        if specialization.recorded_runs > _MAX_PROGRAMS:
            specialization.refusal = f"numbers that are fixed differed {_MAX_PROGRAMS} times"
        specialization.runs = [*specialization.runs[1 - _MAX_PROGRAMS :], (static, result, traced)]
        specialization.refusal = specialization.refusal or input_alias_refusal(result, inputs)

    def _record_failure(
        self,
        specialization: Specialization,
        sizes: tuple[int, ...],
        reason: str,
        fitting: Sequence[_SizedProgramEntry],
    ) -> None:
        """Record that no program for all sizes can run these sizes."""
        specialization.failed_sizes[sizes] = reason
        if not fitting and len(specialization.failed_sizes) >= _MAX_FAILED_SIZES:
            specialization.refusal = reason

    def _first_call(
        self,
        compiled: Host,
        specialization: Specialization,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Run the function as if no size were declared, and record the result.

        Returns:
            CACHE_MISS if another thread did so meanwhile.
        """
        if specialization.runs:
            return CACHE_MISS
        result, case = compiled._looked(args, named)
        if case is not None and case.was_run:
            specialization.refusal = case.refusal
            if any(alias.is_input or alias.view for alias in case.aliases.by_leaf.values()):
                specialization.refusal = "it returns arguments, or views that depend on sizes"
            if case.result[0] is not None:
                specialization.runs = [(*case.result, [])]
        return result

    def _specialization(self, key: Any) -> Specialization:
        specialization = self._specializations.get(key)
        if specialization is None:
            make_room(self._specializations, _MAX_SPECIALIZATIONS)
            specialization = self._specializations[key] = Specialization()
        return specialization

    def describe_program(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, str]:
        """Return the program for the sizes of arguments, or None, and a description."""
        found = self._declared.find(args, named)
        specialization = None if found is None else self._specializations.get(found.key)
        if found is None or specialization is None:
            return None, ""
        if specialization.refusal is not None:
            return None, f"no program has symbolic sizes: {specialization.refusal}\n"
        names, sizes = ", ".join(found.sizes), tuple(found.sizes.values())
        if sizes in specialization.failed_sizes:
            return (
                None,
                f"no program for other {names} fits these arguments: "
                f"{specialization.failed_sizes[sizes]}\n",
            )
        for program in [one.program for one in specialization.programs if one.program is not None]:
            if program.has_sizes(sizes):
                return program, f"for all {names}, {program.count()} sizes so far: "
        return None, ""

    def has_program(self, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Return whether there is a program for such arguments, at any sizes."""
        found = self._declared.find(args, named)
        specialization = None if found is None else self._specializations.get(found.key)
        return (
            specialization is not None
            and specialization.refusal is None
            and bool(specialization.programs)
        )

    # -------------------------------------------------------------- programs

    def precompile(
        self, compiled: Host, result: Any, args: tuple[Any, ...], named: dict[str, Any]
    ) -> bool:
        """Compile a program for all sizes, and add those of the arguments; return whether it did.

        Args:
            compiled: The compiled function.
            result: A result such as an eager run returns.
            args: The positional arguments.
            named: The keyword arguments.
        """
        found = self._declared.find(args, named)
        specialization = None if found is None else self._specialization(found.key)
        if found is None or specialization is None or specialization.refusal is not None:
            return False
        static = static_values(args, named)
        if not specialization.runs:
            specialization.runs = [(static, result, [])]
        fitting = [
            m for m in specialization.programs if m.static.items() <= static.items() and m.holds()
        ]
        count = len(specialization.programs)
        context = compiled, specialization, fitting, found, args, named
        try:
            return (
                specialization.lock.call_if_free(self._add_size, count, *context) is not CACHE_MISS
            )
        except PlanError:
            raise
        except _MISMATCHES as error:
            clear_traceback(error)
            sizes = tuple(found.sizes.values())
            self._record_failure(specialization, sizes, str(error), fitting)
            return False

    def _add_size(
        self,
        count: int,
        compiled: Host,
        specialization: Specialization,
        fitting: Sequence[_SizedProgramEntry],
        found: CallSizes,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Add the sizes of these arguments to a program, a new one if none fits; return it.

        Args:
            count: Number of programs when ``fitting`` was computed.

        Returns:
            CACHE_MISS if another thread created a program meanwhile.

        Raises:
            OdysseyError: no program can run these sizes; it is one of ``_MISMATCHES``.
        """
        if len(specialization.programs) != count:
            return CACHE_MISS
        trial = self._trace(specialization, args, named)
        static = {
            p: k for p, k in static_values(args, named).items() if p not in trial.scalar_inputs
        }
        traced = variable_kinds(trial.result)
        runs = [run for run in specialization.runs if static.items() <= run[0].items()]
        if not runs or traced not in (variable_kinds(runs[-1][1]), runs[-1][2]):
            raise _UnknownResultError(traced)
        result = runs[-1][1]
        flat = is_flat(trial.scalar_inputs.values(), args, named)
        sources = [found.sources[name] for name in found.sizes]
        failed: OdysseyError | None = None
        for entry in fitting:
            try:
                return entry.add_size(compiled, trial, result, flat, sources)
            except PlanError:
                raise
            except _MISMATCHES as error:
                failed = failed or error
        # A program of this signature did not fit: use probe sizes near the sizes of this call.
        nears = [dict.fromkeys(found.sizes, PROBE_SIZE), found.sizes]
        for near in nears[bool(fitting) :]:
            if len(specialization.programs) >= _MAX_PROGRAMS:
                raise TemplateMismatchError(
                    f"{_MAX_PROGRAMS} programs were compiled, and the next trace differs again"
                )
            try:
                template = self._make_template(
                    compiled, specialization, found, near, trial, args, named
                )
                entry = _SizedProgramEntry(static, template)
                specialization.programs.append(entry)
                return entry.add_size(compiled, trial, result, flat, sources)
            except PlanError:
                raise
            except _MISMATCHES as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def _trace(
        self, specialization: Specialization, args: tuple[Any, ...], named: dict[str, Any]
    ) -> TraceAttempt:
        trial = try_trace(self._fn, args, named, specialization.fixed_numbers)
        if trial.error is not None:
            raise _TraceFailedError(describe_trace_error(trial.error))
        reason = unsupported_argument(args, named) or trial.effects or trial.graph.eager_reason
        if reason is None:
            guards = trial.guards
            reason = "the objects that it reads are unknown" if guards is None else guards.reason
        if reason is not None:
            raise TemplateMismatchError(reason)
        return trial

    def _make_template(
        self,
        compiled: Host,
        specialization: Specialization,
        found: CallSizes,
        near: Mapping[str, int],
        trial: TraceAttempt,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> ProgramTemplate:
        from odyssey.compiler.symbolic_shapes.sized_program import ProgramTemplate

        graph = trial.graph
        specs = [spec for _, spec in graph.inputs] + [s.spec for s in graph.states]
        specs += [spec for instruction in graph.instructions for spec in instruction.specs]
        used_sizes = {n for spec in specs for n in spec.shape}
        failed: OdysseyError | None = None
        dims = self._declared.dims
        # If the function divides a size by 4, for example, each probe size must be a multiple of 4.
        common = min((size & -size for size in found.sizes.values()), default=1)
        for step in dict.fromkeys((1, min(common, _MAX_STEP))):
            try:
                spread = near is not found.sizes
                probes = choose_probe_sizes(dims, near, used_sizes, step, spread)
                arguments = [found.resized_arguments(probe, args, named) for probe in probes]
                trials = [self._trace(specialization, *one) for one in arguments]
                template = ProgramTemplate(trials, compiled._check, compiled._pinned_plan())
                # What it raises is raised again by the program of these sizes alone.
                compiled._refuse_copies(template.lowered[0].plan, trials[0].graph)
                return template
            except PlanError:
                raise
            except _MISMATCHES as error:
                clear_traceback(error)
                failed = failed or error
        assert failed is not None
        raise failed


def _guards_hold(program: SizedProgram) -> bool:
    return program.guards.holds() or program.guards.refresh()
