"""Fallback reports: the warning, or error, for a compiled function that runs eagerly."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dis import get_instructions
from types import CodeType, FunctionType, MethodType
from typing import Any

from odyssey.compiler.guards.effects import is_own_or_numpy
from odyssey.compiler.guards.guards import reached_functions
from odyssey.compiler.inspection import function_name
from odyssey.errors import CompileError, CompileWarning

__all__ = ["Backoff", "FallbackReporter"]

# Reasons that one function warns of; of further ones, explain() tells.
_MOST_REPORTS = 4
# Code objects that are searched for the line that a reason is about.
_MOST_SEARCHED = 200
# Calls that may look for a program in vain before some are run without a look, and the most of
# those.
_FAILED_CALLS = 8
_MOST_SKIPPED = 1024

# What to do, by what a reason contains; the first that matches.
_ADVICE = (
    ("which advances with each call", "Take the next item outside, and pass it as an argument."),
    (
        "memory for its program",
        "Pass memory_budget=, which recomputes values, or smaller arrays.",
    ),
    (
        "a tape with saved=",
        "Leave out saved=: programs take less memory, and the least with memory_budget=.",
    ),
    ("lies on the CPU, and others", "Pass arrays or Variables of that device."),
    ("its arrays lie on", "Copy them to one device, by .to()."),
    ("the device refuses", "Update its driver, or pass arrays of the CPU."),
    ("an array of a device", "Make it an od.Variable, or pass it as an argument."),
    (
        "a value of a Variable that lies on the CPU",
        "Return it from another function, or keep that Variable on the device.",
    ),
    ("its new value is computed on the device", "Keep that Variable on the device."),
    ("copies a Variable to the CPU", "Return the Variable, and call numpy() outside."),
    ("cuda: ", "Call that op outside of the compiled function."),
    ("the compiler fails", "This is a fault of odyssey: please report it."),
    ("inside an open tape", "Compile the function that opens the tape, or od.grad of this one."),
    ("inside a rule of custom_vjp", "Compile the function that is differentiated."),
    ("arguments of a new shape", "Declare the sizes that vary: od.compile(fn, dynamic=...)."),
    (
        "another object at each call",
        "Pass a dataclass or a dict of arrays, which may be another at each call.",
    ),
    ("a guard fails again", "Pass values that change from call to call as arguments."),
    ("numbers that are fixed differed", "Pass such numbers as arrays, or name them in static=."),
    ("to which other threads may write", "Call it while no thread holds the lock."),
    ("branch of cond", "Read the Variable in both branches, or pass unused='zero'."),
    ("it writes to", "Return the new value, and assign it outside."),
    ("has a side effect", "Call it outside of the compiled function."),
    ("random", "Draw from an od.Generator, or draw outside and pass the numbers."),
    ("it uses print", "Return what is to be printed, and print it outside."),
    ("it uses ", "Call it outside, and pass its result as an argument."),
    ("it imports", "Import at the top of the module."),
    ("cannot be guarded", "Pass what the function needs of it as an argument."),
    ("passed twice", "Pass a copy."),
    ("returns", "Return copies of arrays, and leave out what the caller has already."),
    ("share memory", "Return a copy of one of them."),
    (
        "tracing raised",
        "If it raises this without od.compile too, correct it; otherwise pass values that change "
        "from call to call as arguments.",
    ),
)
_DEFAULT_ADVICE = "Pass values that change from call to call as arguments."


class FallbackReporter:
    """Reports that a compiled function runs eagerly: once a reason as a warning, or as an error.

    Args:
        fn: The function that was compiled.
        fullgraph: Whether to raise.
        warn: Whether to warn.
    """

    def __init__(self, fn: Callable[..., Any], fullgraph: bool, warn: bool) -> None:
        self._fn, self.fullgraph, self._warn = fn, fullgraph, warn
        self._reported: set[str] = set()

    def report(self, reason: str, cause: BaseException | None = None) -> None:
        """Warn of a reason, unless it was reported.

        Args:
            reason: Why no program runs, in words.
            cause: The error behind it.

        Raises:
            CompileError: ``fullgraph`` is set.
        """
        if self.fullgraph:
            raise self.error(reason) from cause
        if not self._warn or reason in self._reported or len(self._reported) >= _MOST_REPORTS:
            return
        self._reported.add(reason)
        silence = " (warn=False silences this warning, fullgraph=True makes it an error.)"
        warnings.warn(self._message(reason) + silence, CompileWarning, _user_frame_level())

    def error(self, reason: str) -> CompileError:
        """Return the error for a function of which there is no program."""
        return CompileError(self._message(reason))

    def _message(self, reason: str) -> str:
        name = function_name(self._fn)
        place = "" if re.search(r"\.py:\d+", reason) else _find_line(self._fn, reason)
        advice = next((text for key, text in _ADVICE if key in reason), _DEFAULT_ADVICE)
        return f"compile: {name} runs eagerly, since {reason}{place}. {advice}"


class Backoff:
    """Calls that run eagerly at once, after others looked for a program in vain.

    Attributes:
        skips: Calls that are still to run without a look.
    """

    def __init__(self) -> None:
        self.skips = self._failed = 0

    def note_failure(self) -> None:
        """Count a call that found no program; in the end, skip 8, 16 … 1,024 calls."""
        self._failed += 1
        if self._failed >= _FAILED_CALLS:
            self.skips = min(2 ** (self._failed - _FAILED_CALLS + 3), _MOST_SKIPPED)

    def reset(self) -> None:
        """Forget all failures, since there is a program."""
        self.skips = self._failed = 0


def _user_frame_level() -> int:
    """Return the ``stacklevel`` of the innermost frame outside of this package and NumPy."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and is_own_or_numpy(str(frame.f_globals.get("__name__", ""))):
        level, frame = level + 1, frame.f_back
    return level


# ------------------------------------------------------------------ the line of a reason


def _find_line(fn: Callable[..., Any], reason: str) -> str:
    """Return `` (file:line)`` of the code that a reason names; that of the function otherwise."""
    paths = re.findall(
        r"(?:reaches|uses|imports|writes to|state of|any attribute of) ([\w.\[\]']+)", reason
    ) + re.findall(r"fails again: (?:.* of |cell |global )?([\w.\[\]']+) changed", reason)
    names = [word for path in paths for word in reversed(re.findall(r"[A-Za-z_]\w*", path))]
    reached = [code for one in reached_functions(fn) for code in _nested_codes(one.__code__)]
    codes = list(_codes_of(fn))
    for name in names:
        for code in (*reached, *codes):
            for instruction in get_instructions(code):
                stores = "STORE" in instruction.opname
                if instruction.argval == name and stores == ("writes to" in reason):
                    found = instruction.positions
                    line = (found and found.lineno) or code.co_firstlineno
                    return f" ({code.co_filename}:{line})"
    return f" ({codes[0].co_filename}:{codes[0].co_firstlineno})" if codes else ""


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)


def _codes_of(fn: Any) -> Iterator[CodeType]:
    """Yield the user's code that a function reaches by name, its own first."""
    queue, seen = [fn], set[int]()
    while queue and len(seen) < _MOST_SEARCHED:
        thing = queue.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, CodeType):
            yield thing
            queue += [part for part in thing.co_consts if isinstance(part, CodeType)]
        elif isinstance(thing, MethodType):
            queue.append(thing.__func__)
            queue += _methods_of(type(thing.__self__))
        elif isinstance(thing, FunctionType):
            if is_own_or_numpy(thing.__module__ or ""):
                continue
            code = thing.__code__
            queue.append(code)
            queue += [thing.__globals__[n] for n in code.co_names if n in thing.__globals__]
            queue += [_contents(cell) for cell in thing.__closure__ or ()]
        elif isinstance(thing, type):
            queue += _methods_of(thing)
        elif callable(thing) and not is_own_or_numpy(type(thing).__module__):
            queue += _methods_of(type(thing))


def _methods_of(kind: type) -> list[Any]:
    return [] if is_own_or_numpy(kind.__module__) else list(vars(kind).values())


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
