"""Symbolic dimensions: sizes that vary from call to call, in declarations and in plans.

One program for all sizes is planned at several sizes at once, the probe sizes. There a size that
varies is a ``SymbolicDim``: an int that has its values at all probe sizes. Planning compares sizes,
for example to decide whether a row fits on the stack. A symbolic dimension compares larger than
every fixed size, and equal to what equals it at every probe size. So plans of all sizes are alike,
and only the numbers in them differ.

In the text of a program, numbers that depend on a symbolic dimension are marked, so that
``symbolic_shapes.templates`` makes each of them a load from a list. At a probe size of 101::

    %v1 = icmp slt i64 %k, $101$             a size, see ``SIZE_MARK``
    call void @ody_parallel(..., i64 ~4~)    a number of blocks, see ``DERIVED_MARK``
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, floordiv, mod, mul, sub
from typing import Any

from odyssey.checks import check_int, format_value
from odyssey.errors import OdysseyError, SettingError

__all__ = ["DERIVED_MARK", "SIZE_MARK", "Dim", "SymbolicDim", "SymbolicDimError", "mark_derived"]

SIZE_MARK = "$"
"""Encloses a symbolic dimension in the text of a program. Two such numbers that are equal at all
probe sizes are one entry of the list; a further size at which they differ has another program."""

DERIVED_MARK = "~"
"""Encloses a number that is computed from sizes by rounding or by buffer assignment, as a number of
blocks or an offset. It may equal another number, or itself at other probe sizes, by accident. So it
is always a load, and each occurrence has an entry of its own."""


def mark_derived(number: int) -> str:
    """Format a number that is derived from symbolic dimensions, for the text of a program."""
    return f"{DERIVED_MARK}{number}{DERIVED_MARK}"


class Dim:
    """A size that varies from call to call, for ``od.compile(fn, dynamic=...)``.

    Args:
        name: Name of the dimension; axes that are declared with one name have equal sizes.
        low: The least size.
        high: The largest size; None if it is not known.

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
        """Return whether a size is within the bounds."""
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
    """A plan compares a symbolic dimension with its own value as a fixed number."""


class SymbolicDim(int):
    """A size at one probe size, with its values at all probe sizes.

    Args:
        value: Its value here.
        probes: Its value at each probe size.
    """

    probes: tuple[int, ...]

    def __new__(cls, value: int, probes: tuple[int, ...]) -> SymbolicDim:
        """Return a symbolic dimension."""
        dim = super().__new__(cls, value)
        dim.probes = probes
        return dim

    def _apply(self, other: Any, operator: Callable[[int, int], int], swapped: bool = False) -> Any:
        """Apply an operator at every probe size; an int if the result is the same at all."""
        if not isinstance(other, int):
            return NotImplemented
        count = len(self.probes)
        others = other.probes if isinstance(other, SymbolicDim) else (int(other),) * count
        pairs = [(int(self), int(other)), *zip(self.probes, others, strict=True)]
        value, *probes = [operator(b, a) if swapped else operator(a, b) for a, b in pairs]
        # A quotient may be 1 at each probe size, and not at the next size; so may its multiples.
        quotient = operator is floordiv and not isinstance(other, SymbolicDim)
        quotient = quotient or self._is_uniform()
        if not quotient and all(s == value for s in probes):
            return value
        return SymbolicDim(value, tuple(probes))

    def __add__(self, other: int) -> Any:
        return self._apply(other, add)

    def __sub__(self, other: int) -> Any:
        return self._apply(other, sub)

    def __rsub__(self, other: int) -> Any:
        return self._apply(other, sub, swapped=True)

    def __mul__(self, other: int) -> Any:
        return self._apply(other, mul)

    def __floordiv__(self, other: int) -> Any:
        return self._apply(other, floordiv)

    def __rfloordiv__(self, other: int) -> Any:
        return self._apply(other, floordiv, swapped=True)

    def __mod__(self, other: int) -> Any:
        return self._apply(other, mod)

    def __rmod__(self, other: int) -> Any:
        return self._apply(other, mod, swapped=True)

    def __neg__(self) -> Any:
        return self._apply(-1, mul)

    __radd__, __rmul__ = __add__, __mul__

    # -------------------------------------------------------------- comparisons

    def _is_below(self, other: int) -> bool:
        if isinstance(other, SymbolicDim):
            return self.probes[0] < other.probes[0]
        return self.probes[0] < 0

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
            return self.probes == other.probes
        # A quotient or a remainder may well be 1 or 0.
        if isinstance(other, int) and int(self) == other > 1 and self._is_planned():
            raise SymbolicDimError(f"a plan compares a size that varies with {int(other)}")
        return False

    def _is_planned(self) -> bool:
        """Return whether this is a probe size itself, which equals no fixed size."""
        return int(self) in self.probes and not self._is_uniform()

    def _is_uniform(self) -> bool:
        """Return whether the value is equal at all probe sizes, as that of a quotient may be."""
        return len(set(self.probes)) == 1

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(self.probes)

    def __format__(self, spec: str) -> str:
        """Format without a specification: marked, for the text of a program."""
        return format(int(self), spec) if spec else f"{SIZE_MARK}{int(self)}{SIZE_MARK}"
