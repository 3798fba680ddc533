"""The command of the study, as its tests run it, and records as a study writes them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "study"


def study_command(out, experiment, *arguments):
    """Return the command for an experiment, or for all where it is None, and its environment."""
    command = [sys.executable, "-m", "benchmarks", "study", "--no-report", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}"}
    if experiment is not None:
        command += ["--only", str(experiment)]
    return [*command, *arguments], environment


def run_study(out, experiment, *arguments, timeout=200):
    command, environment = study_command(out, experiment, *arguments)
    settings = {"cwd": ROOT, "env": environment, "timeout": timeout}
    return subprocess.run(command, **settings, capture_output=True, text=True, check=False)


def header(**changes):
    machine = {
        **{"cpu": "a", "cores": 2, "memory": 1, "system": "Linux", "architecture": "x86_64"},
        **{"threads": 1, "load_at_start": 0.5},
    }
    versions = {"odyssey": "1+abc", "python": "3.11", "numpy": "2"}
    first = {
        **{"study": 1, "run": "0123456789ab", "session": 0, "seed": 0, "quick": False},
        **{"started": "now", "set_aside": "", "machine": machine, "versions": versions},
    }
    return {**first, **changes}


def sample(system, number, seconds, **changes):
    """Return the record of a sample of `seconds` in a round."""
    record = {
        **{"study": 1, "run": "0123456789ab", "session": 0, "experiment": "e", "system": system},
        **{"config": {"size": 1}, "attempt": 0, "round": number, "status": "ok"},
        "metrics": {"seconds": seconds, "cpu_seconds": seconds},
        **{"counts": {"nodes": 3}, "check": None},
    }
    return {**record, **changes}
