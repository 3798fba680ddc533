"""Width: peak memory of training steps against what specs predict."""

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.compiled_cases import MOMENTUM, batches_of, parameters_of
from harness.workloads import DEPTH_SCALE, DEPTH_SHIFT
from study.by_hand import run_forward, run_mlp
from study.contract import Case, Hypothesis, NotApplicable, Verdict
from study.passes import named_results
from study.peaks import allocated_peak, resident_peak
from study.predicates import exactly, quotient, within
from study.predicted_memory import OWNERS, Prediction, optimizer_bytes, predicted_memory, trace_step

NAME = "width"
QUESTION = "Is the memory of a taped step the sum that its specs predict?"
SYSTEMS = ("taped", "torch")
FRESH = True
ROUNDS = 3
TIMEOUT = 300.0
TOLERANCE = 5e-3

BATCH = 512
RATE = 0.01
LEAST_BYTES = 1 << 20
"""Below it pages, the unit of resident memory, take part of the bound."""

ERROR = 0.1
"""The largest relative error of the prediction."""

CHAIN_OPS = 100_000
"""Python allocates small objects in arenas of 1 MiB: 21 MB of nodes make that a twentieth."""

TRACED_LEVELS = (100, 200)
"""Chains are traced at two depths, as a level adds the same at each."""

TIMELINE = "W7"
"""The network whose bytes are shown over time."""


def configs(quick: bool) -> list[dict[str, Any]]:
    """Return networks of the benchmarks, a deep chain, and perceptrons of equal layers.

    The perceptrons have tanh: with ReLU float32 puts some of millions of pre-activations on the
    other side of the kink than the reference, and a gradient jumps by a hundredth.
    """
    shapes = [(32, 32), (128, 8), (512, 2), (512, 8), (512, 32), (2048, 2), (4096, 2)]
    names = ["W2", "W3", "W7", "chain"]
    if quick:
        shapes, names = [(128, 2)], ["W2"]
    return [
        *[{"network": name, "units": 0, "layers": 0} for name in names],
        *[{"network": "mlp", "units": u, "layers": layers} for u, layers in shapes],
    ]


def _inputs(config: dict[str, Any], dtype: Any = np.float32) -> tuple[list[Any], list[Any]]:
    """Return parameters and a batch."""
    name, units, layers = config["network"], config["units"], config["layers"]
    if name == "chain":
        return [np.ones(8, dtype)], []
    if name == "mlp":
        rng = np.random.RandomState(0)
        parameters: list[Any] = []
        for _ in range(layers):
            weight = rng.standard_normal((units, units)).astype(np.float32)
            parameters += [weight * np.float32(units**-0.5), np.zeros(units, np.float32)]
        x = rng.standard_normal((BATCH, units)).astype(np.float32)
        batch = [x, rng.standard_normal((BATCH, units)).astype(np.float32)]
    else:
        parameters, batch = parameters_of(name), list(batches_of(name)[0])
    cast = [a.astype(dtype) if a.dtype.kind == "f" else a for a in (*parameters, *batch)]
    return cast[: len(parameters)], cast[len(parameters) :]


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return the loss and the gradients before the first step, in float64."""
    if config["network"] == "chain":
        x = 1.0
        for _ in range(CHAIN_OPS // 2):
            x = x * DEPTH_SCALE + DEPTH_SHIFT
        return named_results(8 * x, [np.full(8, DEPTH_SCALE ** (CHAIN_OPS // 2))])
    parameters, batch = _inputs(config, np.float64)
    mlp = config["network"] == "mlp"
    loss, backward = (
        run_mlp(parameters, *batch, tanh=True)
        if mlp
        else run_forward(config["network"], parameters, *batch)
    )
    return named_results(loss, backward())


# ------------------------------------------------------------------ systems


def _taped(
    config: dict[str, Any], batch: list[Any], levels: int = CHAIN_OPS // 2
) -> tuple[Any, Callable[..., Any], Callable[[], None]]:
    """Return leaves, a function that leaves gradients and returns the loss, and a whole step."""
    import odyssey as od
    from peers.compiled_odyssey import forward

    parameters = _inputs(config)[0]
    name = "W1" if config["network"] == "mlp" else config["network"]
    leaves = [od.Variable(a, requires_grad=True) for a in parameters]
    optimizer = od.optim.SGD(leaves, RATE, momentum=MOMENTUM)

    def run(*batch: Any) -> Any:
        with od.GradientTape() as tape:
            loss = chain_loss(leaves, levels) if name == "chain" else forward(name, leaves, *batch)
        tape.backward(loss)
        return loss

    def step() -> None:
        run(*batch)
        optimizer.step()
        optimizer.zero_grad()

    return leaves, run, step


def chain_loss(p: Any, levels: int) -> Any:
    """Return the sum of a chain of two ops a level."""
    x = p[0]
    for _ in range(levels):
        x = x * DEPTH_SCALE + DEPTH_SHIFT
    return x.sum()


def predict(config: dict[str, Any]) -> Prediction:
    """Return the prediction for a taped step, from specs."""
    parameters, batch = _inputs(config)
    state = optimizer_bytes([a.size for a in parameters], slots=1)
    if config["network"] != "chain":
        return predicted_memory(trace_step(_taped(config, batch)[1], *batch), state)
    short, long = (_predict_chain(levels, state) for levels in TRACED_LEVELS)
    added = {
        owner: (long.at_peak()[owner] - value) / (TRACED_LEVELS[1] - TRACED_LEVELS[0])
        for owner, value in short.at_peak().items()
    }
    more = CHAIN_OPS // 2 - TRACED_LEVELS[0]
    peak = {owner: [int(value + more * added[owner])] for owner, value in short.at_peak().items()}
    return Prediction(0, peak)


def _predict_chain(levels: int, state: int) -> Prediction:
    import odyssey as od

    leaf = od.Variable(np.ones(8, np.float32), requires_grad=True)

    def run() -> Any:
        with od.GradientTape() as tape:
            loss = chain_loss([leaf], levels)
        tape.backward(loss)
        return loss

    return predicted_memory(trace_step(run), state)


def _torch(
    config: dict[str, Any], batch: list[Any], levels: int = CHAIN_OPS // 2
) -> tuple[Any, Callable[..., Any], Callable[[], None]]:
    import torch

    from peers.compiled_torch import forward

    torch.set_num_threads(1)
    parameters = _inputs(config)[0]
    name = "W1" if config["network"] == "mlp" else config["network"]
    leaves = [torch.tensor(a, requires_grad=True) for a in parameters]
    tensors = [torch.from_numpy(a) for a in batch]  # shared with the caller, as by taped steps
    optimizer = torch.optim.SGD(leaves, lr=RATE, momentum=MOMENTUM)

    def run() -> Any:
        loss = chain_loss(leaves, levels) if name == "chain" else forward(name, leaves, *tensors)
        loss.backward()
        return loss

    def step() -> None:
        run()
        optimizer.step()
        optimizer.zero_grad()

    return leaves, run, step


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a training step, whose peak is the sample; the batch, of no owner, is made before."""
    if system == "torch" and config["network"] == "mlp":
        raise NotApplicable("networks of the benchmarks are enough to place it")
    make = _taped if system == "taped" else _torch
    batch = _inputs(config)[1]

    def answer() -> dict[str, Any]:
        leaves, run, _ = make(config, batch)
        loss = float((run(*batch) if system == "taped" else run()).item())
        return named_results(loss, [np.asarray(leaf.grad) for leaf in leaves])

    def counts() -> dict[str, float]:
        if system != "taped":
            return {}
        prediction = predict(config)
        found = {"predicted_bytes": prediction.peak}
        found |= {f"{owner}_bytes": size for owner, size in prediction.at_peak().items()}
        if config["network"] == TIMELINE:
            for owner, sizes in prediction.timeline.items():
                found |= {f"{owner}@{k:03}": size for k, size in enumerate(sizes)}
            found["forward_ops"] = prediction.forward
        return found

    def sample() -> dict[str, float]:
        few = TRACED_LEVELS[0]
        peak = resident_peak(
            lambda: make(config, batch)[2], warm=lambda: make(config, batch, few)[2]
        )
        metrics = {"peak_bytes": peak}
        if system == "taped":
            metrics["allocated_bytes"] = allocated_peak(lambda: make(config, batch)[2])
        return metrics

    return Case(answer=answer, counts=counts, sample=sample)


# ------------------------------------------------------------------ hypotheses


def _title(config: dict[str, Any]) -> str:
    if config["network"] != "mlp":
        return str(config["network"])
    return f"{config['layers']} layers of {config['units']}"


def _ratios(records: Any, metric: str) -> dict[str, Any]:
    found = {}
    for config in records.configs("taped"):
        predicted = exactly(records.count("taped", "predicted_bytes", **config))
        if predicted.median >= LEAST_BYTES:
            measured = records.estimate("taped", metric, **config)
            found[f"predicted to measured, {_title(config)}"] = quotient(predicted, measured)
    return found


def _predicted(records: Any, metric: str) -> Verdict:
    return within(_ratios(records, metric), 1 - ERROR, 1 + ERROR)


HYPOTHESES = (
    Hypothesis(
        "predicted",
        "The peak of a taped step is saved activations, the widest frontier, gradients and state, "
        f"as predicted from specs within {ERROR:.0%}.",
        "the predicted bytes of a step that takes at least a megabyte differ by more from the "
        "peak of resident memory in a fresh process.",
        lambda records: _predicted(records, "peak_bytes"),
    ),
    Hypothesis(
        "accounted",
        "So is the peak of what Python and NumPy allocate.",
        f"they differ by more than {ERROR:.0%} by the account of tracemalloc.",
        lambda records: _predicted(records, "allocated_bytes"),
    ),
)


def pictures(records: Any) -> list[Any]:
    """Return predicted and measured bytes, and the bytes of a step by owner over time."""
    from study.drawing import Bars, Stack, number_text

    groups: dict[str, dict[str, Any]] = {}
    for config in records.configs("taped"):
        bars = {"predicted": exactly(records.count("taped", "predicted_bytes", **config))}
        for system in SYSTEMS:
            if records.has(system, **config):
                bars[system] = records.estimate(system, "peak_bytes", **config)
        groups[_title(config)] = bars
    if not groups:
        return []
    ratios = _ratios(records, "peak_bytes").values()
    worst = max((abs(1 - r.median) for r in ratios), default=0.0)
    title = f"Specs predict the peak of a taped step within {number_text(worst, '%')}"
    found: list[Any] = [Bars("width", title, "peak memory", groups, unit="B")]
    if records.has("taped", network=TIMELINE):
        counts = records.counts("taped", network=TIMELINE)
        layers = {
            owner: [v for k, v in sorted(counts.items()) if k.startswith(f"{owner}@")]
            for owner in OWNERS
        }
        measured = records.estimate("taped", "peak_bytes", network=TIMELINE)
        x = list(range(len(layers["saved"])))
        owner = max(layers, key=lambda o: counts[f"{o}_bytes"])
        found.append(
            Stack(
                "width-owners",
                f"At the peak of {TIMELINE} the largest owner is the {owner}, with "
                f"{number_text(counts[f'{owner}_bytes'], 'B')}",
                f"number of the op (the sweep begins at {counts['forward_ops']:.0f})",
                "bytes held",
                x,
                layers,
                line=("measured peak", [measured.median] * len(x)),
                unit="B",
            )
        )
    return found
