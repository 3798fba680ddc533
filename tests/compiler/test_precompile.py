"""Precompilation: the program that a second call would compile, before the first."""

import tracemalloc

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import CompileError, DeviceMemoryError, OdysseyError
from odyssey.tree import leaves

SPEC = od.Spec((4, 3), np.float64)
X = np.arange(12.0).reshape(4, 3)
HOLDS_ITSELF = []
HOLDS_ITSELF.append(HOLDS_ITSELF)


def training(make_optimizer):
    """Return a parameter, its optimizer, and a step on an array of 4 by 3."""
    w = Variable(np.linspace(0.1, 0.6, 6).reshape(3, 2), requires_grad=True)
    optimizer = make_optimizer([w])

    def step(x):
        with GradientTape() as tape:
            loss = ((x @ w) ** 2).mean()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return w, optimizer, step


def test_the_first_call_runs_the_program():
    compiled = od.compile(lambda x: (x * 2.0).sum())
    compiled.precompile(SPEC)
    assert compiled.statistics() == (1, 0, 0)
    assert compiled(X) == 132.0
    assert compiled.statistics() == (1, 1, 0)


def test_arrays_and_specs_are_equivalent():
    compiled = od.compile(lambda x: x * 2.0)
    compiled.precompile(X)
    compiled.precompile(SPEC)
    assert compiled.statistics().programs == 1


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda params: od.optim.SGD(params, 0.1),
        lambda params: od.optim.SGD(params, 0.1, momentum=0.9),
        lambda params: od.optim.Adam(params, 0.1),
        lambda params: od.optim.RMSprop(params, 0.1),
    ],
    ids=["SGD", "momentum", "Adam", "RMSprop"],
)
def test_a_training_step_changes_nothing_and_then_equals_the_eager_one(make_optimizer):
    w, _, step = training(make_optimizer)
    before = w.numpy().copy()
    compiled = od.compile(step)
    compiled.precompile(SPEC)
    np.testing.assert_array_equal(w.numpy(), before)
    assert w.grad is None
    other, _, eager = training(make_optimizer)
    for _ in range(3):
        np.testing.assert_allclose(float(compiled(X)), float(eager(X)), rtol=1e-13)
    np.testing.assert_allclose(w.numpy(), other.numpy(), rtol=1e-13)
    assert compiled.statistics() == (1, 3, 0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(),
        lambda x: x * 2.0,
        lambda x: (x.mean(axis=0), {"a": x.max(), "b": [x + 1.0, 3.0, None, "text"]}),
        lambda x: Variable(x) * 2.0,
        lambda x: (Variable(x) * 2.0).sum(),
        lambda x: x.mean() * 2.0 + 1.0,
        lambda x: x[1, 2] + x[0, 0],
    ],
    ids=["sum", "array", "tree", "Variable", "Variable without axes", "chain", "items"],
)
def test_results_are_of_the_kinds_that_an_eager_call_returns(function):
    compiled = od.compile(function)
    compiled.precompile(SPEC)
    got, expected = compiled(X), function(X)
    assert compiled.statistics().written == 0
    for one, other in zip(leaves(got), leaves(expected), strict=True):
        assert type(one) is type(other)
        if isinstance(one, Variable):
            assert type(one._array) is type(other._array)
            assert one._recording is other._recording
        if hasattr(other, "shape"):
            np.testing.assert_allclose(np.asarray(one.data), np.asarray(other.data), rtol=1e-13)


def test_static_parameters_have_their_program():
    compiled = od.compile(lambda x, n: x * n, static="n")
    compiled.precompile(SPEC, 3)
    np.testing.assert_array_equal(compiled(X, 3), X * 3)
    assert compiled.statistics() == (1, 1, 0)


def test_a_program_for_all_sizes_is_precompiled_at_one():
    compiled = od.compile(
        lambda x: (x * 2.0).sum(axis=0), dynamic={"x": {0: od.Dim("batch", 1, 100)}}
    )
    compiled.precompile(od.Spec((7, 3), np.float64))
    for size in (7, 9, 31):
        np.testing.assert_array_equal(compiled(np.ones((size, 3))), [2.0 * size] * 3)
    assert compiled.statistics() == (1, 3, 0)


def test_a_program_whose_guards_fail_is_compiled_anew():
    scale = [2.0]
    compiled = od.compile(lambda x: x * scale[0])
    compiled.precompile(SPEC)
    scale[0] = 3.0
    compiled.precompile(SPEC)
    np.testing.assert_array_equal(compiled(X), X * 3.0)
    assert compiled.statistics() == (2, 1, 0)


def test_what_cannot_be_compiled_raises_with_cause_and_place():
    log = [1]

    def logs(x):
        log[0] = x.shape
        log.append(log[0])
        return x * 2.0

    compiled = od.compile(logs)
    with pytest.raises(CompileError, match=r"logs runs eagerly, since it writes to a list"):
        compiled.precompile(SPEC)
    assert log == [1]
    np.testing.assert_array_equal(compiled(X), X * 2.0)


def test_writes_to_objects_that_each_run_repeats_are_precompiled():
    class Trainer:
        def __init__(self):
            self.steps, self.last, self.losses, self.best = 0, None, [], {}
            self.w = Variable(np.array([1.0, 2.0, 3.0]), requires_grad=True)
            self.optimizer = od.optim.SGD([self.w], 0.1, momentum=0.9)

        def step(self, x):
            self.steps += 1
            with GradientTape() as tape:
                loss = ((x * self.w) ** 2).sum()
            tape.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(loss.detach())
            self.best["scaled"] = x * 2.0
            self.last = x.sum()
            return loss

    ours, theirs = Trainer(), Trainer()
    compiled = od.compile(ours.step)
    compiled.precompile(SPEC)
    assert (ours.steps, ours.last, ours.losses, ours.best) == (0, None, [], {})
    for count in range(1, 4):
        found, wanted = compiled(X), theirs.step(X)
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-14)
        assert ours.steps == count
        assert type(ours.last) is type(theirs.last)
        assert [type(loss) for loss in ours.losses] == [type(loss) for loss in theirs.losses]
        np.testing.assert_allclose(
            [float(v) for v in ours.losses], [float(v) for v in theirs.losses], rtol=1e-14
        )
        np.testing.assert_array_equal(ours.best["scaled"], X * 2.0)
    assert compiled.statistics() == (1, 3, 0)


def test_an_error_of_the_trace_is_the_cause():
    def fails(x):
        raise KeyError("missing")

    with pytest.raises(CompileError, match="missing") as caught:
        od.compile(fails).precompile(SPEC)
    assert isinstance(caught.value.__cause__, KeyError)


def test_inside_a_tape_nothing_is_precompiled():
    compiled = od.compile(lambda x: x * 2.0)
    with GradientTape(), pytest.raises(CompileError, match="inside an open tape"):
        compiled.precompile(SPEC)


def test_a_memory_limit_holds():
    compiled = od.compile(lambda x: (x @ x.T).sum(axis=0), memory_limit=100)
    with pytest.raises(DeviceMemoryError):
        compiled.precompile(od.Spec((100, 3), np.float64))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2,), "no dtype"),
        ((2,), None),
        ((2,), object),
        ((2,), HOLDS_ITSELF),
        ((-1,), float),
        ((1.5,), float),
        ((HOLDS_ITSELF,), float),
    ],
    ids=["word", "None", "object", "list", "negative", "fraction", "no length"],
)
def test_a_spec_refuses_what_no_array_has(shape, dtype):
    with pytest.raises(OdysseyError, match="Spec: "):
        od.Spec(shape, dtype)


def test_a_spec_takes_what_numpy_makes_a_dtype_of():
    assert od.Spec((2,), "f4") == od.Spec((2,), np.float32) == od.Spec((2,), np.dtype("float32"))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x * 2.0] * 2,
        lambda x: (y := x * 2.0, y.T),
        lambda x: (x, x * 2.0),
        lambda x: (x.T, x * 2.0),
        lambda x: (x * 2.0, x * 2.0),
    ],
    ids=["one object", "a view", "an argument", "a view of an argument", "equal values"],
)
def test_results_share_memory_as_those_of_an_eager_call_do(function):
    compiled = od.compile(function)
    compiled.precompile(SPEC)
    (a, b), (one, other) = compiled(X), function(X)
    assert compiled.statistics().written == 0
    assert (a is b) == (one is other)
    assert (a is X) == (one is X)
    assert np.shares_memory(a, b) == np.shares_memory(one, other)
    assert np.shares_memory(a, X) == np.shares_memory(one, X)


ROWS, ZERO_D, VECTOR = np.arange(6.0).reshape(3, 2), np.array(2.0), np.arange(3.0)
VIEWS_AND_SCALARS = {
    "a row": (lambda x: x[0], ROWS),
    "an element": (lambda x: x[0], VECTOR),
    "all": (lambda x: x[...], ROWS),
    "a new axis": (lambda x: x[:, None], VECTOR),
    "a view of a view": (lambda x: x[1:][0], ROWS),
    "two views": (lambda x: (x[1:], x[:1], x * 2), ROWS),
    "chosen rows": (lambda x: x[[0, 1]], ROWS),
    "ops.getitem": (lambda x: ops.getitem(x, 0), ROWS),
    "np.where without axes": (lambda x: np.where(x > 0, x, 0.0), ZERO_D),
    "ops.where without axes": (lambda x: ops.where(x > 0, x, 0.0), ZERO_D),
    "astype without axes": (lambda x: x.astype(np.float32), ZERO_D),
    "ops.astype without axes": (lambda x: ops.astype(x, np.float32), ZERO_D),
    "astype without a copy": (lambda x: x.astype(np.float64, copy=False), VECTOR),
    "astype": (lambda x: x.astype(np.float64), VECTOR),
    "split": (lambda x: np.split(x, 3), VECTOR),
    "flip": (lambda x: np.flip(x), ROWS),
    "diagonal": (lambda x: np.diagonal(x), ROWS),
    "real": (lambda x: x.real, VECTOR * 1j),
    "imag": (lambda x: x.imag, VECTOR * 1j),
    "conj": (lambda x: x.conj(), VECTOR),
    "ravel": (lambda x: x.ravel(), ROWS),
    "flatten": (lambda x: x.flatten(), ROWS),
    "one axis": (lambda x: np.atleast_1d(x), ZERO_D),
    "negative": (lambda x: -x, ZERO_D),
    "sum": (lambda x: x.sum(), VECTOR),
}


def described(result, x):
    """Describe what a caller may see of a result: types, flags, and memory of the argument."""
    if isinstance(result, (tuple, list)):
        return [type(result), *[described(part, x) for part in result]]
    if not isinstance(result, np.ndarray):
        return type(result)
    shares = np.shares_memory(result, x)
    return result.shape, result.dtype, result.flags.writeable, shares, result is x


def test_the_first_call_returns_what_an_eager_run_returns():
    for name, (function, x) in VIEWS_AND_SCALARS.items():
        compiled = od.compile(function)
        compiled.precompile(x)
        found, wanted = compiled(x), function(x)
        assert compiled.statistics() == (1, 1, 0), name
        assert described(found, x) == described(wanted, x), name
        for one, other in zip(leaves([found]), leaves([wanted]), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)


def test_a_captured_view_is_returned_itself():
    base = np.arange(6.0).reshape(2, 3)
    view = base[0]
    compiled = od.compile(lambda x: (view, x * 2.0))
    compiled.precompile(od.Spec((3,), np.float64))
    assert compiled(VECTOR)[0] is view
    assert compiled.statistics() == (1, 1, 0)


def test_a_spec_stands_for_an_array_wherever_a_program_is_shown():
    compiled = od.compile(lambda x: (x * 2.0).sum(axis=0))
    assert str(compiled.lower(SPEC).graph) == str(compiled.lower(X).graph)
    assert compiled.estimate_memory_requirements(SPEC) == compiled.estimate_memory_requirements(X)
    compiled.precompile(SPEC)
    assert str(compiled.explain(SPEC)) == str(compiled.explain(X))
    assert str(compiled.code(SPEC)) == str(compiled.code(X))


@pytest.mark.slow
def test_precompiling_makes_no_copies_of_large_states():
    w = Variable(np.ones((4096, 1024)))
    compiled = od.compile(lambda x: (x @ w)[0])
    tracemalloc.start()
    try:
        compiled.precompile(od.Spec((1, 4096), np.float64))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < w.data.nbytes / 2


def test_a_loop_is_not_run_on_stand_ins_whose_steps_would_be_none_or_never_end():
    x = np.arange(6.0)

    def times(x, n):
        return od.while_loop(lambda c: c[1] < n, lambda c: (c[0] * 2.0, c[1] + 1), (x, n * 0))

    compiled = od.compile(times)
    compiled.precompile(x, np.array(0))  # of no steps, which would return x itself
    for n in (0, 3, 1):
        got, steps = compiled(x, np.array(n))
        np.testing.assert_array_equal(got, x * 2.0**n)
        assert (steps, type(steps)) == (n, np.int64)
        assert not np.shares_memory(got, x)
    assert compiled.statistics().written == 0

    @od.compile
    def halvings(x):  # of zeros it would never end
        return od.while_loop(lambda c: c[0] < 1.0, lambda c: (c[0] * 2.0, c[1] + 1), (x, 0))[1]

    halvings.precompile(od.Spec((), np.float64))
    assert halvings(np.array(0.125)) == 3
