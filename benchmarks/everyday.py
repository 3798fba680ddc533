"""Everyday calls beside PyTorch eager, in float64: indexing, activations, scans, whole matrices.

    python benchmarks/everyday.py
    python benchmarks/everyday.py --case take,gelu --rounds 31 --peer-python path/to/python

For each case, odyssey and PyTorch take turns on one CPU, with one thread; what is shown are the
medians of process time in microseconds, and their ratio. ``value_and_grad`` is held against the
same network on a tape of odyssey's own.
"""

import argparse
import statistics
import sys
from contextlib import ExitStack

from harness.everyday_cases import BASES, CASES
from harness.interleave import BASE
from harness.machine import hardware, set_blas_choices_aside
from harness.processes import Interpreters, Worker, WorkerError
from harness.sampling import take_turns


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--case", default=",".join(CASES), help="comma-separated (default: all)")
    add("--rounds", type=int, default=15, help="samples of each peer")
    add("--peer-python", action="append", default=[], metavar="[PEER=]PYTHON")
    return parser.parse_args()


def main() -> int:
    """Run; the exit status is 1 where a worker fails, or gradients differ."""
    arguments = _parse_arguments()
    cases = arguments.case.split(",")
    if unknown := set(cases) - set(CASES):
        raise SystemExit(f"unknown: {', '.join(unknown)}; choose from {', '.join(CASES)}")
    set_blas_choices_aside()
    interpreters = Interpreters(arguments.peer_python)
    print(", ".join(str(value) for value in hardware().values()) + "; one thread, float64")
    print(f"{'case':<20}{'odyssey us':>12}{'base us':>12}{'ratio':>8}{'bar':>6}  base")
    sound = True
    with ExitStack() as stack:
        try:
            workers = {
                peer: stack.enter_context(Worker(interpreters.of(peer), peer, script=SCRIPT))
                for peer in ("odyssey", BASE)
            }
            for case in cases:
                sound = _show(case, workers, arguments.rounds) and sound
        except WorkerError as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    return 0 if sound else 1


SCRIPT = "everyday_worker.py"


def _show(case: str, workers: dict[str, Worker], rounds: int) -> bool:
    """Measure one case and print its line; return whether the two agree."""
    base_peer, base_case = BASES.get(case, (BASE, case))
    asked = [("odyssey", case), (base_peer, base_case)]
    times: list[list[float]] = [[], []]
    digests = [0.0, 0.0]
    for k, which in take_turns((1, 0), rounds + 1):
        peer, name = asked[which]
        answer = workers[peer].sample(name)
        digests[which] = answer["digest"]
        if k:  # the first one warms up
            times[which].append(answer["cpu"])
    ours, theirs = (statistics.median(t) for t in times)
    agrees = abs(digests[0] - digests[1]) <= 1e-9 * (1 + abs(digests[1]))
    note = "" if agrees else f"  DISAGREES: {digests[0]} and {digests[1]}"
    print(
        f"{case:<20}{ours * 1e6:>12.1f}{theirs * 1e6:>12.1f}{ours / theirs:>8.2f}"
        f"{CASES[case]:>6.2f}  {base_peer}{note}",
        flush=True,
    )
    return agrees


if __name__ == "__main__":
    sys.exit(main())
