"""Python's numbers in a graph that is traced: where ops take them, and where only their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.spec import spec_of
from odyssey.table.value import Symbol, Weak
from odyssey.tree import containers
from odyssey.tree_rebuild import extra_attributes

__all__ = [
    "is_weak",
    "shape_rule_argument",
    "make_result_concrete",
    "concrete",
    "concrete_operands",
    "can_stay_weak",
]


def is_weak(value: Any) -> bool:
    """Whether this stands for a Python number."""
    return issubclass(type(value), Weak)


def concrete(thing: Any, question: str) -> Any:
    """Numbers, also those in nests and slices, as they are in this trace, and in every run."""
    if is_weak(thing):
        return type(thing).settled(thing, question)
    if type(thing) in (tuple, list):
        return type(thing)([concrete(part, question) for part in thing])
    if type(thing) is slice:
        return slice(*[concrete(part, question) for part in (thing.start, thing.stop, thing.step)])
    return thing


def make_result_concrete(result: Any, numbers: Iterable[Any]) -> None:
    """Settle what containers of a result hold, and all numbers where they may hold more.

    Args:
        result: A tree.
        numbers: All that stand for arguments.
    """
    for one, held in containers(result):
        concrete(held, "it is returned")
        if extra_attributes(one):
            concrete(list(numbers), "an attribute of what is returned may hold it")


def shape_rule_argument(value: Any) -> Any:
    """Return an operand as shape rules take it: a spec for an array, a number as it is."""
    if isinstance(value, Symbol):
        return value.spec
    if is_weak(value):
        return type(value).told(value)[1]
    return spec_of(value) if hasattr(value, "dtype") else value


def can_stay_weak(row: Any, values: Sequence[Any], trace: Any) -> bool:
    """Whether a call's numbers may be others in each run.

    They may where they meet arrays, element by element: then none but their class says what comes
    out. What ops from outside make of them nobody knows, and those of no array give a number.
    """
    if not row.elementwise or row.foreign:
        return False
    if not any(isinstance(value, (Symbol, *ARRAY_LIKE)) for value in values):
        return False
    return all(value.graph is trace for value in values if is_weak(value))


def concrete_operands(
    row: Any, values: Sequence[Any], options: tuple[Any, ...], trace: Any
) -> tuple[Sequence[Any], tuple[Any, ...]]:
    """Operands and options of a call, with numbers left that may be others in each run."""
    options = tuple([concrete(o, f"{row.name} has it as an option") for o in options])
    if not any(map(is_weak, values)):
        return values, options
    if can_stay_weak(row, values, trace):
        looked_at = trace.looked_at(row, values, options)
        return [
            concrete(v, f"{row.name} looks at it") if k in looked_at else v
            for k, v in enumerate(values)
        ], options
    return [concrete(v, f"{row.name} takes its value") for v in values], options
