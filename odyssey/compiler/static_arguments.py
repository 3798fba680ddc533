"""Static arguments: parameters whose values select a compiled function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from odyssey.checks import Text, format_value, with_article
from odyssey.compiler.compiled_function import CompiledFunction, Statistics
from odyssey.compiler.dispatch.cache import make_room
from odyssey.compiler.inspection import function_name
from odyssey.compiler.lowered import Lowered
from odyssey.devices.arrays import ARRAYS
from odyssey.errors import DTypeError, OutOfRangeError, SettingError
from odyssey.table.store import MEMORY, store
from odyssey.table.value import Traced, Value

if TYPE_CHECKING:
    from odyssey.compiler.ways.plans import Plan

__all__ = ["CompiledByValue", "StaticParameters"]

# For how many values of its static parameters a function is known compiled.
_LIMIT = 256


class _StaticSplit(NamedTuple):
    """Arguments of a call: values of static parameters by name, and the other arguments."""

    values: dict[str, Any]
    args: tuple[Any, ...]
    named: dict[str, Any]


class StaticParameters:
    """The static parameters of a function.

    Args:
        fn: The function.
        static: Names and positions of parameters, or one of them.

    Raises:
        SettingError: the function has no such parameter, or no signature.
        OutOfRangeError: the function has no parameter at such a position.
    """

    def __init__(self, fn: Callable[..., Any], static: Any) -> None:
        self._fn = fn
        try:
            self._signature = signature(fn)
        except (TypeError, ValueError):
            raise SettingError(
                f"compile: static= names parameters, and those of {format_value(fn)} are unknown; "
                "compile a Python function that calls it"
            ) from None
        kinds = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
        parameters = self._signature.parameters
        self._order = [name for name, p in parameters.items() if p.kind in kinds]
        whole = isinstance(static, (str, int)) or not isinstance(static, Iterable)
        self.names = frozenset(map(self._name, [static] if whole else static))

    def _name(self, one: Any) -> str:
        """Return the name of a parameter, given by name or by position."""
        if type(one) is int:
            if not 0 <= one < len(self._order):
                raise OutOfRangeError(
                    f"compile: static has position {one}; {function_name(self._fn)} takes by "
                    f"position {', '.join(self._order) or 'nothing'}; positions count from 0"
                )
            return self._order[one]
        kinds = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD
        known = [n for n, p in self._signature.parameters.items() if p.kind not in kinds]
        if type(one) is not str or one not in known:
            raise SettingError(
                f"compile: static has {format_value(one)}, which names no parameter of "
                f"{function_name(self._fn)}; it has {', '.join(known) or 'none'}"
            )
        return one

    def split(self, args: tuple[Any, ...], named: dict[str, Any]) -> _StaticSplit:
        """Split the arguments of a call; by position and by keyword they are equivalent.

        Raises:
            TypeError: the arguments do not fit the signature.
        """
        if named:
            bound = self._signature.bind(*args, **named)
            args, named = bound.args, bound.kwargs
        values, others = {}, []
        for k, argument in enumerate(args):
            if k < len(self._order) and self._order[k] in self.names:
                values[self._order[k]] = argument
            else:
                others.append(argument)
        # A keyword with the name of a positional-only parameter belongs to ``**others``.
        for name in named.keys() & self.names:
            if name not in values:
                values[name] = named.pop(name)
        return _StaticSplit(values, tuple(others), named)

    def bind(self, values: dict[str, Any]) -> Callable[..., Any]:
        """Return the function of the remaining arguments, in their order."""
        fn, order = self._fn, self._order
        places = [(k, name, values[name]) for k, name in enumerate(order) if name in values]
        alone = {name: value for name, value in values.items() if name not in order}

        def fixed(*args: Any, **named: Any) -> Any:
            given, named = list(args), {**named, **alone}
            for k, name, value in places:
                if k <= len(given):
                    given.insert(k, value)
                else:  # a parameter before it has its default
                    named[name] = value
            return fn(*given, **named)

        made: Any = fixed
        made.__name__ = function_name(fn)
        left = [p for name, p in self._signature.parameters.items() if name not in values]
        try:
            made.__signature__ = Signature(left)
        except ValueError:  # a required parameter behind one with a default
            made.__signature__ = Signature([p.replace(default=p.empty) for p in left])
        return fixed


def _static_key(name: str, value: Any) -> Any:
    """Return a key of a static value that distinguishes 1 from 1.0 and True, and 0.0 from -0.0.

    Raises:
        DTypeError: the value is an array, or has no hash.
    """
    kind = type(value)
    if isinstance(value, (Value, Traced, *ARRAYS)):
        raise DTypeError(
            f"compile: static argument {name} is {with_article(kind.__name__)}, whose elements may "
            "change; leave it out of static=, or pass a tuple of numbers"
        )
    if kind in (float, complex) or isinstance(value, np.inexact):
        return kind, repr(value)
    if isinstance(value, (tuple, frozenset)):
        parts = [_static_key(name, part) for part in value]
        return kind, frozenset(parts) if isinstance(value, frozenset) else tuple(parts)
    try:
        hash(value)
    except TypeError:
        raise DTypeError(
            f"compile: static argument {name} is {format_value(value)}, "
            f"{with_article(kind.__name__)}, which has no hash; pass a number, a string, a tuple, "
            "or another object that has one"
        ) from None
    if hasattr(kind, "__dataclass_fields__"):
        parts = [_static_key(name, getattr(value, field)) for field in kind.__dataclass_fields__]
        return kind, value, tuple(parts)
    return kind, value


class CompiledByValue(CompiledFunction):
    """A compiled function with static parameters: one compiled function for each of their values.

    Args:
        fn: The function.
        static: Its static parameters.
        settings: Settings of ``CompiledFunction``, for each value.
    """

    _derived_state: ClassVar[tuple[str, ...]] = (*CompiledFunction._derived_state, "_compiled")

    def __init__(self, fn: Callable[..., Any], static: Any, **settings: Any) -> None:
        checked = {k: v for k, v in settings.items() if k != "dynamic"}
        super().__init__(fn, **checked)
        self._static = StaticParameters(fn, static)
        self._compiled: dict[Any, CompiledFunction] = {}
        self._settings = settings

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which begins without programs."""
        return {**super().__getstate__(), "_compiled": {}}

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Run the compiled function for these values."""
        if store() is not MEMORY:
            return self._fn(*args, **named)
        try:
            parted = self._static.split(args, named)
        except TypeError:
            return self._fn(*args, **named)  # which says so itself
        return self._of(parted.values)(*parted.args, **parted.named)

    def _of(self, values: dict[str, Any]) -> CompiledFunction:
        """The compiled function for static values."""
        key = frozenset([(name, _static_key(name, value)) for name, value in values.items()])
        found = self._compiled.get(key)
        if found is None:
            found = CompiledFunction(self._static.bind(values), **self._settings)
            found._fallback = self._fallback  # which reports each reason once
            make_room(self._compiled, _LIMIT)
            self._compiled[key] = found
        return found

    def _ask(self, what: str, args: tuple[Any, ...], named: dict[str, Any], **more: Any) -> Any:
        values, args, named = self._static.split(args, named)
        return getattr(self._of(values), what)(*args, **named, **more)

    # -------------------------------------------------------------- to be looked at

    def lower(self, /, *args: Any, **named: Any) -> Lowered:
        """Trace for such arguments; nothing is computed, and no Variable changes."""
        found: Lowered = self._ask("lower", args, named)
        return found

    def precompile(self, /, *args: Any, **named: Any) -> None:
        """Compile the program for such arguments; see ``CompiledFunction``."""
        self._ask("precompile", args, named)

    def explain(self, /, *args: Any, **named: Any) -> Text:
        """Describe what a call with such arguments does; see ``CompiledFunction``."""
        return Text(self._ask("explain", args, named))

    def profile(self, /, *args: Any, runs: int = 20, **named: Any) -> Any:
        """Time each kernel of the program for these arguments; see ``CompiledFunction``."""
        return self._ask("profile", args, named, runs=runs)

    def plan(self, /, *args: Any, **named: Any) -> Plan:
        """Return the plan of the program for these arguments; see ``CompiledFunction``."""
        found: Plan = self._ask("plan", args, named)
        return found

    def _works_by_plan(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        values, args, named = self._static.split(args, named)
        return self._of(values)._works_by_plan(args, named)

    def _dry_run(self, plan: Plan, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        values, args, named = self._static.split(args, named)
        return self._of(values)._dry_run(plan, args, named)

    def code(self, /, *args: Any, assembly: bool = False, **named: Any) -> Text:
        """Return the program for these arguments as LLVM IR; see ``CompiledFunction``."""
        return Text(self._ask("code", args, named, assembly=assembly))

    def statistics(self) -> Statistics:
        """Return how many programs were compiled, and how calls were run, for all values."""
        found = [one.statistics() for one in list(self._compiled.values())]
        return Statistics(*map(sum, zip(*found, strict=True))) if found else Statistics(0, 0, 0)

    def clear_cache(self) -> None:
        """Clear all programs, for all values."""
        self._compiled.clear()
