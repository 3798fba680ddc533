"""Running the updates of a step in one call of C: the whole step happens, or nothing of it.

An overflow in the middle would raise or warn there, and a warning runs Python. So floating-point
errors are noted while the updates run, and told of when they are done. Where they are to raise, or
to call somebody, a step is computed beside the parameters first.
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

__all__ = ["Updates", "treatment"]


def treatment() -> tuple[ContextVar[Any] | None, Any]:
    """Where NumPy keeps how errors are treated, and what there is now; None where some raise."""
    quiet = {"ignore", "warn"}.issuperset(np.geterr().values())
    return (NUMPY_ERRSTATE, NUMPY_ERRSTATE.get(None)) if quiet else (None, None)


class Updates:
    """Runs updates, with a context of its own in which NumPy notes floating-point errors."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}
        self._context = Context()
        self._context.run(np.seterrcall, self._found.__setitem__)
        self._seen: Any = self
        self._quiet = False

    def quiet(self) -> bool:
        """Whether floating-point errors are ignored here, or warned of."""
        state = NUMPY_ERRSTATE.get(None)
        if state is not self._seen:  # to ask NumPy takes 500 ns
            told = np.geterr()
            self._quiet = {"ignore", "warn"}.issuperset(told.values())
            if self._quiet:
                # Those that are ignored are not noted either: underflow is common, and a call each.
                modes: Any = {
                    kind: "call" if mode == "warn" else mode for kind, mode in told.items()
                }
                self._context.run(partial(np.seterr, **modes))
            self._seen = state
        return self._quiet

    def run(self, who: Any, plan: Plan) -> None:
        """Make the calls of ``plan``, then warn of floating-point errors as NumPy is told to."""
        self._found.clear()  # what a step left that was interrupted before it told
        # A copy, since a context can be entered by one thread at a time only.
        self._context.copy().run(run_all, starmap(call, plan))
        if self._found:
            kinds = list(self._found)
            self._found.clear()
            for kind in kinds:
                said = f"{kind} encountered in {type(who).__name__}.step"
                warnings.warn(said, RuntimeWarning, stacklevel=3)
