"""Draws of a generator: distributions by formulas and SciPy, states, programs, refusals."""

import math

import numpy as np
import pytest

import odyssey as od
from odyssey import Generator, GradientTape, Variable, ops
from odyssey.errors import DTypeError, NotDifferentiableError, SettingError

N = 40_000


def bits_of(key, count):
    raw = np.random.Philox(key=key, counter=2**256 - 1).random_raw(count)
    return [int(word) for word in raw]


# ------------------------------------------------------------------ integers


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 10, np.int64),
        (-3, 4, np.int8),
        (0, 256, np.uint8),
        (-(2**63), 2**63, np.int64),
        (0, 2**64, np.uint64),
        (-(2**62), 2**62 + 12345, np.int64),
        (2**63, 2**64, np.uint64),
        (5, 6, np.int32),
    ],
    ids=str,
)
def test_integers_are_high_words_of_products_with_the_width(low, high, dtype):
    wanted = [low + (word * (high - low) >> 64) for word in bits_of(9, 50)]
    got = ops.random_integers(50, low=low, high=high, dtype=dtype, rng=Generator(9))
    assert got.dtype == dtype
    assert got.tolist() == wanted


def test_integers_are_equally_frequent():
    counts = np.bincount(ops.random_integers(N, high=6, rng=Generator(1)), minlength=6)
    # Of a chi-squared variable of 5 degrees the 0.9999 quantile is 25.7.
    assert ((counts - N / 6) ** 2 / (N / 6)).sum() < 25.7


# ------------------------------------------------------------------ distributions


def kolmogorov(x, cdf):
    """The statistic of Kolmogorov and Smirnov times sqrt(n): above 2.2 once in 10,000 cases."""
    x = np.sort(x)
    f = cdf(x)
    k = np.arange(1, x.size + 1) / x.size
    return max((k - f).max(), (f - k + 1 / x.size).max()) * math.sqrt(x.size)


@pytest.mark.parametrize("a", [0.05, 0.5, 0.99, 1.0, 1.5, 10.0, 1e4])
def test_gamma_numbers_have_their_distribution(a):
    stats = pytest.importorskip("scipy.stats")
    x = ops.random_gamma(N, concentration=a, scale=2.0, rng=Generator(3))
    assert kolmogorov(x, stats.gamma(a, scale=2.0).cdf) < 2.2


def test_gamma_numbers_of_neighbours_and_of_draws_in_succession_do_not_correlate():
    rng = Generator(5)
    x, y = (ops.random_gamma(N, concentration=3.0, rng=rng) for _ in range(2))
    for a, b in ((x, y), (x[1:], x[:-1]), (x, ops.random_uniform(N, rng=rng))):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(N)


def test_a_gamma_number_depends_on_its_place_and_not_on_the_size_of_the_draw():
    whole = ops.random_gamma(16, concentration=1.2, rng=Generator(1))
    rng = Generator(1)
    parts = [ops.random_gamma(n, concentration=1.2, rng=rng) for n in (3, 8, 5)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_gamma_numbers_at_the_ends_of_the_domain():
    a = np.array([0.0, np.inf, -1.0, np.nan, 1e-300, 1e300])
    got = ops.random_gamma(6, concentration=a, rng=Generator(1))
    np.testing.assert_array_equal(got[:4], [0.0, np.inf, np.nan, np.nan])
    assert got[4] == 0.0  # below the smallest number
    assert got[5] == pytest.approx(1e300, rel=1e-12)


def test_exponential_numbers_are_logarithms_of_uniform_ones():
    u = ops.random_uniform(N, rng=Generator(2))
    got = ops.random_exponential(N, scale=3.0, rng=Generator(2))
    np.testing.assert_allclose(got, -3.0 * np.log1p(-u), rtol=1e-14)
    assert kolmogorov(got, lambda x: -np.expm1(-x / 3.0)) < 2.2


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0, np.array([0.1, 0.9])], ids=str)
def test_booleans_are_true_where_a_uniform_number_is_below(p):
    u = ops.random_uniform((N // 2, 2), rng=Generator(2))
    got = ops.random_bernoulli((N // 2, 2), p=p, rng=Generator(2))
    assert got.dtype == bool
    np.testing.assert_array_equal(got, u < p)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_categories_have_the_frequencies_of_their_softmax(axis):
    logits = np.array([[0.0, 1.0, -np.inf, 3.0], [1000.0, 1001.0, 1002.0, 999.0]])
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    given = logits if axis else logits.T
    got = ops.random_categorical(given, axis=axis, shape=(N // 4, 2), rng=Generator(4))
    for row in range(2):
        counts = np.bincount(got[:, row], minlength=4)
        wanted = weights[row] * len(got)
        own = wanted > 0
        assert counts[~own].sum() == 0
        assert ((counts - wanted)[own] ** 2 / wanted[own]).sum() < 21.1  # 3 degrees, as above


def test_all_orders_of_three_are_equally_frequent():
    rng = Generator(6)
    found = np.array([rng.permutation(3) for _ in range(600)])
    counts = np.bincount(found @ [9, 3, 1])
    counts = counts[counts > 0]
    assert len(counts) == 6
    assert ((counts - 100) ** 2 / 100).sum() < 25.7


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_permutation_moves_slices_together_and_gradients_back(axis):
    x = Variable(np.arange(12.0).reshape(3, 4), requires_grad=True)
    with GradientTape() as tape:
        y = ops.random_permutation(x, axis=axis, rng=Generator(8))
        loss = (y * np.arange(12.0).reshape(3, 4)).sum()
    order = ops.random_permutation(x.shape[axis], rng=Generator(8))
    assert sorted(order.tolist()) == list(range(x.shape[axis]))
    np.testing.assert_array_equal(y.numpy(), np.take(x.numpy(), order, axis))
    wanted = np.take(np.arange(12.0).reshape(3, 4), np.argsort(order), axis)
    np.testing.assert_array_equal(tape.gradient(loss, x), wanted)


def test_scales_have_gradients_and_concentrations_say_that_they_have_none():
    scale, a = Variable(2.0, requires_grad=True), Variable([0.5, 3.0], requires_grad=True)
    with GradientTape(persistent=True) as tape:
        e = ops.random_exponential(3, scale=scale, rng=Generator(1)).sum()
        g = ops.random_gamma(2, concentration=a, scale=scale, rng=Generator(2)).sum()
    unit = ops.random_exponential(3, rng=Generator(1)).sum()
    np.testing.assert_allclose(tape.gradient(e, scale), unit, rtol=1e-14)
    unit = ops.random_gamma(2, concentration=[0.5, 3.0], rng=Generator(2)).sum()
    np.testing.assert_allclose(tape.gradient(g, scale), unit, rtol=1e-14)
    with pytest.raises(NotDifferentiableError, match="concentration"):
        tape.gradient(g, a)


# ------------------------------------------------------------------ methods, seeds


METHODS = {
    "uniform": (lambda r: r.uniform(-1.0, [1.0, 2.0]), 2, {"low": -1.0, "high": [1.0, 2.0]}),
    "normal": (lambda r: r.normal(1.0, 2.0, (2, 3)), (2, 3), {"mean": 1.0, "std": 2.0}),
    "integers": (lambda r: r.integers(3, 9, 4, "i4"), 4, {"low": 3, "high": 9, "dtype": "i4"}),
    "bernoulli": (lambda r: r.bernoulli([0.2, 0.7]), 2, {"p": [0.2, 0.7]}),
    "exponential": (lambda r: r.exponential(2.0, 3), 3, {"scale": 2.0}),
    "gamma": (lambda r: r.gamma([1, 2], 3.0), 2, {"concentration": [1, 2], "scale": 3.0}),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_draw_what_ops_draw(name):
    method, shape, named = METHODS[name]
    got = method(Generator(11))
    wanted = getattr(ops, f"random_{name}")(shape, **named, rng=Generator(11))
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == wanted.dtype


def test_methods_have_the_defaults_of_numpys_generator():
    rng, numpys = Generator(1), np.random.default_rng(1)
    for name, args in (
        ("uniform", ()),
        ("normal", ()),
        ("integers", (5,)),
        ("exponential", ()),
        ("gamma", (2.0,)),
        ("permutation", (4,)),
    ):
        got, wanted = getattr(rng, name)(*args), getattr(numpys, name)(*args)
        assert np.shape(got) == np.shape(wanted)
        assert got.dtype.kind == np.asarray(wanted).dtype.kind
    assert {rng.integers(2).item() for _ in range(40)} == {0, 1}
    logits = np.zeros((2, 3))
    assert rng.categorical(logits).shape == (2,)
    assert rng.categorical(logits, size=(5, 2)).shape == (5, 2)


def test_a_seed_of_the_process_repeats_what_ops_draw_by_default():
    od.seed(3)
    first = ops.random_normal(4), ops.dropout(np.ones(20)), ops.random_gamma(2, concentration=2.0)
    od.seed(3)
    again = ops.random_normal(4), ops.dropout(np.ones(20)), ops.random_gamma(2, concentration=2.0)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    od.seed(3)
    np.testing.assert_array_equal(ops.random_normal(4), ops.random_normal(4, rng=Generator(3)))
    for wrong, error in ((-1, SettingError), (2**128, SettingError), (0.5, DTypeError)):
        with pytest.raises(error, match=r"^seed: number="):
            od.seed(wrong)


# ------------------------------------------------------------------ compiled


DRAWS = {
    "integers": lambda rng: rng.integers(-5, 1000, (3, 4)),
    "small": lambda rng: rng.integers(0, 200, 7, "u1"),
    "all": lambda rng: rng.integers(-(2**63), 2**63, 5),
    "bernoulli": lambda rng: rng.bernoulli([0.2, 0.7]),
    "categorical": lambda rng: rng.categorical(np.array([[0.0, 1.0], [2.0, 0.0]]), size=(5, 2)),
    "permutation": lambda rng: rng.permutation(np.arange(10.0)),
    "exponential": lambda rng: rng.exponential(2.0, 5, "f4"),
    "gamma": lambda rng: rng.gamma([0.3, 5.0], 2.0, (3, 2)),
    "uniform": lambda rng: rng.uniform(0.0, 2.0, 3),
    "normal": lambda rng: rng.normal(size=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
def test_a_compiled_function_draws_what_eager_calls_draw(name):
    rng, same = Generator(2**70), Generator(2**70)
    step = od.compile(lambda x: (DRAWS[name](rng), x + 1.0))
    for _ in range(4):
        got, _ = step(np.ones(2))
        wanted = DRAWS[name](same)
        assert np.asarray(got).dtype == np.asarray(wanted).dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-6 if name == "exponential" else 1e-14)
        assert rng.state == same.state
    assert step.statistics().programs == 1


def test_integers_and_booleans_are_computed_by_the_program_itself():
    rng = Generator(1)
    step = od.compile(lambda x: x + rng.integers(0, 100, 8) + rng.bernoulli(0.3, 8))
    for _ in range(3):
        step(np.zeros(8))
    assert "calls" not in str(step.explain(np.zeros(8)))


# ------------------------------------------------------------------ refusals


def test_a_refused_draw_leaves_the_generator_where_it_stood():
    rng = Generator(1)
    for call, error in (
        (lambda: rng.integers(5, 5), SettingError),
        (lambda: rng.integers(300, dtype="u1"), SettingError),
        (lambda: rng.bernoulli(2.0), SettingError),
        (lambda: rng.exponential(-1.0), SettingError),
        (lambda: rng.gamma(-1.0), SettingError),
        (lambda: rng.gamma(1.0, size=-1), SettingError),
        (lambda: rng.normal(size=1.5), DTypeError),
        (lambda: rng.permutation(2.5), DTypeError),
    ):
        with pytest.raises(error):
            call()
    assert rng.state == Generator(1).state
