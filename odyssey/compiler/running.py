"""A program in memory: its table of addresses, the entry that Python calls, and its states.

States are read and written where they lie. What the program relies on of Python's objects, such as
that a Variable still holds the same array, stands in a list of words that the entry looks at; where
one differs, nothing is done, and ``bind`` finds out what became of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy import empty, ndarray

from odyssey.compiler.blas import blas
from odyssey.compiler.emitting import Module, emit
from odyssey.compiler.entry import RAN, REFUSED, STRANGE, Layout
from odyssey.compiler.lowering import Call, lower
from odyssey.compiler.native import Loaded, builtin, load
from odyssey.compiler.nodes import Node
from odyssey.compiler.planning import ALIGNMENT, Plan, plan
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Graph, State
from odyssey.spec import Array
from odyssey.table.value import LEAF, Info, Value, array_of, is_trainable
from odyssey.variable import Variable

__all__ = ["RAN", "REFUSED", "STRANGE", "Executable", "UnfitError"]

_WRITEABLE = 0x400


class UnfitError(OdysseyError):
    """A state is not as a program needs it; the message says how."""


class Executable:
    """Machine code for a graph, bound to the states of the graph.

    Attributes:
        graph: What it computes.
        plan: How.
        module: Its text.
        loaded: Its code.
        inputs: Specs of what it is called with: arguments, then gradients from before.
        calls: By name of a row that it calls in Python, why.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        low = lower(graph)
        self.calls = low.calls
        self._states = [(k, s) for k, s in enumerate(graph.states) if s.field == "data"]
        strides = {k: strides for k, s in self._states if (strides := _strides(s)) is not None}
        self.plan: Plan = plan(low, strides)
        given = [s.spec for s in graph.states if s.field == "grad" and s.id >= 0]
        self.inputs = [*[spec for _, spec in graph.inputs], *given]
        self.module: Module = emit(self.plan, self.inputs, _layout(), blas())
        self.loaded: Loaded = load(self.module.text, blas())
        self._alone = Lock()
        self._prepare()
        self.bind()

    def _prepare(self) -> None:
        module, plan_ = self.module, self.plan
        arena = np.empty(plan_.arena + ALIGNMENT, np.uint8)
        start = _address(arena)
        self.table = np.zeros(max(len(module.slots), 1), np.int64)
        self.table[0] = start + -start % ALIGNMENT
        self._constants = [
            (slot, np.ascontiguousarray(_constant(plan_, index)))
            for (kind, index), slot in module.slots.items()
            if kind == "constant"
        ]
        for slot, array in self._constants:
            self.table[slot] = _address(array)
        self._keep = arena
        self.outputs = [
            (node.shape, np.dtype(node.type if node.type != "b1" else bool))
            for node in plan_.outputs
            if node is not None
        ]
        at = self.loaded.address
        # Without an entry of its own the program is called by its segments alone.
        self.native: Callable[..., Any] | None = None
        self._segments = [_segment(at(name)) for name in module.segments]
        self._dtypes = [spec.dtype for spec in self.inputs]
        if _layout() is not None:
            _write(at("table"), [_address(self.table)])
            _write(at("array_type"), [id(ndarray)])
            _write(at("dtypes"), [id(dtype) for dtype in self._dtypes])
            self.native = builtin(at("call"), "program", self)
        self._calls = [_Calling(self, node) for node in module.calls]

    # -------------------------------------------------------------- states

    def bind(self) -> None:
        """Note where the states lie now.

        Raises:
            UnfitError: a state is no more what the program was made for.
        """
        words: list[int] = []
        self._arrays: list[tuple[State, Array]] = []
        spans: list[tuple[int, int, bool]] = []
        for k, state in self._states:
            array = state.variable._array
            _check_state(state, array, _strides_of(self.plan, k))
            written = state.update is not None
            if written and not array.flags.writeable:
                raise UnfitError(f"{state.label} cannot be written to")
            self._arrays.append((state, array))
            slot = self.module.slots.get(("state", k))
            if slot is not None:
                self.table[slot] = _address(array)
            start, end = _span(array)
            spans.append((start, end, written))
            words += _watched(state, array, written)
        _refuse_overlap(spans)
        for variable in _leaves_without_gradient(self.graph):
            words += _empty_gradient(variable)
        self._written = [(start, end) for start, end, written in spans if written and end > start]
        if self.native is not None:
            self._words = np.array(words, np.int64)
            at = self.loaded.address
            _write(at("guards"), [_address(self._words)])
            _write(at("guard_count"), [len(words) // 3])
            self._spans = np.array([word for span in self._written for word in span], np.int64)
            _write(at("spans"), [_address(self._spans)])
            _write(at("span_count"), [len(self._written)])

    def is_bound(self) -> bool:
        """Whether the states are where they were; where the entry does not look itself."""
        return all(state.variable._array is array for state, array in self._arrays)

    # -------------------------------------------------------------- running

    def plain(self, arrays: Sequence[Any]) -> list[Array]:
        """Arguments as the entry takes them: arrays in order, apart from the states it writes."""
        found = []
        for array, dtype in zip(arrays, self._dtypes, strict=True):
            array = np.asarray(array)
            whole = array.flags.c_contiguous and array.flags.aligned
            start, end = _span(array)
            shared = any(start < high and low < end for low, high in self._written)
            if type(array) is not ndarray or not whole or shared:
                array = np.array(array, dtype, order="C")
            found.append(array if array.dtype is dtype else array.view(dtype))
        return found

    def start(self, arrays: Sequence[Array], outs: Sequence[Array]) -> int:
        """Run up to the first call, or all where there is none."""
        if self.native is not None:
            answer: int = self.native(*arrays, *outs)
            return answer
        if not self.is_bound():
            return STRANGE
        slots = self.module.slots
        for k, array in enumerate(arrays):
            self.table[slots["input", k]] = _address(array)
        places = [k for k, node in enumerate(self.plan.outputs) if node is not None]
        for k, out in zip(places, outs, strict=True):
            self.table[slots["output", k]] = _address(out)
        return int(self._segments[0](_address(self.table)))

    def proceed(self, arrays: Sequence[Array]) -> int:
        """Make the calls, and run what stands between them; all but the last segment."""
        results: dict[int, Array] = {}
        for k, calling in enumerate(self._calls):
            if k:
                answer = int(self._segments[k](_address(self.table)))
                if answer != RAN:
                    return answer
            calling.run(results)
        self._results = results  # until the last segment has read them
        return RAN

    def end(self) -> int:
        """Run the last segment, which writes the states; of a program with calls."""
        answer = int(self._segments[-1](_address(self.table)))
        return answer

    def results(self) -> list[Array]:
        """New arrays for what is returned."""
        return [empty(shape, dtype) for shape, dtype in self.outputs]


class _Calling:
    """A call of a row's kernel between two segments."""

    def __init__(self, executable: Executable, node: Node) -> None:
        self._call: Call = node.work
        plan_ = executable.plan
        self._views = [_Seen(executable, i) for i in node.inputs]
        slots = executable.module.slots
        self._table = executable.table
        users = plan_.fused.users.get(node.id, [])
        self._parts = [(u.detail, slots.get(("call", u.id)), u.id) for u in users]

    def run(self, results: dict[int, Array]) -> None:
        row, operands, options, specs = self._call
        arrays = [view.array(results) for view in self._views]
        given = [arrays[o[0]] if type(o) is tuple else o for o in operands]
        made = row.kernel(*given, *options)
        made = (made,) if row.several is None else tuple(made)
        for place, slot, id in self._parts:
            spec = specs[place]
            array = np.ascontiguousarray(made[place], spec.dtype).reshape(spec.shape)
            if array.base is not None and any(np.may_share_memory(array, a) for a in arrays):
                array = array.copy()  # where an operand lies, another value will
            results[id] = array
            if slot is not None:
                self._table[slot] = _address(array)


class _Seen:
    """A value of the program as NumPy sees it, for a call."""

    def __init__(self, executable: Executable, node: Node) -> None:
        self._part = node.owner.id if node.owner.kind == "part" else None
        home = executable.plan.home(node)
        self._table = executable.table
        buffer = home.buffer
        key = ("arena", 0) if buffer.kind == "arena" else (buffer.kind, buffer.index)
        self._slot = executable.module.slots.get(key, 0)
        dtype = np.dtype(bool if node.type == "b1" else node.type)
        self._offset = (
            buffer.offset if buffer.kind == "arena" else 0
        ) + home.view.offset * dtype.itemsize
        self._spec = (home.view.shape, dtype, [s * dtype.itemsize for s in home.view.strides])

    def array(self, results: dict[int, Array]) -> Array:
        shape, dtype, strides = self._spec
        if self._part is not None:
            base = results[self._part].reshape(-1).view(np.uint8)
            return np.ndarray(shape, dtype, base, self._offset, strides)
        if 0 in shape:
            return np.zeros(shape, dtype)
        start = int(self._table[self._slot]) + self._offset
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
        back = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
        memory: Any = (ctypes.c_char * (reach - back + dtype.itemsize)).from_address(start + back)
        seen = np.ndarray(shape, dtype, memory, -back, strides)
        seen.flags.writeable = False
        return seen


# ------------------------------------------------------------------ states


def _strides(state: State) -> tuple[int, ...] | None:
    """Of a state that is not contiguous, its strides in elements."""
    array = state.variable._array
    if array.flags.c_contiguous:
        return None
    size = array.itemsize
    if any(s % size for s in array.strides) or not array.flags.aligned:
        raise UnfitError(f"{state.label} is not aligned")
    return tuple(s // size for s in array.strides)


def _strides_of(plan_: Plan, k: int) -> tuple[int, ...] | None:
    for home in plan_.homes.values():
        if home.buffer.kind == "state" and home.buffer.index == k:
            return home.view.strides
    return None


def _check_state(state: State, array: Any, strides: tuple[int, ...] | None) -> None:
    if type(array) is not ndarray or array.shape != state.spec.shape:
        raise UnfitError(f"{state.label} has another shape")
    if array.dtype != state.spec.dtype:
        raise UnfitError(f"{state.label} is {array.dtype} now")
    if strides is None or array.size <= 1:
        return
    pairs = zip(array.shape, array.strides, strides, strict=True)
    if any(n > 1 and s != want * array.itemsize for n, s, want in pairs):
        raise UnfitError(f"{state.label} lies in memory in another order")


def _span(array: Array) -> tuple[int, int]:
    """Where an array's memory begins and ends; one byte further than its last where it is empty."""
    start = end = _address(array)
    if not array.size:
        return start, start
    for n, s in zip(array.shape, array.strides, strict=True):
        if s > 0:
            end += (n - 1) * s
        else:
            start += (n - 1) * s
    return start, end + array.itemsize


def _refuse_overlap(spans: list[tuple[int, int, bool]]) -> None:
    ordered = sorted(spans)
    reach, reach_written = -1, False
    for start, end, written in ordered:
        if start < reach and (written or reach_written):
            raise UnfitError("two states share memory")
        if end > reach:
            reach, reach_written = end, written


def _leaves_without_gradient(graph: Graph) -> list[Variable]:
    """Those whose gradient the program leaves or clears, and that have none from before."""
    before = {id(s.variable) for s in graph.states if s.field == "grad" and s.id >= 0}
    left = [s.variable for s in graph.states if s.field == "grad" and s.id < 0]
    return [v for v in (*left, *graph.cleared) if id(v) not in before]


def _watched(state: State, array: Array, written: bool) -> list[int]:
    """Place, mask and word of what a program relies on of a state."""
    variable, layout = state.variable, _layout()
    if layout is None:
        return []
    words = [_slot(Value, "_array") + id(variable), -1, id(array)]
    words += [id(array) + layout.data, -1, _address(array)]
    if is_trainable(variable):
        words += [_slot(Value, "_recording") + id(variable), -1, id(LEAF)]
        words += [_slot(Value, "_info") + id(variable), -1, id(variable._info)]
    if written:
        words += [id(array) + layout.flags, _WRITEABLE, _WRITEABLE]
    return words


def _empty_gradient(variable: Variable) -> list[int]:
    if variable._info is None or _layout() is None:
        return []
    words = [_slot(Value, "_info") + id(variable), -1, id(variable._info)]
    return [*words, _slot(Info, "grad") + id(variable._info), -1, id(None)]


# ------------------------------------------------------------------ memory


def _address(array: Array) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def _write(address: int, words: list[int]) -> None:
    for k, word in enumerate(words):
        ctypes.c_int64.from_address(address + 8 * k).value = word


def _segment(address: int) -> Callable[[int], int]:
    made: Callable[[int], int] = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
    return made


def _constant(plan_: Plan, index: int) -> Array:
    for node in plan_.fused.order:
        if node.kind == "leaf" and node.detail == ("constant", index):
            found: Array = node.work
            return found
    raise AssertionError(f"constant {index} is nowhere")


@cache
def _slot(kind: Any, name: str) -> int:
    """How far into an object of a class with slots one of them lies."""
    thing = kind.__new__(kind)
    mark = object()
    setattr(thing, name, mark)
    words = (ctypes.c_int64 * (kind.__basicsize__ // 8)).from_address(id(thing))
    (place,) = [k for k, word in enumerate(words) if word == id(mark)]
    return 8 * place


@cache
def _layout() -> Layout | None:
    """Where NumPy's arrays keep what describes them; None where it is not where it should be."""
    known = Layout(data=16, ndim=24, shape=32, dtype=56, flags=64)
    probe = np.arange(6.0).reshape(2, 3)
    words = (ctypes.c_int64 * 9).from_address(id(probe))
    if object.__basicsize__ != 16 or ndarray.__basicsize__ < 72:
        return None
    shape = (ctypes.c_int64 * 2).from_address(words[4])
    flags = words[8] & 0xFFFFFFFF
    right = (
        words[1] == id(ndarray)
        and words[2] == _address(probe)
        and words[3] & 0xFFFFFFFF == 2
        and list(shape) == [2, 3]
        and words[7] == id(probe.dtype)
        and flags == probe.flags.num
    )
    return known if right else None


def gradient_of(state: State) -> Any:
    """The gradient that a program adds to."""
    return array_of(state.variable.grad)
