"""Linear algebra: products, linear systems, decompositions, norms and matrix functions.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from collections.abc import Sequence
from typing import Any, overload

from odyssey.table.protocols import Tape
from odyssey.table.signatures import (
    Array,
    ArrayOrScalar,
    Fold,
    MatrixFunction,
    Operand,
    Plain,
    Product,
    V,
)

__all__ = [
    "adjoint",
    "block_diag",
    "cho_solve",
    "cholesky",
    "cofactor_slope",
    "cofactors",
    "cond",
    "contract",
    "corrcoef",
    "cov",
    "cross",
    "det",
    "diag_embed",
    "dot",
    "eig",
    "eigenvalue_pullback",
    "eigh",
    "eigvals",
    "eigvalsh",
    "einsum",
    "euclidean_norm",
    "expm",
    "inner",
    "inv",
    "kron",
    "least_squares",
    "logdet",
    "lstsq",
    "lu",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "qr_factors",
    "singular_value_pullback",
    "slogdet",
    "solve",
    "solve_or_nan",
    "sqrtm",
    "svd",
    "svd_factors",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "triangular_solve",
    "vdot",
    "vecdot",
    "vector_norm",
]

@overload
def adjoint(x: V, *, tape: Tape | None = None) -> V:
    """Conjugate transpose of matrices."""
@overload
def adjoint(x: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...
mH = adjoint

@overload
def block_diag(*arrays: V, tape: Tape | None = None) -> V:
    """Block-diagonal matrix of the given matrices."""
@overload
def block_diag(*arrays: Array, tape: Tape | None = None) -> ArrayOrScalar: ...
@overload
def block_diag(*arrays: Operand, tape: Tape | None = None) -> Any: ...

@overload
def cho_solve(c_and_lower: Any, b: V, *, tape: Tape | None = None) -> V:
    """Solution ``x`` of ``a @ x = b``, given the Cholesky factor of ``a``."""
@overload
def cho_solve(c_and_lower: Any, b: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def cholesky(a: V, /, *, upper: bool = False, tape: Tape | None = None) -> V:
    """Cholesky decomposition of Hermitian positive definite matrices, ``a = c @ conj(c).T``."""
@overload
def cholesky(a: Plain, /, *, upper: bool = False, tape: Tape | None = None) -> Array: ...

@overload
def cofactor_slope(t: V, a: Operand, /, *, tape: Tape | None = None) -> V:
    """Derivative of ``cofactors(a)`` along ``t``; ``a`` may be singular."""
@overload
def cofactor_slope(t: Plain, a: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def cofactor_slope(t: Plain, a: Plain, /, *, tape: Tape | None = None) -> Array: ...
cofactors: MatrixFunction
"""Cofactors of square matrices, the gradient of ``det``."""

@overload
def cond(x: V, p: Operand | None = None, *, tape: Tape | None = None) -> V:
    """Condition number of matrices: the norm times the norm of the inverse."""
@overload
def cond(x: Plain, p: V, *, tape: Tape | None = None) -> V: ...
@overload
def cond(x: Plain, p: Plain | None = None, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def contract(x: V, y: Operand, /, subscripts: str, *, tape: Tape | None = None) -> V:
    """Contraction of two arrays: products summed over the axes missing from the result."""
@overload
def contract(x: Plain, y: V, /, subscripts: str, *, tape: Tape | None = None) -> V: ...
@overload
def contract(
    x: Plain, y: Plain, /, subscripts: str, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def corrcoef(x: V, y: Operand | None = None, rowvar: bool = True, *, tape: Tape | None = None) -> V:
    """Correlation matrix (Pearson): covariances divided by both standard deviations."""
@overload
def corrcoef(x: Plain, y: V, rowvar: bool = True, *, tape: Tape | None = None) -> V: ...
@overload
def corrcoef(
    x: Plain, y: Plain | None = None, rowvar: bool = True, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def cov(
    m: V,
    y: Operand | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Covariance matrix of variables, estimated from observations."""
@overload
def cov(
    m: Plain,
    y: V,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def cov(
    m: Plain,
    y: Plain | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def cross(
    x: V,
    y: Operand,
    /,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Cross product of vectors of three components along an axis of each array."""
@overload
def cross(
    x: Plain,
    y: V,
    /,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def cross(
    x: Plain,
    y: Plain,
    /,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def det(a: V, /, *, tape: Tape | None = None) -> V:
    """Determinants of square matrices."""
@overload
def det(a: Plain, /, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def diag_embed(
    x: V, offset: int = 0, axis1: int = -2, axis2: int = -1, *, tape: Tape | None = None
) -> V:
    """Matrices with the vectors of an array on a diagonal and zeros elsewhere."""
@overload
def diag_embed(
    x: Plain, offset: int = 0, axis1: int = -2, axis2: int = -1, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def dot(a: V, b: Operand, *, tape: Tape | None = None) -> V:
    """Dot product of vectors, matrices or numbers."""
@overload
def dot(a: Plain, b: V, *, tape: Tape | None = None) -> V: ...
@overload
def dot(a: Plain, b: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def eig(a: V, /, *, tape: Tape | None = None) -> tuple[V, V]:
    """Eigenvalues and eigenvectors, as columns, of square matrices; complex, in no order."""
@overload
def eig(a: Plain, /, *, tape: Tape | None = None) -> tuple[Array, Array]: ...

@overload
def eigenvalue_pullback(
    cotangent: V,
    a: Operand,
    /,
    UPLO: str = "L",
    *,
    solver: str = "eigh",
    constant: bool = False,
    tape: Tape | None = None,
) -> V:
    """VJP of the eigenvalues of Hermitian matrices ``a``, along their cotangent."""
@overload
def eigenvalue_pullback(
    cotangent: Plain,
    a: V,
    /,
    UPLO: str = "L",
    *,
    solver: str = "eigh",
    constant: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def eigenvalue_pullback(
    cotangent: Plain,
    a: Plain,
    /,
    UPLO: str = "L",
    *,
    solver: str = "eigh",
    constant: bool = False,
    tape: Tape | None = None,
) -> Array: ...

@overload
def eigh(a: V, /, UPLO: str = "L", *, tape: Tape | None = None) -> tuple[V, V]:
    """Eigenvalues, ascending, and eigenvectors, as columns, of Hermitian matrices."""
@overload
def eigh(a: Plain, /, UPLO: str = "L", *, tape: Tape | None = None) -> tuple[Array, Array]: ...
eigvals: MatrixFunction
"""Eigenvalues of square matrices; complex, in no order."""

@overload
def eigvalsh(a: V, /, UPLO: str = "L", *, tape: Tape | None = None) -> V:
    """Eigenvalues of Hermitian matrices, ascending; ``eigh`` returns the eigenvectors as well."""
@overload
def eigvalsh(a: Plain, /, UPLO: str = "L", *, tape: Tape | None = None) -> Array: ...

@overload
def einsum(
    subscripts: Any, /, *operands: V, optimize: Any = "greedy", tape: Tape | None = None
) -> V:
    """Einstein summation: products of arrays summed over the axes missing from the result."""
@overload
def einsum(
    subscripts: Any, /, *operands: Array, optimize: Any = "greedy", tape: Tape | None = None
) -> ArrayOrScalar: ...
@overload
def einsum(
    subscripts: Any, /, *operands: Operand, optimize: Any = "greedy", tape: Tape | None = None
) -> Any: ...
euclidean_norm: Fold
"""Euclidean norm, ``sqrt(sum(|x|**2))``, along one axis, several, or all."""
expm: MatrixFunction
"""Matrix exponential, ``sum(a**k / k!)`` over matrix powers."""

@overload
def inner(a: V, b: Operand, /, *, tape: Tape | None = None) -> V:
    """Inner product: products summed over the last axes of both operands."""
@overload
def inner(a: Plain, b: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def inner(a: Plain, b: Plain, /, *, tape: Tape | None = None) -> ArrayOrScalar: ...
inv: MatrixFunction
"""Inverses of square matrices; a singular one raises ``LinAlgError``."""

@overload
def kron(a: V, b: Operand, *, tape: Tape | None = None) -> V:
    """Kronecker product: blocks of ``b`` times each element of ``a``."""
@overload
def kron(a: Plain, b: V, *, tape: Tape | None = None) -> V: ...
@overload
def kron(a: Plain, b: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def least_squares(
    a: V, b: Operand, /, *, rcond: float | None = None, tape: Tape | None = None
) -> V:
    """Minimum-norm least-squares solution of ``a @ x = b``; see ``lstsq``."""
@overload
def least_squares(
    a: Plain, b: V, /, *, rcond: float | None = None, tape: Tape | None = None
) -> V: ...
@overload
def least_squares(
    a: Plain, b: Plain, /, *, rcond: float | None = None, tape: Tape | None = None
) -> Array: ...

@overload
def logdet(a: V, *, tape: Tape | None = None) -> V:
    """Logarithms of determinants: NaN for a negative real determinant, -inf for 0."""
@overload
def logdet(a: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def lstsq(a: V, b: Operand, rcond: float | None = None, *, tape: Tape | None = None) -> V:
    """Minimum-norm least-squares solution of ``a @ x = b``."""
@overload
def lstsq(a: Plain, b: V, rcond: float | None = None, *, tape: Tape | None = None) -> V: ...
@overload
def lstsq(
    a: Plain, b: Plain, rcond: float | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def lu(a: V, /, *, tape: Tape | None = None) -> tuple[V, V, V]:
    """LU decomposition with partial pivoting, ``a = p @ lower @ upper``."""
@overload
def lu(a: Plain, /, *, tape: Tape | None = None) -> tuple[Array, Array, Array]: ...
matmul: Product
"""Matrix product ``x @ y`` over the last two axes; vectors as in NumPy."""

@overload
def matrix_norm(
    x: V, /, *, keepdims: bool = False, ord: Any = "fro", tape: Tape | None = None
) -> V:
    """Matrix norm over the last two axes."""
@overload
def matrix_norm(
    x: Plain, /, *, keepdims: bool = False, ord: Any = "fro", tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def matrix_power(a: V, n: int, *, tape: Tape | None = None) -> V:
    """Powers of square matrices."""
@overload
def matrix_power(a: Plain, n: int, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def matrix_rank(
    a: V,
    /,
    tol: float | None = None,
    hermitian: bool = False,
    *,
    rtol: float | None = None,
    tape: Tape | None = None,
) -> V:
    """Matrix rank: the number of singular values above ``tol``, or ``rtol`` times the largest."""
@overload
def matrix_rank(
    a: Plain,
    /,
    tol: float | None = None,
    hermitian: bool = False,
    *,
    rtol: float | None = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def multi_dot(arrays: V | Sequence[V], *, tape: Tape | None = None) -> V:
    """Product of several matrices in the order with the fewest multiplications."""
@overload
def multi_dot(arrays: Array | Sequence[Array], *, tape: Tape | None = None) -> ArrayOrScalar: ...
@overload
def multi_dot(arrays: Operand | Sequence[object], *, tape: Tape | None = None) -> Any: ...

@overload
def norm(
    x: V,
    ord: Any = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """Norm of a matrix or a vector, or of many."""
@overload
def norm(
    x: Plain,
    ord: Any = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def outer(a: V, b: Operand, *, tape: Tape | None = None) -> V:
    """Outer product: each element of ``a`` times each element of ``b``."""
@overload
def outer(a: Plain, b: V, *, tape: Tape | None = None) -> V: ...
@overload
def outer(a: Plain, b: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def pinv(
    a: V,
    /,
    rcond: float | None = None,
    hermitian: bool = False,
    *,
    rtol: float | None = None,
    tape: Tape | None = None,
) -> V:
    """Moore–Penrose pseudo-inverse; ``pinv(a) @ b`` minimizes ``norm(a @ x - b)``."""
@overload
def pinv(
    a: Plain,
    /,
    rcond: float | None = None,
    hermitian: bool = False,
    *,
    rtol: float | None = None,
    tape: Tape | None = None,
) -> Array: ...

@overload
def qr(a: V, mode: str = "reduced", *, tape: Tape | None = None) -> V:
    """QR decomposition ``a = Q @ R``: orthonormal columns and an upper triangle."""
@overload
def qr(a: Plain, mode: str = "reduced", *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def qr_factors(a: V, /, mode: str = "reduced", *, tape: Tape | None = None) -> tuple[V, V]:
    """QR decomposition ``a = Q @ R``: orthonormal columns and an upper triangle; see ``qr``."""
@overload
def qr_factors(
    a: Plain, /, mode: str = "reduced", *, tape: Tape | None = None
) -> tuple[Array, Array]: ...

@overload
def singular_value_pullback(
    cotangent: V,
    a: Operand,
    /,
    *,
    solver: str = "values",
    constant: bool = False,
    tape: Tape | None = None,
) -> V:
    """VJP of the singular values of matrices ``a``, along their cotangent."""
@overload
def singular_value_pullback(
    cotangent: Plain,
    a: V,
    /,
    *,
    solver: str = "values",
    constant: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def singular_value_pullback(
    cotangent: Plain,
    a: Plain,
    /,
    *,
    solver: str = "values",
    constant: bool = False,
    tape: Tape | None = None,
) -> Array: ...

@overload
def slogdet(a: V, /, *, tape: Tape | None = None) -> tuple[V, V]:
    """Sign and logarithm of the absolute value of determinants; it cannot overflow."""
@overload
def slogdet(a: Plain, /, *, tape: Tape | None = None) -> tuple[ArrayOrScalar, ArrayOrScalar]: ...

@overload
def solve(a: V, b: Operand, /, *, tape: Tape | None = None) -> V:
    """Solution ``x`` of the linear system ``a @ x = b`` with square matrices ``a``."""
@overload
def solve(a: Plain, b: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def solve(a: Plain, b: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def solve_or_nan(a: V, b: Operand, /, *, tape: Tape | None = None) -> V:
    """Solution ``x`` of ``a @ x = b`` as by ``solve``, but NaN for singular matrices."""
@overload
def solve_or_nan(a: Plain, b: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def solve_or_nan(a: Plain, b: Plain, /, *, tape: Tape | None = None) -> Array: ...
sqrtm: MatrixFunction
"""Principal square root of matrices, ``out @ out = a``."""

@overload
def svd(
    a: V,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """Singular value decomposition, ``a = (U * S) @ Vh``."""
@overload
def svd(
    a: Plain,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def svd_factors(a: V, /, full_matrices: bool = True, *, tape: Tape | None = None) -> tuple[V, V, V]:
    """Singular value decomposition, ``a = (U * S) @ Vh``; see ``svd``."""
@overload
def svd_factors(
    a: Plain, /, full_matrices: bool = True, *, tape: Tape | None = None
) -> tuple[Array, Array, Array]: ...
svdvals: MatrixFunction
"""Singular values of matrices, descending."""

@overload
def tensordot(
    a: V, b: Operand, axes: int | tuple[int, ...] | None = 2, *, tape: Tape | None = None
) -> V:
    """Tensor product of arrays, summed over pairs of axes."""
@overload
def tensordot(
    a: Plain, b: V, axes: int | tuple[int, ...] | None = 2, *, tape: Tape | None = None
) -> V: ...
@overload
def tensordot(
    a: Plain, b: Plain, axes: int | tuple[int, ...] | None = 2, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def tensorinv(a: V, ind: int = 2, *, tape: Tape | None = None) -> V:
    """Inverse of the linear map ``x -> tensordot(a, x, x.ndim)``."""
@overload
def tensorinv(a: Plain, ind: int = 2, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def tensorsolve(
    a: V, b: Operand, axes: Sequence[int] | None = None, *, tape: Tape | None = None
) -> V:
    """Solution ``x`` of the tensor equation ``tensordot(a, x, x.ndim) = b``."""
@overload
def tensorsolve(
    a: Plain, b: V, axes: Sequence[int] | None = None, *, tape: Tape | None = None
) -> V: ...
@overload
def tensorsolve(
    a: Plain, b: Plain, axes: Sequence[int] | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def triangular_solve(
    a: V,
    b: Operand,
    /,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """Solution ``x`` of ``a @ x = b``, reading only the upper, or ``lower``, triangle of ``a``."""
@overload
def triangular_solve(
    a: Plain,
    b: V,
    /,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def triangular_solve(
    a: Plain,
    b: Plain,
    /,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    *,
    tape: Tape | None = None,
) -> Array: ...
solve_triangular = triangular_solve

@overload
def vdot(a: V, b: Operand, /, *, tape: Tape | None = None) -> V:
    """Inner product of all elements, with ``a`` conjugated."""
@overload
def vdot(a: Plain, b: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def vdot(a: Plain, b: Plain, /, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def vecdot(x1: V, x2: Operand, /, *, axis: int = -1, tape: Tape | None = None) -> V:
    """Inner product of vectors along an axis, with ``x1`` conjugated."""
@overload
def vecdot(x1: Plain, x2: V, /, *, axis: int = -1, tape: Tape | None = None) -> V: ...
@overload
def vecdot(
    x1: Plain, x2: Plain, /, *, axis: int = -1, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def vector_norm(
    x: V,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: float = 2,
    tape: Tape | None = None,
) -> V:
    """Vector norm along one axis, several, or all."""
@overload
def vector_norm(
    x: Plain,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: float = 2,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
