"""A row of the table: one op, and how a call of it is bound, kept and refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import STUMBLES, flag, function, kind_of, label, shown
from odyssey.devices.arrays import complaint
from odyssey.errors import DTypeError, OdysseyError
from odyssey.spec import Spec, spec_of
from odyssey.table.protocols import Recording
from odyssey.table.samples import Reject, Sample
from odyssey.vocabulary import keyword_hint

__all__ = ["PASS", "REQUIRED", "Row", "Rule", "asked", "check_declaration", "parameters_of"]

Rule = Callable[..., Any]


def PASS(g: Any) -> Any:
    """The rule of an operand whose derivative is one."""
    return g


class _Required:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()
"""What stands for the default of an option that must be given."""

# Options that their owner may write to while a tape keeps them.
_OPEN = frozenset({list, dict, set, np.ndarray})

_MOST_PLANS = 64


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
        return _inspected(function)
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


def _inspected(function: Callable[..., Any]) -> list[Parameter]:
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


def _code_of(function: Callable[..., Any]) -> Any:
    """The code object that tells the parameters of a function; None where inspect has to."""
    function = getattr(function, "__wrapped__", function)
    return None if hasattr(function, "__signature__") else getattr(function, "__code__", None)


def asked(rule: Rule) -> tuple[str, ...]:
    """The names of a rule's parameters after the cotangent, but for its residual."""
    code = _code_of(rule)
    if code is None:
        names = tuple(p.name for p in parameters_of(rule))
    else:  # a thousand rules are read at import: without a Parameter for each name
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names[1:-1] if takes_residual(rule) else names[1:]


def takes_residual(rule: Rule) -> bool:
    """Whether a rule's last parameter is ``residual=None``: what the op's ``forward`` left."""
    code = _code_of(rule)
    if code is not None and "residual" not in code.co_varnames:
        return False
    return parameters_of(rule)[-1:] == [_RESIDUAL]


def check_declaration(reference: Any, given: Mapping[str, Any]) -> None:
    """Refuse what cannot declare an op, before anything is made of it."""
    function("op", reference)
    for name in ("elementwise", "linear", "real"):
        flag("op", name, given[name])
    with_rules = ["vjp", "jvp"]
    for name in ("masks", "moves"):
        if isinstance(given[name], Mapping):
            with_rules.append(name)
        else:
            flag("op", name, given[name])
    if given["closed"] is not None:
        flag("op", "closed", given["closed"])
    for name in ("ufunc", "kernel", "forward", "infer", "prepare", "scalar"):
        if given[name] is not None:
            function(f"op: {name}", given[name])
    for name in with_rules:
        rules = {} if given[name] is None else given[name]
        if not isinstance(rules, Mapping):
            raise DTypeError(f"op: {name}={shown(rules)}; pass a dictionary of rules by array")
        for array, rule in rules.items():
            if rule is not None:
                function(f"op: {name}[{shown(array)}]", rule)
    for name in ("numpy", "aliases", "samples", "rejects"):
        if not isinstance(given[name], (list, tuple)):
            raise DTypeError(f"op: {name}={shown(given[name])}; pass a list")
    for alias in given["aliases"]:
        label("op: aliases", alias)


class Row:
    """One op: its meaning, its derivative, its kernels, and the cases that test it."""

    __slots__ = (
        "aliases",
        "arrays",
        "bare",
        "call",
        "chosen",
        "chosen_forward",
        "closed",
        "defaults",
        "doc",
        "elementwise",
        "equals",
        "flags",
        "foreign",
        "forward",
        "forwards",
        "hand_on",
        "holders",
        "infer",
        "jvp",
        "kernel",
        "kernels",
        "kinks",
        "linear",
        "masks",
        "module",
        "moves",
        "name",
        "needs",
        "numpy",
        "optional",
        "options",
        "ordered",
        "plans",
        "poles",
        "positional",
        "prepare",
        "primitive",
        "pulls",
        "pushes",
        "reference",
        "rejects",
        "required",
        "samples",
        "scalar",
        "short",
        "spelled",
        "ufunc",
        "unruled",
        "vjp",
    )

    # What was declared.
    name: str
    aliases: tuple[str, ...]
    doc: str
    module: str
    reference: Callable[..., Any]
    kernel: Callable[..., Any]
    forward: Callable[..., tuple[Any, Any] | None] | None
    prepare: Callable[..., tuple[Any, ...]] | None
    infer: Callable[..., Spec]
    scalar: Callable[..., Any] | None
    equals: Callable[..., Any] | None
    primitive: str | None
    ordered: bool
    kernels: tuple[Any, ...]  # of Kernel
    ufunc: np.ufunc | None
    numpy: tuple[Any, ...]
    elementwise: bool
    linear: bool
    masks: bool
    moves: bool
    kinks: str
    samples: tuple[Sample, ...]
    rejects: tuple[Reject, ...]
    vjp: dict[str, Rule | None]
    jvp: dict[str, Rule | None]

    # What was read from it.
    arrays: tuple[str, ...]
    optional: frozenset[str]  # arrays that may be None
    options: tuple[str, ...]
    defaults: tuple[Any, ...]
    flags: tuple[int, ...]  # options that are on or off
    positional: int  # how many options may be given by position
    required: bool  # whether an option has no default
    needs: tuple[frozenset[str], ...]  # what each array's reverse rule keeps
    pulls: tuple[Rule | None, ...]  # reverse rules as called by the sweep
    bare: tuple[Rule | None, ...]  # the same on plain arrays, with kernels for ops
    pushes: tuple[Rule | None, ...]  # forward rules as called by the sweep
    chosen: tuple[Rule | None, ...]  # reverse rules of what was chosen, see ``masks`` of ``op``
    chosen_forward: tuple[Rule | None, ...]  # forward rules of it
    poles: bool  # its slopes depend on values, and so may be infinite
    hand_on: Callable[..., Any] | None  # how the call of a Python function hands on what was chosen
    unruled: tuple[int, ...]  # arrays that are not differentiable
    short: int  # how many arrays it has, 0 if more than two; below 0 if it chooses
    spelled: int  # the same, but 0 if one is not differentiable
    closed: bool  # floating operands of one spec give a result of that spec
    foreign: bool  # declared outside this package
    call: Callable[..., Any]
    plans: dict[tuple[type, ...], tuple[list[int], list[int]]]  # see keep
    forwards: dict[Any, Any]  # by the declared kernel its forward; other kernels have none
    holders: list[Callable[[Any], None]]  # tell those that call the kernel without asking here

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def use(self, kernel: Callable[..., Any]) -> None:
        """Run another kernel from now on."""
        self.kernel = kernel
        self.forward = self.forwards.get(kernel)
        for tell in self.holders:
            tell(kernel)

    # -------------------------------------------------------------- calling

    def bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """Split the arguments of a call into operands and options."""
        count = len(self.arrays)
        given = len(args) - count
        if given < 0 and self.optional.issuperset(self.arrays[given:]):
            args, given = (*args, *[None] * -given), 0
        if given < 0 or given > self.positional or (named and not self._place(named, given)):
            raise DTypeError(self._complaint(args, named))
        options = (*args[count:], *self.defaults[given:])
        if named:
            options = tuple(named.get(n, o) for n, o in zip(self.options, options, strict=True))
        if self.required and any(option is REQUIRED for option in options):
            raise DTypeError(self._complaint(args, named))
        for k in self.flags:
            if options[k] is not True and options[k] is not False:
                options = self.checked(options)
        return args[:count], self.prepared(options) if self.prepare else options

    def prepared(self, options: tuple[Any, ...]) -> tuple[Any, ...]:
        """The options as the kernel takes them."""
        options = self.checked(options)
        if self.prepare is None:
            return options
        try:
            return self.prepare(*options)
        except STUMBLES as error:
            raise self.failure(error, (), options) from error

    def checked(self, options: tuple[Any, ...]) -> tuple[Any, ...]:
        """The options, of which those that are on or off are Python's True or False."""
        if not self.flags:
            return options
        found = list(options)
        for k in self.flags:
            found[k] = flag(self.name, self.options[k], options[k])
        return tuple(found)

    def _place(self, named: Mapping[str, Any], given: int) -> bool:
        """Whether every named argument is an option that no positional argument gave."""
        return named.keys() <= set(self.options[given:])

    def _complaint(self, args: Sequence[Any], named: Mapping[str, Any]) -> str:
        import inspect

        signature = inspect.signature(self.reference)
        try:
            signature.bind(*args, **named)
        except TypeError as error:
            hint = keyword_hint(named)
            return f"{self.name}: {error}{hint}; the signature is {self.name}{signature}"
        raise AssertionError("the arguments fit after all")

    def keep(
        self,
        recording: Recording,
        inputs: Sequence[Any],
        values: Sequence[Any],
        options: tuple[Any, ...],
        residual: Any = None,
    ) -> tuple[Any, ...]:
        """What a node saves: arrays and result where a tracked operand's rule asks, and options."""
        key = tuple(map(type, inputs))
        plan = self.plans.get(key)
        if plan is None:
            if len(self.plans) >= _MOST_PLANS:  # of a hundred operands any may need a gradient
                self.plans.clear()
            plan = self.plans[key] = self._plan([id is not None for id in inputs])
        dropped, constants = plan
        kept = [*values, *options]
        for k in dropped:
            kept[k] = None
        for k in constants:
            kept[k] = recording.hold(kept[k])
        if not _OPEN.isdisjoint(map(type, options)):
            # The caller may write to them while the tape keeps them.
            kept[len(values) :] = deepcopy(options)
        if residual is not None:
            kept.append(residual)
        return tuple(kept)

    def _plan(self, tracked: list[bool]) -> tuple[list[int], list[int]]:
        """Which arrays, and the result, a node does not save; and which it saves of constants."""
        wanted = frozenset().union(*compress(self.needs, tracked))
        saved = [name in wanted for name in (*self.arrays, "out")]
        dropped = [k for k, save in enumerate(saved) if not save]
        return dropped, [k for k, on in enumerate(tracked) if saved[k] and not on]

    def failure(
        self, error: Exception, values: Sequence[Any], options: tuple[Any, ...]
    ) -> Exception:
        """The error to raise when the kernel refused ``values``, in our words if we have any."""
        for name, value in zip(self.arrays, values, strict=False):
            odd = complaint(self.name, name, value)
            if odd is not None:
                return odd
        # What NumPy was told to raise, and what stumbled in the code of somebody else, stays.
        theirs = self.foreign and not isinstance(error, (TypeError, ValueError, IndexError))
        if theirs or isinstance(error, (OdysseyError, FloatingPointError)):
            raise error
        specs = [spec_of(v) if hasattr(v, "dtype") else v for v in values]
        try:
            self.infer(*specs, *options)
        except Exception as better:  # the shape rule may stumble over what the kernel refused
            if isinstance(better, OdysseyError):
                return better
        came = [f"{n} {shown(s)}" for n, s in zip(self.arrays, specs, strict=False)]
        came += [f"{n}={shown(o)}" for n, o in zip(self.options, options, strict=False)]
        return kind_of(error)(f"{self.name}: {error}; came {', '.join(came)}")

    @property
    def asks(self) -> tuple[str, ...]:
        """The names that the row's rules ask for, in the order of ``backward``'s arguments.

        Arrays that may be absent are among them: whether one is, decides about its gradient.
        """
        specs = [f"{name}_spec" for name in self.arrays]
        order = [*self.arrays, "out", *specs, *self.options]
        wanted = {name for rule in self.vjp.values() if rule for name in asked(rule)}
        wanted |= self.optional
        return tuple(name for name in order if name in wanted)
