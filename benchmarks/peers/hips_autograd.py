"""HIPS autograd: NumPy with a tape written in Python."""

from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
from autograd.core import make_vjp

from harness.workloads import DEPTH_SCALE, DEPTH_SHIFT, TrainingSpec
from peers.contract import Float32, Layer, chain_inputs, training_inputs

Traced = Any  # an array, or the box that autograd traces it in


def _relu(x: Traced) -> Traced:
    return anp.maximum(x, 0)


def _cross_entropy(logits: Traced, one_hot: Float32) -> Traced:
    shifted = logits - anp.max(logits, axis=1, keepdims=True)
    log_sum = anp.log(anp.sum(anp.exp(shifted), axis=1, keepdims=True))
    return -anp.mean(anp.sum((shifted - log_sum) * one_hot, axis=1))


def _mean_squared_error(predictions: Traced, targets: Float32) -> Traced:
    return anp.mean((predictions - targets) ** 2)


class Training:
    def __init__(self, spec: TrainingSpec) -> None:
        self._layers, self._x, y = training_inputs(spec)
        self._y: Any = np.eye(spec.sizes[-1], dtype=np.float32)[y] if y.ndim == 1 else y
        self._velocity = [np.zeros_like(array) for layer in self._layers for array in layer]
        self._activation = {"relu": _relu, "tanh": anp.tanh}[spec.activation]
        self._loss_function = {
            "cross_entropy": _cross_entropy,
            "mse": _mean_squared_error,
        }[spec.loss]
        self._learning_rate = np.float32(spec.learning_rate)
        self._momentum = np.float32(spec.momentum)
        self._value_and_grad = autograd.value_and_grad(self._loss_of)

    def _loss_of(self, layers: list[Layer]) -> Traced:
        *hidden, (last_weight, last_bias) = layers
        h: Traced = self._x
        for weight, bias in hidden:
            h = self._activation(anp.dot(h, weight) + bias)
        return self._loss_function(anp.dot(h, last_weight) + last_bias, self._y)

    def step(self) -> None:
        self._loss, gradients = self._value_and_grad(self._layers)
        parameters = [array for layer in self._layers for array in layer]
        flat = [array for layer in gradients for array in layer]
        for p, v, g in zip(parameters, self._velocity, flat, strict=True):
            v *= self._momentum
            v += g
            p -= self._learning_rate * v

    def finish(self) -> None:
        pass

    def loss(self) -> float:
        return float(self._loss)


class Chain:
    def __init__(self, length: int) -> None:
        self._operands = chain_inputs()
        self._length = length
        self._cotangent = np.ones(8, np.float32)

    def _run(self, operands: tuple[Traced, Traced]) -> Traced:
        h, b = operands
        for _ in range(self._length):
            h = h + b
        return h

    def record(self) -> None:
        self._vjp, _ = make_vjp(self._run, self._operands)

    def sweep(self) -> None:
        self._vjp(self._cotangent)
        del self._vjp


class DeepChain:
    def __init__(self, depth: int) -> None:
        self._x = np.ones(8, np.float32)
        self._depth = depth
        self._cotangent = np.ones(8, np.float32)

    def _run(self, x: Traced) -> Traced:
        for _ in range(self._depth):
            x = x * DEPTH_SCALE + DEPTH_SHIFT
        return x

    def forward(self) -> None:
        self._vjp, _ = make_vjp(self._run, self._x)

    def backward(self) -> None:
        self._gradient = self._vjp(self._cotangent)

    def release(self) -> None:
        del self._vjp

    def gradient(self) -> float:
        return float(self._gradient[0])
