"""Signatures: operands and options of a declared function, arguments of its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import CO_VARARGS
from typing import Any, NamedTuple

from odyssey.errors import OdysseyError

__all__ = [
    "PASS",
    "REQUIRED",
    "Layout",
    "Rule",
    "format_call",
    "parameters_of",
    "rule_arguments",
    "takes_no_arguments",
    "takes_residual",
    "with_positional_options",
]

Rule = Callable[..., Any]


def PASS(g: Any) -> Any:
    """The rule of an operand whose derivative is one."""
    return g


class _Required:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()
"""What stands for the default of an option that must be given."""


class Parameter(NamedTuple):
    """One parameter of a declared function: ``kind`` is "array", "option" or "named"."""

    name: str
    kind: str
    default: Any


_RESIDUAL = Parameter("residual", "option", None)


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of ``function``; arrays are the positional-only ones.

    Read from the code object: ``inspect.signature`` would triple the package's import time. A
    function that was given a ``__signature__``, or has no code of its own, is asked by inspect.
    """
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__signature__"):
        return _inspect_parameters(function)
    names = code.co_varnames[: code.co_argcount]
    defaults = getattr(function, "__defaults__", None) or ()
    values = (*[REQUIRED] * (len(names) - len(defaults)), *defaults)
    count = code.co_posonlyargcount
    kinds = ["array"] * count + ["option"] * (len(names) - count)
    found = [Parameter(*row) for row in zip(names, kinds, values, strict=True)]
    given = getattr(function, "__kwdefaults__", None) or {}
    for name in code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]:
        found.append(Parameter(name, "named", given.get(name, REQUIRED)))
    return found


def _inspect_parameters(function: Callable[..., Any]) -> list[Parameter]:
    import inspect

    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "array",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "option",
        inspect.Parameter.KEYWORD_ONLY: "named",
    }
    return [
        Parameter(p.name, kinds[p.kind], REQUIRED if p.default is p.empty else p.default)
        for p in inspect.signature(function).parameters.values()
        if p.kind in kinds
    ]


def format_call(name: str, shape: Any) -> str:
    """How a function of a signature is called, as a reader would write it: without annotations.

    >>> import inspect
    >>> format_call("f", inspect.signature(lambda x, /, dtype=float, *, order="C": x))
    "f(x, /, dtype=float, *, order='C')"
    """
    bare = [p.replace(annotation=p.empty) for p in shape.parameters.values()]
    bare = [p if p.default is p.empty else p.replace(default=_DefaultRepr(p.default)) for p in bare]
    return f"{name}{shape.replace(parameters=bare, return_annotation=shape.empty)}"


class _DefaultRepr:
    """A default as a reader would write it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        if not isinstance(self.value, type):
            return repr(self.value)
        module = "np." if self.value.__module__ == "numpy" else ""
        return f"{module}{self.value.__name__}"


def with_positional_options(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Let keyword-only options be passed as kernels are called: in order, after the arrays."""
    parameters = parameters_of(reference)
    named = [p.name for p in parameters if p.kind == "named"]
    if not named:
        return reference
    first = len(parameters) - len(named)

    @wraps(reference)
    def positional(*values: Any) -> Any:
        return reference(*values[:first], **dict(zip(named, values[first:], strict=True)))

    return positional


# ------------------------------------------------------------------ rules


def _code_object(function: Callable[..., Any]) -> Any:
    """The code object that tells the parameters of a function; None where inspect has to."""
    function = getattr(function, "__wrapped__", function)
    return None if hasattr(function, "__signature__") else getattr(function, "__code__", None)


def rule_arguments(rule: Rule, first: int = 1) -> tuple[str, ...]:
    """The names of a rule's parameters, from the one after the cotangent, but for its residual."""
    code = _code_object(rule)
    if code is None:
        names = tuple(p.name for p in parameters_of(rule))
    else:  # a thousand rules are read at import: without a Parameter for each name
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if "residual" not in code.co_varnames:
            return names[first:]
    return names[first:-1] if takes_residual(rule) else names[first:]


def takes_no_arguments(rule: Rule) -> bool:
    """Return whether a rule takes no argument, so no cotangent or tangent."""
    code = _code_object(rule)
    return code is not None and not (code.co_argcount or code.co_flags & CO_VARARGS)


def takes_residual(rule: Rule) -> bool:
    """Whether a rule's last parameter is ``residual=None``: what ``with_residual`` left."""
    code = _code_object(rule)
    if code is not None and "residual" not in code.co_varnames:
        return False
    return parameters_of(rule)[-1:] == [_RESIDUAL]


# ------------------------------------------------------------------ operands, results, options


class Layout:
    """Operands, options and results of a row by name, in the order in which a node keeps them.

    Attributes:
        name: Name of the op.
        arrays: Operands.
        optional: Operands that may be None.
        results: Results; ``("out",)`` for a single result without a name.
        cotangents: Names of the cotangents of several results in reverse rules; else empty.
        options: Options.
        defaults: Default values of the options.
        flags: Positions of boolean options.
        positional: Number of options that may be passed by position.
        kept: Names of the values that a node can keep, except a residual.
        specs: Names of the operands' specs (shape and dtype) in rules.
        variadic: Name for all operands together, if the op takes any number of them; else "".
    """

    __slots__ = (
        "arrays",
        "cotangents",
        "defaults",
        "flags",
        "kept",
        "name",
        "optional",
        "options",
        "positional",
        "results",
        "specs",
        "variadic",
    )

    def __init__(
        self,
        name: str,
        arrays: Sequence[str],
        options: Sequence[str] = (),
        results: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.arrays = tuple(arrays)
        self.results = tuple(results) or ("out",)
        self.cotangents = tuple([f"g_{result}" for result in results])
        self.options = tuple(options)
        self.optional: frozenset[str] = frozenset()
        self.defaults: tuple[Any, ...] = ()
        self.flags: tuple[int, ...] = ()
        self.positional = 0
        self.kept = (*self.arrays, *self.results, *self.options)
        self.specs = tuple([f"{array}_spec" for array in arrays])
        self.variadic = ""

    @classmethod
    def from_function(cls, reference: Callable[..., Any], results: Sequence[str] = ()) -> Layout:
        """Read the parameters of an op's meaning.

        Raises:
            OdysseyError: where none of them is an array.
        """
        parameters = parameters_of(reference)
        arrays = [p for p in parameters if p.kind == "array"]
        options = [p for p in parameters if p.kind != "array"]
        name = reference.__name__
        if not arrays:
            raise OdysseyError(
                f"op {name}: no array parameters; write the arrays before a '/', "
                f"as in def {name}(x, /)"
            )
        layout = cls(name, [p.name for p in arrays], [p.name for p in options], results)
        layout.optional = frozenset(p.name for p in arrays if p.default is None)
        layout.flags = tuple(k for k, p in enumerate(options) if isinstance(p.default, bool))
        layout.positional = sum(p.kind == "option" for p in options)
        layout.defaults = tuple(p.default for p in options)
        return layout

    def with_arity(self, count: int) -> Layout:
        """The layout of the calls with so many operands, of an op that takes any number."""
        arrays = [f"x{k}" for k in range(count)]
        layout = Layout(self.name, arrays, self.options)
        layout.defaults, layout.flags = self.defaults, self.flags
        layout.positional, (layout.variadic,) = self.positional, self.arrays
        return layout

    @property
    def rule_names(self) -> set[str]:
        """The argument names that a rule may have besides cotangents."""
        names = {*self.kept, *self.specs}
        return names | {self.variadic, f"{self.variadic}_spec", "place"} if self.variadic else names

    def names_after_cotangents(self, rule: Rule) -> tuple[str, ...]:
        """Return the arguments of a reverse rule that follow its leading cotangents.

        Raises:
            OdysseyError: if the rule does not begin with a cotangent.
        """
        names = rule_arguments(rule, 0)
        first = 0
        while first < len(names) and names[first] in self.cotangents:
            first += 1
        if not first:
            raise OdysseyError(
                f"op {self.name}: a reverse rule begins with {names[0] if names else 'nothing'}; "
                f"it must begin with the cotangents that it needs of {', '.join(self.cotangents)}"
            )
        return names[first:]

    def requested_names(self, rule: Rule) -> tuple[str, ...]:
        """Return the arguments of a rule, without cotangents."""
        if self.variadic:
            together = {
                self.variadic: self.arrays,
                f"{self.variadic}_spec": self.specs,
                "place": (),
            }
            return tuple([n for name in rule_arguments(rule) for n in together.get(name, (name,))])
        if not self.cotangents:
            return rule_arguments(rule)
        return tuple([name for name in rule_arguments(rule, 0) if name not in self.cotangents])
