"""Pairs of functions, a peer's and ours, that must agree in values and gradients."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from odyssey import GradientTape, Variable, ops
from odyssey.tree import flatten

TOLERANCE = 1e-10
NONE: Mapping[str, Any] = MappingProxyType({})


class Pair(NamedTuple):
    """One call of both.

    Attributes:
        theirs: The dotted name of the peer's function, ``torch.linalg.solve`` or ``jax.…``.
        ours: The name of the op that means it.
        operands: Shapes of random operands, which are differentiated, and anything else as it is.
        call: How ours is called, of ``ops`` and Variables.
        their_call: How the peer's is called, of the peer's module and its tensors.
        low: The least random number, with ``high``, the largest; normal ones where both are None.
        complex: Whether the random operands are complex.
        values_only: Whether only values are compared: of results that are not differentiable.
        tolerance: Relative to 1 and to the value.
    """

    theirs: str
    ours: str
    operands: tuple[Any, ...]
    call: Callable[..., Any]
    their_call: Callable[..., Any]
    low: float | None
    high: float | None
    complex: bool
    values_only: bool
    tolerance: float

    @property
    def peer(self) -> str:
        return self.theirs.partition(".")[0]


def pair(
    path: str,
    name: str,
    /,
    *operands: Any,
    ours: Mapping[str, Any] | Callable[..., Any] = NONE,
    theirs: Mapping[str, Any] | Callable[..., Any] = NONE,
    low: float | None = None,
    high: float | None = None,
    complex: bool = False,
    values_only: bool = False,
    tolerance: float = TOLERANCE,
) -> Pair:
    """Declare a pair.

    Args:
        path: The dotted name of the peer's function.
        name: Of our op.
        operands: Shapes, or what is passed as it is.
        ours: Our options; or how ours is called, ``lambda ops, x: ...``.
        theirs: The peer's options; or how the peer's is called, ``lambda torch, x: ...``.
        low, high, complex, values_only, tolerance: See ``Pair``.
    """
    call = ours if callable(ours) else lambda ops, *args: getattr(ops, name)(*args, **ours)
    steps = path.split(".")[1:]

    def their_call(peer: Any, *args: Any) -> Any:
        if callable(theirs):
            return theirs(peer, *args)
        return reduce(getattr, steps, peer)(*args, **theirs)

    return Pair(path, name, operands, call, their_call, low, high, complex, values_only, tolerance)


def drawn(p: Pair) -> list[Any]:
    """The operands: random arrays for shapes, equal in every run."""
    rng = np.random.default_rng(zlib.crc32(p.theirs.encode()))

    def draw(shape: tuple[int, ...]) -> Any:
        if p.low is None or p.high is None:
            return rng.normal(size=shape)
        return rng.uniform(p.low, p.high, shape)

    found = []
    for operand in p.operands:
        shape = type(operand) is tuple and all(isinstance(n, int) for n in operand)
        x = draw(operand) if shape else operand
        found.append(x + 1j * draw(operand) if shape and p.complex else x)
    return found


def differentiated(p: Pair) -> list[bool]:
    return [
        not p.values_only and type(o) is tuple and all(isinstance(n, int) for n in o)
        for o in p.operands
    ]


def leaves(result: Any) -> list[Any]:
    """The arrays of a result: of one, or of a tuple or list of them."""
    found = flatten(tuple(result) if isinstance(result, (tuple, list)) else result)[0]
    return [leaf for leaf in found if leaf is not None]


def cotangent(k: int, like: Any) -> Any:
    rng = np.random.default_rng(k)
    g = rng.normal(size=like.shape)
    return g + 1j * rng.normal(size=like.shape) if like.dtype.kind == "c" else g


def of_ours(p: Pair) -> tuple[list[Any], list[Any]]:
    """Values, and the gradients of their sum with random weights."""
    flags = differentiated(p)
    args = [
        Variable(x, requires_grad=True) if on else x for x, on in zip(drawn(p), flags, strict=True)
    ]
    with GradientTape() as tape:
        found = leaves(p.call(ops, *args))
    values = [np.asarray(x.numpy() if isinstance(x, Variable) else x) for x in found]
    if not any(flags):
        return values, []
    outs = [x for x in found if isinstance(x, Variable) and x.dtype.kind in "fc"]
    seeds = [cotangent(k, x) for k, x in enumerate(outs)]
    sources = [x for x, on in zip(args, flags, strict=True) if on]
    return values, tape.gradient(outs, sources, seeds, unused="zero")


def of_torch(p: Pair, torch: Any) -> tuple[list[Any], list[Any]]:
    flags = differentiated(p)
    args = [
        torch.tensor(x, requires_grad=on) if isinstance(x, np.ndarray) else x
        for x, on in zip(drawn(p), flags, strict=True)
    ]
    found = leaves(p.their_call(torch, *args))
    values = [np.asarray(x.detach().resolve_conj() if hasattr(x, "detach") else x) for x in found]
    if not any(flags):
        return values, []
    outs = [x for x in found if x.is_floating_point() or x.is_complex()]
    seeds = [torch.tensor(cotangent(k, v)) for k, v in enumerate(map(_array, outs))]
    sources = [x for x, on in zip(args, flags, strict=True) if on]
    gradients = torch.autograd.grad(outs, sources, seeds, allow_unused=True)
    return values, [
        np.zeros(x.shape) if g is None else np.asarray(g.resolve_conj())
        for g, x in zip(gradients, sources, strict=True)
    ]


def _array(x: Any) -> Any:
    return np.asarray(x.detach().resolve_conj())


def of_jax(p: Pair, jax: Any) -> tuple[list[Any], list[Any]]:
    flags = differentiated(p)
    args = drawn(p)
    places = [k for k, on in enumerate(flags) if on]

    def call(*moving: Any) -> list[Any]:
        given = list(args)
        for k, x in zip(places, moving, strict=True):
            given[k] = x
        return leaves(p.their_call(jax, *given))

    moving = [jax.numpy.asarray(args[k]) for k in places]
    if not moving:
        return [np.asarray(x) for x in call()], []
    values, pull = jax.vjp(call, *moving)
    seeds, k = [], 0
    for x in values:
        floating = np.asarray(x).dtype.kind in "fc"
        # jax's pullbacks are plain transposes: conjugated, they are what the others answer.
        seeds.append(
            jax.numpy.conj(cotangent(k, np.asarray(x)))
            if floating
            else np.zeros(np.shape(x), jax.dtypes.float0)
        )
        k += floating
    return [np.asarray(x) for x in values], [np.conj(np.asarray(g)) for g in pull(list(seeds))]
