"""PyTorch, eager, on the CPU: the base of every ratio."""

from collections.abc import Callable

import torch
from torch.nn import functional

from harness.workloads import DEPTH_SCALE, DEPTH_SHIFT, TrainingSpec
from peers.contract import chain_inputs, training_inputs

torch.set_num_threads(1)


class Training:
    def __init__(self, spec: TrainingSpec) -> None:
        layers, x, y = training_inputs(spec)
        tensors = [
            (torch.tensor(weight, requires_grad=True), torch.tensor(bias, requires_grad=True))
            for weight, bias in layers
        ]
        *self._hidden, self._last = tensors
        self._x, self._y = torch.tensor(x), torch.tensor(y)
        self._activation = {"relu": torch.relu, "tanh": torch.tanh}[spec.activation]
        losses: dict[str, Callable[..., torch.Tensor]] = {
            "cross_entropy": functional.cross_entropy,
            "mse": functional.mse_loss,
        }
        self._loss_function = losses[spec.loss]
        parameters = [tensor for layer in tensors for tensor in layer]
        self._optimizer = torch.optim.SGD(parameters, lr=spec.learning_rate, momentum=spec.momentum)

    def step(self) -> None:
        h = self._x
        for weight, bias in self._hidden:
            h = self._activation(torch.addmm(bias, h, weight))
        weight, bias = self._last
        loss = self._loss_function(torch.addmm(bias, h, weight), self._y)
        loss.backward()
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
        self._start = torch.tensor(start, requires_grad=True)
        self._addend = torch.tensor(addend, requires_grad=True)
        self._length = length
        self._cotangent = torch.ones(8)

    def record(self) -> None:
        h, b = self._start, self._addend
        for _ in range(self._length):
            h = h + b
        self._graph = h

    def sweep(self) -> None:
        self._start.grad = None
        self._addend.grad = None
        self._graph.backward(self._cotangent)
        del self._graph


class DeepChain:
    def __init__(self, depth: int) -> None:
        self._x = torch.ones(8, requires_grad=True)
        self._depth = depth
        self._cotangent = torch.ones(8)

    def forward(self) -> None:
        x = self._x
        for _ in range(self._depth):
            x = x * DEPTH_SCALE + DEPTH_SHIFT
        self._graph = x

    def backward(self) -> None:
        self._graph.backward(self._cotangent)

    def release(self) -> None:
        del self._graph

    def gradient(self) -> float:
        gradient = self._x.grad
        assert gradient is not None
        return float(gradient[0])
