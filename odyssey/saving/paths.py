"""Paths of saved files: checks, errors of the system with advice, and atomic writing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Any, BinaryIO

from odyssey.atomic_replace import replace_file
from odyssey.checks import format_value
from odyssey.errors import DTypeError, FileError, MissingFileError, SettingError

__all__ = ["file_error", "path_text", "regular_file_mode", "validate_path", "write_atomically"]


def path_text(who: str, path: Any) -> str:
    """Return a path as text; raise DTypeError or SettingError if it cannot be a file's."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise DTypeError(
            f"{who}: path={format_value(path)} is not a path; pass a str or pathlib.Path"
        )
    try:
        text = os.fsdecode(path)
        os.fsencode(text)
    except UnicodeError as error:
        raise SettingError(
            f"{who}: path={format_value(path)} cannot be a file's name: {error}"
        ) from None
    if "\0" in text:
        raise SettingError(f"{who}: path={format_value(text)} has a null character; leave it out")
    return text


def validate_path(who: str, path: Any, *endings: str) -> str:
    """Return the path of a file as text; raise DTypeError or SettingError if it is not valid.

    Args:
        who: The function, for the message.
        path: The path.
        endings: Those that it may have; the first one is advised.
    """
    text = path_text(who, path)
    if not text.endswith(endings):
        raise SettingError(
            f"{who}: path={format_value(text)} does not end in {' or '.join(endings)}; pass "
            f"{format_value(text + endings[0])}"
        )
    return text


def write_atomically(who: str, path: str, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file that replaces the one at ``path`` atomically.

    Args:
        who: The function, for the message.
        path: The path; where it is a link, the file that it refers to is replaced.
        fill: Writes the contents of the file.

    Raises:
        FileError: if the system refuses; the old file is unchanged.
    """
    target = os.path.realpath(path)  # a link stays a link
    try:
        replace_file(target, fill, regular_file_mode(target))
    except OSError as error:
        raise file_error(who, path, error) from error
    _flush_folder(os.path.dirname(target))


def regular_file_mode(target: str) -> int | None:
    """Return the permissions of the existing file, or None; raise OSError if it is not regular."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file")
    return stat.S_IMODE(mode)


def _flush_folder(folder: str) -> None:
    """Flush the directory entries of ``folder`` to the disk, if the system can."""
    handle = -1
    try:
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
    except OSError:
        return
    finally:
        if handle >= 0:
            os.close(handle)


_ADVICE = {
    errno.ENOSPC: "make room on the disk, or save elsewhere",
    errno.EDQUOT: "make room on the disk, or save elsewhere",
    errno.EFBIG: "save less in one file, or elsewhere",
    errno.EISDIR: "pass the path of a file in it",
    errno.ENOENT: "make its folder first",
    errno.ENOTDIR: "pass a path whose folders are folders",
    errno.EACCES: "choose one that you have permission for",
    errno.EPERM: "choose one that you have permission for",
    errno.EROFS: "choose one that you have permission for",
}


def file_error(who: str, path: str, error: OSError, *, creates: bool = False) -> FileError:
    """Return the FileError for an OSError, with advice.

    Args:
        who: The function, for the message.
        path: The path.
        error: What the system said.
        creates: Whether the function makes the file, so that a missing one is a missing folder.
    """
    missing = isinstance(error, FileNotFoundError)
    advice = _ADVICE.get(error.errno or 0, "choose another path")
    if who.startswith("save"):
        advice += "; an existing file is unchanged"
    elif missing and not creates:
        writer = "od.save wrote" if who == "load" else "exists"
        advice = f"pass the path of one that {writer}"
    kind = MissingFileError if missing else FileError
    found = kind(f"{who}: {path!r}: {error.strerror or error}; {advice}")
    found.errno = error.errno
    return found
