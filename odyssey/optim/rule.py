"""Update rules: pure (init, update) pairs over trees, built from the step of one array."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import describe_type, format_value
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.half_dtypes import is_half, is_number_dtype
from odyssey.devices.same_device import array_copy, new_beside
from odyssey.errors import DTypeError
from odyssey.sparse_rows import SparseRows
from odyssey.spec import Shape
from odyssey.table.real_operands import real_dtype
from odyssey.table.store import operand_of
from odyssey.table.tree_sources import fixed_leaves
from odyssey.table.value import NUMBERS, Symbol, Value
from odyssey.tree import leaves, same_tree, unflatten

__all__ = ["MASTER", "Rule", "State", "chosen_step", "state_dtype", "synced_master", "weak_factor"]

State = dict[str, Any]
"""What a rule remembers of one parameter: ``"steps"``, and an array by the name of each slot."""

MASTER = "master"
"""Slot of a half-precision parameter: its value in float32, which the steps add up in."""


def state_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the state and of the arithmetic for parameters of a dtype.

    In float16 an ``eps`` of 1e-8, and squares of gradients below 2e-4, are 0.

    >>> state_dtype(np.dtype(np.float16)), state_dtype(np.dtype(np.complex64))
    (dtype('float32'), dtype('complex64'))
    """
    return _FLOAT32 if is_half(dtype) else dtype


_FLOAT32 = np.dtype(np.float32)


def synced_master(master: Any, p: Any) -> Any:
    """Return the master weights of a parameter that may have been assigned since they were set.

    Where the parameter still is the rounded master weight, that weight is kept; elsewhere the
    parameter's own value is taken. So the master follows assignments, loading and freezing.
    """
    kept = ops.equal(ops.astype(master, p.dtype), p)
    return ops.where(kept, master, ops.astype(p, _FLOAT32))


@dataclass(frozen=True)
class Rule:
    """A pure optimizer: ``init(params) -> state`` and ``update(grads, state, params)``.

    Parameters of float16 and bfloat16 have a state of float32, with one more slot, ``master``: the
    parameter itself in float32. ``step`` gets the master and the gradient as float32, and the new
    master is rounded once to the parameter. Steps that are too small to change a half-precision
    number thus add up. Where a parameter was assigned since, the master follows it.

    Attributes:
        slots: Names of the arrays of the parameter's shape that the rule remembers.
        step: ``step(g, state, p) -> (p, state)`` for one array, written with ops, so that it
            runs on arrays and traces on Symbols. ``state["steps"]`` counts the steps before.
            The holder derives from it how to write in place.
        elementwise: Whether elements do not see one another, so that arrays may be cut up and
            joined; a complex parameter is then two real ones, its parts. Rules that are not
            take complex arrays as they are.
        start: The value that the slots begin with, in each part of a complex number.
        slot_shape: For a rule that is not elementwise, ``slot_shape(slot, shape)``: the shape of a
            slot for a parameter of a shape. ``step`` then gets arrays in their shapes, else it may
            get them flat.
        by_rows: Of an elementwise rule, whether rows without a gradient stay as they are, with
            their state, so that a gradient of ``od.SparseRows`` updates its rows alone. Other
            rules get it dense.
    """

    slots: tuple[str, ...]
    step: Callable[[Any, State, Any], tuple[Any, State]]
    elementwise: bool = True
    start: float = 0.0
    slot_shape: Callable[[str, Shape], Shape] | None = None
    by_rows: bool = False

    def slots_for(self, dtype: np.dtype[Any]) -> tuple[str, ...]:
        """Return the slots of a parameter of a dtype: of a half-precision one, ``master`` too.

        >>> from odyssey.optim import adam
        >>> adam().slots_for(np.dtype(np.float16))
        ('mean', 'square', 'master')
        """
        if not is_half(dtype):
            return self.slots
        if MASTER in self.slots:
            raise DTypeError(
                f"Rule: a parameter is {dtype}, whose state has a slot of its own, {MASTER!r}; "
                "give the rule's slot another name"
            )
        return (*self.slots, MASTER)

    def shape_of_slot(self, slot: str, shape: Shape) -> Shape:
        """Return the shape of a slot for a parameter of a shape."""
        alike = self.slot_shape is None or slot not in self.slots
        return shape if alike else self.slot_shape(slot, shape)  # type: ignore[misc]

    def init(self, params: Any) -> list[State]:
        """Return the state before the first step: one record for each leaf, in order.

        Constants, integers and numbers below a plain object have none: no step moves them. The
        count of steps is an array, so that a compiled step takes it as an input. Slots lie on the
        device of their leaf, the count on the host.
        """
        flat = _without(fixed_leaves(params, leaves(params)), leaves(params))
        _check_arrays("init: params", flat)
        return [
            {"steps": np.zeros((), np.int64)}
            | {slot: self._first_slot(slot, p) for slot in self.slots_for(p.dtype)}
            for p in flat
        ]

    def _first_slot(self, slot: str, p: Any) -> Any:
        """Return what a slot of a parameter begins with."""
        dtype = state_dtype(p.dtype)
        value = operand_of(p)
        if slot not in self.slots:
            symbolic = isinstance(value, Symbol)
            return ops.astype(value, dtype) if symbolic else array_copy(value, dtype)
        start = complex(self.start, self.start) if dtype.kind == "c" else self.start
        return new_beside((value,), "full", self.shape_of_slot(slot, p.shape), start, dtype)

    def update(self, grads: Any, state: list[State], params: Any) -> tuple[Any, list[State]]:
        """Return new parameters and new state; the arguments stay as they are.

        >>> from odyssey.optim import sgd
        >>> rule, params = sgd(0.5), {"w": np.array([3.0])}
        >>> rule.update({"w": np.array([4.0])}, rule.init(params), params)
        ({'w': array([1.])}, [{'steps': np.int64(1)}])
        """
        every = leaves(params)
        fixed = fixed_leaves(params, every)
        gradients = _without(fixed, same_tree("update", "gradients", params, grads))
        flat = _without(fixed, every)
        _check_arrays("update: params", flat)
        _check_arrays("update: gradients", gradients)
        if not isinstance(state, (list, tuple)) or len(state) != len(flat):
            raise DTypeError(
                f"update: the state is {format_value(state)}; pass what init(params) returned"
            )
        columns = zip(gradients, state, flat, strict=True)
        results = [self.new_leaf(g, s, p) for g, s, p in columns]
        new_state = [s | {"steps": ops.add(s["steps"], 1)} for _, s in results]
        moved = iter([p for p, _ in results])
        new = [p if k in fixed else next(moved) for k, p in enumerate(every)]
        return unflatten(params, new), new_state

    def update_rows(
        self, grad: SparseRows, state: State, p: Any, where: Any = True
    ) -> tuple[Any, State]:
        """Return a parameter and its state after a step that moves the rows of ``grad`` alone.

        Written with ops, as ``update``; for a rule ``by_rows``, while a graph is traced. Where
        ``where`` is a truth value of the graph that is false, the same rows are written again.
        """
        rows = grad.with_sums()

        def read(table: Any) -> Any:
            return ops.take(table, rows.indices, 0, mode="clip")

        old = read(p)
        given = {slot: read(state[slot]) for slot in state if slot != "steps"}
        (new,), (made,) = self.update([rows.values], [state | given], [old])
        if where is not True:
            new, made = chosen_step(where, (new, made), (old, state | given))
        places = ops.reshape(rows.indices, (-1, *[1] * (p.ndim - 1)))
        for slot in given:
            made[slot] = ops.put_along_axis(state[slot], places, made[slot], 0)
        return ops.put_along_axis(p, places, new, 0), made

    def stepped(self, g: Any, state: State, p: Any) -> tuple[Any, State]:
        """Return the result of ``step``; raise unless it is (p, state) with the same slots."""
        made = self.step(g, state, p)
        pair = isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict)
        if not pair or made[1].keys() != state.keys():
            came = f"a state of {', '.join(map(repr, made[1]))}" if pair else describe_type(made)
            raise DTypeError(
                f"Rule: step returned {came}; return the pair (p, state), with a state of "
                f"{', '.join(map(repr, state))}"
            )
        return made

    def new_leaf(self, g: Any, state: State, p: Any) -> tuple[Any, State]:
        """Return one parameter and its state after a step; the count of steps is as before."""
        if is_half(p.dtype):
            own = {name: value for name, value in state.items() if name != MASTER}
            wide = {slot: ops.astype(state[slot], _FLOAT32) for slot in self.slots}
            has_master = MASTER in state  # a state of an earlier version has none
            master = synced_master(state[MASTER], p) if has_master else ops.astype(p, _FLOAT32)
            new, made = self.stepped(ops.astype(g, _FLOAT32), own | wide, master)
            return ops.astype(new, p.dtype), made | ({MASTER: new} if has_master else {})
        if p.dtype.kind != "c" or not self.elementwise:
            return self.stepped(g, state, p)
        (p, real), (q, imag) = [
            self.stepped(
                component(g),
                state | {slot: component(state[slot]) for slot in self.slots},
                component(p),
            )
            for component in (ops.real, ops.imag)
        ]
        return _complex_from_parts(p, q), real | {
            s: _complex_from_parts(real[s], imag[s]) for s in self.slots
        }


def _without(fixed: Container[int], flat: list[Any]) -> list[Any]:
    """Return the leaves that are not fixed; see ``fixed_leaves``."""
    return [leaf for k, leaf in enumerate(flat) if k not in fixed] if fixed else flat


def _check_arrays(what: str, values: list[Any]) -> None:
    for value in values:
        known = isinstance(value, (*ARRAY_LIKE, Value, Symbol))
        if not known or not is_number_dtype(value.dtype):
            raise DTypeError(
                f"{what}: {format_value(value)} came; pass a tree of arrays or Variables"
            )


def _complex_from_parts(real: Any, imag: Any) -> Any:
    return ops.add(real, ops.multiply(1j, imag))


def chosen_step(flag: Any, new: tuple[Any, State], old: tuple[Any, State]) -> tuple[Any, State]:
    """Return parameter and state after a step if a truth value of a graph holds, else before it."""
    (p, made), (old_p, state) = new, old
    chosen = {name: ops.where(flag, value, state[name]) for name, value in made.items()}
    return ops.where(flag, p, old_p), chosen


# ------------------------------------------------------------------ helper of rules


def weak_factor(factor: Any, p: Any) -> Any:
    """Return a number that does not change the dtype of the array that it multiplies.

    Python numbers are weakly typed already. A number that a graph computes is cast to the real
    dtype of ``p``.
    """
    if type(factor) in NUMBERS:
        return factor
    return ops.astype(factor, real_dtype(p.dtype))
