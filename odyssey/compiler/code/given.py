"""Numbers that each call knows anew: what a program takes of them, and how.

A program is given the numbers of the arguments, then what Python computed of them, as Python's own
objects. It uses each in one dtype or more, as NumPy's promotion has it: the entry converts, and
refuses what such a dtype does not hold, for which the function is run as it was written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.numbers.expressions import Arithmetic, Expression, computing
from odyssey.compiler.numbers.scalars import evaluate
from odyssey.compiler.numbers.words import Code, Word
from odyssey.compiler.plan.meanings import meaning
from odyssey.errors import OdysseyError

__all__ = ["CLASSES", "Numbers", "Taken", "converted", "looked_at", "taking"]

CLASSES = (float, int)
"""Of what numbers may be, in the order of ``number_classes`` of the entry."""


class Taken(NamedTuple):
    """A number that a program is given.

    Attributes:
        kind: Its class, of ``CLASSES``.
        uses: The types in which it is used, each with the place of the cell that it is put into.
    """

    kind: type
    uses: tuple[tuple[str, int], ...]


class Numbers:
    """The numbers of one program.

    Args:
        arithmetic: How they are computed of the arguments.
        used: By expression and type the place of its cell.
        called: What calls of Python take as it is.

    Attributes:
        count: How many are arguments.
        taken: What the entry is given, in order: the arguments, and what is computed of them.
        cells: The memory that it puts them into.
        known: What calls take, by expression, during a run.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        used: Mapping[tuple[Expression, str], int],
        called: Sequence[Expression],
    ) -> None:
        used = dict(used)
        for one in arithmetic.bound:
            used.setdefault((one, "i8"), len(used))
        self.count = len(arithmetic.inputs)
        computed = dict.fromkeys(one for one, _ in used if one not in arithmetic.inputs)
        self.taken = [
            Taken(one.kind, tuple([(type, k) for (e, type), k in used.items() if e == one]))
            for one in (*arithmetic.inputs, *computed)
        ]
        self.cells = np.zeros(max(len(used), 1), np.int64)
        self.known: dict[Expression, Any] = {}
        self._kinds = [one.kind for one in arithmetic.inputs]
        self._called = list(dict.fromkeys(called))
        self._compute: Callable[..., tuple[Any, ...]] | None = None
        if arithmetic.steps or self._called:
            names = [one.operands[0] for one in arithmetic.inputs]
            self._compute = computing(arithmetic.steps, names, [*computed, *self._called])

    @property
    def computes(self) -> bool:
        """Whether Python computes something of the arguments."""
        return self._compute is not None

    def completed(self, numbers: Sequence[Any]) -> Sequence[Any] | None:
        """The arguments, and what Python computes of them; None where the function would raise."""
        if self._compute is None:
            return numbers
        if [type(number) for number in numbers] != self._kinds:
            return None
        try:
            return (*numbers, *self._compute(*numbers))
        except Exception:
            return None

    def given(self, numbers: Sequence[Any]) -> Sequence[Any] | None:
        """Those of what ``completed`` gives that the entry takes; the others are for calls."""
        if not self._called:
            return numbers
        count = len(self.taken)
        self.known = dict(zip(self._called, numbers[count:], strict=True))
        # Of another class it would make a result of another dtype.
        if any(type(number) is not one.kind for one, number in self.known.items()):
            return None
        return numbers[:count]

    def put(self, numbers: Sequence[Any]) -> bool:
        """Put numbers into their cells, as the entry does; False where one does not fit."""
        room = self.cells.view(np.uint8)
        for one, number in zip(self.taken, numbers, strict=True):
            if type(number) is not one.kind:
                return False
            for type_, k in one.uses:
                found = converted(number, type_)
                if found is None:
                    return False
                room[8 * k : 8 * k + found.itemsize] = np.frombuffer(found.tobytes(), np.uint8)
        return True


# Up to here float64 has all whole numbers: what is rounded further is rounded once.
_EXACT = 1 << 53
# Python tells the entry of numbers up to here.
_WHOLE = np.iinfo(np.int64)


def converted(number: Any, type_: str) -> Any:
    """A number as a ufunc takes it in a type; None where that does not hold it."""
    dtype = np.dtype(type_)
    if isinstance(number, int):
        limits = np.iinfo(dtype) if dtype.kind in "iu" else _WHOLE
        low, high = (-_EXACT, _EXACT) if type_ == "f4" else (limits.min, limits.max)
        within = max(low, _WHOLE.min) <= number <= min(high, _WHOLE.max)
    else:
        within = not float(np.finfo(dtype).max) < abs(number) < inf
    return dtype.type(number) if within else None


# ------------------------------------------------------------------ the entry


def taking(k: int, one: Taken, cells: Mapping[int, int]) -> list[str]:
    """The text by which the entry looks at a number, and puts it into its cells.

    Args:
        k: Its place among all that the entry is given.
        one: What is taken of it.
        cells: By place of a cell, the place of its address in the table.
    """
    text = _Text(k)
    text.add(
        f"given{k}:",
        f"  %oa{k} = getelementptr ptr, ptr %args, i64 {k}",
        f"  %o{k} = load ptr, ptr %oa{k}",
        f"  %kinda{k} = getelementptr i8, ptr %o{k}, i64 8",
        f"  %kind{k} = load i64, ptr %kinda{k}",
        f"  %ca{k} = getelementptr i64, ptr @number_classes, i64 {CLASSES.index(one.kind)}",
        f"  %class{k} = load i64, ptr %ca{k}",
    )
    text.require(f"icmp eq i64 %kind{k}, %class{k}")
    _load(text, one.kind)
    for j, (type_, cell) in enumerate(one.uses):
        word = _of_float(text, type_, j) if one.kind is float else _of_int(text, type_, j)
        if cell in cells:
            text.add(
                f"  %ta{k}_{j} = getelementptr i64, ptr %table, i64 {cells[cell]}",
                f"  %t{k}_{j} = load ptr, ptr %ta{k}_{j}",
                f"  store {word}, ptr %t{k}_{j}",
            )
    text.add(f"  br label %given{k + 1}")
    return text.lines


class _Text:
    """Lines for one argument, and the conditions in them."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.lines: list[str] = []
        self._count = 0

    def add(self, *lines: str) -> None:
        self.lines += lines

    def require(self, truth: str) -> None:
        """Go on only where an instruction gives true."""
        name = f"{self.k}_{self._count}"
        self.add(f"  %r{name} = {truth}", f"  br i1 %r{name}, label %g{name}, label %strange")
        self.add(f"g{name}:")
        self._count += 1


def _load(text: _Text, kind: type) -> None:
    k = text.k
    if kind is float:
        text.add(
            f"  %na{k} = getelementptr i8, ptr %o{k}, i64 16",
            f"  %n{k} = load double, ptr %na{k}",
            f"  %bits{k} = bitcast double %n{k} to i64",
            f"  %size{k} = and i64 %bits{k}, {(1 << 63) - 1}",
        )
        return
    text.add(
        f"  %far{k} = alloca i32",
        f"  %n{k} = call i64 @PyLong_AsLongLongAndOverflow(ptr %o{k}, ptr %far{k})",
        f"  %is_far{k} = load i32, ptr %far{k}",
    )
    text.require(f"icmp eq i32 %is_far{k}, 0")


def _bits(number: float) -> int:
    (found,) = struct.unpack("<q", struct.pack("<d", number))
    return int(found)


def _of_float(text: _Text, type_: str, j: int) -> str:
    """A float in a type: finite ones stay so."""
    k = text.k
    if type_ == "f8":
        return f"double %n{k}"
    text.add(
        f"  %large{k}_{j} = icmp ugt i64 %size{k}, {_bits(float(np.finfo(np.float32).max))}",
        f"  %finite{k}_{j} = icmp ult i64 %size{k}, {_bits(inf)}",
        f"  %lost{k}_{j} = and i1 %large{k}_{j}, %finite{k}_{j}",
    )
    text.require(f"xor i1 %lost{k}_{j}, true")
    text.add(f"  %w{k}_{j} = fptrunc double %n{k} to float")
    return f"float %w{k}_{j}"


def _of_int(text: _Text, type_: str, j: int) -> str:
    """A whole number in a type that has it, or a floating one."""
    k = text.k
    if type_ == "f8":
        text.add(f"  %w{k}_{j} = sitofp i64 %n{k} to double")
        return f"double %w{k}_{j}"
    limits = np.iinfo(np.dtype(type_)) if type_ != "f4" else _WHOLE
    low, high = (-_EXACT, _EXACT) if type_ == "f4" else (int(limits.min), int(limits.max))
    if low > _WHOLE.min:
        text.require(f"icmp sge i64 %n{k}, {low}")
    if high < _WHOLE.max:
        text.require(f"icmp sle i64 %n{k}, {high}")
    if type_ == "f4":
        text.add(
            f"  %d{k}_{j} = sitofp i64 %n{k} to double",
            f"  %w{k}_{j} = fptrunc double %d{k}_{j} to float",
        )
        return f"float %w{k}_{j}"
    if type_[1] == "8":
        return f"i64 %n{k}"
    bits = 8 * int(type_[1])
    text.add(f"  %w{k}_{j} = trunc i64 %n{k} to i{bits}")
    return f"i{bits} %w{k}_{j}"


# ------------------------------------------------------------------ what looks at numbers


class _Watched(Word):
    """A number that notes whether code is written by what it is."""

    def __init__(self, code: Code, type: str) -> None:
        super().__init__(code, type, "%x")
        self.asked = False

    @property
    def number(self) -> None:
        """It is not known."""
        self.asked = True


def looked_at(row: Any, values: Sequence[Any], options: tuple[Any, ...]) -> frozenset[int]:
    """The operands of a row by whose value, where that is known, its code is written."""
    if row.scalar is None or row.several is not None:
        return frozenset()  # its kernel is called, with the number
    try:
        return _looked_at(row.scalar, len(values), options)
    except TypeError:  # an option that is not hashable
        return frozenset(range(len(values)))


@lru_cache(maxsize=512)
def _looked_at(scalar: Any, count: int, options: tuple[Any, ...]) -> frozenset[int]:
    found: set[int] = set()
    for type in ("f8", "i8"):
        for k in range(count):
            code = Code()
            watched = _Watched(code, type)
            words = [Word(code, type, "%y") for _ in range(count)]
            words[k] = watched
            with suppress(OdysseyError):  # of what there is no code for: its kernel is called
                evaluate(code, meaning(scalar, count, options, type).program, words)
            if watched.asked:
                found.add(k)
    return frozenset(found)
