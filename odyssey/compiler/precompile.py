"""Precompilation: stand-ins for specs, and what a function returns by its trace alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.compiler.tracing.attempt import TraceAttempt
from odyssey.graph.graph import Graph, Ref, ScalarInput, Splat
from odyssey.spec import Spec
from odyssey.table.value import Symbol, Value, array_of, free_id, make_value
from odyssey.tree import leaves, map_tree, unflatten
from odyssey.variable import Variable

__all__ = ["expected_result", "fill_specs", "start_optimizers"]


def fill_specs(tree: Any) -> Any:
    """Return a tree with an array, whose elements nobody reads, for each spec."""
    return map_tree(_fill_spec, tree)


def _fill_spec(leaf: Any) -> Any:
    # Pages of zeros that nobody touches take no memory.
    return np.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, Spec) else leaf


def start_optimizers(attempt: TraceAttempt) -> bool:
    """Give the optimizers that a trace started their first state; return whether there are any."""
    started = attempt.graph.started_optimizers
    for optimizer in started:
        optimizer._flatten_params()
    return bool(started)


def expected_result(attempt: TraceAttempt) -> Any:
    """Return a result such as an eager run returns: arrays, NumPy scalars and Variables.

    Args:
        attempt: A trace of the function; its graph tells which values without axes NumPy returns
            as scalars, and which as arrays.
    """
    graph = attempt.graph
    found = leaves(attempt.result)
    kinds = _scalar_kinds(graph)
    return unflatten(
        attempt.result,
        [_expected_leaf(leaf, out, kinds) for leaf, out in zip(found, graph.outputs, strict=True)],
    )


def _expected_leaf(leaf: Any, output: Any, kinds: dict[int, Any]) -> Any:
    if not isinstance(output, (Ref, Splat)):
        return leaf
    symbol = leaf._array if isinstance(leaf, Value) else leaf
    if not isinstance(symbol, Symbol):
        return leaf  # a captured object
    array = kinds.get(output.id) if isinstance(output, Ref) else None
    if array is None:
        array = np.zeros(symbol.shape, symbol.dtype)
        array = array if symbol.shape else array[()]
    if not isinstance(leaf, Value):
        return array
    return make_value(Variable, array, leaf._recording, free_id(), leaf._spec, leaf._info)


def _scalar_kinds(graph: Graph) -> dict[int, Any]:
    """Return, by id, what the eager kernels return for the outputs without axes."""
    needed = {out.id for out in graph.outputs if isinstance(out, Ref)}
    specs = dict(graph.inputs)
    specs |= {
        i: spec for one in graph.instructions for i, spec in zip(one.ids, one.specs, strict=True)
    }
    needed = {id for id in needed if id in specs and not specs[id].shape}
    chain = []
    for one in reversed(graph.instructions):
        if not needed.isdisjoint(one.ids):
            chain.append(one)
            needed |= {
                o.id
                for o in one.operands
                if isinstance(o, Ref) and o.id in specs and not specs[o.id].shape
            }
    known: dict[int, Any] = {}
    states = {state.id: state for state in graph.states if state.id >= 0}

    def stand_in(operand: Any) -> Any:
        if isinstance(operand, Ref):
            if operand.id in known:
                return known[operand.id]
            if operand.id in graph.constants:
                return graph.constants[operand.id]
            if operand.id in states:
                return np.zeros_like(array_of(states[operand.id].variable))
            return np.zeros(specs[operand.id].shape, specs[operand.id].dtype)
        if isinstance(operand, ScalarInput):
            return operand.number
        return operand.array() if isinstance(operand, Splat) else operand

    for one in reversed(chain):
        try:
            with np.errstate(all="ignore"):
                made = one.row.kernel(*map(stand_in, one.operands), *one.options)
        except Exception:  # zeros may be no operands for it; NumPy's own functions return scalars
            made = tuple(np.zeros(spec.shape, spec.dtype)[()] for spec in one.specs)
            known.update(zip(one.ids, made, strict=True))
            continue
        known.update(zip(one.ids, (made,) if one.row.pack_results is None else made, strict=True))
    return known
