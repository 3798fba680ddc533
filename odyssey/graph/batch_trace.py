"""Batch traces: run a function of one example on a batch, op by op.

A ``BatchTrace`` is the store of a function that ``vmap`` runs. Its values are ``BatchedArray``:
the shape and dtype of one example, and behind them a payload, the values of all examples, with the
batch on axis 0. An op on them is not recorded, as in a ``Trace``, but computed at once: its batch
rule runs on the payloads, in the store and the scopes around the call of ``vmap``. So payloads may
be arrays, Variables on a tape outside, Symbols of a graph, or values of another batch trace.
"""

from __future__ import annotations

import itertools
import operator
from _thread import get_ident
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy import ndarray

from odyssey.checks import user_line
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, DEVICE_TYPES
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.same_device import array_copy, call_beside, namespace_of
from odyssey.errors import OdysseyError, TapeError
from odyssey.graph.trace import nest_operand, refuse_write_in_subgraph
from odyssey.graph.traced_array import IN_PLACE_OPERATORS, TracedArray
from odyssey.graph.weak_types import shape_rule_argument
from odyssey.ops.elementwise.choice import where
from odyssey.ops.structure.batching import batch_rule, loop_over_examples
from odyssey.ops.structure.shape import astype, broadcast_to, identity
from odyssey.spec import intern
from odyssey.table.batch import Batch
from odyssey.table.call import general
from odyssey.table.protocols import Recording
from odyssey.table.registry import body_on_device
from odyssey.table.scope import (
    Boundary,
    Pause,
    autocast_now,
    enter_scope,
    innermost_scope,
    pause_of_all_tapes,
    recording_now,
    scopes,
    set_scopes,
    without_autocast,
)
from odyssey.table.store import MEMORY, is_within, set_store, store
from odyssey.table.value import (
    CONSTANT,
    LEAF,
    NUMBERS,
    Symbol,
    Value,
    Weak,
    free_id,
    is_tracked,
    make_value,
    recording_attribute,
)
from odyssey.variable import Variable

__all__ = [
    "BatchTrace",
    "BatchedArray",
    "batches_of",
    "data_in_graph",
    "differs_by_example",
    "new_symbol",
    "spread_to",
]


class BatchedArray(TracedArray):
    """Values of all examples, seen as the array of one.

    Attributes:
        payload: The values of all examples, with the batch on axis 0; or the one value of all.
        mapped: Whether the payload has a batch.
    """

    __slots__ = ("mapped", "payload")

    payload: Any
    mapped: bool

    def _no_value(self, *args: Any, **named: Any) -> NoReturn:
        raise self.graph.no_value("Python asks for the value of", self)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"vmap: the array of an example has no {name!r}; use ops, or NumPy's functions"
        )

    def copy(self, order: str = "C") -> Any:
        """Return a new value."""
        return identity(self)

    def conjugate(self) -> Any:
        """Return the complex conjugate."""
        return self.conj()

    def __copy__(self) -> BatchedArray:
        return self  # values are not written to

    def __deepcopy__(self, memo: Any) -> BatchedArray:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise self.graph.no_value("pickle asks for the value of", self)

    def __array__(self, *args: Any, **named: Any) -> Any:
        return np.asarray(self.graph.shared_value("an array is made of", self), *args, **named)

    def item(self, *index: Any) -> Any:
        """Return an element of a value that all examples share."""
        return self.graph.shared_value("item() asks for the value of", self).item(*index)

    def tolist(self) -> Any:
        """Return the elements of a value that all examples share."""
        return self.graph.shared_value("tolist() asks for the value of", self).tolist()

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise TapeError(
            f"vmap: {self!r} is not written to in place, as the examples share its memory; use "
            f"ops.setitem, whose result is a new value ({user_line()})"
        )


def _shared_number(kind: Callable[[Any], Any]) -> Callable[[BatchedArray], Any]:
    """Return a method that converts a value that all examples share."""
    return lambda self: kind(self.graph.shared_value("Python asks for the value of", self))


def _compute_anew(self: BatchedArray, other: Any) -> Any:
    """Let Python compute a new value: ``x += y`` means ``x = x + y``."""
    return NotImplemented


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "__bool__": bool,
    "__float__": float,
    "__int__": int,
    "__complex__": complex,
    "__index__": operator.index,
}
for _name, _convert in _CONVERSIONS.items():
    setattr(BatchedArray, _name, _shared_number(_convert))
for _name in IN_PLACE_OPERATORS:
    setattr(BatchedArray, _name, _compute_anew)


class BatchTrace:
    """The store of a function that runs on a batch of examples.

    Args:
        size: The number of examples.

    Attributes:
        outer: The store around the call of ``vmap``, in which payloads are computed.
        traces: Whether the payloads are Symbols of a graph.
        phase: The time at which its values are unknown, in the words of messages.
    """

    phase = "in a function that vmap runs"

    def __init__(self, size: int) -> None:
        self.size = size
        self.outer: Any = store()
        self.traces: bool = self.outer.traces
        self._outer_scopes = without_autocast()
        self._count = itertools.count().__next__
        # Leaves with a later id were made by the function; other Variables come from outside.
        self._first_own_id = free_id()
        # By id, Variables from outside, with their values here; constants in their place.
        self._captured: dict[int, tuple[Any, BatchedArray]] = {}
        self._constants: dict[int, Variable] = {}
        # Generators that drew in the present branch of a condition, with earlier states, by id.
        self._drawn: dict[int, tuple[Any, Any]] = {}
        # Objects that are made once a run, such as the state of an optimizer, by id.
        self._made_once: dict[int, tuple[Any, Any]] = {}
        # The first id of each body of a loop that is being traced.
        self._subgraph_ids: list[int] = []

    # -------------------------------------------------------------- the run of the function

    def run(self, fn: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> Any:
        """Call ``fn`` in this store; the caller has copied the context, so nothing is restored."""
        set_store(self)
        enter_scope(Boundary())
        return fn(*args, **named)

    def wrap(self, payload: Any, mapped: bool) -> BatchedArray:
        """Return a value of this trace; a mapped payload has the batch on axis 0."""
        if not hasattr(payload, "dtype"):
            payload = np.asarray(payload)
        shape = tuple(payload.shape)
        value = BatchedArray(
            intern(shape[1:] if mapped else shape, payload.dtype), self, self._count()
        )
        value.payload, value.mapped = payload, mapped
        return value

    def payload_of(self, value: Any) -> tuple[Any, bool]:
        """Return the payload of a result of the function, and whether it has the batch."""
        data = self.read(value) if isinstance(value, Value) else value
        if type(data) is BatchedArray and data.graph is self:
            payload = data.payload
            if isinstance(value, Value) and isinstance(payload, (Symbol, *ARRAY_LIKE)):
                payload = make_value(Variable, payload, CONSTANT, free_id())
            return payload, data.mapped
        return value, False

    def _compute_outside(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in the store and the scopes around ``vmap``, paused if they are here.

        An ``od.autocast`` block has cast the operands already, unless it is one of ``"tf32"``,
        which holds there too.
        """
        inner, here, around = scopes(), store(), self._outer_scopes
        top = inner[0]
        if top is None or top.exited or isinstance(top, Pause):  # else no tape is paused
            pause = pause_of_all_tapes()
            if pause is not None:
                around = (pause, *(around if around[0] is not None else (None, inner[-1])))
        autocast = autocast_now()
        if autocast is not None and autocast.mode == "tf32":
            around = (*around[:-2], autocast, None, inner[-1])
        set_store(self.outer)
        set_scopes(around)
        try:
            return function(*args)
        finally:
            set_scopes(inner)
            set_store(here)

    # -------------------------------------------------------------- ops

    def emit(self, row: Any, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
        """Compute a call of ``row`` for all examples."""
        here: Any = store()
        if here is not self:
            if is_within(here, self):
                return here.emit(row, values, options)
            raise TapeError(
                f"{row.name}: an operand belongs to a call of vmap that has ended, or to another "
                "thread; return it from the mapped function, and use the result"
            )
        mapped, payloads = [], []
        for value in values:
            own = type(value) is BatchedArray and value.graph is self
            mapped.append(own and value.mapped)
            payloads.append(value.payload if own else value)
        if True not in mapped:
            made = self._compute_outside(general, row, payloads, options)
            return self._wrap_results(row, made, False)
        rule = batch_rule(row)
        if rule is None:
            return self._decompose(row, values, payloads, mapped, options)
        batch = Batch(self.size, mapped)
        try:
            made = self._run_rule(rule, batch, *payloads, *options)
        except OdysseyError:
            row.infer(*map(shape_rule_argument, values), *options)  # names the shapes of an example
            if not self.traces:  # names the values of an example
                self._run_rule(loop_over_examples, row, batch, *payloads, *options)
            raise
        if made is NotImplemented:
            if row.decomposition is not None:
                return self._decompose(row, values, payloads, mapped, options)
            made = self._run_rule(loop_over_examples, row, batch, *payloads, *options)
        return self._wrap_results(row, made, True)

    def _run_rule(self, rule: Callable[..., Any], *args: Any) -> Any:
        """Run a batch rule in the store outside, on the device of the payloads."""
        return self._compute_outside(_body(rule, args), *args)

    def _wrap_results(self, row: Any, made: Any, mapped: bool) -> Any:
        if row.pack_results is None:
            return self.wrap(made, mapped)
        return row.pack_results([self.wrap(part, mapped) for part in made])

    def _decompose(
        self,
        row: Any,
        values: Sequence[Any],
        payloads: Sequence[Any],
        mapped: Sequence[bool],
        options: tuple[Any, ...],
    ) -> Any:
        """Run the decomposition of a row; where its kernel refuses an example, raise its error."""
        inferred = row.infer(*map(shape_rule_argument, values), *options)
        specs = (inferred,) if row.pack_results is None else inferred
        if row.requires is not None and not self.traces:
            truths = [array_of_truths(t) for t in row.requires(*values, *options)]
            if not all(truths):
                batch = Batch(self.size, mapped)
                self._run_rule(loop_over_examples, row, batch, *payloads, *options)
        operands = _as_floating(row, values, specs[0].dtype)
        made = _body(row.decomposition, operands)(*operands, *options)
        if row.pack_results is None:
            return _as_dtype(made, inferred.dtype)
        return row.pack_results([_as_dtype(r, s.dtype) for r, s in zip(made, specs, strict=True)])

    # -------------------------------------------------------------- values of Variables

    def is_own(self, variable: Any) -> bool:
        """Return whether the mapped function made this Variable."""
        if variable.is_leaf:
            return bool(variable._id > self._first_own_id)
        return recording_attribute(variable).traced is self

    def read(self, variable: Any) -> Any:
        """Return the data of a Variable; one from outside is the payload itself.

        So a tape outside records what is computed with it.
        """
        data = variable._array
        if (type(data) is BatchedArray and data.graph is self) or self.is_own(variable):
            return data
        if variable._id not in self._captured:
            self._captured[variable._id] = variable, self.wrap(variable, False)
        return self._captured[variable._id][1]

    operand = adopt = read

    def copied(self, variable: Any) -> Any:
        """Return the data of a Variable as a value that aliases no Variable."""
        if not self.is_own(variable):
            return self.wrap(self._compute_outside(self.outer.copied, variable), False)
        data = variable._array
        return data if isinstance(data, Symbol) else array_copy(data)

    def localize(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Return operands with constants for the Variables that recordings outside made.

        The payload of such a constant is the Variable, so that no gradient is lost.
        """
        for k, operand in enumerate(operands):
            # The type first, since ``isinstance`` asks a traced array for its class.
            if type(operand) is BatchedArray or not isinstance(operand, Value):
                continue
            if self._is_recorded_outside(operand):
                operands = [*operands[:k], self._constant_for(operand), *operands[k + 1 :]]
        return operands

    def _is_recorded_outside(self, value: Value) -> bool:
        if not value.is_leaf:
            return recording_attribute(value).traced is not self
        info = value._info  # a tape that made a leaf records its ops where no tape is entered
        home = recording_attribute(value) is LEAF and info is not None and info.home is not None
        return home and value._id <= self._first_own_id and innermost_scope() is None

    def _constant_for(self, value: Value) -> Variable:
        if value._id not in self._constants:
            data = self.read(value)
            self._constants[value._id] = make_value(
                Variable, data, CONSTANT, free_id(), value._spec
            )
        return self._constants[value._id]

    def detached(self, value: Any) -> Any:
        """Return a value through which no gradient flows to a tape outside."""
        if type(value) is not BatchedArray or value.graph is not self:
            return value
        payload = value.payload
        if isinstance(payload, Variable):
            payload = self._compute_outside(payload.detach)
        else:
            payload = self._compute_outside(self.outer.detached, payload)
        return value if payload is value.payload else self.wrap(payload, value.mapped)

    def nest_operand(self, nest: Any) -> Any:
        """Return a list or tuple operand as one value if values of this trace are in it."""
        return nest_operand(nest)

    def shared_value(self, who: str, symbol: BatchedArray) -> Any:
        """Return the array of a value that all examples share; raise if each has its own."""
        payload = symbol.payload
        if symbol.mapped:
            raise self.no_value(who, symbol)
        if isinstance(payload, Value):
            self._compute_outside(self.outer.require_known, who, payload)
            payload = payload._array
        if type(payload) is BatchedArray:
            return payload.graph.shared_value(who, payload)
        if isinstance(payload, Symbol):
            raise payload.graph.no_value(who, payload)
        return payload if type(payload) in ARRAYS else np.asarray(payload)

    def known_value(self, symbol: BatchedArray) -> Any:
        """Return the array of a value that all examples share; None if there is none now."""
        payload = symbol.payload
        if symbol.mapped:
            return None
        if isinstance(payload, Value):
            payload = self._compute_outside(self.outer.operand, payload)
        if type(payload) is BatchedArray:
            return payload.graph.known_value(payload)
        if isinstance(payload, Symbol):
            return None
        return payload if type(payload) in ARRAYS else np.asarray(payload)

    # -------------------------------------------------------------- loops and branches of a graph

    def symbol(self, spec: Any, batches: Sequence[bool]) -> BatchedArray:
        """Return a new value of the graph; see ``batches_of``."""
        mapped, *outer = batches
        payload = intern((self.size, *spec.shape), spec.dtype) if mapped else spec
        return self.wrap(new_symbol(self.outer, payload, outer), mapped)

    def spread(self, value: Any, batches: Sequence[bool]) -> Any:
        """Return a value that has at least the ``batches``."""
        own = type(value) is BatchedArray and value.graph is self
        payload, mapped = (value.payload, value.mapped) if own else (value, False)
        if batches[0] and not mapped:
            payload = self._compute_outside(broadcast_to, payload, (self.size, *payload.shape))
            mapped = True
        if type(self.outer) is BatchTrace and any(batches[1:]):
            payload = self._compute_outside(self.outer.spread, payload, batches[1:])
        return self.wrap(payload, mapped)

    def payload_with(self, value: Any, mapped: bool) -> Any:
        """Return the payload of a value, which has the batch if it shall be ``mapped``."""
        if isinstance(value, Value):
            value = self.read(value)
        if value is None or type(value) in NUMBERS or (isinstance(value, Weak)):
            return value
        own = type(value) is BatchedArray and value.graph is self
        if mapped and not (own and value.mapped):
            value, own = self.spread(value, (True,)), True
        return value.payload if own else value

    def trace_subgraph(self, fn: Callable[[], Any]) -> tuple[list[Any], Any]:
        """Call ``fn`` to see what it computes; nothing outside records it."""
        around = self._outer_scopes
        pause = Pause()
        alone = around[0] is None
        self._outer_scopes = (pause, None, scopes()[-1]) if alone else (pause, *around)
        self._subgraph_ids.append(free_id())
        try:
            return self.outer.trace_subgraph(fn)  # type: ignore[no-any-return]
        finally:
            self._subgraph_ids.pop()
            self._outer_scopes = around

    def select_branch(self, pred: Any, branches: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run the two branches of a condition of each example; return the results of both.

        The generators of the function advance as in the branch that an example takes.
        """
        results, drawn = [], []
        for branch in branches:
            outer, self._drawn = self._drawn, {}
            self._subgraph_ids.append(free_id())
            try:
                results.append(branch())
            finally:
                self._subgraph_ids.pop()
                drawn.append({i: state._array for i, (state, _) in self._drawn.items()})
                for i, (state, start) in self._drawn.items():
                    state._array = start
                    outer.setdefault(i, (state, start))
                self._drawn = outer
        for i in drawn[0].keys() | drawn[1].keys():
            state = self._drawn[i][0]
            one, other = [found.get(i, state._array) for found in drawn]
            state._array = where(pred, one, other)
        return results

    def emitted_instructions(self) -> Any:
        """See ``Trace.emitted_instructions``."""
        return self.outer.emitted_instructions()

    def compute_outside(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of payloads in the store and the scopes around ``vmap``."""
        return self._compute_outside(function, *args)

    def body_outside(
        self,
        body: Callable[[list[Any]], list[Any]],
        inputs: Sequence[bool],
        outputs: Sequence[bool],
    ) -> Callable[[list[Any]], list[Any]]:
        """Return a function of payloads that calls ``body`` on values of this trace.

        It is called in the store outside, now or in a later sweep, and so its ops are computed and
        recorded there.

        Args:
            body: A body of a loop, or a branch.
            inputs: Whether each operand is mapped.
            outputs: Whether each result shall be.
        """

        def run(payloads: list[Any]) -> list[Any]:
            self._subgraph_ids.append(free_id())
            try:
                pairs = zip(payloads, inputs, strict=True)
                made = body([self._enter_body(p, mapped) for p, mapped in pairs])
                pairs = zip(made, outputs, strict=True)
                return [self.payload_with(value, mapped) for value, mapped in pairs]
            finally:
                self._subgraph_ids.pop()

        return self.entered_again(run)

    def entered_again(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs in this store, called from the store outside.

        It may be called in a later sweep, also by a batch trace inside of the store outside; its
        ops are computed and recorded where it is called.
        """
        inner = scopes()

        def run(*args: Any) -> Any:
            here, around = store(), scopes()
            before = self.outer, self._outer_scopes
            try:
                self.outer, self._outer_scopes = here, without_autocast()
                set_store(self)
                thread = get_ident()  # scopes belong to a thread, and this may be another
                set_scopes(inner if inner[-1] == thread else (Boundary(), None, thread))
                return function(*args)
            finally:
                self.outer, self._outer_scopes = before
                set_scopes(around)
                set_store(here)

        return run

    def is_followed_outside(self, values: Iterable[Any]) -> bool:
        """Return whether a tape outside records now, or tracks payloads of some values."""
        payloads = [v.payload for v in values if type(v) is BatchedArray and v.graph is self]

        def followed() -> bool:
            outer = store()
            if recording_now() is not None or any(map(_is_tracked_variable, payloads)):
                return True
            if type(outer) is not BatchTrace:
                return False
            data = [outer.read(p) if isinstance(p, Value) else p for p in payloads]
            return outer.is_followed_outside(data)

        return bool(self._compute_outside(followed))

    def _enter_body(self, payload: Any, mapped: bool) -> Any:
        if payload is None or type(payload) in NUMBERS or isinstance(payload, Weak):
            return payload
        return self.wrap(payload, mapped)

    # -------------------------------------------------------------- writes, which are refused

    def write(self, variable: Any, value: Any, who: str = "assign") -> None:
        """Set the data of a leaf that the function made."""
        refuse_write_in_subgraph(self, self._subgraph_ids, variable)
        if not self.is_own(variable):
            raise self._refuse_write(who, variable)
        value = value if isinstance(value, (Symbol, *ARRAYS)) else np.asarray(value)
        if value.shape != variable.shape or value.dtype != variable.dtype:
            value = astype(broadcast_to(value, variable.shape), variable.dtype)
        variable._array = value

    def become(self, variable: Any, result: Any) -> None:
        """Give a Variable that the function made the value of another."""
        refuse_write_in_subgraph(self, self._subgraph_ids, variable)
        if not self.is_own(variable):
            raise self._refuse_write("item assignment", variable)
        MEMORY.become(variable, result)

    def _refuse_write(self, what: str, variable: Any) -> TapeError:
        return TapeError(
            f"{what}: {variable!r} comes from outside of vmap, and each example would write its "
            "own value; return the value from the mapped function, and write outside"
        )

    def require(self, variable: Any, flag: bool) -> None:
        """Set ``requires_grad`` of a Variable that the function made."""
        refuse_write_in_subgraph(self, self._subgraph_ids, variable)
        if not self.is_own(variable):
            raise self._refuse_write("requires_grad", variable)
        MEMORY.require(variable, flag)

    def rename(self, variable: Any, name: str | None) -> None:
        """Set the name of a Variable."""
        MEMORY.rename(variable, name)

    def gradient(self, variable: Any) -> Any:
        """Return the gradient of a leaf that the function made."""
        if not self.is_own(variable):
            raise TapeError(
                f"gradient: that of {variable!r}, which comes from outside of vmap, is asked for, "
                "set or added to, and each example has its own; call tape.gradient or od.grad in "
                "the mapped function, and return the gradients; call backward, zero_grad and step "
                "outside"
            )
        return MEMORY.gradient(variable)

    def set_gradient(self, variable: Any, grad: Any) -> None:
        """Set the gradient of a leaf that the function made."""
        refuse_write_in_subgraph(self, self._subgraph_ids, variable)
        self.gradient(variable)
        MEMORY.set_gradient(variable, grad)

    def replace_state(self, state: Any, update: Callable[[Any], Any]) -> Any:
        """Advance the state of a generator; one from outside once for all examples."""
        if self.is_own(state):
            before = state._array
            self._drawn.setdefault(state._id, (state, before))
            state._array = update(before)
            return before
        return self.wrap(self._compute_outside(self.outer.replace_state, state, update), False)

    # -------------------------------------------------------------- recordings and effects

    def records_on(self, recording: Recording) -> bool:
        """Return whether a recording was begun by the function; others record the payloads."""
        return recording.traced is self

    def check_sweep(self, recording: Recording) -> None:
        """Do nothing: a tape from outside may be swept by the cotangents of all examples."""

    def require_known(self, who: str, value: Any) -> None:
        """Raise unless all examples share the value of a Variable."""
        if not self.is_own(value):
            self._compute_outside(self.outer.require_known, who, value)
        elif isinstance(value._array, BatchedArray):
            self.shared_value(who, value._array)

    def note_read(self, who: str, value: Any) -> None:
        """Note the read of a Variable from outside."""
        if not self.is_own(value):
            self._compute_outside(self.outer.note_read, who, value)

    def refuse_effect(self, what: str, instead: str) -> None:
        """Raise if the store outside refuses; an effect happens once for all examples."""
        self._compute_outside(self.outer.refuse_effect, what, instead)

    def only_eagerly(self, why: str) -> None:
        """Pass the note on to the store outside."""
        self._compute_outside(self.outer.only_eagerly, why)

    def defer_step(self, schedule: Any) -> bool:
        """Step a schedule as the store outside does."""
        return bool(self._compute_outside(self.outer.defer_step, schedule))

    def call_once(self, owner: Any, make: Callable[[], Any]) -> Any:
        """Return the value of ``make()``, called once per ``owner`` in this run."""
        if self.traces:
            return self._compute_outside(self.outer.call_once, owner, make)
        if id(owner) not in self._made_once:
            self._made_once[id(owner)] = owner, make()
        return self._made_once[id(owner)][1]

    def no_value(self, who: str, value: Any) -> TapeError:
        """Return the error of reading a value that each example has its own of."""
        use = "ops.where, or od.cond"
        if getattr(value, "dtype", None) is not None and value.dtype.kind in "iu":
            use = "ops.take(array, indices) and ops.dynamic_slice(array, starts, sizes)"
        return TapeError(
            f"vmap: {who} {value!r}, of which each example has its own; a mapped function cannot "
            f"branch on it, print it or copy it into an array: use ops, such as {use}, return the "
            'value, or declare what leaves odyssey as an op with vmap="loop" '
            f"({user_line()})"
        )

    # -------------------------------------------------------------- what TracedArray asks

    def eager_class(self, symbol: BatchedArray) -> Any:
        """Return the class of one example; on a device its own, with which CuPy leaves it alone."""
        if namespace_of(symbol) is not np:
            return BatchedArray
        return ndarray if symbol.shape else symbol.dtype.type

    def note_numpy_call(self, made: Any, function: Any, args: Any, named: Any) -> Any:
        """Return the value: only a graph notes NumPy's calls."""
        return made


def _body(function: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """Return a function of ops, or that of the device on which arguments lie."""
    return body_on_device(function, args, {}) if DEVICE_TYPES else function


def _is_tracked_variable(value: Any) -> bool:
    return isinstance(value, Value) and is_tracked(value)


def batches_of(value: Any) -> tuple[bool, ...]:
    """Return whether a value has the batch of each call of ``vmap`` around, innermost first."""
    trace, found = store(), []
    while type(trace) is BatchTrace:
        if isinstance(value, Value):
            value = trace.read(value)
        own = type(value) is BatchedArray and value.graph is trace
        found.append(own and value.mapped)
        value = value.payload if own else value
        trace = trace.outer
    return tuple(found)


def data_in_graph(value: Any) -> Any:
    """Return what the graph around all calls of ``vmap`` holds of a value."""
    trace: Any = store()
    while type(trace) is BatchTrace:
        if isinstance(value, Value):
            value = trace.read(value)
        if type(value) is BatchedArray and value.graph is trace:
            value = value.payload
        trace = trace.outer
    return trace.read(value) if isinstance(value, Value) else value


def new_symbol(trace: Any, spec: Any, batches: Sequence[bool]) -> Any:
    """Return a new value of a graph that has these ``batches``; see ``batches_of``."""
    return trace.symbol(spec, batches) if type(trace) is BatchTrace else trace.symbol(spec)


def spread_to(value: Any, batches: Sequence[bool]) -> Any:
    """Return an array or Symbol that has at least these ``batches``, of the outermost calls."""
    trace, own = store(), batches_of(value)
    wanted = (*(False,) * (len(own) - len(batches)), *batches)
    if not any(w and not o for w, o in zip(wanted, own, strict=True)):
        return value
    return trace.spread(value, wanted)  # type: ignore[attr-defined]


def differs_by_example(value: Any) -> bool:
    """Return whether each example of some batch has its own value."""
    while type(value) is BatchedArray:
        if value.mapped:
            return True
        value = value.payload
        value = value._array if isinstance(value, Value) else value
    return False


def _as_floating(row: Any, values: Sequence[Any], dtype: Any) -> Sequence[Any]:
    """Return operands as a decomposition takes them: floating where a derivative is defined.

    Truth values stay what they are behind the first operand, where they are masks.
    """
    if not is_inexact(dtype):
        return values
    return [
        value if rule is None else _as_dtype(value, dtype, "iu" if k else "biu")
        for k, (value, rule) in enumerate(zip(values, row.pullbacks, strict=True))
    ]


def _as_dtype(value: Any, dtype: Any, kinds: str = "") -> Any:
    """Return a value of another dtype as one of ``dtype``, if it is of one of the kinds."""
    own = getattr(value, "dtype", dtype)
    if own == dtype or (kinds and own.kind not in kinds):
        return value
    return astype(value, dtype)


def array_of_truths(value: Any) -> bool:
    """Return whether all truths of a payload hold."""
    if type(value) is BatchedArray:
        payload = value.payload
        return array_of_truths(payload._array if isinstance(payload, Value) else payload)
    return bool(call_beside(value, np.all, value))
