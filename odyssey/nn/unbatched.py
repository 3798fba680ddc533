"""Unbatched images: ops over samples also take one image without that axis."""

from __future__ import annotations

from typing import Any

from odyssey.ops.structure.shape import expand_dims, reshape, shape_of
from odyssey.table.declare import set_op_metadata

__all__ = ["accept_unbatched"]


def accept_unbatched(several: Any) -> Any:
    """Wrap an op of images and a weight so that it also takes one image, without the sample axis.

    The table keeps the row of the batched op; the wrapper adds the axis and removes it again.
    """
    row = several.row

    def call(*args: Any, **named: Any) -> Any:
        if len(args) < 2 or not 0 <= _axis_count(args[0]) == _axis_count(args[1]) - 1:
            return several(*args, **named)
        tape = named.get("tape")
        out = several(expand_dims(args[0], 0, tape=tape), *args[1:], **named)
        return reshape(out, shape_of(out)[1:], tape=tape)

    row.call = set_op_metadata(call, row)
    return row.call


def _axis_count(x: Any) -> int:
    """Return the number of axes of an operand; -1 if its shape is no tuple."""
    shape = x.shape if hasattr(x, "shape") else shape_of(x)
    return len(shape) if isinstance(shape, tuple) else -1
