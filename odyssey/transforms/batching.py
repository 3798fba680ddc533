"""``vmap``: a function of one example, run on a batch of examples at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import check_callable, check_int, describe_type, format_value
from odyssey.devices.arrays import ARRAY_LIKE, as_array, is_array_like
from odyssey.devices.ownership import is_shared, is_sole_view
from odyssey.devices.same_device import own_copy
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.graph.batch_trace import BatchTrace
from odyssey.ops.random.generator import (
    Generator,
    generator_state,
    generator_with,
    set_generator_state,
)
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate, stack
from odyssey.ops.structure.shape import broadcast_to, moveaxis
from odyssey.table.value import CONSTANT, NUMBERS, Symbol, Value, free_id, make_value
from odyssey.transforms.arguments import copy_metadata
from odyssey.tree import (
    children_of,
    leaf_type,
    leaves,
    like,
    paths,
    replace_containers,
    unflatten,
)
from odyssey.variable import Variable, writable_alias

__all__ = ["vmap"]

Axes = Any
"""An axis, None, or a tree of them that is like the tree it belongs to, or like its upper part."""


def vmap(
    fn: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0, *, chunk: int | None = None
) -> Callable[..., Any]:
    """Return the function that runs ``fn``, written for one example, on a batch of examples.

    The result is that of a loop over the examples, stacked; each op runs once, on all of them.
    Gradients of each example are ``vmap(grad(loss), (None, 0, 0))(params, x, y)``. It composes with
    all transforms, with itself, and with ``od.compile``.

    In ``fn`` an array has the shape of one example, and its values are not known: a branch on them
    raises, as in a compiled function. Effects of ``fn`` happen once. A draw of random numbers is
    one draw for all examples. A list of ``od.Generator`` that is mapped over gives each example its
    own: ``fn`` gets one generator, and those of the list advance when it has returned. Variables
    that ``fn`` closes over are those of all examples, and are not written to.

    Args:
        fn: A function of arrays or trees of them, with such a result.
        in_axes: The axis of the examples in each argument: an int, None for an argument that all
            examples share, or a tuple with one of these for each argument, where a tree of them may
            stand for an argument that is a tree. Keyword arguments are shared.
        out_axes: The axis of the examples in the result: an int, or a tree of them for a tree. A
            result that does not depend on the example is repeated; None returns it once.
        chunk: The most examples that are run at a time, to bound memory; None for all.

    Returns:
        A function of the same arguments, of all examples.

    Raises:
        ShapeError: sizes of mapped axes differ, an axis is out of range, nothing is mapped, or a
            tree of axes is not like its argument.
        DTypeError: a mapped leaf, or a result, is not an array.

    >>> import odyssey as od
    >>> w, x = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    >>> vmap(lambda x: (w * x).sum())(x)
    array([1., 6., 3.])
    >>> vmap(od.grad(lambda w, x: (w * x).sum() ** 2), in_axes=(None, 0))(w, x)
    array([[ 2.,  0.],
           [ 0., 36.],
           [ 6.,  6.]])
    """
    check_callable("vmap", fn)
    if chunk is not None:
        chunk = check_int("vmap", "chunk", chunk, 1)

    def mapped(*args: Any, **named: Any) -> Any:
        arguments = _Arguments(args, in_axes)
        size = arguments.size
        if chunk is None or size <= chunk:
            return _run_batch(fn, arguments, 0, size, named, out_axes)
        parts = [
            _run_batch(fn, arguments, start, min(start + chunk, size), named, out_axes)
            for start in range(0, size, chunk)
        ]
        return _merge_ranges(parts, out_axes)

    return copy_metadata(fn, mapped, "vmap")  # type: ignore[no-any-return]


# ------------------------------------------------------------------ arguments


class _Leaf(NamedTuple):
    """A leaf of an argument, and the axis of the examples in it, None if they share it."""

    value: Any
    axis: int | None


class _Arguments:
    """The arguments of a call, with the axis of the examples in each leaf.

    Attributes:
        size: The number of examples.
    """

    def __init__(self, args: Sequence[Any], in_axes: Axes) -> None:
        if isinstance(in_axes, (tuple, list)):
            if len(in_axes) != len(args):
                raise ShapeError(
                    f"vmap: in_axes has {len(in_axes)} entries for {len(args)} positional "
                    "arguments; pass one for each, or an int for all"
                )
        else:
            in_axes = [in_axes] * len(args)
        self._args: list[tuple[list[_Leaf], Callable[[list[Any]], Any]]] = []
        sizes: dict[str, int] = {}
        for n, (arg, axes) in enumerate(zip(args, in_axes, strict=True)):
            who = f"argument {n}"
            if axes is not None and any(issubclass(type(x), Generator) for x in leaves(arg)):
                arg = replace_containers(arg, _generators_of_examples)
            flat, rebuild = like(arg)
            found = _axes_of_leaves("in_axes", axes, arg, who)
            named = (
                [path for path, _ in paths(arg, who)] if any(a is not None for a in found) else []
            )
            made = []
            for k, (leaf, axis) in enumerate(zip(flat, found, strict=True)):
                if axis is None or leaf is None:
                    made.append(_Leaf(leaf, None))
                    continue
                if type(leaf) is _Generators:
                    sizes[named[k]] = leaf.check(named[k], axis)
                    made.append(_Leaf(leaf, 0))
                    continue
                array = _mapped_array(named[k], leaf)
                axis = _position(named[k], array, axis)
                sizes[named[k]] = int(array.shape[axis])
                made.append(_Leaf(array, axis))
            self._args.append((made, rebuild))
        self.size = _common_size(sizes)

    def arrays(self) -> list[Any]:
        """Return the mapped arrays."""
        mapped = [leaf.value for flat, _ in self._args for leaf in flat if leaf.axis is not None]
        return [value for value in mapped if type(value) is not _Generators]

    def leave(self, trace: BatchTrace) -> None:
        """Advance the generators that were mapped over."""
        for flat, _ in self._args:
            for leaf in flat:
                if type(leaf.value) is _Generators:
                    leaf.value.leave(trace)

    def batched(self, trace: BatchTrace, start: int, stop: int) -> list[Any]:
        """Return the arguments with values of a batch trace for the examples of a range."""
        return [
            rebuild([_enter(trace, leaf, start, stop, self.size) for leaf in flat])
            for flat, rebuild in self._args
        ]


class _Generators:
    """The generators of the examples, a leaf in the place of a list of them."""

    __slots__ = ("entered", "given")

    def __init__(self, given: Sequence[Generator]) -> None:
        self.given = given
        # The generator of a mapped function, and the numbers of the examples that it draws for.
        self.entered: list[tuple[Generator, range]] = []

    def check(self, path: str, axis: int) -> int:
        """Return the number of generators; raise for another axis, or one that comes twice."""
        if axis not in (0, -1):
            raise ShapeError(
                f"vmap: {path} is a list of generators, which has no axis {format_value(axis)}"
            )
        first = {id(generator): k for k, generator in reversed(list(enumerate(self.given)))}
        for k, generator in enumerate(self.given):
            if first[id(generator)] != k:
                raise SettingError(
                    f"vmap: {path} has one generator at {first[id(generator)]} and {k}, and the "
                    "draws of an example would depend on those of another; pass rng.split(n)"
                )
        return len(self.given)

    def enter(self, trace: BatchTrace, start: int, stop: int) -> Generator:
        """Return a generator of a mapped function, which draws for the examples of a range."""
        states = [generator_state(generator) for generator in self.given[start:stop]]
        payload = stack(states) if states else np.empty((0, 3), np.uint64)
        batched = trace.wrap(payload, True)
        found = generator_with(make_value(Variable, batched, CONSTANT, free_id(), batched.spec))
        self.entered.append((found, range(start, stop)))
        return found

    def leave(self, trace: BatchTrace) -> None:
        """Advance the generators of the examples as that of the mapped function was."""
        while self.entered:
            found, examples = self.entered.pop()
            payload, mapped = trace.payload_of(trace.read(found._state))
            for row, k in enumerate(examples):
                words = getitem(payload, row) if mapped else payload  # set by the function
                set_generator_state(self.given[k], words)


leaf_type(_Generators)


def _generators_of_examples(container: Any) -> _Generators | None:
    """Return a list or tuple of generators as one leaf; None for other containers."""
    if not isinstance(container, (list, tuple)) or not container:
        return None
    every = all(isinstance(item, Generator) for item in container)
    return _Generators(container) if every else None


def _axes_of_leaves(what: str, axes: Axes, tree: Any, path: str) -> list[int | None]:
    """Return the axis of each leaf of a tree."""
    if axes is None:
        return [None] * len(leaves(tree))
    if isinstance(axes, (int, np.integer)) and not isinstance(axes, (bool, np.timedelta64)):
        return [int(axes)] * len(leaves(tree))
    if isinstance(axes, (dict, list, tuple)):
        names, children = children_of(axes)
        if not (len(found := leaves(tree)) == 1 and found[0] is tree):
            keys, parts = children_of(tree)
            if len(keys) == len(names) and set(keys) == set(names):
                by_name = dict(zip(names, children, strict=True))
                return [
                    axis
                    for key, part in zip(keys, parts, strict=True)
                    for axis in _axes_of_leaves(what, by_name[key], part, f"{path}[{key!r}]")
                ]
        raise ShapeError(
            f"vmap: {what} has {format_value(axes)} for {path}, {describe_type(tree)}; the "
            "trees must have the same containers and keys, or an int or None for a whole tree"
        )
    raise DTypeError(
        f"vmap: {what} has {format_value(axes)} for {path}; pass an int, None, or a tree of them"
    )


def _mapped_array(path: str, leaf: Any) -> Any:
    if isinstance(leaf, (Value, Symbol)):
        return leaf
    if type(leaf) in NUMBERS or not (isinstance(leaf, ARRAY_LIKE) or is_array_like(leaf)):
        raise DTypeError(
            f"vmap: {path} is {describe_type(leaf)}, which has no axis to map over; pass an array, "
            "or None for it in in_axes"
        )
    return as_array("vmap", path, leaf)


def _position(path: str, array: Any, axis: int) -> int:
    ndim = len(array.shape)
    if not -ndim <= axis < ndim:
        raise ShapeError(
            f"vmap: {path} has shape {tuple(array.shape)}, which has no "
            f"axis {format_value(axis)} to map over"
        )
    return axis % ndim


def _common_size(sizes: dict[str, int]) -> int:
    if not sizes:
        raise ShapeError("vmap: nothing is mapped; give an argument an axis in in_axes")
    if len(set(sizes.values())) > 1:
        came = ", ".join(f"{path} has {size}" for path, size in sizes.items())
        raise ShapeError(f"vmap: {came} examples along the mapped axes; all must have one size")
    return next(iter(sizes.values()))


def _enter(trace: BatchTrace, leaf: _Leaf, start: int, stop: int, size: int) -> Any:
    """Return a leaf as the mapped function gets it."""
    value, axis = leaf
    if type(value) is _Generators:
        return value.given if axis is None else value.enter(trace, start, stop)
    if axis is None:
        return value
    payload = moveaxis(value, axis, 0) if axis else value
    if stop - start != size:
        payload = getitem(payload, slice(start, stop))
    batched = trace.wrap(payload, True)
    if isinstance(value, Value):
        return make_value(Variable, batched, CONSTANT, free_id(), batched.spec)
    return batched


# ------------------------------------------------------------------ the run, and its results


def _run_batch(
    fn: Callable[..., Any],
    arguments: _Arguments,
    start: int,
    stop: int,
    named: dict[str, Any],
    out_axes: Axes,
) -> Any:
    """Run ``fn`` on the examples of a range; return its result with the batch on ``out_axes``."""
    trace = BatchTrace(stop - start)
    args = arguments.batched(trace, start, stop)
    result = copy_context().run(trace.run, fn, args, named)
    arguments.leave(trace)
    flat = leaves(result)
    axes = _axes_of_leaves("out_axes", out_axes, result, "the result")
    shared = arguments.arrays()
    made: list[Any] = []
    for k, (leaf, axis) in enumerate(zip(flat, axes, strict=True)):
        if leaf is None:
            made.append(None)
            continue
        path = f"result {k}" if leaf is not result else "the result"
        payload: Any = _leave(trace, path, leaf, axis)
        if isinstance(payload, ARRAY_LIKE):
            # With out_axes None it may be an array from outside, or a view of one.
            outside = axis is None and not isinstance(leaf, Symbol)
            alone = axis is not None and is_sole_view(payload)
            same = any(payload is other for other in shared)
            if outside or same or (is_shared(payload) and not alone):
                payload = own_copy(payload)
            shared.append(payload)
        else:
            payload = writable_alias(payload)
        made.append(payload)
    return unflatten(result, made)


def _leave(trace: BatchTrace, path: str, leaf: Any, axis: int | None) -> Any:
    """Return a result of the mapped function with the batch on ``axis``."""
    payload, mapped = trace.payload_of(leaf)
    if not isinstance(payload, (Value, Symbol)):
        payload = as_array("vmap", f"{path} of the function", payload)
    if axis is None:
        if mapped:
            raise ShapeError(
                f"vmap: {path} has out_axes None, but each example has its own; pass an axis for it"
            )
        return payload
    ndim = len(payload.shape) + (not mapped)
    if not -ndim <= axis < ndim:
        raise ShapeError(
            f"vmap: {path} of all examples has {ndim} axes, and out_axes says {format_value(axis)}"
        )
    if not mapped:
        payload = broadcast_to(payload, (trace.size, *payload.shape))
    return moveaxis(payload, 0, axis) if axis % ndim else payload


def _merge_ranges(parts: Sequence[Any], out_axes: Axes) -> Any:
    """Return the results of several ranges as one."""
    columns = zip(*map(leaves, parts), strict=True)
    axes = _axes_of_leaves("out_axes", out_axes, parts[0], "the result")
    joined = [
        column[0] if axis is None or column[0] is None else concatenate(list(column), axis=axis)
        for column, axis in zip(columns, axes, strict=True)
    ]
    return unflatten(parts[0], joined)
