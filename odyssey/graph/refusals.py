"""Refusals: errors for operations that no graph can hold, and fallbacks to eager runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odyssey.checks import user_line
from odyssey.errors import TapeError
from odyssey.graph.graph import Graph
from odyssey.table.protocols import Recording
from odyssey.table.store import MEMORY
from odyssey.table.value import Symbol

__all__ = ["Refusals"]


class Refusals:
    """The part of a trace that says what it cannot do."""

    graph: Graph
    refusal: TapeError | None
    is_own: Callable[[Any], bool]
    _current: dict[int, Any]
    _given: dict[int, tuple[Any, Any]]
    _label: Callable[[Any, str], str]
    _refuse_written: Callable[[Any], None]

    def refuse(self, message: str) -> TapeError:
        """Return the error of what no graph can hold, and keep it: NumPy may wrap it."""
        error = TapeError(f"{message} ({user_line()})")
        self.refusal = self.refusal or error
        return error

    def demand(self, who: str, value: Any) -> None:
        """Raise unless the value is there to be looked at, the same in every run."""
        if not self.is_own(value) or isinstance(value._array, Symbol):
            raise self.no_value(who, value)

    def look(self, who: str, value: Any) -> None:
        """Note that a program cannot do it, if another run may find other numbers there."""
        if not self.is_own(value):
            self.only_eagerly(f"{who} takes the numbers of {self._label(value, 'data')}")

    def require(self, variable: Any, flag: bool) -> None:
        """Thaw or freeze what the function made; other leaves would stay so after a trial."""
        if not self.is_own(variable) or variable._id in self._current:
            self.refuse_effect(
                f"requires_grad: set to {flag} of {self._label(variable, 'data')}",
                "set it outside of what is compiled, or ask for the gradients of the others "
                "alone, by tape.gradient",
            )
        self._refuse_written(variable)
        MEMORY.require(variable, flag)

    def rename(self, variable: Any, name: str | None) -> None:
        """Name what the function made; others would be named once more in the run."""
        given = any(made is variable for _, made in self._given.values())  # under the same name
        if self.is_own(variable) and not given:
            MEMORY.rename(variable, name)
        else:
            self.only_eagerly(f"it calls a Variable {name!r} that was there before")

    def refuse_effect(self, what: str, instead: str) -> None:
        """Raise: it would happen now, and not at every run."""
        raise self.refuse(
            f"{what} while a graph is traced, which would happen once and not at every run; "
            f"{instead}"
        )

    def only_eagerly(self, why: str) -> None:
        """Note why a program cannot do what the function does."""
        self.graph.eager = self.graph.eager or why

    def no_value(self, who: str, value: Any) -> TapeError:
        """Return the error of a question for a value that only a run will know."""
        use = "ops.where"
        if getattr(value, "dtype", None) is not None and value.dtype.kind in "iu":
            # An array of NumPy asks for its index, and a slice for its bounds.
            use = "ops.take(array, indices) and ops.dynamic_slice(array, starts, sizes)"
        return self.refuse(
            f"{who} {value!r}, which has none while a graph is traced; what is compiled cannot "
            f"branch on values, print them or copy them into arrays: use ops, such as {use}, "
            "return the value, or leave this part uncompiled"
        )

    def check_inside(self, recording: Recording) -> None:
        """Raise for a recording that was there before the trace."""
        if not recording.traced:
            raise TapeError(
                "while a graph is traced, a tape from before would record or be swept; lower the "
                "function where that tape is not enabled"
            )
