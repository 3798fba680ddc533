"""Precision: digits trained in float32, bfloat16 and float16, with scaled losses and without.

Parameters, activations and gradients are stored in the format; arithmetic is float32's, and the
optimizer keeps float32 masters. A seed is a config, so that runs of equal seeds are compared: they
start from the same numbers and see the same batches. Losses are of all images trained with, of the
trained parameters in float64.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from study import datasets
from study.contract import Case, Estimate, Hypothesis, Verdict
from study.peaks import peak_bytes
from study.predicates import all_of, at_least, at_most, between
from study.records import MissingRecords, Records, estimate_of

NAME = "precision"
QUESTION = "What does training in half precision save, and does it end where float32 does?"
SYSTEMS = ("taped", "compiled")
FRESH = False
ROUNDS = 1  # seeds are configs, and a seed repeats exactly but for its time
QUICK_ROUNDS = 1

SIZES = (64, 128, 64, 10)
BATCH, RATE, MOMENTUM = 32, 0.02, 0.9
SEEDS = range(5)
STEPS, QUICK_STEPS = 2000, 100
WARM_STEPS = 10
"""Steps that are not timed: a compiled one is made in them."""

POINTS = (0, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Steps after which the loss is computed."""

FORMATS = (
    ("float32", False),
    ("bfloat16", False),
    ("bfloat16", True),
    ("float16", False),
    ("float16", True),
)
"""Formats, and whether the loss is scaled."""


def configs(quick: bool) -> list[dict[str, Any]]:
    """Formats, with scaling and without, and seeds."""
    formats = [FORMATS[0], FORMATS[-1]] if quick else FORMATS
    return [
        {
            "format": name,
            "scaled": scaled,
            "seed": seed,
            "steps": QUICK_STEPS if quick else STEPS,
        }
        for name, scaled in formats
        for seed in (SEEDS[:1] if quick else SEEDS)
    ]


def TOLERANCE(system: str, config: dict[str, Any]) -> float:
    """Return the largest relative error of a first loss and gradient: 20 roundings."""
    return 20 * {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[config["format"]]


def label(config: dict[str, Any]) -> str:
    """Return how a format is written."""
    return config["format"] + (", scaled" if config["scaled"] else "")


# ------------------------------------------------------------------ training


def _parameters(seed: int) -> list[Any]:
    rng = np.random.RandomState(seed)
    found: list[Any] = []
    for n, m in itertools.pairwise(SIZES):
        found += [rng.normal(0.0, np.sqrt(2.0 / n), (n, m)), np.zeros(m)]
    return [a.astype(np.float32) for a in found]


def _batches(seed: int, data: datasets.Split) -> Iterator[tuple[Any, Any]]:
    rng = np.random.RandomState(1000 + seed)
    while True:
        order = rng.permutation(len(data.x))
        for rows in np.split(order[: len(order) // BATCH * BATCH], len(order) // BATCH):
            yield data.x[rows], data.y[rows]


def _exact_loss(values: list[Any], x: Any, y: Any) -> tuple[float, Any]:
    """Return the loss and the gradient of the last bias, in float64."""
    h = x.astype(np.float64)
    for k in range(0, len(values), 2):
        h = h @ values[k].astype(np.float64) + values[k + 1].astype(np.float64)
        if k + 2 < len(values):
            h = np.maximum(h, 0)
    h = h - h.max(axis=1, keepdims=True)
    p = np.exp(h)
    total = p.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = float(np.mean(np.log(total[:, 0]) - h[rows, y]))
    p /= total
    p[rows, y] -= 1
    return loss, p.mean(axis=0)


class _Network(NamedTuple):
    """A network in training."""

    step: Callable[[Any, Any], Any]
    sweep: Callable[[Any, Any], tuple[Any, Any]]
    values: Callable[[], list[Any]]
    end_epoch: Callable[[], None]
    scale: Callable[[], float]
    held_bytes: Callable[[Any, Any], float]


def _network(system: str, config: dict[str, Any], epochs: int) -> _Network:
    import odyssey as od
    from odyssey import ops

    dtype = config["format"]
    leaves = [od.Variable(v, requires_grad=True, dtype=dtype) for v in _parameters(config["seed"])]
    layers = list(zip(leaves[::2], leaves[1::2], strict=True))
    optimizer = od.optim.SGD(leaves, RATE, momentum=MOMENTUM)
    schedule = od.optim.CosineAnnealingLR(optimizer, epochs)
    scaler = od.optim.LossScaler() if config["scaled"] else None

    def loss_of(x: Any, y: Any) -> Any:
        h = ops.astype(x, dtype)
        for w, b in layers[:-1]:
            h = ops.relu(h @ w + b)
        w, b = layers[-1]
        return od.losses.cross_entropy(ops.astype(h @ w + b, "float32"), y)

    def step(x: Any, y: Any) -> None:
        with od.GradientTape() as tape:
            loss = loss_of(x, y)
            scaled = loss if scaler is None else scaler.scale(loss)
        tape.backward(scaled)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
        optimizer.zero_grad()

    def sweep(x: Any, y: Any) -> tuple[Any, Any]:
        with od.GradientTape() as tape:
            loss = loss_of(x, y)
        return loss, tape.gradient(loss, leaves)[-1]

    if system == "compiled":
        step, sweep = od.compile(step), od.compile(sweep)

    def held_bytes(x: Any, y: Any) -> float:
        if system == "compiled":
            sweep.precompile(x, y)
            return float(sweep.estimate_memory_requirements(x, y)["cpu"])
        with od.GradientTape() as tape:
            loss_of(x, y)
        return float(tape.memory().total)

    return _Network(
        step,
        sweep,
        lambda: [v.numpy() for v in leaves],
        schedule.step,
        lambda: 0.0 if scaler is None else scaler.value,
        held_bytes,
    )


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a case whose sample trains a network from its start."""
    data = datasets.digits()
    per_epoch = len(data.x) // BATCH
    epochs = -(-config["steps"] // per_epoch)

    def answer() -> dict[str, Any]:
        network = _network(system, config, epochs)
        x, y = next(_batches(config["seed"], data))
        for _ in range(2):  # a compiled function runs as it was written at first
            loss, slope = network.sweep(x, y)
        return {name: np.asarray(v, np.float64) for name, v in (("loss", loss), ("g", slope))}

    def counts() -> dict[str, float]:
        network = _network(system, config, epochs)
        return {"held_bytes": network.held_bytes(data.x, data.y)}

    def sample() -> dict[str, float]:
        network = _network(system, config, epochs)
        metrics: dict[str, float] = {}
        skipped, scale, wall, cpu = 0, network.scale(), 0.0, 0.0
        batches = _batches(config["seed"], data)
        for done in range(config["steps"] + 1):
            if done in POINTS or done == config["steps"]:
                metrics[f"loss_at_{done}"], _ = _exact_loss(network.values(), data.x, data.y)
            if done == config["steps"]:
                break
            x, y = next(batches)
            begin = time.perf_counter(), time.process_time()
            network.step(x, y)
            if done >= WARM_STEPS:
                wall += time.perf_counter() - begin[0]
                cpu += time.process_time() - begin[1]
            now = network.scale()
            skipped, scale = skipped + (now < scale), now
            if (done + 1) % per_epoch == 0:
                network.end_epoch()
        timed = config["steps"] - WARM_STEPS
        if system == "taped":  # the buffers of a program stay, and their bytes are counted
            network.sweep(data.x, data.y)
            metrics["peak_bytes"] = peak_bytes(lambda: network.sweep(data.x, data.y))
        return metrics | {
            "final_loss": metrics[f"loss_at_{config['steps']}"],
            "skipped_steps": float(skipped),
            "seconds": wall / timed,
            "cpu_seconds": cpu / timed,
        }

    return Case(answer=answer, counts=counts, sample=sample)


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return the loss and the gradient of the last bias on the first batch, in float64."""
    x, y = next(_batches(config["seed"], datasets.digits()))
    loss, slope = _exact_loss(_parameters(config["seed"]), x, y)
    return {"loss": np.asarray(loss), "g": slope}


# ------------------------------------------------------------------ hypotheses

NEAR = 0.05
"""Relative difference of a final loss from float32's that counts as none."""

HELD = 0.6
"""Share of float32's saved activations that a half may hold."""

MOST_TIME = 1.3


def _by_seeds(
    records: Records, system: str, metric: str, name: str, scaled: bool, base: bool = True
) -> Estimate:
    """Return a metric of a format over seeds; as a ratio to float32 of equal seeds, or itself."""
    values = []
    for seed in records.axis("seed", system=system, format=name, scaled=scaled):
        one = records.estimate(system, metric, format=name, scaled=scaled, seed=seed).median
        if base:
            one /= records.estimate(
                system, metric, format="float32", scaled=False, seed=seed
            ).median
        values.append(one)
    if not values:
        raise MissingRecords(f"{system}: {name} was not measured")
    return estimate_of(values)


def _final_losses(records: Records, name: str, scaled: bool) -> dict[str, Estimate]:
    systems = records.systems(format=name, scaled=scaled)
    if not systems:
        raise MissingRecords(f"{name} was not measured")
    return {s: _by_seeds(records, s, "final_loss", name, scaled) for s in systems}


def _ends_where_float32_does(name: str, scaled: bool) -> Callable[[Records], Verdict]:
    def judge(records: Records) -> Verdict:
        found = _final_losses(records, name, scaled)
        return Verdict(all_of(between(e, 1 - NEAR, 1 + NEAR) for e in found.values()), found)

    return judge


def _scaling_is_needed(records: Records) -> Verdict:
    found = _final_losses(records, "float16", False)
    return Verdict(all_of(at_least(e, 1 + NEAR) for e in found.values()), found)


def _half_the_bytes(records: Records) -> Verdict:
    found = {}
    for system in records.systems(format="float32"):
        for name in ("float16", "bfloat16"):
            for scaled in records.axis("scaled", system=system, format=name, seed=0)[:1]:
                half = records.count(system, "held_bytes", format=name, scaled=scaled, seed=0)
                full = records.count(system, "held_bytes", format="float32", scaled=False, seed=0)
                share = half / full
                found[f"{system}, {name}"] = Estimate(share, share, share, 1)
    if not found:
        raise MissingRecords("no half precision was measured")
    return Verdict(all_of(at_most(e, HELD) for e in found.values()), found)


def _little_time(records: Records) -> Verdict:
    found = {}
    for name, scaled in FORMATS[1:]:
        for system in records.systems(format=name, scaled=scaled):
            one = _by_seeds(records, system, "cpu_seconds", name, scaled)
            found[f"{system}, {label({'format': name, 'scaled': scaled})}"] = one
    if not found:
        raise MissingRecords("no half precision was measured")
    return Verdict(all_of(at_most(e, MOST_TIME) for e in found.values()), found)


HYPOTHESES = (
    Hypothesis(
        "float16",
        f"float16 with a scaled loss ends with float32's loss, within {NEAR:.0%}.",
        f"A median over seeds of the ratio of losses that differs from one by more than {NEAR}.",
        _ends_where_float32_does("float16", True),
    ),
    Hypothesis(
        "bfloat16",
        f"bfloat16 needs no scaling: it ends with float32's loss, within {NEAR:.0%}.",
        f"A median over seeds of the ratio of losses that differs from one by more than {NEAR}.",
        _ends_where_float32_does("bfloat16", False),
    ),
    Hypothesis(
        "scaling",
        f"Without scaling, float16 ends with a loss that is more than {NEAR:.0%} larger.",
        "A median over seeds of the ratio to float32's loss that is smaller.",
        _scaling_is_needed,
    ),
    Hypothesis(
        "memory",
        f"A half holds at most {HELD:g} of what float32 holds for the backward pass.",
        "A larger share, by the library's own account.",
        _half_the_bytes,
    ),
    Hypothesis(
        "time",
        f"On a processor, a step in half precision takes at most {MOST_TIME:g} times as long.",
        "A larger ratio of processor times.",
        _little_time,
    ),
)


# ------------------------------------------------------------------ pictures


def _range_text(groups: dict[str, dict[str, Estimate]], word: str) -> str:
    """Return the least and the largest median of the groups that begin with a word."""
    from study.drawing import number_text

    found = [e.median for name, of in groups.items() if name.startswith(word) for e in of.values()]
    return f"{number_text(min(found))} to {number_text(max(found))}"


def _cost_title(groups: dict[str, dict[str, Estimate]]) -> str:
    """Return the claim of the picture of costs; a quick run has no format that is not scaled."""
    time = f"teps take {_range_text(groups, 'processor')} times as long"
    if not any(name.startswith("bytes") for name in groups):
        return f"In halves, s{time}"
    return f"Halves hold {_range_text(groups, 'bytes')} of what float32 holds, and s{time}"


def pictures(records: Records) -> list[Any]:
    """Return loss curves of the formats, and memory and time beside float32's."""
    from study.drawing import Bars, Lines, number_text, system_label

    found: list[Any] = []
    for system in records.systems(format="float32"):
        series: dict[str, list[tuple[Any, Estimate]]] = {}
        for config in records.configs(system, seed=0):
            points = []
            for point in sorted({*POINTS, config["steps"]}):
                if 0 < point <= config["steps"]:
                    metric = f"loss_at_{point}"
                    points.append(
                        (
                            point,
                            _by_seeds(
                                records, system, metric, config["format"], config["scaled"], False
                            ),
                        )
                    )
            series[label(config)] = points
        title = f"{system_label(system)}: losses of digits by the format of storage"
        if "float16, scaled" in series and "float32" in series:
            ratio = _by_seeds(records, system, "final_loss", "float16", True)
            title = (
                f"{system_label(system)}: float16 with a scaled loss ends at "
                f"{number_text(ratio.median)} of float32's loss"
            )
        found.append(
            Lines(f"precision-loss-{system}", title, "steps", "loss of all images", series)
        )
    groups: dict[str, dict[str, Estimate]] = {}
    for metric, title in (
        ("held_bytes", "bytes of saved values, or planned by a program"),
        ("peak_bytes", "peak of a step on all images"),
        ("cpu_seconds", "processor time of a step"),
    ):
        for name, scaled in FORMATS[1:]:
            if name == "float32" or (metric != "cpu_seconds" and scaled):
                continue
            text = f"{title}, {label({'format': name, 'scaled': scaled})}"
            for system in records.systems(format=name, scaled=scaled):
                if metric == "peak_bytes" and system == "compiled":
                    continue
                if metric == "held_bytes":
                    one = records.count(system, metric, format=name, scaled=scaled, seed=0)
                    one /= records.count(system, metric, format="float32", scaled=False, seed=0)
                    estimate = Estimate(one, one, one, 1)
                else:
                    estimate = _by_seeds(records, system, metric, name, scaled)
                groups.setdefault(text, {})[system] = estimate
    if groups:
        found.append(
            Bars(
                "precision-cost",
                _cost_title(groups),
                "ratio to float32",
                groups,
            )
        )
    return found
