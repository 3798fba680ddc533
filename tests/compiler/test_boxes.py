"""Random programs that read, write, join and add at boxes of arrays: bit for bit the eager ones."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler.plan import boxes

pytestmark = pytest.mark.share(4)

KINDS = ["set", "set", "get", "add", "join", "scale", "change", "fill", "turn"]


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch):
    """Let small wholes be taken apart too."""
    for least in ("_LEAST", "_SMALL"):
        monkeypatch.setattr(boxes, least, 0)


def key_of(rng, shape):
    """What picks a box, mostly: also no box, and with every spelling of one."""
    parts = []
    for n in shape[: rng.integers(1, len(shape) + 1)]:
        first, last = sorted(int(k) for k in rng.integers(0, n + 1, 2))
        box = slice(first, last) if last > first else slice(first - (first == n), n)
        others = [int(rng.integers(-n, n)), slice(None), slice(None, None, -1), slice(0, None, 2)]
        parts.append(box if rng.random() < 0.5 else others[rng.integers(4)])
    if rng.random() < 0.2:
        parts.insert(int(rng.integers(len(parts) + 1)), [Ellipsis, None][rng.integers(2)])
    return tuple(parts)


def program_of(rng, shape):
    steps = [
        (rng.choice(KINDS), key_of(rng, shape), float(rng.normal()), int(rng.integers(4)))
        for _ in range(rng.integers(4, 14))
    ]
    axis = int(rng.integers(len(shape)))

    def program(x, y):
        pool, found = [x * 1.0, y * 1.0, x * -1.0, y * 0.0], []
        for kind, key, number, place in steps:
            one, other = pool[place], pool[(place + 1) % 4]
            if kind == "get":
                found.append(one[key] * number)
            if kind == "set":
                one = ops.setitem(one, other[key] * number, key)
            if kind == "change":
                one = ops.setitem(one, one[key] + number, key)
            if kind == "fill":
                one = ops.setitem(one, number, key)
            if kind == "add":
                one = one + other
            if kind == "join":
                half = shape[axis] // 2
                lead = (slice(None),) * axis
                parts = [one[(*lead, slice(half, None))], other[(*lead, slice(half))]]
                one = ops.concatenate(parts, axis=axis)
            if kind == "scale":
                one = one * number
            if kind == "turn":
                one = other
            pool[place] = one
        return [one * 1.0 for one in (*found, *pool)]

    return program


@pytest.mark.parametrize("seed", range(120))
def test_what_lies_in_boxes_is_what_it_is_eagerly(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 4)))
    program = program_of(rng, shape)
    x, y = rng.normal(size=(2, *shape))
    x = np.where(rng.random(shape) < 0.2, -0.0, x)

    def values_and_gradients(x, y):
        given = [Variable(one, requires_grad=True) for one in (x, y)]
        with GradientTape() as tape:
            found = program(*given)
            total = sum((one * (k + 1)).sum() for k, one in enumerate(found))
        return found, [g * 1.0 for g in tape.gradient(total, given, unused="zero")]

    compiled = od.compile(values_and_gradients, check=True)
    compiled(x, y)
    values, gradients = compiled(x, y)
    assert compiled.statistics().native
    wanted, slopes = values_and_gradients(x, y)
    for one, right in zip(values, wanted, strict=True):
        np.testing.assert_array_equal(one.data, right.data)
        np.testing.assert_array_equal(np.signbit(one.data), np.signbit(right.data))
    for one, right in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-13, atol=1e-12)
