"""The functions given to ``on_gradient``, and a sweep's calls of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.devices.arrays import ARRAY_LIKE, as_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.spec import fits_kind
from odyssey.table.store import operand_of
from odyssey.table.value import Symbol, is_constant, is_untracked
from odyssey.tape.sweep import flip
from odyssey.tape.tape_base import TapeBase
from odyssey.variable import Variable

__all__ = ["Hooks", "called", "registered"]


def registered(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``fn``, as equal to itself alone: one function may be given more than once."""
    return partial(fn)


class Hooks:
    """The hooks of a tape during one sweep of it.

    The tape keeps its own until the sweep has handed over, so a refused one loses none. A hook may
    give others, which are called where the sweep has yet to come by, and else wait for the next.
    """

    __slots__ = ("before", "done", "tape")

    def __init__(self, tape: TapeBase) -> None:
        self.tape = tape
        self.before = dict(tape._hooks)
        self.done: list[Callable[[Any], Any]] = []

    def called(self, id: int, g: Any) -> Any:
        """Let the hooks of ``id`` see, and replace, its complete cotangent."""
        before = self.before.get(id, ())
        since = tuple(fn for fn in self.tape._hooks.get(id, ()) if fn not in before)
        self.done += (*before, *since)
        for fn in (*before, *since):
            new = fn(np.array(flip(g)) if isinstance(g, ARRAY_LIKE) else flip(g))
            if new is not None:
                new = _replacement(new, g)
                if new.shape != g.shape:
                    raise ShapeError(
                        f"on_gradient: the function returned shape {new.shape} for {g.shape}"
                    )
                g = flip(new)
        return g

    def left(self) -> dict[int, tuple[Callable[[Any], Any], ...]]:
        """Those that the next sweep is to call."""
        known = list(self.tape._hooks.items())
        left = {id: tuple(fn for fn in fns if fn not in self.done) for id, fns in known}
        return {id: fns for id, fns in left.items() if fns}


def called(hooks: Hooks | None, id: int, g: Any) -> Any:
    """The cotangent of ``id`` after its hooks, where there are any."""
    return g if hooks is None else hooks.called(id, g)


def _replacement(new: Any, g: Any) -> Any:
    """What a hook returned in the place of ``g``, as an array of its dtype.

    A Variable stays one in a sweep that is recorded, and where it is itself on a tape.
    """
    if isinstance(new, Variable) and (
        is_constant(new) or (is_untracked(new) and isinstance(g, ARRAY_LIKE))
    ):
        new = operand_of(new)
    kept = isinstance(new, (Variable, Symbol))
    array = new if kept else as_array("on_gradient", "what the function returned", new)
    if not fits_kind(array.dtype, g.dtype):
        raise DTypeError(
            f"on_gradient: the function returned {shown(new)} of {array.dtype} for {g.dtype}"
        )
    return array if kept else np.array(array, g.dtype)
