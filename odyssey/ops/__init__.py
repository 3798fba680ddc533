"""The ops: ``od.ops.<name>(arrays..., options..., tape=None)`` for every row of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Importing a family enters its rows into the table.
from odyssey.ops import (  # noqa: F401
    activations,
    arithmetic,
    arrangement,
    choice,
    complex_numbers,
    creation,
    cross_entropy,
    elementary,
    error_function,
    gathering,
    indexing,
    joining,
    matrix,
    neural,
    rectifiers,
    reductions,
    rounding,
    scans,
    shape,
    statistics,
    trigonometry,
)
from odyssey.ops.operators import Operators
from odyssey.ops.rules import bare
from odyssey.ops.scope import no_grad
from odyssey.ops.table import COMPOSITES, OPS, PASS, Row, op
from odyssey.ops.values import Symbol

__all__ = ["COMPOSITES", "OPS", "PASS", "Operators", "Row", "Symbol", "no_grad", "op"]

for _row in OPS.values():
    _row.bare = bare(_row)
    for _name in (_row.name, *_row.aliases):
        globals()[_name] = _row.call
for _function in COMPOSITES.values():
    for _name in (_function.__name__, *_function.aliases):  # type: ignore[attr-defined]
        globals()[_name] = _function


def __getattr__(name: str) -> Callable[..., Any]:
    """Every op is an attribute of this module; say so when a name is none."""
    import difflib

    near = difflib.get_close_matches(name, [*OPS, *COMPOSITES])
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise AttributeError(f"odyssey.ops has no op {name!r}{hint}")
