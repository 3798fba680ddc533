"""odyssey, eager: what a user writes, with every default check on."""

import numpy as np

from harness.workloads import DEPTH_SCALE, DEPTH_SHIFT, TrainingSpec
from odyssey import GradientTape, Variable, losses, ops
from odyssey.optim import SGD
from peers.contract import chain_inputs, training_inputs


class Training:
    def __init__(self, spec: TrainingSpec) -> None:
        layers, self._x, self._y = training_inputs(spec)
        variables = [
            (Variable(weight, requires_grad=True), Variable(bias, requires_grad=True))
            for weight, bias in layers
        ]
        *self._hidden, self._last = variables
        self._activation = {"relu": ops.relu, "tanh": ops.tanh}[spec.activation]
        self._loss_function = {
            "cross_entropy": losses.cross_entropy,
            "mse": losses.mean_squared_error,
        }[spec.loss]
        parameters = [variable for layer in variables for variable in layer]
        self._optimizer = SGD(parameters, spec.learning_rate, momentum=spec.momentum)

    def step(self) -> None:
        with GradientTape() as tape:
            h = self._x
            for weight, bias in self._hidden:
                h = self._activation(h @ weight + bias)
            weight, bias = self._last
            loss = self._loss_function(h @ weight + bias, self._y)
        tape.backward(loss)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._loss = loss

    def finish(self) -> None:
        pass

    def loss(self) -> float:
        return float(self._loss.item())


class Chain:
    def __init__(self, length: int) -> None:
        start, addend = chain_inputs()
        self._start = Variable(start, requires_grad=True)
        self._addend = Variable(addend, requires_grad=True)
        self._length = length
        self._cotangent = np.ones(8, np.float32)

    def record(self) -> None:
        h, b = self._start, self._addend
        with GradientTape() as tape:
            for _ in range(self._length):
                h = h + b
        self._graph = tape, h

    def sweep(self) -> None:
        tape, h = self._graph
        self._start.zero_grad()
        self._addend.zero_grad()
        tape.backward(h, self._cotangent)
        del self._graph, tape, h


class DeepChain:
    def __init__(self, depth: int) -> None:
        self._x = Variable(np.ones(8, np.float32), requires_grad=True)
        self._depth = depth
        self._cotangent = np.ones(8, np.float32)

    def forward(self) -> None:
        x = self._x
        with GradientTape() as tape:
            for _ in range(self._depth):
                x = x * DEPTH_SCALE + DEPTH_SHIFT
        self._graph = tape, x

    def backward(self) -> None:
        tape, x = self._graph
        tape.backward(x, self._cotangent)

    def release(self) -> None:
        del self._graph

    def gradient(self) -> float:
        gradient = self._x.grad
        assert gradient is not None
        return float(gradient[0])
