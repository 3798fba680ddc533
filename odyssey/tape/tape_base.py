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
from odyssey.tape.threads import NO_IDS, entered_elsewhere_error, swept_elsewhere_error

__all__ = ["NoRecording", "ResumedRecording", "TapeBase", "recording_of"]

OpenBlock = tuple[Any, Recording, bool, tuple[Any, ...], tuple[Any, ...]]
"""An open block of a tape: its exit handle, its recording, whether the tape was enabled before, and
the scopes outside and inside."""


def _new_checks() -> Any:
    """Return the checks of a recording with ``check=True``."""
    from odyssey.tape.checks import NodeChecks  # most programs do not need it

    return NodeChecks()


def leave_block(block: OpenBlock) -> None:
    """Leave the scope of a block; may be repeated after an interrupt."""
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
    """One tape's use of a recording.

    Args:
        persistent: Whether nodes are kept after a sweep.
        check: Whether the recording is careful and slow.
        saved: The dtype in which nodes store float32 arrays; None to keep these as they are.
    """

    _recording: Recording = None  # type: ignore[assignment]  # if __init__ never ran

    def __init__(self, persistent: bool, check: bool, saved: str | None = None) -> None:
        self.persistent = persistent
        self._check = check
        self._saved = saved
        self._enabled = False
        self._blocks: list[OpenBlock] = []
        self._start_recording()

    def _start_recording(self) -> None:
        """Begin an empty recording owned by this tape."""
        self_ref = weakref.ref(self)
        recording = Recording(self_ref, None if (here := store()) is MEMORY else here)
        recording.open[id(self)] = self_ref
        if self._check:
            recording.checks = _new_checks()
            store().only_eagerly("a tape with check=True reads every value")
        if self._saved is not None:
            if not recording.traced:
                recording.start_rounding(self._saved, True)
            store().only_eagerly("a tape with saved= stores arrays in half precision")
        # Ids at which this tape stopped, started again, stopped ..., in rising order, while other
        # tapes could record.
        self._gaps: list[int] = []
        # Tapes that recorded when this one joined their recording, and so record its sweeps.
        self._outer_tapes: list[weakref.ref[TapeBase]] = []
        # True if a tape inside of this one was swept: a constant derivative is no mistake then.
        self._had_inner_sweep = False
        self._hooks: dict[int, tuple[Callable[[Any], Any], ...]] = {}
        self._pauses: list[Any] = []  # open blocks of no_recording
        # In this order: if interrupted, the tape stays consumed, or its recording dead.
        self._recording = recording
        self._undelivered = False
        self._consumed = False
        if self._blocks:
            self._move_blocks()

    def _move_blocks(self) -> None:
        """Let the open blocks of this tape record on its new recording."""
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
        handle, self._handle = self._handle, None
        thread = get_ident()
        if self._blocks and self._blocks[0][4][-1] != thread:
            raise entered_elsewhere_error(self._recording)
        if self._consumed or self._recording.dead:
            self._start_recording()
        outer = scopes()
        if outer[0] is not None:
            self._refuse_batches()
            self._enter_within(innermost_scope())
            outer = scopes()
        recording, was_enabled = self._recording, self._enabled
        inner = (recording, None, thread) if outer[0] is None else push_scope(recording)
        block = (handle, recording, was_enabled, outer, inner)
        self._blocks.append(block)
        if self._blocks[0][4][-1] != thread:  # another thread entered meanwhile
            self._blocks.remove(block)
            raise entered_elsewhere_error(recording)
        recording.entered.append(block)
        if not (was_enabled or self._gaps or self._pauses or len(recording.open) > 1):
            self._enabled = True  # enable() inlined
            recording.thread = thread
            recording.set_active(1)
        else:
            self.enable()
        set_scopes(inner)
        return self

    def _refuse_batches(self) -> None:
        """Raise TapeError if this tape comes from outside of the ``vmap`` that it is entered in."""
        here = store()
        if here.outer is not None and not here.records_on(self._recording):
            raise TapeError(
                "a tape from outside of vmap is entered in the mapped function, whose examples it "
                "cannot record one by one; make the tape in the function, or enter it around the "
                "call of vmap"
            )

    def _enter_within(self, outer: Any) -> None:
        """Join the recording of an enclosing block, and note that it may refuse leaves."""
        if outer is not None:
            if outer is not self._recording and isinstance(outer, Recording):
                self._join(outer)
            self._recording.may_refuse_leaves = True

    def _leave(self, kind: Any, error: Any, trace: Any) -> None:
        """Leave the innermost block; may be repeated after an interrupt."""
        block = self._blocks[-1]
        _, recording, was_enabled, outer, inner = block
        if scopes() is inner:  # leave_block() inlined
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
                recording.on = 0  # disable() inlined
                recording.block = NO_IDS
                self._enabled = False
        if kind is not None:
            self.clear()
        left = self._blocks.pop()
        if left is not block:  # the tape was cleared meanwhile, which moved it
            leave_block(left)

    def _join(self, outer: Recording) -> None:
        """Share the recording of the enclosing tape, if this tape has no nodes yet."""
        own = self._recording
        if not outer.on or own.nodes or own.on:
            return
        if self._saved is not None and not outer.traced:
            outer.start_rounding(self._saved, False)
        outer_tapes = [weakref.ref(tape) for tape in outer.tapes() if tape.enabled]
        for leaf in own.leaves.values():
            outer.operand_id(leaf)
        outer.constants.update(own.constants)
        commit(
            [
                (outer.open.__setitem__, id(self), weakref.ref(self)),
                (setattr, self, "_gaps", []),
                (setattr, self, "_outer_tapes", outer_tapes),
                (setattr, self, "_recording", outer),
            ]
        )
        own.discard("joined another")
        if self._check and outer.checks is None:
            outer.checks = _new_checks()
            outer.set_active(outer.on)

    def enable(self) -> None:
        """Record what is passed to this tape or lives on it; a consumed tape starts empty."""
        if self._consumed or self._recording.dead:
            self._start_recording()
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
        """Note that this tape records again; no effect if it does already."""
        recording = self._recording
        if recording.dead or not self.enabled:
            return
        if len(self._gaps) % 2:
            self._gaps.append(recording.new_id())
        recording.refresh()

    def _stop(self) -> None:
        """Note that this tape stops recording; no effect if it does not record."""
        recording = self._recording
        if recording.dead or self.enabled:
            return
        recording.refresh()
        if len(recording.open) > 1 and not len(self._gaps) % 2:  # else no other tape records
            self._gaps.append(recording.new_id())

    @property
    def enabled(self) -> bool:
        """True if this tape records now."""
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
        self._leave_recording("cleared")
        self._start_recording()
        if enabled:
            self.enable()

    def _leave_recording(self, why: str) -> None:
        """Remove this tape from its recording; the last tape discards it."""
        r = self._recording
        r.open.pop(id(self), None)
        if not r.open or not r.tapes():
            r.discard(why)

    def __del__(self) -> None:
        recording = self._recording
        if recording is None or recording.dead:
            return
        # A swept tape left its recording then. During a sweep the tape owns its recording, and the
        # garbage collector may run.
        if id(self) in recording.open or self._undelivered or not self._consumed:
            self._enabled = False
            self._leave_recording("dropped")
            if not recording.dead:
                recording.refresh()

    # -------------------------------------------------------------- state that sweeps read

    @property
    def paused(self) -> bool:
        """True if a ``no_recording`` block of this tape is open."""
        return bool(self._pauses)

    @property
    def consumed(self) -> bool:
        """True if a sweep consumed this tape's nodes."""
        return self._consumed

    def _covers(self, id: int) -> bool:
        """True if ``id`` was recorded while this tape was recording."""
        gaps, manual = self._gaps, self._recording.manual
        if not gaps or (id < gaps[0] and not manual):
            return True
        return bisect_right(gaps, manual.get(id, id)) % 2 == 0

    def _is_followed(self) -> bool:
        """True if a tape that recorded when this one was entered still records."""
        if not self._outer_tapes or isinstance(innermost_scope(), Pause):
            return False
        outer_tapes = (ref() for ref in self._outer_tapes)
        return any(t is not None and t.enabled for t in outer_tapes)

    def _resume_recording(self) -> ResumedRecording:
        """Return a block in which the ops of a sweep are recorded, even if this tape was left."""
        return ResumedRecording(self)

    def _consume(self) -> None:
        """End this tape's recording after a sweep; may be repeated after an interrupt."""
        self._consumed = True
        self._hooks = {}
        if self._enabled:
            self.disable()
        self._leave_recording("consumed")

    def _close_failed_sweep(self, error: BaseException) -> None:
        """After a failed sweep, consume a tape that lost nodes or delivered results."""
        if not self._consumed:
            return
        if self._recording.thread == get_ident():
            self._consume()
        elif isinstance(error, (LookupError, RuntimeError)) and not isinstance(error, OdysseyError):
            raise swept_elsewhere_error() from error  # another thread sweeps, or has swept

    def __repr__(self) -> str:
        return repr(self._recording)

    def __reduce__(self) -> NoReturn:
        raise TapeError(
            f"{self!r} is neither copied nor pickled: its nodes belong to the Variables that it "
            "met; record again, or store the gradients"
        )


# The recording of a tape.
recording_of: Callable[[TapeBase], Recording] = attrgetter("_recording")


class NoRecording(ScopedBlock):
    """See ``GradientTape.no_recording``."""

    def __init__(self, tape: TapeBase) -> None:
        super().__init__()
        self._tape = tape

    def _recreate_cm(self) -> NoRecording:
        return NoRecording(self._tape)  # as a decorator: a new block for each call

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


class ResumedRecording(ScopedBlock):
    """See ``GradientTape._resume_recording``."""

    def __init__(self, tape: TapeBase) -> None:
        super().__init__()
        self._tape = tape

    def _begin(self, entry: list[Any]) -> None:
        tape, recording = self._tape, self._tape._recording
        for ref in tape._outer_tapes:
            if (around := ref()) is not None:
                around._had_inner_sweep = True
        if not store().records_on(recording):  # what this store computes outside is recorded there
            return
        block = (None, recording, tape._enabled, scopes(), push_scope(recording))
        entry[1] = block
        recording.entered.append(block)
        if not tape._enabled and not tape._is_followed():
            tape.enable()
        set_scopes(block[-1])

    def _end(self, entry: list[Any]) -> None:
        if entry[1] is not None:
            leave_block(entry[1])
            if self._tape._enabled and not entry[1][2]:
                self._tape.disable()
