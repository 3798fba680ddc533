"""Matrix products for programs, by every way that they may be had, against sums by hand."""

import ctypes
import gc
import itertools
from pathlib import Path

import numpy as np
import pytest

from odyssey.compiler.machine import blas as module
from odyssey.compiler.machine.blas import (
    COLUMNS,
    NOT_TRANSPOSED,
    ROWS,
    TRANSPOSED,
    blas_addresses,
    max_blas_size,
)
from odyssey.compiler.machine.jit import load

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")

NAMES = [f"{letter}{name}" for name in ("gemm", "gemv") for letter in "sdcz"]
CONJUGATED = 113


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))


def numpys():
    return next(iter(module._candidate_sources()))


def scipys_c():
    """A library of integers with 32 bits, which SciPy's wheels bring."""
    scipy = pytest.importorskip("scipy", reason="scipy, whose library is called, is missing")
    folder = Path(scipy.__file__).parent.parent / "scipy.libs"
    for path in folder.glob("libscipy_openblas-*.so"):
        library = ctypes.CDLL(str(path))
        found = {name: module.symbol_address(library, f"scipy_cblas_{name}") for name in NAMES}
        if all(found.values()):
            return module._Source(found, "short", library)
    pytest.skip("this SciPy has no library of the kind")


def scipys_fortran():
    pytest.importorskip("scipy.linalg.cython_blas", reason="scipy is missing")
    return module._scipy_source()


@pytest.fixture(
    params=[numpys, scipys_c, "packed", scipys_fortran], ids=lambda f: getattr(f, "__name__", f)
)
def functions(request, monkeypatch):
    """Functions of each source; those of 32 bits as where integers may share eight bytes, too."""
    if request.param == "packed":
        monkeypatch.setattr(module, "_EIGHT_BYTES", False)
        return module._BlasFunctions(scipys_c())
    return module._BlasFunctions(request.param())


def test_a_library_is_found_here_which_has_all_functions():
    assert set(blas_addresses()) == {f"ody_{name}" for name in NAMES}
    assert max_blas_size() in (2**31 - 1, 2**63 - 1)


def test_every_kind_of_library_passes_the_trial(functions):
    assert functions.are_correct()


def by_hand(a, b):
    """The product by its definition, in Python's own numbers."""
    rows, shared = a.shape
    a, b = a.tolist(), b.tolist()
    sums = [
        [sum(a[i][k] * b[k][j] for k in range(shared)) for j in range(len(b[0]))]
        for i in range(rows)
    ]
    return np.array(sums)


def stored(rng, rows, columns, dtype, order, turned):
    """Whole numbers with a wide step between lines; as they lie there, and as they are meant."""
    shape = (rows, columns) if turned == NOT_TRANSPOSED else (columns, rows)
    whole = np.full((shape[0] + 3, shape[1] + 3), 77, dtype, "C" if order == ROWS else "F")
    part = whole[: shape[0], : shape[1]]
    part[...] = rng.integers(-9, 9, shape)
    if dtype in "cz":
        part += 1j * rng.integers(-9, 9, shape)
    meant = {NOT_TRANSPOSED: part, TRANSPOSED: part.T, CONJUGATED: part.conj().T}[turned]
    return part, max(part.strides) // part.itemsize, meant


GEMM = """
declare void @ody_{t}gemm(i32, i32, i32, i64, i64, i64, {s}, ptr, i64, ptr, i64, {s}, ptr, i64)
define void @run(ptr %scalars, ptr %a, ptr %b, ptr %c, i32 %order, i32 %ta, i32 %tb,
    i64 %m, i64 %n, i64 %k, i64 %lda, i64 %ldb, i64 %ldc) {{
  %second = getelementptr {r}, ptr %scalars, i64 {width}
  {alpha}
  call void @ody_{t}gemm(i32 %order, i32 %ta, i32 %tb, i64 %m, i64 %n, i64 %k, {s} %alpha,
    ptr %a, i64 %lda, ptr %b, i64 %ldb, {s} %beta, ptr %c, i64 %ldc)
  ret void
}}
"""


def gemm_program(letter):
    real = "float" if letter in "sc" else "double"
    if letter in "cz":
        scalars = f"%alpha = getelementptr {real}, ptr %scalars, i64 0\n"
        scalars += f"%beta = getelementptr {real}, ptr %second, i64 0"
    else:
        scalars = f"%alpha = load {real}, ptr %scalars\n%beta = load {real}, ptr %second"
    return GEMM.format(
        t=letter,
        r=real,
        s="ptr" if letter in "cz" else real,
        width=2 if letter in "cz" else 1,
        alpha=scalars,
    )


@pytest.mark.parametrize("letter", "sdcz")
def test_a_program_multiplies_matrices_of_any_order_turned_or_conjugated(functions, letter):
    program = load(gemm_program(letter), functions.addresses)
    run = ctypes.CFUNCTYPE(
        None, *[ctypes.c_void_p] * 4, *[ctypes.c_int32] * 3, *[ctypes.c_int64] * 6
    )(program.address("run"))
    dtype = {"s": "f", "d": "d", "c": "F", "z": "D"}[letter]
    rng = np.random.default_rng(3)
    kinds = (NOT_TRANSPOSED, TRANSPOSED, CONJUGATED)
    for order, ta, tb in itertools.product((ROWS, COLUMNS), kinds, kinds):
        m, n, k = rng.integers(1, 7, 3).tolist()
        a, lda, meant_a = stored(rng, m, k, dtype, order, ta)
        b, ldb, meant_b = stored(rng, k, n, dtype, order, tb)
        c, ldc, before = stored(rng, m, n, dtype, order, NOT_TRANSPOSED)
        scalars = np.array([2, -3], dtype)
        expected = 2 * by_hand(meant_a, meant_b) - 3 * before
        edge = c.base[m:].copy(), c.base[:, n:].copy()
        places = [x.ctypes.data for x in (scalars, a, b, c)]
        run(*places, order, ta, tb, m, n, k, lda, ldb, ldc)
        assert np.array_equal(c, expected), (order, ta, tb, m, n, k)
        assert np.array_equal(c.base[m:], edge[0])
        assert np.array_equal(c.base[:, n:], edge[1])


@pytest.mark.parametrize("letter", "sdcz")
def test_matrices_times_vectors_with_steps(functions, letter):
    call = module._ctypes_function(f"{letter}gemv", functions.addresses[f"ody_{letter}gemv"])
    rng = np.random.default_rng(4)
    for order, ta in itertools.product((ROWS, COLUMNS), (NOT_TRANSPOSED, TRANSPOSED, CONJUGATED)):
        m, k = rng.integers(2, 7, 2).tolist()
        dtype = "fdFD"["sdcz".index(letter)]
        a, lda, meant = stored(rng, m, k, dtype, order, ta)
        x = rng.integers(-9, 9, 3 * k).astype(a.dtype)[::3]
        y = rng.integers(-9, 9, 2 * m).astype(a.dtype)[::2]
        if letter in "cz":
            x += 1j * rng.integers(-9, 9, k)
            y += 1j * rng.integers(-9, 9, m)
        expected = 2 * by_hand(meant, x[:, None])[:, 0] - 3 * y
        first, second = module._scalar_arguments(np.array([2, -3], a.dtype))
        given = (first, a.ctypes.data, lda, x.ctypes.data, 3, second, y.ctypes.data, 2)
        call(order, ta, *a.shape, *given)
        assert np.array_equal(y, expected), (order, ta)


@pytest.fixture
def finding(monkeypatch):
    """Let only these sources be found."""

    def only(*chosen):
        monkeypatch.setattr(module, "_candidate_sources", lambda: iter(chosen))
        module._library_functions.cache_clear()

    yield only
    module._library_functions.cache_clear()


def test_a_library_that_multiplies_wrongly_is_passed_over(finding):
    right = numpys()
    silent = ctypes.CFUNCTYPE(None)(lambda: None)
    nothing = ctypes.cast(silent, ctypes.c_void_p).value
    for name in NAMES:
        wrong = module._Source(right.addresses | {name: nothing}, right.kind, silent)
        assert not module._BlasFunctions(wrong).are_correct()
        finding(wrong, right)
        assert blas_addresses() == {f"ody_{n}": a for n, a in right.addresses.items()}


def test_without_any_library_nothing_is_found(finding):
    finding()
    assert blas_addresses() == {}
    assert max_blas_size() == 0


def test_what_stands_between_lives_as_long_as_the_process(finding):
    finding(scipys_fortran())
    addresses = dict(blas_addresses())
    gc.collect()
    assert max_blas_size() == 2**31 - 1
    assert all(module._is_correct(name[4:], address) for name, address in addresses.items())
