"""The extrema of no elements are the number that they begin with, as in NumPy."""

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable
from odyssey.errors import DTypeError, ShapeError

SHAPES = {
    (0,): [None, 0],
    (0, 2): [None, 0, 1, (0, 1)],
    (2, 0, 3): [None, 1, (0, 1), (0, 2)],
    (0, 0): [None, 1, (0, 1)],
}
FOLDS = [np.max, np.min]


def where_of(shape):
    return {"all": {}, "none": {"where": np.zeros(shape, bool)}}


@pytest.mark.parametrize("initial", [3, -0.0, -np.inf, np.nan, True], ids=str)
@pytest.mark.parametrize("dtype", ["f8", "f2", "i4", "?"])
@pytest.mark.parametrize("fold", FOLDS, ids=["max", "min"])
def test_extrema_of_nothing_are_their_initial_number(fold, dtype, initial):
    if np.dtype(dtype).kind not in "f" and not isinstance(initial, int):
        return  # which NumPy refuses
    for shape, axes in SHAPES.items():
        x = np.zeros(shape, dtype)
        for axis in axes:
            for where in where_of(shape).values():
                for keepdims in (False, True):
                    options = {"axis": axis, "keepdims": keepdims, "initial": initial, **where}
                    wanted, got = fold(x, **options), fold(Variable(x), **options).data
                    np.testing.assert_array_equal(got, wanted, strict=True)
                    if got.dtype.kind == "f":
                        np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


@pytest.mark.parametrize("fold", FOLDS, ids=["max", "min"])
def test_the_initial_number_of_nothing_has_the_whole_gradient(fold):
    def loss(x, begin):
        return (fold(x, axis=0, initial=begin) * np.array([2.0, 3.0])).sum()

    compiled = od.compile(od.value_and_grad(loss, argnums=(0, 1)))
    for k in range(3):
        begin = np.array(1.5 + k)
        for value, (of_x, of_begin) in (
            od.value_and_grad(loss, argnums=(0, 1))(np.zeros((0, 2)), begin),
            compiled(np.zeros((0, 2)), begin),
        ):
            assert value == 5.0 * begin
            assert of_x.shape == (0, 2)
            assert of_begin == 5.0


@pytest.mark.parametrize("fold", FOLDS, ids=["max", "min"])
def test_nothing_to_begin_with_and_complex_numbers_are_refused_as_ever(fold):
    with pytest.raises(ShapeError, match="no elements"):
        fold(Variable(np.zeros(0)))
    with pytest.raises(DTypeError, match="no meaning for complex"):
        fold(Variable(np.zeros(0, complex)), initial=1)
