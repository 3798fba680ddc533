"""The page of all ops, ``docs/ops.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby

from odyssey.describe.entries import Entry, entries
from odyssey.describe.sources import rule_text
from odyssey.describe.text import dtype_line

__all__ = ["markdown"]

_HEAD = """\
# The ops

Made from the table of ops by `python -m tools.reference`; do not edit.

Every op takes `tape=None` besides what is shown. Parameters before a `/` are arrays, Variables or
numbers, which broadcast where the op is elementwise. Where NumPy has a function of the name, its
other options come too, as far as NumPy's function takes them on Variables: `ops.sum(x, 0,
dtype=np.float32)`, `ops.mean(x, where=mask)`, `ops.max(x, initial=0)`. A derivative is written in
ops: `g` is the cotangent, `out` the result, `x_spec` shape and dtype of `x`. Gradients of
broadcast operands are summed back, and conjugated where they are complex, outside of the rules.
Dtypes are those that all test cases of the op compute with, and what comes out. `python -m odyssey
ops NAME` tells more.
"""


def markdown() -> str:
    """Return the page: a section for each family, an entry for each op."""
    families = [(family, list(members)) for family, members in groupby(entries().values(), _family)]
    index = [f"* [{_heading(family)}](#{family})" for family, _ in families]
    lines = [_HEAD, *index]
    for family, members in families:
        lines += ["", f'<a id="{family}"></a>', "", f"## {_heading(family)}"]
        for entry in members:
            lines += ["", *_entry_lines(entry)]
    return "\n".join(lines) + "\n"


def _family(entry: Entry) -> str:
    return entry.module


def _heading(module: str) -> str:
    """The first line of the family's docstring."""
    return (sys.modules[module].__doc__ or module).strip().partition("\n")[0].rstrip(".:")


def _entry_lines(entry: Entry) -> Iterator[str]:
    call = entry.signature.replace(", *, tape=None)", ")").replace(", tape=None)", ")")
    yield f"### `{call}`"
    yield ""
    yield entry.meaning.replace("``", "`")
    yield ""
    if entry.aliases:
        yield f"* Also `{'`, `'.join(entry.aliases)}`"
    if entry.row is None:
        yield "* Made of other ops, whose derivatives it has"
        return
    for name, rule in entry.row.vjp.items():
        if rule:
            yield from _code(f"Derivative in `{name}`", rule_text(rule).splitlines())
    if not entry.differentiable:
        yield "* Not differentiable"
    if entry.row.decomposition:
        yield from _code("Decomposition", rule_text(entry.row.decomposition).splitlines())
    if entry.row.kinks:
        yield f"* Kinks: {entry.row.kinks}"
    yield f"* Dtypes: {dtype_line(entry.row)}"


def _code(label: str, lines: list[str]) -> Iterator[str]:
    if len(lines) == 1:
        yield f"* {label}: `{lines[0]}`"
    else:
        yield f"* {label}:"
        yield from ["", "  ```python", *(f"  {line}".rstrip() for line in lines), "  ```", ""]
