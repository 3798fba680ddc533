"""Transforms against those of jax, to 1e-10 in float64."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from support.peers import close, jax

pytestmark = pytest.mark.peers
FIXTURES = (jax,)  # imported for pytest to find


def network(np_like, p, x):
    h = np_like.tanh(x @ p["w1"] + p["b1"])
    return ((h @ p["w2"]) ** 2).mean()


def rosenbrock(np_like, x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def log_sum_exp(np_like, x):
    return np_like.log(np_like.exp(x).sum()) * x[0]


def spring(np_like, x):
    return np_like.sqrt(1.0 + (x * x).sum()) * np_like.cos(x[1]) / (2.0 + np_like.sin(x[2]))


def field(np_like, x):
    return np_like.sin(x) * x.sum() + np_like.exp(-x * x)


def wide(np_like, x):
    return np_like.stack([(x * x).sum(), x[0] * x[2]])


def tall(np_like, x):
    return np_like.exp(x[:2]).reshape(1, 2) * np_like.cos(x).reshape(-1, 1)


SCALARS = [rosenbrock, log_sum_exp, spring]
MAPS = [field, wide, tall]
RNG = np.random.default_rng(11)
POINT, VECTOR = RNG.normal(size=(2, 4))
named = {"ids": lambda fn: fn.__name__}


def pair(jax, fn):
    """The function for us and for jax."""
    return (lambda *args: fn(ops, *args)), (lambda *args: fn(jax.numpy, *args))


def compare(ours, theirs):
    for got, wanted in zip(od.tree.leaves(ours), od.tree.leaves(theirs), strict=True):
        close(got, wanted)


@pytest.mark.parametrize("fn", SCALARS, **named)
def test_gradients_hessians_and_products_equal_those_of_jax(jax, fn):
    f, g = pair(jax, fn)
    compare(od.value_and_grad(f)(POINT), jax.value_and_grad(g)(POINT))
    compare(od.hessian(f)(POINT), jax.hessian(g)(POINT))
    product = jax.jvp(jax.grad(g), (POINT,), (VECTOR,))[1]
    compare(od.hvp(f, (POINT,), (VECTOR,)), product)
    compare(od.jvp(f, (POINT,), (VECTOR,)), jax.jvp(g, (POINT,), (VECTOR,)))
    third = jax.grad(lambda x: jax.jvp(jax.grad(g), (x,), (VECTOR,))[1].sum())(POINT)
    compare(od.grad(lambda x: od.hvp(f, (x,), (VECTOR,)).sum())(POINT), third)
    compare(od.grad(od.checkpoint(f))(POINT), jax.grad(jax.checkpoint(g))(POINT))


@pytest.mark.parametrize("fn", MAPS, **named)
def test_jacobians_and_pullbacks_equal_those_of_jax(jax, fn):
    f, g = pair(jax, fn)
    compare(od.jacobian(f)(POINT), jax.jacrev(g)(POINT))
    compare(od.hessian(f)(POINT), jax.hessian(g)(POINT))
    (out, pullback), (their_out, their_pullback) = od.vjp(f, POINT), jax.vjp(g, POINT)
    compare(out, their_out)
    c = RNG.normal(size=out.shape)
    compare(pullback(c), their_pullback(c))


def test_trees_come_out_as_those_of_jax(jax):
    p = {
        "b1": RNG.normal(size=5),
        "w1": RNG.normal(size=(3, 5)),
        "w2": RNG.normal(size=(5, 2)),
    }
    x = RNG.normal(size=(4, 3))
    f, g = pair(jax, network)
    compare(od.grad(f, argnums=(0, 1))(p, x), jax.grad(g, argnums=(0, 1))(p, x))
    ours, theirs = od.hessian(f)(p, x), jax.hessian(g)(p, x)
    for first in p:
        for second in p:
            assert ours[first][second].shape == theirs[first][second].shape
    compare(ours, theirs)

    def both(np_like, p, x):
        return {"h": np_like.tanh(x @ p["w1"]), "s": (p["b1"] * p["b1"]).sum()}

    f, g = pair(jax, both)
    compare(od.jacobian(f, argnums=(0, 1))(p, x), jax.jacrev(g, argnums=(0, 1))(p, x))


def test_a_custom_rule_means_what_it_means_in_jax(jax):
    def declared(custom, np_like):
        @custom
        def fn(x, y):
            return np_like.sin(x) * y

        # A wrong rule on purpose: it must be this one that is used.
        fn.defvjp(
            lambda x, y: (fn(x, y), (np_like.cos(x), y)),
            lambda residuals, g: (2.0 * residuals[0] * residuals[1] * g, None),
        )
        return fn

    ours, theirs = declared(od.custom_vjp, ops), declared(jax.custom_vjp, jax.numpy)
    y = 3.0 * POINT
    compare(
        od.grad(lambda x: (ours(x, y) * x).sum())(POINT),
        jax.grad(lambda x: (theirs(x, y) * x).sum())(POINT),
    )
