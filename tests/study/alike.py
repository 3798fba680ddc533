"""An experiment whose systems do the same work, but for a tenth more where it is planted."""

import numpy as np

from study.contract import Case

NAME = "alike"
QUESTION = "Do systems differ that do the same?"
SYSTEMS = ("numpy", "taped")
HYPOTHESES = ()
FRESH = False
ROUNDS = 15
QUICK_ROUNDS = 15
TOLERANCE = 1e-12


def configs(quick):
    return [{"number": number, "planted": 0} for number in range(2 if quick else 20)]


def build(system, config):
    x = np.random.default_rng(config["number"]).standard_normal(200)
    work = range(100 + (config["planted"] if system == "taped" else 0))

    def step():
        for _ in work:
            np.sort(x)

    return Case(step, lambda: {"square": x * x}, {"elements": x.size})


def reference(config):
    return {"square": np.random.default_rng(config["number"]).standard_normal(200) ** 2}


def pictures(records):
    return []
