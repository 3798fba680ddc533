"""Linear regression with a tape, and by hand
==========================================

The data lie on the line y = 2x + 1, up to a little noise, and the program finds the 2 and the 1.

With a tape one writes the loss and asks for gradients. Without one, ``od.compute_mse_gradient``
gives the gradient of the mean squared error with respect to the *predictions*, and the rest is the
chain rule: a prediction w·x + b changes by x when w does and by 1 when b does, so

    dloss/dw = Σ dloss/dprediction · x

    dloss/db = Σ dloss/dprediction

To be seen: both ways take the same path to the solution, to 1e-12 at every step. Runs in a second.
"""

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.optim import SGD

STEPS = 200
LEARNING_RATE = 0.3


def fit_with_tape(x, y):
    """Return the path of (w, b) from (0, 0), one row a step."""
    w = Variable(0.0, requires_grad=True, name="w")
    b = Variable(0.0, requires_grad=True, name="b")
    optimizer = SGD([w, b], learning_rate=LEARNING_RATE)
    path = []
    for _ in range(STEPS):
        with GradientTape() as tape:
            loss = ((w * x + b - y) ** 2).mean()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        path.append((w.item(), b.item()))
    return np.array(path)


def fit_by_hand(x, y):
    """Return the path, computed with plain arrays."""
    w, b = 0.0, 0.0
    path = []
    for _ in range(STEPS):
        g = od.compute_mse_gradient(w * x + b, y)  # dloss/dprediction, one number for each x
        w -= LEARNING_RATE * np.sum(g * x)
        b -= LEARNING_RATE * np.sum(g)
        path.append((w, b))
    return np.array(path)


def draw(x, y, path):
    """Draw the data with the line, and the path there; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot(x, y, ".", color="0.6", label="data")
    for step in (1, 5, STEPS):
        w, b = path[step - 1]
        left.plot([-1, 1], [b - w, b + w], label=f"after {step} step{'s' * (step > 1)}")
    left.set(title="Data and fitted lines", xlabel="x", ylabel="y")
    left.legend()
    right.plot(path[:60, 0], label="w")
    right.plot(path[:60, 1], label="b")
    right.set(title="Parameters over the first 60 steps", xlabel="step")
    right.legend()
    plt.show()


def main():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 200)
    y = 2.0 * x + 1.0 + rng.normal(0.0, 0.02, 200)

    taped = fit_with_tape(x, y)
    manual = fit_by_hand(x, y)
    for step in (1, 5, 20, STEPS):
        w, b = taped[step - 1]
        print(f"after step {step:3}: w = {w:.4f}, b = {b:.4f}")
    difference = np.max(np.abs(taped - manual))
    print(f"largest difference between tape and chain rule: {difference:.1e}")

    np.testing.assert_allclose(taped[-1], [2.0, 1.0], atol=0.01)
    assert difference <= 1e-12
    draw(x, y, taped)


if __name__ == "__main__":
    main()
