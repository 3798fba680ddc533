"""What the tables of words have that tell native functions of a program and of its call."""

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
    *("table", "first", "last", "given", "guards", "guard_count", "spans", "span_count"),
    *("array_type", "arrays", "array_count", "takes", "take_count", "outputs", "output_count"),
)
_CALL_FIELDS = (
    *("program", "ready", "turn", "missed", "calls", "contexts", "context_count", "others"),
    *("rooms", "room_count", "items", "words", "word_count", "pairs", "pair_count"),
    *("numbers", "number_count", "cells", "cell_count", "outs", "out_count"),
    *("leaves", "leaf_count", "form", "ticket", "ids", "one", "none", "true"),
    *("whole_number", "variable"),
)
PROGRAM_BLOCK_SIZE, CALL_BLOCK_SIZE = len(_PROGRAM_FIELDS), len(_CALL_FIELDS)
"""How long the blocks are."""

BLOCK_FIELDS = {
    name: place for names in (_PROGRAM_FIELDS, _CALL_FIELDS) for place, name in enumerate(names)
}
"""What stands in two blocks of words, and where: addresses and counts. Of a program:

* ``table`` has the addresses of what it reads and writes; ``first`` and ``last`` are its steps of
  these names, which may be the same; ``given`` says how many arguments there are.
* ``guards`` has rows of a place, a mask and the word that must stand there.
* ``spans`` says where states begin and end that are written to.
* ``arrays`` has a row for each argument that is one, which come first: a dtype, a number of axes,
  where their lengths stand, a slot of the table, and how many bytes there are.
* ``takes`` has rows of the numbers that come behind them: which argument, its class, the least and
  the largest that is taken, how it is put into a cell, and the cell.
* ``outputs`` has the slots of results.

Of a call in one native function, whose ``program`` is a block of these:

* ``turn`` is another number after each change of the tables, so that nobody takes two for one.
* ``contexts`` has rows of a context variable, what is taken where it is not set, and what must be
  found.
* ``rooms`` has rows of a dictionary, its version, where in ``items`` its own begin and end, and
  whether only the version will do; ``items`` those of a key and what must be found, or 0.
* ``words`` has rows as ``guards``; ``pairs`` of two places with the same word.
* ``numbers`` has the places of numbers that go up by one.
* ``cells`` has rows of a place, and what is put there: 0 for None, or 1 and a result's number.
* ``outs`` has rows of a dtype, a number of axes, where their lengths stand, a slot of the table of
  addresses, and 0; or, for a number of NumPy's, where it lies meanwhile, and 1.
* ``leaves`` has rows of what is returned: a kind, an object or a result's number, a mark, a spec.
"""

STORE_INT, INT_TO_DOUBLE, INT_TO_FLOAT, STORE_DOUBLE, DOUBLE_TO_FLOAT = range(5)
"""How a number is put into a cell: an int as it is, as float64 or as float32; a float as float64 or
as float32."""

SINGLE_RESULT, TUPLE_RESULT, LIST_RESULT = 0, 1, 2
"""In which form leaves are returned: the only one itself, or all in a container."""

HELD_OBJECT, ARRAY_RESULT, NUMBER_RESULT, VARIABLE_RESULT, NUMBER_VARIABLE_RESULT = 0, 1, 2, 3, 4
"""Kinds of leaves. Rows have the kind, an object or the number of an output, a mark and a spec."""
