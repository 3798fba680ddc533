"""Indices among the arguments are operands of a program, and what they read is checked."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")

TABLE = np.random.default_rng(0).normal(size=(6, 4, 3))
ROWS, COLUMNS = np.array([0, 2, -1, 2]), np.array([1, 3, -2, 0])

READS = {
    "rows": lambda x, i, j: x[i],
    "rows and all": lambda x, i, j: x[i, :],
    "columns": lambda x, i, j: x[:, j],
    "after dots": lambda x, i, j: x[..., 0][..., j],
    "of two axes": lambda x, i, j: x[i[:, None]],
    "of none": lambda x, i, j: x[i[2]] + x[:, j[0]].sum(),
    "with a slice": lambda x, i, j: x[1:, j, ::-2],
    "pairs": lambda x, i, j: x[i, j],
    "in order": lambda x, i, j: x[:4][np.arange(4), j],
    "a number too": lambda x, i, j: x[i, 0],
    "a number before": lambda x, i, j: x[-1, j],
    "a number apart": lambda x, i, j: x[2, :, j % 3],
    "numbers": lambda x, i, j: x[i[0], j[1]] + x[0, j[2]],
    "numbers apart": lambda x, i, j: x[i[0], :, j[1] % 3],
    "a list too": lambda x, i, j: x[[0, -2, 1, 1], j],
    "two slices apart": lambda x, i, j: x[i, :, j % 3],
    "apart, and a slice": lambda x, i, j: x[i, ::-2, j % 3],
    "after a slice": lambda x, i, j: x[1:-1, j, j % 3],
    "three": lambda x, i, j: x[i, j, j % 3],
    "a table": lambda x, i, j: x[i[:, None], j],
    "more than there are": lambda x, i, j: x[np.repeat(i, 2), np.repeat(j, 2)],
}
OTHERS = {
    "dots of no axis": lambda x, i, j: x[i, j, ..., 0],
    "a new axis": lambda x, i, j: x[i, None],
    "dots between": lambda x, i, j: x[:, i % 3, ..., j % 3],
    "truths": lambda x, i, j: x[:4][i > 0],
    "a truth": lambda x, i, j: x[i, True],
}


def squares(read):
    return od.value_and_grad(lambda x, i, j: (read(x, i, j) ** 2).sum() + read(x, i, j).mean())


def assert_same(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_an_index_reads_is_native(read):
    wanted, compiled = squares(read), od.compile(squares(read))
    for k in (0, 0, 1, 0):
        i, j = (ROWS + k) % 6, (COLUMNS + k) % 4
        assert_same(compiled(TABLE, i, j), wanted(TABLE, i, j))
    assert_same(compiled(TABLE, ROWS, COLUMNS), wanted(TABLE, ROWS, COLUMNS))
    assert compiled.statistics().native == 4


@pytest.mark.parametrize("read", OTHERS.values(), ids=OTHERS)
def test_other_indices_are_read_as_they_are_written(read):
    wanted, compiled = squares(read), od.compile(squares(read))
    for _ in range(3):
        assert_same(compiled(TABLE, ROWS, COLUMNS), wanted(TABLE, ROWS, COLUMNS))
    assert compiled.statistics().native == 0


@pytest.mark.parametrize(
    "read",
    ["rows", "pairs", "columns", "in order", "a number too", "a table", "more than there are"],
)
@pytest.mark.parametrize("outside", [6, -7])
def test_an_index_out_of_bounds_raises_as_in_numpy(read, outside):
    compiled = od.compile(squares(READS[read]))
    compiled(TABLE, ROWS, COLUMNS)
    compiled(TABLE, ROWS, COLUMNS)
    for i, j in (
        (np.where(ROWS == 0, outside, ROWS), COLUMNS),
        (ROWS, np.where(COLUMNS == 0, outside, COLUMNS)),
    ):
        try:
            wanted = squares(READS[read])(TABLE, i, j)
        except IndexError:
            with pytest.raises(IndexError):
                compiled(TABLE, i, j)
        else:
            assert_same(compiled(TABLE, i, j), wanted)


def test_a_number_out_of_bounds_beside_an_array_raises_as_in_numpy():
    compiled = od.compile(lambda x, i: x[i, 4])
    for _ in range(2):
        with pytest.raises(IndexError):
            compiled(TABLE, ROWS)


def test_indices_of_few_bits_find_elements_that_have_larger_numbers():
    x = np.arange(300.0 * 200).reshape(300, 200)
    i, j = np.array([100, -1, 3], np.int8), np.array([199, 0, 200 - 1], np.uint8)
    compiled = od.compile(lambda x, i, j: x[:, None][i, 0, j])
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x, i, j), x[i, j])
    assert compiled.statistics().native == 2


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_any_whole_numbers_are_indices(dtype):
    compiled = od.compile(lambda x, i: x[i])
    for _ in range(3):
        np.testing.assert_array_equal(
            compiled(TABLE, ROWS.clip(0).astype(dtype)), TABLE[ROWS.clip(0)]
        )
    assert compiled.statistics().native == 2


def test_a_step_on_some_rows_of_a_table_is_native():
    def trained(compiled):
        w = Variable(TABLE[:, :, 0], requires_grad=True)
        optimizer = od.optim.SGD([w], learning_rate=0.1, momentum=0.9)

        def step(i, y):
            with GradientTape() as tape:
                loss = ((w[i].sum(1) - y) ** 2).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        call = compiled(step)
        losses = [float(call((ROWS + k) % 6, np.arange(4.0))) for k in range(5)]
        return call, [losses, w.numpy()]

    call, got = trained(od.compile)
    assert_same(got, trained(lambda fn: fn)[1])
    assert call.statistics().native == 4


def test_a_scan_reads_where_each_step_says():
    def read(x, i):
        last, _ = od.scan(lambda c, k: (np.tanh(c + x[:, k]), None), np.zeros(6), i)
        return (last**2).sum()

    wanted, compiled = od.value_and_grad(read), od.compile(od.value_and_grad(read))
    for _ in range(3):
        assert_same(compiled(TABLE[..., 0], COLUMNS), wanted(TABLE[..., 0], COLUMNS))
    assert compiled.statistics().native == 2
    with pytest.raises(IndexError):
        compiled(TABLE[..., 0], COLUMNS + 4)


# ------------------------------------------------------------------ writing

WRITES = {
    "rows": (lambda i, j: i, (4, 4, 3)),
    "a row": (lambda i, j: i[1], (4, 3)),
    "one number": (lambda i, j: i, ()),
    "columns": (lambda i, j: (slice(None), j), (6, 4, 3)),
    "after dots": (lambda i, j: (..., j % 3), (6, 4, 4)),
    "pairs": (lambda i, j: (i, j), (4, 3)),
    "pairs, a row for all": (lambda i, j: (i, j), (1, 3)),
    "pairs, with axes of one": (lambda i, j: (i, j), (1, 1, 4, 3)),
    "numbers": (lambda i, j: (i[0], j[1]), (3,)),
    "an element": (lambda i, j: (i[0], j[1], 2), ()),
    "a number and a slice": (lambda i, j: (i[0], slice(1, 3)), (2, 3)),
    "between slices": (lambda i, j: (slice(1, 4), j[0], slice(None, None, -2)), (3, 2)),
    "behind a slice": (lambda i, j: (slice(1, -1), j, j % 3), (4, 4)),
    "apart": (lambda i, j: (i, slice(None), j % 3), (4, 4)),
    "apart, and a slice": (lambda i, j: (i, slice(None, None, -2), j % 3), (4, 2)),
    "a number apart": (lambda i, j: (-1, slice(None), j % 3), (4, 4)),
    "a table": (lambda i, j: (i[:, None], j), (4, 4, 3)),
    "a list too": (lambda i, j: ([0, -2, 1, 1], j), (4, 3)),
    "a place twice": (lambda i, j: (i * 0, j * 0 + 1), (4, 3)),
}


@pytest.mark.parametrize(("key", "shape"), WRITES.values(), ids=WRITES)
def test_what_is_written_at_an_index_is_native_with_its_gradients(key, shape):
    def slopes(x, v, i, j):
        def fn(x, v):
            y = x * 2.0
            y[key(i, j)] = v * 3.0
            return (y**2).sum()

        return od.value_and_grad(fn, argnums=(0, 1))(x, v)

    v, compiled = np.random.default_rng(1).normal(size=shape), od.compile(slopes)
    for k in (0, 0, 1, 0):
        (value, (of_x, of_v)) = compiled(TABLE, v, (ROWS + k) % 6, (COLUMNS + k) % 4)
        wanted, (wanted_x, wanted_v) = slopes(TABLE, v, (ROWS + k) % 6, (COLUMNS + k) % 4)
        assert_same((value, of_x, of_v), (wanted, wanted_x, wanted_v))
    assert compiled.statistics().native == 3


@pytest.mark.parametrize(("key", "shape"), WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("trains", [True, False], ids=["leaf", "constant"])
def test_a_state_is_written_at_an_index_at_each_call(key, shape, trains):
    def held(compiled):
        state = Variable(TABLE.copy(), requires_grad=trains)

        def write(v, i, j):
            state[key(i, j)] = v

        call = compiled(write)
        for k in range(4):
            call(np.full(shape, k + 1.5), (ROWS + k) % 6, (COLUMNS + k) % 4)
        return call, state.numpy()

    call, got = held(od.compile)
    np.testing.assert_array_equal(got, held(lambda fn: fn)[1])
    assert call.statistics().native == 3


@pytest.mark.parametrize("trains", [True, False], ids=["leaf", "constant"])
@pytest.mark.parametrize("value", ["its own", "an argument", "a number", "an array", "masked"])
def test_a_state_is_written_at_an_index_that_is_a_variable(value, trains):
    def held(compiled):
        state = Variable(TABLE.copy(), requires_grad=trains)
        writes = {
            "its own": lambda v, i: state.__setitem__(i, state[i] * 0.5),
            "an argument": lambda v, i: state.__setitem__(i, v),
            "a number": lambda v, i: state.__setitem__(i, 2.0),
            "an array": lambda v, i: state.__setitem__(i, TABLE[:4]),
            "masked": lambda v, i: state.__setitem__(state[:, 0, 0] > i[0], 2.0),
        }
        call = compiled(writes[value])
        for k in range(4):
            call(Variable(np.full((4, 4, 3), k + 1.5)), Variable((ROWS + k) % 6))
        return call, state.numpy()

    call, got = held(od.compile)
    np.testing.assert_array_equal(got, held(lambda fn: fn)[1])
    assert call.statistics().native == 3


@pytest.mark.parametrize("value", [0.5, -np.inf, 7, True, np.float32(0.1), np.float64(0.1)])
@pytest.mark.parametrize("kind", ["f8", "f4", "f2"])
def test_a_number_is_written_where_a_mask_holds(kind, value):
    def masked(x):
        y = Variable(x) * 1
        y[y < 0] = value
        y[x[:, 0, 0] > 1] = value
        return y

    x, compiled = TABLE.astype(kind), od.compile(masked)
    for _ in range(3):
        got, wanted = compiled(x).numpy(), masked(x).numpy()
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    assert compiled.statistics().native == 2


def write_table(x, v, i):
    y = Variable(x) * 1
    y[i > 0] = v
    y[i] = v
    return y


@pytest.mark.parametrize(
    ("x", "v"),
    [
        (TABLE, TABLE[0]),
        (TABLE, np.ones(4)),
        (TABLE.astype(int), 2.5),
        (TABLE.astype(int), 2),
        (TABLE.astype(int), TABLE[0]),
        (TABLE, 1j),
        (TABLE, TABLE[0] * 1j),
        (TABLE, [1.0, 2.0, 3.0]),
        (TABLE * 1j, 2.0),
        (TABLE * 1j, TABLE[0]),
        (TABLE.astype("f4"), TABLE[0]),
    ],
)
def test_what_is_written_at_an_index_or_a_mask_is_what_it_is_eagerly_errors_too(x, v):
    compiled = od.compile(write_table)
    i = np.array([0, 2, -1, 2, 1, 3])
    try:
        wanted = write_table(x, v, i)
    except Exception as error:
        for _ in range(3):
            with pytest.raises(type(error)):
                compiled(x, v, i)
        return
    for _ in range(3):
        got = compiled(x, v, i)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())


@pytest.mark.parametrize("outside", [6, -7])
def test_writing_out_of_bounds_raises_as_in_numpy_and_changes_nothing(outside):
    state = Variable(TABLE.copy())

    def write(i, j):
        state[i, j] = 0.0

    compiled = od.compile(write)
    compiled(ROWS, COLUMNS)
    compiled(ROWS, COLUMNS)
    before = state.numpy().copy()
    for i, j in ((ROWS + outside, COLUMNS), (ROWS, COLUMNS + outside)):
        with pytest.raises(IndexError):
            compiled(i, j)
        np.testing.assert_array_equal(state.numpy(), before)


def test_a_queue_with_a_pointer_turns_natively():
    def turned(compiled):
        queue, at = Variable(np.zeros((6, 2))), Variable(np.array(0))

        def put(rows):
            queue[at + np.arange(3)] = rows
            at.assign((at + 3) % 6)

        call = compiled(put)
        for k in range(5):
            call(np.full((3, 2), float(k)))
        return call, queue.numpy()

    call, got = turned(od.compile)
    np.testing.assert_array_equal(got, turned(lambda fn: fn)[1])
    assert call.statistics().native == 4
