"""Compiled call: a program in the place of a function, with all side effects of the function.

Called by ``compiled_function`` for the specializations in its cache; ``sized_program`` derives from
it. A program computes and writes the states. A compiled call also delivers gradients, increments
the versions of written leaves, and returns Variables or arrays as the function would. Whatever
cannot be undone is committed in one C call, so an interrupt finds all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import starmap
from operator import call, is_, itemgetter, setitem
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy import empty, ndarray

from odyssey.compiler.dispatch.fast_path import CACHE_MISS, always_miss
from odyssey.compiler.guards.guards import GuardSet
from odyssey.compiler.machine.state_locks import PROGRAM_LOCKS
from odyssey.compiler.native_dispatch.entry import GUARD_FAILED, RAN
from odyssey.compiler.native_dispatch.object_layout import object_layout
from odyssey.compiler.pipeline import LoweredProgram, output_specs, works_of
from odyssey.compiler.result_aliases import ResultAliases
from odyssey.compiler.runtime.buffer_leases import ensure_exclusive
from odyssey.compiler.runtime.dispatch_tables import native_dispatch_of
from odyssey.compiler.runtime.eligibility import refuse_captured_aliases, refuse_states_on_tapes
from odyssey.compiler.runtime.executable import BindingError, Executable, plan_of_graph
from odyssey.compiler.runtime.host_calls import all_outputs
from odyssey.compiler.runtime.results import NotCompilableError, ResultBuilder
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.tracing.attempt import TraceAttempt
from odyssey.compiler.ways.alternatives import Choice
from odyssey.compiler.ways.plans import NO_PLAN
from odyssey.compiler.ways.plans import Plan as WaysPlan
from odyssey.compiler.ways.works import Work
from odyssey.devices.arrays import ARRAYS
from odyssey.devices.commit import Plan as CommitPlan
from odyssey.devices.commit import run_all
from odyssey.devices.write_guard import WAIT, is_inside_program, run_with_locks, wait_for_writers
from odyssey.graph.graph import Graph, Ref, Splat, State
from odyssey.optim.step_runner import StepRunner
from odyssey.sparse_rows import assemble_rows
from odyssey.spec import Array, Spec
from odyssey.table.row import is_profiled
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store
from odyssey.table.value import (
    BEING_WRITTEN,
    Info,
    Value,
    array_of,
    is_trainable,
    next_ticket,
    next_version,
)
from odyssey.tree import leaves
from odyssey.variable import Variable

if TYPE_CHECKING:
    from odyssey.compiler.runtime.dry_run import DryRun
    from odyssey.compiler.runtime.profile import Profile

__all__ = [
    "CACHE_MISS",
    "CompiledCall",
    "NotCompilableError",
    "ShapeSpecialization",
    "plan_of_trace",
    "specialize_to_shape",
]


class ShapeSpecialization(NamedTuple):
    """Everything that is specialized to input shapes.

    Attributes:
        inputs: Input specs.
        outs: Allocates the output buffers.
        results: Rebuilds the function's result from the buffers.
    """

    inputs: list[Spec]
    outs: Callable[[], list[Any]]
    results: ResultBuilder


class CompiledCall:
    """Program with its guards, and the side effects of a call.

    Args:
        trial: Trace of the function.
        guards: Guards on what the trace read of Python.
        result: Result of an eager call with such arguments.
        bare: Whether all arguments are arrays, or scalars that are inputs.
        calls: Array of one word that counts native calls.
        threads: Number of threads; 0 for the process-wide setting.
        receivers: Leading arguments that must be identical in each call, such as ``self``.
        budget: Bytes that the plan aims to stay within.
        text: Lowered program, if the graph was lowered before.
        aliases: Aliases in ``result``; None if they are known only for another size.
        ways: Ways of works that are not computed as guessed.
        tolerance: Tolerance of the ways that measurements choose; None to choose none.

    Attributes:
        native: Native dispatch of a whole call; None if a call needs Python.

    Raises:
        NotCompilableError: no program can do what the function does.
    """

    # Why works have other ways than the guess, for ``explain``.
    reasons: Mapping[Work, str] = MappingProxyType({})
    # Flattener of arguments that are containers; see ``dispatch.fast_path``. The entry made of it
    # refers to the program, which must not hold it: a cycle would wait for the garbage collector.
    flatten: Callable[[tuple[Any, ...]], Any] | None = None
    # Kinds of arguments that are Variables, for a fast path of its own.
    variable_kinds: Sequence[Any] | None = None

    def __init__(
        self,
        trial: TraceAttempt,
        guards: GuardSet,
        result: Any,
        bare: bool,
        calls: Array,
        threads: int = 0,
        receivers: tuple[Any, ...] = (),
        budget: int | None = None,
        text: LoweredProgram | None = None,
        aliases: ResultAliases | None = None,
        ways: WaysPlan = NO_PLAN,
        tolerance: Any = None,
    ) -> None:
        graph, states = trial.graph, trial.graph.states
        self.guards = guards
        self.seconds = {"trace": trial.seconds}
        refuse_states_on_tapes(states)
        for state in states:  # before the program is planned for the layout of their arrays
            if state.field == "data":
                ensure_exclusive(state)
        refuse_captured_aliases(states, guards.guarded_arrays())
        if text is None and aliases is not None:
            _drop_known_outputs(graph, leaves(trial.full_result), leaves(result), aliases)
        try:
            clocks = is_profiled() and text is None  # a program for all sizes is timed as a whole
            settings = {"threads": threads, "budget": budget, "ways": ways, "text": text}
            settings |= {"clocks": clocks, "tolerance": tolerance}
            self.executable = self._make_executable(graph, settings)
        except BindingError as error:
            raise NotCompilableError(str(error)) from error
        self.bare = bare
        self._specialization = specialize_to_shape(trial, self.executable, result, aliases)
        self._hyperparameters: list[Any] = [
            (getattr(make, "__self__", None), variable, make)
            for variable, make in graph.hyperparameters
        ]
        # Read at the first run: settings may have been assigned since the trace.
        self._settings: list[Any] = [None for _ in self._hyperparameters]
        self._accumulated = [s.variable for s in states if s.field == "grad" and s.id >= 0]
        self._delivered = [s for s in states if s.field != "data" and s.update is not None]
        written = [s.variable for s in states if s.field == "data" and s.update is not None]
        self._written = [v for v in written if v._info is not None]
        self._trained = [v for v in self._written if is_trainable(v)]
        self._has_host_calls = self.executable.step_count > 1
        self._commits = bool(self._delivered or graph.cleared or written)
        self._has_middle_steps = self.executable.step_count > 2
        self._quiet = StepRunner().quiet
        self._calls = bool(self.executable.calls)
        own = [*guards.variables, *[state.variable for state in states]]
        self._captured_ids = set(map(id, own))
        self._deferred = graph.deferred_steps
        plain = bare and not (self._accumulated or self._calls or self._deferred)
        plain = plain and not any(state.field == "rows" for state in self._delivered)
        given = self.executable, self._specialization.results, guards, CACHE_MISS, calls
        self.native = (
            native_dispatch_of(*given, self._hyperparameters, self._settings)
            if plain and self.executable.has_native_entry
            else None
        )
        self._rebind()
        self._array_count = len(self.executable.inputs) - len(self._accumulated)
        # Scalar inputs follow the arrays.
        self.numbers = self.executable.numbers
        self.free, self.places = tuple(trial.scalar_inputs), tuple(trial.scalar_inputs.values())
        self._argument_count = self._array_count + len(self.places)
        self._receivers = receivers
        numbers = [place - len(receivers) for place in self.places]
        places = [k for k in range(self._argument_count) if k not in numbers] + numbers
        self._order = None if places == sorted(places) else itemgetter(*places)
        # Lock of the program's own memory, if other threads may run meanwhile.
        # Without native entry points Python fills the table of addresses, which takes the lock too.
        releases = self._has_host_calls or self.executable.releases_gil
        needs_lock = releases or bool(self.executable.locks) or object_layout() is None
        self._lock: RLock | None = PROGRAM_LOCKS.new() if needs_lock else None

    def _make_executable(self, graph: Graph, settings: dict[str, Any]) -> Executable:
        """Compile the program; a subclass for another device makes another."""
        return Executable(graph, **settings)

    # -------------------------------------------------------------- running

    def run(self, arrays: Sequence[Any], given: Sequence[Any] | None = None) -> Any:
        """Run on arrays, then scalars; CACHE_MISS if a guard failed and nothing was executed.

        Args:
            arrays: Arrays, then scalars.
            given: The objects that the arrays belong to, if they are not the arrays themselves.
        """
        if len(arrays) != self._argument_count or store() is not MEMORY or scopes()[0] is not None:
            return CACHE_MISS
        if self.executable.contract_broken:
            return CACHE_MISS
        if self._lock is None:  # one native call, during which no other thread runs
            result = self._check_guards_and_run(arrays, given)
        else:
            # The collector or a signal handler may call the very function that it interrupts.
            inside = self._lock._is_owned()  # type: ignore[attr-defined]
            if inside or (self.executable.locks and is_inside_program()):
                return CACHE_MISS
            while (result := self._run_locked(self._lock, arrays, given)) is WAIT:
                wait_for_writers()
        if self.native is not None and result is not CACHE_MISS:
            self.native.refresh()
        return result

    def _run_locked(self, lock: RLock, *call: Any) -> Any:
        """Run with the states' locks; ``WAIT`` if another thread is writing to leaves."""
        with lock:
            return run_with_locks(self.executable.locks, partial(self._check_guards_and_run, *call))

    def _check_guards_and_run(
        self,
        arrays: Sequence[Any],
        given: Sequence[Any] | None,
        shape: ShapeSpecialization | None = None,
    ) -> Any:
        """Check the guards, complete the inputs, then run; CACHE_MISS if one of these fails."""
        guards = self.guards
        if not self._quiet() or not (guards.holds() or guards.refresh()):
            return CACHE_MISS
        numbers: Sequence[Any] = ()
        if self.places:
            found = self.numbers.with_computed(arrays[self._array_count :])
            words = None if found is None else self.numbers.for_entry_point(found)
            if words is None:
                return CACHE_MISS
            arrays, numbers = arrays[: self._array_count], words
        if self._hyperparameters:
            self._refresh_hyperparameters()
        given = given or arrays
        if self._accumulated:
            arrays = [*arrays, *map(_current_gradient, self._accumulated)]
            if any(array is None for array in arrays):
                return CACHE_MISS
        deferred: CommitPlan = []
        try:
            for schedule in self._deferred:
                deferred += schedule.step_calls()
        except Exception:  # an eager call will raise it in its own words
            return CACHE_MISS
        return self._run(arrays, numbers, given, shape or self._specialization, deferred)

    @property
    def call_arrays(self) -> Callable[[Sequence[Any]], Any]:
        """Return ``run`` for arguments in the order of the call."""
        run: Callable[[Sequence[Any]], Any] = self.run
        if self._order is not None:
            plain, order, total = run, self._order, self._argument_count
            run = lambda args: plain(order(args)) if len(args) == total else CACHE_MISS  # noqa: E731
        receivers, count = self._receivers, len(self._receivers)
        if not receivers:
            return run
        return lambda args: run(args[count:]) if _starts_with(args, receivers) else CACHE_MISS

    @property
    def native_call(self) -> Callable[..., Any]:
        """Return the native dispatch for arguments in the order of the call."""
        if self.native is None:
            return always_miss
        if not self._receivers:
            return self._reorder_arguments(self.native.call)
        (one, *others), call = self._receivers, self._reorder_arguments(self.native.call)
        if others:
            receivers, count = self._receivers, len(self._receivers)
            return lambda *args: (
                call(*args[count:]) if _starts_with(args, receivers) else CACHE_MISS
            )
        return lambda *args: call(*args[1:]) if args and args[0] is one else CACHE_MISS

    def _reorder_arguments(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a call so that arrays come first, and scalars behind them."""
        order, completed = self._order, self.numbers.with_computed
        if order is None and not self.numbers.computes:
            return call
        count, total = self._array_count, self._argument_count

        def reordered(*args: Any) -> Any:
            if len(args) != total:
                return CACHE_MISS
            given = args if order is None else order(args)
            numbers = completed(given[count:])
            return CACHE_MISS if numbers is None else call(*given[:count], *numbers)

        return reordered

    def _refresh_hyperparameters(self) -> None:
        """Read learning rates and other settings again if they were assigned."""
        for k, (group, variable, make) in enumerate(self._hyperparameters):
            settings = group._settings
            if settings is not self._settings[k]:
                variable._array[...] = make()._array
                self._settings[k] = settings

    def call_any(self, given: Sequence[Any]) -> Any:
        """Run on Variables, scalars and any arrays; CACHE_MISS if nothing was executed."""
        if any(id(one) in self._captured_ids for one in given):
            return CACHE_MISS  # an argument is a captured Variable: one object to the function
        found = [array_of(one) for one in given[: self._array_count]]
        found = [np.asarray(one) if isinstance(one, np.generic) else one for one in found]
        try:
            shape = self.specialization_for(found)
            arrays = self.executable.canonical_args(found, shape.inputs)
            if shape.results.keeps_layout and not all(map(is_, arrays, found)):
                return CACHE_MISS  # of another layout the function may return a copy
            return self.run([*arrays, *given[self._array_count :]], given)
        except BindingError:
            return CACHE_MISS

    def profile(self, given: Sequence[Any], runs: int) -> Profile:
        """Time the kernels on such arguments, without side effects; see ``runtime.profile``."""
        from odyssey.compiler.runtime.profile import profile_graph  # its imports take 3 ms

        executable = self.executable
        own = executable.threads, executable.budget, executable.ways
        arrays, numbers = self._dry_run_arguments(given)
        return profile_graph(executable.graph, arrays, runs, numbers, *own)

    def works_of(self, ways: WaysPlan) -> list[Choice]:
        """Return the works of a program of the same graph by a plan, each once."""
        return works_of(self.executable.graph, ways, self.executable.budget)

    def dry_run(self, given: Sequence[Any], ways: WaysPlan) -> DryRun:
        """Return a program of the same graph by a plan, on copies of the states."""
        from odyssey.compiler.runtime.dry_run import DryRun

        executable = self.executable
        own = executable.threads, executable.budget
        return DryRun(executable.graph, *self._dry_run_arguments(given), *own, ways)

    def _dry_run_arguments(self, given: Sequence[Any]) -> tuple[list[Array], Sequence[Any]]:
        """Return the arrays of a call, with accumulated gradients, and its completed numbers."""
        found = [np.asarray(array_of(one)) for one in given[: self._array_count]]
        for variable, spec in zip(
            self._accumulated, self.executable.inputs[len(found) :], strict=True
        ):
            gradient = _current_gradient(variable)  # an absent gradient takes as long
            found.append(np.zeros(spec.shape, spec.dtype) if gradient is None else gradient)
        numbers = self.numbers.with_computed(given[self._array_count :])
        return found, numbers or ()

    def specialization_for(self, arrays: Sequence[Any]) -> ShapeSpecialization:
        """Return the specialization for arguments' shapes; BindingError if none."""
        return self._specialization

    def _run(
        self,
        arrays: Sequence[Any],
        numbers: Sequence[Any],
        given: Sequence[Any],
        shape: ShapeSpecialization,
        deferred: CommitPlan,
    ) -> Any:
        """Run the program and commit its side effects; CACHE_MISS if nothing was committed.

        Args:
            arrays: Arguments, then accumulated gradients.
            numbers: Scalar inputs.
            given: The objects that the arguments belong to.
            shape: The specialization for their shapes.
            deferred: The calls of deferred effects, made last: steps of schedules.
        """
        executable = self.executable
        outs = shape.outs()
        answer = executable.start(*arrays, *numbers, *outs)
        if answer == GUARD_FAILED:
            if any(type(array) is not ndarray for array in arrays):
                return CACHE_MISS  # given a Variable, the function may return another kind
            try:
                self._rebind()
                as_given = arrays
                arrays = executable.canonical_args(arrays, shape.inputs)
            except BindingError:
                return CACHE_MISS
            if shape.results.keeps_layout and not all(map(is_, arrays, as_given)):
                return CACHE_MISS
            answer = executable.start(*arrays, *numbers, *outs)
        if answer != RAN:
            return CACHE_MISS
        if self._has_host_calls:
            if self._has_middle_steps:
                try:
                    if executable.run_middle_steps() != RAN:
                        return CACHE_MISS
                except Exception:  # of a host call: an eager call will raise it in its own words
                    return CACHE_MISS
            if self._calls:
                outs = all_outputs(executable, outs)
            if self._commits:
                try:
                    self._commit(outs, deferred)
                except BindingError:  # of an exclusivity check: another thread came in between
                    return CACHE_MISS
            elif deferred:
                run_all(starmap(call, [(executable.rest,), *deferred]))
            else:
                executable.rest()
        elif deferred:
            run_all(starmap(call, deferred))
        return shape.results.build(outs, given)

    def _rebind(self) -> None:
        """Bind to the states' arrays of now, and prepare the commit of their versions."""
        try:
            self.executable.bind()
            self._bind_versions()
        except BindingError:
            raise
        except BaseException:  # of a signal handler: the next call binds again
            self.executable.invalidate()
            raise

    def _bind_versions(self) -> None:
        """Prepare the commit of version counters and gradients."""
        together: dict[int, list[Info]] = {}
        for leaf in self._written:
            together.setdefault(id(leaf._info.shared), []).append(leaf._info)
        # Version counters: setter, container, and index or attribute name.
        self._numbers: list[tuple[Any, Any, Any]] = []
        for infos in together.values():
            shared = infos[0].shared
            if len(infos) == shared[1]:
                self._numbers.append((setitem, shared, 0))
            else:
                self._numbers += [(setattr, info, "own") for info in infos]
        self._begin: CommitPlan = self.executable.exclusivity_checks()
        self._begin += [(*number, BEING_WRITTEN) for number in self._numbers]
        if self._numbers:
            self._begin.append((next_ticket,))
        if self.native is not None:
            able = not self.executable.gradients_to_clear
            left = [state.variable for state in self._delivered]
            self.native.bind(self._trained, self._numbers, left, able)

    def _commit(self, outs: list[Any], deferred: CommitPlan) -> None:
        """Run the last step and publish all side effects in one C call, deferred effects last."""
        for leaf in self._trained:
            # Tapes that entered the leaf without recording a use look it up again.
            leaf._placed = None
        plan = [*self._begin, (self.executable.rest,)]
        for put, where, at in self._numbers:
            number = where[0] if put is setitem else where.own
            plan.append((put, where, at, next_version(number)))
        self._add_gradients(plan, outs)
        run_all(starmap(call, plan + deferred))

    def _add_gradients(self, plan: CommitPlan, outs: Sequence[Any]) -> None:
        """Add the calls that publish the gradients that a run leaves, and clear others."""
        if self._delivered:
            for variable, gradient in _left_gradients(self._delivered, outs):
                info = variable._info
                plan += [(setattr, info, "grad", gradient), (setattr, info, "loan", None)]
        for variable in self.executable.gradients_to_clear:
            info = variable._info
            plan += [(setattr, info, "grad", None), (setattr, info, "loan", None)]


def _left_gradients(states: Sequence[State], outs: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the Variables of gradients that a program leaves, with the gradients.

    Args:
        states: The states, one for each of the last outputs.
        outs: All outputs.
    """
    last = dict(zip(states, outs[-len(states) :], strict=True))
    rows = {id(state.variable): out for state, out in last.items() if state.field == "rows"}
    for state, out in last.items():
        if state.field == "grad":
            indices, variable = rows.get(id(state.variable)), state.variable
            is_dense = indices is None
            yield variable, out if is_dense else assemble_rows(indices, out, variable.shape)


def plan_of_trace(trial: TraceAttempt, budget: int | None, ways: WaysPlan = NO_PLAN) -> Plan | None:
    """Return the buffers and kernels of the program of a trace; None if a state cannot be bound."""
    graph = copy(trial.graph)
    returned = zip(graph.outputs, leaves(trial.full_result), strict=False)
    # Captured arrays and Variables, which are returned themselves.
    kept = [None if isinstance(array_of(leaf), ARRAYS) else out for out, leaf in returned]
    graph.outputs = [*kept, *graph.outputs[len(kept) :]]
    return plan_of_graph(graph, budget, ways)


def _drop_known_outputs(
    graph: Graph, traced: Sequence[Any], seen: Sequence[Any], aliases: ResultAliases
) -> None:
    """Drop the outputs that are captured objects, or aliases: no program needs to copy them."""
    for k, (symbol, leaf) in enumerate(zip(traced, seen, strict=False)):
        is_captured = symbol is leaf and isinstance(leaf, (*ARRAYS, Value))
        if (is_captured or k in aliases.by_leaf) and isinstance(graph.outputs[k], (Ref, Splat)):
            graph.outputs[k] = None


def _starts_with(args: Sequence[Any], receivers: Sequence[Any]) -> bool:
    """Return whether the first arguments are the very receivers."""
    return len(args) >= len(receivers) and all(map(is_, args, receivers))


def specialize_to_shape(
    trial: TraceAttempt,
    text: LoweredProgram | Executable,
    result: Any,
    aliases: ResultAliases | None = None,
) -> ShapeSpecialization:
    """Build the shape specialization of a trace.

    Args:
        trial: The trace.
        text: Its program.
        result: The result of an eager call.
        aliases: Aliases in that result; None if they are known only for another size.

    Raises:
        NotCompilableError: no program can return what the function does.
    """
    outs = _output_allocator(output_specs(text.plan))
    returned = trial.full_result
    readers: dict[int, Any] = {}
    if trial.guards is not None and any(type(leaf) in ARRAYS for leaf in leaves(returned)):
        readers = trial.guards.array_readers()
        several = {array for array, reader in readers.items() if reader is None}
        trial.guards.guard_identity([x for x in leaves(returned) if id(x) in several])
    effects = trial.python_effects
    results = ResultBuilder(text, returned, result, aliases, readers, effects)
    return ShapeSpecialization(text.inputs, outs, results)


def _output_allocator(specs: Sequence[tuple[Any, Any]]) -> Callable[[], list[Any]]:
    """Return a function that allocates the output buffers; without a loop for a single one."""
    if len(specs) == 1:
        ((shape, dtype),) = specs
        return lambda: [empty(shape, dtype)]
    return lambda: [empty(shape, dtype) for shape, dtype in specs]


def _current_gradient(variable: Variable) -> Any:
    """Return the gradient that a program accumulates into, or None."""
    info = variable._info
    return None if info is None else array_of(info.grad)
