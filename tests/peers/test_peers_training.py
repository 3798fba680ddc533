"""Losses and SGD against torch, in float64."""

import warnings
from contextlib import contextmanager

import numpy as np
import pytest

from odyssey import GradientTape, Variable, losses
from odyssey.optim import SGD
from support.peers import COMPARED, close, report, torch

pytestmark = pytest.mark.peers
FIXTURES = (torch, report)  # imported for pytest to find


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
