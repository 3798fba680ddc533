"""Compiled functions that are called inside ``no_grad`` run as programs; results are constants."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops

X = np.array([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.5]])


def weight():
    return Variable(np.array([[2.0, 0.0], [1.0, 3.0]]), requires_grad=True)


def test_an_evaluation_runs_as_a_program_and_gives_constants():
    w = weight()
    predict = od.compile(lambda x: ops.tanh(x @ w), fullgraph=True)
    with od.no_grad():
        for _ in range(4):
            y = predict(X)
            np.testing.assert_allclose(y.numpy(), np.tanh(X @ w.numpy()), rtol=1e-15)
            assert not y.requires_grad
        assert predict.statistics().native >= 2
        w.assign(w * 2)
        np.testing.assert_allclose(predict(X).numpy(), np.tanh(X @ w.numpy()), rtol=1e-15)
    assert predict.statistics().programs == 1


def test_calls_inside_and_outside_have_results_of_their_own_kind():
    w = weight()
    product = od.compile(lambda x: x @ w)
    for _ in range(3):
        outside = product(X)
        with od.no_grad():
            inside = product(X)
        eager = X @ w
        with od.no_grad():
            eager_inside = X @ w
        assert outside.requires_grad is eager.requires_grad is True
        assert inside.requires_grad is eager_inside.requires_grad is False
    assert product.statistics().programs == 2
    assert product.statistics().native == 4


def test_a_pause_inside_an_open_tape_records_nothing():
    w = weight()
    predict = od.compile(lambda x: (x @ w).sum())
    for _ in range(3):
        with GradientTape() as tape:
            with od.no_grad():
                value = predict(X)
            loss = (w * w).sum() + value
            nodes = len(tape)
        np.testing.assert_allclose(tape.gradient(loss, w), 2 * w.numpy())
        assert nodes == 3
    assert predict.statistics().native


def test_arguments_on_the_outer_tape_are_taken_by_an_eager_run():
    w = weight()
    double = od.compile(lambda y: y * 2, warn=False)
    for _ in range(3):
        with GradientTape() as tape:
            y = w * 1.0
            with od.no_grad():
                assert not double(y).requires_grad
            loss = y.sum()
        np.testing.assert_array_equal(tape.gradient(loss, w), np.ones((2, 2)))


def test_a_step_with_a_tape_of_its_own_trains_inside_no_grad():
    results = []
    for pause in (False, True):
        w = weight()
        optimizer = od.optim.Adam([w], 0.1)

        @od.compile
        def step(x, w=w, optimizer=optimizer):
            with GradientTape() as tape:
                loss = ((x @ w) ** 2).mean()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        for _ in range(4):
            if pause:
                with od.no_grad():
                    step(X)
            else:
                step(X)
        assert step.statistics().native >= 2
        results.append(w.numpy())
    np.testing.assert_array_equal(*results)


def test_running_statistics_move_and_methods_work():
    class Norm:
        def __init__(self):
            self.mean = Variable(np.zeros(2))
            self.calls = 0

        @od.compile
        def update(self, x):
            self.calls += 1
            self.mean.assign(0.5 * self.mean + 0.5 * x.mean(0))
            return x - self.mean

    norm, mean = Norm(), np.zeros(2)
    for count in range(1, 5):
        with od.no_grad():
            result = norm.update(X)
        mean = 0.5 * mean + 0.5 * X.mean(0)
        np.testing.assert_allclose(norm.mean.numpy(), mean, rtol=1e-15)
        np.testing.assert_allclose(np.asarray(result), X - mean, rtol=1e-15)
        assert norm.calls == count


def test_declared_sizes_static_arguments_and_limits_work_inside():
    w = weight()
    sized = od.compile(lambda x: x @ w, dynamic={"x": {0: od.Dim("n")}})
    static = od.compile(lambda x, k: (x @ w) * k, static="k")
    limited = od.compile(lambda x: x @ w, memory_limit=1 << 20)
    with od.no_grad():
        for n in (1, 2, 3, 2, 3):
            np.testing.assert_array_equal(sized(X[:n]).numpy(), X[:n] @ w.numpy())
            np.testing.assert_array_equal(static(X[:n], n).numpy(), X[:n] @ w.numpy() * n)
            np.testing.assert_array_equal(limited(X[:n]).numpy(), X[:n] @ w.numpy())
    assert sized.statistics().programs == 1


def test_precompiled_inside_no_grad():
    w = weight()
    product = od.compile(lambda x: x @ w)
    with od.no_grad():
        product.precompile(od.Spec((3, 2), np.float64))
        assert not product(X).requires_grad
        assert product.statistics().written == 0
    product(X)
    assert product.statistics().written == 1


def test_errors_leave_the_scopes_as_they_were():
    w = weight()

    def fail(x):
        raise ValueError("by the user")

    run = od.compile(fail, warn=False)
    with od.no_grad():
        for _ in range(3):
            with pytest.raises(ValueError, match="by the user"):
                run(X)
            assert not (w * 2).requires_grad
    assert (w * 2).requires_grad


def test_other_causes_of_an_eager_run_are_still_said_once():
    w = weight()

    def reports(x):
        print("called with", x.shape)
        return x @ w

    run = od.compile(reports)

    def evaluate():
        with od.no_grad():
            for _ in range(4):
                run(X)

    with pytest.warns(od.errors.CompileWarning, match="reports runs eagerly") as caught:
        evaluate()
    assert len(caught) == 1
    assert "since it uses print" in str(caught[0].message)


def test_a_copy_and_a_cleared_cache_begin_anew():
    import copy

    w = weight()
    product = od.compile(lambda x: x @ w)
    with od.no_grad():
        product(X)
        product(X)
        again = copy.copy(product)
        assert again.statistics().programs == 0
        product.clear_cache()
        assert not again(X).requires_grad
        assert not product(X).requires_grad
