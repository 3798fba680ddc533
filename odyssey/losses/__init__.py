"""Losses, and their gradients for training loops without a tape.

A loss is exported by the ``__all__`` of its module, here and from ``odyssey``; the module is loaded
at the first access.
"""

import sys
from typing import Any

from odyssey.table.index import LOSSES
from odyssey.table.registry import load_module, missing_attribute_error

__all__: list[str] = []

BESIDE = ("gradients",)
"""Modules that are exported in addition to those with losses."""

_HOMES = {name: file for file, names in LOSSES.items() for name in names.split()}
__all__ += _HOMES


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise missing_attribute_error(__name__, name)
    load_module(_HOMES[name])
    value = globals()[name] = getattr(sys.modules[_HOMES[name]], name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *BESIDE})
