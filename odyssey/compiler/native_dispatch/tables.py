"""Tables of words: the blocks by which native functions know a program and its call."""

from __future__ import annotations

__all__ = [
    "ARRAY_RESULT",
    "SINGLE_RESULT",
    "STORE_DOUBLE",
    "BLOCK_FIELDS",
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
]

_PROGRAM_FIELDS = (
    *("table", "first", "last", "argument_count", "guards", "guard_count", "spans", "span_count"),
    *("array_type", "arrays", "array_count", "scalars", "scalar_count", "outputs", "output_count"),
)
_CALL_FIELDS = (
    *("program", "ready", "generation", "cache_miss", "calls", "contexts", "context_count"),
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
"""The index of each field in the two blocks. Fields are addresses and counts. Those of a program:

* ``table``: the addresses that it reads and writes. ``first`` and ``last``: its steps of these
  names, which may be the same. ``argument_count``: the number of arguments.
* ``guards``: rows of an address, a mask and the word expected there.
* ``spans``: the beginning and end of each state that is written to.
* ``arrays``: a row for each array among the arguments, which come first: dtype, number of axes,
  address of the shape, slot of the table, number of bytes.
* ``scalars``: rows of the numbers that follow them: index of the argument, its class, the least and
  the largest value, how it is converted, and the address of its cell.
* ``outputs``: the slots of results.

Fields of a natively dispatched call, whose ``program`` is the address of such a block:

* ``generation``: a number that changes with the tables, so that a call notices when they change.
* ``contexts``: rows of a context variable, its default, and the value expected.
* ``dictionaries``: rows of a dictionary, its version, the first and last index of its rows in
  ``items``, and whether only the version is compared.
* ``items``: rows of a key and the value expected, or 0.
* ``words``: rows as in ``guards``. ``pairs``: rows of two addresses with equal words.
* ``versions``: the addresses of version numbers that increase by one.
* ``cells``: rows of an address and the object to store: 0 for None, or 1 + the index of a result.
* ``outs``: rows of a dtype, a number of axes, the address of the shape, a slot of the table, and
  0; for a NumPy scalar the address of its value instead of the shape, and 1.
* ``leaves``: rows of the leaves of the result: kind, object or index of a result, mark, spec.
"""

STORE_INT, INT_TO_DOUBLE, INT_TO_FLOAT, STORE_DOUBLE, DOUBLE_TO_FLOAT = range(5)
"""How a number is stored in its cell: an int as int64, float64 or float32; a float as float64 or
float32."""

SINGLE_RESULT, TUPLE_RESULT, LIST_RESULT = 0, 1, 2
"""The form of a result: its only leaf, or all leaves in a tuple or a list."""

HELD_OBJECT, ARRAY_RESULT, NUMBER_RESULT, VARIABLE_RESULT, NUMBER_VARIABLE_RESULT = 0, 1, 2, 3, 4
"""The kinds of leaves of a result."""
