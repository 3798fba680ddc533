"""Nodes and their ids: in order of recording, and dropped when nobody can ask about them."""

from __future__ import annotations

import itertools
import weakref
from _thread import allocate_lock
from collections.abc import Iterator
from itertools import starmap
from typing import TYPE_CHECKING, Any

from odyssey.spec import Spec
from odyssey.table.scope import travels
from odyssey.table.value import Value
from odyssey.tape.keeping import Keeping
from odyssey.tape.liveness import measured, reference_count, unheld_in_a_list
from odyssey.tape.threads import NO_IDS, ids_of_thread

if TYPE_CHECKING:
    from odyssey.tape.careful import Careful

__all__ = ["BLOCK", "FIRST", "Nodes", "RawNode", "block_of_ids"]

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


class Nodes(Keeping):
    """The part of a recording that has its nodes, in topological order, and gives out their ids.

    Attributes:
        nodes: In order of recording.
        leaves: Trainable leaves that were used, by id.
        versions: What of each leaf was noted when it was.
        watched: Variables whose values were watched, by id.
        constants: Constants that a tape made, by id.
        cuts: Why operands were constants, for ``explain``.
        manual: By the id of a manual record's output, which says nothing of when it came, one
            that does.
        block: What the shortcuts of calls draw ids from: empty when they may not record here.
        mark: What a leaf bears that was taken up: a number that no other recording has.
        on: How many of its tapes record now.
    """

    __slots__ = (
        "_ids",
        "_limit",
        "block",
        "careful",
        "constants",
        "cuts",
        "leaves",
        "manual",
        "mark",
        "on",
        "since",
        "traced",
        "versions",
        "watched",
    )

    leaves: dict[int, Value]
    versions: dict[int, float]
    watched: dict[int, weakref.ref[Value]]
    constants: dict[int, weakref.ref[Value]]
    cuts: dict[int, tuple[str, tuple[int, ...]]]
    manual: dict[int, int]
    careful: Careful | None
    traced: bool
    since: int
    nodes: list[RawNode]
    on: int
    block: Iterator[int]
    mark: int
    _ids: Iterator[int]
    _limit: int

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
        if fast and travels():
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

    # -------------------------------------------------------------- looking them up

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
