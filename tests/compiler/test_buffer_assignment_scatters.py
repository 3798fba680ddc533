"""Scatters into states are written in place: a step on few rows touches these rows alone."""

import re

import numpy as np
import pytest

import odyssey as od
from odyssey import ops

N, D, K = 4000, 8, 16
IDS = np.random.default_rng(0).integers(0, N, K)
ROWS = np.random.default_rng(1).normal(size=(K, D))


def table():
    data = np.random.default_rng(2).normal(size=(N, D))
    return od.Variable(data, requires_grad=True, sparse_grad=True)


def put(x, ids, rows):
    return ops.put_along_axis(x, ids[:, None], rows, 0)


IN_PLACE = {
    "rows that were read": lambda t, ids, v: t.assign(put(t, ids, ops.take(t, ids, 0) - v)),
    "rows of the call": lambda t, ids, v: t.assign(put(t, ids, v)),
    "other rows of the table": lambda t, ids, v: t.assign(put(t, ids, ops.take(t, ids[::-1], 0))),
    "a sum before": lambda t, ids, v: t.assign(put(t, ids, v + t.sum())),
    "at an index": lambda t, ids, v: t.__setitem__(ids, v),
    "elements at two indices": lambda t, ids, v: t.__setitem__((ids, ids % D), v[:, 0]),
    "twice": lambda t, ids, v: t.assign(put(put(t, ids, v), ids // 2, v)),
    "one after another": lambda t, ids, v: (
        t.__setitem__(ids[0], v[0]),
        t.__setitem__((slice(0, 9), ids[1] % D), v[0, 0]),
        t.assign(put(t, ids, v)),
    )[0],
    "read in between": lambda t, ids, v: (
        t.assign(put(t, ids, v)),
        v := ops.take(t, ids // 2, 0),
        t.assign(put(t, ids, v)),
    )[1],
    "read by a check": lambda t, ids, v: (
        t.assign(put(t, ids, v)),
        ops.demanded(v, ids >= 0, "negative"),
    )[1],
    "read afterwards": lambda t, ids, v: (t.assign(put(t, ids, v)), t.sum())[1],
}
COPIED = {
    "a check of the new table": lambda t, ids, v: (
        t.assign(put(t, ids, v)),
        ops.demanded(v, t < 1e9, "large"),
    )[1],
    "a host call of the new table": lambda t, ids, v: (
        t.assign(put(t, ids, v)),
        ops.sort(t, axis=0)[:3],
    )[1],
    "the first of two is returned": lambda t, ids, v: (
        new := put(t, ids, v),
        t.assign(put(new, ids // 2, v)),
    )[0],
    "of a result": lambda t, ids, v: t.assign(put(t * 2.0, ids, v)),
    "old rows are returned": lambda t, ids, v: (t + 0.0, t.assign(put(t, ids, v)))[0],
    "a sum with the old table": lambda t, ids, v: t.assign(t + put(t, ids, v)),
}


def check(step):
    """Compare a step, four times, with its eager run; return the bytes of the program's arena."""
    plain, native = table(), table()
    compiled = od.compile(lambda ids, v: step(native, ids, v), check=True)
    for k in range(4):
        ids, v = IDS - k, ROWS * k
        wanted, found = step(plain, ids, v), compiled(ids, v)
        np.testing.assert_allclose(native.numpy(), plain.numpy(), rtol=1e-14)
        if wanted is not None and wanted is not plain:
            np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-12)
    assert compiled.statistics().native > 0
    return compiled


def arena_of(compiled):
    text = str(compiled.explain(IDS, ROWS))
    return int(re.search(r"arena: ([0-9,]+) bytes", text)[1].replace(",", ""))


@pytest.mark.parametrize("name", IN_PLACE)
def test_rows_are_written_in_place_and_read_before(name):
    assert arena_of(check(IN_PLACE[name])) < N * D


@pytest.mark.parametrize("name", COPIED)
def test_what_cannot_be_written_in_place_is_right_too(name):
    check(COPIED[name])
