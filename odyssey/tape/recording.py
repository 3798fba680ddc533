"""Recordings: the nodes of one nest of tapes, and the state that keeps them valid for sweeps."""

from __future__ import annotations

import itertools
import weakref
from _thread import allocate_lock
from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from odyssey.devices.array_locks import lock_array
from odyssey.devices.ownership import (
    LARGE,
    SMALL,
    copy_with_layout,
    digest,
    read_only_view,
    same_bits,
    sample_bytes,
    view_key,
)
from odyssey.errors import MutationError, TapeError, TapeMismatchError, UntrackedError
from odyssey.spec import Spec
from odyssey.table import protocols
from odyssey.table.scope import Pause, may_run_elsewhere, scopes
from odyssey.table.value import (
    CONSTANT,
    LEAF,
    UNTRACKED,
    Mark,
    Value,
    is_trainable,
    make_value,
    next_ticket,
)
from odyssey.tape.liveness import measured, reference_count, unheld_in_a_list
from odyssey.tape.threads import NO_IDS, holds_arrays, ids_of_thread

if TYPE_CHECKING:
    from odyssey.tape.checks import NodeChecks


__all__ = ["BLOCK", "FIRST", "SEVERAL", "RawNode", "Recording", "block_of_ids"]


RawNode = tuple[Any, int, tuple[int | None, ...], tuple[Any, ...] | None, tuple[Any, ...] | None]
"""row, output id, input ids, what the rules asked for, specs of inputs and output.

A bare tuple: it is built once an op, and a class would double the cost of recording. The last
two are None where they would say nothing.
"""

# Each recording draws its ids from the process's counter in blocks; when one is used up it
# looks for dead branches. Far above the ids of leaves, and above CPython's shared small ints.
BLOCK = 1024
FIRST = 1 << 40
_BLOCKS = itertools.count()

# How many of the latest cuts ``explain`` can name in a recording so long that it was pruned.
_CUTS = 64

# Two threads that record on one tape must not both take its nodes apart.
_PRUNING = allocate_lock()

# Up to so many references to the id of a result, nobody holds it but its node.
_ALONE = measured(unheld_in_a_list, places=2)


def block_of_ids() -> tuple[Iterator[int], int]:
    """Fresh ids, and the first of them, which is not given out."""
    first = FIRST + BLOCK * next(_BLOCKS)
    return iter(range(first + 1, first + BLOCK)), first


# The mark of a constant that more than one recording met.
SEVERAL = object()

_PAUSED = Mark("no_recording")


class Recording:
    """The nodes of one nest of tapes, in topological order, and the state that keeps them valid.

    Variables point to their recording. A recording points to its leaves only, so a spent recording
    is an empty shell, however many Variables still point to it.

    Attributes:
        nodes: In order of recording.
        leaves: The trainable leaves that were used, by id.
        versions: The version of each leaf when it was first used, by id.
        watched: Watched Variables, by id.
        constants: Constants that a tape made, by id.
        cuts: Reasons why operands were constants, for ``explain``.
        manual: For the output id of each manual record, an id that tells when it was recorded.
        block: The ids that the fast paths of calls draw from; empty when they may not record here.
        mark: The mark of leaves that were used here; no other recording has this number.
        on: The number of its tapes that record now.
        held: Arrays owned by others that are locked, by their ids.
        borrowed: Arrays owned by others that nodes keep without a copy: a view of each, the
            function that fingerprints it before a sweep, and its fingerprint when it was recorded.
            Keyed by id for locked arrays, by address for views.
        copies: Copies of views owned by others, by address; reused when the same view comes again.
        open: The tapes that share the recording.
        dead: The reason why it is empty, or an empty string.
        thread: The thread that last let it record.
    """

    __slots__ = (
        "__weakref__",
        "_ids",
        "_limit",
        "append",
        "barrier",
        "block",
        "borrowed",
        "careful",
        "constants",
        "copies",
        "cuts",
        "dead",
        "entered",
        "fixed",
        "guarded",
        "guests",
        "held",
        "leaves",
        "maker",
        "manual",
        "mark",
        "nodes",
        "on",
        "open",
        "since",
        "thread",
        "traced",
        "versions",
        "watched",
    )

    held: dict[int, Any]
    borrowed: dict[Any, tuple[Any, Callable[[Any], bytes], bytes]]
    copies: dict[Any, weakref.ref[Any]]
    open: dict[int, weakref.ref[Any]]
    dead: str
    thread: int
    nodes: list[RawNode]
    leaves: dict[int, Value]
    versions: dict[int, float]
    watched: dict[int, weakref.ref[Value]]
    constants: dict[int, weakref.ref[Value]]
    cuts: dict[int, tuple[str, tuple[int, ...]]]
    manual: dict[int, int]
    careful: NodeChecks | None
    traced: bool
    since: int
    on: int
    block: Iterator[int]
    mark: int
    _ids: Iterator[int]
    _limit: int

    pause = _PAUSED

    def __init__(self, maker: Callable[[], Any], traced: bool) -> None:
        self.nodes = []
        self.append = self.nodes.append
        self.leaves = {}
        self.versions = {}
        # Drawn before the first version is noted: until the next number, no leaf was written to,
        # nor frozen. -1 where that must not be concluded.
        self.since = next_ticket()
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

    # -------------------------------------------------------------- ids, pruning and lookup

    def turn(self, on: int) -> None:
        """Note how many tapes want this recording on, and let it give ids, or not.

        Set, and not counted up or down, so that who was interrupted may do it again.
        """
        begins = on > self.on
        self.on = on
        if begins and self.leaves and not self.nodes:
            # Leaves that were made on this tape may have been assigned before their first use.
            self.versions = {id: leaf._info.version for id, leaf in self.leaves.items()}
            self.since = -1
        # The shortcuts of dispatch are let in while recording needs nothing but speed.
        fast = on and self.careful is None and not self.traced
        self.block = self._ids if fast else NO_IDS
        if fast and may_run_elsewhere():
            self.block = ids_of_thread(self._ids, self.thread)

    def new_id(self) -> int:
        """Return an id that no value of this process has."""
        id = next(self._ids, None)
        if id is None:
            if len(self.nodes) >= self._limit:
                self._limit = max(BLOCK, 2 * self.prune())
            self._ids, _ = block_of_ids()
            self.turn(self.on)
            id = next(self._ids)
        return id

    def prune(self) -> int:
        """Drop nodes whose result nobody can ask about any more; return how many are left.

        A result is known by its id, one int object that its Variable, the nodes that use it and
        the sweep's tables share. When only the node itself holds it, the branch is dead.
        """
        for id in list(self.cuts)[:-_CUTS]:  # each names a result, which that keeps alive
            del self.cuts[id]
        for named in (self.watched, self.constants):
            for id in [id for id, ref in named.items() if ref() is None]:
                del named[id]
        nodes = self.nodes
        alone: list[bool] = []
        try:
            # One call of C, so that an interrupt finds the lock noted as soon as it is taken.
            alone.extend(starmap(_PRUNING.acquire, [(False,)]))
            if True not in alone:
                return len(nodes)
            self._prune_nodes()
        finally:
            if True in alone:
                _PRUNING.release()
        if self.careful is not None:
            self.careful.forget_all_but(nodes)
        self.let_go()
        return len(nodes)

    def _prune_nodes(self) -> None:
        nodes = self.nodes
        count = len(nodes)
        for k in range(count - 1, -1, -1):
            node = nodes[k]
            if reference_count(node) <= _ALONE:
                # One without operands in its place, which a sweep passes over: the list is a sound
                # one wherever an interrupt may come.
                nodes[k] = (*node[:2], (), None, None)
        # What another thread appended meanwhile stays.
        nodes[:count] = [node for node in nodes[:count] if node[2]]

    # -------------------------------------------------------------- lookup

    def spec_of_id(self, id: int) -> Spec | None:
        """The spec of a value on this recording, found from the nodes; None where it is unknown."""
        made = {node[1]: node for node in self.nodes}
        while id in made:
            _, _, inputs, _, specs = made[id]
            if specs is not None:
                spec: Spec = specs[-1]
                return spec
            id = next(i for i in inputs if i is not None)
        known = self.known(id)
        return known._spec if known is not None else None

    def produced(self, id: int) -> bool:
        """Whether ``id`` is the result of a node."""
        if id in self.manual:
            return True
        # Ids that the recording gave out itself start far above those of leaves and constants.
        return id >= FIRST and any(node[1] == id for node in self.nodes)

    def uses(self, id: int) -> bool:
        """Whether ``id`` is an operand of a node."""
        return any(id in node[2] for node in self.nodes)

    def known(self, id: int) -> Value | None:
        """The leaf or the living constant of this id, or None."""
        if id in self.leaves:
            return self.leaves[id]
        return self.constants[id]() if id in self.constants else None

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
        for k in row.nondifferentiable:
            if inputs[k] is not None:
                self.barrier = True
        self.append(node)
        if self.careful is not None:
            self.careful.check(node, data, operands)

    # -------------------------------------------------------------- arrays owned by others

    def hold(self, array: Any) -> Any:
        """Return what the tape may keep of somebody else's array: itself or a copy.

        Itself it is locked, or, where that would not help, compared before a sweep.
        """
        if type(array) is not np.ndarray:
            return array
        if array.nbytes <= SMALL:
            return array.copy() if array.flags.c_contiguous else copy_with_layout(array)
        if array.base is not None:
            return self._hold_view(array)
        key = id(array)
        entry = self.borrowed.get(key)
        # (It may be held and open, where an interrupt came in between.)
        if entry is None or array.flags.writeable:
            if not self.held:
                holds_arrays(self)  # type: ignore[arg-type]  # which is a Recording
            lock_array(array, self.held, self)
        if entry is None:
            # A view of it, as locked as it is, since its owner may give the array itself another
            # shape or dtype.
            entry = self.borrowed[key] = (array.view(), sample_bytes, sample_bytes(array))
        return entry[0]

    def _hold_view(self, view: Any) -> Any:
        """What the tape may keep of a view, which stays writable through its base.

        A copy, or a large one as it is, with a digest; the same again where it came before.
        """
        place = view_key(view)
        if view.nbytes >= LARGE:
            entry = self.borrowed.get(place)
            if entry is None:
                entry = self.borrowed[place] = (read_only_view(view), digest, digest(view))
            return entry[0]
        known = self.copies.get(place)
        copy = known() if known is not None else None
        if copy is None or not same_bits(copy, view):
            copy = copy_with_layout(view)
            self.copies[place] = weakref.ref(copy)
        return copy

    def let_go(self) -> None:
        """Unlock the arrays of others that no node keeps any more."""
        if self.borrowed:
            needed = {id(value) for node in self.nodes for value in node[3] or ()}
            for key in [key for key, entry in self.borrowed.items() if id(entry[0]) not in needed]:
                del self.borrowed[key]
                self.held.pop(key, None)
        if self.copies:
            self.copies = {place: ref for place, ref in self.copies.items() if ref() is not None}

    def verify_borrowed(self) -> None:
        """Raise if an array that a node needs was written to since."""
        for array, look, before in tuple(self.borrowed.values()):
            if look(array) != before:
                self._refuse_overwritten(array)

    def _refuse_overwritten(self, array: Any) -> None:
        """Raise where a node needs an array that its owner wrote to, past a lock or by its base."""
        for row, _, _, kept, _ in self.nodes:
            if any(value is array for value in kept or ()):
                raise MutationError(
                    f"{row.name} saved an array of shape {array.shape} and {array.dtype}, which "
                    "was written to since, through a view or by a library that overwrites its "
                    "arguments; pass a copy, or sweep before writing"
                )

    # -------------------------------------------------------------- verification

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
