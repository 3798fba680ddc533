"""Loops and branches against those of jax: values, and derivatives in both modes, to 1e-10."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from support.peers import close, jax

pytestmark = pytest.mark.peers
FIXTURES = (jax,)  # imported for pytest to find

RNG = np.random.default_rng(5)
W, XS, START = RNG.normal(size=(3, 3)) * 0.5, RNG.normal(size=(6, 3)), RNG.normal(size=3)
named = {"ids": lambda fn: fn.__name__}


def recurrent(lib, np_like, w):
    """A recurrent layer, its states, and a count."""

    def step(c, x):
        h = np_like.tanh(c["h"] @ w + x)
        return {"h": h, "n": c["n"] + 1}, {"y": np_like.sin(h), "n": c["n"]}

    last, ys = lib.scan(step, {"h": START * w[0], "n": 0}, XS)
    return (last["h"] ** 2).sum() + (ys["y"] * (1 + ys["n"])[:, None]).sum()


def backwards(lib, np_like, w):
    last, ys = lib.scan(lambda c, x: (c * x + w[1, 1], c @ w), START, XS * w[0, 1], reverse=True)
    return last.sum() + (ys * ys).sum()


def nested(lib, np_like, w):
    """A scan in a scan, of no xs in one."""

    def outer(c, row):
        c, inner = lib.scan(lambda a, _: (np_like.cos(a * w[0]), a.sum()), c + row, None, 3)
        return c, inner

    last, ys = lib.scan(outer, START, XS)
    return last.sum() * 2.0 + (ys**2).sum()


def choosing(lib, np_like, w):
    """A cond in a scan."""

    def step(c, x):
        c = lib.cond(x.sum() > 0, lambda c: np_like.sin(c @ w), lambda c: c * w[0] + x, c)
        return c, c[0]

    last, ys = lib.scan(step, START, XS)
    return last.sum() + (ys**3).sum()


def of_no_steps(lib, np_like, w):
    last, ys = lib.scan(lambda c, x: (c * x, c @ w), START * w[0], XS[:0])
    return last.sum() + ys.sum()


def halving(lib, np_like, w):
    """A while_loop, which has a derivative forward."""
    return lib.while_loop(
        lambda v: (v * v).sum() > 0.1, lambda v: np_like.sin(v * w) * 0.7, w
    ).sum()


def waiting(lib, np_like, w):
    """A while_loop in a cond in a scan."""

    def step(c, x):
        def long(c):
            return lib.while_loop(lambda v: v.sum() > 1.0, lambda v: v * 0.5 + 0.1 * w[0], c + 3.0)

        return lib.cond(x[0] > 0, long, lambda c: c * w[1], c), None

    return lib.scan(step, START, XS)[0].sum()


LOOPS = [recurrent, backwards, nested, choosing, of_no_steps]
FORWARD = [*LOOPS, halving, waiting]


def of_jax(jax, fn):
    return lambda w: fn(jax.lax, jax.numpy, w)


def ours(fn):
    return lambda w: fn(od, ops, w)


@pytest.mark.parametrize("fn", FORWARD, **named)
def test_values_and_forward_derivatives_are_those_of_jax(jax, fn):
    got = od.jvp(ours(fn), (W,), (W * W,))
    wanted = jax.jvp(of_jax(jax, fn), (W,), (W * W,))
    for one, other in zip(got, wanted, strict=True):
        close(one, other)


@pytest.mark.parametrize("fn", LOOPS, **named)
def test_gradients_are_those_of_jax(jax, fn):
    close(od.grad(ours(fn))(W), jax.grad(of_jax(jax, fn))(W))


@pytest.mark.parametrize("fn", LOOPS, **named)
def test_second_derivatives_are_those_of_jax(jax, fn):
    wanted = jax.hessian(of_jax(jax, fn))(W)
    close(od.hessian(ours(fn))(W), wanted)
    second = od.jvp(lambda w: od.jvp(ours(fn), (w,), (W,))[1], (W,), (W,))[1]
    close(second, np.einsum("abcd,ab,cd", np.asarray(wanted), W, W))
