"""``cond``: one of two functions, chosen by a scalar; traced as one instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.checks import function
from odyssey.errors import DTypeError, ShapeError
from odyssey.graph.subgraphs import Loop
from odyssey.table.store import store
from odyssey.table.value import NUMBERS, Symbol
from odyssey.transforms.call_nodes import home_of
from odyssey.transforms.control_flow.carries import own
from odyssey.transforms.control_flow.derivatives import (
    Again,
    Part,
    Rule,
    flat_parts,
    followed,
    moved_of,
    parts_of,
    pulled,
    pushed,
)
from odyssey.transforms.control_flow.tracing import (
    LIVE,
    Body,
    Flat,
    Traced,
    array_for,
    dressed,
    fill_like,
    freeze_closure,
    in_graph,
    is_number,
    kinds_of,
    present_arrays,
    scalar_condition,
    spec_for,
    trace_part,
    tracked_positions,
)
from odyssey.tree import leaves, same_tree, unflatten

__all__ = ["branch", "cond"]


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """Return ``true_fn(*operands)`` where ``pred`` is true, else ``false_fn(*operands)``.

    Only the one that is chosen runs. In a compiled function ``pred`` may depend on the arguments,
    which Python's ``if`` refuses; both are traced then, and must give the same.

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
    function("cond", true_fn)
    function("cond", false_fn)
    truth = scalar_condition("cond", "pred", pred)
    if isinstance(truth, Symbol):
        return _branch_in_graph(truth, (true_fn, false_fn), operands)
    return own((true_fn if truth else false_fn)(*operands))


def _branch_in_graph(pred: Any, functions: Sequence[Callable[..., Any]], operands: Any) -> Any:
    trees: list[Any] = []

    def branch_of(fn: Callable[..., Any]) -> Body:
        def run(values: list[Any]) -> list[Any]:
            result = fn(*unflatten(operands, values))
            trees.append(result)
            return list(map(in_graph, same_tree("cond", "result of false_fn", trees[0], result)))

        return run

    again = [branch_of(freeze_closure(fn)) for fn in functions]
    made = branch(pred, list(map(branch_of, functions)), leaves(operands), again)
    return unflatten(trees[0], made)


def branch(
    pred: Any, bodies: Sequence[Body], operands: Flat, again: Sequence[Body] | None = None
) -> Flat:
    """One of two parts, by a scalar of the graph; ``again`` as ``walk`` takes it."""
    recording = home_of("cond", operands)
    kinds = kinds_of(recording, operands)
    traced = [trace_part(body, operands, kinds, recording) for body in bodies]
    outputs = _agreed(traced)
    joined = list(map(max, *[t.kinds for t in traced]))
    parts = tuple(t._replace(outputs=o).graph() for t, o in zip(traced, outputs, strict=True))
    given = [o for o in operands if not is_number(o)]
    trace: Any = store()
    made = trace.bind(Loop("cond", parts), [array_for(pred), *present_arrays(given)])
    results = fill_like(made, outputs[0])
    live = [k for k, kind in enumerate(joined) if kind == LIVE]
    if live:
        sources = traced[0].sources | traced[1].sources
        halves = [
            Again("cond", body, kinds, t.signature())
            for body, t in zip(again or bodies, traced, strict=True)
        ]
        rules = _rules_of_branches(pred, halves, operands, sources, live)
        inputs = [*[operands[k] for k in tracked_positions(operands, kinds)], *sources.values()]
        arrays = [results[k] for k in live]
        made = followed("cond", recording, inputs, arrays, rules, traced)
        for k, value in zip(live, made, strict=True):
            results[k] = value
    return list(map(dressed, results, joined))


def _agreed(traced: Sequence[Traced]) -> list[Flat]:
    """The outputs of two branches, which have the same specs."""
    found: list[Flat] = [[], []]
    for k, pair in enumerate(zip(*[t.outputs for t in traced], strict=True)):
        if any(o is None for o in pair):
            if any(o is not None for o in pair):
                raise ShapeError(f"cond: leaf {k} is None in one branch, and not in the other")
            values = list(pair)
        else:
            # Of themselves, as uncompiled, where the other branch is not known.
            values = [np.asarray(v) if type(v) in NUMBERS else v for v in pair]
            specs = [spec_for(array_for(v)) for v in values]
            if specs[0] != specs[1]:
                kind = DTypeError if specs[0].shape == specs[1].shape else ShapeError
                raise kind(
                    f"cond: leaf {k} is {specs[0]} in true_fn, and {specs[1]} in false_fn; both "
                    "must give the same"
                )
        for one, value in zip(found, values, strict=True):
            one.append(value)
    return found


def _rules_of_branches(
    pred: Any,
    halves: Sequence[Again],
    operands: Flat,
    sources: dict[int, Any],
    live: Sequence[int],
) -> tuple[Rule, Rule]:
    tracked = tracked_positions(operands, halves[0].kinds)
    count = len(operands)

    def now(given: Sequence[Any]) -> Flat:
        values = list(operands)
        for k, value in zip(tracked, given, strict=False):
            values[k] = value
        return values

    def backward(parts: dict[int, Part], given: Sequence[Any], masked: bool) -> list[Part]:
        def back(half: Again) -> Body:
            def run(values: Flat) -> Flat:
                gs = parts_of(values[count:], masked)
                seeds = {live[j]: p for j, p in zip(parts, gs, strict=True)}
                sums = {id: Part.nothing(v, masked) for id, v in sources.items()}
                found, totals = pulled(half, values[:count], seeds, sums, masked)
                return flat_parts([*[found[k] for k in tracked], *totals], masked)

            return run

        given_back = [*now(given), *flat_parts(parts.values(), masked)]
        return parts_of(branch(pred, list(map(back, halves)), given_back), masked)

    def forward(parts: dict[int, Part], given: Sequence[Any], masked: bool) -> list[Part]:
        def on(half: Again) -> Body:
            def run(values: Flat) -> Flat:
                ts = dict(zip(parts, parts_of(values[count:], masked), strict=True))
                tangents, others = moved_of(ts, tracked, list(sources))
                _, found = pushed(half, values[:count], tangents, others, masked)
                return flat_parts([found[k] for k in live], masked)

            return run

        given_on = [*now(given), *flat_parts(parts.values(), masked)]
        return parts_of(branch(pred, list(map(on, halves)), given_on), masked)

    return backward, forward
