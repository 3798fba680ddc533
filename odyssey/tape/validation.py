"""What is asked of a tape, checked before anything is swept: outputs, cotangents, sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.devices.arrays import ARRAYS, as_array
from odyssey.devices.ownership import copy_with_layout
from odyssey.errors import (
    DTypeError,
    ShapeError,
    TapeConsumedError,
    TapeError,
    TapeMismatchError,
    UntrackedError,
)
from odyssey.ops.elementwise.arithmetic import add
from odyssey.spec import Spec, fits_kind
from odyssey.table.store import operand_of
from odyssey.table.value import (
    CONSTANT,
    LEAF,
    UNTRACKED,
    Symbol,
    Value,
    is_constant,
    is_trainable,
    recording_attribute,
)
from odyssey.tape.recording import Recording
from odyssey.tape.sweep import dependencies, flip
from odyssey.tape.tape_base import TapeBase, recording_of
from odyssey.tape.threads import LEFT_BEHIND
from odyssey.tree import leaves, same_tree
from odyssey.variable import Variable

__all__ = [
    "checked",
    "output_of",
    "reaches_trainable",
    "refuse_consumed",
    "seeds_of",
    "source_of",
    "sources_of",
    "spec_of_either",
    "take_up",
    "unreached",
]


def refuse_consumed(tape: TapeBase, who: str) -> None:
    """Raise if an earlier sweep spent the tape."""
    if recording_of(tape).dead == LEFT_BEHIND:
        raise TapeConsumedError(
            f"{who}: the thread that recorded on this tape is not in this process, which was "
            "forked beside it; record again, or sweep before forking"
        )
    if tape._undelivered:
        raise TapeConsumedError(
            f"{who}: an earlier sweep of this tape was stopped, by an error or interrupt, before "
            "it handed over a gradient, and what it had swept is gone; record again"
        )
    if tape._consumed:
        raise TapeConsumedError(
            f"{who}: an earlier sweep consumed this tape; make it with persistent=True, "
            "or sweep with retain=True, to sweep again"
        )


def id_of(tape: TapeBase, who: str, value: Any, leaf_may_be_new: bool = False) -> int:
    """Return the id of a value on this tape; raise, saying what it is instead."""
    r = recording_of(tape)
    if type(value) is Variable and recording_attribute(value) is r and tape._covers(value._id):
        return value._id
    if isinstance(value, int) and not isinstance(value, bool):
        if value in r.leaves or r.produced(value):
            return value
        raise TapeError(f"{who}: this tape does not know the id {shown(value)}")
    if not isinstance(value, Variable):
        raise TapeError(f"{who}: {_short(value)} is not a Variable; only Variables are on a tape")
    where = recording_attribute(value)
    if where is r:
        if not tape._covers(value._id):
            raise TapeError(
                f"{who}: {value!r} was computed while this tape did not record, by a tape around it"
            )
        return value._id
    if where is LEAF:
        if leaf_may_be_new or value._id in r.leaves:
            return value._id
        raise TapeError(f"{who}: the leaf {value!r} was not used on this tape")
    if where is CONSTANT:
        note = value._info.note if value._info is not None else None
        why = f" (it was made by {note[0]})" if note else ""
        raise TapeError(
            f"{who}: {value!r} is a constant{why}, so it depends on no trainable leaf; "
            "compute it from Variables with requires_grad=True, inside the tape's block"
        )
    if where is UNTRACKED:
        raise UntrackedError(
            f"{who}: {value!r} was computed while nothing recorded; "
            "compute it inside 'with GradientTape() as tape:'"
        )
    if r.guests is not None and value._id in r.guests:
        return value._id
    if where.dead and tape.consumed:
        refuse_consumed(tape, who)
    raise TapeMismatchError(f"{who}: {value!r} lives on {where!r}, not on {r!r}")


def source_of(
    tape: TapeBase, who: str, source: Any, unused: str = "error", leaf_may_be_new: bool = False
) -> int | None:
    """The id of a source: of what was watched, though it was written to since; see ``id_of``.

    None for a constant, on which nothing depends, unless that is an error.
    """
    r = recording_of(tape)
    if isinstance(source, int) and not isinstance(source, bool):
        known = r.known(source)
        source = source if known is None else known
    if isinstance(source, Variable):
        watched = r.asked(source)
        if watched != source._id and tape._covers(watched):
            return watched
        if unused != "error" and is_constant(source):
            return None
    return id_of(tape, who, source, leaf_may_be_new)


def sources_of(
    tape: TapeBase, who: str, sources: list[Any], unused: str
) -> tuple[list[int | None], list[Spec]]:
    """Ids and specs of sources; trainable leaves may be new to the tape."""
    ids: list[int | None] = []
    specs = []
    here = None if tape._gaps else recording_of(tape)
    for source in sources:
        # The commonest ones, spelled out: a third of the time.
        info = source._info if type(source) is Variable else None
        new = info is None and type(source) is Variable and recording_attribute(source) is here
        if new or (
            info is not None and recording_attribute(source) is LEAF and info.watched is None
        ):
            ids.append(source._id)
            specs.append(source._spec)
        else:
            ids.append(source_of(tape, who, source, unused, leaf_may_be_new=True))
            specs.append(spec_of_either(tape, who, source))
    return ids, specs


def output_of(tape: TapeBase, value: Any, unused: str) -> int | None:
    """The id of an output of a forward sweep; None for a constant, unless that is an error."""
    if unused != "error" and isinstance(value, Variable) and is_constant(value):
        return None
    return id_of(tape, "jvp", value, leaf_may_be_new=True)


def spec_of_either(tape: TapeBase, who: str, value: Any) -> Spec:
    """The spec of a Variable, or of what an id on this tape means."""
    spec = value._spec if isinstance(value, Value) else recording_of(tape).spec_of_id(value)
    if spec is None:
        raise ShapeError(f"{who}: the shape of id {value} is not known; pass its Variable")
    return spec


def take_up(recording: Recording, output: Any) -> None:
    """Make trainable leaves that are outputs themselves known to a recording."""
    for value in leaves(output):
        if isinstance(value, Variable) and is_trainable(value):
            recording.place(value, "backward")


def _short(value: Any) -> str:
    return f"{type(value).__name__} {shown(value)}"


def seeds_of(
    tape: TapeBase,
    who: str,
    output: Any,
    grad: Any,
    graph: bool,
    sources: Collection[int] | None = None,
    shown: bool = True,
) -> dict[int, Any]:
    """The cotangents that a sweep starts from, by id.

    They are copies where they may be ``shown`` to somebody, or kept, as they came: their owner may
    write to them later.

    An output may be a source itself; where no sources are named, every trainable leaf is one.
    """
    r = recording_of(tape)
    if r.dead == LEFT_BEHIND or tape._consumed:
        refuse_consumed(tape, who)
    if isinstance(output, Variable):
        here = recording_attribute(output) is r and not tape._gaps
        id = output._id if here else id_of(tape, who, output, _among(sources, output))
        own = output._spec
        if grad is None and own.shape == ():
            return {id: _one(own.dtype)}
        return {id: _seed(who, own, grad, graph, shown)}
    outputs = leaves(output)
    if not outputs:
        raise TapeError(f"{who}: the output is an empty tree")
    ids = [id_of(tape, who, v, _among(sources, v)) for v in outputs]
    none = [None] * len(outputs)
    grads = none if grad is None else same_tree(who, "cotangents", output, grad)
    seeds: dict[int, Any] = {}
    for i, value, given in zip(ids, outputs, grads, strict=True):
        spec = value._spec if isinstance(value, Value) else r.spec_of_id(value)
        g = _seed(who, spec, given, graph, shown)
        seeds[i] = add(seeds[i], g) if i in seeds else g
    return seeds


def _among(sources: Collection[int] | None, value: Any) -> bool:
    return sources is None or (isinstance(value, Value) and value._id in sources)


def _seed(who: str, spec: Spec | None, given: Any, graph: bool, shown: bool) -> Any:
    """The cotangent of one output: as given, or 1 for a single element."""
    if (
        type(given) in ARRAYS
        and spec is not None
        and given.dtype is spec.dtype
        and given.shape == spec.shape
        and not spec.is_complex
    ):
        return copy_with_layout(given) if shown else given  # the commonest, spelled out
    if given is not None:
        g = checked(who, "cotangent", spec, given, graph)
        return flip(copy_with_layout(g) if shown and isinstance(g, ARRAYS) else g)
    if spec is not None and spec.shape == ():
        return _one(spec.dtype)
    if spec is None or spec.size != 1:
        shape = "unknown" if spec is None else spec.shape
        raise ShapeError(
            f"{who}: the output has shape {shape}; only one element can do without a cotangent, "
            "so reduce it, or pass grad= of that shape"
        )
    return np.ones(spec.shape, spec.dtype)


@cache
def _one(dtype: np.dtype[Any]) -> Any:
    return dtype.type(1)


def checked(who: str, what: str, spec: Spec | None, given: Any, graph: bool) -> Any:
    """Check a cotangent or tangent against the value that it belongs to, and cast it."""
    if isinstance(given, Variable) and not graph:
        given = operand_of(given)
    if not isinstance(given, (Variable, Symbol)):
        given = as_array(who, f"the {what}", given)
    if spec is None:
        return given
    if given.shape != spec.shape:
        raise ShapeError(
            f"{who}: the {what} has shape {given.shape}, its value {spec.shape}; they must match"
        )
    if given.dtype == spec.dtype:
        return given
    if not fits_kind(given.dtype, spec.dtype):
        raise DTypeError(f"{who}: a {what} of {given.dtype} came for a value of {spec.dtype}")
    return given.astype(spec.dtype)


def unreached(
    tape: TapeBase, ids: list[int | None], seeds: Iterable[int], start: int
) -> int | None:
    """The place of the first source that no seed depends on; a sweep over ids alone."""
    nodes = recording_of(tape).nodes
    found: set[int | None] = set(seeds)
    gaps = tape._gaps
    for _, id, inputs, _, _ in islice(reversed(nodes), len(nodes) - start):
        if id in found and not (gaps and not tape._covers(id)):
            found.update(inputs)
    return next((place for place, i in enumerate(ids) if i not in found), None)


def reaches_trainable(tape: TapeBase, seeds: dict[int, Any]) -> bool:
    """Whether an output depends on a trainable leaf or a watched value."""
    r = recording_of(tape)
    ends = {i for i, leaf in r.leaves.items() if is_trainable(leaf)} | r.watched.keys()
    return not ends.isdisjoint(dependencies(r.nodes, seeds))
