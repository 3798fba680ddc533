"""Peak bytes against depth: the memory that recording and sweeping a deep chain takes.

    python benchmarks/peak_memory.py
    python benchmarks/peak_memory.py --depths 1000,1000000 --peer torch --json memory.jsonl

Each depth runs in a fresh process. A level of the chain is `x = x * 0.9999 + 1e-4` on 8 float32:
two ops. Bytes are the peak resident memory above that of the process with its library warm, so
the figures of short chains are a few pages and mean little.
"""

import argparse
import json
import sys

from harness.processes import Interpreters, Worker, WorkerError
from peers import MODULES


def peak_bytes(peer: str, depth: int, interpreters: Interpreters) -> int:
    """The peak of one fresh process that runs a chain of `depth` levels."""
    arguments = ("--workload", "depth", "--depth", str(depth))
    with Worker(interpreters.of(peer), peer, *arguments) as worker:
        metrics = worker.sample()["metrics"]
    if "memory" not in metrics:
        raise SystemExit("this system does not tell a process its peak memory")
    return int(metrics["memory"]["wall"])


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--depths", default="1000,10000,100000,1000000", help="default: %(default)s")
    add("--peer", choices=MODULES, default="odyssey")
    add("--peer-python", action="append", default=[], metavar="[PEER=]PYTHON")
    add("--json", metavar="FILE", help="append one JSON line for each depth")
    return parser.parse_args()


def main() -> int:
    arguments = _parse_arguments()
    depths = [int(depth) for depth in arguments.depths.split(",")]
    interpreters = Interpreters(arguments.peer_python)
    print(f"{'depth':>10} {'peak_bytes':>14} {'bytes_per_level':>16}")
    for depth in depths:
        try:
            peak = peak_bytes(arguments.peer, depth, interpreters)
        except WorkerError as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
        print(f"{depth:>10} {peak:>14} {peak / depth:>16.1f}", flush=True)
        if arguments.json:
            with open(arguments.json, "a") as stream:
                record = {"peer": arguments.peer, "depth": depth, "peak_bytes": peak}
                stream.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
