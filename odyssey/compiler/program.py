"""Running a graph: one kernel call after another, on copies, so that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import MissingGradientError, ShapeError
from odyssey.graph.graph import Graph, Ref, State
from odyssey.spec import spec_of
from odyssey.table.value import array_of

__all__ = ["check_specs", "run"]


def check_specs(graph: Graph, arrays: list[Any]) -> None:
    """Raise unless ``arrays`` are as many as the inputs of ``graph``, and of their specs."""
    if len(arrays) != len(graph.inputs):
        raise ShapeError(f"{len(arrays)} arrays came, and this was lowered for {len(graph.inputs)}")
    for (id, spec), array in zip(graph.inputs, arrays, strict=True):
        if spec_of(array) != spec:
            raise ShapeError(
                f"input %{id} was {spec} when this was lowered, now it is {spec_of(array)}"
            )


def run(graph: Graph, arrays: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Run ``graph`` on the arrays of the arguments, and write nothing.

    Returns:
        The outputs, and by label what a run would leave in the states; None for a gradient that
        is cleared.
    """
    check_specs(graph, arrays)
    slots: dict[int, Any] = dict(graph.constants)
    for (id, _), array in zip(graph.inputs, arrays, strict=True):
        slots[id] = array
    for state in graph.states:
        if state.id >= 0:
            slots[state.id] = _read(state)
    for row, operands, options, id, _ in graph.instructions:
        values = [slots[o.id] if isinstance(o, Ref) else o for o in operands]
        slots[id] = row.kernel(*values, *options)
    outputs = [np.array(slots[o.id]) if isinstance(o, Ref) else o for o in graph.outputs]
    left: dict[str, Any] = {
        state.label: np.array(slots[state.update.id])
        for state in graph.states
        if state.update is not None
    }
    left |= {State(v, "grad", -1, v._spec).label: None for v in graph.clears}
    return outputs, left


def _read(state: State) -> Any:
    if state.field == "data":
        return state.variable._array
    grad = state.variable.grad
    if grad is None:
        raise MissingGradientError(
            f"the graph adds to the gradient of {state.label}, which is None now but was not when "
            "it was lowered; lower it again"
        )
    return array_of(grad)
