"""Command ``python -m odyssey train``: train a perceptron on handwritten digits, and plot it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.cli.arguments import import_extra, path_in_folder, positive_int
from odyssey.floating_point_errors import isolate_errstate
from odyssey.optim import SGD

__all__ = ["Digits", "add_command", "fit", "init_mlp", "load_digits", "mlp", "predict"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

TEST_DIGITS = 360  # a fifth of the 1797 bundled images


@dataclass(frozen=True)
class Digits:
    """Images of digits as rows of 64 grey values in [0, 1], their labels, and a fixed split."""

    train_x: FloatArray
    train_y: IntArray
    test_x: FloatArray
    test_y: IntArray


def load_digits(rng: np.random.Generator) -> Digits:
    """Return scikit-learn's bundled 8×8 digits, split by a permutation drawn from ``rng``."""
    bundled = import_extra("sklearn.datasets", "scikit-learn").load_digits()
    order = rng.permutation(len(bundled.target))
    x = np.asarray(bundled.data, np.float64)[order] / 16.0
    y = np.asarray(bundled.target, np.int64)[order]
    return Digits(x[:-TEST_DIGITS], y[:-TEST_DIGITS], x[-TEST_DIGITS:], y[-TEST_DIGITS:])


def init_mlp(
    rng: np.random.Generator, inputs: int, hidden: int, classes: int
) -> dict[str, Variable]:
    """Return the weights of a two-layer perceptron, in He's scaling for relu."""
    w1 = rng.normal(0.0, np.sqrt(2.0 / inputs), (inputs, hidden))
    w2 = rng.normal(0.0, np.sqrt(2.0 / hidden), (hidden, classes))
    values = {"w1": w1, "b1": np.zeros(hidden), "w2": w2, "b2": np.zeros(classes)}
    return {name: Variable(v, requires_grad=True, name=name) for name, v in values.items()}


def mlp(params: Mapping[str, Variable], x: FloatArray) -> Variable:
    """Return one row of class scores (logits) for each row of ``x``."""
    hidden = ops.relu(ops.matmul(x, params["w1"]) + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def fit(
    params: Mapping[str, Variable],
    x: FloatArray,
    y: IntArray,
    *,
    rng: np.random.Generator,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    momentum: float,
) -> Iterator[float]:
    """Train ``params`` in place by minibatch SGD, yielding the loss of each step."""
    optimizer = SGD(list(params.values()), learning_rate=learning_rate, momentum=momentum)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x), batch_size):
            rows = order[start : start + batch_size]
            with GradientTape() as tape:
                loss = od.losses.cross_entropy(mlp(params, x[rows]), y[rows])
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            yield float(loss.item())


def predict(params: Mapping[str, Variable], x: FloatArray) -> IntArray:
    """Return the class with the highest score for each row of ``x``."""
    with od.no_grad():
        classes: IntArray = mlp(params, x).numpy().argmax(axis=1)
    return classes


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``train`` to the commands."""
    parser = commands.add_parser(
        "train",
        help="train a small network on handwritten digits",
        description="Train a perceptron with one hidden layer on scikit-learn's bundled digits.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--epochs", type=positive_int, default=20, help="passes over the data")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the split, the weights and the batches"
    )
    parser.add_argument("--hidden", type=positive_int, default=128, help="width of the network")
    parser.add_argument("--batch-size", type=positive_int, default=32, help="images in a step")
    parser.add_argument("--learning-rate", type=float, default=0.1, help="learning rate of SGD")
    parser.add_argument("--momentum", type=float, default=0.9, help="momentum of SGD")
    picture = parser.add_mutually_exclusive_group()
    picture.add_argument(
        "--plot",
        type=path_in_folder,
        default=Path("odyssey-digits.png"),
        metavar="PATH",
        help="where to save the picture",
    )
    picture.add_argument("--no-plot", action="store_true", help="do not save a picture")
    parser.set_defaults(run=_train)


def _train(arguments: argparse.Namespace) -> int:
    tqdm = import_extra("tqdm", "tqdm").tqdm
    if not arguments.no_plot:
        import_extra("matplotlib.figure", "matplotlib")  # fail before the training
    rng = isolate_errstate(np.random.default_rng)(arguments.seed)
    data = load_digits(rng)
    params = init_mlp(rng, data.train_x.shape[1], arguments.hidden, classes=10)
    steps_per_epoch = -(-len(data.train_x) // arguments.batch_size)
    steps = fit(
        params,
        data.train_x,
        data.train_y,
        rng=rng,
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        momentum=arguments.momentum,
    )
    losses: list[float] = []
    with tqdm(steps, total=arguments.epochs * steps_per_epoch, unit="step") as bar:
        for loss in bar:
            losses.append(loss)
            bar.set_postfix(loss=f"{np.mean(losses[-steps_per_epoch:]):.4f}", refresh=False)
    predicted = predict(params, data.test_x)
    hits = int(np.sum(predicted == data.test_y))
    accuracy = hits / len(predicted)
    print(f"test accuracy: {accuracy:.4f} ({hits} of {len(predicted)} digits)")
    if not arguments.no_plot:
        _save_picture(arguments.plot, losses, steps_per_epoch, data, predicted)
        print(f"picture saved to {arguments.plot}")
    return 0


def _save_picture(
    path: Path, losses: list[float], steps_per_epoch: int, data: Digits, predicted: IntArray
) -> None:
    # A Figure without pyplot uses Agg and does not change the global backend.
    figure = import_extra("matplotlib.figure", "matplotlib").Figure(
        figsize=(10, 4), layout="constrained"
    )
    left, right = figure.subfigures(1, 2)

    curve = left.subplots()
    epochs = np.arange(1, len(losses) + 1) / steps_per_epoch
    means = np.reshape(losses, (-1, steps_per_epoch)).mean(axis=1)
    curve.semilogy(epochs, losses, color="0.8", label="each step")
    curve.semilogy(np.arange(1, len(means) + 1), means, label="mean of an epoch")
    curve.set(title="training loss", xlabel="epoch", ylabel="cross-entropy")
    curve.legend()

    right.suptitle("test digits as the network reads them, its errors first")
    wrong_first = np.argsort(predicted == data.test_y, kind="stable")
    for axes, row in zip(right.subplots(3, 6).flat, wrong_first, strict=False):
        axes.imshow(data.test_x[row].reshape(8, 8), cmap="gray_r")
        axes.set_axis_off()
        right_answer = predicted[row] == data.test_y[row]
        title = f"{predicted[row]}" if right_answer else f"{predicted[row]}, is {data.test_y[row]}"
        axes.set_title(title, color="black" if right_answer else "tab:red", fontsize=9)
    figure.savefig(path, dpi=120)
