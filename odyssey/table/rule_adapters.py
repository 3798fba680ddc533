"""Rule adapters: turn declared rules into functions of a cotangent, saved values and specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from odyssey.errors import OdysseyError
from odyssey.table.multi_output import MultiOutput
from odyssey.table.signature import (
    PASS,
    Layout,
    Rule,
    rule_arguments,
    takes_no_arguments,
    takes_residual,
)

__all__ = [
    "adapt_multi_output_jvp",
    "adapt_multi_output_vjp",
    "adapt_rule",
    "adapt_variadic_rule",
    "check_selection_rules",
]


def adapt_rule(layout: Layout, rule: Rule | None) -> Rule | None:
    """Turn ``rule(g, name, ...)`` into ``pullback(g, kept, specs)``, which selects the values."""
    if rule is None or rule is PASS:
        return rule
    positions = {name: k for k, name in enumerate(layout.kept)}
    of_specs = {name: k for k, name in enumerate(layout.specs)}
    names, count = rule_arguments(rule), len(positions)
    # Indices into saved values followed by specs.
    pick = _tuple_getter([positions.get(n, count + of_specs.get(n, 0)) for n in names])
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
    # (A residual may follow the saved values.)
    return lambda g, kept, specs: rule(g, *pick((*(kept or nothing)[:count], *specs)))


def _tuple_getter(positions: list[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Return an itemgetter that returns a tuple for one index, or none, as well."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda values: tuple([values[k] for k in positions])


# ------------------------------------------------------------------ any number of operands


def adapt_variadic_rule(layout: Layout, rule: Rule | None, place: int) -> Rule | None:
    """Adapt the rule of a variadic op for operand number ``place``.

    All operands share one rule, which may request ``place``, all operands and all specs.
    """
    if rule is None or rule is PASS:
        return rule
    count, kept_count = len(layout.arrays), len(layout.kept)
    places = {name: k for k, name in enumerate(layout.kept)}
    picks: list[int | slice] = []
    for name in rule_arguments(rule):
        if name == "place":
            picks.append(kept_count + count)
        elif name == layout.variadic:
            picks.append(slice(count))
        elif name == f"{layout.variadic}_spec":
            picks.append(slice(kept_count, kept_count + count))
        else:
            picks.append(places[name])

    def pull(g: Any, kept: Any, specs: Any) -> Any:
        values = (*kept[:kept_count], *specs[:count], place)
        return rule(g, *[values[pick] for pick in picks])

    return pull


# ------------------------------------------------------------------ several results


def adapt_multi_output_vjp(layout: Layout, rule: Rule | None) -> Rule | None:
    """Adapt a reverse rule ``rule(g_<result>, ..., name, ...)`` of an op of several results.

    A cotangent that did not arrive is zeros.
    """
    if rule is None:
        return None
    names = rule_arguments(rule, 0)
    wanted = [layout.cotangents.index(name) for name in names if name in layout.cotangents]
    places = {name: k for k, name in enumerate((*layout.kept, *layout.specs))}
    count = len(layout.kept)
    pick = _tuple_getter([places[name] for name in names[len(wanted) :]])
    residual = takes_residual(rule)

    def pull(g: MultiOutput, kept: Any, specs: Any) -> Any:
        parts, known = g.parts, specs[-1].parts
        given = [parts[j] if j in parts else _zeros_of_spec(known[j]) for j in wanted]
        others = pick((*kept[:count], *specs))
        if residual:
            return rule(*given, *others, kept[count] if len(kept) > count else None)
        return rule(*given, *others)

    return pull


def _zeros_of_spec(spec: Any) -> Any:
    return np.zeros(spec.shape, spec.dtype)


def adapt_multi_output_jvp(layout: Layout, rule: Rule | None) -> Rule | None:
    """Adapt a forward rule that returns a tangent for each result, None for zeros."""
    push = adapt_rule(layout, rule)
    if push is None:
        return None
    count = len(layout.results)

    def split_tangents(t: Any, kept: Any, specs: Any) -> MultiOutput:
        moved = push(t, kept, specs)
        if not isinstance(moved, (tuple, list)) or len(moved) != count:
            what = f"{len(moved)}" if isinstance(moved, (tuple, list)) else type(moved).__name__
            raise OdysseyError(
                f"op {layout.name}: a forward rule returned {what}; wanted is a tuple of "
                f"{count} tangents, of {', '.join(layout.results)}"
            )
        return MultiOutput({j: part for j, part in enumerate(moved) if part is not None})

    return split_tangents


# ------------------------------------------------------------------ selection masks


def check_selection_rules(
    layout: Layout, given: bool | Mapping[str, Rule | None], kept: frozenset[str]
) -> None:
    """Raise OdysseyError if a selection rule requests a value that nodes do not save."""
    if not isinstance(given, Mapping):
        return
    for name, rule in given.items():
        wrong = {name} - set(layout.arrays)
        needs = rule_arguments(rule) if rule else ()
        if rule and not needs and takes_no_arguments(rule):
            raise OdysseyError(
                f"op {layout.name}: the rule of what was chosen of {name!r} takes nothing; it must "
                "take what is not 0 where the result is wanted"
            )
        wrong |= {n for n in needs if n not in layout.options and n not in kept}
        if wrong:
            raise OdysseyError(
                f"op {layout.name}: the rule of what was chosen of {name!r} names "
                f"{', '.join(sorted(wrong))}, which its reverse rule does not keep"
            )
