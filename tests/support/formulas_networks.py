"""What recurrent layers compute, step by step in NumPy; and attention, all scores at once."""

import numpy as np


def real(*given):
    """In at least single precision, and the dtype of results."""
    dtype = np.result_type(np.float16, *[x.dtype for x in given if x is not None])
    if dtype.kind == "c":
        raise TypeError("complex")
    wide = np.result_type(dtype, np.float64)
    return dtype, [None if x is None else x.astype(wide) for x in given]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def plus(x, b):
    return x if b is None else x + b


def zeros(x, w_h):
    return np.zeros((*x.shape[:-1], w_h.shape[-1]), x.dtype)


def rnn_cell(x, h, w_x, w_h, b=None, activation="tanh"):
    dtype, (x, h, w_x, w_h, b) = real(x, h, w_x, w_h, b)
    h = zeros(x, w_h) if h is None else h
    made = plus(x @ w_x.T + h @ w_h.T, b)
    return (np.tanh(made) if activation == "tanh" else np.maximum(made, 0)).astype(dtype)


def lstm_cell(x, state, w_x, w_h, b=None):
    h, c = (None, None) if state is None else state
    dtype, (x, h, c, w_x, w_h, b) = real(x, h, c, w_x, w_h, b)
    h, c = (zeros(x, w_h) if s is None else s for s in (h, c))
    i, f, g, o = np.split(plus(x @ w_x.T + h @ w_h.T, b), 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return (sigmoid(o) * np.tanh(c)).astype(dtype), c.astype(dtype)


def gru_cell(x, h, w_x, w_h, b_x=None, b_h=None):
    dtype, (x, h, w_x, w_h, b_x, b_h) = real(x, h, w_x, w_h, b_x, b_h)
    h = zeros(x, w_h) if h is None else h
    of_x = np.split(plus(x @ w_x.T, b_x), 3, -1)
    of_h = np.split(plus(h @ w_h.T, b_h), 3, -1)
    r, z = (sigmoid(of_x[k] + of_h[k]) for k in (0, 1))
    n = np.tanh(of_x[2] + r * of_h[2])
    return ((1 - z) * n + z * h).astype(dtype)


def over_time(cell, hidden=lambda state: state):
    """The scan of a cell: the hidden states, and the last state."""

    def scan(x, state, w_x, w_h, *biases, **options):
        real(x)
        made = []
        for now in x:
            state = cell(now, state, w_x, w_h, *biases, **options)
            made.append(hidden(state))
        if not made:
            empty = np.zeros((0, *x.shape[1:-1], w_h.shape[-1]), np.result_type(x, np.float16))
            return empty, state
        return np.stack(made), state

    return scan


def attention(q, k, v, mask=None, causal=False):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def multi_head_attention(q, k, v, w_q, w_k, w_v, w_o, *biases, heads, **options):
    """Head by head."""
    biases = biases or (None,) * 4
    dtype, given = real(q, k, v, w_q, w_k, w_v, w_o, *biases)
    x, w, b = given[:3], given[3:7], given[7:]
    q, k, v = (plus(x[n] @ w[n].T, b[n]) for n in range(3))
    dim = q.shape[-1] // heads
    shared = k.shape[-1] // dim
    k, v = (np.split(part, shared, -1) for part in (k, v))
    made = [
        attention(part, k[n * shared // heads], v[n * shared // heads], **options)
        for n, part in enumerate(np.split(q, heads, -1))
    ]
    return plus(np.concatenate(made, -1) @ w[3].T, b[3]).astype(dtype)


FORMULAS = {
    "multi_head_attention": multi_head_attention,
    "rnn_cell": rnn_cell,
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    "rnn": over_time(rnn_cell),
    "lstm": over_time(lstm_cell, lambda state: state[0]),
    "gru": over_time(gru_cell),
}
