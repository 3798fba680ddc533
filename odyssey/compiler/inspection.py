"""What is told of a compiled function: what its programs do, take and are; where it is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odyssey.checks import flag, is_importable, whole
from odyssey.compiler.arguments import cache_key, program_arguments, static_values
from odyssey.compiler.lowered import Lowered
from odyssey.errors import SettingError

if TYPE_CHECKING:
    from odyssey.compiler.runtime.profile import Profile

__all__ = ["InspectableFunction", "function_name"]


def function_name(fn: Callable[..., Any]) -> str:
    """What a function is called; of an object, its class."""
    return str(getattr(fn, "__name__", type(fn).__name__))


class InspectableFunction:
    """The part of a compiled function that tells of it.

    It needs ``_fn``, the function, ``_known``, what is known of combinations of arguments, and
    ``_budget``, the bytes that a program is to hold at most; ``_dynamic``, which sizes vary, if
    any.
    """

    __qualname__: str
    _fn: Callable[..., Any]
    _known: dict[Any, Any]
    _budget: int | None
    _dynamic: Any

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A function that was decorated is pickled as functions are: by its name."""
        if is_importable(self):
            return self.__qualname__
        return super().__reduce_ex__(protocol)

    def explain(self, *args: Any, **named: Any) -> str:
        """What is done for arguments like these, in words: the program, or why there is none.

        Returns:
            Text: kernels with what they compute, bytes, what is called and why, guards, and times;
            which numbers are inputs, and which are fixed, by what is asked of them and where.
        """
        from odyssey.compiler.explain import explain_program, explain_scalar_inputs

        said = "" if self._dynamic is None else self._dynamic.told(args, named)[1]
        program, why = self._find(args, named)
        free, asked = self._numbers(args, named, program)
        numbers = explain_scalar_inputs(self._fn, free, asked)
        if program is None:
            return said + "\n".join([why, *numbers])
        other = self._made_for_other(args, named, program)
        return "\n".join([*other, said + explain_program(program), *numbers])

    def _made_for_other(
        self, args: tuple[Any, ...], named: dict[str, Any], program: Any
    ) -> list[str]:
        """What differs from what a program was made for, and what calls do then, in words."""
        change = program.guards.describe_change()
        if change is None:
            return []
        case = self._known.get(cache_key(args, named))
        then = "the next call makes another"
        if case is not None and case.refusal is not None:
            then = f"none is made any more, and it runs as it was written: {case.refusal}"
        what = change.partition(":")[0]
        return [
            f"there is a program, but not for this, since {what} changed; {then}; what changes "
            "from call to call is best passed as an argument"
        ]

    def _numbers(
        self, args: tuple[Any, ...], named: dict[str, Any], program: Any
    ) -> tuple[Iterable[str], Mapping[str, str]]:
        """The numbers that a program takes as inputs, by path; and why others are fixed."""
        free = () if program is None else program.free
        try:
            asked = self._known[cache_key(args, named)].fixed_numbers
        except Exception:  # nothing is known, or can be
            return free, {}
        return free, {path: why for path, why in asked.items() if path not in free}

    def _find(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, str]:
        """The latest program for arguments like these, or None; and then why there is none."""
        program = None if self._dynamic is None else self._dynamic.told(args, named)[0]
        if program is not None:
            return program, ""
        try:
            case = self._known.get(cache_key(args, named))
        except Exception as error:  # of a container that holds itself, or lets nobody look
            return None, (
                f"runs as it was written: its arguments cannot be told from others, {error}"
            )
        if case is None:
            if self._dynamic is not None and self._dynamic.has_program(args, named):
                return None, "not called with such sizes yet; a call looks whether a program fits"
            return None, "not called with such arguments yet; the second call makes a program"
        if not case.programs:
            return None, f"runs as it was written: {case.refusal or 'it was called once'}"
        known = static_values(args, named)
        fits = [pair for pair in case.programs if pair[0].items() <= known.items()]
        now = [pair for pair in fits if pair[1].guards.describe_change() is None]
        programs = [*now, *fits, *case.programs]
        return programs[0][1], ""

    def _demand(self, who: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        program, why = self._find(args, named)
        if program is None:
            raise SettingError(
                f"{who}: {function_name(self._fn)} has no program for these arguments: {why}"
            )
        return program

    def profile(self, *args: Any, runs: int = 20, **named: Any) -> Profile:
        """What each kernel of the program for these arguments takes.

        The program is compiled once more, with a clock around each kernel, and runs on copies of
        its states: Variables, gradients and generators are not read again, nor written.

        Args:
            args: As in a call of the function; it was called with such at least twice.
            runs: How often the program is run, after one run to warm up.
            named: As in a call; what is called ``runs`` there must come by position.

        Returns:
            A ``Profile``; print it for a table of kernels, with what is fused in each, its time,
            bytes and steps of arithmetic; of a loop also what each of its parts did in all steps.

        Raises:
            SettingError: there is no program for such arguments.

        >>> import numpy as np
        >>> import odyssey as od
        >>> total = od.compile(lambda x: (x * 2.0).sum())
        >>> x = np.ones((1000, 1000))
        >>> _ = total(x), total(x)
        >>> (kernel,) = total.profile(x).kernels
        >>> kernel.what, kernel.bytes, kernel.flops, kernel.microseconds > 1.0
        ('multiply, sum', 8000008, 1999999, True)
        """
        runs = whole("profile", "runs", runs, 1)
        program = self._demand("profile", args, named)
        made: Profile = program.profile(program_arguments(program.places, args, named), runs)
        return made

    def code(self, *args: Any, assembly: bool = False, **named: Any) -> str:
        """The text of the program for these arguments, in LLVM's language.

        Args:
            args: As in a call of the function; it was called with such at least twice.
            assembly: In the processor's own language instead, as it is run.
            named: As in a call; what is called ``assembly`` there must come by position.

        Raises:
            SettingError: there is no program for such arguments.
        """
        loaded = self._demand("code", args, named).executable.loaded
        text: str = loaded.assembly() if flag("code", "assembly", assembly) else loaded.text
        return text

    def lower(self, *args: Any, **named: Any) -> Lowered:
        """Trace for arguments like these; nothing is computed and no Variable changes."""
        return Lowered(self._fn, args, named)

    def estimate_memory_requirements(self, *args: Any, **named: Any) -> dict[str, int]:
        """Bytes that a program takes beside arguments and states, by device; nothing is run.

        Returns:
            ``{"cpu": bytes}``: its arena, its constants, what rows gave that it calls in Python,
            and the results. What such rows take for themselves meanwhile is not known.
        """
        from odyssey.compiler.runtime.executable import memory_requirements

        return {"cpu": memory_requirements(self.lower(*args, **named).graph, self._budget)[0]}
