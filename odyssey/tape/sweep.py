"""The two sweeps over a recording's nodes: cotangents backward, tangents forward.

Both are one loop over a flat list. Cotangents and tangents live in a dictionary by id; a
cotangent leaves it when its node is reached, so at most the frontier is held.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count as counting
from itertools import repeat
from operator import itemgetter
from typing import Any

from odyssey.errors import NotDifferentiableError
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.structure.unbroadcast import broadcast_tangent, unbroadcast
from odyssey.table.declare import PASS
from odyssey.table.value import make_value
from odyssey.tape.gradient_mask import GradientMask, MaskTracker, either, fitted, poles_among, step
from odyssey.tape.liveness import measured, references, unheld_in_a_sweep
from odyssey.tape.recording import RawNode, Recording
from odyssey.variable import Variable

__all__ = ["dependencies", "dependents", "drain", "flip", "pull", "push", "recorded"]

Visit = Callable[[int, Any], Any]
Audit = Callable[[Any, int, str, Any], None]


def pull(
    nodes: Iterable[RawNode],
    cotangents: dict[int, Any],
    reached: dict[int, Any] | None = None,
    spare: int = 0,
    wanted: set[int] | None = None,
    visit: Visit | None = None,
    audit: Audit | None = None,
    ahead: Sequence[RawNode] | None = None,
    bare: bool = False,
    chosen: dict[int, GradientMask] | None = None,
) -> None:
    """Propagate ``cotangents`` through ``nodes``, which come last first.

    Args:
        nodes: The nodes, in reverse order of recording.
        cotangents: By id; ends up with those of the ids that no node produced.
        reached: Gets the complete cotangent of each result that more than ``spare`` places refer
            to, which is how a living Variable shows.
        spare: See ``reached``.
        wanted: Ids whose cotangents are needed; None for all.
        visit: Called with the id and complete cotangent of each node; returns the one to use.
        audit: Called with the row, id, operand and gradient after each rule.
        ahead: Nodes among which all are that are still to come, or None where that is not known.
            If a slope of theirs may be infinite, what a choice leaves out is kept at 0.
        bare: Whether all cotangents, and all that nodes kept, are arrays and numbers.
        chosen: Masks of ``cotangents``, by id; ends up with those of what they end up with.
    """
    guard = MaskTracker(chosen) if chosen else None
    usual = wanted is None and audit is None
    plain = usual and guard is None
    take = cotangents.pop
    i: int | None
    j: int | None
    for row, id, inputs, kept, specs in nodes:
        i = j = None  # else the last node's operand, which may be this result, would seem alive
        g = take(id, None)
        if g is None:
            continue
        if visit is not None:
            seen, g = g, visit(id, g)
            if guard is not None and g is not seen:
                guard.take(id)
        if reached is not None and references(id) > spare:
            reached[id] = g
        if bare:  # so no operand that is here lacks a rule
            rules, count = row.array_pullbacks, row.small_arity
        else:
            rules, count = row.pullbacks, row.unrolled_arity
        if count < 1 and guard is None and row.selects:
            if poles_among(ahead):
                guard = MaskTracker({})
            else:
                count = -count
            ahead = ()  # those that come now need no second look
        if count > 0 and plain:
            # The commonest nodes, spelled out; the loop below does the same for all.
            i = inputs[0]
            if i is not None:
                rule = rules[0]
                r = g if rule is PASS else rule(g, kept, specs)
                if specs is not None:
                    own = specs[0]
                    if own is not None and (r.dtype is not own.dtype or r.shape != own.shape):
                        r = unbroadcast(r, own)
                cotangents[i] = cotangents[i] + r if i in cotangents else r
            if count == 2:
                j = inputs[1]
                if j is not None:
                    rule = rules[1]
                    r = g if rule is PASS else rule(g, kept, specs)
                    if specs is not None:
                        own = specs[1]
                        if own is not None and (r.dtype is not own.dtype or r.shape != own.shape):
                            r = unbroadcast(r, own)
                    cotangents[j] = cotangents[j] + r if j in cotangents else r
            continue
        mask = None if guard is None else guard.take(id)
        # Of the specs the last is the result's, which no operand meets.
        for k, i, rule, spec, name in zip(
            counting(), inputs, rules, specs or repeat(None), row.arrays
        ):
            if i is None or (wanted is not None and i not in wanted):
                continue
            if rule is None:
                raise _no_rule(row, name)
            r = g if rule is PASS else rule(g, kept, specs)
            if guard is not None:
                r, passed = step((row, kept, specs), row.selection_pullbacks, k, g, r, mask)
                guard.meet(i, fitted(passed, r, spec), i not in cotangents)
            if spec is not None and (r.dtype is not spec.dtype or r.shape != spec.shape):
                r = unbroadcast(r, spec)
            if audit is not None:
                audit(row, id, name, r)
            cotangents[i] = cotangents[i] + r if i in cotangents else r
        if guard is not None:
            plain = usual and not guard.known
    if chosen is not None:
        chosen.clear()
        chosen.update(guard.left() if guard is not None else {})


def push(
    nodes: Iterable[RawNode],
    tangents: dict[int, Any],
    chosen: dict[int, GradientMask] | None = None,
) -> None:
    """Propagate ``tangents``, and masks of what can be other than 0, through ``nodes`` in order."""
    masks = {} if chosen is None else chosen
    tangent_of = tangents.get
    for row, id, inputs, kept, specs in nodes:
        total = mask = None
        if not (masks or row.selects or (row.rearranges and len(inputs) > 1)):
            # The commonest nodes, spelled out; the loop below does the same for all.
            for k, i in enumerate(inputs):
                t = tangent_of(i)  # type: ignore[arg-type]  # of None there is none
                if t is None:
                    continue
                rule = row.pushforwards[k]
                if rule is None:
                    raise _no_rule(row, row.arrays[k])
                moved = t if rule is PASS else rule(t, kept, specs)
                total = moved if total is None else total + moved
            if total is not None:
                if specs is not None:
                    spec = specs[-1]
                    if total.dtype is not spec.dtype or total.shape != spec.shape:
                        total = broadcast_tangent(total, spec)
                tangents[id] = total
            continue
        for k, i in enumerate(inputs):
            t = None if i is None else tangents.get(i)
            if t is None:
                continue
            rule = row.pushforwards[k]
            if rule is None:
                raise _no_rule(row, row.arrays[k])
            moved, passed = t if rule is PASS else rule(t, kept, specs), None
            starts = row.rearranges and len(inputs) > 1
            # Of an operand without a mask the others' places are left out all the same.
            starts = starts and (bool(masks) or _stands_beside(row, inputs, tangents))
            if masks or row.selects or starts:
                node, known = (row, kept, specs), masks.get(inputs[k])  # type: ignore[arg-type]
                moved, passed = step(node, row.selection_pushforwards, k, t, moved, known, starts)
            mask = passed if total is None else either(mask, passed)
            total = moved if total is None else total + moved
        if total is not None:
            if mask is not None:
                masks[id] = mask
            tangents[id] = total if specs is None else broadcast_tangent(total, specs[-1])


def _stands_beside(row: Any, inputs: Iterable[int | None], tangents: dict[int, Any]) -> bool:
    """Whether an operand that could move does not, whose place in the result is 0 by choice."""
    return any(
        i not in tangents
        for i, rule in zip(inputs, row.pushforwards, strict=True)
        if rule is not None
    )


def _no_rule(row: Any, name: str) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{row.name}: not differentiable with respect to {name}; "
        f"pass it detached, as {name}.detach(), if its gradient is not meant"
    )


# ------------------------------------------------------------------ which nodes, and how


def drain(nodes: list[RawNode], start: int = 0) -> Iterator[RawNode]:
    """Iterate from the last node to number ``start``, taking each off the list."""
    return map(nodes.pop, repeat(-1, len(nodes) - start))


def first_after(recording: Recording, ids: Iterable[int | None]) -> int:
    """The number of the first node that can depend on ``ids``: later ids, later nodes."""
    nodes, made = recording.nodes, []
    if recording.manual:
        return 0
    for id in ids:
        if id is None or id in recording.leaves:
            return 0
        made.append(id)
    if not made:
        return len(nodes)
    least, start = min(made), len(nodes)
    while True:
        start = bisect_left(nodes, least, hi=start, key=itemgetter(1))
        # What a handler of signals recorded while an op ran stands before it, with larger ids.
        if start < 2 or nodes[start - 1][1] > nodes[start - 2][1]:
            return start
        start -= 1


def dependents(nodes: Iterable[RawNode], sources: Iterable[int]) -> set[int]:
    """The ids among ``nodes`` that depend on ``sources``, and the sources."""
    found = set(sources)
    apart = found.isdisjoint
    for _, id, inputs, _, _ in nodes:
        if not apart(inputs):
            found.add(id)
    return found


def dependencies(nodes: list[RawNode], results: Iterable[int]) -> set[int]:
    """The ids that ``results`` depend on, and the results; ``nodes`` in order of recording."""
    found = set(results)
    for _, id, inputs, _, _ in reversed(nodes):
        if id in found:
            found.update(i for i in inputs if i is not None)
    return found


def recorded(nodes: Iterable[RawNode], recording: Recording) -> Iterator[RawNode]:
    """Yield nodes whose saved arrays are Variables again, so that running their rules records."""
    results: dict[tuple[int, str], int] | None = None
    for row, id, inputs, kept, specs in nodes:
        if kept is not None:
            places: tuple[Any, ...] = (*inputs, id)
            if row.result_rows:
                results = _results_of_calls(recording) if results is None else results
                places = (*inputs, *_ids_of_results(recording, results, row, id, kept, specs))
            # Without the residual: it is an array, and the rule is to be differentiated.
            kept = kept[: len(places) + len(row.options)]
            kept = tuple(
                make_value(Variable, value, recording, places[k])
                if k < len(places) and value is not None and places[k] is not None
                else value
                for k, value in enumerate(kept)
            )
        yield row, id, inputs, kept, specs


def _results_of_calls(recording: Recording) -> dict[tuple[int, str], int]:
    """By the id of a call with several results, and the name of a result's row, the result's id.

    They are the nodes' own ints, see ``liveness``.
    """
    calls = {node[1] for node in recording.nodes if node[0].result_rows}
    return {
        (inputs[0], row.name): id
        for row, id, inputs, _, _ in recording.nodes
        if len(inputs) == 1 and inputs[0] in calls
    }


def _ids_of_results(
    recording: Recording,
    known: dict[tuple[int, str], int],
    row: Any,
    call: int,
    kept: Any,
    specs: Any,
) -> list[int | None]:
    """The ids of a call's results, of those that its rules ask for.

    A result that nobody held may have been pruned: it gets a node again, since what a rule makes of
    it is to be differentiated. None for what no rule asks for, and for integers.
    """
    found: list[int | None] = []
    for j, (part, spec) in enumerate(zip(row.result_rows, specs[-1].parts, strict=True)):
        if kept[len(row.arrays) + j] is None or spec.dtype.kind not in "fc":
            found.append(None)
            continue
        id = known.get((call, part.name))
        if id is None:
            id = known[call, part.name] = recording.new_id()
            recording.add((part, id, (call,), (), (specs[-1], spec)), None)
        found.append(id)
    return found


def flip(g: Any) -> Any:
    """Conjugate where complex: rules are plain transposes, gradients are conjugated ones."""
    return conj(g) if g is not None and g.dtype.kind == "c" else g


# Up to so many references to the id of a result, nobody holds it but this sweep.
SPARE = measured(lambda: unheld_in_a_sweep(pull, drain, PASS), places=1)
