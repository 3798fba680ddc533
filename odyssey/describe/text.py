"""Descriptions of ops as plain text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from odyssey.describe.entries import Entry, dtypes_of, entries
from odyssey.describe.sources import helpers_of, rule_text
from odyssey.devices.arrays import ARRAYS
from odyssey.spec import Spec
from odyssey.table.declare import Row
from odyssey.table.samples import Reject, Sample

__all__ = ["dtype_line", "entry_text", "listing"]

_WIDTH = 100
_LABEL = 18


def listing() -> str:
    """Return a table of all ops: call, differentiable operands, meaning."""
    rows = [("CALL", "GRADIENT IN", "MEANING")]
    for entry in sorted(entries().values(), key=lambda entry: entry.name):
        call = entry.signature.replace(", *, tape=None)", ")").replace(", tape=None)", ")")
        gradient = ", ".join(entry.differentiable) or "-"
        rows.append((call, gradient if entry.row else "of its ops", entry.meaning))
    first, second = (_column(rows, k) for k in (0, 1))
    lines = []
    for call, gradient, meaning in rows:
        start = f"{call:<{first}}  "
        if len(call) > first:
            lines.append(call)
            start = " " * (first + 2)
        lines.append(f"{start}{gradient:<{second}}  {meaning}")
    lines += ["", "All take tape= too. 'python -m odyssey ops NAME' describes one in full."]
    return "\n".join(lines)


def _column(rows: list[tuple[str, str, str]], k: int) -> int:
    """Return the width of a column; cells above 40 characters get a separate line."""
    return max(len(row[k]) for row in rows if len(row[k]) <= 40)


# ------------------------------------------------------------------ one entry


def entry_text(entry: Entry) -> str:
    """Return the description of one op: its docstring, rules, dtypes and samples.

    >>> from odyssey.describe import find
    >>> print(entry_text(find("exp")).partition("by hand")[0].rstrip())
    exp(x, /, *, tape=None)
    <BLANKLINE>
        Elementwise exponential, ``e ** x``.
    <BLANKLINE>
    family            odyssey.ops.elementwise.elementary
    NumPy             np.exp
    derivative in x   mul(g, out)
    forward in x      derived: the derivative, with the tangent for g
    a node keeps      out
    """
    lines = [entry.signature, "", textwrap.indent(_unindented(entry.function.__doc__), " " * 4), ""]
    lines += _with_label("family", [entry.module])
    lines += _with_label("also", [", ".join(entry.aliases)] if entry.aliases else [])
    lines += _with_label("NumPy", [", ".join(entry.numpy)] if entry.numpy else [])
    if entry.row is None:
        lines += _with_label("derivative", ["that of the ops it is made of"])
        return "\n".join(lines)
    return "\n".join([*lines, *_row_lines(entry.row)])


def _row_lines(row: Row) -> Iterator[str]:
    backward = (
        f"od.backward.{row.name}({', '.join((*(row.cotangents or ('g',)), *row.requested_names))})"
    )
    yield from _derivatives(row)
    yield from _with_label("a node keeps", _saved_arrays(row))
    yield from _with_label("by hand", [backward] if any(row.vjp.values()) else [])
    yield from _semantics(row)
    yield from _with_label("kinks", textwrap.wrap(row.kinks, _WIDTH - _LABEL))
    yield from _with_label("dtypes", textwrap.wrap(dtype_line(row), _WIDTH - _LABEL))
    yield from _with_label("samples", [_format_sample(row, case) for case in row.samples])
    rejects = [line for case in row.rejects for line in _format_reject(row, case)]
    yield from _with_label("rejects", rejects)


def _semantics(row: Row) -> Iterator[str]:
    """Yield lines on decomposition, primitive, side effects and other kernels of a row."""
    for label, function in (("decomposition", row.decomposition), ("on numbers", row.scalar)):
        if function:
            yield from _with_label(label, rule_text(function).splitlines())
            for helper in helpers_of(function):
                yield from _with_label("where", helper.splitlines())
    yield from _with_label("in vmap", _batch_rule_text(row).splitlines())
    yield from _with_label("primitive", [row.primitive] if row.primitive else [])
    yield from _with_label(
        "raises", ["depending on values, not only on shapes"] if row.raises else []
    )
    yield from _with_label(
        "side effect", ["no call is removed or moved"] if row.has_side_effect else []
    )
    yield from _with_label("other kernels", [f"{k.name}, on {k.device}" for k in row.kernels])


_NAMED_BATCH_RULES = {
    "leading": "the op itself, with the batch as a leading axis",
    "along": "the op itself, along the axis behind the batch",
    "loop": "one call for each example",
}


def _batch_rule_text(row: Row) -> str:
    if row.vmap is not None:
        return rule_text(row.vmap) if callable(row.vmap) else _NAMED_BATCH_RULES[row.vmap]
    if row.elementwise:
        return "derived: elementwise, with the batch as a leading axis"
    return "derived: the decomposition" if row.decomposition else _NAMED_BATCH_RULES["loop"]


def _derivatives(row: Row) -> Iterator[str]:
    for name, rule in row.vjp.items():
        text = rule_text(rule) if rule else "none: not differentiable in it"
        yield from _with_label(f"derivative in {name}", text.splitlines())
    for name, rule in row.vjp.items():
        if rule:
            yield from _with_label(f"forward in {name}", _forward_text(row, name).splitlines())
    rules = [rule for rule in (*row.vjp.values(), *row.jvp.values()) if rule]
    for helper in dict.fromkeys(text for rule in rules for text in helpers_of(rule)):
        yield from _with_label("where", helper.splitlines())


def _forward_text(row: Row, name: str) -> str:
    rule = row.jvp[name]
    if rule is None:
        return "derived: the op itself, of the tangent"
    if rule is row.vjp[name]:
        return "derived: the derivative, with the tangent for g"
    return rule_text(rule)


def _saved_arrays(row: Row) -> list[str]:
    """Return lines on the arrays that the rules of each operand need."""
    by_operand = {}
    for name, needs in zip(row.arrays, row.needs, strict=True):
        if row.vjp[name]:
            arrays = (*row.arrays, *row.results)
            by_operand[name] = ", ".join(n for n in arrays if n in needs) or "nothing"
    if len(set(by_operand.values())) <= 1:
        return list(by_operand.values())[:1]
    return [f"{names} for the gradient of {operand}" for operand, names in by_operand.items()]


def dtype_line(row: Row) -> str:
    """Return the dtypes that the op accepts, as ``float32, float64, int64 → float64``."""
    pairs = dtypes_of(row)
    if not pairs:
        return "not tried, there are no samples"
    return ", ".join(a if a == b else f"{a} → {b}" for a, b in pairs.items())


# ------------------------------------------------------------------ samples and rejects


def _format_sample(row: Row, case: Sample) -> str:
    return _format_sample_call(row, case.operands, case.options)


def _format_reject(row: Row, case: Reject) -> list[str]:
    call = _format_sample_call(row, case.operands, case.options)
    return [call, f"    raises {case.error.__name__}: ...{case.match}..."]


def _format_sample_call(row: Row, operands: Iterable[Any], options: dict[str, Any]) -> str:
    """Format a call, with shapes for random arrays, as ``matmul([2, 3], [3])``."""
    arguments = [str(list(o)) if isinstance(o, tuple) else _format_operand(o) for o in operands]
    arguments += [f"{name}={_format_operand(value)}" for name, value in options.items()]
    return f"{row.name}({', '.join(arguments)})"


def _format_operand(value: Any) -> str:
    if isinstance(value, tuple):
        inner = ", ".join(map(_format_operand, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, ARRAYS) and value.size > 6:
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, ARRAYS):
        return f"array({value.tolist()})"
    if isinstance(value, slice):
        return f"slice({value.start}, {value.stop}, {value.step})"
    if isinstance(value, Spec):
        return str(value)
    return "..." if value is ... else repr(value)


# ------------------------------------------------------------------ layout


def _with_label(label: str, lines: list[str]) -> list[str]:
    """Return lines to the right of a label, or below it if the label is too long."""
    if not lines:
        return []
    pad = " " * _LABEL
    if len(label) >= _LABEL:
        return [label, *(pad + line for line in lines)]
    return [f"{label:<{_LABEL}}{lines[0]}", *(pad + line for line in lines[1:])]


def _unindented(text: str | None) -> str:
    first, _, rest = (text or "").strip().partition("\n")
    return f"{first}\n{textwrap.dedent(rest)}".strip()
