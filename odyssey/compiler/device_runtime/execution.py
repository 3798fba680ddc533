"""Execution of a CUDA program: memory, addresses, and the calls of a run.

``DeviceExecutable`` stands where ``runtime.executable.Executable`` stands for the CPU: a program
that is bound to the states of its graph. A run is a list of calls of C, which ``device_call`` makes
together with the commit of all side effects. Work on a device is asynchronous: a run waits only if
the program has a check, whose byte it reads at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import starmap
from operator import call
from threading import RLock
from time import perf_counter
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.cuda.cublas import GemmCall
from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.cuda.launcher import Call, Cell, Launcher
from odyssey.compiler.cuda.lower_for_device import lower_for_device
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
from odyssey.compiler.device_runtime.host_values import split_host_values
from odyssey.compiler.machine.state_locks import state_locks
from odyssey.compiler.native_dispatch.entry import GUARD_FAILED, RAN
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
from odyssey.devices.copy_on_write import is_exclusive, lease_of
from odyssey.devices.device import Device, device_of
from odyssey.devices.ownership import (
    has_overlapping_writes,
    memory_span,
    overlaps,
)
from odyssey.errors import DeviceMemoryError
from odyssey.graph.graph import Graph, State
from odyssey.spec import Array, Spec
from odyssey.table.value import LEAF, is_trainable

__all__ = ["DeviceExecutable", "memory_requirements"]

# Runs by separate calls, before a graph is recorded: modules are loaded at their first launch.
_WARM_UPS = 1
# A program whose states get other arrays again and again is launched kernel by kernel.
_MOST_RECORDINGS = 4
# A program with more bytes of arguments and results is launched kernel by kernel: a graph reads
# copies of them.
_MOST_COPIED = 16 << 20


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
        Others are those of ``Executable``.

    Raises:
        UnsupportedKernelError: the graph has no program for the device; the message says why.
        BindingError: a state is not as the program needs it.
        DeviceMemoryError: the device has too little memory.
        DeviceError: the device refuses the program.
    """

    shares = False
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
        self.plan, self.choices, self.calls = self.program.plan, low.choices, low.host_calls
        self._products, self._addends = lowered.products, lowered.addends
        self.sources = [output_source(k, node) for k, node in enumerate(low.outputs)]
        gradients = [s.spec for s in graph.states if s.field == "grad" and s.id >= 0]
        self.inputs = [*[spec for _, spec in graph.inputs], *gradients]
        self._argument_count = len(graph.inputs)
        arithmetic = graph.numbers or Arithmetic((), ())
        self.numbers = ScalarInputs(arithmetic, low.scalar_slots, low.host_scalars)
        # Positions among the states of the device's part, with the states.
        self._states = [(k, s) for k, s in enumerate(split.device.states) if s.field == "data"]
        self._host_states = [graph.states[k] for k in on_host]
        self._updated = split.updated
        self._sent = [spec for _, spec in split.sent]
        self._host = None if split.host is None else Executable(split.host)
        self.seconds |= self._launcher.load(self.program)
        self.loaded = SimpleNamespace(seconds={})
        self.module = SimpleNamespace(names=_kernel_names(self.program), text="")
        self.host_calls: dict[int, Any] = {}
        self.outputs = output_specs(self.plan)
        self._prepare_memory()
        self._prepare_calls()
        self.locks: tuple[RLock, ...] = ()
        self._starts: list[int] = []
        self.host_results: dict[int, Array] = {}
        self.batched_results: dict[int, dict[Any, Any]] = {}
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

    def _as_device_array(self, array: Any) -> Any:
        """Return a contiguous copy of a constant on the device."""
        backend, index = self._backend, self.device.index
        if type(array) is backend.array_type:
            return backend.call("compile", index, backend.namespace.ascontiguousarray, array)
        host = np.ascontiguousarray(array)
        return backend.call("compile", index, backend.to_device, host, index)

    def _prepare_calls(self) -> None:
        """Build the calls of all steps, and the cells that they read addresses from."""
        self._cells = _CellTable()
        self._segments: list[_NamedCalls] = [_NamedCalls([], [])]
        checks = 0
        for step in self.program.steps:
            if isinstance(step, HostCallStep):
                raise UnsupportedKernelError(
                    f"{step.node.payload.row.name} has no kernel for CUDA devices"
                )
            checks += isinstance(step, CheckStep)
            for one in self._calls_of(step):
                self._segments[-1].add(one, _name_of(step))
        self.check_bytes = np.ones(max(checks, 1), np.uint8)
        address = self.check_bytes.__array_interface__["data"][0]
        # Calls that no graph holds: those that touch the host's memory, and copies of arguments and
        # results, which are elsewhere in each run.
        self._before, self._after = _NamedCalls([], []), _NamedCalls([], [])
        launcher = self._launcher
        if self._sends:
            start = self._staging.__array_interface__["data"][0]
            target = self._cells.cell("staging", 0, 0)
            upload = launcher.upload_call(target, start, self._staging.size)
            self._before.add(upload, "upload of the host's values")
        if checks:
            source = self._cells.cell("scratch", 0, 0)
            download = launcher.download_call(address, source, checks)
            self._after.add(download, "download of checks")
        self._checks = checks
        self._runs = self._recordings = 0
        self._graph: Call | None = None
        self._fixed: dict[tuple[str, int], int] = {}
        self._can_record = launcher.has_graphs and self._copied_bytes() <= _MOST_COPIED
        if self._can_record:
            self._prepare_copies()
        self._cells.freeze()
        for key, array in self._region_arrays.items():
            start = self._backend.pointer(array) if array.size else 0
            if key[0] in ("arena", "scratch"):
                start += -start % ALIGNMENT
            self._cells.set_address(*key, start)
        self.step_count = len(self._segments)

    def _copied_bytes(self) -> int:
        """Return the bytes of arguments and results, which a graph has at fixed places."""
        arrays = [(spec.shape, spec.dtype) for spec in self.inputs] + self.outputs
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in arrays)

    def _prepare_copies(self) -> None:
        """Build the copies between arguments and results of a run, and the places in a graph."""
        written = zip(self.plan.written_outputs(), self.outputs, strict=True)
        places: list[tuple[str, int, Any, Any]] = [
            *[("input", k, spec.shape, spec.dtype) for k, spec in enumerate(self.inputs)],
            *[("output", k, shape, dtype) for k, (shape, dtype) in written],
        ]
        self._copies = _NamedCalls([], []), _NamedCalls([], [])
        for kind, k, shape, dtype in places:
            size = math.prod(shape) * dtype.itemsize
            self._fixed[kind, k] = size
            fixed, given = self._cells.cell(kind, k, 0), self._cells.cell(f"{kind} of a run", k, 0)
            if size and kind == "input":
                self._copies[0].add(self._launcher.copy_call(fixed, given, size), "copy")
            elif size:
                self._copies[1].add(self._launcher.copy_call(given, fixed, size), "copy")

    def _record(self) -> None:
        """Record the launches as a graph, if the device has memory for copies of arguments."""
        self._can_record = False
        backend, index = self._backend, self.device.index
        try:
            arrays = {key: backend.allocate(size, index) for key, size in self._fixed.items()}
        except DeviceMemoryError:
            return
        for (kind, k), array in arrays.items():
            self._cells.set_address(kind, k, backend.pointer(array) if array.size else 0)
        (segment,) = self._segments
        self._graph = self._launcher.graph_call(segment.calls)
        self._region_arrays |= arrays
        self._recordings += 1

    def _address(self, address: BufferAddress, more: int = 0) -> Cell:
        kind, index, offset = address
        if kind == "given":
            return self._cells.cell("staging", 0, self._given_offset + 8 * index + offset + more)
        sent = index - self._argument_count
        if kind == "input" and 0 <= sent < len(self._sent):
            return self._cells.cell("staging", 0, self._sent_offsets[sent] + offset + more)
        if kind == "input" and sent >= 0:  # an accumulated gradient
            index -= len(self._sent)
        return self._cells.cell(kind, index, offset + more)

    def _calls_of(self, step: Step) -> list[Call]:
        """Return the calls of one step."""
        launcher = self._launcher
        if isinstance(step, Launch):
            return [launcher.launch_call(step, [self._address(a) for a in step.arguments])]
        if isinstance(step, ProductStep):
            node = step.node
            found = []
            if node.id in self._addends:
                found += self._calls_of(self._addends[node.id])
            return [*found, *[self._product(node, one) for one in self._products[node.id]]]
        if isinstance(step, CopyStep):
            target, source = self._address(step.target), self._address(step.source)
            return [launcher.copy_call(target, source, step.bytes)] if step.bytes else []
        if isinstance(step, ZeroStep):
            return [launcher.zero_call(self._address(step.target), step.bytes)]
        return []

    def _product(self, node: Any, one: GemmCall) -> Call:
        from odyssey.compiler.cuda.compile_kernels import address_in

        left, right = (self.plan.allocation(i).buffer for i in node.inputs[:2])
        out = self.plan.allocations[node.id].buffer
        buffers = (left, right, out) if one.swapped else (right, left, out)
        cells = [
            self._address(address_in(buffer), start)
            for buffer, start in zip(buffers, one.starts, strict=True)
        ]
        return self._launcher.product_call(one, *cells)

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
            check_state_layout(state, state.variable._array, None)
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
        self._written = [(start, end) for start, end, written in spans if written and end > start]
        starts = [start for start, _, _ in spans]
        if self._graph is not None and starts != self._starts:  # the next run records another
            self._graph, self._can_record = None, self._recordings < _MOST_RECORDINGS
        self._starts = starts
        for (k, _), start in zip(self._states, starts, strict=True):
            self._cells.set_address("state", k, start)
        self.words = np.zeros(3 * len(held), np.int64)

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
                and (state.update is None or is_exclusive(held))
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
            if overlaps(memory_span(array), self._written):
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
        for k, (array, spec) in enumerate(zip(arrays, self.inputs, strict=True)):
            if (
                type(array) is not kind
                or array.dtype != spec.dtype
                or array.shape != spec.shape
                or not array.flags.c_contiguous
                or backend.device_index(array) != index
            ):
                return GUARD_FAILED
            start = backend.pointer(array) if array.size else 0
            if overlaps((start, start + array.nbytes), self._written):
                return GUARD_FAILED
            self._set_address("input", k, start)
        if numbers and not self.numbers.store(numbers):
            return GUARD_FAILED
        if self._host is not None:
            outs = [*self._sent_arrays, *self._new_values]
            answer: int = self._host.start(*outs)
            return answer
        return RAN

    def place_outputs(self, outs: Sequence[Any]) -> None:
        """Let the next run write its results to these arrays."""
        for k, array in zip(self.plan.written_outputs(), outs, strict=True):
            self._set_address("output", k, self._backend.pointer(array) if array.size else 0)

    def _set_address(self, kind: str, k: int, start: int) -> None:
        """Let a run find an argument or a result at an address; a graph has them elsewhere."""
        if self._graph is None:
            self._cells.set_address(kind, k, start)
        if self._fixed:
            self._cells.set_address(f"{kind} of a run", k, start)

    def begin_run(self) -> None:
        """Let the next calls run behind what eager ops gave to the device so far."""
        self._launcher.begin_run()

    def run_middle_steps(self) -> int:
        """Run all segments but the last, and the host calls between them."""
        return RAN

    def last_calls(self) -> tuple[list[Call], list[str]]:
        """Return the calls of the last segment, and their names."""
        self._runs += 1
        if self._can_record and self._runs > _WARM_UPS:
            self._record()
        body = self._segments[-1]
        parts = [self._before, body, self._after]
        if self._graph is not None:
            graph = _NamedCalls([self._graph], ["graph"])
            parts = [self._before, self._copies[0], graph, self._copies[1], self._after]
        return [c for part in parts for c in part.calls], [n for part in parts for n in part.names]

    def run_calls(self, calls: Sequence[Call], names: Sequence[str]) -> list[Any]:
        """Make calls one after another, wait for each, and raise its error.

        Raises:
            DeviceError: a call failed; the message names it.
        """
        for one, name in zip(calls, names, strict=True):
            answer = list(starmap(call, [one]))
            self._launcher.check_statuses(answer, [name])
            self._launcher.wait()
        return []

    def check_statuses(self, answers: Sequence[Any], names: Sequence[str]) -> None:
        """Raise DeviceError if a call of a run has failed."""
        self._launcher.check_statuses(answers, names)

    @property
    def waits(self) -> bool:
        """Whether each call waits for the device: ``ODYSSEY_CUDA_SYNC=1``."""
        return self._backend.waits

    def host_updates(self) -> list[tuple[Any, ...]]:
        """Return the calls that set the states of the host to their new values."""
        return [
            (s.variable._array.__setitem__, ..., value.copy())
            for s, value in zip(self._updated, self._new_values, strict=True)
        ]

    def describe_launches(self) -> list[str]:
        """Return lines for ``explain`` on what the device is given in a run."""
        counts: dict[str, int] = {}
        for segment in self._segments:
            for name in segment.names:
                kind = name.partition(" ")[0]
                kind = {"kernel": "launches of kernels", "product": "products"}.get(kind, "copies")
                counts[kind] = counts.get(kind, 0) + 1
        told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        how = "as one CUDA graph" if self._graph is not None else "one by one"
        return [
            f"on {self.device}: {told or 'nothing'}, launched {how}",
            *[f"  waits for {n} checks at the end of a run" for n in [self._checks] if n],
            f"  {self.program.scratch:,} bytes of scratch memory",
            f"  from the CPU at each run: {len(self._sent)} values of {len(self._updated)} written "
            f"states, {len(self.numbers.slots)} scalar inputs",
        ]

    def works(self) -> list[Choice]:
        """Return the works of the program, each once."""
        return list({choice.work: choice for choice in self.choices.listing()}.values())


class _NamedCalls(NamedTuple):
    """Calls, with the name of each for messages."""

    calls: list[Call]
    names: list[str]

    def add(self, one: Call, name: str) -> None:
        """Append a call."""
        self.calls.append(one)
        self.names.append(name)


class _CellTable:
    """Addresses that the calls of a program read, one for each place in a buffer."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, int], dict[int, Cell]] = {}

    def cell(self, kind: str, index: int, offset: int) -> Cell:
        """Return the cell for a place in a buffer."""
        of_buffer = self._cells.setdefault((kind, index), {})
        return of_buffer.setdefault(offset, Cell())

    def freeze(self) -> None:
        """Prepare ``set_address``: all cells are known."""
        self._by_buffer = {key: list(cells.items()) for key, cells in self._cells.items()}

    def set_address(self, kind: str, index: int, start: int) -> None:
        """Let the cells of a buffer point into memory at an address."""
        for offset, cell in self._by_buffer.get((kind, index), ()):
            cell.value = start + offset


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
    try:
        part = split_host_values(graph, on_host).device
        program = lower_for_device(part, budget, ways, backend.launcher(device.index).shape)
    except UnsupportedKernelError:
        return 0, []
    total, buffers = held_buffers(program.program.plan)
    scratch = program.program.scratch
    return total + scratch, sorted([*buffers, (scratch, f"{scratch:,} bytes of scratch memory")])[
        ::-1
    ]


def _lies_on_host(state: State) -> bool:
    return state.field == "data" and type(state.variable._array) is np.ndarray
