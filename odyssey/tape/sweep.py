"""Backward and forward sweeps over the nodes of a recording.

Both are one loop over a flat list. Cotangents and tangents are kept in a dictionary by id. A
cotangent is removed when its node is reached, so at most the frontier is held.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count as counting
from itertools import repeat
from operator import add, itemgetter
from typing import Any, Protocol

from odyssey.devices.arrays import DEVICE_TYPES
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.same_device import add_beside
from odyssey.errors import NotDifferentiableError
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.structure.unbroadcast import broadcast_tangent, unbroadcast
from odyssey.sparse_rows import SparseRows
from odyssey.table.declare import PASS
from odyssey.table.scope import casts_now, run_without_casts
from odyssey.table.value import make_value
from odyssey.tape.gradient_mask import (
    GradientMask,
    MaskTracker,
    any_poles,
    propagate_mask,
    sum_mask_to,
    union_masks,
)
from odyssey.tape.liveness import measured_refcount, refcount, unheld_refcount_in_sweep
from odyssey.tape.recording import RawNode, Recording
from odyssey.variable import Variable

__all__ = [
    "backward_sweep",
    "conj_if_complex",
    "definite_dependencies",
    "dependencies",
    "dependents",
    "forward_sweep",
    "pop_nodes",
    "with_variables",
]

Visit = Callable[[int, Any], Any]


class Audit(Protocol):
    """Checks of a sweep; see ``NodeChecks``."""

    def check_value(self, id: int, g: Any, /) -> None:
        """Check the value of a result with this cotangent."""

    def check_gradient(self, node: RawNode, name: str, g: Any, r: Any, /) -> None:
        """Check the gradient ``r`` of an operand."""


def backward_sweep(
    nodes: Iterable[RawNode],
    cotangents: dict[int, Any],
    reached: dict[int, Any] | None = None,
    own_refs: int = 0,
    wanted: set[int] | None = None,
    visit: Visit | None = None,
    audit: Audit | None = None,
    ahead: Sequence[RawNode] | None = None,
    arrays_only: bool = False,
    masks: dict[int, GradientMask] | None = None,
) -> None:
    """Propagate ``cotangents`` through ``nodes``, the last node first (vector-Jacobian products).

    Args:
        nodes: The nodes, in reverse order of recording.
        cotangents: By id; on return those of the ids that no node produced.
        reached: Gets the complete cotangent of each result whose id has more than ``own_refs``
            references, which shows that its Variable is alive.
        own_refs: The number of references to an id that come from the sweep itself.
        wanted: Ids whose cotangents are needed; None for all.
        visit: Called with the id and complete cotangent of each node; returns the one to use.
        audit: Checks the value of each node before its rules, and the gradient after each.
        ahead: A superset of the nodes that are still to come, or None if they are unknown. If one
            of them may have an infinite slope, masked-out elements are kept at 0.
        arrays_only: True if all cotangents and saved values are arrays and numbers.
        masks: Masks of ``cotangents``, by id; on return those of the remaining cotangents.
    """
    if casts_now():  # rules compute in the dtypes that were recorded
        run_without_casts(
            *(backward_sweep, nodes, cotangents, reached, own_refs, wanted, visit, audit, ahead),
            arrays_only=arrays_only,
            masks=masks,
        )
        return
    tracker = MaskTracker(masks) if masks else None
    usual = wanted is None and audit is None
    # A sum is computed on the current device, which is that of one cotangent of a sweep at most.
    plus: Callable[[Any, Any], Any] = add_beside if DEVICE_TYPES and not arrays_only else add
    usual = usual and plus is add
    plain = usual and tracker is None
    take = cotangents.pop
    i: int | None
    j: int | None
    for row, id, inputs, kept, specs in nodes:
        i = j = None  # a reference left from the last node would make this result seem alive
        g = take(id, None)
        if g is None:
            continue
        if visit is not None:
            before, g = g, visit(id, g)
            if tracker is not None and g is not before:
                tracker.pop_mask(id)
        if reached is not None and refcount(id) > own_refs:
            reached[id] = g
        if arrays_only:  # every operand with an id has a rule
            rules, count = row.array_pullbacks, row.small_arity
        else:
            rules, count = row.pullbacks, row.unrolled_arity
        if count < 1 and tracker is None and row.selects:
            if any_poles(ahead):
                tracker = MaskTracker({})
            else:
                count = -count
            ahead = ()  # the nodes still to come were examined
        if count > 0 and plain:
            # Fast path for the most frequent nodes; the loop below handles all.
            i = inputs[0]
            if i is not None:
                rule = rules[0]
                r = g if rule is PASS else rule(g, kept, specs)
                if specs is not None:
                    spec = specs[0]
                    if spec is not None and (r.dtype is not spec.dtype or r.shape != spec.shape):
                        r = unbroadcast(r, spec)
                cotangents[i] = cotangents[i] + r if i in cotangents else r
            if count == 2:
                j = inputs[1]
                if j is not None:
                    rule = rules[1]
                    r = g if rule is PASS else rule(g, kept, specs)
                    if specs is not None:
                        spec = specs[1]
                        if spec is not None and (
                            r.dtype is not spec.dtype or r.shape != spec.shape
                        ):
                            r = unbroadcast(r, spec)
                    cotangents[j] = cotangents[j] + r if j in cotangents else r
            continue
        mask = None if tracker is None else tracker.pop_mask(id)
        if audit is not None:
            audit.check_value(id, g)
        # The last spec is that of the result; zip ends before it.
        for k, i, rule, spec, name in zip(
            counting(), inputs, rules, specs or repeat(None), row.arrays
        ):
            if i is None or (wanted is not None and i not in wanted):
                continue
            if rule is None:
                raise _missing_rule(row, name)
            r = g if rule is PASS else rule(g, kept, specs)
            if tracker is not None:
                if type(r) is SparseRows:
                    r = r.to_dense()
                r, passed = propagate_mask(
                    (row, kept, specs), row.selection_pullbacks, k, g, r, mask
                )
                tracker.accumulate(i, sum_mask_to(passed, r, spec), i not in cotangents)
            if spec is not None and (r.dtype is not spec.dtype or r.shape != spec.shape):
                r = unbroadcast(r, spec)
            if audit is not None:
                audit.check_gradient((row, id, inputs, kept, specs), name, g, r)
            cotangents[i] = plus(cotangents[i], r) if i in cotangents else r
        if tracker is not None:
            plain = usual and not tracker.masks
    if masks is not None:
        masks.clear()
        masks.update(tracker.remaining() if tracker is not None else {})


def forward_sweep(
    nodes: Iterable[RawNode],
    tangents: dict[int, Any],
    operand_masks: dict[int, GradientMask] | None = None,
) -> None:
    """Propagate ``tangents`` and their masks through ``nodes`` in order (JVPs)."""
    if casts_now():  # as above
        run_without_casts(forward_sweep, nodes, tangents, operand_masks)
        return
    masks = {} if operand_masks is None else operand_masks
    plus: Callable[[Any, Any], Any] = add_beside if DEVICE_TYPES else add
    tangent_of = tangents.get
    for row, id, inputs, kept, specs in nodes:
        total = mask = None
        if not (masks or row.selects or (row.rearranges and len(inputs) > 1)):
            # Fast path for the most frequent nodes; the loop below handles all.
            for k, i in enumerate(inputs):
                t = tangent_of(i)  # type: ignore[arg-type]  # of None there is none
                if t is None:
                    continue
                rule = row.pushforwards[k]
                if rule is None:
                    raise _missing_rule(row, row.arrays[k])
                t_out = t if rule is PASS else rule(t, kept, specs)
                total = t_out if total is None else plus(total, t_out)
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
                raise _missing_rule(row, row.arrays[k])
            t_out, passed = t if rule is PASS else rule(t, kept, specs), None
            begins = row.rearranges and len(inputs) > 1
            # An operand without a mask masks out the positions of the others nevertheless.
            begins = begins and (bool(masks) or _has_still_operand(row, inputs, tangents))
            if masks or row.selects or begins:
                node, known = (row, kept, specs), masks.get(inputs[k])  # type: ignore[arg-type]
                t_out, passed = propagate_mask(
                    node, row.selection_pushforwards, k, t, t_out, known, begins
                )
            mask = passed if total is None else union_masks(mask, passed)
            total = t_out if total is None else plus(total, t_out)
        if total is not None:
            if mask is not None:
                masks[id] = mask
            tangents[id] = total if specs is None else broadcast_tangent(total, specs[-1])


def _has_still_operand(row: Any, inputs: Iterable[int | None], tangents: dict[int, Any]) -> bool:
    """True if a differentiable operand has no tangent; its part of the result is masked out."""
    return any(
        i not in tangents
        for i, rule in zip(inputs, row.pushforwards, strict=True)
        if rule is not None
    )


def _missing_rule(row: Any, name: str) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{row.name}: not differentiable with respect to {name}; "
        f"pass it detached, as {name}.detach(), if its gradient is not meant"
    )


# ------------------------------------------------------------------ which nodes, and how


def pop_nodes(nodes: list[RawNode], start: int = 0) -> Iterator[RawNode]:
    """Iterate from the last node down to number ``start``, and remove each from the list."""
    return map(nodes.pop, repeat(-1, len(nodes) - start))


def first_dependent(recording: Recording, ids: Iterable[int | None]) -> int:
    """Return the number of the first node that may depend on ``ids``; ids rise with nodes."""
    nodes, result_ids = recording.nodes, []
    if recording.manual:
        return 0
    for id in ids:
        if id is None or id in recording.leaves:
            return 0
        result_ids.append(id)
    if not result_ids:
        return len(nodes)
    smallest, start = min(result_ids), len(nodes)
    while True:
        start = bisect_left(nodes, smallest, hi=start, key=itemgetter(1))
        # Nodes that a signal handler recorded while an op ran precede it, with larger ids.
        if start < 2 or nodes[start - 1][1] > nodes[start - 2][1]:
            return start
        start -= 1


def dependents(nodes: Iterable[RawNode], sources: Iterable[int]) -> set[int]:
    """Return the ids among ``nodes`` that depend on ``sources``, and the sources."""
    dependent = set(sources)
    is_disjoint = dependent.isdisjoint
    for _, id, inputs, _, _ in nodes:
        if not is_disjoint(inputs):
            dependent.add(id)
    return dependent


def dependencies(nodes: list[RawNode], results: Iterable[int]) -> set[int]:
    """Return the ids that ``results`` depend on, and the results; ``nodes`` are in order."""
    needed = set(results)
    for _, id, inputs, _, _ in reversed(nodes):
        if id in needed:
            needed.update(i for i in inputs if i is not None)
    return needed


def definite_dependencies(nodes: list[RawNode], results: Iterable[int]) -> set[int]:
    """Return those of ``dependencies`` that a sweep reaches whichever branch of each cond ran."""
    needed = set(results)
    for row, id, inputs, _, _ in reversed(nodes):
        if id in needed:
            definite = getattr(row, "definite_inputs", inputs)
            needed.update(i for i in definite if i is not None)
    return needed


def with_variables(nodes: Iterable[RawNode], recording: Recording) -> Iterator[RawNode]:
    """Yield nodes whose saved arrays are Variables again, so that running their rules records."""
    results: dict[tuple[int, str], int] | None = None
    if recording.rounding is not None:
        nodes = map(partial(recording.rounding.widened, share=True), nodes)
    for row, id, inputs, kept, specs in nodes:
        if kept is not None:
            ids: tuple[Any, ...] = (*inputs, id)
            if row.result_rows:
                results = _result_ids_by_call(recording) if results is None else results
                ids = (*inputs, *_result_ids_of(recording, results, row, id, kept, specs))
            # Without the residual, which is an array: the rule is to be differentiated.
            kept = kept[: len(ids) + len(row.options)]
            kept = tuple(
                make_value(Variable, value, recording, ids[k])
                if k < len(ids) and value is not None and ids[k] is not None
                else value
                for k, value in enumerate(kept)
            )
        yield row, id, inputs, kept, specs


def _result_ids_by_call(recording: Recording) -> dict[tuple[int, str], int]:
    """Return the id of each result of a multi-output call, by call id and name of the result's row.

    The ids are the nodes' own ints, see ``liveness``.
    """
    calls = {node[1] for node in recording.nodes if node[0].result_rows}
    return {
        (inputs[0], row.name): id
        for row, id, inputs, _, _ in recording.nodes
        if len(inputs) == 1 and inputs[0] in calls
    }


def _result_ids_of(
    recording: Recording,
    known: dict[tuple[int, str], int],
    row: Any,
    call: int,
    kept: Any,
    specs: Any,
) -> list[int | None]:
    """Return the ids of a call's results that its rules need; None for other results and integers.

    A result whose Variable died may have been pruned. It gets a node again, because the result of
    the rule is to be differentiated.
    """
    ids: list[int | None] = []
    for j, (result_row, spec) in enumerate(zip(row.result_rows, specs[-1].parts, strict=True)):
        if kept[len(row.arrays) + j] is None or not is_inexact(spec.dtype):
            ids.append(None)
            continue
        id = known.get((call, result_row.name))
        if id is None:
            id = known[call, result_row.name] = recording.new_id()
            recording.add_node((result_row, id, (call,), (), (specs[-1], spec)), None)
        ids.append(id)
    return ids


def conj_if_complex(g: Any) -> Any:
    """Conjugate a complex cotangent: rules are transposes, gradients are conjugated cotangents."""
    if g is None or g.dtype.kind != "c":
        return g
    return g.conj() if type(g) is SparseRows else conj(g)


# With at most this many references to the id of a result, only the sweep holds it.
OWN_REFERENCES = measured_refcount(
    lambda: unheld_refcount_in_sweep(backward_sweep, pop_nodes, PASS), places=1
)
