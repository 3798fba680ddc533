"""Tapes that store what nodes save in half precision: ``GradientTape(saved=...)``."""

import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import CompileError, DTypeError, MutationError, NonFiniteError, TapeError
from odyssey.tape.rounding import RoundedArray

N = 2048  # of float32: 8 kB, above the size that stays
DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
BOTH = pytest.mark.parametrize("saved", ["bfloat16", "float16"])


def numbers(seed=0, shape=(N,)):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rounded(array, saved="bfloat16"):
    """The array after a round trip through the dtype, by ml_dtypes or NumPy."""
    return array.astype(DTYPES[saved]).astype(np.float32)


def leaf(array):
    return Variable(array, requires_grad=True)


# ------------------------------------------------------------------ values and gradients


@BOTH
def test_rules_read_the_rounded_numbers_and_results_do_not_change(saved):
    x = numbers()
    w = leaf(x)
    with GradientTape(saved=saved) as tape:
        z = w * np.float32(3.0)
        y = z * z
        loss = y.sum()
    np.testing.assert_array_equal(y.numpy(), (x * np.float32(3)) ** 2)
    np.testing.assert_array_equal(
        tape.gradient(loss, w), 2 * rounded(x * np.float32(3), saved) * np.float32(3)
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.dtype("float16")])
def test_the_dtype_may_be_given_as_a_dtype(dtype):
    tape = GradientTape(saved=dtype)
    w = leaf(numbers())
    with tape:
        y = ops.exp(w + np.float32(0.5))
    name = np.dtype(dtype).name
    assert str(tape.nodes[-1].saved["out"]) == f"{name}[{N}]"
    np.testing.assert_array_equal(_sum_gradient(tape, y, w), rounded(y.numpy(), name))


def _sum_gradient(tape, y, w):
    return tape.gradient(y, w, np.ones(y.shape, np.float32))


@pytest.mark.parametrize("saved", ["int8", "float64", "half", 16, object(), "", True, np.float32])
def test_another_dtype_is_refused_by_name(saved):
    with pytest.raises(DTypeError, match="pass 'bfloat16' or 'float16', the dtype in which"):
        GradientTape(saved=saved)


@BOTH
def test_memory_halves_and_shows_both_sizes(saved):
    w = leaf(numbers(shape=(64, 64)))
    x = numbers(1, (64, 64))
    taken = {}
    for tape in (GradientTape(), GradientTape(saved=saved)):
        with tape:
            h = ops.tanh(x @ w)
            y = ops.tanh(h @ w)
        taken[tape._saved] = tape.memory()
        del h, y
    plain, half = taken[None], taken[saved]
    # Two results of tanh are rounded; x is a constant, w a leaf.
    assert plain.total == plain.unrounded == 4 * 64 * 64 * 4
    assert half.total == 2 * 64 * 64 * 4 + 2 * 64 * 64 * 2
    assert half.unrounded == plain.total
    assert half.locked == plain.locked
    assert f"{half.total:,} bytes, {half.locked:,} locked; {half.unrounded:,} bytes unrounded" in (
        repr(half)
    )
    assert "unrounded" not in repr(plain)


def test_the_float32_array_is_freed_with_its_variable():
    w = leaf(numbers())
    with GradientTape(saved="bfloat16") as tape:
        y = ops.exp(w)
        array = weakref.ref(y._array)
        z = ops.exp(y)
        del y
        assert array() is None
    assert tape.memory().total == 2 * N * 2
    assert z.shape == (N,)


def test_one_array_that_several_nodes_save_is_stored_once():
    w = leaf(numbers())
    with GradientTape(saved="bfloat16") as tape:
        z = ops.exp(w)
        a, b = z * z, ops.sin(z)
    saves = [node.saved for node in tape.nodes]
    assert saves[1]["x"] is saves[1]["y"] is saves[2]["x"] is saves[0]["out"]
    assert type(saves[0]["out"]) is RoundedArray
    assert tape.memory().total == 2 * N
    r = rounded(z.numpy())
    found = tape.gradient([a, b], w, [np.ones(N, np.float32)] * 2)
    np.testing.assert_allclose(found, (2 * r + np.cos(r)) * r, rtol=1e-6)


def test_another_array_at_the_address_of_one_that_was_freed_is_stored_anew():
    w = leaf(numbers())
    expected = []
    with GradientTape(saved="bfloat16") as tape:
        total = 0.0
        for k in range(1, 20):
            z = w * np.float32(k)
            y = z * z
            expected.append(rounded(z.numpy()) * np.float32(2 * k))
            total = total + y.sum()
            del z, y
    np.testing.assert_allclose(tape.gradient(total, w), np.sum(expected, axis=0), rtol=1e-5)


def test_slopes_that_a_loop_left_are_all_that_a_sweep_widens(monkeypatch):
    w = leaf(numbers(shape=(128, 128)))
    with GradientTape(saved="bfloat16", persistent=True) as tape:
        y = ops.gelu(w + np.float32(0.0))
        slopes = np.asarray(tape.nodes[-1].saved["residual"][0])
    seeds = np.ones(w.shape, np.float32)
    widened, widen = [], RoundedArray.widen
    monkeypatch.setattr(RoundedArray, "widen", lambda self: widened.append(self) or widen(self))
    np.testing.assert_array_equal(tape.gradient(y, w, seeds), slopes)
    np.testing.assert_array_equal(tape.jvp(y, w, seeds), slopes)
    assert len(widened) == 2
    first = tape.gradient(y, w, seeds, create_graph=True)
    second = tape.gradient(first, w, seeds)
    # gelu'' is the density at x times 2 - x * x.
    x = w.numpy().astype(np.float64)
    curvature = np.exp(-x * x / 2) / np.sqrt(2 * np.pi) * (2 - x * x)
    assert np.linalg.norm(second - curvature) < 1e-2 * np.linalg.norm(curvature)


@pytest.mark.parametrize("size", [N, 1 << 15])
def test_a_residual_of_a_rule_from_outside_is_rounded_beside_what_the_rule_reads(size):
    def run(x):
        return x * 2.0, (x + 1.0,)

    @od.op(
        elementwise=True,
        with_residual=run,
        vjp={"x": lambda g, x, residual=None: ops.multiply(g, ops.add(x, residual[0]))},
    )
    def odd_double(x, /):
        """Twice x, with a derivative of its own."""
        return x * 2.0

    w = leaf(numbers(shape=(size,)))
    with GradientTape(saved="bfloat16") as tape:
        z = w + np.float32(0.0)
        y = odd_double(z)
    x = w.numpy()
    np.testing.assert_array_equal(
        _sum_gradient(tape, y, w), rounded(x) + rounded(x + np.float32(1.0))
    )


# ------------------------------------------------------------------ what stays as it is


def test_leaves_constants_and_watched_values_stay():
    w, x = leaf(numbers(shape=(64, 64))), numbers(1, (64, 64))
    with GradientTape(saved="bfloat16") as tape:
        v = tape.watch(numbers(2, (64, 64)))
        _ = x @ w, v @ w, w.T @ v, ops.reshape(w, (32, 128)) @ numbers(3, (128, 2))
    for node in tape.nodes:
        assert not any(isinstance(value, RoundedArray) for value in node.saved.values()), node
    assert tape.memory().total == tape.memory().unrounded


def test_small_arrays_and_other_dtypes_stay():
    for dtype, size in (("float64", N), ("complex64", N), ("float16", N), ("float32", 1024)):
        w = leaf(np.ones(size, dtype))
        with GradientTape(saved="bfloat16") as tape:
            y = ops.exp(w * np.ones((), dtype))
        assert type(tape.nodes[-1].saved["out"]) is np.ndarray
        assert y.dtype == dtype


def test_what_is_broadcast_takes_no_memory():
    w = leaf(numbers(shape=(2, 1)))
    with GradientTape(saved="bfloat16") as tape:
        z = ops.broadcast_to(ops.exp(w), (2, N))
        _ = z * z
    assert tape.memory().total <= 2 * 4 * 2


@BOTH
def test_a_choice_among_near_ties_is_that_of_the_forward_run(saved):
    x = np.ones((2, N), np.float32)
    x[1] += np.float32(2.0**-20)  # rounds to 1 as well
    w = leaf(x)
    for choose in (
        lambda z: ops.maximum(z[0], z[1]),
        lambda z: ops.max(z, axis=0),
        lambda z: ops.sort(z, axis=0)[1],
    ):
        with GradientTape(saved=saved) as tape:
            y = choose(w * np.float32(1.0))
        found = _sum_gradient(tape, y, w)
        np.testing.assert_array_equal(found[0], 0)
        np.testing.assert_array_equal(found[1], 1)


@BOTH
def test_a_bound_that_is_not_zero_is_compared_with_the_exact_number(saved):
    w = leaf(np.full(N, 1 + 2.0**-20, np.float32))
    with GradientTape(saved=saved) as tape:
        y = ops.clip(w * np.float32(1.0), -1.0, 1.0)
    np.testing.assert_array_equal(_sum_gradient(tape, y, w), 0)


@BOTH
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "celu"])
def test_a_choice_by_sign_reads_half_precision_and_keeps_tiny_numbers(saved, name):
    x = np.tile(np.float32([1e-9, -1e-9, 0.0, 2.0]), N)
    w = leaf(x)
    fn = getattr(ops, name)
    with GradientTape() as plain:
        expected = _sum_gradient(plain, fn(w * np.float32(1.0)), w)
    with GradientTape(saved=saved) as tape:
        y = fn(w + np.float32(0.0))
    assert any(isinstance(v, RoundedArray) for v in tape.nodes[-1].saved.values())
    assert tape.memory().total == 2 * x.size
    np.testing.assert_allclose(_sum_gradient(tape, y, w), expected, rtol=1e-6)


def test_an_array_that_one_node_needs_exactly_is_held_once():
    w = leaf(numbers(shape=(1, 1, 64, 64)))
    with GradientTape(saved="bfloat16") as tape:
        h = ops.relu(w + np.float32(1.0))
        p = ops.max_pool2d(h, window=2)
        q = ops.exp(h)  # after the exact use as well
    # What relu and max_pool2d share stays; what exp saves is rounded.
    assert tape.memory().unrounded - tape.memory().total == 2 * q.size
    assert tape.nodes[1].saved["out"] is tape.nodes[2].saved["x"]
    with GradientTape() as plain:
        h2 = ops.relu(w + np.float32(1.0))
        p2 = ops.max_pool2d(h2, window=2)
    np.testing.assert_array_equal(_sum_gradient(tape, p, w), _sum_gradient(plain, p2, w))


def test_factorizations_and_solvers_read_exact_numbers():
    a = numbers(shape=(40, 40)) + 10 * np.eye(40, dtype=np.float32)
    b = numbers(1, (40, 40))
    w = leaf(a)
    for fn in (
        lambda z: od.linalg.solve(z, b),
        lambda z: od.linalg.inv(z),
        lambda z: od.linalg.cholesky(
            z @ np.eye(40, dtype=np.float32) + 99 * np.eye(40, dtype="f4")
        ),
        lambda z: od.linalg.slogdet(z)[1],
    ):
        gradients = []
        for tape in (GradientTape(), GradientTape(saved="bfloat16")):
            with tape:
                y = fn(w * np.float32(1.0))
            gradients.append(_sum_gradient(tape, y, w))
        np.testing.assert_array_equal(*gradients)


def test_an_array_with_a_number_beyond_float16_stays_float32():
    x = numbers()
    x[7] = 70_000.0
    w = leaf(x)
    with GradientTape(saved="float16") as tape:
        z = w * np.float32(1.0)
        y = z * z
    assert "float32" in repr(tape.nodes[-1])
    np.testing.assert_array_equal(_sum_gradient(tape, y, w), 2 * x)


def test_the_order_of_axes_in_memory_is_restored():
    w = leaf(numbers(shape=(16, 8, 32)))
    with GradientTape(saved="bfloat16") as tape:
        z = ops.transpose(ops.exp(w), (2, 0, 1))
        y = z * z
    node = tape.nodes[-1]
    wide = np.asarray(node.saved["x"])
    np.testing.assert_array_equal(wide, rounded(z.numpy()))
    assert wide.strides == z.numpy().strides
    np.testing.assert_allclose(
        _sum_gradient(tape, y, w), 2 * rounded(np.exp(w.numpy())) ** 2, rtol=1e-6
    )


# ------------------------------------------------------------------ other sweeps


def test_second_derivatives_are_those_of_the_rounded_numbers():
    x = numbers()
    w = leaf(x)
    with GradientTape(saved="bfloat16", persistent=True) as tape:
        z = w * np.float32(1.0)
        y = z * z * z
        first = tape.gradient(y, w, np.ones(N, np.float32), create_graph=True)
        second = tape.gradient(first, w, np.ones(N, np.float32))
    r, square = rounded(x), rounded(x * x)
    np.testing.assert_allclose(first.numpy(), square + 2 * r * r, rtol=1e-6)
    np.testing.assert_allclose(second, 6 * x, rtol=0.03)
    assert tape.memory().unrounded > tape.memory().total


def test_a_recorded_sweep_shares_what_the_nodes_hold():
    w = leaf(numbers())
    with GradientTape(saved="bfloat16", persistent=True) as tape:
        z = ops.exp(w)
        y = ops.sin(z)
        before = tape.memory().total
        first = tape.gradient(y, w, np.ones(N, np.float32), create_graph=True)
    # cos(z), once more, and its product with the cotangent; not z again.
    assert tape.memory().total - before <= 4 * 2 * N
    assert first.shape == (N,)


def test_forward_sweeps_read_the_rounded_numbers():
    x = numbers()
    w = leaf(x)
    with GradientTape(saved="bfloat16") as tape:
        z = w * np.float32(1.0)
        y = z * z
    np.testing.assert_array_equal(tape.jvp(y, w, np.ones(N, np.float32)), 2 * rounded(x))
    np.testing.assert_array_equal(_sum_gradient(tape, y, w), 2 * rounded(x))


def test_a_persistent_tape_sweeps_twice_and_hooks_run():
    x = numbers()
    w = leaf(x)
    seen = []
    with GradientTape(saved="bfloat16", persistent=True) as tape:
        z = w * np.float32(1.0)
        loss = (z * z).sum()
    tape.on_gradient(z, seen.append)
    tape.backward(loss)
    tape.backward(loss)
    np.testing.assert_array_equal(w.grad, 4 * rounded(x))
    np.testing.assert_array_equal(seen[0], 2 * rounded(x))


def test_backward_returns_the_gradients_of_living_results():
    w = leaf(numbers())
    with GradientTape(saved="bfloat16") as tape:
        z = w * np.float32(1.0)
        loss = (z * z).sum()
    found = tape.backward(loss)
    np.testing.assert_array_equal(found[z], 2 * rounded(w.numpy()))


def test_custom_rules_get_what_they_saved():
    given = []

    @od.custom_vjp
    def double(x):
        return x * np.float32(2.0)

    def forward(x):
        return double(x), x.numpy() if hasattr(x, "numpy") else x

    def backward(saved, g):
        given.append(np.array(saved))
        return (g * np.float32(2.0),)

    double.defvjp(forward, backward)
    w = leaf(numbers())
    with GradientTape(saved="bfloat16") as tape:
        z = w * np.float32(1.0)
        y = double(z)
    np.testing.assert_array_equal(_sum_gradient(tape, y, w), 2)
    np.testing.assert_array_equal(given[0], z.numpy())


@pytest.mark.parametrize("create_graph", [False, True])
def test_checkpoints_run_again_on_exact_inputs(create_graph):
    x = numbers()
    w = leaf(x)
    with GradientTape(saved="bfloat16", persistent=True) as tape:
        y = od.checkpoint(lambda z: ops.exp(z) * z)(w * np.float32(1.0))
        found = tape.gradient(y, w, np.ones(N, np.float32), create_graph=create_graph)
    np.testing.assert_allclose(
        np.asarray(found.numpy() if create_graph else found),
        np.exp(x) * (1 + x),
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_checkpoint_shares_its_inputs_with_other_nodes():
    w = leaf(numbers())
    totals = []
    for tape in (GradientTape(), GradientTape(saved="bfloat16")):
        with tape:
            y = od.checkpoint(ops.sin)(ops.exp(w))
        totals.append(tape.memory().total)
        np.testing.assert_allclose(
            _sum_gradient(tape, y, w), np.cos(np.exp(w.numpy())) * np.exp(w.numpy()), rtol=1e-5
        )
    assert totals[0] == totals[1]


def test_scans_and_transforms_inside_run():
    w = leaf(numbers(shape=(64, 64)))
    x = numbers(1, (64, 64))
    with GradientTape(saved="bfloat16") as tape:
        h, _ = od.scan(lambda h, _: (ops.tanh(h @ w), None), x, None, length=2)
        slope = od.grad(lambda v: ops.sum(v * v * v))(ops.tanh(h))
        loss = slope.mean()
    with GradientTape() as plain:
        h, _ = od.scan(lambda h, _: (ops.tanh(h @ w), None), x, None, length=2)
        expected = od.grad(lambda v: ops.sum(v * v * v))(ops.tanh(h)).mean()
    assert abs(float(loss.numpy()) - float(expected.numpy())) < 0.01 * float(expected.numpy())
    a, b = tape.gradient(loss, w), plain.gradient(expected, w)
    assert np.linalg.norm(a - b) < 1e-2 * np.linalg.norm(b)


# ------------------------------------------------------------------ nested tapes, threads, ends


def test_a_plain_tape_around_rounds_only_while_the_inner_tape_records():
    w = leaf(numbers())
    with GradientTape(persistent=True) as outer:
        a = ops.exp(w)
        with GradientTape(saved="bfloat16"):
            b = ops.tanh(a)
        c = ops.exp(b)
    held = [type(node.saved["out"]) for node in outer.nodes]
    assert held == [np.ndarray, RoundedArray, np.ndarray]
    assert c.shape == (N,)


def test_a_plain_tape_inside_of_a_rounding_one_rounds():
    x = numbers()
    w = leaf(x)
    with GradientTape(saved="bfloat16") as outer:
        with GradientTape() as inner:
            z = w * np.float32(1.0)
            y = z * z * z
        first = inner.gradient(y, w, np.ones(N, np.float32))
    second = outer.gradient(first, w, np.ones(N, np.float32))
    np.testing.assert_allclose(second, 6 * x, rtol=0.03)


def test_nested_tapes_of_two_dtypes_are_refused():
    w = leaf(numbers())
    with GradientTape(saved="bfloat16") as outer:
        z = w * np.float32(1.0)
        inner = GradientTape(saved="float16")
        with pytest.raises(TapeError, match="nested tapes share what they save; pass one dtype"):
            inner.__enter__()
        y = z * z
    np.testing.assert_array_equal(_sum_gradient(outer, y, w), 2 * rounded(w.numpy()))


def test_a_tape_that_is_entered_again_rounds_again():
    w = leaf(numbers())
    tape = GradientTape(saved="bfloat16")
    for _ in range(2):
        with tape:
            z = w * np.float32(1.0)
            with tape.no_recording():
                ops.exp(w)
            y = z * z
        assert type(tape.nodes[-1].saved["x"]) is RoundedArray
        np.testing.assert_array_equal(_sum_gradient(tape, y, w), 2 * rounded(w.numpy()))
    with tape:
        tape.clear()
        y = ops.exp(ops.exp(w))
    assert type(tape.nodes[-1].saved["out"]) is RoundedArray
    assert y.shape == (N,)


def test_an_exception_in_the_block_leaves_nothing():
    w = leaf(numbers())
    tape = GradientTape(saved="bfloat16")
    held = []

    def fail():
        with tape:
            y = ops.exp(w)
            held.append(weakref.ref(tape.nodes[-1].saved["out"]))
            raise ZeroDivisionError(y.shape)

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(tape) == 0
    assert held[0]() is None


def test_threads_round_on_tapes_of_their_own():
    failures = []

    def work(seed):
        x = numbers(seed)
        w = leaf(x)
        for _ in range(5):
            with GradientTape(saved="bfloat16") as tape:
                z = w * np.float32(1.0)
                y = z * z
            if not (_sum_gradient(tape, y, w) == 2 * rounded(x)).all():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_long_recording_is_pruned_and_forgets_what_it_stored():
    w = leaf(numbers())
    with GradientTape(saved="bfloat16") as tape:
        z = ops.exp(w)
        for _ in range(2050):
            ops.sin(z)
    assert len(tape) < 1100
    assert tape.memory().total == 2 * N


# ------------------------------------------------------------------ checks and reports


def test_check_notes_what_is_stored_and_finds_a_write_to_it():
    w = leaf(numbers())
    with GradientTape(saved="bfloat16", check=True) as tape:
        z = w * np.float32(1.0)
        y = z * z
    assert "bfloat16[2048]" in repr(tape.nodes[-1])
    tape.nodes[-1].saved["x"].bits[3] ^= 1
    with pytest.raises(MutationError, match=r"multiply at .*test_rounding.py.* saved x, which was"):
        tape.gradient(y, w, np.ones(N, np.float32))


def test_check_passes_where_a_later_node_needs_the_array_unrounded():
    w = leaf(numbers(shape=(1, 1, 64, 64)))
    with GradientTape(saved="bfloat16", check=True) as tape:
        h = ops.relu(w * np.float32(2.0))
        p = ops.max_pool2d(h, window=2)
    assert _sum_gradient(tape, p, w).shape == w.shape


def test_check_names_the_first_value_that_is_not_finite():
    w = leaf(np.full(N, 100.0, np.float32))
    with GradientTape(saved="bfloat16", check=True) as tape, np.errstate(over="ignore"):
        y = ops.exp(w)
    with pytest.raises(NonFiniteError, match="exp at"):
        tape.gradient(y, w, np.ones(N, np.float32))


def test_numbers_of_a_stored_array_can_be_read():
    w = leaf(numbers())
    with GradientTape(saved="bfloat16") as tape:
        z = ops.exp(w)
    saved = tape.nodes[-1].saved["out"]
    assert repr(saved) == "<bfloat16[2048], rounded from float32>"
    np.testing.assert_array_equal(np.asarray(saved), rounded(z.numpy()))
    np.testing.assert_array_equal(np.array(saved, dtype=np.float64), rounded(z.numpy()))
    assert "bfloat16[2048]" in tape.nodes[-1].__repr__()
    assert "exp" in tape.to_dot()
    assert "exp" in tape.explain(z, w)


def test_a_compiled_function_runs_eagerly_and_says_what_to_do():
    w = leaf(numbers())

    def step(x):
        with GradientTape(saved="bfloat16") as tape:
            z = w * x
            loss = (z * z).sum()
        return tape.gradient(loss, w)

    x = numbers(1)
    with pytest.raises(CompileError, match=r"saved= stores arrays in half.* memory_budget="):
        od.compile(step, fullgraph=True).precompile(x)
    compiled = od.compile(step, warn=False)
    for _ in range(4):
        np.testing.assert_array_equal(compiled(x), 2 * rounded(w.numpy() * x) * x)


def test_a_mapped_function_rounds_nothing():
    x = numbers(shape=(2, N))

    def slope(row):
        with GradientTape(saved="bfloat16") as tape:
            v = tape.watch(row)
            loss = (ops.exp(v) * v).sum()
        return tape.gradient(loss, v)

    np.testing.assert_allclose(od.vmap(slope)(x), np.exp(x) * (1 + x), rtol=1e-5, atol=1e-6)


def test_a_manual_record_is_rounded_as_others_are():
    x = numbers()
    tape = GradientTape(saved="bfloat16")
    v, out = tape.variable(x), tape.constant(np.exp(x))
    with tape:
        tape.record_exp(v, out)
    np.testing.assert_array_equal(tape.gradient(out, v, np.ones(N, np.float32)), rounded(np.exp(x)))
