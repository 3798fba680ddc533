"""Exponentials, logarithms and error functions without branches, for loops that vectorize.

The functions of libm, to which ``math`` compiles in a loop, take 5 to 30 ns for one number; these
take 0.4 to 4 ns. ``fast`` maps names of ``math`` to them; ``formulas`` defines them.

NaN, infinities, signed zeros and subnormal numbers follow IEEE; ``BOUNDS`` has the error bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.kernels.formulas import World, errors, exponentials, logarithms
from odyssey.kernels.loops import ByDtype, Loop, fma
from odyssey.kernels.scalars import select

__all__ = ["BOUNDS", "exp", "fast", "log", "tanh"]

BOUNDS: Mapping[str, float] = {
    "exp": 1.25,
    "exp2": 1.0,
    "expm1": 1.5,
    "log": 1.0,
    "log2": 1.0,
    "log10": 1.0,
    "log1p": 1.5,
    "tanh": 2.0,
    "erf": 2.0,
    "erfc": 3.25,
}
"""How many units in the last place results may lie from the exact ones, where those are normal."""


@lru_cache(maxsize=2)
def fast(dtype: np.dtype[Any]) -> Mapping[str, Loop]:
    """Return the functions of float32 or float64, by their names in ``math``."""
    number, whole = (np.float32, np.int32) if dtype.char == "f" else (np.float64, np.int64)
    world = World(number, whole, dtype, _as_loop, select, fma)
    made = exponentials(world) | logarithms(world)
    made |= errors(world, made["exp_of"])
    return {name: made[name] for name in BOUNDS}


def _as_loop(function: Callable[..., Any]) -> Loop:
    return Loop(function)  # type: ignore[arg-type]


exp = ByDtype("exp", lambda dtype: fast(dtype)["exp"])
"""The exponential of a float32 or a float64, in loops."""

log = ByDtype("log", lambda dtype: fast(dtype)["log"])
"""The logarithm, likewise."""

tanh = ByDtype("tanh", lambda dtype: fast(dtype)["tanh"])
"""The hyperbolic tangent, likewise."""
