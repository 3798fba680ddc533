"""Updates in place: what a rule does, as calls of C that write into the arrays of a pack."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from operator import itemgetter, setitem
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.arrays import ARRAYS
from odyssey.devices.commit import Plan, commit
from odyssey.spec import Array

__all__ = ["Call", "Place", "Program", "Update", "bound"]

# NumPy warns where these get the array to write to as a third operand.
_OUT_BY_NAME = frozenset({np.maximum, np.minimum})

Place = Hashable
"""Where a value lies: ``"g"``, ``"p"``, a slot, a scratch array by number, or a number by key."""

_GAP: Any = object()  # in a call, the gradient that is not there yet


class Call(NamedTuple):
    """One call of a program: ``function`` of what lies at ``operands``, written to ``out``.

    The function is a ufunc; or ``setitem``, which copies, in another dtype maybe; or ``np.where``,
    which writes its second operand to ``out`` where the first, a number, is true.
    """

    function: Any
    operands: tuple[Place, ...]
    out: Place


class Program(NamedTuple):
    """A rule as calls that write in place, for parameters of one dtype.

    Attributes:
        scratch: How many arrays like the parameter the calls need.
        numbers: The 0-d arrays and Python numbers that they read and write, by place.
        settled: The calls that follow from the learning rate alone.
        counted: Those that follow from the count of steps as well.
        calls: Those on arrays.
    """

    scratch: int
    numbers: dict[Place, Any]
    settled: list[Call]
    counted: list[Call]
    calls: list[Call]


class Update:
    """The calls of a program for the arrays of a pack, or of a part of it.

    Args:
        program: What to call.
        arrays: ``"p"``, the slots by name, and ``"g"`` if gradients always lie in the same place.
        scratch: As many as the program needs, of ``block`` elements or more.
        steps: The count of the steps before, a 0-d array.
        block: How many elements are updated at a time.

    Attributes:
        plan: The calls of one step, in order.
    """

    def __init__(
        self,
        program: Program,
        arrays: Mapping[str, Array],
        scratch: Sequence[Array],
        steps: Array,
        block: int,
    ) -> None:
        # Numbers of its own: a step makes the calls of several, whose counts may differ.
        numbers = {
            place: number.copy() if isinstance(number, ARRAYS) else number
            for place, number in program.numbers.items()
        }
        self._rate = numbers["rate"] = np.zeros(())
        numbers["steps"] = steps
        self._settled = [bound(call, numbers) for call in program.settled]
        self.plan = [bound(call, numbers) for call in program.counted]
        # Where gradients lie elsewhere each time: of each block, what the calls that read them are
        # made of, the gradient first, and how they are picked from it.
        self._open: list[tuple[slice, list[Any], list[tuple[int, Any]]]] = []
        size = len(arrays["p"])
        for first in range(0, size, block or 1):
            here = slice(first, min(first + block, size))
            values = numbers | {name: array[here] for name, array in arrays.items()}
            values |= {k: array[: here.stop - first] for k, array in enumerate(scratch)}
            values.setdefault("g", _GAP)
            calls = [bound(call, values) for call in program.calls]
            if "g" not in arrays:
                self._open.append((here, *_picking(calls, len(self.plan))))
            self.plan += calls

    def settle(self, rate: float) -> None:
        """Let the calls be those of a learning rate."""
        self._rate[...] = rate
        commit(self._settled)

    def reading(self, g: Array) -> Plan:
        """The calls of one step, where the gradient lies in ``g``."""
        plan = self.plan.copy()
        for here, cells, picks in self._open:
            cells[0] = g[here]
            for k, pick in picks:
                plan[k] = pick(cells)
            cells[0] = None
        return plan


def _picking(calls: Plan, first: int) -> tuple[list[Any], list[tuple[int, Any]]]:
    """The parts of all calls with a gap, and by the place of each in a plan what picks its own."""
    cells: list[Any] = [None]
    picks = []
    for k, call in enumerate(calls, first):
        if any(part is _GAP for part in call):
            own = [0 if part is _GAP else len(cells) + n for n, part in enumerate(call)]
            cells += call
            picks.append((k, itemgetter(*own)))
    return cells, picks


def bound(call: Call, values: Mapping[Place, Any]) -> tuple[Any, ...]:
    """A call on what lies at its places, as a plan has it."""
    function, operands, out = call
    target, taken = values[out], [values[place] for place in operands]
    if function is setitem:
        return setitem, target, ..., *taken
    if function is np.where:
        condition, x = taken
        return partial(np.positive, where=condition), x, target
    if function in _OUT_BY_NAME:
        return partial(function, out=target), *taken
    return function, *taken, target
