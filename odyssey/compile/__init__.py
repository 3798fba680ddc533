"""``compile``: trace a function into a graph of table ops, and run the graph.

>>> import numpy as np
>>> import odyssey as od
>>> double_sum = od.compile(lambda x: (x * 2.0).sum())
>>> print(double_sum.lower(np.zeros(3)).graph)
graph(%0: float64[3]):
  %1: float64[3] = multiply(%0, 2.0)
  %2: float64[] = sum(%1, axis=None, keepdims=False)
  return %2
>>> double_sum(np.array([1.0, 2.0, 3.0]))
array(12.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import numpy as np

from odyssey.compile.graph import Graph
from odyssey.compile.program import Program
from odyssey.compile.trace import trace
from odyssey.errors import DTypeError
from odyssey.ops.scope import TRACE, find, homes_of
from odyssey.ops.values import CONSTANT, Mark, free_id, make_value
from odyssey.spec import spec_of
from odyssey.tree import leaves, paths, unflatten
from odyssey.variable import Variable

__all__ = ["Compiled", "Lowered", "compile"]


class Lowered:
    """A function traced for arguments of certain shapes: its graph, and a program that runs it."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.graph: Graph
        self.graph, self._result = trace(fn, args)
        self._was_variable = [isinstance(v, Variable) for v in leaves(self._result)]
        self._program = Program(self.graph)

    def __call__(self, *args: Any) -> Any:
        """Run on arguments of the shapes that were lowered."""
        arrays = [a for a in map(_array, leaves(list(args))) if a is not None]
        outputs = self._program.run(arrays)
        values = [
            make_value(Variable, v, CONSTANT, free_id()) if was else v
            for v, was in zip(outputs, self._was_variable, strict=True)
        ]
        return unflatten(self._result, values)


class Compiled:
    """A function that is traced once for each combination of argument shapes, and then replayed."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        update_wrapper(self, fn)
        self._fn = fn
        self._lowered: dict[Any, Lowered] = {}

    def lower(self, *args: Any) -> Lowered:
        """Trace for arguments like these; nothing is computed and no Variable changes."""
        return Lowered(self._fn, args)

    def __call__(self, *args: Any) -> Any:
        """Run; trace first if these shapes are new. Inside another trace, become part of it.

        While a tape records it runs as it was written, so that the tape sees every op.
        """
        if TRACE.get() is not None or _is_recorded(args):
            return self._fn(*args)
        key = tuple(
            (path, spec_of(a) if (a := _array(leaf)) is not None else _static(path, leaf))
            for path, leaf in paths(list(args))
        )
        if key not in self._lowered:
            self._lowered[key] = self.lower(*args)
        return self._lowered[key](*args)


def _is_recorded(args: tuple[Any, ...]) -> bool:
    """Whether a tape is to differentiate through the call."""
    values = leaves(list(args))
    found = find("compile", values, homes_of(values))
    return found is not None and not isinstance(found, Mark)


def _array(leaf: Any) -> Any:
    """The array of an argument that becomes an input of the graph; None for what is static."""
    if isinstance(leaf, Variable):
        return None if leaf.requires_grad else leaf._array
    return leaf if isinstance(leaf, (np.ndarray, np.generic)) else None


def _static(path: str, leaf: Any) -> Any:
    """What stands in the cache's key for an argument that is fixed at tracing."""
    try:
        hash(leaf)
    except TypeError:
        raise DTypeError(
            f"compile: argument {path} is a {type(leaf).__name__}, which is neither an array nor "
            "hashable; pass arrays, numbers or strings, or let the function close over it"
        ) from None
    return (type(leaf), leaf)


def compile(fn: Callable[..., Any]) -> Compiled:
    """Compile ``fn``: trace it into a flat graph of ops, and run that.

    Array arguments are inputs; everything else is fixed at tracing. Variables that ``fn``
    captures are the graph's state: it reads them when it runs, and what ``fn`` assigns to them,
    an optimizer step for instance, is written back in place.

    Args:
        fn: A function of arrays and trees of arrays. It may open tapes, sweep, and step.

    Returns:
        A callable with a method ``lower(*args)``, whose result has the ``graph``.

    Raises:
        TapeError: where Python would need a value, as in ``if x > 0``.
    """
    return Compiled(fn)
