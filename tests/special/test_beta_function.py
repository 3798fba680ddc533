"""The beta function and incomplete gamma and beta functions, in many digits and at their ends."""

import math
import subprocess
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import NotDifferentiableError, OdysseyError
from odyssey.testing import check_gradients
from support.exact import assert_exact

pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
import mpmath

INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(0)
WIDE = 10 ** RNG.uniform(-4, 9, 80)
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


@every_dtype
@pytest.mark.parametrize("b", [1e-3, 0.5, 2.0, 3.5, 60.0, 1e6])
def test_the_beta_function_and_its_logarithm_of_numbers_however_far_apart(b, dtype):
    b = float(np.float32(b))

    def logarithm(a):
        return mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)

    x = [*WIDE, *RNG.uniform(0, 6, 40)]
    assert_exact(lambda a: ops.betaln(a, a.dtype.type(b)), logarithm, x, dtype, 4, beside=1)
    for a in np.array(x, dtype):
        exact = logarithm(mpmath.mpf(float(a)))
        units = 4 * (1 + float(abs(exact)))  # an exponential magnifies what its exponent errs
        wanted = lambda a: mpmath.exp(logarithm(a))  # noqa: E731
        assert_exact(lambda a: ops.beta(a, a.dtype.type(b)), wanted, [a], dtype, units)


def test_the_beta_function_at_the_ends_of_its_domain():
    a, b = [0.0, 0.0, 0.0, 2.0, INF, -0.5, NAN], [0.0, 1.0, INF, INF, INF, 1.0, 1.0]
    np.testing.assert_array_equal(ops.betaln(a, b), [INF, INF, NAN, -INF, -INF, NAN, NAN])
    np.testing.assert_array_equal(ops.beta(a, b), [INF, INF, NAN, 0, 0, NAN, NAN])


@pytest.mark.parametrize("function", [ops.beta, ops.betaln])
def test_slopes_of_the_beta_function_are_differences_of_digamma(function):
    a, b = RNG.uniform(0.2, 9, (2, 20))
    leaves = [Variable(v, requires_grad=True) for v in (a, b)]
    with GradientTape() as tape:
        y = function(*leaves)
    for got, own in zip(tape.gradient(y, leaves, np.ones(20)), (a, b), strict=True):
        wanted = [
            float(mpmath.digamma(v) - mpmath.digamma(s)) for v, s in zip(own, a + b, strict=True)
        ]
        factor = ops.beta(a, b) if function is ops.beta else 1.0
        np.testing.assert_allclose(got, factor * np.array(wanted), rtol=1e-13, atol=1e-14)


# ------------------------------------------------------------------ by SciPy

special = pytest.importorskip("scipy.special", reason="SciPy, which computes them, is missing")


def test_incomplete_functions_have_scipys_values_in_the_dtype_of_the_operands():
    a, b, x = RNG.uniform(0.1, 0.9, (3, 2, 50))
    for dtype in ("float64", "float32", "float16"):
        given = [v.astype(dtype) for v in (a, b, x)]
        for name, count in (("gammainc", 2), ("gammaincc", 2), ("betainc", 3)):
            wide = [v.astype(np.float64) for v in given[-count:]]
            got = getattr(ops, name)(*given[-count:])
            np.testing.assert_array_equal(got, getattr(special, name)(*wide).astype(dtype))
    assert ops.gammainc(2, np.arange(3)).dtype == np.float64


@pytest.mark.parametrize("a", [0.3, 1.0, 2.0, 7.5, 150.0])
def test_slopes_of_incomplete_gamma_functions_are_densities(a):
    x = a * RNG.uniform(0.05, 3, 12)
    upper = lambda x: -mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))  # noqa: E731
    for function, sign in ((ops.gammainc, -1), (ops.gammaincc, 1)):
        slope = od.grad(lambda v, f=function: ops.sum(f(a, v)))(x)
        np.testing.assert_allclose(slope, [sign * float(upper(v)) for v in x], rtol=1e-12)
        check_gradients(lambda v, f=function: f(a, v), x)


@np.errstate(divide="ignore")
def test_slopes_at_the_ends():
    x = np.array([0.0, INF])
    for a, wanted in ((0.5, INF), (1.0, 1.0), (2.5, 0.0)):
        slope = od.grad(lambda v, a=a: ops.sum(ops.gammainc(a, v)))(x)
        np.testing.assert_array_equal(slope, [wanted, 0])
        ends = np.array([0.0, 1.0])
        slope = od.grad(lambda v, a=a: ops.sum(ops.betainc(a, 1.0, v)))(ends)
        np.testing.assert_allclose(slope, [wanted, a], rtol=1e-14)


def test_the_incomplete_beta_function_has_two_derivatives_in_x():
    a, b, x = RNG.uniform(0.6, 4, (2, 6)), RNG.uniform(0.6, 4, 6), RNG.uniform(0.1, 0.9, 6)
    check_gradients(lambda v: ops.betainc(a, b, v), x)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "betainc"])
def test_in_their_parameters_they_are_refused_by_name(name):
    a = Variable(2.0, requires_grad=True)
    others = (0.5, 0.5)[: 2 if name == "betainc" else 1]
    with GradientTape() as tape:
        y = getattr(ops, name)(a, *others)
    with pytest.raises(NotDifferentiableError, match=name):
        tape.gradient(y, a)


def test_without_scipy_they_say_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError("no module named 'scipy'")

    monkeypatch.setattr("odyssey.special.scipy_ufuncs.import_module", missing)
    with pytest.raises(OdysseyError, match=r"^gammainc: SciPy .* `pip install odyssey\[special\]`"):
        ops.gammainc(1.0, 2.0)


def test_only_a_call_of_them_imports_scipy():
    program = (
        "import sys, odyssey as od\n"
        "od.ops.gammaln(2.5), od.ops.ndtri(0.1), od.ops.betaln(1.0, 2.0), od.ops.gammainc\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'scipy']\n"
        "od.ops.gammainc(1.0, 2.0)\n"
        "assert 'scipy.special' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
