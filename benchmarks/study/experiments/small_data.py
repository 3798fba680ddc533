"""Small data: time from the start of a process to a target, import and compilation included.

A sample is a process of its own, timed from outside. All systems start from the same numbers and
see the same batches, so they take the same steps, but for rounding.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from study import datasets, small_training
from study.contract import Case, Estimate, Hypothesis, NotApplicable, Verdict
from study.predicates import NOTHING, all_of, at_least, at_most, between
from study.records import MissingRecords, Records

NAME = "small-data"
QUESTION = "On small data, which system reaches the same accuracy in which time, all included?"
SYSTEMS = ("numpy", "taped", "compiled", "torch", "jax", "autograd")
FRESH = False  # the sample starts the process
ROUNDS = 5
QUICK_ROUNDS = 1
TOLERANCE = 1e-3  # of the losses of the first steps, in float32

PROGRAM = Path(small_training.__file__)
CHECKED_STEPS = 20
CACHED = ("taped", "compiled")
"""Systems that keep compiled code on disk, so that a second process starts sooner."""

PARTS = ("import_seconds", "first_seconds", "train_seconds")


def configs(quick: bool) -> list[dict[str, Any]]:
    """Digits and diabetes; with caches on disk empty, and digits with those of an earlier run."""
    found = [{"problem": "digits", "cache": "empty"}]
    if not quick:
        found += [
            {"problem": "digits", "cache": "warm"},
            {"problem": "diabetes", "cache": "empty"},
        ]
    return found


def build(system: str, config: dict[str, Any]) -> Case:
    """Return a case whose sample trains in a process of its own."""
    name, warm = config["problem"], config["cache"] == "warm"
    if warm and system not in CACHED:
        raise NotApplicable(f"{system}: it keeps nothing on disk, so an empty cache is its cache")
    problem = small_training.PROBLEMS[name]

    def answer() -> dict[str, Any]:
        trainer = small_training.TRAINERS[system](problem, small_training.parameters(problem))
        return {"losses": small_training.first_losses(name, trainer.step, CHECKED_STEPS)}

    kept = tempfile.TemporaryDirectory(prefix="odyssey-study-") if warm else None
    if kept is not None:
        _run(system, name, kept.name)  # fills the cache

    def sample() -> dict[str, float]:
        if kept is not None:
            return _run(system, name, kept.name)
        with tempfile.TemporaryDirectory(prefix="odyssey-study-") as folder:
            return _run(system, name, folder)

    return Case(answer=answer, sample=sample)


def _run(system: str, name: str, cache: str) -> dict[str, float]:
    """Run the program with a cache folder, and return its metrics."""
    environment = {**os.environ, "ODYSSEY_CACHE": cache}
    data = str(datasets.cache_folder())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), system, name, data],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise RuntimeError(f"{system} on {name}: {lines[-1]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu, **found}


def reference(config: dict[str, Any]) -> dict[str, Any]:
    """Return the losses of the first steps, by hand in float64."""
    name = config["problem"]
    problem = small_training.PROBLEMS[name]
    values = [v.astype(np.float64) for v in small_training.parameters(problem)]
    trainer = small_training.TRAINERS["numpy"](problem, values)

    def step(x: Any, y: Any) -> Any:
        return trainer.step(x.astype(np.float64), y)

    return {"losses": small_training.first_losses(name, step, CHECKED_STEPS)}


# ------------------------------------------------------------------ hypotheses

OVERHEAD = 0.5
"""Share of the time that importing and compiling are expected to take at least."""

SAME_STEPS = 0.1
"""Relative difference of steps that counts as the same."""


def _measured(records: Records, **config: Any) -> list[dict[str, Any]]:
    found = records.configs(**config)
    if not found:
        raise MissingRecords(NOTHING)
    return found


def _same_steps(records: Records) -> Verdict:
    numbers: dict[str, Estimate] = {}
    outcomes = []
    for config in _measured(records, cache="empty"):
        for system in records.systems(**config):
            outcomes.append(at_least(records.estimate(system, "arrived", **config), 1.0))
            if system == "numpy":
                continue
            ratio = records.ratio(system, "numpy", "steps", **config)
            numbers[f"{system}, {config['problem']}"] = ratio
            outcomes.append(between(ratio, 1 - SAME_STEPS, 1 + SAME_STEPS))
    return Verdict(all_of(outcomes), numbers)


def _mostly_overhead(records: Records) -> Verdict:
    numbers = {}
    for config in _measured(records, cache="empty"):
        for system in ("compiled", "torch", "jax"):
            if records.has(system, **config):
                trained = records.between(
                    (system, config), (system, config), "train_seconds", "cpu_seconds"
                )
                numbers[f"{system}, {config['problem']}"] = Estimate(
                    1 - trained.median, 1 - trained.high, 1 - trained.low, trained.rounds
                )
    if not numbers:
        raise MissingRecords(NOTHING)
    return Verdict(all_of(at_least(e, OVERHEAD) for e in numbers.values()), numbers)


def _compiling_does_not_pay(records: Records) -> Verdict:
    numbers = {
        config["problem"]: records.ratio("compiled", "taped", "cpu_seconds", **config)
        for config in _measured(records, cache="empty")
    }
    return Verdict(all_of(at_least(e, 1.0) for e in numbers.values()), numbers)


def _sooner_than_peers(records: Records) -> Verdict:
    numbers = {
        f"{system}, {config['problem']}": records.ratio("taped", system, "cpu_seconds", **config)
        for config in _measured(records, cache="empty")
        for system in ("torch", "jax")
        if records.has(system, **config)
    }
    if not numbers:
        raise MissingRecords("neither torch nor jax was measured")
    return Verdict(all_of(at_most(e, 1.0) for e in numbers.values()), numbers)


HYPOTHESES = (
    Hypothesis(
        "same-steps",
        "Every system reaches the target, in the same number of steps as NumPy by hand.",
        f"A system that misses it, or takes {SAME_STEPS:.0%} more or fewer steps.",
        _same_steps,
    ),
    Hypothesis(
        "overhead",
        "On small data, importing and compiling take most of the time of compilers and of PyTorch.",
        f"A system of them that trains for more than {1 - OVERHEAD:.0%} of the time.",
        _mostly_overhead,
    ),
    Hypothesis(
        "compiling",
        "With an empty cache, compiling does not pay on small data: taped arrives first.",
        "A compiled run that takes less processor time than the taped one.",
        _compiling_does_not_pay,
    ),
    Hypothesis(
        "peers",
        "Taped, odyssey arrives before PyTorch and JAX, import included.",
        "A run of theirs that takes less processor time.",
        _sooner_than_peers,
    ),
)


# ------------------------------------------------------------------ pictures


def pictures(records: Records) -> list[Any]:
    """Return the time to the target by system, and what it consists of."""
    from study.drawing import Bars, number_text, system_label

    found: list[Any] = []
    for config in records.configs(cache="empty"):
        problem = config["problem"]
        systems = records.systems(**config)
        groups = {"in all": {s: records.estimate(s, "cpu_seconds", **config) for s in systems}}
        titles = ("import and data", "first two steps", "the other steps")
        for part, title in zip(PARTS, titles, strict=True):
            groups[title] = {s: records.estimate(s, part, **config) for s in systems}
        first = min(systems, key=lambda s: records.estimate(s, "cpu_seconds", **config).median)
        steps = records.estimate(first, "steps", **config).median
        fastest = groups["in all"][first].median
        found.append(
            Bars(
                f"small-data-{problem}",
                f"{problem.capitalize()}: {system_label(first)} arrives first, after "
                f"{number_text(fastest, 's')} and {number_text(steps)} steps",
                "processor time to the target",
                groups,
                unit="s",
            )
        )
    for config in records.configs(cache="warm"):
        problem = config["problem"]
        both = {"from an empty cache": config | {"cache": "empty"}, "from a warm cache": config}
        groups = {
            name: {
                s: records.estimate(s, "cpu_seconds", **one)
                for s in CACHED
                if records.has(s, **one)
            }
            for name, one in both.items()
        }
        if not all("compiled" in of for of in groups.values()):
            continue
        cold, warm = (of["compiled"].median for of in groups.values())
        found.append(
            Bars(
                f"small-data-{problem}-cache",
                f"A cache on disk takes compiled {problem} from {number_text(cold, 's')} to "
                f"{number_text(warm, 's')}",
                "processor time to the target",
                groups,
                unit="s",
            )
        )
    return found
