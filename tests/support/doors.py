"""Doors to ops, losses and optimizers: for each callable, how a plausible call is made."""

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops, optim
from odyssey.ops import OPS
from support.hostile import hostile, mixed
from support.optimizers import optimizer_classes, settings_of


def swept(call):
    """``call`` under a tape, and a sweep of what comes out, where it is a Variable."""

    def recorded(*args, **named):
        with GradientTape() as tape:
            out = call(*args, **named)
        try:
            for y in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(y, Variable) and y.tape is tape and y.size < 1000:
                    sweep(tape, y, args)
        finally:
            tape.clear()
        return out

    return recorded


def sweep(tape, y, args):
    """Backward, backward and recorded, and forward."""
    ones = np.ones(y.shape, y.dtype)
    tape.backward(y, ones, retain=True)
    sources = [v for v in args if isinstance(v, Variable) and v.requires_grad and v.is_leaf]
    if sources and y.size < 10:
        tape.jvp(y, sources, [np.ones(v.shape, v.dtype) for v in sources], unused="zero")
        tape.gradient(y, sources, ones, unused="zero", create_graph=True)


# ------------------------------------------------------------------ ops


def of_row(row):
    def door(rng):
        sample = row.samples[rng.integers(len(row.samples))]
        args = sample.arrays(rng)
        chance = rng.random()
        if chance < 0.4:
            args = [
                Variable(a, a.dtype.kind in "fc") if isinstance(a, np.ndarray) else a for a in args
            ]
        args, named = mixed(rng, args, sample.options, row.options if rng.random() < 0.5 else ())
        return (swept(row.call) if chance < 0.6 else row.call), args, named, False

    return door


def of_composite(function):
    import inspect

    parameters = list(inspect.signature(function).parameters.values())
    arrays = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
              and p.default is p.empty]  # fmt: skip
    options = [p.name for p in parameters if p.default is not p.empty and p.name != "tape"]

    def door(rng):
        shapes = [(2, 3), (3,), (2, 2), (3, 3), ()]
        shape = shapes[rng.integers(len(shapes))]
        number, pair = int(rng.integers(-3, 3)), [np.ones(2), np.ones(2)]
        values = [rng.normal(size=shape), number, (0, 1), pair]
        args = [values[0] if k == 0 else values[rng.integers(4)] for k in range(len(arrays))]
        if rng.random() < 0.3:
            args = [values[3], *args[1:]]
        if rng.random() < 0.4:
            args = [Variable(a, True) if isinstance(a, np.ndarray) else a for a in args]
        args, named = mixed(rng, args, {}, options if rng.random() < 0.5 else ())
        return (swept(function) if rng.random() < 0.5 else function), args, named, False

    return door


def of_backward(name):
    row = OPS[name]
    samples = [s for s in row.samples if len(s.operands) == len(row.arrays)]

    def door(rng):
        sample = samples[rng.integers(len(samples))]
        arrays = sample.arrays(rng)
        values = dict(zip(row.arrays, arrays, strict=True)) | sample.options
        try:
            made = row.call(*arrays, **sample.options)
            made = made if row.pack_results else (made,)
        except Exception:
            made = [np.ones(2)] * len(row.results)
        values |= {name: np.asarray(one) for name, one in zip(row.results, made, strict=True)}
        given = [np.ones(values[name].shape) for name in row.results]
        named = {}
        for asked in row.requested_names:
            if asked in values:
                named[asked] = values[asked]
        if rng.random() < 0.5:
            named |= {n: v for n, v in values.items() if n in row.arrays}
        args, named = mixed(rng, given, named, row.options if rng.random() < 0.3 else ())
        return od.backward.TABLE[name], args, named, False

    return door


# ------------------------------------------------------------------ functions of arrays


def setting(thing, *args):
    """``setattr`` of one of our own things: what is hostile stays as it is."""
    ours = isinstance(thing, (Variable, optim.Optimizer))
    setattr(thing if ours else Variable(1.0), *args)


def simple(function, *args, writes=False, extra=(), sweep=False, **named):
    """A door whose plausible arguments are made by calling ``args`` and ``named`` with the rng."""

    def door(rng):
        given = [a(rng) if callable(a) else a for a in args]
        by_name = {n: a(rng) if callable(a) else a for n, a in named.items()}
        given, by_name = mixed(rng, given, by_name, extra)
        call = function
        if sweep and rng.random() < 0.5:
            call = swept(function)
        return call, given, by_name, writes

    return door


def array(rng):
    return rng.uniform(0.1, 0.9, (2, 3))


def drawing(seed):
    """A generator, whose seed is a stranger's."""
    return ops.random_uniform((2,), rng=od.Generator(seed))


def either(rng):
    return Variable(array(rng), True) if rng.random() < 0.5 else array(rng)


def classes(rng):
    return rng.integers(0, 3, 2)


RNG = np.random.default_rng(0)


def leaf(rng):
    return Variable(rng.normal(size=3), True, name="w")


def stepped(rng):
    w = leaf(rng)
    w.grad = rng.normal(size=3)
    return w


def params(rng):
    chance = rng.random()
    if chance < 0.4:
        return [stepped(rng), stepped(rng)]
    if chance < 0.7:
        return {"w": stepped(rng), "b": [stepped(rng)]}
    if chance < 0.8:
        return stepped(rng)
    entry = {"params": [stepped(rng)], "learning_rate": 0.1}
    if rng.random() < 0.5:
        entry[str(rng.choice(["learning_rate", "params", "momentum", "eps"]))] = hostile(rng)
    return [entry, {"params": stepped(rng)}]


LOSS_OPTIONS = {
    "reduction": "mean", "weights": None, "label_smoothing": 0.1, "ignore_index": None, "axis": -1,
    "from_logits": True, "delta": 1.0, "beta": 1.0, "gamma": 2.0, "alpha": 0.25, "loss": "mse",
    "log_target": False,
}  # fmt: skip


def loss_doors():
    import inspect

    doors = {}
    for name in losses.__all__:
        function = getattr(losses, name)
        if isinstance(function, type):
            continue
        names = list(inspect.signature(function).parameters)
        options = [n for n in names[2:] if n in LOSS_OPTIONS] or ["reduction", "weights"]
        by_class = name in ("cross_entropy", "nll", "compute_ce_gradient", "ce_loss_and_grad")
        target = classes if by_class else array
        doors[f"losses.{name}"] = simple(function, either, target, extra=options, sweep=True)
    return doors


# ------------------------------------------------------------------ optimizers

OPTIMIZERS = {name: list(settings_of(kind)) for name, kind in optimizer_classes().items()}


def optimizer(rng):
    kind = str(rng.choice([kind for kind in OPTIMIZERS if kind != "Muon"]))  # of matrices alone
    return getattr(optim, kind)([stepped(rng), stepped(rng)], learning_rate=0.1)


def trained(kind):
    def call(*args, **named):
        made = getattr(optim, kind)(*args, **named)
        made.step(allow_missing=True)
        made.load_state_dict(made.state_dict())
        repr(made.groups)

    return call


def ruled(name):
    def call(params, *args, **named):
        rule = getattr(optim, name)(*args, **named)
        rule.update(params, rule.init(params), params)

    return call


def user_square(x):
    return ops.sum(ops.multiply(x["w"] if isinstance(x, dict) else x, 2.0))


def optim_doors():
    doors = {"Generator": simple(drawing, 3)}
    for kind, settings in OPTIMIZERS.items():
        doors[f"optim.{kind}"] = simple(
            trained(kind), params, learning_rate=0.1, extra=settings, writes=True
        )
        if hasattr(optim, kind.lower()):
            doors[f"optim.{kind.lower()}"] = simple(
                ruled(kind.lower()), array, learning_rate=0.1, extra=settings
            )
    rate = {"writes": True}
    doors["optimizer.learning_rate="] = simple(
        lambda o, x: [setting(o, n, x) for n in getattr(o, "_names", ["name"])], optimizer,
        0.1, **rate,
    )  # fmt: skip
    doors["group.change"] = simple(
        lambda **s: optimizer(RNG).groups[0].change(**s), extra=["learning_rate", "momentum", "x"],
        writes=True,
    )  # fmt: skip
    doors["optimizer.step"] = simple(
        lambda **n: optimizer(RNG).step(**n), extra=["allow_missing", "where"], writes=True
    )
    doors["optim.rule_of"] = simple(optim.rule_of, lambda rng: optim.SGD)
    doors["optimizer.rule"] = simple(lambda g: optim.SGD([leaf(RNG)], 0.1).rule(g), 0)
    doors["optimizer.load_state_dict"] = spoiled_state
    doors["schedule.load_state_dict"] = spoiled_schedule
    doors |= schedule_doors()
    for name in ("clip_grad_value", "clip_grad_norm", "clip_grad_global_norm"):
        extra = ["norm_type", "error_if_nonfinite"] if "norm" in name else []
        doors[f"optim.{name}"] = simple(getattr(optim, name), params, 1.0, extra=extra, writes=True)
    doors["optim.EMA"] = simple(lambda p, d: optim.EMA(p, d).update(), params, 0.9)
    doors["optim.LBFGS"] = simple(optim.LBFGS, params, 0.1, extra=["max_iter", "line_search_fn"])
    doors["optim.LossScaler"] = simple(optim.LossScaler, 2.0**15, 2.0, 0.5, 2000)
    doors["scaler.scale"] = simple(lambda x: optim.LossScaler().scale(x), leaf)
    doors["scaler.unscale"] = simple(lambda o: optim.LossScaler().unscale(o), optimizer)
    doors["scaler.step"] = simple(
        lambda o, **n: optim.LossScaler().step(o, **n), optimizer, extra=["allow_missing"],
        writes=True,
    )  # fmt: skip
    doors["scaler.load_state_dict"] = simple(
        lambda s: optim.LossScaler().load_state_dict(s), lambda rng: optim.LossScaler().state_dict()
    )
    doors["batches"] = simple(
        lambda a, n, **o: next(od.batches(a, n, **o)),
        lambda rng: {"x": rng.normal(size=(5, 2))},
        2,
        extra=["shuffle", "drop_last"],
    )
    doors["summary"] = simple(od.summary, params)
    doors["SparseRows"] = simple(
        lambda *given: np.asarray(od.SparseRows(*given)),
        lambda rng: rng.integers(0, 4, 3),
        lambda rng: rng.normal(size=(3, 2)),
        (4, 2),
    )
    doors["optim.scipy_objective"] = simple(
        lambda fn, p, x: optim.scipy_objective(fn, p).hessp(x, x), lambda rng: user_square,
        lambda rng: {"w": rng.normal(size=3)}, lambda rng: rng.normal(size=3),
    )  # fmt: skip
    return doors


def _spoil(rng, saved):
    """A state with one entry, at any depth, made hostile, or left out."""
    node = saved
    while True:
        if isinstance(node, dict) and node:
            key = list(node)[rng.integers(len(node))]
        elif isinstance(node, list) and node:
            key = int(rng.integers(len(node)))
        else:
            return hostile(rng)
        if rng.random() < 0.4 or not isinstance(node[key], (dict, list)):
            if rng.random() < 0.2:
                del node[key]
            else:
                node[key] = hostile(rng)
            return saved
        node = node[key]


def spoiled_state(rng):
    made = optimizer(rng)
    made.step()
    saved = _spoil(rng, made.state_dict())

    def call(saved):
        made.load_state_dict(saved)
        made.step()

    return call, [saved], {}, True


SCHEDULES = {
    "StepLR": {"step_size": 2, "gamma": 0.5},
    "MultiStepLR": {"milestones": [1, 2], "gamma": 0.5},
    "ExponentialLR": {"gamma": 0.5},
    "CosineAnnealingLR": {"T_max": 3, "eta_min": 0.0},
    "LambdaLR": {"lr_lambda": lambda rng: lambda steps: 0.5**steps},
    "OneCycleLR": {"max_lr": 0.2, "total_steps": 4},
    "WarmupLR": {"warmup_steps": 2, "start_factor": 0.1},
    "WarmupCosineLR": {"warmup_steps": 2, "total_steps": 4, "eta_min": 0.0, "start_factor": 0.1},
    "ReduceLROnPlateau": {
        "mode": "min", "factor": 0.5, "patience": 0, "threshold": 1e-4, "threshold_mode": "rel",
        "cooldown": 0, "min_lr": 0.0, "eps": 1e-8,
    },
}  # fmt: skip


def scheduled(kind):
    def call(*args, **named):
        measurement = named.pop("measurement", 1.0)
        made = getattr(optim, kind)(*args, **named)
        for _ in range(3):
            made.step(*([measurement] if kind == "ReduceLROnPlateau" else []))
        made.load_state_dict(made.state_dict())

    return call


def schedule_doors():
    return {
        f"optim.{kind}": simple(
            scheduled(kind), optimizer, writes=True, **settings,
            **({"measurement": 1.0} if kind == "ReduceLROnPlateau" else {}),
        )
        for kind, settings in SCHEDULES.items()
    }  # fmt: skip


def spoiled_schedule(rng):
    kind = str(rng.choice(list(SCHEDULES)))
    settings = {n: v(rng) if callable(v) else v for n, v in SCHEDULES[kind].items()}
    made = getattr(optim, kind)(optimizer(rng), **settings)
    saved = _spoil(rng, made.state_dict())

    def call(saved):
        made.load_state_dict(saved)
        for _ in range(2):
            made.step(*([1.0] if kind == "ReduceLROnPlateau" else []))

    return call, [saved], {}, True
