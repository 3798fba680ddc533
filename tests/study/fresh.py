"""An experiment whose samples say in which process and under which settings they were taken."""

import os

import numpy as np

from study.contract import Case

NAME = "fresh"
QUESTION = "Where is a sample taken?"
SYSTEMS = ("numpy", "taped")
HYPOTHESES = ()
FRESH = True
ROUNDS = 3
TOLERANCE = 0.0


def configs(quick):
    return [{}]


def build(system, config):
    def sample():
        return {
            "process": os.getpid(),
            "cpus": len(os.sched_getaffinity(0)),
            "threads": float(os.environ["OMP_NUM_THREADS"]),
            "choices": sum(name.startswith("OPENBLAS_CORE") for name in os.environ),
        }

    counts = {"process": os.getpid()}
    return Case(answer=lambda: {"one": np.ones(1)}, counts=counts, sample=sample)


def reference(config):
    return {"one": np.ones(1)}


def pictures(records):
    return []
