"""Templates: one program text for all sizes, whose size-dependent numbers are loads from a list.

Called by ``sized_program`` with the texts of a program at several probe sizes. Numbers in which the
texts differ, and numbers that are marked (``symbolic.dims`` explains the marks ``$`` and ``~``),
become loads from the list; each size has a list of its own::

    at 101    %v1 = icmp slt i64 %k, $101$
    at 103    %v1 = icmp slt i64 %k, $103$
    template  %v1 = icmp slt i64 %k, %z.0       with %z.0 loaded at the start of the function

A further size is accepted if its text is the template's except for these numbers, character by
character. So what runs is what would have been compiled for that size.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from odyssey.compiler.symbolic.dims import DERIVED_MARK, SIZE_MARK
from odyssey.errors import OdysseyError
from odyssey.spec import Array

__all__ = ["SIZES", "ProgramText", "TemplateMismatchError", "align_texts"]

SIZES = "sizes"
"""Name of the global that holds the address of the list of numbers."""

_MARKS = SIZE_MARK + DERIVED_MARK
_S, _D = re.escape(SIZE_MARK), re.escape(DERIVED_MARK)
# A marked number, the bits of a floating-point number, or an unmarked integer.
_NUMBER = re.compile(
    rf"({_D}\d+{_D}|{_S}-?\d+{_S}|0x[0-9A-F]{{16}}"
    rf'|(?<![\w.%@"{_S}{_D}-])-?\d+(?![\w.{_S}{_D}"]))'
)
_TYPE = re.compile(r"\b(i\d+|float|double)\b")
_KERNEL = re.compile(r"define internal void @(k\d+)\(")
_KERNEL_CALL = re.compile(r"(call void @)(k\d+)\(")


class TemplateMismatchError(OdysseyError):
    """Programs for several sizes differ in more than numbers; the message says where."""


class _Hole(NamedTuple):
    """A number of a line that is read from the list.

    Attributes:
        position: Its position among the numbers of the line.
        entry: Its index in the list.
    """

    position: int
    entry: int


class _Line(NamedTuple):
    """A line with numbers that vary.

    Attributes:
        separators: The text around and between the numbers of the line.
        numbers: All numbers of the line, as at the first probe size.
        holes: Those that vary.
    """

    separators: list[str]
    numbers: list[str]
    holes: list[_Hole]


# By type and values at the probe sizes, the index of an entry of the list.
_Entries = dict[tuple[str, tuple[str, ...]], int]


class ProgramText:
    """The template of a program.

    Attributes:
        text: The text, which defines the global ``SIZES``.
        count: Length of the list of numbers.
    """

    def __init__(self, text: str, fixed: dict[int, str], lines: dict[int, _Line], count: int):
        self.text = text
        self.count = count
        self._fixed = fixed
        self._lines = lines
        self._length = len(fixed) + len(lines)

    def numbers(self, text: str) -> Array:
        """Return the list of numbers with which the template is the text at a further size.

        Raises:
            TemplateMismatchError: the text differs in more than numbers.
        """
        lines = text.split("\n")
        if len(lines) != self._length:
            raise TemplateMismatchError(f"of {len(lines)} lines, others of {self._length}")
        for k, expected in self._fixed.items():
            if lines[k] != expected:
                raise TemplateMismatchError(
                    f"{lines[k].strip()!r}, others have {expected.strip()!r}"
                )
        values: list[str | None] = [None] * self.count
        for k, line in self._lines.items():
            parts = _NUMBER.split(lines[k])
            numbers = list(map(_strip_markers, parts[1::2]))
            expected_numbers = list(line.numbers)
            if parts[::2] == line.separators:
                for position, entry in line.holes:
                    number = expected_numbers[position] = numbers[position]
                    before, values[entry] = values[entry], number
                    if before is not None and before != number:
                        raise TemplateMismatchError(
                            f"{before} and {number}, which others have equal"
                        )
            if parts[::2] != line.separators or numbers != expected_numbers:
                raise TemplateMismatchError(
                    f"{lines[k].strip()!r}, others have {''.join(line.separators)!r}"
                )
        return np.array([_encode_number(number or "0") for number in values], np.int64)


def align_texts(texts: Sequence[str]) -> ProgramText:
    """Return the template of a program from its texts at the probe sizes.

    Raises:
        TemplateMismatchError: the texts differ in more than numbers.
    """
    columns = [text.split("\n") for text in texts]
    if len(set(map(len, columns))) > 1:
        raise TemplateMismatchError(f"they have {sorted(set(map(len, columns)))} lines")
    fixed: dict[int, str] = {}
    lines: dict[int, _Line] = {}
    entries: _Entries = {}
    template: list[str] = []
    for k, row in enumerate(zip(*columns, strict=True)):
        if len(set(row)) == 1 and not any(mark in row[0] for mark in _MARKS):
            fixed[k] = row[0]
            template.append(row[0])
        else:
            lines[k] = _align_line(row, entries)
            template.append(_line_with_loads(lines[k]))
    types = {entry: type for (type, _), entry in entries.items()}
    return ProgramText(_functions_with_loads(template, types), fixed, lines, len(types))


def _strip_markers(number: str) -> str:
    return number.strip(_MARKS)


def _encode_number(number: str) -> int:
    """Encode a number for the list: an integer, or the bits of a float."""
    if number.startswith("0x"):
        (bits,) = struct.unpack(">q", bytes.fromhex(number[2:]))
        return int(bits)
    return int(number)


def _align_line(row: Sequence[str], entries: _Entries) -> _Line:
    """Align a line of the texts, and add the numbers that vary to ``entries``."""
    split = [_NUMBER.split(line) for line in row]
    separators = split[0][::2]
    if any(parts[::2] != separators for parts in split):
        raise TemplateMismatchError(f"{row[0].strip()!r} and {row[-1].strip()!r}")
    holes = []
    for position, numbers in enumerate(zip(*[parts[1::2] for parts in split], strict=True)):
        if len(set(numbers)) > 1 or numbers[0][0] in _MARKS:
            before = "".join(separators[: position + 1])
            types = _TYPE.findall(before)
            floating = numbers[0].startswith("0x")
            if not types or floating != (types[-1] in ("float", "double")):
                raise TemplateMismatchError(f"a number of no known type in {row[0].strip()!r}")
            key = types[-1], tuple(map(_strip_markers, numbers))
            if numbers[0][0] == DERIVED_MARK:  # an entry of its own
                key = types[-1], (f"{DERIVED_MARK}{len(entries)}",)
            holes.append(_Hole(position, entries.setdefault(key, len(entries))))
    return _Line(separators, list(map(_strip_markers, split[0][1::2])), holes)


def _line_with_loads(line: _Line) -> str:
    """Return a line that uses loaded values in the place of numbers that vary."""
    numbers = list(line.numbers)
    for position, entry in line.holes:
        numbers[position] = f"%z.{entry}"
    pairs = zip(line.separators, numbers, strict=False)
    return "".join([part for pair in pairs for part in pair] + [line.separators[-1]])


# ------------------------------------------------------------------ functions


def _functions_with_loads(lines: Sequence[str], types: dict[int, str]) -> str:
    """Return the text whose functions load the numbers they use; equal kernels are merged."""
    sections = [f"@{SIZES} = global ptr null"]
    kernels: dict[str, str] = {}  # by body, the name of the kernel that is kept
    merged: dict[str, str] = {}
    start = -1
    for k, line in enumerate(lines):
        if line.startswith("define "):
            start = k
        elif line == "}" and start >= 0:
            function = _function_with_loads(lines[start : k + 1], types)
            kernel = _KERNEL.match(function)
            start = -1
            if kernel:
                name = kernel.group(1)
                merged[name] = kernels.setdefault(function[kernel.end() :], name)
                if merged[name] != name:
                    continue
            sections.append(function)
        elif start < 0:
            if "%z." in line:
                raise TemplateMismatchError(f"{line.strip()!r} is not a part of a function")
            sections.append(line)
    text = "\n".join(sections)
    return _KERNEL_CALL.sub(lambda m: f"{m.group(1)}{merged.get(m.group(2), m.group(2))}(", text)


def _function_with_loads(lines: Sequence[str], types: dict[int, str]) -> str:
    """Return a function that begins with the loads of the numbers it uses."""
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
    address = f"ptr %z.a{k}"
    if type in ("i64", "double"):
        return [f"  %z.{k} = load {type}, {address}"]
    wide, conversion = ("double", "fptrunc") if type == "float" else ("i64", "trunc")
    return [
        f"  %z.l{k} = load {wide}, {address}",
        f"  %z.{k} = {conversion} {wide} %z.l{k} to {type}",
    ]
