"""Derivatives of parts of loops and branches, while a graph is traced.

They run a part again, as a checkpoint does, on a tape of its own or, to be differentiated in turn,
on the tape that records. What they pass on are cotangents or tangents with masks of what was left
out by choice, see ``tape.gradient_mask``, where there was a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from odyssey.errors import TapeError
from odyssey.graph.subgraphs import signature
from odyssey.ops.structure.shape import broadcast_to
from odyssey.table.scope import no_grad
from odyssey.table.store import store
from odyssey.table.value import make_value
from odyssey.tape.gradient_mask import GradientMask, either
from odyssey.tape.sweep import drain, pull, push, recorded
from odyssey.tape.tape_base import recording_of
from odyssey.transforms.call_nodes import home_of, kept_inputs, record_call
from odyssey.transforms.control_flow.tracing import (
    LIVE,
    Body,
    Flat,
    Traced,
    array_for,
    dressed,
    is_number,
    spec_for,
)
from odyssey.transforms.isolated_tapes import nodes_of, tape_apart
from odyssey.variable import Variable

__all__ = [
    "Again",
    "Part",
    "Rule",
    "flat_parts",
    "follow",
    "followed",
    "moved_of",
    "parts_of",
    "pulled",
    "pushed",
]


def _zeros(value: Any) -> Any:
    spec = spec_for(value)
    return np.zeros(spec.shape, spec.dtype)


class Again(NamedTuple):
    """A part that derivatives run again.

    Attributes:
        who: For messages.
        body: The part.
        kinds: What its operands are.
        done: What it did at first; None before that is known.
    """

    who: str
    body: Body
    kinds: Sequence[int]
    done: tuple[Any, ...]

    def run(self, values: Flat, others: Sequence[Any]) -> tuple[Flat, Flat, list[Any], Any]:
        """Run it once more.

        Returns:
            What stood for its operands; what it returned; its nodes in order; and the recording
            that they are on if that goes on, else None.

        Raises:
            TapeError: it does something else than at first.
        """
        home: Any = home_of(self.who, [*values, *others])
        tape = tape_apart() if home is None else home.tapes()[0]
        segment = recording_of(tape)

        def followed(value: Any) -> Any:
            if home is not None:  # of ids of their own, since two of them may be one Variable
                return tape.watch(value)
            data, id = array_for(value), segment.new_id()
            return make_value(Variable, data, segment, id, spec_for(value))

        pairs = zip(values, self.kinds, strict=True)
        given = [followed(v) if kind == LIVE else dressed(v, kind) for v, kind in pairs]
        if home is None:
            with tape:
                outputs = self.called(given)
            return given, outputs, list(nodes_of(tape)), None
        first = segment.new_id()
        outputs = self.called(given)
        return given, outputs, [node for node in segment.nodes if node[1] > first], segment

    def called(self, given: Flat) -> Flat:
        """What it returns, if it does what it did."""
        trace: Any = store()
        with trace.watched() as instructions:
            outputs = self.body(given)
        inputs = [v if v is None or is_number(v) else array_for(v) for v in given]
        ends = [None if o is None else array_for(o) for o in outputs]
        if signature(instructions, inputs, ends, trace) != self.done:
            raise TapeError(
                f"{self.who}: run again for its derivative, the function does something else than "
                "at first, or with other values: what it closes over was written to or bound anew "
                "meanwhile; pass it as an argument"
            )
        return outputs


class Part(NamedTuple):
    """A cotangent or a tangent, and where it can be other than 0 by choice.

    Attributes:
        value: The array.
        mask: Truths of its shape; None where no masks are kept. See ``tape.gradient_mask``.
    """

    value: Any
    mask: Any

    @classmethod
    def of(cls, value: Any, mask: GradientMask | None, masked: bool) -> Part:
        """A part, of which a mask is worked out."""
        if not masked:
            return cls(value, None)
        shape = spec_for(value).shape
        return cls(
            value, np.ones(shape, bool) if mask is None else broadcast_to(mask.mask(), shape)
        )

    @classmethod
    def nothing(cls, like: Any, masked: bool) -> Part:
        """What comes of something that nothing depends on."""
        made = _zeros(array_for(like))
        return cls(made, np.zeros(made.shape, bool) if masked else None)


def flat_parts(parts: Iterable[Part], masked: bool) -> Flat:
    """Parts as values that go in and out of a part of the graph."""
    found = list(parts)
    return [*[p.value for p in found], *[p.mask for p in found if masked]]


def parts_of(values: Flat, masked: bool) -> list[Part]:
    """The parts that ``flat_parts`` laid out."""
    if not masked:
        return [Part(value, None) for value in values]
    half = len(values) // 2
    return list(map(Part, values[:half], values[half:]))


class _Sums:
    """Parts by id, added up, and masks of what all of them leave out."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.masks: dict[int, GradientMask] = {}

    def add(self, id: int, part: Part) -> None:
        first = id not in self.values
        self.values[id] = part.value if first else self.values[id] + part.value
        if part.mask is not None:
            mask = GradientMask(lambda: part.mask)
            both = mask if first else either(self.masks.get(id), mask)
            self.masks.pop(id, None)
            if both is not None:
                self.masks[id] = both

    def part(self, id: int, like: Any, masked: bool) -> Part:
        if id not in self.values:
            return Part.nothing(like, masked)
        return Part.of(self.values[id], self.masks.get(id), masked)


def pulled(
    part: Again,
    values: Flat,
    seeds: dict[int, Part],
    sums: dict[int, Part],
    masked: bool,
) -> tuple[dict[int, Part], list[Part]]:
    """From the cotangents of a part's outputs to those of its operands.

    Args:
        part: The part.
        values: Its operands; asked for are those that are LIVE.
        seeds: Cotangents, by number of an output.
        sums: By id of what the part depends on besides, the sum of the cotangents so far.
        masked: Whether masks are kept.

    Returns:
        Cotangents by number of an operand, and the sums.
    """
    others = [g.value for g in (*seeds.values(), *sums.values())]
    given, outputs, nodes, recording = part.run(values, others)
    found = _Sums()
    for id, g in sums.items():
        found.add(id, g)
    for k, g in seeds.items():
        if isinstance(outputs[k], Variable):
            found.add(outputs[k]._id, g)
    order = drain(nodes) if recording is None else recorded(nodes[::-1], recording)
    pull(order, found.values, chosen=found.masks if masked else None)
    live = [k for k, kind in enumerate(part.kinds) if kind == LIVE]
    return (
        {k: found.part(given[k]._id, given[k], masked) for k in live},
        [found.part(id, g.value, masked) for id, g in sums.items()],
    )


def pushed(
    part: Again,
    values: Flat,
    tangents: dict[int, Part],
    others: dict[int, Part],
    masked: bool,
) -> tuple[Flat, list[Any]]:
    """The outputs of a part and their tangents, a Part for each that is not None.

    Args:
        part: The part.
        values: Its operands.
        tangents: By number of an operand that is LIVE.
        others: By id of what the part depends on besides.
        masked: Whether masks are kept.
    """
    more = [t.value for t in (*tangents.values(), *others.values())]
    given, outputs, nodes, recording = part.run(values, more)
    found = _Sums()
    for id, t in [*[(given[k]._id, p) for k, p in tangents.items()], *others.items()]:
        found.add(id, t)
    order = nodes if recording is None else recorded(nodes, recording)
    push(order, found.values, found.masks if masked else None)
    moved = [
        None if o is None else found.part(o._id if isinstance(o, Variable) else 0, o, masked)
        for o in outputs
    ]
    if recording is None:
        outputs = [None if o is None else array_for(o) for o in outputs]
    return outputs, moved


# ------------------------------------------------------------------ recorded


Rule = Callable[[dict[int, Part], Sequence[Any], bool], list[Part]]
"""``rule(parts, inputs, masked)``: from parts of some results to those of all inputs, or the other
way."""


def followed(
    who: str,
    recording: Any,
    inputs: Sequence[Variable],
    results: Sequence[Any],
    rules: tuple[Rule, Rule],
    traced: Sequence[Traced],
) -> list[Variable]:
    """Record results that a tape follows."""
    chooses, poles = any(t.chooses for t in traced), any(t.poles for t in traced)

    def called(rule: Rule) -> Any:
        def run(parts: dict[int, Any], kept: tuple[Any, ...], chosen: dict[int, Any]) -> list[Any]:
            masked = chooses or bool(chosen)
            pairs = {k: Part.of(g, chosen.get(k), masked) for k, g in parts.items()}
            given, _ = kept_inputs(kept, len(inputs))
            if follow(parts, given):
                found = rule(pairs, given, masked)
            else:
                with no_grad():
                    found = rule(pairs, given, masked)
            chosen.clear()
            if masked:
                chosen.update(
                    (k, GradientMask(partial(array_for, p.mask))) for k, p in enumerate(found)
                )
            return [part.value for part in found]

        return run

    backward, forward = map(called, rules)
    return record_call(
        recording, who, inputs, results, backward, forward, chooses=chooses, poles=poles
    )


def follow(parts: dict[int, Any], given: Sequence[Any]) -> bool:
    """Whether a tape follows the sweep."""
    return any(isinstance(v, Variable) for v in (*parts.values(), *given))


def moved_of(
    parts: dict[int, Part], tracked: Sequence[int], ids: Sequence[int]
) -> tuple[dict[int, Part], dict[int, Part]]:
    """Tangents of inputs, by number of an operand, and by id of what came from elsewhere."""
    moved = {k: parts[j] for j, k in enumerate(tracked) if j in parts}
    return moved, {id: parts[j] for j, id in enumerate(ids, len(tracked)) if j in parts}
