"""``checkpoint``: keep what goes into a function, and run it again when the sweep comes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.errors import MutationError, TapeError
from odyssey.spec import Spec
from odyssey.table.rng_replay import RecordedRng, record_rng, replay_rng
from odyssey.table.scope import innermost_scope
from odyssey.table.value import CONSTANT, free_id, is_tracked, is_trainable, make_value
from odyssey.tape import GradientTape
from odyssey.tape.gradient_mask import GradientMask, poles_among
from odyssey.tape.recording import RawNode, Recording
from odyssey.tape.sweep import drain, pull, push, recorded
from odyssey.tape.tape_base import recording_of
from odyssey.transforms.arguments import named_like
from odyssey.transforms.call_nodes import data_of, home_of, kept_inputs, record_call
from odyssey.transforms.fingerprints import (
    Fingerprint,
    NodesFingerprint,
    fingerprint,
    matches_fingerprint,
    matches_nodes_fingerprint,
    nodes_fingerprint,
)
from odyssey.transforms.isolated_tapes import nodes_of, sources_of, tape_apart
from odyssey.transforms.replay import generator_states, generators_of, with_generator_states
from odyssey.tree import leaves, unflatten
from odyssey.variable import Variable, lent

__all__ = ["checkpoint"]

Masks = dict[int, GradientMask]


def checkpoint(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn`` in a form that is recomputed in a sweep instead of keeping what it computed.

    The tape keeps what goes into the call and nothing from inside of it. A chain of n layers that
    is cut into √n checkpointed pieces holds about 2√n results at a time instead of n, for one
    more run of the chain forward. Gradients of every order, forward mode, and what ``fn`` closes
    over (trainable leaves, and Variables of the tape around) are as without it.

    What ``fn`` draws from an ``od.Generator`` comes out the same again, and ``batch_norm`` moves
    its running statistics once. NumPy's generators are put back to where they stood, if they are
    arguments, or can be found from ``fn``: in its closure, its defaults, the globals that it names,
    the object that it is a method of, and in containers and objects there; and ``np.random``
    itself where ``fn`` names it. In the sweep the results are compared with the first ones, and so
    are the ops and a sample of what they keep; where they differ, because ``fn`` drew from a source
    that was not found, or what it closes over was changed, the sweep raises, as it does where a
    trainable leaf was assigned that ``fn`` only compares.

    What ``fn`` writes to an argument (``x[0] = 1.0``) stays inside; the caller's is as it was.

    Args:
        fn: A function of arrays or trees of them, with such a result. Where nothing records it
            is simply called. What it writes to Variables that it is given stays inside. A tape
            that it is given as an argument is replaced by the one that records the piece.

    Returns:
        A function of the same arguments with the same result.

    Raises:
        MutationError: in the sweep, if ``fn`` then gives another result than at first.

    >>> import odyssey as od
    >>> layer = checkpoint(lambda x: od.ops.exp(od.ops.sin(x)))
    >>> w = od.Variable(np.zeros(1000), requires_grad=True)
    >>> with od.GradientTape() as tape:
    ...     y = layer(w).sum()
    >>> tape.memory().total, float(tape.gradient(y, w)[0])
    (8000, 1.0)
    """

    def checkpointed(*args: Any, **named: Any) -> Any:
        passed = leaves((args, named))
        recording = home_of("checkpoint", passed)
        if recording is None:
            return _called(fn, args, named, passed)
        return _Piece(fn, args, named).record(recording)

    made = named_like(fn, checkpointed, "checkpoint")
    # By these a function that was decorated is pickled.
    made.__qualname__ = getattr(fn, "__qualname__", made.__qualname__)
    made.__module__ = getattr(fn, "__module__", made.__module__)
    return made  # type: ignore[no-any-return]


class _Piece:
    """One call of a checkpointed function, and how to repeat it."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
        every: bool = False,
    ):
        self.fn = fn
        self.every = every  # whether all Variables among the arguments are to be so again
        self.name = f"checkpoint({getattr(fn, '__name__', type(fn).__name__)})"
        self.generators = generators_of(fn, args, named)
        self.states = generator_states(self.generators)
        self.noted = RecordedRng()  # where our own stood, which need not be found
        # The arguments, without what the tape must keep; for each leaf where that is instead.
        self.tree: Any = (args, named)
        self.places: list[tuple[str, int]] = []
        # What the results depend on, arguments or closed over; leaves that ``fn`` itself made.
        self.ids: list[int] = []
        self.used: set[int] = set()  # without what is an input for being an argument only
        self.specs: list[Spec] = []
        self.new: set[int] = set()
        # Leaves that it only looked at, to compare them for instance, with their versions.
        self.read: list[tuple[Any, int]] = []
        # For each result its place among the leaves of what ``fn`` returns, its spec and print.
        self.results: list[tuple[int, Spec, Fingerprint]] = []
        self.made_of: NodesFingerprint | None = None

    # -------------------------------------------------------------- the first time

    def record(self, recording: Recording) -> Any:
        """Run on a tape of its own, and put on ``recording`` what the piece takes and gives."""
        start, tape = free_id(), tape_apart()
        segment = recording_of(tape)
        passed = leaves(self.tree)
        given = [tape if isinstance(v, GradientTape) else lent(v) for v in passed]
        args, named = unflatten(self.tree, given)
        with tape, record_rng(self.noted):
            out = self.fn(*args, **named)
        lenders = {id(twin): v for twin, v in zip(given, passed, strict=True)}
        if segment.manual:
            raise TapeError(f"{self.name}: the function records by hand, which cannot be repeated")
        made, nodes = [_returned(v, lenders) for v in leaves(out)], nodes_of(tape)
        produced = {node[1] for node in nodes}
        first: dict[int, int] = {}
        for place, value in enumerate(made):
            if isinstance(value, Variable) and value._id in produced:
                first.setdefault(value._id, place)
        sources = sources_of(segment, nodes, first)
        self.new = {i for i, v in sources.items() if is_trainable(v) and i > start}
        self.used = sources.keys() - self.new
        self.read = [
            (leaf, leaf._info.version)
            for i, leaf in segment.leaves.items()
            if i <= start and leaf._info is not None and not segment.uses(i)
        ]
        if self.every and sources:
            sources = {v._id: v for v in passed if is_tracked(v)} | sources
        results = self._append(recording, sources, nodes, [made[p] for p in first.values()], first)
        if not self.every:  # a rule of a piece runs that piece again, which looks for itself
            self.made_of = nodes_fingerprint(nodes, first, self.ids)
        return unflatten(out, [_moved_out(value, results, produced) for value in made])

    def _append(
        self,
        recording: Recording,
        sources: dict[int, Variable],
        nodes: list[RawNode],
        values: list[Variable],
        first: dict[int, int],
    ) -> dict[int, Variable]:
        """Append the piece's nodes; return its results by the ids that they had inside."""
        if not sources:
            return {}
        self.ids = list(sources)
        self.specs = [value._spec for value in sources.values()]
        self.results = [
            (place, value._spec, fingerprint(value._array))
            for place, value in zip(first.values(), values, strict=True)
        ]
        made = record_call(
            recording,
            self.name,
            list(sources.values()),
            [value._array for value in values],
            self._pull,
            self._push,
            self._template(recording),
            self.every or any(node[0].selects for node in nodes),
            poles_among(nodes),
        )
        return dict(zip(first, made, strict=True))

    def _template(self, recording: Recording) -> list[Any]:
        """Take the values out of the arguments; return those that are not inputs, to be kept."""
        numbers = {id: k for k, id in enumerate(self.ids)}
        kept: list[Any] = []
        for value in leaves(self.tree):
            if isinstance(value, GradientTape):
                self.places.append(("tape", 0))
            elif isinstance(value, Variable) and value._id in numbers:
                self.places.append(("input", numbers[value._id]))
            else:
                constant = isinstance(value, Variable)
                self.places.append(("constant" if constant else "other", len(kept)))
                kept.append(recording.hold(data_of(value) if constant else value))
        self.tree = unflatten(self.tree, [None] * len(self.places))
        return kept

    # -------------------------------------------------------------- the next times

    def _run(self, inputs: Sequence[Any], rest: Sequence[Any], tape: Any) -> list[Variable]:
        """Call the function again, on inputs that are Variables; return the results."""
        found = {"input": inputs, "other": rest, "tape": (tape,)}
        values = [
            make_value(Variable, rest[k], CONSTANT, free_id())
            if kind == "constant"
            else found[kind][k]
            for kind, k in self.places
        ]
        args, named = unflatten(self.tree, values)
        if any(leaf._info is None or leaf._info.version != version for leaf, version in self.read):
            raise self._changed("would meet other values")
        with with_generator_states(self.generators, self.states), replay_rng(self.noted):
            made = leaves(self.fn(*args, **named))
        results = []
        for place, spec, old in self.results:
            value: Any = made[place] if place < len(made) else None
            fits = isinstance(value, Variable) and value._spec == spec
            if not (fits and matches_fingerprint(old, fingerprint(value._array))):
                raise self._changed("gave another result")
            results.append(value)
        return results

    def _check(
        self, recording: Recording, nodes: list[RawNode], results: list[Variable], start: int
    ) -> None:
        """Raise if this time the results depend on something else."""
        ids = [value._id for value in results]
        found = sources_of(recording, nodes, ids, self.ids)
        fresh = {i for i in found if i > start and i in recording.leaves}
        if self.used - found.keys() or found.keys() - fresh - set(self.ids):
            raise self._changed("used other Variables")
        again = nodes_fingerprint(nodes, ids, self.ids) if self.made_of else None
        if not matches_nodes_fingerprint(self.made_of, again):
            raise self._changed("computed it from other values")

    def _changed(self, what: str) -> MutationError:
        return MutationError(
            f"{self.name}: run again for the sweep, the function {what} than at first; what it "
            "closes over was written to, or it draws random numbers from a generator that was not "
            "found; pass arrays and generators as arguments"
        )

    def _apart(self, kept: tuple[Any, ...]) -> tuple[GradientTape, list[Variable]]:
        """Run again on a tape of its own, which no other tape sees."""
        inputs, rest = kept_inputs(kept, len(self.ids))
        start, tape = free_id(), tape_apart()
        segment = recording_of(tape)
        given = [
            make_value(Variable, data, segment, id, spec)
            for data, id, spec in zip(inputs, self.ids, self.specs, strict=True)
        ]
        with tape:
            results = self._run(given, rest, tape)
        self._check(segment, nodes_of(tape), results, start)
        return tape, results

    def _again(
        self, inputs: Sequence[Any], rest: tuple[Any, ...]
    ) -> tuple[list[RawNode], list[Variable], Recording]:
        """Run again on the tape that records now; return what it recorded, and the results."""
        recording: Recording = innermost_scope()
        start, first = free_id(), recording.new_id()
        results = self._run(inputs, rest, recording.tapes()[0])
        nodes = [node for node in recording.nodes if node[1] > first]
        self._check(recording, nodes, results, start)
        return nodes, results, recording

    # -------------------------------------------------------------- the rules

    def _pull(self, parts: dict[int, Any], kept: tuple[Any, ...], chosen: Masks) -> list[Any]:
        """From the cotangents of the results to those of the inputs."""
        given = dict(chosen)

        def swept(nodes: Any, results: list[Variable], parts: dict[int, Any]) -> list[Any]:
            cotangents = {results[j]._id: g for j, g in parts.items()}
            masks = {results[j]._id: mask for j, mask in given.items()}
            pull(nodes, cotangents, chosen=masks)
            _answer_masks(chosen, masks, self.ids, cotangents)
            return self._or_zeros(cotangents)

        if not _recorded(parts, kept[: len(self.ids)]):
            tape, results = self._apart(kept)
            return swept(drain(nodes_of(tape)), results, parts)
        inputs, rest = kept_inputs(kept, len(self.ids))

        def pulled(inputs: Any, parts: dict[int, Any]) -> list[Any]:
            nodes, results, recording = self._again(inputs, rest)
            return swept(recorded(nodes[::-1], recording), results, parts)

        return self._nested(pulled, list(inputs), parts)

    def _or_zeros(self, found: dict[int, Any]) -> list[Any]:
        return [
            found[i] if i in found else np.zeros(spec.shape, spec.dtype)
            for i, spec in zip(self.ids, self.specs, strict=True)
        ]

    def _push(self, parts: dict[int, Any], kept: tuple[Any, ...], chosen: Masks) -> list[Any]:
        """From the tangents of the inputs to those of the results."""
        given = dict(chosen)

        def swept(nodes: Any, results: list[Variable], parts: dict[int, Any]) -> list[Any]:
            tangents = {self.ids[k]: t for k, t in parts.items()}
            masks = {self.ids[k]: mask for k, mask in given.items()}
            push(nodes, tangents, masks)
            _answer_masks(chosen, masks, [v._id for v in results], tangents)
            return self._moved(tangents, results)

        if not _recorded(parts, kept[: len(self.ids)]):
            tape, results = self._apart(kept)
            return swept(nodes_of(tape), results, parts)
        inputs, rest = kept_inputs(kept, len(self.ids))

        def pushed(inputs: Any, parts: dict[int, Any]) -> list[Any]:
            nodes, results, recording = self._again(inputs, rest)
            return swept(recorded(nodes, recording), results, parts)

        return self._nested(pushed, list(inputs), parts)

    def _nested(self, rule: Callable[..., Any], *args: Any) -> list[Any]:
        """Apply a rule of this piece as a piece of its own, for derivatives of the next order."""
        recording = home_of(self.name, leaves(args))
        if recording is None:
            return list(rule(*args))
        # The rule follows each input, also one that none of its results depends on.
        found: list[Any] = _Piece(rule, args, {}, every=True).record(recording)
        return found

    def _moved(self, tangents: dict[int, Any], results: list[Variable]) -> list[Any]:
        return [
            tangents[v._id] if v._id in tangents else np.zeros(v.shape, v.dtype) for v in results
        ]


def _called(fn: Callable[..., Any], args: Any, named: Any, passed: list[Any]) -> Any:
    """Call the function where nothing records; what it writes to Variables stays inside too."""
    given = [lent(v) for v in passed]
    if all(one is own for one, own in zip(given, passed, strict=True)):
        return fn(*args, **named)
    args, named = unflatten((args, named), given)
    out = fn(*args, **named)
    lenders = {id(twin): v for twin, v in zip(given, passed, strict=True)}
    flat = leaves(out)
    if not any(id(v) in lenders for v in flat):
        return out
    return unflatten(out, [_returned(v, lenders) for v in flat])


def _returned(value: Any, lenders: dict[int, Any]) -> Any:
    """The caller's own Variable for one that was lent and not written to."""
    lender = lenders.get(id(value))
    if not isinstance(lender, Variable) or lender._array is not value._array:
        return value
    return lender if lender._id == value._id else value


def _answer_masks(chosen: Masks, masks: Masks, ids: Sequence[int], found: dict[int, Any]) -> None:
    """Leave in ``chosen`` the masks of the answers, which have these ``ids``."""
    chosen.clear()
    for k, i in enumerate(ids):
        if i not in found:  # zeros, for nothing depends on it
            chosen[k] = GradientMask(lambda: np.False_)
        elif i in masks:
            chosen[k] = masks[i]


def _moved_out(value: Any, results: dict[int, Variable], produced: set[int]) -> Any:
    """A leaf of the result on the tape around: a constant where it depends on nothing there."""
    if not isinstance(value, Variable) or value._id not in produced:
        return value
    if value._id in results:
        return results[value._id]
    return make_value(Variable, value._array, CONSTANT, free_id(), value._spec)


def _recorded(parts: dict[int, Any], inputs: tuple[Any, ...]) -> bool:
    return any(isinstance(v, Variable) for v in (*parts.values(), *inputs))
