"""Ways of matrix products, which passes and code generation choose among."""

from __future__ import annotations

from odyssey.compiler.ways.alternatives import GENERATOR, Way

__all__ = ["row_product_ways", "window_product_ways"]


def _with_guess(names: tuple[str, ...], guess: str) -> tuple[Way, ...]:
    return tuple([Way(name, None, (GENERATOR,)) for name in sorted(names, key=guess.__ne__)])


def window_product_ways(guess: str) -> tuple[Way, ...]:
    """Return the ways of a product with sliding windows: in register tiles, or as columns."""
    return _with_guess(("tiles", "columns"), guess)


def row_product_ways(guess: str) -> tuple[Way, ...]:
    """Return the ways of a product of one row: as a sum in loops, or as a product."""
    return _with_guess(("sum", "product"), guess)
