"""The same numbers as torch and jax: values, gradients and second derivatives, in float64."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.ops import OPS
from support.cases import SMOOTH, draw, random_like, tracked
from support.peers import COMPARED, TOLERANCE, jax, jax_ops, report, torch, torch_ops

pytestmark = pytest.mark.peers
FIXTURES = (torch, jax, report)  # imported for pytest to find


def ours(call, operands, positions, cotangent):
    """Value, gradients, and gradients of their product with random directions."""
    leaves = [Variable(operands[k], requires_grad=True) for k in positions]
    given = list(operands)
    for k, leaf in zip(positions, leaves, strict=True):
        given[k] = leaf
    with GradientTape() as outer:
        with GradientTape() as inner:
            out = call(*given)
        first = inner.gradient(out, leaves, cotangent)
        # The product with the leaf keeps linear ops, whose gradient is constant, on the tape.
        total = sum(ops.sum(g * x) for g, x in zip(first, leaves, strict=True))
    second = outer.gradient(total, leaves)
    return out.numpy(), [g.detach().numpy() for g in first], second


def test_values_gradients_and_second_derivatives_equal_those_of_torch(torch):
    table = torch_ops(torch)
    for name, (row, sample) in SMOOTH.items():
        if row.name not in table or steps_back(sample) or repeated(row, sample):
            continue
        options = {k: to_torch(torch, o) for k, o in sample.options.items()}
        for seed in range(3):
            operands, positions = draw(sample, seed=seed), tracked(row, sample)
            tensors = [to_torch(torch, o) for o in operands]
            leaves = [tensors[k].requires_grad_() for k in positions]
            out = table[row.name](*tensors, **options)
            c = random_like(np.asarray(out.detach()), seed)
            first = torch.autograd.grad(out, leaves, torch.tensor(c), create_graph=True)
            total = sum((g * x).sum() for g, x in zip(first, leaves, strict=True))
            second = torch.autograd.grad(total, leaves)
            value, gradients, seconds = ours(
                lambda *a: row.call(*a, **sample.options),  # noqa: B023 - called at once
                operands,
                positions,
                c.reshape(np.shape(row.call(*operands, **sample.options))),
            )
            compare(name, (value, gradients, seconds), (out, first, second))
        COMPARED["torch"].add(row.name)
    assert COMPARED["torch"] >= set(table) & set(OPS)


def folds_a_number(sample):
    """Whether the sample names an axis of a number, as NumPy lets one do, and JAX does not."""
    return sample.options.get("axis") is not None and np.ndim(draw(sample)[0]) == 0


def steps_back(sample):
    """Whether a slice goes backwards, which torch does not take."""
    key = sample.options.get("key")
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(part, slice) and (part.step or 1) < 0 for part in parts)


def compare(name, mine, theirs):
    """Compare value, first and second derivatives of a sample."""
    flat = [(a[0], *a[1], *a[2]) for a in (mine, theirs)]
    for a, b in zip(*flat, strict=True):
        b = b.detach().numpy() if hasattr(b, "detach") else np.asarray(b)
        assert a.dtype == b.dtype, name
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def to_torch(torch, value):
    if isinstance(value, np.ndarray):
        return torch.tensor(value)
    if isinstance(value, tuple):
        return tuple(to_torch(torch, part) for part in value)
    return value


def test_values_gradients_and_second_derivatives_equal_those_of_jax(jax):
    table = jax_ops(jax)
    for name, (row, sample) in SMOOTH.items():
        if row.name not in table or repeated(row, sample) or folds_a_number(sample):
            continue
        positions = tracked(row, sample)
        for seed in range(2):
            operands = draw(sample, seed=seed)
            moving = [operands[k] for k in positions]

            def call(*moving, row=row, sample=sample, operands=operands, positions=positions):
                given = list(operands)
                for k, value in zip(positions, moving, strict=True):
                    given[k] = value
                return table[row.name](*given, **sample.options)

            out = np.asarray(call(*moving))
            c = random_like(out, seed)

            def gradients(*moving, call=call, c=c):
                return jax.vjp(call, *moving)[1](c)

            def total(*moving, gradients=gradients):
                pairs = zip(gradients(*moving), moving, strict=True)
                return sum((g * x).sum() for g, x in pairs)

            everywhere = tuple(range(len(moving)))
            theirs = out, gradients(*moving), jax.grad(total, everywhere)(*moving)
            mine = ours(lambda *a: row.call(*a, **sample.options), operands, positions, c)  # noqa: B023
            compare(name, mine, theirs)
        COMPARED["jax"].add(row.name)
    assert COMPARED["jax"] >= set(table) & set(OPS)


def repeated(row, sample):
    """Whether several values go to one place: both peers leave open whose gradient is whose."""
    key = sample.options.get("key")
    return row.name == "setitem" and isinstance(key, np.ndarray) and len(set(key.flat)) < key.size
