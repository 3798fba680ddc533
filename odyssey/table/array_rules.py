"""Array rules: reverse rules specialized to plain arrays, which call kernels instead of ops.

A sweep runs a rule on arrays far more often than on Variables or Symbols, and the dispatch of an
op takes as long as a small kernel. So each rule has an array rule: a function with the same code,
whose globals hold kernels in place of ops.
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
    """Return the reverse rules of a row, specialized to plain arrays."""
    if row.cotangents:  # they are few and run long
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
    array_rule = _array_rule(rule)
    if row.elementwise and row.name in SIZES:
        array_rule = profiled(f"rule of {row.name}", fuse_rule(row, rule, array_rule))
    fast = adapt_rule(row.layout, array_rule)
    assert fast is not None
    others = [
        k for k, array in enumerate(row.arrays) if array != name and array in rule_arguments(rule)
    ]
    if not others:
        return fast
    # An operand may be a Python number. A kernel of numbers alone returns a NumPy scalar, which is
    # not weakly typed; so the rule itself runs then.
    if len(others) == 1:
        k = others[0]
        if len(rule_arguments(rule)) == 1:
            return lambda g, kept, specs: (rule if type(kept[k]) in NUMBERS else array_rule)(
                g, kept[k]
            )
        if rule_arguments(rule) == (row.arrays[k], f"{name}_spec"):
            own = row.arrays.index(name)
            return lambda g, kept, specs: (rule if type(kept[k]) in NUMBERS else array_rule)(
                g, kept[k], specs[own]
            )

    def by_operand_types(g: Any, kept: Any, specs: Any) -> Any:
        for k in others:
            if type(kept[k]) in NUMBERS:
                return pull(g, kept, specs)
        return fast(g, kept, specs)

    return by_operand_types


def _array_rule(function: FunctionType) -> Callable[..., Any]:
    scope = _scope_of(function.__globals__["__name__"])
    name, defaults = function.__name__, function.__defaults__
    array_rule = FunctionType(function.__code__, scope, name, defaults, function.__closure__)
    array_rule.__kwdefaults__ = function.__kwdefaults__
    return array_rule


_SCOPES: dict[str, dict[str, Any]] = {}


def _scope_of(module: str) -> dict[str, Any]:
    """Return the globals of a module's array rules: kernels for ops, array rules for helpers.

    They are copied once, after the import of the module; later assignments in it have no effect.
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
    """Drop the globals made for a module that is imported again."""
    _SCOPES.pop(module, None)


def _kernel_with_options(row: Row) -> Callable[..., Any]:
    """Return the kernel of an op with options, which are passed by position or by name."""
    count = len(row.arrays)
    total = count + len(row.options)
    # For each number of positional options, the defaults of the others.
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
    """Return the kernel of an op whose options go through ``prepare`` first."""

    def call(*args: Any, **named: Any) -> Any:
        operands, options = row.bind_arguments(args, named)
        return row.kernel(*operands, *options)

    return call


def _is_helper(value: Any) -> bool:
    """Return whether this is a plain function of an op module, not a composite."""
    if type(value) is not FunctionType or hasattr(value, "aliases"):
        return False
    if "tape" in value.__code__.co_varnames:  # a tape that it passes to ops
        return False
    return value.__globals__["__name__"] in OP_MODULES
