"""Copy on write: the library writes to arrays of its own; every other holder keeps its numbers."""

import gc
import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, nn, ops
from odyssey.devices.copy_on_write import has_exclusive_array
from odyssey.devices.ownership import address_of
from odyssey.errors import MutationError
from odyssey.optim.flat_parameters import SMALL_SIZE, FlatParameters

BATCH = np.array([[1.0, 2.0, 3.0], [3.0, 6.0, 5.0]])
NEW = np.array([7.0, 8.0, 9.0])


# ------------------------------------------------------------------ constants


def assign(v):
    v.assign(NEW)
    return NEW


def set_data(v):
    v.data = NEW
    return NEW


def set_items(v):
    v[:] = NEW
    return NEW


def move_statistics(v):
    expected = 0.9 * v.numpy() + 0.1 * BATCH.mean(0)
    nn.batch_norm(BATCH, v, Variable(np.ones(3)), training=True)
    return expected


def load_file(v, path):
    od.save(path, Variable(NEW))
    od.load(path, v)
    return NEW


def in_checkpoint(v):
    expected = 0.9 * v.numpy() + 0.1 * BATCH.mean(0)
    w = Variable(np.ones(3), requires_grad=True)

    def layer(w, v):
        return nn.batch_norm(BATCH, v, Variable(np.ones(3)), w, training=True).sum()

    with GradientTape() as tape:
        loss = od.checkpoint(layer)(w, v)
    tape.backward(loss)
    return expected


def compiled_assign(v):
    f = od.compile(lambda x: v.assign(x))
    for k in range(4):
        f(NEW - 3 + k)
    return NEW


def compiled_items(v):
    def fn(x):
        v[1:] = x[1:]
        v[:1] = x[:1]

    f = od.compile(fn)
    for k in range(4):
        f(NEW - 3 + k)
    return NEW


def compiled_statistics(v):
    expected = v.numpy().copy()
    spread = Variable(np.ones(3))
    f = od.compile(lambda x: nn.batch_norm(x, v, spread, training=True))
    for _ in range(4):
        f(BATCH)
        expected = 0.9 * expected + 0.1 * BATCH.mean(0)
    return expected


WRITES = [
    assign,
    set_data,
    set_items,
    move_statistics,
    load_file,
    in_checkpoint,
    compiled_assign,
    compiled_items,
    compiled_statistics,
]


def read_only(m):
    v = m.view()
    v.flags.writeable = False
    return v


def mapped(m, path):
    m.tofile(path)
    return np.memmap(path, float, "r+")


# How a constant comes to share numbers: from the array, what the Variable is made of.
SOURCES = {
    "the array": lambda m: m,
    "a view": lambda m: m[:],
    "a backward view": lambda m: m[::-1],
    "a read-only view": read_only,
    "dlpack": np.from_dlpack,
    "a buffer": lambda m: np.frombuffer(memoryview(m)),
    "a Variable": Variable,
    "a detached Variable": lambda m: Variable(m).detach(),
    "a result": lambda m: ops.reshape(Variable(m), (3,)),
    "a memory map": mapped,
}


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("source", SOURCES)
def test_a_write_to_a_constant_leaves_whatever_shares_its_numbers_alone(source, write, tmp_path):
    m = np.array([1.0, 2.0, 3.0])
    given = SOURCES[source](m, *[tmp_path / "m"] * (source == "a memory map"))
    a, b = Variable(given), Variable(given)
    before = b.numpy().tolist()
    shown, detached = a.numpy(), a.detach()
    expected = write(a, *[tmp_path / "f.npz"] * (write is load_file))
    np.testing.assert_allclose(a.numpy(), expected, rtol=1e-14)
    assert b.numpy().tolist() == shown.tolist() == detached.numpy().tolist() == before
    assert m.tolist() == [1.0, 2.0, 3.0]
    assert np.asarray(given).tolist() == before
    again = write(a, *[tmp_path / "g.npz"] * (write is load_file))
    np.testing.assert_allclose(a.numpy(), again, rtol=1e-14)


def test_two_running_statistics_of_one_array_move_apart():
    m = np.zeros(3)
    mean, var = Variable(m), Variable(m)
    nn.batch_norm(BATCH, mean, var, training=True, momentum=0.5)
    np.testing.assert_allclose(mean.numpy(), 0.5 * BATCH.mean(0))
    np.testing.assert_allclose(var.numpy(), 0.5 * BATCH.var(0, ddof=1))
    assert not m.any()


def test_a_network_evaluates_by_the_statistics_that_it_was_trained_with():
    """Running means that start as one array of zeros, as a table of defaults gives them."""
    zeros, ones, x = np.zeros(3), np.ones(3), BATCH * np.array([1.0, 5.0, -2.0])
    first, second = [(Variable(zeros), Variable(ones)) for _ in range(2)]
    for _ in range(200):
        h = nn.batch_norm(x, *first, training=True)
        out = nn.batch_norm(h * 10.0 + 3.0, *second, training=True)
    # With the biased variance of training and the unbiased one of evaluation: a factor of sqrt(2).
    h = nn.batch_norm(x, *first)
    np.testing.assert_allclose(h * np.sqrt(2), nn.batch_norm(x, training=True), rtol=1e-4)
    evaluated = nn.batch_norm(h * 10.0 * np.sqrt(2) + 3.0, *second)
    np.testing.assert_allclose(evaluated * np.sqrt(2), out, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.complex128, np.int64, bool])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=repr)
def test_constants_of_every_dtype_and_shape_get_arrays_of_their_own(shape, dtype):
    m = np.ones(shape, dtype)
    a, b = Variable(m), Variable(m)
    a.assign(np.zeros(shape, dtype))
    assert not a.numpy().any()
    assert (b.numpy().all(), m.all()) == (True, True)
    assert (a.dtype, a.numpy().dtype, a.shape) == (np.dtype(dtype), np.dtype(dtype), shape)
    s = Variable(np.ones((), dtype)[()])
    s.assign(np.zeros((), dtype))
    assert not s.numpy().any()


def test_an_array_that_nobody_else_holds_is_written_in_place():
    c, w = Variable(np.zeros(3)), Variable(np.zeros(3), requires_grad=True)
    for v in (c, w):
        assert has_exclusive_array(v)
        where = address_of(v._array)
        v.assign(NEW)
        shown = v.numpy()
        assert not has_exclusive_array(v)
        del shown
        v.assign(NEW + 1.0)
        assert address_of(v._array) == where
    m = np.zeros(3)
    v = Variable(m)
    assert v.data is m  # shared until one of them is written
    del m
    where = address_of(v._array)
    v.assign(NEW)
    assert address_of(v._array) == where


# ------------------------------------------------------------------ snapshots of parameters

# Four parameters that are packed together, of 3 elements, or one that is alone.
SIZES = {"small": 3, "large": SMALL_SIZE}
SNAPSHOTS = {
    "numpy": lambda w: w.numpy(),
    "data": lambda w: w.data,
    "asarray": np.asarray,
    "detach": lambda w: w.detach(),
    "a Variable": lambda w: Variable(w.detach()),
    "memoryview": lambda w: memoryview(w.numpy()),
    "dlpack": lambda w: np.from_dlpack(w.detach()) if w.detach().data.flags.writeable else w.data,
    "part of numpy": lambda w: w.numpy()[::-2],
    "reshape": lambda w: w.reshape(-1, 1),
    "transpose": lambda w: w.T,
    "slice": lambda w: w[1:],
    "of a view": lambda w: w.reshape(-1, 1).numpy(),
}


def training(kind, size):
    """Parameters and a step that writes to all of them, eagerly or compiled."""
    count = 4 if size < SMALL_SIZE else 1
    params = [Variable(np.full(size, 1.0 + 0.1 * k), requires_grad=True) for k in range(count)]
    name, _, compiled = kind.partition(", ")
    if name == "assign":

        def step():
            for p in params:
                p.assign(p * 0.7)
    elif name == "in place":

        def step():
            for p in params:
                p *= 0.7
                p[0] = 7.0
    else:
        optimizer = getattr(od.optim, name)(params, 0.1)

        def step():
            with GradientTape() as tape:
                loss = sum([(p * p).sum() for p in params], 0.0)
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

    return params, od.compile(step) if compiled else step


KINDS = ["assign", "assign, compiled", "in place", "SGD", "SGD, compiled", "Adam", "Adam, compiled"]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_snapshots_stay_and_cost_the_parameters_no_change(kind, size, snapshot):
    plain, step = training(kind, SIZES[size])
    held, other = training(kind, SIZES[size])
    shown = []
    for _ in range(5):
        for w in held:
            now = SNAPSHOTS[snapshot](w)
            shown.append((now, np.array(now.numpy() if isinstance(now, Variable) else now)))
        step(), other()
    for now, then in shown:
        np.testing.assert_array_equal(now.numpy() if isinstance(now, Variable) else now, then)
    assert len({then.tobytes() for _, then in shown}) == len(shown)
    for w, v in zip(plain, held, strict=True):
        np.testing.assert_array_equal(w.numpy(), v.numpy())


@pytest.mark.parametrize("size", SIZES)
def test_snapshots_cannot_be_written_to(size):
    params, step = training("SGD", SIZES[size])
    for _ in range(2):
        for w in params:
            for shown in (w.numpy(), w.data, np.asarray(w), w.detach().numpy()):
                with pytest.raises(ValueError, match="read-only"):
                    shown[0] = 3.0
        step()


def test_a_snapshot_of_a_packed_parameter_keeps_no_other_parameter_alive():
    params, step = training("SGD", 3)
    step()
    shown = params[0].numpy()
    assert shown.base is None or shown.base.nbytes == shown.nbytes


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("size", SIZES)
def test_a_plain_step_copies_nothing(size, kind, monkeypatch):
    def refuse(self):
        raise AssertionError("parameters were moved")

    params, step = training(kind, SIZES[size])
    step()
    where = [address_of(p._array) for p in params]
    monkeypatch.setattr(FlatParameters, "_move_data", refuse)
    for _ in range(3):
        step()
    assert [address_of(p._array) for p in params] == where


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("held", [False, True], ids=["alone", "beside a snapshot"])
def test_a_persistent_tape_that_was_swept_costs_no_copy_and_hides_no_snapshot(size, held):
    params, _ = training("SGD", SIZES[size])
    optimizer, kept, shown = od.optim.SGD(params, 0.1), [], []
    where = None
    for k in range(4):
        with GradientTape(persistent=True) as tape:
            loss = sum([(p * p).sum() for p in params], 0.0)
        tape.backward(loss)
        kept.append((tape, loss))
        if held:
            shown += [(v, v.numpy().copy()) for v in (p.reshape(-1, 1) for p in params)]
        optimizer.step()
        optimizer.zero_grad()
        where = where if k else [address_of(p._array) for p in params]
    assert ([address_of(p._array) for p in params] == where) != held
    for now, then in shown:
        np.testing.assert_array_equal(now.numpy(), then)
    for tape, loss in kept:
        with pytest.raises(MutationError):
            tape.gradient(loss, params[0])


def test_a_compiled_step_that_nobody_watches_writes_in_place():
    params, step = training("Adam, compiled", SMALL_SIZE)
    for _ in range(3):
        step()
    where = [address_of(p._array) for p in params]
    for _ in range(3):
        step()
    assert [address_of(p._array) for p in params] == where
    shown = params[0].numpy()
    step()
    assert address_of(params[0]._array) != address_of(shown) == where[0]


def test_a_state_of_an_optimizer_goes_on_where_a_snapshot_made_its_parameter_move():
    (w,), step = training("Adam, compiled", SMALL_SIZE)
    (v,), other = training("Adam", SMALL_SIZE)
    held = []
    for _ in range(6):
        step(), other()
        held.append(w.numpy())
    np.testing.assert_array_equal(w.numpy(), v.numpy())


def test_a_snapshot_dies_with_its_holder():
    (w,), step = training("SGD", SMALL_SIZE)
    step()
    for _ in range(3):
        shown = w.numpy()
        step()
        del shown
    gc.collect()
    where = address_of(w._array)
    step()
    assert address_of(w._array) == where


@pytest.mark.parametrize("kind", ["assign", "SGD", "SGD, compiled"])
def test_snapshots_taken_beside_a_training_thread_are_of_whole_steps(kind):
    (w,), step = training(kind, 4 * SMALL_SIZE)
    step()
    stop = threading.Event()

    def work():
        while not stop.is_set():
            step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(30):
            shown = w.numpy()
            first = shown.copy()
            assert first.min() == first.max()
            assert (shown == first).all()
    finally:
        stop.set()
        thread.join()
