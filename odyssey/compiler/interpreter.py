"""Interpreter: run a graph by eager kernels, on copies of its states."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.devices.same_device import host_array
from odyssey.errors import MissingGradientError, ShapeError
from odyssey.graph.graph import Graph, Ref, ScalarInput, Splat, State
from odyssey.spec import spec_of
from odyssey.table.value import array_of

__all__ = ["check_argument_specs", "interpret"]


def check_argument_specs(graph: Graph, arrays: list[Any]) -> None:
    """Raise unless the arrays have the number and the specs of a graph's inputs."""
    if len(arrays) != len(graph.inputs):
        raise ShapeError(
            f"{len(arrays)} arrays came; the graph was lowered for {len(graph.inputs)}"
        )
    for (id, spec), array in zip(graph.inputs, arrays, strict=True):
        if spec_of(array) != spec:
            raise ShapeError(
                f"input %{id} was {spec} when this was lowered, now it is {spec_of(array)}"
            )


def interpret(graph: Graph, arrays: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Run a graph on the CPU, on the arrays of its arguments, without side effects.

    Returns:
        The outputs, and by label the values that a run would leave in the states; None for a
        gradient that is cleared.
    """
    check_argument_specs(graph, arrays)
    slots: dict[int, Any] = {id: host_array(array) for id, array in graph.constants.items()}
    for (id, _), array in zip(graph.inputs, arrays, strict=True):
        slots[id] = host_array(array)
    for state in graph.states:
        if state.id >= 0:
            slots[state.id] = _state_value(state)
    for row, operands, options, ids, _ in graph.instructions:
        made = row.kernel(*[_operand_value(slots, o) for o in operands], *options)
        slots.update(zip(ids, (made,) if row.pack_results is None else made, strict=True))
    outputs = [
        np.array(_operand_value(slots, o)) if isinstance(o, (Ref, Splat)) else o
        for o in graph.outputs
    ]
    left: dict[str, Any] = {
        state.label: np.array(_operand_value(slots, state.update))
        for state in graph.states
        if state.update is not None
    }
    left |= dict.fromkeys(graph.cleared_labels)
    return outputs, left


def _operand_value(slots: dict[int, Any], operand: Any) -> Any:
    """Return the value of an operand: of a reference, a scalar input, a splat, or a constant."""
    if isinstance(operand, Ref):
        return slots[operand.id]
    if isinstance(operand, ScalarInput):
        return operand.number
    return operand.array() if isinstance(operand, Splat) else operand


def _state_value(state: State) -> Any:
    """Return the current value of a state."""
    if state.field == "data":
        return host_array(state.variable._array)
    grad = state.variable.grad
    if grad is None:
        raise MissingGradientError(
            f"the graph adds to the gradient of {state.label}, which is None now but was not when "
            "it was lowered; lower it again"
        )
    return host_array(array_of(grad))
