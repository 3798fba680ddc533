"""Fused in-place step of large parameters: the calls of a program in one compiled loop.

An in-place program makes its calls on whole arrays, one after the other. The loop makes all of them
for one element before the next. It rounds as NumPy does, so both give the same bits, but it does
not warn of overflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import setitem
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAYS
from odyssey.devices.commit import Plan, commit
from odyssey.errors import DeviceError
from odyssey.kernels.sizes import OPTIMIZER_STEP, SIZES
from odyssey.optim.inplace_program import Call, InPlaceProgram, Location, bind_call
from odyssey.spec import Array
from odyssey.table.kernel_selection import SIZE_FACTOR, is_numba_avoided

__all__ = ["KNOWN_CALLS", "FusedUpdate", "element_lines", "fused_update"]

_EXPRESSIONS = {
    np.add: "{} + {}",
    np.subtract: "{} - {}",
    np.multiply: "{} * {}",
    np.divide: "{} / {}",
    np.square: "{0} * {0}",
    np.negative: "-{}",
    np.absolute: "abs({})",
    np.sqrt: "sqrt({})",
    np.sign: "select({0} > T(0), T(1), select({0} < T(0), T(-1), select({0} == T(0), T(0), {0})))",
    np.maximum: "select(({0} >= {1}) | ({0} != {0}), {0}, {1})",
    np.minimum: "select(({0} <= {1}) | ({0} != {0}), {0}, {1})",
}

KNOWN_CALLS = frozenset({*_EXPRESSIONS, np.where, setitem})
"""Functions of calls that ``element_lines`` has a form for."""

_LOOP_TEMPLATE = '''"""A step of an optimizer, element by element."""

from __future__ import annotations

from math import sqrt

from numpy import {dtype} as T

from odyssey.kernels.loops import loop
from odyssey.kernels.scalars import select


@loop
def update({parameters}):
    {numbers}
    for i in range(out_p.size):
        {lines}
'''


def fused_update(
    program: InPlaceProgram, arrays: Mapping[str, Array], steps: Array, size: int
) -> FusedUpdate | None:
    """Return the update of arrays by one loop for large steps; None if NumPy is to compute it.

    Args:
        program: The program.
        arrays: See ``FusedUpdate``.
        steps: See ``FusedUpdate``.
        size: The number of elements that a step of the optimizer updates.
    """
    p = arrays["p"]
    work = size * len(program.calls)
    if (
        p.dtype.char not in "fd"
        or work < SIZES[OPTIMIZER_STEP] * SIZE_FACTOR[0]
        or is_numba_avoided()
    ):
        return None
    try:
        return FusedUpdate(program, arrays, steps)
    except (DeviceError, KeyError):  # without numba; a call that has no form here
        return None


class FusedUpdate:
    """An ``InPlaceUpdate`` that is one call for all arrays.

    Args:
        program: What to call.
        arrays: ``"p"``, the slots by name, and ``"g"`` if gradients are always there.
        steps: The count of the steps before, a 0-d array.

    Attributes:
        plan: The calls of one step, in order.
    """

    def __init__(self, program: InPlaceProgram, arrays: Mapping[str, Array], steps: Array) -> None:
        numbers = {
            location: number.copy() if isinstance(number, ARRAYS) else number
            for location, number in program.numbers.items()
        }
        self._rate = numbers["rate"] = np.zeros(())
        numbers["steps"] = steps
        self._rate_calls = [bind_call(call, numbers) for call in program.rate_calls]
        written = [location for location in arrays if location != "g"]
        read = [k for k in numbers if any(k in call.operands for call in program.calls)]
        self._fixed_operands = [np.asarray(numbers[k]) for k in read]
        self._position = len(read) + written.index("p")
        self._fixed_operands += [arrays[location] for location in written]
        text = _loop_source(program, written, read, numbers, arrays["p"].dtype)
        from odyssey.kernels.generated import import_source

        self._loop = import_source(text).update
        self._fixed_gradient = arrays.get("g")
        like = arrays["p"] if self._fixed_gradient is None else self._fixed_gradient
        self._entry = self._loop.entry(like, *self._fixed_operands)
        self._step_calls = [bind_call(call, numbers) for call in program.step_calls]
        self.plan = self._commit_plan()

    def _commit_plan(self) -> Plan:
        g = self._fixed_gradient
        return self._step_calls if g is None else self._calls_with(g)

    def move_parameter(self, p: Array) -> None:
        """Update the parameter in other memory, an aligned array like the one before."""
        self._fixed_operands[self._position] = p
        self.plan = self._commit_plan()

    def _calls_with(self, g: Array) -> Plan:
        return [*self._step_calls, (self._entry, g, *self._fixed_operands)]

    def set_rate(self, rate: float) -> None:
        """Set the learning rate."""
        self._rate[...] = rate
        commit(self._rate_calls)

    def calls_for(self, g: Array) -> Plan:
        """Return the calls of one step for the gradient ``g``."""
        if not (g.flags.c_contiguous and g.flags.aligned):
            g = np.array(g, order="C")
        return self._calls_with(g)


def _loop_source(
    program: InPlaceProgram,
    written: list[str],
    read: list[Location],
    numbers: Mapping[Location, Any],
    dtype: np.dtype[Any],
) -> str:
    truths = {location for location in read if np.asarray(numbers[location]).dtype.kind == "b"}
    lines = ["g_ = g[i]", *[f"{location}_ = out_{location}[i]" for location in written]]
    lines += element_lines(program, written, read)
    lines += [f"out_{location}[i] = {location}_" for location in written]
    return _LOOP_TEMPLATE.format(
        dtype=dtype.name,
        parameters=", ".join(
            [
                "g",
                *[f"a{k}" for k in range(len(read))],
                *[f"out_{location}" for location in written],
            ]
        ),
        numbers="\n    ".join(
            f"n{k} = a{k}[()]" if location in truths else f"n{k} = T(a{k}[()])"
            for k, location in enumerate(read)
        )
        or "pass",
        lines="\n        ".join(lines),
    )


def element_lines(
    program: InPlaceProgram, written: Sequence[str], read: Sequence[Location]
) -> list[str]:
    """Return the calls of a program as statements on one element of each array.

    The element of array ``x`` is ``x_``, and number ``k`` of those read is ``nk``.
    """
    names: dict[Location, str] = {"g": "g_", **{location: f"{location}_" for location in written}}
    names |= {location: f"n{k}" for k, location in enumerate(read)}
    names |= {k: f"s{k}" for k in range(program.scratch)}
    return [f"{names[call.out]} = {_expression(call, names)}" for call in program.calls]


def _expression(call: Call, names: Mapping[Location, str]) -> str:
    operands = [names[location] for location in call.operands]
    if call.function is np.where:
        return f"select({operands[0]}, {operands[1]}, {names[call.out]})"
    if call.function is setitem:
        return f"T({operands[0]})"
    return _EXPRESSIONS[call.function].format(*operands)
