"""Programs factor matrices and solve systems by NumPy's own LAPACK library."""

from functools import partial

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, linalg, ops
from odyssey.compiler import lowering
from odyssey.compiler.lowering import lower
from odyssey.compiler.pipeline import plan
from odyssey.compiler.schedule.verify import verify
from odyssey.errors import LinAlgError
from odyssey.kernels.lapack_library import lapack_library
from support.threads import run_in_threads

pytestmark = pytest.mark.skipif(lapack_library() is None, reason="this NumPy exports no LAPACK")

RNG = np.random.default_rng(0)


def positive(*shape, dtype=np.float64):
    x = RNG.normal(size=(*shape, shape[-1]))
    if np.dtype(dtype).kind == "c":
        x = x + 1j * RNG.normal(size=x.shape)
    return (x @ np.conj(np.swapaxes(x, -1, -2)) / shape[-1] + np.eye(shape[-1])).astype(dtype)


def plan_of(fn, *args):
    made = plan(lower(od.compile(fn).lower(*args).graph), {})
    verify(made)
    return made


def native(fn, *args, calls=3):
    """The result of a program without a host call."""
    compiled = od.compile(fn, check=True)
    for _ in range(calls):
        got = compiled(*args)
    assert compiled.statistics().native
    assert "not lowered" not in compiled.explain(*args)
    return got


# ------------------------------------------------------------------ values


def everything(a, b):
    low, high = linalg.cholesky(a), linalg.cholesky(a, upper=True)
    solve = linalg.solve_triangular
    return {
        "cholesky": low,
        "cholesky, upper": high,
        "of a triangle": solve(low, b, lower=True),
        "of its adjoint": solve(low, b, trans="C", lower=True),
        "of its transpose": solve(low, b, trans="T", lower=True),
        "of an upper triangle": solve(high, b),
        "of ones on the diagonal": solve(a, b, lower=True, unit_diagonal=True),
        "of a vector": solve(low, b[..., 0, :, 0] if b.ndim > 2 else b[:, 0], lower=True),
        "solve": linalg.solve(a, b),
        "solve for a vector": linalg.solve(a, b[..., 0] if b.ndim == 2 else b[0, :, 0]),
        "inv": linalg.inv(a),
        "cho_solve": linalg.cho_solve((low, True), b),
    }


def references(a, b):
    """Equal results by NumPy's solver of any matrix."""
    low, upper = np.linalg.cholesky(a), np.linalg.cholesky(a, upper=True)
    unit = np.tril(a, -1) + np.eye(a.shape[-1])
    vector = b[..., 0, :, 0] if b.ndim > 2 else b[:, 0]
    solve = np.linalg.solve
    return {
        "cholesky": low,
        "cholesky, upper": upper,
        "of a triangle": solve(low, b),
        "of its adjoint": solve(np.conj(np.swapaxes(low, -1, -2)), b),
        "of its transpose": solve(np.swapaxes(low, -1, -2), b),
        "of an upper triangle": solve(upper, b),
        "of ones on the diagonal": solve(unit, b),
        "of a vector": solve(low, vector[..., None])[..., 0],
        "solve": solve(a, b),
        "solve for a vector": solve(a, b[..., 0] if b.ndim == 2 else b[0, :, 0]),
        "inv": np.linalg.inv(a),
        "cho_solve": solve(a, b),
    }


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32, np.complex64])
@pytest.mark.parametrize("size", [1, 5, 70])
def test_a_program_gives_what_numpy_gives(size, dtype):
    a, b = positive(size, dtype=dtype), RNG.normal(size=(size, 3)).astype(dtype)
    tolerance = (
        2e-5 if np.dtype(dtype).itemsize // (1 + (np.dtype(dtype).kind == "c")) == 4 else 1e-11
    )
    layouts = {
        "rows": (a, b),
        "columns": (np.asfortranarray(a), np.asfortranarray(b)),
        "backward": (a[::-1, ::-1], b[::-1]),
    }
    for name, (x, y) in layouts.items():
        if size != 5 and name != "columns":
            continue
        got, wanted = native(everything, x, y), references(x, y)
        for what, result in got.items():
            assert result.dtype == dtype, (name, what)
            np.testing.assert_allclose(
                result, wanted[what], rtol=tolerance, atol=tolerance, err_msg=f"{name}: {what}"
            )


@pytest.mark.slow
def test_batches_broadcast_and_many_small_matrices_are_one_kernel():
    a, b = positive(2, 1, 4), RNG.normal(size=(3, 4, 2))
    for result, wanted in zip(
        native(lambda a, b: (linalg.solve(a, b), linalg.cholesky(a)), a, b),
        (np.linalg.solve(a, b), np.linalg.cholesky(a)),
        strict=True,
    ):
        np.testing.assert_allclose(result, wanted, rtol=1e-12)
    many = positive(200, 3)
    np.testing.assert_array_equal(native(linalg.cholesky, many), np.linalg.cholesky(many))


def test_factors_of_doubles_and_singles_are_numpys_to_the_bit():
    a, small = positive(3, 6), positive(6, dtype=np.float32)
    for got, x in zip(
        native(lambda a, b: (linalg.cholesky(a), linalg.cholesky(b)), a, small),
        (a, small),
        strict=True,
    ):
        np.testing.assert_array_equal(got, np.linalg.cholesky(x))


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
def test_matrices_without_elements(shape):
    a, b = np.zeros(shape), np.zeros((*shape[:-1], 2))
    got = native(lambda a, b: (linalg.cholesky(a), linalg.solve(a, b)), a, b)
    assert [x.shape for x in got] == [shape, b.shape]


def test_no_system_of_a_singular_matrix_raises_nothing():
    a, b = np.zeros((2, 2)), np.zeros((0, 2, 1))
    for fn in (lambda a, b: linalg.solve_triangular(a, b), lambda a, b: linalg.solve(a, b)):
        compiled = od.compile(fn)
        for _ in range(3):
            assert fn(a, b).shape == compiled(a, b).shape == (0, 2, 1)


# ------------------------------------------------------------------ derivatives


def _symmetric(x):
    return (x + ops.matrix_transpose(x)) / 2


def _log_determinant(a):
    return 2 * ops.log(ops.diagonal(linalg.cholesky(_symmetric(a)))).sum()


def _quadratic(a, b):
    white = linalg.solve_triangular(linalg.cholesky(_symmetric(a)), b, lower=True)
    return (white * white).sum()


@pytest.mark.slow
def test_derivatives_of_a_log_determinant_by_cholesky_to_second_order_in_both_modes():
    a, e = positive(5), _symmetric(RNG.normal(size=(5, 5)))
    inverse = np.linalg.inv(a)
    gradient = od.grad(_log_determinant)
    bend = -inverse @ e @ inverse
    cases = {
        "gradient": (gradient, inverse),
        "along a direction": (
            lambda a: od.jvp(_log_determinant, (a,), (e,))[1],
            np.sum(inverse * e),
        ),
        "forward over reverse": (lambda a: od.jvp(gradient, (a,), (e,))[1], bend),
        "reverse over reverse": (od.grad(lambda a: (gradient(a) * e).sum()), bend),
    }
    for name, (fn, wanted) in cases.items():
        for got in (fn(a), native(fn, a)):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.slow
def test_derivatives_of_a_quadratic_form_by_triangles_to_second_order_in_both_modes():
    a, b, e = positive(4), RNG.normal(size=4), _symmetric(RNG.normal(size=(4, 4)))
    inverse = np.linalg.inv(a)
    x = inverse @ b
    gradient = od.grad(_quadratic, argnums=(0, 1))
    y = inverse @ e @ x
    cases = {
        "gradient": (gradient, (-np.outer(x, x), 2 * x)),
        "forward over reverse": (
            lambda a, b: od.jvp(lambda a: gradient(a, b), (a,), (e,))[1],
            (np.outer(y, x) + np.outer(x, y), -2 * y),
        ),
        "reverse over reverse": (
            od.grad(lambda a, b: (gradient(a, b)[1] * e[0]).sum(), argnums=(0, 1)),
            (-np.outer(x, inverse @ e[0]) - np.outer(inverse @ e[0], x), 2 * inverse @ e[0]),
        ),
    }
    for name, (fn, wanted) in cases.items():
        for got in (fn(a, b), native(fn, a, b)):
            for one, other in zip(got, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11, err_msg=name)


def test_a_solution_and_its_tangent_share_one_decomposition():
    a, b, e = positive(5), RNG.normal(size=5), RNG.normal(size=(5, 5))
    tangent = lambda a, b: od.jvp(lambda a: linalg.solve(a, b), (a,), (e,))  # noqa: E731
    kernels = plan_of(tangent, a, b).fused.kernels
    names = [k.nodes[0].detail[0] for k in kernels if k.kind == "lapack"]
    assert names == ["getrf", "getrs", "getrs"]
    x = np.linalg.solve(a, b)
    for got, wanted in zip(native(tangent, a, b), (x, -np.linalg.solve(a, e @ x)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-11)


# ------------------------------------------------------------------ memory


def test_a_matrix_that_nothing_else_reads_is_factored_in_place():
    a = positive(40)
    made = plan_of(lambda a: (linalg.cholesky(a * 2.0 + 1.0) * 3.0).sum(), a)
    assert made.arena < 1.5 * a.nbytes


def test_a_matrix_that_is_read_later_is_not_overwritten():
    a = positive(12)

    def fn(a):
        twice = a * 2.0
        return linalg.cholesky(twice) * 1.0, twice * 3.0

    got = native(fn, a)
    np.testing.assert_array_equal(got[0], np.linalg.cholesky(2 * a))
    np.testing.assert_array_equal(got[1], 6 * a)


def test_a_budget_of_memory_recomputes_no_factor():
    a, b = positive(30), RNG.normal(size=(30, 30))
    gradient = od.grad(lambda a, b: (ops.exp(linalg.solve(a, b)) @ ops.tanh(a)).sum())
    for budget in (44_000, 10**5):
        compiled = od.compile(gradient, memory_budget=budget, check=True)
        for _ in range(3):
            got = compiled(a, b)
        np.testing.assert_allclose(got, gradient(a, b), rtol=1e-10)


# ------------------------------------------------------------------ matrices that are refused


INDEFINITE, SINGULAR = np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([[1.0, 2.0], [2.0, 4.0]])
REFUSED = {
    "cholesky": (lambda a: linalg.cholesky(a), INDEFINITE, "not positive definite"),
    "cholesky of a batch": (
        lambda a: linalg.cholesky(ops.stack([a + 4 * np.eye(2), a])),
        INDEFINITE,
        "not positive definite",
    ),
    "solve": (lambda a: linalg.solve(a, np.ones(2)), SINGULAR, "Singular matrix"),
    "inv": (lambda a: linalg.inv(a), SINGULAR, "Singular matrix"),
    "triangle": (
        lambda a: linalg.solve_triangular(a, np.ones(2)),
        np.array([[1.0, 3.0], [0.0, 0.0]]),
        "Singular matrix",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_raises_as_the_function_does_and_leaves_its_states(name):
    fn, bad, message = REFUSED[name]
    w = Variable(np.zeros(()))

    def step(a):
        w.assign(w + 1.0)
        return fn(a).sum()

    compiled = od.compile(step)
    for _ in range(3):
        compiled(2 * np.eye(2))
    assert compiled.statistics().native
    counts = []
    for function in (step, compiled):
        before = float(w)
        with pytest.raises(LinAlgError, match=message) as caught:
            function(bad)
        counts.append(float(w) - before)
        assert caught.type is LinAlgError
    assert counts[0] == counts[1]
    before = compiled.statistics().native
    compiled(2 * np.eye(2))
    assert compiled.statistics().native == before + 1


def test_one_singular_matrix_of_a_batch_has_a_gradient_of_nan_alone():
    a = np.stack([np.eye(2) * 2, SINGULAR, np.eye(2)])
    fn = od.grad(lambda a: ops.solve_or_nan(a, np.ones(2)).sum())
    got = native(fn, a)
    assert np.isnan(got[1]).all()
    np.testing.assert_array_equal(got[[0, 2]], fn(a)[[0, 2]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_matrices_that_are_not_finite_give_what_numpy_gives(bad):
    for where in ((0, 0), (2, 1), (2, 2)):
        a = positive(3)
        a[where] = a[where[::-1]] = bad

        for fn, reference in (
            (linalg.cholesky, np.linalg.cholesky),
            (lambda a: linalg.solve(a, np.ones(3)), lambda a: np.linalg.solve(a, np.ones(3))),
        ):
            compiled = od.compile(fn)
            for _ in range(3):
                compiled(positive(3))
            got, wanted, numpys = (_outcome(f, a) for f in (compiled, fn, reference))
            np.testing.assert_array_equal(got, wanted)
            assert isinstance(got, str) == isinstance(numpys, str)
            if not isinstance(got, str):
                np.testing.assert_array_equal(got, numpys)


def _outcome(function, a):
    """A result, or the message of an error."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(function(a))
    except np.linalg.LinAlgError as error:
        return str(error)


# ------------------------------------------------------------------ other libraries, threads


def test_without_the_library_rows_are_host_calls(monkeypatch):
    monkeypatch.setattr(lowering, "lapack_library", lambda: None)
    a, b = positive(4), np.ones(4)

    def fn(a, b):
        low = linalg.cholesky(a)
        return linalg.solve_triangular(low, b, lower=True), linalg.solve(a, b), linalg.inv(a)

    compiled = od.compile(fn)
    for _ in range(3):
        got = compiled(a, b)
    text = str(compiled.explain(a, b))
    for name in ("cholesky", "triangular_solve", "solve", "inv"):
        assert f"not lowered: {name}, since it may raise" in text
    wanted = np.linalg.solve(np.linalg.cholesky(a), b), np.linalg.solve(a, b), np.linalg.inv(a)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    with pytest.raises(LinAlgError, match="not positive definite"):
        compiled(-a, b)


def test_without_the_library_triangles_are_solved_by_halves(monkeypatch):
    from odyssey.linalg import triangular_systems

    a, b = np.tril(RNG.uniform(0.5, 1, (150, 150))) + 9 * np.eye(150), RNG.normal(size=(150, 2))
    found = ops.triangular_solve(a, b, lower=True)
    monkeypatch.setattr(triangular_systems, "lapack_library", lambda: None)
    np.testing.assert_allclose(ops.triangular_solve(a, b, lower=True), found, rtol=1e-11)
    with pytest.raises(LinAlgError, match="Singular matrix"):
        ops.triangular_solve(np.zeros((2, 2)), np.ones(2))


def test_sizes_that_vary_are_host_calls():
    n = od.Dim("n", 1, 9)
    compiled = od.compile(linalg.cholesky, dynamic={"a": {0: n, 1: n}})
    for size in (3, 4, 5):
        a = positive(size)
        np.testing.assert_allclose(compiled(a), np.linalg.cholesky(a), rtol=1e-14)


@pytest.mark.slow
def test_a_number_of_threads_changes_no_bit():
    a, b = positive(300), RNG.normal(size=(300, 40))

    def fn(a, b):
        return linalg.solve_triangular(linalg.cholesky(a), b, lower=True), linalg.solve(a, b)

    results = [native(lambda a, b: fn(a, b), a, b)]
    for threads in (1, 2, 3):
        compiled = od.compile(fn, threads=threads)
        for _ in range(3):
            got = compiled(a, b)
        results.append(got)
    for one in results[2:]:
        for x, y in zip(one, results[1], strict=True):
            np.testing.assert_array_equal(x, y)
    for x, y in zip(results[0], results[1], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_threads_factor_by_one_program_at_a_time():
    compiled = od.compile(linalg.cholesky)
    matrices = [positive(60) for _ in range(4)]
    wanted = [np.linalg.cholesky(a) for a in matrices]
    for _ in range(3):
        compiled(matrices[0])
    wrong = []

    def work(a, factor):
        for _ in range(50):
            if not np.allclose(compiled(a), factor, rtol=1e-12):
                wrong.append(a)

    run_in_threads(*[partial(work, *pair) for pair in zip(matrices, wanted, strict=True)])
    assert not wrong


def test_explain_and_profile_name_the_kernels():
    a = positive(6)
    compiled = od.compile(lambda a: linalg.cholesky(a * 2.0))
    for _ in range(3):
        compiled(a)
    rows = [line.split() for line in str(compiled.explain(a)).splitlines()]
    assert any("lapack" in row and row[-1] == "cholesky" for row in rows)
    kinds = [(k.kind, k.what) for k in compiled.profile(a).kernels]
    assert ("lapack", "cholesky") in kinds
