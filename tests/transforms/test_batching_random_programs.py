"""Random programs of 30 ops under vmap and its compositions give what loops over examples give."""

import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import IndependentWarning
from support.batched_programs import BatchedProgram
from support.cases import random_like

TOLERANCE = 1e-12  # of the largest number
PROGRAMS = range(200)
FEW = range(8)


def listed(out):
    return list(out) if isinstance(out, (tuple, list)) else [out]


def numbers(p):
    return tuple(range(len(p.leaves)))


def gradient(p):
    return od.grad(p.loss, argnums=numbers(p))


def by_vmap(p, fn, *given):
    axes = tuple(p.axes * (len(given) // len(p.axes)))
    return listed(od.vmap(fn, axes)(*given)), p.loop(fn, *given)


def vmap_of_the_program(p):
    return by_vmap(p, p.outputs, *p.leaves)


def vmap_of_grad(p):
    return by_vmap(p, gradient(p), *p.leaves)


def vmap_of_checkpoint(p):
    fn = od.grad(od.checkpoint(p.loss), argnums=numbers(p))
    return by_vmap(p, fn, *p.leaves)[0], p.loop(gradient(p), *p.leaves)


def vmap_of_jacobian(p):
    return by_vmap(p, od.jacobian(p.outputs, argnums=numbers(p)), *p.leaves)


def with_directions(p, transform):
    def fn(*given):
        n = len(p.leaves)
        return transform(given[:n], given[n:])

    return by_vmap(p, fn, *p.leaves, *p.tangents)


def vmap_of_jvp(p):
    return with_directions(p, lambda x, t: od.jvp(p.outputs, x, t))


def vmap_of_hvp(p):
    return with_directions(p, lambda x, t: od.hvp(p.loss, x, t))


def grad_of_vmap(p):
    mapped = od.vmap(p.loss, tuple(p.axes))
    weights = random_like(np.zeros(p.examples), seed=3)
    found = od.grad(lambda *x: (mapped(*x) * weights).sum(), argnums=numbers(p))(*p.leaves)
    each = p.loop(gradient(p), *p.leaves)
    wanted = [
        g * weights.reshape(-1, *(1,) * (g.ndim - 1)) if axis == 0 else np.tensordot(weights, g, 1)
        for g, axis in zip(each, p.axes, strict=True)
    ]
    return listed(found), wanted


def vmap_of_vmap(p):
    """Outside the leaves that are mapped, inside all of them, which have a further axis."""
    slope = gradient(p)
    inner = [np.stack([x, x * 0.9], -1) for x in p.leaves]
    found = od.vmap(od.vmap(slope, -1), tuple(p.axes))(*inner)

    def looped(*leaves):
        pairs = [slope(*[x[..., k] for x in leaves]) for k in range(2)]
        return [np.stack(both) for both in zip(*pairs, strict=True)]

    return listed(found), p.loop(looped, *inner)


def by_compile(p, fn):
    """As ``by_vmap``, of a compiled program; a function that has none fails the test."""
    compiled = od.compile(od.vmap(fn, tuple(p.axes)))
    compiled(*p.leaves)
    found = compiled(*p.leaves)
    why = compiled.explain(*p.leaves)
    assert why.startswith("a program"), why
    return listed(found), p.loop(fn, *p.leaves)


def compile_of_vmap(p):
    return by_compile(p, p.outputs)


def compile_of_vmap_of_grad(p):
    return by_compile(p, gradient(p))


EAGER = {
    "vmap": vmap_of_the_program,
    "vmap of grad": vmap_of_grad,
    "grad of vmap": grad_of_vmap,
    "vmap of vmap of grad": vmap_of_vmap,
    "vmap of jvp": vmap_of_jvp,
    "vmap of hvp": vmap_of_hvp,
    "vmap of grad of a checkpoint": vmap_of_checkpoint,
    "vmap of jacobian": vmap_of_jacobian,
}
COMPILED = {
    "compile of vmap": compile_of_vmap,
    "compile of vmap of grad": compile_of_vmap_of_grad,
}
eager = pytest.mark.parametrize("composition", EAGER.values(), ids=list(EAGER))
compiled = pytest.mark.parametrize("composition", COMPILED.values(), ids=list(COMPILED))


def check(composition, seed):
    """Raise AssertionError unless a composition gives what a loop gives on a program."""
    program = BatchedProgram(seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", IndependentWarning)
        found, wanted = composition(program)
    for got, want in zip(found, wanted, strict=True):
        got = np.asarray(got)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert np.isfinite(want).all()
        scale = np.abs(want).max(initial=1.0)
        assert np.abs(got - want).max(initial=0.0) <= TOLERANCE * scale


@pytest.mark.share(4, rest="slow")
@eager
@pytest.mark.parametrize("seed", FEW)
def test_programs_under_a_composition_give_what_a_loop_gives(composition, seed):
    check(composition, seed)


@pytest.mark.soak
@eager
@pytest.mark.parametrize("seed", PROGRAMS[len(FEW) :])
def test_many_programs_under_a_composition_give_what_a_loop_gives(composition, seed):
    check(composition, seed)


@pytest.mark.share(8, rest="slow")
@compiled
@pytest.mark.parametrize("seed", FEW)
def test_programs_under_a_compiled_composition_give_what_a_loop_gives(composition, seed):
    check(composition, seed)


@pytest.mark.soak
@compiled
@pytest.mark.parametrize("seed", PROGRAMS[len(FEW) :])
def test_many_programs_under_a_compiled_composition_give_what_a_loop_gives(composition, seed):
    check(composition, seed)


def test_programs_have_thirty_steps_and_leaves_that_are_mapped_and_shared():
    programs = [BatchedProgram(seed) for seed in range(20)]
    lengths = [len(p.program.steps) for p in programs]
    assert min(lengths) >= 30
    axes = [axis for p in programs for axis in p.axes]
    assert 4 < axes.count(None) < len(axes) - 20
