"""Eager loops as programs: a long ``scan`` or ``while_loop`` outside of ``compile``.

A loop calls ``run_loop`` with its body, a function of flat values that traces the loop as one
instruction. The body is traced at each call, which takes as long as some steps do, so no guards
are needed: the graph itself is the key of the program. Programs belong to the code of the step
function and die with it.

The results are recorded as one call, whose rules are programs as well: the derivative of a body is
a body again, and so there are derivatives of every order. Each rule can also run op by op.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from functools import partial
from math import inf
from threading import RLock
from types import CodeType, MethodType, SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from odyssey.compiler.machine.jit import unavailable_reason
from odyssey.compiler.machine.state_locks import PROGRAM_LOCKS
from odyssey.compiler.runtime.executable import RAN, Executable
from odyssey.compiler.tracing.attempt import TraceAttempt
from odyssey.devices.half_dtypes import is_inexact
from odyssey.errors import NotDifferentiableError, OdysseyError, TapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.graph.graph import Graph, Ref, Splat
from odyssey.graph.subgraphs import loop_row, subgraph_signature
from odyssey.graph.traced_array import TracedArray
from odyssey.spec import intern, spec_of
from odyssey.table.row import is_profiled
from odyssey.table.scope import PauseBlock, find_recording, no_grad, recordings_of, scopes
from odyssey.table.store import MEMORY, store
from odyssey.table.value import Mark, Symbol
from odyssey.tape.gradient_mask import GradientMask
from odyssey.tape.sweep import pop_nodes
from odyssey.transforms.call_nodes import record_call, split_saved, stored_array
from odyssey.transforms.control_flow.derivatives import (
    MaskedDerivative,
    ReplayedBody,
    body_jvp,
    body_vjp,
    flatten_derivatives,
    is_recorded_sweep,
    swept_cotangents,
    unflatten_derivatives,
)
from odyssey.transforms.control_flow.tracing import (
    FIXED,
    LIVE,
    LOST,
    Body,
    Flat,
    TracedBody,
    fill_like,
    graph_value,
    is_number,
    kinds_of,
    spec_or_number,
    trace_body,
    wrap_variable,
)
from odyssey.variable import Variable

__all__ = ["run_loop"]

# Seconds that an op takes without a program; and with its record and its sweep.
_SECONDS_AN_OP = 4e-6
_SECONDS_A_RECORDED_OP = 20e-6
# Seconds that a call of a step takes besides.
_SECONDS_A_CALL = 20e-6
# Expected seconds of an eager run from which on a compilation pays, which takes .1 to .4.
_WORTH_A_PROGRAM = 0.25
# Programs of one code object; and compilations in a row that no second run rewards, after which
# its loops stay eager.
_MOST_PROGRAMS = 16
_MOST_UNREWARDED = 20
# Decorators around a step, beyond which it has no program.
_MOST_WRAPPERS = 32
# After a loop that did not pay, so many times its steps are tried next.
_MORE_STEPS = 1.5
# Kinds of loops of one code object that were refused, after which no other is traced.
_MOST_REFUSED = 32


class _Refusal(Exception):
    """No program does what a loop does; it runs op by op.

    Args:
        why: In words.
        lasting: Whether to run other calls of such a loop op by op at once.
        costs: Whether a program would do, and only does not pay.
    """

    def __init__(self, why: object, lasting: bool = False, costs: bool = False) -> None:
        super().__init__(why)
        self.lasting, self.costs = lasting, costs


class _Program:
    """A compiled body; one run at a time."""

    def __init__(self, graph: Graph) -> None:
        self._outputs = graph.outputs
        self._executable = Executable(graph)
        self._places = {k: n for n, k in enumerate(self._executable.plan.written_outputs())}
        self._lock: RLock = PROGRAM_LOCKS.new()
        self._is_running = False

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the outputs, in arrays that nobody else has.

        Raises:
            _Refusal: a check in the program failed, or the program runs already: this is a signal
                handler or the garbage collector.
        """
        with self._lock:
            if self._is_running:
                raise _Refusal("it runs already")
            self._is_running = True
            try:
                made = self._run(arrays)
            except Exception as error:  # the eager run raises it in its own words
                raise _Refusal(error) from error
            finally:
                self._is_running = False
                self._executable.host_results = {}
        if len(set(map(id, made))) < len(made):
            made = [array.copy() for array in made]
        return made

    @ignore_fp_errors()
    def _run(self, arrays: Sequence[Any]) -> list[Any]:
        executable = self._executable
        outs = [np.empty(shape, dtype) for shape, dtype in executable.outputs]
        given = executable.canonical_args(arrays)  # alive until the end: host calls read them
        answer = executable.start(*given, *outs)
        if answer == RAN and len(executable.module.steps) > 1:
            answer = executable.run_middle_steps()
            answer = executable.rest() if answer == RAN else answer
        if answer != RAN:
            raise _Refusal("a check failed")
        nodes: Any = executable.plan.outputs
        return [
            outs[self._places[k]]
            if k in self._places
            else output.array()
            if isinstance(output, Splat)
            else executable.host_results[nodes[k].id]
            for k, output in enumerate(self._outputs)
        ]


class _Programs:
    """The programs of one code object.

    Attributes:
        refused: The kinds of its loops that run op by op.
        is_hopeless: Whether all of them do.
        unpaid: By kind of loop, the most steps for which no program pays.
    """

    def __init__(self) -> None:
        self.refused: set[Any] = set()
        self.is_hopeless = False
        self.unpaid: dict[Any, float] = {}
        self._known: OrderedDict[Any, _Program] = OrderedDict()
        self._unrewarded = 0
        self._lock: RLock = PROGRAM_LOCKS.new()

    def program_for(self, key: Any, graph: Graph, may_compile: bool) -> _Program | None:
        """Return the program for a graph; compile it if there is none."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                self._unrewarded = 0
                return found
            if not may_compile:
                return None
            self._unrewarded += 1
            if self._unrewarded > _MOST_UNREWARDED:
                self.is_hopeless = True
                raise _Refusal("each call needs a new program")
        try:
            made = _Program(graph)
        except Exception as error:  # a fault of the compiler costs speed alone
            self.is_hopeless = True
            raise _Refusal(error) from error
        with self._lock:
            found = self._known.setdefault(key, made)
            while len(self._known) > _MOST_PROGRAMS:
                self._known.popitem(last=False)
        return found


_PROGRAMS: WeakKeyDictionary[CodeType, _Programs] = WeakKeyDictionary()


def _code_of(fn: Any) -> CodeType | None:
    """Return the code object that a function runs, or None."""
    for _ in range(_MOST_WRAPPERS):  # an object may say that it wraps itself
        if isinstance(fn, partial):
            fn = fn.func
        elif isinstance(fn, MethodType):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            break
    else:
        return None
    found = getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None


# ------------------------------------------------------------------ bodies and their derivatives


class _Replay(ReplayedBody):
    """A body that derivatives run again; while no graph is traced, without a comparison."""

    def call_and_verify(self, given: Flat) -> Flat:
        return super().call_and_verify(given) if store().traces else self.body(given)


class _Derivative:
    """The body of a derivative: a function of a body's operands, and of cotangents or tangents.

    Args:
        who: For messages.
        body: The body.
        kinds: The kinds of its operands.
        sources: The captured values that it depends on, by id.
        parts: The positions of the outputs whose cotangents are given; or, of the inputs whose
            tangents are, which are first the operands of kind LIVE and then the sources.
        live: The positions of the outputs that are differentiated.
        masked: Whether masks are kept.
        forward: Whether it is the forward derivative.
    """

    def __init__(
        self,
        who: str,
        body: Body,
        kinds: Sequence[int],
        sources: dict[int, Any],
        parts: Sequence[int],
        live: Sequence[int],
        masked: bool,
        forward: bool,
    ) -> None:
        self.who, self.body, self.kinds, self.sources = who, body, kinds, sources
        self.parts, self.live, self.masked, self.forward = parts, live, masked, forward
        self.tracked = [k for k, kind in enumerate(kinds) if kind == LIVE]

    def __call__(self, values: Flat) -> Flat:
        operands = values[: len(self.kinds)]
        derivatives = unflatten_derivatives(values[len(self.kinds) :], self.masked)
        by_part = dict(zip(self.parts, derivatives, strict=True))
        replay = _Replay(self.who, self.body, self.kinds, self._signature(operands))
        return (self._jvp if self.forward else self._vjp)(replay, operands, by_part)

    def _signature(self, operands: Flat) -> tuple[Any, ...]:
        """Return the signature of the body in the present trace."""
        if not store().traces:
            return ()
        traced = trace_body(self.body, operands, self.kinds, self)
        if traced.sources.keys() != self.sources.keys():
            raise TapeError(
                f"{self.who}: the function used other Variables when it was run again for its "
                "derivative; pass them as arguments"
            )
        return traced.ops_signature()

    def _vjp(
        self, replay: ReplayedBody, operands: Flat, seeds: dict[int, MaskedDerivative]
    ) -> Flat:
        sums = {id: MaskedDerivative.zero(v, self.masked) for id, v in self.sources.items()}
        found, totals = body_vjp(replay, operands, seeds, sums, self.masked)
        return flatten_derivatives([*[found[k] for k in self.tracked], *totals], self.masked)

    def _jvp(
        self, replay: ReplayedBody, operands: Flat, parts: dict[int, MaskedDerivative]
    ) -> Flat:
        count = len(self.tracked)
        tangents = {self.tracked[j]: t for j, t in parts.items() if j < count}
        ids = list(self.sources)
        others = {ids[j - count]: t for j, t in parts.items() if j >= count}
        _, found = body_jvp(replay, operands, tangents, others, self.masked)
        return flatten_derivatives([found[k] for k in self.live], self.masked)


# ------------------------------------------------------------------ traces


class _Traced(NamedTuple):
    """A traced body, as a graph of which all that varies is an input.

    Attributes:
        body: The trace.
        graph: The graph: inputs are the operands that are no numbers, captured Variables, arrays.
        key: A signature of the graph.
        variables: The captured Variables.
        arrays: The captured arrays.
        ops: The number of ops in a run.
    """

    body: TracedBody
    graph: Graph
    key: Any
    variables: list[Any]
    arrays: list[Any]
    ops: int


class _TraceRun:
    """Traces bodies, and keeps them; without a ``__dict__``, which a search for names would walk.

    Attributes:
        found: The traces, and graphs of them.
    """

    __slots__ = ("_bodies", "found")

    def __init__(self, bodies: Callable[[], Iterable[tuple[TracedBody, Graph]]]) -> None:
        self._bodies = bodies
        self.found: list[tuple[TracedBody, Graph]] = []

    def __call__(self) -> None:
        self.found.extend(self._bodies())


def _trace(
    fns: Sequence[Any], bodies: Callable[[], Iterable[tuple[TracedBody, Graph]]]
) -> list[_Traced]:
    """Trace bodies of a loop.

    Args:
        fns: The functions of the user that they call: all that these may change is restored.
        bodies: Yields the traces, and graphs of them.

    Raises:
        _Refusal: no graph can do what the functions do.
    """
    run = _TraceRun(bodies)
    try:
        attempt = TraceAttempt(fns[-1], tuple(fns[:-1]), {}, instead=run)
    except OdysseyError as error:
        raise _Refusal(error, lasting=True) from error
    graph = attempt.graph
    refused = (
        attempt.error
        or attempt.effects
        or graph.eager_reason
        or attempt.guards is None
        or attempt.guards.reason
        or graph.cleared
        or graph.missing_gradients
        or graph.deferred_steps
        or graph.hyperparameters
        or graph.instructions
        or any(state.update is not None or state.field != "data" for state in graph.states)
    )
    if refused:
        raise _Refusal(refused, lasting=True)
    return [_lifted(body, subgraph, graph) for body, subgraph in run.found]


def _lifted(body: TracedBody, graph: Graph, around: Graph) -> _Traced:
    """Return a traced body whose captured values are inputs of its graph."""
    graph, constants = _without_constants(graph)
    used = {o.id for i in graph.instructions for o in i.operands if isinstance(o, Ref)}
    used.update(o.id for o in graph.outputs if isinstance(o, Ref))
    states = [state for state in around.states if state.id in used]
    constants = {id: array for id, array in constants.items() if id in used}
    graph.inputs += [(state.id, state.spec) for state in states]
    graph.inputs += [(id, spec_of(array)) for id, array in constants.items()]
    if any(i.row.impure or i.row.has_side_effect for i in _instructions(graph)):
        raise _Refusal("an op has a side effect", lasting=True)
    shim: Any = SimpleNamespace(graph=SimpleNamespace(constants=_all_constants(graph)))
    inputs = [TracedArray(spec, shim, id) for id, spec in graph.inputs]
    signature = subgraph_signature(graph.instructions, inputs, graph.outputs, shim)
    key = (signature, tuple([spec for _, spec in graph.inputs]))
    return _Traced(
        body, graph, key, [s.variable for s in states], [*constants.values()], _count_ops(graph)
    )


def _without_constants(graph: Graph) -> tuple[Graph, dict[int, Any]]:
    """Return a graph, of whose loops the constants are operands, and the constants that it lacks.

    Other numbers in them take no other program. Indices and numbers alone stay what they are, since
    code is generated for their values.
    """
    made = copy(graph)
    lifted = {id: a for id, a in graph.constants.items() if a.ndim and is_inexact(a.dtype)}
    made.constants = {id: a for id, a in graph.constants.items() if id not in lifted}
    made.inputs, made.instructions = list(graph.inputs), []
    for one in graph.instructions:
        loop = getattr(one.row, "loop", None)
        if loop is not None:
            parts, found = [], dict[int, Any]()
            for part in loop.subgraphs:
                part, own = _without_constants(part)
                parts.append(part)
                found |= own
            for part in parts:
                part.inputs += [(id, spec_of(array)) for id, array in found.items()]
            loop = loop._replace(subgraphs=tuple(parts))
            count = len(one.operands) - len(loop.numbers)
            operands = (*one.operands[:count], *map(Ref, found), *one.operands[count:])
            one = one._replace(row=loop_row(loop, len(operands)), operands=operands)
            lifted |= found
        made.instructions.append(one)
    return made, lifted


def _instructions(graph: Graph) -> list[Any]:
    found = list(graph.instructions)
    for one in graph.instructions:
        loop = getattr(one.row, "loop", None)
        for part in loop.subgraphs if loop is not None else ():
            found += _instructions(part)
    return found


def _all_constants(graph: Graph) -> dict[int, Any]:
    found = dict(graph.constants)
    for one in graph.instructions:
        loop = getattr(one.row, "loop", None)
        for part in loop.subgraphs if loop is not None else ():
            found |= _all_constants(part)
    return found


def _count_ops(graph: Graph) -> int:
    """Return the number of ops that a run takes, those of inner loops at each step."""
    total = 0
    for one in graph.instructions:
        loop = getattr(one.row, "loop", None)
        if loop is None:
            total += 1
        else:
            total += max(loop.steps, 1) * sum(map(_count_ops, loop.subgraphs))
    return total


# ------------------------------------------------------------------ calls


class _Group(NamedTuple):
    """Results of a call that depend on the same inputs, recorded as one call.

    Attributes:
        results: Their positions among the outputs.
        numbers: The positions of their inputs among those of the call: the operands of kind LIVE,
            then the sources.
        operands: For each operand where a rule finds it: ``(True, k)``, input number ``k`` of the
            group; ``(False, k)``, array number ``k`` that the tape keeps; None, the operand itself.
        captured: The same for each captured value of the backward program.
    """

    results: list[int]
    numbers: list[int]
    operands: list[tuple[bool, int] | None]
    captured: list[tuple[bool, int]]


class _Call:
    """One call of a body, by a program.

    Args:
        who: For messages.
        fns: The functions of the user that the body calls.
        body: The body.
        operands: Its operands.
        programs: Where its programs are kept.
        repeats: How often it would run op by op; ``inf`` for a program whatever that costs.
        sweeps: Whether the body has a backward derivative.
    """

    def __init__(
        self,
        who: str,
        fns: Sequence[Any],
        body: Body,
        operands: Flat,
        programs: _Programs,
        repeats: float = 1,
        sweeps: bool = True,
    ) -> None:
        self.who, self.fns, self.body, self.operands = who, fns, body, operands
        self.programs, self.repeats, self.sweeps = programs, repeats, sweeps
        self.home = self._recording(operands)
        if self.home is not None and (self.home.checks is not None or self.home.traced):
            raise _Refusal("a tape with check=True reads every value")
        self.kinds = kinds_of(self.home, operands)

    def _recording(self, values: Sequence[Any]) -> Any:
        """Return the recording that an op on these values would be recorded on, or None."""
        try:
            found: Any = find_recording(self.who, values, recordings_of(values))
        except OdysseyError as error:
            raise _Refusal(error) from error
        self.pauses = isinstance(found, Mark)
        return None if self.pauses else found

    def run(self) -> Flat:
        """Return the outputs, recorded where the ops of the body would be.

        Raises:
            _Refusal: no program can do that.
        """
        own, *others = _trace(self.fns, self._bodies)
        self.traced = own.body
        if self._recording([*self.operands, *own.variables]) is not self.home:
            raise _Refusal("a captured Variable is on a tape, and no operand is")
        if self.traced.is_conditional():
            raise _Refusal("gradients depend on the branches that run", lasting=True)
        self.live = [k for k, kind in enumerate(self.traced.kinds) if kind == LIVE]
        # Not a measured time: equal calls must give equal results to the last digit.
        per_op = _SECONDS_AN_OP if self.home is None else _SECONDS_A_RECORDED_OP
        pays = self.repeats * (own.ops * per_op + _SECONDS_A_CALL) > _WORTH_A_PROGRAM
        program = self.programs.program_for(own.key, own.graph, pays)
        if program is None:
            raise _Refusal("compilation would take longer than it saves", costs=True)
        given = [_numpy_array(v) for v in self.operands if v is not None and not is_number(v)]
        given += [_numpy_array(v) for v in (*own.variables, *own.arrays)]
        made = program.run(given)
        if not _all_finite(made) and _all_finite(given) and "warn" in np.geterr().values():
            raise _Refusal("NumPy would warn")  # the eager run does, at the line of the op
        results = fill_like(made, self.traced.outputs)
        if self.live:
            self._record(results, *others)
        kinds = [FIXED if kind == LOST and self.pauses else kind for kind in self.traced.kinds]
        found = map(wrap_variable, results, kinds)
        return [v[()] if isinstance(v, np.ndarray) and not v.ndim else v for v in found]

    def _bodies(self) -> Iterator[tuple[TracedBody, Graph]]:
        """Trace the body, and what sweeps the call backward: now, as later it may differ."""
        record: list[Any] = []
        traced = trace_body(self.body, self.operands, self.kinds, self.home, record)
        yield traced, traced.graph()
        live = [k for k, kind in enumerate(traced.kinds) if kind == LIVE]
        if not live:
            return
        if not self.sweeps:
            raise NotDifferentiableError(
                f"{self.who}: a compiled program has no backward derivative of it"
            )
        trace: Any = store()
        nodes, operands = record
        masked = traced.selects
        specs = [spec_or_number(graph_value(traced.outputs[k])) for k in live]
        specs += [intern(spec.shape, np.dtype(bool)) for spec in specs if masked]
        cotangents = list(map(trace.symbol, specs))

        def sweep() -> Flat:
            seeds = dict(zip(live, unflatten_derivatives(cotangents, masked), strict=True))
            sums = {id: MaskedDerivative.zero(v, masked) for id, v in traced.sources.items()}
            with no_grad():
                found = swept_cotangents(
                    pop_nodes(nodes), operands, traced.outputs, seeds, sums, masked
                )
            return flatten_derivatives([*found[0].values(), *found[1]], masked)

        instructions, made = trace.trace_subgraph(sweep)
        symbols = [s for s in traced.symbols if isinstance(s, Symbol)]
        every = [*traced.instructions, *instructions]
        outputs = list(map(graph_value, made))
        yield traced, trace.subgraph([*symbols, *cotangents], every, outputs)

    def _derivative(
        self,
        traced: TracedBody,
        parts: Sequence[int],
        live: Sequence[int],
        masked: bool,
        forward: bool,
    ) -> _Derivative:
        return _Derivative(
            self.who, self.body, self.kinds, traced.sources, parts, live, masked, forward
        )

    # -------------------------------------------------------------- recording

    def _record(self, results: Flat, backward: _Traced) -> None:
        """Record the call; results that are differentiated become Variables."""
        self.backward = backward
        self.tracked = [k for k, kind in enumerate(self.kinds) if kind == LIVE]
        sources = self.traced.sources
        inputs = [*[self.operands[k] for k in self.tracked], *sources.values()]
        numbers = {id: k for k, id in enumerate(sources, len(self.tracked))}
        groups: dict[tuple[int, ...], list[int]] = {}
        for k in self.live:
            positions, ids = self.traced.depends[k]
            found = [j for j, place in enumerate(self.tracked) if place in positions]
            needed = (*found, *[j for id, j in numbers.items() if id in ids])
            groups.setdefault(needed, []).append(k)
        for needed, members in groups.items():
            group, kept = self._group(members, needed, inputs)
            made = record_call(
                self.home,
                self.who,
                [inputs[j] for j in needed],
                [results[k] for k in members],
                partial(self._rule, group, False),
                partial(self._rule, group, True),
                kept,
                self.traced.selects,
                self.traced.has_poles,
            )
            for k, value in zip(members, made, strict=True):
                results[k] = value

    def _group(
        self, results: list[int], numbers: Sequence[int], inputs: list[Any]
    ) -> tuple[_Group, list[Any]]:
        """Return a group of results, and the arrays that the tape keeps for it."""
        kept: list[Any] = []
        place_of = {j: (True, k) for k, j in enumerate(numbers)}
        number_of = {id(v): j for j, v in enumerate(inputs) if j >= len(self.tracked)}

        def keep(value: Any) -> tuple[bool, int]:
            kept.append(_numpy_array(value).copy())  # its owner may write to it meanwhile
            return False, len(kept) - 1

        operands: list[tuple[bool, int] | None] = []
        for k, value in enumerate(self.operands):
            if value is None or is_number(value):
                operands.append(None)
            elif k in self.tracked and self.tracked.index(k) in place_of:
                operands.append(place_of[self.tracked.index(k)])
            else:
                operands.append(keep(value))
        captured = [
            place_of[number_of[id(v)]] if number_of.get(id(v)) in place_of else keep(v)
            for v in (*self.backward.variables, *self.backward.arrays)
        ]
        return _Group(results, list(numbers), operands, captured), kept

    def _rule(
        self,
        group: _Group,
        forward: bool,
        parts: dict[int, Any],
        kept: tuple[Any, ...],
        chosen: dict[int, Any],
    ) -> list[Any]:
        """Return the derivatives of the results from those of the inputs, or vice versa."""
        given, rest = split_saved(kept, len(group.numbers))
        masked = self.traced.selects or bool(chosen)
        recorded = is_recorded_sweep(parts, given)
        numbers = group.numbers if forward else group.results
        with nullcontext() if recorded else PauseBlock(is_local=True):
            derivatives = {
                numbers[j]: MaskedDerivative.with_mask(g, chosen.get(j), masked)
                for j, g in parts.items()
            }
            found = None
            if not (forward or recorded) and masked == self.traced.selects:
                found = self._sweep_by_program(group, derivatives, given, rest)
            if found is None:
                found = self._sweep(group, forward, derivatives, given, rest, masked)
        every = unflatten_derivatives(found, masked)
        results = (
            [every[self.live.index(k)] for k in group.results]
            if forward
            else [every[j] for j in group.numbers]
        )
        chosen.clear()
        if masked:
            chosen.update(
                (k, GradientMask(partial(graph_value, p.mask))) for k, p in enumerate(results)
            )
        return [part.value for part in results]

    def _values(self, group: _Group, given: Sequence[Any], rest: Sequence[Any]) -> Flat:
        """Return the operands, with the inputs of the sweep put in."""
        return [
            value
            if place is None
            else given[place[1]]
            if place[0]
            else wrap_variable(rest[place[1]], kind)
            for value, place, kind in zip(self.operands, group.operands, self.kinds, strict=True)
        ]

    def _sweep_by_program(
        self,
        group: _Group,
        parts: dict[int, MaskedDerivative],
        given: Sequence[Any],
        rest: Sequence[Any],
    ) -> Flat | None:
        """Return the cotangents, by the program that was traced with the call; None if it fails."""
        masked = self.traced.selects
        seeds = [
            parts[k] if k in parts else MaskedDerivative.zero(self.traced.outputs[k], masked)
            for k in self.live
        ]
        values = self._values(group, given, rest)
        captured = [given[k] if among else rest[k] for among, k in group.captured]
        arrays = [v for v in values if v is not None and not is_number(v)]
        arrays += [*flatten_derivatives(seeds, masked), *captured]
        try:
            program: Any = self.programs.program_for(self.backward.key, self.backward.graph, True)
            made: Flat = program.run([np.asarray(_numpy_array(array)) for array in arrays])
        except _Refusal:
            return None
        # A cotangent of zeros stands for one that is not there, and meets what is infinite as NaN.
        if len(parts) < len(seeds) and not masked and not _all_finite(made):
            return None
        return made

    def _sweep(
        self,
        group: _Group,
        forward: bool,
        parts: dict[int, MaskedDerivative],
        given: Sequence[Any],
        rest: Sequence[Any],
        masked: bool,
    ) -> Flat:
        """Return the derivatives by a program for these, or op by op."""
        body = self._derivative(self.traced, list(parts), self.live, masked, forward)
        values = self._values(group, given, rest)
        flat = [*values, *flatten_derivatives(parts.values(), masked)]
        if store() is not MEMORY:  # in vmap: op by op, on all examples
            return body(flat)
        try:
            made = _Call(self.who, self.fns, body, flat, self.programs, inf).run()
        except _Refusal:
            return body(flat)
        lacks_seeds = not forward and len(parts) < len(self.live)
        if lacks_seeds and not _all_finite(list(map(_numpy_array, made))):
            return body(flat)  # see ``_sweep_by_program``
        return made


def _numpy_array(value: Any) -> Any:
    """Return the array of an operand.

    Raises:
        _Refusal: programs do not take it.
    """
    data = stored_array(value) if isinstance(value, Variable) else value
    data = np.asarray(data) if isinstance(data, np.generic) else data
    if isinstance(data, Symbol) or (not is_number(data) and type(data) is not np.ndarray):
        raise _Refusal(f"{type(data).__name__} is not an array of NumPy", lasting=True)
    return data


def _all_finite(arrays: Sequence[Any]) -> bool:
    return all(not is_inexact(a.dtype) or bool(np.isfinite(a).all()) for a in arrays)


def _is_quiet() -> bool:
    """Return whether NumPy ignores floating-point errors or warns of them."""
    return {"ignore", "warn"}.issuperset(np.geterr().values())


def run_loop(
    who: str,
    fns: Sequence[Any],
    body: Body,
    operands: Flat,
    steps: int,
    sweeps: bool = True,
) -> Flat | None:
    """Run a loop by a program; return its results, or None where it is to run op by op.

    Args:
        who: The name of the loop.
        fns: The functions of the user that it calls; the last is the step.
        body: The loop, which is traced as one instruction: from flat operands to flat results.
        operands: The operands.
        steps: The number of steps; of a while loop, of those until now.
        sweeps: Whether the loop has a backward derivative in a graph, as a scan has.
    """
    code = _code_of(fns[-1])
    if code is None or unavailable_reason() is not None or is_profiled() or not _is_quiet():
        return None
    if any(getattr(scope, "checks", None) is not None for scope in scopes()):
        return None
    programs = _PROGRAMS.get(code)
    if programs is None:
        programs = _PROGRAMS.setdefault(code, _Programs())
    if programs.is_hopeless:
        return None
    kind: Any = None
    try:
        call = _Call(who, fns, body, operands, programs, 1 if sweeps else steps, sweeps)
        specs = [type(v) if is_number(v) else spec_or_number(v) for v in operands]
        kind = (who, call.home is None, *[getattr(s, "dtype", s) for s in specs])
        # Sizes decide about a refusal as little as the number of steps does.
        if kind in programs.refused or steps <= programs.unpaid.get(kind, 0):
            return None
        results = call.run()
        if not sweeps:  # the next loop, too, goes on by a program early
            programs.unpaid.pop(kind, None)
        return results
    except _Refusal as refusal:
        if refusal.lasting:
            programs.refused.add(kind)
            programs.is_hopeless = len(programs.refused) > _MOST_REFUSED
        if refusal.costs:
            programs.unpaid[kind] = steps * _MORE_STEPS
        return None


def __dir__() -> list[str]:
    return sorted(__all__)
