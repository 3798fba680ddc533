"""Attribute states: arrays that objects hold and replace from call to call, as hidden arguments.

A recurrent network keeps its hidden state as ``self.h``, and each call leaves a new array there.
In a trace such an array would be a constant. Here it is one more argument of the function, and what
the function assigns to the attribute is one more result, which is assigned after the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.errors import TapeError
from odyssey.table.store import MEMORY, store
from odyssey.table.value import Mark, is_trainable
from odyssey.variable import Variable

__all__ = ["StatefulFunction", "is_state_value"]

Place = tuple[Any, Any]
"""An attribute, as the object and the name; or an item of a dictionary or a list, with its key."""


def is_state_value(value: Any) -> bool:
    """Return whether an attribute may be an argument: arrays and constants, in plain containers."""
    if type(value) in (tuple, list):
        return bool(value) and all(map(is_state_value, value))
    if type(value) is dict:
        return bool(value) and all(map(is_state_value, value.values()))
    if type(value) is Variable:
        return isinstance(value._recording, Mark) and not is_trainable(value)
    return value is None or type(value) is ndarray or isinstance(value, np.generic)


def _items(owner: Any) -> Any:
    return owner if type(owner) in (dict, list) else owner.__dict__


class StatefulFunction:
    """A function with attributes of objects as last arguments, and with their changes as results.

    Args:
        fn: The function.
        places: The attributes.

    Attributes:
        function: The function.
        attribute_places: The attributes.
    """

    def __init__(self, fn: Callable[..., Any], places: Sequence[Place]) -> None:
        update_wrapper(self, fn, updated=())
        self.function = fn
        self.attribute_places = tuple(places)

    def values(self) -> tuple[Any, ...] | None:
        """Return the values of the attributes; None if one is missing."""
        try:
            return tuple([_items(owner)[key] for owner, key in self.attribute_places])
        except LookupError:
            return None

    def assign(self, changed: dict[int, Any]) -> None:
        """Assign new values to attributes, by index."""
        for k, value in changed.items():
            owner, key = self.attribute_places[k]
            _items(owner)[key] = value

    def __call__(self, *args: Any, **named: Any) -> tuple[Any, dict[int, Any]]:
        """Call the function on the leading arguments.

        Returns:
            The result, and by index the attributes that are other objects than before. In a trace
            the attributes are what they were before it.
        """
        count = len(self.attribute_places)
        args, given = args[:-count], args[-count:]
        held = self.values()
        if held is None:
            raise TapeError("compile: an attribute that an earlier call read was deleted")
        tracing = store() is not MEMORY
        try:
            if tracing:
                self.assign(dict(enumerate(given)))
            result = self.function(*args, **named)
            now = self.values()
        finally:
            if tracing:
                self.assign(dict(enumerate(held)))
        if now is None:
            raise TapeError("compile: it deletes an attribute that it reads")
        before = given if tracing else held
        return result, {k: value for k, value in enumerate(now) if value is not before[k]}
