"""Which sizes of a function's arguments vary, and what they are in a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import describe_type, format_value
from odyssey.compiler.arguments import cache_key, is_input
from odyssey.compiler.symbolic.dims import Dim
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.spec import Spec
from odyssey.table.value import array_of, free_id, make_value
from odyssey.tree import leaves, map_tree
from odyssey.variable import Variable

__all__ = ["DynamicAxes", "CallSizes", "SizeSource"]


class SizeSource(NamedTuple):
    """Source of a symbolic dimension: the number of an input, and an axis."""

    input: int
    axis: int


class CallSizes(NamedTuple):
    """The sizes in a call.

    Attributes:
        key: What else decides which program is run.
        sizes: By name of a Dim.
        spots: By name of a Dim, where it is first.
        axes: By number of an input, its axes that vary, with their names.
    """

    key: Any
    sizes: dict[str, int]
    spots: dict[str, SizeSource]
    axes: dict[int, dict[int, str]]

    def stand_ins(
        self, sizes: Mapping[str, int] | None, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of other sizes, whose elements nobody reads; of size 0 where none are given."""
        count = iter(range(1 << 60))
        known: dict[int, Any] = {}

        def other(leaf: Any) -> Any:
            if not is_input(leaf):
                return leaf
            axes = self.axes.get(next(count))
            if axes is None:
                return leaf
            if id(leaf) in known:
                return known[id(leaf)]
            array = array_of(leaf)
            shape = list(array.shape)
            for axis, name in axes.items():
                shape[axis] = 0 if sizes is None else sizes[name]
            made: Any = np.broadcast_to(np.zeros((), array.dtype), shape)
            if isinstance(leaf, Variable):
                spec = Spec(tuple(shape), array.dtype)
                made = make_value(Variable, made, leaf._recording, free_id(), spec, leaf._info)
            known[id(leaf)] = made
            return made

        made_args, made_named = map_tree(other, (args, named))
        return made_args, made_named


class DynamicAxes:
    """Which sizes of a function's arguments vary.

    Args:
        fn: The function.
        declared: By name of a parameter and axis, a Dim.

    Attributes:
        dims: By name, each Dim.
    """

    def __init__(self, fn: Callable[..., Any], declared: Any) -> None:
        self.dims: dict[str, Dim] = {}
        self._axes = {name: self._checked(name, axes) for name, axes in _declared_items(declared)}
        self._positional = _positional_names(fn, self._axes)

    def _checked(self, name: Any, axes: Any) -> dict[int, Dim]:
        if not isinstance(axes, Mapping):
            raise DTypeError(
                f"compile: dynamic={{{name!r}: {format_value(axes)}}} names no axes; "
                f"pass {{{name!r}: {{0: Dim('batch')}}}}"
            )
        for axis, dim in axes.items():
            if type(axis) is not int or not isinstance(dim, Dim):
                raise DTypeError(
                    f"compile: dynamic[{name!r}] has {format_value(axis)}: {format_value(dim)}; "
                    "pass whole numbers, and a Dim for each"
                )
            if self.dims.setdefault(dim.name, dim) != dim:
                raise SettingError(
                    f"compile: dynamic has {dim!r} and {self.dims[dim.name]!r}, one name for two"
                )
        return dict(axes)

    def find(self, args: tuple[Any, ...], named: dict[str, Any]) -> CallSizes | None:
        """The sizes in a call; None where no program for all sizes is for them."""
        sizes: dict[str, int] = {}
        spots: dict[str, SizeSource] = {}
        axes_of: dict[int, dict[int, str]] = {}
        tokens: list[Any] = []
        for k, (name, leaf, declared) in enumerate(self._inputs(args, named)):
            shape: list[Any] = list(np.shape(array_of(leaf)))
            for axis, dim in declared.items():
                if not -len(shape) <= axis < len(shape):
                    raise ShapeError(
                        f"compile: dynamic names axis {axis} of {name!r}, and an array of shape "
                        f"{tuple(shape)} came; pass one with that axis, or name another"
                    )
                place = axis % len(shape)
                size = shape[place]
                if size < 2 or not dim.holds(size) or sizes.setdefault(dim.name, size) != size:
                    return None
                spots.setdefault(dim.name, SizeSource(k, place))
                axes_of.setdefault(k, {})[place] = dim.name
            for place, dim_name in axes_of.get(k, {}).items():
                shape[place] = dim_name
            tokens.append((tuple(shape), array_of(leaf).dtype) if declared else None)
        if not sizes:
            return None
        try:
            key = cache_key(*CallSizes(None, sizes, spots, axes_of).stand_ins(None, args, named))
        except Exception:  # a container that holds itself, or lets nobody look: the run will say so
            return None
        return CallSizes((key, tuple(tokens)), sizes, spots, axes_of)

    def _inputs(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Iterator[tuple[str, Any, dict[int, Dim]]]:
        """The inputs of a graph in order, with the axes that vary."""
        given = chain(zip(chain(self._positional, repeat("")), args, strict=False), named.items())
        for name, tree in given:
            for leaf in filter(is_input, leaves(tree)):
                yield name, leaf, self._axes.get(name, {})


def _declared_items(declared: Any) -> Sequence[tuple[Any, Any]]:
    if not isinstance(declared, Mapping):
        raise DTypeError(
            f"compile: dynamic={format_value(declared)} is {describe_type(declared)}; "
            "pass a dict, as {'x': {0: Dim('batch')}}"
        )
    return list(declared.items())


def _positional_names(fn: Callable[..., Any], named: Mapping[Any, Any]) -> list[str]:
    """The names of the parameters that may be passed by position, in order."""
    from inspect import Parameter, signature

    try:
        parameters = signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    names = {p.name for p in parameters if p.kind is not Parameter.VAR_POSITIONAL}
    open_ = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
    for name in named:
        if name not in names and not open_:
            raise SettingError(
                f"compile: dynamic names {format_value(name)}, which is not a parameter of the "
                f"function; it has {', '.join(sorted(names)) or 'none'}"
            )
    kinds = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    return [p.name for p in parameters if p.kind in kinds]
