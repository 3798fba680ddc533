"""A scalar on arrays, by NumPy: its program, a step after the other, for some elements at a time.

So an op that is written as a scalar has the same values in NumPy as in a compiled loop, but for
the last place of what NumPy's functions and those of ``math`` round differently. What a choice
needs for one of its answers alone is computed only where some element has that answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.scalars import Program, Term, program
from odyssey.spec import Array

__all__ = ["on_arrays"]

# Elements that go through all steps at a time: what they need stays in the processor's cache.
_BLOCK = 8192
# Steps of one answer alone, from which on it pays to ask whether any element has it.
_WORTH = 3

_FUNCTIONS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "neg": np.negative,
    "abs": np.absolute,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "invert": np.invert,
    "select": np.where,
    "math.pow": np.power,
    "math.copysign": np.copysign,
}
# Those that give numbers, and can write them over an operand that is not needed any more.
_IN_PLACE = {"add", "sub", "mul", "truediv", "neg", "abs"}


@ignore_fp_errors()
def on_arrays(scalar: Callable[..., Any], *operands: Any, options: tuple[Any, ...] = ()) -> Array:
    """A scalar of real numbers on arrays that broadcast, in the floating dtype of the result.

    Half precision is computed in single, all that is wider than double in double.

    Raises:
        TypeError: An operand is complex; the op's name is put before the message where it is
            called.
    """
    weak = all(type(v) in (int, float, bool) for v in operands)
    dtype = np.result_type(*operands, np.float64 if weak else np.float16)
    if dtype.kind != "f":
        raise TypeError("needs real numbers")
    computed = np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    run = _compiled(scalar, len(operands), computed, options, repr(options))
    arrays = [np.asarray(v).astype(computed, copy=False) for v in operands]
    shape = arrays[0].shape if len(arrays) == 1 else np.broadcast_shapes(*(a.shape for a in arrays))
    flat = [np.broadcast_to(a, shape).reshape(-1) for a in arrays]
    out = np.empty(shape, dtype)
    flat_out = out.reshape(-1)
    for start in range(0, out.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        flat_out[part] = run(*[x[part] for x in flat])
    return out if out.ndim else out[()]


# The text tells options apart that are equal: 1, 1.0 and True, 0.0 and -0.0.
@lru_cache(maxsize=512)
def _compiled(
    scalar: Callable[..., Any],
    arity: int,
    dtype: np.dtype[Any],
    options: tuple[Any, ...],
    text: str,
) -> Callable[..., Any]:
    names: dict[str, Any] = {}
    exec(_Source(program(scalar, arity, options, dtype), names).text(), names)
    run: Callable[..., Any] = names["run"]
    return run


class _Source:
    """A program as the text of a function of arrays; what that uses goes into ``names``."""

    def __init__(self, written: Program, names: dict[str, Any]) -> None:
        self.written = written
        self.names = names
        self.steps = dict(enumerate(written.steps, written.arity))
        self.users: dict[int, list[int]] = {}
        for k, (_, operands) in self.steps.items():
            for operand in operands:
                if isinstance(operand, Term):
                    self.users.setdefault(operand.id, []).append(k)
        if isinstance(written.result, Term):
            self.users.setdefault(written.result.id, []).append(written.arity + len(self.steps))
        # Numbers that are arrays: those that depend on an operand.
        self.varying = set(range(written.arity))
        for k in self.steps:
            if self.varying.intersection(self._terms(k)):
                self.varying.add(k)

    def text(self) -> str:
        """The whole function."""
        arguments = ", ".join(f"v{k}" for k in range(self.written.arity))
        lines = [f"def run({arguments}):", *self._block(list(self.steps), "    ")]
        return "\n".join([*lines, f"    return {self._shown(self.written.result)}"])

    def _terms(self, k: int) -> list[int]:
        return [o.id for o in self.steps[k][1] if isinstance(o, Term)]

    def _block(self, steps: list[int], indent: str) -> list[str]:
        """Lines for steps in order; those of one answer alone stand under its question."""
        alone: dict[int, tuple[list[int], list[int]]] = {}
        places = {k: k for k in steps}
        for k in reversed(steps):
            if self.steps[k][0] == "select" and places[k] == k:
                parts = self._alone(k, 1, steps), self._alone(k, 2, steps)
                if max(map(self._weight, parts)) >= _WORTH:
                    alone[k] = parts
                    places |= dict.fromkeys([*parts[0], *parts[1]], k)
        ends = self._ends(places)
        lines: list[str] = []
        own: set[int] = set()
        for k in steps:
            if places[k] != k:
                continue
            done = ends.get(k, [])
            if k in alone:
                lines += self._choice(k, alone[k], indent)
                own.difference_update(self._terms(k))  # the result may be an answer itself
            else:
                lines += self._line(k, indent, own.intersection(done))
                if k in self.varying and self._makes_own(k):
                    own.add(k)
            if done:
                lines.append(f"{indent}del {', '.join(f'v{t}' for t in done)}")
        return lines

    def _ends(self, places: dict[int, int]) -> dict[int, list[int]]:
        """For steps of a block the numbers made there which nothing behind needs any more.

        ``places`` says under which of the block's own steps a step stands.
        """
        ends: dict[int, list[int]] = {}
        for term, place in places.items():
            users = self.users.get(term, [])
            if place == term and term in self.varying and all(u in places for u in users) and users:
                ends.setdefault(max(places[u] for u in users), []).append(term)
        return ends

    def _makes_own(self, k: int) -> bool:
        """Whether a step makes an array of its own, which may be written over."""
        step = self.steps[k][0]
        return step in _IN_PLACE or step.startswith("math.")

    def _weight(self, part: list[int]) -> int:
        return sum(k in self.varying for k in part)

    def _alone(self, k: int, place: int, steps: list[int]) -> list[int]:
        """The steps that only one answer of the choice ``k`` needs, in order."""
        operand = self.steps[k][1][place]
        if not isinstance(operand, Term) or operand.id not in self.varying:
            return []
        known, found = set(steps), {k}
        for step in reversed(steps):
            users = self.users.get(step, [])
            if step == operand.id:
                if users == [k] and self._once(operand, k):
                    found.add(step)
            elif step in known and users and k not in users and found.issuperset(users):
                found.add(step)
        return sorted(found - {k})

    def _once(self, operand: Term, k: int) -> bool:
        """Whether a choice uses a number as one answer, and not as its question besides."""
        return sum(isinstance(o, Term) and o.id == operand.id for o in self.steps[k][1]) == 1

    def _choice(self, k: int, parts: tuple[list[int], list[int]], indent: str) -> list[str]:
        question, *answers = map(self._shown, self.steps[k][1])
        self.names |= {"count": np.count_nonzero, "where": np.where}
        lines = [f"{indent}n{k} = count({question})"]
        for part, some in zip(parts, (f"n{k}", f"n{k} < {question}.size"), strict=True):
            if part:
                lines.append(f"{indent}if {some}:")
                lines += self._block(part, indent + "    ")
        yes, no = parts
        chosen = f"where({question}, {', '.join(answers)})"
        if no:
            chosen = f"{answers[0]} if n{k} == {question}.size else {chosen}"
        if yes:
            chosen = f"{answers[1]} if not n{k} else {chosen}"
        return [*lines, f"{indent}v{k} = {chosen}"]

    def _line(self, k: int, indent: str, free: set[int]) -> list[str]:
        """One step; it may write over ``free`` numbers."""
        step, operands = self.steps[k]
        if step == "T" and not isinstance(operands[0], Term):
            # An array without axes: numbers of Python and of NumPy take calls twice as long.
            self.names[f"v{k}"] = np.asarray(self.written.dtype.type(operands[0]))
            return []
        given = [self._shown(o) for o in operands]
        if step == "T":
            self.names["dtype"] = self.written.dtype
            return [f"{indent}v{k} = {given[0]}.astype(dtype)"]
        name = f"np_{step.removeprefix('math.')}"
        self.names[name] = _FUNCTIONS.get(step) or getattr(np, step.removeprefix("math."))
        over = [f"v{t}" for t in self._terms(k) if t in free and step in _IN_PLACE]
        return [f"{indent}v{k} = {name}({', '.join(given + over[:1])})"]

    def _shown(self, operand: Any) -> str:
        if isinstance(operand, Term):
            return repr(operand)
        name = f"c{len(self.names)}"
        self.names[name] = operand
        return name
