"""XOR: training loop and hidden layer
===================================

The exclusive or of two bits is the smallest problem that no straight line solves: a linear model
can do no better than answer "one half" to every question, a loss of log 2 = 0.693. One hidden layer
of eight tanh units solves it exactly. The training loop is the same for both models::

    with GradientTape() as tape:      # records what is computed in this block
        loss = ...
    tape.backward(loss)               # fills the .grad of every trainable Variable
    optimizer.step()                  # moves the Variables against their gradients
    optimizer.zero_grad()             # clears the gradients for the next step

To be seen: the answers of both models between the four inputs. Runs in a second.
"""

import math

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.optim import SGD

INPUTS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
TARGETS = np.array([[0.0], [1.0], [1.0], [0.0]])


def linear(params, x):
    w, b = params
    return x @ w + b


def mlp(params, x):
    w1, b1, w2, b2 = params
    return ops.tanh(x @ w1 + b1) @ w2 + b2


def train(model, params, steps=300):
    optimizer = SGD(params, learning_rate=0.2, momentum=0.9)
    for _ in range(steps):
        with GradientTape() as tape:
            logits = model(params, INPUTS)
            loss = od.losses.binary_cross_entropy(logits, TARGETS, from_logits=True)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def draw(models):
    """Draw the answers of the models between the inputs; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    side = np.linspace(-0.5, 1.5, 101)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    _, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    for axis, (title, model, params) in zip(axes, models, strict=True):
        with od.no_grad():
            answers = ops.sigmoid(model(params, points)).numpy().reshape(101, 101)
        image = axis.pcolormesh(side, side, answers, cmap="RdBu_r", vmin=0, vmax=1, rasterized=True)
        axis.scatter(*INPUTS.T, c=TARGETS[:, 0], cmap="RdBu_r", edgecolors="k", s=80)
        axis.set(title=title, xlabel="a", ylabel="b", aspect="equal")
    plt.colorbar(image, ax=axes, label="probability of a xor b")
    plt.show()


def main():
    rng = np.random.default_rng(0)

    def weight(*shape):
        return Variable(rng.normal(0.0, 1.0, shape), requires_grad=True)

    def bias(width):
        return Variable(np.zeros(width), requires_grad=True)

    linear_params = [weight(2, 1), bias(1)]
    linear_loss = train(linear, linear_params)
    print(f"linear model: loss {linear_loss:.4f}, where log 2 = {math.log(2):.4f}")

    params = [weight(2, 8), bias(8), weight(8, 1), bias(1)]
    mlp_loss = train(mlp, params)
    print(f"hidden layer: loss {mlp_loss:.4f}")

    with od.no_grad():  # a prediction needs no gradients
        probabilities = ops.sigmoid(mlp(params, INPUTS)).numpy()
    for (a, b), p in zip(INPUTS, probabilities[:, 0], strict=True):
        print(f"  {a:.0f} xor {b:.0f} = {p:.3f}")

    assert abs(linear_loss - math.log(2)) < 0.01
    assert mlp_loss < 0.01
    assert np.array_equal(np.round(probabilities), TARGETS)
    draw([("Linear model", linear, linear_params), ("One hidden layer", mlp, params)])


if __name__ == "__main__":
    main()
