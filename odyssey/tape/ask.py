"""What is asked of a tape: sweep, and hand over the answer."""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.checks import STUMBLES, flag, kind_of, shown, word
from odyssey.devices.arrays import as_array
from odyssey.devices.commit import run_all
from odyssey.devices.guard import GUARD
from odyssey.errors import (
    DTypeError,
    OdysseyError,
    ShapeError,
    TapeError,
    TapeMismatchError,
)
from odyssey.ops.arithmetic import add
from odyssey.spec import Spec, fits_kind
from odyssey.table.scope import TRACE
from odyssey.table.value import LEAF, PLAIN, Mark, Symbol, Value, ticket
from odyssey.tape.gradients import Gradients
from odyssey.tape.question import (
    checked,
    output_of,
    reaches_trainable,
    refuse_consumed,
    seeds_of,
    sources_of,
    spec_of_either,
    take_up,
    unreached,
)
from odyssey.tape.recording import RawNode, Recording
from odyssey.tape.span import Span
from odyssey.tape.sweep import (
    SPARE,
    Visit,
    dependents,
    drain,
    first_after,
    flip,
    pull,
    push,
    recorded,
)
from odyssey.tape.threads import recorded_elsewhere, swept_elsewhere
from odyssey.tree import flatten, leaves, same_tree
from odyssey.variable import Variable, settled

__all__ = ["backward", "gradient", "jvp"]

_ARRAYS = (np.ndarray, np.generic)
_NAMED = (OdysseyError, FloatingPointError)


# ------------------------------------------------------------------ the three questions


def backward(tape: Span, output: Any, grad: Any, retain: bool) -> Gradients:
    """See ``GradientTape.backward``."""
    r = tape._recording
    graph = bool(tape._around) and tape._followed()
    seeds = seeds_of(tape, "backward", output, grad, graph)
    since = ticket()
    frozen = r.verify(since)
    if type(output) is not Variable or output._recording is not r:
        take_up(r, output)
    # Nothing else is recorded by itself, so every result depends on a trainable leaf.
    usual = r.leaves and not (frozen or r.manual)
    if not usual and not reaches_trainable(tape, seeds):
        raise TapeError(
            f"backward: {output!r} depends on no trainable leaf of this tape; "
            "make parameters with requires_grad=True"
        )
    keep = tape.persistent or (retain is not False and flag("backward", "retain", retain))
    hooks = dict(tape._hooks)
    reached: dict[int, Any] = {}
    visit = partial(_called, hooks) if hooks else None
    rest = _pull(tape, since, seeds, graph, keep, visit, reached)
    # What the rules of this package return is fresh and fits; others may return anything.
    strange = bool(hooks or r.barrier or r.manual)
    traced = TRACE.get() is not None
    if strange or graph or traced:
        # To conjugate a Variable is an op, which belongs here; arrays wait until they are asked.
        with tape._recording_again() if graph else nullcontext():
            rest = _check(r, hooks, rest)
            reached = {i: _flip_recorded(g) for i, g in reached.items()}
    if traced:
        gradients = _deliver_traced(r, rest, reached)
        tape._hooks = hooks
        tape._undelivered = False
    else:
        gradients = _deliver(tape, rest, reached, strange, keep, hooks)
    if not keep:
        tape._consume()
    return gradients


def gradient(
    tape: Span, output: Any, sources: Any, grad: Any, unused: str, create_graph: bool
) -> Any:
    """See ``GradientTape.gradient``."""
    word("gradient", "unused", unused, ("error", "zero", "none"), TapeError)
    create_graph = create_graph is not False and flag("gradient", "create_graph", create_graph)
    graph = create_graph or tape._followed()
    refuse_consumed(tape, "gradient")
    flat, rebuild = flatten(sources)
    ids, specs = sources_of(tape, "gradient", flat, unused)
    asked = {i for i in ids if i is not None}
    seeds = seeds_of(tape, "gradient", output, grad, graph, asked)
    r = tape._recording
    since = ticket()
    r.verify(since)
    keep = tape.persistent or create_graph
    start = first_after(r, asked)
    wanted = dependents(r.nodes[start:], asked)
    lost = unreached(tape, ids, seeds, wanted, start) if unused == "error" else None
    if lost is not None:
        if id(tape) not in r.open:
            raise swept_elsewhere()
        raise TapeError(
            f"gradient: the output does not depend on {flat[lost]!r}; tape.explain(output, source) "
            "says why; pass unused='zero' or 'none' if that is meant"
        )
    found: dict[int | None, Any] = {}
    hooks = dict(tape._hooks)

    def visit(i: int, g: Any) -> Any:
        g = _called(hooks, i, g)
        if i in asked:
            found[i] = g
        return g

    only_leaves = not hooks and asked <= r.leaves.keys()
    rest = _pull(
        tape,
        since,
        {i: g for i, g in seeds.items() if i in wanted},
        graph,
        keep,
        None if only_leaves else visit,
        wanted=wanted,
        start=start,
    )
    found |= {i: _called(hooks, i, g) for i, g in rest.items() if i in asked}
    taken = {id(g) for g in seeds.values()}
    results = [
        _answer(found.get(i), spec, unused, taken, r.barrier)
        for i, spec in zip(ids, specs, strict=True)
    ]
    if graph:
        results = [Variable(g) if isinstance(g, np.ndarray) else g for g in results]
    answer = rebuild(results)
    tape._hooks = hooks
    tape._undelivered = False
    if not keep:
        tape._consume()
    return answer


def jvp(tape: Span, output: Any, sources: Any, tangents: Any, unused: str) -> Any:
    """See ``GradientTape.jvp``."""
    word("jvp", "unused", unused, ("error", "zero", "none"), TapeError)
    refuse_consumed(tape, "jvp")
    graph = tape._followed()
    outputs, rebuild = flatten(output)
    out_ids = [output_of(tape, value, unused) for value in outputs]
    out_specs = [spec_of_either(tape, "jvp", value) for value in outputs]
    flat = leaves(sources)
    given = same_tree("jvp", "tangents", sources, tangents)
    moving: dict[int, Any] = {}
    for i, spec, t in zip(*sources_of(tape, "jvp", flat, unused), given, strict=True):
        t = checked("jvp", "tangent", spec, t, graph)
        if i is not None:
            moving[i] = add(moving[i], t) if i in moving else t
    r = tape._recording
    r.verify(ticket())
    # A source that is itself a result has the tangent that was asked for, not a computed one.
    given_ids = set(moving)
    start = first_after(r, given_ids)
    nodes = (node for node in _seen(tape, iter(r.nodes[start:])) if node[1] not in given_ids)
    if graph:
        with tape._recording_again():
            push(recorded(list(nodes), r), moving)
    else:
        push(nodes, moving)
    r.verify_after()
    lost = next((v for i, v in zip(out_ids, outputs, strict=True) if i not in moving), None)
    if unused == "error" and lost is not None:
        raise TapeError(f"jvp: {lost!r} does not depend on the sources; see unused=")
    taken: set[int] = {id(t) for t in given}
    results = [
        _own(moving[i], taken, r.barrier) if i in moving else _nothing(spec, unused)
        for i, spec in zip(out_ids, out_specs, strict=True)
    ]
    if graph:
        results = [Variable(t) if isinstance(t, np.ndarray) else t for t in results]
    return rebuild(results)


# ------------------------------------------------------------------ sweeping


def _seen(tape: Span, nodes: Iterator[RawNode]) -> Iterator[RawNode]:
    """Without the nodes that others recorded while this tape did not."""
    r = tape._recording
    if not tape._gaps or not r.nodes or (r.nodes[-1][1] < tape._gaps[0] and not r.manual):
        return nodes
    return filter(lambda node: tape._covers(node[1]), nodes)


def _pull(
    tape: Span,
    since: int,
    seeds: dict[int, Any],
    graph: bool,
    keep: bool,
    visit: Visit | None,
    reached: dict[int, Any] | None = None,
    wanted: set[int] | None = None,
    start: int = 0,
) -> dict[int, Any]:
    """Sweep backward from ``seeds``.

    A tape whose nodes go away in the sweep is consumed from its begin on; ``_undelivered`` tells
    that they are gone for nothing yet.

    Args:
        tape: Whose nodes to sweep over.
        since: The ticket that was drawn before leaves were verified.
        seeds: The cotangents to begin with, by id; used up.
        graph: Whether to record the sweep.
        keep: Whether the nodes are needed again.
        visit: See ``pull``.
        reached: See ``pull``.
        wanted: See ``pull``.
        start: The number of the first node that matters.

    Returns:
        The cotangents of what no node produced.
    """
    r = tape._recording
    trace = TRACE.get()
    if trace is not None:
        trace.check_inside(r)
    rest = seeds  # what is left of them
    audit = r.careful.check_gradient if r.careful else None
    if graph:
        nodes = list(_seen(tape, iter(r.nodes[start:][::-1])))
        with tape._recording_again():
            pull(recorded(nodes, r), rest, reached, 0, wanted, visit, audit, nodes)
        r.verify_after()
        return rest
    ours = not (r.barrier or tape._hooks)  # so nothing can fail, nor come from outside
    # Nodes are freed on the way where nobody else has them.
    draining = ours and not (keep or r.careful or len(r.open) > 1)
    back = drain(r.nodes, start) if draining else islice(reversed(r.nodes), len(r.nodes) - start)
    if tape._gaps:
        back = _seen(tape, back)
    # Whether the sweep meets nothing but arrays and numbers.
    bare = ours and not (r.traced or r.manual or trace is not None)
    bare = bare and PLAIN.issuperset(map(type, rest.values()))
    if draining:
        if r.open.pop(id(tape), None) is None:  # whoever takes the tape out has it alone
            raise swept_elsewhere()
        r.thread = get_ident()
        tape._undelivered = True
        tape._consumed = True
    # Only who is alive can be looked up later; a sweep that keeps its nodes keeps them all.
    spare = SPARE if draining else 0
    try:
        pull(back, rest, reached, spare, wanted, visit, audit, r.nodes, bare)
        if draining:
            if len(r.nodes) > start:
                raise recorded_elsewhere()
        elif id(tape) not in r.open:
            raise swept_elsewhere()
        if ticket() != since + 1:
            r.verify_after()
    except BaseException as error:
        if r.manual and isinstance(error, STUMBLES) and not isinstance(error, _NAMED):
            raise kind_of(error)(
                f"a rule could not use what was recorded by hand: {error}; GradientTape(check=True)"
                " compares manual records with what their ops compute"
            ) from error
        raise
    return rest


def _called(hooks: dict[int, list[Callable[[Any], Any]]], id: int, g: Any) -> Any:
    """Let the functions given to ``on_gradient`` see, and replace, a complete cotangent."""
    for fn in hooks.pop(id, ()):
        new = fn(np.array(flip(g)) if isinstance(g, (np.ndarray, np.generic)) else flip(g))
        if new is not None:
            new = new if isinstance(new, (Variable, Symbol)) else _replacement(new, g)
            if new.shape != g.shape:
                raise ShapeError(
                    f"on_gradient: the function returned shape {new.shape} for {g.shape}"
                )
            g = flip(new)
    return g


def _replacement(new: Any, g: Any) -> Any:
    """What a hook returned in the place of ``g``, as an array of its dtype."""
    array = as_array("on_gradient", "what the function returned", new)
    if not fits_kind(array.dtype, g.dtype):
        raise DTypeError(
            f"on_gradient: the function returned {shown(new)} of {array.dtype} for {g.dtype}"
        )
    return np.array(array, g.dtype)


# ------------------------------------------------------------------ handing over the answer


def _own(g: Any, taken: set[int], strange: bool) -> Any:
    """Return ``g`` as memory that nobody else has.

    Args:
        g: A cotangent or tangent.
        taken: Ids of arrays that were given out.
        strange: Whether it may be an array that a rule from outside keeps.
    """
    if type(g) is not np.ndarray:
        return g if isinstance(g, (Variable, Symbol)) else np.asarray(g)
    if strange or g.base is not None or id(g) in taken or not g.flags.writeable:
        g = g.copy()
    taken.add(id(g))
    return g


def _answer(g: Any, spec: Spec, unused: str, taken: set[int], strange: bool) -> Any:
    if g is None:
        return _nothing(spec, unused)
    _check_result(g, spec)
    return _own(flip(g), taken, strange)


def _nothing(spec: Spec, unused: str) -> Any:
    """What stands for a derivative where nothing depends on anything."""
    return np.zeros(spec.shape, spec.dtype) if unused == "zero" else None


def _check_result(g: Any, spec: Spec) -> None:
    """A rule from outside may have returned anything."""
    if g.shape != spec.shape or g.dtype != spec.dtype:
        raise ShapeError(
            f"a rule gave a gradient of {g.dtype}{list(g.shape)} for a value of shape {spec.shape} "
            f"and {spec.dtype}; check rules of your own with od.testing.check_gradients"
        )


def _check_sum(leaf: Value, g: Any) -> None:
    """Raise, before any gradient is touched, where the old and the new one cannot be added."""
    old = leaf._info.grad
    if isinstance(old, Variable) and isinstance(g, Variable):
        homes = [v._recording for v in (old, g) if not isinstance(v._recording, Mark)]
        if len(homes) == 2 and homes[0] is not homes[1] and not homes[0].dead:
            raise TapeMismatchError(
                f"backward: the gradient of {leaf!r} was recorded on {homes[0]!r}, which still "
                f"lives, and now comes on {homes[1]!r}; zero_grad() first, or use gradient()"
            )


def _check(
    r: Recording, hooks: dict[int, list[Callable[[Any], Any]]], rest: dict[int, Any]
) -> dict[int, Any]:
    """Do all that may fail in a delivery, and return the cotangents of the leaves."""
    checked = {}
    for i, leaf in list(r.leaves.items()):  # functions of users may bring new ones
        if i in rest and leaf._recording is LEAF:
            g = _called(hooks, i, rest[i])
            _check_result(g, leaf._spec)
            checked[i] = g = _flip_recorded(g)
            _check_sum(leaf, g)
    return checked


def _flip_recorded(g: Any) -> Any:
    """Conjugate Variables and Symbols only."""
    return g if isinstance(g, _ARRAYS) else flip(g)


def _deliver(
    tape: Span,
    rest: dict[int, Any],
    reached: dict[int, Any],
    strange: bool,
    keep: bool,
    hooks: dict[int, list[Callable[[Any], Any]]],
) -> Gradients:
    """Add to the leaves' gradients, and make the mapping that ``backward`` returns.

    Args:
        tape: For the leaves and watched values of its recording.
        rest: Cotangents, those of the leaves among them.
        reached: Cotangents of results.
        strange: Whether a rule from outside may keep or share what it returned.
        keep: Whether the tape may be swept again.
        hooks: Those that are left for the next sweep.
    """
    r = tape._recording
    parts: dict[Any, Any] = {}
    gradients = Gradients(reached, parts)
    if r.watched:
        _show_watched(r, reached, gradients)
    loan = weakref.ref(gradients)
    twice = len(set(map(id, rest.values()))) < len(rest)
    taken: set[int] = set()
    # What is told to whom in one moment, the tape first.
    names, values = _flags(tape, keep, hooks)
    targets: list[Any] = [tape] * len(names)
    old: list[tuple[Any, Any]] = []  # leaves that have a gradient already
    with GUARD:
        for i, leaf in r.leaves.items():
            g = rest.get(i)
            if g is None or leaf._recording is not LEAF:
                continue
            plain = type(g) is ndarray and g.base is None and not leaf._spec.is_complex
            if not plain or twice or strange:
                g = _own(flip(g) if isinstance(g, _ARRAYS) else g, taken, strange)
            parts[leaf] = g
            info = leaf._info
            if info.grad is None:
                info.loan = loan
                targets.append(info)
                values.append(g)
            else:
                old.append((info, g))
        names += ["grad"] * (len(targets) - len(names))
        # After the loop: to add to a Variable is an op, which may bring a leaf. A sum may overflow
        # where NumPy was told to raise: nobody has got anything then.
        for info, g in old:
            targets += (info, info)
            names += ("loan", "grad")
            values += (None, settled(info.grad) + g)
        run_all(map(setattr, targets, names, values))
    return gradients


def _flags(tape: Span, keep: bool, hooks: Any) -> tuple[list[str], list[Any]]:
    """What a tape is told in the same moment in which it hands over: names and values."""
    if tape._hooks:
        return ["_hooks", "_undelivered", "_consumed"], [hooks, False, not keep]
    if keep:
        return [], []
    # If its nodes are gone it was consumed before.
    return (["_undelivered"], [False]) if tape._consumed else (["_consumed"], [True])


def _deliver_traced(r: Recording, rest: dict[int, Any], reached: dict[int, Any]) -> Gradients:
    """The same in a graph: the leaves themselves stay as they are."""
    trace = TRACE.get()
    parts: dict[Any, Any] = {}
    gradients = Gradients(reached, parts)
    for i, leaf in r.leaves.items():
        if i in rest and leaf._recording is LEAF:
            g = np.asarray(rest[i]) if isinstance(rest[i], np.generic) else rest[i]
            old = trace.grad_of(leaf)
            parts[leaf] = g
            trace.set_grad(leaf, g if old is None else old + g)
    _show_watched(r, reached, gradients)
    return gradients


def _show_watched(r: Recording, reached: dict[int, Any], gradients: Gradients) -> None:
    for i, ref in r.watched.items():
        watched = ref()
        if watched is not None and i in reached:
            gradients._watched = (*gradients._watched, watched)
