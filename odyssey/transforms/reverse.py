"""Reverse mode: gradients and vector-Jacobian products of functions, and ``stop_gradient``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import check_callable, check_flag, describe_type
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.same_device import zeros_beside
from odyssey.errors import DTypeError, ShapeError
from odyssey.table.scope import recording_now
from odyssey.table.store import store
from odyssey.table.value import NUMBERS, Symbol
from odyssey.tape import GradientTape
from odyssey.tape.queries import Sources
from odyssey.transforms.arguments import (
    Argnums,
    WatchedArguments,
    argument_positions,
    copy_metadata,
    detach_recorded,
    export_results,
    is_on_tape,
    normalize_argnums,
    split_aux,
    warn_if_independent,
)
from odyssey.tree import leaves, map_tree, same_tree
from odyssey.variable import Variable

__all__ = ["grad", "stop_gradient", "value_and_grad", "vjp"]


def grad(fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that computes the gradient of ``fn``.

    The ``.grad`` of trainable Variables stays untouched, whether they are arguments or closed over.

    Args:
        fn: A function with a result of one element; of a complex result ``f`` the gradient is
            conj(f'), as on a tape.
        argnums: Which positional arguments to differentiate: arrays, floats, Variables or trees
            of them; the others, and keyword arguments, are passed on. A leaf may be None.
        has_aux: Whether ``fn`` returns a pair, the result and something to hand through.

    Returns:
        A function of the same arguments. Its result has the tree of the argument, or is a tuple
        where ``argnums`` is one; with ``has_aux`` it is the pair ``(gradient, aux)``. It warns
        (``IndependentWarning``) where the result depends on none of these arguments.

    Raises:
        DTypeError: for a leaf without a gradient, such as integers, or wrong ``argnums``.
        ShapeError: where the result of ``fn`` has more than one element.

    >>> gradient = grad(lambda p: (p["w"] * p["w"]).sum() + p["b"])
    >>> gradient({"w": np.array([1.0, 2.0]), "b": 3.0})
    {'w': array([2., 4.]), 'b': array(1.)}
    """
    numbers, has_aux = normalize_argnums("grad", argnums), check_flag("grad", "has_aux", has_aux)
    single = not isinstance(argnums, (tuple, list))

    def gradient_of_fn(*args: Any, **named: Any) -> Any:
        _, aux, gradients = differentiate("grad", fn, numbers, single, has_aux, args, named)
        return (gradients, aux) if has_aux else gradients

    return copy_metadata(fn, gradient_of_fn, "grad")  # type: ignore[no-any-return]


def value_and_grad(
    fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes the value of ``fn`` and its gradient in one pass.

    Args:
        fn: As for ``grad``.
        argnums: As for ``grad``.
        has_aux: As for ``grad``.

    Returns:
        A function of the same arguments, whose result is ``(value, gradient)``, with ``has_aux``
        ``((value, aux), gradient)``.

    Raises:
        DTypeError, ShapeError: as ``grad``.

    >>> value, gradient = value_and_grad(lambda x, y: x * y, argnums=(0, 1))(2.0, 5.0)
    >>> float(value), [float(g) for g in gradient]
    (10.0, [5.0, 2.0])
    """
    numbers = normalize_argnums("value_and_grad", argnums)
    has_aux = check_flag("value_and_grad", "has_aux", has_aux)
    single = not isinstance(argnums, (tuple, list))

    def with_gradient(*args: Any, **named: Any) -> Any:
        out, aux, gradients = differentiate(
            "value_and_grad", fn, numbers, single, has_aux, args, named
        )
        return ((out, aux) if has_aux else out), gradients

    return copy_metadata(fn, with_gradient, "value_and_grad")  # type: ignore[no-any-return]


def differentiate(
    who: str,
    fn: Callable[..., Any],
    numbers: tuple[int, ...],
    single: bool,
    has_aux: bool,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> tuple[Any, Any, Any]:
    """Return the result of ``fn``, its auxiliary result, and the gradients; see ``grad``."""
    positions = argument_positions(who, numbers, len(args))
    args, named = detach_recorded(args, positions), detach_recorded(named)
    with GradientTape() as tape:
        watched = WatchedArguments(who, tape, args, positions)
        out, aux = split_aux(who, fn(*watched.args, **named), has_aux)
    _check_scalar(who, out)
    if who != "hvp":  # a zero Hessian is no mistake
        warn_if_independent(who, tape, [out], watched.sources)
    gradients = gradients_of(tape, [out], watched.sources, None)
    out, aux = export_results(tape, out), export_results(tape, aux)
    return out, aux, watched.trees(gradients, single)


def _check_scalar(who: str, out: Any) -> None:
    if type(out) in NUMBERS:
        return
    if type(out) is Variable and out._spec.shape == () and is_inexact(out._spec.dtype):
        return
    if not isinstance(out, (Variable, Symbol, *ARRAY_LIKE)):
        raise DTypeError(
            f"{who}: the function must return one number; it returned {describe_type(out)}; "
            "has_aux=True hands a second result through"
        )
    if int(np.prod(out.shape)) != 1:
        raise ShapeError(
            f"{who}: the function must return one number; its result has shape {out.shape}; "
            "reduce it, or use jacobian or vjp"
        )
    if not is_inexact(out.dtype):
        raise DTypeError(f"{who}: the result is of {out.dtype}, which has no gradient")


def gradients_of(
    tape: GradientTape, outputs: list[Any], sources: Sources, cotangents: list[Any] | None
) -> list[Any]:
    """Return the gradients of the outputs on the tape; zeros for sources that none depends on."""
    live = [k for k, out in enumerate(outputs) if is_on_tape(tape, out)]
    if not live:
        pairs = zip(sources.specs, sources.arrays, strict=True)
        zeros = [zeros_beside(spec, array) for spec, array in pairs]
        return [Variable(z) for z in zeros] if tape._is_followed() else zeros
    if len(outputs) == 1:
        given = None if cotangents is None else cotangents[0]
        alone: list[Any] = tape.gradient(outputs[0], sources, given, unused="zero")
        return alone
    given = None if cotangents is None else [cotangents[k] for k in live]
    found: list[Any] = tape.gradient([outputs[k] for k in live], sources, given, unused="zero")
    return found


def vjp(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Compute ``fn`` at a point, and the function that pulls cotangents back to that point.

    Args:
        fn: A function of arrays or trees of them, with such a result.
        primals: Where: an array, float, Variable or tree for each argument.
        has_aux: Whether ``fn`` returns a pair, the result and something to hand through.

    Returns:
        ``(out, pullback)``, with ``has_aux`` ``(out, pullback, aux)``. ``pullback`` takes
        cotangents in the tree of ``out`` and returns a tuple of gradients, one for each primal,
        as often as it is called. What ``fn`` kept is kept until ``pullback`` goes.

    Raises:
        DTypeError: for a leaf without a gradient. ShapeError: for cotangents that do not fit.

    >>> out, pullback = vjp(lambda x, y: x * y, np.array([1.0, 2.0]), 3.0)
    >>> pullback(np.array([1.0, 10.0]))
    (array([ 3., 30.]), array(21.))
    """
    check_callable("vjp", fn)
    has_aux = check_flag("vjp", "has_aux", has_aux)
    primals = detach_recorded(primals, range(len(primals)))
    with GradientTape(persistent=True) as tape:
        watched = WatchedArguments("vjp", tape, primals, range(len(primals)))
        out, aux = split_aux("vjp", fn(*watched.args), has_aux)
    outputs = leaves(out)
    warn_if_independent("vjp", tape, outputs, watched.sources)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        """Return the gradients of the primals for ``cotangents`` in the tree of the result."""
        given = same_tree("vjp", "cotangents", out, cotangents)
        if recording_now() is not None and not tape._is_followed() and any(map(_requires, given)):
            # A tape that began later records the cotangents only: make a pullback inside of it.
            again: tuple[Any, ...] = vjp(fn, *watched.primal_trees(), has_aux=has_aux)[1](
                cotangents
            )
            return again
        trees: tuple[Any, ...] = watched.trees(
            gradients_of(tape, outputs, watched.sources, given), single=False
        )
        return trees

    # A copy: the tape still needs the array of the result, and its new owner may write to it.
    result = export_results(tape, out, copy=True)
    return (
        (result, pullback, export_results(tape, aux, copy=True)) if has_aux else (result, pullback)
    )


def _requires(value: Any) -> bool:
    return isinstance(value, Variable) and value.requires_grad


def stop_gradient(tree: Any) -> Any:
    """Return ``tree`` with every Variable as a constant: no gradient flows back through it.

    >>> float(grad(lambda x: x * stop_gradient(x))(3.0))
    3.0
    """
    return map_tree(
        lambda leaf: leaf.detach() if isinstance(leaf, Variable) else store().detached(leaf), tree
    )
