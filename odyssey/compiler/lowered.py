"""Lowered functions: a graph traced for certain arguments, to print and evaluate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from odyssey.compiler.arguments import input_leaves, static_values
from odyssey.compiler.interpreter import check_argument_specs, interpret
from odyssey.compiler.tracing.attempt import TraceAttempt
from odyssey.errors import DTypeError, TapeError
from odyssey.graph.graph import Graph
from odyssey.table.value import array_of
from odyssey.tree import unflatten

__all__ = ["Lowered"]


class Lowered:
    """A function traced for arguments of certain shapes.

    Attributes:
        graph: The graph; print it to read it. It is immutable.
    """

    graph: Graph

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]):
        trial = TraceAttempt(fn, args, named, allow_unknown=True)
        if trial.error is not None:
            # In no cycle: the frames of the error hold the trial, and what the function captured.
            error, trial.error = trial.error, None
            try:
                raise error
            finally:
                del error
        self.graph = trial.graph
        self.graph.seal()
        self._fn = fn
        self._result = trial.result
        self._given = static_values(args, named)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the function on arguments of the traced shapes."""
        check_argument_specs(self.graph, _argument_arrays(args, named))
        return self._fn(*args, **named)

    def evaluate(self, *args: Any, **named: Any) -> tuple[Any, dict[str, Any]]:
        """Run the graph without side effects.

        Returns:
            The result, with arrays for Variables, and by label the values that a call of the
            function would leave in the Variables that it captures.

        >>> import numpy as np
        >>> import odyssey as od
        >>> w = od.Variable([1.0, 2.0], name="w")
        >>> lowered = od.compile(lambda x: w.assign(w + x).sum()).lower(np.ones(2))
        >>> lowered.evaluate(np.array([10.0, 20.0]))
        (array(33.), {'w': array([11., 22.])})
        """
        if (given := static_values(args, named)) != self._given:
            raise DTypeError(
                f"evaluate: {self._given} are fixed in this graph, and {given} came; lower again"
            )
        outputs, left = interpret(self.graph, _argument_arrays(args, named))
        return unflatten(self._result, outputs), left

    def __repr__(self) -> str:
        return str(self.graph)

    def __reduce__(self) -> NoReturn:
        raise TapeError(
            "lower: a graph refers to Variables of this process, so it is neither copied nor "
            "pickled; lower again"
        )


def _argument_arrays(args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """Return the arrays among arguments."""
    return list(map(array_of, input_leaves(args, named)))
