"""Ops take the options that NumPy's functions of their names have besides, by position too."""

from types import FunctionType

import numpy as np
import pytest
from test_numpy_calls import CALLS, MASK, OTHERS, X

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError

Y = np.random.default_rng(1).normal(size=X.shape)

# Ufuncs take no options as ops; functions of np.linalg have other axes by default; the others are
# not the ops of their names.
APART = ("ufunc", "linalg", "nothing", "method", "divmod", "positive", "around", "vstack", "einsum")
SPELLED = {name: call for name, call in (CALLS | OTHERS).items() if not name.startswith(APART)}
SMOOTH = {name: call for name, call in SPELLED.items() if not name.startswith(("any", "all"))}
every_call = pytest.mark.parametrize("call", SPELLED.values(), ids=list(SPELLED))


class Ops:
    """NumPy, but for what ops there are."""

    def __getattr__(self, name):
        theirs = getattr(np, name)
        ours = hasattr(ops, name) and not isinstance(theirs, type)
        return getattr(ops, name) if ours else theirs


def by_ops(call, *arrays):
    """A call written for NumPy, of ops."""
    return FunctionType(call.__code__, call.__globals__ | {"np": Ops()})(*arrays)


def arrays_of(call):
    return (X, Y)[: call.__code__.co_argcount]


@every_call
def test_an_op_gives_what_numpys_function_gives_of_arrays_and_variables(call):
    arrays = arrays_of(call)
    wanted = call(*arrays)
    for made in (arrays, [Variable(x) for x in arrays]):
        found = by_ops(call, *made)
        assert found.dtype == wanted.dtype
        # Single precision, where it is asked for, is summed in another order.
        single = wanted.dtype == np.float32
        rtol = 4 * np.finfo(np.float32).eps if single else 1e-12
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=rtol)


@pytest.mark.parametrize("call", SMOOTH.values(), ids=list(SMOOTH))
def test_its_gradient_is_that_of_numpys_function_compiled_too(call):
    def total(way):
        def cost(*arrays):
            found = way(*arrays)
            return ops.sum(found * np.cos(np.arange(found.size)).reshape(found.shape))

        return cost

    numbers = tuple(range(len(arrays_of(call))))
    theirs = od.grad(total(call), numbers)
    ours = od.grad(total(lambda *arrays: by_ops(call, *arrays)), numbers)
    wanted = theirs(*arrays_of(call))
    compiled = od.compile(ours)
    for found in (ours(*arrays_of(call)), *[compiled(*arrays_of(call)) for _ in range(3)]):
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_what_stumbles_over_an_option_of_numpy_says_so():
    with pytest.raises(DTypeError, match=r"^sum: where= is an ndarray of float64; pass booleans"):
        ops.sum(X, where=X)
    with pytest.raises(ShapeError, match=r"^sum: axis 5 does not fit an array of 2 axes"):
        ops.sum(X, 5, np.float32)
    with pytest.raises(DTypeError, match=r"^max: where= needs initial= as well"):
        ops.max(X, where=MASK)
    with pytest.raises(DTypeError, match=r"^mean: out= is refused"):
        ops.mean(X, out=np.zeros(()))


@pytest.mark.parametrize(
    ("call", "words"),
    {
        "no such option": (lambda: ops.sum(X, dims=0), "'dims'"),
        "one that is not offered": (lambda: ops.quantile(X, 0.5, weights=X), "'weights'"),
        "of a composite": (lambda: ops.unique(X, sorted=False), "'sorted'"),
        "too many": (lambda: ops.mean(X, 0, None, None, True, True, 1), "too many"),
        "none that must come": (lambda: ops.take(X), "indices"),
        "of an op that NumPy lacks": (lambda: ops.relu6(X, out=None), "'out'"),
        "a tape beside": (lambda: ops.sum(X, where=MASK, tape=GradientTape()), "'where'"),
        "out of what is joined": (lambda: ops.concatenate([X, Y], 0, 1), "too many"),
        "dtype of what is joined": (lambda: ops.concatenate([X, Y], dtype=int), "'dtype'"),
    }.values(),
    ids=lambda value: "",
)
def test_other_arguments_are_refused_with_the_signature_of_the_op(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_an_option_of_numpy_that_says_nothing_leaves_the_tape_that_was_given():
    with GradientTape() as tape:
        pass
    tape.enable()
    v = Variable(X, requires_grad=True)
    y = ops.take(v, [0], 0, None, "clip", tape=tape)
    np.testing.assert_array_equal(tape.gradient(y, v, np.ones_like(y.data))[0], np.ones(4))
