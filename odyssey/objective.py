"""Objectives for ``scipy.optimize``: one flat vector in, a value and its gradient out.

It is ``od.optim.scipy_objective`` to users, who find it there when they ask for it. It
differentiates, which optimizers do not, so it lives above the tape; SciPy itself is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import check_callable, check_flag, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.same_device import array_copy, host_array, place_beside
from odyssey.errors import DTypeError, ShapeError
from odyssey.flat_vector import split_vector
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Array
from odyssey.table.registry import load_module
from odyssey.table.tree_sources import fixed_leaves
from odyssey.table.value import NUMBERS, Traced
from odyssey.tape import GradientTape
from odyssey.transforms import hessian, hvp, value_and_grad
from odyssey.tree import leaves, paths, unflatten
from odyssey.variable import Variable

__all__ = ["Objective", "scipy_objective"]


class Objective:
    """A function of a tree of arrays, as one of a flat float64 vector; see ``scipy_objective``.

    Attributes:
        x0: The parameters that it was made with, flattened, (n,).
    """

    def __init__(self, fn: Callable[[Any], Any], params: Any, compile: bool = False) -> None:
        self._fn = check_callable("scipy_objective", fn)
        self._compiled: dict[str, Callable[..., Any]] = {}
        if check_flag("scipy_objective", "compile", compile):
            # The compiler is above this module.
            make = load_module("odyssey.compiler").compile
            self._compiled["value_and_grad"] = make(value_and_grad(self._value))
            self._compiled["hessp"] = make(lambda x, v: hvp(self._value, (x,), (v,)))
            self._compiled["hess"] = make(hessian(self._value))
        named = list(paths(params))
        fixed = fixed_leaves(params, [leaf for _, leaf in named])
        # The leaves that are parameters: constants and integers below an object are none.
        self._free = [k for k in range(len(named)) if k not in fixed]
        for path, leaf in [named[k] for k in self._free]:
            dtype = np.dtype(type(leaf)) if type(leaf) in (float, complex) else None
            dtype = dtype or getattr(leaf, "dtype", None)  # of a class it is a descriptor
            if not isinstance(dtype, np.dtype) or not is_inexact(dtype):
                raise DTypeError(
                    f"scipy_objective: {path or 'params'} is {format_value(leaf)}; pass floating "
                    "numbers, arrays or Variables, and close over what is not to change"
                )
        flat = leaves(params)
        self._numbers = [type(flat[k]) in NUMBERS for k in self._free]
        arrays = [v if k in fixed else _parameter_array(v) for k, v in enumerate(flat)]
        self._params = unflatten(params, arrays)
        self.x0 = self._flat(self._params)

    def _flat(self, tree: Any) -> Array:
        """Return all leaves in one vector; a complex leaf as pairs of real and imaginary parts."""
        return self._flat_of(self._free_leaves(tree))

    def _free_leaves(self, tree: Any) -> list[Any]:
        """Return the leaves of a tree like the parameters that are parameters."""
        flat = leaves(tree)
        return [flat[k] for k in self._free]

    def _tree_of(self, values: list[Any]) -> Any:
        """Return the tree of the parameters with other values."""
        flat = leaves(self._params)
        for k, value in zip(self._free, values, strict=True):
            flat[k] = value
        return unflatten(self._params, flat)

    @staticmethod
    def _flat_of(values: list[Any]) -> Array:
        parts = [np.zeros(0)]
        for leaf in values:
            array = np.ascontiguousarray(host_array(_parameter_array(leaf))).reshape(-1)
            parts.append(array.view(array.real.dtype).astype(np.float64))
        return np.concatenate(parts)

    def unflatten(self, x: Any) -> Any:
        """Return the tree of parameters, in their shapes and dtypes, whose numbers are ``x``.

        Args:
            x: (n,). Gradients flow back to a Variable; its tree is one of Variables.

        Raises:
            ShapeError: for another length.
        """
        if isinstance(x, (Variable, Traced)):
            self._check_length(x)
            return self._tree_of(self._variable_leaves(x))
        x = self._numbers_at(x)
        found, start = [], 0
        parameters = self._free_leaves(self._params)
        for leaf, is_number in zip(parameters, self._numbers, strict=True):
            real = leaf.real.dtype
            stop = start + _real_size(leaf)
            array = x[start:stop].astype(real).view(leaf.dtype).reshape(leaf.shape)
            array = place_beside(array, leaf)
            found.append(array.item() if is_number else array)
            start = stop
        return self._tree_of(found)

    def _numbers_at(self, x: Any) -> Array:
        """Return a vector of float64 of the length of the parameters."""
        numbers: Array = host_array(as_array("scipy_objective", "x", x)).astype(np.float64)
        self._check_length(numbers)
        return numbers

    def _check_length(self, x: Any) -> None:
        if x.shape != self.x0.shape:
            raise ShapeError(f"scipy_objective: x has shape {x.shape}, not {self.x0.shape}")

    def _variable_leaves(self, x: Any) -> list[Any]:
        """Return the leaves for a Variable or a traced array, by ops."""
        found = []
        params = self._free_leaves(self._params)
        for leaf, piece in zip(params, split_vector(x, list(map(_real_size, params))), strict=True):
            if leaf.dtype.kind == "c":
                pairs = reshape(piece, (*leaf.shape, 2))
                piece = pairs[..., 0] + 1j * pairs[..., 1]
            piece = piece if piece.dtype == leaf.dtype else astype(piece, leaf.dtype)
            found.append(reshape(piece, leaf.shape))
        return found

    def _value(self, x: Any) -> Any:
        return self._fn(self.unflatten(x))

    def value_and_grad(self, x: Any) -> tuple[Any, Any]:
        """Return the value at ``x`` and its gradient, (n,): 0 for what it does not depend on.

        For a Variable both are differentiable; for an array they are a float and an array.
        """
        if isinstance(x, (Variable, Traced)):
            value, gradient = value_and_grad(self._value)(x)
            return value, gradient
        if self._compiled:
            value, gradient = self._compiled["value_and_grad"](self._numbers_at(x))
            return float(value), np.asarray(gradient)
        with GradientTape() as tape:
            params = tape.watch(self.unflatten(x))
            sources = self._free_leaves(params)  # before the function may change its argument
            value = self._fn(params)
        grads = tape.gradient(value, sources, unused="zero")
        return float(value.item()), self._flat_of(grads)

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Return value and gradient at ``x``, for ``minimize(objective, x0, jac=True)``."""
        return self.value_and_grad(x)

    def hess(self, x: Any) -> Any:
        """Return the Hessian at ``x``, (n, n); differentiable for a Variable.

        It takes n times the memory of a gradient. For many parameters use ``hessp``.
        """
        if not isinstance(x, (Variable, Traced)):
            x = self._numbers_at(x)
            if self._compiled:
                return np.asarray(self._compiled["hess"](x))
        return hessian(self._value)(x)

    def hessp(self, x: Any, v: Any) -> Any:
        """Return the product of the Hessian at ``x`` with the vector ``v``, (n,).

        It is differentiable where ``x`` or ``v`` is a Variable.
        """
        if isinstance(x, (Variable, Traced)) or isinstance(v, (Variable, Traced)):
            return hvp(self._value, (x,), (v,))
        if self._compiled:
            return np.asarray(self._compiled["hessp"](self._numbers_at(x), self._numbers_at(v)))
        with GradientTape() as outer:
            params = outer.watch(self.unflatten(x))
            points = self._free_leaves(params)
            with GradientTape() as inner:
                watched = inner.watch(params)
                sources = self._free_leaves(watched)
                value = self._fn(watched)
            grads = inner.gradient(value, sources, unused="zero")
        pairs = zip(grads, self._free_leaves(self.unflatten(v)), strict=True)
        # A gradient that does not depend on the parameters is a constant: its derivative is 0.
        moving = [(g, w) for g, w in pairs if isinstance(g, Variable) and g.requires_grad]
        if not moving:
            return np.zeros_like(self.x0)
        outputs, weights = [g for g, _ in moving], [w for _, w in moving]
        return self._flat_of(outer.gradient(outputs, points, weights, unused="zero"))


def _real_size(leaf: Array) -> int:
    """Return how many real numbers are in an array."""
    return leaf.size * (2 if leaf.dtype.kind == "c" else 1)


def _parameter_array(leaf: Any) -> Array:
    data = leaf.detach().data if isinstance(leaf, Variable) else leaf
    return array_copy(as_array("scipy_objective", "params", data))


def scipy_objective(fn: Callable[[Any], Any], params: Any, *, compile: bool = False) -> Objective:
    """Make ``fn`` an objective for ``scipy.optimize.minimize``, with exact derivatives.

    Args:
        fn: From a tree like ``params`` to a real scalar, written with ops. A function of
            ``od.compile`` runs as it was written here, since its argument is on a tape.
        params: Where to start: floating or complex arrays, Variables or Python numbers in any
            tree. They stay as they are; ``unflatten(result.x)`` gives the solution in their form.
        compile: Compile the value with its gradient, and the other derivatives, by ``od.compile``.

    Returns:
        An object with ``x0``, the parameters in one float64 vector; that, called with such a
        vector, returns value and gradient; ``hessp(x, v)`` is the product of the Hessian with a
        vector, and ``hess(x)`` the Hessian. Its methods also take Variables, and then give
        Variables that a tape differentiates.

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
    >>> objective.hess(objective.x0)
    array([[0., 0., 6.],
           [0., 0., 6.],
           [6., 6., 6.]])

    With SciPy, ``minimize(objective, objective.x0, jac=True)``, or for a Newton method
    ``minimize(objective, objective.x0, jac=True, hessp=objective.hessp, method="trust-ncg")``.
    """
    return Objective(fn, params, compile)


def __dir__() -> list[str]:
    return sorted(__all__)
