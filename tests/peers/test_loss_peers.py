"""Losses and their gradients against those of torch.nn.functional, in float64."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable

pytestmark = pytest.mark.peers
TOLERANCE = 1e-10
REDUCTIONS = ["mean", "sum", "none"]
# torch announces that its mean will become the mean of a batch; ours stays that of the elements.
OF_ELEMENTS = pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def compare(torch, ours, theirs, *differentiable):
    """The same value, and gradients with respect to all the arguments, for a random cotangent."""
    variables = [Variable(x, requires_grad=True) for x in differentiable]
    tensors = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in differentiable]
    with GradientTape() as tape:
        value = ours(*variables)
    expected = theirs(*tensors)
    cotangent = np.random.default_rng(4).normal(size=value.shape)
    np.testing.assert_allclose(
        value.detach().numpy(), expected.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE
    )
    gradients = tape.gradient(value, variables, cotangent)
    wanted = torch.autograd.grad(expected, tensors, torch.tensor(cotangent))
    for got, want in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=TOLERANCE, atol=TOLERANCE)


def draw(seed, shape=(5, 4)):
    rng = np.random.default_rng(seed)
    return 2 * rng.normal(size=shape), 2 * rng.normal(size=shape)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("name", "theirs", "options"),
    [
        ("mean_squared_error", "mse_loss", {}),
        ("mean_absolute_error", "l1_loss", {}),
        ("smooth_l1", "smooth_l1_loss", {}),
        ("smooth_l1", "smooth_l1_loss", {"beta": 0.3}),
        ("smooth_l1", "smooth_l1_loss", {"beta": 0.0}),
        ("huber", "huber_loss", {}),
        ("huber", "huber_loss", {"delta": 2.5}),
    ],
    ids=["squared", "absolute", "smooth", "smooth_narrow", "smooth_sharp", "huber", "huber_wide"],
)
def test_losses_of_numbers_equal_those_of_torch(torch, name, theirs, options, reduction):
    options = options | {"reduction": reduction}
    p, t = draw(1)
    p[0], t[0] = t[0], t[0]  # the kink at 0
    t[1] = p[1] + options.get("beta", options.get("delta", 1.0))  # about the bend
    compare(
        torch,
        lambda p, t: getattr(od, name)(p, t, **options),
        lambda p, t: getattr(torch.nn.functional, theirs)(p, t, **options),
        p,
        t,
    )


@OF_ELEMENTS
@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
@pytest.mark.parametrize("log_target", [False, True], ids=["probabilities", "logarithms"])
def test_kl_divergence_equals_that_of_torch(torch, log_target, reduction):
    x, t = draw(2)
    t = t if log_target else np.abs(t)
    options = {"log_target": log_target, "reduction": reduction}
    compare(
        torch,
        lambda x, t: od.kl_divergence(x, t, **options),
        lambda x, t: torch.nn.functional.kl_div(x, t, **options),
        x,
        t,
    )


@OF_ELEMENTS
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_kl_divergence_with_targets_of_0_equals_that_of_torch(torch, reduction):
    x, t = draw(3)
    t = np.maximum(t, 0)
    compare(
        torch,
        lambda x: od.kl_divergence(x, t, reduction=reduction),
        lambda x: torch.nn.functional.kl_div(x, torch.tensor(t), reduction=reduction),
        x,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("ignore_index", [None, -100, 2])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5)], ids=["matrix", "image"])
def test_nll_equals_that_of_torch(torch, shape, ignore_index, reduction):
    x, _ = draw(5, shape)
    t = np.random.default_rng(6).integers(0, 4, (shape[0], *shape[2:]))
    if ignore_index == -100:
        t[0] = -100
    compare(
        torch,
        lambda x: od.nll(x, t, axis=1, ignore_index=ignore_index, reduction=reduction),
        lambda x: torch.nn.functional.nll_loss(
            x,
            torch.tensor(t),
            reduction=reduction,
            ignore_index=-100 if ignore_index is None else ignore_index,
        ),
        x,
    )


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_nll_with_weights_of_classes_equals_that_of_torch(torch, reduction):
    x, _ = draw(7, (6, 4))
    t = np.random.default_rng(8).integers(0, 4, 6)
    w = np.array([0.5, 1.0, 2.0, 4.0])
    compare(
        torch,
        lambda x: od.nll(x, t, reduction=reduction, weights=w[t]),
        lambda x: torch.nn.functional.nll_loss(
            x, torch.tensor(t), weight=torch.tensor(w), reduction=reduction
        ),
        x,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_hinge_equals_that_of_torch(torch, reduction):
    # With a margin of 1, torch's loss of embeddings is x for targets 1 and max(0, 1 - x) for -1.
    p, _ = draw(9)
    compare(
        torch,
        lambda p: od.hinge(p, np.ones(p.shape), reduction=reduction),
        lambda p: torch.nn.functional.hinge_embedding_loss(
            p, -torch.ones_like(p), reduction=reduction
        ),
        p,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 3.0])
@pytest.mark.parametrize("alpha", [None, 0.25])
def test_focal_equals_its_formula_in_torch(torch, alpha, gamma, reduction):
    x, _ = draw(10)
    t = np.random.default_rng(11).integers(0, 2, x.shape)

    def theirs(x):
        y = torch.tensor(t, dtype=torch.float64)
        p = torch.sigmoid(x)
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none")
        losses = entropy * (1 - (p * y + (1 - p) * (1 - y))) ** gamma
        if alpha is not None:
            losses = (alpha * y + (1 - alpha) * (1 - y)) * losses
        return losses if reduction == "none" else getattr(losses, reduction)()

    options = {"alpha": alpha, "gamma": gamma, "reduction": reduction}
    compare(torch, lambda x: od.focal(x, t, **options), theirs, x)
