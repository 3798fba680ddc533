"""Update rules: pure (init, update) pairs over trees, made from the step of a single array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import STUMBLES, number, shown
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.devices.commit import Plan
from odyssey.errors import DTypeError, SettingError
from odyssey.table.operands import real_dtype
from odyssey.table.value import NUMBERS, Symbol, Value
from odyssey.tree import leaves, same_tree, unflatten

__all__ = ["Constants", "Rule", "State", "like", "not_negative", "pair"]

State = dict[str, Any]
"""What a rule remembers of one parameter: ``"steps"``, and an array by the name of each slot."""


@dataclass(frozen=True)
class Rule:
    """A pure optimizer: ``init(params) -> state`` and ``update(grads, state, params)``.

    Attributes:
        slots: Names of the arrays of the parameter's shape that the rule remembers.
        step: ``step(g, state, p) -> (p, state)`` for one array, written with ops, so that it
            runs on arrays and traces on Symbols. ``state["steps"]`` counts the steps before.
        in_place: The same for plain arrays: ``in_place(g, state, p, scratch)`` returns the calls
            that write into ``p`` and the state's arrays, each a ufunc and its arguments, and makes
            none of them; ``scratch`` is a pair of arrays like ``p``. Equal to ``step`` bit for
            bit; for speed only, and of elementwise rules only.
        elementwise: Whether elements do not see one another, so that arrays may be cut up and
            joined; a complex parameter is then two real ones, its parts. Rules that are not
            take complex arrays as they are.
        start: The value that the slots begin with, in each part of a complex number.
        steady: Whether the calls that ``in_place`` returns are the same at each step.
    """

    slots: tuple[str, ...]
    step: Callable[[Any, State, Any], tuple[Any, State]]
    in_place: Callable[[Any, State, Any, Any], Plan] | None = None
    elementwise: bool = True
    start: float = 0.0
    steady: bool = False

    def init(self, params: Any) -> list[State]:
        """Return the state before the first step: one record for each leaf, in order."""
        _check_arrays("init: params", leaves(params))
        return [
            {"steps": 0} | {slot: self._first(p.shape, p.dtype) for slot in self.slots}
            for p in leaves(params)
        ]

    def _first(self, shape: Any, dtype: Any) -> Any:
        start = complex(self.start, self.start) if dtype.kind == "c" else self.start
        return np.full(shape, start, dtype)

    def update(self, grads: Any, state: list[State], params: Any) -> tuple[Any, list[State]]:
        """Return new parameters and new state; the arguments stay as they are.

        >>> from odyssey.optim import sgd
        >>> rule, params = sgd(0.5), {"w": np.array([3.0])}
        >>> rule.update({"w": np.array([4.0])}, rule.init(params), params)
        ({'w': array([1.])}, [{'steps': 1}])
        """
        gradients = same_tree("update", "gradients", params, grads)
        flat = leaves(params)
        _check_arrays("update: params", flat)
        _check_arrays("update: gradients", gradients)
        if not isinstance(state, (list, tuple)) or len(state) != len(flat):
            raise DTypeError(
                f"update: the state is {shown(state)}; pass what init(params) returned"
            )
        columns = zip(gradients, state, flat, strict=True)
        results = [self._leaf(g, s, p) for g, s, p in columns]
        new_state = [s | {"steps": ops.add(s["steps"], 1)} for _, s in results]
        return unflatten(params, [p for p, _ in results]), new_state

    def _leaf(self, g: Any, state: State, p: Any) -> tuple[Any, State]:
        if p.dtype.kind != "c" or not self.elementwise:
            return self.step(g, state, p)
        (p, real), (q, imag) = [
            self.step(part(g), state | {slot: part(state[slot]) for slot in self.slots}, part(p))
            for part in (ops.real, ops.imag)
        ]
        return _joined(p, q), real | {s: _joined(real[s], imag[s]) for s in self.slots}


def _check_arrays(what: str, values: list[Any]) -> None:
    for value in values:
        known = isinstance(value, (*ARRAY_LIKE, Value, Symbol))
        if not known or value.dtype.kind not in "biufc":
            raise DTypeError(f"{what}: {shown(value)} came; pass a tree of arrays or Variables")


def _joined(real: Any, imag: Any) -> Any:
    return ops.add(real, ops.multiply(1j, imag))


# ------------------------------------------------------------------ shared pieces of the rules


def like(factor: Any, p: Any) -> Any:
    """A number that does not change the dtype of what it is multiplied with.

    Python numbers are weak already; one that a graph computes is cast to the real dtype of ``p``.
    """
    if type(factor) in NUMBERS:
        return factor
    return ops.astype(factor, real_dtype(p.dtype))


class Constants(dict[Any, list[Any]]):
    """Numbers of an update in place, by dtype: as 0-d arrays of the dtype that they meet.

    NumPy takes half the time over them that it takes over Python's numbers.
    """

    def __init__(self, *numbers: Any) -> None:
        super().__init__()
        self._numbers = numbers

    def __missing__(self, dtype: Any) -> list[Any]:
        made = self[dtype] = [np.asarray(n, dtype) for n in self._numbers]
        return made


def not_negative(who: str, **values: Any) -> list[Any]:
    """Check that every setting is finite and not negative; return them as Python floats.

    A 0-d array stays one; a traced learning rate does, whose value is not known yet.
    """
    found: list[Any] = []
    for name, value in values.items():
        if isinstance(value, Symbol):
            found.append(value)
            continue
        try:
            plain = number(who, name, value, "[0, inf)")
        except SettingError:
            raise SettingError(
                f"{who}: {name}: {shown(value)} is negative, infinite or NaN; it must be finite, "
                "and must not be negative"
            ) from None
        found.append(value if isinstance(value, ARRAYS) else plain)
    return found


def pair(who: str, betas: Any) -> tuple[float, float]:
    """Check two averaging factors, each in [0, 1)."""
    try:
        first, second = betas
    except STUMBLES:
        raise DTypeError(f"{who}: betas={shown(betas)}; pass two numbers in [0, 1)") from None
    try:
        return number(who, "betas", first, "[0, 1)"), number(who, "betas", second, "[0, 1)")
    except SettingError:
        raise SettingError(f"{who}: betas={shown(betas)}; both must lie in [0, 1)") from None
