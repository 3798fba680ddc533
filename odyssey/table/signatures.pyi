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
    """Signature of ``exp`` and others."""

    @overload
    def __call__(self, x: V, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Scalar, /, *, tape: Tape | None = None) -> Any: ...
    @overload
    def __call__(self, x: Plain, /, *, tape: Tape | None = None) -> Array: ...

class Binary(Protocol):
    """Signature of ``add`` and others."""

    @overload
    def __call__(self, x: V, y: Operand, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Plain, y: V, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Scalar, y: Scalar, /, *, tape: Tape | None = None) -> Any: ...
    @overload
    def __call__(self, x: Plain, y: Plain, /, *, tape: Tape | None = None) -> Array: ...

class Fold(Protocol):
    """Signature of ``sum`` and others."""

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
    """Signature of ``matmul`` and others."""

    @overload
    def __call__(self, x: V, y: Operand, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Plain, y: V, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, x: Plain, y: Plain, /, *, tape: Tape | None = None) -> ArrayOrScalar: ...

class Stacking(Protocol):
    """Signature of ``vstack`` and others."""

    @overload
    def __call__(self, tup: V | Sequence[V], *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(
        self, tup: Array | Sequence[Array], *, tape: Tape | None = None
    ) -> ArrayOrScalar: ...
    @overload
    def __call__(self, tup: Operand | Sequence[object], *, tape: Tape | None = None) -> Any: ...

class Loss(Protocol):
    """Signature of ``mean_squared_error`` and others."""

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

class NanFold(Protocol):
    """Signature of ``nansum`` and others."""

    @overload
    def __call__(
        self,
        a: V,
        axis: int | tuple[int, ...] | None = None,
        *,
        keepdims: bool = False,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        a: Plain,
        axis: int | tuple[int, ...] | None = None,
        *,
        keepdims: bool = False,
        tape: Tape | None = None,
    ) -> ArrayOrScalar: ...

class Scattering(Protocol):
    """Signature of ``scatter`` and others."""

    @overload
    def __call__(
        self, x: V, indices: Operand, source: Operand, *, axis: int, tape: Tape | None = None
    ) -> V: ...
    @overload
    def __call__(
        self, x: Plain, indices: V, source: Operand, *, axis: int, tape: Tape | None = None
    ) -> V: ...
    @overload
    def __call__(
        self, x: Plain, indices: Plain, source: V, *, axis: int, tape: Tape | None = None
    ) -> V: ...
    @overload
    def __call__(
        self, x: Plain, indices: Plain, source: Plain, *, axis: int, tape: Tape | None = None
    ) -> ArrayOrScalar: ...

class MatrixFunction(Protocol):
    """Signature of ``inv`` and others."""

    @overload
    def __call__(self, a: V, /, *, tape: Tape | None = None) -> V: ...
    @overload
    def __call__(self, a: Plain, /, *, tape: Tape | None = None) -> Array: ...

class Transform(Protocol):
    """Signature of ``fft`` and others."""

    @overload
    def __call__(
        self,
        a: V,
        n: int | None = None,
        axis: int = -1,
        norm: str | None = None,
        *,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        a: Plain,
        n: int | None = None,
        axis: int = -1,
        norm: str | None = None,
        *,
        tape: Tape | None = None,
    ) -> ArrayOrScalar: ...

class TwoDimensionalTransform(Protocol):
    """Signature of ``fft2`` and others."""

    @overload
    def __call__(
        self,
        a: V,
        s: Sequence[int] | None = None,
        axes: Sequence[int] = ...,
        norm: str | None = None,
        *,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        a: Plain,
        s: Sequence[int] | None = None,
        axes: Sequence[int] = ...,
        norm: str | None = None,
        *,
        tape: Tape | None = None,
    ) -> ArrayOrScalar: ...

class MultidimensionalTransform(Protocol):
    """Signature of ``fftn`` and others."""

    @overload
    def __call__(
        self,
        a: V,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str | None = None,
        *,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        a: Plain,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str | None = None,
        *,
        tape: Tape | None = None,
    ) -> ArrayOrScalar: ...

class Convolution(Protocol):
    """Signature of ``conv1d`` and others."""

    @overload
    def __call__(
        self,
        x: V,
        weight: Operand,
        bias: Operand | None = None,
        /,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        weight: V,
        bias: Operand | None = None,
        /,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        weight: Plain,
        bias: V,
        /,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        weight: Plain,
        bias: Plain | None = None,
        /,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        tape: Tape | None = None,
    ) -> Array: ...

class TransposedConvolution(Protocol):
    """Signature of ``conv_transpose1d`` and others."""

    @overload
    def __call__(
        self,
        x: V,
        weight: Operand,
        bias: Operand | None = None,
        /,
        *,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        weight: V,
        bias: Operand | None = None,
        /,
        *,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        weight: Plain,
        bias: V,
        /,
        *,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        weight: Plain,
        bias: Plain | None = None,
        /,
        *,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        tape: Tape | None = None,
    ) -> ArrayOrScalar: ...

class MaxPooling(Protocol):
    """Signature of ``max_pool1d`` and others."""

    @overload
    def __call__(
        self,
        x: V,
        /,
        *,
        window: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        /,
        *,
        window: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        tape: Tape | None = None,
    ) -> Array: ...

class AveragePooling(Protocol):
    """Signature of ``avg_pool1d`` and others."""

    @overload
    def __call__(
        self,
        x: V,
        /,
        *,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        count_include_pad: bool = True,
        ceil_mode: bool = False,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        /,
        *,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        count_include_pad: bool = True,
        ceil_mode: bool = False,
        tape: Tape | None = None,
    ) -> Array: ...

class Unpooling(Protocol):
    """Signature of ``max_unpool1d`` and others."""

    @overload
    def __call__(
        self,
        x: V,
        indices: Operand,
        *,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        indices: V,
        *,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        indices: Plain,
        *,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
        tape: Tape | None = None,
    ) -> ArrayOrScalar: ...

class Dropout(Protocol):
    """Signature of ``dropout`` and others."""

    @overload
    def __call__(
        self,
        x: V,
        *,
        rate: float = 0.5,
        rng: Any = None,
        training: bool = True,
        tape: Tape | None = None,
    ) -> V: ...
    @overload
    def __call__(
        self,
        x: Plain,
        *,
        rate: float = 0.5,
        rng: Any = None,
        training: bool = True,
        tape: Tape | None = None,
    ) -> ArrayOrScalar: ...
