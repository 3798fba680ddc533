"""Result checks: wrappers that check results of users' ops and of real-only ops."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, plain_result
from odyssey.devices.ownership import copy_if_shared, is_referenced_elsewhere, owner_of
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.table.signature import PASS, Layout, Rule
from odyssey.table.value import NUMBERS, Symbol, Value

__all__ = [
    "check_result_count",
    "check_rule",
    "copy_if_retained",
    "copy_residual_if_retained",
    "refuse_complex",
]


def check_result_count(
    layout: Layout, make: Callable[[Any], tuple[Any, ...]], function: Callable[..., Any], who: str
) -> Callable[..., tuple[Any, ...]]:
    """Make a kernel or shape rule raise unless it returns the declared number of results."""
    count = len(layout.results)

    @wraps(function)
    def with_count_checked(*values: Any) -> tuple[Any, ...]:
        found = function(*values)
        if not isinstance(found, (tuple, list)) or len(found) != count:
            came = len(found) if isinstance(found, (tuple, list)) else type(found).__name__
            raise OdysseyError(
                f"op {layout.name}: {who} gave {came}; wanted is a tuple of {count}: "
                f"{', '.join(layout.results)}"
            )
        return make(found)

    return with_count_checked


def copy_if_retained(layout: Layout, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Make a user's kernel return a copy if it retains its result, or if that shares memory."""

    def one(*args: Any) -> Any:
        box = [plain_result(layout.name, kernel(*args))]
        return box[0].copy() if is_referenced_elsewhere(box) else copy_if_shared(box[0], args)

    def several(*args: Any) -> Any:
        found = kernel(*args)
        return _separate_results(layout, found, args) if isinstance(found, (tuple, list)) else found

    return several if layout.cotangents else one


def _separate_results(layout: Layout, found: Any, others: tuple[Any, ...]) -> list[Any]:
    """Copy results that share memory with ``others`` or with one another."""
    own: list[Any] = []
    box = list(found)
    places = [sum(part is other for other in found) for part in found]
    for k, place in enumerate(places):
        who = f"{layout.name}: {layout.results[k]}" if k < len(layout.results) else layout.name
        if is_referenced_elsewhere(box, k, 2 * place - 1):
            own.append(plain_result(who, box[k]).copy())
        else:
            own.append(copy_if_shared(plain_result(who, box[k]), (*others, *own)))
    return own


def copy_residual_if_retained(
    layout: Layout, with_residual: Callable[..., Any], real: bool
) -> Callable[..., tuple[Any, Any] | None]:
    """Apply ``copy_if_retained`` to a ``with_residual``, whose residual is copied as well."""

    def with_own_residual(*args: Any) -> tuple[Any, Any] | None:
        pair = with_residual(*args)
        if pair is None:
            return None
        out, residual = pair
        outs = tuple(out) if layout.cotangents else (out,)
        if real and any(part.dtype.kind == "c" for part in outs):
            return None  # the kernel raises the error
        parts = residual if type(residual) is tuple else (residual,)
        known = (*ARRAY_LIKE, *NUMBERS, type(None))
        if not all(isinstance(part, known) for part in parts):
            raise OdysseyError(
                f"op {layout.name}: with_residual left {type(residual).__name__} {residual!r}; the "
                "residual must be an array, a number or a tuple of them"
            )
        own = tuple([copy_if_shared(part, (*args, *outs)) for part in parts])
        out = (
            _separate_results(layout, outs, args)
            if layout.cotangents
            else copy_if_shared(out, args)
        )
        return out, own if type(residual) is tuple else own[0]

    return with_own_residual


def check_rule(layout: Layout, place: int, rule: Rule | None, forward: bool = False) -> Rule | None:
    """Wrap a user's rule: check its result, and copy it if it is a saved array.

    Gradients share memory with nothing.

    Args:
        layout: Layout of the op.
        place: Index of the operand of the rule.
        rule: The rule as a sweep calls it.
        forward: True for a forward rule.
    """
    if rule is None or rule is PASS:
        return rule
    who = f"{layout.name}: the {'forward ' if forward else ''}rule of {layout.arrays[place]}"

    def several(t: Any, kept: Any, specs: Any) -> Any:
        moved = rule(t, kept, specs)
        return moved.with_parts(
            {j: one(moved.parts[j], kept, specs[-1].parts[j]) for j in moved.parts}
        )

    def one(r: Any, kept: Any, wide: Any) -> Any:
        """Check the tangent of one of several results."""
        if not isinstance(r, (Value, Symbol)):
            r = plain_result(who, r)
        if wide.shape != r.shape:
            _check_broadcast(who, r.shape, wide.shape, r.shape)
        return r.copy() if any(r is value for value in kept or ()) else r

    if forward and layout.cotangents:
        return several

    def checked_rule(g: Any, kept: Any, specs: Any) -> Any:
        box = [rule(g, kept, specs)]
        if not isinstance(box[0], (Value, Symbol)):
            box[0] = plain_result(who, box[0])
        r = _copy_workspace(box, (g, *(kept or ())))
        own = specs[-1 if forward else place] if specs is not None else g
        wide, narrow = (own, r) if forward else (r, own)
        if own is not None and wide.shape != narrow.shape:
            _check_broadcast(who, r.shape, wide.shape, narrow.shape)
        return r.copy() if any(r is value for value in kept or ()) else r

    return checked_rule


def _copy_workspace(box: list[Any], known: tuple[Any, ...]) -> Any:
    """Copy the result of a rule, held only by ``box``, if the rule retains it as a workspace.

    A result that is an argument of the rule, or a view of one, is returned as it is.
    """
    if not is_referenced_elsewhere(box):
        return box[0]
    owner = owner_of(box[0])
    given = any(owner is owner_of(value) for value in known)
    return box[0] if given else box[0].copy()


def _check_broadcast(who: str, came: Any, wide: Any, narrow: Any) -> None:
    try:
        fits = np.broadcast_shapes(wide, narrow) == wide
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{who} gave something of shape {came} for a value of shape "
            f"{narrow if came == wide else wide}; try od.testing.check_gradients"
        )


def refuse_complex(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a kernel or shape rule of a real-only op raise for complex results."""

    @wraps(function)
    def real_only(*values: Any) -> Any:
        result = function(*values)
        if type(result) in ARRAYS and result.dtype.kind != "c":  # the commonest case
            return result
        for part in result if isinstance(result, tuple) else (result,):
            if part.dtype.kind == "c":
                raise DTypeError(
                    f"{name}: has no meaning for complex numbers, {part.dtype} came; "
                    "take the real part or the absolute value first"
                )
        return result

    return real_only
