"""Execution of a CUDA program: memory, addresses, and the calls of a run.

``DeviceExecutable`` stands where ``runtime.executable.Executable`` stands for the CPU: a program
that is bound to the states of its graph. Host calls split it into segments, lists of calls of C.
``device_call`` makes those of the last segment together with the commit of all side effects. Work
on a device is asynchronous: a run waits only for the bytes of checks, which it reads before a host
call and at the end.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from itertools import repeat
from operator import attrgetter, setitem
from threading import RLock
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from odyssey.compiler.cuda.compile_kernels import address_in
from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.cuda.launcher import Call, Cell, Launcher
from odyssey.compiler.cuda.lower_for_device import DeviceProgram, GemmStep, lower_for_device
from odyssey.compiler.cuda.program import (
    BufferAddress,
    CheckStep,
    CopyStep,
    CudaProgram,
    HostCallStep,
    Launch,
    ProductStep,
    Step,
    ZeroStep,
)
from odyssey.compiler.device_runtime.host_calls import DeviceHostCall
from odyssey.compiler.device_runtime.host_values import split_host_values
from odyssey.compiler.device_runtime.segments import MOST_COPIED, CellTable, GraphRecorder, Segment
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.types import dtype_of_code
from odyssey.compiler.machine.state_locks import state_locks
from odyssey.compiler.native_dispatch.entry import CHECK_FAILED, GUARD_FAILED, RAN
from odyssey.compiler.native_dispatch.scalar_inputs import ScalarInputs
from odyssey.compiler.pipeline import output_source, output_specs
from odyssey.compiler.runtime.binding import planned_strides
from odyssey.compiler.runtime.buffer_leases import (
    assert_exclusive,
    ensure_exclusive,
    needs_exclusive_array,
)
from odyssey.compiler.runtime.executable import Executable, held_buffers
from odyssey.compiler.schedule.buffer_assignment import ALIGNMENT
from odyssey.compiler.state_layout import BindingError, check_state_layout
from odyssey.compiler.symbolic.expressions import Arithmetic
from odyssey.compiler.ways.alternatives import Choice
from odyssey.compiler.ways.plans import NO_PLAN
from odyssey.compiler.ways.plans import Plan as WaysPlan
from odyssey.devices.commit import Plan, commit, run_all
from odyssey.devices.copy_on_write import is_exclusive, lease_of
from odyssey.devices.device import Device, device_of
from odyssey.devices.ownership import (
    has_overlapping_writes,
    is_writable,
    memory_span,
)
from odyssey.graph.graph import Graph, State
from odyssey.graph.subgraphs import LoopRow
from odyssey.spec import Spec
from odyssey.table.value import LEAF, is_trainable

__all__ = ["DeviceExecutable", "memory_requirements"]

# Runs by separate calls, before a graph is recorded: modules are loaded at their first launch.
_WARM_UPS = 1


class DeviceExecutable:
    """A CUDA program that is bound to the states of its graph.

    Args:
        graph: The graph.
        device: The device that its states and arguments lie on.
        budget: Most bytes that the program should hold, by rematerialization.
        ways: Ways of works that are not computed as guessed.

    Attributes:
        device: The device.
        inputs: Specs of its inputs: arguments, then accumulated gradients.
        check_bytes: Where a run copies the bytes of its checks to.
        host_calls: Host calls by number of their node, in order.
        host_results: During a run, the results of host calls by number of their node.
        Others are those of ``Executable``.

    Raises:
        UnsupportedKernelError: the graph has no program for the device; the message says why.
        BindingError: a state is not as the program needs it.
        DeviceMemoryError: the device has too little memory.
        DeviceError: the device refuses the program.
    """

    shares = False
    has_native_entry = False
    releases_gil = True
    counters = None
    contract_broken = False

    def __init__(
        self,
        graph: Graph,
        device: Device,
        budget: int | None = None,
        ways: WaysPlan = NO_PLAN,
    ) -> None:
        backend = device.backend
        assert backend is not None
        self.graph, self.device, self.budget, self.ways = graph, device, budget, ways
        self.threads = 0
        self.measured: dict[Any, Any] = {}
        self._backend = backend
        self._launcher: Launcher = backend.launcher(device.index)
        begin = perf_counter()
        on_host = [k for k, s in enumerate(graph.states) if _lies_on_host(s)]
        split = split_host_values(graph, on_host)
        lowered = lower_for_device(split.device, budget, ways, self._launcher.shape)
        self.seconds = {"lower": perf_counter() - begin}
        self.program, low = lowered.program, lowered.low
        self.plan, self.choices = self.program.plan, low.choices
        how = f"calls Python on {device} between launches"
        self.calls = {row: f"{why}; {how}" for row, why in low.host_calls.items()}
        self.sources = [output_source(k, node) for k, node in enumerate(low.outputs)]
        gradients = [s.spec for s in graph.states if s.field == "grad" and s.id >= 0]
        self.inputs = [*[spec for _, spec in graph.inputs], *gradients]
        self._argument_count = len(graph.inputs)
        arithmetic = graph.numbers or Arithmetic((), ())
        self.numbers = ScalarInputs(arithmetic, low.scalar_slots, low.host_scalars)
        # Positions among the states of the device's part, with the states.
        self._states = [(k, s) for k, s in enumerate(split.device.states) if s.field == "data"]
        self._host_states = [graph.states[k] for k in on_host]
        self._updated, self._returned = split.updated, split.returned
        self._sent = [spec for _, spec in split.sent]
        self._host = None if split.host is None else Executable(split.host)
        self.seconds |= self._launcher.load(self.program)
        self.loaded = SimpleNamespace(seconds={})
        self.module = SimpleNamespace(names=_kernel_names(self.program), text="")
        self.host_calls: dict[int, DeviceHostCall] = {}
        self.host_results: dict[int, Any] = {}
        self._run_arrays: dict[tuple[str, int], Any] = {}
        self.outputs = output_specs(self.plan)
        self._written_outputs = self.plan.written_outputs()
        self._written_by_host = [] if self._host is None else self._host.plan.written_outputs()
        self._prepare_memory()
        self._prepare_calls(lowered)
        self.locks: tuple[RLock, ...] = ()
        self._starts: list[int] = []
        self.gradients_to_clear: list[Any] = []
        self.bind()

    # -------------------------------------------------------------- memory

    def _prepare_memory(self) -> None:
        """Allocate the arena, scratch memory and constants; lay out what the host sends."""
        backend, index, plan = self._backend, self.device.index, self.plan
        self._region_arrays: dict[tuple[str, int], Any] = {}
        for name, size in (("arena", int(plan.arena)), ("scratch", self.program.scratch)):
            if size:
                self._region_arrays[name, 0] = backend.allocate(size + ALIGNMENT, index)
        for node in plan.fused.order:
            if node.kind == "leaf" and node.detail[0] == "constant":
                key = "constant", node.detail[1]
                self._region_arrays[key] = self._as_device_array(node.payload)
        # What the host sends at each run: its values, then scalar inputs.
        offsets, end = [], 0
        for spec in self._sent:
            offsets.append(end)
            end += -(-spec.size * spec.dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self._given_offset = end
        cells = self.numbers.cells
        self._staging = np.zeros(end + cells.nbytes, np.uint8)
        self.numbers.cells = self._staging[end:].view(cells.dtype)
        self._sends = bool(self._sent or self.numbers.slots)
        if self._sends:
            self._region_arrays["staging", 0] = backend.allocate(self._staging.size, index)
        self._sent_offsets = offsets
        self._sent_arrays = [
            np.ndarray(spec.shape, spec.dtype, self._staging, offset)
            for spec, offset in zip(self._sent, offsets, strict=True)
        ]
        self._new_values = [np.zeros(s.spec.shape, s.spec.dtype) for s in self._updated]
        self._downloads = [np.zeros(s.spec.shape, s.spec.dtype) for s in self._returned]

    def _as_device_array(self, array: Any) -> Any:
        """Return a contiguous copy of a constant on the device."""
        backend, index = self._backend, self.device.index
        if type(array) is backend.array_type:
            return backend.call("compile", index, backend.namespace.ascontiguousarray, array)
        host = np.ascontiguousarray(array)
        return backend.call("compile", index, backend.to_device, host, index)

    def _prepare_calls(self, lowered: DeviceProgram) -> None:
        """Build the calls of all steps, and the cells that they read addresses from."""
        launcher, plan, cells = self._launcher, self.plan, CellTable()
        self._cells = cells
        self._segments = [Segment([("input", k) for k in range(len(self.inputs))])]
        segment, checks = self._segments[0], 0
        for step in self.program.steps:
            if isinstance(step, CheckStep):
                segment.last_check, checks = checks, checks + 1
            elif isinstance(step, HostCallStep):
                segment.touched = cells.touched
                self.host_calls[step.node.id] = DeviceHostCall(self, step.node, self._compile_part)
                results = [("call", user.id) for user in plan.fused.users.get(step.node.id, [])]
                segment, cells.touched = Segment(results), set()
                self._segments.append(segment)
            else:
                for one in self._calls_of(step, lowered):
                    segment.body.add(one, _name_of(step))
        segment.touched = cells.touched
        self.check_bytes = np.ones(max(checks, 1), np.uint8)
        self._prepare_transfers()
        self._runs = 0
        self._recorder = GraphRecorder(launcher, cells, self._segments, self._moving_regions())
        cells.freeze()
        for key, array in self._region_arrays.items():
            start = self._backend.pointer(array) if array.size else 0
            if key[0] in ("arena", "scratch"):
                start += -start % ALIGNMENT
            cells.set_address(*key, start)
        self.step_count = len(self._segments) + len(self.host_calls)

    def _prepare_transfers(self) -> None:
        """Build the copies between the memory of the host and of the device."""
        launcher = self._launcher
        if self._sends:
            start = self._staging.__array_interface__["data"][0]
            target = self._cells.cell("staging", 0, 0)
            upload = launcher.upload_call(target, start, self._staging.size)
            self._segments[0].before.add(upload, "upload of the host's values")
        address = self.check_bytes.__array_interface__["data"][0]
        source = self._cells.cell("scratch", 0, 0)
        for segment in self._segments:
            if segment.last_check is not None:
                download = launcher.download_call(address, source, segment.last_check + 1)
                segment.after.add(download, "download of checks")
        first = len(self.graph.outputs)
        for k, array in enumerate(self._downloads, first):
            node = self.plan.outputs[k]
            assert node is not None
            _, value = self.operand_place(node)
            target = array.__array_interface__["data"][0]
            one = launcher.download_call(target, value, array.nbytes)
            self._segments[-1].after.add(one, "download of a state")
        self._wait_call = launcher.download_call(address, Cell(), 0)

    def _moving_regions(self) -> dict[tuple[str, int], int]:
        """Return the sizes, in bytes, of the regions whose address changes from run to run."""
        found = {("input", k): s.size * s.dtype.itemsize for k, s in enumerate(self.inputs)}
        written = zip(self.plan.written_outputs(), self.outputs, strict=True)
        found |= {("output", k): math.prod(shape) * dtype.itemsize for k, (shape, dtype) in written}
        buffers = [home.buffer for home in self.plan.allocations.values()]
        return found | {("call", b.index): int(b.bytes) for b in buffers if b.kind == "call"}

    def _compile_part(self, graph: Graph) -> DeviceExecutable:
        """Compile a subgraph of control flow."""
        part = copy(graph)
        part.tf32 = self.graph.tf32
        return DeviceExecutable(part, self.device, None, self.ways)

    def _location(self, address: BufferAddress) -> tuple[str, int, int]:
        """Return the region of an address and the offset in it, as the table of cells has them.

        Inputs of the program are, in order, the arguments, the values that the host sends, which
        lie in staging memory, and accumulated gradients.
        """
        kind, index, offset = address
        if kind == "given":
            return "staging", 0, self._given_offset + 8 * index + offset
        sent = index - self._argument_count
        if kind == "input" and 0 <= sent < len(self._sent):
            return "staging", 0, self._sent_offsets[sent] + offset
        if kind == "input" and sent >= 0:  # an accumulated gradient
            index -= len(self._sent)
        return kind, index, offset

    def _address(self, address: BufferAddress) -> Cell:
        return self._cells.cell(*self._location(address))

    def _calls_of(self, step: Step | GemmStep, lowered: DeviceProgram) -> list[Call]:
        """Return the calls of one step."""
        launcher = self._launcher
        if isinstance(step, Launch):
            return [launcher.launch_call(step, [self._address(a) for a in step.arguments])]
        if isinstance(step, ProductStep):
            parts = lowered.steps_of_product(step.node)
            return [call for part in parts for call in self._calls_of(part, lowered)]
        if isinstance(step, GemmStep):
            return [launcher.product_call(step.call, *map(self._address, step[1:]))]
        if isinstance(step, CopyStep):
            target, source = self._address(step.target), self._address(step.source)
            return [launcher.copy_call(target, source, step.bytes)] if step.bytes else []
        if isinstance(step, ZeroStep):
            return [launcher.zero_call(self._address(step.target), step.bytes)]
        return []

    def allocate_outputs(self) -> list[Any]:
        """Return new arrays for the results.

        Raises:
            DeviceMemoryError: the device has too little memory; nothing was executed.
        """
        backend, index = self._backend, self.device.index
        make = backend.namespace.empty
        return [backend.call("compile", index, make, shape, dtype) for shape, dtype in self.outputs]

    # -------------------------------------------------------------- states

    def bind(self) -> None:
        """Bind to the arrays that the states have now.

        Raises:
            BindingError: a state is not what the program was compiled for.
        """
        cleared = self.graph.cleared
        spans: list[tuple[int, int, bool]] = []
        held: list[Any] = []
        for k, state in self._states:
            ensure_exclusive(state)
            array = state.variable._array
            if device_of(array) != self.device:
                raise BindingError(f"{state.label} lies on {device_of(array)}")
            check_state_layout(state, array, planned_strides(self.plan, k), type(array))
            written = state.update is not None
            held.append((state, lease_of(array)))
            spans.append((*memory_span(array), written))
        if has_overlapping_writes(spans):
            raise BindingError("two states share memory")
        for state in self._host_states:
            ensure_exclusive(state)
            check_state_layout(state, state.variable._array, None)
            held.append((state, lease_of(state.variable._array)))
        if self._host is not None:
            self._host.bind()
        involved = [*(s.variable for s in self.graph.states), *cleared]
        had, self.locks = self.locks, state_locks(involved, self.locks)
        if had and not {*had}.issuperset(self.locks):  # the next run takes them all
            raise BindingError("states lie in memory that other programs may be writing to")
        self.gradients_to_clear = [
            v for v in cleared if v._info is not None and v._info.grad is not None
        ]
        clear = [v for v in cleared if v._info is not None and v._info.grad is None]
        self._without_gradient = [*self.graph.missing_gradients, *clear]
        self._held: list[tuple[State, Any]] = held
        self._trained = [
            (s.variable, s.variable._info, s.variable._info.shared if s.variable._info else None)
            for s in self.graph.states
            if is_trainable(s.variable)
        ]
        written_spans = sorted(span[:2] for span in spans if span[2] and span[1] > span[0])
        self._written = [start for start, _ in written_spans], [end for _, end in written_spans]
        starts = [start for start, _, _ in spans]
        if starts != self._starts:
            self._recorder.forget()
        self._starts = starts
        for (k, _), start in zip(self._states, starts, strict=True):
            self._cells.set_address("state", k, start)
        self.words = np.zeros(3 * len(held), np.int64)  # only counted, by ``explain``

    def _is_written(self, start: int, end: int) -> bool:
        """Return whether memory overlaps that of a state that is written."""
        starts, ends = self._written  # sorted; no two of them overlap
        k = bisect_left(starts, end) - 1
        return k >= 0 and start < end and ends[k] > start

    def invalidate(self) -> None:
        """Let no call pass until the program is bound again."""
        self._held = [(state, None) for state, _ in self._held]

    def exclusivity_checks(self) -> list[tuple[Any, ...]]:
        """Return calls that raise BindingError if a written state's array has another holder."""
        return [
            (assert_exclusive, s.variable, held)
            for s, held in self._held
            if needs_exclusive_array(s)
        ]

    def _is_bound(self) -> bool:
        """Return whether the states have their arrays, exclusively where that is needed."""
        return (
            all(
                held is not None
                and state.variable._array is held.array
                and is_writable(held.array)
                and (not needs_exclusive_array(state) or is_exclusive(held))
                for state, held in self._held
            )
            and all(
                v._recording is LEAF and v._info is info and (info is None or info.shared is shared)
                for v, info, shared in self._trained
            )
            and all(v._info is None or v._info.grad is None for v in self._without_gradient)
        )

    # -------------------------------------------------------------- running

    def canonical_args(
        self, arrays: Sequence[Any], wanted: Sequence[Spec] | None = None
    ) -> list[Any]:
        """Return arguments as a run takes them: C-contiguous arrays of the device.

        Raises:
            BindingError: an argument has another shape, dtype or device, or aliases a state that is
                written.
        """
        backend, index = self._backend, self.device.index
        kind: Any = backend.array_type
        found = []
        for array, spec in zip(arrays, wanted or self.inputs, strict=False):
            given = getattr(array, "dtype", None)
            if given != spec.dtype or array.shape != spec.shape:
                raise BindingError(f"{type(array).__name__} of {given} was passed for {spec}")
            if type(array) is np.ndarray:
                array = backend.call("compile", index, backend.to_device, array, index)
            if type(array) is not kind or backend.device_index(array) != index:
                raise BindingError(f"an argument lies on {device_of(array)}")
            if self._is_written(*memory_span(array)):
                raise BindingError("an argument aliases a state that is written")
            if not array.flags.c_contiguous:
                copy: Callable[..., Any] = backend.namespace.ascontiguousarray
                array = backend.call("compile", index, copy, array)
            found.append(array)
        return found

    def prepare_run(self, arrays: Sequence[Any], numbers: Sequence[Any]) -> int:
        """Check states and arguments, and compute what the host sends; nothing is launched.

        Args:
            arrays: Arguments, then accumulated gradients.
            numbers: Scalar inputs.
        """
        backend, index = self._backend, self.device.index
        kind: Any = backend.array_type
        if not self._is_bound() or len(arrays) != len(self.inputs):
            return GUARD_FAILED
        if self._recorder.has_graphs and not self._launcher.keeps_stream():
            self._recorder.forget()
        for k, (array, spec) in enumerate(zip(arrays, self.inputs, strict=True)):
            if (
                type(array) is not kind
                or array.dtype != spec.dtype
                or array.shape != spec.shape
                or not array.flags.c_contiguous
                or backend.device_index(array) != index
            ):
                return GUARD_FAILED
            start = self._place_array("input", k, array)
            if self._is_written(start, start + array.nbytes):
                return GUARD_FAILED
        if numbers and not self.numbers.store(numbers):
            return GUARD_FAILED
        return RAN if self._host is None else self._compute_host_values()

    def _compute_host_values(self) -> int:
        """Compute what the host sends, and the new values of its states."""
        host: Any = self._host
        outs = [*self._sent_arrays, *self._new_values]
        answer: int = host.start(*map(outs.__getitem__, self._written_by_host))
        if answer == RAN and host.step_count > 1:
            answer = host.run_middle_steps()
            answer = host.rest() if answer == RAN else answer
            for out, node in zip(outs, host.plan.outputs, strict=True):
                if node.kind == "result":
                    out[...] = host.host_results[node.id]
        return answer

    def place_outputs(self, outs: Sequence[Any]) -> None:
        """Let the next run write its results to these arrays."""
        for k, array in zip(self._written_outputs, outs, strict=True):
            self._place_array("output", k, array)

    def _place_array(self, kind: str, k: int, array: Any) -> int:
        """Set the array of an argument or a result for the next run; return its address."""
        start = self._backend.pointer(array) if array.size else 0
        self._recorder.set_address(kind, k, start)
        if self.host_calls:
            self._run_arrays[kind, k] = array
        return start

    def on_device(self) -> AbstractContextManager[Any]:
        """Return a block in which the device is the current one, for a run."""
        return self._backend.on(self.device.index)

    def begin_run(self) -> None:
        """Order the next calls behind the work that eager ops have queued on the device."""
        self._launcher.begin_run()
        self._runs += 1
        if self._recorder.can_record and self._runs > _WARM_UPS:
            self._recorder.record(self._backend, self.device.index)

    def run_middle_steps(self) -> int:
        """Run all segments but the last, and the host calls behind them.

        Returns:
            CHECK_FAILED if a check failed, else RAN.
        """
        for segment, called in zip(self._segments, self.host_calls.values(), strict=False):
            self._launch(segment)
            if segment.last_check is not None and not self.check_bytes[segment.last_check]:
                return CHECK_FAILED
            called.run(self)
        return RAN

    def last_launches(self, failed: list[tuple[Any, str]]) -> Plan:
        """Return what makes the calls of the last segment, as calls of C.

        Args:
            failed: It gets the status of a call that fails, with its name.
        """
        return self._launches(self._segments[-1], failed)

    def _launches(self, segment: Segment, failed: list[tuple[Any, str]]) -> Plan:
        """Return what makes the calls of a segment, as calls of C."""
        calls, names = self._recorder.calls_of(segment)
        if self._backend.waits:  # behind each call, under ODYSSEY_CUDA_SYNC=1
            calls = [each for one in calls for each in (one, self._wait_call)]
            names = [name for name in names for _ in range(2)]
        return self._launcher.run_calls(calls, names, failed)

    def _launch(self, segment: Segment) -> None:
        """Run a segment, without a commit."""
        failed: list[tuple[Any, str]] = []
        commit(self._launches(segment, failed))
        self.raise_failure(failed)

    def run_last_step(self) -> int:
        """Run the last segment, without a commit."""
        self._launch(self._segments[-1])
        return RAN if self.check_bytes[-1] else CHECK_FAILED

    def end_run(self) -> None:
        """Release the arrays of a run: arguments, and results that the caller has by now."""
        self._run_arrays, self.host_results = {}, {}

    # -------------------------------------------------------------- host calls

    def operand_place(self, node: Node) -> tuple[tuple[str, int], Cell]:
        """Return the region of a value that a host call reads, and the cell of its first byte."""
        buffer, view = self.plan.allocation(node)
        offset = int(view.offset) * dtype_of_code(node.type).itemsize
        kind, index, at = self._location(address_in(buffer).shifted(offset))
        return (kind, index), self._cells.cell(kind, index, at)

    def region_array(self, region: tuple[str, int]) -> Any:
        """Return the array of the device that holds a region in this run."""
        kind, index = region
        found = self._recorder.arrays.get(region)
        if found is None:
            found = self._region_arrays.get(region)
        if found is None and kind == "state":
            return next(s.variable._array for k, s in self._states if k == index)
        return self._run_arrays[region] if found is None else found

    def keep_result(self, id: int, array: Any) -> None:
        """Keep a result of a host call until the run ends."""
        self.host_results[id] = array
        self._recorder.set_address("call", id, self._backend.pointer(array) if array.size else 0)

    def raise_failure(self, failed: Sequence[tuple[Any, str]]) -> None:
        """Raise DeviceError if a call of a run has failed."""
        for status, name in failed:
            self._launcher.check_statuses([status], [name])

    def host_updates(self) -> Plan:
        """Return the calls that set the states of the host to their new values.

        The calls look up the arrays when they are made: a reference from here would count as a
        holder of the array (copy on write).
        """
        states = [*self._updated, *self._returned]
        arrays = map(attrgetter("_array"), [state.variable for state in states])
        values = [*self._new_values, *self._downloads]
        return [(run_all, map(setitem, arrays, repeat(...), values))] if states else []

    def describe_launches(self) -> list[str]:
        """Return lines for ``explain`` on what the device is given in a run."""
        counts: dict[str, int] = {}
        for segment in self._segments:
            for name in segment.body.names:
                kind = name.partition(" ")[0]
                kind = {"kernel": "launches of kernels", "product": "products"}.get(kind, "copies")
                counts[kind] = counts.get(kind, 0) + 1
        launches = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        if launches:
            launches = f"{launches}, {self._recorder.describe_launches()}"
        lines = [f"on {self.device}: {launches or 'host calls alone'}"]
        last = self._segments[-1].last_check
        read = [s.last_check for s in self._segments[:-1] if s.last_check is not None]
        if read:
            lines.append(f"  waits for {read[-1] + 1} checks before host calls")
        if last is not None:
            lines.append(f"  waits for {last - (read[-1] if read else -1)} checks at the end")
        if self._returned:
            names = ", ".join(state.label for state in self._returned)
            lines.append(f"  waits for new values of states that lie on the CPU: {names}")
        for one in self.host_calls.values():
            lines += one.describe_waits()
        return [
            *lines,
            f"  {self.program.scratch:,} bytes of scratch memory",
            f"  from the CPU at each run: {len(self._sent)} values of {len(self._updated)} written "
            f"states, {len(self.numbers.slots)} scalar inputs",
        ]

    def works(self) -> list[Choice]:
        """Return the works of the program and of its subgraphs, each once."""
        found = {choice.work: choice for choice in self.choices.listing()}
        for one in self.host_calls.values():
            for part in one.parts.values():
                for choice in part.works():
                    found.setdefault(choice.work, choice)
        return list(found.values())


def _name_of(step: Step) -> str:
    """Return the name of a step for messages."""
    if isinstance(step, Launch):
        return f"kernel {step.kernel}"
    if isinstance(step, ProductStep):
        return f"product {step.node.op}"
    return "copy"


def _kernel_names(program: CudaProgram) -> dict[int, str]:
    """Return by position of the plan's kernel the names of the CUDA kernels for it."""
    names: dict[int, str] = {}
    for step in program.steps:
        if isinstance(step, Launch):
            short = step.kernel.partition("_")[0]
            before = names.get(step.position)
            names[step.position] = short if before is None else f"{before},{short}"
    return names


def memory_requirements(
    device: Device, graph: Graph, budget: int | None, ways: WaysPlan
) -> tuple[int, list[tuple[int, str]]]:
    """Return the bytes that a program holds on a device, and a description of the largest buffers.

    0 bytes if there is no program.
    """
    backend = device.backend
    assert backend is not None
    on_host = [k for k, s in enumerate(graph.states) if _lies_on_host(s)]
    launcher = backend.launcher(device.index)
    try:
        part = split_host_values(graph, on_host).device
        program = lower_for_device(part, budget, ways, launcher.shape)
    except UnsupportedKernelError:
        return 0, []
    total, buffers = held_buffers(program.program.plan)
    scratch = program.program.scratch
    buffers.append((scratch, f"{scratch:,} bytes of scratch memory"))
    total += scratch
    moving = [(spec.shape, spec.dtype) for _, spec in graph.inputs]
    moving += output_specs(program.program.plan)
    copied = sum(math.prod(shape) * dtype.itemsize for shape, dtype in moving)
    if launcher.has_graphs and copied <= MOST_COPIED:
        buffers.append((copied, f"{copied:,} bytes of arguments and results of a CUDA graph"))
        total += copied
    rows = [s.node.payload.row for s in program.program.steps if isinstance(s, HostCallStep)]
    for row in rows:
        for inside in row.loop.subgraphs if isinstance(row, LoopRow) else ():
            held, _ = memory_requirements(device, inside, None, ways)
            total += held
            buffers.append((held, f"{held:,} bytes in a {row.name}"))
    return total, sorted(buffers, reverse=True)


def _lies_on_host(state: State) -> bool:
    return state.field == "data" and type(state.variable._array) is np.ndarray
