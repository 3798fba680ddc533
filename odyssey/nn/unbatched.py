"""One image instead of several: what takes samples takes one without that axis too."""

from __future__ import annotations

from typing import Any

from odyssey.ops.structure.shape import expand_dims, reshape, shape_of

__all__ = ["or_one"]


def or_one(several: Any) -> Any:
    """The op of images and a weight, which also takes one image, of an axis fewer than the weight.

    Its row stays that of several: this is asked before it, and the axis is put in and left out.
    """
    row = several.row

    def call(*args: Any, **named: Any) -> Any:
        if len(args) < 2 or not 0 <= _axes(args[0]) == _axes(args[1]) - 1:
            return several(*args, **named)
        tape = named.get("tape")
        out = several(expand_dims(args[0], 0, tape=tape), *args[1:], **named)
        return reshape(out, shape_of(out)[1:], tape=tape)

    call.__name__ = call.__qualname__ = row.name
    call.__module__, call.__doc__ = row.module, row.doc
    call.__wrapped__ = row.reference  # type: ignore[attr-defined]
    call.row = row  # type: ignore[attr-defined]
    row.call = call
    return call


def _axes(x: Any) -> int:
    """How many axes an operand has; -1 of what has a shape that is none."""
    shape = x.shape if hasattr(x, "shape") else shape_of(x)
    return len(shape) if isinstance(shape, tuple) else -1
