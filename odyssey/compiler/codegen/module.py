"""A plan as the text of one LLVM module: kernels, and what calls them in order.

The module is called with one table of addresses: of the arena, then of the arrays of arguments,
states, constants, results and calls. Nothing in the text is an address, so it is the same in every
process. Kernels that are alike, as those of equal layers, are one function.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from odyssey.compiler.codegen.instrumentation import clock
from odyssey.compiler.codegen.matmul import LETTERS, Product
from odyssey.compiler.codegen.routine import METADATA, Routine
from odyssey.compiler.codegen.scan import Scan
from odyssey.compiler.codegen.shared_loops import SharedLoops
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.ir import declarations
from odyssey.compiler.native_dispatch.entry import RAN, REFUSED
from odyssey.compiler.schedule.arena import Buffer
from odyssey.compiler.schedule.buffer_assignment import Plan, covered
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.schedule.work_partition import time_of, varies

__all__ = ["Module", "emit"]


class Module(NamedTuple):
    """A program as text.

    Attributes:
        text: Of the module.
        slots: By kind and number of a buffer, its place in the table of addresses.
        steps: In order, names of functions ``i64 f(ptr table)``, and calls of Python. The entry
            runs the first; see ``entry``. Of several the last, ``rest``, can no more fail.
        names: By place of a kernel, the function that is called for it.
        touched: By place of a kernel, the buffers whose addresses that function gets.
        direct: Whether a whole call may be one native function; see ``whole``.
        free: Whether other threads of Python may run while a step does.
    """

    text: str
    slots: dict[tuple[str, int], int]
    steps: list[str | Node]
    names: dict[int, str]
    touched: dict[int, list[Buffer]]
    direct: bool = False
    free: bool = False


_BLAS = {
    f"ody_{letter}{name}": f"declare void @ody_{letter}{name}({sizes}, {number}, "
    f"ptr, i64, ptr, i64, {number}, ptr, i64)"
    for letter, number in (("s", "float"), ("d", "double"), ("c", "ptr"), ("z", "ptr"))
    for name, sizes in (("gemm", "i32, i32, i32, i64, i64, i64"), ("gemv", "i32, i32, i64, i64"))
}
# What BLAS is told of products of complex numbers, by address.
_SCALARS = {
    f"@ody_{value}_{type}": f"@ody_{value}_{type} = private constant [2 x {part}] "
    f"[{part} {value}.0, {part} 0.0]"
    for type, part in (("c8", "float"), ("c16", "double"))
    for value in (0, 1)
}

_POOL = (
    "@ody_own = global i64 0",
    "declare void @ody_parallel(ptr, ptr, i64, i64)",
    "declare i64 @ody_enter(i64)",
    "declare void @ody_leave()",
)


# Seconds from which on a step lets other threads of Python run: to give the interpreter's lock away
# and take it back costs .04 microseconds, and where somebody took it up to 5 milliseconds.
_LONG = 1e-4

# Lines from which on a step is several functions: LLVM takes longer than linear time for each.
_MANY = 200

_FREE = "declare ptr @PyEval_SaveThread()\ndeclare void @PyEval_RestoreThread(ptr)"


class _Driver:
    """The functions that call kernels in order."""

    def __init__(self, plan: Plan, clocks: bool, looks: Any) -> None:
        self.plan, self.clocks, self.looks = plan, clocks, looks
        self.slots: dict[tuple[str, int], int] = {("arena", 0): 0}
        self.kernels: list[str] = []
        self.texts: list[str] = []
        self.steps: list[str | Node] = []
        self.names: dict[int, str] = {}
        self.touched: dict[int, list[Buffer]] = {}
        self._known: dict[tuple[str, ...], str] = {}
        self._kernels = 0
        self._lines: list[str] = []
        self._used: set[int] = set()
        self._count = 0
        self._seconds = 0.0  # of the step that is written now
        self.free = False

    def name(self, text: str) -> str:
        """A new name for what an instruction gives."""
        self._count += 1
        self._lines.append(f"  %d{self._count} = {text}")
        return f"%d{self._count}"

    def place(self, buffer: Buffer) -> int:
        """Where in the table a buffer's address stands."""
        key = ("arena", 0) if buffer.kind == "arena" else (buffer.kind, buffer.index)
        return self.slots.setdefault(key, len(self.slots))

    def pointer(self, buffer: Buffer, start: int = 0) -> str:
        """Where a buffer lies; or what is ``start`` bytes behind its beginning."""
        slot = self.place(buffer)
        self._used.add(slot)
        offset = buffer.offset + start if buffer.kind == "arena" else start
        if not offset and not (buffer.kind == "arena" and self.plan.varies):
            return f"%p{slot}"
        by = self.place_of(offset)
        return self.name(f"getelementptr inbounds i8, ptr %p{slot}, i64 {by}")

    def place_of(self, number: int) -> str:
        """A number that hangs on how large all buffers are; where sizes vary it is marked."""
        return f"~{number}~" if self.plan.varies else str(number)

    def call(self, kernel: Kernel, routine: Routine) -> None:
        """Append a call of a kernel's function, which like kernels share."""
        if len(self._lines) >= _MANY:
            self._end_part()
        text = routine.text()
        name = self._known.get(text)
        # Where sizes vary, those that are alike here may differ elsewhere; see ``templates``.
        if name is None or self.plan.varies:
            name = self._known[text] = f"k{self._kernels}"
            self._kernels += 1
            taken, body, *blocks = self.looks.bounded(*text) if self.looks else text
            parts = [f"define internal void @{name}({taken}) #0 {{\n{body}\n}}", *blocks]
            self.kernels += [part.replace("@self.", f"@{name}.") for part in parts]
        self.names[kernel.place] = name
        self.touched[kernel.place] = routine.buffers
        self._seconds += time_of(kernel)
        given = list(zip(routine.buffers, routine.starts, strict=True))
        passed = [f"ptr {self.pointer(*one)}" for one in given]
        if self.looks:
            passed += self.looks.limits(self.plan, given, kernel.place)
        self.do(f"  call void @{name}({', '.join(passed)})", kernel.place)

    def do(self, line: str, number: int) -> None:
        """Append a line; where there are clocks, what it takes is added to that of a number."""
        start = self.name("call i64 @odyssey_now()") if self.clocks else ""
        self._lines.append(line)
        if self.clocks:
            self._lines.append(f"  call void @odyssey_add(i64 {number}, i64 {start})")

    def check(self, node: Node) -> None:
        """Go on only where a truth holds."""
        home = self.plan.homes[node.id]
        truth = self.name(f"load i8, ptr {self.pointer(home.buffer)}")
        self._require(self.name(f"icmp ne i8 {truth}, 0"))

    def _require(self, holds: str) -> None:
        after = f"after{self._count}"
        self._lines += [f"  br i1 {holds}, label %{after}, label %refused", f"{after}:"]

    def fill(self, node: Node) -> None:
        """Set a buffer to 0."""
        home = self.plan.homes[node.id]
        at = self.pointer(home.buffer)
        size = self.place_of(home.buffer.bytes)
        line = f"  call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {size}, i1 false)"
        self.do(line, len(self.plan.fused.kernels))

    def move(self, to: Buffer, source: Buffer) -> None:
        """Copy a buffer into another."""
        a, b = self.pointer(to), self.pointer(source)
        size = self.place_of(to.bytes)
        line = f"  call void @llvm.memmove.p0.p0.i64(ptr {a}, ptr {b}, i64 {size}, i1 false)"
        self.do(line, len(self.plan.fused.kernels) + 1)

    def end_segment(self) -> None:
        """Close a function, and begin the next."""
        name = f"segment{sum(isinstance(step, str) for step in self.steps)}"
        self.steps.append(name)
        plan = self.plan
        # Where sizes vary, each call tells whether it is long.
        free = plan.varies or self._seconds >= _LONG
        free = free and not (self.clocks or plan.guarded)
        self.free |= free
        seen, own = ("internal", ".free") if free else ("", "")
        self._end_function(f"{seen} i64 @{name}{own}(ptr %table)")
        if free:
            by = self.place_of(int(self._seconds * 1e9)) if plan.varies else None
            self.texts += _freed(name, by)
        self._seconds = 0.0

    def _end_part(self) -> None:
        """Let what was written be a function, which the step calls."""
        name = f"part{len(self.texts)}"
        self._end_function(f"internal i64 @{name}(ptr %table) noinline")
        answer = self.name(f"call i64 @{name}(ptr %table)")
        self._require(self.name(f"icmp eq i64 {answer}, {RAN}"))

    def _end_function(self, head: str) -> None:
        lines = [f"define {head} {{"]
        for slot in sorted(self._used):
            lines += [
                f"  %s{slot} = getelementptr i64, ptr %table, i64 {slot}",
                f"  %p{slot} = load ptr, ptr %s{slot}",
            ]
        tail = [f"  ret i64 {RAN}", "refused:", f"  ret i64 {REFUSED}", "}"]
        self.texts.append("\n".join([*lines, *self._lines, *tail]))
        self._lines, self._used = [], set()


def emit(
    plan: Plan,
    inputs: int,
    blas: Mapping[str, int],
    apart: bool,
    clocks: bool = False,
    bounds: bool = False,
) -> Module:
    """Write a plan down.

    Args:
        plan: What is to be done.
        inputs: How many arguments are arrays.
        blas: Names of the products that can be called.
        apart: Whether what can fail is to be a step apart from what cannot.
        clocks: Whether to count what kernels take; see ``clocks``.
        bounds: Whether to look at each address before it is read or written; see ``bounds``.
    """
    looks = import_module("odyssey.compiler.codegen.address_sanitizer") if bounds else None
    driver = _Driver(plan, clocks, looks)
    for kind, index in _fixed(plan, inputs):
        driver.slots.setdefault((kind, index), len(driver.slots))
    if clocks:
        driver.do("  call void @odyssey_begin()", len(plan.fused.kernels) + 2)
    for node in plan.fused.order:
        if node.kind == "join" and not covered(node) and node.id in plan.homes:
            driver.fill(node)
    barrier = max((k.place for k in plan.fused.kernels if k.checks or k.kind == "call"), default=-1)
    if apart and barrier < 0:
        driver.end_segment()
    for kernel in plan.fused.kernels:
        if kernel.kind == "call":
            driver.end_segment()
            driver.steps.append(kernel.nodes[0])
            for node in kernel.nodes[0].inputs:
                driver.place(plan.home(node).buffer)
            continue
        if any(n.size for n in kernel.nodes) or kernel.kind == "product":
            # Into how many blocks a loop is cut hangs on its length.
            alone = bounds or (plan.varies and varies(kernel))
            routine: Routine
            if kernel.kind == "product":
                known = f"ody_{LETTERS[kernel.nodes[0].type]}gemm" in blas
                routine = Product(plan, kernel, known, alone)
            else:
                scans = kernel.kind == "scan"
                routine = Scan(plan, kernel, alone) if scans else SharedLoops(plan, kernel, bounds)
            driver.call(kernel, routine)
        for node in kernel.checks:
            driver.check(node)
        if apart and kernel.place == barrier:
            driver.end_segment()
    for state, node in plan.moves:
        home = plan.home(node)
        driver.move(_state_buffer(plan, state), home.buffer)
    driver.end_segment()
    used = "\n".join([*driver.kernels, *driver.texts])
    parts = [declarations(used), _declared(used), *([_FREE] if driver.free else ()), used]
    if clocks:
        parts.append(clock(len(plan.fused.kernels)))
    if looks:
        parts.append(looks.WATCHMEN)
    direct = len(driver.steps) <= 2 and not (clocks or bounds)
    direct = direct and not (driver.free or plan.varies)  # it relies on being alone
    if "!llvm.loop" in used:
        parts.append(METADATA)
    parts.append('attributes #0 = { noinline nounwind "prefer-vector-width"="512" }')
    found = driver.slots, driver.steps, driver.names, driver.touched
    return Module("\n".join(parts), *found, direct, driver.free)


def _freed(name: str, nanoseconds: str | None) -> list[str]:
    """A step in which other threads of Python run, if it takes long enough; None for a long one."""
    asked = [
        f"  %long = icmp sge i64 {nanoseconds}, {int(_LONG * 1e9)}",
        "  br i1 %long, label %freed, label %held",
        "held:",
        f"  %here = call i64 @{name}.free(ptr %table)",
        "  ret i64 %here",
        "freed:",
    ]
    return [
        f"define i64 @{name}(ptr %table) {{",
        *(asked if nanoseconds else ()),
        "  %thread = call ptr @PyEval_SaveThread()",
        f"  %answer = call i64 @{name}.free(ptr %table)",
        "  call void @PyEval_RestoreThread(ptr %thread)",
        "  ret i64 %answer",
        "}",
    ]


def _declared(text: str) -> str:
    """Declare the products that are called, and the pool."""
    lines = [line for name, line in _BLAS.items() if f"call void @{name}(" in text]
    lines += [line for name, line in _SCALARS.items() if f"ptr {name}," in text]
    if "@ody_own" in text:
        lines += _POOL
    return "\n".join(lines)


def _fixed(plan: Plan, inputs: int) -> list[tuple[str, int]]:
    """Buffers whose addresses the entry writes into the table."""
    outputs = plan.written()
    return [*(("input", k) for k in range(inputs)), *(("output", k) for k in outputs)]


def _state_buffer(plan: Plan, state: int) -> Buffer:
    for home in plan.homes.values():
        if home.buffer.kind == "state" and home.buffer.index == state:
            return home.buffer
    raise AssertionError(f"state {state} lies nowhere")
