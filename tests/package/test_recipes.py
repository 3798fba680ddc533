"""The page of recipes runs, and its log-densities are those of scipy.stats, with their slopes."""

import re
from pathlib import Path

import numpy as np
import pytest

from odyssey import ops
from odyssey.testing import check_gradients

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "log-densities.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
RNG = np.random.default_rng(0)


def positive(*shape):
    return RNG.uniform(0.5, 4.0, shape)


X, CHANCES, COUNTS = RNG.normal(size=5), RNG.uniform(0.05, 0.95, 5), np.array([0, 1, 3, 7, 12])
A, B = positive(5), positive(5)
SIMPLEX = RNG.dirichlet(np.ones(4), 3)
FACTOR = np.tril(RNG.normal(size=(3, 3)), -1) + np.diag(positive(3))
# The operands, whether each is differentiated, and the density in scipy.stats.
DENSITIES = {
    "normal": ((X, 0.3 * A, B), lambda s, x, m, d: s.norm.logpdf(x, m, d)),
    "gamma": ((A, B, A + B), lambda s, x, a, r: s.gamma.logpdf(x, a, scale=1 / r)),
    "beta": ((CHANCES, A, B), lambda s, x, a, b: s.beta.logpdf(x, a, b)),
    "student_t": ((X, A, 0.2 * B, B), lambda s, x, f, m, d: s.t.logpdf(x, f, m, d)),
    "poisson": ((COUNTS, A), lambda s, k, r: s.poisson.logpmf(k, r)),
    "binomial": ((COUNTS, COUNTS + 4, CHANCES), lambda s, k, n, p: s.binom.logpmf(k, n, p)),
    "negative_binomial": ((COUNTS, A, CHANCES), lambda s, k, n, p: s.nbinom.logpmf(k, n, p)),
    "dirichlet": (
        (SIMPLEX, positive(4)),
        lambda s, x, a: np.array([s.dirichlet.logpdf(row, a) for row in x]),
    ),
    "multivariate_normal": (
        (RNG.normal(size=3), RNG.normal(size=3), FACTOR),
        lambda s, x, m, f: s.multivariate_normal.logpdf(x, m, f @ f.T),
    ),
    "von_mises": ((X, 0.3 * A, B), lambda s, x, m, k: s.vonmises.logpdf(x, k, m)),
}


@pytest.fixture(scope="module")
def names():
    found = {}
    for program in PROGRAMS:
        exec(compile(program, PAGE.name, "exec"), found)
    return found


def test_every_recipe_is_tested(names):
    defined = {name for name in names if f"def {name}(" in "".join(PROGRAMS)}
    assert defined == set(DENSITIES)


@pytest.mark.parametrize("name", DENSITIES)
def test_a_log_density_is_that_of_scipy(names, name):
    stats = pytest.importorskip("scipy.stats", reason="SciPy, to compare with, is missing")
    operands, theirs = DENSITIES[name]
    wanted = theirs(stats, *operands)
    np.testing.assert_allclose(names[name](*operands), wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", DENSITIES)
def test_a_log_density_has_two_derivatives_in_all_that_is_no_count(names, name):
    operands = DENSITIES[name][0]
    places = [k for k, x in enumerate(operands) if x.dtype.kind == "f"]

    def density(*moving):
        given = list(operands)
        for k, x in zip(places, moving, strict=True):
            given[k] = ops.tril(x) if name == "multivariate_normal" and k == 2 else x
        return names[name](*given)

    check_gradients(density, *[operands[k] for k in places], tolerance=1e-6)


def test_ends_of_domains_have_their_limits(names):
    assert names["poisson"](0, 0.0) == 0
    assert names["binomial"](np.array([0, 3]), 3, np.array([0.0, 1.0])).tolist() == [0, 0]
    assert names["gamma"](0.0, 1.0, 2.0) == np.log(2.0)


def test_the_program_that_uses_them_finds_what_the_numbers_were_drawn_from(names):
    np.testing.assert_allclose([names["shape"], names["rate"]], [3.0, 2.0], rtol=0.1)
