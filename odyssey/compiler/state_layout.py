"""Memory layout of states: strides that a program is compiled for, and their check."""

from __future__ import annotations

from typing import Any

from numpy import ndarray

from odyssey.devices.backends import backend_of
from odyssey.devices.device import device_of
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Graph, State

__all__ = [
    "BindingError",
    "check_state_layout",
    "data_states",
    "noncontiguous_strides",
    "state_strides",
]


class BindingError(OdysseyError):
    """A state is not as a program needs it; the message says how."""


def state_strides(state: State) -> tuple[int, ...] | None:
    """Return the strides of a state in elements; None if it is contiguous."""
    array = state.variable._array
    if array.flags.c_contiguous:
        return None
    size = array.itemsize
    is_aligned = type(array) is not ndarray or array.flags.aligned
    if any(s % size for s in array.strides) or not is_aligned:
        raise BindingError(f"{state.label} is not aligned")
    return tuple(s // size for s in array.strides)


def check_state_layout(
    state: State, array: Any, strides: tuple[int, ...] | None, kind: Any = ndarray
) -> None:
    """Raise BindingError if a state is not what a plan was made for.

    Args:
        state: The state.
        array: Its array.
        strides: The strides of the plan in elements; None if it is contiguous.
        kind: The class of arrays of the program's device.
    """
    if type(array) is not kind and backend_of(array) is not None:
        raise BindingError(f"{state.label} lies on {device_of(array)}, and its program does not")
    if type(array) is not kind or array.shape != state.spec.shape:
        raise BindingError(f"{state.label} has another shape")
    if array.dtype != state.spec.dtype:
        raise BindingError(f"{state.label} is {array.dtype} now")
    if strides is None or array.size <= 1:
        return
    pairs = zip(array.shape, array.strides, strides, strict=True)
    if any(n > 1 and s != want * array.itemsize for n, s, want in pairs):
        raise BindingError(f"{state.label} has other strides")


def data_states(graph: Graph) -> list[tuple[int, State]]:
    """Return the states that are arrays of Variables, with their numbers."""
    return [(k, s) for k, s in enumerate(graph.states) if s.field == "data"]


def noncontiguous_strides(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Return strides in elements, by number of a state that is not contiguous."""
    pairs = [(k, state_strides(state)) for k, state in data_states(graph)]
    return {k: strides for k, strides in pairs if strides is not None}
