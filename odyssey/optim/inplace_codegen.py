"""Code generation for in-place updates: a traced rule becomes calls that write into its arrays.

Scalars, which depend on the learning rate and the step count, become 0-d arrays. Arrays like the
parameter are assigned a location by liveness: that of the parameter or of a slot whose old value is
no longer read, else a scratch array. The calls are the ufuncs of the traced ops, so the results
equal those of the pure rule bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import setitem
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Graph, Instruction, Ref, last_uses, live_instructions
from odyssey.graph.trace import Trace
from odyssey.optim.inplace_program import Call, InPlaceProgram, Location
from odyssey.optim.rule import Rule

__all__ = ["cached_program", "compile_in_place", "setting_key"]

# For these ops a Python number equals an array of the result's dtype, which NumPy handles in half
# the time.
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "power", "maximum", "minimum"})

# Written over its own operand, it takes ten times as long.
_SLOW_IN_PLACE = frozenset({np.sign})


class _NoInPlaceFormError(Exception):
    """Raised for a rule that has no in-place form."""


_PLAIN = frozenset({float, int, bool, str, type(None)})


def setting_key(value: Any) -> str | None:
    """Return a setting as text that distinguishes 0.0 and -0.0; None if no text is exact.

    >>> setting_key((0.9, -0.0)), setting_key(object())
    ('(0.9, -0.0)', None)
    """
    parts = value if type(value) is tuple else (value,)
    try:
        return repr(value) if _PLAIN.issuperset(map(type, parts)) else None
    except ValueError:  # an int of more digits than Python writes
        return None


# The number of cached programs of a rule; to compile one takes as long as a hundred steps.
_MOST = 64


def cached_program(
    make: Any, settings: Mapping[str, Any], dtype: np.dtype[Any]
) -> InPlaceProgram | None:
    """Return the result of ``compile_in_place``, cached on the declared rule ``make``."""
    keys = [setting_key(value) for name, value in settings.items() if name != "learning_rate"]
    if None in keys:
        return compile_in_place(make, settings, dtype)
    key, programs = (dtype, *keys), make.programs
    found: InPlaceProgram | None = programs.get(key)
    if found is None:  # failures are not cached
        found = compile_in_place(make, settings, dtype)
        for old in list(programs)[: max(0, len(programs) + 1 - _MOST)]:
            programs.pop(old, None)
        if found is not None:
            programs[key] = found
    return found


def compile_in_place(
    make: Callable[..., Rule], settings: Mapping[str, Any], dtype: np.dtype[Any]
) -> InPlaceProgram | None:
    """Return the in-place program of a rule's step; None if the rule must run as it is.

    Args:
        make: Makes the rule from the settings; the program serves any learning rate.
        settings: By name.
        dtype: That of the parameters, a real one.
    """
    try:
        slots = make(**settings).slots
        graph, second_graph = (_traced(make, settings, slots, dtype) for _ in range(2))
        if graph.instructions != second_graph.instructions:
            return None  # it draws random numbers, or has a state of its own
        return _Codegen(graph, slots).program()
    except (OdysseyError, _NoInPlaceFormError, *STUMBLES):
        return None


def _traced(
    make: Callable[..., Rule], settings: Mapping[str, Any], slots: Sequence[str], dtype: Any
) -> Graph:
    """Return the graph of one step; inputs and outputs are in the order of ``_Codegen``."""

    def step(g: Any, p: Any, before: list[Any], steps: Any, rate: Any) -> tuple[Any, ...]:
        rule = make(**{**settings, "learning_rate": rate})
        state = {"steps": steps, **dict(zip(slots, before, strict=True))}
        p, state = rule.stepped(g, state, p)
        return (p, *[state[slot] for slot in slots])

    trace = Trace()
    g, p, *before = [
        np.zeros(2, dtype) for _ in ("g", "p", *slots)
    ]  # distinct arrays, because one array would be one input
    steps, rate = np.zeros((), np.int64), np.zeros(())
    trace.run(step, (g, p, before, steps, rate), {})
    trace.close()
    if trace.refusal is not None or trace.graph.states or trace.graph.captures():
        raise _NoInPlaceFormError  # a captured array may be another one at each step
    return trace.graph


class _Codegen:
    """Assignment of locations to the values of a graph, and its instructions as calls."""

    def __init__(self, graph: Graph, slots: Sequence[str]) -> None:
        if not all(isinstance(output, Ref) for output in graph.outputs):
            raise _NoInPlaceFormError
        homes: list[Location] = ["p", *slots]
        locations = ["g", *homes, "steps", "rate"]
        self._ids = {
            location: id for location, (id, _) in zip(locations, graph.inputs, strict=True)
        }
        self._location_of: dict[int, Location] = {
            id: location for location, id in self._ids.items()
        }
        self._specs = dict(graph.inputs)
        self._like = self._specs[self._ids["g"]]
        instructions, merged_ids = _without_casts(graph, self._specs)
        kept = [merged_ids.get(output.id, output.id) for output in graph.outputs]
        # The final value of the parameter and of each slot, and the final location of each value.
        self._left = dict(zip(homes, kept, strict=True))
        self._homes = {id: home for home, id in reversed(self._left.items())}
        self._instructions = live_instructions(instructions, kept)
        self._last = last_uses(self._instructions, kept)
        self._made = {one.id: k for k, one in enumerate(self._instructions)}
        # Locations of parameter and slots whose value is still read; free scratch arrays.
        self._held: set[Location] = {h for h in self._left if self._ids[h] in self._last}
        self._free: list[Location] = []
        self._scratch = 0
        self._numbers: dict[Location, Any] = {}

    def program(self) -> InPlaceProgram:
        rate_calls, step_calls, calls = [], [], []
        of_rate = {self._ids["rate"]}
        for k, one in enumerate(self._instructions):
            read = [o.id for o in one.operands if isinstance(o, Ref)]
            if one.spec == self._like:
                self._location_of[one.id] = self._assign_location(k, one, read)
                calls += self._calls(one)
            elif one.spec.shape:
                raise _NoInPlaceFormError
            else:
                self._location_of[one.id] = Ref(one.id)
                self._numbers[Ref(one.id)] = np.zeros((), one.spec.dtype)
                if of_rate.issuperset(read):
                    of_rate.add(one.id)
                    rate_calls += self._calls(one)
                else:
                    step_calls += self._calls(one)
        calls += self._final_copies()
        return InPlaceProgram(self._scratch, self._numbers, rate_calls, step_calls, calls)

    # -------------------------------------------------------------- locations

    def _assign_location(self, k: int, one: Instruction, read: list[int]) -> Location:
        """Return the location that the result of instruction number ``k`` is written to."""
        arrays = [id for id in dict.fromkeys(read) if self._specs[id].shape]
        dying = [
            self._location_of[id]
            for id in arrays
            if self._last[id] == k and self._location_of[id] != "g"
        ]
        final = self._homes.get(one.id)
        candidates = (
            [final] if final is not None and (final in dying or final not in self._held) else []
        )
        candidates += [location for location in dying if self._is_available(location, one.id)]
        candidates += self._free
        candidates += [
            h for h in self._left if h not in self._held and self._is_available(h, one.id)
        ]
        forbidden = self._forbidden_locations(one)
        location = next((location for location in candidates if location not in forbidden), None)
        if location is None:
            location, self._scratch = self._scratch, self._scratch + 1
        self._free += [
            released for released in dying if released not in self._left and released != location
        ]
        self._free = [free for free in self._free if free != location]
        self._held -= set(dying)
        self._held |= {location}
        return location

    def _is_available(self, location: Location, id: int) -> bool:
        """True if a value may stay at a location until its last use."""
        left = self._left.get(location)
        return left is None or self._last[id] <= self._made.get(left, -1)

    def _forbidden_locations(self, one: Instruction) -> list[Location]:
        """Return the locations of operands that the result must not overwrite."""
        if _is_op(one, "where"):
            _, x, _ = one.operands
            return [self._location_of[x.id]] if isinstance(x, Ref) else []
        apart = one.row.ufunc in _SLOW_IN_PLACE
        return (
            [self._location_of[o.id] for o in one.operands if isinstance(o, Ref)] if apart else []
        )

    def _final_copies(self) -> list[Call]:
        """Return the calls that copy final values to their locations."""
        calls = []
        for home, id in self._left.items():
            at = self._location_of[id]
            if at != home:
                if at in self._left and id == self._ids[at]:  # the old value of another slot
                    raise _NoInPlaceFormError
                calls.append(Call(setitem, (at,), home))
        return calls

    # -------------------------------------------------------------- calls

    def _calls(self, one: Instruction) -> list[Call]:
        row, out = one.row, self._location_of[one.id]
        if _is_op(one, "astype"):
            return [Call(setitem, (self._operand_location(one, 0),), out)]
        if _is_op(one, "where"):
            condition, x, y = [self._operand_location(one, k) for k in range(3)]
            first = [] if y == out else [Call(setitem, (y,), out)]
            return [*first, Call(np.where, (condition, x), out)]
        if row.ufunc is None or one.options:
            raise _NoInPlaceFormError
        operands = tuple(self._operand_location(one, k) for k in range(len(one.operands)))
        return [Call(row.ufunc, operands, out)]

    def _operand_location(self, one: Instruction, k: int) -> Location:
        operand, spec = one.operands[k], one.spec
        if isinstance(operand, Ref):
            return self._location_of[operand.id]
        if operand is None:
            raise _NoInPlaceFormError
        plain = spec.dtype.kind == "f" or (spec.dtype.kind == "i" and type(operand) is int)
        if plain and (one.row.name in _ARITHMETIC or _is_op(one, "where")):
            operand = np.asarray(operand, spec.dtype)
        location = (one.id, k)
        self._numbers[location] = operand
        return location


def _is_op(one: Instruction, name: str) -> bool:
    """True if the instruction calls the op of the table with this name, which may load late."""
    return one.row.name == name and not one.row.foreign


def _without_casts(graph: Graph, specs: dict[int, Any]) -> tuple[list[Instruction], dict[int, int]]:
    """Return the instructions without casts to the same dtype, and the ids that they merge.

    ``specs`` takes up those of all results.

    Returns:
        The instructions, and by number of a result that is gone the number of the same value.
    """
    found: list[Instruction] = []
    merged_ids: dict[int, int] = {}
    for one in graph.instructions:
        specs[one.id] = one.spec
        operands = tuple(Ref(merged_ids.get(o.id, o.id)) if isinstance(o, Ref) else o
                         for o in one.operands)  # fmt: skip
        if _is_op(one, "astype") and specs[operands[0].id] == one.spec:
            merged_ids[one.id] = operands[0].id
        else:
            found.append(one._replace(operands=operands))
    return found, merged_ids
