"""Tables of words: the blocks and tables by which native functions know a program and its call.

Read by the machine code that this room generates; written by ``runtime.executable`` (the block of a
program) and ``runtime.dispatch_tables`` (the block of a call).
"""

from __future__ import annotations

__all__ = [
    "ARRAY_RESULT",
    "SINGLE_RESULT",
    "STORE_DOUBLE",
    "BLOCK_FIELDS",
    "TABLE_COLUMNS",
    "HELD_OBJECT",
    "LIST_RESULT",
    "INT_TO_FLOAT",
    "NUMBER_RESULT",
    "CALL_BLOCK_SIZE",
    "PROGRAM_BLOCK_SIZE",
    "DOUBLE_TO_FLOAT",
    "TUPLE_RESULT",
    "VARIABLE_RESULT",
    "NUMBER_VARIABLE_RESULT",
    "INT_TO_DOUBLE",
    "STORE_INT",
    "row_width",
]

_PROGRAM_FIELDS = (
    *("table", "first", "last", "argument_count", "guards", "guard_count", "spans", "span_count"),
    *("array_type", "arrays", "array_count", "scalars", "scalar_count", "outputs", "output_count"),
)
_CALL_FIELDS = (
    *(
        "program",
        "tables_complete",
        "generation",
        "cache_miss",
        "calls",
        "contexts",
        "context_count",
    ),
    "python_guards",
    *("dictionaries", "dictionary_count", "items", "words", "word_count", "pairs", "pair_count"),
    *("versions", "version_count", "cells", "cell_count", "outs", "out_count"),
    *("leaves", "leaf_count", "form", "ticket", "ids", "one", "none", "true"),
    *("int_type", "variable"),
)
PROGRAM_BLOCK_SIZE, CALL_BLOCK_SIZE = len(_PROGRAM_FIELDS), len(_CALL_FIELDS)
"""The number of words in each block."""

BLOCK_FIELDS = {
    name: index for names in (_PROGRAM_FIELDS, _CALL_FIELDS) for index, name in enumerate(names)
}
"""The index of each field in the two blocks. A field is an address, of an object or of a table, or
the number of rows of a table. Tables have the columns of ``TABLE_COLUMNS``.

Fields of a program:

* ``table``: the table of addresses that the program reads and writes, one for each slot.
* ``first``, ``last``: the functions of its first and last step, equal if it has one step.
* ``argument_count``: number of arguments: the arrays, then the numbers.
* ``guards``: words that must be in memory.
* ``spans``: memory of each state that is written to.
* ``array_type``: the class of arrays. ``arrays``: a row for each array among the arguments.
* ``scalars``: a row for each use of a number, see ``scalar_inputs``.
* ``outputs``: the slots of results.

Fields of a natively dispatched call:

* ``program``: the block of the program.
* ``tables_complete``: 1 if the tables may be used; a writer sets it to 0 first.
* ``generation``: a number that changes with the tables, so that a call notices a change.
* ``cache_miss``: the sentinel to return. ``calls``: the counter of calls.
* ``contexts``: context variables that must have a value.
* ``python_guards``: a Python function that checks the guards that need Python, or 0.
* ``dictionaries``: dictionaries that must have the rows ``first_item`` to ``end_item`` of
  ``items``; with ``version_only``, only the version is compared.
* ``words``: words as in ``guards``. ``pairs``: addresses that must hold equal words.
* ``versions``: addresses of version numbers, which increase by one.
* ``cells``: memory to store an object in: None for 0, or result ``source - 1``.
* ``outs``: a row for each result; if ``is_number``, ``shape`` is the address of the value.
* ``leaves``: a row for each leaf of the returned tree; ``thing`` is an object, or the index of a
  result.
* ``form``: the form of the returned tree. ``ticket``, ``ids``: the counters of tickets and of
  Variables' ids. ``one``, ``none``, ``true``, ``int_type``, ``variable``: the Python objects 1,
  None, True, int and Variable.
"""

_WORD_COLUMNS = ("address", "mask", "expected")

TABLE_COLUMNS = {
    "guards": _WORD_COLUMNS,
    "spans": ("start", "end"),
    "arrays": ("dtype", "axis_count", "shape", "slot", "byte_count"),
    "scalars": ("argument", "kind", "least", "most", "conversion", "cell"),
    "contexts": ("variable", "default", "expected"),
    "dictionaries": ("dictionary", "version", "first_item", "end_item", "version_only"),
    "items": ("key", "expected"),
    "words": _WORD_COLUMNS,
    "pairs": ("address", "other_address"),
    "versions": ("address",),
    "cells": ("address", "source"),
    "outs": ("dtype", "axis_count", "shape", "slot", "is_number"),
    "leaves": ("kind", "thing", "recording", "spec"),
}
"""The columns of each table of rows; every column is one word."""


def row_width(table: str) -> int:
    """Return the number of words in a row of a table."""
    return len(TABLE_COLUMNS[table])


STORE_INT, INT_TO_DOUBLE, INT_TO_FLOAT, STORE_DOUBLE, DOUBLE_TO_FLOAT = range(5)
"""How a number is stored in its cell: an int as int64, float64 or float32; a float as float64 or
float32."""

SINGLE_RESULT, TUPLE_RESULT, LIST_RESULT = 0, 1, 2
"""The form of a result: its only leaf, or all leaves in a tuple or a list."""

HELD_OBJECT, ARRAY_RESULT, NUMBER_RESULT, VARIABLE_RESULT, NUMBER_VARIABLE_RESULT = 0, 1, 2, 3, 4
"""The kinds of leaves of a result."""
