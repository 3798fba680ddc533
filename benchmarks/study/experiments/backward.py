"""Backward: the time of a sweep against that of its forward pass."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from study.contract import Case, Hypothesis, Verdict
from study.networks import CHAINS, NETWORKS, network_passes, network_reference
from study.passes import PhaseTimes
from study.predicates import exactly, within

NAME = "backward"
QUESTION = "How does the time of a sweep compare with that of its forward pass?"
SYSTEMS = ("numpy", "taped", "compiled", "torch", "jax", "autograd")
FRESH = False
ROUNDS = 7
TIMEOUT = 300.0
TOLERANCE = 1e-3

LEAST, MOST = 1.5, 2.2
"""Expected ratios of the sweep to the forward pass of a network."""

APART = ("numpy", "taped", "torch", "autograd")
"""Systems whose sweep runs by itself."""


def configs(quick: bool) -> list[dict[str, Any]]:
    """Return the benchmarks' networks."""
    return [{"network": name} for name in (("W1", "W2") if quick else NETWORKS)]


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return loss and gradients in float64, by hand."""
    return network_reference(config["network"])


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a network in a system, which is timed forward and back."""
    name = config["network"]
    passes = network_passes(system, name)
    for _ in range(3):
        passes.forward()
        passes.both()

    def counts() -> dict[str, float]:
        if system != "taped":
            return {}
        return {**flops(name), **allocations(name), "nodes": len(passes.forward()[0].nodes)}

    def sample() -> dict[str, float]:
        metrics = times()
        metrics["sweep_ratio"] = metrics["sweep_cpu_seconds"] / metrics["forward_cpu_seconds"]
        return metrics

    times = PhaseTimes(passes)
    return Case(answer=passes.answer, counts=counts, sample=sample)


def flops(name: str) -> dict[str, float]:
    """Return the arithmetic operations of a network's forward pass, and of its sweep.

    Those of the compiler's nodes, before fusion: the sweep's are what the gradient has more than
    the loss.
    """
    import odyssey as od
    from odyssey.compiler.lowering import lower
    from odyssey.compiler.passes.flops import count_flops
    from odyssey.compiler.pipeline import plan
    from peers.compiled_odyssey import forward
    from study.networks import network_inputs

    arrays, batch = network_inputs(name)
    p = [od.Variable(a, requires_grad=True) for a in arrays]

    def both(*batch: Any) -> Any:
        with od.GradientTape() as tape:
            loss = forward(name, p, *batch)
        return loss, tape.gradient(loss, p)

    found = []
    for run in (lambda *batch: forward(name, p, *batch), both):
        low = lower(od.compile(run).lower(*batch).graph)
        found.append(sum(map(count_flops, plan(low, {}).fused.order)))
    return {"forward_flops": found[0], "sweep_flops": found[1] - found[0]}


def allocations(name: str) -> dict[str, float]:
    """Return the bytes that a tape holds after the forward pass, and the peak of its sweep.

    By tracemalloc, in a process that is not timed.
    """
    code = f"from study.experiments.backward import trace_allocations as t; print(t({name!r}))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def trace_allocations(name: str) -> str:
    """Return the counts of `allocations`, as JSON."""
    import gc
    import tracemalloc

    passes = network_passes("taped", name)
    for _ in range(2):
        passes.both()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    pending = passes.forward()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.reset_peak()
    assert passes.sweep is not None
    gradients = passes.sweep(pending)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    del gradients
    return json.dumps({"held_bytes": held, "sweep_peak_bytes": peak})


# ------------------------------------------------------------------ hypotheses


def _ratios(records: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: records.estimate("taped", "sweep_ratio", network=name)
        for name in names
        if records.has("taped", network=name)
    }


_DENSE = tuple(name for name in NETWORKS if name not in CHAINS)


def _chains_lower(records: Any) -> Verdict:
    return within(_ratios(records, CHAINS), high=LEAST)


HYPOTHESES = (
    Hypothesis(
        "networks",
        f"The sweep of a network on a tape takes {LEAST:g} to {MOST:g} times as long as its "
        "forward pass.",
        "the ratio of a network lies outside.",
        lambda records: within(_ratios(records, _DENSE), LEAST, MOST),
    ),
    Hypothesis(
        "chains",
        "The sweep of a chain of elementwise ops takes less, relative to its forward pass.",
        f"the ratio of a chain is over {LEAST:g}.",
        _chains_lower,
    ),
)


def pictures(records: Any) -> list[Any]:
    """Return the ratio of the sweep to the forward pass, beside that of arithmetic operations."""
    from study.drawing import Bars, number_text

    groups: dict[str, dict[str, Any]] = {}
    for name in NETWORKS:
        bars = {
            system: records.estimate(system, "sweep_ratio", network=name)
            for system in APART
            if records.has(system, network=name)
        }
        if records.has("taped", network=name):
            counts = records.counts("taped", network=name)
            bars["arithmetic"] = exactly(counts["sweep_flops"] / counts["forward_flops"])
        if bars:
            groups[name] = bars
    ratios = _ratios(records, NETWORKS)
    if not ratios:
        return []
    low, high = (number_text(f(e.median for e in ratios.values())) for f in (min, max))
    title = f"On a tape a sweep takes {low} to {high} times as long as its forward pass"
    return [Bars("backward", title, "sweep to forward pass, processor time", groups)]
