"""One implementation and one workload of `compiled.py` in one process; answers with JSON lines.

The first line says what it took to start: building the step and five steps, above what five steps
take later. Each line read then is answered by the time of a step, from a block of steps.
"""

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from harness.compiled_cases import CASES, batches_of, parameters_of
from harness.machine import PeakMemory, pin_to_one_cpu, private_stdout

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


def clocks() -> tuple[float, float]:
    """Elapsed time, and process time with that of the processes that have ended."""
    times = os.times()
    return time.perf_counter(), time.process_time() + times.children_user + times.children_system


def measured(run: Callable[[int], Any], steps: int) -> dict[str, float]:
    wall, cpu = clocks()
    run(steps)
    after_wall, after_cpu = clocks()
    return {"wall": (after_wall - wall) / steps, "cpu": (after_cpu - cpu) / steps}


def steps_of_a_block(run: Callable[[int], Any], most: int) -> int:
    """Warm up, and return how many steps fill a block, at most ``most``."""
    steps = 1
    while True:
        elapsed = measured(run, steps)["wall"] * steps
        if elapsed >= BLOCK_SECONDS / 2 or steps >= most:
            return min(most, max(1, round(steps * BLOCK_SECONDS / elapsed)))
        steps *= 2


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
    wall, cpu = clocks()
    step = module.build(name, kind, parameters, arguments.threads)
    turns = cycle(batches)
    result: Any = None

    def run(steps: int) -> None:
        nonlocal result
        for _ in range(steps):
            result = step(*next(turns))

    run(FIRST)
    loss = module.number(result)
    start_wall, start_cpu = (b - a for a, b in zip((wall, cpu), clocks(), strict=True))
    steps = steps_of_a_block(run, CASES[name].most)
    later = [measured(run, steps) for _ in range(3)]
    start = {
        "wall": start_wall - FIRST * min(block["wall"] for block in later),
        "cpu": start_cpu - FIRST * min(block["cpu"] for block in later),
    }
    say({"loss": loss, "start": start, "steps": steps})
    for _ in sys.stdin:
        say({**measured(run, steps), "peak": peak.above_base()})


if __name__ == "__main__":
    main()
