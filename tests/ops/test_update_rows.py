"""update_rows, and runtime assertions with an error class of their own."""

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, ops
from odyssey.errors import DTypeError, OutOfRangeError, SettingError
from odyssey.ops.structure.runtime_assert import demanded

BUFFER = np.arange(24.0).reshape(2, 4, 3)
ROWS = -np.arange(1.0, 13).reshape(2, 2, 3)


def written(buffer, rows, start, axis=-2):
    """What the op means: row by row, at positions modulo the capacity."""
    out, rows = np.moveaxis(buffer.copy(), axis, 0), np.moveaxis(rows, axis, 0)
    for k, row in enumerate(rows):
        out[(start + k) % len(out)] = row
    return np.moveaxis(out, 0, axis)


@pytest.mark.parametrize("kind", ["eager", "compiled", "vmap"])
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "uint64"])
def test_rows_are_written_from_a_start_on_and_wrap_if_that_is_asked_for(kind, dtype):
    def fixed(b, r, s):
        return ops.update_rows(b, r, s)

    def ring(b, r, s):
        return ops.update_rows(b, r, s, wrap=True)

    starts = np.arange(3) if dtype[0] == "u" else np.arange(-9, 9)
    if kind == "vmap":
        starts = starts.astype(dtype)
        got = od.vmap(ring, (None, None, 0))(BUFFER, ROWS, starts)
        np.testing.assert_array_equal(got, [written(BUFFER, ROWS, int(s)) for s in starts])
        got = od.vmap(lambda b, r: ring(b, r, np.array(3)))(BUFFER, ROWS)
        np.testing.assert_array_equal(got, written(BUFFER, ROWS, 3))
        got = od.vmap(lambda r, s: ring(BUFFER[0], r, s))(ROWS, np.array([1, 3], dtype))
        wanted = [written(BUFFER[0], r, s) for r, s in zip(ROWS, (1, 3), strict=True)]
        np.testing.assert_array_equal(got, wanted)
        return
    if kind == "compiled":
        fixed, ring = od.compile(fixed, check=True), od.compile(ring, check=True)
    for s in starts:
        start = np.array(s, dtype)
        np.testing.assert_array_equal(ring(BUFFER, ROWS, start), written(BUFFER, ROWS, int(s)))
        if 0 <= s <= 2:
            np.testing.assert_array_equal(fixed(BUFFER, ROWS, start), written(BUFFER, ROWS, int(s)))
        else:
            with pytest.raises(OutOfRangeError, match=f"2 rows from position {s} on do not fit"):
                fixed(BUFFER, ROWS, start)
    if kind == "compiled":
        assert ring.statistics().native == len(starts) - 1


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_the_axis_of_the_rows_is_an_option(axis):
    rows = np.take(-BUFFER, [0, 1], axis)
    got = ops.update_rows(BUFFER, rows, 1, axis=axis, wrap=True)
    np.testing.assert_array_equal(got, written(BUFFER, rows, 1, axis))


@pytest.mark.parametrize("start", [3, -1, 1 << 62, -(1 << 63)])
def test_a_program_refuses_before_it_writes_anything(start):
    buffer, other = Variable(BUFFER[0]), Variable(np.zeros(3))

    @od.compile
    def step(start):
        other.assign(other + 1.0)
        buffer.assign(ops.update_rows(buffer, ROWS[0], start))

    for _ in range(2):
        step(np.array(1))
    before = buffer.numpy().copy()
    for _ in range(2):
        with pytest.raises(OutOfRangeError, match="pass a start from 0 to 2"):
            # The eager run raises, at the same row, before it assigns the buffer.
            step(np.array(start))
        np.testing.assert_array_equal(buffer.numpy(), before)
    step(np.array(0))
    assert step.statistics() == (1, 2, 3)


def test_rows_that_do_not_fit_in_one_example_are_refused_with_the_numbers_of_that_example():
    starts = np.array([0, 1, 3])
    with pytest.raises(OutOfRangeError, match="2 rows from position 3 on do not fit"):
        od.vmap(lambda s: ops.update_rows(BUFFER, ROWS, s))(starts)


LOOPS = {
    "scan": lambda b, s: od.scan(lambda b, s: (ops.update_rows(b, ROWS, s), s), b, s)[0],
    "while_loop": lambda b, s: od.while_loop(
        lambda c: c[1] < s.shape[0],
        lambda c: (ops.update_rows(c[0], ROWS, s[c[1]]), c[1] + 1),
        (b, 0),
    )[0],
    "cond": lambda b, s: od.cond(
        ops.less(s[0], 9),
        lambda b, s: ops.update_rows(b, ROWS, s[-1]),
        lambda b, s: b,
        b,
        s,
    ),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_branches_write_rows_and_refuse_those_that_do_not_fit(name, compiled):
    fn = od.compile(LOOPS[name]) if compiled else LOOPS[name]
    wanted = BUFFER if name == "cond" else written(BUFFER, ROWS, 2)
    for _ in range(3):
        np.testing.assert_array_equal(fn(BUFFER, np.array([2, 0])), written(wanted, ROWS, 0))
        with pytest.raises(OutOfRangeError, match="2 rows from position 3 on do not fit"):
            fn(BUFFER, np.array([0, 3]))


def test_halves_are_written_as_they_are():
    buffer = ops.astype(BUFFER, "float16")
    got = ops.update_rows(buffer, ops.astype(ROWS, "float16"), 1)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, written(BUFFER, ROWS, 1))
    # As for an item assignment, the buffer decides.
    assert ops.update_rows(buffer, ROWS, 1).dtype == np.float16
    with pytest.raises(DTypeError, match="without loss"):
        ops.update_rows(np.arange(4), np.ones(1), 0, axis=0)


@pytest.mark.parametrize("kind", [SettingError, OutOfRangeError])
def test_a_runtime_assertion_raises_its_class_eager_and_compiled(kind):
    state = Variable(0.0)

    @od.compile
    def step(x):
        state.assign(demanded(x, x > 0, "step: x is not positive", kind))

    for x in (1.0, 2.0, -1.0, -2.0, 3.0):
        if x > 0:
            step(np.array(x))
        else:
            with pytest.raises(kind, match="step: x is not positive") as caught:
                step(np.array(x))
            assert type(caught.value) is kind
        assert state.item() == (x if x > 0 else 2.0)
    assert step.statistics().native == 2
