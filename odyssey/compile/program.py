"""Running a graph: one kernel call after another, from a flat list."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.compile.graph import Graph, Ref, State
from odyssey.errors import MissingGradientError, ShapeError
from odyssey.ops.values import written
from odyssey.spec import spec_of

__all__ = ["Program"]


class Program:
    """A graph made ready to run: what to call on which slots, and what to free when."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        last: dict[int, int] = {}
        for k, instruction in enumerate(graph.instructions):
            for operand in instruction.operands:
                if isinstance(operand, Ref):
                    last[operand.id] = k
        kept = {ref.id for ref in graph.outputs if isinstance(ref, Ref)}
        kept |= {s.update.id for s in graph.states if s.update is not None}
        kept |= set(graph.constants)
        self._frees: list[list[int]] = [[] for _ in graph.instructions]
        for id, k in last.items():
            if id not in kept:
                self._frees[k].append(id)

    def run(self, arrays: list[Any]) -> list[Any]:
        """Run on the arrays of the arguments; write the states; return the outputs."""
        slots: dict[int, Any] = dict(self.graph.constants)
        for (id, spec), array in zip(self.graph.inputs, arrays, strict=True):
            if spec_of(array) != spec:
                raise ShapeError(
                    f"input %{id} was {spec} when this was lowered, now it is {spec_of(array)}"
                )
            slots[id] = array
        for state in self.graph.states:
            if state.id >= 0:
                slots[state.id] = _read(state)
        for instruction, frees in zip(self.graph.instructions, self._frees, strict=True):
            operands = [slots[o.id] if isinstance(o, Ref) else o for o in instruction.operands]
            slots[instruction.id] = instruction.row.kernel(*operands, *instruction.options)
            for id in frees:
                del slots[id]
        outputs = [_fresh(slots[r.id]) if isinstance(r, Ref) else r for r in self.graph.outputs]
        # All values are there before the first state is written: an update may read another.
        updates = [
            (state, _fresh(slots[state.update.id]))
            for state in self.graph.states
            if state.update is not None
        ]
        for state, value in updates:
            _write(state, value)
        for variable in self.graph.clears:
            variable.zero_grad()
        return outputs


def _read(state: State) -> Any:
    if state.field == "data":
        return state.variable._array
    grad = state.variable.grad
    if grad is None:
        raise MissingGradientError(
            f"the graph adds to the gradient of {state.label}, which is None now but was not when "
            "it was traced; call zero_grad() inside the compiled function"
        )
    return grad


def _write(state: State, value: Any) -> None:
    if state.field == "data":
        written(state.variable)
        np.copyto(state.variable._array, value)
    else:
        state.variable.grad = value


def _fresh(value: Any) -> Any:
    """A value that shares no memory with a state: views, and what came in, are copied."""
    return value if isinstance(value, np.ndarray) and value.base is None else np.array(value)
