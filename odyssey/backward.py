"""The backward functions of all ops, on plain arrays: ``od.backward.<op>(g, ...)``.

Each takes the cotangent of the result, then what the op's rules ask for, in the order of
``od.backward.TABLE[name].__signature__``: arrays, ``out``, specs, options. It returns one array
for each differentiable operand, summed back to the operand's shape where the operand was given.

>>> import odyssey as od
>>> g_x, g_y = od.backward.multiply(1.0, 2.0, 3.0)
>>> float(g_x), float(g_y)
(3.0, 2.0)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.ops.fit import fit
from odyssey.ops.table import OPS, REQUIRED, Row, asked
from odyssey.spec import spec_of

__all__ = ["TABLE"]


def _values(row: Row, names: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    """The value of every name that a rule asks for: as given, found from it, or by default."""
    values = dict(zip(row.options, row.defaults, strict=True)) | given
    for name in (*row.arrays, "out"):
        if name in given:
            values[name] = np.asarray(given[name])
            values.setdefault(f"{name}_spec", spec_of(values[name]))
    missing = [name for name in names if values.get(name, REQUIRED) is REQUIRED]
    if missing:
        raise DTypeError(
            f"backward.{row.name}: needs {', '.join(missing)}; "
            f"the signature is ({', '.join(('g', *names))})"
        )
    return values


def _backward_of(row: Row) -> Callable[..., Any]:
    names = row.asks
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("g", *names)
    ]
    extra = inspect.Parameter("operands", inspect.Parameter.VAR_KEYWORD)
    signature = inspect.Signature([*parameters, extra])
    differentiable = [name for name in row.arrays if row.vjp[name] is not None]

    def function(g: Any, *args: Any, **named: Any) -> Any:
        if len(args) > len(names):
            raise DTypeError(f"backward.{row.name}: the signature is ({', '.join(('g', *names))})")
        values = _values(row, names, dict(zip(names, args, strict=False)) | named)
        seed = np.conj(g) if np.iscomplexobj(g) else np.asarray(g)
        results = []
        for name in differentiable:
            rule = row.vjp[name]
            assert rule is not None
            r = rule(seed, *(values[n] for n in asked(rule)))
            if f"{name}_spec" in values:
                r = fit(np.asarray(r), values[f"{name}_spec"])
            results.append(np.array(np.conj(r) if np.iscomplexobj(r) else r))
        return results[0] if len(results) == 1 else tuple(results)

    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = (
        f"Backward function of ``{row.name}``: the gradients of {', '.join(differentiable)}."
    )
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


_BY_NAME = {
    row.name: _backward_of(row) for row in OPS.values() if any(r is not None for r in row.vjp.values())
}
TABLE: Mapping[str, Callable[..., Any]] = MappingProxyType(_BY_NAME)
"""Every backward function by the name of its op."""

for _row in OPS.values():
    if _row.name in _BY_NAME:
        globals().update(dict.fromkeys((_row.name, *_row.aliases), _BY_NAME[_row.name]))


def __getattr__(name: str) -> Callable[..., Any]:
    raise AttributeError(f"odyssey.backward has no function {name!r}; see odyssey.backward.TABLE")
