"""``checkpoint``: rematerialization: a function's inputs are kept, and it runs again in a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.devices.same_device import zeros_beside
from odyssey.errors import MutationError, TapeError
from odyssey.graph.batch_trace import BatchedArray, BatchTrace
from odyssey.spec import Spec
from odyssey.table.rng_replay import RecordedRng, record_rng, replay_rng
from odyssey.table.scope import innermost_scope
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.value import (
    CONSTANT,
    Info,
    free_id,
    is_constant,
    is_tracked,
    is_trainable,
    make_value,
)
from odyssey.tape import GradientTape
from odyssey.tape.gradient_mask import GradientMask, any_poles
from odyssey.tape.recording import RawNode, Recording
from odyssey.tape.rounding import unrounded_saving
from odyssey.tape.sweep import backward_sweep, forward_sweep, pop_nodes, with_variables
from odyssey.tape.tape_base import recording_of
from odyssey.transforms.arguments import copy_metadata
from odyssey.transforms.call_nodes import record_call, recording_for, split_saved, stored_array
from odyssey.transforms.fingerprints import (
    Fingerprint,
    NodesFingerprint,
    fingerprint,
    matches_fingerprint,
    matches_nodes_fingerprint,
    nodes_fingerprint,
)
from odyssey.transforms.isolated_tapes import covered_nodes, external_sources, isolated_tape
from odyssey.transforms.reachability import generator_states, generators_of, with_generator_states
from odyssey.tree import leaves, unflatten
from odyssey.tree_objects import no_attributes
from odyssey.variable import Variable, writable_alias

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

    A program of ``od.compile`` merges the second run with the first, and so keeps the results: its
    memory is bounded by ``od.compile(memory_budget=...)``.

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
        passed = leaves((args, named), no_attributes)
        if store() is not MEMORY:
            passed = list(store().localize(passed))
            args, named = unflatten((args, named), passed, no_attributes)
        recording = recording_for("checkpoint", passed)
        if recording is None:
            trace = store()
            if type(trace) is BatchTrace and trace.is_followed_outside(map(operand_of, passed)):
                return _BatchedCheckpoint(trace, fn, args, named, passed).run()
            return _call_unrecorded(fn, args, named, passed)
        return _CheckpointedCall(fn, args, named).run_and_record(recording)

    made = copy_metadata(fn, checkpointed, "checkpoint")
    # A decorated function is pickled by these.
    made.__qualname__ = getattr(fn, "__qualname__", made.__qualname__)
    made.__module__ = getattr(fn, "__module__", made.__module__)
    return made  # type: ignore[no-any-return]


class _CheckpointedCall:
    """One call of a checkpointed function, which can be repeated."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
        track_all: bool = False,
    ):
        self.fn = fn
        self.track_all = track_all  # track every Variable among the arguments
        self.name = f"checkpoint({getattr(fn, '__name__', type(fn).__name__)})"
        self.generators = generators_of(fn, args, named)
        self.states = generator_states(self.generators)
        self.recorded_rng = (
            RecordedRng()
        )  # states of od.Generator objects, recorded as they are used
        # The arguments without their values, and for each leaf where its value is kept.
        self.tree: Any = (args, named)
        self.leaf_origins: list[tuple[str, int]] = []
        # The values that the results depend on, arguments or captured; leaves that ``fn`` creates.
        self.ids: list[int] = []
        self.used: set[int] = set()  # without arguments that no result depends on
        self.specs: list[Spec] = []
        self.new: set[int] = set()
        # Leaves that ``fn`` only reads, to compare them for instance, with their versions.
        self.read_leaves: list[tuple[Any, int]] = []
        # For each result its index among the leaves that ``fn`` returns, its spec and fingerprint.
        self.results: list[tuple[int, Spec, Fingerprint]] = []
        self.recorded_nodes: NodesFingerprint | None = None

    # -------------------------------------------------------------- first run

    def run_and_record(self, recording: Recording) -> Any:
        """Run on an isolated tape, and record the call's inputs and results on ``recording``."""
        start, tape = free_id(), isolated_tape()
        segment = recording_of(tape)
        passed = leaves(self.tree, no_attributes)
        given = [tape if isinstance(v, GradientTape) else _argument_alias(v) for v in passed]
        args, named = unflatten(self.tree, given, no_attributes)
        with tape, record_rng(self.recorded_rng):
            out = self.fn(*args, **named)
        lenders = {id(twin): v for twin, v in zip(given, passed, strict=True)}
        if segment.manual:
            raise TapeError(f"{self.name}: the function records by hand, which cannot be repeated")
        made, nodes = (
            [_original_if_unchanged(v, lenders) for v in leaves(out, no_attributes)],
            covered_nodes(tape),
        )
        produced = {node[1] for node in nodes}
        first: dict[int, int] = {}
        for index, value in enumerate(made):
            if isinstance(value, Variable) and value._id in produced:
                first.setdefault(value._id, index)
        sources = external_sources(segment, nodes, first)
        self.new = {i for i, v in sources.items() if is_trainable(v) and i > start}
        self.used = sources.keys() - self.new
        self.read_leaves = [
            (leaf, leaf._info.version)
            for i, leaf in segment.leaves.items()
            if i <= start and leaf._info is not None and not segment.is_operand(i)
        ]
        if self.track_all and sources:
            sources = {v._id: v for v in passed if is_tracked(v)} | sources
        results = self._append(recording, sources, nodes, [made[p] for p in first.values()], first)
        if not self.track_all:  # a rule runs the checkpointed call again, which checks itself
            self.recorded_nodes = nodes_fingerprint(nodes, first, self.ids)
        return unflatten(
            out, [_exported_result(value, results, produced) for value in made], no_attributes
        )

    def _append(
        self,
        recording: Recording,
        sources: dict[int, Variable],
        nodes: list[RawNode],
        values: list[Variable],
        first: dict[int, int],
    ) -> dict[int, Variable]:
        """Append the call's nodes; return its results by their ids on the isolated tape."""
        if not sources:
            return {}
        self.ids = list(sources)
        self.specs = [value._spec for value in sources.values()]
        self.results = [
            (index, value._spec, fingerprint(value._array))
            for index, value in zip(first.values(), values, strict=True)
        ]
        made = record_call(
            recording,
            self.name,
            list(sources.values()),
            [value._array for value in values],
            self._vjp,
            self._jvp,
            self._template(recording),
            self.track_all or any(node[0].selects for node in nodes),
            any_poles(nodes),
        )
        return dict(zip(first, made, strict=True))

    def _template(self, recording: Recording) -> list[Any]:
        """Take the values out of the arguments; return those that are not inputs, to be kept."""
        numbers = {id: k for k, id in enumerate(self.ids)}
        kept: list[Any] = []
        for value in leaves(self.tree, no_attributes):
            if isinstance(value, GradientTape):
                self.leaf_origins.append(("tape", 0))
            elif isinstance(value, Variable) and value._id in numbers:
                self.leaf_origins.append(("input", numbers[value._id]))
            else:
                constant = isinstance(value, Variable)
                self.leaf_origins.append(("constant" if constant else "other", len(kept)))
                kept.append(recording.keep_array(stored_array(value) if constant else value))
        self.tree = unflatten(self.tree, [None] * len(self.leaf_origins), no_attributes)
        return kept

    # -------------------------------------------------------------- later runs

    def _rerun(self, inputs: Sequence[Any], rest: Sequence[Any], tape: Any) -> list[Variable]:
        """Call the function again, on inputs that are Variables; return the results."""
        found = {"input": inputs, "other": rest, "tape": (tape,)}
        values = [
            make_value(Variable, rest[k], CONSTANT, free_id())
            if kind == "constant"
            else found[kind][k]
            for kind, k in self.leaf_origins
        ]
        args, named = unflatten(self.tree, values, no_attributes)
        if any(
            leaf._info is None or leaf._info.version != version
            for leaf, version in self.read_leaves
        ):
            raise self._changed("would read other values")
        with with_generator_states(self.generators, self.states), replay_rng(self.recorded_rng):
            made = leaves(self.fn(*args, **named), no_attributes)
        results = []
        for index, spec, old in self.results:
            value: Any = made[index] if index < len(made) else None
            fits = isinstance(value, Variable) and value._spec == spec
            if not (fits and matches_fingerprint(old, fingerprint(value._array))):
                raise self._changed("gave another result")
            results.append(value)
        return results

    def _check_rerun(
        self, recording: Recording, nodes: list[RawNode], results: list[Variable], start: int
    ) -> None:
        """Raise MutationError if the results of this run depend on other values."""
        ids = [value._id for value in results]
        found = external_sources(recording, nodes, ids, self.ids)
        fresh = {i for i in found if i > start and i in recording.leaves}
        if self.used - found.keys() or found.keys() - fresh - set(self.ids):
            raise self._changed("used other Variables")
        rerun_nodes = nodes_fingerprint(nodes, ids, self.ids) if self.recorded_nodes else None
        if not matches_nodes_fingerprint(self.recorded_nodes, rerun_nodes):
            raise self._changed("used other values")

    def _changed(self, what: str) -> MutationError:
        return MutationError(
            f"{self.name}: the function {what} when it was run again for the sweep; a value that "
            "it closes over was changed, or it draws random numbers from a generator that was "
            "not found; pass arrays and generators as arguments"
        )

    def _rerun_isolated(self, kept: tuple[Any, ...]) -> tuple[GradientTape, list[Variable]]:
        """Run again on an isolated tape."""
        inputs, rest = split_saved(kept, len(self.ids))
        start, tape = free_id(), isolated_tape()
        segment = recording_of(tape)
        given = [
            make_value(Variable, data, segment, id, spec)
            for data, id, spec in zip(inputs, self.ids, self.specs, strict=True)
        ]
        with tape:
            results = self._rerun(given, rest, tape)
        self._check_rerun(segment, covered_nodes(tape), results, start)
        return tape, results

    def _rerun_on_tape(
        self, inputs: Sequence[Any], rest: tuple[Any, ...]
    ) -> tuple[list[RawNode], list[Variable], Recording]:
        """Run again on the tape that records now; return the new nodes, and the results."""
        recording: Recording = innermost_scope()
        start, first = free_id(), recording.new_id()
        with unrounded_saving(recording):  # to be compared with the first run
            results = self._rerun(inputs, rest, recording.tapes()[0])
        nodes = [node for node in recording.nodes if node[1] > first]
        self._check_rerun(recording, nodes, results, start)
        return nodes, results, recording

    # -------------------------------------------------------------- the rules

    def _vjp(self, parts: dict[int, Any], kept: tuple[Any, ...], chosen: Masks) -> list[Any]:
        """Return the cotangents of the inputs from those of the results."""
        given = dict(chosen)

        def swept(nodes: Any, results: list[Variable], parts: dict[int, Any]) -> list[Any]:
            cotangents = {results[j]._id: g for j, g in parts.items()}
            masks = {results[j]._id: mask for j, mask in given.items()}
            backward_sweep(nodes, cotangents, masks=masks)
            _set_result_masks(chosen, masks, self.ids, cotangents)
            return self._cotangents_or_zeros(cotangents, parts)

        if not _is_recorded(parts, kept[: len(self.ids)]):
            tape, results = self._rerun_isolated(kept)
            return swept(pop_nodes(covered_nodes(tape)), results, parts)
        inputs, rest = split_saved(kept, len(self.ids))

        def vjp_of_rerun(inputs: Any, parts: dict[int, Any]) -> list[Any]:
            nodes, results, recording = self._rerun_on_tape(inputs, rest)
            return swept(with_variables(nodes[::-1], recording), results, parts)

        return self._nested(vjp_of_rerun, list(inputs), parts)

    def _cotangents_or_zeros(self, found: dict[int, Any], parts: dict[int, Any]) -> list[Any]:
        return [
            found[i] if i in found else zeros_beside(spec, *parts.values())
            for i, spec in zip(self.ids, self.specs, strict=True)
        ]

    def _jvp(self, parts: dict[int, Any], kept: tuple[Any, ...], chosen: Masks) -> list[Any]:
        """Return the tangents of the results from those of the inputs."""
        given = dict(chosen)

        def swept(nodes: Any, results: list[Variable], parts: dict[int, Any]) -> list[Any]:
            tangents = {self.ids[k]: t for k, t in parts.items()}
            masks = {self.ids[k]: mask for k, mask in given.items()}
            forward_sweep(nodes, tangents, masks)
            _set_result_masks(chosen, masks, [v._id for v in results], tangents)
            return self._tangents_or_zeros(tangents, results)

        if not _is_recorded(parts, kept[: len(self.ids)]):
            tape, results = self._rerun_isolated(kept)
            return swept(covered_nodes(tape), results, parts)
        inputs, rest = split_saved(kept, len(self.ids))

        def jvp_of_rerun(inputs: Any, parts: dict[int, Any]) -> list[Any]:
            nodes, results, recording = self._rerun_on_tape(inputs, rest)
            return swept(with_variables(nodes, recording), results, parts)

        return self._nested(jvp_of_rerun, list(inputs), parts)

    def _nested(self, rule: Callable[..., Any], *args: Any) -> list[Any]:
        """Apply a rule of this call as a checkpointed call, for derivatives of the next order."""
        recording = recording_for(self.name, leaves(args, no_attributes))
        if recording is None:
            return list(rule(*args))
        # The rule tracks every input, also one that none of its results depends on.
        found: list[Any] = _CheckpointedCall(rule, args, {}, track_all=True).run_and_record(
            recording
        )
        return found

    def _tangents_or_zeros(self, tangents: dict[int, Any], results: list[Variable]) -> list[Any]:
        return [tangents[v._id] if v._id in tangents else zeros_beside(v, v) for v in results]


class _BatchedCheckpoint:
    """One call in ``vmap`` that tapes outside record: a checkpoint of a function of payloads.

    Args:
        trace: The batch trace.
        fn: The function.
        args: Its arguments.
        named: Its keyword arguments.
        passed: Their leaves.
    """

    def __init__(
        self, trace: BatchTrace, fn: Callable[..., Any], args: Any, named: Any, passed: list[Any]
    ) -> None:
        self.trace, self.fn = trace, fn
        self.inputs, self.payloads, self.fixed = self._split(passed)
        self.tree = unflatten((args, named), self.fixed, no_attributes)
        # The result without its values of the trace; see ``_split`` for these.
        self.out: Any = None
        self.results: list[tuple[int, bool, bool]] = []

    def _split(self, flat: list[Any]) -> tuple[list[tuple[int, bool, bool]], list[Any], list[Any]]:
        """Split leaves into the values of the trace and others.

        Returns:
            For each value, its position, whether it is mapped, and whether it is a Variable; their
            payloads; and all leaves, with None for these.
        """
        found, payloads, others = [], [], list(flat)
        for k, leaf in enumerate(flat):
            is_variable = isinstance(leaf, Variable)
            data = operand_of(leaf) if is_variable and self.trace.is_own(leaf) else leaf
            if type(data) is BatchedArray and data.graph is self.trace:
                found.append((k, data.mapped, is_variable))
                payloads.append(data.payload)
                others[k] = None
        return found, payloads, others

    def run(self) -> Any:
        """Call the checkpoint outside, and return its result here."""
        trace = self.trace
        outside = trace.entered_again(self._run)
        outside.__name__ = getattr(self.fn, "__name__", type(self.fn).__name__)
        payloads, self.payloads = self.payloads, []  # the tape keeps them
        made = trace.compute_outside(checkpoint(outside), *payloads)
        flat = leaves(self.out, no_attributes)
        for payload, (k, mapped, is_variable) in zip(made, self.results, strict=True):
            flat[k] = self._enter_payload(payload, mapped, is_variable)
        return unflatten(self.out, flat, no_attributes)

    def _enter_payload(self, payload: Any, mapped: bool, is_variable: bool) -> Any:
        value = self.trace.wrap(payload, mapped)
        if not is_variable:
            return value
        return make_value(Variable, value, CONSTANT, free_id(), value.spec)

    def _run(self, *payloads: Any) -> list[Any]:
        values = list(self.fixed)
        for payload, (k, mapped, is_variable) in zip(payloads, self.inputs, strict=True):
            values[k] = self._enter_payload(payload, mapped, is_variable)
        args, named = unflatten(self.tree, values, no_attributes)
        out = self.fn(*args, **named)
        self.results, made, others = self._split(leaves(out, no_attributes))
        self.out = unflatten(out, others, no_attributes)
        return made


def _call_unrecorded(fn: Callable[..., Any], args: Any, named: Any, passed: list[Any]) -> Any:
    """Call the function where nothing records; its writes to Variables stay inside as well."""
    given = [_argument_alias(v) for v in passed]
    if all(one is own for one, own in zip(given, passed, strict=True)):
        return fn(*args, **named)
    args, named = unflatten((args, named), given, no_attributes)
    out = fn(*args, **named)
    lenders = {id(twin): v for twin, v in zip(given, passed, strict=True)}
    flat = leaves(out, no_attributes)
    if not any(id(v) in lenders for v in flat):
        return out
    return unflatten(out, [_original_if_unchanged(v, lenders) for v in flat], no_attributes)


def _argument_alias(value: Any) -> Any:
    """Return an alias of an argument: ``assign`` reaches the argument, item assignment does not."""
    alias = writable_alias(value)
    if alias is not value and is_constant(value):
        alias._info = Info()
        alias._info.lender = value
    return alias


def _original_if_unchanged(value: Any, lenders: dict[int, Any]) -> Any:
    """Return the caller's own Variable for an alias of it that was not written to."""
    lender = lenders.get(id(value))
    if not isinstance(lender, Variable) or lender._array is not value._array:
        return value
    return lender if lender._id == value._id else value


def _set_result_masks(
    chosen: Masks, masks: Masks, ids: Sequence[int], found: dict[int, Any]
) -> None:
    """Replace ``chosen`` by the masks of the results, which have these ``ids``."""
    chosen.clear()
    for k, i in enumerate(ids):
        if i not in found:  # zeros, because nothing depends on it
            chosen[k] = GradientMask(lambda: np.False_)
        elif i in masks:
            chosen[k] = masks[i]


def _exported_result(value: Any, results: dict[int, Variable], produced: set[int]) -> Any:
    """Return a leaf of the result for the outer tape; a constant if it depends on nothing there."""
    if not isinstance(value, Variable) or value._id not in produced:
        return value
    if value._id in results:
        return results[value._id]
    return make_value(Variable, value._array, CONSTANT, free_id(), value._spec)


def _is_recorded(parts: dict[int, Any], inputs: tuple[Any, ...]) -> bool:
    return any(isinstance(v, Variable) for v in (*parts.values(), *inputs))
