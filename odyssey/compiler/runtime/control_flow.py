"""Control flow in programs: scan, while_loop and cond run compiled subgraphs.

Called by ``host_calls``, for a host call whose row is a loop or a branch.
Carries alternate between two sets of buffers, but for those into which a step only writes some
elements: they are updated where they lie, in a copy that the loop returns. If a step is one native
segment, a native loop runs all steps and moves the addresses in the step's table; otherwise Python
runs one native call a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from ctypes import PYFUNCTYPE, c_int64, c_void_p
from functools import cache
from typing import Any

import numpy as np

from odyssey.compiler.machine.jit import load
from odyssey.compiler.native_dispatch.entry import GUARD_FAILED, RAN
from odyssey.compiler.symbolic.expressions import Arithmetic, Expression
from odyssey.devices.ownership import address_of
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Graph, ScalarInput
from odyssey.graph.subgraphs import Loop, LoopRow, output_specs
from odyssey.spec import Array
from odyssey.table.row import Row

__all__ = [
    "NativeLoop",
    "host_call_kernel",
    "lift_scalar_inputs",
    "refusal",
    "scalar_arguments",
    "subprograms_of",
    "titled_parts",
]

_TITLES = {"scan": ["each step"], "cond": ["if true", "if false"]}

# Drivers of loops. Before each step they write addresses into the program's table: a row of
# ``moves`` has the slot's address, the first address, the distance between two, and the mask of the
# step's number that selects one. The conditional driver goes on while the condition is a true byte.
_TEXT = """
define void @place(ptr %moves, i64 %count, i64 %time) {
  br label %head
head:
  %k = phi i64 [0, %0], [%after, %body]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %done
body:
  %first = mul i64 %k, 4
  %row = getelementptr i64, ptr %moves, i64 %first
  %start.p = getelementptr i64, ptr %row, i64 1
  %apart.p = getelementptr i64, ptr %row, i64 2
  %bits.p = getelementptr i64, ptr %row, i64 3
  %where = load ptr, ptr %row
  %start = load i64, ptr %start.p
  %apart = load i64, ptr %apart.p
  %bits = load i64, ptr %bits.p
  %number = and i64 %time, %bits
  %far = mul i64 %number, %apart
  %found = add i64 %start, %far
  store i64 %found, ptr %where
  %after = add i64 %k, 1
  br label %head
done:
  ret void
}

define i64 @steps(ptr %step, ptr %table, ptr %moves, i64 %count, i64 %begin, i64 %end) {
  br label %head
head:
  %time = phi i64 [%begin, %0], [%after, %next]
  %more = icmp slt i64 %time, %end
  br i1 %more, label %body, label %done
body:
  call void @place(ptr %moves, i64 %count, i64 %time)
  %answer = call i64 %step(ptr %table)
  %ran = icmp eq i64 %answer, 0
  br i1 %ran, label %next, label %failed
next:
  %after = add i64 %time, 1
  br label %head
done:
  ret i64 %end
failed:
  ret i64 -1
}

define i64 @until(ptr %asks, ptr %table.a, ptr %truth, ptr %step, ptr %table.b, ptr %moves,
                  i64 %count, i64 %begin, i64 %end) {
  br label %head
head:
  %time = phi i64 [%begin, %0], [%after, %next]
  %less = icmp slt i64 %time, %end
  br i1 %less, label %ask, label %done
ask:
  call void @place(ptr %moves, i64 %count, i64 %time)
  %asked = call i64 %asks(ptr %table.a)
  %known = icmp eq i64 %asked, 0
  br i1 %known, label %look, label %failed
look:
  %byte = load i8, ptr %truth
  %true = icmp ne i8 %byte, 0
  br i1 %true, label %body, label %done
body:
  %answer = call i64 %step(ptr %table.b)
  %ran = icmp eq i64 %answer, 0
  br i1 %ran, label %next, label %failed
next:
  %after = add i64 %time, 1
  br label %head
done:
  ret i64 %time
failed:
  ret i64 -1
}
"""

# Steps between two looks of Python for signals; even, so that the buffers are back in their order.
_STEPS_PER_CALL = 4096

_WORD, _POINTER = c_int64, c_void_p


@cache
def _load_drivers() -> tuple[Any, Any, Any]:
    """Load the native drivers: the counted loop, the conditional loop, and their code object."""
    loaded = load(_TEXT)
    steps = PYFUNCTYPE(_WORD, *[_POINTER] * 3, *[_WORD] * 3)(loaded.address("steps"))
    until = PYFUNCTYPE(_WORD, *[_POINTER] * 6, *[_WORD] * 3)(loaded.address("until"))
    return steps, until, loaded


class _Subprogram:
    """Compiled subgraph of a loop or branch.

    Attributes:
        program: Executable of the subgraph.
        is_one_segment: Whether it is one native segment that writes all of its outputs.
    """

    def __init__(
        self,
        graph: Graph,
        numbers: Sequence[ScalarInput],
        make: Callable[..., Any],
        carries: int = 0,
    ) -> None:
        self.program = program = make(lift_scalar_inputs(graph, numbers), carries=carries)
        self.slots, self.table = program.module.slots, program.table
        steps, written = program.module.steps, program.plan.written_outputs()
        self._written = {k: n for n, k in enumerate(written)}
        self.is_one_segment = len(steps) == 1 and len(written) == len(graph.outputs)
        self.code = program.loaded.address(steps[0]) if self.is_one_segment else 0

    def __call__(self, arrays: Sequence[Any], numbers: Sequence[Any]) -> list[Array]:
        """Run the subgraph and return its outputs in new arrays."""
        program = self.program
        outs = [np.empty(shape, dtype) for shape, dtype in program.outputs]
        taken = scalar_arguments(program, numbers)
        answer = program.start(*arrays, *taken, *outs)
        if answer == GUARD_FAILED:
            given = program.canonical_args(list(map(np.asarray, arrays)))
            answer = program.start(*given, *taken, *outs)
        if answer == RAN and len(program.module.steps) > 1:
            answer = program.run_middle_steps()
            answer = program.rest() if answer == RAN else answer
        if answer != RAN:
            raise refusal()
        return [
            outs[self._written[k]] if k in self._written else program.host_results[node.id]
            for k, node in enumerate(program.plan.outputs)
        ]

    def write_scalars(self, numbers: Sequence[Any]) -> None:
        """Write scalar inputs to the cells that the program reads, as its entry does."""
        if not self.program.numbers.store(scalar_arguments(self.program, numbers)):
            raise refusal()

    def set_address(self, kind: str, k: int, array: Array) -> None:
        """Set the address of an input or an output in the program's table."""
        slot = self.slots.get((kind, k))
        if slot is not None:
            self.table[slot] = address_of(array)

    def slot_address(self, kind: str, k: int) -> int | None:
        """Return the address of a table slot for an input or an output, or None if it has none."""
        slot = self.slots.get((kind, k))
        return None if slot is None else address_of(self.table) + 8 * slot


def scalar_arguments(program: Any, numbers: Sequence[Any]) -> Sequence[Any]:
    """Convert scalar inputs to what the program of a subgraph takes; raise if one is refused."""
    completed = program.numbers.with_computed(numbers)
    taken = None if completed is None else program.numbers.for_entry_point(completed)
    if taken is None:
        raise refusal()
    found: Sequence[Any] = taken
    return found


def lift_scalar_inputs(graph: Graph, numbers: Sequence[ScalarInput]) -> Graph:
    """Return a subgraph whose scalar inputs are named inputs of its own."""
    if not numbers:
        return graph
    own = {
        one.expression: Expression("named", (f"number{k}",), one.expression.kind)
        for k, one in enumerate(numbers)
    }
    made = copy(graph)
    made.numbers = Arithmetic(tuple(own.values()), ())
    made.instructions = [
        one._replace(
            operands=tuple(
                o._replace(expression=own[o.expression]) if isinstance(o, ScalarInput) else o
                for o in one.operands
            )
        )
        for one in graph.instructions
    ]
    return made


def refusal() -> OdysseyError:
    """Return the error for a step whose runtime checks refuse its data."""
    return OdysseyError("a step of a loop refuses its data")


def host_call_kernel(row: Row, make: Callable[[Graph], Any]) -> Callable[..., Any]:
    """Return the kernel of a host call: a native loop for control flow, else the row's own."""
    return NativeLoop(row.loop, make).run if isinstance(row, LoopRow) else row.kernel


def titled_parts(loop: Loop, programs: Sequence[Any]) -> dict[str, Any]:
    """Return the programs of a loop's subgraphs by title."""
    titles = _TITLES.get(loop.kind, ["while", "each step"])
    return dict(zip(titles, programs, strict=True))


def subprograms_of(kernel: Callable[..., Any]) -> dict[str, Any]:
    """Return the compiled subgraphs of a native loop by title; empty for other kernels."""
    loop = getattr(kernel, "__self__", None)
    return loop.programs() if isinstance(loop, NativeLoop) else {}


class NativeLoop:
    """Loop or branch over compiled subgraphs; one run at a time.

    Args:
        loop: Kind, subgraphs, carries and columns of the loop.
        make: Compiles a subgraph.
    """

    def __init__(self, loop: Loop, make: Callable[[Graph], Any]) -> None:
        self._loop = loop
        updates = loop.carries if loop.kind != "cond" else 0
        *conditions, step = loop.subgraphs
        self._parts = [_Subprogram(graph, loop.numbers, make) for graph in conditions]
        self._parts.append(_Subprogram(step, loop.numbers, make, updates))
        whole = loop.kind != "cond" and all(part.is_one_segment for part in self._parts)
        if loop.kind == "while_loop":
            (truth,) = output_specs(loop.subgraphs[0])
            whole = whole and truth.dtype == np.bool_
        self._driven = _NativeLoopState(loop, self._parts) if whole else None
        if not whole and self._parts[-1].program.plan.overwritten_inputs():
            # Python passes operands to the first step, and these must not be written to.
            self._parts[-1] = _Subprogram(step, loop.numbers, make)

    def programs(self) -> dict[str, Any]:
        """Return the compiled subgraphs by title."""
        return titled_parts(self._loop, [part.program for part in self._parts])

    def run(self, *operands: Any) -> Any:
        """Run the loop and return its results in new arrays.

        Raises:
            OdysseyError: a runtime check of a step refuses its data.
        """
        loop = self._loop
        count = len(operands) - len(loop.numbers)
        given = [np.asarray(one, order="C") for one in operands[:count]]
        numbers = operands[count:]
        if self._driven is None:
            made = loop.run(*given, *numbers, call=lambda k, *values: self._parts[k](*values))
            # Without steps it returns its operands, whose buffers the program will reuse.
            return tuple([one.copy() if any(one is g for g in given) else one for one in made])
        for part in self._parts if numbers else ():
            part.write_scalars(numbers)
        return self._driven.run(given)


class _NativeLoopState:
    """State of a loop driven by native code: buffers and addresses, looked up once."""

    def __init__(self, loop: Loop, parts: Sequence[_Subprogram]) -> None:
        self._loop, self._parts = loop, parts
        last = parts[-1]
        # Double buffering: a step reads one set and writes the other.
        self._specs = output_specs(loop.subgraphs[-1])[: loop.carries]
        # Carries that a step updates where they lie, in a new array for each run.
        self._updated = last.program.plan.overwritten_inputs()
        shapes = [(0,) if k in self._updated else s.shape for k, s in enumerate(self._specs)]
        specs = list(zip(shapes, [spec.dtype for spec in self._specs], strict=True))
        self._here = [np.empty(*spec) for spec in specs]
        self._there = [np.empty(*spec) for spec in specs]
        moves: list[tuple[int | None, int, int, int]] = []
        for k, (a, b) in enumerate(zip(self._here, self._there, strict=True)):
            if k in self._updated:
                continue
            first, apart = address_of(a), address_of(b) - address_of(a)
            moves += [(part.slot_address("input", k), first, apart, 1) for part in parts]
            moves.append((last.slot_address("output", k), first + apart, -apart, 1))
        found = [move for move in moves if move[0] is not None]
        # For a scan: row in ``moves`` and byte offset of the first step, by column and result.
        self._along: list[tuple[int | None, int]] = []
        self._rows = loop.specs()[loop.carries :] if loop.kind == "scan" else ()
        columns = [spec for _, spec in loop.subgraphs[-1].inputs[loop.carries :][: loop.columns]]
        steps = output_specs(loop.subgraphs[-1])[loop.carries :] if self._rows else ()
        for kind, parts_of in (("input", columns), ("output", steps)):
            for k, spec in enumerate(parts_of, loop.carries):
                size, place = spec.size * spec.dtype.itemsize, last.slot_address(kind, k)
                first = size * (loop.steps - 1) if loop.reverse else 0
                self._along.append((None if place is None else len(found), first))
                if place is not None:
                    found.append((place, 0, -size if loop.reverse else size, -1))
        self._count = len(found)
        self._moves = np.array(found or [(0, 0, 0, 0)], np.int64)
        self._truth = np.zeros(1, np.bool_)
        self._end = [last.code, address_of(last.table), address_of(self._moves), self._count]
        if loop.kind == "while_loop":
            parts[0].set_address("output", 0, self._truth)
            table = address_of(parts[0].table)
            self._begin = [parts[0].code, table, address_of(self._truth)]

    def run(self, given: Sequence[Array]) -> tuple[Array, ...]:
        """Run the loop on contiguous operands and return its results."""
        loop = self._loop
        updated = {k: np.array(given[k], self._specs[k].dtype) for k in self._updated}
        for k, array in updated.items():
            for part in self._parts:
                part.set_address("input", k, array)
        for k, buffer in enumerate(self._here):
            if k not in updated:
                buffer[...] = given[k]
        rows = [np.empty(spec.shape, spec.dtype) for spec in self._rows]
        columns = given[loop.carries : loop.carries + loop.columns]
        for (k, first), array in zip(self._along, [*columns, *rows], strict=True):
            if k is not None:
                self._moves[k, 1] = address_of(array) + first
        for k, array in enumerate(given[loop.carries + loop.columns :]):
            for part in self._parts:
                part.set_address("input", loop.carries + loop.columns + k, array)
        done = self._drive()
        last = self._there if done % 2 else self._here
        carries = [updated[k] if k in updated else array.copy() for k, array in enumerate(last)]
        return (*carries, *rows)

    def _drive(self) -> int:
        """Run all steps and return their number."""
        steps, until, _ = _load_drivers()
        time = 0
        if self._loop.kind == "scan":
            while time < self._loop.steps:
                time = steps(*self._end, time, min(time + _STEPS_PER_CALL, self._loop.steps))
                if time < 0:
                    raise refusal()
            return time
        while True:
            before = time
            time = until(*self._begin, *self._end, before, before + _STEPS_PER_CALL)
            if time < 0:
                raise refusal()
            if time < before + _STEPS_PER_CALL:
                return int(time)
