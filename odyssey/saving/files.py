"""Files on the disk: one takes the place of another at once, and none is believed unread."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from odyssey.checks import STUMBLES, format_value
from odyssey.errors import (
    DTypeError,
    FileError,
    FormatError,
    MissingFileError,
    OdysseyError,
    SettingError,
)
from odyssey.saving.replacing import replace

__all__ = ["Archive", "checked_path", "opened", "write"]

Members = dict[str, Any]
"""What a file holds: by name, bytes or a memoryview of them."""


def checked_path(who: str, path: Any) -> str:
    """The path of a file, as text."""
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
    if not text.endswith(".npz"):
        raise SettingError(
            f"{who}: path={format_value(text)} does not end in .npz; pass "
            f"{format_value(text + '.npz')}"
        )
    return text


# ------------------------------------------------------------------ writing


def write(path: str, members: Members) -> None:
    """Put a file with ``members`` in the place of what is at ``path``.

    Raises:
        FileError: where the system refuses; what was there is as it was.
    """
    target = os.path.realpath(path)  # a link stays one
    folder = os.path.dirname(target)
    try:
        replace(target, lambda file: _fill(file, members), _mode(target))
    except OSError as error:
        raise _refusal("save", path, error) from error
    _flush(folder)


def _fill(file: BinaryIO, members: Members) -> None:
    archive = ZipFile(file, "w")
    try:
        for name, data in members.items():
            # With the date that a ZipInfo has by itself: the same tree gives the same bytes.
            archive.writestr(ZipInfo(name), data)
        archive.close()
    except BaseException:
        archive.fp = None  # it would write an end, and complain of what was broken off
        raise


def _mode(target: str) -> int | None:
    """The permissions of the file that is there, which its successor gets."""
    try:
        found = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found):
        raise OSError(errno.EINVAL, "Not a regular file")
    return stat.S_IMODE(found)


def _flush(folder: str) -> None:
    """Let the disk know of a new name in ``folder``, where the system can do that."""
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


def _refusal(who: str, path: str, error: OSError) -> FileError:
    """Our error for what the system said."""
    missing = isinstance(error, FileNotFoundError)
    advice = _ADVICE.get(error.errno or 0, "choose another path")
    if who == "save":
        advice += "; what was there is as it was"
    elif missing:
        advice = "pass the path of one that od.save wrote"
    kind = MissingFileError if missing else FileError
    made = kind(f"{who}: {path!r}: {error.strerror or error}; {advice}")
    made.errno = error.errno
    return made


# ------------------------------------------------------------------ reading


class Archive:
    """A file that is read, whose members are believed only as far as their checksums go.

    Attributes:
        path: For messages.
        names: Of the members.
    """

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self._bytes = os.fstat(file.fileno()).st_size
        if not self._bytes:
            raise self.error("is empty; save it again")
        self._zip = ZipFile(file)
        found = self._zip.infolist()
        self._infos = {info.filename: info for info in found}
        self.names = list(self._infos)
        if len(self.names) != len(found):
            raise self.damage("two members have one name")

    def error(self, why: str) -> FormatError:
        """The error for a file that is not what was expected."""
        return FormatError(f"load: {self.path!r} {why}")

    def damage(self, why: str) -> FormatError:
        """The error for a file that is not as ``save`` left it."""
        return self.error(f"was cut off, damaged or edited ({why}); load another copy of it")

    def size(self, name: str) -> int:
        """Bytes of a member, which are as many as the file has of it."""
        info = self._infos.get(name)
        if info is None:
            raise self.damage(f"{format_value(name)} is missing")
        if info.compress_type != ZIP_STORED or info.compress_size != info.file_size:
            raise self.damage(f"{format_value(name)} is compressed")
        if info.file_size > self._bytes:
            raise self.damage(f"{format_value(name)} would be larger than the file")
        return info.file_size

    def read(self, name: str) -> bytes:
        """All bytes of a member."""
        self.size(name)
        return self._zip.read(self._infos[name])

    def read_into(self, name: str, head: bytes, room: memoryview) -> None:
        """Read a member that begins with ``head``; the rest fills ``room``."""
        if self.size(name) != len(head) + room.nbytes:
            raise self.damage(
                f"{format_value(name)} is of another size than the array that it holds"
            )
        with self._zip.open(self._infos[name]) as source:
            if source.read(len(head)) != head:
                raise self.damage(f"{format_value(name)} begins as another array")
            start = 0
            while start < room.nbytes:
                got = source.readinto(room[start : start + _PIECE])  # type: ignore[attr-defined]
                if not got:
                    raise EOFError("it ends early")
                start += got
            source.read(1)  # at the end the checksum is compared


_PIECE = 1 << 20


@contextmanager
def opened(path: str) -> Iterator[Archive]:
    """Open a file for a block of reading, whose errors say what is wrong with the file."""
    archive = None
    try:
        _mode(path)  # to open a pipe would wait for a writer
        with open(path, "rb") as file:
            archive = Archive(path, file)
            yield archive
    except OdysseyError:
        raise
    except OSError as error:
        raise _refusal("load", path, error) from error
    except (BadZipFile, EOFError, struct.error, *STUMBLES) as error:
        said = f"{type(error).__name__}: {error}"
        if archive is not None:
            raise archive.damage(said) from error
        raise FormatError(
            f"load: {path!r} was cut off, or is not a file of od.save ({said}); pass one that "
            "od.save wrote"
        ) from error
