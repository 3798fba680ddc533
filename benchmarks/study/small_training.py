"""Training small networks to a target, in each system; run as a program, from import to target.

    python benchmarks/study/small_training.py taped digits [folder of the data]

It prints a JSON line: steps, what was reached, and the processor seconds of its parts. A step is
forward, loss, backward and SGD with momentum 0.9, in float32. All systems start from the same
numbers and see the same batches.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not the folder of this file

import numpy as np

from study import datasets

MOMENTUM = 0.9


class Problem(NamedTuple):
    """A network, its data and its target.

    Args:
        sizes: Of the layers.
        batch: Rows of a step.
        rate: The learning rate.
        loss: ``cross_entropy`` after relu, or ``squared_error`` after tanh.
        most_epochs: Epochs after which a target is missed.
    """

    sizes: tuple[int, ...]
    batch: int
    rate: float
    loss: str
    most_epochs: int


PROBLEMS = {
    "digits": Problem((64, 128, 64, 10), 32, 0.05, "cross_entropy", 60),
    "diabetes": Problem((10, 16, 1), 59, 0.05, "squared_error", 200),
}
ACCURACY = 0.97
"""Of the held-out digits, of which it is reached when an epoch ends."""

Arrays = list[Any]
"""Weights and biases in turn."""


def parameters(problem: Problem) -> Arrays:
    """Return the numbers that training starts from, in He's scaling."""
    rng = np.random.RandomState(0)
    found: Arrays = []
    for n, m in zip(problem.sizes[:-1], problem.sizes[1:], strict=True):
        found += [rng.normal(0.0, np.sqrt(2.0 / n), (n, m)), np.zeros(m)]
    return [a.astype(np.float32) for a in found]


def batches(problem: Problem, x: Any, y: Any) -> Iterator[list[tuple[Any, Any]]]:
    """Yield the batches of one epoch after another; rows that do not fill a batch wait."""
    rng = np.random.RandomState(1)
    while True:
        order = rng.permutation(len(x))
        count = len(x) // problem.batch
        yield [(x[rows], y[rows]) for rows in np.split(order[: count * problem.batch], count)]


def load(name: str, folder: str | None = None) -> datasets.Split:
    """Return the data of a problem, from a folder or from the cache."""
    return datasets.digits(folder) if name == "digits" else datasets.diabetes(folder)


# ------------------------------------------------------------------ numbers by NumPy


def network(problem: Problem, values: Arrays, x: Any) -> list[Any]:
    """Return the input and what each layer gives."""
    found = [x]
    for k in range(0, len(values), 2):
        h = found[-1] @ values[k] + values[k + 1]
        if k + 2 < len(values):
            h = np.maximum(h, 0) if problem.loss == "cross_entropy" else np.tanh(h)
        found.append(h)
    return found


def loss_and_gradients(problem: Problem, values: Arrays, x: Any, y: Any) -> tuple[float, Arrays]:
    """Return the loss and its gradients by hand, in the dtype of the values."""
    states = network(problem, values, x)
    out = states[-1]
    if problem.loss == "cross_entropy":
        shifted = out - out.max(axis=1, keepdims=True)
        weights = np.exp(shifted)
        total = weights.sum(axis=1, keepdims=True)
        rows = np.arange(len(y))
        loss = float(np.mean(np.log(total[:, 0]) - shifted[rows, y]))
        g = weights / total
        g[rows, y] -= 1
        g /= len(y)
    else:
        loss = float(np.mean((out - y) ** 2))
        g = 2 * (out - y) / out.size
    gradients: Arrays = []
    for k in range(len(values) - 2, -1, -2):
        h = states[k // 2]
        gradients = [h.T @ g, g.sum(axis=0), *gradients]
        if k:
            g = g @ values[k].T
            g = g * (h > 0) if problem.loss == "cross_entropy" else g * (1 - h * h)
    return loss, gradients


def reached(name: str, values: Arrays, data: datasets.Split) -> float:
    """Return the accuracy on held-out digits, or the loss of all patients trained with."""
    problem = PROBLEMS[name]
    if name == "digits":
        answers = network(problem, values, data.test_x)[-1].argmax(axis=1)
        return float(np.mean(answers == data.test_y))
    return float(np.mean((network(problem, values, data.x)[-1] - data.y) ** 2))


def target(name: str, data: datasets.Split) -> float:
    """Return the target: an accuracy, or the loss of the best linear model, which is exact."""
    if name == "digits":
        return ACCURACY
    columns = np.column_stack([data.x, np.ones(len(data.x))]).astype(np.float64)
    best = np.linalg.lstsq(columns, data.y.astype(np.float64), rcond=None)[0]
    return float(np.mean((columns @ best - data.y) ** 2))


def is_reached(name: str, value: float, wanted: float) -> bool:
    """Return whether the target is reached."""
    return value >= wanted if name == "digits" else value <= wanted


# ------------------------------------------------------------------ systems


class Trainer(NamedTuple):
    """A system with a network: a step, which returns the loss, and the present parameters."""

    step: Callable[[Any, Any], Any]
    values: Callable[[], Arrays]


def _numpy(problem: Problem, values: Arrays) -> Trainer:
    velocity = [np.zeros_like(v) for v in values]

    def step(x: Any, y: Any) -> Any:
        loss, gradients = loss_and_gradients(problem, values, x, y)
        for p, v, g in zip(values, velocity, gradients, strict=True):
            v *= MOMENTUM
            v += g
            p -= problem.rate * v
        return loss

    return Trainer(step, lambda: values)


def _odyssey(problem: Problem, values: Arrays, compiled: bool) -> Trainer:
    import odyssey as od
    from odyssey import ops

    leaves = [od.Variable(v, requires_grad=True) for v in values]
    optimizer = od.optim.SGD(leaves, problem.rate, momentum=MOMENTUM)
    layers = list(zip(leaves[::2], leaves[1::2], strict=True))
    classes = problem.loss == "cross_entropy"
    activation = ops.relu if classes else ops.tanh
    loss_of = od.losses.cross_entropy if classes else od.losses.mean_squared_error

    def step(x: Any, y: Any) -> Any:
        with od.GradientTape() as tape:
            h = x
            for w, b in layers[:-1]:
                h = activation(h @ w + b)
            w, b = layers[-1]
            loss = loss_of(h @ w + b, y)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Trainer(od.compile(step) if compiled else step, lambda: [v.numpy() for v in leaves])


def _taped(problem: Problem, values: Arrays) -> Trainer:
    return _odyssey(problem, values, compiled=False)


def _compiled(problem: Problem, values: Arrays) -> Trainer:
    return _odyssey(problem, values, compiled=True)


def _torch(problem: Problem, values: Arrays) -> Trainer:
    import torch

    torch.set_num_threads(1)
    leaves = [torch.tensor(v, requires_grad=True) for v in values]
    optimizer = torch.optim.SGD(leaves, lr=problem.rate, momentum=MOMENTUM)
    layers = list(zip(leaves[::2], leaves[1::2], strict=True))
    classes = problem.loss == "cross_entropy"
    activation = torch.relu if classes else torch.tanh
    functional = torch.nn.functional
    loss_of = functional.cross_entropy if classes else functional.mse_loss

    def step(x: Any, y: Any) -> Any:
        h = torch.from_numpy(x)
        for w, b in layers[:-1]:
            h = activation(torch.addmm(b, h, w))
        w, b = layers[-1]
        loss = loss_of(torch.addmm(b, h, w), torch.from_numpy(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Trainer(step, lambda: [v.detach().numpy() for v in leaves])


def _loss_in(m: Any, problem: Problem, activation: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the loss in the functions of a namespace like NumPy's."""

    def loss_of(values: Any, x: Any, y: Any) -> Any:
        h = x
        for k in range(0, len(values), 2):
            h = m.dot(h, values[k]) + values[k + 1]
            if k + 2 < len(values):
                h = activation(h)
        if problem.loss == "squared_error":
            return m.mean((h - y) ** 2)
        shifted = h - m.max(h, axis=1, keepdims=True)
        total = m.log(m.sum(m.exp(shifted), axis=1))
        return m.mean(total - m.sum(shifted * y, axis=1))

    return loss_of


def _one_hot(problem: Problem, y: Any) -> Any:
    return np.eye(10, dtype=np.float32)[y] if problem.loss == "cross_entropy" else y


def _jax(problem: Problem, values: Arrays) -> Trainer:
    import jax

    numpy = jax.numpy
    activation = jax.nn.relu if problem.loss == "cross_entropy" else numpy.tanh
    loss_of = _loss_in(numpy, problem, activation)

    @jax.jit
    def update(values: Any, velocity: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(values, x, y)
        velocity = [MOMENTUM * v + g for v, g in zip(velocity, gradients, strict=True)]
        return [p - problem.rate * v for p, v in zip(values, velocity, strict=True)], velocity, loss

    state = [[numpy.asarray(v) for v in values], [numpy.zeros_like(v) for v in values]]

    def step(x: Any, y: Any) -> Any:
        state[0], state[1], loss = update(*state, x, _one_hot(problem, y))
        return loss

    return Trainer(step, lambda: [np.asarray(v) for v in state[0]])


def _autograd(problem: Problem, values: Arrays) -> Trainer:
    import autograd
    import autograd.numpy as anp

    classes = problem.loss == "cross_entropy"
    loss_of = _loss_in(anp, problem, (lambda h: anp.maximum(h, 0)) if classes else anp.tanh)
    differentiate = autograd.value_and_grad(loss_of)
    velocity = [np.zeros_like(v) for v in values]

    def step(x: Any, y: Any) -> Any:
        loss, gradients = differentiate(values, x, _one_hot(problem, y))
        for p, v, g in zip(values, velocity, gradients, strict=True):
            v *= MOMENTUM
            v += g
            p -= problem.rate * v
        return loss

    return Trainer(step, lambda: values)


TRAINERS = {
    "numpy": _numpy,
    "taped": _taped,
    "compiled": _compiled,
    "torch": _torch,
    "jax": _jax,
    "autograd": _autograd,
}


# ------------------------------------------------------------------ running


def first_losses(name: str, step: Callable[[Any, Any], Any], steps: int) -> Any:
    """Return the losses of the first steps, in float64."""
    problem, data = PROBLEMS[name], load(name)
    epoch = next(batches(problem, data.x, data.y))
    return np.array([float(step(*batch)) for batch in epoch[:steps]])


def train(system: str, name: str, folder: str | None = None) -> dict[str, Any]:
    """Train to the target, and return what it took.

    Args:
        system: Whose steps.
        name: Of the problem.
        folder: Of the data.

    Returns:
        ``steps`` and ``reached``; processor seconds from the start of the process to its data
        (``import_seconds``), of the first two steps (``first_seconds``), in which compilers
        compile, and of the others (``train_seconds``); whether the target was reached
        (``arrived``).
    """
    problem, data = PROBLEMS[name], load(name, folder)
    trainer = TRAINERS[system](problem, parameters(problem))
    imported = time.process_time()  # of the whole process, with the start of Python
    wanted, steps, value, first = target(name, data), 0, 0.0, 0.0
    for epoch, rows in enumerate(batches(problem, data.x, data.y)):
        if epoch == problem.most_epochs:
            break
        for x, y in rows:
            trainer.step(x, y)
            steps += 1
            if steps == 2:
                first = time.process_time() - imported
        value = reached(name, trainer.values(), data)
        if is_reached(name, value, wanted):
            break
    end = time.process_time()
    return {
        "steps": steps,
        "reached": value,
        "arrived": float(is_reached(name, value, wanted)),
        "import_seconds": imported,
        "first_seconds": first,
        "train_seconds": end - imported - first,
    }


if __name__ == "__main__":
    print(json.dumps(train(*sys.argv[1:])), flush=True)
