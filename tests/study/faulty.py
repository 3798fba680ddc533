"""An experiment in which one system fails in each way that there is, and the other does not."""

import os
import signal
import time

import numpy as np

from study.contract import Case, NotApplicable

NAME = "faulty"
QUESTION = "Does a fault end the study?"
SYSTEMS = ("numpy", "taped", "torch")
HYPOTHESES = ()
FRESH = False
ROUNDS = 2
TOLERANCE = 1e-6
TIMEOUT = 8.0
MEMORY = 160 * 2**20

FAULTS = (
    *("none", "wrong", "shape", "missing", "error", "exit", "killed", "hang", "hang in a sample"),
    *("memory", "memory error", "no number", "not applicable", "prints", "reference"),
)


def configs(quick):
    return [{"fault": fault} for fault in FAULTS]


def build(system, config):
    fault = config["fault"] if system == "taped" else "none"
    if fault == "error":
        raise ValueError("the build fails")
    if fault == "exit":
        os._exit(7)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(1000)
    if fault == "memory":
        held = []
        while True:
            held.append(np.ones(2**22))
    if fault == "memory error":
        raise MemoryError("too much")
    if fault == "not applicable":
        raise NotApplicable("it cannot do this")
    if fault == "prints":
        print("{}")
    answers = {
        "wrong": {"gradient": np.array([1.0, 2.5])},
        "shape": {"gradient": np.ones(3)},
        "missing": {},
    }
    answer = answers.get(fault, {"gradient": np.array([1.0, 2.0])})

    def sample():
        if fault == "hang in a sample":
            time.sleep(1000)
        return {"error": np.inf, "metric": np.ones(2) if fault == "no number" else 1.0}

    return Case(answer=lambda: answer, sample=sample)


def reference(config):
    if config["fault"] == "reference":
        raise ValueError("nobody knows")
    return {"gradient": np.array([1.0, 2.0])}


def pictures(records):
    return []
