"""SciPy's ufuncs on Variables are ops of the table; its functions are refused by our names."""

import subprocess
import sys

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, TapeError
from odyssey.ops import OPS

special = pytest.importorskip("scipy.special", reason="SciPy is not installed")
ROOMS = ["linalg", "ndimage", "optimize", "signal", "sparse"]
linalg, ndimage, optimize, signal, sparse = (pytest.importorskip(f"scipy.{r}") for r in ROOMS)
NUMBERS = np.array([0.1, 0.25, 0.5, 0.9])
NAMED = {name: row for row in OPS.values() if row.elementwise for name in (row.name, *row.aliases)}
SHARED = [
    name
    for name, row in NAMED.items()
    if isinstance(found := getattr(special, name, None), np.ufunc) and found.nin == len(row.arrays)
]
# By how much SciPy errs itself: close to 1, where it is 0, gammaln is worse than ours.
THEIR_ERRORS = {"gammaln": 5e-15}
OURS = {
    "entr": ops.entr,
    "erf": ops.erf,
    "erfc": ops.erfc,
    "erfcinv": ops.erfcinv,
    "erfcx": ops.erfcx,
    "erfinv": ops.erfinv,
    "beta": ops.beta,
    "betaln": ops.betaln,
    "digamma": ops.digamma,
    "expit": ops.sigmoid,
    "exprel": ops.exprel,
    "gamma": ops.gamma,
    "gammaln": ops.gammaln,
    "i0": ops.i0,
    "i0e": ops.i0e,
    "i1": ops.i1,
    "i1e": ops.i1e,
    **{name: getattr(ops, name) for name in ("j0", "j1", "k0", "k0e", "k1", "k1e", "y0", "y1")},
    "kl_div": ops.kl_div,
    "log_expit": ops.log_sigmoid,
    "log_ndtr": ops.log_ndtr,
    "logit": ops.logit,
    "ndtr": ops.ndtr,
    "ndtri": ops.ndtri,
    "psi": ops.digamma,
    "rel_entr": ops.rel_entr,
    "xlog1py": ops.xlog1py,
    "xlogy": ops.xlogy,
}


def test_the_ufuncs_that_users_take_from_scipy_are_among_those_that_are_known():
    assert set(OURS) <= set(SHARED)


@pytest.mark.parametrize("name", SHARED)
def test_a_ufunc_of_scipy_with_the_name_of_an_op_means_the_op(name):
    ufunc, row = getattr(special, name), NAMED[name]
    numbers = [NUMBERS, NUMBERS[::-1].copy(), NUMBERS][: ufunc.nin]
    leaves = [Variable(x, requires_grad=True) for x in numbers]
    with GradientTape() as tape:
        out = ufunc(*leaves)
    assert type(out) is Variable
    np.testing.assert_allclose(out.numpy(), ufunc(*numbers), rtol=THEIR_ERRORS.get(name, 4e-15))
    if any(row.vjp.values()):
        assert [node.op for node in tape.nodes] == [row.name]


@pytest.mark.parametrize("name", OURS)
def test_a_ufunc_of_scipy_has_the_gradient_of_the_op(name):
    ufunc = getattr(special, name)
    leaves = [Variable(NUMBERS, requires_grad=True) for _ in range(ufunc.nin)]
    with GradientTape(persistent=True) as tape:
        theirs, ours = ufunc(*leaves), OURS[name](*leaves)
    for leaf in leaves:
        got = tape.gradient(theirs, leaf, np.ones(4))
        np.testing.assert_array_equal(got, tape.gradient(ours, leaf, np.ones(4)))


def test_an_array_beside_a_variable_may_come_first():
    w = Variable(NUMBERS, requires_grad=True)
    with GradientTape() as tape:
        out = special.xlogy(np.full(4, 2.0), w)
    np.testing.assert_array_equal(tape.gradient(out, w, np.ones(4)), 2.0 / NUMBERS)


# SciPy's kl_div cancels where its operands are close.
ENTROPIES = [ops.logit, ops.xlogy, ops.xlog1py, ops.entr, ops.rel_entr]


@pytest.mark.parametrize("op", ENTROPIES, ids=[op.__name__ for op in ENTROPIES])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odds_and_entropies_have_the_values_of_scipy_everywhere(op, dtype):
    rng = np.random.default_rng(0)
    ends = [-np.inf, -1.0, -0.0, 0.0, 1e-30, 0.3, 0.5, 0.7, 1.0, 2.0, np.inf, np.nan]
    x = np.concatenate([ends, rng.uniform(0, 1, 200)]).astype(dtype)
    ufunc = getattr(special, op.__name__)
    pairs = np.meshgrid(x, x) if ufunc.nin == 2 else [x]
    with np.errstate(all="ignore"):
        got, wanted = op(*pairs), ufunc(*pairs)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=8 * np.finfo(dtype).eps)


def test_a_ufunc_of_scipy_that_the_table_lacks_is_refused_by_name():
    with pytest.raises(DTypeError, match=r"scipy\.special\.spence is not in"):
        special.spence(Variable(NUMBERS, requires_grad=True))


def test_a_foreign_ufunc_that_has_the_name_of_an_op_is_not_taken_for_it():
    expit = np.frompyfunc(lambda x: x, 1, 1)
    with pytest.raises(DTypeError, match="not in odyssey's table"):
        expit(Variable(NUMBERS, requires_grad=True))


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "log_softmax"])
def test_a_function_of_scipy_that_asks_for_an_array_is_refused_naming_ours(name):
    w = Variable(NUMBERS, requires_grad=True)
    with GradientTape():
        x = w * 2.0
        with pytest.raises(TapeError, match=rf"od\.ops\.{name} is what scipy\.special\.{name} is"):
            getattr(special, name)(x)


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "log_softmax"])
def test_a_function_of_scipy_that_asks_for_an_array_takes_what_no_tape_follows(name):
    w = Variable(NUMBERS, requires_grad=True)
    function = getattr(special, name)
    np.testing.assert_array_equal(function(w * 2.0), function(NUMBERS * 2.0))


# By name: SciPy's function, and how it is called to be what the op is.
OTHERWISE = {
    "softmax": (special.softmax, {"axis": -1}),
    "log_softmax": (special.log_softmax, {"axis": -1}),
    "cholesky": (linalg.cholesky, {"lower": True}),
    "qr": (linalg.qr, {"mode": "economic"}),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_function_of_scipy_with_other_defaults_is_named_with_those_of_ours(name):
    function, options = OTHERWISE[name]
    matrix = np.array([[4.0, 1.0, 2.0], [1.0, 5.0, 3.0], [2.0, 3.0, 6.0]])
    wanted = np.asarray(function(matrix, **options))
    np.testing.assert_allclose(np.asarray(getattr(ops, name)(matrix)), wanted, rtol=1e-12)
    ((option, value),) = options.items()
    with GradientTape(), pytest.raises(TapeError) as raised:
        function(Variable(matrix, requires_grad=True) * 1.0)
    said = str(raised.value)
    # What SciPy wraps in a function that goes over a batch is not known by its name.
    wrapped = function in (linalg.cholesky, linalg.qr) and "scipy" not in said
    assert wrapped or f"{name} is on Variables with {option}={value!r}; " in said


STRANGERS = {
    "least squares": lambda v: optimize.least_squares(lambda p: p - v, np.zeros(3)),
    "a sparse matrix": lambda v: sparse.csr_array(np.eye(3)).dot(v),
    "a square wave": signal.square,
    "a filter of images": lambda v: ndimage.convolve(v, np.ones(3)),
}


@pytest.mark.parametrize("call", STRANGERS.values(), ids=STRANGERS)
def test_a_function_of_scipy_that_has_the_name_of_an_op_alone_is_not_named(call):
    with GradientTape(), pytest.raises(TapeError) as raised:
        call(Variable(np.ones(3), requires_grad=True) * 1.0)
    assert "scipy" not in str(raised.value)


def test_other_conversions_to_an_array_name_no_function_of_scipy():
    w = Variable(NUMBERS, requires_grad=True)
    with GradientTape(), pytest.raises(TapeError) as raised:
        np.asarray(w * 2.0)
    assert "scipy" not in str(raised.value)


def test_functions_of_scipy_work_on_constants():
    wanted = special.logsumexp(NUMBERS)
    assert special.logsumexp(Variable(NUMBERS)) == wanted


def test_calling_numpys_ufuncs_imports_no_scipy():
    program = (
        "import sys, numpy as np, odyssey as od\n"
        "np.exp(od.Variable(np.ones(2)))\n"
        "try: np.spacing(od.Variable(np.ones(2), requires_grad=True))\n"
        "except od.errors.DTypeError: pass\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'scipy']\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
