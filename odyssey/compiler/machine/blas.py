"""BLAS functions for programs: those of the library that NumPy itself calls.

Called by ``runtime.executable`` for addresses. Whatever the library, functions have one name and
one signature, that of CBLAS with 64-bit integers (``c`` and ``z`` take the addresses of their two
scalars)::

    void ody_sgemm(i32 order, i32 ta, i32 tb, i64 m, i64 n, i64 k,
                   float alpha, ptr a, i64 lda, ptr b, i64 ldb, float beta, ptr c, i64 ldc)
    void ody_sgemv(i32 order, i32 ta, i64 m, i64 n,
                   float alpha, ptr a, i64 lda, ptr x, i64 incx, float beta, ptr y, i64 incy)

Fortran functions, and on some platforms functions with 32-bit integers, are called by small
functions that convert arguments. A library is used only after it has multiplied small test matrices
correctly.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.machine.jit import Loaded, load
from odyssey.kernels.lapack_library import lapack_library, numpy_libraries, symbol_address

__all__ = [
    "COLUMNS",
    "NOT_TRANSPOSED",
    "ROWS",
    "TRANSPOSED",
    "blas_addresses",
    "lapack_addresses",
    "max_blas_size",
    "thread_setters",
]

ROWS, COLUMNS = 101, 102
"""Values of ``order``: row-major and column-major."""

NOT_TRANSPOSED, TRANSPOSED = 111, 112
"""Values of ``ta`` and ``tb``: whether a matrix is transposed."""

_NAMES = tuple(f"{letter}{function}" for function in ("gemm", "gemv") for letter in "sdcz")
_DTYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
_TYPES = {"s": "float", "d": "double", "c": "ptr", "z": "ptr"}


class _Source(NamedTuple):
    """Functions of a library.

    Attributes:
        addresses: Addresses by name.
        kind: Calling convention: C with 64-bit integers (``long``) or 32-bit ones (``short``), or
            arguments by reference (``fortran``).
        keep: Object that keeps the library loaded.
    """

    addresses: dict[str, int]
    kind: str
    keep: object


def blas_addresses() -> Mapping[str, int]:
    """Return addresses by name, such as ``"ody_sgemm"``; empty if no library is found.

    Raises:
        DeviceError: Arguments must be converted, and no code can be compiled here.
    """
    functions = _library_functions()
    return MappingProxyType(functions.addresses if functions else {})


def lapack_addresses() -> Mapping[str, int]:
    """Return addresses of Fortran functions by name, such as ``"ody_dpotrf"``; empty if none."""
    library = lapack_library()
    return {f"ody_{name}": at for name, at in library.addresses.items()} if library else {}


def max_blas_size() -> int:
    """Return the largest size or stride that the library's integers hold."""
    functions = _library_functions()
    return functions.largest if functions else 0


@cache
def thread_setters() -> tuple[int, int]:
    """Return addresses of ``int get()`` and ``void set(int)`` for the library's thread count.

    Zeros if the library is not OpenBLAS.
    """
    functions = _library_functions()
    library = functions.library if functions else None
    if library is None:
        return 0, 0
    for prefix, suffix in _SETTER_AFFIXES:
        getter = symbol_address(library, f"{prefix}openblas_get_num_threads{suffix}")
        setter = symbol_address(library, f"{prefix}openblas_set_num_threads{suffix}")
        if getter and setter:
            return getter, setter
    return 0, 0


_SETTER_AFFIXES = (("scipy_", "64_"), ("", "64_"), ("", "_64"), ("scipy_", ""), ("", ""))


@cache
def _library_functions() -> _BlasFunctions | None:
    """Return the library's functions; cached for the life of the process."""
    candidates = map(_BlasFunctions, _candidate_sources())
    return next((functions for functions in candidates if functions.are_correct()), None)


def _candidate_sources() -> Iterator[_Source]:
    """Iterate over the sources to try, NumPy's own library first."""
    for library in numpy_libraries():
        for prefix, suffix, kind in _SYMBOL_AFFIXES:
            addresses = {
                name: symbol_address(library, f"{prefix}{name}{suffix}") for name in _NAMES
            }
            if all(addresses.values()):
                yield _Source({n: a for n, a in addresses.items() if a}, kind, library)
    fortran = _scipy_source()
    if fortran is not None:
        yield fortran


# Prefix and suffix of the names of functions, and their calling convention.
_SYMBOL_AFFIXES = (
    ("scipy_cblas_", "64_", "long"),  # OpenBLAS of NumPy's wheels
    ("cblas_", "64_", "long"),
    ("cblas_", "_64", "long"),
    ("cblas_", "$NEWLAPACK$ILP64", "long"),  # Accelerate
    ("scipy_cblas_", "", "short"),
    ("cblas_", "$NEWLAPACK", "short"),
    ("cblas_", "", "short"),  # Debian, conda; MKL's integers may be either
)


# True if each integer argument has eight bytes of its own, so that a function with 32-bit integers
# reads the lower half. That holds everywhere but on Apple's ARM, which packs stack arguments.
# Some names do not tell the size of integers; 64-bit arguments then serve for both.
_EIGHT_BYTES = not (sys.platform == "darwin" and platform.machine() == "arm64")


def _scipy_source() -> _Source | None:
    """Return the functions that SciPy exports to Cython: Fortran with 32-bit integers."""
    try:
        module: Any = import_module("scipy.linalg.cython_blas")
        capsules = module.__pyx_capi__
        addresses = {name: _capsule_pointer(capsules[name]) for name in _NAMES}
    except (ImportError, OSError, AttributeError, KeyError, ValueError):
        return None
    return _Source(addresses, "fortran", module)


def _capsule_pointer(capsule: object) -> int:
    """Return the pointer in a capsule, read by the capsule's own name."""
    name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
        ("PyCapsule_GetName", ctypes.pythonapi)
    )(capsule)
    pointer: int | None = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )(capsule, name)
    assert pointer, "a capsule has a pointer"
    return pointer


class _BlasFunctions:
    """The functions of a source under the common signature."""

    def __init__(self, source: _Source) -> None:
        self.largest = 2**63 - 1 if source.kind == "long" else 2**31 - 1
        self._keep: list[object] = [source.keep]
        self.library = source.keep if isinstance(source.keep, ctypes.CDLL) else None
        self.addresses = {f"ody_{name}": a for name, a in source.addresses.items()}
        if source.kind == "long" or (source.kind == "short" and _EIGHT_BYTES):
            return
        shim = _int32_text if source.kind == "short" else _fortran_text
        outside = {f"blas_{name}": a for name, a in source.addresses.items()}
        program: Loaded = load("\n".join(shim(name) for name in _NAMES), outside)
        self._keep.append(program)
        self.addresses = {name: program.address(name) for name in self.addresses}

    def are_correct(self) -> bool:
        """Return whether all functions multiply test matrices correctly."""
        return all(_is_correct(name[4:], address) for name, address in self.addresses.items())


# ------------------------------------------------------------------ argument conversion


def _signature_text(name: str) -> str:
    """Return the head of a function's definition, with the common signature."""
    real = _TYPES[name[0]]
    if name.endswith("gemm"):
        return (
            f"define void @ody_{name}(i32 %order, i32 %ta, i32 %tb, i64 %m, i64 %n, i64 %k, "
            f"{real} %alpha, ptr %a, i64 %lda, ptr %b, i64 %ldb, {real} %beta, ptr %c, i64 %ldc)"
        )
    return (
        f"define void @ody_{name}(i32 %order, i32 %ta, i64 %m, i64 %n, "
        f"{real} %alpha, ptr %a, i64 %lda, ptr %x, i64 %incx, {real} %beta, ptr %y, i64 %incy)"
    )


def _sizes(name: str) -> tuple[str, ...]:
    if name.endswith("gemm"):
        return "m", "n", "k", "lda", "ldb", "ldc"
    return "m", "n", "lda", "incx", "incy"


def _int32_text(name: str) -> str:
    """Return a function with 64-bit integers that calls one with 32-bit integers."""
    real = _TYPES[name[0]]
    lines = [f"  %{size}.32 = trunc i64 %{size} to i32" for size in _sizes(name)]
    if name.endswith("gemm"):
        args = (
            "i32 %order, i32 %ta, i32 %tb, i32 %m.32, i32 %n.32, i32 %k.32, "
            f"{real} %alpha, ptr %a, i32 %lda.32, ptr %b, i32 %ldb.32, "
            f"{real} %beta, ptr %c, i32 %ldc.32"
        )
    else:
        args = (
            f"i32 %order, i32 %ta, i32 %m.32, i32 %n.32, {real} %alpha, ptr %a, i32 %lda.32, "
            f"ptr %x, i32 %incx.32, {real} %beta, ptr %y, i32 %incy.32"
        )
    return _forwarding_text(name, args, lines)


def _forwarding_text(name: str, args: str, lines: list[str]) -> str:
    types = ", ".join(part.split()[0] for part in args.split(", "))
    body = "\n".join([*lines, f"  call void @blas_{name}({args})", "  ret void"])
    return f"declare void @blas_{name}({types})\n{_signature_text(name)} {{\n{body}\n}}"


def _fortran_text(name: str) -> str:
    """Return a C function that calls a Fortran function.

    Fortran's matrices are column-major. A row-major matrix is its transpose there: C = A B is
    computed as Cᵀ = Bᵀ Aᵀ, and A x as a product with the transpose of Aᵀ.
    """
    lines = [f"  %rows = icmp eq i32 %order, {ROWS}"]
    real = _TYPES[name[0]]
    for size in _sizes(name):
        lines.append(f"  %{size}.32 = trunc i64 %{size} to i32")
        lines += [f"  %{size}.at = alloca i32", f"  store i32 %{size}.32, ptr %{size}.at"]
    for letter in ("ta", "tb") if name.endswith("gemm") else ("ta",):
        lines += _transpose_letter(letter)
    for scalar in ("alpha", "beta"):
        if real == "ptr":
            lines.append(f"  %{scalar}.at = getelementptr i8, ptr %{scalar}, i64 0")
        else:
            lines += [
                f"  %{scalar}.at = alloca {real}",
                f"  store {real} %{scalar}, ptr %{scalar}.at",
            ]
    if name.endswith("gemm"):
        swapped = [("ta.at", "tb.at"), ("m.at", "n.at"), ("a", "b"), ("lda.at", "ldb.at")]
        order = "ta.at~ tb.at~ m.at~ n.at~ k.at alpha.at a~ lda.at~ b~ ldb.at~ beta.at c ldc.at"
    else:
        lines += [
            "  %turned = select i1 %ta.plain, i8 84, i8 78",
            "  %first = select i1 %rows, i8 %turned, i8 %ta.letter",
            "  store i8 %first, ptr %ta.at",
        ]
        swapped = [("m.at", "n.at")]
        order = "ta.at m.at~ n.at~ alpha.at a lda.at x incx.at beta.at y incy.at"
    for one, other in swapped:
        lines.append(f"  %{one}~ = select i1 %rows, ptr %{other}, ptr %{one}")
        lines.append(f"  %{other}~ = select i1 %rows, ptr %{one}, ptr %{other}")
    args = ", ".join(f"ptr %{operand}" for operand in order.split())
    return _forwarding_text(name, args, lines).replace("~", ".chosen")


def _transpose_letter(name: str) -> list[str]:
    """Return instructions that convert a CBLAS transposition to its Fortran letter N, T or C."""
    return [
        f"  %{name}.plain = icmp eq i32 %{name}, {NOT_TRANSPOSED}",
        f"  %{name}.turned = icmp eq i32 %{name}, {TRANSPOSED}",
        f"  %{name}.other = select i1 %{name}.turned, i8 84, i8 67",
        f"  %{name}.letter = select i1 %{name}.plain, i8 78, i8 %{name}.other",
        f"  %{name}.at = alloca i8",
        f"  store i8 %{name}.letter, ptr %{name}.at",
    ]


# ------------------------------------------------------------------ test products

# Distinct sizes, and small integers, so that products are exact in any order of summation.
_M, _N, _K = 3, 2, 4

# By order: alpha, beta and the previous result. Row-major overwrites NaN; column-major adds twice
# the product to 3.
_TEST_SCALARS = {ROWS: (1, 0, np.nan), COLUMNS: (2, 1, 3)}


def _is_correct(name: str, address: int) -> bool:
    """Return whether a function multiplies matrices inside larger arrays correctly."""
    call = _ctypes_function(name, address)
    dtype = np.dtype(_DTYPES[name[0]])
    flags = (NOT_TRANSPOSED, TRANSPOSED)
    if name.endswith("gemv"):
        return all(_check_gemv(call, dtype, *choice) for choice in product(_TEST_SCALARS, flags))
    return all(_check_gemm(call, dtype, *choice) for choice in product(_TEST_SCALARS, flags, flags))


def _check_gemm(
    call: Callable[..., None], dtype: np.dtype[Any], order: int, ta: int, tb: int
) -> bool:
    a, lda = _test_matrix(_M, _K, dtype, order, ta)
    b, ldb = _test_matrix(_K, _N, dtype, order, tb)
    out, ldc = _test_matrix(_M, _N, dtype, order, NOT_TRANSPOSED)
    alpha, beta, previous = _TEST_SCALARS[order]
    out[...] = previous
    scalars = np.array([alpha, beta], dtype)
    first, second = _scalar_arguments(scalars)
    call(
        *(order, ta, tb, _M, _N, _K, first, a.ctypes.data, lda),
        *(b.ctypes.data, ldb, second, out.ctypes.data, ldc),
    )
    return np.array_equal(out, alpha * (a @ b) + (previous if beta else 0))


def _check_gemv(call: Callable[..., None], dtype: np.dtype[Any], order: int, ta: int) -> bool:
    a, lda = _test_matrix(_M, _K, dtype, order, ta)
    x = np.arange(1, 1 + 2 * _K).astype(dtype)[::2]
    if dtype.kind == "c":
        x.imag = 2 - np.arange(_K)
    out = np.zeros(3 * _M, dtype)[::3]
    alpha, beta, previous = _TEST_SCALARS[order]
    out[...] = previous
    sizes = (_M, _K) if ta == NOT_TRANSPOSED else (_K, _M)
    scalars = np.array([alpha, beta], dtype)
    first, second = _scalar_arguments(scalars)
    call(
        *(order, ta, *sizes, first, a.ctypes.data, lda),
        *(x.ctypes.data, 2, second, out.ctypes.data, 3),
    )
    return np.array_equal(out, alpha * (a @ x) + (previous if beta else 0))


def _test_matrix(
    rows: int, columns: int, dtype: np.dtype[Any], order: int, transposed: int
) -> tuple[np.ndarray[Any, Any], int]:
    """Return a matrix in a memory order, inside a larger one, and its leading dimension."""
    shape = (rows, columns) if transposed == NOT_TRANSPOSED else (columns, rows)
    larger = np.zeros([size + 2 for size in shape], dtype, "C" if order == ROWS else "F")
    matrix = larger[: shape[0], : shape[1]]
    matrix[...] = np.arange(1, 1 + matrix.size).reshape(shape)
    if dtype.kind == "c":
        matrix.imag = np.arange(matrix.size).reshape(shape)[::-1] - 2
    leading_dimension = max(larger.strides) // dtype.itemsize
    return (matrix if transposed == NOT_TRANSPOSED else matrix.T), leading_dimension


def _scalar_arguments(scalars: np.ndarray[Any, Any]) -> list[Any]:
    if scalars.dtype.kind != "c":
        return scalars.tolist()  # type: ignore[no-any-return]
    return [scalars[k:].ctypes.data_as(ctypes.c_void_p) for k in range(2)]


_C_TYPES: dict[str, Any] = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "ptr": ctypes.c_void_p,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
}


def _ctypes_function(name: str, address: int) -> Callable[..., None]:
    """Return a function as a Python callable, with the common signature."""
    head = _signature_text(name)
    parameters = head[head.index("(") + 1 : -1].split(", ")
    types = [_C_TYPES[parameter.split()[0]] for parameter in parameters]
    return ctypes.CFUNCTYPE(None, *types)(address)
