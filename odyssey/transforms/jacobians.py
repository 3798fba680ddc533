"""Whole Jacobians and Hessians, one sweep for each row or column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, flag, shown
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import reshape
from odyssey.spec import Array, Spec
from odyssey.table.value import Symbol
from odyssey.tape import GradientTape
from odyssey.tape.queries import Known
from odyssey.transforms.arguments import (
    Argnums,
    Watched,
    checked_argnums,
    detached,
    hand_over,
    named_like,
    positions_of,
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
    return named_like(fn, outer, "hessian")  # type: ignore[no-any-return]


def _jacobian(
    who: str, fn: Callable[..., Any], argnums: Argnums, has_aux: bool, outer: bool = False
) -> Callable[..., Any]:
    """``outer`` says that ``fn`` is a Jacobian itself: forward mode, and it may be a constant."""
    numbers, has_aux = checked_argnums(who, argnums), flag(who, "has_aux", has_aux)
    bare = not isinstance(argnums, (tuple, list))

    def matrix(*args: Any, **named: Any) -> Any:
        positions = positions_of(who, numbers, len(args))
        args, named = detached(args), detached(named)
        with GradientTape(persistent=True) as tape:
            watched = Watched(who, tape, args, positions)
            out, aux = split_aux(who, fn(*watched.args, **named), has_aux)
        outputs, rebuild = flatten(out)
        for path, leaf in paths(out, "the result"):
            _check_real(who, path, leaf)
        for spec in watched.sources.specs:
            _check_real(who, "an argument", spec)
        if not outer:
            warn_if_independent(who, tape, outputs, watched.sources)
        fewer = sum(spec.size for spec in watched.sources.specs) < sum(_size(v) for v in outputs)
        build = _columns if outer or fewer else _rows
        found = build(tape, outputs, watched.sources)
        result = rebuild([watched.trees(blocks, bare) for blocks in found])
        return (result, hand_over(tape, aux)) if has_aux else result

    return named_like(fn, matrix, who)  # type: ignore[no-any-return]


_WITH_DTYPE = (Variable, Symbol, Spec, *ARRAY_LIKE)


def _check_real(who: str, path: str, leaf: Any) -> None:
    try:
        dtype = leaf.dtype if isinstance(leaf, _WITH_DTYPE) else np.asarray(leaf).dtype
    except STUMBLES as error:
        raise DTypeError(
            f"{who}: {path} is {shown(leaf)}, which is not an array: {error}"
        ) from error
    if dtype.kind != "f" and type(leaf) is not int:
        raise DTypeError(
            f"{who}: {path} is of {dtype}; it must be real floating numbers; for complex ones use "
            "vjp and jvp, and for others return them as aux"
        )


def _size(value: Any) -> int:
    return int(np.prod(_shape(value)))


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else ()


def _units(value: Any) -> Iterator[Array]:
    """The arrays like ``value`` that are 1 in one place and 0 elsewhere, in order."""
    for k in range(_size(value)):
        unit = np.zeros(_shape(value), value.dtype)
        unit.reshape(-1)[k] = 1.0
        yield unit


def _rows(tape: GradientTape, outputs: list[Any], sources: Known) -> list[list[Any]]:
    """Blocks by output and source, from a backward sweep for each output element."""
    blocks = []
    for out in outputs:
        units = _units(out) if hasattr(out, "dtype") else iter([np.ones(())])
        sweeps = [gradients_of(tape, [out], sources, [unit]) for unit in units]
        parts = zip(*sweeps, strict=True) if sweeps else [()] * len(sources.ids)
        blocks.append(
            [
                _block(p, 0, (*_shape(out), *spec.shape), spec)
                for p, spec in zip(parts, sources.specs, strict=True)
            ]
        )
    return blocks


def _columns(tape: GradientTape, outputs: list[Any], sources: Known) -> list[list[Any]]:
    """Blocks by output and source, from a forward sweep for each input element."""
    blocks: list[list[Any]] = [[] for _ in outputs]
    for k, spec in enumerate(sources.specs):
        source = sources.only(k)
        sweeps = [tangents_of(tape, outputs, source, [unit]) for unit in _units(spec)]
        parts = zip(*sweeps, strict=True) if sweeps else [()] * len(outputs)
        for made, part, out in zip(blocks, parts, outputs, strict=True):
            made.append(_block(part, -1, (*_shape(out), *spec.shape), spec))
    return blocks


def _block(parts: Any, axis: int, shape: tuple[int, ...], like: Spec) -> Any:
    """One array of the sweeps' results side by side."""
    if len(shape) > _MOST_AXES:
        raise ShapeError(
            f"jacobian: a block would have {len(shape)} axes, those of a result and of an "
            f"argument, and NumPy's arrays have at most {_MOST_AXES}; reshape one of them"
        )
    parts = list(parts)
    if not parts:
        return np.zeros(shape, like.dtype)
    if all(isinstance(part, ARRAY_LIKE) for part in parts):
        return np.stack(parts, axis).reshape(shape)
    return reshape(stack(parts, axis), shape)
