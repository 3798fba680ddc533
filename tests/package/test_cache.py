"""od.Cache: rows by position, that decoders attend to."""

import itertools
import os
import signal
import time

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, ops
from odyssey.errors import (
    DTypeError,
    MutationError,
    OdysseyError,
    OutOfRangeError,
    SettingError,
    ShapeError,
    TapeError,
)
from support.faults import FAULTS, RAISED

HEADS, DIM, WIDTH = 2, 3, 6


class Attention:
    """Layers of attention in NumPy alone, in double precision."""

    def __init__(self, layers=2, dtype=np.float64, seed=0):
        rng = np.random.default_rng(seed)
        self.weights = [
            [(rng.standard_normal((WIDTH, WIDTH)) / 2).astype(dtype) for _ in range(3)]
            for _ in range(layers)
        ]

    def full(self, x, window=None):
        """Attention of all rows at once, with a mask and without a cache."""
        at = np.arange(len(x))
        seen = at <= at[:, None]
        if window is not None:
            seen &= at > at[:, None] - window
        for w_q, w_k, w_v in self.weights:
            q, k, v = ((x @ w).reshape(-1, HEADS, DIM).transpose(1, 0, 2) for w in (w_q, w_k, w_v))
            scores = np.where(seen, q @ k.transpose(0, 2, 1), -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            y = weights / weights.sum(-1, keepdims=True) @ v
            x = x + y.transpose(1, 0, 2).reshape(-1, WIDTH)
        return x

    def step(self, x, cache):
        """The same on the next rows, with those before in a cache."""
        n = x.shape[0]
        for layer, weights in enumerate(self.weights):
            q, k, v = (
                ops.transpose(ops.reshape(x @ w, (n, HEADS, DIM)), (1, 0, 2)) for w in weights
            )
            keys, values, seen = cache[layer].put(k=k, v=v)
            scores = ops.where(seen, q @ ops.matrix_transpose(keys), -np.inf)
            y = ops.softmax(scores, axis=-1) @ values
            x = x + ops.reshape(ops.transpose(y, (1, 0, 2)), (n, WIDTH))
        cache.advance(n)
        return x


def cache_of(capacity=64, layers=2, dtype=np.float64, **options):
    return od.Cache({"k": (HEADS, DIM), "v": (HEADS, DIM)}, capacity, dtype, layers, **options)


def inputs(n, seed=1, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal((n, WIDTH)).astype(dtype)


def fed(step, x, pieces):
    """The results of all rows, fed in pieces."""
    found, begin = [], 0
    for n in pieces:
        found.append(np.asarray(step(x[begin : begin + n])))
        begin += n
    assert begin == len(x)
    return np.concatenate(found) if found else np.zeros((0, WIDTH))


def numbers(cache):
    """All that a cache holds, rows beyond its length included."""
    arrays = [v.data.copy() for layer in cache._buffers for v in layer.values()]
    return [
        *arrays,
        len(cache),
        cache._written.item(),
        cache._lost.item(),
        cache._pending.data.copy(),
    ]


def assert_equal(found, wanted):
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, two)


def rows(n=1, value=1.0, dtype=np.float64):
    return np.full((HEADS, n, DIM), value, dtype)


# ------------------------------------------------------------------ values

PIECES = {"whole": [20], "one by one": [1] * 20, "pieces": [5, 1, 1, 9, 1, 3]}


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_rows_one_after_another_give_what_all_at_once_give(pieces, compiled):
    if compiled and len(pieces) == 6:
        pieces = [2] * 10
    model, cache, x = Attention(), cache_of(), inputs(20)

    def step(x):
        return model.step(x, cache)

    found = fed(od.compile(step, check=True) if compiled else step, x, pieces)
    np.testing.assert_allclose(found, model.full(x), rtol=1e-12, atol=1e-12)
    assert len(cache) == 20


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_incremental_decoding_equals_recomputation_in_double_precision(dtype):
    model, cache, x = Attention(), cache_of(dtype=dtype), inputs(12)
    single = Attention(dtype=dtype)
    found = fed(lambda x: single.step(x, cache), x.astype(dtype), [4, *[1] * 8])
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found, model.full(x), rtol=tolerance, atol=tolerance)
    assert found.dtype == dtype


@pytest.mark.parametrize("capacity", [4, 5, 7, 64])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_window_is_attention_under_a_mask_also_where_the_ring_wraps(capacity, compiled):
    model, cache, x = Attention(), cache_of(capacity, window=4), inputs(24)
    most = min(capacity - 3, 4)

    def step(x):
        return model.step(x, cache)

    step = od.compile(step, check=True) if compiled else step
    found = fed(step, x, [most] * (24 // most))
    np.testing.assert_allclose(found, model.full(x, window=4), rtol=1e-12, atol=1e-12)
    assert len(cache) == 24


def test_the_reach_of_a_ring_grows_up_to_its_capacity():
    cache = od.Cache({"k": (2,)}, 70, "float64", window=60)

    @od.compile(check=True)
    def step(k):
        found, seen = cache[0].put(k=k)
        cache.advance(1)
        return ops.sum(ops.where(seen[0], found[:, 0], 0.0)), found[:, 0]

    for t in range(150):
        total, found = step(np.full((1, 2), float(t)))
        assert float(total) == sum(range(max(0, t - 59), t + 1))
        assert len(found) == (64 if t < 64 else 70)
    assert step.statistics().programs == 2
    with pytest.raises(OutOfRangeError, match="12 rows came for a ring of 70; pass at most 11"):
        cache[0].put(k=np.ones((12, 2)))


def test_layers_have_windows_of_their_own_where_none_is_a_ring():
    cache = cache_of(16, window=[None, 2])
    shown = []
    for _ in range(4):
        for layer in cache:
            shown.append(np.asarray(layer.put(k=rows(), v=rows())[2])[0].sum())
        cache.advance(1)
    assert shown == [1, 1, 2, 2, 3, 2, 4, 2]
    with pytest.raises(OutOfRangeError, match="13 rows came for a cache of capacity 16"):
        cache[1].put(k=rows(13), v=rows(13))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("window", [None, 5], ids=["full", "window"])
def test_after_truncation_a_cache_goes_on_as_if_the_rows_were_never_put(compiled, window):
    model, x = Attention(), inputs(20)
    cache = cache_of(20 if window is None else 9, window=window)

    def step(x):
        return model.step(x, cache)

    step = od.compile(step) if compiled else step
    fed(step, x[:12], [3, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    wild = np.full((1, WIDTH), np.nan)
    truncate = od.compile(lambda n: cache.truncate(n)) if compiled else cache.truncate
    for _ in range(3):
        fed(step, np.concatenate([wild, wild]), [1, 1])
        truncate(np.array(12))
    found = fed(step, x[12:], [1] * 8)
    wanted = model.full(x, window)[12:]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_a_cleared_cache_begins_again():
    model, cache, x = Attention(), cache_of(9, window=5), inputs(20)
    wanted = fed(lambda x: model.step(x, cache), x, [5, *[1] * 15])
    cache.clear()
    assert len(cache) == 0
    assert_equal(fed(lambda x: model.step(x, cache), x, [5, *[1] * 15]), wanted)


def test_a_prompt_may_be_padded_and_its_true_length_committed():
    model, cache, x = Attention(), cache_of(), inputs(11)

    @od.compile
    def prefill(padded, count):
        start = cache.length
        y = model.step(padded, cache)
        cache.truncate(start + count)
        return y

    padded = np.concatenate([x[:7], np.full((1, WIDTH), 9.0)])
    for _ in range(3):
        cache.clear()
        found = [np.asarray(prefill(padded, np.array(7)))[:7]]
        found.append(fed(lambda x: model.step(x, cache), x[7:], [1] * 4))
        np.testing.assert_allclose(np.concatenate(found), model.full(x), rtol=1e-12, atol=1e-12)
    assert prefill.statistics().programs == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_rows_are_held_in_the_dtype_of_the_cache(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    cache = od.Cache({"k": (2,)}, 4, dtype)
    given = ops.astype(np.arange(6.0).reshape(3, 2), dtype)

    @od.compile
    def put(given):
        found, _seen = cache[0].put(k=given)
        return found

    for _ in range(2):
        found = put(given)
        assert found.dtype == cache.dtype == given.dtype
        np.testing.assert_array_equal(
            ops.astype(found, "float64")[:3], np.arange(6.0).reshape(3, 2)
        )


def test_gradients_flow_to_the_rows_that_are_put():
    cache = od.Cache({"k": (2,)}, 4, np.float64)
    cache[0].put(k=np.ones((1, 2)))
    cache.advance(1)
    w = Variable(np.full((2, 2), 3.0), requires_grad=True)
    with od.GradientTape() as tape:
        found, _ = cache[0].put(k=w * 2.0)
        loss = ops.sum(found**2)
    cache.advance(2)
    # d/dw (2w)**2 = 8w; the row of before is a constant.
    np.testing.assert_array_equal(tape.gradient(loss, w), np.full((2, 2), 24.0))
    assert len(cache) == 3


# ------------------------------------------------------------------ programs


def test_there_is_a_program_for_each_reach_and_none_for_each_length():
    cache = cache_of(256, layers=1)
    reaches = []

    @od.compile(check=True)
    def step(k):
        keys, _values, seen = cache[0].put(k=k, v=k)
        cache.advance(1)
        return keys[0, :, 0] * seen[0]

    for t in range(256):
        found = np.asarray(step(rows(1, t + 1)))
        reaches.append(len(found))
        np.testing.assert_array_equal(found[: t + 1], np.arange(1, t + 2))
    assert reaches == [64] * 64 + [128] * 64 + [256] * 128
    assert step.statistics().programs == 3
    assert step.statistics().written <= 6
    cache.clear()
    native = step.statistics().native
    for _ in range(10):
        step(rows())
    assert step.statistics().native == native + 10


@pytest.mark.parametrize("capacity", [1, 63, 65, 1000, 1 << 14])
def test_a_cache_has_few_reaches_and_each_holds_the_length(capacity):
    cache = od.Cache({"k": (1,)}, capacity, "int8")
    found = {}
    for total in range(1, capacity + 1):
        found.setdefault(cache._reach_of(total), []).append(total)
    assert len(found) <= 7
    assert all(total <= reach <= capacity for reach, totals in found.items() for total in totals)


def test_reach_is_that_of_the_next_row_and_length_works_in_programs():
    cache = od.Cache({"k": (1,)}, 128)
    assert (cache.reach, cache.capacity, cache.layers) == (64, 128, 1)

    @od.compile
    def step(n):
        at = cache.length + np.arange(2)
        cache[0].put(k=n)
        cache.advance(2)
        return at

    for t in range(32):
        np.testing.assert_array_equal(step(np.ones((2, 1), np.float32)), [2 * t, 2 * t + 1])
    assert cache.reach == 128


def test_a_step_reads_weights_and_rows_where_they_lie():
    cache = od.Cache({"k": (256,)}, 1024)
    weight = Variable(np.ones((1024, 256), np.float32))
    held, buffer = weight.data.ctypes.data, cache._buffers[0]["k"]

    @od.compile
    def step(x):
        found, seen = cache[0].put(k=x @ weight)
        cache.advance(1)
        return ops.sum(ops.where(seen[0][:, None], found, 0), axis=0)

    x = np.ones((1, 1024), np.float32)
    for _ in range(3):
        found = step(x)
    lies = buffer.data.ctypes.data
    np.testing.assert_array_equal(found, np.full(256, 3 * 1024))
    # Both take 1 MB. The program has memory of its own for a row, and for what it returns.
    (arena,) = (line for line in str(step.explain(x)).splitlines() if line.startswith("arena"))
    assert int(arena.split()[1].replace(",", "")) < 8192
    for _ in range(3):
        step(x)
    assert (weight.data.ctypes.data, buffer.data.ctypes.data) == (held, lies)
    weight.assign(np.full((1024, 256), 2.0, np.float32))  # what was bound is not a copy
    assert step(x)[0] == 6 * 1024 + 2048


def test_a_prepared_put_of_many_rows_beyond_the_reach_runs_its_program():
    cache = od.Cache({"k": (1,)}, 256)

    @od.compile
    def step(k):
        keys, seen = cache[0].put(k=k)
        cache.advance(k.shape[0])
        return keys[:, 0] * seen[-1]

    for t, n in enumerate((60, 16, 100)):
        before = len(cache)
        assert cache.prepare(n) == (64, 128, 256)[t]
        step.precompile(od.Spec((n, 1), np.float32))
        new = np.arange(before + 1.0, before + n + 1, dtype=np.float32)[:, None]
        found = np.asarray(step(new))
        assert len(found) == (64, 128, 256)[t]
        np.testing.assert_array_equal(found[: before + n], np.arange(1, before + n + 1))
    assert step.statistics() == (3, 3, 0)
    with pytest.raises(SettingError, match=r"Cache\.prepare: n=0"):
        cache.prepare(0)


def test_prepare_is_refused_in_a_compiled_function():
    cache = od.Cache({"k": (1,)}, 256)
    with pytest.raises(OdysseyError, match=r"Cache\.prepare: called"):
        od.compile(lambda x: x * cache.prepare(2)).precompile(od.Spec((3,), np.float64))


@pytest.mark.parametrize("window", [None, 60], ids=["full", "window"])
@pytest.mark.parametrize("n", [1, 5])
def test_a_program_copies_no_buffer(window, n):
    cache = cache_of(128, window=window)
    model = Attention()
    step = od.compile(lambda x: model.step(x, cache), copies="error")
    for _ in range(4):
        step(inputs(n))
    assert len(cache) == 4 * n
    assert step.statistics().native > 0


def test_a_compiled_function_may_put_and_the_caller_advance():
    cache = cache_of(layers=2)

    @od.compile(warn=False)
    def step(k):
        return [layer.put(k=k, v=k)[0] for layer in cache]

    for t in range(5):
        found = step(rows(1, t))
        cache.advance(1)
        for keys in found:
            np.testing.assert_array_equal(np.asarray(keys)[0, : t + 1, 0], np.arange(t + 1))


# ------------------------------------------------------------------ saving


@pytest.mark.parametrize("window", [None, 3], ids=["full", "window"])
@pytest.mark.parametrize("length", [0, 4, 11])
def test_a_loaded_cache_goes_on_as_the_saved_one(tmp_path, window, length):
    model, x = Attention(), inputs(20)
    cache, other = (cache_of(20 if window is None else 6, window=window) for _ in range(2))
    fed(lambda x: model.step(x, cache), x[:length], [1] * length)
    fed(lambda x: model.step(x, other), x[:3], [3])
    od.save(tmp_path / "cache.npz", {"cache": cache})
    od.load(tmp_path / "cache.npz", like={"cache": other})
    assert len(other) == length
    wanted = fed(lambda x: model.step(x, cache), x[length:], [1] * (20 - length))
    assert_equal(fed(lambda x: model.step(x, other), x[length:], [1] * (20 - length)), wanted)


def test_a_file_has_the_committed_rows_alone_and_fits_another_capacity(tmp_path):
    cache = cache_of(4096)
    for layer in cache:
        layer.put(k=rows(3), v=rows(3))
    cache.advance(3)
    od.save(tmp_path / "cache.npz", cache)
    assert (tmp_path / "cache.npz").stat().st_size < 20_000
    small, tiny = cache_of(8), cache_of(2)
    od.load(tmp_path / "cache.npz", like=small)
    assert len(small) == 3
    before = numbers(tiny)
    with pytest.raises(ShapeError, match="3 positions of a cache came for a cache of capacity 2"):
        od.load(tmp_path / "cache.npz", like=tiny)
    assert_equal(numbers(tiny), before)


# ------------------------------------------------------------------ faults

REFUSED = {
    "the row after the last": (
        {"k": rows(15), "v": rows(15)},
        OutOfRangeError,
        "15 rows came for a",
    ),
    "no rows": ({"k": rows(0), "v": rows(0)}, OutOfRangeError, "0 rows came"),
    "dtype": ({"k": rows(dtype=np.float32), "v": rows()}, DTypeError, "k has dtype float32"),
    "numbers": ({"k": rows(), "v": [["a"]]}, DTypeError, "v"),
    "width": ({"k": rows(), "v": rows()[..., :2]}, ShapeError, r"v has shape \(2, 1, 2\)"),
    "heads": ({"k": rows()[:1], "v": rows()}, ShapeError, r"pass \(2, n, 3\)"),
    "axes": ({"k": rows()[0], "v": rows()}, ShapeError, r"k has shape \(1, 3\)"),
    "counts": ({"k": rows(2), "v": rows(1)}, ShapeError, "2 of k, 1 of v came"),
    "missing": ({"k": rows()}, SettingError, "rows of k came; pass those of k and v"),
    "unknown": ({"k": rows(), "v": rows(), "w": rows()}, SettingError, "rows of k and v and w"),
    "none": ({}, SettingError, "rows of none came"),
    "disagreeing": ({"k": rows(1), "v": rows(1)}, ShapeError, "layer 1 gets 1 row.*layer 0 got 2"),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("given", "error", "match"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(given, error, match, compiled):
    cache = cache_of(16)
    for layer in cache:
        layer.put(k=rows(2), v=rows(2))
    cache.advance(2)
    cache[0].put(k=rows(2), v=rows(2))
    before = numbers(cache)

    def put():
        return cache[1].put(**given)

    put = od.compile(put, warn=False) if compiled else put
    for _ in range(3):
        with pytest.raises(error, match=match):
            put()
        assert_equal(numbers(cache), before)


def test_a_program_refuses_the_row_after_the_last_and_goes_on_after_truncation():
    cache = cache_of(4, layers=1)

    @od.compile
    def step(k):
        cache[0].put(k=k, v=k)
        cache.advance(1)

    for _ in range(4):
        step(rows())
    before, native = numbers(cache), step.statistics().native
    for _ in range(3):
        with pytest.raises(OutOfRangeError, match="1 row came for a cache of capacity 4 that hold"):
            step(rows(1, 7.0))
        assert_equal(numbers(cache), before)
    cache.truncate(3)
    step(rows())
    assert step.statistics().native == native + 1


ADVANCES = {
    "nothing put": (0, 1, "n=1, and layer 0 of 2 got no rows"),
    "another number": (2, 3, "n=3, and layer 0 of 2 got 2 rows"),
    "a layer left out": (1, 1, "layer 1 of 2 got no rows"),
}


@pytest.mark.parametrize(("count", "n", "match"), ADVANCES.values(), ids=ADVANCES)
def test_advance_asks_for_as_many_rows_in_each_layer(count, n, match):
    cache = cache_of()
    if count:
        cache[0].put(k=rows(count), v=rows(count))
    before = numbers(cache)
    with pytest.raises(ShapeError, match=match):
        cache.advance(n)
    for wrong in (0, -1, 1.5, "1", None):
        with pytest.raises(OdysseyError, match=r"Cache\.advance: n="):
            cache.advance(wrong)
    assert_equal(numbers(cache), before)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("n", [-1, 5, 1 << 40])
def test_truncate_refuses_what_is_beyond_the_length(n, compiled):
    cache = cache_of()
    for layer in cache:
        layer.put(k=rows(4), v=rows(4))
    cache.advance(4)
    before = numbers(cache)
    truncate = od.compile(lambda n: cache.truncate(n)) if compiled else cache.truncate
    for _ in range(3):
        with pytest.raises(OutOfRangeError, match=f"n={n} for a cache of 4 positions; pass 0 to 4"):
            truncate(np.array(n))
        assert_equal(numbers(cache), before)
    truncate(np.array(4))
    truncate(np.array(2))
    assert len(cache) == 2
    with pytest.raises(DTypeError, match=r"Cache\.truncate: n=1\.5"):
        cache.truncate(1.5)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_ring_refuses_to_go_back_to_rows_that_it_overwrote(compiled):
    model, cache, x = Attention(), cache_of(6, window=4), inputs(20)

    def step(x):
        return model.step(x, cache)

    truncate = cache.truncate
    if compiled:
        step, truncate = od.compile(step), od.compile(lambda n: cache.truncate(n))
        for _ in range(3):  # so that there are programs
            step(x[:1])
            truncate(np.array(0))
    fed(step, x[:12], [1] * 12)
    before = numbers(cache)
    for _ in range(2):
        with pytest.raises(OutOfRangeError, match="keep 9 or more, or clear it"):
            truncate(np.array(8))
        assert_equal(numbers(cache), before)
    truncate(np.array(9))
    found = fed(step, x[9:], [1] * 11)
    np.testing.assert_allclose(found, model.full(x, 4)[9:], rtol=1e-12, atol=1e-12)
    # A ring that was cleared has lost nothing.
    truncate(np.array(0))
    fed(step, x[:4], [1] * 4)
    truncate(np.array(2))
    found = fed(step, x[2:], [1] * 18)
    np.testing.assert_allclose(found, model.full(x, 4)[2:], rtol=1e-12, atol=1e-12)


def test_a_program_sees_what_was_put_and_not_committed_elsewhere():
    cache = cache_of()

    @od.compile
    def put(k):
        cache[1].put(k=k, v=k)

    @od.compile
    def advance():
        cache.advance(1)

    for _ in range(3):
        put(rows())
        cache[0].put(k=rows(), v=rows())
        advance()
    for _ in range(3):
        put(rows(2))
        cache.truncate(3)
    cache[0].put(k=rows(1), v=rows(1))
    with pytest.raises(ShapeError, match="layer 1 gets 2 rows, and layer 0 got 1"):
        put(rows(2))
    cache.truncate(3)
    cache[0].put(k=rows(2), v=rows(2))
    before = numbers(cache)
    with pytest.raises(ShapeError, match="layer 1 gets 1 row, and layer 0 got 2"):
        put(rows())
    with pytest.raises(ShapeError, match="n=1, and layer 0 of 2 got 2 rows"):
        advance()
    assert_equal(numbers(cache), before)
    cache.truncate(3)
    put(rows())
    assert len(cache) == 3


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_second_put_with_fewer_rows_leaves_none_of_the_first(compiled):
    cache = cache_of(16, layers=1)

    def step(k):
        cache[0].put(k=np.full((HEADS, 3, DIM), np.nan), v=np.full((HEADS, 3, DIM), np.nan))
        _, values, seen = cache[0].put(k=k, v=k)
        cache.advance(1)
        return seen.astype(float) @ values

    step = od.compile(step) if compiled else step
    for t in range(4):
        np.testing.assert_array_equal(step(rows()), np.full((HEADS, 1, DIM), t + 1.0))


def test_an_attempt_that_fails_between_put_and_advance_leaves_nothing_behind():
    model, cache, x = Attention(), cache_of(), inputs(12)

    def step(x, fail=False):
        if fail:
            cache[0].put(k=rows(4, np.nan), v=rows(4, np.nan))
            raise RuntimeError
        return model.step(x, cache)

    compiled = od.compile(step, static="fail", warn=False)
    found = []
    for t in range(12):
        with pytest.raises(RuntimeError):
            compiled(x[:1], fail=True)
        assert len(cache) == t
        found.append(np.asarray(compiled(x[t : t + 1])))
    np.testing.assert_allclose(np.concatenate(found), model.full(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_put_under_a_tape_that_holds_a_buffer_is_refused_and_the_sweep_stays_right(compiled):
    cache = od.Cache({"k": (600,)}, 4, np.float64)
    buffer = cache._buffers[0]["k"]

    def step(k):
        cache[0].put(k=k)
        cache.advance(1)

    step = od.compile(step) if compiled else step
    for _ in range(2):
        step(np.full((1, 600), 2.0))
    w = Variable(1.0, requires_grad=True)
    with od.GradientTape() as tape:
        loss = ops.sum(w * buffer)
    before = numbers(cache)
    for _ in range(2):
        with pytest.raises(MutationError, match="k"):
            step(np.ones((1, 600)))
        assert_equal(numbers(cache), before)
    assert tape.gradient(loss, w) == 2400.0
    step(np.ones((1, 600)))
    assert len(cache) == 3


def test_rows_that_were_read_are_copies():
    cache = cache_of(layers=1)
    keys, _, _ = cache[0].put(k=rows(1, 1.0), v=rows())
    cache.advance(1)
    cache[0].put(k=rows(1, 2.0), v=rows())
    assert np.asarray(keys)[0, :2, 0].tolist() == [1.0, 0.0]


def test_any_identifier_is_a_name_and_a_cache_says_what_it_is():
    cache = od.Cache({"self": (2,), "class": (3, 4)}, 8, layers=2, window=[None, 4])
    given = {"self": np.ones((1, 2), np.float32), "class": np.ones((3, 1, 4), np.float32)}
    assert [one.shape for one in cache[0].put(**given)] == [(8, 2), (3, 8, 4), (1, 8)]
    text = "Cache({self: (2,), class: (3, 4)}, capacity=8, dtype=float32, layers=2, "
    assert repr(cache) == text + "window=[None, 4], length=0)"
    assert repr(cache[1]) == repr(cache) + "[1]"
    assert cache


def test_layers_that_an_object_holds_are_saved_one_by_one(tmp_path):
    class Block:
        def __init__(self, layer):
            self.layer, self.weight = layer, Variable(np.ones(2), requires_grad=True)

    cache, other = cache_of(8), cache_of(16)
    for k, layer in enumerate(cache):
        layer.put(k=rows(2, k + 1.0), v=rows(2, k + 5.0))
    cache.advance(2)
    od.save(tmp_path / "model.npz", [Block(layer) for layer in cache])
    od.load(tmp_path / "model.npz", like=[Block(layer) for layer in other])
    assert len(other) == 2
    for one, two in zip(cache._buffers, other._buffers, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name].data[:, :2], two[name].data[:, :2])


def broken(**changes):
    cache = cache_of(4)
    for layer in cache:
        layer.put(k=rows(2), v=rows(2))
    cache.advance(2)
    return {**cache.state_dict(), **changes}


STATES = {
    "nothing": (None, OdysseyError, "pass what state_dict"),
    "keys": ({}, OdysseyError, "pass what state_dict"),
    "length": (broken(length=-1), SettingError, "length=-1"),
    "another length": (broken(length=3), ShapeError, r"wanted is float64 \(2, 3, 3\)"),
    "windows": (broken(windows=3), ShapeError, "of windows 3, and those of the cache"),
    "ring": (broken(ring=7), ShapeError, "ring of 7 rows came for a cache of capacity 64"),
    "rows": (broken(rows={"k": []}), SettingError, "those of k and v are wanted"),
    "layers": (broken(rows={"k": [], "v": []}), ShapeError, "a list of 2 arrays is wanted"),
    "a number": (broken(rows={"k": 5, "v": 5}), ShapeError, "5 came for k"),
    "an array": (broken(rows={"k": [1, 2], "v": [1, 2]}), ShapeError, r"int64 \(\); wanted is"),
}


@pytest.mark.parametrize(("state", "error", "match"), STATES.values(), ids=STATES)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(state, error, match):
    cache = cache_of()
    for layer in cache:
        layer.put(k=rows(3), v=rows(3))
    cache.advance(3)
    before = numbers(cache)
    with pytest.raises(error, match=match):
        cache.load_state_dict(state)
    assert_equal(numbers(cache), before)


def test_a_compiled_function_asks_for_the_length_as_an_array():
    cache = cache_of()
    with pytest.raises(TapeError, match=r"where cache\.length would be an array"):
        od.compile(lambda: len(cache))()


def test_a_cache_is_not_written_to_inside_vmap():
    cache = cache_of(layers=1)
    with pytest.raises(TapeError, match=r"Cache\.put: in a function that vmap runs"):
        od.vmap(lambda k: cache[0].put(k=k, v=k)[0])(np.ones((3, HEADS, 1, DIM)))
    for forbidden in (lambda x: cache.advance(1), lambda x: cache.truncate(0)):
        with pytest.raises(TapeError, match="in a function that vmap runs"):
            od.vmap(forbidden)(np.ones(3))


SETTINGS = {
    "no shapes": (({}, 4), {}, DTypeError, "a dict of at least one name"),
    "a list": (([("k", (2,))], 4), {}, DTypeError, "a dict of at least one name"),
    "a name": (({"k v": (2,)}, 4), {}, SettingError, "not an identifier"),
    "no axis": (({"k": ()}, 4), {}, ShapeError, "the rows of one position"),
    "a number": (({"k": 2}, 4), {}, ShapeError, "the rows of one position"),
    "a size": (({"k": (0,)}, 4), {}, SettingError, "a size of k"),
    "capacity": (({"k": (2,)}, 0), {}, SettingError, "capacity=0"),
    "a huge capacity": (({"k": (2,)}, 1 << 60), {}, SettingError, "capacity is above"),
    "a huge size": (({"k": (1 << 60,)}, 4), {}, SettingError, "does not fit an array"),
    "layers": (({"k": (2,)}, 4), {"layers": 0}, SettingError, "layers=0"),
    "many layers": (({"k": (2,)}, 4), {"layers": 1 << 70}, SettingError, "is above 65536"),
    "dtype": (({"k": (2,)}, 4, "text"), {}, DTypeError, "Cache: dtype='text'"),
    "objects": (({"k": (2,)}, 4, object), {}, DTypeError, "Cache: dtype="),
    "window": (({"k": (2,)}, 4), {"window": 5}, SettingError, "window=5 is above capacity=4"),
    "windows": (({"k": (2,)}, 4), {"window": [1, 2]}, ShapeError, "2 windows came for 1 layers"),
}


@pytest.mark.parametrize(("args", "named", "error", "match"), SETTINGS.values(), ids=SETTINGS)
def test_settings_are_refused_by_name(args, named, error, match):
    with pytest.raises(error, match=match):
        od.Cache(*args, **named)


@pytest.mark.parametrize("layer", [2, -3, "0", None, 0.0, slice(0, 1)])
def test_a_layer_that_is_not_there_is_refused_by_name(layer):
    with pytest.raises(OutOfRangeError, match="of 2; pass an int from 0 to 1"):
        cache_of(layers=2)[layer]


# ------------------------------------------------------------------ signals


class StopError(KeyboardInterrupt):
    """Raised by the handler of a signal."""


def counting(cache):
    """A step whose rows are the number of the token."""

    def step(k):
        for layer in cache:
            layer.put(k=k, v=-k)
        cache.advance(k.shape[-2])

    return step


def assert_whole(cache):
    """Assert that a cache holds the tokens 0, 1, 2 and so on, in all layers."""
    wanted = np.broadcast_to(np.arange(len(cache))[:, None], (HEADS, len(cache), DIM))
    for layer in cache._buffers:
        for name, sign in (("k", 1), ("v", -1)):
            held = layer[name].data[:, : len(cache)]
            np.testing.assert_array_equal(held, sign * wanted)


def interrupt(step, cache, count, longest):
    """Interrupt steps at random moments; return how many were stopped."""
    rng, stopped, armed = np.random.default_rng(0), 0, []

    def stop(signum, frame):
        if armed:  # a signal may come late
            armed.clear()
            raise StopError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(count):
            try:
                armed.append(True)
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, longest))
                while armed:
                    if len(cache) > cache.capacity // 2:
                        cache.clear()
                    length = len(cache)
                    step(rows(1, length))
                    assert len(cache) == length + 1
            except StopError:
                stopped += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert_whole(cache)
            # What the handler left may be gone on from, or dropped.
            if stopped % 2:
                cache.truncate(len(cache))
            step(rows(1, len(cache)))
            assert_whole(cache)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return stopped


needs_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@pytest.mark.slow
@needs_timers
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_an_interrupt_at_any_moment_leaves_whole_tokens(compiled):
    cache = cache_of(256)
    step = counting(cache)
    if compiled:
        step = od.compile(step)
        for k in range(3):
            step(rows(1, k))
    assert interrupt(step, cache, 100, 1e-3) == 100
    if compiled:
        assert step.statistics().native > 100


@pytest.mark.slow
@needs_fork
def test_a_kill_at_any_moment_leaves_a_file_of_whole_tokens(tmp_path):
    rng, path, lengths = np.random.default_rng(0), tmp_path / "cache.npz", set()
    cache = cache_of(256)
    step = od.compile(counting(cache))
    for k in range(4):
        step(rows(1, k))
    od.save(path, cache)
    for _ in range(100):
        child = os.fork()
        if not child:
            while True:
                if len(cache) == cache.capacity:
                    cache.clear()
                step(rows(1, len(cache)))
                od.save(path, cache)
        time.sleep(rng.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = cache_of(256)
        od.load(path, like=found)
        assert_whole(found)
        lengths.add(len(found))
    assert len(lengths) > 2


ACTS = {
    "step": (lambda cache: counting(cache)(rows(1, 4.0)), 5),
    "two": (lambda cache: counting(cache)(rows(2, 4.0) + np.arange(2.0)[:, None]), 6),
    "truncate": (lambda cache: cache.truncate(2), 2),
    "clear": (lambda cache: cache.clear(), 0),
    "load": (lambda cache: cache.load_state_dict(broken(length=0, rows=EMPTY)), 0),
}
EMPTY = {name: [np.zeros((HEADS, 0, DIM))] * 2 for name in "kv"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["line", "kernel", "allocation"])
@pytest.mark.parametrize(("act", "length"), ACTS.values(), ids=ACTS)
def test_an_exception_anywhere_leaves_whole_tokens_and_the_next_step_goes_on(act, length, kind):
    for n in itertools.count(1, 11 if kind == "line" else 1):
        cache = cache_of(8)
        for k in range(4):
            counting(cache)(rows(1, k))
        fired = []
        try:
            with FAULTS[kind](n) as fired:
                act(cache)
        except RAISED:
            assert len(cache) in (4, length)
        else:
            assert len(cache) == length
        assert_whole(cache)
        counting(cache)(rows(1, len(cache)))
        assert_whole(cache)
        if not fired:
            return
