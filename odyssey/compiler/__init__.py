"""``compile``: trace a function into a graph of table ops.

>>> import numpy as np
>>> import odyssey as od
>>> double_sum = od.compile(lambda x: (x * 2.0).sum())
>>> print(double_sum.lower(np.zeros(3)).graph)
graph(%0: float64[3]):
  %1: float64[3] = multiply(%0, 2.0)
  %2: float64[] = sum(%1, axis=(0,), keepdims=False)
  return %2
>>> double_sum(np.array([1.0, 2.0, 3.0]))
np.float64(12.0)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from types import CoroutineType, MethodType
from typing import Any, NoReturn

import numpy as np
from numpy import ndarray

from odyssey.checks import function
from odyssey.compiler.program import check_specs, run
from odyssey.compiler.surroundings import Surroundings
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.errors import DTypeError, TapeError
from odyssey.graph.graph import Graph
from odyssey.graph.trace import Trace
from odyssey.table.store import MEMORY, store
from odyssey.table.value import array_of, is_trainable
from odyssey.tree import leaves, paths, unflatten
from odyssey.variable import Variable

__all__ = ["Compiled", "Lowered", "compile"]

# Of how many combinations of arguments a compiled function knows that they can be traced.
_LIMIT = 256


class Lowered:
    """A function traced for arguments of certain shapes.

    Attributes:
        graph: What it computes; print it to read it.
    """

    graph: Graph

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]):
        trial = _Trial(fn, args, named, anyway=True)
        if trial.error is not None:
            raise trial.error
        self.graph = trial.graph
        self._fn = fn
        self._result = trial.result
        self._given = _fixed(args, named)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the function on arguments of the shapes that were lowered."""
        check_specs(self.graph, _arrays(args, named))
        return self._fn(*args, **named)

    def evaluate(self, *args: Any, **named: Any) -> tuple[Any, dict[str, Any]]:
        """Run the graph, and write nothing.

        Returns:
            The result, with arrays for Variables, and by label what a run of the function would
            leave in the Variables that it captured.

        >>> w = Variable([1.0, 2.0], name="w")
        >>> lowered = compile(lambda x: w.assign(w + x).sum()).lower(np.ones(2))
        >>> lowered.evaluate(np.array([10.0, 20.0]))
        (array(33.), {'w': array([11., 22.])})
        """
        if (given := _fixed(args, named)) != self._given:
            raise DTypeError(
                f"evaluate: {self._given} are fixed in this graph, and {given} came; lower again"
            )
        outputs, left = run(self.graph, _arrays(args, named))
        return unflatten(self._result, outputs), left

    def __reduce__(self) -> NoReturn:
        raise TapeError(
            "lower: a graph refers to Variables of this process, so it is neither copied nor "
            "pickled; lower again"
        )


class Compiled:
    """A function that is known to be a graph for each combination of arguments it meets.

    It runs as it was written: nothing that replays its graph is faster yet. What no graph can
    hold is refused before the first run.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        update_wrapper(self, function("compile", fn))
        self._fn = fn
        self._known: dict[Any, None] = {}

    def __repr__(self) -> str:
        return f"compile({getattr(self, '__name__', type(self._fn).__name__)})"

    def lower(self, *args: Any, **named: Any) -> Lowered:
        """Trace for arguments like these; nothing is computed and no Variable changes."""
        return Lowered(self._fn, args, named)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run; if these shapes are new, trace first. Inside another trace, become part of it."""
        if store() is not MEMORY:
            return self._fn(*args, **named)
        try:
            key = (*map(_sign, args), _sign(named)) if named else tuple(map(_sign, args))
        except RecursionError:  # a container that holds itself: the run will say so
            return self._fn(*args, **named)
        if key in self._known:
            return self._fn(*args, **named)
        sure = self._check(args, named)
        if sure:
            self._learn(key)
        result = self._fn(*args, **named)
        if not sure:
            self._learn(key)
        return result

    def _check(self, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Trace; raise what no graph can hold. Return False where something else went wrong.

        The run will go wrong in the same way then, and say so with values in its message; or it
        does what only tracing cannot, which is not an error.
        """
        _refuse_unhashable(args, named)
        trial = _Trial(self._fn, args, named)
        if trial.error is not None:
            _forget(trial.error)
        return trial.error is None

    def _learn(self, key: Any) -> None:
        known = list(self._known)
        for old in known[: len(known) + 1 - _LIMIT]:
            self._known.pop(old, None)
        self._known[key] = None


_TRIALS = RLock()


class _Trial:
    """One trace of a function, undone.

    Attributes:
        graph: What was traced.
        result: What the function returned, with Symbols.
        error: What else went wrong than meeting what no graph can hold, or None.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
        anyway: bool = False,
    ):
        self._anyway = anyway  # also where not all can be undone
        tracing = Trace()
        self.graph = tracing.graph
        self.result: Any = None
        self.error: Exception | None = None
        # One at a time: another trial would take back to what this one did. A function that waits
        # for threads which call compiled functions must not wait for ever.
        alone = _TRIALS.acquire(timeout=1.0)
        try:
            self._run(tracing, fn, args, named)
        finally:
            if alone:
                _TRIALS.release()

    def _run(
        self, tracing: Trace, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        try:
            around = Surroundings(fn, args, named, anyway=self._anyway)
        except Exception as error:  # of an object that does not let itself be looked at
            self.error = error
            return
        if not around.tried:
            self.error = TapeError(
                "lower: the function reaches an iterator, or a tape, which tracing would change; "
                "pass it what it takes from them as arguments"
            )
            return
        try:
            try:
                around.lock_large()
                self.result = tracing.run(fn, args, named)
            except Exception as error:
                self.error = error
            finally:
                moved = around.put_back()
                tracing.close()
        except BaseException:
            around.put_back()  # once more, since Ctrl-C may have come in the midst of it
            raise
        if isinstance(self.result, CoroutineType):
            self.result.close()  # else Python would warn that nobody awaits it
        if tracing.refusal is not None:
            raise tracing.refusal
        if moved is not None:
            raise TapeError(
                f"compile: {getattr(fn, '__name__', type(fn).__name__)} draws random numbers from "
                f"a {moved}, which a graph would not do again at each run; draw them outside, and "
                "pass them as arguments"
            )


def _forget(error: BaseException | None) -> None:
    """Let go of the frames of an error that nobody will see, and so of what they hold."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


# ------------------------------------------------------------------ arguments


def _sign(value: Any) -> Any:
    """What of an argument decides whether a graph must be traced anew.

    Numbers do by their type alone: a rate or a count of steps may be new in every call.
    """
    kind = type(value)
    if kind is ndarray or issubclass(kind, np.generic):
        return value.shape, value.dtype  # hashed in C, which a spec is not
    if kind is Variable:
        return is_trainable(value), value._spec.shape, value._spec.dtype
    if kind is tuple or kind is list:
        return (kind, *map(_sign, value))
    if kind is dict:
        return (kind, *[(_sign(key), _sign(item)) for key, item in value.items()])
    if kind is str or kind is bool:
        return kind, value
    if issubclass(kind, (dict, list, tuple)) or hasattr(kind, "__dataclass_fields__"):
        return (kind, *[(path, _sign(leaf)) for path, leaf in paths(value)])
    return kind


def _is_input(leaf: Any) -> bool:
    """Whether an argument is an input of the graph, and not fixed in it."""
    if isinstance(leaf, Variable):
        return not is_trainable(leaf)
    return isinstance(leaf, ARRAY_LIKE)


def _arrays(args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    return list(map(array_of, filter(_is_input, leaves((args, named)))))


def _fixed(args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are fixed in a graph, by path: -0.0, 0.0, 0 and False are four."""
    plain = (int, float, complex, str)
    return {
        path: repr(leaf) if isinstance(leaf, plain) or leaf is None else (type(leaf), id(leaf))
        for path, leaf in paths((args, named))
        if not _is_input(leaf)
    }


def _refuse_unhashable(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    try:
        given = [*paths(list(args)), *paths(named)]
    except Exception:  # of a strange container: the run will show whether that matters
        return
    for path, leaf in given:
        if type(leaf).__hash__ is None and not issubclass(type(leaf), ARRAYS):
            raise DTypeError(
                f"compile: argument {path} is a {type(leaf).__name__}, which is neither an array "
                "nor hashable; pass arrays, numbers or strings, or let the function close over it"
            )


def compile(fn: Callable[..., Any]) -> Compiled:
    """Compile ``fn``: see that it is a graph of ops, and run it.

    A compiled function does what ``fn`` does, in values, effects and errors. Before it runs on
    arguments of new shapes, types or strings it is traced: array arguments become inputs of a
    graph, numbers are fixed in it, and Variables that ``fn`` captures are its state. What no graph
    can hold is refused then, before anything has happened. The trial leaves Variables,
    generators, and the Python objects that ``fn`` reaches as they were; but what it prints or
    writes to files, it prints and writes once more. The latest 256 combinations are remembered.

    Args:
        fn: A function of arrays and trees of arrays. It may open tapes, sweep, and step.

    Returns:
        A callable with a method ``lower(*args)``, whose result has the ``graph``.

    Raises:
        TapeError: where Python asks for a value of an array argument or a captured Variable, as
            in ``if x > 0``, ``float(loss)`` and ``f"{loss:.3f}"``; where random numbers are drawn.
    """
    return Compiled(fn)
