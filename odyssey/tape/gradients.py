"""Result of a backward sweep: cotangents, looked up by Variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from odyssey.checks import format_value
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.same_device import array_copy
from odyssey.errors import TapeError, UnreachedError
from odyssey.sparse_rows import SparseRows
from odyssey.table.value import Value
from odyssey.tape.sweep import conj_if_complex
from odyssey.variable import Variable

__all__ = ["Gradients", "query_id_of"]


def query_id_of(variable: Value) -> int:
    """Return the watched id of a Variable, even if it was written to since; else its own id."""
    info = variable._info
    watched: int | None = None if info is None else info.watched
    return variable._id if watched is None else watched


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

    __slots__ = ("__weakref__", "_copies", "_leaves", "_reached", "_watched")

    def __init__(self, reached: dict[int, Any], leaves: dict[Variable, Any]) -> None:
        self._reached = reached  # results by id; arrays are not conjugated yet
        self._leaves: dict[Variable, Any] = leaves
        self._watched: tuple[Any, ...] = ()
        # Arrays that were looked up, by id. A sweep's cotangents may share memory, these copies do
        # not. The corresponding entry above is None.
        self._copies: dict[int, Any] = {}

    def __getitem__(self, variable: Variable) -> Any:
        if variable not in self:
            raise UnreachedError(
                f"{format_value(variable)} was not reached by this sweep, or did not require a "
                "gradient"
            )
        leaf = variable in self._leaves
        id = variable._id if leaf else query_id_of(variable)
        if id not in self._copies:
            # In this order, because another thread may look up the same Variable.
            g = self._leaves[variable] if leaf else self._reached[id]
            if isinstance(g, ARRAY_LIKE):
                g = array_copy(g if leaf else conj_if_complex(g))
            elif type(g) is SparseRows:
                g = g.copy()
            if g is not None:
                self._copies.setdefault(id, g)
            if leaf:
                self._leaves[variable] = None
            else:
                self._reached[id] = None
        return self._copies[id]

    def __contains__(self, variable: object) -> bool:
        if not isinstance(variable, Variable):
            return False
        return variable in self._leaves or query_id_of(variable) in self._reached

    def __iter__(self) -> Iterator[Variable]:
        return iter((*self._leaves, *self._watched))

    def __len__(self) -> int:
        return len(self._leaves) + len(self._watched)

    def __repr__(self) -> str:
        names = ", ".join(v.name or f"#{v.id}" for v in self)
        return f"<Gradients of {names}>"

    def __reduce__(self) -> Any:
        raise TapeError("Gradients: keyed by identity, so not pickled; store the arrays by name")
