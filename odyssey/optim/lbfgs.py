"""L-BFGS with a line search by the strong Wolfe conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import check_callable, check_choice, check_int, check_number, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.commit import Plan, commit
from odyssey.devices.same_device import host_array, place_beside
from odyssey.devices.stateful import Stateful
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import DTypeError, MissingGradientError, OdysseyError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.optim.groups import parameter_paths
from odyssey.sparse_rows import SparseRows
from odyssey.spec import Array
from odyssey.table.store import numbers_of, refuse_in_vmap, store
from odyssey.table.value import assign_plan, is_trainable
from odyssey.variable import Variable

__all__ = ["LBFGS"]


class _Point(NamedTuple):
    """A step length, the value there, the gradient, and the slope along the direction."""

    t: Any
    value: Any
    gradient: Array
    slope: Any


class LBFGS(Stateful):
    """L-BFGS (Nocedal and Wright 2006, algorithms 7.4, 3.5 and 3.6), as PyTorch has it.

    It computes in float64. ``step`` calls a closure as often as it needs values; the closure may be
    a function of ``od.compile``. Half-precision parameters are rounded before each call.

    Args:
        params: Trainable Variables, in any tree.
        learning_rate: Length of the first trial step, in units of the direction.
        max_iter: The most iterations of a step.
        max_eval: The most calls of the closure in a step, by default ``max_iter * 5 // 4``.
        tolerance_grad: A step ends where no derivative is larger.
        tolerance_change: A step ends where neither the value nor a parameter changes more.
        history_size: How many changes of the gradient the estimate of the Hessian remembers.
        line_search_fn: ``"strong_wolfe"``; or None, which takes the first trial step, as PyTorch
            does by default.

    >>> import odyssey as od
    >>> w = od.Variable([-1.0, 2.0], requires_grad=True)
    >>> optimizer = LBFGS(w, max_iter=50)
    >>> @od.compile
    ... def rosenbrock():
    ...     with od.GradientTape() as tape:
    ...         loss = (1.0 - w[0]) ** 2 + 100.0 * (w[1] - w[0] ** 2) ** 2
    ...     tape.backward(loss)
    ...     return loss
    >>> optimizer.step(rosenbrock).item()  # the value before the step
    104.0
    >>> w.numpy().round(4)
    array([1., 1.])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = "strong_wolfe",
    ) -> None:
        who = "LBFGS"
        self.learning_rate = check_number(who, "learning_rate", learning_rate, "[0, inf)")
        self.max_iter = check_int(who, "max_iter", max_iter, 1)
        limit = self.max_iter * 5 // 4 if max_eval is None else max_eval
        self.max_eval = check_int(who, "max_eval", limit, 1)
        self.tolerance_grad = check_number(who, "tolerance_grad", tolerance_grad, "[0, inf)")
        self.tolerance_change = check_number(who, "tolerance_change", tolerance_change, "[0, inf)")
        self.history_size = check_int(who, "history_size", history_size, 1)
        if line_search_fn is not None:
            check_choice(who, "line_search_fn", line_search_fn, ("strong_wolfe",))
        self.line_search_fn = line_search_fn
        found = parameter_paths(params)
        for path, leaf in found:
            if not isinstance(leaf, Variable) or not is_trainable(leaf):
                raise DTypeError(
                    f"{who}: {path or 'params'} is {format_value(leaf)}; pass trainable Variables"
                )
        self.params = [leaf for _, leaf in found]
        self._paths = [path for path, _ in found]
        self._state = _first_state()

    # -------------------------------------------------------------- the parameters as a vector

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to None."""
        for p in self.params:
            p.zero_grad()

    def _vector(self) -> Array:
        return _flat([numbers_of("LBFGS.step", p) for p in self.params])

    def _set_vector(self, x: Array) -> None:
        plan: Plan = []
        start = 0
        with write_lock():
            wait_for_programs()
            for p in self.params:
                width = 2 if p.dtype.kind == "c" else 1
                part = x[start : start + p.size * width]
                start += len(part)
                wide = part.view(np.complex128) if width == 2 else part
                array = wide.reshape(p.shape).astype(p.dtype)
                plan += assign_plan(p, place_beside(array, p))
            commit(plan)

    def _evaluate(self, closure: Callable[[], Any]) -> tuple[Any, Any, Array]:
        """Return what the closure returns, its value and the gradient."""
        self.zero_grad()
        result = closure()
        gradients = []
        for p, path in zip(self.params, self._paths, strict=True):
            if p.grad is None:
                raise MissingGradientError(
                    f"LBFGS.step: parameter {p.name or path or 'params'} has no gradient after the "
                    "closure; call tape.backward(loss) in it, and return the loss"
                )
            g = p.grad
            dense = g.to_dense() if isinstance(g, SparseRows) else g
            gradients.append(numbers_of("LBFGS.step", dense))
        try:
            value = np.float64(float(result.item() if hasattr(result, "item") else result))
        except (TypeError, ValueError):
            raise DTypeError(
                f"LBFGS.step: the closure returned {format_value(result)}; return the loss"
            ) from None
        return result, value, _flat(gradients)

    # -------------------------------------------------------------- stepping

    @ignore_fp_errors("divide", "invalid", "over", "under")
    def step(self, closure: Callable[[], Any], *, where: Any = True) -> Any:
        """Minimize for up to ``max_iter`` iterations; return the loss before the first.

        Args:
            closure: Computes the loss, calls ``backward`` and returns the loss. Gradients are set
                to None before each call.
            where: Only True: the gradients that it would depend on are computed by the step.

        Raises:
            MissingGradientError: if a parameter has no gradient after a call. Whatever a call
                raises, the parameters are those before the step.
        """
        store().refuse_effect("LBFGS.step: called", "compile the closure, and step outside")
        refuse_in_vmap("LBFGS.step")
        if where is not True:
            raise DTypeError(
                f"LBFGS.step: where={format_value(where)}; the step itself computes gradients, by "
                "the closure: leave where out, and write an if statement around the step"
            )
        check_callable("LBFGS.step", closure)
        before = self._vector()
        state = dict(self._state)
        try:
            result, point = self._iterate(closure, before, state)
            self._set_vector(point)
        except BaseException:
            self._set_vector(before)
            raise
        self._state = state
        return result

    def _iterate(
        self, closure: Callable[[], Any], x: Array, state: dict[str, Any]
    ) -> tuple[Any, Array]:
        """Return the first result of the closure and the last point; advance ``state``."""
        first, value, gradient = self._evaluate(closure)
        evaluations = 1
        if not _largest(gradient) > self.tolerance_grad:
            return first, x
        for iteration in range(1, self.max_iter + 1):
            direction = self._direction(gradient, state)
            state |= {"gradient": gradient, "direction": direction}
            t: Any = self.learning_rate
            if state["iterations"] == 1:
                t = min(1.0, 1.0 / np.abs(gradient).sum()) * t
            state["t"] = t
            slope = gradient.dot(direction)
            if slope > -self.tolerance_change:
                break
            old = value
            if self.line_search_fn is None:
                x = x + t * direction
                if iteration < self.max_iter:
                    self._set_vector(x)
                    _, value, gradient = self._evaluate(closure)
                    evaluations += 1
            else:
                start = _Point(0.0, value, gradient, slope)
                found, count = self._line_search(closure, x, direction, start, t, evaluations)
                t, value, gradient = found.t, found.value, found.gradient
                x = x + t * direction
                evaluations += count
            state["t"] = t
            if evaluations >= self.max_eval or not _largest(gradient) > self.tolerance_grad:
                break
            if _largest(direction * t) <= self.tolerance_change:
                break
            if abs(value - old) < self.tolerance_change:
                break
        return first, x

    def _direction(self, gradient: Array, state: dict[str, Any]) -> Array:
        """Return the product of the estimate of the inverse Hessian and the negative gradient."""
        state["iterations"] += 1
        if state["iterations"] == 1:
            return -gradient
        y, s = gradient - state["gradient"], state["direction"] * state["t"]
        product = y.dot(s)
        changes, steps = list(state["changes"]), list(state["steps"])
        if product > 1e-10:
            changes = [*changes, y][-self.history_size :]
            steps = [*steps, s][-self.history_size :]
            state |= {"changes": changes, "steps": steps, "scale": product / y.dot(y)}
        q = -gradient
        factors = [1.0 / y.dot(s) for y, s in zip(changes, steps, strict=True)]
        weights = []
        for y, s, factor in zip(changes[::-1], steps[::-1], factors[::-1], strict=True):
            weights.append(s.dot(q) * factor)
            q = q - weights[-1] * y
        r = q * state["scale"]
        for y, s, factor, weight in zip(changes, steps, factors, weights[::-1], strict=True):
            r = r + s * (weight - y.dot(r) * factor)
        found: Array = r
        return found

    def _line_search(
        self,
        closure: Callable[[], Any],
        x: Array,
        direction: Array,
        start: _Point,
        t: Any,
        evaluations: int,
    ) -> tuple[_Point, int]:
        """Return a point that satisfies the strong Wolfe conditions, and the number of calls."""
        most, c1, c2 = self.max_eval - evaluations, 1e-4, 0.9
        calls = 0

        def at(t: Any) -> _Point:
            nonlocal calls
            calls += 1
            self._set_vector(x + t * direction)
            _, value, gradient = self._evaluate(closure)
            return _Point(t, value, gradient, gradient.dot(direction))

        def too_high(point: _Point) -> bool:
            return bool(point.value > start.value + c1 * point.t * start.slope)

        def flat(point: _Point) -> bool:
            return bool(abs(point.slope) <= -c2 * start.slope)

        before, point, tries = start, at(t), 0
        bracket = [start, point]
        while tries < most:
            if too_high(point) or (tries > 1 and point.value >= before.value):
                bracket = [before, point]
                break
            if flat(point):
                return point, calls
            if point.slope >= 0:
                bracket = [before, point]
                break
            bounds = point.t + 0.01 * (point.t - before.t), point.t * 10
            t = _cubic_minimum(before, point, bounds)
            before, point, tries = point, at(t), tries + 1
        else:
            bracket = [start, point]
        stuck = False
        low, high = (0, 1) if bracket[0].value <= bracket[1].value else (1, 0)
        while tries < most:
            first, last = sorted(one.t for one in bracket)
            if (last - first) * _largest(direction) < self.tolerance_change:
                break
            t = _cubic_minimum(bracket[0], bracket[1], None)
            margin = 0.1 * (last - first)
            if min(last - t, t - first) < margin:
                if stuck or t >= last or t <= first:
                    t = last - margin if abs(t - last) < abs(t - first) else first + margin
                    stuck = False
                else:
                    stuck = True
            else:
                stuck = False
            point, tries = at(t), tries + 1
            if too_high(point) or point.value >= bracket[low].value:
                bracket[high] = point
                low, high = (0, 1) if bracket[0].value <= bracket[1].value else (1, 0)
                continue
            done = flat(point)
            if not done and point.slope * (bracket[high].t - bracket[low].t) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
            if done:
                break
        return bracket[low], calls

    # -------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the memory of earlier iterations, as copies."""
        state = self._state
        arrays = {name: np.array(state[name]) for name in ("gradient", "direction")}
        lists = {name: [np.array(one) for one in state[name]] for name in ("changes", "steps")}
        numbers = {name: float(state[name]) for name in ("t", "scale")}
        return {"iterations": state["iterations"]} | numbers | arrays | lists

    def _state_plan(self, saved: Any) -> Plan:
        who, first = "load_state_dict", _first_state()
        if not isinstance(saved, dict) or saved.keys() != first.keys():
            raise OdysseyError(
                f"{who}: {format_value(saved)} came; pass what state_dict() returned"
            )
        new: dict[str, Any] = {"iterations": check_int(who, "iterations", saved["iterations"], 0)}
        new |= {name: check_number(who, name, saved[name], "NaN") for name in ("t", "scale")}
        size = sum(p.size * (2 if p.dtype.kind == "c" else 1) for p in self.params)

        def vector(name: str, value: Any) -> Array:
            array = np.array(as_array(who, name, value), np.float64)
            if array.shape != ((size,) if new["iterations"] else (0,)):
                raise ShapeError(f"{who}: {name} has shape {array.shape}, not {(size,)}")
            return array

        new |= {name: vector(name, saved[name]) for name in ("gradient", "direction")}
        new |= {name: [vector(name, v) for v in saved[name]] for name in ("changes", "steps")}
        if len(new["changes"]) != len(new["steps"]):
            raise OdysseyError(f"{who}: the state must have as many changes as steps")
        return [(setattr, self, "_state", new)]

    def __repr__(self) -> str:
        store().only_eagerly("it formats an optimizer as text")
        return f"LBFGS({len(self.params)} parameters, iterations={self._state['iterations']})"


def _first_state() -> dict[str, Any]:
    empty = np.zeros(0)
    return {
        "iterations": 0,
        "t": 1.0,
        "scale": 1.0,
        "gradient": empty,
        "direction": empty,
        "changes": [],
        "steps": [],
    }


def _flat(arrays: list[Array]) -> Array:
    """Return real and imaginary parts of arrays in one vector of float64."""
    parts = [np.zeros(0)]
    for array in arrays:
        flat = np.ascontiguousarray(host_array(array)).reshape(-1)
        parts.append(flat.view(flat.real.dtype).astype(np.float64))
    return np.concatenate(parts)


def _largest(x: Array) -> Any:
    return np.abs(x).max(initial=0.0)


def _cubic_minimum(a: _Point, b: _Point, bounds: tuple[Any, Any] | None) -> Any:
    """Return the minimum of the cubic polynomial through two points with their slopes."""
    low, high = bounds or ((a.t, b.t) if a.t <= b.t else (b.t, a.t))
    first = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = first**2 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    root = np.sqrt(square)
    if a.t <= b.t:
        place = b.t - (b.t - a.t) * ((b.slope + root - first) / (b.slope - a.slope + 2 * root))
    else:
        place = a.t - (a.t - b.t) * ((a.slope + root - first) / (a.slope - b.slope + 2 * root))
    return min(max(place, low), high)
