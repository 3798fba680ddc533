"""The backward functions of all ops, on plain arrays: ``od.backward.<op>(g, ...)``.

Each takes the cotangent of the result, then what the op's rules ask for, in the order of
their docstrings: arrays, ``out``, specs, options. It returns one array
for each differentiable operand, summed back to the operand's shape where the operand was given.

>>> import odyssey as od
>>> g_x, g_y = od.backward.multiply(1.0, 2.0, 3.0)
>>> float(g_x), float(g_y)
(3.0, 2.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
        f"``{row.name}({', '.join(('g', *names))})``: the gradients of {', '.join(differentiable)}."
    )
    return function


class _Table(Mapping[str, Callable[..., Any]]):
    """Backward functions by the name of their op, each made when first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Callable[..., Any]] = {}

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self._made:
            row = OPS[name]
            if not any(row.vjp.values()):
                raise KeyError(name)
            self._made[name] = _backward_of(row)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, row in OPS.items() if any(row.vjp.values()))

    def __len__(self) -> int:
        return sum(1 for _ in self)


TABLE: Mapping[str, Callable[..., Any]] = _Table()
"""Every backward function by the name of its op."""


def __getattr__(name: str) -> Callable[..., Any]:
    """Every backward function is an attribute of this module, under its op's names."""
    canonical = next((row.name for row in OPS.values() if name in row.aliases), name)
    if canonical not in TABLE:
        raise AttributeError(
            f"odyssey.backward has no function {name!r}; see odyssey.backward.TABLE"
        )
    return TABLE[canonical]
