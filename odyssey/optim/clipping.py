"""Gradient clipping by value, by norm and by global norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_flag, check_number, format_value
from odyssey.devices.commit import Plan, commit
from odyssey.devices.half_dtypes import is_half
from odyssey.devices.same_device import array_copy, on_one_device, place_beside
from odyssey.errors import DTypeError, OdysseyError
from odyssey.optim.groups import parameter_paths
from odyssey.optim.rule import weak_factor
from odyssey.sparse_rows import SparseRows
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.value import Symbol
from odyssey.variable import Variable

__all__ = ["clip_grad_global_norm", "clip_grad_norm", "clip_grad_value"]


def clip_grad_value(params: Any, limit: float) -> None:
    """Cut every element of every gradient to ``[-limit, limit]``; NaN stays NaN.

    Args:
        params: Variables in any tree. Those without a gradient, and frozen ones, are left out.
        limit: A number, at least 0.

    Raises:
        DTypeError: for complex gradients, which have no order.

    >>> from odyssey import Variable
    >>> w = Variable([0.0, 0.0], requires_grad=True)
    >>> w.grad = [3.0, -0.5]
    >>> clip_grad_value([w], 1.0)
    >>> w.grad
    array([ 1. , -0.5])
    """
    limit = check_number("clip_grad_value", "limit", limit, "[0, inf]")
    found = _params_with_gradients("clip_grad_value", params)
    for p in found:
        if p.dtype.kind == "c":
            raise DTypeError(
                f"clip_grad_value: {p!r} is complex, and complex numbers have no order; "
                "use clip_grad_norm"
            )

    def cut(g: Any) -> Any:
        return ops.minimum(ops.maximum(g, -limit), limit)

    _replace(found, [_changed_gradient(g, cut) for g in map(_gradient_of, found)])


def clip_grad_norm(params: Any, max_norm: float, *, norm_type: float = 2.0) -> None:
    """Scale each gradient whose norm is above ``max_norm`` down to it; each by itself.

    The scale is that of ``clip_grad_global_norm``, and the same holds of norms that are not finite.

    Args:
        params: Variables in any tree. Those without a gradient, and frozen ones, are left out.
        max_norm: The largest norm, at least 0.
        norm_type: The exponent of the norm; ``math.inf`` for the largest absolute value.

    >>> from odyssey import Variable
    >>> a, b = Variable([0.0, 0.0], requires_grad=True), Variable([0.0], requires_grad=True)
    >>> a.grad, b.grad = [3.0, 4.0], [0.5]
    >>> clip_grad_norm([a, b], 1.0)
    >>> a.grad.round(5), b.grad
    (array([0.6, 0.8]), array([0.5]))
    """
    max_norm = check_number("clip_grad_norm", "max_norm", max_norm, "[0, inf]")
    norm_type = check_number("clip_grad_norm", "norm_type", norm_type, "(0, inf]")
    found = _params_with_gradients("clip_grad_norm", params)
    grads = list(map(_gradient_of, found))
    factors = [_factor(_norm([g], norm_type), max_norm) for g in grads]
    _replace(found, [_scaled(g, factor) for g, factor in zip(grads, factors, strict=True)])


def clip_grad_global_norm(
    params: Any, max_norm: float, *, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Any:
    """Scale all gradients together so that their common norm is at most ``max_norm``.

    All are multiplied by ``min(1, max_norm / (norm + 1e-6))``, as in PyTorch. A norm that is NaN
    makes every gradient NaN; an infinite one makes finite gradients 0 and infinite ones NaN.

    Args:
        params: Variables in any tree. Those without a gradient, and frozen ones, are left out.
        max_norm: The largest norm, at least 0.
        norm_type: The exponent of the norm; ``math.inf`` for the largest absolute value.
        error_if_nonfinite: Raise instead where the norm is NaN or infinite.

    Returns:
        The norm before clipping; 0.0 where there are no gradients.

    Raises:
        OdysseyError: for a norm that is not finite, if asked for; nothing has changed then.

    >>> from odyssey import Variable
    >>> a, b = Variable([0.0], requires_grad=True), Variable([0.0], requires_grad=True)
    >>> a.grad, b.grad = [3.0], [4.0]
    >>> clip_grad_global_norm([a, b], 1.0)
    5.0
    >>> a.grad.round(5), b.grad.round(5)
    (array([0.6]), array([0.8]))
    """
    who = "clip_grad_global_norm"
    max_norm = check_number(who, "max_norm", max_norm, "[0, inf]")
    norm_type = check_number(who, "norm_type", norm_type, "(0, inf]")
    error_if_nonfinite = check_flag(who, "error_if_nonfinite", error_if_nonfinite)
    found = _params_with_gradients(who, params)
    if not found:
        return 0.0
    grads = list(map(_gradient_of, found))
    norm = _norm(grads, norm_type)
    if error_if_nonfinite and not math.isfinite(norm):
        raise OdysseyError(
            f"{who}: the norm of the gradients is {float(norm)}; find where it "
            "comes from with GradientTape(check=True)"
        )
    factor = _factor(norm, max_norm)
    _replace(found, [_scaled(g, factor) for g in grads])
    return norm if isinstance(norm, Symbol) else float(norm)


# ------------------------------------------------------------------ shared pieces


def _params_with_gradients(who: str, params: Any) -> list[Variable]:
    found = []
    for path, p in parameter_paths(params):
        if not isinstance(p, Variable):
            raise DTypeError(f"{who}: {path or 'params'} is {format_value(p)}; pass Variables")
        if p.requires_grad and p.grad is not None:
            found.append(p)
    return found


def _norm(grads: list[Any], norm_type: float) -> Any:
    """The norm of all elements of all gradients, as a number or a Symbol."""
    arrays = [g.values if type(g) is SparseRows else g for g in grads]
    sizes = [ops.absolute(g) for g in arrays]
    if norm_type == math.inf:
        largest = on_one_device([ops.max(size) for size in sizes if size.size])
        total: Any = 0.0
        for one in largest:
            total = ops.maximum(total, one)
        return total
    if norm_type == 2:
        return ops.sqrt(_sum_of([ops.sum(ops.square(_at_least_single(size))) for size in sizes]))
    sums = [ops.sum(ops.power(_at_least_single(size), norm_type)) for size in sizes]
    return ops.power(_sum_of(sums), 1 / norm_type)


def _at_least_single(x: Any) -> Any:
    # Squares of half precision are infinite from 256 on.
    return ops.astype(x, np.float32) if is_half(x.dtype) else x


def _sum_of(numbers: list[Any]) -> Any:
    total, *others = on_one_device(numbers)
    for other in others:
        total = ops.add(total, other)
    return total


def _factor(norm: Any, max_norm: float) -> Any:
    return ops.minimum(ops.divide(max_norm, ops.add(norm, 1e-6)), 1.0)


def _gradient_of(p: Variable) -> Any:
    """Return a gradient as an operand; of sparse rows, repeated rows are added up."""
    g = p.grad
    return g.coalesce() if type(g) is SparseRows else operand_of(g)


def _changed_gradient(g: Any, change: Callable[[Any], Any]) -> Any:
    """Return a gradient after a function of its elements that keeps zeros."""
    return g.map_values(change) if type(g) is SparseRows else change(g)


def _scaled(g: Any, factor: Any) -> Any:
    def scale(g: Any) -> Any:
        wide = _at_least_single(g)
        # Small factors are none of half precision.
        scaled = ops.multiply(wide, weak_factor(factor, wide))
        return scaled if wide is g else ops.astype(scaled, g.dtype)

    return _changed_gradient(g, scale)


def _replace(params: list[Variable], grads: list[Any]) -> None:
    """Give all parameters their new gradients, or none."""
    if store() is not MEMORY:
        for p, g in zip(params, grads, strict=True):
            if g.dtype == _gradient_dtype(p, g):
                store().set_gradient(p, g)
            else:
                p.grad = g
        return
    infos = [p._info for p in params]
    own = [
        (g if g.dtype == dtype else g.astype(dtype)).copy()
        if type(g) is SparseRows
        else array_copy(place_beside(g, info.grad), dtype)
        for info, dtype, g in zip(infos, map(_gradient_dtype, params, grads), grads, strict=True)
    ]
    plan: Plan = [(setattr, info, "grad", g) for info, g in zip(infos, own, strict=True)]
    commit([*plan, *[(setattr, info, "loan", None) for info in infos]])


def _gradient_dtype(p: Variable, g: Any) -> Any:
    """Return the dtype that a gradient is kept in: of half precision, unscaled ones are float32."""
    return g.dtype if is_half(p.dtype) and g.dtype == np.float32 else p.dtype
