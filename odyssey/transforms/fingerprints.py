"""Fingerprints of results and tape nodes: has a second run computed the same, but for rounding?

Results alone do not tell: those of an even function stay when a factor in its closure changes its
sign, while its derivative changes. So the nodes have a fingerprint too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAYS
from odyssey.devices.half_dtypes import finfo, is_bfloat16, is_floating, is_number_dtype
from odyssey.devices.same_device import (
    call_beside,
    cast_beside,
    host_array,
    namespace_of,
    place_beside,
)
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

# ------------------------------------------------------------------ results

# An array is summed in at least so many pieces of at most so many elements: a change that is lost
# in the rounding of a long sum shows in a short one. Sums take a hundredth of the array's memory.
_MIN_PIECES = 64
_MAX_PIECE_LENGTH = 256
Fingerprint = tuple[Any, Any] | None


@ignore_fp_errors()
def fingerprint(data: Any) -> Fingerprint:
    """Return the fingerprint of an array: weighted sums of its pieces, and a tolerance."""
    if isinstance(data, Symbol):
        return None
    found: Fingerprint = call_beside(data, _sums_of_pieces, data)
    return found


def _sums_of_pieces(data: Any) -> Fingerprint:
    xp = namespace_of(data)  # sums of a device stay there, and nobody waits for them
    flat = xp.asarray(data).reshape(-1)
    if is_bfloat16(flat.dtype):
        flat = flat.astype(np.float32)
    if not flat.size:
        return None
    length = min(flat.size // _MIN_PIECES + 1, _MAX_PIECE_LENGTH)
    even_end = flat.size - flat.size % length
    weights = place_beside(_positive_weights()[:length], data)
    wide = np.complex128 if flat.dtype.kind == "c" else np.float64
    sums = xp.einsum("ij,j->i", flat[:even_end].reshape(-1, length), weights, dtype=wide)
    if even_end < flat.size:
        last = xp.einsum("i,i->", flat[even_end:], weights[: flat.size - even_end], dtype=wide)
        sums = xp.append(sums, last)
    largest = xp.maximum(abs(flat.real.max()), abs(flat.real.min()))
    if flat.dtype.kind == "c":
        imaginary = xp.maximum(abs(flat.imag.max()), abs(flat.imag.min()))
        largest = xp.maximum(largest, imaginary)
    # Rounding may differ by some units in the last place where threads split the work anew.
    tolerance = 256 * float(np.finfo(flat.dtype).eps) * (length + 1) * largest
    return sums, tolerance


def matches_fingerprint(old: Fingerprint, new: Fingerprint) -> bool:
    """Return whether two fingerprints are of one result, but for rounding."""
    if old is None or new is None:
        return True
    same: bool = call_beside(old[0], _are_close, *old, new[0])
    return same


def _are_close(sums: Any, tolerance: Any, again: Any) -> bool:
    if not np.isfinite(tolerance):
        return bool((np.isfinite(sums) == np.isfinite(again)).all())
    return bool((abs(again - sums) <= tolerance).all())


# ------------------------------------------------------------------ nodes

_SAMPLE_SIZE = 32
_PLAIN = (int, str, bytes, Spec)


class NodesFingerprint:
    """Fingerprint of nodes: two numbers for each residual, and a hash of all else.

    Attributes:
        ops: A hash of the ops, of their order and of their options.
        sums: Each number, and a sum of a sample of each array, that a rule will read.
        slack: The tolerance of each.
    """

    __slots__ = ("ops", "slack", "sums")

    def __init__(self, ops: int, sums: Array, slack: Array) -> None:
        self.ops = ops
        self.sums = sums
        self.slack = slack


def nodes_fingerprint(
    nodes: list[RawNode], results: Iterable[int], ids: Iterable[int]
) -> NodesFingerprint | None:
    """Return the fingerprint of the nodes behind ``results``, or None while a graph is traced.

    Args:
        nodes: The nodes in order of recording.
        results: The ids of the results.
        ids: The ids of the inputs, in an order that tells them apart.
    """
    needed = dependencies(nodes, results)
    positions: dict[int | None, int] = {id: k for k, id in enumerate(ids)}
    ops, samples = 0, _SampleCollector()
    for row, id, inputs, kept, _ in nodes:
        if id not in needed:
            continue
        positions[id] = len(positions)
        ops = hash((ops, row.name, *[positions.get(i) for i in inputs]))
        # Without a residual, which a later run may lack.
        for value in kept[: len(row.layout.kept)] if kept else ():
            if value is None:  # a value that is not kept, or an omitted argument
                continue
            if isinstance(value, Symbol):
                return None
            ops = samples.collect(value, ops)
    return NodesFingerprint(ops, *samples.sums_and_slack())


class _SampleCollector:
    """Collected numbers, and a few dozen elements of each array."""

    __slots__ = ("numbers", "pieces")

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.pieces: list[Array] = []

    def collect(self, value: Any, ops: int) -> int:
        """Collect a number or array; hash a plain value, and the type of any other."""
        if isinstance(value, ARRAYS):
            flat = value.ravel("K")
            if flat.size and is_number_dtype(value.dtype):
                part = flat[:: flat.size // _SAMPLE_SIZE] if flat.size > _SAMPLE_SIZE else flat
                self.pieces.append(part.real if value.dtype.kind == "c" else part)
                if value.dtype.kind == "c":
                    self.pieces.append(part.imag)
        elif isinstance(value, (float, np.floating)):
            self.numbers.append(float(value))
        elif isinstance(value, (complex, np.complexfloating)):
            self.numbers += float(value.real), float(value.imag)
        elif isinstance(value, (tuple, list)):
            for item in value:
                ops = self.collect(item, ops)
            ops = hash((ops, len(value)))
        elif isinstance(value, slice):
            ops = self.collect((value.start, value.stop, value.step), ops)
        elif isinstance(value, np.generic):
            ops = hash((ops, value.item()))
        else:
            ops = hash((ops, value if isinstance(value, _PLAIN) else type(value).__name__))
        return ops

    @ignore_fp_errors()
    def sums_and_slack(self) -> tuple[Array, Array]:
        """Return the sums and their tolerances, far above rounding, which ops may have enlarged."""
        numbers = np.array(self.numbers)
        slack = 1e-7 * abs(numbers)
        if not self.pieces:
            return numbers, slack
        sizes = [part.size for part in self.pieces]
        starts = np.add.accumulate([0, *sizes[:-1]])
        shares = [_relative_slack(part.dtype) for part in self.pieces]
        wide = _concatenated_samples(self.pieces)
        sums = np.add.reduceat(wide * np.resize(_sample_weights(), wide.size), starts)
        norms = np.add.reduceat(wide * wide, starts) ** 0.5
        return np.append(numbers, sums), np.append(slack, shares * norms)


def _concatenated_samples(pieces: list[Array]) -> Array:
    """Return arrays as one of float64; those of a device are joined there, and copied once."""
    xp = namespace_of(*pieces)
    if xp is np:
        found: Array = np.concatenate(pieces, dtype=np.float64, casting="unsafe")
        return found
    numbers = [cast_beside(place_beside(piece, *pieces), np.dtype(np.float64)) for piece in pieces]
    return host_array(call_beside(numbers[0], xp.concatenate, numbers))


@cache
def _sample_weights() -> Array:
    weights: Array = np.cos(
        np.arange(4096.0)
    )  # no two are equal, so that an exchange of elements shows
    return weights


@cache
def _positive_weights() -> Array:
    # Of one sign, so that a shift of all elements shows; no two equal, so that an exchange shows.
    shares: Array = 0.75 + 0.25 * _sample_weights()[:_MAX_PIECE_LENGTH]
    return shares


@cache
def _relative_slack(dtype: np.dtype[Any]) -> float:
    if not is_floating(dtype):
        return 0.0
    return min(0.05, 16 * math.sqrt(finfo(dtype).eps))


def matches_nodes_fingerprint(old: NodesFingerprint | None, new: NodesFingerprint | None) -> bool:
    """Return whether two fingerprints are of one derivative, but for rounding."""
    if old is None or new is None:
        return True
    if old.ops != new.ops or old.sums.shape != new.sums.shape:
        return False
    usual = np.isfinite(old.slack)
    if (usual != np.isfinite(new.slack)).any():
        return False
    return bool((abs(new.sums[usual] - old.sums[usual]) <= old.slack[usual]).all())
