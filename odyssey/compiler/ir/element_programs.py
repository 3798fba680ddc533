"""Types of elements, and what a scalar is for one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from odyssey.kernels.scalars import Program, Term, program

__all__ = ["SIZES", "Meaning", "is_step", "meaning", "type_of"]

SIZES = {
    "f2": 2,
    "f4": 4,
    "f8": 8,
    "c8": 8,
    "c16": 16,
    "b1": 1,
    **{f"{kind}{size}": size for kind in "iu" for size in (1, 2, 4, 8)},
}
"""Bytes of an element in memory, by type; what other types hold is not computed natively."""


def type_of(dtype: DTypeLike) -> str:
    """The letters of a dtype: kind and bytes."""
    return np.dtype(dtype).str[1:]


class Meaning(NamedTuple):
    """A scalar's program for a type, and the text that tells it from others."""

    program: Program
    text: str


@lru_cache(maxsize=2048)
def _meaning(scalar: Any, arity: int, options: tuple[Any, ...], text: str, type: str) -> Meaning:
    made = program(scalar, arity, options, np.dtype(type if type != "b1" else bool))
    return Meaning(made, f"{type} {made.text('scalar')}")


def meaning(scalar: Callable[..., Any], arity: int, options: tuple[Any, ...], type: str) -> Meaning:
    """The program of a scalar that computes in ``type``; see ``kernels.scalars.program``."""
    try:
        # The text tells options apart that are equal: 1, 1.0 and True, 0.0 and -0.0.
        return _meaning(scalar, arity, options, repr(options), type)
    except TypeError:  # an option that is not hashable
        return _meaning.__wrapped__(scalar, arity, options, "", type)


def is_step(program: Program, name: str) -> bool:
    """Whether a scalar is this one step of its two numbers in order, and nothing else."""
    if program.arity != 2 or len(program.steps) != 1:
        return False
    ((step, operands),) = program.steps
    # By numbers: to compare Terms would write a step.
    ids = [o.id if isinstance(o, Term) else None for o in operands]
    return step == name and ids == [0, 1] and getattr(program.result, "id", None) == 2
