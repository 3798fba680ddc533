"""Programs as data: what a card needs to run them without odyssey."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

import odyssey as od
from card.on_card import write_programs
from harness import compiled_cases
from odyssey.compiler.cuda.cublas import COMPUTE_TYPES, DATA_TYPES, GemmCall
from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.lower_for_device import DeviceProgram, GemmStep, lower_for_device
from odyssey.compiler.cuda.program import (
    BufferAddress,
    CheckStep,
    CopyStep,
    CudaProgram,
    HostCallStep,
    Launch,
    ProductStep,
    ZeroStep,
)
from odyssey.compiler.cuda.ptx import emit_ptx
from odyssey.compiler.device_runtime.host_values import split_host_values
from odyssey.compiler.interpreter import interpret
from odyssey.compiler.llvm.types import dtype_of_code
from odyssey.errors import OdysseyError
from odyssey.ops import OPS
from peers import compiled_odyssey

PROGRAMS = ("W1", "W2", "digits", "W3", "W4", "W4m", "W6", "W7")
SMALL = LaunchShape(threads=64, blocks=3)
ROW_STRIDE = 12  # of a small set, every twelfth row
MOST_BYTES = 64 << 20


class UnsupportedProgramError(Exception):
    """A program that calls Python, or has a type that NumPy lacks, is not prepared."""


def prepare(folder: str, small: bool) -> int:
    """Write programs and rows to a folder; return 0, or 1 if they take more than 64 MiB."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise SystemExit(f"card: {out} is not empty; pass a new folder")
    root = Path(__file__).resolve().parents[1]
    shutil.copy(root / "card" / "on_card.py", out)
    for package, module in (("harness", "compiled_cases"), ("peers", "compiled_torch")):
        (out / package).mkdir()
        (out / package / "__init__.py").touch()
        shutil.copy(root / package / f"{module}.py", out / package)
    programs = [workload(name, small) for name in (PROGRAMS[:3] if small else PROGRAMS)]
    write_programs(out / "programs.npz", programs)
    rows = row_calls(ROW_STRIDE if small else 1, small)
    write_programs(out / "rows.npz", rows)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{len(programs)} programs, {len(rows)} calls of rows, {size / 2**20:.1f} MiB in {out}")
    if size > MOST_BYTES:
        print("this is more than 64 MiB")
    elif small:
        print(f"next: python -m benchmarks card here {out}")
    else:
        print(f"next, on a machine with a card, NumPy and CuPy: python {out}/on_card.py {out}")
    return int(size > MOST_BYTES)


def workload(name: str, small: bool) -> dict[str, Any]:
    """Return one training step of `compiled.py`; the loss is its result."""
    batch = compiled_cases.batches_of(name)[0]
    step = compiled_odyssey.step_of(name, compiled_cases.parameters_of(name))
    lowered = od.compile(step).lower(*batch)
    # As compiled functions on a device do, the host computes learning rates and counts of steps.
    on_host = [k for k, s in enumerate(lowered.graph.states) if not s.spec.shape]
    parts = split_host_values(lowered.graph, on_host)
    sent = [] if parts.host is None else interpret(parts.host, [])[0][: len(parts.sent)]
    written = {k: s for k, s in enumerate(parts.device.states) if s.field == "data"}
    states = {k: s.variable._array.copy() for k, s in written.items()}
    loss, left = lowered.evaluate(*batch)
    found = as_data(name, parts.device, [*batch, *sent], states, [np.asarray(loss)], small)
    found["tolerance"] = 1e-4
    for k, state in written.items():
        if state.update is not None:
            found["left"].append([["state", k], np.asarray(left[state.label])])
    return found


def row_calls(stride: int, small: bool) -> list[dict[str, Any]]:
    """Return calls of rows on their samples, of those that need no host call."""
    made = []
    for row in list(OPS.values())[::stride]:
        for k, sample in enumerate(row.samples):
            try:
                arrays = sample.arrays(np.random.default_rng(k), np.float32)
                if not all(isinstance(a, np.ndarray) for a in arrays):
                    continue

                def call(*operands: Any, row: Any = row, options: Any = sample.options) -> Any:
                    return row.call(*operands, **options)

                lowered = od.compile(call).lower(*arrays)
                if lowered.graph.eager_reason is not None:
                    continue
                expected, _ = lowered.evaluate(*arrays)
                results = [np.asarray(x) for x in od.tree.leaves(expected)]
                one = as_data(f"{row.name} {k}", lowered.graph, arrays, {}, results, small)
            except (OdysseyError, UnsupportedProgramError, KeyError):
                continue  # a library or Python computes it
            if any(step[0] == "launch" for step in one["steps"]):
                made.append(one)
    return made


def as_data(
    name: str, graph: Any, inputs: Any, states: dict[int, Any], expected: list[Any], small: bool
) -> dict[str, Any]:
    """Return a program as lists, numbers, text and arrays."""
    try:
        lowered = lower_for_device(graph, shape=SMALL if small else None)
    except UnsupportedKernelError as error:
        raise UnsupportedProgramError(str(error)) from error
    program, plan = lowered.program, lowered.program.plan
    known: dict[tuple[str, int], Any] = {("input", k): x for k, x in enumerate(inputs)}
    known |= {("state", k): x for k, x in states.items()}
    for node in plan.fused.order:
        if node.kind == "leaf" and node.detail[0] == "constant":
            known["constant", node.detail[1]] = node.payload
    sizes = {("arena", 0): int(plan.arena), ("scratch", 0): program.scratch}
    for allocation in plan.allocations.values():
        if allocation.buffer.kind == "output":
            sizes["output", allocation.buffer.index] = allocation.buffer.bytes
    memory = [[list(key), np.array(x, order="C")] for key, x in known.items()]
    memory += [[list(key), int(size)] for key, size in sizes.items()]
    written = plan.written_outputs()
    if len(written) != len(expected):
        raise UnsupportedProgramError("an output is an input")
    return {
        "name": name,
        "memory": memory,
        "steps": [one for step in program.steps for one in _steps(lowered, step)],
        "results": [
            [_view(program, plan.outputs[k]), x] for k, x in zip(written, expected, strict=True)
        ],
        "left": [],
        "tolerance": 1e-5,
        "kernels": [[k.name, len(k.parameters), k.shared_bytes] for k in program.kernels],
        "ptx": emit_ptx(program.text) if program.kernels else "",
        "host_text": program.host_text if small else "",
    }


def _steps(lowered: DeviceProgram, step: Any) -> list[list[Any]]:
    if isinstance(step, Launch):
        return [["launch", step.kernel, step.grid, step.block, [*map(_address, step.arguments)]]]
    if isinstance(step, CopyStep):
        return [["copy", _address(step.target), _address(step.source), int(step.bytes)]]
    if isinstance(step, ZeroStep):
        return [["zero", _address(step.target), int(step.bytes)]]
    if isinstance(step, CheckStep):
        return [["check", _address(step.address)]]
    if isinstance(step, HostCallStep):
        raise UnsupportedProgramError("it calls Python")
    if isinstance(step, ProductStep):
        parts = lowered.steps_of_product(step.node)
        return [one for part in parts for one in _steps(lowered, part)]
    assert isinstance(step, GemmStep)
    return [["gemm", _gemm(step.call), [*map(_address, step[1:])]]]


def _gemm(call: GemmCall) -> dict[str, Any]:
    """Return the arguments of cuBLAS as numbers; ``own`` are those of the class."""
    return {
        "transposes": call.transposes,
        "sizes": call.sizes,
        "leading": call.leading,
        "steps": call.steps,
        "batch": call.batch,
        "types": [DATA_TYPES[type] for type in call.types],
        "beta": call.beta,
        "compute": COMPUTE_TYPES[call.types[1]],
        "double": call.types[1] in ("f8", "c16"),
        "own": call,
    }


def _address(address: BufferAddress) -> list[Any]:
    return [address.kind, int(address.index), int(address.offset)]


def _view(program: CudaProgram, node: Any) -> list[Any]:
    """Return where the elements of a node lie: address, shape, strides in bytes, dtype."""
    (buffer, view), dtype = program.plan.allocation(node), dtype_of_code(node.type)
    if dtype.kind == "V":
        raise UnsupportedProgramError("NumPy has no bfloat16")
    start = view.offset * dtype.itemsize
    in_arena = buffer.kind == "arena"
    address = [buffer.kind, 0 if in_arena else buffer.index, start + in_arena * buffer.offset]
    strides = [int(s) * dtype.itemsize for s in view.strides]
    return [
        [address[0], int(address[1]), int(address[2])],
        [*map(int, view.shape)],
        strides,
        dtype.str,
    ]
