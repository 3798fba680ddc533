"""Matrix products for programs, by every way that they may be had, against NumPy's."""

import pytest

from odyssey.compiler import blas as found_by
from odyssey.compiler.blas import blas

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")

NAMES = {f"ody_{name}" for name in ("sgemm", "dgemm", "cgemm", "zgemm", "sgemv", "dgemv")}


def test_numpys_own_library_or_another_is_found_here():
    assert set(blas()) == NAMES


@pytest.mark.parametrize("kind", ["long", "short", "fortran"])
def test_every_kind_of_library_multiplies(kind):
    sources = [source for source in found_by._sources() if source.kind == kind]
    if kind == "fortran":
        pytest.importorskip("scipy.linalg.cython_blas")
        assert sources
    for source in sources:
        assert found_by._Functions(source).multiply()
