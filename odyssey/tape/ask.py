"""What is asked of a tape: sweep, and hand over the answer."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any

from odyssey.checks import STUMBLES, flag, kind_of, word
from odyssey.devices.arrays import ARRAYS
from odyssey.errors import (
    OdysseyError,
    TapeError,
)
from odyssey.ops.elementwise.arithmetic import add
from odyssey.spec import Spec
from odyssey.table.store import MEMORY, store
from odyssey.table.value import PLAIN, place_of, ticket
from odyssey.tape.delivery import (
    answers_of,
    checked_leaves,
    deliver,
    deliver_in,
    flip_recorded,
    nothing,
    own,
)
from odyssey.tape.gradients import Gradients
from odyssey.tape.hooks import Hooks, called
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
from odyssey.tape.span import Span, recording_of
from odyssey.tape.sweep import (
    SPARE,
    Visit,
    dependents,
    drain,
    first_after,
    pull,
    push,
    recorded,
)
from odyssey.tape.threads import recorded_elsewhere, swept_elsewhere
from odyssey.tree import flatten, leaves, same_tree, unflatten
from odyssey.variable import Variable

__all__ = ["Known", "backward", "gradient", "jvp"]

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


def backward(tape: Span, output: Any, grad: Any, retain: bool) -> Gradients:
    """See ``GradientTape.backward``."""
    r = recording_of(tape)
    graph = bool(tape._around) and tape._followed()
    seeds = seeds_of(tape, "backward", output, grad, graph)
    since = ticket()
    frozen = r.verify(since)
    if type(output) is not Variable or place_of(output) is not r:
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
    tape: Span, output: Any, sources: Any, grad: Any, unused: str, create_graph: bool
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
    since = ticket()
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
    tape: Span,
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


def jvp(tape: Span, output: Any, sources: Any, tangents: Any, unused: str) -> Any:
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
    r.verify(ticket())
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


def _seen(tape: Span, nodes: Iterator[RawNode]) -> Iterator[RawNode]:
    """Without the nodes that others recorded while this tape did not."""
    r = recording_of(tape)
    if not tape._gaps or not r.nodes or (r.nodes[-1][1] < tape._gaps[0] and not r.manual):
        return nodes
    return filter(lambda node: tape._covers(node[1]), nodes)


def _pull(
    tape: Span,
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
        if not ours or ticket() != since + 1:
            r.verify_after(not ours)
    except BaseException as error:
        if r.manual and isinstance(error, STUMBLES) and not isinstance(error, _NAMED):
            raise kind_of(error)(
                f"a rule could not use what was recorded by hand: {error}; GradientTape(check=True)"
                " compares manual records with what their ops compute"
            ) from error
        raise
    return rest
