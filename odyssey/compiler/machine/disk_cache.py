"""Disk cache of machine code, keyed by the source text and the target.

Called by ``jit``, and by ``target`` for its fingerprint. The folder is ``native`` in the user's
cache folder, or in the folder that ``ODYSSEY_CACHE`` names; nobody else may be able to write to it.
``ODYSSEY_CACHE=off`` turns the cache off. ``ODYSSEY_CACHE_BYTES`` limits its size, 256 MB by
default; the least recently used entries are deleted first. A failure is never an error: a damaged
or unreadable entry is compiled again, and an entry that cannot be written is compiled in each
process.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

from odyssey.atomic_replace import TEMPORARY_NAMES, replace_file
from odyssey.kernels.cache_folders import (
    is_private_folder,
    is_regular_and_owned,
    machine_code_folder,
    warn_once,
)

__all__ = ["clear_cache", "entry_key", "read_entry", "write_entry"]

# Version of the file format and of the interface between programs and the library.
_FORMAT = 1

_MAGIC = b"odyssey\0"
_HEADER = struct.Struct("<8sQ32s32s")  # magic, length, key, digest of the contents
_CONTENTS = "machine code"
_SUFFIX = ".code"
_NAME = re.compile(r"[0-9a-f]{64}\.code")

_DEFAULT_LIMIT = 256 << 20

# Seconds after which a temporary file is abandoned.
_TEMPORARY_LIFETIME = 3600.0

# One of this many keys triggers eviction.
_EVICTION_INTERVAL = 64


def entry_key(parts: Iterable[str]) -> bytes:
    """Return the key of an entry that is determined by strings."""
    digest = sha256(str(_FORMAT).encode())
    for part in parts:
        data = part.encode()
        digest.update(struct.pack("<Q", len(data)) + data)
    return digest.digest()


def read_entry(key: bytes) -> bytes | None:
    """Return the entry stored under ``key``; None if it is absent or was changed since."""
    home = machine_code_folder()
    if home is None:
        return None
    path = home / (key.hex() + _SUFFIX)
    try:
        if not is_private_folder(home, _CONTENTS):
            return None
        contents = _read_verified(path, key)
    except (OSError, ValueError):
        return None
    if contents is not None:
        with suppress(OSError):  # the file system may be read-only
            os.utime(path)  # for eviction
    return contents


def _read_verified(path: Path, key: bytes) -> bytes | None:
    # Do not follow a symbolic link, and do not wait for a pipe.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, _: os.open(name, flags | _BINARY)) as file:
        status = os.fstat(file.fileno())
        if not is_regular_and_owned(status):
            return None
        head = file.read(_HEADER.size)
        if len(head) != _HEADER.size:
            return None
        magic, length, name, digest = _HEADER.unpack(head)
        if (magic, length, name) != (_MAGIC, status.st_size - _HEADER.size, key):
            return None
        contents = file.read()
    return contents if sha256(contents).digest() == digest else None


_BINARY: int = getattr(os, "O_BINARY", 0)


def write_entry(key: bytes, contents: bytes) -> None:
    """Store ``contents`` under ``key`` if the folder can be written."""
    home = machine_code_folder()
    limit = _size_limit()
    if home is None or _HEADER.size + len(contents) > limit:
        return
    head = _HEADER.pack(_MAGIC, len(contents), key, sha256(contents).digest())
    with suppress(OSError, ValueError):
        if not is_private_folder(home, _CONTENTS, create=True):
            return
        path = home / (key.hex() + _SUFFIX)
        # Not durable: an entry damaged by a power failure has another digest.
        replace_file(str(path), lambda file: file.write(head + contents), 0o600, durable=False)
        _evict(home, key, len(head) + len(contents), limit)


# ------------------------------------------------------------------ size and eviction


def _size_limit() -> int:
    """Return the largest size of the folder in bytes."""
    setting = os.environ.get("ODYSSEY_CACHE_BYTES", "")
    if not setting:
        return _DEFAULT_LIMIT
    with suppress(ValueError):
        if (limit := int(setting)) >= 0:
            return limit
    warn_once(
        f"compile: ODYSSEY_CACHE_BYTES={setting!r} is not a number of bytes, and so "
        f"{_DEFAULT_LIMIT} is used"
    )
    return _DEFAULT_LIMIT


def _evict(home: Path, key: bytes, added: int, limit: int) -> None:
    """Delete the least recently used entries if the folder has more than ``limit`` bytes.

    Counting a thousand files takes 10 ms. So it is done for large entries and for one of 64 keys,
    which needs no knowledge of what other processes wrote.
    """
    if added * _EVICTION_INTERVAL < limit and key[0] >= 256 // _EVICTION_INTERVAL:
        return
    files = sorted(_cache_files(home))
    total = sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, path in files:
        if total <= limit * 3 // 4:
            break
        with suppress(OSError):
            os.unlink(path)
            total -= size


def _cache_files(home: Path) -> list[tuple[float, int, str]]:
    """Return time of last use, size and path of each file; delete abandoned temporary files."""
    files = []
    now = time.time()
    with os.scandir(home) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if _NAME.fullmatch(entry.name):
                    files.append((status.st_mtime, status.st_size, entry.path))
                elif (
                    fnmatch(entry.name, TEMPORARY_NAMES)
                    and now - status.st_mtime > _TEMPORARY_LIFETIME
                ):
                    os.unlink(entry.path)
    return files


def clear_cache() -> int:
    """Delete the machine code in the disk cache; programs in memory are unaffected.

    Returns:
        Number of bytes deleted.
    """
    home = machine_code_folder()
    freed = 0
    if home is not None:
        with suppress(OSError, ValueError):
            for _, size, path in _cache_files(home):
                with suppress(OSError):
                    os.unlink(path)
                    freed += size
    return freed
