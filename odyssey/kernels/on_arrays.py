"""Evaluation of scalar programs on arrays by NumPy, step by step on blocks of elements.

An op defined by a scalar has the same values in NumPy as in a compiled loop, up to the last place
of functions that NumPy and ``math`` round differently. Steps that only one branch of a ``select``
needs are computed only if some element takes that branch.
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

# Elements in a block: intermediate results stay in the processor's cache.
_BLOCK = 8192
# Minimum number of steps in a branch for a test whether any element takes it.
_MIN_BRANCH_STEPS = 3

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
# Steps that can write their result over an operand that is not needed any more.
_IN_PLACE = {"add", "sub", "mul", "truediv", "neg", "abs"}


@ignore_fp_errors()
def on_arrays(scalar: Callable[..., Any], *operands: Any, options: tuple[Any, ...] = ()) -> Array:
    """Apply a scalar of real numbers to arrays that broadcast, in the floating dtype of the result.

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
    run = _compile_for_arrays(scalar, len(operands), computed, options, repr(options))
    arrays = [np.asarray(v).astype(computed, copy=False) for v in operands]
    shape = arrays[0].shape if len(arrays) == 1 else np.broadcast_shapes(*(a.shape for a in arrays))
    flat = [np.broadcast_to(a, shape).reshape(-1) for a in arrays]
    out = np.empty(shape, dtype)
    flat_out = out.reshape(-1)
    for start in range(0, out.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        flat_out[part] = run(*[x[part] for x in flat])
    return out if out.ndim else out[()]


# The text distinguishes equal options: 1, 1.0 and True, 0.0 and -0.0.
@lru_cache(maxsize=512)
def _compile_for_arrays(
    scalar: Callable[..., Any],
    arity: int,
    dtype: np.dtype[Any],
    options: tuple[Any, ...],
    text: str,
) -> Callable[..., Any]:
    names: dict[str, Any] = {}
    exec(_ArraySource(program(scalar, arity, options, dtype), names).function_source(), names)
    run: Callable[..., Any] = names["run"]
    return run


class _ArraySource:
    """Source of a function of arrays that computes a program; its globals go into ``names``."""

    def __init__(self, program: Program, names: dict[str, Any]) -> None:
        self.program = program
        self.names = names
        self.steps = dict(enumerate(program.steps, program.arity))
        self.users: dict[int, list[int]] = {}
        for k, (_, operands) in self.steps.items():
            for operand in operands:
                if isinstance(operand, Term):
                    self.users.setdefault(operand.id, []).append(k)
        if isinstance(program.result, Term):
            self.users.setdefault(program.result.id, []).append(program.arity + len(self.steps))
        # Values that are arrays: those that depend on an input.
        self.varying = set(range(program.arity))
        for k in self.steps:
            if self.varying.intersection(self._terms(k)):
                self.varying.add(k)

    def function_source(self) -> str:
        """Return the source of the function."""
        arguments = ", ".join(f"v{k}" for k in range(self.program.arity))
        lines = [f"def run({arguments}):", *self._emit_steps(list(self.steps), "    ")]
        return "\n".join([*lines, f"    return {self._format_operand(self.program.result)}"])

    def _terms(self, k: int) -> list[int]:
        return [o.id for o in self.steps[k][1] if isinstance(o, Term)]

    def _emit_steps(self, steps: list[int], indent: str) -> list[str]:
        """Return lines for steps in order; steps of one branch are nested under its test."""
        branches: dict[int, tuple[list[int], list[int]]] = {}
        nesting = {k: k for k in steps}
        for k in reversed(steps):
            if self.steps[k][0] == "select" and nesting[k] == k:
                parts = self._branch_steps(k, 1, steps), self._branch_steps(k, 2, steps)
                if max(map(self._weight, parts)) >= _MIN_BRANCH_STEPS:
                    branches[k] = parts
                    nesting |= dict.fromkeys([*parts[0], *parts[1]], k)
        ends = self._last_uses(nesting)
        lines: list[str] = []
        reusable: set[int] = set()
        for k in steps:
            if nesting[k] != k:
                continue
            done = ends.get(k, [])
            if k in branches:
                lines += self._emit_select(k, branches[k], indent)
                reusable.difference_update(self._terms(k))  # the result may be an operand itself
            else:
                lines += self._emit_step(k, indent, reusable.intersection(done))
                if k in self.varying and self._returns_new_array(k):
                    reusable.add(k)
            if done:
                lines.append(f"{indent}del {', '.join(f'v{t}' for t in done)}")
        return lines

    def _last_uses(self, nesting: dict[int, int]) -> dict[int, list[int]]:
        """Return for each step of a block the values whose last use it is.

        ``nesting`` maps a step to the step of the block under which it is nested.
        """
        ends: dict[int, list[int]] = {}
        for term, outer in nesting.items():
            users = self.users.get(term, [])
            if (
                outer == term
                and term in self.varying
                and all(u in nesting for u in users)
                and users
            ):
                ends.setdefault(max(nesting[u] for u in users), []).append(term)
        return ends

    def _returns_new_array(self, k: int) -> bool:
        """Return whether a step returns a new array, which may be overwritten."""
        step = self.steps[k][0]
        return step in _IN_PLACE or step.startswith("math.")

    def _weight(self, steps: list[int]) -> int:
        return sum(k in self.varying for k in steps)

    def _branch_steps(self, k: int, branch: int, steps: list[int]) -> list[int]:
        """Return the steps that only one branch of ``select`` step ``k`` needs, in order."""
        operand = self.steps[k][1][branch]
        if not isinstance(operand, Term) or operand.id not in self.varying:
            return []
        block, nested = set(steps), {k}
        for step in reversed(steps):
            users = self.users.get(step, [])
            if step == operand.id:
                if users == [k] and self._is_used_once(operand, k):
                    nested.add(step)
            elif step in block and users and k not in users and nested.issuperset(users):
                nested.add(step)
        return sorted(nested - {k})

    def _is_used_once(self, operand: Term, k: int) -> bool:
        """Return whether a value is used by a ``select`` exactly once."""
        return sum(isinstance(o, Term) and o.id == operand.id for o in self.steps[k][1]) == 1

    def _emit_select(self, k: int, parts: tuple[list[int], list[int]], indent: str) -> list[str]:
        condition, *choices = map(self._format_operand, self.steps[k][1])
        self.names |= {"count": np.count_nonzero, "where": np.where}
        lines = [f"{indent}n{k} = count({condition})"]
        for part, some in zip(parts, (f"n{k}", f"n{k} < {condition}.size"), strict=True):
            if part:
                lines.append(f"{indent}if {some}:")
                lines += self._emit_steps(part, indent + "    ")
        yes, no = parts
        chosen = f"where({condition}, {', '.join(choices)})"
        if no:
            chosen = f"{choices[0]} if n{k} == {condition}.size else {chosen}"
        if yes:
            chosen = f"{choices[1]} if not n{k} else {chosen}"
        return [*lines, f"{indent}v{k} = {chosen}"]

    def _emit_step(self, k: int, indent: str, free: set[int]) -> list[str]:
        """Return the line of one step, which may overwrite the ``free`` values."""
        step, operands = self.steps[k]
        if step == "T" and not isinstance(operands[0], Term):
            # A 0-d array: ufunc calls with Python and NumPy scalars take twice as long.
            self.names[f"v{k}"] = np.asarray(self.program.dtype.type(operands[0]))
            return []
        texts = [self._format_operand(o) for o in operands]
        if step == "T":
            self.names["dtype"] = self.program.dtype
            return [f"{indent}v{k} = {texts[0]}.astype(dtype)"]
        name = f"np_{step.removeprefix('math.')}"
        self.names[name] = _FUNCTIONS.get(step) or getattr(np, step.removeprefix("math."))
        over = [f"v{t}" for t in self._terms(k) if t in free and step in _IN_PLACE]
        return [f"{indent}v{k} = {name}({', '.join(texts + over[:1])})"]

    def _format_operand(self, operand: Any) -> str:
        if isinstance(operand, Term):
            return repr(operand)
        name = f"c{len(self.names)}"
        self.names[name] = operand
        return name
