"""Objectives for ``scipy.optimize``: one flat vector in, a value and its gradient out.

It is ``od.optim.scipy_objective`` to users, who find it there when they ask for it. It
differentiates, which optimizers do not, so it lives above the tape; SciPy itself is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import check_callable, format_value
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.spec import Array
from odyssey.tape import GradientTape
from odyssey.tree import leaves, paths, unflatten
from odyssey.variable import Variable

__all__ = ["Objective", "scipy_objective"]


class Objective:
    """A function of a tree of arrays, as one of a flat float64 vector; see ``scipy_objective``.

    Attributes:
        x0: The parameters that it was made with, flattened, (n,).
    """

    def __init__(self, fn: Callable[[Any], Any], params: Any) -> None:
        self._fn = check_callable("scipy_objective", fn)
        for path, leaf in paths(params):
            dtype = getattr(leaf, "dtype", None)  # of a class it is a descriptor
            if not isinstance(dtype, np.dtype) or dtype.kind not in "fc":
                raise DTypeError(
                    f"scipy_objective: {path or 'params'} is {format_value(leaf)}; pass floating "
                    "arrays, or Variables, and close over what is not to change"
                )
        self._params = unflatten(params, [_parameter_array(leaf) for leaf in leaves(params)])
        self.x0 = self._flat(self._params)

    def _flat(self, tree: Any) -> Array:
        """Return all leaves in one vector; a complex leaf as pairs of real and imaginary parts."""
        parts = [np.zeros(0)]
        for leaf in leaves(tree):
            array = np.ascontiguousarray(_parameter_array(leaf)).reshape(-1)
            parts.append(array.view(array.real.dtype).astype(np.float64))
        return np.concatenate(parts)

    def unflatten(self, x: Any) -> Any:
        """Return the tree of parameters, in their shapes and dtypes, whose numbers are ``x``.

        Args:
            x: (n,).

        Raises:
            ShapeError: for another length.
        """
        x = as_array("scipy_objective", "x", x).astype(np.float64)
        if x.shape != self.x0.shape:
            raise ShapeError(f"scipy_objective: x has shape {x.shape}, not {self.x0.shape}")
        found, start = [], 0
        for leaf in leaves(self._params):
            real = leaf.real.dtype
            stop = start + leaf.size * (leaf.dtype.itemsize // real.itemsize)
            found.append(x[start:stop].astype(real).view(leaf.dtype).reshape(leaf.shape))
            start = stop
        return unflatten(self._params, found)

    def value_and_grad(self, x: Any) -> tuple[float, Array]:
        """Return the value at ``x`` and its gradient, (n,): 0 for what it does not depend on."""
        with GradientTape() as tape:
            params = tape.watch(self.unflatten(x))
            sources = leaves(params)  # before the function may change its argument
            value = self._fn(params)
        grads = tape.gradient(value, sources, unused="zero")
        return float(value.item()), self._flat(grads)

    def __call__(self, x: Any) -> tuple[float, Array]:
        """Return value and gradient at ``x``, for ``minimize(objective, x0, jac=True)``."""
        return self.value_and_grad(x)

    def hessp(self, x: Any, v: Any) -> Array:
        """Return the product of the Hessian at ``x`` with the vector ``v``, (n,)."""
        with GradientTape() as outer:
            params = outer.watch(self.unflatten(x))
            with GradientTape() as inner:
                watched = inner.watch(params)
                sources = leaves(watched)
                value = self._fn(watched)
            grads = inner.gradient(value, sources, unused="zero")
        pairs = zip(grads, leaves(self.unflatten(v)), strict=True)
        # A gradient that does not depend on the parameters is a constant: its derivative is 0.
        moving = [(g, w) for g, w in pairs if isinstance(g, Variable) and g.requires_grad]
        if not moving:
            return np.zeros_like(self.x0)
        outputs, weights = [g for g, _ in moving], [w for _, w in moving]
        return self._flat(outer.gradient(outputs, params, weights, unused="zero"))


def _parameter_array(leaf: Any) -> Array:
    data = leaf.detach().numpy() if isinstance(leaf, Variable) else leaf
    return np.array(as_array("scipy_objective", "params", data))


def scipy_objective(fn: Callable[[Any], Any], params: Any) -> Objective:
    """Make ``fn`` an objective for ``scipy.optimize.minimize``, with exact derivatives.

    Args:
        fn: From a tree like ``params`` to a real scalar, written with ops. One of ``od.compile``
            runs as it was written here, since what it is given is on a tape; what takes the
            derivative can be compiled, as ``od.compile(od.value_and_grad(fn))``.
        params: Where to start: floating or complex arrays or Variables in any tree. They stay
            as they are; ``unflatten(result.x)`` gives the solution in their form.

    Returns:
        An object with ``x0``, the parameters in one float64 vector; that, called with such a
        vector, returns value and gradient; and whose ``hessp(x, v)`` is the product of the
        Hessian with a vector.

    Raises:
        DTypeError: for parameters that are not floating.

    >>> objective = scipy_objective(lambda p: (p["a"] * p["b"] ** 2).sum(), {
    ...     "a": np.array([1.0, 2.0]), "b": np.array(3.0)})
    >>> objective.x0
    array([1., 2., 3.])
    >>> objective(objective.x0)
    (27.0, array([ 9.,  9., 18.]))
    >>> objective.hessp(objective.x0, [0.0, 0.0, 1.0])
    array([6., 6., 6.])
    >>> objective.unflatten([4.0, 5.0, 6.0])
    {'a': array([4., 5.]), 'b': array(6.)}

    With SciPy, ``minimize(objective, objective.x0, jac=True)``, or for a Newton method
    ``minimize(objective, objective.x0, jac=True, hessp=objective.hessp, method="trust-ncg")``.
    """
    return Objective(fn, params)


def __dir__() -> list[str]:
    return sorted(__all__)
