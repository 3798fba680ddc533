"""An experiment whose systems do the same work: nobody differs from anybody."""

import numpy as np

from study.contract import Case

NAME = "alike"
QUESTION = "Do systems differ that do the same?"
SYSTEMS = ("numpy", "taped")
HYPOTHESES = ()
FRESH = False
ROUNDS = 15
TOLERANCE = 1e-12


def configs(quick):
    return [{"size": size} for size in ((100, 200) if quick else (100, 200, 400, 800))]


def build(system, config):
    x = np.linspace(0, 1, config["size"])
    return Case(lambda: np.sort(x), lambda: {"square": x * x}, {"elements": x.size})


def reference(config):
    return {"square": np.linspace(0, 1, config["size"]) ** 2}


def pictures(records):
    return []
