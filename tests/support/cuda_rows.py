"""Samples of the table's rows as CUDA programs: run on the CPU beside NumPy, and assembled.

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
import tempfile
from typing import Any, NamedTuple

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.program import CudaProgram, HostCallStep
from odyssey.compiler.cuda.ptx import emit_ptx
from support.cases import draw, random_like, tracked
from support.cuda_programs import HostRun, cuda_program

__all__ = [
    "ARCHITECTURES",
    "SMALL_ROWS",
    "KernelUse",
    "RowPrograms",
    "assemble",
    "find_ptxas",
    "has_float64_arithmetic",
    "row_programs",
]

ARCHITECTURES = ("sm_80", "sm_90")
"""Devices that PTX is assembled for."""

SMALL_ROWS = LaunchShape(threads=64, blocks=3, row_length=6, columns=8)
"""Rows of few elements are shared by the threads of a block: samples are small."""

TOLERANCE = 1e-5
"""Of the largest element: elementary functions and the order of sums differ from NumPy's."""


class RowPrograms(NamedTuple):
    """Programs of a sample.

    Attributes:
        kind: ``runs``, ``calls Python``, or ``refused`` with the reason.
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
            assert a.shape == b.shape and a.dtype == b.dtype
            finite = np.abs(b[np.isfinite(b)].astype(np.complex128 if b.dtype.kind == "c" else "f8"))
            scale = TOLERANCE * finite.max(initial=1)
            if b.dtype.kind in "fc":
                np.testing.assert_allclose(a, b, TOLERANCE, scale, equal_nan=True)
            else:
                np.testing.assert_array_equal(a, b)


def row_programs(row: Any, sample: Any, derivatives: bool, dtype: Any = np.float32) -> RowPrograms:
    """Return the program of a sample.

    Args:
        row: The row, of as many operands as the sample has.
        sample: The sample.
        derivatives: Whether the program has the gradients besides.
        dtype: dtype of the operands.
    """
    operands = draw(sample, dtype)
    if row.layout.variadic and len(operands) == 1 and isinstance(operands[0], list):
        operands = operands[0]
    places = [k for k, x in enumerate(operands) if isinstance(x, np.ndarray)]
    leaves = [k for k in tracked(row, sample) if k in places] if derivatives else []

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
        program = cuda_program(lowered.graph, SMALL_ROWS)
    except UnsupportedKernelError as error:
        return RowPrograms(f"refused: {error}")
    if any(isinstance(step, HostCallStep) for step in program.steps):
        return RowPrograms("calls Python")
    return RowPrograms("runs", program, arrays, expected)


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
        stack: Bytes of its stack frame.
        spills: Bytes of spill stores and loads.
    """

    registers: int
    stack: int
    spills: int


_FUNCTION = re.compile(r"Compiling entry function '(\w+)' for")
_FRAME = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
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
        assert name and frame and used, part
        stack, stores, loads = map(int, frame.groups())
        found[name[1]] = KernelUse(int(used[1]), stack, stores + loads)
    return found


# Moves and loads have no cost of float64 arithmetic.
_FLOAT64 = re.compile(
    r"^\s*(?:@%p\d+ )?(?:add|sub|mul|fma|mad|div|rcp|sqrt|min|max|neg|abs|setp|cvt)[\w.]*\.f64\b",
    re.MULTILINE,
)


def has_float64_arithmetic(program: CudaProgram) -> set[str]:
    """Return the names of the kernels whose PTX computes in float64."""
    found = set()
    text = emit_ptx(program.text, ARCHITECTURES[0])
    for part in text.split(".visible .entry ")[1:]:
        if _FLOAT64.search(part):
            found.add(part.split("(")[0].strip())
    return found
