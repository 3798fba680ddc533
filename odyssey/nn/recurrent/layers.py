"""Recurrent layers: RNN, LSTM and GRU, cells and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice, describe_type
from odyssey.errors import DTypeError, ShapeError
from odyssey.nn.linear_layers import linear
from odyssey.nn.recurrent.recurrence import CELLS, recurrent_states
from odyssey.nn.shared import as_floating
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import expand_dims, shape_of
from odyssey.spec import Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ shapes and scans


def _check_shapes(who: str, cell: str, x: Shape, states: list[Any], w_x: Shape, w_h: Shape) -> None:
    """Raise ShapeError for shapes that do not fit; ``x`` without the time axis."""
    gates = CELLS[cell].gates
    width = w_h[-1] if w_h else 0
    came = [shape_of(state) for state in states if state is not None]
    fits = len(x) > 0 and w_x == (gates * width, x[-1]) and w_h == (gates * width, width)
    if not fits or any(state != (*x[:-1], width) for state in came):
        held = ", ".join(map(str, came)) or "none"
        raise ShapeError(
            f"{who}: a step's input {x}, state {held}, w_x {w_x}, w_h {w_h}; wanted are (..., in), "
            f"(..., width), ({gates} * width, in) and ({gates} * width, width)"
        )


def _scan(
    who: str, cell: str, x: Any, states: list[Any], weights: tuple[Any, ...]
) -> tuple[Any, list[Any]]:
    """Return the hidden states after each step, and the last of all states."""
    w_x, w_h, b_x, b_h = weights
    shape = shape_of(x)
    if len(shape) < 2:
        raise ShapeError(f"{who}: x {shape}; wanted is (times, ..., in), time first")
    _check_shapes(who, cell, shape[1:], states, shape_of(w_x), shape_of(w_h))
    x, w_x, b_x = (as_floating(v) for v in (x, w_x, b_x))
    if x.dtype.kind == "c":
        raise DTypeError(f"{who}: x is complex; its real and imaginary parts can be two inputs")
    width = shape_of(w_h)[-1]
    zeros = np.zeros((*shape[1:-1], width), x.dtype)
    first = stack([zeros if s is None else s for s in states])
    products = linear(x, w_x, b_x)
    made = recurrent_states(products, first, w_h, b_h, cell=cell)
    hidden = getitem(made, (slice(None), 0))
    ends = getitem(made, -1) if shape[0] else first
    return hidden, [getitem(ends, k) for k in range(len(states))]


def _single_step(
    who: str, cell: str, x: Any, states: list[Any], weights: tuple[Any, ...]
) -> list[Any]:
    shape = shape_of(x)
    if not shape:
        raise ShapeError(f"{who}: x is a number; wanted is (..., in)")
    return _scan(who, cell, expand_dims(x, 0), states, weights)[1]


def _read_state_pair(who: str, state: Any) -> list[Any]:
    if state is None:
        return [None, None]
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise DTypeError(
            f"{who}: state is {describe_type(state)}; pass the pair (h, c), or None for zeros"
        )
    return list(state)


def _activation_cell(who: str, activation: Any) -> str:
    return check_choice(who, "activation", activation, ("tanh", "relu"))


# ------------------------------------------------------------------ simple recurrent layer


@composite(
    samples=[
        sample((2, 3), (2, 4), (4, 3), (4, 4), (4,)),
        sample((3,), (2,), (2, 3), (2, 2), activation="relu"),
        sample((0, 3), None, (2, 3), (2, 2)),
    ],
    rejects=[
        reject((2, 3), (2, 4), (4, 2), (4, 4), match=r"w_x \(4, 2\)"),
        reject((2, 3), (4,), (4, 3), (4, 4), match=r"state \(4,\)"),
        reject((), (4,), (4, 3), (4, 4), match="is a number"),
    ],
)
def rnn_cell(x: Any, h: Any, w_x: Any, w_h: Any, b: Any = None, *, activation: str = "tanh") -> Any:
    """One step of a simple recurrent layer, ``tanh(x @ w_x.T + h @ w_h.T + b)``.

    Args:
        x: The input, (..., in).
        h: The hidden state, (..., width); None for zeros.
        w_x: (width, in).
        w_h: (width, width).
        b: (width,), or None. PyTorch's two biases are its sum.
        activation: ``"tanh"`` or ``"relu"``.

    Returns:
        The new hidden state, (..., width).

    Raises:
        ShapeError: If shapes do not fit.

    >>> rnn_cell(np.ones(2), None, np.ones((1, 2)), np.ones((1, 1)), activation="relu")
    array([2.])
    """
    cell = _activation_cell("rnn_cell", activation)
    return _single_step("rnn_cell", cell, x, [h], (w_x, w_h, b, None))[0]


@composite(
    samples=[
        sample((3, 2, 3), (2, 4), (4, 3), (4, 4), (4,)),
        sample((2, 3), None, (2, 3), (2, 2), activation="relu"),
        sample((0, 2, 3), (2, 2), (2, 3), (2, 2)),
    ],
    rejects=[
        reject((3,), None, (4, 3), (4, 4), match="time first"),
        reject((5, 2, 3), (5, 2, 4), (4, 3), (4, 4), match="wanted are"),
    ],
)
def rnn(
    x: Any, h: Any, w_x: Any, w_h: Any, b: Any = None, *, activation: str = "tanh"
) -> tuple[Any, Any]:
    """A simple recurrent layer over a sequence: ``rnn_cell`` at each time.

    Args:
        x: The inputs, (times, ..., in).
        h: The hidden state before the first, (..., width); None for zeros.
        w_x: (width, in).
        w_h: (width, width).
        b: (width,), or None.
        activation: ``"tanh"`` or ``"relu"``.

    Returns:
        The hidden states after each step, (times, ..., width), and the last of them.

    Raises:
        ShapeError: If shapes do not fit.

    >>> w = np.ones((1, 1))
    >>> states, last = rnn(np.ones((3, 1)), None, w, w, activation="relu")
    >>> states.ravel(), last
    (array([1., 2., 3.]), array([3.]))
    """
    out, (last,) = _scan("rnn", _activation_cell("rnn", activation), x, [h], (w_x, w_h, b, None))
    return out, last


# ------------------------------------------------------------------ long short-term memory


@composite(
    samples=[
        sample((2, 3), [(2, 2), (2, 2)], (8, 3), (8, 2), (8,)),
        sample((3,), None, (4, 3), (4, 1)),
    ],
    rejects=[
        reject((2, 3), [(2, 2), (2, 3)], (8, 3), (8, 2), match="wanted are"),
        reject((2, 3), np.ones((2, 2)), (8, 3), (8, 2), error=DTypeError, match=r"pair \(h, c\)"),
    ],
)
def lstm_cell(x: Any, state: Any, w_x: Any, w_h: Any, b: Any = None) -> tuple[Any, Any]:
    """One step of a long short-term memory (LSTM).

    S. Hochreiter and J. Schmidhuber, Long Short-Term Memory, 1997, with a forget gate. The
    four parts of ``x @ w_x.T + h @ w_h.T + b`` are, as in PyTorch, the gates i and f, the
    candidate g and the gate o: ``c = sigmoid(f) * c + sigmoid(i) * tanh(g)``, and
    ``h = sigmoid(o) * tanh(c)``.

    Args:
        x: The input, (..., in).
        state: The pair (h, c), each (..., width); None for zeros.
        w_x: (4 * width, in).
        w_h: (4 * width, width).
        b: (4 * width,), or None. PyTorch's two biases are its sum.

    Returns:
        The new pair (h, c).

    Raises:
        ShapeError: If shapes do not fit.
        DTypeError: If the state is not a pair.

    >>> h, c = lstm_cell(np.zeros(2), None, np.ones((4, 2)), np.ones((4, 1)))
    >>> h, c
    (array([0.]), array([0.]))
    """
    states = _read_state_pair("lstm_cell", state)
    h, c = _single_step("lstm_cell", "lstm", x, states, (w_x, w_h, b, None))
    return h, c


@composite(
    samples=[
        sample((3, 2, 3), [(2, 2), (2, 2)], (8, 3), (8, 2), (8,)),
        sample((2, 3), None, (4, 3), (4, 1)),
    ],
    rejects=[
        reject((3, 2, 3), [(2, 3), (2, 3)], (8, 3), (8, 2), match="wanted are"),
        reject((3, 2, 3), [(2, 2)], (8, 3), (8, 2), error=DTypeError, match=r"pair \(h, c\)"),
    ],
)
def lstm(x: Any, state: Any, w_x: Any, w_h: Any, b: Any = None) -> tuple[Any, tuple[Any, Any]]:
    """Long short-term memory (LSTM) over a sequence: ``lstm_cell`` at each time.

    Args:
        x: The inputs, (times, ..., in).
        state: The pair (h, c) before the first, each (..., width); None for zeros.
        w_x: (4 * width, in).
        w_h: (4 * width, width).
        b: (4 * width,), or None.

    Returns:
        The hidden states after each step, (times, ..., width), and the last pair (h, c).

    Raises:
        ShapeError: If shapes do not fit.
        DTypeError: If the state is not a pair.

    >>> states, (h, c) = lstm(np.zeros((5, 2)), None, np.ones((4, 2)), np.ones((4, 1)))
    >>> states.shape, h.shape, c.shape
    ((5, 1), (1,), (1,))
    """
    states = _read_state_pair("lstm", state)
    out, (h, c) = _scan("lstm", "lstm", x, states, (w_x, w_h, b, None))
    return out, (h, c)


# ------------------------------------------------------------------ gated recurrent unit


@composite(
    samples=[
        sample((2, 3), (2, 2), (6, 3), (6, 2), (6,), (6,)),
        sample((3,), None, (3, 3), (3, 1)),
    ],
    rejects=[reject((2, 3), (2, 2), (8, 3), (8, 2), match=r"3 \* width")],
)
def gru_cell(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    """One step of a gated recurrent unit (GRU).

    K. Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, 2014. Of
    ``x @ w_x.T + b_x`` and ``h @ w_h.T + b_h`` the three parts are, as in PyTorch, for the gates r
    and z and for the candidate n: ``n = tanh(n_x + sigmoid(r) * n_h)``, and the new state is
    ``(1 - sigmoid(z)) * n + sigmoid(z) * h``.

    Args:
        x: The input, (..., in).
        h: The hidden state, (..., width); None for zeros.
        w_x: (3 * width, in).
        w_h: (3 * width, width).
        b_x: (3 * width,), or None.
        b_h: (3 * width,), or None.

    Returns:
        The new hidden state, (..., width).

    Raises:
        ShapeError: If shapes do not fit.

    >>> gru_cell(np.zeros(2), np.ones(1), np.ones((3, 2)), np.zeros((3, 1)))
    array([0.5])
    """
    return _single_step("gru_cell", "gru", x, [h], (w_x, w_h, b_x, b_h))[0]


@composite(
    samples=[
        sample((3, 2, 3), (2, 2), (6, 3), (6, 2), (6,), (6,)),
        sample((2, 3), None, (3, 3), (3, 1)),
    ],
    rejects=[reject((3, 2, 3), (2, 2), (8, 3), (8, 2), match=r"3 \* width")],
)
def gru(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> tuple[Any, Any]:
    """Gated recurrent unit (GRU) over a sequence: ``gru_cell`` at each time.

    Args:
        x: The inputs, (times, ..., in).
        h: The hidden state before the first, (..., width); None for zeros.
        w_x: (3 * width, in).
        w_h: (3 * width, width).
        b_x: (3 * width,), or None.
        b_h: (3 * width,), or None.

    Returns:
        The hidden states after each step, (times, ..., width), and the last of them.

    Raises:
        ShapeError: If shapes do not fit.

    >>> states, last = gru(np.zeros((5, 2)), np.ones(1), np.ones((3, 2)), np.zeros((3, 1)))
    >>> states.ravel()
    array([0.5    , 0.25   , 0.125  , 0.0625 , 0.03125])
    """
    out, (last,) = _scan("gru", "gru", x, [h], (w_x, w_h, b_x, b_h))
    return out, last


publish(globals())
