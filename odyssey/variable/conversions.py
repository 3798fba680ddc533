"""What Python and NumPy make of a Variable: numbers, arrays, text; refused where one would lose."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.checks import STUMBLES, asked_outside, kind_of, shown
from odyssey.errors import (
    DTypeError,
    OdysseyError,
    SettingError,
    ShapeError,
    TapeError,
    UntrackedError,
)
from odyssey.quiet import apart
from odyssey.spec import Array
from odyssey.table.scope import Pause, follower, innermost
from odyssey.table.store import store
from odyssey.table.value import (
    Symbol,
    Value,
    is_constant,
    is_trainable,
    is_untracked,
    place_of,
)
from odyssey.variable import numpy_calls
from odyssey.variable.operators import Operators

__all__ = ["Conversions"]

_text = apart(np.array2string)


class Conversions(Value, Operators):
    """The part of a Variable that Python and NumPy ask for what they know: numbers and arrays."""

    __slots__ = ()

    if TYPE_CHECKING:
        name: str | None

        @property
        def data(self) -> Array: ...  # noqa: D102

    def item(self, *index: Any) -> Any:
        """The single element, or that at an index, as a Python number."""
        if index:
            return self._at(index)
        if self.size != 1:
            raise ShapeError(f"item: needs one element, this Variable has shape {self.shape}")
        store().demand("item() asks for the value of", self)
        return np.asarray(self._array).item()

    def _at(self, index: tuple[Any, ...]) -> Any:
        store().demand("item() asks for the value of", self)
        try:
            return np.asarray(self._array).item(*index)
        except STUMBLES as error:
            came = ", ".join(map(shown, index))
            raise kind_of(error)(
                f"item({came}) of a Variable of shape {self.shape}: {error}"
            ) from None

    # -------------------------------------------------------------- arrays

    if not TYPE_CHECKING:
        # NumPy's stubs take what has it for an array, so ``x @ w`` with an array on the left would
        # be one to type checkers.
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
            return self._converted(dtype, copy)

    def _converted(self, dtype: Any, copy: bool | None) -> Array:
        """What NumPy makes an array of; raises where that would lose a gradient."""
        store().demand("an array is made of", self)
        if isinstance(top := innermost(), Pause) and top.refuse is not None:
            top.refuse("conversion to an array", self)
        if self._carries_gradient():
            raise TapeError(
                "a Variable that requires a gradient does not become an array by itself, because "
                f"the array would carry none; {numpy_calls.counterpart()}join several by "
                "od.ops.stack, or a nest of them by od.ops.array, and use .detach().numpy() where "
                f"no gradient is needed, on {self!r}"
            ) from None  # NumPy may be handling an error of its own search
        try:
            return np.array(self.data, dtype, copy=copy)
        except STUMBLES as error:
            if isinstance(error, OdysseyError):
                raise
            kind = SettingError if isinstance(error, ValueError) else DTypeError
            raise kind(f"{self!r} as an array of dtype={shown(dtype)}: {error}") from None

    def _carries_gradient(self) -> bool:
        """Whether a copy of the bare data would lose a gradient."""
        if is_constant(self):
            return False
        if not self.is_leaf or is_untracked(self):
            return True
        return follower("conversion to an array", self) is not None

    def __dlpack__(self, **options: Any) -> Any:
        store().demand("an array is made of", self)
        if not is_constant(self):
            raise TapeError(f"__dlpack__: detach() {self!r} first")
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()

    def __len__(self) -> int:
        if not self._spec.shape:
            raise DTypeError("len() of a Variable without axes")
        return self._spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._spec.shape:
            raise DTypeError("iteration over a Variable without axes")
        return (self[i] for i in range(len(self)))

    def _element(self) -> Any:
        """The single element, as NumPy's."""
        if self.size != 1:
            raise ShapeError(
                f"a Variable of shape {self.shape} is not a single number; use .any(), .all() or "
                "an index"
            )
        store().demand("Python asks for the value of", self)
        return np.asarray(self._array).reshape(())[()]

    def _number(self, who: str) -> Any:
        """The single element for what will be a plain number, unless a gradient would be lost."""
        store().demand("Python asks for the value of", self)
        self._refuse_if_followed(who)
        return self._element()

    def _refuse_if_followed(self, who: str) -> None:
        home = follower(who, self)
        if home is None:
            return
        if is_untracked(self):
            raise UntrackedError(
                f"{who}: {self!r} was computed from a trainable leaf while nothing recorded, so a "
                "number made of it under a tape carries no gradient; pass .item() if that is meant"
            )
        raise TapeError(
            f"{who}: {home!r} follows {self!r}, and a plain number would carry no gradient; call "
            "an op of od.ops instead, or pass .item() if a number is meant"
        )

    def __bool__(self) -> bool:
        return bool(self._element())

    # NumPy and math ask for these where they take a Variable for a number: y[0] = v, math.exp(v).

    def __float__(self) -> float:
        return float(self._number("float"))

    def __format__(self, spec: str) -> str:
        store().demand("format() asks for the value of", self)
        if not isinstance(spec, str):
            raise DTypeError(f"format of {self!r}: {shown(spec)} is not text")
        if not spec:
            return str(self)
        try:
            return format(self.item(), spec)
        except ValueError as error:
            if isinstance(error, OdysseyError):
                raise
            raise SettingError(f"format of {self!r}: {error}; {spec!r} came") from None

    def __int__(self) -> int:
        return int(self._number("int"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __trunc__(self) -> int:
        return int(self._number("trunc").item())

    def __floor__(self) -> int:
        below: int = math.floor(self._number("floor").item())
        return below

    def __ceil__(self) -> int:
        above: int = math.ceil(self._number("ceil").item())
        return above

    def __round__(self, digits: int | None = None) -> Any:
        """The nearest number of ``digits`` digits, with its gradient; see ``ops.round``."""
        return self.round(0 if digits is None else digits)

    def __index__(self) -> int:
        store().demand("Python asks for the value of", self)
        self._refuse_if_followed("index")
        if self.dtype.kind not in "iu":
            raise DTypeError(f"{self!r} is not an integer, so it cannot be an index")
        return int(self._element())

    # -------------------------------------------------------------- pictures

    def __repr__(self) -> str:
        if asked_outside():
            store().only_eagerly("it writes out a Variable")
        facts = [f"shape={self.shape}", f"dtype={self.dtype}"]
        if self.name is not None:
            facts.append(f"name={self.name!r}")
        if is_trainable(self):
            facts.append("requires_grad=True")
        elif is_untracked(self):
            facts.append("untracked")
        elif not is_constant(self):
            facts.append(f"op={self._op_name()}")
        return f"Variable({self._values()}, {', '.join(facts)})"

    def _values(self) -> str:
        if isinstance(self._array, Symbol):
            return f"<{self._array!r}>"
        return _text(np.asarray(self._array), separator=", ", threshold=20, edgeitems=2)

    def _op_name(self) -> str:
        place = place_of(self)
        for node in reversed(place.nodes):
            if node[1] == self._id:
                return str(node[0].name)
        # What a transform gives its function is watched without a node.
        return "identity" if self._id in place.watched else "(spent)"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(repr(self))}</pre>"
