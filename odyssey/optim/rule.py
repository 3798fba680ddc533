"""Update rules: pure (init, update) pairs over trees, made from the step of a single array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from odyssey.ops.arithmetic import add
from odyssey.tree import leaves, unflatten

__all__ = ["Rule", "State"]

State = dict[str, Any]
"""What a rule remembers of one parameter: ``"steps"``, and an array by the name of each slot."""


class Rule(NamedTuple):
    """A pure optimizer: ``init(params) -> state`` and ``update(grads, state, params)``.

    Attributes:
        slots: Names of the arrays of the parameter's shape that the rule remembers.
        step: ``step(g, state, p) -> (p, state)`` for one array, written with ops, so that it
            runs on arrays and traces on Symbols. ``state["steps"]`` counts the steps before.
        in_place: The same for plain arrays, ``in_place(g, state, p, scratch)``, writing into
            ``p`` and the state's arrays; ``scratch`` is a pair of arrays like ``p``. Equal to
            ``step`` bit for bit; for speed only.
        elementwise: Whether elements do not see one another, so that arrays may be cut up and
            joined.
    """

    slots: tuple[str, ...]
    step: Callable[[Any, State, Any], tuple[Any, State]]
    in_place: Callable[[Any, State, Any, Any], None] | None = None
    elementwise: bool = True

    def init(self, params: Any) -> list[State]:
        """Return the state before the first step: one record for each leaf, in order."""
        return [
            {"steps": 0} | {slot: np.zeros(p.shape, p.dtype) for slot in self.slots}
            for p in leaves(params)
        ]

    def update(self, grads: Any, state: list[State], params: Any) -> tuple[Any, list[State]]:
        """Return new parameters and new state; the arguments stay as they are.

        >>> from odyssey.optim import sgd
        >>> rule, params = sgd(0.5), {"w": np.array([3.0])}
        >>> rule.update({"w": np.array([4.0])}, rule.init(params), params)
        ({'w': array([1.])}, [{'steps': 1}])
        """
        columns = zip(leaves(grads), state, leaves(params), strict=True)
        results = [self.step(g, s, p) for g, s, p in columns]
        new_state = [s | {"steps": add(s["steps"], 1)} for _, s in results]
        return unflatten(params, [p for p, _ in results]), new_state
