"""Milliseconds that `import odyssey` adds to `import numpy`, and whether it loads numba.

    python benchmarks/import_time.py [--rounds 21]

Fresh processes, alternating; the figure is the median of the paired differences. The exit status
is 1 if the bar is missed or numba was imported: only compiled code should pay for numba.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

from harness.machine import pin_to_one_cpu
from harness.processes import measured_environment
from harness.sampling import take_turns

BAR_MILLISECONDS = 35.0

_CHILD = """
import json, sys, time
start = time.perf_counter()
import {module}
elapsed = time.perf_counter() - start
print(json.dumps([1e3 * elapsed, "numba" in sys.modules]))
"""


def import_once(module: str, bytecode: str) -> tuple[float, bool]:
    """Milliseconds to import `module` in a fresh process, and whether that imported numba.

    Bytecode is cached in the folder `bytecode`, as it is after any first import on a machine
    that does not forbid it.
    """
    finished = subprocess.run(
        [sys.executable, "-c", _CHILD.format(module=module)],
        env=measured_environment() | {"PYTHONPYCACHEPREFIX": bytecode},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if finished.returncode:
        raise SystemExit(f"import {module} failed, see above")
    milliseconds, loads_numba = json.loads(finished.stdout)
    return milliseconds, loads_numba


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21, help="pairs of processes")
    rounds = parser.parse_args().rounds
    pin_to_one_cpu()
    modules = ["numpy", "odyssey"]
    # The first import compiles to bytecode and fills the page cache: not counted.
    times: dict[str, list[float]] = {module: [] for module in modules}
    with tempfile.TemporaryDirectory() as bytecode:
        loads_numba = {module: import_once(module, bytecode)[1] for module in modules}
        for _, module in take_turns(modules, rounds):
            times[module].append(import_once(module, bytecode)[0])
    added = [
        odyssey - numpy for odyssey, numpy in zip(times["odyssey"], times["numpy"], strict=True)
    ]
    median = statistics.median(added)
    met = median <= BAR_MILLISECONDS
    bar = f"bar <= {BAR_MILLISECONDS:.0f} {'met' if met else 'MISSED'}"
    print(f"import numpy     {statistics.median(times['numpy']):7.1f} ms")
    print(f"import odyssey   {statistics.median(times['odyssey']):7.1f} ms")
    print(f"odyssey adds     {median:7.1f} ms   {bar}")
    print(f"numba imported   {'yes: MISSED' if loads_numba['odyssey'] else 'no'}")
    return 0 if met and not loads_numba["odyssey"] else 1


if __name__ == "__main__":
    sys.exit(main())
