"""The formulas of the optimizers, one parameter and one step at a time, in float64."""

import inspect
import math

import numpy as np

from odyssey import Variable, optim


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


def sgd(p, g, s, learning_rate, momentum=0.0):
    s["v"] = momentum * s.get("v", 0.0) + g
    return p - learning_rate * s["v"]


def adam(
    p, g, s, learning_rate=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False
):
    return moments(p, g + weight_decay * p, s, learning_rate, betas, eps, amsgrad)


def adamw(
    p, g, s, learning_rate=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, amsgrad=False
):
    return moments(p - learning_rate * weight_decay * p, g, s, learning_rate, betas, eps, amsgrad)


def moments(p, g, s, learning_rate, betas, eps, amsgrad):
    s["t"] = s.get("t", 0) + 1
    s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g**2
    s["peak"] = np.maximum(s.get("peak", 0.0), s["v"])
    m = s["m"] / (1 - betas[0] ** s["t"])
    v = (s["peak"] if amsgrad else s["v"]) / (1 - betas[1] ** s["t"])
    return p - learning_rate * m / (np.sqrt(v) + eps)


def adagrad(
    p,
    g,
    s,
    learning_rate=1e-2,
    lr_decay=0.0,
    weight_decay=0.0,
    initial_accumulator_value=0.0,
    eps=1e-10,
):
    g = g + weight_decay * p
    rate = learning_rate / (1 + s.get("t", 0) * lr_decay)
    s["t"] = s.get("t", 0) + 1
    s["sum"] = s.get("sum", initial_accumulator_value) + g**2
    return p - rate * g / (np.sqrt(s["sum"]) + eps)


def rmsprop(
    p,
    g,
    s,
    learning_rate=1e-2,
    alpha=0.99,
    eps=1e-8,
    weight_decay=0.0,
    momentum=0.0,
    centered=False,
):
    g = g + weight_decay * p
    s["v"] = alpha * s.get("v", 0.0) + (1 - alpha) * g**2
    s["m"] = alpha * s.get("m", 0.0) + (1 - alpha) * g
    spread = s["v"] - s["m"] ** 2 if centered else s["v"]
    s["b"] = momentum * s.get("b", 0.0) + g / (np.sqrt(spread) + eps)
    return p - learning_rate * s["b"]


def adamax(p, g, s, learning_rate=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    """Kingma and Ba 2015, algorithm 2; eps where PyTorch has it, which the paper leaves out."""
    g = g + weight_decay * p
    s["t"] = s.get("t", 0) + 1
    s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    s["u"] = np.maximum(betas[1] * s.get("u", 0.0), abs(g) + eps)
    return p - learning_rate / (1 - betas[0] ** s["t"]) * s["m"] / s["u"]


def radam(p, g, s, learning_rate=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    """Liu et al. 2020, algorithm 2, with the threshold 5 and eps of PyTorch."""
    g = g + weight_decay * p
    t = s["t"] = s.get("t", 0) + 1
    s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g**2
    m = s["m"] / (1 - betas[0] ** t)
    most = 2 / (1 - betas[1]) - 1
    known = most - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
    if known <= 5:
        return p - learning_rate * m
    r = math.sqrt((known - 4) * (known - 2) * most / ((most - 4) * (most - 2) * known))
    return p - learning_rate * m * r * math.sqrt(1 - betas[1] ** t) / (np.sqrt(s["v"]) + eps)


def adadelta(p, g, s, learning_rate=1.0, rho=0.9, eps=1e-6, weight_decay=0.0):
    """Zeiler 2012, algorithm 1."""
    g = g + weight_decay * p
    s["v"] = rho * s.get("v", 0.0) + (1 - rho) * g**2
    d = np.sqrt(s.get("u", 0.0) + eps) / np.sqrt(s["v"] + eps) * g
    s["u"] = rho * s.get("u", 0.0) + (1 - rho) * d**2
    return p - learning_rate * d


def nadam(
    p,
    g,
    s,
    learning_rate=2e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    momentum_decay=4e-3,
    decoupled_weight_decay=False,
):
    """Dozat 2016, with the momentum schedule of PyTorch."""
    if decoupled_weight_decay:
        p = p - learning_rate * weight_decay * p
    else:
        g = g + weight_decay * p
    t = s["t"] = s.get("t", 0) + 1
    u, after = (betas[0] * (1 - 0.5 * 0.96 ** (k * momentum_decay)) for k in (t, t + 1))
    product = s["product"] = s.get("product", 1.0) * u
    s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g**2
    ahead = after * s["m"] / (1 - product * after) + (1 - u) * g / (1 - product)
    return p - learning_rate * ahead / (np.sqrt(s["v"] / (1 - betas[1] ** t)) + eps)


def adafactor(
    p,
    g,
    s,
    learning_rate=1e-2,
    beta2_decay=-0.8,
    eps=(None, 1e-3),
    d=1.0,
    weight_decay=0.0,
):
    """Shazeer and Stern 2018, algorithms 4 and 5, with the estimates of PyTorch."""
    if not p.size:
        return p
    least = np.finfo(p.dtype).eps if eps[0] is None else eps[0]
    t = s["t"] = s.get("t", 0) + 1
    weight = t**beta2_decay
    size = max(eps[1], np.sqrt(np.mean(p**2))) * min(learning_rate, 1 / math.sqrt(t))
    p = p * (1 - learning_rate * weight_decay)
    v = g**2
    if p.ndim > 1:
        s["r"] = (1 - weight) * s.get("r", 0.0) + weight * v.mean(-1, keepdims=True)
        s["c"] = (1 - weight) * s.get("c", 0.0) + weight * v.mean(-2, keepdims=True)
        v = s["r"] @ s["c"] / np.maximum(s["r"].mean(-2, keepdims=True), least)
    else:
        v = s["v"] = (1 - weight) * s.get("v", 0.0) + weight * v
    u = g / np.sqrt(np.maximum(v, least**2))
    return p - size * u / max(1.0, np.sqrt(np.mean(u**2)) / d)


def muon(
    p,
    g,
    s,
    learning_rate=1e-3,
    weight_decay=0.1,
    momentum=0.95,
    nesterov=True,
    ns_coefficients=(3.4445, -4.775, 2.0315),
    eps=1e-7,
    ns_steps=5,
    adjust_lr_fn=None,
):
    """Jordan et al. 2024: the polynomial of the singular values, which the iterations compute."""
    s["m"] = momentum * s.get("m", 0.0) + (1 - momentum) * g
    x = momentum * s["m"] + (1 - momentum) * g if nesterov else s["m"]
    left, values, right = np.linalg.svd(x, full_matrices=False)
    values = values / max(np.sqrt(np.sum(values**2)), eps)
    a, b, c = ns_coefficients
    for _ in range(ns_steps):
        values = a * values + b * values**3 + c * values**5
    rows, columns = p.shape
    factor = math.sqrt(max(1, rows / columns))
    if adjust_lr_fn == "match_rms_adamw":
        factor = 0.2 * math.sqrt(max(rows, columns))
    p = p * (1 - learning_rate * weight_decay)
    return p - learning_rate * factor * (left * values) @ right


def lion(p, g, s, learning_rate=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
    """Chen et al. 2023, program 1 (lines of its Python)."""
    m = s.get("m", 0.0)
    direction = np.sign(m * betas[0] + g * (1 - betas[0])) + p * weight_decay
    s["m"] = m * betas[1] + g * (1 - betas[1])
    return p - direction * learning_rate


def lars(p, g, s, learning_rate, momentum=0.9, weight_decay=0.0, trust_coefficient=1e-3):
    """You et al. 2017, algorithm 1: the local rate, the velocity, the weight."""
    length_p = math.sqrt(float(np.vdot(p, p).real))
    length_g = math.sqrt(float(np.vdot(g, g).real))
    local = 1.0
    if length_p and length_g:
        local = trust_coefficient * length_p / (length_g + weight_decay * length_p)
    s["v"] = momentum * s.get("v", 0.0) + learning_rate * local * (g + weight_decay * p)
    return p - s["v"]


def optimizer_classes():
    """Every optimizer by its public name."""
    found = {name: getattr(optim, name) for name in optim.__all__}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, type) and issubclass(value, optim.Optimizer)
        if value is not optim.Optimizer
    }


def settings_of(kind):
    """The settings of an optimizer by name, each with its default."""
    parameters = list(inspect.signature(kind).parameters.values())[1:]
    return {p.name: p.default for p in parameters}


# By name: the class, the pure rule's factory, the formula, the settings.
OPTIMIZERS = {
    "sgd": (optim.SGD, optim.sgd, sgd, {"learning_rate": 0.1, "momentum": 0.9}),
    "adam": (optim.Adam, optim.adam, adam, {}),
    "adam_decay": (optim.Adam, optim.adam, adam, {"learning_rate": 0.01, "weight_decay": 0.1}),
    "adam_settings": (
        optim.Adam,
        optim.adam,
        adam,
        {"learning_rate": 0.1, "betas": (0.5, 0.8), "eps": 1e-3},
    ),
    "amsgrad": (
        optim.Adam,
        optim.adam,
        adam,
        {"learning_rate": 0.01, "betas": (0.9, 0.9), "amsgrad": True, "weight_decay": 0.1},
    ),
    "adamw": (optim.AdamW, optim.adamw, adamw, {"learning_rate": 0.01}),
    "adamw_amsgrad": (
        optim.AdamW,
        optim.adamw,
        adamw,
        {"learning_rate": 0.1, "weight_decay": 0.5, "amsgrad": True},
    ),
    "adamw_no_decay": (optim.AdamW, optim.adamw, adamw, {"weight_decay": 0.0}),
    "adagrad": (optim.AdaGrad, optim.adagrad, adagrad, {}),
    "adagrad_settings": (
        optim.AdaGrad,
        optim.adagrad,
        adagrad,
        {
            "learning_rate": 0.1,
            "lr_decay": 0.1,
            "weight_decay": 0.1,
            "initial_accumulator_value": 0.5,
            "eps": 1e-5,
        },
    ),
    "rmsprop": (optim.RMSprop, optim.rmsprop, rmsprop, {}),
    "rmsprop_momentum": (
        optim.RMSprop,
        optim.rmsprop,
        rmsprop,
        {"alpha": 0.9, "momentum": 0.9, "weight_decay": 0.1, "eps": 1e-4},
    ),
    "rmsprop_centered": (
        optim.RMSprop,
        optim.rmsprop,
        rmsprop,
        {"alpha": 0.9, "centered": True, "momentum": 0.5},
    ),
    "adamax": (optim.Adamax, optim.adamax, adamax, {}),
    "adamax_settings": (
        optim.Adamax,
        optim.adamax,
        adamax,
        {"learning_rate": 0.1, "betas": (0.5, 0.8), "eps": 1e-3, "weight_decay": 0.1},
    ),
    "radam": (optim.RAdam, optim.radam, radam, {}),
    "radam_settings": (
        optim.RAdam,
        optim.radam,
        radam,
        {"learning_rate": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
    ),
    "radam_untrusted": (optim.RAdam, optim.radam, radam, {"betas": (0.9, 0.6)}),
    "radam_barely_trusted": (optim.RAdam, optim.radam, radam, {"betas": (0.9, 0.7)}),
    "adadelta": (optim.Adadelta, optim.adadelta, adadelta, {}),
    "adadelta_settings": (
        optim.Adadelta,
        optim.adadelta,
        adadelta,
        {"learning_rate": 0.3, "rho": 0.5, "eps": 1e-3, "weight_decay": 0.1},
    ),
    "nadam": (optim.NAdam, optim.nadam, nadam, {"learning_rate": 0.01}),
    "nadam_settings": (
        optim.NAdam,
        optim.nadam,
        nadam,
        {
            "learning_rate": 0.1,
            "betas": (0.5, 0.8),
            "eps": 1e-3,
            "weight_decay": 0.1,
            "momentum_decay": 0.5,
        },
    ),
    "nadam_decoupled": (
        optim.NAdam,
        optim.nadam,
        nadam,
        {"weight_decay": 0.1, "decoupled_weight_decay": True},
    ),
    "adafactor": (optim.Adafactor, optim.adafactor, adafactor, {}),
    "adafactor_settings": (
        optim.Adafactor,
        optim.adafactor,
        adafactor,
        {
            "learning_rate": 0.3,
            "beta2_decay": -0.5,
            "eps": (1e-2, 0.1),
            "d": 2.0,
            "weight_decay": 0.1,
        },
    ),
    "muon": (optim.Muon, optim.muon, muon, {"learning_rate": 0.02}),
    "muon_settings": (
        optim.Muon,
        optim.muon,
        muon,
        {
            "learning_rate": 0.1,
            "weight_decay": 0.0,
            "momentum": 0.5,
            "nesterov": False,
            "ns_coefficients": (2.0, -1.5, 0.5),
            "ns_steps": 3,
            "adjust_lr_fn": "match_rms_adamw",
        },
    ),
    "lion": (optim.Lion, optim.lion, lion, {"learning_rate": 0.01}),
    "lion_decay": (
        optim.Lion,
        optim.lion,
        lion,
        {"learning_rate": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.1},
    ),
    "lars": (optim.LARS, optim.lars, lars, {"learning_rate": 1.0}),
    "lars_decay": (
        optim.LARS,
        optim.lars,
        lars,
        {"learning_rate": 2.0, "momentum": 0.5, "weight_decay": 0.1, "trust_coefficient": 0.02},
    ),
}
SHAPES = {
    "small": [(3,), (), (2, 4)],
    "large": [(20_000,)],
    "mixed": [(5,), (130, 130), (), (0, 3), (2, 2)],
}


class Reference:
    """One parameter that follows a formula."""

    def __init__(self, p, formula, settings):
        self.p = np.array(p)
        self.formula, self.settings, self.state = formula, settings, {}

    def step(self, g):
        self.p = self.formula(self.p, g, self.state, **self.settings)


def shapes_for(make, shapes):
    """The shapes that an optimizer takes, made of any: of Muon matrices that have elements."""
    if make is not optim.Muon:
        return shapes
    pairs = [s if len(s) == 2 else (math.prod(s), 1) for s in shapes]
    pairs = [(40, 30) if s == (130, 130) else s for s in pairs]  # the formula needs an SVD
    return [(max(rows, 1), max(columns, 1)) for rows, columns in pairs]


def problem(case, shapes, dtype=np.float64):
    """Parameters, their optimizer and their references, from one start."""
    make, _, formula, settings = OPTIMIZERS[case]
    shapes = shapes_for(make, shapes)
    starts = [draw(np.random.default_rng(7 + k), s, dtype) for k, s in enumerate(shapes)]
    params = [Variable(start, True, name=f"p{k}") for k, start in enumerate(starts)]
    references = [Reference(start, formula, settings) for start in starts]
    return params, make(params, **settings), references


def draw(rng, shape, dtype=np.float64):
    values = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.normal(size=shape)
    return np.asarray(values, dtype)


def same(params, references, tolerance=1e-12):
    for p, reference in zip(params, references, strict=True):
        np.testing.assert_allclose(p.numpy(), reference.p, rtol=tolerance, atol=tolerance)


def step(params, optimizer, rng, references=None, skip=()):
    """Give every parameter but those to skip a random gradient, and step."""
    for k, p in enumerate(params):
        p.grad = None
        if k in skip:
            continue
        g = draw(rng, p.shape, p.dtype)
        p.grad = g
        if references is not None:
            references[k].step(g)
    optimizer.step(allow_missing=bool(skip))
