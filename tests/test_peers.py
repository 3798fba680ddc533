"""The same numbers as torch and jax: values, gradients and second derivatives, in float64."""

import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from cases import SMOOTH, draw, random_like, tracked
from programs import seeded

from odyssey import GradientTape, Variable, losses, ops
from odyssey.ops import OPS
from odyssey.optim import SGD

pytestmark = pytest.mark.peers
COMPARED = {"torch": set(), "jax": set()}
TOLERANCE = 1e-10


@pytest.fixture(scope="module", autouse=True)
def report():
    """Print, at the end, what was compared with whom; ``pytest -s`` shows it."""
    yield
    for peer, names in COMPARED.items():
        print(f"\ncompared with {peer}, {len(names)}: {', '.join(sorted(names))}")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        yield jax


def close(got, wanted, tolerance=TOLERANCE):
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------ our ops under their names


def torch_ops(torch):
    """Functions of torch tensors by the names of our ops, taking our options."""
    f = torch.nn.functional

    def axes(x, axis):
        return tuple(range(x.ndim)) if axis is None else axis

    def fold(fn):
        return lambda x, axis=None, keepdims=False: (
            fn(x, axes(x, axis), keepdims) if axis != () and x.ndim else x.clone()
        )

    def scored(logits, targets, axis=-1, reduction="mean", ignore_index=None, label_smoothing=0.0):
        return f.cross_entropy(
            logits.movedim(axis, 1) if logits.ndim > 1 else logits,
            targets,
            reduction=reduction,
            ignore_index=-100 if ignore_index is None else ignore_index,
            label_smoothing=label_smoothing,
        )

    def written(x, v, key):
        out = x.clone()
        out[key] = v
        return out

    names = "add subtract multiply divide negative square exp log sqrt tanh sigmoid relu conj "
    names += "sign where maximum minimum matmul real"
    shared = {name: getattr(torch, name) for name in names.split()}
    return shared | {
        "power": torch.pow,
        "absolute": torch.abs,
        "softmax": lambda x, axis=-1: torch.softmax(x, axis),
        "log_softmax": lambda x, axis=-1: torch.log_softmax(x, axis),
        "sum": fold(torch.sum),
        "mean": fold(torch.mean),
        "max": fold(torch.amax),
        "min": fold(torch.amin),
        "reshape": lambda x, shape: torch.reshape(x, (shape,) if shape == -1 else shape),
        "transpose": lambda x, axes=None: torch.permute(x, axes or tuple(range(x.ndim))[::-1]),
        "matrix_transpose": lambda x: x.mT,
        "broadcast_to": lambda x, shape: torch.broadcast_to(x, shape),
        "getitem": lambda x, key: x[key],
        "setitem": written,
        "identity": torch.clone,
        "squared_error_mean": f.mse_loss,
        "binary_entropy": lambda p, y: f.binary_cross_entropy(p, y, reduction="none"),
        "binary_entropy_with_logits": lambda x, y: f.binary_cross_entropy_with_logits(
            x, y, reduction="none"
        ),
        "softmax_cross_entropy": scored,
    }


def jax_ops(jax):
    """Functions of jax arrays by the names of our ops, taking our options."""
    jnp = jax.numpy
    names = "add subtract multiply divide power negative square exp log sqrt tanh absolute sign "
    names += "conj real where maximum minimum matmul sum mean max min reshape transpose "
    names += "matrix_transpose broadcast_to"
    shared = {name: getattr(jnp, name) for name in names.split()}

    def written(x, v, key):
        # NumPy drops leading axes of length 1 of what is written, jax does not.
        part, v = jnp.asarray(x)[key], jnp.asarray(v)
        return jnp.asarray(x).at[key].set(v.reshape(v.shape[max(v.ndim - part.ndim, 0) :]))

    return shared | {
        "sigmoid": jax.nn.sigmoid,
        "relu": jax.nn.relu,
        "softmax": jax.nn.softmax,
        "log_softmax": jax.nn.log_softmax,
        "getitem": lambda x, key: x[key],
        "setitem": written,
        "identity": lambda x: x + 0,
        "squared_error_mean": lambda x, y: jnp.mean((x - y) ** 2),
    }


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
        if row.name not in table or steps_back(sample):
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
        if row.name not in table or repeated(row, sample):
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
    """Whether several values are written to one place: jax leaves open which of them wins."""
    key = sample.options.get("key")
    return row.name == "setitem" and isinstance(key, np.ndarray) and len(set(key.flat)) < key.size


# ------------------------------------------------------------------ random programs


def test_random_programs_have_the_gradients_that_jax_finds(jax):
    table = type("JaxOps", (), {k: staticmethod(v) for k, v in jax_ops(jax).items()})
    compared = 0
    for seed in range(200):
        program = seeded(seed)
        if any(step.op == "setitem" and repeated_key(step) for step in program.steps):
            continue
        leaves = [Variable(x, requires_grad=True) for x in program.leaves]
        with GradientTape() as tape:
            outputs = program.run(ops, leaves)
        cotangents = [random_like(y, seed) for y in outputs]
        gradients = tape.gradient(outputs, leaves, cotangents, unused="zero")
        theirs, pull = jax.vjp(lambda *xs: program.run(table, xs), *program.leaves)  # noqa: B023
        for mine, other in zip(outputs, theirs, strict=True):
            close(mine.numpy(), other)
        for mine, other in zip(gradients, pull(cotangents), strict=True):
            scale = max(1.0, np.abs(np.asarray(other)).max(initial=0.0))
            close(mine / scale, np.asarray(other) / scale)
        compared += 1
    assert compared > 150
    COMPARED["jax"].add(f"{compared} random programs")


def repeated_key(step):
    key = step.options["key"]
    return isinstance(key, np.ndarray) and key.dtype != bool and len(set(key.tolist())) < key.size


# ------------------------------------------------------------------ losses


def loss_and_gradient(loss, predictions, targets, **options):
    x = Variable(predictions, requires_grad=True)
    with GradientTape() as tape:
        out = loss(x, targets, **options)
    return out.numpy(), tape.gradient(out, x, np.ones(out.shape))


def torch_loss_and_gradient(torch, loss, predictions):
    x = torch.tensor(predictions, requires_grad=True)
    out = loss(x)
    out.sum().backward()
    return out.detach().numpy(), x.grad.numpy()


def same_loss(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        close(a, b)


REDUCTIONS = ["mean", "sum", "none"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(4, 3), (5,), ()], ids=str)
def test_mean_squared_error_is_torchs(torch, shape, reduction):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shape), rng.normal(size=shape)
    weights = rng.uniform(0.5, 2.0, shape)
    f = torch.nn.functional.mse_loss
    t, w = torch.tensor(y), torch.tensor(weights)
    same_loss(
        loss_and_gradient(losses.mean_squared_error, x, y, reduction=reduction),
        torch_loss_and_gradient(torch, lambda x: f(x, t, reduction=reduction), x),
    )
    fold = {"mean": torch.mean, "sum": torch.sum, "none": lambda x: x}[reduction]
    same_loss(
        loss_and_gradient(losses.mean_squared_error, x, y, reduction=reduction, weights=weights),
        torch_loss_and_gradient(torch, lambda x: fold(w * f(x, t, reduction="none")), x),
    )
    COMPARED["torch"].add("losses.mean_squared_error")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("from_logits", [False, True], ids=["probabilities", "logits"])
def test_binary_cross_entropy_is_torchs(torch, from_logits, weighted, reduction):
    rng = np.random.default_rng(1)
    y = rng.uniform(size=(4, 3))
    y[0] = [0.0, 1.0, 1.0]
    x = rng.normal(size=(4, 3)) * 5 if from_logits else rng.uniform(size=(4, 3))
    # At a sure mistake torch divides by 1e-12 rounded to float32, 4e-9 off: so one short of sure.
    x[0] = [80.0, -80.0, 700.0] if from_logits else [0.0, 1.0, 1e-9]
    weights = rng.uniform(0.5, 2.0, (4, 1)) if weighted else None
    name = "binary_cross_entropy" + ("_with_logits" if from_logits else "")
    f = getattr(torch.nn.functional, name)
    w = torch.tensor(weights) if weighted else None
    mine = loss_and_gradient(
        losses.binary_cross_entropy,
        x,
        y,
        from_logits=from_logits,
        reduction=reduction,
        weights=weights,
    )
    t = torch.tensor(y)
    theirs = torch_loss_and_gradient(torch, lambda x: f(x, t, weight=w, reduction=reduction), x)
    same_loss(mine, theirs)
    COMPARED["torch"].add(f"losses.{name}")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0], ids=str)
@pytest.mark.parametrize("ignored", [None, -1, 2], ids=str)
@pytest.mark.parametrize("axis", [1, -1], ids=str)
def test_cross_entropy_of_class_numbers_is_torchs(torch, axis, ignored, smoothing, reduction):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3, 5, 4)) * 3
    y = rng.integers(0, x.shape[axis], np.delete(x.shape, axis))
    if ignored is not None:
        y[rng.random(y.shape) < 0.4] = ignored
    t = torch.tensor(y)
    mine = loss_and_gradient(
        losses.cross_entropy,
        x,
        y,
        axis=axis,
        label_smoothing=smoothing,
        ignore_index=ignored,
        reduction=reduction,
    )
    theirs = torch_loss_and_gradient(
        torch,
        lambda x: torch.nn.functional.cross_entropy(
            x.movedim(axis, 1),
            t,
            reduction=reduction,
            label_smoothing=smoothing,
            ignore_index=-100 if ignored is None else ignored,
        ),
        x,
    )
    same_loss(mine, theirs)
    COMPARED["torch"].add("losses.cross_entropy of class numbers")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1], ids=str)
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (3,)], ids=str)
def test_cross_entropy_of_probabilities_is_torchs(torch, shape, smoothing, reduction):
    rng = np.random.default_rng(3)
    axis = 1 if len(shape) > 1 else 0
    x, y = rng.normal(size=shape), rng.uniform(size=shape)
    y = y / y.sum(axis, keepdims=True)
    t = torch.tensor(y)
    mine = loss_and_gradient(
        losses.cross_entropy, x, y, axis=axis, label_smoothing=smoothing, reduction=reduction
    )
    theirs = torch_loss_and_gradient(
        torch,
        lambda x: torch.nn.functional.cross_entropy(
            x, t, reduction=reduction, label_smoothing=smoothing
        ),
        x,
    )
    same_loss(mine, theirs)
    COMPARED["torch"].add("losses.cross_entropy of probabilities")


# ------------------------------------------------------------------ SGD

SETTINGS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "dampening": {"momentum": 0.9, "dampening": 0.3},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "decay": {"weight_decay": 0.01},
    "decay and momentum": {"momentum": 0.8, "weight_decay": 0.05},
    "decay and dampening": {"momentum": 0.8, "dampening": 0.5, "weight_decay": 0.05},
    "decay and nesterov": {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05},
    "decay without momentum, dampened": {"dampening": 0.5, "weight_decay": 0.05},
}


@pytest.mark.parametrize("missing", [None, 0, 37], ids=["all", "first missing", "later missing"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
def test_sgd_walks_with_torchs_for_100_steps(torch, settings, missing):
    rng = np.random.default_rng(4)
    starts = [rng.normal(size=shape) for shape in [(3, 4), (4,), (), (150, 120)]]
    mine = [Variable(x, requires_grad=True) for x in starts]
    theirs = [torch.tensor(x, requires_grad=True) for x in starts]
    sgd = SGD(mine, learning_rate=0.05, **settings)
    with quiet():
        other = torch.optim.SGD(theirs, lr=0.05, **settings)
        for step in range(100):
            if step == 50:
                sgd.learning_rate = other.param_groups[0]["lr"] = 0.02
            for k, (p, q) in enumerate(zip(mine, theirs, strict=True)):
                g = rng.normal(size=p.shape)
                absent = step == missing and k == 1
                p.grad, q.grad = (None, None) if absent else (g, torch.tensor(g))
            sgd.step(allow_missing=step == missing)
            other.step()
    for p, q in zip(mine, theirs, strict=True):
        close(p.numpy(), q.detach().numpy(), 1e-12)
    COMPARED["torch"].add("optim.SGD")


@contextmanager
def quiet():
    """Silence torch alone: it warns when it loads what its optimizers compile with."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch(\..*)?$")
        yield
