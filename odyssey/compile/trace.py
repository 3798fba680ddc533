"""Tracing: run a function on Symbols, so that its ops become the instructions of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from odyssey.compile.graph import Graph, Instruction, Ref, State
from odyssey.devices.ownership import duplicate
from odyssey.errors import ShapeError, TapeError
from odyssey.ops.operators import Operators
from odyssey.ops.scope import TRACE
from odyssey.ops.shape import astype, broadcast_to
from odyssey.ops.values import NUMBERS, Symbol, Value, free_id
from odyssey.spec import spec_of
from odyssey.tree import leaves, map_tree
from odyssey.variable import Variable

__all__ = ["TracedArray", "trace"]


class TracedArray(Symbol, Operators):
    """What an array argument is while its function is traced: a Symbol with operators."""

    __slots__ = ()

    def _no_value(self, *args: Any) -> NoReturn:
        raise TapeError(
            f"{self!r} has no value while a graph is traced, so Python cannot branch on it, count "
            "it or turn it into an array; use ops, such as ops.where, or leave this part uncompiled"
        )

    __bool__ = __float__ = __int__ = __complex__ = __index__ = _no_value
    __len__ = __iter__ = __array__ = item = _no_value


class Trace:
    """A graph under construction, and what became of the Variables that the function met."""

    def __init__(self) -> None:
        self.graph = Graph()
        # Variables with a later id were made by the traced function: they are no state of it.
        self._first_own_id = free_id()
        self._count = 0
        self._states: dict[tuple[int, str], State] = {}
        self._current: dict[int, Any] = {}
        self._grads: dict[int, tuple[Variable, Any, Any]] = {}

    # -------------------------------------------------------------- values

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    def symbol(self, spec: Any) -> TracedArray:
        """A new value of the graph."""
        return TracedArray(spec, self, self._number())

    def argument(self, value: Any) -> Any:
        """Replace an array argument, or a constant Variable, by a Symbol; the rest is static."""
        if isinstance(value, Variable) and value.requires_grad:
            return value
        data = value._array if isinstance(value, Variable) else value
        if not isinstance(data, (np.ndarray, np.generic)):
            return value
        symbol = self.symbol(spec_of(data))
        self.graph.inputs.append((symbol.id, symbol.spec))
        return symbol

    def _ref(self, value: Any) -> Any:
        """A value as an operand: Symbols and arrays by number, Python numbers as they are."""
        if isinstance(value, Symbol):
            if value.graph is not self:
                raise TapeError(f"{value!r} belongs to another trace; pass it as an argument")
            return Ref(value.id)
        if value is None or type(value) in NUMBERS:
            return value
        id = self._number()
        value = np.asarray(value)
        self.graph.constants[id] = duplicate(value)
        return Ref(id)

    def emit(self, row: Any, values: Sequence[Any], options: tuple[Any, ...]) -> TracedArray:
        """Append a call of ``row``; its shape rule says what comes out."""
        specs = [v.spec if isinstance(v, Symbol) else _spec(v) for v in values]
        spec = row.infer(*specs, *options)
        operands = tuple(self._ref(v) for v in values)
        result = self.symbol(spec)
        self.graph.instructions.append(Instruction(row, operands, options, result.id, spec))
        return result

    # -------------------------------------------------------------- Variables

    def lift(self, variable: Any, own: bool = False) -> Any:
        """The Symbol of a captured Variable's data; an array for one that the function made."""
        if variable._id > self._first_own_id and not own:
            return self._current.get(variable._id, variable._array)
        if variable._id not in self._current:
            self._current[variable._id] = self._state(variable, "data", variable._spec)
        return self._current[variable._id]

    def _state(self, variable: Any, field: str, spec: Any) -> TracedArray:
        symbol = self.symbol(spec)
        state = State(variable, field, symbol.id, spec)
        self._states[variable._id, field] = state
        self.graph.states.append(state)
        return symbol

    def assign(self, variable: Any, value: Any) -> None:
        """Note what a Variable's data becomes; later reads see it."""
        self.lift(variable)
        try:
            value = broadcast_to(value, variable.shape) if value.shape != variable.shape else value
        except ShapeError:
            raise ShapeError(
                f"assign: a value of shape {value.shape} does not fit {variable!r}"
            ) from None
        if value.dtype != variable.dtype:
            value = astype(value, variable.dtype)
        self._current[variable._id] = value

    def meet_grad(self, variable: Any) -> Any:
        """Remember a leaf's gradient before the function touches it; return it as the graph's."""
        info = variable._info
        if variable._id not in self._grads:
            self._grads[variable._id] = (variable, info.grad, info.loan)
        if info.grad is not None and not isinstance(info.grad, (Symbol, Value)):
            info.grad, info.loan = self._state(variable, "grad", spec_of(info.grad)), None
        return info.grad

    # -------------------------------------------------------------- the end

    def finish(self, outputs: list[Any]) -> Graph:
        """Settle what the function returned and what it left in the Variables."""
        for (id, field), state in self._states.items():
            if field == "data" and self._current[id] is not None:
                ref = self._ref(self._current[id])
                state.update = ref if ref != Ref(state.id) else None
        for variable, _, _ in self._grads.values():
            left = variable._info.grad
            if left is None:
                self.graph.clears.append(variable)
                continue
            left = left._array if isinstance(left, Value) else left
            key = (variable._id, "grad")
            if key not in self._states:
                self._states[key] = State(variable, "grad", -1, variable._spec)
                self.graph.states.append(self._states[key])
            self._states[key].update = self._ref(left)
        for value in outputs:
            if isinstance(value, Value):
                value = value._array if isinstance(value._array, Symbol) else self.lift(value)
            is_data = isinstance(value, (Symbol, np.ndarray, np.generic))
            self.graph.outputs.append(self._ref(value) if is_data else value)
        return self.graph

    def restore(self) -> None:
        """Give the leaves the gradients back that they had before the trace."""
        for variable, grad, loan in self._grads.values():
            variable._info.grad, variable._info.loan = grad, loan


def trace(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Graph, Any]:
    """Run ``fn`` on Symbols in place of the arrays of ``args``; return the graph and the result."""
    tracing = Trace()
    token = TRACE.set(tracing)
    try:
        result = fn(*[map_tree(tracing.argument, arg) for arg in args])
        return tracing.finish(leaves(result)), result
    finally:
        TRACE.reset(token)
        tracing.restore()


def _spec(value: Any) -> Any:
    return spec_of(value) if hasattr(value, "dtype") else value
