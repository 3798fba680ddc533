"""Notice of the first long compilation of a loop: one line, on a terminal, once on a machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from odyssey.kernels.cache_folders import is_private_folder, kernel_folder

__all__ = ["tell_first_compilation"]

# Seconds from which a compilation is noticed as a pause.
_LONG = 0.2

# Its presence in the folder of loops says that the line was written on this machine.
_MARKER = "first-compilation-was-told"

_told: list[bool] = []


def tell_first_compilation(name: str, seconds: float) -> None:
    """Write a line to standard error about a loop that was compiled, if it is the first long one.

    Nothing is written unless standard error is a terminal: files and pipes stay as they are.

    Args:
        name: What was compiled.
        seconds: How long it took, with the import of numba.
    """
    if _told or seconds < _LONG or not _is_terminal() or not _mark_told():
        return
    where = "in each process" if kernel_folder() is None else "once on this machine"
    with suppress(OSError, ValueError):  # a terminal that is gone is no error of the program
        sys.stderr.write(
            f"odyssey: compiled the loop of {name} ({seconds:.1f} s); each loop is compiled when "
            f"it is first needed, {where}; python -m odyssey warmup compiles all of them\n"
        )


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it was closed
        return False


def _mark_told() -> bool:
    """Note that the line is written; return False if it was written before."""
    if _told:
        return False
    _told.append(True)
    folder = kernel_folder()
    return folder is None or _create_marker(folder)


def _create_marker(folder: Path) -> bool:
    """Create the marker; return False if another process has, or where it cannot be kept."""
    try:
        if is_private_folder(folder, "code of kernels", create=True):
            os.close(os.open(folder / _MARKER, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return True
    except OSError:
        pass
    return False
