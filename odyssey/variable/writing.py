"""Writing to a Variable: ``assign``, item assignment and the operators that work in place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from odyssey.devices.arrays import as_array
from odyssey.devices.commit import commit
from odyssey.devices.guard import GUARD
from odyssey.devices.locks import holders
from odyssey.errors import DTypeError, MutationError, ShapeError, TapeError
from odyssey.ops.indexing import setitem
from odyssey.table.scope import TRACE, recording_now
from odyssey.table.value import LEAF, UNTRACKED, Mark, Value, array_of, replacing
from odyssey.variable.operators import Operators

__all__ = ["Writing", "refuse_locked"]


class Writing(Value, Operators):
    """The part of a Variable that writes: to a leaf, or by taking another value."""

    __slots__ = ()

    def assign(self, value: Any) -> Self:
        """Write ``value`` into this leaf's array; tapes that still need the old one notice.

        Args:
            value: An array or number that broadcasts to this shape, of a kind that casts safely.

        Raises:
            TapeError: for an intermediate. MutationError: where a tape holds the array locked.
        """
        if not isinstance(self._recording, Mark) or self._recording is UNTRACKED:
            raise TapeError(f"assign: {self!r} is not a leaf; build a new value with ops instead")
        value = array_of(value)
        trace = TRACE.get()
        if trace is not None:
            trace.assign(self, value)
            return self
        array = as_array("assign", "the value", value)
        if not np.can_cast(array.dtype, self._array.dtype, "same_kind"):
            raise DTypeError(f"assign: {array.dtype} does not cast to {self.dtype} of {self!r}")
        array = np.asarray(array, self._array.dtype)  # which may overflow: before anything is done
        with GUARD:
            try:
                refuse_locked("assign", self)
                array = np.broadcast_to(array, self.shape)
            except ValueError:
                raise ShapeError(
                    f"assign: a value of shape {array.shape} does not fit {self!r}"
                ) from None
            # NumPy would copy what overlaps, and that may fail.
            if np.may_share_memory(array, self._array):
                array = array.copy()
            commit(replacing(self, array))
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        trace = TRACE.get()
        if self._recording is LEAF:
            if recording_now() is not None:
                raise TapeError(
                    f"item assignment: {self!r} is a trainable leaf under a tape; "
                    "write y = ops.setitem(w, value, key), or assign() outside the tape"
                )
            if trace is not None:
                trace.assign(self, setitem(trace.lift(self), array_of(value), key))
                return
            with GUARD:
                self.assign(setitem(np.array(self._array), array_of(value), key))
            return
        result = setitem(self, value, key)
        if trace is not None and not trace.is_own(self):
            trace.assign(self, result._array)
            return
        commit(
            [
                (setattr, self, "_array", result._array),
                (setattr, self, "_spec", result._spec),
                (setattr, self, "_recording", result._recording),
                (setattr, self, "_id", result._id),
                (setattr, self, "_placed", None),
            ]
        )

    def __iadd__(self, other: Any) -> Self:
        return self._in_place("+=", operator.add, other)

    def __isub__(self, other: Any) -> Self:
        return self._in_place("-=", operator.sub, other)

    def __imul__(self, other: Any) -> Self:
        return self._in_place("*=", operator.mul, other)

    def __itruediv__(self, other: Any) -> Self:
        return self._in_place("/=", operator.truediv, other)

    def __ifloordiv__(self, other: Any) -> Self:
        return self._in_place("//=", operator.floordiv, other)

    def __imod__(self, other: Any) -> Self:
        return self._in_place("%=", operator.mod, other)

    def __ipow__(self, other: Any) -> Self:
        return self._in_place("**=", operator.pow, other)

    def __imatmul__(self, other: Any) -> Self:
        return self._in_place("@=", operator.matmul, other)

    def _in_place(self, sign: str, apply: Callable[[Any, Any], Any], other: Any) -> Self:
        """``x += y`` rebinds an intermediate to a new value, and writes to a leaf off the tape."""
        if self._recording is LEAF and recording_now() is not None:
            raise TapeError(
                f"{sign}: {self!r} is a trainable leaf under a tape; write y = w {sign[:-1]} ..., "
                "or assign() outside the tape"
            )
        if self._recording is not LEAF:
            result: Self = apply(self, other)
            return result
        with GUARD:
            self.assign(apply(self, other))
        return self


def refuse_locked(who: str, variable: Value) -> None:
    """Raise where the array of ``variable`` cannot be written to, and say whose lock it is."""
    if variable._array.flags.writeable:
        return
    tapes = " and ".join(map(repr, holders(variable._array)))
    why = f"is needed unchanged by {tapes}; sweep or clear that tape first"
    if not tapes:
        why = "is read-only, as its owner made it; pass a copy of it to Variable"
    raise MutationError(f"{who}: the array of {variable!r} {why}")
