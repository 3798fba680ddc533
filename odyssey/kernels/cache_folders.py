"""Folders of the disk caches: machine code of compiled functions, and generated loops.

Both caches hold code that is executed, so nobody else may be able to write to their folders. The
folders are ``native`` and ``kernels`` in ``odyssey`` of the user's cache folder; ``ODYSSEY_CACHE``
names another folder for the former, and ``off`` turns both off.
"""

from __future__ import annotations

import os
import stat
import sys
import warnings
from pathlib import Path

__all__ = [
    "is_owned_by_user",
    "is_private_folder",
    "is_regular_and_owned",
    "kernel_folder",
    "machine_code_folder",
    "warn_once",
]

# Messages of warnings that were given.
_warned: set[str] = set()


def machine_code_folder() -> Path | None:
    """Return the folder of machine code; None if there is none."""
    setting = _cache_setting()
    return None if setting is None else _subfolder(setting, "native")


def kernel_folder() -> Path | None:
    """Return the folder of generated loops, where numba stores code too; None if there is none."""
    return None if _cache_setting() is None else _subfolder("", "kernels")


def _cache_setting() -> str | None:
    """Return the value of ``ODYSSEY_CACHE``; None if it is ``off``."""
    setting = os.environ.get("ODYSSEY_CACHE", "")
    return None if setting.strip().lower() == "off" else setting


def _subfolder(setting: str, name: str) -> Path | None:
    try:
        return (Path(setting).expanduser() if setting else _user_cache_folder()) / name
    except RuntimeError:  # the user has no home folder
        return None


def _user_cache_folder() -> Path:
    folder = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    if not folder and sys.platform == "win32":
        folder = os.environ.get("LOCALAPPDATA")
    return (Path(folder) if folder else Path.home() / ".cache") / "odyssey"


# ------------------------------------------------------------------ owners


def is_owned_by_user(status: os.stat_result) -> bool:
    """Return whether nobody but this user or root can write to a file."""
    if not hasattr(os, "geteuid"):
        return True
    # Root can do anything anyway, and may have made the image of a machine.
    owned = status.st_uid in (0, os.geteuid())
    return owned and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def is_regular_and_owned(status: os.stat_result) -> bool:
    """Return whether a file is a regular one, which nobody else can write to."""
    return stat.S_ISREG(status.st_mode) and is_owned_by_user(status)


def is_private_folder(folder: Path, contents: str, create: bool = False) -> bool:
    """Return whether a folder belongs to this user alone; warn once if it does not.

    Args:
        folder: The folder.
        contents: What would be kept there, for the warning.
        create: Whether to make the folder, if there is none.

    Raises:
        OSError: there is no such folder, or the system refuses.
    """
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_owned_by_user(os.stat(folder)):
        return True
    variable = "NUMBA_CACHE_DIR" if folder == kernel_folder() else "ODYSSEY_CACHE"
    warn_once(
        f"compile: others may write to {str(folder)!r}, and so {contents} is not kept there; "
        f"make it yours alone (chmod 700), or name another folder in {variable}"
    )
    return False


def warn_once(message: str) -> None:
    """Warn, unless this message was given before."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
