"""What a peer's module defines, and the inputs that all peers share."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.workloads import TrainingSpec

Float32 = NDArray[np.float32]
Layer = tuple[Float32, Float32]


class Training(Protocol):
    """A network and its optimizer; the constructor takes a `TrainingSpec`."""

    def step(self) -> None:
        """Forward, loss, backward, SGD with momentum, and the gradients cleared."""

    def finish(self) -> None:
        """Wait for work that was only queued."""

    def loss(self) -> float:
        """The loss of the last step."""


class Chain(Protocol):
    """`h = h + b`; the constructor takes the number of ops."""

    def record(self) -> None:
        """Run the chain forward and keep its graph."""

    def sweep(self) -> None:
        """Fresh gradients of both operands, a cotangent of ones; then let the graph go."""


class DeepChain(Protocol):
    """`x = x * 0.9999 + 1e-4`; the constructor takes the depth."""

    def forward(self) -> None:
        """Run the chain and keep its graph."""

    def backward(self) -> None:
        """The gradient of `x`, for a cotangent of ones."""

    def release(self) -> None:
        """Let the graph go, where the backward pass has not."""

    def gradient(self) -> float:
        """The first element of the gradient of `x`."""


def training_inputs(spec: TrainingSpec) -> tuple[list[Layer], Float32, NDArray[np.generic]]:
    """Weights and biases, a batch, and its targets (labels, for cross-entropy)."""
    # RandomState: NumPy promises its stream for ever, and the peers' NumPy versions may differ.
    rng = np.random.RandomState(0)

    def normal(*shape: int) -> Float32:
        return rng.standard_normal(shape).astype(np.float32)

    layers = [
        (normal(fan_in, fan_out) * np.float32(fan_in**-0.5), np.zeros(fan_out, np.float32))
        for fan_in, fan_out in zip(spec.sizes[:-1], spec.sizes[1:], strict=True)
    ]
    x = normal(spec.batch, spec.sizes[0])
    if spec.loss == "mse":
        return layers, x, normal(spec.batch, spec.sizes[-1])
    return layers, x, rng.randint(0, spec.sizes[-1], spec.batch)


def chain_inputs() -> tuple[Float32, Float32]:
    """The start `a` of the chain and what every op adds, `b`."""
    return np.ones(8, np.float32), np.full(8, 0.01, np.float32)
