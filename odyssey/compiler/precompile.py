"""Precompilation: stand-ins for specs, and what a function returns by its trace alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from odyssey.compiler.tracing.attempt import TraceAttempt
from odyssey.devices.backends import backend_of
from odyssey.devices.device import Device, copy_to_device, cpu
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.graph.graph import Graph, Instruction, Ref, ScalarInput, Splat
from odyssey.graph.subgraphs import LoopRow
from odyssey.table.value import Symbol, Value, array_of, free_id, make_value
from odyssey.tree import leaves, map_tree, unflatten
from odyssey.tree_objects import no_attributes
from odyssey.variable import Variable

__all__ = ["expected_result", "start_optimizers"]


def start_optimizers(attempt: TraceAttempt) -> bool:
    """Give the optimizers that a trace started their first state; return whether there are any."""
    started = attempt.graph.started_optimizers
    for optimizer in started:
        optimizer._start()
    return bool(started)


def expected_result(attempt: TraceAttempt, inputs: Sequence[Any], devices: Sequence[Device]) -> Any:
    """Return a result such as an eager run returns: arrays, NumPy scalars and Variables.

    If the function writes to objects of Python, it is a pair of the result and of what it writes.

    Args:
        attempt: A trace of the function. On stand-ins for its other values, the eager kernels
            compute the values without axes, which are NumPy scalars or arrays, and those that may
            be views.
        inputs: The inputs of the call, which the result may contain.
        devices: The devices of the program beside the CPU. Results lie on the first, unless the
            function copies arrays between devices.
    """
    moves = any("device" in one.row.options for one in attempt.graph.instructions)
    device = cpu if moves or not devices else devices[0]
    values = _StandIns(attempt.graph, inputs, attempt.numpy_calls, device)
    result = attempt.full_result
    outputs = zip(leaves(result), attempt.graph.outputs, strict=True)
    made = unflatten(result, [values.leaf(leaf, output) for leaf, output in outputs])
    attempt.numpy_calls.clear()
    return made


# Rows that copy, for which NumPy may return a view or the operand itself.
_MOVES = frozenset({"getitem", "real", "imag", "conj", "astype", "diagonal", "copy", "identity"})


@ignore_fp_errors()
def _call_quietly(function: Any, args: Any, named: Any) -> Any:
    return function(*args, **named)


class _StandIns:
    """Stand-ins for the values of a graph.

    Args:
        graph: The graph.
        inputs: The inputs of the call.
        numpy_calls: See ``Trace``.
        device: Where results lie.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Any],
        numpy_calls: Mapping[int, tuple[Any, ...]],
        device: Device,
    ) -> None:
        self._device = device
        self._graph, self._numpy_calls = graph, numpy_calls
        self._numpy_results: dict[int, Any] = {}
        self._specs = dict(graph.inputs)
        self._rows = {id: one.row for one in graph.instructions for id in one.ids}
        for one in graph.instructions:
            self._specs.update(zip(one.ids, one.specs, strict=True))
        ids = [id for id, _ in graph.inputs]
        self._inputs = dict(zip(ids, inputs, strict=True))
        self._values: dict[int, Any] = {id: array_of(one) for id, one in self._inputs.items()}
        self._values |= graph.constants
        # Only few states matter to the result, and all of them may take gigabytes.
        self._states = {s.id: s.variable for s in graph.states if s.id >= 0}
        self._leaves: dict[int, Any] = {}
        for one in self._instructions_of_outputs():
            self._evaluate(one)

    def leaf(self, leaf: Any, output: Any) -> Any:
        """Return the stand-in for one leaf of the traced result."""
        symbol = leaf._array if isinstance(leaf, Value) else leaf
        if not isinstance(output, (Ref, Splat)) or not isinstance(symbol, Symbol):
            return leaf  # a constant, or a captured object
        if isinstance(output, Ref) and output.id in self._inputs:
            return self._inputs[output.id]
        if id(leaf) not in self._leaves:
            self._leaves[id(leaf)] = self._new_leaf(leaf, symbol, output)
        return self._leaves[id(leaf)]

    def _new_leaf(self, leaf: Any, symbol: Symbol, output: Any) -> Any:
        if isinstance(output, Ref):
            array = self._stand_in(output) if isinstance(leaf, Value) else self._result(output.id)
        else:
            array = np.zeros(symbol.shape, symbol.dtype)
            array = array if symbol.shape else array[()]
        if self._device != cpu and backend_of(array) is None:
            array = copy_to_device("precompile", np.asarray(array), self._device)
        if not isinstance(leaf, Value):
            return array
        return make_value(Variable, array, leaf._recording, free_id(), leaf._spec, leaf._info)

    def _result(self, id: int) -> Any:
        """Return the stand-in for a value of NumPy's: a view where its function returns one."""
        known = self._stand_in(Ref(id))
        if id not in self._numpy_calls or not self._may_differ(id):
            return known
        if id not in self._numpy_results:
            function, args, named, k = self._numpy_calls[id]
            plain = map_tree(self._numpy_operand, (args, named), rule=no_attributes)
            try:
                made = _call_quietly(function, *plain)
                made = made if k is None else made[k]
            except Exception:  # zeros may be no operands for it
                made = known
            fits = getattr(made, "shape", None) == known.shape and made.dtype == known.dtype
            self._numpy_results[id] = made if fits else known
        return self._numpy_results[id]

    def _numpy_operand(self, leaf: Any) -> Any:
        return self._result(leaf.id) if isinstance(leaf, Symbol) else leaf

    def _may_differ(self, id: int) -> bool:
        """Return whether a value has no axes, or its op may move elements without a change."""
        row = self._rows.get(id)
        return not self._specs[id].shape or row is None or row.rearranges or row.name in _MOVES

    def _is_evaluated(self, instruction: Instruction) -> bool:
        return instruction.row.rearranges or not all(spec.shape for spec in instruction.specs)

    def _instructions_of_outputs(self) -> list[Instruction]:
        """Return the instructions that are evaluated for the outputs, in their order."""
        needed = {out.id for out in self._graph.outputs if isinstance(out, Ref)}
        chain = []
        for one in reversed(self._graph.instructions):
            if not needed.isdisjoint(one.ids) and self._is_evaluated(one):
                chain.append(one)
                needed.update(o.id for o in one.operands if isinstance(o, Ref))
        return chain[::-1]

    @ignore_fp_errors()
    def _evaluate(self, instruction: Instruction) -> None:
        row, operands, options, ids, specs = instruction
        made: Any = tuple(np.zeros(spec.shape, spec.dtype)[()] for spec in specs)
        # On zeros a loop might never end, or make no step and return an operand. A loop that runs
        # returns new arrays, and NumPy scalars.
        if not isinstance(row, LoopRow):
            try:
                found = row.kernel(*map(self._stand_in, operands), *options)
                made = (found,) if row.pack_results is None else found
            except Exception:  # zeros may be no operands for it
                pass
        self._values.update(zip(ids, made, strict=True))

    def _stand_in(self, operand: Any) -> Any:
        if isinstance(operand, Ref):
            if operand.id in self._states and operand.id not in self._values:
                held = array_of(self._states[operand.id])
                self._values[operand.id] = np.zeros_like(held)
            if operand.id not in self._values:
                spec = self._specs[operand.id]
                self._values[operand.id] = np.zeros(spec.shape, spec.dtype)
            return self._values[operand.id]
        if isinstance(operand, ScalarInput):
            return operand.number
        return operand.array() if isinstance(operand, Splat) else operand
