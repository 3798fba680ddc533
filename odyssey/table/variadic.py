"""Ops of any number of operands: a row for each number, made when it is first called for.

They are the same op: one reference, which takes a sequence, and one rule for each operand, which
may ask for the place of its own. The row of two operands stands in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import result_type
from odyssey.errors import DTypeError, ShapeError
from odyssey.table.numpy_signatures import call_with_numpy_signature
from odyssey.table.row import Row
from odyssey.table.signature import Layout
from odyssey.table.value import NUMBERS, Traced, Value

__all__ = ["ArityRows", "spread_operands", "variadic_caller"]

# Rules look at the specs of all operands, so that a row of n takes time that grows with n * n. Ops
# that may be done in bunches are, above so many.
_BUNCH = 32
_MAX_ROWS = 64

Member = tuple[Row, Callable[..., Any]]


class ArityRows:
    """The rows of an op, by the number of operands, each with what calls it."""

    def __init__(self, make: Callable[[int], Member]) -> None:
        self._make = make
        self._made: dict[int, Member] = {2: make(2)}
        self.head = self._made[2][0]
        self._call: Any = None

    def called_by(self, call: Callable[..., Any]) -> None:
        """Let the rows be called as users call the op."""
        self.head.call = self._call = call

    def __call__(self, count: int) -> Row:
        """The row of so many operands."""
        return self.member(count)[0]

    def member(self, count: int) -> Member:
        """Return the row of ``count`` operands, and the function that calls it."""
        found = self._made.get(count)
        if found is None:
            if len(self._made) >= _MAX_ROWS:
                self._made = {2: self._made[2]}
            found = self._make(count)
            found[0].call = self._call
            self._made[count] = found
        return found


def spread_operands(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A function of a sequence and options as rows call theirs: on operands one by one."""

    @wraps(function)
    def spread(*values: Any) -> Any:
        return function(values[:count], *values[count:])

    return spread


def variadic_caller(layout: Layout, members: ArityRows, bunches: bool) -> Callable[..., Any]:
    """The callable of an op of any number of operands, in a sequence or one by one.

    Args:
        layout: What was read from the reference.
        members: Its rows.
        bunches: Whether many operands may be taken in bunches, and then what came of these.
    """
    known, most = frozenset(layout.options), 1 + layout.positional

    def call(*args: Any, tape: Any = None, **named: Any) -> Any:
        if not args and layout.arrays[0] in named:
            args = (named.pop(layout.arrays[0]),)
        if not known.issuperset(named) or (len(args) > most and _only_options(args)):
            more = {} if tape is None else {"tape": tape}
            found = call_with_numpy_signature(
                layout.name, call, members.head.reference, args, named | more
            )
            if found is NotImplemented:
                raise DTypeError(members.head.signature_error(args, named))
            return found
        parts, options = _split_arguments(layout, args)
        named = dict(zip(layout.options, options, strict=False)) | named
        while bunches and len(parts) > _BUNCH:
            each = [parts[k : k + _BUNCH] for k in range(0, len(parts), _BUNCH)]
            parts = [members.member(len(few))[1](*few, tape=tape, **named) for few in each]
        return members.member(len(parts))[1](*parts, tape=tape, **named)

    return call


def _only_options(args: Sequence[Any]) -> bool:
    """Whether all that stands behind a list of arrays are options."""
    return isinstance(args[0], (list, tuple)) and all(map(_is_option, args[1:]))


def _split_arguments(layout: Layout, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The operands, numbers among them as arrays, and options that came by position."""
    name, rest = layout.name, list(args[1:])
    options: list[Any] = []
    while rest and len(options) < layout.positional and _is_option(rest[-1]):
        options.insert(0, rest.pop())
    try:
        parts = [args[0], *rest] if rest else list(args[0]) if args else []
    except TypeError:
        raise DTypeError(f"{name}: {format_value(args[0])} came; pass a list of arrays") from None
    if not parts:
        raise ShapeError(f"{name}: no arrays came; pass one or more")
    return _numbers_to_arrays(name, parts), options


def _numbers_to_arrays(name: str, parts: list[Any]) -> list[Any]:
    """Operands, of which Python's numbers become arrays of the dtype that all have together."""
    if not any(type(part) in NUMBERS for part in parts):
        return parts
    known = (*NUMBERS, Value, Traced)
    parts = [p if isinstance(p, known) else as_array(name, "an operand", p) for p in parts]
    kinds = [part if type(part) in NUMBERS else part.dtype for part in parts]
    dtype = result_type(*kinds) if any(type(kind) not in NUMBERS for kind in kinds) else None
    try:
        return [np.array(p, dtype) if type(p) in NUMBERS else p for p in parts]
    except OverflowError as error:
        raise DTypeError(f"{name}: {error}, the dtype of the arrays beside it") from None


def _is_option(value: Any) -> bool:
    return value is None or isinstance(value, (int, np.integer, str))
