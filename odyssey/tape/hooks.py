"""Gradient hooks: functions given to ``on_gradient``, and their calls during a sweep."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from odyssey.checks import format_value
from odyssey.devices.arrays import ARRAY_LIKE, as_array
from odyssey.devices.same_device import array_copy, place_as
from odyssey.errors import DTypeError, ShapeError
from odyssey.sparse_rows import SparseRows
from odyssey.spec import fits_kind
from odyssey.table.store import operand_of
from odyssey.table.value import Symbol, is_constant, is_untracked
from odyssey.tape.sweep import conj_if_complex
from odyssey.tape.tape_base import TapeBase
from odyssey.variable import Variable

__all__ = ["Hooks", "apply_hooks", "unique_hook"]


def unique_hook(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``fn`` wrapped, equal only to itself: a function may be registered more than once."""
    return partial(fn)


class Hooks:
    """The hooks of a tape during one sweep of it.

    The tape keeps its own until the results are delivered, so a refused sweep loses no hook. A hook
    may register further hooks. They are called in this sweep if it has not reached their Variable
    yet, else in the next.
    """

    __slots__ = ("called", "initial", "tape")

    def __init__(self, tape: TapeBase) -> None:
        self.tape = tape
        self.initial = dict(tape._hooks)
        self.called: list[Callable[[Any], Any]] = []

    def apply(self, id: int, g: Any) -> Any:
        """Call the hooks of ``id`` on its complete cotangent, which they may replace."""
        registered = self.initial.get(id, ())
        added = tuple(fn for fn in self.tape._hooks.get(id, ()) if fn not in registered)
        self.called += (*registered, *added)
        for fn in (*registered, *added):
            shown = conj_if_complex(g)
            if type(shown) is SparseRows:
                shown = shown.copy()
            new = fn(array_copy(shown) if isinstance(g, ARRAY_LIKE) else shown)
            if new is not None:
                new = _replacement_cotangent(new, g)
                if new.shape != g.shape:
                    raise ShapeError(
                        f"on_gradient: the function returned shape {new.shape} for {g.shape}"
                    )
                g = conj_if_complex(new)
        return g

    def pending(self) -> dict[int, tuple[Callable[[Any], Any], ...]]:
        """Return the hooks that the next sweep is to call."""
        registered = list(self.tape._hooks.items())
        pending = {id: tuple(fn for fn in fns if fn not in self.called) for id, fns in registered}
        return {id: fns for id, fns in pending.items() if fns}


def apply_hooks(hooks: Hooks | None, id: int, g: Any) -> Any:
    """Return the cotangent of ``id`` after its hooks, if there are any."""
    return g if hooks is None else hooks.apply(id, g)


def _replacement_cotangent(new: Any, g: Any) -> Any:
    """Return the result of a hook, which replaces ``g``, as an array of the dtype of ``g``.

    A Variable stays a Variable in a recorded sweep, or if it is on a tape itself.
    """
    if isinstance(new, Variable) and (
        is_constant(new) or (is_untracked(new) and isinstance(g, ARRAY_LIKE))
    ):
        new = operand_of(new)
    if type(new) is SparseRows:
        if type(g) is SparseRows and fits_kind(new.dtype, g.dtype):
            return new.copy() if new.dtype == g.dtype else new.astype(g.dtype)
        new = new.to_dense()
    is_symbolic = isinstance(new, (Variable, Symbol))
    array = new if is_symbolic else as_array("on_gradient", "what the function returned", new)
    if not fits_kind(array.dtype, g.dtype):
        raise DTypeError(
            f"on_gradient: the function returned {format_value(new)} of {array.dtype} for {g.dtype}"
        )
    if not isinstance(array, Symbol):
        array = place_as("on_gradient", "what the function returned", array, g)
    return array if is_symbolic else array_copy(array, g.dtype)
