"""Inverses, determinants, factors and singular values where samples do not lead: corners, sizes."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import LinAlgError, OdysseyError

SINGULAR = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])


def random(*shape, seed=0, complex_=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if complex_ else x


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


both_fields = pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])

# ------------------------------------------------------------------ what there is not


@pytest.mark.parametrize(
    ("call", "match"),
    {
        "inv": (lambda: ops.inv(SINGULAR * 0), "^inv: Singular matrix"),
        "solve": (lambda: ops.solve(SINGULAR * 0, np.ones(3)), "^solve: Singular matrix"),
        "cholesky": (lambda: ops.cholesky(-np.eye(2)), "^cholesky: .*not positive definite"),
        "svd": (
            lambda: ops.svd(np.full((2, 2), np.nan)),
            "^svd: svd_factors: SVD did not",
        ),
        "np": (lambda: np.linalg.inv(Variable(SINGULAR * 0)), "^inv: Singular matrix"),
        "one of a batch": (
            lambda: ops.inv(np.stack([np.eye(3), SINGULAR * 0])),
            "^inv: Singular matrix",
        ),
    }.values(),
    ids=lambda case: "" if callable(case) else case,
)
def test_what_a_matrix_lacks_raises_numpys_words_as_an_error_of_both(call, match):
    for kind in (LinAlgError, np.linalg.LinAlgError, OdysseyError, ValueError):
        with pytest.raises(kind, match=match):
            call()


def test_a_singular_matrix_of_many_spoils_its_own_gradient_alone():
    a = np.stack([np.eye(3), SINGULAR * 0, 2 * np.eye(3)])
    v = Variable(a, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        size = ops.slogdet(v)[1]
    g = tape.gradient(size, v, np.ones(3))
    assert np.isnan(g[1]).all()
    np.testing.assert_array_equal(g[[0, 2]], [np.eye(3), np.eye(3) / 2])


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
def test_matrices_without_elements_have_values_and_gradients(shape):
    a = np.zeros(shape)
    for function in (
        ops.inv,
        ops.det,
        ops.pinv,
        ops.svdvals,
        ops.cholesky,
        lambda a: ops.slogdet(a)[1],
        lambda a: ops.solve(a, np.zeros((shape[-1], 2))),
        lambda a: ops.triangular_solve(a, np.zeros((shape[-1], 2))),
        lambda a: ops.svd(a)[0],
    ):
        v = Variable(a, requires_grad=True)
        with GradientTape() as tape:
            out = function(v)
        assert tape.gradient(out, v, np.ones(out.shape)).shape == shape


# ------------------------------------------------------------------ triangles


@both_fields
@pytest.mark.parametrize("trans", ["N", "T", "C"])
@pytest.mark.parametrize("lower", [False, True])
def test_large_triangles_are_solved_as_scipy_does(trans, lower, complex_):
    linalg = pytest.importorskip("scipy.linalg")
    a = random(150, 150, complex_=complex_) / 10 + 5 * np.eye(150)
    b = random(150, 3, seed=1)
    for unit in (False, True):
        options = {"trans": trans, "lower": lower, "unit_diagonal": unit}
        wanted = linalg.solve_triangular(a, b, **options)
        got = ops.solve_triangular(a, b, **options)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())


def test_the_triangle_that_is_not_read_may_hold_anything_and_has_gradient_zero():
    a = np.where(np.tri(3, dtype=bool), random(3, 3) + 4 * np.eye(3), np.nan)
    v = Variable(a, requires_grad=True)
    with GradientTape() as tape:
        x = ops.triangular_solve(v, np.ones(3), lower=True)
    g = tape.gradient(x, v, np.ones(3))
    assert np.isfinite(x.numpy()).all()
    np.testing.assert_array_equal(np.triu(g, 1), 0)
    assert np.isfinite(g).all()


@both_fields
@pytest.mark.parametrize("upper", [False, True])
def test_the_gradient_of_cholesky_is_that_of_the_triangle_that_is_read(upper, complex_):
    a = random(4, 4, complex_=complex_)
    a = a @ adjoint(a) + np.eye(4)
    v = Variable(a, requires_grad=True)
    with GradientTape() as tape:
        factor = ops.cholesky(v, upper=upper)
        size = ops.sum(ops.log(ops.real(ops.diagonal(factor)))) * 2.0  # log det a
    g = tape.gradient(size, v)
    inverse = adjoint(np.linalg.inv(a))
    read = np.tril(inverse, -1) if not upper else np.triu(inverse, 1)
    np.testing.assert_allclose(g, 2 * read + np.diag(np.diag(inverse).real), atol=1e-13)


# ------------------------------------------------------------------ determinants


def leibniz(a):
    """The determinant as the sum over all permutations."""
    n = len(a)
    total = 0.0
    for order in itertools.permutations(range(n)):
        sign = round(np.linalg.det(np.eye(n)[list(order)]))
        term = float(sign)
        for row, column in enumerate(order):
            term = term * a[row, column]
        total = total + term
    return total


@both_fields
@pytest.mark.parametrize(
    "a",
    {
        "rank 3": np.diag([1.0, 2.0, 3.0, 0.0]),
        "rank 2": np.outer(np.arange(4.0), np.ones(4)) + np.eye(1, 16, 6).reshape(4, 4),
        "rank 1": np.outer(np.arange(4.0), np.arange(4.0)),
        "rank 0": np.zeros((4, 4)),
        "equal rows": random(4, 4)[[0, 1, 1, 2]],
        "regular": random(4, 4),
    }.values(),
    ids=lambda a: f"rank {np.linalg.matrix_rank(a)}",
)
def test_two_derivatives_of_det_are_those_of_its_expansion_whatever_the_rank(a, complex_):
    if complex_:
        a = a * (1.0 + 0.5j)
    d = random(4, 4, seed=5, complex_=complex_)

    def derivatives(function):
        slope = od.grad(lambda x: ops.real(function(x)) if complex_ else function(x))
        return [slope(a), od.jvp(slope, (a,), (d,))[1]]

    for got, wanted in zip(derivatives(ops.det), derivatives(leibniz), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13 * (1 + np.abs(wanted).max()))


def test_the_third_derivative_of_det_is_that_of_its_expansion_and_nan_where_singular():
    a, d = random(4, 4), random(4, 4, seed=5)

    def third(function):
        along = lambda f: lambda x: od.jvp(f, (x,), (d,))[1]  # noqa: E731
        return along(along(od.grad(function)))

    wanted = third(leibniz)(a)
    np.testing.assert_allclose(third(ops.det)(a), wanted, rtol=1e-11, atol=1e-11)
    assert np.isnan(third(ops.det)(np.zeros((4, 4)))).any()


def test_logdet_is_nan_where_a_determinant_is_negative_and_infinite_where_it_is_zero():
    a = np.stack([np.eye(2), np.diag([1.0, -1.0]), np.zeros((2, 2))])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ops.logdet(a), [0.0, np.nan, -np.inf])


def test_the_logarithm_of_a_determinant_beyond_all_numbers_has_its_gradient():
    a = np.eye(400) * 1e10
    np.testing.assert_allclose(od.grad(lambda a: ops.slogdet(a)[1])(a), np.eye(400) * 1e-10)


@both_fields
def test_sign_and_size_of_a_determinant_are_those_of_det(complex_):
    a = random(3, 3, complex_=complex_)

    def again(a):
        sign, size = ops.slogdet(a)
        return sign * ops.exp(size)

    c = random(seed=3, complex_=complex_)
    for f in (ops.real, ops.imag) if complex_ else (lambda x: x,):
        slopes = [od.grad(lambda a, g=g, f=f: f(g(a) * c))(a) for g in (again, ops.det)]
        np.testing.assert_allclose(*slopes, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ singular values


@both_fields
@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 5), (2, 4, 2)])
@pytest.mark.parametrize("full", [False, True])
def test_what_does_not_depend_on_the_choice_of_vectors_has_two_derivatives(shape, full, complex_):
    a = random(*shape, complex_=complex_)

    def free(a):
        u, s, vh = ops.svd(a, full)
        k = s.shape[-1]
        first = u[..., :k]
        rebuilt = ops.matmul(first * ops.expand_dims(ops.exp(s), -2), vh[..., :k, :])
        rest = [ops.matmul(x, ops.adjoint(x)) for x in (u[..., k:], ops.adjoint(vh[..., k:, :]))]
        return rebuilt, s, ops.absolute(first) ** 2, *(rest if full else ())

    od.testing.check_gradients(free, a, tolerance=1e-6)


@both_fields
@pytest.mark.parametrize("full", [False, True])
def test_a_matrix_made_again_of_its_factors_has_the_gradient_of_itself(full, complex_):
    a, c = random(3, 3, complex_=complex_), random(3, 3, seed=1, complex_=complex_)

    def again(a):
        u, s, vh = ops.svd(a, full)
        return ops.sum(ops.real(ops.matmul(u * s, vh) * np.conj(c)))

    np.testing.assert_allclose(od.grad(again)(a), c, atol=1e-12)


@both_fields
@pytest.mark.parametrize("size", [0.0, 2.0, 2.0**-600, 2.0**300])
def test_the_sum_of_equal_singular_values_has_the_gradient_that_there_is(size, complex_):
    q = np.linalg.qr(random(3, 3, complex_=complex_))[0]
    v = Variable(q * size, requires_grad=True)
    for function in (ops.svdvals, lambda v: ops.svd(v)[1], lambda v: ops.svd(v, False)[1]):
        with GradientTape() as tape:
            total = ops.sum(function(v))
        g = tape.gradient(total, v)
        if size:  # the orthogonal factor of the polar decomposition
            np.testing.assert_allclose(g, q, atol=1e-14)
        elif function is ops.svdvals:
            np.testing.assert_array_equal(g, 0)


def test_squares_of_singular_values_that_are_equal_or_zero_have_the_gradient_of_all_squares():
    for a in (np.eye(3), np.zeros((3, 2)), np.diag([2.0, 2.0, 0.0]), SINGULAR, np.ones((2, 4))):
        for function in (ops.svdvals, lambda v: ops.svd(v)[1]):
            g = od.grad(lambda v, f=function: ops.sum(f(v) ** 2))(a)
            np.testing.assert_allclose(g, 2 * a, atol=1e-14)


def test_vectors_of_equal_singular_values_have_no_derivative_and_that_shows():
    v = Variable(np.eye(2), requires_grad=True)
    with GradientTape() as tape:
        loss = ops.sum(ops.svd(v)[0] * np.arange(4.0).reshape(2, 2))
    with np.errstate(all="ignore"):
        assert not np.isfinite(tape.gradient(loss, v)).all()


# ------------------------------------------------------------------ pseudo-inverses


@both_fields
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3)])
def test_the_gradient_of_a_pseudo_inverse_of_lower_rank_is_that_along_its_rank(shape, complex_):
    """Of factors ``x @ y`` the derivative is known: their own pseudo-inverses have full rank."""
    x = random(shape[0], 1, complex_=complex_)
    y = random(1, shape[1], seed=1, complex_=complex_)
    c = random(*shape[::-1], seed=2, complex_=complex_)

    def of_product(x, y):
        return ops.sum(ops.real(ops.pinv(ops.matmul(x, y), 1e-12) * c))

    def of_factors(x, y):  # adjoints over the squares of the lengths
        sizes = ops.sum(ops.absolute(x) ** 2) * ops.sum(ops.absolute(y) ** 2)
        return ops.sum(ops.real(ops.adjoint(ops.matmul(x, y)) * c)) / sizes

    for k in (0, 1):
        got, wanted = (od.grad(f, argnums=k)(x, y) for f in (of_product, of_factors))
        np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_the_pseudo_inverse_of_equal_singular_values_has_the_gradient_of_the_inverse():
    for a in (np.eye(3), 2 * np.linalg.qr(random(3, 3))[0]):
        slopes = [od.grad(lambda a, f=f: ops.sum(f(a) * SINGULAR))(a) for f in (ops.pinv, ops.inv)]
        np.testing.assert_allclose(*slopes, atol=1e-13)


@both_fields
def test_least_squares_of_full_rank_have_the_gradient_of_the_normal_equations(complex_):
    a, b = random(5, 2, complex_=complex_), random(5, seed=1, complex_=complex_)

    def normal(a, b):
        return ops.solve(ops.matmul(ops.adjoint(a), a), ops.matmul(ops.adjoint(a), b))

    for k in (0, 1):
        slopes = [
            od.grad(lambda a, b, f=f: ops.sum(ops.absolute(f(a, b)) ** 2), argnums=k)(a, b)
            for f in (normal, lambda a, b: ops.lstsq(a, b)[0])
        ]
        np.testing.assert_allclose(*slopes, rtol=1e-11, atol=1e-11)


def test_what_lstsq_gives_besides_is_what_numpy_gives():
    for a in (random(4, 2), random(2, 4), np.ones((4, 2))):
        for b in (random(len(a)), random(len(a), 3)):
            with GradientTape():
                got = np.linalg.lstsq(Variable(a, True), b)
            for x, wanted in zip(got, np.linalg.lstsq(a, b), strict=True):
                x = x.numpy() if isinstance(x, Variable) else x
                assert np.asarray(x).dtype == np.asarray(wanted).dtype
                np.testing.assert_allclose(x, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0)], ids=str)
def test_least_squares_of_matrices_without_elements_are_numpys(shape):
    a, b = np.zeros(shape), np.arange(3.0, 3.0 + shape[0])
    step = od.compile(np.linalg.lstsq)
    wanted = np.linalg.lstsq(a, b)
    for got in (np.linalg.lstsq(Variable(a), b), step(Variable(a), b), step(Variable(a), b)):
        for x, y in zip(got, wanted, strict=True):
            x = x.numpy() if isinstance(x, Variable) else np.asarray(x)
            np.testing.assert_array_equal(x, np.asarray(y), strict=True)


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex128", "bool"])
def test_the_power_zero_is_the_identity_whatever_the_matrix(dtype):
    a = np.zeros((2, 3, 3), dtype)
    wanted = np.linalg.matrix_power(a, 0)
    constant = ops.matrix_power(Variable(a), 0)
    assert isinstance(constant, Variable)
    for got in (ops.matrix_power(a, 0), constant):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
