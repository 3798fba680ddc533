"""One system of the study in a process of its own.

It reads requests and answers them, JSON lines both: ``build`` makes a case and compares its answer
with the reference, ``sample`` takes a sample of it, ``reference`` computes what is wanted. The
first line says that it is there.
"""

import argparse
import gc
import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not the folder of this file

import numpy as np

from harness.machine import end_with_parent, pin_to_one_cpu, private_stdout
from harness.sampling import both_clocks, calibrate, repeated
from study.contract import Case, Config, Experiment, NotApplicable, optional
from study.records import number_to_json

EXPERIMENTS = Path(__file__).with_name("experiments")
REFERENCE = "reference"
"""In place of a system's name: the process that computes references."""


def experiment_names() -> list[str]:
    """Return the names of the study's experiments, in the order of their files."""
    files = sorted(path.stem for path in EXPERIMENTS.glob("[!_]*.py"))
    return [name.replace("_", "-") for name in files]


def load_experiment(name: str) -> Any:
    """Import an experiment.

    Args:
        name: The name of one of the study, or the path of a file, which ends in ``.py``.
    """
    if not name.endswith(".py"):
        return importlib.import_module(f"study.experiments.{name.replace('-', '_')}")
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(name).stem] = module
    spec.loader.exec_module(module)
    return module


class WrongAnswer(Exception):
    """An answer is not the reference; `fields` say what came and what was wanted."""

    def __init__(self, name: str, came: Any, wanted: Any, error: float, tolerance: float) -> None:
        super().__init__(
            f"{name}: {came} came, {wanted} was wanted; the relative error is {error:.3g}, "
            f"at most {tolerance:g} is right"
        )
        self.fields = {
            "name": name,
            "came": came,
            "wanted": wanted,
            "relative_error": number_to_json(error),
            "tolerance": tolerance,
        }


def compare(
    answer: Mapping[str, Any], reference: Mapping[str, Any], tolerance: float
) -> dict[str, float]:
    """Return the relative error of each array of an answer: |error| / |reference|, both largest.

    Args:
        answer: Arrays by name.
        reference: What they should be. NaN and infinity are right where they are wanted.
        tolerance: The largest relative error.

    Raises:
        WrongAnswer: One is missing, has another shape, or a larger error.
    """
    errors = {}
    for name, wanted in reference.items():
        if name not in answer:
            raise WrongAnswer(name, "nothing", f"shape {np.shape(wanted)}", np.inf, tolerance)
        came, wanted = np.asarray(answer[name], np.float64), np.asarray(wanted, np.float64)
        if came.shape != wanted.shape:
            shapes = f"shape {came.shape}", f"shape {wanted.shape}"
            raise WrongAnswer(name, *shapes, np.inf, tolerance)
        if not wanted.size:
            errors[name] = 0.0
            continue
        finite = np.isfinite(wanted)
        scale = np.max(np.abs(wanted), where=finite, initial=0.0)
        with np.errstate(invalid="ignore"):
            error = np.abs(came - wanted) / (scale or 1.0)
        same = (came == wanted) | (np.isnan(came) & np.isnan(wanted))
        error = np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf))
        worst = np.unravel_index(np.argmax(error), error.shape)
        errors[name] = float(error[worst])
        if errors[name] > tolerance:
            place = "".join(f"[{index}]" for index in worst)
            values = number_to_json(came[worst]), number_to_json(wanted[worst])
            raise WrongAnswer(name + place, *values, errors[name], tolerance)
    return errors


class System:
    """A system of an experiment, with one case at a time.

    Args:
        experiment: The module.
        system: The name of the system.
        seconds: Of a block.
    """

    def __init__(self, experiment: Experiment, system: str, seconds: float) -> None:
        self._experiment, self._system, self._seconds = experiment, system, seconds
        self._case: Case | None = None
        self._run: Callable[[int], Any] | None = None
        self._repeats = 1

    def build(
        self, config: Config, reference: str | None, check: bool, repeats: int | None
    ) -> dict[str, Any]:
        """Build a case, and compare its answer with the reference.

        Args:
            config: Its config.
            reference: The file that has what is wanted, or None where there is nothing to compare.
            check: Whether the answer is computed.
            repeats: Of a block, where an earlier session has calibrated it.
        """
        self._case = self._run = None
        gc.collect()
        case = self._experiment.build(self._system, dict(config))
        if case.step is None and case.sample is None:
            raise TypeError(f"{self._system}: the case has neither step nor sample; one is needed")
        errors = None
        if check and case.answer is not None:
            answer = case.answer()
            if reference is not None:
                errors = compare(answer, dict(np.load(reference)), self._tolerance(config))
        elif check and reference is not None:
            raise TypeError(f"{self._system}: the case has no answer, but there is a reference")
        counts = case.counts() if callable(case.counts) else case.counts
        if case.step is not None and case.sample is None:
            self._run = repeated(case.step)
            self._repeats = self._warm_up(self._run, repeats)
        self._case = case
        return {"check": errors and _numbers(errors), "counts": _numbers(counts)}

    def _warm_up(self, run: Callable[[int], Any], repeats: int | None) -> int:
        """Return the repeats of a block; what needs a fresh process is cold, a block of one."""
        if self._experiment.FRESH:
            return 1
        if repeats is None:
            return calibrate(run, self._seconds)
        run(repeats)
        return repeats

    def _tolerance(self, config: Config) -> float:
        tolerance = self._experiment.TOLERANCE
        return tolerance(self._system, dict(config)) if callable(tolerance) else tolerance

    def sample(self) -> dict[str, Any]:
        """Take a sample of the case that was built last."""
        assert self._case is not None
        if self._run is None:
            assert self._case.sample is not None
            return {"metrics": _numbers(self._case.sample())}
        took = both_clocks(self._run, self._repeats)
        metrics = {"seconds": took["wall"], "cpu_seconds": took["cpu"], "repeats": self._repeats}
        return {"metrics": metrics}

    def reference(self, config: Config, file: str) -> dict[str, Any]:
        """Write what is wanted to a file of arrays, and say whether there is anything."""
        wanted = self._experiment.reference(dict(config))
        if wanted is None:
            return {"file": None}
        np.savez(file, **{name: np.asarray(v, np.float64) for name, v in wanted.items()})
        return {"file": file}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request; what goes wrong is an answer too, with a `status`."""
        action = {"build": self.build, "sample": self.sample, "reference": self.reference}
        try:
            return action[request.pop("do")](**request)
        except WrongAnswer as wrong:
            return {"status": "wrong", "message": str(wrong), "wrong": wrong.fields}
        except NotApplicable as missing:
            return {"status": "absent", "message": str(missing)}
        except MemoryError as error:
            return {"status": "out-of-memory", "message": f"MemoryError: {error}"}
        except Exception as error:
            traceback.print_exc()
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}, line {where.lineno}"
            return {"status": "error", "message": f"{type(error).__name__}: {error} ({place})"}


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: number_to_json(value) for name, value in values.items()}


def main() -> None:
    """Answer requests until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, help="the system")
    parser.add_argument("--experiment", required=True)
    parser.add_argument("--seconds", type=float, required=True, help="of a block")
    arguments = parser.parse_args()
    answers = private_stdout()
    end_with_parent()
    experiment = load_experiment(arguments.experiment)
    if optional(experiment, "PINNED") and arguments.peer != REFERENCE:
        pin_to_one_cpu()
    system = System(experiment, arguments.peer, arguments.seconds)
    answers.write(json.dumps({"process": os.getpid()}) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(system.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
