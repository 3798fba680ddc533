"""One text for programs that differ in numbers alone: the numbers are read when it runs.

What differs between the texts of a program at several sizes becomes a load from a list of numbers,
of which each size has its own. A size fits where its text is that of the others but for these
numbers, character by character: then what runs is what would have been compiled for it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from odyssey.errors import OdysseyError
from odyssey.spec import Array

__all__ = ["SIZES", "ProgramText", "TemplateMismatchError", "align_texts"]

SIZES = "sizes"
"""The global of a program that holds the address of its numbers."""

# Whole numbers, those that are marked as varying, alone or with others, and the bits of floating
# ones.
_NUMBER = re.compile(r'(~\d+~|\$-?\d+\$|0x[0-9A-F]{16}|(?<![\w.%@"$~-])-?\d+(?![\w.$~"]))')
_TYPE = re.compile(r"\b(i\d+|float|double)\b")
_KERNEL = re.compile(r"define internal void @(k\d+)\(")
_CALLED = re.compile(r"(call void @)(k\d+)\(")


class TemplateMismatchError(OdysseyError):
    """Programs for several sizes differ in more than numbers; the message says where."""


class _Hole(NamedTuple):
    """A number in a line: its place among those of the line, and which of the list it is."""

    at: int
    place: int


class _Line(NamedTuple):
    """A line with numbers that vary: what stands between all of its numbers; and those."""

    between: list[str]
    numbers: list[str]
    holes: list[_Hole]


class ProgramText:
    """A text whose numbers are read from a list.

    Attributes:
        text: It, which defines the global ``SIZES``.
        count: How long the list is.
    """

    def __init__(self, text: str, fixed: dict[int, str], lines: dict[int, _Line], count: int):
        self.text = text
        self.count = count
        self._fixed = fixed
        self._lines = lines
        self._length = len(fixed) + len(lines)

    def numbers(self, text: str) -> Array:
        """The numbers with which this is another text.

        Raises:
            TemplateMismatchError: there are none.
        """
        lines = text.split("\n")
        if len(lines) != self._length:
            raise TemplateMismatchError(f"of {len(lines)} lines, others of {self._length}")
        for k, wanted in self._fixed.items():
            if lines[k] != wanted:
                raise TemplateMismatchError(f"{lines[k].strip()!r}, others have {wanted.strip()!r}")
        found: list[str | None] = [None] * self.count
        for k, line in self._lines.items():
            parts = _NUMBER.split(lines[k])
            numbers = list(map(_strip_markers, parts[1::2]))
            wanted_numbers = list(line.numbers)
            if parts[::2] == line.between:
                for at, index in line.holes:
                    wanted_numbers[at] = numbers[at]
                    before, found[index] = found[index], numbers[at]
                    if before is not None and before != numbers[at]:
                        raise TemplateMismatchError(
                            f"{before} and {numbers[at]}, which others have equal"
                        )
            if parts[::2] != line.between or numbers != wanted_numbers:
                raise TemplateMismatchError(
                    f"{lines[k].strip()!r}, others have {''.join(line.between)!r}"
                )
        return np.array([_encode_number(number or "0") for number in found], np.int64)


def align_texts(texts: Sequence[str]) -> ProgramText:
    """The template of a program's texts at several sizes.

    Raises:
        TemplateMismatchError: they differ in more than numbers.
    """
    columns = [text.split("\n") for text in texts]
    if len(set(map(len, columns))) > 1:
        raise TemplateMismatchError(f"they have {sorted(set(map(len, columns)))} lines")
    fixed: dict[int, str] = {}
    lines: dict[int, _Line] = {}
    known: dict[tuple[str, tuple[str, ...]], int] = {}
    made: list[str] = []
    for k, row in enumerate(zip(*columns, strict=True)):
        if "$" not in row[0] and "~" not in row[0] and len(set(row)) == 1:
            fixed[k] = row[0]
            made.append(row[0])
        else:
            lines[k] = _align_line(row, known)
            made.append(_line_with_loads(lines[k]))
    types = {index: type for (type, _), index in known.items()}
    return ProgramText(_functions_with_loads(made, types), fixed, lines, len(types))


def _strip_markers(number: str) -> str:
    return number.strip("$~")


def _encode_number(number: str) -> int:
    """Encode a number for the list: an integer, or the bits of a float."""
    if number.startswith("0x"):
        (found,) = struct.unpack(">q", bytes.fromhex(number[2:]))
        return int(found)
    return int(number)


def _align_line(row: Sequence[str], known: dict[tuple[str, tuple[str, ...]], int]) -> _Line:
    split = [_NUMBER.split(line) for line in row]
    between = split[0][::2]
    if any(parts[::2] != between for parts in split):
        raise TemplateMismatchError(f"{row[0].strip()!r} and {row[-1].strip()!r}")
    holes = []
    for at, numbers in enumerate(zip(*[parts[1::2] for parts in split], strict=True)):
        if len(set(numbers)) > 1 or numbers[0][0] in "$~":
            before = "".join(between[: at + 1])
            types = _TYPE.findall(before)
            floating = numbers[0].startswith("0x")
            if not types or floating != (types[-1] in ("float", "double")):
                raise TemplateMismatchError(f"a number of no known type in {row[0].strip()!r}")
            key = types[-1], tuple(map(_strip_markers, numbers))
            if numbers[0][0] == "~":  # equal here for no reason
                key = types[-1], (f"~{len(known)}",)
            holes.append(_Hole(at, known.setdefault(key, len(known))))
    return _Line(between, list(map(_strip_markers, split[0][1::2])), holes)


def _line_with_loads(line: _Line) -> str:
    """A line whose numbers that vary are values."""
    numbers = list(line.numbers)
    for at, index in line.holes:
        numbers[at] = f"%z.{index}"
    parts = [*zip(line.between, numbers, strict=False)]
    return "".join([part for pair in parts for part in pair] + [line.between[-1]])


# ------------------------------------------------------------------ functions


def _functions_with_loads(lines: Sequence[str], types: dict[int, str]) -> str:
    """The text in which every function loads the numbers that it uses; like kernels are one."""
    made = [f"@{SIZES} = global ptr null"]
    kernels: dict[str, str] = {}
    same: dict[str, str] = {}
    start = -1
    for k, line in enumerate(lines):
        if line.startswith("define "):
            start = k
        elif line == "}" and start >= 0:
            whole = _function_with_loads(lines[start : k + 1], types)
            found = _KERNEL.match(whole)
            start = -1
            if found:
                name = found.group(1)
                body = whole[found.end() :]
                same[name] = kernels.setdefault(body, name)
                if same[name] != name:
                    continue
            made.append(whole)
        elif start < 0:
            if "%z." in line:
                raise TemplateMismatchError(f"{line.strip()!r} is not a part of a function")
            made.append(line)
    text = "\n".join(made)
    return _CALLED.sub(lambda m: f"{m.group(1)}{same.get(m.group(2), m.group(2))}(", text)


def _function_with_loads(lines: Sequence[str], types: dict[int, str]) -> str:
    body = "\n".join(lines[1:])
    used = sorted(set(map(int, re.findall(r"%z\.(\d+)\b", body))))
    if not used:
        return "\n".join(lines)
    loads = [f"  %z = load ptr, ptr @{SIZES}"]
    for k in used:
        loads.append(f"  %z.a{k} = getelementptr inbounds i64, ptr %z, i64 {k}")
        loads += _load_number(k, types[k])
    head = 2 if lines[1] == "entry:" else 1
    return "\n".join([*lines[:head], *loads, *lines[head:]])


def _load_number(k: int, type: str) -> list[str]:
    place = f"ptr %z.a{k}"
    if type in ("i64", "double"):
        return [f"  %z.{k} = load {type}, {place}"]
    wide, how = ("double", "fptrunc") if type == "float" else ("i64", "trunc")
    return [
        f"  %z.l{k} = load {wide}, {place}",
        f"  %z.{k} = {how} {wide} %z.l{k} to {type}",
    ]
