"""Queries of a tape: backward, gradient and jvp, and the delivery of their results."""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import islice, starmap
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.checks import (
    STUMBLES,
    check_choice,
    check_flag,
    describe_type,
    error_class_of,
    hides_frame,
)
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.devices.commit import run_all
from odyssey.devices.copy_on_write import note_kept_recording
from odyssey.devices.ownership import owns_memory
from odyssey.devices.same_device import (
    add_beside,
    array_copy,
    call_beside,
    namespace_of,
    zeros_beside,
)
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import (
    OdysseyError,
    ShapeError,
    TapeError,
    TapeMismatchError,
)
from odyssey.ops.elementwise.arithmetic import add
from odyssey.sparse_rows import SparseRows, with_row_rules
from odyssey.spec import Spec
from odyssey.table.store import MEMORY, Store, store
from odyssey.table.tree_sources import fixed_leaves
from odyssey.table.value import (
    LEAF,
    PLAIN,
    Info,
    Symbol,
    Value,
    is_trainable,
    next_ticket,
    recording_attribute,
)
from odyssey.tape.gradients import Gradients, query_id_of
from odyssey.tape.hooks import Hooks, apply_hooks
from odyssey.tape.liveness import measured_refcount, refcount
from odyssey.tape.recording import RawNode, Recording
from odyssey.tape.sweep import (
    OWN_REFERENCES,
    Visit,
    backward_sweep,
    conj_if_complex,
    definite_dependencies,
    dependents,
    first_dependent,
    forward_sweep,
    pop_nodes,
    with_variables,
)
from odyssey.tape.tape_base import TapeBase, recording_of
from odyssey.tape.threads import recorded_elsewhere_error, swept_elsewhere_error
from odyssey.tape.validation import (
    check_cotangent,
    first_unreached,
    output_id,
    reaches_trainable,
    refuse_consumed,
    register_output_leaves,
    seed_cotangents,
    source_ids_and_specs,
    spec_of_value_or_id,
)
from odyssey.tree import flatten, leaves, same_tree, unflatten
from odyssey.variable import Variable, resolve_gradient, writable_alias

__all__ = [
    "Sources",
    "conj_if_recorded",
    "deliver",
    "deliver_to_store",
    "exclusive_array",
    "gradient_results",
    "leaf_cotangents",
    "run_backward",
    "run_gradient",
    "run_jvp",
    "unused_result",
]


_OWN_ERRORS = (OdysseyError, FloatingPointError)

# The default of ``unused``.
_DEFAULT_UNUSED = "error"


class Sources:
    """Sources of ``gradient`` and ``jvp`` as lists of ids, specs and arrays.

    Transforms use them for the Variables that they create. A function that writes to these
    Variables does not change the sources.
    """

    __slots__ = ("arrays", "ids", "specs")

    def __init__(self) -> None:
        self.ids: list[int | None] = []
        self.specs: list[Spec] = []
        self.arrays: list[Any] = []

    def select(self, k: int) -> Sources:
        """Return source number ``k`` alone."""
        one = Sources()
        one.ids, one.specs, one.arrays = [self.ids[k]], [self.specs[k]], [self.arrays[k]]
        return one


# ------------------------------------------------------------------ backward, gradient, jvp


def run_backward(tape: TapeBase, output: Any, grad: Any, retain: bool) -> Gradients:
    """See ``GradientTape.backward``."""
    __tracebackhide__ = hides_frame
    r = recording_of(tape)
    graph = bool(tape._outer_tapes) and tape._is_followed()
    seeds = seed_cotangents(tape, "backward", output, grad, graph)
    since = next_ticket()
    frozen = r.verify(since)
    if type(output) is not Variable or recording_attribute(output) is not r:
        register_output_leaves(r, output)
    # Without manual records and frozen leaves, every result depends on a trainable leaf.
    usual = r.leaves and not (frozen or r.manual)
    if not usual and not reaches_trainable(tape, seeds):
        raise TapeError(
            f"backward: {output!r} depends on no trainable leaf of this tape; "
            "make parameters with requires_grad=True"
        )
    keep = tape.persistent or (retain is not False and check_flag("backward", "retain", retain))
    if keep:
        note_kept_recording(r)
    hooks = Hooks(tape) if tape._hooks else None
    reached: dict[int, Any] = {}
    visit = None if hooks is None else hooks.apply
    current = store()
    definite = definite_dependencies(r.nodes, seeds) if current is not MEMORY else set()
    sparse = _sparse_leaves(r) if Info.any_sparse and not graph else None
    rest = _sweep_backward(tape, r, since, seeds, graph, keep, visit, reached, sparse=sparse)
    # The rules of this package return new arrays of the right spec; others may return anything.
    untrusted = bool(hooks or r.may_fail or r.manual)
    if untrusted or graph or current is not MEMORY:
        # Conjugation of a Variable is an op, to be recorded here; arrays are conjugated later.
        with tape._resume_recording() if graph else nullcontext():
            rest = leaf_cotangents(r, hooks, rest)
            reached = {i: conj_if_recorded(g) for i, g in reached.items()}
    if current is not MEMORY:
        gradients = deliver_to_store(current, r, rest, reached, definite)
        if hooks is not None:
            tape._hooks = hooks.pending()
        tape._undelivered = False
    else:
        gradients = deliver(tape, r, rest, reached, untrusted, keep, hooks)
    if not keep:
        tape._consume()
    return gradients


def _sparse_leaves(r: Recording) -> set[int]:
    """Return the ids of the leaves whose gradients may be sparse rows."""
    return {i for i, leaf in list(r.leaves.items()) if leaf._info.sparse_grad}


def run_gradient(
    tape: TapeBase, output: Any, sources: Any, grad: Any, unused: str, create_graph: bool
) -> Any:
    """See ``GradientTape.gradient``."""
    __tracebackhide__ = hides_frame
    if unused is not _DEFAULT_UNUSED:
        check_choice("gradient", "unused", unused, ("error", "zero", "none"), TapeError)
    create_graph = create_graph is not False and check_flag(
        "gradient", "create_graph", create_graph
    )
    graph = create_graph or (bool(tape._outer_tapes) and tape._is_followed())
    if tape._consumed or tape._undelivered or recording_of(tape).dead:
        refuse_consumed(tape, "gradient")
    if type(sources) is Sources:
        ids, specs = sources.ids, sources.specs
    else:
        found, restore = _sources_of("gradient", sources)
        ids, specs = source_ids_and_specs(tape, "gradient", found, unused)
        del found  # the sweep counts references
    source_ids: set[Any] = set(ids)
    source_ids.discard(None)
    r = recording_of(tape)
    hooks = Hooks(tape) if tape._hooks else None
    exposed = graph or bool(hooks) or r.may_fail or store() is not MEMORY
    seeds = seed_cotangents(tape, "gradient", output, grad, graph, source_ids, exposed)
    since = next_ticket()
    r.verify(since)
    keep = tape.persistent or create_graph
    if tape.persistent:
        note_kept_recording(r)
    # If no node produced a source, as for the arguments of a transform, its cotangent remains at
    # the end of the sweep, and need not be collected on the way.
    first = r.nodes[0][1] if type(sources) is Sources and r.nodes and not r.manual else 0
    is_argument = not hooks and max(source_ids, default=-1) < first
    start = 0 if is_argument else first_dependent(r, source_ids)
    wanted, lost = _needed_ids(tape, ids, source_ids, seeds, unused, start)
    if lost is not None:
        if id(tape) not in r.open:
            raise swept_elsewhere_error()
        source = _sources_of("gradient", sources)[0][lost]
        raise TapeError(
            f"gradient: the output does not depend on {source!r}; "
            "tape.explain(output, source) says why; pass unused='zero' or 'none' if that is meant"
        )
    only_leaves = is_argument or (not hooks and source_ids <= r.leaves.keys())
    collected: dict[int | None, Any] = {}
    visit = None if only_leaves else partial(_collect_source, hooks, source_ids, collected)
    asked = type(sources) is not Sources and unused != "zero" and store() is not MEMORY
    definite = definite_dependencies(r.nodes, seeds) if asked else source_ids
    rest = dict(seeds) if wanted is None else {i: g for i, g in seeds.items() if i in wanted}
    rest = _sweep_backward(tape, r, since, rest, graph, keep, visit, None, wanted, start)
    if only_leaves:
        collected = rest  # type: ignore[assignment]
    else:
        collected |= {i: apply_hooks(hooks, i, g) for i, g in rest.items() if i in source_ids}
    for i, source in zip(ids, _sources_of("gradient", sources)[0], strict=True) if asked else ():
        if i in collected and i not in definite:
            store().only_eagerly(_conditional_gradient(source))
    likes = _values_of(sources) if unused == "zero" else None
    results = gradient_results(
        list(map(collected.get, ids)), specs, unused, seeds, r.may_fail, likes
    )
    if graph:
        results = [Variable(g) if isinstance(g, ARRAYS) else g for g in results]
    if type(sources) is Sources:
        result: Any = results
    else:
        result = restore(results)
    if hooks is not None:
        tape._hooks = hooks.pending()
    tape._undelivered = False
    if not keep:
        tape._consume()
    return result


def _sources_of(who: str, sources: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves of a tree that have gradients, and a function that puts these into it."""
    if type(sources) is Variable:
        return [sources], _only_result
    flat = leaves(sources)
    fixed = fixed_leaves(sources, flat, variables=True)
    if not fixed:
        return flat, partial(unflatten, sources)
    if len(fixed) == len(flat):
        raise TapeError(
            f"{who}: {describe_type(sources)} holds no Variable with a gradient; make parameters "
            "with requires_grad=True"
        )
    found = [leaf for k, leaf in enumerate(flat) if k not in fixed]
    return found, partial(_with_fixed, sources, fixed, len(flat))


def _values_of(sources: Any) -> list[Any]:
    """Return the arrays, Variables or ids of sources."""
    return sources.arrays if type(sources) is Sources else _sources_of("gradient", sources)[0]


def _only_result(results: list[Any]) -> Any:
    return results[0]


def _with_fixed(tree: Any, fixed: frozenset[int], count: int, values: list[Any]) -> Any:
    """Return a tree of values, with None for its fixed leaves."""
    supply = iter(values)
    return unflatten(tree, [None if k in fixed else next(supply) for k in range(count)])


def _needed_ids(
    tape: TapeBase,
    ids: list[int | None],
    source_ids: set[int],
    seeds: dict[int, Any],
    unused: str,
    start: int,
) -> tuple[set[int] | None, int | None]:
    """Return the ids whose cotangents are needed, and the index of a source that nothing reaches.

    The ids are None if all are needed. The index is searched for only if such a source is an error.
    """
    r = recording_of(tape)
    # If every leaf is a source, every node depends on the sources.
    all_needed = (
        not (r.manual or r.outer_values)
        and r.leaves.keys() <= source_ids
        and r.watched.keys() <= source_ids
    )
    if unused != "error":
        return (None if all_needed else dependents(r.nodes[start:], source_ids)), None
    if len(source_ids) == 1 and not tape._gaps:
        wanted = dependents(r.nodes[start:] if start else r.nodes, source_ids)
        return (None if all_needed else wanted), (0 if wanted.isdisjoint(seeds) else None)
    lost = first_unreached(tape, ids, seeds, start)
    return (
        None if all_needed or lost is not None else dependents(r.nodes[start:], source_ids)
    ), lost


def _collect_source(
    hooks: Hooks | None, source_ids: set[int], collected: dict[int | None, Any], i: int, g: Any
) -> Any:
    """Visit a node in a sweep: store the cotangent of a source; see ``backward_sweep``."""
    g = apply_hooks(hooks, i, g)
    if i in source_ids:
        collected[i] = g
    return g


def run_jvp(tape: TapeBase, output: Any, sources: Any, tangents: Any, unused: str) -> Any:
    """See ``GradientTape.jvp``."""
    __tracebackhide__ = hides_frame
    check_choice("jvp", "unused", unused, ("error", "zero", "none"), TapeError)
    refuse_consumed(tape, "jvp")
    graph = tape._is_followed()
    outputs, rebuild = flatten(output)
    out_ids = [output_id(tape, value, unused) for value in outputs]
    out_specs = [spec_of_value_or_id(tape, "jvp", value) for value in outputs]
    if type(sources) is Sources:
        ids, specs, given_tangents = sources.ids, sources.specs, tangents
    else:
        flat = leaves(sources)
        fixed = fixed_leaves(sources, flat, variables=True)
        found = [leaf for k, leaf in enumerate(flat) if k not in fixed]
        ids, specs = source_ids_and_specs(tape, "jvp", found, unused)
        moved = same_tree("jvp", "tangents", sources, tangents)
        given_tangents = [t for k, t in enumerate(moved) if k not in fixed]
    tangent_by_id: dict[int, Any] = {}
    likes = sources.arrays if type(sources) is Sources else found
    for i, spec, t, like in zip(ids, specs, given_tangents, likes, strict=True):
        t = check_cotangent("jvp", "tangent", spec, t, graph, like)
        if i is not None:
            tangent_by_id[i] = add(tangent_by_id[i], t) if i in tangent_by_id else t
    r = recording_of(tape)
    r.verify(next_ticket())
    sweep_forward = forward_sweep
    if r.checks is not None:
        r.checks.check_outputs(out_ids)
        sweep_forward = partial(r.checks.run_sweep, forward_sweep)
    sweep_forward = partial(call_beside, next(iter(tangent_by_id.values()), None), sweep_forward)
    shared_ids = {
        *map(id, given_tangents),
        *map(id, tangent_by_id.values()),
    }  # including arrays of Variables
    # A source that is itself a result has the given_tangents tangent, not a computed one.
    given_ids = set(tangent_by_id)
    start = first_dependent(r, given_ids)
    nodes = _covered_nodes(tape, iter(r.nodes[start:]))
    if r.manual or (r.nodes and max(given_ids, default=0) >= r.nodes[0][1]):
        nodes = (node for node in nodes if node[1] not in given_ids)
    if graph:
        with tape._resume_recording():
            sweep_forward(with_variables(list(nodes), r), tangent_by_id)
    else:
        if r.rounding is not None:
            nodes = map(partial(r.rounding.widened_if_moved, tangent_by_id), nodes)
        sweep_forward(nodes, tangent_by_id)
    r.verify_after(r.may_fail)
    lost = next((v for i, v in zip(out_ids, outputs, strict=True) if i not in tangent_by_id), None)
    if unused == "error" and lost is not None:
        raise TapeError(f"jvp: {lost!r} does not depend on the sources; see unused=")
    results = [
        exclusive_array(tangent_by_id[i], shared_ids, r.may_fail)
        if i in tangent_by_id
        else unused_result(spec, unused, value)
        for i, spec, value in zip(out_ids, out_specs, outputs, strict=True)
    ]
    if graph:
        results = [Variable(t) if isinstance(t, ARRAYS) else t for t in results]
    return rebuild(results)


# ------------------------------------------------------------------ the backward sweep


def _covered_nodes(tape: TapeBase, nodes: Iterator[RawNode]) -> Iterator[RawNode]:
    """Drop the nodes that other tapes recorded while this tape did not."""
    r = recording_of(tape)
    if not tape._gaps or not r.nodes or (r.nodes[-1][1] < tape._gaps[0] and not r.manual):
        return nodes
    return filter(lambda node: tape._covers(node[1]), nodes)


def _sweep_backward(
    tape: TapeBase,
    r: Recording,
    since: int,
    seeds: dict[int, Any],
    graph: bool,
    keep: bool,
    visit: Visit | None,
    reached: dict[int, Any] | None = None,
    wanted: set[int] | None = None,
    start: int = 0,
    sparse: set[int] | None = None,
) -> dict[int, Any]:
    """Sweep backward from ``seeds``.

    A tape whose nodes are freed in the sweep is consumed from the beginning. ``_undelivered`` is
    set until the results are delivered.

    Args:
        tape: The tape to sweep.
        r: The recording of the query; the tape has another if it was cleared since.
        since: The ticket that was drawn before leaves were verified.
        seeds: The cotangents to begin with, by id; consumed.
        graph: Record the sweep.
        keep: Keep the nodes for another sweep.
        visit: See ``backward_sweep``.
        reached: See ``backward_sweep``.
        wanted: See ``backward_sweep``.
        start: The number of the first node that matters.
        sparse: The ids of leaves whose gradients may be sparse rows.

    Returns:
        The cotangents of values that no node produced.
    """
    current = store()
    if current is not MEMORY:
        current.check_sweep(r)
    rest = seeds  # on return the cotangents that remain
    audit = r.checks
    run_sweep = backward_sweep if audit is None else partial(audit.run_sweep, backward_sweep)
    trusted = not (r.may_fail or tape._hooks)  # no rule or hook of users runs
    if graph:
        nodes = list(_covered_nodes(tape, iter(r.nodes[start:][::-1])))
        with tape._resume_recording():
            run_sweep = partial(call_beside, next(iter(rest.values()), None), run_sweep)
            run_sweep(with_variables(nodes, r), rest, reached, 0, wanted, visit, audit, nodes)
        if id(tape) not in r.open:
            raise swept_elsewhere_error()
        r.verify_after(not trusted)
        return rest
    # Nodes are freed during the sweep if no other tape needs them.
    draining = trusted and not (keep or r.checks or len(r.open) > 1)
    back = (
        pop_nodes(r.nodes, start) if draining else islice(reversed(r.nodes), len(r.nodes) - start)
    )
    if tape._gaps:
        back = _covered_nodes(tape, back)
    if r.rounding is not None:
        back = map(partial(r.rounding.widened_if_reached, rest), back)
    if sparse:
        back = map(partial(with_row_rules, sparse), back)
    arrays_only = trusted and not (r.traced or r.manual or current is not MEMORY)
    arrays_only = arrays_only and PLAIN.issuperset(map(type, rest.values()))
    if not arrays_only and rest:
        run_sweep = partial(call_beside, next(iter(rest.values())), run_sweep)
    if draining:
        if r.open.pop(id(tape), None) is None:  # one sweep removes it, and owns the nodes
            raise swept_elsewhere_error()
        r.thread = get_ident()
        tape._undelivered = True
        tape._consumed = True
    # Only results with a living Variable can be looked up, unless the nodes are kept.
    own_refs = OWN_REFERENCES if draining else 0
    try:
        run_sweep(back, rest, reached, own_refs, wanted, visit, audit, r.nodes, arrays_only)
        if draining:
            if len(r.nodes) > start:
                raise recorded_elsewhere_error()
        elif id(tape) not in r.open:
            raise swept_elsewhere_error()
        if not trusted or next_ticket() != since + 1:
            r.verify_after(not trusted)
    except BaseException as error:
        if r.manual and isinstance(error, STUMBLES) and not isinstance(error, _OWN_ERRORS):
            raise error_class_of(error)(
                f"a rule could not use what was recorded by hand: {error}; GradientTape(check=True)"
                " compares manual records with what their ops compute"
            ) from error
        raise
    return rest


# ------------------------------------------------------------------ results and leaf gradients


def exclusive_array(g: Any, taken: set[int], untrusted: bool) -> Any:
    """Return ``g`` as an array, or a Variable, that has no other owner.

    Args:
        g: A cotangent or tangent.
        taken: Ids of the arrays that were returned before.
        untrusted: True if a rule of users may keep a reference to ``g``.
    """
    if type(g) is SparseRows:
        return g.copy()  # the values may be a view of another cotangent
    if type(g) is not np.ndarray:
        # A Variable may be a seed, or the gradient of another source as well.
        if isinstance(g, (Variable, Symbol)):
            return writable_alias(g)
        if namespace_of(g) is np:
            return np.asarray(g)
        if untrusted or id(g) in taken or not owns_memory(g):
            g = array_copy(g)
        taken.add(id(g))
        return g
    if untrusted or id(g) in taken:
        g = g.copy()
    elif not owns_memory(g):
        g = _owner_in_view_shape(g) if _is_sole_full_view(g) else g.copy()
    taken.add(id(g))
    return g


def _is_sole_full_view(view: Any) -> bool:
    """True if ``view`` shows the whole of an array that has no other holder, as after reshape."""
    return bool(
        type(view.base) is ndarray
        and _owner_references(view) <= _ONE_VIEW
        and view.dtype is view.base.dtype
        and view.nbytes == view.base.nbytes
        and view.flags.c_contiguous
        and view.base.flags.c_contiguous
        and view.base.flags.owndata
        and owns_memory(view.base)
    )


def _owner_in_view_shape(view: Any) -> Any:
    """Return the array that ``view`` shows, reshaped in place to the shape of the view."""
    owner = view.base
    owner.resize(view.shape, refcheck=False)  # keeps all elements
    return owner


def _owner_references(view: Any) -> int:
    """Return the reference count of the array that ``view`` shows."""
    return refcount(view.base)


# With at most this many references to an array, only one view holds it.
_ONE_VIEW = measured_refcount(lambda: _owner_references(np.zeros(2).reshape(2, 1)), places=1)


def gradient_results(
    cotangents: list[Any],
    specs: list[Spec],
    unused: str,
    seeds: dict[int, Any],
    untrusted: bool,
    likes: list[Any] | None,
) -> list[Any]:
    """Return the gradient of each source, or its substitute, as arrays without another owner.

    Zeros lie on the devices of the sources, which are ``likes`` where zeros are asked for.
    """
    taken = set(map(id, seeds.values()))
    # True if all are distinct from each other and from the seeds.
    distinct = len({*taken, *map(id, cotangents)}) == len(taken) + len(cotangents)
    usual = distinct and not untrusted
    results = []
    for g, spec in zip(cotangents, specs, strict=True):
        # Fast path for the most frequent case: a third of the time.
        if (
            usual
            and type(g) is ndarray
            and g.base is None
            and g.dtype is spec.dtype
            and g.shape == spec.shape
            and g.flags.writeable
            and not spec.is_complex
        ):
            results.append(g)
        else:
            like = None if likes is None else likes[len(results)]
            results.append(_gradient_result(g, spec, unused, taken, untrusted, like))
    return results


def _gradient_result(
    g: Any, spec: Spec, unused: str, taken: set[int], untrusted: bool, like: Any
) -> Any:
    """Return what ``gradient`` returns for a source of this spec; see ``exclusive_array``."""
    if g is None:
        return unused_result(spec, unused, like)
    _check_result(g, spec)
    return exclusive_array(conj_if_complex(g), taken, untrusted)


def unused_result(spec: Spec, unused: str, like: Any = None) -> Any:
    """Return the derivative of an output that does not depend on a source: zeros, or None.

    Zeros lie on the device of ``like``, an array or a Variable.
    """
    return zeros_beside(spec, like) if unused == "zero" else None


def _check_result(g: Any, spec: Spec) -> None:
    """Raise ShapeError if a rule of users returned a gradient of another spec."""
    if g.shape != spec.shape or g.dtype != spec.dtype:
        raise ShapeError(
            f"a rule gave a gradient of {g.dtype}{list(g.shape)} for a value of shape {spec.shape} "
            f"and {spec.dtype}; check rules of your own with od.testing.check_gradients"
        )


def _check_accumulation(leaf: Value, g: Any) -> None:
    """Raise TapeMismatchError, before any gradient is set, if the sum would join two tapes."""
    old = leaf._info.grad
    if isinstance(old, Variable) and isinstance(g, Variable):
        homes = [recording_attribute(v) for v in (old, g) if not v.is_leaf]
        if len(homes) == 2 and homes[0] is not homes[1] and not homes[0].dead:
            raise TapeMismatchError(
                f"backward: the gradient of {leaf!r} was recorded on {homes[0]!r}, which still "
                f"lives, and now comes on {homes[1]!r}; zero_grad() first, or use gradient()"
            )


def leaf_cotangents(r: Recording, hooks: Hooks | None, rest: dict[int, Any]) -> dict[int, Any]:
    """Return the cotangents of the leaves; all that may fail in a delivery is done here."""
    checked = {}
    for i, leaf in list(r.leaves.items()):  # user functions may add leaves
        if i in rest and is_trainable(leaf):
            g = apply_hooks(hooks, i, rest[i])
            _check_result(g, leaf._spec)
            checked[i] = g = conj_if_recorded(g)
            _check_accumulation(leaf, g)
    return checked


def conj_if_recorded(g: Any) -> Any:
    """Conjugate Variables and Symbols only."""
    known = isinstance(g.values if type(g) is SparseRows else g, ARRAY_LIKE)
    return g if known else conj_if_complex(g)


def deliver(
    tape: TapeBase,
    r: Recording,
    rest: dict[int, Any],
    reached: dict[int, Any],
    untrusted: bool,
    keep: bool,
    hooks: Hooks | None,
) -> Gradients:
    """Add to the gradients of the leaves, and return the mapping that ``backward`` returns.

    Args:
        tape: The tape that was swept.
        r: Its recording, with its leaves and watched values.
        rest: Cotangents, among them those of the leaves.
        reached: Cotangents of results.
        untrusted: True if a rule of users may keep or share the array that it returned.
        keep: True if the tape may be swept again.
        hooks: The hooks that the sweep called, or None.
    """
    leaf_gradients: dict[Any, Any] = {}
    gradients = Gradients(reached, leaf_gradients)
    if r.watched:
        _list_watched(r, reached, gradients)
    loan = weakref.ref(gradients)
    # True if one may share memory with another, or with an array that a user's rule keeps.
    shared = untrusted or len(set(map(id, rest.values()))) < len(rest)
    taken: set[int] = set()
    # Attributes that are set in one C call, those of the tape first.
    updates = _consumption_updates(tape, keep, hooks)
    set_later, cotangent_of = updates.append, rest.get
    old: list[tuple[Any, Any]] = []  # leaves that already have a gradient
    with write_lock():
        wait_for_programs()
        for i, leaf in r.leaves.items():
            g = cotangent_of(i)
            if g is None or leaf._recording is not LEAF:
                continue
            if shared or type(g) is not ndarray or g.base is not None or leaf._spec.is_complex:
                is_conjugated = not isinstance(g, (SparseRows, *ARRAY_LIKE))
                g = exclusive_array(g if is_conjugated else conj_if_complex(g), taken, untrusted)
            leaf_gradients[leaf] = g
            info = leaf._info
            if info.grad is None:
                info.loan = loan
                set_later((info, "grad", g))
            else:
                old.append((info, g))
        # After the loop, because addition to a Variable is an op, which may add a leaf. A sum may
        # overflow where NumPy raises: no gradient has been set then.
        for info, g in old:
            updates += (
                (info, "loan", None),
                (info, "grad", _accumulated(resolve_gradient(info.grad), g)),
            )
        run_all(starmap(setattr, updates))
    return gradients


def _accumulated(old: Any, g: Any) -> Any:
    """Return the sum as an array; NumPy returns read-only scalars for arrays without axes."""
    total = old + g if type(g) is ndarray else add_beside(old, g)
    return np.asarray(total) if isinstance(total, np.generic) else total


def _consumption_updates(
    tape: TapeBase, keep: bool, hooks: Hooks | None
) -> list[tuple[Any, str, Any]]:
    """Return the attributes to set on a tape at the moment of delivery: (owner, name, value)."""
    if hooks is not None:
        return [
            (tape, "_hooks", hooks.pending()),
            (tape, "_undelivered", False),
            (tape, "_consumed", not keep),
        ]
    if keep:
        return []
    # A tape whose nodes were freed was marked as consumed before.
    return [(tape, "_undelivered", False) if tape._consumed else (tape, "_consumed", True)]


def deliver_to_store(
    current: Store,
    r: Recording,
    rest: dict[int, Any],
    reached: dict[int, Any],
    definite: set[int],
) -> Gradients:
    """Deliver gradients to a store other than memory; the leaves themselves do not change.

    Args:
        current: The store.
        r: The recording.
        rest: Cotangents of leaves, by id.
        reached: Cotangents of other values, by id.
        definite: The ids that the sweep reached whichever branch of each cond runs.
    """
    leaf_gradients: dict[Any, Any] = {}
    gradients = Gradients(reached, leaf_gradients)
    for i, leaf in r.leaves.items():
        if i in rest and is_trainable(leaf):
            g = np.asarray(rest[i]) if isinstance(rest[i], np.generic) else rest[i]
            g = g.copy() if type(g) is SparseRows else g
            old = current.gradient(leaf)
            if old is None and i not in definite:
                current.only_eagerly(_conditional_gradient(leaf))
            leaf_gradients[leaf] = g
            current.set_gradient(leaf, g if old is None else _accumulated(old, g))
    _list_watched(r, reached, gradients)
    return gradients


def _conditional_gradient(leaf: Value) -> str:
    """Return why no program has the gradient of a leaf that only one branch of a cond reads."""
    name = leaf._info.name if leaf._info else None
    owner = f" of {name}" if name else ""
    return f"not every branch of cond gives a gradient{owner}"


def _list_watched(r: Recording, reached: dict[int, Any], gradients: Gradients) -> None:
    """Add the watched Variables that the sweep reached to ``gradients``."""
    for i, ref in r.watched.items():
        watched = ref()
        # A Variable that was written to since has another value, unless ``watch`` made it.
        if watched is not None and i in reached and query_id_of(watched) == i:
            gradients._watched = (*gradients._watched, watched)
