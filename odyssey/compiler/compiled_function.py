"""Compiled functions: a cache of programs by argument signature, with the function as fallback."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial, update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from odyssey.checks import check_callable, check_choice, check_flag, check_int, hides_frame
from odyssey.compiler.arguments import (
    alias_refusal,
    cache_key,
    devices_of_program,
    fill_specs,
    input_leaves,
    is_flat,
    is_on_device,
    program_arguments,
    receiver_arguments,
    refuse_unhashable,
    replaced_argument,
    same_variable_kinds,
    static_values,
    unsupported_argument,
)
from odyssey.compiler.attribute_states import StatefulFunction, is_state_value
from odyssey.compiler.dispatch.attribute_calls import AttributeStates
from odyssey.compiler.dispatch.cache import CacheEntry, KeptTrace, make_room
from odyssey.compiler.dispatch.fast_path import (
    CACHE_MISS,
    always_miss,
    fast_path_of,
    flattener_of_call,
)
from odyssey.compiler.fallback import Backoff, FallbackReporter
from odyssey.compiler.guards.guards import with_self
from odyssey.compiler.inspection import InspectableFunction, function_name
from odyssey.compiler.machine.jit import unavailable_reason
from odyssey.compiler.machine.thread_count import check_thread_count
from odyssey.compiler.result_aliases import find_aliases
from odyssey.compiler.runtime.memory_limit import check_memory_limit
from odyssey.compiler.scoped_function import ScopedFunction
from odyssey.compiler.tracing.attempt import TraceAttempt, try_trace
from odyssey.errors import CompileError, DeviceError, OdysseyError, SettingError
from odyssey.table.kernel_selection import without_numba
from odyssey.table.row import is_profiled, profiled
from odyssey.table.scope import (
    AutocastBlock,
    Pause,
    autocast_now,
    is_plainly_paused,
    no_grad,
    run_without_scopes,
    scopes,
    without_autocast,
)
from odyssey.table.store import MEMORY, store
from odyssey.table.value import array_of
from odyssey.tree import containers, leaves

if TYPE_CHECKING:
    from odyssey.compiler.ways.plans import Plan

__all__ = ["CompiledFunction", "Statistics"]

_COPIES = ("allow", "error")
# Cache entries of a compiled function, one a signature.
_MOST_SIGNATURES = 256
# How often other attributes may become arguments, as objects are replaced; and for how many
# receivers.
_MOST_DROPS = 8
# Programs of one entry, for fixed scalars and guards that differ.
_MOST_PROGRAMS = 8
# Traces of one entry that side effects of a first run may spoil; and first calls that run without
# loading numba, since a stream of new shapes would otherwise never load it.
_MOST_ATTEMPTS = 3

# First calls in a row after which no program is looked for at each: all have other shapes.
_MOST_FIRST_CALLS = _MOST_SIGNATURES

# Placeholder of the keyword path: names, native entry, entry through Python.
_NO_KEYWORD_PATH: tuple[tuple[str, ...], Any, Any] = (), always_miss, always_miss


def _describe_scope() -> str:
    """Return why a call runs eagerly inside of the innermost scope."""
    if isinstance(without_autocast()[0], Pause):
        return "it is called inside a rule of custom_vjp"
    return "it is called inside an open tape"


class Statistics(NamedTuple):
    """Counts of calls of a compiled function.

    Attributes:
        programs: Programs that were compiled.
        native: Calls that a program ran.
        written: Calls that ran the function eagerly.
    """

    programs: int
    native: int
    written: int


class CompiledFunction(InspectableFunction):
    """A function that runs as a native program if one can do all that it does.

    The first call with arguments of new shapes and types traces the function and runs it eagerly;
    later calls run a program, if one has the same results and side effects. What no graph can hold
    is refused before the first run.
    """

    # Derived attributes, which guards ignore; see Optimizer.
    _derived_state: ClassVar[tuple[str, ...]] = (
        "_slow_path",
        "_dynamic",
        "_known",
        "_fast_path",
        "_made",
        "_backoff",
        "_fallback",
        "_first_calls",
        "_keyword_path",
        "_native",
        "_written",
        "_attributes",
        "_may_have_attributes",
        "_assigns_others",
        "_drops",
        "_variants",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        check: bool = False,
        memory_limit: int | None = None,
        threads: int | None = None,
        memory_budget: int | None = None,
        dynamic: Any = None,
        fullgraph: bool = False,
        warn: bool = True,
        plan: Plan | None = None,
        copies: str = "allow",
        tolerance: str | float = 0.0,
    ) -> None:
        update_wrapper(self, check_callable("compile", fn))
        self._check = check_flag("compile", "check", check)
        fullgraph = check_flag("compile", "fullgraph", fullgraph)
        warn = check_flag("compile", "warn", warn) or self._check
        self._copies = check_choice("compile", "copies", copies, _COPIES)
        self._fallback = FallbackReporter(fn, fullgraph, warn)
        self._backoff = Backoff()
        self._limit, self._budget = memory_limit, memory_budget
        if memory_limit is not None:
            self._limit = check_int("compile", "memory_limit", memory_limit, 0)
        if memory_budget is not None:
            self._budget = check_int("compile", "memory_budget", memory_budget, 0)
        self._threads = 0 if threads is None else check_thread_count("compile", threads)
        self._pinned = plan
        self._tolerance: str | float = tolerance
        if tolerance != 0.0 or type(tolerance) is not float:
            from odyssey.compiler.ways.choosing import check_tolerance

            self._tolerance = check_tolerance("compile", tolerance)
        self._fn = fn
        self._dynamic, self._declared = None, dynamic
        # Compiled functions for calls inside of scopes: by autocast mode, and whether they pause.
        self._variants: dict[tuple[str | None, bool], CompiledFunction] = {}
        if dynamic is not None:
            from odyssey.compiler.symbolic_shapes.specialization import DynamicShapes

            self._dynamic = DynamicShapes(fn, dynamic)
        self._known: dict[Any, CacheEntry] = {}
        # Entries of the latest program called without keywords: native dispatch, and through
        # Python.
        self._fast_path: Callable[..., Any] = always_miss
        self._slow_path: Callable[..., Any] = always_miss
        # Entries of the latest program called with keywords, behind their names.
        self._keyword_path: tuple[tuple[str, ...], Any, Any] = _NO_KEYWORD_PATH
        self._made = self._written = self._first_calls = 0
        self._native = np.zeros(1, np.int64)
        # Attributes of objects that are arguments and results; see ``attribute_states``.
        self._attributes: list[AttributeStates] = []
        self._may_have_attributes = dynamic is None and memory_limit is memory_budget is None
        self._is_of_attributes = self._assigns_others = False
        self._drops = 0

    def __repr__(self) -> str:
        return f"compile({function_name(self._fn)})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, without programs: those write the states of this one."""
        fresh: dict[str, Any] = {
            "_slow_path": always_miss,
            "_known": {},
            "_fast_path": always_miss,
            "_made": 0,
        }
        fresh |= {"_keyword_path": _NO_KEYWORD_PATH, "_native": np.zeros(1, np.int64)}
        fresh |= {"_backoff": Backoff(), "_first_calls": 0}
        return {**vars(self), **fresh, "_written": 0, "_attributes": [], "_variants": {}}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Run a program, or the function. Inside another trace, become part of it."""
        if not named:
            result = self._fast_path(*args)
            if result is not CACHE_MISS:
                return result
            # No program is compiled for an argument that is passed twice.
            if len(set(map(id, args))) == len(args):
                result = self._slow_path(args)
                if result is not CACHE_MISS:
                    self._native[0] += 1
                    return result
        else:
            names, latest, again = self._keyword_path
            if names == tuple(named):
                given = (*args, *named.values())
                result = latest(*given)
                if result is not CACHE_MISS:
                    return result
                if len(set(map(id, given))) == len(given):
                    result = again(given)
                    if result is not CACHE_MISS:
                        self._native[0] += 1
                        return result
        return self._call(args, named)

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run a call that missed the fast paths."""
        __tracebackhide__ = hides_frame
        if store() is not MEMORY:
            return self._fn(*args, **named)
        if scopes()[0] is not None and (variant := self._variant_here()) is not None:
            return run_without_scopes(variant, args, named)
        if self._backoff.skips > 0:
            self._backoff.skips -= 1
            return self._run_eagerly(args, named)
        if self._known and scopes()[0] is not None and self._limit is self._budget is None:
            return self._fall_back(_describe_scope(), args, named, backs_off=False)
        states = self._states_of(args)
        if states is not None:
            result = states.call(args, named)
            self._fast_path = states.fast_path
            if states.compiled._assigns_others:  # an object was replaced, for example
                self._drop_attributes(states)
            if result is not CACHE_MISS:
                return result
        # With a memory limit each size has a program of its own.
        sized = self._dynamic is not None and self._limit is self._budget is None
        if sized and not any(map(is_on_device, input_leaves(args, named))):
            assert self._dynamic is not None
            result = self._dynamic.call(self, args, named)
            if result is not CACHE_MISS:
                return result
        return self._call_for(args, named)

    def _call_for(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run a call by the programs for its signature."""
        __tracebackhide__ = hides_frame
        try:
            key = cache_key(args, named)
        except Exception:  # a container that contains itself, or raises: the eager run will say so
            return self._fn(*args, **named)
        case = self._known.get(key)
        if case is None:
            return self._first_call(key, args, named)
        known = static_values(args, named)
        if scopes()[0] is not None:
            return self._fall_back(_describe_scope(), args, named, backs_off=False)
        if not case.was_run:
            return self._run_refused(case, args, named)
        refused = False
        looked = list(case.programs)
        for wanted, program in looked:
            if wanted.items() <= known.items():
                result = program.call_any(program_arguments(program.places, args, named))
                if result is not CACHE_MISS:
                    return self._note_ran(case, program, result, tuple(named))
                refused = refused or program.guards.holds()
        # If a matching program refuses its data, the eager run raises the error.
        if case.refusal is None and not refused:
            result = case.compile_lock.call_if_free(
                self._compile_and_run, case, looked, args, named, known
            )
            if result is not CACHE_MISS:
                return result
        if case.refusal is not None and not refused:
            return self._fall_back(case.refusal, args, named)
        return self._run_eagerly(args, named)

    def _fall_back(
        self, reason: str, args: tuple[Any, ...], named: dict[str, Any], backs_off: bool = True
    ) -> Any:
        """Report why a call runs eagerly, and run it.

        Args:
            reason: Why there is no program, in words.
            args: The positional arguments.
            named: The keyword arguments.
            backs_off: Whether later calls may run without a look for a program.

        Raises:
            CompileError: The function was compiled with ``fullgraph=True``.
        """
        self._fallback.report(reason)
        if backs_off and not self._made and self._limit is self._budget is None:
            self._backoff.note_failure()
        return self._run_eagerly(args, named)

    def _variant_here(self) -> CompiledFunction | None:
        """Return the compiled function for calls inside ``no_grad`` and ``od.autocast``.

        It is called where no scope is entered, and enters these scopes itself. None inside of other
        scopes, such as an open tape.
        """
        autocast, paused = autocast_now(), is_plainly_paused()
        if not paused and without_autocast()[0] is not None:
            return None
        mode = None if autocast is None else autocast.mode
        if mode is None and not paused:  # nothing is entered, or a block that turns casts off
            return self
        variant = self._variants.get((mode, paused))
        if variant is None:
            function = ScopedFunction(self._fn, no_grad) if paused else self._fn
            if autocast is not None and mode is not None:
                function = ScopedFunction(function, partial(AutocastBlock, mode, autocast.cast))
            made = CompiledFunction(
                function,
                self._check,
                self._limit,
                self._threads or None,
                self._budget,
                self._declared,
                plan=self._pinned,
                copies=self._copies,
                tolerance=self._tolerance,
            )
            made._fallback, made._native = self._fallback, self._native
            variant = self._variants.setdefault((mode, paused), made)
        return variant

    # -------------------------------------------------------------- symbolic shapes

    def _looked(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, CacheEntry | None]:
        """A call as if no size varied, and what is known of its arguments then."""
        result = self._call_for(args, named)
        return result, self._known.get(cache_key(args, named))

    def _run_eagerly(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run the function eagerly, and count the call."""
        self._written += 1
        return self._fn(*args, **named)

    def _prefer(self, program: Any, result: Any, names: tuple[str, ...] = ()) -> Any:
        """Try this program first in the next call."""
        self._native[0] += 1
        self._first_calls = 0
        if program.bare and names:
            self._keyword_path = names, program.native_call, program.call_arrays
        elif program.bare:
            self._slow_path = program.call_arrays
            self._fast_path = program.native_call
        elif program.flatten is not None and names:
            self._keyword_path = names, *fast_path_of(program, program.flatten)
        elif program.variable_kinds is not None and names:
            self._keyword_path = names, always_miss, program.call_variables
        elif program.variable_kinds is not None:
            self._fast_path, self._slow_path = always_miss, program.call_variables
        elif program.flatten is not None:
            self._fast_path, self._slow_path = fast_path_of(program, program.flatten)
        return result

    def _note_compiled(self, program: Any, executable: Any = None) -> None:
        """Count a program; with profiling on, time its runs, and kernels that have clocks."""
        if is_profiled():
            from odyssey.compiler.runtime.profile import profile_kernels_of

            name = f"compiled {function_name(self._fn)}"
            run = (
                program.run
                if executable is None or executable.counters is None
                else profile_kernels_of(name, program.run, executable)
            )
            program.run, program.native = profiled(name, run, CACHE_MISS), None
        self._made += 1

    def _note_ran(self, case: CacheEntry, program: Any, result: Any, names: tuple[str, ...]) -> Any:
        """Move a program to the front of its cache entry, and try it first in the next call."""
        if case.programs[0][1] is not program:
            case.programs = sorted(case.programs, key=lambda pair: pair[1] is not program)
        return self._prefer(program, result, names)

    # -------------------------------------------------------------- first call and compilation

    def _first_call(self, key: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Trace; raise what no graph can hold; run eagerly.

        Any other error of the trace is dropped: the eager run raises it with values in its message,
        or does what only tracing cannot, which is no error.
        """
        __tracebackhide__ = hides_frame
        refuse_unhashable(args, named)
        self._first_calls += 1
        if self._first_calls > _MOST_FIRST_CALLS and self._limit is self._budget is None:
            self._fallback.report(
                f"its {_MOST_FIRST_CALLS} latest calls each had arguments of a new shape"
            )
            self._backoff.note_failure()
        case = CacheEntry()
        trial = try_trace(self._fn, args, named, case.fixed_numbers, repeats_writes=True)
        result = self._try_attributes(trial, args, named)
        if result is not CACHE_MISS:
            return result
        if trial.error is not None:
            case.refusal = trial.describe_error()
            if self._fallback.fullgraph:
                self._fallback.report(case.refusal, trial.error)
        else:
            if self._limit is not None or self._budget is not None:
                self._check_memory(trial, args, named)
            self._check_plan(trial)
            self._refuse_copies_of_trace(trial)
            case = self._insert_entry(key, case)
            self._keep_trace(case, trial, args, named)
            if case.refusal is not None and self._fallback.fullgraph:
                self._fallback.report(case.refusal)
        result = self._run_eagerly_and_record(case, args, named)
        if trial.error is not None:
            self._insert_entry(key, case)
        return result

    def _run_eagerly_and_record(
        self,
        case: CacheEntry,
        args: tuple[Any, ...],
        named: dict[str, Any],
        trial: TraceAttempt | None = None,
    ) -> Any:
        """Run the function, and record the kinds of what it returns and writes.

        Args:
            case: The entry.
            args: The positional arguments.
            named: The keyword arguments.
            trial: The trace that a program is to be made of, if the entry has none.
        """
        __tracebackhide__ = hides_frame
        trial = case.kept.trial if case.kept else trial
        alone = scopes()[0] is None
        self._written += 1
        brief = alone and case.refusal is None and len(self._known) <= _MOST_ATTEMPTS
        result = without_numba(self._fn, *args, **named) if brief else self._fn(*args, **named)
        while case.unstarted:  # their steps may have been skipped, by where=
            case.unstarted.pop()._start()
        if alone:
            case.was_run = True
            if case.refusal is None:
                seen = result if trial is None else trial.seen_result(result)
                case.aliases = find_aliases(leaves(seen), input_leaves(args, named))
                case.refusal = alias_refusal(
                    seen, None if trial is None else trial.graph, case.aliases
                )
                case.result = static_values(args, named), seen
                case.written = [] if trial is None else trial.written_places()
            if case.refusal is not None:  # otherwise kept until a program is compiled from it
                case.result = None, None
        return result

    def _keep_trace(
        self, case: CacheEntry, trial: TraceAttempt, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Keep a trace with its guards for a program, or note why none can be compiled."""
        case.attempts += 1
        why = (
            unavailable_reason()
            or unsupported_argument(args, named)
            or trial.effects
            or trial.graph.eager_reason
        )
        guards = trial.guards
        devices = devices_of_program(trial.graph, args, named)
        if why is None and len(devices) > 1:
            why = f"its arrays lie on {devices[0]} and {devices[1]}"
        if why is None:
            why = "the objects that it reads cannot be guarded" if guards is None else guards.reason
        if why is None:
            assert guards is not None
            known = static_values(args, named)
            static = {p: known[p] for p in known if p not in trial.scalar_inputs}
            case.kept = KeptTrace(static, trial, guards)
        # A first run may create what a later trace only reads.
        elif why == trial.graph.eager_reason and case.attempts < _MOST_ATTEMPTS:
            case.first_guards = guards
            case.unstarted = trial.graph.started_optimizers
        else:
            case.refusal = why

    def _check_memory(
        self, trial: TraceAttempt, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Raise DeviceMemoryError if the program of a trace would hold more than its limit."""
        devices = devices_of_program(trial.graph, args, named)
        requirements = None
        if devices:
            from odyssey.compiler.device_runtime.execution import memory_requirements

            requirements = partial(memory_requirements, devices[0])
        own = self._limit, self._budget, trial, self._pinned_plan()
        check_memory_limit(*own, requirements)

    def _check_plan(self, trial: TraceAttempt) -> None:
        """Raise PlanError if the pinned plan does not fit a trace, before anything runs."""
        if self._pinned is not None and trial.error is None and trial.graph.eager_reason is None:
            from odyssey.compiler.pipeline import works_of
            from odyssey.compiler.state_layout import BindingError

            try:
                works_of(trial.graph, self._pinned, self._budget)
            except BindingError:  # no program: a state cannot be bound
                return

    def _try_attributes(
        self, trial: TraceAttempt, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Run with the attributes that a trace assigns as arguments and results, if it does."""
        if trial.assigned is None:
            return CACHE_MISS
        if self._is_of_attributes and not self._assigns_others:
            self._assigns_others = True
            return self._run_eagerly(args, named)
        if self._use_attributes(trial.assigned, args, named, trial.graph.eager_reason):
            return self._call(args, named)
        return CACHE_MISS

    def _states_of(self, args: tuple[Any, ...]) -> AttributeStates | None:
        """Return the attributes that are arguments for the receiver of a call."""
        return next((states for states in self._attributes if states.fits(args)), None)

    def _drop_attributes(self, states: AttributeStates) -> None:
        """Forget which attributes are arguments; the next call finds others."""
        if states not in self._attributes:  # another thread dropped them
            return
        self._attributes = [one for one in self._attributes if one is not states]
        self._fast_path = always_miss
        self._made += states.compiled._made
        self._written += states.compiled._written
        self._drops += 1
        self._may_have_attributes = self._drops < _MOST_DROPS

    def _use_attributes(
        self,
        places: list[tuple[Any, str]] | None,
        args: tuple[Any, ...],
        named: dict[str, Any],
        known_reason: str | None = None,
    ) -> bool:
        """Make attributes of objects arguments and results, if the function can be traced so.

        Args:
            places: Attributes that hold arrays, which change from call to call.
            args: The positional arguments.
            named: The keyword arguments.
            known_reason: Why a graph would not do anyway, until the function has run once.
        """
        if not places or not self._may_have_attributes or scopes()[0] is not None:
            return False
        if len(self._attributes) >= _MOST_DROPS or self._states_of(args) is not None:
            return False
        function = StatefulFunction(self._fn, places)
        values = function.values()
        if values is None or not all(map(is_state_value, values)):
            return False
        try:
            trial = try_trace(function, (*args, *values), named, {}, repeats_writes=True)
        except OdysseyError:  # it needs the values
            self._may_have_attributes = False
            return False
        reason = trial.graph.eager_reason
        compares = trial.guards is not None and trial.guards.compares_identity
        if trial.error or trial.effects or compares or reason not in (None, known_reason):
            self._may_have_attributes = False
            return False
        compiled = CompiledFunction(
            function,
            self._check,
            threads=self._threads or None,
            plan=self._pinned,
            copies=self._copies,
            tolerance=self._tolerance,
        )
        compiled._fallback, compiled._native = self._fallback, self._native
        compiled._may_have_attributes, compiled._is_of_attributes = False, True
        states = AttributeStates(function, compiled, receiver_arguments(args))
        self._attributes = [*self._attributes, states]
        self._fast_path, self._slow_path = states.fast_path, always_miss
        return True

    def _insert_entry(self, key: Any, case: CacheEntry) -> CacheEntry:
        """Insert a cache entry; evict the oldest beyond the limit."""
        if key not in self._known:
            make_room(self._known, _MOST_SIGNATURES)
        return self._known.setdefault(key, case)  # another thread may have inserted one

    def _compile_and_run(
        self,
        case: CacheEntry,
        looked: list[Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
        known: dict[str, Any],
    ) -> Any:
        """Compile and run a program, or note why none can be compiled and run the function.

        Returns:
            CACHE_MISS if another thread compiled a program meanwhile.
        """
        if len(case.programs) != len(looked):
            return CACHE_MISS
        if len(case.programs) >= _MOST_PROGRAMS:
            case.refusal = _describe_changes(looked, known)
            return self._run_refused(case, args, named)
        kept, case.kept = case.kept, None
        places = _changed_attributes(case, kept, looked)
        if self._use_attributes(places, args, named):
            return self._call(args, named)
        fits = kept is not None and kept.static.items() <= known.items() and kept.guards.holds()
        if not fits:
            result = self._trace_again(case, args, named)
            if result is not CACHE_MISS:
                return result
            kept, case.kept = case.kept, None
        if kept is None:
            return self._run_refused(case, args, named)
        if not fits:
            self._refuse_copies_of_trace(kept.trial)
        recorded = case.result  # another thread may record a run meanwhile
        if not _is_result_known(recorded, case.written, kept, retraced=not fits):
            result = self._run_eagerly_and_record(case, args, named, kept.trial)
            if case.refusal is None:
                self._compile(case, kept, case.result[1], args, named)
            return result
        program = self._compile(case, kept, recorded[1], args, named)
        if program is not None:
            result = program.call_any(program_arguments(program.places, args, named))
            if result is not CACHE_MISS:
                return self._note_ran(case, program, result, tuple(named))
        return self._run_refused(case, args, named)

    def _trace_again(self, case: CacheEntry, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Trace for a program, and keep the trace; or run the function, if it cannot be traced.

        Returns:
            CACHE_MISS if nothing was run.
        """
        trial = try_trace(self._fn, args, named, case.fixed_numbers, repeats_writes=True)
        if trial.error is not None:
            why = trial.describe_error()
            self._fallback.report(why)
            # It may raise the same error, and nothing is noted.
            result = self._run_eagerly_and_record(case, args, named)
            case.refusal = why
            return result
        result = self._try_attributes(trial, args, named)
        if result is CACHE_MISS:
            self._check_plan(trial)
            self._keep_trace(case, trial, args, named)
        return result

    def _run_refused(self, case: CacheEntry, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Report the refusal of an entry, if there is one yet, and run the function."""
        if case.refusal is not None:
            self._fallback.report(case.refusal)
        return self._run_eagerly_and_record(case, args, named)

    def _compile(
        self,
        case: CacheEntry,
        kept: KeptTrace,
        result: Any,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Compile a program from a trace; None, with the reason in the entry, if it cannot be."""
        from odyssey.compiler.runtime.compiled_call import NotCompilableError
        from odyssey.compiler.ways.choices import PlanError

        case.result = None, None
        try:
            program = self._make_program(case, kept, result, args, named)
        except PlanError:  # of the user, and not of the compiler
            raise
        except NotCompilableError as error:
            case.refusal = str(error)
            return None
        except Exception as error:
            if self._check:
                raise
            case.refusal = _describe_failure(error)
            return None
        self._refuse_copies(program.executable.plan, kept.trial.graph)
        self._backoff.reset()
        self._note_compiled(program, program.executable)
        case.programs.insert(0, (kept.static, program))
        case.attempts = 0
        return program

    def _make_program(
        self,
        case: CacheEntry,
        kept: KeptTrace,
        result: Any,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Return the program of a trace, with the fast paths that the arguments allow."""
        from odyssey.compiler.explain import warn_of_widening
        from odyssey.compiler.runtime.compiled_call import CompiledCall
        from odyssey.compiler.schedule.verify import verify

        _, trial, guards = kept
        ahead, scalars = receiver_arguments(args), trial.scalar_inputs.values()
        bare = is_flat(scalars, (*args, *named.values()), {}, len(ahead))
        flatten = None if bare else flattener_of_call(scalars, args, named)
        ways, reasons = self._chosen_plan(trial.graph)
        make: Any = CompiledCall
        devices = devices_of_program(trial.graph, args, named)
        if devices:
            from odyssey.compiler.device_runtime.device_call import DeviceCall

            make = partial(DeviceCall, devices[0])
        program = make(
            *(trial, guards, result, bare or flatten is not None),
            *(self._native, self._threads, ahead, self._budget),
            aliases=case.aliases,
            ways=ways,
            tolerance=self._measured_tolerance(),
        )
        program.reasons, program.bare, program.flatten = reasons, bare, flatten
        if devices:
            program.note_variables((*args, *named.values()))
        if self._check:
            verify(program.executable.plan)
            warn_of_widening(trial.graph)
        return program

    def _refuse_copies_of_trace(self, trial: TraceAttempt) -> None:
        """Raise CompileError if the program of a trace would copy states, before anything runs."""
        if self._copies == "error" and trial.graph.eager_reason is None:
            from odyssey.compiler.runtime.compiled_call import plan_of_trace

            made = plan_of_trace(trial, self._budget, self._pinned_plan())
            self._refuse_copies(made, trial.graph)

    def _refuse_copies(self, plan: Any, graph: Any) -> None:
        """Raise CompileError if a plan copies states, and ``copies="error"`` is set."""
        if plan is not None and self._copies == "error":
            from odyssey.compiler.schedule.state_copies import refuse_copies

            refuse_copies(function_name(self._fn), plan, graph)

    def _measured_tolerance(self) -> str | float | None:
        """Return the tolerance of measured ways; None if there is nothing measured to choose by."""
        from odyssey.compiler.ways.store import is_present

        # Another plan may hold more memory than the one whose memory was checked.
        is_limited = self._limit is not None or self._budget is not None
        return self._tolerance if self._pinned is None and not is_limited and is_present() else None

    def _use_measurements(self, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Compile the programs anew, by what is measured now; that of these arguments at once."""
        self.clear_cache()
        with suppress(CompileError):  # then the second call compiles it
            self.precompile(*args, **named)

    def precompile(self, /, *args: Any, **named: Any) -> None:
        """Compile the program for such arguments, without running the function.

        The function is traced. Optimizers that it steps get their first state, as by a first step;
        nothing else changes, and what it writes to objects of Python is undone. The next call with
        arguments of these shapes and types runs the program.

        Args:
            args: Arguments as in a call; specs, as ``od.Spec((32, 784), np.float32)``, may stand
                for arrays of the CPU. A program of another device is compiled for arrays or
                Variables that lie there.
            named: Keyword arguments as in a call.

        Raises:
            CompileError: no program can be compiled, or it copies a captured Variable, and
                ``copies="error"`` is set; the message says why.

        >>> import numpy as np
        >>> import odyssey as od
        >>> total = od.compile(lambda x: (x * 2.0).sum())
        >>> total.precompile(od.Spec((3,), np.float64))
        >>> total(np.ones(3)), total.statistics().written
        (np.float64(6.0), 0)
        """
        args, named = fill_specs((args, named))
        refuse_unhashable(args, named)
        if scopes()[0] is not None and (variant := self._variant_here()) is not None:
            run_without_scopes(variant.precompile, args, named)
            return
        states = self._states_of(args)
        if states is not None:
            return states.precompile(args, named)
        if scopes()[0] is not None:
            raise self._fallback.error(_describe_scope())
        try:
            case = self._insert_entry(cache_key(args, named), CacheEntry())
        except Exception as error:  # of an untrusted container, or of one that holds itself
            raise self._fallback.error(f"its arguments cannot be compared, {error}") from error
        known = static_values(args, named)
        for wanted, program in case.programs:
            if wanted.items() <= known.items() and program.guards.holds():
                return
        trial = self._trace_ahead(case, args, named)
        if trial is None:
            return self.precompile(*args, **named)
        if self._limit is not None or self._budget is not None:
            self._check_memory(trial, args, named)
        try:
            self._check_plan(trial)
        except SettingError:
            self._known.pop(cache_key(args, named), None)  # a call is refused as well
            raise
        self._keep_trace(case, trial, args, named)
        kept, case.kept = case.kept, None
        if kept is None:
            raise self._fallback.error(case.refusal or trial.graph.eager_reason or "it cannot")
        self._compile_ahead(case, kept, args, named)

    def _trace_ahead(
        self, case: CacheEntry, args: tuple[Any, ...], named: dict[str, Any]
    ) -> TraceAttempt | None:
        """Trace for ``precompile``; None if attributes became arguments: it is to begin anew.

        Raises:
            CompileError: the function cannot be traced.
        """
        from odyssey.compiler.precompile import start_optimizers

        trace = partial(try_trace, self._fn, args, named, repeats_writes=True, notes_numpy=True)
        trial = trace(case.fixed_numbers)
        if self._use_attributes(trial.assigned, args, named, trial.graph.eager_reason):
            return None
        if trial.error is None and trial.graph.eager_reason and start_optimizers(trial):
            trial = trace(case.fixed_numbers)
        if trial.error is not None:
            raise self._fallback.error(trial.describe_error()) from trial.error
        return trial

    def _compile_ahead(
        self, case: CacheEntry, kept: KeptTrace, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Compile the program of a trace, which shows the kinds of results without an eager run.

        Raises:
            CompileError: it cannot be compiled.
        """
        from odyssey.compiler.precompile import expected_result

        trial, inputs = kept.trial, input_leaves(args, named)
        devices = devices_of_program(trial.graph, args, named)
        if devices and any(type(array_of(one)) is np.ndarray for one in inputs):
            raise self._fallback.error(
                f"an argument, or the array of a Spec, lies on the CPU, and others of its arrays "
                f"on {devices[0]}"
            )
        result = expected_result(trial, inputs, devices)
        case.written = trial.written_places()
        case.aliases = find_aliases(leaves(result), inputs)
        case.refusal = alias_refusal(result, trial.graph, case.aliases)
        if case.refusal is not None:
            raise self._fallback.error(case.refusal)
        sized = self._dynamic if self._limit is self._budget is None else None
        if sized is not None and sized.precompile(self, result, args, named):
            return
        case.was_run = True
        if self._compile(case, kept, result, args, named) is None:
            raise self._fallback.error(case.refusal or "it cannot")

    # -------------------------------------------------------------- inspection

    def statistics(self) -> Statistics:
        """Return how many programs were compiled, and how calls were run."""
        made, written = self._made, self._written
        for states in self._attributes:
            made += states.compiled._made
            written += states.compiled._written
        for variant in list(self._variants.values()):
            inner = variant.statistics()
            made, written = made + inner.programs, written + inner.written
        return Statistics(made, int(self._native[0]), written)

    def clear_cache(self) -> None:
        """Clear all programs and cache entries."""
        self._known.clear()
        self._backoff.reset()
        self._first_calls = 0
        self._attributes = []
        self._variants = {}
        if self._dynamic is not None:
            self._dynamic.clear()
        self._fast_path = self._slow_path = always_miss
        self._keyword_path = _NO_KEYWORD_PATH


def _describe_changes(looked: list[Any], known: dict[str, Any]) -> str:
    """Return why no more programs are compiled for a signature: what changes at each call.

    Args:
        looked: The programs, none of which fits, each with its static values.
        known: The static values of the call.
    """
    reason = f"{_MOST_PROGRAMS} programs were compiled, and a guard fails again"
    replaced = replaced_argument([wanted for wanted, _ in looked], known)
    if replaced is not None:
        return f"{reason}: {replaced} is another object at each call"
    changed = next(filter(None, [program.guards.describe_change() for _, program in looked]), None)
    if changed is not None:
        return f"{reason}: {with_self(changed.partition(':')[0])} changed"
    return reason


def _changed_attributes(
    case: CacheEntry, kept: KeptTrace | None, looked: list[Any]
) -> list[tuple[Any, str]] | None:
    """Return the attributes that alone keep the trace, or a program, of an entry from fitting.

    The guards of a trace ahead of the first run are asked last, and only once.
    """
    latest = [kept.guards] if kept is not None else [program.guards for _, program in looked]
    asked = [guards.changed_attributes() for guards in latest]
    if case.first_guards is not None:  # a first run changed other things
        asked.append(case.first_guards.changed_attributes(alone=False))
        case.first_guards = None
    return next(filter(None, asked), None)


def _is_result_known(
    recorded: tuple[Any, Any], written: list[Any], kept: KeptTrace, retraced: bool
) -> bool:
    """Return whether an eager run shows the kinds of results of a trace.

    They may depend on all that the trace is specialized to.

    Args:
        recorded: The static values of the run, and what it returned.
        written: What it wrote to objects of Python.
        kept: The trace.
        retraced: Whether the trace was made after the run.
    """
    static, result = recorded
    if static is None or not kept.static.items() <= static.items():
        return False
    if written != kept.trial.written_places():
        return False
    # A container that the function captures may be another one since the eager run.
    held = [container for container, _ in containers(kept.trial.result)] if retraced else []
    if held and kept.guards.are_of_any(held):
        return False
    return same_variable_kinds(kept.trial.full_result, result)


def _describe_failure(error: Exception) -> str:
    """Return why no program was made, in words."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory for its program: {error}"
    if isinstance(error, DeviceError):
        return f"the device refuses its program: {error}"
    return f"the compiler fails, {type(error).__name__}: {error}"
