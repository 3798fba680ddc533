"""Tracing: run a function on Symbols, so that its ops become the instructions of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from operator import is_
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.checks import user_line
from odyssey.devices.arrays import ARRAY_LIKE, DEVICE_TYPES, as_array
from odyssey.devices.device import cpu, device_of
from odyssey.devices.ownership import (
    copy_with_layout,
    is_uniform,
    same_bits,
    view_key,
)
from odyssey.devices.same_device import own_copy
from odyssey.errors import ShapeError, TapeError
from odyssey.graph.captured_names import UniqueLabels, captured_names_or_none
from odyssey.graph.graph import Graph, Instruction, Ref, ScalarInput, Splat, State, free_values
from odyssey.graph.subgraphs import Loop, has_leaks, loop_row, make_subgraph
from odyssey.graph.traced_array import TracedArray
from odyssey.graph.weak_types import (
    concrete,
    concrete_operands,
    is_weak,
    make_result_concrete,
    shape_rule_argument,
)
from odyssey.ops.structure.joining import array
from odyssey.ops.structure.shape import astype, broadcast_to
from odyssey.sparse_rows import SparseRows
from odyssey.spec import Array, Spec, spec_of
from odyssey.table.call import run
from odyssey.table.canonical_options import plain_options
from odyssey.table.protocols import Recording
from odyssey.table.scope import Boundary, allows_tf32, enter_scope
from odyssey.table.store import MEMORY, is_within, set_store, store
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
    is_constant,
    is_trainable,
    is_untracked,
    make_value,
    recording_attribute,
)
from odyssey.tree import containers, leaves, map_tree
from odyssey.tree_objects import READ_OBJECTS, no_attributes
from odyssey.variable import Variable
from odyssey.variable.numpy_calls import call_ufunc

__all__ = ["Trace", "TracedArray", "nest_operand", "refuse_write_in_subgraph"]


class Trace:
    """A graph under construction: the store of the Variables that the traced function uses.

    Reads, writes and gradients of Variables are recorded here; no Variable that existed before the
    trace changes.

    Attributes:
        graph: The graph that was traced so far.
        refusal: The first error of an operation that no graph can hold, also if the function
            caught it.
        specs: The specs of the values that are not constants, by id.
        scalar_inputs: By index of a leaf of the arguments, the symbolic scalar that replaces it.
        find_stored: Returns the values that the function stored in objects of Python, which each
            run stores anew; they are outputs behind those of the result.
        stored: These values.
        numpy_calls: By id of a result, the call of NumPy's own function or method that an eager run
            would make: function, arguments, keyword arguments, and index in its result; None if
            they are not collected.
        phase: The time at which its values are unknown, in the words of messages.
        read_objects: The plain objects that were read as trees, with all their attributes.
        value_dependent: Returns the positions of the operands of a call whose values its row needs.
        device: The device of its values: that of the last argument or state beside those of the
            CPU. Where a program is compiled, there is one.
    """

    outer = None
    traces = True
    phase = "while a graph is traced"

    def __init__(self) -> None:
        self.graph = Graph()
        self.refusal: TapeError | None = None
        # Trainable Variables with a later id were made by the traced function: they are no states.
        self._first_own_id = free_id()
        self._value_count = 0
        self.specs: dict[int, Spec] = {}
        self._constants: dict[Any, tuple[Array, Ref]] = {}
        # Arguments: by id, the argument and the value that replaces it.
        self._arguments: dict[int, tuple[Any, Any]] = {}
        self._argument_index = -1
        self.scalar_inputs: dict[int, Weak] = {}
        self.value_dependent: Callable[..., Any] = lambda row, values, options: ()
        self.device = cpu
        self.find_stored: Callable[[], list[Any]] = list
        self.read_objects: list[Any] = []
        self.numpy_calls: dict[int, tuple[Any, ...]] | None = None
        self.stored: list[Any] = []
        # Variables: states, current values and gradients by id of the Variable.
        self._states: dict[tuple[int, str], State] = {}
        self._current: dict[int, Any] = {}
        self._grads: dict[int, tuple[Variable, Any]] = {}
        self._labels = UniqueLabels()
        # Subgraphs: the list that instructions are appended to; for each subgraph that is being
        # traced, the first id of its Variables.
        self._instructions = self.graph.instructions
        self._subgraph_ids: list[int] = []
        self._has_loops = False
        # Objects that are made once a run, and parameter groups whose schedule has stepped, by id.
        self._made_once: dict[int, tuple[Any, Any]] = {}
        self._deferred_groups: dict[int, Any] = {}

    # -------------------------------------------------------------- the run of the function

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call ``fn`` on Symbols, in a context of its own, so that no setting must be restored."""
        return copy_context().run(self._run, fn, args, named)

    def _run(self, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        set_store(self)
        enter_scope(Boundary())
        np.seterr(all="ignore")  # the run will warn
        READ_OBJECTS.set(self.read_objects)
        self._labels.names = captured_names_or_none(fn)
        args, named = map_tree(self._argument, (args, named), rule=no_attributes)
        before = list(containers((args, named), no_attributes))
        result = fn(*args, **named)
        self.stored = self.find_stored()
        returned = (result, self.stored) if self.stored else result
        self._finish(leaves(returned))
        self._check_containers(before, returned)
        return result

    def close(self) -> None:
        """Release the values, which refer to this trace."""
        for held in (self._states, self._current, self._grads, self._made_once, self._constants):
            held.clear()
        self._deferred_groups.clear()
        self.find_stored, self.stored, self.read_objects = list, [], []
        self._arguments.clear()
        self.scalar_inputs.clear()

    def note_numpy_call(self, made: Any, function: Any, args: Any, named: Any) -> Any:
        """Note that NumPy's function would make a value; return the value."""
        if self.numpy_calls is not None:
            several = isinstance(made, (list, tuple))
            for k, one in enumerate(made) if several else [(None, made)]:
                if isinstance(one, Symbol):
                    self.numpy_calls[one.id] = function, args, named, k
        return made

    def _argument(self, value: Any) -> Any:
        """Replace an array argument by a Symbol, a Variable by one of a Symbol; keep the rest."""
        self._argument_index += 1
        if self._argument_index in self.scalar_inputs:
            return self.scalar_inputs[self._argument_index]
        if isinstance(value, Variable) and is_trainable(value):
            return value
        data = array_of(value)
        if not isinstance(data, ARRAY_LIKE):
            return value
        self._note_device(data)
        symbol = self.symbol(spec_of(data))
        self.graph.inputs.append((symbol.id, symbol.spec))
        if id(value) in self._arguments:  # one object that is passed twice stays one object
            return self._arguments[id(value)][1]
        replacement: Any = symbol
        if isinstance(value, Variable):
            mark = UNTRACKED if is_untracked(value) else CONSTANT
            replacement = make_value(Variable, symbol, mark, free_id(), value._spec, value._info)
        self._arguments[id(value)] = (value, replacement)
        return replacement

    def _note_device(self, array: Any) -> None:
        if type(array) is not ndarray and device_of(array) != cpu:
            self.device = device_of(array)

    def _is_argument(self, variable: Any) -> bool:
        return any(replacement is variable for _, replacement in self._arguments.values())

    def _check_containers(self, before: list[tuple[Any, list[Any]]], result: Any) -> None:
        """Note where the containers of arguments were written to, or are returned."""
        for container, held in before:
            now = next(containers(container, no_attributes))[1]
            if len(now) != len(held) or not all(map(is_, now, held)):
                self.only_eagerly("it writes to an argument")
        make_result_concrete(result, self.scalar_inputs.values())
        own = {id(container) for container, _ in before} - {
            id(())
        }  # the empty tuple is a singleton
        if any(id(container) in own for container, _ in containers(result)):
            self.only_eagerly("it returns a container among its arguments")

    def _finish(self, outputs: list[Any]) -> None:
        """Record the outputs, and the final values and gradients of the Variables."""
        hyperparameters = {variable._id for variable, _ in self.graph.hyperparameters}
        for (id, field), state in self._states.items():
            if self.is_own(state.variable) and id not in hyperparameters:
                self.only_eagerly(f"{state.label} is created by a first run")
            if field == "data":
                ref = self._operand(self._current[id])
                state.update = ref if ref != Ref(state.id) else None
        for variable, grad in self._grads.values():
            if not self.is_own(variable):
                self._finish_gradient(variable, grad)
        self.graph.returned_gradients = self._gradients_among(outputs)
        for value in outputs:
            if isinstance(value, Value):
                value = self.read(value)
            value = concrete(value, "it is returned")
            is_data = isinstance(value, (Symbol, *ARRAY_LIKE))
            self.graph.outputs.append(self._operand(value) if is_data else value)
        self._refuse_leaks()

    def _finish_gradient(self, variable: Variable, grad: Any) -> None:
        if type(grad) is SparseRows:
            self._finish_rows(variable, grad)
            return
        state = self._states.get((variable._id, "grad"))
        if grad is None:
            self.graph.cleared_labels.append(self._labels.label(variable, "grad"))
            self.graph.cleared.append(variable)
            return
        if state is None:
            label = self._labels.label(variable, "grad")
            state = State(variable, "grad", -1, spec_of(grad), label)
            self._states[variable._id, "grad"] = state
            self.graph.states.append(state)
        elif state.spec.dtype != grad.dtype:
            self.only_eagerly("it leaves a gradient of another dtype than was there")
        ref = self._operand(self.read(grad) if isinstance(grad, Value) else grad)
        state.update = ref if ref != Ref(state.id) else None

    def _finish_rows(self, variable: Variable, rows: SparseRows) -> None:
        """Record a gradient of sparse rows: two arrays that a run leaves, values and indices."""
        label = self._labels.label(variable, "grad")
        specs = {
            "grad": Spec(variable.shape, rows.dtype),
            "rows": Spec((), rows.indices.dtype),
        }
        parts = ("grad", "values", rows.values), ("rows", "indices", rows.indices)
        for field, name, value in parts:
            state = State(variable, field, -1, specs[field], f"{label}.{name}")
            state.update = self._operand(value)
            self._states[variable._id, field] = state
            self.graph.states.append(state)

    def _gradients_among(self, outputs: list[Any]) -> dict[int, Variable]:
        """Return the outputs that are gradient arrays of leaves, by position."""
        grads = [(leaf, grad) for leaf, grad in self._grads.values() if grad is not None]
        held = {id(grad): leaf for leaf, grad in grads if not self.is_own(leaf)}
        rows = [grad for _, grad in grads if type(grad) is SparseRows]
        parts = {id(part) for one in rows for part in (one.indices, one.values)}
        if any(type(out) is SparseRows or id(out) in parts for out in outputs):
            self.only_eagerly("it returns sparse rows")
        return {k: held[id(out)] for k, out in enumerate(outputs) if id(out) in held}

    # -------------------------------------------------------------- values and instructions

    def _next_value_id(self) -> int:
        self._value_count += 1
        return self._value_count - 1

    def symbol(self, spec: Any) -> TracedArray:
        """Return a new value of the graph."""
        id = self._next_value_id()
        self.specs[id] = spec
        return TracedArray(spec, self, id)

    def _operand(self, value: Any) -> Any:
        """Return a value as an operand: Symbols and arrays as Refs, Python numbers unchanged."""
        if isinstance(value, Symbol):
            if value.graph is not self:
                raise TapeError(
                    f"{value!r} belongs to another trace; pass it as an argument, and store "
                    "values that must outlive a trace in a Variable, by assign"
                )
            return Ref(value.id)
        if value is None or type(value) in NUMBERS:
            return value
        if is_weak(value):
            return ScalarInput(*type(value).expression_and_number(value))
        return self._constant(as_array("compile", "a constant", value))

    def _constant(self, data: Array) -> Ref | Splat:
        """Return an array as an operand: a Splat if it is uniform, else a copy stored once."""
        if type(data) in DEVICE_TYPES:  # to compare elements would wait for the device
            ref = Ref(self._next_value_id())
            self.graph.constants[ref.id] = own_copy(data)
            return ref
        if is_uniform(data):
            first = data[(0,) * data.ndim] if data.size else 0  # ``flat`` has up to 32 axes
            return Splat(data.dtype.type(first), data.shape)
        key = view_key(data)
        stored = self._constants.get(key)
        # The function may have written to the array since.
        if stored is not None and same_bits(self.graph.constants[stored[1].id], data):
            return stored[1]
        ref = Ref(self._next_value_id())
        self.graph.constants[ref.id] = copy_with_layout(data)
        self._constants[key] = (data, ref)  # keeps the array alive, and so the key valid
        return ref

    def emit(self, row: Any, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
        """Append a call of ``row``; its shape rule gives the specs of the results.

        Returns:
            The result, or the packed results of an op that has several.
        """
        if (here := store()) is not self:
            if is_within(here, self):
                return here.emit(row, values, options)  # type: ignore[attr-defined]
            raise TapeError(
                f"{row.name}: an operand belongs to a trace that has ended; return it from "
                "the compiled function, or keep it in a Variable, by assign"
            )
        values, options = concrete_operands(row, values, options, self)
        # All of them may be numbers.
        if not row.has_side_effect and not any(isinstance(v, Traced) for v in values):
            return run(row, values, options)
        specs = list(map(shape_rule_argument, values))
        options = plain_options(row, options)
        inferred = row.infer(*specs, *options)
        result_specs = (inferred,) if row.pack_results is None else inferred
        if row.canonical is not None:
            options = row.canonical(*specs, *options)
        if row.has_side_effect:
            self.only_eagerly(f"{row.name} has a side effect")
        if row.precision == "low":
            self.graph.tf32 = self.graph.tf32 is not False and allows_tf32()
        operands = tuple(self._operand(v) for v in values)
        results = [self.symbol(spec) for spec in result_specs]
        ids = tuple(result.id for result in results)
        self._instructions.append(Instruction(row, operands, options, ids, result_specs))
        return results[0] if row.pack_results is None else row.pack_results(results)

    def ufunc_of_numbers(self, ufunc: Any, inputs: Sequence[Any]) -> Any:
        """Apply a NumPy ufunc to numbers; with arrays among them it becomes an op."""
        if any(isinstance(one, (Symbol, Value, *ARRAY_LIKE)) for one in inputs):
            return call_ufunc(ufunc, "__call__", inputs, {})
        return ufunc(*[concrete(one, f"np.{ufunc.__name__} reads its value") for one in inputs])

    def nest_operand(self, nest: Any) -> Any:
        """Return a list or tuple operand as one value if values of the graph are in it."""
        return nest_operand(nest)

    def eager_class(self, symbol: TracedArray) -> Any:
        """Return the class that a value will have in an eager run."""
        if self.device.backend is not None:
            return self.device.backend.array_type
        if symbol.shape:
            return ndarray
        for value, replacement in self._arguments.values():
            if replacement is symbol:
                return type(value)
        self.only_eagerly("it reads the class of a result")
        return symbol.dtype.type

    # -------------------------------------------------------------- data of Variables

    def is_own(self, variable: Any) -> bool:
        """Return whether the traced function made this Variable."""
        if variable.is_leaf:
            return bool(variable._id > self._first_own_id)
        return bool(recording_attribute(variable).traced)

    def read(self, variable: Any) -> Any:
        """Return the data of a Variable: a Symbol if it was captured, else perhaps an array."""
        data = variable._array
        if isinstance(data, Symbol) and (not variable.is_leaf or not self.is_own(variable)):
            return data
        if self.is_own(variable) and variable._id not in self._current:
            return data
        return self.adopt(variable)

    operand = read

    def copied(self, variable: Any) -> Any:
        """Return the data of a Variable as a value that aliases no Variable."""
        data = self.read(variable)
        if isinstance(data, Symbol):
            return TracedArray(data.spec, self, data.id)
        return copy_with_layout(data)

    def adopt(self, variable: Any) -> Any:
        """Return the Symbol of the data of a Variable that outlives the run."""
        if variable._id not in self._current:
            symbol = self._add_state(variable, "data", variable._spec)
            self._current[variable._id] = symbol
        return self._current[variable._id]

    def _add_state(self, variable: Any, field: str, spec: Any) -> TracedArray:
        self._note_device(variable._array)
        symbol = self.symbol(spec)
        state = State(variable, field, symbol.id, spec, self._labels.label(variable, field))
        self._states[variable._id, field] = state
        self.graph.states.append(state)
        return symbol

    def become(self, variable: Any, result: Any) -> None:
        """Record the new value of a constant; one that the function made is changed itself."""
        self._refuse_written(variable)
        if self.is_own(variable) and variable._id not in self._current:
            MEMORY.become(variable, result)
            return
        self.adopt(variable)
        state = self._states[variable._id, "data"]
        state.gets_new_array = True
        self._set_data(variable, result._array)

    def write(self, variable: Any, value: Any, who: str = "assign") -> None:
        """Record the new data of a Variable; later reads return it."""
        self._refuse_written(variable)
        self.read(variable)
        if not isinstance(value, Symbol):
            value = as_array("assign", "the value", value)
        try:
            value = broadcast_to(value, variable.shape) if value.shape != variable.shape else value
        except ShapeError:
            raise ShapeError(
                f"assign: a value of shape {value.shape} does not fit {variable!r}"
            ) from None
        if value.dtype != variable.dtype:
            value = astype(value, variable.dtype)
        self._set_data(variable, value)

    def _set_data(self, variable: Any, value: Any) -> None:
        """Give a Variable a value, in an array that no other Variable shares."""
        is_symbol = isinstance(value, Symbol)
        value = TracedArray(value.spec, self, value.id) if is_symbol else copy_with_layout(value)
        if variable._id in self._current:
            self._current[variable._id] = value
        else:
            variable._array = value

    def require(self, variable: Any, flag: bool) -> None:
        """Set ``requires_grad`` of a Variable of the function; others would stay changed."""
        if not self.is_own(variable) or variable._id in self._current:
            self.refuse_effect(
                f"requires_grad: set to {flag} of {self._labels.label(variable)}",
                "set it outside of the compiled function, or ask for the gradients of the others "
                "alone, by tape.gradient",
            )
        self._refuse_written(variable)
        MEMORY.require(variable, flag)

    def rename(self, variable: Any, name: str | None) -> None:
        """Name a Variable that the function made; naming others is left to the eager run."""
        if self.is_own(variable) and not self._is_argument(variable):
            MEMORY.rename(variable, name)
        else:
            self.only_eagerly(f"it sets the name of a Variable that it did not create, {name!r}")

    # -------------------------------------------------------------- gradients

    def gradient(self, variable: Any) -> Any:
        """Return the gradient of a leaf: as set in this trace, or a state of the graph."""
        if variable._id not in self._grads:
            grad = variable._info and variable._info.grad
            if grad is None and not self.is_own(variable):
                self.graph.missing_gradients.append(variable)
            if type(grad) is SparseRows:
                # Programs take arrays as inputs, whose lengths are known.
                self.only_eagerly("it adds to sparse rows of an earlier sweep; zero_grad() first")
            elif grad is not None and not self.is_own(variable):
                grad = self._add_state(variable, "grad", spec_of(grad))
            self._grads[variable._id] = (variable, grad)
        return self._grads[variable._id][1]

    def set_gradient(self, variable: Any, grad: Any) -> None:
        """Record the new gradient of a leaf."""
        self._refuse_written(variable)
        if type(grad) is TracedArray:  # the leaf gets an array of its own
            grad = TracedArray(grad.spec, self, grad.id)
        self._grads[variable._id] = (variable, grad)

    # -------------------------------------------------------------- optimizers and schedules

    def defer_step(self, schedule: Any) -> bool:
        """Defer the step of a schedule to the end of each run; return False where it cannot be.

        A schedule changes Python's numbers, which no graph holds. As long as the trace does not
        read them afterwards, the order makes no difference. Steps within a loop, and a second
        schedule of one parameter group, are not deferred.
        """
        groups = {id(group): group for group in schedule.optimizer.groups}
        if self._subgraph_ids or not self._deferred_groups.keys().isdisjoint(groups):
            return False
        self._deferred_groups |= groups
        self.graph.deferred_steps.append(schedule)
        return True

    def call_once(self, owner: Any, make: Callable[[], Any]) -> Any:
        """Return the value of ``make()``, called once per ``owner`` in a run."""
        if id(owner) in self._deferred_groups:
            self.only_eagerly("it steps an optimizer after its schedule")
            raise TapeError(
                "step: the optimizer steps after its schedule, whose new rate only Python knows; "
                "step the schedule last"
            )
        if id(owner) not in self._made_once:
            value = make()
            self._made_once[id(owner)] = (owner, value)
            if isinstance(value, Variable):
                self.graph.hyperparameters.append((value, make))
            else:
                self.graph.started_optimizers.append(owner)
        return self._made_once[id(owner)][1]

    # -------------------------------------------------------------- subgraphs

    def trace_subgraph(self, fn: Callable[[], Any]) -> tuple[list[Instruction], Any]:
        """Call ``fn``; return its instructions, not added to the graph, and its result."""
        outer, self._instructions = self._instructions, []
        self._subgraph_ids.append(free_id())
        try:
            return self._instructions, fn()
        finally:
            self._subgraph_ids.pop()
            self._instructions = outer

    @contextmanager
    def emitted_instructions(self) -> Iterator[list[Instruction]]:
        """Yield a list, which gets the instructions that the block emits when it ends."""
        emitted: list[Instruction] = []
        instructions, start = self._instructions, len(self._instructions)
        yield emitted
        emitted += instructions[start:]

    def subgraph(
        self,
        inputs: Sequence[TracedArray],
        instructions: Sequence[Instruction],
        outputs: Sequence[Any],
    ) -> Graph:
        """Return the instructions of ``trace_subgraph`` as a graph; see ``emit_loop``."""
        refs = [self._operand(o if isinstance(o, Symbol) else np.asarray(o)) for o in outputs]
        numbered = [(symbol.id, symbol.spec) for symbol in inputs]
        return make_subgraph(numbered, instructions, refs, self.graph.constants)

    def emit_loop(self, loop: Loop, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Append control flow; values that its subgraphs capture become further operands."""
        captured = [TracedArray(self.specs[id], self, id) for id in free_values(loop.subgraphs)]
        for subgraph in loop.subgraphs:
            subgraph.inputs += [(symbol.id, symbol.spec) for symbol in captured]
        self._has_loops = True
        numbers = {
            o.expression: o
            for subgraph in loop.subgraphs
            for instruction in subgraph.instructions
            for o in instruction.operands
            if isinstance(o, ScalarInput)
        }
        loop = loop._replace(numbers=tuple(numbers.values()))
        values = [o if isinstance(o, Symbol) else np.asarray(o) for o in (*operands, *captured)]
        refs = (*map(self._operand, values), *loop.numbers)
        specs = loop.specs()
        results = tuple(map(self.symbol, specs))
        ids = tuple(symbol.id for symbol in results)
        self._instructions.append(Instruction(loop_row(loop, len(refs)), refs, (), ids, specs))
        return results

    def _refuse_leaks(self) -> None:
        """Raise TapeError if a value of a subgraph is read outside of it."""
        if self._has_loops and has_leaks(self.graph):
            raise TapeError(
                "a value of a loop step or of a branch was stored in a Variable or another "
                "object, and used outside; return it from the step instead"
            )

    # -------------------------------------------------------------- refusals and fallbacks

    def refuse(self, message: str) -> TapeError:
        """Return the error of an operation that no graph can hold; kept, as NumPy may wrap it."""
        error = TapeError(f"{message} ({user_line()})")
        self.refusal = self.refusal or error
        return error

    def refuse_effect(self, what: str, instead: str) -> None:
        """Raise TapeError for an effect that would happen now, and not at every run."""
        raise self.refuse(
            f"{what} while a graph is traced, which would happen once and not at every run; "
            f"{instead}"
        )

    def only_eagerly(self, why: str) -> None:
        """Note why no program can do what the function does."""
        self.graph.eager_reason = self.graph.eager_reason or why

    def no_value(self, who: str, value: Any) -> TapeError:
        """Return the error of reading a value that is known only at run time."""
        use = "ops.where"
        if getattr(value, "dtype", None) is not None and value.dtype.kind in "iu":
            # NumPy's indexing reads the value of an index, and of the bounds of a slice.
            use = "ops.take(array, indices) and ops.dynamic_slice(array, starts, sizes)"
        return self.refuse(
            f"{who} {value!r}, which has no value while a graph is traced; compiled code cannot "
            f"branch on values, print them or copy them into arrays: use ops, such as {use}, "
            "return the value, or leave this part uncompiled"
        )

    def require_known(self, who: str, value: Any) -> None:
        """Raise unless the value of a Variable is known, and equal in every run."""
        if not self.is_own(value) or isinstance(value._array, Symbol):
            raise self.no_value(who, value)

    def note_read(self, who: str, value: Any) -> None:
        """Note that ``who`` reads the value of a Variable, which may differ in another run."""
        if not self.is_own(value):
            self.only_eagerly(f"{who} reads the values of {self._labels.label(value)}")

    def localize(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Return the operands unchanged."""
        return operands

    def records_on(self, recording: Recording) -> bool:
        """Return True; raise TapeError for a recording that was made before the trace."""
        self.check_sweep(recording)
        return True

    def check_sweep(self, recording: Recording) -> None:
        """Raise TapeError for a recording that was made before the trace."""
        if not recording.traced:
            raise TapeError(
                "while a graph is traced, a tape that was opened before would record or be swept; "
                "lower the function where that tape is not enabled"
            )

    def detached(self, value: Any) -> Any:
        """Return the data unchanged: a Symbol has no gradient."""
        return value

    def replace_state(self, state: Any, update: Callable[[Any], Any]) -> Any:
        """Record the new state of a generator; return that of before."""
        before = self.copied(state)
        self.write(state, update(before))
        return before

    def _refuse_written(self, variable: Any) -> None:
        """Note a write to an argument, which is no state; raise TapeError within a subgraph."""
        if self._is_argument(variable):
            self.only_eagerly("it writes to an argument")
        refuse_write_in_subgraph(self, self._subgraph_ids, variable)


def refuse_write_in_subgraph(trace: Any, ids: Sequence[int], variable: Any) -> None:
    """Raise TapeError if a body of a loop writes to a Variable that it did not make.

    Args:
        trace: The store.
        ids: The first id of each body that is being traced.
        variable: The Variable.
    """
    if ids and variable._id <= ids[-1]:
        trace.only_eagerly("a step of a loop, or a branch, writes to a Variable")
        raise TapeError(
            f"a step of a loop, or a branch, writes to {variable!r}, which a graph cannot do, and "
            "vmap not where examples take different branches; return the new value from it, and "
            "assign it outside"
        )


def nest_operand(nest: Any) -> Any:
    """Return a list or tuple operand as one value if Symbols or Variables are in it.

    Its dtype is that of ``np.asarray``, in which Python's numbers are not weak. Nests that an
    eager call refuses, as with a Variable whose gradient would be lost, are returned unchanged.
    """
    items = leaves(nest, no_attributes)
    variables = [item for item in items if isinstance(item, Value)]
    if not any(isinstance(item, Symbol) for item in items) and not variables:
        return nest
    if not all(map(is_constant, variables)):
        return nest
    return array(map_tree(_element, nest, rule=no_attributes))


def _element(item: Any) -> Any:
    if isinstance(item, Value):
        return store().operand(item)
    return np.asarray(item) if type(item) in NUMBERS else item
