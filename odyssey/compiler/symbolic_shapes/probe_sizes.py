"""Probe sizes: the sizes at which a program for all sizes is planned.

Called by ``specialization``.
"""

from __future__ import annotations

from collections.abc import Mapping

from odyssey.compiler.symbolic.dims import Dim
from odyssey.compiler.symbolic_shapes.templates import TemplateMismatchError

__all__ = ["PROBE_SIZE", "choose_probe_sizes"]

# Probe sizes are near this: large enough that none is a special case, and small enough for Python
# loops over a size.
PROBE_SIZE = 101
_PROBE_COUNT = 3
# Neighbouring sizes often have equal quotients, for example by eight.
_MIN_DISTANCE = 37


def choose_probe_sizes(
    dims: Mapping[str, Dim], nears: Mapping[str, int], used_sizes: set[int], step: int, spread: bool
) -> list[dict[str, int]]:
    """Return the probe sizes of all dimensions: primes, which equal few other sizes and products.

    Args:
        dims: Dimensions by name.
        nears: Sizes to stay near, by name.
        used_sizes: Sizes to avoid.
        step: Number that the sizes must be multiples of.
        spread: Whether sizes of one dimension must be far from each other.

    Raises:
        TemplateMismatchError: a dimension has too few sizes within its bounds.
    """
    used = set(used_sizes)
    columns = []
    for name, near in nears.items():
        dim = dims[name]
        lowest, highest = -(-max(2, dim.low) // step), (dim.high or 1 << 62) // step
        middle = min(max(near // step if spread else near, lowest), highest)
        around = range(max(lowest, middle - PROBE_SIZE), min(highest, middle + 3 * PROBE_SIZE) + 1)
        ordered = sorted(around, key=lambda n: (not _is_prime(n), abs(n - middle)))
        free = [n * step for n in ordered if n * step not in used]
        chosen: list[int] = []
        for distance in (spread * _MIN_DISTANCE, 1):
            for n in free:
                if len(chosen) < _PROBE_COUNT and all(abs(n - m) >= distance for m in chosen):
                    chosen.append(n)
        if len(chosen) < 2:
            raise TemplateMismatchError(f"{dim!r} has too few sizes within its bounds")
        used.update(chosen)
        columns.append((chosen * _PROBE_COUNT)[:_PROBE_COUNT])
    return [dict(zip(nears, row, strict=True)) for row in zip(*columns, strict=True)]


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))
