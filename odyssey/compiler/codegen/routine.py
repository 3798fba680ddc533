"""A function of pointers as LLVM IR: what loops and products have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from odyssey.compiler.ir.element_programs import SIZES
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.ir import LLVM, MEMORY, Code, Word
from odyssey.compiler.llvm.scalar_programs import evaluate
from odyssey.compiler.schedule.arena import Buffer
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.symbolic.dims import Varying

__all__ = ["METADATA", "Routine"]

# From so many elementary functions on a step of a loop is a longer chain than a processor looks
# ahead: 20 ops on 10^6 numbers, five of them such, take 5.8 ms by a vector at a time, 3.0 by four.
_MANY = 2
# Of so many elements there are some left for each of several vectors at a time.
_ENOUGH = {2: 64, 4: 128}

# LLVM estimates twice what vectors of each length take, and one with assertions ends the process
# where the two choose differently: truths that others choose count once as one step, once as two
# for each element. It matters where vectors of several lengths hold all of a loop, and so take
# about the same; there the length is told.
_SHORT = 16
_TRUTHS = re.compile(r"(?:[usz](?:itofp|ext)|and|or|xor|icmp \w+) i1 ")
_WIDTHS = {4: 8, 8: 11}
# Who is told how to be vectorized adds up in any order: sums may that say so, and extremes.
_SUMS = re.compile(r"store (?:half|float|double) (\S+), ptr %[^v]")
_ANY_ORDER = re.compile(r"(%v\d+) = (?:f(?:add|mul) reassoc|call \w+ @llvm\.m(?:ax|in)imum\.)")

METADATA = "\n".join(
    [
        f"!{k} = distinct !{{!{k}, !{k + 1}}}\n"
        f'!{k + 1} = !{{!"llvm.loop.interleave.count", i32 {k}}}'
        for k in _ENOUGH
    ]
    + [
        f"!{k} = distinct !{{!{k}, !{k + 1}, !{k + 2}}}\n"
        f'!{k + 1} = !{{!"llvm.loop.vectorize.width", i32 {width}}}\n'
        f'!{k + 2} = !{{!"llvm.loop.vectorize.predicate.enable", i1 true}}'
        for width, k in _WIDTHS.items()
    ]
)
"""What loops refer to that are told how to be vectorized; of a module whose text does."""


class _Parameter(str):
    """A pointer that a routine is given, from which the elements of a buffer are counted."""

    __slots__ = ()


class Routine:
    """A function of pointers, one for each buffer that it meets.

    Counters and sums lie on the stack, from where LLVM takes them into registers.

    Args:
        plan: Of the program.
        kernel: What it is the routine of.
        alone: Whether it is one function, of which threads share nothing.
    """

    def __init__(self, plan: Plan, kernel: Kernel, alone: bool = False) -> None:
        self.plan, self.kernel, self.alone = plan, kernel, alone
        self.code = Code()
        self.buffers: list[Buffer] = []
        # By pointer, how many bytes behind the beginning of its buffer it points: to where the
        # first element is read. So the steps of a loop that was written out are alike.
        self._starts: dict[str, int | None] = {}
        self._pointers: dict[int, _Parameter] = {}
        self._entry: list[str] = []
        self._labels = 0
        self._first: int | None = None  # of the lines that stand in a loop or behind one
        self._numbers: dict[int, Word] = {}
        self._shared: list[str] = []
        self._threaded: str | None = None

    def text(self) -> tuple[str, ...]:
        """Parameters and body, which of like kernels are alike; and what blocks are, if any.

        In all ``@self`` stands for the name of the routine.
        """
        given = ", ".join(f"ptr noalias %b{k}" for k in range(len(self.buffers)))
        if self._threaded is None:
            return given, self._body()
        # What is shared lies here; blocks get a list of addresses.
        shared = [f"ptr noalias %s{k}" for k in range(len(self._shared))]
        all_ = [*(f"%b{k}" for k in range(len(self.buffers))), *(s.split()[-1] for s in shared)]
        self._entry += [f"  %s{k} = alloca {what}" for k, what in enumerate(self._shared)]
        self._entry.append(f"  %given = alloca [{len(all_)} x ptr]")
        for k, name in enumerate(all_):
            self._entry += [
                f"  %given{k} = getelementptr ptr, ptr %given, i64 {k}",
                f"  store ptr {name}, ptr %given{k}",
            ]
        takes = ", ".join(filter(None, [given, *shared, "i64 %first, i64 %end"]))
        return given, self._body(), _blocks(takes, self._threaded, len(all_))

    def _body(self) -> str:
        lines = ["entry:", *self._entry, "  br label %start", "start:"]
        body = self.code.lines
        first = len(body) if self._first is None else self._first
        # What runs once is called: copies of it took half of the time of compiling Adam.
        once = [f"{line} noinline" if "@odyssey." in line else line for line in body[:first]]
        return "\n".join([*lines, *once, *body[first:], "  ret void"])

    # -------------------------------------------------------------- threads

    def in_blocks(
        self, length: int, size: int, body: Callable[[Word, Word, int | Word], None], whole: bool
    ) -> None:
        """Blocks of indices, by several threads; once in a routine.

        It is a function of its own, and so sees no value that was computed before, but what is
        ``shared``.

        Args:
            length: Indices.
            size: Of a block; the last may be shorter.
            body: ``body(k, first, count)`` writes down block ``k``, of some indices.
            whole: Whether blocks that one thread takes together may be done as one.
        """
        if self._first is None:
            self._first = len(self.code.lines)
        own = self.own_threads()
        # Of a length that varies both are other numbers elsewhere, whatever they are here.
        varies = isinstance(length, Varying)
        count, each = [f"~{n}~" if varies else str(n) for n in (-(-int(length) // size), size)]
        self.code.line(
            f"call void @ody_parallel(ptr @self.take, ptr %given, i64 {count}, i64 {own.text})"
        )
        with self._elsewhere() as code:
            begin, end = (Word(code, "i8", name) for name in ("%first", "%end"))

            def part(k: Word, after: Word) -> None:
                first = code.op("i8", f"mul nuw nsw i64 {k.text}, {each}")
                last = code.op("i8", f"mul nuw nsw i64 {after.text}, {each}")
                if varies or length % size:
                    last = code.call("i8", "llvm.smin.i64", last, code.const("i8", length))
                known = not varies and length % size == 0 and not whole
                body(k, first, size if known else last - first)

            if whole:
                part(begin, end)
            else:
                self.loop(end - begin, lambda i: part(begin + i, begin + i + 1))
            self._threaded = self._body()

    def own_threads(self) -> Word:
        """What the program was given of threads; 0 where nothing."""
        return self.code.op("i8", "load i64, ptr @ody_own")

    @contextmanager
    def _elsewhere(self) -> Iterator[Code]:
        """Write another function for a while."""
        kept = self.code, self._entry, self._first, self._numbers
        self.code, self._entry, self._first, self._numbers = Code(), [], None, {}
        try:
            yield self.code
        finally:
            self.code, self._entry, self._first, self._numbers = kept

    def shared(self, type: str, count: int) -> str:
        """Room on the stack that blocks know, for what ``keep`` writes."""
        assert type != "f2", "halves lie closer than what they are computed in"
        self._shared.append(f"[{count} x {LLVM[type]}], align 64")
        return f"%s{len(self._shared) - 1}"

    # -------------------------------------------------------------- memory

    def pointer(self, buffer: Buffer) -> str:
        """The parameter that points to a buffer."""
        known = self._pointers.get(id(buffer))
        if known is None:
            known = self._pointers[id(buffer)] = _Parameter(f"%b{len(self.buffers)}")
            self.buffers.append(buffer)
            self._starts[known] = 0 if self.plan.varies else None
        return known

    def pointer_to_all(self, buffer: Buffer) -> str:
        """The same, which points to the beginning."""
        pointer = self.pointer(buffer)
        assert not self._starts[pointer], "it points elsewhere"
        self._starts[pointer] = 0
        return pointer

    @property
    def starts(self) -> list[int]:
        """By number of a buffer, how many bytes behind its beginning its pointer is to point."""
        return [start or 0 for start in self._starts.values()]

    def alloca(self, type: str, count: int = 1) -> str:
        """Room on the stack."""
        name = f"%m{len(self._entry)}"
        what = LLVM[type] if count == 1 else f"[{count} x {MEMORY[type]}], align 64"
        self._entry.append(f"  {name} = alloca {what}")
        return name

    def loop(self, length: int | Word, body: Callable[[Word], None]) -> None:
        """``body(index)`` for each index below ``length``."""
        code = self.code
        if isinstance(length, int) and length == 1:
            body(code.const("i8", 0))
            return
        k = self._labels
        self._labels += 1
        if self._first is None:
            self._first = len(code.lines)
        counter = self.alloca("i8")
        end = length.text if isinstance(length, Word) else length
        code.line(f"store i64 0, ptr {counter}")
        code.line(f"br label %head{k}")
        code.label(f"head{k}")
        i = code.op("i8", f"load i64, ptr {counter}")
        more = code.op("b1", f"icmp slt i64 {i.text}, {end}")
        code.line(f"br i1 {more.text}, label %body{k}, label %exit{k}")
        code.label(f"body{k}")
        first = len(code.lines)
        body(i)
        after = code.op("i8", f"add nuw nsw i64 {i.text}, 1")
        code.line(f"store i64 {after.text}, ptr {counter}")
        innermost = self._labels == k + 1
        many = sum("@odyssey." in line for line in code.lines[first:]) >= _MANY
        told = _at_once(length) if innermost and many else 1
        if innermost and _is_masked(length) and _asks_truths(code.lines[first:]):
            told = _WIDTHS[4 if length == 3 else 8]
        code.line(f"br label %head{k}{f', !llvm.loop !{told}' if told > 1 else ''}")
        code.label(f"exit{k}")

    def address(
        self, type: str, pointer: str, terms: Sequence[tuple[Word, int]], start: int
    ) -> str:
        """The pointer to an element: from ``start``, each index times its stride further."""
        code = self.code
        at: str | None = None
        for index, stride in terms:
            if stride and index.text != "0":
                step = index.text
                if stride != 1:
                    step = code.op("i8", f"mul nsw i64 {step}, {stride}").text
                at = step if at is None else code.op("i8", f"add nsw i64 {at}, {step}").text
        if isinstance(pointer, _Parameter):
            own = self._starts[pointer]
            own = self._starts[pointer] = SIZES[type] * start if own is None else own
            start -= own // SIZES[type]
            assert own % SIZES[type] == 0, "elements of a buffer are of one type"
            pointer = str(pointer)
        if start:
            pointer = self._moved(type, pointer, str(start))
        return pointer if at is None else self._moved(type, pointer, at)

    def _moved(self, type: str, pointer: str, by: str) -> str:
        text = f"getelementptr inbounds {MEMORY[type]}, ptr {pointer}, i64 {by}"
        return self.code.op("ptr", text).text

    # -------------------------------------------------------------- values

    def number(self, node: Node) -> Word:
        """A node of one element, computed or read before the loops."""
        known = self._numbers.get(node.id)
        if known is not None:
            return known
        owner = node.owner
        if node.kind == "number":
            found = self.code.const(node.type, node.work.item())
        elif node.id in self.plan.fused.numbers:
            found = self.compute(node, [self.number(i) for i in node.inputs])
        elif owner is not node and (owner.kind == "number" or owner.id in self.plan.fused.numbers):
            found = self.number(owner)
        elif owner.kind == "index":
            found = self.code.const("i8", 0)
        else:
            home = self.plan.home(node)
            pointer = self.pointer(home.buffer)
            found = self.code.load(
                node.type, self.address(node.type, pointer, (), home.view.offset)
            )
        self._numbers[node.id] = found
        return found

    def compute(self, node: Node, values: Sequence[Word]) -> Word:
        """What a map gives for certain inputs."""
        return self.code.cast(evaluate(self.code, node.work, values), node.type)


def _asks_truths(lines: Sequence[str]) -> bool:
    """Whether a loop computes with truths, and no sums in it have an order."""
    if not any(map(_TRUTHS.search, lines)):
        return False
    sums = {found[1] for found in map(_SUMS.search, lines) if found}
    return sums <= {found[1] for found in map(_ANY_ORDER.search, lines) if found}


def _is_masked(length: int | Word) -> bool:
    """Whether a loop is so short, and of such a length, that its vectors are not full."""
    return type(length) is int and length < _SHORT and length & (length - 1) != 0


def _at_once(length: int | Word) -> int:
    """How many vectors a loop of long steps is to take at a time."""
    known = max(_ENOUGH.values()) if isinstance(length, Word) else length
    return max((n for n, least in _ENOUGH.items() if known >= least), default=1)


def _blocks(takes: str, body: str, count: int) -> str:
    """A function of blocks, and how the pool calls it."""
    lines = [f"define internal void @self.blocks({takes}) #0 {{\n{body}\n}}"]
    lines.append("define internal void @self.take(ptr %given, i64 %first, i64 %end) {")
    for k in range(count):
        lines.append(f"  %at{k} = getelementptr ptr, ptr %given, i64 {k}")
        lines.append(f"  %p{k} = load ptr, ptr %at{k}")
    known = [*(f"ptr %p{k}" for k in range(count)), "i64 %first", "i64 %end"]
    return "\n".join([*lines, f"  call void @self.blocks({', '.join(known)})", "  ret void", "}"])
