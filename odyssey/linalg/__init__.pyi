"""Linear algebra: products of vectors and matrices, eigenvalues.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from typing import Any, overload

from odyssey.table.protocols import Tape
from odyssey.table.signatures import Array, ArrayOrScalar, Operand, Plain, Product, V

__all__ = [
    "contract",
    "corrcoef",
    "cov",
    "cross",
    "dot",
    "eigh",
    "eigvalsh",
    "einsum",
    "inner",
    "kron",
    "matmul",
    "outer",
    "tensordot",
    "vdot",
]

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
def dot(a: V, b: Operand, *, tape: Tape | None = None) -> V:
    """Product of matrices or vectors, or of numbers."""
@overload
def dot(a: Plain, b: V, *, tape: Tape | None = None) -> V: ...
@overload
def dot(a: Plain, b: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def eigh(a: V, /, UPLO: str = "L", *, tape: Tape | None = None) -> tuple[V, V]:
    """Eigenvalues, rising, and eigenvectors, as columns, of Hermitian matrices."""
@overload
def eigh(a: Plain, /, UPLO: str = "L", *, tape: Tape | None = None) -> tuple[Array, Array]: ...

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
inner: Product
"""Products summed over the last axes of both."""

@overload
def kron(a: V, b: Operand, *, tape: Tape | None = None) -> V:
    """Kronecker product: blocks, each of them ``b`` times an element of ``a``."""
@overload
def kron(a: Plain, b: V, *, tape: Tape | None = None) -> V: ...
@overload
def kron(a: Plain, b: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...
matmul: Product
"""Matrix product ``x @ y`` over the last two axes; vectors as in NumPy."""

@overload
def outer(a: V, b: Operand, *, tape: Tape | None = None) -> V:
    """Product of each element of ``a`` with each of ``b``."""
@overload
def outer(a: Plain, b: V, *, tape: Tape | None = None) -> V: ...
@overload
def outer(a: Plain, b: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

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
vdot: Product
"""Inner product of all elements, those of ``a`` conjugated."""
