"""Every way of a row gives what the row does, forward and backward."""

import pytest

from support.by_plan import check_single_plans, pullback
from support.cases import EVERY, every_row
from support.chosen import BY_ROW, DERIVED, FLOATS, ONE, ONE_DERIVED, picked, some_rows
from support.compiled_rows import forward


def check_forward(name, dtype):
    fn, calls = forward(*EVERY[name], dtype)
    return check_single_plans(fn, calls[0], (name, dtype))


def check_pullback(name, dtype):
    fn, args = pullback(*EVERY[name], dtype)
    return check_single_plans(fn, args, (name, dtype))


@pytest.mark.share(12)
@every_row
def test_each_way_of_a_row_gives_its_result(row):
    check_forward(ONE[row.name], picked(ONE[row.name], FLOATS))


@pytest.mark.slow
@pytest.mark.share(4)
@some_rows
def test_each_way_of_a_row_and_its_rules_gives_its_gradients(row):
    check_pullback(ONE_DERIVED[row.name], picked(ONE_DERIVED[row.name], FLOATS))


@pytest.mark.soak
@every_row
def test_each_way_of_every_sample_gives_its_result(row):
    for name in BY_ROW[row.name]:
        for dtype in (*FLOATS, "float16", "complex64", "int32"):
            check_forward(name, dtype)


@pytest.mark.soak
@every_row
def test_each_way_of_every_sample_gives_its_gradients(row):
    for name in DERIVED[row.name]:
        for dtype in FLOATS:
            check_pullback(name, dtype)


@pytest.mark.parametrize(
    ("name", "least"), [("conv2d-0", 2), ("softmax-0", 3), ("cumsum-0", 2), ("sort-0", 1)]
)
def test_rows_have_the_ways_that_they_declare(name, least):
    assert check_forward(name, "float32") >= least
