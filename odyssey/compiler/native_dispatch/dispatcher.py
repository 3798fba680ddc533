"""A whole call in one native function: what is asked of Python, the program, and what it leaves.

Nothing of Python runs between the last look at what a program relies on and the end of what it
leaves, so there is nothing that could come in between. What it needs to know lies in tables of
words, as ``direct`` fills them in; so it is the same function for all programs, made once. What may
fail, or let the collector run, comes before the look.
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
    """``whole(self, args, count)``: what the function returns; or the object that says a miss.

    And ``fresh``, of which see ``asked``; and what ``entry`` has. ``self`` has a block as there.

    Args:
        layout: Where Variables, arrays and dictionaries keep what is theirs.
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


# ------------------------------------------------------------------ what is made before the run


def _allocate_results_function(data: int) -> str:
    """Make arrays for results, and tell the program where they lie."""
    f = TextFunction("internal i1 @outs(ptr %block, ptr %outs, ptr %places)")
    rows = f.field("%block", "outs")
    with f.each(f.field("%block", "out_count", "i64")) as k:
        row = f.at(rows, f.give(f"mul i64 {k}, 5"))
        with f.where(f"icmp eq i64 {f.word(row, 4, 'i64')}, 0"):
            dtype, axes = f.word(row, 0), f.give(f"trunc i64 {f.word(row, 1, 'i64')} to i32")
            f.hold(dtype)  # which the next takes over
            given = f"i32 {axes}, ptr {f.word(row, 2)}, ptr {dtype}, i32 0"
            made = f.give(f"call ptr @odyssey_new_array({given})")
            f.require(f"icmp ne ptr {made}, null", "no")
            f.put(made, "%outs", k)
            at = f.give(f"getelementptr i8, ptr {made}, i64 {data}")
            f.put(f.give(f"load ptr, ptr {at}"), "%places", k)
        with f.where(f"icmp ne i64 {f.word(row, 4, 'i64')}, 0"):
            f.put(f.word(row, 2), "%places", k)
    return return_truth(f)


def _make_leaves_function(slots: Mapping[str, int]) -> str:
    """Make what a result is made of, but for numbers that are not known yet."""
    f = TextFunction("internal i1 @leaves(ptr %block, ptr %outs, ptr %leaves)")
    rows, none = f.field("%block", "leaves"), f.field("%block", "none")
    with f.each(f.field("%block", "leaf_count", "i64")) as k:
        row = f.at(rows, f.give(f"shl i64 {k}, 2"))
        kind = f.word(row, 0, "i64")
        with f.where(f"icmp eq i64 {kind}, {HELD_OBJECT}"):
            thing = f.word(row, 1)
            f.hold(thing)
            f.put(thing, "%leaves", k)
        with f.where(f"icmp eq i64 {kind}, {ARRAY_RESULT}"):
            array = f.word("%outs", f.word(row, 1, "i64"))
            f.hold(array)
            f.put(array, "%leaves", k)
        with f.where(f"icmp sge i64 {kind}, {VARIABLE_RESULT}"):
            made = f.give(
                f"call ptr @PyType_GenericAlloc(ptr {f.field('%block', 'variable')}, i64 0)"
            )
            f.require(f"icmp ne ptr {made}, null", "no")
            f.put(made, "%leaves", k)
            id = f.give(f"call ptr @PyIter_Next(ptr {f.field('%block', 'ids')})")
            f.require(f"icmp ne ptr {id}, null", "no")
            f.put(id, made, slots["_id"] // 8)
            held = {"_placed": none, "_info": none}
            held |= {"_recording": f.word(row, 2), "_spec": f.word(row, 3)}
            for name, thing in held.items():
                f.hold(thing)
                f.put(thing, made, slots[name] // 8)
            with f.where(f"icmp eq i64 {kind}, {VARIABLE_RESULT}"):
                array = f.word("%outs", f.word(row, 1, "i64"))
                f.hold(array)
                f.put(array, made, slots["_array"] // 8)
    return return_truth(f)


def _next_versions_function() -> str:
    """Make the numbers of writes that come next; nobody but Python's whole numbers have one."""
    f = TextFunction("internal i1 @numbers(ptr %block, ptr %new)")
    rows, one = f.field("%block", "numbers"), f.field("%block", "one")
    kind, count = f.field("%block", "whole_number"), f.field("%block", "number_count", "i64")
    with f.each(count) as k:
        now = f.word(f.word(rows, k), 0)
        f.require(f"icmp ne ptr {now}, null", "no")
        f.require(f"icmp eq ptr {f.word(now, 1)}, {kind}", "no")
        later = f.give(f"call ptr @PyNumber_Add(ptr {now}, ptr {one})")
        f.require(f"icmp ne ptr {later}, null", "no")
        f.put(later, "%new", k)
    with f.where(f"icmp ne i64 {count}, 0"):
        drawn = f.give(f"call ptr @PyIter_Next(ptr {f.field('%block', 'ticket')})")
        f.require(f"icmp ne ptr {drawn}, null", "no")
        f.do(f"call void @Py_DecRef(ptr {drawn})")
    return return_truth(f)


# ------------------------------------------------------------------ what is left


def _commit_function() -> str:
    """Put numbers of writes and gradients in their places; what was there is left in the tables."""
    f = TextFunction("internal void @commit(ptr %block, ptr %outs, ptr %new, ptr %old)")
    places, none = f.field("%block", "numbers"), f.field("%block", "none")
    with f.each(f.field("%block", "number_count", "i64")) as k:
        place = f.word(places, k)
        now = f.word(place, 0)
        f.put(f.word("%new", k), place, 0)
        f.put(now, "%new", k)
    rows = f.field("%block", "cells")
    with f.each(f.field("%block", "cell_count", "i64")) as k:
        row = f.at(rows, f.give(f"shl i64 {k}, 1"))
        place, which = f.word(row, 0), f.word(row, 1, "i64")
        now, thing = f.word(place, 0), f.room("ptr")
        f.put(none, thing, 0)
        with f.where(f"icmp ne i64 {which}, 0"):
            f.put(f.word("%outs", f.give(f"sub i64 {which}, 1")), thing, 0)
        with f.where(f"icmp ne ptr {now}, {f.word(thing, 0)}"):
            f.hold(f.word(thing, 0))
            f.put(f.word(thing, 0), place, 0)
            f.put(now, "%old", k)
    f.do("ret void")
    return f.text()


def _build_result_function(slots: Mapping[str, int]) -> str:
    """What the function returns, of leaves that are let go; null where memory is short."""
    f = TextFunction("internal ptr @result(ptr %block, ptr %places, ptr %leaves, ptr %box)")
    rows, outs = f.field("%block", "leaves"), f.field("%block", "outs")
    count, form = f.field("%block", "leaf_count", "i64"), f.field("%block", "form", "i64")
    with f.each(count) as k:
        row = f.at(rows, f.give(f"shl i64 {k}, 2"))
        kind = f.word(row, 0, "i64")
        odd = [
            f.give(f"icmp eq i64 {kind}, {one}") for one in (NUMBER_RESULT, NUMBER_VARIABLE_RESULT)
        ]
        with f.where(f"or i1 {odd[0]}, {odd[1]}"):
            which = f.word(row, 1, "i64")
            place = f.word("%places", which)
            dtype = f.word(outs, f.give(f"mul i64 {which}, 5"))
            given = f"ptr {place}, ptr {dtype}, ptr null"
            number = f.give(f"call ptr @odyssey_new_number({given})")
            f.require(f"icmp ne ptr {number}, null", "raised")
            with f.where(f"icmp eq i64 {kind}, {NUMBER_RESULT}"):
                f.put(number, "%leaves", k)
            with f.where(f"icmp eq i64 {kind}, {NUMBER_VARIABLE_RESULT}"):
                f.put(number, f.word("%leaves", k), slots["_array"] // 8)
    f.require(f"icmp ne i64 {form}, {SINGLE_RESULT}", "bare")
    with f.each(count) as k:
        leaf = f.word("%leaves", k)
        given = f"ptr %box, i64 {k}, ptr {leaf}"
        with f.where(f"icmp eq i64 {form}, {TUPLE_RESULT}"):
            f.give(f"call i32 @PyTuple_SetItem({given})")
        with f.where(f"icmp eq i64 {form}, {LIST_RESULT}"):
            f.give(f"call i32 @PyList_SetItem({given})")
    f.do("ret ptr %box")
    f.label("bare")
    f.do(f"ret ptr {f.word('%leaves', 0)}")
    f.label("raised")
    f.drop("%leaves", count)
    with f.where("icmp ne ptr %box, null"):
        f.do("call void @Py_DecRef(ptr %box)")
    f.do("ret ptr null")
    return f.text()


# ------------------------------------------------------------------ the call


def _dispatch_function(layout: Layout) -> str:
    f = TextFunction("ptr @whole(ptr %self, ptr %args, i64 %count)", once=True)
    block = block_of(f, layout)
    program = f.field(block, "program")
    f.require(f"icmp eq i64 %count, {f.field(program, 'given', 'i64')}", "missed")
    arrays = f.field(program, "array_count", "i64")
    f.require(f"call i1 @apart(ptr %args, i64 {arrays})", "missed")
    f.require(f"call i1 @contexts(ptr {block})", "missed")
    turn = f.field(block, "turn", "i64")
    answer = f.give(f"call i64 @others(ptr {block})")
    f.require(f"icmp ne i64 {answer}, 2", "raised")
    f.require(f"icmp eq i64 {answer}, 1", "missed")
    f.require(f"call i1 @rooms(ptr {block})", "missed")
    tables = _stack_tables(f, block)
    f.require(f"call i1 @outs(ptr {block}, ptr {tables['outs']}, ptr {tables['places']})", "undo")
    f.require(f"call i1 @leaves(ptr {block}, ptr {tables['outs']}, ptr {tables['leaves']})", "undo")
    box = tables["box"]
    _make_container(f, block, box)
    f.require(f"icmp eq i64 {f.field(block, 'turn', 'i64')}, {turn}", "undo")
    _check_memory_guards(f, block, program)
    table = f.field(program, "table")
    _store_result_addresses(f, block, table, tables["places"])
    f.require(f"call i1 @numbers(ptr {block}, ptr {tables['new']})", "undo")
    _run_program(f, program, table)
    given = ", ".join(f"ptr {tables[name]}" for name in ("outs", "new", "old"))
    f.do(f"call void @commit(ptr {block}, {given})")
    given = f"ptr {tables['places']}, ptr {tables['leaves']}, ptr {f.word(box, 0)}"
    result = f.give(f"call ptr @result(ptr {block}, {given})")
    calls = f.field(block, "calls")
    more = f.give(f"add i64 {f.word(calls, 0, 'i64')}, 1")
    f.do(f"store i64 {more}, ptr {calls}")
    for name in ("outs", "new", "old"):
        f.drop(tables[name], tables[f"{name}_count"])
    f.do(f"ret ptr {result}")
    f.label("undo")
    f.do("call void @PyErr_Clear()")
    for name in ("outs", "leaves", "new"):
        f.drop(tables[name], tables[f"{name}_count"])
    with f.where(f"icmp ne ptr {f.word(box, 0)}, null"):
        f.do(f"call void @Py_DecRef(ptr {f.word(box, 0)})")
    f.do("br label %missed")
    f.label("missed")
    missed = f.field(block, "missed")
    f.hold(missed)
    f.do(f"ret ptr {missed}")
    f.label("raised")
    f.do("ret ptr null")
    return f.text()


def _stack_tables(f: TextFunction, block: str) -> dict[str, str]:
    """Room on the stack for what is made, and what was there before."""
    found = {}
    counts = {"outs": "out", "leaves": "leaf", "new": "number", "old": "cell"}
    for name, count in counts.items():
        n = f.field(block, f"{count}_count", "i64")
        found[name] = f.room("i64", n)
        found[f"{name}_count"] = n
        f.clear(found[name], n)
    found["places"] = f.room("i64", found["outs_count"])
    found["box"] = f.room("ptr")
    f.put("null", found["box"], 0)
    return found


def _make_container(f: TextFunction, block: str, box: str) -> None:
    """Make the container of a result, if it has one."""
    form, count = f.field(block, "form", "i64"), f.field(block, "leaf_count", "i64")
    for kind, name in ((TUPLE_RESULT, "Tuple"), (LIST_RESULT, "List")):
        with f.where(f"icmp eq i64 {form}, {kind}"):
            made = f.give(f"call ptr @Py{name}_New(i64 {count})")
            f.put(made, box, 0)
            f.require(f"icmp ne ptr {made}, null", "undo")


def _check_memory_guards(f: TextFunction, block: str, program: str) -> None:
    """What a program relies on, now that nothing of Python runs any more."""
    f.require(f"icmp ne i64 {f.field(block, 'ready', 'i64')}, 0", "undo")
    rows, count = f.field(block, "words"), f.field(block, "word_count", "i64")
    f.require(f"call i1 @words(ptr {rows}, i64 {count})", "undo")
    f.require(f"call i1 @pairs(ptr {block})", "undo")
    f.require(f"call i1 @look(ptr {program}, ptr %args)", "undo")


def _run_program(f: TextFunction, program: str, table: str) -> None:
    """Run the one step that there is, or both."""
    first, last = f.field(program, "first"), f.field(program, "last")
    answer = f.give(f"call i64 {first}(ptr {table})")
    f.require(f"icmp eq i64 {answer}, {RAN}", "undo")
    with f.where(f"icmp ne ptr {first}, {last}"):
        answer = f.give(f"call i64 {last}(ptr {table})")
        f.require(f"icmp eq i64 {answer}, {RAN}", "undo")


def _store_result_addresses(f: TextFunction, block: str, table: str, places: str) -> None:
    """Tell the program where its results are to lie."""
    rows = f.field(block, "outs")
    with f.each(f.field(block, "out_count", "i64")) as k:
        row = f.at(rows, f.give(f"mul i64 {k}, 5"))
        f.put(f.word(places, k), table, f.word(row, 3, "i64"))
