"""The tape that users hold: one view of a recording, with its own rules of when it records."""

from __future__ import annotations

import weakref
from _thread import get_ident
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from odyssey.checks import flag, function
from odyssey.devices.commit import commit
from odyssey.errors import OdysseyError, TapeError
from odyssey.ops.shape import identity
from odyssey.table.blocks import Door
from odyssey.table.declare import OPS
from odyssey.table.scope import TRACE, Pause, innermost, replaced, scopes, set_scopes
from odyssey.table.value import CONSTANT, LEAF, Info, Symbol, free_id, make_value
from odyssey.tape import ask, manual, report
from odyssey.tape.blocks import NoRecording, OpenBlock, RecordingAgain, leave_block
from odyssey.tape.careful import Careful
from odyssey.tape.gradients import Gradients
from odyssey.tape.question import source_of
from odyssey.tape.recording import Recording
from odyssey.tape.report import TapeNode
from odyssey.tape.threads import entered_elsewhere, swept_elsewhere
from odyssey.tree import map_tree
from odyssey.variable import Variable, check_trainable

__all__ = ["GradientTape"]


class GradientTape:
    """Records ops on Variables, and differentiates what it recorded.

    Inside ``with GradientTape() as tape:`` every op on a trainable leaf, or on what came from
    one, appends a node. ``backward``, ``gradient`` and ``jvp`` sweep over the nodes. A tape
    that is opened inside another joins its recording, so sweeps can be differentiated.

    Args:
        persistent: Keep the nodes after a sweep, for more sweeps.
        check: Be careful and slow: note source lines, find saved arrays that were written to,
            verify manual records, and report the first value or gradient that is not finite.

    >>> w = Variable(3.0, requires_grad=True)
    >>> with GradientTape() as tape:
    ...     y = w * w
    >>> float(tape.gradient(y, w))
    6.0
    """

    _recording: Recording = None  # type: ignore[assignment]  # if __init__ never ran

    # What the next block that is entered will be left by, see Door.
    _door: Any = None

    def __init__(self, *, persistent: bool = False, check: bool = False) -> None:
        if persistent is not False:
            persistent = flag("GradientTape", "persistent", persistent)
        if check is not False:
            check = flag("GradientTape", "check", check)
        self.persistent = persistent
        self._check = check
        self._enabled = False
        self._blocks: list[OpenBlock] = []
        self._start()

    def _start(self) -> None:
        """Begin an empty recording of this tape's own."""
        me = weakref.ref(self)
        recording = Recording(me, TRACE.get() is not None)
        recording.open[id(self)] = me
        if self._check:
            recording.careful = Careful()
        # Ids at which this tape stopped, started again, stopped ..., in rising order, while others
        # could go on with the recording.
        self._gaps: list[int] = []
        # Tapes that recorded when this one joined them, and so follow its sweeps.
        self._around: list[weakref.ref[GradientTape]] = []
        # Whether a tape inside of this one was swept: derivatives may well be constants.
        self._derived = False
        self._hooks: dict[int, list[Callable[[Any], Any]]] = {}
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
            old = block[0]
            if old.dead and block in old.entered:
                moved = (new, *block[1:])
                commit(
                    [
                        (self._blocks.__setitem__, k, moved),
                        (old.entered.remove, block),
                        (new.entered.append, moved),
                        (set_scopes, replaced(old, new)),
                    ]
                )

    # -------------------------------------------------------------- recording or not

    def __enter__(self) -> GradientTape:
        door, self._door = self._door, None
        thread = get_ident()
        if self._blocks and self._blocks[0][4][-1] != thread:
            raise entered_elsewhere(self._recording)
        if self._consumed or self._recording.dead:
            self._start()
        outer = scopes()
        if outer[0] is not None:
            self._meet(innermost())
            outer = scopes()
        recording, was_enabled = self._recording, self._enabled
        inner = (recording, *outer) if outer[0] is not None else (recording, None, thread)
        block = (recording, was_enabled, door, outer, inner)
        self._blocks.append(block)
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

    __exit__ = Door()

    def _leave(self, kind: Any, error: Any, trace: Any) -> None:
        """Leave the innermost block; after an interrupt anywhere in here, it may be left again."""
        block = self._blocks[-1]
        recording, was_enabled, _, outer, inner = block
        if scopes() is inner:  # leave_block, spelled out
            set_scopes(outer)
            recording.entered.remove(block)
        else:
            leave_block(block)
        if self._enabled and not was_enabled:
            recording = self._recording
            if self._pauses or recording.dead or len(recording.open) > 1:
                self.disable()
            else:
                recording.turn(0)  # disable, spelled out
                self._enabled = False
        if kind is not None:
            self.clear()
        self._blocks.pop()

    def _abandon(self, door: Any) -> None:
        """Leave the block of a door that is gone, as after an exception."""
        try:
            self._leave_by(door)
        except BaseException:
            self._leave_by(door)
            raise

    def _leave_by(self, door: Any) -> None:
        while any(block[2] is door for block in self._blocks):
            self._leave(BaseException, None, None)

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
            outer.careful = Careful()
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

    def no_recording(self) -> NoRecording:
        """Pause this tape in a block; what is computed there is constant to it."""
        return NoRecording(self)

    # -------------------------------------------------------------- what is on it

    def __len__(self) -> int:
        return 0 if self._consumed else len(self._recording.nodes)

    def __bool__(self) -> bool:
        return True

    @property
    def nodes(self) -> list[TapeNode]:
        """The nodes in order of recording; a copy for reading."""
        return [] if self._consumed else report.nodes_of(self)

    @property
    def ids(self) -> frozenset[int]:
        """Ids of everything this tape knows: leaves, watched values, constants and results."""
        if self._consumed:
            return frozenset()
        r = self._recording
        results = [node[1] for node in r.nodes]
        constants = (id for id, ref in r.constants.items() if ref() is not None)
        return frozenset((*r.leaves, *constants, *results))

    def variable(self, data: Any, name: str | None = None) -> Variable:
        """Return a trainable leaf whose uses this tape records, entered or not, while enabled."""
        return Variable(data, requires_grad=True, name=name, tape=self)

    def constant(self, data: Any) -> Variable:
        """Return a constant whose id this tape knows, for manual records."""
        return self._adopt(Variable(data))

    def _adopt(self, variable: Variable) -> Variable:
        if self._consumed or self._recording.dead:
            self._start()
        if variable._recording is LEAF:
            variable._own_info().home = weakref.ref(self)
            self._recording.place(variable)
        else:
            self._recording.constants[variable.id] = weakref.ref(variable)
        return variable

    def watch(self, tree: Any) -> Any:
        """Return the tree with each leaf as a Variable of this tape, whose gradient can be asked.

        Args:
            tree: Arrays, numbers or Variables in any nest of containers. They stay untouched;
                what the gradient of a watched trainable leaf is, reaches the leaf as well. What
                is asked of a watched Variable is answered for its value here, whatever is written
                to it later.

        Raises:
            DTypeError: for integers, which have no gradient.
        """
        if not self.enabled or isinstance(innermost(), Pause):
            raise TapeError(f"watch: {self._recording!r} records nothing now; enter or enable it")
        return map_tree(self._watch_one, tree)

    def _watch_one(self, value: Any) -> Variable:
        known = isinstance(value, Variable) and value._recording is not CONSTANT
        if not known:
            data = value.data if isinstance(value, Variable) else value
            if not isinstance(data, Symbol):
                data = Variable(data)._array
            check_trainable(data.dtype)
            # It needs no copy of the data: the identity below makes one.
            value = make_value(Variable, data, LEAF, free_id(), info=Info())
        watched: Variable = identity(value, tape=self)
        if not known:
            # The stand-in leaf is nobody's: its own gradient is never asked for.
            self._recording.leaves.pop(value.id)
            self._recording.versions.pop(value.id)
        watched._own_info().watched = watched._id
        self._recording.watched[watched._id] = weakref.ref(watched)
        return watched

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

    def clear_grads(self) -> None:
        """Set the gradient of every leaf of this tape to None."""
        for leaf in self._recording.leaves.values():
            leaf.zero_grad()  # type: ignore[attr-defined]

    def _part(self, why: str) -> None:
        """Give up this tape's share of its recording; the last one empties it."""
        r = self._recording
        r.open.pop(id(self), None)
        if not r.open or not r.tapes():
            r.spend(why)

    def __del__(self) -> None:
        recording = self._recording
        if recording is not None and not recording.dead:
            self._enabled = False
            self._part("dropped")
            if not recording.dead:
                recording.refresh()

    # -------------------------------------------------------------- recording by hand

    def record(self, op: Any, inputs: Any, output: Any, **saved: Any) -> None:
        """Append a node by hand; ``record_<op>(x, y, out)`` is the same with the op in the name.

        Args:
            op: An op, or its name.
            inputs: Variables, or ids that this tape knows.
            output: A constant, which becomes this node's result, or an id that no node produced.
            saved: What the op's rules ask for and the inputs cannot tell, and its options.

        Raises:
            TapeError: for a tape that does not record, an unknown input, an output that is known.
        """
        manual.record(self, op, inputs, output, saved)

    if TYPE_CHECKING:
        # ``record_<op>`` for every op of the table: methods, which are made below. A real method
        # of this name would make Python search for every attribute of every tape.
        def __getattr__(self, name: str) -> Any: ...

    # -------------------------------------------------------------- sweeps

    def backward(self, output: Any, grad: Any = None, *, retain: bool = False) -> Gradients:
        """Add the gradients of ``output`` to the ``.grad`` of every trainable leaf that it used.

        Args:
            output: A Variable recorded here, a trainable leaf, or a tree of them.
            grad: Its cotangent, of its shape; may be left out where there is one element.
            retain: Keep the nodes for another sweep.

        Returns:
            This sweep's cotangents, by Variable.

        Raises:
            TapeConsumedError, TapeError, ShapeError, DTypeError, MutationError: and then nothing
            has changed.
        """
        try:
            return ask.backward(self, output, grad, retain)
        except BaseException as error:
            self._settle(error)
            raise

    def gradient(
        self,
        output: Any,
        sources: Any,
        grad: Any = None,
        *,
        unused: str = "error",
        create_graph: bool = False,
    ) -> Any:
        """Return the gradients of ``output`` with respect to ``sources``; touch no ``.grad``.

        Args:
            output: A Variable recorded here, or a tree of them.
            sources: A Variable (leaf, watched, or intermediate), its id, or a tree of them.
            grad: The cotangent of ``output``; may be left out where there is one element.
            unused: What a source gets that ``output`` does not depend on, be it a constant or a
                frozen leaf: ``"error"`` raises, ``"zero"`` gives zeros, ``"none"`` gives None.
            create_graph: Record the sweep, so that its results can be differentiated; keeps
                the tape.

        Returns:
            Arrays in the shape of ``sources``; Variables when the sweep was recorded.

        Raises:
            TapeConsumedError, TapeError, ShapeError, DTypeError, MutationError: and then nothing
            has changed.

        >>> x = Variable(2.0, requires_grad=True)
        >>> with GradientTape(persistent=True) as tape:
        ...     y = x * x * x
        >>> slope = tape.gradient(y, x, create_graph=True)
        >>> float(slope), float(tape.gradient(slope, x))
        (12.0, 12.0)
        """
        try:
            return ask.gradient(self, output, sources, grad, unused, create_graph)
        except BaseException as error:
            self._settle(error)
            raise

    def jvp(self, output: Any, sources: Any, tangents: Any, *, unused: str = "error") -> Any:
        """Return how ``output`` changes when ``sources`` move along ``tangents``.

        A forward sweep over the same nodes; it keeps the tape, and is recorded while a tape that
        encloses this one records.

        Args:
            output: A Variable recorded here, or a tree of them.
            sources: A Variable or a tree of them.
            tangents: Arrays of the shapes of ``sources``, in the same tree.
            unused: What an output gets that depends on no source, or is a constant: ``"error"``
                raises, ``"zero"`` gives zeros, ``"none"`` gives None. Unless it is ``"error"``,
                sources may be constants or frozen leaves, which move nothing.

        Returns:
            Tangents in the shape of ``output``.

        Raises:
            TapeConsumedError: after a sweep that consumed the tape.

        >>> x = Variable([1.0, 2.0], requires_grad=True)
        >>> with GradientTape() as tape:
        ...     y = (x * x).sum()
        >>> float(tape.jvp(y, x, [1.0, 10.0]))
        42.0
        """
        return ask.jvp(self, output, sources, tangents, unused)

    def on_gradient(self, variable: Variable, fn: Callable[[Any], Any]) -> None:
        """Call ``fn(g)`` once, when the cotangent of ``variable`` is complete in the next sweep.

        What it returns, unless None, replaces the cotangent, and must have its shape.
        """
        id = source_of(self, "on_gradient", variable)
        assert id is not None  # which only stands for constants, and those are refused here
        self._hooks.setdefault(id, []).append(function("on_gradient", fn))

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
        if not self._around or isinstance(innermost(), Pause):
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

    # -------------------------------------------------------------- reports

    def explain(self, output: Variable, source: Variable) -> str:
        """Return how ``output`` depends on ``source``: the path of ops, or what broke it."""
        return report.explain(self, output, source)

    def memory(self) -> report.Memory:
        """Return what this tape holds in memory, by node and in total."""
        return report.memory(self)

    def to_dot(self) -> str:
        """Return the graph in Graphviz's language."""
        return report.to_dot(self)

    def to_mermaid(self) -> str:
        """Return the graph in Mermaid's language."""
        return report.to_mermaid(self)

    def __repr__(self) -> str:
        return repr(self._recording)

    def __reduce__(self) -> NoReturn:
        raise TapeError(
            f"{self!r} is neither copied nor pickled: its nodes belong to the Variables that it "
            "met; record again, or store the gradients"
        )

    def _repr_html_(self) -> str:
        return report.to_html(self)


def _recorder(op: str) -> Callable[..., None]:
    def record_op(self: GradientTape, *ids: Any, **saved: Any) -> None:
        manual.record_positional(self, op, *ids, **saved)

    record_op.__name__ = f"record_{op}"
    record_op.__qualname__ = f"GradientTape.{record_op.__name__}"
    record_op.__doc__ = f"Record ``{op}`` by hand: its inputs, then its output; see ``record``."
    return record_op


for _row in OPS.values():
    for _name in (_row.name, *_row.aliases):
        setattr(GradientTape, f"record_{_name}", _recorder(_name))
