"""One peer and one workload in one process; `run.py` starts it and asks it for samples.

It answers on standard output with JSON lines: first who it is, once it has warmed up, and then
one sample for each line that it reads.
"""

import argparse
import importlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Callable
from typing import Any, Protocol, TextIO

from harness.machine import PeakMemory, pin_to_one_cpu, private_stdout
from harness.sampling import both_clocks, calibrate
from harness.workloads import CHAIN_LENGTH, WORKLOADS, TrainingSpec
from peers import MODULES
from peers.contract import Chain, DeepChain, Training

BLOCK_SECONDS = 0.12
"""Long against the clock and the scheduler, short against the noise of a shared machine."""

LOSS_STEPS = 5
WARM_UP_DEPTH = 100


class Experiment(Protocol):
    """A workload in a peer, warm."""

    def sample(self) -> dict[str, Any]:
        """`metrics`, seconds by name and clock, and what is to be checked."""


class Stopwatch:
    """Wall time and process time, summed over laps by name."""

    def __init__(self) -> None:
        self._totals: dict[str, dict[str, float]] = {}

    def lap(self, name: str, action: Callable[[], None]) -> None:
        took = both_clocks(lambda _: action(), 1)
        total = self._totals.setdefault(name, dict.fromkeys(took, 0.0))
        for clock, seconds in took.items():
            total[clock] += seconds

    def metrics(self, divisor: int) -> dict[str, dict[str, float]]:
        return {
            name: {clock: seconds / divisor for clock, seconds in total.items()}
            for name, total in self._totals.items()
        }


class TrainingExperiment:
    """Blocks of training steps."""

    def __init__(self, training: Training) -> None:
        self._training = training
        for _ in range(LOSS_STEPS):
            training.step()
        training.finish()
        self.loss = training.loss()
        self._steps = calibrate(self._run, BLOCK_SECONDS)

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            self._training.step()
        self._training.finish()

    def sample(self) -> dict[str, Any]:
        return {"metrics": {"step": both_clocks(self._run, self._steps)}}


class ChainExperiment:
    """Blocks of a recording and its sweep; the figures are per op."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._repeats = calibrate(self._run, BLOCK_SECONDS)

    def _run(self, repeats: int) -> None:
        for _ in range(repeats):
            self._chain.record()
            self._chain.sweep()

    def sample(self) -> dict[str, Any]:
        watch = Stopwatch()
        for _ in range(self._repeats):
            watch.lap("record", self._chain.record)
            watch.lap("sweep", self._chain.sweep)
        return {"metrics": watch.metrics(self._repeats * CHAIN_LENGTH)}


class DepthExperiment:
    """One deep chain, from an empty tape to freed memory; good for one sample."""

    def __init__(self, make_chain: Callable[[int], DeepChain], depth: int) -> None:
        self._run(make_chain(WARM_UP_DEPTH), Stopwatch())
        self._chain = make_chain(depth)

    @staticmethod
    def _run(chain: DeepChain, watch: Stopwatch) -> None:
        watch.lap("forward", chain.forward)
        watch.lap("backward", chain.backward)
        watch.lap("release", chain.release)

    def sample(self) -> dict[str, Any]:
        watch = Stopwatch()
        self._run(self._chain, watch)
        metrics = watch.metrics(1)
        metrics["total"] = {
            clock: sum(part[clock] for part in metrics.values()) for clock in ("wall", "cpu")
        }
        return {"metrics": metrics, "gradient": self._chain.gradient()}


def _experiment(module: Any, name: str, training: TrainingSpec | None, depth: int) -> Experiment:
    try:
        if training is not None:
            return TrainingExperiment(module.Training(training))
        if name == "record":
            return ChainExperiment(module.Chain(CHAIN_LENGTH))
        return DepthExperiment(module.DeepChain, depth)
    except AttributeError as error:
        if error.obj is module:
            raise SystemExit(f"has no {error.name}, so it sits {name} out") from error
        raise


def _versions(library: str) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("numpy", library):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = getattr(sys.modules[name], "__version__", "unknown")
    return versions


def _say(stream: TextIO, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=MODULES, required=True)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--depth", type=int, default=0)
    arguments = parser.parse_args()
    answers = private_stdout()
    pin_to_one_cpu()
    module = importlib.import_module(MODULES[arguments.peer])
    memory = PeakMemory()
    training = WORKLOADS[arguments.workload].training
    experiment = _experiment(module, arguments.workload, training, arguments.depth)
    hello: dict[str, Any] = {"versions": _versions(arguments.peer)}
    if isinstance(experiment, TrainingExperiment):
        hello["loss"] = experiment.loss
    if isinstance(experiment, DepthExperiment):
        memory.restart()  # the warm-up loaded what the first op loads; count the graph alone
    _say(answers, hello)
    for _ in sys.stdin:
        sample = experiment.sample()
        peak = memory.above_base()
        if peak is not None:
            sample["metrics"]["memory"] = {"wall": peak}
        _say(answers, sample)


if __name__ == "__main__":
    main()
