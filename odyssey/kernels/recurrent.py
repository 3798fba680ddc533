"""Gates of recurrent cells: one step of an LSTM, GRU or simple cell, and its pullback.

Products with weights are left to BLAS. ``x`` has the products of the inputs, (times, rows, gates *
width), ``gates`` the products of the hidden state on entry and the gates after the nonlinearities
on return, in row ``k`` of its first axis. States are (states, rows, width).
"""

from __future__ import annotations

from typing import Any

from odyssey.kernels.elementary import exp, tanh
from odyssey.kernels.loops import loop

__all__ = [
    "gru_pullback",
    "gru_step",
    "lstm_pullback",
    "lstm_step",
    "relu_pullback",
    "relu_step",
    "tanh_pullback",
    "tanh_step",
]


@loop
def _sigmoid_of_sum(x: Any, bias: Any, out: Any) -> None:
    """Write ``sigmoid(out + x + bias)`` to ``out``."""
    one = x.dtype.type(1)
    for j in range(out.size):
        out[j] = one / (one + exp(-(out[j] + bias[j] + x[j])))


@loop
def _tanh_of_sum(x: Any, bias: Any, out: Any) -> None:
    """Write ``tanh(out + x + bias)`` to ``out``."""
    for j in range(out.size):
        out[j] = tanh(out[j] + bias[j] + x[j])


# ------------------------------------------------------------------ simple (Elman) cells


@loop
def tanh_step(
    x: Any, bias: Any, before: Any, t: int, k: int, out_gates: Any, out_after: Any
) -> None:
    """Write the state ``tanh(x + u + bias)``."""
    for r in range(x.shape[1]):
        products, u, h = x[t, r], out_gates[k, r], out_after[0, r]
        for j in range(h.size):
            h[j] = tanh(u[j] + bias[j] + products[j])


@loop
def relu_step(
    x: Any, bias: Any, before: Any, t: int, k: int, out_gates: Any, out_after: Any
) -> None:
    """Write the state ``relu(x + u + bias)``."""
    zero = x.dtype.type(0)
    for r in range(x.shape[1]):
        products, u, h = x[t, r], out_gates[k, r], out_after[0, r]
        for j in range(h.size):
            made = u[j] + bias[j] + products[j]
            h[j] = zero if made < zero else made  # NaN stays


@loop
def tanh_pullback(
    g: Any,
    x: Any,
    gates: Any,
    before: Any,
    after: Any,
    t: int,
    out_carry: Any,
    out_du: Any,
    out_dx: Any,
) -> None:
    """Write the cotangent of the products."""
    one = x.dtype.type(1)
    for r in range(x.shape[1]):
        seed, carry, h, du = g[t, 0, r], out_carry[0, r], after[0, r], out_du[t, r]
        for j in range(h.size):
            du[j] = (carry[j] + seed[j]) * (one - h[j] * h[j])


@loop
def relu_pullback(
    g: Any,
    x: Any,
    gates: Any,
    before: Any,
    after: Any,
    t: int,
    out_carry: Any,
    out_du: Any,
    out_dx: Any,
) -> None:
    """Write the cotangent of the products."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    for r in range(x.shape[1]):
        seed, carry, h, du = g[t, 0, r], out_carry[0, r], after[0, r], out_du[t, r]
        for j in range(h.size):
            du[j] = (carry[j] + seed[j]) * (one if h[j] > zero else zero)


# ------------------------------------------------------------------ long short-term memory (LSTM)


@loop
def lstm_step(
    x: Any, bias: Any, before: Any, t: int, k: int, out_gates: Any, out_after: Any
) -> None:
    """Write the gates i, f, g and o, and the hidden state and the cell state."""
    w = before.shape[2]
    for r in range(x.shape[1]):
        products, u = x[t, r], out_gates[k, r]
        for low, high in ((0, 2 * w), (3 * w, 4 * w)):
            _sigmoid_of_sum(products[low:high], bias[low:high], u[low:high])
        _tanh_of_sum(products[2 * w : 3 * w], bias[2 * w : 3 * w], u[2 * w : 3 * w])
        i, f, g, o = u[:w], u[w : 2 * w], u[2 * w : 3 * w], u[3 * w :]
        c_before, h, c = before[1, r], out_after[0, r], out_after[1, r]
        for j in range(w):
            cell = f[j] * c_before[j] + i[j] * g[j]
            c[j] = cell
            h[j] = o[j] * tanh(cell)


@loop
def lstm_pullback(
    g: Any,
    x: Any,
    gates: Any,
    before: Any,
    after: Any,
    t: int,
    out_carry: Any,
    out_du: Any,
    out_dx: Any,
) -> None:
    """Write the cotangent of the products, and that of the cell state before."""
    one, w = x.dtype.type(1), before.shape[2]
    for r in range(x.shape[1]):
        u, du = gates[t, r], out_du[t, r]
        i, f, new, o = u[:w], u[w : 2 * w], u[2 * w : 3 * w], u[3 * w :]
        di, df, dn, do = du[:w], du[w : 2 * w], du[2 * w : 3 * w], du[3 * w :]
        h_seed, c_seed, h_carry, c_carry = g[t, 0, r], g[t, 1, r], out_carry[0, r], out_carry[1, r]
        c, c_before = after[1, r], before[1, r]
        for j in range(w):
            bent = tanh(c[j])
            dh = h_carry[j] + h_seed[j]
            do[j] = dh * (bent * (o[j] * (one - o[j])))
            c_carry[j] = c_carry[j] + c_seed[j] + dh * (o[j] * (one - bent * bent))
        for j in range(w):
            dc = c_carry[j]
            di[j] = dc * (new[j] * (i[j] * (one - i[j])))
            dn[j] = dc * (i[j] * (one - new[j] * new[j]))
        for j in range(w):
            dc = c_carry[j]
            df[j] = dc * (c_before[j] * (f[j] * (one - f[j])))
            c_carry[j] = dc * f[j]


# ------------------------------------------------------------------ gated recurrent unit (GRU)


@loop
def gru_step(
    x: Any, bias: Any, before: Any, t: int, k: int, out_gates: Any, out_after: Any
) -> None:
    """Write the gates r and z, the candidate's product with the state, and the state."""
    w = before.shape[2]
    for r in range(x.shape[1]):
        products, u = x[t, r], out_gates[k, r]
        _sigmoid_of_sum(products[: 2 * w], bias[: 2 * w], u[: 2 * w])
        reset, keep, drawn = u[:w], u[w : 2 * w], u[2 * w :]
        n_x, n_bias, h, new = products[2 * w :], bias[2 * w :], before[0, r], out_after[0, r]
        for j in range(w):
            drawn[j] += n_bias[j]
        for j in range(w):
            n = tanh(n_x[j] + reset[j] * drawn[j])
            new[j] = n + keep[j] * (h[j] - n)


@loop
def gru_pullback(
    g: Any,
    x: Any,
    gates: Any,
    before: Any,
    after: Any,
    t: int,
    out_carry: Any,
    out_du: Any,
    out_dx: Any,
) -> None:
    """Write the cotangents of both products, and that of the state before, apart from these."""
    one, w = x.dtype.type(1), before.shape[2]
    for r in range(x.shape[1]):
        u, n_x, du, dx = gates[t, r], x[t, r, 2 * w :], out_du[t, r], out_dx[t, r]
        reset, keep, drawn = u[:w], u[w : 2 * w], u[2 * w :]
        seed, product, carry, h = g[t, 0, r], out_carry[0, r], out_carry[1, r], before[0, r]
        dz, dn, dn_x, dr = du[w : 2 * w], du[2 * w :], dx[2 * w :], du[:w]
        for j in range(w):
            n = tanh(n_x[j] + reset[j] * drawn[j])
            dh = product[j] + carry[j] + seed[j]
            z = keep[j]
            slope = (one - z) * (one - n * n)
            dn_x[j] = dh * slope
            dn[j] = dh * (slope * reset[j])
            dr[j] = dh * ((slope * drawn[j]) * (reset[j] * (one - reset[j])))
            dz[j] = dh * ((h[j] - n) * (z * (one - z)))
            carry[j] = dh * z
        for j in range(2 * w):
            dx[j] = du[j]
