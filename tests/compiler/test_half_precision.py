"""Half precision in compiled functions: computed natively, and what eager calls give."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from support.compiled_rows import check
from support.half_programs import MANY_STEPS, is_native

HALF = np.float16
# Around where numbers end, lose digits, and are none.
NUMBERS = [0.0, -0.0, 1.0, -1.5, 0.1, 65504.0, -65504.0, 300.0, 6e-8, 6.1e-5, np.inf, -np.inf]
NUMBERS = np.array([*NUMBERS, np.nan, 2048.0, 2049.0, 0.33325], HALF)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(HALF)


ARITHMETIC = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: x * y,
    "quotient": lambda x, y: x / y,
    "by numbers": lambda x, y: 0.1 * x - 3.3,
    "root": lambda x, y: ops.sqrt(ops.abs(x)),
    "largest": lambda x, y: ops.maximum(x, y),
    "order": lambda x, y: ops.less(x, y),
    "several steps": lambda x, y: (x * 0.3 + y) * (x - 0.1) / 7.0,
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_each_step_of_arithmetic_is_rounded_as_numpy_rounds_it(name):
    fn = ARITHMETIC[name]
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(NUMBERS, NUMBERS))
    compiled = od.compile(fn)
    with np.errstate(all="ignore"):
        for _ in range(3):
            got = compiled(x, y)
        wanted = fn(x, y)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
    assert is_native(compiled, x, y)


@pytest.mark.parametrize("name", MANY_STEPS)
def test_what_is_made_of_many_steps_is_right_to_the_digits_that_there_are(name):
    fn = MANY_STEPS[name]
    compiled = od.compile(fn)
    for seed in range(3):
        x, w = normal(33, 40, seed=seed), normal(40, 7, seed=9)
        got = compiled(x, w)
        exact = fn(x.astype(np.float64), w.astype(np.float64))
        assert got.dtype == HALF
        largest = np.abs(exact).max()
        assert np.abs(got - exact).max() <= 4 * np.finfo(HALF).eps * max(largest, 1.0)
    assert is_native(compiled, x, w)


def test_functions_of_half_precision_are_those_of_eager_calls():
    calls = [(normal(17, 5, seed=k), normal(5, 3, seed=k + 5)) for k in range(3)]
    check(lambda x, w: (ops.cumsum(x, axis=1), x[::2] * 2, ops.transpose(x) + 1), calls)
    check(lambda x, w: od.grad(lambda w: ops.sum(ops.tanh(x @ w)))(w), calls)
    check(lambda x, w: (ops.astype(x, "float32") + 1e-5, ops.astype(w, "int32")), calls)


def test_training_in_half_precision_is_one_program():
    def training():
        w = Variable(normal(4, 3) * HALF(0.3), requires_grad=True)
        optimizer = od.optim.SGD([w], 0.125, momentum=0.5)

        def step(x, y):
            with GradientTape() as tape:
                loss = od.losses.mean_squared_error(x @ w, y)
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return w, step

    (w, eager), (v, step) = training(), training()
    step = od.compile(step)
    for k in range(8):
        batch = normal(16, 4, seed=k), normal(16, 3, seed=k + 50)
        eager(*batch)
        step(*batch)
    assert is_native(step, *batch)
    assert v.dtype == HALF
    np.testing.assert_allclose(v.numpy(), w.numpy(), atol=0.02)


def test_a_number_of_each_call_is_rounded_once():
    compiled = od.compile(lambda x, rate: x * rate)
    x = normal(7)
    for rate in (0.1, 0.3, 1.0 + 2.0**-11 + 2.0**-30, 1e-9, 3.3):
        np.testing.assert_array_equal(compiled(x, rate), x * rate)
    assert is_native(compiled, x, 0.5)


def test_parts_that_lie_apart_have_the_zeros_of_their_sum():
    def slopes(x, y):
        return od.vjp(lambda v: (v[:2] * 1.0, v[2:] * 1.0), x)[1]((y, y))

    check(slopes, [(normal(4, seed=k), np.array([-0.0, 1.0], HALF)) for k in range(3)])
