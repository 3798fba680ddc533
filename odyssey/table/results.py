"""What a row of several results is made of: the rows of the nodes of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odyssey.errors import OdysseyError
from odyssey.table.multi_output import MultiOutput
from odyssey.table.row import Row
from odyssey.table.signature import PASS, Layout

__all__ = ["check_results", "make_result_rows"]

# What says of the one result of an op how it follows from its operands.
_OF_ONE = ("elementwise", "linear", "selects", "rearranges", "keeps_dtype", "ufunc", "scalar")


def check_results(layout: Layout, given: Mapping[str, Any]) -> None:
    """Refuse names of results, and what does not go together with them; see ``op``.

    Raises:
        OdysseyError: naming what.
    """
    results, name = layout.results, layout.name
    if len(results) == 1:
        raise OdysseyError(f"op {name}: results= has one name; leave it out, and return no tuple")
    taken = {*layout.arrays, *layout.options, *layout.specs, "out", "residual"}
    wrong = [result for result in results if result in taken or results.count(result) > 1]
    if wrong:
        raise OdysseyError(
            f"op {name}: results= has {wrong[0]!r}, which names something else of it already"
        )
    both = [fact for fact in _OF_ONE if given[fact]]
    if both:
        raise OdysseyError(
            f"op {name}: results= and {both[0]}= do not go together; write infer=, vjp= and jvp= "
            "for an op of several results"
        )
    if PASS in (given["vjp"] or {}).values() or PASS in (given["jvp"] or {}).values():
        raise OdysseyError(f"op {name}: PASS is the rule of an op of one result; write it out")


def make_result_rows(layout: Layout) -> dict[str, Any]:
    """What the row of a call with several results has more than one with a single result."""
    parts = [_part(layout, j) for j in range(len(layout.results))]
    return {"result_rows": parts, "propagate_selection": _drop}


def _drop(k: int, g: Any, r: Any, chosen: Any) -> None:
    """What was left out by choice is not known behind such a call, nor before it."""


def _part(layout: Layout, j: int) -> Row:
    """The row of the node of result number ``j``."""
    return Row(
        Layout(f"{layout.name}.{layout.results[j]}", [layout.name]),
        pullbacks=[_into_wire(j)],
        pushforwards=[lambda t, kept, specs: t.parts.get(j)],
        propagate_selection=_drop,
    )


def _into_wire(j: int) -> Callable[..., MultiOutput]:
    return lambda g, kept, specs: MultiOutput({j: g})
