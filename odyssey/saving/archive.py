"""Archives: writing and reading of ``.npz`` files, with errors that say what is wrong."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from operator import gt
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from odyssey.checks import STUMBLES, format_value
from odyssey.errors import FormatError, OdysseyError
from odyssey.saving.paths import file_error, regular_file_mode, write_atomically

__all__ = ["Archive", "open_archive", "read_file", "write_archive"]

Members = dict[str, Any]
"""Contents of a file: bytes, or a memoryview of them, by name of the member."""


_CHUNK_BYTES = 1 << 20
"""Bytes that are read at a time."""

_LOCAL_HEADER_BYTES = 30
"""Bytes before a member, at least; its name follows them."""


# ------------------------------------------------------------------ writing


def write_archive(path: str, members: Members) -> None:
    """Write a file with ``members``; it replaces the file at ``path`` atomically.

    Raises:
        FileError: if the system refuses; the old file is unchanged.
    """
    write_atomically("save", path, lambda file: _write_members(file, members))


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


# ------------------------------------------------------------------ reading


class Archive:
    """Archive that is read; sizes and checksums of its members are verified.

    Attributes:
        path: Its path, for messages.
        names: The names of its members.
    """

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self._bytes = file.seek(0, os.SEEK_END)
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


def read_file(path: str) -> BytesIO:
    """Return the bytes of a file, for ``open_archive`` in this process or in another one.

    Raises:
        FileError: if the system refuses; ``MissingFileError`` if there is no such file.
    """
    try:
        regular_file_mode(path)  # opening a pipe would wait for a writer
        with open(path, "rb") as file:
            return BytesIO(file.read())
    except OSError as error:
        raise file_error("load", path, error) from error


@contextmanager
def open_archive(path: str, contents: BinaryIO | None = None) -> Iterator[Archive]:
    """Open an archive for reading; errors in the block become FileError or FormatError.

    Args:
        path: The file; for messages only, if there are ``contents``.
        contents: The bytes of the file, if they are in memory already.
    """
    archive = None
    try:
        if contents is None:
            regular_file_mode(path)
        with open(path, "rb") if contents is None else contents as file:
            archive = Archive(path, file)
            yield archive
    except OdysseyError:
        raise
    except OSError as error:
        raise file_error("load", path, error) from error
    except (BadZipFile, EOFError, struct.error, *STUMBLES) as error:
        reason = f"{type(error).__name__}: {error}"
        if archive is not None:
            raise archive.damage(reason) from error
        raise FormatError(
            f"load: {path!r} was cut off, or is not a file of od.save ({reason}); pass one that "
            "od.save wrote"
        ) from error
