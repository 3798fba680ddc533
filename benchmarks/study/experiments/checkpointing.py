"""Checkpointing: time against memory, with a checkpoint every 1, 2, 4 … layers.

A chain of n layers that is cut into pieces of k keeps n/k inputs of pieces, and while a piece is
swept its k results: n/k + k results in all, least at k = √n, for one more run forward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from study.contract import Case, Estimate, Hypothesis, NotApplicable, Verdict
from study.peaks import peak_and_least_times
from study.predicates import NOTHING, all_of, at_most, between
from study.records import MissingRecords, Records

NAME = "checkpointing"
QUESTION = "What does recomputing layers save, and what does it cost?"
SYSTEMS = ("taped", "compiled", "torch")
FRESH = True
ROUNDS = 3
QUICK_ROUNDS = 1
TOLERANCE = 1e-4

LAYERS, WIDTH, BATCH = 64, 128, 2048
EVERY = (0, 1, 2, 4, 8, 16, 32, 64)
"""Layers of a piece; 0 is a chain without checkpoints."""

TORCH_EVERY = (0, 2, 8, 32)
STEPS = 2


def configs(quick: bool) -> list[dict[str, Any]]:
    """Layers of a piece."""
    if quick:
        return [{"layers": 16, "every": every} for every in (0, 4)]
    return [{"layers": LAYERS, "every": every} for every in EVERY]


def inputs(layers: int) -> tuple[list[Any], Any]:
    """Return the weights and the batch."""
    rng = np.random.RandomState(0)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    weights = [normal(WIDTH, WIDTH) * np.float32(WIDTH**-0.5) for _ in range(layers)]
    return weights, normal(BATCH, WIDTH)


def result_bytes() -> int:
    """Return the bytes of one layer's result."""
    return 4 * BATCH * WIDTH


def pieces(weights: list[Any], every: int) -> list[list[Any]]:
    """Return the weights of each piece."""
    size = every or len(weights)
    return [weights[k : k + size] for k in range(0, len(weights), size)]


def predicted_results(layers: int, every: int) -> float:
    """Return how many results are held at the peak, by the textbook."""
    return layers / every + every if every else float(layers)


Step = Callable[[], list[Any]]
"""Returns the loss and the gradients of the first and the last weight."""


def _odyssey_loss(every: int) -> Callable[[list[Any], Any], Any]:
    import odyssey as od
    from odyssey import ops

    def piece(h: Any, weights: list[Any]) -> Any:
        for w in weights:
            h = ops.tanh(h @ w)
        return h

    run = od.checkpoint(piece) if every else piece

    def loss_of(weights: list[Any], x: Any) -> Any:
        for part in pieces(weights, every):
            x = run(x, part)
        return (x * x).mean()

    return loss_of


def _taped(layers: int, every: int) -> Step:
    import odyssey as od

    weights, x = inputs(layers)
    leaves = [od.Variable(w, requires_grad=True) for w in weights]
    loss_of = _odyssey_loss(every)

    def step() -> list[Any]:
        with od.GradientTape() as tape:
            loss = loss_of(leaves, x)
        value = loss.numpy()
        slopes = tape.gradient(loss, leaves)
        return [value, slopes[0], slopes[-1]]

    return step


def _compiled(layers: int, every: int) -> Step:
    import odyssey as od

    weights, x = inputs(layers)
    leaves = [od.Variable(w, requires_grad=True) for w in weights]
    loss_of = _odyssey_loss(every)

    @od.compile(fullgraph=True)
    def program(x: Any) -> Any:
        with od.GradientTape() as tape:
            loss = loss_of(leaves, x)
        return loss, tape.gradient(loss, leaves)

    program.precompile(x)

    def step() -> list[Any]:
        loss, slopes = program(x)
        return [loss, slopes[0], slopes[-1]]

    return step


def _torch(layers: int, every: int) -> Step:
    if every not in (1, *TORCH_EVERY) or layers not in (_WARM_LAYERS, LAYERS):
        raise NotApplicable(f"torch is measured with {LAYERS} layers and pieces of {TORCH_EVERY}")
    import torch
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(1)
    arrays, batch = inputs(layers)
    weights = [torch.tensor(w, requires_grad=True) for w in arrays]
    x = torch.tensor(batch)

    def piece(h: Any, *part: Any) -> Any:
        for w in part:
            h = torch.tanh(h @ w)
        return h

    def step() -> list[Any]:
        h = x
        for part in pieces(weights, every):
            h = checkpoint(piece, h, *part, use_reentrant=False) if every else piece(h, *part)
        loss = (h * h).mean()
        slopes = torch.autograd.grad(loss, weights)
        return [loss.detach(), slopes[0], slopes[-1]]

    return step


_STEPS = {"taped": _taped, "compiled": _compiled, "torch": _torch}
_NAMES = ("loss", "first", "last")
_WARM_LAYERS = 2


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a case whose sample has the peak of a step, and the least time of some."""
    make = _STEPS[system]
    make(_WARM_LAYERS, min(config["every"], 1))()  # loads what a first step loads
    step = make(config["layers"], config["every"])

    def answer() -> dict[str, Any]:
        return {n: np.asarray(a, np.float64) for n, a in zip(_NAMES, step(), strict=True)}

    return Case(answer=answer, sample=lambda: peak_and_least_times(step, STEPS))


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return the loss and two gradients by hand, in float64."""
    arrays, batch = inputs(config["layers"])
    weights = [w.astype(np.float64) for w in arrays]
    states = [batch.astype(np.float64)]
    for w in weights:
        states.append(np.tanh(states[-1] @ w))
    out = states[-1]
    g = 2 * out / out.size
    slopes = []
    for w, before, after in zip(weights[::-1], states[-2::-1], states[:0:-1], strict=True):
        g = g * (1 - after * after)
        slopes.append(before.T @ g)
        g = g @ w.T
    return {"loss": np.mean(out * out), "first": slopes[-1], "last": slopes[0]}


# ------------------------------------------------------------------ hypotheses

MOST_TIME = 1.5
"""Of a step without checkpoints: one more run forward makes 4/3, the rest is for recording it."""

NEAR_ROOT = 2.0
"""Factor of √n within which the least peak is expected."""

NEAR_PREDICTION = (0.7, 1.5)
"""Ratios of peak to textbook that count as what it predicts."""

ODYSSEY = ("taped", "compiled")


def _peaks(records: Records, system: str) -> tuple[int, dict[int, Estimate]]:
    """Return the layers of the longest chain, and peaks by layers of a piece."""
    layers = records.axis("layers", system=system)
    if not layers:
        raise MissingRecords(f"{system}: nothing was measured")
    n = layers[-1]
    every = records.axis("every", system=system, layers=n)
    return n, {k: records.estimate(system, "peak_bytes", layers=n, every=k) for k in every}


def _least_at_root(records: Records) -> Verdict:
    numbers = {}
    outcomes = []
    for system in ODYSSEY:
        n, peaks = _peaks(records, system)
        cut = {k: e for k, e in peaks.items() if k}
        if len(cut) < 3:
            raise MissingRecords(f"{system}: fewer than three sizes of pieces were measured")
        best = min(cut, key=lambda k: cut[k].median)
        ratio = best / math.sqrt(n)
        numbers[f"{system}, layers of a piece over √n"] = Estimate(
            ratio, ratio, ratio, cut[best].rounds
        )
        outcomes.append(
            between(numbers[f"{system}, layers of a piece over √n"], 1 / NEAR_ROOT, NEAR_ROOT)
        )
    return Verdict(all_of(outcomes), numbers)


def _as_predicted(records: Records) -> Verdict:
    numbers = {}
    for system in ODYSSEY:
        n, peaks = _peaks(records, system)
        for k, e in peaks.items():
            wanted = predicted_results(n, k) * result_bytes()
            numbers[f"{system}, every {k}"] = Estimate(
                e.median / wanted, e.low / wanted, e.high / wanted, e.rounds
            )
    return Verdict(all_of(between(e, *NEAR_PREDICTION) for e in numbers.values()), numbers)


def _one_more_run(records: Records) -> Verdict:
    numbers = {}
    for system in ODYSSEY:
        n, peaks = _peaks(records, system)
        for k in peaks:
            if k:
                numbers[f"{system}, every {k}"] = records.between(
                    (system, {"layers": n, "every": k}),
                    (system, {"layers": n, "every": 0}),
                    "cpu_seconds",
                )
    if not numbers:
        raise MissingRecords(NOTHING)
    return Verdict(all_of(at_most(e, MOST_TIME) for e in numbers.values()), numbers)


HYPOTHESES = (
    Hypothesis(
        "root",
        "The least peak is with pieces of about √n layers.",
        f"A least peak at a piece that is more than {NEAR_ROOT:g} times longer or shorter.",
        _least_at_root,
    ),
    Hypothesis(
        "textbook",
        "The peak is n/k + k results for pieces of k layers, and n without checkpoints.",
        f"A peak outside of {NEAR_PREDICTION[0]:g} to {NEAR_PREDICTION[1]:g} times of that.",
        _as_predicted,
    ),
    Hypothesis(
        "time",
        "Recomputing costs one more run forward, a third of a step.",
        f"A step that takes more than {MOST_TIME:g} of the processor time without checkpoints.",
        _one_more_run,
    ),
)


# ------------------------------------------------------------------ pictures


def pictures(records: Records) -> list[Any]:
    """Return peaks and times against the layers of a piece, beside the textbook."""
    from study.drawing import Lines, number_text, system_label

    systems = records.systems()
    if not systems:
        return []
    n = records.axis("layers")[-1]
    peaks: dict[str, list[tuple[Any, Any]]] = {}
    times: dict[str, list[tuple[Any, Any]]] = {}
    for system in systems:
        for every in records.axis("every", system=system, layers=n):
            config = {"layers": n, "every": every}
            peak = records.estimate(system, "peak_bytes", **config)
            seconds = records.estimate(system, "cpu_seconds", **config)
            if every:
                peaks.setdefault(system, []).append((every, peak))
                times.setdefault(system, []).append((every, seconds))
    if not peaks:
        return []
    every = sorted({k for points in peaks.values() for k, _ in points})
    peaks["n/k + k results"] = [
        (k, _exact(predicted_results(n, k) * result_bytes())) for k in every
    ]
    least = min((e.median, k) for k, e in peaks[systems[0]])
    beside = ""
    if records.has(systems[0], layers=n, every=0):
        without = records.estimate(systems[0], "peak_bytes", layers=n, every=0).median
        beside = f" instead of {number_text(without, 'B')}"
    found = [
        Lines(
            "checkpointing-memory",
            f"{system_label(systems[0])} holds least with a checkpoint every {least[1]} of {n} "
            f"layers, {number_text(least[0], 'B')}{beside}",
            "layers of a piece",
            "peak of a step above what was resident before",
            peaks,
            unit="B",
        ),
    ]
    if all(records.has(s, layers=n, every=0) for s in times):
        ratios = {
            s: [
                (
                    k,
                    records.between(
                        (s, {"layers": n, "every": k}),
                        (s, {"layers": n, "every": 0}),
                        "cpu_seconds",
                    ),
                )
                for k, _ in points
            ]
            for s, points in times.items()
        }
        most = max(e.median for _, e in ratios[systems[0]])
        found.append(
            Lines(
                "checkpointing-time",
                f"Recomputing costs {system_label(systems[0])} up to {most - 1:.0%} of a step",
                "layers of a piece",
                "processor time of a step, as a ratio to one without checkpoints",
                ratios,
                log_y=False,
            )
        )
    return found


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value, 1)
