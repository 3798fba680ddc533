"""The blocks of a tape: how one is left, and those in which it pauses, or records a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odyssey.devices.commit import commit
from odyssey.table.blocks import Block
from odyssey.table.scope import scopes, set_scopes, within, without
from odyssey.tape.recording import Recording

if TYPE_CHECKING:
    from odyssey.tape.gradient_tape import GradientTape

__all__ = ["NoRecording", "OpenBlock", "RecordingAgain", "leave_block"]

OpenBlock = tuple[Recording, bool, Any, tuple[Any, ...], tuple[Any, ...]]
"""A recording, whether the tape was enabled before, the block's door, and the scopes outside and
inside of it."""


def leave_block(block: OpenBlock) -> None:
    """Leave the scope of a block; once more where that was interrupted."""
    recording, _, _, outer, inner = block
    if block not in recording.entered:
        return
    stack = scopes()
    if stack is inner:
        set_scopes(outer)
        recording.entered.remove(block)
    elif stack is outer:
        recording.entered.remove(block)
    else:
        commit([(set_scopes, without(recording)), (recording.entered.remove, block)])


class NoRecording(Block):
    """See ``GradientTape.no_recording``."""

    def __init__(self, tape: GradientTape) -> None:
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


class RecordingAgain(Block):
    """See ``GradientTape._recording_again``."""

    def __init__(self, tape: GradientTape) -> None:
        super().__init__()
        self._tape = tape

    def _begin(self, entry: list[Any]) -> None:
        tape = self._tape
        block = (tape._recording, tape._enabled, None, scopes(), within(tape._recording))
        entry[1] = block
        tape._recording.entered.append(block)
        for ref in tape._around:
            if (around := ref()) is not None:
                around._derived = True
        if not tape._enabled and not tape._followed():
            tape.enable()
        set_scopes(block[-1])

    def _end(self, entry: list[Any]) -> None:
        if entry[1] is not None:
            leave_block(entry[1])
            if self._tape._enabled and not entry[1][1]:
                self._tape.disable()
