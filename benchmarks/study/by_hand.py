"""Losses and gradients of the benchmarks' networks written by hand in NumPy.

In float64 they are the reference of the study, in float32 its system ``numpy``: no graph at all.
Each network has a forward pass, which returns the loss and what the backward pass needs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from harness.compiled_cases import BATCH, HEADS, TIMES, WIDTH

Pass = tuple[Any, Callable[[], list[Any]]]
"""The loss, and the backward pass."""


def run_forward(name: str, p: Sequence[Any], x: Any, *y: Any) -> Pass:
    """Run a network of `harness.compiled_cases` forward.

    Args:
        name: ``W1``, ``W2``, ``W3``, ``W4``, ``W4m``, ``W6`` or ``W7``.
        p: Its parameters.
        x: The first argument of a step.
        y: The second.

    Returns:
        The loss, and a function that returns the gradient of each parameter.
    """
    if name == "W4":
        return _transcendental_chain(p[0], x)
    if name == "W4m":
        return _cheap_chain(p[0], x)
    if name == "W6":
        return _attention(p, x, *y)
    if name == "W7":
        return _lenet(p, x, *y)
    return run_mlp(p, x, *y, tanh=name == "W1")


def run_mlp(
    p: Sequence[Any], x: Any, y: Any, tanh: bool = False, needs_input: bool = False
) -> Pass:
    """Run a multilayer perceptron: tanh and mean squared error, or relu and cross-entropy.

    Args:
        p: A weight and a bias for each layer.
        x: A batch.
        y: Its targets.
        tanh: Whether it is tanh.
        needs_input: Whether the gradient of `x` comes first.
    """
    layers = list(zip(p[::2], p[1::2], strict=True))
    outputs = [x]
    for weight, bias in layers[:-1]:
        h = outputs[-1] @ weight
        h += bias
        outputs.append(np.tanh(h, out=h) if tanh else np.maximum(h, 0, out=h))
    h = outputs[-1] @ layers[-1][0]
    h += layers[-1][1]
    loss, slope = (_squared_error if tanh else _cross_entropy)(h, y)

    def backward() -> list[Any]:
        g, found = slope, []
        for k in reversed(range(len(layers))):
            h = outputs[k]
            found += [g.sum(axis=0), h.T @ g]
            if k or needs_input:
                g = g @ layers[k][0].T
            if k:
                g *= (1 - h * h) if tanh else (h > 0)
        return [g, *found[::-1]] if needs_input else found[::-1]

    return loss, backward


def _cross_entropy(logits: Any, labels: Any) -> tuple[Any, Any]:
    rows = np.arange(len(labels))
    logits = logits - logits.max(axis=1, keepdims=True)
    slope = np.exp(logits)
    totals = slope.sum(axis=1, keepdims=True)
    loss = np.mean(np.log(totals[:, 0]) - logits[rows, labels])
    slope /= totals
    slope[rows, labels] -= 1
    slope /= len(labels)
    return loss, slope


def _squared_error(predictions: Any, targets: Any) -> tuple[Any, Any]:
    difference = predictions - targets
    return np.mean(difference * difference), difference * (2 / difference.size)


def _transcendental_chain(x: Any, c: Any) -> Pass:
    h1 = np.tanh(x * c + x)
    s = np.sqrt(h1 * h1 + 1)
    e = np.exp(s * 0.5)
    h2 = e - c
    q = np.sin(h2)
    h3 = 1 / (1 + np.exp(-(q * x + c)))
    h4 = np.log(h3 + 1)
    r = h4 * h4 - 0.1
    loss = np.sum(np.maximum(r, 0) / 2 + x)

    def backward() -> list[Any]:
        g = (r > 0) * h4 / (h3 + 1) * (h3 * (1 - h3))
        slope = 1 + g * q
        g = g * x * np.cos(h2) * e * 0.5 * h1 / s * (1 - h1 * h1)
        return [slope + g * (c + 1)]

    return loss, backward


def _cheap_chain(x: Any, c: Any) -> Pass:
    h, positive = x, []
    for _ in range(4):
        r = h * c + x
        positive.append(r > 0)
        h = np.maximum(r, 0) * 0.5 - c

    def backward() -> list[Any]:
        g, slope = np.ones_like(x), np.zeros_like(x)
        for mask in reversed(positive):
            g = g * 0.5 * mask
            slope += g
            g = g * c
        return [slope + g]

    return np.sum(h), backward


def _attention(p: Sequence[Any], x: Any, y: Any) -> Pass:
    heads = (x @ p[0]).reshape(BATCH, TIMES, 3, HEADS, WIDTH).transpose(2, 0, 3, 1, 4)
    q, k, v = heads
    a = q @ k.swapaxes(-1, -2) * WIDTH**-0.5
    a = np.exp(a - a.max(axis=-1, keepdims=True))
    a /= a.sum(axis=-1, keepdims=True)
    joined = (a @ v).transpose(0, 2, 1, 3).reshape(BATCH, TIMES, HEADS * WIDTH)
    loss, slope = _squared_error(joined @ p[1], y)

    def backward() -> list[Any]:
        last = np.tensordot(joined, slope, ([0, 1], [0, 1]))
        g = (slope @ p[1].T).reshape(BATCH, TIMES, HEADS, WIDTH).transpose(0, 2, 1, 3)
        ga = g @ v.swapaxes(-1, -2)
        gs = a * (ga - np.sum(ga * a, axis=-1, keepdims=True)) * WIDTH**-0.5
        parts = np.stack([gs @ k, gs.swapaxes(-1, -2) @ q, a.swapaxes(-1, -2) @ g])
        whole = parts.transpose(1, 3, 0, 2, 4).reshape(BATCH, TIMES, -1)
        return [np.tensordot(x, whole, ([0, 1], [0, 1])), last]

    return loss, backward


def _windows(x: Any, padding: int) -> Any:
    edges = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    return sliding_window_view(np.pad(x, edges), (5, 5), (2, 3))


def _pooled(h: Any) -> tuple[Any, Any]:
    """Maxima of windows of 2 by 2, and where they are."""
    n, channels, height, width = h.shape
    blocks = h.reshape(n, channels, height // 2, 2, width // 2, 2)
    largest = blocks.max(axis=(3, 5), keepdims=True)
    # Maxima of 0 are tied, but relu passes nothing there.
    return largest[:, :, :, 0, :, 0], (blocks == largest) & (blocks > 0)


def _lenet(p: Sequence[Any], x: Any, y: Any) -> Pass:
    kept = []
    for k, padding in ((0, 2), (2, 0)):
        windows = _windows(x, padding)
        h = np.tensordot(windows, p[k], ([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)
        x, where = _pooled(np.maximum(h + p[k + 1][:, None, None], 0))
        kept.append((windows, where))
    features = x.reshape(len(x), -1)
    loss, dense = run_mlp(p[4:], features, y, needs_input=True)

    def backward() -> list[Any]:
        g, *found = dense()
        g = g.reshape(x.shape)
        for k in (2, 0):
            windows, where = kept[k // 2]
            spread = np.where(where, g[:, :, :, None, :, None], 0)
            n, channels, height, _, width, _ = where.shape
            g = spread.reshape(n, channels, 2 * height, 2 * width).astype(x.dtype)
            slopes = [np.tensordot(g, windows, ([0, 2, 3], [0, 2, 3])), g.sum(axis=(0, 2, 3))]
            found = slopes + found
            if k:
                flipped = p[k][:, :, ::-1, ::-1]
                g = np.tensordot(_windows(g, 4), flipped, ([1, 4, 5], [0, 2, 3]))
                g = g.transpose(0, 3, 1, 2)
        return found

    return loss, backward
