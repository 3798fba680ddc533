"""An experiment whose clocks differ in the first samples of a process, or in all of them."""

from study.contract import Case

NAME = "noisy"
QUESTION = "Is a noisy config measured again?"
SYSTEMS = ("numpy", "taped")
HYPOTHESES = ()
FRESH = False
ROUNDS = 2
TOLERANCE = 0.0


def configs(quick):
    return [{"noisy": noisy} for noisy in (0, 2, 100)]


def build(system, config):
    left = config["noisy"] if system == "taped" else 0

    def sample():
        nonlocal left
        left -= 1
        return {"cpu_seconds": 1.0, "seconds": 1.0 if left < 0 else 1.3}

    return Case(sample=sample)


def reference(config):
    return None


def pictures(records):
    return []
