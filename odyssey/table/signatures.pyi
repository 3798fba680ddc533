"""How ops are called, for type checkers; no module of this name exists at run time.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from odyssey.table.protocols import Tape
from odyssey.table.value import Symbol, Value

Scalar: TypeAlias = complex | np.generic
Array: TypeAlias = NDArray[Any]
# No protocol, as NumPy's ArrayLike is: a Variable can become an array, and must not fit.
Plain: TypeAlias = Array | Scalar | Sequence[Any]
Operand: TypeAlias = Value | Symbol | Plain
ArrayOrScalar: TypeAlias = Array | Any
V = TypeVar("V", bound=Value | Symbol)

class Unary(Protocol):
    """How ``exp`` is called, and others like it."""

    @overload
    def __call__(self, x: V, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Scalar, /, *, tape: Tape | None = None) -> Any: ...
    @overload
    def __call__(self, x: Plain, /, *, tape: Tape | None = None) -> Array: ...

class Binary(Protocol):
    """How ``add`` is called, and others like it."""

    @overload
    def __call__(self, x: V, y: Operand, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Plain, y: V, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Scalar, y: Scalar, /, *, tape: Tape | None = None) -> Any: ...
    @overload
    def __call__(self, x: Plain, y: Plain, /, *, tape: Tape | None = None) -> Array: ...

class Fold(Protocol):
    """How ``sum`` is called, and others like it."""

    @overload
    def __call__(
        self,
        x: V,
        /,
        axis: int | tuple[int, ...] | None = None,
        *,
        keepdims: bool = False,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        /,
        axis: int | tuple[int, ...] | None = None,
        *,
        keepdims: bool = False,
        tape: Tape | None = None,
    ) -> ArrayOrScalar: ...

class Product(Protocol):
    """How ``matmul`` is called, and others like it."""

    @overload
    def __call__(self, x: V, y: Operand, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Plain, y: V, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Plain, y: Plain, /, *, tape: Tape | None = None) -> ArrayOrScalar: ...

class Stacking(Protocol):
    """How ``vstack`` is called, and others like it."""

    @overload
    def __call__(self, tup: V | Sequence[V], *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(
        self, tup: Array | Sequence[Array], *, tape: Tape | None = None
    ) -> ArrayOrScalar: ...
    @overload
    def __call__(self, tup: Operand | Sequence[object], *, tape: Tape | None = None) -> Any: ...

class Loss(Protocol):
    """How ``mean_squared_error`` is called, and others like it."""

    @overload
    def __call__(
        self,
        predictions: V,
        targets: Operand,
        *,
        reduction: str = "mean",
        weights: Operand | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        predictions: Plain,
        targets: V,
        *,
        reduction: str = "mean",
        weights: Operand | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self, predictions: Plain, targets: Plain, *, reduction: str = "mean", weights: V
    ) -> V: ...
    @overload
    def __call__(
        self,
        predictions: Plain,
        targets: Plain,
        *,
        reduction: str = "mean",
        weights: Plain | None = None,
    ) -> ArrayOrScalar: ...
