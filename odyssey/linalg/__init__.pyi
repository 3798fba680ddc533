"""Linear algebra: products of vectors and matrices, eigenvalues.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from collections.abc import Sequence
from typing import Any, overload

from odyssey.table.protocols import Tape
from odyssey.table.signatures import Array, ArrayOrScalar, Fold, Operand, Plain, Product, V

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
    """Conjugate transposes of matrices."""
@overload
def adjoint(x: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...
mH = adjoint

@overload
def block_diag(*arrays: V, tape: Tape | None = None) -> V:
    """The matrix that has matrices along its diagonal, and zeros elsewhere."""
@overload
def block_diag(*arrays: Array, tape: Tape | None = None) -> ArrayOrScalar: ...
@overload
def block_diag(*arrays: Operand, tape: Tape | None = None) -> Any: ...

@overload
def cho_solve(c_and_lower: Any, b: V, *, tape: Tape | None = None) -> V:
    """``x`` of ``a @ x = b``, of the Cholesky factor of ``a``."""
@overload
def cho_solve(c_and_lower: Any, b: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def cholesky(a: V, /, *, upper: bool = False, tape: Tape | None = None) -> V:
    """Cholesky's factors ``c`` of Hermitian positive definite matrices, ``a = c @ conj(c).T``."""
@overload
def cholesky(a: Plain, /, *, upper: bool = False, tape: Tape | None = None) -> Array: ...

@overload
def cofactor_slope(t: V, a: Operand, /, *, tape: Tape | None = None) -> V:
    """The derivative of ``cofactors(a)`` along ``t``, of which matrices may be singular."""
@overload
def cofactor_slope(t: Plain, a: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def cofactor_slope(t: Plain, a: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def cofactors(a: V, /, *, tape: Tape | None = None) -> V:
    """The cofactors of square matrices, by which ``det`` grows with each element."""
@overload
def cofactors(a: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def cond(x: V, p: Operand | None = None, *, tape: Tape | None = None) -> V:
    """Condition numbers of matrices: the norm of each times that of its inverse."""
@overload
def cond(x: Plain, p: V, *, tape: Tape | None = None) -> V: ...
@overload
def cond(x: Plain, p: Plain | None = None, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def contract(x: V, y: Operand, /, subscripts: str, *, tape: Tape | None = None) -> V:
    """Products summed over axes of both that the result lacks; letters name the axes."""
@overload
def contract(x: Plain, y: V, /, subscripts: str, *, tape: Tape | None = None) -> V: ...
@overload
def contract(
    x: Plain, y: Plain, /, subscripts: str, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def corrcoef(x: V, y: Operand | None = None, rowvar: bool = True, *, tape: Tape | None = None) -> V:
    """Correlations of variables, from observations of them: covariances over both deviations."""
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
    """Covariances of variables, from observations of them: a matrix."""
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
    """Cross product of vectors of three components, which stand along an axis of each."""
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
    """Matrices of zeros that have the vectors of an array on a diagonal."""
@overload
def diag_embed(
    x: Plain, offset: int = 0, axis1: int = -2, axis2: int = -1, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def dot(a: V, b: Operand, *, tape: Tape | None = None) -> V:
    """Product of matrices or vectors, or of numbers."""
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
def eigh(a: V, /, UPLO: str = "L", *, tape: Tape | None = None) -> tuple[V, V]:
    """Eigenvalues, rising, and eigenvectors, as columns, of Hermitian matrices."""
@overload
def eigh(a: Plain, /, UPLO: str = "L", *, tape: Tape | None = None) -> tuple[Array, Array]: ...

@overload
def eigvals(a: V, /, *, tape: Tape | None = None) -> V:
    """Eigenvalues of square matrices; complex, in no order."""
@overload
def eigvals(a: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def eigvalsh(a: V, /, UPLO: str = "L", *, tape: Tape | None = None) -> V:
    """Eigenvalues of Hermitian matrices, rising; ``eigh`` gives the eigenvectors as well."""
@overload
def eigvalsh(a: Plain, /, UPLO: str = "L", *, tape: Tape | None = None) -> Array: ...

@overload
def einsum(
    subscripts: Any, /, *operands: V, optimize: Any = "greedy", tape: Tape | None = None
) -> V:
    """Products of arrays summed over the axes that the result lacks; letters name the axes."""
@overload
def einsum(
    subscripts: Any, /, *operands: Array, optimize: Any = "greedy", tape: Tape | None = None
) -> ArrayOrScalar: ...
@overload
def einsum(
    subscripts: Any, /, *operands: Operand, optimize: Any = "greedy", tape: Tape | None = None
) -> Any: ...
euclidean_norm: Fold
"""Length of vectors, the root of the sum of ``|x|**2``, along an axis, several, or all."""

@overload
def expm(a: V, /, *, tape: Tape | None = None) -> V:
    """Exponentials of square matrices, the sums of their powers over factorials."""
@overload
def expm(a: Plain, /, *, tape: Tape | None = None) -> Array: ...
inner: Product
"""Products summed over the last axes of both."""

@overload
def inv(a: V, /, *, tape: Tape | None = None) -> V:
    """Inverses of square matrices; a singular one raises ``LinAlgError``."""
@overload
def inv(a: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def kron(a: V, b: Operand, *, tape: Tape | None = None) -> V:
    """Kronecker product: blocks, each of them ``b`` times an element of ``a``."""
@overload
def kron(a: Plain, b: V, *, tape: Tape | None = None) -> V: ...
@overload
def kron(a: Plain, b: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def least_squares(
    a: V, b: Operand, /, *, rcond: float | None = None, tape: Tape | None = None
) -> V:
    """The shortest ``x`` of those that make ``a @ x - b`` shortest; see ``lstsq``."""
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
    """Logarithms of determinants: NaN where a real one is negative, -inf where it is 0."""
@overload
def logdet(a: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def lstsq(a: V, b: Operand, rcond: float | None = None, *, tape: Tape | None = None) -> V:
    """The shortest ``x`` of those that make ``a @ x - b`` shortest."""
@overload
def lstsq(a: Plain, b: V, rcond: float | None = None, *, tape: Tape | None = None) -> V: ...
@overload
def lstsq(
    a: Plain, b: Plain, rcond: float | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def lu(a: V, /, *, tape: Tape | None = None) -> tuple[V, V, V]:
    """Factors of Gauss' elimination, ``a = p @ lower @ upper``, with the rows in another order."""
@overload
def lu(a: Plain, /, *, tape: Tape | None = None) -> tuple[Array, Array, Array]: ...
matmul: Product
"""Matrix product ``x @ y`` over the last two axes; vectors as in NumPy."""

@overload
def matrix_norm(
    x: V, /, *, keepdims: bool = False, ord: Any = "fro", tape: Tape | None = None
) -> V:
    """Norm of matrices, which are on the last two axes."""
@overload
def matrix_norm(
    x: Plain, /, *, keepdims: bool = False, ord: Any = "fro", tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def matrix_power(a: V, n: int, *, tape: Tape | None = None) -> V:
    """Products of square matrices with themselves."""
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
    """Ranks of matrices: how many singular values are above ``tol``, or ``rtol`` of the largest."""
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
    """Product of matrices, in the order that takes the fewest multiplications."""
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
    """Product of each element of ``a`` with each of ``b``."""
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
    """Pseudo-inverses, of Moore and Penrose: ``pinv(a) @ b`` are least squares of ``a @ x - b``."""
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
    """Orthonormal columns and an upper triangle, ``a = Q @ R``."""
@overload
def qr(a: Plain, mode: str = "reduced", *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def qr_factors(a: V, /, mode: str = "reduced", *, tape: Tape | None = None) -> tuple[V, V]:
    """``Q``, of orthonormal columns, and ``R``, an upper triangle, of ``a = Q @ R``; see ``qr``."""
@overload
def qr_factors(
    a: Plain, /, mode: str = "reduced", *, tape: Tape | None = None
) -> tuple[Array, Array]: ...

@overload
def slogdet(a: V, /, *, tape: Tape | None = None) -> tuple[V, V]:
    """Sign and logarithm of the size of determinants, which cannot overflow."""
@overload
def slogdet(a: Plain, /, *, tape: Tape | None = None) -> tuple[ArrayOrScalar, ArrayOrScalar]: ...

@overload
def solve(a: V, b: Operand, /, *, tape: Tape | None = None) -> V:
    """``x`` of ``a @ x = b``: square matrices, and a vector, or matrices of columns."""
@overload
def solve(a: Plain, b: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def solve(a: Plain, b: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def solve_or_nan(a: V, b: Operand, /, *, tape: Tape | None = None) -> V:
    """``x`` of ``a @ x = b``, as ``solve`` has it, but NaN where ``a`` is singular."""
@overload
def solve_or_nan(a: Plain, b: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def solve_or_nan(a: Plain, b: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def sqrtm(a: V, /, *, tape: Tape | None = None) -> V:
    """Square roots of matrices, ``out @ out = a``, whose eigenvalues have positive real parts."""
@overload
def sqrtm(a: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def svd(
    a: V,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """Singular values and vectors of matrices, ``a = (U * S) @ Vh``."""
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
    """Singular values and vectors of matrices, ``a = (U * S) @ Vh``; see ``svd``."""
@overload
def svd_factors(
    a: Plain, /, full_matrices: bool = True, *, tape: Tape | None = None
) -> tuple[Array, Array, Array]: ...

@overload
def svdvals(a: V, /, *, tape: Tape | None = None) -> V:
    """Singular values of matrices, falling."""
@overload
def svdvals(a: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def tensordot(
    a: V, b: Operand, axes: int | tuple[int, ...] | None = 2, *, tape: Tape | None = None
) -> V:
    """Products summed over axes of both."""
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
    """The inverse of what ``tensordot(a, x, x.ndim)`` does with ``x``."""
@overload
def tensorinv(a: Plain, ind: int = 2, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def tensorsolve(
    a: V, b: Operand, axes: Sequence[int] | None = None, *, tape: Tape | None = None
) -> V:
    """``x`` of ``tensordot(a, x, x.ndim) = b``."""
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
    """``x`` of ``a @ x = b``, of ``a`` a triangle alone: the upper one, or the ``lower`` one."""
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
vdot: Product
"""Inner product of all elements, those of ``a`` conjugated."""

@overload
def vecdot(x1: V, x2: Operand, /, *, axis: int = -1, tape: Tape | None = None) -> V:
    """Inner products of vectors along an axis, those of ``x1`` conjugated."""
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
    """Norm of vectors along an axis, several, or all."""
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
