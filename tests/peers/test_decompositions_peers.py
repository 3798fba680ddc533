"""Eigenvalues and eigenvectors: what does not depend on their factors equals the peers'."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from support.peers import close, jax, torch  # noqa: F401

pytestmark = pytest.mark.peers

WEIGHTS = np.random.default_rng(3).normal(size=(3, 3))


def matrices(complex_):
    rng = np.random.default_rng(7)
    m = rng.normal(size=(2, 3, 3))
    return m + 1j * rng.normal(size=m.shape) if complex_ else m


def ours(x):
    """The gradient, and its derivative along ``x``, of the loss of ``x + x^H``."""
    v = Variable(x, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        w, u = np.linalg.eigh(v + ops.conj(ops.matrix_transpose(v)))
        total = ops.sum(ops.exp(w) * ops.sum(ops.absolute(u) ** 2 * WEIGHTS, -1)) + ops.sum(w**3)
        g = tape.gradient(total, v, create_graph=True)
        along = ops.sum(ops.real(g * np.conj(x)))
    return g.numpy(), tape.gradient(along, v)


@pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])
def test_eigh_has_the_derivatives_of_torch(torch, complex_):  # noqa: F811
    x = matrices(complex_)
    t = torch.tensor(x, requires_grad=True)
    w, u = torch.linalg.eigh(t + t.mH)
    weights = torch.tensor(WEIGHTS)
    total = (w.exp() * (u.abs() ** 2 * weights).sum(-1)).sum() + (w**3).sum()
    (g,) = torch.autograd.grad(total, t, create_graph=True)
    (second,) = torch.autograd.grad((g * t.detach().conj()).real.sum(), t)
    got = ours(x)
    close(got[0], g.detach())
    close(got[1], second)


@pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])
def test_eigh_has_the_derivatives_of_jax(jax, complex_):  # noqa: F811
    jnp = jax.numpy
    x = matrices(complex_)

    def of(x):
        w, u = jnp.linalg.eigh(x + jnp.conj(jnp.swapaxes(x, -1, -2)))
        return jnp.sum(jnp.exp(w) * jnp.sum(jnp.abs(u) ** 2 * WEIGHTS, -1)) + jnp.sum(w**3)

    # jax gives the conjugate of what the other peers call the gradient.
    g = lambda x: jnp.conj(jax.grad(of)(x))  # noqa: E731
    second = jnp.conj(jax.grad(lambda y: jnp.sum(jnp.real(g(y) * np.conj(x))))(x))
    got = ours(x)
    close(got[0], g(x))
    close(got[1], second)
