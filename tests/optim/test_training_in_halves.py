"""Networks for digits trained in float16 with scaled losses, and in bfloat16, as in float32."""

from functools import cache

import numpy as np
import pytest

import odyssey as od
from odyssey import ops

SEEDS = range(5)
EPOCHS = {"mlp": 12, "lenet": 4}
BATCH = 32
# A loss divided by this has gradients below 6e-8, the least number of float16. By 2**16 some are
# above.
UNDERFLOW = 2.0**20


def _mlp(p, x):
    x = ops.reshape(x, (len(x), 64))
    for w, b in p[:-1]:
        x = ops.relu(ops.linear(x, w, b))
    return ops.linear(x, *p[-1])


def _lenet(p, x):
    for w, b in p[:2]:
        x = ops.max_pool2d(ops.relu(ops.conv2d(x, w, b, padding="same")), window=2)
    x = ops.relu(ops.linear(ops.reshape(x, (len(x), -1)), *p[2]))
    return ops.linear(x, *p[3])


NETWORKS = {"mlp": _mlp, "lenet": _lenet}
WEIGHTS = {
    "mlp": ((128, 64), (64, 128), (10, 64)),
    "lenet": ((16, 1, 3, 3), (32, 16, 3, 3), (64, 128), (10, 64)),
}


def _data(rng):
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    order = rng.permutation(len(digits.target))
    x, y = digits.images[order][:, None].astype(np.float32) / 16, digits.target[order]
    return (x[:-360], y[:-360]), (x[-360:], y[-360:])


def _parameters(rng, network, dtype):
    """He's scaling: the same numbers for each dtype, rounded to it."""

    def leaf(array):
        return od.Variable(array.astype(np.float32), requires_grad=True, dtype=dtype)

    return [
        (leaf(rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape)), leaf(np.zeros(shape[0])))
        for shape in WEIGHTS[network]
    ]


@cache
def train(network, dtype, seed, scaled=False, divisor=1.0):
    """The final loss on all training images and the accuracy on others, in float64."""
    rng, fn = np.random.default_rng(seed), NETWORKS[network]
    (x, y), (test_x, test_y) = _data(rng)
    params = _parameters(rng, network, dtype)
    leaves = [v for pair in params for v in pair]
    # A loss that is divided takes steps that are multiplied.
    optimizer = od.optim.SGD(leaves, 0.02 * divisor, momentum=0.9)
    schedule = od.optim.CosineAnnealingLR(optimizer, EPOCHS[network])
    scaler = od.optim.LossScaler() if scaled else None

    @od.compile
    def step(x, y):
        with od.GradientTape() as tape:
            loss = od.losses.cross_entropy(fn(params, ops.astype(x, dtype)), y)
            loss = loss * (1 / divisor)
            swept = loss if scaler is None else scaler.scale(loss)
        tape.backward(swept)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
        optimizer.zero_grad()

    for _ in range(EPOCHS[network]):
        order = rng.permutation(len(x))
        for rows in np.split(order[: len(x) // BATCH * BATCH], len(x) // BATCH):
            step(x[rows], y[rows])
        schedule.step()

    trained = [tuple(v.numpy().astype(np.float64) for v in pair) for pair in params]
    loss = od.losses.cross_entropy(fn(trained, x.astype(np.float64)), y)
    answers = fn(trained, test_x.astype(np.float64)).argmax(axis=1)
    return float(loss), float((answers == test_y).mean())


def _mean_of_seeds(network, dtype, scaled=False):
    return np.mean([train(network, dtype, seed, scaled) for seed in SEEDS], axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "scaled"), [("float16", True), ("bfloat16", False)], ids=["float16", "bfloat16"]
)
@pytest.mark.parametrize("network", ["mlp", "lenet"])
def test_five_seeds_end_with_the_loss_and_the_accuracy_of_float32(network, dtype, scaled):
    loss, accuracy = _mean_of_seeds(network, dtype, scaled)
    expected_loss, expected_accuracy = _mean_of_seeds(network, "float32")
    assert expected_loss < 0.1
    assert abs(loss - expected_loss) <= 0.05 * expected_loss
    assert abs(accuracy - expected_accuracy) <= 0.005


@pytest.mark.slow
def test_gradients_that_vanish_in_float16_train_with_a_scaler_and_not_without():
    loss, accuracy = train("mlp", "float16", 0, divisor=UNDERFLOW)
    scaled_loss, scaled_accuracy = train("mlp", "float16", 0, scaled=True, divisor=UNDERFLOW)
    expected_loss, _ = train("mlp", "float32", 0)
    assert loss > 2.0  # that of guessing is 2.3
    assert accuracy < 0.2
    assert abs(scaled_loss - expected_loss) <= 0.05 * expected_loss
    assert scaled_accuracy > 0.95
