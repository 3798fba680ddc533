"""Updates of large packs in one compiled loop: the calls of a program, element by element.

The program's calls go over the arrays one after the other; the loop makes all of them for one
element before the next. It rounds as NumPy does, so that both give the same bits; but a step by it
warns of no overflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import setitem
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAYS
from odyssey.devices.commit import Plan, commit
from odyssey.errors import DeviceError
from odyssey.kernels.sizes import OPTIMIZER_STEP, SIZES
from odyssey.optim.inplace_program import Call, Place, Program, bound
from odyssey.spec import Array
from odyssey.table.kernel_selection import SIZE_FACTOR, is_numba_avoided

__all__ = ["CompiledUpdate", "compiled_update"]

_FORMS = {
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

_FILE = '''"""A step of an optimizer, element by element."""

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


def compiled_update(
    program: Program, arrays: Mapping[str, Array], steps: Array, size: int
) -> CompiledUpdate | None:
    """The update of arrays by one loop, in large steps; None where NumPy is to do it.

    Args:
        program: What to call.
        arrays: See ``CompiledUpdate``.
        steps: Likewise.
        size: How many elements a step of the optimizer updates.
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
        return CompiledUpdate(program, arrays, steps)
    except (DeviceError, KeyError):  # without numba; a call that has no form here
        return None


class CompiledUpdate:
    """What ``Update`` is, with one call for all arrays.

    Args:
        program: What to call.
        arrays: ``"p"``, the slots by name, and ``"g"`` if gradients always lie in the same place.
        steps: The count of the steps before, a 0-d array.

    Attributes:
        plan: The calls of one step, in order.
    """

    def __init__(self, program: Program, arrays: Mapping[str, Array], steps: Array) -> None:
        numbers = {
            place: number.copy() if isinstance(number, ARRAYS) else number
            for place, number in program.numbers.items()
        }
        self._rate = numbers["rate"] = np.zeros(())
        numbers["steps"] = steps
        self._settled = [bound(call, numbers) for call in program.settled]
        written = [place for place in arrays if place != "g"]
        read = [k for k in numbers if any(k in call.operands for call in program.calls)]
        self._fixed = [np.asarray(numbers[k]) for k in read]
        self._fixed += [arrays[place] for place in written]
        text = _text(program, written, read, numbers, arrays["p"].dtype)
        from odyssey.kernels.generated import module_of

        self._loop = module_of(text).update
        self._known = arrays.get("g")
        like = arrays["p"] if self._known is None else self._known
        self._entry = self._loop.entry(like, *self._fixed)
        self._counted = [bound(call, numbers) for call in program.counted]
        self.plan = self._counted if self._known is None else self._with(self._known)

    def _with(self, g: Array) -> Plan:
        return [*self._counted, (self._entry, g, *self._fixed)]

    def settle(self, rate: float) -> None:
        """Let the calls be those of a learning rate."""
        self._rate[...] = rate
        commit(self._settled)

    def reading(self, g: Array) -> Plan:
        """The calls of one step, where the gradient lies in ``g``."""
        if not (g.flags.c_contiguous and g.flags.aligned):
            g = np.array(g, order="C")
        return self._with(g)


def _text(
    program: Program,
    written: list[str],
    read: list[Place],
    numbers: Mapping[Place, Any],
    dtype: np.dtype[Any],
) -> str:
    names: dict[Place, str] = {"g": "g_", **{place: f"{place}_" for place in written}}
    names |= {place: f"n{k}" for k, place in enumerate(read)}
    names |= {k: f"s{k}" for k in range(program.scratch)}
    truths = {place for place in read if np.asarray(numbers[place]).dtype.kind == "b"}
    lines = ["g_ = g[i]", *[f"{place}_ = out_{place}[i]" for place in written]]
    lines += [f"{names[call.out]} = {_line(call, names)}" for call in program.calls]
    lines += [f"out_{place}[i] = {place}_" for place in written]
    return _FILE.format(
        dtype=dtype.name,
        parameters=", ".join(
            ["g", *[f"a{k}" for k in range(len(read))], *[f"out_{place}" for place in written]]
        ),
        numbers="\n    ".join(
            f"n{k} = a{k}[()]" if place in truths else f"n{k} = T(a{k}[()])"
            for k, place in enumerate(read)
        )
        or "pass",
        lines="\n        ".join(lines),
    )


def _line(call: Call, names: Mapping[Place, str]) -> str:
    given = [names[place] for place in call.operands]
    if call.function is np.where:
        return f"select({given[0]}, {given[1]}, {names[call.out]})"
    if call.function is setitem:
        return f"T({given[0]})"
    return _FORMS[call.function].format(*given)
