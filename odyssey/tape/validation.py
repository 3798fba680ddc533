"""Validation of tape queries before a sweep: outputs, cotangents, sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import ARRAYS, as_array
from odyssey.devices.ownership import copy_with_layout
from odyssey.devices.same_device import (
    HOST_TYPES,
    cast_beside,
    namespace_of,
    ones_beside,
    place_as,
)
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
from odyssey.tape.sweep import conj_if_complex, dependencies
from odyssey.tape.tape_base import TapeBase, recording_of
from odyssey.tape.threads import LOST_IN_FORK
from odyssey.tree import leaves, same_tree
from odyssey.variable import Variable

__all__ = [
    "check_cotangent",
    "first_unreached",
    "output_id",
    "reaches_trainable",
    "refuse_consumed",
    "register_output_leaves",
    "seed_cotangents",
    "source_id",
    "source_ids_and_specs",
    "spec_of_value_or_id",
]


def refuse_consumed(tape: TapeBase, who: str) -> None:
    """Raise TapeConsumedError if an earlier sweep consumed the tape."""
    if recording_of(tape).dead == LOST_IN_FORK:
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


def id_on_tape(tape: TapeBase, who: str, value: Any, leaf_may_be_new: bool = False) -> int:
    """Return the id of a value on this tape; else raise an error that says home the value is."""
    r = recording_of(tape)
    if type(value) is Variable and recording_attribute(value) is r and tape._covers(value._id):
        return value._id
    if isinstance(value, int) and not isinstance(value, bool):
        if value in r.leaves or r.is_result(value):
            return value
        raise TapeError(f"{who}: this tape does not know the id {format_value(value)}")
    if not isinstance(value, Variable):
        raise TapeError(
            f"{who}: {_described(value)} is not a Variable; only Variables are on a tape"
        )
    home = recording_attribute(value)
    if home is r:
        if not tape._covers(value._id):
            raise TapeError(
                f"{who}: {value!r} was computed while this tape did not record, by a tape around it"
            )
        return value._id
    if home is LEAF:
        if leaf_may_be_new or value._id in r.leaves:
            return value._id
        raise TapeError(f"{who}: the leaf {value!r} was not used on this tape")
    if home is CONSTANT:
        cut = value._info.note if value._info is not None else None
        origin = f" (it was made by {cut[0]})" if cut else ""
        raise TapeError(
            f"{who}: {value!r} is a constant{origin}, so it depends on no trainable leaf; "
            "compute it from Variables with requires_grad=True, inside the tape's block"
        )
    if home is UNTRACKED:
        raise UntrackedError(
            f"{who}: {value!r} was computed while nothing recorded; "
            "compute it inside 'with GradientTape() as tape:'"
        )
    if r.outer_values is not None and value._id in r.outer_values:
        return value._id
    if home.dead and tape.consumed:
        refuse_consumed(tape, who)
    raise TapeMismatchError(f"{who}: {value!r} lives on {home!r}, not on {r!r}")


def source_id(
    tape: TapeBase, who: str, source: Any, unused: str = "error", leaf_may_be_new: bool = False
) -> int | None:
    """Return the id of a source, the watched id if it was watched; see ``id_on_tape``.

    A constant, on which nothing depends, has the id None unless ``unused`` makes that an error.
    """
    r = recording_of(tape)
    if isinstance(source, int) and not isinstance(source, bool):
        known = r.value_of_id(source)
        source = source if known is None else known
    if isinstance(source, Variable):
        watched = r.query_id(source)
        if watched != source._id and tape._covers(watched):
            return watched
        if unused != "error" and is_constant(source):
            return None
    return id_on_tape(tape, who, source, leaf_may_be_new)


def source_ids_and_specs(
    tape: TapeBase, who: str, sources: list[Any], unused: str
) -> tuple[list[int | None], list[Spec]]:
    """Return ids and specs of sources; trainable leaves may be is_recorded to the tape."""
    ids: list[int | None] = []
    specs = []
    recording = None if tape._gaps else recording_of(tape)
    for source in sources:
        # Fast path for the most frequent cases: a third of the time.
        info = source._info if type(source) is Variable else None
        is_recorded = (
            info is None and type(source) is Variable and recording_attribute(source) is recording
        )
        if is_recorded or (
            info is not None and recording_attribute(source) is LEAF and info.watched is None
        ):
            ids.append(source._id)
            specs.append(source._spec)
        else:
            ids.append(source_id(tape, who, source, unused, leaf_may_be_new=True))
            specs.append(spec_of_value_or_id(tape, who, source))
    return ids, specs


def output_id(tape: TapeBase, value: Any, unused: str) -> int | None:
    """Return the id of an output of ``jvp``; None for a constant, unless that is an error."""
    if unused != "error" and isinstance(value, Variable) and is_constant(value):
        return None
    return id_on_tape(tape, "jvp", value, leaf_may_be_new=True)


def spec_of_value_or_id(tape: TapeBase, who: str, value: Any) -> Spec:
    """Return the spec of a Variable, or of the value with an id on this tape."""
    spec = value._spec if isinstance(value, Value) else recording_of(tape).spec_of_id(value)
    if spec is None:
        raise ShapeError(f"{who}: the shape of id {value} is not known; pass its Variable")
    return spec


def register_output_leaves(recording: Recording, output: Any) -> None:
    """Add trainable leaves that are outputs themselves to a recording."""
    for value in leaves(output):
        if isinstance(value, Variable) and is_trainable(value):
            recording.operand_id(value, "backward")


def _described(value: Any) -> str:
    return f"{type(value).__name__} {format_value(value)}"


def seed_cotangents(
    tape: TapeBase,
    who: str,
    output: Any,
    grad: Any,
    graph: bool,
    sources: Collection[int] | None = None,
    exposed: bool = True,
) -> dict[int, Any]:
    """Return the cotangents that a sweep starts from, by id.

    They are copies if they may be ``exposed`` to others or kept, because their owner may write to
    them later. An output may be a source itself. If no sources are named, every trainable leaf is
    one.
    """
    r = recording_of(tape)
    if r.dead == LOST_IN_FORK or tape._consumed:
        refuse_consumed(tape, who)
    if isinstance(output, Variable):
        is_recorded = recording_attribute(output) is r and not tape._gaps
        id = (
            output._id
            if is_recorded
            else id_on_tape(tape, who, output, _is_source(sources, output))
        )
        own = output._spec
        if grad is None and own.shape == () and type(output._array) in HOST_TYPES:
            return {id: _scalar_one(own.dtype)}
        return {id: _seed_cotangent(who, own, grad, graph, exposed, output)}
    outputs = leaves(output)
    if not outputs:
        raise TapeError(f"{who}: the output is an empty tree")
    ids = [id_on_tape(tape, who, v, _is_source(sources, v)) for v in outputs]
    none = [None] * len(outputs)
    grads = none if grad is None else same_tree(who, "cotangents", output, grad)
    seeds: dict[int, Any] = {}
    for i, value, given in zip(ids, outputs, grads, strict=True):
        spec = value._spec if isinstance(value, Value) else r.spec_of_id(value)
        like = value if isinstance(value, Value) else leaf_on_device(r)
        g = _seed_cotangent(who, spec, given, graph, exposed, like)
        seeds[i] = add(seeds[i], g) if i in seeds else g
    return seeds


def _is_source(sources: Collection[int] | None, value: Any) -> bool:
    """True if ``value`` may be a source itself, so that a leaf may be new to the tape."""
    return sources is None or (isinstance(value, Value) and value._id in sources)


def _seed_cotangent(
    who: str, spec: Spec | None, given: Any, graph: bool, exposed: bool, like: Any
) -> Any:
    """Return the cotangent of one output: the given one, or 1 for a single element.

    It lies on the device of the Variable ``like``.
    """
    if (
        type(given) in ARRAYS
        and spec is not None
        and given.dtype is spec.dtype
        and given.shape == spec.shape
        and not spec.is_complex
        and type(given) in HOST_TYPES
        and (like is None or type(like._array) in HOST_TYPES)
    ):
        return copy_with_layout(given) if exposed else given  # fast path for the most frequent case
    if given is not None:
        g = check_cotangent(who, "cotangent", spec, given, graph, like)
        return conj_if_complex(copy_with_layout(g) if exposed and isinstance(g, ARRAYS) else g)
    if spec is not None and spec.shape == () and namespace_of(like) is np:
        return _scalar_one(spec.dtype)
    if spec is None or spec.size != 1:
        shape = "unknown" if spec is None else spec.shape
        raise ShapeError(
            f"{who}: the output has shape {shape}; only one element can do without a cotangent, "
            "so reduce it, or pass grad= of that shape"
        )
    return ones_beside(spec, like)


def leaf_on_device(recording: Recording) -> Value | None:
    """Return a leaf or watched Variable of a recording that lies on a device; None if none does."""
    watched = [value for ref in list(recording.watched.values()) if (value := ref()) is not None]
    found = (*list(recording.leaves.values()), *watched)
    return next((value for value in found if namespace_of(value) is not np), None)


@cache
def _scalar_one(dtype: np.dtype[Any]) -> Any:
    return dtype.type(1)


def check_cotangent(
    who: str, what: str, spec: Spec | None, given: Any, graph: bool, like: Any = None
) -> Any:
    """Check a cotangent or tangent against its value, and cast it to the dtype of the value.

    Numbers of the host come to the device of ``like``, the value or its array.
    """
    if isinstance(given, Variable) and not graph:
        given = operand_of(given)
    if not isinstance(given, (Variable, Symbol)):
        given = as_array(who, f"the {what}", given)
    if like is not None and not isinstance(given, Symbol):
        given = place_as(who, f"the {what}", given, like)
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
    return cast_beside(given, spec.dtype) if isinstance(given, ARRAYS) else given.astype(spec.dtype)


def first_unreached(
    tape: TapeBase, ids: list[int | None], seeds: Iterable[int], start: int
) -> int | None:
    """Return the index of the first source that no seed depends on; None if all are reached."""
    nodes = recording_of(tape).nodes
    reached: set[int | None] = set(seeds)
    gaps = tape._gaps
    for _, id, inputs, _, _ in islice(reversed(nodes), len(nodes) - start):
        if id in reached and not (gaps and not tape._covers(id)):
            reached.update(inputs)
    return next((index for index, i in enumerate(ids) if i not in reached), None)


def reaches_trainable(tape: TapeBase, seeds: dict[int, Any]) -> bool:
    """True if an output depends on a trainable leaf or a watched value."""
    r = recording_of(tape)
    ends = {i for i, leaf in r.leaves.items() if is_trainable(leaf)} | r.watched.keys()
    return not ends.isdisjoint(dependencies(r.nodes, seeds))
