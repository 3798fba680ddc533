"""Scopes: the entered tapes and pauses of this context, and the recording of a call.

Scopes are a stack of recordings and pauses in a context variable, innermost first, so each thread
and each async task has its own. An entry is removed by identity, not by position, because a
suspended generator can leave its scopes in its caller's context.

A context can be copied to another thread, as ``asyncio.to_thread`` does. Scopes belong to the
thread that entered them: a stack ends with its number; another thread that finds it drops it.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from odyssey.devices.stateful import TraceConstant
from odyssey.errors import DTypeError, TapeMismatchError
from odyssey.table.protocols import Recording, Tape
from odyssey.table.scoped_exit import ScopedBlock
from odyssey.table.value import CONSTANT, LEAF, Mark, Value

__all__ = [
    "CONTEXT_IS_COPIED",
    "TRANSPARENT",
    "Autocast",
    "AutocastBlock",
    "Boundary",
    "PassedTape",
    "Pause",
    "PauseBlock",
    "allows_tf32",
    "autocast_now",
    "casts_now",
    "enter_scope",
    "find_recording",
    "innermost_scope",
    "is_plainly_paused",
    "leave_scope",
    "may_run_elsewhere",
    "no_grad",
    "passed_tape",
    "pause_of_all_tapes",
    "pop_scope",
    "push_scope",
    "recording_now",
    "recording_of",
    "recordings_of",
    "replace_scope",
    "run_with_tape",
    "run_without_casts",
    "run_without_scopes",
    "scopes",
    "set_scopes",
    "without_autocast",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Flags of functions whose body runs after their call: CO_GENERATOR, CO_COROUTINE,
# CO_ITERABLE_COROUTINE and CO_ASYNC_GENERATOR.
_SUSPENDS = 0x20 | 0x80 | 0x100 | 0x200

# Scopes, None and the number of the thread; (None,) for no scopes.
_NO_SCOPES = (None,)
_SCOPES: ContextVar[tuple[Any, ...]] = ContextVar("odyssey_scopes", default=_NO_SCOPES)
scopes = _SCOPES.get
set_scopes = _SCOPES.set

# Not empty if threads inherit the context of their parent, or one was seen to run in the context of
# another: recordings then give ids only to the thread that opened them.
CONTEXT_IS_COPIED = [True] if getattr(sys.flags, "thread_inherit_context", False) else []


class Pause(Mark):
    """The scope of one ``no_grad`` block.

    Attributes:
        exited: True after the exit of the block.
        refuse: Called with the name of an op and each of its operands in the block, and with each
            leaf of a tape inside of the block; raises if that loses a gradient; None: no check.
        is_local: Whether tapes outside of a call of ``vmap`` go on recording: a rule of a call
            pauses the tapes that it is swept by, and its ops are those of the sweep.
    """

    __slots__ = ("exited", "is_local", "refuse")

    def __init__(
        self, refuse: Callable[[str, Any], None] | None = None, is_local: bool = False
    ) -> None:
        super().__init__("no_grad")
        self.exited = False
        self.refuse = refuse
        self.is_local = is_local


class Boundary(Mark):
    """The scope of a trace, which hides all outer tapes and pauses."""

    __slots__ = ()

    exited = False
    on = paused = 0

    def __init__(self) -> None:
        super().__init__("trace")


class PassedTape(Mark):
    """The scope of a composite's call with ``tape=``, whose ops are called as with that tape.

    It hides no other scope: ``innermost_scope`` skips it, so a pause still wins, and so functions
    that ask for the innermost tape do not see it.
    """

    __slots__ = ("tape",)

    exited = True

    def __init__(self, tape: Tape) -> None:
        super().__init__("tape=")
        self.tape = tape


class Autocast(Mark):
    """The scope of one ``od.autocast`` block.

    If the innermost one casts, it stands before all others in a stack: with it there,
    ``scopes()[0]`` has no ids, which closes the fast paths of calls. One that casts nothing stands
    behind tapes and pauses where none casts, and leaves the fast paths open. They hide no other
    scope.

    Attributes:
        mode: ``"float16"``, ``"bfloat16"`` or ``"tf32"``; None where a block turns casts off.
        cast: ``cast(row, operands, tape)`` returns the operands of a call, cast as the mode says,
            or the same sequence if nothing is cast; None for a mode that casts nothing.
        ended: True if the block ended in another context than it was entered in, as that of a
            generator which another thread closes; its scope could not be removed there.
    """

    __slots__ = ("cast", "ended", "mode")

    exited = True

    def __init__(self, mode: str | None, cast: Callable[..., Sequence[Any]] | None) -> None:
        super().__init__("autocast")
        self.mode = mode
        self.cast = cast
        self.ended = False


TRANSPARENT = frozenset({PassedTape, Autocast})
"""The classes of scopes that hide no other scope."""


def may_run_elsewhere() -> bool:
    """Return whether another thread may run in a copy of this context, so that ops must check.

    True once that was seen, and inside of an event loop, whose ``to_thread`` copies contexts.
    """
    if CONTEXT_IS_COPIED:
        return True
    loops = sys.modules.get(
        "_asyncio"
    )  # not imported here: its import takes as long as that of odyssey
    running = getattr(loops, "_get_running_loop", None)
    return running is not None and running() is not None


def enter_scope(scope: Any) -> None:
    """Make ``scope`` the innermost one of this context."""
    _SCOPES.set(push_scope(scope))


def push_scope(scope: Any) -> tuple[Any, ...]:
    """Return the stack with ``scope`` on top, but for what ``Autocast`` says of its place."""
    stack, thread = scopes(), get_ident()
    if stack[-1] != thread:
        return (scope, None, thread)
    position = 0
    if type(scope) is Autocast:
        if scope.cast is None:
            while stack[position] is not None and type(stack[position]) is not Autocast:
                position += 1
    elif casts_now():
        while type(stack[position]) is Autocast:
            position += 1
    return (*stack[:position], scope, *stack[position:]) if position else (scope, *stack)


def leave_scope(scope: Any) -> None:
    """Remove the innermost occurrence of ``scope`` from the stack, if any."""
    _SCOPES.set(pop_scope(scope))


def pop_scope(scope: Any) -> tuple[Any, ...]:
    """Return the stack without the innermost occurrence of ``scope``."""
    stack = scopes()
    rest = stack[1:] if stack[0] is scope else replace_scope(scope) if scope in stack else stack
    return rest if rest[0] is not None else _NO_SCOPES


def replace_scope(scope: Any, *others: Any) -> tuple[Any, ...]:
    """Return the stack with the innermost occurrence of ``scope`` replaced by ``others``."""
    stack = scopes()
    if scope not in stack:
        return stack
    position = stack.index(scope)
    return (*stack[:position], *others, *stack[position + 1 :])


def pause_of_all_tapes() -> Pause | None:
    """Return the innermost scope if it is a ``no_grad`` block for the tapes outside of ``vmap``."""
    top = innermost_scope()
    if isinstance(top, Pause) and top.is_local:
        around = (scope for scope in scopes()[:-2] if not scope.exited)
        top = next((s for s in around if not (isinstance(s, Pause) and s.is_local)), None)
    return top if isinstance(top, Pause) else None


def innermost_scope() -> Any:
    """Return the innermost scope that has not ended, or None."""
    stack = scopes()
    top = stack[0]
    if top is None:
        return None
    if stack[-1] != get_ident():  # entered by another thread, whose context was copied
        CONTEXT_IS_COPIED[:] = [True]
        _SCOPES.set(_NO_SCOPES)
        return None
    if not top.exited:
        return top
    if type(top) in TRANSPARENT:
        below = stack[1]  # None at the end of the scopes
        if below is None or not below.exited:
            return below
    kept = [scope for scope in stack[:-2] if not scope.exited or type(scope) in TRANSPARENT]
    _SCOPES.set((*kept, *stack[-2:]) if kept else _NO_SCOPES)
    return next((scope for scope in kept if not scope.exited), None)


def run_with_tape(
    tape: Tape, function: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]
) -> Any:
    """Call the function of a composite; its ops are called as with ``tape=``.

    It runs in a copy of this context, which Python leaves however the call ends, an interrupt
    included. So nothing has to be undone. A tape that is entered here becomes the innermost one,
    since ops find the recording of that in half the time.
    """
    context, innermost = copy_context(), _can_be_innermost(tape)
    context.run(set_scopes, push_scope(tape._recording if innermost else PassedTape(tape)))
    return context.run(function, *args, **named)


def _can_be_innermost(tape: Tape) -> bool:
    """Return whether all ops record on a tape alike if it is passed and if it is innermost."""
    recording = tape._recording
    if isinstance(innermost_scope(), Pause) or recording.outer_values is not None:
        return False
    for scope in scopes():
        if scope is recording:
            return bool(tape.enabled and recording.on)
        if type(scope) is Boundary:  # a trace refuses tapes from outside of it
            return False
    return False


def is_plainly_paused() -> bool:
    """Return whether the innermost scope is a ``no_grad`` block that checks no operands."""
    top = innermost_scope()
    return isinstance(top, Pause) and top.refuse is None


def run_without_scopes(
    function: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]
) -> Any:
    """Call a function as where no tape and no pause is entered."""
    stack = scopes()
    try:
        _SCOPES.set(_NO_SCOPES)
        return function(*args, **named)
    finally:
        _SCOPES.set(stack)


def autocast_now() -> Autocast | None:
    """Return the innermost ``od.autocast`` block of this thread, or None."""
    stack = scopes()
    for scope in stack:
        if type(scope) is Autocast:
            break
    else:
        return None
    if stack[-1] != get_ident():
        return None
    if not scope.ended:
        return scope
    _leave_autocast(scope)
    return autocast_now()


def _leave_autocast(scope: Autocast) -> None:
    """Remove an ``od.autocast`` block; that around it is first again, if it casts."""
    leave_scope(scope)
    around = autocast_now()
    if around is not None and around.cast is not None and not casts_now():
        leave_scope(around)
        enter_scope(around)


def casts_now() -> bool:
    """Return whether the innermost scope is an ``od.autocast`` block that casts operands."""
    top = scopes()[0]
    return type(top) is Autocast and top.cast is not None


def allows_tf32() -> bool:
    """Return whether the innermost ``od.autocast`` block here is one of ``"tf32"``."""
    scope = autocast_now()
    return scope is not None and scope.mode == "tf32"


def without_autocast() -> tuple[Any, ...]:
    """Return the stack without the scopes of ``od.autocast``."""
    stack = scopes()
    kept = tuple([scope for scope in stack if type(scope) is not Autocast])
    return kept if kept[0] is not None else _NO_SCOPES


def run_without_casts(function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    """Call a function as where no ``od.autocast`` block is entered, unless it casts nothing."""
    if not casts_now():
        return function(*args, **named)
    stack = scopes()
    try:
        _SCOPES.set(without_autocast())
        return function(*args, **named)
    finally:
        _SCOPES.set(stack)


def passed_tape() -> Tape | None:
    """Return the tape that was passed to the composite that calls this op, or None."""
    stack = scopes()
    top = next(scope for scope in stack if type(scope) is not Autocast)
    return top.tape if type(top) is PassedTape and stack[-1] == get_ident() else None


def recording_now() -> Recording | None:
    """Return the recording of the innermost tape that is entered, if it records now, else None."""
    top = innermost_scope()
    return top if top is not None and not isinstance(top, Pause) and top.on else None


def recordings_of(operands: Sequence[Any]) -> list[Recording]:
    """Return the distinct recordings of operands."""
    homes: list[Recording] = []
    for operand in operands:
        if isinstance(operand, Value):
            home = operand._recording
            if not isinstance(home, Mark) and home not in homes:
                homes.append(home)
    return homes


def find_recording(
    who: str, operands: Sequence[Any], homes: list[Recording], tape: Tape | None = None
) -> Recording | Mark | None:
    """Return the recording of a call. Nothing else decides this.

    The first of: a ``no_grad`` block, the tape passed as ``tape=``, the innermost entered tape, the
    recording of an operand, the tape that made a leaf by ``tape.variable``.

    Args:
        who: The op, for messages.
        operands: The operands of the call.
        homes: Their recordings, see ``recordings_of``.
        tape: The tape that was passed, to the op or to a composite that calls it, or None.

    Returns:
        A recording that records now; a Mark if a pause makes results constants; None if nothing
        records.

    Raises:
        TapeMismatchError: if operands are on another recording.
    """
    top = innermost_scope()
    if isinstance(top, Pause):
        if top.refuse is not None:
            for operand in operands:
                top.refuse(who, operand)
        return top
    if tape is not None:
        chosen = tape._recording
        on, paused = tape.enabled, tape.paused
    else:
        if top is not None and not (top.on or top.paused):
            top = None
        found = top or (homes[0] if homes else _recording_of_leaf(operands))
        if found is None:
            return None
        chosen = found
        on, paused = bool(chosen.on), chosen.paused
    strangers = [home for home in homes if home is not chosen]
    if chosen.outer_values is None and strangers and (on or not all(home.dead for home in homes)):
        raise TapeMismatchError(
            f"{who}: operands of two recordings, {strangers[0]!r} and {chosen!r}; "
            "carry a value over with detach() or detach_into(tape)"
        )
    if on:
        return chosen
    return chosen.pause if paused else None


def recording_of(who: str, value: Value) -> Recording | None:
    """Return the recording that would record an op on a value now, or None.

    A plain copy of such a value would lose its gradient.
    """
    where = value._recording
    if where is CONSTANT:
        return None
    if isinstance(where, Mark):
        home = find_recording(who, (value,), [])
        return None if isinstance(home, Mark) else home
    top = innermost_scope()
    if isinstance(top, Pause):
        if top.refuse is not None:
            top.refuse(who, value)
        return None
    return where if where.on else None


def _recording_of_leaf(operands: Sequence[Any]) -> Recording | None:
    """Return the recording of the tape that made a leaf by ``tape.variable``, if it is alive."""
    for operand in operands:
        if isinstance(operand, Value) and operand._recording is LEAF:
            tape = operand._info.home and operand._info.home()
            if tape is not None:
                return tape._recording
    return None


class _ContextBlock(ScopedBlock, TraceConstant):
    """A block with a scope of this context.

    Several threads and async tasks may be in one block at the same time. Each has its own stack of
    scopes; the list of open blocks is shared.
    """

    _name = ""

    def __call__(self, function: _Function) -> _Function:
        """Return a function that runs in a block of its own.

        Raises:
            DTypeError: a generator or coroutine function, whose body runs after the block.
        """
        code = getattr(function, "__code__", None)
        if code is not None and code.co_flags & _SUSPENDS:
            raise DTypeError(
                f"{self._name}: {function.__name__} is a generator or coroutine function, which "
                "returns before its body runs; write the with statement inside of it"
            )
        return super().__call__(function)

    def _leave(self, kind: Any, error: Any, trace: Any) -> None:
        if self._blocks:
            entry = self._blocks[0] if len(self._blocks) == 1 else self._entry_to_leave()
            self._end(entry)
            self._blocks.remove(entry)

    def _entry_to_leave(self) -> list[Any]:
        """Return the innermost of the open blocks that was entered in this context."""
        stack, thread = scopes(), get_ident()
        for entry in reversed(self._blocks):
            if entry[2:] == [thread]:  # its exit was interrupted
                return entry
        # A scope is None if nothing was entered, and stacks hold None.
        here = [entry for entry in reversed(self._blocks) if entry[1] in stack]
        entered = [entry for entry in here if entry[1] is not None]
        entry = (entered or here or self._blocks[-1:])[0]
        entry.append(thread)
        return entry


class PauseBlock(_ContextBlock):
    """A block in which nothing is recorded; see ``no_grad`` and ``Pause``."""

    _name = "no_grad"

    def __init__(
        self, refuse: Callable[[str, Any], None] | None = None, is_local: bool = False
    ) -> None:
        super().__init__()
        self._refuse = refuse
        self._is_local = is_local

    def _recreate_cm(self) -> PauseBlock:
        return PauseBlock(self._refuse, self._is_local)  # as a decorator: a block for each call

    def _begin(self, entry: list[Any]) -> None:
        pause = entry[1] = Pause(self._refuse, self._is_local)
        enter_scope(pause)

    def _end(self, entry: list[Any]) -> None:
        pause = entry[1]
        if pause is not None:
            pause.exited = True
            leave_scope(pause)


class AutocastBlock(_ContextBlock):
    """A block of ``od.autocast``; see ``Autocast`` for the arguments."""

    _name = "autocast"

    def __init__(self, mode: str | None, cast: Callable[..., Sequence[Any]] | None) -> None:
        super().__init__()
        self._handle = None  # here, so that entering the block adds no attribute
        self._mode = mode
        self._cast = cast

    def _recreate_cm(self) -> AutocastBlock:
        return AutocastBlock(self._mode, self._cast)  # as a decorator: a block for each call

    def _begin(self, entry: list[Any]) -> None:
        if self._mode is None and autocast_now() is None:
            return  # nothing to turn off
        scope = entry[1] = Autocast(self._mode, self._cast)
        enter_scope(scope)

    def _end(self, entry: list[Any]) -> None:
        scope = entry[1]
        if scope is not None:
            scope.ended = scope not in scopes()
            _leave_autocast(scope)


def no_grad() -> PauseBlock:
    """Record nothing in this block: results are constants, whatever tape is entered or passed.

    >>> import odyssey as od
    >>> w = od.Variable(2.0, requires_grad=True)
    >>> with od.no_grad():
    ...     (w * w).requires_grad
    False
    """
    return PauseBlock()
