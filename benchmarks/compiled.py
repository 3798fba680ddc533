"""Compiled training steps beside PyTorch (eager and compiled), JAX and PyTensor.

    python benchmarks/compiled.py
    python benchmarks/compiled.py --workload W1,W2 --peer eager,compiled,torch --rounds 15
    python benchmarks/compiled.py --threads 2 --workload W3,W4,W6
    python benchmarks/compiled.py --peer-python PYTHON --pytensor-python PYTHON --json results.jsonl

Every implementation runs in a process of its own, and they take turns. Shown are medians of
process time per step (with more than one thread: of elapsed time) and of its ratios to PyTorch
eager in the same round, with their range. Each starts twice, from an empty cache on disk and again:
`cold` and `warm` are the CPU seconds of building the step and five steps, above what five steps
take later. `MB` is the peak of resident memory above what was resident after the imports.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from contextlib import ExitStack
from typing import Any

from harness.compiled_cases import CASES, Case
from harness.machine import ONE_THREAD, hardware, set_blas_choices_aside
from harness.processes import Interpreters, Worker, WorkerError
from harness.sampling import take_turns

SCRIPT = "compiled_worker.py"
KINDS = ("eager", "compiled", "torch", "torch.compile", "jax", "pytensor")
BASE = "torch"
LOSS_TOLERANCE = 2e-3
_ROW = "  {:<15}{:>11}{:>11}{:>9}  {:<19}{:>8}{:>8}{:>8}{:>8}"


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workload", default=",".join(CASES), help="comma-separated (default: all)")
    add("--peer", default=",".join(KINDS), help="comma-separated (default: all)")
    add("--rounds", type=int, default=9, help="samples of each implementation")
    add("--threads", type=int, default=1, help="threads of each implementation")
    add("--peer-python", metavar="PYTHON", help="an interpreter with torch and jax")
    add("--pytensor-python", metavar="PYTHON", help="an interpreter with pytensor and numba")
    add("--json", metavar="FILE", help="append one JSON line for each implementation")
    arguments = parser.parse_args()
    for asked, known in ((arguments.workload, CASES), (arguments.peer, KINDS)):
        if unknown := set(asked.split(",")) - set(known):
            parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    return arguments


def _interpreter(arguments: argparse.Namespace, kind: str) -> str:
    if kind in ("eager", "compiled"):
        return sys.executable
    if kind == "pytensor":
        return arguments.pytensor_python or sys.executable
    return arguments.peer_python or Interpreters().of(kind.partition(".")[0])


def environment(threads: int, cache: str) -> dict[str, str]:
    """Threads, and where each library keeps what it compiled."""
    found = dict.fromkeys(ONE_THREAD, str(threads))
    found |= {
        "ODYSSEY_CACHE": f"{cache}/odyssey",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torch",
        "JAX_COMPILATION_CACHE_DIR": f"{cache}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTENSOR_FLAGS": f"base_compiledir={cache}/pytensor",
        "NUMBA_CACHE_DIR": f"{cache}/numba",
    }
    if threads == 1:
        found["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return found


class Measured:
    """What was measured of one implementation."""

    def __init__(self, cold: dict[str, Any], worker: Worker) -> None:
        self.cold, self.warm = cold["start"], worker.hello["start"]
        self.loss = worker.hello["loss"]
        self.worker = worker
        self.samples: list[dict[str, float]] = []

    def times(self, clock: str) -> list[float]:
        return [sample[clock] for sample in self.samples]

    def ratios(self, base: "Measured", clock: str) -> list[float]:
        return [a / b for a, b in zip(self.times(clock), base.times(clock), strict=True)]


def measure(
    name: str, kinds: list[str], arguments: argparse.Namespace
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Run a workload in every implementation that can, interleaved; and say what could not."""
    found: dict[str, Measured] = {}
    failures: dict[str, str] = {}
    with ExitStack() as stack:
        for kind in kinds:  # one at a time: the warm-ups must not disturb one another
            cache = stack.enter_context(tempfile.TemporaryDirectory())
            settings = environment(arguments.threads, cache)
            given = ("--workload", name, "--threads", str(arguments.threads))
            python = _interpreter(arguments, kind)
            try:
                with Worker(python, kind, *given, script=SCRIPT, environment=settings) as first:
                    cold = first.hello
                again = Worker(python, kind, *given, script=SCRIPT, environment=settings)
                found[kind] = Measured(cold, stack.enter_context(again))
            except WorkerError as error:
                failures[kind] = str(error)
        for _, kind in take_turns(found, arguments.rounds):
            found[kind].samples.append(found[kind].worker.sample())
    return found, failures


def show(name: str, found: dict[str, Measured], failures: dict[str, str], clock: str) -> bool:
    """Print the table of a workload; return whether all did the same work."""
    case = CASES[name]
    print(f"\n{name}: {case.title}")
    head = ("", "us", "fastest", "/torch", "range", "/eager", "cold s", "warm s", "MB")
    print(_ROW.format(*head).rstrip())
    sound = True
    for kind, one in found.items():
        print(_ROW.format(kind, *_figures(found, one, clock)))
        wanted = found.get(BASE, next(iter(found.values()))).loss
        if not math.isclose(one.loss, wanted, rel_tol=LOSS_TOLERANCE, abs_tol=1e-5):
            print(f"  DISAGREES: {kind}: {one.loss:.6g} after 5 steps, {wanted:.6g} was wanted")
            sound = False
    if "compiled" in found:
        print(f"  compiled: {_verdict(case, found, clock)}")
    for kind, failure in failures.items():
        print(f"  not measured: {kind}: {failure}")
    sys.stdout.flush()
    return sound


def _figures(found: dict[str, Measured], one: Measured, clock: str) -> list[str]:
    times = one.times(clock)
    figures = [f"{statistics.median(times) * 1e6:.2f}", f"{min(times) * 1e6:.2f}"]
    if BASE in found:
        ratios = one.ratios(found[BASE], clock)
        figures += [f"{statistics.median(ratios):.4f}", f"[{min(ratios):.4f} {max(ratios):.4f}]"]
    else:
        figures += ["-", "-"]
    eager = found.get("eager")
    figures.append(f"{statistics.median(one.ratios(eager, clock)):.3f}" if eager else "-")
    peak = one.samples[-1]["peak"]
    figures += [f"{one.cold['cpu']:.3f}", f"{one.warm['cpu']:.3f}"]
    return [*figures, "-" if peak is None else f"{peak / 2**20:.1f}"]


def _verdict(case: Case, found: dict[str, Measured], clock: str) -> str:
    """Whether the compiled step keeps to what the project wants of it."""
    bars = {BASE: case.bar, "eager": case.bar_eager, **dict.fromkeys(KINDS[3:], 1.0)}
    told = []
    for other, bar in bars.items():
        if bar is not None and other in found:
            ratio = statistics.median(found["compiled"].ratios(found[other], clock))
            met = "met" if ratio <= bar else "MISSED"
            told.append(f"{ratio:.4f} of {other}, <= {bar:g} {met}")
    return "; ".join(told)


def _write(stream: Any, name: str, found: dict[str, Measured], threads: int) -> None:
    for kind, one in found.items():
        record = {"workload": name, "implementation": kind, "threads": threads, "loss": one.loss}
        record |= {"cold": one.cold, "warm": one.warm, "samples": one.samples}
        stream.write(json.dumps({**record, "hardware": hardware()}) + "\n")
    stream.flush()


def main() -> int:
    """Run; the exit status is 1 where losses differ, or odyssey cannot be measured."""
    arguments = _parse_arguments()
    set_blas_choices_aside()
    threads, clock = arguments.threads, "cpu" if arguments.threads == 1 else "wall"
    print(", ".join(str(value) for value in hardware().values()) + f"; {threads} thread(s)")
    kinds = [kind for kind in KINDS if kind in arguments.peer.split(",")]
    sound = True
    with ExitStack() as stack:
        stream = arguments.json and stack.enter_context(open(arguments.json, "a"))
        for name in arguments.workload.split(","):
            found, failures = measure(name, kinds, arguments)
            sound = show(name, found, failures, clock) and sound
            sound = sound and not {"eager", "compiled"} & set(failures)
            if stream:
                _write(stream, name, found, threads)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
