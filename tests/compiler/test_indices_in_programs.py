"""Indices among the arguments are operands of a program, and what they read is checked."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable

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
}
OTHERS = {
    "a number too": lambda x, i, j: x[i, 0],
    "a new axis": lambda x, i, j: x[i, None],
    "two slices apart": lambda x, i, j: x[i, :, j % 3],
    "more than there are": lambda x, i, j: x[np.repeat(i, 2), np.repeat(j, 2)],
    "truths": lambda x, i, j: x[:4][i > 0],
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


@pytest.mark.parametrize("read", ["rows", "pairs", "columns", "in order"])
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
