"""Code generation of a whole program: one LLVM module with all kernels and the calls of them.

The module is called with one table of addresses: of the arena, then of the arrays of arguments,
states, constants, results and host calls. The text contains no address, so it is the same in every
process. Equal kernels, such as those of equal layers, are one function.

A profiled program counts nanoseconds in the global ``odyssey_spent``: one counter for each kernel,
one for zeroing before all kernels, one for copies into states behind them, one for the clock
itself; the last one counts runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from odyssey.compiler.codegen.kernel_function import LOOP_METADATA, KernelFunction
from odyssey.compiler.codegen.lapack import LAPACK_DECLARATIONS, LapackCall
from odyssey.compiler.codegen.loops import LoopNest
from odyssey.compiler.codegen.matmul import BLAS_PREFIXES, Matmul
from odyssey.compiler.codegen.scan import Scan
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.declarations import declarations
from odyssey.compiler.native_dispatch.entry import CHECK_FAILED, RAN
from odyssey.compiler.schedule.buffer_assignment import Buffer, Plan, is_fully_covered
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.schedule.work_partition import estimated_seconds, has_symbolic_sizes
from odyssey.compiler.symbolic.dims import mark_derived
from odyssey.errors import DeviceError

__all__ = ["EXTRA_COUNTERS", "Instrumentation", "Module", "generate_code", "profiling_functions"]

EXTRA_COUNTERS = 4
"""Number of profile counters besides those of kernels."""


def profiling_functions(kernels: int) -> str:
    """Return the LLVM text of the counters and of the functions that update them.

    Args:
        kernels: Number of kernels.

    Raises:
        DeviceError: if this system has no ``clock_gettime``.
    """
    kind = getattr(time, "CLOCK_MONOTONIC", None)
    if kind is None:
        raise DeviceError(
            "profile: this system has no clock_gettime, by which kernels are timed; time whole "
            "calls of the function instead"
        )
    return f"""@odyssey_spent = global [{kernels + EXTRA_COUNTERS} x i64] zeroinitializer
declare i32 @clock_gettime(i32, ptr)
define internal i64 @odyssey_now() noinline {{
  %at = alloca [2 x i64]
  %failed = call i32 @clock_gettime(i32 {kind}, ptr %at)
  %seconds = load i64, ptr %at
  %beside = getelementptr i64, ptr %at, i64 1
  %more = load i64, ptr %beside
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %more
  ret i64 %now
}}
define internal void @odyssey_begin() noinline {{
  %at = getelementptr i64, ptr @odyssey_spent, i64 {kernels + EXTRA_COUNTERS - 1}
  %before = load i64, ptr %at
  %after = add i64 %before, 1
  store i64 %after, ptr %at
  ret void
}}
define internal void @odyssey_add(i64 %number, i64 %start) noinline {{
  %end = call i64 @odyssey_now()
  %spent = sub i64 %end, %start
  %at = getelementptr i64, ptr @odyssey_spent, i64 %number
  %before = load i64, ptr %at
  %after = add i64 %before, %spent
  store i64 %after, ptr %at
  ret void
}}"""


class Module(NamedTuple):
    """The LLVM text of a program, and how to call it.

    Attributes:
        text: LLVM IR of the module.
        slots: Slot of each buffer in the table of addresses, by kind and number of the buffer.
        steps: Names of functions ``i64 f(ptr table)``, and nodes of host calls, in order. The entry
            runs the first step. If there are several, the last one cannot fail.
        names: By position of a kernel, the function that is called for it.
        buffers: By position of a kernel, the buffers whose addresses its function gets.
        direct: Whether a whole call may be one native function, see ``native_dispatch``.
        releases_gil: Whether a step may release the interpreter lock.
    """

    text: str
    slots: dict[tuple[str, int], int]
    steps: list[str | Node]
    names: dict[int, str]
    buffers: dict[int, list[Buffer]]
    direct: bool = False
    releases_gil: bool = False


class Instrumentation(Protocol):
    """Rewriter of kernel functions that adds checks; the tests' address sanitizer is one.

    Attributes:
        runtime: LLVM text of the functions and globals that the checks use.
    """

    runtime: str

    def instrument(self, parameters: str, body: str) -> tuple[str, str]:
        """Return parameters and body of a kernel function with checks."""

    def arguments(self, plan: Plan, pointers: list[tuple[Buffer, int]], position: int) -> list[str]:
        """Return the arguments for the parameters that ``instrument`` added, for a kernel.

        Args:
            plan: Plan of the program.
            pointers: Buffers with the byte offsets at which the function's pointers point.
            position: Position of the kernel.
        """


_BLAS = {
    f"ody_{letter}{name}": f"declare void @ody_{letter}{name}({sizes}, {number}, "
    f"ptr, i64, ptr, i64, {number}, ptr, i64)"
    for letter, number in (("s", "float"), ("d", "double"), ("c", "ptr"), ("z", "ptr"))
    for name, sizes in (("gemm", "i32, i32, i32, i64, i64, i64"), ("gemv", "i32, i32, i64, i64"))
}
# Complex scalars that BLAS takes by address.
_BLAS_SCALARS = {
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


# A step that takes longer releases the interpreter lock. To release it and take it back costs 0.04
# microseconds, and up to 5 milliseconds if another thread took it meanwhile.
_GIL_RELEASE_SECONDS = 1e-4

# A step with more lines is several functions, since LLVM's time grows faster than a function.
_MAX_FUNCTION_LINES = 200

_GIL_FUNCTIONS = "declare ptr @PyEval_SaveThread()\ndeclare void @PyEval_RestoreThread(ptr)"


class _ModuleWriter:
    """Writer of the functions of a module: kernels, and the steps that call them in order."""

    def __init__(self, plan: Plan, profiled: bool, instrumentation: Instrumentation | None) -> None:
        self.plan, self.profiled, self.instrumentation = plan, profiled, instrumentation
        self.slots: dict[tuple[str, int], int] = {("arena", 0): 0}
        self.kernel_texts: list[str] = []
        self.step_texts: list[str] = []
        self.steps: list[str | Node] = []
        self.names: dict[int, str] = {}
        self.buffers: dict[int, list[Buffer]] = {}
        self.releases_gil = False
        self._functions: dict[tuple[str, ...], str] = {}
        self._function_count = 0
        self._lines: list[str] = []
        self._used_slots: set[int] = set()
        self._value_count = 0
        self._seconds = 0.0  # estimate for the step that is being written

    def define(self, instruction: str) -> str:
        """Append an instruction and return the name of its value."""
        self._value_count += 1
        self._lines.append(f"  %d{self._value_count} = {instruction}")
        return f"%d{self._value_count}"

    def slot(self, buffer: Buffer) -> int:
        """Return the slot of a buffer in the table of addresses."""
        key = ("arena", 0) if buffer.kind == "arena" else (buffer.kind, buffer.index)
        return self.slots.setdefault(key, len(self.slots))

    def pointer(self, buffer: Buffer, start: int = 0) -> str:
        """Return the address of a buffer, or of the byte ``start`` in it."""
        slot = self.slot(buffer)
        self._used_slots.add(slot)
        offset = buffer.offset + start if buffer.kind == "arena" else start
        if not offset and not (buffer.kind == "arena" and self.plan.is_symbolic):
            return f"%p{slot}"
        by = self.size_constant(offset)
        return self.define(f"getelementptr inbounds i8, ptr %p{slot}, i64 {by}")

    def size_constant(self, number: int) -> str:
        """Format a number that depends on buffer sizes; marked for the template if symbolic."""
        return mark_derived(number) if self.plan.is_symbolic else str(number)

    def call(self, kernel: Kernel, function: KernelFunction) -> None:
        """Append a call of a kernel's function, which equal kernels share."""
        if len(self._lines) >= _MAX_FUNCTION_LINES:
            self._outline_lines()
        text = function.function_text()
        name = self._functions.get(text)
        # Kernels that are equal at this size may differ at others, see ``templates``.
        if name is None or self.plan.is_symbolic:
            name = self._functions[text] = f"k{self._function_count}"
            self._function_count += 1
            if self.instrumentation:
                text = self.instrumentation.instrument(*text)
            parameters, body, *blocks = text
            head = f"define internal void @{name}({parameters}) #0"
            texts = [f"{head} {{\n{body}\n}}", *blocks]
            self.kernel_texts += [each.replace("@self.", f"@{name}.") for each in texts]
        self.names[kernel.position] = name
        self.buffers[kernel.position] = function.buffers
        self._seconds += estimated_seconds(kernel)
        pointers = list(zip(function.buffers, function.starts, strict=True))
        arguments = [f"ptr {self.pointer(*one)}" for one in pointers]
        if self.instrumentation:
            arguments += self.instrumentation.arguments(self.plan, pointers, kernel.position)
        self.append_timed(f"  call void @{name}({', '.join(arguments)})", kernel.position)

    def append_timed(self, line: str, counter: int) -> None:
        """Append a line, timed by a counter if the program is profiled."""
        start = self.define("call i64 @odyssey_now()") if self.profiled else ""
        self._lines.append(line)
        if self.profiled:
            self._lines.append(f"  call void @odyssey_add(i64 {counter}, i64 {start})")

    def check_truth(self, node: Node) -> None:
        """Append a return with CHECK_FAILED unless a truth value holds."""
        allocation = self.plan.allocations[node.id]
        truth = self.define(f"load i8, ptr {self.pointer(allocation.buffer)}")
        self._continue_if(self.define(f"icmp ne i8 {truth}, 0"))

    def _continue_if(self, condition: str) -> None:
        after = f"after{self._value_count}"
        self._lines += [f"  br i1 {condition}, label %{after}, label %refused", f"{after}:"]

    def zero_buffer(self, node: Node) -> None:
        """Append a memset of a node's buffer to 0."""
        allocation = self.plan.allocations[node.id]
        at = self.pointer(allocation.buffer)
        size = self.size_constant(allocation.buffer.bytes)
        line = f"  call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {size}, i1 false)"
        self.append_timed(line, len(self.plan.fused.kernels))

    def copy_buffer(self, to: Buffer, source: Buffer) -> None:
        """Append a copy of a buffer into another."""
        a, b = self.pointer(to), self.pointer(source)
        size = self.size_constant(to.bytes)
        line = f"  call void @llvm.memmove.p0.p0.i64(ptr {a}, ptr {b}, i64 {size}, i1 false)"
        self.append_timed(line, len(self.plan.fused.kernels) + 1)

    def end_step(self) -> None:
        """Close the function of a step, and begin the next one."""
        name = f"segment{sum(isinstance(step, str) for step in self.steps)}"
        self.steps.append(name)
        plan = self.plan
        # At symbolic sizes each call decides whether it takes long.
        releases_gil = plan.is_symbolic or self._seconds >= _GIL_RELEASE_SECONDS
        releases_gil = releases_gil and not (self.profiled or plan.holds_gil)
        self.releases_gil |= releases_gil
        linkage, suffix = ("internal", ".free") if releases_gil else ("", "")
        self._end_function(f"{linkage} i64 @{name}{suffix}(ptr %table)")
        if releases_gil:
            nanoseconds = self.size_constant(int(self._seconds * 1e9)) if plan.is_symbolic else None
            self.step_texts += _gil_releasing_function(name, nanoseconds)
        self._seconds = 0.0

    def _outline_lines(self) -> None:
        """Move the lines so far into a function of their own, which the step calls."""
        name = f"part{len(self.step_texts)}"
        self._end_function(f"internal i64 @{name}(ptr %table) noinline")
        result = self.define(f"call i64 @{name}(ptr %table)")
        self._continue_if(self.define(f"icmp eq i64 {result}, {RAN}"))

    def _end_function(self, head: str) -> None:
        lines = [f"define {head} {{"]
        for slot in sorted(self._used_slots):
            lines += [
                f"  %s{slot} = getelementptr i64, ptr %table, i64 {slot}",
                f"  %p{slot} = load ptr, ptr %s{slot}",
            ]
        tail = [f"  ret i64 {RAN}", "refused:", f"  ret i64 {CHECK_FAILED}", "}"]
        self.step_texts.append("\n".join([*lines, *self._lines, *tail]))
        self._lines, self._used_slots = [], set()


def generate_code(
    plan: Plan,
    inputs: int,
    blas: Mapping[str, int],
    separate_fallible: bool,
    clocks: bool = False,
    instrumentation: Instrumentation | None = None,
) -> Module:
    """Generate the LLVM module of a plan.

    Args:
        plan: Plan of the program.
        inputs: Number of arguments that are arrays.
        blas: Names of the BLAS functions that can be called.
        separate_fallible: Whether to separate the steps that can fail from the last one.
        clocks: Whether to profile kernels, see ``profiling_functions``.
        instrumentation: Rewriter of kernel functions, if any.
    """
    writer = _ModuleWriter(plan, clocks, instrumentation)
    instrumented = instrumentation is not None
    kernels = plan.fused.kernels
    for kind, index in _argument_buffers(plan, inputs):
        writer.slots.setdefault((kind, index), len(writer.slots))
    if clocks:
        writer.append_timed("  call void @odyssey_begin()", len(kernels) + 2)
    for node in plan.fused.order:
        if node.kind == "join" and not is_fully_covered(node) and node.id in plan.allocations:
            writer.zero_buffer(node)
    last_fallible = max((k.position for k in kernels if k.checks or k.kind == "call"), default=-1)
    if separate_fallible and last_fallible < 0:
        writer.end_step()
    for kernel in kernels:
        if kernel.kind == "call":
            writer.end_step()
            writer.steps.append(kernel.nodes[0])
            for node in kernel.nodes[0].inputs:
                writer.slot(plan.allocation(node).buffer)
            continue
        if any(n.size for n in kernel.nodes) or kernel.kind == "product":
            writer.call(kernel, _kernel_function(plan, kernel, blas, instrumented))
        for node in kernel.checks:
            writer.check_truth(node)
        if separate_fallible and kernel.position == last_fallible:
            writer.end_step()
    for state, node in plan.state_copies:
        allocation = plan.allocation(node)
        writer.copy_buffer(_state_buffer(plan, state), allocation.buffer)
    writer.end_step()
    functions = "\n".join([*writer.kernel_texts, *writer.step_texts])
    texts = [declarations(functions), _external_declarations(functions)]
    texts += [*([_GIL_FUNCTIONS] if writer.releases_gil else ()), functions]
    if clocks:
        texts.append(profiling_functions(len(kernels)))
    if instrumentation is not None:
        texts.append(instrumentation.runtime)
    direct = len(writer.steps) <= 2 and not (clocks or instrumented)
    # A direct call must hold the interpreter lock from its guards to its end.
    direct = direct and not (writer.releases_gil or plan.is_symbolic)
    if "!llvm.loop" in functions:
        texts.append(LOOP_METADATA)
    texts.append('attributes #0 = { noinline nounwind "prefer-vector-width"="512" }')
    return Module(
        "\n".join(texts),
        writer.slots,
        writer.steps,
        writer.names,
        writer.buffers,
        direct,
        writer.releases_gil,
    )


def _kernel_function(
    plan: Plan, kernel: Kernel, blas: Mapping[str, int], instrumented: bool
) -> KernelFunction:
    """Generate the function of a kernel."""
    # The number of blocks would depend on a symbolic size.
    single_threaded = instrumented or (plan.is_symbolic and has_symbolic_sizes(kernel))
    if kernel.kind == "product":
        has_blas = f"ody_{BLAS_PREFIXES[kernel.nodes[0].type]}gemm" in blas
        return Matmul(plan, kernel, has_blas, single_threaded)
    if kernel.kind == "lapack":
        return LapackCall(plan, kernel, single_threaded)
    if kernel.kind == "scan":
        return Scan(plan, kernel, single_threaded)
    return LoopNest(plan, kernel, instrumented)


def _gil_releasing_function(name: str, nanoseconds: str | None) -> list[str]:
    """Return a step that releases the interpreter lock.

    Args:
        name: Name of the step.
        nanoseconds: Estimate that depends on symbolic sizes; below a limit the step keeps the lock.
            None for a step that always releases it.
    """
    branch = [
        f"  %long = icmp sge i64 {nanoseconds}, {int(_GIL_RELEASE_SECONDS * 1e9)}",
        "  br i1 %long, label %freed, label %held",
        "held:",
        f"  %here = call i64 @{name}.free(ptr %table)",
        "  ret i64 %here",
        "freed:",
    ]
    return [
        f"define i64 @{name}(ptr %table) {{",
        *(branch if nanoseconds else ()),
        "  %thread = call ptr @PyEval_SaveThread()",
        f"  %answer = call i64 @{name}.free(ptr %table)",
        "  call void @PyEval_RestoreThread(ptr %thread)",
        "  ret i64 %answer",
        "}",
    ]


def _external_declarations(text: str) -> str:
    """Return the declarations of BLAS, LAPACK and thread pool functions that a text calls."""
    functions = {**_BLAS, **LAPACK_DECLARATIONS}
    lines = [line for name, line in functions.items() if f"call void @{name}(" in text]
    lines += [line for name, line in _BLAS_SCALARS.items() if f"ptr {name}," in text]
    if "@ody_own" in text:
        lines += _POOL
    return "\n".join(lines)


def _argument_buffers(plan: Plan, inputs: int) -> list[tuple[str, int]]:
    """Return the buffers whose addresses the entry writes into the table."""
    outputs = plan.written_outputs()
    return [*(("input", k) for k in range(inputs)), *(("output", k) for k in outputs)]


def _state_buffer(plan: Plan, state: int) -> Buffer:
    for allocation in plan.allocations.values():
        if allocation.buffer.kind == "state" and allocation.buffer.index == state:
            return allocation.buffer
    raise AssertionError(f"state {state} has no buffer")
