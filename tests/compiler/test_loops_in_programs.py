"""Loops of native programs: several vectors at a time, and what is looked up in them."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.native_dispatch.entry import CHECK_FAILED, RAN
from odyssey.compiler.runtime.executable import Executable
from support.executables import run

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

RNG = np.random.default_rng(0)


def whole(fn, *args):
    """What a program without calls gives, and its text."""
    answer, got, made = run(fn, *args)
    assert answer == RAN
    assert not made.calls
    return got, made.module.text


# Of a function in two pieces its curvature, in a loop, forward: masks that masks are chosen by.
CURVED = """
import numpy as np
import odyssey as od

def bent(x, w):
    return np.sin(np.where(x > -0.05, x * w, 0.45 * x**2)).sum()

def step(carry, _):
    x, w = carry
    return (np.tanh(np.tanh(od.hessian(bent)(x, w) @ w)), w), ()

def last(x, w):
    return od.scan(step, (x, w), length=3)[0][0]

for n in (3, 7):
    x, w = np.linspace(-1.0, 1.0, n), np.cos(np.linspace(-1.0, 1.0, n))
    fn = od.compile(lambda x, w: od.jvp(last, (x, w), (w, x)))
    once, again = fn(x, w), fn(x, w)
    assert all(np.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(once, again))
    assert fn.statistics().native, fn.explain(x, w)
"""


@pytest.mark.slow
def test_short_loops_of_masks_end_no_process():
    # An LLVM with assertions ends it, where its two estimates choose vectors of two lengths.
    surroundings = {**os.environ, "ODYSSEY_CACHE": "off"}
    done = subprocess.run([sys.executable, "-c", CURVED], env=surroundings, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(("size", "told"), [(3, 8), (5, 11), (8, 0), (13, 11), (16, 0), (17, 0)])
def test_short_loops_of_masks_are_told_how_long_vectors_are(size, told):
    x, mask = RNG.normal(size=size), RNG.random(size) < 0.5
    (got,), text = whole(lambda x, m: ops.where(~m, x, 1.0), x, mask)
    assert np.array_equal(got, np.where(~mask, x, 1.0))
    assert re.findall(r"!llvm.loop !(\d+)", text) == [str(told)] * bool(told)


@pytest.mark.parametrize("fold", [ops.sum, ops.max])
def test_folds_are_told_so_where_their_order_is_anybodys(fold):
    x, mask = RNG.normal(size=13), RNG.random(13) < 0.5
    (got,), text = whole(lambda x, m: fold(ops.where(~m, x, 1.0)), x, mask)
    assert abs(got - fold(np.where(~mask, x, 1.0))) < 1e-14
    assert "!llvm.loop !11" in text
    assert "fadd double" not in text


def several(x):
    return ops.exp(ops.tanh(ops.sin(x)))


@pytest.mark.parametrize("size", [127, 128, 129, 4096, 4099, 8200])
def test_chains_of_functions_take_several_vectors_at_a_time(size):
    x = RNG.normal(size=size).astype("f4")
    (got,), text = whole(several, x)
    assert ("!llvm.loop !4" in text) == (size >= 128)
    # The same numbers, where a vector is all that there is.
    for k in (0, size // 2, size - 1):
        (alone,), text = whole(several, x[k : k + 1].copy())
        assert "!llvm.loop" not in text
        assert got[k] == alone[0]


def test_one_function_in_a_loop_leaves_it_to_llvm():
    _, text = whole(ops.exp, RNG.normal(size=4096).astype("f4"))
    assert "!llvm.loop" not in text


def entropies(x, y, ignored):
    """By definition, in twice as many digits; 0 where the class is ignored."""
    x = x.astype(np.longdouble)
    largest = x.max(1, keepdims=True)
    logs = np.log(np.exp(x - largest).sum(1)) + largest[:, 0]
    found = logs - np.take_along_axis(x, np.maximum(y, 0)[:, None], 1)[:, 0]
    return np.where(y == ignored, 0, found)


@pytest.mark.parametrize("ignore", [None, -1], ids=str)
@pytest.mark.parametrize("classes", [63, 64, 65, 1000])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_entropies_of_many_classes_are_those_of_few(classes, dtype, ignore):
    x = (RNG.normal(size=(50, classes)) * 4).astype(dtype)
    x[3, 5] = -np.inf
    y = RNG.integers(0, classes, 50)
    y[3] = 6
    if ignore is not None:
        y[::7] = ignore

    def fn(x, y):
        return od.losses.cross_entropy(x, y, ignore_index=ignore, reduction="none")

    (got,), _ = whole(fn, x, y)
    wanted = entropies(x, y, ignore)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=40 * np.finfo(dtype).eps)
    # Along another axis, and what depends on it.
    columns = np.ascontiguousarray(x.T)
    (turned,), _ = whole(
        lambda x, y: od.losses.cross_entropy(x, y, axis=0, ignore_index=ignore, reduction="none"),
        columns,
        y,
    )
    np.testing.assert_allclose(turned, wanted, rtol=0, atol=40 * np.finfo(dtype).eps)


def test_a_class_that_is_none_of_many_is_refused():
    x, y = RNG.normal(size=(9, 100)), RNG.integers(0, 100, 9)
    for strange in (-1, 100, 2**32 + 3, -(2**32)):
        y[4] = strange
        answer, _, _ = run(lambda x, y: od.losses.cross_entropy(x, y), x, y)
        assert answer == CHECK_FAILED


@pytest.mark.parametrize("shape", [(7, 255), (1000, 7), (3, 5, 70), (40,)], ids=str)
def test_places_of_extremes_are_the_first_ones(shape):
    x = RNG.integers(-3, 4, shape).astype("f4")
    for axis in range(len(shape)):
        for op, numpy in ((ops.argmax, np.argmax), (ops.argmin, np.argmin)):
            (got,), _ = whole(lambda x, op=op, axis=axis: op(x, axis=axis), x)
            assert got.dtype == np.intp
            np.testing.assert_array_equal(got, numpy(x, axis))
    x.ravel()[[11, 23, 24]] = np.nan
    (got,), _ = whole(lambda x: ops.argmax(x, axis=-1), x)
    np.testing.assert_array_equal(got, np.argmax(x, -1))


@pytest.mark.parametrize("shape", [(1_000_003,), (2, 300_000), (8193,), (8192,)], ids=str)
def test_sums_along_long_rows_are_those_of_blocks(shape):
    # All alike, whose roundings do not even out: sums that go on for a whole row would be off by
    # a thousandth. Those of 4096 in 16 lanes err by 256 roundings and 16 at most.
    x = np.full(shape, 0.1, "f4")

    def fn(x):
        total = ops.sum(x, axis=-1, keepdims=True)
        return total, x / total, ops.max(x, axis=-1)

    (total, parts, largest), _ = whole(fn, x)
    wanted = x.astype(float).sum(-1, keepdims=True)
    np.testing.assert_allclose(total, wanted, rtol=136 * np.finfo("f4").eps)
    np.testing.assert_allclose(parts, x / wanted, rtol=138 * np.finfo("f4").eps)
    np.testing.assert_array_equal(largest, x.max(-1))


@pytest.mark.slow
def test_equal_layers_share_their_kernels():
    def text_of(depth):
        weights = [od.Variable(RNG.normal(size=(8, 8)), requires_grad=True) for _ in range(depth)]
        optimizer = od.optim.SGD(weights, 0.1)

        def step(x):
            with od.GradientTape() as tape:
                h = x
                for w in weights:
                    h = ops.tanh(h @ w)
                loss = ops.sum(h)
            tape.backward(loss)
            optimizer.step()
            return loss

        return Executable(od.compile(step).lower(RNG.normal(size=(4, 8))).graph).module.text

    kernels = re.compile(r"^define internal void @k.*?^}", re.M | re.S)
    few, many = (
        [text for text in kernels.findall(text_of(depth)) if "head0:" in text] for depth in (6, 24)
    )
    assert many == few
