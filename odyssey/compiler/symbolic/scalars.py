"""Symbolic scalars: stand-ins for Python numbers during a trace.

Called by ``tracing`` for the numbers among the arguments. Arithmetic with a symbolic scalar gives
a symbolic scalar, whose ``Expression`` records the computation. At each call it is evaluated by the
same operators in the same order::

    room = SymbolicScalars()
    b, t = room.named("b", 0.9), room.named("t", 3)
    rate = 1 - b**t
    room.evaluated({"b": 0.9, "t": 4})  # [0.9**4, 1 - 0.9**4]

Any other use of a symbolic scalar (a comparison, ``float(q)``, its hash, its text, an attribute)
is reported to its creator, and answered with the number of this trace. Its class may be used: a
trace is specialized to the class.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

from odyssey.compiler.symbolic.expressions import (
    BINARY,
    OPERATORS,
    UNARY,
    Arithmetic,
    Expression,
    compile_expressions,
)
from odyssey.table.value import Traced, Weak

__all__ = [
    "SymbolicScalars",
    "SymbolicScalar",
    "expression_of",
    "concrete_number",
]

# Arithmetic with numbers of these classes stays symbolic. Operators of other classes are unknown.
_NUMBER_CLASSES = frozenset({int, float, bool})


class SymbolicScalars:
    """The symbolic scalars of one trace: its inputs, and the computed expressions in order.

    Args:
        asked: ``asked(expression, question)`` is told what is asked of a quantity but arithmetic,
            by the name of an operator, a method or an attribute, before it is answered by the
            number of this trace. It may raise.
        graph: The trace, which quantities carry with them as Symbols do.

    Attributes:
        steps: What was computed by operators, in the order of the run, each once, by itself.
    """

    def __init__(
        self, asked: Callable[[Expression, str], None] | None = None, graph: Any = None
    ) -> None:
        self.asked = asked or (lambda expression, question: None)
        self.graph = graph
        self.steps: dict[Expression, Expression] = {}
        self._bound = False
        self._inputs: list[Expression] = []

    @property
    def arithmetic(self) -> Arithmetic:
        """Return the computed expressions with their inputs."""
        whole = [s for s in (*self._inputs, *self.steps) if self._bound and s.kind is int]
        return Arithmetic(tuple(self._inputs), tuple(self.steps), tuple(whole))

    def restrict_to_int64(self) -> None:
        """Restrict all integers to int64, since Python computes larger ones where NumPy wraps."""
        self._bound = True

    def named(self, name: str, number: int | float) -> Any:
        """Return the symbolic scalar of an input, whose value in this trace is ``number``."""
        expression = Expression("named", (name,), type(number))
        self._inputs.append(expression)
        return self._made(expression, number)

    def _made(self, expression: Expression, number: Any) -> SymbolicScalar:
        made = object.__new__(SymbolicScalar)
        for put, value in zip(_SETTERS, (expression, number, self, self.graph), strict=True):
            put(made, value)
        return made

    def applied(self, name: str, *operands: Any) -> Any:
        """Apply an operator to symbolic scalars and numbers; raise what Python raises."""
        number = OPERATORS[name](*map(_number, operands))
        given = tuple(map(_expression, operands))
        if type(number) not in (int, float):  # a complex root
            for one in given:
                if one.names:
                    self.asked(one, name)
            return number
        expression = Expression(name, given, type(number))
        # Equal expressions are one object, so that deep ones are compared by identity.
        return self._made(self.steps.setdefault(expression, expression), number)

    def evaluated(self, values: Mapping[str, Any]) -> list[Any]:
        """Evaluate all ``steps`` in order for other numbers; or return what Python raises."""
        names = list(values)
        found = compile_expressions(self.steps, names, list(self.steps))(
            *[values[name] for name in names]
        )
        return list(found)


# ------------------------------------------------------------------ the symbolic scalar


class SymbolicScalar(Weak):
    """A Python number while a function is traced; see ``SymbolicScalars``."""

    __slots__ = ("_expression", "_number", "_room")

    def __getattribute__(self, name: str) -> Any:
        kind = type(_number_of(self))
        if name == "__class__":
            return kind
        if name == "graph":  # where ops on it are recorded
            return _graph_of(self)
        if name == "__array__":  # NumPy looks it up on objects of unknown classes
            _record_query(self, name)
            return lambda *args, **named: _as_array(self, args, named)
        if not hasattr(kind, name):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
        _record_query(self, name)
        return getattr(_number_of(self), name)

    def __array__(self, *args: Any, **named: Any) -> Any:
        _record_query(self, "__array__")
        return _as_array(self, args, named)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        # With an array among the inputs it is an op, which the trace records.
        if method == "__call__" and not named:
            return _graph_of(self).ufunc_of_numbers(ufunc, inputs)
        for one in inputs:
            if type(one) is SymbolicScalar:
                _record_query(one, ufunc.__name__)
        return getattr(ufunc, method)(*map(_number, inputs), **named)

    @staticmethod
    def expression_and_number(weak: Any) -> tuple[Expression, Any]:
        """Return the expression, and its value in this trace."""
        return expression_of(weak), _number_of(weak)

    @staticmethod
    def fix_value(weak: Any, question: str) -> Any:
        """Return the value in this trace, and report that it is needed."""
        return concrete_number(weak, question)

    @staticmethod
    def restrict_to_int64(weak: Any) -> None:
        """Restrict all integers of its trace to int64."""
        _room_of(weak).restrict_to_int64()

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is None:
            return _apply_binary("pow", self, self, other)
        for one in (self, other, modulus):
            if type(one) is SymbolicScalar:
                _record_query(one, "pow")
        return pow(_number_of(self), _number(other), _number(modulus))

    def __rpow__(self, other: Any) -> Any:
        return _apply_binary("pow", self, other, self)

    def __abs__(self) -> Any:
        return _room_of(self).applied("abs", self)


_SLOTS: dict[str, Any] = {**vars(Traced), **vars(SymbolicScalar)}
_number_of: Callable[[Any], Any] = _SLOTS["_number"].__get__
_room_of: Callable[[Any], SymbolicScalars] = _SLOTS["_room"].__get__
_graph_of: Callable[[Any], Any] = _SLOTS["graph"].__get__
expression_of: Callable[[Any], Expression] = _SLOTS["_expression"].__get__
"""Return the expression of a symbolic scalar."""

_SETTERS = [_SLOTS[name].__set__ for name in ("_expression", "_number", "_room", "graph")]


def concrete_number(quantity: Any, question: str) -> Any:
    """The number of this trace; whoever made the quantity is told that it is asked for."""
    _record_query(quantity, question)
    return _number_of(quantity)


def _number(operand: Any) -> Any:
    return _number_of(operand) if type(operand) is SymbolicScalar else operand


def _expression(operand: Any) -> Expression:
    if type(operand) is SymbolicScalar:
        return expression_of(operand)
    return Expression("known", (operand,), type(operand))


def _record_query(quantity: Any, question: str) -> None:
    _room_of(quantity).asked(expression_of(quantity), question)


def _as_array(quantity: Any, args: Any, named: Any) -> Any:
    import numpy as np

    dtype = args[0] if args else named.get("dtype")
    return np.array(_number_of(quantity), dtype)


# ------------------------------------------------------------------ arithmetic

# Functions written in C treat floats specially: ``sum`` compensates rounding errors. So only
# operators in Python code stay symbolic.
_INSTRUCTIONS = ("BINARY_OP", "UNARY_NEGATIVE", "UNARY_POSITIVE", "CALL_INTRINSIC_1")


def _is_operator() -> bool:
    """Return whether an operator in Python code called the method that calls this function."""
    from opcode import opname

    frame = sys._getframe(2)
    return opname[frame.f_code.co_code[frame.f_lasti]] in _INSTRUCTIONS


def _is_array(thing: Any) -> bool:
    return hasattr(type(thing), "__array_ufunc__")


def _apply_binary(name: str, self: Any, x: Any, y: Any) -> Any:
    """Apply a binary operator to a symbolic scalar and another operand."""
    other = y if x is self else x
    if type(other) is SymbolicScalar or type(other) in _NUMBER_CLASSES:
        return _room_of(self).applied(name, x, y)
    if _is_array(other):  # its reflected operator is called instead
        return NotImplemented
    _record_query(self, name)
    return OPERATORS[name](_number(x), _number(y))


def _binary(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not _is_operator():
            _record_query(self, name)
        return _apply_binary(name, self, self, other)

    return method


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not _is_operator():
            _record_query(self, name)
        return _apply_binary(name, self, other, self)

    return method


def _unary(name: str) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        if not _is_operator():
            _record_query(self, name)
        return _room_of(self).applied(name, self)

    return method


for _name in set(BINARY) - {"pow"}:
    setattr(SymbolicScalar, f"__{_name}__", _binary(_name))
    setattr(SymbolicScalar, f"__r{_name}__", _reflected(_name))
for _name in set(UNARY) - {"abs"}:
    setattr(SymbolicScalar, f"__{_name}__", _unary(_name))


# ------------------------------------------------------------------ other operations


def _query_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        if others and type(others[0]) is not SymbolicScalar and _is_array(others[0]):
            return NotImplemented  # the array's method is called instead
        for one in (self, *others):
            if type(one) is SymbolicScalar:
                _record_query(one, name)
        return function(_number_of(self), *map(_number, others))

    return method


def _swap_operands(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(y, x)


_CONVERSIONS = (bool, int, float, complex, hash, repr, str, format, round)
_QUERIES: dict[str, Callable[..., Any]] = {
    **{function.__name__: function for function in _CONVERSIONS},
    **{name: getattr(math, name) for name in ("trunc", "floor", "ceil")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: getattr(operator, name) for name in ("index", "invert")},
}
for _name, _function in _QUERIES.items():
    setattr(SymbolicScalar, f"__{_name}__", _query_method(_name, _function))
_BITWISE = ("and_", "or_", "xor", "lshift", "rshift", "matmul")
for _name, _function in {"divmod": divmod, **{n: getattr(operator, n) for n in _BITWISE}}.items():
    _name = _name.rstrip("_")
    setattr(SymbolicScalar, f"__{_name}__", _query_method(_name, _function))
    setattr(SymbolicScalar, f"__r{_name}__", _query_method(_name, _swap_operands(_function)))
