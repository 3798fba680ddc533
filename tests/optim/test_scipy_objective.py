"""Objectives for scipy.optimize: flat vectors, exact derivatives, and SciPy's own solvers."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, ops
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
    with pytest.raises(DTypeError, match=r"scipy_objective: \['n'\] is .*pass floating arrays"):
        scipy_objective(rosenbrock, {"n": np.array([1, 2])})
    objective = scipy_objective(rosenbrock, START)
    with pytest.raises(ShapeError, match=r"x has shape \(3,\), not \(2,\)"):
        objective(np.zeros(3))


@pytest.mark.peers
def test_solvers_of_scipy_find_the_minimum():
    optimize = pytest.importorskip("scipy.optimize")
    objective = scipy_objective(rosenbrock, START)
    for method, options in (("L-BFGS-B", {}), ("trust-ncg", {"hessp": objective.hessp})):
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
    with pytest.raises(AttributeError, match="no attribute 'NAdam'"):
        _ = od.optim.NAdam
