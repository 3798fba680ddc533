"""Transforms warn where a result depends on nothing of what is differentiated, and only there."""

import linecache
import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, no_grad, ops
from odyssey.errors import IndependentWarning

X = np.array([1.0, 2.0])

TRANSFORMS = {
    "grad": lambda fn, x: od.grad(fn)(x),
    "value_and_grad": lambda fn, x: od.value_and_grad(fn)(x)[1],
    "vjp": lambda fn, x: od.vjp(fn, x)[1](1.0)[0],
    "jacobian": lambda fn, x: od.jacobian(fn)(x),
    "hessian": lambda fn, x: od.hessian(fn)(x),
}
every_transform = pytest.mark.parametrize(
    ("name", "transform"), TRANSFORMS.items(), ids=list(TRANSFORMS)
)


def leaf():
    return Variable(X, requires_grad=True)


CLOSED_OVER = leaf()


def with_a_pause(x):
    with no_grad():
        return (x * x).sum()


INDEPENDENT = {
    "number": lambda x: 3.0,
    "array": lambda x: np.array(3.0),
    "constant": lambda x: Variable(3.0),
    "item": lambda x: (x * x).sum().item() * 2.0,
    "detached": lambda x: (x * x).sum().detach() * 2.0,
    "stopped": lambda x: od.stop_gradient((x * x).sum()),
    "pause": with_a_pause,
    "comparison": lambda x: ops.where(x > 0, 1.0, 2.0).sum(),
    "closed over": lambda x: (CLOSED_OVER * 2.0).sum(),
    "beside what is closed over": lambda x: (x.detach() * CLOSED_OVER).sum(),
}

DEPENDENT = {
    "linear": lambda x: x.sum(),
    "the argument": lambda x: x[0],
    "square": lambda x: (x * x).sum(),
    "times zero": lambda x: (x * 0.0).sum(),
    "steps": lambda x: ops.sign(x).sum(),
    "both": lambda x: (x * CLOSED_OVER).sum(),
    "one of two": lambda x: x[0] + x.detach()[1],
}


@every_transform
@pytest.mark.parametrize("fn", INDEPENDENT.values(), ids=INDEPENDENT)
def test_a_result_that_depends_on_no_argument_warns_once_at_the_callers_line(name, transform, fn):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = transform(fn, X)
    assert not np.any(found)
    (warning,) = caught
    assert warning.category is IndependentWarning
    assert str(warning.message).startswith(
        f"{name}: the result of the function does not depend on the "
        "arguments that are differentiated"
    )
    assert warning.filename == __file__
    assert f"od.{name}(" in linecache.getline(__file__, warning.lineno)


@every_transform
@pytest.mark.parametrize("fn", DEPENDENT.values(), ids=DEPENDENT)
def test_a_result_that_depends_on_an_argument_does_not_warn(name, transform, fn):
    transform(fn, X)


@pytest.mark.parametrize("fn", INDEPENDENT.values(), ids=INDEPENDENT)
def test_how_a_constant_moves_is_no_surprise(fn):
    for ask in (od.jvp, od.hvp):
        ask(fn, (X,), (np.ones(2),))


@every_transform
def test_one_output_of_several_is_enough(name, transform):
    if name in ("grad", "value_and_grad"):
        od.grad(lambda p: p["a"].sum())({"a": X, "b": X})
        od.grad(lambda a, b: a.sum(), argnums=(0, 1))(X, X)
    elif name == "vjp":
        od.vjp(lambda x: {"a": x, "b": 3.0}, X)
    else:
        transform(lambda x: [x * x, X], X)


def test_a_constant_beside_what_is_differentiated_does_not_count():
    with pytest.warns(IndependentWarning, match="grad: "):
        od.grad(lambda a, b: (b * 2.0).sum(), argnums=0)(X, leaf())
    with GradientTape():
        w = leaf() * 2.0
        with pytest.warns(IndependentWarning, match="grad: "):
            od.grad(lambda a: (w * 2.0).sum())(X)


LINEAR = {
    "grad of grad": lambda f: od.grad(lambda x: od.grad(f)(x).sum())(X),
    "jacobian of grad": lambda f: od.jacobian(od.grad(f))(X),
    "grad of a jvp": lambda f: od.grad(lambda x: od.jvp(f, (x,), (np.ones(2),))[1])(X),
    "scaled": lambda f: od.grad(lambda x: (od.grad(f)(x) * 2.0).sum() + 1.0)(X),
    "jacobian of jacobian": lambda f: od.jacobian(od.jacobian(f))(X),
    "hessian": lambda f: od.hessian(f)(X),
    "third": lambda f: od.grad(lambda x: od.hessian(f)(x).sum())(X),
}


@pytest.mark.parametrize("twice", LINEAR.values(), ids=LINEAR)
def test_the_derivative_of_a_linear_function_is_constant_and_no_reason_to_warn(twice):
    assert not np.any(twice(lambda x: (x * np.array([3.0, 4.0])).sum()))


def test_a_derivative_by_hand_inside_is_no_reason_to_warn():
    def slope(x):
        with GradientTape() as tape:
            y = (x * 3.0).sum()
        return tape.gradient(y, x).sum()

    assert not np.any(od.grad(slope)(X))


def test_what_is_not_asked_about_does_not_warn():
    assert od.grad(lambda p: 3.0)({"a": None}) == {"a": None}
    assert od.jacobian(lambda x: {})(X) == {}


def test_the_warning_can_be_turned_into_an_error_and_leaves_no_tape_entered():
    with warnings.catch_warnings():
        warnings.simplefilter("error", IndependentWarning)
        with pytest.raises(IndependentWarning):
            od.grad(lambda x: 3.0)(X)
    with GradientTape() as tape:
        w = leaf()
        y = (w * w).sum()
    np.testing.assert_array_equal(tape.gradient(y, w), 2 * X)
