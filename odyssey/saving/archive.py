"""Archives: writing and reading of ``.npz`` files, with errors that say what is wrong."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from operator import gt
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from odyssey.atomic_replace import replace_file
from odyssey.checks import STUMBLES, format_value
from odyssey.errors import (
    DTypeError,
    FileError,
    FormatError,
    MissingFileError,
    OdysseyError,
    SettingError,
)

__all__ = ["Archive", "validate_path", "open_archive", "write_archive"]

Members = dict[str, Any]
"""Contents of a file: bytes, or a memoryview of them, by name of the member."""


_CHUNK_BYTES = 1 << 20
"""Bytes that are read at a time."""

_LOCAL_HEADER_BYTES = 30
"""Bytes before a member, at least; its name follows them."""


def validate_path(who: str, path: Any) -> str:
    """Return the path of a file as text; raise DTypeError or SettingError if it is not valid."""
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


def write_archive(path: str, members: Members) -> None:
    """Write a file with ``members``; it replaces the file at ``path`` atomically.

    Raises:
        FileError: if the system refuses; the old file is unchanged.
    """
    target = os.path.realpath(path)  # a link stays a link
    folder = os.path.dirname(target)
    try:
        replace_file(target, lambda file: _write_members(file, members), _permissions(target))
    except OSError as error:
        raise _file_error("save", path, error) from error
    _flush_folder(folder)


def _write_members(file: BinaryIO, members: Members) -> None:
    archive = ZipFile(file, "w")
    try:
        for name, data in members.items():
            # With the fixed date of a new ZipInfo: equal trees give equal bytes.
            archive.writestr(ZipInfo(name), data)
        archive.close()
    except BaseException:
        archive.fp = None  # else it would write a directory of an incomplete file
        raise


def _permissions(target: str) -> int | None:
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


def _file_error(who: str, path: str, error: OSError) -> FileError:
    """Return the FileError for an OSError, with advice."""
    missing = isinstance(error, FileNotFoundError)
    advice = _ADVICE.get(error.errno or 0, "choose another path")
    if who == "save":
        advice += "; an existing file is unchanged"
    elif missing:
        advice = "pass the path of one that od.save wrote"
    kind = MissingFileError if missing else FileError
    file_error = kind(f"{who}: {path!r}: {error.strerror or error}; {advice}")
    file_error.errno = error.errno
    return file_error


# ------------------------------------------------------------------ reading


class Archive:
    """Archive that is read; sizes and checksums of its members are verified.

    Attributes:
        path: Its path, for messages.
        names: The names of its members.
    """

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self._bytes = os.fstat(file.fileno()).st_size
        if not self._bytes:
            raise self.error("is empty; save it again")
        self._zip = ZipFile(file)
        infos = self._zip.infolist()
        self._infos = {info.filename: info for info in infos}
        self.names = list(self._infos)
        if len(self.names) != len(infos):
            raise self.damage("two members have one name")
        # Each byte of the file belongs to one member at most, so that no file gives more than it
        # has: a member may begin inside of another.
        spans = sorted((i.header_offset, _LOCAL_HEADER_BYTES + i.compress_size) for i in infos)
        ends = [start + size for start, size in spans]
        starts = [*[start for start, _ in spans[1:]], self._bytes]
        if infos and (spans[0][0] < 0 or any(map(gt, ends, starts))):
            raise self.damage("two members share bytes, or one ends after the end of the file")

    def error(self, why: str) -> FormatError:
        """Return the error for an unexpected file."""
        return FormatError(f"load: {self.path!r} {why}")

    def damage(self, why: str) -> FormatError:
        """Return the error for a file that was changed after ``save``."""
        return self.error(f"was cut off, damaged or edited ({why}); load another copy of it")

    def size(self, name: str) -> int:
        """Return the size of a member in bytes; raise FormatError if the file cannot hold it."""
        info = self._infos.get(name)
        if info is None:
            raise self.damage(f"{format_value(name)} is missing")
        if info.compress_type != ZIP_STORED or info.compress_size != info.file_size:
            raise self.damage(f"{format_value(name)} is compressed")
        if info.file_size > self._bytes:
            raise self.damage(f"{format_value(name)} would be larger than the file")
        return info.file_size

    def read(self, name: str) -> bytes:
        """Return the bytes of a member."""
        self.size(name)
        return self._zip.read(self._infos[name])

    def read_into(self, name: str, header: bytes, buffer: memoryview) -> None:
        """Read a member that begins with ``header``, and the rest of it into ``buffer``."""
        if self.size(name) != len(header) + buffer.nbytes:
            raise self.damage(
                f"{format_value(name)} is of another size than the array that it holds"
            )
        with self._zip.open(self._infos[name]) as source:
            if source.read(len(header)) != header:
                raise self.damage(f"{format_value(name)} begins as another array")
            start = 0
            while start < buffer.nbytes:
                count = source.readinto(buffer[start : start + _CHUNK_BYTES])  # type: ignore[attr-defined]
                if not count:
                    raise EOFError("it ends early")
                start += count
            source.read(1)  # zipfile verifies the checksum at the end of a member


@contextmanager
def open_archive(path: str) -> Iterator[Archive]:
    """Open an archive for reading; errors in the block become FileError or FormatError."""
    archive = None
    try:
        _permissions(path)  # opening a pipe would wait for a writer
        with open(path, "rb") as file:
            archive = Archive(path, file)
            yield archive
    except OdysseyError:
        raise
    except OSError as error:
        raise _file_error("load", path, error) from error
    except (BadZipFile, EOFError, struct.error, *STUMBLES) as error:
        reason = f"{type(error).__name__}: {error}"
        if archive is not None:
            raise archive.damage(reason) from error
        raise FormatError(
            f"load: {path!r} was cut off, or is not a file of od.save ({reason}); pass one that "
            "od.save wrote"
        ) from error
