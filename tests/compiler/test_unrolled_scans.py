"""Short scans are written into the program; long ones, and those with host calls, are called."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler import lowering

RNG = np.random.default_rng(0)


def compiled(fn, *args):
    """Return the result of a program for ``fn``, and the rows that it calls on the host."""
    function = od.compile(fn, fullgraph=True, check=True)
    eager = function(*args)
    got = function(*args)
    assert function.statistics().native == 1
    for one, other in zip(od.tree.leaves(eager), od.tree.leaves(got), strict=True):
        np.testing.assert_allclose(np.asarray(other), np.asarray(one), rtol=1e-6, atol=1e-12)
        assert np.asarray(one).dtype == np.asarray(other).dtype
    (entry,) = function._known.values()
    return got, set(entry.programs[0][1].executable.calls)


X = RNG.normal(size=4)
ROWS = RNG.normal(size=(5, 4))


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "u1"])
def test_steps_of_all_dtypes_equal_those_of_numpy(dtype):
    x, rows = (X * 10).astype(dtype), (ROWS * 10).astype(dtype)
    (carry, ys), calls = compiled(
        lambda x, rows: od.scan(lambda c, y: (c + y, c * y), x, rows), x, rows
    )
    expected, along = x.copy(), []
    for row in rows:
        along.append(expected * row)
        expected = expected + row
    assert not calls
    np.testing.assert_array_equal(carry, expected)
    np.testing.assert_array_equal(ys, along)


def test_trees_of_carries_and_columns_in_reverse_are_written_in():
    def step(carry, row):
        new = {"a": carry["a"] * row[0], "b": (carry["b"][0] + 1,)}
        return new, (carry["a"], row[1])

    def f(x, rows):
        return od.scan(step, {"a": x, "b": (np.zeros(3),)}, (rows, rows * 2), reverse=True)

    (carry, (before, columns)), calls = compiled(f, X, ROWS)
    assert not calls
    np.testing.assert_allclose(carry["a"], X * ROWS.prod(0), rtol=1e-12)
    np.testing.assert_array_equal(carry["b"][0], [5, 5, 5])
    np.testing.assert_array_equal(before[-1], X)
    np.testing.assert_array_equal(columns, ROWS * 2)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 2)], ids=str)
def test_steps_of_any_shape_are_written_in(shape):
    x, rows = RNG.normal(size=shape), RNG.normal(size=(3, *shape))
    (carry, ys), calls = compiled(
        lambda x, rows: od.scan(lambda c, y: (c * y + 1.0, y - c), x, rows), x, rows
    )
    assert not calls
    assert np.shape(carry) == shape
    assert ys.shape == (3, *shape)


def test_arrays_that_are_not_contiguous_are_read_as_they_lie():
    rows = np.arange(48.0).reshape(4, 12)[::-1, ::-3]
    x = np.arange(8.0)[::-2]
    (carry, ys), _ = compiled(lambda x, rows: od.scan(lambda c, y: (c - y, y), x, rows), x, rows)
    np.testing.assert_array_equal(carry, x - rows.sum(0))
    np.testing.assert_array_equal(ys, rows)


def test_scans_in_scans_are_written_in_while_they_are_short():
    def inner(c, _):
        return c * 0.5 + 1.0, None

    def outer(c, y):
        return od.scan(inner, c + y, None, length=3)[0], c

    (carry, _), calls = compiled(lambda x, rows: od.scan(outer, x, rows), X, ROWS)
    expected = X
    for row in ROWS:
        expected = (expected + row) / 8 + 1.75
    np.testing.assert_allclose(carry, expected, rtol=1e-12)
    assert calls <= {"scan"}


def test_gradients_of_all_orders_equal_those_of_the_closed_form():
    def power(x):  # x to the power of 4
        return od.scan(lambda c, _: (c * x, None), np.ones(4), None, length=4)[0].sum()

    gradient, calls = compiled(od.grad(power), X)
    assert not calls
    np.testing.assert_allclose(gradient, 4 * X**3, rtol=1e-12)
    hessian, _ = compiled(od.hessian(power), X)
    np.testing.assert_allclose(hessian, np.diag(12 * X**2), rtol=1e-12, atol=1e-14)
    (value, tangent), _ = compiled(lambda x: od.jvp(power, (x,), (np.ones(4),)), X)
    np.testing.assert_allclose(value, (X**4).sum(), rtol=1e-12)
    np.testing.assert_allclose(tangent, (4 * X**3).sum(), rtol=1e-12)


def test_a_training_step_of_a_short_scan_equals_gradient_descent():
    w = Variable(np.full(3, 0.5), requires_grad=True)
    optimizer = od.optim.SGD([w], 0.1)

    @od.compile(fullgraph=True)
    def step(x):
        with GradientTape() as tape:
            loss = od.scan(lambda c, _: (c * w, None), x, None, length=3)[0].sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    expected = np.full(3, 0.5)
    for _ in range(5):
        step(np.ones(3))
        expected = expected - 0.1 * 3 * expected**2
    assert step.statistics().native == 4
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12)


def test_a_step_that_refuses_its_data_raises_the_eager_error():
    def f(indices, x):
        return od.scan(lambda c, i: (c + ops.take(x, i), None), np.zeros(()), indices)[0]

    function = od.compile(f)
    for _ in range(3):
        assert function(np.array([0, 3, 1]), X) == pytest.approx(X[[0, 3, 1]].sum())
    with pytest.raises(od.errors.OutOfRangeError) as compiled_error:
        function(np.array([0, 9, 1]), X)
    with pytest.raises(od.errors.OutOfRangeError) as eager_error:
        f(np.array([0, 9, 1]), X)
    assert str(compiled_error.value) == str(eager_error.value)


def test_long_scans_and_steps_with_host_calls_stay_loops():
    def short(c, _):
        return c * 0.5 + 1.0, None

    def called(c, _):
        return od.linalg.det(np.eye(4) * 2) * od.linalg.det(np.eye(4) + c) + c, None

    for step, length, expected in ((short, 200, {"scan"}), (called, 2, {"scan"})):
        _, calls = compiled(lambda x, s=step, n=length: od.scan(s, x, None, length=n)[0], X)
        assert calls == expected


@pytest.mark.parametrize("most", [0, 10**4])
def test_a_scan_gives_the_same_whether_it_is_written_in_or_called(most, monkeypatch):
    def f(x, rows):
        return od.scan(lambda c, y: (np.sin(c) * y + c, np.exp(-(c**2))), x, rows)

    expected, _ = compiled(f, X, ROWS)
    monkeypatch.setattr(lowering, "_MAX_UNROLLED", most)
    (carry, ys), calls = compiled(f, X, ROWS)
    assert calls == ({"scan"} if most == 0 else set())
    np.testing.assert_allclose(carry, expected[0], rtol=1e-14)
    np.testing.assert_allclose(ys, expected[1], rtol=1e-14)


def test_the_bytes_that_are_estimated_are_those_of_the_program():
    function = od.compile(lambda x, rows: od.scan(lambda c, y: (c @ c.T + y, c), x, rows))
    x, rows = np.eye(8), np.ones((4, 8, 8))
    (said,) = function.estimate_memory_requirements(x, rows).values()
    for _ in range(3):
        function(x, rows)
    (entry,) = function._known.values()
    executable = entry.programs[0][1].executable
    results = 5 * x.nbytes
    assert not executable.calls
    assert said == int(executable.plan.arena) + results


def test_numbers_of_the_call_may_be_in_the_steps():
    @od.compile(fullgraph=True)
    def f(x, rate, n):
        return od.scan(lambda c, y: (c * rate + y * n, c - rate), x, ROWS)

    for rate, n in [(0.5, 2), (0.25, 3), (-1.5, 2), (0.0, -7)]:
        carry, ys = f(X, rate, n)
        expected, along = X, []
        for row in ROWS:
            along.append(expected - rate)
            expected = expected * rate + row * n
        np.testing.assert_allclose(carry, expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(ys, along, rtol=1e-12, atol=1e-14)
    assert f.statistics() == (1, 3, 1)
    (entry,) = f._known.values()
    assert not entry.programs[0][1].executable.calls


def test_a_carry_that_all_steps_pass_on_is_returned_as_by_a_loop():
    def f(x, rows, c):
        (kept, twice, number), ys = od.scan(
            lambda s, y: ((s[0], s[0], s[2]), y * s[2]), (x, x * 2, c), rows
        )
        return kept + 0.0, twice * 1.0, number, ys

    function = od.compile(f, fullgraph=True)
    for c in (0.5, 1.5, 2.5):
        kept, twice, number, ys = function(X, ROWS, c)
        np.testing.assert_array_equal(kept, X)
        np.testing.assert_array_equal(twice, X)
        assert number == c
        np.testing.assert_array_equal(ys, ROWS * c)
    assert function.statistics() == (1, 2, 1)


def test_what_a_carry_that_is_passed_on_shares_is_what_it_shares_in_a_loop(monkeypatch):
    def f(x, rows):
        return od.scan(lambda s, y: ((s[0], s[0]), y), (x, x), rows)[0]

    outcomes = []
    for most in (0, lowering._MAX_UNROLLED):
        monkeypatch.setattr(lowering, "_MAX_UNROLLED", most)
        function = od.compile(f, warn=False)
        outcomes.append([])
        for _ in range(3):
            one, other = function(X, ROWS)
            outcomes[-1].append((one is other, one is X, np.shares_memory(one, other)))
        outcomes[-1].append(function.statistics())
    assert outcomes[0] == outcomes[1]


def test_one_step_returns_no_view_of_its_columns():
    function = od.compile(lambda x, rows: od.scan(lambda s, y: (s, y), x, rows)[1], fullgraph=True)
    rows = ROWS[:1].copy()
    for _ in range(3):
        ys = function(X, rows)
        np.testing.assert_array_equal(ys, rows)
        assert not np.shares_memory(ys, rows)
    assert function.statistics().native == 2
