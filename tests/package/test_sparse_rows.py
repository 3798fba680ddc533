"""Sparse rows: the class, gradients that stay rows, and whatever reads them."""

import copy
import pickle
import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import DTypeError, OutOfRangeError, SettingError, ShapeError

RNG = np.random.default_rng(0)


def table(shape=(6, 2), dtype=np.float64, sparse=True):
    data = np.random.default_rng(1).normal(size=shape).astype(dtype)
    return od.Variable(data, requires_grad=True, sparse_grad=sparse)


def both(loss, shape=(6, 2), dtype=np.float64, times=1):
    """Return the gradient of a table that keeps rows, and of one that does not."""
    found = []
    for sparse in (True, False):
        t = table(shape, dtype, sparse)
        for _ in range(times):
            with od.GradientTape() as tape, np.errstate(all="ignore"):
                value = loss(t)
                tape.backward(value)
        found.append(t.grad)
    return found


# ------------------------------------------------------------------ the class


def test_rows_are_the_array_that_is_zero_elsewhere_and_repeated_rows_add_up():
    rows = od.SparseRows([2, 0, -1, 2], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], (4, 2))
    wanted = np.array([[3.0, 4.0], [0.0, 0.0], [8.0, 10.0], [5.0, 6.0]])
    np.testing.assert_array_equal(rows.to_dense(), wanted)
    np.testing.assert_array_equal(np.asarray(rows), wanted)
    one = rows.coalesce()
    np.testing.assert_array_equal(one.indices, [0, 2, 3])
    np.testing.assert_array_equal(one.values, wanted[[0, 2, 3]])
    assert (rows.shape, rows.ndim, rows.size, rows.dtype) == ((4, 2), 2, 8, np.float64)


@pytest.mark.parametrize("kind", ["b", "B", "h", "H", "i", "I", "l", "L", "q", "Q"])
def test_indices_are_of_any_integer_dtype(kind):
    rows = od.SparseRows(np.array([3, 1], kind), [1.0, 2.0], (5,))
    np.testing.assert_array_equal(np.asarray(rows), [0, 2, 0, 1, 0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.complex128])
def test_products_with_numbers_and_sums_of_rows_stay_rows(dtype):
    a = od.SparseRows([1, 1], np.array([[1, 2], [3, 4]], dtype), (3, 2))
    b = od.SparseRows([0, 1], np.array([[5, 6], [7, 8]], dtype), (3, 2))
    dense = np.asarray(a), np.asarray(b)
    for rows, wanted in [
        (a + b, dense[0] + dense[1]),
        (a - b, dense[0] - dense[1]),
        (a * 2, dense[0] * 2),
        (0.5 * a, dense[0] * 0.5),
        (a / 2, dense[0] / 2),
        (-a, -dense[0]),
    ]:
        assert type(rows) is od.SparseRows
        assert rows.dtype == dtype
        np.testing.assert_array_equal(np.asarray(rows), wanted)
    ones = np.ones((3, 2), dtype)
    for found, wanted in [
        (ones + a, ones + dense[0]),
        (a + ones, ones + dense[0]),
        (ones - a, ones - dense[0]),
        (a * ones, dense[0]),
    ]:
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, wanted)


def test_a_sum_that_goes_on_keeps_no_more_rows_than_the_table_has():
    total = one = od.SparseRows([1, 1], np.ones((2, 1)), (3, 1))
    for _ in range(50):
        total = total + one
    assert len(total.indices) <= 3
    np.testing.assert_array_equal(np.asarray(total), [[0], [102], [0]])


@pytest.mark.parametrize(
    ("indices", "values", "shape", "error", "match"),
    [
        ([0], [[1.0]], (2, 2), ShapeError, r"values of shape \(1, 1\)"),
        ([0, 1], [[1.0]], (2, 1), ShapeError, "indices of rows"),
        ([[0]], [[1.0]], (2, 1), ShapeError, "they have one axis"),
        ([0.5], [[1.0]], (2, 1), DTypeError, "pass integers"),
        ([2], [[1.0]], (2, 1), OutOfRangeError, "index 2 is out of range for 2 rows"),
        ([-3], [[1.0]], (2, 1), OutOfRangeError, "index -3 is out of range"),
        ([0], 1.0, (), ShapeError, "SparseRows"),
    ],
)
def test_parts_that_do_not_fit_are_refused(indices, values, shape, error, match):
    with pytest.raises(error, match=match):
        od.SparseRows(indices, values, shape)


# ------------------------------------------------------------------ which gradients are rows

IDS = np.array([[1, 3], [3, 0]])
ROW_LOSSES = {
    "embedding": lambda t: (od.nn.embedding(IDS, t) ** 3).sum(),
    "padding": lambda t: (od.nn.embedding(IDS, t, padding_index=-3) ** 3).sum(),
    "take": lambda t: (ops.take(t, np.array([-1, 2, -1]), axis=0) ** 3).sum(),
    "take from behind": lambda t: (ops.take(t, np.array([1]), axis=-t.ndim) ** 3).sum(),
    "wrapped": lambda t: (ops.take(t, np.array([-7, 13]), axis=0, mode="wrap") ** 3).sum(),
    "clipped": lambda t: (ops.take(t, np.array([-7, 13]), axis=0, mode="clip") ** 3).sum(),
    "index": lambda t: (t[IDS] ** 3).sum(),
    "negative": lambda t: (t[np.array([-1, 5, 0], np.int8)] ** 3).sum(),
    "list": lambda t: (t[[1, 2, 1]] ** 3).sum(),
    "number": lambda t: (t[3] ** 3).sum(),
    "full slice": lambda t: (t[IDS, :] ** 3).sum(),
    "ellipsis": lambda t: (t[IDS, ...] ** 3).sum(),
    "two uses": lambda t: (t[IDS] ** 3).sum() + (od.nn.embedding(IDS.T, t) ** 2).sum(),
    "empty": lambda t: (t[np.zeros((0, 3), int)] ** 3).sum(),
    "masked": lambda t: ops.where(t[IDS] > 0, ops.sqrt(ops.relu(t[IDS])), 0.0).sum(),
}
DENSE_LOSSES = {
    "all": lambda t: (t**3).sum(),
    "tied": lambda t: (t[IDS] ** 3).sum() + (t * 2.0).sum(),
    "tied before": lambda t: (t * 2.0).sum() + (t[IDS] ** 3).sum(),
    "slice": lambda t: (t[1:4] ** 3).sum(),
    "mask": lambda t: (t[np.array([True, False] * 3)] ** 3).sum(),
    "pairs": lambda t: (t[np.array([1, 2]), np.array([0, 1])] ** 3).sum(),
    "other axis": lambda t: (ops.take(t, np.array([1]), axis=1) ** 3).sum(),
    "flat": lambda t: (ops.take(t, np.array([7])) ** 3).sum(),
    "of a result": lambda t: ((t * 2.0)[IDS] ** 3).sum(),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("name", ROW_LOSSES)
def test_rows_that_are_read_have_a_gradient_of_rows_equal_to_the_dense_one(name, dtype):
    if dtype == np.complex128:
        if name == "masked":
            pytest.skip("complex numbers have no order")
        rows, dense = both(lambda t: ops.real(ROW_LOSSES[name](t)), dtype=dtype)
    else:
        rows, dense = both(ROW_LOSSES[name], dtype=dtype)
    assert name == "masked" or type(rows) is od.SparseRows
    np.testing.assert_array_equal(np.asarray(rows), dense)


@pytest.mark.parametrize("name", DENSE_LOSSES)
def test_other_uses_have_a_dense_gradient(name):
    rows, dense = both(DENSE_LOSSES[name])
    assert type(rows) is np.ndarray
    np.testing.assert_allclose(rows, dense, rtol=1e-15)


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 2, 3), (6, 0)])
def test_tables_have_any_number_of_axes(shape):
    rows, dense = both(lambda t: (t[IDS] ** 3).sum() + ops.take(t, IDS, 0).sum(), shape)
    assert type(rows) is od.SparseRows
    np.testing.assert_allclose(np.asarray(rows), dense, rtol=1e-15)


def test_without_sparse_grad_all_gradients_are_arrays():
    assert type(both(ROW_LOSSES["embedding"])[1]) is np.ndarray
    assert not table(sparse=False).sparse_grad
    assert "sparse_grad" not in repr(table(sparse=False))
    assert table().sparse_grad
    assert repr(table()).endswith("requires_grad=True, sparse_grad=True)")


def test_gradients_accumulate_over_sweeps_as_dense_ones_do():
    rows, dense = both(ROW_LOSSES["index"], times=3)
    assert type(rows) is od.SparseRows
    np.testing.assert_allclose(np.asarray(rows), dense, rtol=1e-15)


def test_gradient_and_transforms_return_arrays():
    t = table()
    with od.GradientTape(persistent=True) as tape:
        loss = ROW_LOSSES["embedding"](t)
    found = tape.gradient(loss, t)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, np.asarray(tape.backward(loss)[t]))
    assert type(od.grad(lambda x: (x[IDS] ** 3).sum())(t.numpy())) is np.ndarray


def test_second_derivatives_and_hessian_vector_products_are_right_and_dense():
    t, d = table(), table(sparse=False)
    found = []
    for leaf in (t, d):
        with od.GradientTape() as outer:
            with od.GradientTape() as inner:
                loss = (leaf[IDS] ** 3).sum()
            inner.backward(loss)
            second = (leaf.grad * leaf.grad).sum()
        found.append(outer.gradient(second, leaf))
    np.testing.assert_array_equal(*found)
    with od.GradientTape() as tape:
        loss = (t[IDS] ** 3).sum()
        g = tape.gradient(loss, t, create_graph=True)
        outcome = (g**2).sum()
    np.testing.assert_array_equal(tape.gradient(outcome, t), found[0])


def test_what_backward_returns_holds_rows_that_share_no_memory_with_grad():
    t = table()
    with od.GradientTape() as tape:
        loss = ROW_LOSSES["index"](t)
    gradients = tape.backward(loss)
    shown, kept = gradients[t], t.grad
    assert type(shown) is od.SparseRows
    for a, b in [(shown.values, kept.values), (shown.indices, kept.indices)]:
        np.testing.assert_array_equal(a, b)
        assert not np.shares_memory(a, b)


def test_rows_keep_their_numbers_when_the_indices_are_written_to_after_the_sweep():
    t, ids = table(), IDS.copy()
    with od.GradientTape() as tape:
        loss = (t[ids] ** 2).sum() + od.nn.embedding(ids, t).sum()
    tape.backward(loss)
    before = np.asarray(t.grad)
    ids[...] = 5
    np.testing.assert_array_equal(np.asarray(t.grad), before)


def test_hooks_get_rows_and_may_replace_them_by_rows_or_arrays():
    for change, kind in [
        (lambda g: g * 0.5, od.SparseRows),
        (lambda g: np.asarray(g) * 0.5, np.ndarray),
    ]:
        t, seen = table(), []
        with od.GradientTape() as tape:
            loss = ROW_LOSSES["index"](t)
            tape.on_gradient(t, lambda g, seen=seen, change=change: seen.append(g) or change(g))
        tape.backward(loss)
        assert [type(g) for g in seen] == [od.SparseRows]
        assert type(t.grad) is kind
        np.testing.assert_array_equal(np.asarray(t.grad), np.asarray(seen[0]) * 0.5)


def test_a_checking_tape_gives_the_same_rows_and_finds_what_is_not_finite():
    t, d = table(), table()
    for leaf, check in ((t, True), (d, False)):
        with od.GradientTape(check=check) as tape:
            loss = ROW_LOSSES["two uses"](leaf)
        tape.backward(loss)
    assert type(t.grad) is od.SparseRows
    np.testing.assert_array_equal(np.asarray(t.grad), np.asarray(d.grad))
    zero = od.Variable(np.zeros((4, 1)), requires_grad=True, sparse_grad=True)
    with od.GradientTape(check=True) as tape:
        loss = ops.sqrt(zero[np.array([1])]).sum()
    with pytest.raises(od.errors.NonFiniteError), np.errstate(all="ignore"):
        tape.backward(loss)


def test_checkpoints_give_right_gradients():
    t, d = table(), table(sparse=False)
    for leaf in (t, d):
        with od.GradientTape() as tape:
            loss = od.checkpoint(lambda leaf=leaf: (leaf[IDS] ** 3).sum())()
        tape.backward(loss)
    np.testing.assert_array_equal(np.asarray(t.grad), d.grad)


def test_infinities_and_nan_of_rows_stay_in_their_rows():
    t = od.Variable(
        np.array([[1.0], [np.inf], [np.nan], [2.0]]), requires_grad=True, sparse_grad=True
    )
    with od.GradientTape() as tape:
        loss = (t[np.array([1, 2])] ** 2).sum()
    tape.backward(loss)
    np.testing.assert_array_equal(np.asarray(t.grad), [[0.0], [np.inf], [np.nan], [0.0]])


# ------------------------------------------------------------------ setting, copying, refusals


def test_a_gradient_of_rows_may_be_set_and_is_copied():
    t, rows = table(), od.SparseRows([1], np.ones((1, 2), np.float32), (6, 2))
    t.grad = rows
    assert t.grad.dtype == np.float64
    np.testing.assert_array_equal(np.asarray(t.grad), np.asarray(rows))
    same = od.SparseRows([1], np.ones((1, 2)), (6, 2))
    t.grad = same
    assert not np.shares_memory(t.grad.values, same.values)
    with pytest.raises(ShapeError, match=r"shape \(5, 2\)"):
        t.grad = od.SparseRows([1], np.ones((1, 2)), (5, 2))
    with pytest.raises(DTypeError, match="complex128"):
        t.grad = od.SparseRows([1], np.ones((1, 2), complex), (6, 2))
    with pytest.raises(DTypeError, match="sparse_grad=True"):
        table(sparse=False).grad = rows


def test_the_word_of_torch_leads_to_the_tables_variable():
    with pytest.raises(DTypeError, match="sparse_grad=True of the table's Variable"):
        od.nn.embedding(IDS, table(), sparse=True)
    with pytest.raises(AttributeError, match=r"Adam\(params, lazy=True\)"):
        od.optim.SparseAdam  # noqa: B018


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: od.Variable([1.0], sparse_grad=True), SettingError, "requires_grad=True"),
        (lambda: od.Variable(1.0, True, sparse_grad=True), ShapeError, "no axes"),
        (lambda: od.Variable([1.0], True, sparse_grad="yes"), DTypeError, "sparse_grad"),
    ],
)
def test_variables_that_have_no_rows_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_of_a_table_keep_rows(copied):
    t = table()
    with od.GradientTape() as tape:
        loss = ROW_LOSSES["index"](t)
    tape.backward(loss)
    other = copied(t)
    assert other.sparse_grad
    assert type(other.grad) is od.SparseRows
    np.testing.assert_array_equal(np.asarray(other.grad), np.asarray(t.grad))
    t.requires_grad = False
    assert copied(t).sparse_grad


def test_rows_are_one_leaf_of_a_tree_so_that_a_map_scales_their_values():
    rows = od.SparseRows([1, 2], np.ones((2, 2)), (6, 2))
    (half,) = od.tree.map_tree(lambda g: g * 0.5, [rows])
    np.testing.assert_array_equal(np.asarray(half), 0.5 * np.asarray(rows))
    other = pickle.loads(pickle.dumps(rows))
    np.testing.assert_array_equal(np.asarray(other), np.asarray(rows))


def test_a_compiled_function_that_returns_rows_runs_as_it_was_written():
    t = table()

    @od.compile(warn=False)
    def gradient(ids):
        t.zero_grad()
        with od.GradientTape() as tape:
            loss = (t[ids] ** 3).sum()
        tape.backward(loss)
        return t.grad

    for _ in range(3):
        found = gradient(IDS)
        assert type(found) is od.SparseRows
        assert found.values is t.grad.values
    np.testing.assert_array_equal(np.asarray(found), both(ROW_LOSSES["index"])[1])


def test_indices_out_of_range_are_refused_where_the_rows_are_read():
    t = table()
    for read in (
        lambda: t[np.array([6])],
        lambda: ops.take(t, np.array([-7]), axis=0),
        lambda: od.nn.embedding(np.array([-1]), t),
    ):
        with od.GradientTape(), pytest.raises(OutOfRangeError):
            read()
    assert t.grad is None


def test_two_threads_sweep_tables_of_their_own_and_a_table_that_they_share():
    shared = table()
    own = [table() for _ in range(2)]
    failed = []

    def work(k):
        try:
            for _ in range(100):
                with od.GradientTape() as tape:
                    loss = (own[k][IDS] ** 2).sum() + shared[np.array([k])].sum()
                tape.backward(loss)
        except Exception as error:  # pragma: no cover
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    wanted = np.zeros((6, 2))
    wanted[:2] = 100.0
    np.testing.assert_array_equal(np.asarray(shared.grad), wanted)


# ------------------------------------------------------------------ clipping


@pytest.mark.parametrize(
    "clip",
    [
        lambda v: od.optim.clip_grad_value(v, 0.7),
        lambda v: od.optim.clip_grad_norm(v, 0.7),
        lambda v: od.optim.clip_grad_norm(v, 0.7, norm_type=np.inf),
        lambda v: od.optim.clip_grad_global_norm(v, 0.7),
        lambda v: od.optim.clip_grad_global_norm(v, 0.7, norm_type=1.5),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_clipping_keeps_rows_and_clips_them_as_the_dense_gradient(clip, dtype):
    found = []
    for sparse in (True, False):
        t, w = table(dtype=dtype, sparse=sparse), od.Variable(np.ones(2, dtype), requires_grad=True)
        with od.GradientTape() as tape:
            loss = (t[np.array([1, 3, 3, 1, 1])] ** 2 * w).sum()
        tape.backward(loss)
        clip([t, w])
        found.append((t.grad, w.grad))
    assert type(found[0][0]) is od.SparseRows
    assert found[0][0].dtype == dtype
    tolerance = {"rtol": 4 * np.finfo(dtype).eps}  # norms add up in another order
    np.testing.assert_allclose(np.asarray(found[0][0]), found[1][0], **tolerance)
    np.testing.assert_allclose(found[0][1], found[1][1], **tolerance)
