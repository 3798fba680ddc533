"""Test helpers: check of gradients against finite differences, and counts of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.checks import (
    check_callable,
    check_choice,
    check_flag,
    check_int,
    check_number,
    format_value,
)
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.same_device import (
    array_copy,
    call_beside,
    cast_beside,
    host_array,
    place_beside,
    zeros_beside,
)
from odyssey.errors import DTypeError, OdysseyError
from odyssey.floating_point_errors import isolate_errstate
from odyssey.table.kernel_overrides import count_kernels
from odyssey.table.value import array_of
from odyssey.tape import GradientTape
from odyssey.tree import leaves, map_tree, unflatten
from odyssey.variable import Variable

__all__ = ["check_gradients", "count_kernels"]


def check_gradients(
    fn: Callable[..., Any],
    *args: Any,
    order: int = 2,
    modes: Sequence[str] = ("reverse", "forward"),
    tolerance: float = 1e-6,
    step: float = 1e-5,
    complex_step: bool = False,
    seed: int = 0,
) -> float:
    """Compare derivatives of ``fn`` with differences along random directions, in float64.

    The outputs are projected on a random cotangent, the arguments moved along a random
    direction: one number each for reverse mode, forward mode and the central difference. For
    second order the same is done to the gradient that the reverse mode computed.

    Args:
        fn: A function of arrays or trees of them, written with ops.
        args: Where to differentiate: floating or complex arrays, or trees of them.
        order: Up to which derivative.
        modes: Of ``"reverse"`` and ``"forward"``.
        tolerance: Largest relative error; the difference itself is good to about 1e-9.
        step: Length of the difference's step.
        complex_step: Differentiate numerically along the imaginary axis, which is exact to
            rounding, where ``fn`` is real and analytic. Used for the first order.
        seed: Of the random directions.

    Returns:
        The largest relative error seen.

    Raises:
        AssertionError: naming order and mode, with both numbers.

    >>> import odyssey as od
    >>> check_gradients(lambda x: od.ops.exp(x).sum(), np.array([0.0, 1.0])) < 1e-6
    True
    """
    order, modes, tolerance, step, complex_step, seed = _checked_settings(
        fn, order, modes, tolerance, step, complex_step, seed
    )
    rng = isolate_errstate(np.random.default_rng)(seed)
    point = [map_tree(_to_double, arg) for arg in args]
    worst = 0.0
    for k in range(1, order + 1):
        probe = _Probe(fn, point, rng)
        expected = probe.difference(step, complex_step and k == 1)
        for mode in modes:
            got = probe.reverse() if mode == "reverse" else probe.forward()
            error = abs(got - expected) / max(probe.scale, abs(expected), 1e-12)
            if not error <= tolerance:
                raise AssertionError(
                    f"check_gradients: derivative of order {k} in {mode} mode is {got!r}, "
                    f"differences give {expected!r}; relative error {error:.1e} > {tolerance:.0e}"
                )
            worst = max(worst, error)
        fn = probe.gradient_function()
    return worst


def _checked_settings(
    fn: Any, order: Any, modes: Any, tolerance: Any, step: Any, complex_step: Any, seed: Any
) -> tuple[int, list[str], float, float, bool, int]:
    """The settings of ``check_gradients``, checked."""
    who = "check_gradients"
    check_callable(who, fn)
    if not isinstance(modes, (list, tuple, set)):
        raise DTypeError(f"{who}: modes={format_value(modes)}; pass a list of words")
    return (
        # Each order costs several times what the one before costs.
        int(check_number(who, "order", check_int(who, "order", order), "[1, 9]")),
        [check_choice(who, "modes", mode, ("reverse", "forward")) for mode in modes],
        check_number(who, "tolerance", tolerance, "[0, inf]"),
        check_number(who, "step", step, "(0, inf)"),
        check_flag(who, "complex_step", complex_step),
        check_int(who, "seed", seed, 0),
    )


def _to_double(x: Any) -> Any:
    x = x.data if isinstance(x, Variable) else as_array("check_gradients", "an argument", x)
    if not is_inexact(x.dtype):
        raise OdysseyError(f"check_gradients: an argument has dtype {x.dtype}; wrap it in fn")
    return cast_beside(x, np.dtype(np.complex128 if x.dtype.kind == "c" else np.float64))


def _random_like(x: Any, rng: np.random.Generator) -> Any:
    values = rng.uniform(0.5, 1.5, x.shape) * rng.choice([-1.0, 1.0], x.shape)
    if x.dtype.kind == "c":
        values = values + 1j * rng.uniform(-1.0, 1.0, x.shape)
    return place_beside(np.asarray(values, x.dtype), x)


def _inner_product(a: list[Any], b: list[Any]) -> float:
    """Real inner product of two lists of arrays."""
    pairs = [(host_array(x), host_array(y)) for x, y in zip(a, b, strict=True)]
    return float(sum(np.sum(np.conj(x) * y).real for x, y in pairs))


def _result_array(x: Any) -> Any:
    return as_array("check_gradients", "the result", array_of(x))


class _Probe:
    """One function at one point, with a random cotangent and a random direction."""

    def __init__(self, fn: Callable[..., Any], point: list[Any], rng: np.random.Generator) -> None:
        self.fn = fn
        self.point = point
        self.place = next(iter(leaves(point)), None)  # an array on the device of the function
        self.direction = [_random_like(x, rng) for x in leaves(point)]
        copies = map_tree(array_copy, point)
        self.outputs = list(map(_result_array, leaves(call_beside(self.place, fn, *copies))))
        self.cotangent = [_random_like(y, rng) for y in self.outputs]
        # Relative to the size of the terms that were summed, which may cancel in the sum.
        self.scale = 0.0

    def _outputs_at(self, shift: complex) -> list[Any]:
        moved = [
            call_beside(x, lambda x, v: x + shift * v, x, v)
            for x, v in zip(leaves(self.point), self.direction, strict=True)
        ]
        found = leaves(call_beside(self.place, self.fn, *unflatten(self.point, moved)))
        return [host_array(_result_array(y)) for y in found]

    def difference(self, step: float, complex_step: bool) -> float:
        if complex_step:
            imaginary = [y.imag / 1e-30 for y in self._outputs_at(1e-30j)]
            return _inner_product(self.cotangent, imaginary)
        # Fourth order: errors of step**4 and of rounding / step.
        near = [
            (a - b) / (2 * step)
            for a, b in zip(self._outputs_at(step), self._outputs_at(-step), strict=True)
        ]
        far = [
            (a - b) / (4 * step)
            for a, b in zip(self._outputs_at(2 * step), self._outputs_at(-2 * step), strict=True)
        ]
        slopes = [(4 * n - f) / 3 for n, f in zip(near, far, strict=True)]
        pairs = zip(map(host_array, self.cotangent), slopes, strict=True)
        self.scale = float(sum(np.abs(c * s).sum() for c, s in pairs))
        return _inner_product(self.cotangent, slopes)

    def _record_outputs(self, **options: Any) -> tuple[GradientTape, list[Any], list[Any]]:
        with GradientTape(**options) as tape:
            watched = [tape.watch(arg) for arg in self.point]
            sources = leaves(watched)  # before the function may change its arguments
            outputs = leaves(self.fn(*watched))
        return tape, sources, outputs

    def reverse(self) -> float:
        tape, sources, outputs = self._record_outputs()
        pairs = [
            (y, c)
            for y, c in zip(outputs, self.cotangent, strict=True)
            if isinstance(y, Variable) and y.requires_grad
        ]
        if not pairs:
            return 0.0
        gradients = tape.gradient(
            [y for y, _ in pairs], sources, [c for _, c in pairs], unused="zero"
        )
        return _inner_product(gradients, self.direction)

    def forward(self) -> float:
        tape, sources, outputs = self._record_outputs()
        total = 0.0
        for y, c in zip(outputs, self.cotangent, strict=True):
            if isinstance(y, Variable) and y.requires_grad:
                total += _inner_product([c], [tape.jvp(y, sources, self.direction)])
        return total

    def gradient_function(self) -> Callable[..., Any]:
        """Return the projected gradient as a function, to be checked for the next order."""

        def projected_gradient(*args: Any) -> Any:
            with GradientTape() as tape:
                watched = [tape.watch(arg) for arg in args]
                sources = leaves(watched)
                outputs = leaves(self.fn(*watched))
            pairs = [
                (y, c)
                for y, c in zip(outputs, self.cotangent, strict=True)
                if isinstance(y, Variable) and y.requires_grad
            ]
            if not pairs:
                return [zeros_beside(x, x) for x in sources]
            return tape.gradient(
                [y for y, _ in pairs], sources, [c for _, c in pairs], unused="zero"
            )

        return projected_gradient


def __dir__() -> list[str]:
    return sorted(__all__)
