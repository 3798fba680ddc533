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
from inspect import CO_VARARGS
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, check_callable, check_flag, check_name, format_value
from odyssey.errors import DTypeError, OdysseyError
from odyssey.kernels.sizes import SIZES
from odyssey.spec import Spec
from odyssey.table import fast_calls
from odyssey.table.array_rules import make_array_pullbacks
from odyssey.table.batch import BATCH_RULES
from odyssey.table.call import general, general_caller, general_operator
from odyssey.table.half_kernels import handle_halves
from odyssey.table.kernel_selection import Kernel, scalar_loop, select_by_size
from odyssey.table.multi_output import MultiOutput
from odyssey.table.registry import (
    COMPOSITES,
    FOREIGN,
    OPS,
    composite,
    is_library_function,
    publish,
)
from odyssey.table.result_checks import (
    check_result_count,
    check_rule,
    copy_if_retained,
    copy_residual_if_retained,
    refuse_complex,
)
from odyssey.table.row import Row, handle_devices
from odyssey.table.rule_adapters import (
    adapt_multi_output_jvp,
    adapt_multi_output_vjp,
    adapt_rule,
    adapt_variadic_rule,
    check_selection_rules,
)
from odyssey.table.samples import Reject, Sample
from odyssey.table.shape_rules import elementwise_rule, missing_rule
from odyssey.table.signature import (
    PASS,
    REQUIRED,
    Layout,
    Rule,
    parameters_of,
    rule_arguments,
    takes_no_arguments,
    takes_residual,
    with_positional_options,
)
from odyssey.table.variadic import ArityRows, spread_operands, variadic_caller

__all__ = [
    "COMPOSITES",
    "FOREIGN",
    "OPS",
    "PASS",
    "PRECISIONS",
    "REQUIRED",
    "Kernel",
    "Row",
    "composite",
    "op",
    "operator_form",
    "publish",
    "rule_arguments",
    "set_op_metadata",
]


PRECISIONS = ("low", "wide", "follow")
"""Classes of ops in ``od.autocast``, see ``precision`` of ``op``."""


def op(
    *,
    results: Sequence[str] | type[tuple[Any, ...]] = (),
    variadic: str | None = None,
    bunches: bool = False,
    vjp: Mapping[str, Rule | None] | None = None,
    jvp: Mapping[str, Rule] | None = None,
    vmap: Callable[..., Any] | str | None = None,
    elementwise: bool = False,
    keeps_dtype: bool | None = None,
    linear: bool = False,
    selects: bool | Mapping[str, Rule | None] = False,
    rearranges: bool | Mapping[str, Rule | None] = False,
    real: bool = False,
    ufunc: np.ufunc | None = None,
    kernel: Callable[..., Any] | None = None,
    with_residual: Callable[..., tuple[Any, Any] | None] | None = None,
    infer: Callable[..., Spec | tuple[Spec, ...]] | None = None,
    prepare: Callable[..., tuple[Any, ...]] | None = None,
    canonical: Callable[..., tuple[Any, ...]] | None = None,
    scalar: Callable[..., Any] | None = None,
    decomposition: Callable[..., Any] | None = None,
    primitive: str | None = None,
    lowering: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None,
    guess: Callable[..., str] | None = None,
    requires: Callable[..., Any] | None = None,
    raises: bool = False,
    has_side_effect: bool = False,
    kernels: Sequence[Kernel] = (),
    numpy: Sequence[Any] = (),
    aliases: Sequence[str] = (),
    kinks: str = "",
    samples: Sequence[Sample] = (),
    rejects: Sequence[Reject] = (),
    precision: str = "follow",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an op: decorate its NumPy reference, whose positional-only parameters are arrays.

    The decorated name becomes the op: call it with arrays, Variables or Symbols.

    Args:
        results: The names of several results, or a named tuple's class, which a call then returns;
            a reference returns a tuple of them. A reverse rule begins with the cotangents that it
            asks for, ``rule(g_w, g_v, ...)`` of results ``w`` and ``v``, zeros for a result that
            nothing depends on; results are asked for by their names. A forward rule returns a
            tangent for each result, or None for zeros. A shape rule returns a spec for each.
        variadic: The name of the one array parameter, where it stands for any number of arrays,
            which the reference gets as a sequence. A rule for that name serves each of them: it
            may ask for ``place``, the number of its own, for the name, which is all arrays, and for
            ``<name>_spec``, all specs. ``infer`` gets the specs one by one, then the options.
        bunches: Many arrays may be taken some at a time, and then what came of these.
        vjp: For each differentiable array its reverse rule ``rule(g, ...)``. A rule is written
            with ops, gets what its parameters name (an array, ``out``, ``<array>_spec``, an
            option) and returns the cotangent of that array. An array that is missing here, or
            maps to None, is not differentiable, and asking for its gradient raises.
        jvp: For each array its forward rule ``rule(t, ...)``, which may ask only for what the
            reverse rule asks for. Derived for elementwise and linear ops.
        vmap: How ``od.vmap`` runs the op on a batch of examples: ``"leading"`` if operands may have
            further axes in front, all of them or one operand alone; ``"along"`` if the op works
            along its option ``axis``; ``"loop"`` for one call an example; or a batch rule
            ``vmap(batch, *arrays, *options)``, which returns the result with the batch on axis 0,
            see ``Batch``; or ``NotImplemented``, and then the decomposition runs, or without one a
            loop. Derived for elementwise ops and for those with a decomposition; others loop, and
            warn once.
        elementwise: The op works element by element on broadcast operands, so the reverse rule,
            which multiplies by the derivative, is the forward rule as well.
        keeps_dtype: The result of floating operands has their dtype; defaults to ``elementwise``.
        linear: The op is linear in its single array: the forward rule is the op itself.
        selects: The op selects among its operands or their elements. An element whose slope is
            exactly 0 was not selected, and the sweep makes the cotangent 0 before it, even if an
            earlier slope is infinite. The rule must *select* (``keep_where``), not multiply. If a
            selected element can have a slope of 0, pass a rule for each array instead, which maps
            the selection mask of the result (not 0 where selected) to that of the array.
        rearranges: The op only moves or sums elements, so an element that was not selected from
            its result was not selected from its operands; or rules as for ``selects``. Linear ops
            of the table have it.
        real: The op has no meaning for complex numbers, and refuses them.
        ufunc: The NumPy ufunc that it equals: its kernel, and how ``np.<ufunc>`` finds it.
        kernel: What runs on the CPU instead of the reference or the ufunc, where that is faster.
        with_residual: What a recorded call tries first: returns the result that the kernel would
            give, and a residual, arrays that rules can use again instead of computing them from
            what they ask for; or None, and then the kernel runs. A rule whose last parameter is
            ``residual=None`` gets it, where there is one.
        infer: Shape and dtype rule ``infer(*specs, *options) -> Spec``, run when tracing.
            Derived for elementwise ops.
        prepare: ``prepare(*options) -> options``: checks the options and makes them immutable.
        canonical: ``canonical(*specs, *options) -> options``: one spelling for one meaning, as a
            graph writes it; run when tracing, after ``infer``.
        scalar: The op on numbers, the options behind them, for generated kernels; may name
            ``math`` and ``T``, the dtype.
        decomposition: The op, derivatives included, written with other ops: a function with the
            parameters of the reference.
        primitive: Of a row that has neither, what it does with elements: one of ``"reduce"``,
            ``"product"``, ``"view"``, ``"gather"``, ``"scatter"``, ``"assemble"``, ``"scan"``,
            ``"decompose"``, ``"random"``, ``"call"``.
        lowering: Lowers a primitive to compiled code: a function of a builder and the parameters
            of the reference, which returns a node, or ``NotImplemented``. Several ones, by the
            names of the ways that they are; a program takes the one that ``guess`` names.
        guess: ``guess(*specs, *options)`` returns the name of the way that a program takes for a
            call unless a plan says otherwise: ``"compiled"``, or a name in ``lowering``;
            ``"called"`` for a host call of the row's kernel; or the name of one of ``kernels``.
            None for always compiled. It reads specs only, and holds all rules by size.
        requires: What the kernel asks of data beside specs, in ops: a function with the parameters
            of the reference that returns a list of truths; where one fails, the kernel raises.
        raises: Its kernel may raise for numbers, and nothing but the kernel can tell for which: it
            is called, also where nobody reads its result.
        has_side_effect: The op has an effect beside its result: no call of it is removed or moved.
            A compiled function that calls one runs as it was written.
        kernels: Other ways to run it, each a ``Kernel``, which ``row.use`` takes.
        numpy: NumPy functions whose calls on Variables mean this op.
        aliases: Short names for the same op.
        kinks: What the derivative is at ties and kinks, in words.
        samples: Cases to test the row on.
        rejects: Cases that must fail, with their messages.
        precision: The class of the op in ``od.autocast``: ``"low"`` casts float32 operands to
            half precision, as for products; ``"wide"`` casts halves to float32, where a range of
            numbers or a sum matters; ``"follow"`` leaves operands as they are.

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
        foreign = not is_library_function(reference)
        if foreign:
            _check_declaration(reference, given)
        try:
            row = _make_row(reference, given, foreign)
        except STUMBLES as error:
            failed = error
        else:
            if foreign:
                FOREIGN.update(dict.fromkeys((row.name, *row.aliases), row.call))
            return row.call
        _check_declaration(
            reference, given
        )  # rows of our own only where they fail: imports are the faster
        raise failed

    return declare


# ------------------------------------------------------------------ reading a declaration


def _make_row(reference: Callable[..., Any], given: Mapping[str, Any], foreign: bool) -> Row:
    layout = Layout.from_function(reference, getattr(given["results"], "_fields", given["results"]))
    if given["variadic"] is not None:
        return _make_variadic_row(reference, layout, given, foreign)
    row = _make_layout_row(with_positional_options(reference), layout, given, foreign)
    row.call = _make_callable(row)
    return row


def _make_variadic_row(
    reference: Callable[..., Any], layout: Layout, given: Mapping[str, Any], foreign: bool
) -> Row:
    """The row of two operands of an op that takes any number, by which the others are found."""
    if layout.arrays != (given["variadic"],) or layout.optional or layout.cotangents:
        raise OdysseyError(
            f"op {layout.name}: variadic={given['variadic']!r}; it must be the only array "
            f"parameter, without a default, as in def {layout.name}({given['variadic']}, /, axis=0)"
            ", and the result one array"
        )
    positional = with_positional_options(reference)

    def make(count: int) -> tuple[Row, Callable[..., Any]]:
        kernel = given["kernel"] and spread_operands(given["kernel"], count)
        own = {**given, "kernel": kernel}
        row = _make_layout_row(
            spread_operands(positional, count), layout.with_arity(count), own, foreign
        )
        if not foreign:
            row.array_pullbacks = make_array_pullbacks(row)
            handle_halves(row)
            handle_devices(row)
        return row, _make_callable(row)

    members = ArityRows(make)
    row = members.head
    row.with_arity = members
    call: Any = set_op_metadata(variadic_caller(layout, members, given["bunches"]), row)
    call.__wrapped__ = reference
    members.called_by(call)
    return row


def _make_layout_row(
    reference: Callable[..., Any], layout: Layout, given: Mapping[str, Any], foreign: bool
) -> Row:
    """The row that a reference, with options by position, and the arguments of ``op`` declare."""
    if layout.cotangents:
        check_results(layout, given)
    linear, selects, rearranges = given["linear"], given["selects"], given["rearranges"]
    facts: dict[str, Any] = {
        name: given[name]
        for name in ("elementwise", "linear", "prepare", "canonical", "ufunc", "numpy", "aliases")
    }
    facts |= {name: given[name] for name in ("kinks", "samples", "rejects", "precision")}
    facts |= read_meaning(layout, given)
    facts |= read_rules(layout, given, foreign)
    facts |= read_selection_rules(layout, given, facts, foreign)
    kernel = given["kernel"] or given["ufunc"] or reference
    with_residual = given["with_residual"]
    if foreign:
        kernel = copy_if_retained(layout, kernel)
        if with_residual:
            with_residual = copy_residual_if_retained(layout, with_residual, given["real"])
    infer = given["infer"]
    if infer is None:
        infer = (
            elementwise_rule(layout, reference) if given["elementwise"] else missing_rule(layout)
        )
    if layout.cotangents:
        several = facts["pack_results"] = getattr(given["results"], "_make", tuple)
        facts |= make_result_rows(layout)
        kernel = check_result_count(layout, several, kernel, "the reference")
        infer = check_result_count(layout, tuple, infer, "infer")
    if given["elementwise"] and layout.name in SIZES and not (facts["kernels"] or foreign):
        facts["kernels"] = [scalar_loop(given["scalar"], len(layout.arrays))]
    if facts["kernels"] and not foreign:
        count = len(layout.arrays)
        source = refuse_complex(layout.name, kernel) if given["real"] else kernel
        facts["device_source"] = source, with_residual
        kernel, with_residual = select_by_size(
            layout.name, facts["kernels"], count, kernel, with_residual
        )
    if given["real"]:
        kernel = refuse_complex(layout.name, kernel)
        infer = refuse_complex(layout.name, infer)
    return Row(
        layout,
        **facts,
        selects=bool(selects),
        rearranges=bool(rearranges) or (linear and not foreign),
        foreign=foreign,
        reference=reference,
        kernel=kernel,
        with_residual=with_residual,
        infer=infer,
    )


def _check_declaration(reference: Any, given: Mapping[str, Any]) -> None:
    """Refuse what cannot declare an op, before anything is made of it."""
    check_callable("op", reference)
    who = f"op {getattr(reference, '__name__', '')}"
    for name in ("elementwise", "linear", "real"):
        check_flag(who, name, given[name])
    with_rules = ["vjp", "jvp"]
    for name in ("selects", "rearranges"):
        if isinstance(given[name], Mapping):
            with_rules.append(name)
        else:
            check_flag(who, name, given[name])
    named = isinstance(given["vmap"], str) and given["vmap"] in BATCH_RULES
    if given["vmap"] is not None and not named:
        check_callable(f"{who}: vmap", given["vmap"])
    if given["keeps_dtype"] is not None:
        check_flag(who, "keeps_dtype", given["keeps_dtype"])
    for name in (
        "ufunc",
        "kernel",
        "with_residual",
        "infer",
        "prepare",
        "canonical",
        "scalar",
    ):
        if given[name] is not None:
            check_callable(f"{who}: {name}", given[name])
    for name in with_rules:
        rules = {} if given[name] is None else given[name]
        if not isinstance(rules, Mapping):
            raise DTypeError(
                f"{who}: {name}={format_value(rules)}; pass a dictionary of rules by array"
            )
        for array, rule in rules.items():
            if rule is not None:
                check_callable(f"{who}: {name}[{format_value(array)}]", rule)
    for name in ("numpy", "aliases", "samples", "rejects"):
        if not isinstance(given[name], (list, tuple)):
            raise DTypeError(f"{who}: {name}={format_value(given[name])}; pass a list")
    if given["precision"] not in PRECISIONS:
        raise DTypeError(
            f"{who}: precision={format_value(given['precision'])}; choose one of "
            f"{', '.join(map(repr, PRECISIONS))}"
        )
    for alias in given["aliases"]:
        check_name(f"{who}: aliases", alias)
    names = getattr(given["results"], "_fields", given["results"])
    valid = isinstance(names, (list, tuple))
    if not valid or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise DTypeError(
            f"{who}: results={format_value(given['results'])}; pass the names of the results, or "
            "the class of a named tuple"
        )
    check_meaning(who, given)


# ------------------------------------------------------------------ rules


def read_rules(layout: Layout, given: Mapping[str, Any], foreign: bool) -> dict[str, Any]:
    """Return the fields of a row that follow from its ``vjp`` and ``jvp``."""
    vjp, jvp = given["vjp"] or {}, given["jvp"] or {}
    _check_rule_names(layout, vjp, jvp, given["with_residual"])
    arrays, options = layout.arrays, set(layout.options)
    elementwise = given["elementwise"]
    if layout.variadic:
        vjp, jvp = (dict.fromkeys(arrays, rules.get(layout.variadic)) for rules in (vjp, jvp))
    reverse = {name: vjp.get(name) for name in arrays}
    forward = {name: jvp.get(name, reverse[name] if elementwise else None) for name in arrays}
    wishes = [layout.requested_names(rule) if (rule := reverse[name]) else () for name in arrays]
    needs = [frozenset(wished) - options for wished in wishes]
    for name, kept in zip(arrays, needs, strict=True):
        rule = forward[name]
        if rule is None or rule is reverse[name]:
            continue
        wished = rule_arguments(rule) if layout.cotangents else layout.requested_names(rule)
        more = set(wished) - kept - options
        if more.difference(layout.specs):
            raise OdysseyError(
                f"op {layout.name}: the forward rule of {name!r} asks for "
                f"{', '.join(sorted(more))}, which its reverse rule does not keep"
            )
    if layout.variadic:
        pulls = [adapt_variadic_rule(layout, reverse[name], k) for k, name in enumerate(arrays)]
        pushes = [adapt_variadic_rule(layout, forward[name], k) for k, name in enumerate(arrays)]
    else:
        take, give = (
            (adapt_multi_output_vjp, adapt_multi_output_jvp)
            if layout.cotangents
            else (adapt_rule, adapt_rule)
        )
        pulls = [take(layout, reverse[name]) for name in arrays]
        pushes = [
            pull if forward[name] is reverse[name] else give(layout, forward[name])
            for name, pull in zip(arrays, pulls, strict=True)
        ]
    if foreign:
        pulls = [check_rule(layout, k, pull) for k, pull in enumerate(pulls)]
        pushes = [check_rule(layout, k, push, True) for k, push in enumerate(pushes)]
    uses_specs = any(name.endswith("_spec") for kept in needs for name in kept)
    keeps_dtype = elementwise if given["keeps_dtype"] is None else given["keeps_dtype"]
    return {
        "vjp": reverse,
        "jvp": forward,
        "needs": needs,
        "pullbacks": pulls,
        "pushforwards": None if given["linear"] and not jvp else pushes,
        "keeps_dtype": keeps_dtype and not uses_specs and None not in pulls,
    }


def _check_rule_names(
    layout: Layout, vjp: Mapping[str, Any], jvp: Mapping[str, Any], with_residual: Any
) -> None:
    """Refuse rules that name what the row does not have."""
    known = layout.rule_names
    arrays = (layout.variadic,) if layout.variadic else layout.arrays
    for rules in (vjp, jvp):
        for name, rule in rules.items():
            wrong = [name] if name not in arrays else []
            several = bool(layout.cotangents) and rules is vjp
            wished = (
                (layout.names_after_cotangents(rule) if several else rule_arguments(rule))
                if rule
                else ()
            )
            if rule and not wished and takes_no_arguments(rule):
                first = "cotangent" if rules is vjp else "tangent"
                raise OdysseyError(
                    f"op {layout.name}: the rule of {name!r} takes nothing; it must take the "
                    f"{first} first, and then what it asks for"
                )
            wrong += [asked for asked in wished if asked not in known]
            wrong += ["residual"] if rule and takes_residual(rule) and not with_residual else []
            if wrong:
                raise OdysseyError(
                    f"op {layout.name}: the rule of {name!r} names {', '.join(wrong)}; "
                    f"known are {', '.join(sorted(known))}"
                )


def read_selection_rules(
    layout: Layout, given: Mapping[str, Any], facts: Mapping[str, Any], foreign: bool
) -> dict[str, Any]:
    """Return the rules of the selection mask, see ``selects`` and ``rearranges`` of ``op``."""
    selects = given["selects"]
    rules = selects or given["rearranges"]
    kept = frozenset().union(*facts["needs"])
    # What only chooses has finite slopes; those of rows from outside are not known.
    only_chooses = selects is True and not foreign
    by_value = not kept.isdisjoint((*layout.arrays, *layout.results))
    found = {"has_poles": given["elementwise"] and by_value and not only_chooses}
    if isinstance(rules, Mapping):
        check_selection_rules(layout, rules, kept)
        chosen = [adapt_rule(layout, rules.get(name)) for name in layout.arrays]
        found |= {"selection_pullbacks": chosen, "selection_pushforwards": chosen}
    return found


# ------------------------------------------------------------------ decomposition, lowering


_FACTS = (
    *("scalar", "decomposition", "primitive", "lowering", "guess"),
    *("requires", "raises", "has_side_effect", "kernels", "vmap"),
)

PRIMITIVES = (
    *("reduce", "product", "view", "gather", "scatter", "assemble", "scan", "decompose"),
    *("random", "call"),
)
"""The kinds of rows that are neither elementwise nor made of others.

What they do with elements: sum or search them along axes; multiply and sum them; arrange them
anew; read them, or write or add them, where indices or their order say; join arrays; take each
along an axis from those before it; take matrices apart, as LAPACK does; make random ones of the
state of a generator; call a function of a library on each, which is what an elementwise row
without a scalar does.
"""


def check_meaning(who: str, given: Mapping[str, Any]) -> None:
    """Refuse what is said of a meaning in values that it cannot have."""
    for name in ("decomposition", "lowering", "guess", "requires"):
        several = given[name].values() if isinstance(given[name], Mapping) else (given[name],)
        for one in several if given[name] is not None else ():
            check_callable(f"{who}: {name}", one)
    for name in ("raises", "has_side_effect"):
        check_flag(who, name, given[name])
    if given["primitive"] is not None and not isinstance(given["primitive"], str):
        raise DTypeError(
            f"{who}: primitive={format_value(given['primitive'])}; pass a str, or leave it out"
        )
    kernels = given["kernels"]
    if not isinstance(kernels, (list, tuple)) or not all(type(k) is Kernel for k in kernels):
        raise DTypeError(
            f"{who}: kernels={format_value(kernels)}; pass a list of Kernel(name, run, ...)"
        )


def read_meaning(layout: Layout, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared facts about a row, checked against its arrays and options."""
    facts = {name: given[name] for name in _FACTS}
    names = [*layout.arrays, *layout.options]
    if given["vmap"] == "along" and "axis" not in layout.options:
        raise OdysseyError(
            f"op {layout.name}: vmap='along' needs an option named axis; write a batch rule"
        )
    for what in ("scalar", "decomposition", "lowering", "guess", "requires", "vmap"):
        several = given[what].values() if isinstance(given[what], Mapping) else (given[what],)
        for one in several:
            if not callable(one) or _is_variadic_function(one):
                continue
            found = _parameter_names(one)[what in ("lowering", "vmap") :]
            if found != names:
                raise OdysseyError(
                    f"op {layout.name}: {what} takes ({', '.join(found)}); it must take the row's "
                    f"arrays and options, ({', '.join(names)})"
                )
    for kernel in given["kernels"]:
        if kernel.together is not None and kernel.together[0] not in layout.options:
            raise OdysseyError(
                f"op {layout.name}: together={kernel.together[0]!r} of a kernel; name an option of "
                "the row in which calls may differ"
            )
    primitive = given["primitive"]
    if primitive is None:
        return facts
    if primitive not in PRIMITIVES:
        raise OdysseyError(
            f"op {layout.name}: primitive={primitive!r}; choose one of {', '.join(PRIMITIVES)}"
        )
    if given["scalar"] or given["decomposition"]:
        raise OdysseyError(
            f"op {layout.name}: a row with {'scalar' if given['scalar'] else 'decomposition'} is "
            "not a primitive; drop primitive="
        )
    return facts


def _is_variadic_function(given: Callable[..., Any]) -> bool:
    """Whether a function takes any number of operands, as one of a variadic row may."""
    return bool(getattr(getattr(given, "__code__", None), "co_flags", 0) & CO_VARARGS)


def _parameter_names(given: Callable[..., Any]) -> list[str]:
    code = getattr(given, "__code__", None)
    if code is None:
        return [p.name for p in parameters_of(given)]
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


# ------------------------------------------------------------------ several results


# What says of the one result of an op how it follows from its operands.
_SINGLE_RESULT_ONLY = (
    "elementwise",
    "linear",
    "selects",
    "rearranges",
    "keeps_dtype",
    "ufunc",
    "scalar",
)


def check_results(layout: Layout, given: Mapping[str, Any]) -> None:
    """Refuse names of results, and what does not go together with them; see ``op``.

    Raises:
        OdysseyError: naming what.
    """
    results, name = layout.results, layout.name
    if len(results) == 1:
        raise OdysseyError(f"op {name}: results= has one name; leave it out, and return no tuple")
    taken = {*layout.arrays, *layout.options, *layout.specs, "out", "residual"}
    wrong = [result for result in results if result in taken or results.count(result) > 1]
    if wrong:
        raise OdysseyError(
            f"op {name}: results= has {wrong[0]!r}, which names something else of it already"
        )
    both = [fact for fact in _SINGLE_RESULT_ONLY if given[fact]]
    if both:
        raise OdysseyError(
            f"op {name}: results= and {both[0]}= do not go together; write infer=, vjp= and jvp= "
            "for an op of several results"
        )
    if PASS in (given["vjp"] or {}).values() or PASS in (given["jvp"] or {}).values():
        raise OdysseyError(f"op {name}: PASS is the rule of an op of one result; write it out")


def make_result_rows(layout: Layout) -> dict[str, Any]:
    """Return the fields that a row with several results has in addition."""
    parts = [_result_row(layout, j) for j in range(len(layout.results))]
    return {"result_rows": parts, "propagate_selection": _drop_selection}


def _drop_selection(k: int, g: Any, r: Any, chosen: Any) -> None:
    """Return None: a gradient mask is not propagated through such a call."""


def _result_row(layout: Layout, j: int) -> Row:
    """The row of the node of result number ``j``."""
    return Row(
        Layout(f"{layout.name}.{layout.results[j]}", [layout.name]),
        pullbacks=[_to_multi_output(j)],
        pushforwards=[lambda t, kept, specs: t.parts.get(j)],
        propagate_selection=_drop_selection,
    )


def _to_multi_output(j: int) -> Callable[..., MultiOutput]:
    return lambda g, kept, specs: MultiOutput({j: g})


# ------------------------------------------------------------------ callables


def operator_form(function: Any) -> Callable[..., Any]:
    """The op as Python's operators call it: it gives way to containers that have it too."""
    return _make_callable(function.row, general_operator)


def _make_callable(row: Row, general: Callable[..., Any] = general) -> Callable[..., Any]:
    # The shortcuts know the specs of Variables only; a rule may want that of a plain operand.
    others = {f"{name}_spec" for name in row.arrays}
    own = all(
        needs & others <= {f"{name}_spec"}
        for name, needs in zip(row.arrays, row.needs, strict=True)
    )
    # Nor do they tell the recording of rows from outside.
    plain = own and not (row.options or row.optional or row.foreign)
    plain = plain and row.with_residual is None and all(row.vjp.values()) and not row.cotangents
    make: Any = {1: fast_calls.unary, 2: fast_calls.binary}.get(len(row.arrays)) if plain else None
    # Functions of others may record themselves: only the general path draws an id behind them.
    make = make or (general_caller if row.cotangents or row.foreign else fast_calls.with_options)
    call: Any = make(row, general)
    return set_op_metadata(call, row)


def set_op_metadata(call: Any, row: Row) -> Callable[..., Any]:
    """A callable with the name and the signature of its op."""
    call.__name__ = call.__qualname__ = row.name
    call.__module__ = row.module
    call.__doc__ = row.doc
    call.__wrapped__ = row.reference  # whose signature help() shows
    call.row = row
    declared: Callable[..., Any] = call
    return declared
