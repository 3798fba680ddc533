"""Optimizers and schedules against torch.optim, in float64."""

import copy

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, optim
from support.optimizers import OPTIMIZERS, SHAPES, draw, optimizer_classes

pytestmark = pytest.mark.peers

# Ours that torch does not have; all others are compared.
# Muon's iterations are rounded to bfloat16 there; it is compared below.
OURS_ALONE = {"LARS", "Lion", "Muon"}
NAMES = {
    name: {"AdaGrad": "Adagrad"}.get(name, name)
    for name in optimizer_classes()
    if name not in OURS_ALONE
}


SETTINGS = {name: (entry[0], entry[3]) for name, entry in OPTIMIZERS.items()} | {
    "sgd_nesterov": (optim.SGD, {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd_dampening": (
        optim.SGD,
        {"learning_rate": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
    ),
}
KNOWN = {name: entry for name, entry in SETTINGS.items() if entry[0].__name__ in NAMES}


@pytest.fixture(scope="module")
def torch():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # seven times as fast here where other programs run beside
    kind = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of numbers that some optimizers keep, as NAdam
    yield torch
    torch.set_default_dtype(kind)
    torch.set_num_threads(threads)


def in_torch(settings):
    """Our settings by their names in torch."""
    return {"lr" if name == "learning_rate" else name: v for name, v in settings.items()}


def pairs(torch, shapes, dtype=np.float64):
    starts = [draw(np.random.default_rng(k), s, dtype) for k, s in enumerate(shapes)]
    tensors = [torch.tensor(start, requires_grad=True) for start in starts]
    return [Variable(start, requires_grad=True) for start in starts], tensors


def give(torch, params, tensors, rng, skip=()):
    for k, (p, q) in enumerate(zip(params, tensors, strict=True)):
        g = draw(rng, p.shape, p.dtype)
        p.grad = None if k in skip else g
        q.grad = None if k in skip else torch.tensor(g)


def same(params, tensors, tolerance=1e-12):
    for p, q in zip(params, tensors, strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("case", KNOWN)
def test_a_hundred_steps_equal_those_of_torch(torch, case, dtype):
    make, settings = KNOWN[case]
    if make is optim.Adafactor and dtype == "complex128":
        pytest.skip("neither takes complex parameters")
    # There Adafactor divides by the number of elements.
    shapes = [s for s in SHAPES["mixed"] if 0 not in s or make is not optim.Adafactor]
    params, tensors = pairs(torch, shapes, dtype)
    ours = make(params, **settings)
    theirs = getattr(torch.optim, NAMES[make.__name__])(tensors, **in_torch(settings))
    rng = np.random.default_rng(1)
    for step in range(100):
        skip = {0, 2} if step in (0, 30) else ()
        give(torch, params, tensors, rng, skip)
        ours.step(allow_missing=bool(skip))
        theirs.step()
    same(params, tensors)


@pytest.mark.parametrize("case", KNOWN)
def test_groups_with_rates_of_their_own_equal_those_of_torch(torch, case):
    make, settings = KNOWN[case]
    params, tensors = pairs(torch, SHAPES["small"])
    ours = make(
        [
            {"params": params[:1], "learning_rate": 0.05, "weight_decay": 0.2},
            {"params": params[1:]},
        ],
        **settings,
    )
    theirs = getattr(torch.optim, NAMES[make.__name__])(
        [{"params": tensors[:1], "lr": 0.05, "weight_decay": 0.2}, {"params": tensors[1:]}],
        **in_torch(settings),
    )
    rng = np.random.default_rng(1)
    for step in range(100):
        if step == 50:
            ours.groups[1].learning_rate = theirs.param_groups[1]["lr"] = 0.005
        give(torch, params, tensors, rng)
        ours.step()
        theirs.step()
    same(params, tensors)


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_those_of_torch(torch, name):
    params, tensors = pairs(torch, [(2,)])
    extra = {"learning_rate": 0.1} if name == "SGD" else {}
    ours = getattr(optim, name)(params, **extra)
    theirs = getattr(torch.optim, NAMES[name])(tensors, **in_torch(extra))
    settings = ours.settings()
    assert settings.pop("lazy", False) is False  # there it is SparseAdam
    defaults = {n: v for n, v in theirs.defaults.items() if n in in_torch(settings)}
    assert in_torch(settings) == defaults


@pytest.mark.parametrize("case", ["muon", "muon_settings"])
def test_steps_of_muon_equal_those_of_torch_in_double_precision(torch, case, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    make, settings = SETTINGS[case]
    params, tensors = pairs(torch, [(5, 3), (3, 5), (4, 4), (1, 6)])
    ours, theirs = make(params, **settings), torch.optim.Muon(tensors, **in_torch(settings))
    assert in_torch(make(params).settings()) == torch.optim.Muon(tensors).defaults
    rng = np.random.default_rng(1)
    for _ in range(100):
        give(torch, params, tensors, rng)
        ours.step()
        theirs.step()
    same(params, tensors)


# ------------------------------------------------------------------ sparse rows

SPARSE = {
    "SGD": ("SGD", {"learning_rate": 0.1}),
    "AdaGrad": ("Adagrad", {"learning_rate": 0.1, "lr_decay": 0.01}),
    # SparseAdam adds eps before it corrects the average of squares; so it must not matter.
    "Adam": ("SparseAdam", {"learning_rate": 0.01, "eps": 1e-300}),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SPARSE)
def test_updates_by_rows_equal_those_of_sparse_tensors_of_torch(torch, name, compiled):
    theirs, settings = SPARSE[name]
    start = np.random.default_rng(3).normal(size=(40, 3))
    layer = torch.nn.Embedding(40, 3, padding_idx=7, sparse=True, _weight=torch.tensor(start))
    optimizer = getattr(torch.optim, theirs)(list(layer.parameters()), **in_torch(settings))
    table = Variable(start, requires_grad=True, sparse_grad=True)
    lazy = {"lazy": True} if name == "Adam" else {}
    ours = getattr(optim, name)([table], **settings, **lazy)

    def step(ids, wanted):
        ours.zero_grad()
        with od.GradientTape() as tape:
            loss = ((od.nn.embedding(ids, table, padding_index=7) - wanted) ** 2).sum()
        tape.backward(loss)
        ours.step()

    step = od.compile(step) if compiled else step
    rng = np.random.default_rng(4)
    for _ in range(20):
        ids, wanted = rng.integers(0, 40, (2, 6)), rng.normal(size=(2, 6, 3))
        step(ids, wanted)
        optimizer.zero_grad()
        ((layer(torch.tensor(ids)) - torch.tensor(wanted)) ** 2).sum().backward()
        optimizer.step()
        if name == "Adam":
            # Its row of padding has no gradient in torch, and one of zeros here: 0 / eps is 0.
            np.testing.assert_array_equal(table.numpy()[7], start[7])
    np.testing.assert_allclose(table.numpy(), layer.weight.detach().numpy(), rtol=1e-10)


# ------------------------------------------------------------------ schedules

SCHEDULES = {
    "step": ("StepLR", {"step_size": 7, "gamma": 0.5}),
    "milestones": ("MultiStepLR", {"milestones": [3, 10, 10, 40], "gamma": 0.5}),
    "exponential": ("ExponentialLR", {"gamma": 0.97}),
    "cosine": ("CosineAnnealingLR", {"T_max": 12, "eta_min": 0.01}),
    "cosine_to_zero": ("CosineAnnealingLR", {"T_max": 100}),
    "function": ("LambdaLR", {"lr_lambda": lambda t: 0.97**t}),
    "functions": ("LambdaLR", {"lr_lambda": [lambda t: 1 / (1 + t), lambda t: t // 7]}),
    "cycle": ("OneCycleLR", {"max_lr": 0.5, "total_steps": 101, "cycle_momentum": False}),
    "cycles": (
        "OneCycleLR",
        {
            "max_lr": [0.5, 0.2],
            "total_steps": 110,
            "cycle_momentum": True,
            "anneal_strategy": "linear",
            "three_phase": True,
            "div_factor": 3.0,
            "final_div_factor": 7.0,
            "base_momentum": 0.8,
        },
    ),
}


def both_scheduled(torch, *schedules):
    params, tensors = pairs(torch, [(2,), (3,)])
    ours = optim.Adam(
        [{"params": params[0], "learning_rate": 0.3}, {"params": params[1]}], learning_rate=0.1
    )
    theirs = torch.optim.Adam([{"params": tensors[0], "lr": 0.3}, {"params": tensors[1]}], lr=0.1)
    return (
        (ours, [getattr(optim, name)(ours, **options) for name, options in schedules]),
        (
            theirs,
            [getattr(torch.optim.lr_scheduler, n)(theirs, **options) for n, options in schedules],
        ),
        (params, tensors),
    )


def rates(ours, theirs):
    got = [group.learning_rate for group in ours.groups]
    return got, [group["lr"] for group in theirs.param_groups]


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_and_the_steps_under_them_equal_those_of_torch(torch, name):
    (ours, mine), (theirs, other), (params, tensors) = both_scheduled(torch, SCHEDULES[name])
    rng = np.random.default_rng(2)
    for _ in range(100):
        give(torch, params, tensors, rng)
        ours.step()
        theirs.step()
        mine[0].step()
        other[0].step()
        np.testing.assert_allclose(*rates(ours, theirs), rtol=1e-12, atol=1e-18)
    same(params, tensors)


# Not the cosine that ends above 0: it drives torch's rates below 0 when others lower them.
TOGETHER = {"step", "milestones", "exponential", "cosine_to_zero"}


def test_schedules_together_equal_those_of_torch(torch):
    chosen = [entry for name, entry in SCHEDULES.items() if name in TOGETHER]
    (ours, mine), (theirs, other), _ = both_scheduled(torch, *chosen)
    for step in range(60):
        if step == 20:
            ours.groups[0].learning_rate = theirs.param_groups[0]["lr"] = 0.7
        theirs.step()
        for schedule in [*mine, *other]:
            schedule.step()
        np.testing.assert_allclose(*rates(ours, theirs), rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("cooldown", [0, 3])
def test_plateaus_equal_those_of_torch(torch, mode, threshold_mode, cooldown):
    options = {
        "mode": mode,
        "factor": 0.5,
        "patience": 2,
        "threshold": 0.05,
        "threshold_mode": threshold_mode,
        "cooldown": cooldown,
        "min_lr": [1e-3, 1e-4],
        "eps": 1e-4,
    }
    (ours, mine), (theirs, other), _ = both_scheduled(torch, ("ReduceLROnPlateau", options))
    rng = np.random.default_rng(3)
    for step in range(100):
        measurement = float(rng.normal() - 0.05 * step)
        mine[0].step(measurement)
        other[0].step(measurement)
        got, wanted = rates(ours, theirs)
        assert got == wanted


def test_warmup_with_a_start_factor_is_the_linear_schedule_of_torch(torch):
    params, tensors = pairs(torch, [(2,)])
    ours, theirs = optim.SGD(params, 0.5), torch.optim.SGD(tensors, lr=0.5)
    mine = optim.WarmupLR(ours, 6, start_factor=0.25)
    other = torch.optim.lr_scheduler.LinearLR(theirs, start_factor=0.25, total_iters=6)
    for _ in range(10):
        np.testing.assert_allclose(*rates(ours, theirs), rtol=1e-13)
        theirs.step()
        mine.step()
        other.step()


# ------------------------------------------------------------------ clipping


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.3, 1e3])
def test_clipping_equals_that_of_torch(torch, max_norm, norm_type):
    params, tensors = pairs(torch, [(2, 3), (4,), ()])
    give(torch, params, tensors, np.random.default_rng(5))
    each, alone = copy.deepcopy(params), [q.detach().clone().requires_grad_() for q in tensors]
    values = copy.deepcopy(params), [q.detach().clone().requires_grad_() for q in tensors]
    for p, q, e, a, u, v in zip(params, tensors, each, alone, *values, strict=True):
        e.grad, a.grad = p.grad, q.grad.clone()
        u.grad, v.grad = p.grad, q.grad.clone()
    got = optim.clip_grad_global_norm(params, max_norm, norm_type=norm_type)
    wanted = torch.nn.utils.clip_grad_norm_(tensors, max_norm, norm_type=norm_type)
    assert got == pytest.approx(float(wanted), rel=1e-13)
    optim.clip_grad_norm(each, max_norm, norm_type=norm_type)
    for q in alone:
        torch.nn.utils.clip_grad_norm_([q], max_norm, norm_type=norm_type)
    optim.clip_grad_value(values[0], max_norm)
    torch.nn.utils.clip_grad_value_(values[1], max_norm)
    for ours, theirs in ((params, tensors), (each, alone), values):
        for p, q in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(p.grad, q.grad.numpy(), rtol=1e-13)


@pytest.mark.parametrize("unscales", [False, True], ids=["step", "clipped"])
def test_scales_and_steps_of_a_scaler_equal_those_of_torch(torch, unscales):
    (p,), (q,) = pairs(torch, [(4,)], np.float32)
    ours, theirs = optim.Adam([p], 0.01), torch.optim.Adam([q], 0.01)
    scaler = optim.LossScaler(2.0**12, growth=4.0, backoff=0.25, interval=3)
    scaler_in_torch = torch.amp.GradScaler("cpu", 2.0**12, 4.0, 0.25, 3)
    for k in range(40):
        x = draw(np.random.default_rng(k), (4,), np.float32)
        x[k % 4] = {7: np.inf, 8: np.nan, 20: -np.inf}.get(k, x[k % 4])
        with np.errstate(invalid="ignore"), od.GradientTape() as tape:
            loss = scaler.scale((p * x).sum())
        with np.errstate(invalid="ignore"):
            tape.backward(loss)
        scaler_in_torch.scale((q * torch.tensor(x)).sum()).backward()
        if unscales:
            scaler.unscale(ours)
            optim.clip_grad_value([p], 0.5)
            scaler_in_torch.unscale_(theirs)
            torch.nn.utils.clip_grad_value_([q], 0.5)
        scaler.step(ours)
        ours.zero_grad()
        scaler_in_torch.step(theirs)
        scaler_in_torch.update()
        theirs.zero_grad()
        assert scaler.value == scaler_in_torch.get_scale()
        same([p], [q], 1e-6)


def test_master_weights_follow_a_model_of_float32_in_torch(torch):
    p = Variable(np.ones(6, np.float16), requires_grad=True)
    q = torch.ones(6, dtype=torch.float32, requires_grad=True)
    ours, theirs = optim.AdamW([p], 1e-4), torch.optim.AdamW([q], 1e-4)
    for k in range(50):
        p.grad = g = draw(np.random.default_rng(k), (6,), np.float16)
        q.grad = torch.tensor(g.astype(np.float32))
        ours.step()
        theirs.step()
    np.testing.assert_allclose(
        ours.state_dict()["state"][0]["master"], q.detach().numpy(), rtol=1e-6
    )
