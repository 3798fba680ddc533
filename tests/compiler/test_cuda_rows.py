"""Samples of all rows, with their gradients, and training steps as CUDA programs.

``pytest -m cudacompile`` runs them. Programs run on the CPU from the text that PTX is made of, and
``ptxas`` assembles the PTX where the wheel ``nvidia-cuda-nvcc`` is installed.
"""

import pytest

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")

from odyssey.compiler.cuda.ptx import emit_ptx
from support.cuda_rows import (
    FLOAT64,
    STEPS,
    device_text,
    find_ptxas,
    float64_kernels,
    lines_of_row,
    lines_of_step,
    ptxas_version,
    read_table,
    sample_program,
    samples_by_row,
)

pytestmark = [pytest.mark.cudacompile, pytest.mark.soak]

needs_ptxas = pytest.mark.skipif(
    find_ptxas() is None, reason="ptxas is missing: pip install nvidia-cuda-nvcc"
)


@pytest.mark.parametrize("name", samples_by_row())
def test_programs_of_a_row_give_what_numpy_gives_in_both_orders_of_threads(name):
    kinds = set()
    for row, sample in samples_by_row()[name]:
        found = sample_program(row, sample)
        kinds.add(found.kind.split(":")[0])
        if found.program is not None:
            found.assert_equal()
    wanted = read_table()[1][name].kind
    assert next(k for k in ("refused", "library", "runs") if k in kinds) == wanted


@pytest.mark.parametrize("name", [name for name in samples_by_row() if name not in FLOAT64])
def test_kernels_of_float32_compute_in_float64_only_where_a_reason_is_named(name):
    found = [sample_program(row, sample).program for row, sample in samples_by_row()[name]]
    ptx = emit_ptx(device_text([program for program in found if program is not None]))
    assert not [kernel for kernel, double in float64_kernels(ptx).items() if double]


def assert_fits(line, table):
    assert line.spills == 0, f"{line.name}: {line.spills} bytes are spilled"
    known = table.get(line.name)
    assert known is not None, f"{line.name} is not in the table: python -m tools.cuda_kernels"
    assert line.float64 <= known.float64, f"{line.name} computes in float64"


def assert_registers(lines, version, table):
    if ptxas_version() != version:
        pytest.skip(f"registers: the table is of ptxas {version}, not {ptxas_version()}")
    for line in lines:
        wanted = table[line.name].registers
        over = [a > b for a, b in zip(line.registers, wanted, strict=True)]
        assert not any(over), f"{line.name} takes {line.registers} registers; the table: {wanted}"


@needs_ptxas
@pytest.mark.parametrize("name", samples_by_row())
def test_kernels_of_a_row_spill_nothing_and_take_no_more_registers(name):
    version, table = read_table()
    line = lines_of_row(name)
    assert_fits(line, table)
    assert_registers([line], version, table)


@needs_ptxas
@pytest.mark.parametrize("name", STEPS)
def test_kernels_of_a_training_step_spill_nothing_and_take_no_more_registers(name):
    version, table = read_table()
    lines = lines_of_step(name)
    for line in lines:
        assert_fits(line, table)
    assert_registers(lines, version, table)
