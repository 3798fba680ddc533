"""``cond``: one of two functions, chosen by a scalar; traced as one instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from odyssey.checks import check_callable
from odyssey.errors import DTypeError, ShapeError
from odyssey.graph.batch_trace import BatchTrace, differs_by_example
from odyssey.graph.subgraphs import Loop
from odyssey.ops.elementwise.choice import where
from odyssey.table.store import store
from odyssey.table.value import NUMBERS, Symbol
from odyssey.transforms.call_nodes import recording_for
from odyssey.transforms.control_flow.carries import exclusive_results, spec_of_leaf
from odyssey.transforms.control_flow.derivatives import (
    MaskedDerivative,
    ReplayedBody,
    Rule,
    body_jvp,
    body_vjp,
    flatten_derivatives,
    record_results,
    split_tangents,
    unflatten_derivatives,
)
from odyssey.transforms.control_flow.tracing import (
    LIVE,
    Body,
    Flat,
    TracedBody,
    body_outside,
    concrete_symbol,
    fill_like,
    freeze_closure,
    graph_value,
    is_number,
    join_batches,
    kinds_of,
    present_arrays,
    scalar_condition,
    spec_or_number,
    trace_body,
    tracked_positions,
    wrap_variable,
)
from odyssey.tree import leaves, same_tree, unflatten
from odyssey.tree_objects import no_attributes

__all__ = ["cond", "traced_cond"]


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """Return ``true_fn(*operands)`` where ``pred`` is true, else ``false_fn(*operands)``.

    Only the one that is chosen runs. In a compiled function ``pred`` may depend on the arguments,
    which Python's ``if`` refuses; both are traced then, and must give the same. In ``vmap`` each
    example may have its own ``pred``: both run then, and ``ops.where`` selects from their results.

    Args:
        pred: A truth or a number, as a scalar.
        true_fn: A function of the operands.
        false_fn: Another, with a result of the same tree, shapes and dtypes.
        operands: What they are given.

    Returns:
        What the function returned, in arrays of its own; Python's numbers are NumPy's.

    Raises:
        ShapeError: ``pred`` is no scalar. DTypeError: it is neither a truth nor a number.

    >>> float(cond(np.array(2.0) > 1.0, lambda x: x + 1.0, lambda x: x * 0.0, 5.0))
    6.0
    """
    check_callable("cond", true_fn)
    check_callable("cond", false_fn)
    truth = scalar_condition("cond", "pred", pred)
    if differs_by_example(truth):
        return _cond_by_selection(truth, (true_fn, false_fn), operands)
    if isinstance(truth, Symbol):
        return _cond_symbolically(truth, (true_fn, false_fn), operands)
    return exclusive_results((true_fn if truth else false_fn)(*operands))


def _cond_by_selection(pred: Any, functions: Sequence[Callable[..., Any]], operands: Any) -> Any:
    """Run both functions, and select from their results by a predicate of each example."""
    trace: Any = store()
    results = trace.select_branch(pred, [partial(fn, *operands) for fn in functions])
    flat = same_tree("cond", "result of false_fn", results[0], results[1], rule=no_attributes)
    pairs = list(zip(leaves(results[0], no_attributes), flat, strict=True))
    for k, leaf in enumerate(leaf for pair in pairs for leaf in pair):
        spec_of_leaf("cond", f"leaf {k // 2} of the result", leaf)
    made = [
        None if one is None else where(pred, one, other)
        for one, other in zip(*_unified_leaves(pairs), strict=True)
    ]
    return unflatten(results[0], made, no_attributes)


def _cond_symbolically(pred: Any, functions: Sequence[Callable[..., Any]], operands: Any) -> Any:
    trees: list[Any] = []

    def branch_of(fn: Callable[..., Any]) -> Body:
        def run(values: list[Any]) -> list[Any]:
            result = fn(*unflatten(operands, values, no_attributes))
            trees.append(result)
            return list(
                map(
                    concrete_symbol,
                    same_tree("cond", "result of false_fn", trees[0], result, rule=no_attributes),
                )
            )

        return run

    replay_bodies = [branch_of(freeze_closure(fn)) for fn in functions]
    made = traced_cond(
        pred, list(map(branch_of, functions)), leaves(operands, no_attributes), replay_bodies
    )
    return unflatten(trees[0], made, no_attributes)


def traced_cond(
    pred: Any, bodies: Sequence[Body], operands: Flat, replay_bodies: Sequence[Body] | None = None
) -> Flat:
    """Trace two branches as one instruction that a scalar selects from; see ``traced_scan``."""
    operands = list(store().localize(operands))
    recording = recording_for("cond", operands)
    kinds = kinds_of(recording, operands)
    traced = [trace_body(body, operands, kinds, recording) for body in bodies]
    outputs = _unified_outputs(traced)
    joined = list(map(max, *[t.kinds for t in traced]))
    trace: Any = store()
    if type(trace) is BatchTrace:
        made = _branch_outside(trace, pred, bodies, operands, kinds, recording, traced)
    else:
        graphs = tuple(t._replace(outputs=o).graph() for t, o in zip(traced, outputs, strict=True))
        given = [o for o in operands if not is_number(o)]
        made = trace.emit_loop(Loop("cond", graphs), [graph_value(pred), *present_arrays(given)])
    results = fill_like(made, outputs[0])
    live = [k for k, kind in enumerate(joined) if kind == LIVE]
    if live:
        sources = traced[0].sources | traced[1].sources
        branches = [
            ReplayedBody.of("cond", body, kinds, t)
            for body, t in zip(replay_bodies or bodies, traced, strict=True)
        ]
        rules = _branch_rules(pred, branches, operands, sources, live)
        tracked = tracked_positions(operands, kinds)
        inputs = [*[operands[k] for k in tracked], *sources.values()]
        arrays = [results[k] for k in live]
        definite = _definite_inputs(traced, live, tracked, list(sources))
        made = record_results("cond", recording, inputs, arrays, rules, traced, definite)
        for k, value in zip(live, made, strict=True):
            results[k] = value
    return list(map(wrap_variable, results, joined))


def _branch_outside(
    trace: BatchTrace,
    pred: Any,
    bodies: Sequence[Body],
    operands: Flat,
    kinds: Sequence[int],
    recording: Any,
    traced: Sequence[TracedBody],
) -> Flat:
    """Return the results of a branch in ``vmap``: that of the payloads, in the store outside."""
    inputs = traced[0].batches[0]
    batches = list(map(join_batches, *[t.batches[1] for t in traced]))
    branches = [body_outside(trace, body, kinds, recording, (inputs, batches)) for body in bodies]
    payloads = [trace.payload_with(o, b[0]) for o, b in zip(operands, inputs, strict=True)]
    made = trace.compute_outside(traced_cond, trace.payload_with(pred, False), branches, payloads)
    pairs = zip(made, batches, strict=True)
    return [trace.wrap(payload, b[0]) for payload, b in pairs if payload is not None]


def _definite_inputs(
    traced: Sequence[TracedBody], live: Sequence[int], tracked: Sequence[int], ids: Sequence[int]
) -> list[list[int]]:
    """Return, for each live output, the numbers of the inputs that both branches reach from it."""
    found = []
    for k in live:
        positions, sources = map(set.intersection, *[t.reached[k] for t in traced])
        numbers = [j for j, position in enumerate(tracked) if position in positions]
        found.append(numbers + [j for j, id in enumerate(ids, len(tracked)) if id in sources])
    return found


def _unified_outputs(traced: Sequence[TracedBody]) -> list[Flat]:
    """Return the outputs of two branches; raise if their specs differ."""
    return _unified_leaves(zip(*[t.outputs for t in traced], strict=True))


def _unified_leaves(pairs: Iterable[Sequence[Any]]) -> list[Flat]:
    """Return the leaves of two results, given in pairs; raise if their specs differ."""
    found: list[Flat] = [[], []]
    for k, pair in enumerate(pairs):
        if any(o is None for o in pair):
            if any(o is not None for o in pair):
                raise ShapeError(f"cond: leaf {k} is None in one branch, and not in the other")
            values = list(pair)
        else:
            # A number has its own dtype, as uncompiled, where the other branch is not known.
            values = [np.asarray(v) if type(v) in NUMBERS else v for v in pair]
            specs = [spec_or_number(graph_value(v)) for v in values]
            if specs[0] != specs[1]:
                kind = DTypeError if specs[0].shape == specs[1].shape else ShapeError
                raise kind(
                    f"cond: leaf {k} is {specs[0]} in true_fn, and {specs[1]} in false_fn; both "
                    "must give the same"
                )
        for one, value in zip(found, values, strict=True):
            one.append(value)
    return found


def _branch_rules(
    pred: Any,
    branches: Sequence[ReplayedBody],
    operands: Flat,
    sources: dict[int, Any],
    live: Sequence[int],
) -> tuple[Rule, Rule]:
    """Return the backward and forward rule of a branch instruction."""
    tracked = tracked_positions(operands, branches[0].kinds)
    count = len(operands)

    def sweep_values(given: Sequence[Any]) -> Flat:
        values = list(operands)
        for k, value in zip(tracked, given, strict=False):
            values[k] = value
        return values

    def backward(
        derivatives: dict[int, MaskedDerivative], given: Sequence[Any], masked: bool
    ) -> list[MaskedDerivative]:
        def backward_branch(branch: ReplayedBody) -> Body:
            def run(values: Flat) -> Flat:
                gs = unflatten_derivatives(values[count:], masked)
                seeds = {live[j]: p for j, p in zip(derivatives, gs, strict=True)}
                sums = {id: MaskedDerivative.zero(v, masked) for id, v in sources.items()}
                found, totals = body_vjp(branch, values[:count], seeds, sums, masked)
                return flatten_derivatives([*[found[k] for k in tracked], *totals], masked)

            return run

        backward_operands = [
            *sweep_values(given),
            *flatten_derivatives(derivatives.values(), masked),
        ]
        return unflatten_derivatives(
            traced_cond(pred, list(map(backward_branch, branches)), backward_operands), masked
        )

    def forward(
        derivatives: dict[int, MaskedDerivative], given: Sequence[Any], masked: bool
    ) -> list[MaskedDerivative]:
        def forward_branch(branch: ReplayedBody) -> Body:
            def run(values: Flat) -> Flat:
                ts = dict(
                    zip(derivatives, unflatten_derivatives(values[count:], masked), strict=True)
                )
                tangents, others = split_tangents(ts, tracked, list(sources))
                _, found = body_jvp(branch, values[:count], tangents, others, masked)
                return flatten_derivatives([found[k] for k in live], masked)

            return run

        forward_operands = [
            *sweep_values(given),
            *flatten_derivatives(derivatives.values(), masked),
        ]
        return unflatten_derivatives(
            traced_cond(pred, list(map(forward_branch, branches)), forward_operands), masked
        )

    return backward, forward
