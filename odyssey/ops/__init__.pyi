"""The ops: ``od.ops.<name>(arrays..., options..., tape=None)`` for every row of the table.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike

from odyssey.errors import OdysseyError
from odyssey.fft import *
from odyssey.linalg import *
from odyssey.nn import *
from odyssey.spec import Spec
from odyssey.special import *
from odyssey.table.declare import COMPOSITES, OPS, op
from odyssey.table.kernel_overrides import use_kernels
from odyssey.table.kernel_selection import Kernel
from odyssey.table.protocols import Tape
from odyssey.table.row import Row
from odyssey.table.scope import no_grad
from odyssey.table.signature import PASS
from odyssey.table.signatures import (
    Array,
    ArrayOrScalar,
    Binary,
    Fold,
    NanFold,
    Operand,
    Plain,
    Product,
    Scalar,
    Scattering,
    Stacking,
    Unary,
    V,
)
from odyssey.table.value import Symbol

__all__ = [
    "COMPOSITES",
    "OPS",
    "PASS",
    "Kernel",
    "Row",
    "Symbol",
    "no_grad",
    "op",
    "use_kernels",
]

absolute: Unary
"""Elementwise absolute value, ``|x|``."""
abs = absolute
add: Binary
"""Elementwise sum, ``x + y``."""

@overload
def add_along_axis(
    x: V, indices: Operand, /, *, axis: int | None = -1, spec: Spec, tape: Tape | None = None
) -> V:
    """Scatter-add ``x`` into zeros at the indices of ``take_along_axis``: its transpose."""
@overload
def add_along_axis(
    x: Plain, indices: V, /, *, axis: int | None = -1, spec: Spec, tape: Tape | None = None
) -> V: ...
@overload
def add_along_axis(
    x: Plain, indices: Plain, /, *, axis: int | None = -1, spec: Spec, tape: Tape | None = None
) -> Array: ...

@overload
def add_at(x: V, /, key: Any, spec: Spec, *, tape: Tape | None = None) -> V:
    """Scatter-add ``x`` into zeros at ``key``: the transpose of ``getitem``."""
@overload
def add_at(x: Plain, /, key: Any, spec: Spec, *, tape: Tape | None = None) -> Array: ...

@overload
def add_taken(
    x: V,
    indices: Operand,
    /,
    *,
    axis: int | None = None,
    mode: str = "raise",
    spec: Spec,
    tape: Tape | None = None,
) -> V:
    """Scatter-add ``x`` into zeros at the indices of ``take``: the transpose of ``take``."""
@overload
def add_taken(
    x: Plain,
    indices: V,
    /,
    *,
    axis: int | None = None,
    mode: str = "raise",
    spec: Spec,
    tape: Tape | None = None,
) -> V: ...
@overload
def add_taken(
    x: Plain,
    indices: Plain,
    /,
    *,
    axis: int | None = None,
    mode: str = "raise",
    spec: Spec,
    tape: Tape | None = None,
) -> Array: ...
all: Fold
"""Logical and over ``axis``: True if no element is 0; a constant."""

@overload
def angle(x: V, /, deg: bool = False, *, tape: Tape | None = None) -> V:
    """Elementwise angle of complex numbers, in radians from -pi to pi, or in degrees."""
@overload
def angle(x: Scalar, /, deg: bool = False, *, tape: Tape | None = None) -> Any: ...
@overload
def angle(x: Plain, /, deg: bool = False, *, tape: Tape | None = None) -> Array: ...
any: Fold
"""Logical or over ``axis``: True if any element is not 0; a constant."""

@overload
def append(arr: V, values: Operand, axis: int | None = None, *, tape: Tape | None = None) -> V:
    """Append values along an axis."""
@overload
def append(arr: Plain, values: V, axis: int | None = None, *, tape: Tape | None = None) -> V: ...
@overload
def append(
    arr: Plain, values: Plain, axis: int | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...
arccos: Unary
"""Elementwise angle whose cosine is ``x``, in radians."""
acos = arccos
arccosh: Unary
"""Elementwise inverse of the hyperbolic cosine, the one that is not negative."""
acosh = arccosh
arcsin: Unary
"""Elementwise angle whose sine is ``x``, in radians."""
asin = arcsin
arcsinh: Unary
"""Elementwise inverse of the hyperbolic sine."""
asinh = arcsinh
arctan: Unary
"""Elementwise angle whose tangent is ``x``, in radians."""
atan = arctan

@overload
def arctan2(y: V, x: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise angle of the point ``(x, y)``, in radians from -pi to pi."""
@overload
def arctan2(y: Plain, x: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def arctan2(y: Scalar, x: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def arctan2(y: Plain, x: Plain, /, *, tape: Tape | None = None) -> Array: ...
atan2 = arctan2
arctanh: Unary
"""Elementwise inverse of the hyperbolic tangent."""
atanh = arctanh

@overload
def argmax(
    x: V, /, axis: int | None = None, *, keepdims: bool = False, tape: Tape | None = None
) -> V:
    """Index of the first largest element over ``axis``, in row-major order by default."""
@overload
def argmax(
    x: Plain, /, axis: int | None = None, *, keepdims: bool = False, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def argmin(
    x: V, /, axis: int | None = None, *, keepdims: bool = False, tape: Tape | None = None
) -> V:
    """Index of the first smallest element over ``axis``, in row-major order by default."""
@overload
def argmin(
    x: Plain, /, axis: int | None = None, *, keepdims: bool = False, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def argpartition(
    a: V,
    kth: Any,
    axis: int | None = -1,
    kind: str = "introselect",
    order: None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Indices of the elements of ``partition``; a constant."""
@overload
def argpartition(
    a: Plain,
    kth: Any,
    axis: int | None = -1,
    kind: str = "introselect",
    order: None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def argsort(
    x: V,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    tape: Tape | None = None,
) -> V:
    """Indices that sort an array along an axis, in stable order; a constant."""
@overload
def argsort(
    x: Plain,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    tape: Tape | None = None,
) -> Array: ...

@overload
def argtopk(
    x: V, /, k: int, axis: int = -1, *, largest: bool = True, tape: Tape | None = None
) -> V:
    """Indices of the ``k`` largest elements along ``axis``, in descending order; a constant."""
@overload
def argtopk(
    x: Plain, /, k: int, axis: int = -1, *, largest: bool = True, tape: Tape | None = None
) -> Array: ...

@overload
def array(arrays: V | Sequence[V], *, tape: Tape | None = None) -> V:
    """Array from nested lists of Variables, arrays and numbers, as ``np.array``."""
@overload
def array(arrays: Array | Sequence[Array], *, tape: Tape | None = None) -> ArrayOrScalar: ...
@overload
def array(arrays: Operand | Sequence[object], *, tape: Tape | None = None) -> Any: ...

@overload
def array_split(
    ary: V, indices_or_sections: Any, axis: int = 0, *, tape: Tape | None = None
) -> list[V]:
    """Split into nearly equal sections along an axis; the first ones are longer."""
@overload
def array_split(
    ary: Plain, indices_or_sections: Any, axis: int = 0, *, tape: Tape | None = None
) -> list[Array]: ...

@overload
def astype(x: V, /, dtype: DTypeLike, *, tape: Tape | None = None) -> V:
    """Cast to another ``dtype``; complex to real keeps the real part."""
@overload
def astype(x: Plain, /, dtype: DTypeLike, *, tape: Tape | None = None) -> Array: ...

@overload
def atleast_1d(*arrays: V, tape: Tape | None = None) -> V:
    """View with at least one axis."""
@overload
def atleast_1d(*arrays: Array, tape: Tape | None = None) -> ArrayOrScalar: ...
@overload
def atleast_1d(*arrays: Operand, tape: Tape | None = None) -> Any: ...

@overload
def atleast_2d(*arrays: V, tape: Tape | None = None) -> V:
    """View with at least two axes; vectors become rows."""
@overload
def atleast_2d(*arrays: Array, tape: Tape | None = None) -> ArrayOrScalar: ...
@overload
def atleast_2d(*arrays: Operand, tape: Tape | None = None) -> Any: ...

@overload
def atleast_3d(*arrays: V, tape: Tape | None = None) -> V:
    """View with at least three axes; vectors along the second, matrices along the first two."""
@overload
def atleast_3d(*arrays: Array, tape: Tape | None = None) -> ArrayOrScalar: ...
@overload
def atleast_3d(*arrays: Operand, tape: Tape | None = None) -> Any: ...

@overload
def average(
    a: V,
    axis: int | tuple[int, ...] | None = None,
    weights: Operand | None = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V:
    """Weighted mean over axes: ``sum(a * weights) / sum(weights)``."""
@overload
def average(
    a: Plain,
    axis: int | tuple[int, ...] | None,
    weights: V,
    returned: bool = False,
    *,
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def average(
    a: Plain,
    axis: int | tuple[int, ...] | None = None,
    weights: Plain | None = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def bin_numbers(x: V, bins: Operand, /, *, right: bool = False, tape: Tape | None = None) -> V:
    """Bin numbers as by ``digitize``, for arrays."""
@overload
def bin_numbers(x: Plain, bins: V, /, *, right: bool = False, tape: Tape | None = None) -> V: ...
@overload
def bin_numbers(
    x: Plain, bins: Plain, /, *, right: bool = False, tape: Tape | None = None
) -> Array: ...

@overload
def binary_entropy(p: V, y: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise ``-(y log p + (1 - y) log(1 - p))`` for probabilities ``p``."""
@overload
def binary_entropy(p: Plain, y: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def binary_entropy(p: Scalar, y: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def binary_entropy(p: Plain, y: Plain, /, *, tape: Tape | None = None) -> Array: ...
binary_entropy_with_logits: Binary
"""Elementwise binary cross entropy of ``sigmoid(x)``, without overflow for any ``x``."""

@overload
def bincount(
    x: V, weights: Operand | None = None, minlength: int = 0, *, tape: Tape | None = None
) -> V:
    """Count of each integer, or the sum of the weights at each integer."""
@overload
def bincount(x: Plain, weights: V, minlength: int = 0, *, tape: Tape | None = None) -> V: ...
@overload
def bincount(
    x: Plain, weights: Plain | None = None, minlength: int = 0, *, tape: Tape | None = None
) -> ArrayOrScalar: ...
bitwise_and: Binary
"""Elementwise ``x & y``: and of booleans, or of the bits of integers; a constant."""
bitwise_or: Binary
"""Elementwise ``x | y``: or of booleans, or of the bits of integers; a constant."""
bitwise_xor: Binary
"""Elementwise ``x ^ y``: exclusive or of booleans, or of the bits of integers; a constant."""

@overload
def block(arrays: V | Sequence[V], *, tape: Tape | None = None) -> V:
    """Join nested lists of arrays: the innermost lists along the last axis, and so on outwards."""
@overload
def block(arrays: Array | Sequence[Array], *, tape: Tape | None = None) -> ArrayOrScalar: ...
@overload
def block(arrays: Operand | Sequence[object], *, tape: Tape | None = None) -> Any: ...

@overload
def broadcast_arrays(*args: V, tape: Tape | None = None) -> V:
    """Broadcast arrays to their common shape."""
@overload
def broadcast_arrays(*args: Array, tape: Tape | None = None) -> ArrayOrScalar: ...
@overload
def broadcast_arrays(*args: Operand, tape: Tape | None = None) -> Any: ...

@overload
def broadcast_to(x: V, /, shape: int | Sequence[int], *, tape: Tape | None = None) -> V:
    """Broadcast to a shape, along new axes and axes of length 1, without a copy."""
@overload
def broadcast_to(x: Plain, /, shape: int | Sequence[int], *, tape: Tape | None = None) -> Array: ...
cbrt: Unary
"""Elementwise cube root; of a negative number the negative one."""
ceil: Unary
"""Elementwise smallest integer that is not below ``x``."""

@overload
def choose(a: V, choices: V | Sequence[V], mode: str = "raise", *, tape: Tape | None = None) -> V:
    """Elementwise choice from a list of arrays, by an array of their indices."""
@overload
def choose(
    a: Plain, choices: Array | Sequence[Array], mode: str = "raise", *, tape: Tape | None = None
) -> ArrayOrScalar: ...
@overload
def choose(
    a: Operand,
    choices: Operand | Sequence[object],
    mode: str = "raise",
    *,
    tape: Tape | None = None,
) -> Any: ...

@overload
def clip(
    x: V,
    /,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    tape: Tape | None = None,
) -> V:
    """Elementwise ``x``, but ``a_min`` below it and ``a_max`` above it."""
@overload
def clip(
    x: Scalar,
    /,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    tape: Tape | None = None,
) -> Any: ...
@overload
def clip(
    x: Plain,
    /,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    tape: Tape | None = None,
) -> Array: ...
column_stack: Stacking
"""Stack vectors as the columns of a matrix; matrices are joined as they are."""

@overload
def compress(condition: V, a: Operand, axis: int | None = None, *, tape: Tape | None = None) -> V:
    """Slices along an axis for which a condition holds."""
@overload
def compress(condition: Plain, a: V, axis: int | None = None, *, tape: Tape | None = None) -> V: ...
@overload
def compress(
    condition: Plain, a: Plain, axis: int | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def concatenate(arrays: V | Sequence[V], /, axis: int | None = 0, *, tape: Tape | None = None) -> V:
    """Concatenate arrays along an axis."""
@overload
def concatenate(
    arrays: Array | Sequence[Array], /, axis: int | None = 0, *, tape: Tape | None = None
) -> Array: ...
@overload
def concatenate(
    arrays: Operand | Sequence[object], /, axis: int | None = 0, *, tape: Tape | None = None
) -> Any: ...
conj: Unary
"""Elementwise complex conjugate; real numbers pass through."""

@overload
def convolve(
    a: V, v: Operand, /, mode: str = "full", *, method: str = "auto", tape: Tape | None = None
) -> V:
    """Convolution of two sequences: ``sum(a[k] v[n - k])`` over k."""
@overload
def convolve(
    a: Plain, v: V, /, mode: str = "full", *, method: str = "auto", tape: Tape | None = None
) -> V: ...
@overload
def convolve(
    a: Plain, v: Plain, /, mode: str = "full", *, method: str = "auto", tape: Tape | None = None
) -> Array: ...

@overload
def copysign(x1: V, x2: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise ``|x1|`` with the sign of ``x2``, signed zeros included."""
@overload
def copysign(x1: Plain, x2: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def copysign(x1: Scalar, x2: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def copysign(x1: Plain, x2: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def correlate(
    a: V, v: Operand, mode: str = "valid", *, method: str = "auto", tape: Tape | None = None
) -> V:
    """Cross-correlation of two sequences: ``sum(a[n + k] conj(v[n]))`` over n, for each k."""
@overload
def correlate(
    a: Plain, v: V, mode: str = "valid", *, method: str = "auto", tape: Tape | None = None
) -> V: ...
@overload
def correlate(
    a: Plain, v: Plain, mode: str = "valid", *, method: str = "auto", tape: Tape | None = None
) -> ArrayOrScalar: ...
cos: Unary
"""Elementwise cosine of an angle in radians."""
cosh: Unary
"""Elementwise hyperbolic cosine."""

@overload
def cummax(x: V, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Cumulative maximum along an axis, and its indices, as ``torch.cummax``."""
@overload
def cummax(x: Plain, axis: int = -1, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def cummin(x: V, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Cumulative minimum along an axis, and its indices, as ``torch.cummin``."""
@overload
def cummin(x: Plain, axis: int = -1, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def cumprod(x: V, /, axis: int | None = None, *, tape: Tape | None = None) -> V:
    """Cumulative product along ``axis``, by default of all elements in row-major order."""
@overload
def cumprod(x: Plain, /, axis: int | None = None, *, tape: Tape | None = None) -> Array: ...

@overload
def cumsum(x: V, /, axis: int | None = None, *, tape: Tape | None = None) -> V:
    """Cumulative sum along ``axis``, by default of all elements in row-major order."""
@overload
def cumsum(x: Plain, /, axis: int | None = None, *, tape: Tape | None = None) -> Array: ...
deg2rad: Unary
"""Convert degrees to radians, elementwise."""
radians = deg2rad

@overload
def delete(arr: V, obj: Any, axis: int | None = None, *, tape: Tape | None = None) -> V:
    """Delete slices along an axis."""
@overload
def delete(
    arr: Plain, obj: Any, axis: int | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def demanded(
    x: V,
    holds: Operand,
    /,
    message: str,
    kind: type[OdysseyError] = ...,
    *,
    tape: Tape | None = None,
) -> V:
    """Return ``x`` if a condition holds everywhere; else raise ``kind`` with a message."""
@overload
def demanded(
    x: Plain, holds: V, /, message: str, kind: type[OdysseyError] = ..., *, tape: Tape | None = None
) -> V: ...
@overload
def demanded(
    x: Plain,
    holds: Plain,
    /,
    message: str,
    kind: type[OdysseyError] = ...,
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def diag(v: V, k: int = 0, *, tape: Tape | None = None) -> V:
    """Diagonal of a matrix, or matrix with a vector on its diagonal and zeros elsewhere."""
@overload
def diag(v: Plain, k: int = 0, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def diagonal(
    a: V, offset: int = 0, axis1: int = 0, axis2: int = 1, *, tape: Tape | None = None
) -> V:
    """Diagonal of each matrix spanned by two axes, on the last axis of the result."""
@overload
def diagonal(
    a: Plain, offset: int = 0, axis1: int = 0, axis2: int = 1, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def diff(
    a: V,
    n: int = 1,
    axis: int = -1,
    prepend: Any = None,
    append: Any = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Differences of neighbours along an axis, taken ``n`` times."""
@overload
def diff(
    a: Plain,
    n: int = 1,
    axis: int = -1,
    prepend: Any = None,
    append: Any = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def digitize(x: V, bins: Any, right: bool = False, *, tape: Tape | None = None) -> V:
    """Index of the bin that each element falls into; a constant."""
@overload
def digitize(
    x: Plain, bins: Any, right: bool = False, *, tape: Tape | None = None
) -> ArrayOrScalar: ...
direction: Binary
"""Elementwise ``x / hypot(x, y)``: the cosine of the angle of ``(x, y)``; 0 at the origin."""
divide: Binary
"""Elementwise quotient, ``x / y``; integers divide to floats."""
div = divide

@overload
def dsplit(ary: V, indices_or_sections: Any, *, tape: Tape | None = None) -> list[V]:
    """Split along the third axis."""
@overload
def dsplit(ary: Plain, indices_or_sections: Any, *, tape: Tape | None = None) -> list[Array]: ...
dstack: Stacking
"""Stack arrays along the third axis, which matrices and vectors get."""

@overload
def dynamic_slice(
    x: V, start_indices: Operand, /, slice_sizes: Any, *, tape: Tape | None = None
) -> V:
    """Slice of static sizes at ``start_indices``, clamped to the array."""
@overload
def dynamic_slice(
    x: Plain, start_indices: V, /, slice_sizes: Any, *, tape: Tape | None = None
) -> V: ...
@overload
def dynamic_slice(
    x: Plain, start_indices: Plain, /, slice_sizes: Any, *, tape: Tape | None = None
) -> Array: ...

@overload
def dynamic_update_slice(
    x: V, update: Operand, start_indices: Operand, /, *, tape: Tape | None = None
) -> V:
    """Copy of ``x`` with the slice at ``start_indices`` replaced by ``update``."""
@overload
def dynamic_update_slice(
    x: Plain, update: V, start_indices: Operand, /, *, tape: Tape | None = None
) -> V: ...
@overload
def dynamic_update_slice(
    x: Plain, update: Plain, start_indices: V, /, *, tape: Tape | None = None
) -> V: ...
@overload
def dynamic_update_slice(
    x: Plain, update: Plain, start_indices: Plain, /, *, tape: Tape | None = None
) -> Array: ...

@overload
def ediff1d(ary: V, to_end: Any = None, to_begin: Any = None, *, tape: Tape | None = None) -> V:
    """Differences of neighbours of the flattened array."""
@overload
def ediff1d(
    ary: Plain, to_end: Any = None, to_begin: Any = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...
equal: Binary
"""Elementwise ``x == y``; a constant."""
exp: Unary
"""Elementwise exponential, ``e ** x``."""
exp2: Unary
"""Elementwise power of two, ``2 ** x``."""

@overload
def expand_dims(a: V, axis: int | tuple[int, ...], *, tape: Tape | None = None) -> V:
    """Insert axes of length 1."""
@overload
def expand_dims(
    a: Plain, axis: int | tuple[int, ...], *, tape: Tape | None = None
) -> ArrayOrScalar: ...
expm1: Unary
"""Elementwise ``e ** x - 1``, exact near 0."""

@overload
def extract(condition: V, arr: Operand, *, tape: Tape | None = None) -> V:
    """Elements where a condition holds, both read in row-major order."""
@overload
def extract(condition: Plain, arr: V, *, tape: Tape | None = None) -> V: ...
@overload
def extract(condition: Plain, arr: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...
fabs: Unary
"""Elementwise absolute value of real numbers, as floating numbers."""
fix: Unary
"""Elementwise integer part, as ``trunc``: NumPy has both names."""

@overload
def flip(m: V, axis: int | tuple[int, ...] | None = None, *, tape: Tape | None = None) -> V:
    """Reverse the order of elements along axes."""
@overload
def flip(
    m: Plain, axis: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def fliplr(m: V, *, tape: Tape | None = None) -> V:
    """Reverse the order of columns, along the second axis."""
@overload
def fliplr(m: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def flipud(m: V, *, tape: Tape | None = None) -> V:
    """Reverse the order of rows, along the first axis."""
@overload
def flipud(m: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...
floor: Unary
"""Elementwise largest integer that is not above ``x``."""
floor_divide: Binary
"""Elementwise quotient rounded down, ``x // y``."""
fmax: Binary
"""Elementwise larger of two, ignoring NaN: beside a NaN, the other operand."""
fmin: Binary
"""Elementwise smaller of two, ignoring NaN: beside a NaN, the other operand."""
fmod: Binary
"""Elementwise remainder ``x - y * trunc(x / y)``, which has the sign of ``x``."""

@overload
def full_like(
    a: V,
    fill_value: Operand,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: Tape | None = None,
) -> V:
    """A number or array broadcast to the shape and dtype of another array."""
@overload
def full_like(
    a: Plain,
    fill_value: V,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def full_like(
    a: Plain,
    fill_value: Plain,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def gather(x: V, indices: Operand, *, axis: int, tape: Tape | None = None) -> V:
    """Elements at ``indices`` along an axis, each from its own line, as ``torch.gather``."""
@overload
def gather(x: Plain, indices: V, *, axis: int, tape: Tape | None = None) -> V: ...
@overload
def gather(x: Plain, indices: Plain, *, axis: int, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def getitem(x: V, /, key: Any, *, tape: Tape | None = None) -> V:
    """Elements ``x[key]`` for any key that NumPy accepts, as a new array."""
@overload
def getitem(x: Plain, /, key: Any, *, tape: Tape | None = None) -> Array: ...

@overload
def gradient(
    f: V,
    *varargs: Any,
    axis: int | tuple[int, ...] | None = None,
    edge_order: int = 1,
    tape: Tape | None = None,
) -> V:
    """Numerical gradient of sampled values: central differences, one-sided at the ends."""
@overload
def gradient(
    f: Plain,
    *varargs: Any,
    axis: int | tuple[int, ...] | None = None,
    edge_order: int = 1,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
greater: Binary
"""Elementwise ``x > y``; a constant."""
greater_equal: Binary
"""Elementwise ``x >= y``; a constant."""

@overload
def heaviside(x1: V, x2: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise step: 0 below 0, 1 above, and ``x2`` where ``x1`` is 0."""
@overload
def heaviside(x1: Plain, x2: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def heaviside(x1: Scalar, x2: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def heaviside(x1: Plain, x2: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def histogram(
    a: V,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: object = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Histogram: count, or sum of weights, of the elements in each bin."""
@overload
def histogram(
    a: Plain,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: object = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def hsplit(ary: V, indices_or_sections: Any, *, tape: Tape | None = None) -> list[V]:
    """Split horizontally: along the second axis, a vector along its only one."""
@overload
def hsplit(ary: Plain, indices_or_sections: Any, *, tape: Tape | None = None) -> list[Array]: ...
hstack: Stacking
"""Stack arrays horizontally: along the second axis, vectors along their only one."""
hypot: Binary
"""Elementwise length ``sqrt(x**2 + y**2)``, without overflow of the squares."""

@overload
def identity(x: V, /, *, tape: Tape | None = None) -> V:
    """Identity: the value itself, under a name of its own."""
@overload
def identity(x: Plain, /, *, tape: Tape | None = None) -> Array: ...
positive = identity
imag: Unary
"""Elementwise imaginary part; 0 for real numbers."""

@overload
def index_add(
    x: V, indices: Operand, source: Operand, *, axis: int, alpha: Any = 1, tape: Tape | None = None
) -> V:
    """Add the slices of ``source`` to ``x`` at ``indices`` of an axis, as ``torch.index_add``."""
@overload
def index_add(
    x: Plain, indices: V, source: Operand, *, axis: int, alpha: Any = 1, tape: Tape | None = None
) -> V: ...
@overload
def index_add(
    x: Plain, indices: Plain, source: V, *, axis: int, alpha: Any = 1, tape: Tape | None = None
) -> V: ...
@overload
def index_add(
    x: Plain, indices: Plain, source: Plain, *, axis: int, alpha: Any = 1, tape: Tape | None = None
) -> ArrayOrScalar: ...
index_copy: Scattering
"""Copy of ``x`` with the slices of ``source`` at ``indices``, as ``torch.index_copy``."""

@overload
def index_select(x: V, indices: Operand, *, axis: int, tape: Tape | None = None) -> V:
    """Slices at ``indices`` along an axis, as ``torch.index_select``; see also ``take``."""
@overload
def index_select(x: Plain, indices: V, *, axis: int, tape: Tape | None = None) -> V: ...
@overload
def index_select(
    x: Plain, indices: Plain, *, axis: int, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def insert(
    arr: V, obj: Any, values: Operand, axis: int | None = None, *, tape: Tape | None = None
) -> V:
    """Insert values before given indices along an axis."""
@overload
def insert(
    arr: Plain, obj: Any, values: V, axis: int | None = None, *, tape: Tape | None = None
) -> V: ...
@overload
def insert(
    arr: Plain, obj: Any, values: Plain, axis: int | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def interp(
    x: V,
    xp: Operand,
    fp: Operand,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Linear interpolation between points, in double precision as ``np.interp``."""
@overload
def interp(
    x: Plain,
    xp: V,
    fp: Operand,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def interp(
    x: Plain,
    xp: Plain,
    fp: V,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def interp(
    x: Plain,
    xp: Plain,
    fp: Plain,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
invert: Unary
"""Elementwise ``~x``: not of booleans, or of the bits of integers; a constant."""
isfinite: Unary
"""Elementwise test for a number that is neither infinite nor NaN; a constant."""
isinf: Unary
"""Elementwise test for infinity of either sign; a constant."""
isnan: Unary
"""Elementwise test for NaN; a constant."""

@overload
def keep_where(x: V, condition: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise ``x`` where ``condition`` holds, and 0 elsewhere, also for NaN and infinity."""
@overload
def keep_where(x: Plain, condition: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def keep_where(x: Scalar, condition: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def keep_where(x: Plain, condition: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def kthvalue(
    x: V, k: int, axis: int = -1, *, keepdims: bool = False, tape: Tape | None = None
) -> V:
    """The ``k``-th smallest element along an axis, and its index, as ``torch.kthvalue``."""
@overload
def kthvalue(
    x: Plain, k: int, axis: int = -1, *, keepdims: bool = False, tape: Tape | None = None
) -> ArrayOrScalar: ...
less: Binary
"""Elementwise ``x < y``; a constant."""
less_equal: Binary
"""Elementwise ``x <= y``; a constant."""

@overload
def linear_recurrence(
    x: V, factors: Operand, /, *, axis: int = -1, reverse: bool = False, tape: Tape | None = None
) -> V:
    """Linear recurrence along an axis: ``out[k] = x[k] + f[k] out[k - 1]``."""
@overload
def linear_recurrence(
    x: Plain, factors: V, /, *, axis: int = -1, reverse: bool = False, tape: Tape | None = None
) -> V: ...
@overload
def linear_recurrence(
    x: Plain, factors: Plain, /, *, axis: int = -1, reverse: bool = False, tape: Tape | None = None
) -> Array: ...

@overload
def linspace(
    start: V,
    stop: Operand,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    tape: Tape | None = None,
) -> V:
    """Evenly spaced numbers over an interval, with gradients in both ends."""
@overload
def linspace(
    start: Plain,
    stop: V,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def linspace(
    start: Plain,
    stop: Plain,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
log: Unary
"""Elementwise natural logarithm."""
log10: Unary
"""Elementwise logarithm to base 10."""
log1p: Unary
"""Elementwise natural logarithm of ``1 + x``, exact near 0."""
log2: Unary
"""Elementwise logarithm to base 2."""
logaddexp: Binary
"""Elementwise ``log(e**x + e**y)``, without overflow."""
logaddexp2: Binary
"""Elementwise ``log2(2**x + 2**y)``, without overflow."""

@overload
def logcumsumexp(x: V, /, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Logarithm of the cumulative sum of exponentials along ``axis``, without overflow."""
@overload
def logcumsumexp(x: Plain, /, axis: int = -1, *, tape: Tape | None = None) -> Array: ...
logical_and: Binary
"""Elementwise logical and; a constant."""
logical_not: Unary
"""Elementwise logical not; a constant."""
logical_or: Binary
"""Elementwise logical or; a constant."""
logical_xor: Binary
"""Elementwise logical exclusive or; a constant."""

@overload
def logsumexp(
    x: V,
    /,
    axis: int | tuple[int, ...] | None = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """Logarithm of the sum of exponentials over ``axis``, without overflow; -inf if it is empty."""
@overload
def logsumexp(
    x: Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def masked_fill(x: V, mask: Operand, value: Operand, *, tape: Tape | None = None) -> V:
    """Replace elements by a number where a mask holds, as ``torch.masked_fill``."""
@overload
def masked_fill(x: Plain, mask: V, value: Operand, *, tape: Tape | None = None) -> V: ...
@overload
def masked_fill(x: Plain, mask: Plain, value: V, *, tape: Tape | None = None) -> V: ...
@overload
def masked_fill(
    x: Plain, mask: Plain, value: Plain, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def masked_select(x: V, mask: Operand, *, tape: Tape | None = None) -> V:
    """Elements where a mask holds, on one axis, as ``torch.masked_select``."""
@overload
def masked_select(x: Plain, mask: V, *, tape: Tape | None = None) -> V: ...
@overload
def masked_select(x: Plain, mask: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def matrix_transpose(x: V, /, *, tape: Tape | None = None) -> V:
    """Swap the last two axes."""
@overload
def matrix_transpose(x: Plain, /, *, tape: Tape | None = None) -> Array: ...
max: Fold
"""Largest element over ``axis``, by default of all elements; NaN if one is NaN."""
maximum: Binary
"""Elementwise larger of two; NaN if either is."""
mean: Fold
"""Arithmetic mean over ``axis``, by default over all elements."""
median: Fold
"""Median over ``axis``: the middle element, or the mean of the two; NaN if one is NaN."""

@overload
def meshgrid(
    *xi: V, copy: bool = True, sparse: bool = False, indexing: str = "xy", tape: Tape | None = None
) -> V:
    """Coordinate arrays of a grid, from the coordinates along its axes."""
@overload
def meshgrid(
    *xi: Array,
    copy: bool = True,
    sparse: bool = False,
    indexing: str = "xy",
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
@overload
def meshgrid(
    *xi: Operand,
    copy: bool = True,
    sparse: bool = False,
    indexing: str = "xy",
    tape: Tape | None = None,
) -> Any: ...
min: Fold
"""Smallest element over ``axis``, by default of all elements; NaN if one is NaN."""
minimum: Binary
"""Elementwise smaller of two; NaN if either is."""
mod: Binary
"""Elementwise remainder ``x - y * floor(x / y)``, which has the sign of ``y``."""
remainder = mod

@overload
def moveaxis(a: V, source: Operand, destination: Any, *, tape: Tape | None = None) -> V:
    """Move axes to other positions; the others keep their order."""
@overload
def moveaxis(a: Plain, source: V, destination: Any, *, tape: Tape | None = None) -> V: ...
@overload
def moveaxis(
    a: Plain, source: Plain, destination: Any, *, tape: Tape | None = None
) -> ArrayOrScalar: ...
multiply: Binary
"""Elementwise product, ``x * y``."""
mul = multiply

@overload
def nan_to_num(
    x: V,
    /,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Elementwise ``x`` with NaN and infinity replaced, by default by 0 and the largest number."""
@overload
def nan_to_num(
    x: Scalar,
    /,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    tape: Tape | None = None,
) -> Any: ...
@overload
def nan_to_num(
    x: Plain,
    /,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def nancumprod(a: V, axis: int | None = None, *, tape: Tape | None = None) -> V:
    """Cumulative product along ``axis``, with NaN counted as 1."""
@overload
def nancumprod(a: Plain, axis: int | None = None, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def nancumsum(a: V, axis: int | None = None, *, tape: Tape | None = None) -> V:
    """Cumulative sum along ``axis``, with NaN counted as 0."""
@overload
def nancumsum(a: Plain, axis: int | None = None, *, tape: Tape | None = None) -> ArrayOrScalar: ...
nanmax: NanFold
"""Largest element over ``axis``, ignoring NaN; NaN if all elements are."""
nanmean: NanFold
"""Mean over ``axis``, ignoring NaN; NaN if nothing is left."""
nanmedian: NanFold
"""Median over ``axis``, ignoring NaN; NaN if all elements are."""
nanmin: NanFold
"""Smallest element over ``axis``, ignoring NaN; NaN if all elements are."""

@overload
def nanpercentile(
    a: V,
    q: Operand,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V:
    """Percentiles over ``axis``, ignoring NaN: ``nanquantile`` with ``q`` from 0 to 100."""
@overload
def nanpercentile(
    a: Plain,
    q: V,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def nanpercentile(
    a: Plain,
    q: Plain,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
nanprod: NanFold
"""Product over ``axis``, ignoring NaN; 1 if nothing is left."""

@overload
def nanquantile(
    a: V,
    q: Operand,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V:
    """Quantiles over ``axis``, ignoring NaN; NaN if all elements are."""
@overload
def nanquantile(
    a: Plain,
    q: V,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def nanquantile(
    a: Plain,
    q: Plain,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def nanstd(
    a: V,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V:
    """Standard deviation over ``axis``, ignoring NaN: the square root of ``nanvar``."""
@overload
def nanstd(
    a: Plain,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
nansum: NanFold
"""Sum over ``axis``, ignoring NaN; 0 if nothing is left."""

@overload
def nanvar(
    a: V,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V:
    """Variance over ``axis``, ignoring NaN; NaN if no more than ``ddof`` elements are left."""
@overload
def nanvar(
    a: Plain,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
negative: Unary
"""Elementwise negation, ``-x``."""
neg = negative
not_equal: Binary
"""Elementwise ``x != y``; a constant."""

@overload
def one_hot(
    indices: V,
    num_classes: int,
    *,
    dtype: DTypeLike = ...,
    axis: int = -1,
    tape: Tape | None = None,
) -> V:
    """One-hot encoding: ones at the given class indices and zeros elsewhere; a constant."""
@overload
def one_hot(
    indices: Plain,
    num_classes: int,
    *,
    dtype: DTypeLike = ...,
    axis: int = -1,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def ones_like(
    a: V,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: Tape | None = None,
) -> V:
    """Ones of the shape and dtype of another array; a constant."""
@overload
def ones_like(
    a: Plain,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def over_length(x: V, length: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise ``x / length`` for ``|x| <= length``; 0 where both are 0."""
@overload
def over_length(x: Plain, length: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def over_length(x: Scalar, length: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def over_length(x: Plain, length: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def pad(
    array: V,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
    tape: Tape | None = None,
) -> V:
    """Pad an array before and after, along each axis."""
@overload
def pad(
    array: Plain,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def partition(
    a: V,
    kth: Any,
    axis: int | None = -1,
    kind: str = "introselect",
    order: None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Partition: elements at ``kth`` are where ``sort`` puts them; here all are sorted."""
@overload
def partition(
    a: Plain,
    kth: Any,
    axis: int | None = -1,
    kind: str = "introselect",
    order: None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def percentile(
    x: V,
    /,
    q: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V:
    """Percentile ``q`` over ``axis``: ``quantile`` with ``q`` from 0 to 100."""
@overload
def percentile(
    x: Plain,
    /,
    q: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def philox_dropout(
    x: V, state: Operand, /, *, rate: float = 0.5, shared: int = 0, tape: Tape | None = None
) -> V:
    """Dropout: 0 where ``philox_uniform`` is below ``rate``, elsewhere ``x / (1 - rate)``."""
@overload
def philox_dropout(
    x: Plain, state: V, /, *, rate: float = 0.5, shared: int = 0, tape: Tape | None = None
) -> V: ...
@overload
def philox_dropout(
    x: Plain, state: Plain, /, *, rate: float = 0.5, shared: int = 0, tape: Tape | None = None
) -> Array: ...

@overload
def philox_gamma(
    state: V, concentration: Operand, /, *, shape: int | Sequence[int], tape: Tape | None = None
) -> V:
    """Random numbers of the gamma distribution with scale 1, from a generator's state."""
@overload
def philox_gamma(
    state: Plain, concentration: V, /, *, shape: int | Sequence[int], tape: Tape | None = None
) -> V: ...
@overload
def philox_gamma(
    state: Plain, concentration: Plain, /, *, shape: int | Sequence[int], tape: Tape | None = None
) -> Array: ...

@overload
def philox_integers(
    state: V,
    /,
    *,
    shape: int | Sequence[int],
    low: int = 0,
    high: int = 2,
    dtype: DTypeLike = ...,
    tape: Tape | None = None,
) -> V:
    """Uniform random integers from ``low`` up to ``high - 1``, from a generator's state."""
@overload
def philox_integers(
    state: Plain,
    /,
    *,
    shape: int | Sequence[int],
    low: int = 0,
    high: int = 2,
    dtype: DTypeLike = ...,
    tape: Tape | None = None,
) -> Array: ...

@overload
def philox_normal(
    state: V, /, *, shape: int | Sequence[int], dtype: DTypeLike = ..., tape: Tape | None = None
) -> V:
    """Standard normal random numbers, from a generator's state."""
@overload
def philox_normal(
    state: Plain, /, *, shape: int | Sequence[int], dtype: DTypeLike = ..., tape: Tape | None = None
) -> Array: ...

@overload
def philox_uniform(
    state: V, /, *, shape: int | Sequence[int], dtype: DTypeLike = ..., tape: Tape | None = None
) -> V:
    """Uniform random numbers in [0, 1), from a generator's state."""
@overload
def philox_uniform(
    state: Plain, /, *, shape: int | Sequence[int], dtype: DTypeLike = ..., tape: Tape | None = None
) -> Array: ...

@overload
def piecewise_linear(
    x: V,
    xp: Operand,
    fp: Operand,
    /,
    *,
    left: float | None = None,
    right: float | None = None,
    tape: Tape | None = None,
) -> V:
    """Linear interpolation of the points ``(xp, fp)`` at ``x``; outside them the end values."""
@overload
def piecewise_linear(
    x: Plain,
    xp: V,
    fp: Operand,
    /,
    *,
    left: float | None = None,
    right: float | None = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def piecewise_linear(
    x: Plain,
    xp: Plain,
    fp: V,
    /,
    *,
    left: float | None = None,
    right: float | None = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def piecewise_linear(
    x: Plain,
    xp: Plain,
    fp: Plain,
    /,
    *,
    left: float | None = None,
    right: float | None = None,
    tape: Tape | None = None,
) -> Array: ...

@overload
def polyval(p: V, x: Operand, *, tape: Tape | None = None) -> V:
    """Value of a polynomial at ``x``, by Horner's rule: ``p[0] x**(n - 1) + ... + p[n - 1]``."""
@overload
def polyval(p: Plain, x: V, *, tape: Tape | None = None) -> V: ...
@overload
def polyval(p: Plain, x: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...
power: Binary
"""Elementwise power, ``x ** y``."""
pow = power
power_log: Binary
"""Elementwise derivative of a power in its exponent, ``x ** y * log(x)``; 0 at ``x = 0``."""

@overload
def power_share(
    x: V, y: Operand, /, *, base: float = 2.718281828459045, tape: Tape | None = None
) -> V:
    """Elementwise ``base**x / (base**x + base**y)``, without overflow; 0 where both are -inf."""
@overload
def power_share(
    x: Plain, y: V, /, *, base: float = 2.718281828459045, tape: Tape | None = None
) -> V: ...
@overload
def power_share(
    x: Scalar, y: Scalar, /, *, base: float = 2.718281828459045, tape: Tape | None = None
) -> Any: ...
@overload
def power_share(
    x: Plain, y: Plain, /, *, base: float = 2.718281828459045, tape: Tape | None = None
) -> Array: ...
power_slope: Binary
"""Elementwise derivative of a power in its base, ``y * x ** (y - 1)``; 0 where ``y`` is 0."""
prod: Fold
"""Product over ``axis``, by default of all elements; 1 if there are none."""

@overload
def prod_others(
    x: V, /, axis: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> V:
    """Product of all other elements over ``axis``: the derivative of ``prod``."""
@overload
def prod_others(
    x: Plain, /, axis: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> Array: ...
ptp: NanFold
"""Range of values, ``max - min``, over axes."""

@overload
def put(a: V, ind: Operand, v: Operand, mode: str = "raise", *, tape: Tape | None = None) -> V:
    """Copy of ``a`` with ``v`` at flat indices; NumPy writes in place."""
@overload
def put(a: Plain, ind: V, v: Operand, mode: str = "raise", *, tape: Tape | None = None) -> V: ...
@overload
def put(a: Plain, ind: Plain, v: V, mode: str = "raise", *, tape: Tape | None = None) -> V: ...
@overload
def put(
    a: Plain, ind: Plain, v: Plain, mode: str = "raise", *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def put_along_axis(
    x: V, indices: Operand, values: Operand, /, axis: int | None = -1, *, tape: Tape | None = None
) -> V:
    """Copy of ``x`` with ``values`` where ``take_along_axis`` reads; NumPy writes in place."""
@overload
def put_along_axis(
    x: Plain, indices: V, values: Operand, /, axis: int | None = -1, *, tape: Tape | None = None
) -> V: ...
@overload
def put_along_axis(
    x: Plain, indices: Plain, values: V, /, axis: int | None = -1, *, tape: Tape | None = None
) -> V: ...
@overload
def put_along_axis(
    x: Plain, indices: Plain, values: Plain, /, axis: int | None = -1, *, tape: Tape | None = None
) -> Array: ...

@overload
def quantile(
    x: V,
    /,
    q: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> V:
    """Quantile ``q`` over ``axis``; NaN if an element is NaN."""
@overload
def quantile(
    x: Plain,
    /,
    q: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
rad2deg: Unary
"""Convert radians to degrees, elementwise."""
degrees = rad2deg

@overload
def random_bernoulli(
    shape: int | Sequence[int], *, p: V, rng: Any = None, tape: Tape | None = None
) -> V:
    """Random booleans, True with a probability."""
@overload
def random_bernoulli(
    shape: int | Sequence[int], *, p: Plain = 0.5, rng: Any = None, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def random_categorical(
    logits: V,
    *,
    axis: int = -1,
    shape: int | Sequence[int] | None = None,
    rng: Any = None,
    tape: Tape | None = None,
) -> V:
    """Random indices along an axis, with the probabilities ``softmax(logits, axis)``."""
@overload
def random_categorical(
    logits: Plain,
    *,
    axis: int = -1,
    shape: int | Sequence[int] | None = None,
    rng: Any = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

def random_exponential(
    shape: int | Sequence[int],
    *,
    scale: Any = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> ArrayOrScalar:
    """Random numbers of the exponential distribution."""

@overload
def random_gamma(
    shape: int | Sequence[int],
    *,
    concentration: V,
    scale: Any = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> V:
    """Random numbers of the gamma distribution, by the method of Marsaglia and Tsang (2000)."""
@overload
def random_gamma(
    shape: int | Sequence[int],
    *,
    concentration: Plain,
    scale: Any = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

def random_integers(
    shape: int | Sequence[int],
    *,
    low: int = 0,
    high: int,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> ArrayOrScalar:
    """Random integers uniformly distributed from ``low`` up to ``high - 1``."""

@overload
def random_normal(
    shape: int | Sequence[int],
    *,
    mean: V,
    std: Operand = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> V:
    """Random numbers normally distributed with a mean and a standard deviation."""
@overload
def random_normal(
    shape: int | Sequence[int],
    *,
    mean: Plain = 0.0,
    std: V,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def random_normal(
    shape: int | Sequence[int],
    *,
    mean: Plain = 0.0,
    std: Plain = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def random_permutation(x: V, *, axis: int = 0, rng: Any = None, tape: Tape | None = None) -> V:
    """Random order of the slices of an array, or of the integers below a number."""
@overload
def random_permutation(
    x: Plain, *, axis: int = 0, rng: Any = None, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def random_uniform(
    shape: int | Sequence[int],
    *,
    low: V,
    high: Operand = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> V:
    """Random numbers uniformly distributed in the interval ``[low, high)``."""
@overload
def random_uniform(
    shape: int | Sequence[int],
    *,
    low: Plain = 0.0,
    high: V,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def random_uniform(
    shape: int | Sequence[int],
    *,
    low: Plain = 0.0,
    high: Plain = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def ravel(a: V, order: str = "C", *, tape: Tape | None = None) -> V:
    """Flatten to one axis."""
@overload
def ravel(a: Plain, order: str = "C", *, tape: Tape | None = None) -> ArrayOrScalar: ...
real: Unary
"""Elementwise real part."""
reciprocal: Unary
"""Elementwise ``1 / x``; truncated to an integer for integers, as in NumPy."""

@overload
def repeat(a: V, repeats: Any, axis: int | None = None, *, tape: Tape | None = None) -> V:
    """Repeat each element."""
@overload
def repeat(
    a: Plain, repeats: Any, axis: int | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def reshape(
    x: V, /, shape: int | Sequence[int], order: str = "C", *, tape: Tape | None = None
) -> V:
    """Reshape, in row-major order by default; one length may be -1."""
@overload
def reshape(
    x: Plain, /, shape: int | Sequence[int], order: str = "C", *, tape: Tape | None = None
) -> Array: ...

@overload
def resize(a: V, new_shape: Any, *, tape: Tape | None = None) -> V:
    """Resize to a shape, repeating the elements from the first one on if necessary."""
@overload
def resize(a: Plain, new_shape: Any, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def reverse_cumsum(x: V, /, axis: int | None = None, *, tape: Tape | None = None) -> V:
    """Cumulative sum along ``axis`` from its end to its start, by default of all elements."""
@overload
def reverse_cumsum(x: Plain, /, axis: int | None = None, *, tape: Tape | None = None) -> Array: ...
rint: Unary
"""Elementwise nearest integer, ties to even."""

@overload
def roll(
    x: V, /, shift: Any, axis: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> V:
    """Shift elements circularly along ``axis``, by default in row-major order."""
@overload
def roll(
    x: Plain, /, shift: Any, axis: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> Array: ...

@overload
def rollaxis(a: V, axis: int, start: int = 0, *, tape: Tape | None = None) -> V:
    """Move one axis to before another; ``moveaxis`` is clearer."""
@overload
def rollaxis(a: Plain, axis: int, start: int = 0, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def rot90(m: V, k: int = 1, axes: tuple[int, int] = ..., *, tape: Tape | None = None) -> V:
    """Rotate matrices by 90 degrees ``k`` times, from the first of two axes towards the second."""
@overload
def rot90(
    m: Plain, k: int = 1, axes: tuple[int, int] = ..., *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def round(x: V, /, decimals: int = 0, *, tape: Tape | None = None) -> V:
    """Elementwise nearest number of ``decimals`` digits, ties to even."""
@overload
def round(x: Scalar, /, decimals: int = 0, *, tape: Tape | None = None) -> Any: ...
@overload
def round(x: Plain, /, decimals: int = 0, *, tape: Tape | None = None) -> Array: ...
rsqrt: Unary
"""Elementwise reciprocal of the square root, ``1 / sqrt(x)``."""

@overload
def running_argmax(x: V, /, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Index of the largest element so far, the last of equal ones; a constant."""
@overload
def running_argmax(x: Plain, /, axis: int = -1, *, tape: Tape | None = None) -> Array: ...

@overload
def running_argmin(x: V, /, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Index of the smallest element so far, the last of equal ones; a constant."""
@overload
def running_argmin(x: Plain, /, axis: int = -1, *, tape: Tape | None = None) -> Array: ...
scatter: Scattering
"""Copy of ``x`` with the elements of ``source`` at ``indices``, as ``torch.scatter``."""
scatter_add: Scattering
"""Add the elements of ``source`` to ``x`` at ``indices``, as ``torch.scatter_add``."""

@overload
def searchsorted(a: V, v: Operand, /, side: str = "left", *, tape: Tape | None = None) -> V:
    """Indices at which to insert ``v`` into the sorted ``a``; a constant."""
@overload
def searchsorted(a: Plain, v: V, /, side: str = "left", *, tape: Tape | None = None) -> V: ...
@overload
def searchsorted(
    a: Plain, v: Plain, /, side: str = "left", *, tape: Tape | None = None
) -> Array: ...

@overload
def segment_max(
    data: V, segment_ids: Operand, /, num_segments: int | None = None, *, tape: Tape | None = None
) -> V:
    """Maximum of each segment, see ``segment_sum``; -inf for an empty one."""
@overload
def segment_max(
    data: Plain, segment_ids: V, /, num_segments: int | None = None, *, tape: Tape | None = None
) -> V: ...
@overload
def segment_max(
    data: Plain, segment_ids: Plain, /, num_segments: int | None = None, *, tape: Tape | None = None
) -> Array: ...

@overload
def segment_mean(
    data: V, segment_ids: Operand, num_segments: int | None = None, *, tape: Tape | None = None
) -> V:
    """Mean of the slices of each segment; 0 for an empty segment."""
@overload
def segment_mean(
    data: Plain, segment_ids: V, num_segments: int | None = None, *, tape: Tape | None = None
) -> V: ...
@overload
def segment_mean(
    data: Plain, segment_ids: Plain, num_segments: int | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def segment_min(
    data: V, segment_ids: Operand, /, num_segments: int | None = None, *, tape: Tape | None = None
) -> V:
    """Minimum of each segment, see ``segment_sum``; inf for an empty one."""
@overload
def segment_min(
    data: Plain, segment_ids: V, /, num_segments: int | None = None, *, tape: Tape | None = None
) -> V: ...
@overload
def segment_min(
    data: Plain, segment_ids: Plain, /, num_segments: int | None = None, *, tape: Tape | None = None
) -> Array: ...

@overload
def segment_softmax(
    data: V, segment_ids: Operand, /, num_segments: int | None = None, *, tape: Tape | None = None
) -> V:
    """Softmax over the slices of each segment, as the attention of a graph's nodes over edges."""
@overload
def segment_softmax(
    data: Plain, segment_ids: V, /, num_segments: int | None = None, *, tape: Tape | None = None
) -> V: ...
@overload
def segment_softmax(
    data: Plain, segment_ids: Plain, /, num_segments: int | None = None, *, tape: Tape | None = None
) -> Array: ...

@overload
def segment_sum(
    data: V, segment_ids: Operand, num_segments: int | None = None, *, tape: Tape | None = None
) -> V:
    """Sum of the slices of each segment, as ``jax.ops.segment_sum``."""
@overload
def segment_sum(
    data: Plain, segment_ids: V, num_segments: int | None = None, *, tape: Tape | None = None
) -> V: ...
@overload
def segment_sum(
    data: Plain, segment_ids: Plain, num_segments: int | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def select(
    condlist: V | Sequence[V],
    choicelist: V | Sequence[V],
    default: Any = 0,
    *,
    tape: Tape | None = None,
) -> V:
    """Elementwise choice of the first array whose condition holds."""
@overload
def select(
    condlist: Array | Sequence[Array],
    choicelist: Array | Sequence[Array],
    default: Any = 0,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
@overload
def select(
    condlist: Operand | Sequence[object],
    choicelist: Operand | Sequence[object],
    default: Any = 0,
    *,
    tape: Tape | None = None,
) -> Any: ...

@overload
def setitem(x: V, v: Operand, /, key: Any, *, tape: Tape | None = None) -> V:
    """Copy of ``x`` in which ``x[key]`` is ``v``."""
@overload
def setitem(x: Plain, v: V, /, key: Any, *, tape: Tape | None = None) -> V: ...
@overload
def setitem(x: Plain, v: Plain, /, key: Any, *, tape: Tape | None = None) -> Array: ...
sign: Unary
"""Elementwise sign: -1, 0 or 1; ``x / |x|`` for complex numbers."""
sin: Unary
"""Elementwise sine of an angle in radians."""
sinc: Unary
"""Elementwise ``sin(pi x) / (pi x)``; 1 at 0."""

@overload
def sine_quotient(x: V, /, *, order: int, tape: Tape | None = None) -> V:
    """Elementwise spherical Bessel function of an order over ``x**order``: ``sin(x) / x`` for 0."""
@overload
def sine_quotient(x: Scalar, /, *, order: int, tape: Tape | None = None) -> Any: ...
@overload
def sine_quotient(x: Plain, /, *, order: int, tape: Tape | None = None) -> Array: ...
sinh: Unary
"""Elementwise hyperbolic sine."""

@overload
def softmax_cross_entropy(
    logits: V,
    targets: Operand,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: Tape | None = None,
) -> V:
    """Cross entropy of class indices or probabilities against the softmax of ``logits``."""
@overload
def softmax_cross_entropy(
    logits: Plain,
    targets: V,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def softmax_cross_entropy(
    logits: Plain,
    targets: Plain,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def softmax_cross_entropy_mass(
    targets: V,
    /,
    logits_spec: Spec,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: Tape | None = None,
) -> V:
    """Weight of each sample in ``softmax_cross_entropy``: its total target, over n for a mean."""
@overload
def softmax_cross_entropy_mass(
    targets: Plain,
    /,
    logits_spec: Spec,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def softmax_cross_entropy_slope(
    logits: V,
    targets: Operand,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: Tape | None = None,
) -> V:
    """Gradient of ``softmax_cross_entropy`` in the logits: softmax minus target, over n."""
@overload
def softmax_cross_entropy_slope(
    logits: Plain,
    targets: V,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def softmax_cross_entropy_slope(
    logits: Plain,
    targets: Plain,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def sort(
    x: V,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    tape: Tape | None = None,
) -> V:
    """Sort in ascending order along ``axis``, NaN last; None flattens first."""
@overload
def sort(
    x: Plain,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    tape: Tape | None = None,
) -> Array: ...

@overload
def split(ary: V, indices_or_sections: Any, axis: int = 0, *, tape: Tape | None = None) -> list[V]:
    """Split along an axis into equal sections, or at given indices."""
@overload
def split(
    ary: Plain, indices_or_sections: Any, axis: int = 0, *, tape: Tape | None = None
) -> list[Array]: ...
sqrt: Unary
"""Elementwise square root."""
square: Unary
"""Elementwise square, ``x * x``."""
squared_error_mean: Product
"""Mean of ``(x - y)**2`` over all elements of real arrays of one shape."""

@overload
def squeeze(a: V, axis: int | tuple[int, ...] | None = None, *, tape: Tape | None = None) -> V:
    """Remove axes of length 1."""
@overload
def squeeze(
    a: Plain, axis: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def stack(arrays: V | Sequence[V], axis: int = 0, *, tape: Tape | None = None) -> V:
    """Stack arrays of one shape along a new axis."""
@overload
def stack(
    arrays: Array | Sequence[Array], axis: int = 0, *, tape: Tape | None = None
) -> ArrayOrScalar: ...
@overload
def stack(
    arrays: Operand | Sequence[object], axis: int = 0, *, tape: Tape | None = None
) -> Any: ...

@overload
def std(
    x: V,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    tape: Tape | None = None,
) -> V:
    """Standard deviation over ``axis``: the square root of the variance."""
@overload
def std(
    x: Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
subtract: Binary
"""Elementwise difference, ``x - y``."""
sub = subtract
sum: Fold
"""Sum over ``axis``, by default over all elements."""

@overload
def sum_to(x: V, /, shape: int | Sequence[int], *, tape: Tape | None = None) -> V:
    """Sum to a shape that broadcasts to that of ``x``: the transpose of ``broadcast_to``."""
@overload
def sum_to(
    x: Plain, /, shape: int | Sequence[int], *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def swapaxes(a: V, axis1: int, axis2: int, *, tape: Tape | None = None) -> V:
    """Swap two axes."""
@overload
def swapaxes(a: Plain, axis1: int, axis2: int, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def take(
    x: V,
    indices: Operand,
    /,
    axis: int | None = None,
    *,
    mode: str = "raise",
    tape: Tape | None = None,
) -> V:
    """Elements at integer ``indices`` along ``axis``, by default of the flattened array."""
@overload
def take(
    x: Plain,
    indices: V,
    /,
    axis: int | None = None,
    *,
    mode: str = "raise",
    tape: Tape | None = None,
) -> V: ...
@overload
def take(
    x: Plain,
    indices: Plain,
    /,
    axis: int | None = None,
    *,
    mode: str = "raise",
    tape: Tape | None = None,
) -> Array: ...

@overload
def take_along_axis(
    x: V, indices: Operand, /, axis: int | None = -1, *, tape: Tape | None = None
) -> V:
    """Elements at ``indices`` along ``axis``, each from its own line of the array."""
@overload
def take_along_axis(
    x: Plain, indices: V, /, axis: int | None = -1, *, tape: Tape | None = None
) -> V: ...
@overload
def take_along_axis(
    x: Plain, indices: Plain, /, axis: int | None = -1, *, tape: Tape | None = None
) -> Array: ...
tan: Unary
"""Elementwise tangent of an angle in radians."""
tanh: Unary
"""Elementwise hyperbolic tangent."""

@overload
def tile(A: V, reps: Any, *, tape: Tape | None = None) -> V:
    """Repeat an array along its axes."""
@overload
def tile(A: Plain, reps: Any, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def topk(x: V, k: int, axis: int = -1, *, largest: bool = True, tape: Tape | None = None) -> V:
    """Largest elements along an axis, in descending order, and their indices, as ``torch.topk``."""
@overload
def topk(
    x: Plain, k: int, axis: int = -1, *, largest: bool = True, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def trace(
    a: V,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    *,
    tape: Tape | None = None,
) -> V:
    """Trace: sum along a diagonal of each matrix spanned by two axes."""
@overload
def trace(
    a: Plain,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def transpose(x: V, /, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None) -> V:
    """Permute the axes, by default in reverse order."""
@overload
def transpose(
    x: Plain, /, axes: int | tuple[int, ...] | None = None, *, tape: Tape | None = None
) -> Array: ...

@overload
def trapezoid(
    y: V, x: Operand | None = None, dx: Any = 1.0, axis: int = -1, *, tape: Tape | None = None
) -> V:
    """Integral along an axis by the trapezoidal rule."""
@overload
def trapezoid(y: Plain, x: V, dx: Any = 1.0, axis: int = -1, *, tape: Tape | None = None) -> V: ...
@overload
def trapezoid(
    y: Plain, x: Plain | None = None, dx: Any = 1.0, axis: int = -1, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def tril(m: V, k: int = 0, *, tape: Tape | None = None) -> V:
    """Lower triangles of matrices, with zeros above a diagonal, also in place of NaN."""
@overload
def tril(m: Plain, k: int = 0, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def triu(m: V, k: int = 0, *, tape: Tape | None = None) -> V:
    """Upper triangles of matrices, with zeros below a diagonal, also in place of NaN."""
@overload
def triu(m: Plain, k: int = 0, *, tape: Tape | None = None) -> ArrayOrScalar: ...
trunc: Unary
"""Elementwise integer part: ``x`` without its fraction."""

@overload
def unique(
    ar: V,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    tape: Tape | None = None,
) -> V:
    """Unique values, sorted; or unique slices along an axis."""
@overload
def unique(
    ar: Plain,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def unstack(x: V, *, axis: int = 0, tape: Tape | None = None) -> tuple[V, ...]:
    """Split an array into its slices along an axis, without that axis."""
@overload
def unstack(x: Plain, *, axis: int = 0, tape: Tape | None = None) -> tuple[Array, ...]: ...

@overload
def unwrap(
    p: V,
    discont: float | None = None,
    axis: int = -1,
    *,
    period: float = 6.283185307179586,
    tape: Tape | None = None,
) -> V:
    """Unwrap angles along an axis: add periods where neighbours are far apart."""
@overload
def unwrap(
    p: Plain,
    discont: float | None = None,
    axis: int = -1,
    *,
    period: float = 6.283185307179586,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def update_rows(
    buffer: V,
    rows: Operand,
    start: Operand,
    /,
    *,
    axis: int = -2,
    wrap: bool = False,
    tape: Tape | None = None,
) -> V:
    """Copy of ``buffer`` with ``rows`` written from position ``start`` on along ``axis``."""
@overload
def update_rows(
    buffer: Plain,
    rows: V,
    start: Operand,
    /,
    *,
    axis: int = -2,
    wrap: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def update_rows(
    buffer: Plain,
    rows: Plain,
    start: V,
    /,
    *,
    axis: int = -2,
    wrap: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def update_rows(
    buffer: Plain,
    rows: Plain,
    start: Plain,
    /,
    *,
    axis: int = -2,
    wrap: bool = False,
    tape: Tape | None = None,
) -> Array: ...

@overload
def vander(x: V, N: int | None = None, increasing: bool = False, *, tape: Tape | None = None) -> V:
    """Vandermonde matrix: each row has the powers of one number."""
@overload
def vander(
    x: Plain, N: int | None = None, increasing: bool = False, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def var(
    x: V,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    tape: Tape | None = None,
) -> V:
    """Variance over ``axis``: the sum of ``|x - mean|**2`` over the count less ``ddof``."""
@overload
def var(
    x: Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def vsplit(ary: V, indices_or_sections: Any, *, tape: Tape | None = None) -> list[V]:
    """Split vertically, along the first axis."""
@overload
def vsplit(ary: Plain, indices_or_sections: Any, *, tape: Tape | None = None) -> list[Array]: ...
vstack: Stacking
"""Stack arrays vertically, along the first axis; vectors are rows."""

@overload
def where(condition: V, x: Operand, y: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise choice, ``x`` where ``condition`` holds and ``y`` elsewhere."""
@overload
def where(condition: Plain, x: V, y: Operand, /, *, tape: Tape | None = None) -> V: ...
@overload
def where(condition: Plain, x: Plain, y: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def where(condition: Scalar, x: Scalar, y: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def where(condition: Plain, x: Plain, y: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def zeros_like(
    a: V,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: Tape | None = None,
) -> V:
    """Zeros of the shape and dtype of another array; a constant."""
@overload
def zeros_like(
    a: Plain,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
mH = adjoint
solve_triangular = triangular_solve
hardshrink = hard_shrink
softshrink = soft_shrink
hardsigmoid = hard_sigmoid
hardswish = hard_swish
hardtanh = hard_tanh
tanhshrink = tanh_shrink
expit = sigmoid
logsigmoid = log_sigmoid
log_expit = log_sigmoid
swish = silu
avgpool2d = avg_pool2d
global_avgpool2d = global_avg_pool2d
maxpool2d = max_pool2d
lgamma = gammaln
psi = digamma
