"""checkpoint: the same random numbers again, and what changed between the two runs is noticed."""

from functools import partial

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import MutationError, TapeError, TapeMismatchError


def leaf(value):
    return Variable(value, requires_grad=True)


# ------------------------------------------------------------------ random numbers


class Dropout:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, x):
        return x * (self.rng.random(x.shape) > 0.5)


def closed_over(x, rng=None):
    def fn(x):
        return x * rng.normal(size=x.shape)

    return fn


GLOBAL = np.random.default_rng(0)


def from_global(x):
    return x * GLOBAL.normal(size=x.shape)


def by_default(x, rng=np.random.default_rng(1)):  # noqa: B008
    return x * rng.normal(size=x.shape)


def with_rng(x, rng):
    return x * rng.normal(size=x.shape)


RNG = np.random.default_rng
SOURCES = {
    "closure": lambda: (closed_over(None, RNG(2)), ()),
    "closure of a closure": lambda: ((lambda f: lambda x: f(x))(closed_over(None, RNG(2))), ()),
    "global": lambda: (from_global, ()),
    "default": lambda: (by_default, ()),
    "argument": lambda: (with_rng, (RNG(3),)),
    "tree argument": lambda: (lambda x, t: with_rng(x, t["rng"][0]), ({"rng": [RNG(3)]},)),
    "partial": lambda: (partial(with_rng, rng=RNG(4)), ()),
    "object": lambda: (Dropout(5), ()),
    "method": lambda: (Dropout(5).__call__, ()),
    "list of objects": lambda: (
        (lambda ls: lambda x: ls[1](ls[0](x)))([Dropout(6), Dropout(7)]),
        (),
    ),
    "method of the generator": lambda: (
        (lambda n: lambda x: x * n(size=x.shape))(RNG(8).normal),
        (),
    ),
    "old generator": lambda: (closed_over(None, np.random.RandomState(9)), ()),
    "mersenne twister": lambda: (closed_over(None, np.random.Generator(np.random.MT19937(9))), ()),
    "module functions": lambda: (lambda x: x * np.random.standard_normal(x.shape), ()),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_random_numbers_are_the_same_again_and_the_generator_goes_on_from_the_first(source):
    fn, rest = source()
    with GradientTape() as tape:
        x = tape.watch(np.ones(50))
        y = od.checkpoint(fn)(x, *rest)
        again = od.checkpoint(fn)(x, *rest)
        total = y + again
    drawn = y.detach().numpy() + again.detach().numpy()
    assert not np.array_equal(y.detach().numpy(), again.detach().numpy())
    # The function is x times what was drawn, so its gradient at 1 is what it returned, bit for bit.
    np.testing.assert_array_equal(tape.gradient(total, x, np.ones(50)), drawn)
    with od.no_grad():
        third = fn(np.ones(50), *rest)
    assert not np.array_equal(third, y.detach().numpy())
    assert not np.array_equal(third, again.detach().numpy())


def test_random_numbers_are_the_same_to_second_order():
    rng = np.random.default_rng(10)
    fn = od.checkpoint(lambda x: (x * x * rng.normal(size=x.shape)).sum())
    h = np.diag(od.hessian(fn)(np.ones(20)))
    expected = 2 * np.random.default_rng(10).normal(size=20)
    np.testing.assert_allclose(h, expected, rtol=1e-15)


def test_a_random_source_that_is_not_found_is_noticed():
    import random

    source = random.Random(1)
    fn = od.checkpoint(lambda x: x * np.array([source.random() for _ in range(100)]))
    with GradientTape() as tape:
        x = tape.watch(np.ones(100))
        y = fn(x).sum()
    with pytest.raises(MutationError, match=r"checkpoint\(<lambda>\).*gave another result"):
        tape.gradient(y, x)
    assert not tape.consumed


# ------------------------------------------------------------------ what changed meanwhile


def test_an_array_that_is_closed_over_and_written_to_is_noticed():
    scale = np.linspace(1.0, 2.0, 500)
    with GradientTape() as tape:
        x = tape.watch(np.ones(500))
        y = od.checkpoint(lambda x: x * scale)(x).sum()
    scale[3] = 7.0
    with pytest.raises(MutationError, match="closes over was changed"):
        tape.gradient(y, x)
    scale[3] = np.linspace(1.0, 2.0, 500)[3]
    np.testing.assert_array_equal(tape.gradient(y, x), scale)


def test_arrays_that_are_arguments_are_kept_or_locked():
    small, large = np.full(10, 2.0), np.full(10_000, 2.0)
    with GradientTape() as tape:
        x = tape.watch(1.0)
        y = od.checkpoint(lambda x, a, b: x * a.sum() + x * b.sum())(x, small, large)
    small[...] = 0.0
    with pytest.raises(ValueError, match="read-only"):
        large[...] = 0.0
    assert float(tape.gradient(y, x)) == 20_020.0
    large[...] = 0.0


def test_a_leaf_that_was_assigned_is_noticed():
    w = leaf([1.0, 2.0])
    with GradientTape() as tape:
        y = od.checkpoint(lambda: w * w)().sum()
    w.assign([3.0, 4.0])
    with pytest.raises(MutationError):
        tape.gradient(y, w)


def test_a_variable_that_was_rebound_is_noticed():
    w = leaf([1.0, 2.0])
    with GradientTape() as tape:
        h = w * 1.0
        y = od.checkpoint(lambda: h * h)().sum()
        h[0] = 1.0  # another value on the tape, that happens to be equal
    with pytest.raises(MutationError, match="used other Variables"):
        tape.gradient(y, w)


def test_what_escapes_from_inside_is_refused_later():
    kept = []

    def fn(x):
        kept.append(x * 2.0)
        return kept[-1] * x

    with GradientTape() as tape:
        x = tape.watch(3.0)
        y = od.checkpoint(fn)(x)
        with pytest.raises(TapeMismatchError):
            y * kept[0]
    assert float(tape.gradient(y, x)) == 12.0


def test_what_is_recorded_by_hand_cannot_be_repeated():
    def fn(x, tape):
        y = tape.constant(3.0)
        tape.record("add", [x, x], y)
        return y

    with GradientTape() as tape, pytest.raises(TapeError, match="records by hand"):
        od.checkpoint(fn)(tape.watch(1.5), tape)


def test_an_error_in_the_function_leaves_the_tape_as_it_was():
    def fail(x):
        y = x * x
        raise ValueError(f"no {y.shape}")

    with GradientTape() as tape:
        x = tape.watch(3.0)
        before = len(tape)
        with pytest.raises(ValueError, match=r"no \(\)"):
            od.checkpoint(fail)(x)
        assert len(tape) == before
        y = od.checkpoint(lambda x: x * x)(x)
    assert float(tape.gradient(y, x)) == 6.0


def test_a_leaf_that_is_made_at_the_first_call_is_trained():
    made = []

    def lazy(x):
        if not made:
            made.append(leaf(2.0))
        return x * made[0]

    with GradientTape() as tape:
        x = tape.watch(3.0)
        y = od.checkpoint(lazy)(x)
    gradients = tape.backward(y)
    assert float(gradients[x]) == 2.0
    assert float(made[0].grad) == 3.0


def test_a_leaf_that_the_function_only_compares_must_stay_as_it_was():
    w, x = Variable(np.array([1.0]), requires_grad=True), Variable(np.array([0.0]), True)
    piece = od.checkpoint(lambda x: ops.where(w > 0, x, 2 * x))
    with GradientTape(persistent=True) as tape:
        y = piece(x)
    assert tape.gradient(y, x, np.ones(1)) == [1.0]
    w.assign([-1.0])
    with pytest.raises(MutationError, match="would read other values"):
        tape.gradient(y, x, np.ones(1))


def test_a_leaf_whose_use_leads_nowhere_may_be_assigned():
    b, w = leaf(3.0), leaf(2.0)

    def fn(x):
        b * 2.0
        return x * x

    with GradientTape() as tape:
        y = od.checkpoint(fn)(w) * 1.0
    b.assign(7.0)
    assert tape.gradient(y, w) == 4.0
