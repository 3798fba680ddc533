"""Gradient masks: elements whose cotangent or tangent is 0 by selection, not by value.

``where(x > 0, log(x), 0)`` sends a cotangent of exactly 0 into the branch not taken, and 0 times
the infinite slope of ``log`` at 0 would be NaN. A sweep therefore carries masks, by id, of the
elements that can be nonzero. Rows that select begin a mask. Elementwise rows and rows that only
rearrange elements pass it on. Where contributions are summed, an element is masked out if all
contributions mask it out. Other rows drop the mask. Where a mask exists, one op replaces the result
of an elementwise rule by 0 at the masked-out elements, and changes no other element.

A mask is computed only when it is needed: for arrays, where the result of a rule is not finite; for
Variables and Symbols, wherever a slope may be infinite, because a recorded or traced result is
differentiated again, or run on other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.same_device import call_beside, namespace_of, new_beside
from odyssey.ops.elementwise.choice import keep_where, logical_or, not_equal
from odyssey.ops.reductions.reduce import sum_to
from odyssey.ops.structure.shape import astype, broadcast_to
from odyssey.table.declare import PASS
from odyssey.table.scope import no_grad
from odyssey.table.store import operand_of
from odyssey.tape.recording import FIRST_RECORDED_ID, RawNode

__all__ = [
    "GradientMask",
    "MaskTracker",
    "any_poles",
    "propagate_mask",
    "sum_mask_to",
    "union_masks",
]

# Lazy masks that depend on lazy masks are computed at this depth, which bounds the recursion.
_MAX_DEPTH = 32

_ONE = np.float64(1)


class GradientMask:
    """Lazy mask of the elements that can be nonzero, computed when it is first used."""

    __slots__ = ("_compute", "_depth", "_value")

    _depth: int

    def __init__(self, make: Callable[[], Any], *parents: GradientMask) -> None:
        if any(parent._depth >= _MAX_DEPTH for parent in parents):
            for parent in parents:
                parent.mask()
        self._depth = 1 + max([parent._depth for parent in parents], default=0)
        self._compute: Callable[[], Any] | None = make
        self._value: Any = None

    def mask(self) -> Any:
        """Return the mask, an array or Symbol of booleans that broadcasts to the values."""
        if self._compute is None:
            return self._value
        with no_grad():
            return self.mask_unrecorded()

    def mask_unrecorded(self) -> Any:
        """Return the mask, where no tape records."""
        if self._compute is not None:
            self._value = operand_of(self._compute())
            self._compute, self._depth = None, 0  # frees the closure's operands
        return self._value


def any_poles(nodes: Iterable[RawNode] | None) -> bool:
    """True if one of ``nodes`` may have an infinite slope, or if ``nodes`` is None (unknown)."""
    if nodes is None:
        return True
    for node in nodes:  # noqa: SIM110 (any() of a generator takes twice as long)
        if node[0].has_poles:
            return True
    return False


def _mask_through_rule(
    row: Any, rule: Any, parent: GradientMask | None, g: Any, *saved: Any
) -> GradientMask:
    """Return the mask after a selecting or rearranging row: its rule on ones and zeros.

    Args:
        row: The row.
        rule: Its rule for masks.
        parent: The mask of ``g``, or None.
        g: The cotangent or tangent, whose shape and device the ones have.
        saved: The saved values, and the specs.
    """
    shape = g.shape
    # On a device a one is an array, so that what the rule makes of it lies there as well.
    home = new_beside((g,), "empty", 0) if namespace_of(g) is not np else None

    def compute_mask() -> Any:
        if parent is not None:
            c = astype(parent.mask_unrecorded(), np.float64)
        else:
            c = _ONE if home is None else new_beside((home,), "ones", (), np.float64)
        return not_equal(rule(c if row.elementwise else broadcast_to(c, shape), *saved), 0)

    return GradientMask(compute_mask) if parent is None else GradientMask(compute_mask, parent)


def _broadcast_mask_sum(mask: GradientMask, shape: Any, onto: Any) -> GradientMask:
    """Return the mask of a broadcast operand: an element counts if one of its copies does."""

    def compute_mask() -> Any:
        c = astype(broadcast_to(mask.mask_unrecorded(), shape), np.float64)
        return not_equal(sum_to(c, onto), 0)

    return GradientMask(compute_mask, mask)


def union_masks(a: GradientMask | None, b: GradientMask | None) -> GradientMask | None:
    """Return the mask of a sum: an element is masked out if both terms mask it out."""
    if a is None or b is None:
        return None
    return (
        a
        if a is b
        else GradientMask(lambda: logical_or(a.mask_unrecorded(), b.mask_unrecorded()), a, b)
    )


def _zero_masked_out(r: Any, mask: GradientMask) -> Any:
    """Return ``r`` with 0 at the elements that are masked out."""
    if isinstance(r, ARRAY_LIKE) and call_beside(r, lambda: np.isfinite(r).all()):
        return r  # a masked-out cotangent of 0 times a finite slope is 0 already
    return keep_where(r, mask.mask())


def propagate_mask(
    node: tuple[Any, Any, Any],
    rules: Any,
    k: int,
    g: Any,
    r: Any,
    mask: GradientMask | None,
    begins: bool = False,
) -> tuple[Any, GradientMask | None]:
    """Apply the mask of a cotangent or tangent to the result of a rule, and return the new mask.

    Args:
        node: Its row, its saved values, and its specs.
        rules: The row's rules for masks in the direction of the sweep.
        k: Number of the operand.
        g: Cotangent of the result, or tangent of the operand.
        r: Result of the rule for ``g``.
        mask: The mask of ``g``, or None.
        begins: Whether a mask begins at a row that rearranges: the positions beside the
            rearranged elements are 0.

    Returns:
        The result to use instead of ``r``, and its mask.
    """
    row, kept, specs = node
    if row.propagate_selection is not None:
        return r, row.propagate_selection(k, g, r, mask)
    if mask is not None and row.has_poles:
        r = _zero_masked_out(r, mask)
    if row.selects or (row.rearranges and (mask is not None or begins)):
        rule = rules[k]
        if rule is None:
            return r, None
        if rule is not PASS:
            mask = _mask_through_rule(row, rule, mask, g, kept, specs)
        return r, mask
    return r, mask if row.elementwise else None


class MaskTracker:
    """Masks of a backward sweep, by the id of the value whose cotangent they belong to.

    The keys are negated ids, because a sweep counts the references to an id to tell whether its
    Variable is alive.
    """

    __slots__ = ("masks",)

    def __init__(self, masks: dict[int, GradientMask]) -> None:
        self.masks = {-i: mask for i, mask in masks.items()}

    def pop_mask(self, id: int) -> GradientMask | None:
        """Remove and return the mask of a complete cotangent."""
        return self.masks.pop(-id, None)

    def accumulate(self, i: int, mask: GradientMask | None, first: bool) -> None:
        """Combine the mask of a contribution with the mask that ``i`` has already."""
        if not first:
            mask = union_masks(self.masks.pop(-i, None), mask)
        if mask is not None and i > FIRST_RECORDED_ID:  # a leaf has no producer
            self.masks[-i] = mask

    def remaining(self) -> dict[int, GradientMask]:
        """Return the masks of values that no node produced, by id."""
        return {-i: mask for i, mask in self.masks.items()}


def sum_mask_to(mask: GradientMask | None, r: Any, spec: Any) -> GradientMask | None:
    """Return the mask of a cotangent ``r`` after it was summed to the spec of its operand."""
    if mask is None or spec is None or r.shape == spec.shape:
        return mask
    return _broadcast_mask_sum(mask, r.shape, spec.shape)
