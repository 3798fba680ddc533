"""Machine code on disk, by what it was made from.

It lies in the user's cache, or in the folder that ``ODYSSEY_CACHE`` names, there in ``native``,
which no one else may write to; ``ODYSSEY_CACHE=off`` keeps nothing. Nothing here is ever an error:
what cannot be read, or is not as it was written, is made again, and what cannot be written is made
in each process. ``ODYSSEY_CACHE_BYTES`` says how much may lie there, 256 MB by default; what was
not used for longest goes first.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

from odyssey.kernels.generated import cache_folder
from odyssey.saving.atomic_replace import TEMPORARY_NAMES, replace_file

__all__ = ["clear_cache", "code_folder", "entry_key", "read_entry", "write_entry"]

# Of the files, and of what the programs in them expect of the library.
_FORMAT = 1

_MAGIC = b"odyssey\0"
_HEADER = struct.Struct("<8sQ32s32s")  # magic, length, the key, the contents' digest
_SUFFIX = ".code"
_NAME = re.compile(r"[0-9a-f]{64}\.code")

_DEFAULT_LIMIT = 256 << 20

# Seconds after which a draft is nobody's any more.
_DRAFT_LIFETIME = 3600.0

# Of how many keys one has the files counted.
_EVICTION_INTERVAL = 64

# What was warned of.
_warned: set[str] = set()


def entry_key(words: Iterable[str]) -> bytes:
    """The key of what is made from ``words`` alone."""
    digest = sha256(str(_FORMAT).encode())
    for word in words:
        data = word.encode()
        digest.update(struct.pack("<Q", len(data)) + data)
    return digest.digest()


def code_folder() -> Path | None:
    """Return the folder of the machine code cache; None if there is none."""
    given = os.environ.get("ODYSSEY_CACHE", "")
    if given.strip().lower() == "off":
        return None
    try:
        return (Path(given).expanduser() if given else cache_folder()) / "native"
    except RuntimeError:  # nobody's home
        return None


def read_entry(key: bytes) -> bytes | None:
    """Return the entry stored under ``key``; None if it is absent or was changed since."""
    home = code_folder()
    if home is None:
        return None
    path = home / (key.hex() + _SUFFIX)
    try:
        if not _is_private(home):
            return None
        contents = _read_verified(path, key)
    except (OSError, ValueError):
        return None
    if contents is not None:
        with suppress(OSError):  # it may be a disk to read from
            os.utime(path)  # what was not used for longest goes first
    return contents


def _read_verified(path: Path, key: bytes) -> bytes | None:
    # A link is not followed, and a pipe not waited for.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, _: os.open(name, flags | _BINARY)) as file:
        found = os.fstat(file.fileno())
        if not (stat.S_ISREG(found.st_mode) and _is_owned_by_user(found)):
            return None
        head = file.read(_HEADER.size)
        if len(head) != _HEADER.size:
            return None
        magic, length, name, digest = _HEADER.unpack(head)
        if (magic, length, name) != (_MAGIC, found.st_size - _HEADER.size, key):
            return None
        contents = file.read()
    return contents if sha256(contents).digest() == digest else None


_BINARY: int = getattr(os, "O_BINARY", 0)


def write_entry(key: bytes, contents: bytes) -> None:
    """Keep ``contents`` under ``key``, where that can be."""
    home = code_folder()
    limit = _size_limit()
    if home is None or _HEADER.size + len(contents) > limit:
        return
    head = _HEADER.pack(_MAGIC, len(contents), key, sha256(contents).digest())
    with suppress(OSError, ValueError):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(home):
            return
        path = home / (key.hex() + _SUFFIX)
        # Nobody waits for the disk: what it loses with the power has another digest.
        replace_file(str(path), lambda file: file.write(head + contents), 0o600, durable=False)
        _evict(home, key, len(head) + len(contents), limit)


def _is_owned_by_user(found: os.stat_result) -> bool:
    """Whether only who runs this could have written it."""
    if not hasattr(os, "geteuid"):
        return True
    # The system's own user could do anything, and may have made the image of a machine.
    owned = found.st_uid in (0, os.geteuid())
    return owned and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_private(home: Path) -> bool:
    """Whether the folder is there and ours alone; a warning, once, of one that is not."""
    if _is_owned_by_user(os.stat(home)):
        return True
    _warn_once(
        f"compile: others may write to {str(home)!r}, and so machine code is not kept there; "
        "make it yours alone (chmod 700), or name another folder in ODYSSEY_CACHE"
    )
    return False


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)


# ------------------------------------------------------------------ room


def _size_limit() -> int:
    """How many bytes may lie in the folder."""
    given = os.environ.get("ODYSSEY_CACHE_BYTES", "")
    if not given:
        return _DEFAULT_LIMIT
    with suppress(ValueError):
        if (limit := int(given)) >= 0:
            return limit
    _warn_once(
        f"compile: ODYSSEY_CACHE_BYTES={given!r} is not a number of bytes, and so "
        f"{_DEFAULT_LIMIT} is used"
    )
    return _DEFAULT_LIMIT


def _evict(home: Path, key: bytes, added: int, limit: int) -> None:
    """Delete what was not used for longest, where there is more than ``limit``.

    To count a thousand files takes 10 ms, and so that is done for large files, and for every 64th
    key, wherever it is written: nobody needs to know what others wrote.
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
    """When each file was last used, its bytes and its path; abandoned drafts are deleted."""
    found = []
    now = time.time()
    with os.scandir(home) as entries:
        for entry in entries:
            with suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                if _NAME.fullmatch(entry.name):
                    found.append((about.st_mtime, about.st_size, entry.path))
                elif (
                    fnmatch(entry.name, TEMPORARY_NAMES) and now - about.st_mtime > _DRAFT_LIFETIME
                ):
                    os.unlink(entry.path)
    return found


def clear_cache() -> int:
    """Delete all machine code that is kept on disk.

    Programs in memory are as they were.

    Returns:
        How many bytes that was.
    """
    home = code_folder()
    freed = 0
    if home is not None:
        with suppress(OSError, ValueError):
            for _, size, path in _cache_files(home):
                with suppress(OSError):
                    os.unlink(path)
                    freed += size
    return freed
