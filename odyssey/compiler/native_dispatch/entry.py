"""What Python calls of a program: it looks at arguments and states, and takes their addresses.

It is the same functions for all programs, made once; what they need to know of one lies in a block
of words, of which see ``tables``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from odyssey.compiler.native_dispatch.llvm_functions import TextFunction, return_truth
from odyssey.compiler.native_dispatch.scalar_inputs import convert_scalars_function

__all__ = ["RAN", "CHECK_FAILED", "GUARD_FAILED", "Layout", "entry_module"]

RAN, GUARD_FAILED, CHECK_FAILED = 0, 1, 2
"""What a program answers: all was done; arguments or states are others than it was made for, and
nothing was done; a check failed, and no state was written."""


class Layout(NamedTuple):
    """Where NumPy's arrays keep what describes them, in bytes; and others what is theirs.

    Attributes:
        variable: Of a Variable its slots, by name; none where no call is one native function.
        version: Of a dictionary its version, if it has one.
        items: Of a tuple what it has.
    """

    data: int
    ndim: int
    shape: int
    dtype: int
    flags: int
    variable: Mapping[str, int] = MappingProxyType({})
    version: int | None = None
    items: int = tuple.__basicsize__


_ARRAY_FLAGS = 0x101  # row-major, aligned

_ENTRY_DECLARATIONS = """declare ptr @PyLong_FromLong(i64)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)"""


def entry_module(layout: Layout) -> str:
    """``call(self, args, count)``: arguments and results as NumPy's arrays; and ``rest``.

    The first looks, and runs the first step; the other runs the last. Behind the arrays of
    arguments come numbers, of which see ``given``. Of ``self``, a tuple, the second is an array
    that has the program's block.
    """
    return "\n".join(
        [
            _ENTRY_DECLARATIONS,
            _words_function(),
            _check_function(layout),
            _entry_function(layout),
            _last_step_function(layout),
        ]
    )


def block_of(f: TextFunction, layout: Layout) -> str:
    """The block that ``self`` of a function is bound to."""
    array = f.word("%self", layout.items // 8 + 1)
    return f.word(array, layout.data // 8)


def _words_function() -> str:
    """Whether at each place there stands a word, under a mask: rows of the three."""
    f = TextFunction("internal i1 @words(ptr %rows, i64 %n)")
    with f.each("%n") as k:
        row = f.at("%rows", f.give(f"mul i64 {k}, 3"))
        there = f.word(f.word(row, 0), 0, "i64")
        have = f.give(f"and i64 {there}, {f.word(row, 1, 'i64')}")
        f.require(f"icmp eq i64 {have}, {f.word(row, 2, 'i64')}", "no")
    return return_truth(f)


def _check_function(layout: Layout) -> str:
    """Whether guards hold and arguments fit, whose addresses it notes."""
    f = TextFunction("internal i1 @look(ptr %program, ptr %args)")
    guards, count = f.field("%program", "guards"), f.field("%program", "guard_count", "i64")
    f.require(f"call i1 @words(ptr {guards}, i64 {count})", "no")
    rows, table = f.field("%program", "arrays"), f.field("%program", "table")
    with f.each(f.field("%program", "array_count", "i64")) as k:
        row, array = f.at(rows, f.give(f"mul i64 {k}, 5")), f.word("%args", k)
        _check_array(f, layout, row, array)
        data = f.word(array, layout.data // 8)
        _check_disjoint(f, f.give(f"ptrtoint ptr {data} to i64"), f.word(row, 4, "i64"))
        f.put(data, table, f.word(row, 3, "i64"))
    convert_scalars_function(f)
    return return_truth(f)


def _check_array(f: TextFunction, layout: Layout, row: str, array: str) -> None:
    """Ask whether an argument is what the program is made for."""
    kind, axes = f.field("%program", "array_type", "i64"), f.word(row, 1, "i64")
    f.require(f"icmp eq i64 {f.word(array, 1, 'i64')}, {kind}", "no")
    have = f.give(f"zext i32 {f.word(array, layout.ndim // 8, 'i32')} to i64")
    f.require(f"icmp eq i64 {have}, {axes}", "no")
    dtype = f.word(row, 0, "i64")
    f.require(f"icmp eq i64 {f.word(array, layout.dtype // 8, 'i64')}, {dtype}", "no")
    lie = f.give(f"and i32 {f.word(array, layout.flags // 8, 'i32')}, {_ARRAY_FLAGS}")
    f.require(f"icmp eq i32 {lie}, {_ARRAY_FLAGS}", "no")
    lengths, wanted = f.word(array, layout.shape // 8), f.word(row, 2)
    with f.each(axes) as axis:
        want = f.word(wanted, axis, "i64")
        f.require(f"icmp eq i64 {f.word(lengths, axis, 'i64')}, {want}", "no")


def _check_disjoint(f: TextFunction, start: str, size: str) -> None:
    """Ask whether an argument is not where a state lies that is written to."""
    spans, end = f.field("%program", "spans"), f.give(f"add i64 {start}, {size}")
    with f.each(f.field("%program", "span_count", "i64")) as k:
        span = f.at(spans, f.give(f"shl i64 {k}, 1"))
        below = f.give(f"icmp ule i64 {end}, {f.word(span, 0, 'i64')}")
        above = f.give(f"icmp uge i64 {start}, {f.word(span, 1, 'i64')}")
        f.require(f"or i1 {below}, {above}", "no")


def _entry_function(layout: Layout) -> str:
    f = TextFunction("ptr @call(ptr %self, ptr %args, i64 %count)", once=True)
    program = block_of(f, layout)
    given, outputs = (f.field(program, name, "i64") for name in ("given", "output_count"))
    wanted = f.give(f"add i64 {given}, {outputs}")
    f.require(f"icmp eq i64 %count, {wanted}", "strange")
    f.require(f"call i1 @look(ptr {program}, ptr %args)", "strange")
    slots, table = f.field(program, "outputs"), f.field(program, "table")
    results = f.at("%args", given)
    with f.each(outputs) as k:
        data = f.word(f.word(results, k), layout.data // 8)
        f.put(data, table, f.word(slots, k, "i64"))
    _return_code(f, f.give(f"call i64 {f.field(program, 'first')}(ptr {table})"))
    f.label("strange")
    _return_code(f, str(GUARD_FAILED))
    return f.text()


def _last_step_function(layout: Layout) -> str:
    f = TextFunction("ptr @rest(ptr %self, ptr %args, i64 %count)", once=True)
    program = block_of(f, layout)
    table = f.field(program, "table")
    _return_code(f, f.give(f"call i64 {f.field(program, 'last')}(ptr {table})"))
    return f.text()


def _return_code(f: TextFunction, number: str) -> None:
    made = f.give(f"call ptr @PyLong_FromLong(i64 {number})")
    f.do(f"ret ptr {made}")
