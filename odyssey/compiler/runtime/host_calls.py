"""Host calls: kernels that a program calls through Python between native segments.

Called by ``executable``, which makes them and runs them between its segments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.types import dtype_of_code
from odyssey.compiler.lowering import Call
from odyssey.compiler.runtime.control_flow import host_call_kernel, subprograms_of
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.devices.ownership import address_of, may_alias
from odyssey.errors import ShapeError
from odyssey.graph.graph import Graph, ScalarInput
from odyssey.graph.subgraphs import LoopRow
from odyssey.spec import Array, Spec, spec_of
from odyssey.table.kernel_selection import first_applicable

__all__ = ["HostCall", "all_outputs"]


# Memory of any length: ctypes would make a class for each length, which only the collector frees.
_Memory: Any = ctypes.c_char * (1 << 47)


class HostCall:
    """Call of a row's kernel between two native segments.

    Args:
        executable: Program that contains the call.
        plan_: Buffers of its values.
        node: Node of the call.
        make: Compiles a subgraph of control flow.

    Attributes:
        parts: Compiled subgraphs of control flow by title; empty for other kernels.
    """

    def __init__(
        self, executable: Any, plan_: Plan, node: Node, make: Callable[[Graph], Any]
    ) -> None:
        self._call: Call = node.payload
        row = self._call.row
        self._fresh = isinstance(row, LoopRow)  # results never alias operands
        self._kernel = host_call_kernel(row, make)
        if self._call.kernel is not None:
            self._kernel = first_applicable([self._call.kernel], row.kernel)
        self.parts = subprograms_of(self._kernel)
        self._views = [_NumpyView(executable, plan_, i) for i in node.inputs]
        slots = executable.module.slots
        self._table = executable.table
        users = plan_.fused.users.get(node.id, [])
        own = self._call.kernel
        self._common = _BatchedCalls.find(node, plan_) if own is None else None
        self._parts = [(u.detail, slots.get(("call", u.id)), u.id) for u in users]

    def run(self, executable: Any) -> None:
        """Call the kernel, and store its results in the ``host_results`` of a program.

        The program is passed, and not held, since it holds this call: a cycle would keep what the
        function captured until the garbage collector runs.
        """
        results = executable.host_results
        row, operands, options, specs, _ = self._call
        arrays = [view.array(results) for view in self._views]
        if row.foreign:  # a foreign kernel may keep its operands longer than the program does
            arrays = [np.array(array) for array in arrays]
        known = executable.numbers.known
        given = [
            arrays[o[0]]
            if type(o) is tuple
            else (known[o.expression] if isinstance(o, ScalarInput) else o)
            for o in operands
        ]
        if self._common is None:
            made = self._kernel(*given, *options)
        else:
            made = self._common.result(executable.batched_results, given, options)
        made = (made,) if row.pack_results is None else tuple(made)
        if row.foreign and not _check_result_specs(made, specs):
            executable.contract_broken = True
            raise ShapeError(
                f"{row.name}: the specs of its results differ from those that infer= returned"
            )
        for place, slot, id in self._parts:
            spec = specs[place]
            array = np.ascontiguousarray(made[place], spec.dtype).reshape(spec.shape)
            shares = array.base is not None and not self._fresh
            if shares and may_alias(array, arrays):
                array = array.copy()  # the operand's buffer will be reused
            results[id] = array
            if slot is not None:
                self._table[slot] = address_of(array)


def all_outputs(executable: Any, outs: Sequence[Any]) -> list[Any]:
    """Return all outputs of a run in order: those that the program wrote, and those of host calls.

    Args:
        executable: The program.
        outs: The arrays that it wrote.
    """
    written = iter(outs)
    nodes = [node for node in executable.plan.outputs if node is not None]
    called = executable.host_results
    return [called[n.id] if n.kind == "result" else next(written) for n in nodes]


class _BatchedCalls(NamedTuple):
    """Host calls to one row that differ in one option: the first computes all results.

    Attributes:
        first: Number of the first call's node.
        place: Position of the option in which they differ.
        choices: Values of that option.
        answer_all: Computes the results for all values.
    """

    first: int
    place: int
    choices: tuple[Any, ...]
    answer_all: Callable[..., dict[Any, Any]]

    @classmethod
    def find(cls, node: Node, plan_: Plan) -> _BatchedCalls | None:
        """Return the batch that a call belongs to, or None."""
        row = node.payload.row
        known = [kernel.together for kernel in row.kernels if kernel.together is not None]
        if not known:
            return None
        name, answer_all = known[0]
        place = row.options.index(name)

        def rest(one: Node) -> list[Any]:
            options = one.payload.options
            return [
                row,
                *one.inputs,
                *one.payload.operands,
                *options[:place],
                *options[place + 1 :],
            ]

        calls = [kernel.nodes[0] for kernel in plan_.fused.kernels if kernel.kind == "call"]
        own = rest(node)
        alike = [
            one
            for one in calls
            if one.payload.row is row
            and one.payload.kernel is None
            and all(map(_same_operand, rest(one), own))
        ]
        choices = tuple([one.payload.options[place] for one in alike])
        return cls(alike[0].id, place, choices, answer_all) if len(alike) > 1 else None

    def result(self, answers: dict[int, dict[Any, Any]], given: list[Any], options: Any) -> Any:
        """Return the result of one call; `answers` caches those of this run."""
        own = options[self.place]
        if own not in answers.get(self.first, {}):
            others = (*options[: self.place], *options[self.place + 1 :])
            answers[self.first] = self.answer_all(self.choices, *given, *others)
        return answers[self.first].pop(own)


def _same_operand(one: Any, other: Any) -> bool:
    """Return whether operands or options are identical; arrays only if they are one object."""
    return one is other or (type(one) is type(other) and not hasattr(one, "dtype") and one == other)


def _check_result_specs(made: Sequence[Any], specs: Sequence[Spec]) -> bool:
    """Return whether a kernel's results have the specs that its row inferred."""
    return [spec_of(np.asarray(array)) for array in made] == list(specs)


class _NumpyView:
    """View of a value of the program as a NumPy array, for a host call."""

    def __init__(self, executable: Any, plan_: Plan, node: Node) -> None:
        self._part = node.owner.id if node.owner.kind == "result" else None
        home = plan_.allocation(node)
        self._table = executable.table
        buffer = home.buffer
        key = ("arena", 0) if buffer.kind == "arena" else (buffer.kind, buffer.index)
        self._slot = executable.module.slots.get(key, 0)
        dtype = dtype_of_code(node.type)
        # Symbolic dimensions have the sizes of this call.
        shape, each = tuple(map(int, home.view.shape)), list(map(int, home.view.strides))
        begin = buffer.offset if buffer.kind == "arena" else 0
        self._offset = begin + int(home.view.offset) * dtype.itemsize
        strides = [s * dtype.itemsize for s in each]
        self._spec = (shape, dtype, strides)
        ways = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
        self._back = sum(way for way in ways if way < 0)

    def array(self, results: dict[int, Array]) -> Array:
        """Return the array: in the result of another host call, or at an address of the table."""
        shape, dtype, strides = self._spec
        if self._part is not None:
            base = results[self._part].reshape(-1).view(np.uint8)
            return np.ndarray(shape, dtype, base, self._offset, strides)
        if 0 in shape:
            return np.zeros(shape, dtype)
        start = int(self._table[self._slot]) + self._offset
        memory = _Memory.from_address(start + self._back)
        # Writeable, as in eager calls: NumPy copies read-only memory.
        return np.ndarray(shape, dtype, memory, -self._back, strides)
