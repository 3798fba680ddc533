"""A scalar is called once, on symbols, which write down what it does: a short program.

A scalar is the meaning of an elementwise op on numbers, such as ``lambda x: math.exp(x)``; the
op's options come behind the numbers, ``lambda x, alpha: ...``. It may use free names: ``math``;
``T``, the dtype that it computes in, and ``T(x, y)`` of two parts where that is complex;
``select(c, a, b)``, which is ``a`` where ``c`` holds and else ``b``; numbers and plain functions of
its own module. Options are what they are in a call, numbers, words or None, so a scalar may choose
by them as Python does. Between numbers it chooses by ``select``, and joins comparisons by ``&`` and
``|``, so that it can be called on anything that has arithmetic and comparisons: numbers, the
symbols here, or those of another compiler.

Here, a scalar may also ask a symbol for its truth, by ``if`` or ``and``: it is called again for
each answer, and the results are joined by ``select``. What it writes down has no branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from odyssey.errors import DTypeError

__all__ = ["VECTORIZING", "Program", "Step", "T", "Term", "chained", "plain", "program", "select"]

_OPERATORS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "truediv": "{} / {}",
    "floordiv": "{} // {}",
    "mod": "{} % {}",
    "pow": "{} ** {}",
    "and": "{} & {}",
    "or": "{} | {}",
    "xor": "{} ^ {}",
}
_COMPARISONS = {
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "eq": "{} == {}",
    "ne": "{} != {}",
}
_UNARY = {"neg": "-{}", "abs": "abs({})", "invert": "~{}"}
_PARTS = {"real": "{}.real", "imag": "{}.imag"}
_TEXTS = {**_OPERATORS, **_COMPARISONS, **_UNARY, **_PARTS}
_TEXTS |= {"conjugate": "{}.conjugate()", "T": "T({})", "select": "{1} if {0} else {2}"}
VECTORIZING = {**_TEXTS, "select": "select({}, {}, {})"}
"""How steps are written where ``select`` is LLVM's."""
# Truths that a scalar may ask for in one call, and calls: each question may double them.
_MOST_QUESTIONS, _MOST_CALLS = 32, 256


class Double(float):
    """``T`` in plain Python: float64, and what a scalar may ask of the dtype it computes in.

    Attributes:
        kind: ``"f"``, or ``"i"``, ``"b"`` or ``"c"`` where the op is called on integers, truth
            values or complex numbers.
        eps: The step from 1 to the next number; its inverse is where numbers start to be whole.
        tiny: The smallest number that has all digits.
        max: The largest number.
    """

    kind = "f"
    eps = float(np.finfo(np.float64).eps)
    tiny = float(np.finfo(np.float64).tiny)
    max = float(np.finfo(np.float64).max)


Step = tuple[Callable[..., Any], Sequence[Any], Sequence[Any]]

T: Any = Double
"""The dtype that a scalar computes in."""


def select(condition: Any, x: Any, y: Any) -> Any:
    """``x`` where the condition holds, else ``y``; both are computed.

    >>> select(2.0 > 1.0, 3.0, 4.0)
    3.0
    """
    return x if condition else y


class Term:
    """A number that a program computes, or is given; arithmetic with it is written down."""

    __slots__ = ("id", "program")

    def __init__(self, program: Program, id: int) -> None:
        self.program = program
        self.id = id

    def __repr__(self) -> str:
        return f"v{self.id}"

    def __bool__(self) -> bool:
        return self.program.ask(self)

    __hash__ = None  # type: ignore[assignment]  # equality is a Term


def _method(name: str, turned: bool = False) -> Callable[..., Term]:
    def method(self: Term, *other: Any) -> Term:
        return (
            self.program.write(name, *reversed(other), self)
            if turned
            else (self.program.write(name, self, *other))
        )

    return method


for _name in {**_OPERATORS, **_COMPARISONS, **_UNARY}:
    setattr(Term, f"__{_name}__", _method(_name))
for _name in _OPERATORS:
    setattr(Term, f"__r{_name}__", _method(_name, turned=True))
for _name in _PARTS:
    setattr(Term, _name, property(_method(_name)))
Term.conjugate = _method("conjugate")  # type: ignore[attr-defined]


class Program:
    """What a scalar does: a list of steps, each a name and its operands, without branches.

    Attributes:
        name: The scalar's.
        arity: How many numbers it is given; they are the Terms 0, 1 ...
        dtype: The dtype that it computes in.
        steps: Name and operands, Terms or constants; step ``k`` makes the Term ``arity + k``.
            Names are those of Python's operators, as ``add``, ``lt``, ``and``; functions of
            ``math``, as ``math.exp``; ``T``, a constant or a Term in the dtype of the program;
            ``select``.
        result: A Term or a number.
    """

    def __init__(self, name: str, arity: int, dtype: np.dtype[Any]) -> None:
        self.name = name
        self.arity = arity
        self.dtype = dtype
        self.steps: list[tuple[str, tuple[Any, ...]]] = []
        self.result: Any = None
        self._known: dict[Any, Term] = {}
        self._answers: dict[int, bool] = {}
        self._asked: list[Term] = []

    def write(self, name: str, *operands: Any) -> Term:
        """Write a step down, once."""
        for operand in operands:
            if not isinstance(operand, (Term, int, float, complex, np.bool_, np.integer)):
                return NotImplemented  # type: ignore[no-any-return]
        key = (name, *map(repr, operands))
        if key not in self._known:
            self._known[key] = Term(self, self.arity + len(self.steps))
            self.steps.append((name, operands))
        return self._known[key]

    def ask(self, question: Term) -> bool:
        """The answer that is tried now."""
        if question.id not in self._answers:
            if len(self._asked) == _MOST_QUESTIONS:
                self.refuse()
            self._asked.append(question)
            self._answers[question.id] = True
        return self._answers[question.id]

    def refuse(self) -> None:
        """Raise for a scalar that branches too often."""
        raise DTypeError(
            f"kernel: {self.name} asks numbers for their truth too often; "
            "write select(condition, x, y) instead of a branch"
        )

    def text(self, name: str, forms: Mapping[str, str] = _TEXTS) -> str:
        """The program as the source of a Python function.

        Args:
            name: Of the function.
            forms: How steps are written, by their names; the rest are calls.
        """
        lines = [f"def {name}({', '.join(f'v{k}' for k in range(self.arity))}):"]
        for k, (step, operands) in enumerate(self.steps, self.arity):
            form = forms.get(step, f"{step}({', '.join(['{}'] * len(operands))})")
            if step == "T" and self.dtype.kind == "b" and not isinstance(operands[0], Term):
                form, operands = "{}", (bool(operands[0]),)
            lines.append(f"    v{k} = {form.format(*map(_shown, operands))}")
        return "\n".join([*lines, f"    return {_shown(self.result)}"])


def _shown(operand: Any) -> str:
    if isinstance(operand, Term):
        return repr(operand)
    if isinstance(operand, float) and not math.isfinite(operand):
        return f"({'-' if operand < 0 else ''}math.{'nan' if operand != operand else 'inf'})"
    return f"({operand.item() if isinstance(operand, np.generic) else operand!r})"


class _Math:
    """``math``, whose functions take Terms."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __getattr__(self, name: str) -> Any:
        # Python has this one from 3.13 on.
        found = math.ldexp if name == "fma" else getattr(math, name)
        if not callable(found):
            return found

        def call(*values: Any) -> Any:
            if any(isinstance(v, Term) for v in values):
                return self._program.write(f"math.{name}", *values)
            return found(*values)

        return call


class _Typed:
    """``T`` for a program: its constants have the dtype of the program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.kind = "i" if program.dtype.kind in "iu" else program.dtype.kind
        if self.kind in "fc":
            limits = np.finfo(program.dtype)
            self.eps, self.tiny = float(limits.eps), float(limits.tiny)
            self.max = float(limits.max)
        else:
            self.max = int(np.iinfo(program.dtype).max) if self.kind in "iu" else 1

    def __call__(self, value: Any, *imaginary: Any) -> Term:
        return self._program.write("pair" if imaginary else "T", value, *imaginary)


def program(
    scalar: Callable[..., Any], arity: int, options: Sequence[Any] = (), dtype: Any = np.float64
) -> Program:
    """Call a scalar on symbols, and return what it does.

    Args:
        scalar: see the head of this module.
        arity: how many numbers it takes, before the options.
        options: the options, as a kernel gets them.
        dtype: what it computes in.

    Raises:
        DTypeError: it is not a plain function, or asks for too many truths.

    >>> print(program(lambda x: select(x > T(0), x, T(0)), 1).text("relu"))
    def relu(v0):
        v1 = T((0))
        v2 = v0 > v1
        v3 = v0 if v2 else v1
        return v3
    """
    found = plain(scalar)
    made = Program(found.__qualname__, arity, np.dtype(dtype))
    function = _in_scope(found, _names(made), {})
    return _answered(made, lambda numbers: function(*numbers, *options))


def chained(
    name: str, steps: Sequence[Step], result: int, arity: int, dtype: Any = np.float64
) -> Program:
    """Call several scalars on symbols, each on what others gave, and return what all do.

    Args:
        name: Of the program.
        steps: A scalar, its operands and its options. An operand is a number, or ``(k,)`` for the
            number ``k`` that the program is given, or for what step ``k - arity`` gave.
        result: The number of what the program gives.
        arity: how many numbers it takes.
        dtype: what it computes in.

    Raises:
        DTypeError: see ``program``.
    """
    made = Program(name, arity, np.dtype(dtype))
    scope = _names(made)
    functions = [_in_scope(plain(scalar), scope, {}) for scalar, _, _ in steps]

    def run(numbers: list[Any]) -> Any:
        known = list(numbers)
        for function, (_, operands, options) in zip(functions, steps, strict=True):
            # A number beside arrays is in their dtype.
            given = [known[o[0]] if type(o) is tuple else scope["T"](o) for o in operands]
            known.append(function(*given, *options))
        return known[result]

    return _answered(made, run)


def _names(made: Program) -> dict[str, Any]:
    """What the free names of a scalar stand for, while a program is written."""

    def chosen(condition: Any, x: Any, y: Any) -> Any:
        if not isinstance(condition, Term):
            return x if condition else y
        return made.write("select", condition, x, y)

    return {"math": _Math(made), "T": _Typed(made), "select": chosen}


def _answered(made: Program, run: Callable[[list[Any]], Any]) -> Program:
    """The program that ``run`` writes down on numbers, for each answer to what it asks."""
    numbers = [Term(made, k) for k in range(made.arity)]
    chosen = _names(made)["select"]
    calls = [0]

    def follow(answers: dict[int, bool]) -> Any:
        calls[0] += 1
        if calls[0] > _MOST_CALLS:
            made.refuse()
        made._answers, made._asked = dict(answers), []
        result = run(numbers)
        if not made._asked:
            return result
        first = made._asked[0]
        yes = follow({**answers, first.id: True})
        return chosen(first, yes, follow({**answers, first.id: False}))

    made.result = follow({})
    return made


def plain(function: Callable[..., Any]) -> FunctionType:
    """The function itself, if it can be rebuilt with other globals.

    Raises:
        DTypeError: it has no code of its own, or a closure.
    """
    if isinstance(function, FunctionType) and function.__closure__ is None:
        return function
    raise DTypeError(
        f"kernel: {function!r} is not a plain function without closure; "
        "write a lambda or a def whose only free names are math and T"
    )


def _in_scope(
    function: FunctionType, scope: dict[str, Any], known: dict[Any, FunctionType]
) -> FunctionType:
    """The function, and what it calls of its own module, with other globals."""
    if function in known:
        return known[function]
    names = dict(scope)
    twin = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    known[function] = twin
    home = function.__globals__
    for name in function.__code__.co_names:
        value = home.get(name)
        if name in scope:
            continue
        if isinstance(value, FunctionType) and value.__closure__ is None:
            names[name] = _in_scope(value, scope, known)
        elif isinstance(value, (int, float, str, tuple, list)):
            names[name] = value
    return twin
