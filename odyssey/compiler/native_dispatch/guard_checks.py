"""What a native call asks of Python before it does anything, as text of functions."""

from __future__ import annotations

from odyssey.compiler.native_dispatch.entry import Layout, block_of
from odyssey.compiler.native_dispatch.llvm_functions import TextFunction, return_truth

__all__ = ["guard_check_functions"]


def guard_check_functions(layout: Layout) -> str:
    """Functions that give a truth, of the block: ``apart`` of arguments, and those below.

    And ``fresh()``, which Python calls: True where what the tables say of Python is so, None where
    they say it of another context, and else what says a miss.
    """
    rooms = _dictionary_function(layout.version)
    return "\n".join(
        [
            _distinct_function(),
            _context_function(),
            _python_guards_function(),
            rooms,
            _word_pairs_function(),
            _tables_current_function(layout),
        ]
    )


def _distinct_function() -> str:
    """Whether no argument comes twice."""
    f = TextFunction("internal i1 @apart(ptr %args, i64 %count)")
    with f.each("%count") as i:
        one = f.word("%args", i)
        with f.each(i) as k:
            f.require(f"icmp ne ptr {f.word('%args', k)}, {one}", "no")
    return return_truth(f)


def _context_function() -> str:
    """Whether context variables have what they must."""
    f = TextFunction("internal i1 @contexts(ptr %block)")
    rows, found = f.field("%block", "contexts"), f.room("ptr")
    with f.each(f.field("%block", "context_count", "i64")) as k:
        row = f.at(rows, f.give(f"mul i64 {k}, 3"))
        f.put("null", found, 0)
        given = f"ptr {f.word(row, 0)}, ptr {f.word(row, 1)}, ptr {found}"
        answer = f.give(f"call i32 @PyContextVar_Get({given})")
        f.require(f"icmp sge i32 {answer}, 0", "error")
        value = f.word(found, 0)
        f.require(f"icmp ne ptr {value}, null", "no")
        f.do(f"call void @Py_DecRef(ptr {value})")
        f.require(f"icmp eq ptr {value}, {f.word(row, 2)}", "no")
    f.do("ret i1 true")
    f.label("error")
    f.do("call void @PyErr_Clear()")
    f.do("br label %no")
    f.label("no")
    f.do("ret i1 false")
    return f.text()


def _python_guards_function() -> str:
    """Ask Python about what no word says: 1 where all is as it was, 2 where it raised, or 0."""
    f = TextFunction("internal i64 @others(ptr %block)")
    asked = f.field("%block", "others")
    f.require(f"icmp ne ptr {asked}, null", "yes")
    f.hold(asked)
    answer = f.give(f"call ptr @PyObject_CallNoArgs(ptr {asked})")
    f.do(f"call void @Py_DecRef(ptr {asked})")
    f.require(f"icmp ne ptr {answer}, null", "raised")
    f.do(f"call void @Py_DecRef(ptr {answer})")
    same = f.give(f"icmp eq ptr {answer}, {f.field('%block', 'true')}")
    f.do(f"ret i64 {f.give(f'zext i1 {same} to i64')}")
    f.label("yes")
    f.do("ret i64 1")
    f.label("raised")
    f.do("ret i64 2")
    return f.text()


def _dictionary_function(version: int | None) -> str:
    """Whether dictionaries have what they must; one of the same version need not be asked."""
    f = TextFunction("internal i1 @rooms(ptr %block)")
    rows, items = f.field("%block", "rooms"), f.field("%block", "items")
    with f.each(f.field("%block", "room_count", "i64")) as k:
        row = f.at(rows, f.give(f"mul i64 {k}, 5"))
        room = f.word(row, 0)
        now = "0"
        if version is not None:
            at = f.give(f"getelementptr i8, ptr {room}, i64 {version}")
            now = f.give(f"load i64, ptr {at}")
        known = f.give(f"icmp ne i64 {now}, {f.word(row, 1, 'i64')}")
        asked = f.give(f"or i1 {known}, {'true' if version is None else 'false'}")
        with f.where(f"icmp eq i1 {asked}, true"):
            f.require(f"icmp eq i64 {f.word(row, 4, 'i64')}, 0", "no")
            first, end = f.word(row, 2, "i64"), f.word(row, 3, "i64")
            with f.each(f.give(f"sub i64 {end}, {first}")) as j:
                item = f.at(items, f.give(f"shl i64 {f.give(f'add i64 {first}, {j}')}, 1"))
                key = f.word(item, 0)
                got = f.give(f"call ptr @PyDict_GetItemWithError(ptr {room}, ptr {key})")
                with f.where(f"icmp eq ptr {got}, null"):
                    error = f.give("call ptr @PyErr_Occurred()")
                    f.require(f"icmp eq ptr {error}, null", "error")
                f.require(f"icmp eq ptr {got}, {f.word(item, 1)}", "no")
            f.do(f"store i64 {now}, ptr {f.at(row, 1)}")
    f.do("ret i1 true")
    f.label("error")
    f.do("call void @PyErr_Clear()")
    f.do("br label %no")
    f.label("no")
    f.do("ret i1 false")
    return f.text()


def _word_pairs_function() -> str:
    """Whether two places have the same word."""
    f = TextFunction("internal i1 @pairs(ptr %block)")
    rows = f.field("%block", "pairs")
    with f.each(f.field("%block", "pair_count", "i64")) as k:
        row = f.at(rows, f.give(f"shl i64 {k}, 1"))
        one, other = (f.word(f.word(row, side), 0, "i64") for side in (0, 1))
        f.require(f"icmp eq i64 {one}, {other}", "no")
    return return_truth(f)


def _tables_current_function(layout: Layout) -> str:
    f = TextFunction("ptr @fresh(ptr %self, ptr %args, i64 %count)", once=True)
    block = block_of(f, layout)
    rows, count = f.field(block, "words"), f.field(block, "word_count", "i64")
    f.require(f"icmp ne i64 {f.field(block, 'ready', 'i64')}, 0", "missed")
    f.require(f"call i1 @words(ptr {rows}, i64 {count})", "missed")
    f.require(f"call i1 @pairs(ptr {block})", "missed")
    f.require(f"call i1 @rooms(ptr {block})", "missed")
    f.require(f"call i1 @contexts(ptr {block})", "none")
    for name, other in (("true", "none"), ("none", "missed"), ("missed", "")):
        answer = f.field(block, name)
        f.hold(answer)
        f.do(f"ret ptr {answer}")
        if other:
            f.label(other)
    return f.text()
