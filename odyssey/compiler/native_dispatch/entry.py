"""Native entry points of a program: check arguments and states, store addresses, run its steps.

The functions are compiled once for all programs; what they need to know of one lies in a block of
words, see ``tables``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from odyssey.compiler.native_dispatch.llvm_functions import TextFunction, return_truth
from odyssey.compiler.native_dispatch.tables import (
    DOUBLE_TO_FLOAT,
    INT_TO_DOUBLE,
    INT_TO_FLOAT,
    STORE_DOUBLE,
    STORE_INT,
)

__all__ = ["RAN", "CHECK_FAILED", "GUARD_FAILED", "Layout", "entry_module"]

RAN, GUARD_FAILED, CHECK_FAILED = 0, 1, 2
"""Return codes of a program: all was done; a guard failed and nothing was done; a runtime check
failed and no state was written."""


class Layout(NamedTuple):
    """Offsets, in bytes, of the fields of NumPy arrays, Variables, dictionaries and tuples.

    Attributes:
        variable: The slots of a Variable, by name; none where native dispatch is not possible.
        version: The version of a dictionary, if it has one.
        items: The items of a tuple.
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
    """Return the source of ``call(self, args, count)``, with arrays as arguments, and of ``rest``.

    ``call`` checks, and runs the first step; ``rest`` runs the last one. Numbers follow the arrays
    among the arguments, see ``scalar_inputs``. The second item of ``self``, a tuple, is an array
    with the program's block.
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
    """Load the address of the block that ``self`` of a function is bound to."""
    array = f.load_word("%self", layout.items // 8 + 1)
    return f.load_word(array, layout.data // 8)


def _words_function() -> str:
    """Predicate: each address holds the expected word under a mask; rows are these three."""
    f = TextFunction("internal i1 @words_match(ptr %rows, i64 %n)")
    with f.loop("%n") as k:
        row = f.element_address("%rows", f.emit_value(f"mul i64 {k}, 3"))
        there = f.load_word(f.load_word(row, 0), 0, "i64")
        have = f.emit_value(f"and i64 {there}, {f.load_word(row, 1, 'i64')}")
        f.branch_unless(f"icmp eq i64 {have}, {f.load_word(row, 2, 'i64')}", "no")
    return return_truth(f)


def _check_function(layout: Layout) -> str:
    """Predicate: guards hold and arguments are as expected; stores the arguments' addresses."""
    f = TextFunction("internal i1 @check(ptr %program, ptr %args)")
    guards, count = (
        f.load_field("%program", "guards"),
        f.load_field("%program", "guard_count", "i64"),
    )
    f.branch_unless(f"call i1 @words_match(ptr {guards}, i64 {count})", "no")
    rows, table = f.load_field("%program", "arrays"), f.load_field("%program", "table")
    with f.loop(f.load_field("%program", "array_count", "i64")) as k:
        row, array = (
            f.element_address(rows, f.emit_value(f"mul i64 {k}, 5")),
            f.load_word("%args", k),
        )
        _check_array(f, layout, row, array)
        data = f.load_word(array, layout.data // 8)
        _check_disjoint(f, f.emit_value(f"ptrtoint ptr {data} to i64"), f.load_word(row, 4, "i64"))
        f.store_object(data, table, f.load_word(row, 3, "i64"))
    _convert_scalars(f)
    return return_truth(f)


def _check_array(f: TextFunction, layout: Layout, row: str, array: str) -> None:
    """Check the class, axes, dtype, flags and shape of an argument."""
    kind, axes = f.load_field("%program", "array_type", "i64"), f.load_word(row, 1, "i64")
    f.branch_unless(f"icmp eq i64 {f.load_word(array, 1, 'i64')}, {kind}", "no")
    have = f.emit_value(f"zext i32 {f.load_word(array, layout.ndim // 8, 'i32')} to i64")
    f.branch_unless(f"icmp eq i64 {have}, {axes}", "no")
    dtype = f.load_word(row, 0, "i64")
    f.branch_unless(f"icmp eq i64 {f.load_word(array, layout.dtype // 8, 'i64')}, {dtype}", "no")
    lie = f.emit_value(f"and i32 {f.load_word(array, layout.flags // 8, 'i32')}, {_ARRAY_FLAGS}")
    f.branch_unless(f"icmp eq i32 {lie}, {_ARRAY_FLAGS}", "no")
    lengths, wanted = f.load_word(array, layout.shape // 8), f.load_word(row, 2)
    with f.loop(axes) as axis:
        want = f.load_word(wanted, axis, "i64")
        f.branch_unless(f"icmp eq i64 {f.load_word(lengths, axis, 'i64')}, {want}", "no")


def _check_disjoint(f: TextFunction, start: str, size: str) -> None:
    """Check that an argument does not overlap a state that is written to."""
    spans, end = f.load_field("%program", "spans"), f.emit_value(f"add i64 {start}, {size}")
    with f.loop(f.load_field("%program", "span_count", "i64")) as k:
        span = f.element_address(spans, f.emit_value(f"shl i64 {k}, 1"))
        below = f.emit_value(f"icmp ule i64 {end}, {f.load_word(span, 0, 'i64')}")
        above = f.emit_value(f"icmp uge i64 {start}, {f.load_word(span, 1, 'i64')}")
        f.branch_unless(f"or i1 {below}, {above}", "no")


def _entry_function(layout: Layout) -> str:
    f = TextFunction("ptr @call(ptr %self, ptr %args, i64 %count)", once=True)
    program = block_of(f, layout)
    given = f.load_field(program, "argument_count", "i64")
    outputs = f.load_field(program, "output_count", "i64")
    wanted = f.emit_value(f"add i64 {given}, {outputs}")
    f.branch_unless(f"icmp eq i64 %count, {wanted}", "guard_failed")
    f.branch_unless(f"call i1 @check(ptr {program}, ptr %args)", "guard_failed")
    slots, table = f.load_field(program, "outputs"), f.load_field(program, "table")
    results = f.element_address("%args", given)
    with f.loop(outputs) as k:
        data = f.load_word(f.load_word(results, k), layout.data // 8)
        f.store_object(data, table, f.load_word(slots, k, "i64"))
    _return_code(f, f.emit_value(f"call i64 {f.load_field(program, 'first')}(ptr {table})"))
    f.begin_block("guard_failed")
    _return_code(f, str(GUARD_FAILED))
    return f.source()


def _last_step_function(layout: Layout) -> str:
    f = TextFunction("ptr @rest(ptr %self, ptr %args, i64 %count)", once=True)
    program = block_of(f, layout)
    table = f.load_field(program, "table")
    _return_code(f, f.emit_value(f"call i64 {f.load_field(program, 'last')}(ptr {table})"))
    return f.source()


def _return_code(f: TextFunction, number: str) -> None:
    made = f.emit_value(f"call ptr @PyLong_FromLong(i64 {number})")
    f.emit_statement(f"ret ptr {made}")


# ------------------------------------------------------------------ scalar inputs


def _convert_scalars(f: TextFunction) -> None:
    """Write code that checks the numbers of a call and converts them; see ``ScalarInputs.rows``."""
    rows = f.load_field("%program", "scalars")
    with f.loop(f.load_field("%program", "scalar_count", "i64")) as k:
        row = f.element_address(rows, f.emit_value(f"mul i64 {k}, 6"))
        number = f.load_word("%args", f.load_word(row, 0, "i64"))
        f.branch_unless(f"icmp eq ptr {f.load_word(number, 1)}, {f.load_word(row, 1)}", "no")
        conversion, cell = f.load_word(row, 4, "i64"), f.load_word(row, 5)
        with f.when(f"icmp sge i64 {conversion}, {STORE_DOUBLE}"):
            _convert_float(f, number, conversion, cell)
        with f.when(f"icmp slt i64 {conversion}, {STORE_DOUBLE}"):
            _convert_int(f, number, row, conversion, cell)


def _convert_float(f: TextFunction, number: str, conversion: str, cell: str) -> None:
    """Convert a float; a finite one must stay finite."""
    n = f.load_word(number, 2, "double")
    with f.when(f"icmp eq i64 {conversion}, {STORE_DOUBLE}"):
        f.emit_statement(f"store double {n}, ptr {cell}")
    with f.when(f"icmp eq i64 {conversion}, {DOUBLE_TO_FLOAT}"):
        size = f.emit_value(f"and i64 {f.load_word(number, 2, 'i64')}, {(1 << 63) - 1}")
        large = f.emit_value(
            f"icmp ugt i64 {size}, {_double_bits(float(np.finfo(np.float32).max))}"
        )
        finite = f.emit_value(f"icmp ult i64 {size}, {_double_bits(inf)}")
        lost = f.emit_value(f"and i1 {large}, {finite}")
        f.branch_unless(f"xor i1 {lost}, true", "no")
        single = f.emit_value(f"fptrunc double {n} to float")
        f.emit_statement(f"store float {single}, ptr {cell}")


def _convert_int(f: TextFunction, number: str, row: str, conversion: str, cell: str) -> None:
    """Convert an integer to a dtype that holds it."""
    far = f.stack_slot("i32")
    n = f.emit_value(f"call i64 @PyLong_AsLongLongAndOverflow(ptr {number}, ptr {far})")
    f.branch_unless(f"icmp eq i32 {f.emit_value(f'load i32, ptr {far}')}, 0", "no")
    f.branch_unless(f"icmp sge i64 {n}, {f.load_word(row, 2, 'i64')}", "no")
    f.branch_unless(f"icmp sle i64 {n}, {f.load_word(row, 3, 'i64')}", "no")
    with f.when(f"icmp eq i64 {conversion}, {STORE_INT}"):
        f.emit_statement(f"store i64 {n}, ptr {cell}")  # a shorter dtype reads its lower bytes
    with f.when(f"icmp ne i64 {conversion}, {STORE_INT}"):
        wide = f.emit_value(f"sitofp i64 {n} to double")
        with f.when(f"icmp eq i64 {conversion}, {INT_TO_DOUBLE}"):
            f.emit_statement(f"store double {wide}, ptr {cell}")
        with f.when(f"icmp eq i64 {conversion}, {INT_TO_FLOAT}"):
            single = f.emit_value(f"fptrunc double {wide} to float")
            f.emit_statement(f"store float {single}, ptr {cell}")


def _double_bits(number: float) -> int:
    (found,) = struct.unpack("<q", struct.pack("<d", number))
    return int(found)
