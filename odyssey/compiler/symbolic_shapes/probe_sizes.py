"""Sizes at which a program for all of them is planned."""

from __future__ import annotations

from collections.abc import Mapping

from odyssey.compiler.symbolic.dims import Dim
from odyssey.compiler.symbolic_shapes.templates import TemplateMismatchError

__all__ = ["PROBE_SIZE", "choose_probe_sizes"]

# Programs are planned at sizes near this: large enough that none is a special case, and small
# enough for functions that go through them in Python.
PROBE_SIZE = 101
_PROBE_COUNT = 3
# Sizes that lie beside each other often have equal shares, as of eights.
_MIN_DISTANCE = 37


def choose_probe_sizes(
    dims: Mapping[str, Dim], nears: Mapping[str, int], taken: set[int], step: int, apart: bool
) -> list[dict[str, int]]:
    """Sizes at which to plan: primes are equal to few other sizes, and to few products.

    Args:
        dims: What varies, by name.
        nears: Near which size of each.
        taken: Sizes that something else has.
        step: What they are to be multiples of.
        apart: Whether they are to be far from each other.
    """
    used = set(taken)
    columns = []
    for name, near in nears.items():
        dim = dims[name]
        lowest, highest = -(-max(2, dim.low) // step), (dim.high or 1 << 62) // step
        middle = min(max(near // step if apart else near, lowest), highest)
        around = range(max(lowest, middle - PROBE_SIZE), min(highest, middle + 3 * PROBE_SIZE) + 1)
        ordered = sorted(around, key=lambda n: (not _is_prime(n), abs(n - middle)))
        free = [n * step for n in ordered if n * step not in used]
        chosen: list[int] = []
        for distance in (apart * _MIN_DISTANCE, 1):
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
