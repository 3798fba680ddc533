"""Wires: what a sweep passes between the node of a call and the nodes of its several results.

A call with several results is one node, and one more for each result. So a sweep's loop, where a
node has one result, needs to know nothing of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.spec import Spec

__all__ = ["MultiOutput", "MultiOutputSpec"]


class MultiOutput:
    """The cotangents, or tangents, of some of the results of one call, by number."""

    # ``chosen``: masks of the parts, by number, see ``tape.choices``.
    __slots__ = ("chosen", "parts")

    # For the sweep, which compares them with the spec on the nodes.
    shape = ()
    dtype = np.dtype(np.float64)

    def __init__(self, parts: dict[int, Any]) -> None:
        self.parts = parts
        self.chosen: dict[int, Any] = {}

    def __add__(self, other: MultiOutput) -> MultiOutput:
        parts = dict(self.parts)
        for k, part in other.parts.items():
            parts[k] = parts[k] + part if k in parts else part
        wire = self.with_parts(parts)
        wire.chosen = self.chosen | other.chosen
        return wire

    def with_parts(self, parts: dict[int, Any]) -> MultiOutput:
        """A wire like this one, with other parts."""
        return MultiOutput(parts)


class MultiOutputSpec(Spec):
    """The spec of a Wire, which has the form of a number for the sweep, and for nobody else.

    Attributes:
        parts: Specs of the results, where they are known.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Spec, ...] = ()) -> None:
        super().__init__((), MultiOutput.dtype)
        self.parts = parts

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.parts))})" if self.parts else "results"
