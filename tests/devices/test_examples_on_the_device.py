"""Examples that take ``--device``: on a device they compute what they compute on the CPU."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from support.on_device import assert_same_on_both, is_on_device

pytestmark = pytest.mark.usefixtures("standin")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_digits_learn_on_the_device_what_they_learn_on_the_cpu():
    pytest.importorskip("sklearn", reason="needs the extra 'examples'")
    digits = example("03_digits_mlp")

    def program(device):
        rng = np.random.default_rng(0)
        (x, y), (test_x, _) = digits.split_digits(rng)
        params = digits.init_params(rng, device)
        optimizer = od.optim.SGD([p for layer in params for p in layer], 0.05, momentum=0.9)
        batches = digits.minibatches(rng, x[:256], y[:256], device)
        losses = digits.train_epoch(params, optimizer, batches)
        return params, np.array(losses), digits.answers(params, test_x)

    params, losses, _ = assert_same_on_both(program)
    assert all(map(is_on_device, od.tree.leaves(params)))
    assert losses[-1] < losses[0]
