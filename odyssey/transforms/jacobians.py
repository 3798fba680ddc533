"""Jacobians and Hessians: sweeps over a batch of rows or columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, check_flag, check_int, format_value
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.half_dtypes import is_floating
from odyssey.devices.same_device import HOST_TYPES, new_beside, zeros_beside
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.structure.joining import concatenate, stack
from odyssey.ops.structure.shape import moveaxis, reshape
from odyssey.spec import Spec, intern
from odyssey.table.value import Symbol
from odyssey.tape import GradientTape
from odyssey.tape.queries import Sources
from odyssey.tape.tape_base import recording_of
from odyssey.transforms.arguments import (
    Argnums,
    WatchedArguments,
    argument_positions,
    copy_metadata,
    detach_recorded,
    export_results,
    normalize_argnums,
    split_aux,
    warn_if_independent,
)
from odyssey.transforms.batching import vmap
from odyssey.transforms.forward import tangents_of
from odyssey.transforms.reverse import gradients_of
from odyssey.tree import flatten, paths
from odyssey.variable import Variable

__all__ = ["hessian", "jacobian"]

_MOST_AXES = 64
_MOST_BYTES = 256 << 20


def jacobian(
    fn: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of ``fn``.

    The mode follows the shapes: forward, with a tangent for each input element, where there are
    fewer inputs than outputs; reverse, with a cotangent for each output element, otherwise. One
    sweep carries a batch of them, as ``vmap`` does; a function with rules of its own, such as a
    ``custom_vjp``, is swept once for each.

    Args:
        fn: A function of arrays or trees of them, with such a result, all real.
        argnums: Which positional arguments to differentiate; the others are passed on.
        has_aux: Whether ``fn`` returns a pair, the result and something to hand through.
        chunk: The most rows or columns of a sweep, to bound memory; by default as many as keep the
            widest array of a sweep below 256 MB.

    Returns:
        A function of the same arguments. Its result has the tree of the result of ``fn``, each
        leaf of which is the tree of the argument (a tuple of such trees where ``argnums`` is
        one), each leaf of which is an array of shape ``out.shape + in.shape``. With ``has_aux``
        it is the pair ``(jacobian, aux)``.

    Raises:
        DTypeError: for leaves that are not real floating numbers, or wrong ``argnums``.

    >>> jacobian(lambda x: x * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    return _jacobian("jacobian", fn, argnums, has_aux, chunk)


def hessian(
    fn: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """Return the function that computes the Hessian of ``fn``: the Jacobian of its Jacobian.

    Forward over reverse: a forward sweep over the gradient, with a batch of tangents, one for each
    input element.

    Args:
        fn: A function of real arrays or trees of them; its result is usually one number.
        argnums: Which positional arguments to differentiate; the others are passed on.
        has_aux: Whether ``fn`` returns a pair, the result and something to hand through.
        chunk: As for ``jacobian``.

    Returns:
        A function of the same arguments. For a result and an argument without containers it
        returns an array of shape ``out.shape + in.shape + in.shape``; else the tree of the
        result, of trees of the argument, of trees of the argument.

    Raises:
        DTypeError: as ``jacobian``.

    >>> hessian(lambda x: x[0] * x[1] ** 2)(np.array([3.0, 2.0]))
    array([[0., 4.],
           [4., 6.]])
    """
    inner = _jacobian("hessian", fn, argnums, has_aux, chunk)
    outer = _jacobian("hessian", inner, argnums, has_aux, chunk, outer=True)
    return copy_metadata(fn, outer, "hessian")  # type: ignore[no-any-return]


def _jacobian(
    who: str,
    fn: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    chunk: int | None,
    outer: bool = False,
) -> Callable[..., Any]:
    """Return the Jacobian function; ``outer`` if ``fn`` is a Jacobian: forward, no warning."""
    numbers, has_aux = normalize_argnums(who, argnums), check_flag(who, "has_aux", has_aux)
    single = not isinstance(argnums, (tuple, list))
    if chunk is not None:
        chunk = check_int(who, "chunk", chunk, 1)

    def matrix(*args: Any, **named: Any) -> Any:
        positions = argument_positions(who, numbers, len(args))
        args, named = detach_recorded(args, positions), detach_recorded(named)
        with GradientTape(persistent=True) as tape:
            watched = WatchedArguments(who, tape, args, positions)
            out, aux = split_aux(who, fn(*watched.args, **named), has_aux)
        outputs, rebuild = flatten(out)
        for path, leaf in paths(out, "the result"):
            _check_real(who, path, leaf)
        for spec in watched.sources.specs:
            _check_real(who, "an argument", spec)
        if not outer:
            warn_if_independent(who, tape, outputs, watched.sources)
        fewer = sum(spec.size for spec in watched.sources.specs) < sum(
            _element_count(v) for v in outputs
        )
        build = _forward_mode_blocks if outer or fewer else _reverse_mode_blocks
        found = build(tape, outputs, watched.sources, chunk)
        result = rebuild([watched.trees(blocks, single) for blocks in found])
        return (result, export_results(tape, aux)) if has_aux else result

    return copy_metadata(fn, matrix, who)  # type: ignore[no-any-return]


def _dtype_of(leaf: Any) -> Any:
    known = isinstance(leaf, (Variable, Symbol, Spec, *ARRAY_LIKE))
    return leaf.dtype if known else np.asarray(leaf).dtype


def _check_real(who: str, path: str, leaf: Any) -> None:
    try:
        dtype = _dtype_of(leaf)
    except STUMBLES as error:
        raise DTypeError(
            f"{who}: {path} is {format_value(leaf)}, which is not an array: {error}"
        ) from error
    if not is_floating(dtype) and type(leaf) is not int:
        raise DTypeError(
            f"{who}: {path} is of {dtype}; it must be real floating numbers; for complex ones use "
            "vjp and jvp, and for others return them as aux"
        )


def _element_count(value: Any) -> int:
    return prod(_shape(value))


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else ()


def _sweep_units(
    tape: GradientTape,
    like: Any,
    sweep: Callable[[Any], list[Any]],
    chunk: int | None,
    results: Sequence[Any],
    home: Any,
) -> list[Any]:
    """Return the results of a sweep from each unit array, stacked along a new first axis.

    Args:
        tape: The tape that is swept.
        like: The unit arrays are like this: one element is 1, the others are 0.
        sweep: A sweep from one array; it returns as many arrays as ``results``.
        chunk: The most unit arrays of a sweep; None for the default.
        results: Shape and dtype of the arrays that it returns.
        home: An array or a Variable on the device of the unit arrays.
    """
    count, shape = _element_count(like), _shape(like)
    dtype = like.dtype if hasattr(like, "dtype") else np.dtype(float)
    if not count:
        return [zeros_beside(Spec((0, *spec.shape), spec.dtype), home) for spec in results]
    eye = partial(new_beside, (home,), "eye")
    if count == 1 or not _takes_batches(tape):
        units = eye(count, count, 0, dtype).reshape(count, *shape)
        return [_stacked(column) for column in zip(*map(sweep, units), strict=True)]
    most = _default_chunk(tape, [like, *results]) if chunk is None else chunk
    found: list[list[Any]] = []
    for start in range(0, count, most):
        size = min(most, count - start)
        units = eye(size, count, start, dtype).reshape(size, *shape)
        found.append(vmap(sweep)(units))
    return (
        found[0]
        if len(found) == 1
        else [_concatenate_chunks(column) for column in zip(*found, strict=True)]
    )


def _takes_batches(tape: GradientTape) -> bool:
    """Return whether all rules of a tape are of this package, and so take batches."""
    recording = recording_of(tape)
    return not (recording.may_fail or recording.manual or recording.checks or tape._hooks)


def _default_chunk(tape: GradientTape, ends: Sequence[Any]) -> int:
    """Return how many unit arrays keep the widest array of a sweep below the limit."""
    specs = [spec for node in recording_of(tape).nodes for spec in node[4] or ()]
    arrays = [spec for spec in (*specs, *ends) if hasattr(spec, "dtype")]
    widest = max([spec.size * spec.dtype.itemsize for spec in arrays], default=1)
    return max(1, _MOST_BYTES // max(widest, 1))


def _stacked(arrays: Sequence[Any]) -> Any:
    return np.stack(arrays) if all(type(a) in HOST_TYPES for a in arrays) else stack(arrays)


def _concatenate_chunks(arrays: Sequence[Any]) -> Any:
    if all(type(a) in HOST_TYPES for a in arrays):
        return np.concatenate(arrays)
    return concatenate(list(arrays))


def _reverse_mode_blocks(
    tape: GradientTape, outputs: list[Any], sources: Sources, chunk: int | None
) -> list[list[Any]]:
    """Return blocks by output and source, from a cotangent for each output element."""
    blocks = []
    for out in outputs:
        like = out if hasattr(out, "dtype") else np.ones(())

        def sweep(unit: Any, out: Any = out) -> list[Any]:
            return gradients_of(tape, [out], sources, [unit])

        rows = _sweep_units(tape, like, sweep, chunk, sources.specs, out)
        blocks.append(
            [
                _block(row, (*_shape(out), *spec.shape))
                for row, spec in zip(rows, sources.specs, strict=True)
            ]
        )
    return blocks


def _forward_mode_blocks(
    tape: GradientTape, outputs: list[Any], sources: Sources, chunk: int | None
) -> list[list[Any]]:
    """Return blocks by output and source, from a tangent for each input element."""
    blocks: list[list[Any]] = [[] for _ in outputs]
    ends = [intern(_shape(out), getattr(out, "dtype", np.dtype(float))) for out in outputs]
    for k, spec in enumerate(sources.specs):
        source = sources.select(k)

        def sweep(unit: Any, source: Sources = source) -> list[Any]:
            return tangents_of(tape, outputs, source, [unit])

        columns = _sweep_units(tape, spec, sweep, chunk, ends, sources.arrays[k])
        for row, column, out in zip(blocks, columns, outputs, strict=True):
            row.append(_block(moveaxis(column, 0, -1), (*_shape(out), *spec.shape)))
    return blocks


def _block(rows: Any, shape: tuple[int, ...]) -> Any:
    """Return stacked rows or columns as a block of this shape."""
    if len(shape) > _MOST_AXES:
        raise ShapeError(
            f"jacobian: a block would have {len(shape)} axes, those of a result and of an "
            f"argument, and NumPy's arrays have at most {_MOST_AXES}; reshape one of them"
        )
    return rows.reshape(shape) if type(rows) in HOST_TYPES else reshape(rows, shape)
