"""Native dispatcher: a call as one native function that checks guards, runs and commits.

No Python code runs between the last guard check and the end of the commit, so nothing can come in
between. All that may fail, or let the garbage collector run, precedes the check. The function is
compiled once for all programs: what it needs to know of one lies in tables of words, which
``runtime/dispatch_tables`` fills.
"""

from __future__ import annotations

from collections.abc import Mapping

from odyssey.compiler.native_dispatch.entry import RAN, Layout, block_of, entry_module
from odyssey.compiler.native_dispatch.guard_checks import guard_check_functions
from odyssey.compiler.native_dispatch.llvm_functions import TextFunction, return_truth
from odyssey.compiler.native_dispatch.tables import (
    ARRAY_RESULT,
    HELD_OBJECT,
    LIST_RESULT,
    NUMBER_RESULT,
    NUMBER_VARIABLE_RESULT,
    SINGLE_RESULT,
    TUPLE_RESULT,
    VARIABLE_RESULT,
)

__all__ = ["native_dispatch_module"]

_DECLARATIONS = """declare ptr @PyObject_CallNoArgs(ptr)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyIter_Next(ptr)
declare ptr @PyNumber_Add(ptr, ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @odyssey_new_array(i32, ptr, ptr, i32)
declare ptr @odyssey_new_number(ptr, ptr, ptr)"""


def native_dispatch_module(layout: Layout) -> str:
    """Return the source of the module with ``dispatch(self, args, count)``, the native dispatcher.

    The dispatcher returns the function's result, or the cache miss sentinel. The module also has
    ``tables_current`` (see ``guard_check_functions``) and all of ``entry_module``; ``self`` is as
    there.

    Args:
        layout: Offsets of the fields of Variables, arrays and dictionaries.
    """
    slots = layout.variable
    parts = [
        guard_check_functions(layout),
        _allocate_results_function(layout.data),
        _make_leaves_function(slots),
        _next_versions_function(),
    ]
    parts += [_commit_function(), _build_result_function(slots), _dispatch_function(layout)]
    return "\n".join([_DECLARATIONS, entry_module(layout), *parts])


# ------------------------------------------------------------------ before the run


def _allocate_results_function(data: int) -> str:
    """Allocate result arrays, and collect the addresses of their elements."""
    f = TextFunction("internal i1 @outs(ptr %block, ptr %outs, ptr %addresses)")
    rows = f.load_field("%block", "outs")
    with f.loop(f.load_field("%block", "out_count", "i64")) as k:
        row = f.element_address(rows, f.emit_value(f"mul i64 {k}, 5"))
        with f.when(f"icmp eq i64 {f.load_word(row, 4, 'i64')}, 0"):
            dtype, axes = (
                f.load_word(row, 0),
                f.emit_value(f"trunc i64 {f.load_word(row, 1, 'i64')} to i32"),
            )
            f.incref(dtype)  # the next call takes the reference over
            given = f"i32 {axes}, ptr {f.load_word(row, 2)}, ptr {dtype}, i32 0"
            made = f.emit_value(f"call ptr @odyssey_new_array({given})")
            f.branch_unless(f"icmp ne ptr {made}, null", "no")
            f.store_object(made, "%outs", k)
            at = f.emit_value(f"getelementptr i8, ptr {made}, i64 {data}")
            f.store_object(f.emit_value(f"load ptr, ptr {at}"), "%addresses", k)
        with f.when(f"icmp ne i64 {f.load_word(row, 4, 'i64')}, 0"):
            f.store_object(f.load_word(row, 2), "%addresses", k)
    return return_truth(f)


def _make_leaves_function(slots: Mapping[str, int]) -> str:
    """Make the leaves of the result, but for numbers, which are not known yet."""
    f = TextFunction("internal i1 @leaves(ptr %block, ptr %outs, ptr %leaves)")
    rows, none = f.load_field("%block", "leaves"), f.load_field("%block", "none")
    with f.loop(f.load_field("%block", "leaf_count", "i64")) as k:
        row = f.element_address(rows, f.emit_value(f"shl i64 {k}, 2"))
        kind = f.load_word(row, 0, "i64")
        with f.when(f"icmp eq i64 {kind}, {HELD_OBJECT}"):
            thing = f.load_word(row, 1)
            f.incref(thing)
            f.store_object(thing, "%leaves", k)
        with f.when(f"icmp eq i64 {kind}, {ARRAY_RESULT}"):
            array = f.load_word("%outs", f.load_word(row, 1, "i64"))
            f.incref(array)
            f.store_object(array, "%leaves", k)
        with f.when(f"icmp sge i64 {kind}, {VARIABLE_RESULT}"):
            made = f.emit_value(
                f"call ptr @PyType_GenericAlloc(ptr {f.load_field('%block', 'variable')}, i64 0)"
            )
            f.branch_unless(f"icmp ne ptr {made}, null", "no")
            f.store_object(made, "%leaves", k)
            id = f.emit_value(f"call ptr @PyIter_Next(ptr {f.load_field('%block', 'ids')})")
            f.branch_unless(f"icmp ne ptr {id}, null", "no")
            f.store_object(id, made, slots["_id"] // 8)
            held = {"_placed": none, "_info": none}
            held |= {"_recording": f.load_word(row, 2), "_spec": f.load_word(row, 3)}
            for name, thing in held.items():
                f.incref(thing)
                f.store_object(thing, made, slots[name] // 8)
            with f.when(f"icmp eq i64 {kind}, {VARIABLE_RESULT}"):
                array = f.load_word("%outs", f.load_word(row, 1, "i64"))
                f.incref(array)
                f.store_object(array, made, slots["_array"] // 8)
    return return_truth(f)


def _next_versions_function() -> str:
    """Make the next version numbers of the states; each must be a Python int."""
    f = TextFunction("internal i1 @numbers(ptr %block, ptr %new)")
    rows, one = f.load_field("%block", "versions"), f.load_field("%block", "one")
    kind, count = (
        f.load_field("%block", "int_type"),
        f.load_field("%block", "version_count", "i64"),
    )
    with f.loop(count) as k:
        now = f.load_word(f.load_word(rows, k), 0)
        f.branch_unless(f"icmp ne ptr {now}, null", "no")
        f.branch_unless(f"icmp eq ptr {f.load_word(now, 1)}, {kind}", "no")
        later = f.emit_value(f"call ptr @PyNumber_Add(ptr {now}, ptr {one})")
        f.branch_unless(f"icmp ne ptr {later}, null", "no")
        f.store_object(later, "%new", k)
    with f.when(f"icmp ne i64 {count}, 0"):
        drawn = f.emit_value(f"call ptr @PyIter_Next(ptr {f.load_field('%block', 'ticket')})")
        f.branch_unless(f"icmp ne ptr {drawn}, null", "no")
        f.emit_statement(f"call void @Py_DecRef(ptr {drawn})")
    return return_truth(f)


# ------------------------------------------------------------------ commit and result


def _commit_function() -> str:
    """Store versions and gradients; the objects that they replace are left in the tables."""
    f = TextFunction("internal void @commit(ptr %block, ptr %outs, ptr %new, ptr %old)")
    addresses, none = f.load_field("%block", "versions"), f.load_field("%block", "none")
    with f.loop(f.load_field("%block", "version_count", "i64")) as k:
        address = f.load_word(addresses, k)
        now = f.load_word(address, 0)
        f.store_object(f.load_word("%new", k), address, 0)
        f.store_object(now, "%new", k)
    rows = f.load_field("%block", "cells")
    with f.loop(f.load_field("%block", "cell_count", "i64")) as k:
        row = f.element_address(rows, f.emit_value(f"shl i64 {k}, 1"))
        address, which = f.load_word(row, 0), f.load_word(row, 1, "i64")
        now, thing = f.load_word(address, 0), f.stack_slot("ptr")
        f.store_object(none, thing, 0)
        with f.when(f"icmp ne i64 {which}, 0"):
            f.store_object(f.load_word("%outs", f.emit_value(f"sub i64 {which}, 1")), thing, 0)
        with f.when(f"icmp ne ptr {now}, {f.load_word(thing, 0)}"):
            f.incref(f.load_word(thing, 0))
            f.store_object(f.load_word(thing, 0), address, 0)
            f.store_object(now, "%old", k)
    f.emit_statement("ret void")
    return f.source()


def _build_result_function(slots: Mapping[str, int]) -> str:
    """Build the result of leaves, whose references it takes over; null if memory is short."""
    f = TextFunction("internal ptr @result(ptr %block, ptr %addresses, ptr %leaves, ptr %box)")
    rows, outs = f.load_field("%block", "leaves"), f.load_field("%block", "outs")
    count, form = f.load_field("%block", "leaf_count", "i64"), f.load_field("%block", "form", "i64")
    with f.loop(count) as k:
        row = f.element_address(rows, f.emit_value(f"shl i64 {k}, 2"))
        kind = f.load_word(row, 0, "i64")
        odd = [
            f.emit_value(f"icmp eq i64 {kind}, {one}")
            for one in (NUMBER_RESULT, NUMBER_VARIABLE_RESULT)
        ]
        with f.when(f"or i1 {odd[0]}, {odd[1]}"):
            which = f.load_word(row, 1, "i64")
            address = f.load_word("%addresses", which)
            dtype = f.load_word(outs, f.emit_value(f"mul i64 {which}, 5"))
            given = f"ptr {address}, ptr {dtype}, ptr null"
            number = f.emit_value(f"call ptr @odyssey_new_number({given})")
            f.branch_unless(f"icmp ne ptr {number}, null", "raised")
            with f.when(f"icmp eq i64 {kind}, {NUMBER_RESULT}"):
                f.store_object(number, "%leaves", k)
            with f.when(f"icmp eq i64 {kind}, {NUMBER_VARIABLE_RESULT}"):
                f.store_object(number, f.load_word("%leaves", k), slots["_array"] // 8)
    f.branch_unless(f"icmp ne i64 {form}, {SINGLE_RESULT}", "bare")
    with f.loop(count) as k:
        leaf = f.load_word("%leaves", k)
        given = f"ptr %box, i64 {k}, ptr {leaf}"
        with f.when(f"icmp eq i64 {form}, {TUPLE_RESULT}"):
            f.emit_value(f"call i32 @PyTuple_SetItem({given})")
        with f.when(f"icmp eq i64 {form}, {LIST_RESULT}"):
            f.emit_value(f"call i32 @PyList_SetItem({given})")
    f.emit_statement("ret ptr %box")
    f.begin_block("bare")
    f.emit_statement(f"ret ptr {f.load_word('%leaves', 0)}")
    f.begin_block("raised")
    f.decref_all("%leaves", count)
    with f.when("icmp ne ptr %box, null"):
        f.emit_statement("call void @Py_DecRef(ptr %box)")
    f.emit_statement("ret ptr null")
    return f.source()


# ------------------------------------------------------------------ the call


def _dispatch_function(layout: Layout) -> str:
    f = TextFunction("ptr @dispatch(ptr %self, ptr %args, i64 %count)", once=True)
    block = block_of(f, layout)
    program = f.load_field(block, "program")
    f.branch_unless(
        f"icmp eq i64 %count, {f.load_field(program, 'argument_count', 'i64')}", "cache_miss"
    )
    arrays = f.load_field(program, "array_count", "i64")
    f.branch_unless(f"call i1 @distinct(ptr %args, i64 {arrays})", "cache_miss")
    f.branch_unless(f"call i1 @contexts(ptr {block})", "cache_miss")
    turn = f.load_field(block, "generation", "i64")
    answer = f.emit_value(f"call i64 @python_guards(ptr {block})")
    f.branch_unless(f"icmp ne i64 {answer}, 2", "raised")
    f.branch_unless(f"icmp eq i64 {answer}, 1", "cache_miss")
    f.branch_unless(f"call i1 @dictionaries(ptr {block})", "cache_miss")
    tables = _stack_tables(f, block)
    f.branch_unless(
        f"call i1 @outs(ptr {block}, ptr {tables['outs']}, ptr {tables['addresses']})", "undo"
    )
    f.branch_unless(
        f"call i1 @leaves(ptr {block}, ptr {tables['outs']}, ptr {tables['leaves']})", "undo"
    )
    box = tables["box"]
    _make_container(f, block, box)
    f.branch_unless(f"icmp eq i64 {f.load_field(block, 'generation', 'i64')}, {turn}", "undo")
    _check_memory_guards(f, block, program)
    table = f.load_field(program, "table")
    _store_result_addresses(f, block, table, tables["addresses"])
    f.branch_unless(f"call i1 @numbers(ptr {block}, ptr {tables['new']})", "undo")
    _run_program(f, program, table)
    given = ", ".join(f"ptr {tables[name]}" for name in ("outs", "new", "old"))
    f.emit_statement(f"call void @commit(ptr {block}, {given})")
    given = f"ptr {tables['addresses']}, ptr {tables['leaves']}, ptr {f.load_word(box, 0)}"
    result = f.emit_value(f"call ptr @result(ptr {block}, {given})")
    calls = f.load_field(block, "calls")
    more = f.emit_value(f"add i64 {f.load_word(calls, 0, 'i64')}, 1")
    f.emit_statement(f"store i64 {more}, ptr {calls}")
    for name in ("outs", "new", "old"):
        f.decref_all(tables[name], tables[f"{name}_count"])
    f.emit_statement(f"ret ptr {result}")
    f.begin_block("undo")
    f.emit_statement("call void @PyErr_Clear()")
    for name in ("outs", "leaves", "new"):
        f.decref_all(tables[name], tables[f"{name}_count"])
    with f.when(f"icmp ne ptr {f.load_word(box, 0)}, null"):
        f.emit_statement(f"call void @Py_DecRef(ptr {f.load_word(box, 0)})")
    f.emit_statement("br label %cache_miss")
    f.begin_block("cache_miss")
    missed = f.load_field(block, "cache_miss")
    f.incref(missed)
    f.emit_statement(f"ret ptr {missed}")
    f.begin_block("raised")
    f.emit_statement("ret ptr null")
    return f.source()


def _stack_tables(f: TextFunction, block: str) -> dict[str, str]:
    """Allocate tables on the stack for new objects and for those that they replace."""
    found = {}
    counts = {"outs": "out", "leaves": "leaf", "new": "version", "old": "cell"}
    for name, count in counts.items():
        n = f.load_field(block, f"{count}_count", "i64")
        found[name] = f.stack_slot("i64", n)
        found[f"{name}_count"] = n
        f.clear_table(found[name], n)
    found["addresses"] = f.stack_slot("i64", found["outs_count"])
    found["box"] = f.stack_slot("ptr")
    f.store_object("null", found["box"], 0)
    return found


def _make_container(f: TextFunction, block: str, box: str) -> None:
    """Make the container of the result, if it has one."""
    form, count = f.load_field(block, "form", "i64"), f.load_field(block, "leaf_count", "i64")
    for kind, name in ((TUPLE_RESULT, "Tuple"), (LIST_RESULT, "List")):
        with f.when(f"icmp eq i64 {form}, {kind}"):
            made = f.emit_value(f"call ptr @Py{name}_New(i64 {count})")
            f.store_object(made, box, 0)
            f.branch_unless(f"icmp ne ptr {made}, null", "undo")


def _check_memory_guards(f: TextFunction, block: str, program: str) -> None:
    """Check the memory guards; from here on no Python code runs."""
    f.branch_unless(f"icmp ne i64 {f.load_field(block, 'ready', 'i64')}, 0", "undo")
    rows, count = f.load_field(block, "words"), f.load_field(block, "word_count", "i64")
    f.branch_unless(f"call i1 @words_match(ptr {rows}, i64 {count})", "undo")
    f.branch_unless(f"call i1 @pairs_match(ptr {block})", "undo")
    f.branch_unless(f"call i1 @check(ptr {program}, ptr %args)", "undo")


def _run_program(f: TextFunction, program: str, table: str) -> None:
    """Run the first step, and the last if it is another one."""
    first, last = f.load_field(program, "first"), f.load_field(program, "last")
    answer = f.emit_value(f"call i64 {first}(ptr {table})")
    f.branch_unless(f"icmp eq i64 {answer}, {RAN}", "undo")
    with f.when(f"icmp ne ptr {first}, {last}"):
        answer = f.emit_value(f"call i64 {last}(ptr {table})")
        f.branch_unless(f"icmp eq i64 {answer}, {RAN}", "undo")


def _store_result_addresses(f: TextFunction, block: str, table: str, addresses: str) -> None:
    """Store the addresses of results in the table of the program."""
    rows = f.load_field(block, "outs")
    with f.loop(f.load_field(block, "out_count", "i64")) as k:
        row = f.element_address(rows, f.emit_value(f"mul i64 {k}, 5"))
        f.store_object(f.load_word(addresses, k), table, f.load_word(row, 3, "i64"))
