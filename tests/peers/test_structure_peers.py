"""Folding, moving, joining, picking: values, gradients and second derivatives equal the peers'."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from support.peers import close, jax, torch  # noqa: F401

pytestmark = pytest.mark.peers

IDS = np.array([[2, 0], [1, 2]])
ALONG = np.array([[0, 2], [1, 1], [2, 2]])
ZEROS = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0], [1.0, -2.0, 4.0]])
TIES = np.array([[1.0, 1.0, 0.0], [2.0, 0.0, 2.0]])


def interpolated(t, x, places, values):
    """Straight lines between points, by the definition; torch has no op for it."""
    after = t.clamp(t.searchsorted(places.detach(), x.detach(), right=True), 1, len(places) - 1)
    start, end = places[after - 1], places[after]
    share = (x - start) / (end - start)
    inside = values[after - 1] * (1 - share) + values[after] * share
    inside = t.where(x < places[0], values[0], inside)
    return t.where(x > places[-1], values[-1], inside)


# Operands, shapes or values; the call that odyssey and jax share, NumPy's; torch's call.
CASES = {
    "prod": ([ZEROS], lambda m, x: m.prod(x, axis=1), lambda t, x: t.prod(x, 1)),
    "prod of all": ([(2, 3)], lambda m, x: m.prod(x), lambda t, x: t.prod(x)),
    "var": ([(3, 4)], lambda m, x: m.var(x), lambda t, x: t.var(x, correction=0)),
    "var, ddof": (
        [(3, 4)],
        lambda m, x: m.var(x, axis=(0, 1), ddof=1, keepdims=True),
        lambda t, x: t.var(x, (0, 1), correction=1, keepdim=True),
    ),
    "std": ([(3, 4)], lambda m, x: m.std(x, axis=0), lambda t, x: t.std(x, 0, correction=0)),
    "cumsum": ([(3, 4)], lambda m, x: m.cumsum(x, axis=-2), lambda t, x: t.cumsum(x, -2)),
    "cumprod": (
        [ZEROS],
        lambda m, x: m.cumprod(x, axis=1),
        lambda t, x: t.cumprod(x, 1),
    ),
    "diff": ([(3, 4)], lambda m, x: m.diff(x, 2), lambda t, x: t.diff(x, 2)),
    "diff, ends": (
        [(3, 4), (3, 1)],
        lambda m, x, y: m.diff(x, prepend=y),
        lambda t, x, y: t.diff(x, prepend=y),
    ),
    "trapezoid": (
        [(3, 4), (3, 4)],
        lambda m, y, x: m.trapezoid(y, x),
        lambda t, y, x: t.trapezoid(y, x),
    ),
    "gradient": (
        [(3, 4)],
        lambda m, x: m.gradient(x, 0.5, axis=1),
        lambda t, x: t.gradient(x, spacing=0.5, dim=1)[0],
    ),
    "linspace": (
        [(3,), (3,)],
        lambda m, x, y: m.linspace(x, y, 5),
        lambda t, x, y: t.lerp(x, y, t.linspace(0, 1, 5, dtype=t.float64)[:, None]),
    ),
    "interp": (
        [np.array([-2.0, -0.5, 0.0, 0.75, 1.5, 4.0]), np.array([-1.0, 0.0, 1.5]), (3,)],
        lambda m, x, p, f: m.interp(x, p, f),
        interpolated,
    ),
    "max": ([TIES], lambda m, x: m.max(x, axis=1), lambda t, x: t.amax(x, 1)),
    "min": ([TIES], lambda m, x: m.min(x), lambda t, x: t.amin(x)),
    "swapaxes": ([(2, 3, 4)], lambda m, x: m.swapaxes(x, 0, -1), lambda t, x: t.swapaxes(x, 0, -1)),
    "moveaxis": (
        [(2, 3, 4)],
        lambda m, x: m.moveaxis(x, (0, 1), (-1, 0)),
        lambda t, x: t.moveaxis(x, (0, 1), (-1, 0)),
    ),
    "ravel": ([(2, 3)], lambda m, x: m.ravel(x), lambda t, x: t.ravel(x)),
    "squeeze": ([(1, 3, 1)], lambda m, x: m.squeeze(x), lambda t, x: t.squeeze(x)),
    "expand_dims": ([(3,)], lambda m, x: m.expand_dims(x, -1), lambda t, x: t.unsqueeze(x, -1)),
    "flip": ([(2, 3)], lambda m, x: m.flip(x, (0, 1)), lambda t, x: t.flip(x, (0, 1))),
    "roll": (
        [(2, 3)],
        lambda m, x: m.roll(x, (1, -2), axis=(0, 1)),
        lambda t, x: t.roll(x, (1, -2), (0, 1)),
    ),
    "tile": ([(2, 3)], lambda m, x: m.tile(x, (2, 1, 2)), lambda t, x: t.tile(x, (2, 1, 2))),
    "repeat": (
        [(2, 3)],
        lambda m, x: m.repeat(x, 3, axis=1),
        lambda t, x: t.repeat_interleave(x, 3, 1),
    ),
    "repeat, each": (
        [(2, 3)],
        lambda m, x: m.repeat(x, np.array([2, 0, 1]), axis=1),
        lambda t, x: t.repeat_interleave(x, t.tensor([2, 0, 1]), 1),
    ),
    "pad": (
        [(2, 3)],
        lambda m, x: m.pad(x, ((1, 0), (2, 1)), constant_values=1.5),
        lambda t, x: t.nn.functional.pad(x, (2, 1, 1, 0), value=1.5),
    ),
    "pad, reflect": (
        [(1, 4, 5)],
        lambda m, x: m.pad(x, ((0, 0), (1, 2), (3, 0)), mode="reflect"),
        lambda t, x: t.nn.functional.pad(x, (3, 0, 1, 2), mode="reflect"),
    ),
    "pad, edge": (
        [(1, 4, 5)],
        lambda m, x: m.pad(x, ((0, 0), (1, 2), (3, 0)), mode="edge"),
        lambda t, x: t.nn.functional.pad(x, (3, 0, 1, 2), mode="replicate"),
    ),
    "pad, wrap": (
        [(1, 4, 5)],
        lambda m, x: m.pad(x, ((0, 0), (1, 2), (3, 0)), mode="wrap"),
        lambda t, x: t.nn.functional.pad(x, (3, 0, 1, 2), mode="circular"),
    ),
    "concatenate": (
        [(2, 3), (2, 1), (2, 2)],
        lambda m, *v: m.concatenate(v, axis=1),
        lambda t, *v: t.cat(v, 1),
    ),
    "stack": ([(2, 3), (2, 3)], lambda m, *v: m.stack(v, axis=1), lambda t, *v: t.stack(v, 1)),
    "vstack": ([(3,), (2, 3)], lambda m, *v: m.vstack(v), lambda t, *v: t.vstack(v)),
    "hstack": ([(2, 1), (2, 3)], lambda m, *v: m.hstack(v), lambda t, *v: t.hstack(v)),
    "split": (
        [(2, 5)],
        lambda m, x: m.split(x, [1, 3], axis=1)[1],
        lambda t, x: t.tensor_split(x, (1, 3), 1)[1],
    ),
    "array_split": (
        [(5, 2)],
        lambda m, x: m.array_split(x, 3)[1],
        lambda t, x: t.tensor_split(x, 3)[1],
    ),
    "append": (
        [(2, 3), (2,)],
        lambda m, x, y: m.append(x, y),
        lambda t, x, y: t.cat((x.ravel(), y)),
    ),
    "atleast_3d": ([(2, 3)], lambda m, x: m.atleast_3d(x), lambda t, x: t.atleast_3d(x)),
    "column_stack": (
        [(3,), (3, 2)],
        lambda m, *v: m.column_stack(v),
        lambda t, *v: t.column_stack(v),
    ),
    "dstack": ([(2, 3), (2, 3)], lambda m, *v: m.dstack(v), lambda t, *v: t.dstack(v)),
    "hsplit": ([(2, 4)], lambda m, x: m.hsplit(x, 2)[1], lambda t, x: t.hsplit(x, 2)[1]),
    "vsplit": ([(4, 2)], lambda m, x: m.vsplit(x, 2)[1], lambda t, x: t.vsplit(x, 2)[1]),
    "dsplit": ([(1, 2, 4)], lambda m, x: m.dsplit(x, 2)[1], lambda t, x: t.dsplit(x, 2)[1]),
    "flipud": ([(2, 3)], lambda m, x: m.flipud(x), lambda t, x: t.flipud(x)),
    "fliplr": ([(2, 3)], lambda m, x: m.fliplr(x), lambda t, x: t.fliplr(x)),
    "rot90": (
        [(2, 3, 4)],
        lambda m, x: m.rot90(x, -1, (1, 2)),
        lambda t, x: t.rot90(x, -1, (1, 2)),
    ),
    "rollaxis": (
        [(2, 3, 4)],
        lambda m, x: m.rollaxis(x, 2, 1),
        lambda t, x: t.movedim(x, 2, 1),
    ),
    "diag": ([(3,)], lambda m, x: m.diag(x, -1), lambda t, x: t.diag(x, -1)),
    "diag of a matrix": ([(3, 4)], lambda m, x: m.diag(x, 1), lambda t, x: t.diag(x, 1)),
    "diagonal": (
        [(2, 3, 4)],
        lambda m, x: m.diagonal(x, 1, 0, 2),
        lambda t, x: t.diagonal(x, 1, 0, 2),
    ),
    "trace": ([(3, 3)], lambda m, x: m.trace(x), lambda t, x: t.trace(x)),
    "tril": ([(2, 3, 4)], lambda m, x: m.tril(x, 1), lambda t, x: t.tril(x, 1)),
    "triu": ([(2, 3, 4)], lambda m, x: m.triu(x, -1), lambda t, x: t.triu(x, -1)),
    "kron": ([(2, 3), (3, 2)], lambda m, x, y: m.kron(x, y), lambda t, x, y: t.kron(x, y)),
    "cross": (
        [(4, 3), (1, 3)],
        lambda m, x, y: m.cross(x, y),
        lambda t, x, y: t.linalg.cross(x, y),
    ),
    "sort": ([TIES], lambda m, x: m.sort(x, axis=1), lambda t, x: t.sort(x, dim=1, stable=True)[0]),
    "einsum": (
        [(2, 3), (3, 4)],
        lambda m, *v: m.einsum("ij,jk->ki", *v),
        lambda t, *v: t.einsum("ij,jk->ki", *v),
    ),
    "einsum, one": (
        [(2, 3, 3)],
        lambda m, x: m.einsum("ijj->j", x),
        lambda t, x: t.einsum("ijj->j", x),
    ),
    "einsum, rest": (
        [(3, 1, 2, 2), (4, 2, 5)],
        lambda m, *v: m.einsum("...ij,...jk->...ik", *v),
        lambda t, *v: t.einsum("...ij,...jk->...ik", *v),
    ),
    "einsum, four": (
        [(2, 3), (3, 4), (4, 2), (2,)],
        lambda m, *v: m.einsum("ij,jk,kl,i->l", *v),
        lambda t, *v: t.einsum("ij,jk,kl,i->l", *v),
    ),
    "take": ([(3, 4)], lambda m, x: m.take(x, IDS, axis=0), lambda t, x: x[t.tensor(IDS)]),
    "take of all": ([(3, 4)], lambda m, x: m.take(x, IDS), lambda t, x: t.take(x, t.tensor(IDS))),
    "take_along_axis": (
        [(3, 4)],
        lambda m, x: m.take_along_axis(x, ALONG, axis=1),
        lambda t, x: t.take_along_dim(x, t.tensor(ALONG), 1),
    ),
    "index": ([(3, 4)], lambda m, x: x[ALONG, 1:, None], lambda t, x: x[t.tensor(ALONG), 1:, None]),
    "mask": ([(2, 3)], lambda m, x: x[TIES > 0], lambda t, x: x[t.tensor(TIES > 0)]),
    "dot": ([(2, 3), (3, 2)], lambda m, x, y: m.dot(x, y), lambda t, x, y: x @ y),
    "outer": ([(2,), (3,)], lambda m, x, y: m.outer(x, y), lambda t, x, y: t.outer(x, y)),
    "inner": ([(2, 3), (4, 3)], lambda m, x, y: m.inner(x, y), lambda t, x, y: t.inner(x, y)),
    "vdot": ([(3,), (3,)], lambda m, x, y: m.vdot(x, y), lambda t, x, y: t.vdot(x, y)),
    "tensordot": (
        [(2, 3, 4), (4, 5, 2)],
        lambda m, x, y: m.tensordot(x, y, ([0, 2], [2, 0])),
        lambda t, x, y: t.tensordot(x, y, ([0, 2], [2, 0])),
    ),
    "matmul": ([(2, 1, 2, 3), (4, 3, 2)], lambda m, x, y: m.matmul(x, y), lambda t, x, y: x @ y),
    "matmul, vector": ([(3,), (4, 3, 2)], lambda m, x, y: m.matmul(x, y), lambda t, x, y: x @ y),
    "linear": (
        [(2, 5, 3), (4, 3), (4,)],
        lambda m, x, w, b: m.linear(x, w, b) if m is ops else x @ w.T + b,
        lambda t, x, w, b: t.nn.functional.linear(x, w, b),
    ),
    "linear, vector": (
        [(3,), (4, 3)],
        lambda m, x, w: m.linear(x, w) if m is ops else w @ x,
        lambda t, x, w: t.nn.functional.linear(x, w),
    ),
    "logsumexp": (
        [np.array([[1.0, -np.inf, 900.0], [2.0, 1.0, 2.0]])],
        lambda m, x: logsumexp(m)(x, axis=1),
        lambda t, x: t.logsumexp(x, 1),
    ),
    "logsumexp of all": (
        [(2, 3)],
        lambda m, x: logsumexp(m)(x, keepdims=True),
        lambda t, x: t.logsumexp(x, (0, 1), keepdim=True),
    ),
}
every_case = pytest.mark.parametrize(
    ("operands", "call", "torchs"), CASES.values(), ids=list(CASES)
)


def logsumexp(module):
    """NumPy has none, so jax keeps it elsewhere."""
    if module is ops:
        return ops.logsumexp
    return pytest.importorskip("jax").scipy.special.logsumexp


def drawn(operands):
    """The values of operands, and a function that draws what goes with a result or an operand."""
    rng = np.random.default_rng(0)
    values = [rng.normal(size=o) if isinstance(o, tuple) else o for o in operands]
    return values, lambda x: np.random.default_rng(np.size(x)).normal(size=np.shape(x))


def ours(call, values, draw):
    """Value, gradients, and the gradient of the gradients' inner product with fixed directions."""
    leaves = [Variable(v, requires_grad=True) for v in values]
    with GradientTape() as outer:
        with GradientTape() as inner:
            out = call(ops, *leaves)
        grads = inner.gradient(out, leaves, draw(out.numpy()))
        total = sum(ops.sum(ops.square(g) * draw(g)) for g in grads)
    second = outer.gradient(total, leaves, unused="zero") if total.requires_grad else None
    return out.numpy(), [np.asarray(g.detach().numpy()) for g in grads], second


def assert_equal(got, wanted):
    value, grads, second = got
    close(value, wanted[0])
    for a, b in zip(grads, wanted[1], strict=True):
        close(a, b)
    for k, b in enumerate(wanted[2]):
        close(np.zeros(np.shape(b)) if second is None else second[k], b)


@every_case
def test_jax_agrees(jax, operands, call, torchs):  # noqa: F811
    values, draw = drawn(operands)

    def first(*args):
        out, pull = jax.vjp(lambda *v: call(jax.numpy, *v), *args)
        return pull(jax.numpy.asarray(draw(out)))

    def total(*args):
        return sum(jax.numpy.sum(g**2 * draw(g)) for g in first(*args))

    arrays = [jax.numpy.asarray(v) for v in values]
    second = jax.grad(total, tuple(range(len(arrays))))(*arrays)
    assert_equal(ours(call, values, draw), (call(jax.numpy, *arrays), first(*arrays), second))


@every_case
def test_torch_agrees(torch, operands, call, torchs):  # noqa: F811
    values, draw = drawn(operands)
    leaves = [torch.tensor(v, requires_grad=True) for v in values]
    out = torchs(torch, *leaves)
    g = torch.tensor(draw(out.detach().numpy()))
    grads = torch.autograd.grad(out, leaves, g, create_graph=True)
    total = sum((g**2 * torch.tensor(draw(g.detach().numpy()))).sum() for g in grads)
    second = [torch.zeros_like(leaf) for leaf in leaves]
    if total.requires_grad:
        found = torch.autograd.grad(total, leaves, allow_unused=True)
        second = [z if s is None else s for s, z in zip(found, second, strict=True)]
    detached = [out.detach(), [g.detach() for g in grads], [s.detach() for s in second]]
    assert_equal(ours(call, values, draw), detached)


def test_torch_has_no_slope_either_at_a_deviation_of_zero(torch):  # noqa: F811
    tensor = torch.ones(3, dtype=torch.float64, requires_grad=True)
    torch.std(tensor).backward()
    leaf = Variable(np.ones(3), requires_grad=True)
    with GradientTape() as tape:
        out = ops.std(leaf, ddof=1)
    close(tape.gradient(out, leaf), tensor.grad)


def test_torch_has_the_same_complex_gradients(torch):  # noqa: F811
    z = np.array([1 + 2j, 0.0, 3 - 1j])
    calls = {
        "prod": (lambda x: ops.prod(x[::2]), lambda x: torch.prod(x[::2])),
        "std": (ops.std, lambda x: torch.std(x, correction=0)),
        "var": (ops.var, lambda x: torch.var(x, correction=0)),
        "vdot": (lambda x: ops.vdot(x, z * 1j), lambda x: torch.vdot(x, torch.tensor(z * 1j))),
        "linear": (
            lambda x: ops.linear(x, z[None] * 1j)[0],
            lambda x: torch.nn.functional.linear(x, torch.tensor(z[None] * 1j))[0],
        ),
    }
    for call, torchs in calls.values():
        tensor, leaf = torch.tensor(z, requires_grad=True), Variable(z, requires_grad=True)
        with GradientTape() as tape:
            out = abs(call(leaf))
        torchs(tensor).abs().backward()
        close(tape.gradient(out, leaf), tensor.grad)
