"""Kernel functions in LLVM IR: pointers, loops, locals and blocks for threads, for all kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager

from odyssey.compiler.ir.nodes import ITEM_SIZES, Node, random_access_inputs
from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.scalar_programs import emit_scalar_program
from odyssey.compiler.llvm.types import HALVES, LLVM, MEMORY
from odyssey.compiler.schedule.buffer_assignment import Buffer, Plan
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.symbolic.dims import SymbolicDim, mark_derived

__all__ = ["LOOP_METADATA", "KernelFunction"]

# Loops that call at least this many elementary functions are interleaved: one iteration is then a
# longer dependency chain than a processor looks ahead. 20 ops on 10^6 numbers, five of them such
# functions, take 5.8 ms with one vector at a time and 3.0 ms with four.
_INTERLEAVED_CALLS = 2
# So are loops with several sums, each of which waits for its last addition: LLVM interleaves fewer
# vectors the longer an iteration is, and two sums along 256 numbers took 1.4 times as long.
_INTERLEAVED_SUMS = 2
# By interleave count, the shortest loop that has enough elements for it.
_INTERLEAVED_LENGTHS = {2: 64, 4: 128}

# LLVM estimates the cost of each vector width twice. A build with assertions aborts if the two
# estimates choose different widths, which happens with i1 values that select others: one estimate
# counts them as one step, the other as two for each element. It matters only where several widths
# hold the whole loop and so cost about as much; there we force the width.
_SHORT_LOOP = 16
_I1_OPERATION = re.compile(r"(?:[usz](?:itofp|ext)|and|or|xor|icmp \w+) i1 ")
# A call of the C library keeps a loop scalar, and LLVM prints a remark if a width is forced there.
_C_CALL = re.compile(r"call \w+ @(?!llvm\.|odyssey\.)")
_WIDTH_METADATA = {4: 8, 8: 11}
# A forced vector width reorders sums. Only sums marked `reassoc`, and extremes, allow that.
_SUMS = re.compile(r"store (?:half|float|double) (\S+), ptr %[^v]")
_ANY_ORDER = re.compile(r"(%v\d+) = (?:f(?:add|mul) reassoc|call \w+ @llvm\.m(?:ax|in)imum\.)")

LOOP_METADATA = "\n".join(
    [
        f"!{k} = distinct !{{!{k}, !{k + 1}}}\n"
        f'!{k + 1} = !{{!"llvm.loop.interleave.count", i32 {k}}}'
        for k in _INTERLEAVED_LENGTHS
    ]
    + [
        f"!{k} = distinct !{{!{k}, !{k + 1}, !{k + 2}}}\n"
        f'!{k + 1} = !{{!"llvm.loop.vectorize.width", i32 {width}}}\n'
        f'!{k + 2} = !{{!"llvm.loop.vectorize.predicate.enable", i1 true}}'
        for width, k in _WIDTH_METADATA.items()
    ]
)
"""Metadata of vectorization hints, for modules whose text has ``!llvm.loop``."""


class _Parameter(str):
    """Name of a pointer parameter, relative to which the elements of a buffer are addressed."""

    __slots__ = ()


class KernelFunction:
    """Base of the code generators of kernels: an LLVM function with one pointer for each buffer.

    Loop counters and accumulators are allocas, which LLVM promotes to registers.

    Args:
        plan: Plan of the program.
        kernel: Kernel to generate code for.
        single_threaded: Whether to generate no blocks for the thread pool.
    """

    def __init__(self, plan: Plan, kernel: Kernel, single_threaded: bool = False) -> None:
        self.plan, self.kernel, self.single_threaded = plan, kernel, single_threaded
        self.code = FunctionBuilder()
        self.buffers: list[Buffer] = []
        # By parameter, the byte offset in its buffer at which it points: that of its first access.
        # So the unrolled steps of a loop have equal texts and share one function.
        self._starts: dict[str, int | None] = {}
        self._pointers: dict[int, _Parameter] = {}
        self._entry: list[str] = []
        self._labels = 0
        self._first_loop_line: int | None = None
        self._scalars: dict[int, LLVMValue] = {}
        self._shared_types: list[str] = []
        self._block_body: str | None = None

    def function_text(self) -> tuple[str, ...]:
        """Return parameters and body, equal for equal kernels, and the block function if any.

        ``@self`` stands for the name of the function.
        """
        parameters = ", ".join(f"ptr noalias %b{k}" for k in range(len(self.buffers)))
        if self._block_body is None:
            return parameters, self._body()
        # Shared locals are allocated here; the block function gets a list of addresses.
        shared = [f"ptr noalias %s{k}" for k in range(len(self._shared_types))]
        names = [*(f"%b{k}" for k in range(len(self.buffers))), *(s.split()[-1] for s in shared)]
        self._entry += [f"  %s{k} = alloca {type}" for k, type in enumerate(self._shared_types)]
        self._entry.append(f"  %given = alloca [{len(names)} x ptr]")
        for k, name in enumerate(names):
            self._entry += [
                f"  %given{k} = getelementptr ptr, ptr %given, i64 {k}",
                f"  store ptr {name}, ptr %given{k}",
            ]
        block_parameters = ", ".join(filter(None, [parameters, *shared, "i64 %first, i64 %end"]))
        return (
            parameters,
            self._body(),
            _block_function(block_parameters, self._block_body, len(names)),
        )

    def _body(self) -> str:
        lines = ["entry:", *self._entry, "  br label %start", "start:"]
        body = self.code.lines
        first = len(body) if self._first_loop_line is None else self._first_loop_line
        # Code before the loops runs once, so calls are not inlined there: the copies took half of
        # the compile time of Adam.
        once = [f"{line} noinline" if "@odyssey." in line else line for line in body[:first]]
        return "\n".join([*lines, *once, *body[first:], "  ret void"])

    # -------------------------------------------------------------- threads

    def emit_blocks(
        self,
        length: int,
        size: int,
        body: Callable[[LLVMValue, LLVMValue, int | LLVMValue], None],
        mergeable: bool,
    ) -> None:
        """Split indices into blocks for the thread pool; at most once in a function.

        The blocks are a function of their own, which sees no value that was computed before but
        those in ``shared_alloca``.

        Args:
            length: Number of indices.
            size: Indices of a block; the last one may be shorter.
            body: ``body(k, first, count)`` generates the code of block ``k``.
            mergeable: Whether consecutive blocks of one thread may run as one larger block.
        """
        if self._first_loop_line is None:
            self._first_loop_line = len(self.code.lines)
        limit = self.thread_limit()
        # Both numbers depend on the size if the length is symbolic, so mark them for the template.
        symbolic = isinstance(length, SymbolicDim)
        blocks = -(-int(length) // size)
        count, step = [mark_derived(n) if symbolic else str(n) for n in (blocks, size)]
        self.code.line(
            f"call void @ody_parallel(ptr @self.take, ptr %given, i64 {count}, i64 {limit.text})"
        )
        with self._separate_function() as code:
            begin, end = (LLVMValue(code, "i8", name) for name in ("%first", "%end"))

            def emit_range(k: LLVMValue, after: LLVMValue) -> None:
                first = code.op("i8", f"mul nuw nsw i64 {k.text}, {step}")
                last = code.op("i8", f"mul nuw nsw i64 {after.text}, {step}")
                if symbolic or length % size:
                    last = code.call("i8", "llvm.smin.i64", last, code.const("i8", length))
                constant = not symbolic and length % size == 0 and not mergeable
                body(k, first, size if constant else last - first)

            if mergeable:
                emit_range(begin, end)
            else:
                self.emit_loop(end - begin, lambda i: emit_range(begin + i, begin + i + 1))
            self._block_body = self._body()

    def thread_limit(self) -> LLVMValue:
        """Load the program's own number of threads; 0 if it has none."""
        return self.code.op("i8", "load i64, ptr @ody_own")

    @contextmanager
    def _separate_function(self) -> Iterator[FunctionBuilder]:
        """Generate code into a new function within the block."""
        outer = self.code, self._entry, self._first_loop_line, self._scalars
        self.code, self._entry, self._first_loop_line, self._scalars = (
            FunctionBuilder(),
            [],
            None,
            {},
        )
        try:
            yield self.code
        finally:
            self.code, self._entry, self._first_loop_line, self._scalars = outer

    def shared_alloca(self, type: str, count: int) -> str:
        """Allocate locals that blocks see too, for ``store_local``."""
        assert type not in HALVES, "halves have a smaller stride in memory than as locals"
        self._shared_types.append(f"[{count} x {LLVM[type]}], align 64")
        return f"%s{len(self._shared_types) - 1}"

    # -------------------------------------------------------------- memory

    def elementwise_operands(self, n: Node, own: Container[int]) -> dict[int, Node]:
        """Return the arrays that a node reads at each element, by number; load its scalars.

        Args:
            n: The node.
            own: Numbers of the nodes that the function computes.
        """
        arrays: dict[int, Node] = {}
        # A randomly accessed array may be read at each element besides, as in x[places] = x.
        for i in n.inputs[len(random_access_inputs(n)) :]:
            if i.id in own:
                continue
            if i.size == 1:
                self.scalar_value(i)
            elif i.owner.kind != "index":
                arrays[i.id] = i
        return arrays

    def pointer(self, buffer: Buffer) -> str:
        """Return the parameter that points into a buffer."""
        parameter = self._pointers.get(id(buffer))
        if parameter is None:
            parameter = self._pointers[id(buffer)] = _Parameter(f"%b{len(self.buffers)}")
            self.buffers.append(buffer)
            self._starts[parameter] = 0 if self.plan.is_symbolic else None
        return parameter

    def pointer_to_start(self, buffer: Buffer) -> str:
        """Return the parameter of a buffer, which must point to its first byte."""
        pointer = self.pointer(buffer)
        assert not self._starts[pointer], "the parameter points into the buffer"
        self._starts[pointer] = 0
        return pointer

    @property
    def starts(self) -> list[int]:
        """Byte offset in each of ``buffers`` at which its parameter must point."""
        return [start or 0 for start in self._starts.values()]

    def alloca(self, type: str, count: int = 1) -> str:
        """Allocate locals on the stack."""
        return self.alloca_of(LLVM[type] if count == 1 else f"[{count} x {MEMORY[type]}], align 64")

    def alloca_of(self, llvm_type: str) -> str:
        """Allocate a local of an LLVM type on the stack."""
        name = f"%m{len(self._entry)}"
        self._entry.append(f"  {name} = alloca {llvm_type}")
        return name

    def store_local(self, word: LLVMValue, pointer: str) -> None:
        """Store to a local, where a truth value has one bit."""
        self.code.line(f"store {LLVM[word.type]} {word.text}, ptr {pointer}")

    def load_local(self, type: str, pointer: str) -> LLVMValue:
        """Load a value that ``store_local`` stored."""
        return self.code.op(type, f"load {LLVM[type]}, ptr {pointer}")

    def emit_loop(
        self, length: int | LLVMValue, body: Callable[[LLVMValue], None], sums: int = 0
    ) -> None:
        """Generate a loop.

        Args:
            length: The number of indices.
            body: ``body(index)`` generates the code at an index.
            sums: The number of sums that the loop accumulates in any order.
        """
        code = self.code
        if isinstance(length, int) and length == 1:
            body(code.const("i8", 0))
            return
        if self._first_loop_line is None:
            self._first_loop_line = len(code.lines)
        end = length.text if isinstance(length, LLVMValue) else f"{length}"
        k, counter, i = self._open_loop("0", end)
        first, known = len(code.lines), dict(self._scalars)
        body(i)
        self._scalars = known  # what was first loaded in the loop is not there behind it
        innermost = self._labels == k + 1
        calls = sum("@odyssey." in line for line in code.lines[first:])
        is_chain = calls >= _INTERLEAVED_CALLS or sums >= _INTERLEAVED_SUMS
        metadata = _interleave_count(length) if innermost and is_chain else 1
        if innermost and _has_partial_vectors(length) and _computes_truths(code.lines[first:]):
            metadata = _WIDTH_METADATA[4 if length == 3 else 8]
        hint = f", !llvm.loop !{metadata}" if metadata > 1 else ""
        self._close_loop(k, counter, i, "1", hint)

    def _open_loop(self, first: str, end: str) -> tuple[int, str, LLVMValue]:
        """Begin a loop; return the number of its labels, its counter's local, and the index."""
        code, k = self.code, self._labels
        self._labels += 1
        counter = self.alloca("i8")
        code.line(f"store i64 {first}, ptr {counter}")
        code.line(f"br label %head{k}")
        code.label(f"head{k}")
        i = code.op("i8", f"load i64, ptr {counter}")
        below = code.op("b1", f"icmp slt i64 {i.text}, {end}")
        code.line(f"br i1 {below.text}, label %body{k}, label %exit{k}")
        code.label(f"body{k}")
        return k, counter, i

    def _close_loop(self, k: int, counter: str, i: LLVMValue, step: str, hint: str = "") -> None:
        """End a loop that ``_open_loop`` began."""
        code = self.code
        after = code.op("i8", f"add nuw nsw i64 {i.text}, {step}")
        code.line(f"store i64 {after.text}, ptr {counter}")
        code.line(f"br label %head{k}{hint}")
        code.label(f"exit{k}")

    def emit_loops(
        self,
        lengths: Sequence[int],
        body: Callable[[list[LLVMValue]], None],
        outer: Sequence[LLVMValue] = (),
    ) -> None:
        """Generate nested loops: ``body(indices)`` generates the innermost body.

        Args:
            lengths: The lengths of the loops, the outermost first.
            body: Called with the indices of all loops.
            outer: The indices of loops that are open already.
        """
        # No function that calls itself by a closure: it would hold the plan in a cycle.
        if not lengths:
            body([*outer])
            return
        first, *inner = lengths
        self.emit_loop(first, lambda k: self.emit_loops(inner, body, (*outer, k)))

    def element_pointer(
        self, type: str, pointer: str, terms: Sequence[tuple[LLVMValue, int]], start: int
    ) -> str:
        """Return the pointer to the element at ``start`` plus the sum of index times stride."""
        code = self.code
        offset: str | None = None
        for index, stride in terms:
            if stride and index.text != "0":
                step = index.text
                if stride != 1:
                    step = code.op("i8", f"mul nsw i64 {step}, {stride}").text
                if offset is None:
                    offset = step
                else:
                    offset = code.op("i8", f"add nsw i64 {offset}, {step}").text
        if isinstance(pointer, _Parameter):
            base = self._starts[pointer]
            base = self._starts[pointer] = ITEM_SIZES[type] * start if base is None else base
            start -= base // ITEM_SIZES[type]
            assert base % ITEM_SIZES[type] == 0, "elements of a buffer are of one type"
            pointer = str(pointer)
        if start:
            pointer = self.offset_pointer(type, pointer, str(start))
        return pointer if offset is None else self.offset_pointer(type, pointer, offset)

    def offset_pointer(self, type: str, pointer: str, elements: str) -> str:
        """Return a pointer moved by a number of elements."""
        text = f"getelementptr inbounds {MEMORY[type]}, ptr {pointer}, i64 {elements}"
        return self.code.op("ptr", text).text

    # -------------------------------------------------------------- values

    def scalar_value(self, node: Node) -> LLVMValue:
        """Return the value of a node of one element, computed or loaded before the loops."""
        cached = self._scalars.get(node.id)
        if cached is not None:
            return cached
        owner = node.owner
        inline = self.plan.fused.numbers
        if node.kind == "number":
            value = self.code.const(node.type, node.payload.item())
        elif node.id in inline:
            value = self.evaluate_map(node, [self.scalar_value(i) for i in node.inputs])
        elif owner is not node and (owner.kind == "number" or owner.id in inline):
            value = self.scalar_value(owner)
        elif owner.kind == "index":
            value = self.code.const("i8", 0)
        else:
            allocation = self.plan.allocation(node)
            pointer = self.pointer(allocation.buffer)
            value = self.code.load(
                node.type, self.element_pointer(node.type, pointer, (), allocation.view.offset)
            )
        self._scalars[node.id] = value
        return value

    def evaluate_map(self, node: Node, values: Sequence[LLVMValue]) -> LLVMValue:
        """Generate the scalar program of a map for the values of its inputs."""
        return self.code.cast(emit_scalar_program(self.code, node.payload, values), node.type)


def _computes_truths(lines: Sequence[str]) -> bool:
    """Return whether a loop computes i1 values, has no sum of fixed order and no C call."""
    if not any(map(_I1_OPERATION.search, lines)) or any(map(_C_CALL.search, lines)):
        return False
    sums = {match[1] for match in map(_SUMS.search, lines) if match}
    return sums <= {match[1] for match in map(_ANY_ORDER.search, lines) if match}


def _has_partial_vectors(length: int | LLVMValue) -> bool:
    """Return whether a loop is short and its length no power of 2, so that vectors are masked."""
    return type(length) is int and length < _SHORT_LOOP and length & (length - 1) != 0


def _interleave_count(length: int | LLVMValue) -> int:
    """Return how many vectors a loop with long iterations should process at a time."""
    known = max(_INTERLEAVED_LENGTHS.values()) if isinstance(length, LLVMValue) else length
    return max((n for n, least in _INTERLEAVED_LENGTHS.items() if known >= least), default=1)


def _block_function(parameters: str, body: str, count: int) -> str:
    """Return the function of blocks and its adapter with the signature that the pool calls."""
    lines = [f"define internal void @self.blocks({parameters}) #0 {{\n{body}\n}}"]
    lines.append("define internal void @self.take(ptr %given, i64 %first, i64 %end) {")
    for k in range(count):
        lines.append(f"  %at{k} = getelementptr ptr, ptr %given, i64 {k}")
        lines.append(f"  %p{k} = load ptr, ptr %at{k}")
    arguments = [*(f"ptr %p{k}" for k in range(count)), "i64 %first", "i64 %end"]
    call = f"  call void @self.blocks({', '.join(arguments)})"
    return "\n".join([*lines, call, "  ret void", "}"])
