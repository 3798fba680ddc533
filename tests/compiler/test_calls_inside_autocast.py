"""Compiled functions inside ``od.autocast``: the mode is part of what a program is made for."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
W = np.array([[0.5, -1.25], [1.1, 0.3], [-0.7, 2.2]], np.float32)
MODES = ("float16", "bfloat16", "tf32", None)


def weight():
    return Variable(W.copy(), requires_grad=True)


def hidden(w):
    return lambda x: ops.softmax(ops.tanh(x @ w) @ W.T)


def test_each_mode_has_a_program_with_the_results_of_eager_calls():
    w = weight()
    fn = hidden(w)
    step = od.compile(fn, fullgraph=True)
    for _ in range(4):
        for mode in MODES:
            with od.autocast(mode):
                found, expected = step(X), fn(X)
            assert found.dtype == expected.dtype == np.float32
            assert found.requires_grad
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-3)
    count = step.statistics()
    assert count.programs == 4  # one of them for tf32, and none for None
    assert count.native == 12
    with od.autocast("float16"):
        halves = step(X).numpy()
    assert np.abs(halves - step(X).numpy()).max() > 1e-6


def test_a_block_that_is_turned_off_runs_the_program_without_one():
    w = weight()
    step = od.compile(lambda x: x @ w, fullgraph=True)
    for _ in range(3):
        assert step(X).dtype == np.float32
        with od.autocast("float16"), od.autocast(None):
            assert step(X).dtype == np.float32
    assert step.statistics().programs == 1


def test_inside_no_grad_results_are_constants_of_the_mode():
    w = weight()
    step = od.compile(lambda x: x @ w, fullgraph=True)
    for outer, inner in ((od.no_grad(), od.autocast("float16")),) * 3:
        with outer, inner:
            found = step(X)
        assert found.dtype == np.float16
        assert not found.requires_grad
        with od.autocast("float16"), od.no_grad():
            assert not step(X).requires_grad
        with od.autocast("float16"):
            assert step(X).requires_grad
    assert step.statistics().programs == 2


def test_an_open_tape_records_an_eager_call():
    w = weight()
    step = od.compile(lambda x: (x @ w).sum(), warn=False)
    for _ in range(3):
        with od.autocast("float16"), GradientTape() as tape:
            loss = step(X)
        gradient = tape.gradient(loss, w)
        assert gradient.dtype == np.float32
        np.testing.assert_allclose(gradient, np.repeat(X.sum(0)[:, None], 2, 1), atol=2e-3)


@pytest.mark.parametrize("mode", ["float16", "bfloat16"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_training_step_has_the_losses_and_parameters_of_eager_steps(mode, inside):
    found = []
    for compiles in (True, False):
        w = weight()
        optimizer = od.optim.Adam([w], 0.05)

        def step(x, w=w, optimizer=optimizer):
            with GradientTape() as tape, od.autocast(mode if not inside else None):
                loss = od.losses.cross_entropy(x @ w, np.array([0, 1, 1, 0]))
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        if inside:
            step = od.autocast(mode)(
                lambda x, w=w, optimizer=optimizer: _step_in_block(x, w, optimizer)
            )
        run = od.compile(step, fullgraph=True) if compiles else step
        losses = [run(X).item() for _ in range(6)]
        if compiles:
            assert run.statistics().native == 5
        found.append((losses, w.numpy().copy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=2e-3)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=2e-3, atol=1e-4)


def _step_in_block(x, w, optimizer):
    with GradientTape() as tape:
        loss = od.losses.cross_entropy(x @ w, np.array([0, 1, 1, 0]))
    tape.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def test_blocks_that_a_function_enters_or_is_decorated_with_are_part_of_its_program():
    w, block = weight(), od.autocast("float16")

    @od.compile(fullgraph=True)
    def step(x):
        with block:
            return x @ w

    for mode in ("float16", "bfloat16"):
        block = od.autocast(mode)
        for _ in range(3):
            assert step(X).dtype.name == mode
    decorated = od.compile(od.autocast("float16")(lambda x: x @ w), fullgraph=True)
    for _ in range(3):
        assert decorated(X).dtype == np.float16
    assert (step.statistics().programs, decorated.statistics().native) == (2, 2)


def test_precompiled_in_a_mode_and_cleared():
    w = weight()
    step = od.compile(lambda x: x @ w)
    with od.autocast("float16"):
        step.precompile(X)
        assert step(X).dtype == np.float16
    assert step.statistics() == (1, 1, 0)
    step.clear_cache()
    assert step(X).dtype == np.float32


def test_all_sizes_of_a_dimension_and_methods_keep_the_mode():
    w = weight()
    step = od.compile(lambda x: x @ w, dynamic={"x": {0: od.Dim("rows")}})
    for rows in (2, 3, 4, 3):
        with od.autocast("float16"):
            found = step(X[:rows])
        np.testing.assert_allclose(found.numpy(), X[:rows] @ W, atol=2e-3)
        assert found.dtype == np.float16
        assert step(X[:rows]).dtype == np.float32


def test_the_rule_of_an_optimizer_is_not_cast():
    found = []
    for compiles in (True, False):
        w = weight()
        optimizer = od.optim.Muon([w], learning_rate=0.05)  # whose rule multiplies matrices

        @od.autocast("bfloat16")
        def step(x, w=w, optimizer=optimizer):
            return _step_in_block(x, w, optimizer)

        run = od.compile(step, fullgraph=True) if compiles else step
        for _ in range(4):
            run(X)
        found.append(w.numpy().copy())
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_what_is_said_of_a_program_is_of_the_program_of_the_mode():
    step = od.compile(lambda x: x @ W, fullgraph=True)
    x = Variable(X)
    with od.autocast("float16"):
        assert "not called" in step.explain(x)
        step(x), step(x)
        assert "astype" in step.explain(x)
        assert "half" in step.code(x)
        assert [kernel.what for kernel in step.profile(x, runs=1).kernels].count("astype")
        assert step.plan(x) == od.Plan([])
    assert "not called" in step.explain(x)
    with pytest.raises(od.errors.SettingError, match=r"code: .* has no program"):
        step.code(x)


def sweep_outside(w):
    with GradientTape() as tape, od.autocast("tf32"):
        loss = ops.exp(X @ w).sum()
    return tape.gradient(loss, w)


def sweep_inside(w):
    with od.autocast("tf32"), GradientTape() as tape:
        return tape.gradient(ops.exp(X @ w).sum(), w)


def one_of_two(w):
    with od.autocast("tf32"):
        h = X @ w
    return h @ w.T


def turned_off(w):
    with od.autocast(None):
        return X @ w


def in_examples(w):
    return od.vmap(lambda x: od.autocast("tf32")(lambda: x @ w)())(X)


def in_a_branch(w):
    return od.cond(w.sum() > 0, lambda w: X @ w, lambda w: -X @ w, w)


@pytest.mark.parametrize(
    ("fn", "outside", "inside"),
    [
        (lambda w: X @ w, False, True),
        (lambda w: w * 2.0, None, None),
        (sweep_outside, False, True),
        (sweep_inside, True, True),
        (one_of_two, False, True),
        (turned_off, False, False),
        (in_examples, True, True),
        (in_a_branch, False, True),
    ],
    ids=["product", "none", "sweep outside", "sweep", "one of two", "off", "vmap", "branch"],
)
def test_a_graph_says_whether_all_of_its_products_may_be_in_tf32(fn, outside, inside):
    w = weight()
    assert od.compile(fn).lower(w).graph.tf32 is outside
    with od.autocast("tf32"):
        assert od.compile(fn).lower(w).graph.tf32 is inside
