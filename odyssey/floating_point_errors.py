"""Functions during which NumPy says nothing of floating-point errors."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

__all__ = ["NUMPY_ERRSTATE", "ignore_fp_errors", "isolate_errstate"]

P = ParamSpec("P")
R = TypeVar("R")


def _find_errstate_variable() -> ContextVar[Any]:
    """The only variable of a context in which nothing was done but to tell NumPy of errors."""
    context = Context()
    context.run(np.seterrcall, None)
    return next(iter(context))


NUMPY_ERRSTATE = _find_errstate_variable()
"""The variable in which NumPy keeps, for each context, how floating-point errors are treated."""


def ignore_fp_errors(*kinds: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let NumPy ignore floating-point errors while a function runs, as ``np.errstate`` does.

    The beginning and the end of ``np.errstate`` are of Python, and Ctrl-C in the midst of them
    leaves the thread with errors ignored for good. A context ends with the call of C that runs it.
    It takes less than half of the time, too.

    Args:
        kinds: Of ``"divide"``, ``"over"``, ``"under"`` and ``"invalid"``; all where there is none.

    >>> @ignore_fp_errors("divide")
    ... def logarithm(x):
    ...     return np.log(x)
    >>> float(logarithm(np.zeros(())))
    -inf
    """
    modes: Any = dict.fromkeys(kinds or ("all",), "ignore")

    def silent() -> Any:
        np.seterr(**modes)
        return NUMPY_ERRSTATE.get()

    usual = Context().run(silent)

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        @wraps(fn)
        def run(*args: P.args, **named: P.kwargs) -> R:
            context = copy_context()
            if NUMPY_ERRSTATE.get(None) is None:  # as mostly; what was told is not kept for later
                context.run(NUMPY_ERRSTATE.set, usual)
            else:
                context.run(silent)
            return context.run(fn, *args, **named)

        return run

    return decorate


def isolate_errstate(fn: Callable[P, R]) -> Callable[P, R]:
    """Run a function so that what it tells NumPy of floating-point errors ends with it.

    For functions of others that enter ``np.errstate``; what the caller told NumPy holds within.

    >>> before = np.geterr()
    >>> _ = isolate_errstate(np.seterr)(all="raise")
    >>> np.geterr() == before
    True
    """

    @wraps(fn)
    def run(*args: P.args, **named: P.kwargs) -> R:
        return copy_context().run(fn, *args, **named)

    return run


def __dir__() -> list[str]:
    return sorted(__all__)
