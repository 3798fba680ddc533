"""Fingerprints of what a function computed: has a second run computed the same, but for rounding?

The results alone do not tell: those of an even function stay when a factor that it closes over
changes its sign, and its derivative changes with it. So its nodes have a fingerprint too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAYS
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.spec import Array, Spec
from odyssey.table.value import Symbol
from odyssey.tape.recording import RawNode
from odyssey.tape.sweep import dependencies

__all__ = [
    "NodesFingerprint",
    "Fingerprint",
    "fingerprint",
    "nodes_fingerprint",
    "matches_nodes_fingerprint",
    "matches_fingerprint",
]

# ------------------------------------------------------------------ of a result

# An array has so many pieces at least, of so many elements at most: a change that is lost in the
# rounding of a longer one shows in a short one, and sums take a hundredth of what they are of.
_MIN_PIECES = 64
_MAX_PIECE_LENGTH = 256
Fingerprint = tuple[Any, Any] | None


@ignore_fp_errors()
def fingerprint(data: Any) -> Fingerprint:
    """Weighted sums of pieces of an array, which tell another run's result to be the same."""
    if isinstance(data, Symbol):
        return None
    flat = np.asarray(data).reshape(-1)
    if not flat.size:
        return None
    length = min(flat.size // _MIN_PIECES + 1, _MAX_PIECE_LENGTH)
    whole = flat.size - flat.size % length
    weights = _positive_weights()[:length]
    wide = np.complex128 if flat.dtype.kind == "c" else np.float64
    sums = np.einsum("ij,j->i", flat[:whole].reshape(-1, length), weights, dtype=wide)
    if whole < flat.size:
        last = np.einsum("i,i->", flat[whole:], weights[: flat.size - whole], dtype=wide)
        sums = np.append(sums, last)
    largest = max(abs(flat.real.max()), abs(flat.real.min()))
    if flat.dtype.kind == "c":
        largest = max(largest, abs(flat.imag.max()), abs(flat.imag.min()))
    # Rounding may differ by some units in the last place where threads split the work anew.
    tolerance = 256 * float(np.finfo(flat.dtype).eps) * (length + 1) * largest
    return sums, tolerance


def matches_fingerprint(old: Fingerprint, new: Fingerprint) -> bool:
    """Whether two fingerprints are those of one result, but for rounding."""
    if old is None or new is None:
        return True
    (sums, tolerance), (again, _) = old, new
    if not np.isfinite(tolerance):
        return bool((np.isfinite(sums) == np.isfinite(again)).all())
    return bool((abs(again - sums) <= tolerance).all())


# ------------------------------------------------------------------ of nodes

_SAMPLE_SIZE = 32
_PLAIN = (int, str, bytes, Spec)


class NodesFingerprint:
    """Two numbers for each thing that the nodes keep, and one for all else.

    Attributes:
        ops: A hash of the ops, of their order and of their options.
        sums: A sum of a sample of each array, and each number, that a rule will ask for.
        slack: How much each may differ for rounding.
    """

    __slots__ = ("ops", "slack", "sums")

    def __init__(self, ops: int, sums: Array, slack: Array) -> None:
        self.ops = ops
        self.sums = sums
        self.slack = slack


def nodes_fingerprint(
    nodes: list[RawNode], results: Iterable[int], ids: Iterable[int]
) -> NodesFingerprint | None:
    """The fingerprint of the nodes behind ``results``, or None while a graph is traced.

    Args:
        nodes: In order of recording.
        results: Ids of what matters.
        ids: Of the inputs, in an order that tells them apart.
    """
    needed = dependencies(nodes, results)
    places: dict[int | None, int] = {id: k for k, id in enumerate(ids)}
    ops, samples = 0, _SampleCollector()
    for row, id, inputs, kept, _ in nodes:
        if id not in needed:
            continue
        places[id] = len(places)
        ops = hash((ops, row.name, *[places.get(i) for i in inputs]))
        # Without a residual, which a later run may lack.
        for value in kept[: len(row.layout.kept)] if kept else ():
            if value is None:  # stands for what is not kept, or is left out
                continue
            if isinstance(value, Symbol):
                return None
            ops = samples.take(value, ops)
    return NodesFingerprint(ops, *samples.measures())


class _SampleCollector:
    """Numbers, and a few dozen elements of each array, to be measured together."""

    __slots__ = ("numbers", "parts")

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.parts: list[Array] = []

    def take(self, value: Any, ops: int) -> int:
        """Take a number or array; hash what is plain; of all else the type."""
        if isinstance(value, ARRAYS):
            flat = value.ravel("K")
            if flat.size and value.dtype.kind in "biufc":
                part = flat[:: flat.size // _SAMPLE_SIZE] if flat.size > _SAMPLE_SIZE else flat
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

    @ignore_fp_errors()
    def measures(self) -> tuple[Array, Array]:
        """A sum of each, and its slack: far above rounding, which ops may have enlarged."""
        numbers = np.array(self.numbers)
        slack = 1e-7 * abs(numbers)
        if not self.parts:
            return numbers, slack
        sizes = [part.size for part in self.parts]
        starts = np.add.accumulate([0, *sizes[:-1]])
        shares = [_relative_slack(part.dtype) for part in self.parts]
        wide = np.concatenate(self.parts, dtype=np.float64, casting="unsafe")
        sums = np.add.reduceat(wide * np.resize(_sample_weights(), wide.size), starts)
        norms = np.add.reduceat(wide * wide, starts) ** 0.5
        return np.append(numbers, sums), np.append(slack, shares * norms)


@cache
def _sample_weights() -> Array:
    weights: Array = np.cos(np.arange(4096.0))  # no two alike, so that an exchange shows
    return weights


@cache
def _positive_weights() -> Array:
    # All of one sign, and no two alike: so a shift of all elements shows, and an exchange of two.
    shares: Array = 0.75 + 0.25 * _sample_weights()[:_MAX_PIECE_LENGTH]
    return shares


@cache
def _relative_slack(dtype: np.dtype[Any]) -> float:
    if dtype.kind != "f":
        return 0.0
    return min(0.05, 16 * math.sqrt(np.finfo(dtype).eps))


def matches_nodes_fingerprint(old: NodesFingerprint | None, new: NodesFingerprint | None) -> bool:
    """Whether two fingerprints are those of one derivative, but for rounding."""
    if old is None or new is None:
        return True
    if old.ops != new.ops or old.sums.shape != new.sums.shape:
        return False
    usual = np.isfinite(old.slack)
    if (usual != np.isfinite(new.slack)).any():
        return False
    return bool((abs(new.sums[usual] - old.sums[usual]) <= old.slack[usual]).all())
