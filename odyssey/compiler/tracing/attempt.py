"""Trace attempts: a function is traced, and its side effects on Python objects are undone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from threading import RLock
from time import perf_counter
from types import CoroutineType
from typing import Any

from numpy import ndarray

from odyssey.compiler.arguments import number_leaves
from odyssey.compiler.guards.effects import is_own_or_numpy
from odyssey.compiler.guards.guards import GuardSet
from odyssey.compiler.native_dispatch.scalar_inputs import value_dependent_operands
from odyssey.compiler.symbolic.expressions import Expression
from odyssey.compiler.symbolic.scalars import SymbolicScalars
from odyssey.compiler.tracing.snapshot import HeldLocks, PythonEffect, Snapshot
from odyssey.devices.write_guard import FORK_WAITS, hold_during_forks
from odyssey.errors import OdysseyError, TapeError
from odyssey.graph.trace import Trace
from odyssey.spec import admit_half
from odyssey.table.value import Value
from odyssey.tree import leaves

__all__ = ["TraceAttempt", "clear_traceback", "describe_trace_error", "try_trace"]

_TRACE_LOCK = RLock()
# A child would see what the function changed, and nobody there to undo it.
hold_during_forks(lambda: (_TRACE_LOCK,), FORK_WAITS)

# The most attempts with scalar inputs: fixing one number may show that another must be fixed.
_MAX_ATTEMPTS = 3


class TraceAttempt:
    """One trace of a function, whose side effects are undone.

    Attributes:
        graph: The traced graph.
        result: The value that the function returned, with Symbols.
        error: The exception that the function raised, or None; an operation that no graph can hold
            raises instead.
        refusal: Why the function was not run at all, in words; or None.
        guards: The guards of the Python objects that the function reads, made before the trace;
            None where none were made.
        effects: The side effects that no program can have, in words; None if there are none.
        python_effects: The writes to objects of Python that are repeated after each run. What they
            write are outputs of the graph behind those of the result.
        assigned: The attributes that it reads and assigns, as objects and names; None if it has no
            ``effects``.
        numpy_calls: See ``Trace``.
        numbers: The symbolic scalars that stood for numbers.
        scalar_inputs: By path of a number that may differ at each call, its index among the leaves.
        fixed_numbers: By path of a number that must be fixed, why, and in which line.
        seconds: The duration of the trace.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
        allow_unknown: bool = False,
        fixed_numbers: Mapping[str, str] | None = None,
        instead: Callable[[], Any] | None = None,
        repeats_writes: bool = False,
        notes_numpy: bool = False,
    ):
        """Trace ``fn``.

        Args:
            fn: The function.
            args: Its positional arguments.
            named: Its keyword arguments.
            allow_unknown: Whether to trace where not all can be undone.
            fixed_numbers: The numbers that are fixed, by path, and why; None for all.
            instead: What is traced in the place of ``fn``, without arguments; it calls ``fn``. It
                answers for the Variables on tapes that ``fn`` reaches. Nothing is traced where
                ``fn`` cannot be guarded, as where it prints.
            repeats_writes: Whether programs can repeat writes to objects of Python.
            notes_numpy: Whether to collect ``numpy_calls``.
        """
        self.scalar_inputs: dict[str, int] = {}
        self.fixed_numbers: dict[str, str] = {}
        # Neither is a method of this object, or the error of a frame that holds it: with a cycle,
        # what the function captured would live until the garbage collector runs.
        asked = partial(_record_question, self.fixed_numbers)
        self.numbers = SymbolicScalars(asked, trace := Trace())
        self.numpy_calls: dict[int, tuple[Any, ...]] = {}
        if notes_numpy:
            trace.numpy_calls = self.numpy_calls
        self._fixed = fixed_numbers
        self._allow_unknown = allow_unknown
        self._instead = instead
        self.graph = trace.graph
        self.result: Any = None
        self.error: Exception | None = None
        self.effects: str | None = None
        self.python_effects: list[PythonEffect] = []
        self._repeats_writes = repeats_writes
        self.refusal: str | None = None
        self.assigned: list[tuple[Any, str]] | None = None
        self.guards: GuardSet | None = None
        self.seconds = 0.0
        locks = HeldLocks()
        try:
            # One at a time: another attempt's restore would undo this one's writes. The timeout is
            # for functions that wait for threads which call compiled functions.
            locks.acquire(_TRACE_LOCK, timeout=1.0)
            start = perf_counter()
            _admit_halves(args, named)
            self._run(trace, fn, args, named, locks)
            self.seconds = perf_counter() - start
        finally:
            locks.release()

    @property
    def full_result(self) -> Any:
        """The result, together with what is written to objects of Python, if anything is."""
        stored = [effect.values for effect in self.python_effects]
        return (self.result, stored) if stored else self.result

    def written_places(self) -> list[Any]:
        """Return what tells the writes to objects of Python from others."""
        return [(id(e.target), e.key, len(e.values)) for e in self.python_effects]

    def seen_result(self, result: Any) -> Any:
        """Return what the latest run returned, together with what it wrote."""
        stored = [effect.current() for effect in self.python_effects]
        return (result, stored) if stored else result

    def describe_error(self) -> str:
        """Describe why there is no graph, and release the frames of the error."""
        assert self.error is not None
        described = describe_trace_error(self.error)
        return self.refusal or described

    def _add_scalar_inputs(
        self, trace: Trace, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Let symbolic scalars stand for the numbers of the arguments that are not fixed."""
        if self._fixed is None or self.guards is None or self.guards.reason is not None:
            return
        found = number_leaves(args, named)
        if self.guards.fixes_numbers is not None:
            self.fixed_numbers |= dict.fromkeys(
                [path for path, _, _ in found], self.guards.fixes_numbers
            )
            return
        for path, index, number in found:
            if path not in self._fixed:
                self.scalar_inputs[path] = index
                trace.scalar_inputs[index] = self.numbers.named(path, number)
        trace.value_dependent = value_dependent_operands

    def _run(
        self,
        trace: Trace,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
        locks: HeldLocks,
    ) -> None:
        try:
            settings: dict[str, Any] = {"allow_unknown": self._allow_unknown, "locks": locks}
            snapshot = Snapshot(fn, args, named, tapes=self._instead is not None, **settings)
        except Exception as error:  # an object whose attributes raise
            self.error = _without_own_frame(error)
            return
        if not snapshot.is_restorable:
            self.refusal = snapshot.refusal
            self.error = TapeError(
                f"lower: {snapshot.refusal}, so tracing the function would have side effects; "
                "pass the values that it reads there as arguments"
            )
            return
        self.guards = snapshot.guards
        if self._instead is not None:
            if self.guards.reason is not None:
                self.error = TapeError(self.guards.reason)
                return
            fn, args, named = self._instead, (), {}
        self._add_scalar_inputs(trace, args, named)
        read = trace.read_objects
        try:
            try:
                snapshot.lock_large_arrays()
                if self._repeats_writes:
                    trace.find_stored = partial(_find_effects, snapshot, self.python_effects)
                self.result = trace.run(fn, args, named)
                self.graph.numbers = self.numbers.arithmetic if self.scalar_inputs else None
                changed = None if self.python_effects else snapshot.describe_change()
                self.effects = changed and f"it writes to {changed}"
                self.assigned = snapshot.assigned_attributes() if changed else None
                known = set(map(id, self.guards.schedules))
                if not known.issuperset(map(id, self.graph.deferred_steps)):
                    self.effects = "it steps a schedule that it creates, or reads the state of one"
                    self.assigned = None
            except Exception as error:
                self.error = _without_own_frame(error)
            finally:
                drawn_from = snapshot.restore()
                trace.close()
        except BaseException:
            snapshot.restore()  # once more, since Ctrl-C may have interrupted it
            raise
        self._guard_trees(snapshot, frozenset(map(id, read)))
        if isinstance(self.result, CoroutineType):
            self.result.close()  # else Python would warn that it was never awaited
        if trace.refusal is not None:
            refusal, trace.refusal, self.error = trace.refusal, None, None
            try:
                raise refusal
            finally:
                del refusal
        if drawn_from is not None:
            raise TapeError(
                f"compile: {getattr(fn, '__name__', type(fn).__name__)} draws random numbers from "
                f"a {drawn_from}, which a graph cannot repeat at each run; draw them outside, and "
                "pass them as arguments"
            )

    def _guard_trees(self, snapshot: Snapshot, read: frozenset[int]) -> None:
        """Guard all attributes of the objects that the library read as trees, if there are any."""
        guards = snapshot.guards
        if self.error is not None or guards.objects.isdisjoint(read):
            return
        self.guards = snapshot.guards_with_trees(read)
        if self.guards.reason is None and self.scalar_inputs and self.guards.fixes_numbers:
            self.guards.reason = self.guards.fixes_numbers


def _find_effects(snapshot: Snapshot, found: list[PythonEffect]) -> list[Any]:
    """Add the writes that can be repeated to a list, if all can; return what they write."""
    found += snapshot.replayable_effects() or ()
    return [effect.values for effect in found]


def try_trace(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    named: dict[str, Any],
    fixed_numbers: dict[str, str],
    repeats_writes: bool = False,
    notes_numpy: bool = False,
) -> TraceAttempt:
    """Trace a function, with scalar inputs for its numbers where that is possible.

    A number whose value the function needs is fixed, and the function is traced again; where the
    trace fails with symbolic scalars, all numbers are fixed.

    Args:
        fn: The function.
        args: Its positional arguments.
        named: Its keyword arguments.
        fixed_numbers: The numbers that are fixed, by path, and why; further ones are added.
        repeats_writes: See ``TraceAttempt``.
        notes_numpy: See ``TraceAttempt``.
    """
    options: dict[str, Any] = {"repeats_writes": repeats_writes, "notes_numpy": notes_numpy}
    for _ in range(_MAX_ATTEMPTS):
        try:
            attempt = TraceAttempt(fn, args, named, fixed_numbers=fixed_numbers, **options)
        except OdysseyError:
            break
        if not attempt.scalar_inputs or not (attempt.fixed_numbers or _is_unusable(attempt)):
            fixed_numbers.update(attempt.fixed_numbers)
            return attempt
        if not attempt.fixed_numbers:
            break
        fixed_numbers.update(attempt.fixed_numbers)
    attempt = TraceAttempt(fn, args, named, **options)
    if attempt.graph.eager_reason is not None and attempt.error is None:
        return attempt  # as before a first step of an optimizer: a later trace may be without it
    for path, _, _ in number_leaves(args, named):
        fixed_numbers.setdefault(path, "tracing needs its value")
    return attempt


def _is_unusable(attempt: TraceAttempt) -> bool:
    """Return whether no program can be made of a trace, perhaps because of symbolic scalars."""
    return bool(attempt.error or attempt.effects or attempt.graph.eager_reason)


# How Python writes the questions that methods of these names ask a number.
_QUESTIONS = {
    **{
        "bool": "its truth value is read",
        "index": "it is used as an index",
        "__array__": "an array is made of it",
    },
    **{
        name: f"{name}() is called on it"
        for name in ("float", "int", "complex", "hash", "repr", "str")
    },
    **{
        "format": "it is formatted as text",
        "eq": "==",
        "ne": "!=",
        "lt": "<",
        "le": "<=",
        "gt": ">",
        "ge": ">=",
    },
}


def _admit_halves(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Let the table handle the halves among the arguments, before a snapshot that holds rows."""
    for leaf in leaves((args, named)):
        if type(leaf) is ndarray or isinstance(leaf, Value):
            admit_half(leaf.dtype)


def _record_question(fixed_numbers: dict[str, str], expression: Expression, question: str) -> None:
    """Record why the numbers of an expression must be fixed."""
    for path in expression.names:
        fixed_numbers.setdefault(path, f"{_QUESTIONS.get(question, question)}, {_user_line()}")


def _without_own_frame(error: Exception) -> Exception:
    """Return an error without the outermost frame of its traceback."""
    trace = error.__traceback__
    return error.with_traceback(trace and trace.tb_next)


def _user_line() -> str:
    """Return the innermost line that is neither of this package nor of NumPy."""
    frame = sys._getframe(3)
    while frame.f_back is not None and is_own_or_numpy(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def describe_trace_error(error: BaseException) -> str:
    """Describe the error that tracing raised and the user's line; release its frames."""
    line, found = "", error.__traceback__
    while found is not None:
        if not is_own_or_numpy(str(found.tb_frame.f_globals.get("__name__", ""))):
            line = f" ({found.tb_frame.f_code.co_filename}:{found.tb_lineno})"
        found = found.tb_next
    clear_traceback(error)
    return f"tracing raised {type(error).__name__}: {error}{line}"


def clear_traceback(error: BaseException | None) -> None:
    """Release the frames of an error that is not raised again, and the objects in them."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
