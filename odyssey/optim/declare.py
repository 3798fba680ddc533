"""Declaration of optimizers: a class, whose signature has the settings, and its rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any, Concatenate, ParamSpec

from odyssey.checks import STUMBLES, check_flag, check_number, describe_type, format_value
from odyssey.devices.arrays import ARRAYS
from odyssey.errors import DTypeError, SettingError
from odyssey.optim.rule import Rule
from odyssey.suggestions import keyword_hint
from odyssey.table.signature import REQUIRED, parameters_of
from odyssey.table.value import Symbol

__all__ = ["Settings", "rule_of"]

P = ParamSpec("P")


class Settings(SimpleNamespace):
    """The settings of a rule as attributes, checked."""

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(vars(self)) or "none"
        raise AttributeError(f"a rule: no setting is called {name!r}; known are {known}")


def rule_of(
    optimizer: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[[Settings], Rule]], Callable[P, Rule]]:
    """Declare the rule of an optimizer: decorate the function that makes it from the settings.

    The settings are the parameters of the class's ``__init__`` after the first, which hands all of
    them on by ``Optimizer.__init__(**locals())``. They are checked here: where the default is a
    flag, that it is one; a tuple, that all are numbers in [0, 1); a number, or where there is no
    default, that it is finite and not negative, and in the interval that the class's ``_ranges``
    has for it, if any, which may allow negative numbers. What a setting means to others is up to
    the decorated function.

    Returns:
        A decorator. The function becomes the pure face: it takes the settings as the class does.
        The rule must be pure, all the way: it is traced once for many steps.

    Raises:
        DTypeError: for what is not a class of optimizers.

    >>> import odyssey as od
    >>> from odyssey import Variable, ops
    >>> class Signs(od.optim.Optimizer):
    ...     def __init__(self, params, learning_rate=0.5):
    ...         od.optim.Optimizer.__init__(**locals())
    >>> @od.optim.rule_of(Signs)
    ... def signs(s):
    ...     def step(g, state, p):
    ...         rate = ops.astype(s.learning_rate, p.dtype)
    ...         return ops.subtract(p, ops.multiply(rate, ops.sign(g))), state
    ...     return od.optim.Rule((), step)
    >>> w = Variable([3.0, 3.0], requires_grad=True)
    >>> w.grad = [7.0, -7.0]
    >>> Signs([w]).step()
    >>> w.numpy()
    array([2.5, 3.5])
    """
    kind: Any = optimizer
    known = isinstance(optimizer, type) and hasattr(optimizer, "_declared")
    if not known:
        raise DTypeError(
            f"rule_of: {format_value(kind)} is not a class made from Optimizer; pass one"
        )
    init = kind.__init__
    defaults = {p.name: p.default for p in parameters_of(init)[2:]}
    checks = {
        name: _setting_check(kind.__name__, name, default, kind._ranges.get(name))
        for name, default in defaults.items()
    }

    def declare(make: Callable[[Settings], Rule]) -> Callable[P, Rule]:
        def pure(*args: P.args, **named: P.kwargs) -> Rule:
            given = _bind_settings(pure, defaults, args, named)
            made = make(Settings(**{name: check(given[name]) for name, check in checks.items()}))
            if not isinstance(made, Rule):
                raise DTypeError(
                    f"{make.__name__}: it returned {describe_type(made)}; return a Rule"
                )
            return made

        pure.__name__, pure.__qualname__ = make.__name__, make.__qualname__
        pure.__module__, pure.__doc__ = make.__module__, make.__doc__
        shape = FunctionType(init.__code__, {}, make.__name__, init.__defaults__, init.__closure__)
        shape.__kwdefaults__ = init.__kwdefaults__
        shape.__annotations__ = init.__annotations__ | {"return": "Rule"}
        pure.__wrapped__ = partial(shape, None, None)  # type: ignore[attr-defined]  # for help()
        pure.programs = {}  # type: ignore[attr-defined]  # in-place programs that were compiled from it
        kind._declared = staticmethod(pure)
        return pure

    return declare


def _bind_settings(
    pure: Callable[..., Any],
    defaults: Mapping[str, Any],
    args: tuple[Any, ...],
    named: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the settings of a call by name."""
    if args or named.keys() != defaults.keys():
        import inspect

        try:
            named = inspect.signature(pure).bind(*args, **named).arguments
        except TypeError as error:
            raise DTypeError(f"{pure.__name__}: {error}{keyword_hint(named)}") from None
    return {**defaults, **named}


# ------------------------------------------------------------------ checks


def _setting_check(who: str, name: str, default: Any, interval: str | None) -> Callable[[Any], Any]:
    """Return the check of a setting, which returns the setting as rules get it."""
    if isinstance(default, bool):
        return partial(check_flag, who, name)
    if isinstance(default, tuple) and None not in default:
        within = interval or "[0, 1)"
        return partial(_check_number_tuple, who, name, len(default), within)
    if default is REQUIRED or isinstance(default, (int, float)):
        return partial(_check_non_negative, who, name, interval)
    return lambda value: value


def _check_non_negative(who: str, name: str, interval: str | None, value: Any) -> Any:
    """Return a finite number that is not negative, as a Python float.

    A 0-d array stays an array, and so does a traced learning rate, whose value is not known yet.
    """
    if isinstance(value, Symbol):
        return value
    if interval is not None and interval[1] == "-":  # a setting that may be negative
        return check_number(who, name, value, interval)
    try:
        plain = check_number(who, name, value, "[0, inf)")
    except SettingError:
        raise SettingError(
            f"{who}: {name}: {format_value(value)} is negative, infinite or NaN; it must be "
            "finite, and must not be negative"
        ) from None
    if interval is not None:
        check_number(who, name, plain, interval)
    return value if isinstance(value, ARRAYS) else plain


def _check_number_tuple(
    who: str, name: str, count: int, interval: str, values: Any
) -> tuple[float, ...]:
    """Return several numbers in an interval, by default factors of averages, in [0, 1)."""
    wanted = {2: "two"}.get(count, str(count))
    try:
        parts = tuple(values)
        if len(parts) != count:
            raise TypeError
    except STUMBLES:
        raise DTypeError(
            f"{who}: {name}={format_value(values)}; pass {wanted} numbers in {interval}"
        ) from None
    try:
        return tuple(check_number(who, name, part, interval) for part in parts)
    except SettingError:
        raise SettingError(
            f"{who}: {name}={format_value(values)}; {'both' if count == 2 else 'all'} must lie in "
            f"{interval}"
        ) from None
