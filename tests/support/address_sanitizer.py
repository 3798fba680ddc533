"""Address sanitizer: kernels that access no memory but the buffers of their plan, or report it.

Before each load and store in the text of a kernel comes a check that it is within the buffer from
which the address was computed. An access that is not is recorded and redirected; a product that is
not is skipped. So the first fault can be reported, whatever it was.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

from odyssey.compiler.schedule.buffer_assignment import Buffer, Plan
from odyssey.compiler.schedule.fusion import Kernel

__all__ = ["AddressSanitizer", "extent", "fault_of", "words_at"]

_SIZES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
_SIZES |= {"{ float, float }": 8, "{ double, double }": 16}
_TYPE = r"(\{[^}]*\}|<[^>]*>|\w+)"
_LOAD = re.compile(rf"(  %\w+ = load {_TYPE}, ptr )(%\w+)(.*)")
_STORE = re.compile(rf"(  store {_TYPE} [^,]+, ptr )(%\w+)(.*)")
_GEP = re.compile(rf"  (%\w+) = getelementptr (?:inbounds )?{_TYPE}, ptr (%\w+), ")
_ALLOCA = re.compile(rf"  (%\w+) = alloca (?:\[(\d+) x {_TYPE}\]|{_TYPE})")
_MASK = re.compile(r"  (%\w+) = bitcast i\d+ (\d+) to <\d+ x i1>")
_MASKED = re.compile(
    r"(  (?:%\w+ = )?call [^@]*@llvm\.masked\.(load|store)\.v\d+f(\d+)\.p0\([^%]*?"
    r"(?:<[^>]*> %\w+, )?ptr )(%\w+)(, .*<\d+ x i1> (%\w+).*)"
)
_GEMM = re.compile(r"  call void @ody_([sdcz])gemm\((.*)\)")
_GEMV = re.compile(r"  call void @ody_([sdcz])gemv\((.*)\)")
_LAPACK = re.compile(r"  call void @ody_([dz])(potrf|getrf|getrs|trsm|trsv)\((.*)\)")
_CELL = re.compile(r"  store i(?:8|64) (\d+), ptr (%m\d+)$")
_MOVE = re.compile(r"  call void @llvm\.memmove[^(]*\(ptr (%\w+), ptr (%\w+), i64 (\d+), .*\)")
_AS_IT_IS = 111

# Count of looks; of faults; and of the first of these the kernel, which of its buffers (or -1 for
# the stack), how far behind its first byte, how many bytes, and whether they were to be written.
_WORDS = 7

_RUNTIME = f"""@odyssey_fault = global [{_WORDS} x i64] zeroinitializer
@odyssey_elsewhere = global [128 x i8] zeroinitializer, align 64
define internal i1 @odyssey_within(ptr %at, i64 %bytes, ptr %base, i64 %low, i64 %high, i64 %place,
    i64 %which, i64 %writes) noinline {{
  %looks = load i64, ptr @odyssey_fault
  %more = add i64 %looks, 1
  store i64 %more, ptr @odyssey_fault
  %to = ptrtoint ptr %at to i64
  %from = ptrtoint ptr %base to i64
  %begin = sub i64 %to, %from
  %end = add i64 %begin, %bytes
  %above = icmp sge i64 %begin, %low
  %below = icmp sle i64 %end, %high
  %good = and i1 %above, %below
  br i1 %good, label %within, label %outside
outside:
  %faults = getelementptr i64, ptr @odyssey_fault, i64 1
  %before = load i64, ptr %faults
  %after = add i64 %before, 1
  store i64 %after, ptr %faults
  %first = icmp eq i64 %before, 0
  br i1 %first, label %note, label %known
note:
  %f2 = getelementptr i64, ptr @odyssey_fault, i64 2
  store i64 %place, ptr %f2
  %f3 = getelementptr i64, ptr @odyssey_fault, i64 3
  store i64 %which, ptr %f3
  %f4 = getelementptr i64, ptr @odyssey_fault, i64 4
  %behind = sub i64 %begin, %low
  store i64 %behind, ptr %f4
  %f5 = getelementptr i64, ptr @odyssey_fault, i64 5
  store i64 %bytes, ptr %f5
  %f6 = getelementptr i64, ptr @odyssey_fault, i64 6
  store i64 %writes, ptr %f6
  br label %known
known:
  ret i1 false
within:
  ret i1 true
}}"""


class AddressSanitizer:
    """Instrumentation of kernel functions with a bounds check before each access."""

    runtime = _RUNTIME

    def instrument(self, parameters: str, body: str) -> tuple[str, str]:
        """Return parameters and body of a kernel function with checks.

        The parameters that are added are, for each buffer, its begin and end relative to the
        pointer, and the position of the kernel; see ``arguments``.
        """
        names = re.findall(r"%b\d+", parameters)
        limits = [f"i64 %low{k}, i64 %high{k}" for k in range(len(names))]
        text = _Text(names)
        for line in body.split("\n"):
            text.take(line)
        first = [parameters] if parameters else []
        return ", ".join([*first, *limits, "i64 %place"]), "\n".join(text.lines)

    def arguments(
        self, plan: Plan, pointers: Sequence[tuple[Buffer, int]], position: int
    ) -> list[str]:
        """Return the arguments for the parameters that ``instrument`` added."""
        ends = [f"i64 {end - start}" for buffer, start in pointers for end in extent(plan, buffer)]
        return [*ends, f"i64 {position}"]


class _Text:
    def __init__(self, names: Sequence[str]) -> None:
        # By name of a pointer: where it comes from, which buffer that is, and its ends.
        self._roots: dict[str, tuple[str, int, str, str]] = {
            name: (name, k, f"%low{k}", f"%high{k}") for k, name in enumerate(names)
        }
        self.lines: list[str] = []
        self._count = 0
        self._masks: dict[str, int] = {}  # of how many elements
        self._cells: dict[str, int] = {}  # arguments that are passed by address

    def take(self, line: str) -> None:
        found = _ALLOCA.match(line)
        if found is not None:
            name, count, many, one = found.groups()
            size = int(count) * _size(many) if count else _size(one)
            self._roots[name] = (name, -1, "0", str(size))
        found = _MASK.match(line)
        if found is not None:
            self._masks[found[1]] = int(found[2]).bit_length()
        found = _MASKED.match(line)
        if found is not None:
            start, how, bits, at, rest, mask = found.groups()
            size = self._masks[mask] * int(bits) // 8
            self.lines.append(f"{start}{self._safe(at, size, int(how == 'store'))}{rest}")
            return
        found = _GEP.match(line)
        if found is not None:
            self._roots[found[1]] = self._roots[found[3]]
            line = line.replace(" inbounds ", " ", 1)  # what is not may be anything
        for pattern, writes in ((_LOAD, 0), (_STORE, 1)):
            found = pattern.match(line)
            if found is not None:
                start, type, at, rest = found.groups()
                line = f"{start}{self._safe(at, _size(type), writes)}{rest}"
                break
        else:
            assert not re.match(r"\s+(%\w+ = load|store) ", line), f"not looked at: {line}"
        found = _GEMM.match(line)
        if found is not None:
            self._unless_outside(line, _of_product(found[1], found[2]))
            return
        found = _GEMV.match(line)
        if found is not None:
            self._unless_outside(line, _of_vector(found[1], found[2]))
            return
        found = _CELL.match(line)
        if found is not None:
            self._cells[found[2]] = int(found[1])
        found = _LAPACK.match(line)
        if found is not None:
            self._unless_outside(line, _of_matrices(found[1], found[2], found[3], self._cells))
            return
        found = _MOVE.match(line)
        if found is not None:
            to, source, length = found.groups()
            self._unless_outside(line, [(to, int(length), 1), (source, int(length), 0)])
            return
        assert not re.search(r"@ody_|@llvm\.m(em|asked)", line), f"not looked at: {line}"
        self.lines.append(line)

    def _look(self, at: str, size: int, writes: int) -> str:
        base, which, low, high = self._roots[at]
        self._count += 1
        name = f"%look{self._count}"
        self.lines.append(
            f"  {name} = call i1 @odyssey_within(ptr {at}, i64 {size}, ptr {base}, i64 {low}, "
            f"i64 {high}, i64 %place, i64 {which}, i64 {writes})"
        )
        return name

    def _safe(self, at: str, size: int, writes: int) -> str:
        base, which, *_ = self._roots[at]
        if which < 0 and base == at:
            return at  # one number on the stack, or the first of several
        good = self._look(at, size, writes)
        name = f"%safe{self._count}"
        self.lines.append(f"  {name} = select i1 {good}, ptr {at}, ptr @odyssey_elsewhere")
        return name

    def _unless_outside(self, line: str, ranges: Sequence[tuple[str, int, int]]) -> None:
        good = "true"
        for at, size, writes in ranges:
            one = self._look(at, size, writes)
            self.lines.append(f"  {one}and = and i1 {good}, {one}")
            good = f"{one}and"
        k = self._count
        self.lines += [
            f"  br i1 {good}, label %inside{k}, label %beyond{k}",
            f"inside{k}:",
            line,
            f"  br label %beyond{k}",
            f"beyond{k}:",
        ]


def _size(type: str) -> int:
    """Bytes of a type."""
    if type.startswith("<"):
        count, one = type[1:-1].split(" x ")
        return int(count) * _SIZES[one]
    return _SIZES[type]


_BYTES = {"s": 4, "d": 8, "c": 8, "z": 16}


def _of_vector(letter: str, given: str) -> list[tuple[str, int, int]]:
    """Of a product with a vector: pointer, bytes from there on, whether written."""
    words = [word.split()[-1] for word in given.split(", ")]
    how, rows, columns = (int(word) for word in words[1:4])
    a, step, x, step_x, _, y, step_y = words[5:]
    long, short = (columns, rows) if how == _AS_IT_IS else (rows, columns)
    return [
        (a, ((rows - 1) * int(step) + columns) * _BYTES[letter], 0),
        (x, ((long - 1) * int(step_x) + 1) * _BYTES[letter], 0),
        (y, ((short - 1) * int(step_y) + 1) * _BYTES[letter], 1),
    ]


def _of_matrices(
    letter: str, name: str, given: str, cells: dict[str, int]
) -> list[tuple[str, int, int]]:
    """Of a call of LAPACK: pointer, bytes from there on, whether written."""
    words = [word.split()[-1] for word in given.split(", ")]
    known = [cells.get(word, 0) for word in words]

    def block(at: int, rows: int, columns: int, writes: int) -> tuple[str, int, int]:
        elements = (columns - 1) * known[at + 1] + rows
        return words[at], max(elements, 0) * _BYTES[letter], writes

    if name == "potrf":
        return [block(2, known[1], known[1], 1)]
    if name == "getrf":
        return [block(2, known[0], known[1], 1), (words[4], 8 * known[0], 1)]
    if name == "getrs":
        n, columns = known[1:3]
        return [block(3, n, n, 0), (words[5], 8 * n, 0), block(6, n, columns, 1)]
    if name == "trsv":
        return [block(4, known[3], known[3], 0), block(6, 1, known[3], 1)]
    m, n = known[4:6]
    side = m if chr(known[0]) == "L" else n
    return [block(7, side, side, 0), block(9, m, n, 1)]


def _of_product(letter: str, given: str) -> list[tuple[str, int, int]]:
    """Of operands and result of a product: pointer, bytes from there on, whether written."""
    words = [word.split()[-1] for word in given.split(", ")]
    how_a, how_b, m, n, k = (int(word) for word in words[1:6])
    a, step_a, b, step_b, _, c, step_c = words[7:]
    size = _BYTES[letter]

    def bytes_of(rows: int, columns: int, step: str) -> int:
        return ((rows - 1) * int(step) + columns) * size

    return [
        (a, bytes_of(*((m, k) if how_a == _AS_IT_IS else (k, m)), step_a), 0),
        (b, bytes_of(*((k, n) if how_b == _AS_IT_IS else (n, k)), step_b), 0),
        (c, bytes_of(m, n, step_c), 1),
    ]


def extent(plan: Plan, buffer: Buffer) -> tuple[int, int]:
    """Where a buffer begins and ends in bytes, counted from the pointer to it."""
    # Its leaf is the first that was given a home, also where the program only writes to it.
    view = next((h.view for h in plan.allocations.values() if h.buffer is buffer), None)
    if buffer.kind == "state" and view is not None and view.size:
        reach = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
        size = buffer.bytes // view.size
        low = sum(step for step in reach if step < 0)
        high = 1 + sum(step for step in reach if step > 0)
        return low * size, high * size
    return 0, buffer.bytes


def fault_of(words: Any, plan: Plan, buffers: dict[int, list[Buffer]]) -> str | None:
    """The first access of a program that went out of its buffer, in words; None if none did.

    Args:
        words: Of ``odyssey_fault``.
        plan: Of the program.
        buffers: By place of a kernel, its buffers.
    """
    _, count, place, which, at, size, writes = words
    if not count:
        return None
    kernel: Kernel = plan.fused.kernels[place]
    what, low = "the stack", 0
    if which >= 0:
        buffer = buffers[place][which]
        names = [f"n{id}" for id, home in plan.allocations.items() if home.buffer is buffer]
        low, high = extent(plan, buffer)
        what = f"{buffer.kind} {', '.join(names)}, which has the bytes from {low} to {high}"
    done = "writes" if writes else "reads"
    nodes = ", ".join(map(repr, kernel.nodes[:8]))
    return (
        f"kernel {place}, {kernel.kind} over {kernel.space}, {done} {size} bytes at {low + at} of "
        f"{what}; {count} accesses went out; it computes {nodes}"
    )


def words_at(address: int) -> list[int]:
    """The words of ``odyssey_fault``, which lies at an address."""
    return list((ctypes.c_int64 * _WORDS).from_address(address))
