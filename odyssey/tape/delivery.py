"""Handing over what a sweep found: to leaves, to who asked."""

from __future__ import annotations

import weakref
from itertools import starmap
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.commit import run_all
from odyssey.devices.guard import guard, wait_for_programs
from odyssey.devices.ownership import owns_memory
from odyssey.errors import ShapeError, TapeMismatchError
from odyssey.spec import Spec
from odyssey.table.store import Store
from odyssey.table.value import (
    LEAF,
    Symbol,
    Value,
    is_trainable,
    place_of,
)
from odyssey.tape.gradients import Gradients, asked_of
from odyssey.tape.hooks import Hooks, called
from odyssey.tape.liveness import measured, references
from odyssey.tape.recording import Recording
from odyssey.tape.span import Span
from odyssey.tape.sweep import flip
from odyssey.variable import Variable, lent, settled

__all__ = [
    "answers_of",
    "checked_leaves",
    "deliver",
    "deliver_in",
    "flip_recorded",
    "nothing",
    "own",
]

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
        homes = [place_of(v) for v in (old, g) if not v.is_leaf]
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
    tape: Span,
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
    with guard():
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


def _flags(tape: Span, keep: bool, hooks: Hooks | None) -> list[tuple[Any, str, Any]]:
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
