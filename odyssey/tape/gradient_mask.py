"""What a choice leaves out: where a cotangent, or a tangent, is 0 by choice and not by value.

``where(x > 0, log(x), 0)`` sends a cotangent of exactly 0 into the branch not taken, and 0 times
the infinite slope of ``log`` at 0 would be NaN. So a sweep carries along, by id, which elements
can be other than 0 at all. Rows that choose begin such a mask; elementwise rows and those that
only move elements pass it on; where contributions meet, an element is left out if all of them
leave it out; other rows drop it. Where it is at hand, one op puts 0 in the place of what an
elementwise rule gave at elements that were left out, and touches no other.

A mask is worked out only if it is needed: for arrays where a rule's result is not finite, for
Variables and Symbols wherever a slope may be infinite, since what is recorded or traced is
differentiated again, or run on other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.ops.elementwise.choice import keep_where, logical_or, not_equal
from odyssey.ops.reductions.reduce import sum_to
from odyssey.ops.structure.shape import astype, broadcast_to
from odyssey.table.declare import PASS
from odyssey.table.scope import no_grad
from odyssey.table.store import operand_of
from odyssey.tape.recording import FIRST, RawNode

__all__ = ["GradientMask", "MaskTracker", "either", "fitted", "poles_among", "step"]

# Masks that are made of masks that were not worked out yet are worked out at this depth, so
# that nothing recurses far.
_DEEP = 32

_ONE = np.float64(1)


class GradientMask:
    """A mask of the elements that can be other than 0, worked out when it is first asked for."""

    __slots__ = ("_depth", "_made", "_make")

    _depth: int

    def __init__(self, make: Callable[[], Any], *parents: GradientMask) -> None:
        if any(parent._depth >= _DEEP for parent in parents):
            for parent in parents:
                parent.mask()
        self._depth = 1 + max([parent._depth for parent in parents], default=0)
        self._make: Callable[[], Any] | None = make
        self._made: Any = None

    def mask(self) -> Any:
        """An array of booleans, or a Symbol of them, that broadcasts to the values in question."""
        if self._make is None:
            return self._made
        with no_grad():
            return self.found()

    def found(self) -> Any:
        """The same, where nothing records."""
        if self._make is not None:
            made = self._make()
            self._made = operand_of(made)
            self._make, self._depth = None, 0  # which frees what it was to be made from
        return self._made


def poles_among(nodes: Iterable[RawNode] | None) -> bool:
    """Whether the slope of one of ``nodes`` may be infinite; None for nodes that are not known."""
    if nodes is None:
        return True
    for node in nodes:  # noqa: SIM110 (any() of a generator takes twice as long)
        if node[0].has_poles:
            return True
    return False


def _through(
    row: Any, rule: Any, parent: GradientMask | None, shape: Any, *saved: Any
) -> GradientMask:
    """The mask behind a row that chooses or moves: its rule tells, applied to ones and zeros."""

    def make() -> Any:
        c = _ONE if parent is None else astype(parent.found(), np.float64)
        return not_equal(rule(c if row.elementwise else broadcast_to(c, shape), *saved), 0)

    return GradientMask(make) if parent is None else GradientMask(make, parent)


def _summed(chosen: GradientMask, shape: Any, onto: Any) -> GradientMask:
    """The mask of an operand that was broadcast: an element counts if one of its copies does."""

    def make() -> Any:
        c = astype(broadcast_to(chosen.found(), shape), np.float64)
        return not_equal(sum_to(c, onto), 0)

    return GradientMask(make, chosen)


def either(a: GradientMask | None, b: GradientMask | None) -> GradientMask | None:
    """The mask of a sum: an element is left out if both leave it out."""
    if a is None or b is None:
        return None
    return a if a is b else GradientMask(lambda: logical_or(a.found(), b.found()), a, b)


def _kept(r: Any, chosen: GradientMask) -> Any:
    """``r`` with 0 at the elements that were left out."""
    if isinstance(r, ARRAY_LIKE) and np.isfinite(r).all():
        return r  # 0 by choice, times what is finite
    return keep_where(r, chosen.mask())


def step(
    node: tuple[Any, Any, Any],
    rules: Any,
    k: int,
    g: Any,
    r: Any,
    chosen: GradientMask | None,
    starts: bool = False,
) -> tuple[Any, GradientMask | None]:
    """What comes in the place of ``r``, which a rule made of ``g``, and the mask of it.

    Args:
        node: Its row, what it kept, and its specs.
        rules: The row's rules for masks in the direction of the sweep.
        k: Number of the operand.
        g: Cotangent of the result, or tangent of the operand.
        r: What the rule made of it.
        chosen: The mask of ``g``, or None.
        starts: Whether a mask begins at a row that moves: it puts zeros beside what it moves.
    """
    row, kept, specs = node
    if row.propagate_selection is not None:
        return r, row.propagate_selection(k, g, r, chosen)
    if chosen is not None and row.has_poles:
        r = _kept(r, chosen)
    if row.selects or (row.rearranges and (chosen is not None or starts)):
        rule = rules[k]
        if rule is None:
            return r, None
        if rule is not PASS:
            chosen = _through(row, rule, chosen, g.shape, kept, specs)
        return r, chosen
    return r, chosen if row.elementwise else None


class MaskTracker:
    """The masks of a sweep backward, by the id of the value whose cotangent they belong to.

    Ids are negated as keys: a sweep counts the references to an id to know who is alive.
    """

    __slots__ = ("known",)

    def __init__(self, known: dict[int, GradientMask]) -> None:
        self.known = {-i: chosen for i, chosen in known.items()}

    def take(self, id: int) -> GradientMask | None:
        """The mask of a cotangent that is complete; it is forgotten here."""
        return self.known.pop(-id, None)

    def meet(self, i: int, chosen: GradientMask | None, first: bool) -> None:
        """Add the mask of a contribution to that of what ``i`` has already."""
        if not first:
            chosen = either(self.known.pop(-i, None), chosen)
        if chosen is not None and i > FIRST:  # nothing comes before a leaf
            self.known[-i] = chosen

    def left(self) -> dict[int, GradientMask]:
        """The masks of what no node produced, by id."""
        return {-i: chosen for i, chosen in self.known.items()}


def fitted(chosen: GradientMask | None, r: Any, own: Any) -> GradientMask | None:
    """The mask of a cotangent ``r`` after it was summed to the spec of its operand."""
    if chosen is None or own is None or r.shape == own.shape:
        return chosen
    return _summed(chosen, r.shape, own.shape)
