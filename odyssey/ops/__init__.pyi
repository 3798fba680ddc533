"""The ops: ``od.ops.<name>(arrays..., options..., tape=None)``, with their types.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from odyssey.spec import Spec
from odyssey.table.declare import COMPOSITES, OPS, op
from odyssey.table.meaning import Kernel
from odyssey.table.row import PASS, Row
from odyssey.table.scope import no_grad
from odyssey.table.value import Symbol
from odyssey.tape import GradientTape
from odyssey.variable import Variable

__all__ = [
    "COMPOSITES",
    "OPS",
    "PASS",
    "Kernel",
    "Row",
    "Symbol",
    "no_grad",
    "op",
]

_Scalar: TypeAlias = complex | np.generic
_Array: TypeAlias = NDArray[Any]
# No protocol, as NumPy's ArrayLike is: a Variable can become an array, and must not fit.
_Plain: TypeAlias = _Array | _Scalar | Sequence[Any]
_Operand: TypeAlias = Variable | _Plain
_ArrayOrScalar: TypeAlias = NDArray[Any] | Any

@overload
def absolute(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise absolute value, ``|x|``."""
@overload
def absolute(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def absolute(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
abs = absolute

@overload
def add(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise sum, ``x + y``."""
@overload
def add(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def add(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def add(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def add_along_axis(
    x: Variable,
    indices: _Operand,
    /,
    *,
    axis: int | None = -1,
    spec: Spec,
    tape: GradientTape | None = None,
) -> Variable:
    """Zeros of the shape of ``spec`` with ``x`` added where ``take_along_axis`` reads."""
@overload
def add_along_axis(
    x: _Plain,
    indices: Variable,
    /,
    *,
    axis: int | None = -1,
    spec: Spec,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def add_along_axis(
    x: _Plain,
    indices: _Plain,
    /,
    *,
    axis: int | None = -1,
    spec: Spec,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def add_at(x: Variable, /, key: Any, spec: Spec, *, tape: GradientTape | None = None) -> Variable:
    """Zeros of the shape of ``spec`` with ``x`` added at ``key``; repeated places add up."""
@overload
def add_at(x: _Plain, /, key: Any, spec: Spec, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def add_taken(
    x: Variable,
    indices: _Operand,
    /,
    *,
    axis: int | None = None,
    mode: str = "raise",
    spec: Spec,
    tape: GradientTape | None = None,
) -> Variable:
    """Zeros of the shape of ``spec`` with ``x`` added where ``take`` reads; repeats add up."""
@overload
def add_taken(
    x: _Plain,
    indices: Variable,
    /,
    *,
    axis: int | None = None,
    mode: str = "raise",
    spec: Spec,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def add_taken(
    x: _Plain,
    indices: _Plain,
    /,
    *,
    axis: int | None = None,
    mode: str = "raise",
    spec: Spec,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def all(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Whether every element over ``axis`` is not 0; True of nothing; a constant."""
@overload
def all(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def angle(x: Variable, /, deg: bool = False, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise angle of complex numbers, in radians from -pi to pi, or in degrees."""
@overload
def angle(x: _Scalar, /, deg: bool = False, *, tape: GradientTape | None = None) -> Any: ...
@overload
def angle(x: _Plain, /, deg: bool = False, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def any(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Whether an element over ``axis`` is not 0; False of nothing; a constant."""
@overload
def any(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def append(
    arr: Variable,
    values: _Operand,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """An array with values behind it."""
@overload
def append(
    arr: _Plain,
    values: Variable,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def append(
    arr: _Plain,
    values: _Plain,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def arccos(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise angle whose cosine is ``x``, in radians."""
@overload
def arccos(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def arccos(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
acos = arccos

@overload
def arccosh(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise inverse of the hyperbolic cosine, the one that is not negative."""
@overload
def arccosh(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def arccosh(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
acosh = arccosh

@overload
def arcsin(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise angle whose sine is ``x``, in radians."""
@overload
def arcsin(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def arcsin(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
asin = arcsin

@overload
def arcsinh(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise inverse of the hyperbolic sine."""
@overload
def arcsinh(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def arcsinh(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
asinh = arcsinh

@overload
def arctan(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise angle whose tangent is ``x``, in radians."""
@overload
def arctan(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def arctan(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
atan = arctan

@overload
def arctan2(y: Variable, x: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise angle of the point ``(x, y)``, in radians from -pi to pi."""
@overload
def arctan2(y: _Plain, x: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def arctan2(y: _Scalar, x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def arctan2(y: _Plain, x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
atan2 = arctan2

@overload
def arctanh(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise inverse of the hyperbolic tangent."""
@overload
def arctanh(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def arctanh(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
atanh = arctanh

@overload
def argmax(
    x: Variable,
    /,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Index of the first largest element over ``axis``, in row-major order by default."""
@overload
def argmax(
    x: _Plain,
    /,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def argmin(
    x: Variable,
    /,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Index of the first smallest element over ``axis``, in row-major order by default."""
@overload
def argmin(
    x: _Plain,
    /,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def argsort(
    x: Variable,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    tape: GradientTape | None = None,
) -> Variable:
    """Where the elements of a sorted array stood; equal ones in their order; a constant."""
@overload
def argsort(
    x: _Plain,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def array(arrays: Variable | Sequence[Variable], *, tape: GradientTape | None = None) -> Variable:
    """Variables, arrays and numbers in nested lists, joined as ``np.array`` joins numbers."""
@overload
def array(
    arrays: _Array | Sequence[_Array],
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...
@overload
def array(arrays: _Operand | Sequence[object], *, tape: GradientTape | None = None) -> Any: ...

@overload
def array_split(
    ary: Variable,
    indices_or_sections: Any,
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> list[Variable]:
    """The array in parts along an axis, the first ones longer where they cannot be equal."""
@overload
def array_split(
    ary: _Plain,
    indices_or_sections: Any,
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> list[_Array]: ...

@overload
def astype(x: Variable, /, dtype: DTypeLike, *, tape: GradientTape | None = None) -> Variable:
    """The same numbers in another ``dtype``; complex to real keeps the real part."""
@overload
def astype(x: _Plain, /, dtype: DTypeLike, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def atleast_1d(*arrays: Variable, tape: GradientTape | None = None) -> Variable:
    """The same elements, a number on one axis."""
@overload
def atleast_1d(*arrays: _Array, tape: GradientTape | None = None) -> _ArrayOrScalar: ...
@overload
def atleast_1d(*arrays: _Operand, tape: GradientTape | None = None) -> Any: ...

@overload
def atleast_2d(*arrays: Variable, tape: GradientTape | None = None) -> Variable:
    """The same elements on two axes or more; vectors as rows."""
@overload
def atleast_2d(*arrays: _Array, tape: GradientTape | None = None) -> _ArrayOrScalar: ...
@overload
def atleast_2d(*arrays: _Operand, tape: GradientTape | None = None) -> Any: ...

@overload
def atleast_3d(*arrays: Variable, tape: GradientTape | None = None) -> Variable:
    """The same elements on three axes or more; vectors along the second, matrices the first two."""
@overload
def atleast_3d(*arrays: _Array, tape: GradientTape | None = None) -> _ArrayOrScalar: ...
@overload
def atleast_3d(*arrays: _Operand, tape: GradientTape | None = None) -> Any: ...

@overload
def binary_entropy(p: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``-(y log p + (1 - y) log(1 - p))`` for probabilities ``p``."""
@overload
def binary_entropy(p: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def binary_entropy(p: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def binary_entropy(p: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def binary_entropy_with_logits(
    x: Variable,
    y: _Operand,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Elementwise binary cross entropy of ``sigmoid(x)``, without overflow for any ``x``."""
@overload
def binary_entropy_with_logits(
    x: _Plain,
    y: Variable,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def binary_entropy_with_logits(
    x: _Scalar,
    y: _Scalar,
    /,
    *,
    tape: GradientTape | None = None,
) -> Any: ...
@overload
def binary_entropy_with_logits(
    x: _Plain,
    y: _Plain,
    /,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def bitwise_and(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x & y``: and of booleans, or of the bits of integers; a constant."""
@overload
def bitwise_and(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def bitwise_and(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def bitwise_and(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def bitwise_or(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x | y``: or of booleans, or of the bits of integers; a constant."""
@overload
def bitwise_or(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def bitwise_or(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def bitwise_or(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def bitwise_xor(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x ^ y``: exclusive or of booleans, or of the bits of integers; a constant."""
@overload
def bitwise_xor(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def bitwise_xor(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def bitwise_xor(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def broadcast_to(
    x: Variable,
    /,
    shape: int | Sequence[int],
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """The value repeated along new axes and axes of length 1, without copying."""
@overload
def broadcast_to(
    x: _Plain,
    /,
    shape: int | Sequence[int],
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def cbrt(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise cube root; of a negative number the negative one."""
@overload
def cbrt(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def cbrt(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def ceil(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise smallest integer that is not below ``x``."""
@overload
def ceil(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def ceil(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def clip(
    x: Variable,
    /,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    tape: GradientTape | None = None,
) -> Variable:
    """Elementwise ``x``, but ``a_min`` below it and ``a_max`` above it; bounds are static."""
@overload
def clip(
    x: _Scalar,
    /,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    tape: GradientTape | None = None,
) -> Any: ...
@overload
def clip(
    x: _Plain,
    /,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def column_stack(
    tup: Variable | Sequence[Variable],
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Vectors beside one another as the columns of a matrix; matrices as they are."""
@overload
def column_stack(
    tup: _Array | Sequence[_Array],
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...
@overload
def column_stack(tup: _Operand | Sequence[object], *, tape: GradientTape | None = None) -> Any: ...

@overload
def concatenate(
    arrays: Variable | Sequence[Variable],
    *more: Any,
    axis: int | tuple[int, ...] | None = 0,
    tape: GradientTape | None = None,
) -> Variable:
    """Arrays one after the other along an axis."""
@overload
def concatenate(
    arrays: _Array | Sequence[_Array],
    *more: Any,
    axis: int | tuple[int, ...] | None = 0,
    tape: GradientTape | None = None,
) -> _Array: ...
@overload
def concatenate(
    arrays: _Operand | Sequence[object],
    *more: Any,
    axis: int | tuple[int, ...] | None = 0,
    tape: GradientTape | None = None,
) -> Any: ...

@overload
def conj(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise complex conjugate; real numbers pass through."""
@overload
def conj(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def conj(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def contract(
    x: Variable,
    y: _Operand,
    /,
    subscripts: str,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Products summed over axes of both that the result lacks; letters name the axes."""
@overload
def contract(
    x: _Plain,
    y: Variable,
    /,
    subscripts: str,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def contract(
    x: _Plain,
    y: _Plain,
    /,
    subscripts: str,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def cos(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise cosine of an angle in radians."""
@overload
def cos(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def cos(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def cosh(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise hyperbolic cosine."""
@overload
def cosh(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def cosh(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def cross(
    x: Variable,
    y: _Operand,
    /,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Cross product of vectors of three components, which stand along an axis of each."""
@overload
def cross(
    x: _Plain,
    y: Variable,
    /,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def cross(
    x: _Plain,
    y: _Plain,
    /,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def cumprod(
    x: Variable,
    /,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Running product along ``axis``, by default of all elements in row-major order."""
@overload
def cumprod(
    x: _Plain,
    /,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def cumsum(
    x: Variable,
    /,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Running sum along ``axis``, by default of all elements in row-major order."""
@overload
def cumsum(
    x: _Plain,
    /,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def deg2rad(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise angle in radians, of one in degrees."""
@overload
def deg2rad(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def deg2rad(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
radians = deg2rad

@overload
def diag(v: Variable, k: int = 0, *, tape: GradientTape | None = None) -> Variable:
    """The diagonal of a matrix, or the matrix of zeros that has a vector on its diagonal."""
@overload
def diag(v: _Plain, k: int = 0, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def diagonal(
    a: Variable,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """A diagonal of each matrix that two axes make, on the last axis of the result."""
@overload
def diagonal(
    a: _Plain,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def diff(
    a: Variable,
    n: int = 1,
    axis: int = -1,
    prepend: Any = None,
    append: Any = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Differences of neighbours along an axis, taken ``n`` times."""
@overload
def diff(
    a: _Plain,
    n: int = 1,
    axis: int = -1,
    prepend: Any = None,
    append: Any = None,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def direction(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x / hypot(x, y)``: the cosine of the angle of ``(x, y)``; 0 at the origin."""
@overload
def direction(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def direction(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def direction(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def divide(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise quotient, ``x / y``; integers divide to floats."""
@overload
def divide(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def divide(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def divide(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
div = divide

@overload
def dot(a: Variable, b: _Operand, *, tape: GradientTape | None = None) -> Variable:
    """Product of matrices or vectors, or of numbers."""
@overload
def dot(a: _Plain, b: Variable, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def dot(a: _Plain, b: _Plain, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def dsplit(
    ary: Variable,
    indices_or_sections: Any,
    *,
    tape: GradientTape | None = None,
) -> list[Variable]:
    """The array in parts along the third axis."""
@overload
def dsplit(
    ary: _Plain,
    indices_or_sections: Any,
    *,
    tape: GradientTape | None = None,
) -> list[_Array]: ...

@overload
def dstack(tup: Variable | Sequence[Variable], *, tape: GradientTape | None = None) -> Variable:
    """Arrays behind one another along the third axis, which matrices and vectors are given."""
@overload
def dstack(
    tup: _Array | Sequence[_Array],
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...
@overload
def dstack(tup: _Operand | Sequence[object], *, tape: GradientTape | None = None) -> Any: ...

@overload
def einsum(
    subscripts: Any,
    /,
    *operands: Variable,
    optimize: Any = "greedy",
    tape: GradientTape | None = None,
) -> Variable:
    """Products of arrays summed over the axes that the result lacks; letters name the axes."""
@overload
def einsum(
    subscripts: Any,
    /,
    *operands: _Array,
    optimize: Any = "greedy",
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...
@overload
def einsum(
    subscripts: Any,
    /,
    *operands: _Operand,
    optimize: Any = "greedy",
    tape: GradientTape | None = None,
) -> Any: ...

@overload
def elu(x: Variable, /, *, alpha: float = 1.0, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x`` where positive, ``alpha * (e**x - 1)`` elsewhere."""
@overload
def elu(x: _Scalar, /, *, alpha: float = 1.0, tape: GradientTape | None = None) -> Any: ...
@overload
def elu(x: _Plain, /, *, alpha: float = 1.0, tape: GradientTape | None = None) -> _Array: ...

@overload
def equal(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x == y``; a constant."""
@overload
def equal(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def equal(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def equal(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def erf(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise error function, ``2 / sqrt(pi)`` times the integral of ``e**-(t**2)`` to x."""
@overload
def erf(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def erf(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def erfc(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise complement of the error function, ``1 - erf(x)``, without cancellation."""
@overload
def erfc(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def erfc(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def exp(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise exponential, ``e ** x``."""
@overload
def exp(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def exp(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def exp2(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise power of two, ``2 ** x``."""
@overload
def exp2(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def exp2(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def expand_dims(
    a: Variable,
    axis: int | tuple[int, ...],
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """New axes of length 1."""
@overload
def expand_dims(
    a: _Plain,
    axis: int | tuple[int, ...],
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def expm1(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``e ** x - 1``, exact near 0."""
@overload
def expm1(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def expm1(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def fabs(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise absolute value of real numbers, as floating numbers."""
@overload
def fabs(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def fabs(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def fix(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise integer part, as ``trunc``: NumPy has both names."""
@overload
def fix(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def fix(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def flip(
    m: Variable,
    axis: int | tuple[int, ...] | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Elements in reverse order."""
@overload
def flip(
    m: _Plain,
    axis: int | tuple[int, ...] | None = None,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def fliplr(m: Variable, *, tape: GradientTape | None = None) -> Variable:
    """Columns in reverse order: the second axis."""
@overload
def fliplr(m: _Plain, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def flipud(m: Variable, *, tape: GradientTape | None = None) -> Variable:
    """Rows in reverse order: the first axis."""
@overload
def flipud(m: _Plain, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def floor(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise largest integer that is not above ``x``."""
@overload
def floor(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def floor(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def floor_divide(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise quotient rounded down, ``x // y``."""
@overload
def floor_divide(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def floor_divide(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def floor_divide(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def fmax(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise larger of two, which passes over NaN: beside one, the other."""
@overload
def fmax(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def fmax(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def fmax(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def fmin(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise smaller of two, which passes over NaN: beside one, the other."""
@overload
def fmin(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def fmin(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def fmin(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def full_like(
    a: Variable,
    fill_value: _Operand,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: GradientTape | None = None,
) -> Variable:
    """A number repeated, in the shape and dtype of another array."""
@overload
def full_like(
    a: _Plain,
    fill_value: Variable,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def full_like(
    a: _Plain,
    fill_value: _Plain,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def gelu(
    x: Variable,
    /,
    *,
    approximate: str = "none",
    tape: GradientTape | None = None,
) -> Variable:
    """Elementwise ``x`` times the chance that a standard normal number is below ``x``."""
@overload
def gelu(x: _Scalar, /, *, approximate: str = "none", tape: GradientTape | None = None) -> Any: ...
@overload
def gelu(
    x: _Plain,
    /,
    *,
    approximate: str = "none",
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def getitem(x: Variable, /, key: Any, *, tape: GradientTape | None = None) -> Variable:
    """The part ``x[key]`` for any index that NumPy accepts, as a new array."""
@overload
def getitem(x: _Plain, /, key: Any, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def gradient(
    f: Variable,
    *varargs: Any,
    axis: int | tuple[int, ...] | None = None,
    edge_order: int = 1,
    tape: GradientTape | None = None,
) -> Variable:
    """Slopes of sampled values, by central differences inside and one-sided ones at the ends."""
@overload
def gradient(
    f: _Plain,
    *varargs: Any,
    axis: int | tuple[int, ...] | None = None,
    edge_order: int = 1,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def greater(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x > y``; a constant."""
@overload
def greater(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def greater(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def greater(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def greater_equal(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x >= y``; a constant."""
@overload
def greater_equal(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def greater_equal(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def greater_equal(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def hard_sigmoid(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``relu6(x + 3) / 6``."""
@overload
def hard_sigmoid(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def hard_sigmoid(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
hardsigmoid = hard_sigmoid

@overload
def hard_swish(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x * relu6(x + 3) / 6``."""
@overload
def hard_swish(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def hard_swish(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
hardswish = hard_swish

@overload
def hard_tanh(
    x: Variable,
    /,
    *,
    min_val: float = -1.0,
    max_val: float = 1.0,
    tape: GradientTape | None = None,
) -> Variable:
    """Elementwise ``x`` between ``min_val`` and ``max_val``, and these beyond."""
@overload
def hard_tanh(
    x: _Scalar,
    /,
    *,
    min_val: float = -1.0,
    max_val: float = 1.0,
    tape: GradientTape | None = None,
) -> Any: ...
@overload
def hard_tanh(
    x: _Plain,
    /,
    *,
    min_val: float = -1.0,
    max_val: float = 1.0,
    tape: GradientTape | None = None,
) -> _Array: ...
hardtanh = hard_tanh

@overload
def hsplit(
    ary: Variable,
    indices_or_sections: Any,
    *,
    tape: GradientTape | None = None,
) -> list[Variable]:
    """The array in parts along the second axis; a vector along its only one."""
@overload
def hsplit(
    ary: _Plain,
    indices_or_sections: Any,
    *,
    tape: GradientTape | None = None,
) -> list[_Array]: ...

@overload
def hstack(tup: Variable | Sequence[Variable], *, tape: GradientTape | None = None) -> Variable:
    """Arrays beside one another: along the second axis, vectors along their only one."""
@overload
def hstack(
    tup: _Array | Sequence[_Array],
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...
@overload
def hstack(tup: _Operand | Sequence[object], *, tape: GradientTape | None = None) -> Any: ...

@overload
def hypot(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise length ``sqrt(x**2 + y**2)``, without overflow of the squares."""
@overload
def hypot(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def hypot(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def hypot(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def identity(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """The same value, under a name of its own."""
@overload
def identity(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def imag(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise imaginary part; 0 for real numbers."""
@overload
def imag(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def imag(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def inner(a: Variable, b: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Products summed over the last axes of both."""
@overload
def inner(a: _Plain, b: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def inner(a: _Plain, b: _Plain, /, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def interp(
    x: Variable,
    xp: _Operand,
    fp: _Operand,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """The straight lines between given points, in double precision as ``np.interp`` has them."""
@overload
def interp(
    x: _Plain,
    xp: Variable,
    fp: _Operand,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def interp(
    x: _Plain,
    xp: _Plain,
    fp: Variable,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def interp(
    x: _Plain,
    xp: _Plain,
    fp: _Plain,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def invert(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``~x``: not of booleans, or of the bits of integers; a constant."""
@overload
def invert(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def invert(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def isfinite(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise test for a number that is neither infinite nor NaN; a constant."""
@overload
def isfinite(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def isfinite(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def isinf(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise test for infinity of either sign; a constant."""
@overload
def isinf(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def isinf(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def isnan(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise test for NaN; a constant."""
@overload
def isnan(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def isnan(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def keep_where(
    x: Variable,
    condition: _Operand,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Elementwise ``x`` where ``condition`` holds, and 0 elsewhere, also for NaN and infinity."""
@overload
def keep_where(
    x: _Plain,
    condition: Variable,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def keep_where(x: _Scalar, condition: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def keep_where(x: _Plain, condition: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def kron(a: Variable, b: _Operand, *, tape: GradientTape | None = None) -> Variable:
    """Kronecker product: blocks, each of them ``b`` times an element of ``a``."""
@overload
def kron(a: _Plain, b: Variable, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def kron(a: _Plain, b: _Plain, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def leaky_relu(
    x: Variable,
    /,
    *,
    negative_slope: float = 0.01,
    tape: GradientTape | None = None,
) -> Variable:
    """Elementwise ``x`` where positive, ``negative_slope * x`` elsewhere."""
@overload
def leaky_relu(
    x: _Scalar,
    /,
    *,
    negative_slope: float = 0.01,
    tape: GradientTape | None = None,
) -> Any: ...
@overload
def leaky_relu(
    x: _Plain,
    /,
    *,
    negative_slope: float = 0.01,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def less(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x < y``; a constant."""
@overload
def less(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def less(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def less(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def less_equal(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x <= y``; a constant."""
@overload
def less_equal(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def less_equal(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def less_equal(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def linear(
    x: Variable,
    weight: _Operand,
    bias: _Operand | None = None,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Linear layer, ``x @ weight.T + bias``, for ``weight`` of shape (out, in)."""
@overload
def linear(
    x: _Plain,
    weight: Variable,
    bias: _Operand | None = None,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def linear(
    x: _Plain,
    weight: _Plain,
    bias: Variable,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def linear(
    x: _Plain,
    weight: _Plain,
    bias: _Plain | None = None,
    /,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def linear_recurrence(
    x: Variable,
    factors: _Operand,
    /,
    *,
    axis: int = -1,
    reverse: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Each number plus a factor times the result before it: ``out[k] = x[k] + f[k] out[k - 1]``."""
@overload
def linear_recurrence(
    x: _Plain,
    factors: Variable,
    /,
    *,
    axis: int = -1,
    reverse: bool = False,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def linear_recurrence(
    x: _Plain,
    factors: _Plain,
    /,
    *,
    axis: int = -1,
    reverse: bool = False,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def linspace(
    start: Variable,
    stop: _Operand,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Evenly spaced numbers between two, with gradients in both."""
@overload
def linspace(
    start: _Plain,
    stop: Variable,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def linspace(
    start: _Plain,
    stop: _Plain,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def log(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise natural logarithm."""
@overload
def log(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def log(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def log10(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise logarithm to base 10."""
@overload
def log10(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def log10(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def log1p(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise natural logarithm of ``1 + x``, exact near 0."""
@overload
def log1p(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def log1p(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def log2(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise logarithm to base 2."""
@overload
def log2(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def log2(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def log_sigmoid(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise logarithm of the logistic function, ``-log(1 + e**-x)``, without overflow."""
@overload
def log_sigmoid(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def log_sigmoid(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
logsigmoid = log_sigmoid
log_expit = log_sigmoid

@overload
def log_softmax(x: Variable, /, axis: int = -1, *, tape: GradientTape | None = None) -> Variable:
    """Logarithm of the softmax, without rounding small probabilities to zero."""
@overload
def log_softmax(x: _Plain, /, axis: int = -1, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def logaddexp(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``log(e**x + e**y)``, without overflow."""
@overload
def logaddexp(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def logaddexp(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def logaddexp(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def logaddexp2(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``log2(2**x + 2**y)``, without overflow."""
@overload
def logaddexp2(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def logaddexp2(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def logaddexp2(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def logical_and(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise logical and; a constant."""
@overload
def logical_and(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def logical_and(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def logical_and(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def logical_not(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise logical not; a constant."""
@overload
def logical_not(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def logical_not(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def logical_or(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise logical or; a constant."""
@overload
def logical_or(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def logical_or(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def logical_or(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def logical_xor(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise exclusive or: whether just one of two holds; a constant."""
@overload
def logical_xor(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def logical_xor(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def logical_xor(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def logit(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise logarithm of the odds, ``log(x / (1 - x))``: the inverse of sigmoid."""
@overload
def logit(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def logit(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def logsumexp(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Logarithm of the sum of exponentials over ``axis``, without overflow; -inf of nothing."""
@overload
def logsumexp(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def matmul(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Matrix product ``x @ y`` over the last two axes; vectors as in NumPy."""
@overload
def matmul(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def matmul(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def matrix_transpose(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """The last two axes exchanged."""
@overload
def matrix_transpose(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def max(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Largest element over ``axis``, by default of all elements; NaN if one is NaN."""
@overload
def max(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def maximum(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise larger of two; NaN if either is."""
@overload
def maximum(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def maximum(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def maximum(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def mean(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Arithmetic mean over ``axis``, by default over all elements."""
@overload
def mean(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def min(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Smallest element over ``axis``, by default of all elements; NaN if one is NaN."""
@overload
def min(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def minimum(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise smaller of two; NaN if either is."""
@overload
def minimum(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def minimum(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def minimum(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def mish(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x * tanh(log(1 + e**x))``."""
@overload
def mish(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def mish(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def mod(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise remainder ``x - y * floor(x / y)``, which has the sign of ``y``."""
@overload
def mod(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def mod(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def mod(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
remainder = mod

@overload
def moveaxis(
    a: Variable,
    source: Any,
    destination: Any,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Axes moved to other places; the others keep their order."""
@overload
def moveaxis(
    a: _Plain,
    source: Any,
    destination: Any,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def multiply(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise product, ``x * y``."""
@overload
def multiply(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def multiply(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def multiply(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
mul = multiply

@overload
def nan_to_num(
    x: Variable,
    /,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Elementwise ``x``, but numbers for NaN and infinity: by default 0 and the largest."""
@overload
def nan_to_num(
    x: _Scalar,
    /,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    tape: GradientTape | None = None,
) -> Any: ...
@overload
def nan_to_num(
    x: _Plain,
    /,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def negative(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise negation, ``-x``."""
@overload
def negative(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def negative(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
neg = negative

@overload
def not_equal(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x != y``; a constant."""
@overload
def not_equal(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def not_equal(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def not_equal(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def one_hot(
    indices: Variable,
    num_classes: int,
    *,
    dtype: DTypeLike = ...,
    axis: int = -1,
    tape: GradientTape | None = None,
) -> Variable:
    """Ones at the given class numbers and zeros elsewhere; a constant."""
@overload
def one_hot(
    indices: _Plain,
    num_classes: int,
    *,
    dtype: DTypeLike = ...,
    axis: int = -1,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def ones_like(
    a: Variable,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: GradientTape | None = None,
) -> Variable:
    """Ones of the shape and dtype of another array; a constant."""
@overload
def ones_like(
    a: _Plain,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def outer(a: Variable, b: _Operand, *, tape: GradientTape | None = None) -> Variable:
    """Product of each element of ``a`` with each of ``b``."""
@overload
def outer(a: _Plain, b: Variable, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def outer(a: _Plain, b: _Plain, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def over_length(x: Variable, length: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x / length``, for what is at most as long: 0 where both are 0."""
@overload
def over_length(
    x: _Plain,
    length: Variable,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def over_length(x: _Scalar, length: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def over_length(x: _Plain, length: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def pad(
    array: Variable,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    tape: GradientTape | None = None,
) -> Variable:
    """Elements added before and after, along each axis."""
@overload
def pad(
    array: _Plain,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def piecewise_linear(
    x: Variable,
    xp: _Operand,
    fp: _Operand,
    /,
    *,
    left: float | None = None,
    right: float | None = None,
    tape: GradientTape | None = None,
) -> Variable:
    """The straight lines between the points ``(xp, fp)`` at ``x``; beyond them the end values."""
@overload
def piecewise_linear(
    x: _Plain,
    xp: Variable,
    fp: _Operand,
    /,
    *,
    left: float | None = None,
    right: float | None = None,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def piecewise_linear(
    x: _Plain,
    xp: _Plain,
    fp: Variable,
    /,
    *,
    left: float | None = None,
    right: float | None = None,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def piecewise_linear(
    x: _Plain,
    xp: _Plain,
    fp: _Plain,
    /,
    *,
    left: float | None = None,
    right: float | None = None,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def power(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise power, ``x ** y``."""
@overload
def power(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def power(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def power(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
pow = power

@overload
def power_log(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise derivative of a power in its exponent, ``x ** y * log(x)``; 0 at ``x = 0``."""
@overload
def power_log(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def power_log(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def power_log(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def power_share(
    x: Variable,
    y: _Operand,
    /,
    *,
    base: float = 2.718281828459045,
    tape: GradientTape | None = None,
) -> Variable:
    """Elementwise ``base**x / (base**x + base**y)``, without overflow; 0 where both are -inf."""
@overload
def power_share(
    x: _Plain,
    y: Variable,
    /,
    *,
    base: float = 2.718281828459045,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def power_share(
    x: _Scalar,
    y: _Scalar,
    /,
    *,
    base: float = 2.718281828459045,
    tape: GradientTape | None = None,
) -> Any: ...
@overload
def power_share(
    x: _Plain,
    y: _Plain,
    /,
    *,
    base: float = 2.718281828459045,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def power_slope(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise derivative of a power in its base, ``y * x ** (y - 1)``; 0 where ``y`` is 0."""
@overload
def power_slope(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def power_slope(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def power_slope(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def prelu(x: Variable, weight: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x`` where positive, ``weight * x`` elsewhere; a weight for each channel."""
@overload
def prelu(x: _Plain, weight: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def prelu(x: _Plain, weight: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def prod(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Product over ``axis``, by default of all elements; 1 of nothing."""
@overload
def prod(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def rad2deg(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise angle in degrees, of one in radians."""
@overload
def rad2deg(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def rad2deg(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
degrees = rad2deg

@overload
def ravel(a: Variable, order: str = "C", *, tape: GradientTape | None = None) -> Variable:
    """All elements on one axis."""
@overload
def ravel(a: _Plain, order: str = "C", *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def real(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise real part."""
@overload
def real(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def real(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def reciprocal(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``1 / x``; of integers cut to an integer, as NumPy does."""
@overload
def reciprocal(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def reciprocal(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def relu(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise rectifier, ``max(x, 0)``."""
@overload
def relu(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def relu(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def relu6(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x`` between 0 and 6, and these beyond."""
@overload
def relu6(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def relu6(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def repeat(
    a: Variable,
    repeats: Any,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Each element repeated in its place."""
@overload
def repeat(
    a: _Plain,
    repeats: Any,
    axis: int | None = None,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def reshape(
    x: Variable,
    /,
    shape: int | Sequence[int],
    order: str = "C",
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """The same elements, in row-major order, under another shape; one length may be -1."""
@overload
def reshape(
    x: _Plain,
    /,
    shape: int | Sequence[int],
    order: str = "C",
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def rint(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise nearest integer, ties to even."""
@overload
def rint(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def rint(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def roll(
    x: Variable,
    /,
    shift: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Elements shifted along ``axis``; what leaves at the end comes in at the start."""
@overload
def roll(
    x: _Plain,
    /,
    shift: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def rollaxis(
    a: Variable,
    axis: int,
    start: int = 0,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """One axis moved to before another; ``moveaxis`` says more clearly where to."""
@overload
def rollaxis(
    a: _Plain,
    axis: int,
    start: int = 0,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def rot90(
    m: Variable,
    k: int = 1,
    axes: tuple[int, int] = ...,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Matrices turned by a quarter, so many times, from the first of two axes to the second."""
@overload
def rot90(
    m: _Plain,
    k: int = 1,
    axes: tuple[int, int] = ...,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def round(x: Variable, /, decimals: int = 0, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise nearest number of ``decimals`` digits, ties to even."""
@overload
def round(x: _Scalar, /, decimals: int = 0, *, tape: GradientTape | None = None) -> Any: ...
@overload
def round(x: _Plain, /, decimals: int = 0, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def rsqrt(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise reciprocal of the square root, ``1 / sqrt(x)``."""
@overload
def rsqrt(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def rsqrt(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def searchsorted(
    a: Variable,
    v: _Operand,
    /,
    side: str = "left",
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Where among the sorted numbers ``a`` those of ``v`` would stand; a constant."""
@overload
def searchsorted(
    a: _Plain,
    v: Variable,
    /,
    side: str = "left",
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def searchsorted(
    a: _Plain,
    v: _Plain,
    /,
    side: str = "left",
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def selu(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise elu with the scale and alpha that keep mean 0 and variance 1."""
@overload
def selu(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def selu(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def setitem(x: Variable, v: _Operand, /, key: Any, *, tape: GradientTape | None = None) -> Variable:
    """A copy of ``x`` in which ``x[key]`` is ``v``."""
@overload
def setitem(
    x: _Plain,
    v: Variable,
    /,
    key: Any,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def setitem(x: _Plain, v: _Plain, /, key: Any, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def sigmoid(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise logistic function, ``1 / (1 + e**-x)``, without overflow."""
@overload
def sigmoid(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def sigmoid(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
expit = sigmoid

@overload
def sign(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise sign: -1, 0 or 1; ``x / |x|`` for complex numbers."""
@overload
def sign(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def sign(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def silu(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x * sigmoid(x)``, also called swish."""
@overload
def silu(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def silu(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
swish = silu

@overload
def sin(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise sine of an angle in radians."""
@overload
def sin(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def sin(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def sinc(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``sin(pi x) / (pi x)``; 1 at 0."""
@overload
def sinc(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def sinc(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def sine_quotient(x: Variable, /, *, order: int, tape: GradientTape | None = None) -> Variable:
    """Elementwise spherical Bessel function of an order over ``x**order``: ``sin(x) / x`` for 0."""
@overload
def sine_quotient(x: _Scalar, /, *, order: int, tape: GradientTape | None = None) -> Any: ...
@overload
def sine_quotient(x: _Plain, /, *, order: int, tape: GradientTape | None = None) -> _Array: ...

@overload
def sinh(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise hyperbolic sine."""
@overload
def sinh(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def sinh(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def softmax(x: Variable, /, axis: int = -1, *, tape: GradientTape | None = None) -> Variable:
    """Exponentials along ``axis`` divided by their sum."""
@overload
def softmax(x: _Plain, /, axis: int = -1, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def softmax_cross_entropy(
    logits: Variable,
    targets: _Operand,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Cross entropy of class numbers or probabilities against the softmax of ``logits``."""
@overload
def softmax_cross_entropy(
    logits: _Plain,
    targets: Variable,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def softmax_cross_entropy(
    logits: _Plain,
    targets: _Plain,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def softmax_cross_entropy_mass(
    targets: Variable,
    /,
    logits_spec: Spec,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Weight of each sample in ``softmax_cross_entropy``: its total target, over n for a mean."""
@overload
def softmax_cross_entropy_mass(
    targets: _Plain,
    /,
    logits_spec: Spec,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def softmax_cross_entropy_slope(
    logits: Variable,
    targets: _Operand,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Derivative of ``softmax_cross_entropy`` in the logits: softmax minus target, over n."""
@overload
def softmax_cross_entropy_slope(
    logits: _Plain,
    targets: Variable,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def softmax_cross_entropy_slope(
    logits: _Plain,
    targets: _Plain,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def softplus(x: Variable, /, *, beta: float = 1.0, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``log(1 + e**(beta x)) / beta``, exact at every size: there is no threshold."""
@overload
def softplus(x: _Scalar, /, *, beta: float = 1.0, tape: GradientTape | None = None) -> Any: ...
@overload
def softplus(x: _Plain, /, *, beta: float = 1.0, tape: GradientTape | None = None) -> _Array: ...

@overload
def softsign(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x / (1 + |x|)``."""
@overload
def softsign(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def softsign(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def sort(
    x: Variable,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    tape: GradientTape | None = None,
) -> Variable:
    """The elements in rising order along ``axis``, NaN last; None puts all on one axis first."""
@overload
def sort(
    x: _Plain,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def split(
    ary: Variable,
    indices_or_sections: Any,
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> list[Variable]:
    """The array in parts along an axis: so many equal ones, or cut at given places."""
@overload
def split(
    ary: _Plain,
    indices_or_sections: Any,
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> list[_Array]: ...

@overload
def sqrt(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise square root."""
@overload
def sqrt(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def sqrt(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def square(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise square, ``x * x``."""
@overload
def square(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def square(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def squared_error_mean(
    x: Variable,
    y: _Operand,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Mean of ``(x - y)**2`` over all elements of real arrays of one shape."""
@overload
def squared_error_mean(
    x: _Plain,
    y: Variable,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def squared_error_mean(
    x: _Plain,
    y: _Plain,
    /,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def squeeze(
    a: Variable,
    axis: int | tuple[int, ...] | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Axes of length 1 left out."""
@overload
def squeeze(
    a: _Plain,
    axis: int | tuple[int, ...] | None = None,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def stack(
    arrays: Variable | Sequence[Variable],
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Arrays of one shape side by side along a new axis."""
@overload
def stack(
    arrays: _Array | Sequence[_Array],
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...
@overload
def stack(
    arrays: _Operand | Sequence[object],
    axis: int = 0,
    *,
    tape: GradientTape | None = None,
) -> Any: ...

@overload
def std(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    tape: GradientTape | None = None,
) -> Variable:
    """Standard deviation over ``axis``, the root of the variance."""
@overload
def std(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def subtract(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise difference, ``x - y``."""
@overload
def subtract(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def subtract(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def subtract(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...
sub = subtract

@overload
def sum(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> Variable:
    """Sum over ``axis``, by default over all elements."""
@overload
def sum(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def sum_to(
    x: Variable,
    /,
    shape: int | Sequence[int],
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Sum over the axes that broadcasting ``shape`` to the shape of ``x`` would stretch."""
@overload
def sum_to(
    x: _Plain,
    /,
    shape: int | Sequence[int],
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def swapaxes(a: Variable, axis1: int, axis2: int, *, tape: GradientTape | None = None) -> Variable:
    """Two axes exchanged."""
@overload
def swapaxes(
    a: _Plain,
    axis1: int,
    axis2: int,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def take(
    x: Variable,
    indices: _Operand,
    /,
    axis: int | None = None,
    *,
    mode: str = "raise",
    tape: GradientTape | None = None,
) -> Variable:
    """The elements at integer ``indices`` along ``axis``, by default among all elements."""
@overload
def take(
    x: _Plain,
    indices: Variable,
    /,
    axis: int | None = None,
    *,
    mode: str = "raise",
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def take(
    x: _Plain,
    indices: _Plain,
    /,
    axis: int | None = None,
    *,
    mode: str = "raise",
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def take_along_axis(
    x: Variable,
    indices: _Operand,
    /,
    axis: int | None = -1,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """The elements at ``indices`` along ``axis``, each from its own line of the array."""
@overload
def take_along_axis(
    x: _Plain,
    indices: Variable,
    /,
    axis: int | None = -1,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def take_along_axis(
    x: _Plain,
    indices: _Plain,
    /,
    axis: int | None = -1,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def tan(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise tangent of an angle in radians."""
@overload
def tan(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def tan(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def tanh(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise hyperbolic tangent."""
@overload
def tanh(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def tanh(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def tensordot(
    a: Variable,
    b: _Operand,
    axes: int | tuple[int, ...] | None = 2,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Products summed over axes of both."""
@overload
def tensordot(
    a: _Plain,
    b: Variable,
    axes: int | tuple[int, ...] | None = 2,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def tensordot(
    a: _Plain,
    b: _Plain,
    axes: int | tuple[int, ...] | None = 2,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def tile(A: Variable, reps: Any, *, tape: GradientTape | None = None) -> Variable:
    """The whole array repeated along its axes."""
@overload
def tile(A: _Plain, reps: Any, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def trace(
    a: Variable,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Sum along a diagonal of each matrix that two axes make."""
@overload
def trace(
    a: _Plain,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def transpose(
    x: Variable,
    /,
    axes: int | tuple[int, ...] | None = None,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """The axes in another order, by default reversed."""
@overload
def transpose(
    x: _Plain,
    /,
    axes: int | tuple[int, ...] | None = None,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def trapezoid(
    y: Variable,
    x: _Operand | None = None,
    dx: Any = 1.0,
    axis: int = -1,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """The integral along an axis by the trapezoidal rule."""
@overload
def trapezoid(
    y: _Plain,
    x: Variable,
    dx: Any = 1.0,
    axis: int = -1,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def trapezoid(
    y: _Plain,
    x: _Plain | None = None,
    dx: Any = 1.0,
    axis: int = -1,
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def tril(m: Variable, k: int = 0, *, tape: GradientTape | None = None) -> Variable:
    """Lower triangles of matrices, with zeros above a diagonal, whatever is there."""
@overload
def tril(m: _Plain, k: int = 0, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def triu(m: Variable, k: int = 0, *, tape: GradientTape | None = None) -> Variable:
    """Upper triangles of matrices, with zeros below a diagonal, whatever is there."""
@overload
def triu(m: _Plain, k: int = 0, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def trunc(x: Variable, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise integer part: ``x`` without its fraction."""
@overload
def trunc(x: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def trunc(x: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def unstack(
    x: Variable,
    *,
    axis: int = 0,
    tape: GradientTape | None = None,
) -> tuple[Variable, ...]:
    """The parts of an array along an axis, which they lose."""
@overload
def unstack(
    x: _Plain,
    *,
    axis: int = 0,
    tape: GradientTape | None = None,
) -> tuple[_Array, ...]: ...

@overload
def var(
    x: Variable,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    tape: GradientTape | None = None,
) -> Variable:
    """Variance over ``axis``: the sum of ``|x - mean|**2`` over the count less ``ddof``."""
@overload
def var(
    x: _Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...

@overload
def vdot(a: Variable, b: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Inner product of all elements, those of ``a`` conjugated."""
@overload
def vdot(a: _Plain, b: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def vdot(a: _Plain, b: _Plain, /, *, tape: GradientTape | None = None) -> _ArrayOrScalar: ...

@overload
def vsplit(
    ary: Variable,
    indices_or_sections: Any,
    *,
    tape: GradientTape | None = None,
) -> list[Variable]:
    """The array in parts along the first axis."""
@overload
def vsplit(
    ary: _Plain,
    indices_or_sections: Any,
    *,
    tape: GradientTape | None = None,
) -> list[_Array]: ...

@overload
def vstack(tup: Variable | Sequence[Variable], *, tape: GradientTape | None = None) -> Variable:
    """Arrays one below the other; vectors as rows."""
@overload
def vstack(
    tup: _Array | Sequence[_Array],
    *,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...
@overload
def vstack(tup: _Operand | Sequence[object], *, tape: GradientTape | None = None) -> Any: ...

@overload
def where(
    condition: Variable,
    x: _Operand,
    y: _Operand,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable:
    """Elementwise choice, ``x`` where ``condition`` holds and ``y`` elsewhere."""
@overload
def where(
    condition: _Plain,
    x: Variable,
    y: _Operand,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def where(
    condition: _Plain,
    x: _Plain,
    y: Variable,
    /,
    *,
    tape: GradientTape | None = None,
) -> Variable: ...
@overload
def where(
    condition: _Scalar,
    x: _Scalar,
    y: _Scalar,
    /,
    *,
    tape: GradientTape | None = None,
) -> Any: ...
@overload
def where(
    condition: _Plain,
    x: _Plain,
    y: _Plain,
    /,
    *,
    tape: GradientTape | None = None,
) -> _Array: ...

@overload
def xlogy(x: Variable, y: _Operand, /, *, tape: GradientTape | None = None) -> Variable:
    """Elementwise ``x * log(y)``, but 0 where ``x`` is 0 and ``y`` is a number."""
@overload
def xlogy(x: _Plain, y: Variable, /, *, tape: GradientTape | None = None) -> Variable: ...
@overload
def xlogy(x: _Scalar, y: _Scalar, /, *, tape: GradientTape | None = None) -> Any: ...
@overload
def xlogy(x: _Plain, y: _Plain, /, *, tape: GradientTape | None = None) -> _Array: ...

@overload
def zeros_like(
    a: Variable,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: GradientTape | None = None,
) -> Variable:
    """Zeros of the shape and dtype of another array; a constant."""
@overload
def zeros_like(
    a: _Plain,
    dtype: DTypeLike | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    tape: GradientTape | None = None,
) -> _ArrayOrScalar: ...
