"""What the tables have that a call in one native function reads; see ``whole`` and ``direct``."""

from __future__ import annotations

__all__ = [
    "ARRAY",
    "BARE",
    "FIELDS",
    "HELD",
    "LIST",
    "NUMBER",
    "TUPLE",
    "VARIABLE",
    "VARIABLE_OF_NUMBER",
]

FIELDS = {
    name: place
    for place, name in enumerate(
        (
            *("ready", "turn", "missed", "calls", "contexts", "context_count", "others"),
            *("rooms", "room_count", "items", "words", "word_count", "pairs", "pair_count"),
            *("numbers", "number_count", "cells", "cell_count", "outs", "out_count"),
            *("leaves", "leaf_count", "form", "ticket", "ids", "one", "none", "true"),
            *("whole_number", "variable", "given", "arrays", "look", "table", "first", "second"),
        )
    )
}
"""What stands in the block of words of a program, and where: addresses and counts.

``given`` says how many arguments there are, the first of which are ``arrays``; ``look``, ``first``
and ``second`` are functions of the program, the last perhaps none; see ``entry``.

``turn`` is another number after each change of the tables, so that nobody takes two for one.

* ``contexts`` has rows of a context variable, what is taken where it is not set, and what must be
  found.
* ``rooms`` has rows of a dictionary, its version, where in ``items`` its own begin and end, and
  whether only the version will do; ``items`` those of a key and what must be found, or 0.
* ``words`` has rows of a place, a mask and a word; ``pairs`` of two places with the same word.
* ``numbers`` has the places of numbers that go up by one.
* ``cells`` has rows of a place, and what is put there: 0 for None, or 1 and a result's number.
* ``outs`` has rows of a dtype, a number of axes, where their lengths stand, a slot of the table of
  addresses, and 0; or, for a number of NumPy's, where it lies meanwhile, and 1.
* ``leaves`` has rows of what is returned: a kind, an object or a result's number, a mark, a spec.
"""

BARE, TUPLE, LIST = 0, 1, 2
"""In which form leaves are returned: the only one itself, or all in a container."""

HELD, ARRAY, NUMBER, VARIABLE, VARIABLE_OF_NUMBER = 0, 1, 2, 3, 4
"""Kinds of leaves. Rows have the kind, an object or the number of an output, a mark and a spec."""
