"""Rounds of samples, A B C, C B A, …, so that a busy moment falls on every peer alike."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from harness.processes import Interpreters, Worker, WorkerError
from harness.sampling import take_turns
from harness.statistics import bootstrap_median
from harness.workloads import DEPTH_SCALE, Workload

BASE = "torch"
LOSS_TOLERANCE = 2e-3
GRADIENT_TOLERANCE = 1e-2
"""Of the `depth` gradient: float32 rounds 0.9999 by 2e-8, and each of 10^5 products by 6e-8."""

SMALLEST_NORMAL = 2.0**-126
"""Below it float32 is denormal and .9999 * g rounds back to g: no relative comparison."""

MOST_FRESH_ROUNDS = 5
"""A fresh process costs seconds, so deep chains take at most this many rounds."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of the ratios of a peer to the base, taken round by round, and its 95 % interval."""

    median: float
    low: float
    high: float


@dataclass(slots=True)
class Result:
    """Everything measured on one workload."""

    workload: Workload
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    hellos: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def values(self, peer: str, metric: str, clock: str) -> list[float]:
        """One number a round; empty where this metric was not measured so."""
        figures = [sample["metrics"].get(metric, {}) for sample in self.samples[peer]]
        return [figure[clock] for figure in figures if clock in figure]

    def ratio(self, peer: str, metric: str, clock: str) -> Ratio | None:
        """The peer against the base, or None where either lacks the metric."""
        if BASE not in self.samples:
            return None
        mine, base = self.values(peer, metric, clock), self.values(BASE, metric, clock)
        if not mine or len(mine) != len(base) or 0 in base:
            return None
        ratios = [value / reference for value, reference in zip(mine, base, strict=True)]
        return Ratio(*bootstrap_median(ratios))

    def disagreements(self) -> dict[str, str]:
        """Peers whose loss or gradient is wrong, with what came and what was wanted."""
        if self.workload.depth is not None:
            return self._wrong_gradients(DEPTH_SCALE**self.workload.depth)
        losses = {peer: hello["loss"] for peer, hello in self.hellos.items() if "loss" in hello}
        if not losses:
            return {}
        reference = BASE if BASE in losses else next(iter(losses))
        wanted = losses[reference]
        return {
            peer: f"loss {loss:.6g} after 5 steps, {reference} has {wanted:.6g}"
            for peer, loss in losses.items()
            if not math.isclose(loss, wanted, rel_tol=LOSS_TOLERANCE, abs_tol=1e-5)
        }

    def _wrong_gradients(self, wanted: float) -> dict[str, str]:
        gradients = {peer: samples[-1]["gradient"] for peer, samples in self.samples.items()}
        return {
            peer: f"gradient {gradient:.6g}, wanted {wanted:.6g}"
            for peer, gradient in gradients.items()
            if not math.isclose(
                gradient, wanted, rel_tol=GRADIENT_TOLERANCE, abs_tol=SMALLEST_NORMAL
            )
        }


def measure(
    workload: Workload, peers: Sequence[str], interpreters: Interpreters, rounds: int
) -> Result:
    """Run a workload in every peer that can, interleaved."""
    arguments = ["--workload", workload.name]
    if workload.depth is not None:
        arguments += ["--depth", str(workload.depth)]

    def start(peer: str) -> Worker:
        return Worker(interpreters.of(peer), peer, *arguments)

    result = Result(workload)
    if workload.depth is None:
        _measure_in_lasting_workers(result, peers, start, rounds)
    else:
        _measure_in_fresh_workers(result, peers, start, min(rounds, MOST_FRESH_ROUNDS))
    return result


def _measure_in_lasting_workers(
    result: Result, peers: Sequence[str], start: Callable[[str], Worker], rounds: int
) -> None:
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for peer in peers:  # one at a time: the warm-ups must not disturb one another
            try:
                workers[peer] = stack.enter_context(start(peer))
            except WorkerError as error:
                result.failures[peer] = str(error)
                continue
            result.hellos[peer] = workers[peer].hello
        _interleave(result, list(workers), lambda peer: workers[peer].sample(), rounds)


def _measure_in_fresh_workers(
    result: Result, peers: Sequence[str], start: Callable[[str], Worker], rounds: int
) -> None:
    def sample(peer: str) -> dict[str, Any]:
        with start(peer) as worker:
            result.hellos[peer] = worker.hello
            return worker.sample()

    _interleave(result, peers, sample, rounds)


def _interleave(
    result: Result, peers: Sequence[str], sample: Callable[[str], dict[str, Any]], rounds: int
) -> None:
    for _, peer in take_turns(peers, rounds):
        if peer in result.failures:
            continue
        try:
            result.samples.setdefault(peer, []).append(sample(peer))
        except WorkerError as error:
            result.failures[peer] = str(error)
            del result.samples[peer]
