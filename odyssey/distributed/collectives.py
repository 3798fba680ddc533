"""Collectives as rows of the table: linear ops, each the transpose of another.

Gradients are those of the sum of the losses of all ranks. A rule calls the transposed row, so that
derivatives of every order, forward mode and ``vmap`` follow; all ranks take part in each of these
calls, as in the call itself. No selection mask passes a collective: whether a rank has one depends
on its data, and the other ranks would wait for a call that only some make.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import is_half
from odyssey.distributed.ordered_sums import (
    GATHERED,
    add_in_tree_order,
    gather_rows,
    slices_of,
    sum_all,
    sum_own_rows,
    sum_own_slice,
)
from odyssey.errors import ShapeError
from odyssey.ops import moveaxis, op
from odyssey.spec import Spec

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce_scatter", "reduce_to", "shift"]


def _summed_dtype(dtype: Any) -> Any:
    """Return the dtype of a sum over ranks: bools are counted."""
    return np.dtype(np.int64) if dtype == np.bool_ else dtype


def _widened(x: Any) -> Any:
    """Return an array as sums take it: contiguous, halves as float32, bools as int64."""
    x = np.asarray(x)
    wide = np.float32 if is_half(x.dtype) else _summed_dtype(x.dtype)
    return np.array(x, wide, order="C", copy=None)


def _rounded(total: Any, x: Any) -> Any:
    """Return a sum in the dtype of what was summed."""
    return total.astype(x.dtype) if is_half(x.dtype) else total


def _contiguous(x: Any) -> Any:
    return np.array(x, order="C", copy=None)


def _gradient_name(name: str) -> str:
    """Return the name by which the collective in the gradient of another is announced."""
    return name if name.startswith("gradient of ") else f"gradient of {name}"


# ------------------------------------------------------------------ all_reduce


@op(
    infer=lambda x, group, reduction, name: Spec(x.shape, _summed_dtype(x.dtype)),
    vjp={
        "x": lambda g, group, reduction, name: all_reduce(
            g, group=group, reduction=reduction, name=_gradient_name(name)
        )
    },
    jvp={
        "x": lambda t, group, reduction, name: all_reduce(
            t, group=group, reduction=reduction, name=name
        )
    },
    vmap="leading",
    has_side_effect=True,
)
def all_reduce(x: Any, /, group: Any, reduction: str = "ordered", name: str = "all_reduce") -> Any:
    """Sum of an array over the ranks, on every rank."""
    wide, transport = _widened(x), group._transport
    if reduction == "fast":
        return _rounded(transport.sum_in_any_order(name, wide), x)
    return _rounded(sum_all(transport, name, wide), x)


# ------------------------------------------------------------------ all_gather, reduce_scatter


def _batch_all_gather(batch: Any, x: Any, group: Any, name: str) -> Any:
    return moveaxis(all_gather(x, group=group, name=name), 0, 1)


def _batch_reduce_scatter(batch: Any, x: Any, group: Any, name: str) -> Any:
    return reduce_scatter(moveaxis(x, 0, 1), group=group, name=name)


@op(
    infer=lambda x, group, name: Spec((group.size, *x.shape), x.dtype),
    vjp={"x": lambda g, group, name: reduce_scatter(g, group=group, name=_gradient_name(name))},
    jvp={"x": lambda t, group, name: all_gather(t, group=group, name=name)},
    vmap=_batch_all_gather,
    has_side_effect=True,
)
def all_gather(x: Any, /, group: Any, name: str = "all_gather") -> Any:
    """Arrays of all ranks, stacked in the order of ranks, on every rank."""
    x = _contiguous(x)
    return gather_rows(group._transport, name, x.reshape(-1), x).reshape(group.size, *x.shape)


def check_rows(x: Any, group: Any) -> None:
    """Raise ShapeError unless an array has one row for each rank."""
    if not x.shape or x.shape[0] != group.size:
        raise ShapeError(
            f"reduce_scatter: x has shape {tuple(x.shape)}, in a group of {group.size}; axis 0 "
            f"must have one row for each rank, {group.size}"
        )


def _infer_reduce_scatter(x: Any, group: Any, name: str) -> Any:
    check_rows(x, group)
    return Spec(x.shape[1:], _summed_dtype(x.dtype))


@op(
    infer=_infer_reduce_scatter,
    vjp={"x": lambda g, group, name: all_gather(g, group=group, name=_gradient_name(name))},
    jvp={"x": lambda t, group, name: reduce_scatter(t, group=group, name=name)},
    vmap=_batch_reduce_scatter,
    has_side_effect=True,
)
def reduce_scatter(x: Any, /, group: Any, name: str = "reduce_scatter") -> Any:
    """Sum over ranks of the row with the number of this rank."""
    check_rows(x, group)
    wide = _widened(x)
    total = sum_own_rows(group._transport, name, wide)
    return _rounded(total.reshape(x.shape[1:]), x)


# ------------------------------------------------------------------ broadcast, reduce_to


@op(
    infer=lambda x, group, root, name: Spec(x.shape, x.dtype),
    vjp={
        "x": lambda g, group, root, name: reduce_to(
            g, group=group, root=root, name=_gradient_name(name)
        )
    },
    jvp={"x": lambda t, group, root, name: broadcast(t, group=group, root=root, name=name)},
    vmap="leading",
    has_side_effect=True,
)
def broadcast(x: Any, /, group: Any, root: int = 0, name: str = "broadcast") -> Any:
    """Array of one rank, on every rank."""
    out = np.array(x, order="C")
    group._transport.send_to_all(name, out, root)
    return out


@op(
    infer=lambda x, group, root, name: Spec(x.shape, x.dtype),
    vjp={
        "x": lambda g, group, root, name: broadcast(
            g, group=group, root=root, name=_gradient_name(name)
        )
    },
    jvp={"x": lambda t, group, root, name: reduce_to(t, group=group, root=root, name=name)},
    vmap="leading",
    has_side_effect=True,
)
def reduce_to(x: Any, /, group: Any, root: int = 0, name: str = "reduce_to") -> Any:
    """Sum of an array over the ranks on one rank, and zeros on the others."""
    wide, transport = _widened(x), group._transport
    flat, here = wide.reshape(-1), transport.rank == root
    total = np.zeros_like(flat)
    if flat.nbytes <= GATHERED:
        table = gather_rows(transport, name, flat, wide)
        total = add_in_tree_order(list(table)) if here else total
    else:
        own = slices_of(len(flat), transport.size)
        mine = sum_own_slice(transport, name, flat, announced=wide)
        if here:
            total[own[root]] = mine
        transport.exchange(
            name,
            wide,
            [] if here else [(root, mine)],
            [(r, total[own[r]]) for r in transport.others] if here else [],
            "second half",
        )
    return _rounded(total.reshape(x.shape), x)


# ------------------------------------------------------------------ shift


@op(
    infer=lambda x, group, by, name: Spec(x.shape, x.dtype),
    vjp={"x": lambda g, group, by, name: shift(g, group=group, by=-by, name=_gradient_name(name))},
    jvp={"x": lambda t, group, by, name: shift(t, group=group, by=by, name=name)},
    vmap="leading",
    has_side_effect=True,
)
def shift(x: Any, /, group: Any, by: int = 1, name: str = "shift") -> Any:
    """Array of the rank that is ``by`` ranks before this one, around the ring of ranks."""
    x, transport = _contiguous(x), group._transport
    out = np.empty_like(x)
    to, source = ((transport.rank + step) % transport.size for step in (by, -by))
    if to == transport.rank:
        out[...] = x
    pairs = [] if to == transport.rank else [(to, x.reshape(-1))]
    transport.exchange(name, x, pairs, [(source, out.reshape(-1))] if pairs else [], f"by {by}")
    return out
