"""Step runner: runs the updates of a step in one C call, so that all of them happen or none.

A floating-point error during the updates would raise or warn in the middle, and a warning runs
Python. Therefore errors are noted during the updates, and reported when they are done. If NumPy is
set to raise, or to call a function, the results of a step are computed before any parameter
changes.
"""

from __future__ import annotations

import warnings
from contextvars import Context, ContextVar
from functools import partial
from itertools import starmap
from operator import call
from typing import Any

import numpy as np

from odyssey.devices.commit import Plan, run_all
from odyssey.floating_point_errors import NUMPY_ERRSTATE

__all__ = ["StepRunner", "error_treatment"]


def error_treatment() -> tuple[ContextVar[Any] | None, Any]:
    """Return NumPy's context variable of error modes and its value; (None, None) if some raise."""
    quiet = {"ignore", "warn"}.issuperset(np.geterr().values())
    return (NUMPY_ERRSTATE, NUMPY_ERRSTATE.get(None)) if quiet else (None, None)


class StepRunner:
    """Runs updates in a context of its own, in which NumPy notes floating-point errors."""

    def __init__(self) -> None:
        self._noted_errors: dict[str, int] = {}
        self._context = Context()
        self._context.run(np.seterrcall, self._noted_errors.__setitem__)
        self._last_state: Any = self
        self._quiet = False

    def quiet(self) -> bool:
        """True if floating-point errors are ignored or warned of in the current context."""
        state = NUMPY_ERRSTATE.get(None)
        if state is not self._last_state:  # np.geterr() takes 500 ns
            modes_now = np.geterr()
            self._quiet = {"ignore", "warn"}.issuperset(modes_now.values())
            if self._quiet:
                # Ignored kinds are not noted: underflow is common, and each note costs a call.
                modes: Any = {
                    kind: "call" if mode == "warn" else mode for kind, mode in modes_now.items()
                }
                self._context.run(partial(np.seterr, **modes))
            self._last_state = state
        return self._quiet

    def run(self, who: Any, plan: Plan) -> None:
        """Make the calls of ``plan``, then warn of floating-point errors as NumPy does."""
        self._noted_errors.clear()  # notes of a step that was interrupted before its report
        # A copy, because only one thread at a time can enter a context.
        self._context.copy().run(run_all, starmap(call, plan))
        if self._noted_errors:
            kinds = list(self._noted_errors)
            self._noted_errors.clear()
            for kind in kinds:
                message = f"{kind} encountered in {type(who).__name__}.step"
                warnings.warn(message, RuntimeWarning, stacklevel=3)
