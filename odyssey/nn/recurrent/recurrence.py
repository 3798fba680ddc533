"""Recurrent cells: states over time, and backpropagation through time.

All that does not depend on the step before is computed for all times at once: the products with the
inputs by the caller, and backwards the cotangent of the weight. A step is one product with the
weight and one pass over the gates, by a compiled loop or by NumPy. A recorded call keeps the gates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import check_choice
from odyssey.devices.half_dtypes import is_floating
from odyssey.errors import SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.nn.activations.piecewise import relu
from odyssey.nn.activations.smooth import sigmoid
from odyssey.nn.linear_layers import linear
from odyssey.nn.shared import SharedPullback
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.elementwise.elementary import tanh
from odyssey.ops.structure.batching import example_specs, spread
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import astype, moveaxis, reshape
from odyssey.spec import Array, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import op, publish
from odyssey.table.derived_rules import derive_rules
from odyssey.table.kernel_selection import Kernel, are_kernels_compiled
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype


class Cell(NamedTuple):
    """A kind of recurrent cell, whose products with weights are left to the loop over time.

    Attributes:
        gates: The width of the products, in widths of a state.
        states: The number of arrays of a state.
        keeps_gates: Whether the derivatives need the gates.
        step: ``step(x, bias, before, t, k, gates, after)`` writes the state after step ``t``. In
            row ``k`` of ``gates`` are the products with the hidden state, which it replaces by the
            gates after their nonlinearities.
        slopes: ``slopes(x, gates, before, after)`` returns the derivatives for all times.
        back: ``back(t, carry, slopes, du)`` writes the cotangent of the products with the hidden
            state, from ``carry``, that of the state after step ``t``; and replaces ``carry`` by the
            cotangent of the state before, apart from these products.
        inputs: ``inputs(carries, slopes, du)`` returns the cotangents of the products with the
            inputs, for all times.
    """

    gates: int
    states: int
    keeps_gates: bool
    step: Callable[..., None]
    slopes: Callable[..., tuple[Array, ...]]
    back: Callable[..., None]
    inputs: Callable[..., Array]


def _inplace_sigmoid(x: Array) -> Array:
    """Sigmoid, in place; where the exponential overflows it is 0."""
    x *= -1  # np.negative of NumPy 2.4 gives wrong numbers where it writes over a view with gaps
    np.exp(x, x)
    x += 1
    return np.reciprocal(x, x)


def _split_gates(x: Array, count: int) -> Array:
    """Return the gates on an axis of their own, the first."""
    return np.moveaxis(x.reshape(*x.shape[:-1], count, x.shape[-1] // count), -2, 0)


def _add_products(x: Array, bias: Array | None, u: Array) -> Array:
    """Add the products with the input, and the bias, to those with the hidden state."""
    if bias is not None:
        u += bias
    u += x
    return u


# ------------------------------------------------------------------ simple (Elman) cells


def _tanh_step(
    x: Array, bias: Array | None, before: Array, t: int, k: int, gates: Array, after: Array
) -> None:
    np.tanh(_add_products(x[t], bias, gates[k]), after[0])


def _tanh_slopes(x: Array, gates: Array, before: Array, after: Array) -> tuple[Array, ...]:
    return (1 - np.square(after[:, 0]),)


def _relu_step(
    x: Array, bias: Array | None, before: Array, t: int, k: int, gates: Array, after: Array
) -> None:
    np.maximum(_add_products(x[t], bias, gates[k]), 0, out=after[0])


def _relu_slopes(x: Array, gates: Array, before: Array, after: Array) -> tuple[Array, ...]:
    return ((after[:, 0] > 0).astype(after.dtype),)


def _simple_backward(t: int, carry: Array, slopes: tuple[Array, ...], du: Array) -> None:
    np.multiply(carry[0], slopes[0][t], du)
    carry[0] = 0


def _unchanged_inputs(carries: Array, slopes: tuple[Array, ...], du: Array) -> Array:
    return du


# ------------------------------------------------------------------ long short-term memory (LSTM)


def _lstm_step(
    x: Array, bias: Array | None, before: Array, t: int, k: int, gates: Array, after: Array
) -> None:
    u = _add_products(x[t], bias, gates[k])
    width = before.shape[-1]
    _inplace_sigmoid(u[:, : 2 * width])
    _inplace_sigmoid(u[:, 3 * width :])
    cell = u[:, 2 * width : 3 * width]
    np.tanh(cell, cell)
    np.multiply(u[:, width : 2 * width], before[1], after[1])
    after[1] += cell * u[:, :width]
    np.tanh(after[1], after[0])
    after[0] *= u[:, 3 * width :]


def _lstm_slopes(x: Array, gates: Array, before: Array, after: Array) -> tuple[Array, ...]:
    i, f, g, o = _split_gates(gates, 4)
    bent = np.tanh(after[:, 1])
    through = o * (1 - np.square(bent))  # from the hidden state to that of the cell
    slopes = np.empty_like(gates)
    of_i, of_f, of_g, of_o = _split_gates(slopes, 4)
    np.multiply(g, i * (1 - i), of_i)
    np.multiply(before[:, 1], f * (1 - f), of_f)
    np.multiply(i, 1 - np.square(g), of_g)
    np.multiply(bent, o * (1 - o), of_o)
    return slopes, through, f


def _lstm_backward(t: int, carry: Array, slopes: tuple[Array, ...], du: Array) -> None:
    of_gates, through, forget = slopes
    h, c = carry
    width = h.shape[-1]
    c += h * through[t]
    of = of_gates[t].reshape(len(h), 4, width)
    parts = du.reshape(len(h), 4, width)
    np.multiply(c[:, None], of[:, :3], parts[:, :3])
    np.multiply(h, of[:, 3], parts[:, 3])
    c *= forget[t]
    h[...] = 0


# ------------------------------------------------------------------ gated recurrent unit (GRU)


def _gru_step(
    x: Array, bias: Array | None, before: Array, t: int, k: int, gates: Array, after: Array
) -> None:
    """Write the state; the third gate stays the product with the hidden state."""
    width = before.shape[-1]
    u, products = gates[k], x[t]
    if bias is not None:
        u += bias
    both = u[:, : 2 * width]
    both += products[:, : 2 * width]
    _inplace_sigmoid(both)
    cell = u[:, 2 * width :] * both[:, :width]
    cell += products[:, 2 * width :]
    np.tanh(cell, cell)
    np.subtract(before[0], cell, after[0])
    after[0] *= both[:, width:]
    after[0] += cell


def _gru_slopes(x: Array, gates: Array, before: Array, after: Array) -> tuple[Array, ...]:
    r, z, drawn = _split_gates(gates, 3)
    n = np.tanh(_split_gates(x, 3)[2] + r * drawn)
    of_inputs, of_states = np.empty_like(gates), np.empty_like(gates)
    of_r, of_z, of_n = _split_gates(of_inputs, 3)
    np.multiply(1 - z, 1 - np.square(n), of_n)
    np.multiply(of_n * drawn, r * (1 - r), of_r)
    np.multiply(before[:, 0] - n, z * (1 - z), of_z)
    of_states[...] = of_inputs
    _split_gates(of_states, 3)[2] *= r
    return of_states, z, of_inputs


def _gru_backward(t: int, carry: Array, slopes: tuple[Array, ...], du: Array) -> None:
    h = carry[0]
    of_states, kept, _ = slopes
    shape = (len(h), 3, h.shape[-1])
    np.multiply(h[:, None], of_states[t].reshape(shape), du.reshape(shape))
    h *= kept[t]


def _gru_inputs(carries: Array, slopes: tuple[Array, ...], du: Array) -> Array:
    of_inputs = slopes[2]
    return np.tile(carries, 3) * of_inputs


CELLS = {
    "tanh": Cell(1, 1, False, _tanh_step, _tanh_slopes, _simple_backward, _unchanged_inputs),
    "relu": Cell(1, 1, False, _relu_step, _relu_slopes, _simple_backward, _unchanged_inputs),
    "lstm": Cell(4, 2, True, _lstm_step, _lstm_slopes, _lstm_backward, _unchanged_inputs),
    "gru": Cell(3, 1, True, _gru_step, _gru_slopes, _gru_backward, _gru_inputs),
}

# ------------------------------------------------------------------ loops over time


class _Operands(NamedTuple):
    """Operands: (times, rows, gates), (states, rows, width), (gates, width), (gates,)."""

    x: Array
    state: Array
    w: Array
    b: Array | None


def _flat_operands(x: Any, state: Any, w: Any, b: Any) -> tuple[_Operands, np.dtype[Any]]:
    """Return operands with one axis of rows, in at least float32, and the dtype of results."""
    given = [v for v in (x, state, w, b) if v is not None]
    dtype = np.result_type(np.float16, *[v.dtype for v in given])
    work = np.result_type(dtype, np.float32)
    x, state, w, b = (
        None if v is None else np.ascontiguousarray(v, work) for v in (x, state, w, b)
    )
    rows = math.prod(x.shape[1:-1])
    x = x.reshape(x.shape[0], rows, x.shape[-1])
    return _Operands(x, state.reshape(len(state), rows, state.shape[-1]), w, b), dtype


class RecurrentCall:
    """A call on arrays: the states, and their cotangents by backpropagation through time.

    Args:
        cell: The name of the cell.
        x: The products of the inputs with their weights.
        state: The state before the first step.
        w: The weight of the hidden state.
        b: The bias of that product, or None.
        compiled: Whether gates are computed by compiled loops.
    """

    def __init__(
        self, cell: str, x: Array, state: Array, w: Array, b: Array | None, compiled: bool
    ) -> None:
        self.name, self.cell, self.compiled = cell, CELLS[cell], compiled
        self.shape = (len(x), *state.shape)
        self.shapes = {"x": x.shape, "state": state.shape}
        self.given, self.dtype = _flat_operands(x, state, w, b)
        if compiled and b is None:
            self.given = self.given._replace(b=np.zeros(len(w), self.given.w.dtype))
        self.is_biased = b is not None

    @ignore_fp_errors("over")
    def states(self, keep: bool = False) -> tuple[Array, Array | None]:
        """Return the states after each step, (times, states, ..., width); and the gates.

        Args:
            keep: Whether to return the gates, where the derivatives need them.
        """
        x, before, w, bias = self.given
        keep = keep and self.cell.keeps_gates
        out = np.empty((len(x), *before.shape), before.dtype)
        gates = np.empty((len(x) if keep else min(len(x), 1), *x.shape[1:]), x.dtype)
        step, w = self.cell.step, w.T
        for t, after in enumerate(out):
            k = t if keep else 0
            np.dot(before[0], w, gates[k])
            if self.compiled and not t:
                step = self._loop("step").entry(x, bias, before, t, k, gates, after)
            step(x, bias, before, t, k, gates, after)
            before = after
        made = out.reshape(self.shape).astype(self.dtype, copy=False)
        return made, gates if keep else None

    def cotangents(self, g: Array, out: Array, gates: Array | None) -> dict[str, Array]:
        """Return the cotangents of the operands, by name, for that of the states ``out``."""
        x, first, w, _ = self.given
        steps = (len(x), *first.shape)
        g, after = (np.ascontiguousarray(v, x.dtype).reshape(steps) for v in (g, out))
        run = self._backward_loops if self.compiled else self._backward
        du, dx, carry = run(g, after, gates)
        hidden = np.concatenate([first[:1], after[:-1, 0]])[: len(x)]
        flat = du.reshape(-1, du.shape[-1])
        found = {
            "x": dx.reshape(self.shapes["x"]),
            "state": carry.reshape(self.shapes["state"]),
            "w": flat.T @ hidden.reshape(-1, w.shape[-1]),
        }
        if self.is_biased:
            found["b"] = flat.sum(0)
        return {name: total.astype(self.dtype, copy=False) for name, total in found.items()}

    def _backward(self, g: Array, after: Array, gates: Array | None) -> tuple[Array, Array, Array]:
        """Return the cotangents of the products with states and inputs, and of the first state."""
        x, first, w, _ = self.given
        before = np.concatenate([first[None], after[:-1]])[: len(x)]
        slopes = self.cell.slopes(x, gates, before, after)
        carry = np.zeros_like(first)
        carries, du = np.empty((len(x), *first.shape[1:]), x.dtype), np.empty_like(x)
        for t in reversed(range(len(x))):
            carry += g[t]
            carries[t] = carry[0]
            self.cell.back(t, carry, slopes, du[t])
            carry[0] += du[t].dot(w)
        return du, self.cell.inputs(carries, slopes, du), carry

    def _backward_loops(
        self, g: Array, after: Array, gates: Array | None
    ) -> tuple[Array, Array, Array]:
        """Do as ``_backward`` does, by compiled loops."""
        x, first, w, _ = self.given
        separate = self.name == "gru"  # inputs and states have cotangents of their own
        # The cotangent of the state: first what comes by the products, then what does not.
        carry = np.zeros((2 if separate else len(first), *first.shape[1:]), x.dtype)
        du = np.empty_like(x)
        dx = np.empty_like(x) if separate else du
        kept: Any = x if gates is None else gates
        back: Any = None
        for t in reversed(range(len(x))):
            values = (g, x, kept, after[t - 1] if t else first, after[t], t, carry, du, dx)
            back = back or self._loop("pullback").entry(*values)
            back(*values)
            np.dot(du[t], w, carry[0])
        return du, dx, carry[:1] + carry[1:] if separate else carry

    def _loop(self, kind: str) -> Any:
        from odyssey.kernels import recurrent

        return getattr(recurrent, f"{self.name}_{kind}")


# ------------------------------------------------------------------ decomposition


def _gate_slice(x: Any, k: int, h: Any) -> Any:
    width = h.shape[-1]
    return getitem(x, (..., slice(k * width, (k + 1) * width)))


def _step_decomposition(x: Any, u: Any, state: list[Any], cell: str) -> list[Any]:
    """Return the next state, from the products with the input and with the hidden state."""
    h = state[0]
    if cell == "gru":
        r, z = (sigmoid(add(_gate_slice(x, k, h), _gate_slice(u, k, h))) for k in (0, 1))
        new = tanh(add(_gate_slice(x, 2, h), mul(r, _gate_slice(u, 2, h))))
        return [add(new, mul(z, sub(h, new)))]
    made = add(x, u)
    if cell != "lstm":
        return [tanh(made) if cell == "tanh" else relu(made)]
    i, f, g, o = (_gate_slice(made, k, h) for k in range(4))
    c = add(mul(sigmoid(f), state[1]), mul(sigmoid(i), tanh(g)))
    return [mul(sigmoid(o), tanh(c)), c]


def _as_real(x: Any) -> Any:
    return x if x is None or is_floating(x.dtype) else astype(x, floating_dtype(x.dtype))


def _states_decomposition(x: Any, state: Any, w: Any, b: Any, /, cell: str) -> Any:
    x, state, w, b = map(_as_real, (x, state, w, b))
    now, made = [getitem(state, k) for k in range(CELLS[cell].states)], []
    for t in range(x.shape[0]):
        now = _step_decomposition(getitem(x, t), linear(now[0], w, b), now, cell)
        made.append(stack(now))
    if made:
        return stack(made)
    return reshape(getitem(x, (..., slice(state.shape[-1]))), (0, *state.shape))


# ------------------------------------------------------------------ ops

_RULES = derive_rules(_states_decomposition, "x", "state", "w", "b")


def _infer_states(x: Any, state: Any, w: Any, b: Any, cell: str) -> Spec:
    gates, states = CELLS[cell].gates, CELLS[cell].states
    shapes: list[Any] = [getattr(v, "shape", ()) for v in (x, state, w)]
    width = shapes[1][-1] if shapes[1] else 0
    wide = gates * width
    rows = shapes[0][1:-1]
    fits = len(shapes[0]) > 1 and shapes[0][-1] == wide and shapes[1] == (states, *rows, width)
    biased = b is None or getattr(b, "shape", ()) == (wide,)
    if not (fits and shapes[2] == (wide, width) and biased):
        came = ", ".join(f"{n} {s}" for n, s in zip(("x", "state", "w"), shapes, strict=True))
        came += "" if b is None else f", b {getattr(b, 'shape', ())}"
        raise ShapeError(
            f"recurrent_states: {came} for {cell}; wanted are x (times, ..., {gates} * width), "
            f"state ({states}, ..., width), w ({gates} * width, width) and b ({gates} * width)"
        )
    given = [v for v in (x, state, w, b) if v is not None]
    return Spec(
        (shapes[0][0], *shapes[1]), np.result_type(*(floating_dtype(v.dtype) for v in given))
    )


def _batch_states(batch: Batch, x: Any, state: Any, w: Any, b: Any, cell: str) -> Any:
    """Examples are further rows, if they share the weight."""
    _infer_states(*example_specs(batch, (x, state, w, b), cell))
    if batch.mapped[2] or batch.mapped[3]:
        return NotImplemented
    x, state = (moveaxis(spread(batch, k, v), 0, 1) for k, v in enumerate((x, state)))
    return moveaxis(recurrent_states(x, state, w, b, cell=cell), 2, 0)


def _batch_recurrent_pullback(
    batch: Batch, cotangent: Any, x: Any, state: Any, w: Any, b: Any, cell: str, operand: str
) -> Any:
    given = cotangent, x, state, w, b
    _infer_recurrent_pullback(*example_specs(batch, given, cell, operand))
    if batch.mapped[3] or batch.mapped[4] or operand in ("w", "b"):
        return NotImplemented  # the sum over the rows of one example has no kernel
    cotangent, x, state = (spread(batch, k, v) for k, v in enumerate(given[:3]))
    out = recurrent_pullback(
        moveaxis(cotangent, 0, 2),
        *(moveaxis(x, 0, 1), moveaxis(state, 0, 1), w, b),
        **{"cell": cell, "operand": operand},
    )
    return moveaxis(out, 1, 0)


def _cell_option(cell: Any) -> tuple[str]:
    return (check_choice("recurrent_states", "cell", cell, tuple(CELLS)),)


def _checked_call(
    x: Any, state: Any, w: Any, b: Any, cell: str, *, compiled: bool = False
) -> RecurrentCall:
    x, state, w = map(np.asarray, (x, state, w))
    b = None if b is None else np.asarray(b)
    _infer_states(x, state, w, b, cell)
    return RecurrentCall(cell, x, state, w, b, compiled)


def _states_with_residual(compiled: bool, *given: Any) -> tuple[Array, Any]:
    """Return the states, and the residual that the rules share."""
    out, gates = _checked_call(*given, compiled=compiled).states(keep=True)
    return out, (SharedPullback(), compiled, gates)


def _fits_loops(x: Any, state: Any, w: Any, b: Any, *options: Any) -> bool:
    """Return whether compiled loops take the operands: with arithmetic in float32 or float64."""
    given = [v.dtype for v in (x, state, w, b) if v is not None]
    return np.result_type(np.float32, *given).char in "fd"


def _operand_rule(operand: str) -> Callable[..., Any]:
    def rule(
        g: Any, x: Any, state: Any, w: Any, b: Any, out: Any, cell: str, residual: Any = None
    ) -> Any:
        if residual is None:
            return recurrent_pullback(g, x, state, w, b, cell=cell, operand=operand)
        shared, compiled, gates = residual

        def all_cotangents() -> dict[str, Array]:
            call = RecurrentCall(cell, x, state, w, b, compiled)
            return call.cotangents(g, out, gates)

        return shared.cotangent(operand, g, all_cotangents)

    return rule


@op(
    real=True,
    prepare=_cell_option,
    infer=_infer_states,
    vmap=_batch_states,
    decomposition=_states_decomposition,
    with_residual=lambda *given: _states_with_residual(False, *given),
    kernels=[
        Kernel(
            "compiled gates",
            lambda *given: _checked_call(*given, compiled=True).states()[0],
            when=_fits_loops,
            with_residual=lambda *given: _states_with_residual(True, *given),
        )
    ],
    vjp={name: _operand_rule(name) for name in ("x", "state", "w", "b")},
    jvp=_RULES["jvp"],
    kinks="of relu at 0: 0",
    samples=[
        sample((3, 2, 2), (1, 2, 2), (2, 2), None, cell="tanh"),
        sample((2, 3), (1, 3), (3, 3), (3,), cell="relu"),
        sample((2, 2, 4), (2, 2, 1), (4, 1), (4,), cell="lstm"),
        sample((2, 6), (1, 2), (6, 2), (6,), cell="gru"),
        sample((2, 0, 3), (1, 0, 1), (3, 1), None, cell="gru"),
    ],
    rejects=[
        reject((3, 2, 4), (2, 4), (4, 4), None, cell="tanh", match="wanted are x"),
        reject((3, 2, 4), (1, 2, 4), (4, 4), None, cell="lstm", match=r"w \(4 \* width"),
        reject((3, 4), (1, 4), (4, 4), None, cell="elman", error=SettingError, match="'elman'"),
    ],
    precision="low",
)
def recurrent_states(x: Any, state: Any, w: Any, b: Any = None, /, *, cell: str) -> Any:
    """States of a recurrent cell after each step, (times, states, ..., width).

    Args:
        x: The products of the inputs with their weights, (times, ..., gates * width).
        state: The state before the first step, (states, ..., width): the hidden state, and for
            ``"lstm"`` the cell state.
        w: The weight of the hidden state, (gates * width, width).
        b: The bias of that product.
        cell: ``"tanh"`` or ``"relu"``, ``"lstm"``, ``"gru"``.
    """
    return _checked_call(x, state, w, b, cell).states()[0]


def _pullback_decomposition(
    cotangent: Any, x: Any, state: Any, w: Any, b: Any, /, cell: str, operand: str
) -> Any:
    return _RULES["vjp"][operand](cotangent, x, state, w, b, cell)


def _pullback_arrays(
    compiled: bool, operands: Sequence[str], cotangent: Any, *given: Any
) -> dict[str, Array]:
    """Return the cotangents of some operands, by name."""
    cotangent = np.asarray(cotangent)
    specs = [_infer_recurrent_pullback(*(cotangent, *given, operand)) for operand in operands]
    call = _checked_call(*given, compiled=compiled)
    found = call.cotangents(cotangent, *call.states(keep=True))
    return {
        name: found[name].astype(spec.dtype, copy=False)
        for name, spec in zip(operands, specs, strict=True)
    }


def _infer_recurrent_pullback(
    cotangent: Any, x: Any, state: Any, w: Any, b: Any, cell: str, operand: str
) -> Spec:
    out, came = _infer_states(x, state, w, b, cell), getattr(cotangent, "shape", ())
    if came != out.shape:
        raise ShapeError(f"recurrent_pullback: cotangent {came}; the states are {out.shape}")
    wanted = {"x": x, "state": state, "w": w, "b": b}[operand]
    if wanted is None:
        raise ShapeError("recurrent_pullback: operand='b', which is None")
    return Spec(wanted.shape, np.result_type(out.dtype, floating_dtype(cotangent.dtype)))


@op(
    real=True,
    prepare=lambda cell, operand: (
        *_cell_option(cell),
        check_choice("recurrent_pullback", "operand", operand, ("x", "state", "w", "b")),
    ),
    infer=_infer_recurrent_pullback,
    vmap=_batch_recurrent_pullback,
    decomposition=_pullback_decomposition,
    **derive_rules(_pullback_decomposition, "cotangent", "x", "state", "w", "b"),
    kernels=[
        Kernel(
            "compiled gates",
            lambda g, *given: _pullback_arrays(True, given[-1:], g, *given[:-1])[given[-1]],
            when=lambda cotangent, *given: _fits_loops(*given),
            error_bound=1e-12,  # slopes 1 - tanh**2 cancel: they magnify the rounding of tanh
            together=(
                "operand",
                lambda operands, *given: _pullback_arrays(are_kernels_compiled(), operands, *given),
            ),
        )
    ],
    samples=[
        sample((2, 1, 3), (2, 3), (1, 3), (3, 3), None, cell="tanh", operand="x"),
        sample((1, 2, 1), (1, 4), (2, 1), (4, 1), (4,), cell="lstm", operand="w"),
        sample((1, 1, 1), (1, 3), (1, 1), (3, 1), (3,), cell="gru", operand="b"),
    ],
    rejects=[
        reject(
            (2, 3), (2, 3), (1, 3), (3, 3), None, cell="tanh", operand="x", match="the states are"
        ),
        reject((2, 1, 3), (2, 3), (1, 3), (3, 3), None, cell="tanh", operand="b", match="is None"),
    ],
    precision="low",
)
def recurrent_pullback(
    cotangent: Any, x: Any, state: Any, w: Any, b: Any = None, /, *, cell: str, operand: str
) -> Any:
    """VJP of ``recurrent_states`` in one operand."""
    return _pullback_arrays(False, (operand,), cotangent, x, state, w, b, cell)[operand]


publish(globals())
