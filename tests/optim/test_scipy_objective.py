"""Objectives for scipy.optimize: flat vectors, exact derivatives, and SciPy's own solvers."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError
from odyssey.optim import scipy_objective


def rosenbrock(p):
    x, y = p["x"], p["y"]
    return 100.0 * (y - x * x) ** 2 + (1.0 - x) ** 2


START = {"x": np.array(-1.2), "y": np.array(1.0)}


def slopes(x, y):
    return np.array([-400 * x * (y - x * x) - 2 * (1 - x), 200 * (y - x * x)])


def curvatures(x, y):
    return np.array([[1200 * x * x - 400 * y + 2, -400 * x], [-400 * x, 200.0]])


def test_value_gradient_and_hessian_are_those_of_calculus():
    objective = scipy_objective(rosenbrock, START)
    np.testing.assert_array_equal(objective.x0, [-1.2, 1.0])
    for x in (objective.x0, np.array([0.5, 2.0])):
        value, gradient = objective(x)
        assert type(value) is float
        assert value == pytest.approx(100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2)
        np.testing.assert_allclose(gradient, slopes(*x), rtol=1e-12)
        np.testing.assert_array_equal(objective.value_and_grad(x)[1], gradient)
        for v in ([1.0, 0.0], [0.3, -2.0]):
            np.testing.assert_allclose(objective.hessp(x, v), curvatures(*x) @ v, rtol=1e-12)


@dataclass
class Layer:
    w: object
    b: object


def test_any_tree_is_flattened_and_restored_in_shape_and_dtype():
    params = {
        "layers": [Layer(np.arange(6.0).reshape(2, 3), np.float32(7.0) * np.ones(2, np.float32))],
        "z": np.array([1 + 2j, 3 - 4j]),
        "scalar": Variable(9.0, requires_grad=True),
    }
    objective = scipy_objective(lambda p: ops.sum(p["scalar"]), params)
    expected = [0, 1, 2, 3, 4, 5, 7, 7, 1, 2, 3, -4, 9]
    np.testing.assert_array_equal(objective.x0, expected)
    assert objective.x0.dtype == np.float64
    back = objective.unflatten(2.0 * objective.x0)
    (layer,) = back["layers"]
    np.testing.assert_array_equal(layer.w, 2 * np.arange(6.0).reshape(2, 3))
    assert layer.b.dtype == np.float32
    np.testing.assert_array_equal(back["z"], [2 + 4j, 6 - 8j])
    assert back["scalar"].shape == ()


def test_parameters_without_a_say_have_derivatives_of_0():
    params = {"a": np.array([1.0, 2.0]), "idle": np.ones(3)}
    objective = scipy_objective(lambda p: (p["a"] ** 3).sum(), params)
    np.testing.assert_array_equal(objective(objective.x0)[1], [3.0, 12.0, 0, 0, 0])
    v = np.ones(5)
    np.testing.assert_allclose(objective.hessp(objective.x0, v), [6.0, 12.0, 0, 0, 0])


def test_a_linear_objective_has_no_curvature():
    objective = scipy_objective(lambda p: (3.0 * p).sum(), np.ones(2))
    np.testing.assert_array_equal(objective.hessp(objective.x0, [1.0, 1.0]), [0.0, 0.0])


def test_complex_parameters_are_two_real_ones():
    def fn(z):
        return (od.ops.real(z) ** 3 + 2.0 * od.ops.real(z) * od.ops.imag(z) ** 2).sum()

    objective = scipy_objective(fn, np.array([1 + 2j]))
    x, y = 1.0, 2.0
    np.testing.assert_allclose(objective(objective.x0)[1], [3 * x * x + 2 * y * y, 4 * x * y])
    matrix = np.array([[6 * x, 4 * y], [4 * y, 4 * x]])
    for v in np.eye(2):
        np.testing.assert_allclose(objective.hessp(objective.x0, v), matrix @ v)


def test_what_is_passed_in_stays_as_it_is():
    w = Variable([1.0, 2.0], requires_grad=True)
    w.grad = [5.0, 5.0]
    a = np.array([3.0, 4.0])
    objective = scipy_objective(lambda p: (p[0] * p[1]).sum(), [w, a])
    x = objective.x0.copy()
    objective(x)
    objective.hessp(x, x)
    objective.unflatten(x)[1][:] = 0.0
    np.testing.assert_array_equal(x, [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(a, [3.0, 4.0])
    np.testing.assert_array_equal(w.numpy(), [1.0, 2.0])
    np.testing.assert_array_equal(w.grad, [5.0, 5.0])


def test_what_cannot_be_minimized_is_refused():
    with pytest.raises(DTypeError, match=r"scipy_objective: \['n'\] is .*pass floating numbers"):
        scipy_objective(rosenbrock, {"n": np.array([1, 2])})
    objective = scipy_objective(rosenbrock, START)
    with pytest.raises(ShapeError, match=r"x has shape \(3,\), not \(2,\)"):
        objective(np.zeros(3))


def cubic(p):
    """a² b + Re(z²) b, whose derivatives are below."""
    return p["a"] ** 2 * p["b"] + ops.real(p["z"] * p["z"]) * p["b"]


NUMBERS = {"a": 1.5, "b": np.array(2.0, np.float32), "z": 1 + 2j}


def cubic_gradient(a, b, x, y):
    return np.array([2 * a * b, a * a + x * x - y * y, 2 * x * b, -2 * y * b])


def cubic_hessian(a, b, x, y):
    return np.array(
        [
            [2 * b, 2 * a, 0, 0],
            [2 * a, 0, 2 * x, -2 * y],
            [0, 2 * x, 2 * b, 0],
            [0, -2 * y, 0, -2 * b],
        ]
    )


def test_python_numbers_are_leaves_and_come_back_as_numbers():
    objective = scipy_objective(cubic, NUMBERS)
    np.testing.assert_array_equal(objective.x0, [1.5, 2.0, 1.0, 2.0])
    back = objective.unflatten(2.0 * objective.x0)
    assert back == {"a": 3.0, "b": 4.0, "z": 2 + 4j}
    assert [type(back["a"]), type(back["z"]), back["b"].dtype] == [float, complex, np.float32]
    value, gradient = objective(objective.x0)
    assert value == 1.5**2 * 2 - 3 * 2
    np.testing.assert_array_equal(gradient, cubic_gradient(*objective.x0))
    with pytest.raises(DTypeError, match="pass floating numbers, arrays or Variables"):
        scipy_objective(cubic, {"a": 1, "b": 2.0, "z": 1j})


def test_the_hessian_is_that_of_calculus_on_arrays_and_variables():
    objective = scipy_objective(cubic, NUMBERS)
    expected = cubic_hessian(*objective.x0)
    assert type(objective.hess(objective.x0)) is np.ndarray
    for x in (objective.x0, list(objective.x0), Variable(objective.x0, requires_grad=True)):
        np.testing.assert_allclose(objective.hess(x), expected, rtol=1e-14)
    linear = scipy_objective(lambda p: (3.0 * p).sum(), np.ones(2))
    np.testing.assert_array_equal(linear.hess(linear.x0), np.zeros((2, 2)))


def test_unflatten_value_gradient_and_hessian_are_differentiable_under_a_tape():
    objective = scipy_objective(cubic, NUMBERS)
    x = Variable(objective.x0, requires_grad=True)
    hessian, v = cubic_hessian(*objective.x0), np.array([1.0, -2.0, 0.5, 3.0])
    with GradientTape(persistent=True) as tape:
        tree = objective.unflatten(x)
        linear = tree["a"] + 2.0 * tree["b"] + 3.0 * ops.real(tree["z"]) + 4.0 * ops.imag(tree["z"])
        value, gradient = objective(x)
        slope = (gradient * v).sum()
        curvature = (objective.hess(x) * np.outer(v, v)).sum()
        along = (objective.hessp(x, v) * v).sum()
    a, b, p, q = v
    # The third derivative of the cubic along v: of a²b + (x² - y²) b.
    third = np.array([4 * a * b, 2 * (a * a + p * p - q * q), 4 * p * b, -4 * q * b])
    np.testing.assert_array_equal(tape.gradient(linear, x), [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(tape.gradient(value, x), cubic_gradient(*objective.x0), rtol=1e-14)
    np.testing.assert_allclose(tape.gradient(slope, x), hessian @ v, rtol=1e-14)
    np.testing.assert_allclose(tape.gradient(curvature, x), third, rtol=1e-14)
    np.testing.assert_allclose(tape.gradient(along, x), third, rtol=1e-14)
    with pytest.raises(ShapeError, match=r"x has shape \(1,\), not \(4,\)"):
        objective.unflatten(Variable([1.0]))


@pytest.mark.peers
def test_solvers_of_scipy_find_the_minimum():
    optimize = pytest.importorskip("scipy.optimize")
    objective = scipy_objective(rosenbrock, START)
    for method, options in (
        ("L-BFGS-B", {}),
        ("trust-ncg", {"hessp": objective.hessp}),
        ("trust-exact", {"hess": objective.hess}),
    ):
        result = optimize.minimize(objective, objective.x0, jac=True, method=method, **options)
        assert result.success, result
        solution = objective.unflatten(result.x)
        assert float(solution["x"]) == pytest.approx(1.0, abs=1e-4)
        assert float(solution["y"]) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.slow
def test_the_package_does_not_import_scipy():
    program = (
        "import sys, numpy as np, odyssey as od; o = od.optim.scipy_objective(lambda p: p * p, "
        "np.array(1.0)); o(o.x0); o.hessp(o.x0, o.x0); sys.exit('scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_name_that_optim_lacks_is_named():
    with pytest.raises(AttributeError, match="no attribute 'Rprop'"):
        _ = od.optim.Rprop


def test_a_compiled_objective_computes_what_the_plain_one_does():
    x = np.random.default_rng(0).normal(size=(20, 3))
    params = {"w": np.array([0.5, -1.0, 2.0]), "b": 0.25}

    def fn(p):
        return ((ops.tanh(x @ p["w"]) + p["b"] ** 2 - 1.0) ** 2).mean()

    plain = scipy_objective(fn, params)
    compiled = scipy_objective(fn, params, compile=True)
    direction = np.array([1.0, 0.5, -0.5, 2.0])
    for k in range(3):
        point = plain.x0 + 0.1 * k
        value, gradient = compiled(point)
        wanted, slope = plain(point)
        assert type(value) is float
        assert value == pytest.approx(wanted, rel=1e-13)
        np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(
            compiled.hessp(point, direction), plain.hessp(point, direction), rtol=1e-11, atol=1e-14
        )
        np.testing.assert_allclose(compiled.hess(point), plain.hess(point), rtol=1e-11, atol=1e-14)
    assert {name: fn.statistics() for name, fn in compiled._compiled.items()} == dict.fromkeys(
        ("value_and_grad", "hessp", "hess"), (1, 2, 1)
    )
    with pytest.raises(ShapeError, match="x has shape"):
        compiled(np.zeros(3))


class Line:
    """A model with a constant and a table of integers between its parameters."""

    def __init__(self):
        self.slope = Variable(np.array([2.0, 1.0]), requires_grad=True)
        self.mean, self.order = Variable(np.array([0.5, 0.25])), np.array([1, 0])
        self.shift = np.array(3.0)

    def __call__(self, x):
        return ((x - self.mean)[:, self.order] * self.slope**2).sum(1) + self.shift


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
def test_an_object_is_optimized_in_its_parameters_alone(compile):
    x = np.array([[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]])

    def error(model):
        return (model(x) ** 2).sum()

    def flat_error(v):
        return ((((x - [0.5, 0.25])[:, [1, 0]] * v[:2] ** 2).sum(1) + v[2]) ** 2).sum()

    objective = od.optim.scipy_objective(error, Line(), compile=compile)
    point, direction = np.array([2.0, 1.0, 3.0]), np.array([1.0, -2.0, 0.5])
    np.testing.assert_array_equal(objective.x0, point)
    for v in (point, point + 0.5):
        value, gradient = objective(v)
        np.testing.assert_allclose(value, float(flat_error(v)), rtol=1e-13)
        np.testing.assert_allclose(gradient, od.grad(flat_error)(v), rtol=1e-12)
        hessian = od.hessian(flat_error)(v)
        np.testing.assert_allclose(objective.hess(v), hessian, rtol=1e-12)
        np.testing.assert_allclose(objective.hessp(v, direction), hessian @ direction, rtol=1e-12)
    solution = objective.unflatten(point + 1.0)
    np.testing.assert_array_equal(solution.slope, [3.0, 2.0])
    assert solution.shift == 4.0
    assert type(solution.mean) is Variable
