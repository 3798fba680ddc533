"""Deriving how a rule writes in place from the rule alone, which is traced on Symbols.

Numbers, which follow from the learning rate and the count of steps, become 0-d arrays. Arrays like
the parameter get a place by their last use: that of the parameter or of a slot where its old value
is read no more, else a scratch array. The calls are the ufuncs of the traced ops, so the results
are those of the pure rule, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import setitem
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Graph, Instruction, Ref
from odyssey.graph.lifetimes import last_uses, needed
from odyssey.graph.trace import Trace
from odyssey.optim.inplace_program import Call, Place, Program
from odyssey.optim.rule import Rule

__all__ = ["derive", "program_of", "spelling"]

# Of these a Python number means the same as an array of the result's dtype, which NumPy takes up
# in half the time.
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "power", "maximum", "minimum"})

# Onto its own operand it takes ten times as long.
_APART = frozenset({np.sign})


class _UnfitError(Exception):
    """A rule does what has no form in place."""


_PLAIN = frozenset({float, int, bool, str, type(None)})


def spelling(value: Any) -> str | None:
    """A setting in letters, which -0.0 and 0.0, 1 and True differ in; None if they do not tell all.

    >>> spelling((0.9, -0.0)), spelling(object())
    ('(0.9, -0.0)', None)
    """
    parts = value if type(value) is tuple else (value,)
    try:
        return repr(value) if _PLAIN.issuperset(map(type, parts)) else None
    except ValueError:  # an int of more digits than Python writes
        return None


# How many programs a declared rule keeps: to derive one takes as long as a hundred steps.
_MOST = 64


def program_of(make: Any, settings: Mapping[str, Any], dtype: np.dtype[Any]) -> Program | None:
    """What ``derive`` returns, kept by the function that ``rule_of`` declared, ``make``."""
    spelled = [spelling(value) for name, value in settings.items() if name != "learning_rate"]
    if None in spelled:
        return derive(make, settings, dtype)
    key, programs = (dtype, *spelled), make.programs
    found: Program | None = programs.get(key)
    if found is None:  # nor is a failure kept: others try again
        found = derive(make, settings, dtype)
        for old in list(programs)[: len(programs) + 1 - _MOST]:
            programs.pop(old, None)
        if found is not None:
            programs[key] = found
    return found


def derive(
    make: Callable[..., Rule], settings: Mapping[str, Any], dtype: np.dtype[Any]
) -> Program | None:
    """Return what the step of a rule is in place; None where it has to be run as it is.

    Args:
        make: Makes the rule from the settings; the program serves any learning rate.
        settings: By name.
        dtype: That of the parameters, a real one.
    """
    try:
        slots = make(**settings).slots
        graph, again = (_traced(make, settings, slots, dtype) for _ in range(2))
        if graph.instructions != again.instructions:
            return None  # it draws random numbers, or counts by itself
        return _Deriving(graph, slots).program()
    except (OdysseyError, _UnfitError, *STUMBLES):
        return None


def _traced(
    make: Callable[..., Rule], settings: Mapping[str, Any], slots: Sequence[str], dtype: Any
) -> Graph:
    """The graph of one step; inputs and outputs are in the order of ``_Deriving``."""

    def step(g: Any, p: Any, before: list[Any], steps: Any, rate: Any) -> tuple[Any, ...]:
        rule = make(**{**settings, "learning_rate": rate})
        state = {"steps": steps, **dict(zip(slots, before, strict=True))}
        p, state = rule.stepped(g, state, p)
        return (p, *[state[slot] for slot in slots])

    trace = Trace()
    g, p, *before = [np.zeros(2, dtype) for _ in ("g", "p", *slots)]  # one for two would be one
    steps, rate = np.zeros((), np.int64), np.zeros(())
    trace.run(step, (g, p, before, steps, rate), {})
    if trace.refusal is not None or trace.graph.states or trace.graph.captures():
        raise _UnfitError  # an array that comes from elsewhere may be another one each time
    return trace.graph


class _Deriving:
    """Places for the values of a graph, and its instructions as calls."""

    def __init__(self, graph: Graph, slots: Sequence[str]) -> None:
        if not all(isinstance(output, Ref) for output in graph.outputs):
            raise _UnfitError
        homes: list[Place] = ["p", *slots]
        places = ["g", *homes, "steps", "rate"]
        self._ids = {place: id for place, (id, _) in zip(places, graph.inputs, strict=True)}
        self._at: dict[int, Place] = {id: place for place, id in self._ids.items()}
        self._specs = dict(graph.inputs)
        self._like = self._specs[self._ids["g"]]
        instructions, same = _without_casts(graph, self._specs)
        kept = [same.get(output.id, output.id) for output in graph.outputs]
        # What is left in the parameter and in the slots, and where each value is to end.
        self._left = dict(zip(homes, kept, strict=True))
        self._homes = {id: home for home, id in reversed(self._left.items())}
        self._instructions = needed(instructions, kept)
        self._last = last_uses(self._instructions, kept)
        self._made = {one.id: k for k, one in enumerate(self._instructions)}
        # Which homes hold a value that is still read; scratch arrays that hold none.
        self._held: set[Place] = {h for h in self._left if self._ids[h] in self._last}
        self._free: list[Place] = []
        self._scratch = 0
        self._numbers: dict[Place, Any] = {}

    def program(self) -> Program:
        settled, counted, calls = [], [], []
        of_rate = {self._ids["rate"]}
        for k, one in enumerate(self._instructions):
            read = [o.id for o in one.operands if isinstance(o, Ref)]
            if one.spec == self._like:
                self._at[one.id] = self._place(k, one, read)
                calls += self._calls(one)
            elif one.spec.shape:
                raise _UnfitError
            else:
                self._at[one.id] = Ref(one.id)
                self._numbers[Ref(one.id)] = np.zeros((), one.spec.dtype)
                if of_rate.issuperset(read):
                    of_rate.add(one.id)
                    settled += self._calls(one)
                else:
                    counted += self._calls(one)
        calls += self._endings()
        return Program(self._scratch, self._numbers, settled, counted, calls)

    # -------------------------------------------------------------- places

    def _place(self, k: int, one: Instruction, read: list[int]) -> Place:
        """Where the result of instruction number ``k`` is written to."""
        arrays = [id for id in dict.fromkeys(read) if self._specs[id].shape]
        dying = [self._at[id] for id in arrays if self._last[id] == k and self._at[id] != "g"]
        home = self._homes.get(one.id)
        choice = [home] if home is not None and (home in dying or home not in self._held) else []
        choice += [place for place in dying if self._lends(place, one.id)]
        choice += self._free
        choice += [h for h in self._left if h not in self._held and self._lends(h, one.id)]
        barred = self._barred(one)
        place = next((place for place in choice if place not in barred), None)
        if place is None:
            place, self._scratch = self._scratch, self._scratch + 1
        self._free += [left for left in dying if left not in self._left and left != place]
        self._free = [free for free in self._free if free != place]
        self._held -= set(dying)
        self._held |= {place}
        return place

    def _lends(self, place: Place, id: int) -> bool:
        """Whether a value may lie there until its last use."""
        left = self._left.get(place)
        return left is None or self._last[id] <= self._made.get(left, -1)

    def _barred(self, one: Instruction) -> list[Place]:
        """The places of operands that the result must not be written over."""
        if _is(one, "where"):
            _, x, _ = one.operands
            return [self._at[x.id]] if isinstance(x, Ref) else []
        apart = one.row.ufunc in _APART
        return [self._at[o.id] for o in one.operands if isinstance(o, Ref)] if apart else []

    def _endings(self) -> list[Call]:
        """The calls that bring to its home what lies somewhere else in the end."""
        calls = []
        for home, id in self._left.items():
            at = self._at[id]
            if at != home:
                if at in self._left and id == self._ids[at]:  # the old value of another
                    raise _UnfitError
                calls.append(Call(setitem, (at,), home))
        return calls

    # -------------------------------------------------------------- calls

    def _calls(self, one: Instruction) -> list[Call]:
        row, out = one.row, self._at[one.id]
        if _is(one, "astype"):
            return [Call(setitem, (self._operand(one, 0),), out)]
        if _is(one, "where"):
            condition, x, y = [self._operand(one, k) for k in range(3)]
            first = [] if y == out else [Call(setitem, (y,), out)]
            return [*first, Call(np.where, (condition, x), out)]
        if row.ufunc is None or one.options:
            raise _UnfitError
        operands = tuple(self._operand(one, k) for k in range(len(one.operands)))
        return [Call(row.ufunc, operands, out)]

    def _operand(self, one: Instruction, k: int) -> Place:
        operand, spec = one.operands[k], one.spec
        if isinstance(operand, Ref):
            return self._at[operand.id]
        if operand is None:
            raise _UnfitError
        plain = spec.dtype.kind == "f" or (spec.dtype.kind == "i" and type(operand) is int)
        if plain and (one.row.name in _ARITHMETIC or _is(one, "where")):
            operand = np.asarray(operand, spec.dtype)
        place = (one.id, k)
        self._numbers[place] = operand
        return place


def _is(one: Instruction, name: str) -> bool:
    """Whether it calls the op of the table that is called so, of a family that may load late."""
    return one.row.name == name and not one.row.foreign


def _without_casts(graph: Graph, specs: dict[int, Any]) -> tuple[list[Instruction], dict[int, int]]:
    """The instructions without casts to the dtype that is there, whose results are operands.

    ``specs`` takes up those of all results.

    Returns:
        The instructions, and by number of a result that is gone the number of the same value.
    """
    found: list[Instruction] = []
    same: dict[int, int] = {}
    for one in graph.instructions:
        specs[one.id] = one.spec
        operands = tuple(Ref(same.get(o.id, o.id)) if isinstance(o, Ref) else o
                         for o in one.operands)  # fmt: skip
        if _is(one, "astype") and specs[operands[0].id] == one.spec:
            same[one.id] = operands[0].id
        else:
            found.append(one._replace(operands=operands))
    return found, same
