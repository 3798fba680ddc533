"""Writing to a Variable: ``assign``, item assignment and the operators that work in place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Self

from odyssey.devices.guard import guard, wait_for_programs
from odyssey.errors import TapeError
from odyssey.ops.structure.indexing import NoValueError, setitem
from odyssey.table.published import load
from odyssey.table.scope import recording_now
from odyssey.table.store import operand_of, store
from odyssey.table.value import Value, is_trainable, is_untracked
from odyssey.variable.operators import Operators

__all__ = ["Writing"]


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
        if not self.is_leaf or is_untracked(self):
            raise TapeError(f"assign: {self!r} is not a leaf; build a new value with ops instead")
        store().write(self, operand_of(value))
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        if not is_trainable(self):
            store().become(self, _written(self, value, key))
            return
        if recording_now() is not None:
            raise TapeError(
                f"item assignment: {self!r} is a trainable leaf under a tape; "
                "write y = ops.setitem(w, value, key), or assign() outside the tape"
            )
        here = store()
        with guard():
            wait_for_programs()
            here.write(self, _written(here.operand(self), operand_of(value), key))

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
        """``x += y`` writes to a trainable leaf off the tape, and else makes ``x`` a new value.

        A constant keeps its value for whoever else holds it, as an intermediate does.
        """
        if is_trainable(self) and recording_now() is not None:
            raise TapeError(
                f"{sign}: {self!r} is a trainable leaf under a tape; write y = w {sign[:-1]} ..., "
                "or assign() outside the tape"
            )
        if not is_trainable(self):
            result: Self = apply(self, other)
            return result
        with guard():
            wait_for_programs()
            self.assign(apply(self, other))
        return self


def _written(x: Any, value: Any, key: Any) -> Any:
    """``x`` with ``value`` at ``key``, which in a graph may be known to a run alone."""
    try:
        return setitem(x, value, key)
    except NoValueError:
        found = load("odyssey.ops.structure.traced_keys").write_at(x, value, key)
        if found is NotImplemented:
            raise
        return found
