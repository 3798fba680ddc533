"""Expressions: how Python computes numbers of those that it is given, to compute them again."""

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
    """How a number is computed: a named input, a number that is known, or an operator of others.

    Nobody changes it. Equal ones are equal: 1, 1.0 and True differ, as do 0.0 and -0.0.

    Attributes:
        op: ``named``, ``known``, or the name of an operator in ``operator``.
        operands: The name; the number; or expressions.
        kind: The class of the number when it was traced.
        names: The inputs that it is computed from.
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
    """An expression as Python writes it; a deep one is told by what it is computed from."""
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
    """How numbers are computed: the inputs, and all that Python computes of them, in order.

    Attributes:
        inputs: What a call is given.
        steps: What is computed.
        bound: Of these, what int64 must hold, though nobody may use it.
    """

    inputs: tuple[Expression, ...]
    steps: tuple[Expression, ...]
    bound: tuple[Expression, ...] = ()


def compile_expressions(
    steps: Iterable[Expression], names: Sequence[str], wanted: Sequence[Expression]
) -> Callable[..., tuple[Any, ...]]:
    """A function of inputs, by place, that takes all steps in order and returns what is wanted.

    Args:
        steps: What is computed; what one is computed from stands before it, or is no operator.
        names: The inputs.
        wanted: Steps, inputs or numbers.
    """
    known: dict[str, Any] = {}
    words: dict[Expression, str] = {}
    places = {name: f"n{k}" for k, name in enumerate(names)}

    def word(one: Expression) -> str:
        if one.op == "named":
            return places[one.operands[0]]
        if one.op == "known" and one not in words:
            words[one] = f"k{len(known)}"
            known[words[one]] = one.operands[0]
        return words[one]

    lines = [f"def compute({', '.join(places.values())}):"]
    for k, step in enumerate(steps):
        given = list(map(word, step.operands))
        sign = BINARY.get(step.op)
        text = f" {sign} ".join(given) if sign else f"{UNARY[step.op]}({given[0]})"
        lines.append(f"    t{k} = {text}")
        words[step] = f"t{k}"
    lines.append(f"    return ({''.join(f'{word(one)}, ' for one in wanted)})")
    exec("\n".join(lines), known)
    found: Callable[..., tuple[Any, ...]] = known["compute"]
    return found
