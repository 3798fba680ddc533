"""Native guard checks: LLVM functions that check guards before a call does anything.

Called by ``dispatcher``, whose module contains them.
"""

from __future__ import annotations

from odyssey.compiler.native_dispatch.entry import block_of
from odyssey.compiler.native_dispatch.llvm_functions import TextFunction, return_truth
from odyssey.compiler.native_dispatch.object_layout import ObjectLayout

__all__ = ["guard_check_functions"]


def guard_check_functions(layout: ObjectLayout) -> str:
    """Return the source of the guard predicates over a call block, and of ``tables_current``.

    Python calls ``tables_current()``: it returns True if all guards in the tables hold, None if
    only context variables differ, and the cache miss sentinel otherwise.
    """
    dictionaries = _dictionary_function(layout.version)
    return "\n".join(
        [
            _distinct_function(),
            _context_function(),
            _python_guards_function(),
            dictionaries,
            _word_pairs_function(),
            _tables_current_function(layout),
        ]
    )


def _distinct_function() -> str:
    """Predicate: no argument is passed twice."""
    f = TextFunction("internal i1 @distinct(ptr %args, i64 %count)")
    with f.loop("%count") as i:
        one = f.load_word("%args", i)
        with f.loop(i) as k:
            f.branch_unless(f"icmp ne ptr {f.load_word('%args', k)}, {one}", "no")
    return return_truth(f)


def _context_function() -> str:
    """Predicate: context variables have their expected values."""
    f = TextFunction("internal i1 @contexts(ptr %block)")
    rows, value_slot = f.load_field("%block", "contexts"), f.stack_slot("ptr")
    with f.loop(f.load_field("%block", "context_count", "i64")) as k:
        row = f.row("contexts", rows, k)
        f.store_object("null", value_slot, 0)
        args = f"ptr {row.load('variable')}, ptr {row.load('default')}, ptr {value_slot}"
        status = f.emit_value(f"call i32 @PyContextVar_Get({args})")
        f.branch_unless(f"icmp sge i32 {status}, 0", "error")
        value = f.load_word(value_slot, 0)
        f.branch_unless(f"icmp ne ptr {value}, null", "no")
        f.emit_statement(f"call void @Py_DecRef(ptr {value})")
        f.branch_unless(f"icmp eq ptr {value}, {row.load('expected')}", "no")
    f.emit_statement("ret i1 true")
    f.begin_block("error")
    f.emit_statement("call void @PyErr_Clear()")
    f.emit_statement("br label %no")
    f.begin_block("no")
    f.emit_statement("ret i1 false")
    return f.source()


def _python_guards_function() -> str:
    """Evaluate the guards that need Python: 1 if they hold, 0 if one fails, 2 if Python raised."""
    f = TextFunction("internal i64 @python_guards(ptr %block)")
    check = f.load_field("%block", "python_guards")
    f.branch_unless(f"icmp ne ptr {check}, null", "yes")
    f.incref(check)
    answer = f.emit_value(f"call ptr @PyObject_CallNoArgs(ptr {check})")
    f.emit_statement(f"call void @Py_DecRef(ptr {check})")
    f.branch_unless(f"icmp ne ptr {answer}, null", "raised")
    f.emit_statement(f"call void @Py_DecRef(ptr {answer})")
    same = f.emit_value(f"icmp eq ptr {answer}, {f.load_field('%block', 'true')}")
    f.emit_statement(f"ret i64 {f.emit_value(f'zext i1 {same} to i64')}")
    f.begin_block("yes")
    f.emit_statement("ret i64 1")
    f.begin_block("raised")
    f.emit_statement("ret i64 2")
    return f.source()


def _dictionary_function(version: int | None) -> str:
    """Predicate: dictionaries have the expected items; one of a known version is not searched."""
    f = TextFunction("internal i1 @dictionaries(ptr %block)")
    rows, items = f.load_field("%block", "dictionaries"), f.load_field("%block", "items")
    with f.loop(f.load_field("%block", "dictionary_count", "i64")) as k:
        row = f.row("dictionaries", rows, k)
        dictionary = row.load("dictionary")
        now = "0"
        if version is not None:
            at = f.emit_value(f"getelementptr i8, ptr {dictionary}, i64 {version}")
            now = f.emit_value(f"load i64, ptr {at}")
        changed = f.emit_value(f"icmp ne i64 {now}, {row.load('version', 'i64')}")
        check = f.emit_value(f"or i1 {changed}, {'true' if version is None else 'false'}")
        with f.when(f"icmp eq i1 {check}, true"):
            f.branch_unless(f"icmp eq i64 {row.load('version_only', 'i64')}, 0", "no")
            first, end = row.load("first_item", "i64"), row.load("end_item", "i64")
            with f.loop(f.emit_value(f"sub i64 {end}, {first}")) as j:
                item = f.row("items", items, f.emit_value(f"add i64 {first}, {j}"))
                key = item.load("key")
                value = f.emit_value(
                    f"call ptr @PyDict_GetItemWithError(ptr {dictionary}, ptr {key})"
                )
                with f.when(f"icmp eq ptr {value}, null"):
                    error = f.emit_value("call ptr @PyErr_Occurred()")
                    f.branch_unless(f"icmp eq ptr {error}, null", "error")
                f.branch_unless(f"icmp eq ptr {value}, {item.load('expected')}", "no")
            f.emit_statement(f"store i64 {now}, ptr {row.column_address('version')}")
    f.emit_statement("ret i1 true")
    f.begin_block("error")
    f.emit_statement("call void @PyErr_Clear()")
    f.emit_statement("br label %no")
    f.begin_block("no")
    f.emit_statement("ret i1 false")
    return f.source()


def _word_pairs_function() -> str:
    """Predicate: pairs of addresses hold equal words."""
    f = TextFunction("internal i1 @pairs_match(ptr %block)")
    rows = f.load_field("%block", "pairs")
    with f.loop(f.load_field("%block", "pair_count", "i64")) as k:
        row = f.row("pairs", rows, k)
        one = f.load_word(row.load("address"), 0, "i64")
        other = f.load_word(row.load("other_address"), 0, "i64")
        f.branch_unless(f"icmp eq i64 {one}, {other}", "no")
    return return_truth(f)


def _tables_current_function(layout: ObjectLayout) -> str:
    f = TextFunction("ptr @tables_current(ptr %self, ptr %args, i64 %count)", once=True)
    block = block_of(f, layout)
    rows, count = f.load_field(block, "words"), f.load_field(block, "word_count", "i64")
    f.branch_unless(f"icmp ne i64 {f.load_field(block, 'tables_complete', 'i64')}, 0", "cache_miss")
    f.branch_unless(f"call i1 @words_match(ptr {rows}, i64 {count})", "cache_miss")
    f.branch_unless(f"call i1 @pairs_match(ptr {block})", "cache_miss")
    f.branch_unless(f"call i1 @dictionaries(ptr {block})", "cache_miss")
    f.branch_unless(f"call i1 @contexts(ptr {block})", "none")
    for name, other in (("true", "none"), ("none", "cache_miss"), ("cache_miss", "")):
        answer = f.load_field(block, name)
        f.incref(answer)
        f.emit_statement(f"ret ptr {answer}")
        if other:
            f.begin_block(other)
    return f.source()
