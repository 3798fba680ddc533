"""The scalars of the table as native code: what they give is what the rows' kernels give."""

import pytest

from odyssey.compiler.scalars import evaluate
from odyssey.kernels.scalars import program
from support import scalar_cases

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")
native = pytest.importorskip("support.native").native


# What is rounded as IEEE says, or not at all: results are NumPy's to the bit.
EXACT = {"math.sqrt", "math.fabs", "math.copysign", "math.floor", "math.ceil", "math.trunc"}
# Sums that cancel, and powers of what was rounded: at these numbers NumPy's own errors are 2.5 and
# 19 units in the last place, ours 2.5 to the other side and 3.
CONDITIONED = {"gammaln": 8, "digamma_derivative": 32}
# Kernels that are not computed as the scalar says, which rounds in other places.
OTHERWISE = {"rad2deg", "direction"}


def by_native(written, operands, result):
    """What a program gives on arrays, by LLVM."""
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
    written = program(row.scalar, len(operands), options, computed)
    got = by_native(written, operands, wanted.dtype)
    functions = {name for name, _ in written.steps if name.startswith("math.")} - EXACT
    rounded = functions or row.name in OTHERWISE
    ulps = CONDITIONED.get(row.name, scalar_cases.ULPS) if rounded else 0
    scalar_cases.assert_is_kernel(row, got, wanted, operands, ulps)
