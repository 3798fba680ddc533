"""Running experiments: worker processes in turns, rounds, second attempts, failures as records."""

import json
import os
import platform
import random
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from harness.machine import hardware, memory_bytes
from harness.processes import (
    BENCHMARKS,
    Interpreters,
    Worker,
    WorkerError,
    WorkerOutOfMemory,
    WorkerTimeout,
    measured_environment,
)
from harness.sampling import take_turns
from study.contract import LIBRARIES, optional
from study.record_file import RecordFile
from study.records import NOISY_CLOCKS, RecordsError, clock_difference, estimate_of
from study.worker import REFERENCE

BLOCK_SECONDS, QUICK_BLOCK_SECONDS = 0.1, 0.02
MOST_ATTEMPTS = 2
SCRIPT = "study/worker.py"
_PROBE = """
import importlib.metadata, json, platform
found = {"python": platform.python_version()}
for name in ("numpy", "odyssey", "torch", "jax", "autograd"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(slots=True)
class Settings:
    """How a study is run.

    Args:
        quick: Fewer rounds, shorter blocks, no second attempts.
        seed: Of the order of configs.
        interpreters: Which Python runs which library.
        environment: Variables of all workers.
        say: Called with a line of progress.
    """

    quick: bool
    seed: int
    interpreters: Interpreters
    environment: dict[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = print

    def python_of(self, library: str) -> str:
        """Return the path of the interpreter; NumPy by hand runs beside odyssey."""
        return self.interpreters.of("odyssey" if library == "numpy" else library)


def library_of(system: str) -> str:
    """Return the library that a system needs."""
    return LIBRARIES.get(system, "odyssey")


def library_versions(settings: Settings) -> dict[str, str]:
    """Return the versions of what is installed, each in its interpreter, by name.

    Raises:
        RecordsError: An interpreter cannot be started.
    """
    by_python: dict[str, dict[str, str]] = {}
    versions = {}
    for library in dict.fromkeys([*LIBRARIES.values(), "python"]):
        python = settings.python_of("odyssey" if library == "python" else library)
        if python not in by_python:
            by_python[python] = _probe(python)
        if library in by_python[python]:
            versions[library] = by_python[python][library]
    versions["odyssey"] = odyssey_version(versions.get("odyssey"))
    return versions


def _probe(python: str) -> dict[str, str]:
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], env=measured_environment(), capture_output=True, check=True
        )
    except OSError as error:
        raise RecordsError(
            f"--peer-python: {python} cannot be started ({error.strerror}); the path of a Python "
            "interpreter is wanted"
        ) from error
    except subprocess.CalledProcessError as error:
        raise RecordsError(
            f"--peer-python: {python} does not list its packages: "
            f"{error.stderr.decode(errors='replace').strip()[-200:]}"
        ) from error
    found: dict[str, str] = json.loads(done.stdout)
    return found


def odyssey_version(installed: str | None) -> str:
    """Return the version of odyssey with its commit, and whether files differ from it."""
    about = (BENCHMARKS.parent / "odyssey" / "__init__.py").read_text(encoding="utf-8")
    declared = [line for line in about.splitlines() if line.startswith("__version__")]
    version = declared[0].split('"')[1] if declared else installed or "unknown"
    command = [
        "git",
        "-C",
        str(BENCHMARKS.parent),
        "describe",
        "--always",
        "--dirty",
        "--exclude=*",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return version
    return f"{version}+{done.stdout.strip()}"


def machine_record() -> dict[str, Any]:
    """Return the machine as a record of a run has it."""
    known = hardware()
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "cpu": known["cpu"],
        "cores": known["cpu_count"],
        "memory": memory_bytes(),
        "system": known["system"],
        "architecture": known["architecture"],
        "kernel": platform.release(),
        "governor": governor.read_text().strip() if governor.is_file() else None,
        "threads": 1,
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


class Study:
    """A run of experiments into a file of records.

    Args:
        file: Where the records go, with those of before.
        settings: How they are run.
    """

    def __init__(self, file: RecordFile, settings: Settings) -> None:
        self.file, self.settings = file, settings
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        caches = {"ODYSSEY_CACHE": "odyssey", "TORCHINDUCTOR_CACHE_DIR": "torch"}
        self.environment = {
            # A cache that was chosen stays; otherwise nothing is left of earlier runs.
            **{name: os.environ.get(name, str(self.folder / c)) for name, c in caches.items()},
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
            **settings.environment,
        }
        self.installed = file.header["versions"]

    def run(self, experiment: Any, name: str) -> None:
        """Run an experiment, but for what the file has.

        Args:
            experiment: The module.
            name: Its name, or the path of its file.
        """
        _check_experiment(experiment)
        configs = [dict(config) for config in experiment.configs(self.settings.quick)]
        random.Random(f"{self.settings.seed} {experiment.NAME}").shuffle(configs)
        with Run(self, experiment, name) as run:
            for number, config in enumerate(configs, 1):
                _check_config(experiment, config)
                progress = f"{experiment.NAME} {number}/{len(configs)}"
                text = " ".join(f"{key}={value}" for key, value in config.items())
                self.settings.say(f"{progress} {text}: {run.measure(config)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _check_experiment(experiment: Any) -> None:
    wanted = (
        *("NAME", "QUESTION", "SYSTEMS", "HYPOTHESES", "FRESH", "ROUNDS", "TOLERANCE"),
        *("configs", "build", "reference", "pictures"),
    )
    missing = [name for name in wanted if not hasattr(experiment, name)]
    if missing:
        raise TypeError(f"{experiment.__name__}: an experiment needs {', '.join(missing)}")


def _check_config(experiment: Any, config: dict[str, Any]) -> None:
    if {"system", "base", "metric"} & set(config) or json.loads(json.dumps(config)) != config:
        raise TypeError(
            f"{experiment.NAME}: the config {config} came; JSON values by names other than system, "
            "base and metric were wanted (lists, not tuples)"
        )


class Run:
    """One experiment of a study, with its worker processes."""

    def __init__(self, study: Study, experiment: Any, name: str) -> None:
        self._study, self._experiment, self._name = study, experiment, name
        self._settings, self._file = study.settings, study.file
        self._workers: dict[str, Worker] = {}
        self._built: dict[str, dict[str, Any]] = {}
        self._reference: str | _Failure | None = None
        self._rounds = experiment.ROUNDS
        if self._settings.quick:
            fewer = optional(experiment, "QUICK_ROUNDS") or (1 if experiment.FRESH else 3)
            self._rounds = min(fewer, experiment.ROUNDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for worker in self._workers.values():
            worker.close() if kind is None else worker.kill()

    # ------------------------------------------------------------------ one config

    def measure(self, config: dict[str, Any]) -> str:
        """Measure all systems at a config, in turns; return a line that says what came."""
        self._built, self._reference = {}, None
        systems = [system for system in self._experiment.SYSTEMS if self._is_there(system)]
        attempt = max((line.get("attempt", 0) for line in self._lines(config)), default=0)
        while True:
            self._measure_attempt(systems, config, attempt)
            last = self._settings.quick or attempt + 1 >= MOST_ATTEMPTS
            if last or not self._was_disturbed(config, attempt):
                return self._summary(config, attempt)
            attempt += 1

    def _measure_attempt(self, systems: list[str], config: dict[str, Any], attempt: int) -> None:
        done = {
            (line["round"], line["system"])
            for line in self._lines(config)
            if line["status"] == "ok" and line["attempt"] == attempt
        }
        for number, system in take_turns(systems, self._rounds):
            if (number, system) in done or self._failed(system, config):
                continue
            where = {"attempt": attempt, "round": number}
            try:
                sample = self._sample(system, config, systems)
            except _Failure as failure:
                self._record_failure(system, config, failure.fields, where)
                continue
            if sample is not None:
                self._record_sample(system, config, sample, where)

    def _sample(
        self, system: str, config: dict[str, Any], systems: list[str]
    ) -> dict[str, Any] | None:
        """Take a sample; return None where another failure was recorded on the way to it."""
        if system not in self._built:
            # All are built before the first is timed: their warm-ups disturb the others.
            for other in systems if not self._experiment.FRESH else [system]:
                if other not in self._built and not self._failed(other, config):
                    try:
                        self._built[other] = self._build(other, config, check=True)
                    except _Failure as failure:
                        self._record_failure(other, config, failure.fields, {})
            if self._failed(system, config):
                return None
            if self._experiment.FRESH:
                self._end(system)
        if not self._experiment.FRESH:
            return self._ask(system, {"do": "sample"})
        try:
            self._build(system, config, check=False)
            return self._ask(system, {"do": "sample"})
        finally:
            self._end(system)

    def _build(self, system: str, config: dict[str, Any], check: bool) -> dict[str, Any]:
        if check and self._reference is None:
            self._reference = self._reference_file(config)
        if isinstance(self._reference, _Failure):
            raise self._reference
        request = {
            "do": "build",
            "config": config,
            "check": check,
            "reference": self._reference if check and self._reference else None,
            "repeats": self._known_repeats(system, config),
        }
        return self._ask(system, request)

    def _reference_file(self, config: dict[str, Any]) -> "str | _Failure":
        """Return the file of the reference's arrays, an empty text where there is none.

        Without a reference that was to be there nobody is measured: the failure is everybody's.
        """
        file = str(self._study.folder / "reference.npz")
        request = {"do": "reference", "config": config, "file": file}
        try:
            return self._ask(REFERENCE, request)["file"] or ""
        except _Failure as failure:
            message = f"the reference failed: {failure}"
            return _Failure(**{**failure.fields, "message": message})

    def _known_repeats(self, system: str, config: dict[str, Any]) -> int | None:
        """Repeats of a block that an earlier session has calibrated."""
        for line in reversed(self._lines(config)):
            if line["system"] == system and line["status"] == "ok":
                repeats: int | None = line["metrics"].get("repeats")
                return None if self._experiment.FRESH else repeats
        return None

    # ------------------------------------------------------------------ workers

    def _ask(self, system: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if system not in self._workers:
                self._workers[system] = self._start(system)
            answer = self._workers[system].sample(json.dumps(request))
        except WorkerTimeout as error:
            self._end(system)
            raise _Failure("timeout", str(error)) from error
        except WorkerOutOfMemory as error:
            self._end(system)
            raise _Failure("out-of-memory", str(error)) from error
        except WorkerError as error:
            self._end(system)
            raise _Failure("error", str(error)) from error
        if "status" in answer:
            if answer["status"] in ("error", "out-of-memory"):
                self._end(system)  # who knows what is left of it
            raise _Failure(**answer)
        return answer

    def _start(self, system: str) -> Worker:
        library = "numpy" if system == REFERENCE else library_of(system)
        seconds = QUICK_BLOCK_SECONDS if self._settings.quick else BLOCK_SECONDS
        return Worker(
            self._settings.python_of(library),
            system,
            *("--experiment", self._name, "--seconds", str(seconds)),
            script=SCRIPT,
            environment=self._study.environment,
            timeout=optional(self._experiment, "TIMEOUT"),
            memory=optional(self._experiment, "MEMORY"),
        )

    def _end(self, system: str) -> None:
        worker = self._workers.pop(system, None)
        if worker is not None:
            worker.kill()

    # ------------------------------------------------------------------ records

    def _lines(self, config: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Records of this experiment at a config; those of no config where none is given."""
        return self._file.at(self._experiment.NAME, config or {})

    def _is_there(self, system: str) -> bool:
        """Return whether a system can run; record it as absent where its library is not there."""
        if any(line["system"] == system and line["status"] == "absent" for line in self._lines()):
            return False
        library = library_of(system)
        if library in self._study.installed:
            return True
        python = self._settings.python_of(library)
        message = f"{library} is not installed for {python}; --peer-python chooses another"
        self._record_failure(system, {}, {"status": "absent", "message": message}, {})
        return False

    def _failed(self, system: str, config: dict[str, Any]) -> bool:
        lines = self._lines(config)
        return any(line["system"] == system and line["status"] != "ok" for line in lines)

    def _record_sample(
        self,
        system: str,
        config: dict[str, Any],
        sample: dict[str, Any],
        where: dict[str, int],
    ) -> None:
        built = self._built[system]
        record = {
            "experiment": self._experiment.NAME,
            "system": system,
            "config": config,
            **where,
            "status": "ok",
            "metrics": sample["metrics"],
            "counts": built["counts"],
            "check": built["check"],
        }
        try:
            self._file.append(record)
        except ValueError as error:
            fields = {"status": "error", "message": f"no record can be made of it: {error}"}
            self._record_failure(system, config, fields, where)

    def _record_failure(
        self,
        system: str,
        config: dict[str, Any],
        fields: dict[str, Any],
        where: dict[str, int],
    ) -> None:
        head = {"experiment": self._experiment.NAME, "system": system, "config": config}
        record = {**head, **where, **fields}
        self._file.append(record)
        self._settings.say(
            f"{self._experiment.NAME}: {system}: {fields['status']}: {fields['message']}"
        )

    # ------------------------------------------------------------------ noise

    def _samples(self, config: dict[str, Any], attempt: int) -> dict[str, list[dict[str, Any]]]:
        by_system: dict[str, list[dict[str, Any]]] = {}
        for line in self._lines(config):
            measured = line["status"] == "ok" and line["attempt"] == attempt
            if measured and not self._failed(line["system"], config):
                by_system.setdefault(line["system"], []).append(line["metrics"])
        return by_system

    def _was_disturbed(self, config: dict[str, Any], attempt: int) -> bool:
        """Return whether a system waited for another process: its clocks differ.

        A wide interval is no reason: further samples of a machine whose speed varies vary as much.
        """
        by_system = self._samples(config, attempt)
        return any(clock_difference(samples) > NOISY_CLOCKS for samples in by_system.values())

    def _summary(self, config: dict[str, Any], attempt: int) -> str:
        parts = []
        for system, samples in self._samples(config, attempt).items():
            times = _times(samples)
            if not times:
                parts.append(system)
                continue
            estimate = estimate_of(times, clock_difference(samples))
            parts.append(f"{system} {estimate.median:.3g} s{' (noisy)' * estimate.noisy}")
        return ", ".join(parts) or "nothing measured"


class _Failure(Exception):
    """A sample was not taken; `fields` are those of its record."""

    def __init__(self, status: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.fields = {"status": status, "message": message, **more}


def _times(samples: Sequence[dict[str, Any]]) -> list[float]:
    """Processor seconds of samples, or elapsed ones; empty where there are neither."""
    for clock in ("cpu_seconds", "seconds"):
        times = [metrics[clock] for metrics in samples if clock in metrics]
        if times and not any(isinstance(time, str) for time in times):
            return times
    return []
