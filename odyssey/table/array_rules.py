"""Twins of reverse rules, for sweeps over plain arrays: kernels stand for the ops.

A sweep runs a rule on arrays far more often than on Variables or Symbols, and to find out that
it was given arrays takes an op as long as a small kernel takes. So a rule has a twin: the same
code, whose globals hold the kernels in the place of the ops.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from odyssey.kernels.sizes import SIZES
from odyssey.table.fused_rules import fuse_rule
from odyssey.table.row import Row, profiled
from odyssey.table.rule_adapters import adapt_rule, adapt_variadic_rule
from odyssey.table.signature import PASS, REQUIRED, Rule, rule_arguments
from odyssey.table.value import NUMBERS

__all__ = ["OP_MODULES", "forget_module", "make_array_pullbacks"]

# The modules whose rows are the table's, loaded or not.
OP_MODULES: set[str] = set()


def make_array_pullbacks(row: Row) -> tuple[Rule | None, ...]:
    """The reverse rules of a row as a sweep over plain arrays calls them."""
    if row.cotangents:  # few, and long at work
        return row.pullbacks
    if row.layout.variadic:
        return tuple(
            adapt_variadic_rule(row.layout, _array_rule(rule), k)
            if type(rule) is FunctionType
            else row.pullbacks[k]
            for k, rule in enumerate(row.vjp.values())
        )
    return tuple(
        _array_pullback(row, name, pull)
        for name, pull in zip(row.arrays, row.pullbacks, strict=True)
    )


def _array_pullback(row: Row, name: str, pull: Rule | None) -> Rule | None:
    rule = row.vjp[name]
    if type(rule) is not FunctionType or rule is PASS or pull is None:
        return pull
    twin = _array_rule(rule)
    if row.elementwise and row.name in SIZES:
        twin = profiled(f"rule of {row.name}", fuse_rule(row, rule, twin))
    fast = adapt_rule(row.layout, twin)
    assert fast is not None
    others = [
        k for k, array in enumerate(row.arrays) if array != name and array in rule_arguments(rule)
    ]
    if not others:
        return fast
    # An operand may be a Python number, and a kernel that is given nothing else would return one
    # of NumPy's, which is not weak in its promotion.
    if len(others) == 1:
        k = others[0]
        if len(rule_arguments(rule)) == 1:
            return lambda g, kept, specs: (rule if type(kept[k]) in NUMBERS else twin)(g, kept[k])
        if rule_arguments(rule) == (row.arrays[k], f"{name}_spec"):
            own = row.arrays.index(name)
            return lambda g, kept, specs: (rule if type(kept[k]) in NUMBERS else twin)(
                g, kept[k], specs[own]
            )

    def choosing(g: Any, kept: Any, specs: Any) -> Any:
        for k in others:
            if type(kept[k]) in NUMBERS:
                return pull(g, kept, specs)
        return fast(g, kept, specs)

    return choosing


def _array_rule(function: FunctionType) -> Callable[..., Any]:
    scope = _scope_of(function.__globals__["__name__"])
    name, defaults = function.__name__, function.__defaults__
    twin = FunctionType(function.__code__, scope, name, defaults, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_SCOPES: dict[str, dict[str, Any]] = {}


def _scope_of(module: str) -> dict[str, Any]:
    """The globals of a module's twins: kernels for ops, twins for the helpers of rules.

    Taken once, when the module is all run: what is rebound in it later stays unseen.
    """
    if module in _SCOPES:
        return _SCOPES[module]
    scope = _SCOPES[module] = dict(vars(sys.modules[module]))
    for name, value in list(scope.items()):
        row = getattr(value, "row", None)
        if isinstance(row, Row) and not (row.optional or row.foreign):
            if row.prepare:
                if not row.layout.variadic:
                    scope[name] = _kernel_with_prepared_options(row)
            elif row.options:
                scope[name] = _kernel_with_options(row)
            else:
                scope[name] = row.kernel
                row.kernel_listeners.append(partial(scope.__setitem__, name))
        elif _is_helper(value):
            scope[name] = _array_rule(value)
    return scope


def forget_module(module: str) -> None:
    """Drop what was made for a module, which is run again."""
    _SCOPES.pop(module, None)


def _kernel_with_options(row: Row) -> Callable[..., Any]:
    """An op with options: its kernel, with no look at what the operands are.

    Rules spell options as the op has them, in order or by name.
    """
    count = len(row.arrays)
    total = count + len(row.options)
    # By how many options are given in order, the defaults of the others.
    rest = [dict(zip(row.options[k:], row.defaults[k:], strict=True)) for k in range(total - count)]
    usual = not row.layout.variadic
    needed = [{name for name, value in others.items() if value is REQUIRED} for others in rest]

    def call(*args: Any, **named: Any) -> Any:
        given = len(args)
        if given == total and not named:
            return row.kernel(*args)
        if usual and count <= given < total:
            others = rest[given - count]
            if needed[given - count] <= named.keys() <= others.keys():
                return row.kernel(*args, *(others | named).values())
        return row.call(*args, **named)

    return call


def _kernel_with_prepared_options(row: Row) -> Callable[..., Any]:
    """An op that reads its options first: its kernel, with no look at what the operands are."""

    def call(*args: Any, **named: Any) -> Any:
        operands, options = row.bind_arguments(args, named)
        return row.kernel(*operands, *options)

    return call


def _is_helper(value: Any) -> bool:
    """Whether this is a plain function of a family, and not a composite."""
    if type(value) is not FunctionType or hasattr(value, "aliases"):
        return False
    if "tape" in value.__code__.co_varnames:  # which it passes on to ops
        return False
    return value.__globals__["__name__"] in OP_MODULES
