"""Static: the same graph taped and compiled, and where the saving comes from."""

import os
import time
from typing import Any

from harness.sampling import calibrate, repeated
from study.contract import Case, Hypothesis, NotApplicable, Verdict
from study.networks import NETWORKS, network_passes, network_reference
from study.passes import BLOCK_SECONDS, block_seconds
from study.patches import COMPILER_PASSES, switch_off
from study.peaks import resident_peak
from study.predicates import difference, exactly, quotient, within
from study.records import MissingRecords

NAME = "static"
QUESTION = "What does a static graph save against the same graph on a tape, and by what?"
ABLATIONS = tuple(f"no-{name}" for name in COMPILER_PASSES)
SYSTEMS = ("taped", "compiled", *ABLATIONS)
FRESH = True
ROUNDS = 3
TIMEOUT = 300.0
TOLERANCE = 1e-3

ABLATED = ("W2", "W4m", "W6")
"""Networks of which passes are switched off: a dense one, a chain, attention."""

CHAIN = "W4m"
LEAST_FUSION = 2.0
"""The least time of a chain without fusion, relative to that with it."""

NO_SLOWER, NO_CHANGE = 1.0, 1.05
MOST_STEPS = 2000


def configs(quick: bool) -> list[dict[str, Any]]:
    """Return the benchmarks' networks."""
    return [{"network": name} for name in (("W2",) if quick else NETWORKS)]


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return loss and gradients in float64, by hand."""
    return network_reference(config["network"])


def build(system: str, config: dict[str, Any]) -> Case:
    """Return loss and gradient, taped or compiled, which measure their own time and peak."""
    name = config["network"]
    if system in ABLATIONS and name not in ABLATED:
        raise NotApplicable("passes are switched off on three networks")
    os.environ["ODYSSEY_CACHE"] = "off"  # each program is compiled, and none read from disk
    off = [system.removeprefix("no-")] if system in ABLATIONS else []
    known = "taped" if system == "taped" else "compiled"

    def answer() -> dict[str, Any]:
        with switch_off(*off):
            passes = network_passes(known, name)
            for _ in range(3):
                passes.both()
            return passes.answer()

    def counts() -> dict[str, float]:
        if system == "taped":
            return {"nodes": len(network_passes(known, name).forward()[0].nodes)}
        with switch_off(*off):
            return program_counts(name)

    def sample() -> dict[str, float]:
        metrics: dict[str, float] = {}
        with switch_off(*off):
            passes = network_passes(known, name)
            passes.both()
            if known == "compiled":
                begin = time.process_time()
                passes.both()  # the second call compiles, and runs the program
                compiling = time.process_time() - begin
            run = repeated(passes.both)
            wall, cpu = block_seconds(run, calibrate(run, BLOCK_SECONDS))
            if known == "compiled":
                metrics["compile_cpu_seconds"] = max(compiling - cpu, 0.0)
            del run, passes
            peak = resident_peak(lambda: network_passes(known, name).both, first=2)
        return {**metrics, "seconds": wall, "cpu_seconds": cpu, "peak_bytes": peak}

    return Case(answer=answer, counts=counts, sample=sample)


def program_counts(name: str) -> dict[str, float]:
    """Return kernels, host calls, and the bytes of the arena and of the program of a network."""
    import odyssey as od
    from odyssey.compiler.pipeline import lower_program
    from odyssey.compiler.schedule.buffer_assignment import held_bytes
    from peers.compiled_odyssey import forward
    from study.networks import network_inputs

    arrays, batch = network_inputs(name)
    p = [od.Variable(a, requires_grad=True) for a in arrays]

    def both(*batch: Any) -> Any:
        with od.GradientTape() as tape:
            loss = forward(name, p, *batch)
        return loss, tape.gradient(loss, p)

    plan = lower_program(od.compile(both).lower(*batch).graph).plan
    kernels = plan.fused.kernels
    return {
        "kernels": len(kernels),
        "host_calls": sum(kernel.kind == "call" for kernel in kernels),
        "arena_bytes": plan.arena,
        "program_bytes": held_bytes(plan),
    }


# ------------------------------------------------------------------ hypotheses


def _names(records: Any, *systems: str) -> list[str]:
    return [n for n in NETWORKS if all(records.has(s, network=n) for s in systems)]


def _compiled_no_slower(records: Any) -> Verdict:
    numbers = {
        name: records.ratio("compiled", "taped", "cpu_seconds", network=name)
        for name in _names(records, "compiled", "taped")
    }
    return within(numbers, high=NO_SLOWER)


def _fusion(records: Any) -> Verdict:
    ratio = records.ratio("no-fusion", "compiled", "cpu_seconds", network=CHAIN)
    return within({f"without fusion, {CHAIN}": ratio}, low=LEAST_FUSION)


def _arena(records: Any) -> Verdict:
    numbers = {}
    for name in _names(records, "compiled", "no-arena-reuse"):
        reused, separate = (
            records.count(system, "arena_bytes", network=name)
            for system in ("compiled", "no-arena-reuse")
        )
        if separate:
            numbers[f"{name}, bytes of the arena to those without reuse"] = exactly(
                reused / separate
            )
    return within(numbers, high=0.999)


def steps_to_pay(records: Any, name: str) -> Any:
    """Return after how many steps a program has saved the time of its compilation."""
    compiling = records.estimate("compiled", "compile_cpu_seconds", network=name)
    taped, compiled = (
        records.estimate(system, "cpu_seconds", network=name) for system in ("taped", "compiled")
    )
    return quotient(compiling, difference(taped, compiled))


def _pays(records: Any) -> Verdict:
    names = _names(records, "compiled", "taped")
    return within({f"{n}, steps": steps_to_pay(records, n) for n in names}, high=MOST_STEPS)


HYPOTHESES = (
    Hypothesis(
        "no-slower",
        "A compiled step takes no longer than the same step on a tape.",
        "a network is slower compiled.",
        _compiled_no_slower,
    ),
    Hypothesis(
        "fusion",
        "Fusion gives chains of elementwise ops most of what they gain: without it they take "
        f"{LEAST_FUSION:g} times as long or longer.",
        "they take less.",
        _fusion,
    ),
    Hypothesis(
        "arena",
        "Reuse makes the arena of a program smaller.",
        "the arena of a network is as large without reuse.",
        _arena,
    ),
    Hypothesis(
        "pays",
        f"Compiling pays within {MOST_STEPS:,} steps.",
        "a network needs more.",
        _pays,
    ),
)


def pictures(records: Any) -> list[Any]:
    """Return times beside the tape's, what passes save, and steps until compiling pays."""
    from study.drawing import Bars, number_text

    found: list[Any] = []
    names = _names(records, "taped", "compiled")
    if not names:
        return found
    speed = {
        name: {"compiled": records.ratio("compiled", "taped", "cpu_seconds", network=name)}
        for name in names
    }
    best = min(bars["compiled"].median for bars in speed.values())
    found.append(
        Bars(
            "static",
            f"Compiled, a step takes down to {number_text(best)} times as long as on a tape",
            "processor time, ratio to the tape",
            speed,
        )
    )
    for metric, what in (("cpu_seconds", "processor time"), ("peak_bytes", "peak memory")):
        groups = {
            name: {
                f"without {system.removeprefix('no-')}": records.ratio(
                    system, "compiled", metric, network=name
                )
                for system in ABLATIONS
                if records.has(system, network=name)
            }
            for name in _names(records, "compiled", "no-fusion")
        }
        if not groups:
            continue
        worst = max((e.median, s, n) for n, bars in groups.items() for s, e in bars.items())
        title = f"{worst[2]} {worst[1]} takes {number_text(worst[0])} times the {what}"
        found.append(
            Bars(f"static-{metric.split('_')[0]}", title, f"{what}, ratio to compiled", groups)
        )
    steps = {}
    for name in names:
        try:
            steps[name] = {"compiled": steps_to_pay(records, name)}
        except MissingRecords:
            continue
    most = max((bars["compiled"].median for bars in steps.values()), default=0.0)
    title = f"Compiling pays after {number_text(most)} steps at the latest"
    found.append(Bars("static-steps", title, "steps until compiling pays", steps))
    return found
