"""Traced arrays: array arguments during a trace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partialmethod
from operator import attrgetter, getitem, methodcaller
from typing import Any, NoReturn

import numpy as np

from odyssey.checks import is_called_by_user
from odyssey.spec import is_bfloat16
from odyssey.table.value import Symbol
from odyssey.variable.operators import Operators

__all__ = ["IN_PLACE_OPERATORS", "TracedArray"]


# Methods of arrays that may return views, or arrays without axes.
_METHODS = ("astype", "conj", "flatten", "ravel", "squeeze", "swapaxes")


# Operations of bfloat16 that ml_dtypes computes otherwise: methods that add or multiply elements,
# operators beside floating numbers, and functions of NumPy but for those that move or choose.
_SUMS = ("cumprod", "cumsum", "dot", "mean", "prod", "std", "sum", "trace", "var")
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_ALIKE = frozenset(
    {
        *("all", "any", "argmax", "argmin", "atleast_1d", "atleast_2d", "broadcast_to"),
        *("concatenate", "copy", "expand_dims", "flip", "hstack", "iscomplexobj", "max", "min"),
        *("moveaxis", "ndim", "ones_like", "ravel", "repeat", "reshape", "roll", "shape", "size"),
        *("sort", "split", "squeeze", "stack", "swapaxes", "take", "tile", "transpose", "vstack"),
        *("zeros_like", "amax", "amin", "array_split", "diagonal", "diag", "tril", "triu"),
    }
)


class TracedArray(Symbol, Operators):
    """Array argument during a trace: a Symbol with operators."""

    __slots__ = ()

    graph: Any  # the Trace

    # Read by ``isinstance``, if the type does not decide.
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.graph.eager_class(self) if is_called_by_user() else TracedArray

    def __getattr__(self, name: str) -> Any:
        if is_called_by_user():
            self.graph.only_eagerly(f"it reads the attribute {name!r} of an array")
        raise AttributeError(f"a traced array has no {name!r}")

    def __repr__(self) -> str:
        if is_called_by_user():
            self.graph.only_eagerly("it formats an array as text")
        return super().__repr__()

    def _no_value(self, *args: Any, **named: Any) -> NoReturn:
        raise self.graph.no_value("Python asks for the value of", self)

    def _in_place(self, name: str, other: Any) -> Any:
        """Apply an in-place operator to a new value; an eager run writes to the old one."""
        self.graph.only_eagerly(f"it computes in place, by {name}")
        return NotImplemented

    __bool__ = __float__ = __int__ = __complex__ = __index__ = __format__ = _no_value
    __array__ = item = tolist = tobytes = _no_value

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise self.graph.refuse(
            f"{self!r} is not written to in place while a graph is traced; "
            "use ops.setitem, whose result is a new value"
        )

    # NumPy's own functions and methods may return views and arrays without axes where ops return
    # copies and scalars. What the eager run would return is asked for by precompilation alone.

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ not in _ALIKE and is_called_by_user():
            self._refuse_bfloat16(f"calls np.{func.__name__} of")
        made = super().__array_function__(func, types, args, kwargs)
        return self.graph.note_numpy_call(made, func, args, kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        plain = method == "__call__" and not any(map(_is_inexact_number, inputs))
        if not plain and is_called_by_user():
            self._refuse_bfloat16(f"calls np.{ufunc.__name__} of")
        return super().__array_ufunc__(ufunc, method, *inputs, **named)

    def _refuse_bfloat16(self, what: str) -> None:
        """Note that NumPy's operation on bfloat16 differs from the op that is traced for it."""
        if is_bfloat16(self.dtype):
            self.graph.only_eagerly(
                f"it {what} a plain bfloat16 array, as ml_dtypes defines it: sums are in bfloat16, "
                "and results beside a float in float32; call odyssey.ops, or pass Variables"
            )

    def __getitem__(self, key: Any) -> Any:
        return self.graph.note_numpy_call(super().__getitem__(key), getitem, (self, key), {})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
IN_PLACE_OPERATORS = tuple([f"__i{name}__" for name in _BINARY])
"""Names of the methods of operators such as ``+=``."""

for _name in IN_PLACE_OPERATORS:
    setattr(TracedArray, _name, partialmethod(TracedArray._in_place, _name))


def _noted_method(name: str) -> Any:
    def call(self: TracedArray, *args: Any, **named: Any) -> Any:
        made = getattr(super(TracedArray, self), name)(*args, **named)
        return self.graph.note_numpy_call(made, methodcaller(name, *args, **named), (self,), {})

    call.__name__ = name
    return call


def _noted_property(name: str) -> property:
    def get(self: TracedArray) -> Any:
        made = getattr(super(TracedArray, self), name)
        return self.graph.note_numpy_call(made, attrgetter(name), (self,), {})

    return property(get)


def _own_operator(name: str) -> Any:
    operator = getattr(Operators, name)

    def call(self: TracedArray, other: Any) -> Any:
        if _is_inexact_number(other) and is_called_by_user():
            self._refuse_bfloat16(f"applies {name} with a float to")
        return operator(self, other)

    call.__name__ = name
    return call


def _own_sum(name: str) -> Any:
    method = getattr(Operators, name)

    def call(self: TracedArray, *args: Any, **named: Any) -> Any:
        if is_called_by_user():
            self._refuse_bfloat16(f"calls the method {name} of")
        return method(self, *args, **named)

    call.__name__ = name
    return call


def _is_inexact_number(value: Any) -> bool:
    # By ``__class__`` a symbolic scalar is of the class of its number.
    return isinstance(value, (float, complex)) and not isinstance(value, np.generic)


for _name in (*_ARITHMETIC, *(f"r{one}" for one in _ARITHMETIC), *_COMPARISONS):
    setattr(TracedArray, f"__{_name}__", _own_operator(f"__{_name}__"))
for _name in _SUMS:
    setattr(TracedArray, _name, _own_sum(_name))
for _name in _METHODS:
    setattr(TracedArray, _name, _noted_method(_name))
for _name in ("real", "imag"):
    setattr(TracedArray, _name, _noted_property(_name))
