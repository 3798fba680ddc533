"""NumPy's functions that have no gradient to lose work on a Variable's data; nests are joined."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError, TapeError

NUMBERS = np.array([[3.0, 0.0, -2.0], [1.0, 5.0, 0.0]])

CALLS = {
    "argsort": lambda x: np.argsort(x, axis=0),
    "argpartition": lambda x: np.argpartition(x, 1, axis=1),
    "argwhere": np.argwhere,
    "nonzero": np.nonzero,
    "where": lambda x: np.where(x > 1),
    "flatnonzero": np.flatnonzero,
    "count_nonzero": lambda x: np.count_nonzero(x, axis=1),
    "searchsorted": lambda x: np.searchsorted(np.array([0.0, 2.0]), x),
    "digitize": lambda x: np.digitize(x, np.array([0.0, 2.0])),
    "isclose": lambda x: np.isclose(x, x * 1.0),
    "isin": lambda x: np.isin(x, [3.0, 5.0]),
    "isreal": np.isreal,
    "iscomplex": np.iscomplex,
    "nonzero of a number": lambda x: np.count_nonzero(x[0], keepdims=True),
    "argsort, stable": lambda x: np.argsort(x, kind="stable"),
    "searchsorted, right": lambda x: np.searchsorted(x[1], 4.0, side="right"),
    "searchsorted, sorter": lambda x: np.searchsorted(x[0], [0.0], sorter=np.array([2, 1, 0])),
    "isposinf": np.isposinf,
    "signbit": np.signbit,
    "lexsort": lambda x: np.lexsort((x[0], x[1])),
    "nanargmax": lambda x: np.nanargmax(x, axis=0),
    "unravel_index": lambda x: np.unravel_index(np.argmax(x), x.shape),
    "ravel_multi_index": lambda x: np.ravel_multi_index(np.nonzero(x), x.shape),
    "triu_indices_from": np.triu_indices_from,
    "diag_indices_from": lambda x: np.diag_indices_from(x[:, :2]),
    "packbits": lambda x: np.packbits(x > 0),
}
FACTS = {
    "array2string": lambda x: np.array2string(x, precision=1, separator="; "),
    "array_str": np.array_str,
    "allclose": lambda x: np.allclose(x, x + 1e-12),
    "array_equal": lambda x: np.array_equal(x, x * 1.0),
    "allclose, not": lambda x: np.allclose(x, 1.0, atol=0.5),
    "array_equal, NaN": lambda x: np.array_equal(x, x, equal_nan=True),
    "isscalar": np.isscalar,
    "count_nonzero of all": lambda x: bool(np.count_nonzero(x) == 4),
    "iscomplexobj": np.iscomplexobj,
    "result_type": np.result_type,
    "shares_memory": lambda x: np.shares_memory(x, x),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
@pytest.mark.parametrize("kind", ["leaf", "constant", "recorded", "untracked"])
def test_a_function_with_whole_numbers_for_its_result_returns_constants(call, kind):
    w = Variable(NUMBERS, requires_grad=kind != "constant")
    with GradientTape() as tape:
        if kind == "untracked":
            tape.disable()
        x = w * 1.0 if kind in ("recorded", "untracked") else w
        before = len(tape)
        found = call(x)
    wanted = call(NUMBERS)
    assert type(found) is type(wanted) or type(found) is Variable
    pairs = [(found, wanted)] if type(found) is Variable else zip(found, wanted, strict=True)
    for got, expected in pairs:
        assert type(got) is Variable
        assert not got.requires_grad
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got.numpy(), expected)
    assert len(tape) - before <= 2  # what the call itself did to its argument


@pytest.mark.parametrize("call", FACTS.values(), ids=list(FACTS))
def test_a_fact_about_variables_is_pythons_or_numpys_own(call):
    with GradientTape():
        found = call(Variable(NUMBERS, requires_grad=True) * 1.0)
    assert type(found) is type(call(NUMBERS))
    assert found == call(NUMBERS)


@pytest.mark.parametrize("name", ["rint", "trunc", "fix"])
@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")
def test_what_rounds_has_numpys_value_and_a_gradient_of_zero(name):
    function = getattr(np, name)
    x = np.array([-1.5, 0.5, 2.0, np.inf])
    w = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        out = function(w)
    np.testing.assert_array_equal(out.numpy(), function(x))
    assert tape.gradient(out, w, np.ones(4)).tolist() == [0.0] * 4


def test_what_was_found_selects_with_a_gradient():
    w = Variable(NUMBERS, requires_grad=True)
    with GradientTape() as tape:
        loss = ops.sum(w[np.where(w > 1)] ** 2) + ops.sum(ops.take(w[0], np.argsort(w[0])))
    wanted = np.where(NUMBERS > 1, 2 * NUMBERS, 0.0)
    wanted[0] += 1.0
    np.testing.assert_array_equal(tape.gradient(loss, w), wanted)


def test_masked_arrays_are_refused_there_too():
    masked = np.ma.array(NUMBERS, mask=NUMBERS > 1)
    with pytest.raises(DTypeError, match="mask would be lost"):
        np.isclose(Variable(NUMBERS), masked)


def test_while_a_graph_is_traced_there_is_no_data_to_look_at():
    with pytest.raises(DTypeError, match=r"np\.flatnonzero is not in"):
        od.compile(lambda x: np.flatnonzero(x)).lower(NUMBERS)


# ------------------------------------------------------------------ nests of Variables


def test_a_nest_of_variables_becomes_one_value_with_a_gradient():
    w = Variable([1.0, 2.0, 3.0], requires_grad=True)
    with GradientTape() as tape:
        joined = ops.array([[w[0], w[1] * 2], [5.0, w[2]]])
        loss = ops.sum(joined * np.array([[1.0, 10.0], [100.0, 1000.0]]))
    np.testing.assert_array_equal(joined.numpy(), [[1.0, 4.0], [5.0, 3.0]])
    np.testing.assert_array_equal(tape.gradient(loss, w), [1.0, 20.0, 1000.0])


class Foreign:
    """An array of another library, which calls its dtype otherwise."""

    dtype = "theirs"

    def __array__(self, dtype=None, copy=None):
        return np.array([4.0, 5.0])


@pytest.mark.parametrize(
    "other", [Foreign(), memoryview(np.array([4.0, 5.0]))], ids=["own", "bytes"]
)
def test_arrays_of_other_libraries_stand_in_a_nest_as_numpys_do(other):
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape() as tape:
        joined = ops.array([w, other])
    np.testing.assert_array_equal(joined.numpy(), [[1.0, 2.0], [4.0, 5.0]])
    np.testing.assert_array_equal(tape.gradient(joined, w, np.eye(2)), [1.0, 0.0])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.complex64])
def test_python_numbers_in_a_nest_take_the_dtype_of_the_others(kind):
    w = Variable(np.ones(2, kind), requires_grad=True)
    with GradientTape() as tape:
        joined = ops.array([w[0], 2.0, w[1]])
    assert joined.dtype == kind
    assert tape.gradient(joined, w, np.ones(3)).dtype == kind


def test_a_nest_without_variables_is_an_array():
    np.testing.assert_array_equal(ops.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]])
    assert type(ops.array([1.0])) is np.ndarray
    assert ops.array([]).shape == (0,)
    for large in ([2**63, 2**64 - 1], [2**63, 1]):
        assert ops.array(large).dtype == np.array(large).dtype
    assert ops.array(2.0).shape == ()


def test_what_does_not_fit_in_a_nest_is_refused():
    w = Variable([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match="one shape"):
        ops.array([w, 1.0])
    with pytest.raises(DTypeError, match="array: an element"):
        ops.array([w[0], "a"])
    with pytest.raises(DTypeError, match="array: an element"):
        ops.array([w, None])


def test_np_array_of_recorded_values_names_the_op_that_joins_them():
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape(), pytest.raises(TapeError, match=r"od\.ops\.array"):
        np.array([w[0], w[1]])
