"""Who answers for what Variables hold: memory, or the graph that is being traced.

Data is read and written, and gradients are asked and left, by way of ``store()``. It is ``MEMORY``
unless another interpreter runs the program, as ``compile`` does while it traces; so Variables,
tapes, optimizers and losses need not know of any. What they do faster where numbers simply lie in
arrays they do where ``store() is MEMORY``, and by the general way elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np
from numpy import ndarray

from odyssey.devices.array_locks import lock_holders
from odyssey.devices.arrays import as_array
from odyssey.devices.commit import commit
from odyssey.devices.ownership import has_overlapping_elements, is_writable, read_only_view
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, MutationError, ShapeError
from odyssey.table.protocols import Recording
from odyssey.table.value import (
    CONSTANT,
    LEAF,
    Info,
    Mark,
    Symbol,
    Value,
    assign_plan,
    next_ticket,
)

__all__ = [
    "MEMORY",
    "Memory",
    "Store",
    "numbers_of",
    "operand_of",
    "refuse_locked",
    "set_store",
    "store",
]


class Store(Protocol):
    """What holds the data and the gradients of Variables."""

    def read(self, value: Any) -> Any:
        """What a Variable's data shows: an array that is not written to, or a Symbol."""

    def operand(self, value: Any) -> Any:
        """What ops compute on in place of a Variable."""

    def copied(self, value: Any) -> Any:
        """What a Variable's data is now, in nobody's array: later writes do not show in it."""

    def joined(self, nest: Any) -> Any:
        """A list or tuple that came for an operand, as one value where arrays cannot be made."""

    def write(self, leaf: Any, value: Any) -> None:
        """Let a leaf's data become ``value``; nothing has changed where that raises."""

    def become(self, value: Any, result: Any) -> None:
        """Let a Variable that is not a trainable leaf stand for ``result`` from now on."""

    def require(self, leaf: Any, flag: bool) -> None:
        """Let a leaf need a gradient, or need none, from now on; until now it was otherwise."""

    def rename(self, value: Any, name: str | None) -> None:
        """Let a Variable be called ``name`` from now on."""

    def gradient(self, leaf: Any) -> Any:
        """The accumulated gradient of a leaf, or None."""

    def set_gradient(self, leaf: Any, grad: Any) -> None:
        """Let the gradient of a leaf become ``grad``, which fits, or None."""

    def demand(self, who: str, value: Any) -> None:
        """Raise where ``who`` asks for numbers of a Variable that only a later run will know."""

    def look(self, who: str, value: Any) -> None:
        """Know that what runs here hangs on the numbers that a Variable has now."""

    def refuse_effect(self, what: str, instead: str) -> None:
        """Raise where an effect on Python objects would not be repeated by a later run.

        Args:
            what: Which, as in ``"load: called"``.
            instead: What to do.
        """

    def only_eagerly(self, why: str) -> None:
        """Know that what runs here must run as it was written each time, since ``why``."""

    def check_inside(self, recording: Recording) -> None:
        """Raise for a recording that cannot take what is computed here."""

    def step_behind(self, schedule: Any) -> bool:
        """Let a schedule step where this run ends, in place of now; whether that can be."""

    def once(self, owner: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gave when this was first asked for ``owner`` in this run."""

    def adopt(self, variable: Any) -> Any:
        """Let a Variable that was made in this run outlast it; return its data."""


class Memory:
    """Data and gradients in arrays: the store of every program that is simply run."""

    def read(self, value: Value) -> Any:
        """A read-only view; of a constant what was passed in."""
        array = value._array
        if type(array) is not ndarray:
            if isinstance(array, Symbol):  # a trace that is over left it behind
                return array
            array = np.asarray(array)
            if value._recording is CONSTANT:
                value._array = array
        return array if value._recording is CONSTANT else read_only_view(array)

    def operand(self, value: Value) -> Any:
        """The array itself."""
        return value._array

    def copied(self, value: Value) -> Any:
        """A copy of the array."""
        return np.array(value._array)

    def joined(self, nest: Any) -> Any:
        """The nest itself: NumPy makes an array of it."""
        return nest

    def write(self, leaf: Value, value: Any) -> None:
        """Copy ``value`` into the leaf's array, by the law of writing."""
        array = as_array("assign", "the value", value)
        if not np.can_cast(array.dtype, leaf._array.dtype, "same_kind"):
            raise DTypeError(f"assign: {array.dtype} does not cast to {leaf.dtype} of {leaf!r}")
        array = np.asarray(array, leaf._array.dtype)  # which may overflow: before anything is done
        with write_lock():
            wait_for_programs()
            try:
                refuse_locked("assign", leaf)
                array = np.broadcast_to(array, leaf.shape)
            except ValueError:
                raise ShapeError(
                    f"assign: a value of shape {array.shape} does not fit {leaf!r}"
                ) from None
            # NumPy would copy what overlaps, and that may fail.
            if np.may_share_memory(array, leaf._array):
                array = array.copy()
            commit(assign_plan(leaf, array))

    def become(self, value: Value, result: Value) -> None:
        """Take over the data of ``result``, and its place on a recording.

        On none it keeps its id, by which a trace in another thread tells it from what it made.
        """
        alone = isinstance(value._recording, Mark) and isinstance(result._recording, Mark)
        commit(
            [
                (setattr, value, "_array", result._array),
                (setattr, value, "_spec", result._spec),
                (setattr, value, "_recording", result._recording),
                (setattr, value, "_id", value._id if alone else result._id),
                (setattr, value, "_placed", None),
            ]
        )

    def require(self, leaf: Value, flag: bool) -> None:
        """Thaw or freeze a leaf, with an array of its own.

        A tape may hold the leaf's array, and that of a constant can be written to; a Symbol cannot.
        """
        with write_lock():
            wait_for_programs()
            array = leaf._array
            if not isinstance(array, Symbol):
                array = np.array(array, order="C" if flag else "K")
            steps: list[tuple[Any, ...]] = [] if flag else [(next_ticket,)]  # tapes look again
            steps.append((setattr, leaf, "_array", array))
            steps.append((setattr, leaf, "_recording", LEAF if flag else CONSTANT))
            commit(steps)

    def rename(self, value: Value, name: str | None) -> None:
        """Call it so; that it has an ``Info`` is its own affair."""
        assert value._info is not None, "who renames has seen to it"
        value._info.name = name

    def gradient(self, leaf: Value) -> Any:
        """The array, which nobody else holds once it was asked for here."""
        info = leaf._info
        if info is None:
            return None
        if info.loan is not None:
            with write_lock():
                wait_for_programs()
                # The mapping that the sweep returned still shows this array: get one of its own.
                on_loan = info.loan is not None and info.loan() is not None
                if on_loan and type(info.grad) is ndarray:
                    info.grad = info.grad.copy()
                info.loan = None
        return info.grad

    def set_gradient(self, leaf: Value, grad: Any) -> None:
        """Hold ``grad`` itself."""
        info = leaf._info
        if info is None:
            if grad is None:
                return
            info = leaf._info = Info()
        with write_lock():  # else a sum that another thread computes would take its place
            wait_for_programs()
            info.grad, info.loan = grad, None

    def demand(self, who: str, value: Any) -> None:
        """Nothing: the numbers are there."""

    def look(self, who: str, value: Any) -> None:
        """Nothing: they are looked at in each run."""

    def refuse_effect(self, what: str, instead: str) -> None:
        """Nothing: this is the run."""

    def only_eagerly(self, why: str) -> None:
        """Nothing: it does."""

    def check_inside(self, recording: Recording) -> None:
        """Nothing: any recording takes arrays."""

    def step_behind(self, schedule: Any) -> bool:
        """It steps now."""
        return False

    def once(self, owner: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gives: this is no run of its own, and remembers nothing."""
        return make()

    def adopt(self, variable: Value) -> Any:
        """The array: every Variable lasts as long as somebody refers to it."""
        return variable._array


MEMORY = Memory()

_STORE: ContextVar[Store] = ContextVar("odyssey_store", default=MEMORY)
store = _STORE.get
set_store = _STORE.set


def operand_of(value: Any) -> Any:
    """What is computed on in place of a Variable that a user hands in; all else as it is."""
    return store().operand(value) if isinstance(value, Value) else value


def numbers_of(who: str, value: Any) -> Any:
    """The array, or Symbol, of a Variable of which ``who`` needs the numbers; all else as it is."""
    if isinstance(value, Value):
        store().look(who, value)
        return value._array
    return value


def refuse_locked(who: str, leaf: Value) -> None:
    """Raise where the array of a leaf cannot be written to, and say whose lock it is."""
    if is_writable(leaf._array):
        if has_overlapping_elements(leaf._array):
            raise MutationError(
                f"{who}: elements of the array of {leaf!r} share memory with one another, so they "
                "cannot all be written to; pass a copy of it to Variable"
            )
        return
    tapes = " and ".join(map(repr, lock_holders(leaf._array)))
    why = f"is needed unchanged by {tapes}; sweep or clear that tape first"
    if not tapes:
        why = "is read-only, as its owner made it; pass a copy of it to Variable"
    raise MutationError(f"{who}: the array of {leaf!r} {why}")
