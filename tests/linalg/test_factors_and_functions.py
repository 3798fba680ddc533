"""Factors, eigenvalues and functions of matrices: large ones, and those whose values are equal."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops


def random(*shape, seed=0, complex_=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if complex_ else x


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


both_fields = pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])

# ------------------------------------------------------------------ triangles and orthogonal ones


@both_fields
@pytest.mark.parametrize("shape", [(40, 40), (70, 33), (33, 70), (3, 2, 20, 17), (1, 5), (5, 1)])
def test_the_factors_of_gauss_are_scipys(shape, complex_):
    linalg = pytest.importorskip("scipy.linalg")
    a = random(*shape, complex_=complex_)
    found = ops.lu(a)
    for matrix, *factors in zip(
        a.reshape(-1, *shape[-2:]),
        *(x.reshape(-1, *x.shape[-2:]) for x in found),
        strict=True,
    ):
        for got, wanted in zip(factors, linalg.lu(matrix), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)


@pytest.mark.parametrize("a", [np.zeros((3, 3)), np.diag([0.0, 1.0, 0.0])])
def test_matrices_that_lack_rank_have_factors_and_no_derivative_of_them(a):
    p, lower, upper = ops.lu(a)
    np.testing.assert_array_equal(p @ lower @ upper, a)
    q, r = ops.qr(a)
    np.testing.assert_allclose(q @ r, a, atol=1e-15)
    for factor in (ops.lu, ops.qr):
        v = Variable(a, requires_grad=True)
        with GradientTape() as tape:
            total = ops.sum(ops.square(factor(v)[1]))
        assert np.isnan(tape.gradient(total, v)).any()


@both_fields
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 4), (2, 4, 2)])
def test_what_does_not_depend_on_the_choice_of_a_basis_has_two_derivatives(shape, mode, complex_):
    a = random(*shape, complex_=complex_)
    k = min(shape[-2:])

    def free(a):
        q, r = ops.qr(a, mode)
        onto = [ops.matmul(x, ops.adjoint(x)) for x in (q[..., :k], q[..., k:])]
        return q[..., :k], r, *onto

    od.testing.check_gradients(free, a, tolerance=1e-6)


@both_fields
def test_a_product_of_its_factors_has_the_gradient_of_the_matrix(complex_):
    a, c = (random(4, 3, seed=k, complex_=complex_) for k in (0, 1))
    again = {
        "qr": lambda a: ops.matmul(*ops.qr(a)),
        "complete": lambda a: ops.matmul(*ops.qr(a, "complete")),
        "lu": lambda a: ops.multi_dot(ops.lu(a)),
        "svd": lambda a: ops.matmul(ops.svd(a, False)[0] * ops.svd(a)[1], ops.svd(a)[2]),
    }
    for name, function in again.items():
        if name == "lu":  # a permutation of real numbers, beside complex factors
            function = lambda a: ops.matmul(ops.lu(a)[0], ops.matmul(*ops.lu(a)[1:]))  # noqa: E731
        g = od.grad(lambda a, f=function: ops.sum(ops.real(f(a) * np.conj(c))))(a)
        np.testing.assert_allclose(g, c, atol=1e-12, err_msg=name)


# ------------------------------------------------------------------ eigenvalues


@both_fields
def test_what_does_not_depend_on_phases_and_order_has_two_derivatives(complex_):
    a = random(4, 4, complex_=complex_)

    def free(a):
        w, v = ops.eig(a)
        again = ops.matmul(v * ops.expand_dims(w**2, -2), ops.inv(v))
        weighed = ops.matmul(ops.absolute(v) ** 2, ops.real(w) ** 3)
        return again, weighed, ops.sum(ops.eigvals(a) ** 3)

    od.testing.check_gradients(free, a, tolerance=1e-6)


@pytest.mark.parametrize("a", [np.eye(3), np.zeros((3, 3)), np.diag([2.0, 2.0, 1.0])])
def test_sums_over_equal_eigenvalues_have_the_gradients_of_traces(a):
    for values in (ops.eigvals, lambda a: ops.eig(a)[0]):
        g = od.grad(lambda a, f=values: ops.sum(ops.real(f(a) ** 3)))(a)
        np.testing.assert_allclose(g, 3 * (a @ a).T, atol=1e-13)


def test_vectors_of_equal_eigenvalues_and_matrices_that_lack_some_have_no_derivative_to_see():
    weights = np.arange(4.0).reshape(2, 2)
    with np.errstate(all="ignore"):
        g = od.grad(lambda a: ops.sum(ops.real(ops.eig(a)[1]) * weights))(np.eye(2))
        assert not np.isfinite(g).all()
        lacking = np.array([[1.0, 1.0], [0.0, 1.0]])
        g = od.grad(lambda a: ops.sum(ops.real(ops.eigvals(a)) * [1.0, 2.0]))(lacking)
        assert not (np.isfinite(g) & (np.abs(g) < 1e10)).all()


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (0, 2, 2), (2, 2)])
def test_eigenvalues_are_complex_whatever_they_are(shape):
    a = np.ones(shape, np.float32)
    w, v = ops.eig(a)
    assert {x.dtype for x in (w, v, ops.eigvals(a))} == {np.dtype(np.complex64)}
    np.testing.assert_allclose(np.sort(ops.eigvals(a)), np.sort(w), atol=1e-6)


# ------------------------------------------------------------------ exponentials


NORMS = [0.0, 1e-12, 0.1, 3.0, 40.0]


@both_fields
@pytest.mark.parametrize("size", NORMS)
def test_exponentials_are_those_of_many_digits(size, complex_):
    mpmath = pytest.importorskip("mpmath")
    a = random(4, 4, complex_=complex_)
    a = a / np.abs(a).sum(0).max() * size
    with mpmath.workdps(60):
        exact = mpmath.expm(mpmath.matrix(a.tolist()), method="taylor")
        wanted = np.array(exact.tolist(), complex if complex_ else float)
    bound = 1e-14 * max(1.0, size) * np.abs(wanted).max()
    np.testing.assert_allclose(ops.expm(a), wanted, rtol=0, atol=bound)
    batch = ops.expm(np.stack([a, np.zeros((4, 4)), 1e3 * np.eye(4)]))[0]
    np.testing.assert_array_equal(batch, ops.expm(a))  # whoever stands beside it


@pytest.mark.parametrize("corner", [1e3, 1e7, 1e12, 1e17], ids=str)
def test_an_exponential_keeps_its_digits_beside_a_large_corner(corner):
    # The size asks for up to 55 halvings, the eigenvalues for none.
    a = np.array([[-1.0, corner], [0.0, -2.0]])
    x, y = np.exp([-1.0, -2.0])
    wanted = np.array([[x, corner * (x - y)], [0.0, y]])
    np.testing.assert_allclose(ops.expm(a), wanted, rtol=1e-12)
    others = np.stack([a, 30.0 * np.eye(2), np.full((2, 2), np.inf), np.zeros((2, 2))])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ops.expm(others)[0], ops.expm(a))
        np.testing.assert_array_equal(ops.expm(others)[1], ops.expm(others[1]))
    # Of corner * (x - exp(z)) / (-1 - z), at z = -2.
    along = od.jvp(ops.expm, (a,), (np.diag([0.0, 1.0]),))[1]
    np.testing.assert_allclose(along[0, 1], corner * (x - 2 * y), rtol=1e-12)
    slope = od.grad(lambda v: ops.expm(v)[0, 1])(a)
    np.testing.assert_allclose(slope[1, 1], corner * (x - 2 * y), rtol=1e-13 * corner**0.5)


@both_fields
@pytest.mark.parametrize("size", NORMS)
@pytest.mark.parametrize("power", [-900, 0, 900])
def test_derivatives_of_exponentials_are_scipys_however_large_the_direction(size, power, complex_):
    linalg = pytest.importorskip("scipy.linalg")
    a, t = (random(3, 3, seed=k, complex_=complex_) for k in (0, 1))
    a = a / np.abs(a).sum(0).max() * size
    wanted = linalg.expm_frechet(a, t, compute_expm=False)
    got = od.jvp(ops.expm, (a,), (t * 2.0**power,))[1] / 2.0**power
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())
    v = Variable(a, requires_grad=True)
    with GradientTape() as tape:
        out = ops.expm(v)
    g = tape.gradient(out, v, t * 2.0**power) / 2.0**power
    wanted = linalg.expm_frechet(adjoint(a), t, compute_expm=False)
    np.testing.assert_allclose(g, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())


def test_the_exponential_of_what_squares_to_zero_is_its_series_and_so_are_three_derivatives():
    a = np.array([[0.0, 3.0], [0.0, 0.0]])
    np.testing.assert_allclose(ops.expm(a), np.eye(2) + a, rtol=1e-15)
    # Of a multiple of the identity each derivative is the same multiple.
    f = lambda x: ops.expm(x * np.eye(2))[0, 0]  # noqa: E731
    for order in range(1, 4):
        f = od.grad(f)
        np.testing.assert_allclose(f(np.array(0.7)), np.exp(0.7), rtol=1e-13, err_msg=str(order))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_matrices_that_are_not_finite_have_no_functions_and_say_so(bad):
    a = np.stack([np.eye(2), np.array([[1.0, bad], [0.0, 1.0]])])
    for function in (ops.expm, ops.sqrtm):
        with np.errstate(all="ignore"):
            out = function(a)
        np.testing.assert_array_equal(out[0], function(np.eye(2)))
        assert np.isnan(out[1]).any()


# ------------------------------------------------------------------ square roots


@both_fields
@pytest.mark.parametrize("spread", [1.0, 1e3, 1e6])
def test_square_roots_are_scipys(spread, complex_):
    linalg = pytest.importorskip("scipy.linalg")
    v = random(5, 5, complex_=complex_)
    w = np.geomspace(1.0, spread, 5)
    for a in (v * w @ np.linalg.inv(v), (v * w) @ adjoint(v)):
        root = ops.sqrtm(a)
        wanted = linalg.sqrtm(a)
        np.testing.assert_allclose(root, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())
        error = np.abs(root @ root - a).max()
        # Newton's iteration errs by the condition of the root.
        assert error <= 1e-14 * np.linalg.cond(root) * np.abs(root).max() ** 2


@both_fields
def test_derivatives_of_square_roots_solve_sylvesters_equation(complex_):
    v = random(4, 4, complex_=complex_)
    for a in (v @ adjoint(v) + np.eye(4), v + 6 * np.eye(4)):
        t = random(4, 4, seed=1, complex_=complex_)
        root, moved = od.jvp(ops.sqrtm, (a,), (t,))
        np.testing.assert_allclose(root @ moved + moved @ root, t, atol=1e-12)


def test_there_are_roots_of_hermitian_matrices_that_lack_rank_and_no_derivatives():
    a = np.outer([1.0, 2.0], [1.0, 2.0])
    root = ops.sqrtm(a)
    np.testing.assert_allclose(root @ root, a, atol=1e-14)
    assert np.isnan(od.grad(lambda a: ops.sum(ops.sqrtm(a)))(a)).any()


def test_where_an_eigenvalue_is_negative_there_is_no_root_of_real_numbers():
    turned = np.array([[0.0, -1.0], [1.0, 0.0]])  # by a quarter: eigenvalues i and -i
    np.testing.assert_allclose(ops.sqrtm(turned) @ ops.sqrtm(turned), turned, atol=1e-15)
    for a in (np.diag([1.0, -1.0]), np.array([[-1.0, 3.0], [0.0, -2.0]])):
        with np.errstate(all="ignore"):
            assert np.isnan(ops.sqrtm(a)).any()


# ------------------------------------------------------------------ norms


@pytest.mark.parametrize("order", [None, 1, 2, 3, 1.5, np.inf, -np.inf, 0])
def test_the_norm_of_zero_has_gradient_zero_whatever_the_order(order):
    for x in (np.zeros(3), np.zeros((2, 3))):
        for norm in (
            lambda v: ops.vector_norm(v, ord=2 if order is None else order),
            lambda v: ops.norm(v, order, -1),
        ):
            v = Variable(x, requires_grad=True)
            with GradientTape(persistent=True) as tape:
                out = norm(v)
            if out.requires_grad:
                np.testing.assert_array_equal(tape.gradient(out, v, np.ones(out.shape)), 0)
                np.testing.assert_array_equal(tape.jvp(out, v, np.ones(v.shape)), 0)


@pytest.mark.parametrize("order", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_the_norm_of_the_zero_matrix_has_gradient_zero_whatever_the_order(order):
    g = od.grad(lambda a: ops.norm(a, order))(np.zeros((2, 3)))
    np.testing.assert_array_equal(g, 0)


def test_one_zero_vector_of_many_leaves_the_gradients_of_the_others():
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    for order in (2, 3):
        g = od.grad(lambda x, p=order: ops.sum(ops.norm(x, p, 1)))(x)
        np.testing.assert_array_equal(g[0], 0)
        wanted = (x[1] / np.linalg.norm(x[1], order)) ** (order - 1)
        np.testing.assert_allclose(g[1], wanted, rtol=1e-14)


def test_ties_of_a_largest_singular_value_share_its_gradient():
    g = od.grad(lambda a: ops.norm(a, 2))(2 * np.eye(3))
    np.testing.assert_allclose(g, np.eye(3) / 3, atol=1e-15)


def test_numpys_functions_of_vectors_and_matrices_on_variables_are_ours():
    v, w = Variable(random(3, 3), requires_grad=True), Variable(random(3, 3, seed=1), True)
    x, y = v.numpy(), w.numpy()
    with GradientTape():
        for call in (
            lambda a, b: np.vecdot(a, b),
            lambda a, b: np.vecdot(a, b, axis=0),
            lambda a, b: np.linalg.vecdot(a, b, axis=0),
            lambda a, b: np.linalg.svd(a, compute_uv=False),
            lambda a, b: np.linalg.svd(a, hermitian=True)[1],
            lambda a, b: np.linalg.qr(a, mode="r"),
            lambda a, b: np.linalg.pinv(a, rtol=1e-3),
            lambda a, b: np.linalg.matrix_rank(a),
            lambda a, b: np.linalg.multi_dot([a, b, a]),
            lambda a, b: np.linalg.norm(a, ord="nuc", keepdims=True),
            lambda a, b: np.linalg.cholesky(np.eye(3) * a**2, upper=True),
        ):
            got = call(v, w)
            assert isinstance(got, Variable)
            np.testing.assert_allclose(got.numpy(), call(x, y), rtol=1e-12)


# ------------------------------------------------------------------ second derivatives at ties


def reverse_over_reverse(f, a):
    rows = []
    for k in range(a.size):
        x, direction = Variable(a, requires_grad=True), np.zeros(a.shape)
        direction.flat[k] = 1
        with GradientTape() as outer:
            with GradientTape() as inner:
                out = f(x)
            slope = inner.gradient(out, x)
        row = outer.gradient(slope, x, direction)
        rows.append(np.zeros(a.size) if row is None else np.ravel(row))
    return np.array(rows)


def forward_over_reverse(f, a):
    return od.hessian(f)(a).reshape(a.size, a.size)


TURN = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
LOW = np.random.default_rng(2).normal(size=(4, 2))
SPECTRA = {
    "eigvalsh": ops.eigvalsh,
    "eigh": lambda a: ops.eigh(a)[0],
    "svdvals": ops.svdvals,
    "svd": lambda a: ops.svd(a)[1],
    "reduced svd": lambda a: ops.svd(a, False)[1],
}
CLOSE = {
    "ones": np.ones((3, 3)),
    "of rank two": LOW @ LOW.T,
    "next to the identity": np.eye(3) + 1e-16,
    "pairs": TURN @ np.diag([1.0, 1.0, 2.0, 2.0]) @ TURN.T,
}
both_orders = pytest.mark.parametrize("hessian_of", [reverse_over_reverse, forward_over_reverse])


def hessian_of_squares(name, n):
    """Of the sum of squares of a matrix, or of the symmetric matrix of a lower triangle."""
    if "svd" in name:
        return 2 * np.eye(n * n)
    return np.diag((2 * np.eye(n) + 4 * np.tri(n, k=-1)).ravel())


@both_orders
@pytest.mark.parametrize("matrix", CLOSE)
@pytest.mark.parametrize("name", SPECTRA)
def test_squares_of_close_eigenvalues_and_singular_values_have_their_hessian(
    name, matrix, hessian_of
):
    a, spectrum = CLOSE[matrix], SPECTRA[name]
    with np.errstate(all="ignore"):
        got = hessian_of(lambda x: ops.sum(spectrum(x) ** 2), a)
    if "svd" not in name and not np.isfinite(got).all():
        assert (np.diff(np.asarray(spectrum(a))) == 0).any()
        # Rounding of this machine's LAPACK made close ones a tie, of which nothing is known.
        a = a + 1e-15 * np.diag(np.arange(len(a)))
        with np.errstate(all="ignore"):
            got = hessian_of(lambda x: ops.sum(spectrum(x) ** 2), a)
    if "svd" in name and not np.isfinite(got).all():
        s = np.asarray(spectrum(a))
        assert (np.diff(s) == 0).any() or (s == 0).any()  # a tie, of which nothing is known
        return
    np.testing.assert_allclose(got, hessian_of_squares(name, len(a)), atol=1e-13)


@both_orders
@pytest.mark.parametrize("name", ["eigvalsh", "eigh"])
def test_the_sum_of_equal_eigenvalues_has_the_hessian_of_a_trace(name, hessian_of):
    for a in (np.eye(3), np.zeros((2, 2)), *CLOSE.values()):
        with np.errstate(all="ignore"):
            got = hessian_of(lambda x: ops.sum(SPECTRA[name](x)), a)
        np.testing.assert_array_equal(got, 0)


@both_orders
@pytest.mark.parametrize("a", [np.eye(3), np.diag([2.0, 1.0, 1.0, 0.0, 0.0]), np.zeros((2, 2))])
@pytest.mark.parametrize("name", SPECTRA)
def test_second_derivatives_at_ties_are_right_or_nan(name, a, hessian_of):
    with np.errstate(all="ignore"):
        got = hessian_of(lambda x: ops.sum(SPECTRA[name](x) ** 2), a)
    np.testing.assert_array_equal(
        got, np.where(np.isnan(got), np.nan, hessian_of_squares(name, len(a)))
    )


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("complex_", [False, True])
def test_functions_of_singular_values_and_vectors_agree_with_differences_to_second_order(
    shape, complex_
):
    rng = np.random.default_rng(5)
    a = rng.normal(size=shape) + (1j * rng.normal(size=shape) if complex_ else 0)
    c = np.arange(1.0, min(shape) + 1)

    def mixed(x):
        u, s, vh = ops.svd(x, False)
        again = ops.real(ops.matmul(u * s**3, vh))
        return ops.sum(again * np.arange(a.size).reshape(shape)) + ops.sum(s**3 * c)

    for f in (mixed, lambda x: ops.sum(ops.svdvals(x) ** 3 * c)):
        od.testing.check_gradients(f, a)


def test_a_compiled_hessian_of_eigenvalues_is_the_eager_one():
    a = CLOSE["of rank two"]
    compiled = od.compile(od.hessian(lambda x: ops.sum(ops.eigvalsh(x) ** 3)))
    for _ in range(3):
        got = compiled(a)
    wanted = od.hessian(lambda x: ops.sum(ops.eigvalsh(x) ** 3))(a)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
