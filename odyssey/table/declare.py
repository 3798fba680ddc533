"""The table: one row per op, and the decorator that writes a row.

A row is declared by decorating its meaning, a NumPy function whose positional-only parameters
are the arrays and whose other parameters are static options::

    @op(ufunc=np.exp, vjp={"x": lambda g, out: mul(g, out)})
    def exp(x, /):
        \"\"\"Elementwise exponential, ``e**x``.\"\"\"
        return np.exp(x)

A rule names what it asks for: ``g`` first, then any of the arrays, ``out``, ``<array>_spec`` and
the options. The names are read here, once. What the tape keeps of a call is exactly what the
rules of its tracked operands ask for.

Rules are plain transposes of the derivative, without conjugates: the sweep conjugates complex
cotangents when they enter and leave it, so the rule of ``multiply`` is ``g * y`` for complex
numbers too. Gradients of broadcast operands are summed back, and cast, by the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from odyssey.checks import STUMBLES, flag, kind_of
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.spec import Spec
from odyssey.table import fast_calls
from odyssey.table.call import general, giving_way
from odyssey.table.guards import (
    checking,
    forward_in_own_memory,
    in_own_memory,
    refusing_complex,
)
from odyssey.table.meaning import Kernel, check_meaning, read_meaning
from odyssey.table.row import (
    PASS,
    REQUIRED,
    Row,
    Rule,
    asked,
    check_declaration,
    parameters_of,
    takes_residual,
)
from odyssey.table.rules import FAMILIES, bare, picking, read_choice
from odyssey.table.samples import Reject, Sample
from odyssey.vocabulary import keyword_hint

__all__ = [
    "COMPOSITES",
    "FOREIGN",
    "OPS",
    "PASS",
    "REQUIRED",
    "Kernel",
    "Row",
    "asked",
    "composite",
    "op",
    "operator_of",
    "publish",
    "seal",
    "sealed",
]

_ROWS: dict[str, Row] = {}
OPS: Mapping[str, Row] = MappingProxyType(_ROWS)
"""Every built-in op by name; read-only, and sealed once the families are imported."""

FOREIGN: WeakValueDictionary[str, Callable[..., Any]] = WeakValueDictionary()
"""Ops from outside by name, the latest of each: for ``od.backward`` alone, and no longer than their
owner keeps them."""

_COMPOSITES: dict[str, Callable[..., Any]] = {}
COMPOSITES: Mapping[str, Callable[..., Any]] = MappingProxyType(_COMPOSITES)
"""Every built-in function that is made of ops, by name; likewise."""


def op(
    *,
    vjp: Mapping[str, Rule | None] | None = None,
    jvp: Mapping[str, Rule] | None = None,
    elementwise: bool = False,
    closed: bool | None = None,
    linear: bool = False,
    masks: bool | Mapping[str, Rule | None] = False,
    moves: bool | Mapping[str, Rule | None] = False,
    real: bool = False,
    ufunc: np.ufunc | None = None,
    kernel: Callable[..., Any] | None = None,
    forward: Callable[..., tuple[Any, Any] | None] | None = None,
    infer: Callable[..., Spec] | None = None,
    prepare: Callable[..., tuple[Any, ...]] | None = None,
    scalar: Callable[..., Any] | None = None,
    equals: Callable[..., Any] | None = None,
    primitive: str | None = None,
    ordered: bool = False,
    kernels: Sequence[Kernel] = (),
    numpy: Sequence[Any] = (),
    aliases: Sequence[str] = (),
    kinks: str = "",
    samples: Sequence[Sample] = (),
    rejects: Sequence[Reject] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an op: decorate its NumPy reference, whose positional-only parameters are arrays.

    The decorated name becomes the op: call it with arrays, Variables or Symbols.

    Args:
        vjp: For each differentiable array its reverse rule ``rule(g, ...)``. A rule is written
            with ops, gets what its parameters name (an array, ``out``, ``<array>_spec``, an
            option) and returns the cotangent of that array. An array that is missing here, or
            maps to None, is not differentiable, and asking for its gradient raises.
        jvp: For each array its forward rule ``rule(t, ...)``, which may ask only for what the
            reverse rule asks for. Derived for elementwise and linear ops.
        elementwise: The op works element by element on broadcast operands, so the reverse rule,
            which multiplies by the derivative, is the forward rule as well.
        closed: The result of floating operands has their dtype; defaults to ``elementwise``.
        linear: The op is linear in its single array: the forward rule is the op itself.
        masks: The op chooses between operands, or elements: where the slope that its rule gives is
            exactly 0, the operand was not chosen, and the sweep sees to it that slopes before it,
            infinite or not, give 0 there. The rule must *select* (``keep_where``), not multiply.
            Where a slope of 0 may also come of the value, a rule for each array instead, which
            gets 1 (or what else is not 0) where the result is wanted and 0 elsewhere, and returns
            the same of the array.
        moves: The op only moves or sums elements, so what was not chosen of its result was not
            chosen of its operands; or rules as for ``masks``. Linear ops of the table do.
        real: The op has no meaning for complex numbers, and refuses them.
        ufunc: The NumPy ufunc that it equals: its kernel, and how ``np.<ufunc>`` finds it.
        kernel: What runs on the CPU instead of the reference or the ufunc, where that is faster.
        forward: What a recorded call tries first: returns the result that the kernel would give,
            and a residual, arrays that rules can use again instead of computing them from what
            they ask for; or None, and then the kernel runs. A rule whose last parameter is
            ``residual=None`` gets it, where there is one.
        infer: Shape and dtype rule ``infer(*specs, *options) -> Spec``, run when tracing.
            Derived for elementwise ops.
        prepare: ``prepare(*options) -> options``: checks the options and makes them immutable.
        scalar: The op on numbers, the options behind them, for generated kernels; may name
            ``math`` and ``T``, the dtype.
        equals: The same meaning, derivatives included, written with other ops: a function with the
            parameters of the reference.
        primitive: Of a row that has neither, what it does with elements: one of ``"reduce"``,
            ``"product"``, ``"view"``, ``"gather"``, ``"scatter"``, ``"assemble"``, ``"scan"``.
        ordered: The op does something beside its result: calls of it stay, and stay in order.
        kernels: Other ways to run it, each a ``Kernel``, which ``row.use`` takes.
        numpy: NumPy functions whose calls on Variables mean this op.
        aliases: Short names for the same op.
        kinks: What the derivative is at ties and kinks, in words.
        samples: Cases to test the row on.
        rejects: Cases that must fail, with their messages.

    Returns:
        A decorator; the op itself is declared by applying it.

    >>> import odyssey as od
    >>> @od.op(elementwise=True, vjp={"x": lambda g, x: od.ops.mul(g, od.ops.mul(3.0, x * x))})
    ... def cube(x, /):
    ...     return x * x * x
    >>> w = od.Variable(2.0, requires_grad=True)
    >>> with od.GradientTape() as tape:
    ...     y = cube(w)
    >>> float(tape.gradient(y, w))
    12.0
    """
    given = locals()

    def declare(reference: Callable[..., Any]) -> Callable[..., Any]:
        foreign = sealed()
        if foreign:
            check_declaration(reference, given)
            check_meaning(given)
        row = Row()
        row.foreign = foreign
        row.reference, row.module = _by_position(reference), reference.__module__
        row.kernel = kernel or ufunc or row.reference
        row.forward = forward
        if foreign:
            row.kernel = in_own_memory(reference.__name__, row.kernel)
            row.forward = forward and forward_in_own_memory(row, forward, real)
        row.holders, row.plans = [], {}
        row.prepare = prepare
        row.name, row.aliases, row.doc = reference.__name__, tuple(aliases), reference.__doc__ or ""
        row.elementwise, row.linear, row.ufunc = elementwise, linear, ufunc
        row.masks, row.moves = bool(masks), bool(moves)
        row.numpy, row.kinks = tuple(numpy), kinks
        row.samples, row.rejects = tuple(samples), tuple(rejects)
        _read_signature(row)
        read_meaning(row, given)
        _read_rules(row, vjp or {}, jvp or {})
        read_choice(row, masks or moves)
        uses_specs = any(name.endswith("_spec") for needs in row.needs for name in needs)
        row.closed = (elementwise if closed is None else closed) and not uses_specs
        row.closed = row.closed and not row.unruled
        row.infer = infer or _infer_by_running(row)
        if real:
            row.kernel = refusing_complex(row, row.kernel)
            row.infer = refusing_complex(row, row.infer)
        row.forwards = {row.kernel: row.forward}
        row.call = _callable(row)
        if foreign:
            FOREIGN.update(dict.fromkeys((row.name, *row.aliases), row.call))
        return row.call

    return declare


def composite(
    *,
    numpy: Sequence[Any] = (),
    aliases: Sequence[str] = (),
    samples: Sequence[Sample] = (),
    rejects: Sequence[Reject] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function made of ops, which needs no rule of its own, beside the table's ops.

    Args:
        numpy: NumPy functions whose calls on Variables mean this function.
        aliases: Short names for it.
        samples: Cases to test it on, as those of a row.
        rejects: Cases that must fail, with their messages.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        flags = [n for n, d in (function.__kwdefaults__ or {}).items() if isinstance(d, bool)]

        @wraps(function)
        def made(*args: Any, **named: Any) -> Any:
            for name in flags:
                if name in named:
                    named[name] = flag(function.__name__, name, named[name])
            try:
                return function(*args, **named)
            except (OdysseyError, FloatingPointError):
                raise
            except STUMBLES as error:
                raise _misuse(function, error, named) from error

        made.numpy, made.aliases = tuple(numpy), tuple(aliases)  # type: ignore[attr-defined]
        made.samples, made.rejects = tuple(samples), tuple(rejects)  # type: ignore[attr-defined]
        return made

    return declare


def _misuse(
    function: Callable[..., Any], error: Exception, named: Mapping[str, Any]
) -> OdysseyError:
    """The error to raise where a composite stumbled over its arguments."""
    import inspect

    name = function.__name__
    came = f"{error}{keyword_hint(named)}"
    return kind_of(error)(f"{name}: {came}; the signature is {name}{inspect.signature(function)}")


# Every public name, aliases among them, and what it means; the ops get them when they are sealed.
_NAMES: dict[str, Callable[..., Any]] = {}
_SEAL: list[bool] = []


def publish(namespace: dict[str, Any]) -> None:
    """Enter the ops and composites of a module of this package, a family, into their tables.

    Raises:
        OdysseyError: for a name that another op has, and once the table is sealed.
    """
    if sealed():
        raise OdysseyError(
            f"publish: the table is sealed, {namespace['__name__']} came too late; an op from "
            "outside is called as it is, without a name in the table"
        )
    FAMILIES.add(namespace["__name__"])
    for value in list(namespace.values()):
        if getattr(value, "__module__", None) != namespace["__name__"]:
            continue
        row = getattr(value, "row", None)
        if row is not None:
            _enter((row.name, *row.aliases), row.call)
            _ROWS[row.name] = row
        elif hasattr(value, "aliases"):
            _enter((value.__name__, *value.aliases), value)
            _COMPOSITES[value.__name__] = value


def _enter(names: Sequence[str], function: Callable[..., Any]) -> None:
    for name in names:
        if _NAMES.setdefault(name, function) is not function:
            raise OdysseyError(f"publish: two ops are called {name!r}; choose another name")


def seal() -> Mapping[str, Callable[..., Any]]:
    """Close the table: rows that are declared from now on are from outside; return all names."""
    for row in _ROWS.values():
        row.bare = bare(row)
    _SEAL.append(True)
    return _NAMES


def sealed() -> bool:
    """Whether all families are in the table, and it takes no more."""
    return bool(_SEAL)


# ------------------------------------------------------------------ reading a declaration


def _read_signature(row: Row) -> None:
    parameters = parameters_of(row.reference)
    arrays = [p for p in parameters if p.kind == "array"]
    options = [p for p in parameters if p.kind != "array"]
    if not arrays:
        raise OdysseyError(
            f"op {row.name}: no array parameters; write the arrays before a '/', "
            f"as in def {row.name}(x, /)"
        )
    row.arrays = tuple(p.name for p in arrays)
    row.optional = frozenset(p.name for p in arrays if p.default is None)
    row.options = tuple(p.name for p in options)
    row.flags = tuple(k for k, p in enumerate(options) if isinstance(p.default, bool))
    row.positional = sum(p.kind == "option" for p in options)
    row.defaults = tuple(p.default for p in options)
    row.required = REQUIRED in row.defaults


def _by_position(reference: Callable[..., Any]) -> Callable[..., Any]:
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


def _read_rules(row: Row, vjp: Mapping[str, Any], jvp: Mapping[str, Any]) -> None:
    known = {*row.arrays, "out", *row.options, *(f"{name}_spec" for name in row.arrays)}
    for rules in (vjp, jvp):
        for name, rule in rules.items():
            wrong = [name] if name not in row.arrays else []
            wrong += [asked for asked in (asked(rule) if rule else ()) if asked not in known]
            wrong += ["residual"] if rule and takes_residual(rule) and not row.forward else []
            if wrong:
                raise OdysseyError(
                    f"op {row.name}: the rule of {name!r} names {', '.join(wrong)}; "
                    f"known are {', '.join(sorted(known))}"
                )
    row.vjp = {name: vjp.get(name) for name in row.arrays}
    row.jvp = {name: _forward_rule(row, name, jvp) for name in row.arrays}
    row.needs = tuple(
        frozenset(asked(rule)) - set(row.options) if (rule := row.vjp[name]) else frozenset()
        for name in row.arrays
    )
    for name, needs in zip(row.arrays, row.needs, strict=True):
        rule = row.jvp[name]
        more = set(asked(rule)) - needs - set(row.options) if rule else set()
        if more - {f"{array}_spec" for array in row.arrays}:
            raise OdysseyError(
                f"op {row.name}: the forward rule of {name!r} asks for {', '.join(sorted(more))}, "
                "which its reverse rule does not keep"
            )
    row.pulls = tuple(picking(row, row.vjp[name]) for name in row.arrays)
    row.pushes = tuple(picking(row, row.jvp[name]) for name in row.arrays)
    row.unruled = tuple(k for k, pull in enumerate(row.pulls) if pull is None)
    # Rows that choose are told apart, so that the sweep learns of them.
    row.short = 0 if len(row.arrays) > 2 else -len(row.arrays) if row.masks else len(row.arrays)
    row.spelled = 0 if row.unruled else row.short
    if row.foreign:
        places = range(len(row.arrays))
        row.pulls = tuple(checking(row, k, row.pulls[k]) for k in places)
        row.pushes = tuple(checking(row, k, row.pushes[k], True) for k in places)
    row.bare = row.pulls
    if row.linear and not jvp:
        first = len(row.arrays) + 1
        last = first + len(row.options)
        row.pushes = (
            lambda t, kept, specs: row.call(
                t, **dict(zip(row.options, (kept or ())[first:last], strict=True))
            ),
        )


def _forward_rule(row: Row, name: str, jvp: Mapping[str, Any]) -> Rule | None:
    rule: Rule | None = jvp.get(name, row.vjp[name] if row.elementwise else None)
    return rule


def _infer_by_running(row: Row) -> Callable[..., Spec]:
    """The shape and dtype rule of an elementwise op: broadcast, and run on ones for the dtype."""

    def infer(*specs: Any) -> Spec:
        operands, options = specs[: len(row.arrays)], specs[len(row.arrays) :]
        shapes = [spec.shape for spec in operands if isinstance(spec, Spec)]
        try:
            shape = np.broadcast_shapes(*shapes)
        except (ValueError, RuntimeError):  # the latter for more axes than NumPy broadcasts
            came = ", ".join(
                f"{name} {spec.shape}"
                for name, spec in zip(row.arrays, operands, strict=True)
                if isinstance(spec, Spec)
            )
            raise ShapeError(
                f"{row.name}: shapes do not broadcast, {came}; "
                "from the right, sizes must be equal or one of them 1"
            ) from None
        ones = [np.ones((), s.dtype) if isinstance(s, Spec) else s for s in operands]
        try:
            with np.errstate(all="ignore"):  # 1 may be where a function has no value
                return Spec(shape, row.reference(*ones, *options).dtype)
        except TypeError as error:
            raise DTypeError(f"{row.name}: {error}; came {', '.join(map(str, operands))}") from None

    if not row.elementwise:

        def refuse(*specs: Any) -> Spec:
            raise OdysseyError(
                f"{row.name}: cannot be traced, the row has no infer=; declare one in op(...)"
            )

        return refuse
    return infer


def operator_of(function: Any) -> Callable[..., Any]:
    """The op as Python's operators call it: it gives way to containers that have it too."""
    return _callable(function.row, giving_way)


def _callable(row: Row, general: Callable[..., Any] = general) -> Callable[..., Any]:
    # The shortcuts know the specs of Variables only; a rule may want that of a plain operand.
    others = {f"{name}_spec" for name in row.arrays}
    own = all(
        needs & others <= {f"{name}_spec"}
        for name, needs in zip(row.arrays, row.needs, strict=True)
    )
    # Nor do they tell the recording of rows from outside.
    plain = own and not (row.options or row.optional or row.foreign)
    plain = plain and row.forward is None and all(row.vjp.values())
    make = {1: fast_calls.unary, 2: fast_calls.binary}.get(len(row.arrays)) if plain else None
    call: Any = (make or fast_calls.with_options)(row, general)
    call.__name__ = call.__qualname__ = row.name
    call.__module__ = row.module
    call.__doc__ = row.doc
    call.__wrapped__ = row.reference  # whose signature help() shows
    call.row = row
    declared: Callable[..., Any] = call
    return declared
