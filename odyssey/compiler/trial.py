"""Trials: a function is traced, and what that did to Python's objects is undone."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from time import perf_counter
from types import CoroutineType
from typing import Any

from odyssey.compiler.guards import Guards
from odyssey.compiler.surroundings import Surroundings
from odyssey.errors import TapeError
from odyssey.graph.trace import Trace

__all__ = ["Trial", "forget"]

_TRIALS = RLock()


class Trial:
    """One trace of a function, undone.

    Attributes:
        graph: What was traced.
        result: What the function returned, with Symbols.
        error: What else went wrong than meeting what no graph can hold, or None.
        guards: What the function reads of Python, as it was before the trial; None where that was
            not looked for.
        effects: What the function did beside what the graph says, in words; None for nothing.
        seconds: How long all of this took.
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
        self.effects: str | None = None
        self.guards: Guards | None = None
        # One at a time: another trial would take back to what this one did. A function that waits
        # for threads which call compiled functions must not wait for ever.
        alone = _TRIALS.acquire(timeout=1.0)
        begun = perf_counter()
        try:
            self._run(tracing, fn, args, named)
        finally:
            self.seconds = perf_counter() - begun
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
                f"lower: {around.why}, and so a trial of the function would do harm; pass what it "
                "takes from there as an argument"
            )
            return
        self.guards = around.guards
        try:
            try:
                around.lock_large()
                self.result = tracing.run(fn, args, named)
                changed = around.changed()
                self.effects = changed and f"it writes to {changed}"
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


def forget(error: BaseException | None) -> None:
    """Let go of the frames of an error that nobody will see, and so of what they hold."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
