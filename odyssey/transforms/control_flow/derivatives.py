"""Derivatives of loop bodies and branches, while a graph is traced.

They run a body again, as a checkpoint does, on an isolated tape or, if the sweep is recorded, on
the tape that records. The derivatives carry gradient masks if elements are selected, see
``tape.gradient_mask``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.same_device import zeros_beside
from odyssey.errors import TapeError
from odyssey.graph.batch_trace import BatchTrace, spread_to
from odyssey.ops.structure.shape import broadcast_to
from odyssey.table.scope import PauseBlock
from odyssey.table.store import store
from odyssey.table.value import make_value, recording_attribute
from odyssey.tape.gradient_mask import GradientMask, union_masks
from odyssey.tape.recording import RawNode
from odyssey.tape.sweep import backward_sweep, forward_sweep, pop_nodes, with_variables
from odyssey.tape.tape_base import recording_of
from odyssey.transforms.call_nodes import record_call, recording_for, split_saved
from odyssey.transforms.control_flow.tracing import (
    LIVE,
    Batches,
    Body,
    Flat,
    TracedBody,
    body_signature,
    graph_value,
    is_number,
    spec_or_number,
    wrap_variable,
)
from odyssey.transforms.isolated_tapes import covered_nodes, isolated_tape
from odyssey.variable import Variable

__all__ = [
    "MaskedDerivative",
    "ReplayedBody",
    "Rule",
    "body_jvp",
    "body_vjp",
    "flatten_derivatives",
    "is_recorded_sweep",
    "record_results",
    "split_tangents",
    "swept_cotangents",
    "unflatten_derivatives",
]


def _zeros_for(value: Any) -> Any:
    """Return zeros of the spec of ``value``."""
    return zeros_beside(spec_or_number(value), value)


class ReplayedBody(NamedTuple):
    """A body that derivatives run again.

    Attributes:
        who: For messages.
        body: The body.
        kinds: The kinds of its operands.
        done: The signature of its first run.
        batches: The batches of its operands in that run; see ``batches_of``.
    """

    who: str
    body: Body
    kinds: Sequence[int]
    done: tuple[Any, ...]
    batches: Sequence[Batches] = ()

    @classmethod
    def of(cls, who: str, body: Body, kinds: Sequence[int], traced: TracedBody) -> ReplayedBody:
        """Return the body of a first run."""
        return cls(who, body, kinds, traced.ops_signature(), traced.batches[0])

    def run(self, values: Flat, others: Sequence[Any]) -> tuple[Flat, Flat, list[Any], Any]:
        """Run the body again.

        Returns:
            Its operands as they were passed; its outputs; its nodes in order; and the recording
            that they are on if the sweep is recorded, else None.

        Raises:
            TapeError: it does something else than in the first run.
        """
        home: Any = recording_for(self.who, [*values, *others])
        tape = isolated_tape() if home is None else home.tapes()[0]
        segment = recording_of(tape)

        values = self._spread(values)

        def tracked(value: Any) -> Any:
            if home is not None:  # new ids, because two operands may be one Variable
                return tape.watch(value)
            data, id = graph_value(value), segment.new_id()
            return make_value(Variable, data, segment, id, spec_or_number(value))

        pairs = zip(values, self.kinds, strict=True)
        given = [tracked(v) if kind == LIVE else wrap_variable(v, kind) for v, kind in pairs]
        if home is None:
            with tape:
                outputs = self.call_and_verify(given)
            return given, outputs, list(covered_nodes(tape)), None
        first = segment.new_id()
        outputs = self.call_and_verify(given)
        return given, outputs, [node for node in segment.nodes if node[1] > first], segment

    def _spread(self, values: Flat) -> Flat:
        """Return operands that have the batches of the first run, and so take the same ops."""
        if not self.batches or type(store()) is not BatchTrace:
            return values
        return list(map(self._spread_operand, values, self.kinds, self.batches))

    def _spread_operand(self, value: Any, kind: int, batches: Batches) -> Any:
        if value is None or is_number(value):
            return value
        data = graph_value(value)
        spread = spread_to(data, batches)
        if spread is data:
            return value
        if not isinstance(value, Variable):
            return spread
        own = recording_attribute(value)  # the value of an example is the same, and so is its id
        return make_value(Variable, spread, own, value._id, value._spec)

    def spread_and_call(self, values: Flat) -> Flat:
        """Call the body on values that were operands of its first run; see ``call_and_verify``."""
        return self.call_and_verify(self._spread(values))

    def call_and_verify(self, given: Flat) -> Flat:
        """Return the outputs of the body; raise TapeError if it computes something else."""
        trace: Any = store()
        with trace.emitted_instructions() as instructions:
            outputs = self.body(given)
        if body_signature(instructions, given, outputs) != self.done:
            raise TapeError(
                f"{self.who}: the function behaved differently, or used other values, when it was "
                "run again for its derivative: a value that it closes over was changed or rebound "
                "in between; pass it as an argument"
            )
        return outputs


class MaskedDerivative(NamedTuple):
    """A cotangent or a tangent, and a mask of the elements that can be nonzero.

    Attributes:
        value: The array.
        mask: Booleans of its shape; None if no masks are kept. See ``tape.gradient_mask``.
    """

    value: Any
    mask: Any

    @classmethod
    def with_mask(cls, value: Any, mask: GradientMask | None, masked: bool) -> MaskedDerivative:
        """Return a derivative whose lazy mask is computed."""
        if not masked:
            return cls(value, None)
        shape = spec_or_number(value).shape
        return cls(
            value, np.ones(shape, bool) if mask is None else broadcast_to(mask.mask(), shape)
        )

    @classmethod
    def zero(cls, like: Any, masked: bool) -> MaskedDerivative:
        """Return a derivative of zeros, all masked out."""
        made = _zeros_for(graph_value(like))
        return cls(made, np.zeros(made.shape, bool) if masked else None)


def flatten_derivatives(derivatives: Iterable[MaskedDerivative], masked: bool) -> Flat:
    """Return derivatives as a flat list: the values, then the masks."""
    found = list(derivatives)
    return [*[p.value for p in found], *[p.mask for p in found if masked]]


def unflatten_derivatives(values: Flat, masked: bool) -> list[MaskedDerivative]:
    """Return the derivatives that ``flatten_derivatives`` flattened."""
    if not masked:
        return [MaskedDerivative(value, None) for value in values]
    half = len(values) // 2
    return list(map(MaskedDerivative, values[:half], values[half:]))


class _DerivativeSums:
    """Sums of derivatives by id, with masks of the elements that all terms mask out."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.masks: dict[int, GradientMask] = {}

    def accumulate(self, id: int, part: MaskedDerivative) -> None:
        first = id not in self.values
        self.values[id] = part.value if first else self.values[id] + part.value
        if part.mask is not None:
            mask = GradientMask(lambda: part.mask)
            both = mask if first else union_masks(self.masks.get(id), mask)
            self.masks.pop(id, None)
            if both is not None:
                self.masks[id] = both

    def total(self, id: int, like: Any, masked: bool) -> MaskedDerivative:
        if id not in self.values:
            return MaskedDerivative.zero(like, masked)
        return MaskedDerivative.with_mask(self.values[id], self.masks.get(id), masked)


def body_vjp(
    body: ReplayedBody,
    values: Flat,
    seeds: dict[int, MaskedDerivative],
    sums: dict[int, MaskedDerivative],
    masked: bool,
) -> tuple[dict[int, MaskedDerivative], list[MaskedDerivative]]:
    """Return the cotangents of a body's operands from those of its outputs.

    Args:
        body: The body.
        values: Its operands; the cotangents are returned for those of kind LIVE.
        seeds: Cotangents, by number of an output.
        sums: By id of each captured value, the sum of its cotangents so far.
        masked: Whether masks are kept.

    Returns:
        Cotangents by number of an operand, and the sums.
    """
    others = [g.value for g in (*seeds.values(), *sums.values())]
    given, outputs, nodes, recording = body.run(values, others)
    order = pop_nodes(nodes) if recording is None else with_variables(nodes[::-1], recording)
    live = {k: given[k] for k, kind in enumerate(body.kinds) if kind == LIVE}
    return swept_cotangents(order, live, outputs, seeds, sums, masked)


def swept_cotangents(
    nodes: Iterable[RawNode],
    live: dict[int, Any],
    outputs: Flat,
    seeds: dict[int, MaskedDerivative],
    sums: dict[int, MaskedDerivative],
    masked: bool,
) -> tuple[dict[int, MaskedDerivative], list[MaskedDerivative]]:
    """Sweep the nodes of a body, the last one first; see ``body_vjp``.

    Args:
        nodes: Its nodes, in reverse order.
        live: Its operands of kind LIVE, by position.
        outputs: Its outputs.
        seeds: Cotangents, by number of an output.
        sums: By id of each captured value, the sum of its cotangents so far.
        masked: Whether masks are kept.
    """
    totals = _DerivativeSums()
    for id, g in sums.items():
        totals.accumulate(id, g)
    for k, g in seeds.items():
        if isinstance(outputs[k], Variable):
            totals.accumulate(outputs[k]._id, g)
    backward_sweep(nodes, totals.values, masks=totals.masks if masked else None)
    return (
        {k: totals.total(v._id, v, masked) for k, v in live.items()},
        [totals.total(id, g.value, masked) for id, g in sums.items()],
    )


def body_jvp(
    body: ReplayedBody,
    values: Flat,
    tangents: dict[int, MaskedDerivative],
    others: dict[int, MaskedDerivative],
    masked: bool,
) -> tuple[Flat, list[Any]]:
    """Return the outputs of a body and their tangents, one for each output that is not None.

    Args:
        body: The body.
        values: Its operands.
        tangents: By number of an operand of kind LIVE.
        others: By id of each captured value.
        masked: Whether masks are kept.
    """
    more = [t.value for t in (*tangents.values(), *others.values())]
    given, outputs, nodes, recording = body.run(values, more)
    totals = _DerivativeSums()
    for id, t in [*[(given[k]._id, p) for k, p in tangents.items()], *others.items()]:
        totals.accumulate(id, t)
    order = nodes if recording is None else with_variables(nodes, recording)
    forward_sweep(order, totals.values, totals.masks if masked else None)
    tangents_out = [
        None if o is None else totals.total(o._id if isinstance(o, Variable) else 0, o, masked)
        for o in outputs
    ]
    if recording is None:
        outputs = [None if o is None else graph_value(o) for o in outputs]
    return outputs, tangents_out


# ------------------------------------------------------------------ recording


Rule = Callable[[dict[int, MaskedDerivative], Sequence[Any], bool], list[MaskedDerivative]]
"""``rule(derivatives, inputs, masked)``: from those of some results to those of all inputs, or vice
versa."""


def record_results(
    who: str,
    recording: Any,
    inputs: Sequence[Variable],
    results: Sequence[Any],
    rules: tuple[Rule, Rule],
    traced: Sequence[TracedBody],
    definite: Sequence[Sequence[int]] | None = None,
    depends: Sequence[Sequence[int]] | None = None,
) -> list[Variable]:
    """Record the results of a loop or branch as one call, and return them as Variables.

    See ``record_call`` for ``definite``.
    """
    selects = any(t.selects for t in traced)
    has_poles = any(t.has_poles for t in traced)

    def as_call_rule(rule: Rule) -> Any:
        def run(
            derivatives: dict[int, Any], kept: tuple[Any, ...], chosen: dict[int, Any]
        ) -> list[Any]:
            masked = selects or bool(chosen)
            pairs = {
                k: MaskedDerivative.with_mask(g, chosen.get(k), masked)
                for k, g in derivatives.items()
            }
            given, _ = split_saved(kept, len(inputs))
            if is_recorded_sweep(derivatives, given):
                found = rule(pairs, given, masked)
            else:
                with PauseBlock(is_local=True):
                    found = rule(pairs, given, masked)
            chosen.clear()
            if masked:
                chosen.update(
                    (k, GradientMask(partial(graph_value, p.mask))) for k, p in enumerate(found)
                )
            return [part.value for part in found]

        return run

    backward, forward = map(as_call_rule, rules)
    return record_call(
        recording,
        who,
        inputs,
        results,
        backward,
        forward,
        selects=selects,
        has_poles=has_poles,
        definite=definite,
        depends=depends,
    )


def is_recorded_sweep(derivatives: dict[int, Any], given: Sequence[Any]) -> bool:
    """True if a tape records the sweep."""
    return any(isinstance(v, Variable) for v in (*derivatives.values(), *given))


def split_tangents(
    derivatives: dict[int, MaskedDerivative], tracked: Sequence[int], ids: Sequence[int]
) -> tuple[dict[int, MaskedDerivative], dict[int, MaskedDerivative]]:
    """Return tangents of inputs by number of an operand, and by id of a captured value."""
    moved = {k: derivatives[j] for j, k in enumerate(tracked) if j in derivatives}
    return moved, {id: derivatives[j] for j, id in enumerate(ids, len(tracked)) if j in derivatives}
