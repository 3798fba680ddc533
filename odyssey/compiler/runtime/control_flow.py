"""Loops and branches of a program: their parts are programs of their own, run natively.

A step of a scan goes from one set of buffers to another and back. Where it is one native segment, a
loop in native code runs it, which moves the addresses in its table; otherwise Python runs it, a
call of native code a step.
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
from odyssey.compiler.runtime.binding import address_of
from odyssey.compiler.symbolic.expressions import Arithmetic, Expression
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Given, Graph
from odyssey.graph.subgraphs import Loop, LoopRow, specs_of
from odyssey.spec import Array
from odyssey.table.row import Row

__all__ = ["NativeLoop", "host_call_kernel", "subprograms_of"]

_TITLES = {"scan": ["each step"], "cond": ["if true", "if false"]}

# Runs programs again and again. Before each time it puts addresses into their tables: row ``k`` of
# ``moves`` says where, from which address on, how far apart they are, and of which bits of the
# number of the time. With a condition it goes on as long as that leaves a true byte.
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

# After so many steps Python looks for signals. It is even: the buffers are as at the beginning.
_MANY = 4096

_WORD, _POINTER = c_int64, c_void_p


@cache
def _load_drivers() -> tuple[Any, Any, Any]:
    """The two loops, and what their code lies in."""
    loaded = load(_TEXT)
    steps = PYFUNCTYPE(_WORD, *[_POINTER] * 3, *[_WORD] * 3)(loaded.address("steps"))
    until = PYFUNCTYPE(_WORD, *[_POINTER] * 6, *[_WORD] * 3)(loaded.address("until"))
    return steps, until, loaded


class _Subprogram:
    """One part as a program.

    Attributes:
        program: Of its graph.
        whole: Whether it is one native segment that writes all of its outputs.
    """

    def __init__(
        self, graph: Graph, numbers: Sequence[Given], make: Callable[[Graph], Any]
    ) -> None:
        self.program = program = make(_lift_scalar_inputs(graph, numbers))
        self.slots, self.table = program.module.slots, program.table
        steps, written = program.module.steps, program.plan.written_outputs()
        self._written = {k: n for n, k in enumerate(written)}
        self.whole = len(steps) == 1 and len(written) == len(graph.outputs)
        self.code = program.loaded.address(steps[0]) if self.whole else 0

    def __call__(self, arrays: Sequence[Any], numbers: Sequence[Any]) -> list[Array]:
        """The outputs, in new arrays."""
        program = self.program
        outs = [np.empty(shape, dtype) for shape, dtype in program.outputs]
        taken = self._taken(numbers)
        answer = program.start(*arrays, *taken, *outs)
        if answer == GUARD_FAILED:
            given = program.canonical_args(list(map(np.asarray, arrays)))
            answer = program.start(*given, *taken, *outs)
        if answer == RAN and len(program.module.steps) > 1:
            answer = program.run_middle_steps()
            answer = program.rest() if answer == RAN else answer
        if answer != RAN:
            raise _raise_refused()
        return [
            outs[self._written[k]] if k in self._written else program.host_results[node.id]
            for k, node in enumerate(program.plan.outputs)
        ]

    def _taken(self, numbers: Sequence[Any]) -> Sequence[Any]:
        """What the program is given of numbers."""
        completed = self.program.numbers.with_computed(numbers)
        taken = None if completed is None else self.program.numbers.for_entry_point(completed)
        if taken is None:
            raise _raise_refused()
        found: Sequence[Any] = taken
        return found

    def take(self, numbers: Sequence[Any]) -> None:
        """Put numbers where the program reads them, as its entry does."""
        if not self.program.numbers.store(self._taken(numbers)):
            raise _raise_refused()

    def put(self, kind: str, k: int, array: Array) -> None:
        """Let an input, or an output, lie where an array does."""
        slot = self.slots.get((kind, k))
        if slot is not None:
            self.table[slot] = address_of(array)

    def place(self, kind: str, k: int) -> int | None:
        """Where the table has the address of an input, or of an output, if it does."""
        slot = self.slots.get((kind, k))
        return None if slot is None else address_of(self.table) + 8 * slot


def _lift_scalar_inputs(graph: Graph, numbers: Sequence[Given]) -> Graph:
    """A part for which numbers that only a call knows are its own inputs."""
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
                o._replace(expression=own[o.expression]) if isinstance(o, Given) else o
                for o in one.operands
            )
        )
        for one in graph.instructions
    ]
    return made


def _raise_refused() -> OdysseyError:
    return OdysseyError("a step of a loop refuses its data")


def host_call_kernel(row: Row, make: Callable[[Graph], Any]) -> Callable[..., Any]:
    """What runs a call of a row: native code, of a loop."""
    return NativeLoop(row.loop, make).run if isinstance(row, LoopRow) else row.kernel


def subprograms_of(kernel: Callable[..., Any]) -> dict[str, Any]:
    """The programs of the parts of a loop, by what they are for; none of other kernels."""
    loop = getattr(kernel, "__self__", None)
    return loop.programs() if isinstance(loop, NativeLoop) else {}


class NativeLoop:
    """What a loop or two branches do, in native code; one run at a time.

    Args:
        loop: What is to be done.
        make: Makes a program of a graph.
    """

    def __init__(self, loop: Loop, make: Callable[[Graph], Any]) -> None:
        self._loop = loop
        self._parts = [_Subprogram(graph, loop.numbers, make) for graph in loop.parts]
        whole = loop.kind != "cond" and all(part.whole for part in self._parts)
        if loop.kind == "while_loop":
            (truth,) = specs_of(loop.parts[0])
            whole = whole and truth.dtype == np.bool_
        self._driven = _NativeLoopState(loop, self._parts) if whole else None

    def programs(self) -> dict[str, Any]:
        """The programs of its parts, by what they are for."""
        titles = _TITLES.get(self._loop.kind, ["while", "each step"])
        return dict(zip(titles, [part.program for part in self._parts], strict=True))

    def run(self, *operands: Any) -> Any:
        """The results, new arrays.

        Raises:
            OdysseyError: data is not what a step can take.
        """
        loop = self._loop
        count = len(operands) - len(loop.numbers)
        given = [np.asarray(one, order="C") for one in operands[:count]]
        numbers = operands[count:]
        if self._driven is None:
            return loop.run(*given, *numbers, call=lambda k, *values: self._parts[k](*values))
        for part in self._parts if numbers else ():
            part.take(numbers)
        return self._driven.run(given)


class _NativeLoopState:
    """A loop whose steps a loop in native code runs; its memory is looked up once."""

    def __init__(self, loop: Loop, parts: Sequence[_Subprogram]) -> None:
        self._loop, self._parts = loop, parts
        last = parts[-1]
        # Two sets of buffers: what a step reads, and what it writes and the next one reads.
        specs = specs_of(loop.parts[-1])[: loop.carries]
        self._here = [np.empty(spec.shape, spec.dtype) for spec in specs]
        self._there = [np.empty(spec.shape, spec.dtype) for spec in specs]
        moves: list[tuple[int | None, int, int, int]] = []
        for k, (a, b) in enumerate(zip(self._here, self._there, strict=True)):
            first, apart = address_of(a), address_of(b) - address_of(a)
            moves += [(part.place("input", k), first, apart, 1) for part in parts]
            moves.append((last.place("output", k), first + apart, -apart, 1))
        found = [move for move in moves if move[0] is not None]
        # Of a scan, what its columns and results have in ``moves``, and where its first step is.
        self._along: list[tuple[int | None, int]] = []
        self._rows = loop.specs()[loop.carries :] if loop.kind == "scan" else ()
        columns = [spec for _, spec in loop.parts[-1].inputs[loop.carries :][: loop.columns]]
        steps = specs_of(loop.parts[-1])[loop.carries :] if self._rows else ()
        for kind, parts_of in (("input", columns), ("output", steps)):
            for k, spec in enumerate(parts_of, loop.carries):
                size, place = spec.size * spec.dtype.itemsize, last.place(kind, k)
                first = size * (loop.steps - 1) if loop.reverse else 0
                self._along.append((None if place is None else len(found), first))
                if place is not None:
                    found.append((place, 0, -size if loop.reverse else size, -1))
        self._count = len(found)
        self._moves = np.array(found or [(0, 0, 0, 0)], np.int64)
        self._truth = np.zeros(1, np.bool_)
        self._end = [last.code, address_of(last.table), address_of(self._moves), self._count]
        if loop.kind == "while_loop":
            parts[0].put("output", 0, self._truth)
            table = address_of(parts[0].table)
            self._begin = [parts[0].code, table, address_of(self._truth)]

    def run(self, given: Sequence[Array]) -> tuple[Array, ...]:
        """The results."""
        loop = self._loop
        for buffer, array in zip(self._here, given, strict=False):
            buffer[...] = array
        rows = [np.empty(spec.shape, spec.dtype) for spec in self._rows]
        columns = given[loop.carries : loop.carries + loop.columns]
        for (k, first), array in zip(self._along, [*columns, *rows], strict=True):
            if k is not None:
                self._moves[k, 1] = address_of(array) + first
        for k, array in enumerate(given[loop.carries + loop.columns :]):
            for part in self._parts:
                part.put("input", loop.carries + loop.columns + k, array)
        done = self._drive()
        return (*[array.copy() for array in (self._there if done % 2 else self._here)], *rows)

    def _drive(self) -> int:
        """Run all steps; return how many there were."""
        steps, until, _ = _load_drivers()
        time = 0
        if self._loop.kind == "scan":
            while time < self._loop.steps:
                time = steps(*self._end, time, min(time + _MANY, self._loop.steps))
                if time < 0:
                    raise _raise_refused()
            return time
        while True:
            before = time
            time = until(*self._begin, *self._end, before, before + _MANY)
            if time < 0:
                raise _raise_refused()
            if time < before + _MANY:
                return int(time)
