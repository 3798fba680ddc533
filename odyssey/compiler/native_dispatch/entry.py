"""Native entry points of a program: check arguments and states, store addresses, run its steps.

Generated once a process, by ``loader`` for calls through Python and by ``dispatcher`` for native
dispatch. The code serves all programs: what it needs to know of one is in a block of words, see
``tables``. Python calls it as two functions: ``call`` checks arguments and guards and runs the
first step of a program, ``rest`` runs the last step. Predicates return true, or leave by the block
``no``, which returns false.
"""

from __future__ import annotations

import struct
from math import inf

import numpy as np

from odyssey.compiler.native_dispatch.llvm_functions import TableRow, TextFunction, return_truth
from odyssey.compiler.native_dispatch.object_layout import ObjectLayout
from odyssey.compiler.native_dispatch.tables import (
    DOUBLE_TO_FLOAT,
    INT_TO_DOUBLE,
    INT_TO_FLOAT,
    STORE_DOUBLE,
    STORE_INT,
)

__all__ = ["RAN", "CHECK_FAILED", "GUARD_FAILED", "block_of", "entry_module"]

RAN, GUARD_FAILED, CHECK_FAILED = 0, 1, 2
"""Return codes of a program: all was done; a guard failed and nothing was done; a runtime check
failed and no state was written."""


_ARRAY_FLAGS = 0x101  # row-major, aligned

_ENTRY_DECLARATIONS = """declare ptr @PyLong_FromLong(i64)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)"""


def entry_module(layout: ObjectLayout) -> str:
    """Return the source of ``call(self, args, count)``, with arrays as arguments, and of ``rest``.

    Numbers follow the arrays among the arguments, see ``scalar_inputs``. Both return one of RAN,
    GUARD_FAILED and CHECK_FAILED. ``self`` is a tuple, whose second item is an array with the
    program's block.
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


def block_of(f: TextFunction, layout: ObjectLayout) -> str:
    """Load the address of the block that ``self`` of a function is bound to."""
    array = f.load_word("%self", layout.items // 8 + 1)
    return f.load_word(array, layout.data // 8)


def _words_function() -> str:
    """Predicate: each address holds the expected word under a mask."""
    f = TextFunction("internal i1 @words_match(ptr %rows, i64 %n)")
    with f.loop("%n") as k:
        row = f.row("words", "%rows", k)
        word = f.load_word(row.load("address"), 0, "i64")
        masked = f.emit_value(f"and i64 {word}, {row.load('mask', 'i64')}")
        f.branch_unless(f"icmp eq i64 {masked}, {row.load('expected', 'i64')}", "no")
    return return_truth(f)


def _check_function(layout: ObjectLayout) -> str:
    """Predicate: guards hold and arguments are as expected; stores the arguments' addresses."""
    f = TextFunction("internal i1 @check(ptr %program, ptr %args)")
    guards, count = (
        f.load_field("%program", "guards"),
        f.load_field("%program", "guard_count", "i64"),
    )
    f.branch_unless(f"call i1 @words_match(ptr {guards}, i64 {count})", "no")
    rows, table = f.load_field("%program", "arrays"), f.load_field("%program", "table")
    with f.loop(f.load_field("%program", "array_count", "i64")) as k:
        row = f.row("arrays", rows, k)
        array = f.load_word("%args", k)
        _check_array(f, layout, row, array)
        data = f.load_word(array, layout.data // 8)
        start = f.emit_value(f"ptrtoint ptr {data} to i64")
        _check_disjoint(f, start, row.load("byte_count", "i64"))
        f.store_object(data, table, row.load("slot", "i64"))
    _convert_scalars(f)
    return return_truth(f)


def _check_array(f: TextFunction, layout: ObjectLayout, row: TableRow, array: str) -> None:
    """Check the class, axes, dtype, flags and shape of an argument."""
    kind, axes = f.load_field("%program", "array_type", "i64"), row.load("axis_count", "i64")
    f.branch_unless(f"icmp eq i64 {f.load_word(array, 1, 'i64')}, {kind}", "no")
    axis_count = f.emit_value(f"zext i32 {f.load_word(array, layout.ndim // 8, 'i32')} to i64")
    f.branch_unless(f"icmp eq i64 {axis_count}, {axes}", "no")
    dtype = row.load("dtype", "i64")
    f.branch_unless(f"icmp eq i64 {f.load_word(array, layout.dtype // 8, 'i64')}, {dtype}", "no")
    flags = f.emit_value(f"and i32 {f.load_word(array, layout.flags // 8, 'i32')}, {_ARRAY_FLAGS}")
    f.branch_unless(f"icmp eq i32 {flags}, {_ARRAY_FLAGS}", "no")
    shape, expected_shape = f.load_word(array, layout.shape // 8), row.load("shape")
    with f.loop(axes) as axis:
        expected = f.load_word(expected_shape, axis, "i64")
        f.branch_unless(f"icmp eq i64 {f.load_word(shape, axis, 'i64')}, {expected}", "no")


def _check_disjoint(f: TextFunction, start: str, size: str) -> None:
    """Check that an argument does not overlap a state that is written to."""
    spans, end = f.load_field("%program", "spans"), f.emit_value(f"add i64 {start}, {size}")
    with f.loop(f.load_field("%program", "span_count", "i64")) as k:
        span = f.row("spans", spans, k)
        below = f.emit_value(f"icmp ule i64 {end}, {span.load('start', 'i64')}")
        above = f.emit_value(f"icmp uge i64 {start}, {span.load('end', 'i64')}")
        f.branch_unless(f"or i1 {below}, {above}", "no")


def _entry_function(layout: ObjectLayout) -> str:
    f = TextFunction("ptr @call(ptr %self, ptr %args, i64 %count)", once=True)
    program = block_of(f, layout)
    arguments = f.load_field(program, "argument_count", "i64")
    outputs = f.load_field(program, "output_count", "i64")
    expected = f.emit_value(f"add i64 {arguments}, {outputs}")
    f.branch_unless(f"icmp eq i64 %count, {expected}", "guard_failed")
    f.branch_unless(f"call i1 @check(ptr {program}, ptr %args)", "guard_failed")
    slots, table = f.load_field(program, "outputs"), f.load_field(program, "table")
    results = f.element_address("%args", arguments)
    with f.loop(outputs) as k:
        data = f.load_word(f.load_word(results, k), layout.data // 8)
        f.store_object(data, table, f.load_word(slots, k, "i64"))
    _return_code(f, f.emit_value(f"call i64 {f.load_field(program, 'first')}(ptr {table})"))
    f.begin_block("guard_failed")
    _return_code(f, str(GUARD_FAILED))
    return f.source()


def _last_step_function(layout: ObjectLayout) -> str:
    f = TextFunction("ptr @rest(ptr %self, ptr %args, i64 %count)", once=True)
    program = block_of(f, layout)
    table = f.load_field(program, "table")
    _return_code(f, f.emit_value(f"call i64 {f.load_field(program, 'last')}(ptr {table})"))
    return f.source()


def _return_code(f: TextFunction, code: str) -> None:
    """Return a return code as a Python int."""
    python_int = f.emit_value(f"call ptr @PyLong_FromLong(i64 {code})")
    f.emit_statement(f"ret ptr {python_int}")


# ------------------------------------------------------------------ scalar inputs


def _convert_scalars(f: TextFunction) -> None:
    """Write code that checks the numbers of a call and converts them; see ``ScalarInputs.rows``."""
    rows = f.load_field("%program", "scalars")
    with f.loop(f.load_field("%program", "scalar_count", "i64")) as k:
        row = f.row("scalars", rows, k)
        number = f.load_word("%args", row.load("argument", "i64"))
        f.branch_unless(f"icmp eq ptr {f.load_word(number, 1)}, {row.load('kind')}", "no")
        conversion, cell = row.load("conversion", "i64"), row.load("cell")
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
        magnitude = f.emit_value(f"and i64 {f.load_word(number, 2, 'i64')}, {(1 << 63) - 1}")
        large = f.emit_value(
            f"icmp ugt i64 {magnitude}, {_double_bits(float(np.finfo(np.float32).max))}"
        )
        finite = f.emit_value(f"icmp ult i64 {magnitude}, {_double_bits(inf)}")
        overflows = f.emit_value(f"and i1 {large}, {finite}")
        f.branch_unless(f"xor i1 {overflows}, true", "no")
        single = f.emit_value(f"fptrunc double {n} to float")
        f.emit_statement(f"store float {single}, ptr {cell}")


def _convert_int(f: TextFunction, number: str, row: TableRow, conversion: str, cell: str) -> None:
    """Convert an integer to a dtype that holds it."""
    overflow = f.stack_slot("i32")
    n = f.emit_value(f"call i64 @PyLong_AsLongLongAndOverflow(ptr {number}, ptr {overflow})")
    f.branch_unless(f"icmp eq i32 {f.emit_value(f'load i32, ptr {overflow}')}, 0", "no")
    f.branch_unless(f"icmp sge i64 {n}, {row.load('least', 'i64')}", "no")
    f.branch_unless(f"icmp sle i64 {n}, {row.load('most', 'i64')}", "no")
    with f.when(f"icmp eq i64 {conversion}, {STORE_INT}"):
        f.emit_statement(f"store i64 {n}, ptr {cell}")  # a shorter dtype reads its lower bytes
    with f.when(f"icmp ne i64 {conversion}, {STORE_INT}"):
        double = f.emit_value(f"sitofp i64 {n} to double")
        with f.when(f"icmp eq i64 {conversion}, {INT_TO_DOUBLE}"):
            f.emit_statement(f"store double {double}, ptr {cell}")
        with f.when(f"icmp eq i64 {conversion}, {INT_TO_FLOAT}"):
            single = f.emit_value(f"fptrunc double {double} to float")
            f.emit_statement(f"store float {single}, ptr {cell}")


def _double_bits(number: float) -> int:
    (bits,) = struct.unpack("<q", struct.pack("<d", number))
    return int(bits)
