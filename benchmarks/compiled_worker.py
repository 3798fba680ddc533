"""One implementation and one workload of `compiled.py` in one process; answers with JSON lines.

The first line says what it took to start: building the step and five steps, above what five steps
take later. Each line read then is answered by the time of a step, from a block of steps.
"""

import argparse
import importlib
import json
import sys
import time
from itertools import cycle
from typing import Any

from harness.compiled_cases import CASES, batches_of, parameters_of
from harness.machine import PeakMemory, pin_to_one_cpu, private_stdout
from harness.sampling import both_clocks, calibrate, processor_seconds

BLOCK_SECONDS = 0.15
FIRST = 5
MODULES = {
    "eager": "compiled_odyssey",
    "compiled": "compiled_odyssey",
    "torch": "compiled_torch",
    "torch.compile": "compiled_torch",
    "jax": "compiled_jax",
    "pytensor": "compiled_pytensor",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=MODULES, required=True)
    parser.add_argument("--workload", choices=CASES, required=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    answers = private_stdout()

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    if arguments.threads == 1:
        pin_to_one_cpu()
    name, kind = arguments.workload, arguments.peer
    module = importlib.import_module(f"peers.{MODULES[kind]}")
    parameters, batches = parameters_of(name), batches_of(name)
    peak = PeakMemory()
    start = time.perf_counter(), processor_seconds()
    step = module.build(name, kind, parameters, arguments.threads)
    turns = cycle(batches)
    result: Any = None

    def run(steps: int) -> None:
        nonlocal result
        for _ in range(steps):
            result = step(*next(turns))

    run(FIRST)
    loss = module.number(result)
    first = time.perf_counter() - start[0], processor_seconds() - start[1]
    steps = calibrate(run, BLOCK_SECONDS, most=CASES[name].most)
    later = [both_clocks(run, steps) for _ in range(3)]
    extra = {
        clock: seconds - FIRST * min(took[clock] for took in later)
        for clock, seconds in zip(("wall", "cpu"), first, strict=True)
    }
    say({"loss": loss, "start": extra, "steps": steps})
    for _ in sys.stdin:
        say({**both_clocks(run, steps), "peak": peak.above_base()})


if __name__ == "__main__":
    main()
