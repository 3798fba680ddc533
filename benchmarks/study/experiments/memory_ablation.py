"""Memory ablation: which rule of the tape saves how much."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.sampling import calibrate, repeated
from study.contract import Case, Hypothesis, Verdict
from study.passes import BLOCK_SECONDS, block_seconds, named_results
from study.patches import TAPE_RULES, switch_off
from study.peaks import resident_peak
from study.predicates import within

NAME = "memory-ablation"
QUESTION = "Which rule of the tape saves how much memory, and what does it cost in time?"
ALL, NONE = "all-rules", "no-rules"
RULES = tuple(TAPE_RULES)
"""Draining, pruning of dead branches, saving only what rules ask for (``needs``), and residuals of
kernels: the tape has them by itself."""

CHOICES = ("checkpoint", "half")
"""Of a user: checkpoints of half of the layers, and saving in bfloat16. They are switched on alone:
a tape with a checkpoint, whose function may fail in a sweep, is not drained, and what a checkpoint
saves is not rounded, so that together each would hide the others."""

SYSTEMS = (ALL, *(f"no-{rule}" for rule in RULES), NONE, *CHOICES)
FRESH = True
ROUNDS = 5

UNITS, BATCH = 256, 64
MONITOR_ROWS, MONITOR_OPS = 4, 160
"""Each layer has a branch that the loss does not need: so many ops on so many rows."""

EPS = 1e-5
LEAST_SAVING = 1.05
"""The least ratio of peaks at which a rule counts as one that saves memory."""

MOST_RESIDUAL_PEAK = 1.02


def TOLERANCE(system: str, config: dict[str, Any]) -> float:
    """Gradients of a tape that stores halves differ by some thousandths."""
    return 5e-2 if system == "half" else 1e-3


def _off(system: str) -> tuple[str, ...]:
    """Return the rules that a system switches off."""
    rule = system.removeprefix("no-")
    return RULES if system == NONE else (rule,) if rule in RULES else ()


def configs(quick: bool) -> list[dict[str, Any]]:
    """Return numbers of layers."""
    return [{"layers": 4 if quick else 32}]


def network_inputs(layers: int, dtype: Any = np.float32) -> tuple[list[Any], Any, Any]:
    """Return parameters, four for each layer, a batch and its targets."""
    rng = np.random.RandomState(0)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)

    parameters = []
    for _ in range(layers):
        weight = normal(UNITS, UNITS) * dtype(0.5 * UNITS**-0.5)
        parameters += [1 + normal(UNITS) * dtype(0.1), normal(UNITS) * dtype(0.1)]
        parameters += [weight, normal(UNITS) * dtype(0.1)]
    return parameters, normal(BATCH, UNITS), normal(BATCH, UNITS)


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return loss and gradients in float64, by hand."""
    p, h, target = network_inputs(config["layers"], np.float64)
    erf = np.vectorize(math.erf)
    kept = []
    for k in range(0, len(p), 4):
        gain, shift, weight, bias = p[k : k + 4]
        spread = np.sqrt(h.var(axis=-1, keepdims=True) + EPS)
        n = (h - h.mean(axis=-1, keepdims=True)) / spread
        z = (n * gain + shift) @ weight + bias
        share = 0.5 * (1 + erf(z / math.sqrt(2)))
        kept.append((n, spread, z, share))
        h = h + z * share
    loss = np.mean((h - target) ** 2)
    g = (h - target) * (2 / h.size)
    found: list[Any] = []
    for k in reversed(range(0, len(p), 4)):
        gain, shift, weight, _ = p[k : k + 4]
        n, spread, z, share = kept.pop()
        gz = g * (share + z * np.exp(-z * z / 2) / math.sqrt(2 * math.pi))
        ga = gz @ weight.T
        gn = ga * gain
        found = [np.sum(ga * n, 0), ga.sum(0), (n * gain + shift).T @ gz, gz.sum(0), *found]
        mean = gn.mean(axis=-1, keepdims=True) + n * np.mean(gn * n, axis=-1, keepdims=True)
        g = g + (gn - mean) / spread
    return named_results(loss, found)


def make_step(
    layers: int, checkpoint: bool = False, half: bool = False
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return a step, which returns loss and gradients, and its forward pass, which returns a tape.

    Args:
        layers: Of the network.
        checkpoint: Whether the first half of them is checkpointed.
        half: Whether the tape stores halves.
    """
    import odyssey as od

    arrays, x, target = network_inputs(layers)
    p = [od.Variable(a, requires_grad=True) for a in arrays]

    def layer(h: Any, gain: Any, shift: Any, weight: Any, bias: Any) -> Any:
        return h + od.nn.gelu(od.nn.layer_norm(h, gain, shift, eps=EPS) @ weight + bias)

    repeated_layer = od.checkpoint(layer)

    def forward() -> tuple[Any, Any]:
        with od.GradientTape(saved="bfloat16" if half else None) as tape:
            h: Any = x
            for k in range(layers):
                run = repeated_layer if checkpoint and k < layers // 2 else layer
                h = run(h, *p[4 * k : 4 * k + 4])
                monitor = h[:MONITOR_ROWS]
                for _ in range(MONITOR_OPS):
                    monitor = od.ops.tanh(monitor)
            loss = ((h - target) ** 2).mean()
        return tape, loss

    def step() -> tuple[Any, Any]:
        tape, loss = forward()
        return loss, tape.gradient(loss, p)

    return step, forward


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a step with rules switched off, which measures its own time and peak."""
    off = _off(system)
    choices = config["layers"], system == "checkpoint", system == "half"

    def answer() -> dict[str, Any]:
        with switch_off(*off):
            loss, gradients = make_step(*choices)[0]()
        return named_results(float(loss.item()), [np.asarray(g) for g in gradients])

    def counts() -> dict[str, float]:
        with switch_off(*off):
            tape, _ = make_step(*choices)[1]()
            return {"saved_bytes": tape.memory().total, "nodes": len(tape.nodes)}

    def sample() -> dict[str, float]:
        with switch_off(*off):
            run = repeated(make_step(*choices)[0])
            wall, cpu = block_seconds(run, calibrate(run, BLOCK_SECONDS))
            del run
            peak = resident_peak(lambda: make_step(*choices)[0], first=0)
        return {"seconds": wall, "cpu_seconds": cpu, "peak_bytes": peak}

    return Case(answer=answer, counts=counts, sample=sample)


# ------------------------------------------------------------------ hypotheses


def _ratios(records: Any, system: str, metric: str) -> dict[str, Any]:
    return {
        f"{system}, {n} layers": records.ratio(system, ALL, metric, layers=n)
        for n in records.axis("layers", system=ALL)
    }


MEMORY_RULES = tuple(rule for rule in RULES if rule != "residuals")


def _saves(system: str, low: float, high: float) -> Callable[[Any], Verdict]:
    return lambda records: within(_ratios(records, system, "peak_bytes"), low, high)


HYPOTHESES = (
    *(
        Hypothesis(
            rule,
            f"The rule “{rule}” saves memory: without it the peak is at least {LEAST_SAVING:g} "
            "times as large.",
            "the peak without it is smaller than that.",
            _saves(f"no-{rule}", LEAST_SAVING, math.inf),
        )
        for rule in MEMORY_RULES
    ),
    *(
        Hypothesis(
            choice,
            f"The choice “{choice}” saves memory: the peak without it is at least "
            f"{LEAST_SAVING:g} times as large.",
            "the peak without it is smaller than that.",
            _saves(choice, -math.inf, 1 / LEAST_SAVING),
        )
        for choice in CHOICES
    ),
    Hypothesis(
        "residuals",
        "Residuals of kernels save no memory: without them the peak is at most "
        f"{MOST_RESIDUAL_PEAK:g} times as large.",
        "it is larger.",
        _saves("no-residuals", -math.inf, MOST_RESIDUAL_PEAK),
    ),
    Hypothesis(
        "residuals-time",
        "Residuals of kernels save time: without them a step takes longer.",
        "it takes less time.",
        lambda records: within(_ratios(records, "no-residuals", "cpu_seconds"), low=1.0),
    ),
)


def pictures(records: Any) -> list[Any]:
    """Return peak and time with rules switched off and choices switched on, as ratios."""
    from study.drawing import Bars, number_text

    layers = records.axis("layers", system=ALL)
    found: list[Any] = []
    if not layers or not records.has(NONE, layers=layers[-1]):
        return found
    names = {NONE: "without all four"} | {f"no-{rule}": f"without {rule}" for rule in RULES}
    names |= {choice: f"with {choice}" for choice in CHOICES}
    for name, metric, what in (
        ("memory-ablation", "peak_bytes", "peak"),
        ("memory-ablation-time", "cpu_seconds", "processor time"),
    ):
        groups = {
            names[system]: {
                f"{n} layers": records.ratio(system, ALL, metric, layers=n)
                for n in layers
                if records.has(system, layers=n)
            }
            for system in SYSTEMS
            if system != ALL and records.has(system)
        }
        ratio = records.ratio(NONE, ALL, metric, layers=layers[-1]).median
        title = (
            f"Without its four rules the {what} of a step is {number_text(ratio)} times as large"
        )
        found.append(Bars(name, title, f"{what}, ratio to a tape with all four", groups))
    return found
