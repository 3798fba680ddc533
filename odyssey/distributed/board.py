"""Status board: a mapped file in which each process of a run writes its last collective."""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from typing import NamedTuple

__all__ = ["BROKEN", "COMPUTING", "FINISHED", "WAITING", "Board", "BoardLine"]

COMPUTING, WAITING, FINISHED, BROKEN = range(4)

TEXT = 120
"""Bytes of a line for the text of a call."""

_LINE = struct.Struct(f"IIqqdd{TEXT}s")
_CHECKSUM = 4
"""Bytes behind each line, by which a reader finds that it has read a line while it was written."""

_TRIES = 1000


class BoardLine(NamedTuple):
    """The last entry of one process.

    Args:
        group: The number of the group of the collective.
        number: How many collectives this process began in that group.
        state: ``COMPUTING``, ``WAITING`` in the collective, ``FINISHED``, or ``BROKEN``, which left
            the collective by an exception.
        since: ``time.monotonic()`` of the machine when this was written.
        waited: Seconds that the process spent in collectives, in all.
        call: The collective in words, as messages show it.
    """

    group: int
    number: int
    state: int
    since: float
    waited: float
    call: str


class Board:
    """A line for each rank of a run, in memory that the processes of one machine share.

    Without a folder there is no file, and ``read`` returns None.

    Args:
        folder: The folder of the run, or None.
        size: The number of ranks.
        rank: The rank of this process, whose line ``post`` changes.
    """

    def __init__(self, folder: str | None, size: int, rank: int) -> None:
        self.host = zlib.crc32(os.uname().nodename.encode()) or 1
        self._map: mmap.mmap | None = None
        self._own: memoryview | None = None
        if folder is not None and os.path.isdir(folder):
            step = _LINE.size + _CHECKSUM
            length = size * step
            file = os.open(os.path.join(folder, "board"), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # Of zeros, and equal for all who come. Blocks are allocated, since a write to a map
                # without any, on a full disk, ends the process by SIGBUS.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file, 0, length)
                else:
                    os.ftruncate(file, length)
                self._map = mmap.mmap(file, length)
                self._own = memoryview(self._map)[rank * step : (rank + 1) * step]
            finally:
                os.close(file)

    def post(self, group: int, number: int, state: int, waited: float, call: bytes) -> float:
        """Write this process's line and return the time in it."""
        now = time.monotonic()
        if self._own is not None:
            line = _LINE.pack(self.host, group, number, state, now, waited, call)
            # Not by pack_into, which writes zeros first: a launcher that read them then saw a rank
            # that had waited since the start of the machine, and ended the run.
            self._own[:] = line + zlib.crc32(line).to_bytes(_CHECKSUM, "little")
        return now

    def read(self, rank: int) -> BoardLine | None:
        """Return the line of a rank of this machine, or None."""
        if self._map is None:
            return None
        begin = rank * (_LINE.size + _CHECKSUM)
        for _ in range(_TRIES):
            line = self._map[begin : begin + _LINE.size + _CHECKSUM]
            if int.from_bytes(line[-_CHECKSUM:], "little") == zlib.crc32(line[:-_CHECKSUM]):
                break
            if not any(line):
                return None  # never written
        else:  # its process ended while it wrote
            return None
        host, *numbers, call = _LINE.unpack_from(line)
        if host != self.host:
            return None  # of another machine, whose clock is another
        group, number, state, since, waited = numbers
        return BoardLine(
            group, number, state, since, waited, call.rstrip(b"\0").decode(errors="replace")
        )
