"""``copies="error"`` names the states that a program copies, and why; ``explain`` lists them."""

import re

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import CompileError, SettingError

SHAPE, ROWS = (2, 64, 8), np.ones((2, 1, 8), np.float32)
BYTES = 2 * 64 * 8 * 4


def put(x, rows, at):
    return ops.dynamic_update_slice(x, rows, (0, at, 0))


class Cache:
    """A state with its length, as a decoder has it."""

    def __init__(self):
        data = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
        self.keys = od.Variable(data, name="keys")
        self.length = od.Variable(np.array(0), name="length")

    def put(self, rows):
        self.keys.assign(put(self.keys, rows, self.length))
        self.length.assign(self.length + 1)
        return self.keys


def transposed():
    cache = Cache()
    cache.keys = od.Variable(cache.keys.numpy().T, name="keys")
    return cache


def late_read(c, r):
    old = ops.swapaxes(c.keys, 1, 2)
    return c.put(r)[:, :1] * 2.0 @ old


def in_scan(c, r):
    kept, _ = od.scan(lambda x, k: (put(x, r, k), None), c.keys, np.arange(64))
    c.keys.assign(kept)


def in_while_loop(c, r):
    def body(carry):
        return put(carry[0], r, carry[1]), carry[1] + 1

    c.keys.assign(od.while_loop(lambda x: x[1] < 9, body, (c.keys, c.length))[0])


def blocks(c, r):
    def body(carry):
        return carry[0] + ops.dynamic_slice(c.keys, (0, carry[1], 0), (2, 1, 8)), carry[1] + 1

    return od.while_loop(lambda x: x[1] < 9, body, (r, c.length))[0]


def first_of_two(c, r):
    new = put(c.keys, r, c.length)
    c.keys.assign(put(new, r, c.length + 1))
    return new


def add_to_row(keys, row):
    keys[:, 3] += row


NOT_COPIED = {
    "rows are put": lambda c, r: c.put(r) @ ops.swapaxes(r, 1, 2),
    "rows are put twice": lambda c, r: (c.put(r), c.put(r * 2.0))[1].sum(),
    "an item is set": lambda c, r: c.keys.__setitem__((slice(None), c.length + 0), r[:, 0]),
    "the Variable is returned": lambda c, r: c.put(r),
    "what is computed of it is returned": lambda c, r: c.put(r) + 1.0,
    "a row of a number": lambda c, r: c.keys.__setitem__((slice(None), 3), r[:, 0]),
    "a row is added to": lambda c, r: add_to_row(c.keys, r[:, 0]),
    "a slice of rows": lambda c, r: (
        c.keys.__setitem__((slice(None), slice(2, 4)), r),
        c.keys.__setitem__((1, ..., -1), 2.0),
    )[0],
    "it is scaled": lambda c, r: [c.keys.assign(c.keys * 0.5 + r)][1:],
    "a host call that does not read it": lambda c, r: (c.put(r), ops.sort(r))[1],
    "a check that does not read it": lambda c, r: (
        c.put(r),
        ops.demanded(r, c.length < 9, "full"),
    )[1],
    "a loop reads it": blocks,
    "it is only read": lambda c, r: c.keys @ ops.swapaxes(r, 1, 2),
}
COPIED = {
    "its new value is returned": (
        lambda c, r: (new := put(c.keys, r, 3), c.keys.assign(new))[0],
        "its value is returned; return nothing of it",
    ),
    "it is not assigned": (
        lambda c, r: put(c.keys, r, 3),
        "dynamic_update_slice makes an updated copy of it; assign the result",
    ),
    "the first of two is returned": (first_of_two, "makes an updated copy of it"),
    "a host call reads it": (lambda c, r: ops.sort(c.put(r), axis=1), "sort reads its new value"),
    "a check reads it": (
        lambda c, r: ops.demanded(r, c.put(r) < 9, "large"),
        "a check reads its new value, and may fail",
    ),
    "its old value is read later": (late_read, "matmul reads its old value after the update"),
    "it is reversed": (
        lambda c, r: [c.keys.assign(c.keys[:, ::-1] * 2.0)][1:],
        "computed from other elements of its old value",
    ),
    "a scan carries it": (in_scan, "scan carries it in memory of its own"),
    "a while_loop carries it": (in_while_loop, "while_loop carries it in memory of its own"),
    "a branch updates it": (
        lambda c, r: [
            c.keys.assign(od.cond(c.length > 3, lambda x: put(x, r, 1), lambda x: x, c.keys))
        ][1:],
        "cond computes its new value",
    ),
}


@pytest.mark.parametrize("name", NOT_COPIED)
def test_programs_that_copy_no_state_are_compiled(name):
    cache = Cache()
    step = od.compile(lambda r: NOT_COPIED[name](cache, r), copies="error", check=True)
    step.precompile(ROWS)
    step(ROWS)
    assert step.statistics().written == 0
    assert "copies" not in step.explain(ROWS)


@pytest.mark.parametrize("name", COPIED)
def test_programs_that_copy_a_state_are_refused_before_anything_runs(name):
    function, reason = COPIED[name]
    cache = Cache()
    before = cache.keys.numpy()

    def step(rows):
        return function(cache, rows)

    for refused in (od.compile(step, copies="error"), od.compile(step, copies="error").precompile):
        for _ in range(2):
            with pytest.raises(CompileError) as told:
                refused(ROWS)
            assert re.search(
                f"program of step copies keys, {BYTES:,} bytes, since .*{reason}", str(told.value)
            )
    np.testing.assert_array_equal(cache.keys.numpy(), before)
    assert cache.length.numpy() == 0
    allowed = od.compile(step, copies="allow", check=True)
    allowed.precompile(ROWS)
    assert f"\ncopies keys, {BYTES:,} bytes, since " in allowed.explain(ROWS)


def test_a_state_that_is_not_contiguous_is_named():
    cache = transposed()
    step = od.compile(
        lambda v: cache.keys.__setitem__((slice(0, 2), cache.length + 0), v), copies="error"
    )
    with pytest.raises(CompileError, match="keys, 4,096 bytes, since its memory is not contiguous"):
        step(np.float32(1.0))


def test_many_states_are_counted():
    states = [od.Variable(np.zeros(9), name=f"s{k}") for k in range(7)]
    step = od.compile(lambda: [s.assign(s[::-1] + 1.0) for s in states] and None, copies="error")
    with pytest.raises(CompileError, match=r"copies s0, .*s3, 72 bytes.* And 3 more\."):
        step()


def test_a_later_trace_is_refused_too():
    cache, flag = Cache(), [False]

    def step(rows):
        return ops.sort(cache.put(rows), axis=1)[0, 0] if flag[0] else cache.put(rows)[0, 0]

    compiled = od.compile(step, copies="error")
    compiled(ROWS), compiled(ROWS)
    assert compiled.statistics().native == 1
    length = int(cache.length.numpy())
    flag[0] = True
    for _ in range(2):
        with pytest.raises(CompileError, match="sort reads its new value"):
            compiled(ROWS)
    assert cache.length.numpy() == length
    flag[0] = False
    compiled(ROWS)
    assert cache.length.numpy() == length + 1


@pytest.mark.parametrize("copies", [True, "never", None, ("error",)], ids=str)
def test_another_setting_of_copies_is_refused(copies):
    with pytest.raises(SettingError, match=r"copies=.*choose 'allow' or 'error'"):
        od.compile(lambda x: x, copies=copies)
    with pytest.raises(SettingError, match=r"copies=.*choose 'allow' or 'error'"):
        od.compile(copies=copies, static="x")(lambda x: x)


SETTINGS = {
    "fullgraph": {"fullgraph": True},
    "static": {"static": "scale"},
    "dynamic": {"dynamic": {"rows": {1: od.Dim("n", 2, 9)}}},
    "memory_budget": {"memory_budget": 1 << 20},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_copies_are_refused_with_other_settings(name):
    cache = Cache()

    def good(rows, scale=1.0):
        return cache.put(rows * scale)[0, 0]

    def bad(rows, scale=1.0):
        return ops.sort(cache.put(rows * scale), axis=1)[0, 0]

    rows = np.ones((2, 3, 8), np.float32)
    compiled = od.compile(good, copies="error", **SETTINGS[name])
    for _ in range(3):
        compiled(rows, 0.5)
    assert compiled.statistics().native >= 1
    for way in (od.compile(bad, copies="error", **SETTINGS[name]),):
        for refused in (way, way.precompile):
            with pytest.raises(CompileError, match="sort reads its new value"):
                refused(rows, 0.5)
    assert cache.length.numpy() == 3


def test_copies_are_refused_inside_no_grad_and_of_methods():
    cache = Cache()

    class Decoder:
        @od.compile(copies="error")
        def step(self, rows):
            return ops.sort(cache.put(rows), axis=1)

    with od.no_grad(), pytest.raises(CompileError, match="sort reads its new value"):
        Decoder().step(ROWS)
    with pytest.raises(CompileError, match="sort reads its new value"):
        Decoder().step(ROWS)
    assert cache.length.numpy() == 0


@pytest.mark.parametrize("window", [None, 5], ids=["all rows", "a ring"])
def test_a_cache_is_not_copied_and_its_program_takes_as_much_memory_at_any_capacity(window):
    arenas = []
    for capacity in (16, 5000):
        rows = {"keys": (2, 8), "values": (2, 8)}
        cache = od.Cache(rows, capacity, layers=3, window=window)

        def step(row, cache=cache):
            for layer in range(3):
                _, values, seen = cache[layer].put(keys=row * 2.0, values=row)
                row = row + ops.astype(seen[:, :1], np.float32) * values[:, :1] * 0.1
            cache.advance(1)
            return ops.argmax(row), row.sum()

        compiled = od.compile(step, copies="error", fullgraph=True, check=True)
        compiled.precompile(ROWS)
        for _ in range(9):
            compiled(ROWS)
        assert (len(cache), compiled.statistics().written) == (9, 0)
        arenas.append(
            int(re.search(r"arena: ([0-9,]+) bytes", compiled.explain(ROWS))[1].replace(",", ""))
        )
    assert max(arenas) < 4096
