"""Sizes from which eager calls run compiled kernels, as measured on this machine.

``python -m odyssey tune --ops`` writes them to a file beside the machine code. They are read once,
at the first call that is large by the sizes of ``sizes``. A file that cannot be read, or is of
another machine, changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odyssey.kernels.sizes import SIZES

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_sizes", "sizes_in_use", "wait_for_sizes", "write_sizes"]

_FORMAT = "odyssey sizes 1"
_MOST_BYTES = 1 << 16
_MOST = 1 << 40


def sizes_path() -> Path | None:
    """Return the path of the file; None if the disk cache is off."""
    from odyssey.kernels.cache_folders import machine_code_folder  # pathlib takes 3 ms

    folder = machine_code_folder()
    return None if folder is None else folder / "sizes.json"


def read_sizes() -> dict[str, int]:
    """Return the measured sizes of this machine by op; empty if there are none."""
    path = sizes_path()
    if path is None or not os.path.exists(path):
        return {}
    import json

    from odyssey.kernels.cache_folders import is_private_folder, is_regular_and_owned
    from odyssey.kernels.machine_facts import machine_facts, machine_identifier

    try:
        if not is_private_folder(path.parent, "sizes of kernels"):
            return {}
        with open(path, "rb") as file:
            if not is_regular_and_owned(path.lstat()):
                return {}
            read = json.loads(file.read(_MOST_BYTES))
        if read["format"] != _FORMAT or read["machine"] != machine_identifier(machine_facts()):
            return {}
        sizes = read["sizes"]
        if not isinstance(sizes, dict):
            return {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {
        name: size
        for name, size in sizes.items()
        if name in SIZES and type(size) is int and 0 < size < _MOST
    }


def write_sizes(sizes: Mapping[str, int]) -> bool:
    """Write measured sizes of this machine; return whether the file could be written."""
    import json

    from odyssey.atomic_replace import replace_file
    from odyssey.kernels.cache_folders import is_private_folder
    from odyssey.kernels.machine_facts import machine_facts, machine_identifier

    path = sizes_path()
    machine = machine_identifier(machine_facts())
    text = json.dumps({"format": _FORMAT, "machine": machine, "sizes": dict(sizes)}, indent=1)
    try:
        if path is None or not is_private_folder(path.parent, "sizes of kernels", create=True):
            return False
        replace_file(str(path), lambda file: file.write(text.encode()), 0o600)
    except OSError:
        return False
    return True


# Functions that take the measured sizes, until the first large call; and these sizes, from then on.
_waiting: list[Callable[[Mapping[str, int]], None]] = []
_read: list[Mapping[str, int]] = []


def wait_for_sizes(use: Callable[[Mapping[str, int]], None]) -> bool:
    """Call a function with the measured sizes when they are read; return whether they are not yet.

    Sizes that were read before are passed at once.
    """
    if _read:
        use(_read[0])
        return False
    _waiting.append(use)
    return True


def sizes_in_use() -> Mapping[str, int]:
    """Read the measured sizes, if they were not read yet, and pass them to those that wait."""
    if not _read:
        _read.append(read_sizes())
    informed = list(_waiting)
    for use in informed:
        use(_read[0])
    del _waiting[: len(informed)]  # an interrupt before leaves them all
    return _read[0]
