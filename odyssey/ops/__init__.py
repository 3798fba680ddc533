"""The ops: ``od.ops.<name>(arrays..., options..., tape=None)`` for every row of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odyssey.table import registry as _registry
from odyssey.table.declare import COMPOSITES, OPS, PASS, Kernel, Row, op
from odyssey.table.kernel_overrides import use_kernels
from odyssey.table.scope import no_grad
from odyssey.table.value import Symbol

__all__ = ["COMPOSITES", "OPS", "PASS", "Kernel", "Row", "Symbol", "no_grad", "op", "use_kernels"]


def __getattr__(name: str) -> Callable[..., Any]:
    """Every op is an attribute of this module, whatever room it lives in; its family loads here."""
    found = _registry.function_of(name)
    if found is not None:
        globals()[name] = found
        return found
    # An import of a family looks for it here, and test runners and editors for private names.
    if f"{__name__}.{name}" in _registry.OP_MODULES or name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odyssey.suggestions import MISSING_OPS, did_you_mean

    guess = did_you_mean(name, _registry.op_names())
    hint = f"; {MISSING_OPS[name]}" if name in MISSING_OPS else guess
    raise AttributeError(f"odyssey.ops has no op {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_registry.op_names(others=True)})
