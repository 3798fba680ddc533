"""Declarations of symbolic dimensions (``dynamic=``), and their sizes in a call.

Called by ``specialization``.
"""

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
from odyssey.tree_objects import no_attributes
from odyssey.variable import Variable

__all__ = ["DynamicAxes", "CallSizes", "SizeSource"]


class SizeSource(NamedTuple):
    """Source of a symbolic dimension: the number of an input, and an axis."""

    input: int
    axis: int


class CallSizes(NamedTuple):
    """The sizes in a call.

    Attributes:
        key: Cache key of the call with the declared sizes left out.
        sizes: Size by name of a Dim.
        sources: By name of a Dim, the first axis with this Dim.
        axes: By number of an input, the names of its declared axes.
    """

    key: Any
    sizes: dict[str, int]
    sources: dict[str, SizeSource]
    axes: dict[int, dict[int, str]]

    def resized_arguments(
        self, sizes: Mapping[str, int] | None, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments of other sizes, for a trace only; of size 0 if ``sizes`` is None."""
        count = iter(range(1 << 60))
        resized: dict[int, Any] = {}

        def resize(leaf: Any) -> Any:
            if not is_input(leaf):
                return leaf
            axes = self.axes.get(next(count))
            if axes is None:
                return leaf
            if id(leaf) in resized:
                return resized[id(leaf)]
            array = array_of(leaf)
            shape = list(array.shape)
            for axis, name in axes.items():
                shape[axis] = 0 if sizes is None else sizes[name]
            value: Any = np.broadcast_to(np.zeros((), array.dtype), shape)
            if isinstance(leaf, Variable):
                spec = Spec(tuple(shape), array.dtype)
                value = make_value(Variable, value, leaf._recording, free_id(), spec, leaf._info)
            resized[id(leaf)] = value
            return value

        new_args, new_named = map_tree(resize, (args, named), rule=no_attributes)
        return new_args, new_named


class DynamicAxes:
    """The declared axes of a function.

    Args:
        fn: The function.
        declared: A Dim by name of a parameter and axis.

    Attributes:
        dims: Each Dim by its name.
    """

    def __init__(self, fn: Callable[..., Any], declared: Any) -> None:
        self.dims: dict[str, Dim] = {}
        self._axes = {
            name: self._check_axes(name, axes) for name, axes in _declared_items(declared)
        }
        self._positional = _positional_names(fn, self._axes)

    def _check_axes(self, name: Any, axes: Any) -> dict[int, Dim]:
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
        """Return the sizes in a call; None if a program for all sizes cannot run it."""
        sizes: dict[str, int] = {}
        sources: dict[str, SizeSource] = {}
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
                index = axis % len(shape)
                size = shape[index]
                if size < 2 or not dim.holds(size) or sizes.setdefault(dim.name, size) != size:
                    return None
                sources.setdefault(dim.name, SizeSource(k, index))
                axes_of.setdefault(k, {})[index] = dim.name
            for index, dim_name in axes_of.get(k, {}).items():
                shape[index] = dim_name
            tokens.append((tuple(shape), array_of(leaf).dtype) if declared else None)
        if not sizes:
            return None
        try:
            key = cache_key(
                *CallSizes(None, sizes, sources, axes_of).resized_arguments(None, args, named)
            )
        except Exception:  # a recursive or opaque container: the run reports the error
            return None
        return CallSizes((key, tuple(tokens)), sizes, sources, axes_of)

    def _inputs(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Iterator[tuple[str, Any, dict[int, Dim]]]:
        """Iterate over the inputs of a graph, each with its parameter and its declared axes."""
        trees = chain(zip(chain(self._positional, repeat("")), args, strict=False), named.items())
        for name, tree in trees:
            for leaf in filter(is_input, leaves(tree, no_attributes)):
                yield name, leaf, self._axes.get(name, {})


def _declared_items(declared: Any) -> Sequence[tuple[Any, Any]]:
    if not isinstance(declared, Mapping):
        raise DTypeError(
            f"compile: dynamic={format_value(declared)} is {describe_type(declared)}; "
            "pass a dict, as {'x': {0: Dim('batch')}}"
        )
    return list(declared.items())


def _positional_names(fn: Callable[..., Any], named: Mapping[Any, Any]) -> list[str]:
    """Return the names of the parameters that may be passed by position, in order."""
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
