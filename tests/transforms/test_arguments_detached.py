"""Recorded Variables that come as arguments where nothing records are taken for their values."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable


@pytest.fixture
def recorded():
    x = Variable(3.0, requires_grad=True)
    with GradientTape():
        return x * 1.0


def test_recorded_variables_in_containers_and_named_arguments_are_constants(recorded):
    assert od.grad(lambda x, k: x * k)(2.0, recorded) == 3.0
    assert od.grad(lambda x, k: x * k["k"])(2.0, {"k": recorded}) == 3.0
    assert od.grad(lambda x, k: x * k["deep"][0])(2.0, {"deep": [recorded]}) == 3.0
    assert od.grad(lambda x, k: x * k)(2.0, k=recorded) == 3.0
    assert od.grad(lambda x, k: x * k["k"])(2.0, k={"k": recorded}) == 3.0


def test_arrays_numbers_constants_and_none_are_differentiated_side_by_side():
    given = {"a": np.array([1.0, 2.0]), "b": 3.0, "c": Variable(4.0), "d": None}
    found = od.grad(lambda p: (p["a"] * p["b"] * p["c"]).sum())(given)
    assert found["a"].tolist() == [12.0, 12.0]
    assert (found["b"], found["c"], found["d"]) == (12.0, 9.0, None)


def test_single_and_double_precision_keep_their_own_dtype_in_one_tree():
    given = [np.ones(2, np.float32), np.ones(2), np.ones(2, np.complex128)]
    found = od.grad(lambda p: p[0].sum() + p[1].sum() + p[2].real.sum())(given)
    assert [g.dtype.char for g in found] == ["f", "d", "D"]
