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

from odyssey.checks import STUMBLES, flag, function, label, shown
from odyssey.errors import DTypeError, OdysseyError
from odyssey.kernels.sizes import SIZES
from odyssey.spec import Spec
from odyssey.table import fast_calls
from odyssey.table.array_rules import make_array_pullbacks
from odyssey.table.call import general, general_caller, general_operator
from odyssey.table.kernel_selection import scalar_loop, select_by_size
from odyssey.table.meaning import Kernel, check_meaning, read_meaning
from odyssey.table.reading import read_rules, read_selection_rules
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
    copy_if_retained,
    copy_residual_if_retained,
    refuse_complex,
)
from odyssey.table.results import check_results, make_result_rows
from odyssey.table.row import Row
from odyssey.table.samples import Reject, Sample
from odyssey.table.shape_rules import elementwise_rule, missing_rule
from odyssey.table.signature import (
    PASS,
    REQUIRED,
    Layout,
    Rule,
    rule_arguments,
    with_positional_options,
)
from odyssey.table.variadic import ArityRows, spread_operands, variadic_caller

__all__ = [
    "COMPOSITES",
    "FOREIGN",
    "OPS",
    "PASS",
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


def op(
    *,
    results: Sequence[str] | type[tuple[Any, ...]] = (),
    variadic: str | None = None,
    bunches: bool = False,
    vjp: Mapping[str, Rule | None] | None = None,
    jvp: Mapping[str, Rule] | None = None,
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
    lowering: Callable[..., Any] | None = None,
    requires: Callable[..., Any] | None = None,
    raises: bool = False,
    has_side_effect: bool = False,
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
            of the reference, which returns a node, or ``NotImplemented``.
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
            _check(reference, given)
        try:
            row = _declared(reference, given, foreign)
        except STUMBLES as error:
            failed = error
        else:
            if foreign:
                FOREIGN.update(dict.fromkeys((row.name, *row.aliases), row.call))
            return row.call
        _check(reference, given)  # rows of our own only where they fail: imports are the faster
        raise failed

    return declare


# ------------------------------------------------------------------ reading a declaration


def _declared(reference: Callable[..., Any], given: Mapping[str, Any], foreign: bool) -> Row:
    layout = Layout.read(reference, getattr(given["results"], "_fields", given["results"]))
    if given["variadic"] is not None:
        return _read_members(reference, layout, given, foreign)
    row = _read(with_positional_options(reference), layout, given, foreign)
    row.call = _callable(row)
    return row


def _read_members(
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
        row = _read(spread_operands(positional, count), layout.of(count), own, foreign)
        if not foreign:
            row.array_pullbacks = make_array_pullbacks(row)
        return row, _callable(row)

    members = ArityRows(make)
    row = members.head
    row.with_arity = members
    call: Any = set_op_metadata(variadic_caller(layout, members, given["bunches"]), row)
    call.__wrapped__ = reference
    members.called_by(call)
    return row


def _read(
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
    facts |= {name: given[name] for name in ("kinks", "samples", "rejects")}
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


def _check(reference: Any, given: Mapping[str, Any]) -> None:
    """Refuse what cannot declare an op, before anything is made of it."""
    function("op", reference)
    who = f"op {getattr(reference, '__name__', '')}"
    for name in ("elementwise", "linear", "real"):
        flag(who, name, given[name])
    with_rules = ["vjp", "jvp"]
    for name in ("selects", "rearranges"):
        if isinstance(given[name], Mapping):
            with_rules.append(name)
        else:
            flag(who, name, given[name])
    if given["keeps_dtype"] is not None:
        flag(who, "keeps_dtype", given["keeps_dtype"])
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
            function(f"{who}: {name}", given[name])
    for name in with_rules:
        rules = {} if given[name] is None else given[name]
        if not isinstance(rules, Mapping):
            raise DTypeError(f"{who}: {name}={shown(rules)}; pass a dictionary of rules by array")
        for array, rule in rules.items():
            if rule is not None:
                function(f"{who}: {name}[{shown(array)}]", rule)
    for name in ("numpy", "aliases", "samples", "rejects"):
        if not isinstance(given[name], (list, tuple)):
            raise DTypeError(f"{who}: {name}={shown(given[name])}; pass a list")
    for alias in given["aliases"]:
        label(f"{who}: aliases", alias)
    names = getattr(given["results"], "_fields", given["results"])
    valid = isinstance(names, (list, tuple))
    if not valid or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise DTypeError(
            f"{who}: results={shown(given['results'])}; pass the names of the results, or the "
            "class of a named tuple"
        )
    check_meaning(who, given)


def operator_form(function: Any) -> Callable[..., Any]:
    """The op as Python's operators call it: it gives way to containers that have it too."""
    return _callable(function.row, general_operator)


def _callable(row: Row, general: Callable[..., Any] = general) -> Callable[..., Any]:
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
