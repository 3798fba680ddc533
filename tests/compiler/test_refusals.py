"""What no graph can hold is refused before a compiled function has done anything."""

import copy
import math
import pickle
import random

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import TapeError
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store

X = np.array([3.0, 4.0])


def leaf(value=(1.0, 2.0), name="w"):
    return Variable(np.array(value), requires_grad=True, name=name)


def taken(read):
    """A function that reads a value of its own results, of a captured leaf, and of an argument."""
    w, c = leaf([2.0]), Variable([2.0], name="c")
    return {
        "captured": lambda x: x * (read(w), 1.0)[1],
        "constant": lambda x: x * (read(c), 1.0)[1],
        "result": lambda x: x * (read(w * 2.0), 1.0)[1],
        "argument": lambda x: x * (read(x), 1.0)[1],
        "Variable": lambda x: x * (read(Variable(w)), 1.0)[1],
    }


READS = {
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "item": lambda v: v.item(),
    "format": lambda v: f"{v:}",
    "format with digits": lambda v: f"{v}" if isinstance(v, str) else format(v, ".3f"),
    "percent": lambda v: "%f" % v,  # noqa: UP031
    "math": lambda v: math.exp(v),
    "array": np.asarray,
    "element": lambda v: np.zeros(1).__setitem__(0, v[0]),
    "fill": lambda v: np.zeros(1).fill(v),
    "numpy": lambda v: float(v.numpy()[0] if isinstance(v, Variable) else v[0]),
    "data": lambda v: (v.data if isinstance(v, Variable) else v).tolist(),
}


BY_NUMPY = {
    "take": lambda i: np.take(X, i),
    "full": lambda i: np.full(2, i),
    "linspace": lambda i: np.linspace(0, 1, i),
    "r_": lambda i: np.r_[X, i],
    "vectorize": lambda i: np.vectorize(abs)(i),
}


@pytest.mark.parametrize("whose", ["argument", "Variable"])
@pytest.mark.parametrize("ask", BY_NUMPY.values(), ids=BY_NUMPY)
def test_where_numpys_python_asks_for_a_value_the_error_has_the_users_line(ask, whose):
    given = np.array(1) if whose == "argument" else Variable(np.array(1))
    with pytest.raises(TapeError, match=r"ops\.take\(array, .*\(.*test_refusals\.py:\d+\)$"):
        od.compile(ask)(given)


@pytest.mark.parametrize("whose", ["captured", "constant", "result", "argument"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_question_for_a_value_is_refused_with_the_line_that_asks(read, whose):
    fn = taken(read)[whose]
    compiled = od.compile(fn)
    for _ in range(2):
        with pytest.raises(TapeError, match=r"traced.*test_refusals\.py:\d+"):
            compiled(np.ones(1))


@pytest.mark.parametrize(
    "ask",
    [
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda w: w.detach_into(GradientTape()),
        lambda w: w.__dlpack__(),
        lambda w: setattr(w, "requires_grad", False),
    ],
    ids=["copy", "deepcopy", "pickle", "detach_into", "dlpack", "freeze"],
)
def test_a_captured_leaf_is_not_copied_or_frozen_in_a_graph(ask):
    w = leaf()
    with pytest.raises(TapeError, match="traced"):
        od.compile(lambda x: (ask(w), x)[1])(X)
    assert w.requires_grad


@pytest.mark.parametrize("whose", ["argument", "gradient"])
def test_an_array_of_the_graph_is_not_written_to_in_place(whose):
    w = leaf()
    w.grad = [1.0, 1.0]

    def clear(x):
        (x if whose == "argument" else w.grad)[...] = 0.0
        return x

    x = np.ones(2)
    with pytest.raises(TapeError, match=r"not written to in place.*ops\.setitem"):
        od.compile(clear)(x)
    assert x.tolist() == w.grad.tolist() == [1.0, 1.0]


def test_an_index_from_a_captured_variable_is_refused():
    k = Variable(np.array(1), name="k")
    with pytest.raises(TapeError, match="traced"):
        od.compile(lambda x: [10, 20][k] * x)(X)


def test_a_refusal_that_the_function_caught_is_a_refusal():
    w = leaf()

    def quiet(x):
        try:
            return x * float(w[0])
        except TapeError:
            return x

    with pytest.raises(TapeError, match="traced"):
        od.compile(quiet)(X)


def test_what_the_function_made_of_constants_alone_may_be_read():
    def offset(x):
        half = Variable(np.array(0.5))
        return x + float(half * 3.0)

    assert od.compile(offset)(X).tolist() == [4.5, 5.5]


def test_a_refused_call_has_done_nothing():
    w = leaf()
    w.grad = [1.0, 1.0]
    optimizer = od.optim.SGD([w], 0.1, momentum=0.9)
    before = w.numpy().copy(), w._info.version

    @od.compile
    def step(x):
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    with pytest.raises(TapeError, match="traced"):
        step(X)
    assert w.numpy().tolist() == before[0].tolist()
    assert w._info.version == before[1]
    assert w.grad.tolist() == [1.0, 1.0]
    assert optimizer.state_dict()["state"] == [{}]
    assert store() is MEMORY
    assert scopes() == (None,)


rng_of_module = np.random.default_rng(0)


class Sampler:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __call__(self, x):
        return x + self.rng.normal(size=2)


def drawn(x, rng=np.random.default_rng(0)):  # noqa: B008
    return x + rng.normal(size=2)


DRAWS = {
    "closure": lambda: (lambda rng: lambda x: x + rng.normal(size=2))(np.random.default_rng(0)),
    "global": lambda: lambda x: x + rng_of_module.normal(size=2),
    "default": lambda: drawn,
    "attribute": Sampler,
    "bound method": lambda: (lambda draw: lambda x: x + draw(size=2))(
        np.random.default_rng(0).normal
    ),
    "numpy's own": lambda: lambda x: x + np.random.normal(size=2),
    "RandomState": lambda: (lambda r: lambda x: x * r.rand())(np.random.RandomState(0)),
    "standard": lambda: lambda x: x + random.random(),
    "standard's function": lambda: (lambda gauss: lambda x: x + gauss(0, 1))(random.gauss),
    "Random": lambda: (lambda r: lambda x: x + r.random())(random.Random(0)),
}


@pytest.mark.parametrize("make", DRAWS.values(), ids=DRAWS)
def test_a_random_draw_is_refused_and_not_made(make):
    fn = make()
    compiled = od.compile(fn)
    np.random.seed(0)
    random.seed(0)
    states = np.random.get_state()[1].copy(), random.getstate()
    twin = copy.deepcopy(fn) if isinstance(fn, Sampler) else None
    for _ in range(2):
        with pytest.raises(TapeError, match="draws random numbers"):
            compiled(X)
    assert np.random.get_state()[1].tolist() == states[0].tolist()
    assert random.getstate() == states[1]
    if twin is not None:
        assert fn(X).tolist() == twin(X).tolist()


def test_a_generator_that_is_an_argument_is_found():
    with pytest.raises(TapeError, match="draws random numbers from a Generator"):
        od.compile(lambda x, rng: x + rng.normal(size=2))(X, np.random.default_rng(0))


def test_numbers_drawn_from_a_seed_inside_are_the_same_at_each_call():
    noisy = od.compile(lambda x: x + np.random.default_rng(0).normal(size=2))
    assert noisy(X).tolist() == noisy(X).tolist()
