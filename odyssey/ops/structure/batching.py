"""Derived batch rules: elementwise ops, ops with leading axes, ops along an axis, and loops."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from odyssey.checks import user_stacklevel
from odyssey.errors import VmapWarning
from odyssey.ops.structure.shape import broadcast_to, moveaxis, reshape
from odyssey.spec import intern
from odyssey.table.batch import Batch, shift_axes
from odyssey.table.call import general
from odyssey.table.registry import function_of
from odyssey.table.value import NUMBERS

__all__ = [
    "align",
    "axes_from_end",
    "batch_last",
    "batch_rule",
    "example_specs",
    "flatten_examples",
    "loop_over_examples",
    "shift_axes",
    "spread",
]


# ------------------------------------------------------------------ operands


def align(x: Any, mapped: bool, ndim: int) -> Any:
    """Return an operand with ones behind the batch, so that examples have ``ndim`` axes.

    Examples of different numbers of axes then broadcast from the right, as they do one by one.
    """
    missing = ndim - (len(x.shape) - 1) if mapped else 0
    if missing <= 0:
        return x
    return reshape(x, (x.shape[0], *(1,) * missing, *x.shape[1:]))


def spread(batch: Batch, k: int, x: Any) -> Any:
    """Return operand ``k`` with the batch on axis 0, repeated if it is not mapped."""
    if batch.mapped[k] or x is None:
        return x
    x = x if hasattr(x, "shape") else np.asarray(x)
    return broadcast_to(x, (batch.size, *x.shape))


def batch_last(batch: Batch, k: int, x: Any) -> Any:
    """Return operand ``k`` with the batch on the last axis, repeated if it is not mapped."""
    return moveaxis(spread(batch, k, x), 0, -1)


def flatten_examples(x: Any) -> Any:
    """Return a mapped operand whose examples have one axis, in row-major order."""
    return x if len(x.shape) == 2 else reshape(x, (x.shape[0], prod(x.shape[1:])))


def axes_from_end(axis: Any, ndim: int) -> Any:
    """Return axes of one example, with ``ndim`` axes, counted from the end, behind any batch.

    None means all of them.
    """
    if axis is None:
        return tuple(range(-ndim, 0))
    if isinstance(axis, (tuple, list)):
        return tuple([axes_from_end(a, ndim) for a in axis])
    return axis % ndim - ndim


def example_specs(batch: Batch, operands: Sequence[Any], *options: Any) -> list[Any]:
    """Return the spec of one example of each operand, as shape rules take it, and the options."""
    specs = [
        x if x is None or type(x) in NUMBERS else intern(tuple(x.shape[m:]), x.dtype)
        for x, m in zip(operands, batch.mapped, strict=True)
    ]
    return [*specs, *options] if options else specs


# ------------------------------------------------------------------ derived rules


@lru_cache(maxsize=512)
def batch_rule(row: Any) -> Callable[..., Any] | None:
    """Return the batch rule of a row, declared or derived; None if it runs by decomposition."""
    if callable(row.vmap):
        rule: Callable[..., Any] = row.vmap
        return rule
    if row.vmap is not None:
        return partial(_NAMED_RULES[row.vmap], row)
    if row.elementwise:
        return partial(_pointwise, row)
    if row.decomposition is not None:
        return None
    _warn_of_loop(row)
    return partial(loop_over_examples, row)


def _operands_and_options(row: Any, values: Sequence[Any]) -> tuple[Sequence[Any], tuple[Any, ...]]:
    count = len(row.arrays)
    return values[:count], tuple(values[count:])


def _pointwise(row: Any, batch: Batch, *values: Any) -> Any:
    """Run an elementwise row: examples are aligned from the right, with each other and options."""
    operands, options = _operands_and_options(row, values)
    ndim = max([batch.ndim(k, x) for k, x in enumerate(operands)])
    if options:  # bounds may be arrays
        ndim = max(ndim, *[np.ndim(o) for o in options if isinstance(o, np.ndarray)], 0)
    aligned = [align(x, m, ndim) for x, m in zip(operands, batch.mapped, strict=True)]
    return general(row, aligned, options)


def _leading(row: Any, batch: Batch, *values: Any) -> Any:
    """Run a row whose operands may have further axes in front."""
    operands, options = _operands_and_options(row, values)
    ndim = max([batch.ndim(k, x) for k, x in enumerate(operands)])
    # Examples of too few axes would be taken for rows of a matrix.
    row.infer(*example_specs(batch, operands, *options))
    aligned = [align(x, m, ndim) for x, m in zip(operands, batch.mapped, strict=True)]
    return general(row, aligned, options)


def _along(row: Any, batch: Batch, *values: Any) -> Any:
    """Run a row of one array along the axes of an example that its option ``axis`` names.

    None means all axes: the op then runs along the one axis of flat examples.
    """
    operands, options = _operands_and_options(row, values)
    (x,) = operands
    named = dict(zip(row.options, options, strict=True))
    axis, ndim = named["axis"], len(x.shape) - 1
    if axis is not None and (ndim or isinstance(axis, (tuple, list))):
        named["axis"] = shift_axes(axis, ndim)
        return general(row, [x], tuple(named.values()))
    if axis is None and "keepdims" in named:
        shape = (batch.size, *(1,) * (ndim if named["keepdims"] else 0))
    else:
        shape = (batch.size, *row.infer(*example_specs(batch, operands, *options)).shape)
    named["axis"] = 1
    if "keepdims" in named:
        named["keepdims"] = False
    out = general(row, [flatten_examples(x)], tuple(named.values()))
    return out if out.shape == shape else reshape(out, shape)


def loop_over_examples(row: Any, batch: Batch, *values: Any) -> Any:
    """Run a row by one call for each example, and stack the results."""
    stack: Any = function_of("stack")  # whose module imports this one
    operands, options = _operands_and_options(row, values)

    def call(k: int) -> Any:
        pairs = zip(operands, batch.mapped, strict=True)
        return general(row, [x[k] if m else x for x, m in pairs], options)

    if not batch.size:
        return _results_of_no_examples(row, operands, batch, options)
    calls = [call(k) for k in range(batch.size)]
    if row.pack_results is None:
        return stack([c if hasattr(c, "dtype") else np.asarray(c) for c in calls], 0)
    return tuple([stack(list(column), 0) for column in zip(*calls, strict=True)])


def _results_of_no_examples(
    row: Any, operands: Sequence[Any], batch: Batch, options: tuple[Any, ...]
) -> Any:
    inferred = row.infer(*example_specs(batch, operands, *options))
    several = inferred if row.pack_results is not None else (inferred,)
    made = [np.zeros((0, *spec.shape), spec.dtype) for spec in several]
    return made[0] if row.pack_results is None else tuple(made)


_NAMED_RULES: dict[str, Callable[..., Any]] = {
    "leading": _leading,
    "along": _along,
    "loop": loop_over_examples,
}


def _warn_of_loop(row: Any) -> None:
    """Warn that a row has no batch rule, and declare that it loops: there is one warning for it."""
    row.vmap = "loop"
    warnings.warn(
        f"vmap: the op {row.name} has no batch rule, so it is called once for each example; "
        'declare it with vmap="loop" to accept that, or with a batch rule, see od.op',
        VmapWarning,
        stacklevel=user_stacklevel(),
    )
