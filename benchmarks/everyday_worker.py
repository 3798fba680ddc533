"""One peer of `everyday.py` in one process; reads names of cases, answers with JSON lines."""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.everyday_cases import everyday_inputs
from harness.machine import pin_to_one_cpu, private_stdout
from harness.sampling import block, calibrate, repeated

BLOCK_SECONDS = 0.03


def _digest(result: Any) -> float:
    """A number that differs where results differ: a sum with irregular weights."""
    total = 0.0
    for n, part in enumerate(result if isinstance(result, (list, tuple)) else [result]):
        flat = np.asarray(part, np.float64).reshape(-1)
        total += float(flat @ np.cos(np.arange(flat.size) + n))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=("odyssey", "torch"), required=True)
    module = importlib.import_module(f"peers.everyday_{parser.parse_args().peer}")
    answers = private_stdout()
    pin_to_one_cpu()
    cases: dict[str, Callable[[], Any]] = module.cases(everyday_inputs())
    blocks: dict[str, tuple[Callable[[int], Any], int]] = {}
    answers.write("{}\n")
    answers.flush()
    for line in sys.stdin:
        name = line.strip()
        if name not in blocks:
            run = repeated(cases[name])
            blocks[name] = run, calibrate(run, BLOCK_SECONDS, time.process_time)
        cpu = block(*blocks[name], time.process_time)
        result = cases[name]()
        answers.write(json.dumps({"cpu": cpu, "digest": _digest(result)}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
