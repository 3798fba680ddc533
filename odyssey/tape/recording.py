"""A recording: the nodes of one nest of tapes, and everything that is kept for their sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from odyssey.errors import MutationError, TapeError, TapeMismatchError, UntrackedError
from odyssey.table import protocols
from odyssey.table.scope import Pause, scopes
from odyssey.table.value import (
    CONSTANT,
    LEAF,
    UNTRACKED,
    Mark,
    Value,
    is_trainable,
    make_value,
    ticket,
)
from odyssey.tape.nodes import BLOCK, Nodes, RawNode, block_of_ids
from odyssey.tape.threads import NO_IDS

__all__ = ["SEVERAL", "Recording"]

# The mark of a constant that more than one recording met.
SEVERAL = object()

_PAUSED = Mark("no_recording")


class Recording(Nodes):
    """The nodes of one nest of tapes, in topological order, and what keeps them sound.

    Variables point here, never the other way, except to leaves: a recording that was spent is
    an empty shell, however many Variables still point at it.
    """

    __slots__ = ("append", "barrier", "entered", "fixed", "guarded", "guests", "maker")

    pause = _PAUSED

    def __init__(self, maker: Callable[[], Any], traced: bool) -> None:
        self.nodes = []
        self.append = self.nodes.append
        self.leaves = {}
        self.versions = {}
        # Drawn before the first version is noted: until the next number, no leaf was written to,
        # nor frozen. -1 where that must not be concluded.
        self.since = ticket()
        self.watched = {}
        self.constants = {}
        self.held = {}
        self.borrowed = {}
        self.copies = {}
        self.cuts = {}
        self.careful = None
        self.maker = maker
        self.traced = traced
        self.on = 0
        self.entered: list[Any] = []  # blocks of its tapes that are open
        self.open = {}
        self.dead = ""
        self.barrier = False
        # Whether a block around it may refuse leaves, see Pause.
        self.guarded = False
        # Values of other recordings that were used here, by id; None where they are refused.
        self.guests: dict[int, Value] | None = None
        self.manual = {}
        # Constants that manual records took as inputs, and that must therefore stay constants.
        self.fixed: set[int] = set()
        self.thread = 0
        self._limit = BLOCK
        self._ids, self.mark = block_of_ids()
        self.block = NO_IDS

    @property
    def over(self) -> bool:
        """Whether every block that entered it was left."""
        return not self.entered

    @property
    def paused(self) -> bool:
        """Whether a block pauses one of its tapes."""
        return any(tape.paused for tape in self.tapes())

    def tape_of(self, id: int) -> Any:
        """The innermost tape that recorded ``id``; a spent recording names its first tape."""
        covering = (tape for tape in reversed(self.tapes()) if tape._covers(id))
        return next(covering, self.maker())

    def tapes(self) -> list[Any]:
        """The living tapes that share this recording."""
        # A copy, since the collector may drop one of them meanwhile.
        return [tape for ref in tuple(self.open.values()) if (tape := ref()) is not None]

    def __repr__(self) -> str:
        state = self.dead or ("recording" if self.on else "not recording")
        return f"<tape {id(self):x}, {state}, {len(self.nodes)} nodes>"

    def __reduce__(self) -> NoReturn:
        raise TapeError(f"{self!r} is neither copied nor pickled; record again")

    def refresh(self) -> None:
        """Record as long as one of the tapes does."""
        self.turn(sum(tape.enabled for tape in self.tapes()))

    # -------------------------------------------------------------- operands

    def place(self, value: Value, who: str = "record") -> int | None:
        """Return an operand's id, or None for a constant; raise where a gradient would be lost."""
        where = value._recording
        if where is self:
            return value._id
        if where is LEAF:
            id = value._id
            if id not in self.leaves:
                if self.manual and id in self.manual:
                    raise TapeError(
                        f"{who}: a manual record on this tape has the id of {value!r} as its "
                        "output; take ids for outputs from tape.constant, or far from those in use"
                    )
                if self.guarded:
                    for scope in scopes():
                        if isinstance(scope, Pause) and scope.refuse is not None:
                            scope.refuse(who, value)
                version = value._info.version
                if version != version:  # it is being written to
                    self.since = -1
                self.versions[id] = version  # before a sweep elsewhere sees the leaf
                self.leaves[id] = value
            elif self.versions[id] != value._info.version and not self.uses(id):
                self.versions[id] = value._info.version
            value._placed = self.mark
            return id
        if where is CONSTANT:
            # So that no manual record makes a result of it afterwards.
            if value._placed is not self.mark:
                value._placed = self.mark if value._placed is None else SEVERAL
            if value._info is not None:
                self.note(value)
            return None
        if where is UNTRACKED:
            raise UntrackedError(
                f"{who}: {value!r} was computed from a trainable leaf while nothing recorded, so "
                "its gradient is lost; compute it under the tape, or detach() it to use it as a "
                "constant"
            )
        if self.guests is not None:
            if value._id not in self.guests:
                # A Variable of its own: an item assignment to the other gives that another id.
                self.guests[value._id] = make_value(type(value), value._array, where, value._id)
            return value._id
        raise TapeMismatchError(
            f"{who}: an operand lives on {where!r}, while {self!r} records; "
            "carry its value over with detach() or detach_into(tape)"
        )

    def note(self, constant: Value) -> None:
        """Remember why an operand is a constant, for ``explain``."""
        info = constant._info
        if info is not None and info.note is not None:
            self.cuts[constant._id] = info.note

    def add(self, node: RawNode, data: Any, operands: Sequence[Any] | None = None) -> None:
        """Append a node, on the general path.

        Args:
            node: What to append.
            data: Its value, where that is to be looked at.
            operands: What it was computed from, where that is known.
        """
        row, _, inputs, _, _ = node
        # Rules of other people may fail in the middle of a sweep, which must then lose nothing.
        if row.foreign:
            self.barrier = True
        for k in row.unruled:
            if inputs[k] is not None:
                self.barrier = True
        self.append(node)
        if self.careful is not None:
            self.careful.check(node, data, operands)

    # -------------------------------------------------------------- before and after a sweep

    def verify(self, now: int) -> bool:
        """Raise if anything that a node needs changed since; return whether a leaf was frozen.

        Args:
            now: A ticket, drawn for this.
        """
        frozen = now != self.since + 1 and self._verify_leaves()
        if self.careful is not None:  # which knows the line
            self.careful.verify(self.nodes)
        if self.borrowed:
            self.verify_borrowed()
        return frozen

    def _verify_leaves(self) -> bool:
        frozen = False
        versions = self.versions
        for id, leaf in tuple(self.leaves.items()):
            if not is_trainable(leaf):
                frozen = True
            version = leaf._info.version
            if version == versions[id]:
                continue
            if self.uses(id):
                raise MutationError(
                    f"{leaf!r} was assigned after this tape recorded its use; "
                    "sweep before assigning, or record again"
                )
            versions[id] = version  # no node uses it: it came with a call that failed
        return frozen

    def verify_after(self, strange: bool = False) -> None:
        """Raise if a leaf was written to since ``verify``.

        Args:
            strange: Whether functions of others ran in between, which may write to their arrays.
        """
        if strange and self.borrowed:
            self.verify_borrowed()
        for id, leaf in tuple(self.leaves.items()):
            if leaf._info.version != self.versions[id]:
                raise MutationError(
                    f"{leaf!r} was assigned while this tape was swept, which has used values of "
                    "before and after; assign between sweeps, and record again"
                )

    def asked(self, value: Value) -> int:
        """The id of what a question about ``value`` means: what was watched, else its value now."""
        info = value._info
        if info is not None and info.watched in self.watched:
            watched: int = info.watched
            return watched
        return value._id

    def spend(self, why: str) -> None:
        """Drop everything: what is left is a shell that says why it is empty.

        May be called again where it was interrupted. Callers see to it that nothing is on.
        """
        self.dead = self.dead or why
        self.on = 0
        self.block = NO_IDS
        self.held.clear()
        self.nodes.clear()
        self.leaves.clear()
        self.versions.clear()
        self.watched.clear()
        self.constants.clear()
        self.guests = None
        self.manual.clear()
        self.fixed.clear()
        self.cuts.clear()
        self.borrowed.clear()
        self.copies.clear()
        self.careful = None


if TYPE_CHECKING:

    def _is_one(recording: Recording) -> protocols.Recording:
        """What the rooms below ask of a recording is there; type checkers read this line."""
        return recording
