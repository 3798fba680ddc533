"""Updates by rows: sparse gradients move their rows alone, eagerly and compiled."""

import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import ops, optim
from odyssey.errors import CompileWarning, OutOfRangeError, SettingError

pytestmark = pytest.mark.filterwarnings(f"error::{CompileWarning.__module__}.CompileWarning")

EXACT = {
    "SGD": lambda p: optim.SGD(p, 0.003),
    "AdaGrad": lambda p: optim.AdaGrad(p, 0.1),
    "AdaGrad, decaying rate": lambda p: optim.AdaGrad(p, 0.1, 0.01, 0.0, 0.5),
}
# Rules that move all rows get the gradient dense.
DENSE = {
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "decay": lambda p: optim.SGD(p, 0.1, weight_decay=0.1),
    "AdaGrad with decay": lambda p: optim.AdaGrad(p, 0.1, weight_decay=0.1),
    "Adam": lambda p: optim.Adam(p, 0.1),
    "AdamW": lambda p: optim.AdamW(p, 0.1),
    "RMSprop": lambda p: optim.RMSprop(p, 0.1),
    "Adafactor": lambda p: optim.Adafactor(p, 0.1),
}


def batches(count=6, rows=50, shape=(4, 5), seed=2):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, rows, shape) for _ in range(count)]


def leaf(shape=(50, 3), dtype=np.float64, sparse=True):
    data = np.random.default_rng(1).normal(size=shape).astype(dtype)
    return od.Variable(data, requires_grad=True, sparse_grad=sparse)


def training_step(table, optimizer, others=(), zero_first=True):
    def step(ids):
        if zero_first:
            optimizer.zero_grad()
        with od.GradientTape() as tape:
            found = od.nn.embedding(ids, table) if table.ndim == 2 else ops.take(table, ids, 0)
            for other in others:
                found = found * other
            loss = (ops.absolute(found) ** 2).sum()
        tape.backward(loss)
        optimizer.step()
        if not zero_first:
            optimizer.zero_grad()
        return loss

    return step


def trained(make, compiled=False, sparse=True, shape=(50, 3), dtype=np.float64, zero_first=True):
    """Return what a training leaves: the table, a dense parameter, the state and the gradient."""
    table = leaf(shape, dtype, sparse)
    other = od.Variable(np.ones(shape[1:], dtype), requires_grad=True)
    optimizer = make([table, other])
    step = training_step(table, optimizer, [other], zero_first)
    step = od.compile(step, check=True) if compiled else step
    for ids in batches():
        step(ids)
    state = optimizer.state_dict()["state"]
    slots = [value for one in state for value in one.values()]
    grad = None if table.grad is None else np.asarray(table.grad)
    return [table.numpy(), other.numpy(), *slots, *([] if grad is None else [grad])]


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", EXACT)
def test_an_update_by_rows_is_the_dense_update_to_the_bit(name, dtype):
    assert_same(trained(EXACT[name], dtype=dtype), trained(EXACT[name], dtype=dtype, sparse=False))


@pytest.mark.parametrize("zero_first", [True, False])
@pytest.mark.parametrize("name", EXACT)
def test_a_compiled_update_by_rows_is_the_compiled_dense_update_to_the_bit(name, zero_first):
    given = {"zero_first": zero_first, "compiled": True, "dtype": np.float32}
    assert_same(trained(EXACT[name], **given), trained(EXACT[name], sparse=False, **given))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_tables_are_updated_by_rows(dtype, compiled):
    found = trained(EXACT["AdaGrad"], compiled, dtype=dtype)
    wanted = trained(EXACT["AdaGrad"], sparse=False, dtype=dtype)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 2, 3)])
@pytest.mark.parametrize("compiled", [False, True])
def test_tables_of_any_number_of_axes_are_updated_by_rows(shape, compiled):
    given = {"shape": shape, "compiled": compiled}
    found, wanted = trained(EXACT["SGD"], **given), trained(EXACT["SGD"], sparse=False, **given)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.parametrize("name", DENSE)
def test_rules_that_move_all_rows_get_the_gradient_dense(name):
    found, wanted = trained(DENSE[name]), trained(DENSE[name], sparse=False)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_a_compiled_rule_that_moves_all_rows_gets_the_gradient_dense():
    found, wanted = trained(DENSE["momentum"], True), trained(DENSE["momentum"], sparse=False)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


# ------------------------------------------------------------------ lazy Adam


def lazy_adam(amsgrad=False):
    """Train by the formulas of Adam on the rows of each step, in float64."""
    table, rate, (b1, b2), eps = leaf().numpy().copy(), 0.1, (0.9, 0.99), 1e-8
    m, v, peak = (np.zeros_like(table) for _ in range(3))
    for t, ids in enumerate(batches(), 1):
        rows, counts = np.unique(ids, return_counts=True)
        g = 2 * table[rows] * counts[:, None]
        m[rows] = b1 * m[rows] + (1 - b1) * g
        v[rows] = b2 * v[rows] + (1 - b2) * g**2
        peak[rows] = np.maximum(peak[rows], v[rows])
        square = (peak if amsgrad else v)[rows] / (1 - b2**t)
        table[rows] -= rate * m[rows] / (1 - b1**t) / (np.sqrt(square) + eps)
    return table, m, v


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_lazy_adam_moves_rows_and_their_averages_alone_and_counts_all_steps(compiled, amsgrad):
    table = leaf()
    optimizer = optim.Adam([table], 0.1, (0.9, 0.99), amsgrad=amsgrad, lazy=True)
    step = training_step(table, optimizer)
    step = od.compile(step) if compiled else step
    for ids in batches():
        step(ids)
    wanted, m, v = lazy_adam(amsgrad)
    state = optimizer.state_dict()["state"][0]
    np.testing.assert_allclose(table.numpy(), wanted, rtol=1e-12)
    np.testing.assert_allclose(state["mean"], m, rtol=1e-12)
    np.testing.assert_allclose(state["square"], v, rtol=1e-12)
    assert state["steps"] == 6


def test_lazy_adam_is_adam_where_a_gradient_is_dense():
    assert_same(
        trained(lambda p: optim.Adam(p, 0.1, lazy=True), sparse=False),
        trained(lambda p: optim.Adam(p, 0.1), sparse=False),
    )


def test_lazy_adam_refuses_weight_decay_which_moves_all_rows():
    with pytest.raises(SettingError, match="needs weight_decay=0"):
        optim.Adam([leaf()], lazy=True, weight_decay=0.1)


# ------------------------------------------------------------------ what lies beside


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_that_no_index_names_keep_nan_and_infinity(compiled):
    table = leaf()
    data = table.numpy().copy()
    data[40:] = [np.nan, np.inf, -0.0]
    table.assign(data)
    step = training_step(table, EXACT["SGD"]([table]))
    step = od.compile(step) if compiled else step
    for ids in batches(rows=40):
        step(ids)
    np.testing.assert_array_equal(table.numpy()[40:].view(np.int64), data[40:].view(np.int64))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("make", [EXACT["AdaGrad"], lambda p: optim.Adam(p, lazy=True)])
def test_no_indices_move_nothing_and_count_as_a_step(make, compiled):
    table = leaf()
    before, optimizer = table.numpy().copy(), make([table])
    step = training_step(table, optimizer)
    step = od.compile(step) if compiled else step
    for _ in range(3):
        step(np.zeros((0, 2), int))
    np.testing.assert_array_equal(table.numpy(), before)
    assert optimizer.state_dict()["state"][0]["steps"] == 3


@pytest.mark.parametrize("compiled", [False, True])
def test_indices_out_of_range_are_refused_and_nothing_moves(compiled):
    table = leaf()
    step = training_step(table, EXACT["AdaGrad"]([table]))
    step = od.compile(step) if compiled else step
    for ids in batches(3):
        step(ids)
    before = table.numpy().copy()
    for wrong in (-1, 50):
        with pytest.raises(OutOfRangeError, match=f"index {wrong}"):
            step(np.full((4, 5), wrong))
        np.testing.assert_array_equal(table.numpy(), before)


@pytest.mark.parametrize("compiled", [False, True])
def test_snapshots_keep_the_numbers_of_their_time(compiled):
    table = leaf()
    step = training_step(table, EXACT["SGD"]([table]))
    step = od.compile(step) if compiled else step
    for ids in batches(3):
        step(ids)
    snapshot, before = table.numpy(), table.numpy().copy()
    step(batches()[0])
    np.testing.assert_array_equal(snapshot, before)
    assert not np.array_equal(table.numpy(), before)


@pytest.mark.parametrize("compiled", [False, True])
def test_tied_weights_have_a_dense_gradient_and_step(compiled):
    found = []
    for sparse in (True, False):
        table = leaf(sparse=sparse)
        optimizer = optim.AdaGrad([table], 0.1)

        def step(ids, table=table, optimizer=optimizer):
            optimizer.zero_grad()
            with od.GradientTape() as tape:
                loss = ((od.nn.embedding(ids, table) @ table.T) ** 2).mean()
            tape.backward(loss)
            optimizer.step()

        step = od.compile(step) if compiled else step
        for ids in batches():
            step(ids)
        assert type(table.grad) is np.ndarray
        found.append(table.numpy())
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_a_schedule_changes_the_rate_of_a_compiled_update_by_rows():
    found = []
    for compiled in (False, True):
        table = leaf()
        optimizer = EXACT["SGD"]([table])
        schedule = optim.StepLR(optimizer, 2, 0.5)
        step = training_step(table, optimizer)
        step = od.compile(step) if compiled else step
        for ids in batches():
            step(ids)
            schedule.step()
        found.append(table.numpy())
    np.testing.assert_allclose(*found, rtol=1e-14)


def test_states_are_saved_and_loaded_in_the_middle(tmp_path):
    def make():
        table = leaf()
        return table, optim.Adam([table], 0.1, lazy=True)

    (table, optimizer), (other, loaded) = make(), make()
    for ids in batches()[:3]:
        training_step(table, optimizer)(ids)
    od.save(tmp_path / "state.npz", {"table": table, "optimizer": optimizer})
    od.load(tmp_path / "state.npz", like={"table": other, "optimizer": loaded})
    for ids in batches()[3:]:
        training_step(table, optimizer)(ids)
        training_step(other, loaded)(ids)
    np.testing.assert_array_equal(table.numpy(), other.numpy())


def test_an_average_of_weights_follows_a_table():
    table = leaf()
    optimizer, average = EXACT["SGD"]([table]), optim.EMA([table], 0.5)
    wanted = table.numpy().copy()
    for ids in batches(3):
        training_step(table, optimizer)(ids)
        average.update()
        wanted = 0.5 * wanted + 0.5 * table.numpy()
    average.swap()
    np.testing.assert_allclose(table.numpy(), wanted, rtol=1e-14)


def test_a_frozen_table_stays_and_moves_again_when_it_is_thawed():
    table = leaf()
    optimizer = EXACT["SGD"]([table, od.Variable(1.0, requires_grad=True)])
    training_step(table, optimizer, [optimizer.params[1]])(batches()[0])
    table.requires_grad = False
    before = table.numpy().copy()
    training_step(table, optimizer, [optimizer.params[1]])(batches()[1])
    np.testing.assert_array_equal(table.numpy(), before)
    table.requires_grad = True
    training_step(table, optimizer, [optimizer.params[1]])(batches()[1])
    assert not np.array_equal(table.numpy(), before)
    assert type(table.grad) is od.SparseRows


def test_a_floating_point_error_that_raises_changes_nothing():
    table = leaf(dtype=np.float32)
    optimizer = EXACT["AdaGrad"]([table])
    training_step(table, optimizer)(batches()[0])
    before, state = table.numpy().copy(), optimizer.state_dict()["state"][0]
    table.grad = od.SparseRows([1, 2], np.full((2, 3), 1e30, np.float32), table.shape)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        optimizer.step()
    np.testing.assert_array_equal(table.numpy(), before)
    for name, value in optimizer.state_dict()["state"][0].items():
        np.testing.assert_array_equal(value, state[name])


@pytest.mark.parametrize("compiled", [False, True])
def test_two_threads_train_tables_of_their_own(compiled):
    tables, failed = [leaf(), leaf()], []

    def work(k):
        try:
            step = training_step(tables[k], EXACT["SGD"]([tables[k]]))
            step = od.compile(step) if compiled else step
            for ids in batches(30):
                step(ids)
        except Exception as error:  # pragma: no cover
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    np.testing.assert_array_equal(tables[0].numpy(), tables[1].numpy())
