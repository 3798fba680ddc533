"""Jacobians and Hessians, one sweep for each row or column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, check_flag, format_value
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import reshape
from odyssey.spec import Array, Spec
from odyssey.table.value import Symbol
from odyssey.tape import GradientTape
from odyssey.tape.queries import Sources
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
from odyssey.transforms.forward import tangents_of
from odyssey.transforms.reverse import gradients_of
from odyssey.tree import flatten, paths
from odyssey.variable import Variable

__all__ = ["hessian", "jacobian"]

_MOST_AXES = 64


def jacobian(
    fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of ``fn``.

    The mode follows the shapes: forward, one sweep for each input element, where there are fewer
    inputs than outputs; reverse, one sweep for each output element, otherwise.

    Args:
        fn: A function of arrays or trees of them, with such a result, all real.
        argnums: Which positional arguments to differentiate; the others are passed on.
        has_aux: Whether ``fn`` returns a pair, the result and something to hand through.

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
    return _jacobian("jacobian", fn, argnums, has_aux)


def hessian(
    fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes the Hessian of ``fn``: the Jacobian of its Jacobian.

    Forward over reverse: one forward sweep over the gradient for each input element.

    Args:
        fn: A function of real arrays or trees of them; its result is usually one number.
        argnums: Which positional arguments to differentiate; the others are passed on.
        has_aux: Whether ``fn`` returns a pair, the result and something to hand through.

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
    inner = _jacobian("hessian", fn, argnums, has_aux)
    outer = _jacobian("hessian", inner, argnums, has_aux, outer=True)
    return copy_metadata(fn, outer, "hessian")  # type: ignore[no-any-return]


def _jacobian(
    who: str, fn: Callable[..., Any], argnums: Argnums, has_aux: bool, outer: bool = False
) -> Callable[..., Any]:
    """Return the Jacobian function; ``outer`` if ``fn`` is a Jacobian: forward, no warning."""
    numbers, has_aux = normalize_argnums(who, argnums), check_flag(who, "has_aux", has_aux)
    single = not isinstance(argnums, (tuple, list))

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
        found = build(tape, outputs, watched.sources)
        result = rebuild([watched.trees(blocks, single) for blocks in found])
        return (result, export_results(tape, aux)) if has_aux else result

    return copy_metadata(fn, matrix, who)  # type: ignore[no-any-return]


_WITH_DTYPE = (Variable, Symbol, Spec, *ARRAY_LIKE)


def _check_real(who: str, path: str, leaf: Any) -> None:
    try:
        dtype = leaf.dtype if isinstance(leaf, _WITH_DTYPE) else np.asarray(leaf).dtype
    except STUMBLES as error:
        raise DTypeError(
            f"{who}: {path} is {format_value(leaf)}, which is not an array: {error}"
        ) from error
    if dtype.kind != "f" and type(leaf) is not int:
        raise DTypeError(
            f"{who}: {path} is of {dtype}; it must be real floating numbers; for complex ones use "
            "vjp and jvp, and for others return them as aux"
        )


def _element_count(value: Any) -> int:
    return int(np.prod(_shape(value)))


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else ()


def _unit_arrays(value: Any) -> Iterator[Array]:
    """Yield the arrays like ``value`` that have one element 1 and the others 0, in order."""
    for k in range(_element_count(value)):
        unit = np.zeros(_shape(value), value.dtype)
        unit.reshape(-1)[k] = 1.0
        yield unit


def _reverse_mode_blocks(
    tape: GradientTape, outputs: list[Any], sources: Sources
) -> list[list[Any]]:
    """Return blocks by output and source, from a backward sweep for each output element."""
    blocks = []
    for out in outputs:
        units = _unit_arrays(out) if hasattr(out, "dtype") else iter([np.ones(())])
        sweeps = [gradients_of(tape, [out], sources, [unit]) for unit in units]
        columns = zip(*sweeps, strict=True) if sweeps else [()] * len(sources.ids)
        blocks.append(
            [
                _assemble_block(column, 0, (*_shape(out), *spec.shape), spec)
                for column, spec in zip(columns, sources.specs, strict=True)
            ]
        )
    return blocks


def _forward_mode_blocks(
    tape: GradientTape, outputs: list[Any], sources: Sources
) -> list[list[Any]]:
    """Return blocks by output and source, from a forward sweep for each input element."""
    blocks: list[list[Any]] = [[] for _ in outputs]
    for k, spec in enumerate(sources.specs):
        source = sources.select(k)
        sweeps = [tangents_of(tape, outputs, source, [unit]) for unit in _unit_arrays(spec)]
        columns = zip(*sweeps, strict=True) if sweeps else [()] * len(outputs)
        for row, column, out in zip(blocks, columns, outputs, strict=True):
            row.append(_assemble_block(column, -1, (*_shape(out), *spec.shape), spec))
    return blocks


def _assemble_block(results: Any, axis: int, shape: tuple[int, ...], like: Spec) -> Any:
    """Stack the results of the sweeps into one array."""
    if len(shape) > _MOST_AXES:
        raise ShapeError(
            f"jacobian: a block would have {len(shape)} axes, those of a result and of an "
            f"argument, and NumPy's arrays have at most {_MOST_AXES}; reshape one of them"
        )
    results = list(results)
    if not results:
        return np.zeros(shape, like.dtype)
    if all(isinstance(result, ARRAY_LIKE) for result in results):
        return np.stack(results, axis).reshape(shape)
    return reshape(stack(results, axis), shape)
