"""LAPACK functions of the library that NumPy itself calls, for kernels and compiled programs.

Fortran functions take all arguments by address, and their matrices are column-major. So one calling
convention serves all libraries, whatever the width of their integers: a scalar is a cell of 64
bits, of which a little-endian function with 32-bit integers reads the lower half, and nothing but
the library reads the row exchanges that it writes. Singles are computed in double precision, as
NumPy does. A library is used only after its functions have solved small test systems exactly.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.ownership import address_of
from odyssey.spec import Array

__all__ = [
    "LAPACK_ARGUMENTS",
    "LapackLibrary",
    "factor_lu",
    "lapack_library",
    "numpy_libraries",
    "solve_triangle",
    "symbol_address",
]

LAPACK_ARGUMENTS = {"trsm": 11, "trsv": 8, "potrf": 5, "getrf": 6, "getrs": 9}
"""Number of arguments by name of a function, without the letter of its dtype."""

_DTYPES = {"d": np.float64, "z": np.complex128}
_LETTERS = {np.dtype(dtype).char: letter for letter, dtype in _DTYPES.items()}


class LapackLibrary(NamedTuple):
    """Functions of a library.

    Attributes:
        addresses: Addresses by name, such as ``"dpotrf"``.
        functions: Python callables by name, which take addresses and release the GIL.
        keep: Object that keeps the library loaded.
    """

    addresses: dict[str, int]
    functions: dict[str, Any]
    keep: object


def numpy_libraries() -> Iterator[ctypes.CDLL]:
    """Iterate over libraries: NumPy's C module, whose handle finds what it is linked to; others."""
    paths = [Path(str(import_module("numpy._core._multiarray_umath").__file__))]
    if sys.platform == "win32":  # where a handle finds only its own symbols
        home = Path(np.__file__).parent
        paths += sorted((home.parent / "numpy.libs").glob("*openblas*.dll"))
    for path in paths:
        try:
            yield ctypes.CDLL(str(path))
        except OSError:
            continue


def symbol_address(library: ctypes.CDLL, name: str) -> int | None:
    """Return the address of a function of a library; None if it has none of that name."""
    try:
        return ctypes.cast(library[name], ctypes.c_void_p).value
    except AttributeError:
        return None


# Prefix and suffix of the names of functions.
_AFFIXES = (
    ("scipy_", "_64_"),  # OpenBLAS of NumPy's wheels
    ("", "_64_"),
    ("", "_64"),
    ("", "$NEWLAPACK$ILP64"),  # Accelerate
    ("scipy_", "_"),
    ("", "$NEWLAPACK"),
    ("", "_"),  # Debian, conda, MKL
)


@cache
def lapack_library() -> LapackLibrary | None:
    """Return the functions of NumPy's library, tested; None if it has not all, or one fails."""
    if sys.byteorder != "little":
        return None
    return next((found for found in _candidates() if _is_correct(found)), None)


def _candidates() -> Iterator[LapackLibrary]:
    for library in numpy_libraries():
        for prefix, suffix in _AFFIXES:
            addresses: dict[str, int] = {}
            for letter, name in product(_DTYPES, LAPACK_ARGUMENTS):
                address = symbol_address(library, f"{prefix}{letter}{name}{suffix}")
                if address is None:
                    break
                addresses[letter + name] = address
            else:
                functions = {name: _callable(name[1:], at) for name, at in addresses.items()}
                yield LapackLibrary(addresses, functions, library)


def _callable(name: str, address: int) -> Any:
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * LAPACK_ARGUMENTS[name])(address)


# ------------------------------------------------------------------ triangular systems


def solve_triangle(a: Array, x: Array, trans: str, lower: bool, unit_diagonal: bool) -> bool:
    """Solve ``op(a) @ x = b`` in place: ``x`` holds ``b`` first, and then the solution.

    The diagonal must not contain 0. Elements of ``a`` that are not read may be anything.

    Args:
        a: Square matrix of double precision, real or complex.
        x: C-contiguous matrix of the same dtype, with one row for each row of ``a``.
        trans: ``"N"``, ``"T"`` or ``"C"``: ``op(a)`` is ``a``, its transpose, or its adjoint.
        lower: Whether to read the lower triangle of ``a``.
        unit_diagonal: Whether to take the diagonal as ones.

    Returns:
        False, with ``x`` unchanged, if no library was found.
    """
    library = lapack_library()
    if library is None:
        return False
    if not x.size:
        return True
    n, columns = x.shape
    if not (a.flags.aligned and _is_row_major(a)):
        if a.flags.aligned and _is_row_major(a.T) and trans != "C":
            # The transpose is row-major.
            a, lower, trans = a.T, not lower, "T" if trans == "N" else "N"
        else:
            a = np.array(a, order="C")
    letter = _LETTERS[x.dtype.char]
    if trans == "C" and letter == "d":
        trans = "T"
    # Fortran sees the transposes of row-major matrices.
    triangle, diagonal = b"U" if lower else b"L", b"U" if unit_diagonal else b"N"
    step = max(a.strides[0] // a.itemsize, n) if n > 1 else n
    rows, lda = ctypes.c_int64(n), ctypes.c_int64(step)
    if columns == 1 and trans != "C":
        library.functions[f"{letter}trsv"](
            *(triangle, b"T" if trans == "N" else b"N", diagonal, ctypes.addressof(rows)),
            *(address_of(a), ctypes.addressof(lda), address_of(x), ctypes.addressof(_ONE)),
        )
        return True
    width = ctypes.c_int64(columns)
    library.functions[f"{letter}trsm"](
        *(b"R", triangle, trans.encode(), diagonal, ctypes.addressof(width)),
        *(ctypes.addressof(rows), _UNIT_ADDRESSES[letter], address_of(a)),
        *(ctypes.addressof(lda), address_of(x), ctypes.addressof(width)),
    )
    return True


_ONE = ctypes.c_int64(1)
_UNITS: dict[str, Array] = {letter: np.ones(1, dtype) for letter, dtype in _DTYPES.items()}
_UNIT_ADDRESSES = {letter: address_of(unit) for letter, unit in _UNITS.items()}


def _is_row_major(a: Array) -> bool:
    """Return whether Fortran can read the transpose of a matrix in place."""
    (rows, columns), (row, column) = a.shape, a.strides
    return (column == a.itemsize or columns == 1) and (
        rows == 1 or (row >= columns * a.itemsize and row % a.itemsize == 0)
    )


# ------------------------------------------------------------------ LU decomposition


def factor_lu(a: Array) -> Array | None:
    """Factor a matrix in place, with partial pivoting: both triangles share its memory.

    Args:
        a: Column-major matrix of double precision, real or complex.

    Returns:
        By row of the factors, the row of the matrix; None, with ``a`` unchanged, if no library was
        found.
    """
    library = lapack_library()
    if library is None:
        return None
    rows, columns = a.shape
    exchanges = np.zeros(min(rows, columns), np.int64)
    if a.size:
        cells = [ctypes.c_int64(size) for size in (rows, columns, rows, 0)]
        m, n, lda, info = map(ctypes.addressof, cells)
        library.functions[f"{_LETTERS[a.dtype.char]}getrf"](
            m, n, address_of(a), lda, address_of(exchanges), info
        )
        if len(exchanges) > 1 and not exchanges[-1]:  # integers of 32 bits fill one half
            exchanges = exchanges.view(np.int32)[: len(exchanges)]
    order = list(range(rows))
    for k, other in enumerate(exchanges.tolist()):
        order[k], order[other - 1] = order[other - 1], order[k]
    return np.array(order, np.int64)


# ------------------------------------------------------------------ test systems


def _is_correct(library: LapackLibrary) -> bool:
    """Return whether all functions compute small exact results correctly."""
    return all(
        _solves_triangles(library, letter)
        and _factors_positive(library, letter)
        and _factors_pivoted(library, letter)
        for letter in _DTYPES
    )


def _test_matrix(letter: str, rows: list[list[complex]]) -> tuple[Array, int]:
    """Return a column-major matrix inside a larger one, and its leading dimension."""
    matrix = np.array(rows) if letter == "z" else np.array(rows).real
    larger: Array = np.full((len(rows) + 2, len(rows[0])), 7, _DTYPES[letter], "F")
    larger[: len(rows)] = matrix
    return larger[: len(rows)], len(larger)


def _solves_triangles(library: LapackLibrary, letter: str) -> bool:
    """Solve systems with an upper triangle of powers of two, whose lower one is not read."""
    a, lda = _test_matrix(letter, [[2, 1 + 1j, 3], [np.nan, 4j + 2, 1], [np.nan, np.nan, 0.5]])
    a[1, 1] = 4j if letter == "z" else 4
    upper = np.triu(np.nan_to_num(a))
    solution, ldx = _test_matrix(letter, [[1, 2], [3, -1j + 1], [-2, 5]])
    cells = [ctypes.c_int64(k) for k in (3, 2, lda, ldx, 2)]
    three, two, step, step_x, apart = map(ctypes.addressof, cells)
    unit = _UNIT_ADDRESSES[letter]
    for trans, matrix in (("N", upper), ("T", upper.T), ("C", upper.conj().T)):
        x = np.array(np.vstack([matrix @ solution, np.zeros((2, 2))]), solution.dtype, order="F")
        library.functions[f"{letter}trsm"](
            *(b"L", b"U", trans.encode(), b"N", three, two, unit),
            *(a.ctypes.data, step, x.ctypes.data, step_x),
        )
        line = np.zeros(6, x.dtype)
        line[::2] = matrix @ solution[:, 0]
        library.functions[f"{letter}trsv"](
            b"U", trans.encode(), b"N", three, a.ctypes.data, step, line.ctypes.data, apart
        )
        if not (np.array_equal(x[:3], solution) and np.array_equal(line[::2], solution[:, 0])):
            return False
    return True


def _factors_positive(library: LapackLibrary, letter: str) -> bool:
    """Factor a positive definite matrix, and fail for an indefinite one."""
    factor, _ = _test_matrix(letter, [[2, 0, 0], [1 + 1j, 4, 0], [3, 1j, 1]])
    n, info = ctypes.c_int64(3), ctypes.c_int64(0)
    for triangle in "LU":
        lower = np.tril(factor) if triangle == "L" else np.triu(factor.T)
        positive = lower @ lower.conj().T if triangle == "L" else lower.conj().T @ lower
        for indefinite in (False, True):
            a = np.array(positive, order="F")
            if indefinite:
                a[2, 2] = 0
            lda = ctypes.c_int64(3)
            library.functions[f"{letter}potrf"](
                *(triangle.encode(), ctypes.addressof(n), a.ctypes.data),
                *(ctypes.addressof(lda), ctypes.addressof(info)),
            )
            if (ctypes.c_int32.from_address(ctypes.addressof(info)).value > 0) != indefinite:
                return False
            found = np.tril(a) if triangle == "L" else np.triu(a)
            if not (indefinite or np.array_equal(found, lower)):
                return False
    return True


def _factors_pivoted(library: LapackLibrary, letter: str) -> bool:
    """Solve systems whose rows LAPACK must exchange, and meet a singular matrix."""
    a, lda = _test_matrix(letter, [[1, 2, 1], [2, 0, 4], [4, 8, 0]])
    solution, ldx = _test_matrix(letter, [[1, 2], [3, -1j + 1], [-2, 5]])
    expected = np.array([[4, 8, 0], [0.5, -4, 4], [0.25, 0, 1]])
    cells = [ctypes.c_int64(k) for k in (3, 2, lda, ldx, 0)]
    n, columns, step, step_x, info = map(ctypes.addressof, cells)
    pivots = np.zeros(3, np.int64)
    singular = np.full((lda, 3), 1, a.dtype, "F")
    library.functions[f"{letter}getrf"](n, n, singular.ctypes.data, step, pivots.ctypes.data, info)
    if cells[-1].value <= 0:
        return False
    cells[-1].value = 0
    factors = np.array(np.vstack([a, np.zeros((2, 3))]), a.dtype, order="F")
    library.functions[f"{letter}getrf"](n, n, factors.ctypes.data, step, pivots.ctypes.data, info)
    if not np.array_equal(factors[:3], expected) or cells[-1].value:
        return False
    for trans, matrix in (("N", a), ("T", a.T)):
        x = np.array(np.vstack([matrix @ solution, np.zeros((2, 2))]), a.dtype, order="F")
        library.functions[f"{letter}getrs"](
            *(trans.encode(), n, columns, factors.ctypes.data, step, pivots.ctypes.data),
            *(x.ctypes.data, step_x, info),
        )
        if not np.array_equal(x[:3], solution):
            return False
    return True
