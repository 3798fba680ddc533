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
from odyssey.devices.arrays import ARRAYS
from odyssey.devices.ownership import (
    LARGE,
    SMALL,
    copy_with_layout,
    digest,
    is_foreign,
    read_only_view,
    same_bits,
    sample_bytes,
    view_key,
)
from odyssey.devices.write_guard import FORK_WAITS, hold_during_forks
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
from odyssey.tape.liveness import measured_refcount, result_refcount, unheld_refcount_in_list
from odyssey.tape.threads import NO_IDS, ids_of_thread, register_lock_holder

if TYPE_CHECKING:
    from odyssey.tape.checks import NodeChecks
    from odyssey.tape.rounding import Rounding


__all__ = [
    "FIRST_RECORDED_ID",
    "IDS_PER_BLOCK",
    "MANY_RECORDINGS",
    "RawNode",
    "Recording",
    "new_id_block",
]


RawNode = tuple[Any, int, tuple[int | None, ...], tuple[Any, ...] | None, tuple[Any, ...] | None]
"""A node: row, output id, input ids, values that the rules need, specs of inputs and output.

Nodes are plain tuples, because one is built for each op and a class would double the cost of
recording. The last two are None where no rule needs them.
"""

# Each recording draws its ids in blocks from a counter of the process. When a block is used up,
# dead branches are pruned. The ids lie far above those of leaves and CPython's shared small ints.
IDS_PER_BLOCK = 1024
FIRST_RECORDED_ID = 1 << 40
_BLOCK_COUNTER = itertools.count()

# The number of latest cuts that ``explain`` can name in a recording that was pruned.
_KEPT_CUTS = 64

# Two threads that record on one tape must not prune its nodes at the same time.
_PRUNING = allocate_lock()
hold_during_forks(lambda: (_PRUNING,), FORK_WAITS)

# With at most this many references to the id of a result, only its node holds it.
_UNHELD_REFERENCES = measured_refcount(unheld_refcount_in_list, places=2)


def new_id_block() -> tuple[Iterator[int], int]:
    """Return fresh ids, and the number before them, which serves as the mark of a recording."""
    first = FIRST_RECORDED_ID + IDS_PER_BLOCK * next(_BLOCK_COUNTER)
    return iter(range(first + 1, first + IDS_PER_BLOCK)), first


# The mark of a constant that more than one recording used.
MANY_RECORDINGS = object()

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
        cut_reasons: Reasons why operands were constants, for ``explain``.
        manual: For the output id of each manual record, an id that tells when it was recorded.
        block: The ids that the fast paths of calls draw from; empty when they may not record here.
        mark: The mark of leaves that were used here; no other recording has this number.
        on: The number of its tapes that record now.
        locked: Arrays owned by others that are locked, by their ids.
        borrowed: Arrays owned by others that nodes keep without a copy: a view of each, the
            function that fingerprints it before a sweep, and its fingerprint when it was recorded.
            Keyed by id for locked arrays, by address for views.
        copies: Copies of views owned by others, by address; reused when the same view comes again.
        open: The tapes that share the recording.
        dead: The reason why it is empty, or an empty string.
        thread: The thread that last let it record.
        rounding: Rounds what nodes save, while a tape with ``saved=`` records; None if none did.
    """

    __slots__ = (
        "__weakref__",
        "_ids",
        "_limit",
        "append",
        "block",
        "borrowed",
        "checks",
        "constants",
        "copies",
        "cut_reasons",
        "dead",
        "entered",
        "first_tape",
        "leaves",
        "locked",
        "manual",
        "mark",
        "may_fail",
        "may_refuse_leaves",
        "nodes",
        "on",
        "open",
        "outer_values",
        "pinned_constants",
        "rounding",
        "since",
        "thread",
        "traced",
        "versions",
        "watched",
    )

    locked: dict[int, Any]
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
    cut_reasons: dict[int, tuple[str, tuple[int, ...]]]
    manual: dict[int, int]
    checks: NodeChecks | None
    rounding: Rounding | None
    traced: Any
    since: int
    on: int
    block: Iterator[int]
    mark: int
    _ids: Iterator[int]
    _limit: int

    pause = _PAUSED

    def __init__(self, first_tape: Callable[[], Any], traced: Any = None) -> None:
        self.nodes = []
        self.append = self.nodes.append
        self.leaves = {}
        self.versions = {}
        # Drawn before the first version is noted. If the next ticket follows directly, no leaf was
        # written to or frozen since. -1 if that conclusion is not valid.
        self.since = next_ticket()
        self.watched = {}
        self.constants = {}
        self.locked = {}
        self.borrowed = {}
        self.copies = {}
        self.cut_reasons = {}
        self.checks = None
        self.rounding = None
        self.first_tape = first_tape
        self.traced = traced
        self.on = 0
        self.entered: list[Any] = []  # open blocks of its tapes
        self.open = {}
        self.dead = ""
        self.may_fail = False
        # True if an enclosing block may refuse leaves, see Pause.
        self.may_refuse_leaves = False
        # Values of other recordings that were used here, by id; None if they are refused.
        self.outer_values: dict[int, Value] | None = None
        self.manual = {}
        # Constants that were inputs of manual records, and therefore must stay constants.
        self.pinned_constants: set[int] = set()
        self.thread = 0
        self._limit = IDS_PER_BLOCK
        self._ids, self.mark = new_id_block()
        self.block = NO_IDS

    @property
    def exited(self) -> bool:
        """True if every block that entered it was left."""
        return not self.entered

    @property
    def paused(self) -> bool:
        """True if a block pauses one of its tapes."""
        return any(tape.paused for tape in self.tapes())

    def tape_of(self, id: int) -> Any:
        """Return the innermost tape that recorded ``id``; the first tape of a spent recording."""
        covering = (tape for tape in reversed(self.tapes()) if tape._covers(id))
        return next(covering, self.first_tape())

    def tapes(self) -> list[Any]:
        """Return the living tapes that share this recording."""
        # A copy, because the garbage collector may drop a tape meanwhile.
        return [tape for ref in tuple(self.open.values()) if (tape := ref()) is not None]

    def __repr__(self) -> str:
        state = self.dead or ("recording" if self.on else "not recording")
        return f"<tape {id(self):x}, {state}, {len(self.nodes)} nodes>"

    def __reduce__(self) -> NoReturn:
        raise TapeError(f"{self!r} is neither copied nor pickled; record again")

    def refresh(self) -> None:
        """Record while at least one of the tapes records; round while one with ``saved=`` does."""
        tapes = [tape for tape in self.tapes() if tape.enabled]
        rounding = self.rounding
        if rounding is not None:
            rounds = not rounding.pauses and any(tape._saved is not None for tape in tapes)
            rounding.active = rounds
            self.append = rounding.append if rounds else self.nodes.append
        self.set_active(len(tapes))

    def start_rounding(self, name: str, now: bool) -> None:
        """Round what nodes save in the dtype of this name, ``now`` or from ``refresh`` on."""
        from odyssey.tape.rounding import Rounding  # most programs do not need it

        if self.rounding is None:
            self.rounding = Rounding(self, name)
            if now:
                self.rounding.active = True
                self.append = self.rounding.append
        elif self.rounding.name != name:
            raise TapeError(
                f"GradientTape(saved={name!r}) inside of GradientTape(saved="
                f"{self.rounding.name!r}): nested tapes share what they save; pass one dtype"
            )

    # -------------------------------------------------------------- ids, pruning and lookup

    def set_active(self, on: int) -> None:
        """Set the number of tapes that record, and provide ids to the fast paths or not.

        The number is set, not counted up or down, so that an interrupted caller may repeat the
        call.
        """
        starts = on > self.on
        self.on = on
        if starts and self.leaves and not self.nodes:
            # Leaves that were created on this tape may have been assigned before their first use.
            self.versions = {id: leaf._info.version for id, leaf in self.leaves.items()}
            self.since = -1
        # The fast paths of dispatch record here only if no checks are made and nothing is rounded
        # or traced.
        rounds = self.rounding is not None and self.rounding.active
        fast = on and self.checks is None and not (rounds or self.traced)
        self.block = self._ids if fast else NO_IDS
        if fast and may_run_elsewhere():
            self.block = ids_of_thread(self._ids, self.thread)

    def new_id(self) -> int:
        """Return an id that no value of this process has."""
        id = next(self._ids, None)
        if id is None:
            if len(self.nodes) >= self._limit:
                self._limit = max(IDS_PER_BLOCK, 2 * self.prune())
            self._ids, _ = new_id_block()
            self.set_active(self.on)
            id = next(self._ids)
        return id

    def prune(self) -> int:
        """Drop nodes whose result no query can name any more; return how many are left.

        A result is identified by its id, one int object that its Variable, the nodes that use it
        and the tables of a sweep share. If only the node itself holds it, the branch is dead.
        """
        for id in list(self.cut_reasons)[:-_KEPT_CUTS]:  # each keeps the result that it names alive
            del self.cut_reasons[id]
        for named in (self.watched, self.constants):
            for id in [id for id, ref in named.items() if ref() is None]:
                del named[id]
        nodes = self.nodes
        acquired: list[bool] = []
        try:
            # One C call, so that an interrupt finds the lock noted as soon as it is acquired.
            acquired.extend(starmap(_PRUNING.acquire, [(False,)]))
            if True not in acquired:
                return len(nodes)
            self._prune_nodes()
        finally:
            if True in acquired:
                _PRUNING.release()
        if self.checks is not None:
            self.checks.keep_only(nodes)
        self.release_unused()
        return len(nodes)

    def _prune_nodes(self) -> None:
        nodes = self.nodes
        count = len(nodes)
        for k in range(count - 1, -1, -1):
            node = nodes[k]
            if result_refcount(node) <= _UNHELD_REFERENCES:
                # Replaced by a node without operands, which a sweep skips: the list is valid
                # wherever an interrupt may come.
                nodes[k] = (*node[:2], (), None, None)
        # Nodes that another thread appended meanwhile stay.
        nodes[:count] = [node for node in nodes[:count] if node[2]]

    # -------------------------------------------------------------- lookup

    def spec_of_id(self, id: int) -> Spec | None:
        """Return the spec of a value on this recording, from its nodes; None if it is unknown."""
        by_output = {node[1]: node for node in self.nodes}
        while id in by_output:
            _, _, inputs, _, specs = by_output[id]
            if specs is not None:
                spec: Spec = specs[-1]
                return spec
            id = next(i for i in inputs if i is not None)
        value = self.value_of_id(id)
        return value._spec if value is not None else None

    def is_result(self, id: int) -> bool:
        """True if ``id`` is the result of a node."""
        if id in self.manual:
            return True
        # Ids of results start far above those of leaves and constants.
        return id >= FIRST_RECORDED_ID and any(node[1] == id for node in self.nodes)

    def is_operand(self, id: int) -> bool:
        """True if ``id`` is an operand of a node."""
        return any(id in node[2] for node in self.nodes)

    def value_of_id(self, id: int) -> Value | None:
        """Return the leaf or the living constant with this id, or None."""
        if id in self.leaves:
            return self.leaves[id]
        return self.constants[id]() if id in self.constants else None

    # -------------------------------------------------------------- operands

    def operand_id(self, value: Value, who: str = "record") -> int | None:
        """Return an operand's id, None for a constant; raise if a gradient would be lost."""
        home = value._recording
        if home is self:
            return value._id
        if home is LEAF:
            id = value._id
            if id not in self.leaves:
                if self.manual and id in self.manual:
                    raise TapeError(
                        f"{who}: a manual record on this tape has the id of {value!r} as its "
                        "output; take ids for outputs from tape.constant, or far from those in use"
                    )
                if self.may_refuse_leaves:
                    for scope in scopes():
                        if isinstance(scope, Pause) and scope.refuse is not None:
                            scope.refuse(who, value)
                version = value._info.version
                if version != version:  # NaN while it is being written to
                    self.since = -1
                self.versions[id] = version  # before a sweep in another thread sees the leaf
                self.leaves[id] = value
            elif self.versions[id] != value._info.version and not self.is_operand(id):
                self.versions[id] = value._info.version
            value._placed = self.mark
            return id
        if home is CONSTANT:
            # So that no later manual record can make it a result.
            if value._placed is not self.mark:
                value._placed = self.mark if value._placed is None else MANY_RECORDINGS
            if value._info is not None:
                self.note_cut(value)
            return None
        if home is UNTRACKED:
            raise UntrackedError(
                f"{who}: {value!r} was computed from a trainable leaf while nothing recorded, so "
                "its gradient is lost; compute it under the tape, or detach() it to use it as a "
                "constant"
            )
        if self.outer_values is not None:
            if value._id not in self.outer_values:
                # A separate Variable, because an item assignment to the original changes its id.
                self.outer_values[value._id] = make_value(
                    type(value), value._array, home, value._id
                )
            return value._id
        raise TapeMismatchError(
            f"{who}: an operand lives on {home!r}, while {self!r} records; "
            "carry its value over with detach() or detach_into(tape)"
        )

    def note_cut(self, constant: Value) -> None:
        """Note why an operand is a constant, for ``explain``."""
        info = constant._info
        if info is not None and info.note is not None:
            self.cut_reasons[constant._id] = info.note

    def add_node(self, node: RawNode, data: Any, operands: Sequence[Any] | None = None) -> None:
        """Append a node, on the general path.

        Args:
            node: The node.
            data: The value of its result, if it is to be checked.
            operands: The operands, if they are known.
        """
        row, _, inputs, _, _ = node
        # Rules of users may fail in the middle of a sweep, which must then lose nothing.
        if row.foreign:
            self.may_fail = True
        for k in row.nondifferentiable:
            if inputs[k] is not None:
                self.may_fail = True
        if self.rounding is not None and self.rounding.active:
            node = self.rounding.rounded(node)
        self.nodes.append(node)
        if self.checks is not None:
            self.checks.check_node(node, data, operands)

    # -------------------------------------------------------------- arrays owned by others

    def keep_array(self, array: Any) -> Any:
        """Return what a node may keep of an array owned by others: the array or a copy.

        The array itself is locked, or, where a lock has no effect, compared before a sweep.
        """
        if type(array) is not np.ndarray:
            on_device = type(array) in ARRAYS and is_foreign(array)
            return self._keep_on_device(array) if on_device else array
        if array.nbytes <= SMALL:
            return array.copy() if array.flags.c_contiguous else copy_with_layout(array)
        if array.base is not None:
            return self._keep_view(array)
        key = id(array)
        entry = self.borrowed.get(key)
        # It may be noted and yet writable, if an interrupt came in between.
        if entry is None or array.flags.writeable:
            if not self.locked:
                register_lock_holder(self)
            lock_array(array, self.locked, self)
        if entry is None:
            # A view, locked as well, because the owner may change shape or dtype of the array.
            entry = self.borrowed[key] = (array.view(), sample_bytes, sample_bytes(array))
        return entry[0]

    def _keep_on_device(self, array: Any) -> Any:
        """Return what a node may keep of a user's array on a device, where no lock is.

        A small one is copied. A large one is kept, and its digest is compared before a sweep.
        """
        if array.nbytes <= SMALL:
            return copy_with_layout(array)
        position = view_key(array)
        entry = self.borrowed.get(position)
        if entry is None:
            entry = self.borrowed[position] = (array.view(), digest, digest(array))
        return entry[0]

    def _keep_view(self, view: Any) -> Any:
        """Return what a node may keep of a view, which stays writable through its base.

        A small view is copied. A large one is kept, and its digest is compared before a sweep. A
        view that comes again gets the same copy.
        """
        position = view_key(view)
        if view.nbytes >= LARGE:
            entry = self.borrowed.get(position)
            if entry is None:
                entry = self.borrowed[position] = (read_only_view(view), digest, digest(view))
            return entry[0]
        earlier = self.copies.get(position)
        copy = earlier() if earlier is not None else None
        if copy is None or not same_bits(copy, view):
            copy = copy_with_layout(view)
            self.copies[position] = weakref.ref(copy)
        return copy

    def release_unused(self) -> None:
        """Unlock the arrays owned by others that no node keeps any more."""
        if self.borrowed:
            needed = {id(value) for node in self.nodes for value in node[3] or ()}
            for key in [key for key, entry in self.borrowed.items() if id(entry[0]) not in needed]:
                del self.borrowed[key]
                self.locked.pop(key, None)
        if self.copies:
            self.copies = {place: ref for place, ref in self.copies.items() if ref() is not None}

    def verify_borrowed(self) -> None:
        """Raise MutationError if an array that a node needs was written to."""
        for array, fingerprint, before in tuple(self.borrowed.values()):
            if fingerprint(array) != before:
                self._refuse_overwritten(array)

    def _refuse_overwritten(self, array: Any) -> None:
        """Raise MutationError if a node needs ``array``, which its owner wrote to."""
        for row, _, _, kept, _ in self.nodes:
            if any(value is array for value in kept or ()):
                raise MutationError(
                    f"{row.name} saved an array of shape {array.shape} and {array.dtype}, which "
                    "was written to since, through a view or by a library that overwrites its "
                    "arguments; pass a copy, or sweep before writing"
                )

    # -------------------------------------------------------------- verification

    def verify(self, now: int) -> bool:
        """Raise MutationError if a value that a node needs changed; return if a leaf was frozen.

        Args:
            now: A ticket that was drawn for this call.
        """
        frozen = now != self.since + 1 and self._verify_leaves()
        if self.checks is not None:  # first, because its error names the source line
            self.checks.verify(self.nodes)
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
            if self.is_operand(id):
                raise MutationError(
                    f"{leaf!r} was assigned after this tape recorded its use; "
                    "sweep before assigning, or record again"
                )
            versions[id] = version  # no node uses it: the call that added it failed
        return frozen

    def verify_after(self, untrusted: bool = False) -> None:
        """Raise MutationError if a leaf was written to since ``verify``.

        Args:
            untrusted: True if functions of users ran in between, which may write to their arrays.
        """
        if untrusted and self.borrowed:
            self.verify_borrowed()
        for id, leaf in tuple(self.leaves.items()):
            if leaf._info.version != self.versions[id]:
                raise MutationError(
                    f"{leaf!r} was assigned while this tape was swept, which has used values of "
                    "before and after; assign between sweeps, and record again"
                )

    def query_id(self, value: Value) -> int:
        """Return the id that a query of ``value`` means: the watched id, else its own."""
        info = value._info
        if info is not None and info.watched in self.watched:
            watched: int = info.watched
            return watched
        return value._id

    def discard(self, why: str) -> None:
        """Drop all contents: the empty recording keeps the reason why it is empty.

        The call may be repeated after an interrupt. Callers make sure that nothing records.
        """
        self.dead = self.dead or why
        self.on = 0
        self.block = NO_IDS
        self.locked.clear()
        self.nodes.clear()
        self.leaves.clear()
        self.versions.clear()
        self.watched.clear()
        self.constants.clear()
        self.outer_values = None
        self.manual.clear()
        self.pinned_constants.clear()
        self.cut_reasons.clear()
        self.borrowed.clear()
        self.copies.clear()
        self.checks = None
        if self.rounding is not None:
            self.rounding.clear()


if TYPE_CHECKING:

    def _check_protocol(recording: Recording) -> protocols.Recording:
        """Let type checkers verify that a recording has what ``table.protocols`` asks for."""
        return recording
