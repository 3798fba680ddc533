"""CUDA programs on a card: prepared as data without one, run there with NumPy and CuPy alone.

python -m benchmarks card prepare --out DIR            # PTX, launches, inputs, expected results
python -m benchmarks card prepare --out DIR --small    # few blocks, and the text that `here` runs
python -m benchmarks card here DIR                     # a small set, executed on the CPU
python -m benchmarks card run DIR                      # on a card; DIR/on_card.py does the same
"""

import argparse
import subprocess
import sys


def main() -> int:
    """Parse arguments, and do what they name."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks card", description=__doc__.partition("\n")[0]
    )
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("prepare", help="write the data; needs odyssey, and no card")
    one.add_argument("--out", required=True, metavar="DIR", help="a new or empty folder")
    one.add_argument("--small", action="store_true", help="few blocks, and the text for `here`")
    here = parts.add_parser("here", help="execute a small set on the CPU")
    here.add_argument("dir", metavar="DIR", help="what `prepare --small` wrote")
    on_card = parts.add_parser("run", help="run on a card; needs CuPy and a driver")
    on_card.add_argument("dir", metavar="DIR", help="what `prepare` wrote")
    asked = parser.parse_args()
    if asked.part == "prepare":
        from card.prepare import prepare

        return prepare(asked.out, asked.small)
    if asked.part == "here":
        from card.here import run_here

        return run_here(asked.dir)
    return subprocess.run([sys.executable, f"{asked.dir}/on_card.py", asked.dir]).returncode


if __name__ == "__main__":
    sys.exit(main())
