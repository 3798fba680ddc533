"""Random programs of 30 ops give what JAX's vmap finds, of values, gradients and Hessians."""

import warnings

import numpy as np
import pytest
from test_peers_programs import table_of

import odyssey as od
from odyssey.errors import IndependentWarning
from support.batched_programs import BatchedProgram
from support.peers import COMPARED, jax, report

pytestmark = pytest.mark.peers
FIXTURES = (jax, report)  # imported for pytest to find

TOLERANCE = 1e-11  # of the largest number: thirty steps, and what a steep step amplifies


def by_jax(jax, p):
    """The loss of a program, made of the ops of JAX."""
    table = table_of(jax)

    def loss(*leaves):
        values = list(leaves)
        for step in p.program.steps:
            flat = [
                [values[i] if type(i) is int else i for i in o]
                if type(o) is list
                else values[o]
                if type(o) is int
                else o
                for o in step.operands
            ]
            out = table[step.op](*flat, **step.options)
            values.append(out if step.part is None else out[step.part])
        pairs = zip(p.program.outputs, p.weights, strict=True)
        return sum(jax.numpy.sum(values[k] * w) for k, w in pairs)

    return loss


def compositions(library, loss, p):
    """Results by name, of one library."""
    numbers = tuple(range(len(p.leaves)))
    axes, n = tuple(p.axes), len(p.leaves)
    slope = library.grad(loss, numbers)
    mapped = library.vmap(loss, axes)

    def hvp(*given):
        return library.jvp(slope, tuple(given[:n]), tuple(given[n:]))[1]

    return {
        "vmap": [mapped(*p.leaves)],
        "vmap of grad": library.vmap(slope, axes)(*p.leaves),
        "grad of vmap": library.grad(lambda *x: mapped(*x).sum(), numbers)(*p.leaves),
        "vmap of hvp": library.vmap(hvp, axes * 2)(*p.leaves, *p.tangents),
    }


@pytest.mark.share(40)
@pytest.mark.parametrize("seed", range(200))
def test_compositions_of_vmap_give_the_numbers_of_jax(jax, seed):
    p = BatchedProgram(seed)
    theirs = by_jax(jax, p)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", IndependentWarning)
        found, wanted = compositions(od, p.loss, p), compositions(jax, theirs, p)
    for name, results in found.items():
        for got, want in zip(results, wanted[name], strict=True):
            want = np.asarray(want)
            assert got.shape == want.shape, name
            scale = np.abs(want).max(initial=1.0)
            assert np.abs(np.asarray(got) - want).max(initial=0.0) <= TOLERANCE * scale, name
    COMPARED["jax"] |= {step.op for step in p.program.steps}
