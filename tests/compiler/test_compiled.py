"""A compiled function gives what the function gives, and so does the graph that it is traced to."""

import copy
import pickle

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler import compiled_function
from odyssey.errors import DTypeError, MissingGradientError, ShapeError, TapeError
from odyssey.optim import SGD
from odyssey.variable import numpy_calls


class Digits:
    """A two-layer network with its optimizer, and one training step that captures both."""

    def __init__(self, momentum=0.9, dtype=np.float64):
        rng = np.random.default_rng(0)
        values = {
            "w1": rng.normal(0, 0.1, (64, 32)),
            "b1": np.zeros(32),
            "w2": rng.normal(0, 0.1, (32, 10)),
            "b2": np.zeros(10),
        }
        self.params = {
            name: Variable(value.astype(dtype), requires_grad=True, name=name)
            for name, value in values.items()
        }
        self.optimizer = SGD(self.params, learning_rate=0.1, momentum=momentum)

    def step(self, x, y):
        p = self.params
        with GradientTape() as tape:
            hidden = ops.relu(x @ p["w1"] + p["b1"])
            loss = od.losses.cross_entropy(hidden @ p["w2"] + p["b2"], y)
        tape.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def numbers(self):
        return {name: p.numpy().copy() for name, p in self.params.items()}


def batches(count, dtype=np.float64):
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield rng.normal(size=(16, 64)).astype(dtype), rng.integers(0, 10, 16)


def assert_same(one, other):
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def assert_near(one, other):
    """Alike but for the order of sums of at most 64 products, relative to the largest."""
    for name in one:
        bound = 64 * np.finfo(one[name].dtype).eps * np.abs(one[name]).max()
        np.testing.assert_allclose(other[name], one[name], rtol=0, atol=bound, err_msg=name)


# ------------------------------------------------------------------ a whole training step


def test_the_graph_of_a_training_step_holds_forward_backward_and_update():
    net = Digits()
    text = str(od.compile(net.step).lower(*next(batches(1))).graph)
    for name in ("w1", "b1", "w2", "b2"):
        assert f"= {name}\n" in text  # parameters are state that the graph reads
        assert f"  {name} <- %" in text  # and leaves updated
        assert f"{name}.velocity <- %" in text
    for op in ("matmul", "relu", "softmax_cross_entropy(", "softmax_cross_entropy_slope(", "sum"):
        assert op in text
    assert text.count("= subtract(") == 4  # one update for each parameter
    assert "return %" in text


def test_lowering_computes_nothing_and_changes_no_variable():
    net = Digits()
    before = net.numbers()
    with od.testing.count_kernels() as counts:
        od.compile(net.step).lower(*next(batches(1)))
    assert not counts
    assert_same(before, net.numbers())
    assert all(p.grad is None for p in net.params.values())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("momentum", [0.0, 0.9], ids=["plain", "momentum"])
def test_a_compiled_training_step_equals_the_eager_one(momentum, dtype):
    eager, compiled = Digits(momentum, dtype), Digits(momentum, dtype)
    step = od.compile(compiled.step)
    for x, y in batches(5, dtype):
        loss = float(eager.step(x, y))
        assert float(step(x, y)) == pytest.approx(loss, rel=float(64 * np.finfo(dtype).eps))
        assert_near(eager.numbers(), compiled.numbers())
    assert all(p.grad is None for p in compiled.params.values())
    assert step.statistics() == (1, 4, 1)


def test_eager_and_compiled_steps_may_alternate():
    eager, mixed = Digits(), Digits()
    step = od.compile(mixed.step)
    for k, (x, y) in enumerate(batches(6)):
        eager.step(x, y)
        (step if k % 2 else mixed.step)(x, y)
    assert_near(eager.numbers(), mixed.numbers())


def test_a_gradient_that_the_function_leaves_is_left_by_the_program():
    w = Variable([1.0, 2.0], requires_grad=True)

    @od.compile
    def sweep(x):
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)

    sweep(np.array([3.0, 4.0]))
    assert w.grad.tolist() == [3.0, 4.0]


def test_a_gradient_adds_up_over_runs_like_eager_ones():
    w = Variable([1.0, 2.0], requires_grad=True)

    def sweep(x):
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)

    x = np.array([3.0, 4.0])
    sweep(x)
    compiled = od.compile(sweep)
    lowered = compiled.lower(x)
    compiled(x)
    compiled(x)
    assert w.grad.tolist() == [9.0, 12.0]
    w.zero_grad()
    with pytest.raises(MissingGradientError, match="lower it again"):
        lowered.evaluate(x)
    compiled(x)
    assert w.grad.tolist() == [3.0, 4.0]


# ------------------------------------------------------------------ functions


def test_new_shapes_are_traced_anew_and_known_ones_are_not(monkeypatch):
    traced = []
    trace = compiled_function.try_trace
    monkeypatch.setattr(
        compiled_function, "try_trace", lambda *a, **k: traced.append(a[1]) or trace(*a, **k)
    )

    @od.compile
    def double(x):
        return x * 2.0

    for size in (2, 3, 2, 3, 3):
        assert double(np.ones(size)).tolist() == [2.0] * size
    assert [x.shape for (x,) in traced] == [(2,), (3,)]


def test_arguments_and_results_are_trees():
    @od.compile
    def swap(pair, scale):
        return {"first": pair[1] * scale, "second": pair[0] + 1.0}

    result = swap((np.array([1.0]), np.array([2.0, 3.0])), 10.0)
    assert result["first"].tolist() == [20.0, 30.0]
    assert result["second"].tolist() == [2.0]


def test_a_second_derivative_is_traced():
    def curvature(x):
        with GradientTape() as outer:
            x = outer.watch(Variable(np.array([1.0, 2.0, 3.0]), requires_grad=True) * x)
            with GradientTape() as inner:
                y = (x**3).sum()
            slope = inner.gradient(y, x)
        return outer.gradient(slope, x, np.ones(3))

    factor = np.array([1.0, -1.0, 2.0])
    np.testing.assert_allclose(od.compile(curvature)(factor), 6 * np.array([1.0, -2.0, 6.0]))


def test_constants_are_copied_into_the_graph_and_read_at_each_run():
    offset = np.array([1.0, 2.0])
    add = od.compile(lambda x: x + offset)
    lowered = add.lower(np.zeros(2))
    assert add(np.zeros(2)).tolist() == [1.0, 2.0]
    offset[...] = 100.0
    assert add(np.zeros(2)).tolist() == [100.0, 100.0]
    assert lowered.evaluate(np.zeros(2))[0].tolist() == [1.0, 2.0]


def test_states_that_read_one_another_are_written_together():
    a, b = Variable([1.0], name="a"), Variable([2.0], name="b")

    @od.compile
    def exchange():
        old = a * 1.0
        a.assign(b * 1.0)
        b.assign(old)

    exchange()
    assert (a.item(), b.item()) == (2.0, 1.0)


def test_what_a_graph_returns_shares_memory_with_no_state():
    w = Variable([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    transposed, _ = od.compile(lambda: w.T).lower().evaluate()
    w.assign(np.zeros((2, 2)))
    assert np.asarray(transposed).tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_functions_of_numpy_take_a_traced_array_as_an_operand_from_the_first_call_on():
    ufuncs = [np.add, np.hypot, np.logaddexp, np.fmax, np.maximum, np.divide, np.arctan2]
    for ufunc in ufuncs:
        numpy_calls.UFUNC_CALLS.pop(ufunc, None)
        x, ones = np.array([0.5, 2.0]), np.ones((3, 2))
        for args in (lambda x, y: (x, y), lambda x, y: (y, x)):
            graph = od.compile(lambda x, f=ufunc, a=args, y=ones: f(*a(x, y))).lower(x)
            expected = ufunc(*args(x, ones))
            np.testing.assert_allclose(graph.evaluate(x)[0], expected, rtol=1e-15)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "fn",
    [lambda x: x if x.sum() > 0 else -x, lambda x: float(x[0]), np.asarray],
    ids=["branch", "number", "array"],
)
def test_python_cannot_ask_a_traced_value_for_its_number(fn):
    with pytest.raises(TapeError, match="traced"):
        od.compile(fn)(np.ones(2))


def test_a_lowered_function_refuses_another_shape():
    lowered = od.compile(lambda x: x + 1.0).lower(np.ones(2))
    with pytest.raises(ShapeError, match=r"float64\[2\].*float64\[3\]"):
        lowered(np.ones(3))


def test_an_argument_that_can_be_no_key_is_refused():
    with pytest.raises(DTypeError, match="set"):
        od.compile(lambda x, names: x)(np.ones(2), {1, 2})


def test_a_shape_error_inside_names_the_op():
    multiply = od.compile(lambda x, y: ops.matmul(x, y))
    for call in (multiply, multiply.lower):
        with pytest.raises(ShapeError, match="matmul: inner sizes differ"):
            call(np.ones((2, 3)), np.ones((2, 3)))


def test_an_error_while_tracing_leaves_no_trace_behind():
    w = Variable([1.0], requires_grad=True)
    w.grad = np.array([5.0])

    def fail(x):
        w.zero_grad()
        raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        od.compile(fail).lower(np.ones(1))
    assert w.grad.tolist() == [5.0]
    with pytest.raises(RuntimeError, match="halfway"):
        od.compile(fail)(np.ones(1))
    assert w.grad is None  # as the function leaves it
    assert (w * 2.0).numpy().tolist() == [2.0]


@od.compile
def doubled(x):
    return x * 2.0


@od.compile(static="n")
def raised(x, n):
    return x**n


class Doubling:
    """A class one of whose methods is compiled."""

    @od.compile
    def doubled(self, x):
        return x * 2.0


@pytest.mark.parametrize("fn", [doubled, raised, Doubling.doubled], ids=repr)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_was_decorated_is_pickled_by_its_name_as_functions_are(fn, protocol):
    assert pickle.loads(pickle.dumps(fn, protocol)) is fn
    assert copy.deepcopy(fn) is copy.copy(fn) is fn


def test_what_is_compiled_under_another_name_is_pickled_with_its_function():
    other = od.compile(shown)
    other(np.ones(2)), other(np.ones(2))
    found = pickle.loads(pickle.dumps(other))
    assert found is not other
    assert found.statistics() == (0, 0, 0)
    np.testing.assert_array_equal(found(np.ones(2)), [3.0, 3.0])


def shown(x):
    return x * 3.0


def test_a_function_whose_optimizer_is_made_anew_gets_a_program_for_each():
    x, now = np.arange(3.0), []

    @od.compile
    def step(x):
        w, optimizer = now
        with GradientTape() as tape:
            loss = ((w - x) ** 2).sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for fold in range(5):
        w = Variable(np.full(3, float(fold)), requires_grad=True)
        now[:] = w, od.optim.SGD([w], 0.25, momentum=0.5)
        wanted, velocity = np.full(3, float(fold)), 0.0
        for _ in range(5):
            assert step(x).item() == pytest.approx(((wanted - x) ** 2).sum(), rel=1e-12)
            velocity = 0.5 * velocity + 2 * (wanted - x)
            wanted = wanted - 0.25 * velocity
        np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-12)
        assert step.statistics().programs == fold + 1


@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_a_call_that_raises_keeps_no_later_one_from_being_native(bad):
    w = Variable(np.ones(3), requires_grad=True)
    step = od.compile(SGD([w], 0.5).step)
    for k in range(6):
        if k == bad:
            with pytest.raises(MissingGradientError):
                step()
        w.grad = np.ones(3)
        step()
        w.zero_grad()
    np.testing.assert_array_equal(w.numpy(), np.full(3, 1.0 - 6 * 0.5))
    assert step.statistics().native >= 3
