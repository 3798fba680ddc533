"""What is timed, and the bars that the project sets itself.

A workload yields samples; a sample holds one or more metrics. A bar is the largest acceptable
ratio of odyssey to PyTorch eager, both measured in the same run.
"""

from dataclasses import dataclass
from typing import Literal

CHAIN_LENGTH = 1000
"""Ops in one `record` chain: long enough to hide the cost of opening and closing a tape."""

DEPTH = 100_000
"""Multiply-adds in the `depth` chain that all peers run."""

DEPTH_SCALE = 0.9999
DEPTH_SHIFT = 1e-4


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """A multilayer perceptron trained by SGD with momentum, in float32."""

    sizes: tuple[int, ...]
    batch: int
    activation: Literal["relu", "tanh"]
    loss: Literal["cross_entropy", "mse"]
    learning_rate: float
    momentum: float = 0.9


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a workload: seconds (or bytes) are shown divided by `unit_size`."""

    name: str
    unit: str
    unit_size: float
    bar: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """What one worker process runs.

    Args:
        name: The word that selects it on the command line.
        title: One line for the table.
        metrics: The figures of a sample, in the order shown.
        training: The network, for a training step.
        depth: The length of the deep chain; each of its samples needs a fresh process.
    """

    name: str
    title: str
    metrics: tuple[Metric, ...]
    training: TrainingSpec | None = None
    depth: int | None = None


def _step(bar: float) -> tuple[Metric, ...]:
    return (Metric("step", "us", 1e-6, bar),)


def deep_chain(depth: int) -> Workload:
    """Forward, backward and release of a graph of `depth` multiply-adds."""
    return Workload(
        "depth",
        f"x = x * {DEPTH_SCALE} + {DEPTH_SHIFT}, {depth:,} times, 8 float32; fresh process",
        (
            Metric("total", "s", 1.0, bar=0.4),
            Metric("forward", "s", 1.0),
            Metric("backward", "s", 1.0),
            Metric("release", "s", 1.0),
            Metric("memory", "MB", 2.0**20, bar=0.5),
        ),
        depth=depth,
    )


_ALL = (
    Workload(
        "record",
        f"h = h + b on 8 float32, {CHAIN_LENGTH} ops; record forward, then sweep backward",
        (
            Metric("record", "ns/op", 1e-9, bar=0.60),
            Metric("sweep", "ns/op", 1e-9, bar=0.30),
        ),
    ),
    Workload(
        "W1",
        "training step, MLP 2-16-1, batch 4, tanh, mean squared error",
        _step(0.20),
        TrainingSpec((2, 16, 1), 4, "tanh", "mse", learning_rate=0.1),
    ),
    Workload(
        "W2",
        "training step, MLP 784-128-10, batch 32, relu, cross-entropy",
        _step(0.65),
        TrainingSpec((784, 128, 10), 32, "relu", "cross_entropy", learning_rate=0.01),
    ),
    Workload(
        "W3",
        "training step, MLP 784-512-512-10, batch 256, relu, cross-entropy",
        _step(1.0),
        TrainingSpec((784, 512, 512, 10), 256, "relu", "cross_entropy", learning_rate=0.01),
    ),
    deep_chain(DEPTH),
)

WORKLOADS = {workload.name: workload for workload in _ALL}
