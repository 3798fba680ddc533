"""A checkpointed function that closes over something that changed: noticed, or without effect."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import MutationError

X = np.array([0.5, -1.0, 2.0])


class Settings:
    """Something with attributes that a function reads."""

    def __init__(self, **values):
        self.__dict__.update(values)


def scale_of(holder):
    """A function that reads a number from ``holder`` and is even in it."""
    return lambda x: ops.sum((x * holder["k"]) ** 2)


# Each makes a function and how to change what it closes over. The results stay as they were; the
# derivative does not, or the ops do not.


def number():
    holder = {"k": 2.0}
    return scale_of(holder), lambda: holder.update(k=-2.0)


def integer():
    holder = {"k": 2}
    return scale_of(holder), lambda: holder.update(k=-2)


def numpy_number():
    holder = {"k": np.float32(2.0)}
    return scale_of(holder), lambda: holder.update(k=np.float32(-2.0))


def complex_number():
    holder = {"k": 1.0 + 1.0j}
    # |x k|² is that of the conjugate too.
    fn = lambda x: ops.sum(ops.absolute(x * holder["k"]) ** 2)  # noqa: E731
    return fn, lambda: holder.update(k=1.0 - 1.0j)


def array_in_place():
    k = np.array([2.0, 3.0, 4.0])
    return lambda x: ops.sum((x * k) ** 2), lambda: np.negative(k, out=k)


def one_element():
    k = np.array([2.0, 3.0, 4.0])
    return lambda x: ops.sum((x * k) ** 2), lambda: operator_set(k, 1, -3.0)


def operator_set(array, place, value):
    array[place] = value


def another_array():
    holder = {"k": np.array([2.0, 3.0, 4.0])}
    return scale_of(holder), lambda: holder.update(k=-holder["k"])


def constant_variable():
    k = Variable(np.array([2.0, 3.0, 4.0]))
    return lambda x: ops.sum((x * k) ** 2), lambda: k.assign([-2.0, 3.0, 4.0])


def attribute():
    settings = Settings(k=2.0)
    return lambda x: ops.sum((x * settings.k) ** 2), lambda: setattr(settings, "k", -2.0)


def list_that_grew():
    layers = [2.0]

    def fn(x):
        for k in layers:
            x = x * k
        return ops.sum(x * x)

    return fn, lambda: layers.extend([-1.0])


def another_function():
    inner = [ops.sin]
    # sin² + cos² is 1, whichever comes first.
    fn = lambda x: ops.sum(inner[0](x) ** 2 + ops.cos(x) ** 2 * 1.0)  # noqa: E731

    return fn, lambda: inner.__setitem__(0, lambda x: ops.sin(x) * -1.0)


def axis():
    place = [0]

    def fn(x):
        square = ops.reshape(x[:1], (1, 1)) * np.ones((2, 2))
        return ops.sum(ops.sum(square, axis=place[0]))

    return fn, lambda: place.__setitem__(0, 1)


def index():
    place = [0]

    def fn(x):
        pair = ops.stack([x[2], x[2]])
        return pair[place[0]]

    return fn, lambda: place.__setitem__(0, 1)


def exponent():
    power = [2.0]
    return lambda x: ops.sum((x * 0.0) ** power[0]), lambda: power.__setitem__(0, 3.0)


def added():
    """``abs(x + k)`` stays when ``x + k`` changes its sign; ``add`` keeps nothing of ``k``."""
    k = [0.0]
    fn = lambda x: ops.sum(ops.absolute(x[:1] + k[0]))  # noqa: E731
    return fn, lambda: k.__setitem__(0, -2 * X[0])


def stopped():
    on = [False]
    fn = lambda x: ops.sum(x * (od.stop_gradient(x) if on[0] else x))  # noqa: E731
    return fn, lambda: on.__setitem__(0, True)


CHANGES = [
    number,
    integer,
    numpy_number,
    complex_number,
    array_in_place,
    one_element,
    another_array,
    constant_variable,
    attribute,
    list_that_grew,
    another_function,
    axis,
    index,
    exponent,
    added,
    stopped,
]


def reverse(y, w, tape):
    return tape.gradient(y, w)


def forward(y, w, tape):
    return tape.jvp(y, w, np.ones(3))


@pytest.mark.parametrize("sweep", [reverse, forward])
@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.__name__)
def test_a_change_that_leaves_the_result_is_noticed_in_the_sweep(case, sweep):
    fn, change = case()
    w = Variable(X, requires_grad=True)
    before = fn(w).item()
    with GradientTape() as tape:
        y = od.checkpoint(fn)(w)
    change()
    assert fn(w).item() == pytest.approx(before, rel=1e-15)
    with pytest.raises(MutationError, match=r"when it was run again for the sweep"):
        sweep(y, w, tape)


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.__name__)
def test_a_change_is_noticed_in_a_sweep_that_is_recorded(case):
    fn, change = case()
    w = Variable(X, requires_grad=True)
    with GradientTape() as outer:
        with GradientTape() as tape:
            y = od.checkpoint(fn)(w)
        slope = tape.gradient(y, w)
        z = slope.sum() if isinstance(slope, Variable) else slope
    change()
    if isinstance(z, Variable) and z.requires_grad:
        with pytest.raises(MutationError, match=r"when it was run again for the sweep"):
            outer.gradient(z, w)


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.__name__)
def test_without_a_change_both_runs_are_the_same(case):
    fn, _ = case()
    w = Variable(X, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y, plain = od.checkpoint(fn)(w), fn(w)
    for _ in range(2):
        np.testing.assert_array_equal(tape.gradient(y, w), tape.gradient(plain, w))


def test_what_a_function_counts_or_collects_for_itself_is_no_change():
    seen, count, cache = [], [0], {}

    @od.checkpoint
    def fn(x):
        count[0] += 1
        seen.append(x.numpy().copy())
        cache[count[0]] = np.ones(count[0])
        return ops.sum(ops.sin(x) * 2.0)

    w = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        y = fn(w) + fn(w * 2.0)
    np.testing.assert_allclose(tape.gradient(y, w), 2 * np.cos(X) + 4 * np.cos(2 * X), rtol=1e-15)
    assert count == [4]


def test_what_is_no_part_of_the_result_may_change():
    k = np.ones(3)

    @od.checkpoint
    def fn(x):
        (x * k).sum()
        return ops.sum(x * x)

    w = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        y = fn(w)
    k[:] = 7.0
    np.testing.assert_array_equal(tape.gradient(y, w), 2 * X)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "float64"])
def test_rounding_that_differs_from_run_to_run_is_no_change(dtype):
    rng = np.random.default_rng(0)
    runs = iter([1.0, 1.0 + 4 * float(np.finfo(dtype).eps), 1.0])
    a = rng.normal(size=(40, 40)).astype(dtype)
    wide = a.astype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64)

    @od.checkpoint
    def fn(x):
        # What another split of the work among threads would do to a product.
        k = (wide * next(runs)).astype(dtype)
        return ops.sum(ops.absolute(x * k) * np.dtype(dtype).type(2))

    w = Variable(a, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = fn(w)
    tape.gradient(y, w)
    tape.gradient(y, w)


def test_values_that_are_not_finite_are_compared_as_such():
    k = np.array([np.inf, np.nan, 1.0])

    @od.checkpoint
    def fn(x):
        return ops.sum(x * k)

    w = Variable(X, requires_grad=True)
    with GradientTape(persistent=True) as tape, np.errstate(all="ignore"):
        y = fn(w)
    np.testing.assert_array_equal(tape.gradient(y, w), [np.inf, np.nan, 1.0])
    k[:2] = 5.0
    with pytest.raises(MutationError):
        tape.gradient(y, w)


def test_a_fingerprint_takes_little_memory():
    @od.checkpoint
    def fn(x):
        for _ in range(60):
            x = ops.sin(x) * 1.5
        return ops.sum(x)

    w = Variable(np.ones(100_000), requires_grad=True)
    import tracemalloc

    tracemalloc.start()
    try:
        with GradientTape() as tape:
            y = fn(w)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 300_000  # 60 results would be 48 MB
    assert np.isfinite(tape.gradient(y, w)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("count", [100, 1000, 1_000_000])
def test_two_elements_that_change_places_show_and_so_does_one_sign(count, dtype):
    k = np.ones(count, dtype)
    k[count // 2 + 1] = 2.0  # which no sample has
    w = Variable(np.ones(count, dtype), requires_grad=True)
    for changed in (np.roll(k, 1), np.where(k == 2.0, -k, k)):
        before = k.copy()
        with GradientTape() as tape:
            y = od.checkpoint(lambda x: x * k)(w)
        k[:] = changed
        with pytest.raises(MutationError):
            tape.gradient(y, w, np.ones(count, dtype))
        k[:] = before
