"""Functions that leave odyssey, called once for each example of ``vmap`` on plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import describe_type
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.errors import DTypeError, ShapeError
from odyssey.graph.batch_trace import BatchedArray, BatchTrace
from odyssey.ops.structure.joining import stack
from odyssey.table.store import store
from odyssey.table.value import NUMBERS, Symbol, Value, is_constant
from odyssey.tree import leaves, same_tree, unflatten
from odyssey.tree_objects import no_attributes

__all__ = ["PerExample"]


class _Residuals(NamedTuple):
    """The residuals of each example, by the number of the example."""

    examples: list[Any]


class PerExample:
    """A function of trees that ``vmap`` calls once for each example, and whose results it stacks.

    On Variables that a tape in the mapped function records it is called itself: its rules are
    differentiated.

    Args:
        function: The function.
        is_forward: Whether it returns a pair, whose second part are residuals, which are not
            stacked.
    """

    def __init__(self, function: Callable[..., Any], is_forward: bool = False) -> None:
        self.__wrapped__ = function
        self._is_forward = is_forward

    def __call__(self, *args: Any) -> Any:
        """Call the function, in ``vmap`` for each example."""
        trace = store()
        values = leaves(args, no_attributes)
        recorded = any(isinstance(v, Value) and not is_constant(v) for v in values)
        if type(trace) is not BatchTrace or recorded:
            return self.__wrapped__(*args)
        return self._call_each(trace, args)

    def _call_each(self, trace: BatchTrace, args: tuple[Any, ...]) -> Any:
        per_example = args[:1] and isinstance(args[0], _Residuals)
        shared = args[1:] if per_example else args
        values = [_payload(trace, v) for v in leaves(shared, no_attributes)]

        def call(k: int) -> Any:
            given = [v[k] if mapped else v for v, mapped in values]
            own = unflatten(shared, given, no_attributes)
            return self(*((args[0].examples[k], *own) if per_example else own))

        if not (per_example or any(mapped for _, mapped in values)):
            made = trace.compute_outside(call, 0)
            if self._is_forward and type(made) is tuple and len(made) == 2:
                return self._wrap(trace, made[0], False), made[1]
            return self._wrap(trace, made, False)
        if not trace.size:
            raise ShapeError(
                "vmap: a function that is called for each example has none to be called with, so "
                "the shape of its result is unknown; pass at least one example"
            )
        made = trace.compute_outside(lambda: [call(k) for k in range(trace.size)])
        if not self._is_forward:
            return self._stack(trace, made)
        for pair in made:
            if type(pair) is not tuple or len(pair) != 2:
                return pair  # the caller raises
        outs, residuals = zip(*made, strict=True)
        return self._stack(trace, outs), _Residuals(list(residuals))

    def _stack(self, trace: BatchTrace, results: Sequence[Any]) -> Any:
        """Return the results of all examples as one."""
        flat = [leaves(results[0], no_attributes)]
        flat += [
            same_tree("vmap", "result of an example", results[0], result, rule=no_attributes)
            for result in results[1:]
        ]
        columns = [list(column) for column in zip(*flat, strict=True)]
        made = trace.compute_outside(lambda: list(map(_stacked, columns)))
        wrapped = [v if v is None else trace.wrap(v, True) for v in made]
        return unflatten(results[0], wrapped, no_attributes)

    def _wrap(self, trace: BatchTrace, result: Any, mapped: bool) -> Any:
        flat = [v if v is None else trace.wrap(v, mapped) for v in leaves(result, no_attributes)]
        return unflatten(result, flat, no_attributes)


def _payload(trace: BatchTrace, value: Any) -> tuple[Any, bool]:
    """Return the array of all examples and True, or the value that they share and False."""
    if isinstance(value, Value):
        value = trace.read(value)
    if type(value) is not BatchedArray or value.graph is not trace:
        return value, False
    return value.payload, value.mapped


def _stacked(column: list[Any]) -> Any:
    """Return a leaf of all examples; None if it is None."""
    if all(leaf is None for leaf in column):
        return None
    for leaf in column:
        if not isinstance(leaf, (Symbol, Value, *ARRAY_LIKE)) and type(leaf) not in NUMBERS:
            raise DTypeError(
                f"vmap: a function that is called for each example returned {describe_type(leaf)}; "
                "return arrays, or trees of them, alike for all examples"
            )
    first = np.shape(column[0])
    for k, leaf in enumerate(column):
        if np.shape(leaf) != first:
            raise ShapeError(
                f"vmap: a function that is called for each example returned shape {first} for the "
                f"first, and {np.shape(leaf)} for example {k}; all must have one shape"
            )
    return stack([v if hasattr(v, "dtype") else np.asarray(v) for v in column])
