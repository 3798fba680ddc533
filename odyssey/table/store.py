"""Stores: data and gradients of Variables, in memory or in the graph that is being traced.

Data and gradients are read and written by ``store()``. It is ``MEMORY`` unless another interpreter
runs the program, as ``compile`` does while it traces; so Variables, tapes, optimizers and losses
need not know of a trace. Their fast paths for plain arrays are taken if ``store() is MEMORY``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np
from numpy import ndarray

from odyssey.devices.array_locks import is_locked, lock_holders
from odyssey.devices.arrays import DEVICE_TYPES, as_array
from odyssey.devices.backends import backend_of
from odyssey.devices.commit import commit
from odyssey.devices.copy_on_write import SNAPSHOT_SIZE, ParameterMemory
from odyssey.devices.half_dtypes import can_cast
from odyssey.devices.ownership import may_alias, read_only_view
from odyssey.devices.same_device import array_copy, cast_beside, namespace_of, own_copy, place_as
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, MutationError, ShapeError, TapeError
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
    "device_numbers",
    "home_of",
    "is_within",
    "numbers_of",
    "operand_of",
    "refuse_in_vmap",
    "refuse_locked",
    "set_store",
    "store",
]


class Store(Protocol):
    """Interface to the data and gradients of Variables.

    Attributes:
        outer: The store around this one, which it computes in; None if there is none.
        traces: Whether ops are recorded in a graph, to be run later.
    """

    outer: Any
    traces: bool

    def read(self, value: Any) -> Any:
        """Return the data of a Variable: an array that is not written to, or a Symbol."""

    def operand(self, value: Any) -> Any:
        """Return the value that ops use for a Variable."""

    def copied(self, value: Any) -> Any:
        """Return the data of a Variable as a copy, which later writes do not change."""

    def nest_operand(self, nest: Any) -> Any:
        """Return a list or tuple operand, as one value if it cannot become an array."""

    def write(self, leaf: Any, value: Any, who: str = "assign") -> None:
        """Set the data of a leaf, as ``who`` asks; unchanged if this raises."""

    def become(self, value: Any, result: Any) -> None:
        """Make a Variable that is not a trainable leaf take over the value of ``result``."""

    def require(self, leaf: Any, flag: bool) -> None:
        """Set whether a leaf requires a gradient; called on a change only."""

    def rename(self, value: Any, name: str | None) -> None:
        """Set the name of a Variable."""

    def gradient(self, leaf: Any) -> Any:
        """Return the accumulated gradient of a leaf, or None."""

    def set_gradient(self, leaf: Any, grad: Any) -> None:
        """Set the gradient of a leaf to ``grad``, which has its shape and dtype, or None."""

    def is_own(self, variable: Any) -> bool:
        """Return whether the run that the store serves made a Variable; else it captures it."""

    def require_known(self, who: str, value: Any) -> None:
        """Raise if ``who`` needs the value of a Variable that is known only at run time."""

    def note_read(self, who: str, value: Any) -> None:
        """Note that this run depends on the current value of a Variable."""

    def refuse_effect(self, what: str, instead: str) -> None:
        """Raise where an effect on Python objects would not be repeated by a later run.

        Args:
            what: Which, as in ``"load: called"``.
            instead: What to do.
        """

    def only_eagerly(self, why: str) -> None:
        """Note that this code must always run eagerly, with the reason."""

    def localize(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Return operands of an op, without Variables of recordings that end at this store."""

    def records_on(self, recording: Recording) -> bool:
        """Return whether values that are computed here are recorded there; raise if they must."""

    def check_sweep(self, recording: Recording) -> None:
        """Raise if a recording cannot be swept with cotangents that are computed here."""

    def detached(self, value: Any) -> Any:
        """Return data of a Variable without the gradients that flow outside of this store."""

    def replace_state(self, state: Any, update: Callable[[Any], Any]) -> Any:
        """Set the data of a generator's state to ``update(data)``; return those of before."""

    def defer_step(self, schedule: Any) -> bool:
        """Step a schedule at the end of the run, if possible; return whether it will."""

    def call_once(self, owner: Any, make: Callable[[], Any]) -> Any:
        """Return the value of ``make()``, called once per ``owner`` in a run."""

    def adopt(self, variable: Any) -> Any:
        """Keep a Variable of this run alive beyond it; return its data."""


class Memory:
    """Data and gradients in arrays: the store of all programs that run eagerly."""

    outer = None
    traces = False

    def read(self, value: Value) -> Any:
        """Return a read-only snapshot; for a constant the array that was passed in.

        The next write gives the Variable another array, as long as the result is referenced.
        """
        if value._recording is not LEAF:
            return _shown_array(value)
        # A writer that has looked for other holders already must be done.
        with write_lock():
            wait_for_programs()
            return _shown_array(value)

    def operand(self, value: Value) -> Any:
        """Return the array itself."""
        return value._array

    def copied(self, value: Value) -> Any:
        """Return a copy of the array."""
        return array_copy(value._array)

    def nest_operand(self, nest: Any) -> Any:
        """Return the nest itself: NumPy converts it to an array."""
        return nest

    def write(self, leaf: Value, value: Any, who: str = "assign") -> None:
        """Copy ``value`` into the leaf's array, if dtype, shape and locks allow it."""
        array = as_array("assign", "the value", value)
        if not can_cast(array.dtype, leaf._array.dtype):
            raise DTypeError(f"assign: {array.dtype} does not cast to {leaf.dtype} of {leaf!r}")
        array = place_as("assign", "the value", array, leaf)
        array = cast_beside(array, leaf.dtype)  # may overflow, so before any change
        with write_lock():
            wait_for_programs()
            try:
                refuse_locked("assign", leaf)
                array = namespace_of(array).broadcast_to(array, leaf.shape)
            except ValueError:
                raise ShapeError(
                    f"assign: a value of shape {array.shape} does not fit {leaf!r}"
                ) from None
            # NumPy would copy what overlaps, and that may fail.
            if may_alias(array, [leaf._array]):
                array = array_copy(array)
            commit(assign_plan(leaf, array))

    def become(self, value: Value, result: Value) -> None:
        """Take over the data of ``result``, and its position on a recording.

        If neither is on a recording, ``value`` keeps its id, by which a trace in another thread
        recognizes Variables that it did not create.
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
        """Make a leaf trainable, or constant; in both cases it gets a new array.

        A tape may hold the old array of a leaf, and the array of a constant can be written to.
        """
        with write_lock():
            wait_for_programs()
            array = leaf._array
            if not isinstance(array, Symbol):
                array = array_copy(array, order="C" if flag else "K")
            steps: list[tuple[Any, ...]] = [] if flag else [(next_ticket,)]  # tapes look again
            steps.append((setattr, leaf, "_array", array))
            steps.append((setattr, leaf, "_recording", LEAF if flag else CONSTANT))
            commit(steps)

    def rename(self, value: Value, name: str | None) -> None:
        """Set the name; the Variable has an ``Info`` already."""
        assert value._info is not None, "a Variable is renamed only after it got an Info"
        value._info.name = name

    def gradient(self, leaf: Value) -> Any:
        """Return the array, which no other object holds from now on."""
        info = leaf._info
        if info is None:
            return None
        if info.loan is not None:
            with write_lock():
                wait_for_programs()
                # The mapping that the sweep returned still shows this array: get one of its own.
                on_loan = info.loan is not None and info.loan() is not None
                # An array or sparse rows; a recorded gradient is not copied. None of a sweep that
                # failed after it had noted the loan.
                if on_loan and not isinstance(info.grad, (Value, Symbol, type(None))):
                    info.grad = own_copy(info.grad)
                info.loan = None
        return info.grad

    def set_gradient(self, leaf: Value, grad: Any) -> None:
        """Store ``grad`` itself."""
        info = leaf._info
        if info is None:
            if grad is None:
                return
            info = leaf._info = Info()
        with write_lock():  # else another thread's sum could overwrite it
            wait_for_programs()
            info.grad, info.loan = grad, None

    def is_own(self, variable: Any) -> bool:
        """Return True: eager execution captures nothing."""
        return True

    def require_known(self, who: str, value: Any) -> None:
        """Do nothing: the values are known."""

    def note_read(self, who: str, value: Any) -> None:
        """Do nothing: each run reads the values."""

    def refuse_effect(self, what: str, instead: str) -> None:
        """Do nothing: effects happen as written."""

    def only_eagerly(self, why: str) -> None:
        """Do nothing: this is eager execution."""

    def localize(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Return the operands unchanged."""
        return operands

    def records_on(self, recording: Recording) -> bool:
        """Return True: any recording takes arrays."""
        return True

    def check_sweep(self, recording: Recording) -> None:
        """Do nothing: any recording takes arrays."""

    def detached(self, value: Any) -> Any:
        """Return the data unchanged: an array has no gradient."""
        return value

    def replace_state(self, state: Value, update: Callable[[Any], Any]) -> Any:
        """Write to the array itself, which its owner has locked."""
        before = state._array.copy()
        state._array[...] = update(before)
        return before

    def defer_step(self, schedule: Any) -> bool:
        """Return False: the schedule steps at once."""
        return False

    def call_once(self, owner: Any, make: Callable[[], Any]) -> Any:
        """Return ``make()``: eager execution caches nothing."""
        return make()

    def adopt(self, variable: Value) -> Any:
        """Return the array: Variables live as long as they are referenced."""
        return variable._array


def _shown_array(value: Value) -> Any:
    array = value._array
    if type(array) is not ndarray:
        if isinstance(array, Symbol):  # left by a trace that has ended
            return array
        if backend_of(array) is not None:  # has no read-only views
            return array_copy(array)
        array = np.asarray(array)
        if value._recording is CONSTANT:
            value._array = array
    if value._recording is CONSTANT:
        return array
    if array.size < SNAPSHOT_SIZE and type(array.base) is ParameterMemory:
        array = array.copy()
    return read_only_view(array)


MEMORY = Memory()

_STORE: ContextVar[Store] = ContextVar("odyssey_store", default=MEMORY)
store = _STORE.get
set_store = _STORE.set


def is_within(inner: Any, outer: Any) -> bool:
    """Return whether a store computes in another one, directly or through others."""
    while inner is not None:
        inner = inner.outer
        if inner is outer:
            return True
    return False


def operand_of(value: Any) -> Any:
    """Return the operand value of a Variable; other values unchanged."""
    return store().operand(value) if isinstance(value, Value) else value


def numbers_of(who: str, value: Any) -> Any:
    """Return the array, or Symbol, of a Variable whose value ``who`` reads; others unchanged."""
    if isinstance(value, Value):
        store().note_read(who, value)
        return value._array
    return value


def device_numbers(value: Any) -> Any:
    """Return the array of a Variable on a device, as a copy; anything else unchanged.

    Raises:
        TapeError: a tape follows the Variable, as for its conversion to an array of NumPy.
    """
    if isinstance(value, Value) and type(value._array) in DEVICE_TYPES:
        value._refuse_tracked()  # type: ignore[attr-defined]
        return value.data  # type: ignore[attr-defined]
    return value


def home_of(x: Any) -> Any:
    """Return what an op's own arrays lie beside: ``x``, or None in a graph, which places them."""
    return None if store().traces else x


def refuse_in_vmap(who: str) -> None:
    """Raise TapeError in a function that ``vmap`` runs: its examples would all write there."""
    if store().outer is not None:
        raise TapeError(
            f"{who}: in a function that vmap runs, each example would write its own values; return "
            "them from the mapped function, and write outside"
        )


def refuse_locked(who: str, leaf: Value) -> None:
    """Raise if tapes need the array of a leaf unchanged, and name them."""
    if not is_locked(leaf._array):
        return
    tapes = " and ".join(map(repr, lock_holders(leaf._array))) or "a tape"
    raise MutationError(
        f"{who}: the array of {leaf!r} is needed unchanged by {tapes}; sweep or clear that tape "
        "first"
    )
