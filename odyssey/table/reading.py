"""What is read from the rules of a declaration: what nodes keep, and how sweeps call the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odyssey.errors import OdysseyError
from odyssey.table.result_checks import check_rule
from odyssey.table.rule_adapters import (
    adapt_multi_output_jvp,
    adapt_multi_output_vjp,
    adapt_rule,
    adapt_variadic_rule,
    check_selection_rules,
)
from odyssey.table.signature import Layout, rule_arguments, takes_no_arguments, takes_residual

__all__ = ["read_rules", "read_selection_rules"]


def read_rules(layout: Layout, given: Mapping[str, Any], foreign: bool) -> dict[str, Any]:
    """What is read from ``vjp`` and ``jvp``."""
    vjp, jvp = given["vjp"] or {}, given["jvp"] or {}
    _check_names(layout, vjp, jvp, given["with_residual"])
    arrays, options = layout.arrays, set(layout.options)
    elementwise = given["elementwise"]
    if layout.variadic:
        vjp, jvp = (dict.fromkeys(arrays, rules.get(layout.variadic)) for rules in (vjp, jvp))
    reverse = {name: vjp.get(name) for name in arrays}
    forward = {name: jvp.get(name, reverse[name] if elementwise else None) for name in arrays}
    wishes = [layout.wishes(rule) if (rule := reverse[name]) else () for name in arrays]
    needs = [frozenset(wished) - options for wished in wishes]
    for name, kept in zip(arrays, needs, strict=True):
        rule = forward[name]
        if rule is None or rule is reverse[name]:
            continue
        wished = rule_arguments(rule) if layout.cotangents else layout.wishes(rule)
        more = set(wished) - kept - options
        if more.difference(layout.specs):
            raise OdysseyError(
                f"op {layout.name}: the forward rule of {name!r} asks for "
                f"{', '.join(sorted(more))}, which its reverse rule does not keep"
            )
    if layout.variadic:
        pulls = [adapt_variadic_rule(layout, reverse[name], k) for k, name in enumerate(arrays)]
        pushes = [adapt_variadic_rule(layout, forward[name], k) for k, name in enumerate(arrays)]
    else:
        take, give = (
            (adapt_multi_output_vjp, adapt_multi_output_jvp)
            if layout.cotangents
            else (adapt_rule, adapt_rule)
        )
        pulls = [take(layout, reverse[name]) for name in arrays]
        pushes = [
            pull if forward[name] is reverse[name] else give(layout, forward[name])
            for name, pull in zip(arrays, pulls, strict=True)
        ]
    if foreign:
        pulls = [check_rule(layout, k, pull) for k, pull in enumerate(pulls)]
        pushes = [check_rule(layout, k, push, True) for k, push in enumerate(pushes)]
    uses_specs = any(name.endswith("_spec") for kept in needs for name in kept)
    keeps_dtype = elementwise if given["keeps_dtype"] is None else given["keeps_dtype"]
    return {
        "vjp": reverse,
        "jvp": forward,
        "needs": needs,
        "pullbacks": pulls,
        "pushforwards": None if given["linear"] and not jvp else pushes,
        "keeps_dtype": keeps_dtype and not uses_specs and None not in pulls,
    }


def _check_names(
    layout: Layout, vjp: Mapping[str, Any], jvp: Mapping[str, Any], with_residual: Any
) -> None:
    """Refuse rules that name what the row does not have."""
    known = layout.known
    arrays = (layout.variadic,) if layout.variadic else layout.arrays
    for rules in (vjp, jvp):
        for name, rule in rules.items():
            wrong = [name] if name not in arrays else []
            several = bool(layout.cotangents) and rules is vjp
            wished = (
                (layout.after_cotangents(rule) if several else rule_arguments(rule)) if rule else ()
            )
            if rule and not wished and takes_no_arguments(rule):
                first = "cotangent" if rules is vjp else "tangent"
                raise OdysseyError(
                    f"op {layout.name}: the rule of {name!r} takes nothing; it must take the "
                    f"{first} first, and then what it asks for"
                )
            wrong += [asked for asked in wished if asked not in known]
            wrong += ["residual"] if rule and takes_residual(rule) and not with_residual else []
            if wrong:
                raise OdysseyError(
                    f"op {layout.name}: the rule of {name!r} names {', '.join(wrong)}; "
                    f"known are {', '.join(sorted(known))}"
                )


def read_selection_rules(
    layout: Layout, given: Mapping[str, Any], facts: Mapping[str, Any], foreign: bool
) -> dict[str, Any]:
    """Return the rules of the selection mask, see ``selects`` and ``rearranges`` of ``op``."""
    selects = given["selects"]
    rules = selects or given["rearranges"]
    kept = frozenset().union(*facts["needs"])
    # What only chooses has finite slopes; those of rows from outside are not known.
    only_chooses = selects is True and not foreign
    by_value = not kept.isdisjoint((*layout.arrays, *layout.results))
    found = {"has_poles": given["elementwise"] and by_value and not only_chooses}
    if isinstance(rules, Mapping):
        check_selection_rules(layout, rules, kept)
        chosen = [adapt_rule(layout, rules.get(name)) for name in layout.arrays]
        found |= {"selection_pullbacks": chosen, "selection_pushforwards": chosen}
    return found
