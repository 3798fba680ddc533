"""Tape as an argument
===================

Operators find their tape by themselves: in a block ``with GradientTape() as tape:``, ``x @ w`` is
recorded there. Every op also takes ``tape=``, and a function of one's own that takes a tape and
passes it on says in its signature that it records, and where::

    def dense(params, x, *, tape):
        return ops.add(ops.matmul(x, params["w"], tape=tape), params["b"], tape=tape)

To be seen: three ways to record one loss, with gradients that are equal to the last bit. Runs in a
second. The ways are

* operators in a block;
* ops with ``tape=``, in a block;
* ops with ``tape=`` on a tape that is enabled, but whose block was not entered. Such a tape records
  only what is passed to it or lives on it.
"""

import numpy as np

from odyssey import GradientTape, Variable, ops


def dense(params, x, *, tape):
    """Return x·w + b."""
    return ops.add(ops.matmul(x, params["w"], tape=tape), params["b"], tape=tape)


def mlp(params, x, *, tape):
    """Return the output of two dense layers with a relu between them."""
    hidden = ops.relu(dense(params["hidden"], x, tape=tape), tape=tape)
    return dense(params["out"], hidden, tape=tape)


def mean_squared(params, x, y, *, tape):
    """Return the mean squared error of the network's output."""
    error = ops.subtract(mlp(params, x, tape=tape), y, tape=tape)
    return ops.mean(ops.power(error, 2, tape=tape), tape=tape)


def mean_squared_by_operators(params, x, y):
    """Return the mean squared error, written with operators."""
    hidden = ops.relu(x @ params["hidden"]["w"] + params["hidden"]["b"])
    prediction = hidden @ params["out"]["w"] + params["out"]["b"]
    return ((prediction - y) ** 2).mean()


def take_gradients(params):
    """Return the gradients by name, and clear them for the next recording."""
    gradients = {}
    for layer, weights in params.items():
        for name, variable in weights.items():
            gradients[f"{layer}.{name}"] = variable.grad
            variable.zero_grad()
    return gradients


def draw(ways):
    """Draw the gradients of the first weight; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, axes = plt.subplots(3, 1, figsize=(6, 5.4), layout="constrained")
    for axis, (title, gradients) in zip(axes, ways.items(), strict=True):
        image = axis.imshow(gradients["hidden.w"], cmap="RdBu_r", vmin=-4, vmax=4)
        axis.set(title=f"Gradient of hidden.w: {title}", xticks=[], yticks=[])
    plt.colorbar(image, ax=axes)
    plt.show()


def main():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(16, 3)), rng.normal(size=(16, 2))
    params = {
        "hidden": {
            "w": Variable(rng.normal(size=(3, 8)), requires_grad=True),
            "b": Variable(rng.normal(size=8), requires_grad=True),
        },
        "out": {
            "w": Variable(rng.normal(size=(8, 2)), requires_grad=True),
            "b": Variable(rng.normal(size=2), requires_grad=True),
        },
    }

    with GradientTape() as tape:
        loss = mean_squared_by_operators(params, x, y)
    tape.backward(loss)
    by_operators = take_gradients(params)

    with GradientTape() as tape:
        loss = mean_squared(params, x, y, tape=tape)
    tape.backward(loss)
    in_block = take_gradients(params)

    tape = GradientTape()
    tape.enable()
    loss = mean_squared(params, x, y, tape=tape)
    print(f"the enabled tape recorded {len(tape)} operations")
    tape.backward(loss)
    enabled_only = take_gradients(params)

    for name, expected in by_operators.items():
        np.testing.assert_array_equal(in_block[name], expected)
        np.testing.assert_array_equal(enabled_only[name], expected)
        print(f"gradient of {name:8}: norm {np.linalg.norm(expected):.4f}, equal all three ways")
    draw(
        {
            "operators": by_operators,
            "ops with tape=, in a block": in_block,
            "ops with tape=, enabled": enabled_only,
        }
    )


if __name__ == "__main__":
    main()
