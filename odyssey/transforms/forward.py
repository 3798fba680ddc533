"""Forward mode: Jacobian-vector products and Hessian-vector products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odyssey.checks import check_callable, check_flag
from odyssey.table.tree_sources import fixed_leaves
from odyssey.tape import GradientTape
from odyssey.tape.queries import Sources
from odyssey.transforms.arguments import (
    WatchedArguments,
    detach_recorded,
    export_results,
    is_on_tape,
    paired_arguments,
    split_aux,
    zeros_like,
)
from odyssey.transforms.reverse import differentiate
from odyssey.tree import flatten, leaves, same_tree
from odyssey.variable import Variable

__all__ = ["hvp", "jvp"]


def jvp(fn: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Compute ``fn`` at a point, and how it changes when the point moves along ``tangents``.

    Args:
        fn: A function of arrays or trees of them, with such a result.
        primals: A tuple with an array, float, Variable or tree for each argument; anything but a
            tuple or list is the single argument.
        tangents: Directions, in the same trees and shapes.
        has_aux: Whether ``fn`` returns a pair, the result and something to hand through.

    Returns:
        ``(out, tangent)``, with ``has_aux`` ``(out, tangent, aux)``; the tangent has the tree
        and the shapes of ``out``.

    Raises:
        DTypeError: for a leaf without a derivative. ShapeError: for tangents that do not fit.

    >>> point, direction = np.array([1.0, 2.0]), np.array([1.0, 10.0])
    >>> out, tangent = jvp(lambda x: (x * x).sum(), (point,), (direction,))
    >>> float(out), float(tangent)
    (5.0, 42.0)
    """
    check_callable("jvp", fn)
    has_aux = check_flag("jvp", "has_aux", has_aux)
    primals, tangents = paired_arguments("jvp", primals, tangents)
    primals = detach_recorded(primals, range(len(primals)))
    given = []
    for n, (tree, direction) in enumerate(zip(primals, tangents, strict=True)):
        flat = same_tree("jvp", "tangents", tree, direction, f"argument {n}")
        found = leaves(tree)
        fixed = fixed_leaves(tree, found)
        given += [
            t
            for k, (t, leaf) in enumerate(zip(flat, found, strict=True))
            if leaf is not None and k not in fixed
        ]
    with GradientTape() as tape:
        watched = WatchedArguments("jvp", tape, primals, range(len(primals)))
        out, aux = split_aux("jvp", fn(*watched.args), has_aux)
    outputs, rebuild = flatten(out)
    tangent = rebuild(tangents_of(tape, outputs, watched.sources, given))
    result = export_results(tape, out)
    return (result, tangent, export_results(tape, aux)) if has_aux else (result, tangent)


def tangents_of(
    tape: GradientTape, outputs: list[Any], sources: Sources, tangents: list[Any]
) -> list[Any]:
    """Return the tangents of the outputs; zeros for outputs that do not depend on the sources."""
    live = [k for k, out in enumerate(outputs) if is_on_tape(tape, out)]
    result = [zeros_like(out) for out in outputs]
    if tape._is_followed():
        result = [t if t is None else Variable(t) for t in result]
    if live:
        computed = tape.jvp([outputs[k] for k in live], sources, tangents, unused="zero")
        for k, t in zip(live, computed, strict=True):
            result[k] = t
    return result


def hvp(fn: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Multiply the Hessian of ``fn`` with a vector: the gradient's change, forward over reverse.

    It costs a few times what the gradient costs, and the Hessian is never made.

    Args:
        fn: A function with a result of one element.
        primals: A tuple with an array, float, Variable or tree for each argument; anything but a
            tuple or list is the single argument.
        tangents: The vector, in the same trees and shapes.
        has_aux: Whether ``fn`` returns a pair, the result and something to hand through.

    Returns:
        The product in the tree of the argument, or a tuple of such trees for several; with
        ``has_aux`` the pair of it and ``aux``.

    Raises:
        DTypeError, ShapeError: as ``grad`` and ``jvp``.

    >>> hvp(lambda x: (x**3).sum(), (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),))
    array([  6., 120.])
    """
    has_aux = check_flag("hvp", "has_aux", has_aux)
    primals, tangents = paired_arguments("hvp", primals, tangents)
    numbers, single = tuple(range(len(primals))), len(primals) == 1

    def gradient_of_fn(*args: Any) -> Any:
        _, aux, gradients = differentiate("hvp", fn, numbers, single, has_aux, args, {})
        return (gradients, aux) if has_aux else gradients

    result = jvp(gradient_of_fn, primals, tangents, has_aux)
    return result[1:] if has_aux else result[1]
