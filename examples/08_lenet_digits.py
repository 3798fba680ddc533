"""Handwritten digits with a convolutional network
===============================================

A small network in the manner of LeNet reads scikit-learn's 1797 bundled images, 8×8 pixels. A
multilayer perceptron sees an image as a row of 64 numbers. This network slides small filters over
it, keeps the largest answer of each 2×2 window, and does both again before it decides.

Images have the shape (samples, channels, height, width). A layer is a pair of a weight and a bias,
and the model a function of them. The learning rate falls by a schedule. The
training step is compiled. Metrics of each epoch go to the file that an argument names, if there is
one; ``python -m odyssey log plot FILE`` draws it.

To be seen: the loss over 12 epochs, the filters of the first layer, and a test accuracy of 98 %.
Runs in about 20 seconds. Needs scikit-learn: ``pip install -e ".[examples]"``
"""

import os
import sys

import numpy as np
from sklearn.datasets import load_digits

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.optim import Adam, CosineAnnealingLR

FILTERS = (16, 32)
HIDDEN = 64
EPOCHS = 12
BATCH_SIZE = 32


def split_digits(rng):
    """Return ((x, y) to train with, (x, y) to test with): images of one channel, grey in [0, 1]."""
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    x = digits.images[order][:, None].astype(np.float32) / 16
    y = digits.target[order]
    return (x[:-360], y[:-360]), (x[-360:], y[-360:])


def layer(rng, name, *shape):
    """Return a weight of some shape, outputs first, and a bias, in He's scaling."""
    scale = np.sqrt(2.0 / np.prod(shape[1:]))
    weight = rng.normal(0.0, scale, shape).astype(np.float32)
    return (
        Variable(weight, requires_grad=True, name=f"{name} weight"),
        Variable(np.zeros(shape[0], np.float32), requires_grad=True, name=f"{name} bias"),
    )


def init_params(rng):
    first, second = FILTERS
    return {
        "conv1": layer(rng, "conv1", first, 1, 3, 3),
        "conv2": layer(rng, "conv2", second, first, 3, 3),
        "hidden": layer(rng, "hidden", HIDDEN, second * 2 * 2),
        "scores": layer(rng, "scores", 10, HIDDEN),
    }


def lenet(params, x):
    """Return ten scores for each image: 8×8 pixels become 4×4, and then 2×2."""
    for name in ("conv1", "conv2"):
        x = ops.relu(ops.conv2d(x, *params[name], padding="same"))
        x = ops.max_pool2d(x, window=2)
    x = ops.reshape(x, (len(x), -1))
    x = ops.relu(ops.linear(x, *params["hidden"]))
    return ops.linear(x, *params["scores"])


def minibatches(rng, x, y):
    order = rng.permutation(len(x))
    for start in range(0, len(x), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        yield x[rows], y[rows]


def accuracy(params, x, y):
    with od.no_grad():
        scores = lenet(params, x).numpy()
    return np.mean(scores.argmax(axis=1) == y)


def draw(history, params):
    """Draw the loss and the filters; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    figure = plt.figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axis = left.subplots()
    axis.semilogy(range(1, EPOCHS + 1), history)
    axis.set(title="Training loss", xlabel="epoch", ylabel="mean cross entropy")
    figure.suptitle("Training, and filters of the first layer, 3×3")
    for axis, image in zip(right.subplots(4, 4).ravel(), params["conv1"][0].numpy(), strict=True):
        axis.imshow(image[0], cmap="RdBu_r", vmin=-1.5, vmax=1.5)
        axis.set_axis_off()
    plt.show()


def main():
    rng = np.random.default_rng(0)
    (train_x, train_y), (test_x, test_y) = split_digits(rng)
    params = init_params(rng)
    optimizer = Adam([p for pair in params.values() for p in pair], learning_rate=3e-3)
    schedule = CosineAnnealingLR(optimizer, EPOCHS)

    @od.compile(fullgraph=True)
    def training_step(x, y):
        with GradientTape() as tape:
            loss = od.losses.cross_entropy(lenet(params, x), y)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    log = od.MetricLog(sys.argv[1] if len(sys.argv) > 1 else os.devnull, {"filters": FILTERS})
    history = []
    for epoch in range(1, EPOCHS + 1):
        losses = []
        for x, y in minibatches(rng, train_x, train_y):
            losses.append(float(training_step(x, y)))
        schedule.step()
        history.append(np.mean(losses))
        log.log(epoch, loss=history[-1], learning_rate=optimizer.learning_rate)
        if epoch in (1, 2, 4, 8, EPOCHS):
            print(f"epoch {epoch:2}: mean training loss {history[-1]:.4f}")

    reached = accuracy(params, test_x, test_y)
    print(f"test accuracy: {reached:.4f}")
    assert history[-1] <= 0.1 * history[0]
    assert reached >= 0.98
    draw(history, params)


if __name__ == "__main__":
    main()
