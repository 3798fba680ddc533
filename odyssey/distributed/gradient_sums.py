"""Sums of the gradients of parts, in the order of a balanced tree."""

from __future__ import annotations

from collections.abc import Sequence
from operator import setitem
from typing import Any

import numpy as np

from odyssey.devices.commit import Plan, commit
from odyssey.devices.half_dtypes import is_half
from odyssey.distributed.flat_layout import FlatLayout
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.sparse_rows import SparseRows
from odyssey.spec import Array
from odyssey.variable import Variable

__all__ = ["GradientSums"]


class FlatGradients:
    """The gradients of all parameters in flat arrays, one for each layout."""

    __slots__ = ("flats", "views")

    def __init__(self, layouts: Sequence[FlatLayout], params: Sequence[Variable]) -> None:
        self.flats = [np.zeros(layout.length, layout.wide) for layout in layouts]
        self.views: dict[int, Array] = {}
        for layout, flat in zip(layouts, self.flats, strict=True):
            self.views |= layout.views(flat, params)


class GradientSums:
    """Sums of 1, 2, 4 … parts, which grow as a binary counter does.

    So the sum of a power of two of parts is a balanced tree. A gradient that is missing counts as
    -0.0, which changes no sum.

    Args:
        layouts: Where the gradient of each parameter lies.
        params: The parameters.
    """

    def __init__(self, layouts: Sequence[FlatLayout], params: Sequence[Variable]) -> None:
        self._layouts, self._params = layouts, params
        # Pairs of a number of parts and their sum; the numbers fall.
        self._sums: list[tuple[int, FlatGradients]] = []
        self._free: list[FlatGradients] = []

    @ignore_fp_errors()
    def add_calls(self, gradients: Sequence[Any], weight: float | None) -> Plan:
        """Return the calls that add the gradients of a part, for one ``commit``.

        Args:
            gradients: For each parameter an array of its shape, sparse rows, or None.
            weight: Their factor; None for 1.
        """
        found = [self._ready(g, weight) for g in gradients]
        plan: Plan = []
        sums, free = list(self._sums), list(self._free)
        count = 1
        if sums and sums[-1][0] == 1:
            _, target = sums.pop()
            count = 2
            for k, g in enumerate(found):
                if g is not None:
                    view = target.views[k]
                    plan.append((np.add, view, g, view))
        else:
            target = free.pop() if free else FlatGradients(self._layouts, self._params)
            for k, g in enumerate(found):
                plan.append((setitem, target.views[k], ..., -0.0 if g is None else g))
        while sums and sums[-1][0] == count:
            _, left = sums.pop()
            plan += _add_calls(left, target)
            free.append(target)
            target, count = left, 2 * count
        sums.append((count, target))
        return [*plan, (setattr, self, "_sums", sums), (setattr, self, "_free", free)]

    def _ready(self, g: Any, weight: float | None) -> Any:
        """Return a gradient as it is added: dense, in the dtype of sums, times its weight."""
        if g is None:
            return None
        if type(g) is SparseRows:
            g = g.to_dense()
        if is_half(g.dtype):
            g = g.astype(np.float32)
        return g if weight is None else np.multiply(g, weight)

    @ignore_fp_errors()
    def total(self) -> list[Array]:
        """Return the flat sums, one for each layout; the last two are added first."""
        plan: Plan = []
        sums, free = list(self._sums), list(self._free)
        if not sums:
            empty = free.pop() if free else FlatGradients(self._layouts, self._params)
            plan = [(flat.fill, -0.0) for flat in empty.flats]
            sums.append((0, empty))
        while len(sums) > 1:
            more, right = sums.pop()
            count, left = sums.pop()
            plan += _add_calls(left, right)
            free.append(right)
            sums.append((count + more, left))
        commit([*plan, (setattr, self, "_sums", sums), (setattr, self, "_free", free)])
        return sums[0][1].flats

    def clear_calls(self) -> Plan:
        """Return the calls that forget all sums."""
        free = [*self._free, *(flats for _, flats in self._sums)]
        return [(setattr, self, "_sums", []), (setattr, self, "_free", free)]


def _add_calls(left: FlatGradients, right: FlatGradients) -> Plan:
    return [(np.add, a, b, a) for a, b in zip(left.flats, right.flats, strict=True)]


def __dir__() -> list[str]:
    return sorted(__all__)
