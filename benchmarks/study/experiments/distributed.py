"""Distributed: a data-parallel step on 1, 2 and 4 ranks of this machine.

A sample starts the ranks by ``python -m odyssey launch``, with one BLAS thread each. More ranks
than cores are not timed: they tell whether the bits are equal, and nothing else.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from study.contract import Case, Estimate, Hypothesis, NotApplicable, Verdict
from study.predicates import all_of, at_least, at_most
from study.records import MissingRecords, Records

NAME = "distributed"
QUESTION = "What do ranks of one machine gain, how long do they wait, and are their bits equal?"
SYSTEMS = ("taped", "compiled")
FRESH = False  # the sample starts the processes
PINNED = False
ROUNDS = 3
QUICK_ROUNDS = 1
TOLERANCE = 1e-4
"""Of the last bias after some steps, whose gradients are float32 sums of 256 rows."""

PROGRAM = Path(__file__).resolve().parents[1] / "rank_program.py"
STEPS, QUICK_STEPS, CHECKED_STEPS = 15, 6, 2
LIMIT = 60.0


def configs(quick: bool) -> list[dict[str, Any]]:
    """Ranks, rows of the global batch, and parts that it is cut into."""
    if quick:
        rows = [(ranks, 64, 4) for ranks in (1, 2)]
    else:
        rows = [(ranks, 256, 4) for ranks in (1, 2, 4)]
        rows += [(ranks, 1024, 8) for ranks in (1, 2)]
    steps = QUICK_STEPS if quick else STEPS
    return [{"ranks": r, "batch": b, "shards": s, "steps": steps} for r, b, s in rows]


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a case whose sample starts ranks and takes what rank 0 prints."""
    if system == "compiled" and config["steps"] == QUICK_STEPS:
        raise NotApplicable("the quick study starts taped ranks only")
    if importlib.util.find_spec("mpi4py") is None:
        raise NotApplicable('mpi4py is not installed; pip install "odyssey[dist]"')
    from odyssey.distributed.launcher import find_mpiexec
    from odyssey.errors import DistributedError

    try:
        find_mpiexec()
    except DistributedError as error:
        raise NotApplicable(str(error)) from error

    def sample() -> dict[str, float]:
        found = _run(system, config, config["steps"])
        metrics = {"bits": found["bits"]}
        if config["ranks"] <= cores():
            metrics |= {"seconds": found["seconds"], "wait_share": found["wait_share"]}
        return metrics

    def answer() -> dict[str, Any]:
        return {"bias": np.asarray(_run(system, config, CHECKED_STEPS)["bias"])}

    return Case(answer=answer, sample=sample)


def _run(system: str, config: dict[str, Any], steps: int) -> dict[str, Any]:
    """Start the ranks, and return what rank 0 prints."""
    command = [sys.executable, "-m", "odyssey", "launch", "-n", str(config["ranks"])]
    command += [str(PROGRAM), "--steps", str(steps)]
    for name in ("batch", "shards"):
        command += [f"--{name}", str(config[name])]
    if system == "compiled":
        command.append("--compiled")
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        reason = done.stderr.strip().splitlines() or ["the first rank printed nothing"]
        raise RuntimeError(f"odyssey launch, status {done.returncode}: {reason[-1]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return the last bias after some steps on whole batches, by hand in float64."""
    from study import rank_program

    values = [a.astype(np.float64) for a in rank_program.parameters()]
    velocity = [np.zeros_like(v) for v in values]
    for number in range(CHECKED_STEPS):
        x, y = rank_program.batch_of(number, config["batch"])
        states = [x.astype(np.float64)]
        for k in range(0, len(values), 2):
            h = states[-1] @ values[k] + values[k + 1]
            states.append(np.maximum(h, 0) if k + 2 < len(values) else h)
        out = states[-1] - states[-1].max(axis=1, keepdims=True)
        g = np.exp(out)
        g /= g.sum(axis=1, keepdims=True)
        g[np.arange(len(y)), y] -= 1
        g /= len(y)
        gradients: list[Any] = []
        for k in range(len(values) - 2, -1, -2):
            h = states[k // 2]
            gradients = [h.T @ g, g.sum(axis=0), *gradients]
            g = (g @ values[k].T) * (h > 0)
        for v, slope in zip(velocity, gradients, strict=True):
            v *= rank_program.MOMENTUM
            v += slope
        for p, v in zip(values, velocity, strict=True):
            p -= rank_program.RATE * v
    return {"bias": values[-1]}


# ------------------------------------------------------------------ hypotheses

GAIN = 1.45
"""Of two ranks on two idle cores over one."""

MOST_WAITING = 0.3


def _several(records: Records, metric: str) -> list[tuple[str, dict[str, Any]]]:
    """Return systems and configs of several ranks that have a metric."""
    found = []
    for system in records.systems():
        for config in records.configs(system):
            lines = records.where(system, **config)
            if config["ranks"] > 1 and any(metric in line.get("metrics", {}) for line in lines):
                found.append((system, config))
    if not found:
        raise MissingRecords("several ranks were not measured")
    return found


def _text(system: str, config: dict[str, Any]) -> str:
    return f"{system}, {config['ranks']} ranks, batch {config['batch']}, {config['shards']} shards"


def _equal_bits(records: Records) -> Verdict:
    numbers: dict[str, Estimate] = {}
    outcomes = []
    for system, config in _several(records, "bits"):
        alone = records.values(system, "bits", **(config | {"ranks": 1}))
        mine = records.values(system, "bits", **config)
        different = float(len({*alone.values(), *mine.values()}) - 1)
        numbers[_text(system, config)] = Estimate(different, different, different, len(mine))
        outcomes.append(at_most(numbers[_text(system, config)], 0.0))
    return Verdict(all_of(outcomes), numbers)


def _gains(records: Records) -> dict[str, Estimate]:
    return {
        _text(system, config): records.between(
            (system, config | {"ranks": 1}), (system, config), "seconds"
        )
        for system, config in _several(records, "seconds")
    }


def _faster(records: Records) -> Verdict:
    found = _gains(records)
    return Verdict(all_of(at_least(e, GAIN) for e in found.values()), found)


def _little_waiting(records: Records) -> Verdict:
    found = {
        _text(system, config): records.estimate(system, "wait_share", **config)
        for system, config in _several(records, "wait_share")
    }
    return Verdict(all_of(at_most(e, MOST_WAITING) for e in found.values()), found)


HYPOTHESES = (
    Hypothesis(
        "bits",
        "With equal shards, all numbers of ranks end with equal bits, taped and compiled.",
        "Parameters of two numbers of ranks that differ in one bit.",
        _equal_bits,
    ),
    Hypothesis(
        "gain",
        f"Two ranks on two idle cores take steps at least {GAIN:g} times as fast as one.",
        "A smaller ratio of the seconds of a step.",
        _faster,
    ),
    Hypothesis(
        "waiting",
        f"A rank spends at most {MOST_WAITING:.0%} of a step in collectives.",
        "A larger share.",
        _little_waiting,
    ),
)


# ------------------------------------------------------------------ pictures


def pictures(records: Records) -> list[Any]:
    """Return seconds of a step and shares of waiting, by ranks."""
    from study.drawing import Bars, number_text

    timed = [
        (system, config)
        for system in records.systems()
        for config in records.configs(system)
        if any("seconds" in line.get("metrics", {}) for line in records.where(system, **config))
    ]
    timed.sort(key=lambda one: (one[1]["batch"], one[1]["shards"], one[1]["ranks"]))
    seconds: dict[str, dict[str, Estimate]] = {}
    waiting: dict[str, dict[str, Estimate]] = {}
    for system, config in timed:
        ranks = config["ranks"]
        name = f"{ranks} {'ranks' if ranks > 1 else 'rank'}, batch {config['batch']}"
        seconds.setdefault(name, {})[system] = records.estimate(system, "seconds", **config)
        if ranks > 1:
            share = records.estimate(system, "wait_share", **config)
            waiting.setdefault(name, {})[system] = share
    if not seconds:
        return []
    title = "Seconds of a data-parallel step by ranks"
    try:
        gains = _gains(records)
        low, high = min(e.median for e in gains.values()), max(e.median for e in gains.values())
        title = (
            f"Two ranks take steps {number_text(low)} to {number_text(high)} times as fast as one"
        )
    except MissingRecords:
        pass
    found = [Bars("distributed-seconds", title, "seconds of a step", seconds, unit="s")]
    if waiting:
        most = max(e.median for of in waiting.values() for e in of.values())
        found.append(
            Bars(
                "distributed-waiting",
                f"Ranks spend up to {most:.0%} of a step in collectives",
                "share of a step in collectives",
                waiting,
                unit="%",
            )
        )
    return found
