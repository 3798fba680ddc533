"""Base class of GradientTape: entering, leaving, pausing, joining and consuming a recording.

Sweeps, reports and manual records take a ``TapeBase``, so that they do not import ``GradientTape``.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn, Self

from odyssey.devices.commit import commit
from odyssey.errors import OdysseyError, TapeError
from odyssey.table.scope import (
    Pause,
    innermost_scope,
    pop_scope,
    push_scope,
    replace_scope,
    scopes,
    set_scopes,
)
from odyssey.table.scoped_exit import Scoped, ScopedBlock
from odyssey.table.store import MEMORY, store
from odyssey.tape.recording import Recording
from odyssey.tape.threads import NO_IDS, entered_elsewhere, swept_elsewhere

__all__ = ["NoRecording", "RecordingAgain", "TapeBase", "recording_of"]

OpenBlock = tuple[Any, Recording, bool, tuple[Any, ...], tuple[Any, ...]]
"""A block's door, its recording, whether the tape was enabled before, and the scopes outside and
inside of it."""


def _careful() -> Any:
    """What makes a recording careful."""
    from odyssey.tape.checks import NodeChecks  # which most programs do without

    return NodeChecks()


def leave_block(block: OpenBlock) -> None:
    """Leave the scope of a block; once more where that was interrupted."""
    _, recording, _, outer, inner = block
    if block not in recording.entered:
        return
    stack = scopes()
    if stack is inner:
        set_scopes(outer)
        recording.entered.remove(block)
    elif stack is outer:
        recording.entered.remove(block)
    else:
        commit([(set_scopes, pop_scope(recording)), (recording.entered.remove, block)])


class TapeBase(Scoped):
    """One tape's part of a recording.

    Args:
        persistent: Whether nodes are kept after a sweep.
        check: Whether the recording is careful and slow.
    """

    _recording: Recording = None  # type: ignore[assignment]  # if __init__ never ran

    def __init__(self, persistent: bool, check: bool) -> None:
        self.persistent = persistent
        self._check = check
        self._enabled = False
        self._blocks: list[OpenBlock] = []
        self._start()

    def _start(self) -> None:
        """Begin an empty recording of this tape's own."""
        me = weakref.ref(self)
        recording = Recording(me, store() is not MEMORY)
        recording.open[id(self)] = me
        if self._check:
            recording.careful = _careful()
            store().only_eagerly("a tape with check=True looks at every value")
        # Ids at which this tape stopped, started again, stopped ..., in rising order, while others
        # could go on with the recording.
        self._gaps: list[int] = []
        # Tapes that recorded when this one joined them, and so follow its sweeps.
        self._around: list[weakref.ref[TapeBase]] = []
        # Whether a tape inside of this one was swept: derivatives may well be constants.
        self._derived = False
        self._hooks: dict[int, tuple[Callable[[Any], Any], ...]] = {}
        self._pauses: list[Any] = []  # blocks of no_recording that are open
        # In this order: a tape that is interrupted here stays consumed, or its recording dead.
        self._recording = recording
        self._undelivered = False
        self._consumed = False
        if self._blocks:
            self._move_blocks()

    def _move_blocks(self) -> None:
        """Let the blocks of this tape that are open record on its new recording."""
        new = self._recording
        for k, block in enumerate(self._blocks):
            old = block[1]
            if old.dead and block in old.entered:
                moved = (block[0], new, *block[2:])
                commit(
                    [
                        (self._blocks.__setitem__, k, moved),
                        (old.entered.remove, block),
                        (new.entered.append, moved),
                        (set_scopes, replace_scope(old, new)),
                    ]
                )

    # -------------------------------------------------------------- recording or not

    def __enter__(self) -> Self:
        door, self._door = self._door, None
        thread = get_ident()
        if self._blocks and self._blocks[0][4][-1] != thread:
            raise entered_elsewhere(self._recording)
        if self._consumed or self._recording.dead:
            self._start()
        outer = scopes()
        if outer[0] is not None:
            self._meet(innermost_scope())
            outer = scopes()
        recording, was_enabled = self._recording, self._enabled
        inner = (recording, *outer) if outer[0] is not None else (recording, None, thread)
        block = (door, recording, was_enabled, outer, inner)
        self._blocks.append(block)
        if self._blocks[0][4][-1] != thread:  # it came in between
            self._blocks.remove(block)
            raise entered_elsewhere(recording)
        recording.entered.append(block)
        if not (was_enabled or self._gaps or self._pauses or len(recording.open) > 1):
            self._enabled = True  # enable, spelled out
            recording.thread = thread
            recording.turn(1)
        else:
            self.enable()
        set_scopes(inner)
        return self

    def _meet(self, outer: Any) -> None:
        """Find out what a block around this tape's means to it."""
        if outer is not None:
            if outer is not self._recording and isinstance(outer, Recording):
                self._join(outer)
            self._recording.guarded = True

    def _leave(self, kind: Any, error: Any, trace: Any) -> None:
        """Leave the innermost block; after an interrupt anywhere in here, it may be left again."""
        block = self._blocks[-1]
        _, recording, was_enabled, outer, inner = block
        if scopes() is inner:  # leave_block, spelled out
            set_scopes(outer)
            try:  # noqa: SIM105 (suppress takes as long as the rest)
                recording.entered.remove(block)
            except ValueError:  # the tape was cleared meanwhile, see below
                pass
        else:
            leave_block(block)
        if self._enabled and not was_enabled:
            recording = self._recording
            if self._pauses or recording.dead or len(recording.open) > 1:
                self.disable()
            else:
                recording.on = 0  # disable, spelled out
                recording.block = NO_IDS
                self._enabled = False
        if kind is not None:
            self.clear()
        left = self._blocks.pop()
        if left is not block:  # the tape was cleared meanwhile, which moved it
            leave_block(left)

    def _join(self, outer: Recording) -> None:
        """Share the recording of the enclosing tape; nodes recorded before elsewhere stay apart."""
        own = self._recording
        if not outer.on or own.nodes or own.on:
            return
        around = [weakref.ref(tape) for tape in outer.tapes() if tape.enabled]
        for leaf in own.leaves.values():
            outer.place(leaf)
        outer.constants.update(own.constants)
        commit(
            [
                (outer.open.__setitem__, id(self), weakref.ref(self)),
                (setattr, self, "_gaps", []),
                (setattr, self, "_around", around),
                (setattr, self, "_recording", outer),
            ]
        )
        own.spend("joined another")
        if self._check and outer.careful is None:
            outer.careful = _careful()
            outer.turn(outer.on)

    def enable(self) -> None:
        """Record what is passed to this tape or lives on it; a consumed tape starts empty."""
        if self._consumed or self._recording.dead:
            self._start()
        if not self._enabled:
            try:
                self._enabled = True
                self._recording.thread = get_ident()
                if not self._pauses:
                    self._resume()
            except BaseException:
                self._resume()
                raise

    def disable(self) -> None:
        """Record nothing more until enabled or entered again."""
        if self._enabled:
            try:
                self._enabled = False
                if not self._pauses:
                    self._stop()
            except BaseException:
                self._stop()
                raise

    def _resume(self) -> None:
        """Do what follows when this tape records again; where it does already, nothing."""
        recording = self._recording
        if recording.dead or not self.enabled:
            return
        if len(self._gaps) % 2:
            self._gaps.append(recording.new_id())
        recording.refresh()

    def _stop(self) -> None:
        """Do what follows when this tape records no more; where it does not already, nothing."""
        recording = self._recording
        if recording.dead or self.enabled:
            return
        recording.refresh()
        if len(recording.open) > 1 and not len(self._gaps) % 2:  # else nobody goes on
            self._gaps.append(recording.new_id())

    @property
    def enabled(self) -> bool:
        """Whether this tape records now."""
        return self._enabled and not self._pauses and not self._recording.dead

    def clear(self) -> None:
        """Drop every node, and forget every leaf; unlock every array."""
        enabled = self._enabled
        try:
            self._clear(enabled)
        except BaseException:
            self._clear(enabled)
            raise

    def _clear(self, enabled: bool) -> None:
        self.disable()
        self._part("cleared")
        self._start()
        if enabled:
            self.enable()

    def _part(self, why: str) -> None:
        """Give up this tape's share of its recording; the last one empties it."""
        r = self._recording
        r.open.pop(id(self), None)
        if not r.open or not r.tapes():
            r.spend(why)

    def __del__(self) -> None:
        recording = self._recording
        if recording is None or recording.dead:
            return
        # A tape that was swept gave up its share then. One that sweeps has its recording alone, and
        # the collector may come in between.
        if id(self) in recording.open or self._undelivered or not self._consumed:
            self._enabled = False
            self._part("dropped")
            if not recording.dead:
                recording.refresh()

    # -------------------------------------------------------------- what sweeps ask of a tape

    @property
    def paused(self) -> bool:
        """Whether a ``no_recording`` block of this tape is open."""
        return bool(self._pauses)

    @property
    def consumed(self) -> bool:
        """Whether a sweep spent this tape's nodes."""
        return self._consumed

    def _covers(self, id: int) -> bool:
        """Whether ``id`` was recorded while this tape was recording."""
        gaps, manual = self._gaps, self._recording.manual
        if not gaps or (id < gaps[0] and not manual):
            return True
        return bisect_right(gaps, manual.get(id, id)) % 2 == 0

    def _followed(self) -> bool:
        """Whether a tape that recorded when this one was entered still does."""
        if not self._around or isinstance(innermost_scope(), Pause):
            return False
        around = (ref() for ref in self._around)
        return any(t is not None and t.enabled for t in around)

    def _recording_again(self) -> RecordingAgain:
        """Record in this block what a sweep runs, though this tape may have been left."""
        return RecordingAgain(self)

    def _consume(self) -> None:
        """End this tape's recording after a sweep; may be called again where it was interrupted."""
        self._consumed = True
        self._hooks = {}
        if self._enabled:
            self.disable()
        self._part("consumed")

    def _settle(self, error: BaseException) -> None:
        """After a sweep that failed: a tape that lost nodes in it, or handed over, is consumed."""
        if not self._consumed:
            return
        if self._recording.thread == get_ident():
            self._consume()
        elif isinstance(error, (LookupError, RuntimeError)) and not isinstance(error, OdysseyError):
            raise swept_elsewhere() from error  # another thread is at work, or was

    def __repr__(self) -> str:
        return repr(self._recording)

    def __reduce__(self) -> NoReturn:
        raise TapeError(
            f"{self!r} is neither copied nor pickled: its nodes belong to the Variables that it "
            "met; record again, or store the gradients"
        )


# The recording that a tape has a part of.
recording_of: Callable[[TapeBase], Recording] = attrgetter("_recording")


class NoRecording(ScopedBlock):
    """See ``GradientTape.no_recording``."""

    def __init__(self, tape: TapeBase) -> None:
        super().__init__()
        self._tape = tape

    def _recreate_cm(self) -> NoRecording:
        return NoRecording(self._tape)  # as a decorator: one for each call

    def _begin(self, entry: list[Any]) -> None:
        tape = self._tape
        entry[1] = tape._recording
        tape._pauses.append(entry)
        if tape._enabled and len(tape._pauses) == 1:
            tape._stop()

    def _end(self, entry: list[Any]) -> None:
        tape, recording = self._tape, entry[1]
        if recording is tape._recording and not recording.dead:
            tape._pauses[:] = [pause for pause in tape._pauses if pause is not entry]
            tape._resume()


class RecordingAgain(ScopedBlock):
    """See ``GradientTape._recording_again``."""

    def __init__(self, tape: TapeBase) -> None:
        super().__init__()
        self._tape = tape

    def _begin(self, entry: list[Any]) -> None:
        tape, recording = self._tape, self._tape._recording
        block = (None, recording, tape._enabled, scopes(), push_scope(recording))
        entry[1] = block
        recording.entered.append(block)
        for ref in tape._around:
            if (around := ref()) is not None:
                around._derived = True
        if not tape._enabled and not tape._followed():
            tape.enable()
        set_scopes(block[-1])

    def _end(self, entry: list[Any]) -> None:
        if entry[1] is not None:
            leave_block(entry[1])
            if self._tape._enabled and not entry[1][2]:
                self._tape.disable()
