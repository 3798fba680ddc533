"""What compiled functions return on a device: plain arrays, views, gradients of any order."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, ops
from support.on_device import DEVICE, constant, current, host, is_on_device, leaf

pytestmark = [
    pytest.mark.usefixtures("standin"),
    pytest.mark.filterwarnings("error::odyssey.errors.CompileWarning"),
]

X = np.random.default_rng(0).standard_normal((3, 4))


def assert_as_on_the_host(function, *arrays, calls=3, rtol=1e-14):
    """A compiled function runs as a program, and returns what the host's eager calls return."""
    compiled = od.compile(function, fullgraph=True)
    given = [od.Variable(a, device=DEVICE) for a in arrays]
    wanted = od.tree.leaves(function(*[od.Variable(a) for a in arrays]))
    for _ in range(calls):
        result = compiled(*given)
        found = od.tree.leaves(result)
        for one, other in zip(found, wanted, strict=True):
            assert type(one) is type(other) or not isinstance(one, od.Variable)
            assert is_on_device(one)
            one, other = host(one), host(other)
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max())
    assert compiled.statistics() == (1, calls - 1, 1)
    return result


def f(x):
    return (ops.exp(x) * ops.sin(x)).sum()


TRANSFORMS = {
    "grad": od.grad(f),
    "grad of grad": od.grad(lambda x: (od.grad(f)(x) ** 2).sum()),
    "hessian": lambda x: od.hessian(f)(x[0]),
    "jacobian": od.jacobian(lambda x: ops.sin(x) @ x.T),
    "vjp": lambda x: od.vjp(ops.sin, x)[1](x),
    "jvp": lambda x: od.jvp(ops.sin, (x,), (x,)),
    "hvp": lambda x: od.hvp(f, (x,), (x,)),
    "vmap": od.vmap(lambda row: ops.softmax(row) * row.sum()),
    "gradients of examples": od.vmap(od.grad(lambda row: ops.exp(row).sum())),
    "checkpoint": od.grad(lambda x: od.checkpoint(lambda x: ops.sin(x) @ x.T)(x).sum()),
    "scan": lambda x: od.scan(lambda c, row: (c + ops.sin(row), c * row), x[0], x),
}


@pytest.mark.parametrize("function", TRANSFORMS.values(), ids=list(TRANSFORMS))
def test_a_transform_in_a_compiled_function_gives_the_hosts_numbers(function):
    assert_as_on_the_host(function, X)


VIEWS = {
    "transposed": lambda y: ops.transpose(y, (1, 2, 0)),
    "flat": lambda y: ops.reshape(y, (-1,)),
    "turned around": lambda y: y[::-1, ::-1, ::-1],
    "with an axis": lambda y: ops.expand_dims(y, 1),
    "one row": lambda y: y[1],
    "some rows from behind": lambda y: ops.swapaxes(y, 0, 1)[:, :0:-1],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_a_view_among_results_shows_writes_to_the_other_as_that_of_an_eager_call_does(view):
    def step(x):
        y = od.grad(f)(x)
        return y, view(y)

    y, other = assert_as_on_the_host(step, X.reshape(3, 2, 2))
    assert other.base is y
    numbers = np.arange(12.0).reshape(3, 2, 2)
    with current():
        y[...] = constant(numbers, DEVICE).data
    np.testing.assert_array_equal(other.get(), view(numbers))


def test_a_view_with_gaps_is_no_programs():
    def step(x):
        y = od.grad(f)(x)
        return y, y[:, 1:]

    compiled = od.compile(step, warn=False)
    for _ in range(3):
        y, other = compiled(od.Variable(X, device=DEVICE))
    assert other.base is y
    assert "two of its results share memory" in str(compiled.explain(od.Variable(X, device=DEVICE)))


def test_variables_among_results_have_memory_that_no_write_reaches():
    x = od.Variable(X, device=DEVICE)
    compiled = od.compile(lambda x: (x, ops.exp(x), x.T, ops.exp(x).T), fullgraph=True)
    for _ in range(4):
        same, y, turned, other = compiled(x)
    assert same is x
    x.assign(np.zeros((3, 4)))
    y.assign(np.zeros((3, 4)))
    np.testing.assert_array_equal(turned.numpy(), X.T)
    np.testing.assert_allclose(other.numpy(), np.exp(X).T, rtol=1e-15)
    assert compiled.statistics().native == 3


def test_a_result_that_lies_on_the_host_is_no_programs():
    compiled = od.compile(lambda x: (x * 2.0, ops.sum(np.ones(3))), warn=False)
    x = od.Variable(X, device=DEVICE)
    for _ in range(3):
        on_device, on_host = compiled(x)
    assert is_on_device(on_device)
    assert not is_on_device(on_host)
    assert "it returns a float64 on cpu" in str(compiled.explain(x))


def test_gradients_that_are_returned_are_those_that_are_left():
    w = leaf(X, DEVICE)

    @od.compile(fullgraph=True)
    def step(x):
        with GradientTape() as tape:
            loss = ops.tanh(x * w).sum()
        tape.backward(loss)
        return loss, w.grad

    for k in range(1, 5):
        _, grad = step(constant(X, DEVICE))
        assert grad is w.grad
        np.testing.assert_allclose(host(grad), k * X / np.cosh(X * X) ** 2, rtol=1e-14)
    assert step.statistics().native == 3
