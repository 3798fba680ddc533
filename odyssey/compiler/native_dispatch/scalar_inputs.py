"""Scalar inputs: Python numbers that are passed to a program at each call, and their conversion.

Called by ``pipeline`` and ``executable``; ``entry`` generates the conversion at run time. A program
receives the numbers among the arguments, then the numbers that Python computed of them. It uses
each in one dtype or more, by NumPy's promotion. The native entry point converts them; for a number
that does not fit its dtype, the guard fails and the function runs as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.ir.nodes import scalar_program
from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.scalar_programs import emit_scalar_program
from odyssey.compiler.native_dispatch.tables import (
    DOUBLE_TO_FLOAT,
    INT_TO_DOUBLE,
    INT_TO_FLOAT,
    STORE_DOUBLE,
    STORE_INT,
)
from odyssey.compiler.symbolic.expressions import Arithmetic, Expression, compile_expressions
from odyssey.errors import OdysseyError

__all__ = [
    "ScalarInputs",
    "ScalarSlot",
    "to_dtype_exactly",
    "value_dependent_operands",
]


class ScalarSlot(NamedTuple):
    """One scalar input of a program.

    Attributes:
        kind: Its class, float or int.
        uses: The dtypes in which it is used, each with the index of its cell.
    """

    kind: type
    uses: tuple[tuple[str, int], ...]


class ScalarInputs:
    """The scalar inputs of one program.

    Args:
        arithmetic: How numbers are computed of the arguments.
        used: By expression and dtype, the index of its cell.
        called: Expressions whose values host calls take as Python numbers.

    Attributes:
        count: The number of scalar arguments.
        slots: The scalar slots, in order: the arguments, then the numbers computed of them.
        cells: The memory that numbers are converted into.
        known: By expression, the values for host calls during a run.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        used: Mapping[tuple[Expression, str], int],
        called: Sequence[Expression],
    ) -> None:
        used = dict(used)
        for one in arithmetic.bound:
            used.setdefault((one, "i8"), len(used))
        self.count = len(arithmetic.inputs)
        computed = dict.fromkeys(one for one, _ in used if one not in arithmetic.inputs)
        self.slots = [
            ScalarSlot(one.kind, tuple([(type, k) for (e, type), k in used.items() if e == one]))
            for one in (*arithmetic.inputs, *computed)
        ]
        self.cells = np.zeros(len(used) + 1, np.int64)  # the last is for unused numbers
        self.known: dict[Expression, Any] = {}
        self._kinds = [one.kind for one in arithmetic.inputs]
        self._called = list(dict.fromkeys(called))
        self._compute: Callable[..., tuple[Any, ...]] | None = None
        if arithmetic.steps or self._called:
            names = [one.operands[0] for one in arithmetic.inputs]
            self._compute = compile_expressions(arithmetic.steps, names, [*computed, *self._called])

    @property
    def computes(self) -> bool:
        """Return whether Python computes numbers of the arguments."""
        return self._compute is not None

    def with_computed(self, numbers: Sequence[Any]) -> Sequence[Any] | None:
        """Return the arguments and the numbers computed of them; None if that raises."""
        if self._compute is None:
            return numbers
        if [type(number) for number in numbers] != self._kinds:
            return None
        try:
            return (*numbers, *self._compute(*numbers))
        except Exception:
            return None

    def for_entry_point(self, numbers: Sequence[Any]) -> Sequence[Any] | None:
        """Return the numbers for the entry point, keep those for host calls."""
        if not self._called:
            return numbers
        count = len(self.slots)
        self.known = dict(zip(self._called, numbers[count:], strict=True))
        # A number of another class would give a result of another dtype.
        if any(type(number) is not one.kind for one, number in self.known.items()):
            return None
        return numbers[:count]

    def rows(self, first: int) -> list[int]:
        """Return the rows of ``scalars`` in the block of a program, which describe each number.

        Args:
            first: The index of the first number among the arguments of the entry point.
        """
        start, rows = self.cells.__array_interface__["data"][0], list[int]()
        for k, one in enumerate(self.slots, first):
            for type_, cell in one.uses or (("", self.cells.size - 1),):
                conversion = _CONVERSIONS.get((one.kind, type_ or "f8"), STORE_INT)
                rows += [
                    k,
                    id(one.kind),
                    *_integer_limits(type_ or "i8"),
                    conversion,
                    start + 8 * cell,
                ]
        return rows

    def store(self, numbers: Sequence[Any]) -> bool:
        """Convert numbers into their cells, as the entry point does; False if one does not fit."""
        cell_bytes = self.cells.view(np.uint8)
        for one, number in zip(self.slots, numbers, strict=True):
            if type(number) is not one.kind:
                return False
            for type_, k in one.uses:
                found = to_dtype_exactly(number, type_)
                if found is None:
                    return False
                cell_bytes[8 * k : 8 * k + found.itemsize] = np.frombuffer(
                    found.tobytes(), np.uint8
                )
        return True


_CONVERSIONS = {
    (int, "f8"): INT_TO_DOUBLE,
    (int, "f4"): INT_TO_FLOAT,
    (float, "f8"): STORE_DOUBLE,
    (float, "f4"): DOUBLE_TO_FLOAT,
}
# float64 holds all integers up to here, so that a conversion to float32 rounds once.
_MAX_EXACT_DOUBLE = 1 << 53
# The range that the C API converts.
_INT64 = np.iinfo(np.int64)


def _integer_limits(type_: str) -> tuple[int, int]:
    """Return the least and the largest integer that a dtype accepts."""
    if type_ == "f4":
        return -_MAX_EXACT_DOUBLE, _MAX_EXACT_DOUBLE
    limits = np.iinfo(type_) if type_[0] in "iu" else _INT64
    return max(int(limits.min), int(_INT64.min)), min(int(limits.max), int(_INT64.max))


def to_dtype_exactly(number: Any, type_: str) -> Any:
    """Convert a number as a ufunc does; None if the dtype does not hold it."""
    dtype = np.dtype(type_)
    if isinstance(number, int):
        low, high = _integer_limits(type_)
        within = low <= number <= high
    else:
        within = not float(np.finfo(dtype).max) < abs(number) < inf
    return dtype.type(number) if within else None


# ------------------------------------------------------------------ operands read during codegen


class _ObservedValue(LLVMValue):
    """A value that records whether code generation asks for its number."""

    def __init__(self, code: FunctionBuilder, type: str) -> None:
        super().__init__(code, type, "%x")
        self.was_read = False

    @property
    def number(self) -> None:
        """The unknown number; asking for it is recorded."""
        self.was_read = True


def value_dependent_operands(
    row: Any, values: Sequence[Any], options: tuple[Any, ...]
) -> frozenset[int]:
    """Return the operands of a row whose values, if known, change its generated code."""
    if row.scalar is None or row.pack_results is not None:
        return frozenset()  # its kernel is called with the number
    try:
        return _value_dependent_operands(row.scalar, len(values), options)
    except TypeError:  # an option that is not hashable
        return frozenset(range(len(values)))


@lru_cache(maxsize=512)
def _value_dependent_operands(scalar: Any, count: int, options: tuple[Any, ...]) -> frozenset[int]:
    found: set[int] = set()
    for type in ("f8", "i8"):
        for k in range(count):
            code = FunctionBuilder()
            observed = _ObservedValue(code, type)
            words = [LLVMValue(code, type, "%y") for _ in range(count)]
            words[k] = observed
            with suppress(OdysseyError):  # an op without code: its kernel is called
                emit_scalar_program(code, scalar_program(scalar, count, options, type).body, words)
            if observed.was_read:
                found.add(k)
    return frozenset(found)
