"""LAPACK functions of NumPy's library: how they are found, tested, and called."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from odyssey import ops
from odyssey.kernels import lapack_library as module
from odyssey.kernels.lapack_library import (
    LAPACK_ARGUMENTS,
    factor_lu,
    lapack_library,
    solve_triangle,
)
from odyssey.linalg import decompositions

pytestmark = pytest.mark.skipif(lapack_library() is None, reason="this NumPy exports no LAPACK")

NAMES = [letter + name for letter in "dz" for name in LAPACK_ARGUMENTS]


def test_a_library_has_all_functions_and_passes_the_test():
    library = lapack_library()
    assert sorted(library.addresses) == sorted(NAMES)
    assert module._is_correct(library)


@pytest.mark.parametrize("name", NAMES)
def test_a_library_with_one_function_that_does_nothing_is_refused(name):
    library = lapack_library()
    functions = {**library.functions, name: lambda *arguments: None}
    assert not module._is_correct(library._replace(functions=functions))


@pytest.mark.parametrize("name", NAMES)
def test_a_library_that_lacks_a_function_is_refused(name, monkeypatch):
    find = module.symbol_address
    monkeypatch.setattr(
        module, "symbol_address", lambda library, one: None if name in one else find(library, one)
    )
    assert not list(module._candidates())


def test_a_library_of_32_bit_integers_passes_the_test(monkeypatch):
    scipy = pytest.importorskip("scipy", reason="scipy, whose library is called, is missing")
    folder = Path(scipy.__file__).parent.parent / "scipy.libs"
    paths = list(folder.glob("libscipy_openblas-*.so"))
    if not paths:
        pytest.skip("this SciPy has no library of the kind")
    monkeypatch.setattr(module, "numpy_libraries", lambda: [module.ctypes.CDLL(str(paths[0]))])
    (library,) = module._candidates()
    assert module._is_correct(library)


def _layouts(matrix):
    """Equal matrices in several layouts."""
    words = np.zeros(matrix.nbytes + 1, np.uint8)[1:]
    unaligned = words.view(matrix.dtype).reshape(matrix.shape)
    unaligned[...] = matrix
    wide = np.full((2 * len(matrix), 3 * len(matrix)), np.nan, matrix.dtype)
    wide[::2, ::3] = matrix
    part = np.full((len(matrix) + 1, len(matrix) + 2), np.nan, matrix.dtype)
    part[1:, 2:] = matrix
    return {
        "rows": matrix.copy(),
        "columns": np.asfortranarray(matrix),
        "a part": part[1:, 2:],
        "columns of a part": np.asfortranarray(part)[1:, 2:],
        "unaligned": unaligned,
        "steps": wide[::2, ::3],
        "backward": matrix[::-1, ::-1].copy()[::-1, ::-1],
    }


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_triangles_of_any_layout_are_solved_exactly(dtype, trans, lower):
    # Powers of two on the diagonal, small integers elsewhere, so that no step rounds.
    rng = np.random.default_rng(0)
    for n, columns, unit in (
        (1, 1, False),
        (4, 1, False),
        (4, 3, False),
        (4, 1, True),
        (5, 2, True),
    ):
        triangle = rng.integers(-3, 4, (n, n)).astype(dtype)
        if np.iscomplexobj(triangle):
            triangle += 1j * rng.integers(-3, 4, (n, n))
        triangle[np.arange(n), np.arange(n)] = 1 if unit else 2.0 ** rng.integers(-2, 3, n)
        read = np.tril(triangle) if lower else np.triu(triangle)
        matrix = {"N": read, "T": read.T, "C": read.conj().T}[trans]
        is_read = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
        unread = np.where(is_read, triangle, np.nan)
        if unit:
            unread[np.arange(n), np.arange(n)] = np.nan
        wanted = rng.integers(-5, 6, (n, columns)).astype(dtype)
        for layout, a in _layouts(unread).items():
            assert a.flags.aligned == (layout != "unaligned")
            x = matrix @ wanted
            assert solve_triangle(a, x, trans, lower, unit)
            np.testing.assert_array_equal(x, wanted, err_msg=f"{layout} {n} {columns} {unit}")


def test_a_solution_is_within_a_rounding_of_that_in_rational_numbers():
    rng = np.random.default_rng(1)
    a = np.tril(rng.uniform(0.5, 1, (6, 6)))
    b = rng.normal(size=(6, 2))
    exact = []
    for column in b.T:
        solved: list[Fraction] = []
        for i in range(6):
            rest = sum(Fraction(a[i, j]) * solved[j] for j in range(i))
            solved.append((Fraction(column[i]) - rest) / Fraction(a[i, i]))
        exact.append([float(x) for x in solved])
    assert solve_triangle(a, b, "N", True, False)
    np.testing.assert_allclose(b, np.transpose(exact), rtol=1e-13)


def test_no_rows_and_no_columns_are_solved_by_nothing():
    for shape in ((0, 0), (0, 3), (2, 0)):
        assert solve_triangle(np.eye(shape[0]), np.zeros(shape), "N", True, False)


# ------------------------------------------------------------------ LU decomposition


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(
    "shape", [(5, 5), (6, 3), (3, 6), (1, 1), (2, 1), (0, 3), (3, 0), (40, 40)]
)
def test_an_lu_decomposition_is_that_of_the_matrix_with_its_rows_in_order(shape, dtype):
    rng = np.random.default_rng(2)
    a = rng.normal(size=shape).astype(dtype)
    if np.iscomplexobj(a):
        a += 1j * rng.normal(size=shape)
    factors = np.array(a, order="F")
    order = factor_lu(factors)
    count = min(shape)
    lower = np.tril(factors[:, :count], -1) + np.eye(shape[0], count)
    assert sorted(order) == list(range(shape[0]))
    np.testing.assert_allclose(lower @ np.triu(factors[:count]), a[order], atol=1e-13)
    # Each pivot was the largest of its column.
    sizes = np.abs(lower.real) + np.abs(lower.imag) if a.dtype.kind == "f" else np.abs(lower) / 1.5
    assert sizes.size == 0 or sizes.max() <= 1


def test_row_exchanges_of_32_bits_are_read_as_those_of_64(monkeypatch):
    library = lapack_library()
    getrf = library.functions["dgetrf"]

    def narrow(m, n, a, lda, exchanges, info):
        getrf(m, n, a, lda, exchanges, info)
        words = (module.ctypes.c_int64 * 4).from_address(exchanges)
        halves = (module.ctypes.c_int32 * 8).from_address(exchanges)
        halves[:] = [*words, 0, 0, 0, 0]

    a = np.array([[1.0, 2, 1, 0], [2, 0, 4, 1], [4, 8, 0, 1], [0, 1, 8, 2]], order="F")
    wanted = factor_lu(a.copy("F"))
    other = library._replace(functions={**library.functions, "dgetrf": narrow})
    monkeypatch.setattr(module, "lapack_library", lambda: other)
    np.testing.assert_array_equal(factor_lu(a), wanted)


def test_an_lu_decomposition_is_the_same_without_the_library(monkeypatch):
    rng = np.random.default_rng(3)
    for shape, dtype in (((12, 12), "d"), ((2, 9, 4), "D"), ((3, 7), "f"), ((30, 3, 3), "d")):
        a = rng.normal(size=shape).astype(dtype)
        found = ops.lu(a)
        with monkeypatch.context() as patch:
            patch.setattr(decompositions, "lapack_library", lambda: None)
            for one, other in zip(found, ops.lu(a), strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_allclose(one, other, atol=1e-5 if dtype == "f" else 1e-13)
