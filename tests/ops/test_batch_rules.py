"""Batch rules of indexing, shapes and reductions: the results of vmap are those of a loop."""

import copy
import pickle

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import DTypeError, OutOfRangeError, SettingError, ShapeError, TapeError
from odyssey.nn import embedding
from odyssey.ops import OPS
from odyssey.ops.structure.runtime_assert import demanded
from support.together import each

X = np.random.default_rng(0).normal(size=(3, 4, 5, 2))
ROWS = np.random.default_rng(1).integers(-4, 4, size=(3, 2))


def loop(fn, *operands):
    return np.stack([np.asarray(fn(*[x[k] for x in operands])) for k in range(len(operands[0]))])


def assert_is_loop(fn, *operands, reference=None):
    """The result, and gradients of its sine, are those of a loop over NumPy's function."""
    wanted = loop(reference or fn, *operands)
    for run in (od.vmap(fn), od.compile(od.vmap(fn))):
        got = run(*operands)
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    if wanted.dtype.kind == operands[0].dtype.kind == "f":
        slope = od.grad(lambda *given: ops.sum(ops.sin(fn(*given))))
        got = od.vmap(slope)(*operands)
        np.testing.assert_allclose(got, loop(slope, *operands), rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ keys

KEYS = {
    "integer": 2,
    "slices and integers": (slice(None, None, -2), -1, slice(1, 2)),
    "new axes": (None, ..., 0, None),
    "list": [2, 0, 2],
    "list behind a slice": (slice(None), [1, 1, 4]),
    "list between slices": (slice(1, 3), [[0], [2]], slice(None)),
    "separated lists": ([0, 3], slice(None), [1, 0]),
    "integer and list, separated": (0, slice(None), [1, 0, 1]),
    "new axis between lists": ([0, 3], None, [1, 0]),
    "lists around dots of no axes": ([0, 3], [1, 2], ..., [1, 0]),
    "adjacent lists": (slice(None), [0, 3], [1, 0]),
    "mask of rows": np.array([True, False, True, True]),
    "mask of two axes": (slice(None), np.array([[True, False]] * 5)),
    "truth value": (True, slice(1, 3)),
    "empty list": [],
    "nothing": (),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_keys_select_from_each_example_as_numpy_does(key):
    assert_is_loop(lambda x: x[key], X)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
@pytest.mark.parametrize("mapped", ["x", "v", "both", "number"])
def test_setitem_writes_to_each_example_as_numpy_does(key, mapped):
    values = np.random.default_rng(2).normal(size=(3, *X[0][key].shape))

    def reference(x, v):
        x = x.copy()
        x[key] = v
        return x

    def write(x, v):
        return ops.setitem(x, v, key)

    if mapped == "x":
        assert_is_loop(
            lambda x: write(x, values[0]), X, reference=lambda x: reference(x, values[0])
        )
    elif mapped == "v":
        assert_is_loop(lambda v: write(X[0], v), values, reference=lambda v: reference(X[0], v))
    elif mapped == "both":
        assert_is_loop(write, X, values, reference=reference)
    else:
        assert_is_loop(lambda x: write(x, 7), X, reference=lambda x: reference(x, 7))


def test_setitem_drops_leading_ones_of_the_values_of_each_example():
    values = np.arange(30.0).reshape(3, 1, 1, 5, 2)
    assert_is_loop(
        lambda x, v: ops.setitem(x, v, 1),
        X,
        values,
        reference=lambda x, v: np.concatenate([x[:1], v[0], x[2:]]),
    )


# ------------------------------------------------------------------ indices of each example


INDEXED = {
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x[:, i],
    "x[1:, i, None]": lambda x, i: x[1:, i, None],
    "x[..., i % 2]": lambda x, i: x[..., i % 2],
    "x[i, i]": lambda x, i: x[i, i],
    "x[i[0], 1:]": lambda x, i: x[i[0], 1:],
    "np.take of flat elements": lambda x, i: np.take(x, i),
    "np.take along an axis": lambda x, i: np.take(x, i, axis=-2),
    "np.take, wrapped": lambda x, i: np.take(x, i * 3, axis=2, mode="wrap"),
    "np.take, clipped": lambda x, i: np.take(x, i * 3, axis=2, mode="clip"),
    "np.take_along_axis": lambda x, i: np.take_along_axis(x, i[:, None, None], 0),
}


@pytest.mark.parametrize("fn", INDEXED.values(), ids=INDEXED.keys())
@pytest.mark.parametrize("mapped", ["x", "indices", "both"])
def test_indices_of_each_example_select_as_numpy_does(fn, mapped):
    if mapped == "x":
        assert_is_loop(lambda x: fn(x, ROWS[0]), X)
    elif mapped == "indices":
        shared = od.Variable(X[0])  # an array would ask for the values of the indices
        assert_is_loop(lambda i: fn(shared, i), ROWS, reference=lambda i: fn(X[0], i))
    else:
        assert_is_loop(fn, X, ROWS)


OUTSIDE = {
    "take": (lambda x, i: ops.take(x, i, 0), ShapeError),
    "take along the last axis": (lambda x, i: ops.take(x.T, i, 1), ShapeError),
    "take_along_axis": (lambda x, i: ops.take_along_axis(x, i[:, None], 0), ShapeError),
    "embedding": (lambda x, i: embedding(i, x), OutOfRangeError),
    "put": (lambda x, i: ops.put_along_axis(x, i[:, None], 0.0, 0), ShapeError),
}


@pytest.mark.parametrize(("fn", "error"), OUTSIDE.values(), ids=OUTSIDE.keys())
@pytest.mark.parametrize("index", [3, -4])
def test_an_index_out_of_range_does_not_reach_the_next_example(fn, error, index):
    x, indices = np.ones((3, 3, 2)), np.array([[0], [index], [1]])
    with pytest.raises(error, match=rf"index {index} is out of (bounds|range)"):
        od.vmap(fn)(x, indices)
    with pytest.raises(error, match=r"out of (bounds|range)"):
        od.compile(od.vmap(fn))(x, indices)


def test_negative_rows_of_an_embedding_raise_for_weights_of_each_example():
    with pytest.raises(OutOfRangeError, match="out of range"):
        od.vmap(embedding)(np.array([[0], [-1]]), np.ones((2, 3, 2)))


def test_the_padding_row_of_an_embedding_is_a_constant_in_each_example():
    weight = np.arange(24.0).reshape(2, 4, 3)
    indices = np.array([[1, 2, 1], [3, 1, 0]])

    def loss(weight, indices):
        return ops.sum(ops.sin(embedding(indices, weight, padding_index=1)))

    slope = od.vmap(od.grad(loss))(weight, indices)
    wanted = np.zeros(weight.shape)
    for example, row in ((0, 2), (1, 3), (1, 0)):
        wanted[example, row] = np.cos(weight[example, row])
    np.testing.assert_allclose(slope, wanted, rtol=1e-14)


def test_dynamic_slices_at_starts_of_each_example_are_clamped_as_those_of_one():
    x, starts = np.arange(36).reshape(3, 3, 4), np.array([[0, 0], [9, -1], [-9, 2]])
    wanted = np.stack([x[0, :2, :3], x[1, 1:, 1:], x[2, :2, 1:]])
    got = od.vmap(lambda x, at: ops.dynamic_slice(x, at, (2, 3)))(x, starts)
    np.testing.assert_array_equal(got, wanted)
    written = od.vmap(lambda x, v, at: ops.dynamic_update_slice(x, v, at))(x, -wanted, starts)
    np.testing.assert_array_equal(written, np.where(np.isin(x, wanted), -x, x))


def test_binary_search_in_sequences_of_each_example_is_that_of_numpy():
    rng = np.random.default_rng(3)
    a = np.sort(rng.integers(0, 5, size=(6, 7)).astype(float), axis=1)
    a[0, -2:] = np.nan
    v = rng.integers(-1, 7, size=(6, 2, 4)).astype(np.float32)
    v[:, 0, 0] = np.nan
    for side in ("left", "right"):
        assert_is_loop(lambda a, v, side=side: np.searchsorted(a, v, side), a, v)
        assert_is_loop(lambda a, side=side: np.searchsorted(a, 2, side), a)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("lengths", [(4, 3), (3, 4), (1, 5), (4, 4), (300, 200)])
def test_convolutions_of_each_example_are_those_of_numpy(mode, lengths):
    rng = np.random.default_rng(4)
    a, v = (rng.normal(size=(2, n)) for n in lengths)
    assert_is_loop(lambda a, v: np.convolve(a, v, mode), a, v)
    assert_is_loop(lambda v: np.convolve(a[0], v, mode), v)


def test_segments_of_each_example_need_their_number():
    ids = np.array([[0, 1, 0], [2, -1, 5]])
    data = np.array([[1.0, 5.0, 3.0], [4.0, 5.0, 6.0]])
    got = od.vmap(lambda x, i: ops.segment_max(x, i, 3))(data, ids)
    np.testing.assert_array_equal(got, [[3, 5, -np.inf], [-np.inf, -np.inf, 4]])
    shared = od.vmap(lambda x: ops.segment_max(x, ids[0]))(data)
    np.testing.assert_array_equal(shared, [[3, 5], [6, 5]])
    with pytest.raises(DTypeError, match=r"segment_max: .* that vmap runs; pass num_segments"):
        od.vmap(lambda i: ops.segment_max(data[0], i))(ids)


def test_one_false_condition_of_an_example_raises():
    def positive(x):
        return demanded(x, x > 0, "x must be positive")

    np.testing.assert_array_equal(od.vmap(positive)(np.array([1.0, 2.0])), [1, 2])
    with pytest.raises(SettingError, match="must be positive"):
        od.vmap(positive)(np.array([1.0, -2.0]))


NESTED = {
    "take": lambda x, i: ops.take(x, i, 0),
    "take_along_axis": lambda x, i: ops.take_along_axis(x, i[:, None], 0),
    "put_along_axis": lambda x, i: ops.put_along_axis(x, i[:, None], 1.0, 0),
    "dynamic_slice": lambda x, i: ops.dynamic_slice(x, i, (2, 3)),
    "dynamic_update_slice": lambda x, i: ops.dynamic_update_slice(x, x[1:, 2:] ** 2, i),
    "update_rows": lambda x, i: ops.update_rows(x, x[1:] ** 2, i[0], wrap=True),
    "segment_max": lambda x, i: ops.segment_max(x[:2], i, 3),
    "searchsorted": lambda x, i: ops.searchsorted(ops.sort(x[0]), i),
    "convolve": lambda x, i: ops.convolve(x[0], i * 0.5),
    "demanded": lambda x, i: demanded(x, i < 9, "small"),
    "concatenate": lambda x, i: ops.concatenate([x[0], i, x[1]]),
}


@pytest.mark.parametrize("fn", NESTED.values(), ids=NESTED.keys())
def test_rules_run_in_the_batches_of_a_vmap_outside(fn):
    x = X[..., 0]
    inner = (None, 0), (0, None)
    outer = (0, None), (None, 0)
    for in_axes, out_axes, transposed in zip(inner, outer, (False, True), strict=True):
        got = od.vmap(od.vmap(fn, in_axes), out_axes)(x, ROWS)
        wanted = np.stack([np.stack([np.asarray(fn(a, i)) for i in ROWS]) for a in x])
        np.testing.assert_array_equal(np.swapaxes(got, 0, 1) if transposed else got, wanted)


# ------------------------------------------------------------------ arrays of examples


def add_rows(x):
    total = 0.0
    for row in x:
        total = total + row * row[0]
    return total / len(x)


def add_to_itself(x):
    y = x * 1.0
    y += 1
    y *= x
    y -= 2.0
    y /= 3
    return y


USES = {
    "iteration and length": add_rows,
    "in-place operators": add_to_itself,
    "unpacking": lambda x: (lambda a, b, c, d: a * b - c / d)(*x),
    "np.sum": lambda x: np.sum(x, axis=(0, -1)),
    "mean of all": lambda x: x.mean(),
    "max with keepdims": lambda x: x.max(keepdims=True),
    "transpose": lambda x: x.T * x.ndim,
    "reshape, column-major": lambda x: np.reshape(x, (5, -1), order="F"),
    "np.where": lambda x: np.where(x > 0, x, 0.1),
    "np.split": lambda x: np.split(x, 2)[1] + np.array_split(x, 3, axis=1)[0][:2, :1],
    "np.pad": lambda x: np.pad(x, ((1, 1), (0, 2), (0, 0)), mode="reflect"),
    "np.stack": lambda x: np.stack([x[0], x[1] * 2], axis=-1),
    "np.concatenate": lambda x: np.concatenate([x, np.ones((1, 5, 2)), x[:1]]),
    "np.cumsum of all": lambda x: np.cumsum(x),
    "np.sort": lambda x: np.sort(x, axis=1),
    "np.median": lambda x: np.median(x, axis=(0, 2)),
    "np.roll": lambda x: np.roll(x, 3),
    "np.flip": lambda x: np.flip(x, 1),
    "einsum": lambda x: np.einsum("ijk,ilk->jl", x, x),
    "std": lambda x: x.std(axis=0, ddof=1),
}


@pytest.mark.parametrize("fn", USES.values(), ids=USES.keys())
def test_numpy_functions_and_methods_work_on_an_example(fn):
    assert_is_loop(fn, X)


def test_an_example_is_not_written_to():
    def write(x):
        x[0] = 1.0
        return x

    with pytest.raises(TapeError, match=r"vmap: .* not written to in place.*ops\.setitem"):
        od.vmap(write)(X)


def test_a_copy_of_an_example_is_a_new_value():
    np.testing.assert_array_equal(od.vmap(lambda x: x.copy().conjugate())(X), X)


def test_examples_are_copied_by_reference_and_not_pickled():
    got = od.vmap(lambda x: copy.deepcopy({"x": x})["x"] + copy.copy(x))(X)
    np.testing.assert_array_equal(got, 2 * X)
    with pytest.raises(TapeError, match="vmap: pickle asks for the value of"):
        od.vmap(pickle.dumps)(X)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: x[x > 0], r"bool\[4, 5, 2\] has no value in a function.*; use ops\.where"),
        (lambda x: np.unique(x), "unique: ar has no values in a function that vmap runs"),
        (lambda x: ops.masked_select(x, x > 0), "mask has no values in a function that vmap"),
        (lambda x: ops.setitem(x, 0.0, ops.argmax(x, 0)), r"int64\[5, 2\].*use ops\.take or"),
    ],
)
def test_values_that_decide_a_shape_or_a_key_are_named(fn, message):
    with pytest.raises(DTypeError, match=message):
        od.vmap(fn)(X)


def test_an_attribute_that_no_example_has_is_named():
    with pytest.raises(AttributeError, match="vmap: the array of an example has no 'flat'"):
        od.vmap(lambda x: x.flat)(X)


# ------------------------------------------------------------------ rules that decline


@pytest.mark.parametrize("decomposition", [None, lambda x: x * ops.sum(x)])
def test_a_batch_rule_may_leave_the_work_to_the_decomposition_or_a_loop(decomposition):
    calls = []

    def total_batch(batch, x):
        calls.append(batch.size)
        return NotImplemented

    @od.op(
        vjp={"x": lambda g, x: g * ops.sum(x) + ops.sum(g * x)},
        infer=lambda x: x,
        decomposition=decomposition,
        vmap=total_batch,
    )
    def times_total(x, /):
        return x * x.sum()

    x = X[:, 0, :, 0]
    got = od.vmap(od.grad(lambda x: ops.sum(ops.sin(times_total(x)))))(x)
    total = x.sum(1, keepdims=True)
    slope = np.cos(x * total)
    np.testing.assert_allclose(got, slope * total + (slope * x).sum(1, keepdims=True), rtol=1e-12)
    assert calls == [3]


# ------------------------------------------------------------------ messages

MISFITS = {
    "reshape": (lambda x: ops.reshape(x, (3, 7)), r"reshape: \(4, 5, 2\) has 40 elements"),
    "transpose": (lambda x: ops.transpose(x, (0, 1)), "each of the 3 axes"),
    "transpose, no such axis": (lambda x: ops.transpose(x, (0, 1, 5)), "axis .* does not fit"),
    "transpose, an axis twice": (lambda x: ops.transpose(x, (0, 1, -2)), "axes are distinct"),
    "sum_to": (lambda x: ops.sum_to(x, (3, 4, 5, 2)), r"\(4, 5, 2\)"),
    "too many indices": (lambda x: x[0, 1, 0, 0], "too many indices"),
    "too many indices beside lists": (lambda x: x[[0], :, [1], 0], "too many indices"),
    "too many written": (lambda x: ops.setitem(x, 0.0, ([0], slice(None), [1], 0)), "too many"),
    "mask of another length": (lambda x: x[np.ones(3, bool)], "boolean index did not match"),
    "take, no such axis": (lambda x: ops.take(x, np.zeros((3, 1), int), -4), "does not fit"),
    "broadcast_to": (lambda x: ops.broadcast_to(x, (5, 2)), r"\(4, 5, 2\) does not broadcast"),
    "sum": (lambda x: ops.sum(x, 3), "axis 3 does not fit an array of 3 axes"),
    "sum of a number": (lambda x: ops.sum(x[0, 0, 0], 1), "does not fit a number"),
    "sort": (lambda x: ops.sort(x, -4), "axis -4 does not fit an array of 3 axes"),
    "getitem": (lambda x: x[4], r"x has shape \(4, 5, 2\), the index is 4"),
    "concatenate": (lambda x: ops.concatenate([x, x[0]]), r"\(4, 5, 2\), \(5, 2\)"),
    "concatenate numbers": (lambda x: ops.concatenate([x[0, 0, 0], x[0, 0, 1]]), "need an axis"),
    "concatenate lengths": (lambda x: ops.concatenate([x, np.ones((3, 5, 3))]), "another axis"),
    "matrix_transpose": (lambda x: ops.matrix_transpose(x[0, 0]), r"x has shape \(2,\)"),
    "setitem": (lambda x: ops.setitem(x, np.ones((3, 5, 2)), 0), r"v \(3, 5, 2\) does not"),
    "take": (lambda x: ops.take(x, np.array([0]), 3), "axis 3 does not fit"),
    "put": (lambda x: ops.put_along_axis(x, np.array([0]), 1.0, 0), r"x \(4, 5, 2\)"),
}


@pytest.mark.parametrize(("fn", "message"), MISFITS.values(), ids=MISFITS.keys())
def test_messages_name_the_shapes_of_one_example(fn, message):
    with pytest.raises(ShapeError, match=message):
        od.vmap(fn)(X)


REJECTS = {f"{row.name}-{k}": (row, r) for row in OPS.values() for k, r in enumerate(row.rejects)}


@pytest.mark.share(4)
@each(("row", "reject"), REJECTS)
def test_what_a_row_rejects_is_rejected_of_an_example_by_its_message(row, reject):
    operands = [np.zeros(o) if isinstance(o, tuple) else o for o in reject.operands]
    arrays = [k for k, o in enumerate(operands) if isinstance(o, np.ndarray)]
    for mapped in {*((k,) for k in arrays), tuple(arrays)} - {()}:
        batch = [np.stack([o, o]) if k in mapped else o for k, o in enumerate(operands)]
        axes = tuple(0 if k in mapped else None for k in range(len(operands)))
        with pytest.raises(reject.error, match=reject.match):
            od.vmap(lambda *given: row.call(*given, **reject.options), axes)(*batch)
