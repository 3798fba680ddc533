"""Sizes that vary from call to call: how they are declared, and what they are to a plan.

A program for all sizes is made by planning it at several sizes at once. There a size that varies is
a ``SymbolicDim``: a whole number that knows what it is at the other sizes. Plans ask sizes which of
two ways is faster, as whether a row fits on the stack. A varying size answers as if it were larger
than all that are fixed, and is equal to what is equal to it at every size: so plans of all sizes
are alike, and only the numbers in them differ.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, floordiv, mod, mul, sub
from typing import Any

from odyssey.checks import check_int, format_value
from odyssey.errors import OdysseyError, SettingError

__all__ = ["Dim", "SymbolicDimError", "SymbolicDim"]


class Dim:
    """A size that varies from call to call, for ``od.compile(fn, dynamic=...)``.

    Args:
        name: What it is called. Where one name stands at several places, the sizes there are equal.
        low: The least that it is.
        high: The most that it is; None where that is not known.

    >>> Dim("batch", 1, 4096)
    Dim('batch', 1, 4096)
    """

    __slots__ = ("high", "low", "name")

    def __init__(self, name: str, low: int = 1, high: int | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise SettingError(
                f"Dim: name={format_value(name)} is not a name; pass a string, as 'batch'"
            )
        self.name = name
        self.low = check_int("Dim", "low", low, 0)
        self.high = None if high is None else check_int("Dim", "high", high, self.low)

    def holds(self, size: int) -> bool:
        """Whether a size is within the bounds."""
        return self.low <= size and (self.high is None or size <= self.high)

    def __repr__(self) -> str:
        bounds = f", {self.low}" if self.high is None else f", {self.low}, {self.high}"
        return f"Dim({self.name!r}{bounds})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dim):
            return NotImplemented
        return (self.name, self.low, self.high) == (other.name, other.low, other.high)

    def __hash__(self) -> int:
        return hash((self.name, self.low, self.high))


class SymbolicDimError(OdysseyError):
    """A number that varies met itself as one that does not know so."""


class SymbolicDim(int):
    """A size here, and what it is at other sizes.

    Attributes:
        seen: What it is at each of the sizes that a program is planned at.
    """

    seen: tuple[int, ...]

    def __new__(cls, value: int, seen: tuple[int, ...]) -> SymbolicDim:
        """A size that is ``value`` here."""
        made = super().__new__(cls, value)
        made.seen = seen
        return made

    def _with(self, other: Any, how: Callable[[int, int], int], swapped: bool = False) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        others = other.seen if isinstance(other, SymbolicDim) else (int(other),) * len(self.seen)
        pairs = [(int(self), int(other)), *zip(self.seen, others, strict=True)]
        value, *seen = [how(b, a) if swapped else how(a, b) for a, b in pairs]
        # A share may be 1 at each size that was planned, and not at the next.
        share = how is floordiv and not isinstance(other, SymbolicDim)
        if not share and all(s == value for s in seen):
            return value
        return SymbolicDim(value, tuple(seen))

    def __add__(self, other: int) -> Any:
        return self._with(other, add)

    def __sub__(self, other: int) -> Any:
        return self._with(other, sub)

    def __rsub__(self, other: int) -> Any:
        return self._with(other, sub, swapped=True)

    def __mul__(self, other: int) -> Any:
        return self._with(other, mul)

    def __floordiv__(self, other: int) -> Any:
        return self._with(other, floordiv)

    def __rfloordiv__(self, other: int) -> Any:
        return self._with(other, floordiv, swapped=True)

    def __mod__(self, other: int) -> Any:
        return self._with(other, mod)

    def __rmod__(self, other: int) -> Any:
        return self._with(other, mod, swapped=True)

    def __neg__(self) -> Any:
        return self._with(-1, mul)

    __radd__, __rmul__ = __add__, __mul__

    # -------------------------------------------------------------- questions

    def _is_below(self, other: int) -> bool:
        if isinstance(other, SymbolicDim):
            return self.seen[0] < other.seen[0]
        return self.seen[0] < 0

    def __lt__(self, other: int) -> bool:
        return self._is_below(other)

    def __ge__(self, other: int) -> bool:
        return not self._is_below(other)

    def __le__(self, other: int) -> bool:
        return self._is_below(other) or self == other

    def __gt__(self, other: int) -> bool:
        return not self <= other

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SymbolicDim):
            return self.seen == other.seen
        # A share or what a division leaves may well be 1, or 0.
        if isinstance(other, int) and int(self) == other > 1 and self._is_planned():
            raise SymbolicDimError(f"a plan compares a size that varies with {int(other)}")
        return False

    def _is_planned(self) -> bool:
        """Whether this is one of the sizes that are planned at, which no fixed size is equal to."""
        return int(self) in self.seen and len(set(self.seen)) > 1

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(self.seen)

    def __format__(self, spec: str) -> str:
        """In the text of a program it is marked."""
        return format(int(self), spec) if spec else f"${int(self)}$"
