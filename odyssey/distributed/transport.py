"""Transport of collectives: requests of MPI, announced, compared and polled against a deadline."""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from mpi4py import MPI

from odyssey.distributed.board import BROKEN, COMPUTING, FINISHED, TEXT, WAITING, Board, BoardLine
from odyssey.errors import DistributedError
from odyssey.table.store import MEMORY, store

__all__ = ["Transport", "load_world"]

PIECE = 2**30
"""Most bytes of one message; MPI counts elements in 31 bits."""

_yield_processor = getattr(os, "sched_yield", partial(time.sleep, 0))  # macOS has none

_ANNOUNCEMENT = 24
_SPINS, _YIELDING, _NAP = 100, 0.1, 50e-6
ANSWER_LIMIT = 1.0
"""Seconds in which ranks of other machines answer when one is missing."""

STATUS_BROKEN = 75
"""The exit status of a process whose group is broken, EX_TEMPFAIL of sysexits.h."""

FINISH = "finish"
"""The last collective of a run."""

FINISH_TEXT = f"{FINISH}()"
_GRADIENT = "gradient of "

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


def _decode_text(row: Any) -> str:
    """Return the text of a row of bytes."""
    return bytes(row).rstrip(b"\0").decode(errors="replace")


def _advice(calls: Sequence[str]) -> str:
    """Return what to do where some ranks are in a gradient and others are not, with a point."""
    count = sum(_GRADIENT in call for call in calls)
    if count == 0 or (count == len(calls) and len({c.partition("(")[0] for c in calls}) == 1):
        return ""
    return (
        ". A rank does not take part in the gradient if its loss does not depend on the result of "
        "the collective, or if its operand does not need a gradient: add 0 * result.sum() to its "
        "loss, and let all ranks differentiate with respect to the operand"
    )


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
        self._lock = threading.RLock()
        self._call = b""  # the collective that is under way
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
        self._refuse_shared_use(text)
        with self._lock:
            # The thread that holds the lock may be this one, in a handler of a signal.
            self._refuse_shared_use(text)
            if self.broken is not None:
                raise DistributedError(self.broken)
            self._call = text
            try:
                self._run(name, digest, text, start)
            except BaseException as error:
                self._break(error)
                if isinstance(error, MPI.Exception):
                    raise DistributedError(str(self.broken)) from error
                raise
            finally:
                self._call = b""

    def _run(self, name: str, digest: bytes, text: bytes, start: Start | None) -> None:
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
        state = FINISHED if name == FINISH else COMPUTING
        self.board.post(self.number, self.count, state, self.waited, text)

    def _refuse_shared_use(self, text: bytes) -> None:
        """Raise in a child of a fork, and while a collective of this process is under way."""
        if self.process != os.getpid():
            raise DistributedError(
                f"{text.decode()}: this process is a fork of rank {self.rank}, and has no "
                "connection to the group; call collectives in the process that made the group"
            )
        if call := self._call:
            raise DistributedError(
                f"{text.decode()}: rank {self.rank} is still in {call.decode()}, which another "
                "thread began, or what a signal or a hook interrupted; give each thread a group of "
                "its own: group.split(0), called before the threads start"
            )

    def _break(self, error: BaseException) -> None:
        """Note why no further collective is possible."""
        self.board.post(self.number, self.count, BROKEN, self.waited, self._call)
        if isinstance(error, DistributedError):
            self.broken = str(error)
            return
        cause = f"{type(error).__name__}: {error}".rstrip(": ")
        self.broken = (
            f"{self._call.decode()}: rank {self.rank} left collective {self.count} by {cause}; "
            "messages may still arrive, so the group is broken, and this process can only end"
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
                    _yield_processor()
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
        texts = [_decode_text(row) for row in received]
        calls = "; ".join(
            f"rank {r}{' (this one)' if r == self.rank else ''} "
            f"{'has reached the end of its script' if t == FINISH_TEXT else f'calls {t}'}"
            for r, t in enumerate(texts)
        )
        return f"collective {self.count} differs between ranks: {calls}{_advice(texts)}"

    def _absence(self, waited: float) -> str:
        """Return the message for a collective that not all ranks reached by the deadline."""
        lines = {rank: self.board.read(number) for rank, number in enumerate(self.ranks)}
        others = [rank for rank in lines if rank != self.rank]
        # Ranks of other machines, whose clocks and boards are others.
        answers = self._roll_call([rank for rank in others if lines[rank] is None])
        call = self._call.decode()
        reports, calls = [], [call]
        for rank in others:
            line = lines[rank]
            if line is not None:
                calls.append(line.call)
                reports.append(f"rank {rank} {self._last_call(line)}")
            elif rank in answers:
                calls.append(answers[rank])
                reports.append(f"rank {rank} waits in {answers[rank]}")
            else:
                reports.append(
                    f"rank {rank} does not answer, since collective {self.count - 1}, which it "
                    "completed"
                )
        return (
            f"{call}: rank {self.rank} waited {waited:.1f} s in collective {self.count}; "
            f"{'; '.join(reports)}{_advice(calls)}"
        )

    def _last_call(self, line: BoardLine) -> str:
        """Return what a rank did last, as its line of the board says."""
        ago = f"{time.monotonic() - line.since:.1f} s"
        if line.state == FINISHED:
            return f"reached the end of its script {ago} ago"
        if not line.number:
            return f"made the group {ago} ago, and no collective since"
        other = "" if line.group == self.number else " of another group"
        call = f"{line.call}, collective {line.number}{other}"
        if line.state == BROKEN:
            return f"left {call} by an exception {ago} ago"
        if line.state == WAITING:
            return f"has waited for {ago} in {call}"
        return f"computes since {ago}, after {call}"

    def _roll_call(self, ranks: Sequence[int]) -> dict[int, str]:
        """Return the calls in which other ranks wait as this one does, by rank.

        They send each other their calls when the deadline passes; a rank that computes, or is gone,
        sends nothing.
        """
        text = f"{self._call.decode()}, collective {self.count}".encode()[:TEXT]
        sent = np.frombuffer(text.ljust(TEXT, b"\0"), np.uint8).copy()
        received = np.zeros((len(ranks), TEXT), np.uint8)
        side = self.side
        try:
            arriving = [side.Irecv([received[k], MPI.BYTE], rank) for k, rank in enumerate(ranks)]
            leaving = [side.Isend([sent, MPI.BYTE], rank) for rank in ranks]
            self._in_flight.append((sent, received, arriving, leaving))
            end = time.monotonic() + ANSWER_LIMIT
            answered = [False] * len(ranks)
            while time.monotonic() < end and not all(answered):
                answered = [a or bool(r.Test()) for a, r in zip(answered, arriving, strict=True)]
                time.sleep(_NAP)
        except MPI.Exception:  # a rank is gone
            answered = [False] * len(ranks)
        return {
            rank: _decode_text(row)
            for rank, row, answer in zip(ranks, received, answered, strict=True)
            if answer
        }

    # ------------------------------------------------------------------ communicators

    def subset(self, color: int, key: int) -> Transport:
        """Return the transport of the ranks with this color, in the order of their keys."""
        own = np.array([color, key], np.int64)
        table = np.empty((self.size, 2), np.int64)
        self.run(
            "Group.split",
            start=lambda: [self.side.Iallgather([own, MPI.BYTE], [table, MPI.BYTE])],
        )
        order = sorted(range(self.size), key=lambda r: (table[r, 1], r))
        ranks = [self.ranks[r] for r in order if table[r, 0] == color]
        try:
            # MPI has no non-blocking split; all ranks have just met, so none waits for long. It
            # takes colors of 31 bits.
            place = sorted({int(one) for one in table[:, 0]}).index(color)
            data, side = (self.data.Split(place, key) for _ in range(2))
        except BaseException as error:
            self._call = b"Group.split()"
            self._break(error)
            self._call = b""
            if isinstance(error, MPI.Exception):
                raise DistributedError(str(self.broken)) from error
            raise
        seed = repr((self.number, self.count, color)).encode()
        number = int.from_bytes(hashlib.blake2b(seed, digest_size=4).digest(), "little") or 1
        made = Transport(data, side, self.board, number, ranks, self.timeout)
        finalizer = weakref.finalize(made, _free_communicators, made._in_flight, data, side)
        finalizer.atexit = False
        return made


def _free_communicators(in_flight: list[Any], *communicators: Any) -> None:
    """Give communicators back, of which MPICH has 2,048, unless messages may still arrive."""
    if not in_flight and not MPI.Is_finalized():
        for communicator in communicators:
            communicator.Free()


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
    transport = Transport(data, side, board, 0, range(communicator.size), timeout)
    if "odyssey.distributed.runner" not in sys.modules:  # which ends all ranks by itself
        atexit.register(_abort_if_broken, transport)
    return transport


def _abort_if_broken(transport: Transport) -> None:
    """End all ranks at the end of a process whose group is broken: MPI would wait for them."""
    if transport.broken is not None and transport.process == os.getpid():
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        transport.data.Abort(STATUS_BROKEN)
