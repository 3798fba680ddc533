"""LAPACK functions of NumPy's library: how they are found, tested, and called."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from odyssey.kernels import lapack_library as module
from odyssey.kernels.lapack_library import LAPACK_ARGUMENTS, lapack_library, solve_triangle

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
    wide = np.full((2 * len(matrix), 3 * len(matrix)), np.nan, matrix.dtype)
    wide[::2, ::3] = matrix
    part = np.full((len(matrix) + 1, len(matrix) + 2), np.nan, matrix.dtype)
    part[1:, 2:] = matrix
    return {
        "rows": matrix.copy(),
        "columns": np.asfortranarray(matrix),
        "a part": part[1:, 2:],
        "columns of a part": np.asfortranarray(part)[1:, 2:],
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
