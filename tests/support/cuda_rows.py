"""Samples of the table's rows, and training steps, as CUDA programs: run, and assembled.

Each sample becomes a program of its results and, where a tape can differentiate it, of its
gradients. Programs run by ``compiler.cuda.host_execution`` in both orders of threads.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.compiler.cuda.compile_kernels import compile_kernels
from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.module import device_module
from odyssey.compiler.cuda.program import CudaKernel, CudaProgram, HostCallStep
from odyssey.compiler.cuda.ptx import emit_ptx
from odyssey.compiler.pipeline import lower_program
from support.cases import EVERY, draw, random_like, tracked
from support.cuda_programs import HostRun, cuda_program

__all__ = [
    "ARCHITECTURES",
    "FLOAT64",
    "STEPS",
    "TABLE",
    "KernelUse",
    "SamplePrograms",
    "TableLine",
    "assemble",
    "device_text",
    "find_ptxas",
    "float64_kernels",
    "lines_of_row",
    "lines_of_step",
    "ptxas_version",
    "read_table",
    "sample_program",
    "samples_by_row",
    "write_table",
]

ARCHITECTURES = ("sm_80", "sm_90")
"""Devices that PTX is assembled for."""

_SHAPE = LaunchShape(threads=64, blocks=3, row_length=6, columns=8)
"""Rows of few elements are shared by the threads of a block: samples are small."""

_TOLERANCE = 1e-5
"""Of the largest element: elementary functions and the order of sums differ from NumPy's."""


class SamplePrograms(NamedTuple):
    """Programs of a sample.

    Attributes:
        kind: ``runs``, ``library``, or ``refused`` with the reason.
        program: The program, if it runs.
        arrays: Its inputs.
        expected: What NumPy gives.
    """

    kind: str
    program: CudaProgram | None = None
    arrays: tuple[Any, ...] = ()
    expected: tuple[Any, ...] = ()

    def assert_equal(self) -> None:
        """Check the results in both orders of threads."""
        assert self.program is not None
        found = []
        for backward in (False, True):
            run = HostRun(self.program, self.arrays, {}, backward)
            run.run()
            found.append(run.outputs())
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b)
        written = self.program.plan.written_outputs()
        for a, k in zip(found[0], written, strict=True):
            b = np.asarray(self.expected[k])
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            finite = np.abs(
                b[np.isfinite(b)].astype(np.complex128 if b.dtype.kind == "c" else "f8")
            )
            scale = _TOLERANCE * finite.max(initial=1)
            if b.dtype.kind in "fc":
                np.testing.assert_allclose(a, b, _TOLERANCE, scale, equal_nan=True)
            else:
                np.testing.assert_array_equal(a, b)


def sample_program(row: Any, sample: Any, dtype: Any = np.float32) -> SamplePrograms:
    """Return the program of a sample: its results, and its gradients if it has any.

    Args:
        row: The row, of as many operands as the sample has.
        sample: The sample.
        dtype: dtype of the operands.
    """
    operands = draw(sample, dtype)
    if row.layout.variadic and len(operands) == 1 and isinstance(operands[0], list):
        operands = operands[0]
    places = [k for k, x in enumerate(operands) if isinstance(x, np.ndarray)]
    leaves = [k for k in tracked(row, sample) if k in places]

    def call(*arrays: Any) -> Any:
        given = list(operands)
        for k, x in zip(places, arrays, strict=True):
            given[k] = x
        if not leaves:
            return row.call(*given, **sample.options)
        variables = [Variable(given[k], requires_grad=True) for k in leaves]
        for k, v in zip(leaves, variables, strict=True):
            given[k] = v
        with GradientTape() as tape:
            out = row.call(*given, **sample.options)
        results = list(out) if isinstance(out, tuple) else [out]
        results = [r for r in results if isinstance(r, Variable)]
        cotangents = [random_like(r, seed=1 + k) for k, r in enumerate(results)]
        return [*results, *tape.gradient(results, variables, cotangents)]

    arrays = tuple(np.array(operands[k], order="C") for k in places)
    lowered = od.compile(call).lower(*arrays)
    with np.errstate(all="ignore"):
        result = lowered.evaluate(*arrays)[0]
    expected = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    try:
        program = cuda_program(lowered.graph, _SHAPE)
    except UnsupportedKernelError as error:
        return SamplePrograms(f"refused: {error}")
    if any(isinstance(step, HostCallStep) for step in program.steps):
        return SamplePrograms("library")
    return SamplePrograms("runs", program, arrays, expected)


# ------------------------------------------------------------------ ptxas


@functools.cache
def find_ptxas() -> str | None:
    """Return the path of ``ptxas`` of the wheel ``nvidia-cuda-nvcc``, or of a toolkit; or None."""
    named = os.environ.get("ODYSSEY_TEST_PTXAS")
    if named:
        return named
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for toolkit in ("cu13", "cuda_nvcc"):
            path = os.path.join(folder, toolkit, "bin", "ptxas")
            if os.path.exists(path):
                return path
    return shutil.which("ptxas")


class KernelUse(NamedTuple):
    """What a kernel takes of a device.

    Attributes:
        registers: Registers of a thread.
        spills: Bytes of spill stores and loads.
    """

    registers: int
    spills: int


_FUNCTION = re.compile(r"Compiling entry function '(\w+)' for")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


def assemble(ptx: str, architecture: str) -> dict[str, KernelUse]:
    """Return what each kernel of a module takes, by its name.

    Raises:
        AssertionError: ``ptxas`` refuses the module; the message has its first lines.
    """
    tool = find_ptxas()
    assert tool is not None, "ptxas is not installed"
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "module.ptx")
        with open(source, "w") as file:
            file.write(ptx)
        target = os.path.join(folder, "module.cubin")
        command = [tool, f"-arch={architecture}", "-v", source, "-o", target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"ptxas: {done.stderr[:2000]}"
    found = {}
    for part in re.split(r"(?=ptxas info +: Compiling entry)", done.stderr)[1:]:
        name, frame, used = _FUNCTION.search(part), _FRAME.search(part), _REGISTERS.search(part)
        assert name, part
        assert frame, part
        assert used, part
        _, stores, loads = map(int, frame.groups())
        found[name[1]] = KernelUse(int(used[1]), stores + loads)
    return found


@functools.cache
def ptxas_version() -> str:
    """Return the version of ``ptxas``; empty if there is none."""
    tool = find_ptxas()
    if tool is None:
        return ""
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=60)
    found = re.search(r", V([\d.]+)", done.stdout)
    return found[1] if found else "unknown"


# Conversions, moves and loads are no arithmetic.
_FLOAT64 = re.compile(
    r"^\s*(?:@%p\d+ )?(?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|min|max|neg|abs|setp)"
    r"[\w.]*\.f64\b",
    re.MULTILINE,
)


# ------------------------------------------------------------------ the table


TABLE = Path(__file__).with_name("cuda_kernels.txt")
"""The committed table of what kernels take; ``python -m tools.cuda_kernels`` makes it."""

_HEAD = """\
# What CUDA kernels take of a device: registers of a thread for each architecture.
# python -m tools.cuda_kernels makes this table, and a test compares. Numbers may become lower;
# where one becomes higher, the commit says why.
# A row has the most of its kernels. "float64" counts the kernels that compute in float64.
"""

STEPS = ("W1", "W2", "W3", "W4", "W4m", "W6", "W7", "digits")
"""Training steps of ``benchmarks/harness/compiled_cases.py``."""

_SUMS = "full sums add up in float64"
_PLACES = "elements at one place are added in float64"
_POWERS = "powers of float32 are computed in float64"
_SAMPLES = "samples are float64"

FLOAT64: Mapping[str, str] = MappingProxyType(
    {
        name: reason
        for reason, names in (
            (_SUMS, "euclidean_norm rms_norm layer_norm squared_error_mean softmax_cross_entropy"),
            (_SUMS, "softmax_cross_entropy_slope prelu global_avg_pool2d multiply divide maximum"),
            (_SUMS, "minimum fmax fmin where power_share logaddexp logaddexp2 copysign direction"),
            (_SUMS, "hypot arctan2 logsumexp sum mean max min sum_to var over_length std betaln"),
            (_SUMS, "put_along_axis xlogy xlog1py rel_entr kl_div W1 W2 W3 W4 W4m W6 W7"),
            (_PLACES, "fold avg_pool_pullback max_pool_pullback max_pool_pushforward max_pool1d"),
            (_PLACES, "max_pool2d max_pool3d take add_taken take_along_axis add_along_axis"),
            (_PLACES, "segment_max segment_min segment_softmax piecewise_linear"),
            (_POWERS, "power power_slope power_log beta gamma zeta"),
            ("recurrences run in float64", "linear_recurrence cumprod"),
            ("random numbers are float64", "philox_uniform philox_normal philox_dropout"),
            ("angles of positions are float64", "rope"),
            (_SAMPLES, "softmax_cross_entropy_mass nan_to_num running_argmax running_argmin"),
            (_SAMPLES, "bin_numbers searchsorted"),
            ("numbers of Python, as Adam's corrections of its means, are float64", "digits"),
        )
        for name in names.split()
    }
)
"""Rows and steps with kernels that compute in float64, and why; on the CPU they do so too."""


class TableLine(NamedTuple):
    """A line of the table.

    Attributes:
        name: Name of a row, or of a step and its kernel.
        kind: ``runs``, ``library`` or ``refused``.
        kernels: Number of different kernels.
        float64: Number of those that compute in float64.
        registers: Most registers of a thread, by architecture.
        spills: Bytes of spills; not in the table.
    """

    name: str
    kind: str
    kernels: int = 0
    float64: int = 0
    registers: tuple[int, ...] = (0,) * len(ARCHITECTURES)
    spills: int = 0


def read_table() -> tuple[str, dict[str, TableLine]]:
    """Return the version of ``ptxas`` that the table was made with, and its lines by name."""
    version, lines = "", {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if line.startswith("# ptxas"):
            version = words[2]
        elif words and words[0] != "#":
            name, kind, *numbers = words
            kernels, float64, *registers = map(int, numbers)
            lines[name] = TableLine(name, kind, kernels, float64, tuple(registers))
    return version, lines


def write_table(lines: Iterable[TableLine]) -> None:
    """Write the table."""
    columns = f"{'# name':<44} {'kind':<8} kernels float64 {' '.join(ARCHITECTURES)}"
    text = [f"{_HEAD}# ptxas {ptxas_version()}", columns]
    for line in lines:
        registers = " ".join(f"{n:>5}" for n in line.registers)
        text.append(
            f"{line.name:<44} {line.kind:<8} {line.kernels:>7} {line.float64:>7} {registers}"
        )
    TABLE.write_text("\n".join(text) + "\n", encoding="utf-8")


@functools.cache
def samples_by_row() -> dict[str, list[tuple[Any, Any]]]:
    """Return the samples by name of the row, each with the row of as many operands."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    for case, pair in EVERY.items():
        found.setdefault(case.rpartition("-")[0], []).append(pair)
    return found


def device_text(programs: Iterable[CudaProgram]) -> str:
    """Return one module of the different kernels of several programs."""
    kernels: dict[Any, CudaKernel] = {}
    for program in programs:
        for k in program.kernels:
            key = k.parameters, k.body, k.shared_bytes
            kernels.setdefault(key, k._replace(name=f"{k.name}_{len(kernels)}"))
    return device_module(list(kernels.values()))


def float64_kernels(ptx: str) -> dict[str, bool]:
    """Return by kernel of a module whether it computes in float64."""
    parts = ptx.split(".visible .entry ")[1:]
    return {part.split("(")[0].strip(): bool(_FLOAT64.search(part)) for part in parts}


def _measure(text: str) -> dict[str, tuple[bool, list[KernelUse]]]:
    """Return by kernel of a module whether it computes in float64, and what it takes."""
    ptx = {architecture: emit_ptx(text, architecture) for architecture in ARCHITECTURES}
    for module in ptx.values():
        external = [line for line in module.splitlines() if line.startswith(".extern")]
        assert not external, f"kernels call external functions: {external[:3]}"
    float64 = float64_kernels(ptx[ARCHITECTURES[0]])
    uses = [assemble(module, a) if module else {} for a, module in ptx.items()]
    return {name: (double, [use[name] for use in uses]) for name, double in float64.items()}


def lines_of_row(name: str) -> TableLine:
    """Return the line of a row; its samples are not run."""
    found = [sample_program(row, sample) for row, sample in samples_by_row()[name]]
    kinds = {one.kind.split(":")[0] for one in found}
    kind = next(k for k in ("refused", "library", "runs") if k in kinds)
    programs = [one.program for one in found if one.program is not None]
    if not any(program.kernels for program in programs):
        return TableLine(name, kind)
    measured = _measure(device_text(programs))
    registers = zip(*[[u.registers for u in uses] for _, uses in measured.values()], strict=True)
    spills = sum(u.spills for _, uses in measured.values() for u in uses)
    doubles = sum(double for double, _ in measured.values())
    return TableLine(name, kind, len(measured), doubles, tuple(map(max, registers)), spills)


def lines_of_step(name: str) -> list[TableLine]:
    """Return a line for each kernel of a training step, as a device would run it."""
    program = compile_kernels(lower_program(step_graph(name)[0]).plan)
    measured = _measure(program.text)
    return [
        TableLine(
            f"{name}:{kernel}",
            "runs",
            1,
            int(double),
            tuple(u.registers for u in uses),
            sum(u.spills for u in uses),
        )
        for kernel, (double, uses) in measured.items()
    ]


def step_graph(name: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return the graph of a training step, what it was lowered to, and a batch."""
    benchmarks = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, benchmarks)
    try:
        from harness import compiled_cases
        from peers import compiled_odyssey
    finally:
        sys.path.remove(benchmarks)
    batch = compiled_cases.batches_of(name)[0]
    step = compiled_odyssey.step_of(name, compiled_cases.parameters_of(name))
    lowered = od.compile(step).lower(*batch)
    return lowered.graph, lowered, batch
