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
            largest = np.abs(other[np.isfinite(other)]).max(initial=0)
            np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * largest)
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


# ------------------------------------------------------------------ shapes, dtypes, special numbers


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1,), (2, 0, 3)], ids=str)
def test_arrays_without_axes_or_elements(shape):
    def function(x):
        y = ops.exp(x) * 2.0
        turned = y.T @ y if len(shape) == 2 else y - 1.0
        return y, ops.sum(x), turned, od.grad(lambda x: (x * x).sum())(x), ops.reshape(y, (-1,))

    assert_as_on_the_host(function, np.ones(shape))


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u1", "u2", "u8"])
def test_whole_numbers(dtype):
    def function(x):
        return x + x, x * 3, x // 2, x % 3, ~x, x > 1, x / 2, ops.sum(x, axis=0), ops.cumsum(x)

    assert_as_on_the_host(function, np.arange(-6, 6).reshape(3, 4).astype(dtype))


def test_truth_values():
    def function(x):
        return ~x, x & x[::-1], x | x[:1], x ^ x[::-1], ops.any(x, axis=0), ops.sum(x), x * 2

    assert_as_on_the_host(function, X > 0)


def test_complex_numbers():
    def function(x):
        y = x * (2.0 - 1j) + ops.conj(x)
        return y, y @ y.T, ops.sum(y, axis=0), ops.real(y), ops.absolute(y), x / y

    assert_as_on_the_host(function, X + 1j * X[::-1], rtol=1e-13)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nan_infinity_and_signed_zeros(dtype):
    def function(x):
        found = [x + 1, x * x, x - x, ops.exp(x), ops.log(x), ops.sqrt(x), ops.sum(x), ops.max(x)]
        found += [ops.min(x), ops.isnan(x), ops.cumsum(x), ops.argmax(x, axis=1), ops.sign(x)]
        return [*found, x @ x.T, ops.maximum(x, 0.5), 1.0 / x]

    x = np.array([[np.nan, np.inf, -np.inf, 0.0], [-0.0, 1e38, -1e-40, 1.0]], dtype)
    with np.errstate(all="ignore"):
        assert_as_on_the_host(function, x, rtol=3e-7 if dtype == "f4" else 1e-14)


def test_a_padded_constant_of_the_device():
    c = od.Variable(X, device=DEVICE)
    compiled = od.compile(lambda x: x + ops.pad(c, 1, mode="edge"), fullgraph=True)
    for _ in range(3):
        found = compiled(constant(np.ones(()), DEVICE))
    np.testing.assert_array_equal(found.numpy(), np.pad(X, 1, mode="edge") + 1.0)
