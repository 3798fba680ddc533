"""NumPy's functions take Variables in NumPy's own signatures, and mean the same."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError

X = np.random.default_rng(0).normal(size=(3, 4)) + 2.0
MASK = np.array([True, False, True, True])

CALLS = {
    "sum by position": lambda x: np.sum(x, 0, None, None, True),
    "sum of a=": lambda x: np.sum(a=x, axis=1),
    "sum dtype": lambda x: np.sum(x, axis=1, dtype=np.float32),
    "sum where": lambda x: np.sum(x, 1, where=MASK),
    "sum initial": lambda x: np.sum(x, 1, initial=5.0, where=MASK),
    "prod where initial": lambda x: np.prod(x, 0, initial=2.0, where=MASK),
    "mean where": lambda x: np.mean(x, 1, where=MASK),
    "mean where all": lambda x: np.mean(x, where=MASK, keepdims=True),
    "mean dtype": lambda x: np.mean(x, dtype=np.float32),
    "max initial": lambda x: np.max(x, 1, initial=2.5),
    "max where": lambda x: np.max(x, axis=1, initial=0.0, where=MASK),
    "min initial": lambda x: np.min(x, 1, None, False, 1.5),
    "var by position": lambda x: np.var(x, 1, None, None, 1, True),
    "std ddof": lambda x: np.std(x, axis=0, ddof=1),
    "cumsum dtype": lambda x: np.cumsum(x, 1, np.float32),
    "any where": lambda x: np.any(x > 2.0, 1, where=MASK),
    "all by position": lambda x: np.all(x > 0.0, 1, None, True),
    "nothing said": lambda x: np.sum(x, axis=None, dtype=None, out=None, where=True),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_fold_takes_numpys_arguments_and_gives_numpys_value(call):
    wanted = np.asarray(call(X))
    got = call(Variable(X, requires_grad=True)).numpy()
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    rtol = 1e-6 if wanted.dtype == np.float32 else 1e-15
    np.testing.assert_allclose(got, wanted, rtol=rtol)


def test_what_where_leaves_out_has_no_gradient():
    w = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        y = np.mean(w, 1, where=MASK).sum()
    np.testing.assert_allclose(tape.gradient(y, w), np.broadcast_to(MASK / 3.0, X.shape))


def test_an_initial_value_that_wins_takes_the_gradient():
    w = Variable([1.0, 4.0], requires_grad=True)
    with GradientTape() as tape:
        y = np.max(w, initial=9.0)
    assert tape.gradient(y, w).tolist() == [0.0, 0.0]


REFUSED = {
    "out": (lambda x: np.sum(x, out=np.empty(())), r"np\.sum: out= is refused"),
    "max where alone": (lambda x: np.max(x, where=MASK, initial=None), "where= needs initial="),
    "var where": (lambda x: np.var(x, where=MASK), "where= is not offered"),
    "unknown": (lambda x: np.kron(x, x), r"np\.kron is not in"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_not_offered_is_refused_by_name(call, message):
    with pytest.raises(DTypeError, match=message):
        call(Variable(X, requires_grad=True))


DTYPES = ["float32", "float64", "int32", "int64", "bool", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_likes_are_constants_of_the_operands_dtype(dtype):
    x = np.ones((2, 3), dtype)
    v = Variable(x, requires_grad=x.dtype.kind in "fc")
    with GradientTape() as tape:
        for like in (np.zeros_like, np.ones_like):
            made = like(v)
            assert (made.dtype, made.requires_grad) == (x.dtype, False)
            np.testing.assert_array_equal(made.numpy(), like(x))
    assert len(tape) == 0


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_integers_and_booleans_can_require_no_gradient(dtype):
    x = np.ones(2, dtype)
    with pytest.raises(DTypeError, match=dtype):
        Variable(x, requires_grad=True)
    with GradientTape() as tape, pytest.raises(DTypeError, match=dtype):
        tape.watch(x)
