"""``scan``: a loop over the first axis of arrays, run step by step or traced as one instruction."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

import numpy as np

from odyssey.checks import check_callable, check_flag, check_int, describe_type, format_value
from odyssey.devices.arrays import ARRAY_LIKE, refuse_non_array
from odyssey.devices.same_device import new_beside
from odyssey.errors import DTypeError, ShapeError, TapeError
from odyssey.graph.batch_trace import BatchTrace, batches_of
from odyssey.graph.subgraphs import Loop
from odyssey.graph.trace import Trace
from odyssey.ops.structure.shape import moveaxis
from odyssey.spec import Shape, intern
from odyssey.table.scope import no_grad
from odyssey.table.store import MEMORY, store
from odyssey.table.value import CONSTANT, NUMBERS, Symbol, Value, free_id, make_value
from odyssey.transforms.call_nodes import recording_for
from odyssey.transforms.control_flow.carries import (
    Carry,
    StackedResults,
    exclusive_results,
    spec_of_leaf,
)
from odyssey.transforms.control_flow.derivatives import (
    MaskedDerivative,
    ReplayedBody,
    body_jvp,
    body_vjp,
    flatten_derivatives,
    is_recorded_sweep,
    record_results,
    split_tangents,
    unflatten_derivatives,
)
from odyssey.transforms.control_flow.programs import program_runner, worth_a_trace
from odyssey.transforms.control_flow.tracing import (
    LIVE,
    Batches,
    Body,
    Flat,
    Reach,
    body_outside,
    concrete_symbol,
    fill_like,
    freeze_closure,
    kinds_of,
    present_arrays,
    spec_or_number,
    trace_body,
    trace_until_stable,
    tracked_positions,
    wrap_variable,
)
from odyssey.transforms.isolated_tapes import isolated_tape
from odyssey.tree import leaves, paths, same_tree, unflatten
from odyssey.variable import Variable

__all__ = ["scan", "traced_scan"]


def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Call ``f(carry, x) -> (carry, y)`` for each ``x`` along the first axis of ``xs``.

    The loop ``for x in xs: carry, y = f(carry, x); ys.append(y)``, with arrays in the place of
    lists. Gradients of all orders, both modes, and what ``f`` closes over are as in that loop.
    ``od.compile`` makes one step of it, whatever the length, and a step of its derivative: where
    nobody reads the last carry, its cotangent of 0 meets what is infinite or NaN there, as NaN. A
    function whose step writes to Variables, or draws random numbers, runs as it was written.

    Outside of ``od.compile`` a scan of 64 steps or more is traced as well, and runs by a program if
    that pays: so do its derivatives. Values differ in the last digits at most. A later call of the
    same code with equal shapes, whatever arrays it closes over, takes the time of a few steps, and
    no compilation. A scan runs step by step if a step has side effects, asks for values or meets an
    error, on a tape with ``check=True``, and where NumPy would warn or raise.

    Args:
        f: A step. The carry that it returns has the tree, the shapes and the dtypes of the one
            that it was given; a Python number in ``init`` takes the dtype of what comes back.
        init: The first carry, an array or a tree of them.
        xs: A tree of arrays with one first axis in common; None for steps that are given None.
        length: The number of steps, which may be left out where there are ``xs``.
        reverse: Whether to go from the last step to the first. Each ``y`` stands where its ``x``
            stood.

    Returns:
        ``(carry, ys)``: the last carry, and the tree of ``y`` with a new first axis, in arrays of
        their own. Of no steps ``f`` is asked for the shapes of ``ys``, by a run on values that
        are not there.

    Raises:
        ShapeError: ``xs`` differ in length, or a carry or a ``y`` in shape or structure.
        DTypeError: a carry or a ``y`` changes its dtype.

    >>> total, sums = scan(lambda c, x: (c + x, c + x), 0.0, np.array([1.0, 2.0, 3.0]))
    >>> float(total), sums
    (6.0, array([1., 3., 6.]))
    """
    f, reverse = check_callable("scan", f), check_flag("scan", "reverse", reverse)
    steps = _step_count(xs, length)
    if store().traces:
        return _scan_symbolically(f, init, xs, steps, reverse)
    carry = Carry("scan", init)
    if not steps:
        return exclusive_results(init), _results_of_no_steps(f, init, xs)
    if store() is MEMORY and worth_a_trace(steps):
        found = _scan_by_program(f, init, xs, steps, reverse)
        if found is not None:
            return found
    return _scan_eagerly(f, carry, xs, steps, reverse)


def _scan_eagerly(
    f: Callable[..., Any], carry: Carry, xs: Any, steps: int, reverse: bool
) -> tuple[Any, Any]:
    columns, ys = leaves(xs), StackedResults(steps)
    for k in range(steps - 1, -1, -1) if reverse else range(steps):
        x = unflatten(xs, [None if column is None else column[k] for column in columns])
        after, y = _checked_pair(f(carry.tree, x))
        carry.advance(after, k)
        ys.store(k, y)
    return exclusive_results(carry.tree), ys.stacked()


def _scan_by_program(
    f: Callable[..., Any], init: Any, xs: Any, steps: int, reverse: bool
) -> tuple[Any, Any] | None:
    """Run a scan by a program outside of ``compile``; None where it is to run step by step."""
    flat, columns = leaves(init), leaves(xs)
    trees: list[Any] = []
    frozen = freeze_closure(f)

    def body(values: Flat) -> Flat:
        start, along = unflatten(init, values[: len(flat)]), unflatten(xs, values[len(flat) :])
        if not store().traces:
            carry, ys = _scan_eagerly(frozen, Carry("scan", start), along, steps, reverse)
        else:
            carry, ys = _scan_symbolically(frozen, start, along, steps, reverse)
        trees[:] = [ys]
        return [*leaves(carry), *leaves(ys)]

    made = program_runner()("scan", [f], body, [*flat, *columns], steps)
    if made is None:
        return None
    return unflatten(init, made[: len(flat)]), unflatten(trees[0], made[len(flat) :])


def _step_count(xs: Any, length: Any) -> int:
    """Return the number of steps of a scan."""
    if length is not None:
        length = check_int("scan", "length", length, 0)
        if length > sys.maxsize:
            raise ShapeError(f"scan: length={format_value(length)}; it is too large")
    found, first = length, "length"
    for path, leaf in paths(xs, "xs"):
        if leaf is None:
            continue
        refuse_non_array("scan", path, leaf)
        if not isinstance(leaf, (Value, Symbol, *ARRAY_LIKE)):
            raise DTypeError(
                f"scan: {path} is {describe_type(leaf)}; pass an array whose first axis goes "
                "along the steps, as np.array(xs) makes one of a list"
            )
        if not leaf.shape:
            raise ShapeError(f"scan: {path} has no axes; its first must go along the steps")
        if found is not None and leaf.shape[0] != found:
            raise ShapeError(
                f"scan: {path} has {leaf.shape[0]} steps along its first axis, shape "
                f"{leaf.shape}, and {first} says {format_value(found)}; all must have one length"
            )
        if found is None:
            found, first = int(leaf.shape[0]), path
    if found is None:
        raise ShapeError("scan: the number of steps is unknown; pass xs, or length")
    return int(found)


def _checked_pair(result: Any) -> tuple[Any, Any]:
    """Return the pair (carry, y) that a step returns; raise for anything else."""
    if type(result) not in (tuple, list) or len(result) != 2:
        came = (
            f"{len(result)} things" if type(result) in (tuple, list) else f"{format_value(result)}"
        )
        raise DTypeError(
            f"scan: f returned {came}; it must return a pair (carry, y), in which y may be None"
        )
    return result[0], result[1]


def _results_of_no_steps(f: Callable[..., Any], init: Any, xs: Any) -> Any:
    """Return the tree of ``ys`` of length 0, found by tracing ``f``."""
    given = [None if c is None else _empty_beside(c, c.shape[1:]) for c in leaves(xs)]
    batched = store() is not MEMORY
    trace: Any = BatchTrace(0) if batched else Trace()
    start = [v.detach() if isinstance(v, Variable) else v for v in leaves(init)]
    start = [np.asarray(v) if isinstance(v, np.generic) else v for v in start]
    if batched:  # a batch of no examples, in which captured values have their places
        start, given = ([_of_no_examples(trace, v) for v in found] for found in (start, given))
    args = unflatten(init, start), unflatten(xs, given)
    try:
        run = _on_isolated_tape(f)
        _, y = _checked_pair(
            copy_context().run(trace.run, run, args, {}) if batched else trace.run(run, args, {})
        )
        made = [_empty_of(leaf) for leaf in leaves(y)]
    except TapeError as error:
        raise ShapeError(
            "scan: there are no steps, and the shapes of ys are unknown, since f reads a value "
            f"that only a step computes ({error}); pass at least one step"
        ) from error
    finally:
        if not batched:
            trace.close()
    return unflatten(y, made)


def _of_no_examples(trace: BatchTrace, value: Any) -> Any:
    """Return a value of the spec of ``value`` in a batch trace of no examples."""
    if value is None or type(value) in NUMBERS:
        return value
    made = trace.wrap(_empty_beside(value, (0, *value.shape)), True)
    if not isinstance(value, Variable):
        return made
    return make_value(Variable, made, CONSTANT, free_id(), made.spec)


def _on_isolated_tape(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``f`` run on an isolated tape, which accepts captured Variables of other tapes.

    Otherwise their uses would be recorded there, or refused by the tapes of derivatives in the
    step.
    """

    def run(*given: Any) -> Any:
        with isolated_tape():
            return f(*given)

    return run


def _empty_of(leaf: Any) -> Any:
    spec = spec_of_leaf("scan", "y", leaf)
    return None if spec is None else new_beside((leaf,), "empty", (0, *spec.shape), spec.dtype)


def _empty_beside(value: Any, shape: Shape) -> Any:
    """Return an array of the dtype of a value, and on its device, whose elements nobody reads."""
    return new_beside((value,), "empty", shape, value.dtype)


def _scan_symbolically(
    f: Callable[..., Any], init: Any, xs: Any, steps: int, reverse: bool
) -> tuple[Any, Any]:
    flat, columns = leaves(init), leaves(xs)
    trees: list[Any] = []
    count = len(flat)

    def step_of(f: Callable[..., Any]) -> Body:
        def step(values: list[Any]) -> list[Any]:
            after, y = _checked_pair(
                f(unflatten(init, values[:count]), unflatten(xs, values[count:]))
            )
            trees.append(y)
            return list(
                map(concrete_symbol, [*same_tree("scan", "carry", init, after), *leaves(y)])
            )

        return step

    step, replay_body = step_of(f), step_of(freeze_closure(f))
    if not steps:
        with no_grad():
            rows = [c if c is None else intern(c.shape[1:], c.dtype) for c in columns]
            made = trace_body(
                step_of(_on_isolated_tape(f)),
                [*flat, *rows],
                kinds_of(None, [*flat, *columns]),
                None,
            )
        init = unflatten(init, list(map(concrete_symbol, flat)))
        return exclusive_results(init), unflatten(
            trees[0], [_empty_of(leaf) for leaf in made.outputs[count:]]
        )
    carry, ys = traced_scan(step, flat, columns, steps, reverse, replay_body)
    return unflatten(init, carry), unflatten(trees[0], ys)


def traced_scan(
    body: Body,
    init: Flat,
    columns: Flat,
    steps: int,
    reverse: bool,
    replay_body: Body | None = None,
) -> tuple[Flat, Flat]:
    """Trace a scan as one instruction.

    Args:
        body: From the carry and a slice of each column to the next carry and results.
        init: The first carry.
        columns: Arrays whose first axis runs along the steps; or None.
        steps: The number of steps, at least one.
        reverse: Whether to begin with the last step.
        replay_body: The body that derivatives run, if it is another; see ``freeze_closure``.
    """
    return _TracedScan(body, init, columns, steps, reverse, replay_body).run()


def _moved_batch(payloads: Flat, batches: Sequence[Batches], source: int, destination: int) -> Flat:
    """Return payloads with the batch, if they have one, on another axis."""
    return [
        moveaxis(p, source, destination) if p is not None and b[0] else p
        for p, b in zip(payloads, batches, strict=False)
    ]


class _TracedScan:
    """A scan while a graph is traced, and its derivative rules."""

    def __init__(
        self,
        body: Body,
        init: Flat,
        columns: Flat,
        steps: int,
        reverse: bool,
        replay_body: Body | None,
    ) -> None:
        init, columns = [list(store().localize(values)) for values in (init, columns)]
        self.step_body = body
        self.columns, self.steps, self.reverse = columns, steps, reverse
        self.recording = recording_for("scan", [*init, *columns])
        self.count = count = len(init)
        specs = [c if c is None else spec_or_number(c) for c in columns]
        operands = [*init, *[s and intern(s.shape[1:], s.dtype) for s in specs]]
        kinds = kinds_of(self.recording, [*init, *columns])
        self.traced, operands, self.kinds = trace_until_stable(
            "scan",
            body,
            operands,
            kinds,
            count,
            self.recording,
            list(map(batches_of, [*init, *columns])),
        )
        self.init = operands[:count]
        self.outs = self.traced.outputs
        self.replay_body = replay_body or body

    def run(self) -> tuple[Flat, Flat]:
        count, traced = self.count, self.traced
        live = [k for k, kind in enumerate(traced.kinds) if kind == LIVE]
        before = [s for s in traced.symbols[:count] if s is not None] if live else []
        trace: Any = store()
        if type(trace) is BatchTrace:
            made = self._run_outside(trace, bool(live))
        else:
            made = self._emit(trace, before)
        results = fill_like(made, self.outs)
        # The carry before each step.
        self.carries = fill_like(made[len(made) - len(before) :], self.init) if live else []
        if live:
            self._record_loop(live, results)
        found = list(map(wrap_variable, results, traced.kinds))
        return found[:count], found[count:]

    def _emit(self, trace: Any, before: Flat) -> Flat:
        graph = self.traced.graph(before)
        loop = Loop(
            "scan",
            (graph,),
            len(present_arrays(self.init)),
            len(present_arrays(self.columns)),
            self.steps,
            self.reverse,
        )
        return list(
            trace.emit_loop(loop, [*present_arrays(self.init), *present_arrays(self.columns)])
        )

    def _run_outside(self, trace: BatchTrace, keeps_carries: bool) -> Flat:
        """Return the results in ``vmap``: those of a scan of payloads, in the store outside."""
        count, (inputs, outputs) = self.count, self.traced.batches
        outputs = [*inputs[:count], *outputs[count:]]
        body = body_outside(
            trace,
            self.step_body,
            self.kinds,
            self.recording,
            (inputs, outputs),
            count if keeps_carries else 0,
        )
        init = list(map(trace.payload_with, self.init, [b[0] for b in inputs]))
        columns = [
            trace.payload_with(c, b[0]) for c, b in zip(self.columns, inputs[count:], strict=True)
        ]

        def scan_payloads() -> tuple[Flat, Flat]:  # whose first axis runs along the steps
            along = _moved_batch(columns, inputs[count:], 0, 1)
            carry, ys = traced_scan(body, init, along, self.steps, self.reverse)
            return carry, _moved_batch(ys, [*outputs[count:], *inputs[:count]], 1, 0)

        carry, ys = trace.compute_outside(scan_payloads)
        batches = [*outputs, *inputs[:count]]
        pairs = zip([*carry, *ys], batches, strict=False)
        return [trace.wrap(payload, b[0]) for payload, b in pairs if payload is not None]

    def _record_loop(self, live: list[int], results: Flat) -> None:
        """Record the loop; results that the recording tracks become Variables on it."""
        self.live = live
        self.body = ReplayedBody.of("scan", self.replay_body, self.kinds, self.traced)
        self.carried = [k for k in range(self.count) if self.kinds[k] == LIVE]
        everything = [*self.init, *self.columns]
        self.tracked = tracked_positions(everything, self.kinds)
        self.ids = list(self.traced.sources)
        inputs = [*[everything[k] for k in self.tracked], *self.traced.sources.values()]
        arrays = [*[results[k] for k in live], *[self.carries[k] for k in self.carried]]
        rules = self._vjp, self._jvp
        made = record_results(
            "scan", self.recording, inputs, arrays, rules, [self.traced], *self._reached_inputs()
        )
        for k, value in zip(live, made, strict=False):
            results[k] = value
        self.carries_as_arrays = list(self.carries)
        for k, value in zip(self.carried, made[len(live) :], strict=True):
            self.carries[k] = value

    def _reached_inputs(self) -> tuple[list[list[int]] | None, list[list[int]]]:
        """Return, for each recorded result, which inputs it reaches for certain, and may reach."""
        depends, definite = [], []
        for number, k in enumerate([*self.live, *self.carried]):
            known = {k} if number >= len(self.live) else set()  # a carry before a step, or after
            depends.append(self._inputs_of(self.traced.depends, k, known))
            certain = self._inputs_of(self.traced.reached, k, known)
            others = set(depends[-1]).difference(certain)  # these by a branch that may not run
            count = len(self.tracked) + len(self.ids)
            definite.append([j for j in range(count) if j not in others])
        return (definite if self.traced.is_conditional() else None), depends

    def _inputs_of(self, reach: Sequence[Reach], result: int, known: set[int]) -> list[int]:
        """Return the positions of the inputs that a result reaches through any number of steps."""
        reached, queue, ids = set(known), [result], set[int]()
        while queue:
            positions, sources = reach[queue.pop()]
            queue += [k for k in positions - reached if k < self.count]
            reached |= positions
            ids |= sources
        found = [j for j, k in enumerate(self.tracked) if k in reached]
        return [*found, *[j for j, id in enumerate(self.ids, len(self.tracked)) if id in ids]]

    def _sweep_values(self, given: Sequence[Any]) -> Flat:
        """Return first carry and columns, with the inputs of the sweep put in."""
        values = [*self.init, *self.columns]
        for k, value in zip(self.tracked, given, strict=False):
            values[k] = value
        return values

    def _vjp(
        self, derivatives: dict[int, MaskedDerivative], given: Sequence[Any], masked: bool
    ) -> list[MaskedDerivative]:
        count, carried, live = self.count, self.carried, self.live
        is_recorded = is_recorded_sweep({j: p.value for j, p in derivatives.items()}, given)
        before = self.carries if is_recorded else self.carries_as_arrays
        columns = self._sweep_values(given)[count:]
        column_ids = [k for k in range(len(self.kinds)) if self.kinds[k] == LIVE and k >= count]
        seeds = {live[j]: p for j, p in derivatives.items() if j < len(live)}
        # Cotangents of the carries before each step, on which derivatives of this loop depend.
        inner = {carried[j - len(live)]: p for j, p in derivatives.items() if j >= len(live)}
        rows = [k for k in seeds if k >= count]
        size, width = len(carried), len(before) + len(columns)
        wide = (size + len(self.ids)) * (1 + masked)

        def backward_step(values: Flat) -> Flat:
            ends, rest = unflatten_derivatives(values[:wide], masked), values[wide:]
            more = dict(
                zip([*rows, *inner], unflatten_derivatives(rest[width:], masked), strict=True)
            )
            gs = {k: more[k] for k in rows}
            gs |= {k: p for k, p in zip(carried, ends, strict=False) if k in live}
            sums = dict(zip(self.ids, ends[size:], strict=True))
            found, totals = body_vjp(self.body, rest[:width], gs, sums, masked)
            for k in inner:
                found[k] = MaskedDerivative.with_mask(found[k].value + more[k].value, None, masked)
            starts = flatten_derivatives([*[found[k] for k in carried], *totals], masked)
            return [*starts, *flatten_derivatives([found[k] for k in column_ids], masked)]

        starts = [seeds.get(k) or MaskedDerivative.zero(self.init[k], masked) for k in carried]
        starts += [MaskedDerivative.zero(v, masked) for v in self.traced.sources.values()]
        along = flatten_derivatives([*[seeds[k] for k in rows], *inner.values()], masked)
        ends, made = traced_scan(
            backward_step,
            flatten_derivatives(starts, masked),
            [*before, *columns, *along],
            self.steps,
            not self.reverse,
        )
        found, asked_parts = (
            unflatten_derivatives(ends, masked),
            unflatten_derivatives(made, masked),
        )
        answers = dict(zip([*carried, *column_ids], [*found[:size], *asked_parts], strict=True))
        return [*[answers[k] for k in self.tracked], *found[size:]]

    def _jvp(
        self, derivatives: dict[int, MaskedDerivative], given: Sequence[Any], masked: bool
    ) -> list[MaskedDerivative]:
        count, carried = self.count, self.carried
        values = self._sweep_values(given)
        moved, others = split_tangents(derivatives, self.tracked, self.ids)
        along = [k for k in moved if k >= count]
        rows = [k for k in self.live if k >= count]
        size, width = len(carried) * (1 + masked), len(values) - count

        def forward_step(values: Flat) -> Flat:
            carry, ends, rest = values[:count], values[count : count + size], values[count + size :]
            now = unflatten_derivatives(ends, masked)
            ts = [*now, *unflatten_derivatives(rest[width:], masked)]
            tangents = dict(zip([*carried, *along], ts, strict=True))
            outputs, found = body_jvp(self.body, [*carry, *rest[:width]], tangents, others, masked)
            after = flatten_derivatives([found[k] for k in carried], masked)
            return [
                *outputs[:count],
                *after,
                *flatten_derivatives([*[found[k] for k in rows], *now], masked),
            ]

        starts = [moved.get(k) or MaskedDerivative.zero(self.init[k], masked) for k in carried]
        columns = [*values[count:], *flatten_derivatives([moved[k] for k in along], masked)]
        begin = [*values[:count], *flatten_derivatives(starts, masked)]
        ends, made = traced_scan(forward_step, begin, columns, self.steps, self.reverse)
        results = unflatten_derivatives(made, masked)
        found = dict(
            zip(
                [*carried, *rows],
                [*unflatten_derivatives(ends[count:], masked), *results],
                strict=False,
            )
        )
        return [*[found[k] for k in self.live], *results[len(rows) :]]
