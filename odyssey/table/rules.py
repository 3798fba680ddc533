"""How a sweep calls a rule: with what it asks for and, on plain arrays, with kernels for ops.

A sweep runs a rule on arrays far more often than on Variables or Symbols, and to find out that
it was given arrays takes an op as long as a small kernel takes. So a rule has a twin: the same
code, whose globals hold the kernels in the place of the ops.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from types import FunctionType
from typing import Any

from odyssey.errors import OdysseyError
from odyssey.table.row import PASS, Row, Rule, asked, takes_residual
from odyssey.table.value import NUMBERS

__all__ = ["FAMILIES", "bare", "picking", "read_choice"]

# The modules whose rows are in the table.
FAMILIES: set[str] = set()


def picking(row: Row, rule: Rule | None) -> Rule | None:
    """Turn ``rule(g, name, ...)`` into ``pull(g, kept, specs)``, which picks the names' values."""
    if rule is None or rule is PASS:
        return rule
    positions = {name: k for k, name in enumerate((*row.arrays, "out", *row.options))}
    of_specs = {f"{name}_spec": k for k, name in enumerate(row.arrays)}
    names, count = asked(rule), len(positions)
    # Out of what was saved and the specs, as one tuple.
    pick = _picker([positions.get(n, count + of_specs.get(n, 0)) for n in names])
    if takes_residual(rule):

        def with_residual(g: Any, kept: Any, specs: Any) -> Any:
            residual = kept[count] if len(kept) > count else None
            return rule(g, *pick((*kept[:count], *(specs or ()))), residual)

        return with_residual
    if not names:
        return lambda g, kept, specs: rule(g)
    if len(names) == 1 and names[0] in positions:
        a = positions[names[0]]
        return lambda g, kept, specs: rule(g, kept[a])
    if len(names) == 1:
        b = of_specs[names[0]]
        return lambda g, kept, specs: rule(g, specs[b])
    if len(names) == 2 and set(names) <= set(positions):
        a, b = (positions[name] for name in names)
        return lambda g, kept, specs: rule(g, kept[a], kept[b])
    if len(names) == 2 and names[0] in positions and names[1] in of_specs:
        a, b = positions[names[0]], of_specs[names[1]]
        return lambda g, kept, specs: rule(g, kept[a], specs[b])
    if of_specs.keys().isdisjoint(names):
        return lambda g, kept, specs: rule(g, *pick(kept))
    nothing = (None,) * count  # nodes of some ops save None
    # (What is kept may have a residual behind the rest.)
    return lambda g, kept, specs: rule(g, *pick((*(kept or nothing)[:count], *specs)))


def _picker(positions: list[int]) -> Callable[[Any], tuple[Any, ...]]:
    """An itemgetter that returns a tuple, of none or one as well."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda values: tuple([values[k] for k in positions])


def read_choice(row: Row, given: bool | Mapping[str, Rule | None]) -> None:
    """Find out what the row does to the marks of what was chosen; see ``op``."""
    if isinstance(given, Mapping):
        for name, rule in given.items():
            wrong = {name} - set(row.arrays)
            needs = asked(rule) if rule else ()
            wrong |= {n for n in needs if n not in row.options and n not in _kept_by(row)}
            if wrong:
                raise OdysseyError(
                    f"op {row.name}: the rule of what was chosen of {name!r} names "
                    f"{', '.join(sorted(wrong))}, which its reverse rule does not keep"
                )
        rules = tuple(picking(row, given.get(name)) for name in row.arrays)
        row.chosen = row.chosen_forward = rules
    else:
        row.chosen, row.chosen_forward = row.pulls, row.pushes
    row.moves = row.moves or (row.linear and not row.foreign)
    by_value = not _kept_by(row).isdisjoint((*row.arrays, "out"))
    # What only chooses has finite slopes; those of rows from outside are not known.
    only_chooses = row.masks and given is True and not row.foreign
    row.poles = row.elementwise and by_value and not only_chooses
    row.hand_on = None


def _kept_by(row: Row) -> frozenset[str]:
    return frozenset().union(*row.needs)


# ------------------------------------------------------------------ twins


def bare(row: Row) -> tuple[Rule | None, ...]:
    """The reverse rules of a row as a sweep over plain arrays calls them."""
    return tuple(_bare(row, name, pull) for name, pull in zip(row.arrays, row.pulls, strict=True))


def _bare(row: Row, name: str, pull: Rule | None) -> Rule | None:
    rule = row.vjp[name]
    if type(rule) is not FunctionType or rule is PASS or pull is None:
        return pull
    twin = _twin(rule)
    fast = picking(row, twin)
    assert fast is not None
    others = [k for k, array in enumerate(row.arrays) if array != name and array in asked(rule)]
    if not others:
        return fast
    # An operand may be a Python number, and a kernel that is given nothing else would return one
    # of NumPy's, which is not weak in its promotion.
    if len(others) == 1:
        k = others[0]
        if len(asked(rule)) == 1:
            return lambda g, kept, specs: (rule if type(kept[k]) in NUMBERS else twin)(g, kept[k])
        if asked(rule) == (row.arrays[k], f"{name}_spec"):
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


def _twin(function: FunctionType) -> Callable[..., Any]:
    scope = _scope_of(function.__globals__["__name__"])
    name, defaults = function.__name__, function.__defaults__
    twin = FunctionType(function.__code__, scope, name, defaults, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_SCOPES: dict[str, dict[str, Any]] = {}


def _scope_of(module: str) -> dict[str, Any]:
    """The globals of a module's twins: kernels for ops, twins for the helpers of rules.

    Taken once, when the ops are all imported: what is rebound in the module later stays unseen.
    """
    if module in _SCOPES:
        return _SCOPES[module]
    scope = _SCOPES[module] = dict(vars(sys.modules[module]))
    for name, value in list(scope.items()):
        row = getattr(value, "row", None)
        if isinstance(row, Row) and not (row.optional or row.foreign or row.prepare):
            if row.options:
                scope[name] = _straight(row)
            else:
                scope[name] = row.kernel
                row.holders.append(partial(scope.__setitem__, name))
        elif _is_helper(value):
            scope[name] = _twin(value)
    return scope


def _straight(row: Row) -> Callable[..., Any]:
    """An op with options: its kernel, where all are given in order; else they are to be bound."""
    count = len(row.arrays) + len(row.options)

    def call(*args: Any, **named: Any) -> Any:
        if named or len(args) != count:
            return row.call(*args, **named)
        return row.kernel(*args)

    return call


def _is_helper(value: Any) -> bool:
    """Whether this is a plain function of a family, and not a composite."""
    if type(value) is not FunctionType or hasattr(value, "aliases"):
        return False
    if "tape" in value.__code__.co_varnames:  # which it passes on to ops
        return False
    return value.__globals__["__name__"] in FAMILIES
