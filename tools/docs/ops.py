"""Reference pages of ops: one each, and one for each family."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby

from odyssey.describe.entries import Entry, entries
from odyssey.describe.sources import helpers_of, rule_text
from odyssey.describe.text import dtype_line
from tools.docs.docstrings import parse, prose, to_rst
from tools.docs.objects import MODULES, documented, link, title_lines, uses_lines
from tools.docs.peer_names import TORCH_NAMES
from tools.docs.plots import Plot, draw, plot_of
from tools.reference.native import calls_of, way_of

__all__ = ["families", "family_page", "op_page", "ops_page"]

_PACKAGES = {
    "odyssey.ops.elementwise": "Elementwise functions",
    "odyssey.ops.reductions": "Reductions and cumulative functions",
    "odyssey.ops.structure": "Shapes, indices and assembly",
    "odyssey.ops.random": "Random numbers",
    "odyssey.linalg": "Linear algebra",
    "odyssey.fft": "Fourier transforms",
    "odyssey.special": "Special functions",
    "odyssey.nn": "Neural networks",
    "odyssey.losses": "Rows of losses",
}
_WAYS = {
    "scalar": "yes, a loop over elements",
    "lowering": "yes, loops, products or views of its own",
    "decomposition": "yes, as its decomposition",
}


@cache
def families() -> Mapping[str, list[Entry]]:
    """Return the ops of each family, by the module of the family."""
    grouped = groupby(entries().values(), lambda entry: entry.module)
    return {module: list(members) for module, members in grouped}


def _family_page(module: str) -> str:
    return f"reference/families/{module.removeprefix('odyssey.')}"


def _heading(module: str) -> str:
    """The first line of the family's docstring."""
    text = (sys.modules[module].__doc__ or module).strip().partition("\n")[0]
    return text.rstrip(".:").replace("``", "")


def _call(entry: Entry) -> str:
    return entry.signature.replace(", *, tape=None)", ")").replace(", tape=None)", ")")


# ------------------------------------------------------------------ pages of many ops


def ops_page() -> str:
    """Return the page of all ops by package and family."""
    lines = [
        *title_lines("Ops"),
        "All operations that a tape records, by family. Most have the name and the signature of",
        "NumPy's or SciPy's function, those of neural networks PyTorch's names. NumPy's functions",
        "and operators on Variables call them: ``np.sin(v)`` is ``od.ops.sin(v)``. Every op takes",
        "``tape=`` as well. On a terminal, ``python -m odyssey ops NAME`` shows what these pages",
        "show; :ref:`genindex` has all names.",
        "",
    ]
    for package, title in _PACKAGES.items():
        members = [m for m in families() if m == package or m.startswith(f"{package}.")]
        lines += title_lines(title, "-")
        for module in members:
            names = ", ".join(_op_link(entry) for entry in families()[module])
            lines += [f":doc:`{_heading(module)} </{_family_page(module)}>`", f"   {names}", ""]
    lines += [".. toctree::", "   :hidden:", ""]
    lines += [f"   /{_family_page(module)}" for module in families()]
    return "\n".join([*lines, ""])


def _op_link(entry: Entry) -> str:
    return f":doc:`{entry.name} </reference/ops/{entry.name}>`"


def family_page(module: str) -> str:
    """Return the page of a family: its docstring, and a table of its ops."""
    parsed = parse(sys.modules[module].__doc__)
    lines = [*title_lines(_heading(module))]
    parsed.summary = ""
    lines += [*to_rst(parsed, link)]
    lines += [".. list-table::", "   :class: odyssey-names", "   :widths: 35 65", ""]
    for entry in families()[module]:
        lines += [f"   * - {_op_link(entry)}", f"     - {prose(entry.meaning, link)}"]
    return "\n".join([*lines, ""])


# ------------------------------------------------------------------ page of one op


def op_page(entry: Entry) -> str:
    """Return the page of an op."""
    lines = [":orphan:", "", *title_lines(entry.name.replace("_", r"\_"))]
    for alias in entry.aliases:
        lines += [f".. index:: single: {alias} (another name of {entry.name})", ""]
    lines += [".. py:currentmodule:: odyssey.ops", ""]
    lines += [f".. py:function:: {_call(entry)}", ""]
    lines += [f"   {line}".rstrip() for line in to_rst(parse(entry.function.__doc__), link)]
    lines += ["", *_plot(entry), ""]
    lines += [".. rst-class:: odyssey-facts", "", *_names(entry)]
    lines += [*_row_facts(entry)] if entry.row else [":Derivative: that of the ops it is made of"]
    lines += [*uses_lines(_full_names(entry)), ""]
    lines += [*(_rules(entry) if entry.row else _definition(entry)), ""]
    return "\n".join(lines)


def _plot(entry: Entry) -> Iterator[str]:
    plot = plot_of(entry)
    if isinstance(plot, Plot):
        yield from (".. raw:: html", "", f"   {draw(plot)}")


def _full_names(entry: Entry) -> list[str]:
    page = f"reference/ops/{entry.name}"
    return [full for full, other in documented().items() if other == page and full not in MODULES]


def _names(entry: Entry) -> Iterator[str]:
    yield f":Family: :doc:`{_heading(entry.module)} </{_family_page(entry.module)}>`"
    others = [
        name.replace("odyssey.", "od.", 1)
        for name in _full_names(entry)
        if name != f"odyssey.ops.{entry.name}" and not name.startswith("odyssey.backward.")
    ]
    if others:
        yield f":Also: {', '.join(f'``{name}``' for name in others)}"
    if entry.numpy:
        yield f":NumPy: {', '.join(f'``{name}``' for name in entry.numpy)}"
    if entry.name in TORCH_NAMES:
        yield f":PyTorch: ``{TORCH_NAMES[entry.name]}``"
    plot = plot_of(entry)
    if isinstance(plot, str):
        yield f":Plot: {plot.replace('no plot: ', 'none, ')}"


def _row_facts(entry: Entry) -> Iterator[str]:
    row = entry.row
    assert row is not None
    if not entry.differentiable:
        yield ":Derivative: not differentiable"
    else:
        arguments = ", ".join((*(row.cotangents or ("g",)), *row.requested_names))
        yield f":By hand: ``od.backward.{row.name}({arguments})``"
    if row.kinks:
        yield f":At kinks: {prose(row.kinks, link)}"
    yield f":Dtypes: {dtype_line(row)}"
    yield f":Native code: {_compiled(entry)}"


def _compiled(entry: Entry) -> str:
    assert entry.row is not None
    calls = calls_of(entry.row)
    if not calls:
        return _WAYS[way_of(entry.row)]
    if entry.name in calls:
        return f"no, a host call, since it is {_articled(calls[entry.name])}"
    return f"yes, with host calls of {', '.join(f'``{name}``' for name in calls)}"


def _articled(reason: str) -> str:
    """Return a reason from the table as the end of "since it is"."""
    words = {
        "it raises errors that its decomposition does not": (
            "an op that raises errors, which its decomposition does not"
        ),
        "faster than its decomposition": "faster than its decomposition",
        "its results are complex": "an op with complex results",
        "LAPACK": "a call of LAPACK",
        "sorting": "a sort",
    }
    return words.get(reason, reason)


def _rules(entry: Entry) -> Iterator[str]:
    row = entry.row
    assert row is not None
    shown: list[tuple[str, str]] = []
    for name, rule in row.vjp.items():
        if rule:
            shown.append((f"Derivative in ``{name}``", rule_text(rule)))
    for name, rule in row.jvp.items():
        if rule is not None and rule is not row.vjp[name]:
            shown.append((f"Forward mode in ``{name}``", rule_text(rule)))
    if row.decomposition:
        shown.append(("Decomposition", rule_text(row.decomposition)))
    functions = [*row.vjp.values(), *row.jvp.values(), row.decomposition]
    helpers = dict.fromkeys(text for rule in functions if rule for text in helpers_of(rule))
    shown += [("Helper of these rules", text) for text in helpers]
    if shown:
        yield from (".. rubric:: Rules as written", "")
        yield from (
            "``g`` is the cotangent, ``t`` the tangent, ``out`` the result, ``x_spec`` shape and",
            "dtype of ``x``. Cotangents of broadcast operands are summed back, and conjugated",
            "where they are complex, outside of the rules.",
            "",
        )
    for label, text in shown:
        yield from (f"{label}:", "", ".. code-block:: python", "")
        yield from (f"   {line}".rstrip() for line in text.splitlines())
        yield ""


def _definition(entry: Entry) -> Iterator[str]:
    """Yield the source of a composite, without its docstring."""
    function = inspect.unwrap(entry.function)
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError:
        return
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef):
        return
    lines = source.splitlines()
    start = node.lineno - 1
    if ast.get_docstring(node) is not None:
        documentation = node.body[0]
        del lines[documentation.lineno - 1 : documentation.end_lineno]
    yield from (".. rubric:: Definition", "", ".. code-block:: python", "")
    yield from (f"   {line}".rstrip() for line in lines[start:])
    yield ""
