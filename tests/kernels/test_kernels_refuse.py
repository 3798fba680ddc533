"""Calls whose shapes do not fit one another: kernels leave them to NumPy's way, which refuses them.

Compiled loops look for no bounds, so what they trust is asked before.
"""

import importlib.util

import numpy as np
import pytest

from odyssey.errors import OdysseyError
from odyssey.ops import OPS, use_kernels
from odyssey.spec import Spec

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("numba"), reason="numba, which compiles kernels, is missing"
)
ROWS = {n: row for n, row in OPS.items() if any(k.device == "cpu" for k in row.kernels)}


def spoiled(rng, operand):
    """A shape, or an array, with an axis more, longer, shorter or empty; often as it was."""
    if isinstance(operand, np.ndarray):
        return operand[:-1] if operand.ndim and rng.random() < 0.2 else operand
    if not isinstance(operand, tuple):
        return operand
    shape = [int(rng.choice([n, n, n, n, n, n, n + 1, 2 * n, 1, 0])) for n in operand]
    return rng.normal(size=[2, *shape] if rng.random() < 0.1 else shape)


def calls(row, count):
    rng = np.random.default_rng(sum(map(ord, row.name)))
    for sample in row.samples:
        for _ in range(count):
            operands = [spoiled(rng, operand) for operand in sample.operands]
            options = dict(sample.options)
            if "spec" in options:
                shape = spoiled(rng, options["spec"].shape).shape
                options["spec"] = Spec(shape, options["spec"].dtype)
            yield operands, options


def outcome(row, device, operands, options):
    try:
        with use_kernels(device), np.errstate(all="ignore"):
            return np.asarray(row.call(*operands, **options))
    except OdysseyError as error:
        return type(error)


def check(row, count):
    for operands, options in calls(row, count):
        found = [outcome(row, device, operands, options) for device in ("cpu", "numpy")]
        refused = [isinstance(way, type) for way in found]
        assert refused[0] == refused[1], (operands, options)
        if not refused[0]:
            assert found[0].shape == found[1].shape
            np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ROWS)
def test_a_call_is_refused_on_either_way_or_means_the_same(name):
    check(ROWS[name], 6)


@pytest.mark.soak
@pytest.mark.parametrize("name", ROWS)
def test_many_calls_are_refused_on_either_way_or_mean_the_same(name):
    check(ROWS[name], 60)
