"""Operators and methods of Variables and Symbols, which call ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from odyssey import ops
from odyssey.devices.arrays import PRIORITY, takes_precedence
from odyssey.errors import DTypeError
from odyssey.linalg import matrix_products
from odyssey.ops.elementwise import arithmetic, choice, complex_numbers, elementary, rounding
from odyssey.ops.reductions import reduce
from odyssey.ops.structure import indexing, shape
from odyssey.suggestions import MISSING_ATTRIBUTES, MissingAttribute, keyword_hint
from odyssey.table.declare import operator_form
from odyssey.table.registry import load_module, op_names
from odyssey.variable import numpy_calls

__all__ = ["Operators"]


def _call_numpy_function(v: Any, who: str, named: dict[str, Any], **own: Any) -> Any:
    """Call NumPy's function with options that the method does not have itself."""
    strange = [name for name in named if name not in numpy_calls.options_of(who)]
    if strange:
        raise DTypeError(f"{who}: does not take {', '.join(strange)}{keyword_hint(strange)}")
    return numpy_calls.call(getattr(np, who), (v,), own | named)


_equal, _not_equal = operator_form(choice.equal), operator_form(choice.not_equal)


class Operators:
    """Arithmetic, comparison, indexing, NumPy's methods and NumPy's functions, as ops."""

    __slots__ = ()

    if TYPE_CHECKING:
        # The signatures of the assignments below, for type checkers.
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
        @property
        def dtype(self) -> np.dtype[Any]:
            """Dtype of the elements."""
            ...

    else:
        # A container whose operator ran first, and returned NotImplemented, is refused by name.
        __radd__, __rmul__ = arithmetic.add, arithmetic.multiply
        __rand__, __ror__ = choice.bitwise_and, choice.bitwise_or
        __rxor__ = choice.bitwise_xor
        __add__ = operator_form(arithmetic.add)
        __sub__ = operator_form(arithmetic.subtract)
        __mul__ = operator_form(arithmetic.multiply)
        __truediv__ = operator_form(arithmetic.divide)
        __floordiv__ = operator_form(rounding.floor_divide)
        __mod__ = operator_form(rounding.mod)
        __pow__ = operator_form(elementary.power)
        __matmul__ = operator_form(matrix_products.matmul)
        __neg__ = arithmetic.negative
        __abs__ = complex_numbers.absolute
        __gt__, __ge__ = operator_form(choice.greater), operator_form(choice.greater_equal)
        __lt__, __le__ = operator_form(choice.less), operator_form(choice.less_equal)
        __and__ = operator_form(choice.bitwise_and)
        __or__ = operator_form(choice.bitwise_or)
        __xor__ = operator_form(choice.bitwise_xor)
        __invert__ = choice.invert

    # NumPy's operators defer to these instead of looping over elements.
    __array_priority__ = PRIORITY

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        if other is None or isinstance(other, str):
            return (
                NotImplemented  # Python then returns False, as for any object that is not a number
            )
        return self._compared(_equal(self, other), other, choice.equal)

    def __ne__(self, other: object) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented
        return self._compared(_not_equal(self, other), other, choice.not_equal)

    def _compared(self, found: Any, other: Any, refuse: Any) -> Any:
        """Return a comparison's result; refuse operands whose class would compare identities."""
        kind: Any = type(other)
        silent = found is NotImplemented and kind.__eq__ is object.__eq__
        return refuse(self, other) if silent else found

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
        result: Self = matrix_products.matmul(other, self)
        return result

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        if takes_precedence(other):
            return NotImplemented
        return rounding.floor_divide(self, other), rounding.mod(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return rounding.floor_divide(other, self), rounding.mod(other, self)

    def __pos__(self) -> Any:
        return shape.identity(self)  # a new value, which may be written to

    def __getitem__(self, key: Any) -> Any:
        try:
            return indexing.getitem(self, key)
        except indexing.UnknownIndexError as error:
            # Loaded when a trace needs it: its ops take a tenth of the import time.
            found = load_module("odyssey.ops.structure.traced_indexing").read_at(self, key)
            if found is not NotImplemented:
                return found
            if not isinstance(error, indexing.CapturedIndexError):
                raise
        return indexing.getitem(self, indexing.known_positions(key))

    # -------------------------------------------------------------- NumPy's methods

    def sum(self, axis: Any = None, *, keepdims: bool = False, **named: Any) -> Any:
        """Sum over ``axis``; see ``ops.sum``."""
        if named:
            return _call_numpy_function(self, "sum", named, axis=axis, keepdims=keepdims)
        return reduce.sum(self, axis, keepdims=keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False, **named: Any) -> Any:
        """Mean over ``axis``; see ``ops.mean``."""
        if named:
            return _call_numpy_function(self, "mean", named, axis=axis, keepdims=keepdims)
        return reduce.mean(self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False, **named: Any) -> Any:
        """Largest element over ``axis``; see ``ops.max``."""
        if named:
            return _call_numpy_function(self, "max", named, axis=axis, keepdims=keepdims)
        return reduce.max(self, axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False, **named: Any) -> Any:
        """Smallest element over ``axis``; see ``ops.min``."""
        if named:
            return _call_numpy_function(self, "min", named, axis=axis, keepdims=keepdims)
        return reduce.min(self, axis, keepdims=keepdims)

    def argmax(self, axis: Any = None, *, keepdims: bool = False, **named: Any) -> Any:
        """Index of the largest element over ``axis``, a constant; see ``ops.argmax``."""
        if named:
            return _call_numpy_function(self, "argmax", named, axis=axis, keepdims=keepdims)
        return reduce.argmax(self, axis, keepdims=keepdims)

    def argmin(self, axis: Any = None, *, keepdims: bool = False, **named: Any) -> Any:
        """Index of the smallest element over ``axis``, a constant; see ``ops.argmin``."""
        if named:
            return _call_numpy_function(self, "argmin", named, axis=axis, keepdims=keepdims)
        return reduce.argmin(self, axis, keepdims=keepdims)

    def argsort(self, axis: int | None = -1, **options: Any) -> Any:
        """Indices of the elements in sorted order, a constant; see ``ops.argsort``."""
        return ops.argsort(self, axis, **options)

    def any(self, axis: Any = None, *, keepdims: bool = False, **named: Any) -> Any:
        """Test if any element over ``axis`` is nonzero, a constant; see ``ops.any``."""
        if named:
            return _call_numpy_function(self, "any", named, axis=axis, keepdims=keepdims)
        return reduce.any(self, axis, keepdims=keepdims)

    def all(self, axis: Any = None, *, keepdims: bool = False, **named: Any) -> Any:
        """Test if all elements over ``axis`` are nonzero, a constant; see ``ops.all``."""
        if named:
            return _call_numpy_function(self, "all", named, axis=axis, keepdims=keepdims)
        return reduce.all(self, axis, keepdims=keepdims)

    def round(self, decimals: int = 0, **named: Any) -> Any:
        """The nearest numbers of ``decimals`` digits; see ``ops.round``."""
        if named:
            return _call_numpy_function(self, "round", named, decimals=decimals)
        return rounding.round(self, decimals)

    def clip(self, min: Any = None, max: Any = None, **named: Any) -> Any:
        """The value, but ``min`` below it and ``max`` above it; see ``ops.clip``."""
        if named:
            return _call_numpy_function(self, "clip", named, a_min=min, a_max=max)
        return ops.clip(self, min, max)

    def var(
        self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False, **named: Any
    ) -> Any:
        """Variance over ``axis``; see ``ops.var``."""
        if named:
            return _call_numpy_function(self, "var", named, axis=axis, ddof=ddof, keepdims=keepdims)
        return ops.var(self, axis, ddof=ddof, keepdims=keepdims)

    def std(
        self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False, **named: Any
    ) -> Any:
        """Standard deviation over ``axis``; see ``ops.std``."""
        if named:
            return _call_numpy_function(self, "std", named, axis=axis, ddof=ddof, keepdims=keepdims)
        return ops.std(self, axis, ddof=ddof, keepdims=keepdims)

    def prod(self, axis: Any = None, *, keepdims: bool = False, **named: Any) -> Any:
        """Product over ``axis``; see ``ops.prod``."""
        if named:
            return _call_numpy_function(self, "prod", named, axis=axis, keepdims=keepdims)
        return ops.prod(self, axis, keepdims=keepdims)

    def cumsum(self, axis: Any = None, **named: Any) -> Any:
        """Running sum along ``axis``; see ``ops.cumsum``."""
        if named:
            return _call_numpy_function(self, "cumsum", named, axis=axis)
        return ops.cumsum(self, axis)

    def cumprod(self, axis: Any = None, **named: Any) -> Any:
        """Running product along ``axis``; see ``ops.cumprod``."""
        if named:
            return _call_numpy_function(self, "cumprod", named, axis=axis)
        return ops.cumprod(self, axis)

    def dot(self, b: Any, **named: Any) -> Any:
        """Product of matrices or vectors; see ``ops.dot``."""
        if named:
            return _call_numpy_function(self, "dot", named, b=b)
        return matrix_products.dot(self, b)

    def take(self, indices: Any, axis: Any = None, *, mode: str = "raise", **named: Any) -> Any:
        """The elements at ``indices`` along ``axis``; see ``ops.take``."""
        if named:
            return _call_numpy_function(self, "take", named, indices=indices, axis=axis, mode=mode)
        return ops.take(self, indices, axis, mode=mode)

    def repeat(self, repeats: Any, axis: Any = None, **named: Any) -> Any:
        """Each element repeated in its place; see ``ops.repeat``."""
        if named:
            return _call_numpy_function(self, "repeat", named, repeats=repeats, axis=axis)
        return ops.repeat(self, repeats, axis)

    def ravel(self, order: str = "C") -> Any:
        """All elements on one axis; see ``ops.ravel``."""
        return shape.ravel(self, order)

    def flatten(self, order: str = "C") -> Any:
        """All elements on one axis; see ``ops.ravel``."""
        return shape.ravel(self, order)

    def squeeze(self, axis: Any = None, **named: Any) -> Any:
        """Axes of length 1 left out; see ``ops.squeeze``."""
        if named:
            return _call_numpy_function(self, "squeeze", named, axis=axis)
        return shape.squeeze(self, axis)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """Two axes exchanged; see ``ops.swapaxes``."""
        return shape.swapaxes(self, axis1, axis2)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """A diagonal of each matrix that two axes make; see ``ops.diagonal``."""
        return ops.diagonal(self, offset, axis1, axis2)

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, **named: Any
    ) -> Any:
        """Sum along a diagonal of each matrix that two axes make; see ``ops.trace``."""
        if named:
            own = {"offset": offset, "axis1": axis1, "axis2": axis2, "dtype": dtype}
            return _call_numpy_function(self, "trace", named, **own)
        return ops.trace(self, offset, axis1, axis2, dtype)

    def reshape(self, *lengths: Any, order: str = "C") -> Any:
        """The elements under another shape, as ``reshape(2, 3)`` or ``reshape((2, 3))``."""
        return shape.reshape(self, lengths[0] if len(lengths) == 1 else lengths, order)

    def transpose(self, *axes: Any) -> Any:
        """The axes in another order, as ``transpose(1, 0)`` or ``transpose((1, 0))``."""
        single = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return shape.transpose(self, single)

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        """The numbers in another dtype, a value of its own with ``copy`` or without it."""
        return shape.astype(self, dtype)

    def conj(self) -> Any:
        """The complex conjugate; see ``ops.conj``. Truths stay such, as NumPy's method has it."""
        return shape.astype(self, bool) if self.dtype == bool else complex_numbers.conj(self)

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
        if method == "__call__" and not named:
            function = numpy_calls.UFUNC_CALLS.get(ufunc)
            if function is not None:
                return function(*inputs)
        return numpy_calls.call_ufunc(ufunc, method, inputs, named)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return numpy_calls.call(func, args, kwargs)

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in _HIDDEN]


_ELSEWHERE = MISSING_ATTRIBUTES | {name: f"od.ops.{name}(v)" for name in op_names()}
_HIDDEN = frozenset(name for name in _ELSEWHERE if not hasattr(Operators, name))
for _name in _HIDDEN:
    setattr(Operators, _name, MissingAttribute(_name, _ELSEWHERE[_name]))
