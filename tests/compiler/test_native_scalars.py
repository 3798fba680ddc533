"""The scalars of the table as native code: what they give is what the rows' kernels give."""

import pytest

from odyssey.compiler.scalars import evaluate
from odyssey.kernels.scalars import program
from support import scalar_cases

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")
native = pytest.importorskip("support.native").native


def by_native(scalar, operands, options, dtype, result):
    """What a scalar gives on arrays, by LLVM."""
    written = program(scalar, len(operands), options, dtype)
    run = native(
        lambda *words: evaluate(words[0].code, written, words), [x.dtype for x in operands], result
    )
    return run(*operands)


@pytest.mark.parametrize("dtype", scalar_cases.DTYPES, ids=str)
@pytest.mark.parametrize("case", scalar_cases.CASES)
def test_native_code_of_a_scalar_is_the_kernel(case, dtype):
    row, options = scalar_cases.CASES[case]
    found = scalar_cases.kernel_values(row, options, dtype)
    if found is None:
        return
    operands, wanted = found
    computed = scalar_cases.computed_in(wanted, dtype)
    got = by_native(row.scalar, operands, options, computed, wanted.dtype)
    scalar_cases.assert_is_kernel(row, got, wanted, operands)
