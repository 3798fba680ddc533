"""Transport of collectives: requests of MPI, announced, compared and polled against a deadline."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI

from odyssey.distributed.board import COMPUTING, FINISHED, TEXT, WAITING, Board
from odyssey.errors import DistributedError
from odyssey.table.store import MEMORY, store

__all__ = ["Transport", "load_world"]

PIECE = 2**30
"""Most bytes of one message; MPI counts elements in 31 bits."""

_ANNOUNCEMENT = 24
_SPINS, _YIELDING, _NAP = 100, 0.1, 50e-6
_ANSWER = 0.5
"""Seconds in which others answer when a rank is missing."""

Start = Callable[[], Sequence[Any]]


@lru_cache(maxsize=4096)
def _describe_call(name: str, shape: Any, dtype: Any, option: str) -> tuple[bytes, bytes]:
    """Return the announcement of a collective, and its text: the first is a hash of the second."""
    detail = ", ".join(
        word for word in (f"{np.dtype(dtype)} {shape}" if dtype is not None else "", option) if word
    )
    text = f"{name}({detail})".encode()
    if len(text) > TEXT:
        text = text[: TEXT - 3] + b"..."
    key = repr((name, shape, dtype, option)).encode()
    return hashlib.blake2b(key, digest_size=_ANNOUNCEMENT).digest(), text


def _pieces(flat: Any) -> list[Any]:
    """Cut a flat array into views of bytes that one message may have."""
    data = flat.view(np.uint8)
    return [data[k : k + PIECE] for k in range(0, len(data), PIECE)]


class Transport:
    """Two communicators of MPI, on which each collective has an end.

    A collective is announced on a communicator of its own by a hash of its name, shapes and dtype;
    data moves only when all announcements agree. Both requests are non-blocking and polled. When
    the deadline passes, or the announcements differ, or an exception arrives, the transport is
    broken: messages may be in flight, so every later call raises the same error.

    Args:
        data: The communicator of data, used by nobody else.
        side: The communicator of announcements.
        board: The status board of the run.
        number: The number of the group, equal on its ranks, 0 for the world.
        ranks: The ranks of the group's members in the world, in order.
        timeout: Seconds.
    """

    def __init__(
        self, data: Any, side: Any, board: Board, number: int, ranks: Sequence[int], timeout: float
    ) -> None:
        self.data, self.side, self.board = data, side, board
        self.number, self.ranks, self.timeout = number, tuple(ranks), timeout
        self.rank, self.size = int(data.rank), int(data.size)
        self.count, self.waited = 0, 0.0
        self.broken: str | None = None
        self.others = [r for r in range(self.size) if r != self.rank]
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._call = b""
        self._in_flight: list[Any] = []  # what MPI may still read or write
        self._sent = np.zeros(_ANNOUNCEMENT, np.uint8)
        self._received = np.zeros((self.size, _ANNOUNCEMENT), np.uint8)
        self._spec = [self._sent, MPI.BYTE], [self._received, MPI.BYTE]

    # ------------------------------------------------------------------ one collective

    def run(
        self,
        name: str,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
        option: str = "",
        start: Start | None = None,
    ) -> None:
        """Announce a collective, compare announcements, start its requests and wait for their end.

        Args:
            name: The collective.
            shape: Shape of its array, equal on all ranks.
            dtype: Its dtype.
            option: Further words that must be equal on all ranks, such as the root.
            start: Starts the requests and returns them; without it the announcement is all.

        Raises:
            DistributedError: A rank did not come, or came for another collective; or the group is
                broken, or in use by another thread, or was made before a fork.
        """
        if (here := store()) is not MEMORY:
            here.refuse_effect(f"{name}: a collective called", "call it outside of the function")
        digest, text = _describe_call(name, shape, dtype, option)
        self._enter(text)
        try:
            self._call = text
            self.count += 1
            begin = self.board.post(self.number, self.count, WAITING, self.waited, text)
            self._sent.data[:] = digest
            self._in_flight.append(start)
            self._poll([self.side.Iallgather(*self._spec)], begin)
            if self._received.tobytes() != digest * self.size:
                raise DistributedError(self._difference(text, begin))
            if start is not None:
                requests = start()
                self._in_flight.append(requests)
                self._poll(requests, begin)
            self._in_flight.clear()
            self.waited += time.monotonic() - begin
            state = FINISHED if name == "finish" else COMPUTING
            self.board.post(self.number, self.count, state, self.waited, text)
        except BaseException as error:
            self._break(error)
            if isinstance(error, MPI.Exception):
                raise DistributedError(str(self.broken)) from error
            raise
        finally:
            self._lock.release()

    def _enter(self, text: bytes) -> None:
        """Take the lock, or raise."""
        if self.process != os.getpid():
            raise DistributedError(
                f"{text.decode()}: this process is a fork of rank {self.rank}, and has no "
                "connection to the group; call collectives in the process that made the group, or "
                "start processes by the launcher"
            )
        if not self._lock.acquire(blocking=False):
            raise DistributedError(
                f"{text.decode()}: rank {self.rank} is still in {self._call.decode()}, which "
                "another thread, a signal handler or a hook began; give each thread a group of "
                "its own, group.split(0)"
            )
        if self.broken is not None:
            self._lock.release()
            raise DistributedError(self.broken)

    def _break(self, error: BaseException) -> None:
        """Note why no further collective is possible."""
        if isinstance(error, DistributedError):
            self.broken = str(error)
            return
        cause = f"{type(error).__name__}: {error}".rstrip(": ")
        self.broken = (
            f"{self._call.decode()}: rank {self.rank} left collective {self.count} by {cause}; "
            "its messages may be in flight, so the group is broken: end this process"
        )

    def _poll(self, requests: Sequence[Any], begin: float) -> None:
        """Test requests until all are complete; raise when the deadline passes.

        Data moves only while somebody tests: sleeping longer made 16 MB take a second.
        """
        if len(requests) == 1:
            test = requests[0].Test
        else:

            def test() -> bool:
                return bool(MPI.Request.Testall(requests))

        spins = 0
        while not test():
            spins += 1
            if spins > _SPINS:
                waited = time.monotonic() - begin
                if waited > self.timeout:
                    raise DistributedError(self._absence(waited))
                if waited < _YIELDING:
                    os.sched_yield()
                else:
                    time.sleep(_NAP)

    # ------------------------------------------------------------------ kinds of collectives

    def exchange(
        self,
        name: str,
        flat: Any,
        sends: Sequence[tuple[int, Any]],
        receives: Sequence[tuple[int, Any]],
        option: str = "",
    ) -> None:
        """Send arrays to ranks and receive others, in pieces that MPI can count.

        Args:
            name: The collective, as it is announced.
            flat: The array whose shape and dtype are announced.
            sends: Pairs of a rank and a contiguous array.
            receives: Pairs of a rank and the array that is filled with what it sent.
            option: Further words that are announced.
        """

        def start() -> list[Any]:
            data = self.data
            arriving = [data.Irecv([b, MPI.BYTE], r) for r, a in receives for b in _pieces(a)]
            return arriving + [data.Isend([b, MPI.BYTE], r) for r, a in sends for b in _pieces(a)]

        self.run(name, flat.shape, flat.dtype, option, start)

    def sum_in_any_order(self, name: str, x: Any) -> Any:
        """Return the sum of an array over the ranks in an order that the MPI library chooses."""
        total = x.copy()
        flat = total.reshape(-1)
        kind = MPI.Datatype.fromcode(flat.dtype.char)
        count = PIECE // flat.itemsize

        def start() -> list[Any]:
            pieces = [flat[k : k + count] for k in range(0, len(flat), count)]
            return [self.data.Iallreduce(MPI.IN_PLACE, [p, kind], MPI.SUM) for p in pieces]

        self.run(name, x.shape, x.dtype, "fast", start)
        return total

    def send_to_all(self, name: str, x: Any, root: int) -> None:
        """Fill a contiguous array on all ranks with that of the root."""
        flat = x.reshape(-1)

        def start() -> list[Any]:
            return [self.data.Ibcast([p, MPI.BYTE], root) for p in _pieces(flat)]

        self.run(name, x.shape, x.dtype, f"root {root}", start)

    # ------------------------------------------------------------------ messages of errors

    def _difference(self, text: bytes, begin: float) -> str:
        """Return the message for announcements that differ: all ranks exchange their texts."""
        sent = np.frombuffer(text.ljust(TEXT, b"\0"), np.uint8).copy()
        received = np.zeros((self.size, TEXT), np.uint8)
        self._in_flight.append((sent, received))
        self._poll([self.side.Iallgather([sent, MPI.BYTE], [received, MPI.BYTE])], begin)
        texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in received]
        calls = "; ".join(
            f"rank {r}{' (this one)' if r == self.rank else ''} calls {t}"
            for r, t in enumerate(texts)
        )
        return f"collective {self.count} differs between ranks: {calls}"

    def _absence(self, waited: float) -> str:
        """Return the message for a collective that not all ranks reached by the deadline."""
        others = []
        for rank, world_rank in enumerate(self.ranks):
            if rank != self.rank:
                others.append(f"rank {rank} {self._last_seen(world_rank)}")
        return (
            f"{self._call.decode()}: rank {self.rank} waited {waited:.1f} s in collective "
            f"{self.count}; {'; '.join(others)}"
        )

    def _last_seen(self, world_rank: int) -> str:
        """Return what a rank did last, as its line of the board says."""
        line = self.board.read(world_rank)
        if line is None:
            return f"completed collective {self.count - 1}, and is not on this machine's board"
        ago = f"{time.monotonic() - line.since:.1f} s"
        if line.state == FINISHED:
            return f"reached the end of its script {ago} ago"
        call = f"{line.call} (collective {line.number})"
        if line.state == WAITING:
            return f"has been in {call} for {ago}"
        return f"computes since {ago}, after {call}" if line.number else f"came {ago} ago"

    # ------------------------------------------------------------------ communicators

    def subset(self, color: int, key: int) -> Transport:
        """Return the transport of the ranks with this color, in the order of their keys."""
        own = np.array([color, key], np.int64)
        table = np.empty((self.size, 2), np.int64)
        self.run(
            "split",
            start=lambda: [self.side.Iallgather([own, MPI.BYTE], [table, MPI.BYTE])],
        )
        order = sorted(range(self.size), key=lambda r: (table[r, 1], r))
        ranks = [self.ranks[r] for r in order if table[r, 0] == color]
        # MPI has no non-blocking split; all ranks have just met, so none waits for long.
        data, side = (self._split_communicator(color, key) for _ in range(2))
        seed = repr((self.number, self.count, color)).encode()
        number = int.from_bytes(hashlib.blake2b(seed, digest_size=4).digest(), "little") or 1
        return Transport(data, side, self.board, number, ranks, self.timeout)

    def _split_communicator(self, color: int, key: int) -> Any:
        try:
            # MPI takes colors from 0 on.
            return self.data.Split(color % 2**31, key)
        except MPI.Exception as error:
            self._break(error)
            raise DistributedError(str(self.broken)) from error


def load_world(communicator: Any, timeout: float) -> Transport:
    """Return the transport of a communicator of MPI, on duplicates of it."""
    begin = time.monotonic()
    copies = []
    for _ in range(2):
        copy, request = communicator.Idup()
        while not request.Test():
            if time.monotonic() - begin > timeout:
                raise DistributedError(
                    f"world: rank {communicator.rank} of {communicator.size} waited {timeout:.1f} "
                    "s for the other ranks to make the group; each of them must call "
                    "od.distributed.world()"
                )
            time.sleep(_NAP)
        copies.append(copy)
    board = Board(os.environ.get("ODYSSEY_RUN"), communicator.size, communicator.rank)
    board.post(0, 0, COMPUTING, 0.0, b"world")
    data, side = copies
    return Transport(data, side, board, 0, range(communicator.size), timeout)
