"""The operators and methods that turn expressions on Variables and Symbols into ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from odyssey.errors import DTypeError
from odyssey.ops import (
    arithmetic,
    arrangement,
    choice,
    complex_numbers,
    elementary,
    gathering,
    indexing,
    matrix,
    numpy_calls,
    reductions,
    rounding,
    scans,
    shape,
    statistics,
)

__all__ = ["Operators"]


class Operators:
    """Arithmetic, comparison, indexing, NumPy's methods and NumPy's functions, as ops."""

    __slots__ = ()

    if TYPE_CHECKING:
        # What the assignments below amount to, for type checkers.
        def __add__(self, other: Any) -> Self: ...
        def __radd__(self, other: Any) -> Self: ...
        def __sub__(self, other: Any) -> Self: ...
        def __mul__(self, other: Any) -> Self: ...
        def __rmul__(self, other: Any) -> Self: ...
        def __truediv__(self, other: Any) -> Self: ...
        def __floordiv__(self, other: Any) -> Self: ...
        def __mod__(self, other: Any) -> Self: ...
        def __pow__(self, other: Any) -> Self: ...
        def __matmul__(self, other: Any) -> Self: ...
        def __neg__(self) -> Self: ...
        def __abs__(self) -> Self: ...
        def __gt__(self, other: Any) -> Self: ...
        def __ge__(self, other: Any) -> Self: ...
        def __lt__(self, other: Any) -> Self: ...
        def __le__(self, other: Any) -> Self: ...
        def __and__(self, other: Any) -> Self: ...
        def __rand__(self, other: Any) -> Self: ...
        def __or__(self, other: Any) -> Self: ...
        def __ror__(self, other: Any) -> Self: ...
        def __xor__(self, other: Any) -> Self: ...
        def __rxor__(self, other: Any) -> Self: ...
        def __invert__(self) -> Self: ...
    else:
        __add__ = __radd__ = arithmetic.add
        __sub__ = arithmetic.subtract
        __mul__ = __rmul__ = arithmetic.multiply
        __truediv__ = arithmetic.divide
        __floordiv__ = rounding.floor_divide
        __mod__ = rounding.mod
        __pow__ = elementary.power
        __matmul__ = matrix.matmul
        __neg__ = arithmetic.negative
        __abs__ = complex_numbers.absolute
        __gt__, __ge__ = choice.greater, choice.greater_equal
        __lt__, __le__ = choice.less, choice.less_equal
        __and__ = __rand__ = choice.bitwise_and
        __or__ = __ror__ = choice.bitwise_or
        __xor__ = __rxor__ = choice.bitwise_xor
        __invert__ = choice.invert

    # Let NumPy's operators give way to ours instead of looping over elements.
    __array_priority__ = 1000

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented  # which ends in False, as for any object that is no number
        return choice.equal(self, other)

    def __ne__(self, other: object) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented
        return choice.not_equal(self, other)

    def __rsub__(self, other: Any) -> Self:
        result: Self = arithmetic.subtract(other, self)
        return result

    def __rtruediv__(self, other: Any) -> Self:
        result: Self = arithmetic.divide(other, self)
        return result

    def __rfloordiv__(self, other: Any) -> Self:
        result: Self = rounding.floor_divide(other, self)
        return result

    def __rmod__(self, other: Any) -> Self:
        result: Self = rounding.mod(other, self)
        return result

    def __rpow__(self, other: Any) -> Self:
        result: Self = elementary.power(other, self)
        return result

    def __rmatmul__(self, other: Any) -> Self:
        result: Self = matrix.matmul(other, self)
        return result

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return rounding.floor_divide(self, other), rounding.mod(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return rounding.floor_divide(other, self), rounding.mod(other, self)

    def __pos__(self) -> Any:
        return self

    def __getitem__(self, key: Any) -> Any:
        return indexing.getitem(self, key)

    # -------------------------------------------------------------- NumPy's methods

    def sum(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Sum over ``axis``; see ``ops.sum``."""
        return reductions.sum(self, axis, keepdims=keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Mean over ``axis``; see ``ops.mean``."""
        return reductions.mean(self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Largest element over ``axis``; see ``ops.max``."""
        return reductions.max(self, axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Smallest element over ``axis``; see ``ops.min``."""
        return reductions.min(self, axis, keepdims=keepdims)

    def argmax(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Index of the largest element over ``axis``, a constant; see ``ops.argmax``."""
        return reductions.argmax(self, axis, keepdims=keepdims)

    def argmin(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Index of the smallest element over ``axis``, a constant; see ``ops.argmin``."""
        return reductions.argmin(self, axis, keepdims=keepdims)

    def any(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Whether an element over ``axis`` is not 0, a constant; see ``ops.any``."""
        return reductions.any(self, axis, keepdims=keepdims)

    def all(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Whether every element over ``axis`` is not 0, a constant; see ``ops.all``."""
        return reductions.all(self, axis, keepdims=keepdims)

    def round(self, decimals: int = 0) -> Any:
        """The nearest numbers of ``decimals`` digits; see ``ops.round``."""
        return rounding.round(self, decimals)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """The value, but ``min`` below it and ``max`` above it; see ``ops.clip``."""
        return choice.clip(self, min, max)

    def var(self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
        """Variance over ``axis``; see ``ops.var``."""
        return statistics.var(self, axis, ddof=ddof, keepdims=keepdims)

    def std(self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
        """Standard deviation over ``axis``; see ``ops.std``."""
        return statistics.std(self, axis, ddof=ddof, keepdims=keepdims)

    def prod(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Product over ``axis``; see ``ops.prod``."""
        return scans.prod(self, axis, keepdims=keepdims)

    def cumsum(self, axis: Any = None) -> Any:
        """Running sum along ``axis``; see ``ops.cumsum``."""
        return scans.cumsum(self, axis)

    def dot(self, b: Any) -> Any:
        """Product of matrices or vectors; see ``ops.dot``."""
        return matrix.dot(self, b)

    def take(self, indices: Any, axis: Any = None, *, mode: str = "raise") -> Any:
        """The elements at ``indices`` along ``axis``; see ``ops.take``."""
        return gathering.take(self, indices, axis, mode=mode)

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        """Each element repeated in its place; see ``ops.repeat``."""
        return arrangement.repeat(self, repeats, axis)

    def ravel(self, order: str = "C") -> Any:
        """All elements on one axis; see ``ops.ravel``."""
        return shape.ravel(self, order)

    def flatten(self, order: str = "C") -> Any:
        """All elements on one axis; see ``ops.ravel``."""
        return shape.ravel(self, order)

    def squeeze(self, axis: Any = None) -> Any:
        """Axes of length 1 left out; see ``ops.squeeze``."""
        return shape.squeeze(self, axis)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """Two axes exchanged; see ``ops.swapaxes``."""
        return shape.swapaxes(self, axis1, axis2)

    def reshape(self, *lengths: Any, order: str = "C") -> Any:
        """The elements under another shape, as ``reshape(2, 3)`` or ``reshape((2, 3))``."""
        return shape.reshape(self, lengths[0] if len(lengths) == 1 else lengths, order)

    def transpose(self, *axes: Any) -> Any:
        """The axes in another order, as ``transpose(1, 0)`` or ``transpose((1, 0))``."""
        single = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return shape.transpose(self, single)

    def astype(self, dtype: Any) -> Any:
        """The numbers in another dtype; see ``ops.astype``."""
        return shape.astype(self, dtype)

    def conj(self) -> Any:
        """The complex conjugate; see ``ops.conj``."""
        return complex_numbers.conj(self)

    @property
    def T(self) -> Any:
        """The axes in reverse order."""
        return shape.transpose(self)

    @property
    def real(self) -> Any:
        """The real part; see ``ops.real``."""
        return complex_numbers.real(self)

    @property
    def imag(self) -> Any:
        """The imaginary part; see ``ops.imag``."""
        return complex_numbers.imag(self)

    # -------------------------------------------------------------- NumPy's functions

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        row = numpy_calls.UFUNCS.get(ufunc)
        if row is not None and method == "__call__" and not named:
            return row.call(*inputs)
        if "dtype" in named and named["dtype"] is None:  # which says nothing
            del named["dtype"]
        if row is not None and method == "__call__" and named.keys() == {"dtype"}:
            return numpy_calls.with_dtype(row, inputs, named["dtype"])
        if row is None or method != "__call__" or named:
            what = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            extra = f" with {', '.join(named)}=" if row is not None and named else ""
            raise DTypeError(
                f"np.{what}{extra} is not in odyssey's table of differentiable ops; "
                "use an op of od.ops, or .detach().numpy() where no gradient is needed"
            )
        return row.call(*inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return numpy_calls.call(func, args, kwargs)
