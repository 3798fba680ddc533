"""``Variable``: arrays with gradients, and their operators and NumPy functions."""

from odyssey.variable.variable import (
    Variable,
    alias_of,
    check_trainable,
    resolve_gradient,
    writable_alias,
)

__all__ = ["Variable", "alias_of", "check_trainable", "resolve_gradient", "writable_alias"]


def __dir__() -> list[str]:
    return sorted(__all__)
