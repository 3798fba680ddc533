"""Python numbers beside arrays of half precision take their dtype, as in NumPy."""

import ml_dtypes
import numpy as np
import pytest

from odyssey import Variable, ops
from odyssey.losses import cross_entropy

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
X = np.random.default_rng(0).normal(size=300)

FLOAT16_CASES = {
    "product": lambda np_or_ops, x: np_or_ops.multiply(x, 0.1),
    "sum": lambda np_or_ops, x: np_or_ops.add(0.3, x),
    "quotient": lambda np_or_ops, x: np_or_ops.divide(x, 3),
    "integer": lambda np_or_ops, x: np_or_ops.add(x, 2049),
    "power": lambda np_or_ops, x: np_or_ops.power(np_or_ops.abs(x), 0.3),
    "largest": lambda np_or_ops, x: np_or_ops.maximum(x, 0.1),
    "equal": lambda np_or_ops, x: np_or_ops.equal(x, 0.1),
    "order": lambda np_or_ops, x: np_or_ops.less(x, 0.1),
}


@pytest.mark.parametrize("name", FLOAT16_CASES)
@pytest.mark.parametrize("size", [300, 40_000])
def test_a_number_beside_float16_gives_the_bits_that_numpy_gives(name, size):
    case = FLOAT16_CASES[name]
    x = np.resize(X, size).astype(np.float16)
    x[7] = 0.1
    got = case(ops, x)
    np.testing.assert_array_equal(got, case(np, x), strict=True)


BFLOAT16_CASES = {
    "product": lambda x, n: ops.multiply(x, n),
    "sum": lambda x, n: ops.add(n, x),
    "quotient": lambda x, n: ops.divide(x, n),
    "equal": lambda x, n: ops.equal(x, n),
    "order": lambda x, n: ops.less_equal(x, n),
}


@pytest.mark.parametrize("name", BFLOAT16_CASES)
@pytest.mark.parametrize("number", [0.1, 257, 3.3])
@pytest.mark.parametrize("size", [300, 40_000])
def test_a_number_beside_bfloat16_is_that_number_in_bfloat16(name, number, size):
    case = BFLOAT16_CASES[name]
    x = np.resize(X, size).astype(BFLOAT16)
    x[7] = number
    got = case(x, number)
    wanted = case(x, np.full(size, number).astype(BFLOAT16))
    assert got.dtype == wanted.dtype
    assert got.tobytes() == wanted.tobytes()


def test_a_variable_of_float16_times_a_number_is_numpys_product():
    x = X.astype(np.float16)
    got = (Variable(x) * 0.1).numpy()
    np.testing.assert_array_equal(got, x * 0.1, strict=True)


def test_a_number_beside_bfloat16_and_float32_keeps_its_digits():
    x, y = X.astype(BFLOAT16), X.astype(np.float32)
    np.testing.assert_array_equal(ops.clip(y, 0.1, 0.2), np.clip(y, 0.1, 0.2))
    got = ops.where(ops.greater(x, y), y, 0.1)
    np.testing.assert_array_equal(got, np.where(x.astype(np.float32) > y, y, np.float32(0.1)))


def test_integer_operands_that_count_stay_as_they_are():
    logits = np.zeros(300, BFLOAT16)
    logits[257] = 4.0
    ids = np.array([257])
    taken = ops.take(logits, 257)
    assert float(taken) == 4.0
    loss = cross_entropy(logits[None], ids)
    exact = np.log(np.exp(4.0) + 299) - 4.0
    assert abs(float(loss) - exact) <= 2.0**-8 * exact
