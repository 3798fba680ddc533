"""Parts of a batch: the rows of a global batch that each shard gets."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from odyssey import tree
from odyssey.checks import format_value
from odyssey.devices.arrays import ARRAYS
from odyssey.errors import DTypeError, ShapeError
from odyssey.spec import Spec
from odyssey.table.value import Value, array_of

__all__ = ["batch_checksum", "batch_leaves", "describe_batch", "part_edges", "part_of_batch"]


def part_edges(rows: int, shards: int) -> list[int]:
    """Return where the parts of a batch begin, and its end; the first parts are longer by one row.

    >>> part_edges(10, 4)
    [0, 3, 6, 8, 10]
    """
    base, longer = divmod(rows, shards)
    return [k * base + min(k, longer) for k in range(shards + 1)]


def batch_leaves(who: str, batch: Any) -> tuple[list[Any], int]:
    """Return the leaves of a batch, and its number of rows.

    Raises:
        DTypeError, ShapeError: if a leaf has no rows, or leaves have different numbers of rows.
    """
    found = tree.leaves(batch)
    rows, first = None, 0
    for k, leaf in enumerate(found):
        if leaf is None:
            continue
        if not isinstance(leaf, (*ARRAYS, Value, Spec)):
            raise DTypeError(
                f"{who}: {_leaf_name(batch, k)} is {format_value(leaf)}; pass arrays whose first "
                "axis is that of examples, in a tuple or any tree"
            )
        if not leaf.shape:
            raise ShapeError(
                f"{who}: {_leaf_name(batch, k)} has no axis; the first axis of each array is that "
                "of examples"
            )
        if rows is None:
            rows, first = leaf.shape[0], k
        elif leaf.shape[0] != rows:
            raise ShapeError(
                f"{who}: {_leaf_name(batch, k)} has {leaf.shape[0]} rows, and "
                f"{_leaf_name(batch, first)} has {rows}; all arrays of a batch have as many"
            )
    if not rows:
        raise ShapeError(
            f"{who}: the batch has no {'arrays' if rows is None else 'rows'}; pass at least one "
            "example"
        )
    return found, rows


def part_of_batch(batch: Any, found: list[Any], start: int, stop: int) -> Any:
    """Return some rows of a batch, as views in a tree like it; of specs, specs."""
    return tree.unflatten(batch, [_rows_of(leaf, start, stop) for leaf in found])


def _rows_of(leaf: Any, start: int, stop: int) -> Any:
    if leaf is None:
        return None
    if isinstance(leaf, Spec):
        return Spec((stop - start, *leaf.shape[1:]), leaf.dtype)
    return leaf[start:stop]


def describe_batch(batch: Any, found: list[Any], rows: int) -> str:
    """Return rows, tree, shapes and dtypes of a batch as text, equal for equal ones."""
    kinds = [
        f"{path or 'the batch'} {leaf.dtype} {leaf.shape[1:]}"
        if leaf is not None
        else f"{path} None"
        for (path, _), leaf in zip(tree.paths(batch), found, strict=True)
    ]
    return f"{rows} rows of {', '.join(kinds)}"


def batch_checksum(found: list[Any]) -> int:
    """Return a checksum of the numbers of a batch."""
    total = 0
    for leaf in found:
        if leaf is not None:
            array = np.ascontiguousarray(array_of(leaf)).reshape(-1)
            total = zlib.crc32(array.view(np.uint8).data, total)
    return total


def _leaf_name(batch: Any, k: int) -> str:
    path = list(tree.paths(batch))[k][0]
    return f"array {path} of the batch" if path else "the batch"


def __dir__() -> list[str]:
    return sorted(__all__)
