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
from typing import Any

import numpy as np

from odyssey.checks import flag, function, label, shown
from odyssey.errors import DTypeError, OdysseyError
from odyssey.spec import Spec
from odyssey.table import fast_calls
from odyssey.table.call import caller, general, giving_way
from odyssey.table.guards import (
    checking,
    counted,
    forward_in_own_memory,
    in_own_memory,
    refusing_complex,
)
from odyssey.table.meaning import Kernel, check_meaning, read_meaning
from odyssey.table.published import (
    COMPOSITES,
    FOREIGN,
    OPS,
    composite,
    is_ours,
    publish,
)
from odyssey.table.results import check_results, parts_of
from odyssey.table.row import Row
from odyssey.table.rules import check_choice, gathering, picking, spreading
from odyssey.table.samples import Reject, Sample
from odyssey.table.shape_rules import by_running, refusing
from odyssey.table.signature import (
    PASS,
    REQUIRED,
    Layout,
    Rule,
    asked,
    by_position,
    takes_residual,
)

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
]


def op(
    *,
    results: Sequence[str] | type[tuple[Any, ...]] = (),
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
    infer: Callable[..., Spec | tuple[Spec, ...]] | None = None,
    prepare: Callable[..., tuple[Any, ...]] | None = None,
    canonical: Callable[..., tuple[Any, ...]] | None = None,
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
        results: The names of several results, or a named tuple's class, which a call then returns;
            a reference returns a tuple of them. A reverse rule begins with the cotangents that it
            asks for, ``rule(g_w, g_v, ...)`` of results ``w`` and ``v``, zeros for a result that
            nothing depends on; results are asked for by their names. A forward rule returns a
            tangent for each result, or None for zeros. A shape rule returns a spec for each.
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
        canonical: ``canonical(*specs, *options) -> options``: one spelling for one meaning, as a
            graph writes it; run when tracing, after ``infer``.
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
        foreign = not is_ours(reference)
        if foreign:
            _check(reference, given)
            check_meaning(given)
        row = _read(reference, given, foreign)
        row.call = _callable(row)
        if foreign:
            FOREIGN.update(dict.fromkeys((row.name, *row.aliases), row.call))
        return row.call

    return declare


# ------------------------------------------------------------------ reading a declaration


def _read(reference: Callable[..., Any], given: Mapping[str, Any], foreign: bool) -> Row:
    """The row that a reference and the arguments of ``op`` declare."""
    layout = Layout.read(reference, getattr(given["results"], "_fields", given["results"]))
    if layout.cotangents:
        check_results(layout, given)
    reference = by_position(reference)
    linear, masks, moves = given["linear"], given["masks"], given["moves"]
    facts: dict[str, Any] = {
        name: given[name]
        for name in ("elementwise", "linear", "prepare", "canonical", "ufunc", "numpy", "aliases")
    }
    facts |= {name: given[name] for name in ("kinks", "samples", "rejects")}
    facts |= read_meaning(layout, given)
    facts |= _rules(layout, given, foreign)
    facts |= _choice(layout, given, facts, foreign)
    kernel, forward = given["kernel"] or given["ufunc"] or reference, given["forward"]
    if foreign:
        kernel = in_own_memory(layout, kernel)
        forward = forward and forward_in_own_memory(layout, forward, given["real"])
    infer = given["infer"]
    if infer is None:
        infer = by_running(layout, reference) if given["elementwise"] else refusing(layout)
    if layout.cotangents:
        several = facts["several"] = getattr(given["results"], "_make", tuple)
        facts |= parts_of(layout)
        kernel = counted(layout, several, kernel, "the reference")
        infer = counted(layout, tuple, infer, "infer")
    if given["real"]:
        kernel = refusing_complex(layout.name, kernel)
        infer = refusing_complex(layout.name, infer)
    return Row(
        layout,
        **facts,
        masks=bool(masks),
        moves=bool(moves) or (linear and not foreign),
        foreign=foreign,
        reference=reference,
        kernel=kernel,
        forward=forward,
        infer=infer,
    )


def _rules(layout: Layout, given: Mapping[str, Any], foreign: bool) -> dict[str, Any]:
    """What is read from ``vjp`` and ``jvp``."""
    vjp, jvp = given["vjp"] or {}, given["jvp"] or {}
    _check_names(layout, vjp, jvp, given["forward"])
    arrays, options = layout.arrays, set(layout.options)
    elementwise = given["elementwise"]
    reverse = {name: vjp.get(name) for name in arrays}
    forward = {name: jvp.get(name, reverse[name] if elementwise else None) for name in arrays}
    wishes = [layout.wishes(rule) if (rule := reverse[name]) else () for name in arrays]
    needs = [frozenset(wished) - options for wished in wishes]
    for name, kept in zip(arrays, needs, strict=True):
        rule = forward[name]
        if rule is None or rule is reverse[name]:
            continue
        more = set(asked(rule)) - kept - options
        if more.difference(layout.specs):
            raise OdysseyError(
                f"op {layout.name}: the forward rule of {name!r} asks for "
                f"{', '.join(sorted(more))}, which its reverse rule does not keep"
            )
    take, give = (gathering, spreading) if layout.cotangents else (picking, picking)
    pulls = [take(layout, reverse[name]) for name in arrays]
    pushes = [
        pull if forward[name] is reverse[name] else give(layout, forward[name])
        for name, pull in zip(arrays, pulls, strict=True)
    ]
    if foreign:
        pulls = [checking(layout, k, pull) for k, pull in enumerate(pulls)]
        pushes = [checking(layout, k, push, True) for k, push in enumerate(pushes)]
    uses_specs = any(name.endswith("_spec") for kept in needs for name in kept)
    closed = elementwise if given["closed"] is None else given["closed"]
    return {
        "vjp": reverse,
        "jvp": forward,
        "needs": needs,
        "pulls": pulls,
        "pushes": None if given["linear"] and not jvp else pushes,
        "closed": closed and not uses_specs and None not in pulls,
    }


def _check_names(
    layout: Layout, vjp: Mapping[str, Any], jvp: Mapping[str, Any], forward: Any
) -> None:
    """Refuse rules that name what the row does not have."""
    known = {*layout.kept, *layout.specs}
    for rules in (vjp, jvp):
        for name, rule in rules.items():
            wrong = [name] if name not in layout.arrays else []
            several = bool(layout.cotangents) and rules is vjp
            wished = (layout.after_cotangents(rule) if several else asked(rule)) if rule else ()
            wrong += [asked for asked in wished if asked not in known]
            wrong += ["residual"] if rule and takes_residual(rule) and not forward else []
            if wrong:
                raise OdysseyError(
                    f"op {layout.name}: the rule of {name!r} names {', '.join(wrong)}; "
                    f"known are {', '.join(sorted(known))}"
                )


def _choice(
    layout: Layout, given: Mapping[str, Any], facts: Mapping[str, Any], foreign: bool
) -> dict[str, Any]:
    """What the row does to the marks of what was chosen; see ``masks`` and ``moves`` of ``op``."""
    masks = given["masks"]
    rules = masks or given["moves"]
    kept = frozenset().union(*facts["needs"])
    # What only chooses has finite slopes; those of rows from outside are not known.
    only_chooses = masks is True and not foreign
    by_value = not kept.isdisjoint((*layout.arrays, *layout.results))
    found = {"poles": given["elementwise"] and by_value and not only_chooses}
    if isinstance(rules, Mapping):
        check_choice(layout, rules, kept)
        chosen = [picking(layout, rules.get(name)) for name in layout.arrays]
        found |= {"chosen": chosen, "chosen_forward": chosen}
    return found


def _check(reference: Any, given: Mapping[str, Any]) -> None:
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
    for name in ("ufunc", "kernel", "forward", "infer", "prepare", "canonical", "scalar"):
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
    names = getattr(given["results"], "_fields", given["results"])
    valid = isinstance(names, (list, tuple))
    if not valid or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise DTypeError(
            f"op: results={shown(given['results'])}; pass the names of the results, or the class "
            "of a named tuple"
        )


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
    plain = plain and row.forward is None and all(row.vjp.values()) and not row.cotangents
    make: Any = {1: fast_calls.unary, 2: fast_calls.binary}.get(len(row.arrays)) if plain else None
    make = make or (caller if row.cotangents else fast_calls.with_options)
    call: Any = make(row, general)
    call.__name__ = call.__qualname__ = row.name
    call.__module__ = row.module
    call.__doc__ = row.doc
    call.__wrapped__ = row.reference  # whose signature help() shows
    call.row = row
    declared: Callable[..., Any] = call
    return declared
