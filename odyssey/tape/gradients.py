"""What a backward sweep returns: cotangents, looked up by Variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from odyssey.errors import TapeError
from odyssey.variable import Variable

__all__ = ["Gradients"]


class Gradients(Mapping[Variable, Any]):
    """The cotangents of one sweep.

    Look up any Variable that the sweep reached and that was alive then; iteration goes over
    leaves and watched Variables. Arrays share memory with no ``.grad``.

    >>> import odyssey as od
    >>> w = od.Variable(3.0, requires_grad=True, name="w")
    >>> with od.GradientTape() as tape:
    ...     y = w * w
    >>> gradients = tape.backward(y)
    >>> float(gradients[w]), float(gradients[y]), len(gradients)
    (6.0, 1.0, 1)
    """

    __slots__ = ("__weakref__", "_by_id", "_ends", "_given")

    def __init__(self, by_id: dict[int, Any], ends: list[Variable]) -> None:
        self._by_id = by_id
        self._ends = ends
        # Ids of the arrays that are this mapping's alone: a sweep's cotangents may share memory.
        self._given: set[int] = set()

    def __getitem__(self, variable: Variable) -> Any:
        g = self._by_id.get(variable.id) if isinstance(variable, Variable) else None
        if g is None:
            raise KeyError(
                f"{variable!r} was not reached by this sweep, or did not require a gradient"
            )
        if isinstance(g, (np.ndarray, np.generic)) and variable.id not in self._given:
            g = self._by_id[variable.id] = np.array(g)
            self._given.add(variable.id)
        return g

    def __contains__(self, variable: object) -> bool:
        return isinstance(variable, Variable) and variable.id in self._by_id

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._ends)

    def __len__(self) -> int:
        return len(self._ends)

    def __repr__(self) -> str:
        names = ", ".join(v.name or f"#{v.id}" for v in self._ends)
        return f"<Gradients of {names}>"

    def __reduce__(self) -> Any:
        raise TapeError("Gradients: keyed by identity, so not pickled; store the arrays by name")
