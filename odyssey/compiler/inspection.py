"""Inspection of compiled functions: explanations, profiles, code, graphs and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odyssey.checks import Text, check_flag, check_int, is_importable
from odyssey.compiler.arguments import cache_key, fill_specs, program_arguments, static_values
from odyssey.compiler.lowered import Lowered
from odyssey.errors import SettingError
from odyssey.graph.graph import Graph
from odyssey.table.scope import run_without_scopes, scopes

if TYPE_CHECKING:
    from odyssey.compiler.runtime.dry_run import DryRun
    from odyssey.compiler.runtime.profile import Profile
    from odyssey.compiler.ways.alternatives import Choice
    from odyssey.compiler.ways.plans import Plan
    from odyssey.compiler.ways.works import Work

__all__ = ["InspectableFunction", "function_name"]


def function_name(fn: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class of a callable object."""
    return str(getattr(fn, "__name__", type(fn).__name__))


class InspectableFunction:
    """Base of compiled functions that explains, profiles and shows their programs.

    Subclasses set ``_fn``, the function; ``_known``, cache entries by signature; ``_budget``, the
    most bytes that a program should hold; ``_dynamic``, its symbolic dimensions, or None; and
    ``_pinned``, the plan of its programs, or None.
    """

    __qualname__: str
    _fn: Callable[..., Any]
    _known: dict[Any, Any]
    _budget: int | None
    _dynamic: Any
    _pinned: Plan | None

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a decorated function by its name, as functions are."""
        if is_importable(self):
            return self.__qualname__
        return super().__reduce_ex__(protocol)

    def explain(self, /, *args: Any, **named: Any) -> Text:
        """Describe what a call with such arguments does: the program, or why there is none.

        Args:
            args: Arguments as in a call; an ``od.Spec`` may stand for an array.
            named: Keyword arguments as in a call.

        Returns:
            Text: kernels with what they compute, bytes, host calls and their reasons, guards, and
                times;
            which scalars are inputs, and which are fixed, by what the function asks of them and
            where.
        """
        from odyssey.compiler.explain import explain_program, explain_scalar_inputs

        args, named = fill_specs((args, named))
        if (there := self._ask_variant("explain", args, named)) is not None:
            return Text(there)
        inner, given = self._with_attributes(args)
        if inner is not self:
            names = ", ".join(str(name) for _, name in inner._fn.attribute_places)
            return Text(f"attributes that are inputs: {names}\n{inner.explain(*given, **named)}")
        said = "" if self._dynamic is None else self._dynamic.describe_program(args, named)[1]
        program, why = self._find_program(args, named)
        free, asked = self._scalar_inputs(args, named, program)
        numbers = explain_scalar_inputs(self._fn, free, asked)
        if program is None:
            return Text(said + "\n".join([why, *numbers]))
        other = self._describe_failed_guard(args, named, program)
        return Text("\n".join([*other, said + explain_program(program), *numbers]))

    def _ask_variant(
        self, what: str, args: tuple[Any, ...], named: dict[str, Any], **more: Any
    ) -> Any:
        """Call a method of the compiled function for calls in these scopes; None outside of them.

        See ``CompiledFunction._variant_here``.
        """
        if scopes()[0] is None or (variant := self._variant_here()) is None:
            return None
        return run_without_scopes(getattr(variant, what), args, {**named, **more})

    def _variant_here(self) -> Any:
        raise NotImplementedError

    def _with_attributes(self, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Return the compiled function that runs, and its arguments; see ``attribute_states``."""
        found: list[Any] = getattr(self, "_attributes", [])
        states: Any = next((one for one in found if one.fits(args)), None)
        values = None if states is None else states.function.values()
        return (self, args) if values is None else (states.compiled, (*args, *values))

    def _describe_failed_guard(
        self, args: tuple[Any, ...], named: dict[str, Any], program: Any
    ) -> list[str]:
        """Describe the guard of a program that fails now, and what the next call does."""
        change = program.guards.describe_change()
        if change is None:
            return []
        case = self._known.get(cache_key(args, named))
        then = "the next call compiles another"
        if case is not None and case.refusal is not None:
            then = (
                "no further program is compiled, and the function runs as plain Python: "
                f"{case.refusal}"
            )
        what = change.partition(":")[0]
        return [
            f"there is a program, but it does not fit, since {what} changed; {then}; pass values "
            "that change from call to call as arguments"
        ]

    def _scalar_inputs(
        self, args: tuple[Any, ...], named: dict[str, Any], program: Any
    ) -> tuple[Iterable[str], Mapping[str, str]]:
        """Return the paths of scalar inputs, and the reasons why other scalars are fixed."""
        free = () if program is None else program.free
        try:
            asked = self._known[cache_key(args, named)].fixed_numbers
        except Exception:  # no entry, or unhashable arguments
            return free, {}
        return free, {path: why for path, why in asked.items() if path not in free}

    def _find_program(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, str]:
        """Return the latest program for such arguments, or None with the reason."""
        program = None if self._dynamic is None else self._dynamic.describe_program(args, named)[0]
        if program is not None:
            return program, ""
        try:
            case = self._known.get(cache_key(args, named))
        except Exception as error:  # a container that holds itself, or raises
            return None, f"runs as plain Python: its arguments cannot be compared, {error}"
        if case is None:
            if self._dynamic is not None and self._dynamic.has_program(args, named):
                return None, "not called with such sizes yet; a call checks whether a program fits"
            return None, "not called with such arguments yet; the second call compiles a program"
        if not case.programs:
            return None, f"runs as plain Python: {case.refusal or 'it was called once'}"
        known = static_values(args, named)
        fits = [pair for pair in case.programs if pair[0].items() <= known.items()]
        now = [pair for pair in fits if pair[1].guards.describe_change() is None]
        programs = [*now, *fits, *case.programs]
        return programs[0][1], ""

    def _require_program(self, who: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return the program for such arguments; raise SettingError if there is none."""
        program, why = self._find_program(args, named)
        if program is None:
            raise SettingError(
                f"{who}: {function_name(self._fn)} has no program for these arguments: {why}"
            )
        return program

    def profile(self, /, *args: Any, runs: int = 20, **named: Any) -> Profile:
        """Time each kernel of the program for these arguments.

        The program is compiled once more with a clock around each kernel, and runs on copies of its
        states: Variables, gradients and generators are neither read again nor written.

        Args:
            args: Arguments as in a call; the function was called with such arguments at least
                twice.
            runs: Number of measured runs, after one to warm up.
            named: Keyword arguments as in a call; one called ``runs`` must be passed by position.

        Returns:
            A ``Profile``, which shows a table of kernels, with the rows fused in each, its time,
            bytes and arithmetic operations; for control flow also the kernels of each subgraph over
            all steps.

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
        runs = check_int("profile", "runs", runs, 1)
        there: Profile | None = self._ask_variant("profile", args, named, runs=runs)
        if there is not None:
            return there
        inner, given = self._with_attributes(args)
        if inner is not self:
            found: Profile = inner.profile(*given, runs=runs, **named)
            return found
        program = self._require_program("profile", args, named)
        made: Profile = program.profile(program_arguments(program.places, args, named), runs)
        return made

    def plan(self, /, *args: Any, **named: Any) -> Plan:
        """Return the plan by which the program for these arguments computes its works.

        Args:
            args: Arguments as in a call; the function was called with such arguments at least
                twice; an ``od.Spec`` may stand for an array.
            named: Keyword arguments as in a call.

        Returns:
            The ways that differ from the guess; ``to_json()`` keeps them, and ``od.compile(fn,
            plan=plan)`` pins them.

        Raises:
            SettingError: there is no program for such arguments.

        >>> import numpy as np
        >>> import odyssey as od
        >>> total = od.compile(lambda x: (x * 2.0).sum())
        >>> total.precompile(od.Spec((3,), np.float64))
        >>> print(total.plan(np.ones(3)))
        the guess
        """
        from odyssey.compiler.ways.plans import Plan

        args, named = fill_specs((args, named))
        there: Plan | None = self._ask_variant("plan", args, named)
        if there is not None:
            return there
        inner, given = self._with_attributes(args)
        works = inner._require_program("plan", given, named).executable.works()
        return Plan([(one.work, one.way) for one in works if one.way != one.ways[0].name])

    def _works(self, plan: Plan, args: tuple[Any, ...], named: dict[str, Any]) -> list[Choice]:
        """Return the works that a program meets by a plan, each once; see ``ways``."""
        return self._works_by_plan(args, named)(plan)

    def _works_by_plan(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Callable[[Plan], list[Choice]]:
        """Return a function from plans to the works of a program, traced once for all of them."""
        from odyssey.compiler.pipeline import works_of

        args, named = fill_specs((args, named))
        inner, given = self._with_attributes(args)
        program, _ = inner._find_program(given, named)
        if program is not None:
            found: Callable[[Plan], list[Choice]] = program.works_of
            return found
        graph, budget = Lowered(inner._fn, given, named).graph, self._budget
        return lambda plan: works_of(graph, plan, budget)

    def _dry_run(self, plan: Plan, args: tuple[Any, ...], named: dict[str, Any]) -> DryRun:
        """Return a program by a plan, on copies of the states; see ``ways``."""
        inner, given = self._with_attributes(args)
        program = inner._require_program("tune", given, named)
        made: DryRun = program.dry_run(program_arguments(program.places, given, named), plan)
        return made

    def code(self, /, *args: Any, assembly: bool = False, **named: Any) -> Text:
        """Return the program for these arguments as LLVM IR.

        Args:
            args: Arguments as in a call; the function was called with such arguments at least
                twice; an ``od.Spec`` may stand for an array.
            assembly: Return the processor's assembly language instead.
            named: Keyword arguments as in a call; one called ``assembly`` must be passed by
                position.

        Raises:
            SettingError: there is no program for such arguments.
        """
        args, named = fill_specs((args, named))
        if (there := self._ask_variant("code", args, named, assembly=assembly)) is not None:
            return Text(there)
        inner, given = self._with_attributes(args)
        loaded = inner._require_program("code", given, named).executable.loaded
        return Text(loaded.assembly() if check_flag("code", "assembly", assembly) else loaded.text)

    def lower(self, /, *args: Any, **named: Any) -> Lowered:
        """Trace for such arguments; nothing is computed, and no Variable changes.

        Args:
            args: Arguments as in a call; an ``od.Spec`` may stand for an array.
            named: Keyword arguments as in a call.

        >>> import numpy as np
        >>> import odyssey as od
        >>> total = od.compile(lambda x: (x * 2.0).sum())
        >>> print(total.lower(od.Spec((3,), np.float64)).graph)
        graph(%0: float64[3]):
          %1: float64[3] = multiply(%0, 2.0)
          %2: float64[] = sum(%1, axis=(0,), keepdims=False)
          return %2
        """
        args, named = fill_specs((args, named))
        return Lowered(self._fn, args, named)

    def estimate_memory_requirements(self, /, *args: Any, **named: Any) -> dict[str, int]:
        """Return the bytes of a program beside arguments and states, by device, without running it.

        Returns:
            ``{"cpu": bytes}``: its arena, its constants, results of host calls, and its results.
            Temporary memory within host calls is not included.
        """
        from odyssey.compiler.runtime.executable import memory_requirements

        graph = self.lower(*args, **named).graph
        return {"cpu": memory_requirements(graph, self._budget, self._pinned_plan())[0]}

    def _pinned_plan(self) -> Plan:
        """Return the plan that is pinned; the guess if there is none."""
        from odyssey.compiler.ways.plans import NO_PLAN

        return NO_PLAN if self._pinned is None else self._pinned

    def _chosen_plan(self, graph: Graph) -> tuple[Plan, Mapping[Work, str]]:
        """Return the plan of a new program for a graph, and why, by work, for ``explain``."""
        plan = self._pinned_plan()
        return plan, dict.fromkeys(plan.differences, "pinned")
