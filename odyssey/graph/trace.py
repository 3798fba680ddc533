"""Tracing: run a function on Symbols, so that its ops become the instructions of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from itertools import chain, count
from operator import is_
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.devices.arrays import ARRAY_LIKE, as_array
from odyssey.devices.ownership import copy_with_layout, is_uniform, same_bits, view_key
from odyssey.errors import ShapeError, TapeError
from odyssey.graph.alias_analysis import VIEWS, AliasAnalysis
from odyssey.graph.captured_names import captured_names_or_none
from odyssey.graph.deferred_effects import DeferredEffects
from odyssey.graph.graph import Graph, Instruction, Ref, ScalarInput, Splat, State
from odyssey.graph.refusals import Refusals
from odyssey.graph.subgraphs import SubgraphTracing
from odyssey.graph.traced_array import TracedArray
from odyssey.graph.value_lists import array_of_nest
from odyssey.graph.weak_types import (
    concrete,
    concrete_operands,
    is_weak,
    make_result_concrete,
    shape_rule_argument,
)
from odyssey.ops.structure.shape import astype, broadcast_to
from odyssey.spec import Array, spec_of
from odyssey.table.call import run
from odyssey.table.canonical_options import plain_options
from odyssey.table.scope import Boundary, enter_scope
from odyssey.table.store import MEMORY, set_store, store
from odyssey.table.value import (
    CONSTANT,
    NUMBERS,
    UNTRACKED,
    Symbol,
    Traced,
    Value,
    Weak,
    array_of,
    free_id,
    is_trainable,
    is_untracked,
    make_value,
    recording_attribute,
)
from odyssey.tree import containers, leaves, map_tree
from odyssey.variable import Variable
from odyssey.variable.numpy_calls import call_ufunc

__all__ = ["Trace", "TracedArray"]


class Trace(Refusals, SubgraphTracing, AliasAnalysis, DeferredEffects):
    """A graph under construction, and what the function made of the Variables that it met.

    A trace is a trial: everything is noted here, and no Variable changes.

    Attributes:
        graph: What was traced so far.
        refusal: The error of something that no graph can hold, also where the function caught it.
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self.refusal = None
        # Marked Variables with a later id were made by the traced function: they are not state.
        self._first_own_id = free_id()
        self._count = 0
        self._begin_parts()
        self._begin_showing()
        self._begin_behind()
        self._states: dict[tuple[int, str], State] = {}
        self._current: dict[int, Any] = {}
        self._grads: dict[int, tuple[Variable, Any]] = {}
        self._constants: dict[Any, tuple[Array, Ref]] = {}
        # By id of an argument, itself and what stands for it.
        self._given: dict[int, tuple[Any, Any]] = {}
        # By place among the leaves of the arguments, what stands for a number.
        self.stands: dict[int, Weak] = {}
        self.looked_at: Callable[..., Any] = lambda row, values, options: ()
        self._place = -1
        self._labels: dict[int, str] = {}
        self._taken: set[str] = set()  # by labels, and by those of their gradients
        self._names: dict[int, str] = {}

    # -------------------------------------------------------------- values

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    def symbol(self, spec: Any) -> TracedArray:
        """A new value of the graph."""
        id = self._number()
        self.specs[id] = spec
        return TracedArray(spec, self, id)

    def argument(self, value: Any) -> Any:
        """Replace an array argument by a Symbol, a Variable by one of a Symbol; leave the rest."""
        self._place += 1
        if self._place in self.stands:
            return self.stands[self._place]
        if isinstance(value, Variable) and is_trainable(value):
            return value
        data = array_of(value)
        if not isinstance(data, ARRAY_LIKE):
            return value
        symbol = self.symbol(spec_of(data))
        self.graph.inputs.append((symbol.id, symbol.spec))
        if id(value) in self._given:  # to the function the two are the same
            return self._given[id(value)][1]
        made: Any = symbol
        if isinstance(value, Variable):
            where = UNTRACKED if is_untracked(value) else CONSTANT
            made = make_value(Variable, symbol, where, free_id(), value._spec, value._info)
        self._given[id(value)] = (value, made)
        return made

    def kind_of(self, symbol: TracedArray) -> Any:
        """Return the class that a value will have in an eager run."""
        if symbol.shape:
            return ndarray
        for value, made in self._given.values():
            if made is symbol:
                return type(value)
        self.only_eagerly("it asks of which class a result is")
        return symbol.dtype.type

    def _refuse_written(self, variable: Any) -> None:
        """Note where an argument is written to, which is nobody's state; raise within a loop."""
        if any(made is variable for _, made in self._given.values()):
            self.only_eagerly("it writes to an argument")
        self.refuse_from_part(variable)

    def _ref(self, value: Any) -> Any:
        """A value as an operand: Symbols and arrays by number, Python numbers as they are."""
        if isinstance(value, Symbol):
            if value.graph is not self:
                raise TapeError(
                    f"{value!r} belongs to another trace; pass it as an argument, and keep what is "
                    "to last in a Variable, by assign"
                )
            return Ref(value.id)
        if value is None or type(value) in NUMBERS:
            return value
        if is_weak(value):
            return ScalarInput(*type(value).told(value))
        return self._constant(as_array("compile", "a constant", value))

    def _constant(self, array: Array) -> Ref | Splat:
        """An array as an operand: one number, if it is no more, else a copy that is stored once."""
        if is_uniform(array):
            first = array[(0,) * array.ndim] if array.size else 0  # ``flat`` has up to 32 axes
            return Splat(array.dtype.type(first), array.shape)
        place = view_key(array)
        known = self._constants.get(place)
        # The function may have written to it since.
        if known is not None and same_bits(self.graph.constants[known[1].id], array):
            return known[1]
        ref = Ref(self._number())
        self.graph.constants[ref.id] = copy_with_layout(array)
        self._constants[place] = (array, ref)  # which keeps the array, and so its place
        return ref

    def emit(self, row: Any, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
        """Append a call of ``row``; its shape rule says what comes out.

        Returns:
            The result, or for an op of several results what it makes of them.
        """
        if store() is not self:
            raise TapeError(
                f"{row.name}: an operand was left behind by a trace that is over; return it from "
                "the compiled function, or keep it in a Variable, by assign"
            )
        values, options = concrete_operands(row, values, options, self)
        if not any(isinstance(v, Traced) for v in values):  # all of them were numbers
            return run(row, values, options)
        specs = list(map(shape_rule_argument, values))
        options = plain_options(row, options)
        made = row.infer(*specs, *options)
        made = (made,) if row.pack_results is None else made
        if row.canonical is not None:
            options = row.canonical(*specs, *options)
        if row.has_side_effect:
            self.only_eagerly(f"{row.name} is ordered: it does something beside its result")
        operands = tuple(self._ref(v) for v in values)
        self._look_back(values)
        results = [self.symbol(spec) for spec in made]
        if row.name in VIEWS:
            self._show_too(values, results[0])
        ids = tuple(result.id for result in results)
        self._writing.append(Instruction(row, operands, options, ids, made))
        return results[0] if row.pack_results is None else row.pack_results(results)

    def ufunc_of_numbers(self, ufunc: Any, inputs: Sequence[Any]) -> Any:
        """Apply a NumPy ufunc to numbers; with arrays among them it becomes an op."""
        if any(isinstance(one, (Symbol, Value, *ARRAY_LIKE)) for one in inputs):
            return call_ufunc(ufunc, "__call__", inputs, {})
        return ufunc(*[concrete(one, f"np.{ufunc.__name__} takes its value") for one in inputs])

    # -------------------------------------------------------------- Variables

    def is_own(self, variable: Any) -> bool:
        """Whether the traced function made this Variable."""
        if variable.is_leaf:
            return bool(variable._id > self._first_own_id)
        return bool(recording_attribute(variable).traced)

    def read(self, variable: Any) -> Any:
        """The Symbol of a captured Variable's data; an array for one that the function made."""
        array = variable._array
        if isinstance(array, Symbol) and (not variable.is_leaf or not self.is_own(variable)):
            return array
        if self.is_own(variable) and variable._id not in self._current:
            self._hold(variable, array, "a Variable that it made")
            return array
        return self.adopt(variable)

    operand = read

    def joined(self, nest: Any) -> Any:
        """A nest as NumPy would make an array of it, where values of the graph are in it."""
        return array_of_nest(nest)

    def adopt(self, variable: Any) -> Any:
        """The Symbol of the data of a Variable that outlasts the run."""
        if variable._id not in self._current:
            symbol = self._state(variable, "data", variable._spec)
            self._hold(variable, symbol, self._labels[variable._id])
            self._current[variable._id] = symbol
        return self._current[variable._id]

    def _state(self, variable: Any, field: str, spec: Any) -> TracedArray:
        symbol = self.symbol(spec)
        state = State(variable, field, symbol.id, spec, self._label(variable, field))
        self._states[variable._id, field] = state
        self.graph.states.append(state)
        return symbol

    def _label(self, variable: Any, field: str) -> str:
        """Return a unique label of a Variable: its name, or its spelling in the function."""
        if variable._id not in self._labels:
            name = variable.name or self._names.get(variable._id) or "unnamed"
            choice = chain((name,), (f"{name}#{k}" for k in count(2)))
            label = next(o for o in choice if self._taken.isdisjoint((o, f"{o}.grad")))
            self._labels[variable._id] = label
            self._taken |= {label, f"{label}.grad"}
        name = self._labels[variable._id]
        return name if field == "data" else f"{name}.{field}"

    def become(self, variable: Any, result: Any) -> None:
        """Note what a constant becomes; those that the function made change themselves."""
        self._refuse_written(variable)
        if self.is_own(variable) and variable._id not in self._current:
            self._hold_another(variable)
            MEMORY.become(variable, result)
            return
        self.adopt(variable)
        state = self._states[variable._id, "data"]
        written = self._hold_another(variable)
        state.kept = state.kept or (written and not state.anew)
        state.anew = True
        self._put(variable, result._array)

    def write(self, variable: Any, value: Any) -> None:
        """Note what a Variable's data becomes; later reads see it."""
        self._refuse_written(variable)
        self.read(variable)
        if isinstance(value, Symbol):
            self._look_back([value])
        else:
            value = as_array("assign", "the value", value)
        try:
            value = broadcast_to(value, variable.shape) if value.shape != variable.shape else value
        except ShapeError:
            raise ShapeError(
                f"assign: a value of shape {value.shape} does not fit {variable!r}"
            ) from None
        if value.dtype != variable.dtype:
            value = astype(value, variable.dtype)
        self._write_over(variable)
        self._put(variable, value)

    def _put(self, variable: Any, value: Any) -> None:
        """Let a Variable have a value, which lies in an array of its own."""
        symbol = isinstance(value, Symbol)
        value = TracedArray(value.spec, self, value.id) if symbol else copy_with_layout(value)
        if variable._id in self._current:
            self._hold(variable, value, self._labels[variable._id])
            self._current[variable._id] = value
        else:
            variable._array = value

    def gradient(self, variable: Any) -> Any:
        """A leaf's gradient: what the function made of it, or that from before, as a state."""
        if variable._id not in self._grads:
            grad = variable._info and variable._info.grad
            if grad is None and not self.is_own(variable):
                self.graph.asked.append(variable)
            if grad is not None and not self.is_own(variable):
                grad = self._state(variable, "grad", spec_of(grad))
            self._grads[variable._id] = (variable, grad)
        return self._grads[variable._id][1]

    def set_gradient(self, variable: Any, grad: Any) -> None:
        """Note what a leaf's gradient becomes."""
        self._refuse_written(variable)
        if type(grad) is TracedArray:  # of what was given the leaf has an array of its own
            grad = TracedArray(grad.spec, self, grad.id)
        self._grads[variable._id] = (variable, grad)

    # -------------------------------------------------------------- beginning and end

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call ``fn`` on Symbols, in a context of its own: nothing is left to be undone."""
        return copy_context().run(self._run, fn, args, named)

    def _run(self, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        set_store(self)
        enter_scope(Boundary())
        np.seterr(all="ignore")  # the run will warn
        self._names = captured_names_or_none(fn)
        args, named = map_tree(self.argument, (args, named))
        given = list(containers((args, named)))
        result = fn(*args, **named)
        self.finish(leaves(result))
        self._look_at_containers(given, result)
        return result

    def _look_at_containers(self, given: list[tuple[Any, list[Any]]], result: Any) -> None:
        """Note where the containers of arguments were written to, or are returned."""
        for one, held in given:
            now = next(containers(one))[1]
            if len(now) != len(held) or not all(map(is_, now, held)):
                self.only_eagerly("it writes to an argument")
        make_result_concrete(result, self.stands.values())
        own = {id(one) for one, _ in given} - {id(())}  # which is one object, whoever made it
        if any(id(one) in own for one, _ in containers(result)):
            self.only_eagerly("it returns a container that it was given")

    def close(self) -> None:
        """Let go of the values, which point here."""
        for held in (self._states, self._current, self._grads, self._made, self._constants):
            held.clear()
        self._moved.clear()
        self._given.clear()
        self._shown.clear()
        self.stands.clear()

    def finish(self, outputs: list[Any]) -> None:
        """Settle what the function returned and what it left in the Variables."""
        given = {variable._id for variable, _ in self.graph.made}
        for (id, field), state in self._states.items():
            if self.is_own(state.variable) and id not in given:
                self.only_eagerly(f"{state.label} is made by a first run")
            if field == "data":
                ref = self._ref(self._current[id])
                state.update = ref if ref != Ref(state.id) else None
        for variable, left in self._grads.values():
            if not self.is_own(variable):
                self._finish_grad(variable, left)
        self.graph.shown = self._gradients_among(outputs)
        for value in outputs:
            if isinstance(value, Value):
                value = self.read(value)
            value = concrete(value, "it is returned")
            is_data = isinstance(value, (Symbol, *ARRAY_LIKE))
            self.graph.outputs.append(self._ref(value) if is_data else value)
            self._look_back([value])
        self.refuse_leaks()

    def _gradients_among(self, outputs: list[Any]) -> dict[int, Variable]:
        """Return the results that are gradient arrays of leaves, by position."""
        grads = [(leaf, left) for leaf, left in self._grads.values() if left is not None]
        held = {id(left): leaf for leaf, left in grads if not self.is_own(leaf)}
        return {k: held[id(out)] for k, out in enumerate(outputs) if id(out) in held}

    def _finish_grad(self, variable: Variable, left: Any) -> None:
        state = self._states.get((variable._id, "grad"))
        if left is None:
            self.graph.clears.append(self._label(variable, "grad"))
            self.graph.cleared.append(variable)
            return
        if state is None:
            label = self._label(variable, "grad")
            state = State(variable, "grad", -1, variable._spec, label)
            self._states[variable._id, "grad"] = state
            self.graph.states.append(state)
        ref = self._ref(self.read(left) if isinstance(left, Value) else left)
        state.update = ref if ref != Ref(state.id) else None
