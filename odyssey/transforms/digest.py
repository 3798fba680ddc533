"""What the derivative of some nodes is made of, in a few numbers: has it changed since?

The results of a function alone do not tell: those of an even one stay when a factor that it closes
over changes its sign, and its derivative changes with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from odyssey.ops.values import Symbol
from odyssey.spec import Array, Spec
from odyssey.tape.recording import RawNode

__all__ = ["Digest", "digest", "reached", "same_digest"]

_SAMPLE = 32
_WEIGHTS = np.cos(np.arange(4096.0))  # no two alike, so that an exchange shows
_PLAIN = (int, str, bytes, Spec)


class Digest(NamedTuple):
    """Two numbers for each thing that the nodes keep, and one for all else.

    Attributes:
        ops: A hash of the ops, of their order and of their options.
        sums: A sum of a sample of each array, and each number, that a rule will ask for.
        slack: How much each may differ for rounding.
    """

    ops: int
    sums: Array
    slack: Array


def reached(nodes: list[RawNode], results: Iterable[int]) -> set[int]:
    """The ids that ``results`` depend on, and these; ``nodes`` come in order of recording."""
    needed = set(results)
    for _, id, inputs, _, _ in reversed(nodes):
        if id in needed:
            needed.update(i for i in inputs if i is not None)
    return needed


def digest(nodes: list[RawNode], results: Iterable[int], ids: Iterable[int]) -> Digest | None:
    """The digest of the nodes behind ``results``, or None while a graph is traced.

    Args:
        nodes: In order of recording.
        results: Ids of what matters.
        ids: Of the inputs, in an order that tells them apart.
    """
    needed = reached(nodes, results)
    places: dict[int | None, int] = {id: k for k, id in enumerate(ids)}
    ops, samples = 0, _Samples()
    for row, id, inputs, kept, _ in nodes:
        if id not in needed:
            continue
        places[id] = len(places)
        ops = hash((ops, row.name, *[places.get(i) for i in inputs]))
        # Without a residual, which a later run may lack.
        for value in kept[: len(row.arrays) + 1 + len(row.options)] if kept else ():
            if value is None:  # stands for what is not kept, or is left out
                continue
            if isinstance(value, Symbol):
                return None
            ops = samples.take(value, ops)
    return Digest(ops, *samples.measures())


class _Samples:
    """Numbers, and a few dozen elements of each array, to be measured together."""

    __slots__ = ("numbers", "parts")

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.parts: list[Array] = []

    def take(self, value: Any, ops: int) -> int:
        """Take a number or array; hash what is plain; of all else the type."""
        if isinstance(value, np.ndarray):
            flat = value.ravel("K")
            if flat.size and value.dtype.kind in "biufc":
                part = flat[:: flat.size // _SAMPLE] if flat.size > _SAMPLE else flat
                self.parts.append(part.real if value.dtype.kind == "c" else part)
                if value.dtype.kind == "c":
                    self.parts.append(part.imag)
        elif isinstance(value, (float, np.floating)):
            self.numbers.append(float(value))
        elif isinstance(value, (complex, np.complexfloating)):
            self.numbers += float(value.real), float(value.imag)
        elif isinstance(value, (tuple, list)):
            for part in value:
                ops = self.take(part, ops)
            ops = hash((ops, len(value)))
        elif isinstance(value, slice):
            ops = self.take((value.start, value.stop, value.step), ops)
        elif isinstance(value, np.generic):
            ops = hash((ops, value.item()))
        else:
            ops = hash((ops, value if isinstance(value, _PLAIN) else type(value).__name__))
        return ops

    def measures(self) -> tuple[Array, Array]:
        """A sum of each, and its slack: far above rounding, which ops may have enlarged."""
        numbers = np.array(self.numbers)
        slack = 1e-7 * abs(numbers)
        if not self.parts:
            return numbers, slack
        sizes = [part.size for part in self.parts]
        starts = np.add.accumulate([0, *sizes[:-1]])
        shares = [_share(part.dtype) for part in self.parts]
        wide = np.concatenate(self.parts, dtype=np.float64, casting="unsafe")
        with np.errstate(all="ignore"):
            sums = np.add.reduceat(wide * np.resize(_WEIGHTS, wide.size), starts)
            norms = np.add.reduceat(wide * wide, starts) ** 0.5
            return np.append(numbers, sums), np.append(slack, shares * norms)


@cache
def _share(dtype: np.dtype[Any]) -> float:
    if dtype.kind != "f":
        return 0.0
    return min(0.05, 16 * math.sqrt(np.finfo(dtype).eps))


def same_digest(old: Digest | None, new: Digest | None) -> bool:
    """Whether two digests are those of one derivative, but for rounding."""
    if old is None or new is None:
        return True
    if old.ops != new.ops or old.sums.shape != new.sums.shape:
        return False
    usual = np.isfinite(old.slack)
    if (usual != np.isfinite(new.slack)).any():
        return False
    return bool((abs(new.sums - old.sums) <= old.slack)[usual].all())
