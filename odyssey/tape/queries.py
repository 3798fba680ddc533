"""Queries of a tape: backward, gradient and jvp, and the delivery of their results."""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import islice, starmap
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.checks import STUMBLES, flag, kind_of, word
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.devices.commit import run_all
from odyssey.devices.ownership import owns_memory
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import (
    OdysseyError,
    ShapeError,
    TapeError,
    TapeMismatchError,
)
from odyssey.ops.elementwise.arithmetic import add
from odyssey.spec import Spec
from odyssey.table.store import MEMORY, Store, store
from odyssey.table.value import (
    LEAF,
    PLAIN,
    Symbol,
    Value,
    is_trainable,
    next_ticket,
    recording_attribute,
)
from odyssey.tape.gradients import Gradients, asked_of
from odyssey.tape.hooks import Hooks, called
from odyssey.tape.liveness import measured, references
from odyssey.tape.recording import RawNode, Recording
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
from odyssey.tape.tape_base import TapeBase, recording_of
from odyssey.tape.threads import recorded_elsewhere, swept_elsewhere
from odyssey.tape.validation import (
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
from odyssey.tree import flatten, leaves, same_tree, unflatten
from odyssey.variable import Variable, lent, settled

__all__ = [
    "Known",
    "answers_of",
    "backward",
    "checked_leaves",
    "deliver",
    "deliver_in",
    "flip_recorded",
    "gradient",
    "jvp",
    "nothing",
    "own",
]


_NAMED = (OdysseyError, FloatingPointError)

# As it comes where nobody says otherwise.
_ERROR = "error"


class Known:
    """Sources of ``gradient`` and ``jvp`` by ids, specs and values, for answers in lists.

    For transforms, which made the sources: whatever is written to a Variable that they gave away,
    these stay what was passed in.
    """

    __slots__ = ("arrays", "ids", "specs")

    def __init__(self) -> None:
        self.ids: list[int | None] = []
        self.specs: list[Spec] = []
        self.arrays: list[Any] = []

    def only(self, k: int) -> Known:
        """Source number ``k`` alone."""
        one = Known()
        one.ids, one.specs, one.arrays = [self.ids[k]], [self.specs[k]], [self.arrays[k]]
        return one


# ------------------------------------------------------------------ the three questions


def backward(tape: TapeBase, output: Any, grad: Any, retain: bool) -> Gradients:
    """See ``GradientTape.backward``."""
    r = recording_of(tape)
    graph = bool(tape._around) and tape._followed()
    seeds = seeds_of(tape, "backward", output, grad, graph)
    since = next_ticket()
    frozen = r.verify(since)
    if type(output) is not Variable or recording_attribute(output) is not r:
        take_up(r, output)
    # Nothing else is recorded by itself, so every result depends on a trainable leaf.
    usual = r.leaves and not (frozen or r.manual)
    if not usual and not reaches_trainable(tape, seeds):
        raise TapeError(
            f"backward: {output!r} depends on no trainable leaf of this tape; "
            "make parameters with requires_grad=True"
        )
    keep = tape.persistent or (retain is not False and flag("backward", "retain", retain))
    hooks = Hooks(tape) if tape._hooks else None
    reached: dict[int, Any] = {}
    visit = None if hooks is None else hooks.called
    rest = _pull(tape, r, since, seeds, graph, keep, visit, reached)
    # What the rules of this package return is fresh and fits; others may return anything.
    strange = bool(hooks or r.barrier or r.manual)
    here = store()
    if strange or graph or here is not MEMORY:
        # To conjugate a Variable is an op, which belongs here; arrays wait until they are asked.
        with tape._recording_again() if graph else nullcontext():
            rest = checked_leaves(r, hooks, rest)
            reached = {i: flip_recorded(g) for i, g in reached.items()}
    if here is not MEMORY:
        gradients = deliver_in(here, r, rest, reached)
        if hooks is not None:
            tape._hooks = hooks.left()
        tape._undelivered = False
    else:
        gradients = deliver(tape, r, rest, reached, strange, keep, hooks)
    if not keep:
        tape._consume()
    return gradients


def gradient(
    tape: TapeBase, output: Any, sources: Any, grad: Any, unused: str, create_graph: bool
) -> Any:
    """See ``GradientTape.gradient``."""
    if unused is not _ERROR:
        word("gradient", "unused", unused, ("error", "zero", "none"), TapeError)
    create_graph = create_graph is not False and flag("gradient", "create_graph", create_graph)
    graph = create_graph or (bool(tape._around) and tape._followed())
    if tape._consumed or tape._undelivered or recording_of(tape).dead:
        refuse_consumed(tape, "gradient")
    if type(sources) is Known:
        ids, specs = sources.ids, sources.specs
    else:
        ids, specs = sources_of(tape, "gradient", leaves(sources), unused)
    asked: set[Any] = set(ids)
    asked.discard(None)
    r = recording_of(tape)
    hooks = Hooks(tape) if tape._hooks else None
    shown = graph or bool(hooks) or r.barrier or store() is not MEMORY
    seeds = seeds_of(tape, "gradient", output, grad, graph, asked, shown)
    since = next_ticket()
    r.verify(since)
    keep = tape.persistent or create_graph
    # Whether no node produced any of them, as those that a function was given: they are then among
    # what is left of a sweep, which need not look for them.
    first = r.nodes[0][1] if type(sources) is Known and r.nodes and not r.manual else 0
    given = not hooks and max(asked, default=-1) < first
    start = 0 if given else first_after(r, asked)
    wanted, lost = _wanted(tape, ids, asked, seeds, unused, start)
    if lost is not None:
        if id(tape) not in r.open:
            raise swept_elsewhere()
        raise TapeError(
            f"gradient: the output does not depend on {leaves(sources)[lost]!r}; "
            "tape.explain(output, source) says why; pass unused='zero' or 'none' if that is meant"
        )
    only_leaves = given or (not hooks and asked <= r.leaves.keys())
    found: dict[int | None, Any] = {}
    visit = None if only_leaves else partial(_find, hooks, asked, found)
    rest = dict(seeds) if wanted is None else {i: g for i, g in seeds.items() if i in wanted}
    rest = _pull(tape, r, since, rest, graph, keep, visit, None, wanted, start)
    if only_leaves:
        found = rest  # type: ignore[assignment]
    else:
        found |= {i: called(hooks, i, g) for i, g in rest.items() if i in asked}
    results = answers_of(list(map(found.get, ids)), specs, unused, seeds, r.barrier)
    if graph:
        results = [Variable(g) if isinstance(g, ARRAYS) else g for g in results]
    if type(sources) is Known:
        answer: Any = results
    else:
        answer = results[0] if type(sources) is Variable else unflatten(sources, results)
    if hooks is not None:
        tape._hooks = hooks.left()
    tape._undelivered = False
    if not keep:
        tape._consume()
    return answer


def _wanted(
    tape: TapeBase,
    ids: list[int | None],
    asked: set[int],
    seeds: dict[int, Any],
    unused: str,
    start: int,
) -> tuple[set[int] | None, int | None]:
    """The ids whose cotangents are needed, None for all, and the place of a source without any.

    That is only looked for where it is an error.
    """
    r = recording_of(tape)
    # Where nothing but the sources was recorded from, everything depends on them.
    whole = not (r.manual or r.guests) and r.leaves.keys() <= asked and r.watched.keys() <= asked
    if unused != "error":
        return (None if whole else dependents(r.nodes[start:], asked)), None
    if len(asked) == 1 and not tape._gaps:
        wanted = dependents(r.nodes[start:] if start else r.nodes, asked)
        return (None if whole else wanted), (0 if wanted.isdisjoint(seeds) else None)
    lost = unreached(tape, ids, seeds, start)
    return (None if whole or lost is not None else dependents(r.nodes[start:], asked)), lost


def _find(
    hooks: Hooks | None, asked: set[int], found: dict[int | None, Any], i: int, g: Any
) -> Any:
    """Note the cotangent of a source on the way; see ``pull``."""
    g = called(hooks, i, g)
    if i in asked:
        found[i] = g
    return g


def jvp(tape: TapeBase, output: Any, sources: Any, tangents: Any, unused: str) -> Any:
    """See ``GradientTape.jvp``."""
    word("jvp", "unused", unused, ("error", "zero", "none"), TapeError)
    refuse_consumed(tape, "jvp")
    graph = tape._followed()
    outputs, rebuild = flatten(output)
    out_ids = [output_of(tape, value, unused) for value in outputs]
    out_specs = [spec_of_either(tape, "jvp", value) for value in outputs]
    if type(sources) is Known:
        ids, specs, given = sources.ids, sources.specs, tangents
    else:
        ids, specs = sources_of(tape, "jvp", leaves(sources), unused)
        given = same_tree("jvp", "tangents", sources, tangents)
    moving: dict[int, Any] = {}
    for i, spec, t in zip(ids, specs, given, strict=True):
        t = checked("jvp", "tangent", spec, t, graph)
        if i is not None:
            moving[i] = add(moving[i], t) if i in moving else t
    r = recording_of(tape)
    r.verify(next_ticket())
    taken = {*map(id, given), *map(id, moving.values())}  # a Variable's array is given too
    # A source that is itself a result has the tangent that was asked for, not a computed one.
    given_ids = set(moving)
    start = first_after(r, given_ids)
    nodes = _seen(tape, iter(r.nodes[start:]))
    if r.manual or (r.nodes and max(given_ids, default=0) >= r.nodes[0][1]):
        nodes = (node for node in nodes if node[1] not in given_ids)
    if graph:
        with tape._recording_again():
            push(recorded(list(nodes), r), moving)
    else:
        push(nodes, moving)
    r.verify_after(r.barrier)
    lost = next((v for i, v in zip(out_ids, outputs, strict=True) if i not in moving), None)
    if unused == "error" and lost is not None:
        raise TapeError(f"jvp: {lost!r} does not depend on the sources; see unused=")
    results = [
        own(moving[i], taken, r.barrier) if i in moving else nothing(spec, unused)
        for i, spec in zip(out_ids, out_specs, strict=True)
    ]
    if graph:
        results = [Variable(t) if isinstance(t, ARRAYS) else t for t in results]
    return rebuild(results)


# ------------------------------------------------------------------ sweeping


def _seen(tape: TapeBase, nodes: Iterator[RawNode]) -> Iterator[RawNode]:
    """Without the nodes that others recorded while this tape did not."""
    r = recording_of(tape)
    if not tape._gaps or not r.nodes or (r.nodes[-1][1] < tape._gaps[0] and not r.manual):
        return nodes
    return filter(lambda node: tape._covers(node[1]), nodes)


def _pull(
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
) -> dict[int, Any]:
    """Sweep backward from ``seeds``.

    A tape whose nodes go away in the sweep is consumed from its begin on; ``_undelivered`` tells
    that they are gone for nothing yet.

    Args:
        tape: Whose nodes to sweep over.
        r: The recording that was asked about; another is the tape's where it was cleared since.
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
    here = store()
    if here is not MEMORY:
        here.check_inside(r)
    rest = seeds  # what is left of them
    audit = r.careful.check_gradient if r.careful else None
    ours = not (r.barrier or tape._hooks)  # so nothing can fail, nor come from outside
    if graph:
        nodes = list(_seen(tape, iter(r.nodes[start:][::-1])))
        with tape._recording_again():
            pull(recorded(nodes, r), rest, reached, 0, wanted, visit, audit, nodes)
        if id(tape) not in r.open:
            raise swept_elsewhere()
        r.verify_after(not ours)
        return rest
    # Nodes are freed on the way where nobody else has them.
    draining = ours and not (keep or r.careful or len(r.open) > 1)
    back = drain(r.nodes, start) if draining else islice(reversed(r.nodes), len(r.nodes) - start)
    if tape._gaps:
        back = _seen(tape, back)
    # Whether the sweep meets nothing but arrays and numbers.
    bare = ours and not (r.traced or r.manual or here is not MEMORY)
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
        if not ours or next_ticket() != since + 1:
            r.verify_after(not ours)
    except BaseException as error:
        if r.manual and isinstance(error, STUMBLES) and not isinstance(error, _NAMED):
            raise kind_of(error)(
                f"a rule could not use what was recorded by hand: {error}; GradientTape(check=True)"
                " compares manual records with what their ops compute"
            ) from error
        raise
    return rest


# ------------------------------------------------------------------ to who asked, and to leaves


def own(g: Any, taken: set[int], strange: bool) -> Any:
    """Return ``g`` as memory, or as a Variable, that nobody else has.

    Args:
        g: A cotangent or tangent.
        taken: Ids of arrays that were given out.
        strange: Whether it may be an array that a rule from outside keeps.
    """
    if type(g) is not np.ndarray:
        # A Variable may be a seed, or that of another source as well.
        return lent(g) if isinstance(g, (Variable, Symbol)) else np.asarray(g)
    if strange or id(g) in taken:
        g = g.copy()
    elif not owns_memory(g):
        g = _owner_under(g) if _shows_all_alone(g) else g.copy()
    taken.add(id(g))
    return g


def _shows_all_alone(view: Any) -> bool:
    """Whether nobody else has the array that a view shows, all of it, as after a reshape."""
    return bool(
        type(view.base) is ndarray
        and _holders(view) <= _ONE_VIEW
        and view.dtype is view.base.dtype
        and view.nbytes == view.base.nbytes
        and view.flags.c_contiguous
        and view.base.flags.c_contiguous
        and view.base.flags.owndata
        and owns_memory(view.base)
    )


def _owner_under(view: Any) -> Any:
    """The array that a view shows, under the view's shape."""
    owner = view.base
    owner.resize(view.shape, refcheck=False)  # no element moves
    return owner


def _holders(view: Any) -> int:
    """How many references are seen to the array that a view shows."""
    return references(view.base)


# Up to so many references to an array, only one view has it.
_ONE_VIEW = measured(lambda: _holders(np.zeros(2).reshape(2, 1)), places=1)


def answers_of(
    found: list[Any], specs: list[Spec], unused: str, seeds: dict[int, Any], strange: bool
) -> list[Any]:
    """What was found for each source, or stands for nothing, as memory that nobody else has."""
    taken = set(map(id, seeds.values()))
    # Whether none of them is another's, or a seed: asked once for all.
    apart = len({*taken, *map(id, found)}) == len(taken) + len(found)
    usual = apart and not strange
    results = []
    for g, spec in zip(found, specs, strict=True):
        # The commonest ones, spelled out: a third of the time.
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
            results.append(_answer_of(g, spec, unused, taken, strange))
    return results


def _answer_of(g: Any, spec: Spec, unused: str, taken: set[int], strange: bool) -> Any:
    """What ``gradient`` answers for a source of this spec; see ``own`` for the rest."""
    if g is None:
        return nothing(spec, unused)
    _check_result(g, spec)
    return own(flip(g), taken, strange)


def nothing(spec: Spec, unused: str) -> Any:
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
        homes = [recording_attribute(v) for v in (old, g) if not v.is_leaf]
        if len(homes) == 2 and homes[0] is not homes[1] and not homes[0].dead:
            raise TapeMismatchError(
                f"backward: the gradient of {leaf!r} was recorded on {homes[0]!r}, which still "
                f"lives, and now comes on {homes[1]!r}; zero_grad() first, or use gradient()"
            )


def checked_leaves(r: Recording, hooks: Hooks | None, rest: dict[int, Any]) -> dict[int, Any]:
    """Do all that may fail in a delivery, and return the cotangents of the leaves."""
    checked = {}
    for i, leaf in list(r.leaves.items()):  # functions of users may bring new ones
        if i in rest and is_trainable(leaf):
            g = called(hooks, i, rest[i])
            _check_result(g, leaf._spec)
            checked[i] = g = flip_recorded(g)
            _check_sum(leaf, g)
    return checked


def flip_recorded(g: Any) -> Any:
    """Conjugate Variables and Symbols only."""
    return g if isinstance(g, ARRAY_LIKE) else flip(g)


def deliver(
    tape: TapeBase,
    r: Recording,
    rest: dict[int, Any],
    reached: dict[int, Any],
    strange: bool,
    keep: bool,
    hooks: Hooks | None,
) -> Gradients:
    """Add to the leaves' gradients, and make the mapping that ``backward`` returns.

    Args:
        tape: What was swept.
        r: Its recording, which has the leaves and watched values.
        rest: Cotangents, those of the leaves among them.
        reached: Cotangents of results.
        strange: Whether a rule from outside may keep or share what it returned.
        keep: Whether the tape may be swept again.
        hooks: Those that the sweep called, None where there were none.
    """
    parts: dict[Any, Any] = {}
    gradients = Gradients(reached, parts)
    if r.watched:
        _show_watched(r, reached, gradients)
    loan = weakref.ref(gradients)
    # Whether one may share memory with another, or with what others keep.
    shared = strange or len(set(map(id, rest.values()))) < len(rest)
    taken: set[int] = set()
    # What is told to whom in one moment, the tape first.
    told = _flags(tape, keep, hooks)
    tell, cotangent_of = told.append, rest.get
    old: list[tuple[Any, Any]] = []  # leaves that have a gradient already
    with write_lock():
        wait_for_programs()
        for i, leaf in r.leaves.items():
            g = cotangent_of(i)
            if g is None or leaf._recording is not LEAF:
                continue
            if shared or type(g) is not ndarray or g.base is not None or leaf._spec.is_complex:
                g = own(flip(g) if isinstance(g, ARRAY_LIKE) else g, taken, strange)
            parts[leaf] = g
            info = leaf._info
            if info.grad is None:
                info.loan = loan
                tell((info, "grad", g))
            else:
                old.append((info, g))
        # After the loop: to add to a Variable is an op, which may bring a leaf. A sum may overflow
        # where NumPy was told to raise: nobody has got anything then.
        for info, g in old:
            told += ((info, "loan", None), (info, "grad", _added(settled(info.grad), g)))
        run_all(starmap(setattr, told))
    return gradients


def _added(old: Any, g: Any) -> Any:
    """The sum; NumPy makes numbers of arrays without axes, into which nobody can write."""
    total = old + g
    return np.asarray(total) if isinstance(total, np.generic) else total


def _flags(tape: TapeBase, keep: bool, hooks: Hooks | None) -> list[tuple[Any, str, Any]]:
    """What a tape is told in the same moment in which it hands over: whom, names and values."""
    if hooks is not None:
        return [
            (tape, "_hooks", hooks.left()),
            (tape, "_undelivered", False),
            (tape, "_consumed", not keep),
        ]
    if keep:
        return []
    # If its nodes are gone it was consumed before.
    return [(tape, "_undelivered", False) if tape._consumed else (tape, "_consumed", True)]


def deliver_in(
    here: Store, r: Recording, rest: dict[int, Any], reached: dict[int, Any]
) -> Gradients:
    """The same in another store: the leaves themselves stay as they are."""
    parts: dict[Any, Any] = {}
    gradients = Gradients(reached, parts)
    for i, leaf in r.leaves.items():
        if i in rest and is_trainable(leaf):
            g = np.asarray(rest[i]) if isinstance(rest[i], np.generic) else rest[i]
            old = here.gradient(leaf)
            parts[leaf] = g
            here.set_gradient(leaf, g if old is None else _added(old, g))
    _show_watched(r, reached, gradients)
    return gradients


def _show_watched(r: Recording, reached: dict[int, Any], gradients: Gradients) -> None:
    for i, ref in r.watched.items():
        watched = ref()
        # A Variable that was written to since is another value, unless ``watch`` made it.
        if watched is not None and i in reached and asked_of(watched) == i:
            gradients._watched = (*gradients._watched, watched)
