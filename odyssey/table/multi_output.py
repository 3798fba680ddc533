"""Multi-output calls: cotangents and tangents between the node of a call and those of its results.

A call with several results has one node, and one more for each result. So every node has one
result, and the loop of a sweep needs no case for several.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.spec import Spec

__all__ = ["MultiOutput", "MultiOutputSpec"]


class MultiOutput:
    """Cotangents, or tangents, of some results of one call, by index."""

    # ``chosen``: selection masks of the parts, by index, see ``tape.gradient_mask``.
    __slots__ = ("chosen", "parts")

    # The sweep compares these with the spec on the nodes.
    shape = ()
    dtype = np.dtype(np.float64)

    def __init__(self, parts: dict[int, Any]) -> None:
        self.parts = parts
        self.chosen: dict[int, Any] = {}

    def __add__(self, other: MultiOutput) -> MultiOutput:
        parts = dict(self.parts)
        for k, part in other.parts.items():
            parts[k] = parts[k] + part if k in parts else part
        total = self.with_parts(parts)
        total.chosen = self.chosen | other.chosen
        return total

    def with_parts(self, parts: dict[int, Any]) -> MultiOutput:
        """Return a MultiOutput like this one with other parts."""
        return MultiOutput(parts)


class MultiOutputSpec(Spec):
    """The spec of a MultiOutput: a scalar to the sweep.

    Attributes:
        parts: Specs of the results, if known.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Spec, ...] = ()) -> None:
        super().__init__((), MultiOutput.dtype)
        self.parts = parts

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.parts))})" if self.parts else "results"
