"""The shape rules that rows share: what they say of shapes and dtypes, and what they refuse."""

import numpy as np
import pytest

from odyssey.errors import DTypeError, ShapeError
from odyssey.ops import OPS
from odyssey.spec import Spec, spec_of
from odyssey.table import shape_rules as rules

X = Spec((2, 3, 4), np.dtype(np.float32))
SHARED = {"sum", "mean", "any", "all", "prod", "var", "std", "logsumexp", "cumsum", "cumprod"}
SHARED |= {"argsort", "softmax", "log_softmax", "positive", "add_at", "add_taken", "add_along_axis"}


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (-1, 1), ()])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "complex64"])
def test_a_reduction_has_the_spec_of_numpys(axis, keepdims, dtype):
    x = np.ones(X.shape, dtype)
    for fold in (np.sum, np.mean, np.any, np.prod):
        infer = rules.reduction_rule("it", rules.result_dtype_of(fold))
        assert infer(spec_of(x), axis, keepdims) == spec_of(fold(x, axis, keepdims=keepdims))


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_a_running_fold_has_the_spec_of_numpys(axis):
    for shape in ((2, 3), (4,), (), (0, 2)):
        x = np.ones(shape, np.int16)
        infer = rules.cumulative_rule("it", rules.result_dtype_of(np.add.reduce))
        assert infer(spec_of(x), axis) == spec_of(np.cumsum(x, axis))


def test_axes_are_sorted_counted_from_the_front_and_refused_by_name():
    assert rules.normalize_axes("it", (-1, 0), 3) == (0, 2)
    assert rules.normalize_axes("it", None, 2) == (0, 1)
    assert rules.reduced_shape("it", (2, 3, 4), (-1,), True) == (2, 3, 1)
    for axis, error, match in (
        (3, ShapeError, "^it: axis 3 does not fit an array of 3 axes"),
        ((0, 0), ShapeError, "^it: axis .* axes are distinct ints from -3 to 2"),
        ("x", DTypeError, "^it: axis is 'x'; pass an int or a tuple of ints"),
    ):
        for infer in (rules.reduction_rule("it"), rules.axis_rule("it", rules.floating_dtype)):
            with pytest.raises(error, match=match):
                infer(X, axis, False)


def test_a_number_may_be_folded_along_its_only_place_where_numpy_lets_it():
    number = Spec((), np.dtype(float))
    assert rules.reduction_rule("it")(number, 0, True) == number
    assert rules.reduction_rule("it")(number, -1, False) == number
    with pytest.raises(ShapeError, match="which has no axes"):
        rules.reduction_rule("it", lone=False)(number, 0, False)


def test_the_dtypes_of_functions_without_integer_results_are_numpys():
    for dtype in ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "complex64"):
        assert rules.floating_dtype(np.dtype(dtype)) == np.exp(np.ones(1, dtype)).dtype


def test_rows_that_are_instances_of_a_shared_rule_have_it():
    for name in SHARED & set(OPS):
        row = OPS[name]
        module = getattr(row.infer, "__wrapped__", row.infer).__module__
        assert module in ("odyssey.table.shape_rules", "odyssey.ops.reductions.variance"), name
    assert len(SHARED & set(OPS)) >= 15
