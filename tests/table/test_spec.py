"""Specs are compared by identity on the hot paths, so they hold NumPy's own dtype objects."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable
from odyssey.devices.arrays import native_dtype, to_native_order
from odyssey.spec import Spec, intern, spec_of
from odyssey.tape import sweep


@pytest.mark.parametrize("letter", "?bhilqBHILQefdgFDG")
@pytest.mark.parametrize("order", "<>=")
def test_a_spec_and_what_is_brought_to_native_order_have_numpys_own_dtype(letter, order):
    asked = np.dtype(letter).newbyteorder(order)
    own = np.dtype(letter)
    if own.kind in "fc":  # what gradients have; two kinds of integers may be equal
        assert intern((3, 1, 2), asked).dtype is intern((3, 1, 2), own).dtype
        assert spec_of(np.zeros((7, 1), asked)).dtype is np.zeros(0, intern((), asked).dtype).dtype
    assert native_dtype(asked) == own
    assert native_dtype(asked).isnative
    assert to_native_order(np.zeros(2, asked)).dtype == own


def test_a_sweep_fits_only_gradients_of_another_shape_or_dtype(monkeypatch):
    fitted = []

    def fit(g: np.ndarray, spec: Spec) -> np.ndarray:
        fitted.append((g.shape, g.dtype, spec))
        return true_fit(g, spec)

    true_fit = sweep.unbroadcast
    monkeypatch.setattr(sweep, "unbroadcast", fit)
    a = Variable(np.ones((3, 4), np.float32), requires_grad=True)
    b = Variable(np.ones((4, 2), np.float32), requires_grad=True)
    bias = Variable(np.ones(2, np.float32), requires_grad=True)
    with GradientTape() as tape:
        loss = ((a @ b + bias) * np.ones((3, 2), np.float32)).sum()
    tape.backward(loss)
    assert fitted == [((3, 2), np.dtype(np.float32), bias._spec)]
