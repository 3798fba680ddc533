"""Symbolic execution of a function of ops into a list of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from odyssey.errors import OdysseyError
from odyssey.spec import Spec, spec_of
from odyssey.table.value import NUMBERS, Symbol

__all__ = ["Step", "Steps", "spec_of_operand"]


class Step(NamedTuple):
    """One call: its operands are Symbols, arrays, numbers or None."""

    row: Any
    operands: tuple[Any, ...]
    options: tuple[Any, ...]
    out: Symbol


class Steps:
    """The ops that a function calls on Symbols, in order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._made = 0

    def symbol(self, spec: Spec) -> Symbol:
        """Return a new value that no step computes."""
        self._made += 1
        return Symbol(spec, self, self._made)

    def emit(self, row: Any, values: Sequence[Any], options: tuple[Any, ...]) -> Symbol:
        """Append a call, as a Symbol's graph does."""
        if row.pack_results is not None:
            raise OdysseyError(
                f"{row.name}: has several results, which steps cannot; write the rules by hand"
            )
        out = self.symbol(row.infer(*map(spec_of_operand, values), *options))
        self.steps.append(Step(row, tuple(values), options, out))
        return out


def spec_of_operand(value: Any) -> Any:
    """The spec of an operand; Python numbers, whose dtype is weak, and None stay."""
    if isinstance(value, Symbol):
        return value.spec
    if value is None or type(value) in NUMBERS:
        return value
    return spec_of(value if hasattr(value, "dtype") else np.asarray(value))
