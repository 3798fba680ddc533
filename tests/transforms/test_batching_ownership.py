"""Results of vmap own their memory: nothing else changes with them."""

import numpy as np
import pytest

import odyssey as od
from odyssey.devices.ownership import is_sole_view

X = np.arange(8000.0).reshape(8, 1000)
VIEW = np.arange(8000.0).reshape(16, 500).reshape(8, 1000)

FUNCTIONS = {
    "itself": lambda v: v,
    "reshaped": lambda v: v.reshape(10, 100),
    "reversed": lambda v: v[::-1],
    "computed": lambda v: (v * 2.0).reshape(10, 100),
    "two views of one array": lambda v: (lambda w: (w, w.reshape(10, 100)))(v * 2.0),
}


@pytest.mark.parametrize("array", [X, X.T.copy().T, VIEW], ids=["owner", "transposed", "view"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_shares_memory_with_no_argument_and_no_other_result(name, array):
    results = od.vmap(FUNCTIONS[name])(array)
    results = results if isinstance(results, tuple) else (results,)
    for k, result in enumerate(results):
        assert result.flags.writeable
        assert not any(np.may_share_memory(result, other) for other in (array, *results[:k]))


@pytest.mark.parametrize("axis", [0, None])
def test_a_captured_array_is_not_returned_itself(axis):
    assert not np.may_share_memory(od.vmap(lambda v: VIEW, out_axes=axis)(X[:1]), VIEW)


def test_a_sole_view_is_of_all_memory_of_an_array_that_nothing_else_refers_to():
    base = np.zeros((10, 100))
    shared = base.reshape(-1)
    flat, part = np.zeros((10, 100)).reshape(-1), np.zeros((10, 100))[1:]
    repeated = np.broadcast_to(np.zeros(1), (1000,))
    found = [is_sole_view(x) for x in (flat, shared, base, part, repeated)]
    assert found == [True, False, False, False, False]
