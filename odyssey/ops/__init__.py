"""The ops: ``od.ops.<name>(arrays..., options..., tape=None)`` for every row of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odyssey.table.declare import COMPOSITES, OPS, PASS, Kernel, Row, op
from odyssey.table.declare import sealed as _sealed
from odyssey.table.scope import no_grad
from odyssey.table.value import Symbol

__all__ = ["COMPOSITES", "OPS", "PASS", "Kernel", "Row", "Symbol", "no_grad", "op"]


def __getattr__(name: str) -> Callable[..., Any]:
    """Every op is an attribute of this module; say so when a name is none."""
    if not _sealed():  # the families are being imported, and each is looked for here first
        raise AttributeError(name)
    import difflib

    near = difflib.get_close_matches(name, [*OPS, *COMPOSITES])
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise AttributeError(f"odyssey.ops has no op {name!r}{hint}")
