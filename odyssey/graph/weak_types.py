"""Weak types: Python's numbers in a traced graph, as inputs where possible, else as constants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.spec import spec_of
from odyssey.table.value import Symbol, Weak
from odyssey.tree import containers, extras_of

__all__ = [
    "is_weak",
    "shape_rule_argument",
    "make_result_concrete",
    "concrete",
    "concrete_operands",
    "can_stay_weak",
]


def is_weak(value: Any) -> bool:
    """Return whether a value stands for a Python number."""
    return issubclass(type(value), Weak)


def concrete(thing: Any, question: str) -> Any:
    """Return a number as it is in this trace, and so fix it; also within nests and slices.

    Args:
        thing: A number, or a list, tuple or slice of numbers; other objects are returned unchanged.
        question: The reason, for ``explain``.
    """
    if is_weak(thing):
        return type(thing).fix_value(thing, question)
    if type(thing) in (tuple, list):
        return type(thing)([concrete(item, question) for item in thing])
    if type(thing) is slice:
        return slice(*[concrete(end, question) for end in (thing.start, thing.stop, thing.step)])
    return thing


def make_result_concrete(result: Any, numbers: Iterable[Any]) -> None:
    """Fix the numbers that a result holds, and all numbers if its containers have attributes.

    Args:
        result: A tree.
        numbers: The symbolic scalars of the arguments.
    """
    for container, items in containers(result):
        concrete(items, "it is returned")
        if extras_of(container):
            concrete(list(numbers), "an attribute of a result may hold it")


def shape_rule_argument(value: Any) -> Any:
    """Return an operand as shape rules take it: a spec for an array, a number as it is."""
    if isinstance(value, Symbol):
        return value.spec
    if is_weak(value):
        return type(value).expression_and_number(value)[1]
    return spec_of(value) if hasattr(value, "dtype") else value


def can_stay_weak(row: Any, values: Sequence[Any], trace: Any) -> bool:
    """Return whether the numbers of a call may differ in each run.

    They may if they meet arrays element by element: then the type of the result depends on their
    class alone. A user's op may depend on their values, and an op without arrays returns a number.
    """
    if not row.elementwise or row.foreign:
        return False
    if not any(isinstance(value, (Symbol, *ARRAY_LIKE)) for value in values):
        return False
    return all(value.graph is trace for value in values if is_weak(value))


def concrete_operands(
    row: Any, values: Sequence[Any], options: tuple[Any, ...], trace: Any
) -> tuple[Sequence[Any], tuple[Any, ...]]:
    """Return operands and options of a call, with all numbers fixed that cannot stay weak."""
    options = tuple([concrete(o, f"it is an option of {row.name}") for o in options])
    if not any(map(is_weak, values)):
        return values, options
    if can_stay_weak(row, values, trace):
        needed = trace.value_dependent(row, values, options)
        return [
            concrete(v, f"{row.name} reads its value") if k in needed else v
            for k, v in enumerate(values)
        ], options
    return [concrete(v, f"{row.name} reads its value") for v in values], options
