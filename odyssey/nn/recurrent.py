"""Recurrent networks: a state that each step of a sequence changes.

What the steps do not need each other for, the products with the inputs, is done for all of them at
once; the rest is one row, whose backward pass goes through time in a loop, so that neither a tape
nor anything else grows by a node a step. Gates are in PyTorch's order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import word
from odyssey.errors import SettingError, ShapeError
from odyssey.nn.activations import sigmoid
from odyssey.nn.layers import linear
from odyssey.nn.rectifiers import relu
from odyssey.nn.recurrent_steps import CELLS, backward, forward
from odyssey.nn.shared import Shared
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.elementwise.elementary import tanh
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Array, Spec
from odyssey.table.declare import op, publish
from odyssey.table.derived import derived
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating

# ------------------------------------------------------------------ all steps, in other ops


def _gate(x: Any, k: int, h: Any) -> Any:
    width = h.shape[-1]
    return getitem(x, (..., slice(k * width, (k + 1) * width)))


def _step_in_ops(x: Any, u: Any, state: list[Any], cell: str) -> list[Any]:
    """The next state, from products with the input and with the hidden state."""
    h = state[0]
    if cell == "gru":
        r, z = (sigmoid(add(_gate(x, k, h), _gate(u, k, h))) for k in (0, 1))
        new = tanh(add(_gate(x, 2, h), mul(r, _gate(u, 2, h))))
        return [add(new, mul(z, sub(h, new)))]
    made = add(x, u)
    if cell != "lstm":
        return [tanh(made) if cell == "tanh" else relu(made)]
    i, f, g, o = (_gate(made, k, h) for k in range(4))
    c = add(mul(sigmoid(f), state[1]), mul(sigmoid(i), tanh(g)))
    return [mul(sigmoid(o), tanh(c)), c]


def _real(x: Any) -> Any:
    return x if x is None or x.dtype.kind == "f" else astype(x, floating(x.dtype))


def _in_ops(x: Any, state: Any, w: Any, b: Any, /, cell: str) -> Any:
    x, state, w, b = map(_real, (x, state, w, b))
    now, made = [getitem(state, k) for k in range(CELLS[cell].states)], []
    for t in range(x.shape[0]):
        now = _step_in_ops(getitem(x, t), linear(now[0], w, b), now, cell)
        made.append(stack(now))
    if made:
        return stack(made)
    return reshape(getitem(x, (..., slice(state.shape[-1]))), (0, *state.shape))


# ------------------------------------------------------------------ the row

_RULES = derived(_in_ops, "x", "state", "w", "b")


def _states_spec(x: Any, state: Any, w: Any, b: Any, cell: str) -> Spec:
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
    return Spec((shapes[0][0], *shapes[1]), np.result_type(*(floating(v.dtype) for v in given)))


def _cell(cell: Any) -> tuple[str]:
    return (word("recurrent_states", "cell", cell, tuple(CELLS)),)


def _states(x: Any, state: Any, w: Any, b: Any, cell: str) -> Array:
    x, state, w = map(np.asarray, (x, state, w))
    b = None if b is None else np.asarray(b)
    _states_spec(x, state, w, b, cell)
    return forward(CELLS[cell], x, state, w, b)


def _rule(operand: str) -> Callable[..., Any]:
    def rule(
        g: Any, x: Any, state: Any, w: Any, b: Any, out: Any, cell: str, residual: Any = None
    ) -> Any:
        if residual is None:
            return recurrent_pullback(g, x, state, w, b, cell=cell, operand=operand)
        return residual[0].cotangent(
            operand, g, lambda: backward(CELLS[cell], g, out, x, state, w, b)
        )

    return rule


@op(
    real=True,
    prepare=_cell,
    infer=_states_spec,
    decomposition=_in_ops,
    with_residual=lambda *given: (_states(*given), (Shared(),)),
    vjp={name: _rule(name) for name in ("x", "state", "w", "b")},
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
)
def recurrent_states(x: Any, state: Any, w: Any, b: Any = None, /, *, cell: str) -> Any:
    """The states of a recurrent cell after each step, (times, states, ..., width).

    Args:
        x: The products of the inputs with their weights, (times, ..., gates * width).
        state: Before the first step, (states, ..., width): the hidden state, and that of the cell
            of ``"lstm"``.
        w: What the hidden state is multiplied by, (gates * width, width).
        b: What is added to that product.
        cell: ``"tanh"`` or ``"relu"``, ``"lstm"``, ``"gru"``.
    """
    return _states(x, state, w, b, cell)


def _pullback_in_ops(
    cotangent: Any, x: Any, state: Any, w: Any, b: Any, /, cell: str, operand: str
) -> Any:
    return _RULES["vjp"][operand](cotangent, x, state, w, b, cell)


def _pullback_spec(
    cotangent: Any, x: Any, state: Any, w: Any, b: Any, cell: str, operand: str
) -> Spec:
    out, came = _states_spec(x, state, w, b, cell), getattr(cotangent, "shape", ())
    if came != out.shape:
        raise ShapeError(f"recurrent_pullback: cotangent {came}; the states are {out.shape}")
    wanted = {"x": x, "state": state, "w": w, "b": b}[operand]
    if wanted is None:
        raise ShapeError("recurrent_pullback: operand='b', which is None")
    return Spec(wanted.shape, np.result_type(out.dtype, floating(cotangent.dtype)))


@op(
    real=True,
    prepare=lambda cell, operand: (
        *_cell(cell),
        word("recurrent_pullback", "operand", operand, ("x", "state", "w", "b")),
    ),
    infer=_pullback_spec,
    decomposition=_pullback_in_ops,
    **derived(_pullback_in_ops, "cotangent", "x", "state", "w", "b"),
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
)
def recurrent_pullback(
    cotangent: Any, x: Any, state: Any, w: Any, b: Any = None, /, *, cell: str, operand: str
) -> Any:
    """The cotangent of one operand of ``recurrent_states``, for that of its result."""
    cotangent, x, state, w = map(np.asarray, (cotangent, x, state, w))
    b = None if b is None else np.asarray(b)
    wanted = _pullback_spec(cotangent, x, state, w, b, cell, operand)
    out = forward(CELLS[cell], x, state, w, b)
    found = backward(CELLS[cell], cotangent, out, x, state, w, b)[operand]
    return found.astype(wanted.dtype, copy=False)


publish(globals())
