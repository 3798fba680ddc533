"""Trials: a function is traced, and what that did to Python's objects is undone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import starmap
from threading import RLock
from time import perf_counter
from types import CoroutineType
from typing import Any

from odyssey.compiler.arguments import number_leaves
from odyssey.compiler.guards.effects import is_own_or_numpy
from odyssey.compiler.guards.guards import GuardSet
from odyssey.compiler.native_dispatch.scalar_inputs import value_dependent_operands
from odyssey.compiler.symbolic.expressions import Expression
from odyssey.compiler.symbolic.scalars import Quantities
from odyssey.compiler.tracing.snapshot import Snapshot
from odyssey.errors import OdysseyError, TapeError
from odyssey.graph.trace import Trace

__all__ = ["TraceAttempt", "clear_traceback", "describe_trace_error", "try_trace"]

_TRACE_LOCK = RLock()
_PATIENCE = 1.0  # seconds that a trial waits for that of another thread

# With what stands for numbers; what is asked of one may first be asked when another is fixed.
_MOST_TRIALS = 3


class TraceAttempt:
    """One trace of a function, undone.

    Attributes:
        graph: What was traced.
        result: What the function returned, with Symbols.
        error: What else went wrong than meeting what no graph can hold, or None.
        guards: What the function reads of Python, as it was before the trial; None where that was
            not looked for.
        effects: What the function did beside what the graph says, in words; None for nothing.
        numbers: The quantities that stood for numbers.
        free: Of the numbers that may be others in each run, by path, their places among the leaves.
        asked: By path of a number that is fixed by what is asked of it, what that is, and where.
        seconds: How long all of this took.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
        anyway: bool = False,
        asked: Mapping[str, str] | None = None,
    ):
        """Trace ``fn``.

        Args:
            fn: The function.
            args: What it is called with.
            named: The same by name.
            anyway: Whether to try where not all can be undone.
            asked: The numbers that are fixed, by path, and why; None for all.
        """
        self.numbers = Quantities(self._note, tracing := Trace())
        self.free: dict[str, int] = {}
        self.asked: dict[str, str] = {}
        self._fixed = asked
        self._anyway = anyway  # also where not all can be undone
        self.graph = tracing.graph
        self.result: Any = None
        self.error: Exception | None = None
        self.effects: str | None = None
        self.guards: GuardSet | None = None
        self.seconds = 0.0
        alone: list[bool] = []
        try:
            # One at a time: another trial would take back to what this one did. A function that
            # waits for threads which call compiled functions must not wait for ever. The call of C
            # that takes the lock notes it as well, so that no interrupt comes between the two.
            alone.extend(starmap(_TRACE_LOCK.acquire, [(True, _PATIENCE)]))
            begun = perf_counter()
            self._run(tracing, fn, args, named)
            self.seconds = perf_counter() - begun
        finally:
            if True in alone:
                _TRACE_LOCK.release()

    def _stand_in(self, tracing: Trace, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Let quantities stand for the numbers of the arguments, where they may be any."""
        if self._fixed is None or self.guards is None or self.guards.reason is not None:
            return
        found = number_leaves(args, named)
        if self.guards.settles is not None:
            self.asked = dict.fromkeys([path for path, _, _ in found], self.guards.settles)
            return
        for path, place, number in found:
            if path not in self._fixed:
                self.free[path] = place
                tracing.stands[place] = self.numbers.named(path, number)
        tracing.looked_at = value_dependent_operands

    def _note(self, expression: Expression, question: str) -> None:
        for path in expression.names:
            self.asked.setdefault(path, f"{_SPOKEN.get(question, question)}, {_user_line()}")

    def _run(
        self, tracing: Trace, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        try:
            around = Snapshot(fn, args, named, anyway=self._anyway)
        except Exception as error:  # of an object that does not let itself be looked at
            self.error = error
            return
        if not around.tried:
            self.error = TapeError(
                f"lower: {around.why}, and so a trial of the function would do harm; pass what it "
                "takes from there as an argument"
            )
            return
        self.guards = around.guards
        self._stand_in(tracing, args, named)
        try:
            try:
                around.lock_large()
                self.result = tracing.run(fn, args, named)
                self.graph.numbers = self.numbers.arithmetic if self.free else None
                changed = around.changed()
                self.effects = changed and f"it writes to {changed}"
                known = set(map(id, self.guards.steps))
                if not known.issuperset(map(id, self.graph.behind)):
                    self.effects = "it steps a schedule that it makes, or asks where one stands"
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


def try_trace(
    fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], asked: dict[str, str]
) -> TraceAttempt:
    """Trace a function, with numbers that may be others in each run where they can be.

    Where something is asked of one that an expression cannot answer it is fixed, and the function
    is tried again; where anything goes wrong with what stands for numbers, all are fixed.

    Args:
        fn: The function.
        args: What it is called with.
        named: The same by name.
        asked: The numbers that are fixed, by path, and why; others are entered.
    """
    for _ in range(_MOST_TRIALS):
        try:
            trial = TraceAttempt(fn, args, named, asked=asked)
        except OdysseyError:
            break
        if not trial.free or not (trial.asked or _is_unusable(trial)):
            asked.update(trial.asked)
            return trial
        if not trial.asked:
            break
        asked.update(trial.asked)
    trial = TraceAttempt(fn, args, named)
    for path, _, _ in number_leaves(args, named):
        asked.setdefault(path, "the function is traced with the number alone")
    return trial


def _is_unusable(trial: TraceAttempt) -> bool:
    """Whether no program can be made of a trial, perhaps for what stood for numbers."""
    return bool(trial.error or trial.effects or trial.graph.eager)


# What is asked of a number by the methods of these names, as Python writes it.
_SPOKEN = {
    **{
        "bool": "whether it is true",
        "index": "its value as an index",
        "__array__": "an array of it",
    },
    **{name: f"{name}() of it" for name in ("float", "int", "complex", "hash", "repr", "str")},
    **{"format": "its text", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}


def _user_line() -> str:
    """The innermost line that is neither of this package nor of NumPy."""
    frame = sys._getframe(3)
    while frame.f_back is not None and is_own_or_numpy(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def describe_trace_error(error: BaseException) -> str:
    """What tracing raised, in which line of the user's; its frames are let go."""
    line, found = "", error.__traceback__
    while found is not None:
        if not is_own_or_numpy(str(found.tb_frame.f_globals.get("__name__", ""))):
            line = f" ({found.tb_frame.f_code.co_filename}:{found.tb_lineno})"
        found = found.tb_next
    clear_traceback(error)
    return f"tracing raised {type(error).__name__}: {error}{line}"


def clear_traceback(error: BaseException | None) -> None:
    """Let go of the frames of an error that nobody will see, and so of what they hold."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
