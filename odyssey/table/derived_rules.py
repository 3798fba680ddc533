"""Derived rules: VJP and JVP of a row by differentiating its decomposition.

For rows that users do not call, such as the pullback of a normalization: only second derivatives
differentiate them, so speed matters little. The decomposition is traced on Symbols; a rule then
runs the recorded calls on its operands (arrays, Variables or Symbols), and applies the rules of
their rows in reverse or in forward order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.errors import NotDifferentiableError, OdysseyError
from odyssey.spec import Spec
from odyssey.table.registry import OPS
from odyssey.table.signature import PASS, Rule, parameters_of
from odyssey.table.steps import Step, Steps, spec_of_operand
from odyssey.table.value import Symbol

__all__ = ["DERIVED", "derive_rules"]

DERIVED = "<derived>"
"""The file name in the code objects of derived rules."""


def derive_rules(decomposition: Callable[..., Any], *arrays: str) -> dict[str, Any]:
    """Return ``vjp`` and ``jvp`` of a row, for ``@op(decomposition=f, **derive_rules(f))``.

    Args:
        decomposition: A function of ops, each with one result.
        arrays: The differentiable operands; by default the positional-only parameters.
    """
    parameters = parameters_of(decomposition)
    found = arrays or tuple(p.name for p in parameters if p.kind == "array")
    names = [p.name for p in parameters]
    if not found or not set(found) <= set(names):
        raise OdysseyError(
            f"derive_rules: {decomposition.__name__} takes ({', '.join(names)}); name the operands "
            "that are differentiable, or write a / after the operands"
        )
    given = ", ".join(names)

    def rules(run: Callable[..., Any]) -> dict[str, Rule]:
        # A rule requests values by the names of its parameters.
        text = f"lambda run: [{', '.join(_RULE.format(given, names.index(n)) for n in found)}]"
        code = compile(text, DERIVED, "eval")
        make = eval(code, {"__name__": decomposition.__module__})
        made = make(lambda t, k, values: run(decomposition, t, k, values))
        return dict(zip(found, made, strict=True))

    return {"vjp": rules(_pullback), "jvp": rules(_pushforward)}


_RULE = "lambda cotangent_, {0}: run(cotangent_, {1}, ({0},))"


def _run_steps(
    decomposition: Callable[..., Any], k: int, values: tuple[Any, ...]
) -> tuple[list[Step], Any, int, dict[int, Any]]:
    """Trace the decomposition and run it; collect the calls that depend on operand ``k``.

    Returns:
        The calls; the Symbol of the result; the id of the operand's Symbol; values by id.
    """
    graph = Steps()
    symbols = [
        graph.symbol(Spec(v.shape, v.dtype)) if hasattr(v, "dtype") and hasattr(v, "shape") else v
        for v in values
    ]
    out = decomposition(*symbols)
    known = {s.id: v for s, v in zip(symbols, values, strict=True) if isinstance(s, Symbol)}
    own = symbols[k].id
    moving, steps = {own}, []
    for step in graph.steps:
        given = [known[o.id] if isinstance(o, Symbol) else o for o in step.operands]
        options = dict(zip(step.row.options, step.options, strict=True))
        # A single operand of a variadic op would be taken for a sequence of operands.
        operands = [given] if step.row.layout.variadic else given
        known[step.out.id] = step.row.call(*operands, **options)
        follows = any(isinstance(o, Symbol) and o.id in moving for o in step.operands)
        if follows and step.out.spec.dtype.kind != "b":  # booleans have no tangent
            moving.add(step.out.id)
            steps.append(step)
    return steps, out, own, known


def _saved_values(step: Step, known: dict[int, Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Return the values and specs that a node of this call saves for its rules."""
    given = [known[o.id] if isinstance(o, Symbol) else o for o in step.operands]
    specs = [s if isinstance(s := spec_of_operand(o), Spec) else None for o in step.operands]
    return (*given, known[step.out.id], *step.options), [*specs, step.out.spec]


def _pullback(decomposition: Callable[..., Any], g: Any, k: int, values: tuple[Any, ...]) -> Any:
    """Return the cotangent of operand ``k`` for a cotangent of the result."""
    steps, out, own, known = _run_steps(decomposition, k, values)
    if not isinstance(out, Symbol):  # a constant
        return _zero_derivative(values[k])
    moving = {own, *(step.out.id for step in steps)}
    cotangents = {out.id: _unbroadcast_to(g, out.spec)}
    for step in reversed(steps):
        g = cotangents.pop(step.out.id, None)
        if g is None:
            continue
        kept, specs = _saved_values(step, known)
        for j, operand in enumerate(step.operands):
            if not (isinstance(operand, Symbol) and operand.id in moving):
                continue
            rule = _rule_or_error(step, step.row.pullbacks, j)
            r = _unbroadcast_to(g if rule is PASS else rule(g, kept, specs), operand.spec)
            i = operand.id
            cotangents[i] = OPS["add"].call(cotangents[i], r) if i in cotangents else r
    return cotangents[own] if own in cotangents else _zero_derivative(values[k])


def _pushforward(decomposition: Callable[..., Any], t: Any, k: int, values: tuple[Any, ...]) -> Any:
    """Return the tangent of the result for a tangent of operand ``k``."""
    steps, out, own, known = _run_steps(decomposition, k, values)
    if not isinstance(out, Symbol):  # a constant
        return _zero_derivative(out)
    tangents = {own: t}
    for step in steps:
        kept, specs = _saved_values(step, known)
        total = None
        for j, operand in enumerate(step.operands):
            if not (isinstance(operand, Symbol) and operand.id in tangents):
                continue
            rule = _rule_or_error(step, step.row.pushforwards, j)
            moved = tangents[operand.id]
            moved = moved if rule is PASS else rule(moved, kept, specs)
            total = moved if total is None else OPS["add"].call(total, moved)
        tangents[step.out.id] = _broadcast_to(total, step.out.spec)
    return tangents[out.id] if out.id in tangents else _zero_derivative(out.spec)


def _zero_derivative(like: Any) -> Any:
    """Return the derivative of a value that does not depend on the operand."""
    return np.zeros(like.shape, like.dtype)


def _rule_or_error(step: Step, rules: Sequence[Any], k: int) -> Any:
    if rules[k] is None:
        raise NotDifferentiableError(
            f"{step.row.name}: not differentiable with respect to {step.row.arrays[k]}"
        )
    return rules[k]


def _unbroadcast_to(g: Any, spec: Spec) -> Any:
    """Sum over broadcast axes and cast to the dtype of ``spec``."""
    return _cast_to_spec(OPS["sum_to"].call(g, spec.shape) if g.shape != spec.shape else g, spec)


def _broadcast_to(t: Any, spec: Spec) -> Any:
    return _cast_to_spec(
        OPS["broadcast_to"].call(t, spec.shape) if t.shape != spec.shape else t, spec
    )


def _cast_to_spec(x: Any, spec: Spec) -> Any:
    if x.dtype.kind == "c" and spec.dtype.kind != "c":
        x = OPS["real"].call(x)
    return OPS["astype"].call(x, spec.dtype) if x.dtype != spec.dtype else x
