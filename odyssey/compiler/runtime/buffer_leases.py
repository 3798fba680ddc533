"""Exclusive ownership of the arrays that programs write in place (copy on write).

Called by ``executable``. An array is exclusive if only its Variable, and its lease, which all
programs share, refer to it.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from odyssey.compiler.state_layout import BindingError
from odyssey.devices.array_locks import is_locked
from odyssey.devices.backends import backend_of
from odyssey.devices.copy_on_write import (
    BufferLease,
    has_exclusive_array,
    is_exclusive,
    is_pinned,
)
from odyssey.devices.same_device import array_copy
from odyssey.graph.graph import State
from odyssey.variable import Variable

__all__ = ["assert_exclusive", "ensure_exclusive", "needs_exclusive_array"]


def needs_exclusive_array(state: State) -> bool:
    """Return whether a run may write to a state only if nothing else refers to its array.

    An optimizer's packed state stays in place: users see copies of it only.
    """
    return state.update is not None and not is_pinned(state.variable._array)


def ensure_exclusive(state: State) -> None:
    """Give a state that a run writes an exclusively owned array (copy on write).

    A run may then write to it in place, and later runs keep the array. An array that a tape needs
    unchanged stays: the program does not run, and the function itself raises.
    """
    variable = state.variable
    if state.update is None:
        return
    if type(variable._array) is not ndarray:
        backend = backend_of(variable._array)
        if backend is not None and not has_exclusive_array(variable):
            variable._array = array_copy(variable._array)
        return
    if is_pinned(variable._array) or is_locked(variable._array):
        return
    if not (has_exclusive_array(variable) and variable._array.flags.writeable):
        variable._array = np.array(variable._array)


def assert_exclusive(variable: Variable, lease: BufferLease) -> None:
    """Raise BindingError if a Variable has another array, or the array another owner."""
    # Without a call or a loop, no other thread runs between reading the count and the commit.
    if variable._array is not lease.array or not is_exclusive(lease):
        raise BindingError("another owner holds an array that is written to")
