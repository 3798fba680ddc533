"""Training without a tape: backward functions called by hand
==========================================================

Every op has its backward function under ``od.backward``, on plain arrays. It takes the cotangent of
the result, that is the gradient of the loss with respect to it, then what the rule needs, and
returns the gradient of each operand. ``python -m odyssey ops relu`` prints its arguments. The
gradient of the loss with respect to the scores is ``od.compute_ce_gradient``. The backward pass
through a network of two layers is then one call for each op, in the reverse order::

    forward                          backward
    product  = x @ w1                g_w1        from matmul
    sum      = product + b1          g_b1        from add, which sums over the batch
    hidden   = relu(sum)             g_sum       from relu
    scores   = hidden @ w2 + b2      g_hidden, g_w2, g_b2
    loss     = cross entropy         g_scores    from compute_ce_gradient

To be seen: a tape makes the same calls. Both train one network on scikit-learn's handwritten
digits, and every loss and every weight agree to 1e-12. Runs in about 4 seconds. Needs scikit-learn:
``pip install -e ".[examples]"``
"""

import numpy as np
from sklearn.datasets import load_digits

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.optim import SGD

STEPS = 150
BATCH_SIZE = 64
LEARNING_RATE = 0.2


def init_params(rng):
    """Return the weights of a network 64-32-10, in He's scaling, which keeps a signal's size."""
    return {
        "w1": rng.normal(0.0, np.sqrt(2 / 64), (64, 32)),
        "b1": np.zeros(32),
        "w2": rng.normal(0.0, np.sqrt(2 / 32), (32, 10)),
        "b2": np.zeros(10),
    }


def loss_and_grads(params, x, y):
    """Return the loss and the gradient of each weight, with arrays alone."""
    product = x @ params["w1"]
    total = product + params["b1"]
    hidden = np.maximum(total, 0.0)
    scores = hidden @ params["w2"] + params["b2"]
    loss = od.cross_entropy(scores, y)

    g = od.compute_ce_gradient(scores, y)
    _, g_b2 = od.backward.add(g, y=params["b2"])
    g, g_w2 = od.backward.matmul(g, hidden, params["w2"])
    g = od.backward.relu(g, out=hidden)
    g, g_b1 = od.backward.add(g, y=params["b1"])
    _, g_w1 = od.backward.matmul(g, x, params["w1"])
    return loss, {"w1": g_w1, "b1": g_b1, "w2": g_w2, "b2": g_b2}


def train_by_hand(params, batches):
    """Return the loss of each step, and the weights after the last."""
    losses = []
    for x, y in batches:
        loss, grads = loss_and_grads(params, x, y)
        params = {name: w - LEARNING_RATE * grads[name] for name, w in params.items()}
        losses.append(loss)
    return np.array(losses), params


def train_with_tape(params, batches):
    """Return losses and weights of a training with a tape."""
    params = {name: Variable(w, requires_grad=True, name=name) for name, w in params.items()}
    optimizer = SGD(list(params.values()), learning_rate=LEARNING_RATE)
    losses = []
    for x, y in batches:
        with GradientTape() as tape:
            hidden = ops.relu(x @ params["w1"] + params["b1"])
            loss = od.cross_entropy(hidden @ params["w2"] + params["b2"], y)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return np.array(losses), {name: w.numpy() for name, w in params.items()}


def draw(by_hand, taped):
    """Draw the losses and how they differ; without matplotlib nothing is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot(by_hand, label="by hand")
    left.plot(taped, "k:", label="with a tape")
    left.set(title="Loss over the steps", xlabel="step", ylabel="cross entropy")
    left.legend()
    right.plot(np.abs(by_hand - taped), ".")
    right.set(title="Difference of the losses", xlabel="step", ylim=(-1e-12, 1e-12))
    plt.show()


def main():
    rng = np.random.default_rng(0)
    digits = load_digits()
    x, y = digits.data / 16.0, digits.target
    rows = [rng.integers(0, len(x), BATCH_SIZE) for _ in range(STEPS)]
    batches = [(x[row], y[row]) for row in rows]
    params = init_params(rng)

    by_hand, weights = train_by_hand(params, batches)
    taped, taped_weights = train_with_tape(params, batches)
    for step in (1, 10, 50, STEPS):
        print(f"step {step:3}: loss {by_hand[step - 1]:.4f} by hand, {taped[step - 1]:.4f} taped")
    difference = max(np.max(np.abs(weights[name] - taped_weights[name])) for name in weights)
    print(f"largest difference between the weights: {difference:.1e}")

    assert by_hand[-1] < 0.5 * by_hand[0]
    np.testing.assert_allclose(by_hand, taped, rtol=0, atol=1e-12)
    assert difference <= 1e-12
    draw(by_hand, taped)


if __name__ == "__main__":
    main()
