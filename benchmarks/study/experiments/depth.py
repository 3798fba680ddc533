"""Depth: time and memory against the number of ops of a chain."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.machine import PeakMemory
from harness.workloads import DEPTH_SCALE, DEPTH_SHIFT
from study.contract import Case, Hypothesis, NotApplicable, Verdict
from study.passes import Passes, PhaseTimes, block_seconds, named_results, passes_of
from study.peaks import give_memory_back
from study.predicates import quotient, within

NAME = "depth"
QUESTION = "What does each further op of a deep graph cost, in time and in memory?"
SYSTEMS = ("taped", "compiled", "torch", "jax", "autograd")
FRESH = True
ROUNDS = 3
TIMEOUT = 300.0
TOLERANCE = 2e-2
"""float32 rounds the factor by 2e-8 at each of up to half a million levels."""

ELEMENTS = 8
WARM_UP_OPS = 100
MOST_OPS = {"compiled": 1000, "jax": 1000, "torch": 100_000, "autograd": 100_000}
"""Unrolled programs take minutes to compile beyond; the deepest chain is odyssey's alone."""

DEEP, LONG = 100_000, 10_000
"""Ops from which memory that imports have left free does not matter beside the graph, and from
which the time of a chain is not that of its ends."""

SHORT_SECONDS = 0.5
LEAST_NODE_BYTES, MOST_NODE_BYTES = 150, 250
MOST_GROWTH = 1.5
"""Of the time of an op, from the first deep chain to the deepest."""


def configs(quick: bool) -> list[dict[str, Any]]:
    """Return chains of 100 to a million ops, whose slopes depend on x or not."""
    depths = (100, 10_000) if quick else (100, 10_000, 100_000, 1_000_000)
    return [{"ops": ops, "x_dependent": dependent} for dependent in (False, True) for ops in depths]


def chain_losses(levels: int, dependent: bool) -> dict[str, Callable[..., Any]]:
    """Return the loss of a chain of two ops a level, by library."""

    def loss_of(p: Any, start: Any) -> Any:
        # Of a chain whose slopes depend on x the parameter is the factor, else the start.
        h, factor = (start, p[0]) if dependent else (p[0], DEPTH_SCALE)
        for _ in range(levels):
            h = h * factor + DEPTH_SHIFT
        return h.sum()

    return dict.fromkeys(("odyssey", "torch", "jax", "autograd"), loss_of)


def _inputs(dependent: bool, dtype: Any) -> tuple[Any, Any]:
    start = np.ones(ELEMENTS, dtype)
    return (np.full(ELEMENTS, dtype(DEPTH_SCALE)) if dependent else start), start


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return the loss and the gradient in float64, by the recurrence."""
    levels = config["ops"] // 2
    h, slope = 1.0, 0.0 if config["x_dependent"] else 1.0
    for _ in range(levels):
        slope = slope * DEPTH_SCALE + (h if config["x_dependent"] else 0.0)
        h = h * DEPTH_SCALE + DEPTH_SHIFT
    return named_results(ELEMENTS * h, [np.full(ELEMENTS, slope)])


def _passes(system: str, ops: int, dependent: bool) -> Passes:
    parameter, start = _inputs(dependent, np.float32)
    return passes_of(system, chain_losses(ops // 2, dependent), [parameter], [start])


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a chain that measures its own time and peak, from an empty tape to freed memory."""
    ops, dependent = config["ops"], config["x_dependent"]
    if ops > MOST_OPS.get(system, ops):
        raise NotApplicable(f"{system} runs chains of up to {MOST_OPS[system]:,} ops")
    if not dependent and system != "taped":
        raise NotApplicable("one kind of chain is enough to place it")
    passes = _passes(system, ops, dependent)

    def sample() -> dict[str, float]:
        small = passes if system in ("compiled", "jax") else _passes(system, WARM_UP_OPS, dependent)
        for _ in range(3):  # loads what a step loads; compiles what compiles
            small.both()
        del small
        give_memory_back()
        memory = PeakMemory()
        wall, cpu = block_seconds(lambda _: passes.both(), 1)
        peak = memory.above_base()
        metrics = {"seconds": wall, "cpu_seconds": cpu}
        if wall < SHORT_SECONDS:
            gc.collect()
            metrics = PhaseTimes(passes)()
        metrics["op_cpu_seconds"] = metrics["cpu_seconds"] / ops
        if peak is not None:
            metrics["peak_bytes"] = peak
            metrics["op_bytes"] = peak / ops
        return metrics

    def counts() -> dict[str, float]:
        return {"nodes": len(_passes(system, ops, dependent).forward()[0].nodes)}

    return Case(
        answer=passes.answer,
        counts=counts if system == "taped" and ops <= LONG else {},
        sample=sample,
    )


# ------------------------------------------------------------------ hypotheses


def _deep(records: Any, dependent: bool, least: int = DEEP) -> list[int]:
    axis = records.axis("ops", system="taped", x_dependent=dependent)
    return [ops for ops in axis if ops >= least]


def _node_bytes(records: Any) -> Verdict:
    numbers = {
        f"at {ops:,} ops, bytes": records.estimate("taped", "op_bytes", ops=ops, x_dependent=False)
        for ops in _deep(records, False)
    }
    return within(numbers, LEAST_NODE_BYTES, MOST_NODE_BYTES)


def _linear(records: Any, metric: str, least_ops: int) -> Verdict:
    numbers = {}
    for dependent in (False, True):
        deep = _deep(records, dependent, least_ops)
        if len(deep) > 1:
            least, most = (
                records.estimate("taped", metric, ops=ops, x_dependent=dependent)
                for ops in (deep[0], deep[-1])
            )
            kind = "x-dependent" if dependent else "fixed slopes"
            numbers[f"{kind}, {deep[-1]:,} ops to {deep[0]:,}"] = quotient(most, least)
    return within(numbers, 1 / MOST_GROWTH, MOST_GROWTH)


def _no_recursion(records: Any) -> Verdict:
    lines = list(records.where("taped"))
    if not lines:
        return Verdict("undecided", note="nothing was measured")
    failed = [line for line in lines if line["status"] != "ok"]
    return Verdict("refuted", note=failed[0]["message"]) if failed else Verdict("held")


HYPOTHESES = (
    Hypothesis(
        "node-bytes",
        f"A dynamic graph costs a fixed {(LEAST_NODE_BYTES + MOST_NODE_BYTES) // 2} bytes a node.",
        f"a node whose rule needs no array takes less than {LEAST_NODE_BYTES} or more than "
        f"{MOST_NODE_BYTES} bytes of the peak, in a chain of {DEEP:,} ops or more.",
        _node_bytes,
    ),
    Hypothesis(
        "linear-time",
        "The time of a graph is linear in its depth.",
        f"an op of the deepest chain takes over {MOST_GROWTH:g} times as long as one of "
        f"{LONG:,} ops, or under the inverse.",
        lambda records: _linear(records, "op_cpu_seconds", LONG),
    ),
    Hypothesis(
        "linear-memory",
        "The memory of a graph is linear in its depth.",
        f"an op of the deepest chain takes over {MOST_GROWTH:g} times the bytes of one of "
        f"{DEEP:,} ops, or under the inverse.",
        lambda records: _linear(records, "op_bytes", DEEP),
    ),
    Hypothesis(
        "no-recursion",
        "Recording, sweeping and freeing a graph of any depth do not recurse.",
        "a chain fails, for the limit of recursion or another.",
        _no_recursion,
    ),
)


def pictures(records: Any) -> list[Any]:
    """Return time and bytes of an op against depth."""
    from study.drawing import Lines, number_text

    found = []
    for metric, what, unit in (
        ("op_cpu_seconds", "processor time of one op, run and swept", "s"),
        ("op_bytes", "peak memory for each op", "B"),
    ):
        series = {}
        for system in [s for s in SYSTEMS if records.has(s)]:
            axis = records.axis("ops", system=system, x_dependent=True)
            points = [
                (ops, records.estimate(system, metric, ops=ops, x_dependent=True)) for ops in axis
            ]
            least = DEEP if unit == "B" else 0
            series[system] = [p for p in points if p[0] >= least and p[1].median > 0]
        fixed = records.axis("ops", system="taped", x_dependent=False)
        name = "odyssey taped, fixed slopes"
        series[name] = [
            (ops, records.estimate("taped", metric, ops=ops, x_dependent=False))
            for ops in fixed
            if unit == "s" or ops >= DEEP
        ]
        series = {system: points for system, points in series.items() if points}
        if not series.get("taped"):
            continue
        ops, last = series["taped"][-1]
        title = f"An op in a chain of {ops:,} takes {number_text(last.median, unit)} on a tape"
        label = "ops in the chain"
        found.append(
            Lines(f"depth-{unit}", title, label, what, series, unit=unit, log_y=unit == "s")
        )
    return found
