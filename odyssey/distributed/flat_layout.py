"""Layout of parameters in one flat array, of which each rank owns a slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.optim.rule import state_dtype
from odyssey.spec import Array
from odyssey.table.real_operands import real_dtype
from odyssey.variable import Variable

__all__ = ["BLOCK", "FlatLayout", "Piece", "flat_view", "layouts_of"]

BLOCK = 256
"""Elements that slices and sums of squares consist of, on any number of ranks."""


class Piece:
    """The part of one parameter that lies in the slice of a rank.

    Args:
        layout: The layout that the parameter belongs to.
        k: The index of the parameter in the optimizer.
        offset: Where it begins in the rank's slice.
        start, stop: Which elements of the parameter it has, complex ones counted twice.
    """

    __slots__ = ("k", "layout", "offset", "start", "stop")

    def __init__(self, layout: FlatLayout, k: int, offset: int, start: int, stop: int) -> None:
        self.layout, self.k, self.offset = layout, k, offset
        self.start, self.stop = start, stop

    @property
    def window(self) -> slice:
        """The elements of the rank's slice."""
        return slice(self.offset, self.offset + self.stop - self.start)


class FlatLayout:
    """Parameters of one dtype, one after the other in a flat array; complex ones as pairs.

    The slices of the ranks are equally long, a multiple of ``BLOCK``. Parameters whose rule is
    elementwise lie densely, whatever the number of ranks, and a slice may end within one. Others
    are dealt out complete, the largest first, each to the rank that has the least.

    Attributes:
        indices: Which parameters of the optimizer.
        dtype: Their dtype, real also for complex ones.
        wide: The dtype in which gradients are summed.
        complete: Whether each parameter lies in one slice.
        starts: Where each begins.
        lengths: How many elements each has.
        length: The length of the flat array.
    """

    def __init__(
        self, indices: Sequence[int], params: Sequence[Variable], ranks: int, complete: bool
    ) -> None:
        self.indices = list(indices)
        own = params[indices[0]].dtype
        self.dtype = real_dtype(own)
        self.wide = state_dtype(self.dtype)
        self.complete = complete
        width = own.itemsize // self.dtype.itemsize
        self.lengths = [params[k].size * width for k in indices]
        self.owners: list[int] = []
        if complete:
            loads = [0] * ranks
            offsets = [0] * len(indices)
            self.owners = [0] * len(indices)
            for j in sorted(range(len(indices)), key=lambda j: (-self.lengths[j], j)):
                rank = loads.index(min(loads))
                self.owners[j], offsets[j] = rank, loads[rank]
                loads[rank] += self.lengths[j]
            self.step = -(-max(loads) // BLOCK) * BLOCK
            self.starts = [r * self.step + o for r, o in zip(self.owners, offsets, strict=True)]
        else:
            total = sum(self.lengths)
            self.step = -(-total // (ranks * BLOCK)) * BLOCK
            self.starts = np.cumsum([0, *self.lengths])[:-1].tolist()
        self.length = ranks * self.step

    def pieces(self, rank: int) -> list[Piece]:
        """Return what of which parameter lies in the slice of a rank.

        An empty parameter is a piece of rank 0.
        """
        low, high = rank * self.step, (rank + 1) * self.step
        found = []
        for j, k in enumerate(self.indices):
            first, length = self.starts[j], self.lengths[j]
            start, stop = max(first, low), min(first + length, high)
            if start < stop:
                found.append(Piece(self, k, start - low, start - first, stop - first))
            elif not length and (self.owners[j] if self.complete else 0) == rank:
                found.append(Piece(self, k, 0, 0, 0))
        return found

    def views(self, flat: Array, params: Sequence[Variable]) -> dict[int, Array]:
        """Return the view of each parameter in a flat array of its dtype, or of the wide one."""
        found = {}
        for j, k in enumerate(self.indices):
            view = flat[self.starts[j] : self.starts[j] + self.lengths[j]]
            if params[k].dtype.kind == "c":
                view = view.view(params[k].dtype)
            found[k] = view.reshape(params[k].shape)
        return found


def layouts_of(
    params: Sequence[Variable], elementwise: Sequence[bool], ranks: int
) -> list[FlatLayout]:
    """Return the layouts of parameters, one for each dtype and kind of rule."""
    together: dict[Any, list[int]] = {}
    for k, p in enumerate(params):
        together.setdefault((p.dtype, elementwise[k]), []).append(k)
    return [
        FlatLayout(indices, params, ranks, not dense) for (_, dense), indices in together.items()
    ]


def flat_view(array: Any, dtype: Any) -> Array:
    """Return an array as a flat one of real numbers, a view if it is contiguous."""
    flat: Array = np.ascontiguousarray(array).reshape(-1)
    return flat if flat.dtype == dtype else flat.view(dtype)


def __dir__() -> list[str]:
    return sorted(__all__)
