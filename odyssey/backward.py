"""The backward functions of all ops, on plain arrays: ``od.backward.<op>(g, ...)``.

Each takes the cotangent of the result, then what the op's rules ask for, in the order of
their docstrings: arrays, ``out``, specs, options. It returns one array for each differentiable
operand, summed back to the operand's shape where the operand was given. Arrays that an op can do
without may be left out, or be None; the gradient of one that is absent is None. A function of an op
with several results begins with a cotangent for each, ``g_<result>``; None stands for zeros.

>>> import odyssey as od
>>> g_x, g_y = od.backward.multiply(1.0, 2.0, 3.0)
>>> float(g_x), float(g_y)
(3.0, 2.0)

An op of one's own, declared by ``od.op``, has its function here for as long as it exists; where it
bears the name of an op of the table, that one's function goes first.

>>> @od.op(elementwise=True, vjp={"x": lambda g, x: od.ops.mul(g, od.ops.mul(2.0, x))})
... def squared(x, /):
...     return x * x
>>> float(od.backward.squared(1.0, 3.0))
6.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, error_class_of, format_value
from odyssey.devices.arrays import ARRAYS, as_array, plain_result
from odyssey.devices.same_device import array_copy
from odyssey.errors import DTypeError, OdysseyError
from odyssey.ops.elementwise import complex_numbers
from odyssey.ops.structure.unbroadcast import unbroadcast
from odyssey.spec import Spec, spec_of
from odyssey.table.declare import FOREIGN, OPS, PASS, REQUIRED, Row
from odyssey.table.multi_output import MultiOutput, MultiOutputSpec
from odyssey.table.registry import row_of
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.value import Symbol, Value

__all__ = ["TABLE"]


def _named_values(row: Row, names: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return the value of every name that a rule needs: given, computed from it, or the default."""
    who = f"backward.{row.name}"
    values = dict.fromkeys(row.optional) | dict(zip(row.options, row.defaults, strict=True)) | given
    signature = f"the signature is ({', '.join((*(row.cotangents or ('g',)), *names))})"
    known = {*row.layout.kept, *row.layout.specs}
    if unknown := given.keys() - known:
        raise DTypeError(f"{who}: does not take {', '.join(sorted(unknown))}; {signature}")
    for name in (*row.arrays, *row.results):
        spec = values.get(f"{name}_spec")
        if spec is not None and not isinstance(spec, Spec):
            raise DTypeError(
                f"{who}: {name}_spec is {format_value(spec)}; pass a Spec, or {name} itself"
            )
        if name in given and not (given[name] is None and name in row.optional):
            values[name] = _operand_array(who, name, given[name])
            values.setdefault(f"{name}_spec", spec_of(values[name]))
    missing = [name for name in names if values.get(name, REQUIRED) is REQUIRED]
    if missing:
        raise DTypeError(f"{who}: needs {', '.join(missing)}; {signature}")
    # Given options are checked as the op checks them.
    if any(values[name] is REQUIRED for name in row.options):
        return values
    options = row.prepare_options(tuple(values[name] for name in row.options))
    return values | dict(zip(row.options, options, strict=True))


def _backward_of(row: Row) -> Callable[..., Any]:
    seeds = row.cotangents or ("g",)
    names = row.requested_names
    who = f"backward.{row.name}"
    signature = ", ".join((*seeds, *names))
    differentiable = [name for name in row.arrays if row.vjp[name] is not None]

    def function(*args: Any, **named: Any) -> Any:
        order = (*seeds, *names)
        if len(args) > len(order) or named.keys() & set(order[: len(args)]):
            raise DTypeError(f"{who}: the signature is ({signature})")
        given = dict(zip(order, args, strict=False)) | named
        came = [_seed_cotangent(who, name, given.pop(name, None), signature) for name in seeds]
        values = _named_values(row, names, given)
        try:
            seed = came[0] if row.pack_results is None else _multi_output(row, came)
            found = [_operand_gradient(row, name, seed, values) for name in differentiable]
        except (OdysseyError, FloatingPointError):
            raise
        except STUMBLES as error:
            specs = ", ".join(str(None if g is None else spec_of(g)) for g in came)
            with_what = ", ".join(f"{n}={format_value(values.get(n))}" for n in names)
            raise error_class_of(error)(
                f"{who}: {error}; came a g of {specs}, {with_what}"
            ) from error
        return found[0] if len(found) == 1 else tuple(found)

    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = f"``{row.name}({signature})``: the gradients of {', '.join(differentiable)}."
    return function


def _seed_cotangent(who: str, name: str, g: Any, signature: str) -> Any:
    """Return a cotangent as a sweep takes it; None of several stands for zeros."""
    if g is None:
        if name == "g":
            raise DTypeError(f"{who}: needs g; the signature is ({signature})")
        return None
    seed = _operand_array(who, name, g)
    return complex_numbers.conj(seed) if seed.dtype.kind == "c" else seed


def _operand_array(who: str, name: str, value: Any) -> Any:
    """Return a value as an array; a traced value as a Symbol."""
    if isinstance(value, Value) and store() is not MEMORY:
        value = operand_of(value)
    return value if isinstance(value, Symbol) else as_array(who, name, value)


def _multi_output(row: Row, seeds: list[Any]) -> MultiOutput:
    return MultiOutput({j: g for j, g in enumerate(seeds) if g is not None})


def _rule_specs(row: Row, values: dict[str, Any]) -> list[Any]:
    """Return the specs that a rule may need, that of the results last."""
    specs = [values.get(name) for name in row.layout.specs]
    if row.pack_results is None:
        return [*specs, values.get("out_spec")]
    known: list[Any] = [values.get(f"{name}_spec") for name in row.results]
    if None in known and None not in specs:
        known = list(row.infer(*specs, *[values[name] for name in row.options]))
    return [*specs, MultiOutputSpec(tuple(known))]


def _operand_gradient(row: Row, name: str, seed: Any, values: dict[str, Any]) -> Any:
    """Return the gradient of one operand, in that operand's shape.

    None if the operand is absent.
    """
    if values.get(name) is values.get(f"{name}_spec") is None and name in row.optional:
        return None
    kept, specs = [values.get(n) for n in row.layout.kept], _rule_specs(row, values)
    if row.pack_results is not None:
        lacking = [
            n
            for j, n in enumerate(row.cotangents)
            if j not in seed.parts and specs[-1].parts[j] is None
        ]
        if lacking:
            raise DTypeError(
                f"backward.{row.name}: {lacking[0]} is None, which stands for zeros of unknown "
                f"shape; pass the zeros, or {', '.join(row.arrays)} as well"
            )
    pull = row.pullbacks[row.arrays.index(name)]
    assert pull is not None
    g = seed if pull is PASS else pull(seed, kept, specs)
    if not isinstance(g, Symbol):
        g = plain_result(f"backward.{row.name}: the rule of {name}", g)
    if values.get(f"{name}_spec") is not None:
        g = unbroadcast(g, values[f"{name}_spec"])
    g = complex_numbers.conj(g) if g.dtype.kind == "c" else g
    if isinstance(g, Symbol):
        return g
    return array_copy(g) if type(g) in ARRAYS else np.array(g)


class _Table(Mapping[str, Callable[..., Any]]):
    """Backward functions by the name of their op, each created on first use."""

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
    row = row_of(name)
    if row is not None and row.name in TABLE:
        return TABLE[row.name]
    op: Any = FOREIGN.get(name)
    if op is None:
        raise AttributeError(
            f"odyssey.backward has no function {name!r}; see odyssey.backward.TABLE"
        )
    if not any(op.row.vjp.values()):
        raise AttributeError(f"odyssey.backward: the op {name!r} was declared without rules")
    return _backward_of(op.row)


def __dir__() -> list[str]:
    return sorted({*__all__, *TABLE})
