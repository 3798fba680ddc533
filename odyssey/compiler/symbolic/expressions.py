"""Expressions: recorded arithmetic of Python numbers, to be evaluated again at each call.

Called by ``symbolic.scalars`` during a trace, and by ``native_dispatch.scalar_inputs``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["BINARY", "OPERATORS", "UNARY", "Arithmetic", "Expression", "compile_expressions"]

BINARY = {
    **{"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//"},
    **{"mod": "%", "pow": "**"},
}
UNARY = {"neg": "-", "pos": "+", "abs": "abs"}
OPERATORS: dict[str, Callable[..., Any]] = {n: getattr(operator, n) for n in (*BINARY, *UNARY)}


class Expression:
    """Computation of a number: a named input, a constant, or an operator on other expressions.

    Immutable and hashable. The constants 1, 1.0 and True differ, as do 0.0 and -0.0.

    Attributes:
        op: ``named``, ``known`` for a constant, or the name of a function in ``operator``.
        operands: The name, the constant, or expressions.
        kind: Class of the number in the trace.
        names: Names of the inputs that it depends on.
    """

    __slots__ = ("_hash", "_key", "kind", "names", "op", "operands")

    def __init__(self, op: str, operands: tuple[Any, ...], kind: type) -> None:
        self.op = op
        self.operands = operands
        self.kind = kind
        self.names: frozenset[str] = frozenset(operands if op == "named" else ())
        if op in OPERATORS:
            self.names = self.names.union(*[one.names for one in operands])
        self._key = (op, kind, operands if op in OPERATORS else repr(operands))
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expression) or self._hash != other._hash:
            return False
        return self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return _format_expression(self, 4)


def _format_expression(one: Expression, depth: int) -> str:
    """Format an expression as in Python; one below ``depth`` by the inputs that it depends on."""
    if one.op == "named":
        return str(one.operands[0])
    if one.op == "known":
        return repr(one.operands[0])
    if not depth:
        return f"a number of {', '.join(sorted(one.names))}"
    texts = [_format_expression(o, depth - 1) for o in one.operands]
    if one.op == "abs":
        return f"abs({texts[0]})"
    texts = [f"({t})" if o.op in OPERATORS else t for o, t in zip(one.operands, texts, strict=True)]
    sign = BINARY.get(one.op)
    return f"{UNARY[one.op]}{texts[0]}" if sign is None else f" {sign} ".join(texts)


class Arithmetic(NamedTuple):
    """All arithmetic of Python numbers in a trace.

    Attributes:
        inputs: Named inputs.
        steps: Computed expressions, in order.
        bound: Inputs and steps that must fit int64 even if nothing uses them.
    """

    inputs: tuple[Expression, ...]
    steps: tuple[Expression, ...]
    bound: tuple[Expression, ...] = ()


def compile_expressions(
    steps: Iterable[Expression], names: Sequence[str], results: Sequence[Expression]
) -> Callable[..., tuple[Any, ...]]:
    """Compile a function of the inputs that evaluates all steps in order.

    Args:
        steps: Computed expressions; operands that are steps come before.
        names: Names of the inputs, which are the positional parameters.
        results: Steps, inputs or constants whose values the function returns.
    """
    scope: dict[str, Any] = {}
    variables: dict[Expression, str] = {}
    parameters = {name: f"n{k}" for k, name in enumerate(names)}

    def variable(expression: Expression) -> str:
        if expression.op == "named":
            return parameters[expression.operands[0]]
        if expression.op == "known" and expression not in variables:
            variables[expression] = f"k{len(scope)}"
            scope[variables[expression]] = expression.operands[0]
        return variables[expression]

    lines = [f"def compute({', '.join(parameters.values())}):"]
    for k, step in enumerate(steps):
        operands = list(map(variable, step.operands))
        sign = BINARY.get(step.op)
        text = f" {sign} ".join(operands) if sign else f"{UNARY[step.op]}({operands[0]})"
        lines.append(f"    t{k} = {text}")
        variables[step] = f"t{k}"
    lines.append(f"    return ({''.join(f'{variable(result)}, ' for result in results)})")
    exec("\n".join(lines), scope)
    compute: Callable[..., tuple[Any, ...]] = scope["compute"]
    return compute
