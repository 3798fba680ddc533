"""In-place programs: a rule as C calls that write into flat parameter arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from operator import itemgetter, setitem
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.arrays import ARRAYS
from odyssey.devices.commit import Plan, commit
from odyssey.spec import Array

__all__ = ["Call", "InPlaceProgram", "InPlaceUpdate", "Location", "bind_call"]

# NumPy warns if these get the output array as a third operand.
_OUT_BY_NAME = frozenset({np.maximum, np.minimum})

Location = Hashable
"""Location of a value: ``"g"``, ``"p"``, a slot, a scratch array by number, or a scalar by key."""

_NO_GRADIENT_YET: Any = object()  # in a call, replaced by the gradient of the step


class Call(NamedTuple):
    """One call of a program: ``function`` applied to ``operands``, written to ``out``.

    The function is a ufunc; or ``setitem``, which copies and may cast; or ``np.where``, which
    writes its second operand to ``out`` if the first, a scalar, is true.
    """

    function: Any
    operands: tuple[Location, ...]
    out: Location


class InPlaceProgram(NamedTuple):
    """A rule as calls that write in location, for parameters of one dtype.

    Attributes:
        scratch: The number of scratch arrays that the calls need.
        numbers: The 0-d arrays and Python numbers that they read and write, by location.
        rate_calls: The calls that depend on the learning rate alone.
        step_calls: The calls that depend on the step count as well.
        calls: The calls on arrays.
    """

    scratch: int
    numbers: dict[Location, Any]
    rate_calls: list[Call]
    step_calls: list[Call]
    calls: list[Call]


class InPlaceUpdate:
    """The calls of a program bound to flat parameter arrays, or to a slice of them.

    Args:
        program: What to call.
        arrays: ``"p"``, the slots by name, and ``"g"`` if gradients are always there.
        scratch: As many as the program needs, of ``block`` elements or more.
        steps: The count of the steps before, a 0-d array.
        block: How many elements are updated at a time.

    Attributes:
        plan: The calls of one step, in order.
    """

    def __init__(
        self,
        program: InPlaceProgram,
        arrays: Mapping[str, Array],
        scratch: Sequence[Array],
        steps: Array,
        block: int,
    ) -> None:
        # Own copies of the scalars: a step runs several updates, whose step counts may differ.
        numbers = {
            location: number.copy() if isinstance(number, ARRAYS) else number
            for location, number in program.numbers.items()
        }
        self._rate = numbers["rate"] = np.zeros(())
        numbers["steps"] = steps
        self._rate_calls = [bind_call(call, numbers) for call in program.rate_calls]
        self.plan = [bind_call(call, numbers) for call in program.step_calls]
        # For gradients in new arrays at each step: for each block the elements of the calls that
        # read them, the gradient first, and the getters that build the calls from these elements.
        self._open: list[tuple[slice, list[Any], list[tuple[int, Any]]]] = []
        size = len(arrays["p"])
        for first in range(0, size, block or 1):
            window = slice(first, min(first + block, size))
            values = numbers | {name: array[window] for name, array in arrays.items()}
            values |= {k: array[: window.stop - first] for k, array in enumerate(scratch)}
            values.setdefault("g", _NO_GRADIENT_YET)
            calls = [bind_call(call, values) for call in program.calls]
            if "g" not in arrays:
                self._open.append((window, *_gradient_slots(calls, len(self.plan))))
            self.plan += calls

    def set_rate(self, rate: float) -> None:
        """Set the learning rate."""
        self._rate[...] = rate
        commit(self._rate_calls)

    def calls_for(self, g: Array) -> Plan:
        """Return the calls of one step for the gradient ``g``."""
        plan = self.plan.copy()
        for window, elements, getters in self._open:
            elements[0] = g[window]
            for k, getter in getters:
                plan[k] = getter(elements)
            elements[0] = None
        return plan


def _gradient_slots(calls: Plan, first: int) -> tuple[list[Any], list[tuple[int, Any]]]:
    """Return the elements of all calls that read the gradient, and a getter for each such call."""
    elements: list[Any] = [None]
    getters = []
    for k, call in enumerate(calls, first):
        if any(element is _NO_GRADIENT_YET for element in call):
            positions = [
                0 if element is _NO_GRADIENT_YET else len(elements) + n
                for n, element in enumerate(call)
            ]
            elements += call
            getters.append((k, itemgetter(*positions)))
    return elements, getters


def bind_call(call: Call, values: Mapping[Location, Any]) -> tuple[Any, ...]:
    """Return a call with the values at its locations, as a tuple for a plan."""
    function, operands, out = call
    target, operand_values = values[out], [values[location] for location in operands]
    if function is setitem:
        return setitem, target, ..., *operand_values
    if function is np.where:
        condition, x = operand_values
        return partial(np.positive, where=condition), x, target
    if function in _OUT_BY_NAME:
        return partial(function, out=target), *operand_values
    return function, *operand_values, target
