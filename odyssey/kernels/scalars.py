"""Scalar programs: scalar functions, traced on symbols into straight-line programs.

A scalar defines an elementwise op on numbers, such as ``lambda x: math.exp(x)``; the op's options
follow the numbers, ``lambda x, alpha: ...``. Its free names may be: ``math``; ``T``, the dtype it
computes in, and ``T(x, y)`` for complex numbers; ``select(c, a, b)``, which is ``a`` if ``c`` holds
and else ``b``; numbers and plain functions of its own module. Options are Python values (numbers,
strings or None), on which a scalar may branch. Between numbers it chooses by ``select``, and it
joins comparisons by ``&`` and ``|``, so that it can be called on anything with arithmetic and
comparisons: numbers, the symbols here, or those of another compiler.

A scalar traced here may also branch on a symbol, by ``if`` or ``and``: it is called again for each
outcome, and the results are joined by ``select``. The program itself has no branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import finfo, is_half
from odyssey.errors import DTypeError

__all__ = [
    "VECTORIZING",
    "Program",
    "Step",
    "T",
    "Term",
    "chain_scalars",
    "require_plain_function",
    "program",
    "select",
]

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
"""Formats of steps where ``select`` is an LLVM intrinsic."""
# Limits on the branches in one call of a scalar, and on calls: each branch may double them.
_MOST_BRANCHES, _MOST_CALLS = 32, 256


class Double(float):
    """``T`` in plain Python: float64, with the attributes that a scalar may read.

    Attributes:
        kind: ``"f"``, or ``"i"``, ``"b"`` or ``"c"`` for integers, booleans or complex numbers.
        eps: Distance from 1 to the next number; from its inverse on, all numbers are integers.
        tiny: The smallest normal number.
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
    """Return ``x`` if the condition holds, else ``y``; both are computed.

    >>> select(2.0 > 1.0, 3.0, 4.0)
    3.0
    """
    return x if condition else y


class Term:
    """Symbolic number: an input or a computed value of a program; arithmetic records steps."""

    __slots__ = ("id", "program")

    def __init__(self, program: Program, id: int) -> None:
        self.program = program
        self.id = id

    def __repr__(self) -> str:
        return f"v{self.id}"

    def __bool__(self) -> bool:
        return self.program.decide(self)

    __hash__ = None  # type: ignore[assignment]  # equality is a Term


def _method(name: str, reflected: bool = False) -> Callable[..., Term]:
    def method(self: Term, *other: Any) -> Term:
        return (
            self.program.append_step(name, *reversed(other), self)
            if reflected
            else (self.program.append_step(name, self, *other))
        )

    return method


for _name in {**_OPERATORS, **_COMPARISONS, **_UNARY}:
    setattr(Term, f"__{_name}__", _method(_name))
for _name in _OPERATORS:
    setattr(Term, f"__r{_name}__", _method(_name, reflected=True))
for _name in _PARTS:
    setattr(Term, _name, property(_method(_name)))
Term.conjugate = _method("conjugate")  # type: ignore[attr-defined]


class Program:
    """Straight-line program of a scalar: a list of steps, each a name and its operands.

    Attributes:
        name: The name of the scalar.
        arity: Number of inputs, which are the Terms 0, 1 ...
        dtype: The dtype that it computes in.
        steps: Name and operands, Terms or constants; step ``k`` defines the Term ``arity + k``.
            Names are those of Python's operators, as ``add``, ``lt``, ``and``; functions of
            ``math``, as ``math.exp``; ``T``, a cast to the dtype of the program; ``select``.
        result: A Term or a number.
    """

    def __init__(self, name: str, arity: int, dtype: np.dtype[Any]) -> None:
        self.name = name
        self.arity = arity
        self.dtype = dtype
        self.steps: list[tuple[str, tuple[Any, ...]]] = []
        self.result: Any = None
        self._terms: dict[Any, Term] = {}
        self._answers: dict[int, bool] = {}
        self._decisions: list[Term] = []

    def append_step(self, name: str, *operands: Any) -> Term:
        """Append a step, or return the Term of an equal one."""
        for operand in operands:
            if not isinstance(operand, (Term, int, float, complex, np.bool_, np.integer)):
                return NotImplemented  # type: ignore[no-any-return]
        key = (name, *map(repr, operands))
        if key not in self._terms:
            self._terms[key] = Term(self, self.arity + len(self.steps))
            self.steps.append((name, operands))
        return self._terms[key]

    def decide(self, condition: Term) -> bool:
        """Return the outcome of a branch in the current call."""
        if condition.id not in self._answers:
            if len(self._decisions) == _MOST_BRANCHES:
                self.refuse_branching()
            self._decisions.append(condition)
            self._answers[condition.id] = True
        return self._answers[condition.id]

    def refuse_branching(self) -> None:
        """Raise DTypeError for a scalar that branches too often."""
        raise DTypeError(
            f"kernel: {self.name} has too many branches on its arguments; write select(condition, "
            "x, y) instead of a branch"
        )

    def python_source(
        self, name: str, forms: Mapping[str, str] = _TEXTS, number: str = "({})"
    ) -> str:
        """Return the source of a Python function that computes the program.

        Args:
            name: Name of the function.
            forms: Formats of steps by name; other steps are calls.
            number: Format of numbers among operands.
        """

        def texts(operands: Sequence[Any]) -> list[str]:
            return [repr(o) if isinstance(o, Term) else number.format(_format(o)) for o in operands]

        lines = [f"def {name}({', '.join(f'v{k}' for k in range(self.arity))}):"]
        for k, (step, operands) in enumerate(self.steps, self.arity):
            form = forms.get(step, f"{step}({', '.join(['{}'] * len(operands))})")
            if step == "T" and self.dtype.kind == "b" and not isinstance(operands[0], Term):
                form, operands = "{}", (bool(operands[0]),)
            lines.append(f"    v{k} = {form.format(*texts(operands))}")
        return "\n".join([*lines, f"    return {texts([self.result])[0]}"])


def _format(number: Any) -> str:
    if isinstance(number, float) and not math.isfinite(number):
        return f"{'-' if number < 0 else ''}math.{'nan' if number != number else 'inf'}"
    return repr(number.item() if isinstance(number, np.generic) else number)


class _Math:
    """Stand-in for ``math`` whose functions accept Terms."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __getattr__(self, name: str) -> Any:
        # math.fma exists from Python 3.13 on.
        value = math.ldexp if name == "fma" else getattr(math, name)
        if not callable(value):
            return value

        def call(*values: Any) -> Any:
            if any(isinstance(v, Term) for v in values):
                return self._program.append_step(f"math.{name}", *values)
            return value(*values)

        return call


class _Typed:
    """``T`` of a program: casts to its dtype."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.kind = "i" if program.dtype.kind in "iu" else program.dtype.kind
        if is_half(program.dtype):
            self.kind = "f"
        if self.kind in "fc":
            limits = finfo(program.dtype)
            self.eps, self.tiny = float(limits.eps), float(limits.tiny)
            self.max = float(limits.max)
        else:
            self.max = int(np.iinfo(program.dtype).max) if self.kind in "iu" else 1

    def __call__(self, value: Any, *imaginary: Any) -> Term:
        return self._program.append_step("pair" if imaginary else "T", value, *imaginary)


def program(
    scalar: Callable[..., Any], arity: int, options: Sequence[Any] = (), dtype: Any = np.float64
) -> Program:
    """Trace a scalar on symbols, and return its program.

    Args:
        scalar: see the docstring of this module.
        arity: number of inputs, before the options.
        options: the options, as passed to a kernel.
        dtype: the dtype it computes in.

    Raises:
        DTypeError: if it is not a plain function, or branches too often.

    >>> print(program(lambda x: select(x > T(0), x, T(0)), 1).python_source("relu"))
    def relu(v0):
        v1 = T((0))
        v2 = v0 > v1
        v3 = v0 if v2 else v1
        return v3
    """
    plain = require_plain_function(scalar)
    traced = Program(plain.__qualname__, arity, np.dtype(dtype))
    function = _rebind_globals(plain, _scope_of(traced), {})
    return _trace_branches(traced, lambda numbers: function(*numbers, *options))


def chain_scalars(
    name: str, steps: Sequence[Step], result: int, arity: int, dtype: Any = np.float64
) -> Program:
    """Trace a chain of scalars, which may take each other's results, and return its program.

    Args:
        name: name of the program.
        steps: A scalar, its operands and its options. An operand is a number, or ``(k,)`` for
            input ``k`` or the result of step ``k - arity``.
        result: index of the value that the program returns.
        arity: number of inputs.
        dtype: the dtype it computes in.

    Raises:
        DTypeError: see ``program``.
    """
    traced = Program(name, arity, np.dtype(dtype))
    scope = _scope_of(traced)
    functions = [
        _rebind_globals(require_plain_function(scalar), scope, {}) for scalar, _, _ in steps
    ]

    def run(numbers: list[Any]) -> Any:
        values = list(numbers)
        for function, (_, operands, options) in zip(functions, steps, strict=True):
            # A number beside arrays takes their dtype.
            arguments = [values[o[0]] if type(o) is tuple else scope["T"](o) for o in operands]
            values.append(function(*arguments, *options))
        return values[result]

    return _trace_branches(traced, run)


def _scope_of(traced: Program) -> dict[str, Any]:
    """Return the values of a scalar's free names during tracing."""

    def chosen(condition: Any, x: Any, y: Any) -> Any:
        if not isinstance(condition, Term):
            return x if condition else y
        return traced.append_step("select", condition, x, y)

    return {"math": _Math(traced), "T": _Typed(traced), "select": chosen}


def _trace_branches(traced: Program, run: Callable[[list[Any]], Any]) -> Program:
    """Trace ``run`` for each combination of branch outcomes, joined by ``select``."""
    numbers = [Term(traced, k) for k in range(traced.arity)]
    chosen = _scope_of(traced)["select"]
    calls = [0]

    def follow(answers: dict[int, bool]) -> Any:
        calls[0] += 1
        if calls[0] > _MOST_CALLS:
            traced.refuse_branching()
        traced._answers, traced._decisions = dict(answers), []
        result = run(numbers)
        if not traced._decisions:
            return result
        first = traced._decisions[0]
        yes = follow({**answers, first.id: True})
        return chosen(first, yes, follow({**answers, first.id: False}))

    traced.result = follow({})
    return traced


def require_plain_function(function: Callable[..., Any]) -> FunctionType:
    """Return the function if it can be rebuilt with other globals.

    Raises:
        DTypeError: if it has no Python code, or has a closure.
    """
    if isinstance(function, FunctionType) and function.__closure__ is None:
        return function
    raise DTypeError(
        f"kernel: {function!r} is not a plain function without closure; "
        "write a lambda or a def whose only free names are math and T"
    )


def _rebind_globals(
    function: FunctionType, scope: dict[str, Any], known: dict[Any, FunctionType]
) -> FunctionType:
    """Rebuild a function, and the functions of its module that it calls, with other globals."""
    if function in known:
        return known[function]
    names = dict(scope)
    rebound = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    known[function] = rebound
    home = function.__globals__
    for name in function.__code__.co_names:
        value = home.get(name)
        if name in scope:
            continue
        if isinstance(value, FunctionType) and value.__closure__ is None:
            names[name] = _rebind_globals(value, scope, known)
        elif isinstance(value, (int, float, str, tuple, list)):
            names[name] = value
    return rebound
