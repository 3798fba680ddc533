"""Gradients written by hand in NumPy: no graph at all, the floor for a library above NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.workloads import TrainingSpec
from peers.contract import Float32, chain_inputs, training_inputs


def _cross_entropy(logits: Float32, labels: NDArray[np.intp]) -> tuple[np.float32, Float32]:
    rows = np.arange(len(labels))
    logits -= logits.max(axis=1, keepdims=True)
    exponentials = np.exp(logits)
    totals = exponentials.sum(axis=1, keepdims=True)
    loss = np.mean(np.log(totals[:, 0]) - logits[rows, labels])
    exponentials /= totals
    exponentials[rows, labels] -= np.float32(1)
    exponentials *= np.float32(1 / len(labels))
    return loss, exponentials


def _mean_squared_error(predictions: Float32, targets: Float32) -> tuple[np.float32, Float32]:
    predictions -= targets
    loss = np.mean(predictions * predictions)
    predictions *= np.float32(2 / predictions.size)
    return loss, predictions


def _relu(x: Float32) -> None:
    np.maximum(x, 0, out=x)


def _tanh(x: Float32) -> None:
    np.tanh(x, out=x)


def _relu_backward(g: Float32, out: Float32) -> None:
    g *= out > 0


def _tanh_backward(g: Float32, out: Float32) -> None:
    g *= 1 - out * out


class Training:
    def __init__(self, spec: TrainingSpec) -> None:
        self._layers, self._x, self._y = training_inputs(spec)
        self._velocity = [
            (np.zeros_like(weight), np.zeros_like(bias)) for weight, bias in self._layers
        ]
        self._activation, self._activation_backward = {
            "relu": (_relu, _relu_backward),
            "tanh": (_tanh, _tanh_backward),
        }[spec.activation]
        losses: dict[str, Callable[[Float32, Any], tuple[np.float32, Float32]]] = {
            "cross_entropy": _cross_entropy,
            "mse": _mean_squared_error,
        }
        self._loss_and_gradient = losses[spec.loss]
        self._learning_rate = np.float32(spec.learning_rate)
        self._momentum = np.float32(spec.momentum)

    def step(self) -> None:
        outputs = [self._x]
        for weight, bias in self._layers:
            if len(outputs) > 1:
                self._activation(outputs[-1])
            z = outputs[-1] @ weight
            z += bias
            outputs.append(z)
        self._loss, g = self._loss_and_gradient(outputs.pop(), self._y)
        for i in reversed(range(len(self._layers))):
            h = outputs[i]
            weight_gradient, bias_gradient = h.T @ g, g.sum(axis=0)
            if i:
                g = g @ self._layers[i][0].T
                self._activation_backward(g, h)
            self._update(i, weight_gradient, bias_gradient)

    def _update(self, layer: int, *gradients: Float32) -> None:
        for p, v, g in zip(self._layers[layer], self._velocity[layer], gradients, strict=True):
            v *= self._momentum
            v += g
            p -= self._learning_rate * v

    def finish(self) -> None:
        pass

    def loss(self) -> float:
        return float(self._loss)


class Chain:
    def __init__(self, length: int) -> None:
        self._start, self._addend = chain_inputs()
        self._length = length

    def record(self) -> None:
        h, b = self._start, self._addend
        for _ in range(self._length):
            h = h + b

    def sweep(self) -> None:
        g = np.ones(8, np.float32)
        addend_gradient = np.zeros(8, np.float32)
        for _ in range(self._length):
            addend_gradient = addend_gradient + g
