"""A scalar on arrays, by NumPy: its program, a step after the other, for some elements at a time.

So an op that is written as a scalar has the same values in NumPy as in a compiled loop, but for
the last place of what NumPy's functions and those of ``math`` round differently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.kernels.scalars import Program, Term, program
from odyssey.spec import Array

__all__ = ["on_arrays"]

# Elements that go through all steps at a time: what they need stays in the processor's cache.
_BLOCK = 8192

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
    with np.errstate(all="ignore"):
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
    written = program(scalar, arity, options, dtype)
    names: dict[str, Any] = {}
    exec(_source(written, names), names)
    run: Callable[..., Any] = names["run"]
    return run


def _source(written: Program, names: dict[str, Any]) -> str:
    """The program as a function of arrays; what it uses goes into ``names``."""
    last = _last_uses(written)
    lines = [f"def run({', '.join(f'v{k}' for k in range(written.arity))}):"]
    # Numbers of the program that are arrays of its own, which it may write over.
    own: set[int] = set()
    varying = set(range(written.arity))
    for k, (step, operands) in enumerate(written.steps, written.arity):
        if step == "T" and not isinstance(operands[0], Term):
            names[f"v{k}"] = written.dtype.type(operands[0])
            continue
        given = [_shown(o, names) for o in operands]
        terms = [o.id for o in operands if isinstance(o, Term)]
        if varying.intersection(terms):
            varying.add(k)
        if step == "T":
            names["dtype"] = written.dtype
            lines.append(f"    v{k} = {given[0]}.astype(dtype)")
        else:
            name = f"np_{step.removeprefix('math.')}"
            names[name] = _FUNCTIONS.get(step) or getattr(np, step.removeprefix("math."))
            free = [t for t in terms if t in own and last[t] == k] if step in _IN_PLACE else []
            lines.append(f"    v{k} = {name}({', '.join(given + [f'v{t}' for t in free[:1]])})")
            if k in varying and (step in _IN_PLACE or step.startswith("math.")):
                own.add(k)
        done = [f"v{t}" for t in dict.fromkeys(terms) if t in varying and last[t] == k]
        if done:
            lines.append(f"    del {', '.join(done)}")
    return "\n".join([*lines, f"    return {_shown(written.result, names)}"])


def _shown(operand: Any, names: dict[str, Any]) -> str:
    if isinstance(operand, Term):
        return repr(operand)
    name = f"c{len(names)}"
    names[name] = operand
    return name


def _last_uses(written: Program) -> dict[int, int]:
    """For each number the step that uses it last; none is behind the result."""
    last = {
        operand.id: k
        for k, (_, operands) in enumerate(written.steps, written.arity)
        for operand in operands
        if isinstance(operand, Term)
    }
    if isinstance(written.result, Term):
        last[written.result.id] = written.arity + len(written.steps)
    return last
